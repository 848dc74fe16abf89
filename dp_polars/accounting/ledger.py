"""The record of what was charged: one SQLite database, in memory or in a file that processes share.

A charge is one transaction that reads the sums, asks the filter, and writes the charge and the new sums, before any
data are read; nothing ever takes a charge back. A release handed to a caller was committed here before. A process that
dies leaves its charge in place, in the state "reserved". The ledger holds prices, labels and released frames, never
anything else about the data.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from dp_polars.accounting import storage
from dp_polars.accounting.cost import NOTHING, Cost, amount_of, amount_text
from dp_polars.accounting.exclusive import Exclusive
from dp_polars.accounting.terms import Terms
from dp_polars.errors import LedgerError, LedgerMismatch

State = Literal["reserved", "committed", "failed"]

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


class Ledger:
    """An open ledger. Use `Ledger.create`, `Ledger.open` or `Ledger.in_memory`."""

    def __init__(self, path: Path | None, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._guard = Exclusive(connection)
        self._closed = False
        self._agreed: Terms | None = None

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
        if one("PRAGMA user_version") != storage.FORMAT:
            raise LedgerError(f"{self.path} was written by another version of dp_polars; use that version.")
        if one("PRAGMA quick_check(1)") != "ok":
            raise self._damaged()
        with self._read():
            rows = self._connection.execute(
                f"SELECT {', '.join(_COST)}, count(*) FROM release GROUP BY {', '.join(_COST)}"  # noqa: S608
            )
            charged = NOTHING
            for *amounts, times in rows:
                charged = charged + _cost(amounts) * times
            if charged != self._spent():
                raise self._damaged()

    def _damaged(self) -> LedgerError:
        return LedgerError(
            f"The ledger {self.path} is damaged: its rows and its sums disagree. Nothing can be released from it; "
            "restore it from a backup that has every release."
        )

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

    def find(self, key: bytes) -> tuple[Entry, bytes] | None:
        """Return the newest committed release of a key with its stored frame, if there is one."""
        with self._reading() as connection:
            row = connection.execute(
                _SELECT_ENTRY + " WHERE key = ? AND state = 'committed' ORDER BY id DESC LIMIT 1",
                (key,),
            ).fetchone()
            if row is None:
                return None
            stored = connection.execute("SELECT frame FROM result WHERE release_id = ?", (row[0],)).fetchone()
        return None if stored is None else (_entry(row), stored[0])

    def result(self, identifier: int) -> tuple[Entry, bytes] | None:
        """Return a committed release with its stored frame by its number."""
        with self._reading() as connection:
            row = connection.execute(_SELECT_ENTRY + " WHERE id = ? AND state = 'committed'", (identifier,)).fetchone()
            stored = connection.execute("SELECT frame FROM result WHERE release_id = ?", (identifier,)).fetchone()
        return None if row is None or stored is None else (_entry(row), stored[0])

    # ------------------------------------------------------------------ writing

    def reserve(self, cost: Cost, label: str, key: bytes | None, accepts: Callable[[Cost], bool]) -> int | None:
        """Charge `cost` if `accepts` says yes to the new sums; return the row's id, or None when refused.

        All in one transaction: no other process can charge between the question and the answer.
        """
        with self._writing() as connection:
            total = self._spent() + cost
            if not accepts(total):
                return None
            cursor = connection.execute(
                "INSERT INTO release (label, key, state, epsilon, rho, delta, gaussian_delta, reserved_at) "
                "VALUES (?, ?, 'reserved', ?, ?, ?, ?, ?)",
                (label, key, *_texts(cost), _now()),
            )
            connection.execute(
                "UPDATE spent SET epsilon = ?, rho = ?, delta = ?, gaussian_delta = ?",
                _texts(total),
            )
            return cursor.lastrowid

    def finish(self, identifier: int, state: State, frame: bytes | None = None) -> None:
        """Mark a reservation as committed, with its frame, or as failed. The charge stays either way."""
        with self._writing() as connection:
            changed = connection.execute(
                "UPDATE release SET state = ?, finished_at = ? WHERE id = ? AND state = 'reserved'",
                (state, _now(), identifier),
            )
            if changed.rowcount != 1:
                raise LedgerError("This reservation is finished already; a release happens once.")
            if frame is not None:
                connection.execute("INSERT INTO result VALUES (?, ?)", (identifier, frame))

    def close(self) -> None:
        """Close the file. A ledger in memory is gone then."""
        self._closed = True
        if not self._guard.inherited():
            self._connection.close()

    # ------------------------------------------------------------------ transactions

    def _spent(self) -> Cost:
        row = self._connection.execute(f"SELECT {', '.join(_COST)} FROM spent").fetchone()  # noqa: S608
        return _cost(row)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        self._follow_fork()
        with self._guard.held(storage.BUSY_SECONDS), storage.translated(self._name()), self._read() as connection:
            yield connection

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        self._follow_fork()
        held = self._guard.held(storage.BUSY_SECONDS)
        with held, storage.translated(self._name()), self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextlib.contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        if connection.in_transaction:  # left by an interrupt at an unlucky moment; nothing of it was committed
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
            raise LedgerError("This session was closed. Open its ledger again with Session.from_ledger(path).")
        if not self._guard.inherited():
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
            self._verify()
        if self.agreement()[0] != agreed:
            self.close()
            raise LedgerMismatch(f"The file {self.path} is not the ledger that this session was opened with.")


_SELECT_ENTRY = "SELECT id, label, state, epsilon, rho, delta, gaussian_delta, reserved_at, finished_at FROM release"


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
