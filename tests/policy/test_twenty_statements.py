"""Twenty statements of plain SQL over a policy of three tables, answered; docs/reference/policy.md lists them."""

import re
from pathlib import Path

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from tests.policy.shop import POLICY, items, orders, write_shop

pytestmark = pytest.mark.filterwarnings("ignore:epsilon=:dp_polars.errors.DPWarning")  # little noise, on purpose
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "policy.md"


def listed():
    """Return the statements of the page, which stand in the first column of its table."""
    rows = re.findall(r"^\| \d+ \| `(.+?)` \|", PAGE.read_text(), flags=re.MULTILINE)
    return [row.replace("\\|", "|") for row in rows]


STATEMENTS = listed()


@pytest.fixture(scope="module")
def con(tmp_path_factory):
    policy = POLICY.replace("epsilon = 100.0", "epsilon = 1000000.0")  # so that noise can't change what is compared
    return dp.Policy.load(write_shop(tmp_path_factory.mktemp("shop"), policy)).connect(analyst="team-a")


@pytest.fixture(scope="module")
def plain():
    """The same tables in DuckDB, where an item has the customer of its order."""
    database = duckdb.connect()
    owners = orders().select("order_id", "customer_id")
    database.register("orders", orders().to_arrow())
    database.register("items", items().join(owners, on="order_id").to_arrow())
    database.register("regions", pl.DataFrame({"code": ["a", "b"], "name": ["North", "South"]}).to_arrow())
    return database


def test_there_are_twenty():
    assert len(STATEMENTS) == 20


@pytest.mark.slow
@pytest.mark.parametrize("statement", STATEMENTS)
def test_plain_sql_is_answered_and_means_what_duckdb_computes(con, plain, statement):
    counted = statement.replace("APPROX_COUNT_DISTINCT(order_id)", "COUNT(DISTINCT order_id)")  # DuckDB's is a guess
    found, exact = con.sql(statement), plain.sql(counted)
    assert found.columns == exact.columns
    ordered = "ORDER BY" in statement.rsplit(")", 1)[-1]
    mine, theirs = (rows if ordered else sorted(rows, key=str) for rows in (found.fetchall(), exact.fetchall()))
    assert len(mine) == len(theirs)
    for row, other in zip(mine, theirs, strict=True):
        for value, truth in zip(row, other, strict=True):
            assert value == (truth if truth is None or isinstance(truth, str) else pytest.approx(truth, rel=0.02))
