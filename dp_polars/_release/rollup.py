"""Compute totals, and make noisy tables agree with their noisy totals by weighted least squares.

Making them agree is post-processing of noisy numbers. A table with its totals over the last keys is a tree, so two
passes give the least squares estimate (Hay, Rastogi, Miklau and Suciu 2010, with a variance for each level). On the way
up, each total is averaged with the sum of its children, weighted by precision. On the way down, the remaining
difference is spread over the children in proportion to their variance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.bounding.sums import joined
from dp_polars._engines.request import Exact
from dp_polars._plan.plan import Plan
from dp_polars._plan.rollup import LEVEL, level_name

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


def exact_totals(exact: Exact, name: str, parents: list[Numbers]) -> list[Numbers]:
    """Return the exact sums of each level, from the grand total to the table itself."""
    levels = [exact.groups[name].to_numpy()]
    for parent in reversed(parents):
        size = int(parent.max(initial=-1)) + 1
        high, low = np.zeros(size, np.int64), np.zeros(size, np.int64)
        np.add.at(high, parent, levels[0] >> 32)
        np.add.at(low, parent, levels[0] & 0xFFFFFFFF)
        levels.insert(0, joined(high, low))  # sums are clipped at 2**62 and never wrap
    return levels


def tree_of(keys: list[str], groups: pl.DataFrame) -> tuple[list[Numbers], pl.DataFrame]:
    """Return the places of the parents for each level below the top, and the keys of all rows, the table first."""
    parents: list[Numbers] = []
    tables = [groups.select(keys)]
    for level in range(len(keys) - 1, -1, -1):
        above = tables[-1].select(keys[:level]).unique(maintain_order=True) if level else pl.DataFrame({"": [0]})
        if level:
            numbered = above.with_row_index("place")
            joined = tables[-1].join(numbered, on=keys[:level], how="left", nulls_equal=True, maintain_order="left")
            places = joined["place"].to_numpy().astype(np.int64)
        else:
            places = np.zeros(tables[-1].height, np.int64)
        parents.insert(0, places)
        tables.append(above)
    schema = groups.select(keys).schema
    shown = [
        table.select(
            *(pl.col(key) if key in table.columns else pl.lit(None, dtype=schema[key]).alias(key) for key in keys),
            pl.lit(len(keys) - place, dtype=pl.Int64).alias(LEVEL),
        )
        for place, table in enumerate(tables)
    ]
    return parents, pl.concat(shown)


def agreeing(noisy: list[Numbers], variances: list[float], parents: list[Numbers], of: int = 1) -> list[Numbers]:
    """Return integers close to the least squares estimate of all levels. Each total is the sum of its children.

    All of them are multiples of the integer `of`.
    """
    shown: list[Floats] = [level / of for level in noisy]
    values: list[Floats] = [shown[-1]]
    spreads: list[Floats] = [np.full(len(shown[-1]), variances[-1])]
    for parent, totals, variance in zip(reversed(parents), reversed(shown[:-1]), reversed(variances[:-1]), strict=True):
        sums, below = _summed(values[0], parent, len(totals)), _summed(spreads[0], parent, len(totals))
        average: Floats = (totals / variance + sums / below) / (1 / variance + 1 / below)
        values.insert(0, average)
        spreads.insert(0, 1 / (1 / variance + 1 / below))
    whole = [np.rint(values[0]).astype(np.int64)]
    for parent, value, spread in zip(parents, values[1:], spreads[1:], strict=True):
        above = whole[-1]
        missing = above - _summed(value, parent, len(above))
        fitted = value + spread / _summed(spread, parent, len(above))[parent] * missing[parent]
        whole.append(_rounded(fitted, parent, above))
    return [level * of for level in whole]


def _summed(numbers: Any, parent: Numbers, size: int) -> Floats:
    sums: Floats = np.bincount(parent, weights=numbers, minlength=size).astype(np.float64)
    return sums


def _rounded(fitted: Floats, parent: Numbers, above: Numbers) -> Numbers:
    """Round to integers that add up to the totals above: down, and up where the fractions are largest."""
    down = np.floor(fitted)
    order = np.lexsort((down - fitted, parent))
    whole = down.astype(np.int64)
    sums = np.zeros(len(above), np.int64)
    np.add.at(sums, parent, whole)
    counts = np.bincount(parent, minlength=len(above))
    each, rest = np.divmod(above - sums, np.maximum(counts, 1))
    starts = np.cumsum(counts) - counts
    rank = np.empty(len(fitted), np.int64)
    rank[order] = np.arange(len(fitted)) - starts[parent[order]]
    return whole + each[parent] + (rank < rest[parent])


def level_measurements(plan: Plan, name: str) -> list[Any]:
    """Return the measurements of a statistic at each level, from the grand total to the table itself."""
    levels = len(plan.query.keys)
    return [plan.measurement(level_name(name, level, levels)) for level in range(levels + 1)]
