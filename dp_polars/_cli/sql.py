"""`dp-polars sql`: answers one SELECT over files, guarded, and says what it cost."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence

from dp_polars._choices.plan import ChoicePlan
from dp_polars._cli.arguments import read_words, spend_of, statement_parser
from dp_polars._cli.exit_codes import CODES
from dp_polars._cli.files import open_tables
from dp_polars._cli.output import add_output, check_output, write
from dp_polars._cli.progress import elapsed
from dp_polars._cli.session_arguments import Agreement
from dp_polars._display.escaping import escaped
from dp_polars._plan.plan import Plan
from dp_polars._session.cost import NOTHING
from dp_polars._session.facts import Fact
from dp_polars._session.release_record import Release
from dp_polars._session.session import Session
from dp_polars._sql.local_statements import is_local

_DESCRIPTION = """\
Answer one SELECT whose private aggregates (dp_count, dp_count_units, dp_sum, dp_avg, dp_median, ...) are noisy and paid
from one budget; everything that would show private rows is refused. The answer goes to stdout, what it cost to stderr.

With --ledger the budget and the answers are kept in a file: it is created with the terms that are given here, and has
them from then on. The same statement on unchanged files is then answered from the ledger, at no cost."""

_EPILOG = f"""\
examples:
  dp-polars sql visits.parquet --unit user_id --epsilon 1 --delta 1e-6 --max-groups 3 --max-rows-per-group 10 \\
      --ledger budget.db --spend 0.2 "SELECT region, dp_count(*) AS n FROM visits GROUP BY region"
  dp-polars sql visits.csv --type visits.amount=DOUBLE --ledger budget.db --share 0.1 --format csv \\
      "SELECT dp_avg(amount, 0, 100) FROM visits"
  dp-polars sql visits.parquet --public regions.csv --ledger budget.db --spend 0.1 --output parts.parquet \\
      "SELECT part, dp_count_units() AS people FROM visits JOIN regions USING (region) GROUP BY part"
  dp-polars sql shop.duckdb --public countries --unit-of orders=user_id:customer --ledger budget.db - < question.sql

{CODES}"""  # noqa: S608 - a text to read


def read(words: Sequence[str]) -> argparse.Namespace:
    """Return what a user said."""
    parser = statement_parser("sql", _DESCRIPTION, _EPILOG)
    add_output(parser)
    options = read_words(parser, words)
    used = [*options.files, *options.public, *(pair.partition("=")[2] for pair in options.name)]
    check_output(parser, options, [*used, *([options.ledger] if options.ledger else [])])
    return options


def run(options: argparse.Namespace) -> None:
    """Ask the statement, write the answer and say what it cost."""
    agreement, spend = Agreement(options), spend_of(options)
    with elapsed("asking"), contextlib.ExitStack() as opened:
        session = agreement.rehearsal()
        before = session.facts
        con = opened.enter_context(open_tables(options, session))
        if agreement.is_new:
            if not is_local(options.statement):
                con.preview(options.statement, **spend)  # a statement that is refused leaves no ledger behind
            con = con._paid_by(opened.enter_context(contextlib.closing(agreement.paying(session))))
        tell_types([fact for fact in session.facts if fact not in before], agreement.ledger)
        frame = con.sql(options.statement, **spend).pl()
        told = receipt(con._session, con._paid, remembered=agreement.ledger is not None)
    if con._paid and not frame.height:
        told.append("no rows: groups and candidates that are not listed (keys := ['a', 'b'], candidates := ['a', 'b'])")
        told.append("         are shown only if they are large enough")
    write(frame, options)
    sys.stdout.flush()
    for line in told:
        print(escaped(line), file=sys.stderr)


def tell_types(facts: Sequence[Fact], ledger: str | None) -> None:
    """Say on stderr which types were inferred, and whether they stay."""
    for fact in facts:
        print(f"inferred from all lines: {escaped(str(fact))}", file=sys.stderr)
        if ledger is not None:
            print(f"  recorded in {escaped(ledger)} as your word that they are public; no line changes them any more",
                  file=sys.stderr)  # fmt: skip
        else:
            print("  not recorded: the next run infers them again, and one person's line can change them; --ledger "
                  "records them", file=sys.stderr)  # fmt: skip


def receipt(session: Session, releases: Sequence[Release], *, remembered: bool) -> list[str]:
    """Return what an answer cost, what was found again, and what is left."""
    found = [release for release in releases if release.stored]
    made = [release for release in releases if not release.stored]
    lines = []
    if not releases:
        lines.append("free: nothing private was asked")
    for release in found:
        lines.append(f"free: stored release {release.id} of {release.finished_at} ({release.label})")
    if made:
        lines.append(f"paid: {sum((release.cost for release in made), NOTHING)}")
        errors = [error for release in made for error in release.error.values()]
        if len(errors) == len(releases) == 1 == len(getattr(made[0].plan, "made", ())):
            lines.append(f"expected error: within {errors[0]:.6g} for 95 % of answers (privacy noise alone)")
        elif len(releases) == 1 and (
            isinstance(made[0].plan, ChoicePlan) or (isinstance(made[0].plan, Plan) and len(made[0].plan.made) == 1)
        ):
            told = [(name, text) for name, text in made[0].plan.rows() if name.startswith("expected")]
            lines += [f"{name}: {text}" for name, text in told]
    lines.append(f"left: {left_of(session)}")
    if not remembered:
        lines.append("note: without --ledger nothing is remembered: the next run has the whole budget again, and it is")
        lines.append("      up to you to add up what all runs have spent")
    return lines


def left_of(session: Session) -> str:
    """Return what is left of a budget, in words."""
    left = session.remaining
    parts = {"epsilon": left.epsilon, "rho": left.rho, "delta for keys": left.delta or None}
    texts = [f"{name} {amount:.6g}" for name, amount in parts.items() if amount is not None]
    return f"{left.share:.1%} of the budget ({', '.join(texts)})"
