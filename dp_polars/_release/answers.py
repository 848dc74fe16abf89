"""From noisy integers to the frame that people get. Post-processing: it sees nothing that is not released."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import polars as pl

from dp_polars._engines.request import LIMIT
from dp_polars._plan.needs import Made
from dp_polars._plan.plan import Part, Plan
from dp_polars._plan.query import Aggregate, Value
from dp_polars._plan.rollup import LEVEL
from dp_polars._release.basis import basis_answers
from dp_polars._release.moments import REGRESSION, ratios

BIN = ("bin_low", "bin_high")
WITHOUT_INTERVAL = ("quantile", "median", "min", "max", "var", "std", "cov", "corr", "linear_regression")
"""Aggregates for which no interval of the noise is known."""


def result_schema(plan: Plan) -> dict[str, pl.DataType]:
    """Return the names and types of the released frame, known before it exists."""
    query = plan.query
    schema: dict[str, pl.DataType] = {key.name: key.dtype for key in query.keys}
    if query.rollup:
        schema[LEVEL] = pl.Int64()
    for made in plan.made:
        schema |= _answer_schema(made, plan)
    return schema


def _answer_schema(made: Made, plan: Plan) -> dict[str, pl.DataType]:
    one = made.aggregate
    if one.kind == "histogram":
        return {one.name: pl.List(pl.Struct(_bin_schema(one, plan)))} if not _long(plan) else _bin_schema(one, plan)
    if one.kind == "linear_regression":
        columns: dict[str, pl.DataType] = dict.fromkeys(REGRESSION, pl.Float64())
        return columns if plan.query.unfolded else {one.name: pl.Struct(columns)}
    kind = answer_type(made, plan)
    if one.several:
        return {one.name: pl.List(kind)}
    names = [one.name]
    if plan.query.interval is not None and one.kind not in WITHOUT_INTERVAL:
        names += [f"{one.name}_low", f"{one.name}_high"]
    return dict.fromkeys(names, kind)


def _long(plan: Plan) -> bool:
    """Whether the answer is one row for each bin: a histogram that was asked for alone."""
    return plan.query.unfolded and plan.made[0].aggregate.kind == "histogram"


def _bin_schema(one: Aggregate, plan: Plan) -> dict[str, pl.DataType]:
    edge = _edge_type(one)
    schema: dict[str, pl.DataType] = {BIN[0]: edge, BIN[1]: edge, "count": pl.Int64()}
    if plan.query.interval is not None:
        schema |= {"count_low": pl.Int64(), "count_high": pl.Int64()}
    return schema


def _edge_type(one: Aggregate) -> pl.DataType:
    """Return the type of a histogram's edges: of whole numbers they may lie between."""
    kind = _value_type(one.values[0])
    return pl.Float64() if kind.is_integer() and any(edge.denominator > 1 for edge in one.edges) else kind


def _value_type(value: Value) -> pl.DataType:
    """Return the type of an answer that is a value: whole numbers stay whole, times stay times."""
    if value.dtype.is_integer() or value.dtype == pl.Boolean:
        return pl.Int64()
    return pl.Float64() if value.dtype.is_float() else _decimal(value.dtype)


def _decimal(dtype: pl.DataType) -> pl.DataType:
    return pl.Decimal(38, dtype.scale) if isinstance(dtype, pl.Decimal) else dtype


def answer_type(made: Made, plan: Plan) -> pl.DataType:
    """Return the type of an aggregate's answer."""
    one = made.aggregate
    match one.kind:
        case "count" | "count_units" | "n_unique":
            return pl.Int64()
        case "sum" if one.values[0].dtype.is_integer() or one.values[0].dtype == pl.Boolean:
            return pl.Int64()
        case "sum" | "quantile" | "median" | "min" | "max":
            return _value_type(one.values[0])
        case "mean" if one.values[0].dtype.is_temporal():
            return pl.Datetime("us") if one.values[0].dtype == pl.Date else one.values[0].dtype
        case _:
            return pl.Float64()


def _main(made: Made) -> str:
    """Return the piece that an answer is measured in: the first that is not its number of rows."""
    return next((name for role, name in made.pieces.items() if role != "rows"), made.pieces.get("rows", ""))


def present(noisy: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """Return the released frame: keys, the answers, and their intervals where asked for."""
    keys = {key.name: noisy[f"key{i}"] for i, key in enumerate(plan.query.keys)}
    columns: dict[str, pl.Series] = {LEVEL: noisy[LEVEL]} if plan.query.rollup else {}
    for made in plan.made:
        columns |= _answers(noisy, made, plan)
    schema = result_schema(plan)
    frame = pl.DataFrame({**keys, **columns})
    if _long(plan):
        frame = frame.explode(plan.made[0].aggregate.name, empty_as_null=False).unnest(plan.made[0].aggregate.name)
    return frame.select(list(schema)).cast(schema)  # type: ignore[arg-type]


def _answers(noisy: pl.DataFrame, made: Made, plan: Plan) -> dict[str, pl.Series]:
    one = made.aggregate
    if one.kind == "histogram":
        return {one.name: _histogram(noisy, made, plan)}
    if "values" in made.pieces:
        return {one.name: _chosen(noisy, made, plan)}
    if one.kind == "linear_regression":
        line = dict(zip(REGRESSION, ratios(noisy, made, plan), strict=True))
        return line if plan.query.unfolded else {one.name: pl.DataFrame(line).to_struct(one.name)}
    kind = answer_type(made, plan)
    if "basis" in made.pieces:
        found = [_as_answer(series, kind) for series in basis_answers(noisy, made, plan)]
    elif len(made.pieces) == 1:
        found = _single(noisy, plan.part(_main(made)), kind, plan)
    else:
        found = [_as_answer(series, kind) for series in ratios(noisy, made, plan)]
    if plan.query.nonnegative and kind.is_numeric():
        found = [series.clip(lower_bound=0) for series in found]
    return dict(zip([one.name, f"{one.name}_low", f"{one.name}_high"], found, strict=False))


def _single(noisy: pl.DataFrame, part: Part, kind: pl.DataType, plan: Plan) -> list[pl.Series]:
    """Return the answer of one noisy vector, and its interval."""
    steps = noisy[part.name]
    found = [_in_units(steps, part, kind)]
    if plan.query.interval is not None:
        error = part.error(plan.query.interval)
        found += [_in_units(steps, part, kind, -error), _in_units(steps, part, kind, error)]
    return found


def _in_units(steps: pl.Series, part: Part, kind: pl.DataType, off: int = 0) -> pl.Series:
    """Return steps of a grid, so many of them `off`, as values of a type.

    Where steps are finer than whole numbers, these are rounded; what is off, away from the middle.
    """
    grid = part.grid
    if kind.is_float():
        return (steps.cast(pl.Float64) + off) * float(grid.step) + float(grid.offset)
    parts = 1 << max(-grid.exponent, 0)
    up = off + (parts // 2 if not off else parts - 1 if off > 0 else 0)
    numbers = (up, parts, 1 << max(grid.exponent, 0), int(grid.offset))
    added, divisor, step, offset = (pl.lit(number, dtype=pl.Int128) for number in numbers)
    whole = (pl.col("steps").cast(pl.Int128) + added) // divisor * step + offset
    return _as_answer(steps.to_frame("steps").select(whole).to_series(), kind)


def _as_answer(numbers: pl.Series, kind: pl.DataType) -> pl.Series:
    """Return numbers, stored as times and decimals are, as values of a type."""
    if kind.is_float():
        return numbers
    if numbers.dtype.is_float():
        numbers = numbers.round().clip(-float(LIMIT), float(LIMIT)).cast(pl.Int128)
    if isinstance(kind, pl.Decimal):
        one = pl.Series([Decimal(1).scaleb(-kind.scale)], dtype=pl.Decimal(38, kind.scale))
        return numbers.cast(pl.Decimal(38, 0)) * one
    return numbers.clip(-LIMIT, LIMIT).cast(pl.Int64).cast(pl.Int32 if kind == pl.Date else pl.Int64).cast(kind)


def _chosen(noisy: pl.DataFrame, made: Made, plan: Plan) -> pl.Series:
    """Return chosen values: of several quantiles a list, in the order in which they were asked for."""
    one, part = made.aggregate, plan.part(made.pieces["values"])
    kind = _value_type(one.values[0])
    columns = [
        _in_units(noisy[part.name].list.get(part.piece.targets.index(quantile)), part, kind).alias(str(place))
        for place, quantile in enumerate(one.quantiles)
    ]
    if not one.several:
        return columns[0]
    return pl.DataFrame(columns).select(pl.concat_list(pl.all())).to_series()


def _histogram(noisy: pl.DataFrame, made: Made, plan: Plan) -> pl.Series:
    """Return for each group a list of its bins, with their edges and counts."""
    one, part = made.aggregate, plan.part(made.pieces["bins"])
    edges = _edges(one)
    groups, bins = noisy.height, part.piece.bins
    columns = {
        BIN[0]: pl.concat([edges[:-1]] * groups) if groups else edges.clear(),
        BIN[1]: pl.concat([edges[1:]] * groups) if groups else edges.clear(),
        "count": noisy[part.name].explode(empty_as_null=False) if groups else pl.Series([], dtype=pl.Int64),
    }
    if plan.query.interval is not None:
        error = part.error(plan.query.interval)
        columns |= {"count_low": columns["count"] - error, "count_high": columns["count"] + error}
    if plan.query.nonnegative:
        columns = {name: s.clip(lower_bound=0) if name.startswith("count") else s for name, s in columns.items()}
    rows = pl.DataFrame(columns).with_columns(group=pl.Series(np.repeat(np.arange(groups), bins), dtype=pl.Int64))
    listed = rows.group_by("group", maintain_order=True).agg(pl.struct(pl.exclude("group")).alias("bins"))
    return listed["bins"]


def _edges(one: Aggregate) -> pl.Series:
    kind = _edge_type(one)
    if kind.is_float():
        return pl.Series([float(edge) for edge in one.edges], dtype=pl.Float64)
    return _as_answer(pl.Series([int(edge) for edge in one.edges], dtype=pl.Int128), kind)
