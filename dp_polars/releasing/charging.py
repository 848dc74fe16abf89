"""Reserve, read, add noise, commit: in this order, here and nowhere else.

Every read of private rows goes through one of three: `release_once` for what is released at once, `open_charged` for
what is charged once and asked again and again, and `OpenQuestions` for each question to the latter. Each runs its work
in `guarded`, and a failure closes the session.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import polars as pl

from dp_polars.accounting.cost import Cost
from dp_polars.accounting.release import Release
from dp_polars.accounting.session import Session
from dp_polars.errors import EngineError, InvalidParameterError, SessionClosed
from dp_polars.releasing.rehearsal import Make, note

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
    with session.reserve(cost, label=label, key=key) as reservation:
        note(session, make)
        frame, plan = guarded(make)
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
    with session.reserve(cost, label=label) as reservation:
        note(session, None)
        facts, opened = guarded(make)
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
        self.left -= questions
        try:
            found = guarded(answer)
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


def guarded(work: Callable[[], Result]) -> Result:
    """Run something that reads private rows; errors may quote values, so neither their text nor their trace goes on."""
    done: list[Result] = []
    with _interrupts() as interrupted, contextlib.suppress(Exception, pl.exceptions.PanicException):
        done.append(work())
    # Raised here, outside of any handler: the engine's error is not even the context.
    if not done and interrupted:
        raise KeyboardInterrupt
    if not done:
        raise EngineError(
            "The engine failed on private rows. Its message is not shown because it may quote their values; the charge "
            "stays. Whether a question fails may depend on a single row, so the session is closed: check the frame "
            "outside of dp_polars, for example that its files can be read, then the owner of the data can go on with "
            'session.reopen(reason="...").'
        )
    return done[0]


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Yield a list that is not empty once Ctrl-C was pressed: DuckDB makes an error like any other of it."""
    seen: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield seen
        return

    def note(number: int, frame: Any) -> Any:
        seen.append(number)
        return before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
