"""Unit-wise steps on Spark give the rows of Polars to the last bit, and a unit that is removed changes no other row."""

import re
import warnings
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache

import duckdb
import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.polars.scan import polars_rows
from dp_polars._engines.polars.scan import read_rows as polars_read
from dp_polars._engines.polars.unit_steps import without_unit_steps
from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.spark import unit_steps
from dp_polars._engines.spark.engine import read_rows
from dp_polars._engines.spark.source import SparkSource
from dp_polars._engines.unit_steps import AddWindows, GroupRows, JoinRows, KeepFirst, LabelRows, StackRows, unit_rows
from dp_polars._expressions import Column, apply
from dp_polars._expressions.unit_functions import UNIT_FUNCTIONS, SortColumn
from dp_polars.errors import ExpressionNotAllowed, InvalidParameterError, StatementNotAllowed
from tests.engines.spark.test_aggregation import spark_frame
from tests.engines.test_unit_steps import bits, functions, made_rows

pytestmark = pytest.mark.slow

ELSEWHERE = ("unsigned", "span", "size", "debt")
"""Columns whose types Spark does not have. Two of them are computed instead."""


def frame_of(seed, rows=160):
    return made_rows(rows, seed).drop(ELSEWHERE)


def with_types(rows):
    """Return rows with columns of types that Spark does not have. Categories have another order than their texts."""
    return rows.make(
        {
            "span": apply("cast", Column("int", pl.Int64()), to=pl.Duration("us")),
            "size": apply("cast", Column("key", pl.String()), to=pl.Enum(["y", "x", "l"])),
        }
    )


def far(spark, frame):
    return with_types(PrivateRows(SparkSource(spark_frame(spark, frame))))


def on_spark(rows):
    return read_rows(rows, list(rows.schema))


def on_polars(rows):
    return polars_read(without_unit_steps(rows))


def assert_as_in_polars(spark, step, *frames):
    here = [with_types(polars_rows(frame)) for frame in frames]
    there = [far(spark, frame) for frame in frames]
    wanted, found = on_polars(unit_rows(step, *here)), on_spark(unit_rows(step, *there))
    assert wanted.schema == found.schema
    for name in wanted.columns:  # a wrong column is named, because there are many of them
        by = list(dict.fromkeys(["unit", *(one for one in ("key", "when") if one in wanted.columns), name]))
        assert bits(found.select(by)) == bits(wanted.select(by)), name
    assert bits(found) == bits(wanted)


@cache
def lowered(spark):
    """Return the functions that Spark computes, and the refusals of the others, by their names."""
    rows = far(spark, frame_of(1, 20))
    found, refused = {}, {}
    for name, value in _functions(rows.schema).items():
        try:
            unit_rows(_step(("unit",), {name: value}), rows)
            found[name] = value
        except ExpressionNotAllowed as error:
            refused[name] = value, str(error)
    return found, refused


def _functions(schema):
    wider = pl.Schema({**made_rows(1, 1).schema, **schema})
    return {name: one for name, one in functions(wider).items() if one.column is None or one.column in schema}


def _step(partition, values):
    windows = any(UNIT_FUNCTIONS[one.function].window for one in values.values())
    return (AddWindows if windows else GroupRows)(partition, tuple(values.items()))


# ---------------------------------------------------------------------- the rows of Polars


@pytest.mark.parametrize("keys", [("unit",), ("key", "unit"), ("unit", "float"), ("size", "unit", "money")])
def test_groups_are_those_of_polars(spark, keys):
    values = {
        name: one
        for name, one in lowered(spark)[0].items()
        if not UNIT_FUNCTIONS[one.function].window and one.column not in keys
    }
    assert {one.function for one in values.values()} == {
        *("len", "count", "n_unique", "n_values", "sum", "mean", "min", "max", "any", "all", "first", "last")
    }
    assert_as_in_polars(spark, GroupRows(keys, tuple(values.items())), frame_of(3, 400))


@pytest.mark.parametrize("keys", [("unit",), ("key", "unit")])
def test_windows_are_those_of_polars(spark, keys):
    values = lowered(spark)[0]
    assert {one.function for one in values.values()} >= {
        *("row_number", "rank", "dense_rank", "shift", "cum_sum", "cum_count", "cum_min", "cum_max"),
        *("frame_sum", "frame_count", "frame_min", "frame_max", "frame_first", "frame_last", "n_unique", "first"),
    }
    # Three windows at a time are enough to meet each other, and a planner takes long for all of them.
    some = list(values.items())[:: 1 if keys == ("unit",) else 3]
    for place in range(0, len(some), 60):
        assert_as_in_polars(spark, AddWindows(keys, tuple(some[place : place + 60])), frame_of(4 + place))


def test_what_adds_up_floats_is_refused_by_its_name(spark):
    refused = lowered(spark)[1]
    for name, (value, text) in refused.items():
        assert "has no exact equivalent in Spark SQL" in text, name
        assert text.startswith(f"`{value.function}`"), name
    functions_refused = {one.function for one, _ in refused.values()}
    assert functions_refused >= {"variance", "median", "quantile", "quantile_value", "mode", "join", "sum", "cum_sum"}
    assert {name for name in refused if name.startswith("sum")} == {"sum float 0", "sum real 0", "sum single 0"}


@pytest.mark.parametrize(
    "step",
    [
        KeepFirst(("unit",), (SortColumn("when", nulls_last=True),), 2),
        KeepFirst(("unit",), (SortColumn("float", descending=True), SortColumn("size")), 3, 1),
        KeepFirst(("unit", "key"), (), 1),
        KeepFirst(("unit", "float"), (SortColumn("unit"),), 1),
    ],
)
def test_first_rows_are_those_of_polars(spark, step):
    assert_as_in_polars(spark, step, frame_of(5))


def test_distinct_rows_and_rows_below_each_other_are_those_of_polars(spark):
    frame, other = (frame_of(seed).select("unit", "key", "when", "int", "float") for seed in (6, 7))
    columns = (*frame.columns, "span", "size")
    assert_as_in_polars(spark, KeepFirst(columns, (), 1), pl.concat([frame, frame]))
    assert_as_in_polars(spark, StackRows(), frame, other, frame)


ON = {"unit": (), "text": (("key", "kind"),), "float": (("float", "other float"),), "category": (("size", "size"),)}


@pytest.mark.parametrize("on", ON)
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_joins_are_those_of_polars(spark, how, on):
    """A null and a key that the other side lacks match nothing, NaN matches NaN, and zero its negative."""
    columns = (("real", "other"), ("when", "then"), ("span", "long")) if how in ("inner", "left") else ()
    step = JoinRows((("unit", "who"), *ON[on]), how, columns, ("unit",))
    second = frame_of(9, 60).rename({"unit": "who", "key": "kind", "float": "other float"})
    here, there = (
        [of(frame_of(8, 90)), of(second.with_columns(key="kind"))] for of in (polars_rows, lambda one: far(spark, one))
    )
    here = [with_types(one) for one in here]
    wanted, found = on_polars(unit_rows(step, *here)), on_spark(unit_rows(step, *there))
    assert wanted.height
    assert bits(found) == bits(wanted)


def test_a_join_of_a_frame_with_itself_and_with_unique_keys(spark):
    frame = frame_of(10, 60)
    here, there = with_types(polars_rows(frame)), far(spark, frame)
    totals = GroupRows(("unit",), (("n", _functions(here.schema)["len None 0"]),))
    join = JoinRows((("unit", "unit"),), "inner", (("n", "n"),), ("unit",))
    results = []
    for rows in (here, there):
        joined = unit_rows(join, rows, unit_rows(totals, rows))
        results.append(unit_rows(KeepFirst(("unit",), (SortColumn("n"), SortColumn("int")), 2), joined))
    assert bits(on_spark(results[1])) == bits(on_polars(results[0]))


@pytest.mark.parametrize("unit", [(("unit", "who"),), (("unit", "who"), ("flag", "which"))])
def test_labels_are_those_of_polars(spark, unit):
    """Of several units with one key, the smallest one gets the rows. Rows without a key or a unit get none."""
    lines = pl.DataFrame({"line": range(60), "order": [*range(29), None] * 2, "x": [0.0, -0.0, None] * 20})
    orders = made_rows(40, 11).select("unit", "flag", order=pl.Series([*range(20), *range(20)], dtype=pl.Int64))
    step = LabelRows((("order", "order"),), unit)
    here = [polars_rows(one) for one in (lines, orders)]
    there = [PrivateRows(SparkSource(spark_frame(spark, one))) for one in (lines, orders)]
    assert bits(on_spark(unit_rows(step, *there))) == bits(on_polars(unit_rows(step, *here)))


# ---------------------------------------------------------------------- what one unit can change

NEIGHBOURS = {
    "groups": lambda values: GroupRows(("unit", "key"), tuple(values.items())),
    "windows": lambda values: AddWindows(("unit",), tuple(values.items())),
    "first rows": lambda values: KeepFirst(("unit",), (SortColumn("when"),), 2),
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_a_unit_that_is_removed_changes_no_other_row_by_a_bit(spark, name):
    named = lowered(spark)[0]
    windows = name == "windows"
    values = {own: one for own, one in named.items() if UNIT_FUNCTIONS[one.function].window == windows}
    step = NEIGHBOURS[name](dict(list(values.items())[::4]))
    frame = frame_of(12)
    whole = on_spark(unit_rows(step, far(spark, frame)))
    for unit in (0, 5):
        others = frame.filter(pl.col("unit").ne_missing(unit)).sample(fraction=1, shuffle=True, seed=unit)
        kept = whole.filter(pl.col("unit").ne_missing(unit))
        assert kept.height < whole.height
        assert bits(on_spark(unit_rows(step, far(spark, others).keep(far(spark, frame).schema)))) == bits(kept)


def test_a_heavy_unit_keeps_some_rows_in_a_join_and_nobody_else_does(spark, monkeypatch):
    monkeypatch.setattr(unit_steps, "MOST_PAIRS", 50)
    monkeypatch.setattr(unit_steps, "KEPT_IN_JOIN", 5)
    first = pl.DataFrame({"unit": [0] * 30 + [1] * 6 + [2] * 40 + [None] * 9, "x": range(85)})
    second = pl.DataFrame({"unit": [0] * 20 + [1] * 7 + [2] + [None] * 9, "y": range(37)})
    step = JoinRows((("unit", "unit"),), "inner", (("y", "y"),), ("unit",))
    sides = [PrivateRows(SparkSource(spark_frame(spark, one))) for one in (first, second)]
    found = on_spark(unit_rows(step, *sides))
    heights = dict(found.group_by("unit").len().iter_rows())
    # 600 pairs are too many, so 5 rows of each side are left. A match per row is allowed, however many rows.
    assert heights == {0: 25, 1: 42, 2: 40}
    left = replace(step, how="left")
    assert on_spark(unit_rows(left, *sides)).filter(pl.col("unit").is_null()).height == 9
    # Each choice is one of comb(30, 5) > 10**5, so five of them are all equal with probability below 1e-20.
    kept = {frozenset(on_spark(unit_rows(step, *sides)).filter(pl.col("unit") == 0)["x"]) for _ in range(5)}
    assert len(kept) > 1


# ---------------------------------------------------------------------- questions

START = datetime(2024, 1, 1)


def events(users=300, seed=1):
    chance = np.random.default_rng(seed)
    rows = users * 8
    return pl.DataFrame(
        {
            "user": [None if one % 50 == 7 else one for one in chance.integers(0, users, rows).tolist()],
            "at": pl.Series([START + timedelta(minutes=int(one)) for one in chance.integers(0, 200_000, rows)]),
            "what": pl.Series(["visit", "cart", "pay"]).gather(chance.integers(0, 3, rows)),
            "cents": chance.integers(0, 5_000, rows),
        }
    )


def session(**more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.DPWarning)
        caps = {"unit": "user", "max_rows_per_group": 50, "max_groups": 40}
        return dp.Session(**{"epsilon": 10**6, "delta": 1e-9, **caps, **more})


WHAT = pl.col("what")
STEPS = {"visits": WHAT == "visit", "fills a cart": WHAT == "cart", "pays": WHAT == "pay"}
QUESTIONS = {
    "orders per user": lambda rows: rows.group_by("user").agg(n=pl.len(), first=pl.col("at").min())
                                        .count(pl.col("n"), keys=list(range(20)), epsilon=10**5),
    "spending": lambda rows: rows.group_by("user").agg(total=pl.col("cents").sum())
                                 .count(pl.col("total") // 5_000, epsilon=10**5),
    "time between": lambda rows: rows.with_columns(pause=pl.col("at").diff().over("user", order_by="at"))
                                     .count(pl.col("pause") > timedelta(days=3), epsilon=10**5),
    "latest": lambda rows: rows.group_by("user").tail(1, order_by="at").count("what", epsilon=10**5),
    "distinct": lambda rows: rows.unique(["user", "what"]).count("what", epsilon=10**5),
    "payers": lambda rows: rows.join(rows.filter(WHAT == "pay"), on="user", how="semi").count("what", epsilon=10**5),
    "others": lambda rows: rows.join(rows.filter(WHAT == "pay"), on="user", how="anti").count("what", epsilon=10**5),
    "below": lambda rows: dp.concat([rows, rows.filter(WHAT == "pay")]).count("what", epsilon=10**5),
    "retention": lambda rows: rows.retention("at", "1mo", 4).count("period", keys=[0, 1, 2, 3, 4], epsilon=10**5),
    "weeks": lambda rows: rows.retention("at", "1w", 3).count("period", keys=[0, 1, 2, 3], epsilon=10**5),
    "funnel": lambda rows: rows.funnel(STEPS, time="at", within="60d").count("step", epsilon=10**5),
    "sessions": lambda rows: rows.sessions("at", "12h").group_by("user").agg(n=pl.col("session").max())
                                 .count("n", keys=list(range(12)), epsilon=10**5),
}  # fmt: skip


@pytest.fixture(scope="module")
def both(spark):
    frame = events()
    return frame, spark_frame(spark, frame)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_about_people_has_the_price_and_the_answer_of_polars(both, name):
    ours, theirs = session(), session()
    frame, remote = both
    answers = [QUESTIONS[name](dp.private(rows, own)) for rows, own in ((remote, ours), (frame, theirs))]
    assert answers[0].equals(answers[1])
    assert ours.spent == theirs.spent


def test_two_tables_are_joined_and_other_places_are_refused(spark, both):
    frame, remote = both
    users = pl.DataFrame({"user": range(300), "land": ["x", "y", None] * 100})
    answers = []
    for rows, other in ((frame, users), (remote, spark_frame(spark, users))):
        own = session()
        joined = dp.private(rows, own).join(dp.private(other, own), on="user", how="left")
        answers.append(joined.count("land", epsilon=10**5))
    assert answers[0].equals(answers[1])
    own = session()
    for one, two in ((remote, users), (frame, spark_frame(spark, users))):
        with pytest.raises(InvalidParameterError, match="Put both tables into one Spark session"):
            dp.private(one, own).join(dp.private(two, own), on="user")
    with pytest.raises(InvalidParameterError, match="rows of this frame are in Spark"):
        dp.private(remote, own).unique(["user", "what"]).filter(WHAT == "pay", unchecked=True)
    rows = dp.private(remote, own).with_columns(real=pl.col("cents") / 100)
    with pytest.raises(ExpressionNotAllowed, match=re.escape("`sum` has no exact equivalent in Spark SQL for floats")):
        rows.group_by("user").agg(total=pl.col("real").sum())
    assert not own.releases


QUERIES = [
    "SELECT n, dp_count(*) AS users FROM (SELECT user, count(*) AS n FROM events GROUP BY user) "
    "WHERE n < 20 GROUP BY n",
    "SELECT dp_count(*) AS c FROM (SELECT user, sum(cents) AS total FROM events GROUP BY user HAVING count(*) > 5) "
    "WHERE total > 9000",
    "SELECT what, dp_count(*) AS c FROM (SELECT * FROM events QUALIFY "
    "row_number() OVER (PARTITION BY user ORDER BY moment DESC) = 1) GROUP BY what",
    "SELECT dp_count(*) AS c FROM (SELECT DISTINCT user, what FROM events)",
    "SELECT land, dp_count(*) AS c FROM events JOIN users USING (user) GROUP BY land",
    "SELECT what, dp_count(*) AS c FROM events WHERE user NOT IN (SELECT user FROM events WHERE what = 'pay') "
    "GROUP BY what",
    "SELECT dp_count(*) AS c FROM (SELECT user, what FROM events UNION ALL SELECT user, land FROM users)",
    "SELECT dp_count(*) AS c FROM (SELECT user, moment - lag(moment) OVER (PARTITION BY user ORDER BY moment) AS pause "
    "FROM events) WHERE pause > INTERVAL 3 DAY",
    "SELECT shipped, dp_count(*) AS c FROM parcels GROUP BY shipped",
]


@pytest.fixture(scope="module")
def tables():
    frame = events(seed=2).filter(pl.col("user").is_not_null())
    return {
        "events": frame.select(pl.int_range(pl.len()).alias("number"), pl.all()).rename({"at": "moment"}),
        "users": pl.DataFrame({"user": range(300), "land": ["x", "y", None] * 100}),
        "parcels": pl.DataFrame({"parcel": range(500), "number": range(500), "shipped": [True, False] * 250}),
    }


def declared(con):
    return con.private("parcels", through="events", on="number", unique=True)


@pytest.mark.parametrize("query", QUERIES)
def test_a_statement_about_people_has_the_price_and_the_answer_of_duckdb(spark, tables, query):
    raw = duckdb.connect()
    for name, frame in tables.items():
        raw.register("given", frame.to_arrow())
        raw.execute(f"CREATE TABLE {name} AS FROM given")
        spark_frame(spark, frame).createOrReplaceTempView(name)
    ours, theirs = session(), session()
    con = dp.connect(spark, ours).private("events", unit="user").private("users", unit="user")
    answers = [declared(one).sql(query, epsilon=10**5).pl().sort(pl.all()) for one in (con, dp.connect(raw, theirs))]
    assert answers[0].height
    assert answers[0].equals(answers[1])
    assert ours.spent == theirs.spent


def test_a_statement_that_spark_cannot_compute_is_refused_where_it_stands(spark, tables):
    spark_frame(spark, tables["events"]).createOrReplaceTempView("events")
    own = session()
    con = dp.connect(spark, own).private("events", unit="user")
    text = "SELECT dp_count(*) FROM (SELECT user, median(cents) AS m FROM events GROUP BY user) WHERE m > 3"
    with pytest.raises(StatementNotAllowed, match=r"`median` has no exact equivalent in Spark SQL within a unit"):
        con.sql(text, epsilon=1)
    assert not own.releases


def test_a_path_to_the_units_is_forgotten_if_the_columns_of_a_table_change(spark, tables):
    for name, frame in tables.items():
        spark_frame(spark, frame).createOrReplaceTempView(name)
    con = declared(dp.connect(spark, session()).private("events", unit="user"))
    text = "SELECT dp_count(*) AS n FROM parcels"
    assert con.sql(text, epsilon=10**5).pl().item() == 500
    spark_frame(spark, tables["parcels"].with_columns(user=pl.col("number"))).createOrReplaceTempView("parcels")
    with pytest.raises(InvalidParameterError, match="parcels is a view"):
        con.sql(text, epsilon=10**5)
