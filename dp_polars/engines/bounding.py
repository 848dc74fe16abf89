"""Contribution bounding on one sorted column of integers: the part that all engines share.

What one unit can change: every row belongs to one unit and one group. A row is packed into one unsigned integer,

    unit | order | group | value

where `order` is a hash of (salt, unit, group) by their values and `group` numbers the groups in the order of their
values. After sorting, the rows of a unit stand together, its groups one after another in the order of the hash, ties by
the order of the key values. So which `max_groups` groups a unit keeps depends on the salt and on its own rows alone:
rows of other units may change a group's number, never the order of two groups. Each unit keeps exactly
min(its groups, max_groups); in each it counts at most `max_rows` rows. A unit with more rows is scaled down, not cut,
so no row is preferred for its position. Sums are of integers, in limbs where 64 bits might not hold them.

Why it is fast: one sort of 64-bit integers and a few passes over the runs; nothing is hashed into tables or joined.
The slow reference is `tests/engines/reference.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ORDER_BITS = 16
"""Bits of the order hash: a constant, so that the plan never decides which groups are kept."""

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Layout:
    """How many bits each part of a packed row has."""

    unit_bits: int
    group_bits: int
    value_bits: int = 0

    @property
    def fits(self) -> bool:
        """Whether a packed row fits 64 bits."""
        return self.unit_bits + ORDER_BITS + self.group_bits + self.value_bits <= 64


@dataclass(frozen=True)
class Runs:
    """The rows of one unit in one group as one entry, in the order of the sort."""

    unit: Words
    group: NDArray[np.int64]
    rows: NDArray[np.int64]
    total: NDArray[np.int64] | None


@dataclass(frozen=True)
class Aggregates:
    """Exact bounded aggregates of each group: rows, units and the sum of values in steps of the grid."""

    rows: NDArray[np.int64]
    units: NDArray[np.int64]
    total: NDArray[np.int64] | None


def packed_runs(packed: Words, layout: Layout, low: int | None) -> Runs:
    """Sort packed rows in place and return their runs; `low` is what packed values count from."""
    packed.sort()
    value_bits = np.uint64(layout.value_bits)
    starts = _starts(packed, value_bits)
    heads = packed[starts] >> value_bits
    rows = np.diff(starts, append=len(packed))
    total = None
    if low is not None:
        values = (packed & np.uint64((1 << layout.value_bits) - 1)).view(np.int64)
        values += low
        total = _run_sums(values, starts)
    group = (heads & np.uint64((1 << layout.group_bits) - 1)).astype(np.int64)
    return Runs(heads >> np.uint64(ORDER_BITS + layout.group_bits), group, rows, total)


def _starts(packed: Words, value_bits: np.uint64) -> NDArray[np.int64]:
    """Return where a new (unit, group) begins in the sorted rows."""
    changes = (packed[1:] ^ packed[:-1]) >> value_bits != 0
    starts = np.flatnonzero(changes) + 1
    return np.concatenate(([0], starts)) if len(packed) else starts


def keyed_runs(packed: Words, values: NDArray[np.int64], layout: Layout) -> Runs:
    """Return the runs of packed rows whose values, of any size, stand in a column of their own."""
    position = np.argsort(packed)
    packed = packed[position]
    starts = _starts(packed, np.uint64(0))
    heads = packed[starts]
    group = (heads & np.uint64((1 << layout.group_bits) - 1)).astype(np.int64)
    unit = heads >> np.uint64(ORDER_BITS + layout.group_bits)
    return Runs(unit, group, np.diff(starts, append=len(packed)), _run_sums(values[position], starts))


def wide_runs(unit: Words, order: Words, group: NDArray[np.int64], values: NDArray[np.int64] | None) -> Runs:
    """Return the same runs from separate columns, for what does not fit 64 bits; slower, the same answer."""
    position = np.lexsort((group, order, unit))
    unit, group = unit[position], group[position]
    changes = (unit[1:] != unit[:-1]) | (group[1:] != group[:-1])
    starts = np.flatnonzero(changes) + 1
    starts = np.concatenate(([0], starts)) if len(unit) else starts
    total = None if values is None else _run_sums(values[position], starts)
    return Runs(unit[starts], group[starts], np.diff(starts, append=len(unit)), total)


def _run_sums(values: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    if not len(starts):
        return np.zeros(0, np.int64)
    return _joined(np.add.reduceat(values >> 32, starts), np.add.reduceat(values & 0xFFFFFFFF, starts))


def _joined(high: NDArray[np.int64], low: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return high * 2**32 + low; beyond 2**62 it becomes that limit instead of wrapping (clipping: no new change)."""
    high = high + (low >> 32)
    limit = 1 << 30
    exact = (np.clip(high, -limit, limit - 1) << 32) | (low & 0xFFFFFFFF)
    return np.where(high >= limit, 1 << 62, np.where(high < -limit, -(1 << 62), exact))


def aggregate(
    runs: Runs,
    groups: int,
    *,
    max_groups: int | None,
    max_rows: int | None,
    total_bounds: tuple[int, int] | None = None,
) -> Aggregates:
    """Cap the runs and add them up by group."""
    unit, group, rows, total = runs.unit, runs.group, runs.rows, runs.total
    if max_groups is not None and max_groups < len(unit):
        kept = np.ones(len(unit), np.bool_)
        kept[max_groups:] = unit[max_groups:] != unit[:-max_groups]
        group, rows, total = group[kept], rows[kept], None if total is None else total[kept]
    if total is not None and total_bounds is not None:
        total = np.clip(total, *total_bounds)
    elif total is not None and max_rows is not None:
        total = _scaled(total, rows, max_rows)
    if max_rows is not None:
        rows = np.minimum(rows, max_rows)
    return Aggregates(
        rows=_sums(rows, group, groups),
        units=np.bincount(group, minlength=groups).astype(np.int64),
        total=None if total is None else _sums(total, group, groups),
    )


def _scaled(total: NDArray[np.int64], rows: NDArray[np.int64], max_rows: int) -> NDArray[np.int64]:
    """Return floor(total * max_rows / rows) where a unit has more than max_rows rows, without a wide product."""
    over = np.flatnonzero(rows > max_rows)
    scaled = total.copy()
    quotient, rest = np.divmod(total[over], rows[over])
    scaled[over] = quotient * max_rows + rest * max_rows // rows[over]
    return scaled


def _sums(values: NDArray[np.int64], group: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """Return the integer sum of each group."""
    high, low = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    np.add.at(high, group, values >> 32)
    np.add.at(low, group, values & 0xFFFFFFFF)
    return _joined(high, low)
