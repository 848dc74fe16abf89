"""How a release looks: its frame, and below it what it was, what it cost and how exact it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_polars._display.escaping import escaped_frame
from dp_polars._display.fact_table import AsTable, table_text
from dp_polars._display.formatting import moment, one_line, percent
from dp_polars._display.html import facts, folded, heading, scrolling, whole
from dp_polars._session.filters import share_of

if TYPE_CHECKING:
    from dp_polars._session.releases import Release


def release_rows(release: Release) -> list[tuple[str, str]]:
    """Return what there is to say below a released frame, as names and texts."""
    terms = getattr(release.plan, "terms", None)
    share = "" if terms is None else f" ({percent(share_of(terms, release.cost))} of the session)"
    again = "; kept in the ledger, where reading it is free" if release.stored and release.state == "committed" else ""
    rows = [("release", f"number {release.id}: {release.label}"), ("price", f"{release.cost}{share}")]
    named = len(release.error) > 1
    for name, error in release.error.items():
        text = f"within {error:.6g} for 95 % of answers (privacy noise)"
        rows.append((f"expected error of {name}" if named else "expected error", text))
    when = f"{moment(release.finished_at or release.reserved_at)}, {release.state}{again}"
    rows.append(("when", when))
    return rows


def _nothing(release: Release) -> str:
    return f"Nothing was released: it is {release.state}. The charge stays in any case."


def release_text(release: Release) -> str:
    """Return the frame and the facts below it, for a terminal."""
    rows = [(name, one_line(text, 200)) for name, text in release_rows(release)]
    shown = str(escaped_frame(release.frame)) if release.state == "committed" else _nothing(release)
    return f"{shown}\n{table_text(rows)}"


def release_html(release: Release) -> str:
    """Return the frame as Polars shows it and the facts below it, for a notebook; the plan is folded."""
    (_, _), *rows = release_rows(release)
    shown = f'<div class="dp-polars-quiet dp-polars-bad">{_nothing(release)}</div>'
    if release.state == "committed":
        shown = scrolling(escaped_frame(release.frame)._repr_html_(), "released frame")
    blocks = [heading(f"Release {release.id}: {release.label}"), shown, facts(rows)]
    if isinstance(release.plan, AsTable):
        blocks.append(folded("Plan: from the unit to the noise", facts(release.plan.rows())))
    return whole(*blocks)
