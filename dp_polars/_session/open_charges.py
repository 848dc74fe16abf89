"""Which charges are still at work: each holds a lock of the operating system until it is finished.

A process that dies loses its locks, whatever the cause. So whoever finds a charge that is neither committed nor failed,
and whose lock nobody holds, knows that the question behind it died.

The locks are POSIX record locks (on Windows those of `msvcrt`) on single bytes of a file beside the ledger,
`budget.db-running`; byte number `_FIRST + id` belongs to the charge `id`. They are taken and tried inside of the
ledger's own write transactions only, so that nobody ever meets a lock that is merely being tried. A fork inherits none
of them. The same file says how many charges there were, so that an older copy put in the ledger's place is noticed.

A process loses these locks when it closes the file through another handle, so nothing else may open it. Where locks
are not kept (some network drives), SQLite itself is not safe either; a running question is then taken for a dead one
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
_IDENTITY = 32  # hexadecimal digits, then the number of charges in eight bytes

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
    """The file beside one ledger. One handle for the whole process, open only as long as a charge needs it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.own: set[int] = set()
        self.guard = Exclusive(None)
        self._handle: int | None = None

    def start(self, charge: int) -> None:
        handle = self._current()
        if not _lock(handle, _FIRST + charge):
            self._rest()
            raise LedgerError(f"The charge {charge} is locked by another process already. Nothing is released.")
        self.own.add(charge)

    def end(self, charge: int) -> None:
        if charge in self.own and self._handle is not None:
            _unlock(self._handle, _FIRST + charge)
        self.own.discard(charge)
        self._rest()

    def is_running(self, charge: int) -> bool:
        """Whether another process works on a charge; this one's own are in `own`."""
        if not self.path.exists():  # whoever works on a charge keeps it
            return False
        handle = self._current()
        try:
            if not _lock(handle, _FIRST + charge):
                return True
            _unlock(handle, _FIRST + charge)
            return False
        finally:
            self._rest()

    def marked(self, identity: str) -> int:
        """Return how many charges a ledger had at least; 0 if the file says nothing of it."""
        if not self.path.exists():
            return 0
        try:
            handle = self._current()
            os.lseek(handle, 0, os.SEEK_SET)
            text = os.read(handle, _IDENTITY + 8)
        except OSError:  # of a ledger that may only be read
            return 0
        finally:
            self._rest()
        if len(text) != _IDENTITY + 8 or text[:_IDENTITY] != identity.encode():
            return 0
        return int.from_bytes(text[_IDENTITY:], "big")

    def mark(self, identity: str, charges: int) -> None:
        """Write down that there were so many charges; only ever called after they were committed."""
        if self._handle is not None:
            os.lseek(self._handle, 0, os.SEEK_SET)
            os.write(self._handle, identity.encode() + charges.to_bytes(8, "big"))

    def _current(self) -> int:
        """Return a handle of the file that has the path now; locks move to it if it is another file than before."""
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
        """Close the file if this process has no lock on it, which closing would lose."""
        if not self.own and self._handle is not None:
            handle, self._handle = self._handle, None  # first forgotten, then closed: an interrupt may come between
            os.close(handle)

    def forget(self) -> None:
        """Let go of what belongs to the process that this one was forked from; its locks stay with it."""
        self.own.clear()
        self._rest()


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


_FILES: dict[Path, _LockFile] = {}
_PATIENCE = 60.0  # seconds; whoever has the file does no more than a few system calls


class Running:
    """The charges of one open ledger that are still at work. In memory they are all this process's own."""

    def __init__(self, ledger: Path | None) -> None:
        self._path = None if ledger is None else ledger.with_name(ledger.name + SUFFIX)
        self._mine: set[int] = set()

    def start(self, charge: int) -> None:
        """Take the lock of a charge, before anybody else can see the charge."""
        file = self._file()
        if file is not None:
            with file.guard.held(_PATIENCE), self._translated():
                file.start(charge)
        self._mine.add(charge)

    def end(self, charge: int) -> None:
        """Give the lock back: the charge is finished."""
        self._mine.discard(charge)
        file = self._file()
        if file is not None:
            with file.guard.held(_PATIENCE), contextlib.suppress(OSError):
                file.end(charge)

    def dead(self, charges: set[int]) -> list[int]:
        """Return those of charges that are not finished on which nobody works any more."""
        file = self._file()
        if file is None or not charges:
            return []
        with file.guard.held(_PATIENCE), self._translated():
            return [charge for charge in sorted(charges - file.own) if not file.is_running(charge)]

    def marked(self, identity: str) -> int:
        """Return how many charges this ledger had at least, as far as the file beside it knows."""
        file = self._file()
        if file is None:
            return 0
        with file.guard.held(_PATIENCE):
            return file.marked(identity)

    def mark(self, identity: str, charges: int) -> None:
        """Note how many charges there are. It may lag behind and is never ahead."""
        file = self._file()
        if file is not None:
            with file.guard.held(_PATIENCE), contextlib.suppress(OSError):
                file.mark(identity, charges)

    def close(self) -> None:
        """Give all locks back: what is not finished now never will be."""
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
                f"The file {self._path} beside the ledger could not be locked: {error.strerror}. It tells a running "
                "question from a dead one; without it nothing is released."
            ) from None


def _after_fork_in_child() -> None:
    for file in _FILES.values():
        file.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
