"""Signals that wait while the ledger is in use.

Ctrl-C takes effect before a charge, while rows are read, or after a commit, but never in between. Python runs a signal
handler between any two steps of the main thread, and the default handler for Ctrl-C raises there. No `try` or `with`
can rule out an exception between taking something and being ready to give it back. So this module replaces the
handlers: while a `Deferred` block runs, no handler raises, and the signals that arrived are delivered when it ends.
Other threads never run handlers, so nothing happens there.

A block lasts as long as the function that holds it. If an exception that no signal raised (a debugger's, for example)
skips the end of the block, the next signal finds that the function has ended and puts the former handler back.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

# The signals that programs handle. Those that a processor raises (SIGSEGV and the like) can't wait.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2")
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


def is_running(frame: FrameType | None, current: FrameType | None) -> bool:
    """Return whether a function is running: its frame is its thread's current frame or a caller of it.

    None stands for a function that has ended.
    """
    if frame is None:
        return False
    while current is not None and current is not frame:
        current = current.f_back
    return current is not None


class Deferred:
    """A block in which signals wait, used as `with Deferred() as signals`.

    Attributes
    ----------
    pending
        The signals that arrived and are waiting.
    interrupted
        Whether `allowed()` has let a Ctrl-C through. From then on all other signals wait, so pressing Ctrl-C again
        can't stop the cleanup.
    """

    def __init__(self, frame: FrameType | None = None) -> None:
        self.pending: list[int] = []
        self.interrupted = False
        self._open = False
        self._frame: FrameType | None = frame or sys._getframe(1)
        self._before: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def __enter__(self) -> Deferred:
        if threading.current_thread() is not threading.main_thread():
            return self
        try:
            for number in _SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._before[number] = handler
                    signal.signal(number, self._note)
        except BaseException:  # the last point at which a handler can raise
            self._restore()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
        self._frame = None  # it holds this object, and its variables would wait for the garbage collector
        if isinstance(error, KeyboardInterrupt):  # an interrupt is already being raised
            self.pending = [number for number in self.pending if number != signal.SIGINT]
        self._deliver()

    def _deliver(self) -> None:
        while self.pending:
            self._run(self.pending.pop(0), sys._getframe())

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Let waiting and new signals through again, up to the first one whose handler raises."""
        self._deliver()
        self._open = True
        try:
            yield
        finally:
            self._open = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not is_running(self._frame, frame):
            self._restore()
            self._before[number](number, frame)
        elif self._open:
            self._open = False
            self._run(number, frame)
            self._open = True
        else:
            self.pending.append(number)

    def _run(self, number: int, frame: FrameType | None) -> None:
        try:
            self._before[number](number, frame)
        except KeyboardInterrupt:
            self.interrupted = True
            raise

    def _restore(self) -> None:
        for number, handler in reversed(self._before.items()):
            if signal.getsignal(number) == self._note:  # otherwise the program has set its own handler meanwhile
                signal.signal(number, handler)
