"""Attacks on guarded connections, and the errors that stop them."""

import threading

import duckdb
import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._sql.catalog import Catalog
from tests.sql.test_accepted import VISITS


@pytest.fixture
def raw():
    raw = duckdb.connect()
    raw.register("given", VISITS.to_arrow())
    raw.execute("CREATE TABLE visits AS FROM given")
    raw.execute("CREATE TABLE lookup AS SELECT * FROM (VALUES ('north', 1), ('south', 2)) t(region, zone)")
    raw.execute("CREATE TABLE texts AS SELECT '1' AS qty")
    return raw


@pytest.fixture
def session():
    return dp.Session(epsilon=1, delta=1e-6, unit="user_id", max_groups=3, max_rows_per_group=5)


@pytest.fixture
def con(raw, session):
    return dp.connect(raw, session).public("lookup", "texts")


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT (SELECT max(price) FROM visits) >= ANY (SELECT 10) AS x",
        "SELECT (SELECT price FROM visits) IN (SELECT 10) AS x",
        "SELECT zone FROM lookup WHERE (SELECT (SELECT max(qty) FROM visits) = zone) IN (SELECT true)",
        "SELECT (SELECT content FROM read_text('/etc/hostname')) IN (SELECT 'x') AS x",
        "SELECT (SELECT getvariable('a')) IN (SELECT 'x') AS x",
        "SELECT dp_count(*, epsilon := 0.1) AS n, (SELECT min(price) FROM visits) IN (SELECT 1) AS x FROM visits",
        "SELECT zone FROM lookup ORDER BY (SELECT max(price) FROM visits) IN (SELECT 1)",
        "SELECT CASE WHEN true THEN (SELECT max(price) FROM visits) IN (SELECT 1) END AS x",
    ],
)
def test_the_left_side_of_a_subquery_is_read_too(con, session, statement):
    with pytest.raises(dp.DPError):
        con.sql(statement)
    assert not session.releases


def test_names_of_parameters_are_names(con, session):
    name = "a, (SELECT list(price)[1:3] FROM visits) AS leak --"
    query = f'SELECT $a AS a, $"{name}" AS b, \'\n, $"{name}" AS q --\' AS c'
    with pytest.raises(dp.DPError, match="name of a parameter"):
        con.sql(query, params={"a": 1, name: 2})
    with pytest.raises(dp.DPError, match=r"name of a parameter|No value|changing its meaning"):
        con.sql(query, params={"a": 1})
    assert not session.releases


def test_no_macro_is_called_by_any_name(raw, con):
    raw.execute("CREATE MACRO twice(a) AS a * 2")
    raw.execute("CREATE SCHEMA other")
    raw.execute("CREATE MACRO other.twice(a) AS (SELECT max(price) FROM visits)")
    for call in ("other.twice(1)", "twice(1)", "main.twice(1)", "memory.main.twice(1)"):
        with pytest.raises(dp.DPError, match=r"qualified|not among"):
            con.sql(f"SELECT {call} AS x")


@pytest.mark.slow
def test_built_in_functions_are_the_built_in_ones_whatever_macros_there_are(raw, con):
    for macro in ("lower(x)", "sum(x)", '"+"(a, b)', '"||"(a, b)', "count_star()", "least(a, b)"):
        raw.execute(f"CREATE MACRO {macro} AS (SELECT max(price) FROM visits)")
    raw.execute("CREATE MACRO range(n) AS TABLE (SELECT price AS range FROM visits)")
    assert con.sql("SELECT lower('A') || 'b' AS x, sum(zone) + 1 AS s FROM lookup").fetchall() == [("ab", 4)]
    assert con.sql("SELECT * FROM range(3)").fetchall() == [(0,), (1,), (2,)]
    plan = con.preview(
        "SELECT lower(region) AS r, dp_count(*, epsilon := 0.1) AS n FROM visits WHERE qty + 1 > 2 GROUP BY r"
    )
    assert plan.cost.epsilon
    assert con.sql("SELECT dp_sum(qty + 1, 0, 9, epsilon := 0.1) AS s FROM visits").fetchall()


def test_a_function_of_the_users_is_not_called(raw, con):
    raw.create_function("shout", lambda x: "x", ["VARCHAR"], "VARCHAR")
    with pytest.raises(dp.DPError, match="shout is not among"):
        con.sql("SELECT shout(region) AS x, dp_count(*, epsilon := 0.1) AS n FROM visits GROUP BY x")
    with pytest.raises(duckdb.Error, match="already exists"):  # DuckDB itself keeps built-in names
        raw.create_function("upper", lambda x: "x", ["VARCHAR"], "VARCHAR")


def test_the_guard_has_no_public_way_to_raw_rows(con):
    shown = {name for name in dir(con) if not name.startswith("_")}
    assert shown == {
        "arrow", "close", "commit", "cursor", "description", "df", "execute", "fetchall", "fetchmany", "fetchone",
        "notes", "pl", "preview", "private", "public", "register", "rollback", "rowcount", "sql",
    }  # fmt: skip


def test_registering_over_a_public_name_makes_it_private(con):
    con.register("lookup", VISITS)
    with pytest.raises(dp.StatementNotAllowed, match="private rows"):
        con.sql("SELECT * FROM lookup")
    with pytest.raises(dp.DPError):
        con.public("lookup; DROP TABLE visits")


def test_results_hold_nothing_but_themselves(con, tmp_path):
    result = con.sql("SELECT dp_count(*, epsilon := 0.1) AS n FROM visits")
    for text in ("SELECT * FROM visits", f"COPY (SELECT 1) TO '{tmp_path}/out.csv'", "FROM VISITS"):
        with pytest.raises(duckdb.Error):
            result.query("r", text).fetchall()


@pytest.mark.slow
@pytest.mark.parametrize("join", ["USING (qty)", "ON visits.qty = texts.qty"])
def test_joins_compare_equal_types(con, join):
    with pytest.raises(dp.StatementNotAllowed, match="cast one"):
        con.sql(f"SELECT dp_count(*, epsilon := 0.1) AS n FROM visits JOIN texts {join}")


def test_parts_of_columns_are_not_compared_in_joins(raw, con):
    raw.execute("CREATE TABLE a AS SELECT 1 AS user_id, {'x': 'text', 'y': 1} AS s")
    raw.execute("CREATE TABLE b AS SELECT {'x': 'text', 'y': 1} AS s")
    con.public("b")
    with pytest.raises(dp.StatementNotAllowed, match="not parts of them"):
        con.sql("SELECT dp_count(*, epsilon := 0.1) AS n FROM a JOIN b ON a.s.x = b.s.y")


@pytest.mark.slow
def test_different_questions_are_not_taken_for_one(con, session):
    one = "SELECT dp_sum(a, 0, 9, epsilon := 0.1) AS s FROM (SELECT qty AS a, qty + 1 AS b FROM visits) q"
    con.sql(one)
    con.sql(one.replace("qty AS a, qty + 1 AS b", "qty AS b, qty + 1 AS a"))
    assert len(session.releases) == 2
    con.sql("SELECT dp_count(*, epsilon := 0.01) AS a, dp_count(*, share := 0.01) AS b FROM visits")
    assert len(session.releases) == 4


def test_parameters_are_plain_values(con):
    with pytest.raises(dp.InvalidParameterError, match="ndarray"):
        con.sql("SELECT dp_count(*, epsilon := 0.1) AS n FROM visits WHERE qty = ANY($x)", params={"x": np.arange(9)})


def test_intervals_are_refused_before_the_charge(con, session):
    for call in ("dp_count_distinct(to_days(qty::INT))", "dp_sum(INTERVAL 1 DAY, 0, 1)", "dp_count(to_days(qty::INT))"):
        with pytest.raises(dp.StatementNotAllowed, match="INTERVAL"):
            con.sql(f"SELECT {call} AS n FROM visits", epsilon=0.1)
    assert not session.releases


# ---------------------------------------------------------------- names, memory and functions


def test_a_name_means_one_table_only(raw, con):
    """A registered frame is not the table of the same name in a schema, and has no other name."""
    con.public("main.lookup")
    con.register("lookup", VISITS)
    assert con.sql("SELECT * FROM main.lookup").columns == ["region", "zone"]
    with pytest.raises(dp.StatementNotAllowed, match="private rows"):
        con.sql("SELECT * FROM lookup")
    with pytest.raises(dp.StatementNotAllowed, match="no table"):
        con.sql("SELECT * FROM temp.main.lookup")


def test_letters_are_told_apart_as_duckdb_does(raw, con):
    raw.execute('CREATE TABLE "É" AS SELECT 1 AS user_id, 777 AS secret')
    raw.execute('CREATE TABLE "é" AS SELECT 0 AS a')
    con.public('"é"')
    assert con.sql('SELECT * FROM "é"').fetchall() == [(0,)]
    with pytest.raises(dp.DPError):
        con.sql('SELECT * FROM "É"')


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["lookup WHERE true", "lookup HAVING false", "lookup SELECT zone", "lookup l", "a, b", "(FROM a)"]
)
def test_the_name_of_a_table_is_nothing_else(con, name):
    with pytest.raises(dp.DPError):
        con.public(name)


@pytest.mark.slow
def test_parameters_of_any_name_and_place_mean_the_same_in_parts(con, session, monkeypatch):
    from dp_polars._sql import queries as sql_queries

    monkeypatch.setattr(sql_queries, "parts_for", lambda *_: 3)
    with pytest.warns(dp.DPWarning):
        paying = dp.Session(epsilon=10**6, unit="user_id", max_rows_per_group=100)
    guard = dp.connect(con._database.connection, paying)
    expected = [(VISITS.filter(VISITS["qty"] >= 2).height,)]
    for query, values in (
        ("?", [2]),
        ("$part", {"part": 2}),
        ("$salt", {"salt": 2}),
        ("$parts", {"parts": 2}),
    ):
        asked = f"SELECT dp_count(*, epsilon := 100000) AS n FROM visits WHERE qty >= {query}"
        assert guard.sql(asked, params=values).fetchall() == expected


def test_rows_as_units_are_counted_once_in_parts(raw, monkeypatch):
    from dp_polars._sql import queries as sql_queries

    monkeypatch.setattr(sql_queries, "parts_for", lambda *_: 3)
    with pytest.warns(dp.DPWarning):
        paying = dp.Session(epsilon=10**6, unit=dp.ROW)
    guard = dp.connect(raw, paying).public("lookup")
    asked = "SELECT region, dp_sum(qty, -5, 10, epsilon := 100000, keys := ['north', 'south']) AS s FROM visits "
    found = guard.sql(asked + "SEMI JOIN lookup USING (region) GROUP BY region").fetchall()
    assert found == [(key, VISITS.filter(region=key)["qty"].clip(-5, 10).sum()) for key in ("north", "south")]


@pytest.mark.slow
def test_a_column_of_using_is_the_rows_own(raw, session):
    with pytest.warns(dp.DPWarning):
        paying = dp.Session(epsilon=10**6, delta=1e-6, unit="user_id", max_groups=20, max_rows_per_group=80)
    guard = dp.connect(raw, paying).public("lookup")
    asked = "SELECT region, {} AS n FROM lookup {} JOIN visits USING (region) {} GROUP BY region ORDER BY region"
    for kind in ("RIGHT", "FULL", ""):
        plain = raw.sql(asked.format("count(*)", kind, "WHERE user_id IS NOT NULL")).fetchall()
        assert guard.sql(asked.format("dp_count(*)", kind, ""), epsilon=10**5).fetchall() == plain


@pytest.mark.slow
def test_databases_in_memory_beside_a_file_are_different_sources(tmp_path, session):
    duckdb.connect(str(tmp_path / "x.duckdb")).close()
    for _ in range(2):
        raw = duckdb.connect()
        raw.execute(f"ATTACH '{tmp_path}/x.duckdb' AS x (READ_ONLY)")
        raw.execute("CREATE TABLE v AS SELECT i AS user_id FROM range(100) t(i)")
        dp.connect(raw, session).sql("SELECT dp_count_units(epsilon := 0.1) AS n FROM v")
    assert len(session.releases) == 2


@pytest.mark.slow
def test_a_declaration_makes_earlier_answers_of_functions_old(raw, session):
    raw.execute("CREATE TABLE homes AS SELECT i AS user_id, i % 5 AS house FROM range(100) t(i)")
    guard = dp.register(raw, session)
    raw.sql("FROM dp.count_units('homes', epsilon := 0.1)").fetchall()
    guard.private("homes", unit={"user_id": "house"}, weaker_unit=True)
    raw.sql("FROM dp.count_units('homes', epsilon := 0.1)").fetchall()
    assert len(session.releases) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("values", "message"), [("'sum'", "both a key and the name of an answer"), ("'blob'", "BLOB")])
def test_functions_refuse_keys_before_the_charge(raw, session, values, message):
    raw.execute("CREATE TABLE odd AS SELECT 1 AS user_id, 2 AS sum, 'x'::BLOB AS blob, 3 AS v")
    dp.register(raw, session)
    with pytest.raises(duckdb.Error, match=message):
        raw.sql(f"FROM dp.sum('odd', 'v', 0, 1, by := {values}, epsilon := 0.1)").fetchall()
    assert not session.releases


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["STRUCT(a INTEGER)", "INTEGER[]", "UNION(a INTEGER)", "MAP(INTEGER, INTEGER)"])
def test_units_of_odd_types_are_refused(raw, session, kind):
    raw.execute(f"CREATE TABLE odd (user_id {kind})")
    with pytest.raises(dp.DPError):
        dp.connect(raw, session).sql("SELECT dp_count(*, epsilon := 0.1) AS n FROM odd")
    assert not session.releases


def test_a_time_that_no_clock_shows_is_null_and_nothing_else_happens(raw):
    raw.execute("CREATE TABLE clock AS SELECT unnest(['00:00'::TIME, '24:00'::TIME, '12:00'::TIME]) AS hour")
    raw.execute("ALTER TABLE clock ADD COLUMN user_id INTEGER DEFAULT 1")
    with pytest.warns(dp.DPWarning):
        paying = dp.Session(epsilon=10**6, unit="user_id", max_rows_per_group=5)
    guard = dp.connect(raw, paying)
    assert guard.sql("SELECT dp_count(hour, epsilon := 100000) AS n FROM clock").fetchall() == [(2,)]
    assert guard.sql("SELECT dp_count(epsilon := 100000) AS n FROM clock WHERE hour IS NULL").fetchall() == [(1,)]


@pytest.mark.slow
def test_texts_do_not_grow_without_bounds(session):
    """TRY can't catch memory that runs out over one person's text, so texts that grow are cut."""
    frame = pl.DataFrame({"user_id": range(200), "s": ["a", ""] * 100})
    con = dp.connect(None, session)
    con.register("growing", frame)
    grown = "s"
    for _ in range(6):
        grown = f"replace({grown}, 'a', '{'a' * 100}')"
    assert len(con.sql(f"SELECT dp_count(*, epsilon := 0.1) FROM growing WHERE length({grown}) > 5").fetchall()) == 1
    levels = "WITH l0 AS (SELECT user_id, s FROM growing)"
    for level in range(8):
        levels += f", l{level + 1} AS (SELECT user_id, s || s || s || s AS s FROM l{level})"
    query = f"{levels} SELECT dp_count(*, epsilon := 0.1) FROM l8 WHERE length(s) > 5"
    assert len(con.sql(query).fetchall()) == 1
    with pytest.raises(dp.StatementNotAllowed, match="up to 100 characters"):
        con.sql(f"SELECT dp_count(*, epsilon := 0.1) FROM growing WHERE replace(s, 'a', '{'b' * 1000}') = ''")
    with pytest.raises(dp.StatementNotAllowed, match="grow"):
        con.sql("SELECT dp_count(*, epsilon := 0.1) FROM growing WHERE len([s, s]) > 1")


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        "dp_count(*, epsilon := -'a')",
        "dp_count(*, epsilon := CAST('a' AS DOUBLE))",
        "dp_count(*, epsilon := 'a'::nosuch)",
        "dp_sum(qty, 0, INTERVAL '99999999 years', epsilon := 0.1)",
        "dp_sum(qty, 0, TIMESTAMPTZ '2020-01-01 00:00:00+00', epsilon := 0.1)",
        "dp_quantile(qty, NULL, 0, 9, epsilon := 0.1)",
        "dp_quantile(qty, DATE '2020-01-01', 0, 9, epsilon := 0.1)",
        "dp_histogram(qty, edges := 5, epsilon := 0.1)",
        "dp_corr(qty, price, bounds := 1, epsilon := 0.1)",
    ],
)
def test_options_that_mean_nothing_are_refused_in_the_librarys_words(con, session, call):
    with pytest.raises(dp.DPError):
        con.sql(f"SELECT {call} AS x FROM visits")
    assert not session.releases


@pytest.mark.slow
@pytest.mark.parametrize("keys", ["[{'a': 1}]", "[['north']]", "[('north', 1, 2)]", "[{'a': {'b': 1}}]"])
@pytest.mark.parametrize("by", ["region", "region, qty"])
def test_keys_of_another_shape_are_refused_before_a_row_is_read(con, session, keys, by):
    with pytest.raises(dp.DPError, match="keys"):
        con.sql(f"SELECT {by}, dp_count(*, epsilon := 0.1, keys := {keys}) AS n FROM visits GROUP BY {by}")
    assert not session.releases
    assert not session.closed


def test_bounds_may_have_a_time_zone(raw, session):
    moment = "TIMESTAMPTZ '2024-01-01 00:00:00+00'"
    raw.execute(f"CREATE TABLE moments AS SELECT i AS user_id, {moment} AS moment FROM range(9) t(i)")
    bounds = "TIMESTAMPTZ '2020-01-01 00:00:00+00', TIMESTAMPTZ '2025-01-01 00:00:00+00'"
    con = dp.connect(raw, session)
    assert con.preview(f"SELECT dp_median(moment, {bounds}, epsilon := 0.1) AS m FROM moments").cost.epsilon


def test_a_decimal_column_is_joined_with_public_integers():
    """A wide decimal holds more integers than 64 bits, so the range of keys that may match is wider than that."""
    rows = pl.DataFrame({"user": range(200), "d": pl.Series(["1", "2.5"] * 100).cast(pl.Decimal(38, 4))})
    con = dp.connect(None, dp.Session(epsilon=10.0, unit="user", max_rows_per_group=1))
    con.register("v", rows).register("keys", pl.DataFrame({"k": [1, 2**63 - 1]})).public("keys")
    found = con.sql("SELECT dp_count(*, epsilon := 5) FROM v JOIN keys ON v.d = keys.k").fetchall()
    assert abs(found[0][0] - 100) < 20  # noise of scale 0.2: beyond that with probability e**-100


def test_a_constant_that_is_nested_too_deeply_is_refused_by_us():
    con = dp.connect(None, dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1))
    con.register("v", pl.DataFrame({"user": [1], "i": [1]}))
    with pytest.raises(dp.StatementNotAllowed, match="nested too deeply"):
        con.sql("SELECT dp_count(*, epsilon := 0.5) FROM v WHERE i = " + "[" * 90 + "1" + "]" * 90)


@pytest.mark.slow
def test_every_thread_with_a_cursor_of_its_own_gets_its_answer():
    """DuckDB refuses a connection that is busy: an answer that was paid for would be lost."""
    con = dp.connect(None, dp.Session(epsilon=10.0, unit="user", max_rows_per_group=1))
    con.register("v", pl.DataFrame({"user": [1, 2]}))
    barrier, answers = threading.Barrier(8), []

    def ask():
        cursor = con.cursor()
        barrier.wait()
        answers.append(cursor.sql("SELECT dp_count(*, epsilon := 0.1) FROM v").fetchall())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8


def test_only_tables_of_duckdb_itself_are_narrowed_by_its_statistics(monkeypatch):
    """Statistics of other formats leave NaN out: whether NaN is above 5 would depend on the other rows of a group."""
    raw = duckdb.connect()
    raw.execute("CREATE TABLE t AS SELECT 1 AS user_id, 2.0::DOUBLE AS x")
    guard, session = dp.connect(raw, dp.Session(epsilon=1.0, unit="user_id")), dp.Session(epsilon=1.0, unit="user_id")
    known = Catalog(guard._database, session)
    assert known.table(("t",)).key in known._stored
    run = Catalog._run

    def without_databases(self, *texts):
        found = run(self, *texts)
        return [[] if "duckdb_databases" in sql else rows for sql, rows in zip(texts, found, strict=True)]

    monkeypatch.setattr(Catalog, "_run", without_databases)
    foreign = Catalog(guard._database, session)
    assert foreign.table(("t",)).key not in foreign._stored
    assert foreign.rows(foreign.table(("t",))).source.narrowed is None
    assert known.rows(known.table(("t",))).source.narrowed is not None
