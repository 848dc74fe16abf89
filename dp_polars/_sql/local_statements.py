"""The local model on a guarded connection: two statements of their own, since neither is an aggregate.

`SELECT dp_randomized_response(vote, epsilon := 1.0) FROM votes` returns a response of each unit of a private table, and
is charged. `FROM dp_estimate_frequencies('responses', 'vote', epsilon := 1.0)` reads a public table, and is not. Both
stand alone: a WHERE below a response would change how many there are, which is not hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from dp_polars._engines.duckdb.rows import TableColumn
from dp_polars._local.methods import ResponseQuestion, response_question
from dp_polars._local.plan import ResponsePlan
from dp_polars._session.releases import release_key
from dp_polars._sql.aggregate_calls import constant_of
from dp_polars._sql.answers import view_of
from dp_polars._sql.catalog import Catalog
from dp_polars._sql.questions import SqlQuestion
from dp_polars._sql.relations import select_node
from dp_polars._sql.statement import cut
from dp_polars._sql.syntax_tree import (
    Node,
    arguments,
    column,
    fold,
    parameters_of,
    path_of,
    place,
    with_arguments,
)
from dp_polars.errors import InvalidParameterError, StatementNotAllowed
from dp_polars.mechanisms.frequencies import estimate_frequencies

if TYPE_CHECKING:
    from dp_polars._sql.connection import GuardedConnection

RESPONSE, ESTIMATE = "dp_randomized_response", "dp_estimate_frequencies"
_RESPONSE_WORDS = ("epsilon", "categories", "share", "rho", "resample", "fresh")
_ESTIMATE_WORDS = ("by", "epsilon", "resample", "categories", "confidence", "nonnegative")

_ALONE = (
    "Functions of the local model stand alone on a guarded connection: SELECT dp_randomized_response(vote, epsilon := "
    "1.0) FROM votes, with nothing else, of a private table; SELECT * FROM dp_estimate_frequencies('responses', 'vote',"
    " epsilon := 1.0) of a public one. Elsewhere: df.dp.randomized_response, dp.estimate_frequencies and dp.register."
)


def is_local(query: str) -> bool:
    """Whether a text names a function of the local model; what it says is then read from its tree."""
    return isinstance(query, str) and any(name in fold(query) for name in (RESPONSE, ESTIMATE))


@dataclass(frozen=True)
class LocalStatement:
    """A statement of the local model: its answer, and its plan if it has one."""

    answer: Callable[[], pl.DataFrame]
    plan: ResponsePlan | None


def local_statement(
    guard: GuardedConnection, query: str, parameters: dict[str, Any], options: dict[str, Any]
) -> LocalStatement | None:
    """Return what a statement of the local model means; None if it is no such statement."""
    node = guard._parser.select(query)
    found = _calls(node)
    if not found:
        return None
    unused = sorted(set(parameters) - set(parameters_of(node)))
    if unused:
        raise InvalidParameterError(f"The statement has no parameter {', '.join(unused)}.")
    reader = _Reader(guard, query, parameters)
    item, table = node.get("select_list", [{}])[0], node.get("from_table", {})
    if len(found) == 1 and _plain(node, guard):
        own = item["class"] == "FUNCTION" and table["type"] == "BASE_TABLE"
        if found[0] is item and own and fold(item["function_name"]) == RESPONSE:
            return reader.responses(node, options)
        if found[0] is table.get("function") and item["class"] == "STAR" and not options:
            return reader.estimate(table["function"])
    raise reader.refuse(found[0], _ALONE)


def _calls(node: Any) -> list[Node]:
    """Return all calls of the local model in a tree, wherever they are."""
    if isinstance(node, list):
        return [one for item in node for one in _calls(item)]
    if not isinstance(node, dict):
        return []
    name = node.get("function_name")
    own = [node] if isinstance(name, str) and fold(name) in (RESPONSE, ESTIMATE) else []
    return own + [one for item in node.values() for one in _calls(item)]


def _plain(node: Node, guard: GuardedConnection) -> bool:
    """Whether a query is SELECT one item FROM a table or function, and nothing else."""
    if node["type"] != "SELECT_NODE" or len(node["select_list"]) != 1:
        return False
    table = node["from_table"]
    if table["type"] not in ("BASE_TABLE", "TABLE_FUNCTION") or table.get("sample"):
        return False
    bare = guard._parser.select("SELECT 1 FROM t")
    same = {"select_list": None, "from_table": None}
    return {**node, **same} == {**bare, **same}


class _Reader:
    def __init__(self, guard: GuardedConnection, sql: str, parameters: dict[str, Any]) -> None:
        self._guard, self._sql, self._parameters = guard, sql, parameters
        self._catalog = Catalog(guard, parameters)

    def refuse(self, node: Node, reason: str) -> StatementNotAllowed:
        return StatementNotAllowed(reason + place(node, self._sql))

    def _said(self, call: Node, given: int, words: tuple[str, ...]) -> tuple[list[Node], dict[str, Any]]:
        """Return what a call is about (its first arguments), and its options by name; some may be by position."""
        name = fold(call["function_name"])
        if any(call.get(part) for part in ("distinct", "filter", "schema", "catalog")) or (
            (call.get("order_bys") or {}).get("orders")
        ):
            raise self.refuse(call, f"{name} takes neither DISTINCT, FILTER nor ORDER BY, and has no other name.")
        about: list[Node] = []
        said: dict[str, Any] = {}
        for option, child in arguments(call):
            if not option and len(about) < given and not said:
                about.append(child)
                continue
            word = fold(option) if option else next((one for one in words if one not in said), "")
            if word not in words or word in said:
                raise self.refuse(child, f"{name} has no option {option or 'here'}. There are {', '.join(words)}.")
            said[word] = constant_of(child, self._guard._parser, self._parameters, self.refuse)
        if len(about) < given:
            raise self.refuse(call, f"{name} needs {'a column' if given == 1 else 'a table and a column, as texts'}.")
        return about, said

    # ------------------------------------------------------------------ responses

    def responses(self, node: Node, options: dict[str, Any]) -> LocalStatement:
        """Return the responses of the units of a private table."""
        call, guard = node["select_list"][0], self._guard
        (value,), said = self._said(call, 1, _RESPONSE_WORDS)
        unknown = sorted(set(options) - set(_RESPONSE_WORDS))
        if unknown:
            raise InvalidParameterError(
                f"{RESPONSE} has no option {unknown[0]}. There are {', '.join(_RESPONSE_WORDS)}."
            )
        if value["class"] == "STAR":
            raise self.refuse(call, f"{RESPONSE} needs a column.")
        known = self._catalog.table(path_of(node["from_table"]))
        if known is not None and known.public:
            raise self.refuse(call, f"{RESPONSE} is for private tables; this one is public.")
        if known is not None and known.is_view:
            raise self.refuse(
                call, "A view may leave rows out, and how many are left is not hidden; ask the table itself."
            )
        question = self._question(node, value)
        (name,) = question.value_names
        view = view_of(question, guard._session, "SQL table")
        twice = sorted(set(options) & set(said))
        if twice:
            raise InvalidParameterError(f"{twice[0]} is said in the statement and beside it; say it once.")
        words = {**options, **said}
        categories, resample = words.pop("categories", None), words.pop("resample", None)
        planned = response_question(view, words, column=name, categories=categories, resample=resample)  # type: ignore[arg-type]
        shown = call.get("alias") or RESPONSE
        return LocalStatement(lambda: self._released(planned, question).rename({name: shown}), planned.plan)

    def _question(self, node: Node, value: Node) -> SqlQuestion:
        """Return the question for units and values: as that of any other aggregate of the column, checked as it is."""
        aggregate = with_arguments(self._guard._parser.expression("dp_count_distinct(x)"), [{**value, "alias": ""}])
        parts = cut(
            {**node, "select_list": [aggregate]}, self._sql, self._guard._parser, self._catalog, self._parameters
        )
        return parts.aggregations[0].questions[0]

    def _released(self, planned: ResponseQuestion, question: SqlQuestion) -> pl.DataFrame:
        def name() -> bytes:
            return release_key(planned.plan.fingerprint(), self._catalog.source(question.sources))

        try:
            release = planned.release(name)
            self._guard._paid = (release,)
            return release.frame
        finally:
            self._catalog.close()

    # ------------------------------------------------------------------ estimates

    def estimate(self, call: Node) -> LocalStatement:
        """Return the frequencies behind the responses of a public table."""
        about, said = self._said(call, 2, _ESTIMATE_WORDS)
        parser = self._guard._parser
        table, wanted = (constant_of(one, parser, self._parameters, self.refuse) for one in about)
        if not isinstance(table, str) or not isinstance(wanted, str):
            raise self.refuse(call, f"{ESTIMATE} takes the names of a table and a column, as texts.")
        by = said.pop("by", None) or []
        names = [one.strip() for one in by.split(",")] if isinstance(by, str) else [str(one) for one in by]
        source = parser.table(table)
        known = self._catalog.table(path_of(source))
        if known is None or not known.public:
            raise self.refuse(
                call,
                f"{ESTIMATE} reads public tables, and {table} is none. If its rows are responses, which protect "
                f"themselves, declare it: con.public('{table}').",
            )
        held = {fold(name): name for name in known.columns}
        missing = [name for name in (wanted, *names) if fold(name) not in held]
        if missing:
            raise self.refuse(call, f"{table} has no column {', '.join(missing)}; it has {', '.join(known.columns)}.")
        wanted, names = held[fold(wanted)], [held[fold(name)] for name in names]
        text = parser.text(select_node([column(name) for name in (wanted, *names)], source, None))
        own = known.columns[wanted]

        def answer() -> pl.DataFrame:
            read = pl.DataFrame(self._guard._answer(text, {}, {}))
            if isinstance(own, TableColumn) and isinstance(own.dtype, pl.Enum):
                read = read.with_columns(pl.col(wanted).cast(pl.String).cast(own.dtype))
            return estimate_frequencies(read, wanted, by=names or None, **said)

        return LocalStatement(answer, None)


def plan_of_local(statement: LocalStatement) -> ResponsePlan:
    """Return the plan of a statement, or say that it has none."""
    if statement.plan is None:
        raise InvalidParameterError(f"{ESTIMATE} reads a public table and costs nothing: it has no plan.")
    return statement.plan
