"""Exact sums by group, of integers only, that never wrap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LIMB = 32
_LOW = (1 << _LIMB) - 1
_FEW_GROUPS = 1 << 22  # up to this many possible groups, each has a place; of more, the ones that occur are kept
_MERGE = 1 << 20

Numbers = NDArray[np.int64]


class Sums:
    """Rows, units and, with values, totals of each group. `finish` gives them for the groups that it names."""

    def __init__(self, groups: int, *, values: bool) -> None:
        self._names: Numbers | None = None if groups <= _FEW_GROUPS else np.zeros(0, np.int64)
        self._columns = 4 if values else 2  # rows, units, and a total in two limbs
        self._sums = np.zeros((self._columns, groups if self._names is None else 0), np.int64)
        self._waiting: list[tuple[Numbers, NDArray[np.int64]]] = []
        self._waiting_size = 0

    def add(self, group: Numbers, rows: Numbers, total: Numbers | None) -> None:
        """Add runs: each is one unit in one group."""
        if self._names is None:
            _add(self._sums, group, rows, total)
            return
        names, places = np.unique(group, return_inverse=True)
        sums = np.zeros((self._columns, len(names)), np.int64)
        _add(sums, places, rows, total)
        self._waiting.append((names, sums))
        self._waiting_size += len(names)
        if self._waiting_size > max(_MERGE, len(self._names)):
            self._merge()

    def _merge(self) -> None:
        known = self._names if self._names is not None else np.zeros(0, np.int64)
        parts = [(known, self._sums), *self._waiting]
        self._names, places = np.unique(np.concatenate([names for names, _ in parts]), return_inverse=True)
        merged = np.zeros((self._columns, len(self._names)), np.int64)
        for row, column in enumerate(merged):
            np.add.at(column, places, np.concatenate([sums[row] for _, sums in parts]))
        self._sums, self._waiting, self._waiting_size = merged, [], 0

    def finish(self) -> tuple[Numbers, Numbers, Numbers, Numbers | None]:
        """Return the numbers of the groups, their rows, units and totals; every group has a place if there are few."""
        if self._names is not None:
            self._merge()
        names = np.arange(self._sums.shape[1]) if self._names is None else self._names
        total = joined(self._sums[2], self._sums[3]) if self._columns == 4 else None
        return names, self._sums[0], self._sums[1], total


def _add(sums: NDArray[np.int64], group: Numbers, rows: Numbers, total: Numbers | None) -> None:
    np.add.at(sums[0], group, rows)
    np.add.at(sums[1], group, 1)
    if total is not None:
        np.add.at(sums[2], group, total >> _LIMB)
        np.add.at(sums[3], group, total & _LOW)


def run_sums(values: Numbers, starts: Numbers, bits: int) -> Numbers:
    """Return the sum of each run of values that lie within +-2**bits."""
    if not len(starts):
        return np.zeros(0, np.int64)
    if bits + len(values).bit_length() <= 62:
        return np.add.reduceat(values, starts)
    return joined(np.add.reduceat(values >> _LIMB, starts), np.add.reduceat(values & _LOW, starts))


def joined(high: Numbers, low: Numbers) -> Numbers:
    """Return high * 2**32 + low; beyond 2**62 it becomes that limit instead of wrapping (clipping: no new change)."""
    high = high + (low >> _LIMB)
    limit = 1 << 30
    exact = (np.clip(high, -limit, limit - 1) << _LIMB) | (low & _LOW)
    return np.where(high >= limit, 1 << 62, np.where(high < -limit, -(1 << 62), exact))
