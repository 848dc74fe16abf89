"""`dp.connect(spark, session)`: the SQL of DuckDB over tables of Spark, with the answers of a DuckDB table."""

import warnings

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars.errors import ExpressionNotAllowed, InvalidParameterError, StatementNotAllowed
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
