"""`min` and `max` through every door.

They aim a little inside: about t = 10 / epsilon rows (times the cap) lie beyond the answer. At epsilon 10**5 that is at
most one row, so a minimum lies between the smallest and the second smallest value.
"""

import math

import polars as pl
import pytest

from tests.aggregates.doors import HUGE, Polars, charges, refused, rows, session
from tests.aggregates.frames import FRAME, OWNED
from tests.aggregates.margins import slack, step_of

PLAIN = OWNED.with_columns(pl.col("x").fill_nan(None))
WIDE = (-100, 100)


def ask(kind, frame, aggregate, column, **words):
    given = {"epsilon": HUGE, "bounds": WIDE, **words}
    return rows(kind(frame, session()).ask(aggregate, column, **given), words.get("by"))


def plan_of(frame, aggregate, column, **words):
    return Polars(frame, session()).plan(aggregate, column, **{"epsilon": HUGE, "bounds": WIDE, **words})


@pytest.mark.slow
@pytest.mark.parametrize("column", ["n", "x"])
@pytest.mark.parametrize("by", [None, "region"])
def test_they_lie_from_the_last_value_to_the_one_before(kind, column, by):
    words = {"by": by, "max_groups": 5}
    plan = plan_of(FRAME, "min", column, **words)
    assert slack(plan) < 1
    step = step_of(plan) if column == "x" else 0
    door = kind(FRAME, session())
    least, largest = (rows(door.ask(one, column, bounds=WIDE, epsilon=HUGE, **words), by) for one in ("min", "max"))
    groups = PLAIN.drop_nulls(column).group_by(by or pl.lit(0).alias("all")).agg(pl.col(column).sort())
    for key, values in groups.iter_rows():
        assert values[0] - step <= (least[key] if by else least) <= values[1] + step
        assert values[-2] - step <= (largest[key] if by else largest) <= values[-1] + step


@pytest.mark.slow
@pytest.mark.parametrize("aggregate", ["min", "max"])
def test_they_aim_inside_by_ten_over_epsilon(kind, aggregate):
    """About t = 5 of 4000 different values lie beyond at epsilon 2, and never more than t plus the slack in ranks."""
    frame = pl.DataFrame({"who": range(4000), "v": range(4000)})
    words = {"bounds": (0, 4000), "max_rows_per_group": 1, "epsilon": 2}
    near = math.ceil(10 / 2) + slack(plan_of(frame, aggregate, "v", **words))
    found = ask(kind, frame, aggregate, "v", **words)
    assert (found if aggregate == "min" else 3999 - found) <= near


@pytest.mark.slow
def test_constants_a_single_value_and_bounds(kind):
    words = {"max_rows_per_group": 1, "bounds": (-5, 100)}
    for values in ([7] * 50, [7]):
        frame = pl.DataFrame({"who": range(len(values)), "v": values})
        assert ask(kind, frame, "min", "v", **words) == 7
        assert ask(kind, frame, "max", "v", **words) == 7
    far = pl.DataFrame({"who": range(40), "v": [-(10**6)] * 20 + [10**6] * 20})
    assert (ask(kind, far, "min", "v", **words), ask(kind, far, "max", "v", **words)) == (-5, 100)


@pytest.mark.slow
def test_null_and_nan_are_no_values(kind):
    values = [None, float("nan"), 4.0, 4.0, 4.0, None, float("nan")]
    frame = pl.DataFrame({"who": range(7), "v": values})
    words = {"max_rows_per_group": 1, "bounds": (0, 16)}
    assert (ask(kind, frame, "min", "v", **words), ask(kind, frame, "max", "v", **words)) == (4, 4)


@pytest.mark.slow
def test_two_units_empty_frames_and_empty_public_groups(kind):
    frame = pl.DataFrame({"who": [1, 2], "key": ["a", "a"], "v": [2, 6]})
    words = {"bounds": (0, 8), "max_rows_per_group": 1}
    found = ask(kind, frame, "max", "v", by="key", keys=["a", "none"], **words)
    assert 2 <= found["a"] <= 6
    assert 0 <= found["none"] <= 8
    assert 0 <= ask(kind, frame.clear(), "min", "v", **words) <= 8


@pytest.mark.slow
@pytest.mark.parametrize("aggregate", ["min", "max"])
def test_every_door_plans_and_charges_the_same(aggregate):
    assert len(charges(FRAME, aggregate, "x", by="region", bounds=(0, 25), epsilon=0.5)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"bounds": None}, "needs bounds for x"),
        ({"bounds": (5, 1)}, "lower < upper"),
        ({"column": "region"}, "needs integers, floats, decimals or times"),
        ({"confidence": 0.9, "interval": "value"}, "one person's value"),
    ],
)
@pytest.mark.parametrize("aggregate", ["min", "max"])
def test_every_door_refuses_alike(closed, aggregate, words, message):
    refused(closed, message, aggregate, **{"column": "x", "bounds": (0, 25), "epsilon": 1, **words})
