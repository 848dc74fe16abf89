"""What a released frame holds, for charts: its keys, its values, and the interval of the privacy noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from dp_polars._aggregates.histogram import BIN
from dp_polars._choices.plan import ChoicePlan
from dp_polars._choices.release import RANK
from dp_polars._display.fact_table import AsTable
from dp_polars._local.plan import ResponsePlan
from dp_polars._plan.plan import Plan
from dp_polars._plan.rollup import LEVEL
from dp_polars._session.release_record import Release
from dp_polars.errors import InvalidParameterError


@dataclass(frozen=True)
class Answer:
    """A released frame and what is known of it: its title, its keys, its values, and their expected errors."""

    frame: pl.DataFrame
    name: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    errors: dict[str, float]
    below: str
    plan: Any = None

    def interval(self, value: str) -> tuple[list[Any], list[Any]] | None:
        """Return the ends of the noise's interval of a value: released with it, or by its expected error."""
        low, high = f"{value}_low", f"{value}_high"
        if {low, high} <= set(self.frame.columns):
            return self.frame[low].to_list(), self.frame[high].to_list()
        if value not in self.errors or not self.frame[value].dtype.is_numeric():
            return None
        shown, error = self.frame[value].cast(pl.Float64), self.errors[value]
        lower = shown - error
        if isinstance(self.plan, Plan) and self.plan.query.nonnegative:
            lower = lower.clip(0)
        return lower.to_list(), (shown + error).to_list()


def answer_of(released: Release | pl.DataFrame, x: str | None, y: str | None) -> Answer:
    """Return what is known of a release, or of a released frame."""
    if isinstance(released, pl.LazyFrame):
        raise InvalidParameterError("A LazyFrame is not released yet: draw dp.plot(lf.collect()).")
    if not isinstance(released, Release | pl.DataFrame):
        raise InvalidParameterError(
            f"dp.plot draws a release (session.releases[-1]) or a released DataFrame, got {type(released).__name__}."
        )
    plan = released.plan if isinstance(released, Release) else None
    frame = released.frame if isinstance(released, Release) else released
    below = []
    if isinstance(plan, AsTable) and not isinstance(plan, Plan | ChoicePlan | ResponsePlan):
        raise InvalidParameterError(
            "There is no chart of this release: streams and online queries are answered as they are asked, and "
            "synthetic rows are drawn as other rows are. Draw dp.plot.privacy_loss(release), or what you make of them."
        )
    if isinstance(plan, Plan) and plan.query.rollup:
        frame = frame.filter(pl.col(LEVEL) == pl.col(LEVEL).max()).drop(LEVEL)
        below.append("without the totals")
    for wanted in (x, y):
        if wanted is not None and wanted not in frame.columns:
            raise InvalidParameterError(f"The frame has no column {wanted}; it has {', '.join(frame.columns)}.")
    keys, values = _columns(frame, plan)
    keys = [x, *(key for key in keys if key != x)] if x is not None else keys
    values = [y] if y is not None else [value for value in values if value != x]
    keys = [key for key in keys if key not in values]
    errors = released.error if isinstance(released, Release) else {}
    confidence = plan.query.interval or 0.95 if isinstance(plan, Plan) else None
    name = released.label if isinstance(released, Release) else _title(keys, values)
    answer = Answer(frame, name, tuple(keys), tuple(values), errors, "", plan)
    known = [answer.interval(value) is not None for value in values]
    if any(known):
        of = "" if confidence is None else f" of {confidence:.0%} of answers"
        below.append(f"with the interval of the privacy noise{of}{'' if all(known) else ', where it is known'}")
    return replace(answer, below="; ".join(below))


def _title(keys: Sequence[str], values: Sequence[str]) -> str:
    by = f" by {', '.join(keys)}" if keys and values else ""
    return (", ".join(values) or ", ".join(keys)) + by


def _columns(frame: pl.DataFrame, plan: Any) -> tuple[list[str], list[str]]:
    """Return the keys and the values: as the plan says, else by what the columns look like."""
    names = frame.columns
    ends = {f"{name}{end}" for name in names for end in ("_low", "_high")}
    rest = [name for name in names if name not in ends and name not in BIN]
    if isinstance(plan, Plan):
        keys = [key.name for key in plan.query.keys]
        return keys, [name for name in rest if name not in keys and _drawable(frame[name])]
    with_ends = [name for name in rest if f"{name}_low" in names and f"{name}_high" in names]
    if with_ends:
        first = rest.index(with_ends[0])
        return rest[:first], [name for name in rest[first:] if _drawable(frame[name])]
    measured = [name for name in rest if frame[name].dtype.is_numeric() or frame[name].dtype == pl.Duration]
    numbers = [name for name in measured if name != RANK]
    keys = [name for name in rest if name not in numbers and not frame[name].dtype.is_nested()]
    if not keys and len(numbers) > 1 and frame.height > 1:
        return numbers[:1], numbers[1:]
    return keys, numbers


def _drawable(column: pl.Series) -> bool:
    return column.dtype.is_numeric() or column.dtype.is_temporal()


def kind_of(column: pl.Series) -> str:
    """Return how a chart scales a column."""
    if column.dtype in (pl.Date, pl.Datetime):
        return "temporal"
    return "quantitative" if column.dtype.is_numeric() or column.dtype == pl.Duration else "nominal"


def texts_of(column: pl.Series) -> list[str]:
    """Return values as names."""
    return ["null" if value is None else str(value) for value in column.to_list()]


def unit_of(column: pl.Series) -> str:
    """Return what numbers of a column are counted in, to be put behind its name."""
    return " (seconds)" if column.dtype == pl.Duration else ""
