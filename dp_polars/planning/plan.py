"""A plan: everything that will happen to a query, known before a row is read.

`plan_of` is the one function from a query to a plan. It can be previewed, printed and priced; it holds no data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from dp_polars.accounting.cost import NOTHING, Cost
from dp_polars.accounting.filters import share_of
from dp_polars.accounting.pricing import pure_cost
from dp_polars.accounting.terms import Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.accuracy import gaussian_tail, laplace_tail, least_threshold
from dp_polars.mechanisms.partitions import PartitionRule, partition_rule
from dp_polars.planning.bounds import Bounds, bounds_of
from dp_polars.planning.grid import COUNTS, Grid, grid_of
from dp_polars.planning.query import Query, Spend
from dp_polars.planning.sensitivity import Sensitivity, sensitivity_of
from dp_polars.planning.spend import Noise, choose_noise, epsilon_of_rho, part_of
from dp_polars.quantities import MIN_DELTA

Column = Literal["rows", "units", "total"]

# A mean is a noisy sum about the middle of the bounds over a noisy count. With the true mean anywhere in the bounds,
# the error of the ratio is least when the sum gets this part of the spend: 1 / (1 + (1/3)**(1/3)).
_SUM_OF_MEAN = Fraction(3, 5)
# A sum does not show which groups have a unit; a third of its spend decides which may be shown.
_DISCOVERY_OF_SUM = Fraction(1, 3)


# Units that are no integers are told apart by a hash of 79 bits or more. With up to 2**40 units, one of them shares its
# hash with another with at most this probability; then two units would count as one.
_HASH_DELTA = Fraction(1, 2**39)
# A query whose delta would hardly notice pays that; any other has its units told apart exactly, which is slower.
_HASH_PART = Fraction(1, 1000)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One noisy vector of a release: which aggregate, on which grid, how sensitive, with which noise."""

    column: Column
    grid: Grid
    sensitivity: Sensitivity
    noise: Noise


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """How groups that come from the data are chosen: a noisy count above `threshold`, or a rule on the unit counts."""

    threshold: int | None
    rule: PartitionRule | None
    delta: Fraction


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a query will do and cost. Prints as a table; made by `preview` without spending anything."""

    query: Query
    terms: Terms
    bounds: Bounds
    parts: tuple[Part, ...]
    discovery: Discovery | None
    unit_delta: Fraction
    """What telling units apart by a hash costs; 0 if they are told apart exactly."""
    cost: Cost

    def expected_error(self, confidence: float = 0.95) -> float | None:
        """Return the error that an answer stays within, where it doesn't depend on the data (not for means)."""
        if len(self.parts) != 1:
            return None
        part = self.parts[0]
        return float(part.noise.error(confidence) * part.grid.step)

    def __str__(self) -> str:
        from dp_polars.planning.show import plan_text

        return plan_text(self)

    def __repr__(self) -> str:
        return str(self)


def plan_of(query: Query, terms: Terms) -> Plan:
    """Return the plan of a query under a session's terms, or raise with what is missing."""
    bounds = bounds_of(query, terms)
    if query.keys and query.domain is None and not terms.native_delta:
        raise _no_delta(query)
    _check_spend(query)
    discovers = bool(query.keys) and query.domain is None
    spend, selection = query.spend, None
    if discovers and query.aggregate == "sum":
        spend, selection = part_of(spend, 1 - _DISCOVERY_OF_SUM), part_of(spend, _DISCOVERY_OF_SUM)
    parts = _parts(query, terms, bounds, spend)
    cost = sum((part.noise.cost for part in parts), NOTHING)
    delta = _delta(query, terms, cost)
    unit_delta = _unit_delta(query, terms, delta)
    discovery = None
    if discovers:
        discovery, price = _discovery(query, terms, bounds, parts, delta - unit_delta, selection)
        cost = cost + price
    cost = cost + Cost(epsilon=Fraction(0), rho=Fraction(0), delta=unit_delta)
    return Plan(
        query=query, terms=terms, bounds=bounds, parts=parts, discovery=discovery, unit_delta=unit_delta, cost=cost
    )


def _delta(query: Query, terms: Terms, cost: Cost) -> Fraction:
    """Return how much of the session's delta a query may use: as said, or as large a part as its noise takes."""
    if query.spend.delta is not None:
        return query.spend.delta
    # A hair below the share, so that shares which sum to 1 fit although floats round.
    return terms.native_delta * Fraction(min(1.0, share_of(terms, cost)) * (1 - 1e-12))


def _unit_delta(query: Query, terms: Terms, delta: Fraction) -> Fraction:
    """Return what it costs to tell the units of a query apart by a hash, 0 if it is done exactly."""
    if query.integer_unit:
        return Fraction(0)
    changed = terms.group_size * (2 if terms.adjacency == "replace" else 1)
    price = changed * _HASH_DELTA
    return price if price <= delta * _HASH_PART else Fraction(0)


def _parts(query: Query, terms: Terms, bounds: Bounds, spend: Spend) -> tuple[Part, ...]:
    def part(column: Column, grid: Grid, own: Spend) -> Part:
        sensitivity = sensitivity_of(bounds, terms, grid.low, grid.high)
        return Part(
            column=column,
            grid=grid,
            sensitivity=sensitivity,
            noise=choose_noise(terms, sensitivity, own, grid.step),
        )

    grid = grid_of(query, bounds.max_rows)
    if query.aggregate == "mean":
        return (
            part("total", grid, part_of(spend, _SUM_OF_MEAN)),
            part("rows", COUNTS, part_of(spend, 1 - _SUM_OF_MEAN)),
        )
    columns: dict[str, Column] = {"count": "rows", "count_units": "units", "sum": "total"}
    return (part(columns[query.aggregate], grid, spend),)


def _discovery(
    query: Query, terms: Terms, bounds: Bounds, parts: tuple[Part, ...], delta: Fraction, selection: Spend | None
) -> tuple[Discovery, Cost]:
    """Return how groups are chosen and what that costs on top of the noise."""
    if selection is not None:
        epsilon = _selection_epsilon(terms, selection)
        own_epsilon, own_delta = _for_one_unit(epsilon, delta, terms.group_size)
        rule = partition_rule(own_epsilon, own_delta, bounds.max_groups, strategy="auto", adjacency=terms.adjacency)
        return Discovery(threshold=None, rule=rule, delta=delta), pure_cost(epsilon, delta=delta)
    touched = terms.group_size * bounds.max_groups * (2 if terms.adjacency == "replace" else 1)
    counted = parts[-1]
    threshold = _threshold(counted.noise, delta, touched)
    threshold += (query.min_units - 1 + terms.group_size) * bounds.max_rows
    free = Cost(epsilon=Fraction(0), rho=Fraction(0), delta=delta)
    return Discovery(threshold=threshold, rule=None, delta=delta), free


def _for_one_unit(epsilon: Fraction, delta: Fraction, size: int) -> tuple[Fraction, Fraction]:
    """Return the guarantee for one unit that gives this one for `size` units together (group privacy)."""
    if size == 1:
        return epsilon, delta
    each = epsilon / size
    shrink = math.expm1(float(each)) / math.expm1(float(epsilon)) if epsilon < 500 else 0.0
    if delta * Fraction(shrink) < MIN_DELTA:
        raise InvalidParameterError("No keys can be discovered for so large a group_size; give them with keys=[...].")
    return each, delta * Fraction(shrink * (1 - 1e-12))


def _threshold(noise: Noise, delta: Fraction, touched: int) -> int:
    """Return the least m such that `touched` groups of no one else all stay below m but for probability delta."""
    each = -math.expm1(math.log1p(-float(delta)) / touched) * (1 - 1e-9)
    if noise.mechanism == "laplace":
        scale = noise.parameter
        return least_threshold(lambda m: laplace_tail(scale, m), each, float(scale) * math.log(1 / each))
    sigma = math.sqrt(noise.parameter)
    return least_threshold(lambda m: gaussian_tail(sigma, m), each, 5 * sigma)


def _selection_epsilon(terms: Terms, selection: Spend) -> Fraction:
    if selection.epsilon is not None:
        return selection.epsilon
    rho = selection.rho if selection.rho is not None else (selection.share or Fraction(0)) * terms.rho_allowed
    epsilon = epsilon_of_rho(rho)
    if epsilon is None:
        raise InvalidParameterError("This spend is too small to discover keys; give the public keys with keys=[...].")
    return epsilon


def _check_spend(query: Query) -> None:
    spend = query.spend
    if spend.within is not None and query.aggregate == "mean":
        raise InvalidParameterError(
            "within= works where the noise doesn't depend on the data (count, count_units, sum); the error of a mean "
            "depends on how many rows there are. Say epsilon= or share=."
        )
    if spend.within is not None and query.keys and query.domain is None and query.aggregate == "sum":
        raise InvalidParameterError("within= on a sum needs public keys: pass keys=[...], or say epsilon=.")
    if spend.share is not None and not 0 < spend.share <= 1:
        raise InvalidParameterError(
            f"share= is a part of the session's budget, above 0 and up to 1, got {float(spend.share):g}."
        )


def _no_delta(query: Query) -> InvalidParameterError:
    names = ", ".join(key.name for key in query.keys)
    return InvalidParameterError(
        f"Which values of {names} exist is private, and this session has no delta to discover them with. Give the "
        "public values with keys=[...], use an Enum or Boolean column, or open the session with a delta."
    )
