"""`count` of a column through every door counts the values that are present."""

import polars as pl
import pytest

from tests.aggregates.doors import HUGE, charges, rows, session
from tests.aggregates.frames import FRAME, OWNED


def ask(kind, frame, column, **words):
    return rows(kind(frame, session()).ask("count", column, **{"epsilon": HUGE, **words}), words.get("by"))


@pytest.mark.slow
@pytest.mark.parametrize("column", ["n", "x", "region"])
@pytest.mark.parametrize("by", [None, "kind"])
def test_it_equals_the_plain_count_of_what_is_there(kind, column, by):
    """Null and NaN do not count. Noise of scale 5 * 50 / 10**5 or less is 0, except with probability below 1e-100."""
    plain = OWNED.with_columns(pl.col("x").fill_nan(None))
    found = ask(kind, FRAME, column, by=by, max_groups=5)
    expected = plain[column].count() if by is None else dict(plain.group_by(by).agg(pl.col(column).count()).iter_rows())
    assert found == expected


@pytest.mark.slow
def test_only_rows_with_a_value_use_up_the_cap(kind):
    frame = pl.DataFrame({"who": [i % 5 for i in range(100)], "v": [None if i < 50 else "there" for i in range(100)]})
    assert ask(kind, frame, "v", max_rows_per_group=8) == 40
    assert ask(kind, frame, "v", max_rows_per_group=50) == 50


@pytest.mark.slow
def test_a_column_of_nulls_and_an_empty_frame_count_nothing(kind):
    frame = pl.DataFrame({"who": [1, 2], "key": ["a", "b"], "v": pl.Series([None, None], dtype=pl.Float64)})
    assert ask(kind, frame, "v") == 0
    assert ask(kind, frame, "v", by="key", keys=["a", "b", "c"]) == dict.fromkeys("abc", 0)
    assert ask(kind, frame.clear(), "v") == 0


@pytest.mark.slow
def test_every_door_plans_and_charges_the_same():
    assert len(charges(FRAME, "count", "x", by="region", epsilon=0.5)) == 1
