"""Exact sums by group, of integers only, that never wrap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dp_polars._engines.bounding.blocks import Numbers

_LIMB = 32
_LOW = (1 << _LIMB) - 1
_FEW_GROUPS = 1 << 22  # up to this many possible groups, each has a place; of more, the ones that occur are kept
_MERGE = 1 << 20


class Sums:
    """How many runs each group has, and sums over them.

    Those that 64 bits may not hold are long: `rounded` says by how many bits they are shortened at the end, None that
    a sum is not long.
    """

    def __init__(self, groups: int, rounded: Sequence[int | None]) -> None:
        self._names: Numbers | None = None if groups <= _FEW_GROUPS else np.zeros(0, np.int64)
        self._rounded = tuple(rounded)
        self._long = tuple(bits is not None for bits in self._rounded)
        self._columns = 1 + sum(2 if wide else 1 for wide in self._long)  # a long sum has two limbs
        self._sums = np.zeros((self._columns, groups if self._names is None else 0), np.int64)
        self._waiting: list[tuple[Numbers, NDArray[np.int64]]] = []
        self._waiting_size = 0

    def add(self, group: Numbers, terms: Sequence[Numbers | int]) -> None:
        """Add runs: each is one unit in one group, with one number for each sum."""
        if self._names is None:
            self._add(self._sums, group, terms)
            return
        names, places = np.unique(group, return_inverse=True)
        sums = np.zeros((self._columns, len(names)), np.int64)
        self._add(sums, places, terms)
        self._waiting.append((names, sums))
        self._waiting_size += len(names)
        if self._waiting_size > max(_MERGE, len(self._names)):
            self._merge()

    def _add(self, sums: NDArray[np.int64], group: Numbers, terms: Sequence[Numbers | int]) -> None:
        np.add.at(sums[0], group, 1)
        place = 1
        for long, term in zip(self._long, terms, strict=True):
            if long:
                np.add.at(sums[place], group, term >> _LIMB)
                np.add.at(sums[place + 1], group, term & _LOW)
            else:
                np.add.at(sums[place], group, term)
            place += 1 + long

    def _merge(self) -> None:
        known = self._names if self._names is not None else np.zeros(0, np.int64)
        parts = [(known, self._sums), *self._waiting]
        self._names, places = np.unique(np.concatenate([names for names, _ in parts]), return_inverse=True)
        merged = np.zeros((self._columns, len(self._names)), np.int64)
        for row, column in enumerate(merged):
            np.add.at(column, places, np.concatenate([sums[row] for _, sums in parts]))
        self._sums, self._waiting, self._waiting_size = merged, [], 0

    def finish(self) -> tuple[Numbers, Numbers, list[Numbers]]:
        """Return the numbers of the groups, their runs and the sums; every group has a place if there are few."""
        if self._names is not None:
            self._merge()
        names = np.arange(self._sums.shape[1]) if self._names is None else self._names
        found, place = [], 1
        for bits in self._rounded:
            if bits is None:
                found.append(self._sums[place])
            else:
                found.append(joined(*shortened(self._sums[place], self._sums[place + 1], bits)))
            place += 1 if bits is None else 2
        return names, self._sums[0], found


def run_sums(values: Numbers, starts: Numbers, bits: int) -> Numbers:
    """Return the sum of each run of values that lie within +-2**bits."""
    if not len(starts):
        return np.zeros(0, np.int64)
    if bits + len(values).bit_length() <= 62:
        return np.add.reduceat(values, starts)
    return joined(np.add.reduceat(values >> _LIMB, starts), np.add.reduceat(values & _LOW, starts))


def shortened(high: Numbers, low: Numbers, bits: int) -> tuple[Numbers, Numbers]:
    """Return (high * 2**32 + low) / 2**bits to the nearest whole number, of two the upper one; up to 32 bits.

    What one unit can change: if a sum S moves by c between k 2**bits and m 2**bits for whole numbers k and m, then
    floor(S / 2**bits + 1/2) moves by something between k and m, because adding a whole number before or after the floor
    is the same. To the even one of two it could move by 1 more.
    """
    if not bits:
        return high, low
    low = low + (1 << (bits - 1))
    high = high + (low >> _LIMB)
    low = ((high & ((1 << bits) - 1)) << (_LIMB - bits)) | ((low & _LOW) >> bits)
    return high >> bits, low


def joined(high: Numbers, low: Numbers) -> Numbers:
    """Return high * 2**32 + low; beyond 2**62 it becomes that limit instead of wrapping (clipping: no new change)."""
    high = high + (low >> _LIMB)
    limit = 1 << 30
    exact = (np.clip(high, -limit, limit - 1) << _LIMB) | (low & _LOW)
    return np.where(high >= limit, 1 << 62, np.where(high < -limit, -(1 << 62), exact))
