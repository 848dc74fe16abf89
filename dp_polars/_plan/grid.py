"""The power-of-two grid that values are put on: fixed by their bounds alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dp_polars._aggregates.values import Value
from dp_polars._engines.request import MOST_INNER
from dp_polars.errors import InvalidParameterError

_FLOAT_BITS = 20  # steps, as a power of two, from 0 to the larger bound: far finer than any noise
_INTEGER_BITS = 40  # integers within this are exact
_MOST_BITS = 60  # of the most that one unit can add to a group
_SCALED_BITS = 28  # of a row's number in the steps of a sum that may be scaled down: 2**34 rows of them fit 62 bits
_MOST_FINE = 14  # 10**4 steps in one of a row are enough
_MOVED_BITS = 40  # of what all protected units change in all groups, in those steps: its noise may be 2**11 times that
_TERM_BITS = 62  # of what one unit adds, in the steps in which it is scaled down
_LEAST_EXPONENT = -1074  # of a float


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
    return max(magnitude - bits, fits, 0 if value.integers else _LEAST_EXPONENT)


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """How fine a sum is whose rows may be scaled down: its steps are 2**-fine of a row's, inside 2**-inner.

    A unit with more rows than its cap adds a fraction of its sum. On a row's own grid that would lose most of it: 2 of
    20 rows are True and 5 may count, so it adds a half. So each unit's part is rounded to 2**-inner steps, the sum of
    them once to 2**-fine, which noise is on, and an answer of whole numbers once more when it is shown. Rounding has no
    direction; it moves what a unit adds by at most 2**-(inner + 1) steps of a row and a group's sum by 2**-(fine + 1).

    What one unit can change: `scaled` and `shortened` in `engines.bounding` have the two lines that each rounding keeps
    a sum of rows in [low, high] within max_rows * [low, high] * 2**fine. For a basis see `slack`.
    """

    capped: bool = False
    """Whether a cap may bind."""
    fine: int = 0
    inner: int = 0

    def of(self, grid: Grid) -> Grid:
        """Return the grid of a sum of what lies on a grid."""
        return Grid(
            exponent=grid.exponent - self.fine,
            offset=grid.offset,
            low=grid.low << self.fine,
            high=grid.high << self.fine,
        )

    def slack(self, sums: int) -> int:
        """Return how far together sums may pass what a unit adds to them together, because each is rounded.

        Numbers c_1, ..., c_m of a unit, none negative, add up to at most M 2**inner steps before they are rounded, and
        to at most m / 2 more after. Each then moves its sum by at most c_i 2**(fine - inner), rounded up. Whole numbers
        below M 2**fine + m in all are at most m - 1 too many.
        """
        return sums - 1 if self.capped else 0


def scaling_of(largest: int, max_rows: int | None, *, groups: int, exponent: int = 0) -> Scaling:
    """Return how fine a sum of numbers up to `largest` is, of which `max_rows` of a unit count; None: no cap binds.

    A row's number gets up to 14 bits, fewer where it has many itself or where protected units change so many `groups`
    that the noise, always wider than the change of all, needs the room; and up to 32 bits inside, as far as what a unit
    adds fits 62 bits. None where no cap can bind: then no row is scaled.
    """
    if max_rows is None:
        return Scaling()
    together = largest * max_rows
    room = max(0, _TERM_BITS - together.bit_length())
    wide = min(_SCALED_BITS - largest.bit_length(), _MOVED_BITS - (together * groups).bit_length())
    fine = max(0, min(_MOST_FINE, wide, room, exponent - _LEAST_EXPONENT))
    return Scaling(capped=True, fine=fine, inner=min(MOST_INNER, room))
