"""Floats on a power-of-two grid, and sums that saturate instead of wrapping.

What one unit can change: a float within `d` of another lies, after rounding both to multiples of `step`, within
`d / step + 1` grid points of it. So over `count` floats the sensitivity in grid points is at most
`sensitivity / step + count` in the first norm and `sensitivity / step + sqrt(count)` in the second. The step depends
on public numbers alone (sensitivity, noise, count), never on the values.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FINENESS = 16  # grid points, as a power of two, per unit of the finer of: the noise, the sensitivity's share
_COARSEST = 50  # the noise may span at most this power of two grid points
_INT64 = np.iinfo(np.int64)


def grid_exponent(sensitivity: Fraction, noise_scale: Fraction, count: int) -> int:
    """Return e such that 2**e is a step that costs next to nothing in noise and keeps the noise within 64 bits."""
    wanted = _log2(min(sensitivity / max(count, 1), noise_scale)) - _FINENESS
    return max(wanted, _log2(noise_scale) + 1 - _COARSEST)


def _log2(number: Fraction) -> int:
    return math.frexp(number)[1] - 1


def in_steps(length: Fraction, exponent: int) -> Fraction:
    """Return a length in grid points of 2**exponent."""
    return length / Fraction(2) ** exponent


def sqrt_above(number: int) -> Fraction:
    """Return a rational number at least as large as the square root of a whole number, and very near it."""
    root = math.isqrt(number << 64)
    return Fraction(root + (root * root < number << 64), 1 << 32)


def to_grid(floats: NDArray[np.float64], exponent: int) -> NDArray[Any]:
    """Return the nearest grid points as whole numbers (Python integers where 64 bits do not hold them)."""
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(floats, -exponent)
    if np.all(np.abs(scaled) < 2.0**62):
        return np.rint(scaled).astype(np.int64)
    step = Fraction(2) ** exponent
    return np.array([round(Fraction(x) / step) for x in floats.tolist()], dtype=object)


def from_grid(points: NDArray[Any], exponent: int) -> NDArray[np.float64]:
    """Return grid points as the nearest floats."""
    if points.dtype == object:
        step = Fraction(2) ** exponent
        return np.array([_nearest_float(int(point) * step) for point in points], dtype=np.float64)
    return np.ldexp(points.astype(np.float64), exponent)


def _nearest_float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def add_saturating(values: NDArray[Any], noise: NDArray[Any], *, bounded: bool = True) -> NDArray[Any]:
    """Return values + noise; what does not fit int64 becomes its nearest limit (post-processing), never wraps.

    With `bounded=False` no sum is cut, and the array holds Python integers where one does not fit.
    """
    if values.dtype != np.int64 or noise.dtype != np.int64:
        sums: NDArray[Any] = values.astype(object) + noise.astype(object)
        return np.clip(sums, _INT64.min, _INT64.max).astype(np.int64) if bounded else sums
    total: NDArray[Any] = values + noise
    # Overflow shows as a sum whose sign differs from that of both terms.
    wrapped = np.flatnonzero(((values ^ total) & (noise ^ total)) < 0)
    if bounded:
        total[wrapped] = np.where(noise[wrapped] > 0, _INT64.max, _INT64.min)
    elif len(wrapped):
        total = values.astype(object) + noise.astype(object)
    return total
