"""The power-of-two grid that values are put on: fixed by their bounds alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dp_polars.errors import InvalidParameterError
from dp_polars.planning.query import Value

_FLOAT_BITS = 20  # steps, as a power of two, from 0 to the larger bound: far finer than any noise
_INTEGER_BITS = 40  # integers within this are exact
_MOST_BITS = 60  # of the most that one unit can add to a group


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Values are (x - offset) / 2**exponent, rounded, within [low, high] steps."""

    exponent: int
    offset: Fraction
    low: int
    high: int

    @property
    def step(self) -> Fraction:
        """The length of a step."""
        return Fraction(2) ** self.exponent

    @property
    def largest(self) -> int:
        """The most steps from 0."""
        return max(abs(self.low), abs(self.high))


COUNTS = Grid(exponent=0, offset=Fraction(0), low=0, high=1)


def grid_of(value: Value, max_rows: int, *, centred: bool, bits: int | None = None) -> Grid:
    """Return the grid of a value: from the middle of its bounds if `centred`, of at most 2**bits steps on each side."""
    centre = (value.lower + value.upper) / 2 if centred else Fraction(0)
    exponent = _exponent(value, centre, max_rows, bits)
    step = Fraction(2) ** exponent
    offset = round(centre / step) * step
    if value.integers:
        offset = Fraction(math.floor(offset / step)) * step
    low, high = round((value.lower - offset) / step), round((value.upper - offset) / step)
    if low == high:
        raise InvalidParameterError("Within these bounds every value counts as the same; widen bounds=.")
    return Grid(exponent=exponent, offset=offset, low=low, high=high)


def _exponent(value: Value, centre: Fraction, max_rows: int, wanted: int | None) -> int:
    largest = max(abs(value.lower - centre), abs(value.upper - centre))
    magnitude = math.frexp(largest)[1]
    most = max_rows.bit_length()
    # From the middle and from 0: a sum may be counted from either.
    fits = math.frexp(max(abs(value.lower), abs(value.upper)))[1] + most - _MOST_BITS
    bits = _INTEGER_BITS if value.integers else _FLOAT_BITS
    if wanted is not None:
        bits = min(bits, wanted, (_MOST_BITS - most) // 2)
    return max(magnitude - bits, fits, 0 if value.integers else -1074)
