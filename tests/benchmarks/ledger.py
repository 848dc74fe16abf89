"""What a charge costs: in memory, and in a file that already holds 10,000 releases."""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path

import polars as pl

import dp_polars as dp
from tests.benchmarks.measure import Row, cpu_seconds, show

EARLIER = 10_000
FRAME = pl.DataFrame({"region": [f"r{i}" for i in range(50)], "count": list(range(50))})


def run() -> bool:
    cost = dp.pure_cost(Fraction(1, 10**7))
    approximate = dp.Session(epsilon=1.0, delta=1e-6, unit="user")
    milliseconds = cpu_seconds(lambda: approximate.reserve(cost, label="q"), calls=500) * 1e3
    rows = [Row("reserve, in memory", f"{milliseconds:6.3f} ms", milliseconds, 1)]
    with tempfile.TemporaryDirectory() as folder:
        session = dp.Session(epsilon=1.0, delta=1e-6, unit="user", ledger=Path(folder) / "budget.db")
        session._ledger._connection.execute("PRAGMA synchronous = OFF")  # to fill it quickly
        for i in range(EARLIER):
            session.reserve(cost, label="q", key=str(i).encode()).commit(FRAME)
        session._ledger._connection.execute("PRAGMA synchronous = EXTRA")
        milliseconds = cpu_seconds(lambda: session.reserve(cost, label="q"), calls=50) * 1e3
        rows.append(Row(f"reserve, file with {EARLIER:,} releases", f"{milliseconds:6.3f} ms", milliseconds, 10))
        milliseconds = cpu_seconds(lambda: session.reserve(cost, label="q").commit(FRAME), calls=50) * 1e3
        rows.append(Row("reserve and commit 50 rows, same file", f"{milliseconds:6.3f} ms", milliseconds))
        milliseconds = cpu_seconds(lambda: session.stored(b"5000"), calls=50) * 1e3
        rows.append(Row("find a stored release, same file", f"{milliseconds:6.3f} ms", milliseconds))
        milliseconds = cpu_seconds(lambda: dp.Session.from_ledger(Path(folder) / "budget.db").close()) * 1e3
        rows.append(Row("open and verify the same file", f"{milliseconds:6.3f} ms", milliseconds))
    return show("ledger, CPU", rows)
