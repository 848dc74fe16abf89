"""A hash table from 64-bit hashes to integers that works on whole arrays at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
ShortNumbers = NDArray[np.int32]

_FIRST_BITS = 12
_CACHED_BITS = 22  # larger tables do not fit into the cache anyway, so they are filled more to save memory
_MOST_BITS = 24


@dataclass(frozen=True)
class _SlotTable:
    """A table of slots. The upper bits of a hash name its slot; hashes whose slot is taken are in a sorted list."""

    shift: np.uint64
    held: Words
    numbers: ShortNumbers
    over: Words
    over_numbers: ShortNumbers

    def missing(self, hashes: Words) -> NDArray[np.int64]:
        """Return the places of hashes that are in no slot and not in the list."""
        missing = np.flatnonzero(self.held.take(_slots(hashes, self.shift)) != hashes)
        return missing[self.find_over(hashes[missing]) < 0] if len(missing) else missing

    def find_over(self, hashes: Words) -> ShortNumbers:
        """Return the number of each hash in the list, or -1 if it is not there."""
        if not len(self.over):
            return np.full(len(hashes), -1, np.int32)
        places = np.minimum(np.searchsorted(self.over, hashes), len(self.over) - 1)
        return np.where(self.over[places] == hashes, self.over_numbers[places], np.int32(-1))


class HashTable:
    """Hashes, numbered in the order in which they were added.

    One thread may add hashes while others look some up. A lookup reads one view, and adding never changes what a view
    says about a hash that it knows. So a thread that has seen its hashes added finds them from then on. The table
    begins with 2**bits slots.
    """

    def __init__(self, bits: int = _FIRST_BITS) -> None:
        self._hashes = np.zeros(0, np.uint64)
        self._build(bits)

    def _build(self, bits: int) -> None:
        """Make a table of 2**bits slots and insert all known hashes."""
        shift = np.uint64(64 - bits)
        # An empty slot holds a hash that belongs to another slot, so no lookup ever succeeds there.
        held = ~(np.arange(1 << bits, dtype=np.uint64) << shift)
        nothing = np.zeros(0, np.uint64), np.zeros(0, np.int32)
        empty = _SlotTable(shift, held, np.full(1 << bits, -1, np.int32), *nothing)
        self._insert(empty, self._hashes, np.arange(len(self._hashes), dtype=np.int32))

    def _insert(self, view: _SlotTable, hashes: Words, numbers: ShortNumbers) -> None:
        slots = _slots(hashes, view.shift)
        free = view.numbers[slots] < 0
        view.numbers[slots[free]] = numbers[free]  # if several hashes want the same slot, one gets it
        own = view.numbers[slots] == numbers
        view.held[slots[own]] = hashes[own]
        over = np.concatenate([view.over, hashes[~own]])
        order = np.argsort(over, kind="stable")  # mostly sorted already
        over_numbers = np.concatenate([view.over_numbers, numbers[~own]])[order]
        self._view = replace(view, over=over[order], over_numbers=over_numbers)

    def missing(self, hashes: Words) -> NDArray[np.int64]:
        """Return the places of unknown hashes. While another thread adds some, these may still count as unknown."""
        return self._view.missing(hashes)

    def add(self, hashes: Words) -> NDArray[np.int64]:
        """Add the hashes that are new, and return the place of the first occurrence of each, in the order of adding."""
        missing = self.missing(hashes)
        if not len(missing):
            return missing
        new, first = np.unique(hashes[missing], return_index=True)
        self._hashes = np.concatenate([self._hashes, new])
        bits = known = 64 - int(self._view.shift)
        while bits < _MOST_BITS and len(self._hashes) << (4 if bits < _CACHED_BITS else 3) > 1 << bits:
            bits += 2
        if bits > known:
            self._build(bits)
        else:
            self._insert(self._view, new, np.arange(len(self._hashes) - len(new), len(self._hashes), dtype=np.int32))
        return missing[first]

    def guess(self, hashes: Words) -> ShortNumbers:
        """Return the number of the hash in each hash's slot, or -1 if it is empty. It takes half the time of `find`."""
        view = self._view
        return view.numbers.take(_slots(hashes, view.shift))

    def find(self, hashes: Words) -> ShortNumbers:
        """Return the number of each hash, or -1 if it is unknown."""
        view = self._view
        slots = _slots(hashes, view.shift)
        numbers = view.numbers.take(slots)
        others = np.flatnonzero(view.held.take(slots) != hashes)
        numbers[others] = view.find_over(hashes[others])
        return numbers

    def slots(self) -> tuple[np.uint64, ShortNumbers]:
        """Return by how many bits a hash is shifted to name its slot, and the number in each slot; -1 if empty."""
        return self._view.shift, self._view.numbers

    def renumber(self, numbers: NDArray[Any]) -> None:
        """Change the number of each hash from i to numbers[i]."""
        table, view = np.append(np.asarray(numbers, np.int32), np.int32(-1)), self._view
        self._view = replace(view, numbers=table[view.numbers], over_numbers=table[view.over_numbers])


def _slots(hashes: Words, shift: np.uint64) -> NDArray[np.int64]:
    return (hashes >> shift).view(np.int64)
