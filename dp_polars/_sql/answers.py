"""From a cut statement to questions, and from their answers to tables of released rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import polars as pl

from dp_polars._aggregates.base import AggregateCall
from dp_polars._choices.plan import ChoicePlan
from dp_polars._choices.question import ChoiceQuestion, choice_question
from dp_polars._engines.base import parts_for
from dp_polars._engines.registry import engine_for
from dp_polars._engines.request import BoundedRequest, Exact
from dp_polars._engines.rows import PrivateRows
from dp_polars._frame.options import ChoiceOptions, Options
from dp_polars._frame.queries import AggregateQuestion, question_of
from dp_polars._frame.question import View
from dp_polars._numbers import exact
from dp_polars._plan.plan import Plan
from dp_polars._session.cost import NOTHING
from dp_polars._session.releases import Release, release_key
from dp_polars._session.session import Session
from dp_polars._sql.aggregate_calls import OWN, Call
from dp_polars._sql.catalog import Catalog
from dp_polars._sql.questions import Aggregation, Cut, SqlQuestion
from dp_polars.errors import InvalidDataError, InvalidParameterError

_SPENDS = ("epsilon", "share", "rho", "within")
_SHARED = ("epsilon", "share", "rho", "delta")
_ONCE = ("keys", "min_units", "max_groups")
"""Options of the groups, which the answers of one SELECT have in common."""


@dataclass(frozen=True)
class _One:
    question: AggregateQuestion | ChoiceQuestion
    name: Callable[[], bytes]
    unchanged: Callable[[], bool]
    keys: tuple[str, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Asked:
    """The questions of a statement, planned."""

    parts: Cut
    ones: tuple[tuple[Aggregation, tuple[_One, ...]], ...]
    session: Session
    catalog: Catalog
    releases: list[Release] = field(default_factory=list)
    """Those that were made or found again, once `release` was called."""

    @property
    def plans(self) -> list[Plan | ChoicePlan]:
        """The plans, in the order of the statement."""
        return [one.question.plan for _, ones in self.ones for one in ones]

    def empty(self) -> dict[str, pl.DataFrame]:
        """Return the tables that the answers will be, without rows."""
        return {aggregation.table: _empty(aggregation, ones) for aggregation, ones in self.ones}

    def release(self) -> dict[str, pl.DataFrame]:
        """Ask all questions, or none if not all fit the budget; return the tables of released rows."""
        wanted = [one for _, ones in self.ones for one in ones]
        new = [one for one in wanted if one.question.fresh or self.session.stored(one.name()) is None]
        if new:
            self.session.check(sum((one.question.plan.cost for one in new), NOTHING))
        try:
            return {aggregation.table: _table(aggregation, ones, self.releases) for aggregation, ones in self.ones}
        finally:
            self.catalog.close()


def _answers(one: _One) -> dict[str, str]:
    """Return the columns of the answers and the names that they have in the SELECT."""
    plan = one.question.plan
    chosen = isinstance(plan, ChoicePlan)
    names = [plan.query.keys[-1].name] if chosen else [one.name for one in plan.query.aggregates]
    return {name: f"dp_answer_{number}" for name, number in zip(names, one.numbers, strict=True)}


def _empty(aggregation: Aggregation, ones: tuple[_One, ...]) -> pl.DataFrame:
    schema: dict[str, Any] = {}
    for one in ones:
        own = one.question.schema
        schema |= {f"dp_key_{place}": own[name] for place, name in enumerate(aggregation.keys)}
        schema |= {answer: own[name] for name, answer in _answers(one).items()}
    return pl.DataFrame(schema=schema)


def _table(aggregation: Aggregation, ones: tuple[_One, ...], releases: list[Release]) -> pl.DataFrame:
    """Return the answers of one SELECT side by side; a group that an answer doesn't show is null there."""
    keys = [f"dp_key_{number}" for number in range(len(aggregation.keys))]
    joined: pl.DataFrame | None = None
    for one in ones:
        if not one.unchanged():  # what was planned for some columns must not be read as others
            raise InvalidDataError("The data changed after this question was planned. Ask again.")
        release = one.question.release(one.name)
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


def ask(parts: Cut, session: Session, catalog: Catalog, options: dict[str, Any]) -> Asked:
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
            own.append(_asked(question, session, catalog, {**shared, **said}))
        ones.append((aggregation, tuple(own)))
    return Asked(parts, tuple(ones), session, catalog)


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


def _asked(question: SqlQuestion, session: Session, catalog: Catalog, options: dict[str, Any]) -> _One:
    own = {name: value for name, value in options.items() if name not in OWN}
    if "keys" in own:
        own["keys"] = _domain(own["keys"], question)
    seen = catalog.source(question.sources)
    planned = _question(view_of(question, session), question, options, own)

    def name() -> bytes:
        return release_key(planned.plan.fingerprint(), catalog.source(question.sources))

    def unchanged() -> bool:
        return catalog.source(question.sources) == seen

    def engine(rows: PrivateRows, request: BoundedRequest) -> Exact:
        parts = parts_for(catalog.file_bytes(question.sources), catalog.memory_limit())
        return engine_for(rows).aggregate(rows, request, parts=parts)

    return _One(replace(planned, engine=engine), name, unchanged, question.keys, question.numbers)


def view_of(question: SqlQuestion, session: Session, kind: str = "sql") -> View:
    """Return what a question sees of a private table."""
    steps = (question.step(kind),)
    return View(question.rows, steps, question.declared, question.unit, session, question.table_unit)


def _question(
    view: View, question: SqlQuestion, options: dict[str, Any], own: dict[str, Any]
) -> AggregateQuestion | ChoiceQuestion:
    """Return the question that calls mean."""
    keys = list(question.keys) or None
    alone = len(question.calls) == 1
    asked: dict[str | None, AggregateCall] = {}
    for name in sorted(OWN & options.keys()):
        if not any(call.takes(name) or call.ignores_options for call in question.calls):
            raise InvalidParameterError(f"{question.calls[0].name} has no option {name}.")
    for number, call in zip(question.numbers, question.calls, strict=True):
        said = {name: options[name] for name in OWN if name in options and call.takes(name)}
        columns = question.columns(call)
        whole = replace(call, own={**said, **call.own})
        if call.chooses:
            return choice_question(view, whole.choice(columns), keys, ChoiceOptions(**own), unfolded=False)  # type: ignore[typeddict-item]
        asked[None if alone else f"answer_{number}"] = whole.asked(columns)
    return question_of(view, asked, keys, Options(**own))  # type: ignore[typeddict-item]


def _domain(given: Any, question: SqlQuestion) -> Any:
    """Return public keys as `keys=` takes them: rows for several keys become a frame."""
    if len(question.keys) > 1 and isinstance(given, list) and given and isinstance(given[0], dict | tuple):
        rows = [tuple(row.values()) if isinstance(row, dict) else row for row in given]
        try:
            return pl.DataFrame(rows, schema=list(question.keys), orient="row", strict=True)
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
            raise InvalidParameterError(
                f"keys := lists rows with a value for each of {', '.join(question.keys)}: keys := [(1, 'a'), (2, 'b')]."
            ) from None
    return given
