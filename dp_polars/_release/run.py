"""From the plan of a query to its release: estimate what is left open, aggregate, add noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import polars as pl

from dp_polars._engines.polars import run_bounded
from dp_polars._engines.polars.rows import PrivateRows
from dp_polars._engines.request import BoundedRequest, Exact
from dp_polars._plan.plan import Plan, settled
from dp_polars._release.answers import present
from dp_polars._release.auto import estimated
from dp_polars._release.charge import release_once
from dp_polars._release.noise import noisy_aggregates
from dp_polars._sampling import SYSTEM_BITS
from dp_polars._session.release_record import Release
from dp_polars._session.session import Session

Engine = Callable[[PrivateRows, BoundedRequest], Exact]
"""Returns the exact bounded aggregates of rows."""


def run_plan(
    plan: Plan,
    rows: PrivateRows,
    session: Session,
    *,
    name: Callable[[], bytes],
    fresh: bool,
    engine: Engine | None = None,
) -> Release:
    """Return the release of a planned question; `rows` has the columns that a bounded request names."""
    make = QueryRun(plan, rows, engine or run_bounded)
    return release_once(session, plan.cost, plan.label(), name=name, fresh=fresh, make=make)


@dataclass(frozen=True, repr=False)
class QueryRun:
    """What happens between the charge for a query and its release, in two halves: read exactly, then add noise."""

    plan: Plan
    rows: PrivateRows
    engine: Engine

    def __call__(self) -> tuple[pl.DataFrame, Plan]:
        """Return what may be released, and the plan with what was estimated."""
        exact, final = self.read()
        return present(noisy_aggregates(exact, final, SYSTEM_BITS), final), final

    def read(self) -> tuple[Exact, Plan]:
        """Return the exact bounded aggregates, which are private, and the plan after what was left open is known."""
        look_up = partial(self.engine, self.rows)
        plan = self.plan
        final = settled(plan, estimated(plan, look_up, SYSTEM_BITS)) if plan.estimates else plan
        return look_up(request_of(final)), final


def request_of(plan: Plan) -> BoundedRequest:
    """Return what the engine has to do for a plan."""
    query, bounds = plan.query, plan.bounds
    return BoundedRequest(
        units=len(query.unit),
        keys=len(query.keys),
        max_groups=bounds.max_groups if bounds.enforce_groups else None,
        domain=query.engine_domain(),
        lanes=plan.lanes,
        hashed_units=plan.unit_delta > 0,
    )
