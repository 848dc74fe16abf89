"""Policy files under attack, beyond `test_sources` and `test_document`: each is refused with reason and line."""

import os

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from tests.policy.shop import POLICY, write_policy, write_shop

pytestmark = pytest.mark.filterwarnings("ignore:epsilon=:dp_polars.errors.DPWarning")  # little noise, on purpose


@pytest.fixture
def shop(tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    write_shop(folder)
    return folder


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A shop of which only the policy is written anew."""
    return write_shop(tmp_path_factory.mktemp("shared")).parent


def refusal(folder, policy):
    with pytest.raises(dp.PolicyError) as refused:
        dp.Policy.load(write_policy(folder, policy))
    assert all(problem.line > 0 for problem in refused.value.problems), refused.value
    return str(refused.value)


def changed(old, new):
    assert old in POLICY
    return POLICY.replace(old, new, 1)


@pytest.mark.parametrize(
    "source",
    [
        "orders.parquet\\u0000.csv",
        "orders.parquet\\n",
        "\\u202Etekrap.sredro",
        "s3://bucket/orders.parquet",
        "https://example.org/orders.parquet",
        "file:///etc/passwd",
        "~/orders.parquet",
        "$HOME/orders.parquet",
        "..\\\\..\\\\orders.parquet",
        "./././../shop/../../orders.parquet",
        "",
        " ",
        "/dev/stdin",
        "/proc/self/environ",
        "orders.parquet/..",
        "**/**/**/nothing.parquet",
        "policy.toml",
    ],
)
def test_sources_that_are_no_files_of_the_folder_are_refused(shared, source):
    assert "line 8: " in refusal(shared, changed('source = "orders.parquet"', f'source = "{source}"'))


def test_a_pipe_or_a_folder_in_place_of_a_file_is_refused(shop):
    os.mkfifo(shop / "pipe.parquet")
    (shop / "folder.parquet").mkdir()
    (shop / "loop").symlink_to(shop / "loop")
    for source in ("pipe.parquet", "folder.parquet", "loop"):
        assert "line 8: " in refusal(shop, changed('source = "orders.parquet"', f'source = "{source}"'))


def test_a_ledger_behind_a_link_is_refused(shop):
    (shop / "budget.db").symlink_to(shop.parent / "elsewhere.db")
    assert "ledger leads out" in refusal(shop, changed("queries = 100", 'ledger = "budget.db"'))
    (shop / "other.2026-11.db").symlink_to(shop.parent / "elsewhere.db")
    periods = changed("queries = 100", 'ledger = "other.db"\nperiods = ["2026-11"]')
    assert "ledger leads out" in refusal(shop, periods)


def test_a_link_to_a_policy_reads_the_files_beside_the_policy(shop):
    link = shop.parent / "link.toml"
    link.symlink_to(shop / "policy.toml")
    (shop.parent / "orders.parquet").write_bytes(b"not these")
    assert dp.Policy.load(link).tables == ["orders", "items", "regions"]


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ("[tables.orders]\npublic = true", "twice"),
        ('[tables."orders"]\npublic = true', "twice"),
        ("[budget]\nepsilon = 1.0", "twice"),
        ('[tables.regions.columns]\n[tables]\nregions = { source = "orders.parquet", public = true }', "twice"),
        ('[[tables.orders]]\nsource = "orders.parquet"', "twice"),
        ('[tables.ORDERS]\nsource = "orders.parquet"\npublic = true', "shadow each other"),
        ('[tables.orderѕ]\nsource = "regions.csv"\npublic = true', "not TOML"),
        ('[tables."orderѕ"]\nsource = "regions.csv"\npublic = true', "look-alike"),
        ('[tables."ｏrders"]\nsource = "regions.csv"\npublic = true', "look-alike"),
        ('[tables."orders\\u200b"]\nsource = "regions.csv"\npublic = true', "look-alike"),
        ('[tables."main.orders"]\nsource = "regions.csv"\npublic = true', "can't be the name"),
        ('[tables.information_schema]\nsource = "regions.csv"\npublic = 1', "true or false"),
    ],
)
def test_tables_and_keys_that_stand_twice_or_look_alike_are_refused(shared, added, words):
    assert words in refusal(shared, f"{POLICY}\n{added}\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("queries = 100", "queries = 1000000000000000000000000000"),
        ("queries = 100", "group_size = 9999999999"),
        ("queries = 100", "delta = 1e-400"),
        ("queries = 100", "delta = 2"),
        ("queries = 100", "smallest_share = 1e-5000"),
        ("epsilon = 100.0", "epsilon = 0x" + "f" * 100),
        ("epsilon = 100.0", "epsilon = -1.0"),
        ("epsilon = 100.0", "epsilon = -0.0"),
        ("max_rows_per_group = 3", "max_rows_per_group = -1"),
        ("max_rows_per_group = 3", "max_rows_per_group = true"),
        ("bounds = [0, 100]", "bounds = [0, 1e9999]"),
        ("bounds = [0, 100]", f"bounds = [0, {10**40}]"),
        ("bounds = [0, 100]", "bounds = [-inf, inf]"),
        ("bounds = [0, 100]", "bounds = [0, 1e-300]"),
        ('keys = ["new", "paid"]', f"keys = [{10**30}]"),
        ('keys = ["new", "paid"]', "keys = [nan]"),
        ('keys = ["new", "paid"]', "keys = []"),
    ],
)
def test_numbers_that_are_huge_or_mean_nothing_are_refused(shared, old, new):
    assert "line " in refusal(shared, changed(old, new))


@pytest.mark.parametrize("definition", ["FROM orders", "FROM read_parquet('{folder}/orders.parquet')"])
def test_a_view_of_a_private_table_can_not_be_public(shop, definition):
    frame = pl.read_parquet(shop / "orders.parquet")
    with duckdb.connect(str(shop / "shop.duckdb")) as raw:
        raw.register("given", frame.to_arrow())
        raw.execute("CREATE TABLE orders AS FROM given")
        raw.execute(f"CREATE VIEW open AS {definition.format(folder=shop)}")
    public = '\n[tables.open]\nsource = "shop.duckdb"\ntable = "open"\npublic = true\n'
    told = refusal(shop, changed('source = "orders.parquet"', 'source = "shop.duckdb"\ntable = "orders"') + public)
    assert "is a view" in told


def test_a_policy_that_tells_nothing_of_rows_is_refused_the_same_way_whatever_they_are(shop):
    text = changed("bounds = [0, 100]", "bounds = [100, 0]")
    first = refusal(shop, text)
    pl.read_parquet(shop / "orders.parquet").head(1).write_parquet(shop / "orders.parquet")
    assert refusal(shop, text) == first
