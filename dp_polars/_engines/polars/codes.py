"""Exact integer codes for keys and units, one batch of rows at a time.

Codes number the values of a column in their own order (null first), so the order of two groups never depends on which
other groups there are. A code comes from the value itself, or from a table of all values that is searched by hash; then
every row is compared with the value that its code stands for, so the code is exact. If two values share a hash, which
is very unlikely, `HashCollisionError` is raised and the codes are found by a join instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.polars.hash_table import HashTable
from dp_polars._engines.polars.scan import collect, pass_over
from dp_polars._engines.polars.value_codes import one_form
from dp_polars._engines.request import stored_as_integers

_RANGE_SIZE = 1 << 24  # integer keys that span less than this need no table

Numbers = NDArray[np.int64]
Words = NDArray[np.uint64]


class Salts:
    """Secret hash seeds, one for each use. They are drawn independently of each other and of the rows."""

    def __init__(self, draw: Callable[[], int]) -> None:
        self._draw, self._lock = draw, threading.Lock()
        self._drawn: dict[str, int] = {}

    def of(self, use: str) -> int:
        """Return the seed for a use. It is the same each time."""
        with self._lock:  # two threads must not draw two seeds for one use
            if use not in self._drawn:
                self._drawn[use] = self._draw()
            return self._drawn[use]


class HashCollisionError(Exception):
    """Two values of a column have the same hash."""


class Codes(Protocol):
    """Codes of one column, from 0 to `size` - 1.

    They are computed from the batch columns that `columns` returns and, if `by_hash`, from the hash of the column.
    """

    size: int
    by_hash: bool

    def columns(self) -> dict[str, pl.Expr]:
        """Return the columns that a batch must have."""
        ...

    def numbers(self, batch: pl.DataFrame) -> NDArray[Any]:
        """Return the code of each row, or -1 if it has none. If all rows have one, the codes may be unsigned."""
        ...

    def decode(self, numbers: Numbers) -> pl.Series:
        """Return the values that codes stand for."""
        ...


class RangeCodes:
    """Codes of integers, and of types stored as integers: the distance from the least value."""

    by_hash = False

    def __init__(self, name: str, dtype: pl.DataType, low: int, high: int) -> None:
        self._name, self._dtype, self._low, self._span = name, dtype, low, high - low + 1
        self.size = self._span + 1

    def columns(self) -> dict[str, pl.Expr]:
        """Return the columns that a batch must have."""
        form = integer_form(pl.col(self._name), self._dtype)
        return {} if form is None else {f"{self._name}_integer": form}

    def numbers(self, batch: pl.DataFrame) -> Numbers:
        """Return the code of each row, or -1 if it has none."""
        column = batch[f"{self._name}_integer"]
        numbers = distance(column, self._low).view(np.int64)
        if numbers.view(np.uint64).max() >= np.uint64(self._span):
            # A row outside the range was not there in the first pass over the data, so it has no code: -2 + 1 below.
            numbers[numbers.view(np.uint64) >= np.uint64(self._span)] = -2
        numbers += 1
        if column.null_count():
            numbers[column.is_null().to_numpy()] = 0
        return numbers

    def decode(self, numbers: Numbers) -> pl.Series:
        """Return the values that codes stand for."""
        unsigned = self._dtype == pl.UInt64
        low = np.uint64((self._low - 1) % (1 << 64))
        values = (numbers.view(np.uint64) + low).view(np.uint64 if unsigned else np.int64)
        series = pl.select(pl.when(pl.Series(numbers != 0)).then(pl.Series(values))).to_series()
        storage = pl.Int32 if self._dtype == pl.Date else pl.Int64 if self._dtype.is_temporal() else self._dtype
        return series.cast(storage).cast(self._dtype).alias(self._name)


class TableCodes:
    """Codes of values of any type: their place in a dictionary, found by hash and then compared.

    An `open_` dictionary was given rather than learned from the rows, so a value that it lacks simply has no code.
    """

    by_hash = True

    def __init__(self, dictionary: pl.Series, dtype: pl.DataType, table: HashTable, *, open_: bool) -> None:
        self._name, self._dtype, self._dictionary = dictionary.name, dtype, dictionary
        self._table, self._open = table, open_
        self.size = len(dictionary)

    def columns(self) -> dict[str, pl.Expr]:
        """Return the columns that a batch must have."""
        return {f"{self._name}_value": plain_form(pl.col(self._name), self._dtype)}

    def numbers(self, batch: pl.DataFrame) -> Numbers:
        """Return the code of each row, or -1 if it has none."""
        hashes, values = batch[hash_name(self._name)].to_numpy(), batch[f"{self._name}_value"]
        numbers = self._table.guess(hashes)
        same = self._stands_for(numbers, values)
        if not same.all():
            others = np.flatnonzero(~same)
            found = self._table.find(hashes[others])
            same = self._stands_for(found, values.gather(others))
            if not self._open and np.any(~same & (found >= 0)):
                raise HashCollisionError
            numbers[others] = np.where(same, found, -1)
        return numbers.astype(np.int64)

    def _stands_for(self, numbers: NDArray[np.int32], values: pl.Series) -> NDArray[np.bool_]:
        """Return which values equal the ones that the numbers stand for.

        -1 stands for nothing, and so does the number of a value that another thread has added since the dictionary was
        made.
        """
        if not self.size:
            return np.zeros(len(numbers), np.bool_)
        # As an unsigned integer -1 is large, so the minimum is a valid place.
        places = np.minimum(numbers.view(np.uint32), np.uint32(self.size - 1))
        stands_for = self._dictionary[pl.Series(places)]
        nulls = stands_for.null_count() or values.null_count()
        same = (stands_for.eq_missing(values) if nulls else stands_for == values).to_numpy()
        return same & (numbers.view(np.uint32) < np.uint32(self.size))

    def decode(self, numbers: Numbers) -> pl.Series:
        """Return the values that codes stand for."""
        return self._dictionary.gather(pl.Series(numbers, dtype=pl.Int64)).cast(self._dtype)


class PlaceCodes:
    """Codes that a join has put into a column. Null means no code."""

    by_hash = False

    def __init__(self, column: str, size: int, dictionary: pl.Series | None) -> None:
        self._column, self.size, self._dictionary = column, size, dictionary

    def columns(self) -> dict[str, pl.Expr]:
        """Return the columns that a batch must have."""
        return {self._column: pl.col(self._column).cast(pl.Int64).fill_null(-1)}

    def numbers(self, batch: pl.DataFrame) -> Numbers:
        """Return the code of each row, or -1 if it has none."""
        return batch[self._column].to_numpy()

    def decode(self, numbers: Numbers) -> pl.Series:
        """Return the values that codes stand for."""
        if self._dictionary is None:
            raise ValueError("these codes stand for rows of a domain")
        return self._dictionary.gather(pl.Series(numbers, dtype=pl.Int64))


# ---------------------------------------------------------------------- codes for columns


@dataclass(frozen=True)
class Range:
    """The least and the greatest value of a column in its integer form; both are 0 if it has none."""

    low: int
    high: int


@dataclass(frozen=True)
class Learned:
    """All values of a column, in the order in which a table has numbered their hashes."""

    values: pl.Series
    table: HashTable


Seen = Range | Learned


def look_at(
    frame: pl.LazyFrame, names: Sequence[str], salts: Salts, *, only_ranges: Container[str] = ()
) -> dict[str, Seen]:
    """Look at the values of columns in one pass: at the range of integers, and at all values of other types.

    If integers span a long range, a second pass learns their values too, except where `only_ranges` are wanted.
    """
    integers = [name for name, dtype in frame.collect_schema().items() if name in names and stored_as_integers(dtype)]
    seen = _look(frame, integers, [name for name in names if name not in integers], salts)
    long = [name for name, one in seen.items() if not is_enough(one, name, only_ranges)]
    return seen | _look(frame, [], long, salts)


def is_enough(seen: Seen, name: str, only_ranges: Container[str]) -> bool:
    """Return whether a column needs no second look: its values are known, or they span a short range."""
    return not isinstance(seen, Range) or seen.high - seen.low < _RANGE_SIZE or name in only_ranges


def _look(frame: pl.LazyFrame, integers: Sequence[str], others: Sequence[str], salts: Salts) -> dict[str, Seen]:
    """Look at the ranges of some columns and learn the values of others, in one pass."""
    schema = frame.collect_schema()
    forms = [form.alias(name) for name in integers if (form := integer_form(pl.col(name), schema[name])) is not None]
    if not others:
        return _ranges(frame.select(forms), integers)
    plain = [plain_form(pl.col(name), schema[name]).alias(name) for name in others]
    tables = {name: HashTable() for name in others}
    found = {name: [values] for name, values in collect(frame.select(plain).clear()).to_dict().items()}
    extremes: list[pl.DataFrame] = []
    lock = threading.Lock()

    def learn(rows: pl.DataFrame) -> None:
        if integers:
            extremes.extend((rows.select(integers).min(), rows.select(integers).max()))
        for name in others:
            hashes = rows[hash_name(name)].to_numpy()
            if len(tables[name].missing(hashes)):
                with lock:  # the values stand in the order in which their hashes were added
                    first = tables[name].add(hashes)
                    if len(first):
                        found[name].append(owned(rows[name].gather(first)))

    pass_over(frame.select(*forms, *plain, *(hashed(name, schema[name], salts) for name in others)), learn)
    seen: dict[str, Seen] = {}
    if integers:
        none = collect(frame.select(forms).clear())
        seen |= _ranges(pl.concat([none, *extremes]).lazy(), integers)
    return seen | {name: Learned(pl.concat(found[name], rechunk=True), tables[name]) for name in others}


def _ranges(forms: pl.LazyFrame, names: Sequence[str]) -> dict[str, Seen]:
    """Return the range of columns in their integer form."""
    if not names:
        return {}
    lows, highs = pl.col(names).min().name.suffix(" low"), pl.col(names).max().name.suffix(" high")
    row = collect(forms.select(lows, highs)).row(0, named=True)
    return {name: Range(row[f"{name} low"] or 0, row[f"{name} high"] or 0) for name in names}


def codes_of(name: str, dtype: pl.DataType, seen: Seen, *, in_order: bool = True) -> Codes:
    """Return codes for the values that were seen in a column. Codes that only tell values apart need no order."""
    if isinstance(seen, Range):
        return RangeCodes(name, dtype, seen.low, seen.high)
    values = seen.values
    if in_order:
        order = values.arg_sort(nulls_last=False).to_numpy()
        places = np.empty(len(order), np.int32)
        places[order] = np.arange(len(order))
        seen.table.renumber(places)
        values = values.gather(order)
    return TableCodes(values, dtype, seen.table, open_=False)


def joined_codes(frame: pl.LazyFrame, names: Sequence[str], salts: Salts) -> tuple[pl.LazyFrame, list[Codes]]:
    """Return codes without the help of hashes, and the frame with the columns that they need."""
    schema = frame.collect_schema()
    integers = [name for name in names if stored_as_integers(schema[name])]
    ranges = look_at(frame, integers, salts, only_ranges=integers)
    codes: list[Codes] = []
    for name in names:
        own = ranges.get(name)
        if isinstance(own, Range) and own.high - own.low < _RANGE_SIZE:
            codes.append(codes_of(name, schema[name], own))
            continue
        dictionary = collect(frame.select(pl.col(name).unique())).to_series().sort()
        frame, code = _joined(frame, dictionary)
        codes.append(code)
    return frame, codes


def joined_places(dictionary: pl.Series, values: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return the place of each value of a type in a dictionary of distinct values in their plain form; null if none."""
    wanted = values.alias("value").to_frame().select(plain_form(pl.col("value"), dtype))
    known = dictionary.alias("value").to_frame().with_row_index("place")
    places = wanted.join(known, on="value", how="left", nulls_equal=True, maintain_order="left")["place"]
    if len(places) != len(values):
        raise ValueError("a value is in the dictionary twice")
    return places


def domain_codes(
    frame: pl.LazyFrame, domain: pl.DataFrame, salts: Salts, *, joined: bool
) -> tuple[pl.LazyFrame, list[Codes]]:
    """Return codes for the rows of a public domain. Rows outside it have no code."""
    if domain.width > 1 or joined:
        table = domain.lazy().with_row_index("domain_code")
        frame = frame.join(table, on=domain.columns, how="left", nulls_equal=True)
        return frame, [PlaceCodes("domain_code", domain.height, None)]
    values = domain.to_series()
    plain = values.to_frame().select(plain_form(pl.col(values.name), values.dtype)).to_series()
    hashes = values.to_frame().select(hashed(values.name, values.dtype, salts)).to_series().to_numpy()
    places = HashTable()
    first = places.add(hashes)
    if len(first) < len(values):
        raise HashCollisionError
    places.renumber(first)
    return frame, [TableCodes(plain, values.dtype, places, open_=True)]


def _joined(frame: pl.LazyFrame, dictionary: pl.Series) -> tuple[pl.LazyFrame, Codes]:
    name = f"{dictionary.name}_code"
    table = pl.LazyFrame({dictionary.name: dictionary}).with_row_index(name)
    joined = frame.join(table, on=dictionary.name, how="left", nulls_equal=True)
    return joined, PlaceCodes(name, len(dictionary), dictionary)


# ---------------------------------------------------------------------- expressions


def hash_name(name: str) -> str:
    """Return the name of a column's hash in a batch."""
    return f"{name}_hash"


def hashed(name: str, dtype: pl.DataType, salts: Salts) -> pl.Expr:
    """Return the hash of a column under its name in a batch. Each column has its own seed."""
    return plain_form(pl.col(name), dtype).hash(salts.of(name)).alias(hash_name(name))


def hashed_again(name: str, dtype: pl.DataType, salts: Salts) -> pl.Expr:
    """Return a second hash of a column, whose seed is independent of the first one's."""
    return plain_form(pl.col(name), dtype).hash(salts.of(f"{name} again"))


def hashed_for_parts(name: str, dtype: pl.DataType, salts: Salts) -> pl.Expr:
    """Return a hash of a column that only decides in which part its rows are bounded."""
    return plain_form(pl.col(name), dtype).hash(salts.of(f"{name} part"))


def integer_form(column: pl.Expr, dtype: pl.DataType) -> pl.Expr | None:
    """Return a column as 64-bit integers that sort like its values, or None if its type is not stored as integers."""
    if not stored_as_integers(dtype):
        return None
    if dtype in (pl.Int64, pl.UInt64):
        return column
    return (column.to_physical() if dtype.is_temporal() else column).cast(pl.Int64)


def distance(column: pl.Series, low: int) -> Words:
    """Return the distance of 64-bit integers from `low` in a new array. The result for null is arbitrary."""
    filled = column.fill_null(0) if column.null_count() else column
    return filled.to_numpy().view(np.uint64) - np.uint64(low % (1 << 64))


def plain_form(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return a column whose hash and order do not depend on other rows, as category codes and signs of zeros would."""
    return column.cast(pl.String) if dtype == pl.Categorical else one_form(column, dtype)


def owned(values: pl.Series) -> pl.Series:
    """Return a copy that does not keep the memory of its batch alive. Arrow's names end at a null character."""
    if values.dtype not in (pl.String, pl.Binary):
        return values
    return pl.Series(values.name, values.alias("").to_arrow())


def mixed(codes: Sequence[Codes], batch: pl.DataFrame) -> tuple[NDArray[Any], Any]:
    """Combine the codes of several columns into one number per row. The codes of a single column stay as they are.

    Also return a mask of the rows that have a code in every column, or None if all rows do.
    """
    total: Any = None
    valid: Any = None
    for code in codes:
        numbers = code.numbers(batch)
        if numbers.dtype.kind != "u" and numbers.min() < 0:
            own = numbers >= 0
            valid = own if valid is None else valid & own
        total = numbers if total is None else total.astype(np.int64, copy=False) * code.size + numbers
    return np.zeros(batch.height, np.int64) if total is None else total, valid
