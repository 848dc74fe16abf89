"""From noisy integers to the frame that people get. Post-processing: it sees nothing that is not released."""

from __future__ import annotations

import polars as pl

from dp_polars.planning.plan import Part, Plan


def result_schema(plan: Plan) -> dict[str, pl.DataType]:
    """Return the names and types of the released frame, known before it exists."""
    query = plan.query
    schema: dict[str, pl.DataType] = {key.name: key.dtype for key in query.keys}
    kind = _answer_type(plan)
    schema[query.name] = kind
    if query.interval is not None:
        schema |= {f"{query.name}_low": kind, f"{query.name}_high": kind}
    return schema


def present(noisy: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """Return the released frame: keys, the answer, and its interval where asked for."""
    query = plan.query
    answers = _mean(noisy, plan) if query.aggregate == "mean" else _single(noisy, plan)
    if query.nonnegative:
        answers = {name: series.clip(lower_bound=0) for name, series in answers.items()}
    keys = {key.name: noisy[f"key{i}"] for i, key in enumerate(query.keys)}
    names = [query.name] if query.interval is None else [query.name, f"{query.name}_low", f"{query.name}_high"]
    columns = dict(zip(names, answers.values(), strict=True))
    frame = pl.DataFrame({**keys, **columns})
    return frame.cast(dict(result_schema(plan)))  # type: ignore[arg-type]


def _answer_type(plan: Plan) -> pl.DataType:
    part = plan.parts[0]
    whole = plan.query.aggregate != "mean" and part.grid.exponent == 0
    return pl.Int64() if whole else pl.Float64()


def _single(noisy: pl.DataFrame, plan: Plan) -> dict[str, pl.Series]:
    part = plan.parts[0]
    steps = noisy[part.column]
    answers = {"answer": _in_units(steps, part)}
    if plan.query.interval is not None:
        error = part.noise.error(plan.query.interval)
        answers |= {"low": _in_units(steps - error, part), "high": _in_units(steps + error, part)}
    return answers


def _in_units(steps: pl.Series, part: Part) -> pl.Series:
    return steps if part.grid.exponent == 0 else steps.cast(pl.Float64) * float(part.grid.step)


def _mean(noisy: pl.DataFrame, plan: Plan) -> dict[str, pl.Series]:
    """Return the middle plus noisy sum over noisy count, within the bounds."""
    total, count = plan.parts
    value = plan.query.value
    if value is None:
        raise ValueError("a mean has a value")
    lower, upper = float(value.lower), float(value.upper)
    step, offset = float(total.grid.step), float(total.grid.offset)
    sums = noisy["total"].cast(pl.Float64) * step
    counts = noisy["rows"].cast(pl.Float64)

    def ratio(numerator: pl.Series, denominator: pl.Series) -> pl.Series:
        return (numerator / denominator.clip(lower_bound=1) + offset).clip(lower, upper)

    answers = {"answer": ratio(sums, counts)}
    if plan.query.interval is not None:
        # Both noises stay within their errors at once with the confidence asked for (independent: its root each).
        each = plan.query.interval**0.5
        wide, few = total.noise.error(each) * step, count.noise.error(each)
        corners = [ratio(sums + s * wide, counts + c * few) for s in (-1, 1) for c in (-1, 1)]
        frame = pl.DataFrame({f"c{i}": corner for i, corner in enumerate(corners)})
        answers["low"] = frame.select(pl.min_horizontal(pl.all())).to_series()
        answers["high"] = frame.select(pl.max_horizontal(pl.all())).to_series()
    return answers
