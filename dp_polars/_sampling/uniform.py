"""Uniform integers, by rejection from the next power of two."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_polars._sampling.bits import BitSource

_WORDS: tuple[tuple[int, type[np.unsignedinteger[Any]]], ...] = (
    (8, np.uint8),
    (16, np.uint16),
    (32, np.uint32),
    (64, np.uint64),
)


def uniform_integer(bound: int, source: BitSource) -> int:
    """Return one integer uniform over 0, ..., bound - 1, for a bound of any size."""
    if bound < 1:
        raise ValueError("bound must be at least 1")
    bits = (bound - 1).bit_length()
    words = -(-bits // 64)
    while True:
        value = 0
        for word in source.words(words, np.uint64):
            value = value << 64 | int(word)
        value >>= 64 * words - bits
        if value < bound:
            return value


def uniform_integers(bound: int, size: int, source: BitSource) -> NDArray[np.uint64]:
    """Return `size` independent integers uniform over 0, ..., bound - 1, for a bound of at most 2**64."""
    if not 1 <= bound <= 1 << 64:
        raise ValueError("bound must lie between 1 and 2**64")
    bits = (bound - 1).bit_length()
    if bits == 0:
        return np.zeros(size, np.uint64)
    width, dtype = next((width, dtype) for width, dtype in _WORDS if bits <= width)
    out = np.empty(size, np.uint64)
    filled = 0
    while filled < size:
        # The acceptance rate is above one half; a power of two accepts everything.
        wanted = size - filled
        words = source.words(-(-wanted * (1 << bits) // bound) + 8 * (bound < 1 << bits), dtype)
        words = words >> dtype(width - bits)
        if bound < 1 << bits:
            words = words[words < dtype(bound)]
        kept = words[:wanted]
        out[filled : filled + len(kept)] = kept
        filled += len(kept)
    return out
