"""Private aggregates as functions on a user's own connection, which any tool that holds it can call."""

import time

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._sql.allowed_functions import CUTS, PRIVATE
from tests.sql.test_accepted import HUGE, VISITS


@pytest.fixture
def con(tmp_path):
    raw = duckdb.connect(str(tmp_path / "data.duckdb"))
    raw.register("given", VISITS.to_arrow())
    raw.execute("CREATE TABLE visits AS FROM given")
    raw.execute("CREATE TABLE typed AS SELECT user_id, qty::TINYINT AS tiny, day::TIMESTAMP AS moment FROM visits")
    return raw


@pytest.mark.slow
def test_counts_by_keys_equal_plain_counts_and_keep_their_types(con, session):
    dp.register(con, session)
    for keys, rows in (("region", 80), ("region, qty", 20), ("day", 10), ("moment", 10), ("tiny", 50)):
        table = "typed" if keys in ("moment", "tiny") else "visits"
        plain = con.sql(f"SELECT {keys}, count(*)::BIGINT AS count FROM {table} GROUP BY ALL ORDER BY ALL NULLS FIRST")
        options = f"by := '{keys}', epsilon := {HUGE}, max_rows_per_group := {rows}"
        found = con.sql(f"FROM dp.dp_count('{table}', {options}) ORDER BY ALL NULLS FIRST")
        assert found.columns == plain.columns
        assert [str(kind) for kind in found.types] == [str(kind) for kind in plain.types]
        shown = found.fetchall()
        assert set(shown) <= set(plain.fetchall())  # a small group may be held back
        assert shown
    listed = con.sql(f"FROM dp.dp_count('visits', by := ['region', 'qty'], epsilon := {HUGE})").fetchall()
    assert listed == con.sql(f"FROM dp.dp_count('visits', by := 'region, qty', epsilon := {HUGE})").fetchall()


@pytest.mark.slow
def test_every_function_and_its_options(con, session):
    dp.register(con, session)
    north = VISITS.filter(region="north")
    assert con.sql(
        f"FROM dp.dp_count('visits', \"where\" := 'region = ''north'' AND qty > 3', epsilon := {HUGE})"
    ).fetchall() == [(north.filter(pl.col("qty") > 3).height,)]
    assert con.sql(
        f"FROM dp.dp_count_units('visits', by := 'region', keys := ['north', 'x'], epsilon := {HUGE})"
    ).fetchall() == [("north", north["user_id"].n_unique()), ("x", 0)]
    ((total,),) = con.sql(f"FROM dp.dp_sum('visits', 'qty * 2', -10, 20, epsilon := {HUGE})").fetchall()
    assert total == pytest.approx(VISITS["qty"].sum() * 2, abs=5)
    ((mean,),) = con.sql(f"FROM dp.dp_mean('visits', 'price', 0, 100, epsilon := {HUGE})").fetchall()
    assert mean == pytest.approx(VISITS["price"].clip(0, 100).mean(), abs=0.1)
    both = con.sql(
        "FROM dp.dp_count('visits', by := 'region, day', epsilon := 100000, "
        "keys := [{'region': 'north', 'day': DATE '2024-01-05'}])"
    ).fetchall()
    assert len(both) == 1
    assert both[0][0] == "north"


@pytest.mark.slow
def test_both_doors_have_the_same_names(con, session):
    """Statements and `dp.register` have the same list, except for functions about other aggregates of a SELECT."""
    dp.register(con, session)
    macros = con.sql(
        "SELECT DISTINCT function_name FROM duckdb_functions() "
        "WHERE database_name = 'dp' AND function_type = 'table_macro'"
    ).fetchall()
    registered = {name for (name,) in macros} - {"dp_estimate_frequencies"}  # post-processing, no question
    assert registered == set(PRIVATE) - set(CUTS)
    guarded = dp.connect(con, session)
    for name in ("dp_variance", "dp_var"):
        ((found,),) = con.sql(f"FROM dp.{name}('visits', 'price', 0, 100, epsilon := {HUGE})").fetchall()
        ((other,),) = guarded.sql(f"SELECT {name}(price, 0, 100, epsilon := {HUGE}) FROM visits").fetchall()
        exact = VISITS["price"].clip(0, 100).var()
        assert found == pytest.approx(exact, rel=0.05)
        assert other == pytest.approx(exact, rel=0.05)


@pytest.mark.slow
def test_it_is_called_often_and_charged_once(con, session):
    dp.register(con, session)
    relation = con.sql("FROM dp.dp_count('visits', by := 'region', epsilon := 1000)")
    first = relation.fetchall()
    repr(relation)
    assert relation.fetchall() == first
    asked = "dp.dp_count('visits', by := 'region', epsilon := 1000)"
    differences = con.sql(f"SELECT a.count - b.count FROM {asked} a JOIN {asked} b USING (region)").fetchall()
    assert differences == [(0,)] * 3
    start = time.process_time()
    con.sql(
        "SELECT sum((SELECT max(count) FROM dp.dp_count('visits', by := 'region', epsilon := 1000) WHERE count < i)) "
        "FROM range(50000) t(i)"
    ).fetchall()
    assert time.process_time() - start < 15  # it was minutes when each call asked anew
    assert len(session.releases) == 1


@pytest.mark.slow
def test_every_cursor_sees_them_and_the_file_keeps_nothing(con, session, tmp_path):
    dp.register(con, session)
    assert con.cursor().sql("FROM dp.dp_count('visits', epsilon := 1)").fetchall()
    con.close()
    again = duckdb.connect(str(tmp_path / "data.duckdb"))
    names = {row[0] for row in again.execute("SELECT function_name FROM duckdb_functions()").fetchall()}
    assert not any(name.startswith("dp_") for name in names)
    assert [row[0] for row in again.execute("SELECT table_name FROM duckdb_tables()").fetchall()] == ["typed", "visits"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("dp_count('visits', by := 'user_id', epsilon := 1)", "StatementNotAllowed: Grouping by user_id"),
        ("dp_count('visits')", "InvalidParameterError: This release needs a spend"),
        ("dp_count('hidden', epsilon := 1)", "Temporary tables"),
        ("dp_count('visits', \"where\" := 'qty > (SELECT max(qty) FROM visits)', epsilon := 1)", "subquery inside"),
        (
            "dp_count('visits', \"where\" := '1); DROP TABLE visits; --', epsilon := 1)",
            "can't parse|one statement at a time",
        ),
        ("dp_count('visits', \"where\" := 'true, qty', epsilon := 1)", "Expected a single expression"),
        ("dp_count('visits', \"where\" := 'random() < 0.5', epsilon := 1)", "random is not among"),
        ("dp_sum('visits', 'max(price)', 0, 1, epsilon := 1)", "max is not among"),
        ("dp_sum('visits', 'price', 5, 1, epsilon := 1)", "lower < upper"),
        ("dp_count('visits', epsilon := 2000000)", "BudgetExceeded|epsilon"),
        ("dp_count('visits', by := 'region, qty', keys := ['a'], epsilon := 1)", "list of structs"),
    ],
)
def test_refusals_keep_their_words_and_cost_nothing(con, session, call, message):
    con.execute("CREATE TEMP TABLE hidden AS FROM visits")
    dp.register(con, session)
    with pytest.raises(duckdb.Error, match=message):
        con.sql(f"FROM dp.{call}").fetchall()
    assert not session.releases
    assert con.sql("SELECT count(*) FROM visits").fetchall() == [(VISITS.height,)]


@pytest.mark.slow
def test_the_guard_behind_the_functions_declares_tables(con, session):
    guard = dp.register(con, session)
    con.execute("CREATE VIEW sales AS SELECT user_id AS customer, price FROM visits")
    with pytest.raises(duckdb.Error, match="is a view"):
        con.sql("FROM dp.dp_count('sales', epsilon := 1)").fetchall()
    guard.private("sales", unit={"user_id": "customer"})
    assert con.sql("FROM dp.dp_count('sales', epsilon := 1)").fetchall()


@pytest.mark.slow
def test_the_budget_is_a_value_and_a_second_registration_takes_over(con, session):
    dp.register(con, session)
    con.sql("FROM dp.dp_count('visits', epsilon := 1)").fetchall()
    used, left, releases = con.sql("SELECT b.used, b.remaining, b.releases FROM (SELECT dp_budget() AS b)").fetchall()[
        0
    ]
    assert releases == 1
    assert used + left == pytest.approx(1)
    other = dp.Session(epsilon=1, unit="user_id", max_rows_per_group=5)
    dp.register(con, other)
    con.sql("FROM dp.dp_count('visits', epsilon := 0.5)").fetchall()
    assert other.spent.epsilon == 0.5


@pytest.mark.slow
def test_randomized_response_is_right_as_often_as_it_says(con, session):
    """At epsilon ln 3, 3 of 5 responses are true: within 6 deviations in 20,000, except with probability 2e-9."""
    dp.register(con, session)
    (right,) = con.sql(
        "SELECT count(*) FILTER (dp_randomized_response(i % 2 = 0, 1.0986122886681098) = (i % 2 = 0)) "
        "FROM range(20000) t(i)"
    ).fetchall()[0]
    assert abs(right - 12_000) < 6 * (20_000 * 6 / 25) ** 0.5
    assert con.sql("SELECT dp_randomized_response(NULL, 500.0)").fetchall() == [(None,)]


@pytest.mark.slow
def test_intervals(con, session):
    dp.register(con, session)
    relation = con.sql("FROM dp.dp_count('visits', by := 'region', epsilon := 1000, confidence := 0.95)")
    assert relation.columns == ["region", "count", "count_low", "count_high"]
    rows = relation.fetchall()
    assert rows
    assert all(low < count < high for _, count, low, high in rows)
    mean = con.sql("FROM dp.dp_mean('visits', 'price', 0, 100, epsilon := 100, confidence := 0.9)")
    assert mean.columns == ["mean", "mean_low", "mean_high"]
    with pytest.raises(duckdb.Error, match=r"InvalidParameterError: .*interval"):
        con.sql("FROM dp.dp_median('visits', 'price', 0, 100, \"interval\" := 7, epsilon := 1)").fetchall()


@pytest.mark.slow
def test_names_of_keys_are_found_whatever_their_case(con, session):
    dp.register(con, session)
    found = con.sql(f"FROM dp.dp_count('visits', by := 'REGION', keys := ['north'], epsilon := {HUGE})")
    assert found.columns == ["region", "count"]
    assert found.fetchall() == [("north", VISITS.filter(region="north").height)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("by := 'nowhere', epsilon := 1", "nowhere is none of user_id, region"),
        ("by := 'nowhere', keys := [1], epsilon := 1", "nowhere is none of user_id, region"),
        ("by := 'qty', keys := ['x'], epsilon := 1", "keys can't be converted to the type of qty, which is BIGINT"),
        ("keys := ['x'], epsilon := 1", "nothing to group by"),
    ],
)
def test_keys_that_are_not_there_are_refused(con, session, words, message):
    dp.register(con, session)
    with pytest.raises(duckdb.Error, match=message):
        con.sql(f"FROM dp.dp_count('visits', {words})").fetchall()
    assert not session.releases
