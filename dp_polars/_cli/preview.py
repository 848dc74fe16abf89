"""`dp-polars preview`: show the plan of a statement without spending anything or creating a file."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from typing import Any

from dp_polars._cli.arguments import SessionArguments, read_statement, statement_options, statement_parser
from dp_polars._cli.exit_codes import CODES, has_policy
from dp_polars._cli.files import open_tables
from dp_polars._cli.missing import naming_all_missing
from dp_polars._cli.output import elapsed
from dp_polars._cli.sql import left_of, policy_options, policy_parser, print_types, with_statement
from dp_polars._display.text import escaped
from dp_polars._policy.policy import Policy
from dp_polars._session.cost import NOTHING
from dp_polars._session.session import Session

_DESCRIPTION = """\
Show the plan of a SELECT: whom it protects, its contribution bounds and where they come from, the noise, the cost and
the expected error. Nothing is run or charged, and no ledger is created. The arguments are those of dp-polars sql.

With --policy FILE, tables, terms, caps and bounds come from a policy: see dp-polars preview --policy FILE --help."""

_EPILOG = f"""\
example:
  dp-polars preview visits.parquet --unit user_id --epsilon 1 --delta 1e-6 --max-groups 3 --max-rows-per-group 10 \\
      --spend 0.2 "SELECT region, dp_count(*) AS n FROM visits GROUP BY region"

{CODES}"""  # noqa: S608 - a text to read


def read(words: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments."""
    if has_policy(words):
        parser = policy_parser("preview", "Show the plan of a SELECT over the tables of a policy. Nothing is charged.")
        _hide_output(parser)
        return with_statement(parser.parse_args(words))
    parser = statement_parser("preview", _DESCRIPTION, _EPILOG)
    _hide_output(parser)
    return read_statement(parser, words)


def _hide_output(parser: argparse.ArgumentParser) -> None:
    """Accept the options of an answer, so that only the command's name has to change."""
    parser.add_argument("--format", help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> None:
    """Print the plan, or the plans if the statement has several private aggregates."""
    if "policy" in options:
        with elapsed("planning"):
            con = Policy.load(options.policy)._guarded_connection(options.analyst)
            _show(con.preview(options.statement, **policy_options(options)), con._session)
        return
    arguments = SessionArguments(options)
    with naming_all_missing(options), elapsed("planning"), contextlib.ExitStack() as opened:
        session = arguments.rehearsal()
        before = session.facts
        con = opened.enter_context(open_tables(options, session))
        print_types([fact for fact in session.facts if fact not in before], arguments.recorded_in())
        _show(con.preview(options.statement, **statement_options(options)), session)


def _show(plan: Any, session: Session) -> None:
    cost = sum((single.cost for single in (plan if isinstance(plan, list) else [plan])), NOTHING)
    fits, left = session.can_afford(cost) if cost.epsilon and cost.rho else True, left_of(session)
    print(escaped(str(plan), keep="\n") if plan != [] else "This statement reads nothing private, so it costs nothing.")
    if plan != []:
        print(f"left: {left}{'' if fits else '; this does not fit'}", file=sys.stderr)
