"""Arithmetic that errs on the safe side: what a float loses is added back to every privacy loss.

Never decides about privacy and never knows a mechanism; it only rounds, validates and avoids
cancellation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dp_polars._numbers import MAX_MAGNITUDE, Number, exact
from dp_polars.errors import InvalidParameterError

SLACK = 1e-12
"""Relative outward rounding of results: far above what the formulas lose, some 1e-14."""

UNIT_ROUNDOFF = 2.0**-53
"""Relative error of one float operation (IEEE 754, round to nearest)."""


def upward(value: float) -> float:
    """Return a nonnegative bound enlarged by the slack."""
    return value * (1.0 + SLACK)


def real(value: Number, name: str) -> float:
    """Return a number of any sign as a float, refusing absurdly large ones."""
    number = exact(value, name)
    if abs(number) > MAX_MAGNITUDE:
        raise InvalidParameterError(f"{name}={value} exceeds 1e18; check its unit.")
    return float(number)


def nonnegative(value: Number, name: str) -> float:
    """Return a number that is 0 or more as a float."""
    number = real(value, name)
    if number < 0.0:
        raise InvalidParameterError(f"{name} must not be negative, got {value}.")
    return number


def float_not_below(value: Fraction) -> float:
    """Return the least float that is written as no less than `value`: 3·0.1 gives 0.3."""
    result = float(value)
    return result if Fraction(repr(result)) >= value else math.nextafter(result, math.inf)


def exponential_remainder(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return e^x − 1 − x, which is never negative, without cancellation near 0."""
    small = np.abs(x) < 0.5
    safe = np.where(small, x, 0.0)
    # Horner's scheme for Σ_{n=2}^{17} xⁿ/n!: the next term is below 2^−53 of the sum for |x| < 1/2.
    series = np.ones_like(safe)
    for n in range(17, 2, -1):
        series = 1.0 + series * safe / n
    return np.where(small, 0.5 * safe * safe * series, np.expm1(np.where(small, 0.0, x)) - x)


def increasing_root(function: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    """Return about where an increasing function is 0: Newton's steps, or bisection outside.

    `function` returns its value and derivative. Only for places where every point near the root is
    a valid answer (an order of a Renyi divergence), because either side of the root may be
    returned.
    """
    point = high
    for _ in range(200):
        value, slope = function(point)
        if value > 0.0:
            high = point
        else:
            low = point
        step = value / slope if slope > 0.0 else math.inf
        following = point - step
        if not low <= following <= high:
            following = 0.5 * (low + high)
        if abs(following - point) <= 1e-10:
            return following
        point = following
    return point


def decreasing_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the upper end of a tight bracket of the zero of a decreasing function.

    `function(low) > 0 >= function(high)` must hold; the value returned is never one where the
    function is positive.
    """
    at_low, at_high = function(low), function(high)
    side = 0
    for iteration in range(200):
        width = high - low
        if width <= 1e-13 * max(abs(high), 1e-300):
            break
        point = low + width * at_low / (at_low - at_high) if iteration % 4 else 0.5 * (low + high)
        # A point glued to one end would not shrink the bracket any more.
        point = min(max(point, low + 1e-3 * width), high - 1e-3 * width)
        if not low < point < high:  # no float lies between
            break
        value = function(point)
        if value > 0.0:
            low, at_low = point, value
            at_high = 0.5 * at_high if side == 1 else at_high
            side = 1
        else:
            high, at_high = point, value
            at_low = 0.5 * at_low if side == -1 else at_low
            side = -1
    return high
