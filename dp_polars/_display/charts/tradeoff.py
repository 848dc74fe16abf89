"""The chart of the expected error against epsilon, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from dp_polars._choices.plan import ChoicePlan
from dp_polars._display.charts.base import WIDTH, ChartRow, altair, inline, label, number, title
from dp_polars._display.fact_table import AsTable
from dp_polars._frame.private_frame import PrivateFrame
from dp_polars._local.plan import ResponsePlan
from dp_polars._many.online_plan import OnlinePlan
from dp_polars._plan.plan import Plan
from dp_polars._session.session import without_spending
from dp_polars._streams.plan import StreamPlan
from dp_polars.errors import InvalidParameterError

EPSILONS = tuple(float(f"{0.05 * 100 ** (place / 20):.2g}") for place in range(21))
"""The default epsilons, from 0.05 to 5 and even on a logarithmic scale."""

_QUESTIONS = 100  # how many a stream is assumed to be asked


def tradeoff_chart(
    question: Callable[..., Any], args: tuple[Any, ...], epsilons: Iterable[float] | None, options: dict[str, Any]
) -> Any:
    """Return the chart of the expected errors of a query's plans at several epsilons."""
    alt = altair()
    _check_free(question)
    wanted = list(EPSILONS if epsilons is None else epsilons)
    if not wanted:
        raise InvalidParameterError("epsilons= is empty. Say for example epsilons=[0.1, 0.2, 0.5, 1].")
    rows: list[ChartRow] = []
    plan: Any = None
    for epsilon in wanted:
        with without_spending():
            plan = question(*args, epsilon=epsilon, **options)
        found, what = _errors(plan)
        rows += [{"epsilon": float(epsilon), "error": error, "answer": name} for name, error in found.items()]
    if not rows:
        raise InvalidParameterError(
            "The error of this query depends on the data, so there is no curve to draw. Print its preview to see what "
            "is known. Counts, sums, distinct values, choices, streams and randomized responses have a curve."
        )
    several = len({row["answer"] for row in rows}) > 1
    colour = {"color": alt.Color(field="answer", type="nominal", title="answer")} if several else {}
    x = alt.X(field="epsilon", type="quantitative", title="epsilon", scale=alt.Scale(type="log", nice=False))
    y = alt.Y(field="error", type="quantitative", title=what, scale=alt.Scale(type="log"))
    tooltip = [number("epsilon", "epsilon"), number("error", what), *([label("answer", "answer")] if several else [])]
    lines = alt.Chart(inline(rows)).mark_line(point=True).encode(x=x, y=y, tooltip=tooltip, **colour)
    (kind, text), *_ = plan.rows()
    asked = text if kind == "query" else f"{kind} {text}"
    below = "error of the privacy noise of one answer at 95 %; nothing was spent"
    return lines.properties(width=WIDTH, height=240, title=title(f"What epsilon buys: {asked}", below))


def _check_free(question: Callable[..., Any]) -> None:
    """Refuse a query that would spend at every epsilon, as far as that can be seen."""
    owner = getattr(question, "__self__", None)
    if isinstance(getattr(owner, "_questions", owner), PrivateFrame):
        name = getattr(question, "__name__", "count")
        raise InvalidParameterError(
            f"This would release an answer at every epsilon and spend the sum of them. Pass the method of the preview "
            f"instead: dp.plot.tradeoff(df.dp.preview.{name}, ...)."
        )
    if not callable(question):
        raise InvalidParameterError(
            "tradeoff needs a query method of preview and its arguments: "
            "dp.plot.tradeoff(df.dp.preview.count, 'region')."
        )


def _errors(plan: Any) -> tuple[dict[str, float], str]:
    """Return the known errors of the answers by name, and what kind of error they are."""
    if isinstance(plan, StreamPlan):
        change = 1 if plan.of == "units" or plan.max_rows is None else plan.max_rows
        margin = plan.expected_error(_QUESTIONS, sensitivity=change).margin
        return {plan.of: float(margin)}, f"margin of {_QUESTIONS} questions"
    if isinstance(plan, OnlinePlan):
        return {"answer": plan.margin(_QUESTIONS)}, f"margin of {_QUESTIONS} questions, in rows beyond alpha * n"
    if isinstance(plan, ResponsePlan):
        return {plan.name: plan.channel.deviation(0.5)}, "standard error of a frequency, times sqrt(n)"
    if isinstance(plan, ChoicePlan):
        off = plan.expected_regret()
        return {} if off is None else {"choice": off}, "expected regret"
    if isinstance(plan, Plan):
        found = {name: error for name, error in plan.expected_errors().items() if math.isfinite(error) and error > 0}
        return found, "expected error"
    if isinstance(plan, AsTable):
        return {}, ""
    raise InvalidParameterError(
        f"The query returned a {type(plan).__name__} instead of a plan. Use the preview, which spends nothing: "
        "lambda epsilon: df.dp.preview.count('region', epsilon=epsilon)."
    )
