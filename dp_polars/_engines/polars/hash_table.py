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

    The upper bits of a hash name its slot. Hashes whose slot is taken go to a short sorted list.
    """

    def __init__(self) -> None:
        self._hashes = np.zeros(0, np.uint64)
        self._build(_FIRST_BITS)

    def _build(self, bits: int) -> None:
        """Make a table of 2**bits slots and insert all known hashes."""
        self._shift = np.uint64(64 - bits)
        # An empty slot holds a hash that belongs to another slot, so no lookup ever succeeds there.
        self._slots = ~(np.arange(1 << bits, dtype=np.uint64) << self._shift)
        self._numbers = np.full(1 << bits, -1, np.int32)
        self._over, self._over_numbers = np.zeros(0, np.uint64), np.zeros(0, np.int32)
        self._insert(self._hashes, np.arange(len(self._hashes), dtype=np.int32))

    def _insert(self, hashes: Words, numbers: Numbers) -> None:
        slots = self._slot(hashes)
        free = self._numbers[slots] < 0
        self._numbers[slots[free]] = numbers[free]  # if several hashes want the same slot, one gets it
        own = self._numbers[slots] == numbers
        self._slots[slots[own]] = hashes[own]
        over = np.concatenate([self._over, hashes[~own]])
        order = np.argsort(over, kind="stable")  # mostly sorted already
        self._over, self._over_numbers = over[order], np.concatenate([self._over_numbers, numbers[~own]])[order]

    def _slot(self, hashes: Words) -> NDArray[np.int64]:
        return (hashes >> self._shift).view(np.int64)

    def add(self, hashes: Words) -> NDArray[np.int64]:
        """Add the hashes that are new, and return the place of the first occurrence of each, in the order of adding."""
        missing = np.flatnonzero(self._slots.take(self._slot(hashes)) != hashes)
        if len(self._over):
            missing = missing[self._find_over(hashes[missing]) < 0]
        if not len(missing):
            return missing
        new, first = np.unique(hashes[missing], return_index=True)
        self._hashes = np.concatenate([self._hashes, new])
        bits = known = 64 - int(self._shift)
        while bits < _MOST_BITS and len(self._hashes) << (4 if bits < _CACHED_BITS else 3) > 1 << bits:
            bits += 2
        if bits > known:
            self._build(bits)
        else:
            self._insert(new, np.arange(len(self._hashes) - len(new), len(self._hashes), dtype=np.int32))
        return missing[first]

    def guess(self, hashes: Words) -> Numbers:
        """Return the number of the hash in each hash's slot, or -1 if it is empty. It takes half the time of `find`."""
        return self._numbers.take(self._slot(hashes))

    def find(self, hashes: Words) -> Numbers:
        """Return the number of each hash, or -1 if it is unknown."""
        numbers = self.guess(hashes)
        others = np.flatnonzero(self._slots.take(self._slot(hashes)) != hashes)
        numbers[others] = self._find_over(hashes[others])
        return numbers

    def _find_over(self, hashes: Words) -> Numbers:
        if not len(self._over):
            return np.full(len(hashes), -1, np.int32)
        places = np.minimum(np.searchsorted(self._over, hashes), len(self._over) - 1)
        return np.where(self._over[places] == hashes, self._over_numbers[places], np.int32(-1))

    def renumber(self, numbers: NDArray[Any]) -> None:
        """Change the number of each hash from i to numbers[i]."""
        table = np.append(np.asarray(numbers, np.int32), np.int32(-1))
        self._numbers, self._over_numbers = table[self._numbers], table[self._over_numbers]
