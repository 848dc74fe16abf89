"""Open charges: each holds a lock of the operating system until it is committed or has failed.

A process that dies loses its locks, whatever the cause. So a charge that is neither committed nor failed, and whose
lock nobody holds, belongs to a query that died.

The locks are POSIX record locks (on Windows, those of `msvcrt`) on single bytes of a file beside the ledger,
`budget.db-running`. Byte number `_FIRST + id` belongs to the charge `id`. Locks are taken and tested only inside the
ledger's own write transactions, so nobody mistakes a test for a lock. A forked child inherits none of them. The
same file records how many charges there were, which reveals an older copy that was put in the ledger's place.

A process loses these locks when it closes the file through another handle, so nothing else may open it. Where locks
do not work (on some network drives), SQLite itself is not safe either. A running query is then taken for a dead one
and closes the session, never the other way round.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from dp_polars._session.exclusive_lock import Exclusive
from dp_polars.errors import LedgerError

SUFFIX = "-running"
_FIRST = 1 << 20
_IDENTITY = 32  # hexadecimal digits, followed by the number of charges in eight bytes

if os.name == "nt":  # pragma: no cover - not run in CI
    import msvcrt

    def _lock(handle: int, place: int) -> bool:
        os.lseek(handle, place, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True

    def _unlock(handle: int, place: int) -> None:
        os.lseek(handle, place, os.SEEK_SET)
        with contextlib.suppress(OSError):
            msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined,unused-ignore]

else:
    import fcntl

    def _lock(handle: int, place: int) -> bool:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place, os.SEEK_SET)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _unlock(handle: int, place: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.lockf(handle, fcntl.LOCK_UN, 1, place, os.SEEK_SET)


class _LockFile:
    """The lock file beside one ledger. The process has one handle, which is open only while a charge needs it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.own: set[int] = set()
        self.guard = Exclusive(None)
        self._handle: int | None = None

    def start(self, charge: int) -> None:
        handle = self._current()
        if not _lock(handle, _FIRST + charge):
            self._rest()
            raise LedgerError(f"Charge number {charge} is already locked by another process. Nothing is released.")
        self.own.add(charge)

    def end(self, charge: int) -> None:
        if charge in self.own and self._handle is not None:
            _unlock(self._handle, _FIRST + charge)
        self.own.discard(charge)
        self._rest()

    def is_running(self, charge: int) -> bool:
        """Return whether another process works on a charge. The charges of this process are in `own`."""
        if not self.path.exists():  # a process that works on a charge keeps the file
            return False
        handle = self._current()
        try:
            if not _lock(handle, _FIRST + charge):
                return True
            _unlock(handle, _FIRST + charge)
            return False
        finally:
            self._rest()

    def recorded_count(self, identity: str) -> int:
        """Return a lower bound of the number of charges that a ledger had; 0 if the file does not say."""
        if not self.path.exists():
            return 0
        try:
            handle = self._current()
            os.lseek(handle, 0, os.SEEK_SET)
            text = os.read(handle, _IDENTITY + 8)
        except OSError:  # the ledger may only be read
            return 0
        finally:
            self._rest()
        if len(text) != _IDENTITY + 8 or text[:_IDENTITY] != identity.encode():
            return 0
        return int.from_bytes(text[_IDENTITY:], "big")

    def record_count(self, identity: str, charges: int) -> None:
        """Record how many charges there are. Call it only after they were written to the ledger."""
        if self._handle is not None:
            os.lseek(self._handle, 0, os.SEEK_SET)
            os.write(self._handle, identity.encode() + charges.to_bytes(8, "big"))

    def _current(self) -> int:
        """Return a handle of the file that is at the path now. If it was replaced, move the locks to the new file."""
        if self._handle is not None and _same_file(self._handle, self.path):
            return self._handle
        ledger = self.path.with_name(self.path.name.removesuffix(SUFFIX))
        new = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), ledger.stat().st_mode & 0o777)
        old, self._handle = self._handle, new
        for charge in self.own:
            _lock(new, _FIRST + charge)
        if old is not None:
            os.close(old)
        return new

    def _rest(self) -> None:
        """Close the file unless this process has a lock on it, which closing would lose."""
        if not self.own and self._handle is not None:
            handle, self._handle = self._handle, None  # forget first, because an interrupt may come before the close
            os.close(handle)

    def forget(self) -> None:
        """Drop what belongs to the process that this one was forked from, which keeps its locks."""
        self.own.clear()
        self._rest()


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


_FILES: dict[Path, _LockFile] = {}
_PATIENCE = 60.0  # seconds; the holder of the file makes only a few system calls


class OpenCharges:
    """The open charges of one ledger. Those of a ledger in memory all belong to this process."""

    def __init__(self, ledger: Path | None) -> None:
        self._path = None if ledger is None else ledger.with_name(ledger.name + SUFFIX)
        self._mine: set[int] = set()

    def start(self, charge: int) -> None:
        """Take the lock of a charge before any other process can see the charge."""
        file = self._file()
        if file is not None:
            with file.guard.held(_PATIENCE), self._translated():
                file.start(charge)
        self._mine.add(charge)

    def end(self, charge: int) -> None:
        """Give the lock of a charge back, because the charge is finished."""
        self._mine.discard(charge)
        file = self._file()
        if file is not None:
            with file.guard.held(_PATIENCE), contextlib.suppress(OSError):
                file.end(charge)

    def dead(self, charges: set[int]) -> list[int]:
        """Return the unfinished charges on which no process works any more."""
        file = self._file()
        if file is None or not charges:
            return []
        with file.guard.held(_PATIENCE), self._translated():
            return [charge for charge in sorted(charges - file.own) if not file.is_running(charge)]

    def recorded_count(self, identity: str) -> int:
        """Return a lower bound of the number of charges that this ledger had, as the lock file recorded it."""
        file = self._file()
        if file is None:
            return 0
        with file.guard.held(_PATIENCE):
            return file.recorded_count(identity)

    def record_count(self, identity: str, charges: int) -> None:
        """Record how many charges there are. The record may lag behind the ledger and is never ahead of it."""
        file = self._file()
        if file is not None:
            with file.guard.held(_PATIENCE), contextlib.suppress(OSError):
                file.record_count(identity, charges)

    def close(self) -> None:
        """Give all locks back. Charges that are not finished now never will be."""
        for charge in tuple(self._mine):
            self.end(charge)

    def _file(self) -> _LockFile | None:
        return None if self._path is None else _FILES.setdefault(self._path, _LockFile(self._path))

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LedgerError(
                f"The file {self._path} beside the ledger could not be locked: {error.strerror}. It tells running "
                "queries from dead ones, so nothing is released without it."
            ) from None


def _after_fork_in_child() -> None:
    for file in _FILES.values():
        file.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
