"""Estimate caps and bounds from one number of each unit. `_plan.auto` explains why this is private."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import polars as pl

from dp_polars._engines.request import LIMIT, BoundedRequest, Cells, Exact, Lane, Profile, ValueColumn
from dp_polars._plan.auto import MOVES, Estimate, What, scores_of, wanted_beyond
from dp_polars._plan.plan import Plan
from dp_polars._sampling import BitSource
from dp_polars.mechanisms.selection import choose_exponential


def requests_for(plan: Plan) -> list[BoundedRequest]:
    """Return what the engine has to look up: how many groups and rows each unit has, and one of its values."""
    query = plan.query
    hashed = plan.unit_delta > 0
    found = []
    profiles = tuple(
        Profile(name=one.what, of="groups" if one.what == "max_groups" else "rows", most=int(one.candidates[-1]) + 1)
        for one in plan.estimates
        if one.value is None
    )
    if profiles:
        found.append(
            BoundedRequest(
                units=len(query.unit),
                keys=len(query.keys),
                max_groups=None,
                domain=query.engine_domain(),
                lanes=(Lane(profiles=profiles),),
                hashed_units=hashed,
            )
        )
    lanes = tuple(_rung_lane(plan, one) for one in plan.estimates if one.what == "upper")
    if lanes:
        found.append(
            BoundedRequest(
                units=len(query.unit), keys=0, max_groups=None, domain=None, lanes=lanes, hashed_units=hashed
            )
        )
    return found


def _rung_lane(plan: Plan, estimate: Estimate) -> Lane:
    if estimate.value is None:
        raise ValueError("this estimate is not about a value")
    place = [value.expression for value in plan.columns].index(estimate.value.expression)
    edges = _edges(estimate)
    column = ValueColumn(place=place, low=0, high=len(edges) - 2, kind="bin", edges=edges)
    return Lane(columns=(column,), cells=Cells(name=estimate.value.expression, max_rows=1 if plan.query.unit else None))


def _edges(estimate: Estimate) -> tuple[float, ...]:
    """Return edges of bins that separate the values below, at and above each candidate."""
    if estimate.value is not None and estimate.value.dtype.is_float():
        floats = [float(candidate) for candidate in estimate.candidates]
        above = [math.nextafter(number, math.inf) for number in floats]
        return (-math.inf, *sorted({*floats, *above}), math.inf)
    whole = [int(candidate) for candidate in estimate.candidates]
    return (-LIMIT, *sorted({*whole, *(number + 1 for number in whole)}), LIMIT)


def estimated(plan: Plan, look_up: Callable[[BoundedRequest], Exact], source: BitSource) -> dict[Estimate, Fraction]:
    """Estimate the caps and bounds that a plan leaves open, each by the exponential mechanism."""
    cells: dict[str, pl.DataFrame] = {}
    for request in requests_for(plan):
        cells |= look_up(request).cells
    found: dict[Estimate, Fraction] = {}
    caps: dict[What, int] = {}
    for estimate in plan.estimates:
        beyond, units = _beyond(estimate, cells), _units(estimate, cells)
        if plan.main is None:
            raise ValueError("this plan has nothing to estimate")
        scores = scores_of(estimate, beyond, wanted_beyond(estimate, plan.query, plan.main, caps), units)
        # Adding or removing one unit moves all scores within a range of width MOVES. Replacing a unit removes one and
        # adds another, and a group of units moves the scores as many times as far.
        added = plan.terms.adjacency == "add_remove"
        rate = estimate.epsilon / ((MOVES if added else 2 * MOVES) * plan.terms.group_size)
        chosen = estimate.candidates[choose_exponential(np.array(scores, np.int64), rate, source)]
        found[estimate] = chosen
        if estimate.value is None:
            caps[estimate.what] = int(chosen)
    return found


def _units(estimate: Estimate, cells: dict[str, pl.DataFrame]) -> int:
    """Return how many units have a number for this estimate."""
    return int(cells[estimate.what if estimate.value is None else estimate.value.expression]["count"].sum())


def _beyond(estimate: Estimate, cells: dict[str, pl.DataFrame]) -> list[int]:
    """Return how many units lie above each candidate, or below it for a lower bound."""
    if estimate.value is None:
        table = cells[estimate.what]
        values, counts = table["value"].to_numpy(), table["count"].to_numpy()
        return [int(counts[values > int(candidate)].sum()) for candidate in estimate.candidates]
    table = cells[estimate.value.expression]
    bins, counts = table["value"].to_numpy(), table["count"].to_numpy()
    lows = np.array(_edges(estimate)[:-1])[bins] if len(bins) else np.zeros(0)
    if estimate.what == "upper":
        return [int(counts[lows > float(candidate)].sum()) for candidate in estimate.candidates]
    return [int(counts[lows < float(candidate)].sum()) for candidate in estimate.candidates]
