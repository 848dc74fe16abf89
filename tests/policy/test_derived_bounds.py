"""Bounds of a calculation follow from those of its columns, and from nothing else."""

import math
import random

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._expressions.check import check_expression
from dp_polars._frame.derived_bounds import derived_bounds
from tests.policy.shop import POLICY, write_shop

pytestmark = pytest.mark.filterwarnings("ignore:epsilon=:dp_polars.errors.DPWarning")  # little noise, on purpose


@pytest.fixture(scope="module")
def con(tmp_path_factory):
    return dp.connect(dp.Policy.load(write_shop(tmp_path_factory.mktemp("shop"), POLICY)))


def bounds(con, expression, source="orders"):
    value = con.preview(f"SELECT SUM({expression}) FROM {source}", epsilon=1).query.aggregates[0].values[0]
    return float(value.lower), float(value.upper)


@pytest.mark.parametrize(
    ("expression", "ends"),
    [
        ("total + 1", (1, 101)), ("-total", (-100, 0)), ("total - weight", (-10.5, 100)), ("total * weight", (0, 1050)),
        ("total / 4", (0, 25)), ("abs(total - 30)", (0, 70)), ("CASE WHEN status = 'new' THEN 1 ELSE 0 END", (0, 1)),
        ("CASE WHEN status = 'new' THEN total END", (0, 100)), ("coalesce(total, -1)", (-1, 100)),
        ("CASE WHEN total > 5 THEN 3 WHEN weight > 2 THEN 2 END", (2, 3)), ("total::INT", (0, 100)),
        ("(total > 30)::INT", (0, 1)), ("least(total, 10)", (0, 10)), ("greatest(total, 10)", (10, 100)),
        ("least(total, weight)", (0, 100)), ("round(total / 3)", (0, 34)), ("1", (0, 1)), ("-2", (-2, 0)),
        ("nullif(total, 0)", (0, 100)), ("total > 30", (0, 1)),
    ],
)  # fmt: skip
def test_bounds_of_a_calculation(con, expression, ends):
    assert bounds(con, expression) == ends


@pytest.mark.parametrize(
    "expression", ["order_id + total", "total / weight", "total * 1e20", "0", "total % 7", "NULL::INT", "total * NULL"]
)
def test_what_does_not_follow_is_refused_with_the_call_to_write(con, expression):
    with pytest.raises(dp.InvalidParameterError, match=r"Write dp_sum\(.*, bounds := \(0, 100\)\)"):
        bounds(con, expression)


def test_they_follow_through_steps_and_not_through_aggregates(con):
    assert bounds(con, "x", "(SELECT total * 2 AS x FROM orders WHERE weight > 3)") == (0, 200)
    inner = "SELECT customer_id, total * 2 AS x, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY order_id) AS n"
    assert bounds(con, "x + 1", f"({inner} FROM orders) WHERE n = 1") == (1, 201)
    with pytest.raises(dp.InvalidParameterError, match="needs bounds for"):
        bounds(con, "2 * x", "(SELECT customer_id, SUM(total) AS x FROM orders GROUP BY customer_id)")


def test_without_a_policy_nothing_is_derived():
    people = dp.private(pl.DataFrame({"user": [1, 2]}), dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1))
    with pytest.raises(dp.InvalidParameterError, match="needs bounds"):
        people.preview.sum(pl.lit(1), epsilon=0.1)


STEP = "SELECT customer_id, (x + y) / 2 AS x, (x - y) / 2 AS y"


@pytest.mark.slow
def test_steps_that_double_a_calculation_take_no_time_that_doubles(con):
    """Written out, the last of 30 steps would have 2**30 terms."""
    plain = kept = "SELECT customer_id, total AS x, weight AS y FROM orders"
    for place in range(30):
        plain = f"{STEP} FROM ({plain})"
        if place < 18:
            kept = f"{STEP} FROM (SELECT *, row_number() OVER (PARTITION BY customer_id ORDER BY x) AS n FROM ({kept}))"
    with pytest.raises(dp.InvalidParameterError, match="bounds"):
        con.preview(f"SELECT SUM(x) FROM ({plain})", epsilon=1)
    assert bounds(con, "x", f"({kept})")[1] > 0  # windows keep the columns, so these bounds are known step by step


def test_values_lie_within_the_derived_bounds():
    """5,000 values of 200 random calculations; each is compared with the bounds up to rounding."""
    dice = random.Random(1)
    schema = pl.Schema({"a": pl.Float64, "b": pl.Int64, "c": pl.Boolean})
    ends = {"a": (-3, 7), "b": (-20, 5)}
    rows = pl.DataFrame(
        {"a": [dice.uniform(-3, 7) for _ in range(25)], "b": [dice.randint(-20, 5) for _ in range(25)],
         "c": [dice.random() < 0.5 for _ in range(25)]}
    )  # fmt: skip

    def calculation(depth):
        if not depth:
            return dice.choice([pl.col("a"), pl.col("b"), pl.lit(dice.randint(-9, 9)), pl.lit(dice.uniform(-2, 2))])
        x, y = calculation(depth - 1), calculation(depth - 1)
        return dice.choice([
            x + y, x - y, x * y, -x, x.abs(), x / dice.choice([-4, 0.5, 3]), pl.coalesce(x, y), x.round(1), x.floor(),
            pl.when(pl.col("c")).then(x).otherwise(y), pl.min_horizontal(x, y), pl.max_horizontal(x, y), x.ceil(),
        ])  # fmt: skip

    known = 0
    for _ in range(200):
        expression = calculation(dice.choice([1, 2, 3]))
        checked = check_expression(expression, schema=schema, what="sum")
        found = derived_bounds(checked.tree, lambda column: ends.get(column.name))
        if found is None:
            continue
        known += 1
        lower, upper = map(float, found)
        slack = 1e-9 * max(1, abs(lower), abs(upper))
        for value in rows.select(expression.alias("x")).to_series().drop_nulls():
            assert math.isnan(value) or lower - slack <= value <= upper + slack
    assert known > 150
