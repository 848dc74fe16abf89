"""`count` through every door."""

import polars as pl
import pytest

from tests.aggregates.doors import DOORS, HUGE, Functions, rows, session
from tests.aggregates.frames import FRAME, OWNED

SOME = (pl.col("kind") > 0, "kind > 0")


@pytest.fixture(params=DOORS, ids=lambda door: door.__name__)
def door(request):
    return request.param(FRAME, session())


@pytest.mark.slow
@pytest.mark.parametrize("by", [None, "region", "kind"])
@pytest.mark.parametrize("where", [None, SOME])
def test_it_equals_the_plain_count_where_caps_do_not_bind(door, by, where):
    plain = OWNED.filter(where[0]) if where else OWNED
    found = rows(door.ask("count", by=by, where=where, epsilon=HUGE), by)
    expected = plain.height if by is None else dict(plain.group_by(by).len().iter_rows())
    assert found == expected


@pytest.mark.slow
def test_a_column_counts_what_is_there(door):
    assert rows(door.ask("count", column="n", epsilon=HUGE), None) == OWNED["n"].is_not_null().sum()
    if not isinstance(door, Functions):  # whose conditions are SQL, in which NaN is a value
        there = OWNED["x"].fill_nan(None).is_not_null().sum()
        assert rows(door.ask("count", column="x", epsilon=HUGE), None) == there


@pytest.mark.slow
def test_caps_bind_alike(door):
    found = rows(door.ask("count", by="kind", max_groups=2, max_rows_per_group=1, epsilon=HUGE), "kind")
    own = OWNED.group_by("who").agg(pl.col("kind").n_unique())["kind"].clip(upper_bound=2).sum()
    assert sum(found.values()) == own
    found = rows(door.ask("count", by="kind", max_rows_per_group=2, epsilon=HUGE), "kind")
    capped = OWNED.group_by("who", "kind").len().with_columns(pl.col("len").clip(upper_bound=2))
    assert found == dict(capped.group_by("kind").agg(pl.col("len").sum()).iter_rows())


@pytest.mark.slow
def test_public_keys_are_all_shown(door):
    found = rows(door.ask("count", by="region", keys=["north", "nowhere"], epsilon=HUGE), "region")
    assert found == {"north": OWNED.filter(region="north").height, "nowhere": 0}


@pytest.mark.slow
@pytest.mark.parametrize("by", [None, "region"])
def test_every_door_plans_and_charges_the_same(by):
    charged = []
    for kind in DOORS:
        paying = session(epsilon=1)
        kind(FRAME, paying).ask("count", by=by, epsilon=0.25)
        (entry,) = paying.releases
        charged.append((entry.cost, entry.label))
    assert len({str(cost) for cost, _ in charged}) == 1
    assert len({label for _, label in charged}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "terms", "message"),
    [
        ({}, {}, "This release needs a spend"),
        ({"epsilon": 1, "by": "region"}, {"max_groups": None}, "Grouping by region needs a cap on the groups"),
        ({"epsilon": 1}, {"max_rows_per_group": None}, "needs a cap on the rows that one unit adds"),
        ({"epsilon": 1, "by": "who"}, {}, "reads the unit column"),
        ({"epsilon": 1, "by": "region"}, {"delta": None}, "no delta to discover"),
        ({"epsilon": 1, "share": 0.1}, {}, "in one way"),
        ({"epsilon": -1}, {}, "epsilon"),
        ({"epsilon": 5}, {"epsilon": 1}, "does not fit the session's budget"),
    ],
)
@pytest.mark.parametrize("kind", DOORS, ids=lambda door: door.__name__)
def test_every_door_refuses_alike(kind, words, terms, message):
    paying = session(**terms)
    door = kind(FRAME, paying)
    with pytest.raises(door.errors, match=message):
        door.ask("count", **words)
    assert not paying.releases
