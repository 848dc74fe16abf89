"""Questions: how every method of a private frame becomes an answer or, on `preview`, a plan.

A method describes its question as a function from a `View` to a `Question`. `PrivateFrame` and `Preview` have all
methods in common and differ in one line: the frame returns the question's answer, the preview returns its plan.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import polars as pl

from dp_polars._engines.registry import source_identity
from dp_polars._engines.rows import PrivateRows
from dp_polars._frame.options import AnyOptions
from dp_polars._numbers import Number
from dp_polars._plan.base import BasePlan, StoredPlan
from dp_polars._plan.query import UNIT_STEP
from dp_polars._release.charge import Identity, stored_release
from dp_polars._release.lazy import deferred
from dp_polars._release.rehearsal import MakeRelease
from dp_polars._session.releases import Release
from dp_polars._session.session import Session
from dp_polars._session.terms import TableUnit, Terms, table_terms

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

    def __post_init__(self) -> None:
        if self.table is not None and self.table.relation != "agreed":  # with another unit it is another question
            said = json.dumps([UNIT_STEP, [self.table.relation, self.table.note]])
            object.__setattr__(self, "steps", (*self.steps, said))

    @property
    def terms(self) -> Terms:
        """The terms under which this table is asked."""
        return self.session.terms if self.table is None else table_terms(self.session.terms, self.table)


@dataclass(frozen=True)
class Origin:
    """The frame that is asked, as its owner named it: stored releases are found by it."""

    frame: object
    name: str | None
    data_version: str | None

    @property
    def identity(self) -> Identity:
        """Returns what identifies the source as it is now."""
        return partial(source_identity, self.frame, self.name, self.data_version)


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
        return stored_release(self.session, fingerprint=self.plan.fingerprint(), identity=identity, make=self._run())

    def answer(self, origin: Origin) -> pl.DataFrame | pl.LazyFrame:
        """Return the released table. For a LazyFrame it is lazy, and the release happens at the first collect."""

        def table() -> pl.DataFrame:
            return self.release(origin.identity).frame

        return deferred(table, self.schema) if isinstance(origin.frame, pl.LazyFrame) else table()


class FrameMethods(ABC):
    """The base of all methods of a private frame, which `PrivateFrame` and `Preview` have in common."""

    @abstractmethod
    def _resolve(self, options: AnyOptions, question: Callable[[View], Question[BasePlan]]) -> Any:
        """Return the answer to a question, or its plan."""
