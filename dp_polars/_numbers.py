"""Exact numbers for privacy parameters, and the bisection that searches for one.

The number that a user writes is the number that is charged and that scales the noise. A float becomes the decimal that
it prints as (`Fraction(repr(x))`), so ten releases of 0.1 cost exactly 1. Floats that come out of a formula are turned
back into exact numbers with a stated rounding direction: prices up, allowances down.

Nothing here touches data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

import numpy as np

from dp_polars.errors import InvalidParameterError

Number = int | float | Fraction | Decimal
"""The types in which a user may give a privacy parameter."""

Point = TypeVar("Point", int, float, Fraction)
"""The types of number that `boundary` and `first_doubling` search over."""

# A number outside these limits is a typing error: it gives no meaningful guarantee, or noise that exceeds 64 bits.
MAX_EPSILON = 10**6
MIN_EPSILON = Fraction(1, 10**9)
MIN_DELTA = Fraction(1, 10**100)
MAX_MAGNITUDE = 10**18
MIN_MAGNITUDE = Fraction(1, MAX_MAGNITUDE)
MOST_BITS = 4096


def exact(value: Number, name: str) -> Fraction:
    """Return `value` as the exact rational number that its decimal form denotes.

    >>> exact(0.1, "epsilon")
    Fraction(1, 10)
    """
    if type(value) is Fraction and max(_bits(value)) <= MOST_BITS:  # by far the most common
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction | Decimal):
        raise InvalidParameterError(
            f"{name} must be a number, got {type(value).__name__}. Pass for example {name}=0.5."
        )
    if (isinstance(value, Decimal) and value.is_snan()) or (
        isinstance(value, float | Decimal) and not math.isfinite(value)
    ):
        raise InvalidParameterError(f"{name} must be finite, got {value}.")
    if isinstance(value, int | Fraction) and max(_bits(value)) > MOST_BITS:
        raise InvalidParameterError(f"{name} has thousands of digits. Check its unit.")
    return Fraction(float.__repr__(value)) if isinstance(value, float) else Fraction(value)


def _bits(value: int | Fraction) -> tuple[int, int]:
    return value.numerator.bit_length(), value.denominator.bit_length()


def positive(value: Number, name: str) -> Fraction:
    """Return `value` exactly. Refuse zero, negative numbers, and absurdly large or small ones."""
    number = exact(value, name)
    if number <= 0:
        raise InvalidParameterError(f"{name} must be greater than 0, got {value}.")
    if not MIN_MAGNITUDE <= number <= MAX_MAGNITUDE:
        raise InvalidParameterError(f"{name}={value} lies outside 1e-18 to 1e18. Check its unit.")
    return number


def epsilon_of(value: Number, name: str = "epsilon") -> Fraction:
    """Return an epsilon exactly. Refuse values that nobody can mean as a privacy loss."""
    number = positive(value, name)
    if not MIN_EPSILON <= number <= MAX_EPSILON:
        raise InvalidParameterError(
            f"{name}={value} lies outside 1e-9 to 1e6. Smaller values drown every answer in noise, and larger ones "
            "protect nothing. Typical values lie between 0.01 and 10."
        )
    return number


def delta_of(value: Number, name: str = "delta", *, zero: bool = False) -> Fraction:
    """Return a delta exactly: a probability below 1 that is greater than 0, or 0 if `zero` is True."""
    number = exact(value, name)
    if number == 0 and zero:
        return number
    if not MIN_DELTA <= number < 1:
        low = "0 or between 1e-100 and 1" if zero else "between 1e-100 and 1"
        raise InvalidParameterError(
            f"{name} must be {low}, got {value}. It is the probability with which the guarantee may fail."
        )
    return number


def probability_of(value: Number, name: str) -> float:
    """Return a probability strictly between 0 and 1 as a float."""
    number = exact(value, name)
    if not 0 < number < 1 or not 0.0 < float(number) < 1.0:
        raise InvalidParameterError(f"{name} must lie strictly between 0 and 1, got {value}.")
    return float(number)


def confidence_of(value: Number) -> float:
    """Return a confidence. Beyond these limits floats no longer tell it from 0 or 1."""
    confidence = probability_of(value, "confidence")
    if not 1e-9 <= confidence <= 1 - 1e-12:
        raise InvalidParameterError(f"confidence must lie between 1e-9 and 1 - 1e-12, got {value}.")
    return confidence


def count_of(value: int, name: str, *, least: int = 1) -> int:
    """Return a whole number that is at least `least`."""
    if isinstance(value, np.integer):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidParameterError(f"{name} must be a whole number, got {type(value).__name__}.")
    if value < least:
        raise InvalidParameterError(f"{name} must be at least {least}, got {value}.")
    return value


def flag_of(value: bool, name: str) -> bool:
    """Return a flag. Refuse anything but True and False, such as the text "False", which would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidParameterError(f"{name} must be True or False, got {type(value).__name__}.")
    return bool(value)


def rounded_down(value: float, ulps: int = 8) -> Fraction:
    """Return an exact number that is certainly not above the real number that `value` approximates."""
    for _ in range(ulps):
        value = math.nextafter(value, 0.0)
    return Fraction(value)


def boundary(
    holds: Callable[[Point], bool],
    *,
    inside: Point,
    outside: Point,
    tolerance: float = 0.0,
    geometric: bool = False,
) -> Point:
    """Return the point nearest to `outside` at which a monotone condition still holds, found by bisection.

    The condition must hold at `inside`, fail at `outside`, and change once in between. Neither end is evaluated.
    The result is `inside` itself or a point at which `holds` returned True, never a point where it failed. So write
    the condition so that it holds on the side that is safe for privacy (enough noise, a cost that fits): an error of
    the search then costs accuracy and never privacy. This is true even if rounding makes the condition change more
    than once. `inside` may lie on either side of `outside`: below it the result is the largest point that holds,
    above it the smallest.

    Parameters
    ----------
    holds
        The condition.
    inside, outside
        Two ints, floats or Fractions. Ints are searched until the two are neighbours.
    tolerance
        For floats and Fractions: stop once the points differ by at most this part of the larger one. With 0, floats
        are searched until they are neighbours; Fractions need a positive tolerance.
    geometric
        Halve the ratio of two positive floats instead of their difference, for ranges over many powers of ten.

    Examples
    --------
    >>> boundary(lambda n: n * n <= 50, inside=0, outside=50)
    7
    >>> round(boundary(lambda sigma: 1 / sigma <= 0.5, inside=16.0, outside=1.0, tolerance=1e-12), 9)
    2.0
    """
    while abs(outside - inside) > tolerance * max(abs(inside), abs(outside)):
        middle = _middle(inside, outside, geometric=geometric)
        if not min(inside, outside) < middle < max(inside, outside):
            break
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def _middle(one: Point, other: Point, *, geometric: bool) -> Point:
    if isinstance(one, int) and isinstance(other, int):
        return (one + other) // 2
    if geometric and not isinstance(one, Fraction):
        return math.sqrt(one * other)
    return (one + other) / 2


def first_doubling(holds: Callable[[Point], bool], start: Point) -> Point:
    """Return the first of `start`, 2 * `start`, 4 * `start`, ... at which a condition no longer holds.

    It brackets the search of `boundary` where no outer end is known. A condition that always holds never returns, so
    give it a limit.

    Examples
    --------
    >>> first_doubling(lambda n: n * n <= 50, 1)
    8
    """
    while holds(start):
        start = start * 2
    return start
