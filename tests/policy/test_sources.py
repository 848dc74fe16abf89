"""A policy names files in its folder, each for one table, whatever links and patterns lead to them."""

import os

import polars as pl
import pytest

import dp_polars as dp
from tests.policy.shop import POLICY, orders, write_policy, write_shop

pytestmark = pytest.mark.filterwarnings("ignore:epsilon=:dp_polars.errors.DPWarning")  # little noise, on purpose


@pytest.fixture
def shop(tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    write_shop(folder)
    return folder


def refusal(folder, policy):
    with pytest.raises(dp.PolicyError) as refused:
        dp.Policy.load(write_policy(folder, policy))
    return str(refused.value)


def with_source(source):
    return POLICY.replace('source = "orders.parquet"', f'source = "{source}"')


def elsewhere(shop):
    place = shop.parent / "elsewhere"
    place.mkdir()
    orders().write_parquet(place / "orders.parquet")
    return place


@pytest.mark.parametrize(
    "source", ["../elsewhere/orders.parquet", "{place}/orders.parquet", "x/../../elsewhere/*.parquet"]
)
def test_a_path_that_leaves_the_folder_is_refused_unless_the_policy_names_it(shop, source):
    place = elsewhere(shop)
    (shop / "x").mkdir()
    written = with_source(source.format(place=place))
    told = refusal(shop, written)
    assert "line 8:" in told
    assert "leads out of the policy's folder" in told
    allowed = f'folders = ["{place}"]\n' + written
    assert dp.Policy.load(write_policy(shop, allowed)).tables == ["orders", "items", "regions"]


def test_a_link_that_leads_elsewhere_is_refused(shop):
    place = elsewhere(shop)
    (shop / "link.parquet").symlink_to(place / "orders.parquet")
    (shop / "folder").symlink_to(place)
    for source in ("link.parquet", "folder", "folder/*.parquet"):
        assert "is a link that leads out" in refusal(shop, with_source(source))


def test_the_root_is_no_folder_to_name(shop):
    assert "would allow every file" in refusal(shop, 'folders = ["/"]\n' + POLICY)


def test_the_ledger_stays_in_the_folder(shop):
    told = refusal(shop, POLICY.replace("queries = 100", 'ledger = "../budget.db"'))
    assert "line 5: ledger leads out" in told


PUBLIC_COPY = '\n[tables.copy]\nsource = "{source}"\npublic = true\n'


@pytest.mark.parametrize("way", ["same", "spelled", "hard link", "symbolic link", "pattern", "folder"])
def test_a_private_file_can_not_be_public_under_another_name(shop, way):
    (shop / "more").mkdir()
    if way == "hard link":
        os.link(shop / "orders.parquet", shop / "copy.parquet")
    if way == "symbolic link":
        (shop / "copy.parquet").symlink_to("orders.parquet")
    if way == "folder":
        os.link(shop / "orders.parquet", shop / "more" / "part.parquet")
    source = {
        "same": "orders.parquet", "spelled": "./more/../orders.parquet", "hard link": "copy.parquet",
        "symbolic link": "copy.parquet", "pattern": "orders*.parquet", "folder": "more",
    }[way]  # fmt: skip
    named = f'folders = ["{shop}"]\n' + POLICY
    told = refusal(shop, named + PUBLIC_COPY.format(source=source))
    assert "copy is public and orders is private, but they have a file in common" in told
    assert "line 45" in told


def test_one_file_is_one_table(shop):
    more = '\n[tables.again]\nsource = "orders.parquet"\npublic = false\n'
    assert "orders and again have a file in common" in refusal(shop, POLICY + more)


def test_columns_must_exist_and_fit(shop):
    told = refusal(
        shop,
        POLICY.replace("columns.weight", "columns.Weight")
        .replace("bounds = [0, 100]", "bounds = [2020-01-01, 2021-01-01]")
        .replace('keys = ["new", "paid"]', "keys = [1, 2]")
        .replace('column = "code"', 'column = "cod"'),
    )
    assert "4 mistakes" in told
    for words in (
        "line 14: ",
        "Did you mean weight?",
        "line 20: status: ",
        "line 23: region: regions has no",
    ):
        assert words in told


def test_the_unit_must_be_there(shop):
    assert "has no unit column" in refusal(shop, POLICY.replace('unit = "customer_id"', 'unit = "person"'))
    told = refusal(shop, POLICY.replace("unique = true\n", ""))
    assert "line 31: " in told
    assert "write unique = true" in told
    assert "is the path to the unit" in refusal(shop, POLICY + "\n[tables.orders.columns.order_id]\nask = false\n")
    told = refusal(shop, POLICY.replace("max_groups = 2", 'unit = { customer_id = "order_id" }'))
    assert "line 10: " in told


def test_a_private_csv_file_needs_types(shop):
    orders().write_csv(shop / "orders.csv")
    told = refusal(shop, with_source("orders.csv"))
    assert "line 8: " in told
    assert 'types = { total = "DOUBLE" }' in told
    types = 'types = { customer_id = "BIGINT", order_id = "BIGINT", total = "DOUBLE", weight = "DOUBLE" }'
    policy = dp.Policy.load(write_policy(shop, with_source(f'orders.csv"\n{types}\n#')))
    assert round(policy.scan("orders").sum("total").item(), -4) == 360_000


def test_arrow_files_and_folders_are_tables(shop):
    (shop / "parts").mkdir()
    for number in range(2):
        orders()[number::2].write_parquet(shop / "parts" / f"{number}.parquet")
    orders().write_ipc(shop / "orders.arrow")
    for source in ("parts", "parts/*.parquet", "orders.arrow"):
        policy = dp.Policy.load(write_policy(shop, with_source(source)))
        assert round(policy.scan("orders").count().item(), -3) == 9_000


def test_tables_of_a_duckdb_file_are_tables_and_no_others_are(shop):
    import duckdb

    with duckdb.connect(str(shop / "shop.duckdb")) as raw:
        raw.execute(f"CREATE TABLE orders AS FROM '{shop}/orders.parquet'")
        raw.execute("CREATE TABLE secret AS SELECT 1 AS customer_id")
    policy = dp.Policy.load(write_policy(shop, with_source('shop.duckdb"\ntable = "orders')))
    assert round(policy.scan("orders").count().item(), -3) == 9_000
    con = dp.connect(policy)
    assert con.sql("SHOW TABLES").pl()["name"].to_list() == ["items", "orders", "regions"]
    assert round(con.sql("SELECT dp_count(*) FROM orders").fetchall()[0][0], -3) == 9_000
    for name in ("secret", "dp_policy_0.secret", "dp_policy_0.main.secret", "main.secret"):
        with pytest.raises(dp.StatementNotAllowed, match="There is no table"):
            con.sql(f"SELECT dp_count(*) FROM {name}")
    assert "has no table order" in refusal(shop, with_source('shop.duckdb"\ntable = "order'))
    assert "say which table" in refusal(shop, with_source("shop.duckdb"))
    private = with_source('shop.duckdb"\ntable = "orders')
    both = private + PUBLIC_COPY.format(source='shop.duckdb"\ntable = "MAIN.Orders')
    assert "they have a file in common" in refusal(shop, both)


def test_columns_of_a_source_that_look_alike_are_refused(shop):
    orders().with_columns(Total=pl.lit(1)).write_parquet(shop / "orders.parquet")
    assert "differ only by case" in refusal(shop, POLICY)


@pytest.mark.parametrize(
    ("inside", "name"), [("_delta_log/0.json", "Delta Lake"), ("metadata/v1.metadata.json", "Iceberg")]
)
def test_folders_whose_files_hold_deleted_rows_are_refused_by_name(shop, inside, name):
    folder = shop / "orders_table"
    (folder / inside).parent.mkdir(parents=True)
    (folder / inside).write_text("{}")
    orders().write_parquet(folder / "part-0.parquet")
    assert f"is a table of {name}" in refusal(shop, with_source("orders_table"))
