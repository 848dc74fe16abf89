"""`dp.connect(spark, session)`: the SQL of DuckDB over tables of Spark, with the answers of a DuckDB table."""

import json
import warnings

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars.errors import ExpressionNotAllowed, InvalidParameterError, StatementNotAllowed
from tests.engines.spark.server import SERVER
from tests.engines.spark.test_aggregation import spark_frame
from tests.engines.spark.test_frames import session, visits

pytestmark = pytest.mark.slow

TOWNS = pl.DataFrame({"town": ["a", "b"], "land": ["x", "y"]})


@pytest.fixture(scope="module")
def frame():
    return visits().drop("at")


@pytest.fixture(scope="module")
def guarded(spark, frame):
    spark_frame(spark, frame).createOrReplaceTempView("visits")
    spark_frame(spark, TOWNS).createOrReplaceTempView("towns")
    return lambda own: dp.connect(spark, own).private("visits", unit="user").public("towns")


QUERIES = [
    "SELECT town, dp_count(*) AS n FROM visits GROUP BY town ORDER BY n DESC",
    "SELECT dp_sum(trips, 0, 30) AS s, dp_count_units() AS u FROM visits WHERE km > 3 AND town = 'a'",
    "WITH far AS (SELECT * FROM visits WHERE km > 5) "
    "SELECT land, dp_count(*) AS n FROM far JOIN towns USING (town) GROUP BY land HAVING n > 0",
    "SELECT trips // 10 AS tens, dp_count(*) AS n FROM visits GROUP BY 1",
]


@pytest.mark.parametrize("query", QUERIES)
def test_a_statement_has_the_price_and_the_answer_of_duckdb(frame, guarded, query):
    raw = duckdb.connect()
    raw.register("given", frame.to_arrow())
    raw.execute("CREATE TABLE visits AS FROM given")
    raw.register("given", TOWNS.to_arrow())
    raw.execute("CREATE TABLE towns AS FROM given")
    ours, theirs = session(max_groups=6), session(max_groups=6)
    answers = [
        con.sql(query, epsilon=10**5).pl().sort(pl.all())
        for con in (guarded(ours), dp.connect(raw, theirs).public("towns"))
    ]
    assert answers[0].equals(answers[1])
    assert ours.spent == theirs.spent


def test_a_view_needs_a_declared_unit_and_names_ignore_case(spark, guarded):
    con = dp.connect(spark, session())
    with pytest.raises(InvalidParameterError, match="is a view"):
        con.sql("SELECT dp_count(*, epsilon := 1) FROM visits")
    con.private("VISITS", unit="user")
    assert con.sql("SELECT dp_count(*, epsilon := 1000) AS n FROM Visits").columns == ["n"]
    with pytest.raises((InvalidParameterError, StatementNotAllowed), match="visit"):
        con.sql("SELECT dp_count(*, epsilon := 1) FROM visit")
    with pytest.raises(StatementNotAllowed):
        con.sql("SELECT * FROM visits")


def test_what_spark_cannot_compute_is_refused_and_nothing_is_charged(guarded):
    own = session()
    with pytest.raises(ExpressionNotAllowed, match="Spark SQL"):
        guarded(own).sql("SELECT upper(town) AS t, dp_count(*) AS n FROM visits GROUP BY 1", epsilon=1)
    assert not own.releases


def test_a_frame_can_be_registered_and_an_answer_is_found_again(spark, frame):
    own = session()
    con = dp.connect(None, own).register("seen", spark_frame(spark, frame))
    query = "SELECT dp_count_units() AS n FROM seen"
    first = con.sql(query, epsilon=10**4).fetchall()
    assert con.sql(query, epsilon=10**4).fetchall() == first == [(200,)]
    assert len(own.releases) == 1


def test_an_address_of_a_server_names_the_extra():
    with warnings.catch_warnings(), pytest.raises(InvalidParameterError, match="spark"):
        dp.connect("sc://cluster:15002", session())


def test_a_public_view_that_is_replaced_shows_no_private_row(spark):
    public, private = (
        spark.createDataFrame(pl.DataFrame({"user": [number], "who": [who]}).to_arrow())
        for number, who in ((9, "public"), (1, "private"))
    )
    public.createOrReplaceTempView("lookup")
    con = dp.connect(spark, dp.Session(epsilon=1.0, unit="user")).public("lookup")
    shown = "SELECT * FROM lookup"
    assert con.sql(shown).fetchall() == [(9, "public")]
    private.createOrReplaceTempView("lookup")
    assert con.sql(shown).fetchall() == [(9, "public")]  # the rows that were declared
    spark.catalog.dropTempView("lookup")
    private.write.saveAsTable("lookup")
    try:
        with pytest.raises(dp.StatementNotAllowed):
            con.sql(shown).fetchall()
    finally:
        spark.sql("DROP TABLE lookup")


def test_the_unit_of_a_view_is_not_that_of_a_table_with_its_name(spark):
    rows = spark.createDataFrame(pl.DataFrame({"customer": [1, 2], "x": [1, 1]}).to_arrow())
    rows.createOrReplaceTempView("hidden")
    con = dp.connect(spark, dp.Session(epsilon=1.0, unit="user")).private("hidden", unit={"user": "customer"})
    assert con.preview("SELECT dp_count_units(epsilon := 0.1) FROM hidden")
    spark.catalog.dropTempView("hidden")
    rows.write.saveAsTable("hidden")
    try:
        with pytest.raises(dp.DPError):
            con.preview("SELECT dp_count_units(epsilon := 0.1) FROM hidden")
    finally:
        spark.sql("DROP TABLE hidden")


@pytest.fixture
def delta(spark, tmp_path, monkeypatch):
    """A function that runs SQL on a session with Delta tables. It returns the folder of a table.

    Sail writes Delta tables and reads their versions, but has no DESCRIBE HISTORY. These statements are answered from
    the log of the table, as Delta's own engine does.
    """
    if SERVER != "sail":
        pytest.skip("Apache Spark has no Delta tables without jars that pip does not install")
    log, run = tmp_path / "ledgered" / "_delta_log", spark.sql

    def with_history(text, *given, **words):
        if text.startswith("DESCRIBE DETAIL"):
            entries = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
            return run(f"SELECT '{next(one['metaData']['id'] for one in entries if 'metaData' in one)}' AS id")
        if text.startswith("DESCRIBE HISTORY"):
            return run(f"SELECT {len(list(log.glob('*.json'))) - 1} AS version")
        return run(text, *given, **words)

    run(f"CREATE TABLE ledgered (user BIGINT, x BIGINT) USING delta LOCATION '{log.parent}'").collect()
    monkeypatch.setattr(spark, "sql", with_history)
    yield lambda text: run(text).collect()
    run("DROP TABLE ledgered").collect()


def test_a_version_of_a_table_identifies_its_rows(spark, delta, tmp_path):
    """Stored releases are found by every process until the table is written to, and then they are not."""
    query, spent = "SELECT dp_count_units() AS n FROM ledgered", []
    delta("INSERT INTO ledgered SELECT id, 1 FROM range(10)")
    for written in (False, False, True):
        if written:
            delta("INSERT INTO ledgered SELECT id, 1 FROM range(20)")
        own = session(ledger=tmp_path / "budget.db")
        con = dp.connect(spark, own)
        assert con.sql(query, epsilon=10**4).fetchall() == [(20 if written else 10,)]
        spent.append(own.spent.epsilon)
        own.close()
    assert spent == [10**4, 10**4, 2 * 10**4]
    # A plan that was made before the table was written to reads the rows of its version.
    con = dp.connect(spark, session())
    con.sql(query, epsilon=1)
    (table,) = (one for name, one in con._database.registered.items() if "ledgered" in name)
    delta("INSERT INTO ledgered SELECT id, 1 FROM range(30)")
    assert table.public_rows()["user"].n_unique() == 20


def test_a_version_is_told_by_the_table_not_by_its_rows(spark, delta, tmp_path):
    """Equal rows in another version are another source, and the declarations about the table stay."""
    delta("INSERT INTO ledgered SELECT id, 1 FROM range(10)")
    own = session(unit="person")
    con = dp.connect(spark, own).private("ledgered", unit={"person": "user"})
    for place in (1, 2):
        con.sql("SELECT dp_count_units() AS n FROM ledgered", epsilon=10**3)
        assert len(own.releases) == place
        delta("INSERT OVERWRITE ledgered SELECT id, 1 FROM range(10)")
