"""The result of an audit: as numbers, as a table and as a chart."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Literal

from dp_polars._display.charts.base import BLUE, RED, WIDTH, ChartRow, altair, inline, label, number, portable, title
from dp_polars._display.fact_table import AsTable
from dp_polars._display.html import facts, heading, whole

Verdict = Literal["no violation found", "violation"]

_NORMAL = NormalDist()
_SEEN, _CLAIM = "what was seen", "what the claim allows"


@dataclass(frozen=True, kw_only=True, repr=False)
class AuditResult(AsTable):
    """The result of `dp.audit`. It prints as a table, and `plot()` draws it.

    Attributes
    ----------
    verdict
        "violation" if the lower bound lies above the claim, else "no violation found", which proves nothing.
    epsilon_lower_bound
        A lower bound on the epsilon that the question really has at `delta`, with this `confidence`.
    epsilon, delta
        The claim. By default it is the price of the question.
    rho, rho_lower_bound
        The claim and the lower bound in rho if all noise is Gaussian, else None.
    confidence
        A question that keeps its claim is called a violation with probability at most 1 - confidence.
    runs
        The number of answers on each input. One half of them chose the event, the other half judged it.
    reads
        How often the rows of each input were read: once if nothing random happens before the noise.
    how
        How the answers were produced.
    likely, unlikely
        How often the event happened, on the input where it is likelier and on the other.
    likely_limit, unlikely_limit
        The confidence limits of these two probabilities, from which the bound follows.
    checked
        Whether the audit could check that the inputs are neighbours.
    curve
        Points (x, y) of the trade-off curve: how often answers with a high score came from the other input and from the
        input where they are likelier.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    >>> people = pl.DataFrame({"user": range(10)})
    >>> asked = lambda people: people.dp.count(epsilon=1.0)
    >>> found = dp.audit(asked, people, people[1:], session=session, made_up=True, confidence=1 - 1e-7)
    >>> found.verdict, found.epsilon, found.reads, found.runs
    ('no violation found', 1.0, 1, 1000000)
    >>> 0.9 < found.epsilon_lower_bound <= 1
    True
    >>> "layer" in found.plot().to_dict()
    True
    """

    verdict: Verdict
    epsilon_lower_bound: float
    epsilon: float
    delta: float
    rho: float | None
    rho_lower_bound: float | None
    confidence: float
    runs: int
    reads: int
    how: str
    likely: float
    unlikely: float
    likely_limit: float
    unlikely_limit: float
    checked: bool
    curve: tuple[tuple[float, float], ...] = field(default=())

    @property
    def claimed(self) -> str:
        """The claim as text."""
        text = f"epsilon {self.epsilon:.4g}" + (f" at delta {self.delta:.3g}" if self.delta else "")
        return text if self.rho is None else f"rho {self.rho:.4g} ({text} for Gaussian noise)"

    def rows(self) -> list[tuple[str, str]]:
        """Return the facts of the result, each with its name and its text."""
        found = f"epsilon {self.epsilon_lower_bound:.4g}" + (f" at delta {self.delta:.3g}" if self.delta else "")
        if self.rho_lower_bound is not None:
            found = f"rho {self.rho_lower_bound:.4g} ({found} for Gaussian noise)"
        return [
            ("audit", self.verdict),
            ("claimed", self.claimed),
            ("at least", f"{found}, with confidence {100 * self.confidence:.10g} %"),
            (
                "event",
                f"{self.likely:.4g} of the runs on one input (at least {self.likely_limit:.4g}), {self.unlikely:.4g} "
                f"on the other (at most {self.unlikely_limit:.4g})",
            ),
            ("runs", f"{self.runs:,} on each input; {self.how}"),
            (
                "inputs",
                "neighbours"
                if self.checked
                else "assumed to be neighbours, because the column of the unit is not in the frames",
            ),
            ("what it means", self._meaning()),
        ]

    def _meaning(self) -> str:
        if self.verdict == "violation":
            assumed = " if its noise has the shape of a Gaussian" if self.rho is not None else ""
            return (
                f"On these two inputs the question reveals more than was claimed{assumed}. This verdict is wrong with "
                f"probability at most {1 - self.confidence:.2g}."
            )
        return (
            "On these two inputs this event stays within the claim. Other inputs, other events or more runs may reveal "
            "more: an audit can refute a guarantee, but never prove it."
        )

    def _repr_html_(self) -> str:
        (_, verdict), *rest = self.rows()
        return whole(heading(f"Audit: {verdict}"), facts(rest))

    def plot(self) -> Any:
        """Return a chart of what was seen against what the claim allows. It needs the extra `plot`.

        Each point is an event, with its probability on one input and on the other. No event of a question that keeps
        its claim lies above the line of the claim.
        """
        return portable(audit_chart(self))


def audit_chart(result: AuditResult) -> Any:
    """Return the chart of how often events happened on both inputs, with the line of the claim."""
    alt = altair()
    points = [{"there": x, "here": y, "what": _SEEN} for x, y in result.curve]
    rows: list[ChartRow] = [*points, *({"there": x, "here": y, "what": _CLAIM} for x, y in _claim(result))]
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
    shown = title(f"Audit: {result.verdict}", below, "the dot shows the confidence limits of the event that was judged")
    return alt.layer(lines, mark).properties(width=WIDTH, height=WIDTH, title=shown)


def _claim(result: AuditResult) -> list[tuple[float, float]]:
    """Return the largest probability that the claim allows an event on one input, by its probability on the other."""
    places = [i / 200 for i in range(201)]
    if result.rho is not None:
        mu = math.sqrt(2 * result.rho)
        inner = [(x, _NORMAL.cdf(_NORMAL.inv_cdf(x) + mu)) for x in places[1:-1]]
        return [(0.0, 0.0), *inner, (1.0, 1.0)]
    factor = math.exp(min(result.epsilon, 500))
    corner = (1 - result.delta) / (1 + factor)  # where the two inequalities of the guarantee meet
    allowed = [
        (x, min(1.0, factor * x + result.delta, 1 - (1 - result.delta - x) / factor)) for x in sorted({*places, corner})
    ]
    return [(x, y) for x, y in allowed if y >= 0]
