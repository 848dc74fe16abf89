"""Wall time and CPU of ordinary questions in this tree, against another checkout of it.

`python -m tests.benchmarks versions --before FOLDER`, where the folder is made with `git worktree add FOLDER COMMIT`.
Each version has its own process. The two processes are asked in turn, one question at a time, and the order changes
from round to round, so other work on the machine affects both. For each question the best time of either
version is compared; the median of the ratios of a round is shown beside it.

The questions use only what both versions understand. Frames in memory are new in each question, so nothing is
remembered from the one before.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from tests.benchmarks import data
from tests.benchmarks.measure import Row, show

ROWS = 10_000_000
ROUNDS = 9
LIMIT = 1.1  # how much longer a question may take than before
CHILD = "import runpy, sys; sys.argv = ['versions', *sys.argv[1:]]; runpy.run_path(sys.argv[1])['child'](*sys.argv[2:])"


def run(rows: int = ROWS, before: str | None = None, repeats: int = ROUNDS) -> bool:
    """Measure, and return whether no question takes more than a tenth longer than in the checkout `before`."""
    if before is None:
        print("\nversions: skipped, because there is no checkout to compare with (--before FOLDER)")
        return True
    here = Path(__file__).parents[2]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        data.write(path, rows)
        sides = [_Version(Path(before).resolve(), path), _Version(here, path)]
        try:
            timings = _in_turn(sides, repeats)
        finally:
            for side in sides:
                side.end()
    lines: list[Row] = []
    for name, (old, new) in timings.items():
        shown, best = [], 0.0
        for what, place in (("wall", 0), ("CPU", 1)):
            ratios = [one[place] / other[place] for other, one in zip(old, new, strict=True)]
            least = [min(one[place] for one in side) for side in (old, new)]
            best = best or least[1] / least[0]
            shown.append(
                f"{what} {least[0]:6.3f} -> {least[1]:6.3f} s   {least[1] / least[0]:5.2f} x "
                f"(median {statistics.median(ratios):5.2f})"
            )
        lines.append(Row(name, "   ".join(shown), best, LIMIT))
    return show(f"now against before, {rows:,} rows, {repeats} rounds", lines)


class _Version:
    """A process that answers questions with the package of one checkout."""

    def __init__(self, tree: Path, path: Path) -> None:
        words = [sys.executable, "-c", CHILD, str(Path(__file__).resolve()), str(path)]
        self._process = subprocess.Popen(
            words, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.names: list[str] = self._read()

    def ask(self, name: str) -> tuple[float, float]:
        """Return the wall time and the CPU seconds of a question."""
        assert self._process.stdin is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        wall, cpu = self._read()
        return wall, cpu

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def _in_turn(sides: list[_Version], rounds: int) -> dict[str, list[list[tuple[float, float]]]]:
    """Ask both versions every question in every round, after a warm-up."""
    timings: dict[str, list[list[tuple[float, float]]]] = {name: [[], []] for name in sides[1].names}
    for number in range(rounds + 1):
        order = (0, 1) if number % 2 else (1, 0)
        for name, both in timings.items():
            for place in order:
                taken = sides[place].ask(name)
                if number:
                    both[place].append(taken)
    return timings


# ---------------------------------------------------------------------- the body of a process


def child(path: str) -> None:
    """Answer the questions whose names are read, and print what each took."""
    warnings.simplefilter("ignore")
    asked = _questions(path)
    print(json.dumps(list(asked)), flush=True)
    for line in sys.stdin:
        question = asked[line.strip()]
        wall, cpu = time.perf_counter(), time.process_time()
        question()
        print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]), flush=True)


def _questions(path: str) -> dict[str, Callable[[], object]]:
    import duckdb

    import dp_polars as dp

    frame = pl.read_parquet(path).rechunk()
    raw = duckdb.connect()
    raw.execute("SET enable_progress_bar = false")
    raw.execute(f"CREATE TABLE visits AS FROM '{path}'")
    raw.execute(f"CREATE VIEW stored AS FROM '{path}'")
    raw.execute("CREATE TABLE names AS SELECT DISTINCT region, 'zone ' || (hash(region) % 5) AS zone FROM visits")
    words: Any = {"epsilon": 10**4, "delta": 1e-6, "unit": "user", "max_groups": 5, "max_rows_per_group": 10}
    session, other = dp.Session(**words), dp.Session(**words)
    guard = dp.connect(raw, session)
    guard.private("stored", unit="user")
    guard.public("names")
    spend: Any = {"epsilon": 1, "fresh": True, "session": other}

    def private() -> Any:
        return frame.clone().dp  # another frame, about which nothing is known yet

    def sql(select: str, rest: str) -> Callable[[], object]:
        return lambda: guard.sql(f"SELECT {select} FROM {rest}", epsilon=1).fetchall()

    counted, summed = "dp_count(*, fresh := true) AS n", "dp_sum(value, 0, 100, fresh := true) AS s"
    doubled = "dp_sum(value * 2 + 1, 0, 200, fresh := true) AS s"
    value = pl.col("value")
    return {
        "Polars: count by 50 strings": lambda: private().count("region", **spend),
        "Polars: count by 100,000 integers": lambda: private().count("shop", **spend),
        "Polars: sum by 50 strings": lambda: private().sum("value", by="region", bounds=(0, 100), **spend),
        "Polars: mean by 50 strings": lambda: private().mean("value", by="region", bounds=(0, 100), **spend),
        "Polars: filter": lambda: private().filter(value > 10).count("region", **spend),
        "Polars: with_columns": lambda: (
            private().with_columns(twice=value * 2 + 1).sum("twice", by="region", bounds=(0, 200), **spend)
        ),
        "SQL: count by 50 strings": sql(f"region, {counted}", "visits GROUP BY region"),
        "SQL: count by 100,000 integers": sql(f"shop, {counted}", "visits GROUP BY shop"),
        "SQL: sum by 50 strings": sql(f"region, {summed}", "visits GROUP BY region"),
        "SQL: expression and filter": sql(f"region, {doubled}", "visits WHERE value > 10 GROUP BY region"),
        "SQL: integer filter": sql(f"region, {counted}", "visits WHERE shop < 1000 GROUP BY region"),
        "SQL: text filter": sql(f"shop, {counted}", "visits WHERE region = 'region-07' GROUP BY shop"),
        "SQL: CASE key": sql(f"CASE WHEN value > 10 THEN 'high' ELSE 'low' END AS k, {counted}", "visits GROUP BY k"),
        "SQL: Parquet view": sql(f"region, {counted}", "stored GROUP BY region"),
        "SQL: join": sql(f"zone, {counted}", "visits JOIN names USING (region) GROUP BY zone"),
    }
