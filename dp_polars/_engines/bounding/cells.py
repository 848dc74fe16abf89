"""Counts of the values in each group, and profiles: how many units have each number of groups or rows."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from dp_polars._engines.bounding.blocks import (
    AnyWords,
    Block,
    GroupCap,
    Numbers,
    Orders,
    kept_runs,
    lengths_of,
    starts_of,
)
from dp_polars._engines.bounding.row_store import MIXER, Pages
from dp_polars._engines.request import Cells, Profile

TAG_BITS = 32
"""Bits of the hash that decides which rows are kept. They are fixed, so that no other row changes the choice."""

_SECOND = 0xD6E8FEB86659FD93


class CellCounts:
    """Counts of each value in each group, over at most `max_rows` rows or distinct values per unit and group.

    With a cap across all groups, a unit keeps `max_rows` in all of them together. A hash of salt, unit, group, value
    and the number of equal values before decides which rows a unit keeps, so the choice depends on the unit's own rows
    alone. Unit and group enter through the order of the run, which is a hash of their values; a code would depend on
    the rows of other units.
    """

    def __init__(
        self,
        cells: Cells,
        groups: int,
        value_bits: int,
        cap: GroupCap | None,
        salt: int,
        order: Orders | None = None,
    ) -> None:
        self._cells, self._cap, self._salt, self._order = cells, cap, salt, order
        self._value_bits = value_bits
        group_bits = (groups - 1).bit_length() if groups else 0
        self._apart = group_bits + value_bits > 64  # a group and a value do not fit into one word
        self._dtype = np.uint32 if group_bits + value_bits <= 32 else np.uint64
        self._counted: tuple[list[AnyWords], Numbers] | None = None
        self._lock = threading.Lock()
        self._open_pages()

    def _open_pages(self) -> None:
        self._pages = Pages(self._dtype)
        self._groups = Pages(np.uint64) if self._apart else None

    def collect(self, block: Block, present: NDArray[np.bool_] | None = None, first: int = 0) -> None:
        """Collect the values of the rows that units keep, among those `present`. Values are counted from `first`."""
        kept = kept_runs(block, self._cap)
        if block.codes is None:
            raise ValueError("rows without values")
        codes, run = block.codes, np.repeat(np.arange(len(block.rows)), block.rows)
        mask = None if kept is None else kept[run]
        if present is not None:
            mask = present if mask is None else mask & present
        if self._cells.distinct:
            new = np.ones(len(codes), np.bool_)
            new[1:] = (codes[1:] != codes[:-1]) | (run[1:] != run[:-1])
            mask = new if mask is None else mask & new
        if mask is not None:
            codes, run = codes[mask], run[mask]
        chosen = self._chosen(codes, run, block)
        if chosen is not None:
            codes, run = codes[chosen], run[chosen]
        group, values = block.group[run].view(np.uint64), (codes - first).view(np.uint64)
        if self._groups is not None:
            with self._lock:  # a group and its value have the same place
                self._groups.add(group)
                self._pages.add(values)
        else:
            words = (group << np.uint64(self._value_bits)) | values
            self._pages.add(words.astype(self._dtype, copy=False))

    def _chosen(self, codes: Numbers, run: Numbers, block: Block) -> Numbers | None:
        """Return the places of the `max_rows` rows with the least tags of each run or unit; None means all rows."""
        most = self._cells.max_rows
        if most is None or not len(run):
            return None
        capped = _units_of_runs(block)[run] if self._cells.across else run
        sizes = np.bincount(capped)
        over = sizes[capped] > most
        if not over.any():
            return None
        long = np.flatnonzero(over)
        runs, values = run[long], codes[long]
        orders = self._orders(block, runs)
        tags = _tags(orders, values, _repeats(runs, values), self._salt)
        places = _least_of_units(capped[long], tags, orders, most) if self._cells.across else _least(runs, tags, most)
        return np.sort(np.concatenate((np.flatnonzero(~over), long[places])))

    def _orders(self, block: Block, run: Numbers) -> NDArray[np.uint64]:
        """Return the order of the run of each row. Runs rise."""
        if block.order is not None:
            return block.order[run].astype(np.uint64)
        if self._order is None:
            raise ValueError("rows are kept by a hash of their unit and group")
        first = starts_of(run)
        runs = run[first]
        orders = self._order(block.unit[runs], np.arange(len(runs)), block.group[runs])
        return orders.repeat(np.diff(first, append=len(run)))

    def end_part(self) -> None:
        """Count the values collected so far, so that memory is needed for distinct ones only."""
        if self._groups is not None:
            new = _counted([self._groups.take(), self._pages.take()])
        else:
            words = self._pages.take()
            words.sort()
            starts = starts_of(words)
            new = [words[starts]], np.diff(starts, append=len(words))
        self._open_pages()
        if self._counted is not None:
            known, counts = self._counted
            columns = [np.concatenate(both) for both in zip(known, new[0], strict=True)]
            new = _counted(columns, np.concatenate((counts, new[1])))
        self._counted = new

    def finish(self) -> tuple[Numbers, Numbers, Numbers]:
        """Return groups, values and counts, sorted by group and value. Call this after the last part has ended."""
        if self._counted is None:
            raise ValueError("no part has ended")
        columns, counts = self._counted
        if self._apart:
            groups, values = columns
            return groups.astype(np.int64), values.astype(np.int64), counts
        found = columns[0].astype(np.uint64)
        values = (found & np.uint64((1 << self._value_bits) - 1)).astype(np.int64)
        return (found >> np.uint64(self._value_bits)).astype(np.int64), values, counts


def _units_of_runs(block: Block) -> Numbers:
    """Return the number of each run's unit. Numbers rise from 0."""
    starts = starts_of(block.unit)
    return np.repeat(np.arange(len(starts)), lengths_of(starts, len(block.unit)))


def _counted(columns: list[AnyWords], counts: Numbers | None = None) -> tuple[list[AnyWords], Numbers]:
    """Return the distinct rows of columns, sorted, and their counts. `counts` gives the count of each input row."""
    order = np.lexsort(columns[::-1])
    columns = [column[order] for column in columns]
    changes = np.zeros(len(order), np.bool_)
    changes[:1] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(changes)
    if counts is None or not len(starts):
        added = np.diff(starts, append=len(order))
    else:
        added = np.add.reduceat(counts[order], starts)
    return [column[starts] for column in columns], added


def _repeats(run: Numbers, values: Numbers) -> Numbers:
    """Return the number of equal values before each row in its run. Values are sorted within a run."""
    changes = np.ones(len(run), np.bool_)
    changes[1:] = (run[1:] != run[:-1]) | (values[1:] != values[:-1])
    places = np.arange(len(run))
    return places - np.maximum.accumulate(np.where(changes, places, 0))


def _tags(order: NDArray[np.uint64], values: Numbers, repeats: Numbers, salt: int) -> NDArray[np.uint64]:
    """Return the hash that decides which rows are kept, computed from the rows' own values."""
    tags = (values.view(np.uint64) + np.uint64(salt)) * np.uint64(MIXER)
    for part in (order, repeats.view(np.uint64), np.uint64(salt)):
        tags ^= tags >> np.uint64(29)
        tags += part
        tags *= np.uint64(_SECOND)
    tags ^= tags >> np.uint64(32)
    tags *= np.uint64(MIXER)
    return tags >> np.uint64(64 - TAG_BITS)


def _least(run: Numbers, tags: NDArray[np.uint64], most: int) -> Numbers:
    """Return the places of the `most` least tags of each run. Among equal tags, the first rows win."""
    place_bits, run_bits = (len(run) - 1).bit_length(), int(run[-1]).bit_length()
    if place_bits + run_bits + TAG_BITS > 64:
        order = np.lexsort((tags, run))
    else:
        shift = np.uint64(place_bits)
        words = (run.view(np.uint64) << np.uint64(TAG_BITS) | tags) << shift | np.arange(len(run), dtype=np.uint64)
        words.sort()
        order = (words & np.uint64((1 << place_bits) - 1)).view(np.int64)
    ordered = run[order]
    starts = starts_of(ordered)
    within = np.arange(len(run)) - np.repeat(starts, np.diff(starts, append=len(run)))
    return order[within < most]


def _least_of_units(unit: Numbers, tags: NDArray[np.uint64], orders: NDArray[np.uint64], most: int) -> Numbers:
    """Return the places of the `most` least tags of each unit.

    Equal tags are told apart by the order of their groups, a hash of the unit's own values. The numbers of groups may
    depend on the rows of others.
    """
    order = np.lexsort((orders, tags, unit))
    ordered = unit[order]
    starts = starts_of(ordered)
    within = np.arange(len(unit)) - np.repeat(starts, np.diff(starts, append=len(unit)))
    return order[within < most]


class Profiles:
    """How many units have each number of groups, or of rows in the first of their groups, or in all of them."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._counts = np.zeros(profile.most + 1, np.int64)
        self._lock = threading.Lock()

    def collect(self, block: Block) -> None:
        """Count the units of a block."""
        firsts = starts_of(block.unit)
        if self._profile.of == "groups":
            numbers = np.diff(firsts, append=len(block.unit))
        elif self._profile.of == "rows":
            numbers = block.rows[firsts]
        else:
            numbers = np.add.reduceat(block.rows, firsts) if len(firsts) else block.rows
        counts = np.bincount(np.minimum(numbers, self._profile.most), minlength=len(self._counts))
        with self._lock:
            self._counts += counts

    def finish(self) -> tuple[Numbers, Numbers]:
        """Return the numbers that occur and how many units have each."""
        values = np.flatnonzero(self._counts)
        return values, self._counts[values]
