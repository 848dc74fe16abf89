"""From a plan to a release: reserve, aggregate, add noise, commit. In this order, here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import polars as pl

from dp_polars.accounting.release import Release
from dp_polars.accounting.session import Session
from dp_polars.engines.polars import run_bounded
from dp_polars.engines.request import BoundedRequest, Exact
from dp_polars.errors import EngineError
from dp_polars.planning.plan import Plan, settled
from dp_polars.releasing.estimate import estimated
from dp_polars.releasing.noise import noisy_aggregates
from dp_polars.releasing.present import present
from dp_polars.releasing.snapshot import guarded
from dp_polars.sampling import SYSTEM_BITS

Engine = Callable[[pl.LazyFrame, BoundedRequest], Exact]
"""Returns the exact bounded aggregates of rows."""


def run_plan(
    plan: Plan,
    rows: pl.LazyFrame,
    session: Session,
    *,
    name: Callable[[], bytes],
    fresh: bool,
    engine: Engine | None = None,
) -> Release:
    """Return the stored release of a question on a source, or charge the plan's price and make one.

    `rows` has the columns that a bounded request names; `name()` names the question and the source as it is now. An
    engine reads a source more than once, so one that changes in between is not released. Whatever happens after the
    charge, it stays.
    """
    key = name()
    if not fresh:
        stored = session.stored(key)
        if stored is not None:
            return stored
    with session.reserve(plan.cost, label=plan.query.label(), key=key) as reservation:
        look_up = partial(_aggregated, rows, engine=engine or run_bounded)
        if plan.estimates:
            plan = settled(plan, estimated(plan, look_up, SYSTEM_BITS))
        exact = look_up(request_of(plan))
        if name() != key:
            raise EngineError(
                "The source changed while it was read, so nothing is released; the charge stays. Ask again when nobody "
                "writes to it, or ask a copy."
            )
        release = reservation.commit(present(noisy_aggregates(exact, plan, SYSTEM_BITS), plan))
        session.remember(release, plan)
        return release


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
        capped_keys=None if plan.choosing is None else len(query.keys) - 1,
    )


def _aggregated(rows: pl.LazyFrame, request: BoundedRequest, engine: Engine) -> Exact:
    return guarded(lambda: engine(rows, request))
