"""One user at a time for a thing that threads, signal handlers and forked children must not share.

An ordinary lock is not enough. An exception may come between any two steps of the function that holds it, also before
its `with` block begins and after it ended, and nobody would give the lock back. And a fork copies everything, open
transactions included, into a child that must touch none of it. So a claim here is worth something only as long as the
function that made it runs, and whoever waits can see that.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
import weakref
from types import FrameType, TracebackType

from dp_polars._session.interrupts import is_running
from dp_polars.errors import LedgerError

_SHORTEST, _LONGEST = 0.0002, 0.005  # seconds between two looks of who waits


class _Claim:
    """The turn of one function of one thread: until it is given up, or until that function ends, if that is earlier."""

    def __init__(self, frame: FrameType | None) -> None:
        self.frame, self.thread = frame, threading.get_ident()
        self.next: dict[None, _Claim] = {}

    def holds(self) -> bool:
        frame = self.frame
        return frame is not None and is_running(frame, sys._current_frames().get(self.thread))

    def give_up(self) -> None:
        self.frame = None


class _Held:
    """The `with` block of one claim."""

    def __init__(self, guard: Exclusive, frame: FrameType, patience: float) -> None:
        self._guard, self._patience, self._claim = guard, patience, _Claim(frame)

    def __enter__(self) -> None:
        self._guard.wait_for(self._claim, self._patience)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._claim.give_up()


class Exclusive:
    """Guards one connection. `forked` is set in a child that inherited it and has not got its own yet."""

    def __init__(self, connection: object) -> None:
        self.connection = connection
        self.forked = False
        self._process = os.getpid()
        self._last = _Claim(None)
        _ALL.add(self)

    def inherited(self) -> bool:
        """Whether this is a forked copy. A child may have its parent's number, so the fork itself tells."""
        return self.forked or self._process != os.getpid()

    def held(self, patience: float, frame: FrameType | None = None) -> _Held:
        """Keep other threads out of a `with` block of the calling function, or of the one that has this frame."""
        return _Held(self, frame or sys._getframe(1), patience)

    def wait_for(self, claim: _Claim, patience: float) -> None:
        """Wait until a claim has its turn. An exception in between leaves nothing behind."""
        started, pause = time.monotonic(), _SHORTEST
        while not self._give(claim):
            if self.busy():
                raise LedgerError("The ledger was used from within its own transaction, for example by a destructor.")
            if time.monotonic() - started > patience:
                raise LedgerError("The ledger is in use by another thread that does not finish. Nothing is released.")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)

    def busy(self) -> bool:
        """Whether this thread is in the middle of a use."""
        last = self._newest()
        return last.thread == threading.get_ident() and last.holds()

    def _give(self, claim: _Claim) -> bool:
        """Give a claim its turn if nobody has one. Each has one successor, which a dictionary sets in one step."""
        last = self._newest()
        return not last.holds() and last.next.setdefault(None, claim) is claim

    def _newest(self) -> _Claim:
        last = self._last
        while last.next:
            last = last.next[None]
        self._last = last  # a shortcut only: whoever reads an older one walks on from there
        return last


_ALL: weakref.WeakSet[Exclusive] = weakref.WeakSet()
_HELD: list[_Claim] = []
_KEPT: list[object] = []


def _before_fork() -> None:
    """Wait until no other thread is inside a transaction, so that a child inherits none."""
    forking = sys._getframe(1)  # the function that forks
    for guard in list(_ALL):
        if guard.connection is not None and not guard.busy():
            claim = _Claim(forking)
            guard.wait_for(claim, math.inf)
            _HELD.append(claim)


def _after_fork_in_parent() -> None:
    while _HELD:
        _HELD.pop().give_up()


def _after_fork_in_child() -> None:
    """Keep the parent's connections, unused and unclosed: SQLite forbids both after a fork."""
    _HELD.clear()
    for guard in list(_ALL):
        guard.forked = True
        _KEPT.append(guard.connection)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
