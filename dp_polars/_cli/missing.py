"""Name every option that a statement still needs in one message, instead of one after the other.

Planning stops at the first thing that is missing. So the statement is planned again, in memory, with a stand-in for
that option, until nothing is missing or something else is wrong. Nothing is read from private rows, and nothing is
charged.
"""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from dp_polars._cli.arguments import SessionArguments, statement_options
from dp_polars._cli.exit_codes import OptionsMissing
from dp_polars._cli.files import open_tables
from dp_polars._sql.connection import GuardedConnection
from dp_polars.errors import Code, DPError

_SPEND = {"share": Fraction(1, 100)}
_STATEMENT: dict[Code, dict[str, Any]] = {
    "spend-missing": _SPEND,
    "response-spend-missing": _SPEND,
    "group-cap-missing": {"max_groups": "auto"},
    "row-cap-missing": {"max_rows_per_group": "auto"},
    "bounds-missing": {"bounds": "auto"},
}
"""Stand-ins that are options of a statement, by the code of the error that asks for them."""

_TERMS: tuple[Code, ...] = ("budget-missing", "unit-missing", "no-delta-for-keys", "column-types-missing")
"""The errors whose stand-ins are options of the command."""

StandIn = Callable[[str], str]
"""Returns a type that stands in for that of a text file's column, while a plan is tried."""


@contextlib.contextmanager
def naming_all_missing(options: argparse.Namespace) -> Iterator[None]:
    """Replace the error about a missing option by one about all missing options, if there are several."""
    try:
        yield
        return
    except DPError as error:
        if error.code not in (*_STATEMENT, *_TERMS):
            raise
        first = error
    aggregated = {name.casefold() for name in re.findall(r"dp_\w+\(\s*(\w+)", options.statement)}
    found, columns = _missing(first, options, lambda name: "BIGINT" if name.casefold() in aggregated else "VARCHAR")
    if "column-types-missing" in found:
        numbers = _missing(first, options, lambda _: "BIGINT")
        found, columns = max((found, columns), numbers, key=lambda trial: len(trial[0]))
    if len(found) == 1 and first.code != "unit-missing":
        raise first
    raise OptionsMissing(found, columns)


def _missing(first: DPError, options: argparse.Namespace, stand_in: StandIn) -> tuple[list[Code], list[str]]:
    """Return the codes of all that is missing, and the columns of the private tables if they became known."""
    trial, extra = argparse.Namespace(**vars(options)), dict[str, Any]()
    found: list[Code] = []
    columns: list[str] = []
    error: DPError | None = first
    while error is not None and error.code not in found and error.code in (*_STATEMENT, *_TERMS):
        found.append(error.code)
        extra |= _STATEMENT.get(error.code, {})
        if error.code == "budget-missing":
            trial.epsilon, trial.delta = Fraction(1), trial.delta or Fraction(1, 10**6)
        elif error.code == "no-delta-for-keys":
            trial.delta = Fraction(1, 10**6)
        elif error.code == "column-types-missing":
            trial.stand_in = stand_in
        elif error.code == "unit-missing":
            trial.each_row = True
        error = _problem(trial, extra, columns)
        if "unit-missing" in found and trial.each_row and columns:  # caps are needed only if a person has several rows
            trial.each_row, trial.unit = False, [_unused(columns, options.statement)]
            error = _problem(trial, extra, columns)
    return found, columns


def _problem(options: argparse.Namespace, extra: dict[str, Any], columns: list[str]) -> DPError | None:
    """Plan the statement with the stand-ins, and return the error if there is one. Note the columns of the tables."""
    try:
        arguments = SessionArguments(options)
        with open_tables(options, arguments.rehearsal()) as con:
            columns[:] = _private_columns(con)
            con.preview(options.statement, **{**statement_options(options), **extra})
    except DPError as error:
        return error
    return None


def _private_columns(con: GuardedConnection) -> list[str]:
    """Return the columns of all private tables, each name once."""
    database = con._database
    files = [file for name, file in database.registered.items() if ("frame", name) not in database.public]
    names = [name for file in files for name in file.frame.collect_schema().names()]
    with contextlib.closing(database.cursor()) as cursor:
        names += [
            name for (name,) in cursor.execute("SELECT column_name FROM duckdb_columns() WHERE NOT internal").fetchall()
        ]
    return list(dict.fromkeys(names))


def _unused(columns: list[str], statement: str) -> str:
    """Return a column that the statement doesn't name, as a stand-in for the unit; the first one if it names all."""
    words = {word.casefold() for word in re.findall(r"\w+", statement)}
    return next((name for name in columns if name.casefold() not in words), columns[0])
