"""On a connection with a policy, plain SQL over private rows is private SQL."""

import pytest

import dp_polars as dp
from dp_polars._plan.plan import Plan
from dp_polars._sql.allowed_functions import AGGREGATES, PLAIN_AGGREGATES
from dp_polars._sql.plain_sql import PLAIN
from tests.policy.shop import POLICY, orders, write_shop

pytestmark = pytest.mark.filterwarnings("ignore:epsilon=:dp_polars.errors.DPWarning")  # little noise, on purpose


@pytest.fixture(scope="module")
def con(tmp_path_factory):
    return dp.connect(dp.Policy.load(write_shop(tmp_path_factory.mktemp("shop"))))


def kinds(con, statement):
    plans = con.preview(statement, epsilon=1)
    plans = [plans] if isinstance(plans, Plan) else plans
    return [aggregate.kind for plan in plans for aggregate in plan.query.aggregates]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("COUNT(*)", "count"), ("count(total)", "count"), ("COUNT(DISTINCT customer_id)", "count_units"),
        ("COUNT(DISTINCT status)", "n_unique"), ("approx_count_distinct(status)", "n_unique"), ("SUM(total)", "sum"),
        ("AVG(total)", "mean"), ("MIN(total)", "min"), ("MAX(total)", "max"), ("MEDIAN(total)", "median"),
        ("VAR_SAMP(total)", "var"), ("VAR_POP(total)", "var"), ("STDDEV(total)", "std"), ("stddev_pop(total)", "std"),
        ("QUANTILE_CONT(total, 0.9)", "quantile"), ("CORR(total, weight)", "corr"), ("COVAR_POP(total, weight)", "cov"),
        ("COVAR_SAMP(total, weight)", "cov"), ("REGR_SLOPE(total, weight)", "linear_regression"),
        ("REGR_INTERCEPT(total, weight)", "linear_regression"), ("AVG(orders.total) FILTER (WHERE total > 5)", "mean"),
    ],
)  # fmt: skip
def test_an_aggregate_means_the_private_one(con, written, meant):
    assert kinds(con, f"SELECT {written} AS answer FROM orders") == [meant]


def test_every_plain_name_is_an_aggregate_of_duckdb_and_means_private_ones():
    assert {name.split()[0] for name in PLAIN} <= PLAIN_AGGREGATES
    assert all(any(private in meant for private in AGGREGATES) for meant in PLAIN.values())


@pytest.mark.slow
def test_answers_are_close_to_those_of_duckdb(con):
    """Noise of epsilon 1 per statement is far below the tolerances: a false alarm has a probability below 1e-6."""
    rows = con.sql(
        "SELECT status, COUNT(*) AS n, COUNT(DISTINCT customer_id) AS people FROM orders GROUP BY status ORDER BY 1",
        epsilon=4,
    ).fetchall()
    assert [status for status, _, _ in rows] == ["new", "paid"]
    assert all(abs(n - 4_500) < 300 and abs(people - 1_500) < 100 for _, n, people in rows)
    slope, intercept = con.sql(
        "SELECT REGR_SLOPE(total, weight), REGR_INTERCEPT(total, weight) FROM orders", epsilon=8
    ).fetchall()[0]
    assert abs(slope - 10) < 2
    assert abs(intercept) < 10


def test_columns_have_the_names_that_duckdb_gives_them(con):
    assert con.sql("SELECT COUNT(*), avg(total) FROM orders", epsilon=1).columns == ["count_star()", "avg(total)"]
    query = "SELECT sum(total) / count(*), round(avg(weight), 1) AS w, 100 * COUNT(*) FROM orders"
    listed = con.sql(query, epsilon=1).columns
    assert listed == ["(sum(total) / count_star())", "w", "(100 * count_star())"]


def test_having_order_and_expressions_use_the_same_answers(con):
    statement = (
        "SELECT status, 100 * COUNT(*) / SUM(COUNT(*)) OVER () AS part FROM orders GROUP BY status "
        "HAVING COUNT(*) > 5 ORDER BY COUNT(*) DESC LIMIT 1"
    )
    assert kinds(con, statement) == ["count"]
    assert con.sql(statement, epsilon=1).columns == ["status", "part"]


def test_a_group_by_with_the_unit_combines_rows_of_one_person(con):
    statement = "SELECT AVG(n) FROM (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY {key}) WHERE n < 10"
    for key in ("customer_id", "1", "ALL"):
        with pytest.raises(dp.InvalidParameterError, match="needs bounds for n"):
            con.preview(statement.format(key=key), epsilon=1)
    plan = con.preview(statement.format(key="ALL").replace("AVG(n)", "dp_avg(n, 0, 10)"), epsilon=1)
    assert plan.query.max_rows == 1


def test_aggregates_over_public_rows_and_over_answers_are_ordinary(con):
    assert con.sql("SELECT COUNT(*), MAX(code) FROM regions").fetchall() == [(2, "b")]
    statement = "SELECT COUNT(*), SUM(n) FROM (SELECT status, COUNT(*) AS n FROM orders GROUP BY status)"
    assert kinds(con, statement) == ["count"]
    assert con.sql(statement, epsilon=1).fetchall()[0][0] == 2


def test_a_path_to_the_unit_and_joins_with_public_rows(con):
    assert kinds(con, "SELECT SUM(price), COUNT(DISTINCT customer_id) FROM items") == ["sum", "count_units"]
    joined = "SELECT AVG(total) FROM orders JOIN regions ON region = code WHERE name = 'North'"
    assert kinds(con, joined) == ["mean"]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT AVG(order_id) FROM orders", r"columns.order_id.bounds = \[0, 100\]"),
        ("SELECT email, COUNT(*) FROM orders GROUP BY email", "email may not be asked"),
        ("SELECT SUM(DISTINCT total) FROM orders", "no private form"),
        ("SELECT string_agg(status) FROM orders", "string_agg combines the rows of all people"),
        ("SELECT MIN(total), mode(status) FROM orders", "neither a key"),
        ("SELECT total, COUNT(*) OVER () FROM orders", "."),
        ("SELECT SUM(AVG(total)) FROM orders", "."),
        ("SELECT customer_id, COUNT(*) FROM orders GROUP BY customer_id", "show private rows"),
        ("SELECT * FROM orders", "show private rows"),
        ("SELECT COUNT(*) FROM orders WHERE total > (SELECT AVG(total) FROM orders)", "."),
        ("SELECT quantile_cont(total) FROM orders", "takes 2 arguments"),
    ],
)  # fmt: skip
def test_what_has_no_private_meaning_is_refused(con, statement, words):
    before = len(con._session.releases)
    with pytest.raises(dp.DPError, match=words):
        con.sql(statement, epsilon=1)
    assert len(con._session.releases) == before


def test_without_a_policy_plain_aggregates_are_refused():
    plain = dp.connect(None, dp.Session(epsilon=1.0, unit="customer_id"))
    plain.register("orders", orders())
    with pytest.raises(dp.StatementNotAllowed, match="dp_count"):
        plain.sql("SELECT COUNT(*) FROM orders", epsilon=0.1)


def test_the_spend_is_an_option_of_the_statement_or_of_the_connection(tmp_path):
    policy = dp.Policy.load(write_shop(tmp_path, POLICY.replace("queries = 100", "")))
    statement = "SELECT COUNT(*) FROM orders"
    with pytest.raises(dp.InvalidParameterError, match="needs a spend"):
        policy.connect().preview(statement)
    con = policy.connect(share=0.02)
    assert con.preview(statement).cost.epsilon == 2
    assert con.preview(statement, share=0.01).cost.epsilon == 1
    assert con.sql("SELECT COUNT(*) FROM regions").fetchall() == [(2,)]


def test_a_missing_cap_is_refused_with_the_line_to_add(tmp_path):
    policy = dp.Policy.load(write_shop(tmp_path, POLICY.replace("max_rows_per_group = 6", "")))
    for ask in (lambda: policy.connect().preview("SELECT COUNT(*) FROM items"), policy.scan("items").preview.count):
        with pytest.raises(dp.InvalidParameterError, match=r"\[tables.items\]: max_rows_per_group = 10"):
            ask()


WITHOUT = """\
unit = "customer_id"
[budget]
epsilon = 100.0
queries = 100
[tables.orders]
source = "orders.parquet"
public = false
"""


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT AVG(weight) FROM orders",
        "SELECT CORR(total, weight) FROM orders",
        "SELECT status, COUNT(*) FROM orders GROUP BY status",
        "SELECT status, region, COUNT(*) FROM orders GROUP BY ALL",
        "SELECT order_id, COUNT(DISTINCT customer_id) FROM orders GROUP BY order_id",
    ],
)
def test_a_refusal_ends_with_the_line_that_the_owner_may_add(tmp_path, statement):
    """Each refusal names one line. With all of them below the header of the table, the statement is answered."""
    path, added = write_shop(tmp_path, WITHOUT), []
    for _ in range(6):
        lines = WITHOUT.splitlines()
        path.write_text("\n".join([*lines[:5], *added, *lines[5:]]))
        refusal = refused(path, statement)
        if refusal is None:
            break
        _, line = refusal.split("adds below [tables.orders]: ")
        added.append(line)
    assert added
    assert refusal is None


def refused(path, statement):
    try:
        dp.Policy.load(path).connect(analyst="team-a").sql(statement)
    except dp.DPError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("statement", "labels"),
    [
        ("SELECT status, COUNT(*), AVG(total) FROM orders GROUP BY status",
         [("count(*)", "a private answer"), ("avg(total)", "a private answer")]),
        ("SELECT AVG(n) FROM (SELECT status, COUNT(*) AS n FROM orders GROUP BY status)",
         [("count(*)", "a private answer"), ("avg(n)", "ordinary, over answers")]),
        ("SELECT COUNT(*) FROM (SELECT customer_id, SUM(total) AS s FROM orders GROUP BY customer_id) WHERE s > 50",
         [("sum(total)", "a step within one unit"), ("count(*)", "a private answer")]),
        ("SELECT MAX(code) FROM regions", [("max(code)", "ordinary, over public rows")]),
        ("SELECT status, COUNT(*) AS n, SUM(COUNT(*)) OVER () AS all_of_them FROM orders GROUP BY status",
         [("count(*)", "a private answer"), ("sum(count_star()) OVER ()", "ordinary, over answers")]),
        ("SELECT COUNT(*) FROM (SELECT *, row_number() OVER (PARTITION BY customer_id ORDER BY order_id) AS place "
         "FROM orders) WHERE place = 1",
         [("row_number() OVER (PARTITION BY customer_id ORDER BY orde...", "a step within one unit"),
          ("count(*)", "a private answer")]),
        ("SELECT COUNT(*) - (SELECT COUNT(*) FROM regions) AS n FROM orders",
         [("count(*)", "a private answer"), ("count(*)", "ordinary, over public rows")]),
    ],
)  # fmt: skip
def test_a_preview_labels_each_aggregate(con, statement, labels):
    shown = con.preview(statement, **({} if "regions" in statement and "orders" not in statement else {"epsilon": 1}))
    assert [(text.replace('"', ""), what) for text, what in shown.statement] == labels
    for text, what in shown.statement:
        assert f"{text} is {what}".split()[0] in str(shown)
        assert what.split(",")[0] in str(shown)


def test_a_semi_join_keeps_the_caps_of_its_table(con):
    inside = "customer_id IN (SELECT customer_id FROM orders WHERE total > 70)"
    for condition in (inside, f"NOT {inside}"):
        plan = con.preview(f"SELECT COUNT(*) FROM orders WHERE {condition}", epsilon=1)
        assert dict(plan.rows())["rows per unit and group"] == "3 (max_rows_per_group of the policy)"
    with pytest.raises(dp.InvalidParameterError, match="needs a cap"):
        con.preview("SELECT COUNT(*) FROM orders JOIN items USING (order_id)", epsilon=1)
    assert con.preview("SELECT COUNT(*) FROM orders JOIN items USING (order_id)", epsilon=1, max_rows_per_group=6)


def test_a_refusal_speaks_of_plain_aggregates(con):
    with pytest.raises(dp.StatementNotAllowed, match=r"private here: COUNT\(\*\), SUM\(x\)"):
        con.sql("SELECT email FROM items")
