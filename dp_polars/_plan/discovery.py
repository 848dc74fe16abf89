"""Discovered keys: what decides which groups are shown, and how many units a group needs to appear.

What one unit can change: after bounding, a unit is in at most `max_groups` groups. In a group that other units are in,
too, it moves the count that decides, and the noise on this count, or the epsilon of the rule, covers that as it covers
any other answer. A group that it is alone in appears only with this unit. Its count is then at most what one unit adds,
and the threshold is so high above this that the noise of none of these groups reaches it, except with probability
delta. A group in which no unit is left after bounding is never shown. Otherwise noise alone could show a group that
only rows beyond a cap are in. Several units that are protected together, and a unit that is replaced, touch more groups
and add more to each of them (`touched` and `group_size`).

Three ways are compared. All of them have the same price:

- A noisy count of rows or units that is released anyway is compared with a threshold. This takes nothing from the
  answers. But a unit may add many rows to a group, and the threshold has to hide all of them.
- A noisy count of units that is not released gets a share of the spend. A unit adds 1 to it.
- A rule on the number of units gets a share of the spend.

The way is chosen from the query and the session's terms alone, and the order of the aggregates does not matter. A share
makes the noise of the answers grow by 1 / (1 - share), or by the square root of that if the spend is split in terms of
rho. The way with the smallest product of that noise and the square root of the units that a group needs is taken, so
half as many units are worth up to 1.41 times the noise. If noise is proportional to 1 / share, this means a share of
one third; where fewer units do not help, it means less. Nobody knows how many rows a unit has in a group. For this
comparison it is the geometric mean of 1 and the cap. `units_needed` is what a plan promises, and it assumes a single
row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

from dp_polars._numbers import MIN_DELTA
from dp_polars._plan.compile import compile_query
from dp_polars._plan.contribution import ONCE, ContributionBounds
from dp_polars._plan.query import MechanismChoice, Query
from dp_polars._plan.sensitivity import sensitivity_of
from dp_polars._plan.spend import Allowance, Measure, Noise, Wanted, best_value, is_cheaper, noise_size, split
from dp_polars._plan.statistics import Compilation, Form, Statistic, Way
from dp_polars._session.filters import share_of
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.accuracy import gaussian_tail, laplace_sum_threshold, laplace_tail, least_threshold
from dp_polars.mechanisms.partitions import Adjacency, PartitionRule, least_units, partition_rule

_SHARES = (Fraction(1, 3), Fraction(1, 6), Fraction(1, 12))


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """How discovered groups are chosen: by a noisy count of at least `threshold`, or by a rule on their unit counts."""

    threshold: int | None
    counted: str | None
    rule: PartitionRule | None
    delta: Fraction
    units_needed: int
    """How many units, each with one row, a group needs to be shown half the time."""
    way: Way


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A way to discover groups, the measure to split the spend in, the form of means, and the loss that decides.

    Attributes
    ----------
    loss
        The noise of the answers times the square root of the units that a group needs.
    price
        The share of the session that the whole query costs.
    """

    way: Way
    measure: Measure | None = None
    form: Form = "basis"
    loss: float = 1.0
    price: float = 1.0


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """A rule as a candidate whose loss is at least `least`. It is made only if its loss matters, for speed."""

    least: float
    price: float
    candidate: Callable[[], Candidate | None]
    """Return the candidate, or None if the spend is too small for the rule."""


def best_ways(
    query: Query,
    terms: Terms,
    bounds: ContributionBounds,
    compilation: Compilation,
    allowances: list[Allowance],
    delta: dict[Measure, Fraction],
) -> Iterator[Candidate]:
    """Yield the ways to discover groups, from the best to the worst.

    `compilation` is the query compiled without any of them, and `delta` is what each measure leaves for discovery.
    """
    if query.spend.within is not None:  # the whole spend is for the error that is wanted
        yield from (Candidate(way=Way(by="released", counted=name)) for name in compilation.counts)
        return
    ways: dict[int, Candidate | _Rule] = dict(
        enumerate(
            way
            for allowance in allowances
            for way in _candidates(query, terms, bounds, allowance, compilation, delta[allowance.measure])
        )
    )
    tolerance = 1.1 if query.spend.share is None else 1.0
    smallest = min((way.loss for way in ways.values() if isinstance(way, Candidate)), default=math.inf)
    rules = {place: way for place, way in ways.items() if isinstance(way, _Rule)}
    dearest = max((way.price for way in ways.values()), default=0.0)
    for place in sorted(rules, key=lambda place: rules[place].least):
        # A larger loss is chosen only if it is nearly as small and clearly cheaper.
        if rules[place].least > smallest * (tolerance if is_cheaper(rules[place].price, dearest) else 1.0):
            continue
        made = _made(ways, place)
        smallest = smallest if made is None else min(smallest, made.loss)
    found = _known(ways)
    if not found:
        return
    best = best_value(found, lambda candidate: candidate.loss, lambda candidate: candidate.price, tolerance)
    yield best
    for place in rules:
        _made(ways, place)
    yield from sorted((other for other in _known(ways) if other is not best), key=lambda candidate: candidate.loss)


def _made(ways: dict[int, Candidate | _Rule], place: int) -> Candidate | None:
    """Replace a rule by its candidate, and drop it if the spend is too small. Return the candidate."""
    way = ways.get(place)
    made = way.candidate() if isinstance(way, _Rule) else way
    if made is None:
        ways.pop(place, None)
    else:
        ways[place] = made
    return made


def _known(ways: dict[int, Candidate | _Rule]) -> list[Candidate]:
    return [way for _, way in sorted(ways.items()) if isinstance(way, Candidate)]


def _candidates(
    query: Query,
    terms: Terms,
    bounds: ContributionBounds,
    allowance: Allowance,
    compilation: Compilation,
    delta: Fraction,
) -> Iterator[Candidate | _Rule]:
    mechanism = query.spend.mechanism
    wanted = [wanted_noise(statistic) for statistic in compilation.statistics]
    granted = split(allowance, wanted, mechanism)
    if granted is None:
        return
    noise = noise_size(granted, wanted)
    form: Form = "basis"
    if any(
        statistic.source == "basis" and part.noise is not None and part.noise.mechanism == "gaussian"
        for statistic, part in zip(compilation.statistics, granted, strict=True)
    ):
        form = "split"
        compilation = compile_query(query, bounds, terms, form)
        granted = split(allowance, [wanted_noise(statistic) for statistic in compilation.statistics], mechanism)
        if granted is None:
            return
    candidate = partial(Candidate, measure=allowance.measure, form=form, price=share_of(terms, allowance.cost))
    noises = dict(zip((statistic.name for statistic in compilation.statistics), granted, strict=True))
    counts = _counts(compilation)
    for statistic in counts:
        count_noise = noises[statistic.name].noise
        if count_noise is not None:
            least = _threshold_of(query, terms, bounds, statistic, count_noise, delta) / statistic.whole
            way = Way(by="released", counted=statistic.name)
            yield candidate(way=way, loss=noise * math.sqrt(least / math.sqrt(statistic.max_rows)))
    if any(count.most == 1 and count.weight == 1 for count in counts):
        return  # a share of the spend buys a noisier count of units than this one
    released = sum((statistic.weight for statistic in compilation.statistics if statistic.what == "units"), Fraction(0))
    units = sensitivity_of(bounds, terms, ONCE, 0, 1)
    for share in _SHARES:
        rest = float(1 - share)
        grown = noise / (rest if allowance.measure == "pure" else math.sqrt(rest))
        counted = Wanted(weight=share + (1 - share) * released, sensitivity=units)
        bought = split(allowance, [counted], mechanism)
        if bought is not None and bought[0].noise is not None:
            least = _margin(bought[0].noise, delta, _touched(terms, bounds), 1) + _others(query, terms)
            yield candidate(way=Way(by="hidden", share=share), loss=grown * math.sqrt(least))
        # In terms of rho, a rule costs as much as pure noise, so a Gaussian count is better.
        bought = split(allowance, [Wanted(weight=share, ranged=False)]) if allowance.measure == "pure" else None
        guarantee = None if bought is None else _for_one_unit(bought[0].epsilon, delta, terms.group_size)
        if guarantee is not None:
            units_at_least = math.ceil(_least_units(*guarantee, bounds.max_groups, terms.adjacency))
            with_loss = partial(candidate, way=Way(by="rule", share=share))
            yield _Rule(
                least=grown * math.sqrt(units_at_least + query.min_units - 1),
                price=share_of(terms, allowance.cost),
                candidate=partial(_candidate_of_rule, with_loss, grown, guarantee, query, terms, bounds),
            )


def _candidate_of_rule(
    candidate: Callable[..., Candidate],
    noise: float,
    guarantee: tuple[Fraction, Fraction],
    query: Query,
    terms: Terms,
    bounds: ContributionBounds,
) -> Candidate | None:
    rule = _rule_for_one_unit(*guarantee, bounds.max_groups, terms.adjacency)
    return None if rule is None else candidate(loss=noise * math.sqrt(_needed_by(rule, query)))


def wanted_noise(statistic: Statistic) -> Wanted:
    """Return what a statistic wants from the spend."""
    return Wanted(weight=statistic.weight, sensitivity=statistic.sensitivity, prices=statistic.prices)


def _counts(compilation: Compilation) -> list[Statistic]:
    """Return the statistics that count rows or units, in an order that does not depend on that of the aggregates."""

    def identity(statistic: Statistic) -> list[str]:
        users = [
            compiled.aggregate for compiled in compilation.compiled if statistic.name in compiled.statistics.values()
        ]
        return sorted(
            f"{len(aggregate.values)} {aggregate.kind} "
            f"{[(value.expression, value.bounds) for value in aggregate.values]}"
            for aggregate in users
        )

    return sorted(
        (statistic for statistic in compilation.statistics if statistic.name in compilation.counts), key=identity
    )


def discovery_by_count(
    query: Query,
    terms: Terms,
    bounds: ContributionBounds,
    way: Way,
    statistic: Statistic,
    noise: Noise,
    delta: Fraction,
) -> Discovery:
    """Return the discovery of groups by a noisy count. Its threshold hides what the protected units add alone."""
    threshold = _threshold_of(query, terms, bounds, statistic, noise, delta)
    return Discovery(
        threshold=threshold,
        counted=statistic.name,
        rule=None,
        delta=delta,
        units_needed=math.ceil(Fraction(threshold, statistic.whole)),
        way=way,
    )


def discovery_by_rule(
    query: Query, terms: Terms, bounds: ContributionBounds, way: Way, epsilon: Fraction, delta: Fraction
) -> Discovery:
    """Return the discovery of groups by a rule on their number of units, which has an epsilon of its own."""
    rule = _rule(terms, bounds, epsilon, delta)
    if rule is None:
        raise InvalidParameterError(
            "The spend or the delta is too small to discover keys. Give the public keys with keys=[...]."
        )
    return Discovery(
        threshold=None, counted=None, rule=rule, delta=delta, units_needed=_needed_by(rule, query), way=way
    )


def _needed_by(rule: PartitionRule, query: Query) -> int:
    return math.ceil(rule.even_chance) + query.min_units - 1


def _rule(terms: Terms, bounds: ContributionBounds, epsilon: Fraction, delta: Fraction) -> PartitionRule | None:
    """Return the rule that needs the fewest units, or None if the spend is too small for any."""
    guarantee = _for_one_unit(epsilon, delta, terms.group_size)
    return None if guarantee is None else _rule_for_one_unit(*guarantee, bounds.max_groups, terms.adjacency)


@lru_cache(maxsize=64)  # plans of similar queries compare the same rules
def _rule_for_one_unit(
    epsilon: Fraction, delta: Fraction, max_groups: int, adjacency: Adjacency
) -> PartitionRule | None:
    try:
        return partition_rule(epsilon, delta, max_groups, strategy="auto", adjacency=adjacency)
    except InvalidParameterError:
        return None


@lru_cache(maxsize=64)
def _least_units(epsilon: Fraction, delta: Fraction, max_groups: int, adjacency: Adjacency) -> float:
    try:
        return least_units(epsilon, delta, max_groups, adjacency=adjacency)
    except InvalidParameterError:
        return 0.0


def _for_one_unit(epsilon: Fraction, delta: Fraction, size: int) -> tuple[Fraction, Fraction] | None:
    """Return the guarantee for one unit that implies this one for `size` units together, by group privacy."""
    if size == 1:
        return epsilon, delta
    each = epsilon / size
    shrink = math.expm1(float(each)) / math.expm1(float(epsilon)) if epsilon < 500 else 0.0
    if delta * Fraction(shrink) < MIN_DELTA:
        return None
    return each, delta * Fraction(shrink * (1 - 1e-12))


def _threshold_of(
    query: Query, terms: Terms, bounds: ContributionBounds, statistic: Statistic, noise: Noise, delta: Fraction
) -> int:
    """Return the least noisy count of a group that is shown, in steps of the statistic."""
    margin = _margin(noise, delta, _touched(terms, bounds), max(1, len(statistic.columns)))
    return margin + _others(query, terms) * statistic.most


def _touched(terms: Terms, bounds: ContributionBounds) -> int:
    """Return how many groups the protected units can be alone in. A unit that is replaced leaves some for others."""
    return terms.group_size * bounds.max_groups * (2 if terms.adjacency == "replace" else 1)


def _others(query: Query, terms: Terms) -> int:
    """Return how many units are hidden: those that are protected together, and fewer than `min_units` others."""
    return query.min_units - 1 + terms.group_size


def _margin(noise: Noise, delta: Fraction, touched: int, terms: int) -> int:
    """Return the smallest m such that the noise of all `touched` groups stays below m, except with probability delta.

    For a sum of several noises, m comes from a Chernoff bound and is slightly larger than necessary.
    """
    each = -math.expm1(math.log1p(-float(delta)) / touched) * (1 - 1e-9)
    return _least_margin(noise.mechanism, noise.parameter, terms, each)


@lru_cache(maxsize=256)  # plans of similar queries compare the same ways
def _least_margin(mechanism: MechanismChoice, parameter: Fraction, terms: int, each: float) -> int:
    if terms > 1:
        if mechanism != "laplace":
            raise ValueError("a basis needs Laplace noise")
        return laplace_sum_threshold(parameter, terms, each)
    if mechanism == "laplace":
        return least_threshold(lambda m: laplace_tail(parameter, m), each, float(parameter) * math.log(1 / each))
    sigma = math.sqrt(parameter)
    return least_threshold(lambda m: gaussian_tail(sigma, m), each, 5 * sigma)
