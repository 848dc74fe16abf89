"""Wall time and CPU of private questions against the plain query, on one and on two threads, and a guess for sixteen.

Each number of threads has its own process, which asks both sides in turn, so other work on the machine affects both.
The best of all rounds is shown, and how far the median is above it. So is the CPU that other processes took meanwhile:
on a machine that is not idle, wall times say little, and the ratio of CPU seconds says more.
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
ROUNDS = 7
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
        alone, both = (_measured(path, threads) for threads in (1, 2))
    lines: list[Row] = []
    for name, limit in LIMITS.items():
        (ours, plain), (ours_alone, _) = both[name], alone[name]
        gain = ours_alone.best / ours.best
        shown = f"{ours.best:6.3f} s (+{ours.spread:.0%})   plain {plain.best:6.3f} s (+{plain.spread:.0%})"
        shown += (
            f"   {ours.best / plain.best:5.2f} x   CPU {min(ours.cpu):5.2f} s, {min(ours.cpu) / min(plain.cpu):5.2f} x"
        )
        lines.append(Row(name, shown, ours.best / plain.best, limit))
        many = _extrapolated(ours_alone.best, ours.best)
        shown = f"{ours_alone.best:6.3f} s alone   {gain:5.2f} x as fast   about {many:6.3f} s on {MANY} cores"
        lines.append(Row("  two threads against one", shown, SPEEDUP / gain, 1.0))
    others = statistics.median([busy for sides in both.values() for side in sides for busy in side.others])
    title = f"wall time on two threads, {rows:,} rows, best of {ROUNDS} rounds; others kept {others:.1f} CPUs busy"
    return show(title, lines)


def _extrapolated(one: float, two: float) -> float:
    """Return the time on many cores, if the part that two threads share shrinks further and the rest does not."""
    shared = min(max(2 * (1 - two / one), 0.0), 1.0)
    return one * (1 - shared + shared / MANY)


def _measured(path: Path, threads: int) -> dict[str, tuple[Timing, Timing]]:
    """Return the timings of both sides of every question, from a process with this many threads."""
    words = [sys.executable, "-c", CHILD, str(path), str(threads)]
    environment = {**os.environ, "POLARS_MAX_THREADS": str(threads)}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return {name: (Timing(**sides[0]), Timing(**sides[1])) for name, sides in found.items()}


def child(path: str, threads: str) -> None:
    """Ask every question and its plain form in turn, and print the timings: the body of a process."""
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
        timings = {name: _in_turn(*both) for name, both in sides.items()}
    print(json.dumps(timings))


def _in_turn(*sides: Callable[[], object]) -> list[dict[str, list[float]]]:
    """Return the wall and CPU seconds of each side, after a warm-up."""
    timings: list[dict[str, list[float]]] = [{"wall": [], "cpu": [], "others": []} for _ in sides]
    for number in range(ROUNDS + 1):
        for side, timing in zip(sides, timings, strict=True):
            busy, wall, cpu = _busy_seconds(), time.perf_counter(), time.process_time()
            side()
            wall, cpu, busy = time.perf_counter() - wall, time.process_time() - cpu, _busy_seconds() - busy
            if number:
                timing["wall"].append(wall)
                timing["cpu"].append(cpu)
                timing["others"].append(max(busy - cpu, 0.0) / wall)
    return timings


def _busy_seconds() -> float:
    """Return the seconds for which all CPUs together have been busy, or 0 where the system does not tell."""
    try:
        first = Path("/proc/stat").read_text().splitlines()[0]
    except OSError:
        return 0.0
    user, nice, system, _, _, *interrupts = map(int, first.split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
