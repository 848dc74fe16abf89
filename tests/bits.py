"""Deterministic bit sources, for tests only: the package has no way to choose one."""

from __future__ import annotations

import numpy as np


class SeededBits:
    """Reproducible uniform words."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(seed))
        self.served = 0

    def words(self, count, dtype):
        self.served += count
        return self._generator.integers(0, 1 << np.dtype(dtype).itemsize * 8, count, dtype=dtype)


class ScriptedBits:
    """Serves the given (dtype, values) requests first, in order, then seeded words."""

    def __init__(self, *script, seed: int = 0) -> None:
        self.script = list(script)
        self._rest = SeededBits(seed)

    def words(self, count, dtype):
        if not self.script:
            return self._rest.words(count, dtype)
        values = np.asarray(self.script.pop(0), dtype=dtype)
        assert len(values) == count, "the script does not fit what the sampler asked for"
        return values
