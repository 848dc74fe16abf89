"""From a cut statement to questions, and from their answers to tables of released rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Protocol

import duckdb
import polars as pl

from dp_polars.accounting.cost import NOTHING
from dp_polars.accounting.release import Release
from dp_polars.accounting.reservation import release_key
from dp_polars.accounting.session import Session
from dp_polars.accounting.terms import TableUnit
from dp_polars.asking.aggregates import Asked as AskedAggregate
from dp_polars.asking.choice import choice_question
from dp_polars.asking.options import ChoiceOptions, Options
from dp_polars.asking.question import Question, View, question_of
from dp_polars.engines.duckdb.rows import Snapshot, memory_limit, quoted, scanned
from dp_polars.engines.polars import parts_for, run_bounded
from dp_polars.engines.polars.rows import PrivateRows
from dp_polars.engines.request import BoundedRequest, Exact
from dp_polars.errors import InvalidParameterError
from dp_polars.planning.plan import Plan
from dp_polars.quantities import exact, flag_of
from dp_polars.releasing.present import result_schema
from dp_polars.releasing.run import Engine, run_plan
from dp_polars.sql.calls import OWN, Call
from dp_polars.sql.catalog import unbound
from dp_polars.sql.questions import Aggregation, Cut, SqlQuestion, question_text
from dp_polars.sql.tree import Node, given_values

_SPENDS = ("epsilon", "share", "rho", "within")
_SHARED = ("epsilon", "share", "rho", "delta")
_ONCE = ("keys", "min_units", "max_groups")
"""Options of the groups, which the answers of one SELECT have in common."""


class Database(Protocol):
    """Where the rows of questions are."""

    def text(self, node: Node) -> str:
        """Return the SQL text of a query."""
        ...

    def cursor_for_rows(self) -> Any:
        """Return a cursor of its own."""
        ...

    def source(self, parts: frozenset[str]) -> bytes:
        """Return what names tables now."""
        ...

    def file_bytes(self, parts: frozenset[str]) -> int:
        """Return the size of the files that tables are in."""
        ...

    def unit(self, columns: tuple[str, ...]) -> TableUnit | None:
        """Return how unit columns were declared."""
        ...


@dataclass(frozen=True)
class _One:
    question: Question
    snapshot: Snapshot
    name: Callable[[], bytes]
    fresh: bool
    keys: tuple[str, ...]
    numbers: tuple[int, ...]
    engine: Engine


@dataclass(frozen=True)
class Asked:
    """The questions of a statement, planned."""

    parts: Cut
    ones: tuple[tuple[Aggregation, tuple[_One, ...]], ...]
    session: Session
    releases: list[Release] = field(default_factory=list)
    """Those that were made or found again, once `release` was called."""

    @property
    def plans(self) -> list[Plan]:
        """The plans, in the order of the statement."""
        return [one.question.plan for _, ones in self.ones for one in ones]

    def empty(self) -> dict[str, pl.DataFrame]:
        """Return the tables that the answers will be, without rows."""
        return {aggregation.table: _empty(aggregation, ones) for aggregation, ones in self.ones}

    def release(self) -> dict[str, pl.DataFrame]:
        """Ask all questions, or none if not all fit the budget; return the tables of released rows."""
        wanted = [one for _, ones in self.ones for one in ones]
        new = [one for one in wanted if one.fresh or self.session.stored(one.name()) is None]
        if new:
            self.session.check(sum((one.question.plan.cost for one in new), NOTHING))
        try:
            return {aggregation.table: _table(aggregation, ones, self.releases) for aggregation, ones in self.ones}
        finally:
            for one in wanted:
                one.snapshot.close()


def _answers(one: _One) -> dict[str, str]:
    """Return the columns of the answers and the names that they have in the SELECT."""
    plan = one.question.plan
    names = [made.aggregate.name for made in plan.made]
    if plan.choosing is not None:
        names = [plan.query.keys[-1].name]
    return {name: f"dp_answer_{number}" for name, number in zip(names, one.numbers, strict=True)}


def _empty(aggregation: Aggregation, ones: tuple[_One, ...]) -> pl.DataFrame:
    schema: dict[str, Any] = {}
    for one in ones:
        own = result_schema(one.question.plan)
        schema |= {f"dp_key_{place}": own[name] for place, name in enumerate(aggregation.keys)}
        schema |= {answer: own[name] for name, answer in _answers(one).items()}
    return pl.DataFrame(schema=schema)


def _table(aggregation: Aggregation, ones: tuple[_One, ...], releases: list[Release]) -> pl.DataFrame:
    """Return the answers of one SELECT side by side; a group that an answer doesn't show is null there."""
    keys = [f"dp_key_{number}" for number in range(len(aggregation.keys))]
    joined: pl.DataFrame | None = None
    for one in ones:
        question = one.question
        release = run_plan(
            question.plan, question.rows, question.session, name=one.name, fresh=one.fresh, engine=one.engine
        )
        releases.append(release)
        frame = release.frame.rename({**dict(zip(one.keys, keys, strict=True)), **_answers(one)})
        if not keys and not frame.height:  # nobody was chosen
            frame = pl.DataFrame([None] * frame.width, schema=frame.schema, orient="col")
        if joined is None:
            joined = frame
        elif keys:
            joined = joined.join(frame, on=keys, how="full", nulls_equal=True, coalesce=True)
        else:
            joined = joined.hstack(frame)
    table = joined if joined is not None else pl.DataFrame()
    return table.sort(keys) if keys else table


def ask(parts: Cut, session: Session, database: Database, parameters: dict[str, Any], options: dict[str, Any]) -> Asked:
    """Return the questions of a statement, planned; nothing is read."""
    questions = [question for aggregation in parts.aggregations for question in aggregation.questions]
    if "rollup" in options:
        raise InvalidParameterError("rollup= adds rows that a SELECT has no place for; ask a frame: df.dp.count(...).")
    if not questions and options:
        raise InvalidParameterError("This statement has no private aggregate that the options could be for.")
    without = sum(len(question.calls) for question in questions if not question.calls[0].spends)
    ones = []
    for aggregation in parts.aggregations:
        calls = [call for question in aggregation.questions for call in question.calls]
        _agree(calls, _ONCE)
        once = {name: call.options[name] for call in calls for name in _ONCE if name in call.options}
        own = []
        for question in aggregation.questions:
            chooses = question.calls[0].chooses  # and has no least number of units
            said: dict[str, Any] = {name: value for name, value in once.items() if name != "min_units" or not chooses}
            for call in question.calls:
                said |= call.options
            _agree(question.calls, tuple(said))
            shared = _shared(options, question, without)
            own.append(_asked(question, session, database, parameters, {**shared, **said}))
        ones.append((aggregation, tuple(own)))
    return Asked(parts, tuple(ones), session)


def _shared(options: dict[str, Any], question: SqlQuestion, without: int) -> dict[str, Any]:
    """Return the statement's options for one question; of a spend, the part of its calls."""
    if question.calls[0].spends:
        return {name: value for name, value in options.items() if name not in (*_SPENDS, "delta")}
    part = Fraction(len(question.calls), without)
    return {
        name: exact(value, name) * part if name in _SHARED and value is not None else value
        for name, value in options.items()
    }


def _agree(calls: Sequence[Call], names: Sequence[str]) -> None:
    """Refuse options that contradict each other in one SELECT, whose answers stand side by side."""
    for name in names:
        given = [call.options[name] for call in calls if name in call.options]
        if any(value != given[0] for value in given):
            raise InvalidParameterError(f"{name} differs between the private aggregates of one SELECT; say it once.")


def _asked(
    question: SqlQuestion, session: Session, database: Database, parameters: dict[str, Any], options: dict[str, Any]
) -> _One:
    used = given_values(question.rows, parameters)
    snapshot = Snapshot(database.cursor_for_rows)
    rows, values, _ = question_rows(question, database, snapshot, used)
    own = {name: value for name, value in options.items() if name not in OWN}
    if "keys" in own:
        own["keys"] = _domain(own["keys"], question)
    steps = (question_text(question, used),)
    view = View(
        PrivateRows(rows), steps, question.relation.declared, question.unit, session, database.unit(question.unit)
    )
    planned = _question(view, question, values, options, own)

    def name() -> bytes:
        return release_key(planned.plan.query.fingerprint(), database.source(question.relation.sources))

    def engine(rows: PrivateRows, request: BoundedRequest) -> Exact:
        cursor = database.cursor_for_rows()
        try:
            limit = memory_limit(cursor)
        finally:
            cursor.close()
        return run_bounded(rows, request, parts=parts_for(database.file_bytes(question.relation.sources), limit))

    fresh = flag_of(own.get("fresh", False), "fresh")
    return _One(planned, snapshot, name, fresh, question.keys, question.numbers, engine)


def _question(
    view: View, question: SqlQuestion, values: list[str], options: dict[str, Any], own: dict[str, Any]
) -> Question:
    """Return the question that calls mean, of columns that are named by `values`."""
    keys = list(question.keys) or None
    alone = len(question.calls) == 1
    asked: dict[str | None, AskedAggregate] = {}
    for number, call in zip(question.numbers, question.calls, strict=True):
        said = {name: options[name] for name in OWN if name in options and call.kind not in _UNBOUNDED}
        columns = tuple(values[place] for place in question.places(call))
        whole = replace(call, own={**said, **call.own})
        if call.chooses:
            return choice_question(view, whole.choice(columns), keys, ChoiceOptions(**own), unfolded=False)  # type: ignore[typeddict-item]
        asked[None if alone else f"answer_{number}"] = whole.asked(columns)
    return question_of(view, asked, keys, Options(**own))  # type: ignore[typeddict-item]


def _domain(given: Any, question: SqlQuestion) -> Any:
    """Return public keys as `keys=` takes them: rows for several keys become a frame."""
    if len(question.keys) > 1 and isinstance(given, list) and given and isinstance(given[0], dict | tuple):
        rows = [tuple(row.values()) if isinstance(row, dict) else row for row in given]
        return pl.DataFrame(rows, schema=list(question.keys), orient="row")
    return given


def question_rows(
    question: SqlQuestion, database: Database, snapshot: Snapshot, used: dict[str, Any]
) -> tuple[pl.LazyFrame, list[str], str]:
    """Return the rows of a question under the names that a plan shows, the names of its values, and their SQL."""
    text = database.text(question.rows)
    uses: dict[str, set[str]] = {}
    for call in question.calls:
        kinds = ("candidate", "sum") if call.chooses else (call.kind, call.kind)
        for place, kind in zip(question.places(call), kinds, strict=False):
            uses.setdefault(f"value_{place}", set()).add(kind)
    cursor = database.cursor_for_rows()
    try:
        try:
            relation = cursor.sql(text, params=used or None)
        except duckdb.Error as error:
            raise unbound(error) from None
        types = dict(zip(relation.columns, relation.types, strict=True))
        for name, kind in types.items():
            _check_type(name, str(kind), uses.get(name, set()))
        listed = ", ".join(_cast(name, kind, uses.get(name, set())) for name, kind in types.items()) or "1 AS row"
        whole = f"SELECT {listed} FROM ({text})"  # noqa: S608 - names are our own
        empty = cursor.sql(whole + " LIMIT 0", params=used or None).pl()
    finally:
        cursor.close()
    schema = {
        name: (_enum(types[name]) if name in types and uses.get(name, _CANDIDATE) == _CANDIDATE else None) or dtype
        for name, dtype in empty.schema.items()
    }
    rows = scanned(snapshot, whole, used, pl.Schema(schema))
    names = {f"unit_{i}": name for i, name in enumerate(question.unit)}
    names |= {f"key_{i}": name for i, name in enumerate(question.keys)}
    values: list[str] = []
    for place, node in enumerate(question.values):
        own = str(node["column_names"][-1]) if node["class"] == "COLUMN_REF" else "value"
        while own in names.values():
            own = f"{own}_value"
        names[f"value_{place}"] = own
        values.append(own)
    return rows.rename({name: own for name, own in names.items() if name in schema}), values, whole


_UNBOUNDED = ("count", "count_units", "n_unique")
_CANDIDATE = {"candidate"}


def _check_type(name: str, kind: str, uses: set[str]) -> None:
    """Refuse types that Polars doesn't have, but where only it matters whether there is a value."""
    if uses == {"count"}:
        return
    odd = ("VARIANT", "UNION", "GEOMETRY", "MAP", "STRUCT", "TUPLE") if name.startswith("unit_") else ()
    if kind.upper().startswith(("INTERVAL", "TIME_TZ", "TIME WITH", "VARIANT", *odd)) or (odd and kind.endswith("]")):
        raise InvalidParameterError(f"A {kind} can be neither a key, a unit nor a value; make it a number or a date.")


def _cast(name: str, kind: Any, uses: set[str]) -> str:
    """Return a column in a type that Polars has too; `uses` are the aggregates of a value."""
    base = str(kind).upper().partition("(")[0]
    column = quoted(name)
    if uses == {"count"}:  # only whether it is there matters
        return f"CASE WHEN {_is_there(column, base)} THEN true END AS {column}"
    if name.startswith("unit_") and base.startswith("TIME") and not base.startswith("TIMESTAMP"):
        return f"CAST({column} AS VARCHAR) AS {column}"  # Polars has no 24:00
    if base in ("TIMESTAMP_S", "TIMESTAMP_MS"):
        return f"TRY_CAST({column} AS TIMESTAMP) AS {column}"
    number = bool(uses - {"count", "n_unique", "candidate"})
    if base in ("UUID", "ENUM") or (base in ("HUGEINT", "UHUGEINT", "BIT", "BIGNUM", "VARINT") and not number):
        return f"CAST({column} AS VARCHAR) AS {column}"
    if number and base in ("HUGEINT", "UHUGEINT"):
        return f"CAST({column} AS DOUBLE) AS {column}"
    return column


def _is_there(column: str, base: str) -> str:
    """Return the condition that a value is there; NaN counts as null."""
    is_float = base in ("FLOAT", "DOUBLE")
    return f"{column} IS NOT NULL" + (f" AND NOT system.main.isnan({column})" if is_float else "")


def _enum(kind: Any) -> pl.Enum | None:
    if getattr(kind, "id", "") != "enum":
        return None
    (_, values), *_ = kind.children
    return pl.Enum(values)
