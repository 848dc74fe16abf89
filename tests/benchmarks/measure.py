"""How the benchmarks measure and show."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dp_polars as dp


@dataclass(frozen=True)
class Row:
    """One line of a report: what was measured, the number, and the most it may be."""

    what: str
    shown: str
    value: float
    limit: float | None = None

    @property
    def within(self) -> bool:
        return self.limit is None or self.value <= self.limit


def cpu_seconds(work: Callable[[], object], repeats: int = 5, calls: int = 1) -> float:
    """Return the least CPU seconds of one call, over `repeats` measurements of `calls` calls, after a warm-up."""
    work()
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(calls):
            work()
        best = min(best, (time.process_time() - start) / calls)
    return best


def generous_session(unit: Any = "user", **words: Any) -> dp.Session:
    """Return a session that pays for every repeat."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.DPWarning)
        given = {"epsilon": 10**3, "delta": 1e-6, "max_groups": 5, "max_rows_per_group": 10, **words}
        return dp.Session(unit=unit, **given)


def show(title: str, rows: list[Row]) -> bool:
    """Print a report and return whether all limits hold."""
    print(f"\n{title}")
    width = max(len(row.what) for row in rows)
    for row in rows:
        limit = "" if row.limit is None else f"   limit {row.limit:g}   {'ok' if row.within else 'OVER'}"
        print(f"  {row.what:<{width}}  {row.shown}{limit}")
    return all(row.within for row in rows)
