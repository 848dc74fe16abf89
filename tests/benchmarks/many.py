"""Many questions over a domain of a million cells: an answer, an update, a synthesis, and the memory of the process."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

import numpy as np
import polars as pl

import dp_polars as dp
from tests.benchmarks.measure import Row, cpu_seconds, generous_session, show

ROWS = 500_000
VALUES = [f"v{i}" for i in range(10)]
DOMAIN = {**{f"c{i}": None for i in range(5)}, "x": dp.bins(range(0, 101, 10))}


def run() -> bool:
    """Measure in a separate process, so that its memory is that of these questions alone."""
    program = "from tests.benchmarks.many import measured; measured()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    rows = [
        Row(what, f"{found[what]:8.1f} {unit}", found[what], limit)
        for what, unit, limit in [
            ("a free answer, two columns", "ms", 50),
            ("a free answer, all six columns", "ms", 50),
            ("an update, all six columns (median of 40)", "ms", 50),
            ("MWEM, all 15 pairs of columns measured", "s", None),
            ("MWEM, 10 rounds", "s", None),
            ("peak memory, beyond the frame's", "MB", 1000),
        ]
    ]
    return show("many questions over 1,000,000 cells, CPU", rows)


def measured() -> None:
    """Print what was measured."""
    rng = np.random.default_rng(1)
    values = pl.Series(VALUES, dtype=pl.Enum(VALUES))
    columns = {f"c{i}": values.gather(np.minimum(rng.geometric(0.3, ROWS) - 1, 9)) for i in range(5)}
    frame = pl.DataFrame({**columns, "x": rng.integers(0, 100, ROWS), "user": np.arange(ROWS)})
    before = _megabytes()
    found = {}
    with generous_session(max_rows_per_group=1):
        asked = frame.dp.online_queries(DOMAIN, alpha=0.02, max_updates=60, epsilon=1)
        two = (pl.col("c0") == "v9") & (pl.col("c4") == "v8")
        found["a free answer, two columns"] = cpu_seconds(lambda: asked.ask(two), calls=5) * 1e3
        six = two & (pl.col("c1") == "v1") & (pl.col("c2") == "v1") & (pl.col("c3") == "v1") & (pl.col("x") < 50)
        found["a free answer, all six columns"] = cpu_seconds(lambda: asked.ask(six), calls=5) * 1e3
        learned = frame.dp.online_queries(DOMAIN, alpha=0.0001, max_updates=40, epsilon=100)
        times = []
        while learned.updates_left:
            cut = [pl.col(f"c{i}") <= VALUES[rng.integers(2, 9)] for i in range(5)]
            start = time.process_time()
            answer = learned.ask(pl.all_horizontal(*cut, pl.col("x") < int(rng.integers(20, 100))))
            times += [] if answer.free else [time.process_time() - start]
        found["an update, all six columns (median of 40)"] = float(np.median(times)) * 1e3
        start = time.process_time()
        frame.dp.synthesize(DOMAIN, epsilon=1)
        found["MWEM, all 15 pairs of columns measured"] = time.process_time() - start
        start = time.process_time()
        made = frame.dp.synthesize(DOMAIN, epsilon=1, rounds=10)
        found["MWEM, 10 rounds"] = time.process_time() - start
        if made.frame.height < 1:
            raise ValueError("no synthetic rows")
    found["peak memory, beyond the frame's"] = _megabytes() - before
    print(json.dumps(found))


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
