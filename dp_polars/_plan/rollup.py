"""Totals of a table over its last keys. Each level gets its own noise, and then all levels are made to agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from dp_polars._plan.contribution import ContributionBounds
from dp_polars._plan.query import Query
from dp_polars._plan.sensitivity import sensitivity_of_rollup
from dp_polars._plan.statistics import Statistic
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError

LEVEL = "level"
"""The column that says how many of the keys a row is for."""


def level_name(name: str, level: int, levels: int) -> str:
    """Return the name of a statistic's totals over all but the first `level` keys."""
    return name if level == levels else f"{name}@{level}"


def with_totals(
    query: Query, bounds: ContributionBounds, terms: Terms, statistics: Sequence[Statistic]
) -> tuple[Statistic, ...]:
    """Return statistics with their totals. Every level gets the same share of the spend."""
    if not query.keys or query.domain is None:
        raise InvalidParameterError(
            "rollup=True needs public keys, because totals agree with their groups only if all groups are shown. Pass "
            "keys= with a row for each combination of keys, or group by Enum and Boolean columns."
        )
    if any(statistic.source not in ("sum", "basis") or statistic.what == "units" for statistic in statistics):
        raise InvalidParameterError(
            "rollup=True works for aggregates of sums: count, sum, mean, var, std, cov, corr and linear_regression."
        )
    if query.interval is not None:
        raise InvalidParameterError("No interval is known for totals that are made to agree. Ask without confidence=.")
    if LEVEL in {key.name for key in query.keys} | {aggregate.name for aggregate in query.aggregates}:
        raise InvalidParameterError(f"rollup=True adds a column {LEVEL}, and the result has one already. Rename yours.")
    levels = len(query.keys)
    found = []
    for statistic in statistics:
        if statistic.sensitivity is None:
            raise ValueError("a choice has no totals")
        for level in range(levels + 1):
            sensitivity = statistic.sensitivity
            if level < levels:
                sensitivity = sensitivity_of_rollup(bounds, terms, sensitivity, _leaves(query.domain, level))
            name = level_name(statistic.name, level, levels)
            found.append(
                replace(
                    statistic, name=name, weight=statistic.weight / (levels + 1), sensitivity=sensitivity, level=level
                )
            )
    return tuple(found)


def _leaves(domain: pl.DataFrame, level: int) -> int:
    """Return the largest number of keys that share their first `level` columns."""
    if level == 0:
        return domain.height
    counts = domain.group_by(domain.columns[:level]).len()["len"]
    return int(counts.max())  # type: ignore[arg-type]
