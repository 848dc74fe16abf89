"""The functions of unit-wise steps: what a group of rows of one unit is turned into, and the types that this takes.

A unit-wise step only combines rows that have the same unit. What one unit can change: the rows of that unit after the
step, because they are a function of its rows before it. So a function may look at all rows of its group, but

- it must not depend on the order in which rows are stored: `first` and `row_number` need columns to sort by, and ties
  are broken by the values of the other columns, so only equal rows tie;
- it must not depend on how an engine splits the work: floats are added up exactly, as integers;
- it must have a value, perhaps null, for every group: integers that no longer fit into 64 bits become null, and so do
  decimals that no longer fit into 38 digits.

A variance is a function of exact sums: those of the values, of their differences from the mean, and of the squares of
these. A frame of rows ("the last seven") is added up in an order that its own rows decide, one after the other or in
pairs, pairs of pairs and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import polars as pl

from dp_polars._expressions.messages import Reason, Refused


class WindowFrame(NamedTuple):
    """The rows around each row that a function looks at.

    Attributes
    ----------
    start, end
        The first and the last row, counted from the current row (-6 is the sixth row before it). None: no end.
    by_value
        Whether not rows are counted, but steps of the one column that rows are sorted by: days, or parts of a second
        that its type has. Rows with equal values are in the same frames then.
    """

    start: int | None
    end: int | None
    by_value: bool = False


_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)

ResultType = Callable[[pl.DataType], pl.DataType | None]
"""Returns the type of the result for a type of the argument, or None if the function does not take that type."""


@dataclass(frozen=True)
class UnitFunction:
    """A function of the rows of one group, or of one row among them.

    Attributes
    ----------
    result
        The type of the result for each type of the argument. It is given `pl.Null` if there is no argument.
    argument
        Whether the function takes a column.
    ordered
        Whether the rows must be sorted.
    window
        Whether every row gets a value of its own. Otherwise there is one value for the group.
    """

    result: ResultType
    argument: bool = True
    ordered: bool = False
    window: bool = False


def is_sortable(dtype: pl.DataType) -> bool:
    """Return whether rows can be sorted by the values of a type, in the same order whichever other values there are."""
    return not (dtype.is_nested() or dtype in (pl.Categorical, pl.Object, pl.Null, pl.Unknown, pl.Binary))


def has_distances(dtype: pl.DataType) -> bool:
    """Return whether values of a type are stored as whole numbers of one unit, of at most 64 bits."""
    return (dtype in _INTEGERS and dtype != pl.UInt64) or dtype == pl.Date or isinstance(dtype, pl.Datetime)


def _whole(dtype: pl.DataType) -> pl.DataType:
    return pl.Int64()


def _same(dtype: pl.DataType) -> pl.DataType | None:
    return dtype if is_sortable(dtype) else None


def _countable(dtype: pl.DataType) -> pl.DataType | None:
    return pl.Int64() if is_sortable(dtype) else None


def _sum(dtype: pl.DataType) -> pl.DataType | None:
    if dtype in (*_INTEGERS, pl.Boolean):
        return pl.Int64()
    if dtype in (pl.Float32, pl.Float64):
        return pl.Float64()
    if isinstance(dtype, pl.Decimal):
        return pl.Decimal(38, dtype.scale)
    return dtype if isinstance(dtype, pl.Duration) else None


def _number(dtype: pl.DataType) -> pl.DataType | None:
    return pl.Float64() if dtype in (*_INTEGERS, pl.Boolean, pl.Float32, pl.Float64) else None


def _running(dtype: pl.DataType) -> pl.DataType | None:
    known = dtype in (*_INTEGERS, pl.Float32, pl.Float64, pl.Date) or isinstance(dtype, pl.Datetime | pl.Duration)
    return dtype if known else None


def _text(dtype: pl.DataType) -> pl.DataType | None:
    return pl.String() if dtype == pl.String else None


def _truth(dtype: pl.DataType) -> pl.DataType | None:
    return pl.Boolean() if dtype == pl.Boolean else None


UNIT_FUNCTIONS = {
    "len": UnitFunction(_whole, argument=False),
    "count": UnitFunction(_whole),
    "n_unique": UnitFunction(_countable),
    "n_values": UnitFunction(_countable),
    "sum": UnitFunction(_sum),
    "mean": UnitFunction(_number),
    "median": UnitFunction(_number),
    "variance": UnitFunction(_number),
    "variance_pop": UnitFunction(_number),
    "quantile": UnitFunction(_number),
    "quantile_value": UnitFunction(_same),
    "mode": UnitFunction(_same),
    "join": UnitFunction(_text, ordered=True),
    "min": UnitFunction(_same),
    "max": UnitFunction(_same),
    "any": UnitFunction(_truth),
    "all": UnitFunction(_truth),
    "first": UnitFunction(_same, ordered=True),
    "last": UnitFunction(_same, ordered=True),
    "row_number": UnitFunction(_whole, argument=False, ordered=True, window=True),
    "rank": UnitFunction(_whole, argument=False, ordered=True, window=True),
    "dense_rank": UnitFunction(_whole, argument=False, ordered=True, window=True),
    "shift": UnitFunction(_same, ordered=True, window=True),
    "cum_sum": UnitFunction(_sum, ordered=True, window=True),
    "cum_count": UnitFunction(_whole, ordered=True, window=True),
    "cum_min": UnitFunction(_running, ordered=True, window=True),
    "cum_max": UnitFunction(_running, ordered=True, window=True),
    "frame_sum": UnitFunction(_sum, ordered=True, window=True),
    "frame_count": UnitFunction(_whole, ordered=True, window=True),
    "frame_min": UnitFunction(_same, ordered=True, window=True),
    "frame_max": UnitFunction(_same, ordered=True, window=True),
    "frame_first": UnitFunction(_same, ordered=True, window=True),
    "frame_last": UnitFunction(_same, ordered=True, window=True),
}
"""All functions by name. `n_values` counts distinct values without null, `n_unique` counts null as one of them.

`variance` divides by the number of values minus one, `variance_pop` by their number; both are NaN if a value is NaN.
`quantile` lies between two values, `quantile_value` is one of them: the smallest one that at least this share of the
values does not exceed. `mode` is the smallest of the most frequent values. `join` concatenates texts.
"""


@dataclass(frozen=True)
class SortColumn:
    """A column to sort rows by."""

    name: str
    descending: bool = False
    nulls_last: bool = False


@dataclass(frozen=True)
class UnitValue:
    """A function of a column, computed for each group of rows of one unit. It is made by `unit_value`.

    Attributes
    ----------
    function
        The name of the function.
    column
        The column that it takes, if any.
    order
        The columns that the rows are sorted by.
    offset
        How many rows a value is shifted by.
    dtype
        The type of the result.
    parameter
        The share of a quantile, or the text between the texts of `join`.
    frame
        The rows that a function of a frame looks at.
    """

    function: str
    column: str | None
    order: tuple[SortColumn, ...]
    offset: int
    dtype: pl.DataType
    parameter: float | str | None = None
    frame: WindowFrame | None = None


def share_of(level: float) -> Fraction:
    """Return the share of a quantile as it was written, because 0.7 as a float is a little less than 7/10."""
    return Fraction(repr(level))


def unit_value(
    function: str,
    column: str | None,
    schema: pl.Schema,
    *,
    order: tuple[SortColumn, ...] = (),
    offset: int = 0,
    parameter: float | str | None = None,
    frame: WindowFrame | None = None,
) -> UnitValue:
    """Return a function of a column, or refuse it because of its types or because it lacks an order."""
    known = UNIT_FUNCTIONS[function]
    dtype = pl.Null() if column is None else schema[column]
    result = known.result(dtype)
    if result is None:
        raise Refused(
            function,
            Reason(
                f"does not take values of type {dtype}",
                "Within a unit, it is computed for numbers, texts, dates and similar types whose values can be sorted.",
                "Cast the column first, or take a field or an element of it.",
            ),
        )
    if known.ordered and not order:
        raise Refused(
            function,
            Reason(
                "depends on the order of the rows",
                "The order in which rows are stored may depend on other people's rows.",
                "Say what to sort by: pl.col('x').sort_by('day').first(), or .over('user_id', order_by='day').",
            ),
        )
    unsorted = [sort_column.name for sort_column in order if not is_sortable(schema[sort_column.name])]
    if unsorted:
        raise Refused(
            function,
            Reason(
                f"sorts by {', '.join(unsorted)}, whose values have no fixed order",
                "Rows are sorted by numbers, texts, dates and similar types.",
                "Cast the column to such a type first.",
            ),
        )
    if isinstance(parameter, float) and not (0 <= parameter <= 1 and share_of(parameter).denominator <= 10**9):
        raise Refused(
            function,
            Reason("needs a share from 0 to 1", "It may have up to nine digits.", "Write 0.9 for the 90th percentile."),
        )
    if frame is not None and frame.by_value and (len(order) != 1 or not has_distances(schema[order[0].name])):
        raise Refused(
            function,
            Reason(
                "looks at values up to a distance, but rows are not sorted by a single date, time or whole number",
                "Only such values have exact distances.",
                "Sort by one such column, or count rows (ROWS BETWEEN 6 PRECEDING AND CURRENT ROW).",
            ),
        )
    return UnitValue(function, column, order, offset, result, parameter, frame)
