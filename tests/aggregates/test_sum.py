"""`sum` through every door."""

import polars as pl
import pytest

from tests.aggregates.doors import DOORS, HUGE, rows, session
from tests.aggregates.frames import FRAME, OWNED

CAPS = {"max_groups": 5, "max_rows_per_group": 50}


@pytest.fixture(params=DOORS, ids=lambda door: door.__name__)
def door(request):
    return request.param(FRAME, session())


def clipped(column, low, high):
    return (
        pl.col(column).fill_nan(None).clip(low, high).sum() if column == "x" else pl.col(column).clip(low, high).sum()
    )


@pytest.mark.slow
@pytest.mark.parametrize("by", [None, "region", "kind"])
@pytest.mark.parametrize(("column", "bounds"), [("n", (-5, 20)), ("x", (0, 25))])
def test_it_equals_the_plain_sum_of_clipped_values(door, by, column, bounds):
    """Laplace noise of scale 5 * 50 * 25 / 10**5 or less exceeds 60 scales with probability below 1e-25."""
    found = rows(door.ask("sum", column=column, by=by, bounds=bounds, epsilon=HUGE, **CAPS), by)
    if by is None:
        assert found == pytest.approx(OWNED.select(clipped(column, *bounds)).item(), abs=5)
    else:
        expected = dict(OWNED.group_by(by).agg(clipped(column, *bounds)).iter_rows())
        assert found == {key: pytest.approx(total, abs=5) for key, total in expected.items()}


@pytest.mark.slow
def test_rows_beyond_the_cap_are_scaled_down(door):
    found = rows(door.ask("sum", column="n", bounds=(0, 20), max_rows_per_group=3, epsilon=HUGE), None)
    own = OWNED.drop_nulls("n").group_by("who").agg(pl.col("n").clip(0, 20).sum(), size=pl.len())
    expected = own.select((pl.col("n") * pl.min_horizontal(3, "size") / pl.col("size")).sum()).item()
    assert found == pytest.approx(expected, abs=0.6)  # a whole number; noise of scale 60 / 10**5


@pytest.mark.slow
def test_every_door_plans_and_charges_the_same():
    charged = set()
    for kind in DOORS:
        paying = session(epsilon=1)
        kind(FRAME, paying).ask("sum", column="x", by="region", bounds=(0, 25), epsilon=0.5)
        (entry,) = paying.releases
        charged.add((str(entry.cost), entry.label))
    assert len(charged) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"bounds": (5, 1)}, "lower < upper"),
        ({"bounds": (0, 10**17)}, "-1e15"),
        ({"bounds": (0, 1), "column": "region"}, "needs integers, floats"),
    ],
)
@pytest.mark.parametrize("kind", DOORS, ids=lambda door: door.__name__)
def test_every_door_refuses_alike(kind, words, message):
    paying = session()
    door = kind(FRAME, paying)
    with pytest.raises(door.errors, match=message):
        door.ask("sum", **{"column": "x", **words}, epsilon=1)
    assert not paying.releases
