"""Charts of what was released: bars, lines, histograms, each with the interval of the privacy noise."""

from __future__ import annotations

from typing import Any

import polars as pl

from dp_polars._aggregates.histogram import BIN
from dp_polars._choices.release import RANK
from dp_polars._display.charts.base import BLUE, GREY, WIDTH, Row, altair, inline, label, number, title
from dp_polars._display.charts.released_frame import Answer, answer_of, kind_of, texts_of, unit_of
from dp_polars._local.plan import ResponsePlan
from dp_polars._plan.plan import Plan
from dp_polars._session.release_record import Release
from dp_polars.errors import InvalidParameterError

_NO_KEY = ""
_FEW = 6  # bars that need no slanted names and no whole width


def answer_chart(released: Release | pl.DataFrame, *, x: str | None = None, y: str | None = None) -> Any:
    """Return the chart of a release, or of a released frame."""
    altair()  # says so first if it is missing
    answer = answer_of(released, x, y)
    frame = answer.frame
    if not frame.height:
        raise InvalidParameterError("Nothing to draw: the released frame has no rows.")
    if isinstance(answer.plan, ResponsePlan):
        return _responses(answer)
    if {*BIN, "count"} <= set(frame.columns):
        return _histogram(answer)
    if not answer.values:
        return _texts(answer)
    if not answer.keys and frame.height == 1 and len(answer.values) > 1:
        return _numbers(answer)
    charts = [_one(answer, value) for value in answer.values]
    shown = title(answer.name, answer.below)
    return charts[0].properties(title=shown) if len(charts) == 1 else altair().vconcat(*charts).properties(title=shown)


def _rows(answer: Answer, value: str) -> list[Row]:
    frame, (low, high) = answer.frame, answer.interval(value) or (None, None)
    rows: list[Row] = [{"value": one} for one in frame[value].to_list()]
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


def _one(answer: Answer, value: str) -> Any:
    """Return the chart of one value by its keys: bars, or lines where the first key is a number or a date."""
    alt, column = altair(), answer.frame[value]
    rows = _rows(answer, value)
    kind = kind_of(answer.frame[answer.keys[0]]) if answer.keys else "nominal"
    on_line = kind != "nominal" and answer.frame.height > 1
    if not answer.keys:
        rows = [{**row, "key": _NO_KEY if len(rows) == 1 else str(place)} for place, row in enumerate(rows)]
    if on_line:
        rows = [row for row in rows if row["key"] is not None]
    series = "series" in rows[0] if rows else False
    name = answer.keys[0] + unit_of(answer.frame[answer.keys[0]]) if answer.keys else None
    base = alt.Chart(inline(rows))
    x = alt.X(field="key", type=kind, title=name)
    if not on_line:
        places = len({row["key"] for row in rows})
        axis = alt.Axis(labelLimit=160, labelAngle=0 if places <= _FEW else -40)
        x = alt.X(field="key", type="nominal", title=name, sort=None, axis=axis)
    y_kind, y_name = kind_of(column), value + unit_of(column)
    y = alt.Y(field="value", type=y_kind, title=y_name)
    ends = {"y": alt.Y(field="low", type=y_kind, title=y_name), "y2": alt.Y2(field="high")}
    tooltip = _tooltip(answer, value, rows, kind)
    colour = {"color": alt.Color(field="series", type="nominal", title=" / ".join(answer.keys[1:]))} if series else {}
    beside = {"xOffset": alt.XOffset(field="series", type="nominal")} if series and not on_line else {}
    own = {} if series else {"color": BLUE}
    layers = []
    if on_line:
        if "low" in rows[0]:
            layers.append(base.mark_area(opacity=0.2, **own).encode(x=x, **ends, **colour))
        layers.append(base.mark_line(point=True, **own).encode(x=x, y=y, tooltip=tooltip, **colour))
    else:
        bars = {"opacity": 0.75, **own}
        # A date has no zero that a bar could start from.
        marks = base.mark_point(filled=True, size=80, **own) if y_kind == "temporal" else base.mark_bar(**bars)
        layers.append(marks.encode(x=x, y=y, tooltip=tooltip, **colour, **beside))
        if "low" in rows[0]:
            layers.append(base.mark_rule(color="#30363d", strokeWidth=2).encode(x=x, **ends, tooltip=tooltip, **beside))
    few = not on_line and not series and len(rows) <= _FEW
    return alt.layer(*layers).properties(width=alt.Step(64) if few else WIDTH, height=240)


def _tooltip(answer: Answer, value: str, rows: list[Row], kind: str) -> list[Any]:
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


def _histogram(answer: Answer) -> Any:
    alt, frame = altair(), answer.frame
    keys = [key for key in answer.keys if key not in BIN]
    kind = kind_of(frame[BIN[0]])
    bins = frame.with_columns(middle=pl.col(BIN[0]) + (pl.col(BIN[1]) - pl.col(BIN[0])) / 2)
    low, high = answer.interval("count") or (None, None)
    errors = list(answer.errors.values())
    if low is None and len(errors) == 1:
        counts = frame["count"].to_list()
        low, high = [one - errors[0] for one in counts], [one + errors[0] for one in counts]
    rows: list[Row] = [
        {"bin_low": one, "bin_high": end, "middle": middle, "count": count}
        for one, end, middle, count in bins.select(*BIN, "middle", "count").rows()
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
        layers.append(base.mark_rule(color="#30363d").encode(x=alt.X(field="middle", type=kind), **ends))
    below = answer.below or ("with the interval of the privacy noise of 95% of answers" if low is not None else "")
    chart = alt.layer(*layers, data=inline(rows)).properties(width=WIDTH, height=220 if not keys else 110)
    if keys:
        chart = chart.facet(row=alt.Row(field="series", type="nominal", title=", ".join(keys)))
    return chart.properties(title=title(answer.name, below))


def _binned(answer: Answer) -> str:
    values = answer.plan.query.aggregates[0].values if isinstance(answer.plan, Plan) else ()
    return values[0].name if values else "bin"


def _numbers(answer: Answer) -> Any:
    """Return several numbers without keys: they have scales of their own, so they are written, not drawn."""
    rows = []
    for value in answer.values:
        row = _rows(answer, value)[0]
        error = answer.errors.get(value)
        shown = row["value"] if not isinstance(row["value"], float) else f"{row['value']:,.6g}"
        rows.append(
            {"name": value, "text": f"{shown}" + ("" if error is None else f" \N{PLUS-MINUS SIGN} {error:,.6g}")}
        )
    return _written(rows, answer)


def _texts(answer: Answer) -> Any:
    """Return what was chosen, written: there is no number to draw."""
    names = [name for name in answer.keys if name != RANK]
    ranks = answer.frame[RANK].to_list() if RANK in answer.frame.columns else [None] * answer.frame.height
    columns = [texts_of(answer.frame[name]) for name in names]
    if any(dtype.is_nested() for dtype in answer.frame.dtypes) or not names:
        raise InvalidParameterError(
            "Answers that are lists or structs can't be drawn as they are: draw their parts, for example "
            "dp.plot(frame.explode(...)) or dp.plot(frame.unnest(...))."
        )
    rows = []
    for rank, *parts in zip(ranks, *columns, strict=True):
        *groups, chosen = parts
        before = [*groups, *([] if rank is None else [str(rank)])]
        rows.append({"name": " / ".join(before) or names[-1], "text": chosen})
    return _written(rows, answer)


def _written(rows: list[Row], answer: Answer) -> Any:
    alt = altair()
    y = alt.Y(field="name", type="nominal", title=None, sort=None, axis=alt.Axis(ticks=False, domain=False))
    marks = alt.Chart(inline(rows)).mark_text(align="left", fontSize=14, fontWeight=600, color=BLUE)
    text = marks.encode(y=y, x=alt.value(8), text=alt.Text(field="text", type="nominal"))
    below = "with the expected error of the privacy noise" if answer.errors else ""
    shape = {"width": WIDTH, "height": alt.Step(26)}
    return text.properties(title=title(answer.name, below), **shape).configure_view(strokeWidth=0)


def _responses(answer: Answer) -> Any:
    alt, (name,) = altair(), answer.frame.columns[:1]
    counted = answer.frame[name].value_counts(sort=True)
    categories = texts_of(counted[name])
    rows = [{"key": one, "value": n} for one, n in zip(categories, counted["count"].to_list(), strict=True)]
    bars = alt.Chart(inline(rows)).mark_bar(color=GREY, opacity=0.75)
    chart = bars.encode(
        x=alt.X(field="key", type="nominal", title=name, sort=None),
        y=alt.Y(field="value", type="quantitative", title="responses"),
        tooltip=[label("key", name), number("value", "responses")],
    )
    below = "randomized responses as they are; dp.estimate_frequencies tells what is behind them"
    return chart.properties(width=WIDTH, title=title(answer.name, below))
