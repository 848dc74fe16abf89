"""Charges: reserve the price, read rows, add noise, commit. This order is enforced here and nowhere else.

Every read of private rows goes through one of three doors: `release_once` for a query that is released at once,
`open_charged` for something that is charged once and queried many times (a stream), and `OpenQuestions` for each query
to the latter. Each runs its work in `guarded`, and a failure closes the session. Ctrl-C interrupts while rows are read.
Before and after that, it waits until the charge is recorded in the ledger.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import polars as pl

from dp_polars._plan.base import BasePlan, StoredPlan
from dp_polars._release.rehearsal import MakeRelease, note
from dp_polars._session.cost import Cost
from dp_polars._session.interrupts import Deferred
from dp_polars._session.releases import Draw, Release, release_key
from dp_polars._session.session import Session
from dp_polars.errors import EngineError, InvalidParameterError, SessionClosed

Result = TypeVar("Result")

Identity = Callable[[], bytes]
"""Returns what identifies a source as it is now. It reads no rows."""

MOST_QUESTIONS = 1_000_000
"""Largest number of queries to a stream or to online queries. Answers that cost nothing reveal a little too."""


class Drawing(ABC):
    """Work that draws noisy numbers once. They are stored, and other presentations of them cost nothing."""

    drawn: bytes
    """The fingerprint of the noisy numbers: equal for all presentations of them."""

    @abstractmethod
    def draw(self) -> Draw:
        """Read the rows, add noise, and return the noisy numbers."""

    @abstractmethod
    def show(self, draw: Draw) -> tuple[pl.DataFrame, object]:
        """Return the frame that presents noisy numbers as they were asked for, and its plan. This reads no rows."""

    def __call__(self) -> tuple[pl.DataFrame, object]:
        """Read the rows, add noise, and return the frame to release and its plan."""
        return self.show(self.draw())


def release_once(session: Session, plan: StoredPlan, *, identity: Identity, fresh: bool, make: MakeRelease) -> Release:
    """Return the stored release of a query, or charge its price and make a new release.

    Parameters
    ----------
    session
        The session that pays.
    plan
        The plan of the query: its price, its label in the ledger, and what identifies the query.
    identity
        Returns what identifies the source as it is now.
    fresh
        Whether to make a new release even if one is stored.
    make
        Reads the rows, adds noise, and returns the frame to release and its plan. A `Drawing` is also found by its
        draw, however that was presented before.

    Notes
    -----
    Rows may be read more than once. If the source changes in between, nothing is released. The charge stays, whatever
    happens after it.
    """
    label, source = plan.label(), identity()
    key, draw_key = _keys(plan, source, make)
    if not fresh:
        stored = _stored(session, key, draw_key, make)
        if stored is not None:
            session._note(label, "stored", charge=stored.id)
            return stored
    with Deferred() as signals, session.reserve(plan.cost, label=label, key=key) as reservation:
        note(session, make)
        draw, frame, made = guarded(lambda: _made(make), signals)
        if identity() != source:
            reservation.fail(closes=False)  # it is public that somebody wrote to the source
            raise EngineError(
                "The source changed while it was read, so nothing is released; the charge stays. Ask again when nobody "
                "writes to the source, or query a copy of it."
            )
        release = reservation._commit(frame, draw, draw_key)
        session.remember(release, _priced(made, reservation.before))
        return release


def stored_release(
    session: Session, plan: StoredPlan, *, identity: Identity, make: MakeRelease | None = None
) -> Release | None:
    """Return the stored release of a query, presented as `make` asks for it, or None. Charge nothing."""
    return _stored(session, *_keys(plan, identity(), make), make)


def _keys(plan: StoredPlan, source: bytes, make: MakeRelease | None) -> tuple[bytes, bytes]:
    """Return the keys under which a session stores a release and its draw; the second is empty if no draw is kept."""
    key = release_key(plan.fingerprint(), source)
    return key, release_key(make.drawn, source) if isinstance(make, Drawing) else b""


def _stored(session: Session, key: bytes, draw_key: bytes, make: MakeRelease | None) -> Release | None:
    """Return the newest release of a query: the same question, or another presentation of the same noisy numbers.

    The question itself is looked up as well, because older ledgers hold no noisy numbers.
    """
    asked = session.stored(key)
    found = session._drawn(draw_key) if isinstance(make, Drawing) else None
    if not isinstance(make, Drawing) or found is None or (asked is not None and asked.id >= found[0].id):
        return asked
    entry, stored = found
    frame, plan = make.show(Draw.read(stored, entry.id))
    return session._shown(entry, frame, _priced(plan, session._spent_before(entry)))


def _made(make: MakeRelease) -> tuple[Draw | None, pl.DataFrame, object]:
    """Return what a release is made of: the noisy numbers if they are kept, the frame, and the plan."""
    if not isinstance(make, Drawing):
        return None, *make()
    draw = make.draw()
    return draw, *make.show(draw)


def open_charged(
    session: Session, cost: Cost, label: str, plan: object, make: Callable[[], tuple[pl.DataFrame, Result]]
) -> tuple[Release, Result]:
    """Charge the whole price of later queries, then let `make()` read the rows once.

    `make()` returns the facts that the ledger keeps about the opening, and the object that will answer queries. This
    function returns the release of the opening and that object.
    """
    with Deferred() as signals, session.reserve(cost, label=label) as reservation:
        note(session, None)
        facts, opened = guarded(make, signals)
        release = reservation.commit(facts)
        session.remember(release, _priced(plan, reservation.before))
        return release, opened


def _priced(plan: object, before: Cost) -> object:
    """Return a plan whose price is the part of the budget that the charge really used, after what was spent before."""
    return plan.after(before) if isinstance(plan, BasePlan) else plan


class OpenQuestions:
    """Guard for queries to something that was opened and paid for. Its owner must hold a lock while it uses this.

    Attributes
    ----------
    left
        How many more queries may be asked.
    failed
        Whether a query failed on private rows. Then no more queries are answered.
    """

    def __init__(self, session: Session, release: Release) -> None:
        self._session, self._release = session, release
        self.left, self.failed = MOST_QUESTIONS, False

    @contextlib.contextmanager
    def asking(self, queries: Sequence[object]) -> Iterator[None]:
        """Record what an analyst asks within the block in the audit log, answered or refused."""
        if self._session.analyst_name is None:
            yield
            return
        text = f"{self._release.label}: {'; '.join(map(str, queries))}"
        with self._session._asking(text, statement=text) as question:
            yield
            if not question.noted:  # answered without the rows
                self._session._note(text, "stored", charge=self._release.id)

    def ask(self, questions: int, answer: Callable[[], Result]) -> Result:
        """Return what `answer` computes for this many queries, unless the session is closed.

        The session is checked before and after. If it is closed in the meantime, nothing is answered.
        """
        before = self._session._refuse_closed()
        if self.failed:
            raise InvalidParameterError(
                "An earlier query failed here on private rows, so this is closed for good. Open another one."
            )
        if questions > self.left:
            raise InvalidParameterError(
                f"At most {MOST_QUESTIONS:,} queries are answered here, because even answers that cost nothing reveal "
                f"a little, and {self.left:,} are left. Open another one, which has its own price."
            )
        self._session._note(self._release.label, "stored", charge=self._release.id)  # paid for when it was opened
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
            raise SessionClosed(self._session._last_closing()) from None


def guarded(work: Callable[[], Result], signals: Deferred) -> Result:
    """Run something that reads private rows, and drop any error with its traceback, because it may quote values."""
    done: list[Result] = []
    with signals.allowed(), contextlib.suppress(Exception, pl.exceptions.PanicException):
        done.append(work())
    # Raised outside any handler so that the engine's error is not even the context. DuckDB turns Ctrl-C into an
    # ordinary error, so interrupts are checked first.
    if not done and signals.interrupted:
        raise KeyboardInterrupt
    if not done:
        raise EngineError(
            "The engine failed on private rows. Its message is not shown because it may quote their values; the charge "
            "stays. Whether a query fails may depend on a single row, so the session is closed. Check the frame "
            "outside of dp_polars, for example that its files can be read. Then the owner of the data can continue "
            'with session.reopen(reason="...").'
        )
    return done[0]
