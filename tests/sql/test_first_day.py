"""The statements of an analyst's first day with a shop: each gets the answer of plain DuckDB, or a reason.

Customers, orders and line items are private, and products are public. The unit is a customer. With almost no noise and
caps that cut nothing, an answer equals that of the same statement with the plain aggregates.
"""

import re
from datetime import UTC, date, datetime, timedelta

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dp

TODAY = datetime.now(UTC).date()
GENERATOR = np.random.default_rng(77)
PEOPLE, ORDERS, LINES = 240, 700, 1500
COUNTRIES = ["AT", "DE", "FR"]
STATUSES = ["open", "paid", "sent"]
CATEGORIES = ["book", "game", "tool"]


def shop():
    """Return the four tables. Some customers have no orders, some orders have no customer, and no two days tie."""
    ordering = GENERATOR.integers(0, PEOPLE - 40, ORDERS)
    customers = pl.DataFrame(
        {
            "customer_id": np.arange(PEOPLE),
            "country": pl.Series(COUNTRIES).gather(GENERATOR.integers(0, 3, PEOPLE)),
            "signup": [date(2024, 1, 1) + timedelta(days=int(one)) for one in GENERATOR.integers(0, 300, PEOPLE)],
        }
    )
    orders = pl.DataFrame(
        {
            "order_id": np.arange(1000, 1000 + ORDERS),
            "customer_id": pl.Series(ordering).set(pl.Series(np.arange(ORDERS) % 50 == 0), None),
            "day": [date(2024, 1, 1) + timedelta(days=int(one)) for one in GENERATOR.permutation(ORDERS)],
            "status": pl.Series(STATUSES).gather(GENERATOR.integers(0, 3, ORDERS)),
            "total": np.round(GENERATOR.gamma(2, 60, ORDERS), 2).clip(0, 900),
        }
    )
    products = pl.DataFrame(
        {"product_id": range(12), "category": [CATEGORIES[one % 3] for one in range(12)], "weight": range(1, 13)}
    )
    lineitems = pl.DataFrame(
        {
            "order_id": GENERATOR.integers(1000, 1000 + ORDERS + 20, LINES),
            "product_id": GENERATOR.integers(0, 12, LINES),
            "qty": GENERATOR.integers(1, 6, LINES),
            "price": np.round(GENERATOR.gamma(2, 10, LINES), 2).clip(0, 90),
        }
    )
    return {"customers": customers, "orders": orders, "products": products, "lineitems": lineitems}


ANSWERED = {
    "orders per customer": "SELECT dp_avg(n, 0, 40) AS orders "
    "FROM (SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id)",
    "how many customers have how many orders": "SELECT n, dp_count(*, keys := [1, 2, 3, 4, 5, 6]) AS customers FROM "
    "(SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id) WHERE n <= 6 GROUP BY n ORDER BY n",
    "repeat buyers": "WITH buyers AS (SELECT customer_id FROM orders GROUP BY customer_id HAVING count(*) >= 2) "
    "SELECT dp_count(*) AS repeat_buyers FROM buyers",
    "share of customers with three orders or more": "SELECT dp_count(*) FILTER (WHERE n >= 3) / dp_count(*) AS share "
    "FROM (SELECT customer_id, count(*) AS n FROM orders GROUP BY 1)",
    "customers without orders": "SELECT dp_count(*) AS n FROM customers c "
    "LEFT JOIN orders o ON o.customer_id = c.customer_id WHERE o.customer_id IS NULL",
    "average order value per customer": "SELECT dp_avg(value, 0, 900) AS v "
    "FROM (SELECT customer_id, avg(total) AS value FROM orders WHERE status <> 'open' GROUP BY customer_id)",
    "cohorts by the month of the first order": "WITH firsts AS (SELECT customer_id, min(day) AS day FROM orders "
    "GROUP BY customer_id) SELECT date_trunc('month', day) AS cohort, dp_count(*) AS n FROM firsts "
    "WHERE day < DATE '2024-07-01' GROUP BY cohort ORDER BY cohort",
    "retention in the first month": """
        WITH firsts AS (SELECT customer_id, min(day) AS first FROM orders GROUP BY customer_id),
             later AS (SELECT DISTINCT f.customer_id FROM firsts f JOIN orders o USING (customer_id)
                       WHERE date_diff('month', f.first, o.day) = 1)
        SELECT dp_count_units() AS retained FROM later""",
    "days between the first and the second order": """
        SELECT dp_avg(gap, 0, 700) AS days FROM (
            SELECT customer_id, day - lag(day) OVER (PARTITION BY customer_id ORDER BY day) AS gap,
                   row_number() OVER (PARTITION BY customer_id ORDER BY day) AS place FROM orders) WHERE place = 2""",
    "the category that each customer buys most": """
        WITH bought AS (SELECT customer_id, category, sum(qty) AS items FROM lineitems JOIN products USING (product_id)
                        GROUP BY customer_id, category),
             best AS (SELECT customer_id, category FROM bought
                      QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY items DESC, category) = 1)
        SELECT category, dp_count(*) AS customers FROM best GROUP BY category ORDER BY category""",
    "customers who bought both of two products": "SELECT dp_count(*) AS n FROM customers WHERE customer_id IN "
    "(SELECT customer_id FROM lineitems WHERE product_id = 1) AND customer_id IN "
    "(SELECT customer_id FROM lineitems WHERE product_id = 2)",
    "customers with a dear order": "SELECT country, dp_count(*) AS n FROM customers c WHERE EXISTS "
    "(SELECT 1 FROM orders o WHERE o.customer_id = c.customer_id AND o.total > 150) GROUP BY country ORDER BY country",
    "customers who never bought a product": "SELECT dp_count(*) AS n FROM customers WHERE customer_id NOT IN "
    "(SELECT customer_id FROM lineitems WHERE product_id = 3 AND customer_id IS NOT NULL)",
    "bins of spending": """
        SELECT CASE WHEN spent < 200 THEN 'low' WHEN spent < 500 THEN 'middle' ELSE 'high' END AS bin, dp_count(*) AS n
        FROM (SELECT customer_id, sum(total) AS spent FROM orders GROUP BY customer_id) GROUP BY bin ORDER BY bin""",
    "orders by country": "SELECT c.country, dp_count(*) AS orders, dp_sum(o.total, 0, 900) AS spent FROM orders o "
    "JOIN customers c ON o.customer_id = c.customer_id GROUP BY c.country ORDER BY 1",
    "active customers": "SELECT status, dp_count_distinct(customer_id) AS customers FROM orders "
    "GROUP BY status ORDER BY status",
    "events of two tables": "SELECT kind, dp_count(*) AS n FROM (SELECT customer_id, 'signup' AS kind, signup AS day "
    "FROM customers WHERE customer_id IS NOT NULL UNION ALL SELECT customer_id, 'order', day FROM orders "
    "WHERE customer_id IS NOT NULL) GROUP BY kind ORDER BY kind",
    "revenue by category": "SELECT category, dp_sum(qty * price, 0, 450) AS revenue FROM orders "
    "JOIN lineitems USING (order_id) JOIN products USING (product_id) WHERE status = 'paid' AND "
    "orders.customer_id IS NOT NULL GROUP BY category ORDER BY category",
    "customers whose orders are all paid": "SELECT dp_count(*) AS n FROM (SELECT customer_id FROM orders "
    "GROUP BY customer_id HAVING bool_and(status = 'paid') AND sum(total) > 50)",
    "orders of the last 365 days": "SELECT dp_count(*) AS n FROM (SELECT customer_id, "
    f"day + {(TODAY - date(2025, 6, 1)).days} AS day FROM orders) "
    "WHERE customer_id IS NOT NULL AND day >= current_date - INTERVAL 365 DAY",
    "orders by month and status": "SELECT date_trunc('month', day) AS month, status, dp_count(*) AS n FROM orders "
    "WHERE customer_id IS NOT NULL AND day < DATE '2024-04-01' GROUP BY ALL ORDER BY ALL",
    "totals by status": "SELECT status, grouping(status) AS total, dp_count(*, keys := ['open', 'paid', 'sent']) AS n "
    "FROM orders WHERE customer_id IS NOT NULL GROUP BY ROLLUP (status) ORDER BY status NULLS LAST",
    "share of all orders": "SELECT status, dp_count(*) / (SELECT dp_count(*) FROM orders WHERE "
    "customer_id IS NOT NULL) AS share FROM orders WHERE customer_id IS NOT NULL GROUP BY status ORDER BY status",
    "statuses as columns": """
        SELECT dp_avg(paid, 0, 40) AS paid, dp_avg(open, 0, 40) AS open FROM (
            SELECT customer_id, sum(CASE WHEN status = 'paid' THEN 1 ELSE 0 END) AS paid,
                   count(*) FILTER (WHERE status = 'open') AS open FROM orders GROUP BY customer_id)""",
    "bins of order values": "SELECT floor(total / 100) * 100 AS bin, dp_count(*, keys := [0, 100, 200]) AS n "
    "FROM orders WHERE customer_id IS NOT NULL AND total < 300 GROUP BY bin ORDER BY bin",
    "orders by week": "SELECT strftime(day, '%Y-%m') AS month, time_bucket(INTERVAL 1 WEEK, day) AS week, "
    "dp_count(*) AS n FROM orders WHERE customer_id IS NOT NULL AND day < DATE '2024-03-01' "
    "GROUP BY 1, 2 ORDER BY 1, 2",
    "deciles of spending": "SELECT dp_quantile(spent, 0.5, 0, 4000) AS q FROM (SELECT customer_id, "
    "coalesce(sum(nullif(total, 0)), 0) AS spent FROM orders GROUP BY customer_id)",
}
"""What is asked, and the statement."""

REFUSED = {
    "the last order of all customers": (
        "SELECT dp_count(*) AS n FROM orders WHERE day = (SELECT max(day) FROM orders)",
        "dp_max",
    ),
    "the best customers": (
        "SELECT customer_id, sum(total) AS spent FROM orders GROUP BY 1 ORDER BY 2 DESC LIMIT 10",
        "private aggregates",
    ),
}
"""What is asked, the statement, and what the refusal names instead."""

_BOUNDED = re.compile(r"dp_(sum|avg)\((.+?), \d+, \d+\)")


def plain(statement):
    """Return the statement with plain aggregates, over rows that have a unit."""
    text = re.sub(r", keys := \[[^]]*\]", "", statement)
    text = _BOUNDED.sub(r"\1(\2)", text).replace("dp_quantile(spent, 0.5, 0, 4000)", "median(spent)")
    text = text.replace("dp_count_units()", "count(DISTINCT customer_id)").replace("dp_count(*)", "count(*)")
    return text.replace("dp_count_distinct(customer_id)", "count(DISTINCT customer_id)")


@pytest.fixture(scope="module")
def raw():
    """The shop in plain DuckDB. Line items have their customer there, and rows without a customer are left out."""
    raw = duckdb.connect()
    for name, frame in shop().items():
        raw.register("given", frame.to_arrow())
        key = {"orders": ", PRIMARY KEY (order_id)"}.get(name, "")
        columns = raw.execute(
            "SELECT string_agg(column_name || ' ' || column_type, ', ') FROM (DESCRIBE given)"
        ).fetchone()
        raw.execute(f"CREATE TABLE {name} ({columns[0]}{key})")
        raw.execute(f"INSERT INTO {name} FROM given")
    raw.execute("CREATE SCHEMA whole")
    raw.execute("CREATE TABLE whole.orders AS FROM main.orders WHERE customer_id IS NOT NULL")
    raw.execute("CREATE TABLE whole.customers AS FROM main.customers")
    raw.execute("CREATE TABLE whole.products AS FROM main.products")
    raw.execute(
        "CREATE TABLE whole.lineitems AS SELECT l.*, o.customer_id "
        "FROM main.lineitems l JOIN whole.orders o USING (order_id)"
    )
    yield raw
    raw.close()


def expected(raw, statement):
    """Return what plain DuckDB answers."""
    cursor = raw.cursor()
    cursor.execute("SET schema = 'whole'")
    return cursor.sql(plain(statement)).pl()


@pytest.fixture
def con(raw):
    with pytest.warns(dp.DPWarning):
        session = dp.Session(epsilon=10**6, delta=1e-6, unit="customer_id", max_groups=30, max_rows_per_group=20)
    return dp.connect(raw, session).public("products").private("lineitems", through="orders", on="order_id")


@pytest.mark.slow
@pytest.mark.parametrize("what", ANSWERED)
def test_the_answer_is_that_of_plain_duckdb(raw, con, what):
    found = con.sql(ANSWERED[what], epsilon=9 * 10**5).pl()
    known = expected(raw, ANSWERED[what])
    numbers = [pl.col(name).cast(pl.Float64) for name, dtype in known.schema.items() if dtype.is_numeric()]
    assert found.columns == known.columns
    assert_frame_equal(
        found.with_columns(numbers), known.with_columns(numbers), rel_tol=5e-3, abs_tol=0.02, check_dtypes=False
    )


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_answered_is_refused_with_what_to_write_instead(con, what):
    statement, instead = REFUSED[what]
    with pytest.raises(dp.StatementNotAllowed, match=instead):
        con.preview(statement, epsilon=1)


def test_most_statements_are_answered():
    assert len(ANSWERED) >= 0.92 * (len(ANSWERED) + len(REFUSED))
