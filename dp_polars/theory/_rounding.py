"""Rounding to the safe side, and numbers as floats.

Whatever a float loses is added back to every privacy loss. Nothing here knows a mechanism or decides about privacy: the
functions only round, check their input and avoid cancellation.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dp_polars._numbers import MAX_MAGNITUDE, Number, exact
from dp_polars.errors import InvalidParameterError

SLACK = 1e-12
"""Relative amount by which results are enlarged. The formulas lose about 1e-14, far less than this."""

UNIT_ROUNDOFF = 2.0**-53
"""Relative error of one float operation (IEEE 754, round to nearest)."""


def upward(value: float) -> float:
    """Return a nonnegative bound, enlarged by the slack."""
    return value * (1.0 + SLACK)


def real(value: Number, name: str) -> float:
    """Return a number of any sign as a float, and refuse absurdly large ones."""
    number = exact(value, name)
    if abs(number) > MAX_MAGNITUDE:
        raise InvalidParameterError(f"{name}={value} exceeds 1e18. Check its unit.")
    return float(number)


def nonnegative(value: Number, name: str) -> float:
    """Return a number that is at least 0 as a float."""
    number = real(value, name)
    if number < 0.0:
        raise InvalidParameterError(f"{name} must not be negative, got {value}.")
    return number


def float_not_below(value: Fraction) -> float:
    """Return the least float whose printed decimal is at least `value`: 3·0.1 gives 0.3."""
    result = float(value)
    return result if Fraction(repr(result)) >= value else math.nextafter(result, math.inf)


def exponential_remainder(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return e^x − 1 − x, which is never negative, without cancellation near 0."""
    small = np.abs(x) < 0.5
    safe = np.where(small, x, 0.0)
    # Horner's scheme for Σ_{n=2}^{17} xⁿ/n!. For |x| < 1/2 the next term is below 2^−53 of the sum.
    series = np.ones_like(safe)
    for n in range(17, 2, -1):
        series = 1.0 + series * safe / n
    return np.where(small, 0.5 * safe * safe * series, np.expm1(np.where(small, 0.0, x)) - x)
