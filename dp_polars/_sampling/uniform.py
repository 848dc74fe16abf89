"""The source of random bits, and uniform integers drawn from it.

The library has a single source, the operating system's. It has no seed, no switch and no second implementation; the
deterministic source that tests use lives with the tests.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

_WORDS: tuple[tuple[int, type[np.unsignedinteger[Any]]], ...] = (
    (8, np.uint8),
    (16, np.uint16),
    (32, np.uint32),
    (64, np.uint64),
)


class BitSource(Protocol):
    """A source of independent, uniformly random words."""

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
        """Return `count` independent words, each uniform over all values of the unsigned `dtype`."""
        ...


class SystemBits:
    """The operating system's cryptographic random number generator."""

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
        """Return `count` independent words, each uniform over all values of the unsigned `dtype`."""
        return np.frombuffer(os.urandom(count * np.dtype(dtype).itemsize), dtype=dtype)


SYSTEM_BITS: BitSource = SystemBits()


def uniform_integer(bound: int, source: BitSource) -> int:
    """Return one integer uniform over 0, ..., bound - 1, by rejection; the bound may be of any size."""
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
        # More than half of the words are accepted, and all of them if the bound is a power of two.
        wanted = size - filled
        words = source.words(-(-wanted * (1 << bits) // bound) + 8 * (bound < 1 << bits), dtype)
        words = words >> dtype(width - bits)
        if bound < 1 << bits:
            words = words[words < dtype(bound)]
        kept = words[:wanted]
        out[filled : filled + len(kept)] = kept
        filled += len(kept)
    return out
