"""Sorted rows that are kept with a frame change how fast a question is answered, and nothing else."""

import secrets

import numpy as np
import polars as pl
import pytest

from dp_polars._engines.bounding import LaneBounding
from dp_polars._engines.polars import held_frame
from dp_polars._engines.polars.engine import run_bounded
from dp_polars._engines.polars.scan import polars_rows
from dp_polars._engines.request import BoundedRequest, GroupSum, Lane
from dp_polars._expressions import Column, Constant, apply

ROWS = 200_000  # two batches
COUNTS = Lane(sums=(GroupSum(name="rows", of="rows", max_rows=3), GroupSum(name="units", of="units")))


@pytest.fixture(autouse=True)
def same_salts(monkeypatch):
    """All questions draw the same salts, so their answers can be compared to the last bit."""
    monkeypatch.setattr(secrets, "randbits", lambda bits: 0x1234567890ABCDEF % (1 << bits))


@pytest.fixture
def used(monkeypatch):
    """How often kept rows were used."""
    calls, own = [], LaneBounding.add_part
    monkeypatch.setattr(LaneBounding, "add_part", lambda self, words: (calls.append(len(words)), own(self, words)))
    return calls


def frame_of(seed=1, unit=None):
    random = np.random.default_rng(seed)
    texts = pl.Series(["a", "b", None, "c", "a longer text than twelve bytes"])
    return pl.DataFrame(
        {
            "person": random.integers(0, 5000, ROWS) if unit is None else unit,
            "text": texts.gather(random.integers(0, 5, ROWS)),
            "other": texts.gather(random.integers(0, 4, ROWS)),
        }
    )


def answer(frame, *keys, unit="person", condition=None, **words):
    rows = polars_rows(frame)
    rows = rows if condition is None else rows.filter(condition)
    names = {"unit0": unit, **{f"key{place}": key for place, key in enumerate(keys)}}
    asked = rows.make({new: Column(old, rows.schema[old]) for new, old in names.items()}, keep=False)
    given = {"units": 1, "max_groups": 2, "domain": None, "lanes": (COUNTS,), **words}
    return run_bounded(asked, BoundedRequest(keys=len(keys), **given)).groups


@pytest.mark.slow
def test_the_second_answer_comes_from_kept_rows_and_is_the_same(used):
    frame = frame_of()
    for keys in (["text"], ["text", "other"], []):
        first = answer(frame, *keys)
        assert not used
        for most in (2, 1, None):
            assert answer(frame, *keys, max_groups=most).equals(answer(frame.clone(), *keys, max_groups=most))
        assert answer(frame, *keys).equals(first)
        assert used == [ROWS] * 4
        used.clear()


@pytest.mark.slow
def test_one_number_written_into_the_units_is_noticed(used):
    """Polars shares the memory of integers with NumPy arrays, so it does not know that a unit has changed."""
    unit = np.random.default_rng(2).integers(0, 5000, ROWS)
    frame = frame_of(unit=pl.Series(unit))
    if not np.shares_memory(frame["person"].to_numpy(), unit):
        pytest.skip("this version of Polars copies arrays")
    answer(frame, "text")
    for place in (0, ROWS // 2, ROWS - 1):
        unit[place] = (unit[place] + 1) % 5000
        expected = answer(frame_of(unit=unit.copy()), "text")
        assert answer(frame, "text").equals(expected)
        assert not used
    unit[[0, 1]] = unit[[1, 0]]  # the same numbers in another order
    assert answer(frame, "text").equals(answer(frame_of(unit=unit.copy()), "text"))
    assert bool(used) == (unit[0] == unit[1])


@pytest.mark.slow
def test_other_columns_and_conditions_get_their_own_rows(used):
    frame = frame_of()
    answer(frame, "text")
    assert answer(frame, "other").equals(answer(frame.clone(), "other"))
    assert answer(frame, "text").equals(answer(frame.clone(), "text"))
    condition = apply("ne", Column("person", pl.Int64()), Constant(17, pl.Int64()))
    dropped = frame.filter(pl.col("person") != 17)
    assert answer(frame, "text", condition=condition).equals(answer(dropped, "text"))
    swapped = frame.with_columns(pl.col("person").reverse())
    assert answer(swapped, "text").equals(answer(swapped.clone(), "text"))
    frame.replace_column(1, frame["text"].reverse())
    assert answer(frame, "text").equals(answer(frame.clone(), "text"))
    assert not used


def test_rows_without_a_unit_are_not_kept(used):
    unit = pl.Series(np.arange(ROWS) % 4000).scatter(5, None)
    frame = frame_of(unit=unit)
    assert answer(frame, "text").equals(answer(frame, "text"))
    assert not used


@pytest.mark.slow
def test_kept_rows_count_towards_the_limit_and_are_forgotten_first(used, monkeypatch):
    frame = frame_of()
    monkeypatch.setattr(held_frame, "MOST_BYTES", 5 * ROWS)  # codes of one byte, and four bytes of a packed row
    answer(frame, "text")
    answer(frame, "text")
    assert not used, "codes of texts leave no room"
    monkeypatch.setattr(held_frame, "MOST_BYTES", 6 * ROWS)
    answer(frame, "text")
    answer(frame, "text")
    assert used == [ROWS]
    answer(frame, "other")  # the codes of another column drive the rows out, and then there is no room
    facts = held_frame._facts_about(frame)
    assert set(facts.known) == {"text", "other"}
    assert facts.size <= 6 * ROWS
