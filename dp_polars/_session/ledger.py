"""The record of what was charged: one SQLite database, in memory or in a file that processes share.

A charge is one transaction that reads the sums, asks the filter, and writes the charge and the new sums, before any
data are read; nothing ever takes a charge back. A release handed to a caller was committed here before. A process that
dies leaves its charge in place; who looks next finds that nobody holds its lock, and marks it as failed. The ledger
holds prices, labels and released frames, and facts about the data that their owner calls public; never anything else
about the data. A fact is recorded once, and nothing changes it.

A charge that fails after rows were read, or dies, closes the session: what made it fail may have been one person's row,
and nobody paid to learn that. Nothing is charged until the owner reopens it. A question that was under way when the
session closed gets no release either, even if the session was reopened meanwhile: a hundred questions asked at once
must not tell more than one.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Literal

from dp_polars._session import ledger_file as storage
from dp_polars._session.cost import NOTHING, Cost, amount_of, amount_text
from dp_polars._session.exclusive_lock import Exclusive
from dp_polars._session.facts import Fact
from dp_polars._session.interrupts import Deferred
from dp_polars._session.open_charges import Running
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError, LedgerError, LedgerMismatch, SessionClosed

State = Literal["reserved", "committed", "failed"]
Cause = Literal["failed", "died"]

_COST = ("epsilon", "rho", "delta", "gaussian_delta")


@dataclass(frozen=True)
class Entry:
    """One row of the ledger."""

    id: int
    label: str
    state: State
    cost: Cost
    reserved_at: str
    finished_at: str | None


@dataclass(frozen=True)
class Closing:
    """A charge that closed the session, and how it was opened again.

    Attributes
    ----------
    charge
        The number of the charge.
    cause
        "failed": an engine failed on private rows. "died": the process ended before the charge was finished.
    closed_at, reopened_at, reason
        When; and when and why the owner reopened the session, None as long as it is closed.

    Examples
    --------
    >>> import dp_polars as dp
    >>> session = dp.Session(epsilon=1.0, unit="user_id")
    >>> session.reserve(dp.pure_cost(0.1), label="my own mechanism").fail()
    >>> session.closings[0].charge, session.closings[0].cause, session.closings[0].reopened_at
    (1, 'failed', None)
    """

    charge: int
    cause: Cause
    closed_at: str
    reopened_at: str | None
    reason: str | None


@dataclass(frozen=True)
class Charge:
    """A charge that waits for its release: its number, and how often the session had been closed when it was made."""

    id: int
    closings: int


class Ledger:
    """An open ledger. Use `Ledger.create`, `Ledger.open` or `Ledger.in_memory`."""

    def __init__(self, path: Path | None, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._guard = Exclusive(connection)
        self._closed = False
        self._agreed: Terms | None = None
        self._running = Running(path)
        self._file = None if path is None else os.stat(path)

    @classmethod
    def in_memory(cls, terms: Terms, defaults: str) -> Ledger:
        """Return a new ledger that ends with this process."""
        with storage.translated("the ledger in memory"):
            connection = storage.connect(":memory:")
            storage.initialise(connection, terms.to_json(), defaults)
        return cls(None, connection)

    @classmethod
    def at(cls, path: Path, terms: Terms, defaults: str) -> Ledger:
        """Return the ledger in a file, created if there is none; refuses a file with other terms."""
        path = path.absolute()
        if not path.exists():
            storage.create_file(path, terms.to_json(), defaults)
        ledger = cls.open(path)
        found, _ = ledger.agreement()
        if found != terms:
            ledger.close()
            raise LedgerMismatch(
                f"The ledger {path} was created with other terms: {'; '.join(found.differences(terms))}. A budget is "
                "agreed once. Open it with Session.from_ledger(path), or start another ledger for another agreement."
            )
        return ledger

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """Return the ledger in an existing file, after checking that it is one and is whole."""
        path = path.resolve()  # once: a later change of the working folder must not lead to another file
        if not path.is_file():
            raise LedgerError(f"There is no ledger at {path}. Create it with Session(..., ledger=path).")
        with storage.translated(f"the ledger {path}"):
            ledger = cls(path, storage.connect_file(path))
            try:
                ledger._verify()
                ledger._agreed = ledger.agreement()[0]
            except BaseException:
                ledger.close()
                raise
            return ledger

    def _verify(self) -> None:
        def one(sql: str) -> object:
            return self._connection.execute(sql).fetchone()[0]

        if one("PRAGMA application_id") != storage.APPLICATION_ID:
            raise LedgerError(f"{self.path} is not a dp_polars ledger; nothing was changed. Choose another path.")
        written = one("PRAGMA user_version")
        if not isinstance(written, int) or not 1 <= written <= storage.FORMAT:
            raise LedgerError(
                f"{self.path} was written by another version of dp_polars: its format is {written}, and this one knows "
                f"1 to {storage.FORMAT}. Nothing was changed; open it with the version that wrote it, or a newer one."
            )
        if one("PRAGMA quick_check(1)") != "ok":
            raise self._damaged()
        if written < storage.FORMAT:
            storage.migrate(self._connection)
        with self._begun("BEGIN"):
            rows = self._connection.execute(
                f"SELECT {', '.join(_COST)}, count(*) FROM charge GROUP BY {', '.join(_COST)}"  # noqa: S608
            )
            charged = NOTHING
            for *amounts, times in rows:
                charged = charged + _cost(amounts) * times
            if charged != self._spent():
                raise self._damaged()
            self._check_age()

    def _damaged(self) -> LedgerError:
        return LedgerError(
            f"The ledger {self.path} is damaged: its rows and its sums disagree. Nothing can be released from it; "
            "restore it from a backup that has every release."
        )

    def _check_age(self) -> str:
        """Refuse a ledger that has fewer charges than were made, an older copy; return the ledger's identity."""
        (identity,) = self._connection.execute("SELECT identity FROM agreement").fetchone()
        (last,) = self._connection.execute("SELECT coalesce(max(id), 0) FROM charge").fetchone()
        marked = self._running.marked(identity)
        if marked > last:
            raise LedgerError(
                f"The ledger {self.path} has {last:,} charges, but {marked:,} were made: an older copy was put in its "
                "place, and what was spent since would be spent again. Restore the newest copy. If that is lost, "
                f"agree on a new budget in a new ledger; only who deletes {self.path}-running uses the old one."
            )
        return str(identity)

    # ------------------------------------------------------------------ reading

    def agreement(self) -> tuple[Terms, str]:
        """Return the terms and the session's defaults (JSON) it was created with."""
        with self._reading() as connection:
            terms, defaults = connection.execute("SELECT terms, defaults FROM agreement").fetchone()
        try:
            return Terms.from_json(terms), defaults
        except (ValueError, KeyError, TypeError):
            raise self._damaged() from None

    def spent(self) -> Cost:
        """Return the sum of every charge."""
        with self._reading():
            return self._spent()

    def entries(self) -> list[Entry]:
        """Return all rows in the order of their reservation."""
        with self._reading() as connection:
            rows = connection.execute(_SELECT_ENTRY + " ORDER BY id").fetchall()
        return [_entry(row) for row in rows]

    def entry(self, identifier: int) -> Entry:
        """Return one row."""
        with self._reading() as connection:
            row = connection.execute(_SELECT_ENTRY + " WHERE id = ?", (identifier,)).fetchone()
        return _entry(row)

    def closings(self) -> list[Closing]:
        """Return how often the session was closed and by which charges, in order."""
        self.look()
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT charge_id, cause, closed_at, reopened_at, reason FROM closing "
                "LEFT JOIN reopening ON reopening.id = reopening_id ORDER BY closing.id"
            ).fetchall()
        return [Closing(*row) for row in rows]

    def reopenings(self) -> int:
        """Return how often the session was reopened."""
        with self._reading() as connection:
            (times,) = connection.execute("SELECT count(*) FROM reopening").fetchone()
            return int(times)

    def facts(self) -> list[Fact]:
        """Return what was recorded about the data as the owner's word, in order."""
        with self._reading() as connection:
            rows = connection.execute("SELECT kind, subject, value, recorded_at FROM fact ORDER BY rowid").fetchall()
        return [Fact(*row) for row in rows]

    def record(self, kind: str, subject: str, value: str) -> str:
        """Record a fact if there is none of its kind about its subject; return the one that counts from now on."""
        with self._writing() as connection:
            connection.execute("INSERT OR IGNORE INTO fact VALUES (?, ?, ?, ?)", (kind, subject, value, _now()))
            (recorded,) = connection.execute(
                "SELECT value FROM fact WHERE kind = ? AND subject = ?", (kind, subject)
            ).fetchone()
        return str(recorded)

    def look(self) -> None:
        """Mark charges whose process died, which closes the session; a ledger that may only be read stays as it is."""
        with self._reading() as connection:
            waiting = self._waiting(connection)
        with contextlib.suppress(LedgerError):
            if self._running.dead(waiting):
                with self._writing() as connection:
                    self._bury(connection)

    def refuse_closed(self) -> int:
        """Raise `SessionClosed` if the session is closed; else return how often it was closed so far."""
        self.look()
        with self._reading() as connection:
            standing, times = self._standing(connection), self._times_closed(connection)
        if standing is not None:
            raise SessionClosed(standing)
        return times

    def find(self, key: bytes) -> tuple[Entry, bytes] | None:
        """Return the newest committed release of a key with its stored frame, if there is one."""
        with self._reading() as connection:
            row = connection.execute(
                _SELECT_ENTRY + " WHERE key = ? AND state = 'committed' ORDER BY id DESC LIMIT 1",
                (key,),
            ).fetchone()
            if row is None:
                return None
            stored = connection.execute("SELECT frame FROM result WHERE charge_id = ?", (row[0],)).fetchone()
        return None if stored is None else (_entry(row), stored[0])

    def result(self, identifier: int) -> tuple[Entry, bytes] | None:
        """Return a committed release with its stored frame by its number."""
        with self._reading() as connection:
            row = connection.execute(_SELECT_ENTRY + " WHERE id = ? AND state = 'committed'", (identifier,)).fetchone()
            stored = connection.execute("SELECT frame FROM result WHERE charge_id = ?", (identifier,)).fetchone()
        return None if row is None or stored is None else (_entry(row), stored[0])

    # ------------------------------------------------------------------ writing

    def reserve(self, cost: Cost, label: str, key: bytes | None, accepts: Callable[[Cost], bool]) -> Charge | None:
        """Charge `cost` if `accepts` says yes to the new sums; return the charge, or None when refused.

        All in one transaction: no other process can charge between the question and the answer. The charge is locked
        before others can see it.
        """
        made: list[Charge] = []
        with Deferred():
            try:
                identity, standing = self._reserved(cost, label, key, accepts, made)
            except BaseException:
                for charge in made:  # not committed, as far as SQLite knows; nothing was read yet
                    with contextlib.suppress(LedgerError):
                        self.fail(charge, closes=False)
                    self._running.end(charge.id)  # or another process could not lock the charge that gets this number
                raise
            for charge in made:
                self._running.mark(identity, charge.id)
        if standing is not None:
            raise SessionClosed(standing)
        return made[0] if made else None

    def _reserved(
        self, cost: Cost, label: str, key: bytes | None, accepts: Callable[[Cost], bool], made: list[Charge]
    ) -> tuple[str, Closing | None]:
        with self._writing() as connection:
            identity = self._check_age()
            self._bury(connection)
            standing = self._standing(connection)
            if standing is None:
                self._charged(connection, cost, label, key, accepts, made)
        return identity, standing

    def _charged(
        self,
        connection: sqlite3.Connection,
        cost: Cost,
        label: str,
        key: bytes | None,
        accepts: Callable[[Cost], bool],
        made: list[Charge],
    ) -> None:
        total = Cost.__add__(self._spent(), cost)  # never by the operand's own rule
        if not accepts(total):
            return
        cursor = connection.execute(
            "INSERT INTO charge (label, key, state, epsilon, rho, delta, gaussian_delta, reserved_at) "
            "VALUES (?, ?, 'reserved', ?, ?, ?, ?, ?)",
            (label, key, *_texts(cost), _now()),
        )
        connection.execute(
            "UPDATE spent SET epsilon = ?, rho = ?, delta = ?, gaussian_delta = ?",
            _texts(total),
        )
        charge = Charge(cursor.lastrowid or 0, self._times_closed(connection))
        self._running.start(charge.id)
        made.append(charge)

    def commit(self, charge: Charge, frame: bytes) -> None:
        """Store the release of a charge. If the session was closed since, it is marked as failed instead."""
        with Deferred():
            with self._writing() as connection:
                standing = self._closed_since(connection, charge)
                if standing is not None:
                    self._mark(connection, charge.id, "failed")
                else:
                    self._finish(connection, charge.id, "committed")
                    connection.execute("INSERT INTO result VALUES (?, ?)", (charge.id, frame))
            self._running.end(charge.id)
        if standing is not None:
            raise SessionClosed(standing)

    def fail(self, charge: Charge, *, closes: bool) -> Closing | None:
        """Mark a charge as failed, and close the session with it; return what had closed it since, if anything."""
        with Deferred():
            try:
                with self._writing() as connection:
                    standing = self._closed_since(connection, charge)
                    self._finish(connection, charge.id, "failed")
                    if closes:
                        self._close_by(connection, charge.id, "failed")
            except BaseException:
                if closes:  # where that could not be written down, it counts as dead
                    self._running.end(charge.id)
                raise
            self._running.end(charge.id)
        return standing

    def close_by(self, identifier: int) -> None:
        """Close the session because something failed that an earlier charge paid for: an open stream."""
        with self._writing() as connection:
            self._close_by(connection, identifier, "failed")

    def reopen(self, reason: str) -> None:
        """Open a closed session again, by its owner's will."""
        with self._writing() as connection:
            self._bury(connection)
            if self._standing(connection) is None:
                raise InvalidParameterError("This session is not closed; there is nothing to reopen.")
            cursor = connection.execute(
                "INSERT INTO reopening (reason, reopened_at) VALUES (?, ?)",
                (reason, _now()),
            )
            connection.execute("UPDATE closing SET reopening_id = ? WHERE reopening_id IS NULL", (cursor.lastrowid,))

    def _mark(self, connection: sqlite3.Connection, identifier: int, state: State) -> int:
        """Give a charge that waits its final state; return how many there were, 1 or 0."""
        return connection.execute(
            "UPDATE charge SET state = ?, finished_at = ? WHERE id = ? AND state = 'reserved'",
            (state, _now(), identifier),
        ).rowcount

    def _finish(self, connection: sqlite3.Connection, identifier: int, state: State) -> None:
        if not self._mark(connection, identifier, state):
            raise LedgerError("This reservation is finished already; a release happens once.")

    def _close_by(self, connection: sqlite3.Connection, identifier: int, cause: Cause) -> None:
        connection.execute(
            "INSERT INTO closing (charge_id, cause, closed_at) VALUES (?, ?, ?)",
            (identifier, cause, _now()),
        )

    def _bury(self, connection: sqlite3.Connection) -> None:
        """Mark charges that nobody works on any more: each counts as a failure."""
        for identifier in self._running.dead(self._waiting(connection)):
            self._mark(connection, identifier, "failed")
            self._close_by(connection, identifier, "died")

    def _waiting(self, connection: sqlite3.Connection) -> set[int]:
        return set(chain(*connection.execute("SELECT id FROM charge WHERE state = 'reserved'")))

    def _standing(self, connection: sqlite3.Connection) -> Closing | None:
        """Return what keeps the session closed, the first of several."""
        row = connection.execute(
            "SELECT charge_id, cause, closed_at FROM closing WHERE reopening_id IS NULL ORDER BY id LIMIT 1"
        ).fetchone()
        return None if row is None else Closing(row[0], row[1], row[2], None, None)

    def _closed_since(self, connection: sqlite3.Connection, charge: Charge) -> Closing | None:
        """Return what closed the session after a charge was made, also if it was reopened since."""
        row = connection.execute(
            "SELECT charge_id, cause, closed_at, reopened_at, reason FROM closing "
            "LEFT JOIN reopening ON reopening.id = reopening_id WHERE closing.id > ? ORDER BY closing.id LIMIT 1",
            (charge.closings,),
        ).fetchone()
        return None if row is None else Closing(*row)

    def _times_closed(self, connection: sqlite3.Connection) -> int:
        (times,) = connection.execute("SELECT coalesce(max(id), 0) FROM closing").fetchone()
        return int(times)

    def close(self) -> None:
        """Close the file. A ledger in memory is gone then."""
        self._closed = True
        if not self._guard.inherited():
            self._running.close()
            self._connection.close()

    # ------------------------------------------------------------------ transactions

    def _spent(self) -> Cost:
        row = self._connection.execute(f"SELECT {', '.join(_COST)} FROM spent").fetchone()  # noqa: S608
        return _cost(row)

    def _reading(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        return self._transaction("BEGIN", sys._getframe(1))

    def _writing(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        return self._transaction("BEGIN IMMEDIATE", sys._getframe(1))

    @contextlib.contextmanager
    def _transaction(self, begin: str, frame: FrameType) -> Iterator[sqlite3.Connection]:
        """Hold the connection for the function that has this frame, and let no signal come between."""
        self._follow_fork()
        held = self._guard.held(storage.BUSY_SECONDS, frame)
        with held, Deferred(frame), storage.translated(self._name()), self._begun(begin) as connection:
            yield connection

    @contextlib.contextmanager
    def _begun(self, begin: str) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        if connection.in_transaction:  # left by an exception at an unlucky moment; nothing of it was committed
            connection.execute("ROLLBACK")
        try:
            connection.execute(begin)
            yield connection
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    def _name(self) -> str:
        return "the ledger in memory" if self.path is None else f"the ledger {self.path}"

    def _follow_fork(self) -> None:
        """Reopen the file in a forked child; a child of a session in memory has no budget of its own."""
        if self._closed:
            raise LedgerError("This session's ledger was closed. Open it again with Session.from_ledger(path).")
        if not self._guard.inherited():
            self._check_place()
            return
        if self.path is None:
            raise LedgerError(
                "This session lives in the memory of another process: a copy of its budget could be spent twice. Use "
                "Session(..., ledger='budget.db') to share one budget between processes."
            )
        agreed = self._agreed
        with storage.translated(self._name()):
            self._connection = storage.connect_file(self.path)
            self._guard = Exclusive(self._connection)
            self._file = os.stat(self.path)
            self._verify()
        if self.agreement()[0] != agreed:
            self.close()
            raise LedgerMismatch(f"The file {self.path} is not the ledger that this session was opened with.")

    def _check_place(self) -> None:
        """Refuse a file that was moved or replaced: charges would go into a file that nobody finds again."""
        if self.path is None or self._file is None:
            return
        try:
            same = os.path.samestat(os.stat(self.path), self._file)
        except OSError:
            same = False
        if not same:
            raise LedgerError(
                f"The ledger {self.path} was moved or replaced while it was open; what would be charged now would be "
                "lost. Nothing is released. Open the file that is there now with Session.from_ledger(path)."
            )


_SELECT_ENTRY = "SELECT id, label, state, epsilon, rho, delta, gaussian_delta, reserved_at, finished_at FROM charge"


def _texts(cost: Cost) -> tuple[str, ...]:
    return tuple(amount_text(getattr(cost, name)) for name in _COST)


def _cost(texts: list[str] | tuple[str, ...]) -> Cost:
    try:
        return Cost(**dict(zip(_COST, map(amount_of, texts), strict=True)))
    except (ValueError, ZeroDivisionError, TypeError):
        raise LedgerError("The ledger is damaged: an amount in it cannot be read. Nothing is released.") from None


def _entry(row: tuple[int, str, State, str, str, str, str, str, str | None]) -> Entry:
    identifier, label, state, *amounts, reserved_at, finished_at = row
    return Entry(
        id=identifier,
        label=label,
        state=state,
        cost=_cost(amounts),
        reserved_at=str(reserved_at),
        finished_at=finished_at,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
