"""Estimate caps and bounds from one number of each unit. `_plan.auto` explains why this is private."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal

import numpy as np
import polars as pl

from dp_polars._engines.request import LIMIT, BoundedRequest, Cells, Exact, Lane, Profile, ValueColumn
from dp_polars._plan.auto import Estimate, Found, What, scores_of, wanted_beyond
from dp_polars._plan.auto_bounds import Sides, bound_scores, pair_of
from dp_polars._plan.plan import Plan
from dp_polars._sampling import BitSource, discrete_laplace
from dp_polars.mechanisms.selection import choose_exponential

_PROFILES: dict[What, Literal["groups", "rows", "all rows"]] = {
    "max_groups": "groups",
    "max_rows_per_group": "rows",
    "max_rows": "all rows",
}


def requests_for(plan: Plan) -> list[BoundedRequest]:
    """Return what the engine has to look up: how many groups and rows each unit has, and one of its values."""
    query = plan.query
    hashed = plan.unit_delta > 0
    found = []
    profiles = tuple(
        Profile(
            name=estimate.what,
            of=_PROFILES[estimate.what],
            most=int(estimate.candidates[-1]) + 1,
        )
        for estimate in plan.estimates
        if estimate.value is None
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
    lanes = tuple(_rung_lane(plan, estimate) for estimate in plan.estimates if estimate.what == "bounds")
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


def estimated(plan: Plan, look_up: Callable[[BoundedRequest], Exact], source: BitSource) -> list[Found]:
    """Estimate the caps and bounds that a plan leaves open: count the units, then choose by the exponential mechanism.

    What one unit can change: the count by one, and the scores within the range that `Estimate.rate` is made for.
    """
    cells: dict[str, pl.DataFrame] = {}
    for request in requests_for(plan):
        cells |= look_up(request).cells
    if plan.main is None:
        raise ValueError("this plan has nothing to estimate")
    found: list[Found] = []
    caps: dict[What, int] = {}
    for estimate in plan.estimates:
        wanted = wanted_beyond(estimate, plan.query, plan.main, caps)
        noise = int(discrete_laplace(estimate.count_scale, 1, source)[0])
        if estimate.value is None:
            units = _units(estimate, cells)
            noisy = max(0, units + noise)
            scores = np.array(scores_of(estimate, _beyond(estimate, cells), wanted, units, noisy), np.int64)
            chosen = estimate.candidates[choose_exponential(scores, estimate.rate, source)]
            caps[estimate.what] = int(chosen)
            found.append(Found(estimate=estimate, chosen=(chosen,), units=noisy))
        else:
            sides = _sides(estimate, cells)
            noisy = max(0, sides.positive + sides.negative + noise)
            scores = bound_scores(estimate, sides, wanted[0], noisy)
            pair = pair_of(estimate, choose_exponential(scores, estimate.rate, source))
            found.append(Found(estimate=estimate, chosen=pair, units=noisy))
    return found


def _units(estimate: Estimate, cells: dict[str, pl.DataFrame]) -> int:
    """Return how many units have a number of groups or rows."""
    return int(cells[estimate.what]["count"].sum())


def _beyond(estimate: Estimate, cells: dict[str, pl.DataFrame]) -> list[int]:
    """Return how many units lie above each candidate for a cap."""
    table = cells[estimate.what]
    values, counts = table["value"].to_numpy(), table["count"].to_numpy()
    return [int(counts[values > int(candidate)].sum()) for candidate in estimate.candidates]


def _sides(estimate: Estimate, cells: dict[str, pl.DataFrame]) -> Sides:
    """Return how many units lie above and below each candidate for a bound, and above and below 0."""
    if estimate.value is None:
        raise ValueError("this estimate is not about a value")
    table, edges = cells[estimate.value.expression], _edges(estimate)
    below = np.zeros(len(edges), np.int64)
    np.add.at(below, table["value"].to_numpy() + 1, table["count"].to_numpy().astype(np.int64))
    below = np.cumsum(below)  # how many units lie below each edge; the bin at a candidate has the values that equal it
    exact = estimate.value.dtype.is_float()
    places = [edges.index(float(candidate) if exact else int(candidate)) for candidate in estimate.candidates]
    under = below[places]
    above = below[-1] - below[np.array(places) + 1]
    zero = estimate.candidates.index(Fraction(0))
    return Sides(above=above, below=under, positive=int(above[zero]), negative=int(under[zero]))
