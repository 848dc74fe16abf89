"""How a session and its releases look: as text, as HTML, and as a chart of the budget.

A session shows the part of its budget that is used and its releases, and on request each of its accounts. A release
shows its frame, and below it what it was, which part of the budget it used and how accurate it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dp_polars._display.charts.base import BLUE, GREY, RED, WIDTH, ChartRow, altair, inline, label, number, title
from dp_polars._display.fact_table import AsTable, table_text
from dp_polars._display.html import cell, columns, escape, facts, folded, heading, lines, whole
from dp_polars._display.html import meter as meter_html
from dp_polars._display.html import meters as meters_html
from dp_polars._display.released_table import released_table
from dp_polars._display.text import amount, budget_text, escaped, moment, one_line, percent
from dp_polars._session.accounts import account_text
from dp_polars._session.cost import NOTHING, alone_text
from dp_polars._session.filters import part_of, share_of
from dp_polars._session.periods import KIND as PERIOD
from dp_polars._session.periods import together
from dp_polars._session.terms import _Row

if TYPE_CHECKING:
    from dp_polars._session.ledger import Closing, Fact
    from dp_polars._session.releases import Release
    from dp_polars._session.session import Session

_CELLS = 20  # characters of a bar in a terminal
_MOST_CLOSINGS, _MOST_REOPENINGS, _MOST_SHARES, _MOST_PERIODS = 5, 3, 10, 5  # how many are listed
_LAST = {"text": 5, "html": 10}  # releases that are shown
_EITHER = "releases are accepted while epsilon or rho is within its limit, and the smaller share counts"
_STATES = {"committed": BLUE, "reserved": GREY, "failed": RED}


@dataclass(frozen=True)
class Meter:
    """How much of one account is used: the share, and what is spent and allowed in the account's own measure."""

    name: str
    share: float
    spent: float
    limit: float

    def text(self) -> str:
        """Return the amounts as text."""
        return f"{self.spent:.6g} of {self.limit:.6g}"


def meters_of(session: Session) -> list[Meter]:
    """Return the accounts of a session: epsilon, rho and the delta for keys."""
    terms, spent = session.terms, session.spent
    limits = {
        "epsilon": (spent.epsilon, terms.epsilon),
        "rho": (spent.rho, terms.rho_allowed),
        "delta for keys": (spent.delta, terms.native_delta),
    }
    return [
        Meter(name, used / float(limit), used, float(limit))
        for name, (used, limit) in limits.items()
        if used is not None and limit
    ]


def scarce_keys(session: Session) -> str:
    """Return what is left of the delta for keys, if this part is smaller than that of the budget, or else nothing."""
    limit = float(session.terms.native_delta)
    left = session.remaining
    if not limit or left.delta / limit >= left.share - 1e-9:
        return ""
    return f"{percent(left.delta / limit)} of the delta for keys"


def bar_text(share: float) -> str:
    """Return a bar made of text.

    >>> bar_text(0.48)
    '[##########----------]'
    """
    full = min(max(round(share * _CELLS), 0 if share <= 0 else 1), _CELLS) if math.isfinite(share) else _CELLS
    return f"[{'#' * full}{'-' * (_CELLS - full)}]"


def session_text(session: Session, *, accounts: bool = False) -> str:
    """Return the terms of a session, the part of the budget that is used, and the last releases, for a terminal."""
    terms, releases = session.terms, session.releases
    used, left = session.spent.share, session.remaining.share
    said = [f"dp_polars session ({terms.measure})"]
    said += [f"  {name}: {text}" for name, text in terms.described().items() if text != "none"]
    planned = account_text(session.defaults.account, session.defaults.queries)
    said += [f"  planned for: {planned}"] if planned else []
    said.append(f"  ledger: {session.ledger_path or 'in memory'}")
    said += [
        f"  {text}"
        for text in (*period_lines(session), *closed_lines(session), *share_lines(session), *fact_lines(session.facts))
    ]
    scarce = scarce_keys(session)
    said.append(f"  releases: {len(releases)}")
    said.append(
        f"  budget: {bar_text(used)} {percent(used)} used, {percent(left)} left{f' ({scarce})' if scarce else ''}"
    )
    if accounts:
        shown = meters_of(session)
        width = max(len(account.name) for account in shown)
        said.append(f"  accounts{f' ({_EITHER})' if terms.measure == 'approximate' else ''}:")
        said += [
            f"    {account.name:<{width}}  {bar_text(account.share)} {percent(account.share):>6}  {account.text()}"
            for account in shown
        ]
    if releases:
        said.append(f"  {_last_words(releases, _LAST['text'])}:")
        said += [f"    {text}" for text in _release_lines(releases[-_LAST["text"] :])]
    return "\n".join(map(escaped, said))


def closed_lines(session: Session) -> list[str]:
    """Return lines on what closed a session or an analyst's share and why it was reopened, or none if nothing did."""
    said = []
    closings, reopenings = session.closings, session.reopenings
    closed: dict[str | None, list[Closing]] = {}
    for closing in closings:
        if closing.reopened_at is None:
            closed.setdefault(closing.analyst, []).append(closing)
    for analyst, standing in closed.items():
        charges = ", ".join(f"{closing.charge} ({closing.cause})" for closing in standing[:_MOST_CLOSINGS])
        more = ", ..." if len(standing) > _MOST_CLOSINGS else ""
        whose, argument = ("", "") if analyst is None else (f" for {analyst}", f", analyst={analyst!r}")
        said.append(
            f"CLOSED{whose} since {moment(standing[0].closed_at)} by charge {charges}{more}: only stored releases can "
            "be read"
        )
        said.append(f'the data owner can reopen it with session.reopen(reason="..."{argument})')
    if reopenings:
        acts = {(closing.reopened_at, closing.reason) for closing in closings if closing.reopened_at and closing.reason}
        last = sorted(acts)[-_MOST_REOPENINGS:]
        texts = [f"{moment(at or '')}: {one_line(reason or '', 60)}" for at, reason in last]
        said.append(f"reopened {'once' if reopenings == 1 else f'{reopenings:,} times'}: {'; '.join(texts)}")
    return said


def period_lines(session: Session) -> list[str]:
    """Return a line on the periods of a session and what they promise together, or none if it has no period."""
    *earlier, own = session.periods or (None,)
    if own is None:
        return []
    if not earlier:
        return [f"period: {own.name}, the first"]
    before = ", ".join(period.name for period in earlier[-_MOST_PERIODS:])
    more = f"{len(earlier) - _MOST_PERIODS:,} others and " if len(earlier) > _MOST_PERIODS else ""
    total = together(session.periods)
    return [f"period: {own.name}, after {more}{before}; all {total.name} together promise {total.promise()}"]


def share_lines(session: Session) -> list[str]:
    """Return lines on the shares of analysts, or none if there are none."""
    shares, analyst = session.shares, session.analyst_name
    if analyst is not None:
        return [f"share of {analyst}: {percent(shares.get(analyst, 0.0))} of the budget"]
    if not shares:
        return []
    named = ", ".join(f"{name} {percent(share)}" for name, share in list(shares.items())[:_MOST_SHARES])
    more = f" and {len(shares) - _MOST_SHARES:,} more" if len(shares) > _MOST_SHARES else ""
    total = sum(shares.values())
    beyond = "; together more than the budget, so the first to ask get answers" if total > 1 + 1e-9 else ""
    return [f"shares of analysts: {named}{more}{beyond}"]


def fact_lines(facts: Sequence[Fact]) -> list[str]:
    """Return lines on what the data owner declared to be public."""
    return [
        f"declared public by the data owner on {moment(fact.recorded_at)}: {one_line(str(fact), 400)}"
        for fact in facts
        if fact.kind != PERIOD
    ]


def _last_words(releases: Sequence[Release], most: int) -> str:
    if len(releases) <= most:
        return "releases so far" if len(releases) > 1 else "the release so far"
    return f"the last {most} of {len(releases):,} releases (all: session.export())"


def _release_lines(releases: Sequence[Release]) -> list[str]:
    cells = [
        (
            str(release.id),
            one_line(release.label, 44),
            percent(release.part),
            release.state,
            moment(release.reserved_at),
        )
        for release in releases
    ]
    widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def session_html(session: Session) -> str:
    """Return the budget as bars and the last releases as a table, for a notebook."""
    terms, releases = session.terms, session.releases
    used = session.spent.share
    unit = "every row" if isinstance(terms.unit, _Row) else ", ".join(terms.unit)
    change = {"add_remove": "added or removed", "replace": "replaced"}[terms.adjacency]
    together = f", {terms.group_size} at a time" if terms.group_size > 1 else ""
    where = f"ledger {session.ledger_path}" if session.ledger_path else "in memory"
    title = f"Privacy budget: {percent(used)} used"
    about = f"{_agreed(session)}; protects {unit}, {change}{together}; {where}"
    planned = account_text(session.defaults.account, session.defaults.queries)
    about += f"; planned for {planned}" if planned else ""
    scarce = scarce_keys(session)
    left = f"{percent(used)} used, {percent(session.remaining.share)} left{f' ({scarce})' if scarce else ''}"
    bars = [meter_html("budget", used, left)]
    accounts = meters_html(meter_html(account.name, account.share, account.text()) for account in meters_of(session))
    if terms.measure == "approximate":
        accounts += f'<div class="dp-polars-quiet">{_EITHER[0].upper()}{_EITHER[1:]}.</div>'
    shut = [
        f'<div class="dp-polars-quiet">{escape(text)}</div>'
        for text in [*period_lines(session), *closed_lines(session), *share_lines(session), *fact_lines(session.facts)]
    ]
    blocks = [heading(title, about), *shut, meters_html(bars), _releases_html(releases), folded("Accounts", accounts)]
    return whole(*blocks)


def _agreed(session: Session) -> str:
    said = session.terms.described()
    parts = [f"{name} {said[name]}" for name in ("epsilon", "rho", "delta") if said[name] not in ("none", "0")]
    return f"{session.terms.measure} session, {', '.join(parts)}"


def _releases_html(releases: Sequence[Release]) -> str:
    if not releases:
        return '<div class="dp-polars-quiet">No release so far.</div>'
    last = releases[-_LAST["html"] :]
    words = _last_words(releases, _LAST["html"])
    cells = [
        (
            lines(str(release.id)),
            cell(release.label),
            lines(percent(release.part)),
            lines(release.state, bad=release.state != "committed"),
            lines(moment(release.reserved_at).removesuffix(" UTC")),
        )
        for release in last
    ]
    table = columns("releases", ("no.", "release", "budget used", "state", "charged (UTC)"), cells)
    return f'<div class="dp-polars-quiet">{words[0].upper()}{words[1:]}</div>{table}'


def release_rows(release: Release) -> list[tuple[str, str]]:
    """Return the facts below a released frame."""
    price = f"{budget_text(release.part)} (by itself {alone_text(release.cost)})"
    again = "; stored in the ledger and free to read again" if release.stored and release.state == "committed" else ""
    rows = [("release", f"number {release.id}: {release.label}"), ("price", price)]
    # The only error may be that of a count beside an answer whose own error is unknown.
    named = len(getattr(release.plan, "compiled", ())) > 1 or len(release.error) > 1
    for name, error in release.error.items():
        text = f"within {amount(error, 6)} for 95 % of answers (privacy noise)"
        rows.append((f"expected error of {name}" if named else "expected error", text))
    rows += getattr(release.plan, "vague_errors", list)()
    rows += release.notes
    when = f"{moment(release.finished_at or release.reserved_at)}, {release.state}{again}"
    rows.append(("when", when))
    return rows


def _nothing(release: Release) -> str:
    return f"Nothing was released, because this release is {release.state}. Its charge stays."


def release_text(release: Release) -> str:
    """Return a released frame and the facts below it, for a terminal."""
    rows = [(name, one_line(text, 200)) for name, text in release_rows(release)]
    shown = released_table(release.frame, release.keys).text() if release.state == "committed" else _nothing(release)
    return f"{shown}\n\n{table_text(rows)}"


def release_html(release: Release) -> str:
    """Return a released frame, the facts below it and the folded plan, for a notebook."""
    (_, _), *rows = release_rows(release)
    shown = f'<div class="dp-polars-quiet dp-polars-bad">{_nothing(release)}</div>'
    if release.state == "committed":
        shown = released_table(release.frame, release.keys).html()
    blocks = [heading(f"Release {release.id}: {release.label}"), shown, facts(rows)]
    if isinstance(release.plan, AsTable):
        blocks.append(folded("Plan: from the unit to the noise", facts(release.plan.rows())))
    return whole(*blocks)


def budget_chart(session: Session) -> Any:
    """Return the chart of a session's budget, with one step for each release."""
    alt, terms, total = altair(), session.terms, NOTHING
    rows: list[ChartRow] = []
    for release in session.releases:
        before, total = total, total + release.cost
        rows.append(
            {
                "release": release.id,
                "label": release.label,
                "price": budget_text(part_of(terms, before, release.cost)),
                "state": release.state,
                "charged": moment(release.reserved_at),
                "before": share_of(terms, before),
                "after": share_of(terms, total),
            }
        )
    shares = {"title": "share of the budget used", "axis": alt.Axis(format="%")}
    top = alt.Scale(domain=[0, max([1.05, *(row["after"] for row in rows)])])
    tooltip = [label(name, name) for name in ("release", "label", "price", "state", "charged")]
    tooltip.append(number("after", "used after this release"))
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
    below = f"{len(rows)} {'release' if len(rows) == 1 else 'releases'}; {left} left; dashed line: the whole budget"
    return alt.layer(steps, limit).properties(width=WIDTH, height=220, title=title(f"Budget: {used} used", below))
