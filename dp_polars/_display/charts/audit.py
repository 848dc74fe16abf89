"""The chart of an audit: how well two inputs were told apart, and how well the claim allows."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from dp_polars._audit.result import AuditResult
from dp_polars._display.charts.base import BLUE, RED, WIDTH, Row, altair, inline, label, number, title

_NORMAL = NormalDist()
_SEEN, _CLAIM = "what was seen", "what the claim allows"


def audit_chart(result: AuditResult) -> Any:
    """Return how often events happened on the one input and on the other, below or above the line of the claim."""
    alt = altair()
    points = [{"there": x, "here": y, "what": _SEEN} for x, y in result.curve]
    rows: list[Row] = [*points, *({"there": x, "here": y, "what": _CLAIM} for x, y in _claim(result))]
    x = alt.X(field="there", type="quantitative", title="probability on the other input")
    y = alt.Y(field="here", type="quantitative", title="probability on one input")
    scale = alt.Scale(domain=[_SEEN, _CLAIM], range=[BLUE, RED])
    colour = alt.Color(field="what", type="nominal", title=None, scale=scale, legend=alt.Legend(orient="bottom"))
    tooltip = [label("what", "line"), number("there", "on the other input"), number("here", "on one input")]
    lines = alt.Chart(inline(rows)).mark_line(interpolate="linear").encode(x=x, y=y, color=colour, tooltip=tooltip)
    judged = [{"there": result.unlikely_limit, "here": result.likely_limit}]
    limits = [number("there", "at most"), number("here", "at least")]
    mark = alt.Chart(inline(judged)).mark_point(filled=True, size=80, color=BLUE).encode(x=x, y=y, tooltip=limits)
    below = f"claimed {result.claimed}; at least epsilon {result.epsilon_lower_bound:.4g}; {result.runs:,} runs each"
    shown = title(f"Audit: {result.verdict}", below, "the dot: the limits of the event that was judged")
    return alt.layer(lines, mark).properties(width=WIDTH, height=WIDTH, title=shown)


def _claim(result: AuditResult) -> list[tuple[float, float]]:
    """Return the most that the claim allows an event on one input, by its probability on the other."""
    places = [i / 200 for i in range(201)]
    if result.rho is not None:
        mu = math.sqrt(2 * result.rho)
        inner = [(x, _NORMAL.cdf(_NORMAL.inv_cdf(x) + mu)) for x in places[1:-1]]
        return [(0.0, 0.0), *inner, (1.0, 1.0)]
    factor = math.exp(min(result.epsilon, 500))
    corner = (1 - result.delta) / (1 + factor)  # where both sides of the guarantee meet
    allowed = [
        (x, min(1.0, factor * x + result.delta, 1 - (1 - result.delta - x) / factor)) for x in sorted({*places, corner})
    ]
    return [(x, y) for x, y in allowed if y >= 0]
