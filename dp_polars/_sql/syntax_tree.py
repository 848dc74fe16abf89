"""The syntax tree of a statement, as DuckDB parses it, and the way back to text.

Trees are the nested dictionaries of DuckDB's own JSON form, as DuckDB 2 has it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any

import duckdb
import polars as pl

from dp_polars._expressions.types import MOST_WRITTEN
from dp_polars.errors import StatementNotAllowed

Node = dict[str, Any]

_PLACES = ("query_location", "query_location_length")
_DEEPEST = 500  # nested dictionaries and lists of a tree


_LITERALS: dict[str, Callable[[str], Any]] = {
    "INTEGER": int,
    "NUMERIC": Decimal,
    "STRING": str,
    "BOOLEAN": lambda text: text == "true",
}


class Parser:
    """Parses statements and writes them again, in an empty database: nothing here sees data."""

    def select(self, sql: str) -> Node:
        """Return the query node of the one SELECT in a text."""
        if not isinstance(sql, str):
            raise StatementNotAllowed(f"A statement is text, got {type(sql).__name__}.")
        if len(sql) > MOST_WRITTEN:
            raise StatementNotAllowed(f"A statement has up to {MOST_WRITTEN:,} characters.")
        try:
            answer = self._call("SELECT json_serialize_sql($1::VARCHAR)", sql)
        except (RecursionError, UnicodeError, duckdb.Error):
            raise StatementNotAllowed(
                "This statement can't be parsed: it is nested too deeply, or is no text."
            ) from None
        if answer.get("error"):
            raise StatementNotAllowed(_parse_problem(answer))
        statements = answer["statements"]
        if len(statements) != 1:
            raise StatementNotAllowed("One statement at a time, please: a private question is one SELECT.")
        node: Node = statements[0]["node"]
        if _height(node) > _DEEPEST:
            raise StatementNotAllowed("This statement is nested too deeply; split it with WITH, or use IN (...).")
        return node

    def text(self, node: Node) -> str:
        """Return the SQL text of a query node. Parsed again it gives the same tree, so that no name becomes SQL."""
        text = self._written(node)
        if _plain(self.select(text)) != _plain(node):
            raise StatementNotAllowed("This statement can't be written down without a change of its meaning; rename "
                                      "tables and columns whose names have signs in them.")  # fmt: skip
        return text

    def _written(self, node: Node) -> str:
        whole = {"error": False, "statements": [{"node": node, "named_param_map": []}]}
        row = shared_sandbox().execute("SELECT json_deserialize_sql($1::JSON)", [json.dumps(whole)]).fetchone()
        return str(row[0]) if row else ""

    def expression(self, sql: str) -> Node:
        """Return the node of one expression, in a text that has nothing else."""
        node = self.select(f"SELECT {sql}")
        items = node.get("select_list") or []
        if len(items) != 1 or _plain({**node, "select_list": []}) != self._bare:
            raise StatementNotAllowed("An expression was expected, and nothing after it.")
        item: Node = items[0]
        return item

    @cached_property
    def _bare(self) -> Any:
        return _plain({**self.select("SELECT 1"), "select_list": []})

    def literal(self, node: Node) -> tuple[bool, Any]:
        """Return whether a constant is a plain number, text, truth value or null, and if so which."""
        given = node["literal"]
        if given["kind"] == "NULL_LITERAL":
            return True, None
        read = _LITERALS.get(given["kind"])
        return (False, None) if read is None else (True, read(given["text"]))

    def value(self, node: Node, parameters: dict[str, Any]) -> Any:
        """Return what a constant expression is worth in Python."""
        if node["class"] == "PARAMETER":
            return given_values(node, parameters)[str(node["identifier"])]
        if node["class"] == "CONSTANT":
            plain, value = self.literal(node)
            if plain:  # most options; DuckDB would say the same, a millisecond later
                return value
        text, used = self._select(node, parameters)
        try:
            found = shared_sandbox().sql(text, params=used or None)
            if "TIME ZONE" in str(found.types[0]):  # DuckDB makes a Python value of it with a package of its own choice
                return found.to_arrow_table().column(0)[0].as_py()
            row = next(iter(found.fetchall()), None)
        except (duckdb.Error, OverflowError, ValueError, NotImplementedError):
            raise StatementNotAllowed(
                "An option has a constant that can't be computed, or that Python has no value for."
            ) from None
        return None if row is None else row[0]

    def constant(self, node: Node, parameters: dict[str, Any]) -> Any:
        """Return what a constant expression is worth as an Arrow array of one row, exact in its type."""
        text, used = self._select(node, parameters)
        return arrow_table(shared_sandbox(), text, used).column(0).combine_chunks()

    def read_as(self, text: str, kind: str) -> pl.Series:
        """Return a text as a value of a SQL type, in a Series of one row; `kind` is one of our own words."""
        table = arrow_table(shared_sandbox(), f"SELECT CAST($text::VARCHAR AS {kind}) AS x", {"text": text})
        return pl.Series(table.column(0).combine_chunks())

    def _select(self, node: Node, parameters: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return a statement that computes a constant, and the parameters that it uses."""
        template = {**self.select("SELECT 1"), "select_list": [{**node, "alias": ""}]}
        return self.text(template), given_values(node, parameters)

    def type_of(self, cast: Node) -> Any:
        """Return the type that a cast is to, as an object of DuckDB."""
        null = self.expression("NULL")
        text, _ = self._select({**cast, "child": null}, {})
        try:
            (kind,) = shared_sandbox().sql(text).types
        except duckdb.Error:
            raise StatementNotAllowed("This casts to a type that DuckDB does not have by itself.") from None
        return kind

    def typed(self, values: list[Any], kind: str) -> list[Any]:
        """Return values, as JSON has them, in a type of DuckDB."""
        texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
        rows = shared_sandbox().execute(f"SELECT CAST(unnest($texts::VARCHAR[]) AS {kind})", {"texts": texts})
        return [row[0] for row in rows.fetchall()]

    def table(self, name: str) -> Node:
        """Return the node of a table by its name, which is nothing but a name."""
        node = self.select(f"FROM {name}")
        table: Node = node.get("from_table") or {}
        plain = {**node, "from_table": None}
        if table.get("type") != "BASE_TABLE" or table.get("sample") or table["alias"] or plain != self._from:
            raise StatementNotAllowed("The name of a table was expected, and nothing else.")
        return table

    @cached_property
    def _from(self) -> Node:
        return {**self.select("FROM t"), "from_table": None}

    def texts(self, frame: Any) -> list[dict[str, Any]]:
        """Return the rows of a frame with their values as DuckDB writes them."""
        cursor = shared_sandbox()
        cursor.register("frame", frame.to_arrow())
        rows = cursor.execute("SELECT CAST(COLUMNS(*) AS VARCHAR) FROM frame").fetchall()
        return [dict(zip(frame.columns, row, strict=True)) for row in rows]

    def _call(self, sql: str, argument: str) -> dict[str, Any]:
        row = shared_sandbox().execute(sql, [argument]).fetchone()
        answer: dict[str, Any] = json.loads(row[0]) if row else {}
        return answer


def without_progress(connection: Any) -> None:
    """Switch progress bars off, where that can be done: in a notebook without ipywidgets DuckDB refuses to."""
    with contextlib.suppress(duckdb.Error):
        connection.execute("SET enable_progress_bar = false")


@lru_cache(maxsize=1)
def _shared(process: int) -> Any:
    return sandbox()


def shared_sandbox() -> Any:
    """Return a cursor on the one sandbox of this process. What is registered on a cursor is seen by it alone."""
    return _shared(os.getpid()).cursor()  # a fork can't use its parent's


def sandbox() -> Any:
    """Return an empty database that reads no file, no Python variable and no extension: what it holds is put there."""
    database = duckdb.connect(":memory:")
    without_progress(database)
    for setting in ("python_enable_replacements", "autoinstall_known_extensions", "autoload_known_extensions",
                    "enable_external_access"):  # fmt: skip
        database.execute(f"SET {setting} = false")
    database.execute("SET TimeZone = 'UTC'")
    database.execute("SET lock_configuration = true")
    return database


def arrow_table(cursor: Any, sql: str, parameters: dict[str, Any] | None = None) -> Any:
    """Return the rows of a query as an Arrow table."""
    return cursor.sql(sql, params=parameters or None).to_arrow_table()


def _height(node: Any) -> int:
    """Return how deep a tree is, without recursion."""
    height, level = 0, [node]
    while level:
        height += 1
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
    return height


_UNSAID: tuple[Any, ...] = ("", None, [], False)


def _plain(node: Any) -> Any:
    """Return a tree as it is compared: without places, and without what is not said."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    left_out = (*_PLACES, "is_operator", "named_param_map")
    plain = {name: _plain(item) for name, item in node.items() if name not in left_out and item not in _UNSAID}
    return _values_of(plain) or plain


def _values_of(table: Node) -> Node | None:
    """Return VALUES for what DuckDB writes as `(SELECT * FROM (VALUES ...))`, None for anything else."""
    if table.get("type") != "SUBQUERY" or "class" in table:
        return None
    query = table["subquery"]["node"]
    inner: Node = query.get("from_table", {})
    bare = {"type": "SELECT_NODE", "cte_map": {}, "select_list": [{"class": "STAR", "type": "STAR"}],
            "aggregate_handling": "STANDARD_HANDLING"}  # fmt: skip
    same = {**bare, "from_table": inner} == query and inner.get("alias") == table.get("alias")
    return inner if same and inner.get("type") == "EXPRESSION_LIST" and "column_name_alias" not in table else None


def _parse_problem(answer: dict[str, Any]) -> str:
    message = str(answer.get("error_message", "")).strip()
    if "SELECT" in message and "serialized" in message:
        return "Only SELECT statements are private questions. A guarded connection neither writes nor configures."
    return f"This is not SQL that DuckDB understands: {message}"


# ---------------------------------------------------------------------- nodes

_CAPITALS = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def fold(name: str) -> str:
    """Return a name as DuckDB compares it: A to Z are a to z, and no other letter is another."""
    return str(name).translate(_CAPITALS)


def path_of(table: Node) -> tuple[str, ...]:
    """Return the parts of the name of a table in FROM."""
    return tuple(str(table[part]) for part in ("catalog_name", "schema_name", "table_name") if table[part])


def replaced_tables(node: Any, name: Callable[[Node], str]) -> Any:
    """Return a tree in which each table in FROM has the name that is returned for it, under its alias of before."""
    if isinstance(node, list):
        return [replaced_tables(item, name) for item in node]
    if not isinstance(node, dict):
        return node
    copy = {key: replaced_tables(item, name) for key, item in node.items()}
    if copy.get("type") != "BASE_TABLE" or "class" in copy:
        return copy
    own = name(node)
    alias = copy["alias"] or copy["table_name"]
    copy |= {"catalog_name": "", "schema_name": "", "table_name": own, "alias": alias if alias != own else ""}
    return {**copy, "qualified_name": {"path": [own]}}


def arguments(function: Node) -> list[tuple[str, Node]]:
    """Return the arguments of a function with their names, empty for those given by position."""
    return [(item["name"], item["expression"]) for item in function["arguments"]]


def with_arguments(call: Node, values: list[Node]) -> Node:
    """Return a call with these expressions for its arguments."""
    pairs = zip(call["arguments"], values, strict=True)
    return {**call, "arguments": [{**argument, "expression": value} for argument, value in pairs]}


def children(node: Node) -> Iterator[Node]:
    """Yield the expressions right below an expression, wherever in it they are; a subquery's inside is its own."""
    yield from (child for name, item in node.items() if name != "subquery" for child in _expressions(item))


def _expressions(item: Any) -> Iterator[Node]:
    if isinstance(item, list):
        for one in item:
            yield from _expressions(one)
    elif isinstance(item, dict):
        if "class" not in item:
            for one in item.values():
                yield from _expressions(one)
        elif item["class"] != "TYPE":
            yield item


def cte_query(entry: Node) -> Node:
    """Return the query of an entry of WITH."""
    query: Node = entry["value"]["query_node"]
    return query


def walk(node: Node) -> Iterator[Node]:
    """Yield an expression and all expressions in it, but not what is inside of subqueries."""
    yield node
    for child in children(node):
        yield from walk(child)


def replaced(node: Any, change: Callable[[Node], Node | None]) -> Any:
    """Return a copy of a tree in which `change` has replaced the nodes for which it returns another."""
    if isinstance(node, list):
        return [replaced(item, change) for item in node]
    if not isinstance(node, dict):
        return node
    other = change(node) if "class" in node else None
    if other is not None:
        return other
    return {name: replaced(item, change) for name, item in node.items()}


def canonical(node: Node) -> str:
    """Return a text that is equal for equal expressions, wherever they stand and whatever they are called."""
    return json.dumps({**without_places(node), "alias": ""}, sort_keys=True)


def without_places(node: Any) -> Any:
    """Return a tree without places: a text made of it has its own."""
    if isinstance(node, list):
        return [without_places(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {name: without_places(item) for name, item in node.items() if name not in _PLACES}


def parameters_of(node: Any) -> list[str]:
    """Return the names of the parameters in a tree."""
    found: set[str] = set()

    def look(item: Any) -> None:
        if isinstance(item, list):
            for one in item:
                look(one)
        elif isinstance(item, dict):
            if item.get("class") == "PARAMETER":
                found.add(str(item["identifier"]))
            for one in item.values():
                look(one)

    look(node)
    return sorted(found)


def given_values(node: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the parameters in a tree, or say which one has none."""
    names = parameters_of(node)
    missing = [name for name in names if name not in parameters]
    if missing:
        raise StatementNotAllowed(f"No value was given for parameter {', '.join(missing)}.")
    return {name: parameters[name] for name in names}


def column(*names: str) -> Node:
    """Return a reference to a column."""
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": list(names)}


def both(nodes: list[Node]) -> Node | None:
    """Return a condition that holds where all hold."""
    if len(nodes) < 2:
        return nodes[0] if nodes else None
    return {"class": "CONJUNCTION", "type": "CONJUNCTION_AND", "alias": "", "children": nodes}


def place(node: Node, sql: str) -> str:
    """Return where a node stands in a text, in words; empty if that is not known."""
    at = node.get("query_location")
    if not isinstance(at, int) or at >= len(sql.encode()):
        return ""
    before = sql.encode()[:at].decode(errors="ignore")
    line, column_number = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f" (line {line}, column {column_number})"
