"""`dp-polars audit`: show what analysts asked of a ledger, and what came of it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import polars as pl

from dp_polars._cli.exit_codes import CODES, CommandParser
from dp_polars._cli.output import encoded, json_text, show, table_width
from dp_polars._display.session import period_lines
from dp_polars._display.text import escaped
from dp_polars._session.session import Session

_EPILOG = f"""\
examples:
  dp-polars audit budget.db
  dp-polars audit budget.db --analyst team-a --format csv > asked.csv

{CODES}"""


def read(words: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments."""
    parser = CommandParser(
        prog="dp-polars audit",
        description="Show the audit log of a ledger, unchanged: who asked what and when (as their processes claimed), "
        "and whether it was answered, refused or failed. It holds nothing that was read from the data.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("ledger", metavar="BUDGET", help="the ledger file")
    parser.add_argument("--analyst", metavar="NAME", help="show only what this analyst asked")
    parser.add_argument("--format", choices=["table", "json", "csv"], default="table")
    return parser.parse_args(list(words))


def run(options: argparse.Namespace) -> None:
    """Print the audit log in the chosen format."""
    session = Session.from_ledger(options.ledger)
    try:
        log, periods = session.audit_log(), period_lines(session)
    finally:
        session.close()
    if options.analyst is not None:
        log = log.filter(pl.col("analyst") == options.analyst)
    if options.format == "json":
        show(json_text(log.to_dicts(), indent=2).encode() + b"\n", data=True)
    elif options.format == "csv":
        show(encoded(log, "csv", 0), data=True)
    elif log.is_empty():
        show(b"Analysts have asked nothing so far. The owner's releases are shown by dp-polars budget.\n")
    else:
        budget = pl.col("share").mul(100).round(3).alias("budget (%)")
        shown = log.select("analyst", "outcome", budget, "at", "reason", "asked")
        show(encoded(shown, "table", table_width()))
    if options.format == "table" and periods:
        show("".join(f"{escaped(line)}\n" for line in periods).encode())
