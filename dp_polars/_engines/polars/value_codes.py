"""Values as integers: steps of a grid, bins, hashes, or only whether there is a value."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.request import HASH_BITS, LIMIT, ValueColumn


def one_form(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return a column in which equal floats have equal bytes: a single zero and a single NaN.

    This compares values, which looks at one row. Adding 0.0 would not do: Polars computes x + 0.0 in some batches and
    simplifies it to x in others, so the sign of a zero would depend on how many other rows there are.
    """
    if not dtype.is_float():
        return column
    zero, nan = (pl.lit(value, dtype=dtype) for value in (0.0, float("nan")))
    plain = column.is_null() | ((column != 0) & column.is_not_nan())
    return pl.when(plain).then(column).when(column == 0).then(zero).otherwise(nan)  # the first branch gives the name


_SHORT = 1 << 31


def value_codes(
    column: ValueColumn, dtype: pl.DataType, salt: int, values: pl.Expr | None = None, *, short: bool = False
) -> pl.Expr:
    """Return a column as 64-bit integers in [low, high]. A missing value becomes low - 1.

    `values` is an expression for the values if the frame has no column for them. With `short`, floats become 32-bit
    integers if these hold all codes and their distances.
    """
    values = pl.col(column.name) if values is None else values
    if column.kind == "number" and dtype.is_float():
        kind = _integer_type(column, short=short)
        coded = values.cast(pl.Float64).map_batches(
            partial(_rounded, column, kind),
            return_dtype=pl.Int32 if kind is np.int32 else pl.Int64,
            is_elementwise=True,
        )
        return coded.alias(column.name)
    steps = {"number": _steps, "presence": _presence, "hash": _hash, "bin": _bin}[column.kind]
    return steps(column, dtype, salt, values).fill_null(column.low - 1).cast(pl.Int64).alias(column.name)


def codes_of_floats(
    column: ValueColumn, dtype: pl.DataType, *, short: bool = False
) -> Callable[[pl.Series], pl.Series] | None:
    """Return `value_codes` as a function of a column of 64-bit floats, or None for other types and kinds.

    For a batch of rows, it costs Polars as much to call the function as the function takes.
    """
    return (
        partial(_rounded, column, _integer_type(column, short=short))
        if column.kind == "number" and dtype == pl.Float64
        else None
    )


def _integer_type(column: ValueColumn, *, short: bool) -> type[np.int32 | np.int64]:
    """Return the type of a column's codes, with `short` the shortest that holds them and their distances."""
    fits = column.low > -_SHORT and column.high - min(column.low, 0) < _SHORT - 1
    return np.int32 if short and fits else np.int64


def _number(dtype: pl.DataType, values: pl.Expr) -> pl.Expr:
    """Return a column as numbers. NaN is missing. Times and decimals are the integers that they are stored as."""
    if dtype.is_float():
        return values.cast(pl.Float64).fill_nan(None)
    if dtype.is_temporal() or dtype.is_decimal():
        return values.to_physical().cast(pl.Int128)
    return values.cast(pl.Int128)


def _steps(column: ValueColumn, dtype: pl.DataType, salt: int, values: pl.Expr) -> pl.Expr:
    number = _number(dtype, values) - int(column.offset)
    if column.exponent > 0:
        number = number // (1 << column.exponent)
    return number.clip(column.low, column.high).cast(pl.Int64)


def _rounded(column: ValueColumn, kind: type[np.int32 | np.int64], floats: Any) -> pl.Series:
    """Return the code of each float, ties to even. In place, this takes a fifth of the time of Polars' steps."""
    given: NDArray[np.float64] = floats.to_numpy()  # null becomes NaN
    low, high = max(column.low, -LIMIT), min(column.high, LIMIT)
    with np.errstate(all="ignore"):  # a warning would tell something about a row
        steps = given - float(column.offset) if column.offset else given.copy()
        steps *= 2.0**-column.exponent
        np.rint(steps, out=steps)
        np.maximum(steps, float(low), out=steps)  # NaN stays NaN
        np.minimum(steps, float(high), out=steps)
        missing = np.isnan(steps) if np.isnan(steps.sum()) else None
    if missing is not None:
        steps[missing] = 0.0
    codes = steps.astype(kind)
    if missing is not None:
        codes[missing] = column.low - 1
    return pl.Series(floats.name, codes)


def _presence(column: ValueColumn, dtype: pl.DataType, salt: int, values: pl.Expr) -> pl.Expr:
    there = values.is_not_null() & values.is_not_nan() if dtype.is_float() else values.is_not_null()
    return pl.when(there).then(pl.lit(0, dtype=pl.Int64))


def _hash(column: ValueColumn, dtype: pl.DataType, salt: int, values: pl.Expr) -> pl.Expr:
    if dtype.is_float():
        values = one_form(values, dtype).fill_nan(None)
    elif dtype == pl.Categorical:
        values = values.cast(pl.String)
    shortened = values.hash(salt) // pl.lit(1 << (64 - HASH_BITS), dtype=pl.UInt64)
    return pl.when(values.is_not_null()).then(shortened.cast(pl.Int64))


def _bin(column: ValueColumn, dtype: pl.DataType, salt: int, values: pl.Expr) -> pl.Expr:
    """Return the bin of each number. Comparisons are exact because they use the numbers themselves."""
    edges = np.array(column.edges, np.float64 if dtype.is_float() else np.int64)

    def binned(numbers: Any) -> pl.Series:
        given = numbers.fill_null(0).to_numpy()
        bins = np.searchsorted(edges, given, side="right") - 1
        bins[given == edges[-1]] = len(edges) - 2
        bins[given > edges[-1]] = -1
        return pl.Series(numbers.name, bins, dtype=pl.Int64).set(numbers.is_null(), None)

    number = _number(dtype, values)
    if not dtype.is_float():
        number = number.clip(-LIMIT, LIMIT).cast(pl.Int64)
    return number.map_batches(binned, return_dtype=pl.Int64, is_elementwise=True)
