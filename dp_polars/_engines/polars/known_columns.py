"""Keys whose codes are found once for a frame in memory, and serve every question about it.

A key that is a column of the frame, perhaps filtered and renamed but otherwise unchanged, is replaced by its code: its
place among all values of the column, in their own order. So texts are read once, not twice in every question. Codes
may count values that a filter drops later. A group without rows is never shown, and the order of two groups does not
depend on which others there are.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.polars.codes import (
    HashCollisionError,
    Numbers,
    Range,
    Salts,
    Seen,
    Words,
    hashed,
    integer_form,
    joined_places,
)
from dp_polars._engines.polars.growing_codes import GrowingCodes, TooManyValuesError
from dp_polars._engines.polars.held_frame import HeldFrame
from dp_polars._engines.polars.program import BATCH
from dp_polars._engines.polars.scan import source_of, workers
from dp_polars._engines.polars.short_texts import LongTextError, ShortTexts
from dp_polars._engines.request import stored_as_integers
from dp_polars._engines.rows import OWN, Filter, Lookup, PrivateRows, Step, WithColumns
from dp_polars._expressions.tree import Column

Ranges = Mapping[str, Callable[[], Seen]]
"""Functions that find the ranges of columns without a pass over the rows."""


@dataclass(frozen=True, repr=False, eq=False)
class CodedColumn:
    """All values of a column in their own order, null first, and the place of each row's value among them."""

    values: pl.Series
    codes: pl.Series


class KnownCodes:
    """Codes that rows carry in place of their keys."""

    by_hash = False

    def __init__(self, name: str, dtype: pl.DataType, column: CodedColumn) -> None:
        self._name, self.dtype, self.column, self._values = name, dtype, column, column.values
        self.size = len(column.values)

    def columns(self) -> dict[str, pl.Expr]:
        """Return the columns that a batch must have."""
        return {f"{self._name}_code": pl.col(self._name)}

    def numbers(self, batch: pl.DataFrame) -> NDArray[Any]:
        """Return the code of each row, in the fewest bytes that hold all codes."""
        return batch[f"{self._name}_code"].to_numpy()

    def decode(self, numbers: Numbers) -> pl.Series:
        """Return the values that codes stand for."""
        return self._values.gather(pl.Series(numbers, dtype=pl.Int64)).cast(self.dtype).alias(self._name)

    def hashes(self, salts: Salts) -> Words:
        """Return the hash of each value, which is equal to the hash of the column that the codes replace."""
        values = self._values.cast(self.dtype).alias(self._name).to_frame()
        return values.select(hashed(self._name, self.dtype, salts)).to_series().to_numpy()

    def places_of(self, values: pl.Series) -> pl.Series:
        """Return the code of each of these values; null if it does not occur."""
        return joined_places(self._values, values, self.dtype)


class KnownPlaces:
    """Places in a public domain of one column, found by the codes that rows carry."""

    by_hash = False

    def __init__(self, code: KnownCodes, domain: pl.Series) -> None:
        self._code, self.size = code, len(domain)
        own = code.places_of(domain).cast(pl.Int64).fill_null(-1).to_numpy()  # -1: a value that does not occur
        there = np.flatnonzero(own >= 0)
        self._places = np.full(code.size, -1, np.int64)
        self._places[own[there]] = there

    def columns(self) -> dict[str, pl.Expr]:
        """Return the columns that a batch must have."""
        return self._code.columns()

    def numbers(self, batch: pl.DataFrame) -> Numbers:
        """Return the place of each row in the domain, or -1 if it has none."""
        return self._places.take(self._code.numbers(batch))

    def decode(self, numbers: Numbers) -> pl.Series:
        """Fail: the rows of a domain need no decoding."""
        raise ValueError("these codes stand for rows of a domain")


def known_columns(
    rows: PrivateRows, keys: Sequence[str], units: Sequence[str]
) -> tuple[PrivateRows, dict[str, KnownCodes], Ranges]:
    """Return rows in which keys are replaced by codes where that is possible, their codes, and ways to find ranges."""
    held = source_of(rows).held
    if held is None:
        return rows, {}, {}
    coded: dict[str, tuple[str, CodedColumn]] = {}
    ranges: dict[str, Callable[[], Seen]] = {}
    # Codes are found for all rows. If only some of them are asked for, this pays off from the second question on.
    drops = any(isinstance(step, Filter) or (isinstance(step, Lookup) and step.how != "left") for step in rows.steps)
    for name in (*keys, *units):
        origin = _traced(rows, name)
        if origin is None:
            continue
        dtype = rows.schema[name]
        if stored_as_integers(dtype):
            ranges[name] = partial(range_of, held.frame, origin)
        elif name in keys and GrowingCodes.suit(dtype) and (not drops or held.is_worth_it(origin)):
            column = codes_of_column(held, origin)
            if column is not None:
                coded[name] = origin, column
    codes = {name: KnownCodes(name, rows.schema[name], column) for name, (_, column) in coded.items()}
    return _with_codes(rows, held, coded), codes, ranges


def _traced(rows: PrivateRows, name: str) -> str | None:
    """Return the column of the source whose values a column has, or None if it is computed or looked up."""
    for step in reversed(rows.steps):
        if isinstance(step, WithColumns):
            made = dict(step.columns)
            if name not in made and not step.keep:
                return None
            one = made.get(name)
            if one is not None:
                if not isinstance(one, Column):
                    return None
                name = one.name
        elif isinstance(step, Lookup) and any(name == new for _, new in step.columns):
            return None
    return name if name in rows.source_schema else None


def _with_codes(rows: PrivateRows, held: HeldFrame, coded: dict[str, tuple[str, CodedColumn]]) -> PrivateRows:
    """Return rows whose source has code columns too, which the steps pass on, in the place of the coded columns."""
    if not coded:
        return rows
    # They are numbered, because the name of a column that a step made has a null character of its own.
    origins = dict(coded.values())
    hidden = {origin: origins[origin].codes.alias(f"{OWN}codes {place}") for place, origin in enumerate(origins)}
    carried = [(own.name, Column(own.name, own.dtype)) for own in hidden.values()]
    steps: list[Step] = [
        replace(step, columns=(*step.columns, *carried)) if isinstance(step, WithColumns) and not step.keep else step
        for step in rows.steps
    ]
    frame = held.frame.with_columns(hidden.values())
    source = replace(source_of(rows), frame=frame.lazy(), memory=frame)
    shown = {name: Column(name, dtype) for name, dtype in rows.schema.items()}
    for name, (origin, _) in coded.items():
        shown[name] = Column(hidden[origin].name, hidden[origin].dtype)
    return PrivateRows(source, tuple(steps)).make(shown, keep=False)


# ---------------------------------------------------------------------- facts about columns


def range_of(frame: pl.DataFrame, name: str) -> Range:
    """Return the range of a column of integers, or of a type that is stored as integers.

    It is found anew for each question, which takes little time. Polars shares the memory of integers with NumPy arrays,
    and their owner may write to them.
    """
    form = integer_form(pl.col(name), frame.schema[name])
    if form is None:
        raise ValueError("not an integer")
    ends: list[tuple[int, int]] = []

    def look(start: int) -> None:
        low, high = frame.slice(start, BATCH).select(form.min().alias("low"), form.max().alias("high")).row(0)
        if low is not None:
            ends.append((low, high))

    frame = frame.select(name)
    workers().each(range(0, frame.height, BATCH), look)  # each batch is read from memory once, not twice
    return Range(min((low for low, _ in ends), default=0), max((high for _, high in ends), default=0))


def codes_of_column(held: HeldFrame, name: str) -> CodedColumn | None:
    """Return the codes of a column, or None if it has too many values, or if two of them share a hash."""

    def size(column: CodedColumn | None) -> int:
        return 0 if column is None else int(column.codes.estimated_size() + column.values.estimated_size())

    return held.fact(name, _coded, size)


def _coded(column: pl.Series) -> CodedColumn | None:
    """Find the codes of a column in threads, reading each value once."""
    if column.dtype == pl.String:
        short = ShortTexts(column.name)
        try:
            return _coded_by(column, short.numbers_of, short.in_order)
        except (HashCollisionError, LongTextError):
            pass
        except TooManyValuesError:
            return None
    growing = GrowingCodes(column.name, column.dtype, Salts(lambda: secrets.randbits(64)))
    try:
        return _coded_by(
            column, lambda part: growing.numbers(part.to_frame().select(growing.columns)), growing.in_order
        )
    except (HashCollisionError, TooManyValuesError):
        return None


def _coded_by(
    column: pl.Series,
    numbers: Callable[[pl.Series], NDArray[Any]],
    in_order: Callable[[], tuple[pl.Series, NDArray[Any]]],
) -> CodedColumn:
    """Replace the values of a column by numbers, batch by batch, and these by their places in the values' order."""
    starts = range(0, len(column), BATCH)
    codes: dict[int, NDArray[Any]] = {}

    def find(start: int) -> None:
        found = numbers(column.slice(start, BATCH))
        short = found.dtype == np.uint8 or found.max(initial=0) < 1 << 8
        codes[start] = found.astype(np.uint8, copy=False) if short else found

    workers().each(starts, find)
    values, places = in_order()
    ordered = np.empty(len(column), places.dtype)

    def renumber(start: int) -> None:
        places.take(codes.pop(start), out=ordered[start : start + BATCH], mode="clip")

    workers().each(starts, renumber)
    return CodedColumn(values, pl.Series(ordered))
