"""Files as tables of a guarded connection.

Two paths that lead to the same file are one file: a link to a private file is private, and a file has one unit.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import os
import re
from collections.abc import Callable, Iterator
from itertools import combinations, product
from typing import Any

import duckdb

from dp_polars._cli.exit_codes import FileProblem
from dp_polars._engines.duckdb.rows import quoted
from dp_polars._session.session import Session
from dp_polars._sql.connection import GuardedConnection, connect
from dp_polars._sql.files import (
    DATABASES,
    ENDINGS,
    TEXT,
    ending_of,
    files_at,
    header_names,
    inferred_types,
    is_several,
)
from dp_polars.errors import InvalidDataError, InvalidParameterError


@contextlib.contextmanager
def open_tables(options: argparse.Namespace, session: Session) -> Iterator[GuardedConnection]:
    """Open the given files read-only behind a guarded connection, and close everything at the end."""
    with contextlib.closing(session):
        public = [name for name in options.public if os.path.exists(name) or _ending(name) is not None]
        tables = _named(options, public)
        _refuse_links(tables, public)
        databases = [path for path in tables if _ending(path) in DATABASES]
        types = _types(options, [name for path, name in tables.items() if _is_text(path)])
        with _database({path: tables[path] for path in databases}) as database:
            con = connect(database, session)
            for path, name in tables.items():
                if path not in databases:
                    _register(
                        con,
                        name,
                        path,
                        types.get(name),
                        infer=options.infer_types,
                        public=path in public,
                        stand_in=getattr(options, "stand_in", None),
                    )
            for path in public:
                if path in databases:
                    raise InvalidParameterError(
                        f"{path} is a database. Name its public tables instead: --public TABLE."
                    )
            con.public(*(quoted(tables[path]) for path in public))  # in one call, because one file may have two names
            _declare(con, options, [name for name in options.public if name not in public])
            yield con


def _named(options: argparse.Namespace, public: list[str]) -> dict[str, str]:
    """Return the name of the table for the path of each file. Refuse two files with the same name."""
    given = {path: name for name, _, path in (pair.partition("=") for pair in options.name)}
    tables = {path: given.get(path) or stem_of(path) for path in (*options.files, *given, *public)}
    taken: dict[str, str] = {}
    for path, name in tables.items():
        _check(path)
        other = taken.setdefault(name.casefold(), path)
        if other != path:
            raise InvalidParameterError(
                f"{other} and {path} would both be the table {name}. Give one of them another name: --name OTHER={path}"
            )
    return tables


def _refuse_links(tables: dict[str, str], public: list[str]) -> None:
    """Refuse a private file that is given twice, because it could be public as well or have two units."""
    for path, other in combinations(tables, 2):
        if path in public and other in public and _ending(path) not in DATABASES:
            continue
        for mine, theirs in product(files_at(path), files_at(other)):
            if os.path.samefile(mine, theirs):
                raise InvalidParameterError(
                    f"{mine} and {theirs} are the same file, by a link or another spelling. Give it once: it is either "
                    "public or private, and it has one unit."
                )


def _types(options: argparse.Namespace, names: list[str]) -> dict[str, dict[str, str]]:
    """Return the declared types of columns, by table."""
    types: dict[str, dict[str, str]] = {}
    for pair in options.type:
        whole, _, kind = pair.partition("=")
        table = next((name for name in names if whole.casefold().startswith(f"{name.casefold()}.")), None)
        if table is None:
            raise InvalidParameterError(
                f"--type {pair} names no table of a CSV file. Those tables are: {', '.join(names) or 'none'}."
            )
        types.setdefault(table, {})[whole[len(table) + 1 :]] = kind
    return types


def stem_of(path: str) -> str:
    """Return the name of the table for a file, a folder or a pattern.

    >>> stem_of("data/visits.csv.gz"), stem_of("data/visits"), stem_of("data/visits_*.csv"), stem_of("visits/*.csv")
    ('visits', 'visits', 'visits', 'visits')
    """
    folder, stem = os.path.split(path.rstrip(os.sep))
    if not is_several(path):
        return stem[: -len(_ending(path) or "") or None]
    if glob.has_magic(path) and not os.path.isdir(path):
        stem = re.split(r"[*?\[]", stem)[0].rstrip("_-. ")
        while not stem and folder:
            folder, inner = os.path.split(folder)
            stem = "" if glob.has_magic(inner) else inner
        if not stem:
            raise InvalidParameterError(f"Name the table that {path} stands for: --name visits={path}")
    return stem or os.path.basename(os.path.abspath(path))


def _is_text(path: str) -> bool:
    return ending_of(files_at(path)[0]) in TEXT


def _ending(path: str) -> str | None:
    lower = path.lower()
    return ending_of(path) or next((ending for ending in DATABASES if lower.endswith(ending)), None)


def _check(path: str) -> None:
    if is_several(path):
        try:
            found = files_at(path)
        except InvalidParameterError as problem:
            raise FileProblem(str(problem)) from None
        for inner in found:
            _check(inner)
        return
    if not os.path.exists(path):
        raise FileProblem(f"There is no file {path}.")
    if not os.path.isfile(path):
        raise FileProblem(f"{path} is not a file.")
    if not os.access(path, os.R_OK):
        raise FileProblem(f"{path} can't be read: permission denied.")
    if _ending(path) is None:
        raise FileProblem(
            f"The format of {path} is unknown. Files must end in one of {', '.join((*ENDINGS, *DATABASES))}."
        )
    if _ending(path) in DATABASES:
        with open(path, "rb") as file:
            # For another kind of file, DuckDB would look on the network for an extension that reads it.
            if file.read(12)[8:] != b"DUCK":
                raise FileProblem(f"{path} is not a DuckDB database.")


def _register(
    con: GuardedConnection,
    name: str,
    path: str,
    types: dict[str, str] | None,
    *,
    infer: bool,
    public: bool,
    stand_in: Callable[[str], str] | None,
) -> None:
    """Register a file. If only a plan is tried, `stand_in` returns a type for a column of a text file."""
    try:
        if types is not None or not _is_text(path):
            con.register(name, path, types=types)
        elif stand_in is not None and not public:
            con.register(name, path, types={column: stand_in(column) for column in header_names(name, path)})
        elif public:  # public rows may decide the types on every run
            con.register(name, path, types=inferred_types(name, path))
        else:
            con.register(name, path, types="infer" if infer else None)
    except InvalidDataError as error:
        raise FileProblem(f"{path}: {error}") from None


def _database(tables: dict[str, str]) -> Any:
    """Return a connection to the first database with the others attached, or to an empty one in memory."""
    if not tables:
        return duckdb.connect(":memory:")
    first, *more = tables
    try:
        connection = duckdb.connect(os.path.abspath(first), read_only=True)
        for path in more:
            literal = "'" + os.path.abspath(path).replace("'", "''") + "'"
            connection.execute(f"ATTACH {literal} AS {quoted(tables[path])} (READ_ONLY)")
    except duckdb.Error:
        raise FileProblem(
            f"{' or '.join(tables)} can't be opened: it is damaged, was written by another version of DuckDB, or is "
            "open for writing in another program."
        ) from None
    return connection


def _unit(text: str) -> list[str] | dict[str, str]:
    """Return a unit as an argument of `con.private`: columns, or a mapping from the agreed columns to the table's."""
    parts = [part.partition(":") for part in text.split(",")]
    if all(colon for _, colon, _ in parts):
        return {agreed: here for agreed, _, here in parts}
    return [agreed + colon + here for agreed, colon, here in parts]


def _declare(con: GuardedConnection, options: argparse.Namespace, public: list[str]) -> None:
    """Declare which tables are public, and the units of others."""
    for table, _, columns in (pair.partition("=") for pair in options.unit_of):
        con.private(table, _unit(columns))
    con.public(*public)
