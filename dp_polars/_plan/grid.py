"""Power-of-two grids that values are rounded to. The bounds of a value and the caps decide its grid, never the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dp_polars._aggregates.values import Value
from dp_polars._engines.request import MOST_INNER
from dp_polars.errors import InvalidParameterError

_FLOAT_BITS = 20  # a float has at most 2**20 steps on each side of its centre, far finer than any noise
_INTEGER_BITS = 40  # integers within 2**40 of their centre are exact
_MOST_BITS = 60  # what one unit adds to a group fits this many bits
_SCALED_BITS = 28  # bits of one row in the steps of a sum that may be scaled down: 2**34 such rows fit 62 bits
_MOST_FINE = 14  # the step of a row is divided into at most 2**14 steps, which is fine enough
_MOVED_BITS = 40  # bits of what all protected units change in all groups: the noise may be 2**11 times as large
_TERM_BITS = 62  # bits of what one unit adds, in the steps in which it is scaled down
_LEAST_EXPONENT = -1074  # the smallest exponent of a float


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A value x becomes (x - offset) / 2**exponent, rounded to an integer and clipped to [low, high]."""

    exponent: int
    offset: Fraction
    low: int
    high: int

    @property
    def step(self) -> Fraction:
        """The length of one step."""
        return Fraction(2) ** self.exponent

    @property
    def largest(self) -> int:
        """The largest absolute number of steps."""
        return max(abs(self.low), abs(self.high))


COUNTS = Grid(exponent=0, offset=Fraction(0), low=0, high=1)


def grid_of(value: Value, max_rows: int, *, centred: bool, bits: int | None = None) -> Grid:
    """Return the grid of a value, from the middle of its bounds if `centred`, with up to 2**bits steps on each side."""
    centre = (value.lower + value.upper) / 2 if centred else Fraction(0)
    exponent = _exponent(value, centre, max_rows, bits)
    step = Fraction(2) ** exponent
    offset = round(centre / step) * step
    if value.integers:
        offset = Fraction(math.floor(offset / step)) * step
    low, high = round((value.lower - offset) / step), round((value.upper - offset) / step)
    if low == high:
        raise InvalidParameterError(
            "All values within these bounds would be rounded to the same number. Widen bounds=."
        )
    return Grid(exponent=exponent, offset=offset, low=low, high=high)


def _exponent(value: Value, centre: Fraction, max_rows: int, wanted: int | None) -> int:
    largest = max(abs(value.lower - centre), abs(value.upper - centre))
    magnitude = math.frexp(largest)[1]
    most = max_rows.bit_length()
    # A sum may be measured from the middle or from 0, and has to fit in both cases.
    fits = math.frexp(max(abs(value.lower), abs(value.upper)))[1] + most - _MOST_BITS
    bits = _INTEGER_BITS if value.integers else _FLOAT_BITS
    if wanted is not None:
        bits = min(bits, wanted, (_MOST_BITS - most) // 2)
    return max(magnitude - bits, fits, 0 if value.integers else _LEAST_EXPONENT)


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The resolution of a sum whose units may be scaled down: 2**-inner steps of a row per unit, 2**-fine in the sum.

    A unit with more rows than its cap adds only a fraction of its sum. The grid of a single row is too coarse for that:
    if 2 of a unit's 20 rows are True and 5 may count, the unit adds a half. So what each unit adds is rounded to
    2**-inner steps, and their sum is rounded once to 2**-fine steps, which is where noise is added. An answer that is a
    whole number is rounded once more when it is shown. Rounding is to the nearest, so it moves what a unit adds by at
    most 2**-(inner + 1) steps of a row, and the sum of a group by at most 2**-(fine + 1).

    What one unit can change: rounding keeps what a unit adds with rows in [low, high] within
    max_rows * [low, high] * 2**fine. `scaled` and `shortened` in `_engines.bounding.sums` say why. For a basis, see
    `slack`.
    """

    capped: bool = False
    """Whether a cap may bind and scale units down."""
    fine: int = 0
    inner: int = 0

    def of(self, grid: Grid) -> Grid:
        """Return the grid of a sum of values that lie on `grid`."""
        return Grid(
            exponent=grid.exponent - self.fine,
            offset=grid.offset,
            low=grid.low << self.fine,
            high=grid.high << self.fine,
        )

    def slack(self, sums: int) -> int:
        """Return how much more a unit can add to several sums together because each of them is rounded.

        Let a unit add c_1, ..., c_m to the sums, none of them negative. They add up to at most M 2**inner steps before
        they are rounded, and to at most m / 2 more afterwards. Each then moves its sum by at most
        c_i 2**(fine - inner), rounded up. So together they move the sums by a whole number below M 2**fine + m, which
        is at most m - 1 more than M 2**fine.
        """
        return sums - 1 if self.capped else 0


def scaling_of(largest: int, max_rows: int | None, *, groups: int, exponent: int = 0) -> Scaling:
    """Return the resolution of a sum of numbers up to `largest`, if `max_rows` of them count for each unit.

    A sum gets up to 14 more bits than a row. It gets fewer if the numbers are large, or if protected units change so
    many `groups` that the noise, which is always larger than the total change, needs the bits. What one unit adds gets
    up to 32 more bits, as long as it fits 62 bits. If `max_rows` is None, no cap can bind and nothing is scaled.
    """
    if max_rows is None:
        return Scaling()
    together = largest * max_rows
    room = max(0, _TERM_BITS - together.bit_length())
    wide = min(_SCALED_BITS - largest.bit_length(), _MOVED_BITS - (together * groups).bit_length())
    fine = max(0, min(_MOST_FINE, wide, room, exponent - _LEAST_EXPONENT))
    return Scaling(capped=True, fine=fine, inner=min(MOST_INNER, room))
