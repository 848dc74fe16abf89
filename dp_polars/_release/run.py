"""Run a planned query: estimate the caps and bounds that are open, aggregate, add noise, and release."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import polars as pl

from dp_polars._aggregates.cut import CutByBounds, outside_bounds
from dp_polars._engines.request import BoundedRequest, Exact, Lane
from dp_polars._engines.rows import PrivateRows
from dp_polars._expressions import Column
from dp_polars._plan.auto import Found
from dp_polars._plan.contribution import ContributionBounds
from dp_polars._plan.description import unreliable_texts
from dp_polars._plan.plan import Plan, settled
from dp_polars._plan.query import Query
from dp_polars._plan.units_needed import nothing_shown_text
from dp_polars._release.answers import present
from dp_polars._release.auto import estimated
from dp_polars._release.charge import Drawing, Identity, release_once
from dp_polars._release.noise import noisy_aggregates
from dp_polars._release.small_groups import small_groups
from dp_polars._sampling import SYSTEM_BITS
from dp_polars._session.releases import Chosen, Draw, Release
from dp_polars._session.session import Session
from dp_polars.errors import DPWarning

ExactAnswers = Callable[[PrivateRows, BoundedRequest], Exact]
"""A function that returns the exact bounded aggregates of rows: `Engine.aggregate`, or a stand-in for it."""


def run_plan(make: QueryRun, session: Session, *, identity: Identity, fresh: bool) -> Release:
    """Return the release of a planned query: a stored one, or a new one that is charged."""
    release = release_once(session, make.plan, identity=identity, fresh=fresh, make=make)
    if isinstance(release.plan, Plan):
        warn_of_estimates(release.plan)
        warn_of_small_groups(release.plan)
    warn_if_empty(release, make.plan)
    return release


def warn_of_estimates(plan: Plan) -> None:
    """Warn of caps and bounds that were estimated from too few units. Their answers may be wrong by any amount."""
    for name, why in unreliable_texts(plan) if plan.estimated else ():
        advice = f"{name}=" if " " not in name else "max_rows="
        advice = "bounds=" if name.startswith("bounds") else advice
        warnings.warn(
            f"The {name} may be far from the data: {why}. They may cut off most of the data, so confidence= gives no "
            f"interval here (null). Give {advice} yourself, or spend more on this query.",
            DPWarning,
            stacklevel=first_level_outside(),
        )


def warn_of_small_groups(plan: Plan) -> None:
    """Warn of answers that tell next to nothing, unless their intervals, which are then wide, tell it."""
    if plan.query.interval is not None or not plan.too_small:
        return
    for _, text in plan.small_rows():
        warnings.warn(f"Too small for the noise: {text}.", DPWarning, stacklevel=first_level_outside())


def warn_if_empty(release: Release, plan: Plan) -> None:
    """Warn if keys were discovered and no group is shown.

    What one unit can change: nothing beyond the release. Whether a released frame has rows is known to whoever gets it,
    and the text follows from the plan.
    """
    if not plan.query.keys or plan.query.domain is not None or release.frame.height:
        return
    made = release.plan if isinstance(release.plan, Plan) else plan
    warnings.warn(nothing_shown_text(made, release.label), DPWarning, stacklevel=first_level_outside())


def first_level_outside() -> int:
    """Return the level of the stack at which the user's own code called this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "dp_polars":
        level, frame = level + 1, frame.f_back
    return level


@dataclass(frozen=True, repr=False)
class QueryRun(Drawing):
    """The work between the charge for a query and its release: read exact numbers, then add noise.

    `rows` has the columns that a bounded request names.
    """

    plan: Plan
    rows: PrivateRows
    engine: ExactAnswers
    drawn: bytes

    def draw(self) -> Draw:
        """Return the noisy numbers of the groups that are shown, and the caps and bounds that were estimated."""
        exact, final = self.read()
        estimates = tuple(Chosen(estimate.chosen, estimate.units) for estimate in final.estimated)
        return Draw(noisy_aggregates(exact, final, SYSTEM_BITS), estimates)

    def show(self, draw: Draw) -> tuple[pl.DataFrame, Plan]:
        """Return the frame to release, and the plan with the estimated caps and bounds."""
        found = [
            Found(estimate=estimate, chosen=stored.values, units=stored.units)
            for estimate, stored in zip(self.plan.estimates, draw.estimates, strict=True)
        ]
        final = settled(self.plan, found) if found else self.plan
        return present(draw.numbers, final), replace(final, too_small=small_groups(draw.numbers, final))

    def read(self) -> tuple[Exact, Plan]:
        """Return the exact bounded aggregates, which are private, and the plan with the estimated caps and bounds."""
        look_up = partial(self.engine, self.rows)
        plan = self.plan
        if not plan.estimates:
            return look_up(request_of(plan)), plan
        final = settled(plan, estimated(plan, look_up, SYSTEM_BITS))
        return self.engine(self._rows_of(final), request_of(final)), final

    def _rows_of(self, final: Plan) -> PrivateRows:
        """Return the rows, with what lies outside estimated bounds where `cut=True` counts it.

        What one unit can change: the same as for bounds that were given. Each of its rows says 0 or 1 for itself.
        """
        counted = [one.aggregate.values[0] for one in final.compiled if isinstance(one.aggregate, CutByBounds)]
        if not counted:
            return self.rows
        names = {column.expression: f"value{place}" for place, column in enumerate(final.columns)}
        outside = outside_bounds(
            final.query.aggregates, lambda expression: Column(names[expression], self.rows.schema[names[expression]])
        )
        return self.rows if outside is None else self.rows.make({names[counted[0].expression]: outside})


def request_of(plan: Plan) -> BoundedRequest:
    """Return what the engine has to compute for a plan."""
    return bounded_request(plan.query, plan.bounds, plan.lanes, plan.unit_delta)


def bounded_request(
    query: Query,
    bounds: ContributionBounds,
    lanes: tuple[Lane, ...],
    unit_delta: Fraction,
    *,
    capped_keys: int | None = None,
) -> BoundedRequest:
    """Return a request for the lanes of a query. Units are told apart by a hash if a delta was paid for that.

    `capped_keys` is the number of first keys that the cap on groups is about; None means all of them.
    """
    return BoundedRequest(
        units=len(query.unit),
        keys=len(query.keys),
        max_groups=bounds.max_groups if bounds.enforce_groups else None,
        domain=query.engine_domain(),
        lanes=lanes,
        hashed_units=unit_delta > 0,
        capped_keys=capped_keys,
    )
