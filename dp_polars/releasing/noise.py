"""Noise on exact aggregates: the one step between what is private and what is released."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars.mechanisms.grid import add_saturating
from dp_polars.mechanisms.partitions import apply_rule
from dp_polars.planning.plan import Part, Plan
from dp_polars.sampling import BitSource, discrete_gaussian, discrete_laplace


def noisy_aggregates(exact: pl.DataFrame, plan: Plan, source: BitSource) -> pl.DataFrame:
    """Return the key columns and the noisy parts; of discovered groups, those that may be shown.

    `exact` must have been bounded as the plan says. Columns that the plan has no noise for are dropped here.
    """
    keys = [f"key{i}" for i in range(len(plan.query.keys))]
    noisy = pl.DataFrame(
        [
            *(exact[key] for key in keys),
            *(pl.Series(part.column, _noisy(exact[part.column].to_numpy(), part, source)) for part in plan.parts),
        ]
    )
    if plan.discovery is None:
        return noisy
    return noisy.filter(pl.Series(_shown(exact, noisy, plan, source), dtype=pl.Boolean))


def _noisy(values: NDArray[np.int64], part: Part, source: BitSource) -> NDArray[np.int64]:
    draw = discrete_laplace if part.noise.mechanism == "laplace" else discrete_gaussian
    return add_saturating(values, draw(part.noise.parameter, len(values), source))


def _shown(exact: pl.DataFrame, noisy: pl.DataFrame, plan: Plan, source: BitSource) -> NDArray[Any]:
    """Return which discovered groups may be shown; a group without a kept unit never is."""
    if plan.discovery is None:
        raise ValueError("a plan with public keys shows every group")
    units = exact["units"].to_numpy()
    if plan.discovery.rule is not None:
        return apply_rule(plan.discovery.rule, units, plan.query.min_units, source)
    counted = noisy[plan.parts[-1].column].to_numpy()
    return (counted >= plan.discovery.threshold) & (units > 0)
