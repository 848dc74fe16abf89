"""Texts of a DuckDB table reach Polars as they are, and the settings of the user's database stay as they are."""

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.duckdb.rows import ReadTransaction, TableColumn, table_rows
from dp_polars._engines.polars import PolarsEngine
from dp_polars._sql.syntax_tree import with_short_texts

TEXTS = [
    "",
    None,
    "a",
    "zwölf Bytes",
    "twelve bytes",
    "thirteen byte",
    "b" * 300,
    "\0",
    "a\0",
    "ä" * 6,
    "ä" * 7,
    "👩🏽‍💻" * 40,
]
SESSION = {"epsilon": 1, "unit": "user", "max_rows_per_group": 1, "max_groups": 1}


@pytest.fixture
def database():
    connection = duckdb.connect()
    frame = pl.DataFrame({"user": range(len(TEXTS)), "t": TEXTS, "many": [[text, text] for text in TEXTS]})
    connection.register("given", frame.to_arrow())
    connection.execute("CREATE TABLE visits AS FROM given")
    yield connection
    connection.close()


@pytest.mark.parametrize("views", [True, False])
def test_texts_of_any_length_are_read_as_they_are(database, views):
    def cursor():
        opened = database.cursor()
        if views:
            with_short_texts(opened)
        return opened

    columns = {"t": TableColumn('"t"', pl.String()), "many": TableColumn('"many"', pl.List(pl.String()))}
    rows = table_rows(ReadTransaction(cursor), ("memory", "main", "visits"), columns)
    found = PolarsEngine().read(rows)
    assert found.to_dict(as_series=False) == {"t": TEXTS, "many": [[text, text] for text in TEXTS]}


def test_the_cursors_of_the_user_keep_their_settings(database):
    asked = "SELECT name, value, scope FROM duckdb_settings() WHERE name LIKE '%arrow%' ORDER BY name"
    before = database.execute(asked).fetchall()
    guard = dp.connect(database, dp.Session(**SESSION))
    guard.sql("SELECT t, dp_count(*) FROM visits GROUP BY t", epsilon=0.1, keys={"t": ["a", "twelve bytes"]}).fetchall()
    for cursor in (database, database.cursor()):
        assert cursor.execute(asked).fetchall() == before
        assert str(cursor.sql("SELECT t FROM visits").to_arrow_reader().schema.field("t").type) == "string"


def test_a_database_with_locked_settings_is_read_if_tables_are_no_python_variables(database):
    session = dp.Session(**SESSION)
    guard = dp.connect(database, session)
    database.execute("SET lock_configuration = true")
    with pytest.raises(dp.errors.InvalidParameterError, match="settings of this database are locked"):
        guard.sql("SELECT dp_count(*) AS n FROM visits", epsilon=0.5)
    assert session.spent.epsilon == 0

    locked = duckdb.connect()
    locked.execute("CREATE TABLE visits AS SELECT i AS user FROM range(12) AS numbers(i)")
    locked.execute("SET GLOBAL python_enable_replacements = false")
    locked.execute("SET lock_configuration = true")
    answer = dp.connect(locked, dp.Session(**SESSION)).sql("SELECT dp_count(*) AS n FROM visits", epsilon=0.5)
    assert abs(answer.fetchall()[0][0] - 12) < 100  # the noise has a scale of 2, so this fails with less than 1e-20
