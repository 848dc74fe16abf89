"""A lock for things that threads, signal handlers and forked children must not use at the same time.

An ordinary lock is not enough for two reasons. An exception may be raised between any two steps of the function that
holds it, even before its `with` block begins or after it has ended, and nobody would release the lock. And a fork
copies everything, open transactions included, into a child that must touch none of it. A claim on this lock is
therefore valid only while the function that made it is running, which every waiting thread can check.
"""

from __future__ import annotations

import gc
import math
import os
import sys
import threading
import time
import weakref
from types import FrameType, TracebackType

from dp_polars._session.interrupts import is_running
from dp_polars.errors import LedgerError

_SHORTEST, _LONGEST = 0.0002, 0.005  # seconds that a waiting thread sleeps between two checks


_LOOKING = [threading.RLock()]  # a list, because a forked child needs another one


def _current_frame(thread: int) -> FrameType | None:
    """Return what a thread runs now, or None if it has ended.

    Python lists the frames of all threads under a lock of its own. If the garbage collector starts meanwhile, a
    destructor may let other threads run; if one of them asks for the list as well, it waits for that lock without
    letting anybody run, and the process stands still for ever. So only one thread asks at a time, and nothing is
    collected meanwhile. A signal handler may ask while its own thread does.
    """
    with _LOOKING[0]:
        collects = gc.isenabled()
        try:
            gc.disable()
            return sys._current_frames().get(thread)
        finally:
            if collects:
                gc.enable()


class _LockClaim:
    """The turn of one function in one thread. It ends when it is given up or when the function ends."""

    def __init__(self, frame: FrameType | None) -> None:
        self.frame, self.thread = frame, threading.get_ident()
        self.next: dict[None, _LockClaim] = {}

    def holds(self) -> bool:
        frame = self.frame
        return frame is not None and is_running(frame, _current_frame(self.thread))

    def give_up(self) -> None:
        self.frame = None


class _Held:
    """The `with` block of one claim."""

    def __init__(self, guard: Exclusive, frame: FrameType, patience: float) -> None:
        self._guard, self._patience, self._claim = guard, patience, _LockClaim(frame)

    def __enter__(self) -> None:
        self._guard.wait_for(self._claim, self._patience)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._claim.give_up()


class Exclusive:
    """A lock that guards one connection.

    Attributes
    ----------
    connection
        What is guarded; None if the lock only has to recognise a forked copy.
    forked
        Whether this is a child's copy of a lock that belongs to its parent.
    """

    def __init__(self, connection: object) -> None:
        self.connection = connection
        self.forked = False
        self._process = os.getpid()
        self._last = _LockClaim(None)
        _ALL.add(self)

    def inherited(self) -> bool:
        """Return whether this is a forked copy. The process number alone is not proof: a child may get its parent's."""
        return self.forked or self._process != os.getpid()

    def held(self, patience: float, frame: FrameType | None = None) -> _Held:
        """Keep other threads out of a `with` block of the calling function, or of the function with this frame."""
        return _Held(self, frame or sys._getframe(1), patience)

    def wait_for(self, claim: _LockClaim, patience: float) -> None:
        """Wait until a claim gets its turn. An exception while waiting leaves nothing behind."""
        started, pause = time.monotonic(), _SHORTEST
        while not self._give(claim):
            if self.busy():
                raise LedgerError(
                    "The ledger was used from within its own transaction, for example by a destructor.",
                    code="ledger-in-use",
                )
            if time.monotonic() - started > patience:
                raise LedgerError(
                    "The ledger is in use by another thread that does not finish. Nothing is released.",
                    code="ledger-in-use",
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)

    def busy(self) -> bool:
        """Return whether the calling thread holds the lock."""
        last = self._newest()
        return last.thread == threading.get_ident() and last.holds()

    def _give(self, claim: _LockClaim) -> bool:
        """Give a claim its turn if nobody has one. Each claim has one successor, set in one step by a dictionary."""
        last = self._newest()
        return not last.holds() and last.next.setdefault(None, claim) is claim

    def _newest(self) -> _LockClaim:
        last = self._last
        while last.next:
            last = last.next[None]
        self._last = last  # only a shortcut: a thread that reads an older claim walks on from there
        return last


_ALL: weakref.WeakSet[Exclusive] = weakref.WeakSet()
_HELD: list[_LockClaim] = []
_KEPT: list[object] = []


def _before_fork() -> None:
    """Wait until no other thread is inside a transaction so that the child inherits none."""
    forking = sys._getframe(1)  # the function that forks
    for guard in list(_ALL):
        if guard.connection is not None and not guard.busy():
            claim = _LockClaim(forking)
            guard.wait_for(claim, math.inf)
            _HELD.append(claim)


def _after_fork_in_parent() -> None:
    while _HELD:
        _HELD.pop().give_up()


def _after_fork_in_child() -> None:
    """Keep the parent's connections without using or closing them: SQLite forbids both after a fork."""
    _HELD.clear()
    _LOOKING[0] = threading.RLock()
    for guard in list(_ALL):
        guard.forked = True
        _KEPT.append(guard.connection)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
