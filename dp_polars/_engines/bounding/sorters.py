"""Sorters: they take rows in any order and pass them on as sorted blocks of whole units.

The number of bits that a row needs decides which sorter is used. The choice never changes the answer.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dp_polars._engines.bounding.blocks import (
    ORDER_BITS,
    AnyWords,
    Collect,
    Layout,
    Words,
    add_wide,
    add_words,
)
from dp_polars._engines.bounding.row_store import MIXER, PART_BITS, SLOT_BITS, Pages, Parts, Slots
from dp_polars._engines.workers import Workers

SHORT_BITS = 32
"""Rows of fewer bits are stored and sorted as words of 32 bits."""

_FEW_ROWS = 1 << 17


@dataclass(frozen=True, kw_only=True)
class RowShape:
    """What all rows have in common.

    Attributes
    ----------
    unit_bits
        The number of bits of a unit. More than 64 bits take two words.
    groups
        The number of possible groups.
    values
        The range of values, or None if rows have no value.
    ordered
        Whether rows carry the order in which their unit keeps its groups.
    rising
        Whether the values of a run must be sorted.
    """

    unit_bits: int
    groups: int
    values: tuple[int, int] | None
    ordered: bool
    rising: bool = False

    @property
    def layout(self) -> Layout:
        """Layout of a row as a single integer, however long."""
        low, high = self.values or (0, 0)
        return Layout(
            unit_bits=self.unit_bits,
            order_bits=ORDER_BITS if self.ordered else 0,
            group_bits=(self.groups - 1).bit_length() if self.groups else 0,
            value_bits=(high - low).bit_length(),
            low=None if self.values is None else low,
            rising=self.rising,
        )


@dataclass(frozen=True)
class CodedRows:
    """Some rows: unit (in one or two words), order of the group (below 2**ORDER_BITS), group and value.

    Groups and values may be integers of any length.
    """

    unit: Words
    more: Words | None
    order: Words | None
    group: NDArray[Any]
    value: NDArray[Any] | None

    keep: NDArray[np.bool_] | None = None
    """Mask of the rows that count; None means all."""

    def where(self, mask: NDArray[np.bool_] | None) -> CodedRows:
        """Return the rows that a mask selects."""

        def picked(column: Any) -> Any:
            return None if column is None else column[mask]

        if mask is None:
            return self
        return CodedRows(
            picked(self.unit), picked(self.more), picked(self.order), picked(self.group), picked(self.value)
        )


class Sorter(Protocol):
    """Take rows batch by batch, from any thread, and pass all of them on in blocks at the end."""

    def add(self, rows: CodedRows) -> None:
        """Add some rows."""
        ...

    def finish(self, collect: Collect, workers: Workers) -> AnyWords | None:
        """Pass all rows on to `collect`. Return them in sorted order if each row is a single word."""
        ...


def sorter_for(shape: RowShape, expected: int = 0) -> Sorter:
    """Return the sorter for rows of this shape. How many are `expected` only decides when memory is taken."""
    return _sorter_for(shape.layout, expected)


def _sorter_for(layout: Layout, expected: int = 0) -> Sorter:
    if layout.fits:
        return _Packed(layout, expected)
    if layout.unit_bits <= 64 and _without_part(layout).fits:
        return _PackedInParts(layout)
    if layout.unit_bits > SLOT_BITS and _without_part(replace(layout, unit_bits=SLOT_BITS)).fits:
        return _BySlot(layout)
    return _Wide(layout)


class _Packed:
    """Store each row as one word."""

    def __init__(self, layout: Layout, expected: int) -> None:
        self._layout = layout
        self._dtype: type[np.unsignedinteger[Any]] = np.uint32 if layout.bits < SHORT_BITS else np.uint64
        self._pages = Pages(self._dtype, expected)

    def add(self, rows: CodedRows) -> None:
        self._pages.add(_kept(_words(rows.unit, rows, self._layout, self._dtype), rows))

    def finish(self, collect: Collect, workers: Workers) -> AnyWords:
        words = self._pages.take()
        add_words(words, self._layout, collect, workers)
        return words


class _PackedInParts:
    """Store rows that are a few bits too long for a word in parts. The part tells the upper bits of the unit."""

    def __init__(self, layout: Layout) -> None:
        self._own = _without_part(layout)
        self._lower = np.uint64((1 << self._own.unit_bits) - 1)
        self._whole = np.uint64((1 << layout.unit_bits) - 1)
        self._parts = Parts()

    def add(self, rows: CodedRows) -> None:
        mixed = (rows.unit * np.uint64(MIXER)) & self._whole  # one to one, and spreads the units over the parts
        part = (mixed >> np.uint64(self._own.unit_bits)).astype(np.uint8)
        words = _words(mixed & self._lower, rows, self._own)
        self._parts.add(_kept(part, rows), (_kept(words, rows),))

    def finish(self, collect: Collect, workers: Workers) -> None:
        parts = self._parts.take(whole=False)
        workers.each(parts, lambda columns: add_words(columns[0], self._own, collect, Workers()))


class _BySlot:
    """Replace most units by their slot, a short number. The rows of the other units are stored as columns."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._lock = threading.Lock()
        self._first: list[CodedRows] | None = []
        self._waiting = 0
        self._others = _Wide(layout)

    def add(self, rows: CodedRows) -> None:
        with self._lock:
            held = self._held(rows)
        for ready in held:
            self._claim(ready)

    def _held(self, rows: CodedRows) -> list[CodedRows]:
        """Hold the first rows back, since a table of slots would take more memory. Return the rows to be added now."""
        if self._first is None:
            return [rows]
        self._first.append(rows)
        self._waiting += len(rows.unit)
        if self._waiting <= _FEW_ROWS:
            return []
        first, self._first = self._first, None
        self._slots = Slots()
        self._owned = _sorter_for(replace(self._layout, unit_bits=SLOT_BITS))
        return first

    def _claim(self, whole: CodedRows) -> None:
        rows = whole.where(whole.keep)
        slot, owned = self._slots.claim(rows.unit * np.uint64(MIXER), rows.more)
        if not owned.all():
            self._others.add(rows.where(~owned))
        self._owned.add(replace(rows, unit=slot, more=None, keep=owned))

    def finish(self, collect: Collect, workers: Workers) -> None:
        if self._first is not None:
            for rows in self._first:
                self._others.add(rows)
        else:
            self._owned.finish(collect, workers)
        self._others.finish(collect, workers)


class _Wide:
    """Store rows as several columns, in parts by unit."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._below = replace(layout, unit_bits=0, value_bits=0, low=None)
        self._dtype = np.uint32 if self._below.bits <= 32 else np.uint64
        self._parts = Parts()

    def add(self, rows: CodedRows) -> None:
        rows = rows.where(rows.keep)
        if not len(rows.unit):
            return
        mixed = rows.unit * np.uint64(MIXER)
        part = (mixed >> np.uint64(64 - PART_BITS)).astype(np.uint8)
        below = _words(mixed, rows, self._below).astype(self._dtype, copy=False)
        value = None if rows.value is None else rows.value.astype(np.int64, copy=False)
        self._parts.add(part, (mixed, rows.more, below, value))

    def finish(self, collect: Collect, workers: Workers) -> None:
        parts = self._parts.take(whole=True)
        workers.each(parts, lambda columns: add_wide(columns, self._layout, collect, Workers()))


def _kept(column: NDArray[Any], rows: CodedRows) -> NDArray[Any]:
    return column if rows.keep is None else column[rows.keep]


def _without_part(layout: Layout) -> Layout:
    return replace(layout, unit_bits=layout.unit_bits - min(PART_BITS, layout.unit_bits))


def _words(
    unit: Words, rows: CodedRows, layout: Layout, kind: type[np.unsignedinteger[Any]] = np.uint64
) -> NDArray[Any]:
    """Return each row as one word. Rows of fewer than 32 bits are computed in short words, in half the memory."""
    words: NDArray[Any]
    if layout.unit_bits:
        words = unit.astype(kind, copy=False) << kind(layout.order_bits + layout.group_bits)
    else:
        words = np.zeros(len(unit), kind)
    if rows.order is not None:
        words |= (rows.order << np.uint64(layout.group_bits)).astype(kind, copy=False)
    words |= rows.group.astype(kind, copy=False)
    if rows.value is not None and layout.low is not None:
        words <<= kind(layout.value_bits)
        words |= (rows.value - layout.low if layout.low else rows.value).astype(kind, copy=False)
    return words
