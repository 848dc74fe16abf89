"""Adding or removing one unit moves the exact answers of a statement by at most the sensitivity in its plan."""

from functools import cache

import duckdb
import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.polars import engine
from dp_polars._release.run import request_of
from dp_polars._sql import queries as sql_queries
from tests.plan.test_neighbours import difference, moved_cells, named_vector

GENERATOR = np.random.default_rng(41)
N = 600
ROWS = pl.DataFrame(
    {
        "who": pl.Series([*range(40), None]).gather(GENERATOR.integers(0, 41, N)),
        "region": pl.Series(["north", "south", "west", "x", None]).gather(GENERATOR.integers(0, 5, N)),
        "qty": GENERATOR.integers(-50, 50, N),
        "note": pl.Series(["1", "2.5", "nan", "inf", "-9e99", "x", ""]).gather(GENERATOR.integers(0, 7, N)),
    }
)
HEAVY = pl.DataFrame({"who": [7] * 3000, "region": ["north"] * 3000, "qty": [10**6] * 3000, "note": ["9e300"] * 3000})
PUBLIC = pl.DataFrame({"region": ["north", "north", "south", "west"], "zone": ["a", "b", "b", "c"]})

STATEMENTS = [
    "SELECT region, dp_count(*) AS n FROM rows GROUP BY region",
    "SELECT zone, dp_count(*) AS n FROM rows JOIN places USING (region) GROUP BY zone",
    "SELECT zone, dp_count_units() AS n FROM places LEFT JOIN rows USING (region) GROUP BY zone",
    "SELECT zone, dp_count(*) AS n FROM rows FULL JOIN places USING (region) GROUP BY zone",
    "SELECT dp_count(*) AS n FROM rows, places",
    "SELECT region, dp_sum(CAST(note AS DOUBLE), -5, 5) AS s FROM rows GROUP BY region",
    "SELECT qty % 3 AS k, dp_sum(qty * qty, 0, 100) AS s FROM rows WHERE qty <> 0 GROUP BY k",
    "SELECT dp_sum(qty, -20, 20, per := 'unit') AS s FROM rows",
    "SELECT region, dp_avg(qty, -10, 10) AS m FROM rows GROUP BY region",
    "WITH w AS (SELECT region, CAST(note AS INTEGER) AS v FROM rows) "
    "SELECT v, dp_count(*) FILTER (WHERE region <> 'west') AS n FROM w GROUP BY v",
    "SELECT region, dp_count(*, keys := ['north', 'south', 'nowhere']) AS n FROM rows GROUP BY region",
    "SELECT region, dp_var(qty, -10, 10) AS v, dp_avg(qty, -10, 10) AS m, dp_count(qty) AS n FROM rows GROUP BY region",
    "SELECT region, dp_median(CAST(note AS DOUBLE), -5, 5) AS m, dp_max(qty, -9, 9) AS x FROM rows GROUP BY region",
    "SELECT dp_quantile(qty, [0.1, 0.5, 0.9], -60, 60) AS q FROM rows",
    "SELECT region, dp_count_distinct(note) AS d, dp_count_distinct(qty) AS q, dp_count(*) FROM rows GROUP BY region",
    "SELECT region, dp_histogram(qty, -50, 50, bins := 7) AS h FROM rows GROUP BY region",
    "SELECT n % 5 AS k, dp_count(*) AS c, dp_sum(q, -50, 50) AS s FROM (SELECT who, region, count(*) AS n, "
    "sum(qty) AS q FROM rows GROUP BY who, region HAVING max(qty) > 0) GROUP BY k",
    "SELECT region, dp_count(*) AS n FROM (SELECT who, region, lag(qty) OVER (PARTITION BY who ORDER BY qty) AS before"
    ", qty FROM rows) WHERE qty - before < 3 GROUP BY region",
    "SELECT a.region, dp_count(*) AS n FROM rows a JOIN rows b ON a.who = b.who AND a.qty < b.qty GROUP BY a.region",
    "SELECT region, dp_count(*) AS n FROM rows WHERE who NOT IN (SELECT who FROM rows WHERE note = 'x') "
    "GROUP BY region",
    "SELECT region, dp_count_units() AS n FROM (SELECT DISTINCT who, region FROM rows UNION ALL SELECT who, note "
    "FROM rows WHERE qty > 9) GROUP BY region",
    "SELECT dp_corr(qty, CAST(note AS DOUBLE), -20, 20, 0, 3) AS c FROM rows",
]


@cache
def database(gone=None):
    """Return the crowd, without one unit if it is named, and the public table; statements only read them."""
    crowd = pl.concat([ROWS, HEAVY])
    raw = duckdb.connect()
    raw.register("given", (crowd if gone is None else crowd.filter(pl.col("who").ne_missing(gone))).to_arrow())
    raw.execute("CREATE TABLE rows AS FROM given")
    raw.register("public", PUBLIC.to_arrow())
    raw.execute("CREATE TABLE places AS FROM public")
    return raw


def exact(raw, statement, parts):
    """Return the exact bounded answers of a statement and its plan, with a salt that both neighbours share."""
    session = dp.Session(epsilon=1, delta=1e-6, unit="who", max_groups=2, max_rows_per_group=3)
    con = dp.connect(raw, session).public("places")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.secrets, "randbits", lambda _: 4_242)
        patch.setattr(sql_queries, "parts_for", lambda *_: parts)
        (one,) = con._planned(statement, {}, {"epsilon": 0.5}).queries
        return one.bounded_aggregates(one.question.rows, request_of(one.plan)), one.plan


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_one_unit_moves_the_answers_no_further_than_the_plan_says(statement, parts):
    table, plan = exact(database(), statement, parts)
    grouped = bool(plan.query.keys)
    for gone in (7, 0, 39) if parts == 1 else (7, 13):
        other, _ = exact(database(gone), statement, parts)
        for measurement in plan.measurements:
            if measurement.noise is None:
                cells = next(
                    compiled.statistics["cells"]
                    for compiled in plan.compiled
                    if compiled.statistics.get("values") == measurement.name
                )
                moved = np.array(moved_cells(table, other, cells, grouped))
                assert max(moved, default=0) <= measurement.statistic.max_rows
            else:
                moved = difference(*(named_vector(one, measurement, grouped) for one in (table, other)))
                assert np.abs(moved).sum() <= measurement.sensitivity.l1
                assert (moved.astype(object) ** 2).sum() <= measurement.sensitivity.l2_squared
                assert np.abs(moved).max(initial=0) <= measurement.sensitivity.each
            several = max(len(measurement.statistic.columns), measurement.statistic.bins, 1)
            assert (moved != 0).sum() <= plan.bounds.max_groups * several
