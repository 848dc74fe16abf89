"""Statements that a guarded connection accepts. With almost no noise the result equals that of plain DuckDB."""

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dp
from dp_polars._sql.queries import _selects_columns
from dp_polars._sql.syntax_tree import Parser, without_places

N = 3000
GENERATOR = np.random.default_rng(11)
VISITS = pl.DataFrame(
    {
        "user_id": GENERATOR.integers(0, 200, N),
        "region": pl.Series(["north", "south", "west", None]).gather(GENERATOR.integers(0, 4, N)),
        "qty": GENERATOR.integers(-3, 9, N),
        "price": np.round(GENERATOR.gamma(2, 10, N), 2),
        "day": pl.Series(GENERATOR.integers(19_700, 19_790, N)).cast(pl.Int32).cast(pl.Date),
        "note": pl.Series(["7", "x", "12", ""]).gather(GENERATOR.integers(0, 4, N)),
        "place": pl.Series([{"city": c, "zip": i} for i, c in enumerate("abc")]).gather(GENERATOR.integers(0, 3, N)),
    }
)
LOOKUP = pl.DataFrame({"region": ["north", "south", "west"], "zone": ["A", "B", "A"], "weight": [1, 2, 3]})
HUGE = 10**5  # Laplace noise of scale 0.032 at most on counts: not 0 with a probability below 1e-13


@pytest.fixture(scope="module")
def raw():
    """A database that guarded connections only read."""
    raw = duckdb.connect()
    raw.register("given", VISITS.to_arrow())
    raw.execute("CREATE TABLE visits AS FROM given")
    raw.register("looked", LOOKUP.to_arrow())
    raw.execute("CREATE TABLE lookup AS FROM looked")
    raw.execute("CREATE VIEW sales AS SELECT user_id AS customer, price FROM visits")
    raw.execute("CREATE SCHEMA other")
    raw.execute("CREATE TABLE other.visits AS SELECT user_id, qty FROM visits WHERE qty > 0")
    yield raw
    raw.close()


@pytest.fixture
def con(session, raw):
    guard = dp.connect(raw, session).public("lookup").private("sales", unit={"user_id": "customer"})
    guard.raw_for_tests = raw
    return guard


PLAIN = {"dp_count_units()": "count(DISTINCT user_id)", "dp_count()": "count(*)", "dp_count(*)": "count(*)"}

STATEMENTS = [
    "SELECT dp_count(*) AS n FROM visits",
    "SELECT region, dp_count(*) AS n FROM visits GROUP BY region",
    "FROM visits SELECT region, dp_count() AS n GROUP BY ALL",
    "SELECT region, dp_count_units() AS people FROM visits GROUP BY region",
    "SELECT v.region AS r, dp_count(*) AS n FROM visits AS v GROUP BY v.region",
    "SELECT region, dp_count(*) AS n FROM visits v GROUP BY v.region HAVING n > 10 ORDER BY n DESC LIMIT 2",
    "SELECT region AS r, dp_count(*) AS qty FROM visits GROUP BY 1 ORDER BY qty",
    "SELECT date_trunc('month', day) AS month, dp_count(*) AS n FROM visits GROUP BY month",
    "SELECT year(day) AS y, month(day) AS m, dp_count(*) AS n FROM visits GROUP BY ALL",
    "SELECT CASE WHEN qty > 3 THEN 'many' ELSE 'few' END AS size, dp_count(*) AS n FROM visits GROUP BY size",
    "SELECT (qty > 3)::VARCHAR AS many, dp_count(*) AS n FROM visits WHERE region IN ('north', 'west') GROUP BY many",
    "SELECT place.city AS city, dp_count(*) AS n FROM visits GROUP BY place.city",
    "SELECT place['city'] AS city, dp_count(*) AS n FROM visits GROUP BY city",
    "SELECT region, dp_count(*) FILTER (WHERE qty BETWEEN 2 AND 5) AS n FROM visits GROUP BY region",
    "SELECT dp_count(qty) AS n FROM visits WHERE NOT (note LIKE '1%') AND region IS NOT NULL",
    "SELECT dp_count(*) AS n FROM visits WHERE coalesce(region, '?') <> 'north' OR qty IS NULL",
    "SELECT zone, dp_count(*) AS n FROM visits JOIN lookup USING (region) GROUP BY zone",
    "SELECT zone, dp_count(*) AS n FROM visits v LEFT JOIN lookup l ON v.region = l.region GROUP BY zone",
    "SELECT l.zone, dp_count_units() AS n FROM lookup l JOIN visits v ON l.region = v.region GROUP BY l.zone",
    "SELECT dp_count(*) AS n FROM visits SEMI JOIN lookup USING (region)",
    "SELECT dp_count(*) AS n FROM visits ANTI JOIN lookup USING (region)",
    "WITH busy AS (SELECT region, qty * 2 AS double FROM visits WHERE qty > 2) "
    "SELECT region, dp_count(*) AS n FROM busy WHERE double < 14 GROUP BY region",
    "WITH zones AS (SELECT region, zone FROM lookup WHERE weight > 1) "
    "SELECT zone, dp_count(*) AS n FROM visits JOIN zones USING (region) GROUP BY zone",
    "SELECT region, dp_count(*) AS n FROM (SELECT * FROM visits WHERE qty > 0) GROUP BY region",
    "SELECT region, dp_count(*) AS n "
    "FROM (SELECT * EXCLUDE (price) REPLACE (lower(region) AS region) FROM visits) GROUP BY region",
    "SELECT max(n) AS most FROM (SELECT region, dp_count(*) AS n FROM visits GROUP BY region)",
    "WITH counts AS (SELECT region, dp_count(*) AS n FROM visits GROUP BY region) "
    "SELECT c.region, c.n, l.zone FROM counts c JOIN lookup l ON c.region = l.region",
    "SELECT region, dp_count(*) AS n, rank() OVER (ORDER BY dp_count(*) DESC) AS place FROM visits GROUP BY region",
    "SELECT region, round(dp_count(*) / 10.0) AS tens FROM visits GROUP BY region",
    "SELECT DISTINCT dp_count(*) > 0 AS some FROM visits GROUP BY region",
    "SELECT dp_count(*) AS n FROM visits v JOIN lookup l ON v.qty + 1 = l.weight",
    "SELECT zone, dp_count(*) AS n FROM visits v JOIN lookup l ON v.region = l.region AND v.qty >= l.weight GROUP BY 1",
    "SELECT dp_count(*) AS n FROM visits WHERE day >= '2023-12-20' AND day < DATE '2024-01-31' - INTERVAL 3 DAY",
    "SELECT dp_count(*) AS n FROM visits WHERE qty % 3 = -1 OR qty // 2 = -1 OR note IN ('7', NULL)",
    "SELECT dayofweek(day) AS d, dp_count() AS n FROM visits WHERE date_diff('week', day, '2024-03-01') > 3 GROUP BY 1",
    "SELECT substring(note, -1) || left(region, 2) AS k, dp_count(*) AS n FROM visits GROUP BY k",
    "SELECT CAST(price AS INTEGER) AS k, dp_count(*) AS n FROM visits WHERE price BETWEEN 10.6 AND 18.4 GROUP BY k",
    "SELECT strftime(day, '%Y-%m') AS k, dp_count(*) AS n FROM visits WHERE region ILIKE '%O%TH' GROUP BY k",
    "SELECT qty, dp_count(*) AS n FROM other.visits GROUP BY qty",
    "SELECT zone, sum(weight) AS w FROM lookup GROUP BY zone",
    "SELECT * FROM lookup WHERE weight > (SELECT min(weight) FROM lookup)",
    "SELECT region, dp_count(*) AS n FROM visits GROUP BY region "
    "UNION ALL SELECT zone, dp_count(*) AS n FROM visits JOIN lookup USING (region) GROUP BY zone",
    "SELECT dp_count(*) AS n FROM visits, (VALUES (1), (2)) t",
    "WITH zones(region, z) AS (VALUES ('north', 'A'), ('west', 'B')) "
    "SELECT z, dp_count(*) AS n FROM visits JOIN zones USING (region) GROUP BY z",
    "SELECT u.z, dp_count(*) AS n FROM visits JOIN (VALUES ('north', 'A')) u(region, z) USING (region) GROUP BY u.z",
    "WITH counts(place, n) AS (SELECT region, dp_count(*) FROM visits GROUP BY region) SELECT max(n) AS n FROM counts",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("statement", STATEMENTS)
def test_with_next_to_no_noise_the_answer_is_that_of_plain_duckdb(con, statement):
    plain = statement
    for name, other in PLAIN.items():
        plain = plain.replace(name, other)
    plain = plain.replace("dp_count(qty)", "count(qty)")
    expected = con.raw_for_tests.sql(plain).pl()
    options = {"epsilon": HUGE} if "dp_" in statement else {}
    found = con.sql(statement, **options).pl()
    assert found.columns == expected.columns
    order = [] if "ORDER BY n" in statement or "ORDER BY qty" in statement else found.columns
    key = {name: pl.Float64 for name, kind in expected.schema.items() if kind.is_numeric()}
    found, expected = found.cast(key), expected.cast(key)
    assert_frame_equal(
        found.sort(order) if order else found, expected.sort(order) if order else expected, check_dtypes=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("call", ["dp_sum(price, 0, 500)", "dp_sum(price, bounds := (0, 500))", "dp_sum(qty, -5, 10)"])
def test_sums(con, call):
    column = "qty" if "qty" in call else "price"
    found = con.sql(
        f"SELECT region, {call} AS s FROM visits GROUP BY region ORDER BY region", epsilon=HUGE, max_groups=4
    ).pl()
    expected = con.raw_for_tests.sql(
        f"SELECT region, sum({column}) AS s FROM visits GROUP BY region ORDER BY region"
    ).pl()
    assert found["region"].to_list() == expected["region"].to_list()
    assert np.allclose(found["s"].to_numpy(), expected["s"].to_numpy().astype(float), atol=80)  # 40 scales


@pytest.mark.slow
@pytest.mark.parametrize("call", ["dp_avg(price, 0, 500)", "dp_mean(price, bounds := [0, 500])"])
def test_means(con, call):
    found = con.sql(
        f"SELECT region, {call} AS m FROM visits GROUP BY region ORDER BY region", epsilon=HUGE, max_groups=4
    ).pl()
    expected = con.raw_for_tests.sql("SELECT region, avg(price) AS m FROM visits GROUP BY region ORDER BY region").pl()
    assert np.allclose(found["m"].to_numpy(), expected["m"].to_numpy(), atol=0.5)  # 60 scales over 700 rows


def test_each_unit_total_and_other_options(con):
    found = con.sql(
        "SELECT dp_sum(qty, -50, 50, per := 'unit', epsilon := 100000) AS s, dp_count(*, within := 5) AS n FROM visits"
    ).pl()
    totals = VISITS.group_by("user_id").agg(pl.col("qty").sum().clip(-50, 50))["qty"].sum()
    assert abs(found["s"].item() - totals) < 1
    assert abs(found["n"].item() - N) < 400


@pytest.mark.slow
def test_a_row_in_which_an_expression_fails_is_null_there_and_nothing_else_happens(con):
    """Casts of text, overflows and logarithms of 0 fail in plain DuckDB. Here they make the value of one row null."""
    found = con.sql(
        "SELECT CAST(note AS INTEGER) AS k, dp_count(*) AS n FROM visits GROUP BY k ORDER BY k NULLS FIRST",
        epsilon=HUGE,
    )
    expected = con.raw_for_tests.sql(
        "SELECT TRY_CAST(note AS INTEGER) AS k, count(*) AS n FROM visits GROUP BY k ORDER BY k NULLS FIRST"
    )
    assert found.fetchall() == expected.fetchall()
    counted = con.sql("SELECT dp_count(*) AS n FROM visits WHERE CAST(note AS INTEGER) > 0", epsilon=HUGE).fetchall()
    assert counted == [(VISITS.filter(pl.col("note").is_in(["7", "12"])).height,)]
    overflowing = "SELECT dp_count(*) AS n FROM visits WHERE CAST(qty AS UTINYINT) < 200"
    assert con.sql(overflowing, epsilon=HUGE).fetchall() == [(VISITS.filter(pl.col("qty") >= 0).height,)]


@pytest.mark.slow
def test_parameters_stay_parameters(con):
    query = (
        "SELECT region, dp_count(*, epsilon := $eps) AS n FROM visits WHERE region = $r GROUP BY ALL HAVING n > $least"
    )
    odd = "x'); DROP TABLE visits; --"
    assert con.sql(query, params={"eps": 1000, "r": odd, "least": 0}).fetchall() == []
    assert len(con.sql(query, params={"eps": 1000, "r": "north", "least": 0}).fetchall()) == 1
    by_place = "SELECT dp_count(*, epsilon := ?) AS n FROM visits WHERE qty > ?"
    found = con.sql(by_place, params=[HUGE, 3]).fetchall()
    assert found == [(VISITS.filter(pl.col("qty") > 3).height,)]
    with pytest.raises(dp.DPError, match="eps"):
        con.sql(query, params={"r": "north", "least": 0})


@pytest.mark.slow
def test_private_aggregates_over_the_same_rows_are_one_release_and_all_or_nothing():
    session = dp.Session(epsilon=1.0, unit="user_id", max_rows_per_group=5)
    con = dp.connect(None, session)
    con.register("visits", VISITS)
    con.sql("SELECT dp_count(*) AS a, dp_count_units() AS b FROM visits", epsilon=0.4)
    assert [entry.cost.epsilon for entry in session.releases] == [pytest.approx(0.4)]
    with pytest.raises(dp.BudgetExceeded):
        con.sql("SELECT dp_count(*, epsilon := 0.5) AS a, dp_sum(qty, 0, 5, epsilon := 0.5) AS b FROM visits")
    assert len(session.releases) == 1
    con.sql("SELECT dp_count(*) AS a, dp_count(*) FILTER (WHERE qty > 2) AS b FROM visits", epsilon=0.2)
    assert [entry.cost.epsilon for entry in session.releases[1:]] == [pytest.approx(0.1)] * 2  # two sets of rows


@pytest.mark.slow
def test_the_same_question_is_free_whatever_stands_above_it(con, session):
    con.sql("SELECT region, dp_count(*, epsilon := 1) AS n FROM visits GROUP BY region")
    before = len(session.releases)
    first = con.sql(
        "SELECT region AS place, dp_count(*, epsilon := 1) AS m FROM visits AS w GROUP BY region ORDER BY m"
    ).fetchall()
    again = con.sql(
        "SELECT region AS place, dp_count(*, epsilon := 1) AS m FROM visits AS w GROUP BY region ORDER BY m"
    ).fetchall()
    assert first == again
    assert len(session.releases) <= before + 1
    con.sql("SELECT region, dp_count(*, epsilon := 1, fresh := true) AS n FROM visits GROUP BY region")
    assert len(session.releases) > before


def test_a_preview_spends_nothing_and_is_the_plan_of_polars(con, session):
    plan = con.preview("SELECT region, dp_count(*, epsilon := 0.5) AS n FROM visits GROUP BY region")
    with session:
        twin = VISITS.dp.preview.count("region", epsilon=0.5)
    assert plan.measurements == twin.measurements
    assert plan.cost == twin.cost
    assert plan.bounds == twin.bounds
    assert plan.discovery == twin.discovery
    assert not session.releases
    both = con.preview("SELECT dp_count(*) AS a, dp_count_units() AS b FROM visits", epsilon=1)
    assert [one.kind for one in both.query.aggregates] == ["count", "count_units"]


def test_a_view_is_the_owners_word_and_the_plan_says_so(con):
    plan = con.preview("SELECT dp_sum(price, 0, 100, epsilon := 1) AS s FROM sales")
    assert "protects" in str(plan)
    assert "customer" in str(plan)
    assert "word" in str(plan)


@pytest.mark.slow
def test_frames_and_files_have_names(tmp_path, session):
    path = tmp_path / "visits.parquet"
    VISITS.write_parquet(path)
    con = dp.connect(None, session).register("frame", VISITS).register("file", path).register("lazy", VISITS.lazy())
    for name in ("frame", "file", "lazy"):
        assert con.sql(f"SELECT dp_count(*) AS n FROM {name}", epsilon=HUGE).fetchall() == [(N,)]
    before = len(session.releases)
    con.sql("SELECT dp_count(*) AS n FROM file", epsilon=HUGE)
    assert len(session.releases) == before
    VISITS.head(10).write_parquet(path)
    assert con.sql("SELECT dp_count(*) AS n FROM file", epsilon=HUGE).fetchall() == [(10,)]
    with pytest.raises(dp.InvalidParameterError, match="no Parquet, CSV or Arrow file"):
        con.register("gone", tmp_path / "nothing.parquet")


@pytest.mark.slow
def test_the_database_api(con):
    con.execute("SELECT region, dp_count(*, epsilon := ?) AS n FROM visits GROUP BY region ORDER BY region", [HUGE])
    assert [column[0] for column in con.description] == ["region", "n"]
    first = con.fetchone()
    rest = con.fetchmany(2)
    assert len(con.fetchall()) == 4 - 1 - len(rest)
    assert first[0] == "north"
    with con.cursor() as other:
        with pytest.raises(dp.InvalidParameterError, match="There is no result yet"):
            other.fetchall()
        other.execute("SELECT dp_count(*, epsilon := 1) AS n FROM visits")
        assert other.pl().columns == ["n"]
        assert other.arrow().num_rows == 1
    con.commit()
    con.rollback()
    con.close()
    assert con.raw_for_tests.execute("SELECT 1").fetchall() == [(1,)]  # a connection that was given stays open


def test_rows_as_units_and_several_unit_columns(session):
    con = dp.connect(None, dp.Session(epsilon=5, unit=dp.ROW)).register("visits", VISITS)
    assert con.sql("SELECT dp_count(*, epsilon := 1) AS n FROM visits").fetchall()
    two = dp.Session(epsilon=5, unit=["user_id", "day"], max_rows_per_group=3)
    con = dp.connect(None, two).register("visits", VISITS)
    plan = con.preview("SELECT dp_count(*, epsilon := 1) AS n FROM visits")
    assert plan.query.unit == ("user_id", "day")


@pytest.mark.slow
def test_public_keys_in_sql(con):
    listed = con.sql(
        "SELECT region, dp_count(*, keys := ['north', 'nowhere']) AS n FROM visits GROUP BY region", epsilon=HUGE
    ).fetchall()
    assert listed == [("north", VISITS.filter(region="north").height), ("nowhere", 0)]
    pairs = con.sql(
        "SELECT region, qty, dp_count(*, keys := [('north', 1), ('south', 2)]) AS n FROM visits GROUP BY ALL",
        epsilon=HUGE,
    ).fetchall()
    assert pairs == [
        (region, qty, VISITS.filter(region=region, qty=qty).height) for region, qty in (("north", 1), ("south", 2))
    ]


def test_boolean_keys_are_public_with_null(con):
    found = con.sql("SELECT qty > 3 AS many, dp_count(*) AS n FROM visits GROUP BY many", epsilon=HUGE).fetchall()
    assert found == [(None, 0), *((many, VISITS.filter((pl.col("qty") > 3) == many).height) for many in (False, True))]


@pytest.mark.slow
def test_names_of_earlier_items_can_be_used_in_later_ones(con):
    found = con.sql(
        "SELECT region, dp_count(*) FILTER (WHERE qty > 3) AS many, dp_count(*) AS n, many / n AS part, "
        "n / sum(n) OVER () AS of_all FROM visits GROUP BY region",
        epsilon=HUGE,
    ).pl()
    assert np.allclose(found["part"], found["many"] / found["n"])
    assert found["of_all"].sum() == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "clause", ["HAVING region > 740", "QUALIFY region > 740 AND count(*) OVER () > 0", "ORDER BY -region LIMIT 2"]
)
def test_an_alias_wins_over_a_key_of_the_same_name(con, clause):
    """Above the aggregation, `region` is the count, although the key in GROUP BY is called region, too."""
    counts = sorted(VISITS.group_by("region").len()["len"])
    assert counts[1] <= 740 < counts[2]
    found = con.sql(f"SELECT dp_count(*) AS region FROM visits GROUP BY visits.region {clause}", epsilon=HUGE)
    assert sorted(row[0] for row in found.fetchall()) == counts[2:]


def test_a_public_column_with_the_name_of_the_unit_may_be_a_key(con):
    con.register("owners", pl.DataFrame({"region": ["north", "south"], "user_id": [1, 2]})).public("owners")
    query = "SELECT o.user_id, dp_count(*) AS n FROM visits v JOIN owners o ON v.region = o.region GROUP BY o.user_id"
    found = con.sql(query, epsilon=HUGE)
    assert found.columns == ["user_id", "n"]
    assert found.fetchall() == [(k, VISITS.filter(region=r).height) for k, r in ((1, "north"), (2, "south"))]


@pytest.mark.slow
@pytest.mark.parametrize("above", ["upper(dp_count_units())", "dp_count_units() + [1]", "sum(5) + dp_count_units()"])
def test_what_cannot_run_above_is_refused_before_the_charge(con, session, above):
    with pytest.raises(dp.StatementNotAllowed, match="can't make sense"):
        con.sql(f"SELECT {above} AS x FROM visits", epsilon=1)
    assert not session.releases


def test_what_fails_above_at_run_time_keeps_its_release(con, session):
    failing = "SELECT CAST(region AS INTEGER) AS k, dp_count(*, epsilon := 1000) AS n FROM visits GROUP BY region"
    with pytest.raises(dp.StatementNotAllowed, match="released and are stored"):
        con.sql(failing)
    assert len(session.releases) == 1
    con.sql(failing.replace("CAST(region AS INTEGER)", "region"))
    assert len(session.releases) == 1


def test_columns_without_a_name_are_called_as_they_are_written(con):
    found = con.sql("SELECT dp_count(*) + 1, 2 * 3 FROM visits", epsilon=HUGE)
    assert found.columns[0].replace("*", "") == "(dp_count() + 1)"  # DuckDB 2.0 writes no star
    assert found.columns[1] == "(2 * 3)"


def test_parameters_that_the_statement_does_not_have_are_refused(con):
    with pytest.raises(dp.InvalidParameterError, match="no parameter 2"):
        con.sql("SELECT dp_count(*, epsilon := ?) AS n FROM visits", params=[1, 2])


@pytest.mark.slow
def test_a_database_in_a_file_is_the_same_source_until_it_is_written_to(tmp_path):
    path = tmp_path / "data.duckdb"
    raw = duckdb.connect(str(path))
    raw.register("given", VISITS.to_arrow())
    raw.execute("CREATE TABLE visits AS FROM given")
    raw.close()
    asked = "SELECT dp_count(*, epsilon := 0.1) AS n FROM visits"
    terms = {"epsilon": 1, "unit": "user_id", "max_rows_per_group": 5, "ledger": tmp_path / "budget.db"}
    answers = []
    for _ in range(2):
        session = dp.Session(**terms)
        with dp.connect(path, session) as con:
            answers.append(con.sql(asked).fetchall())
        assert len(session.releases) == 1
    assert answers[0] == answers[1]
    raw = duckdb.connect(str(path))
    raw.execute("INSERT INTO visits SELECT * FROM visits")
    raw.close()
    with dp.connect(path, session) as con:
        con.sql(asked)
    assert len(session.releases) == 2
    with pytest.raises(dp.InvalidParameterError, match="no database file"):
        dp.connect(tmp_path / "nothing.duckdb", session)


def test_several_plans_print_one_after_the_other(con):
    plans = con.preview("SELECT dp_count(*) AS a, dp_count_units(epsilon := 1) AS b FROM visits", epsilon=1)
    assert str(plans).count("price") == 2


@pytest.mark.parametrize(
    ("query", "plain"),
    [
        ("SELECT r.a AS x, r.b FROM r", True),
        ("SELECT a FROM r", False),
        ("SELECT r.c FROM r", False),
        ("SELECT r.a + 1 FROM r", False),
        ("SELECT r.a FROM r WHERE r.a > 1", False),
        ("SELECT r.a FROM r ORDER BY r.c", False),
        ("SELECT r.a FROM main.r", False),
        ("SELECT r.a FROM r, r AS s", False),
    ],
)
def test_only_selections_of_released_columns_are_not_bound_before_the_charge(query, plain):
    """Anything else could fail after the charge, so DuckDB binds it first."""
    node = without_places(Parser().select(query))
    schema = {"a": pl.Int64(), "b": pl.String()}
    assert _selects_columns(node, {"r": pl.DataFrame(schema=schema)}) is plain
    for other in ({"a": pl.Duration()}, {"A": pl.Int64()}):  # a type that DuckDB may not read, and two equal names
        assert not _selects_columns(node, {"r": pl.DataFrame(schema={**schema, **other})})
