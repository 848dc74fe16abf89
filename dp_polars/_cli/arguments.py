"""The arguments of `sql` and `preview`, which are files, terms, a spend and a statement, and the session they mean."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from dp_polars._cli.exit_codes import CommandParser
from dp_polars._session.session import Session
from dp_polars._session.terms import ROW, Terms
from dp_polars.errors import InvalidParameterError

_FILES = """\
Files are Parquet (.parquet, .pq), CSV (.csv, .tsv, also with .gz or .zst), Arrow (.arrow, .feather, .ipc) or DuckDB
(.duckdb, .ddb, .db). A file becomes a table with the file's name, without the extension. A DuckDB file brings its own
tables. A folder, or a pattern in quotes ('visits/*.parquet'), becomes one table of all its files, named after the
folder or after what the names of the files begin with. All rows are private unless --public says otherwise. CSV and
Arrow files are read into memory. The list of files, and the fact that a file has changed, count as public.

The header of a CSV file decides whether its fields are separated by commas, semicolons, tabs or vertical bars.

The lines of a private CSV file must not decide column types unnoticed. Give --type for the columns that are not text,
or give --infer-types once. Inferred types are recorded in the --ledger as facts that you declare to be public. They
then stay the same even if the lines change, and neither option is needed again. Public CSV files need no types."""


_MOST_DIGITS = 200


def statement_parser(command: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Return the parser of a command that takes files and a statement."""
    parser = CommandParser(
        prog=f"dp-polars {command}",
        usage=f"dp-polars {command} FILE... --unit COLUMN --epsilon E [--delta D] [--ledger BUDGET] ... 'SELECT ...'",
        description=f"{description}\n\n{_FILES}",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "words", nargs="+", metavar="FILE... STATEMENT", help="the files, then one SELECT (- reads it from stdin)"
    )
    tables = parser.add_argument_group("tables")
    tables.add_argument("--name", action="append", default=[], metavar="NAME=FILE", help="a file under another name")
    tables.add_argument(
        "--public", action="append", default=[], metavar="FILE|TABLE",
        help="a file, or a table of a DuckDB file, whose rows are public: they may be shown and joined (repeatable)",
    )  # fmt: skip
    tables.add_argument(
        "--unit-of", action="append", default=[], metavar="TABLE=[UNIT:]COLUMN[,...]",
        help="the unit of a table or view if it differs from --unit; orders=user_id:customer says that user_id is "
        "called customer there (repeatable)",
    )  # fmt: skip
    tables.add_argument(
        "--type", action="append", default=[], metavar="TABLE.COLUMN=TYPE",
        help="the type of a column of a CSV file, such as DOUBLE or DATE (repeatable); values that do not fit become "
        "null, and other columns are text",
    )  # fmt: skip
    tables.add_argument(
        "--infer-types", action="store_true",
        help="infer the types of CSV files without --type from all their lines, once, and record them in the --ledger",
    )  # fmt: skip
    terms = parser.add_argument_group("terms (an existing ledger keeps its own)")
    terms.add_argument(
        "--unit", action="append", metavar="COLUMN", help="the column that identifies a person (repeatable)"
    )
    terms.add_argument(
        "--each-row", action="store_true", help="every row belongs to a different person (instead of --unit)"
    )
    terms.add_argument("--epsilon", type=number, metavar="E", help="the whole budget")
    terms.add_argument("--delta", type=number, metavar="D", help="the probability with which the guarantee may fail")
    terms.add_argument("--rho", type=number, metavar="R", help="the whole budget in zCDP (instead of --epsilon)")
    terms.add_argument("--key-delta", type=number, metavar="D", help="the part of delta for discovering groups")
    terms.add_argument("--adjacency", choices=["add_remove", "replace"], help="what one person changes (add_remove)")
    terms.add_argument("--group-size", type=int, metavar="N", help="how many people are protected together (1)")
    terms.add_argument("--ledger", metavar="BUDGET", help="the file that keeps the budget and the releases")
    caps = parser.add_argument_group("contribution bounds and spend")
    caps.add_argument("--max-groups", type=cap, metavar="N|auto", help="how many groups one person counts in")
    caps.add_argument(
        "--max-rows-per-group", type=cap, metavar="N|auto", help="how many rows one person adds to each group"
    )
    caps.add_argument(
        "--max-rows",
        type=cap,
        metavar="N|auto",
        help="how many rows one person adds to all groups together (instead of the two other caps)",
    )
    caps.add_argument(
        "--per-unit", action="append", metavar="COLUMN", help="a column that is constant for each person (repeatable)"
    )
    spend = caps.add_mutually_exclusive_group()
    spend.add_argument("--spend", type=number, metavar="EPS", help="the cost of the statement as an epsilon")
    spend.add_argument("--share", type=number, metavar="S", help="the cost of the statement as a share of the budget")
    parser.add_argument(
        "--confidence", type=number, metavar="P",
        help="add the ends of the intervals of the privacy noise with this probability, as columns _low and _high",
    )  # fmt: skip
    caps.add_argument(
        "--queries", type=int, metavar="N", help="without --spend and --share, each statement costs 1/N of the budget"
    )
    return parser


def read_statement(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments, with `files` and `statement` in addition to the options."""
    options = parser.parse_intermixed_args(list(words))  # so that options may come between files and the statement
    *options.files, statement = options.words
    if os.path.exists(statement):
        parser.error(f'the statement is missing: add it after the files, as in dp-polars ... {statement} "SELECT ..."')
    if options.unit and options.each_row:
        parser.error("--unit and --each-row contradict each other: a person is either the value of a column or a row")
    for option, form in (("name", "NAME=FILE"), ("unit_of", "TABLE=COLUMN"), ("type", "TABLE.COLUMN=TYPE")):
        for pair in getattr(options, option):
            if not all(pair.partition("=")):
                parser.error(f"--{option.replace('_', '-')} takes {form}, got {pair}")
    if not (options.files or options.name):
        parser.error('give the files before the statement: dp-polars ... visits.parquet "SELECT ..."')
    options.statement = sys.stdin.read() if statement == "-" else statement
    return options


def statement_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the spend of a statement and the confidence of its intervals as arguments of `con.sql`."""
    given = {"epsilon": options.spend, "share": options.share, "confidence": options.confidence}
    return {name: value for name, value in given.items() if value is not None}


def number(text: str) -> Fraction:
    """Parse a number, exactly as it is written."""
    try:
        if len(text) > _MOST_DIGITS or abs(int(text.lower().partition("e")[2] or "0")) > _MOST_DIGITS:
            raise ValueError
        return Fraction(text)  # exactly as written
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None


def cap(text: str) -> int | str:
    """Parse a cap: a whole number or "auto"."""
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number or auto, got {text!r}") from None


# ---------------------------------------------------------------------- the session that pays

_TERMS = ("epsilon", "delta", "rho", "key_delta", "unit", "adjacency", "group_size")
_DEFAULTS = ("per_unit", "max_groups", "max_rows_per_group", "max_rows", "queries")


class SessionArguments:
    """The session that the options of a command and the ledger they name describe.

    Attributes
    ----------
    ledger
        The path of the ledger; None for a session in memory.
    is_new
        Whether the ledger is yet to be created.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.ledger: str | None = options.ledger
        # Checked once: if another process creates the ledger meanwhile, its terms are compared when it is opened.
        self.is_new = self.ledger is not None and not os.path.exists(self.ledger)
        given = {name: getattr(options, name) for name in (*_TERMS, *_DEFAULTS)}
        if options.each_row:
            given["unit"] = ROW
        self._given: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if {"max_rows", "max_rows_per_group"} <= self._given.keys():
            raise InvalidParameterError(
                "--max-rows caps the rows of a unit in all groups together, and --max-rows-per-group those in each "
                "group. Give one of them."
            )

    def rehearsal(self) -> Session:
        """Return a session with these terms without creating a file: an existing ledger's, or one in memory."""
        return Session(**self._given) if self.ledger is None or self.is_new else self.session()

    def recorded_in(self) -> str | None:
        """Return the ledger that keeps facts that are recorded now; None if there is no ledger, or not yet."""
        return None if self.is_new else self.ledger

    def paying(self, rehearsal: Session) -> Session:
        """Return the session that pays after a rehearsal in memory, with the facts that were recorded there."""
        session = self.session()
        for fact in rehearsal.facts:
            if session._record(fact.kind, fact.subject, fact.value) != fact.value:
                session.close()
                raise InvalidParameterError(
                    f"Meanwhile another process has recorded different {fact.kind} of {fact.subject}. Run this again."
                )
        return session

    def session(self) -> Session:
        """Return the session. Refuse options that contradict an existing ledger."""
        if self.ledger is None or self.is_new:
            return Session(**self._given, ledger=self.ledger)
        found = Session.from_ledger(self.ledger)
        if not self._given:
            return found
        terms, defaults = found.terms, {name: getattr(found.defaults, name) for name in _DEFAULTS}
        found.close()
        if "max_rows_per_group" in self._given:  # what is said now comes before what the ledger keeps
            defaults["max_rows"] = None
        return Session(**{**defaults, **_completed(self._given, terms)}, ledger=self.ledger)


def _completed(given: dict[str, Any], terms: Terms) -> dict[str, Any]:
    """Return the arguments of a session, with those that were not given taken from the terms of a ledger."""
    unit = terms.unit if terms.unit is ROW else list(terms.unit)  # type: ignore[arg-type]
    completed: dict[str, Any] = {
        "delta": terms.delta, "unit": unit, "adjacency": terms.adjacency, "group_size": terms.group_size, **given
    }  # fmt: skip
    if "epsilon" not in given and "rho" not in given:
        completed |= {"epsilon": terms.epsilon, "rho": terms.rho}
    if terms.measure == "approximate" and completed["delta"] == terms.delta and "rho" not in given:
        completed.setdefault("key_delta", terms.native_delta)
    return completed
