"""`dp-polars policy`: check a policy, or make a first draft of one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from decimal import Decimal

from dp_polars._cli.exit_codes import CODES, CommandParser
from dp_polars._display.text import escaped
from dp_polars._policy.draft import ProfileSpend, draft_policy
from dp_polars._policy.policy import Policy

_DESCRIPTION = """\
check FILE    read a policy, compare it with its tables and print what it says, or every mistake with its line
init FILE...  print a first draft of a policy for Parquet, CSV or Arrow files, from column names and types alone;
              with --profile, caps and bounds come from a private profile, which spends a share of the drafted budget"""

_EPILOG = f"""\
examples:
  dp-polars policy init orders.parquet items.parquet > policy.toml
  dp-polars policy init orders.parquet items.parquet --profile --epsilon 1 --share 0.1 > policy.toml
  dp-polars policy check policy.toml
  dp-polars sql --policy policy.toml "SELECT status, COUNT(*) FROM orders GROUP BY status"

{CODES}"""  # noqa: S608 - a text to read


def read(words: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments."""
    parser = CommandParser(
        prog="dp-polars policy",
        usage="dp-polars policy check FILE | dp-polars policy init FILE... [--profile --epsilon E --share S]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("action", choices=["check", "init"], help="what to do")
    parser.add_argument("files", nargs="+", metavar="FILE", help="a policy, or the files of its tables")
    parser.add_argument("--profile", action="store_true", help="init: profile the files privately; this spends budget")
    parser.add_argument("--epsilon", type=Decimal, metavar="E", help="with --profile: the whole budget of the policy")
    parser.add_argument("--delta", type=Decimal, metavar="D", help="with --profile: its delta (default: 1e-6)")
    parser.add_argument("--share", type=Decimal, metavar="S", help="with --profile: the part of it that is spent now")
    parser.add_argument("--unit", metavar="COLUMN", help="with --profile: the column that identifies a person")
    parser.add_argument("--ledger", metavar="BUDGET", help="with --profile: the ledger (default: budget.db)")
    options = parser.parse_args(words)
    _check_profile(parser, options)
    if options.action == "check" and len(options.files) > 1:
        parser.error("check takes one policy")
    return options


def _check_profile(parser: CommandParser, options: argparse.Namespace) -> None:
    given = [name for name in ("epsilon", "delta", "share", "unit", "ledger") if getattr(options, name) is not None]
    if not options.profile and given:
        parser.error(f"--{given[0]} is for init with --profile")
    if options.profile and (options.action != "init" or options.epsilon is None or options.share is None):
        parser.error("a profile spends budget: init FILE... --profile --epsilon 1 --share 0.1 says how much there is, "
                     "and which part of it is spent now")  # fmt: skip


def run(options: argparse.Namespace) -> None:
    """Print what a policy says, or a draft."""
    if options.action == "init":
        profile = None
        if options.profile:
            delta = Decimal("1e-6") if options.delta is None else options.delta
            ledger = options.ledger or "budget.db"
            profile = ProfileSpend(options.epsilon, delta, options.share, ledger, options.unit)
        print(escaped(draft_policy(options.files, profile=profile), keep="\n"))
        return
    print(Policy.load(options.files[0]).describe())
