"""Rows that need more bits than one integer has: in parts by unit, whose units are numbered before packing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dp_polars.engines.bounding.packed import Layout, add_words
from dp_polars.engines.bounding.runs import Caps, Runs, Words, add_runs
from dp_polars.engines.bounding.store import Columns
from dp_polars.engines.bounding.sums import Numbers, Sums, run_sums


def add_wide(columns: Columns, layout: Layout, sums: Sums, caps: Caps) -> None:
    """Cap rows of (unit, its second word, order and group, value) and add them up. All rows of a unit in one call."""
    unit, more, below, value = columns
    place, rank = _ranked(unit, more)
    below = below[place].astype(np.uint64, copy=False)
    value = None if value is None else value[place]
    full = replace(layout, unit_bits=int(rank[-1]).bit_length())
    keyed = replace(full, value_bits=0, low=None)
    if keyed.bits > 64:
        _add_in_order(np.lexsort((below, rank)), rank, below, value, keyed, sums, caps)
        return
    words = below | (rank << np.uint64(keyed.order_bits + keyed.group_bits)) if keyed.unit_bits else below
    if value is None:
        add_words(words, keyed, sums, caps)
    elif full.fits and full.low is not None:
        words = (words << np.uint64(full.value_bits)) | (value - full.low).view(np.uint64)
        add_words(words, full, sums, caps)
    else:
        _add_in_order(_sorted_places(words, keyed.bits)[0], rank, below, value, keyed, sums, caps)


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
    place: Numbers, rank: Words, below: Words, value: Numbers | None, keyed: Layout, sums: Sums, caps: Caps
) -> None:
    """Add rows that `place` sorts by unit, order and group."""
    rank, below = rank[place], below[place]
    starts = np.concatenate(([0], np.flatnonzero(_changes(rank) | _changes(below)) + 1))
    total = None if value is None else run_sums(value[place], starts, 63)
    group = (below[starts] & np.uint64((1 << keyed.group_bits) - 1)).view(np.int64)
    add_runs(sums, Runs(rank[starts], group, np.diff(starts, append=len(rank)), total), caps)
