"""A plan: everything that will happen to a query, known before a row is read.

`plan_of` is the one function from a query to a plan. It can be previewed, printed and priced; it holds no data. Where
caps or bounds are to be estimated, it says so and what the whole will cost; `settled` is the plan once they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dp_polars._aggregates.values import Value
from dp_polars._engines.request import Lane
from dp_polars._numbers import MIN_DELTA
from dp_polars._plan.auto import (
    Estimate,
    estimates_of,
    likely_groups,
    likely_noise,
    settled_query,
    wanted_estimates,
)
from dp_polars._plan.base import BasePlan, Facts
from dp_polars._plan.compile import pieces_of
from dp_polars._plan.contribution import Bounds, bounds_of
from dp_polars._plan.description import plan_rows
from dp_polars._plan.grid import Grid
from dp_polars._plan.query import Query
from dp_polars._plan.rollup import with_totals
from dp_polars._plan.sensitivity import Sensitivity
from dp_polars._plan.spend import Allowance, Noise, Wanted, allot, allowances_of, no_option
from dp_polars._plan.statistics import Form, Made, Piece, Pieces
from dp_polars._session.cost import Cost
from dp_polars._session.filters import share_of
from dp_polars._session.prices import check_price
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.accuracy import gaussian_tail, laplace_sum_threshold, laplace_tail, least_threshold
from dp_polars.mechanisms.partitions import PartitionRule, partition_rule

# What is released of each group need not show which groups have a unit; then a third of the spend decides which may be.
_DISCOVERY = Fraction(1, 3)


# Units that are no integers are told apart by a hash of 79 bits or more. With up to 2**40 units, one of them shares its
# hash with another with at most this probability; then two units would count as one. That assumes that the engine's
# hashes, with two independent secret seeds, behave like random functions: a heuristic, no theorem.
_HASH_DELTA = Fraction(1, 2**39)
# A query whose delta would hardly notice pays that; any other has its units told apart exactly, which is slower.
_HASH_PART = Fraction(1, 1000)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a release with its noise, or with the epsilon of each choice."""

    piece: Piece
    noise: Noise | None
    epsilon: Fraction

    @property
    def name(self) -> str:
        """The piece's name."""
        return self.piece.name

    @property
    def grid(self) -> Grid:
        """What a step stands for."""
        return self.piece.grid

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one unit moves it."""
        if self.piece.sensitivity is None:
            raise ValueError("a choice has no sensitivity")
        return self.piece.sensitivity

    def error(self, confidence: float) -> int:
        """Return the steps within which the noise stays with this confidence."""
        if self.noise is None:
            raise ValueError("a choice has no noise")
        return self.noise.error(confidence)


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """How groups that come from the data are chosen: a noisy count above `threshold`, or a rule on the unit counts."""

    threshold: int | None
    counted: str | None
    rule: PartitionRule | None
    delta: Fraction


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(BasePlan):
    """What a query will do and cost. Prints as a table; made by `preview` without spending anything.

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
    made: tuple[Made, ...]
    columns: tuple[Value, ...]
    parts: tuple[Part, ...]
    units: str
    discovery: Discovery | None
    unit_delta: Fraction
    """What telling units apart by a hash costs; 0 if they are told apart exactly."""
    estimates: tuple[Estimate, ...] = ()
    """What is estimated before the rest is known; then there are no parts yet."""
    estimated: tuple[tuple[Estimate, Fraction], ...] = ()
    """What was estimated."""
    main: Allowance | None = None
    """What is left of the spend for the answers, where something is estimated first."""

    def subject(self) -> Query:
        """Return whose rows the question is about."""
        return self.query

    def title(self) -> str:
        """Return the question in a few words."""
        return self.query.title()

    def fingerprint(self) -> bytes:
        """Return bytes that are equal for equal questions, in every process."""
        return self.query.fingerprint()

    def part(self, name: str) -> Part:
        """Return a part by its name."""
        return next(part for part in self.parts if part.name == name)

    def expected_error(self, confidence: float = 0.95) -> float | None:
        """Return the error that an answer stays within, where it doesn't depend on the data (not for means)."""
        if len(self.made) != 1:
            return None
        return self.expected_error_of(self.made[0], confidence)

    def expected_errors(self, confidence: float = 0.95) -> dict[str, float]:
        """Return the expected error of each answer by its name, where it is known without looking at the data."""
        found = {made.aggregate.name: self.expected_error_of(made, confidence) for made in self.made}
        return {name: error for name, error in found.items() if error is not None}

    def expected_error_of(self, made: Made, confidence: float = 0.95) -> float | None:
        """Return the expected error of one aggregate."""
        if len(made.pieces) != 1 or not self.parts or self.query.rollup:
            return None
        part = self.part(next(iter(made.pieces.values())))
        if part.piece.source == "basis":
            return None
        error = part.error(confidence) * part.grid.step
        if not made.aggregate.values or made.aggregate.values[0].integers:
            error = Fraction(math.ceil(error))  # a whole number, whose sums may have been finer
        return float(error * made.aggregate.unit)

    def rows(self) -> Facts:
        """Return what it says of itself, as names and texts."""
        return plan_rows(self)


def plan_of(query: Query, terms: Terms) -> Plan:
    """Return the plan of a query under a session's terms, or raise with what is missing."""
    if query.keys and query.domain is None and not terms.native_delta:
        raise _no_delta(query)
    _check_spend(query)
    plan = _unsettled(query, terms) if wanted_estimates(query) else _plan(query, terms, None)
    check_price(terms, plan.cost)
    return plan


def _unsettled(query: Query, terms: Terms) -> Plan:
    """Return the plan of a query that leaves something to be estimated: what that is, and the price of it all."""
    if query.spend.within is not None:
        raise InvalidParameterError("within= needs caps and bounds that are known; say epsilon= or share= with 'auto'.")
    allowances = allowances_of(terms, query.spend)
    if not allowances:
        raise no_option(terms, query.spend)
    # In the measure that is likely to be better; it is fixed, so the price is the same whatever is found.
    whole = min(allowances, key=lambda own: likely_noise(own, likely_groups(query)))
    estimates = estimates_of(query, whole)
    main = whole.part(1 - sum((one.part for one in estimates), Fraction(0)))
    # What the rest will be like but for its numbers: the columns and the types of the answer.
    likely = replace(
        query,
        max_groups=1 if query.max_groups == "auto" else query.max_groups,
        max_rows=1 if query.max_rows == "auto" else query.max_rows,
    )
    draft = _plan(likely, terms, main, passes=_passes(estimates))
    return replace(draft, query=query, lanes=(), parts=(), discovery=None, estimates=estimates, main=main)


def _passes(estimates: tuple[Estimate, ...]) -> int:
    """Return how often the rows are read: for caps, for values, and for the answers."""
    return 1 + len({one.value is None for one in estimates})


def settled(plan: Plan, found: dict[Estimate, Fraction]) -> Plan:
    """Return the plan of the rest, once everything is estimated. Its price is that of the whole."""
    if plan.main is None:
        raise ValueError("nothing is estimated")
    after = _plan(settled_query(plan.query, found), plan.terms, plan.main, passes=_passes(plan.estimates))
    return replace(after, estimated=tuple(found.items()), cost=plan.cost)


def _plan(query: Query, terms: Terms, allowance: Allowance | None, passes: int = 1, form: Form = "basis") -> Plan:
    bounds = bounds_of(query)
    discovers = bool(query.keys) and query.domain is None
    pieces = pieces_of(query, bounds, terms, form)
    _check_wanted_error(query, pieces, discovers)
    noisy = with_totals(query, bounds, terms, pieces.pieces) if query.rollup else pieces.pieces
    wanted = [Wanted(weight=piece.weight, sensitivity=piece.sensitivity, prices=piece.prices) for piece in noisy]
    by_rule = discovers and pieces.counted is None
    if by_rule:
        wanted = [replace(one, weight=one.weight * (1 - _DISCOVERY)) for one in wanted]
        wanted.append(Wanted(weight=_DISCOVERY, ranged=False))
    spend = query.spend
    if spend.within is not None:
        spend = replace(spend, within=spend.within / (noisy[0].grid.step * query.aggregates[0].unit))
    granted, cost = allot(terms, spend, wanted, allowance)
    parts = tuple(
        Part(piece=piece, noise=one.noise, epsilon=one.epsilon) for piece, one in zip(noisy, granted, strict=False)
    )
    if any(part.piece.source == "basis" and part.noise and part.noise.mechanism == "gaussian" for part in parts):
        return _plan(query, terms, allowance, passes, form="split")
    delta = delta_for(query, terms, cost)
    unit_delta = unit_delta_for(query, terms, delta, passes)
    discovery = None
    if discovers:
        rule_epsilon = granted[-1].epsilon if by_rule else None
        counted = next((part for part in parts if part.name == pieces.counted), None)
        discovery = _discovery(query, terms, bounds, counted, delta - unit_delta, rule_epsilon)
    used = unit_delta + (discovery.delta if discovery is not None else 0)
    return Plan(
        query=query,
        terms=terms,
        bounds=bounds,
        lanes=pieces.lanes,
        made=pieces.made,
        columns=pieces.columns,
        parts=parts,
        units=pieces.units,
        discovery=discovery,
        unit_delta=unit_delta,
        cost=cost + Cost(epsilon=Fraction(0), rho=Fraction(0), delta=used),
    )


def delta_for(query: Query, terms: Terms, cost: Cost) -> Fraction:
    """Return how much of the session's delta a query may use: as said, or as large a part as its noise takes."""
    if query.spend.delta is not None:
        return query.spend.delta
    # A hair below the share, so that shares which sum to 1 fit although floats round.
    return terms.native_delta * Fraction(min(1.0, share_of(terms, cost)) * (1 - 1e-12))


def unit_delta_for(query: Query, terms: Terms, delta: Fraction, passes: int) -> Fraction:
    """Return what it costs to tell the units of a query apart by a hash in so many passes, 0 if it is done exactly."""
    if query.integer_unit:
        return Fraction(0)
    changed = terms.group_size * (2 if terms.adjacency == "replace" else 1)
    price = passes * changed * _HASH_DELTA
    return price if price <= delta * _HASH_PART else Fraction(0)


def _discovery(
    query: Query, terms: Terms, bounds: Bounds, counted: Part | None, delta: Fraction, epsilon: Fraction | None
) -> Discovery:
    """Return how groups are chosen: by a noisy count that is there anyway, or by a rule of its own epsilon."""
    if counted is None or counted.noise is None:
        if epsilon is None:
            raise ValueError("neither a count nor a spend decides which groups are shown")
        own_epsilon, own_delta = _for_one_unit(epsilon, delta, terms.group_size)
        rule = partition_rule(own_epsilon, own_delta, bounds.max_groups, strategy="auto", adjacency=terms.adjacency)
        return Discovery(threshold=None, counted=None, rule=rule, delta=delta)
    touched = terms.group_size * bounds.max_groups * (2 if terms.adjacency == "replace" else 1)
    piece = counted.piece
    threshold = _threshold(counted.noise, delta, touched, max(1, len(piece.columns)))
    threshold += (query.min_units - 1 + terms.group_size) * piece.most
    return Discovery(threshold=threshold, counted=counted.name, rule=None, delta=delta)


def _for_one_unit(epsilon: Fraction, delta: Fraction, size: int) -> tuple[Fraction, Fraction]:
    """Return the guarantee for one unit that gives this one for `size` units together (group privacy)."""
    if size == 1:
        return epsilon, delta
    each = epsilon / size
    shrink = math.expm1(float(each)) / math.expm1(float(epsilon)) if epsilon < 500 else 0.0
    if delta * Fraction(shrink) < MIN_DELTA:
        raise InvalidParameterError("No keys can be discovered for so large a group_size; give them with keys=[...].")
    return each, delta * Fraction(shrink * (1 - 1e-12))


def _threshold(noise: Noise, delta: Fraction, touched: int, terms: int) -> int:
    """Return the least m such that `touched` groups of no one else all stay below m but for probability delta.

    Of a sum of several noises it is a Chernoff bound, m a little larger than need be.
    """
    each = -math.expm1(math.log1p(-float(delta)) / touched) * (1 - 1e-9)
    if terms > 1:
        if noise.mechanism != "laplace":
            raise ValueError("a basis has Laplace noise")
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
            f"share= is a part of the session's budget, above 0 and up to 1, got {float(spend.share):g}."
        )


def _check_wanted_error(query: Query, pieces: Pieces, discovers: bool) -> None:
    if query.spend.within is None:
        return
    if len(query.aggregates) > 1:
        raise InvalidParameterError("within= is a wanted error of one answer; for several say epsilon= or share=.")
    kind = query.aggregates[0].kind
    if len(pieces.pieces) > 1 or pieces.pieces[0].source in ("choice", "basis"):
        raise InvalidParameterError(
            "within= works where the noise doesn't depend on the data (count, count_units, n_unique, sum, histogram); "
            f"the error of a {kind} depends on how many rows there are. Say epsilon= or share=."
        )
    if discovers and pieces.counted is None:
        raise InvalidParameterError(f"within= on a {kind} needs public keys: pass keys=[...], or say epsilon=.")


def _no_delta(query: Query) -> InvalidParameterError:
    names = ", ".join(key.name for key in query.keys)
    return InvalidParameterError(
        f"Which values of {names} exist is private, and this session has no delta to discover them with. Give the "
        "public values with keys=[...], use an Enum or Boolean column, or open the session with a delta.",
        code="no-delta-for-keys",
    )
