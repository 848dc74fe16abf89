"""How far the rank of a chosen value may be from the wanted one. All of it follows from the plan.

**One choice.** Of n rows after caps and bounds, let B lie below a candidate x and T have its value. The rank of x is
then every number from B to B + T. The exponential mechanism chooses x with probability proportional to exp(-r d(x)),
where d(x) is the distance of the wanted rank from the ranks of x, in rows, and r = epsilon / (2 max_rows max(q, 1 - q))
for the quantile q. At least one candidate, a value of the data or any point if there is none, has the distance 0. At
most N = points - 1 candidates are further away than t. Together they weigh at most N e**(-r t), and all others at
least 1:

    P(d(x) > t) <= N e**(-r t) / (1 + N e**(-r t)),

which is at most `miss` for t = ln(N (1 - miss) / miss) / r. Nothing about the data enters. The smallest value is chosen
by |B - min(A, inside)|, where A rows lie above x, with r = epsilon / (2 max_rows). Again some candidate has the
distance 0. Except with probability `miss`, B - min(A + T, inside) is at most t, so at most inside + t rows lie
below x. The same holds for the largest value.

**Several quantiles** are chosen in a descent (see `_release.quantiles`): each among the rows between two choices before
it, at the same fraction of these rows. If the rows between the ranks b and c are left, the wanted rank is
b + f (c - b), so its error is at most the larger error of b and c. But a choice splits the rows that have its value in
halves, and their number is unknown. If the ranks of x reach from B to B + T, the split is at
S = B + ceil(T / 2). With B at least b, B + T at most c, and B and B + T on either side of g, up to t, where g is the
wanted rank:

    (b + g - t) / 2 <= S <= (g + t + c + 1) / 2.

So the limits of a later quantile are a fraction of all rows and a number of rows, which `_Line` adds up. They are wide
because of ties, not because of noise: for the upper quartile of [0.25, 0.5, 0.75], from 0.625 to 0.875 and some rows.
Every answer depends on the choices above it and its own, so each of them gets an equal part of the miss.

**A value interval** has two more choices, the ends. `end_rows` extra rows at the lower bound are added to the data
before the lower end is chosen. They are public, so they change neither the sensitivity nor the price. With K of them,
the wanted rank of the quantile q moves down by s = (1 - q) K rows of the data, and if fewer rows lie there, the lower
bound itself has the distance 0. If a candidate x is larger than the smallest quantile of the data (the smallest value
v that at least q n rows do not exceed), at least q n rows lie below x. So its distance is at least s, and the chance to
choose such an x is at most `miss` if s = ln(N (1 - miss) / miss) / r. One more row makes this true of the value before
that one, too, so the interval covers the quantile by whatever rule it is interpolated between neighbouring values.
The same holds for the upper end. Both ends hold except with probability at most the sum of the misses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dp_polars._plan.statistics import Statistic

_UP = 1 + 1e-9  # more than the rounding errors of floats here
_MOST_EXTRA = 1 << 44
"""The most rows that are added for the end of an interval so that their scores fit. Ends further away are the bounds.

Quantiles have at most four digits, so a row weighs at most 10**4 < 2**14 in a score, which must stay below 2**60.
"""


@dataclass(frozen=True)
class _Line:
    """A number of rows that depends on the number n of all rows: `part` * n + `rows`."""

    part: Fraction
    rows: float = 0.0

    def __add__(self, other: _Line) -> _Line:
        return _Line(self.part + other.part, self.rows + other.rows)

    def times(self, factor: Fraction) -> _Line:
        return _Line(self.part * factor, self.rows * float(factor))


_SplitRanks = tuple[_Line, _Line]
"""The smallest and the largest rank at which rows were split."""

_ONE_ROW = _Line(Fraction(0), 1.0)  # if the number of rows is odd, one more lies below a split than above it


@dataclass(frozen=True)
class RankRange:
    """Limits of a rank among n rows: from low * n - below to high * n + above."""

    low: Fraction
    below: float
    high: Fraction
    above: float


def distance_within(statistic: Statistic, epsilon: Fraction, quantile: Fraction, miss: float) -> float:
    """Return a bound on the rank error of one choice, in rows, that fails with probability at most `miss`."""
    weight = Fraction(1) if quantile in (0, 1) else max(quantile, 1 - quantile)
    rate = float(epsilon) / (2 * statistic.max_rows * float(weight))
    others = statistic.grid.high - statistic.grid.low
    return max(0.0, (math.log(others) + math.log1p(-miss) - math.log(miss)) / rate) * _UP


def inside_rows(statistic: Statistic, epsilon: Fraction) -> int:
    """Return how many rows in from the extremes the target lies.

    All candidates outside the values together then weigh e**-5 times as much as a single one at the target.
    """
    points = statistic.grid.high - statistic.grid.low + 1
    rate = epsilon / (2 * statistic.max_rows)
    return min(math.ceil((math.log(points) + 5) / rate), 1 << 50)


def end_rows(statistic: Statistic, epsilon: Fraction, quantile: Fraction, *, lower: bool, miss: float) -> int | None:
    """Return how many rows are added at a bound before the end of an interval is chosen; None if it is the bound."""
    moved = distance_within(statistic, epsilon, quantile, miss) + 1
    rows = moved / float(1 - quantile if lower else quantile) * _UP
    return math.ceil(rows) if rows < _MOST_EXTRA else None


def rank_ranges(statistic: Statistic, epsilon: Fraction, miss: float) -> dict[Fraction, RankRange]:
    """Return limits of the rank of the value that is chosen for each target.

    Each of them fails with probability at most `miss`.
    """
    found: dict[Fraction, RankRange] = {}
    each = miss / len(statistic.targets).bit_length()
    inside = inside_rows(statistic, epsilon)

    def descend(first: int, last: int, ends: tuple[Fraction, Fraction], begin: _SplitRanks, end: _SplitRanks) -> None:
        if first == last:
            return
        middle = (first + last) // 2
        target = statistic.targets[middle]
        fraction = (target - ends[0]) / (ends[1] - ends[0])
        off = distance_within(statistic, epsilon, fraction, each)
        if fraction == 0:  # the smallest value: at most this many rows lie below it
            least, most = begin[0], begin[1] + _Line(Fraction(0), inside + off)
            split = (begin[0], (most + end[1] + _ONE_ROW).times(Fraction(1, 2)))
        elif fraction == 1:
            least, most = end[0] + _Line(Fraction(0), -inside - off), end[1]
            split = ((begin[0] + least).times(Fraction(1, 2)), end[1])
        else:
            least, most = (
                begin[side].times(1 - fraction) + end[side].times(fraction) + _Line(Fraction(0), sign * off)
                for side, sign in ((0, -1), (1, 1))
            )
            split = (
                (begin[0] + least).times(Fraction(1, 2)),
                (most + end[1] + _ONE_ROW).times(Fraction(1, 2)),
            )
        found[target] = RankRange(least.part, -least.rows, most.part, most.rows)
        descend(first, middle, (ends[0], target), begin, split)
        descend(middle + 1, last, (target, ends[1]), split, end)

    nothing, everything = _Line(Fraction(0)), _Line(Fraction(1))
    descend(0, len(statistic.targets), (Fraction(0), Fraction(1)), (nothing, nothing), (everything, everything))
    return found


def rank_error(statistic: Statistic, epsilon: Fraction, miss: float) -> int | None:
    """Return the largest rank error of the only choice, except with probability `miss`.

    It is None if several quantiles are chosen, because then it depends on how many rows there are.
    """
    if len(statistic.targets) != 1:
        return None
    (target,) = statistic.targets
    off = distance_within(statistic, epsilon, target, miss)
    return math.ceil(off + (inside_rows(statistic, epsilon) if target in (0, 1) else 0))
