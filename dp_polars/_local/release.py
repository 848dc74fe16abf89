"""Randomized responses: a row of each unit is chosen and its value randomized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.polars.rows import PrivateRows
from dp_polars._local.plan import ResponsePlan
from dp_polars._release.charge import release_once
from dp_polars._release.snapshot import take_snapshot
from dp_polars._sampling import SYSTEM_BITS, BitSource
from dp_polars._session.release_record import Release
from dp_polars._session.session import Session
from dp_polars.mechanisms.randomized_response import codes_of


def run_responses(
    plan: ResponsePlan, rows: PrivateRows, session: Session, *, name: Callable[[], bytes], fresh: bool
) -> Release:
    """Return the stored responses to a question on a source, or charge the plan's price and make some."""
    return release_once(
        session,
        plan.cost,
        plan.label(),
        name=name,
        fresh=fresh,
        make=lambda: (responses_of(plan, rows, SYSTEM_BITS), plan),
    )


def responses_of(plan: ResponsePlan, rows: PrivateRows, source: BitSource) -> pl.DataFrame:
    """Return one randomized response of each unit, in random order; `rows` has `unit0`, ... and `value`."""
    units = [f"unit{i}" for i in range(len(plan.unit))]
    snapshot = take_snapshot(rows, units, source, max_rows=1)
    codes = codes_of(snapshot.of_units()["value"], plan.categories)
    responses = plan.channel.respond_to_any(codes, source)
    # In the order of the rows, a response could be told to be a certain person's, or rows of one source be joined to
    # those of another. Shuffled, they are no more than the number of each category.
    shuffled = responses[permutation(len(responses), source)]
    return plan.categories.gather(shuffled).alias(plan.name).to_frame()


def permutation(size: int, source: BitSource) -> NDArray[Any]:
    """Return the numbers below `size` in an order that is exactly uniform: that of random words, all different."""
    while True:
        words = source.words(size, np.uint64)
        order = np.argsort(words)
        ranked = words[order]
        if not (ranked[1:] == ranked[:-1]).any():
            return order
