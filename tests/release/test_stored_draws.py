"""Noisy numbers are paid for once, however they are presented, and never shown for another question.

Questions in one class differ only in presentation, and one charge answers all of them. Questions in different classes
differ in one thing that changes what is drawn, and each has its own charge. The tests count charges in the ledger.
"""

import math
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._plan.canonical import Writer

pytestmark = pytest.mark.filterwarnings("ignore::dp_polars.errors.DPWarning")

N = 1_200
ROWS = pl.DataFrame(
    {
        "user": [i // 3 for i in range(N)],
        "g": [("a", "b", "c", "d")[i % 4] for i in range(N)],
        "x": [i % 9 if i % 10 else None for i in range(N)],
        "y": [float(i % 7) for i in range(N)],
        "day": [i % 5 for i in range(N)],
    }
)
LANDS = pl.DataFrame({"g": ["a", "b", "c"], "land": ["north", "south", "south"]})
G = ["a", "b", "c", "d"]
B = (0, 10)
MEAN, MEDIAN = dp.mean("x", bounds=B), dp.median("y", bounds=B)


@pytest.fixture
def session():
    return dp.Session(epsilon=100.0, delta=1e-3, unit="user", max_rows_per_group=3, max_groups=4)


@pytest.fixture
def rows(session):
    return dp.private(ROWS, session)


def charges(session):
    return len(session.releases)


# ---------------------------------------------------------------- what is equal


def test_four_presentations_of_a_count_cost_one_count(session, rows):
    plain = rows.count(epsilon=0.5).item()
    between = rows.count(epsilon=0.5, confidence=0.95)
    assert between["count"].item() == plain
    assert between["count_low"].item() < plain < between["count_high"].item()
    assert rows.count(epsilon=0.5, nonnegative=True).item() == plain
    assert rows.group_by().agg(n=dp.count(), epsilon=0.5).to_dicts() == [{"n": plain}]
    assert (charges(session), session.spent.epsilon) == (1, 0.5)
    rows.group_by().agg(n=dp.count(), people=dp.count_units(), epsilon=0.5)
    assert charges(session) == 2  # a second aggregate is another question


def test_four_presentations_of_a_count_cost_one_count_in_sql(session):
    con = dp.connect(None, session).register("visits", ROWS)
    plain = con.sql("SELECT dp_count(*) FROM visits", epsilon=0.5).fetchall()
    for statement in (
        "SELECT dp_count(*) AS n FROM visits",
        "SELECT dp_count(*, nonnegative := true) FROM visits v",
        "WITH c AS (SELECT * FROM visits) SELECT dp_count(*) FROM c",
        "SELECT n FROM (SELECT dp_count(*) AS n FROM visits WHERE true) ORDER BY n LIMIT 1",
    ):
        assert con.sql(statement, epsilon=0.5).fetchall() == plain
    assert (charges(session), session.spent.epsilon) == (1, 0.5)
    con.sql("SELECT dp_count(*), dp_count_units() FROM visits", epsilon=0.5)
    assert charges(session) == 2


def test_frames_and_sql_find_each_others_numbers(session, rows):
    plain = rows.count("g", epsilon=0.5)
    con = dp.connect(None, session).register("visits", ROWS)
    found = con.sql("SELECT g, dp_count(*) AS count FROM visits GROUP BY g ORDER BY g", epsilon=0.5).pl()
    assert found.equals(plain.sort("g"))
    assert charges(session) == 1


@dataclass(frozen=True)
class Same:
    """Questions that all draw the same noise."""

    what: str
    ask: tuple


SAME = [
    Same(
        "the order and the names of aggregates, and an interval",
        (
            lambda f: f.group_by("g").agg(a=dp.count(), b=MEAN, c=MEDIAN, epsilon=1),
            lambda f: f.group_by("g").agg(c=MEAN, a=MEDIAN, b=dp.count(), epsilon=1),
            lambda f: f.group_by("g").agg(MEDIAN, n=dp.count(), m=MEAN, epsilon=1, confidence=0.9),
        ),
    ),
    Same(
        "steps that only rename, reorder or drop columns, and conditions that are always true",
        (
            lambda f: f.filter(pl.col("x") > 1, pl.col("day") < 3).sum("x", by="g", bounds=B, epsilon=1),
            lambda f: f.filter((pl.col("day") < 3) & (pl.col("x") > 1)).sum("x", by="g", bounds=B, epsilon=1),
            lambda f: f.drop("y")
            .filter(pl.col("day") < 3)
            .rename({"x": "z"})
            .filter(pl.lit(True), pl.col("z") > 1)
            .with_columns(other=pl.col("z") * 2)
            .select("g", "z")
            .sum("z", by="g", bounds=B, epsilon=1),
        ),
    ),
    Same(
        "an expression in a step or in the aggregate",
        (
            lambda f: f.sum(pl.col("x") * 2, bounds=B, epsilon=1),
            lambda f: f.with_columns(z=pl.col("x") * 2).sum("z", bounds=B, epsilon=1),
        ),
    ),
    Same(
        "a variance and a standard deviation",
        (
            lambda f: f.var("y", bounds=B, epsilon=1, label="how far apart"),
            lambda f: f.std("y", bounds=B, epsilon=1),
            lambda f: f.std("y", bounds=B, epsilon=1, if_rows=100),
            lambda f: f.group_by().agg(s=dp.std("y", bounds=B), epsilon=1),
        ),
    ),
    Same(
        "quantiles as a list or as numbers",
        (
            lambda f: f.quantile("y", [0.25, 0.75], bounds=B, by="g", keys=G, epsilon=1),
            lambda f: f.group_by("g").agg(q=dp.quantile("y", [0.75, 0.25], bounds=B), keys=G, epsilon=1),
        ),
    ),
    Same(
        "a histogram in rows or in a list",
        (
            lambda f: f.histogram("x", edges=[0, 3, 9], epsilon=1),
            lambda f: f.histogram("x", edges=[0, 3, 9], epsilon=1, confidence=0.9, nonnegative=True),
            lambda f: f.group_by().agg(h=dp.histogram("x", edges=[0, 3, 9]), epsilon=1),
        ),
    ),
    Same(
        "estimated caps and bounds",
        (
            lambda f: f.mean("x", by="g", bounds="auto", max_rows_per_group="auto", epsilon=1),
            lambda f: f.mean("x", by="g", bounds="auto", max_rows_per_group="auto", epsilon=1, confidence=0.9),
            lambda f: f.group_by("g").agg(
                m=dp.mean("x", bounds="auto"), max_rows_per_group="auto", epsilon=1, nonnegative=True
            ),
        ),
    ),
    Same(
        "estimated caps of several aggregates in any order",
        (
            lambda f: f.group_by("g").agg(a=dp.count(), b=dp.sum("x", bounds="auto"), max_groups="auto", epsilon=1),
            lambda f: f.group_by("g").agg(b=dp.sum("x", bounds="auto"), a=dp.count(), max_groups="auto", epsilon=1),
        ),
    ),
    Same(
        "totals",
        (
            lambda f: f.count(["g", "day"], keys=pl.DataFrame({"g": ["a", "a", "b"], "day": [1, 2, 1]}), rollup=True,
                              epsilon=1),
            lambda f: f.count(["g", "day"], keys=pl.DataFrame({"g": ["a", "a", "b"], "day": [1, 2, 1]}), rollup=True,
                              epsilon=1, nonnegative=True),
        ),
    ),
    Same(
        "a public table whose columns have other names",
        (
            lambda f: f.join(LANDS, on="g").count("land", keys=["north", "south"], epsilon=1),
            lambda f: f.join(LANDS.rename({"land": "country"}), on="g").count(
                "country", keys=["north", "south"], epsilon=1
            ),
        ),
    ),
    Same(
        "a cap that does not matter, and a spend in other words",
        (
            lambda f: f.count_units(epsilon=1, mechanism="laplace"),
            lambda f: f.count_units(epsilon=1, mechanism="laplace", max_rows_per_group=7, max_groups=2),
        ),
    ),
    Same(
        "chosen candidates",
        (
            lambda f: f.top_k("g", 2, epsilon=1, label="the best"),
            lambda f: f.rename({"g": "h"}).filter(pl.lit(True)).top_k("h", 2, epsilon=1),
        ),
    ),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("same", SAME, ids=lambda one: one.what)
def test_other_presentations_of_the_same_numbers_are_free(same, session, rows):
    same.ask[0](rows)
    plan = session.plan()
    for ask in same.ask[1:]:
        ask(rows)
        assert charges(session) == 1
    assert session.plan() is plan


def test_a_share_and_an_epsilon_with_the_same_noise_are_the_same():
    session = dp.Session(epsilon=2.0, unit="user", max_rows_per_group=1)
    rows = dp.private(ROWS, session)
    assert rows.count(share=0.25).equals(rows.count(epsilon=0.5))
    assert charges(session) == 1


def test_other_presentations_show_the_same_numbers(rows):
    """A value that is derived from a stored draw agrees with the one that was shown first."""
    variance, deviation = rows.var("y", bounds=B, epsilon=1).item(), rows.std("y", bounds=B, epsilon=1).item()
    assert math.isclose(deviation, math.sqrt(variance))
    one = rows.group_by("g").agg(n=dp.count(), m=dp.mean("x", bounds=B), epsilon=1)
    other = rows.group_by("g").agg(m=dp.mean("x", bounds=B), n=dp.count(), epsilon=1, confidence=0.8)
    assert other.select("g", "n", "m").equals(one)
    first = rows.quantile("y", [0.25, 0.75], bounds=B, by="g", keys=G, epsilon=1)
    turned = rows.group_by("g").agg(q=dp.quantile("y", [0.75, 0.25], bounds=B), keys=G, epsilon=1)
    assert turned["q"].list.reverse().to_list() == first["y"].to_list()
    bins = rows.histogram("x", edges=[0, 3, 9], epsilon=1)
    assert rows.group_by().agg(h=dp.histogram("x", edges=[0, 3, 9]), epsilon=1)["h"].to_list() == [bins.to_dicts()]


def test_a_mean_brings_the_count_of_its_values_along(session, rows):
    """Both come from the same noisy numbers, so the second aggregate is not a new question."""
    mean = rows.mean("y", bounds=B, epsilon=1).item()
    both = rows.group_by().agg(m=dp.mean("y", bounds=B), n=dp.count("y"), epsilon=1)
    assert both["m"].item() == mean
    assert charges(session) == 1


# ---------------------------------------------------------------- what is different

DIFFERENT = {
    "spend": lambda f: f.sum("x", by="g", bounds=B, keys=G, epsilon=0.25),
    "nothing": lambda f: f.sum("x", by="g", bounds=B, keys=G, epsilon=0.5),
    "share": lambda f: f.sum("x", by="g", bounds=B, keys=G, share=0.1),
    "laplace": lambda f: f.sum("x", by="g", bounds=B, keys=G, epsilon=0.5, mechanism="gaussian"),
    "error": lambda f: f.sum("x", by="g", bounds=B, keys=G, within=700),
    "upper bound": lambda f: f.sum("x", by="g", bounds=(0, 11), keys=G, epsilon=0.5),
    "lower bound": lambda f: f.sum("x", by="g", bounds=(1, 10), keys=G, epsilon=0.5),
    "estimated bounds": lambda f: f.sum("x", by="g", bounds="auto", keys=G, epsilon=0.5),
    "total": lambda f: f.sum("x", by="g", bounds=B, per="unit", keys=G, epsilon=0.5),
    "rows": lambda f: f.sum("x", by="g", bounds=B, keys=G, epsilon=0.5, max_rows_per_group=2),
    "estimated rows": lambda f: f.sum("x", by="g", bounds=B, keys=G, epsilon=0.5, max_rows_per_group="auto"),
    "rows in all groups": lambda f: f.sum("x", by="g", bounds=B, keys=G, epsilon=0.5, max_rows=3),
    "rows in all groups, estimated bounds": lambda f: f.sum(
        "x", by="g", bounds="auto", keys=G, epsilon=0.5, max_rows=3
    ),
    "rows in two groups together": lambda f: f.sum(
        "x", by="g", bounds=B, keys=G, epsilon=0.5, max_rows=3, max_groups=2
    ),
    "estimated groups of discovered keys": lambda f: f.sum("x", by="g", bounds=B, epsilon=0.5, max_groups="auto"),
    "estimated groups and rows in all of them": lambda f: f.sum(
        "x", by="g", bounds=B, epsilon=0.5, max_groups="auto", max_rows=3
    ),
    "median of rows in all groups": lambda f: f.median("x", by="g", bounds=B, keys=G, epsilon=0.5, max_rows=3),
    "kinds in all groups": lambda f: f.n_unique("x", by="g", keys=G, epsilon=0.5, max_rows=3),
    "groups": lambda f: f.sum("x", by="g", bounds=B, keys=G, epsilon=0.5, max_groups=2),
    "estimated groups": lambda f: f.sum("x", by="g", bounds=B, keys=G, epsilon=0.5, max_groups="auto"),
    "fewer keys": lambda f: f.sum("x", by="g", bounds=B, keys=G[:3], epsilon=0.5),
    "another key": lambda f: f.sum("x", by="g", bounds=B, keys=[*G[:3], "e"], epsilon=0.5),
    "discovered keys": lambda f: f.sum("x", by="g", bounds=B, epsilon=0.5),
    "delta": lambda f: f.sum("x", by="g", bounds=B, epsilon=0.5, delta=1e-5),
    "smallest group": lambda f: f.sum("x", by="g", bounds=B, epsilon=0.5, min_units=5),
    "counted": lambda f: f.count("g", epsilon=0.5),
    "smallest counted group": lambda f: f.count("g", epsilon=0.5, min_units=5),
    "another key column": lambda f: f.sum("x", by="day", bounds=B, epsilon=0.5),
    "two keys": lambda f: f.sum("x", by=["g", "day"], bounds=B, epsilon=0.5),
    "no key": lambda f: f.sum("x", bounds=B, epsilon=0.5),
    "another column": lambda f: f.sum("y", by="g", bounds=B, keys=G, epsilon=0.5),
    "another type": lambda f: f.with_columns(x=pl.col("x").cast(pl.Float64)).sum(
        "x", by="g", bounds=B, keys=G, epsilon=0.5
    ),
    "an expression": lambda f: f.with_columns(x=pl.col("x") + 1).sum("x", by="g", bounds=B, keys=G, epsilon=0.5),
    "another constant": lambda f: f.with_columns(x=pl.col("x") + 2).sum("x", by="g", bounds=B, keys=G, epsilon=0.5),
    "swapped columns": lambda f: f.with_columns(x=pl.col("day"), day=pl.col("x")).sum(
        "x", by="g", bounds=B, keys=G, epsilon=0.5
    ),
    "a condition": lambda f: f.filter(pl.col("day") > 1).sum("x", by="g", bounds=B, keys=G, epsilon=0.5),
    "another condition": lambda f: f.filter(pl.col("day") >= 1).sum("x", by="g", bounds=B, keys=G, epsilon=0.5),
    "its negation": lambda f: f.filter(~(pl.col("day") > 1)).sum("x", by="g", bounds=B, keys=G, epsilon=0.5),
    "a condition on a new column": lambda f: (
        f.with_columns(day=pl.col("day") + 1).filter(pl.col("day") > 1).sum("x", by="g", bounds=B, keys=G, epsilon=0.5)
    ),
    "either condition": lambda f: f.filter((pl.col("day") > 1) | (pl.col("y") > 1)).sum(
        "x", by="g", bounds=B, keys=G, epsilon=0.5
    ),
    "both conditions": lambda f: f.filter((pl.col("day") > 1) & (pl.col("y") > 1)).sum(
        "x", by="g", bounds=B, keys=G, epsilon=0.5
    ),
    "never": lambda f: f.filter(pl.lit(False)).sum("x", by="g", bounds=B, keys=G, epsilon=0.5),
    "a lookup": lambda f: f.join(LANDS, on="g").sum("x", by="g", bounds=B, keys=G, epsilon=0.5),
    "a lookup that keeps": lambda f: f.join(LANDS, on="g", how="anti").sum("x", by="g", bounds=B, keys=G, epsilon=0.5),
    "other public rows": lambda f: f.join(LANDS.head(2), on="g").sum("x", by="g", bounds=B, keys=G, epsilon=0.5),
    "a looked-up key": lambda f: f.join(LANDS, on="g").sum("x", by="land", bounds=B, epsilon=0.5),
    "unchecked": lambda f: f.filter(pl.col("day") > 1, unchecked=True).sum("x", by="g", bounds=B, keys=G, epsilon=0.5),
    "rows counted": lambda f: f.count("g", keys=G, epsilon=0.5),
    "values counted": lambda f: f.group_by("g").agg(n=dp.count("x"), keys=G, epsilon=0.5),
    "units counted": lambda f: f.count_units("g", keys=G, epsilon=0.5),
    "kinds counted": lambda f: f.n_unique("x", by="g", keys=G, epsilon=0.5),
    "mean": lambda f: f.mean("x", by="g", bounds=B, keys=G, epsilon=0.5),
    "variance": lambda f: f.var("x", by="g", bounds=B, keys=G, epsilon=0.5),
    "median": lambda f: f.median("x", by="g", bounds=B, keys=G, epsilon=0.5),
    "quartile": lambda f: f.quantile("x", 0.25, by="g", bounds=B, keys=G, epsilon=0.5),
    "quartiles": lambda f: f.quantile("x", [0.25, 0.75], by="g", bounds=B, keys=G, epsilon=0.5),
    "bins": lambda f: f.histogram("x", edges=[0, 3, 9], epsilon=0.5),
    "other bins": lambda f: f.histogram("x", edges=[0, 4, 9], epsilon=0.5),
    "more bins": lambda f: f.histogram("x", edges=[0, 3, 4, 9], epsilon=0.5),
    "two aggregates": lambda f: f.group_by("g").agg(dp.sum("x", bounds=B), n=dp.count_units(), keys=G, epsilon=0.5),
    "another weight": lambda f: f.group_by("g").agg(
        dp.sum("x", bounds=B), n=dp.count_units(weight=2), keys=G, epsilon=0.5
    ),
    "two columns": lambda f: f.cov("x", "y", bounds=(B, B), epsilon=0.5),
    "two columns turned": lambda f: f.cov("y", "x", bounds=(B, (0, 11)), epsilon=0.5),
    "two columns, other bounds": lambda f: f.cov("x", "y", bounds=(B, (0, 11)), epsilon=0.5),
    "totals": lambda f: f.sum("x", by="g", bounds=B, keys=G, epsilon=0.5, rollup=True),
    "a choice": lambda f: f.noisy_max("g", G, epsilon=0.5),
    "a choice of the least": lambda f: f.noisy_min("g", G, epsilon=0.5),
    "a choice by units": lambda f: f.noisy_max("g", G, score="units", epsilon=0.5),
    "a choice among fewer": lambda f: f.noisy_max("g", G[:3], epsilon=0.5),
    "a choice among all": lambda f: f.noisy_max("g", epsilon=0.5),
    "two choices": lambda f: f.top_k("g", 2, epsilon=0.5),
    "three choices": lambda f: f.top_k("g", 3, epsilon=0.5),
    "a choice by group": lambda f: f.noisy_max("g", G, by="day", keys=[0, 1], epsilon=0.5),
    "a choice in another group": lambda f: f.noisy_max("g", G, by="day", keys=[0, 2], epsilon=0.5),
}


@pytest.mark.slow
def test_what_changes_the_draw_makes_a_new_question(session, rows):
    """Each question differs from the others in what is drawn. Asked again, in any order, none finds another's."""
    first = {}
    for number, (name, ask) in enumerate(DIFFERENT.items(), 1):
        first[name] = ask(rows)
        assert charges(session) == number, name
    for name, ask in reversed(DIFFERENT.items()):
        if name != "unchecked":  # nobody can tell whether two unchecked steps are the same
            assert ask(rows).equals(first[name]), name
    assert charges(session) == len(DIFFERENT)


def test_other_rows_and_other_units_are_other_questions(session, rows):
    rows.count(epsilon=0.5)
    dp.private(ROWS.clone(), session).count(epsilon=0.5)
    assert charges(session) == 2
    own = ROWS.with_columns(customer="user", visit=pl.int_range(pl.len()))
    dp.private(own, session).count(epsilon=0.5)
    dp.private(own, session, unit=["user", "visit"], weaker_unit=True).count(epsilon=0.5)
    dp.private(own, session, unit="visit", weaker_unit=True).count(epsilon=0.5)
    assert charges(session) == 5


def test_a_fresh_release_is_paid_for_and_found_by_every_presentation(session, rows):
    old = rows.count(epsilon=0.05)
    new = rows.count(epsilon=0.05, fresh=True, confidence=0.9)
    while new["count"].equals(old["count"]):
        new = rows.count(epsilon=0.05, fresh=True, confidence=0.9)
    paid = charges(session)
    assert rows.count(epsilon=0.05).equals(new.select("count"))
    assert rows.group_by().agg(n=dp.count(), epsilon=0.05).item() == new["count"].item()
    assert charges(session) == paid


def test_parts_that_nobody_knows_are_never_equal():
    written = Writer(())
    assert written(object()) != written(object())
    assert written([1, "1", 1.0, True]) == [1, "1", ["float", (1.0).hex()], True]


# ---------------------------------------------------------------- SQL

SQL_SAME = [
    (
        "SELECT g, dp_count(*) AS n, dp_avg(x, 0, 10) AS m FROM visits WHERE x > 1 GROUP BY g",
        "SELECT dp_avg(v.x, 0, 10), v.g, dp_count(*) FROM visits AS v WHERE v.x > 1 GROUP BY v.g ORDER BY 3 LIMIT 2",
        "WITH c AS (SELECT * FROM visits WHERE true), d AS (SELECT * FROM c WHERE x > 1) "
        "SELECT g, dp_count(*), dp_avg(x, 0, 10) FROM d GROUP BY ALL",
        'SELECT g AS "where", dp_avg(z, 0, 10), dp_count(*) FROM (SELECT x AS z, "user", g FROM visits WHERE x > 1) '
        "GROUP BY 1",
    ),
    (
        "SELECT land, dp_sum(x, 0, 10) FROM visits JOIN lands USING (g) GROUP BY land",
        "SELECT l.land AS l, dp_sum(v.x, 0, 10) AS s FROM visits v JOIN lands l ON v.g = l.g GROUP BY l.land",
    ),
    (
        "SELECT dp_top_k(g, 2) FROM visits",
        'WITH c AS (SELECT "user", g AS h FROM visits WHERE true) SELECT dp_top_k(h, 2) AS best FROM c',
    ),
]

SQL_DIFFERENT = [
    "SELECT dp_count(*) FROM visits",
    "SELECT dp_count(x) FROM visits",
    "SELECT dp_count_units() FROM visits",
    "SELECT dp_count(*) FROM visits WHERE x > 1",
    "SELECT dp_count(*) FROM visits WHERE x >= 1",
    "SELECT dp_count(*) FROM visits WHERE NOT x > 1",
    "SELECT dp_count(*) FROM visits WHERE x > 1 OR true",
    "SELECT dp_count(*) FROM visits JOIN lands USING (g)",
    "SELECT dp_count(*) FROM visits LEFT JOIN lands USING (g) WHERE land = 'north'",
    "SELECT dp_count(*) FROM visits ANTI JOIN lands USING (g)",
    "SELECT dp_count(*) FROM visits JOIN twice USING (g)",
    "SELECT dp_count(*) FROM visits JOIN twice a USING (g) JOIN twice b USING (g)",
    "SELECT dp_sum(x, 0, 10) FROM visits",
    "SELECT dp_sum(x + 1, 0, 10) FROM visits",
    "SELECT dp_sum(x, 0, 11) FROM visits",
    "SELECT dp_sum(x, 0, 10), dp_count(*) FROM visits",
    "SELECT dp_sum(x, 0, 10), dp_count(*) FILTER (WHERE x > 2) FROM visits",
    "SELECT g, dp_count(*) FROM visits GROUP BY g",
    "SELECT g, dp_count(*, keys := ['a', 'b']) FROM visits GROUP BY g",
    "SELECT g, dp_count(*, keys := ['a', 'c']) FROM visits GROUP BY g",
    "SELECT day, dp_count(*) FROM visits GROUP BY day",
    "SELECT upper(g), dp_count(*) FROM visits GROUP BY 1",
    "SELECT dp_count(*) FROM others",
]


def sql_tables(session):
    con = dp.connect(None, session).register("visits", ROWS).register("others", ROWS.clone())
    con.register("lands", LANDS).register("twice", pl.concat([LANDS, LANDS]))
    return con.public("lands", "twice")


@pytest.mark.slow
@pytest.mark.parametrize("same", SQL_SAME, ids=["aggregates", "a join", "a choice"])
def test_equivalent_statements_cost_one(same, session):
    con = sql_tables(session)
    for statement in same:
        con.sql(statement, epsilon=0.5).fetchall()
        assert charges(session) == 1, statement


@pytest.mark.slow
def test_other_statements_are_other_questions(session):
    con = sql_tables(session)
    paid = 0
    for statement in SQL_DIFFERENT:
        paid += len(dp_plans(con.preview(statement, epsilon=0.5)))
        con.sql(statement, epsilon=0.5).fetchall()
        assert charges(session) == paid, statement


def dp_plans(found):
    return found if isinstance(found, list) else [found]


@pytest.mark.slow
def test_a_function_of_a_plain_connection_adds_an_interval_for_free(session):
    raw = duckdb.connect()
    raw.execute('CREATE TABLE visits AS SELECT i // 3 AS "user" FROM range(600) t(i)')
    dp.register(raw, session)
    ((plain,),) = raw.sql("SELECT * FROM dp.count('visits', epsilon := 0.5)").fetchall()
    ((low, high),) = raw.sql(
        "SELECT count_low, count_high FROM dp.count('visits', epsilon := 0.5, confidence := 0.9)"
    ).fetchall()
    assert low < plain < high
    assert charges(session) == 1


# ---------------------------------------------------------------- other processes, other versions


@pytest.mark.slow
def test_another_process_presents_the_numbers_in_its_own_way(tmp_path):
    """The estimated caps and bounds are stored with the numbers."""
    path, ledger = tmp_path / "visits.parquet", tmp_path / "budget.db"
    ROWS.write_parquet(path)
    session = dp.Session(epsilon=5.0, delta=1e-6, unit="user", max_rows_per_group=3, max_groups=4, ledger=ledger)
    rows = dp.private(pl.scan_parquet(path), session)
    count = rows.count(epsilon=0.5).collect().item()
    means = rows.mean("x", by="g", keys=G, bounds="auto", epsilon=0.5).collect()
    session.close()
    program = f"""
import dp_polars as dp, polars as pl
session = dp.Session.from_ledger({str(ledger)!r})
rows = dp.private(pl.scan_parquet({str(path)!r}), session)
print(rows.group_by().agg(n=dp.count(), epsilon=0.5, nonnegative=True, confidence=0.95).collect()["n"].item())
found = rows.group_by("g").agg(m=dp.mean("x", bounds="auto"), keys={G}, epsilon=0.5, confidence=0.9).collect()
print(found.select("g", x="m").rows())
con = dp.connect(None, session).register("visits", pl.scan_parquet({str(path)!r}))
print(con.sql("WITH c AS (FROM visits) SELECT dp_count(*) AS n FROM c", epsilon=0.5).fetchall()[0][0])
print(len(session.releases))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [str(count), str(means.rows()), str(count), "2"], done.stderr


def test_groups_that_are_not_shown_never_reach_the_ledger(tmp_path):
    ledger = tmp_path / "budget.db"
    session = dp.Session(
        epsilon=5.0, delta=1e-6, unit="user", max_rows_per_group=1, max_groups=1, per_unit="g", ledger=ledger
    )
    shown = pl.DataFrame({"user": range(4_000), "g": "shown", "x": [1] * 4_000})
    rare = pl.DataFrame({"user": [5_000], "g": ["secret"], "x": [1]})
    rows = dp.private(pl.concat([shown, rare]), session)
    for ask in (
        lambda: rows.count("g", epsilon=0.5),
        lambda: rows.median("x", by="g", bounds=B, epsilon=0.5),
        lambda: rows.mean("x", by="g", bounds=B, epsilon=0.5),
    ):
        assert ask()["g"].to_list() == ["shown"]
    with sqlite3.connect(ledger) as connection:
        for (numbers,) in connection.execute("SELECT numbers FROM draw").fetchall():
            assert pl.read_ipc(numbers)["key0"].to_list() == ["shown"]
    assert b"secret" not in ledger.read_bytes()


def as_format_2(path):
    """Turn a ledger into one of format 2, which had no noisy numbers and no analysts and was otherwise the same."""
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "DROP TABLE audit; DROP TABLE analyst; DROP INDEX charge_by_analyst; "
            "ALTER TABLE charge DROP COLUMN analyst; DROP TABLE draw; PRAGMA user_version = 2;"
        )
    connection.close()


def test_a_ledger_of_the_second_format_is_brought_up_to_date(tmp_path):
    path, ledger = tmp_path / "visits.parquet", tmp_path / "budget.db"
    ROWS.write_parquet(path)
    session = dp.Session(epsilon=5.0, unit="user", max_rows_per_group=3, ledger=ledger)
    old = dp.private(pl.scan_parquet(path), session).count(epsilon=0.5).collect()
    session.close()
    as_format_2(ledger)
    session = dp.Session.from_ledger(ledger)
    rows = dp.private(pl.scan_parquet(path), session)
    assert rows.count(epsilon=0.5).collect().equals(old)  # found as before, by the whole question
    assert charges(session) == 1
    rows.count(epsilon=0.5, confidence=0.9).collect()  # its noisy numbers were not kept
    assert charges(session) == 2
    rows.count(epsilon=0.5, confidence=0.8).collect()
    assert charges(session) == 2


def test_a_process_of_the_version_before_can_go_on(tmp_path):
    """It writes releases as before, and they are found by the whole question."""
    ledger = tmp_path / "budget.db"
    session = dp.Session(epsilon=5.0, unit="user", ledger=ledger)
    with session.reserve(dp.pure_cost(0.5), label="q", key=b"q") as reservation:
        reservation.commit(ROWS.head(1))
    with sqlite3.connect(ledger) as connection:
        (frame,) = connection.execute("SELECT frame FROM result").fetchone()
        connection.execute("DELETE FROM result")
        connection.execute("INSERT INTO result VALUES (?, ?)", (1, frame))
    assert session.stored(b"q").frame.equals(ROWS.head(1))


def test_damaged_numbers_are_an_error_of_ours(tmp_path):
    ledger = tmp_path / "budget.db"
    session = dp.Session(epsilon=5.0, unit="user", max_rows_per_group=3, ledger=ledger)
    rows = dp.private(ROWS, session)
    rows.count(epsilon=0.5)
    for column, damage in (("estimates", "[1/0"), ("numbers", b"ARROW1")):
        with sqlite3.connect(ledger) as connection:
            connection.execute(f"UPDATE draw SET {column} = ?", (damage,))
        with pytest.raises(dp.LedgerError, match="charge number 1 is damaged"):
            rows.count(epsilon=0.5, confidence=0.9)
    rows.count(epsilon=0.5, confidence=0.9, fresh=True)
    assert charges(session) == 2


# ---------------------------------------------------------------- the owner's version of a table


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.duckdb"
    raw = duckdb.connect(path)
    for table in ("visits", "other"):
        raw.execute(f'CREATE TABLE {table} AS SELECT i // 3 AS "user", i % 4 AS g FROM range(600) t(i)')
    yield path, raw
    raw.close()


def written(raw):
    raw.execute("INSERT INTO other VALUES (1, 1)")
    raw.execute("CHECKPOINT")


COUNT = "SELECT dp_count(*, epsilon := 0.5) FROM visits"


@pytest.mark.slow
def test_writing_to_one_table_leaves_another_with_a_version_as_it_was(shop, session):
    _, raw = shop
    con = dp.connect(raw, session).private("visits", data_version="2026-11")
    first = con.sql(COUNT).fetchall()
    written(raw)
    assert con.sql(COUNT).fetchall() == first
    assert charges(session) == 1
    con.private("visits", data_version="2026-12").sql(COUNT)
    assert charges(session) == 2
    assert con.private("main.visits", unit="user", data_version="2026-11").sql(COUNT).fetchall() == first
    assert charges(session) == 2


@pytest.mark.slow
def test_a_table_with_a_version_is_found_in_a_database_that_is_opened_again(shop, session):
    path, raw = shop
    first = dp.connect(raw, session).private("visits", data_version="1").sql(COUNT).fetchall()
    written(raw)
    raw.close()
    with dp.connect(path, session) as con:
        con.private("visits", unit="user", data_version="1")
        found = con.sql('WITH c AS (SELECT "user" FROM visits) SELECT dp_count(*, epsilon := 0.5) AS n FROM c')
        assert found.fetchall() == first
    assert charges(session) == 1


@pytest.mark.slow
def test_without_a_version_any_write_to_the_file_makes_its_tables_new(shop, session):
    _, raw = shop
    con = dp.connect(raw, session)
    con.sql(COUNT)
    con.sql(COUNT)
    assert charges(session) == 1
    written(raw)
    con.sql(COUNT)
    assert charges(session) == 2
    con.private("visits", data_version="1").private("visits", unit="user")  # the last declaration has no version
    written(raw)
    con.sql(COUNT)
    assert charges(session) == 3


@pytest.mark.slow
def test_a_version_belongs_to_one_table_of_one_database(shop, session, tmp_path):
    _, raw = shop
    con = dp.connect(raw, session)
    for table in ("visits", "other"):
        con.private(table, data_version="1").sql(COUNT.replace("visits", table))
    assert charges(session) == 2
    for database in (tmp_path / "second.duckdb", ":memory:", ":memory:"):
        with duckdb.connect(database) as second:
            second.execute('CREATE TABLE visits AS SELECT i AS "user" FROM range(9) t(i)')
            dp.connect(second, session).private("visits", data_version="1").sql(COUNT)
    assert charges(session) == 5


@pytest.mark.slow
def test_a_public_table_may_change_if_its_rows_stay_the_same(shop, session):
    _, raw = shop
    raw.execute("CREATE TABLE names AS SELECT i AS g, 'n' || i AS name FROM range(4) t(i)")
    con = dp.connect(raw, session).private("visits", data_version="1").public("names")
    joined = "SELECT name, dp_count(*, epsilon := 0.5) FROM visits JOIN names USING (g) GROUP BY name"
    first = con.sql(joined).fetchall()
    written(raw)
    assert con.sql(joined).fetchall() == first
    assert charges(session) == 1
    raw.execute("UPDATE names SET name = 'other' WHERE g = 0")
    con.sql(joined)
    assert charges(session) == 2


def test_a_registered_frame_with_a_version_is_the_same_as_a_named_frame(session):
    count = dp.private(ROWS, session, name="visits", data_version="1").count(epsilon=0.5).item()
    con = dp.connect(None, session).register("visits", ROWS.clone()).private("visits", data_version="1")
    assert con.sql(COUNT).fetchall() == [(count,)]
    con.register("visits", ROWS.clone())  # what is registered anew has no version
    con.sql(COUNT)
    assert charges(session) == 2


def test_versions_of_text_files_know_how_they_were_read(session, tmp_path):
    path = tmp_path / "visits.csv"
    ROWS.select("user", "x").write_csv(path)
    con = dp.connect(None, session)
    for kind in ("BIGINT", "DOUBLE", "BIGINT"):
        con.register("visits", path, types={"user": "BIGINT", "x": kind}).private("visits", data_version="1")
        con.sql(COUNT)
    assert charges(session) == 2


@pytest.mark.parametrize("version", ["", "  ", 3, b"1"])
def test_a_version_is_a_text(version, session):
    con = dp.connect(None, session).register("visits", ROWS)
    with pytest.raises(dp.InvalidParameterError, match="data_version= must be a text"):
        con.private("visits", data_version=version)


@pytest.mark.slow
def test_every_class_of_questions_is_told_apart_from_the_others(session, rows):
    """One session asks all questions of all classes: there are as many charges as classes."""
    for same in SAME:
        for ask in same.ask:
            ask(rows)
    assert charges(session) == len(SAME)
    assert all(one.id < other.id for one, other in pairwise(session.releases))
