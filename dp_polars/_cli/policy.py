"""`dp-polars policy`: check a policy, or make a first draft of one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from dp_polars._cli.exit_codes import CODES, CommandParser
from dp_polars._display.text import escaped
from dp_polars._policy.draft import draft_policy
from dp_polars._policy.policy import Policy

_DESCRIPTION = """\
check FILE    read a policy, compare it with its tables and print what it says, or every mistake with its line
init FILE...  print a first draft of a policy for Parquet, CSV or Arrow files, from column names and types alone"""

_EPILOG = f"""\
examples:
  dp-polars policy init orders.parquet items.parquet > policy.toml
  dp-polars policy check policy.toml
  dp-polars sql --policy policy.toml "SELECT status, COUNT(*) FROM orders GROUP BY status"

{CODES}"""  # noqa: S608 - a text to read


def read(words: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments."""
    parser = CommandParser(
        prog="dp-polars policy",
        usage="dp-polars policy check FILE | dp-polars policy init FILE...",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("action", choices=["check", "init"], help="what to do")
    parser.add_argument("files", nargs="+", metavar="FILE", help="a policy, or the files of its tables")
    options = parser.parse_args(words)
    if options.action == "check" and len(options.files) > 1:
        parser.error("check takes one policy")
    return options


def run(options: argparse.Namespace) -> None:
    """Print what a policy says, or a draft."""
    if options.action == "init":
        print(escaped(draft_policy(options.files), keep="\n"))
        return
    print(Policy.load(options.files[0]).describe())
