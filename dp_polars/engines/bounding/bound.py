"""From rows to bounded sums: the plan is chosen by how many bits a row needs, and never changes the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_polars.engines.bounding.packed import Layout, add_words
from dp_polars.engines.bounding.runs import ORDER_BITS, Caps, Words
from dp_polars.engines.bounding.slots import MIXER, SLOT_BITS, Slots
from dp_polars.engines.bounding.store import PART_BITS, Pages, Parts
from dp_polars.engines.bounding.sums import Numbers, Sums
from dp_polars.engines.bounding.wide import add_wide

_FEW_ROWS = 1 << 17

__all__ = ["Caps", "Rows", "Shape", "bounded"]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What all rows have in common: the bits of a unit's number (more than 64: two words), groups, range of values."""

    unit_bits: int
    groups: int
    values: tuple[int, int] | None
    ordered: bool

    @property
    def layout(self) -> Layout:
        """The layout of a row as one integer, however long."""
        low, high = self.values or (0, 0)
        return Layout(
            unit_bits=self.unit_bits,
            order_bits=ORDER_BITS if self.ordered else 0,
            group_bits=(self.groups - 1).bit_length() if self.groups else 0,
            value_bits=(high - low).bit_length(),
            low=None if self.values is None else low,
        )


@dataclass(frozen=True)
class Rows:
    """Some rows: their unit in one or two words, the order of their group (below 2**ORDER_BITS), group and value."""

    unit: Words
    more: Words | None
    order: Words | None
    group: Numbers
    value: Numbers | None

    keep: NDArray[np.bool_] | None = None
    """Which of the rows count; None: all."""

    def where(self, mask: NDArray[np.bool_] | None) -> Rows:
        """Return the rows that a mask picks."""

        def picked(column: Any) -> Any:
            return None if column is None else column[mask]

        if mask is None:
            return self
        return Rows(picked(self.unit), picked(self.more), picked(self.order), picked(self.group), picked(self.value))


def bounded(batches: Iterable[Rows], shape: Shape, caps: Caps) -> Sums:
    """Return the sums of rows under the caps."""
    sums = Sums(shape.groups, values=shape.values is not None)
    _add(batches, shape.layout, sums, caps)
    return sums


def _add(batches: Iterable[Rows], layout: Layout, sums: Sums, caps: Caps) -> None:
    if layout.fits:
        _packed(batches, layout, sums, caps)
    elif layout.unit_bits <= 64 and _without_part(layout).fits:
        _packed_in_parts(batches, layout, sums, caps)
    elif layout.unit_bits > SLOT_BITS and _without_part(replace(layout, unit_bits=SLOT_BITS)).fits:
        _by_slot(batches, layout, sums, caps)
    else:
        _wide(batches, layout, sums, caps)


def _packed(batches: Iterable[Rows], layout: Layout, sums: Sums, caps: Caps) -> None:
    dtype = np.uint32 if layout.bits < 32 else np.uint64
    pages = Pages(dtype)
    for rows in batches:
        pages.add(_kept(_words(rows.unit, rows, layout), rows).astype(dtype, copy=False))
    add_words(pages.take(), layout, sums, caps)


def _packed_in_parts(batches: Iterable[Rows], layout: Layout, sums: Sums, caps: Caps) -> None:
    """Pack rows that are a few bits too long: the part says the upper bits of the unit."""
    own = _without_part(layout)
    lower = np.uint64((1 << own.unit_bits) - 1)
    whole = np.uint64((1 << layout.unit_bits) - 1)
    parts = Parts()
    for rows in batches:
        mixed = (rows.unit * np.uint64(MIXER)) & whole  # one to one; spreads the units over the parts
        part = (mixed >> np.uint64(own.unit_bits)).astype(np.uint8)
        parts.add(_kept(part, rows), (_kept(_words(mixed & lower, rows, own), rows),))
    for columns in parts.take(whole=False):
        add_words(columns[0], own, sums, caps)


def _kept(column: NDArray[Any], rows: Rows) -> NDArray[Any]:
    return column if rows.keep is None else column[rows.keep]


def _without_part(layout: Layout) -> Layout:
    return replace(layout, unit_bits=layout.unit_bits - min(PART_BITS, layout.unit_bits))


def _words(unit: Words, rows: Rows, layout: Layout) -> Words:
    """Return rows as one word each."""
    words = unit << np.uint64(layout.order_bits + layout.group_bits) if layout.unit_bits else np.zeros_like(unit)
    if rows.order is not None:
        words |= rows.order << np.uint64(layout.group_bits)
    words |= rows.group.view(np.uint64)
    if rows.value is not None and layout.low is not None:
        words <<= np.uint64(layout.value_bits)
        words |= (rows.value - layout.low).view(np.uint64)
    return words


def _by_slot(batches: Iterable[Rows], layout: Layout, sums: Sums, caps: Caps) -> None:
    """Give most units a slot as a short number; the rows of the others go the wide way."""
    rest = iter(batches)
    first = list(_up_to(rest, _FEW_ROWS))
    if sum(len(rows.unit) for rows in first) <= _FEW_ROWS:
        _wide(first, layout, sums, caps)  # the slots would be more memory than the rows
        return
    slots = Slots()
    others: list[Rows] = []

    def owned() -> Iterator[Rows]:
        for whole in chain(first, rest):
            rows = whole.where(whole.keep)
            mixed = rows.unit * np.uint64(MIXER)
            slot, own = slots.claim(mixed, rows.more)
            if not own.all():
                others.append(rows.where(~own))
            yield replace(rows, unit=slot, more=None, keep=own)

    _add(owned(), replace(layout, unit_bits=SLOT_BITS), sums, caps)
    _wide(others, layout, sums, caps)


def _up_to(batches: Iterator[Rows], size: int) -> Iterator[Rows]:
    """Yield batches until there are more than `size` rows."""
    for rows in batches:
        yield rows
        size -= len(rows.unit)
        if size < 0:
            return


def _wide(batches: Iterable[Rows], layout: Layout, sums: Sums, caps: Caps) -> None:
    parts = Parts()
    below = replace(layout, unit_bits=0, value_bits=0, low=None)
    dtype = np.uint32 if below.bits <= 32 else np.uint64
    for whole in batches:
        rows = whole.where(whole.keep)
        mixed = rows.unit * np.uint64(MIXER)
        part = (mixed >> np.uint64(64 - PART_BITS)).astype(np.uint8)
        parts.add(part, (mixed, rows.more, _words(mixed, rows, below).astype(dtype, copy=False), rows.value))
    for columns in parts.take(whole=True):
        add_wide(columns, layout, sums, caps)
