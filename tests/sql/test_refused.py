"""Statements that a guarded connection refuses, each with its own reason in the message and at no cost."""

import json

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from tests.sql.test_accepted import STATEMENTS, VISITS

ONE = "dp_count(*, epsilon := 0.1)"


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """A database that no statement of these tests can change, because all are refused."""
    raw = duckdb.connect(str(tmp_path_factory.mktemp("refused") / "data.duckdb"))
    raw.register("given", VISITS.to_arrow())
    raw.execute("CREATE TABLE visits AS FROM given")
    raw.execute("CREATE TABLE people AS SELECT DISTINCT user_id, user_id % 7 AS age FROM visits")
    raw.execute("CREATE TABLE lookup AS SELECT * FROM (VALUES ('north', 1), ('south', 2)) t(region, zone)")
    raw.execute("CREATE TABLE clashing AS SELECT 'north' AS region, 5 AS user_id")
    raw.execute("CREATE VIEW seen AS SELECT avg(price) AS price FROM visits")
    raw.execute("CREATE MACRO leaking() AS (SELECT max(price) FROM visits)")
    raw.execute("CREATE MACRO lower(x) AS (SELECT max(price) FROM visits)")
    raw.execute("CREATE MACRO through(x) AS lower(x)")
    raw.execute("CREATE MACRO range(n) AS TABLE (SELECT * FROM visits)")
    raw.execute("CREATE TEMP TABLE hidden AS FROM visits")
    yield raw
    raw.close()


@pytest.fixture
def con(raw):
    session = dp.Session(epsilon=1, delta=1e-6, unit="user_id", max_groups=3, max_rows_per_group=5)
    return dp.connect(raw, session).public("lookup", "clashing")


REFUSED = [
    # private rows in the result
    ("SELECT * FROM visits", "would show private rows"),
    ("FROM visits", "would show private rows"),
    ("SELECT region FROM visits", "would show private rows"),
    (f"SELECT qty, {ONE} FROM visits GROUP BY region", "qty is neither a key"),
    (f"SELECT *, {ONE} FROM visits GROUP BY region", "would show private rows"),
    (f"SELECT region, {ONE} FROM visits GROUP BY region ORDER BY qty", "qty is neither a key"),
    (f"SELECT {ONE} AS n FROM visits HAVING max(price) > 3", "max would read private rows"),
    (f"SELECT #1, {ONE} FROM visits", "position of a column"),
    (f"SELECT user_id, {ONE} FROM visits GROUP BY user_id", "reads the unit column"),
    (f"SELECT user_id % 2 AS odd, {ONE} FROM visits GROUP BY odd", "list them with keys :="),
    # aggregates and windows
    ("SELECT count(*) FROM visits", "rows of all people.*dp_count"),
    ("SELECT max(price) FROM visits", "rows of all people.*dp_max"),
    ("SELECT region, count(*) FROM visits GROUP BY region", "shows which groups"),
    (f"SELECT {ONE} FROM (SELECT row_number() OVER () AS r FROM visits) WHERE r = 1", "PARTITION BY without user_id"),
    (f"SELECT sum(price), {ONE} FROM visits", "price is neither a key"),
    (f"SELECT count(*), {ONE} FROM visits GROUP BY region", r"Write dp_count\(\*\)"),
    (f"SELECT qty, {ONE} FROM (SELECT qty FROM visits)", "^qty is neither a key"),
    (f"SELECT dp_sum({ONE}, 0, 1) FROM visits", "can't be inside"),
    ("SELECT dp_count(DISTINCT region, epsilon := 0.1) FROM visits", "neither DISTINCT nor ORDER BY"),
    ("SELECT dp_sum(price, 0, 1, epsilon := 0.1 ORDER BY qty) FROM visits", "neither DISTINCT nor ORDER BY"),
    # rows that depend on other rows
    (f"SELECT {ONE} FROM (SELECT DISTINCT region FROM visits)", "SELECT DISTINCT without user_id"),
    (f"SELECT {ONE} FROM (SELECT * FROM visits LIMIT 5)", "LIMIT below a private aggregation"),
    (f"SELECT {ONE} FROM (SELECT * FROM visits ORDER BY price)", "ORDER below a private aggregation"),
    (f"SELECT {ONE} FROM (SELECT region FROM visits GROUP BY region)", "shows which groups exist"),
    (f"SELECT {ONE} FROM (SELECT region FROM visits QUALIFY qty > 1)", "QUALIFY is a condition on a window"),
    (f"SELECT {ONE} FROM visits TABLESAMPLE 10%", "sample depends on which other rows"),
    (f"SELECT {ONE} FROM visits USING SAMPLE 10", "sample depends on which other rows"),
    (f"SELECT {ONE} FROM visits WHERE rowid < 5", "no column rowid"),
    (f"SELECT {ONE} FROM visits WHERE random() < 0.5", "random is not among"),
    (f"SELECT {ONE} FROM visits WHERE stats(price) LIKE '%9%'", "stats is not among"),
    (f"SELECT {ONE} FROM visits WHERE current_time > TIME '12:00'", "no column current_time"),
    (f"SELECT {ONE} FROM visits WHERE qty > (SELECT avg(qty) FROM visits)", "subquery inside an expression"),
    (f"SELECT {ONE} FROM visits WHERE region IN (SELECT region FROM visits)", "combined on the unit"),
    (f"SELECT {ONE} FROM visits v WHERE EXISTS (SELECT 1 FROM people p WHERE p.age = v.qty)", "combined on the unit"),
    (f"SELECT {ONE} FILTER (WHERE qty > (SELECT avg(qty) FROM visits)) FROM visits", "subquery inside an expression"),
    (f"SELECT (SELECT max(qty) FROM visits) AS k, {ONE} FROM visits GROUP BY k", "subquery inside an expression"),
    ("SELECT region, dp_count(*, epsilon := 0.1, keys := [('north', 1)]) FROM visits GROUP BY ROLLUP (region, qty)",
     "list the values of each key by its name"),
    (f"SELECT price * 2 AS p, {ONE} FROM visits GROUP BY p", r"\(visits.price \* 2\) is a float.*Make bins"),
    # private rows in subqueries, macros and set operations
    ("SELECT (SELECT price FROM visits) AS x", "subquery over a private table"),
    ("SELECT * FROM lookup WHERE zone > ALL (SELECT qty FROM visits)", "subquery over a private table"),
    ("SELECT * FROM lookup LIMIT (SELECT count(*) FROM visits)", "rows of all people|private table"),
    ("SELECT * FROM lookup ORDER BY (SELECT max(price) FROM visits)", "rows of all people|private table"),
    (f"SELECT {ONE} + (SELECT max(price) FROM visits) AS x FROM visits", "rows of all people|private table"),
    (f"SELECT {ONE} AS n FROM visits HAVING n > (SELECT max(price) FROM visits)", "rows of all people|private table"),
    ("SELECT * FROM lookup a JOIN lookup b ON a.zone > (SELECT max(qty) FROM visits)", "subquery inside the condition"),
    ("SELECT * FROM (VALUES ((SELECT max(price) FROM visits))) t", "subquery inside an expression"),
    ("SELECT * FROM unnest([(SELECT max(price) FROM visits)]) t(x)", "subquery inside|not supported"),
    ("SELECT * FROM lookup, LATERAL (SELECT max(price) FROM visits) x", "rows of all people"),
    ("SELECT leaking() AS x, region FROM lookup", "leaking is not among the built-in"),
    (f"SELECT leaking() AS x, {ONE} FROM visits", "leaking is not among the built-in"),
    (f"SELECT {ONE} FROM visits WHERE through(region) = 'north'", "through is not among .* write out its expression"),
    ("SELECT * FROM lookup UNION ALL SELECT region, qty FROM visits", "UNION, INTERSECT and EXCEPT"),
    (f"SELECT {ONE} FROM (SELECT region FROM visits EXCEPT SELECT region FROM lookup)", "UNION, INTERSECT and EXCEPT"),
    ("WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r, visits) SELECT * FROM r", "not supported"),
    ("WITH lookup AS (SELECT * FROM visits) SELECT * FROM lookup", "would show private rows"),
    # joins
    (f"SELECT {ONE} FROM visits JOIN people ON qty = age", "combined on the unit"),
    (f"SELECT {ONE} FROM visits v LEFT JOIN lookup l ON v.qty > l.zone", "must compare columns"),
    (f"SELECT {ONE} FROM visits v JOIN lookup l ON v.region = l.zone", "cast one of them in a subquery"),
    (f"SELECT {ONE} FROM visits POSITIONAL JOIN lookup", "positional join"),
    (f"SELECT {ONE} FROM visits NATURAL JOIN lookup", "natural join"),
    (f"SELECT {ONE} FROM visits v ASOF JOIN lookup l ON v.qty >= l.zone", "asof join"),
    (f"SELECT {ONE} FROM lookup SEMI JOIN visits USING (region)", "which private rows exist"),
    (f"SELECT {ONE} FROM visits JOIN (SELECT region, {ONE} AS n FROM visits GROUP BY 1) USING (region)", "answers"),
    # the unit
    (f"SELECT {ONE} FROM (SELECT 1 AS user_id, qty FROM visits)", "can't give it to another"),
    (f"SELECT {ONE} FROM (SELECT qty AS user_id FROM visits)", "can't give it to another"),
    (f"SELECT {ONE} FROM (SELECT * REPLACE (5 AS user_id) FROM visits)", "can't give it to another"),
    (f"SELECT {ONE} FROM (SELECT * FROM visits JOIN clashing USING (region))", "can't give it to another"),
    ("SELECT dp_count(*, epsilon := 0.1) FROM (SELECT COLUMNS('.*') FROM visits)", "COLUMNS"),
    # sources
    (f"SELECT {ONE} FROM nowhere", "no table nowhere"),
    (f"SELECT {ONE} FROM hidden", "Temporary tables"),
    (f"SELECT {ONE} FROM seen", "is a view"),
    (f"SELECT {ONE} FROM 'somewhere.parquet'", "no table somewhere.parquet"),
    (f"SELECT {ONE} FROM read_csv('/etc/passwd')", "could read files"),
    ("SELECT * FROM query('SELECT * FROM visits')", "could read files"),
    ("SELECT * FROM query_table('visits')", "could read files"),
    ("SELECT * FROM duckdb_settings()", "could read files"),
    ("SELECT * FROM information_schema.schemata", "no table information_schema.schemata"),
    ("SELECT getenv('HOME') AS x", "getenv is not among"),
    ("SELECT current_setting('memory_limit') AS x", "current_setting is not among"),
    ("SELECT * FROM lookup AT (VERSION => 1)", "time travel|can't parse"),
    ("FROM (DESCRIBE visits)", "not supported in FROM"),
    ("DESCRIBE seen", "is a view"),
    ("DESCRIBE SELECT zone FROM lookup", "DESCRIBE is for tables"),
    (f"DESCRIBE SELECT {ONE} FROM visits", "DESCRIBE is for tables"),
    ("DESCRIBE nowhere", "no table nowhere"),
    ("FROM (SUMMARIZE visits)", "not supported in FROM"),
    ("SUMMARIZE lookup", "SUMMARIZE profiles private rows"),
    ("SHOW DATABASES", "SHOW takes TABLES or the name of a table"),
    ("SELECT name FROM (SHOW TABLES)", "not supported in FROM"),
    # aggregates of DuckDB beside private ones
    (f"SELECT region, {ONE} AS n FROM visits GROUP BY region HAVING count(*) > 5", "HAVING compares released columns"),
    (f"SELECT region, {ONE} AS n FROM visits GROUP BY region HAVING avg(qty) > 5", "HAVING compares released columns"),
    (f"SELECT region, {ONE} AS n, count(*) AS m FROM visits GROUP BY region", "count released rows"),
    (f"SELECT region, {ONE} AS n FROM visits GROUP BY region ORDER BY count(*)", "count released rows"),
    (f"SELECT count(*) AS m FROM visits HAVING {ONE} > 5", "count released rows"),
    # options that are written like comparisons
    ("SELECT dp_sum(qty, 0, 9, epsilon = 0.1) FROM visits", "An option is written epsilon := ..."),
    ("SELECT dp_sum(qty, bounds = (0, 9), epsilon := 0.1) FROM visits", "An option is written bounds := ..."),
    ("SELECT dp_count_units(epsilon = 0.1) FROM visits", "An option is written epsilon := ..."),
    # statements
    ("DROP TABLE visits", "SELECT statements only"),
    ("INSERT INTO visits SELECT * FROM visits", "SELECT statements only"),
    ("COPY visits TO 'out.csv'", "SELECT statements only"),
    ("ATTACH 'x.duckdb'", "SELECT statements only"),
    ("PRAGMA database_list", "SELECT statements only|not supported"),
    ("SET memory_limit = '1GB'", "SELECT statements only"),
    ("INSTALL httpfs", "SELECT statements only"),
    ("PIVOT visits ON region USING count(*)", "SELECT statements only"),
    ("EXPLAIN SELECT * FROM visits", "SELECT statements only"),
    ("SELECT 1; SELECT 2", "one statement at a time"),
    ("", "one statement at a time|can't parse"),
    ("SELEC 1", "DuckDB can't parse"),
    # options
    ("SELECT dp_count(*, epsilon := qty) FROM visits", "a constant or a parameter"),
    ("SELECT dp_count(*, epsilon := (SELECT max(qty) FROM visits)) FROM visits", "a constant or a parameter"),
    ("SELECT dp_count(*, epsilon := $missing) FROM visits", "No value was given for parameter missing"),
    ("SELECT dp_count(*, sigma := 1) FROM visits", "no option sigma"),
    ("SELECT dp_sum(epsilon := 1) FROM visits", "needs a column"),
    ("SELECT dp_sum(price, 0, 1, 2, epsilon := 1) FROM visits", "takes other arguments"),
    ("SELECT dp_sum(price, 'auto', epsilon := 1) FROM visits", r"dp_sum\(x, bounds := 'auto'\)"),
    ("SELECT dp_count_units(region, epsilon := 1) FROM visits", "takes no column"),
    ("SELECT dp_sum(price, epsilon := 0.1) FROM visits", "bounds := "),
    ("SELECT dp_count(*) FROM visits", "This release needs a spend"),
    ("SELECT dp_count(*, epsilon := 0.1, keys := ['a']) AS a, dp_count_units(epsilon := 0.1, keys := ['b']) AS b "
     "FROM visits GROUP BY region", "differs between the private aggregates"),
    (f"SELECT {ONE} FROM lookup", "is for private tables"),
    (f"SELECT {ONE} FROM visits GROUP BY 7", "the position of a column"),
    (f"SELECT {ONE} FROM (SELECT qty + 1 FROM visits)", "Give this expression a name"),
    (f"SELECT {ONE} FROM visits AS v(a, b)", "Column names after"),
    (f"WITH w(a) AS (SELECT region FROM visits) SELECT {ONE} FROM w", "Column names after"),
    (f"SELECT {ONE} FROM visits WHERE list_transform([1], lambda x: x + 1) = [2]", "list_transform is not|lambda"),
    (f"SELECT {ONE} FROM visits WHERE region COLLATE NOCASE = 'NORTH'", "collate"),
    (f"SELECT {ONE} FROM visits WHERE other.lower(region) = 'x'", "qualified name"),
    (f"SELECT {ONE} FROM visits WHERE count(qty) FILTER (WHERE qty > 1) > 3", "aggregates rows|not among"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("statement", "message"), REFUSED)
def test_it_is_refused_with_the_reason_and_at_no_cost(con, statement, message):
    with pytest.raises(dp.DPError, match=message) as caught:
        con.sql(statement)
    assert not con._session.releases
    assert "Traceback" not in str(caught.value)


def test_options_without_a_private_aggregate_are_refused(con):
    with pytest.raises(dp.InvalidParameterError, match="no private aggregate"):
        con.sql("SELECT * FROM lookup", epsilon=0.1)


@pytest.mark.parametrize("statement", ["SELECT dp_count(*) FROM visits", "SUMMARIZE visits"])
def test_no_other_session_pays_for_a_statement(con, statement):
    with pytest.raises(dp.InvalidParameterError, match="The session of this connection pays"):
        con.sql(statement, epsilon=0.1, session=dp.Session(epsilon=1.0, unit=dp.ROW))
    assert not con._session.releases


def test_places_are_told_by_line_and_column(con):
    with pytest.raises(dp.StatementNotAllowed, match=r"\(line 3, column 7\)"):
        con.sql("SELECT dp_count(*, epsilon := 0.1)\nFROM visits\nWHERE nothing > 3")


@pytest.mark.slow
def test_every_kind_of_node_that_the_parser_gives_is_in_some_case():
    """A kind of node without a case would be accepted or refused by accident."""
    raw = duckdb.connect()
    found = set()

    def look(item):
        if isinstance(item, list):
            for one in item:
                look(one)
        elif isinstance(item, dict):
            kind = item.get("class") or item.get("type")
            if isinstance(kind, str):
                found.add(kind)
            for one in item.values():
                look(one)

    for statement in [*STATEMENTS, *(case[0] for case in REFUSED)]:
        look(json.loads(raw.execute("SELECT json_serialize_sql(?::VARCHAR)", [statement]).fetchone()[0]))
    known = {
        "COLUMN_REF", "CONSTANT", "PARAMETER", "FUNCTION", "COMPARISON", "CONJUNCTION", "OPERATOR", "CASE", "CAST",
        "BETWEEN", "SUBQUERY", "WINDOW", "STAR", "POSITIONAL_REFERENCE", "LAMBDA", "COLLATE", "SELECT_NODE",
        "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "BASE_TABLE", "JOIN", "EMPTY", "EXPRESSION_LIST", "TABLE_FUNCTION",
        "SHOW_REF", "ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER",
    }  # fmt: skip
    assert known - found <= {"LIMIT_PERCENT_MODIFIER"}  # a LIMIT of a part is the same modifier in DuckDB 2


def test_a_key_that_is_an_expression_is_named_by_its_text():
    con = dp.connect(None, dp.Session(epsilon=1.0, unit="user", max_groups=1))
    con.register("visits", pl.DataFrame({"user": [1, 2], "region": ["a", "b"], "kind": ["x", "y"]}))
    asked = (
        "SELECT upper(region) AS r, upper(visits.kind) AS k, dp_count_units(epsilon := 0.1, keys := {}) "
        "FROM visits GROUP BY 1, 2"
    )
    plan = con.preview(asked.format("{'upper(region)': ['A'], 'upper(kind)': ['X']}"))
    assert "count_units by upper(region), upper(kind)" in str(plan)
    with pytest.raises(dp.InvalidParameterError, match=r"every key: upper\(region\), upper\(kind\)"):
        con.preview(asked.format("{'r': ['A'], 'k': ['X']}"))
