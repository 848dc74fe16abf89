"""`mean` through every door."""

import polars as pl
import pytest

from tests.aggregates.doors import DOORS, HUGE, rows, session
from tests.aggregates.frames import FRAME, OWNED

CAPS = {"max_groups": 5, "max_rows_per_group": 50}


@pytest.fixture(params=DOORS, ids=lambda door: door.__name__)
def door(request):
    return request.param(FRAME, session())


@pytest.mark.slow
@pytest.mark.parametrize("by", [None, "region", "kind"])
@pytest.mark.parametrize(("column", "bounds"), [("n", (-5, 20)), ("x", (0, 25))])
def test_it_equals_the_plain_mean_of_clipped_values(door, by, column, bounds):
    """The noise on the sum is at most 0.05 and that on the count at most 0.01, over 700 rows or more."""
    found = rows(door.ask("mean", column=column, by=by, bounds=bounds, epsilon=HUGE, **CAPS), by)
    plain = OWNED.with_columns(pl.col("x").fill_nan(None))
    average = pl.col(column).clip(*bounds).mean()
    if by is None:
        assert found == pytest.approx(plain.select(average).item(), abs=0.02)
    else:
        expected = dict(plain.group_by(by).agg(average).iter_rows())
        assert found == {key: pytest.approx(mean, abs=0.02) for key, mean in expected.items()}


@pytest.mark.slow
def test_every_door_plans_and_charges_the_same():
    charged = set()
    for kind in DOORS:
        paying = session(epsilon=1)
        kind(FRAME, paying).ask("mean", column="x", by="region", bounds=(0, 25), epsilon=0.5)
        (entry,) = paying.releases
        charged.add((str(entry.cost), entry.label))
    assert len(charged) == 1


@pytest.mark.parametrize("kind", DOORS, ids=lambda door: door.__name__)
def test_a_wanted_error_is_refused_alike(kind):
    paying = session()
    door = kind(FRAME, paying)
    with pytest.raises(door.errors, match="depends on how many rows"):
        door.ask("mean", column="x", bounds=(0, 25), within=1)
    assert not paying.releases
