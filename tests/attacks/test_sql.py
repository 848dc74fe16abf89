"""Attacks that once broke the guarantee through SQL, each as a test of what an observer sees.

Most attacks made a statement fail, or grow, or crash, if and only if a chosen person had a chosen value: `THERE` holds
for one row of user 7, `GONE` for no row. An observer must see the same kind of outcome for both. The others reached
private rows through another name of a table, a macro of the database, or the text of an error.
"""

from pathlib import Path

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from tests.attacks.children import Outcome, run

THERE, GONE = "user_id = 7 AND price > 777014", "user_id = 7 AND price > 777016"

pytestmark = pytest.mark.filterwarnings("ignore::dp_polars.errors.DPWarning")


def database():
    raw = duckdb.connect()
    raw.execute(
        "CREATE TABLE visits AS SELECT i // 2 AS user_id, ['north', 'south', 'east'][1 + i % 3] AS region, "
        "777000.125 + i AS price, i % 10 AS qty, 'CANARY' || i AS s, {'a': i, 'b': 'CAN' || i} AS st, [i, i + 1] AS li "
        "FROM range(400) t(i)"
    )
    raw.execute("CREATE TABLE lookup AS SELECT * FROM (VALUES ('north', 1), ('south', 2)) t(region, zone)")
    return raw


def session(**words):
    return dp.Session(
        **{"epsilon": 1, "delta": 1e-6, "unit": "user_id", "max_groups": 3, "max_rows_per_group": 1, **words}
    )


def outcome(con, query, **words):
    """Return everything that an observer sees of a statement, except its noisy numbers."""
    try:
        answer = con.sql(query, **{"epsilon": 1e-3, **words})
    except dp.DPError as error:
        return type(error), "quotes a value" if "CANARY" in str(error) or "777" in str(error) else str(error)
    return "answered", answer.columns, [str(kind) for kind in answer.types], len(answer.fetchall())


def same(query, **words):
    """Return the outcome with and without the chosen value, which must be the same, on connections that stay open."""
    raw = database()
    con = dp.connect(raw, session()).public("lookup")
    outcomes = [outcome(con, query.format(value=value), **words) for value in (THERE, GONE)]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1] != "quotes a value"
    assert not con._session.closed
    assert raw.execute("SELECT count(*) FROM visits").fetchall() == [(400,)]  # the database lives
    return outcomes[0][0]


# ---------------------------------------------------------------------- failures that depend on one person's value

CASTS = "(SELECT user_id, CASE WHEN {value} THEN 'x' ELSE '1' END AS s FROM visits)"


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [
        f"SELECT dp_sum(CAST(s AS INT) + 1, 0, 1) AS a, dp_sum(CAST(s AS INT) + 2, 0, 1) AS b FROM {CASTS}",
        f"SELECT dp_avg(CAST(s AS DOUBLE) * CAST(s AS DOUBLE), 0, 1) AS a FROM {CASTS}",
        f"SELECT dp_count(*) AS n FROM {CASTS} WHERE CAST(s AS INT) IN (1, 2, 3)",
        f"SELECT dp_count(*) AS n FROM {CASTS} WHERE CAST(s AS INT) = 1 OR CAST(s AS INT) + 1 = 3",
    ],
)
def test_a_cast_that_fails_for_one_row_is_null_there_whatever_it_is_shared_with(asked):
    """DuckDB's optimizer moved casts that occur twice out of TRY."""
    assert same(asked) == "answered"


@pytest.mark.slow
def test_binary_search_over_failures_learns_nothing():
    con = dp.connect(database(), session())
    asked = (
        "SELECT dp_sum(CAST(s AS INT) + 1, 0, 1) AS a, dp_sum(CAST(s AS INT) + 2, 0, 1) AS b FROM "
        "(SELECT user_id, CASE WHEN user_id = 7 AND price > {} THEN 'x' ELSE '1' END AS s FROM visits)"
    )
    outcomes = {outcome(con, asked.format(limit), fresh=True)[0] for limit in (7e5, 777014, 777015.5, 8e5)}
    assert outcomes == {"answered"}


@pytest.mark.slow
@pytest.mark.parametrize("call", ["week(i)", "era(i)", "date_part('dow', i)", "date_part(part, to_days(1))"])
def test_functions_that_duckdb_has_not_implemented_are_never_reached(call):
    rows = (
        "(SELECT user_id, CASE WHEN {value} THEN to_days(1) END AS i, "
        "CASE WHEN {value} THEN 'dow' ELSE 'day' END AS part FROM visits)"
    )
    assert same(f"SELECT dp_count({call}) AS n FROM {rows}") is dp.StatementNotAllowed


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["BIT", "BIGNUM", "VARIANT", "JSON", "BLOB", "UNION(a INT)", "INTERVAL", "HUGEINT"])
def test_types_that_make_duckdb_fail_or_crash_are_refused(kind):
    rows = "(SELECT user_id, CASE WHEN {value} THEN '1' END AS j FROM visits)"
    assert same(f"SELECT dp_count(CAST(j AS {kind})) AS n FROM {rows}") is dp.StatementNotAllowed
    rows = "(SELECT user_id, CASE WHEN {value} THEN CAST('1' AS JSON) END AS j FROM visits)"
    assert same(f"SELECT dp_count(CAST(j AS {kind})) AS n FROM {rows}") is dp.StatementNotAllowed


def test_a_number_of_any_length_does_not_invalidate_the_database():
    rows = (
        "(SELECT user_id, CAST(CASE WHEN {value} THEN '"
        + "123456789" * 6
        + "' ELSE '1' END AS BIGNUM) AS b FROM visits)"
    )
    assert same(f"SELECT dp_count(TRY_CAST(b AS BIGINT)) AS n FROM {rows}") is dp.StatementNotAllowed


@pytest.mark.slow
def test_a_deeply_nested_text_does_not_crash_the_process():
    rows = "(SELECT user_id, CASE WHEN {value} THEN $deep ELSE '1' END AS s FROM visits)"
    deep = "[" * 200_000 + "]" * 200_000
    asked = f"SELECT dp_count(CAST(CAST(s AS JSON) AS VARIANT)) AS n FROM {rows}"
    assert same(asked, params={"deep": deep}) is dp.StatementNotAllowed
    assert same(f"SELECT dp_count(s) AS n FROM {rows}", params={"deep": deep}) is dp.StatementNotAllowed  # too long


@pytest.mark.slow
def test_a_pattern_that_splits_characters_is_refused():
    rows = "(SELECT user_id, CASE WHEN {value} THEN 'aéb' ELSE 'aeb' END AS s FROM visits)"
    for call in (
        r"upper(regexp_split_to_array(s, 'a\C')[2])",
        r"upper(regexp_extract(s, 'a\C'))",
        r"regexp_matches(s, '\C')",
    ):
        assert same(f"SELECT dp_count({call}) AS n FROM {rows}") is dp.StatementNotAllowed


GROWING = {
    "bits": ("CAST(CAST(CAST(s AS BLOB) AS BIT) AS VARCHAR)", 11),
    "split": ("CAST(string_split(s, '') AS VARCHAR)", 20),
    "struct": ("CAST(row(s, s, s, s) AS VARCHAR)", 16),
    "array": ("CAST(ARRAY[s, s, s, s] AS VARCHAR)", 16),
    "concat": ("s || s || s || s", 30),
    "replace": ("replace(s, 'C', 'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC')", 30),
    "join": ("array_to_string(string_split(s || s, 'C'), 'CCCCCCCC')", 30),
    "pad": ("lpad(s || s, 1000, 'C') || s", 30),
}


@pytest.mark.slow
def test_no_text_grows_until_memory_is_gone():
    """A process with 4 GB must end the same way with and without the chosen value, and it must not die.

    One child tries all statements, each with its own session. What it printed before it died tells which one killed it.
    """
    body = f"""
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.attacks.test_sql import GROWING, GONE, THERE, database, outcome, session
def ask(con, grow, steps, value):
    levels = f"WITH l0 AS (SELECT user_id, left(s, 1) AS s FROM visits WHERE {{value}})"
    for level in range(steps):
        levels += f", l{{level + 1}} AS (SELECT user_id, {{grow}} AS s FROM l{{level}})"
    return outcome(con, f"{{levels}} SELECT dp_sum(length(s), 0, 9) AS n FROM l{{steps}}")
for how, (grow, steps) in GROWING.items():
    con = dp.connect(database(), session())
    print(how, ask(con, grow, steps, THERE) == ask(con, grow, steps, GONE), not con._session.closed, flush=True)
"""
    assert run(body) == Outcome(0, "\n".join(f"{how} True True" for how in GROWING))


@pytest.mark.slow
@pytest.mark.parametrize("join", ["USING (k)", "ON v.k = p.k", "ON v.k < p.k"])
def test_a_join_has_the_types_of_its_parameters(join):
    asked = (
        "SELECT dp_count(*) AS n FROM "
        "(SELECT user_id, $a || CASE WHEN {value} THEN 'x' ELSE '1' END AS k FROM visits) v "
        f"JOIN (SELECT $b AS k FROM lookup) p {join}"
    )
    assert same(asked, params={"a": "", "b": 1}) is dp.StatementNotAllowed
    assert same(asked, params={"a": "", "b": "1"}) == "answered"


# ---------------------------------------------------------------------- error messages


@pytest.mark.slow
def test_nothing_is_run_before_the_charge_and_no_error_quotes_a_value():
    paying = session()
    con = dp.connect(database(), paying)
    asked = "SELECT dp_sum((CAST(s AS INT) + 1) * (CAST(s AS INT) + 1), 0, 1) AS a FROM visits WHERE user_id = ?"
    assert outcome(con, asked, params=[123])[0] == "answered"
    assert "CANARY" not in str(con.preview(asked, params=[124], epsilon=0.01))
    assert len(paying.releases) == 1


# ---------------------------------------------------------------------- other names of a table

NAMES = [
    "visits",
    "main.visits",
    "memory.main.visits",
    "memory.visits",
    "VISITS",
    '"visits"',
    "Main.Visits",
    "visits AS v",
]


def people():
    raw = duckdb.connect()
    raw.execute("CREATE TABLE visits AS SELECT i % 3 AS user_id, i AS order_id FROM range(300) t(i)")
    return raw


@pytest.mark.slow
@pytest.mark.parametrize("declared", ["visits", "main.visits", "memory.main.visits"])
def test_whose_rows_are_is_said_of_a_table_not_of_its_name(declared):
    con = dp.connect(people(), session(epsilon=10**6, unit=dp.ROW)).private(declared, unit="user_id")
    for name in NAMES:
        plan = con.preview(f"SELECT dp_count(*, epsilon := 100, max_rows_per_group := 1) AS n FROM {name}")
        assert plan.query.unit == ("user_id",)
        assert con.sql(f"SELECT dp_count_units(epsilon := 100) AS n FROM {name}").fetchall() == [(3,)]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["visits", "main.visits", "memory.main.visits"])
def test_what_was_public_is_private_again_under_every_name(first):
    con = dp.connect(people(), session()).public(first)
    assert len(con.sql("SELECT * FROM visits").fetchall()) == 300
    con.private("visits", unit="user_id")
    for name in NAMES:
        with pytest.raises(dp.StatementNotAllowed, match="private rows"):
            con.sql(f"SELECT * FROM {name}")


@pytest.mark.slow
def test_functions_know_the_table_by_every_name():
    raw = people()
    guard = dp.register(raw, session(epsilon=10**6, unit=dp.ROW))
    guard.private("visits", unit="user_id")
    for name in ("visits", "main.visits", "memory.main.visits"):
        assert raw.sql(f"FROM dp.count_units('{name}', epsilon := 100)").fetchall() == [(3,)]


@pytest.mark.slow
def test_a_declaration_does_not_outlive_its_database(tmp_path):
    """A table of another file that is attached under the same name is a different table."""
    for name, value in (("one", 1), ("two", 2)):
        with duckdb.connect(str(tmp_path / f"{name}.duckdb")) as file:
            file.execute(f"CREATE TABLE t AS SELECT {value} AS user_id")
    raw = duckdb.connect()
    raw.execute(f"ATTACH '{tmp_path}/one.duckdb' AS shop (READ_ONLY)")
    con = dp.connect(raw, session()).public("shop.t")
    assert con.sql("SELECT * FROM shop.t").fetchall() == [(1,)]
    raw.execute("DETACH shop")
    raw.execute(f"ATTACH '{tmp_path}/two.duckdb' AS shop (READ_ONLY)")
    with pytest.raises(dp.StatementNotAllowed, match="private rows"):
        con.sql("SELECT * FROM shop.t")


@pytest.mark.slow
def test_columns_that_differ_by_case_are_refused(tmp_path):
    frame = pl.DataFrame({"USER_ID": range(300), "user_id": [1, 2, 3] * 100})
    frame.write_parquet(tmp_path / "case.parquet")
    for source in (frame, tmp_path / "case.parquet", frame.to_arrow(), frame.lazy()):
        paying = session()
        with pytest.raises(dp.DPError, match="differ by case"):
            dp.connect(None, paying).register("v", source).sql("SELECT dp_count_units(epsilon := 0.1) AS n FROM v")
        assert not paying.releases


@pytest.mark.slow
def test_categories_of_rows_are_no_public_keys():
    pandas = pytest.importorskip("pandas")
    ill = ["flu"] * 299 + ["CANARY of one person"]
    frame = pandas.DataFrame({"user_id": range(300), "illness": pandas.Categorical(ill)})
    polars = pl.DataFrame({"user_id": range(300), "illness": ill}).with_columns(pl.col("illness").cast(pl.Categorical))
    for source in (frame, polars, polars.to_arrow(), pl.from_pandas(frame)):
        con = dp.connect(None, session(max_groups=1)).register("visits", source)
        found = con.sql("SELECT illness, dp_count_units(epsilon := 0.5) AS n FROM visits GROUP BY illness").fetchall()
        assert [key for key, _ in found] == ["flu"]
        assert "discovered" in str(con.preview("SELECT illness, dp_count_units(epsilon := 0.5) FROM visits GROUP BY 1"))


# ---------------------------------------------------------------------- macros and other SQL of the database


def test_no_macro_of_the_database_is_called_whatever_its_name():
    raw = database()
    raw.execute("CREATE MACRO mean(a) AS max(a + (SELECT max(price) FROM main.visits))")
    raw.execute("CREATE MACRO row_number() AS max((SELECT min(s) FROM main.visits))")
    raw.execute("CREATE MACRO kurtosis(a) AS first((SELECT content FROM read_text('/etc/hostname')))")
    paying = session()
    con = dp.connect(raw, paying).public("lookup")
    assert con.sql("SELECT mean(zone) OVER () AS m, row_number() OVER () AS r FROM lookup").fetchall() == [
        (1.5, 1),
        (1.5, 2),
    ]
    assert con.sql("SELECT row_number() OVER () AS x").fetchall() == [(1,)]
    assert con.sql("SELECT kurtosis(zone) AS k FROM lookup").fetchall() == [(None,)]
    assert not paying.releases


@pytest.mark.slow
def test_macros_do_not_switch_caps_off(tmp_path):
    """One person with 1,000 rows counts once, whatever macros exist, in one part and in several."""
    raw = duckdb.connect(str(tmp_path / "caps.duckdb"))
    raw.execute("CREATE TABLE visits AS SELECT 1 AS user_id, i % 10 AS q FROM range(1000) t(i)")
    raw.execute("SET memory_limit = '64MB'")
    asked = "SELECT dp_histogram(q, 0, 10, bins := 2, epsilon := 1000, fresh := true) AS h FROM visits"
    con = dp.connect(raw, session(epsilon=10**6, max_groups=1))

    def counted():
        return sum(one["count"] for one in con.sql(asked).fetchall()[0][0])

    assert counted() == 1
    for macro in (
        "dense_rank() AS min(1)",
        "row_number() AS min(1)",
        "count(*) AS 7",
        "hash(a) AS 1",
        "least(a, b) AS a",
    ):
        try:
            raw.execute(f"CREATE MACRO {macro}")
        except duckdb.Error:
            continue  # DuckDB keeps this name for itself
    assert counted() == 1


def test_names_never_become_sql():
    raw = database()
    raw.execute("CREATE MACRO dearest() AS (SELECT max(price) FROM main.visits)")
    paying = session()
    con = dp.connect(raw, paying).public("lookup")
    for asked in (
        "SELECT dearest() AS x FROM lookup",
        'SELECT "dearest() AS x, lookup".* FROM lookup',
        'SELECT "(SELECT max(price) FROM memory.main.visits) AS x, lookup".* FROM lookup',
        'SELECT lookup."zone, (SELECT max(price) FROM visits)" FROM lookup',
        'SELECT * FROM "lookup JOIN visits ON true --"',
        'SELECT zone AS "x, (SELECT max(price) FROM visits) AS y" FROM lookup ORDER BY 1',
    ):
        seen = _shown(con, asked)
        assert "777" not in seen
    assert not paying.releases


def _shown(con, asked):
    try:
        return str(con.sql(asked).fetchall())
    except dp.DPError as error:
        return str(error)


@pytest.mark.slow
def test_settings_of_the_connection_change_no_answer():
    raw = database()
    raw.execute("INSERT INTO visits SELECT 1000 + i, 'NORTH', 1, 1, 'x', NULL, NULL FROM range(50) t(i)")
    for setting in ("default_collation = 'NOCASE'", "integer_division = true", "default_null_order = 'NULLS FIRST'"):
        raw.execute(f"SET {setting}")
    con = dp.connect(raw, session(epsilon=10**6, max_rows_per_group=5))
    asked = "SELECT dp_count(*, epsilon := 100000) AS n FROM visits WHERE {}"
    assert con.sql(asked.format("region = 'NORTH'")).fetchall() == [(50,)]
    assert con.sql(asked.format("qty / 2 = 0.5")).fetchall() == con.sql(asked.format("qty = 1")).fetchall()


# ---------------------------------------------------------------------- other attacks


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    ["'region FROM visits'", "'region, qty'", "'qty WHERE true'", "'qty) FROM visits --'", "'qty GROUP BY qty'"],
)
def test_functions_take_an_expression_and_nothing_after_it(words):
    raw = database()
    paying = session()
    dp.register(raw, paying)
    with pytest.raises(duckdb.Error, match=r"expression|can't parse"):
        raw.sql(f"FROM dp.sum('visits', {words}, 0, 1, epsilon := 0.1)").fetchall()
    assert not paying.releases


def test_an_option_is_said_once():
    con = dp.connect(database(), session())
    with pytest.raises(dp.StatementNotAllowed, match=r"epsilon .*twice|more than once"):
        con.sql("SELECT dp_count(*, epsilon := 0.1, epsilon := 0.2) AS n FROM visits")


@pytest.mark.slow
def test_columns_of_odd_types_are_refused_by_name_and_the_rest_can_be_asked():
    raw = duckdb.connect()
    raw.execute(
        "CREATE TABLE odd (user_id INT, u UNION(a INT, b VARCHAR), i INTERVAL, b BLOB, t BIT, m MAP(INT, INT), "
        "v VARIANT, n BIGNUM, z TIMETZ, x INT)"
    )
    raw.execute("INSERT INTO odd (user_id, x) SELECT i, i FROM range(100) t(i)")
    paying = session()
    con = dp.connect(raw, paying)
    for name in ("u", "i", "b", "t", "m", "v", "n", "z"):
        with pytest.raises(dp.StatementNotAllowed, match=f"^{name} has the type"):
            con.sql(f"SELECT dp_count({name}, epsilon := 0.1) AS n FROM odd")
        with pytest.raises(dp.StatementNotAllowed, match=f"{name} has the type"):
            con.sql(f"SELECT dp_count(*, epsilon := 0.1) AS n FROM (SELECT * FROM odd) WHERE {name} IS NULL")
    assert not paying.releases
    assert con.sql("SELECT dp_sum(x, 0, 9, epsilon := 0.1) AS s FROM (SELECT * FROM odd)").fetchall()


def test_no_sample_stands_below_a_release():
    con = dp.connect(database(), session()).public("lookup")
    for asked in (
        "SELECT dp_count(*) AS n FROM visits JOIN (SELECT * FROM lookup USING SAMPLE 1 ROWS) USING (region)",
        "SELECT dp_count(*) AS n FROM visits SEMI JOIN (FROM lookup TABLESAMPLE 50%) USING (region)",
    ):
        with pytest.raises(dp.StatementNotAllowed, match="sample"):
            con.sql(asked, epsilon=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["generated", "view"])
def test_what_a_table_computes_fails_for_all_conditions_or_for_none(source):
    """Once, a condition that DuckDB applied decided whether a view or generated column was computed on the bad row."""
    raw = duckdb.connect()
    computed = "code BIGINT GENERATED ALWAYS AS (CAST(note AS BIGINT))" if source == "generated" else "other BIGINT"
    raw.execute(f"CREATE TABLE t (user_id BIGINT, cents BIGINT, note VARCHAR, {computed})")
    raw.execute("INSERT INTO t (user_id, cents, note) SELECT i, i % 50, i::VARCHAR FROM range(200) r(i)")
    raw.execute("UPDATE t SET cents = 90, note = 'n/a' WHERE user_id = 7")
    raw.execute("CREATE VIEW v AS SELECT user_id, cents, CAST(note AS BIGINT) AS code FROM t")
    table = "t" if source == "generated" else "v"
    outcomes = []
    for value in (89, 90):
        con = dp.connect(raw, session())
        con = con.private("v", unit="user_id") if source == "view" else con
        outcomes.append(outcome(con, f"SELECT dp_count(code) AS n FROM {table} WHERE user_id = 7 AND cents = {value}"))
    kinds = {kind for kind, *_ in outcomes}
    assert len(kinds) == 1


def test_a_star_with_more_to_it_is_no_count_of_rows():
    con = dp.connect(database(), session())
    for star in ("COLUMNS('.*')", "COLUMNS(*)", "visits.*", "* EXCLUDE (s)"):
        with pytest.raises(dp.DPError):
            con.sql(f"SELECT dp_count({star}, epsilon := 0.1) FROM visits")


def test_a_parameter_with_half_a_character_is_refused_in_our_words():
    con = dp.connect(database(), session())
    with pytest.raises(dp.InvalidParameterError, match="half a character"):
        con.sql("SELECT dp_count(*, epsilon := 0.1) FROM visits WHERE s = ?", params=["\ud800"])


def test_texts_are_compared_with_points_in_time_that_have_a_zone():
    raw = duckdb.connect()
    raw.execute("SET TimeZone = 'America/New_York'")
    raw.execute(
        "CREATE TABLE t AS SELECT i AS user_id, TIMESTAMPTZ '2020-01-01 00:00:00+00' + i * INTERVAL 1 DAY AS at_time "
        "FROM range(100) t(i)"
    )
    con = dp.connect(raw, session(epsilon=10**6))
    found = con.sql("SELECT dp_count(*, epsilon := 100000) AS n FROM t WHERE at_time >= '2020-02-01 00:00:00+00'")
    assert found.fetchall() == [(69,)]
