"""Steps within a unit against the same query in plain Polars and plain DuckDB: CPU seconds, both sides in turn.

A shop also tells how large the errors of retention and of a funnel are at epsilon 1.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import duckdb
import numpy as np
import polars as pl

import dp_polars as dp
from tests.benchmarks import data
from tests.benchmarks.measure import Row, generous_session, show

ROWS = 10_000_000
ROUNDS = 5
LIMIT = 2.5
CUSTOMERS = 50_000
REPEATS = 20


def run(rows: int = ROWS) -> bool:
    """Measure, and return whether all limits hold."""
    frame = data.frame(rows).select("user", "region", "value")
    customers = frame.select(pl.col("user").unique()).with_columns(segment=pl.col("user") % 7)
    fine = _polars(frame, customers)
    fine = _duckdb(frame, customers) and fine
    _errors()
    return fine


def _compared(what: str, private: Callable[[], object], plain: Callable[[], object], limit: float | None) -> Row:
    best = [float("inf")] * 2
    for number in range(ROUNDS + 1):
        for place, work in enumerate((private, plain)):
            start = time.process_time()
            work()
            if number:
                best[place] = min(best[place], time.process_time() - start)
    ratio = best[0] / best[1]
    return Row(what, f"{best[0]:6.2f} CPU s   plain {best[1]:6.3f} s   {ratio:5.2f} x", ratio, limit)


def _polars(frame: pl.DataFrame, customers: pl.DataFrame) -> bool:
    session, lazy = generous_session(), frame.lazy()
    spend: Any = {"epsilon": 1, "fresh": True}
    most, length = pl.col("n").clip(0, 50), pl.len()
    segments, value = list(range(7)), pl.col("value")

    def private() -> Any:
        return dp.private(frame.clone(), session)

    def people() -> Any:
        return dp.private(customers, session)

    rows = [
        _compared(
            "orders per customer",
            lambda: private().group_by("user").agg(n=length).count(most, keys=list(range(51)), **spend),
            lambda: lazy.group_by("user").agg(n=length).group_by(most).len().collect(engine="streaming"),
            LIMIT,
        ),
        _compared(
            "join of customers and orders",
            lambda: private().join(people(), on="user").count("segment", keys=segments, **spend),
            lambda: lazy.join(customers.lazy(), on="user").group_by("segment").len().collect(engine="streaming"),
            LIMIT,
        ),
        _compared(
            "total per customer",
            lambda: private().group_by("user").agg(n=value.sum()).mean("n", bounds=(0, 1000), **spend),
            lambda: lazy.group_by("user").agg(n=value.sum()).select(pl.col("n").mean()).collect(engine="streaming"),
            None,
        ),
        _compared(
            "dearest order of each customer",
            lambda: private().filter(value == value.max().over("user")).count("region", **spend),
            lambda: lazy.filter(value == value.max().over("user")).group_by("region").len().collect(),
            None,
        ),
    ]
    return show(f"steps within a unit, Polars, {frame.height:,} rows", rows)


def _duckdb(frame: pl.DataFrame, customers: pl.DataFrame) -> bool:
    raw = duckdb.connect()
    raw.execute("SET enable_progress_bar = false")
    for name, rows in (("visits", frame), ("customers", customers)):
        raw.register("given", rows)
        raw.execute(f"CREATE TABLE {name} AS FROM given")
        raw.unregister("given")
    guard = dp.connect(raw, generous_session())
    per_user = 'SELECT "user", least(count(*), 50) AS n FROM visits GROUP BY "user"'
    joined = 'visits JOIN customers USING ("user")'
    options: Any = {"epsilon": 1, "fresh": True}
    lines = [
        _compared(
            "orders per customer",
            lambda: guard.sql(f"SELECT n, dp_count(*) AS c FROM ({per_user}) GROUP BY n", **options).fetchall(),
            lambda: raw.execute(f"SELECT n, count(*) AS c FROM ({per_user}) GROUP BY n").fetchall(),
            LIMIT,
        ),
        _compared(
            "join of customers and orders",
            lambda: guard.sql(f"SELECT segment, dp_count(*) AS c FROM {joined} GROUP BY segment", **options).fetchall(),
            lambda: raw.execute(f"SELECT segment, count(*) AS c FROM {joined} GROUP BY segment").fetchall(),
            LIMIT,
        ),
    ]
    return show(f"steps within a unit, DuckDB {duckdb.__version__}, {frame.height:,} rows", lines)


def _errors() -> None:
    """Show the errors of retention and of a funnel on a made-up shop, at epsilon 1 each."""
    frame = _shop()
    session = generous_session("customer", epsilon=2_500, max_groups=None)
    private = dp.private(frame, session)
    what = pl.col("what")
    steps = {"visits": what == "visit", "fills a cart": what == "cart", "pays": what == "pay"}
    asked = {
        "retention, six months": private.retention("day", periods=6),
        "funnel of three steps": private.funnel(steps, time="day", within="14d"),
    }
    rows = []
    for name, active in asked.items():
        key, keys = ("period", list(range(7))) if "period" in active.columns else ("step", list(steps))
        # At a huge epsilon the answer is the truth, which is a whole number.
        truth = active.count(key, keys=keys, epsilon=500)["count"].to_numpy().astype(float)
        errors, shares = [], []
        for _ in range(REPEATS):
            found = active.count(key, keys=keys, epsilon=1, fresh=True)["count"].to_numpy().astype(float)
            errors.append(float(np.median(np.abs(found - truth))))
            shares.append(float(np.max(np.abs(found / found.sum() - truth / truth.sum()))))
        shown = f"median error of a count {statistics.median(errors):5.1f} of {truth.sum():,.0f}, "
        rows.append(Row(name, f"{shown}largest error of a share {statistics.median(shares):.3%}", 0.0))
    show(f"a shop of {CUSTOMERS:,} customers, epsilon 1 each", rows)


def _shop(seed: int = 1) -> pl.DataFrame:
    """Return what customers do: visits that thin out over the months, some of which lead to a cart and a payment."""
    generator = np.random.default_rng(seed)
    visits = np.minimum(200, 1 + generator.pareto(1.5, CUSTOMERS) * 2).astype(np.int64)
    who = np.repeat(np.arange(CUSTOMERS), visits)
    start = generator.integers(0, 180, CUSTOMERS)[who]
    day = start + np.minimum(180, generator.exponential(30, len(who))).astype(np.int64)
    kind = generator.choice(["visit", "cart", "pay"], len(who), p=[0.7, 0.2, 0.1])
    days = pl.Series(day).cast(pl.Int64)
    first = date(2024, 1, 1)
    return pl.DataFrame({"customer": who, "what": kind, "offset": days}).select(
        "customer", "what", day=pl.lit(first) + pl.col("offset") * pl.lit(timedelta(days=1))
    )
