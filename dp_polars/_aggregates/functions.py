"""What can be asked of each group: `dp.count()`, `dp.sum(...)` and so on, for `group_by(...).agg(...)`.

They only hold words; nothing is checked before they meet a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dp_polars._frame.options import ExpressionLike
from dp_polars._numbers import Number
from dp_polars._plan.query import Kind

Bounds = tuple[Any, Any] | Literal["auto"] | None
"""The least and the largest value that count: numbers, or what the column holds (dates, times, decimals)."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """An aggregate in a user's words. Made by `dp.count()`, `dp.sum(...)` and so on.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.sum("amount", bounds=(0, 100), weight=2).kind
    'sum'
    """

    kind: Kind
    columns: tuple[ExpressionLike, ...] = ()
    bounds: tuple[Bounds, ...] = ()
    per: Literal["row", "unit"] = "row"
    quantiles: Any = None
    ddof: int = 1
    edges: Any = None
    bins: int | None = None
    weight: Number = 1


def count(column: ExpressionLike | None = None, *, weight: Number = 1) -> Asked:
    """Count rows, or the values of a column that are not null.

    Parameters
    ----------
    column
        Count only rows where this has a value.
    weight
        The part of the spend that this aggregate gets, relative to the others.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = pl.DataFrame({"user": [1, 1, 2], "region": ["a", "b", "a"], "spent": [3.0, 4.0, 5.0]})
    >>> session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    >>> by_region = dp.private(visits, session).group_by("region")
    >>> answer = by_region.agg(n=dp.count(), mean=dp.mean("spent", bounds=(0, 10)), keys=["a", "b"], epsilon=0.5)
    >>> answer.columns
    ['region', 'n', 'mean']
    """
    return Asked(kind="count", columns=() if column is None else (column,), weight=weight)


def count_units(*, weight: Number = 1) -> Asked:
    """Count units: each once in a group, however many rows it has there.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(people=dp.count_units(), epsilon=0.5).columns
    ['people']
    """
    return Asked(kind="count_units", weight=weight)


def n_unique(column: ExpressionLike, *, weight: Number = 1) -> Asked:
    """Count the different values of a column, of any type. Null is not a value.

    Of a unit with more than `max_rows_per_group` different values in a group, that many chosen at random count.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(kinds=dp.n_unique("km"), n=dp.count(), epsilon=0.5).columns
    ['kinds', 'n']
    """
    return Asked(kind="n_unique", columns=(column,), weight=weight)


def sum(
    column: ExpressionLike, *, bounds: Bounds = None, per: Literal["row", "unit"] = "row", weight: Number = 1
) -> Asked:
    """Add up a column whose values are clipped to `bounds`; with `per="unit"` each unit's total is clipped instead.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(total=dp.sum("km", bounds=(0, 10)), epsilon=0.5).columns
    ['total']
    """
    return Asked(kind="sum", columns=(column,), bounds=(bounds,), per=per, weight=weight)


def mean(column: ExpressionLike, *, bounds: Bounds = None, weight: Number = 1) -> Asked:
    """Average a column whose values are clipped to `bounds`.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(mean=dp.mean("km", bounds=(0, 10), weight=2), n=dp.count(), epsilon=0.5).columns
    ['mean', 'n']
    """
    return Asked(kind="mean", columns=(column,), bounds=(bounds,), weight=weight)


def var(column: ExpressionLike, *, bounds: Bounds = None, ddof: int = 1, weight: Number = 1) -> Asked:
    """Return the variance of a column whose values are clipped to `bounds`; the divisor is the rows less `ddof`.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(spread=dp.var("km", bounds=(0, 10)), epsilon=0.5).columns
    ['spread']
    """
    return Asked(kind="var", columns=(column,), bounds=(bounds,), ddof=ddof, weight=weight)


def std(column: ExpressionLike, *, bounds: Bounds = None, ddof: int = 1, weight: Number = 1) -> Asked:
    """Return the standard deviation of a column whose values are clipped to `bounds`.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(spread=dp.std("km", bounds=(0, 10)), epsilon=0.5).columns
    ['spread']
    """
    return Asked(kind="std", columns=(column,), bounds=(bounds,), ddof=ddof, weight=weight)


def quantile(
    column: ExpressionLike, quantile: Number | Sequence[Number], *, bounds: Bounds = None, weight: Number = 1
) -> Asked:
    """Return a value that the part `quantile` of all values lie below; of several quantiles a list, never crossing.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(far=dp.quantile("km", 0.9, bounds=(0, 10)), epsilon=0.5).columns
    ['far']
    """
    return Asked(kind="quantile", columns=(column,), bounds=(bounds,), quantiles=quantile, weight=weight)


def median(column: ExpressionLike, *, bounds: Bounds = None, weight: Number = 1) -> Asked:
    """Return a value that half of all values lie below.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(typical=dp.median("km", bounds=(0, 10)), epsilon=0.5).columns
    ['typical']
    """
    return Asked(kind="median", columns=(column,), bounds=(bounds,), quantiles=0.5, weight=weight)


def min(column: ExpressionLike, *, bounds: Bounds = None, weight: Number = 1) -> Asked:
    """Return a value near the least, which is one person's: about 38 * max_rows / epsilon rows lie below it.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(least=dp.min("km", bounds=(0, 10)), epsilon=0.5).columns
    ['least']
    """
    return Asked(kind="min", columns=(column,), bounds=(bounds,), quantiles=0, weight=weight)


def max(column: ExpressionLike, *, bounds: Bounds = None, weight: Number = 1) -> Asked:
    """Return a value near the largest: about 38 * max_rows / epsilon rows lie above it.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(most=dp.max("km", bounds=(0, 10)), epsilon=0.5).columns
    ['most']
    """
    return Asked(kind="max", columns=(column,), bounds=(bounds,), quantiles=1, weight=weight)


def histogram(
    column: ExpressionLike,
    *,
    edges: Sequence[Any] | None = None,
    bins: int | None = None,
    bounds: Bounds = None,
    weight: Number = 1,
) -> Asked:
    """Count values by bin: between given `edges`, or `bins` equal ones over `bounds`.

    A bin has its lower edge, the last one both. Values outside of all edges are left out; those beyond `bounds` are not
    clipped into the outer bins either.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(bins=dp.histogram("km", edges=[0, 3, 6]), epsilon=0.5).columns
    ['bins']
    """
    return Asked(kind="histogram", columns=(column,), bounds=(bounds,), edges=edges, bins=bins, weight=weight)


def cov(
    first: ExpressionLike, second: ExpressionLike, *, bounds: tuple[Bounds, Bounds] | None = None, ddof: int = 1,
    weight: Number = 1,
) -> Asked:  # fmt: skip
    """Return the covariance of two columns over rows that have both; `bounds` is a pair for each.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> pairs = dp.private(pl.DataFrame({"x": [0, 1] * 500, "y": [1, 3] * 500}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> pairs.group_by().agg(together=dp.cov("x", "y", bounds=((0, 1), (0, 4))), epsilon=0.5).columns
    ['together']
    """
    return Asked(kind="cov", columns=(first, second), bounds=bounds or (None, None), ddof=ddof, weight=weight)


def corr(
    first: ExpressionLike, second: ExpressionLike, *, bounds: tuple[Bounds, Bounds] | None = None, weight: Number = 1
) -> Asked:
    """Return the correlation (Pearson's) of two columns over rows that have both; `bounds` is a pair for each.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> pairs = dp.private(pl.DataFrame({"x": [0, 1] * 500, "y": [1, 3] * 500}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> pairs.group_by().agg(together=dp.corr("x", "y", bounds=((0, 1), (0, 4))), epsilon=0.5).columns
    ['together']
    """
    return Asked(kind="corr", columns=(first, second), bounds=bounds or (None, None), weight=weight)


def linear_regression(
    x: ExpressionLike, y: ExpressionLike, *, bounds: tuple[Bounds, Bounds] | None = None, weight: Number = 1
) -> Asked:
    """Return slope and intercept of the line that fits y best by x; `bounds` is a pair for x and one for y.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> pairs = dp.private(pl.DataFrame({"x": [0, 1] * 500, "y": [1, 3] * 500}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> pairs.group_by().agg(line=dp.linear_regression("x", "y", bounds=((0, 1), (0, 4))), epsilon=0.5).columns
    ['line']
    """
    return Asked(kind="linear_regression", columns=(x, y), bounds=bounds or (None, None), weight=weight)
