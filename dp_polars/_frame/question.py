"""Questions: how every method of a private frame becomes an answer or, on `preview`, a plan.

A method describes its question as a function from a `View` to a `Question`. `PrivateFrame` and `Preview` have all
methods in common and differ in one line: the frame returns the question's answer, the preview returns its plan.
"""

from __future__ import annotations

import functools
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic, ParamSpec, TypeVar

import polars as pl

from dp_polars._engines.registry import source_identity
from dp_polars._engines.rows import Lookup, PrivateRows, WithColumns
from dp_polars._expressions.tree import Apply, Column, Expression, canonical, substituted
from dp_polars._frame.options import AnyOptions
from dp_polars._frame.table_rules import LARGEST, Rules
from dp_polars._numbers import Number
from dp_polars._plan.base import BasePlan, StoredPlan
from dp_polars._plan.query import UNIT_STEP
from dp_polars._release.charge import Identity, stored_release
from dp_polars._release.rehearsal import MakeRelease
from dp_polars._session.releases import Release
from dp_polars._session.session import Session
from dp_polars._session.suggestions import Suggestions
from dp_polars._session.terms import Defaults, TableUnit, Terms, table_terms
from dp_polars.errors import DPError

Given = ParamSpec("Given")
Result = TypeVar("Result")
AnyPlan = TypeVar("AnyPlan", bound=BasePlan, covariant=True)
AnyStoredPlan = TypeVar("AnyStoredPlan", bound=StoredPlan, covariant=True)


@dataclass(frozen=True)
class View:
    """What a question sees of a private frame: its rows and steps, who is protected and who pays."""

    rows: PrivateRows
    steps: tuple[str, ...]
    unchecked: bool
    unit: tuple[str, ...]
    session: Session
    table: TableUnit | None = None
    """The unit of this table, if it has one of its own."""
    spend: Mapping[str, Number] | None = None
    """The spend that a dashboard gives the question, instead of the one of the call."""
    sources: Callable[[], tuple[bytes, ...]] | None = None
    """Returns the identities of the tables behind the rows, by which adopted suggestions are found."""
    if_rows: int | None = None
    """The size of a group for which a dashboard shows expected errors, if the call names none itself."""
    unit_functions: tuple[str, ...] = ()
    """Columns of the rows that are functions of the unit alone, so that they are the same in all rows of a unit."""
    rules: Rules = ()
    """What a policy says about the sources of the rows."""
    unique: frozenset[str] | None = None
    """Columns whose values no two rows share, if steps within a unit make sure of that."""

    def __post_init__(self) -> None:
        if self.table is not None and self.table.relation != "agreed":  # with another unit it is another question
            said = json.dumps([UNIT_STEP, [self.table.relation, self.table.note]])
            object.__setattr__(self, "steps", (*self.steps, said))

    @cached_property
    def terms(self) -> Terms:
        """The terms under which this table is asked."""
        return self.session.terms if self.table is None else table_terms(self.session.terms, self.table)

    @cached_property
    def defaults(self) -> Defaults:
        """The contribution bounds and the number of queries that the session has for questions that name none."""
        return self.session.defaults

    def check(self, plan: BasePlan) -> None:
        """Refuse a question that a policy does not allow."""
        for _, rules in self.rules:
            rules.check(plan)

    @cached_property
    def suggestions(self) -> list[Suggestions]:
        """What the session adopted for the sources of this view, the latest first."""
        adopted = self.session.adopted
        if not adopted or self.sources is None:
            return []
        sources, unit = self.sources(), self.source_unit()
        return [
            suggestion for suggestion in reversed(adopted) if suggestion.source in sources and suggestion.unit == unit
        ]

    def source_unit(self) -> tuple[str | None, ...]:
        """Return the unit columns as expressions over the columns of the source."""
        schema = self.rows.schema
        return tuple(self.source_expression(Column(name, schema[name])) for name in self.unit)

    def source_expression(self, tree: Expression) -> str | None:
        """Return an expression over the columns of the source, as canonical text; None if it cannot be written so."""
        for step in reversed(self.rows.steps):
            if isinstance(step, WithColumns):
                tree = substituted(tree, dict(step.columns))
            elif isinstance(step, Lookup) and tree.columns & {name for _, name in step.columns}:
                return None
            if isinstance(tree, Apply) and tree.size > LARGEST:
                return None
        return canonical(tree)


@dataclass(frozen=True)
class Origin:
    """The frame that is asked, as its owner named it: stored releases are found by it."""

    frame: object
    name: str | None
    data_version: str | None
    others: tuple[Origin, ...] = ()
    """Other frames whose rows the question reads too."""
    named: Identity | None = None
    """What identifies the rows instead of the frame, if a policy opened them."""

    @property
    def identity(self) -> Identity:
        """Returns what identifies the sources as they are now."""
        alone = self.named or partial(source_identity, self.frame, self.name, self.data_version)
        return partial(_joined_identity, (alone, *(other.identity for other in self.others))) if self.others else alone


def _joined_identity(identities: Sequence[Identity]) -> bytes:
    """Return what identifies several sources together, in their order."""
    return b"several:" + json.dumps([identity().hex() for identity in identities]).encode()


@dataclass(frozen=True)
class Question(ABC, Generic[AnyPlan]):
    """A planned question and the rows it is about. Until `answer` is called, nothing is read and nothing is spent."""

    plan: AnyPlan
    rows: PrivateRows
    session: Session

    @abstractmethod
    def answer(self, origin: Origin) -> Any:
        """Charge the plan's price, read the rows and return what the user gets."""


@dataclass(frozen=True)
class TableQuestion(Question[AnyStoredPlan]):
    """A question whose answer is one released table, which is stored and found again."""

    fresh: bool = False
    """Whether a new release is paid for even if one is stored."""

    @property
    @abstractmethod
    def schema(self) -> dict[str, pl.DataType]:
        """The names and types of the released table, known before it exists."""

    @abstractmethod
    def release(self, identity: Identity) -> Release:
        """Return the release that is stored for this question, or charge the price and make one."""

    def _run(self) -> MakeRelease | None:
        """Return the work that draws noisy numbers, if stored ones can be presented as this question asks for them."""
        return None

    def stored(self, identity: Identity) -> Release | None:
        """Return a stored release of this question or of the same noisy numbers, as it is asked for now; or None."""
        return stored_release(self.session, self.plan, identity=identity, make=self._run())

    def answer(self, origin: Origin) -> pl.DataFrame | pl.LazyFrame:
        """Return the released table. For a LazyFrame it is lazy, and the release happens at the first collect."""

        def table() -> pl.DataFrame:
            return self.release(origin.identity).frame

        return _deferred(table, self.schema) if isinstance(origin.frame, pl.LazyFrame) else table()


def _deferred(release: Callable[[], pl.DataFrame], schema: dict[str, pl.DataType]) -> pl.LazyFrame:
    """Return a lazy frame whose rows come from a single call of `release`, made when they are first needed.

    A second collect, a self-join or `collect_all` sees the same rows. An error is kept too, because another attempt
    after a charge must not charge again.
    """
    memo = _Once(release)
    return pl.defer(memo, schema=schema)


class _Once:
    def __init__(self, release: Callable[[], pl.DataFrame]) -> None:
        self._release: Callable[[], pl.DataFrame] | None = release
        self._lock = threading.Lock()
        self._result: pl.DataFrame | None = None
        self._error: BaseException | None = None

    def __call__(self) -> pl.DataFrame:
        with self._lock:
            if self._release is not None:
                try:
                    self._result = self._release()
                except BaseException as error:
                    self._error = error
                    raise
                finally:
                    self._release = None
        if self._result is None:
            raise self._error or RuntimeError("the release returned no frame")
        return self._result


def no_panics(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return a function that raises a `DPError` where Polars panics.

    A Rust panic reaches Python as an exception that does not derive from `Exception`, so servers and notebooks do not
    catch it and end. `_release.charge` guards everything that reads private rows; this is for what comes before and
    after.

    >>> @no_panics
    ... def ask():
    ...     raise pl.exceptions.PanicException("index out of bounds")
    >>> ask()
    Traceback (most recent call last):
    ...
    dp_polars.errors.DPError: Polars failed on this query before or after private rows were read. ...
    """

    @functools.wraps(function)
    def called(*given: Given.args, **words: Given.kwargs) -> Result:
        try:
            return function(*given, **words)
        except pl.exceptions.PanicException:
            pass
        # Raised outside the handler so that the message of Polars is not even the context.
        raise DPError(
            "Polars failed on this query before or after private rows were read. Its message is withheld. Look for an "
            "unusual type or constant, and simplify the query. session.releases shows whether anything was charged."
        )

    return called


def named(name: str, question: Callable[[View], Question[AnyPlan]]) -> Callable[[View], Question[AnyPlan]]:
    """Return a question that is still to be planned, with the name by which the audit log calls it if it is refused."""
    question.__name__ = name
    return question


def planned(question: Callable[[View], Question[AnyPlan]], view: View) -> Question[AnyPlan]:
    """Return the planned question, if the policy of its tables allows it."""
    made = question(view)
    view.check(made.plan)
    return made


class FrameMethods(ABC):
    """The base of all methods of a private frame, which `PrivateFrame` and `Preview` have in common."""

    @abstractmethod
    def _resolve(self, options: AnyOptions, question: Callable[[View], Question[BasePlan]]) -> Any:
        """Return the answer to a question, or its plan."""
