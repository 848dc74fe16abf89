"""A chart of how releases used up a session's budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dp_polars._display.charts.base import BLUE, GREY, RED, WIDTH, Row, altair, inline, label, number, title
from dp_polars._display.formatting import moment, percent
from dp_polars._session.cost import NOTHING
from dp_polars._session.filters import share_of

if TYPE_CHECKING:
    from dp_polars._session.session import Session

_STATES = {"committed": BLUE, "reserved": GREY, "failed": RED}


def budget_chart(session: Session) -> Any:
    """Return a step for each release, from what was used before it to what was used after, below the whole budget."""
    alt, terms, sum_of_all = altair(), session.terms, NOTHING
    rows: list[Row] = []
    for one in session.releases:
        before, sum_of_all = sum_of_all, sum_of_all + one.cost
        rows.append(
            {
                "release": one.id,
                "label": one.label,
                "price": str(one.cost),
                "state": one.state,
                "charged": moment(one.reserved_at),
                "before": share_of(terms, before),
                "after": share_of(terms, sum_of_all),
            }
        )
    shares = {"title": "used of the budget", "axis": alt.Axis(format="%")}
    top = alt.Scale(domain=[0, max([1.05, *(row["after"] for row in rows)])])
    tooltip = [label(name, name) for name in ("release", "label", "price", "state", "charged")]
    tooltip.append(number("after", "used after it"))
    steps = (
        alt.Chart(inline(rows))
        .mark_bar()
        .encode(
            x=alt.X(field="release", type="ordinal", title="release", axis=alt.Axis(labelOverlap=True, labelAngle=0)),
            y=alt.Y(field="before", type="quantitative", scale=top, **shares),
            y2=alt.Y2(field="after"),
            color=alt.Color(
                field="state",
                type="nominal",
                title="state",
                scale=alt.Scale(domain=list(_STATES), range=list(_STATES.values())),
            ),
            tooltip=tooltip,
        )
    )
    limit = (
        alt.Chart(inline([{"limit": 1.0}]))
        .mark_rule(strokeDash=[6, 4], color=GREY)
        .encode(y=alt.Y(field="limit", type="quantitative", **shares))
    )
    used, left = percent(session.spent.share), percent(session.remaining.share)
    below = f"{len(rows)} {'release' if len(rows) == 1 else 'releases'}; {left} left; dashed: the whole budget"
    return alt.layer(steps, limit).properties(width=WIDTH, height=220, title=title(f"Budget: {used} used", below))
