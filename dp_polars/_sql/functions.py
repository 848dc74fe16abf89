"""`dp.register`: private aggregates as functions on a user's own DuckDB connection.

A table macro asks one Python function, which runs the private question and returns the released rows. DuckDB calls that
function as often as it likes (for each `repr`, each reference, each outer row of a correlated subquery): the answer to
the same words is kept, so it is the same rows and costs nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl

from dp_polars._aggregates.base import Aggregate
from dp_polars._session.session import Session
from dp_polars._sql.allowed_functions import AGGREGATES, CHOICES, ChoiceKind
from dp_polars._sql.catalog import Catalog
from dp_polars._sql.connection import GuardedConnection
from dp_polars._sql.local_functions import NAMES as LOCAL
from dp_polars._sql.local_functions import put_local
from dp_polars._sql.relations import select_node
from dp_polars._sql.syntax_tree import Node, column, fold, path_of, with_arguments
from dp_polars._sql.templates import sql_text
from dp_polars._sql.types import sql_type
from dp_polars.errors import InvalidParameterError

_BOUNDS = (("lower", "upper"), ("lower", "upper", "second_lower", "second_upper"))  # for one column, for two
_CHOICE = ("candidates", "score", "value", "lower", "upper")


@dataclass(frozen=True)
class _Shape:
    """What a question looks like as a table function: the type of its answer, its arguments by position and by name."""

    type: str
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Function:
    """A table function and the column of its answer."""

    answer: str
    shape: _Shape

    def text(self, name: str) -> str:
        """Return the macro that asks it."""
        arguments, options = self.shape.arguments, self.shape.options
        given = [f'"{word}"' for word in arguments] + [f'"{word}" := NULL' for word in options]
        passed = [f"'{word}': \"{word}\"," for word in (*arguments, *options)]
        return sql_text("aggregate").format(
            function=name,
            arguments="".join(f"{word}, " for word in given),
            passed=" ".join(passed),
            answer=self.answer,
            type=self.shape.type,
            names=sql_text("names"),
        )


def _shape_of(aggregate: type[Aggregate]) -> _Shape:
    """Return an aggregate as a table function: columns and bounds by position, options by name."""
    if not aggregate.bounded and aggregate.sql_usage is not None:  # a count, whose column may be left out
        return _Shape(aggregate.sql_type, options=aggregate.columns)
    bounds = _BOUNDS[len(aggregate.columns) - 1] if aggregate.bounded else ()
    named = tuple(option for option in aggregate.options if option not in aggregate.sql_positional)
    return _Shape(aggregate.sql_type, (*aggregate.columns, *aggregate.sql_positional, *bounds), named)


_CHOICE_SHAPES: dict[ChoiceKind, _Shape] = {
    "noisy_max": _Shape("VARCHAR", ("column",), _CHOICE),
    "noisy_min": _Shape("VARCHAR", ("column",), _CHOICE),
    "top_k": _Shape("VARCHAR[]", ("column", "k"), _CHOICE),
}
_SHAPES = {name: _shape_of(one) for name, one in AGGREGATES.items()}
_SHAPES |= {name: _CHOICE_SHAPES[kind] for name, kind in CHOICES.items()}
_FUNCTIONS = {name: _Function(name.removeprefix("dp_"), shape) for name, shape in _SHAPES.items()}
"""The same names as in statements, one function each."""
_BUDGET = "STRUCT(used DOUBLE, remaining DOUBLE, epsilon DOUBLE, delta DOUBLE, rho DOUBLE, releases BIGINT)"


class Functions:
    """The functions of one registration; its guard says which tables are public and whose rows are whose."""

    def __init__(self, connection: Any, session: Session) -> None:
        self.guard = GuardedConnection(connection, session)
        self._session = session
        self._answers: dict[tuple[str, int], tuple[str, Callable[[], bytes], bytes]] = {}
        self._lock = threading.Lock()

    def ask(self, words: str) -> str:
        """Return the released rows of a question as JSON; the same words, the same rows."""
        key = (words, self.guard._declared)
        with self._lock:
            if key in self._answers:
                text, source, state = self._answers[key]
                if source() == state:
                    return text
            self._answers[key] = self._answered(json.loads(words))
            return self._answers[key][0]

    def _answered(self, words: dict[str, Any]) -> tuple[str, Callable[[], bytes], bytes]:
        """Return the rows, and what names their source: now, and when they were made."""
        function = words.pop("function")
        answer = _FUNCTIONS[function].answer
        keys = list(dict.fromkeys(words.pop("by")))
        if function in CHOICES and words["value"] is None and (words["lower"], words["upper"]) != (None, None):
            raise InvalidParameterError(f"{function} has bounds of what is summed: say value := 'x' too.")
        node = self._select(function, words, keys)
        if "lower" in words:
            words["bounds"] = (words.pop("lower"), words.pop("upper"))
        if "second_lower" in words:
            words["bounds"] = (words["bounds"], (words.pop("second_lower"), words.pop("second_upper")))
        if words.get("bounds") in ((None, None), ((None, None), (None, None))):
            del words["bounds"]
        if any(isinstance(bound, str) for bound in words.get("bounds", ())):
            raise InvalidParameterError("Functions of dp.register answer with numbers; ask dates through dp.connect.")
        if isinstance(words.get("quantile"), list):
            raise InvalidParameterError("dp_quantile answers one quantile; several are asked through dp.connect.")
        if function in CHOICES and words.pop("confidence", None) is not None:
            raise InvalidParameterError(f"{function} chooses a value; there is no interval for it.")
        if function == "dp_histogram" and words.get("confidence") is not None:
            raise InvalidParameterError("dp_histogram has no interval here; ask df.dp.histogram for one.")
        if words.get("keys") is not None and keys:
            words["keys"] = self._typed_keys(self._types(node["from_table"], keys), keys, words["keys"])
        options = {name: value for name, value in words.items() if value is not None}
        frame, name, source = self.guard._released(node, options)
        names = {"dp_answer_0": answer, f"{name}_low": f"{answer}_low", f"{name}_high": f"{answer}_high"}
        texts = self.guard._parser.texts(frame.rename(names, strict=False))
        return json.dumps(texts), source, source()

    def _select(self, function: str, words: dict[str, Any], keys: list[str]) -> Node:
        """Return the SELECT that the words mean. Texts are parsed on their own and never pasted into others."""
        parse = self.guard._parser
        table = parse.table(_text(words.pop("source"), "the table"))
        answer = _FUNCTIONS[function].answer
        types = self._types(table, keys)
        for key, kind in zip(keys, types.values(), strict=bool(types)):
            if fold(key) in {answer, f"{answer}_low", f"{answer}_high"}:
                raise InvalidParameterError(f"{key} is the name of a key and of the answer; rename it in a view.")
            if isinstance(kind, str):
                raise InvalidParameterError(f"{key} has the type {kind}, which can't be a key here.")
        where = words.pop("where", None)
        given = [words.pop(name, None) for name in ("column", "first", "second", "value") if name in words]
        values = [parse.expression(_text(value, "the column")) for value in given if value is not None]
        call = parse.expression(f"{function}({', '.join('x' * len(values))})")
        call = with_arguments(call, values)
        items: list[Node] = [column(name) for name in keys]
        node = select_node(
            [*items, call], table, parse.expression(_text(where, "where")) if where is not None else None
        )
        return {**node, "group_expressions": items, "group_sets": [list(range(len(items)))] if items else []}

    def _types(self, table: Node, keys: list[str]) -> dict[str, pl.DataType | str]:
        """Return the types of key columns, or say which one there is not."""
        found = Catalog(self.guard).table(path_of(table))
        if found is None:
            return {}  # it is refused where the question is read
        known = {fold(name): one if isinstance(one, str) else one.dtype for name, one in found.columns.items()}
        for key in keys:
            if fold(key) not in known:
                raise InvalidParameterError(
                    f"by := names columns of the table, and {key} is none of {', '.join(known)}; make an expression a "
                    "column of a view, or ask through dp.connect."
                )
        return {fold(key): known[fold(key)] for key in keys}

    def _typed_keys(self, types: dict[str, pl.DataType | str], keys: list[str], given: Any) -> Any:
        """Return public keys, which came as JSON, in the types of the table's columns."""
        rows = given if isinstance(given, list) else [given]
        if len(keys) == 1:
            values = [row.get(keys[0]) if isinstance(row, dict) else row for row in rows]
            return self._in_type(values, keys[0], types)
        if not all(isinstance(row, dict) and set(row) == set(keys) for row in rows):
            raise InvalidParameterError(
                f"keys for several columns is a list of structs with {', '.join(keys)}: keys := [{{'{keys[0]}': ...}}]."
            )
        typed = [self._in_type([row[key] for row in rows], key, types) for key in keys]
        return list(zip(*typed, strict=True))

    def _in_type(self, values: list[Any], key: str, types: dict[str, pl.DataType | str]) -> list[Any]:
        dtype = types[fold(key)]
        kind = None if isinstance(dtype, str) else sql_type(dtype)
        if kind is None:  # texts and values of an Enum
            return [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
        try:
            return self.guard._parser.typed(values, kind)
        except duckdb.Error:
            raise InvalidParameterError(f"keys can't be read as {key}: {kind}.") from None

    def budget(self) -> dict[str, Any]:
        """Return what is used and left of the session."""
        remaining = self._session.remaining
        return {
            "used": self._session.spent.share,
            "remaining": remaining.share,
            "epsilon": remaining.epsilon,
            "delta": remaining.delta,
            "rho": remaining.rho,
            "releases": len(self._session.releases),
        }


def _remove(connection: Any) -> None:
    """Take the Python functions off a connection, if it has them and is still open."""
    for name in ("dp_ask", "dp_budget", *LOCAL):
        with contextlib.suppress(Exception):  # DuckDB has no way to ask whether a function was made from Python
            connection.remove_function(name)


def _remove_from(reference: weakref.ref[Any]) -> None:
    connection = reference()
    if connection is not None:
        _remove(connection)


def _text(given: Any, what: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise InvalidParameterError(f"{what} is given as text.")
    return given


def register(connection: Any, session: Session) -> GuardedConnection:
    """Put `dp.dp_count`, `dp.dp_sum`, `dp.dp_median` and all other private aggregates on a DuckDB connection.

    Parameters
    ----------
    connection
        The user's open DuckDB connection; every cursor and tool that holds it can call the functions.
    session
        The session that pays and says whose rows are.

    Returns
    -------
    GuardedConnection
        The guard behind the functions: `.public(...)` and `.private(...)` declare tables, `.sql(...)` asks too.

    Examples
    --------
    >>> import duckdb, dp_polars as dp
    >>> con = duckdb.connect()
    >>> con = con.execute("CREATE TABLE visits AS SELECT i % 50 AS user_id, i % 3 AS kind FROM range(200) t(i)")
    >>> guard = dp.register(con, dp.Session(epsilon=1.0, unit="user_id", max_rows_per_group=5))
    >>> con.sql("FROM dp.dp_count('visits', by := 'kind', keys := [0, 1, 2], epsilon := 0.5)").columns
    ['kind', 'count']
    """
    functions = Functions(connection, session)
    _remove(connection)
    atexit.register(
        _remove_from, weakref.ref(connection)
    )  # DuckDB 2.0 complains at exit about connections that still have some
    connection.create_function("dp_ask", functions.ask, ["VARCHAR"], "VARCHAR", side_effects=True)
    connection.create_function("dp_budget", functions.budget, [], _BUDGET, side_effects=True)
    connection.execute(sql_text("attach"))
    put_local(connection)
    for name, function in _FUNCTIONS.items():
        connection.execute(function.text(name))
    return functions.guard
