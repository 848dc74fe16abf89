"""How long it takes so far: on a terminal, and nowhere else."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

_PATIENCE = 1.0  # seconds before anything is shown
_EVERY = 0.25


@contextlib.contextmanager
def elapsed(doing: str) -> Iterator[None]:
    """Show on stderr what is being done and for how long, while it is done; nothing where nobody looks."""
    if not sys.stderr.isatty():
        yield
        return
    done, start = threading.Event(), time.monotonic()

    def tell() -> None:
        shown = False
        wait = _PATIENCE
        while not done.wait(wait):
            print(f"\r\x1b[K{doing} ... {time.monotonic() - start:.0f} s", end="", file=sys.stderr, flush=True)
            shown, wait = True, _EVERY
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
