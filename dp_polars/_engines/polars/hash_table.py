"""A hash table from 64-bit hashes to integers that works on whole arrays at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Numbers = NDArray[np.int32]

_FIRST_BITS = 12
_CACHED_BITS = 22  # larger tables do not fit into the cache anyway, so they are filled more to save memory
_MOST_BITS = 24


class HashTable:
    """Hashes, numbered in the order in which they were added.

    The upper bits of a hash name its slot. Hashes whose slot is taken go to a short sorted list. One thread may add
    hashes while others ask which are missing: what these read together, they read as one tuple.
    """

    def __init__(self) -> None:
        self._hashes = np.zeros(0, np.uint64)
        self._build(_FIRST_BITS)

    def _build(self, bits: int) -> None:
        """Make a table of 2**bits slots and insert all known hashes."""
        shift = np.uint64(64 - bits)
        # An empty slot holds a hash that belongs to another slot, so no lookup ever succeeds there.
        self._table = shift, ~(np.arange(1 << bits, dtype=np.uint64) << shift)
        self._numbers = np.full(1 << bits, -1, np.int32)
        self._over = np.zeros(0, np.uint64), np.zeros(0, np.int32)
        self._insert(self._hashes, np.arange(len(self._hashes), dtype=np.int32))

    def _insert(self, hashes: Words, numbers: Numbers) -> None:
        shift, held = self._table
        slots = _slots(hashes, shift)
        free = self._numbers[slots] < 0
        self._numbers[slots[free]] = numbers[free]  # if several hashes want the same slot, one gets it
        own = self._numbers[slots] == numbers
        held[slots[own]] = hashes[own]
        over = np.concatenate([self._over[0], hashes[~own]])
        order = np.argsort(over, kind="stable")  # mostly sorted already
        self._over = over[order], np.concatenate([self._over[1], numbers[~own]])[order]

    def missing(self, hashes: Words) -> NDArray[np.int64]:
        """Return the places of unknown hashes. While another thread adds some, these may still count as unknown."""
        shift, held = self._table
        missing = np.flatnonzero(held.take(_slots(hashes, shift)) != hashes)
        return missing[self._find_over(hashes[missing]) < 0] if len(missing) else missing

    def add(self, hashes: Words) -> NDArray[np.int64]:
        """Add the hashes that are new, and return the place of the first occurrence of each, in the order of adding."""
        missing = self.missing(hashes)
        if not len(missing):
            return missing
        new, first = np.unique(hashes[missing], return_index=True)
        self._hashes = np.concatenate([self._hashes, new])
        bits = known = 64 - int(self._table[0])
        while bits < _MOST_BITS and len(self._hashes) << (4 if bits < _CACHED_BITS else 3) > 1 << bits:
            bits += 2
        if bits > known:
            self._build(bits)
        else:
            self._insert(new, np.arange(len(self._hashes) - len(new), len(self._hashes), dtype=np.int32))
        return missing[first]

    def guess(self, hashes: Words) -> Numbers:
        """Return the number of the hash in each hash's slot, or -1 if it is empty. It takes half the time of `find`."""
        return self._numbers.take(_slots(hashes, self._table[0]))

    def find(self, hashes: Words) -> Numbers:
        """Return the number of each hash, or -1 if it is unknown."""
        numbers = self.guess(hashes)
        shift, held = self._table
        others = np.flatnonzero(held.take(_slots(hashes, shift)) != hashes)
        numbers[others] = self._find_over(hashes[others])
        return numbers

    def _find_over(self, hashes: Words) -> Numbers:
        over, numbers = self._over
        if not len(over):
            return np.full(len(hashes), -1, np.int32)
        places = np.minimum(np.searchsorted(over, hashes), len(over) - 1)
        return np.where(over[places] == hashes, numbers[places], np.int32(-1))

    def renumber(self, numbers: NDArray[Any]) -> None:
        """Change the number of each hash from i to numbers[i]."""
        table = np.append(np.asarray(numbers, np.int32), np.int32(-1))
        self._numbers, self._over = table[self._numbers], (self._over[0], table[self._over[1]])


def _slots(hashes: Words, shift: np.uint64) -> NDArray[np.int64]:
    return (hashes >> shift).view(np.int64)
