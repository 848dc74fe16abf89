"""Which files a policy may name.

A policy is reviewed by its text, so its text must tell which rows are meant. Sources lie in the policy's folder, or in
folders that it names, after all links are followed. No file belongs to two tables: a file that is private under one
name can't be public under another, whatever links or patterns lead to it. Files are compared by device and inode.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from dp_polars._policy.document import Document, TablePolicy
from dp_polars._session.periods import NAME
from dp_polars._sql.delta_tables import delta_version, is_delta, refuse_iceberg
from dp_polars._sql.files import DATABASES, files_at
from dp_polars.errors import DPError, PolicyProblem

SPARK = "spark"
"""The source of tables that are in Spark."""

FileKey = tuple[int, int, str]
"""Device and inode of a file, and the table in it if it is a database."""


@dataclass(frozen=True)
class FoundSource:
    """The files of a table as they were found."""

    path: str
    files: frozenset[FileKey]
    is_database: bool
    is_spark: bool = False


def find_sources(document: Document, folder: str) -> tuple[dict[str, FoundSource], list[PolicyProblem]]:
    """Return the files of each table, and every mistake about them."""
    problems: list[PolicyProblem] = []
    allowed = [os.path.realpath(folder)]
    for place in document.folders:
        if not os.path.isabs(place) or not os.path.isdir(place):
            problems.append(
                PolicyProblem(document.line("folders"), f"folders: there is no folder {place}. Write absolute paths.")
            )
        elif os.path.realpath(place) == os.path.abspath(os.sep):
            problems.append(
                PolicyProblem(document.line("folders"), "folders: / would allow every file. Name the folders.")
            )
        else:
            allowed.append(os.path.realpath(place))
    found: dict[str, FoundSource] = {}
    for name, table in document.tables.items():
        line = document.line("tables", name, "source")
        text, source = _source(table, folder, allowed)
        if text:
            problems.append(PolicyProblem(line, text))
        elif source is not None:
            found[name] = source
    problems += _shared(document, found)
    return found, problems


def ledger_problem(document: Document, folder: str) -> PolicyProblem | None:
    """Return what is wrong with the place of the ledger, if anything."""
    if document.ledger is None:
        return None
    allowed = [os.path.realpath(one) for one in (folder, *document.folders)]
    for ledger in (document.ledger, *map(document.ledger_of, document.periods)):
        whole = os.path.realpath(os.path.join(folder, ledger))
        if not any(_inside(whole, one) for one in allowed):
            text = f"ledger leads out of the policy's folder. {_HOW}"
            return PolicyProblem(document.line("budget", "ledger"), text)
    return _left_out_period(document, os.path.join(folder, document.ledger))


def _left_out_period(document: Document, ledger: str) -> PolicyProblem | None:
    """Return a mistake if there is a ledger of a period that the policy leaves out: its promise was made and counts."""
    place, name = os.path.split(ledger)
    stem, suffix = os.path.splitext(name)
    line = document.line("budget", "periods" if document.periods else "ledger")
    if document.periods and os.path.exists(ledger):
        new = os.path.basename(document.ledger_of(document.periods[0]))
        text = f"{name} is a ledger without a period, and its promise counts. If it is that of {document.periods[0]}"
        return PolicyProblem(line, f"{text}, rename it to {new}; otherwise name a period for it.")
    there = os.listdir(place) if suffix and os.path.isdir(place) else []
    for other in sorted(there):
        middle = other[len(stem) + 1 : -len(suffix)]
        if other != f"{stem}.{middle}{suffix}" or NAME.fullmatch(middle) is None or middle in document.periods:
            continue
        listed = ", ".join(f'"{one}"' for one in (middle, *document.periods))
        text = (
            f"{other} is the ledger of a period {middle}, which the policy leaves out. Its promise was made and counts"
        )
        return PolicyProblem(line, f"{text}: write periods = [{listed}], in their order.")
    return None


_HOW = 'Put it beside the policy, or name its folder: folders = ["/data"] above the first [table].'


def _inside(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder


def _source(table: TablePolicy, folder: str, allowed: list[str]) -> tuple[str, FoundSource | None]:
    written = table.source
    if written == SPARK:
        if table.table is None:
            return f'{table.name} is in Spark: say which table. Write table = "main.{table.name}".', None
        return "", FoundSource("", frozenset(), is_database=False, is_spark=True)  # Spark knows its full name
    if "\0" in written:
        return "source has a null character.", None
    whole = os.path.join(folder, written)
    leaves = os.path.isabs(written) or ".." in written.replace("\\", "/").split("/")
    if leaves and not any(_inside(os.path.abspath(whole), one) for one in allowed[1:]):
        return f"source {written} leads out of the policy's folder. {_HOW}", None
    is_database = os.path.splitext(written)[1].lower() in DATABASES
    if is_database != (table.table is not None):
        if is_database:
            return f'{written} is a DuckDB file: say which table of it. Write table = "main.{table.name}".', None
        return f"table names a table of a DuckDB file, but {written} is none. Leave it out.", None
    if is_database and not os.path.isfile(whole):
        return f"There is no file {written} in the policy's folder.", None
    try:
        refuse_iceberg(whole)
        if is_delta(whole):
            paths = [file.path for file in delta_version(whole).files]
        else:
            paths = [whole] if is_database else files_at(whole)
    except DPError as error:
        return f"source {written}: {error}", None
    files = set()
    for path in paths:
        real = os.path.realpath(path)
        if not any(_inside(real, one) for one in allowed):
            return f"source {written} is a link that leads out of the policy's folder. {_HOW}", None
        try:
            state = os.stat(real)
        except OSError:
            return f"There is no file {written} in the policy's folder.", None
        files.add((state.st_dev, state.st_ino, (table.table or "").casefold().removeprefix("main.")))
    return "", FoundSource(whole, frozenset(files), is_database)


def _shared(document: Document, found: Mapping[str, FoundSource]) -> list[PolicyProblem]:
    """Return a mistake for each table that has a file of another one."""
    problems, names = [], list(found)
    for place, second in enumerate(names):
        for first in names[:place]:
            if not found[first].files & found[second].files:
                continue
            mine, other = document.tables[second], document.tables[first]
            line = document.line("tables", second, "source")
            if mine.public != other.public:
                public, private = (second, first) if mine.public else (first, second)
                text = f"{public} is public and {private} is private, but they have a file in common"
            else:
                text = f"{first} and {second} have a file in common, so they shadow each other"
            problems.append(PolicyProblem(line, f"{text}: by a link, a pattern or the same path. Name each file once."))
    return problems
