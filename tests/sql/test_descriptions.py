"""DESCRIBE and SHOW TABLES: names, types and units, at no cost and without a look at the rows."""

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.polars import engine

pytestmark = pytest.mark.slow

VISITS = pl.DataFrame(
    {"user_id": [1, 2, 3], "region": ["a", "b", None], "spent": [1.5, 2.5, 3.5], "kind": ["x", "y", "x"]},
    schema_overrides={"kind": pl.Enum(["x", "y"])},
)
DESCRIBED = [
    ("user_id", "BIGINT", True, True),
    ("region", "VARCHAR", False, True),
    ("spent", "DOUBLE", False, True),
    ("kind", "ENUM('x', 'y')", False, True),
]


@pytest.fixture
def con():
    raw = duckdb.connect()
    raw.execute("CREATE TABLE orders (customer INTEGER, price DECIMAL(9, 2), picture BLOB DEFAULT 'secret'::BLOB)")
    raw.execute("CREATE VIEW cheap AS SELECT * FROM orders WHERE price < 5")
    con = dp.connect(raw, dp.Session(epsilon=1.0, unit="user_id", max_rows_per_group=1))
    con.register("visits", VISITS).register("regions", pl.DataFrame({"region": ["a"], "size": [7]})).public("regions")
    return con.private("orders", unit={"user_id": "customer"})


@pytest.mark.parametrize("statement", ["DESCRIBE visits", "SHOW visits", "DESCRIBE SELECT * FROM visits"])
def test_a_private_table_is_described_by_its_columns_and_its_unit(con, statement):
    found = con.sql(statement)
    assert found.columns == ["column_name", "column_type", "unit", "private"]
    assert found.fetchall() == DESCRIBED
    assert con.execute(statement).fetchall() == DESCRIBED


def test_other_tables_are_described_with_their_own_units_and_types(con):
    assert con.sql("DESCRIBE regions").fetchall() == [
        ("region", "VARCHAR", False, False),
        ("size", "BIGINT", False, False),
    ]
    assert con.sql("DESCRIBE orders").fetchall() == [
        ("customer", "INTEGER", True, True),
        ("price", "DECIMAL(9,2)", False, True),
        ("picture", "BLOB", False, True),
    ]


def test_a_select_of_private_rows_is_described(con):
    query = "WITH regions AS (SELECT user_id, spent * 2 AS twice FROM visits) SELECT * FROM regions WHERE twice > 3"
    found = con.sql(f"DESCRIBE {query}").fetchall()
    assert found == [("user_id", "BIGINT", True, True), ("twice", "DOUBLE", False, True)]
    assert con.sql(f"DESCRIBE {query.removesuffix(' WHERE twice > 3')}").fetchall()[1][0] == "twice"


def test_all_tables_are_listed_with_their_units(con):
    """A view whose unit nobody declared can't be asked, nor can a table that lacks its unit; both count as private."""
    con.register("items", pl.DataFrame({"item": ["a"]}))
    assert sorted(con.sql("SHOW TABLES").fetchall()) == [
        ("cheap", True, None),
        ("items", True, None),
        ("orders", True, "customer"),
        ("regions", False, None),
        ("visits", True, "user_id"),
    ]


def test_a_description_reads_no_rows_costs_nothing_and_is_the_same_for_all_rows(con, monkeypatch):
    monkeypatch.setattr(engine, "run_bounded", None, raising=False)
    monkeypatch.setattr("dp_polars._engines.duckdb.rows.table_rows", None)
    statements = ["DESCRIBE visits", "DESCRIBE SELECT spent FROM visits", "SHOW TABLES"]
    statements += [f"SELECT * FROM information_schema.{name} ORDER BY ALL" for name in ("tables", "columns")]
    first = [con.sql(statement).fetchall() for statement in statements]
    for rows in (VISITS.clear(), pl.concat([VISITS, VISITS])):
        con.register("visits", rows)
        assert [con.sql(statement).fetchall() for statement in statements] == first
    assert not con._session.releases
    assert con._session.spent.share == 0
    assert str(con.preview("DESCRIBE visits")) == "no private answer, nothing to pay"


def test_the_information_schema_tells_names_types_and_units(con):
    tables = con.sql("SELECT table_name, private, unit FROM information_schema.tables ORDER BY table_name").fetchall()
    assert tables == [("cheap", True, None), ("orders", True, "customer"), ("regions", False, None),
                      ("visits", True, "user_id")]  # fmt: skip
    found = con.sql(
        "SELECT column_name, data_type, is_unit, private FROM information_schema.columns AS c "
        "WHERE c.table_name = 'visits' ORDER BY ordinal_position"
    )
    assert found.fetchall() == DESCRIBED
    counted = con.sql(
        "SELECT table_name, count(*) AS n FROM Information_Schema.Columns GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert counted == [("orders", 3), ("regions", 2), ("visits", 4)]
    joined = con.sql(
        "SELECT t.table_name, t.unit, c.data_type FROM information_schema.tables t JOIN information_schema.columns c "
        "USING (table_name) WHERE is_unit ORDER BY 1"
    )
    assert joined.fetchall() == [("orders", "customer", "INTEGER"), ("visits", "user_id", "BIGINT")]
    assert "estimated_size" not in con.sql("SELECT * FROM information_schema.tables").columns
    for name in ("schemata", "views"):
        with pytest.raises(dp.DPError, match="There is no table"):
            con.sql(f"SELECT * FROM information_schema.{name}")
    with pytest.raises(dp.DPError):
        con.sql("SELECT * FROM duckdb_tables()")


def test_an_empty_database_has_an_empty_information_schema():
    con = dp.connect(None, dp.Session(epsilon=1.0, unit="user_id"))
    assert con.sql("SELECT table_name, private FROM information_schema.tables").fetchall() == []
    assert con.sql("SELECT * FROM information_schema.columns").fetchall() == []


def test_the_budget_can_be_read_anywhere_above_private_rows():
    con = dp.connect(None, dp.Session(epsilon=1.0, unit="user_id", max_rows_per_group=1, queries=4))
    con.register("visits", VISITS)
    assert con.sql("SELECT dp_budget().remaining AS a, dp_budget().questions AS n").fetchall() == [(1.0, 4)]
    beside = con.sql("SELECT dp_count(*) AS n, dp_budget().used AS before FROM visits")
    assert beside.fetchall()[0][1] == 0.0
    budget = con.sql("SELECT dp_budget() AS b").fetchall()[0][0]
    assert (budget["used"], budget["questions"], budget["releases"], budget["delta"]) == (0.25, 3, 1, 0.0)
    assert con.sql("SELECT b.remaining FROM (SELECT dp_budget() AS b)").fetchall() == [(0.75,)]
    assert "dp_budget()" in con.sql("SELECT dp_budget().remaining").columns[0]
    assert len(con._session.releases) == 1
    without = dp.connect(None, dp.Session(epsilon=1.0, unit="user_id"))
    assert without.sql("SELECT dp_budget().questions").fetchall() == [(None,)]
    with pytest.raises(dp.DPError):  # rows must not depend on what was asked before
        con.sql("SELECT dp_count(*) FROM visits WHERE spent > dp_budget().used")
