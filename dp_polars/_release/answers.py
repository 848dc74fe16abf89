"""Turn noisy numbers into the frame that a user gets. This is post-processing: it only sees what is released."""

from __future__ import annotations

import polars as pl

from dp_polars._plan.plan import Plan
from dp_polars._plan.rollup import LEVEL
from dp_polars._plan.statistics import CompiledAggregate
from dp_polars._release.noisy_numbers import NoisyNumbers, as_answer


def result_schema(plan: Plan) -> dict[str, pl.DataType]:
    """Return the names and types of the released frame, which the plan decides."""
    query = plan.query
    schema: dict[str, pl.DataType] = {key.name: key.dtype for key in query.keys}
    if query.rollup:
        schema[LEVEL] = pl.Int64()
    interval = query.interval is not None
    for compiled in plan.compiled:
        one = compiled.aggregate
        schema |= one.unfolded_schema(interval=interval) if query.unfolded else one.schema(interval=interval)
    return schema


def present(noisy: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """Return the released frame: the keys, the answers, and their intervals if they were asked for."""
    query = plan.query
    columns: dict[str, pl.Series] = {key.name: noisy[f"key{i}"] for i, key in enumerate(query.keys)}
    if query.rollup:
        columns[LEVEL] = noisy[LEVEL]
    for compiled in plan.compiled:
        columns |= _answers(noisy, compiled, plan)
    frame = pl.DataFrame(columns)
    if query.unfolded:
        one = plan.compiled[0].aggregate
        if one.unfolds == "rows":
            frame = frame.explode(one.name, empty_as_null=False)
        if one.unfolds is not None:
            frame = frame.unnest(one.name)
    schema = result_schema(plan)
    return frame.select(list(schema)).cast(schema)  # type: ignore[arg-type]


def _answers(noisy: pl.DataFrame, compiled: CompiledAggregate, plan: Plan) -> dict[str, pl.Series]:
    """Return the answer of an aggregate, and the ends of its interval if one is wanted, by column name."""
    one, query = compiled.aggregate, plan.query
    numbers = NoisyNumbers(noisy, compiled, plan, {})
    found = [as_answer(one.estimate(numbers), one.answer_type)]
    if one.has_interval() and query.interval is not None and not one.unfolds:
        ends = [as_answer(one.estimate(corner), one.answer_type) for corner in numbers.corners(query.interval)]
        corners = pl.DataFrame([end.alias(str(place)) for place, end in enumerate(ends)])
        found += [corners.select(end(pl.all())).to_series() for end in (pl.min_horizontal, pl.max_horizontal)]
    if query.nonnegative and one.answer_type.is_numeric():
        found = [series.clip(lower_bound=0) for series in found]
    return dict(zip([one.name, f"{one.name}_low", f"{one.name}_high"], found, strict=False))
