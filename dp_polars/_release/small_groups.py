"""Groups that are too small for their noise: a mean there sits on a bound, or anywhere between them.

This is post-processing. What one unit can change: nothing beyond the release, because noisy numbers that are released,
and the plan, decide everything here.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._aggregates.base import Shape
from dp_polars._plan.plan import Plan, SmallGroups
from dp_polars._plan.statistics import CompiledAggregate
from dp_polars._release.noisy_numbers import NoisyNumbers

_CONFIDENCE = 0.95
_CLIPPED = 0.2  # a mean that is clipped to a bound tells little if its error is at least this part of half the width
_NAMED = 3  # groups that are named


def small_groups(noisy: pl.DataFrame, plan: Plan) -> tuple[SmallGroups, ...]:
    """Return the answers that tell next to nothing in some groups, with these groups."""
    if plan.query.rollup or not noisy.height:
        return ()
    found = []
    for compiled in plan.compiled:
        one = compiled.aggregate
        if one.hidden or not plan.is_reliable(one):
            continue
        small = _is_small(noisy, compiled, plan)
        if small is not None and small.any():
            names = [_name(row) for row in _keys(noisy, plan).filter(pl.Series(small)).head(_NAMED).iter_rows()]
            shown = tuple(names) if plan.query.keys else ()
            found.append(SmallGroups(one.title(), int(small.sum()), noisy.height, shown))
    return tuple(found)


def _is_small(noisy: pl.DataFrame, compiled: CompiledAggregate, plan: Plan) -> NDArray[np.bool_] | None:
    """Return in which groups the noise of an answer is as large as the range that it can have.

    It is None for counts and sums, whose expected error the release tells, and for chosen values, which have a rank.
    """
    numbers = NoisyNumbers(noisy, compiled, plan)
    if compiled.aggregate.shape not in (Shape.RATIO, Shape.SMOOTH):
        return None
    rows = numbers.rows().to_numpy()
    # The error of the rows and of each average, as a part of the rows and of the largest distance from the centre.
    noise = np.zeros(len(rows))
    for role, name in compiled.statistics.items():
        measurement = plan.measurement(name)
        if role == "basis":
            noise = np.maximum(noise, 2 * measurement.error(_CONFIDENCE) / (measurement.statistic.whole * rows))
        else:
            noise = np.maximum(noise, measurement.error(_CONFIDENCE) / (measurement.grid.largest * rows))
    return (noise >= 1) | (_is_clipped(numbers, compiled) & (noise >= _CLIPPED))


def _is_clipped(numbers: NoisyNumbers, compiled: CompiledAggregate) -> NDArray[np.bool_]:
    """Return in which groups a noisy mean lies on a bound or beyond it."""
    one = compiled.aggregate
    if one.shape is not Shape.RATIO:
        return np.zeros(numbers.frame.height, np.bool_)
    mean = numbers.average("x").to_numpy() + numbers.centre("x")
    lower, upper = float(one.values[0].lower), float(one.values[0].upper)
    return np.asarray((mean <= lower) | (mean >= upper))


def _keys(noisy: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    keys = [f"key{place}" for place in range(len(plan.query.keys))]
    return noisy.select(keys) if keys else pl.DataFrame({"group": [0] * noisy.height})


def _name(row: tuple[object, ...]) -> str:
    return ", ".join("null" if value is None else str(value) for value in row)
