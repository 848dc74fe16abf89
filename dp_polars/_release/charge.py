"""Reserve, read, add noise, commit: in this order, here and nowhere else.

Every read of private rows goes through one of three: `release_once` for what is released at once, `open_charged` for
what is charged once and asked again and again, and `OpenQuestions` for each question to the latter. Each runs its work
in `guarded`, and a failure closes the session. Ctrl-C comes through while rows are read; before and after that it waits
until the charge is written down, or marked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import polars as pl

from dp_polars._release.rehearsal import Make, note
from dp_polars._session.cost import Cost
from dp_polars._session.interrupts import Deferred
from dp_polars._session.releases import Release
from dp_polars._session.session import Session
from dp_polars.errors import EngineError, InvalidParameterError, SessionClosed

Result = TypeVar("Result")

MOST_QUESTIONS = 1_000_000
"""How many questions a stream or online queries answer. Free ones inform a little too; nobody needs so many."""


def release_once(
    session: Session,
    cost: Cost,
    label: str,
    *,
    name: Callable[[], bytes],
    fresh: bool,
    make: Make,
) -> Release:
    """Return the stored release of a question on a source, or charge its price and make one.

    `name()` names the question and the source as it is now. `make()` reads the rows and returns what may be released,
    noise and all, and its plan. Rows are read more than once, so of a source that changes in between nothing is
    released. Whatever happens after the charge, it stays.
    """
    key = name()
    if not fresh:
        stored = session.stored(key)
        if stored is not None:
            return stored
    with Deferred() as signals, session.reserve(cost, label=label, key=key) as reservation:
        note(session, make)
        frame, plan = guarded(make, signals)
        if name() != key:
            reservation.fail(closes=False)  # that a source was touched is public
            raise EngineError(
                "The source changed while it was read, so nothing is released; the charge stays. Ask again when nobody "
                "writes to it, or ask a copy."
            )
        release = reservation.commit(frame)
        session.remember(release, plan)
        return release


def open_charged(
    session: Session, cost: Cost, label: str, plan: object, make: Callable[[], tuple[pl.DataFrame, Result]]
) -> tuple[Release, Result]:
    """Charge the whole price of what is asked later, then let `make()` read the rows once.

    It returns what the ledger keeps of the opening, and what will answer.
    """
    with Deferred() as signals, session.reserve(cost, label=label) as reservation:
        note(session, None)
        facts, opened = guarded(make, signals)
        release = reservation.commit(facts)
        session.remember(release, plan)
        return release, opened


class OpenQuestions:
    """The way to the rows of something open, by what was paid for it. Used under the lock of what is asked.

    `left` says how many questions may be asked, `failed` that one failed on the rows and none may be asked any more.
    """

    def __init__(self, session: Session, release: Release) -> None:
        self._session, self._release = session, release
        self.left, self.failed = MOST_QUESTIONS, False

    def ask(self, questions: int, answer: Callable[[], Result]) -> Result:
        """Answer so many questions from private rows that were paid for, unless the session is closed.

        The session is looked at before and after: of questions under way while it closes none is answered.
        """
        before = self._session._refuse_closed()
        if self.failed:
            raise InvalidParameterError("A question failed here on private rows; it is closed for good. Open another.")
        if questions > self.left:
            raise InvalidParameterError(
                f"At most {MOST_QUESTIONS:,} questions can be asked here, and {self.left:,} are left: free answers "
                "tell a little too. Open another stream, which has a price of its own."
            )
        with Deferred() as signals:
            self.left -= questions
            try:
                found = guarded(answer, signals)
            except KeyboardInterrupt:
                raise
            except BaseException:
                self.failed = True
                try:
                    self._look_again(before)
                finally:
                    self._session._close_by(self._release)
                raise
            self._look_again(before)
            return found

    def _look_again(self, before: int) -> None:
        if self._session._refuse_closed() != before:
            raise SessionClosed(self._session.closings[-1]) from None


def guarded(work: Callable[[], Result], signals: Deferred) -> Result:
    """Run something that reads private rows; errors may quote values, so neither their text nor their trace goes on."""
    done: list[Result] = []
    with signals.allowed(), contextlib.suppress(Exception, pl.exceptions.PanicException):
        done.append(work())
    # Raised here, outside of any handler: the engine's error is not even the context. DuckDB makes an error like any
    # other of Ctrl-C.
    if not done and signals.interrupted:
        raise KeyboardInterrupt
    if not done:
        raise EngineError(
            "The engine failed on private rows. Its message is not shown because it may quote their values; the charge "
            "stays. Whether a question fails may depend on a single row, so the session is closed: check the frame "
            "outside of dp_polars, for example that its files can be read, then the owner of the data can go on with "
            'session.reopen(reason="...").'
        )
    return done[0]
