"""The SQLite file behind a ledger: its schema, its creation and migration, and its errors in plain words.

Every write is synced to the disk together with the directory entry (`synchronous=EXTRA`), so a charge survives a
power cut.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from dp_polars.errors import LedgerError

APPLICATION_ID = 0x6470_6C72  # "dplr"
FORMAT = 4
BUSY_SECONDS = 60.0

_ADDED = """
CREATE INDEX charge_by_key ON charge (key, id) WHERE key IS NOT NULL;
CREATE INDEX charge_at_work ON charge (id) WHERE state = 'reserved';
CREATE TABLE reopening (id INTEGER PRIMARY KEY AUTOINCREMENT, reason TEXT NOT NULL, reopened_at TEXT NOT NULL);
CREATE TABLE closing (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    charge_id INTEGER NOT NULL REFERENCES charge (id),
    cause TEXT NOT NULL CHECK (cause IN ('failed', 'died')),
    closed_at TEXT NOT NULL,
    reopening_id INTEGER REFERENCES reopening (id)
);
CREATE TABLE fact (
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    value TEXT NOT NULL,
    recorded_at TEXT NOT NULL,
    PRIMARY KEY (kind, subject)
);
"""

# Noisy numbers have their own table, so a process which still runs the older version can go on: what it releases is
# found again as before, by the whole question.
_DRAWS = """
CREATE TABLE draw (
    charge_id INTEGER PRIMARY KEY REFERENCES charge (id),
    key BLOB NOT NULL,
    numbers BLOB NOT NULL,
    estimates TEXT NOT NULL
);
CREATE INDEX draw_by_key ON draw (key, charge_id);
"""

# The charges of an owner have no analyst. A process which still runs the older version charges as the owner does, and
# stops at every closing.
_ANALYSTS = """
ALTER TABLE charge ADD COLUMN analyst TEXT;
CREATE INDEX charge_by_analyst ON charge (analyst) WHERE analyst IS NOT NULL;
CREATE TABLE analyst (name TEXT PRIMARY KEY, share TEXT NOT NULL, granted_at TEXT NOT NULL);
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    analyst TEXT NOT NULL,
    asked TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('charged', 'stored', 'refused')),
    charge_id INTEGER REFERENCES charge (id),
    reason TEXT
);
"""

_SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE agreement (terms TEXT NOT NULL, defaults TEXT NOT NULL, identity TEXT NOT NULL DEFAULT '');
CREATE TABLE spent (epsilon TEXT NOT NULL, rho TEXT NOT NULL, delta TEXT NOT NULL, gaussian_delta TEXT NOT NULL);
CREATE TABLE charge (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    label TEXT NOT NULL,
    key BLOB,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'committed', 'failed')),
    epsilon TEXT NOT NULL, rho TEXT NOT NULL, delta TEXT NOT NULL, gaussian_delta TEXT NOT NULL,
    reserved_at TEXT NOT NULL,
    finished_at TEXT
);
CREATE TABLE result (charge_id INTEGER PRIMARY KEY REFERENCES charge (id), frame BLOB NOT NULL);
{_ADDED}{_DRAWS}{_ANALYSTS}"""

# Format 1 had a table `release`. It is renamed so that a process which still runs the older version can neither charge
# nor release: that version does not know that a session can be closed.
_FROM_1 = f"""
ALTER TABLE release RENAME TO charge;
ALTER TABLE result RENAME COLUMN release_id TO charge_id;
DROP INDEX release_by_key;
ALTER TABLE agreement ADD COLUMN identity TEXT NOT NULL DEFAULT '';
{_ADDED}
PRAGMA user_version = 2;
"""
_FROM_2 = f"""{_DRAWS}
PRAGMA user_version = 3;
"""
_FROM_3 = f"""{_ANALYSTS}
PRAGMA user_version = 4;
"""

_REASONS = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_READONLY": "the file or its folder is read-only",
    "SQLITE_NOTADB": "the file is not a ledger",
    "SQLITE_CORRUPT": "the file is damaged",
    "SQLITE_BUSY": f"another process held it for more than {BUSY_SECONDS:g} seconds",
    "SQLITE_CANTOPEN": "the file cannot be opened",
    "SQLITE_IOERR": "the disk reported an error",
    "SQLITE_TOOBIG": "the released frame is larger than a ledger can store",
    "SQLITE_PERM": "access to the file is denied",
}


def create_file(path: Path, terms: str, defaults: str) -> None:
    """Put a complete new ledger at `path`, unless another process puts one there first.

    The ledger is written under another name and then linked into place, so nobody ever sees half a ledger, and an empty
    or truncated file is never taken for a new one.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        with translated(f"the ledger {path}"):
            connection = connect(str(draft))
            try:
                initialise(connection, terms, defaults)
            finally:
                connection.close()
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise LedgerError(f"The ledger {path} cannot be created: {error.strerror}.") from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def _sync_folder(folder: Path) -> None:
    """Make the new file name survive a power cut: if the ledger vanished, its budget could be spent again."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def connect_memory(terms: str, defaults: str) -> sqlite3.Connection:
    """Open a new ledger in memory. Copying the schema is five times as fast as executing it again."""
    connection = connect(":memory:")
    with _schema_lock:
        _schema_in_memory(os.getpid()).backup(connection)
    connection.execute("BEGIN")
    _agree(connection, terms, defaults)
    return connection


_schema_lock = threading.Lock()


@lru_cache(maxsize=1)
def _schema_in_memory(process: int) -> sqlite3.Connection:
    """Return a database of this process that has the schema and no row."""
    connection = connect(":memory:")
    connection.executescript(f"BEGIN;{_SCHEMA}COMMIT;")
    return connection


def initialise(connection: sqlite3.Connection, terms: str, defaults: str) -> None:
    """Write the schema, the terms and sums of zero into an empty database."""
    connection.executescript("BEGIN;" + _SCHEMA)
    _agree(connection, terms, defaults)


def _agree(connection: sqlite3.Connection, terms: str, defaults: str) -> None:
    connection.execute("INSERT INTO agreement VALUES (?, ?, ?)", (terms, defaults, secrets.token_hex(16)))
    connection.execute("INSERT INTO spent VALUES ('0', '0', '0', '0')")
    connection.execute("COMMIT")


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a ledger of an older format up to date, in one transaction: a crash leaves either format whole."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have migrated it in the meantime.
        if connection.execute("PRAGMA user_version").fetchone()[0] == 1:
            for statement in _FROM_1.split(";"):
                connection.execute(statement)
            connection.execute("UPDATE agreement SET identity = ?", (secrets.token_hex(16),))
        if connection.execute("PRAGMA user_version").fetchone()[0] == 2:
            for statement in _FROM_2.split(";"):
                connection.execute(statement)
        if connection.execute("PRAGMA user_version").fetchone()[0] == 3:
            for statement in _FROM_3.split(";"):
                connection.execute(statement)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def connect_file(path: Path) -> sqlite3.Connection:
    """Open an existing file. A file that vanished is an error and never becomes a new ledger with a full budget."""
    return connect(f"{path.resolve().as_uri()}?mode=rw", uri=True)


def connect(database: str, uri: bool = False) -> sqlite3.Connection:
    """Open a database so that every write is synced to the disk."""
    connection = sqlite3.connect(database, uri=uri, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cache_spill = OFF")  # so that nothing reaches the file before the commit
    return connection


@contextlib.contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn SQLite's errors into `LedgerError`, which says that nothing was released."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", "") or ""
        reason = next((text for start, text in _REASONS.items() if code.startswith(start)), "SQLite failed")
        raise LedgerError(
            f"{name[0].upper()}{name[1:]} could not be used: {reason} ({code or type(error).__name__}). Nothing is "
            "released without a record of the charge."
        ) from None
