"""Rows that fit one integer each: packed, sorted, and read off in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dp_polars._engines.bounding.blocks import AnyWords, Block, Collect, starts_of

_BLOCK = 1 << 18  # rows of a block: what is made of them stays in the cache


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many bits each part of a packed row has, from the top; `low` is what packed values count from."""

    unit_bits: int
    order_bits: int
    group_bits: int
    value_bits: int = 0
    low: int | None = None
    rising: bool = False
    """Whether the values of a run must be given in rising order."""

    @property
    def bits(self) -> int:
        """The bits of a whole row."""
        return self.unit_bits + self.order_bits + self.group_bits + self.value_bits

    @property
    def fits(self) -> bool:
        """Whether one word holds a row; values that are almost a word themselves go the wide way."""
        return self.bits <= 64 and self.value_bits <= 48


def add_words(words: AnyWords, layout: Layout, collect: Collect) -> None:
    """Sort packed rows in place and give them on in blocks. All rows of a unit must be in one call."""
    words.sort()
    for start, end in _blocks(words, layout.bits - layout.unit_bits):
        collect(_block(words[start:end], layout))


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


def _block(words: AnyWords, layout: Layout) -> Block:
    kind = words.dtype.type
    heads = words >> kind(layout.value_bits) if layout.value_bits else words
    starts = starts_of(heads)
    heads = heads[starts]
    codes = None
    if layout.low is not None:
        codes = (words & kind((1 << layout.value_bits) - 1)).astype(np.int64)
    group = (heads & kind((1 << layout.group_bits) - 1)).astype(np.int64)
    order = heads >> kind(layout.group_bits) & kind((1 << layout.order_bits) - 1) if layout.order_bits else None
    below = layout.order_bits + layout.group_bits
    unit = heads >> kind(below) if layout.unit_bits else np.zeros_like(heads)
    return Block(unit, order, group, np.diff(starts, append=len(words)), starts, codes)
