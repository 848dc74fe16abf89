"""The statements of an analyst's first day with a shop, on Spark: the answers of plain DuckDB, or a reason.

Amounts of money are DECIMAL(10, 2), as in most shops.
"""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dp
from tests.engines.spark.test_aggregation import spark_frame
from tests.sql.test_first_day import ANSWERED, expected, raw  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow

MONEY = ["total", "price"]

REFUSED = {
    "average order value per customer": "`mean` has no exact equivalent in Spark SQL for decimals within a unit",
}
"""The statements that Spark cannot compute exactly, and the reason that is given."""

REFUSED_WITH_FLOATS = ["bins of spending", "customers whose orders are all paid", "deciles of spending"]
"""Statements that add up floats within a unit. Spark's sums of floats depend on how it splits the rows."""


@pytest.fixture(scope="module")
def connect(spark, raw):  # noqa: F811
    """Return a function that opens a new session over the shop in Spark, with a type for amounts of money."""

    def opened(money):
        with pytest.warns(dp.DPWarning):
            session = dp.Session(epsilon=10**6, delta=1e-6, unit="customer_id", max_groups=30, max_rows_per_group=20)
        for name in ("customers", "orders", "products", "lineitems"):
            frame = raw.cursor().sql(f"FROM main.{name}").pl()
            frame = frame.with_columns(pl.col(column).cast(money) for column in MONEY if column in frame.columns)
            spark_frame(spark, frame).createOrReplaceTempView(name)
        con = dp.connect(spark, session).public("products")
        con = con.private("customers", unit="customer_id").private("orders", unit="customer_id")
        return con.private("lineitems", through="orders", on="order_id", unique=True)

    return opened


@pytest.mark.parametrize("what", [what for what in ANSWERED if what not in REFUSED])
def test_the_answer_is_that_of_plain_duckdb(raw, connect, what):  # noqa: F811
    found = connect(pl.Decimal(10, 2)).sql(ANSWERED[what], epsilon=9 * 10**5).pl()
    known = expected(raw, ANSWERED[what])
    numbers = [pl.col(name).cast(pl.Float64) for name, dtype in known.schema.items() if dtype.is_numeric()]
    assert found.columns == known.columns
    assert_frame_equal(
        found.with_columns(numbers), known.with_columns(numbers), rel_tol=5e-3, abs_tol=0.02, check_dtypes=False
    )


def test_what_spark_cannot_compute_is_refused_by_its_name(connect):
    money = connect(pl.Decimal(10, 2))
    for what, reason in REFUSED.items():
        with pytest.raises(dp.StatementNotAllowed, match=reason):
            money.preview(ANSWERED[what], epsilon=1)
    some = ANSWERED["average order value per customer"].replace("avg(total)", "avg(total) FILTER (WHERE total > 5)")
    with pytest.raises(dp.StatementNotAllowed, match="for decimals within a unit that become floats first"):
        money.preview(some, epsilon=1)
    floats = connect(pl.Float64)
    with pytest.raises(dp.StatementNotAllowed, match=r"`mean` .* for floats .* it has one for integers, such"):
        floats.preview(ANSWERED["average order value per customer"], epsilon=1)
    for what in REFUSED_WITH_FLOATS:
        with pytest.raises(dp.StatementNotAllowed, match=r"`sum` has no exact equivalent .* it has one for integers"):
            floats.preview(ANSWERED[what], epsilon=1)


def test_most_statements_are_answered():
    assert len(ANSWERED) - len(REFUSED) - len(REFUSED_WITH_FLOATS) >= 23
