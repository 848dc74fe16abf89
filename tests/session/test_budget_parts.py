"""The part of the budget that is used: one number that leads everywhere, and parts that add up to it."""

import pickle
import random
import re
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._session.cost import NOTHING
from dp_polars._session.filters import accepts, largest_epsilon, largest_share, part_of, share_of
from dp_polars._session.prices import exponential_cost, gaussian_cost, is_too_small, pure_cost

VISITS = pl.DataFrame({"user": [i % 300 for i in range(900)], "region": ["a", "b", "c"] * 300})
KEYS = ["a", "b", "c"]
SESSIONS = {
    "pure": {"epsilon": 1.0},
    "approximate": {"epsilon": 1.0, "delta": 1e-6},
    "large": {"epsilon": 3.0, "delta": 1e-7},
    "planned": {"epsilon": 1.0, "delta": 1e-6, "queries": 3},
    "zcdp": {"rho": 0.05, "delta": 1e-6},
}


def session_of(kind, **words):
    return dp.Session(**SESSIONS[kind], **words, unit="user", max_groups=1, max_rows_per_group=3)


def random_cost(terms, dice):
    size = 10 ** dice.uniform(-3, -0.3)
    kinds = [lambda: pure_cost(size), lambda: exponential_cost(size)]
    if terms.measure == "approximate":
        kinds += [lambda: gaussian_cost(terms, epsilon=size * float(terms.epsilon))]
    if terms.measure != "pure":
        kinds += [lambda: gaussian_cost(terms, rho=terms.rho_allowed * Fraction(size))]
    return dice.choice(kinds)()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SESSIONS)
def test_the_used_part_starts_at_0_grows_with_every_release_and_ends_at_1(kind):
    """The order of mechanisms changes which account leads, but what is shown always adds up."""
    for seed in range(8):
        dice, terms = random.Random(seed), session_of(kind).terms
        spent, parts = NOTHING, [0.0]
        assert share_of(terms, spent) == 0
        while len(parts) < 400:
            cost = random_cost(terms, dice)
            if is_too_small(terms, cost):
                continue
            if not accepts(terms, spent + cost):
                break
            parts.append(part_of(terms, spent, cost))
            spent = spent + cost
            assert parts[-1] > 0
            assert sum(parts) == pytest.approx(share_of(terms, spent), rel=1e-9)
            assert share_of(terms, spent) <= 1
        else:
            continue
        assert share_of(terms, spent + cost) > 1  # only a release that goes beyond the whole is refused


@pytest.mark.slow
@pytest.mark.parametrize("kind", SESSIONS)
def test_what_people_see_adds_up(kind):
    session = session_of(kind)
    frame = dp.private(VISITS, session)
    seen = []
    spends = [{"share": 0.05}, {"share": 0.1, "keys": KEYS}, {"epsilon": 0.05, "keys": KEYS}, {"share": 0.07}]
    for place, spend in enumerate(spends):
        question = frame.filter(pl.col("user") > place)
        discovers = "keys" not in spend and session.terms.delta
        ask = {"by": "region", **spend} if discovers or "keys" in spend else spend
        preview = question.preview.count(**ask)
        seen.append(preview.part)
        question.count(**ask)
        release = session.releases[-1]
        assert release.part == pytest.approx(preview.part)
        assert release.plan.part == session.plan().part == release.part
        price = dict(preview.rows())["price"]
        assert price.partition(" (")[0] in str(release)
        assert price == dict(release.plan.rows())["price"]
        assert session.spent.share == pytest.approx(sum(seen))
    assert session.export()["share"].to_list() == pytest.approx(seen)
    assert [release.part for release in session.releases] == pytest.approx(seen)
    assert session.release(2).part == pytest.approx(seen[1])
    assert session.remaining.share == pytest.approx(1 - sum(seen))


def test_a_gaussian_release_is_a_small_part_until_epsilons_lead():
    """It says epsilon 0.2 and 3.9 % in a session of epsilon 1, so the text says why."""
    session = session_of("approximate")
    frame = dp.private(VISITS, session)
    spend = {"keys": KEYS, "epsilon": 0.2, "mechanism": "gaussian"}
    assert dict(frame.preview.count("region", **spend).rows())["price"] == (
        "3.9 % of the budget (by itself epsilon 0.2, delta 5e-08; together, releases cost less than the sum of their "
        "epsilons; fits 25 times)"
    )
    frame.count("region", keys=KEYS, epsilon=0.3, mechanism="laplace")
    price = dict(frame.preview.count("region", **spend).rows())["price"]
    assert price.startswith("20 % of the budget (by itself epsilon 0.2, delta 5e-08; fits ")


def test_a_preview_says_that_it_does_not_fit():
    session = session_of("approximate")
    frame = dp.private(VISITS, session)
    frame.count("region", keys=KEYS, epsilon=0.6, mechanism="laplace")
    price = dict(frame.preview.count(epsilon=0.5, mechanism="laplace").rows())["price"]
    assert price == "50 % of the budget (by itself epsilon 0.5); it does not fit, because 40 % of the budget is left"
    price = dict(frame.preview.count("region", epsilon=0.1, delta=1e-6).rows())["price"]
    assert price.endswith("; it does not fit, because too little of the delta for keys is left")
    con = dp.connect(None, session)
    con.register("visits", VISITS)
    one, two = con.preview(
        "SELECT (SELECT dp_count_units() FROM visits) AS a, (SELECT dp_count(*) FROM visits) AS b", epsilon=0.6
    )
    assert (dict(one.rows())["price"], dict(two.rows())["price"]) == (
        "30 % of the budget (by itself epsilon 0.3; fits once)",
        "30 % of the budget (by itself epsilon 0.3); it does not fit, because 10 % of the budget is left",
    )


def alarming(text):
    """Return what used to alarm people: the sums of the accounts, in places that nobody asked for."""
    return re.findall(r"\brho\b|epsilon spent|left 0 \(|beyond|over its limit|other counts|inf\b", text)


@pytest.mark.parametrize("kind", ["pure", "approximate", "large", "planned"])
def test_accounts_are_shown_on_request_only(kind):
    session = session_of(kind)
    frame = dp.private(VISITS, session)
    frame.count("region", keys=KEYS, share=0.25)
    frame.count("region", keys=KEYS, epsilon=0.1)
    texts = [repr(session), session.describe(), repr(session.releases[0])]
    for text in texts:
        assert not alarming(text.replace("by the sum of rhos", "")), text
    assert f"{100 * session.spent.share:.3g} % used" in session.describe()
    accounts = session.describe(accounts=True)
    assert re.search(r"epsilon +\[[#-]+\] +(\d|no bound)", accounts)
    assert ("rho" in accounts) == (kind != "pure")
    assert session._repr_html_().index("budget used") < session._repr_html_().index("<summary>Accounts</summary>")


@pytest.mark.slow
@pytest.mark.parametrize("kind", SESSIONS)
@pytest.mark.parametrize("before", [[0.1], [0.02] * 5, [0.3, 0.2]])
@pytest.mark.parametrize("discovers", [False, True])
def test_a_refusal_names_the_largest_spends_that_fit(kind, before, discovers):
    def spent():
        session = session_of(kind)
        frame = dp.private(VISITS, session)
        for place, epsilon in enumerate(before):
            spend = {"share": epsilon} if kind == "zcdp" else {"epsilon": epsilon}
            asked = frame.filter(pl.col("user") > place).preview.count("region", keys=KEYS, **spend)
            session.reserve(asked.cost, label="before").fail(closes=False)  # a failed question is charged like others
        return frame, session

    if discovers and kind == "pure":
        return
    frame, session = spent()
    ask = {"by": "region"} if discovers else {}
    with pytest.raises(dp.BudgetExceeded) as refused:
        frame.count(**ask, epsilon=5)
    named = dict(one.split("=") for one in refused.value.largest_affordable.split(" or "))
    assert named.keys() == {"share", "epsilon"}
    assert refused.value.remaining.endswith("of the budget") or "of delta for keys" in refused.value.remaining
    for name, number in named.items():
        terms, total = session.terms, session._total()
        frame.count(**ask, **{name: float(number)})
        frame, session = spent()
        if float(number) < 0.999 or name == "epsilon":
            if name == "share":
                assert largest_share(terms, total, keys=discovers) < float(number) * 1.002
            else:
                assert not accepts(terms, total + pure_cost(float(number) * 1.002))


@pytest.mark.slow
def test_a_refusal_for_want_of_delta_says_so():
    session = session_of("approximate")
    frame = dp.private(VISITS, session)
    frame.count("region", epsilon=0.1, delta=2e-7)
    assert "(20 % of the delta for keys)" in session.describe()
    with pytest.raises(dp.BudgetExceeded) as refused:
        frame.count("region", epsilon=0.5, mechanism="laplace")
    assert refused.value.requested == "50 % of the budget and 1.25e-07 of delta for keys"
    assert refused.value.remaining == "90 % of the budget and 5e-08 of delta for keys"
    assert refused.value.largest_affordable == "share=0.2 or epsilon=0.2"
    frame.count("region", epsilon=0.2, mechanism="laplace")


def test_a_hair_too_much_is_told_apart():
    session = session_of("pure")
    session.reserve(pure_cost(0.8), label="first")
    with pytest.raises(
        dp.BudgetExceeded, match=r"requested 20\.00001 % .*remaining 20 % .*share=0\.2 or epsilon=0\.2\."
    ):
        session.reserve(pure_cost(0.2000001), label="second")
    session.reserve(pure_cost(0.2), label="all")
    with pytest.raises(dp.BudgetExceeded, match=r"remaining none of the budget; nothing more fits"):
        session.reserve(pure_cost(0.2), label="more")


@pytest.mark.slow
def test_a_gaussian_that_was_refused_is_told_the_larger_epsilon():
    session = session_of("approximate")
    for _ in range(10):
        session.reserve(gaussian_cost(session, epsilon=0.2), label="gaussian")
    with pytest.raises(dp.BudgetExceeded) as refused:
        session.reserve(gaussian_cost(session, epsilon=0.99), label="too much")
    named = re.search(r"epsilon=([\d.]+) with mechanism='gaussian'", refused.value.largest_affordable)
    assert float(named[1]) == largest_epsilon(session.terms, session._total(), "gaussian", keys=False)
    session.reserve(gaussian_cost(session, epsilon=float(named[1])), label="fits")


def test_a_refusal_says_which_spend_goes_further():
    """Without queries=, shares count in rho, and after a release by epsilon a small share does not fit."""
    frame = dp.private(VISITS, session_of("approximate"))
    frame.count("region", keys=KEYS, epsilon=0.7)
    with pytest.raises(dp.BudgetExceeded) as refused:
        frame.count("region", keys=KEYS, share=0.25)
    assert re.fullmatch(r"[\d.]+ % of the budget \(25 % as a first release\)", refused.value.requested)
    assert refused.value.remaining == "30 % of the budget"
    assert refused.value.largest_affordable.startswith("epsilon=0.3 or share=0.0")
    assert "counts in epsilon, and share= in rho, so epsilon= goes further here." in str(refused.value)
    frame = dp.private(VISITS, session_of("approximate"))
    frame.count("region", keys=KEYS, share=0.7)
    with pytest.raises(dp.BudgetExceeded) as refused:
        frame.count_units(epsilon=0.5)
    assert refused.value.largest_affordable.startswith("share=0.3 or epsilon=0.1")
    assert "counts in rho, so share= goes further than epsilon= here." in str(refused.value)
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.note) == (str(refused.value), refused.value.note)


@pytest.mark.parametrize("kind", ["pure", "zcdp"])
def test_a_session_with_one_account_needs_no_explanation(kind):
    frame = dp.private(VISITS, session_of(kind))
    frame.count(share=0.7)
    with pytest.raises(dp.BudgetExceeded) as refused:
        frame.count("region", keys=KEYS, share=0.5)
    assert (refused.value.requested, refused.value.note) == ("50 % of the budget", "")
    assert refused.value.largest_affordable.startswith("share=0.3 or epsilon=")


# ---------------------------------------------------------------------- what a spend names, and what it costs


def asked_in(door, session, **spend):
    """Return the plan and the release of a count, asked through Polars or SQL."""
    if door == "polars":
        frame = dp.private(VISITS, session)
        plan = frame.preview.count(**spend)
        frame.count(**spend)
    else:
        con = dp.connect(None, session).register("visits", VISITS)
        plan = con.preview("SELECT dp_count(*) AS n FROM visits", **spend)
        con.sql("SELECT dp_count(*) AS n FROM visits", **spend)
    return plan, session.releases[-1]


def counted(rows):
    return [text for name, text in rows if name == "counted"]


@pytest.mark.slow
@pytest.mark.parametrize("door", ["polars", "sql"])
def test_an_epsilon_that_costs_more_than_it_names_says_so_beforehand(door):
    """After a release that is cheap in rho, the sum of rhos counts, and there a Laplace epsilon weighs more."""
    session = session_of("approximate")
    dp.private(VISITS, session).count_units("region", keys=KEYS, share=0.05)
    plan, release = asked_in(door, session, epsilon=0.1)
    assert plan.part > 0.2
    (text,) = counted(plan.rows())
    assert text.startswith("more than the 10 % of epsilon that it names")
    (price,) = re.findall(r"share=0\.1 would cost ([\d.]+) %", text)
    assert counted(release.notes) == [text]
    assert text in str(release)
    # The promise is kept: the same question for that share costs what the text says.
    other = session_of("approximate")
    dp.private(VISITS, other).count_units("region", keys=KEYS, share=0.05)
    assert asked_in(door, other, share=0.1)[0].part == pytest.approx(float(price) / 100, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("door", ["polars", "sql"])
def test_a_spend_that_costs_what_it_names_says_nothing(door):
    session = session_of("approximate")
    for spend in ({"epsilon": 0.1}, {"epsilon": 0.2}):
        plan, release = asked_in(door, session, **spend)
        assert counted(plan.rows()) == counted(release.notes) == []
    for kind in ("pure", "zcdp"):
        plan, _ = asked_in(door, session_of(kind), share=0.1)
        assert counted(plan.rows()) == []


@pytest.mark.slow
@pytest.mark.parametrize("door", ["polars", "sql"])
def test_a_planned_question_that_is_not_one_nth_of_the_budget_says_why(door):
    """In a session that counts epsilons, Gaussian noise uses less of the sum of rhos, and the smaller sum counts."""
    session = dp.Session(epsilon=4.0, delta=1e-6, queries=12, unit="user", max_rows_per_group=3)
    assert session.terms.share_account == "epsilon"
    many = [f"region {i}" for i in range(40)]
    frame = dp.private(VISITS, session)
    first = frame.preview.count("region", keys=many)
    assert first.part < 0.08
    (text,) = counted(first.rows())
    assert text.startswith("8.33 % of the sum of epsilons, as asked; less of the sum of rhos is used in all, ")
    assert "opened with max_groups=40" in text
    wide = dp.Session(epsilon=4.0, delta=1e-6, queries=12, unit="user", max_rows_per_group=3, max_groups=40)
    other = dp.private(VISITS, wide).preview.count("region", keys=many)
    less = first.measurements[0].noise.deviation / other.measurements[0].noise.deviation
    assert f"about {less:.2g} times less noise" in text
    frame.count("region", keys=many)
    plan, release = asked_in(door, session)
    assert plan.part > 0.09
    assert counted(plan.rows()) == counted(release.notes) != []


@pytest.mark.slow
def test_a_stored_release_that_is_presented_again_keeps_its_price():
    session = session_of("approximate")
    frame = dp.private(VISITS, session)
    frame.count_units("region", keys=KEYS, share=0.05)
    frame.count(epsilon=0.1)
    before = session.releases[-1]
    frame.count_units(epsilon=0.3)
    con = dp.connect(None, session).register("visits", VISITS)
    con.sql("SELECT dp_count(*) AS n, dp_low(n) AS low FROM visits", epsilon=0.1)
    assert con._paid[0].plan.part == pytest.approx(con._paid[0].part)
    frame.count(epsilon=0.1, confidence=0.95)
    assert counted(session.releases[1].notes) == counted(before.notes) != []
