"""What a question holds is freed when it is answered, without waiting for the garbage collector.

A question holds its rows in packed form, which can be gigabytes, and NumPy's arrays don't count for the collector. So
no object that holds rows may be a part of a cycle of references.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.bounding.lane import LaneBounding

FRAME = pl.DataFrame(
    {
        "user": [row % 300 for row in range(2_000)],
        "region": [f"region {row % 7}" for row in range(2_000)],
        "value": [float(row % 50) for row in range(2_000)],
    }
)
SESSION: dict[str, Any] = {"unit": "user", "epsilon": 5, "delta": 1e-6, "max_groups": 3, "max_rows_per_group": 4}
ASKED: dict[str, Callable[[Any], object]] = {
    "count": lambda frame: frame.count(epsilon=1),
    "count by a key": lambda frame: frame.count("region", epsilon=1),
    "mean": lambda frame: frame.mean("value", by="region", bounds=(0, 50), epsilon=1),
    "median": lambda frame: frame.median("value", by="region", bounds=(0, 50), epsilon=1),
    "count of units": lambda frame: frame.count_units("region", epsilon=1),
    "text units": lambda frame: frame.count(epsilon=1),
}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[weakref.ref[LaneBounding]]]:
    """Return weak references to all boundings that the test makes."""
    references: list[weakref.ref[LaneBounding]] = []
    init = LaneBounding.__init__

    def noted(self: LaneBounding, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        references.append(weakref.ref(self))

    monkeypatch.setattr(LaneBounding, "__init__", noted)
    gc.collect()
    gc.disable()
    try:
        yield references
    finally:
        gc.enable()


@pytest.mark.parametrize("asked", ASKED)
def test_rows_are_freed_with_the_answer(asked: str, made: list[weakref.ref[LaneBounding]]) -> None:
    frame = FRAME if asked != "text units" else FRAME.with_columns(user=pl.format("a rather long name {}", "user"))
    answer = ASKED[asked](dp.private(frame, dp.Session(**SESSION)))
    assert answer is not None
    assert made
    assert not any(reference() is not None for reference in made)


def test_the_frame_is_freed_with_its_private_frame(made: list[weakref.ref[LaneBounding]]) -> None:
    private = dp.private(FRAME.clone(), dp.Session(**SESSION))
    private.count("region", epsilon=1)
    freed = weakref.ref(private)
    del private
    assert freed() is None


def test_rows_of_a_statement_are_freed_with_its_answer(made: list[weakref.ref[LaneBounding]]) -> None:
    database = duckdb.connect()
    database.execute("CREATE TABLE visits AS SELECT * FROM FRAME")
    connection = dp.connect(database, dp.Session(**SESSION))
    connection.sql("SELECT region, dp_count(*, epsilon := 1) FROM visits GROUP BY region").fetchall()
    assert made
    assert not any(reference() is not None for reference in made)
