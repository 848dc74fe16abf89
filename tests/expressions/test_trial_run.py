"""The trial run on hostile values: computed expressions get one, bare columns do not need one."""

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._expressions import check

VISITS = pl.DataFrame({"user": range(100), "city": ["a", "b"] * 50, "member": [True, False] * 50, "km": range(100)})


@pytest.fixture
def trials(monkeypatch):
    """The columns of each trial run."""
    found = []
    honest = check.hostile_frame
    monkeypatch.setattr(check, "hostile_frame", lambda columns: found.append(sorted(columns)) or honest(columns))
    return found


@pytest.fixture
def visits():
    session = dp.Session(epsilon=2.0, delta=1e-6, unit="user", max_rows_per_group=1, max_groups=1)
    return dp.private(VISITS, session)


@pytest.mark.slow
def test_a_query_by_column_names_makes_no_trial_run(trials, visits):
    frame = visits.filter(pl.col("member")).select("city", "km").rename({"km": "distance"}).drop("city")
    frame.sum("distance", bounds=(0, 100), epsilon=0.1)
    visits.count(by="city", keys=["a", "b"], epsilon=0.1)
    visits.preview.mean("km", bounds=(0, 100), by=["city", pl.col("member")], epsilon=0.1)
    con = dp.connect(None, visits._session).register("visits", VISITS)
    con.sql("SELECT city, dp_sum(km, bounds := [0, 100], epsilon := 0.1) FROM visits GROUP BY city").fetchall()
    assert trials == []


def test_computed_expressions_are_tried(trials, visits):
    visits.preview.count(by=pl.col("km") // 10, epsilon=0.1)
    visits.filter(pl.col("city") == "a")
    con = dp.connect(None, visits._session).register("visits", VISITS)
    con.sql("SELECT dp_count(*, epsilon := 0.1) FROM visits WHERE km + 1 > 3").fetchall()
    assert trials == [["km"], ["city"], ["km"]]


def test_a_pattern_that_does_not_compile_is_refused_behind_a_condition(visits):
    hidden = pl.when(pl.lit(False)).then(pl.col("city").str.to_lowercase().str.contains("(")).otherwise(False)
    with pytest.raises(dp.ExpressionNotAllowed, match="fails on some values that its columns could hold"):
        visits.filter(hidden)
