"""`dp.register`: private aggregates as functions on a user's own DuckDB connection, and the local model beside them.

A table macro calls one Python function, which releases the private query and returns the released rows. DuckDB calls
that function as often as it likes: for each `repr`, each reference and each outer row of a correlated subquery. The
answer to the same call is kept, so it always has the same rows and costs nothing more.

The functions of the local model are not charged: whoever holds the connection randomizes values that it shows anyway.
`df.dp.randomized_response` charges a session.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl

from dp_polars._aggregates.base import Aggregate, Shape
from dp_polars._numbers import epsilon_of
from dp_polars._sampling import SYSTEM_BITS
from dp_polars._session.session import Session
from dp_polars._sql.allowed_functions import AGGREGATES, CHOICES, ChoiceKind
from dp_polars._sql.analysis import analyse
from dp_polars._sql.catalog import Catalog, Database
from dp_polars._sql.connection import GuardedConnection
from dp_polars._sql.public_facts import BUDGET_TYPE, budget_of
from dp_polars._sql.queries import plan_statement
from dp_polars._sql.relations import Context
from dp_polars._sql.scope import name_of
from dp_polars._sql.syntax_tree import Node, Parser, fold, select_node, walk, with_arguments
from dp_polars._sql.types import sql_type
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.frequencies import estimate_frequencies
from dp_polars.mechanisms.randomized_response import Channel

_TEMPLATES = (Path(__file__).parent / "templates", Path(__file__).parents[2] / "sql")
"""Where the SQL templates are: in the installed package, or in `sql/` of the project."""


@cache
def sql_text(name: str) -> str:
    """Return a SQL template by its name."""
    for place in _TEMPLATES:
        path = place / f"{name}.sql"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise FileNotFoundError(f"dp_polars is installed without its SQL template {name}.sql.")


_BOUNDS = (("lower", "upper"), ("lower", "upper", "second_lower", "second_upper"))  # for one column, for two
_ENDS = ("_low", "_high", "_rank_error")
"""The suffixes of the columns that an interval adds."""
_CHOICE = ("candidates", "score", "value", "lower", "upper")


@dataclass(frozen=True)
class _Signature:
    """What a question looks like as a table function: the type of its answer, its arguments by position and by name."""

    type: str | None
    """The type of the answer; None for a choice, whose answer has the type of the column that it chooses from."""
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    ranked: bool = False
    """Whether its interval is about the rank of the answer, unless the option `interval` says otherwise."""
    several: bool = False
    """Whether a choice returns a list."""

    def shape(self, answer: str) -> str:
        """Return the column of the answer without rows, as an expression in SQL that gives the text of a SELECT."""
        if self.type is not None:
            return f"'NULL::{self.type} AS {answer}'"
        begin, end = ("[(", ")]") if self.several else ("(", ")")
        return f"""'{begin}' || coalesce("column"::VARCHAR, 'NULL') || '{end} AS {answer}'"""

    def ends(self, answer: str) -> str:
        """Return the columns of an interval in the same way."""
        values = f"', NULL::{self.type} AS {answer}_low, NULL::{self.type} AS {answer}_high'"
        rank = f"', NULL::BIGINT AS {answer}_rank_error'"
        if not self.ranked:
            return values if self.type is not None else "''"  # a choice refuses the option
        if "interval" not in self.options:
            return rank
        # As text, so that a wrong type is refused by the function itself.
        return f"CASE WHEN \"interval\"::VARCHAR = 'value' THEN {values} ELSE {rank} END"


@dataclass(frozen=True)
class _TableFunction:
    """A table function: the name of the same question in statements, the column of its answer, and its arguments."""

    sql_name: str
    shape: _Signature

    @property
    def answer(self) -> str:
        """The column of the answer, which is called as the function is."""
        return self.sql_name.removeprefix("dp_")

    def text(self) -> str:
        """Return the SQL that creates the function as a macro."""
        arguments, options = self.shape.arguments, self.shape.options
        given = [f'"{word}"' for word in arguments] + [f'"{word}" := NULL' for word in options]
        passed = [f"'{word}': \"{word}\"," for word in (*arguments, *options)]
        return sql_text("aggregate").format(
            function=self.answer,
            arguments="".join(f"{word}, " for word in given),
            passed=" ".join(passed),
            shape=self.shape.shape(self.answer),
            ends=self.shape.ends(self.answer),
            by=sql_text("by"),
        )


def _shape_of(aggregate: type[Aggregate]) -> _Signature:
    """Return an aggregate as a table function: columns and bounds by position, options by name."""
    if aggregate.columns_optional:
        return _Signature(aggregate.sql_type, options=aggregate.columns)
    bounds = _BOUNDS[len(aggregate.columns) - 1] if aggregate.bounded else ()
    named = tuple(option for option in aggregate.options if option not in aggregate.sql_positional)
    arguments = (*aggregate.columns, *aggregate.sql_positional, *bounds)
    return _Signature(aggregate.sql_type, arguments, named, aggregate.shape is Shape.RANK)


_CHOICE_SHAPES: dict[ChoiceKind, _Signature] = {
    "noisy_max": _Signature(None, ("column",), _CHOICE),
    "noisy_min": _Signature(None, ("column",), _CHOICE),
    "top_k": _Signature(None, ("column", "k"), _CHOICE, several=True),
}
_SHAPES = {name: _shape_of(aggregate) for name, aggregate in AGGREGATES.items()}
_SHAPES |= {name: _CHOICE_SHAPES[kind] for name, kind in CHOICES.items()}
_FUNCTIONS = {one.answer: one for one in (_TableFunction(name, shape) for name, shape in _SHAPES.items())}
"""The same names as in statements without `dp_`, which is the schema here, one function each."""


class Functions:
    """The private aggregates that are registered on one connection."""

    def __init__(self, database: Database, session: Session) -> None:
        self._database, self._session, self._parser = database, session, Parser()
        self._answers: dict[tuple[str, int], _KeptAnswer] = {}
        self._lock = threading.Lock()

    def ask(self, call: str) -> str:
        """Answer a call, given as JSON, with its released rows as JSON. The same call gets the same rows."""
        key = (call, self._database.declarations)
        with self._lock:
            kept = self._answers.get(key)
            if kept is None or kept.present_source() != kept.source:
                kept = self._answers[key] = self._answer(json.loads(call))
            return kept.rows

    def _answer(self, words: dict[str, Any]) -> _KeptAnswer:
        """Release the private query that a call asks for."""
        function = words.pop("function")
        name = f"dp.{function}"
        if _FUNCTIONS[function].sql_name in CHOICES:
            if words["value"] is None and (words["lower"], words["upper"]) != (None, None):
                raise InvalidParameterError(
                    f"The bounds of {name} are for the column that is summed: name it with value := 'x'."
                )
            if words.pop("confidence", None) is not None:
                raise InvalidParameterError(f"{name} chooses a value, which has no interval. Leave confidence out.")
        catalog = Catalog(self._database, self._session)
        source = self._parser.source(_text(words.pop("source"), "The table"))
        keys = _by(words.pop("by"), self._parser)
        node = self._select(function, source, words, keys)
        if "lower" in words:
            words["bounds"] = (words.pop("lower"), words.pop("upper"))
        if "second_lower" in words:
            words["bounds"] = (words["bounds"], (words.pop("second_lower"), words.pop("second_upper")))
        if words.get("bounds") in ((None, None), ((None, None), (None, None))):
            del words["bounds"]
        if any(isinstance(bound, str) for bound in words.get("bounds", ())):
            raise InvalidParameterError(
                "Functions of dp.register return numbers. For dates, use the same aggregate on a dp.connect connection."
            )
        if isinstance(words.get("quantile"), list):
            raise InvalidParameterError(
                "dp.quantile of dp.register returns one quantile. For several, use a dp.connect connection."
            )
        if function in ("histogram", "linear_regression") and words.get("confidence") is not None:
            raise InvalidParameterError(f"{name} has no interval here. Use df.dp.{function} for one.")
        analysis = analyse(node, Context("", {}, self._parser, catalog))
        ((aggregation, asked),) = [(one, query) for one in analysis.aggregations for query in one.queries]
        if words.get("keys") is not None and keys:
            types = dict(zip(keys, (asked.rows.schema[key] for key in asked.keys), strict=True))
            words["keys"] = self._public_keys(types, words["keys"])
        options = {word: value for word, value in words.items() if value is not None}
        planned = plan_statement(analysis, self._session, catalog, options)
        (query,) = planned.queries
        (frame,) = planned.release().values()
        ((own, released),) = query.names().items()
        names = {released: function, **{f"{own}{end}": f"{function}{end}" for end in _ENDS}}
        names |= dict(zip(aggregation.keys, map(fold, keys), strict=True))  # DuckDB takes the case of the table
        rows = json.dumps(self._parser.texts(frame.rename(names, strict=False)))
        return _KeptAnswer(rows, query.present_source, query.present_source())

    def _select(self, function: str, source: Node, words: dict[str, Any], keys: dict[str, Node]) -> Node:
        """Return the SELECT that a call means. Each text is parsed on its own and never pasted into another text."""
        for key in keys:
            if fold(key) in {function, *(f"{function}{end}" for end in _ENDS)}:
                raise InvalidParameterError(
                    f"{key} is both a key and the name of an answer column. Give the key another name: "
                    f"by := '{key} AS other'."
                )
        parse = self._parser.expression
        where = words.pop("where", None)
        given = [words.pop(name, None) for name in ("column", "first", "second", "value") if name in words]
        values = [parse(_text(value, "The column")) for value in given if value is not None]
        if any(value.get("class") == "STAR" for value in values):
            raise InvalidParameterError(
                f"{_FUNCTIONS[function].sql_name} needs a column, and * stands for all of them."
            )
        called = f"{_FUNCTIONS[function].sql_name}({', '.join('x' * len(values))})"
        items = list(keys.values())
        call = with_arguments(parse(called), values)
        node = select_node([*items, call], source, None if where is None else parse(_text(where, "where")))
        grouped = [{**item, "alias": ""} for item in items]
        return {**node, "group_expressions": grouped, "group_sets": [list(range(len(items)))] if items else []}

    def _public_keys(self, types: dict[str, pl.DataType], given: Any) -> Any:
        """Convert public keys, which came as JSON, to the types of the keys."""
        rows = given if isinstance(given, list) else [given]
        keys = list(types)
        if len(keys) == 1:
            values = [row.get(keys[0]) if isinstance(row, dict) else row for row in rows]
            return self._typed(values, keys[0], types[keys[0]])
        if not all(isinstance(row, dict) and set(row) == set(keys) for row in rows):
            raise InvalidParameterError(
                f"keys for several columns must be a list of structs with {', '.join(keys)}: "
                f"keys := [{{'{keys[0]}': ...}}]."
            )
        typed = [self._typed([row[key] for row in rows], key, types[key]) for key in keys]
        return list(zip(*typed, strict=True))

    def _typed(self, values: list[Any], key: str, dtype: pl.DataType) -> list[Any]:
        kind = sql_type(dtype)
        if kind is None:  # texts and values of an Enum
            return [_json_text(value) for value in values]
        try:
            return self._parser.typed(values, kind)
        except duckdb.Error:
            raise InvalidParameterError(f"keys can't be converted to the type of {key}, which is {kind}.") from None

    def budget(self) -> dict[str, Any]:
        """Return what the session has spent and what remains."""
        return budget_of(self._session)


@dataclass(frozen=True)
class _KeptAnswer:
    """The answer to a call, and the state of its table before and now. A changed table needs a new answer."""

    rows: str
    present_source: Callable[[], bytes]
    source: bytes


def _by(given: Any, parser: Parser) -> dict[str, Node]:
    """Return the expressions of `by` by the names of their columns."""
    texts = given if isinstance(given, list) else [given or ""]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidParameterError("by := must be text, or a list of texts: by := 'region, month(day) AS month'.")
    found: dict[str, Node] = {}
    for item in parser.items(", ".join(texts)):
        if item["class"] == "STAR" or not any(one["class"] == "COLUMN_REF" for one in walk(item)):
            raise InvalidParameterError("by := must list columns, or expressions of columns.")
        name = name_of(item, "")
        if not name:
            raise InvalidParameterError("Name each expression of by := that is no column: by := 'month(day) AS month'.")
        if fold(name) in map(fold, found):
            raise InvalidParameterError(f"by := has two columns {name}. Name one of them: by := '... AS other'.")
        found[name] = item
    return found


def _text(given: Any, what: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise InvalidParameterError(f"{what} must be given as text.")
    return given


def _json_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


# ---------------------------------------------------------------------- the local model

_LOCAL = ("dp_respond_boolean", "dp_respond", "dp_frequencies")
"""The Python functions of the local model."""
_BOOLEANS = [False, True, None]


def _register_local(connection: Any) -> None:
    """Put `dp.randomized_response` and `dp.estimate_frequencies` on a connection that has the catalog dp."""
    # With side effects DuckDB neither computes a call with constant arguments once nor merges calls of several rows.
    varying: dict[str, Any] = {"side_effects": True, "null_handling": "special", "type": "arrow"}
    connection.create_function(_LOCAL[0], _respond_boolean, ["BOOLEAN", "DOUBLE"], "BOOLEAN", **varying)
    connection.create_function(_LOCAL[1], _respond_place, ["INTEGER", "INTEGER", "DOUBLE"], "INTEGER", **varying)
    connection.create_function(_LOCAL[2], _frequencies, ["VARCHAR"], "VARCHAR", side_effects=True)
    connection.execute(sql_text("randomized_response"))
    connection.execute(sql_text("frequencies").format(names=sql_text("names")))


def _respond_boolean(values: Any, epsilons: Any) -> Any:
    """Randomize a column of Booleans. Null is a category too, because whether someone answered is private."""
    codes = np.array([_BOOLEANS.index(value) for value in values.to_pylist()], np.int64)
    answers = _responses(codes, np.full(len(codes), len(_BOOLEANS)), epsilons)
    return pl.Series([_BOOLEANS[code] for code in answers.tolist()], dtype=pl.Boolean).to_arrow()


def _respond_place(places: Any, sizes: Any, epsilons: Any) -> Any:
    """Randomize positions among categories, counted from 1. Null means a value that is not among the categories."""
    sizes = np.array([size or 0 for size in sizes.to_pylist()], np.int64)
    if (sizes < 2).any():
        raise InvalidParameterError("categories must be at least two different values: [..., ...].")
    codes = np.array([0 if place is None else place for place in places.to_pylist()], np.int64) - 1
    return pl.Series(_responses(codes, sizes, epsilons) + 1).cast(pl.Int32).to_arrow()


def _responses(codes: Any, sizes: Any, epsilons: Any) -> Any:
    losses = epsilons.to_pylist()
    if any(loss is None for loss in losses):
        raise InvalidParameterError("dp.randomized_response needs an epsilon for every row.")
    answers = np.empty(len(codes), np.int64)
    given = np.array(losses, np.float64)
    for size, loss in sorted(set(zip(sizes.tolist(), losses, strict=True))):
        rows = (sizes == size) & (given == loss)
        channel = Channel(size=size, epsilon=epsilon_of(loss))
        answers[rows] = channel.respond_to_any(codes[rows], SYSTEM_BITS)
    return answers


def _frequencies(call: str) -> str:
    """Estimate frequencies from the counts of responses by group, from JSON to JSON. Values are DuckDB's texts."""
    said = json.loads(call, parse_float=str)
    rows, by = said["rows"] or [], [fold(name) for name in dict.fromkeys(said["by"])]
    names = {fold(name): name for row in rows[:1] for name in row}
    missing = [name for name in by if rows and name not in names]
    if missing:
        raise InvalidParameterError(f"by := must name columns of the table, and {', '.join(missing)} is none of them.")
    columns = {name: [_json_text(row[names[name]]) for row in rows] for name in by}
    kinds = {**dict.fromkeys(by, pl.String), "dp_response": pl.String}
    texts = pl.DataFrame({**columns, "dp_response": [_json_text(row["dp_response"]) for row in rows]}, schema=kinds)
    counts = [row["dp_responses"] for row in rows]
    responses = texts[np.repeat(np.arange(len(rows)), counts)]
    frame = estimate_frequencies(
        responses,
        "dp_response",
        by=by or None,
        epsilon=_number(said["epsilon"]),
        resample=_number(said["resample"]),
        categories=_categories(said["categories"], said["type"]),
        confidence=_number(said["confidence"]),
        nonnegative=said["nonnegative"] or False,
    )
    frame = frame.rename({"category": "dp_response", **{name: names[name] for name in by}})
    return json.dumps([{name: _json_text(value) for name, value in row.items()} for row in frame.to_dicts()])


def _categories(given: Any, kind: str) -> Any:
    """Return categories as texts of the column's type. By default BOOLEAN and ENUM have all their values and null."""
    if given is None:
        values = ["false", "true"] if kind == "BOOLEAN" else _enum_values(kind)
        return None if values is None else [*values, None]
    if not isinstance(given, list):
        raise InvalidParameterError("categories must be a list: categories := ['a', 'b'].")
    texts = f"SELECT CAST(CAST(unnest($texts::VARCHAR[]) AS {kind}) AS VARCHAR)"
    try:
        rows = duckdb.connect(":memory:").execute(texts, {"texts": [_json_text(value) for value in given]}).fetchall()
    except duckdb.Error:
        raise InvalidParameterError(f"categories can't be converted to {kind}.") from None
    return [row[0] for row in rows]


def _enum_values(kind: str) -> list[str] | None:
    """Return the values of an ENUM type by the name that DuckDB writes, or None for any other type."""
    if not kind.upper().startswith("ENUM("):
        return None
    rows = duckdb.connect(":memory:").execute(f"SELECT unnest(enum_range(NULL::{kind}))::VARCHAR").fetchall()
    return [row[0] for row in rows]


def _number(value: Any) -> Fraction | None:
    try:
        return None if value is None else Fraction(str(value))
    except ValueError:
        raise InvalidParameterError("epsilon, resample and confidence must be numbers.") from None


# ---------------------------------------------------------------------- registration


def _remove(connection: Any) -> None:
    """Remove the Python functions from a connection, if it has them and is still open."""
    for name in ("dp_ask", "dp_left", *_LOCAL):
        with contextlib.suppress(Exception):  # DuckDB can't tell whether a function was created from Python
            connection.remove_function(name)


def _remove_from(reference: weakref.ref[Any]) -> None:
    connection = reference()
    if connection is not None:
        _remove(connection)


def register(connection: Any, session: Session) -> GuardedConnection:
    """Put `dp.count`, `dp.sum`, `dp.median` and all other private aggregates on a DuckDB connection.

    Parameters
    ----------
    connection
        The user's open DuckDB connection. Every cursor and every tool that holds it can call the functions.
    session
        The session that is charged, and whose terms name the unit.

    Returns
    -------
    GuardedConnection
        A guarded connection to the same database. Its `.public(...)` and `.private(...)` declare tables for the
        functions too.

    Examples
    --------
    >>> import duckdb, dp_polars as dp
    >>> con = duckdb.connect()
    >>> con = con.execute("CREATE TABLE visits AS SELECT i % 50 AS user_id, i % 3 AS kind FROM range(200) t(i)")
    >>> guard = dp.register(con, dp.Session(epsilon=1.0, unit="user_id", max_rows_per_group=5))
    >>> con.sql("FROM dp.count('visits', by := 'kind', keys := [0, 1, 2], epsilon := 0.5)").columns
    ['kind', 'count']
    """
    database = Database(connection)
    functions = Functions(database, session)
    _check_name(connection)
    _remove(connection)
    # DuckDB 2.0 complains at exit about connections that still have Python functions.
    atexit.register(_remove_from, weakref.ref(connection))
    connection.create_function("dp_ask", functions.ask, ["VARCHAR"], "VARCHAR", side_effects=True)
    connection.create_function("dp_left", functions.budget, [], BUDGET_TYPE, side_effects=True)
    connection.execute(sql_text("attach"))
    connection.execute(sql_text("budget"))
    _register_local(connection)
    for function in _FUNCTIONS.values():
        connection.execute(function.text())
    return GuardedConnection(database, session)


def _check_name(connection: Any) -> None:
    """Refuse a connection on which `dp` means something else already: functions would be written into it."""
    taken = (
        "SELECT 1 FROM system.main.duckdb_databases() WHERE lower(database_name) = 'dp' AND path IS NOT NULL "
        "UNION ALL SELECT 1 FROM system.main.duckdb_schemas() WHERE lower(schema_name) = 'dp' AND NOT internal"
    )
    if connection.cursor().execute(taken).fetchall():
        raise InvalidParameterError(
            "dp.register puts its functions into a catalog dp, and this connection has a database or a schema of that "
            "name. Rename it, or attach it under another name."
        )
