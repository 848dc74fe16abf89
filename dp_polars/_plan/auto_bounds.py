"""How pairs of bounds are scored when they are estimated: by the final error of the answer.

The final error has two parts. Noise grows with the width of the bounds, and what is cut off shrinks with it. Both
balance where the next doubling of the width adds as much noise as it saves. In terms of units, that is where as many
units as the target (`wanted_beyond`) lie beyond a bound. So a doubling of the width costs as much as the target, and as
many units may lie beyond each bound at no loss.

If noise dominates, the balance would be at a width of zero, where the answer says nothing. Quantiles of units prevent
that. Only 2 % of the units on one side of 0 may lie beyond a bound at no loss, and a doubling of the width never costs
more than 1 in 33 of the units with a value other than 0 (as a noisy count says), unless there are so few of them that
their values hardly matter for the choice. Zeros are left out on purpose: if most values are 0, the other ones decide
the answer.

Both bounds are one choice among all pairs of candidates. A unit has one value, which is above the upper bound, below
the lower one, or neither. So two bounds cost no more than one.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dp_polars._aggregates.values import Value

if TYPE_CHECKING:
    from dp_polars._plan.auto import Estimate

Integers = NDArray[np.int64]

# Candidates are numbers of two digits, each at most a seventh larger than the one before.
_TENTHS = (10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 25, 28, 30, 35, 40, 45, 50, 55, 60, 65, 70, 80, 90)
_SMALLEST, _DECADES = -6, 18  # bounds range from 10**-6 to almost 10**12
_LONGEST = 1 << 61  # bounds of whole numbers stay below this; decimals with many digits are large integers

UNIT = 50
"""What a unit beyond a bound costs. One in this many units may lie there at no loss."""
BOUND_MOVES = UNIT + 2
"""The width of the range within which adding one unit moves all scores: -50 to 2."""

DOUBLINGS = 33
"""A doubling of the width, or of a cap, costs at most one in this many units."""
_COARSE, _FINE = 1.0, 4.0  # but it changes the probability at least by exp(1), and by exp(4) if there are enough units
_BELOW_ONE = 500  # a doubling of a width below 1 costs less, because a ladder has twenty of them
_FEW = 100.0  # with less evidence than this, a width below 1 is even less likely than a width of 1


def ladder_of(value: Value) -> tuple[Fraction, ...]:
    """Return the candidates for a bound, on both sides of 0."""
    return _pairs_of(value, sums=False).candidates


def number_of_pairs(value: Value, *, sums: bool) -> int:
    """Return the number of pairs of a lower and an upper bound to choose from."""
    return len(_pairs_of(value, sums=sums).lower)


def pair_of(estimate: Estimate, place: int) -> tuple[Fraction, Fraction]:
    """Return the pair of bounds at a place among all pairs."""
    pairs = _pairs(estimate)
    return pairs.candidates[pairs.lower[place]], pairs.candidates[pairs.upper[place]]


@dataclass(frozen=True, eq=False)
class _Pairs:
    """All pairs of bounds that can be chosen, as places among the candidates, with their widths in doublings.

    Doublings above and below a width of 1 are counted separately.
    """

    candidates: tuple[Fraction, ...]
    lower: Integers
    upper: Integers
    above_one: NDArray[np.float64]
    below_one: NDArray[np.float64]


def _pairs(estimate: Estimate) -> _Pairs:
    if estimate.value is None:
        raise ValueError("this estimate is not about a value")
    return _pairs_of(estimate.value, sums=estimate.sums)


def _pairs_of(value: Value, *, sums: bool) -> _Pairs:
    scale = -value.lower / 10**12  # decimals are stored as integers, in units of their last digit
    smallest = 0 if value.dtype.is_integer() else _SMALLEST
    return _all_pairs(smallest, scale, whole=not value.dtype.is_float(), sums=sums)


@lru_cache(maxsize=4)
def _all_pairs(smallest: int, scale: Fraction, *, whole: bool, sums: bool) -> _Pairs:
    powers = range(smallest, _SMALLEST + _DECADES)
    sizes = {Fraction(tenths, 10) * Fraction(10) ** power * scale for power in powers for tenths in _TENTHS}
    if whole:
        sizes = {Fraction(round(size)) for size in sizes if size < _LONGEST} - {Fraction(0)}
    candidates = tuple(sorted({Fraction(0)} | sizes | {-size for size in sizes}))
    numbers = np.array([float(candidate) for candidate in candidates])
    lower, upper = np.triu_indices(len(candidates), 1)
    if sums:
        through = (numbers[lower] <= 0) & (numbers[upper] >= 0)
        lower, upper = lower[through], upper[through]
    width = numbers[upper] - numbers[lower]
    least = float(min(sizes))
    step = max(least, float(scale))
    above_one = np.log2(1 + width / step)
    return _Pairs(candidates, lower, upper, above_one, np.log2(1 + width / least) - above_one)


@dataclass(frozen=True, kw_only=True)
class Sides:
    """How many units lie above and below each candidate, and how many have a positive or a negative value."""

    above: Integers
    below: Integers
    positive: int
    negative: int


def bound_scores(estimate: Estimate, sides: Sides, wanted: int, units: int) -> Integers:
    """Return the scores of all pairs of bounds, given the target and the noisy number of units with a nonzero value.

    The score of a pair is minus the units above the upper bound and below the lower one that exceed what may lie there
    at no loss (the target, or one in `UNIT` of the units on the bound's side of 0), times `UNIT`, minus the price of
    its width.

    What one unit can change: the price is public, because the target and the noisy count are. A unit that is added has
    one value. It can lie above the upper bound or below the lower one, but not both, which lowers the score by at most
    `UNIT`. It can be on the same side of 0 as the upper bound and as the lower one, which raises what may lie beyond at
    no loss by at most 1 for each. So adding a unit changes each score by at least -`UNIT` and by at most 2.
    """
    pairs = _pairs(estimate)
    signs = np.sign(np.array([float(candidate) for candidate in pairs.candidates]))
    free = UNIT * min(wanted, 1 << 50)
    too_high = UNIT * sides.above - np.minimum(free, np.where(signs < 0, sides.negative, sides.positive))
    too_low = UNIT * sides.below - np.minimum(free, np.where(signs > 0, sides.positive, sides.negative))
    excess = np.maximum(0, too_high)[pairs.upper] + np.maximum(0, too_low)[pairs.lower]
    scores: Integers = -(excess + _prices(estimate, pairs, wanted, units)).astype(np.int64)
    return scores


def _prices(estimate: Estimate, pairs: _Pairs, wanted: int, units: int) -> Integers:
    """Return the price of each pair. It is computed in terms of the logarithm of probabilities."""
    evidence = max(0, units) * estimate.evidence
    balance = 0.0 if estimate.ranks else max(_FINE, wanted * estimate.evidence)
    doubling = min(max(_COARSE, evidence / DOUBLINGS), max(_COARSE, balance))
    short = evidence - _FEW
    small = min(doubling, short / (_BELOW_ONE if short > 0 else _FEW))
    price = doubling * pairs.above_one + small * pairs.below_one
    return np.rint(price / float(estimate.rate)).astype(np.int64)


def readable(lower: Fraction, upper: Fraction) -> tuple[Fraction, Fraction]:
    """Return bounds where one that is next to 0, compared to the other, is 0. This hardly changes what they cut off."""
    if abs(lower) * 1000 <= upper or 0 < lower * 50 <= upper:
        return Fraction(0), upper
    if abs(upper) * 1000 <= -lower or 0 < -upper * 50 <= -lower:
        return lower, Fraction(0)
    return lower, upper
