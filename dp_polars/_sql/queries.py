"""Plan and release the private queries of an analysed statement, and run the SQL above them on the released rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import duckdb
import polars as pl

from dp_polars._aggregates.base import AggregateCall, Shape
from dp_polars._aggregates.cut import CutByCap
from dp_polars._aggregates.values import MissingBoundsError
from dp_polars._choices.plan import ChoicePlan
from dp_polars._choices.question import ChoiceQuestion, choice_question
from dp_polars._engines.base import parts_for
from dp_polars._engines.registry import engine_for
from dp_polars._engines.request import BoundedRequest, Exact
from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.unit_steps import constant_columns, has_unit_steps, unique_columns
from dp_polars._frame.aggregate_question import AggregateQuestion, question_of
from dp_polars._frame.options import ChoiceOptions, Options
from dp_polars._frame.question import View
from dp_polars._numbers import exact
from dp_polars._plan.plan import Plan
from dp_polars._plan.query import SQL_STEP
from dp_polars._session.cost import NOTHING
from dp_polars._session.releases import Release
from dp_polars._session.session import Session
from dp_polars._sql.aggregate_calls import OWN, Call
from dp_polars._sql.allowed_functions import CUTS, ENDS
from dp_polars._sql.analysis import Aggregation, Analysis, SqlQuery
from dp_polars._sql.catalog import Catalog
from dp_polars._sql.syntax_tree import Node, Parser, base_table, canonical, fold, select_node
from dp_polars.errors import InvalidDataError, InvalidParameterError, StatementNotAllowed

_SPENDS = ("epsilon", "share", "rho", "within")
_SHARED = ("epsilon", "share", "rho", "delta")
_PER_SELECT = ("keys", "min_units", "max_groups")
"""Options about groups, which all answers of one SELECT have in common."""


@dataclass(frozen=True)
class PlannedQuery:
    """A private query of a statement with its plan."""

    query: SqlQuery
    question: AggregateQuestion | ChoiceQuestion
    catalog: Catalog
    source: bytes
    """The state of the tables when the query was planned."""

    @property
    def plan(self) -> Plan | ChoicePlan:
        """The plan."""
        return self.question.plan

    def identity(self) -> bytes:
        """Return what identifies the private tables as they are now."""
        return self.catalog.private_source(self.query.sources, self.query.rows)

    def is_new(self) -> bool:
        """Return whether the answers have to be paid for."""
        return self.question.fresh or self.question.stored(self.identity) is None

    def release(self) -> Release:
        """Charge the session and release the answers, or return the stored release of the same query."""
        if self.present_source() != self.source:  # a plan made for some columns must not be used on others
            raise InvalidDataError("The data changed after this query was planned. Run the statement again.")
        return replace(self.question, engine=self.bounded_aggregates).release(self.identity)

    def bounded_aggregates(self, rows: PrivateRows, request: BoundedRequest) -> Exact:
        """Compute the exact bounded aggregates, in as many parts as the memory limit of the database requires."""
        size = self.catalog.file_bytes(self.query.sources)
        parts = parts_for(size, self.catalog.memory_limit() if size else math.inf)
        found = engine_for(rows).aggregate(rows, request, parts=parts)
        self.catalog.check_versions(self.query.sources, self.source)
        return found

    def names(self) -> dict[str, str]:
        """Return the answer columns of the release, and the names that they get in the released table."""
        plan = self.plan
        chosen = isinstance(plan, ChoicePlan)
        names = (
            [plan.query.keys[-1].name]
            if chosen
            else [aggregate.name for aggregate in plan.query.aggregates if not aggregate.hidden]
        )
        asked = zip(self.query.calls, self.query.answers, strict=True)
        found, cut = dict[str, str](), {answer: call.name for call, answer in asked if call.counts_cut}
        found |= dict(zip(names, (answer for answer in self.query.answers if answer not in cut), strict=True))
        found |= {CUTS[name].kind: answer for answer, name in cut.items()}
        named = {answer: name for name, answer in found.items()}
        return found | {f"{named[answer]}_{end}": column for answer, end, column in self.query.ends}

    def rank_ends(self) -> dict[str, tuple[str, ...]]:
        """Return the ends of intervals that are ranks, by the canonical text of the call that they belong to."""
        if isinstance(self.plan, ChoicePlan):
            return {}
        names = {answer: name for name, answer in self.names().items()}
        aggregates = {aggregate.name: aggregate for aggregate in self.plan.query.aggregates}
        found = {}
        for call, answer in zip(self.query.calls, self.query.answers, strict=True):
            one = aggregates[names[answer]]
            if one.shape is Shape.RANK:
                found[canonical(call.node)] = tuple(name.removeprefix(f"{one.name}_") for name in one.interval_schema())
        return {text: ends for text, ends in found.items() if ends and "low" not in ends}

    def present_source(self) -> bytes:
        """Return the present state of the tables, made without reading their rows."""
        return self.catalog.state(self.query.sources)


@dataclass(frozen=True)
class PlannedStatement:
    """A statement whose private queries are planned. Nothing has been read or spent."""

    analysis: Analysis
    aggregations: tuple[tuple[Aggregation, tuple[PlannedQuery, ...]], ...]
    session: Session
    catalog: Catalog
    releases: list[Release] = field(default_factory=list)
    """The releases behind the answers, new or stored, once `release` has been called."""

    @property
    def queries(self) -> list[PlannedQuery]:
        """The private queries in the order of the statement."""
        return [query for _, queries in self.aggregations for query in queries]

    @property
    def plans(self) -> list[Plan | ChoicePlan]:
        """The plans of the private queries in the order of the statement."""
        return [query.plan for query in self.queries]

    def rank_ends(self) -> dict[str, tuple[str, ...]]:
        """Return the ends of intervals that are ranks, by the canonical text of the call that they belong to."""
        return {text: ends for query in self.queries for text, ends in query.rank_ends().items()}

    def check_above(self) -> None:
        """Let DuckDB bind the SQL above the private queries, before anything is spent on them."""
        if self.aggregations:
            empty = {aggregation.table: _empty(aggregation, queries) for aggregation, queries in self.aggregations}
            if _selects_columns(self.analysis.above, empty):
                self.catalog.check_text(self.analysis.above, empty)
            else:
                self.catalog.columns(self.analysis.above, empty)

    def release(self) -> dict[str, pl.DataFrame]:
        """Release all private queries, or none if the budget doesn't cover all; return the tables of released rows."""
        # A single query is checked when it is charged.
        new = [query for query in self.queries if query.is_new()] if len(self.queries) > 1 else []
        if new:
            self.session.check(sum((query.plan.cost for query in new), NOTHING))
        try:
            return {
                aggregation.table: self._released(aggregation, queries) for aggregation, queries in self.aggregations
            }
        finally:
            self.catalog.close()

    def answer(self) -> Any:
        """Release the private queries, run the SQL above them and return its rows as an Arrow table."""
        released = self.release()
        try:
            return self.catalog.answer(self.analysis.above, released)
        except duckdb.Error as error:
            raise StatementNotAllowed(
                f"The SQL above the private aggregates failed: {str(error).splitlines()[0]} The answers of the private "
                "aggregates were released and are stored: a corrected statement reuses them at no cost."
            ) from None

    def _released(self, aggregation: Aggregation, queries: tuple[PlannedQuery, ...]) -> pl.DataFrame:
        """Put the answers of one SELECT side by side. An answer that lacks a group is null there."""
        keys = list(aggregation.keys)
        table, *others = [self._answers(query, keys) for query in queries]
        for frame in others:
            if keys:
                table = table.join(frame, on=keys, how="full", nulls_equal=True, coalesce=True)
            else:
                table = table.hstack(frame)
        return table.sort(keys) if keys else table

    def _answers(self, query: PlannedQuery, keys: list[str]) -> pl.DataFrame:
        release = query.release()
        self.releases.append(release)
        names = {**dict(zip(query.query.keys, keys, strict=True)), **query.names()}
        hidden = [
            aggregate.name
            for aggregate in query.plan.query.aggregates
            if aggregate.hidden and aggregate.name not in names
        ]
        frame = release.frame.drop(hidden, strict=False).rename(names)  # what cut=True adds has to be selected by name
        if query.query.ends:  # all answers have intervals, but these were asked for
            frame = frame.select(names.values())
        if not keys and not frame.height:  # a choice found nothing to choose
            frame = pl.DataFrame([None] * frame.width, schema=frame.schema, orient="col")
        return frame


def _empty(aggregation: Aggregation, queries: tuple[PlannedQuery, ...]) -> pl.DataFrame:
    """Return the table that the answers of one SELECT will fill, without rows."""
    schema: dict[str, Any] = {}
    for query in queries:
        known = query.question.schema
        schema |= {column: known[name] for name, column in zip(query.query.keys, aggregation.keys, strict=True)}
        schema |= {answer: known[name] for name, answer in query.names().items()}
    return pl.DataFrame(schema=schema)


_BINDS = frozenset(
    {
        *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64),
        *(pl.Boolean, pl.Float32, pl.Float64, pl.String, pl.Date),
    }
)
"""Types that DuckDB reads from Arrow as they are."""


def _selects_columns(above: Node, released: Mapping[str, pl.DataFrame]) -> bool:
    """Return whether a query only selects columns of the one released table, so that binding it can't fail."""
    if len(released) > 1:
        return False
    ((table, frame),) = released.items()
    names = set(frame.columns)
    return (
        above == select_node(above.get("select_list", ()), base_table(table))
        and len(set(map(fold, names))) == len(names)
        and _BINDS.issuperset(frame.dtypes)
        and all(
            item["class"] == "COLUMN_REF" and item["column_names"][:-1] == [table] and item["column_names"][-1] in names
            for item in above["select_list"]
        )
    )


# ---------------------------------------------------------------------- planning


def plan_statement(analysis: Analysis, session: Session, catalog: Catalog, options: dict[str, Any]) -> PlannedStatement:
    """Plan the private queries of a statement. Nothing is read or spent."""
    queries = [query for aggregation in analysis.aggregations for query in aggregation.queries]
    if "rollup" in options:
        raise InvalidParameterError(
            "rollup= adds rows that a SELECT has no place for; use a frame instead: df.dp.count(..., rollup=True)."
        )
    if not queries and options:
        raise InvalidParameterError("This statement has no private aggregate to which the options could apply.")
    for query in queries:
        if not query.questions:
            raise InvalidParameterError(
                f"{query.calls[0].name}() is about the private aggregates beside it that have the same FILTER. There "
                "are none, or several with spends of their own. Give the spend to the whole statement: "
                "con.sql(query, epsilon=0.5)."
            )
    without = sum(query.questions for query in queries if not query.calls[0].spends)
    if without and session.defaults.queries is not None and all(options.get(name) is None for name in _SPENDS):
        options = {**options, "share": Fraction(1, session.defaults.queries)}  # for the statement, whatever it asks
    planned = []
    for aggregation in analysis.aggregations:
        calls = [call for query in aggregation.queries for call in query.calls]
        _refuse_contradictions(calls, _PER_SELECT)
        common = {name: call.options[name] for call in calls for name in _PER_SELECT if name in call.options}
        of_select = []
        for query in aggregation.queries:
            chooses = query.calls[0].chooses  # a choice has no min_units
            said: dict[str, Any] = {name: value for name, value in common.items() if name != "min_units" or not chooses}
            for call in query.calls:
                said |= call.options
            _refuse_contradictions(query.calls, tuple(said))
            shared = _statement_options(options, query, without)
            of_select.append(_planned(query, session, catalog, {**shared, **said}))
        planned.append((aggregation, tuple(of_select)))
    return PlannedStatement(analysis, tuple(planned), session, catalog)


def _statement_options(options: dict[str, Any], query: SqlQuery, without: int) -> dict[str, Any]:
    """Return the statement's options for one query. `without` calls share the statement's spend evenly."""
    if query.calls[0].spends:
        return {name: value for name, value in options.items() if name not in (*_SPENDS, "delta")}
    part = Fraction(query.questions, without)
    return {
        name: exact(value, name) * part if name in _SHARED and value is not None else value
        for name, value in options.items()
    }


def _refuse_contradictions(calls: Sequence[Call], names: Sequence[str]) -> None:
    """Refuse options that differ between calls whose answers stand side by side."""
    for name in names:
        given = [call.options[name] for call in calls if name in call.options]
        if any(value != given[0] for value in given):
            raise InvalidParameterError(
                f"{name} differs between the private aggregates of one SELECT; give it once, or use two SELECTs."
            )


def _planned(query: SqlQuery, session: Session, catalog: Catalog, options: dict[str, Any]) -> PlannedQuery:
    query_options = {name: value for name, value in options.items() if name not in OWN}
    if "keys" in query_options:
        query_options["keys"] = _public_keys(query_options["keys"], query)
    elif query.unit_keys:
        raise InvalidParameterError(
            f"A key of GROUP BY is a function of {', '.join(query.unit)}, which is the unit. Such groups (arms of an "
            "experiment) are not discovered, because each could be one person: list them with keys := [...]."
        )
    if query.ends:
        query_options["confidence"] = query.confidence
    source = catalog.state(query.sources)
    if "confidence" not in options:
        _refuse_hidden_ends(query, options)
    planned = PlannedQuery(query, _question(query, session, catalog, options, query_options), catalog, source)
    for _, rules in catalog.rules():
        rules.check(planned.plan)
    _refuse_unknown_ends(planned)
    return planned


def _refuse_hidden_ends(query: SqlQuery, options: dict[str, Any]) -> None:
    """Refuse the ends of a quantile's interval if they would be paid for and not shown."""
    for call, answer in zip(query.calls, query.answers, strict=True):
        wanted = call.takes("interval") and call.own.get("interval", options.get("interval")) == "value"
        if wanted and answer not in {shown for shown, _, _ in query.ends}:
            raise InvalidParameterError(
                f"interval := 'value' pays for the ends of an interval, which nothing shows. Select dp_low(m) and "
                f"dp_high(m), where m is the alias of {call.name}."
            )


def _refuse_unknown_ends(planned: PlannedQuery) -> None:
    """Refuse ends of intervals that an answer doesn't have, such as the values of a median that has ranks."""
    calls = dict(zip(planned.query.answers, planned.query.calls, strict=True))
    names = {answer: name for name, answer in planned.names().items()}
    for answer, end, _ in planned.query.ends:
        call, name = calls[answer], names[answer]
        there = [known for known in ENDS.values() if f"{name}_{known}" in planned.question.schema]
        if end in there:
            continue
        instead = " and ".join(f"dp_{known}" for known in there)
        ways = f"It has {instead}." if there else "Use a frame (df.dp) instead, whose answer includes them."
        ranks = there and "low" not in there
        more = " For an interval of values, say interval := 'value', which costs two more choices." if ranks else ""
        raise InvalidParameterError(f"{call.name} has no dp_{end} here. {ways}{more}")


@contextmanager
def _naming_values(query: SqlQuery, *, always: bool) -> Iterator[None]:
    """Say in an error about missing bounds which expression lacks them, and the call that gives them.

    The call is written out for a calculation, and with `always` (a policy) also for a column, because plain SQL has no
    place for options.
    """
    try:
        yield
    except MissingBoundsError as error:
        for call, columns in zip(query.calls, query.values, strict=True):
            for node, name in zip(call.values, columns, strict=True):
                plain = node["class"] == "COLUMN_REF"
                if name == error.name and (always or not plain):
                    listed = ", ".join(map(_text, call.values))
                    written = node["column_names"][-1] if plain else _text(node)
                    error.rename(written, f"Write {call.name}({listed}, {error.bounds})")
                    raise
        raise


def _text(node: Node) -> str:
    """Return an expression as its author could write it."""
    parser = Parser()
    select = {**parser.select("SELECT 1"), "select_list": [{**node, "alias": ""}]}
    text = parser.text(select).removeprefix("SELECT ")
    return text[1:-1] if re.fullmatch(r"\([^()]*\)", text) else text


def _question(
    query: SqlQuery, session: Session, catalog: Catalog, options: dict[str, Any], query_options: dict[str, Any]
) -> AggregateQuestion | ChoiceQuestion:
    """Plan a query in the same way as the Polars front end does."""
    view = view_of(query, session, catalog=catalog)
    keys = list(query.keys) or None
    asked: dict[str | None, AggregateCall] = {}
    for name in sorted(OWN & options.keys()):
        if not any(call.takes(name) or call.ignores_options for call in query.calls):
            raise InvalidParameterError(f"{query.calls[0].name} has no option {name}.")
    for call, columns, answer in zip(query.calls, query.values, query.answers, strict=True):
        if call.counts_cut:
            continue
        said = {name: options[name] for name in OWN if name in options and call.takes(name)}
        whole = replace(call, own={**said, **call.own})
        if call.chooses:
            return choice_question(view, whole.choice(columns), keys, ChoiceOptions(**query_options), unfolded=False)  # type: ignore[typeddict-item]
        # A single aggregate has its default name, so its position in SELECT is not part of the query.
        asked[None if query.questions == 1 else answer] = whole.asked(columns)
    cut = [call for call in query.calls if call.counts_cut]
    if cut:
        query_options = {**query_options, "cut": True}
    with _naming_values(query, always=bool(view.rules)):
        question = question_of(view, asked, keys, Options(**query_options))  # type: ignore[typeddict-item]
    for call in cut:
        if not any(isinstance(aggregate, CUTS[call.name]) for aggregate in question.plan.query.aggregates):
            what = "max_rows_per_group" if CUTS[call.name] is CutByCap else "bounds that rows are clipped to"
            raise InvalidParameterError(
                f"{call.name}() counts the units that are cut in the private aggregates beside it, but none of them "
                f"has {what}. Leave it out."
            )
    return question


def view_of(query: SqlQuery, session: Session, kind: str = SQL_STEP, *, catalog: Catalog | None = None) -> View:
    """Return the view of a private table that a query is planned on.

    With the catalog, caps and bounds that the session adopted for the table are found.
    """
    # A step within a unit changes how many rows a unit has, so nothing that was adopted for its tables fits.
    known = None if has_unit_steps(query.rows) else catalog
    sources = None if known is None else lambda: tuple(known.source(frozenset({source})) for source in query.sources)
    steps = (query.step(kind), *query.notes())
    rules = () if catalog is None else catalog.rules()
    constant = (*query.unit_keys, *sorted(constant_columns(query.rows, query.unit)))
    return View(
        query.rows, steps, query.declared, query.unit, session, query.table_unit, sources=sources,
        unit_functions=constant, rules=rules, unique=unique_columns(query.rows),
    )  # fmt: skip


def _public_keys(given: Any, query: SqlQuery) -> Any:
    """Return public keys in the form that `keys=` expects: a frame or a mapping if there are several key columns."""
    if isinstance(given, dict):
        return _by_name(given, query)
    if len(query.keys) > 1 and isinstance(given, list) and given and isinstance(given[0], dict | tuple):
        rows = [tuple(row.values()) if isinstance(row, dict) else row for row in given]
        try:
            return pl.DataFrame(rows, schema=list(query.keys), orient="row", strict=True)
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
            raise InvalidParameterError(
                f"keys := must list rows with a value for each of {', '.join(query.keys)}, such as "
                "keys := [(1, 'a'), (2, 'b')]."
            ) from None
    return given


def _by_name(given: dict[str, Any], query: SqlQuery) -> dict[str, Any]:
    """Return the values of each key under the key's name in the query. Names are compared as SQL compares them.

    A key that is an expression is named by its text, because its alias is not part of the query. If there is one
    such key, it takes the entry that is left.
    """
    entries = {fold(name): values for name, values in given.items()}
    named = {key: entries.pop(fold(key)) for key in query.keys if fold(key) in entries}
    left = [key for key in query.keys if key not in named]
    if len(left) == len(entries) == 1:
        return {**named, left[0]: next(iter(entries.values()))}
    if left or entries:
        raise InvalidParameterError(
            f"keys := must list the values of every key: {', '.join(query.keys)} (a key that is an expression is named "
            f"by its text). It has {', '.join(given)}. Or list the rows: keys := [(1, 'a'), (2, 'b')]."
        )
    return named
