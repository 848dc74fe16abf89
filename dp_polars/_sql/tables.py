"""What names mean in a statement: the tables of a FROM and their columns."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dp_polars._expressions import Column
from dp_polars._sql.syntax_tree import Node, fold, place
from dp_polars.errors import Code, StatementNotAllowed

Meaning = Column | str
"""What a column name stands for over private rows: a column, or the SQL type that keeps it from being used."""

_CLOCKS = frozenset({"current_date", "current_timestamp", "current_time", "now", "localtimestamp"})


@dataclass(frozen=True)
class Table:
    """A name in FROM and its columns, in the order of the table.

    Over private rows `columns` says what each name stands for; over public and released rows it is empty text: DuckDB
    knows their types.
    """

    alias: str
    columns: Mapping[str, Meaning]

    def has(self, name: str) -> str | None:
        """Return a column's own spelling, None if there is none."""
        return next((own for own in self.columns if fold(own) == fold(name)), None)


@dataclass(frozen=True)
class Scope:
    """The tables that the names of an expression are looked up in, and the text of the statement for places."""

    tables: tuple[Table, ...]
    sql: str

    def refuse(self, node: Node, reason: str, *, code: Code | None = None) -> StatementNotAllowed:
        """Return the error for a node, with its place in the text."""
        return StatementNotAllowed(reason + place(node, self.sql), code=code)

    def resolve(self, node: Node) -> tuple[Table, str] | None:
        """Return the table and the column that a reference means, None if it means neither."""
        found = self._found(node)
        return None if found is None else found[:2]

    def column(self, node: Node) -> tuple[Meaning, list[str]] | None:
        """Return what a reference stands for, and which fields of it are meant; None if it stands for nothing."""
        found = self._found(node)
        if found is None:
            return None
        table, name, fields = found
        return table.columns[name], fields

    def _found(self, node: Node) -> tuple[Table, str, list[str]] | None:
        names: list[str] = node["column_names"]
        for table in self.tables:
            if len(names) > 1 and fold(table.alias) == fold(names[0]) and (own := table.has(names[1])) is not None:
                return table, own, names[2:]
        for table in self.tables:
            if (own := table.has(names[0])) is not None:
                return table, own, names[1:]
        return None


def unknown_column(node: Node, scope: Scope) -> StatementNotAllowed:
    """Return the refusal of a name that no table has."""
    name = ".".join(node["column_names"])
    if fold(name) in _CLOCKS:
        return scope.refuse(node, f"{name} depends on when it is asked; pass the time as a parameter.")
    known = [column for table in scope.tables for column in table.columns]
    others = closest(node["column_names"][-1], known)
    return scope.refuse(node, f"There is no column {name}{others}.", code="unknown-column")


def closest(name: str, known: Sequence[str]) -> str:
    """Return the rest of a sentence about an unknown name: which one was perhaps meant, and which there are."""
    shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "") or "none"
    folded = {fold(one): one for one in known}
    near = difflib.get_close_matches(fold(name), list(folded), 1)
    return f". Did you mean {folded[near[0]]}? There are {shown}" if near else f"; there are {shown}"
