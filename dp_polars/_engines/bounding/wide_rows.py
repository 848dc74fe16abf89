"""Rows that need more bits than one integer has: in parts by unit, whose units are numbered before packing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dp_polars._engines.bounding.blocks import Block, Collect, Numbers, Words
from dp_polars._engines.bounding.packed_rows import Layout, add_words
from dp_polars._engines.bounding.row_store import Columns


def add_wide(columns: Columns, layout: Layout, collect: Collect) -> None:
    """Give on rows of (unit, its second word, order and group, value). All rows of a unit in one call."""
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
        add_words(words, keyed, collect)
    elif full.fits and full.low is not None:
        words = (words << np.uint64(full.value_bits)) | (value - full.low).view(np.uint64)
        add_words(words, full, collect)
    else:
        _add_in_order(_sorted_places(words, keyed.bits)[0], rank, below, value, full, collect)


def _ranked(unit: Words, more: Words | None) -> tuple[Numbers, Words]:
    """Return places that bring equal units together, and the number of each row's unit in that order.

    Sorted by the upper bits of the unit; only if two units share those, by everything. Of two words the upper bits of
    the first, 37 or more for parts of up to 2**27 rows, and the whole second tell units apart.
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
    """Return where a row differs from the one before it."""
    changes: NDArray[np.bool_] = words[1:] != words[:-1]
    return changes


def _sorted_places(words: Words, bits: int) -> tuple[Numbers, Words]:
    """Return places that sort words of so many bits, and the sorted words.

    Where there is room, by sorting words that carry their place: a third of the cost of numpy's argsort.
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
    """Give on rows that `place` sorts by unit, order and group."""
    rank, below = rank[place], below[place]
    starts = np.concatenate(([0], np.flatnonzero(_changes(rank) | _changes(below)) + 1))
    rows = np.diff(starts, append=len(rank))
    codes = None
    if value is not None and layout.low is not None:
        # Values may lie up to 2**63 apart: their distance is taken modulo 2**64, and is below 2**63 for any layout.
        codes = (value[place].view(np.uint64) - np.uint64(layout.low % (1 << 64))).view(np.int64)
        if layout.rising:
            codes = _risen(codes, rows, layout.value_bits)
    heads = below[starts]
    group = (heads & np.uint64((1 << layout.group_bits) - 1)).view(np.int64)
    order = heads >> np.uint64(layout.group_bits) if layout.order_bits else None
    collect(Block(rank[starts], order, group, rows, starts, codes))


def _risen(codes: Numbers, rows: Numbers, bits: int) -> Numbers:
    """Return the values of each run in rising order."""
    run = np.repeat(np.arange(len(rows), dtype=np.uint64), rows)
    if len(rows).bit_length() + bits > 64:
        return codes[np.lexsort((codes, run))]
    words = (run << np.uint64(bits)) | codes.view(np.uint64)
    words.sort()
    return (words & np.uint64((1 << bits) - 1)).view(np.int64)
