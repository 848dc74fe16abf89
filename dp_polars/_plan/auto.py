"""Caps and bounds that are estimated from the data, each by one choice of the exponential mechanism.

What one unit can change: an estimate uses one number of each unit (how many groups it has, how many rows it has in all
or in one of its groups, or one of its values, where a hash picks the group or the value). So one unit changes the
number of units beyond a candidate by at most one. The score of a candidate is minus the excess of that number over a
target (or over a fraction of all units, if that is smaller), minus a public price for its size. Adding a unit can lower
a score by a whole unit, but raise it only by a fraction of one. This nearly halves the noise under add/remove. The
candidates are a public ladder, and numbers beyond its ends count as its ends. Caps are scored here; `auto_bounds`
scores bounds.

The target is the number of units above a cap at which one more step of the cap costs as much in noise as it saves in
rows or values that are cut off. Noise grows by the same amount in each group. What is cut off shrinks by what the units
above the cap have there.

Means and other ratios lose nothing to a cap, but the rows of units above it count less. The answer moves by the share
of the rows that this concerns, times the distance between the values of heavy units and those of the others, which
nobody knows. It is bounded from what is paid for anyway: the number of units above a cap. So a ratio may have four
times as many units above its cap as a sum, but not more than 4 % of all units, however large the noise is, and a
doubling of the cap costs at most 1 % of them. With a smaller spend or fewer units, a ratio would have less noise with a
smaller cap, but a bias that no interval shows.

Before each choice, a noisy count tells how many units it can learn from. One unit changes that count by at most one. It
is released with the plan, so whatever follows from it is public: how fine the choice may be, and whether it is
`reliable` at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from dp_polars._aggregates.base import Aggregate, RowRule, Shape
from dp_polars._aggregates.values import Value
from dp_polars._numbers import rounded_down
from dp_polars._plan.auto_bounds import (
    BOUND_MOVES,
    DOUBLINGS,
    UNIT,
    ladder_of,
    number_of_pairs,
    readable,
)
from dp_polars._plan.contribution import contribution_bounds, may_cap_across, needs_group_cap, needs_row_cap
from dp_polars._plan.query import Query
from dp_polars._plan.spend import Allowance, Measure
from dp_polars._session.terms import Terms

# The largest fractions of the spend for one cap and for all caps and bounds.
_EACH, _ALL = Fraction(5, 100), Fraction(21, 100)
# The fractions of an estimate's spend that pay for the noisy count of its units. Caps need fewer units than bounds.
_COUNT_FOR_CAP, _COUNT_FOR_BOUNDS = Fraction(1, 6), Fraction(1, 10)
_MOST = 4096  # the largest cap that is considered
_UNKNOWN_GROUPS = 32  # assumed number of groups where keys are discovered
_BOUND_OVER_MEAN = 4  # assumed ratio of a bound to a typical value
_LIKELY_GROUPS = 20  # assumed number of groups of one unit if neither their cap nor the keys are known
# If a unit has at most this many likely groups (up to three public keys), Gaussian noise, too, gets one cap on the rows
# in all groups. On synthetic people of many kinds, one cap and two are equally good there: `tests/benchmarks/caps.py`.
_FEW_GROUPS = 1
_LIKELY_PART = 3  # a unit is assumed to have one in three of the public keys
_STEPS = tuple(Fraction(quarters, 4) for quarters in (4, 5, 6, 8, 10, 12, 16, 20, 24, 32))
# A reliable cap cuts off at most this fraction of the units by mistake, except in one of so many choices.
_MISTAKEN, _SURELY = 0.15, 20
# The same for bounds. If positive and negative values almost cancel, the answer moves much further than what is cut
# off, and no interval shows it. So bounds must be close to what they look for, nearly always.
_MISTAKEN_BY_BOUNDS, _SURELY_BY_BOUNDS = 0.065, 10_000

_COARSE, _FINE = 2.0, 6.0  # a doubling of a cap changes its probability at least by exp(2), or exp(6) if units are many
_FREE = 1  # of 50 units, how many may lie beyond a cap at no loss
_FREE_OF_RATIOS = {"max_groups": 12, "max_rows_per_group": 2, "max_rows": 2}  # the same if all answers are ratios
_DOUBLINGS_OF_RATIOS = 100  # a doubling of the cap on rows costs at most one in this many units, if all are ratios
_RATIO = 4  # how many more units may lie beyond a cap if their rows change ratios alone

What = Literal["max_groups", "max_rows_per_group", "max_rows", "bounds"]
"""What is estimated. "max_rows" is one cap on the rows of a unit in all groups, in place of the first two."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A cap or a pair of bounds to estimate, with its candidates and the epsilon of the choice."""

    what: What
    value: Value | None
    candidates: tuple[Fraction, ...]
    """The candidates of a cap, or those of each bound."""
    choices: int
    """The number of candidates of a cap, or of pairs of bounds."""
    epsilon: Fraction
    """The epsilon of the choice."""
    count_epsilon: Fraction
    """The epsilon of the noisy count of units."""
    part: Fraction
    """The fraction of the spend that pays for the choice and the count."""
    group_size: int
    """How many units are protected together."""
    changes: int
    """How many units are added or removed at once: twice the group size if units are replaced."""
    ratio: bool = False
    """Whether all answers are ratios, such as means. A small cap on rows biases a ratio to the extent that units with
    many rows have different values."""
    sums: bool = False
    """Whether the bounds are of sums alone. A bound on the far side of 0 would not lower their noise."""
    ranks: bool = False
    """Whether the bounds are of quantiles alone, whose noise hardly depends on them."""

    @property
    def moves(self) -> int:
        """The width of the range within which adding one unit moves all scores; see `scores_of`, `bound_scores`."""
        return BOUND_MOVES if self.value is not None else UNIT + self.free

    @property
    def free(self) -> int:
        """How many of 50 units may lie beyond a cap at no loss."""
        return _FREE_OF_RATIOS[self.what] if self.ratio else _FREE

    @property
    def rate(self) -> Fraction:
        """The factor of a score in the exponent.

        Adding or removing one unit moves all scores within a range of width `moves`. Replacing a unit removes one and
        adds another, and a group of units moves the scores as many times as far.
        """
        return self.epsilon / (self.moves * self.changes)

    @property
    def evidence(self) -> float:
        """How far one unit beyond a candidate lowers the logarithm of the probability that it is chosen."""
        return float(self.rate * UNIT)

    @property
    def count_scale(self) -> Fraction:
        """The scale of the Laplace noise on the count of units, which `group_size` units change by one each."""
        return self.group_size / self.count_epsilon

    @property
    def needed_units(self) -> int:
        """How many units a reliable choice needs.

        The exponential mechanism is off by more than log(n * choices) / evidence units in at most one of n choices
        (Dwork and Roth 2014, theorem 3.11). This must be a small fraction of all units. A ratio hardly depends on how
        many groups its units count in, so any number of units is enough for that cap.
        """
        if self.ratio and self.what == "max_groups":
            return 0
        mistaken, surely = (_MISTAKEN, _SURELY) if self.value is None else (_MISTAKEN_BY_BOUNDS, _SURELY_BY_BOUNDS)
        return math.ceil(math.log(surely * self.choices) / (self.evidence * mistaken))


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was chosen for an estimate: a cap, or a lower and an upper bound. All of it is released."""

    estimate: Estimate
    chosen: tuple[Fraction, ...]
    units: int
    """The noisy number of units that the estimate could learn from."""

    @property
    def reliable(self) -> bool:
        """Whether there are enough units for the choice to be close to what it looks for."""
        return self.units >= self.estimate.needed_units


def depends_on(aggregate: Aggregate, found: Found) -> bool:
    """Tell whether an answer of a settled query depends on the cap or the bounds that were found."""
    estimated = found.estimate.value
    if estimated is None:
        return found.estimate.what == "max_groups" or aggregate.row_rule not in (RowRule.ONCE, RowRule.CLIP_TOTAL)
    lower, upper = found.chosen
    same = (estimated.expression, readable(lower, upper))
    return any((value.expression, value.bounds) == same for value in aggregate.values)


def wanted_estimates(query: Query, measure: Measure) -> list[tuple[What, Value | None]]:
    """Return the caps and bounds that a query leaves open, in the order in which they are estimated.

    Laplace noise depends on the rows of a unit in all groups together. Units with at most g groups and r rows in each
    have at most g r rows, so one cap of g r has the same noise as both caps and cuts off less. Most units with many
    groups have few rows in most of them, so a much smaller cap cuts off as little. Gaussian noise is sqrt(g) times
    smaller with both caps if the rows of a unit are spread evenly over g groups. So it has both, unless groups are few.
    """
    found: list[tuple[What, Value | None]] = []
    groups = query.max_groups == "auto" and needs_group_cap(query)
    rows = query.max_rows == "auto" and needs_row_cap(query)
    few = measure == "pure" or likely_groups(query) <= _FEW_GROUPS
    if query.across and rows:
        found += [("max_groups", None)] if groups else []
        found.append(("max_rows", None))
    elif groups and rows and few and may_cap_across(query):
        found.append(("max_rows", None))
    else:
        found += [("max_groups", None)] if groups else []
        found += [("max_rows_per_group", None)] if rows else []
    values = {value.expression: value for aggregate in query.aggregates for value in aggregate.values if value.auto}
    return [*found, *(("bounds", value) for value in values.values())]


def estimates_of(query: Query, allowance: Allowance, terms: Terms) -> tuple[Estimate, ...]:
    """Return the estimates of a query, each paid for with a fraction of an allowance.

    A pair of bounds is one choice, but has many more candidates and gets three times the fraction of a cap.
    """
    wanted = wanted_estimates(query, allowance.measure)
    weights = [1 if value is None else 3 for _, value in wanted]
    each = min(_EACH, _ALL / sum(weights))
    return tuple(
        _estimate(query, what, value, allowance, each * weight, terms)
        for (what, value), weight in zip(wanted, weights, strict=True)
    )


def _estimate(
    query: Query, what: What, value: Value | None, allowance: Allowance, part: Fraction, terms: Terms
) -> Estimate:
    count = _COUNT_FOR_CAP if value is None else _COUNT_FOR_BOUNDS
    counting, choosing = (allowance.amount * part * fraction for fraction in (count, 1 - count))
    if allowance.measure == "concentrated":
        # A choice of the exponential mechanism costs epsilon**2 / 8, and Laplace noise at most epsilon**2 / 2.
        counting, choosing = (
            rounded_down(math.sqrt(times * rho) * (1 - 1e-12)) for times, rho in ((2, counting), (8, choosing))
        )
    asked = [aggregate for aggregate in query.aggregates if not aggregate.hidden]
    shapes = {aggregate.shape for aggregate in asked if value is None or _reads(aggregate, value)}
    sums = value is not None and shapes == {Shape.LINEAR}
    candidates = _caps(query, what) if value is None else ladder_of(value)
    return Estimate(
        what=what,
        value=value,
        candidates=candidates,
        choices=len(candidates) if value is None else number_of_pairs(value, sums=sums),
        epsilon=choosing,
        count_epsilon=counting,
        part=part,
        group_size=terms.group_size,
        changes=terms.group_size * (1 if terms.adjacency == "add_remove" else 2),
        ratio=value is None and Shape.LINEAR not in shapes,
        sums=sums,
        ranks=value is not None and shapes == {Shape.RANK},
    )


def _reads(aggregate: Aggregate, value: Value) -> bool:
    return any(known.auto and known.expression == value.expression for known in aggregate.values)


def _caps(query: Query, what: What) -> tuple[Fraction, ...]:
    most = _MOST
    if what == "max_groups" and query.domain is not None:
        most = min(most, query.domain.height)
    whole = {round(step * 10**power) for power in range(4) for step in _STEPS} | {7, 9, most}
    return tuple(Fraction(number) for number in sorted(whole) if number <= most)


def likely_groups(query: Query) -> int:
    """Return how many groups a unit is likely to have: the cap if it is known, or a guess.

    The guess decides between Laplace and Gaussian noise. If a single answer is asked for, Laplace noise is three times
    better than Gaussian noise for units with one group, and about as good for units with 11. If one cap
    limits the rows in all groups, the noise is that of units with one group.
    """
    if query.across and may_cap_across(query):
        return 1
    if query.max_groups != "auto" or not needs_group_cap(query):
        return contribution_bounds(query).max_groups
    return _LIKELY_GROUPS if query.domain is None else math.ceil(query.domain.height / _LIKELY_PART)


def likely_noise(allowance: Allowance, groups: int) -> float:
    """Return the standard deviation of a count of units by group if an allowance pays for it."""
    if allowance.measure == "pure":
        return math.sqrt(2) * groups / float(allowance.amount)
    return math.sqrt(groups / (2 * float(allowance.amount)))


def wanted_beyond(estimate: Estimate, query: Query, main: Allowance, found: dict[What, int]) -> list[int]:
    """Return how many units should lie beyond each candidate, given the caps found so far. Bounds have one target."""
    if estimate.ranks:
        return [0]
    groups = 1 if not query.keys else _UNKNOWN_GROUPS if query.domain is None else query.domain.height
    pure = main.measure == "pure"
    # The noise of a count with both caps at 1. It grows with max_rows_per_group and with max_groups (Gaussian noise
    # with the square root of max_groups).
    noise = groups * likely_noise(main.part(Fraction(1, len(query.aggregates))), 1)
    if estimate.value is None and any(
        value.bounds is not None for aggregate in query.aggregates for value in aggregate.values
    ):
        noise *= _BOUND_OVER_MEAN  # noise is proportional to the bound, what is cut off to a typical value
    given_groups = query.max_groups if isinstance(query.max_groups, int) else 1
    max_groups = 1 if query.across else found.get("max_groups") or given_groups
    given_rows = query.max_rows if isinstance(query.max_rows, int) else 1
    max_rows = found.get("max_rows") or found.get("max_rows_per_group") or given_rows
    if estimate.what == "max_groups":
        # One more group saves about max_rows_per_group rows of each unit above the cap.
        each = [1.0 if pure else 1 / (2 * math.sqrt(float(candidate))) for candidate in estimate.candidates]
    elif estimate.what == "max_rows_per_group":
        # One more row saves about one row in each group of a unit above the cap, which has about max_groups groups.
        each = [1.0 if pure else 1 / math.sqrt(max_groups)] * len(estimate.candidates)
    elif estimate.what == "max_rows":
        # One more row saves one row of each unit above the cap, in all groups together.
        each = [1.0] * len(estimate.candidates)
    else:
        # Raising the bound by 1 saves 1 in each row beyond it. A unit has between one such row and as many as the caps
        # allow; this takes the geometric mean.
        each = [math.sqrt(max_groups * max_rows) if pure else math.sqrt(max_rows)]
    return [max(1, math.ceil(noise * saved)) * (_RATIO if estimate.ratio else 1) for saved in each]


def scores_of(estimate: Estimate, beyond: list[int], wanted: list[int], units: int, noisy: int) -> list[int]:
    """Return the scores of caps, in fiftieths of a unit: minus the excess units beyond, minus a price for size.

    The excess is counted over the target, or over a fraction of all units if that is smaller: a cap that cuts off
    nearly everyone is useless, however large the noise. The price is public, as it depends on the `noisy` number of
    units. It makes the smallest candidate best among those that nobody lies beyond. A doubling costs three quarters of
    the target, but at most one in 33 units, for the same reason, and at least enough that a candidate twice as large as
    necessary is e**2 times less likely to be chosen, or e**6 times if that costs no more than one in 33 units (one in
    100 for the rows of ratios).

    What one unit can change: a unit that is added may lie beyond a candidate (-50), and it raises the number of all
    units, a fraction of which may lie beyond at no loss (up to +12 for the groups of ratios, +2 for their rows and +1
    otherwise: `Estimate.free`).
    """
    rows_of_ratios = estimate.ratio and estimate.what != "max_groups"
    most = max(0, noisy) / (_DOUBLINGS_OF_RATIOS if rows_of_ratios else DOUBLINGS)
    least = max(_COARSE / estimate.evidence, min(_FINE / estimate.evidence, most))
    free = estimate.free * units
    prices: dict[int, float] = {}
    price, before = 0.0, 0.0
    sizes = [math.log2(1 + float(candidate)) for candidate in estimate.candidates]
    # The target may fall as the size grows, so the price adds up step by step.
    for place in sorted(range(len(sizes)), key=sizes.__getitem__):
        step = 0.0 if estimate.ratio else min(0.75 * wanted[place], most)
        price += max(step, least) * (sizes[place] - before)
        before, prices[place] = sizes[place], price
    return [
        -max(0, UNIT * number - min(UNIT * target, free)) - round(UNIT * prices[place])
        for place, (number, target) in enumerate(zip(beyond, wanted, strict=True))
    ]


def settled_query(query: Query, found: Sequence[Found]) -> Query:
    """Return a query with the estimated caps and bounds in place."""
    bounds: dict[str, tuple[Fraction, Fraction]] = {}
    for estimated in found:
        share = f"estimated with {float(estimated.estimate.part):.0%} of the spend"
        if estimated.estimate.what == "max_groups":
            query = replace(query, max_groups=int(estimated.chosen[0]), max_groups_rule=share)
        elif estimated.estimate.what == "max_rows_per_group":
            query = replace(query, max_rows=int(estimated.chosen[0]), max_rows_rule=share)
        elif estimated.estimate.what == "max_rows":
            query = replace(query, max_rows=int(estimated.chosen[0]), max_rows_rule=share, across=True)
        elif estimated.estimate.value is not None:
            lower, upper = estimated.chosen
            bounds[estimated.estimate.value.expression] = readable(lower, upper)

    def with_bounds(aggregate: Aggregate) -> Aggregate:
        values = tuple(
            replace(value, bounds=bounds[value.expression], auto=False) if value.auto else value
            for value in aggregate.values
        )
        return replace(aggregate, values=values)

    return replace(query, aggregates=tuple(with_bounds(aggregate) for aggregate in query.aggregates))
