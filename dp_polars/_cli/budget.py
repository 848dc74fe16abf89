"""`dp-polars budget`: show a ledger."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction

import polars as pl

from dp_polars._cli.exit_codes import CODES, CommandParser
from dp_polars._cli.output import encoded, json_text, show, table_width
from dp_polars._display.text import escaped
from dp_polars._session.periods import KIND as PERIOD
from dp_polars._session.periods import Period, together
from dp_polars._session.session import Session
from dp_polars._session.terms import Terms

_EPILOG = f"""\
examples:
  dp-polars budget budget.db
  dp-polars budget budget.db --format json | python -c "import json, sys; print(json.load(sys.stdin)['remaining'])"

{CODES}"""


def read(words: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments."""
    parser = CommandParser(
        prog="dp-polars budget",
        description="Show a ledger, unchanged: its terms, the part of the budget that is used, and every release.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("ledger", metavar="BUDGET", help="the ledger file")
    parser.add_argument(
        "--format", choices=["table", "json", "csv"], default="table", help="json has everything, csv the releases"
    )
    parser.add_argument(
        "--accounts", action="store_true", help="also show each account: the sums of epsilons, of rhos and of deltas"
    )
    return parser.parse_args(list(words))


def run(options: argparse.Namespace) -> None:
    """Print the ledger in the chosen format."""
    session = Session.from_ledger(options.ledger)
    try:
        releases = session.export()
        if options.format == "csv":
            show(encoded(releases, "csv", 0), data=True)
        elif options.format == "json":
            show(json_text(_whole(session, releases), indent=2).encode() + b"\n", data=True)
        else:
            show(escaped(session.describe(accounts=options.accounts), keep="\n").encode() + b"\n")
            if releases.height:
                columns = ["id", "label", "state", "share", "reserved_at"]
                if options.accounts:
                    columns[4:4] = _accounts(session, releases)
                shown = releases.select(columns).with_columns(pl.col("share").mul(100).round(3).alias("share"))
                show(encoded(shown.rename({"share": "budget (%)"}), "table", table_width()))
    finally:
        session.close()


def _terms(terms: Terms) -> dict[str, object]:
    """Return the terms with numbers as numbers; None for what was not agreed."""
    parts = {"conversion": terms.conversion_delta, "keys": terms.native_delta, "gaussians": terms.gaussian_delta}
    agreed = {"epsilon": terms.epsilon, "delta": terms.delta, "rho": terms.rho}
    return {
        "measure": terms.measure,
        **{name: None if amount is None else float(amount) for name, amount in agreed.items()},
        "delta_split": {name: float(part or 0) for name, part in parts.items()} if terms.delta else None,
        "unit": terms.described()["unit"],
        "adjacency": terms.adjacency,
        "group_size": terms.group_size,
    }


def _accounts(session: Session, releases: pl.DataFrame) -> list[str]:
    """Return the columns of the accounts that the session has or that its releases used."""
    columns = ["epsilon"] if session.terms.measure == "pure" else ["epsilon", "rho"]
    return [*columns, "delta"] if (releases["delta"] > 0).any() else columns


def _period(period: Period) -> dict[str, object]:
    return {name: float(own) if isinstance(own, Fraction) else own for name, own in vars(period).items()}


def _whole(session: Session, releases: pl.DataFrame) -> dict[str, object]:
    return {
        "terms": _terms(session.terms),
        "spent": asdict(session.spent),
        "remaining": asdict(session.remaining),
        "facts": [{**asdict(fact), "value": json.loads(fact.value)} for fact in session.facts if fact.kind != PERIOD],
        "periods": [_period(period) for period in session.periods],
        "all_periods": _period(together(session.periods)) if session.periods else None,
        "releases": releases.to_dicts(),
    }
