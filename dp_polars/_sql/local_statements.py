"""The two statements of the local model on a guarded connection.

`SELECT dp_randomized_response(vote, epsilon := 1.0) FROM votes` returns one randomized response per unit of a private
table and is charged. `FROM dp_estimate_frequencies('responses', 'vote', epsilon := 1.0)` reads a public table and costs
nothing. Neither may be part of a larger statement: a WHERE below the responses would change their number, which is
released without noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from dp_polars._engines.duckdb.rows import TableColumn
from dp_polars._local.methods import ResponseQuestion, response_question
from dp_polars._local.plan import ResponsePlan
from dp_polars._session.releases import Release
from dp_polars._session.session import Session
from dp_polars._sql.aggregate_calls import constant_of
from dp_polars._sql.analysis import SqlQuery, analyse
from dp_polars._sql.queries import view_of
from dp_polars._sql.relations import Context
from dp_polars._sql.syntax_tree import (
    Node,
    Parser,
    arguments,
    column,
    fold,
    path_of,
    select_node,
    with_arguments,
)
from dp_polars.errors import InvalidParameterError, StatementNotAllowed
from dp_polars.mechanisms.frequencies import estimate_frequencies

RESPONSE, ESTIMATE = "dp_randomized_response", "dp_estimate_frequencies"
_RESPONSE_OPTIONS = ("epsilon", "categories", "share", "rho", "resample", "fresh")
_ESTIMATE_OPTIONS = ("by", "epsilon", "resample", "categories", "confidence", "nonnegative")

_ALONE = (
    "On a guarded connection a function of the local model must be the whole statement: SELECT "
    "dp_randomized_response(vote, epsilon := 1.0) FROM votes on a private table, or SELECT * FROM "
    "dp_estimate_frequencies('responses', 'vote', epsilon := 1.0) on a public one. For anything else use "
    "df.dp.randomized_response, dp.estimate_frequencies or dp.register."
)


def is_local(query: str) -> bool:
    """Return whether a text mentions a function of the local model. Its tree shows whether it calls one."""
    return isinstance(query, str) and any(name in fold(query) for name in (RESPONSE, ESTIMATE))


@dataclass(frozen=True)
class LocalStatement:
    """A planned statement of the local model."""

    plan: ResponsePlan | None
    """The plan of randomized responses; None for an estimate, which costs nothing."""
    answer: Callable[[], Any]
    """Runs the statement and returns its rows as an Arrow table."""
    releases: list[Release] = field(default_factory=list)
    """The releases behind the answer, new or stored, once `answer` has been called."""

    @property
    def plans(self) -> list[ResponsePlan]:
        """The plan, as a list."""
        if self.plan is None:
            raise InvalidParameterError(f"{ESTIMATE} reads a public table and costs nothing, so it has no plan.")
        return [self.plan]


def local_statement(node: Node, context: Context, session: Session, options: dict[str, Any]) -> LocalStatement | None:
    """Plan a statement of the local model, or return None if the statement calls no function of the local model."""
    found = _calls(node)
    if not found:
        return None
    planner = _LocalPlanner(context, session)
    item, table = node.get("select_list", [{}])[0], node.get("from_table", {})
    if len(found) == 1 and _is_plain(node, context.parser):
        reads_table = item["class"] == "FUNCTION" and table["type"] == "BASE_TABLE"
        if found[0] is item and reads_table and fold(item["function_name"]) == RESPONSE:
            return planner.responses(node, options)
        if found[0] is table.get("function") and item["class"] == "STAR" and not options:
            return planner.estimate(table["function"])
    raise context.refuse(found[0], _ALONE)


def _calls(node: Any) -> list[Node]:
    """Return all calls of functions of the local model in a tree."""
    if isinstance(node, list):
        return [call for item in node for call in _calls(item)]
    if not isinstance(node, dict):
        return []
    name = node.get("function_name")
    calls = [node] if isinstance(name, str) and fold(name) in (RESPONSE, ESTIMATE) else []
    return calls + [call for item in node.values() for call in _calls(item)]


def _is_plain(node: Node, parser: Parser) -> bool:
    """Return whether a query is SELECT with one item FROM one table or function, and has no other clause."""
    if node["type"] != "SELECT_NODE" or len(node["select_list"]) != 1:
        return False
    table = node["from_table"]
    if table["type"] not in ("BASE_TABLE", "TABLE_FUNCTION") or table.get("sample"):
        return False
    same = {"select_list": None, "from_table": None}
    return {**node, **same} == {**parser.select("SELECT 1 FROM t"), **same}


@dataclass(frozen=True)
class _LocalPlanner:
    context: Context
    session: Session

    def _refuse(self, node: Node, reason: str) -> StatementNotAllowed:
        return self.context.refuse(node, reason)

    def _constant(self, node: Node) -> Any:
        return constant_of(node, self.context.parser, self.context.parameters, self.context.refuse)

    def _arguments(self, call: Node, count: int, options: tuple[str, ...]) -> tuple[list[Node], dict[str, Any]]:
        """Return the first `count` arguments of a call, and its options, which may be given by name or position."""
        name = fold(call["function_name"])
        if any(call.get(part) for part in ("distinct", "filter", "schema", "catalog")) or (
            (call.get("order_bys") or {}).get("orders")
        ):
            raise self._refuse(call, f"{name} takes neither DISTINCT, FILTER nor ORDER BY, and no qualified name.")
        first: list[Node] = []
        said: dict[str, Any] = {}
        for option, child in arguments(call):
            if not option and len(first) < count and not said:
                first.append(child)
                continue
            word = fold(option) if option else next((known for known in options if known not in said), "")
            if word not in options or word in said:
                raise self._refuse(
                    child, f"{name} has no option {option or 'here'}. Its options are {', '.join(options)}."
                )
            said[word] = self._constant(child)
        if len(first) < count:
            raise self._refuse(call, f"{name} needs {'a column' if count == 1 else 'a table and a column, as texts'}.")
        return first, said

    # ------------------------------------------------------------------ responses

    def responses(self, node: Node, options: dict[str, Any]) -> LocalStatement:
        """Plan one randomized response for each unit of a private table."""
        call = node["select_list"][0]
        (value,), said = self._arguments(call, 1, _RESPONSE_OPTIONS)
        unknown = sorted(set(options) - set(_RESPONSE_OPTIONS))
        if unknown:
            raise InvalidParameterError(
                f"{RESPONSE} has no option {unknown[0]}. Its options are {', '.join(_RESPONSE_OPTIONS)}."
            )
        if value["class"] == "STAR":
            raise self._refuse(call, f"{RESPONSE} needs a column.")
        known = self.context.catalog.table(path_of(node["from_table"]))
        if known is not None and known.public:
            raise self._refuse(call, f"{RESPONSE} is for private tables; this one is public.")
        if known is not None and (known.is_view or known.through is not None):
            raise self._refuse(
                call,
                "A view, or a table whose units stand in another one, may leave rows out, and the number of responses "
                "is not protected; use a table with its own unit.",
            )
        twice = sorted(set(options) & set(said))
        if twice:
            raise InvalidParameterError(f"{twice[0]} is given both in the statement and as an option; give it once.")
        query = self._query(node, value)
        ((name,),) = query.values
        words = {**options, **said}
        view = view_of(query, self.session, "SQL table")
        categories, resample = words.pop("categories", None), words.pop("resample", None)
        planned = response_question(view, words, column=name, categories=categories, resample=resample)  # type: ignore[arg-type]
        for _, rules in self.context.catalog.rules():
            rules.check(planned.plan)
        shown = call.get("alias") or RESPONSE
        releases: list[Release] = []

        def answer() -> Any:
            releases.append(self._released(planned, query))
            return releases[0].frame.rename({name: shown}).to_arrow()

        return LocalStatement(planned.plan, answer, releases)

    def _query(self, node: Node, value: Node) -> SqlQuery:
        """Return the query for units and values. It is analysed and checked like a private aggregate of the column."""
        aggregate = with_arguments(self.context.parser.expression("dp_count_distinct(x)"), [{**value, "alias": ""}])
        select = {**node, "select_list": [aggregate]}
        analysis = analyse(select, self.context)
        return analysis.aggregations[0].queries[0]

    def _released(self, planned: ResponseQuestion, query: SqlQuery) -> Release:
        try:
            return planned.release(lambda: self.context.catalog.private_source(query.sources, query.rows))
        finally:
            self.context.catalog.close()

    # ------------------------------------------------------------------ estimates

    def estimate(self, call: Node) -> LocalStatement:
        """Plan the estimate of the frequencies behind the responses in a public table."""
        names, said = self._arguments(call, 2, _ESTIMATE_OPTIONS)
        table, wanted = (self._constant(argument) for argument in names)
        if not isinstance(table, str) or not isinstance(wanted, str):
            raise self._refuse(call, f"{ESTIMATE} takes the names of a table and a column, as texts.")
        given = said.pop("by", None) or []
        by = [name.strip() for name in given.split(",")] if isinstance(given, str) else [str(name) for name in given]
        source = self.context.parser.table(table)
        known = self.context.catalog.table(path_of(source))
        if known is None or not known.public:
            raise self._refuse(
                call,
                f"{ESTIMATE} reads public tables, and {table} is not public. If its rows are randomized responses, "
                f"which are private by themselves, declare it public: con.public('{table}').",
            )
        held = {fold(name): name for name in known.columns}
        missing = [name for name in (wanted, *by) if fold(name) not in held]
        if missing:
            raise self._refuse(call, f"{table} has no column {', '.join(missing)}; it has {', '.join(known.columns)}.")
        wanted, by = held[fold(wanted)], [held[fold(name)] for name in by]
        select = select_node([column(name) for name in (wanted, *by)], source)
        known_column = known.columns[wanted]

        def answer() -> Any:
            read = pl.DataFrame(self.context.catalog.answer(select, {}))
            if isinstance(known_column, TableColumn) and isinstance(known_column.dtype, pl.Enum):
                read = read.with_columns(pl.col(wanted).cast(pl.String).cast(known_column.dtype))
            return estimate_frequencies(read, wanted, by=by or None, **said).to_arrow()

        return LocalStatement(None, answer)
