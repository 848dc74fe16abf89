"""Units and groups of a frame in memory, kept in sorted order for the next question about the same columns.

Sorting takes a third of a question that counts rows, and nothing in it is salted: packed rows are the numbers of units
and groups. They are kept with the frame, like codes of texts, and used again only for the same codes and for units that
have not changed since. Polars shares the memory of integers with NumPy arrays whose owner may write to them, so units
are compared by a random checksum, in which a change goes unnoticed with a probability below 2**-31. What one unit can
change: how fast an answer is computed. After an unnoticed change, the answer is that of the rows as they were before.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from dp_polars._engines.bounding.blocks import AnyWords
from dp_polars._engines.polars.codes import Words
from dp_polars._engines.polars.known_columns import CodedColumn
from dp_polars._engines.polars.program import BATCH


@dataclass(frozen=True, eq=False, repr=False)
class RowsShape:
    """What packed rows mean: the codes of their keys, the least unit, the bits of units, and the number of rows."""

    columns: Sequence[CodedColumn]
    low: int
    unit_bits: int
    height: int

    def equals(self, other: RowsShape) -> bool:
        """Return whether equal units have equal rows: their keys have the very same codes."""
        return (
            (self.low, self.unit_bits, self.height) == (other.low, other.unit_bits, other.height)
            and len(self.columns) == len(other.columns)
            and all(one is another for one, another in zip(self.columns, other.columns, strict=True))
        )


@cache
def _factors() -> Words:
    """Return random odd factors, one for each row of a batch. They are drawn once: nobody sees a checksum."""
    return np.frombuffer(secrets.token_bytes(8 * BATCH), np.uint64) | np.uint64(1)


@dataclass(frozen=True, eq=False, repr=False)
class UnitSums:
    """Checksums of the units of a frame, by the place of the first of up to `BATCH` rows. Threads may share it."""

    factors: Words = field(default_factory=_factors)
    sums: dict[int, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, units: Words) -> int:
        """Return the checksum of some units: a random linear function, modulo 2**64."""
        return int((units * self.factors[: len(units)]).sum(dtype=np.uint64))

    def add(self, start: int, units: Words) -> None:
        """Note the units from a place on."""
        found = self.of(units)
        with self.lock:
            self.sums[start] = found

    def has(self, start: int, units: Words) -> bool:
        """Return whether the units from a place on are those that were noted."""
        return self.sums.get(start) == self.of(units)


@dataclass(frozen=True, eq=False, repr=False)
class SortedRows:
    """The packed rows of a frame in sorted order. They are never written to."""

    shape: RowsShape
    units: UnitSums
    words: AnyWords

    @property
    def size(self) -> int:
        """Bytes that this takes."""
        return int(self.words.nbytes)
