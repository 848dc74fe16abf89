"""With a policy a question needs no option but its spend, and what the policy does not allow is refused."""

import polars as pl
import pytest

import dp_polars as dp
from tests.policy.shop import POLICY, orders, write_policy, write_shop

pytestmark = pytest.mark.filterwarnings("ignore:epsilon=:dp_polars.errors.DPWarning")  # little noise, on purpose


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("shop")
    write_shop(place)
    return place


@pytest.fixture(scope="module")
def policy(folder):
    return dp.Policy.load(folder / "policy.toml")


def loaded(folder, name, policy):
    path = folder / name
    path.write_text(policy)
    return dp.Policy.load(path)


def facts(plan):
    return dict(plan.rows())


def test_caps_bounds_and_keys_come_from_the_policy(policy):
    plan = policy.scan("orders").preview.mean("total", "status")
    assert facts(plan)["value bounds"].startswith("0 to 100")
    assert "of the policy" in facts(plan)["value bounds"]
    assert plan.query.domain["status"].to_list() == ["new", "paid"]
    assert plan.query.max_groups == 2
    assert plan.query.max_rows == 3
    answer = policy.scan("orders").mean("total", "status")
    assert [round(mean, -1) for mean in answer["total"]] == [40.0, 40.0]


def test_keys_of_a_public_table(policy):
    answer = policy.scan("orders").count_units(["region", "status"])
    assert answer.select("region", "status").rows() == [("a", "new"), ("a", "paid"), ("b", "new"), ("b", "paid")]


def test_what_a_question_says_itself_comes_first(policy):
    plan = policy.scan("orders").preview.sum(
        "total", "status", bounds=(0, 5), keys=["new"], max_groups=1, max_rows_per_group=1
    )
    assert facts(plan)["value bounds"].startswith("0 to 5")
    assert (plan.query.domain.height, plan.query.max_groups, plan.query.max_rows) == (1, 1, 1)


def test_bounds_follow_a_column_and_not_its_name(policy):
    frame = policy.scan("orders")
    renamed = frame.rename({"total": "paid"}).filter(pl.col("paid") > 10)
    assert facts(renamed.preview.sum("paid"))["value bounds"].startswith("0 to 100")
    other = frame.with_columns(total=pl.col("total") * 1000)
    assert facts(other.preview.sum("total"))["value bounds"] == "0 to 100000, each row, derived from the policy"
    other = frame.with_columns(total=pl.col("order_id"))
    with pytest.raises(dp.InvalidParameterError, match="needs bounds"):
        other.preview.sum("total")
    summed = frame.group_by("customer_id").agg(total=pl.col("total").sum())
    with pytest.raises(dp.InvalidParameterError, match="needs bounds"):
        summed.preview.sum("total")


def test_the_owner_may_let_bounds_be_estimated(folder):
    text = POLICY.replace("bounds = [0, 100]", 'bounds = "auto"')
    policy = loaded(folder, "estimated.toml", text)
    assert "total: bounds are estimated" in policy.describe()
    con = dp.connect(policy)
    assert "estimated" in str(con.preview("SELECT AVG(total) FROM orders"))
    assert "estimated" in str(con.preview("SELECT AVG(total * 2) FROM orders"))  # and so is what is made of them
    assert facts(con.preview("SELECT dp_avg(total, 0, 50) FROM orders"))["value bounds"].startswith("0 to 50")
    mean = con.sql("SELECT AVG(total) FROM orders", epsilon=20).fetchall()[0][0]
    assert abs(mean - 40) < 10  # the noise of epsilon 20 for 3,000 people is far below
    with pytest.raises(dp.InvalidParameterError, match="can't be estimated"):
        con.preview("SELECT dp_histogram(total) FROM orders")
    for_text = text.replace('keys = ["new", "paid"]', 'bounds = "auto"')
    with pytest.raises(dp.PolicyError, match="status has the type String, whose bounds can't be estimated"):
        loaded(folder, "text.toml", for_text)


def test_a_policy_is_described_as_its_reviewer_needs_it(policy):
    told = policy.describe().split("\n")
    assert "ledger: none, so the budget begins anew whenever the policy is loaded" in told
    assert "analysts: anybody, within the whole budget" in told
    assert "  caps: max_groups 2, max_rows_per_group 3" in told
    assert "  through: orders on order_id; by the owner's word, no two rows of orders have the same order_id" in told
    assert "  no rules, so it may be asked: order_id, customer_id" in told


def test_a_table_gets_its_units_through_another(policy):
    items = policy.scan("items")
    assert "customer_id" in items.columns
    assert round(items.count_units().item(), -2) == 3_000
    assert round(items.sum("price").item(), -4) == 180_000
    plan = items.preview.sum("price")
    assert plan.query.max_rows == 6


def test_private_tables_are_joined_on_the_unit(policy):
    joined = policy.scan("orders").join(policy.scan("items").group_by("customer_id").agg(n=pl.len()), on="customer_id")
    assert round(joined.mean("n", bounds=(0, 10), max_rows_per_group=3).item()) == 6
    assert facts(joined.preview.sum("total", max_rows_per_group=3))["value bounds"].startswith("0 to 100")


def test_public_tables_are_plain_rows(policy):
    assert policy.scan_public("regions").collect().height == 2
    with pytest.raises(dp.InvalidParameterError, match=r"policy\.scan_public\('regions'\)"):
        policy.scan("regions")
    with pytest.raises(dp.InvalidParameterError, match=r"orders is private.*policy\.scan\('orders'\)"):
        policy.scan_public("orders")


@pytest.mark.parametrize("table", ["order", None, 1, "orders.x"])
def test_unknown_tables_are_refused(policy, table):
    with pytest.raises(dp.InvalidParameterError, match="has no table"):
        policy.scan(table)


def test_a_withheld_column_is_nowhere(policy):
    frame = policy.scan("orders")
    assert "email" not in frame.columns
    with pytest.raises(dp.DPError, match="email"):
        frame.n_unique("email")
    con = dp.connect(policy)
    for statement in (
        "SELECT dp_count_distinct(email) FROM orders",
        "SELECT dp_count(*) FROM orders WHERE email LIKE 'a%'",
        "SELECT email, dp_count(*) FROM orders GROUP BY email",
        "SELECT dp_count(*) FROM (SELECT email AS e FROM orders) WHERE e = 'x'",
        "SELECT dp_count(*) FROM (SELECT * FROM orders) WHERE email = 'x'",
        "SELECT dp_count(*) FROM orders JOIN (VALUES ('x')) v(email) USING (email)",
        "SELECT dp_count(*) FROM (SELECT DISTINCT customer_id, email FROM orders)",
        "SELECT dp_count(*) FROM (SELECT customer_id, max(email) AS m FROM orders GROUP BY customer_id)",
        "SELECT dp_randomized_response(email, epsilon := 1) FROM orders",
    ):
        with pytest.raises(dp.DPError):
            con.preview(statement)
    plan = con.preview("SUMMARIZE orders", share=0.01)
    assert "email" not in str(plan)
    with pytest.raises(dp.StatementNotAllowed, match="The policy says that email may not be asked") as refused:
        con.preview("SELECT dp_count_distinct(email) FROM orders")
    assert refused.value.code == "not-in-policy"


LIMITED = POLICY.replace("queries = 100", "smallest_share = 0.001\nlargest_share = 0.02").replace(
    'unit = "customer_id"', 'unit = "customer_id"\nquestions = ["count", "sum"]'
)


def test_questions_and_spends_outside_the_policy_are_refused(folder):
    policy = loaded(folder, "limited.toml", LIMITED)
    frame, con = policy.scan("orders"), policy.connect()
    frame.preview.sum("total", share=0.02)
    for ask in (
        lambda: frame.mean("total", share=0.01),
        lambda: frame.preview.mean("total", share=0.01),
        lambda: frame.group_by("status").agg(n=dp.count(), m=dp.median("total"), share=0.01),
        lambda: frame.top_k("status", 1, share=0.01),
        lambda: frame.profile(share=0.01),
        lambda: frame.above_threshold(10, share=0.01),
        lambda: dp.Dashboard(share=0.01).on(frame).mean("total"),
        lambda: con.sql("SELECT dp_avg(total) FROM orders", share=0.01),
        lambda: con.sql("SUMMARIZE orders", share=0.01),
        lambda: con.sql("SELECT dp_top_k(status, 1) FROM orders", share=0.01),
    ):
        with pytest.raises(dp.InvalidParameterError, match="does not allow"):
            ask()
    for share in (0.03, 0.0005):
        for ask in (
            lambda: frame.count(share=share),  # noqa: B023 - called at once
            lambda: frame.preview.count(share=share),  # noqa: B023
            lambda: con.sql("SELECT dp_count(*) FROM orders", share=share),  # noqa: B023
        ):
            with pytest.raises(dp.InvalidParameterError, match=r"share=0\.0"):
                ask()
    assert not policy.session.releases


def test_another_session_can_not_pay(policy):
    other = dp.Session(epsilon=1000.0, unit="customer_id")
    frame = policy.scan("orders")
    with pytest.raises(dp.InvalidParameterError, match="which session pays"):
        frame.count(session=other, epsilon=1)
    public = dp.private(orders(), other)
    with pytest.raises(dp.InvalidParameterError):
        public.join(frame, on="customer_id", suffix="_2").count(epsilon=1, max_rows_per_group=9)
    with pytest.raises(dp.InvalidParameterError, match="takes no other"):
        dp.connect(policy, other)


def test_nobody_vouches_for_a_step(policy):
    with pytest.raises(dp.InvalidParameterError, match="unchecked"):
        policy.scan("orders").filter(pl.col("total").map_elements(print), unchecked=True)


def test_a_file_that_is_replaced_is_refused_before_anything_is_charged(tmp_path):
    policy = dp.Policy.load(write_shop(tmp_path))
    frame = policy.scan("orders")
    orders().select(pl.all().reverse()).head(10).write_parquet(tmp_path / "orders.parquet")
    with pytest.raises(dp.InvalidDataError, match="were replaced"):
        frame.count()
    assert not policy.session.releases


def test_the_budget_is_the_ledgers(tmp_path):
    text = POLICY.replace("queries = 100", 'queries = 100\nledger = "budget.db"')
    policy = dp.Policy.load(write_shop(tmp_path, text))
    assert not (tmp_path / "budget.db").exists()  # loading opens no budget
    first = policy.scan("orders").count().item()
    again = dp.Policy.load(tmp_path / "policy.toml")
    assert again.scan("orders").count().item() == first
    assert len(again.session.releases) == 1
    with pytest.raises(dp.LedgerMismatch):
        _ = dp.Policy.load(write_policy(tmp_path, text.replace("100.0", "200.0"))).session


def test_a_version_finds_stored_answers_in_every_process(tmp_path):
    text = POLICY.replace("queries = 100", 'queries = 100\nledger = "budget.db"')
    text = text.replace("max_groups = 2", 'max_groups = 2\ndata_version = "1"')
    first = dp.Policy.load(write_shop(tmp_path, text)).scan("orders").count().item()
    (tmp_path / "orders.parquet").touch()
    assert dp.Policy.load(tmp_path / "policy.toml").scan("orders").count().item() == first


def test_a_policy_describes_itself(policy):
    text = policy.describe()
    for words in ("protects: customer_id", "epsilon 100", "email: may not be asked", "region: 2 public keys"):
        assert words in text
    assert repr(policy) == "<dp.Policy policy.toml with orders, items, regions>"


def test_a_missing_policy(tmp_path):
    with pytest.raises(dp.InvalidParameterError, match="There is no policy"):
        dp.Policy.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(dp.PolicyError, match="UTF-8"):
        dp.Policy.load(tmp_path / "bad.toml")
