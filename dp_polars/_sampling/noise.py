"""Discrete Laplace and discrete Gaussian noise: by table for many samples, one by one for few."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_polars._sampling.bits import BitSource
from dp_polars._sampling.scalar import symmetric
from dp_polars._sampling.shapes import GaussianShape, LaplaceShape, Shape
from dp_polars._sampling.table import table_of

MAX_SCALE = 1 << 52
"""The largest scale of either distribution: a sample then misses 64 bits with probability below exp(-2000)."""

_FEW = 5  # building a table costs about as much as this many samples one by one


def discrete_laplace(scale: Fraction, size: int, source: BitSource) -> NDArray[Any]:
    """Return `size` samples with P(x) proportional to exp(-|x| / scale), exactly.

    The array holds int64, or Python integers in the astronomically rare case that one does not fit.
    """
    _check(scale)
    return _draw(LaplaceShape(scale), size, source)


def discrete_gaussian(variance: Fraction, size: int, source: BitSource) -> NDArray[Any]:
    """Return `size` samples with P(x) proportional to exp(-x**2 / (2 * variance)), exactly."""
    _check(variance, square=True)
    return _draw(GaussianShape(variance), size, source)


def _check(scale: Fraction, square: bool = False) -> None:
    if not 0 < scale <= (MAX_SCALE**2 if square else MAX_SCALE):
        raise ValueError("noise scale outside (0, 2**52]")


def _draw(shape: Shape, size: int, source: BitSource) -> NDArray[Any]:
    if size >= _FEW:
        return table_of(shape).draw(size, source)
    samples = [symmetric(shape, source) for _ in range(size)]
    fits = all(-(1 << 63) <= sample < 1 << 63 for sample in samples)
    return np.array(samples, dtype=np.int64 if fits else object)
