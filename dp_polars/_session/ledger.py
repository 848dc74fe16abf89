"""The ledger: the record of everything that a session was charged, in memory or in a SQLite file that processes share.

A charge is one transaction: it reads the sums, asks the filter, and writes the charge and the new sums. It is made
before any data are read, and nothing ever takes it back. A frame is handed to a caller only after it was committed
here. A process that dies leaves its charge in place. The next process that looks finds that nobody holds the charge's
lock, and marks the charge as failed. The ledger holds costs, labels, released frames, and facts that the owner of the
data declared to be public. It holds nothing else about the data. A fact is recorded once and never changes.

A charge that fails after rows were read, or whose process dies, closes the session: one person's row may be the cause,
and nobody paid to learn that. Nothing is charged until the owner reopens the session. A query that was under way when
the session closed gets no release either, even if the session has been reopened since: a hundred queries that run at
the same time must not tell more than one.

A charge may belong to an analyst, who has a share of the budget. It must fit the share as well as the whole budget, in
the same transaction. If it fails, it closes that share and nothing else; a charge of the owner closes everything.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Literal

from dp_polars._session import ledger_file as storage
from dp_polars._session.cost import NOTHING, Cost, amount_of, amount_text
from dp_polars._session.exclusive_lock import Exclusive
from dp_polars._session.interrupts import Deferred
from dp_polars._session.open_charges import OpenCharges
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError, LedgerError, LedgerMismatch, SessionClosed

State = Literal["reserved", "committed", "failed"]
Cause = Literal["failed", "died"]
Outcome = Literal["charged", "stored", "refused"]

_COST = ("epsilon", "rho", "delta", "gaussian_delta")


@dataclass(frozen=True)
class Entry:
    """One charge as a row of the ledger."""

    id: int
    label: str
    state: State
    cost: Cost
    reserved_at: str
    finished_at: str | None
    analyst: str | None = None


@dataclass(frozen=True)
class Closing:
    """A charge that closed the session or an analyst's share, and how it was reopened.

    Attributes
    ----------
    charge
        The number of the charge.
    cause
        "failed": a query failed on private rows. "died": the process ended before the charge was finished.
    closed_at
        The time at which the session was closed.
    reopened_at, reason
        When and why the owner reopened the session; None while it is closed.
    analyst
        The analyst whose share was closed; None if the whole session was.

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
    analyst: str | None = None


@dataclass(frozen=True)
class AuditRecord:
    """One question of an analyst, as the ledger keeps it: who asked what, when, and what came of it.

    It never holds anything that was read from the data. `charge` is the number of the charge, if there was one, and
    `reason` the code of the error if the question was refused.
    """

    at: str
    analyst: str
    asked: str
    outcome: str
    charge: int | None
    reason: str | None


@dataclass(frozen=True)
class Charge:
    """A charge that waits for its release.

    Attributes
    ----------
    id
        Its number in the ledger.
    closings
        How often the session had been closed when the charge was made.
    before
        What the session had spent before.
    analyst
        The analyst who asked; None for the owner.
    """

    id: int
    closings: int
    before: Cost
    analyst: str | None = None


@dataclass(frozen=True)
class Asker:
    """Who asks a question: an analyst, and the statement or expression as it was asked."""

    analyst: str
    asked: str


Accepts = Callable[[Cost, Cost | None, Fraction], bool]
"""Tells whether sums may be charged: of the session, and of an analyst (None for the owner) with a share."""


@dataclass(frozen=True)
class Fact:
    """A fact about the data that its owner declared to be public. It is recorded once and never changes.

    Attributes
    ----------
    kind, subject, value
        What kind of fact it is, what it is about, and what it says. For the column types of a text file, the kind is
        "column types", the subject is the path, and the value is a JSON list of pairs of a column and a type.
    recorded_at
        The time at which it was recorded.

    Examples
    --------
    >>> import dp_polars as dp
    >>> print(dp.Fact("column types", "/data/visits.csv", '[["user_id", "BIGINT"]]', "2026-03-01T09:05:59+00:00"))
    column types of /data/visits.csv: user_id BIGINT
    """

    kind: str
    subject: str
    value: str
    recorded_at: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.subject}: {', '.join(' '.join(pair) for pair in json.loads(self.value))}"


@dataclass(frozen=True)
class StoredDraw:
    """Noisy numbers as the ledger keeps them: their key, a stored frame, and the estimates before them as JSON."""

    key: bytes
    numbers: bytes
    estimates: str


class Ledger:
    """An open ledger. Get one from `Ledger.in_memory`, `Ledger.at` or `Ledger.open`."""

    def __init__(self, path: Path | None, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._guard = Exclusive(connection)
        self._closed = False
        self._agreed: Terms | None = None
        self._open_charges = OpenCharges(path)
        self._file = None if path is None else os.stat(path)

    @classmethod
    def in_memory(cls, terms: Terms, defaults: str) -> Ledger:
        """Return a new ledger that ends with this process."""
        with storage.translated("the ledger in memory"):
            connection = storage.connect_memory(terms.to_json(), defaults)
        return cls(None, connection)

    @classmethod
    def at(cls, path: Path, terms: Terms, defaults: str) -> Ledger:
        """Return the ledger in a file, which is created if there is none. Refuse a file with other terms."""
        path = path.absolute()
        if not path.exists():
            storage.create_file(path, terms.to_json(), defaults)
        ledger = cls.open(path)
        found, _ = ledger.agreement()
        if found != terms:
            ledger.close()
            raise LedgerMismatch(
                f"The ledger {path} was created with other terms: {'; '.join(found.differences(terms))}. A ledger "
                "keeps its terms. Open it with Session.from_ledger(path), or use another file for other terms."
            )
        return ledger

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """Return the ledger in an existing file, after checking that it is a ledger and is undamaged."""
        # The path is resolved once so that a later change of the working directory can't lead to another file.
        path = path.resolve()
        if not path.is_file():
            raise LedgerError(
                f"There is no ledger at {path}. Create it with Session(..., ledger=path).", code="ledger-not-found"
            )
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
        def scalar(sql: str) -> object:
            return self._connection.execute(sql).fetchone()[0]

        if scalar("PRAGMA application_id") != storage.APPLICATION_ID:
            raise LedgerError(
                f"{self.path} is not a dp_polars ledger. Nothing was changed. Choose another path.", code="not-a-ledger"
            )
        written = scalar("PRAGMA user_version")
        if not isinstance(written, int) or not 1 <= written <= storage.FORMAT:
            raise LedgerError(
                f"{self.path} was written by another version of dp_polars: its format is {written}, and this version "
                f"reads formats 1 to {storage.FORMAT}. Nothing was changed. Open it with the version that "
                "wrote it, or a newer one.",
                code="ledger-format",
            )
        if scalar("PRAGMA quick_check(1)") != "ok":
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
            self._check_count()

    def _damaged(self) -> LedgerError:
        return LedgerError(
            f"The ledger {self.path} is damaged: its charges and its sums disagree. Nothing can be released from it. "
            "Restore it from a backup that has every release.",
            code="ledger-damaged",
        )

    def _check_count(self) -> str:
        """Return the ledger's identity. Refuse an older copy, which has fewer charges than were made."""
        (identity,) = self._connection.execute("SELECT identity FROM agreement").fetchone()
        (last,) = self._connection.execute("SELECT coalesce(max(id), 0) FROM charge").fetchone()
        recorded = self._open_charges.recorded_count(identity)
        if recorded > last:
            raise LedgerError(
                f"The ledger {self.path} has {last:,} charges, but {recorded:,} were made: an older copy was put in "
                "its place, and the budget that was spent since would be spent again. Restore the newest copy. If it "
                "is lost, agree on a new budget in a new ledger. Deleting "
                f"{self.path}-running makes the old copy usable, but then the guarantee does not hold.",
                code="ledger-outdated",
            )
        return str(identity)

    # ------------------------------------------------------------------ reading

    def agreement(self) -> tuple[Terms, str]:
        """Return the terms of the session, and its defaults as JSON."""
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

    def spent_before(self, identifier: int) -> Cost:
        """Return the sum of the charges that were made before a charge."""
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT {', '.join(_COST)}, count(*) FROM charge WHERE id < ? GROUP BY {', '.join(_COST)}",  # noqa: S608
                (identifier,),
            ).fetchall()
        return sum((_cost(amounts) * times for *amounts, times in rows), NOTHING)

    def entries(self) -> list[Entry]:
        """Return all charges in the order in which they were made."""
        with self._reading() as connection:
            rows = connection.execute(_SELECT_ENTRY + " ORDER BY id").fetchall()
        return [_entry(row) for row in rows]

    def entry(self, identifier: int) -> Entry:
        """Return one charge by its number."""
        with self._reading() as connection:
            row = connection.execute(_SELECT_ENTRY + " WHERE id = ?", (identifier,)).fetchone()
        return _entry(row)

    def closings(self) -> list[Closing]:
        """Return every closing of the session and of its analysts' shares, in order."""
        self.fail_dead_charges()
        with self._reading() as connection:
            rows = connection.execute(_SELECT_CLOSING + " ORDER BY closing.id").fetchall()
        return [Closing(*row) for row in rows]

    # ------------------------------------------------------------------ analysts

    def shares(self) -> dict[str, Fraction]:
        """Return the share of each analyst, in the order of their names."""
        with self._reading() as connection:
            rows = connection.execute("SELECT name, share FROM analyst ORDER BY name").fetchall()
        return {name: _share(text) for name, text in rows}

    def grant(self, analyst: str, share: Fraction, most: Fraction | None) -> Fraction:
        """Give an analyst a share, instead of an earlier one, unless all shares would then sum to more than `most`.

        Return the sum of all shares, as it is or would be.
        """
        with self._writing() as connection:
            others = connection.execute("SELECT share FROM analyst WHERE name <> ?", (analyst,)).fetchall()
            total = sum((_share(text) for (text,) in others), share)
            if most is None or total <= most:
                connection.execute(
                    "INSERT INTO analyst VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE "
                    "SET share = excluded.share, granted_at = excluded.granted_at",
                    (analyst, str(share), _now()),
                )
        return total

    def spent_by(self, analyst: str) -> tuple[Cost, Fraction]:
        """Return the sum of an analyst's charges, and the analyst's share."""
        with self._reading() as connection:
            return self._spent_by(connection, analyst)

    def _spent_by(self, connection: sqlite3.Connection, analyst: str) -> tuple[Cost, Fraction]:
        granted = connection.execute("SELECT share FROM analyst WHERE name = ?", (analyst,)).fetchone()
        if granted is None:
            raise InvalidParameterError(
                "This analyst has no share of the session. The owner gives one: session.grant('team-a', share=0.25).",
                code="no-such-analyst",
            )
        rows = connection.execute(
            f"SELECT {', '.join(_COST)}, count(*) FROM charge WHERE analyst = ? GROUP BY {', '.join(_COST)}",  # noqa: S608
            (analyst,),
        ).fetchall()
        return sum((_cost(amounts) * times for *amounts, times in rows), NOTHING), _share(granted[0])

    def note(self, asker: Asker, outcome: Outcome, *, charge: int | None = None, reason: str | None = None) -> None:
        """Record in the audit log what came of a question that was not charged."""
        with self._writing() as connection:
            self._note(connection, asker, outcome, charge, reason)

    def _note(
        self, connection: sqlite3.Connection, asker: Asker, outcome: Outcome, charge: int | None, reason: str | None
    ) -> None:
        connection.execute(
            "INSERT INTO audit (at, analyst, asked, outcome, charge_id, reason) VALUES (?, ?, ?, ?, ?, ?)",
            (_now(), asker.analyst, asker.asked, outcome, charge, reason),
        )

    def audit(self) -> list[AuditRecord]:
        """Return the audit log in order. The outcome of a charged question is the state of its charge."""
        self.fail_dead_charges()
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT at, audit.analyst, asked, CASE outcome WHEN 'charged' THEN state ELSE outcome END, charge_id, "
                "reason FROM audit LEFT JOIN charge ON charge.id = charge_id ORDER BY audit.id"
            ).fetchall()
        return [AuditRecord(*row) for row in rows]

    def reopenings(self) -> int:
        """Return how often the session was reopened."""
        with self._reading() as connection:
            (times,) = connection.execute("SELECT count(*) FROM reopening").fetchone()
            return int(times)

    def facts(self) -> list[Fact]:
        """Return the facts that the owner of the data declared to be public, in order."""
        with self._reading() as connection:
            rows = connection.execute("SELECT kind, subject, value, recorded_at FROM fact ORDER BY rowid").fetchall()
        return [Fact(*row) for row in rows]

    def record(self, kind: str, subject: str, value: str) -> str:
        """Record a fact unless there is one of its kind about its subject, and return the value that is recorded."""
        with self._writing() as connection:
            connection.execute("INSERT OR IGNORE INTO fact VALUES (?, ?, ?, ?)", (kind, subject, value, _now()))
            (recorded,) = connection.execute(
                "SELECT value FROM fact WHERE kind = ? AND subject = ?", (kind, subject)
            ).fetchone()
        return str(recorded)

    def fail_dead_charges(self) -> None:
        """Mark charges whose process died, which closes the session. A ledger that may only be read stays as it is."""
        with self._reading() as connection:
            waiting = self._waiting(connection)
        with contextlib.suppress(LedgerError):
            if self._open_charges.dead(waiting):
                with self._writing() as connection:
                    self._fail_dead_charges(connection)

    def refuse_closed(self, analyst: str | None = None) -> int:
        """Raise `SessionClosed` if the session, or this analyst's share, is closed.

        Otherwise return a number that grows with each closing of them.
        """
        self.fail_dead_charges()
        with self._reading() as connection:
            closing, times = self._current_closing(connection, analyst), self._times_closed(connection, analyst)
        if closing is not None:
            raise SessionClosed(closing)
        return times

    def find(self, key: bytes) -> tuple[Entry, bytes] | None:
        """Return the newest committed release under a key with its stored frame, or None."""
        with self._reading() as connection:
            row = connection.execute(
                _SELECT_ENTRY + " WHERE key = ? AND state = 'committed' ORDER BY id DESC LIMIT 1",
                (key,),
            ).fetchone()
            if row is None:
                return None
            stored = connection.execute("SELECT frame FROM result WHERE charge_id = ?", (row[0],)).fetchone()
        return None if stored is None else (_entry(row), stored[0])

    def find_draw(self, key: bytes) -> tuple[Entry, StoredDraw] | None:
        """Return the newest noisy numbers under a key, with the charge that paid for them, or None."""
        with self._reading() as connection:
            stored = connection.execute(
                "SELECT charge_id, numbers, estimates FROM draw WHERE key = ? ORDER BY charge_id DESC LIMIT 1", (key,)
            ).fetchone()
            if stored is None:
                return None
            row = connection.execute(_SELECT_ENTRY + " WHERE id = ?", (stored[0],)).fetchone()
        return _entry(row), StoredDraw(key, *stored[1:])

    def result(self, identifier: int) -> tuple[Entry, bytes] | None:
        """Return a committed release by its number with its stored frame, or None."""
        with self._reading() as connection:
            row = connection.execute(_SELECT_ENTRY + " WHERE id = ? AND state = 'committed'", (identifier,)).fetchone()
            stored = connection.execute("SELECT frame FROM result WHERE charge_id = ?", (identifier,)).fetchone()
        return None if row is None or stored is None else (_entry(row), stored[0])

    # ------------------------------------------------------------------ writing

    def reserve(
        self, cost: Cost, label: str, key: bytes | None, accepts: Accepts, asker: Asker | None = None
    ) -> Charge | None:
        """Charge `cost` if `accepts` returns True for the new sums. Return the charge, or None if it was refused.

        This is one transaction, so no other process can make a charge in between. The charge is locked before other
        processes can see it.
        """
        made: list[Charge] = []
        with Deferred():
            try:
                identity, closing = self._charge_unless_closed(cost, label, key, accepts, asker, made)
            except BaseException:
                for charge in made:  # SQLite may or may not have committed it; no rows were read yet
                    with contextlib.suppress(LedgerError):
                        self.fail(charge, closes=False)
                    # Otherwise another process could not lock a new charge that gets the same number.
                    self._open_charges.end(charge.id)
                raise
            for charge in made:
                self._open_charges.record_count(identity, charge.id)
        if closing is not None:
            raise SessionClosed(closing)
        return made[0] if made else None

    def _charge_unless_closed(
        self, cost: Cost, label: str, key: bytes | None, accepts: Accepts, asker: Asker | None, made: list[Charge]
    ) -> tuple[str, Closing | None]:
        with self._writing() as connection:
            identity = self._check_count()
            self._fail_dead_charges(connection)
            closing = self._current_closing(connection, None if asker is None else asker.analyst)
            if closing is None:
                self._charge(connection, cost, label, key, accepts, asker, made)
            if asker is not None:
                reason = "session-closed" if closing is not None else None if made else "budget-exceeded"
                self._note(connection, asker, "charged" if made else "refused", made[0].id if made else None, reason)
        return identity, closing

    def _charge(
        self,
        connection: sqlite3.Connection,
        cost: Cost,
        label: str,
        key: bytes | None,
        accepts: Accepts,
        asker: Asker | None,
        made: list[Charge],
    ) -> None:
        before, analysts_cost, share = self._spent(), None, Fraction(1)
        total = Cost.__add__(before, cost)  # a subclass could add up differently
        analyst = None if asker is None else asker.analyst
        if analyst is not None:
            spent, share = self._spent_by(connection, analyst)
            analysts_cost = Cost.__add__(spent, cost)
        if not accepts(total, analysts_cost, share):
            return
        cursor = connection.execute(
            "INSERT INTO charge (label, key, state, epsilon, rho, delta, gaussian_delta, reserved_at, analyst) "
            "VALUES (?, ?, 'reserved', ?, ?, ?, ?, ?, ?)",
            (label, key, *_texts(cost), _now(), analyst),
        )
        connection.execute(
            "UPDATE spent SET epsilon = ?, rho = ?, delta = ?, gaussian_delta = ?",
            _texts(total),
        )
        charge = Charge(cursor.lastrowid or 0, self._times_closed(connection, analyst), before, analyst)
        self._open_charges.start(charge.id)
        made.append(charge)

    def commit(self, charge: Charge, frame: bytes, draw: StoredDraw | None = None) -> None:
        """Store the release of a charge. If the session was closed since the charge, mark it as failed instead.

        `draw` holds the noisy numbers that the release was made from, if other presentations of them are free.
        """
        with Deferred():
            with self._writing() as connection:
                closing = self._closed_since(connection, charge)
                if closing is not None:
                    self._mark(connection, charge.id, "failed")
                else:
                    self._finish(connection, charge.id, "committed")
                    connection.execute("INSERT INTO result VALUES (?, ?)", (charge.id, frame))
                    if draw is not None:
                        row = (charge.id, draw.key, draw.numbers, draw.estimates)
                        connection.execute("INSERT INTO draw VALUES (?, ?, ?, ?)", row)
            self._open_charges.end(charge.id)
        if closing is not None:
            raise SessionClosed(closing)

    def fail(self, charge: Charge, *, closes: bool) -> Closing | None:
        """Mark a charge as failed and, with `closes`, close the session. Return what had closed it since the charge."""
        with Deferred():
            try:
                with self._writing() as connection:
                    closing = self._closed_since(connection, charge)
                    self._finish(connection, charge.id, "failed")
                    if closes:
                        self._close_by(connection, charge.id, "failed")
            except BaseException:
                if closes:  # the failure could not be written, so the charge must count as dead
                    self._open_charges.end(charge.id)
                raise
            self._open_charges.end(charge.id)
        return closing

    def close_by(self, identifier: int) -> None:
        """Close the session because of a failure that belongs to a finished charge, such as that of an open stream."""
        with self._writing() as connection:
            self._close_by(connection, identifier, "failed")

    def reopen(self, reason: str, analyst: str | None = None) -> None:
        """Reopen a closed session, or the closed share of an analyst, on behalf of the owner."""
        with self._writing() as connection:
            self._fail_dead_charges(connection)
            closed = connection.execute(
                "SELECT DISTINCT analyst FROM closing JOIN charge ON charge.id = charge_id WHERE reopening_id IS NULL"
            ).fetchall()
            if (analyst,) not in closed:
                names = sorted(name for (name,) in closed if name is not None)
                what = "This session" if analyst is None else "This analyst's share"
                raise InvalidParameterError(
                    f"{what} is not closed, so there is nothing to reopen."
                    + (f" Closed shares: {', '.join(names)}; name one with analyst=." if names else "")
                )
            cursor = connection.execute(
                "INSERT INTO reopening (reason, reopened_at) VALUES (?, ?)",
                (reason, _now()),
            )
            connection.execute(
                "UPDATE closing SET reopening_id = ? WHERE reopening_id IS NULL "
                "AND charge_id IN (SELECT id FROM charge WHERE analyst IS ?)",
                (cursor.lastrowid, analyst),
            )

    def _mark(self, connection: sqlite3.Connection, identifier: int, state: State) -> int:
        """Give an open charge its final state. Return the number of charges changed: 1, or 0 if it was not open."""
        return connection.execute(
            "UPDATE charge SET state = ?, finished_at = ? WHERE id = ? AND state = 'reserved'",
            (state, _now(), identifier),
        ).rowcount

    def _finish(self, connection: sqlite3.Connection, identifier: int, state: State) -> None:
        if not self._mark(connection, identifier, state):
            raise LedgerError("This reservation is already finished: it can be released once.")

    def _close_by(self, connection: sqlite3.Connection, identifier: int, cause: Cause) -> None:
        connection.execute(
            "INSERT INTO closing (charge_id, cause, closed_at) VALUES (?, ?, ?)",
            (identifier, cause, _now()),
        )

    def _fail_dead_charges(self, connection: sqlite3.Connection) -> None:
        """Mark the charges on which no process works any more. Each counts as a failure."""
        for identifier in self._open_charges.dead(self._waiting(connection)):
            self._mark(connection, identifier, "failed")
            self._close_by(connection, identifier, "died")

    def _waiting(self, connection: sqlite3.Connection) -> set[int]:
        return set(chain(*connection.execute("SELECT id FROM charge WHERE state = 'reserved'")))

    def _current_closing(self, connection: sqlite3.Connection, analyst: str | None) -> Closing | None:
        """Return the first closing that stops an analyst (None for the owner), or None."""
        row = connection.execute(
            f"{_SELECT_CLOSING} WHERE reopening_id IS NULL AND {_STOPS} ORDER BY closing.id LIMIT 1", (analyst,)
        ).fetchone()
        return None if row is None else Closing(*row)

    def _closed_since(self, connection: sqlite3.Connection, charge: Charge) -> Closing | None:
        """Return the first closing after a charge was made, even if the session was reopened since, or None."""
        row = connection.execute(
            f"{_SELECT_CLOSING} WHERE closing.id > ? AND {_STOPS} ORDER BY closing.id LIMIT 1",
            (charge.closings, charge.analyst),
        ).fetchone()
        return None if row is None else Closing(*row)

    def _times_closed(self, connection: sqlite3.Connection, analyst: str | None) -> int:
        (times,) = connection.execute(
            f"SELECT coalesce(max(closing.id), 0) FROM closing JOIN charge ON charge.id = charge_id WHERE {_STOPS}",  # noqa: S608
            (analyst,),
        ).fetchone()
        return int(times)

    def close(self) -> None:
        """Close the ledger. A ledger in memory is lost with it."""
        self._closed = True
        if not self._guard.inherited():
            self._open_charges.close()
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
        """Hold the connection for the function with this frame, and make signals wait meanwhile."""
        self._follow_fork()
        held = self._guard.held(storage.BUSY_SECONDS, frame)
        with held, Deferred(frame), storage.translated(self._name()), self._begun(begin) as connection:
            yield connection

    @contextlib.contextmanager
    def _begun(self, begin: str) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        if connection.in_transaction:  # an exception left it open; nothing of it was committed
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
        """Open the file again in a forked child. A child has no budget of its own if the session is in memory."""
        if self._closed:
            raise LedgerError(
                "This session's ledger was closed. Open it again with Session.from_ledger(path).", code="ledger-closed"
            )
        if not self._guard.inherited():
            self._check_place()
            return
        if self.path is None:
            raise LedgerError(
                "This session is in the memory of another process, and a copy of its budget could be spent twice. Use "
                "Session(..., ledger='budget.db') to share one budget between processes.",
                code="session-in-memory",
            )
        agreed = self._agreed
        with storage.translated(self._name()):
            self._connection = storage.connect_file(self.path)
            self._guard = Exclusive(self._connection)
            self._file = os.stat(self.path)
            self._verify()
        if self.agreement()[0] != agreed:
            self.close()
            raise LedgerMismatch(
                f"The file {self.path} is not the ledger that this session was opened with.", code="ledger-replaced"
            )

    def _check_place(self) -> None:
        """Refuse a file that was moved or replaced: charges would go into a file that nobody opens again."""
        if self.path is None or self._file is None:
            return
        try:
            same = os.path.samestat(os.stat(self.path), self._file)
        except OSError:
            same = False
        if not same:
            raise LedgerError(
                f"The ledger {self.path} was moved or replaced while it was open, so new charges would be lost. "
                "Nothing is released. Open the file that is there now with Session.from_ledger(path).",
                code="ledger-replaced",
            )


_SELECT_ENTRY = (
    "SELECT id, label, state, epsilon, rho, delta, gaussian_delta, reserved_at, finished_at, analyst FROM charge"
)
_SELECT_CLOSING = (
    "SELECT charge_id, cause, closed_at, reopened_at, reason, analyst FROM closing "
    "JOIN charge ON charge.id = charge_id LEFT JOIN reopening ON reopening.id = reopening_id"
)
_STOPS = "(analyst IS NULL OR analyst IS ?)"
"""A failure of the owner stops everybody, and that of an analyst stops this analyst."""


def _texts(cost: Cost) -> tuple[str, ...]:
    return tuple(amount_text(getattr(cost, name)) for name in _COST)


def _cost(texts: list[str] | tuple[str, ...]) -> Cost:
    try:
        return Cost(**dict(zip(_COST, map(amount_of, texts), strict=True)))
    except (ValueError, ZeroDivisionError, TypeError):
        raise LedgerError(
            "The ledger is damaged: an amount in it cannot be read. Nothing is released.", code="ledger-damaged"
        ) from None


def _share(text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError, TypeError):
        raise LedgerError(
            "The ledger is damaged: a share in it cannot be read. Nothing is released.", code="ledger-damaged"
        ) from None


def _entry(row: tuple[int, str, State, str, str, str, str, str, str | None, str | None]) -> Entry:
    identifier, label, state, *amounts, reserved_at, finished_at, analyst = row
    return Entry(
        id=identifier,
        label=label,
        state=state,
        cost=_cost(amounts),
        reserved_at=str(reserved_at),
        finished_at=finished_at,
        analyst=analyst,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
