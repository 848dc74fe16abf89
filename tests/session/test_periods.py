"""A new period is a new promise: it is said explicitly, and the total over all periods is shown."""

import json

import pytest

import dp_polars as dp
from dp_polars._cli import main
from dp_polars._session.periods import KIND, together
from tests.policy.shop import POLICY, write_policy, write_shop

pytestmark = pytest.mark.filterwarnings("ignore:epsilon=:dp_polars.errors.DPWarning")  # little noise, on purpose

BUDGETS = {
    "pure": ({"epsilon": 1.0}, "epsilon 3"),
    "approximate": ({"epsilon": 1.0, "delta": 1e-6}, "epsilon 3, delta 3e-06"),
    "zcdp": ({"rho": 0.1, "delta": 1e-6}, "rho 0.3, delta 3e-06"),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_the_promise_over_periods_is_the_sum(tmp_path, name):
    terms, promise = BUDGETS[name]
    session = dp.Session(**terms, unit="user", ledger=tmp_path / "1.db")
    for number in (2, 3):
        session = session.next_period(f"2026-0{number}", ledger=tmp_path / f"{number}.db")
    assert [period.name for period in session.periods] == ["first", "2026-02", "2026-03"]
    assert together(session.periods).promise() == promise
    assert f"all 3 periods together promise {promise}" in session.describe()
    assert f"all 3 periods together promise {promise}" in session._repr_html_()
    assert session.spent.share == 0
    assert dp.Session.from_ledger(tmp_path / "3.db").periods == session.periods


def test_a_period_has_the_whole_budget_and_leaves_the_others_as_they_are(tmp_path):
    first = dp.Session(epsilon=1.0, unit="user", ledger=tmp_path / "1.db")
    first.reserve(dp.pure_cost(0.9), label="most").fail(closes=False)
    second = first.next_period("2", ledger=tmp_path / "2.db")
    second.reserve(dp.pure_cost(1.0), label="all").fail(closes=False)
    assert (first.spent.epsilon, second.spent.epsilon) == (0.9, 1.0)
    with pytest.raises(dp.BudgetExceeded):
        first.check(dp.pure_cost(0.2))
    assert first.periods == ()


def test_beginning_a_period_again_opens_its_ledger_and_resets_nothing(tmp_path):
    first = dp.Session(epsilon=1.0, unit="user", ledger=tmp_path / "1.db")
    first.next_period("2", ledger=tmp_path / "2.db").reserve(dp.pure_cost(1.0), label="all").fail(closes=False)
    assert first.next_period("2", ledger=tmp_path / "2.db").remaining.epsilon == 0
    with pytest.raises(dp.LedgerMismatch, match="left out"):
        first.next_period("3", ledger=tmp_path / "2.db")
    with pytest.raises(dp.InvalidParameterError, match="ledger of its own"):
        first.next_period("2", ledger=tmp_path / "1.db")
    with pytest.raises(dp.InvalidParameterError, match="already"):
        first.next_period("2", ledger=tmp_path / "2.db").next_period("2", ledger=tmp_path / "3.db")


def test_a_process_that_died_while_a_period_began_is_no_harm(tmp_path):
    first = dp.Session(epsilon=1.0, unit="user", ledger=tmp_path / "1.db")
    second = first.next_period("2", ledger=tmp_path / "2.db")
    facts = [(fact.subject, fact.value) for fact in second.facts]
    half = dp.Session(epsilon=1.0, unit="user", ledger=tmp_path / "half.db")
    half._record(KIND, *facts[0])
    assert first.next_period("2", ledger=tmp_path / "half.db").periods == second.periods


@pytest.mark.parametrize("name", ["", "a b", "../x", "é", "x" * 41, None, "-x"])
def test_names_of_periods_are_plain(tmp_path, name):
    with pytest.raises(dp.InvalidParameterError, match="period"):
        dp.Session(epsilon=1.0, unit="user").next_period(name, ledger=tmp_path / "2.db")
    assert not (tmp_path / "2.db").exists()


def test_an_analyst_begins_no_period(tmp_path):
    session = dp.Session(epsilon=1.0, unit="user")
    session.grant("team-a", share=0.5)
    with pytest.raises(dp.InvalidParameterError, match="Only the owner"):
        session.analyst("team-a").next_period("2", ledger=tmp_path / "2.db")


# ---------------------------------------------------------------------- in a policy


def with_periods(*names, epsilon="100.0"):
    listed = ", ".join(f'"{name}"' for name in names)
    return POLICY.replace("epsilon = 100.0", f'epsilon = {epsilon}\nledger = "budget.db"\nperiods = [{listed}]')


def test_a_policy_lists_its_periods_and_shows_the_total(tmp_path, capsys):
    statement = "SELECT COUNT(*) AS n FROM orders"
    first = dp.Policy.load(write_shop(tmp_path, with_periods("2026-10")))
    first.connect().sql(statement, epsilon=60)
    second = dp.Policy.load(write_policy(tmp_path, with_periods("2026-10", "2026-11", epsilon="50.0")))
    assert "periods: 2026-10, 2026-11 (open), which together promise epsilon 150" in second.describe()
    second.connect().sql(statement, epsilon=40)
    assert second.session.spent.share == pytest.approx(0.8)
    assert sorted(path.name for path in tmp_path.glob("budget*.db")) == ["budget.2026-10.db", "budget.2026-11.db"]
    told = "period: 2026-11, after 2026-10; all 2 periods together promise epsilon 150"
    for command in ("budget", "audit"):
        assert main([command, str(tmp_path / "budget.2026-11.db")]) == 0
        assert told in capsys.readouterr().out
    assert main(["budget", str(tmp_path / "budget.2026-11.db"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["all_periods"]["epsilon"] == 150


@pytest.mark.slow
@pytest.mark.parametrize(
    ("later", "words"),
    [
        (POLICY.replace("epsilon = 100.0", 'epsilon = 100.0\nledger = "budget.db"'), "the policy leaves out"),
        (with_periods("2026-11"), "the policy leaves out"),
        (with_periods("2026-11", "2026-11"), "twice"),
        (with_periods("a/b"), "no name of a period"),
        (with_periods(), "the open one last"),
        (with_periods("2026-10").replace('ledger = "budget.db"', ""), "Each period has a ledger"),
    ],
)
def test_an_earlier_promise_is_never_left_out_of_a_policy(tmp_path, later, words):
    policy = dp.Policy.load(write_shop(tmp_path, with_periods("2026-10")))
    policy.connect().sql("SELECT COUNT(*) AS n FROM orders", epsilon=90)
    with pytest.raises(dp.PolicyError, match=words) as refused:
        dp.Policy.load(write_policy(tmp_path, later))
    assert refused.value.problems[0].line > 1


def test_a_ledger_without_a_period_counts(tmp_path):
    plain = POLICY.replace("epsilon = 100.0", 'epsilon = 100.0\nledger = "budget.db"')
    dp.Policy.load(write_shop(tmp_path, plain)).connect().sql("SELECT COUNT(*) AS n FROM orders", epsilon=90)
    with pytest.raises(dp.PolicyError, match=r"rename it to budget\.2026-10\.db"):
        dp.Policy.load(write_policy(tmp_path, with_periods("2026-10", "2026-11")))
    (tmp_path / "budget.db").rename(tmp_path / "budget.2026-10.db")
    policy = dp.Policy.load(write_policy(tmp_path, with_periods("2026-10", "2026-11")))
    assert policy.session.remaining.share == 1
    assert together(policy.session.periods).promise() == "epsilon 200"


def test_periods_of_a_ledger_keep_their_order(tmp_path):
    write_shop(tmp_path, "")
    assert dp.Policy.load(write_policy(tmp_path, with_periods("a", "b", "c"))).session.periods
    policy = dp.Policy.load(write_policy(tmp_path, with_periods("b", "a", "c")))
    with pytest.raises(dp.LedgerMismatch, match="its place or its promise differs"):
        policy.session  # noqa: B018 - opens the ledger


def test_periods_that_protect_others_are_not_added_up(tmp_path):
    first = with_periods("a").replace("queries = 100", "group_size = 2")
    assert dp.Policy.load(write_shop(tmp_path, first)).session.periods
    policy = dp.Policy.load(write_policy(tmp_path, with_periods("a", "b")))
    with pytest.raises(dp.InvalidParameterError, match="another group size"):
        policy.session  # noqa: B018 - opens the ledger
