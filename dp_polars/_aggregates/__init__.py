"""Aggregates: what can be computed for each group of a private frame.

- `base`: the base class, the registry, and the noisy numbers that answers are computed from.
- `needs`: what an aggregate may need to know about a group. The compiler in `_plan` turns needs into sums and noise.
- `values`: the columns that an aggregate reads, with their types and bounds.
- `moment_ranges`: the intervals of variances, correlations and regressions.
- `cut`: the units that caps and bounds cut, which `cut=True` counts beside other aggregates.
- `counts`, `sums`, `moments`, `geometric_mean`, `quantiles`, `histogram`, `pairs`: the aggregates, each with its
  function, such as `dp.mean`. A new aggregate is a new class in a file of its own, imported below, and a method in
  `_frame/methods.py`.

May import: `_expressions`, `_numbers` and `errors`. Never: rows, exact numbers, noise, engines, sessions.
"""

from dp_polars._aggregates.base import REGISTRY as REGISTRY
from dp_polars._aggregates.base import Aggregate as Aggregate
from dp_polars._aggregates.base import AggregateCall
from dp_polars._aggregates.counts import count, count_units, n_unique
from dp_polars._aggregates.geometric_mean import geometric_mean
from dp_polars._aggregates.histogram import histogram
from dp_polars._aggregates.moments import mean, std, var
from dp_polars._aggregates.pairs import corr, cov, linear_regression
from dp_polars._aggregates.quantiles import max, median, min, quantile
from dp_polars._aggregates.sums import sum

__all__ = [
    "AggregateCall",
    "corr",
    "count",
    "count_units",
    "cov",
    "geometric_mean",
    "histogram",
    "linear_regression",
    "max",
    "mean",
    "median",
    "min",
    "n_unique",
    "quantile",
    "std",
    "sum",
    "var",
]
