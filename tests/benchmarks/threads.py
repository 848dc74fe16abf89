"""Wall time and CPU of private questions against the plain query, on one and on two threads, and a guess for sixteen.

Each number of threads has its own process. Both processes are asked the private and the plain question in turn, so
whatever slows the machine for a while slows all four, and each round asks all questions, so each is measured over the
whole run. Shown are the best of all rounds, how far the median is above it, and the CPUs that other processes kept
busy: on a machine that is not idle, wall times say little, and the ratio of CPU seconds says more.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

import dp_polars as dp
from tests.benchmarks import data
from tests.benchmarks.measure import Row, generous_session, show

ROWS = 10_000_000
ROUNDS = 20
MANY = 16  # cores that the numbers are extrapolated to
SPEEDUP = 1.5  # the least that two threads must gain over one
CHILD = "import sys; from tests.benchmarks import threads; threads.child(*sys.argv[1:])"

# The most that a question may take, as a multiple of the plain query's wall time on two threads.
LIMITS = {
    "count by 50 strings": 5.0,
    "count by 50 strings, asked again": 3.0,
    "count by 100,000 integers": 2.0,
    "mean by 50 strings": 8.0,
    "DuckDB: count by 50 strings": 4.0,
}


@dataclass(frozen=True)
class Timing:
    """The wall times and CPU seconds of one side in all rounds."""

    wall: list[float]
    cpu: list[float]
    others: list[float]
    """The CPUs that other processes kept busy meanwhile."""

    @property
    def best(self) -> float:
        return min(self.wall)

    @property
    def spread(self) -> float:
        """How far the median is above the best, relative to it."""
        return statistics.median(self.wall) / self.best - 1


def run(rows: int = ROWS) -> bool:
    """Measure, and return whether all limits hold."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        data.write(path, rows)
        alone, both = _measured(path, 1, 2)
    lines: list[Row] = []
    for name, limit in LIMITS.items():
        (ours, plain), (ours_alone, plain_alone) = both[name], alone[name]
        gain, gain_of_plain = ours_alone.best / ours.best, plain_alone.best / plain.best
        shown = f"{ours.best:6.3f} s (+{ours.spread:.0%})   plain {plain.best:6.3f} s (+{plain.spread:.0%})"
        shown += (
            f"   {ours.best / plain.best:5.2f} x   CPU {min(ours.cpu):5.2f} s, {min(ours.cpu) / min(plain.cpu):5.2f} x"
        )
        lines.append(Row(name, shown, ours.best / plain.best, limit))
        many = _extrapolated(ours_alone.best, ours.best)
        shown = f"{ours_alone.best:6.3f} s alone   {gain:5.2f} x as fast (plain {gain_of_plain:4.2f} x)"
        shown += f"   about {many:6.3f} s on {MANY} cores"
        lines.append(Row("  two threads against one", shown, SPEEDUP / gain, 1.0))
    others = statistics.median([busy for sides in both.values() for side in sides for busy in side.others])
    title = f"wall time on two threads, {rows:,} rows, best of {ROUNDS} rounds; others kept {others:.1f} CPUs busy"
    return show(title, lines)


def _extrapolated(one: float, two: float) -> float:
    """Return the time on many cores, if the part that two threads share shrinks further and the rest does not."""
    shared = min(max(2 * (1 - two / one), 0.0), 1.0)
    return one * (1 - shared + shared / MANY)


class _Process:
    """A process with a given number of threads, which asks one side of a question at a time."""

    def __init__(self, path: Path, threads: int) -> None:
        words = [sys.executable, "-c", CHILD, str(path), str(threads)]
        environment = {**os.environ, "POLARS_MAX_THREADS": str(threads)}
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, name: str, side: int) -> tuple[float, float, float]:
        """Return the wall and CPU seconds of one side, and the CPUs that others kept busy meanwhile."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([name, side]), file=self._process.stdin, flush=True)
        wall, cpu, others = json.loads(self._process.stdout.readline())
        return wall, cpu, others

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _measured(path: Path, *threads: int) -> list[dict[str, tuple[Timing, Timing]]]:
    """Return the timings of both sides of every question, for each number of threads."""
    processes = [_Process(path, number) for number in threads]
    try:
        found = [{name: (Timing([], [], []), Timing([], [], [])) for name in LIMITS} for _ in processes]
        for number in range(ROUNDS + 1):
            for name in LIMITS:
                for process, timings in zip(processes, found, strict=True):
                    for side, timing in enumerate(timings[name]):
                        wall, cpu, others = process.ask(name, side)
                        if number:  # the first round is a warm-up
                            timing.wall.append(wall)
                            timing.cpu.append(cpu)
                            timing.others.append(others)
        return found
    finally:
        for process in processes:
            process.close()


def child(path: str, threads: str) -> None:
    """Ask the question that each line of standard input names, and print how long it took: the body of a process."""
    frame = pl.read_parquet(path).rechunk()
    raw = duckdb.connect(config={"threads": int(threads)})
    raw.execute("SET enable_progress_bar = false")
    raw.execute(f"CREATE TABLE visits AS FROM '{path}'")
    guard = dp.connect(raw, generous_session())
    asked = "SELECT region, dp_count(*, fresh := true) AS n FROM visits GROUP BY region"
    spend: dict[str, Any] = {"epsilon": 1, "fresh": True}
    new = frame.clone  # another frame, about which nothing is known yet
    sides: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "count by 50 strings": (
            lambda: new().dp.count("region", **spend),
            lambda: frame.group_by("region").len(),
        ),
        "count by 50 strings, asked again": (
            lambda: frame.dp.count("region", **spend),
            lambda: frame.group_by("region").len(),
        ),
        "count by 100,000 integers": (
            lambda: new().dp.count("shop", **spend),
            lambda: frame.group_by("shop").len(),
        ),
        "mean by 50 strings": (
            lambda: new().dp.mean("value", by="region", bounds=(0, 100), **spend),
            lambda: frame.group_by("region").agg(pl.col("value").mean()),
        ),
        "DuckDB: count by 50 strings": (
            lambda: guard.sql(asked, epsilon=1).fetchall(),
            lambda: raw.execute("SELECT region, count(*) FROM visits GROUP BY region").fetchall(),
        ),
    }
    with generous_session():
        for line in sys.stdin:
            name, side = json.loads(line)
            print(json.dumps(_timed(sides[name][side])), flush=True)


def _timed(work: Callable[[], object]) -> tuple[float, float, float]:
    """Return the wall and CPU seconds of some work, and the CPUs that other processes kept busy meanwhile."""
    busy, wall, cpu = _busy_seconds(), time.perf_counter(), time.process_time()
    work()
    wall, cpu, busy = time.perf_counter() - wall, time.process_time() - cpu, _busy_seconds() - busy
    return wall, cpu, max(busy - cpu, 0.0) / wall


def _busy_seconds() -> float:
    """Return the seconds for which all CPUs together have been busy, or 0 where the system does not tell."""
    try:
        first = Path("/proc/stat").read_text().splitlines()[0]
    except OSError:
        return 0.0
    user, nice, system, _, _, *interrupts = map(int, first.split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
