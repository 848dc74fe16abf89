"""Attacks on memory run in a child process with little memory: a crash there is a result, not the end of the tests."""

import os
import subprocess
import sys
from dataclasses import dataclass

MEMORY = 4 << 30  # bytes of addresses; what Polars needs to start is less than one of them

_BEFORE = """
import resource, sys, warnings
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
warnings.simplefilter("ignore")
import polars as pl, dp_polars as dp
HUGE = 10**5  # an epsilon at which there is no noise to be seen


def session(**words):
    return dp.Session(**{{"epsilon": 10**6, "unit": "user", "max_rows_per_group": 1, **words}})


"""


@dataclass(frozen=True)
class Outcome:
    """Everything that an observer sees of a child: whether it survived, and what it printed."""

    status: int
    printed: str


def run(code, *words, memory=MEMORY, threads=2):
    """Return the outcome of code that has `pl`, `dp`, `HUGE`, `session` and the words in `sys.argv`."""
    environment = {**os.environ, "POLARS_MAX_THREADS": str(threads), "RUST_BACKTRACE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", _BEFORE.format(memory=memory) + code, *words],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    return Outcome(done.returncode, done.stdout.strip() or done.stderr.strip()[-300:])
