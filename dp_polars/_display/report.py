"""`release.report()`: a released frame in a form that fits a memo, with what a reader has to know about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._display.html import escape, heading, whole
from dp_polars._display.released_table import ReleasedTable, in_markdown, released_table
from dp_polars._display.text import budget_text, escaped, percent
from dp_polars._session.cost import alone_text
from dp_polars._session.terms import Terms, _Row
from dp_polars.errors import InvalidParameterError

if TYPE_CHECKING:
    from dp_polars._session.releases import Release

_SUFFIXES = {".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html"}


@dataclass(frozen=True, repr=False)
class Report:
    """A release as a paragraph and a table for a memo. A notebook shows it, and `save` writes it to a file.

    Attributes
    ----------
    title
        What was asked, in words.
    paragraphs
        What a reader has to know: how the data are protected, how accurate the numbers are, and what is missing.
    table
        The released frame.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = pl.DataFrame({"user": range(200), "region": ["north", "south"] * 100})
    >>> with dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1) as session:
    ...     counts = visits.dp.count("region", keys=["north", "south"], epsilon=0.5)
    >>> report = session.releases[-1].report()
    >>> print(report.title)
    Count by region
    >>> print(report.paragraphs[1])
    Accuracy: Laplace noise of scale 4; answers within 12, 19 times out of 20. This is the error of the noise alone, ...
    """

    title: str
    paragraphs: tuple[str, ...]
    table: ReleasedTable | None

    @property
    def markdown(self) -> str:
        """The report in Markdown."""
        parts = [f"## {in_markdown(self.title)}", *map(in_markdown, self.paragraphs)]
        parts += [] if self.table is None else [self.table.markdown()]
        return "\n\n".join(parts) + "\n"

    @property
    def html(self) -> str:
        """The report in HTML: one block without scripts, which brings its styles."""
        parts = [heading(self.title), *(f"<p>{escape(text)}</p>" for text in self.paragraphs)]
        return whole(*parts, "" if self.table is None else self.table.html())

    def save(self, path: str | Path) -> None:
        """Write the report to a file. The name ends with .md or .html.

        Parameters
        ----------
        path
            The file, which is replaced if it exists.
        """
        target = Path(path)
        form = _SUFFIXES.get(target.suffix.lower())
        if form is None:
            raise InvalidParameterError("A report is written as Markdown or HTML: the name must end with .md or .html.")
        text = self.markdown if form == "markdown" else f'<!doctype html>\n<meta charset="utf-8">\n{self.html}\n'
        target.write_text(text, encoding="utf-8")

    def __str__(self) -> str:
        return self.markdown

    def __repr__(self) -> str:
        return f"<dp.Report: {escaped(self.title)}>"

    def _repr_html_(self) -> str:
        return self.html

    def _repr_markdown_(self) -> str:
        return self.markdown


def report_of(release: Release, terms: Terms) -> Report:
    """Return the report of a release of a session with these terms."""
    if release.state != "committed":
        raise InvalidParameterError(
            f"Charge number {release.id} released nothing, because its state is {release.state!r}. There is nothing to "
            "report."
        )
    plan = release.plan
    paragraphs = [_protection(release, terms, "" if plan is None else plan.caps_in_short())]
    if plan is not None:
        paragraphs.append(_accuracy(release))
        paragraphs += [f"{name[0].upper()}{name[1:]}: {text}." for name, text in plan.notes_for_readers()]
    learned = getattr(plan, "learned", ())  # a profile's numbers are bins; what they say is easier to read
    table = released_table(release.frame, release.keys)
    if learned:
        what, found = zip(*learned, strict=True)
        table = released_table(pl.DataFrame({"what": what, "released": found}), ("what",))
    return Report(release.title, tuple(text for text in paragraphs if text), table)


def _protection(release: Release, terms: Terms, caps: str) -> str:
    """Return how the data are protected, in whole sentences."""
    day = _day(release.finished_at or release.reserved_at)
    unit = "row" if isinstance(terms.unit, _Row) else " and ".join(terms.unit)
    whose, verb = (
        (f"any one {unit}", "is") if terms.group_size == 1 else (f"any {terms.group_size} units ({unit})", "are")
    )
    hidden = {"add_remove": f"whether {whose} {verb} in the data", "replace": f"what the data of {whose} are"}[
        terms.adjacency
    ]
    said = [
        f"These numbers were released with differential privacy{f' on {day}' if day else ''}: whoever sees them can "
        f"hardly tell {hidden}.",
        caps,
        f"The release used {budget_text(release.part)} of its session and has, by itself, {alone_text(release.cost)}.",
    ]
    return " ".join(text for text in said if text)


def _accuracy(release: Release) -> str:
    """Return how accurate the numbers are, as far as this is public."""
    plan = release.plan
    known = "; ".join(text for text in (plan.noise_in_short(), plan.error_in_short()) if text)
    said = []
    if known:
        said.append(f"Accuracy: {known}. This is the error of the noise alone, not of what caps and bounds cut off.")
    interval = getattr(getattr(plan, "query", None), "interval", None)
    columns = [name for name in release.frame.columns if name not in release.keys]
    if interval is not None and any(name.endswith("_low") and not name.endswith("_rank_low") for name in columns):
        said.append(
            f"With a probability of {percent(interval)}, the answer without noise lies between the columns that end "
            "with _low and _high."
        )
    return " ".join(said)


def _day(stamp: str) -> str:
    """Return the day of a timestamp of the ledger.

    >>> _day("2026-03-01T09:05:59+00:00")
    '1 March 2026'
    """
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return ""
    return f"{moment.day} {moment:%B %Y}"
