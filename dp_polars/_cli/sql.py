"""`dp-polars sql`: answer one SELECT over files through a guarded connection, and say what it cost."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from typing import Any

from dp_polars._choices.plan import ChoicePlan
from dp_polars._cli.arguments import SessionArguments, cap, number, read_statement, statement_options, statement_parser
from dp_polars._cli.exit_codes import CODES, CommandParser, has_policy
from dp_polars._cli.files import open_tables
from dp_polars._cli.missing import naming_all_missing
from dp_polars._cli.output import add_output, check_output, elapsed, write
from dp_polars._display.session import scarce_keys
from dp_polars._display.text import amount, budget_text, escaped
from dp_polars._plan.plan import Plan
from dp_polars._policy.policy import Policy
from dp_polars._session.ledger import Fact
from dp_polars._session.releases import Release
from dp_polars._session.session import Session
from dp_polars._sql.local_statements import is_local

_DESCRIPTION = """\
Answer one SELECT whose private aggregates (dp_count, dp_count_units, dp_sum, dp_avg, dp_median, ...) are noisy and paid
from one budget. Whatever would show private rows is refused. The answer goes to stdout, and its cost goes to stderr.

With --policy FILE, tables, terms, caps and bounds come from a policy: see dp-polars sql --policy FILE --help.

With --ledger, the budget and the answers are kept in a file, which is created with the terms that are given here and
keeps them. The same statement on unchanged files is then answered from the ledger at no cost."""

_EPILOG = f"""\
examples:
  dp-polars sql visits.parquet --unit user_id --epsilon 1 --delta 1e-6 --max-groups 3 --max-rows-per-group 10 \\
      --ledger budget.db --spend 0.2 "SELECT region, dp_count(*) AS n FROM visits GROUP BY region"
  dp-polars sql visits.csv --type visits.amount=DOUBLE --ledger budget.db --share 0.1 --format csv \\
      "SELECT dp_avg(amount, 0, 100) FROM visits"
  dp-polars sql visits.parquet --public regions.csv --ledger budget.db --spend 0.1 --output parts.parquet \\
      "SELECT part, dp_count_units() AS people FROM visits JOIN regions USING (region) GROUP BY part"
  dp-polars sql --policy policy.toml --analyst team-a "SELECT status, COUNT(*) FROM orders GROUP BY status"
  dp-polars sql shop.duckdb --public countries --unit-of orders=user_id:customer --ledger budget.db - < question.sql

{CODES}"""  # noqa: S608 - a text to read


def read(words: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments."""
    if has_policy(words):
        return _read_with_policy(words)
    parser = statement_parser("sql", _DESCRIPTION, _EPILOG)
    add_output(parser)
    options = read_statement(parser, words)
    used = [*options.files, *options.public, *(pair.partition("=")[2] for pair in options.name)]
    check_output(parser, options, [*used, *([options.ledger] if options.ledger else [])])
    return options


def run(options: argparse.Namespace) -> None:
    """Run the statement, write the answer and print what it cost."""
    if "policy" in options:
        _run_with_policy(options)
        return
    arguments, given = SessionArguments(options), statement_options(options)
    with naming_all_missing(options), elapsed("running"), contextlib.ExitStack() as opened:
        session = arguments.rehearsal()
        before = session.facts
        con = opened.enter_context(open_tables(options, session))
        if arguments.is_new:
            if not is_local(options.statement):
                con.preview(options.statement, **given)  # so that a refused statement leaves no ledger behind
            con = con._paid_by(opened.enter_context(contextlib.closing(arguments.paying(session))))
        print_types([fact for fact in session.facts if fact not in before], arguments.ledger)
        frame = con.sql(options.statement, **given).pl()
        lines = receipt(con._session, con._paid, kept=arguments.ledger is not None)
    if any(isinstance(release.plan, ChoicePlan) and not release.frame.height for release in con._paid):
        lines.append(
            "no rows: candidates that are not listed (candidates := ['a', 'b']) are shown only if they are large"
        )
        lines.append("         enough")
    write(frame, options)
    sys.stdout.flush()
    for line in lines:
        print(escaped(line), file=sys.stderr)


def policy_parser(command: str, description: str) -> argparse.ArgumentParser:
    """Return the parser of a command that takes a statement whose tables, terms and rules come from a policy."""
    parser = CommandParser(
        prog=f"dp-polars {command}",
        usage=f"dp-polars {command} --policy FILE [--analyst NAME] [--share S | --spend E] 'SELECT ...'",
        description=description,
        epilog=CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--policy", required=True, metavar="FILE", help="the policy, see dp-polars policy --help")
    parser.add_argument(
        "--analyst", metavar="NAME", help="who asks: within this analyst's share, and with an entry in the audit log"
    )
    parser.add_argument("statement", metavar="STATEMENT", help="one SELECT (- reads it from stdin)")
    parser.add_argument("--max-groups", type=cap, metavar="N|auto", help="how many groups one person counts in")
    parser.add_argument(
        "--max-rows-per-group", type=cap, metavar="N|auto", help="how many rows one person adds to each group"
    )
    parser.add_argument(
        "--max-rows", type=cap, metavar="N|auto", help="how many rows one person adds to all groups together"
    )
    spend = parser.add_mutually_exclusive_group()
    spend.add_argument("--share", type=number, metavar="S", help="the part of the budget that the statement may use")
    spend.add_argument("--spend", type=number, metavar="E", help="the epsilon of the statement")
    parser.add_argument(
        "--confidence", type=number, metavar="P", help="add the ends of the intervals of the privacy noise"
    )
    return parser


def with_statement(options: argparse.Namespace) -> argparse.Namespace:
    """Read the statement from stdin if it is "-"."""
    if options.statement == "-":
        options.statement = sys.stdin.read()
    return options


def policy_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a statement over the tables of a policy, as arguments of `con.sql`."""
    caps = {name: getattr(options, name) for name in ("max_groups", "max_rows_per_group", "max_rows")}
    return {**statement_options(options), **{name: value for name, value in caps.items() if value is not None}}


def _read_with_policy(words: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of a statement whose tables, terms, caps and bounds come from a policy."""
    description = "Answer one SELECT over the tables of a policy. Aggregates over private rows are private."
    parser = policy_parser("sql", description)
    add_output(parser)
    options = with_statement(parser.parse_args(words))
    check_output(parser, options, [options.policy])
    return options


def _run_with_policy(options: argparse.Namespace) -> None:
    with elapsed("running"):
        policy = Policy.load(options.policy)
        con = policy._guarded_connection(options.analyst)
        frame = con.sql(options.statement, **policy_options(options)).pl()
        lines = receipt(con._session, con._paid, kept=policy.has_ledger)
    write(frame, options)
    sys.stdout.flush()
    for line in lines:
        print(escaped(line), file=sys.stderr)


def print_types(facts: Sequence[Fact], ledger: str | None) -> None:
    """Print on stderr which types were inferred, and whether they are recorded."""
    for fact in facts:
        print(f"inferred from all lines: {escaped(str(fact))}", file=sys.stderr)
        if ledger is not None:
            print(f"  recorded in {escaped(ledger)} as public facts; the lines of the file can no longer change them",
                  file=sys.stderr)  # fmt: skip
        else:
            print("  not recorded: the next run infers them again, and one person's line can change them; use --ledger "
                  "to record them", file=sys.stderr)  # fmt: skip


def receipt(session: Session, releases: Sequence[Release], *, kept: bool) -> list[str]:
    """Return lines that say what an answer cost, what was found in the ledger, and what is left of the budget."""
    found = [release for release in releases if release.stored]
    made = [release for release in releases if not release.stored]
    lines = []
    if not releases:
        lines.append("free: the statement reads nothing private")
    for release in found:
        lines.append(f"free: stored release {release.id} of {release.finished_at} ({release.label})")
    if made:
        lines.append(f"paid: {budget_text(sum(release.part for release in made))}")
        errors = [error for release in made for error in release.error.values()]
        if len(errors) == len(releases) == 1 == len(getattr(made[0].plan, "compiled", ())):
            lines.append(f"expected error: within {amount(errors[0], 6)} for 95 % of answers (privacy noise alone)")
        elif len(releases) == 1 and (
            isinstance(made[0].plan, ChoicePlan) or (isinstance(made[0].plan, Plan) and len(made[0].plan.compiled) == 1)
        ):
            lines += [f"{name}: {text}" for name, text in made[0].plan.rows() if name.startswith("expected")]
    lines += [line for release in releases for line in _notes(release)]
    lines.append(f"left: {left_of(session)}")
    if not kept:
        lines.append("note: without --ledger nothing is kept: the next run has the whole budget again, and it is up to")
        lines.append("      you to add up what all runs spend")
    return lines


def _notes(release: Release) -> list[str]:
    """Return the notes on a release, except what a warning has said before."""
    warned = {"too small"} if isinstance(release.plan, Plan) and release.plan.query.interval is None else set()
    if isinstance(release.plan, Plan) and release.frame.is_empty():
        warned |= {name for name, _ in release.plan.needed_rows()}
    return [f"{name}: {text}" for name, text in release.notes if name not in warned]


def left_of(session: Session) -> str:
    """Return a phrase that says what is left of a session's budget."""
    scarce = scarce_keys(session)
    return budget_text(session.remaining.share) + (f"; {scarce}" if scarce else "")
