"""Steps within a unit in SQL: private rows are those that plain DuckDB computes, and no unit changes another's rows."""

from functools import cache

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dp
from dp_polars._engines.polars import engine
from dp_polars._engines.polars.scan import read_rows
from dp_polars._engines.polars.unit_steps import without_unit_steps
from dp_polars._engines.registry import engine_for
from dp_polars._engines.unit_steps import with_units
from dp_polars._expressions import Column
from dp_polars._sql.analysis import private_relation
from dp_polars._sql.relations import Context

GENERATOR = np.random.default_rng(5)
N = 500
ORDERS = pl.DataFrame(
    {
        "id": np.arange(N),
        "who": pl.Series([*range(60), None]).gather(GENERATOR.integers(0, 61, N)),
        "kind": pl.Series(["a", "b", "c", None]).gather(GENERATOR.integers(0, 4, N)),
        "qty": pl.Series([*range(-4, 9), None]).gather(GENERATOR.integers(0, 14, N)),
        "paid": GENERATOR.gamma(2, 30, N) * 10.0 ** GENERATOR.integers(-8, 8, N),
        "price": pl.Series(np.round(GENERATOR.gamma(2, 10, N), 2)).cast(pl.Decimal(10, 2)),
        "day": pl.Series(GENERATOR.integers(19_700, 19_720, N)).cast(pl.Int32).cast(pl.Date),
        "good": pl.Series([True, False, None]).gather(GENERATOR.integers(0, 3, N)),
    }
)
TAGS = pl.DataFrame({"kind": ["a", "b", "c"], "tags": [["a", "b"], [], ["a", None, "a"]]})
PEOPLE = pl.DataFrame({"person": [*range(5, 70), None], "land": [["x", "y"][one % 2] for one in range(66)]})

GROUPS = [
    "SELECT who, count(*) AS n FROM orders GROUP BY who",
    "SELECT who, kind, count(*) AS n, sum(qty) AS s, min(day) AS a, max(paid) AS b, avg(qty) AS m, count(qty) AS c, "
    "count(DISTINCT qty) AS d, median(qty) AS h FROM orders GROUP BY who, kind",
    "SELECT who, bool_or(good) AS o, bool_and(good) AS a, count(good) AS c FROM orders WHERE qty > 5 GROUP BY who",
    "SELECT who, sum(price) AS s, avg(price) AS m, max(price) AS x, count_if(price > 10) AS c FROM orders GROUP BY who",
    "SELECT who, arg_min(id, id) AS a, arg_max(qty, id) AS b, min_by(kind, id) AS c, first(qty ORDER BY id DESC) AS d, "
    "last(kind ORDER BY day, id) AS e, any_value(qty ORDER BY id) AS f FROM orders GROUP BY who",
    "SELECT who, sum(qty) FILTER (WHERE kind = 'a') AS s, count(*) FILTER (WHERE good) AS n, "
    "min(qty) FILTER (WHERE kind IN ('b', 'c')) AS m FROM orders GROUP BY ALL",
    "SELECT who, date_trunc('month', day) AS month, count(*) AS n FROM orders GROUP BY 1, 2 "
    "HAVING count(*) > 1 AND n < 9",
    "SELECT who, upper(kind) AS k, sum(qty) * 2 + count(*) AS v FROM orders GROUP BY who, upper(kind) HAVING v > 3",
    "SELECT who, CASE WHEN sum(qty) > 5 THEN 'many' ELSE 'few' END AS size FROM orders GROUP BY who",
    "SELECT who, max(n) AS most, count(*) AS kinds FROM (SELECT who, kind, count(*) AS n FROM orders GROUP BY who, "
    "kind) GROUP BY who",
    "WITH a AS (SELECT who, day, sum(qty) AS q FROM orders GROUP BY who, day), b AS (SELECT who, avg(q) AS m FROM a "
    "WHERE q > 0 GROUP BY who) SELECT who, m FROM b WHERE m > 2",
    "SELECT who, sum(nullif(qty, 3)) AS s, coalesce(max(qty), -1) AS m FROM orders GROUP BY who",
    "SELECT who, kind, stddev(qty) AS a, var_pop(qty) AS b, var_samp(paid) AS c, stddev_pop(price) AS d, sem(qty) AS "
    "e, variance(qty) FILTER (WHERE good) AS f, geomean(paid) AS g, fsum(paid) AS h FROM orders GROUP BY who, kind",
    "SELECT who, quantile_cont(qty, 0.9) AS a, quantile_disc(qty, 0.7) AS b, quantile_disc(kind, 0.25) AS c, "
    "quantile_disc(day, 0) AS d, quantile_cont(paid, 1) AS e, quantile(id, 0.1) FILTER (WHERE good) AS f FROM orders "
    "GROUP BY who",
    "SELECT who, string_agg(kind, '>' ORDER BY day, id) AS path, string_agg(id::VARCHAR ORDER BY id DESC) AS ids FROM "
    "orders GROUP BY who",
    "SELECT who, day, mode(good) AS a FROM orders WHERE good GROUP BY who, day",
]
WINDOWS = [
    "SELECT DISTINCT who, kind FROM orders",
    "SELECT DISTINCT who, qty > 3 AS many FROM orders WHERE kind <> 'a'",
    "SELECT id, who, row_number() OVER (PARTITION BY who ORDER BY day, id) AS r FROM orders",
    "SELECT id, who, rank() OVER (PARTITION BY who ORDER BY day) AS r, dense_rank() OVER (PARTITION BY who ORDER BY "
    "day DESC) AS d FROM orders",
    "SELECT id, who, lag(qty) OVER (PARTITION BY who ORDER BY day, id) AS a, lead(kind, 2) OVER (PARTITION BY who "
    "ORDER BY day, id) AS b, lag(qty, 1, -9) OVER (PARTITION BY who ORDER BY id) AS c FROM orders",
    "SELECT id, who, day - lag(day) OVER (PARTITION BY who ORDER BY day, id) AS gap FROM orders",
    "SELECT id, who, first_value(qty) OVER (PARTITION BY who ORDER BY id) AS a, last_value(qty) OVER (PARTITION BY who "
    "ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS b FROM orders",
    "SELECT id, who, sum(qty) OVER (PARTITION BY who) AS s, count(*) OVER (PARTITION BY who, kind) AS n, "
    "max(paid) OVER (PARTITION BY kind, who) AS m, avg(qty) OVER (PARTITION BY who) AS a FROM orders",
    "SELECT id, who, sum(qty) OVER (PARTITION BY who ORDER BY day) AS s, count(*) OVER (PARTITION BY who ORDER BY day) "
    "AS n, count(qty) OVER (PARTITION BY who ORDER BY day DESC) AS c FROM orders",
    "SELECT id, who, sum(qty) OVER (PARTITION BY who ORDER BY day, id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT "
    "ROW) AS s, avg(qty) OVER (PARTITION BY who ORDER BY id) AS a, sum(price) OVER (PARTITION BY who ORDER BY id) AS p "
    "FROM orders",
    "SELECT id, who, qty FROM orders QUALIFY row_number() OVER (PARTITION BY who ORDER BY qty DESC, id) <= 2",
    "SELECT id, who, count(*) OVER (PARTITION BY who) AS n FROM orders WHERE good QUALIFY n > 3",
    "SELECT who, kind, sum(qty) AS q FROM orders GROUP BY who, kind "
    "QUALIFY row_number() OVER (PARTITION BY who ORDER BY sum(qty) DESC, kind) = 1",
    "SELECT DISTINCT ON (who) id, who, day FROM orders ORDER BY day DESC, id",
    "SELECT *, row_number() OVER (PARTITION BY who ORDER BY id) AS r FROM orders",
    "SELECT id, who, sum(qty) OVER w AS a, avg(qty) OVER w AS b, count(*) OVER w AS c, min(kind) OVER w AS d, max(day) "
    "OVER w AS e, sum(price) OVER w AS f, first_value(qty) OVER w AS g, last_value(kind) OVER w AS h FROM orders "
    "WINDOW w AS (PARTITION BY who ORDER BY day, id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
    "SELECT id, who, sum(qty) OVER w AS a, count(qty) OVER w AS b, min(qty) OVER w AS c, max(price) OVER w AS d, "
    "first_value(kind) OVER w AS e, last_value(id) OVER w AS f FROM orders "
    "WINDOW w AS (PARTITION BY who ORDER BY id ROWS BETWEEN 2 FOLLOWING AND 3 FOLLOWING)",
    "SELECT id, who, sum(qty) OVER w AS a, count(qty) OVER w AS b, min(qty) OVER w AS c, max(price) OVER w AS d, "
    "sum(paid) OVER w AS e, last_value(id) OVER w AS f FROM orders "
    "WINDOW w AS (PARTITION BY who ORDER BY id ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)",
    "SELECT id, who, sum(qty) OVER w AS a, avg(paid) OVER w AS b, min(qty) OVER w AS c, max(kind) OVER w AS d, "
    "count(*) FILTER (WHERE good) OVER w AS e FROM orders "
    "WINDOW w AS (PARTITION BY who ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING)",
    *(
        "SELECT id, who, sum(qty) OVER w AS a, count(*) OVER w AS b, avg(paid) OVER w AS c, min(day) OVER w AS d, "
        f"max(kind) OVER w AS e, sum(price) OVER w AS f FROM orders WINDOW w AS (PARTITION BY who ORDER BY {ordered})"
        for ordered in (
            "day RANGE BETWEEN INTERVAL 3 DAYS PRECEDING AND CURRENT ROW",
            "day DESC RANGE BETWEEN INTERVAL 30 HOURS PRECEDING AND INTERVAL 2 DAYS FOLLOWING",
            "CASE WHEN good THEN day::TIMESTAMP + INTERVAL 5 HOURS ELSE day::TIMESTAMP END RANGE BETWEEN INTERVAL 30 "
            "HOURS PRECEDING AND INTERVAL 5 HOURS FOLLOWING",
            "qty RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING",
            "qty DESC NULLS FIRST RANGE BETWEEN 3 FOLLOWING AND 5 FOLLOWING",
            "qty NULLS FIRST RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
            "qty RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING",
            "qty RANGE BETWEEN CURRENT ROW AND CURRENT ROW",
            "id ROWS BETWEEN 1500 PRECEDING AND 700 FOLLOWING",
        )
    ),
    "SELECT id, who, min(qty) OVER (PARTITION BY who ORDER BY day) AS a, max(paid) OVER (PARTITION BY who ORDER BY day "
    "DESC) AS b, sum(round(paid)) OVER (PARTITION BY who ORDER BY id ROWS 3 PRECEDING) AS c FROM orders",
    "SELECT id, who, ntile(4) OVER (PARTITION BY who ORDER BY day, id) AS a, percent_rank() OVER (PARTITION BY who "
    "ORDER BY day) AS b, cume_dist() OVER (PARTITION BY who ORDER BY day) AS c, stddev(qty) OVER (PARTITION BY who) "
    "AS d, quantile_cont(qty, 0.3) OVER (PARTITION BY who, kind) AS e FROM orders",
]
JOINS = [
    "SELECT o.id, p.person AS who, land, qty FROM orders o JOIN people p ON o.who = p.person",
    "SELECT o.id, o.who, p.land FROM orders o LEFT JOIN people p ON p.person = o.who",
    "SELECT p.person, o.id, o.who AS buyer FROM people p LEFT JOIN orders o ON o.who = p.person AND o.qty > 3",
    "SELECT p.person, o.id FROM orders o RIGHT JOIN people p ON o.who = p.person",
    "SELECT p.person FROM people p LEFT JOIN orders o ON o.who = p.person WHERE o.who IS NULL",
    "SELECT a.id, a.who, b.id AS next FROM orders a JOIN orders b ON a.who = b.who AND a.day < b.day AND a.qty = b.qty",
    "SELECT a.id, a.who, b.id AS other FROM orders a JOIN orders b USING (who, kind) WHERE a.id <> b.id",
    "SELECT person, land FROM people SEMI JOIN orders ON person = who AND kind = 'a'",
    "SELECT person, land FROM people ANTI JOIN orders ON person = who AND kind = 'a'",
    "SELECT person, land FROM people WHERE person IN (SELECT who FROM orders WHERE kind = 'a') AND land = 'x'",
    "SELECT person FROM people WHERE person NOT IN (SELECT who FROM orders WHERE kind = 'a' AND who IS NOT NULL)",
    "SELECT id, who FROM orders o WHERE EXISTS (SELECT 1 FROM people p WHERE p.person = o.who AND p.land = 'y')",
    "SELECT id, who FROM orders o WHERE NOT EXISTS (SELECT * FROM orders b WHERE b.who = o.who AND b.qty = o.qty + 1)",
    "SELECT id, who FROM orders WHERE (who, kind) IN (SELECT who, max(kind) AS k FROM orders GROUP BY who)",
    "SELECT who, qty FROM orders UNION ALL SELECT person, length(land) FROM people",
    "SELECT who, kind FROM orders WHERE qty > 3 UNION SELECT person, land FROM people",
    "SELECT who, kind FROM orders WHERE qty > 3 INTERSECT SELECT who, kind FROM orders WHERE good",
    "SELECT who, kind FROM orders EXCEPT SELECT who, kind FROM orders WHERE qty > 3 EXCEPT SELECT person, land FROM "
    "people",
    "SELECT who FROM orders WHERE kind = 'a' INTERSECT SELECT person FROM people",
    "SELECT coalesce(o.who, p.person) AS person, o.id, p.land, p.person AS member, o.who AS buyer FROM orders o FULL "
    "JOIN people p ON o.who = p.person",
    "SELECT who, a.n, b.kind, b.qty FROM (SELECT who, count(*) AS n FROM orders WHERE qty > 6 GROUP BY who) a FULL "
    "JOIN (SELECT who, kind, qty FROM orders WHERE good) b USING (who)",
    "SELECT * FROM (SELECT who, kind, qty FROM orders WHERE good) FULL JOIN (SELECT who, kind, day FROM orders WHERE "
    "qty > 4) USING (who, kind)",
    "SELECT who, count(*) AS n, max(land) AS land FROM orders JOIN people ON who = person GROUP BY who",
    "WITH firsts AS (SELECT who, min(day) AS first FROM orders GROUP BY who) SELECT o.id, o.who, "
    "o.day - f.first AS age FROM orders o JOIN firsts f USING (who)",
    "SELECT * FROM orders LEFT JOIN (SELECT who, count(*) AS n FROM orders WHERE good GROUP BY who) USING (who)",
]
LISTS = [
    "SELECT id, who, unnest(tags) AS tag FROM baskets WHERE qty > 2",
    "SELECT o.id, o.who, u.tag, o.qty FROM baskets o, unnest(o.tags) AS u(tag) WHERE tag <> 'b'",
    "SELECT id, who, unnest(string_split(kind || ',z', ',')) AS part FROM baskets",
    "SELECT who, tag, count(*) AS n FROM (SELECT who, unnest(tags) AS tag FROM baskets) GROUP BY who, tag",
    "SELECT who, count(DISTINCT t) AS n FROM baskets CROSS JOIN unnest(tags) AS u(t) GROUP BY who",
]
EVERYTHING = [*GROUPS, *WINDOWS, *JOINS, *LISTS]


def database(orders=ORDERS, people=PEOPLE, threads=1):
    raw = duckdb.connect(config={"threads": threads})
    baskets = orders.join(TAGS, on="kind", how="left")
    for name, frame in {"orders": orders, "people": people, "baskets": baskets}.items():
        raw.register("given", frame.to_arrow())
        raw.execute(f"CREATE TABLE {name} AS FROM given")
    return raw


DEAREST = ORDERS.sort("paid")["who"].drop_nulls()[-1]


GONE = (DEAREST, 0)


@cache
def everybody():
    """Return the database that tests read."""
    return database()


@cache
def neighbour():
    """Return the database without two units, with its rows in another order and read by several threads."""
    orders = ORDERS.filter(~pl.col("who").is_in(GONE).fill_null(False)).sample(fraction=1, shuffle=True, seed=3)
    return database(orders, PEOPLE.filter(~pl.col("person").is_in(GONE).fill_null(False)).reverse(), threads=4)


@cache
def exact_rows(statement):
    """Return the exact rows of a statement about everybody."""
    return rows_of(guarded(everybody()), statement)


def guarded(raw):
    con = dp.connect(raw, dp.Session(epsilon=1, delta=1e-6, unit="who", max_groups=3, max_rows_per_group=5))
    return con.private("people", unit={"who": "person"})


def rows_of(con, statement):
    """Return the exact rows of a SELECT over private rows that have a unit, as a question would read them."""
    context = Context(statement, {}, con._parser, con._catalog())
    relation = private_relation(con._parser.select(statement), context)
    rows = with_units(relation.rows, relation.unit)
    frame = engine_for(rows).read(rows).filter(pl.all_horizontal(pl.col(*relation.unit).is_not_null()))
    (table,) = relation.tables
    shown = {name: one.name for name, one in table.columns.items() if isinstance(one, Column)}
    return frame.select(pl.col(own).alias(name) for name, own in shown.items())


def same_types(frame):
    """Return a frame in which wide integers and decimals have one type, sorted by all columns."""
    wide = [pl.col(name).cast(pl.Float64) for name, dtype in frame.schema.items() if dtype.is_numeric()]
    stamps = [pl.col(name).cast(pl.Datetime("us")) for name, dtype in frame.schema.items() if dtype.is_temporal()]
    return frame.with_columns(*wide, *stamps).sort(pl.all())


@pytest.fixture(scope="module")
def raw():
    yield everybody()
    everybody().close()
    everybody.cache_clear()
    exact_rows.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("statement", EVERYTHING)
def test_private_rows_are_those_of_plain_duckdb(raw, statement):
    found = exact_rows(statement)
    unit = "who" if "who" in found.columns else "person"
    expected = raw.sql(statement).pl().filter(pl.col(unit).is_not_null())
    assert_frame_equal(same_types(found), same_types(expected), rel_tol=1e-12)


def bits(frame):
    """Return the rows as texts that differ if a bit of a value does, sorted."""
    exact = [pl.col(name).map_elements(float.hex, pl.String) for name, kind in frame.schema.items() if kind.is_float()]
    return sorted(map(repr, frame.with_columns(*exact).rows()))


@pytest.mark.slow
@pytest.mark.parametrize("statement", EVERYTHING)
def test_a_unit_that_goes_leaves_the_others_rows_as_they_are(raw, statement):
    """Rows come in another order, from several threads, and the row with the largest value is among those gone.

    The others' rows depend on themselves alone, so two units can go at once.
    """
    whole = exact_rows(statement)
    unit = "who" if "who" in whole.columns else "person"
    left = whole.filter(~pl.col(unit).is_in(GONE))
    assert bits(rows_of(guarded(neighbour()), statement)) == bits(left)


REFUSED = [
    ("SELECT who, unnest(qty) AS x FROM baskets", "has the type Int64"),
    ("SELECT who, unnest(tags) AS a, unnest(tags) AS b FROM baskets", "stands by itself, once"),
    ("SELECT who, upper(unnest(tags)) AS a FROM baskets", "stands by itself, once"),
    ("SELECT DISTINCT who, unnest(tags) AS a FROM baskets", "Put this into a subquery"),
    ("SELECT id FROM baskets LEFT JOIN unnest(tags) AS u(t) ON true", "conditions on its rows in WHERE"),
    ("SELECT kind, count(*) AS n FROM orders GROUP BY kind", "GROUP BY without who"),
    ("SELECT count(*) AS n FROM orders", r"count\(\*\) combines the rows of all people.*dp_count\(\*\)"),
    ("SELECT who, kind, count(*) AS n FROM orders GROUP BY who", "kind is neither a key of GROUP BY"),
    ("SELECT who, count(*) AS n FROM orders GROUP BY ROLLUP (who)", "ROLLUP and CUBE are not supported within a unit"),
    ("SELECT who, first(qty) AS q FROM orders GROUP BY who", "Say what to sort by"),
    ("SELECT who, string_agg(kind) AS q FROM orders GROUP BY who", r"string_agg\(x, ',' ORDER BY day\)"),
    ("SELECT who, list(kind) AS q FROM orders GROUP BY who", "list is not among"),
    ("SELECT who, quantile_cont(qty, 1.5) AS q FROM orders GROUP BY who", "needs a share from 0 to 1"),
    ("SELECT who, quantile_cont(qty, [0.5]) AS q FROM orders GROUP BY who", "must be a constant"),
    ("SELECT who, stddev(kind) AS q FROM orders GROUP BY who", "does not take values of type String"),
    ("SELECT who, sum(DISTINCT qty) AS q FROM orders GROUP BY who", "DISTINCT"),
    ("SELECT who, sum(kind) AS q FROM orders GROUP BY who", "does not take values of type String"),
    ("SELECT who, sum(sum(qty)) AS q FROM orders GROUP BY who", "sum is not among"),
    ("SELECT row_number() OVER (ORDER BY day) AS r FROM orders", "PARTITION BY without who"),
    ("SELECT row_number() OVER (PARTITION BY kind ORDER BY day) AS r FROM orders", "PARTITION BY without who"),
    ("SELECT row_number() OVER (PARTITION BY who % 7 ORDER BY day) AS r FROM orders", "PARTITION BY without who"),
    ("SELECT row_number() OVER (PARTITION BY who) AS r FROM orders", "depends on the order of the rows"),
    ("SELECT ntile(0) OVER (PARTITION BY who ORDER BY day) AS r FROM orders", "must be a constant whole number from 1"),
    ("SELECT nth_value(qty, 2) OVER (PARTITION BY who ORDER BY day) AS r FROM orders", "not supported as a window"),
    (
        "SELECT sum(qty) OVER (PARTITION BY who ORDER BY day RANGE BETWEEN INTERVAL 1 MONTH PRECEDING AND CURRENT ROW) "
        "AS r FROM orders",
        "A month has no fixed length",
    ),
    (
        "SELECT sum(qty) OVER (PARTITION BY who ORDER BY day, id RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) AS r FROM "
        "orders",
        "ORDER BY with one column",
    ),
    (
        "SELECT sum(qty) OVER (PARTITION BY who ORDER BY paid RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) AS r FROM "
        "orders",
        "dates, timestamps or whole numbers",
    ),
    (
        "SELECT sum(qty) OVER (PARTITION BY who ORDER BY id GROUPS BETWEEN 3 PRECEDING AND CURRENT ROW) AS r FROM "
        "orders",
        "Frames by GROUPS",
    ),
    (
        "SELECT sum(qty) OVER (PARTITION BY kind ORDER BY day RANGE BETWEEN INTERVAL 3 DAY PRECEDING AND CURRENT ROW) "
        "AS r FROM orders",
        "PARTITION BY without who",
    ),
    (
        "SELECT sum(qty) OVER (PARTITION BY kind ORDER BY day ROWS 3 PRECEDING) AS r FROM orders",
        "PARTITION BY without who",
    ),
    ("SELECT last_value(qty) OVER (PARTITION BY who ORDER BY day) AS r FROM orders", "value of the row itself"),
    ("SELECT lag(qty IGNORE NULLS) OVER (PARTITION BY who ORDER BY day) AS r FROM orders", "ignore nulls"),
    ("SELECT DISTINCT kind FROM orders", "SELECT DISTINCT without who"),
    ("SELECT DISTINCT ON (kind) who, kind FROM orders", "DISTINCT ON without who"),
    ("SELECT who, day FROM orders ORDER BY day LIMIT 1", "below a private aggregation"),
    ("SELECT who, count(*) AS n FROM orders USING SAMPLE 10", "sample depends"),
    ("SELECT kind AS who, count(*) AS n FROM orders GROUP BY orders.who, kind", "can't give it to another"),
    ("SELECT o.id FROM orders o JOIN people p ON o.id = p.person", r"o\.who = p\.person"),
    ("SELECT o.id FROM orders o JOIN people p ON o.who + 0 = p.person", r"o\.who = p\.person"),
    ("SELECT o.id FROM orders o, people p WHERE o.who = p.person", "without ON"),
    ("SELECT o.id FROM orders o FULL JOIN people p ON o.who = p.person AND o.qty > 3", "Put other conditions into"),
    ("SELECT o.id FROM orders o FULL JOIN people p ON o.kind = p.land", "combined on the unit"),
    ("SELECT o.id FROM orders o LEFT JOIN people p ON o.who = p.person AND o.id > p.person", "inner JOIN"),
    ("SELECT id FROM orders WHERE id IN (SELECT person FROM people)", "combined on the unit"),
    ("SELECT id FROM orders WHERE who IN (SELECT qty FROM orders)", "combined on the unit"),
    ("SELECT id FROM orders WHERE who IN (SELECT person FROM people) OR qty > 3", "subquery inside an expression"),
    ("SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM people)", "combined on the unit"),
    ("SELECT id FROM orders o WHERE EXISTS (SELECT count(*) FROM people p WHERE p.person = o.who)", "plain query"),
    ("SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM people p WHERE p.person > o.who)", "for equality"),
    ("SELECT kind FROM orders EXCEPT SELECT land FROM people", "IN or NOT IN on the unit"),
    ("SELECT who FROM orders EXCEPT ALL SELECT person FROM people", "EXCEPT ALL of private rows is not supported"),
    ("SELECT who FROM orders INTERSECT SELECT person FROM people LIMIT 3", "make rows depend on others"),
    ("SELECT kind FROM orders UNION SELECT land FROM people", "UNION without ALL"),
    ("SELECT who, qty FROM orders UNION ALL SELECT person, land FROM people", "types Int64 and String"),
    ("SELECT p.person, count(*) AS n FROM orders o LEFT JOIN people p ON o.who = p.person GROUP BY 1", "without who"),
    ("SELECT who + 0 AS u, count(*) AS n FROM orders GROUP BY who + 0", "GROUP BY without who"),
]


@pytest.mark.parametrize(("statement", "message"), REFUSED)
def test_other_steps_are_refused_with_the_reason(raw, statement, message):
    with pytest.raises(dp.StatementNotAllowed, match=message):
        guarded(raw).preview(f"SELECT dp_count(*) FROM ({statement})", epsilon=0.1)


def test_without_units_of_several_rows_there_are_no_such_steps(raw):
    con = dp.connect(raw, dp.Session(epsilon=1, delta=1e-6, unit=dp.ROW))
    for step in ("SELECT who, count(*) AS n FROM orders GROUP BY who", "SELECT DISTINCT who FROM orders"):
        with pytest.raises(dp.StatementNotAllowed, match=r"dp\.ROW") as caught:
            con.preview(f"SELECT dp_count(*) FROM ({step})", epsilon=0.1)
        assert caught.value.code == "unit-step-of-rows"


def test_which_table_is_read_where_is_part_of_the_question():
    """Two tables with the same columns change places, or one is read twice in place of the other."""
    raw = duckdb.connect()
    for name, units in {"a": 900, "b": 400}.items():
        raw.execute(f"CREATE TABLE {name} AS SELECT i AS who FROM range({units}) t(i)")
    con = dp.connect(raw, dp.Session(epsilon=1, unit="who", max_rows_per_group=1))
    ask = "SELECT dp_count(*) AS n FROM {} ANTI JOIN {} USING (who)"
    keys = set()
    for first, second in (("a", "b"), ("b", "a"), ("a", "a")):
        (one,) = con._planned(ask.format(first, second), {}, {"epsilon": 0.1}).queries
        keys.add((one.plan.fingerprint(), one.identity()))
    (one,) = con._planned(ask.format("a", "b"), {}, {"epsilon": 0.1}).queries
    assert len(keys) == 3
    assert (one.plan.fingerprint(), one.identity()) in keys
    raw.close()


def test_a_unit_of_several_columns_is_compared_as_a_whole():
    raw = duckdb.connect()
    raw.execute("CREATE TABLE a AS SELECT i % 30 AS who, i % 7 AS day, i AS x FROM range(400) t(i)")
    raw.execute("CREATE TABLE b AS SELECT i % 7 AS d, i % 30 AS w FROM range(60) t(i)")
    con = dp.connect(raw, dp.Session(epsilon=1, delta=1e-6, unit=["who", "day"]))
    con.private("b", unit={"day": "d", "who": "w"})
    text = "SELECT a.who, a.day, a.x FROM a JOIN b ON b.d = a.day AND b.w = a.who"
    assert_frame_equal(same_types(rows_of(con, text)), same_types(raw.sql(text).pl()))
    with pytest.raises(dp.StatementNotAllowed, match=r"a\.day = b\.d"):
        rows_of(con, "SELECT a.x FROM a JOIN b ON b.w = a.who")
    with pytest.raises(dp.StatementNotAllowed, match="GROUP BY without day"):
        rows_of(con, "SELECT who, count(*) AS n FROM a GROUP BY who")
    raw.close()


def test_the_plan_derives_that_a_unit_has_one_row(raw):
    con = guarded(raw)
    plan = con.preview("SELECT dp_count(*) FROM (SELECT who, count(*) AS n FROM orders GROUP BY who)", epsilon=0.1)
    assert "one row per unit" in str(plan)
    assert "cut off  " not in str(plan)


def test_statements_with_other_steps_are_other_questions(raw):
    con = guarded(raw)
    texts = [
        "SELECT dp_count(*) AS n FROM orders",
        "SELECT dp_count(*) AS n FROM (SELECT who FROM orders GROUP BY who)",
        "SELECT dp_count(*) AS n FROM (SELECT who FROM orders GROUP BY who, kind)",
        "SELECT dp_count(*) AS n FROM (SELECT who FROM orders GROUP BY who HAVING count(*) > 1)",
        "SELECT dp_count(*) AS n FROM (SELECT who FROM orders WHERE qty > 1 GROUP BY who)",
        "SELECT dp_count(*) AS n FROM (SELECT DISTINCT who, kind FROM orders)",
        "SELECT dp_count(*) AS n FROM (SELECT DISTINCT who, qty FROM orders)",
    ]
    assert len({con.preview(text, epsilon=0.01).fingerprint() for text in texts}) == len(texts)
    assert con.preview(texts[1], epsilon=0.01).fingerprint() == con.preview(texts[1], epsilon=0.01).fingerprint()


# ---------------------------------------------------------------------- units through another table

LINES = pl.DataFrame(
    {
        "order_no": pl.Series(GENERATOR.integers(0, N + 30, 900)).cast(pl.Int32),
        "line": np.arange(900),
        "cost": GENERATOR.gamma(2, 10, 900),
    }
)
PARCELS = pl.DataFrame({"line": GENERATOR.integers(0, 950, 400), "weight": GENERATOR.integers(1, 9, 400)})
LABELLED = {
    "lines": "SELECT l.*, o.who FROM lines l JOIN orders o ON o.id = l.order_no",
    "parcels": "SELECT p.*, o.who FROM parcels p JOIN lines l USING (line) JOIN orders o ON o.id = l.order_no",
}
THROUGH = [
    "SELECT who, line, cost FROM lines",
    "SELECT who, sum(cost) AS s, count(*) AS n FROM lines GROUP BY who",
    "SELECT o.who, o.kind, l.line FROM orders o JOIN lines l ON o.id = l.order_no WHERE o.qty > 2",
    "SELECT o.who, o.id, l.line FROM orders o LEFT JOIN lines l ON o.id = l.order_no",
    "SELECT who, id FROM orders WHERE id IN (SELECT order_no FROM lines WHERE cost > 20)",
    "SELECT l.who, l.line, p.weight FROM lines l JOIN parcels p USING (line)",
    "SELECT who, max(weight) AS w FROM parcels GROUP BY who",
]


def shop(gone=None):
    """Return a database in which lines have their orders' units and parcels those of their lines."""
    raw = duckdb.connect()
    owners = dict(ORDERS.select("id", "who").iter_rows())
    keep = pl.Series([gone is None or owners.get(one) != gone for one in LINES["order_no"]])
    lines, left = LINES.filter(keep), set(LINES.filter(~keep)["line"])
    frames = {
        "orders": ORDERS if gone is None else ORDERS.filter(pl.col("who").ne_missing(gone)).reverse(),
        "lines": lines if gone is None else lines.sample(fraction=1, shuffle=True, seed=4),
        "parcels": PARCELS.filter(~pl.col("line").is_in(left)),
    }
    keys = {"orders": "id", "lines": "line"}
    for name, frame in frames.items():
        raw.register("given", frame.to_arrow())
        raw.execute(f"CREATE TABLE {name} AS FROM given")
        if name in keys:
            raw.execute(f"ALTER TABLE {name} ADD PRIMARY KEY ({keys[name]})")
    return raw


def guarded_shop(raw):
    con = dp.connect(raw, dp.Session(epsilon=1, delta=1e-6, unit="who", max_groups=3, max_rows_per_group=5))
    con.private("lines", through="orders", on={"order_no": "id"})
    return con.private("parcels", through="lines", on="line")


@pytest.mark.slow
@pytest.mark.parametrize("statement", THROUGH)
def test_rows_get_the_unit_of_the_row_that_their_key_leads_to(statement):
    raw = shop()
    found = rows_of(guarded_shop(raw), statement)
    for name, text in LABELLED.items():
        raw.execute(f"CREATE TABLE labelled_{name} AS {text}")
    plain = statement.replace("FROM lines", "FROM labelled_lines").replace("JOIN lines", "JOIN labelled_lines")
    plain = plain.replace("FROM parcels", "FROM labelled_parcels").replace("JOIN parcels", "JOIN labelled_parcels")
    expected = raw.sql(plain).pl().filter(pl.col("who").is_not_null())
    assert_frame_equal(same_types(found), same_types(expected), rel_tol=1e-12)
    other = shop(gone=DEAREST)
    assert bits(rows_of(guarded_shop(other), statement)) == bits(found.filter(pl.col("who") != DEAREST))
    raw.close()
    other.close()


@pytest.mark.slow
@pytest.mark.parametrize("statement", THROUGH[:3])
def test_units_of_another_table_are_the_same_when_rows_are_read_in_parts(statement):
    raw = shop()
    con = guarded_shop(raw)
    relation = private_relation(con._parser.select(statement), Context(statement, {}, con._parser, con._catalog()))
    rows = with_units(relation.rows, relation.unit)
    whole, in_parts = (read_rows(without_unit_steps(rows, parts)) for parts in (1, 3))
    assert whole.height
    assert bits(whole) == bits(in_parts.select(whole.columns))
    raw.close()


def test_a_key_that_is_not_unique_neither_fails_nor_loses_rows():
    """The smallest unit gets the rows, in whichever order they are stored."""
    for order in ("ASC", "DESC"):
        raw = duckdb.connect()
        values = "(VALUES (1, 7), (1, 3), (2, 9), (2, NULL)) t(id, who)"
        raw.execute(f"CREATE TABLE orders AS FROM {values} ORDER BY who {order}")
        raw.execute("CREATE TABLE lines AS FROM (VALUES (1, 'a'), (1, 'b'), (2, 'c'), (5, 'd'), (NULL, 'e')) t(id, x)")
        con = dp.connect(raw, dp.Session(epsilon=1, delta=1e-6, unit="who"))
        con.private("lines", through="orders", on="id", unique=True)
        assert rows_of(con, "SELECT who, x FROM lines").sort("x").rows() == [(3, "a"), (3, "b"), (9, "c")]
        raw.close()


def test_that_a_key_is_unique_is_a_constraint_or_the_owners_word():
    raw = duckdb.connect()
    raw.execute("CREATE TABLE orders (id INTEGER, who INTEGER)")
    raw.execute("CREATE TABLE lines (id INTEGER, x INTEGER)")
    con = dp.connect(raw, dp.Session(epsilon=1, delta=1e-6, unit="who", max_rows_per_group=3))
    with pytest.raises(dp.InvalidParameterError, match="no PRIMARY KEY or UNIQUE constraint on id"):
        con.private("lines", through="orders", on="id")
    ask = "SELECT dp_count(*) AS n FROM lines"
    con.private("lines", through="orders", on="id", unique=True)
    assert "word" in str(con.preview(ask, epsilon=0.1))
    raw.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
    con.private("lines", through="orders", on="id")
    plan = str(con.preview(ask, epsilon=0.1))
    assert "units through id" in plan
    assert "word" not in plan
    raw.execute("CREATE OR REPLACE TABLE orders (id INTEGER, who INTEGER)")
    with pytest.raises(dp.StatementNotAllowed, match="no longer has a PRIMARY KEY"):
        con.preview(ask, epsilon=0.1)
    raw.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"through": "orders"}, "on= the columns"),
        ({"on": "id"}, "through= names the table"),
        ({"through": "orders", "on": "id", "unit": "who"}, "takes the place of unit="),
        ({"through": "orders", "on": "nothing"}, "lines has no column nothing"),
        ({"through": "orders", "on": {"x": "nothing"}}, "orders has no column nothing"),
        ({"through": "lines", "on": "id", "unique": True}, "would stand in lines itself"),
        ({"through": "nowhere", "on": "id"}, "no table nowhere"),
    ],
)
def test_a_path_to_the_unit_that_leads_nowhere_is_refused(words, message):
    raw = duckdb.connect()
    raw.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, who INTEGER)")
    raw.execute("CREATE TABLE lines (id INTEGER, x INTEGER)")
    con = dp.connect(raw, dp.Session(epsilon=1, unit="who"))
    with pytest.raises(dp.InvalidParameterError, match=message):
        con.private("lines", **words)
    raw.close()


def test_a_table_without_the_unit_is_told_of_paths(raw):
    raw.execute("CREATE OR REPLACE TABLE lines (id INTEGER, x INTEGER)")
    with pytest.raises(dp.StatementNotAllowed, match=r"con\.private\('lines', through='that table', on='its key'\)"):
        guarded(raw).preview("SELECT dp_count(*) FROM lines", epsilon=0.1)


# ---------------------------------------------------------------------- what a plan says


def test_a_plan_names_the_steps_and_says_that_a_rerun_is_a_new_question(raw):
    con = guarded(raw)
    plan = str(con.preview(
        "SELECT dp_count(*) FROM (SELECT who, count(*) AS n FROM orders JOIN people ON who = person "
        "WHERE day < current_date GROUP BY who)", epsilon=0.1,
    ))  # fmt: skip
    assert "inner join on who" in plan
    assert "rows grouped by who" in plan
    assert "a rerun is a new question" in plan
    assert "rerun" not in str(con.preview("SELECT dp_count(*) FROM orders WHERE day < DATE '2024-01-01'", epsilon=0.1))


def test_the_number_of_distinct_units_is_the_number_of_units(raw):
    con = guarded(raw)
    units = con.preview("SELECT dp_count_units() AS n FROM orders", epsilon=0.1)
    for text in ("dp_count_distinct(who)", "dp_count(DISTINCT who)", "dp_count_distinct(orders.who)"):
        assert con.preview(f"SELECT {text} AS n FROM orders", epsilon=0.1).fingerprint() == units.fingerprint()


def test_groupings_share_the_spend_of_the_statement(raw):
    con = guarded(raw)
    text = "SELECT kind, good, dp_count_units() AS n FROM orders GROUP BY CUBE (kind, good) ORDER BY n"
    plans = con.preview(text, epsilon=0.4, max_groups=8)
    assert [len(plan.query.keys) for plan in plans] == [0, 1, 2, 1]
    assert sum(plan.cost.epsilon for plan in plans) <= 0.4 + 1e-12


def test_columns_may_be_written_with_their_schema(raw):
    con = guarded(raw)
    short = con.preview("SELECT kind, dp_count_units() AS n FROM orders WHERE qty > 1 GROUP BY kind", epsilon=0.1)
    long = con.preview(
        'SELECT "main"."orders"."kind", dp_count_units() AS n FROM "main"."orders" WHERE main.orders.qty > 1 '
        "GROUP BY memory.main.orders.kind", epsilon=0.1,
    )  # fmt: skip
    assert short.fingerprint() == long.fingerprint()


def test_a_key_that_is_a_function_of_the_unit_gives_one_group(raw):
    """A unit changes the one arm that its own name decides, so the cap is 1, whatever the session says."""
    con = guarded(raw)
    arm = "SELECT md5_number_lower(who::VARCHAR) % 2 AS arm, dp_count_units({keys}) AS n FROM orders GROUP BY arm"
    plan = con.preview(arm.format(keys="keys := [0, 1]"), epsilon=0.5)
    assert "functions of the unit" in str(plan)
    half = "SELECT dp_count(*, keys := [('0', 'a')]) AS n FROM orders GROUP BY substr(md5(who::VARCHAR), 1, 1), kind"
    assert "functions of the unit" not in str(con.preview(half, epsilon=0.5))  # a unit may have several kinds
    for statement, message in (
        (arm.format(keys=""), r"list them with keys := "),
        ("SELECT who, dp_count(*, keys := [1]) AS n FROM orders GROUP BY who", "every group would be one person"),
        ("SELECT dp_count(*, keys := [1]) AS n FROM orders GROUP BY who + qty", "every group would be one person"),
        (
            "SELECT dp_count(*, keys := [1]) AS n FROM people LEFT JOIN orders ON who = person GROUP BY who % 2",
            "every group would be one person",
        ),
    ):
        with pytest.raises(dp.DPError, match=message):
            con.preview(statement, epsilon=0.5)


@pytest.mark.slow
def test_units_of_arms_add_up():
    raw = duckdb.connect()
    raw.execute("CREATE TABLE visits AS SELECT range % 2000 AS who FROM range(6000)")
    con = dp.connect(raw, dp.Session(epsilon=9, delta=1e-6, unit="who"))
    asked = "SELECT md5_number_lower(who::VARCHAR) % 4 AS arm, {} AS n FROM visits GROUP BY arm ORDER BY arm"
    found = con.sql(asked.format("dp_count_units(keys := [0, 1, 2, 3])"), epsilon=8).fetchall()
    wanted = raw.sql(asked.format("count(DISTINCT who)")).fetchall()
    assert [arm for arm, _ in found] == [0, 1, 2, 3]
    assert all(abs(n - count) < 4 for (_, n), (_, count) in zip(found, wanted, strict=True))  # else 1e-12


@pytest.mark.slow
def test_a_long_list_becomes_as_many_rows_as_the_plan_says():
    """Only that row's unit is cut, and nothing else changes, whoever else has a long list."""
    raw = duckdb.connect()
    raw.execute(
        "CREATE TABLE visits AS SELECT i AS who, range(CASE i WHEN 3 THEN 5000 ELSE 2 END) AS l FROM range(9) t(i)"
    )
    con = dp.connect(raw, dp.Session(epsilon=1, delta=1e-6, unit="who", max_rows_per_group=5))
    found = rows_of(con, "SELECT who, unnest(l) AS x FROM visits")
    assert dict(found.group_by("who").len().rows()) == {who: 100 if who == 3 else 2 for who in range(9)}
    assert found.filter(pl.col("who") == 3)["x"].sort().to_list() == list(range(100))
    plan = str(con.preview("SELECT dp_count(*) FROM visits, unnest(l) AS u(x) WHERE x > 3", epsilon=0.5))
    assert "a row for each of up to 100 elements of l" in plan
    rows = dp.connect(raw, dp.Session(epsilon=1, unit=dp.ROW))
    with pytest.raises(dp.DPError, match="every row is a person"):
        rows.preview("SELECT dp_count(*) FROM visits, unnest(l) AS u(x)", epsilon=0.5)


SPILLED = {
    "groups": "(SELECT who, count(*) AS n, sum(x) AS t FROM seen GROUP BY who) WHERE t > 40",
    "groups by key": "(SELECT who, k, max(x) AS n FROM seen GROUP BY who, k) WHERE n > 0.9",
    "windows": "(SELECT who, x - lag(x) OVER (PARTITION BY who ORDER BY day, x) AS n FROM seen) WHERE n > 0",
    "frames": "(SELECT who, sum(x) OVER (PARTITION BY who ORDER BY day RANGE BETWEEN INTERVAL 7 DAYS PRECEDING AND "
    "CURRENT ROW) AS n FROM seen) WHERE n > 2",
    "first rows": "(SELECT who, k FROM seen QUALIFY row_number() OVER (PARTITION BY who ORDER BY day, x) <= 3) WHERE k "
    "< 2",
    "distinct rows": "(SELECT DISTINCT who, k, day FROM seen) WHERE k = 1",
    "a join": "seen s JOIN people p ON s.who = p.who WHERE p.land = 'x' AND s.x > 0.25",
    "no join": "seen WHERE who NOT IN (SELECT who FROM people WHERE land = 'x')",
    "a union": "(SELECT who FROM seen WHERE x > 0.5 UNION ALL SELECT who FROM people)",
}  # fmt: skip


@pytest.fixture(scope="module")
def spilling(tmp_path_factory):
    """Return a database whose memory limit is far below its tables, and plain and guarded connections to it."""
    folder = tmp_path_factory.mktemp("spilling")
    raw = duckdb.connect(str(folder / "rows.duckdb"))
    raw.execute(
        "CREATE TABLE seen AS SELECT hash(i) % 2000 AS who, (hash(i + 1) % 3)::INT AS k, (hash(i + 2) % 1000) / 1000.0 "
        "AS x, DATE '2024-01-01' + (hash(i + 3) % 90)::INT AS day FROM range(200000) t(i)"
    )
    raw.execute(
        "CREATE TABLE people AS SELECT who::UBIGINT AS who, ['x', 'y'][who % 2 + 1] AS land FROM range(2500) t(who)"
    )
    raw.execute("CHECKPOINT")
    size = (folder / "rows.duckdb").stat().st_size
    raw.execute(f"SET temp_directory = '{folder / 'spilled'}'")
    with pytest.warns(dp.DPWarning):
        session = dp.Session(epsilon=10**6, unit="who", max_rows_per_group=300)
    yield raw, dp.connect(raw, session), size
    raw.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", SPILLED)
def test_steps_over_more_rows_than_fit_into_memory_give_the_same_answers(spilling, monkeypatch, name):
    """At a huge epsilon an answer is the truth (but for a chance of e**-33), in one part and in several."""
    raw, con, size = spilling
    called = []
    honest = engine.without_unit_steps

    def counted(rows, parts=1):
        called.append(parts)
        return honest(rows, parts)

    monkeypatch.setattr(engine, "without_unit_steps", counted)
    wanted = raw.execute(f"SELECT count(*) FROM {SPILLED[name]}").fetchall()
    for share in (100, 0.9):
        raw.execute(f"SET memory_limit = '{size * share:.0f}B'")
        found = con.sql(f"SELECT dp_count(*) AS n FROM {SPILLED[name]}", epsilon=10**4, fresh=True).fetchall()
        assert found == wanted
    raw.execute("RESET memory_limit")
    assert called[0] == 1
    assert called[-1] > 1
