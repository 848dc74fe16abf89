"""Many releases of one query at once: its exact aggregates are stacked and go through the library's own noise path.

Each copy is a separate set of groups, so all copies pass through `noisy_aggregates` or `choose_rows` as the groups of
one large release would. There is no second implementation of any mechanism here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._audit.samples import ColumnCodes, Floats, Names, Samples, joined
from dp_polars._choices.plan import ChoicePlan
from dp_polars._choices.release import OWN, ChoiceRun, choose_rows, score_request
from dp_polars._engines.registry import engine_for
from dp_polars._engines.request import Exact
from dp_polars._plan.plan import Measurement, Plan
from dp_polars._release.noise import noisy_aggregates
from dp_polars._release.run import QueryRun, request_of
from dp_polars._sampling import SYSTEM_BITS

_AT_ONCE = 1 << 20  # rows of stacked groups and cells at a time


def can_be_copied(make: object) -> bool:
    """Return whether the noise of many releases can be drawn at once. Totals can't, because they are made to agree."""
    return isinstance(make, ChoiceRun) or (isinstance(make, QueryRun) and not make.plan.query.rollup)


def draws_at_random(make: QueryRun | ChoiceRun) -> bool:
    """Return whether one read differs from the next, because a cap chooses among rows or something is estimated.

    Sums are scaled down where a cap on rows applies, which is not random. This looks at rows of made-up data only.
    """
    plan = make.plan
    if isinstance(plan, ChoicePlan):
        request = score_request(plan)
        keeps = [plan.cap.enforced] if plan.cap.enforced is not None else []
    else:
        if plan.estimates:
            return True
        request = request_of(plan)
        keeps = [lane.cells.max_rows for lane in request.lanes if lane.cells is not None and lane.cells.max_rows]
    if not request.units or (request.max_groups is None and not keeps):
        return False
    rows = engine_for(make.rows).read(make.rows)
    own = OWN if f"{OWN}unit0" in rows.columns else ""  # a score sees the user's columns too
    units = [f"{own}unit{i}" for i in range(request.units)]
    keys = [f"{own}key{i}" for i in range(request.keys) if f"{own}key{i}" in rows.columns]
    groups = rows.select(units + keys[: request.leading]).unique().group_by(units).len()
    if request.max_groups is not None and int(groups["len"].max() or 0) > request.max_groups:  # type: ignore[arg-type]
        return True
    return bool(keeps) and int(rows.group_by(units + keys).len()["len"].max() or 0) > min(keeps)  # type: ignore[arg-type]


def numbers_in(exact: Exact, plan: Plan | ChoicePlan) -> int:
    """Return about how many numbers a release has."""
    if isinstance(plan, ChoicePlan):
        return exact.groups.height * plan.selection.k
    return exact.groups.height * sum(map(_each, plan.measurements))


def copies_of(exact: Exact, plan: Plan | ChoicePlan, copies: int, names: Names) -> Samples:
    """Return what `copies` releases of the same exact aggregates tell, noise drawn anew for each."""
    height = max(1, exact.groups.height, *(table.height for table in exact.cells.values()))
    each = max(1, _AT_ONCE // height)
    sizes = [min(each, copies - start) for start in range(0, copies, each)]
    if isinstance(plan, ChoicePlan):
        return joined([_choices(exact, plan, size, names) for size in sizes])
    found = joined([_numbers(exact, plan, size) for size in sizes])
    # What was estimated is released with the plan.
    estimated = {
        f"estimated {one.estimate.what} {'' if one.estimate.value is None else one.estimate.value.name} {place}": (
            np.full(copies, float(number))
        )
        for one in plan.estimated
        for place, number in enumerate((*one.chosen, one.units))
    }
    return Samples(copies, {**found.numbers, **estimated}, found.codes)


def _numbers(exact: Exact, plan: Plan, copies: int) -> Samples:
    groups = exact.groups.height
    if not groups:
        return Samples(copies, {}, {})
    stacked = exact.groups[np.tile(np.arange(groups), copies)]
    if plan.query.keys:  # the noise path passes keys on, so the key can say which row of which copy a number belongs to
        stacked = stacked.with_columns(key0=pl.int_range(stacked.height, dtype=pl.Int64, eager=True))
    cells = {name: _stacked_cells(table, groups, copies) for name, table in exact.cells.items()}
    noisy = noisy_aggregates(Exact(stacked, cells), plan, SYSTEM_BITS)
    place = noisy["key0"].to_numpy() if plan.query.keys else np.arange(copies)
    labels = [str(row) for row in exact.groups.select(f"key{i}" for i in range(len(plan.query.keys))).rows()] or [""]
    found: dict[str, Floats] = {}
    for measurement in (measurement for measurement in plan.measurements if measurement.name in noisy.columns):
        column = noisy[measurement.name]
        flat = column.explode(empty_as_null=False) if column.dtype.is_nested() else column
        table = flat.to_numpy().astype(np.float64).reshape(len(place), _each(measurement)) * float(
            measurement.grid.step
        )
        whole = np.full((copies * groups, table.shape[1]), np.nan)
        whole[place] = table
        for group, label in enumerate(labels):
            for number in range(table.shape[1]):
                found[f"{measurement.name} {label} {number}"] = np.ascontiguousarray(whole[group::groups, number])
    return Samples(copies, found, {})


def _each(measurement: Measurement) -> int:
    """Return how many numbers a measurement has for each group, from the plan, because no group may be shown."""
    if measurement.noise is None:
        return measurement.statistic.chosen
    return {"basis": len(measurement.statistic.columns), "bins": measurement.statistic.bins}.get(
        measurement.statistic.source, 1
    )


def _stacked_cells(table: pl.DataFrame, groups: int, copies: int) -> pl.DataFrame:
    stacked = table[np.tile(np.arange(table.height), copies)]
    if "group" not in table.columns:
        return stacked
    offset = np.repeat(np.arange(copies, dtype=np.int64) * groups, table.height)
    return stacked.with_columns(group=pl.col("group") + pl.Series(offset, dtype=pl.Int64))


def _choices(exact: Exact, plan: ChoicePlan, copies: int, names: Names) -> Samples:
    wanted = plan.selection.k
    leading = [f"key{i}" for i in range(len(plan.query.keys) - 1)]
    groups, starts = _groups(exact.groups, leading)
    if not len(starts):
        return Samples(copies, {}, {})
    candidates = np.array([names.code(name) for name in exact.groups[f"key{len(leading)}"].to_list()], np.int64)
    rows, ranks = _chosen(exact, plan, starts, copies)
    copy, row = np.divmod(rows, exact.groups.height)
    group = np.searchsorted(starts, row, side="right") - 1
    table = np.full((copies, len(starts), wanted), -1, np.int64)
    table[copy, group, ranks - 1] = candidates[row]
    found: dict[str, ColumnCodes] = {
        f"choice {label} {rank}": np.ascontiguousarray(table[:, place, rank])
        for place, label in enumerate(groups)
        for rank in range(wanted)
    }
    return Samples(copies, {}, found)


def _groups(table: pl.DataFrame, leading: list[str]) -> tuple[list[str], NDArray[Any]]:
    """Return the names of the groups in which choices are made, and the first row of their candidates."""
    if not leading:
        return [""], np.zeros(min(1, table.height), np.int64)
    numbered = table.select(*leading, pl.int_range(pl.len()).alias("place"))
    first = numbered.group_by(leading, maintain_order=True).agg(pl.col("place").first())
    return [str(row) for row in first.select(leading).rows()], first["place"].to_numpy().astype(np.int64)


def _chosen(exact: Exact, plan: ChoicePlan, starts: NDArray[Any], copies: int) -> tuple[Any, Any]:
    height = exact.groups.height
    scores = np.tile(exact.groups[plan.score.name].to_numpy(), copies)
    begin = (np.arange(copies)[:, None] * height + starts).ravel()
    return choose_rows(scores, begin, plan, SYSTEM_BITS)
