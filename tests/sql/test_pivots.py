"""PIVOT turns answers as DuckDB would, costs nothing of its own, and never touches private rows."""

import duckdb
import polars as pl
import pytest

import dp_polars as dp

pytestmark = pytest.mark.slow

SALES = pl.DataFrame(
    {"region": ["a", "a", "b", "b", "c"], "month": [1, 2, 1, 1, 3], "kind": ["x", "y", "x", None, "y"],
     "n": [1.0, 2.0, 3.0, 4.0, None]}
)  # fmt: skip

STATEMENTS = [
    "FROM (SELECT region, month, n FROM sales) PIVOT (sum(n) FOR month IN (1, 2, 7)) ORDER BY region",
    'SELECT region, "1" + coalesce("2", 0) AS both FROM (SELECT region, month, n FROM sales) '
    "PIVOT (sum(n) FOR month IN (1, 2)) ORDER BY region",
    "FROM sales PIVOT (sum(n) AS total, count(n) AS counted FOR month IN (1, 2) GROUP BY region) ORDER BY region",
    "FROM sales PIVOT (max(n) FOR month IN (1, 2) kind IN ('x', 'y') GROUP BY region) ORDER BY region",
    "SELECT p.* FROM sales PIVOT (sum(n) FOR month IN (1 AS jan, 2 AS feb) GROUP BY region) AS p ORDER BY region",
]


@pytest.fixture(scope="module")
def both():
    raw = duckdb.connect()
    raw.register("given", SALES.to_arrow())
    raw.execute("CREATE TABLE sales AS FROM given")
    raw.execute("CREATE TABLE visits AS SELECT i % 900 AS who, i % 3 AS region, i % 2 AS month FROM range(3000) t(i)")
    con = dp.connect(raw, dp.Session(epsilon=1, delta=1e-6, unit="who", max_groups=3, max_rows_per_group=5))
    return raw, con.public("sales")


@pytest.mark.parametrize("statement", STATEMENTS)
def test_public_rows_are_turned_as_duckdb_turns_them(both, statement):
    raw, con = both
    wanted, found = raw.sql(statement), con.sql(statement)
    assert found.columns == wanted.columns
    assert found.fetchall() == wanted.fetchall()


def test_answers_are_turned_and_cost_what_they_cost_anyway(both):
    _, con = both
    keys = "keys := {'region': [0, 1, 2], 'month': [0, 1]}"
    asked = f"SELECT region, month, dp_count(*, {keys}) AS n FROM visits GROUP BY ALL"
    plain = con.sql(f"{asked} ORDER BY ALL", epsilon=0.2).fetchall()
    spent = con._session.spent.share
    turned = con.sql(f"FROM ({asked}) PIVOT (sum(n) FOR month IN (0, 1)) ORDER BY region", epsilon=0.2)
    assert turned.columns == ["region", "0", "1"]
    assert turned.fetchall() == [(region, *(n for r, _, n in plain if r == region)) for region in (0, 1, 2)]
    assert con._session.spent.share == spent  # the same question as before


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("FROM visits PIVOT (count(*) FOR month IN (0, 1))", "would aggregate them without noise"),
        ("PIVOT sales ON month USING sum(n)", "write SELECT \\* FROM"),
        ("FROM sales UNPIVOT (v FOR k IN (month, n))", "UNPIVOT is not supported"),
        ("FROM sales PIVOT (sum(n) FOR month IN (SELECT month FROM sales))", "."),
        ("FROM sales PIVOT (getenv('HOME') FOR month IN (1, 2))", "not among the built-in functions"),
    ],
)
def test_other_pivots_are_refused_with_what_to_write(both, statement, message):
    _, con = both
    with pytest.raises(dp.DPError, match=message):
        con.sql(statement)
