"""The SQLite file behind a ledger: its schema, how it comes into being, and its errors in plain words.

Writes are synced to the disk with the directory entry (`synchronous=EXTRA`), so a charge survives a power cut, too.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from dp_polars.errors import LedgerError

APPLICATION_ID = 0x6470_6C72  # "dplr"
FORMAT = 1
BUSY_SECONDS = 60.0

_SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE agreement (terms TEXT NOT NULL, defaults TEXT NOT NULL);
CREATE TABLE spent (epsilon TEXT NOT NULL, rho TEXT NOT NULL, delta TEXT NOT NULL, gaussian_delta TEXT NOT NULL);
CREATE TABLE release (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    label TEXT NOT NULL,
    key BLOB,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'committed', 'failed')),
    epsilon TEXT NOT NULL, rho TEXT NOT NULL, delta TEXT NOT NULL, gaussian_delta TEXT NOT NULL,
    reserved_at TEXT NOT NULL,
    finished_at TEXT
);
CREATE INDEX release_by_key ON release (key, id) WHERE key IS NOT NULL;
CREATE TABLE result (release_id INTEGER PRIMARY KEY REFERENCES release (id), frame BLOB NOT NULL);
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
    "SQLITE_PERM": "the file must not be accessed",
}


def create_file(path: Path, terms: str, defaults: str) -> None:
    """Put a complete new ledger at `path`, or leave the one that another process put there first.

    It is written under another name and linked into place: nobody ever sees half a ledger, and an empty or cut
    file is never taken for a new one.
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
    """Make the new name survive a power cut: a ledger that vanished would be a budget to spend again."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def initialise(connection: sqlite3.Connection, terms: str, defaults: str) -> None:
    """Write the schema, the agreement and sums of zero into an empty database."""
    connection.executescript("BEGIN;" + _SCHEMA)
    connection.execute("INSERT INTO agreement VALUES (?, ?)", (terms, defaults))
    connection.execute("INSERT INTO spent VALUES ('0', '0', '0', '0')")
    connection.execute("COMMIT")


def connect_file(path: Path) -> sqlite3.Connection:
    """Open an existing file; one that vanished is an error, never a new, empty budget."""
    return connect(f"{path.resolve().as_uri()}?mode=rw", uri=True)


def connect(database: str, uri: bool = False) -> sqlite3.Connection:
    """Open a database with every write synced."""
    connection = sqlite3.connect(database, uri=uri, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cache_spill = OFF")  # nothing reaches the file before the commit
    return connection


@contextlib.contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn SQLite's errors into ours, which say that nothing was released."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", "") or ""
        reason = next((text for start, text in _REASONS.items() if code.startswith(start)), "SQLite failed")
        raise LedgerError(
            f"{name[0].upper()}{name[1:]} could not be used: {reason} ({code or type(error).__name__}). Without a "
            "record of the charge nothing is released."
        ) from None
