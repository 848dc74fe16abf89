"""The power-of-two grid that values are put on: fixed by their bounds alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dp_polars.errors import InvalidParameterError
from dp_polars.planning.query import Query, Value

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


COUNTS = Grid(exponent=0, offset=Fraction(0), low=0, high=1)


def grid_of(query: Query, max_rows: int) -> Grid:
    """Return the grid of a query's values; means are taken about the middle of the bounds."""
    value = query.value
    if value is None:
        return COUNTS
    centre = (value.lower + value.upper) / 2 if query.aggregate == "mean" else Fraction(0)
    exponent = _exponent(value, centre, max_rows)
    step = Fraction(2) ** exponent
    offset = round(centre / step) * step
    if value.integers:
        offset = Fraction(math.floor(offset))
    low, high = round((value.lower - offset) / step), round((value.upper - offset) / step)
    if low == high == 0:
        raise InvalidParameterError("Within these bounds every whole number counts as 0; widen bounds=.")
    return Grid(exponent=exponent, offset=offset, low=low, high=high)


def _exponent(value: Value, centre: Fraction, max_rows: int) -> int:
    largest = max(abs(value.lower - centre), abs(value.upper - centre))
    magnitude = math.frexp(largest)[1]
    fits = magnitude + max_rows.bit_length() - _MOST_BITS
    if value.integers:
        return max(0, magnitude - _INTEGER_BITS, fits)
    return max(magnitude - _FLOAT_BITS, fits)
