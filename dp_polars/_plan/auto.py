"""Caps and bounds that are estimated: each from one number of every unit, by the exponential mechanism.

What one unit can change: it has one number (its groups, its rows in one of them chosen by hash, one of its values
chosen by hash), so it moves the number of units beyond each candidate by at most one. A candidate's score is minus the
excess of that number over a wanted one (or over a part of all units), less a public price of the candidate. An added
unit moves all scores down, or a little up, so add/remove nearly halves the noise. Candidates are a public ladder;
numbers beyond its ends count as its ends.

How many units should lie above a cap: where one more step of the cap costs as much in noise as it saves in what is cut
off. Noise grows by the same amount in each of K groups; what is cut off shrinks by what the units above have there.
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

_EACH, _ALL = Fraction(6, 100), Fraction(12, 100)  # parts of the spend: of one estimate, and of all, at most
_MOST = 4096  # groups or rows of a unit, at most
_EVERYONE = 1 << 40
_UNKNOWN_GROUPS = 32  # how many groups are expected where keys are discovered
_BOUND_OVER_MEAN = 4
_LIKELY_GROUPS = 20
_STEPS = tuple(Fraction(quarters, 4) for quarters in (4, 5, 6, 8, 10, 12, 16, 20, 24, 32))
_SMALLEST, _DECADES = -6, 18  # of bounds: from a millionth to 10**12
_LONGEST = 1 << 61  # of whole numbers: decimals of many digits are long ones

_TENTHS = 10
_PARTS = {False: 1, True: 5}  # tenths of all units that may lie beyond a candidate, in any case
MOVES = 11
"""The range of what one unit that is added or removed changes in scores: -10 to 1, or for ratios -5 to 5."""

What = Literal["max_groups", "max_rows_per_group", "lower", "upper"]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Something that is estimated: what, of which value, among which candidates, and the epsilon of the choice."""

    what: What
    value: Value | None
    candidates: tuple[Fraction, ...]
    epsilon: Fraction
    part: Fraction
    """Its part of the spend."""
    ratio: bool = False
    """Whether it is for answers that are ratios, such as means: fewer rows of a unit are nearly as good for them."""


def wanted_estimates(query: Query) -> list[tuple[What, Value | None]]:
    """Return what a query leaves to be estimated, in the order in which it is."""
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
    """Return the estimates of a query and the epsilon of each, from its part of an allowance."""
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
    scale = -value.lower / 10**12  # decimals are counted in their last digit
    return _ladder(0 if value.dtype.is_integer() else _SMALLEST, scale, not value.dtype.is_float())


@lru_cache(maxsize=32)
def _ladder(smallest: int, scale: Fraction, whole: bool) -> tuple[Fraction, ...]:
    """Return candidates for bounds, on both sides of 0."""
    powers = range(smallest, _SMALLEST + _DECADES)
    sizes = {step * Fraction(10) ** power * scale for power in powers for step in _STEPS}
    if whole:
        sizes = {Fraction(round(size)) for size in sizes if size < _LONGEST}
    return tuple(sorted({Fraction(0)} | sizes | {-size for size in sizes}))


def likely_groups(query: Query) -> int:
    """Return how many groups a unit may well have: what is known, or a guess."""
    if not query.keys or not query.unit:
        return 1
    known = query.max_groups if isinstance(query.max_groups, int) else _LIKELY_GROUPS
    return known if query.domain is None else min(known, query.domain.height)


def likely_noise(allowance: Allowance, groups: int) -> float:
    """Return the deviation of a count of units by group that an allowance would buy."""
    if allowance.measure == "pure":
        return math.sqrt(2) * groups / float(allowance.amount)
    return math.sqrt(groups / (2 * float(allowance.amount)))


def wanted_beyond(estimate: Estimate, query: Query, main: Allowance, found: dict[What, int]) -> list[int]:
    """Return for each candidate how many units should lie beyond it, by what is known of the caps."""
    if estimate.ratio:
        return [_EVERYONE] * len(estimate.candidates)
    groups = 1 if not query.keys else _UNKNOWN_GROUPS if query.domain is None else query.domain.height
    pure = main.measure == "pure"
    # Of a count with caps of 1; it grows with max_groups (Gaussian noise with its root) and with max_rows_per_group.
    noise = groups * likely_noise(main.part(Fraction(1, len(query.aggregates))), 1)
    if estimate.value is None and any(value.bounds is not None for one in query.aggregates for value in one.values):
        noise *= _BOUND_OVER_MEAN  # noise goes with the bound, what is cut off with a typical value
    max_groups = found.get("max_groups") or (query.max_groups if isinstance(query.max_groups, int) else 1)
    max_rows = found.get("max_rows_per_group") or (query.max_rows if isinstance(query.max_rows, int) else 1)
    if estimate.what == "max_groups":
        # One group more saves about a cap of rows of each unit above.
        each = [1.0 if pure else 1 / (2 * math.sqrt(float(candidate))) for candidate in estimate.candidates]
    elif estimate.what == "max_rows_per_group":
        # One row more saves about one in each group of a unit above, which has about as many as the cap.
        each = [1.0 if pure else 1 / math.sqrt(max_groups)] * len(estimate.candidates)
    else:
        # One more of the bound saves one in each row beyond it: of a unit between one and all that the caps allow.
        each = [math.sqrt(max_groups * max_rows) if pure else math.sqrt(max_rows)] * len(estimate.candidates)
    return [max(1, math.ceil(noise * one)) for one in each]


def scores_of(estimate: Estimate, beyond: list[int], wanted: list[int], units: int) -> list[int]:
    """Return the scores of candidates, in tenths of a unit: minus the units beyond in excess, and a price of size.

    In excess of the wanted number, or of a part of all units if that is less: however large the noise, a bound is of no
    use that cuts off nearly everyone. The price is public. So of candidates beyond everyone the least are the best. A
    doubling costs most of the wanted number (of bounds, which span many, a tenth), and at least so much that a
    candidate twice as large as need be is chosen with a probability e**2 times less (of bounds e times).

    What one unit can change: added, it may lie beyond (-10) and counts among all units (up to +5 or +1, `_PARTS`).
    """
    part, doubling = (0.75, 2) if estimate.value is None else (0.1, 1)
    least = doubling / float(estimate.epsilon)
    most = _PARTS[estimate.ratio] * units
    prices: dict[int, float] = {}
    price, before = 0.0, 0.0
    sizes = _doublings(estimate)
    for place in sorted(
        range(len(sizes)), key=sizes.__getitem__
    ):  # step by step: what is wanted may fall with the size
        own = 0.0 if estimate.ratio else part * wanted[place]
        price += max(own, least) * (sizes[place] - before)
        before, prices[place] = sizes[place], price
    return [
        -max(0, _TENTHS * number - min(_TENTHS * target, most)) - round(_TENTHS * prices[place])
        for place, (number, target) in enumerate(zip(beyond, wanted, strict=True))
    ]


def _doublings(estimate: Estimate) -> list[float]:
    """Return how often the least size was doubled for each candidate; below 1 only an eighth counts.

    Few values lie there, and every doubling on the way costs units that lie beyond: from a millionth to a thousand
    there are thirty, too many for small data.
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
            # Next to 0 it is 0: that costs nothing, and is easier to read.
            lower = Fraction(0) if 0 < lower <= upper / 50 else lower
            upper = Fraction(0) if 0 > upper >= lower / 50 else upper
            bounds[estimate.value.expression] = (lower, upper)

    def with_bounds(one: Aggregate) -> Aggregate:
        values = tuple(
            replace(value, bounds=bounds[value.expression], auto=False) if value.auto else value for value in one.values
        )
        return replace(one, values=values)

    return replace(query, aggregates=tuple(with_bounds(one) for one in query.aggregates))
