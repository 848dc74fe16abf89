"""Folders of Delta Lake: the present version is read, and a version is the identity of a source."""

import json

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._policy.draft import draft_policy
from tests.policy.shop import CUSTOMERS, POLICY, orders, write_shop

deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed: pip install deltalake")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:epsilon=:dp_polars.errors.DPWarning"),  # little noise, on purpose
]

TEXT = POLICY.replace("orders.parquet", "lake").replace("queries = 100", 'queries = 100\nledger = "budget.db"')
COUNT = "SELECT COUNT(DISTINCT customer_id) AS n FROM orders"


@pytest.fixture
def path(tmp_path):
    """A table of three versions: two thirds of the rows, all rows, and no row of every other customer."""
    path = write_shop(tmp_path, TEXT)
    orders().head(2 * CUSTOMERS).write_delta(tmp_path / "lake")
    orders().tail(CUSTOMERS).write_delta(tmp_path / "lake", mode="append")
    deltalake.DeltaTable(tmp_path / "lake").delete("customer_id % 2 = 1")
    return path


def count(policy, query=COUNT):
    return policy.connect().sql(query, epsilon=5).fetchall()[0][0]


def test_deleted_rows_are_not_read_and_a_version_is_a_source(path):
    policy = dp.Policy.load(path)
    first = count(policy)
    assert abs(first - CUSTOMERS / 2) < 50  # the scale of the noise is 0.2
    assert abs(policy.scan("orders").count_units(epsilon=5).item() - CUSTOMERS / 2) < 50
    assert count(dp.Policy.load(path)) == first  # stored
    charges = len(policy.session.releases)
    deltalake.DeltaTable(path.parent / "lake").delete("customer_id % 4 = 0")
    assert count(policy) == first  # the version that was there when the policy was loaded
    assert len(policy.session.releases) == charges
    now = dp.Policy.load(path)
    assert abs(count(now) - CUSTOMERS / 4) < 50
    assert len(now.session.releases) == charges + 1


def test_other_doors_read_the_present_version_too(path):
    con = dp.connect(None, dp.Session(epsilon=20, unit="customer_id")).register("orders", path.parent / "lake")
    answer = con.sql("SELECT dp_count_units() AS n FROM orders", epsilon=5).fetchall()[0][0]
    assert abs(answer - CUSTOMERS / 2) < 50
    assert "[tables.lake]" in draft_policy([str(path.parent / "lake")], str(path.parent))
    with pytest.raises(dp.InvalidParameterError, match="text files only"):
        con.register("other", path.parent / "lake", types={"total": "DOUBLE"})


def test_partitions_with_unusual_names_are_read(path):
    regions = pl.when(pl.col("region") == "a").then(pl.lit("Süd & West/1")).otherwise(pl.lit("b %20"))
    orders().with_columns(region=regions).write_delta(
        path.parent / "parts", delta_write_options={"partition_by": ["region"]}
    )
    path.write_text(TEXT.replace('"lake"', '"parts"').replace('{ table = "regions", column = "code" }', '["b %20"]'))
    query = "SELECT region, COUNT(*) AS n FROM orders GROUP BY region"
    ((region, n),) = dp.Policy.load(path).connect().sql(query, epsilon=5).fetchall()
    assert region == "b %20"
    assert abs(n - 2 * CUSTOMERS) < 100


def test_a_file_that_was_removed_is_told_before_anything_is_charged(path):
    policy = dp.Policy.load(path)
    for file in (path.parent / "lake").glob("*.parquet"):
        file.unlink()
    with pytest.raises(dp.DPError, match="no longer exists"):
        count(policy)
    assert policy.session.spent.epsilon == 0
    assert not policy.session.closed


def with_a_foreign_file(lake, foreign):
    """Let the next version of a table name a link to a file outside of its folder, as a hostile log could."""
    (lake / "link.parquet").symlink_to(foreign)
    added = {"path": "link.parquet", "partitionValues": {}, "size": foreign.stat().st_size, "modificationTime": 0}
    log = lake / "_delta_log" / f"{deltalake.DeltaTable(lake).version() + 1:020}.json"
    log.write_text(json.dumps({"add": {**added, "dataChange": True}}))


def test_a_log_cannot_lead_out_of_the_folder_nor_show_a_private_table(path, tmp_path_factory):
    outside = tmp_path_factory.mktemp("elsewhere") / "secret.parquet"
    orders().write_parquet(outside)
    with_a_foreign_file(path.parent / "lake", outside)
    with pytest.raises(dp.PolicyError, match="leads out of the policy's folder"):
        dp.Policy.load(path)
    orders().write_parquet(path.parent / "private.parquet")
    pl.DataFrame(orders()[:3]).write_delta(path.parent / "shown")
    with_a_foreign_file(path.parent / "shown", path.parent / "private.parquet")
    path.write_text(
        POLICY.replace("orders.parquet", "private.parquet") + '[tables.shown]\nsource = "shown"\npublic = true\n'
    )
    with pytest.raises(dp.PolicyError, match="shown is public and orders is private, but they have a file in common"):
        dp.Policy.load(path)
