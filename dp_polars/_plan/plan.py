"""A plan: everything that will happen to a query, known before a row is read.

`plan_of` is the only function that turns a query into a plan. A plan can be previewed, printed and priced, and it holds
no data. If caps or bounds are still to be estimated, the plan says so and knows the whole price. `settled` returns the
plan of the rest once they are known.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product

from dp_polars._aggregates.base import Aggregate
from dp_polars._aggregates.values import Value
from dp_polars._engines.request import Lane
from dp_polars._plan.auto import (
    Estimate,
    Found,
    depends_on,
    estimates_of,
    likely_groups,
    likely_noise,
    settled_query,
    wanted_estimates,
)
from dp_polars._plan.base import Facts, StoredPlan
from dp_polars._plan.canonical import canonical_order
from dp_polars._plan.compile import compile_query
from dp_polars._plan.contribution import ContributionBounds, contribution_bounds
from dp_polars._plan.cut import CUT, WEIGHTS, cut_text, weights_text
from dp_polars._plan.description import (
    caps_in_words,
    error_in_short,
    noise_in_short,
    plan_rows,
    small_rows,
    unreliable_texts,
    vague_errors,
)
from dp_polars._plan.discovery import Discovery, best_ways, discovery_by_count, discovery_by_rule, wanted_noise
from dp_polars._plan.grid import Grid
from dp_polars._plan.query import Query, Spend
from dp_polars._plan.rollup import with_totals
from dp_polars._plan.sensitivity import Sensitivity
from dp_polars._plan.spend import Allowance, Measure, Noise, Wanted, allot, allowances_of, no_option
from dp_polars._plan.statistics import Compilation, CompiledAggregate, Form, Statistic, Way
from dp_polars._plan.units_needed import SMALLER, needed_rows
from dp_polars._session.cost import Cost
from dp_polars._session.filters import share_of
from dp_polars._session.prices import check_price
from dp_polars._session.suggestions import Suggestions
from dp_polars._session.terms import Terms
from dp_polars.errors import Code, InvalidParameterError

_SOME_GROUPS, _SOME_ROWS = (1, 3, 10, 30), (1, 10, 100)  # caps that a preview tries if they are to be estimated

# Units that are not integers are told apart by a hash of at least 79 bits. Among up to 2**40 units, this bounds the
# probability that a given unit has the same hash as another one, which makes both count as one. It assumes that the
# engine's hashes, with two independent secret seeds, behave like random functions, which is a heuristic, not a theorem.
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


@dataclass(frozen=True)
class SmallGroups:
    """An answer that tells next to nothing in some groups, because their noise is as large as its range.

    Attributes
    ----------
    answer
        What the answer is, in words.
    count, of
        The number of such groups, and of all groups that are shown.
    names
        A few of them; empty if there are no keys.
    """

    answer: str
    count: int
    of: int
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(StoredPlan):
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
    bounds: ContributionBounds
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
    profile: Suggestions | None = None
    """What an adopted profile tells about these keys and values, by their expressions in the query."""
    if_rows: int | None = None
    """The number of rows in a group for which the errors of all answers were computed."""
    errors_if_rows: tuple[tuple[str, tuple[float, ...]], ...] = ()
    """For such a group: errors at evenly spread points of their distribution, in rising order, by answer."""
    too_small: tuple[SmallGroups, ...] = field(default=(), compare=False)
    """Once noisy numbers are released: the answers that tell next to nothing in some groups."""

    def subject(self) -> Query:
        """Return whose rows the question is about."""
        return self.query

    def groups_of_a_unit(self) -> int | None:
        """Return the number of groups that a unit counts in at most, or None if it is still to be estimated."""
        return None if self.estimates and not self.estimated else self.bounds.max_groups

    def asked_spend(self) -> Spend:
        """Return what the question may cost, as the user said it."""
        return self.query.spend

    def questions(self) -> tuple[str, ...]:
        """Return the kinds of the aggregates that were asked for."""
        return tuple(aggregate.kind for aggregate in self.query.aggregates if not aggregate.hidden)

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
        """Return the expected error of one aggregate, or None if it depends on the data and no group size was given."""
        for name, errors in self.errors_if_rows:
            if name == compiled.aggregate.name:
                return _quantile(errors, confidence)
        if len(compiled.statistics) != 1 or not self.measurements or self.query.rollup:
            return None
        if not self.is_reliable(compiled.aggregate):
            return None
        measurement = self.measurement(next(iter(compiled.statistics.values())))
        if measurement.statistic.source == "basis":
            return None
        error = measurement.error(confidence) * measurement.grid.step
        if not compiled.aggregate.values or compiled.aggregate.values[0].integers:
            error = Fraction(math.ceil(error))  # the answer is a whole number, although its sum may be finer
        return float(error * compiled.aggregate.unit)

    def is_reliable(self, aggregate: Aggregate) -> bool:
        """Return whether all estimated caps and bounds that an aggregate depends on had enough units to learn from.

        This follows from the plan and from noisy counts of units, which are paid for and released. If it is False, caps
        and bounds may cut off most of the data, so the error of the answer is unknown and its interval is null.
        """
        return all(found.reliable or not depends_on(aggregate, found) for found in self.estimated)

    @property
    def units_needed(self) -> int | None:
        """How many units, each with one row, a discovered group needs to be shown half the time.

        It is None if keys are public, or if caps that decide it are still to be estimated.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> visits = pl.DataFrame({"user": [1, 2], "region": ["a", "b"]})
        >>> with dp.Session(epsilon=1.0, delta=1e-6, unit="user", max_groups=2):
        ...     plans = [visits.dp.preview.count_units("region", epsilon=epsilon) for epsilon in (0.5, 1.0)]
        >>> [plan.units_needed for plan in plans]
        [66, 32]
        """
        return None if self.discovery is None else self.discovery.units_needed

    def units_needed_by_caps(self) -> list[tuple[int, int, int]]:
        """Return how many units a discovered group needs, for a few values of the caps that are to be estimated.

        Each entry has a cap on groups, a cap on rows and the number of units. A cap that is known has one value. The
        list is empty if nothing is to be estimated, or if keys are public.
        """
        if self.main is None or not self.estimates or not self.query.keys or self.query.domain is not None:
            return []
        unknown = {estimate.what for estimate in self.estimates}
        groups = _SOME_GROUPS if "max_groups" in unknown else (self.bounds.max_groups,)
        rows = _SOME_ROWS if unknown & {"max_rows", "max_rows_per_group"} else (self.query.max_rows,)
        found = []
        for max_groups, max_rows in product(groups, rows):
            likely = replace(self.query, max_groups=max_groups, max_rows=max_rows)
            with contextlib.suppress(InvalidParameterError):  # the spend may be too small for large caps
                needed = _plan(likely, self.terms, self.main, _passes(self.estimates)).units_needed
                if needed is not None:
                    found.append((max_groups, max_rows if isinstance(max_rows, int) else 1, needed))
        return found

    def vague_errors(self) -> Facts:
        """Return the rows on errors that depend on the rows of a group, for the table of the release."""
        return vague_errors(self)

    def needed_rows(self) -> Facts:
        """Return the rows on how many units a discovered group needs, for the table of the release."""
        return needed_rows(self)

    def unreliable_rows(self) -> Facts:
        """Return the rows on caps and bounds that were estimated from too few units, for the table of the release."""
        return [("unreliable", f"{name}: {why}") for name, why in unreliable_texts(self)]

    def small_rows(self) -> Facts:
        """Return the rows on groups that are too small for their noise, for the table of the release."""
        return small_rows(self)

    def cut_off(self) -> str | None:
        """Return one line on what caps and bounds cut off, or how to learn it; None if nothing can be cut off."""
        return cut_text(self)

    def cut_rows(self) -> Facts:
        """Return the rows on what caps and bounds cut off and on what a cap does to means, for plans and releases."""
        found = [(CUT, cut_text(self)), (WEIGHTS, weights_text(self))]
        return [(name, text) for name, text in found if text is not None]

    def notes(self) -> Facts:
        """Return what a reader of the answer should know besides its noise."""
        rows = [*self.counted_rows(), *self.unreliable_rows(), *self.small_rows(), *self.cut_rows()]
        return [*self.needed_rows(), *rows]

    def notes_for_readers(self) -> Facts:
        """Return the notes for readers of the answer, without advice on how to learn what is unknown."""
        cut = {CUT: cut_text(self, ways=False)}
        rows = [*self.needed_rows(), *self.unreliable_rows(), *small_rows(self, ways=False), *self.cut_rows()]
        return [(name, cut.get(name) or text) for name, text in rows if name != SMALLER]

    def asked(self) -> str:
        """Return the question in a few words, without the counts of cut units that `cut=True` adds."""
        asked = tuple(aggregate for aggregate in self.query.aggregates if not aggregate.hidden)
        return replace(self.query, aggregates=asked).title()

    def caps_in_short(self) -> str:
        """Return how much of each unit counts, in one sentence."""
        return caps_in_words(self)

    def noise_in_short(self) -> str:
        """Return what hides a unit in the answer, in a few words."""
        return noise_in_short(self)

    def error_in_short(self) -> str:
        """Return how far off the answer may be, in a few words; empty if the plan does not know it."""
        return error_in_short(self)

    def rows(self) -> Facts:
        """Return the rows of the plan's table."""
        return plan_rows(self)


def _quantile(errors: tuple[float, ...], confidence: float) -> float:
    """Return the smallest of these errors that this fraction of them does not exceed."""
    return errors[min(len(errors) - 1, math.ceil(confidence * len(errors)) - 1)]


def plan_of(query: Query, terms: Terms) -> Plan:
    """Return the plan of a query under a session's terms, or raise an error that says what is missing."""
    if query.keys and query.domain is None and not terms.native_delta:
        raise _no_delta(query)
    _check_spend(query)
    plan = _unsettled(query, terms) if wanted_estimates(query, "pure") else _plan(query, terms, None)
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
    # The measure that is likely to be better is fixed here so that the price does not depend on the estimates.
    whole = min(allowances, key=lambda allowance: likely_noise(allowance, likely_groups(query)))
    estimates = estimates_of(_ordered(query), whole, terms)
    main = whole.part(1 - sum((estimate.part for estimate in estimates), Fraction(0)))
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
    return 1 + len({estimate.value is None for estimate in estimates})


def settled(plan: Plan, found: Sequence[Found]) -> Plan:
    """Return the plan of the answers after the estimates. Its price is that of the whole query."""
    if plan.main is None:
        raise ValueError("this plan has nothing to estimate")
    found, after = _affordable(plan, plan.main, found)
    if [column.expression for column in after.columns] != [column.expression for column in plan.columns]:
        raise ValueError("estimates must not change the order of the columns, which the engine reads by their places")
    return replace(
        after,
        estimated=tuple(found),
        cost=plan.cost,
        spent=plan.spent,
        given_label=plan.given_label,
        profile=plan.profile,
    )


def _affordable(plan: Plan, main: Allowance, found: Sequence[Found]) -> tuple[Sequence[Found], Plan]:
    """Return the estimates and the plan with them. Caps are lowered until their noise fits into 64 bits.

    This follows from the estimates, which are released, so it tells nothing else. It always ends with a plan: the draft
    that was made before the charge had caps of 1 and the widest bounds.
    """
    while True:
        try:
            return found, _plan(settled_query(plan.query, found), plan.terms, main, passes=_passes(plan.estimates))
        except InvalidParameterError as error:
            caps = [
                estimated
                for estimated in found
                if estimated.estimate.value is None and estimated.chosen[0] > estimated.estimate.candidates[0]
            ]
            code: Code = error.code
            if code != "noise-too-large" or not caps:
                raise
        largest = max(caps, key=lambda estimated: estimated.chosen[0])
        below = max(candidate for candidate in largest.estimate.candidates if candidate < largest.chosen[0])
        found = [replace(estimated, chosen=(below,)) if estimated is largest else estimated for estimated in found]


def _plan(query: Query, terms: Terms, allowance: Allowance | None, passes: int = 1) -> Plan:
    """Return the plan of a query whose caps and bounds are known.

    It is made for the aggregates in their canonical order. So the order in which they are listed changes neither the
    noise nor the names of the statistics, and noisy numbers are found again whatever that order was.
    """
    found = _plan_in_order(_ordered(query), terms, allowance, passes)
    places = canonical_order(query.aggregates)
    asked = sorted(zip(places, found.compiled, strict=True), key=lambda pair: pair[0])
    return replace(found, query=query, compiled=tuple(compiled for _, compiled in asked))


def _plan_in_order(query: Query, terms: Terms, allowance: Allowance | None, passes: int) -> Plan:
    """Return the plan of a query with the best way to discover keys, if it has to discover them."""
    bounds = contribution_bounds(query)
    if not query.keys or query.domain is not None:
        return _drafted(query, terms, bounds, allowance, passes)
    compilation = compile_query(query, bounds, terms, "basis")
    _check_wanted_error(query, compilation, discovers=True)
    allowances = [allowance] if allowance is not None else allowances_of(terms, query.spend)
    left = {allowance.measure: _delta_for_keys(query, terms, allowance.cost, passes) for allowance in allowances}
    problem = no_option(terms, query.spend)
    for candidate in best_ways(query, terms, bounds, compilation, allowances, left):
        try:
            return _drafted(
                query,
                terms,
                bounds,
                allowance,
                passes,
                way=candidate.way,
                measure=candidate.measure,
                form=candidate.form,
            )
        except InvalidParameterError as error:  # the spend is too small for this way
            problem = error
    raise problem


def _drafted(
    query: Query,
    terms: Terms,
    bounds: ContributionBounds,
    allowance: Allowance | None,
    passes: int,
    *,
    way: Way | None = None,
    measure: Measure | None = None,
    form: Form = "basis",
) -> Plan:
    """Return the plan of a query in which keys are public, or discovered in a given way."""
    compilation = compile_query(query, bounds, terms, form, way=way)
    if way is None:
        _check_wanted_error(query, compilation, discovers=False)
    noisy = with_totals(query, bounds, terms, compilation.statistics) if query.rollup else compilation.statistics
    wanted = [wanted_noise(statistic) for statistic in noisy]
    if way is not None and way.by == "rule":
        wanted.append(Wanted(weight=way.share, ranged=False))
    spend = query.spend
    if spend.within is not None:
        spend = replace(spend, within=spend.within / (noisy[0].grid.step * query.aggregates[0].unit))
    granted, cost = allot(terms, spend, wanted, allowance, measure)
    measurements = tuple(
        Measurement(statistic=statistic, noise=bought.noise, epsilon=bought.epsilon)
        for statistic, bought in zip(noisy, granted, strict=False)
    )
    if any(
        measurement.statistic.source == "basis" and measurement.noise and measurement.noise.mechanism == "gaussian"
        for measurement in measurements
    ):
        return _drafted(query, terms, bounds, allowance, passes, way=way, measure=measure, form="split")
    unit_delta = unit_delta_for(query, terms, cost, passes)
    discovery = None
    if way is not None:
        delta = _delta_for_keys(query, terms, cost, passes)
        counted = next((measurement for measurement in measurements if measurement.name == compilation.counted), None)
        if counted is None or counted.noise is None:
            discovery = discovery_by_rule(query, terms, bounds, way, granted[-1].epsilon, delta)
        else:
            discovery = discovery_by_count(query, terms, bounds, way, counted.statistic, counted.noise, delta)
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


def _ordered(query: Query) -> Query:
    """Return a query with its aggregates in the canonical order."""
    return replace(query, aggregates=tuple(query.aggregates[place] for place in canonical_order(query.aggregates)))


def _delta_for_keys(query: Query, terms: Terms, cost: Cost, passes: int) -> Fraction:
    """Return the delta that discovering keys may use: that of the query, less what telling units apart takes."""
    return delta_for(query, terms, cost) - unit_delta_for(query, terms, cost, passes)


def delta_for(query: Query, terms: Terms, cost: Cost) -> Fraction:
    """Return how much of the session's delta a query may use: as given, or the same share that the spend is."""
    if query.spend.delta is not None:
        return query.spend.delta
    share = query.spend.share if query.spend.share is not None else share_of(terms, cost)
    # This is slightly less than the share so that shares that sum to 1 fit in spite of rounding.
    return terms.native_delta * Fraction(min(1.0, float(share)) * (1 - 1e-12))


def unit_delta_for(query: Query, terms: Terms, cost: Cost, passes: int) -> Fraction:
    """Return the delta that hashing the units costs in this many passes, or 0 if units are compared exactly."""
    if query.integer_unit:
        return Fraction(0)
    changed = terms.group_size * (2 if terms.adjacency == "replace" else 1)
    price = passes * changed * _HASH_DELTA
    return price if price <= delta_for(query, terms, cost) * _HASH_PART else Fraction(0)


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
    if discovers and not compilation.counts:
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
