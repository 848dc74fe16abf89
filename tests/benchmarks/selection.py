"""Choices through `df.dp` against the bounded count by the same key: CPU seconds of one run, and the peak memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import polars as pl

from tests.benchmarks import data
from tests.benchmarks.measure import Row, cpu_seconds, generous_session, show

ROWS = 10_000_000
SPEND = {"epsilon": 1, "fresh": True}
REPEATS = 2
BEST = "import sys; from tests.benchmarks import selection; selection.best(*map(int, sys.argv[1:]))"

Work = Callable[[], object]


def run(rows: int = ROWS) -> bool:
    """Measure with this many rows."""
    # First, while this process is small: a process begins with the peak of the one that started it.
    fine = show(f"select_best, {rows:,} rows, one run of a process", _best(rows))
    frame = data.frame(rows)
    for what, words in (("a session with delta", {}), ("a pure session", {"delta": None})):
        with generous_session(**words):
            fine = show(f"choices, {rows:,} rows, {what}", _choices(frame, discovers=not words)) and fine
    return fine


def _choices(frame: pl.DataFrame, *, discovers: bool) -> list[Row]:
    """Return choices among 100,000 candidates beside the count by candidate: public in both, or discovered in both."""
    rows = []
    for what, column, candidates in (
        ("integers", "shop", pl.Series("shop", range(data.SHOPS))),
        ("strings", "product", data.product_names().alias("product")),
    ):
        asked = [
            ("noisy_max", {"candidates": candidates}, lambda words, c=column: frame.dp.noisy_max(c, **words, **SPEND)),
            ("top_k(10)", {"candidates": candidates}, lambda words, c=column: frame.dp.top_k(c, 10, **words, **SPEND)),
        ]
        public = cpu_seconds(lambda c=column, keys=candidates: frame.dp.count(c, keys=keys, **SPEND), REPEATS)
        for name, words, ask in asked:
            rows.append(_row(f"{name} of 100,000 {what}", lambda ask=ask, words=words: ask(words), public))
        if discovers:
            private = cpu_seconds(lambda c=column: frame.dp.count(c, **SPEND), REPEATS)
            for name, _, ask in asked:
                rows.append(_row(f"{name} of {what}, discovered", lambda ask=ask: ask({}), private))
    return rows


def _row(what: str, ask: Work, count: float, limit: float = 1.5) -> Row:
    seconds = cpu_seconds(ask, REPEATS)
    return Row(what, f"{seconds:6.2f} CPU s   count {count:6.2f} s   {seconds / count:5.2f} x", seconds / count, limit)


# ---------------------------------------------------------------------- select_best


def _best(rows: int) -> list[Row]:
    shown = []
    for candidates, values in ((10_000, 10_000), (100, 1_000_000)):
        command = [sys.executable, "-c", BEST, *map(str, (rows, candidates, values))]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        seconds, before, peak = map(float, done.split())
        text = f"{seconds:6.2f} CPU s   {peak:5.2f} GB at most, {before:.2f} GB before"
        shown.append(Row(f"{candidates:,} candidates, {values:,} different values", text, seconds))
    return shown


def best(rows: int, candidates: int, values: int) -> None:
    """Choose among this many prices, and print CPU seconds and gigabytes. This is the body of a child process."""
    import resource  # not on every system, and only needed here

    def gigabytes() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9

    users = pl.concat(block.select("user") for block in data.blocks(rows))
    bid = (pl.int_range(pl.len(), dtype=pl.Int64) * 7_919 % values).cast(pl.Float64) / values
    frame = users.with_columns(bid=bid).rechunk()
    prices = pl.Series([number / candidates for number in range(candidates)])
    before = gigabytes()
    with generous_session():
        start = time.process_time()
        frame.dp.select_best(
            prices, lambda price: pl.when(pl.col("bid") >= price).then(price).otherwise(0.0), bounds=(0, 1), epsilon=1
        )
        print(time.process_time() - start, before, gigabytes())
