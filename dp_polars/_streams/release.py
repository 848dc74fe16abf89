"""An open stream: it is charged and its rows are read once, then answers are compared one after another."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from fractions import Fraction
from typing import NoReturn

import polars as pl

from dp_polars._engines.polars.stream_answers import StreamRows, exact_answers, stream_rows
from dp_polars._engines.registry import engine_for
from dp_polars._engines.rows import PrivateRows
from dp_polars._release.charge import OpenQuestions, open_charged
from dp_polars._sampling import BitSource
from dp_polars._session.exclusive_lock import Exclusive
from dp_polars._session.session import Session
from dp_polars._streams.plan import SENSITIVITY, StreamPlan
from dp_polars._streams.queries import StreamQuery
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.sparse_vector import SparseVector

_MOST = Fraction(10**300)


def open_stream(plan: StreamPlan, rows: PrivateRows, session: Session, source: BitSource) -> OpenStream:
    """Charge the price of the whole stream, then read the rows once. The charge stays, whatever happens after it."""

    def make() -> tuple[pl.DataFrame, tuple[StreamRows, SparseVector]]:
        snapshot = engine_for(rows).snapshot(rows, plan.unit, source, max_rows=plan.max_rows if plan.unit else None)
        held = stream_rows(snapshot.rows, snapshot.kept, plan.unit, every_row=plan.of == "units")
        vector = SparseVector(plan.scales, Fraction(0), SENSITIVITY, source)
        facts = {
            "threshold": float(plan.threshold),
            "hits": plan.hits,
            "numeric": plan.numeric,
            "of": plan.of,
            "epsilon": float(plan.epsilon),
        }
        return pl.DataFrame([facts]), (held, vector)

    release, (held, vector) = open_charged(session, plan.cost, plan.label(), plan, make)
    return OpenStream(release.plan, held, vector, OpenQuestions(session, release))


class OpenStream:
    """The rows and the noisy threshold of a stream. It answers checked questions until the hits are used up."""

    def __init__(self, plan: StreamPlan, rows: StreamRows, vector: SparseVector, questions: OpenQuestions) -> None:
        self._plan, self._vector, self._questions = plan, vector, questions
        self._rows: StreamRows | None = rows
        self._lock = threading.Lock()
        self._guard = Exclusive(None)  # recognizes a forked copy

    def __reduce__(self) -> NoReturn:
        raise InvalidParameterError("A stream can't be copied: two copies would answer for the price of one.")

    @property
    def plan(self) -> StreamPlan:
        """The plan that was paid for."""
        return self._plan

    @property
    def questions(self) -> OpenQuestions:
        """The guard that each question passes first."""
        return self._questions

    @property
    def hits_left(self) -> int:
        """How many more answers can be above the threshold."""
        return self._vector.hits_left

    def refuse_copies(self) -> None:
        """Refuse questions from a forked process. Call this before Polars runs, which would hang there."""
        if self._guard.inherited():
            raise InvalidParameterError(
                "This stream was opened by the process that this one was forked from, which may still ask it: two "
                "copies would answer for the price of one. Ask it there, or open another one here."
            )

    def ask(self, queries: Sequence[StreamQuery]) -> list[bool | float | None]:
        """Return the answers in order, up to the last hit."""
        self.refuse_copies()
        if not queries:
            return []
        with self._lock:
            rows = self._rows
            if rows is None:
                raise closed()
            try:
                return self._questions.ask(len(queries), lambda: self._answers(rows, queries))
            finally:
                if self._questions.failed:
                    self._vector.hits_left = 0
                if not self._vector.hits_left:
                    self._rows = None  # so that private rows aren't held longer than needed

    def _answers(self, rows: StreamRows, queries: Sequence[StreamQuery]) -> list[bool | float | None]:
        found: list[bool | float | None] = []
        for query, answer in zip(queries, exact_answers(rows, [query.tally for query in queries]), strict=True):
            if not self._vector.hits_left:
                break
            found.append(self._compared(query, answer))
        return found

    def _compared(self, query: StreamQuery, answer: int) -> bool | float | None:
        above = (answer * query.step - self._plan.threshold) / query.sensitivity
        noisy = self._vector.ask(above)
        if not self._plan.numeric:
            return noisy is not None
        if noisy is None:
            return None
        value = Fraction(noisy) * query.sensitivity + self._plan.threshold
        return round(value) if query.whole else float(max(-_MOST, min(value, _MOST)))


def closed() -> InvalidParameterError:
    """Return the error of a closed stream."""
    return InvalidParameterError(
        "This stream is closed: all its hits are used up. Open another one, which has its own price, or use the "
        "answers of this one."
    )
