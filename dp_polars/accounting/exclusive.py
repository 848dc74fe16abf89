"""One user at a time for a thing that threads, signal handlers and forked children must not share.

A lock alone is not enough: a signal handler runs in the middle of its own thread's use, an interrupt may leave a lock
behind, and a fork copies everything, open transactions included, into a child that must touch none of it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator

from dp_polars.errors import LedgerError


class _Use:
    """Lives as long as one use does."""


class Exclusive:
    """Guards one connection. `forked` is set in a child that inherited it and has not got its own yet."""

    def __init__(self, connection: object) -> None:
        self.connection = connection
        self.forked = False
        self._process = os.getpid()
        # Reentrant only because such a lock knows its owner, atomically; a second use is refused, see `busy`.
        self._lock = threading.RLock()
        self._use: weakref.ref[_Use] = weakref.ref(_Use())
        _ALL.add(self)

    def inherited(self) -> bool:
        """Whether this is a forked copy. A child may have its parent's number, so the fork itself tells."""
        return self.forked or self._process != os.getpid()

    @contextlib.contextmanager
    def held(self, patience: float) -> Iterator[None]:
        """Keep other threads out, and a signal handler that would charge in the middle of a charge."""
        if self.busy():
            raise LedgerError("The ledger was used from within its own transaction, for example by a signal handler.")
        if not self._lock.acquire(timeout=patience):
            raise LedgerError("The ledger is in use by another thread that does not finish. Nothing is released.")
        try:
            use = _Use()
            self._use = weakref.ref(use)
            yield
        finally:
            self._lock.release()

    def busy(self) -> bool:
        """Whether this thread is in the middle of a use; frees what an interrupt left locked."""
        owned: bool = getattr(self._lock, "_is_owned")()  # noqa: B009 - typing doesn't know it; conditions rely on it
        if owned and self._use() is None:
            self._lock.release()
            return False
        return owned


_ALL: weakref.WeakSet[Exclusive] = weakref.WeakSet()
_HELD: list[Exclusive] = []
_KEPT: list[object] = []


def _before_fork() -> None:
    """Wait until no other thread is inside a transaction, so that a child inherits none."""
    for guard in list(_ALL):
        if not guard.busy():
            guard._lock.acquire()
            _HELD.append(guard)


def _after_fork_in_parent() -> None:
    while _HELD:
        _HELD.pop()._lock.release()


def _after_fork_in_child() -> None:
    """Keep the parent's connections, unused and unclosed: SQLite forbids both after a fork."""
    _HELD.clear()
    for guard in list(_ALL):
        guard.forked = True
        _KEPT.append(guard.connection)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
