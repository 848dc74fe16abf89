"""Where random bits come from: an object handed to the samplers.

The package holds one source, the operating system's. There is no seed, no switch and no second implementation here;
the deterministic source lives with the tests.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class BitSource(Protocol):
    """Independent uniform random words on request."""

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
        """Return `count` independent words, each uniform over all values of the unsigned `dtype`."""
        ...


class SystemBits:
    """The operating system's cryptographic randomness."""

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
        """Return `count` independent uniform words of the unsigned `dtype`."""
        return np.frombuffer(os.urandom(count * np.dtype(dtype).itemsize), dtype=dtype)


SYSTEM_BITS: BitSource = SystemBits()
