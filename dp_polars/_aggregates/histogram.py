"""Histograms: counts of a column's values between edges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import polars as pl

from dp_polars._aggregates.base import Aggregate, AggregateCall, ExpressionLike, Noisy, RowRule, aggregate_function
from dp_polars._aggregates.needs import BinCounts, Need
from dp_polars._aggregates.values import Bounds, Value, stored_number
from dp_polars._expressions.tree import CheckedExpression
from dp_polars._numbers import Number, count_of
from dp_polars.errors import InvalidParameterError

BIN = ("bin_low", "bin_high")
"""The columns with the edges of a bin."""

_MOST_BINS = 10_000
_DEFAULT_BINS = 10
_LARGEST_EDGE = (1 << 63) - 1  # engines compare stored numbers of 64 bits


@dataclass(frozen=True, kw_only=True)
class Histogram(Aggregate):
    """Counts of values by bin. A bin includes its lower edge, and the last bin includes both edges."""

    kind: ClassVar = "histogram"
    summary: ClassVar = "counts of values by bin, between edges"
    options: ClassVar[Mapping[str, Any]] = {"edges": None, "bins": None}
    sql_type: ClassVar = 'STRUCT(bin_low DOUBLE, bin_high DOUBLE, "count" BIGINT)[]'
    takes_times: ClassVar = True
    rows_beyond_the_cap: ClassVar = RowRule.KEEP
    unfolds: ClassVar = "rows"

    edges: tuple[Fraction, ...] = ()

    @classmethod
    def checked_options(cls, call: AggregateCall, values: tuple[Value, ...]) -> dict[str, Any]:
        """Return the fields that follow from the aggregate's own options."""
        return {"edges": _edges_of(call, values[0])}

    @classmethod
    def value(
        cls, checked: CheckedExpression, bounds: Bounds, call: AggregateCall, *, can_estimate: bool = True
    ) -> Value:
        """Return the column, with bounds only if the bins are to be made from them."""
        if call.options["edges"] is not None:
            cls.check_type(checked.name, checked.dtype)
            return Value(name=checked.name, expression=checked.canonical, dtype=checked.dtype)
        return super().value(checked, bounds, call, can_estimate=False)

    @classmethod
    def check_auto(cls, name: str, dtype: pl.DataType, call: AggregateCall) -> None:
        """Refuse bounds="auto", because the edges of bins must be known before rows are read."""
        raise InvalidParameterError("The bounds of a histogram can't be estimated. Give them: bounds=(0, 100).")

    def needs(self) -> tuple[Need, ...]:
        """Return what this aggregate needs to know about each group."""
        return (BinCounts(value=self.values[0], edges=self.edges),)

    @property
    def _edge_type(self) -> pl.DataType:
        """The type of the edges. The edges of an integer column may lie between integers."""
        dtype = self.values[0].answer_type
        return pl.Float64() if dtype.is_integer() and any(edge.denominator > 1 for edge in self.edges) else dtype

    @property
    def answer_type(self) -> pl.DataType:
        """The type of the answer: a list of bins."""
        return pl.List(pl.Struct(self.unfolded_schema(interval=False)))

    def unfolded_schema(self, *, interval: bool) -> dict[str, pl.DataType]:
        """Return the columns of the answer when it is asked for alone: one row per group and bin."""
        schema: dict[str, pl.DataType] = {BIN[0]: self._edge_type, BIN[1]: self._edge_type, "count": pl.Int64()}
        return schema | ({"count_low": pl.Int64(), "count_high": pl.Int64()} if interval else {})

    def schema(self, *, interval: bool) -> dict[str, pl.DataType]:
        """Return the columns of the answer when it stands beside other answers: one list of bins per group."""
        return {self.name: pl.List(pl.Struct(self.unfolded_schema(interval=interval)))}

    def estimate(self, noisy: Noisy) -> pl.Series:
        """Return a list of bins for each group, with their edges and noisy counts."""
        counts, error = noisy.bins()
        bins = len(self.edges) - 1
        groups = len(counts) // bins
        edges = self._edges()
        columns = {
            BIN[0]: pl.concat([edges[:-1]] * groups) if groups else edges.clear(),
            BIN[1]: pl.concat([edges[1:]] * groups) if groups else edges.clear(),
            "count": counts,
        }
        if noisy.confidence is not None:
            columns |= {"count_low": counts - error, "count_high": counts + error}
        if noisy.nonnegative:
            columns = {name: s.clip(lower_bound=0) if name.startswith("count") else s for name, s in columns.items()}
        rows = pl.DataFrame(columns).with_columns(group=pl.Series(np.repeat(np.arange(groups), bins), dtype=pl.Int64))
        listed = rows.group_by("group", maintain_order=True).agg(pl.struct(pl.exclude("group")).alias("bins"))
        return listed["bins"]

    def _edges(self) -> pl.Series:
        dtype = self._edge_type
        if dtype.is_float():
            return pl.Series([float(edge) for edge in self.edges], dtype=pl.Float64)
        if isinstance(dtype, pl.Decimal):
            numbers = [Decimal(int(edge)).scaleb(-dtype.scale) for edge in self.edges]
            return pl.Series(numbers, dtype=pl.Decimal(38, dtype.scale))
        storage = pl.Int32 if dtype == pl.Date else pl.Int64
        return pl.Series([int(edge) for edge in self.edges], dtype=storage).cast(dtype)


def _edges_of(call: AggregateCall, value: Value) -> tuple[Fraction, ...]:
    """Return the rising edges of the bins, as stored numbers."""
    given, bins = call.options["edges"], call.options["bins"]
    if given is not None:
        if bins is not None or call.bounds[0] is not None:
            raise InvalidParameterError("A histogram takes edges=[...], or bins= and bounds=, but not both.")
        if isinstance(given, str) or not isinstance(given, Iterable) or len(list(given)) < 2:
            raise InvalidParameterError("edges= takes a list of at least two edges: edges=[0, 10, 100].")
        edges = [stored_number(edge, "edges", value.name, value.dtype) for edge in given]
    else:
        number = count_of(_DEFAULT_BINS if bins is None else bins, "bins")
        width = (value.upper - value.lower) / number
        edges = [value.lower + place * width for place in range(number + 1)]
        if not value.dtype.is_float():
            edges = [Fraction(math.floor(edge)) for edge in edges[:-1]] + [Fraction(math.ceil(edges[-1]))]
    if not value.dtype.is_float() and any(abs(edge) > _LARGEST_EDGE for edge in edges):
        raise InvalidParameterError(
            f"The edges of a histogram of {value.name} ({value.dtype}) must fit 64-bit integers in the column's own "
            "unit, which is the last digit of a decimal. Cast the column, or use smaller edges."
        )
    if len(edges) - 1 > _MOST_BINS:
        raise InvalidParameterError(f"A histogram has at most {_MOST_BINS:,} bins.")
    *inner, last = edges
    compared = [Fraction(float(edge)) for edge in edges]
    if not value.dtype.is_float():  # integers are compared, and the last bin includes both edges
        compared = [*(Fraction(math.ceil(edge)) for edge in inner), Fraction(math.floor(last) + 1)]
    if any(not a < b for a, b in pairwise(compared)):
        raise InvalidParameterError("The edges of a histogram must rise and differ. Use fewer bins.")
    return tuple(edges)


@aggregate_function
def histogram(
    column: ExpressionLike,
    *,
    edges: Sequence[Any] | None = None,
    bins: int | None = None,
    bounds: Bounds = None,
    weight: Number = 1,
) -> AggregateCall:
    """Count values by bin: between given `edges`, or in `bins` bins of equal width over `bounds`.

    A bin includes its lower edge, and the last bin includes both edges. Values outside all edges are left out: those
    beyond `bounds` aren't clipped into the outer bins.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(bins=dp.histogram("km", edges=[0, 3, 6]), epsilon=0.5).columns
    ['bins']
    """
    return Histogram.call(column, bounds=bounds, edges=edges, bins=bins, weight=weight)
