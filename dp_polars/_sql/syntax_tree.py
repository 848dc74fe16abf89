"""Parse SQL into DuckDB's syntax tree, inspect and change the tree, and write it back as text.

A tree consists of the nested dictionaries that `json_serialize_sql` of DuckDB 2 returns. Parsing runs in an empty
in-memory database, so it sees neither data nor macros of the user.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]

from dp_polars._expressions.types import MOST_WRITTEN
from dp_polars.errors import StatementNotAllowed

Node = dict[str, Any]

_PLACES = ("query_location", "query_location_length")
_DEEPEST = 500  # levels of nested dictionaries and lists in a tree

_LITERALS: dict[str, Callable[[str], Any]] = {
    "INTEGER": int,
    "NUMERIC": Decimal,
    "STRING": str,
    "BOOLEAN": lambda text: text == "true",
}


class Parser:
    """Parses SQL text, writes trees as text and evaluates constants. It works in an empty database and sees no data."""

    def select(self, sql: str) -> Node:
        """Parse a text that consists of one SELECT and return its query node."""
        if not isinstance(sql, str):
            raise StatementNotAllowed(f"A SQL statement must be a string, got {type(sql).__name__}.")
        if len(sql) > MOST_WRITTEN:
            raise StatementNotAllowed(f"A SQL statement may have at most {MOST_WRITTEN:,} characters.")
        if "\0" in sql:  # Arrow would end the name of a column there
            raise StatementNotAllowed("A SQL statement can't have null characters. Rename columns that have one.")
        try:
            answer = json.loads(_converted("SELECT json_serialize_sql($1::VARCHAR)", sql))
        except (RecursionError, UnicodeError, duckdb.Error):
            raise StatementNotAllowed(
                "DuckDB can't parse this statement: it is nested too deeply, or it isn't valid Unicode text."
            ) from None
        if answer.get("error"):
            raise StatementNotAllowed(_parse_problem(answer))
        statements = answer["statements"]
        if len(statements) != 1:
            raise StatementNotAllowed("Send one statement at a time: a private query is a single SELECT.")
        node: Node = statements[0]["node"]
        if _height(node) > _DEEPEST:
            raise StatementNotAllowed(
                "This statement is nested too deeply. Split it with WITH, or replace chains of OR by IN (...)."
            )
        return node

    def text(self, node: Node) -> str:
        """Write a query node as SQL text.

        The text is parsed again and must give the same tree. Otherwise a name with special characters could turn into
        SQL of its own.
        """
        text = self._written(node)
        if _plain(self.select(text)) != _plain(node):
            raise StatementNotAllowed(
                "DuckDB can't write this statement as text without changing its meaning. Rename tables and columns "
                "whose names contain special characters."
            )
        return text

    def _written(self, node: Node) -> str:
        whole = {"error": False, "statements": [{"node": node, "named_param_map": []}]}
        return _converted("SELECT json_deserialize_sql($1::JSON)", json.dumps(whole))

    def expression(self, sql: str) -> Node:
        """Parse a text that consists of one expression and return its node."""
        node = self.select(f"SELECT {sql}")
        items = node.get("select_list") or []
        if len(items) != 1 or _plain({**node, "select_list": []}) != self._bare:
            raise StatementNotAllowed("Expected a single expression with nothing before or after it.")
        item: Node = items[0]
        return item

    def items(self, sql: str) -> list[Node]:
        """Parse a text that consists of expressions with commas between them, each perhaps with AS and a name."""
        if not sql.strip():
            return []
        node = self.select(f"SELECT {sql}")
        if _plain({**node, "select_list": []}) != self._bare:
            raise StatementNotAllowed("Expected expressions with commas between them and nothing else.")
        items: list[Node] = node["select_list"]
        return items

    @cached_property
    def _bare(self) -> Any:
        return _plain({**self.select("SELECT 1"), "select_list": []})

    def literal(self, node: Node) -> tuple[bool, Any]:
        """Return (True, value) for a literal number, text, Boolean or NULL, and (False, None) for other constants."""
        given = node["literal"]
        if given["kind"] == "NULL_LITERAL":
            return True, None
        read = _LITERALS.get(given["kind"])
        return (False, None) if read is None else (True, read(given["text"]))

    def value(self, node: Node, parameters: dict[str, Any]) -> Any:
        """Evaluate a constant expression and return its value as a Python object."""
        if node["class"] == "PARAMETER":
            return given_values(node, parameters)[str(node["identifier"])]
        if node["class"] == "CONSTANT":
            plain, value = self.literal(node)
            if plain:  # DuckDB gives the same value, but takes a millisecond
                return value
        text, used = self._select(node, parameters)
        try:
            found = shared_sandbox().sql(text, params=used or None)
            if "TIME ZONE" in str(found.types[0]):  # fetchall would need the package pytz
                return found.to_arrow_table().column(0)[0].as_py()
            row = next(iter(found.fetchall()), None)
        except (duckdb.Error, OverflowError, ValueError, NotImplementedError):
            raise StatementNotAllowed(
                "The value of an option can't be computed, or Python has no type for it. Write it as a plain constant."
            ) from None
        return None if row is None else row[0]

    def constant(self, node: Node, parameters: dict[str, Any]) -> Any:
        """Evaluate a constant expression and return it as an Arrow array of one row, with its exact type."""
        text, used = self._select(node, parameters)
        try:
            return arrow_table(shared_sandbox(), text, used).column(0).combine_chunks()
        except pa.ArrowException:  # lists of lists, deeper than Arrow can describe
            raise StatementNotAllowed("A constant is nested too deeply. Write it with fewer levels.") from None

    def read_as(self, text: str, kind: str) -> pl.Series:
        """Cast a text to a SQL type and return a Series of one row. `kind` must never come from a user."""
        table = arrow_table(shared_sandbox(), f"SELECT CAST($text::VARCHAR AS {kind}) AS x", {"text": text})
        return pl.Series(table.column(0).combine_chunks())

    def _select(self, node: Node, parameters: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return a SELECT that computes a constant expression, and the parameters that the expression uses."""
        template = {**self.select("SELECT 1"), "select_list": [{**node, "alias": ""}]}
        return self.text(template), given_values(node, parameters)

    def type_of(self, cast: Node) -> Any:
        """Return the target type of a cast as a DuckDB type object."""
        null = self.expression("NULL")
        text, _ = self._select({**cast, "child": null}, {})
        try:
            (kind,) = shared_sandbox().sql(text).types
        except duckdb.Error:
            raise StatementNotAllowed(
                "This cast names a type that is not built into DuckDB. Cast to a built-in type."
            ) from None
        return kind

    def typed(self, values: list[Any], kind: str) -> list[Any]:
        """Convert values that were read from JSON to a DuckDB type, and return them as Python objects."""
        texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
        rows = shared_sandbox().execute(f"SELECT CAST(unnest($texts::VARCHAR[]) AS {kind})", {"texts": texts})
        return [row[0] for row in rows.fetchall()]

    def table(self, name: str) -> Node:
        """Parse the name of a table and return its node. Anything beyond a name is refused."""
        node = self.select(f"FROM {name}")
        table: Node = node.get("from_table") or {}
        plain = {**node, "from_table": None}
        if table.get("type") != "BASE_TABLE" or table.get("sample") or table["alias"] or plain != self._from:
            raise StatementNotAllowed("Expected the name of a table and nothing else.")
        return table

    def source(self, sql: str) -> Node:
        """Parse what stands behind FROM: a table, a subquery in parentheses, or a join. Anything beyond is refused."""
        node = self.select(f"FROM {sql}")
        if {**node, "from_table": None} != self._from:
            raise StatementNotAllowed("Expected a table, a subquery in parentheses or a join, and nothing else.")
        source: Node = without_places(node["from_table"])
        return source

    @cached_property
    def _from(self) -> Node:
        return {**self.select("FROM t"), "from_table": None}

    def texts(self, frame: Any) -> list[dict[str, Any]]:
        """Return the rows of a frame as dictionaries whose values are the texts that DuckDB writes for them."""
        cursor = shared_sandbox()
        cursor.register("frame", frame.to_arrow())
        rows = cursor.execute("SELECT CAST(COLUMNS(*) AS VARCHAR) FROM frame").fetchall()
        return [dict(zip(frame.columns, row, strict=True)) for row in rows]


_SHORT = 4_000  # characters of a text whose conversion is remembered


def _converted(sql: str, text: str) -> str:
    """Convert SQL to a tree in JSON, or such a tree to SQL.

    A statement is written and parsed again each time before the sandbox runs it, and dashboards repeat statements. The
    conversion depends on the text alone, so the last short ones are remembered. Callers parse the JSON themselves, so
    nobody can change the tree of somebody else.
    """
    return (_remembered if len(text) <= _SHORT else _remembered.__wrapped__)(sql, text)


@lru_cache(maxsize=256)
def _remembered(sql: str, text: str) -> str:
    row = shared_sandbox().execute(sql, [text]).fetchone()
    return str(row[0]) if row else ""


def without_progress(connection: Any) -> None:
    """Switch progress bars off. In a notebook without ipywidgets DuckDB refuses the setting, which is harmless."""
    with contextlib.suppress(duckdb.Error):
        connection.execute("SET enable_progress_bar = false")


def with_short_texts(cursor: Any) -> None:
    """Let this cursor return texts in the form that DuckDB and Polars hold them in, so that none are copied.

    Only speed depends on it, so a database whose settings are locked may refuse. Other cursors of the user's database
    keep their settings.
    """
    with contextlib.suppress(duckdb.Error):
        cursor.execute("SET SESSION arrow_output_version = '1.4'")
        cursor.execute("SET SESSION produce_arrow_string_view = true")


@lru_cache(maxsize=1)
def _shared(process: int) -> Any:
    return sandbox()


def shared_sandbox() -> Any:
    """Return a new cursor on this process's sandbox. Tables registered on one cursor are invisible to the others."""
    return _shared(os.getpid()).cursor()  # a forked process can't use the database of its parent


def sandbox() -> Any:
    """Open an empty in-memory database that can read no files, no Python variables and no extensions."""
    database = duckdb.connect(":memory:")
    without_progress(database)
    for setting in ("python_enable_replacements", "autoinstall_known_extensions", "autoload_known_extensions",
                    "enable_external_access"):  # fmt: skip
        database.execute(f"SET {setting} = false")
    database.execute("SET TimeZone = 'UTC'")
    database.execute("SET lock_configuration = true")
    return database


def arrow_table(cursor: Any, sql: str, parameters: dict[str, Any] | None = None) -> Any:
    """Run a query and return its rows as an Arrow table."""
    return cursor.sql(sql, params=parameters or None).to_arrow_table()


def _height(node: Any) -> int:
    """Return the number of levels of a tree, without recursion."""
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


_DEFAULTS: tuple[Any, ...] = ("", None, [], False)


def _plain(node: Any) -> Any:
    """Return a tree in the form in which two trees are compared: without locations and without default values."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    left_out = (*_PLACES, "is_operator", "named_param_map")
    plain = {name: _plain(item) for name, item in node.items() if name not in left_out and item not in _DEFAULTS}
    return _values_of(plain) or plain


def _values_of(table: Node) -> Node | None:
    """Return the VALUES list inside `(SELECT * FROM (VALUES ...))`, which is how DuckDB writes one; None otherwise."""
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
        return (
            "A guarded connection runs SELECT statements only. It neither writes data nor changes settings. For a "
            "PIVOT write SELECT * FROM (...) PIVOT (sum(n) FOR month IN (1, 2, 3))."
        )
    return f"DuckDB can't parse this statement: {message}"


# ---------------------------------------------------------------------- reading nodes

_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def fold(name: str) -> str:
    """Lowercase the letters A to Z of a name and no others, as DuckDB does when it compares names."""
    return str(name).translate(_LOWER)


def path_of(table: Node) -> tuple[str, ...]:
    """Return the parts of a table's name in FROM: catalog, schema and table, as far as they were written."""
    return tuple(str(table[part]) for part in ("catalog_name", "schema_name", "table_name") if table[part])


def arguments(function: Node) -> list[tuple[str, Node]]:
    """Return the arguments of a function call as (name, expression). Positional arguments have an empty name."""
    return [(item["name"], item["expression"]) for item in function["arguments"]]


def cte_query(entry: Node) -> Node:
    """Return the query of an entry of WITH."""
    query: Node = entry["value"]["query_node"]
    return query


def children(node: Node) -> Iterator[Node]:
    """Yield the expressions directly below an expression. The inside of a subquery is not visited."""
    yield from (child for name, item in node.items() if name != "subquery" for child in _expressions(item))


def _expressions(item: Any) -> Iterator[Node]:
    if isinstance(item, list):
        for part in item:
            yield from _expressions(part)
    elif isinstance(item, dict):
        if "class" not in item:
            for part in item.values():
                yield from _expressions(part)
        elif item["class"] != "TYPE":
            yield item


def walk(node: Node) -> Iterator[Node]:
    """Yield an expression and every expression inside it, except those inside subqueries."""
    yield node
    for child in children(node):
        yield from walk(child)


def modifier_expressions(modifier: Node) -> Iterator[Node]:
    """Yield the expressions of an ORDER BY, LIMIT or DISTINCT ON clause."""
    yield from (order["expression"] for order in modifier.get("orders", []))
    yield from modifier.get("distinct_on_targets", [])
    yield from (modifier[name] for name in ("limit", "offset") if isinstance(modifier.get(name), dict))


def canonical(node: Node) -> str:
    """Return a text that is the same for equal expressions, regardless of their location and alias."""
    return json.dumps({**without_places(node), "alias": ""}, sort_keys=True)


def parameters_of(node: Any) -> list[str]:
    """Return the names of the parameters in a tree, sorted."""
    found: set[str] = set()

    def look(item: Any) -> None:
        if isinstance(item, list):
            for part in item:
                look(part)
        elif isinstance(item, dict):
            if item.get("class") == "PARAMETER":
                found.add(str(item["identifier"]))
            for part in item.values():
                look(part)

    look(node)
    return sorted(found)


def given_values(node: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the parameters in a tree, or refuse the statement if one is missing."""
    names = parameters_of(node)
    missing = [name for name in names if name not in parameters]
    if missing:
        raise StatementNotAllowed(f"No value was given for parameter {', '.join(missing)}.")
    return {name: parameters[name] for name in names}


def place(node: Node, sql: str) -> str:
    """Return the location of a node as " (line 1, column 8)", or an empty text if it isn't known."""
    at = node.get("query_location")
    if not isinstance(at, int) or at >= len(sql.encode()):
        return ""
    before = sql.encode()[:at].decode(errors="ignore")
    line, column_number = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f" (line {line}, column {column_number})"


# ---------------------------------------------------------------------- changing nodes


def replaced(node: Any, change: Callable[[Node], Node | None]) -> Any:
    """Copy a tree and replace every expression for which `change` returns another one.

    The inside of a subquery stays as it is, because its names mean other columns.
    """
    if isinstance(node, list):
        return [replaced(item, change) for item in node]
    if not isinstance(node, dict):
        return node
    other = change(node) if "class" in node else None
    if other is not None:
        return other
    inside = "subquery" if node.get("class") == "SUBQUERY" else ""
    return {name: item if name == inside else replaced(item, change) for name, item in node.items()}


def replaced_tables(node: Any, name: Callable[[Node], str]) -> Any:
    """Copy a tree and give each table in FROM the name that `name` returns. Its previous name becomes the alias."""
    if isinstance(node, list):
        return [replaced_tables(item, name) for item in node]
    if not isinstance(node, dict):
        return node
    copy = {key: replaced_tables(item, name) for key, item in node.items()}
    if copy.get("type") != "BASE_TABLE" or "class" in copy:
        return copy
    given = name(node)
    alias = copy["alias"] or copy["table_name"]
    copy |= {"catalog_name": "", "schema_name": "", "table_name": given, "alias": alias if alias != given else ""}
    return {**copy, "qualified_name": {"path": [given]}}


def changed_modifier(modifier: Node, change: Callable[[Node], Any]) -> Node:
    """Copy an ORDER BY, LIMIT or DISTINCT ON clause and apply `change` to its expressions."""
    changed = dict(modifier)
    if "orders" in modifier:
        changed["orders"] = [{**order, "expression": change(order["expression"])} for order in modifier["orders"]]
    if "distinct_on_targets" in modifier:
        changed["distinct_on_targets"] = [change(item) for item in modifier["distinct_on_targets"]]
    for name in ("limit", "offset"):
        if isinstance(modifier.get(name), dict):
            changed[name] = change(modifier[name])
    return changed


def with_arguments(call: Node, values: list[Node]) -> Node:
    """Copy a function call and replace its arguments."""
    pairs = zip(call["arguments"], values, strict=True)
    return {**call, "arguments": [{**argument, "expression": value} for argument, value in pairs]}


def without_places(node: Any) -> Any:
    """Copy a tree without the locations of its nodes, which are wrong once the tree is written as another text."""
    if isinstance(node, list):
        return [without_places(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {name: without_places(item) for name, item in node.items() if name not in _PLACES}


# ---------------------------------------------------------------------- making nodes


def column(*names: str) -> Node:
    """Return a reference to a column."""
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": list(names)}


def star() -> Node:
    """Return `*`."""
    return {
        "class": "STAR", "type": "STAR", "alias": "", "relation_name": "", "exclude_list": [], "replace_list": [],
        "columns": False, "expr": None, "qualified_exclude_list": [], "rename_list": [],
    }  # fmt: skip


def select_node(items: Sequence[Node], table: Node, where: Node | None = None) -> Node:
    """Return a SELECT of some items from a table, with an optional WHERE."""
    return {
        "type": "SELECT_NODE", "modifiers": [], "cte_map": {"map": []}, "select_list": list(items), "from_table": table,
        "where_clause": where, "group_expressions": [], "group_sets": [], "aggregate_handling": "STANDARD_HANDLING",
        "having": None, "sample": None, "qualify": None,
    }  # fmt: skip


def select_all(table: Node) -> Node:
    """Return `SELECT * FROM table`."""
    return select_node([star()], table)


def subquery(query: Node, alias: str, names: Sequence[str] = ()) -> Node:
    """Return a query as a table in FROM: `(query) AS alias(names)`."""
    return {
        "type": "SUBQUERY", "alias": alias, "sample": None, "subquery": {"node": query, "named_param_map": []},
        "column_name_alias": list(names),
    }  # fmt: skip


def base_table(name: str) -> Node:
    """Return a table in FROM by its name."""
    return {
        "type": "BASE_TABLE", "alias": "", "sample": None, "schema_name": "", "table_name": name,
        "column_name_alias": [], "catalog_name": "", "at_clause": None, "qualified_name": {"path": [name]},
    }  # fmt: skip
