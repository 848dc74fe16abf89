"""Floats on a power-of-two grid, and sums that saturate instead of wrapping around.

Two floats within a distance `d` of each other lie within `d / step + 1` grid points of each other after both are
rounded to multiples of `step`. Over `count` floats, the sensitivity in grid points is therefore at most
`sensitivity / step + count` in the L1 norm and `sensitivity / step + sqrt(count)` in the L2 norm. The step depends on
public numbers only (sensitivity, noise, count), never on the values. Mironov 2012 shows why noise on floats without a
grid leaks.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FINENESS = 16  # log2 of the grid points within the noise scale or one value's share of the sensitivity, if smaller
_COARSEST = 50  # log2 of the most grid points that the noise scale may span
_INT64 = np.iinfo(np.int64)


def grid_exponent(sensitivity: Fraction, noise_scale: Fraction, count: int) -> int:
    """Return e such that the step 2**e costs next to nothing in noise and keeps the noise within 64 bits."""
    wanted = _log2(min(sensitivity / max(count, 1), noise_scale)) - _FINENESS
    return max(wanted, _log2(noise_scale) + 1 - _COARSEST)


def _log2(number: Fraction) -> int:
    return math.frexp(number)[1] - 1


def in_steps(length: Fraction, exponent: int) -> Fraction:
    """Return a length in grid points of 2**exponent."""
    return length / Fraction(2) ** exponent


def sqrt_above(number: int) -> Fraction:
    """Return a rational number slightly above the square root of a whole number, or equal to it."""
    root = math.isqrt(number << 64)
    return Fraction(root + (root * root < number << 64), 1 << 32)


def to_grid(floats: NDArray[np.float64], exponent: int) -> NDArray[Any]:
    """Return the nearest grid points as whole numbers, which are Python integers if 64 bits are too few."""
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(floats, -exponent)
    if np.all(np.abs(scaled) < 2.0**62):
        return np.rint(scaled).astype(np.int64)
    step = Fraction(2) ** exponent
    return np.array([round(Fraction(x) / step) for x in floats.tolist()], dtype=object)


def from_grid(points: NDArray[Any], exponent: int) -> NDArray[np.float64]:
    """Return the floats nearest to the grid points."""
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
    """Return values + noise, where sums beyond int64 become its nearest limit instead of wrapping around.

    Saturating is post-processing. With `bounded=False` no sum is cut, and the array holds Python integers if one of
    them does not fit.
    """
    if values.dtype != np.int64 or noise.dtype != np.int64:
        sums: NDArray[Any] = values.astype(object) + noise.astype(object)
        return np.clip(sums, _INT64.min, _INT64.max).astype(np.int64) if bounded else sums
    total: NDArray[Any] = values + noise
    # A sum has overflowed if its sign differs from that of both terms.
    wrapped = np.flatnonzero(((values ^ total) & (noise ^ total)) < 0)
    if bounded:
        total[wrapped] = np.where(noise[wrapped] > 0, _INT64.max, _INT64.min)
    elif len(wrapped):
        total = values.astype(object) + noise.astype(object)
    return total
