"""Blocks: the sorted rows of whole units, as runs; and how packed rows are sorted and cut into blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_polars._engines.workers import Workers

Numbers = NDArray[np.int64]
Words = NDArray[np.uint64]
AnyWords = NDArray[Any]
"""Unsigned words of 32 or 64 bits."""

Columns = tuple[Any, ...]
"""Arrays of equal length. All but the first may be None."""

ORDER_BITS = 16
"""Bits of the order hash. They are fixed, so which groups are kept never depends on how rows are sorted."""

_BLOCK = 1 << 17  # rows per block: the arrays made from them stay in the cache
_FEW = 8  # if fewer than one in so many groups is beyond a cap, units within it are left out
_SPREAD = 4  # units are numbered anew if their numbers span this many times as much as their count
_SORTED_ALONE = 1 << 18  # words that one thread sorts in less time than two would take to share them


@dataclass(frozen=True)
class Block:
    """The sorted rows of whole units. A run is all rows of one unit in one group.

    Attributes
    ----------
    unit, order, group, rows
        For each run: its unit, its place in the order in which the unit keeps groups, its group, and its number of
        rows. The runs of a unit are adjacent and in that order. Places are None unless rows are chosen by them.
    starts
        The first row of each run.
    codes
        For each row: its value minus the least possible value. Sorted within each run if the layout is `rising`.
    """

    unit: AnyWords
    order: AnyWords | None
    group: Numbers
    rows: Numbers
    starts: Numbers
    codes: Numbers | None

    def runs_at(self, places: Numbers, *, units: bool = False) -> Block:
        """Return some of the runs without their orders, and with their `units` only if they are needed.

        The rows of all runs stay where they are.
        """
        starts = self.starts[:0] if self.codes is None else self.starts.take(places)  # others are only counted
        unit = self.unit.take(places) if units else self.unit[:0]
        return Block(unit, None, self.group.take(places), self.rows.take(places), starts, self.codes)


Orders = Callable[[AnyWords, Numbers, Numbers], Words]
"""A function that returns the places of groups in the order in which their units keep them, below 2**ORDER_BITS.

It is given some units, the place of each group's unit among them, and the groups.
"""

Collect = Callable[[Block], None]
"""A function that takes blocks, perhaps in several threads at once. All rows of a unit are in one block."""


def starts_of(heads: AnyWords) -> Numbers:
    """Return the places in sorted words where a new value begins."""
    changes = np.empty(len(heads), np.bool_)
    changes[:1] = True
    np.not_equal(heads[1:], heads[:-1], out=changes[1:])
    return np.flatnonzero(changes)


def lengths_of(starts: Numbers, end: int) -> Numbers:
    """Return how far each start is from the next one, and the last one from the end."""
    lengths = np.empty(len(starts), np.int64)
    np.subtract(starts[1:], starts[:-1], out=lengths[:-1])
    lengths[-1:] = end - starts[-1:]
    return lengths


@dataclass(frozen=True)
class GroupCap:
    """The cap on groups per unit. With `outer`, which maps group numbers to outer groups, it counts outer groups.

    Groups with the same outer group have the same order and adjacent numbers. `order` gives the order of groups if
    runs are sorted by group alone. It is None if they are in that order already.
    """

    most: int
    outer: Callable[[Numbers], Numbers] | None = None
    order: Orders | None = None


def kept_runs(block: Block, cap: GroupCap | None) -> NDArray[np.bool_] | None:
    """Return a mask of the runs that belong to the first groups of their unit; None means all runs."""
    if cap is None or cap.most >= len(block.unit):
        return None
    if cap.outer is None:
        return _first_of_unit(block.unit, block.group, cap)
    outer = cap.outer(block.group)
    changes = np.ones(len(outer), np.bool_)
    changes[1:] = (block.unit[1:] != block.unit[:-1]) | (outer[1:] != outer[:-1])
    starts = np.flatnonzero(changes)
    kept = _first_of_unit(block.unit[starts], block.group[starts], cap)
    return None if kept is None else np.repeat(kept, lengths_of(starts, len(outer)))


def _first_of_unit(unit: AnyWords, group: Numbers, cap: GroupCap) -> NDArray[np.bool_] | None:
    """Return a mask of the first groups of each unit; None means all groups."""
    within = np.ones(len(unit), np.bool_)
    np.not_equal(unit[cap.most :], unit[: -cap.most], out=within[cap.most :])
    if cap.order is None:
        return within
    beyond = len(within) - np.count_nonzero(within)
    if not beyond:
        return None
    if beyond * _FEW > len(unit):
        return _first_by_order(unit, group, cap.most, cap.order)
    # Only a few units have too many groups, and only their groups are ordered.
    sizes = lengths_of(starts_of(unit), len(unit))
    kept = np.repeat(sizes <= cap.most, sizes)
    among = np.flatnonzero(~kept)
    kept[among] = _first_by_order(unit[among], group[among], cap.most, cap.order)
    return kept


def _first_by_order(unit: AnyWords, group: Numbers, most: int, order: Orders) -> NDArray[np.bool_]:
    """Return a mask of the `most` first groups of each unit in its order, ties in the order of the groups.

    Units and places are sorted as one word. The last word that a unit keeps tells which groups it keeps. A run
    looks up the word of its unit in a table, because `repeat` takes twice as long and keeps other threads waiting.
    """
    starts = starts_of(unit)
    sizes = lengths_of(starts, len(unit))
    first, span = unit[0], int(unit[-1]) - int(unit[0])
    if span < _SPREAD * len(starts):
        units, counted = np.arange(span + 1, dtype=unit.dtype) + first, unit - first
    else:
        units, counted = unit[starts], np.repeat(np.arange(len(starts), dtype=np.uint64), sizes)
    number = _signed(counted)
    kind = np.uint32 if int(number[-1]).bit_length() <= 32 - ORDER_BITS else np.uint64
    words = counted.astype(kind, copy=False) << kind(ORDER_BITS)
    words |= order(units, number, group).astype(kind, copy=False)
    ordered, lasts = np.sort(words), starts + (np.minimum(sizes, most) - 1)
    last = ordered.take(lasts)
    last_of = np.zeros(len(units), kind)
    last_of[number.take(starts)] = last
    kept: NDArray[np.bool_] = words <= last_of.take(number)
    next_words = ordered[np.minimum(lasts + 1, len(ordered) - 1)]
    for place in np.flatnonzero((next_words == last) & (sizes > most)).tolist():  # rare: two groups share a place
        of_unit = slice(starts[place], starts[place] + sizes[place])
        equal = np.flatnonzero(words[of_unit] == last[place])
        kept[of_unit][equal[most - np.count_nonzero(words[of_unit] < last[place]) :]] = False
    return kept


# ---------------------------------------------------------------------- rows that fit into one integer


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The number of bits of each field of a packed row, from the top. Packed values are counted from `low`."""

    unit_bits: int
    order_bits: int
    group_bits: int
    value_bits: int = 0
    low: int | None = None
    rising: bool = False
    """Whether the values of a run must be sorted."""

    @property
    def bits(self) -> int:
        """Number of bits of a whole row."""
        return self.unit_bits + self.order_bits + self.group_bits + self.value_bits

    @property
    def fits(self) -> bool:
        """Whether a row fits into one word. Values that nearly fill a word by themselves are kept in a column."""
        return self.bits <= 64 and self.value_bits <= 48


def add_words(words: AnyWords, layout: Layout, collect: Collect, workers: Workers) -> None:
    """Sort packed rows in place and pass them on in blocks. All rows of a unit must be in the same call."""
    _sort(words, workers)
    add_sorted_words(words, layout, collect, workers)


def add_sorted_words(words: AnyWords, layout: Layout, collect: Collect, workers: Workers) -> None:
    """Pass sorted rows on in blocks. All rows of a unit must be in the same call."""
    workers.each(
        _blocks(words, layout.bits - layout.unit_bits), lambda ends: collect(_block(words[ends[0] : ends[1]], layout))
    )


def _sort(words: AnyWords, workers: Workers) -> None:
    """Sort words in place.

    Partitioning moves the smaller half of the words to the front, so both halves can be sorted by themselves. This
    takes a tenth as long as sorting, which would have to do the same work anyway.
    """
    pieces = [words]
    while len(pieces) < workers.threads and len(pieces[0]) > _SORTED_ALONE:
        workers.each(pieces, lambda piece: piece.partition(len(piece) // 2))
        pieces = [half for piece in pieces for half in (piece[: len(piece) // 2], piece[len(piece) // 2 :])]
    workers.each(pieces, lambda piece: piece.sort())


def _blocks(words: AnyWords, below_unit: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of blocks. A block never ends within a unit."""
    start = 0
    while start < len(words):
        end = min(start + _BLOCK, len(words))
        if end < len(words):
            last = words.dtype.type((int(words[end - 1]) >> below_unit << below_unit) | ((1 << below_unit) - 1))
            end += int(np.searchsorted(words[end:], last, side="right"))
        yield start, end
        start = end


def _block(words: AnyWords, layout: Layout) -> Block:
    kind = words.dtype.type
    heads = words >> kind(layout.value_bits) if layout.value_bits else words
    starts = starts_of(heads)
    heads = heads.take(starts)
    codes = None
    if layout.low is not None:
        codes = _signed(words & kind((1 << layout.value_bits) - 1))
    group = _signed(heads & kind((1 << layout.group_bits) - 1))
    order = None
    if layout.order_bits and layout.rising:
        order = heads >> kind(layout.group_bits) & kind((1 << layout.order_bits) - 1)
    below = layout.order_bits + layout.group_bits
    unit = heads >> kind(below) if layout.unit_bits else np.zeros_like(heads)
    return Block(unit, order, group, lengths_of(starts, len(words)), starts, codes)


def _signed(words: AnyWords) -> Numbers:
    """Return words below 2**63 as signed integers."""
    return words.view(np.int64) if words.itemsize == 8 else words.astype(np.int64)


# ---------------------------------------------------------------------- rows that need more bits


def add_wide(columns: Columns, layout: Layout, collect: Collect, workers: Workers) -> None:
    """Sort rows given as (unit, second word of the unit, order and group, value) and pass them on in blocks.

    All rows of a unit must be in the same call. Units are numbered first, so that most rows fit into one word again.
    """
    unit, more, below, value = columns
    place, rank = _ranked(unit, more)
    below = below[place].astype(np.uint64, copy=False)
    value = None if value is None else value[place]
    full = replace(layout, unit_bits=int(rank[-1]).bit_length())
    keyed = replace(full, value_bits=0, low=None)
    if keyed.bits > 64:
        _add_in_order(np.lexsort((below, rank)), rank, below, value, full, collect)
        return
    words = below | (rank << np.uint64(keyed.order_bits + keyed.group_bits)) if keyed.unit_bits else below
    if value is None:
        add_words(words, keyed, collect, workers)
    elif full.fits and full.low is not None:
        words = (words << np.uint64(full.value_bits)) | (value - full.low).view(np.uint64)
        add_words(words, full, collect, workers)
    else:
        _add_in_order(_sorted_places(words, keyed.bits)[0], rank, below, value, full, collect)


def _ranked(unit: Words, more: Words | None) -> tuple[Numbers, Words]:
    """Return an order of rows in which equal units are adjacent, and the number of each row's unit in that order.

    Rows are sorted by the upper bits of the unit, and by all bits only if two units share the upper ones. If a unit
    has two words, the upper bits of the first (at least 37 for parts of up to 2**27 rows) and the whole second word
    tell units apart.
    """
    lower = np.uint64(_place_bits(unit))
    place, upper = _sorted_places(unit >> lower, 64 - int(lower))
    changes = _changes(upper)
    inner = _changes(unit[place] if more is None else more[place])
    if np.any(inner & ~changes):
        place = np.lexsort((unit,) if more is None else (more, unit >> lower))
        changes = _changes((unit if more is None else unit >> lower)[place])
        inner = changes if more is None else _changes(more[place])
    rank = np.zeros(len(unit), np.uint64)
    np.cumsum(changes | inner, out=rank[1:])
    return place, rank


def _changes(words: Words) -> NDArray[np.bool_]:
    """Return which rows differ from the row before."""
    changes: NDArray[np.bool_] = words[1:] != words[:-1]
    return changes


def _sorted_places(words: Words, bits: int) -> tuple[Numbers, Words]:
    """Return the order that sorts words of at most `bits` bits, and the sorted words.

    If there is room, each word carries its place while it is sorted. This takes a third of the time of argsort.
    """
    place_bits = np.uint64(_place_bits(words))
    if bits + int(place_bits) > 64:
        place = np.argsort(words)
        return place, words[place]
    tagged = (words << place_bits) | np.arange(len(words), dtype=np.uint64)
    tagged.sort()
    return (tagged & ((np.uint64(1) << place_bits) - np.uint64(1))).view(np.int64), tagged >> place_bits


def _place_bits(words: Words) -> int:
    return (len(words) - 1).bit_length()


def _add_in_order(
    place: Numbers, rank: Words, below: Words, value: Numbers | None, layout: Layout, collect: Collect
) -> None:
    """Pass on rows that `place` sorts by unit, order and group."""
    rank, below = rank[place], below[place]
    starts = np.concatenate(([0], np.flatnonzero(_changes(rank) | _changes(below)) + 1))
    rows = lengths_of(starts, len(rank))
    codes = None
    if value is not None and layout.low is not None:
        # Values may be up to 2**63 apart. The difference is taken modulo 2**64 and is below 2**63 for any layout.
        codes = (value[place].view(np.uint64) - np.uint64(layout.low % (1 << 64))).view(np.int64)
        if layout.rising:
            codes = _risen(codes, rows, layout.value_bits)
    heads = below[starts]
    group = (heads & np.uint64((1 << layout.group_bits) - 1)).view(np.int64)
    order = heads >> np.uint64(layout.group_bits) if layout.order_bits else None
    collect(Block(rank[starts], order, group, rows, starts, codes))


def _risen(codes: Numbers, rows: Numbers, bits: int) -> Numbers:
    """Return the values sorted within each run."""
    run = np.repeat(np.arange(len(rows), dtype=np.uint64), rows)
    if len(rows).bit_length() + bits > 64:
        return codes[np.lexsort((codes, run))]
    words = (run << np.uint64(bits)) | codes.view(np.uint64)
    words.sort()
    return (words & np.uint64((1 << bits) - 1)).view(np.int64)
