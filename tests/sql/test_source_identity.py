"""Which tables are the same: a stored answer or a declared unit must never reach the rows of another table."""

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dp_polars as dp
from dp_polars._sql.queries import PlannedStatement
from dp_polars._sql.summaries import SummaryStatement

COUNT = "SELECT dp_count_units(epsilon := 0.5) FROM {}"


def units(con, table):
    return con.sql(COUNT.format(table)).fetchall()[0][0]


def test_what_is_declared_about_one_file_says_nothing_about_its_folder(tmp_path):
    """One person has 1,000 visits in each of two files. Only one of them may be protected by visits."""
    for name in ("a", "b"):
        pl.DataFrame({"user": [1] * 1_000, "visit": range(1_000)}).write_parquet(tmp_path / f"{name}.parquet")
    con = dp.connect(None, dp.Session(epsilon=10.0, unit="user"))
    con.register("every", tmp_path)
    con.register("one", tmp_path / "a.parquet")
    con.register("link", tmp_path / "a.parquet")
    con.private("one", unit="visit", weaker_unit=True)
    for table, protected in (("one", "visit"), ("link", "visit"), ("every", "user")):
        assert dict(con.preview(COUNT.format(table)).rows())["protects"].startswith(protected)
    con.private("every", unit="visit", weaker_unit=True)
    con.register("other", tmp_path / "b.parquet")  # a file of a folder is declared with it
    assert dict(con.preview(COUNT.format("other")).rows())["protects"].startswith("visit")


@pytest.mark.slow
def test_a_database_is_told_by_its_file_and_not_by_its_alias(tmp_path):
    for name, size in (("october", 1_000), ("november", 50_000), ("main", 1)):
        with duckdb.connect(tmp_path / f"{name}.db") as raw:
            raw.execute(f"CREATE TABLE visits AS SELECT i AS user FROM range({size}) t(i)")
    found = []
    for this, last in (("october", "november"), ("november", "october")):
        raw = duckdb.connect(tmp_path / "main.db", read_only=True)
        raw.execute(f"ATTACH '{tmp_path / this}.db' AS this_month (READ_ONLY)")
        raw.execute(f"ATTACH '{tmp_path / last}.db' AS last_month (READ_ONLY)")
        session = dp.Session(epsilon=10.0, unit="user", ledger=tmp_path / "ledger.db")
        found.append(units(dp.connect(raw, session), "this_month.visits"))
        session.close()
        raw.close()
    assert found[0] < 5_000 < found[1]


@pytest.mark.slow
def test_a_dot_in_a_name_is_no_separator():
    raw = duckdb.connect()
    raw.execute('CREATE SCHEMA "main.x"')
    raw.execute('CREATE TABLE main."x.y" AS SELECT i AS user FROM range(1000) t(i)')
    raw.execute('CREATE TABLE "main.x".y AS SELECT i AS user FROM range(50000) t(i)')
    con = dp.connect(raw, dp.Session(epsilon=10.0, unit="user"))
    assert units(con, 'main."x.y"') < 5_000 < units(con, '"main.x".y')


@pytest.mark.slow
def test_a_version_belongs_to_one_database_in_memory():
    raw = duckdb.connect()
    raw.execute("ATTACH ':memory:' AS x; ATTACH ':memory:' AS y")
    raw.execute("CREATE TABLE x.visits AS SELECT i AS user FROM range(1000) t(i)")
    raw.execute("CREATE TABLE y.visits AS SELECT i AS user FROM range(50000) t(i)")
    con = dp.connect(raw, dp.Session(epsilon=10.0, unit="user"))
    con.private("x.visits", data_version="1")
    con.private("y.visits", data_version="1")
    assert units(con, "x.visits") < 5_000 < units(con, "y.visits")


@pytest.mark.slow
def test_a_version_belongs_to_one_file(tmp_path):
    found = []
    for name, size in (("x", 1_000), ("y", 50_000)):
        pl.DataFrame({"user": range(size)}).write_parquet(tmp_path / f"{name}.parquet")
        session = dp.Session(epsilon=10.0, unit="user", ledger=tmp_path / "ledger.db")
        con = dp.connect(None, session)
        con.register("visits", tmp_path / f"{name}.parquet")
        con.private("visits", data_version="2026-11")
        found.append(units(con, "visits"))
        session.close()
    assert found[0] < 5_000 < found[1]


def write(path, columns):
    """Write columns so that files of the same columns in another order have the same layout."""
    table = pa.table({name: pa.array(list(values), pa.int64()) for name, values in columns.items()})
    pq.write_table(table, path, use_dictionary=False, compression="none", write_statistics=False)


@pytest.mark.parametrize("version", [None, "1"])
def test_a_file_that_is_replaced_before_it_is_read_is_refused(version, tmp_path, monkeypatch):
    """The columns of the plan would be read by their places, and every visit would count as a unit."""
    path = tmp_path / "visits.parquet"
    write(path, {"user": [1] * 1_000, "visit": range(1_000)})
    session = dp.Session(epsilon=10.0, unit="user")
    con = dp.connect(None, session)
    con.register("visits", path)
    if version is not None:
        con.private("visits", data_version=version)
    release = PlannedStatement.release

    def replaced(statement):
        write(path, {"visit": range(1_000), "user": [1] * 1_000})
        return release(statement)

    monkeypatch.setattr(PlannedStatement, "release", replaced)
    with pytest.raises(dp.InvalidDataError, match="changed after this query was planned"):
        units(con, "visits")
    assert session.spent.epsilon == 0


def test_summarize_refuses_a_file_that_was_replaced(tmp_path, monkeypatch):
    path = tmp_path / "visits.parquet"
    write(path, {"user": [1] * 1_000, "visit": range(1_000)})
    session = dp.Session(epsilon=10.0, unit="user")
    con = dp.connect(None, session)
    con.register("visits", path)
    answer = SummaryStatement.answer

    def replaced(statement):
        write(path, {"visit": range(1_000), "user": [1] * 1_000})
        return answer(statement)

    monkeypatch.setattr(SummaryStatement, "answer", replaced)
    with pytest.raises(dp.InvalidDataError, match="changed after this query was planned"):
        con.sql("SUMMARIZE visits", epsilon=1)
    assert session.spent.epsilon == 0
