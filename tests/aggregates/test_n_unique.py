"""`n_unique` through every door."""

import polars as pl
import pytest

from tests.aggregates.doors import HUGE, charges, refused, rows, session
from tests.aggregates.frames import FRAME, OWNED

MANY = pl.DataFrame({"who": [i // 40 for i in range(400)], "key": ["a", "b"] * 200, "own": range(400)})
"""Ten units with 40 values of their own, 20 in each of two groups."""


def ask(kind, frame, *given, **words):
    return rows(kind(frame, session()).ask("n_unique", *given, **{"epsilon": HUGE, **words}), words.get("by"))


@pytest.mark.slow
@pytest.mark.parametrize("column", ["n", "x", "region", "kind"])
def test_it_equals_the_plain_number_of_values(kind, column):
    """Noise of scale 50 / 10**5 is 0, except with probability below 1e-200. Null and NaN are not values."""
    own = OWNED[column].fill_nan(None) if column == "x" else OWNED[column]
    assert ask(kind, FRAME, column) == own.drop_nulls().n_unique()


@pytest.mark.slow
@pytest.mark.parametrize("column", ["n", "x"])
def test_it_equals_the_plain_number_in_each_group(kind, column):
    """Noise of scale 5 * 50 / (10**5 * 2 / 3) is 0, except with probability below 1e-100."""
    expected = OWNED.with_columns(pl.col("x").fill_nan(None)).drop_nulls(column).group_by("region")
    found = ask(kind, FRAME, column, by="region", max_groups=5)
    assert found == dict(expected.agg(pl.col(column).n_unique()).iter_rows())


@pytest.mark.slow
def test_a_filter_leaves_values_out(kind):
    where = (pl.col("n") > 25, "n > 25")
    assert ask(kind, FRAME, "n", where=where) == OWNED.filter(where[0])["n"].n_unique()


@pytest.mark.slow
@pytest.mark.parametrize("cap", [1, 7, 20, 21])
def test_of_a_unit_as_many_values_count_as_the_cap_says(kind, cap):
    """No two units share a value, so each adds exactly its number of values or the cap, whichever is smaller."""
    found = ask(kind, MANY, "own", by="key", keys=["a", "b"], max_rows_per_group=cap)
    assert found == dict.fromkeys("ab", 10 * min(cap, 20))
    assert ask(kind, MANY, "own", max_rows_per_group=cap) == 10 * cap


@pytest.mark.slow
def test_the_cap_is_on_values_not_on_rows(kind):
    """Each unit has 300 rows with 3 different values, and all 3 count under a cap of 3."""
    frame = pl.DataFrame({"who": [i % 10 for i in range(3000)], "v": [i // 1000 + 3 * (i % 10) for i in range(3000)]})
    assert ask(kind, frame, "v", max_rows_per_group=3) == 30
    assert ask(kind, frame, "v", max_rows_per_group=2) == 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pl.Series([0.0, -0.0, float("nan"), None]), 1),
        (pl.Series(["", "a", "A", None]), 3),
        (pl.Series([7, 7, 7, 7]), 1),
        (pl.Series([None, None, None, None], dtype=pl.Int64), 0),
        (pl.Series([True, False, None, True]), 2),
        (pl.Series(["b", "a", "b", None], dtype=pl.Categorical), 2),
        (pl.Series(["b", "a", "b", None], dtype=pl.Enum(["a", "b", "c"])), 2),
    ],
    ids=["zeros", "texts", "constant", "nothing", "flags", "categories", "enum"],
)
def test_what_is_a_value_and_which_are_the_same(kind, values, expected):
    assert ask(kind, pl.DataFrame({"who": [1, 1, 2, 2], "v": values}), "v") == expected


@pytest.mark.slow
def test_empty_groups_and_frames_have_none(kind):
    assert ask(kind, MANY, "own", by="key", keys=["a", "none"]) == {"a": 200, "none": 0}
    assert ask(kind, MANY.clear(), "own") == 0
    assert ask(kind, MANY.clear(), "own", by="key") == {}


@pytest.mark.slow
@pytest.mark.parametrize("by", [None, "region"])
def test_every_door_plans_and_charges_the_same(by):
    assert len(charges(FRAME, "n_unique", "x", by=by, epsilon=0.5)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "terms", "message"),
    [
        ({"epsilon": 1}, {"max_rows_per_group": None}, "This n_unique needs a cap on the rows"),
        ({"epsilon": 1, "by": "region"}, {"max_groups": None}, "Grouping by region needs a cap on the groups"),
        ({"within": 5, "by": "region"}, {}, "needs public keys"),
        ({"epsilon": 5}, {"epsilon": 1}, "does not fit the session's budget"),
    ],
)
def test_every_door_refuses_alike(kind, words, terms, message):
    refused(kind(FRAME, session(**terms)), message, "n_unique", "n", **words)
