"""Add noise to exact aggregates. This is the step between what is private and what is released."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._aggregates.base import Shape
from dp_polars._engines.request import Exact
from dp_polars._plan.plan import Measurement, Plan
from dp_polars._plan.statistics import Statistic
from dp_polars._release.quantiles import choose_values
from dp_polars._release.rollup import agreeing, exact_totals, level_measurements, tree_of
from dp_polars._sampling import BitSource, discrete_gaussian, discrete_laplace
from dp_polars.mechanisms._grid import add_saturating
from dp_polars.mechanisms.partitions import apply_rule

Numbers = NDArray[np.int64]


def noisy_aggregates(exact: Exact, plan: Plan, source: BitSource) -> pl.DataFrame:
    """Return the key columns and a column for each noisy statistic. Discovered groups may be left out.

    `exact` must have been bounded as the plan says. Columns that the plan has no noise for are dropped here. A
    statistic with several numbers for each group (a basis, bins, quantiles) becomes a list or an array.
    """
    keys = [f"key{i}" for i in range(len(plan.query.keys))]
    if plan.query.rollup:
        return _noisy_with_totals(exact, plan, keys, source)
    noisy = [
        pl.Series(measurement.statistic.name, _noisy(_vector(exact, measurement.statistic), measurement, source))
        for measurement in plan.measurements
        if measurement.noise
    ]
    columns = pl.DataFrame([*(exact.groups[key] for key in keys), *noisy])
    rows = np.arange(exact.groups.height)
    if plan.discovery is not None:
        shown = _shown(exact, columns, plan, source)
        columns, rows = columns.filter(pl.Series(shown, dtype=pl.Boolean)), np.flatnonzero(shown)
    chosen = [
        pl.Series(
            measurement.name,
            choose_values(exact.cells[cells], rows, measurement.statistic, measurement.epsilon, source),
        )
        for measurement, cells in _choices(plan)
    ]
    lists = [series.cast(pl.List(pl.Int64)) for series in chosen]
    return columns.hstack(lists) if columns.width else pl.DataFrame(lists)


def _noisy_with_totals(exact: Exact, plan: Plan, keys: list[str], source: BitSource) -> pl.DataFrame:
    """Return the noisy statistics of a table and its totals, which agree. `level` is the number of keys of a row."""
    parents, rows = tree_of(keys, exact.groups)
    shown = {
        name
        for compiled in plan.compiled
        if compiled.aggregate.shape is Shape.LINEAR
        for name in compiled.statistics.values()
    }
    columns = []
    for measurement in plan.measurements:
        if measurement.statistic.level == len(keys):
            levels = level_measurements(plan, measurement.name)
            variances = [level.noise.deviation**2 for level in levels]
            # Sums of whole numbers are shown as whole numbers, so they have to agree after rounding.
            whole = (
                1 << max(0, -measurement.grid.exponent)
                if measurement.name in shown and _whole(measurement, plan)
                else 1
            )
            sums = []
            for name in measurement.statistic.columns or (measurement.name,):
                vectors = exact_totals(exact, name, parents)
                noisy = [_noisy(vector, level, source) for vector, level in zip(vectors, levels, strict=True)]
                sums.append(np.concatenate(agreeing(noisy, variances, parents, whole)[::-1]))
            columns.append(
                pl.Series(measurement.name, np.stack(sums, axis=1) if measurement.statistic.columns else sums[0])
            )
    return rows.hstack(columns)


def _whole(measurement: Measurement, plan: Plan) -> bool:
    """Tell whether a measurement is a sum of whole numbers."""
    compiled = next(compiled for compiled in plan.compiled if measurement.name in compiled.statistics.values())
    return measurement.statistic.source == "sum" and all(value.integers for value in compiled.aggregate.values)


def _choices(plan: Plan) -> list[tuple[Measurement, str]]:
    """Return the measurements that are choices, each with the name of its cells."""
    cells = {
        compiled.statistics[role]: compiled.statistics["cells"]
        for compiled in plan.compiled
        for role in ("values", "ends")
        if role in compiled.statistics
    }
    return [(measurement, cells[measurement.name]) for measurement in plan.measurements if measurement.noise is None]


def _vector(exact: Exact, statistic: Statistic) -> Numbers:
    """Return the exact numbers of a statistic: one per group, or one per group and bin, or per group and basis sum."""
    if statistic.source == "sum":
        return exact.groups[statistic.name].to_numpy()
    if statistic.source == "basis":
        return exact.groups.select(statistic.columns).to_numpy()
    cells, groups = exact.cells[statistic.name], exact.groups.height
    if statistic.source == "distinct":
        return np.bincount(cells["group"].to_numpy(), minlength=groups).astype(np.int64)
    table = np.zeros((groups, statistic.bins), np.int64)
    table[cells["group"].to_numpy(), cells["value"].to_numpy()] = cells["count"].to_numpy()
    return table


def _noisy(values: Numbers, measurement: Measurement, source: BitSource) -> Any:
    if measurement.noise is None:
        raise ValueError("a choice has no noise")
    draw = discrete_laplace if measurement.noise.mechanism == "laplace" else discrete_gaussian
    return add_saturating(values.ravel(), draw(measurement.noise.parameter, values.size, source)).reshape(values.shape)


def _shown(exact: Exact, noisy: pl.DataFrame, plan: Plan, source: BitSource) -> NDArray[Any]:
    """Return which discovered groups are shown. A group in which no unit is left after bounding is never shown."""
    if plan.discovery is None:
        raise ValueError("a plan with public keys shows every group")
    units = exact.groups[plan.units].to_numpy()
    if plan.discovery.rule is not None:
        return apply_rule(plan.discovery.rule, units, plan.query.min_units, source)
    column = noisy[plan.discovery.counted or ""]
    counted = column.to_numpy()
    if counted.ndim == 2:  # the sums of a basis are added as Python integers, which never overflow
        counted = counted.astype(object).sum(axis=1)
    return (counted >= plan.discovery.threshold) & (units > 0)
