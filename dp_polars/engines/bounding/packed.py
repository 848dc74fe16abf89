"""Rows that fit one integer each: packed, sorted, and read off in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dp_polars.engines.bounding.runs import AnyWords, Caps, Runs, add_runs, starts_of
from dp_polars.engines.bounding.sums import Sums, run_sums

_BLOCK = 1 << 18  # rows of a block: what is made of them stays in the cache


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many bits each part of a packed row has, from the top; `low` is what packed values count from."""

    unit_bits: int
    order_bits: int
    group_bits: int
    value_bits: int = 0
    low: int | None = None

    @property
    def bits(self) -> int:
        """The bits of a whole row."""
        return self.unit_bits + self.order_bits + self.group_bits + self.value_bits

    @property
    def fits(self) -> bool:
        """Whether one word holds a row; values that are almost a word themselves go the wide way."""
        return self.bits <= 64 and self.value_bits <= 48


def add_words(words: AnyWords, layout: Layout, sums: Sums, caps: Caps) -> None:
    """Sort packed rows in place, cap them and add them up. All rows of a unit must be in one call."""
    words.sort()
    for start, end in _blocks(words, layout.bits - layout.unit_bits):
        add_runs(sums, _runs(words[start:end], layout), caps)


def _blocks(words: AnyWords, below_unit: int) -> Iterator[tuple[int, int]]:
    """Yield where blocks begin and end; a block never ends within a unit."""
    start = 0
    while start < len(words):
        end = min(start + _BLOCK, len(words))
        if end < len(words):
            last = words.dtype.type((int(words[end - 1]) >> below_unit << below_unit) | ((1 << below_unit) - 1))
            end += int(np.searchsorted(words[end:], last, side="right"))
        yield start, end
        start = end


def _runs(words: AnyWords, layout: Layout) -> Runs:
    heads = words >> words.dtype.type(layout.value_bits) if layout.value_bits else words
    starts = starts_of(heads)
    heads = heads[starts]
    total = None
    if layout.low is not None:
        values = (words & words.dtype.type((1 << layout.value_bits) - 1)).astype(np.int64)
        values += layout.low
        total = run_sums(values, starts, max(layout.low.bit_length(), layout.value_bits) + 1)
    group = (heads & words.dtype.type((1 << layout.group_bits) - 1)).astype(np.int64)
    above_unit = layout.order_bits + layout.group_bits
    unit = heads >> words.dtype.type(above_unit) if layout.unit_bits else np.zeros_like(heads)
    return Runs(unit, group, np.diff(starts, append=len(words)), total)
