"""ibis asks through a guarded connection: SQL as it is, and expressions as the plain SQL that ibis makes of them."""

import pytest

import dp_polars as dp
from dp_polars.ibis import backend
from tests.policy.shop import POLICY, write_shop

pytestmark = pytest.mark.filterwarnings("ignore:epsilon=:dp_polars.errors.DPWarning")  # little noise, on purpose

TEXT = POLICY + "[analysts]\nteam-a = 0.5\n"


def test_only_a_guarded_connection_is_taken():
    with pytest.raises(dp.InvalidParameterError, match="takes a guarded connection"):
        backend(None)


@pytest.fixture
def policy(tmp_path):
    return dp.Policy.load(write_shop(tmp_path, TEXT))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The 'future.infer_string'")  # of ibis itself
def test_sql_and_expressions_are_private(policy):
    ibis = pytest.importorskip("ibis", reason="ibis is not installed: pip install 'ibis-framework[duckdb]'")
    shop = backend(policy.connect(analyst="team-a", epsilon=5))
    assert shop.list_tables() == ["items", "orders", "regions"]
    orders = shop.table("orders")
    assert orders.columns == ("order_id", "customer_id", "total", "weight", "status", "region", "email")
    asked = orders.group_by("status").agg(n=orders.count(), mean=orders.total.mean()).order_by("status")
    new, paid = (tuple(row.values()) for row in asked.to_pyarrow().to_pylist())
    assert (new[0], paid[0]) == ("new", "paid")
    assert abs(new[1] - 4_500) < 300  # the scale of the noise is below 5
    assert abs(new[2] - 40) < 5
    rows = shop.raw_sql("SELECT COUNT(DISTINCT customer_id) AS n FROM orders").fetchall()
    assert abs(rows[0][0] - 3_000) < 100
    assert shop.sql("SELECT region, COUNT(*) AS n FROM orders GROUP BY region").order_by("n").to_polars().height == 2
    paid = policy.session.spent.epsilon
    for refused in (
        lambda: orders.limit(3).to_pyarrow(),
        lambda: orders.group_by("email").agg(n=orders.count()).to_pyarrow(),
        lambda: shop.create_table("copy", asked),
        lambda: shop.read_csv("regions.csv"),
        lambda: ibis.memtable({"status": ["new"]}).join(asked, "status").to_pyarrow(),
        lambda: shop.raw_sql("SET timezone = 'UTC'"),
    ):
        with pytest.raises(dp.DPError):
            refused()
    assert policy.session.spent.epsilon == paid
    assert set(policy.session.audit_log()["outcome"]) == {"committed", "stored", "refused"}
