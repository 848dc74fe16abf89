"""Analysts with shares of one session: no share and no session is overspent, and failures close one share only."""

import itertools
import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._session.filters import accepts, beyond_share, cost_of_share
from tests.session.old_ledger import write_old_ledger

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["dp_polars._sql.connection", "tests.session.test_analysts"])
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


def test_streams_opened_at_once_share_what_an_analyst_has(budget):
    """Eight threads open streams and online queries. The share pays for three of them, whichever these are."""
    session = session_of(budget)
    session.grant("team-a", share=Fraction(3, 10))
    people = dp.private(PEOPLE, session.analyst("team-a"))
    start = threading.Barrier(8)

    def opened(number):
        start.wait()
        try:
            if number % 2:
                return people.online_queries({"city": ["a", "b"]}, alpha=0.4, max_updates=2, share=Fraction(1, 10))
            return people.sparse_vector(50, hits=2, share=Fraction(1, 10))
        except dp.BudgetExceeded:
            return None

    with ThreadPoolExecutor(8) as threads:
        streams = [stream for stream in threads.map(opened, range(8)) if stream is not None]
        assert len(streams) == 3
        assert session.analyst("team-a").spent.share <= 0.3 + 1e-9
        # Whoever asks it, a stream answers above its threshold twice at most, and asking costs nothing.
        several = people.sparse_vector(-1_000, hits=2, session=session, share=Fraction(1, 10))

        def ask(_):
            try:
                return several.ask(pl.col("city") == "a")
            except dp.InvalidParameterError:
                return False

        assert sum(threads.map(ask, range(8))) == 2
    assert session.spent.share <= 0.4 + 1e-9


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


def test_the_audit_log_has_the_plan_and_the_price_of_a_charge():
    session = session_of()
    session.grant("team-a", share=0.5)
    people = dp.private(PEOPLE, session.analyst("team-a"), name="people")
    people.filter(pl.col("city") == "a").with_columns(far=pl.col("user") > 10).count_units("far", epsilon=0.25)
    (record,) = session.audit_log().rows(named=True)
    assert record["asked"].startswith('filter(eq(city, "a")).with_columns(far=gt(user, 10)): count_units by far')
    assert record["question"].startswith("count_units by far")
    assert (record["epsilon"], record["share"], record["delta"]) == (0.25, 0.25, 0.0)


def test_parameters_are_part_of_what_was_asked():
    session = session_of()
    session.grant("team-a", share=0.5)
    con = dp.connect(None, session.analyst("team-a")).register("people", PEOPLE)
    con.sql("SELECT dp_count_units() FROM people WHERE city = $c", params={"c": "a"}, epsilon=0.1)
    for wrong in (object(), 10**5000):
        with pytest.raises(dp.DPError):
            con.sql("SELECT dp_count_units() FROM people WHERE user = ?", params=[wrong], epsilon=0.1)
    with pytest.raises(dp.DPError):
        con.sql("SELECT '\ud800'")
    asked = session.audit_log()["asked"].to_list()
    assert [text.partition(" -- with ")[2] for text in asked] == ["c = 'a'", "1 = a object", "1 = a large integer", ""]
    assert asked[-1] == r"SELECT '\ud800'"
    with pytest.raises(dp.InvalidParameterError, match="must be a text"):
        con.sql(5)


@pytest.mark.parametrize(
    ("error", "reason"), [(TypeError("user 17"), "internal-error"), (KeyboardInterrupt(), "interrupted")]
)
def test_an_error_of_the_library_before_a_charge_is_in_the_audit_log(monkeypatch, error, reason):
    """What its text says is not kept, because nobody knows what an unforeseen error quotes."""

    def fails(*_, **__):
        raise error

    session = session_of()
    session.grant("team-a", share=0.5)
    team = session.analyst("team-a")
    con = dp.connect(None, team).register("people", PEOPLE)
    monkeypatch.setattr("dp_polars._sql.connection.plan_statement", fails)
    monkeypatch.setattr("dp_polars._frame.private_frame.planned", fails)
    with pytest.raises(type(error)):
        con.sql("SELECT dp_count_units() FROM people", epsilon=0.1)
    with pytest.raises(type(error)):
        dp.private(PEOPLE, team, name="people").count_units(epsilon=0.1)
    log = session.audit_log()
    assert log.select("outcome", "reason", "share").rows() == [("refused", reason, 0.0)] * 2
    assert log["asked"].to_list() == [
        "SELECT dp_count_units() FROM people",
        "count_units of people, refused while planning",
    ]


def test_what_is_asked_of_a_stream_is_in_the_audit_log():
    session = session_of()
    session.grant("team-a", share=1)
    people = dp.private(PEOPLE, session.analyst("team-a"))
    stream = people.sparse_vector(1_000, epsilon=0.2)
    stream.ask(pl.col("city") == "a")
    stream.ask_many([pl.col("city") == "b", dp.count_units()])
    with pytest.raises(dp.DPError):
        stream.ask(pl.col("nowhere"))
    log = session.audit_log()
    assert log["outcome"].to_list() == ["committed", "stored", "stored", "refused"]
    assert log["charge"].to_list() == [1, 1, 1, None]
    assert log["share"].to_list() == [0.2, 0.0, 0.0, 0.0]
    assert [text.partition(": ")[2] for text in log["asked"]][1:] == [
        '[(col("city")) == ("a")]', '[(col("city")) == ("b")]; count_units()', 'col("nowhere")',
    ]  # fmt: skip


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


NAMES = [f"team-{number}" for number in range(4)]
SHARE = Fraction(3, 10)  # of each of four analysts: together more than the budget, so the session refuses, too
QUESTIONS = [
    ("SELECT dp_count_units(epsilon := 0.001) AS n{unique} FROM people", "charged"),
    ("SELECT dp_count_units(epsilon := 0.003) AS n{unique} FROM people WHERE city = 'a'", "charged"),
    ("SELECT dp_count_units(epsilon := 0.001) AS shared FROM people", "stored"),
    ("SELECT city AS n{unique} FROM people", "refused"),
]


def ask_until_refused(path, name, number, ready, receipts) -> None:
    """Ask SQL as an analyst until the budget is used up, and write down each answer only after it was received."""
    team, dice = dp.Session.from_ledger(path).analyst(name), random.Random(number)
    con = dp.connect(None, team).register("people", PEOPLE)
    out = os.open(receipts, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    ready.release()
    for place in itertools.count():
        query, outcome = dice.choice(QUESTIONS)
        asked = query.format(unique=f"_{number}_{place}")
        if outcome == "charged":
            asked = asked.replace("FROM people", f"FROM people WHERE user <> -{number}{place:06}", 1).replace(
                f"{place:06} WHERE", f"{place:06} AND"
            )
        try:
            con.sql(asked)
        except dp.BudgetExceeded:
            break
        except dp.SessionClosed:  # a process of this analyst was killed: wait until the owner reopens the share
            time.sleep(0.01)
            continue
        except dp.StatementNotAllowed:
            assert outcome == "refused"
        os.write(out, f"{asked}\n".encode())


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Processes are killed by a POSIX signal.")
def test_eight_processes_of_four_analysts_killed_at_random_overspend_nothing(tmp_path):
    """Processes die at random moments, and others take their place. The ledger is then added up by itself.

    Every charge has its entry in the audit log, with its analyst and its state, and everything that a process was told,
    answers and refusals, stands there. Shares close by kills of their analyst only, and the owner can reopen each.
    """
    path, dice = tmp_path / "budget.db", random.Random(7)
    session = session_of({"epsilon": 0.2}, ledger=path)
    for name in NAMES:
        session.grant(name, share=SHARE, overcommit=True)
    ready, numbers = CONTEXT.Semaphore(0), itertools.count()

    def start(team):
        number = next(numbers)
        child = CONTEXT.Process(
            target=ask_until_refused, args=(str(path), NAMES[team], number, ready, str(tmp_path / f"receipts {number}"))
        )
        child.start()
        return team, child

    def reopen_all():
        for name in {closing.analyst for closing in session.closings if closing.reopened_at is None}:
            session.reopen(reason="A process was killed.", analyst=name)

    running = [start(number % 4) for number in range(8)]
    for _ in running:
        assert ready.acquire(timeout=120)
    kills, killed = 0, set()
    while session.spent.share < 0.9:
        time.sleep(dice.uniform(0, 0.1))
        place = dice.randrange(8)
        team, child = running[place]
        if kills < 10 and child.is_alive():
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            assert child.exitcode == -signal.SIGKILL or child.exitcode == 0, "a process failed by itself"
            kills += child.exitcode != 0
            killed.add(NAMES[team])
            running[place] = start(team)
        reopen_all()
    while any(child.is_alive() for _, child in running):
        reopen_all()
        time.sleep(0.01)
    reopen_all()  # a death may be noticed only now
    assert all(child.exitcode == 0 for _, child in running)
    assert kills >= 4

    charges = session.export().sort("id")
    spent = {name: Fraction(0) for name in NAMES}
    for entry in session.releases:  # added up exactly, without the ledger's own sums
        spent[entry.entry.analyst] += entry.cost.epsilon
    assert sum(spent.values()) <= Fraction(2, 10)
    assert sum(spent.values()) > Fraction(2, 10) * Fraction(95, 100)
    assert all(part <= SHARE * Fraction(2, 10) for part in spent.values())
    log = session.audit_log()
    charged = log.filter(pl.col("charge").is_not_null() & (pl.col("outcome") != "stored")).sort("charge")
    assert charged["charge"].to_list() == charges["id"].to_list()
    assert charged["outcome"].to_list() == charges["state"].to_list()
    assert charged["analyst"].to_list() == charges["analyst"].to_list()
    assert set(charged["outcome"]) <= {"committed", "failed"}
    told = [line for file in tmp_path.glob("receipts *") for line in file.read_text().splitlines()]
    known = Counter(log.filter(pl.col("outcome") != "failed")["asked"])
    assert not Counter(told) - known, "an answer or a refusal has no entry"
    assert {closing.analyst for closing in session.closings} <= killed
    assert all(closing.cause == "died" for closing in session.closings)
    assert all(closing.reason == "A process was killed." for closing in session.closings)
    assert not session.closed
