"""Tables of Spark in a policy: asked with its caps, bounds and keys, and no table twice."""

import pytest

import dp_polars as dp
from tests.engines.spark.test_aggregation import spark_frame
from tests.engines.spark.test_frames import visits

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:epsilon=:dp_polars.errors.DPWarning"),  # little noise, on purpose
]

POLICY = """\
unit = "user"
[budget]
epsilon = 1000000.0
queries = 10
[tables.trips]
source = "spark"
table = "policy_visits"
unit = "user"
public = false
max_groups = 6
max_rows_per_group = 50
columns.trips.bounds = [0, 30]
columns.town.keys = ["a", "b"]
columns.km.ask = false
"""


@pytest.fixture(scope="module")
def frame(spark):
    frame = visits().drop("at")
    spark_frame(spark, frame).createOrReplaceTempView("policy_visits")
    return frame


@pytest.fixture
def policy_file(tmp_path):
    def written(text=POLICY):
        (tmp_path / "policy.toml").write_text(text)
        return tmp_path / "policy.toml"

    return written


def test_plain_sql_over_a_table_of_spark(spark, frame, policy_file):
    con = dp.Policy.load(policy_file(), spark=spark).connect(analyst="team-a")
    found = con.sql("SELECT town, COUNT(*) AS n, SUM(trips) AS s FROM trips GROUP BY town ORDER BY town").fetchall()
    for town, count, total in found:
        own = frame.filter(town=town).drop_nulls("user")
        assert count == own.height
        assert total == pytest.approx(own["trips"].clip(0, 30).sum(), abs=2)
    assert [town for town, _, _ in found] == ["a", "b"]
    with pytest.raises(dp.DPError, match="km may not be asked"):
        con.sql("SELECT COUNT(km) FROM trips")


def test_mistakes_about_tables_of_spark_are_told_with_their_line(spark, frame, policy_file):
    def told(text, **words):
        with pytest.raises(dp.PolicyError) as refused:
            dp.Policy.load(policy_file(text), **words)
        return str(refused.value)

    assert "line 6: source spark: its rows are in Spark. Hand over the session" in told(POLICY)
    assert "line 6: " in told(POLICY.replace('"policy_visits"', '"nowhere"'), spark=spark)
    assert "say which table" in told(POLICY.replace('table = "policy_visits"\n', ""), spark=spark)
    twice = POLICY + '[tables.open]\nsource = "spark"\ntable = "POLICY_VISITS"\npublic = true\n'
    assert "is the table trips already" in told(twice, spark=spark)
    assert "is a view" in told(POLICY.replace('unit = "user"\npublic', "public"), spark=spark)
    with pytest.raises(dp.InvalidParameterError, match="must be a Spark session"):
        dp.Policy.load(policy_file(), spark="sc://localhost")


def test_a_view_of_spark_is_never_public(spark, frame, policy_file):
    spark.sql("CREATE OR REPLACE TEMP VIEW policy_copy AS SELECT * FROM policy_visits")
    text = POLICY + '[tables.open]\nsource = "spark"\ntable = "policy_copy"\npublic = true\n'
    with pytest.raises(dp.PolicyError, match="policy_copy is a view"):
        dp.Policy.load(policy_file(text), spark=spark)
