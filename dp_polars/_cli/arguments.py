"""What `sql` and `preview` have in common: files, whom to protect, the budget, the spend and the statement."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from dp_polars._cli.exit_codes import Parser

_FILES = """\
Files are Parquet (.parquet, .pq), CSV (.csv, .tsv, also with .gz or .zst), Arrow (.arrow, .feather, .ipc) or DuckDB
(.duckdb, .ddb, .db). A file is the table of its name without the ending; a DuckDB file brings its own tables. All rows
are private unless --public says otherwise. CSV and Arrow files are read into memory. That a file was changed counts as
public.

No line of a private CSV file may decide a type unnoticed: say --type for the columns that are not text, or once
--infer-types. What is inferred is recorded in the --ledger as your word that it is public; then it stays whatever the
lines become, and neither option is needed again. Public CSV files need no types."""


_MOST_DIGITS = 200


def statement_parser(command: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Return the parser of a command that takes files and a statement."""
    parser = Parser(
        prog=f"dp-polars {command}",
        usage=f"dp-polars {command} FILE... --unit COLUMN --epsilon E [--delta D] [--ledger BUDGET] ... 'SELECT ...'",
        description=f"{description}\n\n{_FILES}",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "words", nargs="+", metavar="FILE... STATEMENT", help="files, and last one SELECT (- reads it from stdin)"
    )
    tables = parser.add_argument_group("tables")
    tables.add_argument("--name", action="append", default=[], metavar="NAME=FILE", help="a file under another name")
    tables.add_argument(
        "--public", action="append", default=[], metavar="FILE|TABLE",
        help="a file, or a table of a DuckDB file, whose rows belong to nobody: may be shown and joined (repeatable)",
    )  # fmt: skip
    tables.add_argument(
        "--unit-of", action="append", default=[], metavar="TABLE=[UNIT:]COLUMN[,...]",
        help="whose the rows of a table or view are, where it isn't the column of --unit; orders=user_id:customer says "
        "that user_id is called customer there (repeatable)",
    )  # fmt: skip
    tables.add_argument(
        "--type", action="append", default=[], metavar="TABLE.COLUMN=TYPE",
        help="the type of a column of a CSV file, DOUBLE, DATE or so (repeatable); a value that doesn't fit is null, "
        "other columns are text",
    )  # fmt: skip
    tables.add_argument(
        "--infer-types", action="store_true",
        help="infer the types of CSV files without --type from all their lines, once, and record them in the --ledger",
    )  # fmt: skip
    terms = parser.add_argument_group("the agreement (of a ledger that exists: as it was agreed)")
    terms.add_argument(
        "--unit", action="append", metavar="COLUMN", help="the column that identifies a person (repeatable)"
    )
    terms.add_argument("--each-row", action="store_true", help="instead of --unit: every row is another person")
    terms.add_argument("--epsilon", type=_number, metavar="E", help="the whole budget")
    terms.add_argument("--delta", type=_number, metavar="D", help="the probability with which the guarantee may fail")
    terms.add_argument("--rho", type=_number, metavar="R", help="instead of --epsilon: the budget in zCDP")
    terms.add_argument("--key-delta", type=_number, metavar="D", help="the part of delta for discovering groups")
    terms.add_argument("--adjacency", choices=["add_remove", "replace"], help="what one person changes (add_remove)")
    terms.add_argument("--group-size", type=int, metavar="N", help="how many people are protected together (1)")
    terms.add_argument("--ledger", metavar="BUDGET", help="the file that remembers the budget and what was released")
    caps = parser.add_argument_group("what one person may contribute, and what is spent")
    caps.add_argument("--max-groups", type=_cap, metavar="N|auto", help="in how many groups a person counts")
    caps.add_argument("--max-rows-per-group", type=_cap, metavar="N|auto", help="with how many rows in each of them")
    caps.add_argument(
        "--per-unit", action="append", metavar="COLUMN", help="a column that is constant for each person (repeatable)"
    )
    spend = caps.add_mutually_exclusive_group()
    spend.add_argument("--spend", type=_number, metavar="EPS", help="what the statement may cost, as an epsilon")
    spend.add_argument("--share", type=_number, metavar="S", help="what it may cost, as a part of the whole budget")
    caps.add_argument(
        "--queries", type=int, metavar="N", help="with neither: each statement may cost 1/N of the budget"
    )
    return parser


def read_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Return what a user said: `files`, `statement` and the options."""
    options = parser.parse_intermixed_args(list(words))  # so that options may stand between files and the statement
    *options.files, statement = options.words
    if os.path.isfile(statement):
        parser.error(f'after the files comes the statement, as one word: dp-polars ... {statement} "SELECT ..."')
    if options.unit and options.each_row:
        parser.error("--unit and --each-row contradict each other: a person is a column's value, or a row")
    for option, form in (("name", "NAME=FILE"), ("unit_of", "TABLE=COLUMN"), ("type", "TABLE.COLUMN=TYPE")):
        for pair in getattr(options, option):
            if not all(pair.partition("=")):
                parser.error(f"--{option.replace('_', '-')} takes {form}, got {pair}")
    if not (options.files or options.name):
        parser.error('name the files first, then the statement: dp-polars ... visits.parquet "SELECT ..."')
    options.statement = sys.stdin.read() if statement == "-" else statement
    return options


def spend_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the spend of a statement as `con.sql` takes it."""
    return {name: given for name, given in (("epsilon", options.spend), ("share", options.share)) if given is not None}


def _number(text: str) -> Fraction:
    try:
        if len(text) > _MOST_DIGITS or abs(int(text.lower().partition("e")[2] or "0")) > _MOST_DIGITS:
            raise ValueError
        return Fraction(text)  # exactly what was written
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"a number was expected, got {text!r}") from None


def _cap(text: str) -> int | str:
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a whole number or auto was expected, got {text!r}") from None
