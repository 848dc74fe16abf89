"""Add noise to exact aggregates. This is the step between what is private and what is released."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._aggregates.base import Shape
from dp_polars._engines.request import Exact
from dp_polars._plan.plan import Part, Plan
from dp_polars._release.quantiles import choose_values
from dp_polars._release.rollup import agreeing, exact_totals, level_parts, tree_of
from dp_polars._sampling import BitSource, discrete_gaussian, discrete_laplace
from dp_polars.mechanisms._grid import add_saturating
from dp_polars.mechanisms.partitions import apply_rule

Numbers = NDArray[np.int64]


def noisy_aggregates(exact: Exact, plan: Plan, source: BitSource) -> pl.DataFrame:
    """Return the key columns and a column for each noisy statistic. Of discovered groups, only some are shown.

    `exact` must have been bounded as the plan says. Columns that the plan has no noise for are dropped here. A
    statistic with several numbers for each group (a basis, bins, quantiles) becomes a list or an array.
    """
    keys = [f"key{i}" for i in range(len(plan.query.keys))]
    if plan.query.rollup:
        return _noisy_with_totals(exact, plan, keys, source)
    noisy = [pl.Series(part.name, _noisy(_vector(exact, part), part, source)) for part in plan.parts if part.noise]
    columns = pl.DataFrame([*(exact.groups[key] for key in keys), *noisy])
    rows = np.arange(exact.groups.height)
    if plan.discovery is not None:
        shown = _shown(exact, columns, plan, source)
        columns, rows = columns.filter(pl.Series(shown, dtype=pl.Boolean)), np.flatnonzero(shown)
    chosen = [
        pl.Series(part.name, choose_values(exact.cells[cells], rows, part.piece, part.epsilon, source))
        for part, cells in _choices(plan)
    ]
    lists = [series.cast(pl.List(pl.Int64)) for series in chosen]
    return columns.hstack(lists) if columns.width else pl.DataFrame(lists)


def _noisy_with_totals(exact: Exact, plan: Plan, keys: list[str], source: BitSource) -> pl.DataFrame:
    """Return the noisy statistics of a table and its totals, which agree. `level` is the number of keys of a row."""
    parents, rows = tree_of(keys, exact.groups)
    shown = {name for made in plan.made if made.aggregate.shape is Shape.LINEAR for name in made.pieces.values()}
    columns = []
    for part in plan.parts:
        if part.piece.level == len(keys):
            levels = level_parts(plan, part.name)
            variances = [own.noise.deviation**2 for own in levels]
            # Sums of whole numbers are shown as whole numbers, so they have to agree after rounding.
            whole = 1 << max(0, -part.grid.exponent) if part.name in shown and _whole(part, plan) else 1
            sums = []
            for name in part.piece.columns or (part.name,):
                vectors = exact_totals(exact, name, parents)
                noisy = [_noisy(vector, own, source) for vector, own in zip(vectors, levels, strict=True)]
                sums.append(np.concatenate(agreeing(noisy, variances, parents, whole)[::-1]))
            columns.append(pl.Series(part.name, np.stack(sums, axis=1) if part.piece.columns else sums[0]))
    return rows.hstack(columns)


def _whole(part: Part, plan: Plan) -> bool:
    """Tell whether a measurement is a sum of whole numbers."""
    made = next(made for made in plan.made if part.name in made.pieces.values())
    return part.piece.source == "sum" and all(value.integers for value in made.aggregate.values)


def _choices(plan: Plan) -> list[tuple[Part, str]]:
    """Return the measurements that are choices, each with the name of its cells."""
    cells = {made.pieces["values"]: made.pieces["cells"] for made in plan.made if "values" in made.pieces}
    return [(part, cells[part.name]) for part in plan.parts if part.noise is None]


def _vector(exact: Exact, part: Part) -> Numbers:
    """Return the exact numbers of a statistic: one per group, or one per group and bin, or per group and basis sum."""
    if part.piece.source == "sum":
        return exact.groups[part.name].to_numpy()
    if part.piece.source == "basis":
        return exact.groups.select(part.piece.columns).to_numpy()
    cells, groups = exact.cells[part.name], exact.groups.height
    if part.piece.source == "distinct":
        return np.bincount(cells["group"].to_numpy(), minlength=groups).astype(np.int64)
    table = np.zeros((groups, part.piece.bins), np.int64)
    table[cells["group"].to_numpy(), cells["value"].to_numpy()] = cells["count"].to_numpy()
    return table


def _noisy(values: Numbers, part: Part, source: BitSource) -> Any:
    if part.noise is None:
        raise ValueError("a choice has no noise")
    draw = discrete_laplace if part.noise.mechanism == "laplace" else discrete_gaussian
    return add_saturating(values.ravel(), draw(part.noise.parameter, values.size, source)).reshape(values.shape)


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
