"""A plan: everything that will happen to a query, known before a row is read.

`plan_of` is the only function that turns a query into a plan. A plan can be previewed, printed and priced, and it holds
no data. If caps or bounds are still to be estimated, the plan says so and knows the whole price. `settled` returns the
plan of the rest once they are known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dp_polars._aggregates.values import Value
from dp_polars._engines.request import Lane
from dp_polars._numbers import MIN_DELTA
from dp_polars._plan.auto import (
    Estimate,
    Found,
    estimates_of,
    likely_groups,
    likely_noise,
    settled_query,
    wanted_estimates,
)
from dp_polars._plan.base import BasePlan, Facts
from dp_polars._plan.compile import compile_query
from dp_polars._plan.contribution import Bounds, bounds_of
from dp_polars._plan.description import plan_rows
from dp_polars._plan.grid import Grid
from dp_polars._plan.query import Query
from dp_polars._plan.rollup import with_totals
from dp_polars._plan.sensitivity import Sensitivity
from dp_polars._plan.spend import Allowance, Noise, Wanted, allot, allowances_of, no_option
from dp_polars._plan.statistics import Compilation, CompiledAggregate, Form, Statistic
from dp_polars._session.cost import Cost
from dp_polars._session.filters import share_of
from dp_polars._session.prices import check_price
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.accuracy import gaussian_tail, laplace_sum_threshold, laplace_tail, least_threshold
from dp_polars.mechanisms.partitions import PartitionRule, partition_rule

# If none of the released numbers counts rows or units, a third of the spend decides which discovered groups are shown.
_DISCOVERY = Fraction(1, 3)


# Units that are not integers are told apart by a hash of at least 79 bits. Among up to 2**40 units, this bounds the
# probability that a given unit has the same hash as another one, so that both count as one unit. It assumes that the
# engine's hashes, with two independent secret seeds, behave like random functions, which is a heuristic and no theorem.
_HASH_DELTA = Fraction(1, 2**39)
# Hashing is used if it takes at most this fraction of a query's delta. Otherwise units are compared exactly, which is
# slower.
_HASH_PART = Fraction(1, 1000)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A statistic with the noise that it gets, or with the epsilon of each choice."""

    statistic: Statistic
    noise: Noise | None
    epsilon: Fraction

    @property
    def name(self) -> str:
        """The name of the statistic."""
        return self.statistic.name

    @property
    def grid(self) -> Grid:
        """The grid that the statistic is counted on."""
        return self.statistic.grid

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one unit can move the statistic."""
        if self.statistic.sensitivity is None:
            raise ValueError("a choice has no sensitivity")
        return self.statistic.sensitivity

    def error(self, confidence: float) -> int:
        """Return the number of steps that the noise stays within with this confidence."""
        if self.noise is None:
            raise ValueError("a choice has no noise")
        return self.noise.error(confidence)


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """How discovered groups are chosen: by a noisy count of at least `threshold`, or by a rule on their unit counts."""

    threshold: int | None
    counted: str | None
    rule: PartitionRule | None
    delta: Fraction


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(BasePlan):
    """What a query will do and what it costs. `preview` returns it without spending anything, and it prints as a table.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = dp.private(pl.DataFrame({"km": [2, 4]}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> plan = visits.preview.count(epsilon=0.5)
    >>> plan.cost, plan.expected_error()
    (<dp.Cost epsilon 0.5, rho 0.122459>, 6.0)
    """

    query: Query
    bounds: Bounds
    lanes: tuple[Lane, ...]
    compiled: tuple[CompiledAggregate, ...]
    columns: tuple[Value, ...]
    measurements: tuple[Measurement, ...]
    units: str
    discovery: Discovery | None
    unit_delta: Fraction
    """The delta that telling units apart by a hash costs, or 0 if they are compared exactly."""
    estimates: tuple[Estimate, ...] = ()
    """The caps and bounds that are still to be estimated. Until then, the noise is not known."""
    estimated: tuple[Found, ...] = ()
    """The caps and bounds that were estimated, with what was chosen."""
    main: Allowance | None = None
    """What is left of the spend for the answers if something is estimated first."""
    if_rows: int | None = None
    """The number of rows in a group for which the errors of all answers were computed."""
    errors_if_rows: tuple[tuple[str, tuple[float, ...]], ...] = ()
    """For such a group: errors at evenly spread points of their distribution, in rising order, by answer."""

    def subject(self) -> Query:
        """Return whose rows the question is about."""
        return self.query

    def title(self) -> str:
        """Return the question in a few words."""
        return self.query.title()

    def fingerprint(self) -> bytes:
        """Return bytes that are equal for equal questions, in every process."""
        return self.query.fingerprint()

    def measurement(self, name: str) -> Measurement:
        """Return the measurement of a statistic by its name."""
        return next(measurement for measurement in self.measurements if measurement.name == name)

    def expected_error(self, confidence: float = 0.95) -> float | None:
        """Return the error that the only answer stays within.

        It is None if there are several answers, or if the error depends on the data, as that of a mean does. Preview
        the query with `if_rows=1000` to learn the error in a group of 1,000 rows.
        """
        if len(self.compiled) != 1:
            return None
        return self.expected_error_of(self.compiled[0], confidence)

    def expected_errors(self, confidence: float = 0.95) -> dict[str, float]:
        """Return the expected errors of all answers by name, as far as they are known.

        An error that depends on the data is known if the query was previewed with `if_rows=`.
        """
        found = {compiled.aggregate.name: self.expected_error_of(compiled, confidence) for compiled in self.compiled}
        known = {name: error for name, error in found.items() if error is not None}
        return {**{name: _quantile(errors, confidence) for name, errors in self.errors_if_rows}, **known}

    def expected_error_of(self, compiled: CompiledAggregate, confidence: float = 0.95) -> float | None:
        """Return the expected error of one aggregate, or None if it depends on data of which nothing was said."""
        for name, errors in self.errors_if_rows:
            if name == compiled.aggregate.name:
                return _quantile(errors, confidence)
        if len(compiled.statistics) != 1 or not self.measurements or self.query.rollup:
            return None
        measurement = self.measurement(next(iter(compiled.statistics.values())))
        if measurement.statistic.source == "basis":
            return None
        error = measurement.error(confidence) * measurement.grid.step
        if not compiled.aggregate.values or compiled.aggregate.values[0].integers:
            error = Fraction(math.ceil(error))  # the answer is a whole number, although its sum may be finer
        return float(error * compiled.aggregate.unit)

    def rows(self) -> Facts:
        """Return the rows of the plan's table."""
        return plan_rows(self)


def _quantile(errors: tuple[float, ...], confidence: float) -> float:
    """Return the least of these errors that this part of them does not exceed."""
    return errors[min(len(errors) - 1, math.ceil(confidence * len(errors)) - 1)]


def plan_of(query: Query, terms: Terms) -> Plan:
    """Return the plan of a query under a session's terms, or raise an error that says what is missing."""
    if query.keys and query.domain is None and not terms.native_delta:
        raise _no_delta(query)
    _check_spend(query)
    plan = _unsettled(query, terms) if wanted_estimates(query) else _plan(query, terms, None)
    check_price(terms, plan.cost)
    return plan


def _unsettled(query: Query, terms: Terms) -> Plan:
    """Return the plan of a query with caps or bounds to estimate. It knows the estimates and the whole price."""
    if query.spend.within is not None:
        raise InvalidParameterError(
            "within= needs caps and bounds that are known in advance. With 'auto', say epsilon= or share= instead."
        )
    allowances = allowances_of(terms, query.spend)
    if not allowances:
        raise no_option(terms, query.spend)
    # The measure that is likely to be better is fixed here, so that the price does not depend on the estimates.
    whole = min(allowances, key=lambda own: likely_noise(own, likely_groups(query)))
    estimates = estimates_of(query, whole, terms)
    main = whole.part(1 - sum((one.part for one in estimates), Fraction(0)))
    # A draft with made-up caps has the same columns and the same types of answers as the final plan.
    likely = replace(
        query,
        max_groups=1 if query.max_groups == "auto" else query.max_groups,
        max_rows=1 if query.max_rows == "auto" else query.max_rows,
    )
    draft = _plan(likely, terms, main, passes=_passes(estimates))
    return replace(draft, query=query, lanes=(), measurements=(), discovery=None, estimates=estimates, main=main)


def _passes(estimates: tuple[Estimate, ...]) -> int:
    """Return how often the rows are read: once for caps, once for bounds and once for the answers, as needed."""
    return 1 + len({one.value is None for one in estimates})


def settled(plan: Plan, found: Sequence[Found]) -> Plan:
    """Return the plan of the answers after the estimates. Its price is that of the whole query."""
    if plan.main is None:
        raise ValueError("this plan has nothing to estimate")
    after = _plan(settled_query(plan.query, found), plan.terms, plan.main, passes=_passes(plan.estimates))
    return replace(after, estimated=tuple(found), cost=plan.cost)


def _plan(query: Query, terms: Terms, allowance: Allowance | None, passes: int = 1, form: Form = "basis") -> Plan:
    bounds = bounds_of(query)
    discovers = bool(query.keys) and query.domain is None
    compilation = compile_query(query, bounds, terms, form)
    _check_wanted_error(query, compilation, discovers)
    noisy = with_totals(query, bounds, terms, compilation.statistics) if query.rollup else compilation.statistics
    wanted = [
        Wanted(weight=statistic.weight, sensitivity=statistic.sensitivity, prices=statistic.prices)
        for statistic in noisy
    ]
    by_rule = discovers and compilation.counted is None
    if by_rule:
        wanted = [replace(one, weight=one.weight * (1 - _DISCOVERY)) for one in wanted]
        wanted.append(Wanted(weight=_DISCOVERY, ranged=False))
    spend = query.spend
    if spend.within is not None:
        spend = replace(spend, within=spend.within / (noisy[0].grid.step * query.aggregates[0].unit))
    granted, cost = allot(terms, spend, wanted, allowance)
    measurements = tuple(
        Measurement(statistic=statistic, noise=one.noise, epsilon=one.epsilon)
        for statistic, one in zip(noisy, granted, strict=False)
    )
    if any(
        measurement.statistic.source == "basis" and measurement.noise and measurement.noise.mechanism == "gaussian"
        for measurement in measurements
    ):
        return _plan(query, terms, allowance, passes, form="split")
    delta = delta_for(query, terms, cost)
    unit_delta = unit_delta_for(query, terms, delta, passes)
    discovery = None
    if discovers:
        rule_epsilon = granted[-1].epsilon if by_rule else None
        counted = next((measurement for measurement in measurements if measurement.name == compilation.counted), None)
        discovery = _discovery(query, terms, bounds, counted, delta - unit_delta, rule_epsilon)
    used = unit_delta + (discovery.delta if discovery is not None else 0)
    return Plan(
        query=query,
        terms=terms,
        bounds=bounds,
        lanes=compilation.lanes,
        compiled=compilation.compiled,
        columns=compilation.columns,
        measurements=measurements,
        units=compilation.units,
        discovery=discovery,
        unit_delta=unit_delta,
        cost=cost + Cost(epsilon=Fraction(0), rho=Fraction(0), delta=used),
    )


def delta_for(query: Query, terms: Terms, cost: Cost) -> Fraction:
    """Return how much of the session's delta a query may use: as given, or the same share that the spend is."""
    if query.spend.delta is not None:
        return query.spend.delta
    share = query.spend.share if query.spend.share is not None else share_of(terms, cost)
    # This is slightly less than the share, so that shares that sum to 1 fit in spite of rounding.
    return terms.native_delta * Fraction(min(1.0, float(share)) * (1 - 1e-12))


def unit_delta_for(query: Query, terms: Terms, delta: Fraction, passes: int) -> Fraction:
    """Return the delta that hashing the units costs in this many passes, or 0 if units are compared exactly."""
    if query.integer_unit:
        return Fraction(0)
    changed = terms.group_size * (2 if terms.adjacency == "replace" else 1)
    price = passes * changed * _HASH_DELTA
    return price if price <= delta * _HASH_PART else Fraction(0)


def _discovery(
    query: Query, terms: Terms, bounds: Bounds, counted: Measurement | None, delta: Fraction, epsilon: Fraction | None
) -> Discovery:
    """Return how groups are chosen: by a noisy count that is released anyway, or by a rule with its own epsilon."""
    if counted is None or counted.noise is None:
        if epsilon is None:
            raise ValueError("neither a noisy count nor an epsilon can decide which groups are shown")
        own_epsilon, own_delta = _for_one_unit(epsilon, delta, terms.group_size)
        rule = partition_rule(own_epsilon, own_delta, bounds.max_groups, strategy="auto", adjacency=terms.adjacency)
        return Discovery(threshold=None, counted=None, rule=rule, delta=delta)
    touched = terms.group_size * bounds.max_groups * (2 if terms.adjacency == "replace" else 1)
    statistic = counted.statistic
    threshold = _threshold(counted.noise, delta, touched, max(1, len(statistic.columns)))
    threshold += (query.min_units - 1 + terms.group_size) * statistic.most
    return Discovery(threshold=threshold, counted=counted.name, rule=None, delta=delta)


def _for_one_unit(epsilon: Fraction, delta: Fraction, size: int) -> tuple[Fraction, Fraction]:
    """Return the guarantee for one unit that implies this one for `size` units together, by group privacy."""
    if size == 1:
        return epsilon, delta
    each = epsilon / size
    shrink = math.expm1(float(each)) / math.expm1(float(epsilon)) if epsilon < 500 else 0.0
    if delta * Fraction(shrink) < MIN_DELTA:
        raise InvalidParameterError(
            "The delta is too small to discover keys for this group_size. Give the public keys with keys=[...]."
        )
    return each, delta * Fraction(shrink * (1 - 1e-12))


def _threshold(noise: Noise, delta: Fraction, touched: int, terms: int) -> int:
    """Return the smallest m such that the noise of all `touched` groups stays below m, except with probability delta.

    For a sum of several noises, m comes from a Chernoff bound and is slightly larger than necessary.
    """
    each = -math.expm1(math.log1p(-float(delta)) / touched) * (1 - 1e-9)
    if terms > 1:
        if noise.mechanism != "laplace":
            raise ValueError("a basis needs Laplace noise")
        return laplace_sum_threshold(noise.parameter, terms, each)
    if noise.mechanism == "laplace":
        scale = noise.parameter
        return least_threshold(lambda m: laplace_tail(scale, m), each, float(scale) * math.log(1 / each))
    sigma = math.sqrt(noise.parameter)
    return least_threshold(lambda m: gaussian_tail(sigma, m), each, 5 * sigma)


def _check_spend(query: Query) -> None:
    spend = query.spend
    if spend.share is not None and not 0 < spend.share <= 1:
        raise InvalidParameterError(
            f"share= is a fraction of the session's budget, above 0 and up to 1, but it is {float(spend.share):g}."
        )


def _check_wanted_error(query: Query, compilation: Compilation, discovers: bool) -> None:
    if query.spend.within is None:
        return
    if len(query.aggregates) > 1:
        raise InvalidParameterError(
            "within= is the wanted error of one answer. For several answers, say epsilon= or share= instead."
        )
    kind = query.aggregates[0].kind
    if len(compilation.statistics) > 1 or compilation.statistics[0].source in ("choice", "basis"):
        raise InvalidParameterError(
            f"The error of a {kind} depends on how many rows a group has. Add the size of a typical group, for example "
            "if_rows=1000, or say epsilon= or share= instead of within=."
        )
    if discovers and compilation.counted is None:
        raise InvalidParameterError(
            f"within= for a {kind} needs public keys. Pass keys=[...], or say epsilon= instead."
        )


def _no_delta(query: Query) -> InvalidParameterError:
    names = ", ".join(key.name for key in query.keys)
    return InvalidParameterError(
        f"Which values of {names} exist is private, and this session has no delta to discover them with. Give the "
        "public values with keys=[...], use an Enum or Boolean column, or open the session with a delta.",
        code="no-delta-for-keys",
    )
