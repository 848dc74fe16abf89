"""Make signals wait while the ledger is used: Ctrl-C comes before a charge, while rows are read, or after a commit.

Python runs a signal's handler between any two steps of the main thread, and the default one for Ctrl-C raises there. No
`try` or `with` can promise that nothing comes between taking something and being ready to give it back. So here the
handler itself is exchanged: as long as a block of `Deferred` runs, no handler raises, and what came meanwhile is
delivered when the block is over. Other threads never run handlers, and nothing happens there.

A block lasts as long as the function that holds it. Should an exception that no signal raised (a debugger's, say) skip
the end of a block, the next signal finds that the function is over, and puts the former handler back.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

# Those that programs handle. What a processor raises (SIGSEGV and the like) can't wait.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2")
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


def is_running(frame: FrameType, current: FrameType | None) -> bool:
    """Whether a function's frame is the current one of its thread or one of those that wait for it."""
    while current is not None and current is not frame:
        current = current.f_back
    return current is not None


class Deferred:
    """A block in which signals wait, used as `with Deferred() as signals`.

    `pending` has the signals that came and wait. `interrupted` is set once `allowed()` let a Ctrl-C through. From then
    on all others wait, so that one Ctrl-C after another can't stop the cleaning up.
    """

    def __init__(self, frame: FrameType | None = None) -> None:
        self.pending: list[int] = []
        self.interrupted = False
        self._open = False
        self._frame = frame or sys._getframe(1)
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
        except BaseException:  # the last moment at which a handler can raise
            self._restore()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
        if isinstance(error, KeyboardInterrupt):  # one is on its way already
            self.pending = [number for number in self.pending if number != signal.SIGINT]
        self._deliver()

    def _deliver(self) -> None:
        while self.pending:
            self._run(self.pending.pop(0), sys._getframe())

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Let signals through again, those that wait and those that come, up to the first whose handler raises."""
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
            if signal.getsignal(number) == self._note:  # or somebody set another one meanwhile, who means it
                signal.signal(number, handler)
