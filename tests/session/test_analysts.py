"""Analysts with shares of one session: no share and no session is overspent, and failures close one share only."""

import itertools
import multiprocessing
import os
import pickle
import random
import signal
import time
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._session.filters import accepts, beyond_share, cost_of_share
from tests.session.old_ledger import write_old_ledger

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["dp_polars", "tests.session.test_analysts"])
PEOPLE = pl.DataFrame({"user": range(100), "city": ["a", "b"] * 50})
BUDGETS = {
    "pure": {"epsilon": 1.0},
    "approximate": {"epsilon": 1.0, "delta": 1e-6},
    "planned": {"epsilon": 1.0, "delta": 1e-6, "queries": 2},
    "zcdp": {"rho": 0.1, "delta": 1e-6},
}


@pytest.fixture(params=BUDGETS)
def budget(request):
    return BUDGETS[request.param]


def session_of(budget=None, **options):
    return dp.Session(**(budget or {"epsilon": 1.0}), unit="user", max_rows_per_group=1, max_groups=1, **options)


def share_cost(session, share, *, keys=False):
    return cost_of_share(session.terms, Fraction(share), keys=keys)


def spend(session, share, *, keys=False):
    session.reserve(share_cost(session, share, keys=keys), label="test").fail(closes=False)


def test_shares_that_sum_to_one_can_all_be_used_in_any_order(budget):
    parts = [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)]
    for order in itertools.permutations(range(3)):
        session = session_of(budget)
        for number, part in enumerate(parts):
            session.grant(f"team-{number}", share=part)
        for number in order:
            team = session.analyst(f"team-{number}")
            spend(team, parts[number] / 2, keys=session.terms.native_delta > 0)
            spend(team, parts[number] / 2, keys=session.terms.native_delta > 0)
            with pytest.raises(dp.BudgetExceeded):
                spend(team, Fraction(1, 1000))


def test_an_analyst_cannot_go_beyond_the_share_though_the_session_could(budget):
    session = session_of(budget)
    session.grant("team-a", share=0.25)
    team = session.analyst("team-a")
    spend(team, "1/5")
    for share in ("1/10", "1/19"):
        assert session.can_afford(share_cost(session, share))
        assert not team.can_afford(share_cost(session, share))
        with pytest.raises(dp.BudgetExceeded):
            team.check(share_cost(session, share))
        with pytest.raises(dp.BudgetExceeded):
            spend(team, share)
    spend(team, "1/20")
    assert team.remaining.share == 0
    assert team.spent.share == pytest.approx(0.25)


def test_the_session_refuses_what_the_share_would_allow(budget):
    session = session_of(budget)
    session.grant("team-a", share=1)
    session.grant("team-b", share=1, overcommit=True)
    spend(session.analyst("team-a"), "3/4")
    team = session.analyst("team-b")
    with pytest.raises(dp.BudgetExceeded):
        spend(team, "1/2")
    spend(team, "1/4")
    assert accepts(session.terms, session._ledger.spent())
    assert not session.can_afford(share_cost(session, "1/1000"))


def test_delta_for_keys_is_shared_like_the_budget():
    session = session_of(BUDGETS["approximate"])
    session.grant("team-a", share=0.5)
    delta = session.terms.native_delta
    cheap = dp.pure_cost(0.001)
    small = dp.Cost(epsilon=cheap.epsilon, rho=cheap.rho, delta=delta * Fraction(1, 2))
    large = dp.Cost(epsilon=cheap.epsilon, rho=cheap.rho, delta=delta * Fraction(51, 100))
    assert not session.analyst("team-a").can_afford(large)
    assert session.can_afford(large)
    assert session.analyst("team-a").can_afford(small)


def test_a_refusal_names_a_spend_that_fits_the_share(budget):
    session = session_of(budget)
    session.grant("team-a", share=0.25)
    team = session.analyst("team-a")
    spend(team, "1/8")
    with pytest.raises(dp.BudgetExceeded) as refused:
        spend(team, "1/4")
    named = [text for text in refused.value.largest_affordable.split(" or ") if text.startswith("share=")]
    assert named == ["share=0.125"]
    assert team.can_afford(share_cost(session, "0.125"))


def test_what_is_beyond_a_share_leaves_exactly_the_share(budget):
    terms = session_of(budget).terms
    for share in (Fraction(1, 7), Fraction(1, 2), Fraction(1)):
        start = beyond_share(terms, share)
        assert accepts(terms, start + cost_of_share(terms, share, keys=False))
        assert not accepts(terms, start + cost_of_share(terms, share * Fraction(1001, 1000), keys=False))


def test_the_owner_raises_and_lowers_a_share():
    session = session_of()
    session.grant("team-a", share=0.5)
    team = session.analyst("team-a")
    spend(team, "1/2")
    session.grant("team-a", share=0.75)
    spend(team, "1/4")
    session.grant("team-a", share=0.1)
    assert team.remaining.share == 0
    with pytest.raises(dp.BudgetExceeded):
        spend(team, "1/100")
    assert session.shares == {"team-a": 0.1}


def test_shares_beyond_the_budget_need_the_word():
    session = session_of()
    session.grant("team-a", share=0.6)
    with pytest.raises(dp.InvalidParameterError, match="overcommit=True"):
        session.grant("team-b", share=0.5)
    assert session.shares == {"team-a": 0.6}
    session.grant("team-b", share=0.5, overcommit=True)
    assert "together more than the budget" in session.describe()
    assert "together more than the budget" in session._repr_html_()


@pytest.mark.parametrize("share", [0, -0.1, 1.01, float("nan"), float("inf"), "x", None])
def test_a_share_is_a_part(share):
    with pytest.raises(dp.InvalidParameterError):
        session_of().grant("team-a", share=share)


@pytest.mark.parametrize("name", ["", " ", "a ", " a", "a\n", "a\0", "ﬁn", "x" * 101, "\ud800", "a\u200b", None, 3])
def test_names_that_could_pass_for_others_are_refused(name):
    with pytest.raises(dp.InvalidParameterError):
        session_of().grant(name, share=0.1)


def test_an_analyst_is_no_owner():
    session = session_of()
    session.grant("team-a", share=0.5)
    team = session.analyst("team-a")
    for act in (
        lambda: team.grant("team-a", share=1),
        lambda: team.analyst("team-a"),
        lambda: team.reopen(reason="mine"),
    ):
        with pytest.raises(dp.InvalidParameterError, match="Only the owner"):
            act()
    with pytest.raises(dp.InvalidParameterError, match="no share"):
        session.analyst("team-b")


def test_a_failure_closes_one_share_and_the_owner_reopens_it():
    session = session_of()
    for name in ("team-a", "team-b"):
        session.grant(name, share=0.4)
    first, second = session.analyst("team-a"), session.analyst("team-b")
    first.reserve(share_cost(session, "1/10"), label="fails").fail()
    assert (first.closed, second.closed, session.closed) == (True, False, False)
    with pytest.raises(dp.SessionClosed, match="share of team-a"):
        spend(first, "1/10")
    with pytest.raises(dp.SessionClosed):
        first.check(share_cost(session, "1/10"))
    spend(second, "1/10")
    spend(session, "1/10")
    with pytest.raises(dp.InvalidParameterError, match="Closed shares: team-a"):
        session.reopen(reason="which?")
    with pytest.raises(dp.InvalidParameterError):
        session.reopen(reason="wrong", analyst="team-b")
    assert "analyst='team-a'" in session.describe()
    session.reopen(reason="looked at", analyst="team-a")
    spend(first, "1/10")


def test_a_failure_of_the_owner_closes_everything():
    session = session_of()
    session.grant("team-a", share=0.5)
    team = session.analyst("team-a")
    session.reserve(share_cost(session, "1/10"), label="fails").fail()
    assert team.closed
    with pytest.raises(dp.SessionClosed, match="This session"):
        spend(team, "1/10")
    session.reopen(reason="looked at")
    spend(team, "1/10")


def test_queries_under_way_when_the_share_closes_release_nothing_and_those_of_others_do():
    session = session_of()
    for name in ("team-a", "team-b"):
        session.grant(name, share=0.5)
    first, second = session.analyst("team-a"), session.analyst("team-b")
    running = first.reserve(share_cost(session, "1/10"), label="under way")
    other = second.reserve(share_cost(session, "1/10"), label="of another team")
    first.reserve(share_cost(session, "1/10"), label="fails").fail()
    session.reopen(reason="looked at", analyst="team-a")
    with pytest.raises(dp.SessionClosed):
        running.commit(pl.DataFrame({"n": [1]}))
    assert other.commit(pl.DataFrame({"n": [1]})).state == "committed"


def test_streams_of_another_analyst_go_on():
    session = session_of()
    for name in ("team-a", "team-b"):
        session.grant(name, share=0.5)
    stream = dp.private(PEOPLE, session.analyst("team-a")).above_threshold(1_000_000, epsilon=0.2)
    session.analyst("team-b").reserve(share_cost(session, "1/10"), label="fails").fail()
    assert stream.ask(pl.col("city") == "a") is False
    session.analyst("team-a").reserve(share_cost(session, "1/10"), label="fails").fail()
    with pytest.raises(dp.SessionClosed):
        stream.ask(pl.col("city") == "a")


def test_a_stored_release_is_free_for_another_analyst():
    session = session_of()
    session.grant("team-a", share=0.5)
    session.grant("team-b", share=0.001)
    question = {"keys": ["a", "b"], "epsilon": 0.4}
    first = dp.private(PEOPLE, session.analyst("team-a"), name="people", data_version="1").count("city", **question)
    again = dp.private(PEOPLE, session.analyst("team-b"), name="people", data_version="1").count("city", **question)
    assert first.equals(again)
    assert session.analyst("team-b").spent.share == 0
    assert session.audit_log().select("analyst", "outcome", "charge", "share").rows() == [
        ("team-a", "committed", 1, 0.4),
        ("team-b", "stored", 1, 0.0),
    ]


def test_the_audit_log_has_every_question_as_it_was_asked():
    session = session_of()
    session.grant("team-a", share=0.5)
    con = dp.connect(None, session.analyst("team-a"))
    con.register("people", PEOPLE)
    asked = "SELECT dp_count_units() AS n FROM people"
    con.sql(asked, epsilon=0.3)
    con.sql(asked, epsilon=0.3)
    with pytest.raises(dp.BudgetExceeded):
        con.sql("SELECT dp_count_units() AS m FROM people WHERE city = 'a'", epsilon=0.4)
    with pytest.raises(dp.StatementNotAllowed):
        con.sql("SELECT city FROM people")
    log = session.audit_log()
    assert log["asked"].to_list()[:2] == [asked, asked]
    assert log["outcome"].to_list() == ["committed", "stored", "refused", "refused"]
    assert log["reason"].to_list()[:3] == [None, None, "budget-exceeded"]
    assert log["reason"][3] is not None
    assert session.export()["analyst"].to_list() == ["team-a"]
    assert "team-a" in repr(session.analyst("team-a"))


def test_the_owners_questions_are_not_in_the_audit_log():
    session = session_of()
    spend(session, "1/10")
    assert session.audit_log().is_empty()
    assert session.export()["analyst"].to_list() == [None]


def test_a_share_lives_in_the_ledger_file_and_survives_pickling(tmp_path):
    session = session_of(ledger=tmp_path / "budget.db")
    session.grant("team-a", share=0.25)
    spend(session.analyst("team-a"), "1/5")
    copied = pickle.loads(pickle.dumps(session.analyst("team-a")))
    assert copied.analyst_name == "team-a"
    with pytest.raises(dp.BudgetExceeded):
        spend(copied, "1/10")
    reopened = dp.Session.from_ledger(tmp_path / "budget.db").analyst("team-a")
    assert reopened.spent.share == pytest.approx(0.2)


def test_an_older_ledger_gets_analysts_when_it_is_opened(tmp_path):
    write_old_ledger(tmp_path / "old.db", b"")
    session = dp.Session.from_ledger(tmp_path / "old.db")
    session.grant("team-a", share=0.25)
    spend(session.analyst("team-a"), "1/4")
    assert session.export()["analyst"].to_list() == [None, None, "team-a"]


def ask_until_refused(path, name, number, ready) -> None:
    """Ask as an analyst until the budget is used up. If the share is closed, wait until the owner reopens it."""
    team, dice = dp.Session.from_ledger(path).analyst(name), random.Random(number)
    ready.release()
    while True:
        try:
            cost = dp.pure_cost(dice.choice([0.001, 0.002, 0.003]))
            with team.reserve(cost, label="question") as reservation:
                time.sleep(0.002)  # so that most processes are killed in the middle of a charge
                reservation.commit(pl.DataFrame({"n": [1]}))
        except dp.BudgetExceeded:
            break
        except dp.SessionClosed:
            time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Processes are killed by a POSIX signal.")
def test_eight_processes_of_four_analysts_killed_at_random_overspend_nothing(tmp_path):
    path = tmp_path / "budget.db"
    session = session_of({"epsilon": 0.2}, ledger=path)
    names = [f"team-{number}" for number in range(4)]
    for name in names:
        session.grant(name, share=0.3, overcommit=True)
    ready = CONTEXT.Semaphore(0)
    children = [
        CONTEXT.Process(target=ask_until_refused, args=(str(path), names[number % 4], number, ready))
        for number in range(8)
    ]
    for child in children:
        child.start()
    for _ in children:
        assert ready.acquire(timeout=120)
    victims = [team + random.choice([0, 4]) for team in random.sample(range(4), 3)]  # one process each of three teams
    for number in victims:
        while session.analyst(names[number % 4]).spent.share < 0.05:
            time.sleep(0.01)
        os.kill(children[number].pid, signal.SIGKILL)
    killed = {names[number % 4] for number in victims}
    while any(child.is_alive() for child in children):
        for name in {closing.analyst for closing in session.closings if closing.reopened_at is None}:
            session.reopen(reason="A process was killed.", analyst=name)
        time.sleep(0.01)
    for name in {closing.analyst for closing in session.closings if closing.reopened_at is None}:
        session.reopen(reason="A process was killed.", analyst=name)  # its death was noticed only now
    ledger = session.export()
    assert accepts(session.terms, session._ledger.spent())
    assert session.spent.share > 0.98
    for name in names:
        assert session.analyst(name).spent.share <= 0.3 + 1e-12
    assert {closing.analyst for closing in session.closings} <= killed
    assert all(closing.cause == "died" for closing in session.closings)
    assert not session.closed
    assert all(closing.reason == "A process was killed." for closing in session.closings)
    charged = session.audit_log().filter(pl.col("charge").is_not_null())
    assert sorted(charged["charge"].to_list()) == ledger["id"].to_list()
    assert charged["outcome"].to_list() == ledger.sort("id")["state"].to_list()
