"""Randomized responses after their charge. No other module of this folder sees exact values."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.registry import engine_for
from dp_polars._engines.rows import PrivateRows
from dp_polars._local.plan import ResponsePlan
from dp_polars._release.charge import Identity, release_once
from dp_polars._sampling import SYSTEM_BITS, BitSource
from dp_polars._session.releases import Release
from dp_polars._session.session import Session
from dp_polars.mechanisms.randomized_response import codes_of


def run_responses(
    plan: ResponsePlan, rows: PrivateRows, session: Session, *, identity: Identity, fresh: bool
) -> Release:
    """Return the stored responses of a source, or charge the plan's price and draw them."""
    return release_once(
        session, plan, identity=identity, fresh=fresh, make=lambda: (responses_of(plan, rows, SYSTEM_BITS), plan)
    )


def responses_of(plan: ResponsePlan, rows: PrivateRows, source: BitSource) -> pl.DataFrame:
    """Return one randomized response for each unit, in random order. `rows` has `unit0`, ... and `value`."""
    units = [f"unit{i}" for i in range(len(plan.unit))]
    snapshot = engine_for(rows).snapshot(rows, units, source, max_rows=1)
    codes = codes_of(snapshot.kept_rows()["value"], plan.categories)
    responses = plan.channel.respond_to_any(codes, source)
    # In the order of the rows, a response could be traced to a certain person, or joined to the responses of another
    # question. Shuffled, the responses say no more than how often each category occurs.
    shuffled = responses[permutation(len(responses), source)]
    return plan.categories.gather(shuffled).alias(plan.name).to_frame()


def permutation(size: int, source: BitSource) -> NDArray[Any]:
    """Return a uniformly random order of the numbers below `size`: the order of random words without ties."""
    while True:
        words = source.words(size, np.uint64)
        order = np.argsort(words)
        ranked = words[order]
        if not (ranked[1:] == ranked[:-1]).any():
            return order
