"""Whole numbers for keys and units, computed in Polars.

Group codes number the groups in the order of their key values (null first), so the order of two groups never depends
on which other groups there are. Unit codes only tell units apart: equal codes, equal units, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

_ENUM_SIZE = 4096  # up to this many strings, a cast to Enum is faster than a join
_HASHED_SIZE = 128  # up to this many keys, 16 bits of a hash tell them apart after a few tries
_HASH_BITS = 16
_RANGE_SIZE = 1 << 24  # an integer key within this range is its own code


@dataclass(frozen=True)
class Codes:
    """A frame with a code column, how many codes there are, and the way back to values."""

    frame: pl.LazyFrame
    code: pl.Expr
    size: int
    decode: Callable[[pl.Series], pl.Series]


def key_codes(frame: pl.LazyFrame, name: str, dtype: pl.DataType) -> Codes:
    """Return codes for one key column whose values come from the data."""
    physical = _integer_form(pl.col(name), dtype)
    if physical is not None:
        low, high = _range(frame, physical)
        if high - low < _RANGE_SIZE:
            inside = (physical.cast(pl.Int128) - low + 1).cast(pl.UInt64, strict=False)
            code = pl.when(physical.is_null()).then(pl.lit(0, pl.UInt64)).otherwise(_within(inside, high - low + 2))
            back = pl.UInt64 if dtype == pl.UInt64 else pl.Int64
            return Codes(
                frame,
                code,
                high - low + 2,
                lambda codes: _decoded_range(codes, low, back, dtype).alias(name),
            )
    values = collect(frame.select(pl.col(name).unique())).to_series().drop_nulls().sort()
    dictionary = pl.concat([pl.Series(name, [None], dtype=values.dtype), values])
    hashed = _hashed_codes(frame, dictionary) if len(values) <= _HASHED_SIZE else None
    return hashed or dictionary_codes(frame, dictionary)


def _hashed_codes(frame: pl.LazyFrame, dictionary: pl.Series) -> Codes | None:
    """Return codes by looking up each key's hash, for few keys: a third of the cost of comparing strings.

    Exact, because the dictionary holds every key there is and a seed is used under which all of them have different
    hashes; None if a few seeds don't give that.
    """
    name = dictionary.name
    for seed in range(8):
        place = pl.col(name).hash(seed) // pl.lit(1 << (64 - _HASH_BITS), dtype=pl.UInt64)
        places = dictionary.to_frame().select(place).to_series().to_numpy()
        if len(np.unique(places)) == len(places):
            table = np.zeros(1 << _HASH_BITS, np.uint16)
            table[places] = np.arange(len(places))
            code = pl.lit(pl.Series(table)).gather(place.cast(pl.UInt32)).cast(pl.UInt64)
            return Codes(frame, code, len(dictionary), lambda codes: dictionary.gather(codes.cast(pl.UInt32)))
    return None


def dictionary_codes(frame: pl.LazyFrame, dictionary: pl.Series) -> Codes:
    """Return codes for one key column by its place in a dictionary; rows with another key get null."""
    name, dtype = dictionary.name, dictionary.dtype
    decode: Callable[[pl.Series], pl.Series] = lambda codes: dictionary.gather(codes.cast(pl.UInt32))  # noqa: E731
    words = dictionary.drop_nulls()
    if dtype == pl.String and len(words) <= _ENUM_SIZE:
        # The words keep their place in the dictionary; null, if it is a key, comes first.
        null_code = 0 if dictionary.null_count() else None
        code = pl.col(name).cast(pl.Enum(words), strict=False).to_physical().cast(pl.UInt64)
        if null_code is not None:
            code = pl.when(pl.col(name).is_null()).then(pl.lit(0, pl.UInt64)).otherwise(code + 1)
        return Codes(frame, code, len(dictionary), decode)
    table = pl.LazyFrame({name: dictionary}).with_row_index(f"{name}_code")
    joined = frame.join(table, on=name, how="left", nulls_equal=True)
    return Codes(joined, pl.col(f"{name}_code").cast(pl.UInt64), len(dictionary), decode)


def frame_codes(frame: pl.LazyFrame, domain: pl.DataFrame) -> Codes:
    """Return codes for several key columns by the row of a public domain; other rows get null."""
    table = domain.lazy().with_row_index("domain_code")
    joined = frame.join(table, on=domain.columns, how="left", nulls_equal=True)
    return Codes(joined, pl.col("domain_code").cast(pl.UInt64), domain.height, lambda codes: codes)


def unit_codes(frame: pl.LazyFrame, names: list[str], schema: pl.Schema) -> Codes:
    """Return exact codes that tell units apart."""
    if len(names) == 1:
        name, dtype = names[0], schema[names[0]]
        physical = _integer_form(pl.col(name), dtype)
        if physical is not None:
            low, high = _range(frame, physical)
            if high - low < 1 << 63:
                offset = physical.cast(pl.Int128) - low if _wide(low, high) else physical.cast(pl.Int64) - low
                code = _within(offset.cast(pl.UInt64, strict=False), high - low + 1)
                return Codes(frame, code, high - low + 1, lambda codes: codes)
            return Codes(frame, (physical.cast(pl.Int128) - low).cast(pl.UInt64), 1 << 64, lambda codes: codes)
        if dtype == pl.String:
            own = pl.Categorical(pl.Categories.random("dp_units"))
            code = pl.col(name).cast(own).to_physical().cast(pl.UInt64)
            return Codes(frame, code, 1 << 32, lambda codes: codes)
    frame = frame.filter(pl.all_horizontal(pl.col(name).is_not_null() for name in names))
    table = collect(frame.select(names).unique()).lazy().with_row_index("unit_code")
    joined = frame.join(table, on=names, how="left", nulls_equal=True)
    return Codes(joined, pl.col("unit_code").cast(pl.UInt64), 1 << 32, lambda codes: codes)


def _within(code: pl.Expr, size: int) -> pl.Expr:
    """Return null for a code that the first look at the data did not see: such a row would pass for another's."""
    return pl.when(code < size).then(code)


def collect(frame: pl.LazyFrame) -> pl.DataFrame:
    """Run a plan on the streaming engine."""
    return frame.collect(engine="streaming")


def _integer_form(column: pl.Expr, dtype: pl.DataType) -> pl.Expr | None:
    """Return a column as integers in the order of its values, if its type has them."""
    if dtype.is_integer() and dtype not in (pl.Int128, pl.UInt128):
        return column
    if dtype == pl.Boolean:
        return column.cast(pl.Int64)
    if dtype.is_temporal():
        return column.to_physical()
    return None


def _range(frame: pl.LazyFrame, column: pl.Expr) -> tuple[int, int]:
    low, high = collect(frame.select(low=column.min(), high=column.max())).row(0)
    return (0, 0) if low is None else (int(low), int(high))


def _wide(low: int, high: int) -> bool:
    return low < -(1 << 62) or high >= 1 << 62


def _decoded_range(codes: pl.Series, low: int, back: pl.DataType | type[pl.DataType], dtype: pl.DataType) -> pl.Series:
    values = [None if code == 0 else code - 1 + low for code in codes.to_list()]
    return pl.Series(values, dtype=back).cast(_storage(dtype)).cast(dtype)


def _storage(dtype: pl.DataType) -> pl.DataType | type[pl.DataType]:
    return pl.Int32 if dtype == pl.Date else pl.Int64 if dtype.is_temporal() else dtype
