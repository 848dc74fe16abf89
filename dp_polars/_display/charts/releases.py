"""Charts of what was released: bars, lines and histograms, with the interval of the privacy noise where it is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from dp_polars._aggregates.cut import CUT_BY_BOUNDS, CUT_BY_CAP
from dp_polars._aggregates.histogram import BIN
from dp_polars._choices.plan import ChoicePlan
from dp_polars._choices.release import RANK
from dp_polars._display.charts.base import (
    BLUE,
    DARK,
    GREY,
    ORANGE,
    WIDTH,
    ChartRow,
    altair,
    inline,
    label,
    number,
    title,
)
from dp_polars._display.fact_table import AsTable
from dp_polars._display.text import percent
from dp_polars._local.plan import ResponsePlan
from dp_polars._plan.plan import Plan
from dp_polars._plan.rollup import LEVEL
from dp_polars._profile.plan import ProfilePlan
from dp_polars._profile.profile import TableProfile
from dp_polars._session.releases import Release
from dp_polars.errors import InvalidParameterError

_NO_KEY = ""
_ENDS = ("_low", "_high", "_rank_low", "_rank_high", "_rank_error")
"""The suffixes of the columns that an interval adds."""
_BAR = 26  # height of a bar with its gap
_ABREAST = 3  # the most charts in a row, if there are several answers
_CUTS = {CUT_BY_CAP: "units that the cap cuts", CUT_BY_BOUNDS: "units that the bounds cut"}
"""The names of the counts of cut units. They have a different colour, because they are not answers."""


@dataclass(frozen=True)
class ShownAnswer:
    """A released frame and what is known about it: its title, keys, values, expected errors and notes."""

    frame: pl.DataFrame
    name: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    errors: dict[str, float]
    below: str
    notes: tuple[str, ...] = ()
    plan: Any = None

    def interval(self, value: str) -> tuple[list[Any], list[Any]] | None:
        """Return the ends of a value's noise interval, as released with it or else from its expected error."""
        low, high = f"{value}_low", f"{value}_high"
        if {low, high} <= set(self.frame.columns):
            ends = self.frame[low].to_list(), self.frame[high].to_list()
            return None if all(end is None for end in (*ends[0], *ends[1])) else ends
        if value not in self.errors or not self.frame[value].dtype.is_numeric():
            return None
        shown, error = self.frame[value].cast(pl.Float64), self.errors[value]
        lower = shown - error
        if isinstance(self.plan, Plan) and self.plan.query.nonnegative:
            lower = lower.clip(0)
        return lower.to_list(), (shown + error).to_list()


def answer_of(released: Release | pl.DataFrame, x: str | None, y: str | None) -> ShownAnswer:
    """Return what is known about a release or a released frame."""
    if isinstance(released, pl.LazyFrame):
        raise InvalidParameterError("A LazyFrame is not released yet. Collect it first: dp.plot(lf.collect()).")
    if not isinstance(released, Release | pl.DataFrame):
        raise InvalidParameterError(
            f"dp.plot draws a release (session.releases[-1]) or a released DataFrame, got {type(released).__name__}."
        )
    plan = released.plan if isinstance(released, Release) else None
    frame = released.frame if isinstance(released, Release) else released
    below = []
    if isinstance(plan, AsTable) and not isinstance(plan, Plan | ChoicePlan | ResponsePlan):
        raise InvalidParameterError(
            "This release has no chart of its own: streams and online queries answer one question at a time, and "
            "synthetic rows can be plotted like any other rows. dp.plot.privacy_loss(release) shows its privacy loss."
        )
    if isinstance(plan, Plan) and plan.query.rollup:
        frame = frame.filter(pl.col(LEVEL) == pl.col(LEVEL).max()).drop(LEVEL)
        below.append("Without the totals.")
    for wanted in (x, y):
        if wanted is not None and wanted not in frame.columns:
            raise InvalidParameterError(f"The frame has no column {wanted}. It has {', '.join(frame.columns)}.")
    keys, values = _columns(frame, plan)
    keys = [x, *(key for key in keys if key != x)] if x is not None else keys
    values = [y] if y is not None else [value for value in values if value != x]
    keys = [key for key in keys if key not in values]
    errors = released.error if isinstance(released, Release) else {}
    confidence = plan.query.interval or 0.95 if isinstance(plan, Plan) else None
    name = released.title if isinstance(released, Release) else _title(keys, values)
    notes = () if plan is None else tuple(f"{about}: {text}" for about, text in plan.notes_for_readers())
    answer = ShownAnswer(frame, name, tuple(keys), tuple(values), errors, "", notes, plan)
    known = [answer.interval(value) is not None for value in values]
    if any(known):
        times = "" if confidence is None else f", {percent(confidence)} of the time"
        where = "" if all(known) else ", where it is known"
        drawn = "Shaded" if _on_line(answer) else "Dark lines"
        below.append(f"{drawn}: where the answer without noise lies{times}{where}.")
    if set(values) & set(_CUTS):
        below.append("Orange: noisy counts of the units that lose something to caps or bounds.")
    caps = "" if plan is None else plan.caps_in_short()
    return replace(answer, below=" ".join(text for text in (caps, *below) if text))


def answer_chart(released: Release | TableProfile | pl.DataFrame, *, x: str | None = None, y: str | None = None) -> Any:
    """Return the chart of a release or of a released frame."""
    altair()  # report first if it is missing
    if isinstance(released, TableProfile):
        return released.plot()
    if isinstance(released, Release) and isinstance(released.plan, ProfilePlan):
        return TableProfile(released).plot()
    answer = answer_of(released, x, y)
    frame = answer.frame
    if not frame.height:
        raise InvalidParameterError("There is nothing to draw, because the released frame has no rows.")
    if isinstance(answer.plan, ResponsePlan):
        return _responses(answer)
    if {*BIN, "count"} <= set(frame.columns):
        return _histogram(answer)
    if not answer.values:
        return _texts(answer)
    if not answer.keys and frame.height == 1 and len(answer.values) > 1:
        return _numbers(answer)
    shown = title(answer.name, answer.below, *answer.notes)
    if len(answer.values) == 1:
        return _value_chart(answer, answer.values[0], _order(answer)).properties(title=shown)
    if _on_line(answer):
        return altair().vconcat(*(_value_chart(answer, value, None) for value in answer.values)).properties(title=shown)
    order, width = _order(answer), max(120, round(1.5 * WIDTH / min(len(answer.values), _ABREAST)))
    charts = [
        _value_chart(answer, value, order, width=width, named=place % _ABREAST == 0)
        for place, value in enumerate(answer.values)
    ]
    return altair().concat(*charts, columns=_ABREAST).properties(title=shown)


def _on_line(answer: ShownAnswer) -> bool:
    """Return whether the first key is a number or a date, so that its values are drawn along a line."""
    return bool(answer.keys) and answer.frame.height > 1 and kind_of(answer.frame[answer.keys[0]]) != "nominal"


def _order(answer: ShownAnswer) -> list[str] | None:
    """Return the keys from the largest answer to the smallest; None if the keys have an order of their own."""
    frame = answer.frame
    if not answer.keys or frame[answer.keys[0]].dtype != pl.String or not frame[answer.values[0]].dtype.is_numeric():
        return None
    totals: dict[str, float] = {}
    for key, value in zip(texts_of(frame[answer.keys[0]]), frame[answer.values[0]].to_list(), strict=True):
        totals[key] = totals.get(key, 0.0) + (float(value) if value is not None and math.isfinite(value) else 0.0)
    return sorted(totals, key=lambda key: -totals[key])


def _rows(answer: ShownAnswer, value: str) -> list[ChartRow]:
    frame, (low, high) = answer.frame, answer.interval(value) or (None, None)
    rows: list[ChartRow] = [{"value": number} for number in frame[value].to_list()]
    if low is not None and high is not None:
        for row, lower, upper in zip(rows, low, high, strict=True):
            row |= {"low": lower, "high": upper}
    if answer.keys:
        first = frame[answer.keys[0]]
        keys = first.to_list() if kind_of(first) != "nominal" else texts_of(first)
        for row, key in zip(rows, keys, strict=True):
            row["key"] = key
    others = [texts_of(frame[name]) for name in answer.keys[1:]]
    for row, *parts in zip(rows, *others, strict=True) if others else ():
        row["series"] = " / ".join(parts)
    return rows


def _value_chart(
    answer: ShownAnswer, value: str, order: list[str] | None, *, width: int = WIDTH, named: bool = True
) -> Any:
    """Return the chart of one value by its keys: a line if the first key is a number or a date, else bars.

    `order` is the order of the bars, and `named` tells whether their names stand on the left.
    """
    alt, column = altair(), answer.frame[value]
    rows = _rows(answer, value)
    kind = kind_of(answer.frame[answer.keys[0]]) if answer.keys else "nominal"
    on_line = _on_line(answer)
    if not answer.keys:
        rows = [{**row, "key": _NO_KEY if len(rows) == 1 else str(place)} for place, row in enumerate(rows)]
    if on_line:
        rows = [row for row in rows if row["key"] is not None]
    series = "series" in rows[0] if rows else False
    name = answer.keys[0] + unit_of(answer.frame[answer.keys[0]]) if answer.keys else None
    base = alt.Chart(inline(rows))
    value_kind, value_name = kind_of(column), _CUTS.get(value, value) + unit_of(column)
    tooltip = _tooltip(answer, value, rows, kind)
    colour = {"color": alt.Color(field="series", type="nominal", title=" / ".join(answer.keys[1:]))} if series else {}
    plain_colour = {} if series else {"color": ORANGE if value in _CUTS else BLUE}
    if on_line:
        x = alt.X(field="key", type=kind, title=name)
        y = alt.Y(field="value", type=value_kind, title=value_name)
        ends = {"y": alt.Y(field="low", type=value_kind, title=value_name), "y2": alt.Y2(field="high")}
        layers = []
        if "low" in rows[0]:
            layers.append(base.mark_area(opacity=0.2, **plain_colour).encode(x=x, **ends, **colour))
        layers.append(base.mark_line(point=True, **plain_colour).encode(x=x, y=y, tooltip=tooltip, **colour))
        return alt.layer(*layers).properties(width=width, height=240)
    axis = alt.Axis(labelLimit=200, ticks=False, domain=False, labels=named)
    bar = alt.Y(field="key", type="nominal", title=name if named else None, sort=order, axis=axis)
    length = alt.X(field="value", type=value_kind, title=value_name)
    along = {"x": alt.X(field="low", type=value_kind, title=value_name), "x2": alt.X2(field="high")}
    beside = {"yOffset": alt.YOffset(field="series", type="nominal")} if series else {}
    # Dates have no zero from which a bar could start.
    dots = base.mark_point(filled=True, size=80, **plain_colour)
    marks = dots if value_kind == "temporal" else base.mark_bar(opacity=0.75, **plain_colour)
    layers = [marks.encode(y=bar, x=length, tooltip=tooltip, **colour, **beside)]
    if "low" in rows[0]:
        layers.append(base.mark_rule(color=DARK, strokeWidth=2).encode(y=bar, **along, tooltip=tooltip, **beside))
    return alt.layer(*layers).properties(width=width, height=alt.Step(_BAR if not series else _BAR / 2))


def _tooltip(answer: ShownAnswer, value: str, rows: list[ChartRow], kind: str) -> list[Any]:
    alt = altair()
    found = []
    if answer.keys:
        found.append(alt.Tooltip(field="key", type=kind, title=answer.keys[0]))
    if rows and "series" in rows[0]:
        found.append(label("series", " / ".join(answer.keys[1:])))
    if kind_of(answer.frame[value]) == "temporal":
        return [*found, alt.Tooltip(field="value", type="temporal", title=value)]
    found.append(number("value", value))
    if rows and "low" in rows[0]:
        found += [number("low", "low"), number("high", "high")]
    return found


def _histogram(answer: ShownAnswer) -> Any:
    alt, frame = altair(), answer.frame
    keys = [key for key in answer.keys if key not in BIN]
    kind = kind_of(frame[BIN[0]])
    bins = frame.with_columns(middle=pl.col(BIN[0]) + (pl.col(BIN[1]) - pl.col(BIN[0])) / 2)
    low, high = answer.interval("count") or (None, None)
    errors = list(answer.errors.values())
    if low is None and len(errors) == 1:
        counts = frame["count"].to_list()
        low, high = [count - errors[0] for count in counts], [count + errors[0] for count in counts]
    rows: list[ChartRow] = [
        {"bin_low": begin, "bin_high": end, "middle": middle, "count": count}
        for begin, end, middle, count in bins.select(*BIN, "middle", "count").rows()
    ]
    if low is not None and high is not None:
        for row, lower, upper in zip(rows, low, high, strict=True):
            row |= {"low": lower, "high": upper}
    for row, *parts in zip(rows, *(texts_of(frame[key]) for key in keys), strict=True) if keys else ():
        row["series"] = " / ".join(parts)
    edges = [alt.Tooltip(field=name, type=kind, title=words) for name, words in zip(BIN, ("from", "to"), strict=True)]
    tooltip = [*edges, number("count", "count")]
    tooltip += [number("low", "low"), number("high", "high")] if "low" in rows[0] else []
    base = alt.Chart()
    x = alt.X(field=BIN[0], type=kind, title=_binned(answer), scale=alt.Scale(zero=False))
    y = alt.Y(field="count", type="quantitative", title="count")
    marks = base.mark_bar(color=BLUE, opacity=0.75, stroke="white")
    bars = marks.encode(x=x, x2=alt.X2(field=BIN[1]), y=y, y2=alt.Y2(datum=0), tooltip=tooltip)
    layers = [bars]
    if "low" in rows[0]:
        ends = {"y": alt.Y(field="low", type="quantitative", title="count"), "y2": alt.Y2(field="high")}
        layers.append(base.mark_rule(color=DARK).encode(x=alt.X(field="middle", type=kind), **ends))
    below = answer.below
    if low is not None and "without noise" not in below:
        below = f"{below} Dark lines: where the count without noise lies, 95 % of the time.".strip()
    chart = alt.layer(*layers, data=inline(rows)).properties(width=WIDTH, height=220 if not keys else 110)
    if keys:
        chart = chart.facet(row=alt.Row(field="series", type="nominal", title=", ".join(keys)))
    return chart.properties(title=title(answer.name, below, *answer.notes))


def _binned(answer: ShownAnswer) -> str:
    values = answer.plan.query.aggregates[0].values if isinstance(answer.plan, Plan) else ()
    return values[0].name if values else "bin"


def _numbers(answer: ShownAnswer) -> Any:
    """Return several numbers without keys as text, because each would need a scale of its own."""
    rows = []
    for value in answer.values:
        row = _rows(answer, value)[0]
        error = answer.errors.get(value)
        shown = row["value"] if not isinstance(row["value"], float) else f"{row['value']:,.6g}"
        rows.append(
            {"name": value, "text": f"{shown}" + ("" if error is None else f" \N{PLUS-MINUS SIGN} {error:,.6g}")}
        )
    return _written(rows, answer)


def _texts(answer: ShownAnswer) -> Any:
    """Return chosen candidates as text, because there is no number to draw."""
    names = [name for name in answer.keys if name != RANK]
    ranks = answer.frame[RANK].to_list() if RANK in answer.frame.columns else [None] * answer.frame.height
    columns = [texts_of(answer.frame[name]) for name in names]
    if any(dtype.is_nested() for dtype in answer.frame.dtypes) or not names:
        raise InvalidParameterError(
            "Answers that are lists or structs can't be drawn directly. Draw their parts, for example "
            "dp.plot(frame.explode(...)) or dp.plot(frame.unnest(...))."
        )
    rows = []
    for rank, *parts in zip(ranks, *columns, strict=True):
        *groups, chosen = parts
        before = [*groups, *([] if rank is None else [str(rank)])]
        rows.append({"name": " / ".join(before) or names[-1], "text": chosen})
    return _written(rows, answer)


def _written(rows: list[ChartRow], answer: ShownAnswer) -> Any:
    alt = altair()
    y = alt.Y(field="name", type="nominal", title=None, sort=None, axis=alt.Axis(ticks=False, domain=False))
    marks = alt.Chart(inline(rows)).mark_text(align="left", fontSize=14, fontWeight=600, color=BLUE)
    text = marks.encode(y=y, x=alt.value(8), text=alt.Text(field="text", type="nominal"))
    below = "Behind each number: how far the noise moves it at most, 95 % of the time." if answer.errors else ""
    shape = {"width": WIDTH, "height": alt.Step(26)}
    return text.properties(title=title(answer.name, below, *answer.notes), **shape).configure_view(strokeWidth=0)


def _responses(answer: ShownAnswer) -> Any:
    alt, (name,) = altair(), answer.frame.columns[:1]
    counted = answer.frame[name].value_counts(sort=True)
    categories = texts_of(counted[name])
    rows = [{"key": category, "value": n} for category, n in zip(categories, counted["count"].to_list(), strict=True)]
    bars = alt.Chart(inline(rows)).mark_bar(color=GREY, opacity=0.75)
    chart = bars.encode(
        y=alt.Y(field="key", type="nominal", title=name, sort=None),
        x=alt.X(field="value", type="quantitative", title="responses"),
        tooltip=[label("key", name), number("value", "responses")],
    )
    below = "Randomized responses. dp.estimate_frequencies estimates the true frequencies behind them."
    return chart.properties(width=WIDTH, title=title(answer.name, below, *answer.notes))


def _title(keys: Sequence[str], values: Sequence[str]) -> str:
    by = f" by {', '.join(keys)}" if keys and values else ""
    named = (", ".join(values) or ", ".join(keys)) + by
    return named[:1].upper() + named[1:]


def _columns(frame: pl.DataFrame, plan: Any) -> tuple[list[str], list[str]]:
    """Return the names of the keys and the values, from the plan or else from the types of the columns."""
    names = frame.columns
    ends = {f"{name}{end}" for name in names for end in _ENDS}
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
    """Return the Vega-Lite type with which a chart encodes a column."""
    if column.dtype in (pl.Date, pl.Datetime):
        return "temporal"
    return "quantitative" if column.dtype.is_numeric() or column.dtype == pl.Duration else "nominal"


def texts_of(column: pl.Series) -> list[str]:
    """Return the values of a column as labels."""
    return ["null" if value is None else str(value) for value in column.to_list()]


def unit_of(column: pl.Series) -> str:
    """Return the unit of a column's numbers, to be appended to its name."""
    return " (seconds)" if column.dtype == pl.Duration else ""
