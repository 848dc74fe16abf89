"""Turn noisy numbers into the frame that a user gets. This is post-processing: it only sees what is released."""

from __future__ import annotations

import polars as pl

from dp_polars._aggregates.base import Aggregate
from dp_polars._aggregates.histogram import BIN
from dp_polars._plan.plan import Plan
from dp_polars._plan.query import Query
from dp_polars._plan.rollup import LEVEL
from dp_polars._plan.statistics import CompiledAggregate
from dp_polars._release.intervals import ConfidenceLimits
from dp_polars._release.noisy_numbers import NoisyNumbers, as_answer


def result_schema(plan: Plan) -> dict[str, pl.DataType]:
    """Return the names and types of the released frame, which the plan decides."""
    query = plan.query
    schema: dict[str, pl.DataType] = {key.name: key.dtype for key in query.keys}
    if query.rollup:
        schema[LEVEL] = pl.Int64()
    interval = query.interval is not None
    for compiled in plan.compiled:
        aggregate = compiled.aggregate
        schema |= (
            aggregate.unfolded_schema(interval=interval) if query.unfolded else aggregate.schema(interval=interval)
        )
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
        aggregate = plan.compiled[0].aggregate
        if aggregate.unfolds == "rows":
            frame = frame.explode(aggregate.name, empty_as_null=False)
        if aggregate.unfolds is not None:
            frame = frame.unnest(aggregate.name)
    schema = result_schema(plan)
    if list(frame.schema.items()) == list(schema.items()):
        return frame
    return frame.select(list(schema)).cast(schema)  # type: ignore[arg-type]


def _answers(noisy: pl.DataFrame, compiled: CompiledAggregate, plan: Plan) -> dict[str, pl.Series]:
    """Return the answer of an aggregate, and the ends of its interval if one is wanted, by column name.

    The ends are null if caps or bounds were estimated from too few units, because then nothing is known about how much
    they cut off.
    """
    found = _with_interval(noisy, compiled, plan)
    if plan.query.interval is None or plan.is_reliable(compiled.aggregate):
        return found
    answer = found[compiled.aggregate.name]
    return {
        name: _without_ends(column) if column is answer else column.clear(len(column)) for name, column in found.items()
    }


def _without_ends(answer: pl.Series) -> pl.Series:
    """Return an answer with null for the ends of the intervals inside it: those of bins, or of slope and intercept."""
    kind = answer.dtype
    inner = kind.inner if isinstance(kind, pl.List) else kind
    if not isinstance(inner, pl.Struct):
        return answer
    ends = [field for field in inner.fields if field.name.endswith(("_low", "_high")) and field.name not in BIN]
    if isinstance(kind, pl.List):
        nothing = [pl.lit(None, dtype=field.dtype).alias(field.name) for field in ends]
        return answer.to_frame("a").select(pl.col("a").list.eval(pl.element().struct.with_fields(nothing))).to_series()
    return (
        answer.to_frame("a")
        .select(pl.col("a").struct.with_fields([pl.lit(None, dtype=field.dtype).alias(field.name) for field in ends]))
        .to_series()
    )


def _with_interval(noisy: pl.DataFrame, compiled: CompiledAggregate, plan: Plan) -> dict[str, pl.Series]:
    """Return the answer of an aggregate and the ends of its interval, by column name."""
    aggregate, query = compiled.aggregate, plan.query
    dtype = aggregate.answer_type
    found = [as_answer(aggregate.estimate(NoisyNumbers(noisy, compiled, plan)), dtype)]
    if query.interval is not None and aggregate.unfolds != "rows":
        limits = ConfidenceLimits(noisy, compiled, plan, query.interval)
        others = aggregate.interval(limits)
        if others is not None:
            return _shown({aggregate.name: found[0], **others}, aggregate, query)
        low, high = aggregate.ends(limits)
        if aggregate.unfolds == "columns":
            return {aggregate.name: _struct_with_ends(found[0], low, high)}
        ends = [as_answer(_outwards(end, dtype, sign), dtype) for sign, end in ((-1, low), (1, high))]
        # The answer always lies in its interval, even if it was clipped and is not among the likely values.
        both = pl.DataFrame([found[0].alias("answer"), ends[0].alias("low"), ends[1].alias("high")])
        found.append(both.select(pl.min_horizontal("answer", "low")).to_series())
        found.append(both.select(pl.max_horizontal("answer", "high")).to_series())
    return _shown(
        dict(zip([aggregate.name, f"{aggregate.name}_low", f"{aggregate.name}_high"], found, strict=False)),
        aggregate,
        query,
    )


def _shown(columns: dict[str, pl.Series], aggregate: Aggregate, query: Query) -> dict[str, pl.Series]:
    """Return the columns of an answer, with 0 instead of negative numbers if the query asks for that."""
    if not query.nonnegative or not aggregate.answer_type.is_numeric():
        return columns
    return {name: series.clip(lower_bound=0) for name, series in columns.items()}


def _outwards(end: pl.Series, dtype: pl.DataType, sign: int) -> pl.Series:
    """Round the end of an interval outwards if the answer is a whole number but the end is not."""
    if dtype.is_float() or not end.dtype.is_float():
        return end
    return end.floor() if sign < 0 else end.ceil()


def _struct_with_ends(answer: pl.Series, low: pl.Series, high: pl.Series) -> pl.Series:
    """Return an answer of several numbers with the ends of each of them, in the order of the schema."""
    columns: list[pl.Series] = []
    for field in answer.struct.fields:
        columns.append(answer.struct.field(field))
        columns += [end.struct.field(field).alias(f"{field}_{name}") for name, end in (("low", low), ("high", high))]
    return pl.DataFrame(columns).to_struct(answer.name)
