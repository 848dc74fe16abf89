"""A thousand conditions through a stream against the same thousand in one plain Polars query."""

from __future__ import annotations

import numpy as np
import polars as pl

import dp_polars as dp
from tests.benchmarks import data
from tests.benchmarks.measure import Row, cpu_seconds, generous_session, show

ROWS = 10_000_000
CONDITIONS = 1_000
REPEATS = 3


def run(rows: int = ROWS) -> bool:
    frame = data.frame(rows)
    queries = conditions()
    plainly = cpu_seconds(lambda: plain(frame, queries), REPEATS)
    report = [Row(f"{CONDITIONS:,} conditions, plain", f"{plainly:6.2f} CPU s", plainly)]
    private = dp.private(frame, generous_session())
    for of, unit in (("rows", None), ("units", None), ("rows", dp.ROW)):
        own = private if unit is None else dp.private(frame, generous_session(unit), unit=unit)
        opening = cpu_seconds(lambda own=own, of=of: opened(own, of), 1)
        stream = opened(own, of)
        seconds = cpu_seconds(lambda stream=stream: stream.ask_many(queries), REPEATS)
        ratio, name = seconds / plainly, f"{of}{', every row a unit' if unit is dp.ROW else ''}"
        shown = f"{seconds:6.2f} CPU s   {ratio:5.2f} x plain   opening {opening:5.2f} s"
        report.append(Row(f"{CONDITIONS:,} conditions, of {name}", shown, ratio, 3))
    return show(f"streams, {rows:,} rows", report)


def opened(private: dp.PrivateFrame, of: str) -> dp.Stream:
    """Return a stream whose threshold nothing reaches, so every question is asked."""
    return private.sparse_vector(10**15, hits=10, of=of, epsilon=1)  # type: ignore[arg-type]


def plain(frame: pl.DataFrame, queries: list[pl.Expr]) -> pl.DataFrame:
    """Return the counts of all conditions in the fastest way that Polars has: on the streaming engine."""
    counts = [query.sum().alias(str(place)) for place, query in enumerate(queries)]
    return frame.lazy().select(counts).collect(engine="streaming")


def conditions() -> list[pl.Expr]:
    """Return different conditions on numbers and text, of one and of two columns."""
    generator = np.random.default_rng(1)
    regions = data.region_names().to_list()
    found = []
    for place in range(CONDITIONS):
        value = pl.col("value") > float(generator.lognormal(2, 1))
        shop = pl.col("shop") < int(generator.integers(1, data.SHOPS))
        region = pl.col("region") == regions[int(generator.integers(len(regions)))]
        found.append((value, value & shop, region, region & value)[place % 4])
    return found
