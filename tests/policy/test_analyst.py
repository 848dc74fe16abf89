"""The handle of an analyst asks, and declares nothing."""

import pytest

import dp_polars as dp
from tests.policy.shop import POLICY, write_shop

pytestmark = pytest.mark.filterwarnings("ignore:epsilon=:dp_polars.errors.DPWarning")  # little noise, on purpose

LIMITED = POLICY.replace("queries = 100", "queries = 100\nlargest_share = 0.02").replace(
    'unit = "customer_id"', 'unit = "customer_id"\nquestions = ["count", "count_units"]'
)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return dp.Policy.load(write_shop(tmp_path_factory.mktemp("shop"), LIMITED))


def test_it_has_no_word_to_declare_anything(policy):
    con = policy.connect(analyst="team-a")
    for name in ("public", "private", "register", "reopen", "session"):
        assert not hasattr(con, name)
        assert not hasattr(con.cursor(), name)
        assert name not in ("public", "private", "register") or hasattr(policy.connect(), name)
    assert repr(con) == "<dp.AnalystConnection of team-a>"


def test_it_asks_and_previews(policy):
    with policy.connect(analyst="team-a") as con:
        statement = "SELECT status, COUNT(*) AS n FROM orders GROUP BY status"
        assert con.preview(statement).query.keys[0].name == "status"
        assert con.sql(statement).columns == ["status", "n"]
        assert con.execute(statement).pl().height == 2
        assert con.execute(statement).fetchall() == con.sql(statement).fetchall()
        assert con.remaining.epsilon < 100


@pytest.mark.parametrize(
    ("statement", "options", "words"),
    [
        ("SELECT COUNT(email) FROM orders", {}, "email may not be asked"),
        ("SELECT AVG(total) FROM orders", {}, "does not allow mean on orders"),
        ("SELECT dp_avg(total) FROM orders", {}, "does not allow mean on orders"),
        ("SELECT COUNT(*) FROM orders", {"share": 0.03}, "share=0.02 or less"),
        ("SELECT dp_count(*, share := 0.03) FROM orders", {}, "share := 0.02 or less"),
        ("SELECT COUNT(*) FROM orders", {"session": 1}, "takes? no session"),
    ],
)
def test_what_the_policy_does_not_allow_is_refused_while_planning(policy, statement, options, words):
    con = policy.connect(analyst="team-a")
    for ask in (con.preview, con.sql):
        with pytest.raises(dp.DPError, match=words):
            ask(statement, **options)


def test_frames_of_an_analyst_have_the_same_limits(policy):
    frame = policy.scan("orders", analyst="team-a")
    assert round(frame.count().item(), -3) == 9_000
    with pytest.raises(dp.InvalidParameterError, match="does not allow mean"):
        frame.mean("total")


@pytest.mark.parametrize("name", ["", " ", "a" * 200, 5, "a\nb", "\ud800"])
def test_names_of_analysts_are_checked(policy, name):
    with pytest.raises(dp.InvalidParameterError, match="analyst="):
        policy.connect(analyst=name)


def test_a_connection_of_the_owner_changes_no_other(policy):
    owner = policy.connect()
    owner.private("orders", data_version="2")
    owner.public("orders")
    with pytest.raises(dp.StatementNotAllowed, match="show private rows"):
        policy.connect(analyst="team-a").sql("SELECT * FROM orders")


# ---------------------------------------------------------------------- shares

SHARES = """
[analysts]
team-a = 0.25
team-b = 0.5
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_shop(tmp_path_factory.mktemp("shares"), POLICY).parent


@pytest.fixture
def shared(folder):
    path = folder / "shares.toml"
    path.write_text(POLICY + SHARES)
    return dp.Policy.load(path)


def test_an_analyst_asks_within_the_share_and_the_log_tells(shared):
    con = shared.connect(analyst="team-a")
    con.sql("SELECT COUNT(*) AS n FROM orders", share=0.2)
    with pytest.raises(dp.BudgetExceeded):
        con.sql("SELECT AVG(total) AS mean FROM orders", share=0.1)
    assert shared.session.analyst("team-a").spent.share == pytest.approx(0.2)
    log = shared.session.audit_log()
    assert log.select("analyst", "asked", "outcome").rows() == [
        ("team-a", "SELECT COUNT(*) AS n FROM orders", "committed"),
        ("team-a", "SELECT AVG(total) AS mean FROM orders", "refused"),
    ]


def test_frames_of_one_analyst_can_be_combined(shared):
    orders, again = shared.scan("orders", analyst="team-b"), shared.scan("orders", analyst="team-b")
    joined = orders.join(again, on="customer_id", how="semi")
    assert joined.count_units(share=0.1).height == 1
    assert shared.session.export()["analyst"].to_list() == ["team-b"]


def test_only_listed_analysts_may_ask(shared):
    for ask in (shared.connect, lambda analyst: shared.scan("orders", analyst=analyst)):
        with pytest.raises(dp.InvalidParameterError, match="not among them"):
            ask(analyst="team-c")
    assert shared.session.shares == {"team-a": 0.25, "team-b": 0.5}


def test_without_a_list_a_failure_stops_every_name(folder):
    path = folder / "open.toml"
    path.write_text(POLICY)
    policy = dp.Policy.load(path)
    policy.connect(analyst="anybody").sql("SELECT COUNT(*) AS n FROM orders", share=0.2)
    policy.session.reserve(dp.pure_cost(0.1), label="fails").fail()
    with pytest.raises(dp.SessionClosed):
        policy.connect(analyst="somebody else").sql("SELECT COUNT(*) AS m FROM items", share=0.2)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("[analysts]\nteam-a = 0.75\nteam-b = 0.5", "overcommit = true"),
        ("[analysts]\nteam-a = 2", "part of the budget"),
        ("[analysts]\nteam-a = nan", "finite"),
        ('[analysts]\nteam-a = "x"', "number"),
        ('[analysts]\n"team\\n" = 0.5', "printable"),
        ("[analysts]\nteam-a = 0.1\nTEAM-A = 0.1", "shadow each other"),
        ("analysts = 1", "table"),
    ],
)
def test_mistakes_in_shares_are_told(folder, section, expected):
    path = folder / "wrong.toml"
    path.write_text(section + "\n" + POLICY if section.startswith("analysts") else POLICY + "\n" + section)
    with pytest.raises(dp.PolicyError, match=expected):
        dp.Policy.load(path)


# ---------------------------------------------------------------------- the spend of a connection


def test_a_connection_has_a_spend_for_statements_that_name_none(folder):
    path = folder / "spends.toml"
    path.write_text(POLICY)
    policy = dp.Policy.load(path)
    connections = [
        (dp.connect(policy, epsilon=2), 0.02),
        (policy.connect(analyst="team-a", epsilon=3), 0.03),
        (policy.connect(analyst="team-a", share=0.04), 0.04),
    ]
    for number, (con, share) in enumerate(connections):
        before = policy.session.spent.share
        con.execute(f"SELECT COUNT(*) AS n FROM orders WHERE total > {number}")
        assert policy.session.spent.share - before == pytest.approx(share)
        con.execute(f"SELECT COUNT(*) AS n FROM orders WHERE total < {number}", epsilon=5)
        assert policy.session.spent.share - before == pytest.approx(share + 0.05)
        with pytest.raises(dp.InvalidParameterError, match="no private aggregate"):
            con.sql("SELECT COUNT(*) AS n FROM regions", epsilon=5)
        assert con.sql("SELECT COUNT(*) AS n FROM regions").fetchall() == [(2,)]


@pytest.mark.parametrize("words", [{"epsilon": 1, "share": 0.1}, {"share": 2}, {"epsilon": 0}, {"rho": "x"}])
def test_a_spend_of_a_connection_is_checked(policy, words):
    for connect in (policy.connect, lambda **words: dp.connect(policy, **words)):
        with pytest.raises(dp.InvalidParameterError):
            connect(**words)


# ---------------------------------------------------------------------- what is refused while planning


def test_questions_to_frames_that_are_refused_while_planning_are_in_the_log(shared):
    frame = shared.scan("orders", analyst="team-a")
    for ask in (
        lambda: frame.mean("order_id", share=0.01),
        lambda: frame.group_by("status").agg(n=dp.count(), m=dp.sum("order_id"), share=0.01),
        lambda: frame.top_k("no such column", 3, share=0.01),
        lambda: frame.profile(columns=["secret-1234"], share=0.01),
        lambda: frame.above_threshold(5, hits=0, share=0.01),
    ):
        with pytest.raises(dp.DPError):
            ask()
    with pytest.raises(dp.DPError):
        frame.preview.mean("order_id", share=0.01)  # a preview is no question
    log = shared.session.audit_log().filter(analyst="team-a", outcome="refused")
    assert log["asked"].str.split(" of orders, refused").list.first().to_list() == [
        "mean", "count, sum", "top_k", "profile", "question",
    ]  # fmt: skip
    assert log["reason"][0] == "bounds-missing"
    assert "1234" not in str(log.rows())
    assert shared.session.spent.share == 0
