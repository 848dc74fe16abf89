"""Caps and bounds that are estimated from the data, each by one choice of the exponential mechanism.

What one unit can change: an estimate uses one number of each unit (how many groups it has, how many rows it has in one
of its groups, or one of its values, where a hash picks the group or the value). So one unit changes the number of units
beyond each candidate by at most one. The score of a candidate is minus the excess of that number over a target (or over
a fraction of all units, if that is smaller), minus a public penalty for its size. Adding a unit can lower a score by a
whole unit, but raise it only by a fraction of one. This nearly halves the noise under add/remove. The candidates are a
public ladder, and numbers beyond its ends count as its ends.

The target is the number of units above a cap at which one more step of the cap costs as much in noise as it saves in
rows or values that are cut off. Noise grows by the same amount in each group. What is cut off shrinks by what the units
above the cap have there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from dp_polars._aggregates.base import Aggregate, Shape
from dp_polars._aggregates.values import Value
from dp_polars._numbers import rounded_down
from dp_polars._plan.contribution import needs_group_cap, needs_row_cap
from dp_polars._plan.query import Query
from dp_polars._plan.spend import Allowance

# The largest fractions of the spend for one estimate and for all of them.
_EACH, _ALL = Fraction(6, 100), Fraction(12, 100)
_MOST = 4096  # the largest cap that is considered
_EVERYONE = 1 << 40  # more units than any table has
_UNKNOWN_GROUPS = 32  # assumed number of groups where keys are discovered
_BOUND_OVER_MEAN = 4  # assumed ratio of a bound to a typical value
_LIKELY_GROUPS = 20  # assumed number of groups of one unit while max_groups is not known
_STEPS = tuple(Fraction(quarters, 4) for quarters in (4, 5, 6, 8, 10, 12, 16, 20, 24, 32))
_SMALLEST, _DECADES = -6, 18  # bounds range from 10**-6 to almost 10**12
_LONGEST = 1 << 61  # bounds of whole numbers stay below this; decimals with many digits are large integers

_TENTHS = 10
_PARTS = {False: 1, True: 5}  # tenths of all units that may lie beyond a candidate at no loss, by `Estimate.ratio`
MOVES = 11
"""The width of the range within which adding one unit moves all scores: -10 to 1, or -5 to 5 for ratios."""

What = Literal["max_groups", "max_rows_per_group", "lower", "upper"]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A cap or a bound to estimate, with its candidates and the epsilon of the choice."""

    what: What
    value: Value | None
    candidates: tuple[Fraction, ...]
    epsilon: Fraction
    part: Fraction
    """The fraction of the spend that pays for it."""
    ratio: bool = False
    """Whether all answers are ratios, such as means. Ratios lose little if fewer rows of a unit count."""


def wanted_estimates(query: Query) -> list[tuple[What, Value | None]]:
    """Return the caps and bounds that a query leaves open, in the order in which they are estimated."""
    found: list[tuple[What, Value | None]] = []
    if query.max_groups == "auto" and needs_group_cap(query):
        found.append(("max_groups", None))
    if query.max_rows == "auto" and needs_row_cap(query):
        found.append(("max_rows_per_group", None))
    values = {value.expression: value for one in query.aggregates for value in one.values if value.auto}
    for value in values.values():
        found += [("lower", value), ("upper", value)]
    return found


def estimates_of(query: Query, allowance: Allowance) -> tuple[Estimate, ...]:
    """Return the estimates of a query, each paid for with a fraction of an allowance."""
    wanted = wanted_estimates(query)
    part = min(_EACH, _ALL / len(wanted))
    own = allowance.amount * part
    epsilon = own if allowance.measure == "pure" else rounded_down(math.sqrt(8 * own) * (1 - 1e-12))
    return tuple(
        Estimate(
            what=what,
            value=value,
            candidates=_candidates(query, what, value),
            epsilon=epsilon,
            part=part,
            ratio=what == "max_rows_per_group" and all(one.shape is not Shape.LINEAR for one in query.aggregates),
        )
        for what, value in wanted
    )


def _candidates(query: Query, what: What, value: Value | None) -> tuple[Fraction, ...]:
    if value is None:
        most = _MOST
        if what == "max_groups" and query.domain is not None:
            most = min(most, query.domain.height)
        whole = {round(step * 10**power) for power in range(4) for step in _STEPS} | {7, 9, most}
        return tuple(Fraction(number) for number in sorted(whole) if number <= most)
    scale = -value.lower / 10**12  # decimals are stored as integers, in units of their last digit
    return _ladder(0 if value.dtype.is_integer() else _SMALLEST, scale, not value.dtype.is_float())


@lru_cache(maxsize=32)
def _ladder(smallest: int, scale: Fraction, whole: bool) -> tuple[Fraction, ...]:
    """Return the candidates for bounds, on both sides of 0."""
    powers = range(smallest, _SMALLEST + _DECADES)
    sizes = {step * Fraction(10) ** power * scale for power in powers for step in _STEPS}
    if whole:
        sizes = {Fraction(round(size)) for size in sizes if size < _LONGEST}
    return tuple(sorted({Fraction(0)} | sizes | {-size for size in sizes}))


def likely_groups(query: Query) -> int:
    """Return how many groups a unit is likely to have: the cap if it is known, or a guess."""
    if not query.keys or not query.unit:
        return 1
    known = query.max_groups if isinstance(query.max_groups, int) else _LIKELY_GROUPS
    return known if query.domain is None else min(known, query.domain.height)


def likely_noise(allowance: Allowance, groups: int) -> float:
    """Return the standard deviation of a count of units by group if an allowance pays for it."""
    if allowance.measure == "pure":
        return math.sqrt(2) * groups / float(allowance.amount)
    return math.sqrt(groups / (2 * float(allowance.amount)))


def wanted_beyond(estimate: Estimate, query: Query, main: Allowance, found: dict[What, int]) -> list[int]:
    """Return the target of each candidate: how many units should lie beyond it, given the caps found so far."""
    if estimate.ratio:
        return [_EVERYONE] * len(estimate.candidates)
    groups = 1 if not query.keys else _UNKNOWN_GROUPS if query.domain is None else query.domain.height
    pure = main.measure == "pure"
    # The noise of a count with both caps at 1. It grows with max_rows_per_group and with max_groups (Gaussian noise
    # with the square root of max_groups).
    noise = groups * likely_noise(main.part(Fraction(1, len(query.aggregates))), 1)
    if estimate.value is None and any(value.bounds is not None for one in query.aggregates for value in one.values):
        noise *= _BOUND_OVER_MEAN  # noise is proportional to the bound, what is cut off to a typical value
    max_groups = found.get("max_groups") or (query.max_groups if isinstance(query.max_groups, int) else 1)
    max_rows = found.get("max_rows_per_group") or (query.max_rows if isinstance(query.max_rows, int) else 1)
    if estimate.what == "max_groups":
        # One more group saves about max_rows_per_group rows of each unit above the cap.
        each = [1.0 if pure else 1 / (2 * math.sqrt(float(candidate))) for candidate in estimate.candidates]
    elif estimate.what == "max_rows_per_group":
        # One more row saves about one row in each group of a unit above the cap, which has about max_groups groups.
        each = [1.0 if pure else 1 / math.sqrt(max_groups)] * len(estimate.candidates)
    else:
        # Raising the bound by 1 saves 1 in each row beyond it. A unit has between one such row and as many as the caps
        # allow; this takes the geometric mean.
        each = [math.sqrt(max_groups * max_rows) if pure else math.sqrt(max_rows)] * len(estimate.candidates)
    return [max(1, math.ceil(noise * one)) for one in each]


def scores_of(estimate: Estimate, beyond: list[int], wanted: list[int], units: int) -> list[int]:
    """Return the scores of candidates, in tenths of a unit: minus the excess units beyond, minus a penalty for size.

    The excess is counted over the target, or over a fraction of all units if that is smaller: a bound that cuts off
    nearly everyone is useless, however large the noise. The penalty is public. It makes the smallest candidate best
    among those that nobody lies beyond. A doubling costs three quarters of the target (a tenth for bounds, which span
    many doublings), and at least enough that a candidate twice as large as necessary is e**2 times less likely to be
    chosen (e times for bounds).

    What one unit can change: a unit that is added may lie beyond a candidate (-10), and it raises the number of all
    units (up to +5 for ratios and +1 otherwise, see `_PARTS`).
    """
    part, doubling = (0.75, 2) if estimate.value is None else (0.1, 1)
    least = doubling / float(estimate.epsilon)
    most = _PARTS[estimate.ratio] * units
    prices: dict[int, float] = {}
    price, before = 0.0, 0.0
    sizes = _doublings(estimate)
    # The target may fall as the size grows, so the penalty adds up step by step.
    for place in sorted(range(len(sizes)), key=sizes.__getitem__):
        own = 0.0 if estimate.ratio else part * wanted[place]
        price += max(own, least) * (sizes[place] - before)
        before, prices[place] = sizes[place], price
    return [
        -max(0, _TENTHS * number - min(_TENTHS * target, most)) - round(_TENTHS * prices[place])
        for place, (number, target) in enumerate(zip(beyond, wanted, strict=True))
    ]


def _doublings(estimate: Estimate) -> list[float]:
    """Return the size of each candidate in doublings. A doubling below 1 counts as an eighth.

    Each doubling costs units that lie beyond the candidate. Few values are smaller than 1, but a ladder from a
    millionth to a thousand has thirty doublings, and paying for all of them is too much for small data.
    """
    sizes = [abs(float(one)) for one in estimate.candidates]
    if estimate.value is None:
        return [math.log2(1 + size) for size in sizes]
    least = min(size for size in sizes if size)
    one = max(least, -float(estimate.value.lower) / 10**12)
    above = [math.log2(1 + size / one) for size in sizes]
    return [own + (math.log2(1 + size / least) - own) / 8 for own, size in zip(above, sizes, strict=True)]


def settled_query(query: Query, found: dict[Estimate, Fraction]) -> Query:
    """Return a query with the estimated caps and bounds in place."""
    for estimate, chosen in found.items():
        share = f"estimated with {float(estimate.part):.0%} of the spend"
        if estimate.what == "max_groups":
            query = replace(query, max_groups=int(chosen), max_groups_rule=share)
        elif estimate.what == "max_rows_per_group":
            query = replace(query, max_rows=int(chosen), max_rows_rule=share)
    bounds: dict[str, tuple[Fraction, Fraction]] = {}
    for estimate, chosen in found.items():
        if estimate.value is not None and estimate.what == "upper":
            lower = next(low for own, low in found.items() if own.value == estimate.value and own.what == "lower")
            ladder = estimate.candidates
            upper = max(chosen, ladder[1])
            lower = min(lower, max(low for low in ladder if low < upper))
            # A bound close to 0 becomes 0, which costs nothing and is easier to read.
            lower = Fraction(0) if 0 < lower <= upper / 50 else lower
            upper = Fraction(0) if 0 > upper >= lower / 50 else upper
            bounds[estimate.value.expression] = (lower, upper)

    def with_bounds(one: Aggregate) -> Aggregate:
        values = tuple(
            replace(value, bounds=bounds[value.expression], auto=False) if value.auto else value for value in one.values
        )
        return replace(one, values=values)

    return replace(query, aggregates=tuple(with_bounds(one) for one in query.aggregates))
