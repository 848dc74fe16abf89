"""Private aggregates as functions on a user's own connection, which any tool that holds it can call."""

import time

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._sql import functions as sql_functions
from dp_polars._sql.allowed_functions import CUTS, PRIVATE
from tests.sql.registered import let_functions_charge
from tests.sql.test_accepted import HUGE, VISITS


@pytest.fixture
def con(tmp_path):
    return with_tables(duckdb.connect(str(tmp_path / "data.duckdb")))


def with_tables(raw):
    raw.register("given", VISITS.to_arrow())
    raw.execute("CREATE TABLE visits AS FROM given")
    raw.execute("CREATE TABLE typed AS SELECT user_id, qty::TINYINT AS tiny, day::TIMESTAMP AS moment FROM visits")
    return raw


@pytest.fixture(scope="module")
def shared():
    """A database with the functions, in which refusals change nothing: registering takes longer than they."""
    with duckdb.connect() as raw:
        with_tables(raw).execute("CREATE TEMP TABLE hidden AS FROM visits")
        sql_functions.register(raw, dp.Session(epsilon=1, unit="user_id", max_rows_per_group=1))
        yield raw


@pytest.fixture
def refusing(shared, session):
    """The same database, with the session of the test behind its functions."""
    let_functions_charge(shared, session)
    return shared


@pytest.mark.slow
def test_counts_by_keys_equal_plain_counts_and_keep_their_types(con, session):
    dp.register(con, session)
    for keys, rows in (("region", 80), ("region, qty", 20), ("day", 10), ("moment", 10), ("tiny", 50)):
        table = "typed" if keys in ("moment", "tiny") else "visits"
        plain = con.sql(f"SELECT {keys}, count(*)::BIGINT AS count FROM {table} GROUP BY ALL ORDER BY ALL NULLS FIRST")
        options = f"by := '{keys}', epsilon := {HUGE}, max_rows_per_group := {rows}"
        found = con.sql(f"FROM dp.count('{table}', {options}) ORDER BY ALL NULLS FIRST")
        assert found.columns == plain.columns
        assert [str(kind) for kind in found.types] == [str(kind) for kind in plain.types]
        shown = found.fetchall()
        assert set(shown) <= set(plain.fetchall())  # a small group may be held back
        assert shown
    listed = con.sql(f"FROM dp.count('visits', by := ['region', 'qty'], epsilon := {HUGE})").fetchall()
    assert listed == con.sql(f"FROM dp.count('visits', by := 'region, qty', epsilon := {HUGE})").fetchall()


@pytest.mark.slow
def test_every_function_and_its_options(con, session):
    dp.register(con, session)
    north = VISITS.filter(region="north")
    assert con.sql(
        f"FROM dp.count('visits', \"where\" := 'region = ''north'' AND qty > 3', epsilon := {HUGE})"
    ).fetchall() == [(north.filter(pl.col("qty") > 3).height,)]
    assert con.sql(
        f"FROM dp.count_units('visits', by := 'region', keys := ['north', 'x'], epsilon := {HUGE})"
    ).fetchall() == [("north", north["user_id"].n_unique()), ("x", 0)]
    ((total,),) = con.sql(f"FROM dp.sum('visits', 'qty * 2', -10, 20, epsilon := {HUGE})").fetchall()
    assert total == pytest.approx(VISITS["qty"].sum() * 2, abs=5)
    ((mean,),) = con.sql(f"FROM dp.mean('visits', 'price', 0, 100, epsilon := {HUGE})").fetchall()
    assert mean == pytest.approx(VISITS["price"].clip(0, 100).mean(), abs=0.1)
    both = con.sql(
        "FROM dp.count('visits', by := 'region, day', epsilon := 100000, "
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
    registered = {name for (name,) in macros} - {"estimate_frequencies"}  # post-processing, no question
    assert registered == {name.removeprefix("dp_") for name in PRIVATE - set(CUTS)}
    guarded = dp.connect(con, session)
    for name in ("variance", "var"):
        ((found,),) = con.sql(f"FROM dp.{name}('visits', 'price', 0, 100, epsilon := {HUGE})").fetchall()
        ((other,),) = guarded.sql(f"SELECT dp_{name}(price, 0, 100, epsilon := {HUGE}) FROM visits").fetchall()
        exact = VISITS["price"].clip(0, 100).var()
        assert found == pytest.approx(exact, rel=0.05)
        assert other == pytest.approx(exact, rel=0.05)


@pytest.mark.slow
def test_it_is_called_often_and_charged_once(con, session):
    dp.register(con, session)
    relation = con.sql("FROM dp.count('visits', by := 'region', epsilon := 1000)")
    first = relation.fetchall()
    repr(relation)
    assert relation.fetchall() == first
    asked = "dp.count('visits', by := 'region', epsilon := 1000)"
    differences = con.sql(f"SELECT a.count - b.count FROM {asked} a JOIN {asked} b USING (region)").fetchall()
    assert differences == [(0,)] * 3
    start = time.process_time()
    con.sql(
        "SELECT sum((SELECT max(count) FROM dp.count('visits', by := 'region', epsilon := 1000) WHERE count < i)) "
        "FROM range(50000) t(i)"
    ).fetchall()
    assert time.process_time() - start < 15  # it was minutes when each call asked anew
    assert len(session.releases) == 1


@pytest.mark.slow
def test_every_cursor_sees_them_and_the_file_keeps_nothing(con, session, tmp_path):
    dp.register(con, session)
    assert con.cursor().sql("FROM dp.count('visits', epsilon := 1)").fetchall()
    con.close()
    again = duckdb.connect(str(tmp_path / "data.duckdb"))
    names = {row[0] for row in again.execute("SELECT function_name FROM duckdb_functions()").fetchall()}
    assert not any(name.startswith("dp_") for name in names)
    assert [row[0] for row in again.execute("SELECT table_name FROM duckdb_tables()").fetchall()] == ["typed", "visits"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("count('visits', by := 'user_id', epsilon := 1)", "StatementNotAllowed: Grouping by user_id"),
        ("count('visits')", "InvalidParameterError: This release needs a spend"),
        ("count('hidden', epsilon := 1)", "Temporary tables"),
        ("count('visits', \"where\" := 'qty > (SELECT max(qty) FROM visits)', epsilon := 1)", "subquery inside"),
        (
            "count('visits', \"where\" := '1); DROP TABLE visits; --', epsilon := 1)",
            "can't parse|one statement at a time",
        ),
        ("count('visits', \"where\" := 'true, qty', epsilon := 1)", "Expected a single expression"),
        ("count('visits', \"where\" := 'random() < 0.5', epsilon := 1)", "random is not among"),
        ("sum('visits', 'max(price)', 0, 1, epsilon := 1)", "max is not among"),
        ("sum('visits', 'price', 5, 1, epsilon := 1)", "lower < upper"),
        ("count('visits', epsilon := 2000000)", "BudgetExceeded|epsilon"),
        ("count('visits', by := 'region, qty', keys := ['a'], epsilon := 1)", "list of structs"),
    ],
)
def test_refusals_keep_their_words_and_cost_nothing(refusing, session, call, message):
    with pytest.raises(duckdb.Error, match=message):
        refusing.sql(f"FROM dp.{call}").fetchall()
    assert not session.releases
    assert refusing.sql("SELECT count(*) FROM visits").fetchall() == [(VISITS.height,)]


@pytest.mark.slow
def test_keys_are_expressions_with_the_types_of_duckdb(con, session):
    dp.register(con, session)
    keys = "month(day) AS month, upper(region) AS R, floor(price / 50) * 50 AS bin"
    plain = con.sql(f"SELECT {keys}, count(*)::BIGINT AS count FROM visits GROUP BY ALL")
    words = f"epsilon := {HUGE}, max_groups := 100, max_rows_per_group := 100"
    found = con.sql(f"FROM dp.count('visits', by := '{keys}', {words})")
    assert (found.columns, list(map(str, found.types))) == (plain.columns, list(map(str, plain.types)))
    shown = found.fetchall()
    assert shown
    assert set(shown) <= set(plain.fetchall())  # a small group may be held back
    listed = con.sql(f"FROM dp.count('visits', by := ['month(day) AS month'], keys := [1, 13], {words})").fetchall()
    assert dict(listed)[13] == 0
    assert dict(listed)[1] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "plain"),
    [
        ("(SELECT user_id, region FROM visits WHERE qty > 3)", "SELECT count(*) FROM visits WHERE qty > 3"),
        ("(SELECT user_id, count(*) AS n FROM visits GROUP BY user_id)", "SELECT count(DISTINCT user_id) FROM visits"),
        ("visits v JOIN names USING (region)", "SELECT count(*) FROM visits JOIN names USING (region)"),
        ("visits -- and a remark", "SELECT count(*) FROM visits"),
    ],
)
def test_a_source_is_what_may_stand_behind_from(con, session, source, plain):
    con.execute("CREATE TABLE names AS SELECT 'north' AS region")
    dp.register(con, session).public("names")
    words = f"epsilon := {HUGE}, max_rows_per_group := 100"
    assert con.sql(f"FROM dp.count('{source}', {words})").fetchall() == con.sql(plain).fetchall()


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "(SELECT 1 AS user_id FROM visits)",
        "(SELECT user_id, sum(qty) OVER () AS s FROM visits)",
        "(FROM visits LIMIT 5)",
    ],
)
def test_a_source_that_mixes_people_is_refused(refusing, session, source):
    with pytest.raises(duckdb.Error, match="StatementNotAllowed"):
        refusing.sql(f"FROM dp.count('{source}', epsilon := 1)").fetchall()
    assert not session.releases


@pytest.mark.slow
def test_a_view_is_read_like_a_subquery_and_needs_no_word_of_the_owner(con, session):
    guard = dp.register(con, session)
    con.execute("CREATE VIEW sales AS SELECT user_id, price FROM visits WHERE qty > 3")
    con.execute("CREATE VIEW best AS SELECT * FROM sales WHERE price > 10")
    con.execute("CREATE VIEW mixed AS SELECT user_id, price - avg(price) OVER () AS gap FROM visits")
    con.execute("CREATE VIEW named(user_id, cost) AS SELECT user_id, price FROM visits")
    for name in ("sales", "best"):
        words = f"epsilon := {HUGE}, max_rows_per_group := 100"
        assert (
            con.sql(f"FROM dp.count('{name}', {words})").fetchall()
            == con.sql(f"SELECT count(*) FROM {name}").fetchall()
        )
    for name in ("mixed", "named"):
        with pytest.raises(duckdb.Error, match="is a view, and"):
            con.sql(f"FROM dp.count('{name}', epsilon := 1)").fetchall()
        guard.private(name, unit="user_id")
        assert con.sql(f"FROM dp.count('{name}', epsilon := 1)").fetchall()


@pytest.mark.slow
def test_views_that_select_from_each_other_are_refused(con, session):
    con.execute("CREATE VIEW one AS SELECT * FROM visits")
    con.execute("CREATE VIEW two AS SELECT * FROM one")
    con.execute("CREATE OR REPLACE VIEW one AS SELECT user_id FROM visits")
    guard = dp.connect(con, session)
    catalog_of = guard._catalog
    guard._catalog = lambda parameters=None: _with_texts(
        catalog_of(parameters), {"one": "CREATE VIEW one AS SELECT * FROM two;"}
    )
    with pytest.raises(dp.StatementNotAllowed, match="selects from itself"):
        guard.sql("SELECT dp_count(*, epsilon := 1) FROM two")


def _with_texts(catalog, texts):
    """Return a catalog in which some views have other texts, as if they had changed since DuckDB checked them."""
    run = catalog._run

    def changed(*statements):
        found = run(*statements)
        if "view_name, sql FROM" in statements[0]:
            return [[(*row[:-1], texts.get(row[2], row[-1])) for row in found[0]]]
        return found

    catalog._run = changed
    return catalog


@pytest.mark.slow
def test_a_database_that_may_only_be_read(con, session, tmp_path):
    con.close()
    reading = duckdb.connect(str(tmp_path / "data.duckdb"), read_only=True)
    dp.register(reading, session)
    words = f"epsilon := {HUGE}, max_rows_per_group := 100"
    assert reading.sql(f"FROM dp.count('visits', {words})").fetchall() == [(VISITS.height,)]
    assert reading.sql("SELECT dp.budget().releases").fetchall() == [(1,)]
    reading.close()


@pytest.mark.slow
@pytest.mark.parametrize("taken", ["CREATE SCHEMA dp", "ATTACH '{folder}/other.duckdb' AS dp"])
def test_a_connection_on_which_dp_means_something_else_is_refused(con, session, tmp_path, taken):
    con.execute(taken.format(folder=tmp_path))
    with pytest.raises(dp.InvalidParameterError, match="database or a schema of that name"):
        dp.register(con, session)


@pytest.mark.slow
def test_the_budget_is_a_value_and_a_second_registration_takes_over(con, session):
    dp.register(con, session)
    con.sql("FROM dp.count('visits', epsilon := 1)").fetchall()
    used, left, releases = con.sql("SELECT b.used, b.remaining, b.releases FROM (SELECT dp.budget() AS b)").fetchall()[
        0
    ]
    assert releases == 1
    assert used + left == pytest.approx(1)
    other = dp.Session(epsilon=1, unit="user_id", max_rows_per_group=5)
    dp.register(con, other)
    con.sql("FROM dp.count('visits', epsilon := 0.5)").fetchall()
    assert other.spent.epsilon == 0.5


@pytest.mark.slow
def test_randomized_response_is_right_as_often_as_it_says(con, session):
    """At epsilon ln 3, 3 of 5 responses are true: within 6 deviations in 20,000, except with probability 2e-9."""
    dp.register(con, session)
    (right,) = con.sql(
        "SELECT count(*) FILTER (dp.randomized_response(i % 2 = 0, 1.0986122886681098) = (i % 2 = 0)) "
        "FROM range(20000) t(i)"
    ).fetchall()[0]
    assert abs(right - 12_000) < 6 * (20_000 * 6 / 25) ** 0.5
    assert con.sql("SELECT dp.randomized_response(NULL, 500.0)").fetchall() == [(None,)]


@pytest.mark.slow
def test_intervals(con, session):
    dp.register(con, session)
    relation = con.sql("FROM dp.count('visits', by := 'region', epsilon := 1000, confidence := 0.95)")
    assert relation.columns == ["region", "count", "count_low", "count_high"]
    rows = relation.fetchall()
    assert rows
    assert all(low < count < high for _, count, low, high in rows)
    mean = con.sql("FROM dp.mean('visits', 'price', 0, 100, epsilon := 100, confidence := 0.9)")
    assert mean.columns == ["mean", "mean_low", "mean_high"]
    with pytest.raises(duckdb.Error, match=r"InvalidParameterError: .*interval"):
        con.sql("FROM dp.median('visits', 'price', 0, 100, \"interval\" := 7, epsilon := 1)").fetchall()


@pytest.mark.slow
def test_names_of_keys_are_found_whatever_their_case(con, session):
    dp.register(con, session)
    found = con.sql(f"FROM dp.count('visits', by := 'REGION', keys := ['north'], epsilon := {HUGE})")
    assert found.columns == ["region", "count"]
    assert found.fetchall() == [("north", VISITS.filter(region="north").height)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("by := 'nowhere', epsilon := 1", "nowhere"),
        ("by := 'nowhere', keys := [1], epsilon := 1", "nowhere"),
        ("by := '*', epsilon := 1", "must list columns"),
        ("by := '1', epsilon := 1", "must list columns"),
        ("by := 'region, REGION', epsilon := 1", "two columns REGION"),
        ("by := 'month(day)', epsilon := 1", "month\\(day\\) AS month"),
        ("by := 'region FROM visits --', epsilon := 1", "and nothing else|syntax error"),
        ("by := 'region AS count', epsilon := 1", "name of an answer column"),
        ("by := 'qty', keys := ['x'], epsilon := 1", "keys can't be converted to the type of qty, which is BIGINT"),
        ("keys := ['x'], epsilon := 1", "nothing to group by"),
    ],
)
def test_keys_that_are_not_there_are_refused(refusing, session, words, message):
    with pytest.raises(duckdb.Error, match=message):
        refusing.sql(f"FROM dp.count('visits', {words})").fetchall()
    assert not session.releases
