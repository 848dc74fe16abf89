"""`count_units` through every door."""

import polars as pl
import pytest

from tests.aggregates.doors import DOORS, HUGE, rows, session
from tests.aggregates.frames import FRAME, OWNED


@pytest.fixture(params=DOORS, ids=lambda door: door.__name__)
def door(request):
    return request.param(FRAME, session())


@pytest.mark.slow
@pytest.mark.parametrize("by", [None, "region", "kind"])
def test_it_equals_the_number_of_distinct_units(door, by):
    found = rows(door.ask("count_units", by=by, epsilon=HUGE), by)
    if by is None:
        assert found == OWNED["who"].n_unique()
    else:
        assert found == dict(OWNED.group_by(by).agg(pl.col("who").n_unique()).iter_rows())


@pytest.mark.slow
def test_caps_bind_alike(door):
    found = rows(door.ask("count_units", by="kind", max_groups=3, epsilon=HUGE), "kind")
    own = OWNED.group_by("who").agg(pl.col("kind").n_unique())["kind"].clip(upper_bound=3).sum()
    assert sum(found.values()) == own


@pytest.mark.slow
def test_a_filter_leaves_units_out(door):
    where = (pl.col("n") > 28, "n > 28")
    assert rows(door.ask("count_units", where=where, epsilon=HUGE), None) == OWNED.filter(where[0])["who"].n_unique()


@pytest.mark.slow
def test_every_door_plans_and_charges_the_same():
    charged = set()
    for kind in DOORS:
        paying = session(epsilon=1)
        kind(FRAME, paying).ask("count_units", by="region", share=0.1)
        (entry,) = paying.releases
        charged.add((str(entry.cost), entry.label))
    assert len(charged) == 1
