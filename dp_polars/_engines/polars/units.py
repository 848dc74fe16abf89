"""The unit of a row as one or two 64-bit words: an exact code, or a 128-bit hash if the price covers collisions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import polars as pl

from dp_polars._engines.bounding.blocks import AnyWords
from dp_polars._engines.bounding.row_store import MIXER as _MIXER
from dp_polars._engines.polars.codes import (
    Codes,
    PlaceCodes,
    Range,
    Salts,
    Seen,
    Words,
    codes_of,
    distance,
    hash_name,
    hashed_again,
    hashed_for_parts,
    integer_form,
    joined_codes,
    look_at,
    mixed,
)
from dp_polars._engines.polars.scan import collect
from dp_polars._engines.request import stored_as_integers

MIXER = np.uint64(_MIXER)
_SECOND = np.uint64(0xD6E8FEB86659FD93)  # another odd factor, so each step of a hash is one to one


class UnitCoder(Protocol):
    """How units are told apart, and in how many bits. More than 64 bits take two words."""

    bits: int
    by_hash: bool
    """Whether a batch needs the hashes of the unit columns even if no order is needed."""

    def columns(self) -> dict[str, pl.Expr]:
        """Return the columns that a batch must have."""
        ...

    def words(self, batch: pl.DataFrame) -> tuple[Words, Words | None, Any]:
        """Return the words of each row, and a mask of the valid rows (None means all)."""
        ...


class IntegerUnits:
    """One column of integers, or of a type stored as integers: the unit is the distance from the least value."""

    by_hash = False

    def __init__(self, name: str, dtype: pl.DataType, low: int, high: int) -> None:
        self._name, self._dtype, self.low, self._most = name, dtype, low, high - low
        self.bits = self._most.bit_length()

    def columns(self) -> dict[str, pl.Expr]:
        """Return the columns that a batch must have."""
        form = integer_form(pl.col(self._name), self._dtype)
        if form is None:
            raise ValueError("not an integer")
        return {"unit": form}

    def words(self, batch: pl.DataFrame) -> tuple[Words, Words | None, Any]:
        """Return the words of each row, and a mask of the valid rows (None means all)."""
        unit = distance(batch["unit"], self.low)
        if unit.max() <= np.uint64(self._most):
            return unit, None, None
        # A row that the first pass did not see could be taken for a row of another unit.
        return unit, None, unit <= np.uint64(self._most)

    def hashes(self, salts: Salts) -> Callable[[AnyWords], Words]:
        """Return a function that hashes units, given by their words.

        It multiplies and folds the values themselves: their words depend on the least value, and so on other units.
        """
        first = np.uint64((self.low + salts.of(self._name)) % (1 << 64))

        def of(words: AnyWords) -> Words:
            hashes = words.astype(np.uint64, copy=False) + first
            for factor in (MIXER, _SECOND):
                hashes *= factor
                hashes ^= hashes >> np.uint64(32)
            return hashes

        return of


class CodedUnits:
    """Columns of any types, told apart by exact codes."""

    by_hash = True

    def __init__(self, codes: Sequence[Codes]) -> None:
        self._codes = codes
        self.size = math.prod(max(code.size, 1) for code in codes)
        self.bits = (self.size - 1).bit_length()

    def columns(self) -> dict[str, pl.Expr]:
        """Return the columns that a batch must have."""
        return {name: expr for code in self._codes for name, expr in code.columns().items()}

    def words(self, batch: pl.DataFrame) -> tuple[Words, Words | None, Any]:
        """Return the words of each row, and a mask of the valid rows (None means all)."""
        number, valid = mixed(self._codes, batch)
        return number.astype(np.int64, copy=False).view(np.uint64), None, valid


class HashedUnits:
    """Columns of any types, told apart by two 64-bit hashes whose seeds are drawn independently.

    The price of a query covers the chance that two units share both hashes. The bound is heuristic: it assumes that a
    Polars hash with a secret random seed behaves like a random function. This is not proven, and a seed has only 64
    bits. A session with pure differential privacy uses exact codes instead.
    """

    by_hash = True
    bits = 128

    def __init__(self, names: Sequence[str], schema: pl.Schema, salts: Salts) -> None:
        self._names, self._schema, self._salts = names, schema, salts

    def columns(self) -> dict[str, pl.Expr]:
        """Return the columns that a batch must have."""
        return {f"{name}_second": hashed_again(name, self._schema[name], self._salts) for name in self._names}

    def words(self, batch: pl.DataFrame) -> tuple[Words, Words | None, Any]:
        """Return the words of each row, and a mask of the valid rows (None means all)."""
        second = [f"{name}_second" for name in self._names]
        return combined(batch, [hash_name(name) for name in self._names]), combined(batch, second), None


def columns_to_look_at(names: Sequence[str], schema: pl.Schema, *, by_hash: bool) -> list[str]:
    """Return the unit columns whose values must be known before units can be told apart."""
    return [] if by_hash and not is_one_integer(names, schema) else list(names)


def is_one_integer(names: Sequence[str], schema: pl.Schema) -> bool:
    """Return whether the unit is a single column of a type that is stored as integers. Then its range is enough."""
    return len(names) == 1 and stored_as_integers(schema[names[0]])


def units_of(
    frame: pl.LazyFrame, names: Sequence[str], salts: Salts, seen: Mapping[str, Seen] | None, *, by_hash: bool
) -> tuple[pl.LazyFrame, UnitCoder]:
    """Return how the units of a frame are told apart, and the frame with the columns that this needs.

    `seen` is what a look at the columns found. Without it, units are told apart without the help of hashes if they are
    not themselves hashes.
    """
    schema = frame.collect_schema()
    if is_one_integer(names, schema):
        own = (look_at(frame, names, salts, only_ranges=names) if seen is None else seen)[names[0]]
        if not isinstance(own, Range):
            raise ValueError("an integer unit is told apart by its range")
        return frame, IntegerUnits(names[0], schema[names[0]], own.low, own.high)
    if by_hash:
        return frame, HashedUnits(names, schema, salts)
    if seen is None:
        frame, codes = joined_codes(frame, names, salts)
    else:
        codes = [codes_of(name, schema[name], seen[name], in_order=False) for name in names]
    units = CodedUnits(codes)
    if units.size < 1 << 63:
        return frame, units
    # There are too many combinations to number, so those that occur are numbered.
    table = collect(frame.select(names).unique()).lazy().with_row_index("unit_code")
    joined_frame = frame.join(table, on=names, how="left", nulls_equal=True)
    return joined_frame, CodedUnits([PlaceCodes("unit_code", 1 << 32, None)])


def part_of_units(
    names: Sequence[str], schema: pl.Schema, salts: Salts, part: int, parts: int
) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return a function that picks the rows of one part of the units from a batch.

    A hash of the unit decides, so all rows of a unit are in the same part. What one unit can change: the hash uses the
    unit's own values, in the form in which units are told apart.
    """
    hashes = [hashed_for_parts(name, schema[name], salts) for name in names]

    def taken(batch: pl.DataFrame) -> pl.DataFrame:
        words = combined(batch.select(hashes), names)
        return batch.filter(pl.Series(words % np.uint64(parts) == np.uint64(part)))

    return taken


def combined(batch: pl.DataFrame, names: Sequence[str]) -> Words:
    """Return a single hash that combines the hashes of several columns."""
    return combined_words([batch[name].to_numpy() for name in names])


def combined_words(hashes: Sequence[Words]) -> Words:
    """Return a single hash for each row that combines several."""
    if len(hashes) == 1:
        return hashes[0]
    total = hashes[0] * MIXER
    for own in hashes[1:]:
        total ^= own
        total *= MIXER
    return total
