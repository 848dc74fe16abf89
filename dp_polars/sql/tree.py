"""The syntax tree of a statement, as DuckDB parses it, and the way back to text.

Trees are the nested dictionaries of DuckDB's own JSON form. What differs between DuckDB 1.5 and 2.x is known here
alone: function arguments (`arguments` or `children`), their names (a name or an alias), and the queries of WITH.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any

import duckdb

from dp_polars.errors import StatementNotAllowed
from dp_polars.sql.allowed import GROWING

Node = dict[str, Any]

_PLACES = ("query_location", "query_location_length")
_LONGEST = 1 << 14


_LITERALS: dict[str, Callable[[str], Any]] = {
    "INTEGER": int,
    "NUMERIC": Decimal,
    "STRING": str,
    "BOOLEAN": lambda text: text == "true",
}


class Parser:
    """Parses statements and writes them again. Holds an empty database of its own: nothing here sees data."""

    def __init__(self) -> None:
        self._database = duckdb.connect(":memory:")

    def select(self, sql: str) -> Node:
        """Return the query node of the one SELECT in a text."""
        if not isinstance(sql, str):
            raise StatementNotAllowed(f"A statement is text, got {type(sql).__name__}.")
        answer = self._call("SELECT json_serialize_sql(?::VARCHAR)", sql)
        if answer.get("error"):
            raise StatementNotAllowed(_parse_problem(answer))
        statements = answer["statements"]
        if len(statements) != 1:
            raise StatementNotAllowed("One statement at a time, please: a private question is one SELECT.")
        node: Node = statements[0]["node"]
        return node

    def text(self, node: Node) -> str:
        """Return the SQL text of a query node."""
        whole = {"error": False, "statements": [{"node": node, "named_param_map": []}]}
        row = self._database.cursor().execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(whole)]).fetchone()
        return str(row[0]) if row else ""

    def expression(self, sql: str) -> Node:
        """Return the node of one expression."""
        items = self.select(f"SELECT {sql}")["select_list"]
        if len(items) != 1:
            raise StatementNotAllowed("An expression was expected, not a list.")
        item: Node = items[0]
        return item

    def value(self, node: Node, parameters: dict[str, Any]) -> Any:
        """Return what a constant expression is worth."""
        if node["class"] == "PARAMETER":
            return given_values(node, parameters)[str(node["identifier"])]
        literal = node.get("literal") or {}
        if literal.get("kind") in _LITERALS:  # most options; DuckDB would say the same, a millisecond later
            return _LITERALS[literal["kind"]](literal["text"])
        template = self.select("SELECT 1")
        template["select_list"] = [node]
        used = given_values(node, parameters)
        row = self._database.cursor().execute(self.text(template), used or None).fetchone()
        return None if row is None else row[0]

    def typed(self, values: list[Any], kind: str) -> list[Any]:
        """Return values, as JSON has them, in a type of DuckDB."""
        texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
        rows = self._database.cursor().execute(f"SELECT CAST(unnest($texts::VARCHAR[]) AS {kind})", {"texts": texts})
        return [row[0] for row in rows.fetchall()]

    def table(self, name: str) -> Node:
        """Return the node of a table by its name, which is nothing but a name."""
        node = self.select(f"FROM {name}")
        table: Node = node.get("from_table") or {}
        plain = {**node, "from_table": None}
        if table.get("type") != "BASE_TABLE" or table.get("sample") or table["alias"] or plain != self._plain:
            raise StatementNotAllowed("The name of a table was expected, and nothing else.")
        return table

    @cached_property
    def _plain(self) -> Node:
        return {**self.select("FROM t"), "from_table": None}

    def texts(self, frame: Any) -> list[dict[str, Any]]:
        """Return the rows of a frame with their values as DuckDB writes them."""
        cursor = self._database.cursor()
        cursor.register("frame", frame.to_arrow())
        rows = cursor.execute("SELECT CAST(COLUMNS(*) AS VARCHAR) FROM frame").fetchall()
        return [dict(zip(frame.columns, row, strict=True)) for row in rows]

    def _call(self, sql: str, argument: str) -> dict[str, Any]:
        row = self._database.cursor().execute(sql, [argument]).fetchone()
        answer: dict[str, Any] = json.loads(row[0]) if row else {}
        return answer


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


def with_path(table: Node, path: tuple[str, ...]) -> Node:
    """Return a table in FROM under its full name."""
    catalog, schema, name = path
    full = {
        **table,
        "catalog_name": catalog,
        "schema_name": schema,
        "table_name": name,
        "alias": table["alias"] or name,
    }
    return {**full, "qualified_name": {"path": list(path)}} if "qualified_name" in table else full


def arguments(function: Node) -> list[tuple[str, Node]]:
    """Return the arguments of a function with their names, empty for those given by position."""
    if "arguments" in function:
        return [(item["name"], item["expression"]) for item in function["arguments"]]
    return [(child.get("alias", ""), child) for child in function.get("children", [])]


def with_arguments(call: Node, values: list[Node]) -> Node:
    """Return a call with these expressions for its arguments."""
    if "arguments" in call:
        pairs = zip(call["arguments"], values, strict=True)
        return {**call, "arguments": [{**argument, "expression": value} for argument, value in pairs]}
    return {**call, "children": values}


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
    value = entry["value"]
    query: Node = value["query_node"] if "query_node" in value else value["query"]["node"]
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


def pinned(node: Any, names: frozenset[str]) -> Any:
    """Return a tree that calls functions of these names by their full names: a user's macro may have the short one."""
    if isinstance(node, list):
        return [pinned(item, names) for item in node]
    if not isinstance(node, dict):
        return node
    copy = {name: pinned(item, names) for name, item in node.items()}
    if copy.get("class") == "FUNCTION" and fold(copy["function_name"]) in names:
        copy |= {"catalog": "system", "schema": "main", "is_operator": False}
        if "qualified_name" in copy:
            copy["qualified_name"] = {"path": ["system", "main", copy["function_name"]]}
    return copy


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


def tried(node: Node) -> Node:
    """Return an expression that is null for a row where it would fail, and whose texts stay short.

    No TRY catches that memory is exhausted: what makes texts longer is cut each time, also from query to query.
    """
    inner = {**replaced(node, _cut), "alias": ""}
    return {"class": "OPERATOR", "type": "OPERATOR_TRY", "alias": node.get("alias", ""), "children": [inner]}


def _cut(node: Node) -> Node | None:
    if node.get("class") != "FUNCTION" or fold(node["function_name"]) not in GROWING:
        return None
    inner = with_arguments(node, [replaced(child, _cut) for _, child in arguments(node)])
    cut = _slice()
    return with_arguments(cut, [{**inner, "alias": ""}, *(own for _, own in arguments(cut)[1:])])


@lru_cache(maxsize=1)
def _slice() -> Node:
    """Return a call that cuts a text or a list to a length."""
    node: Node = without_places(Parser().expression(f"array_slice(x, 1, {_LONGEST})"))
    return node


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
