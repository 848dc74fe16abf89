"""The chart of a profile: its noisy histograms, one below the other, with what it suggests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dp_polars._display.charts.base import BLUE, GREY, RED, WIDTH, ChartRow, altair, inline, label, number, title
from dp_polars._display.text import escaped, percent
from dp_polars._profile.ladders import COUNTS

if TYPE_CHECKING:
    from dp_polars._profile.plan import Part
    from dp_polars._profile.profile import TableProfile

_LEAST = 0.0005  # share of a bin that is drawn at the ends of a histogram


def profile_chart(profile: TableProfile) -> Any:
    """Return the chart of a profile. It shows noisy shares only."""
    alt = altair()
    charts = [_histogram(profile, part) for part in profile.plan.parts if part.size > 1]
    below = f"about {profile.units:,} units; red: beyond what is suggested; a few heavy units can hide behind the noise"
    if not profile.reliable:
        below += "; the noise is large, so the suggestions are not reliable"
    return alt.vconcat(*charts).properties(title=title(escaped(profile.plan.title()), below))


def _histogram(profile: TableProfile, part: Part) -> Any:
    alt, plan = altair(), profile.plan
    shares = profile.shares(part).tolist()
    cut = _cut(profile, part)
    drawn = [place for place, share in enumerate(shares) if share >= _LEAST] or [0]
    rows: list[ChartRow] = [
        {"bin": escaped(name), "place": place, "share": share, "suggested": "beyond" if cut[place] else "within"}
        for place, (name, share) in enumerate(zip(plan.labels(part), shares, strict=True))
        if drawn[0] <= place <= drawn[-1]
    ]
    kinds = {"within": BLUE, "beyond": RED}
    return (
        alt.Chart(inline(rows))
        .mark_bar()
        .encode(
            x=alt.X(
                field="bin", type="ordinal", sort=alt.SortField("place"), title=None, axis=alt.Axis(labelOverlap=True)
            ),
            y=alt.Y(field="share", type="quantitative", title="share of units", axis=alt.Axis(format="%")),
            color=alt.Color(
                field="suggested",
                type="nominal",
                title=None,
                scale=alt.Scale(domain=list(kinds), range=list(kinds.values())),
            ),
            tooltip=[label("bin", "bin"), number("share", "share of units")],
        )
        .properties(
            width=WIDTH,
            height=110,
            title=alt.TitleParams(
                text=escaped(plan.subtitle(part)),
                subtitle=f"noise of each bar: within {percent(min(1.0, part.error() / profile.units))}",
                anchor="start",
                subtitleColor=GREY,
            ),
        )
    )


def _cut(profile: TableProfile, part: Part) -> list[bool]:
    """Return which bins of a part lie beyond what is suggested."""
    if part.column is not None:
        column = profile.plan.columns[part.column]
        suggested = next((bounds for bounds in profile.column_bounds if bounds.column is column), None)
        if suggested is None or column.ladder is None:
            return [False] * part.size
        pairs = zip(column.ladder.lows, column.ladder.highs, strict=True)
        return [False, *(low < suggested.lower or high > suggested.upper for low, high in pairs)]
    caps = dict(zip((cap.name for cap in profile.caps), profile.caps, strict=True))
    own_cap = caps.get(profile.capped().get(part.what, ""))
    if own_cap is None:
        return [False] * part.size
    return [place > COUNTS.index(own_cap.cap) for place in range(part.size)]
