"""Prices: exact where a user wrote the number, rounded up where a formula computed it, and never below the smallest."""

import math
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_polars as dp
from dp_polars import InvalidParameterError
from dp_polars._numbers import boundary
from dp_polars._session.cost import NOTHING, Cost, amount_of, amount_text
from dp_polars._session.filters import accepts, share_of
from dp_polars._session.prices import (
    SMALLEST_SHARE,
    epsilon_of_rho,
    exponential_cost,
    gaussian_cost,
    is_too_small,
    pure_cost,
    smallest,
    smallest_spend,
)
from dp_polars.theory import pure_to_zcdp, zcdp_to_delta
from tests.session.test_filter_by_enumeration import terms_of


def test_a_price_is_the_number_that_was_written():
    cost = pure_cost(0.1)
    assert cost.epsilon == Fraction(1, 10)
    assert cost.delta == cost.gaussian_delta == 0
    assert cost.rho >= Fraction(0.1 * math.tanh(0.05))
    assert cost.rho < Fraction(0.1 * math.tanh(0.05) * (1 + 3e-12))


def test_an_approximate_session_accepts_458_of_a_hundredth_and_ten_of_a_tenth():
    terms = terms_of(1.0, 1e-6)
    for epsilon, expected in ((0.01, 458), (0.02, 114), (0.05, 20), (0.1, 10)):
        cost = pure_cost(epsilon)
        assert accepts(terms, cost * expected)
        assert not accepts(terms, cost * (expected + 1))


def test_a_pure_session_accepts_exactly_ten_of_a_tenth():
    terms = terms_of(1.0)
    assert accepts(terms, pure_cost(0.1) * 10)
    assert not accepts(terms, pure_cost(0.1) * 10 + pure_cost(1e-9))
    assert not accepts(terms, pure_cost(0.1, delta=1e-9))


@pytest.mark.slow
@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 1000), st.booleans()), min_size=1, max_size=12), st.sampled_from([0.3, 1.0, 4.0])
)
def test_any_mix_of_laplace_and_gaussian_that_sums_to_epsilon_fits(parts, epsilon):
    """The filter is never worse than basic composition, whatever the mixture and its order."""
    terms = terms_of(epsilon, 1e-6)
    whole = sum(weight for weight, _ in parts)
    spent = NOTHING
    for weight, is_gaussian in parts:
        own = Fraction(repr(epsilon)) * weight / whole
        spent = spent + (gaussian_cost(terms, epsilon=own) if is_gaussian else pure_cost(own))
        assert accepts(terms, spent)
    assert spent.epsilon == Fraction(repr(epsilon))


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0])
def test_a_gaussian_by_epsilon_has_that_guarantee(epsilon):
    terms = terms_of(1.0, 1e-6)
    cost = gaussian_cost(terms, epsilon=epsilon)
    assert cost.epsilon == Fraction(repr(epsilon))
    assert cost.gaussian_delta == terms.gaussian_delta * cost.epsilon
    assert zcdp_to_delta(cost.rho, epsilon) <= float(cost.gaussian_delta) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 0.99])
def test_a_gaussian_by_rho_counts_the_epsilon_that_gives_this_rho(epsilon):
    terms = terms_of(1.0, 1e-6)
    by_epsilon = gaussian_cost(terms, epsilon=epsilon)
    by_rho = gaussian_cost(terms, rho=by_epsilon.rho)
    assert by_rho.rho == by_epsilon.rho
    assert math.isclose(by_rho.epsilon, epsilon, rel_tol=1e-9)
    assert zcdp_to_delta(by_rho.rho, by_rho.epsilon) <= float(by_rho.gaussian_delta) * (1 + 1e-9)


def test_a_gaussian_that_does_not_fit_epsilon_counts_as_infinite_there():
    terms = terms_of(1.0, 1e-6)
    rho = terms.rho_allowed  # conversion has twice the delta of the Gaussians, so this fits rho and not epsilon
    cost = gaussian_cost(terms, rho=rho)
    assert cost.epsilon == math.inf
    assert accepts(terms, cost)
    assert not accepts(terms, cost + pure_cost(1e-6))


def test_gaussian_noise_in_pure_and_zcdp_sessions():
    with pytest.raises(InvalidParameterError, match="pure session"):
        gaussian_cost(terms_of(1.0), epsilon=0.1)
    with pytest.raises(InvalidParameterError, match="rho="):
        gaussian_cost(terms_of(rho=0.1), epsilon=0.1)
    with pytest.raises(InvalidParameterError, match="epsilon= or as rho="):
        gaussian_cost(terms_of(1.0, 1e-6))
    cost = gaussian_cost(terms_of(rho=0.1), rho=0.1)
    assert cost.epsilon == math.inf
    assert accepts(terms_of(rho=0.1), cost)


def test_a_share_is_the_smallest_of_the_two_measures():
    terms = terms_of(1.0, 1e-6)
    assert share_of(terms, pure_cost(0.1)) == pytest.approx(0.1)
    small = pure_cost(0.01)
    assert share_of(terms, small) == pytest.approx(float(small.rho / terms.rho_allowed))
    assert share_of(terms, small) < 0.01


@pytest.mark.parametrize("amount", [Fraction(1, 3), Fraction(0), Fraction(10**30, 7), math.inf])
def test_amounts_survive_the_ledger_exactly(amount):
    assert amount_of(amount_text(amount)) == amount


@pytest.mark.parametrize("bad", [-Fraction(1), -0.5, math.nan, -math.inf, None, "1", True])
def test_a_cost_is_a_number_and_not_negative(bad):
    with pytest.raises(InvalidParameterError, match="epsilon"):
        Cost(epsilon=bad, rho=Fraction(1))


def test_a_cost_keeps_the_number_that_was_written_and_prints_it():
    cost = Cost(epsilon=0.1, rho=math.inf)
    assert cost.epsilon == Fraction(1, 10)
    assert repr(cost) == "<dp.Cost epsilon 0.1, rho inf>"


def test_the_exponential_mechanism_has_its_bounded_range_price():
    cost = exponential_cost(0.5)
    assert cost.epsilon == Fraction(1, 2)
    assert math.isclose(cost.rho, 0.25 / 8, rel_tol=1e-11)
    assert cost.rho >= Fraction(1, 32)


def test_a_session_can_stand_for_its_terms():
    session = dp.Session(epsilon=1.0, delta=1e-6, unit="u")
    assert gaussian_cost(session, epsilon=0.1) == gaussian_cost(session.terms, epsilon=0.1)


# ---------------------------------------------------------------- the smallest price

ROWS = pl.DataFrame({"user": range(60), "n": [1, 2, 3] * 20, "flag": [True, False] * 30})
SESSIONS = {
    "pure": {"epsilon": 1.0},
    "approximate": {"epsilon": 1.0, "delta": 1e-6},
    "zcdp": {"rho": 0.5, "delta": 1e-6},
}


def session_of(kind, **words):
    return dp.Session(**SESSIONS[kind], unit="user", max_rows_per_group=1, max_groups=1, **words)


@pytest.mark.parametrize("kind", SESSIONS)
def test_no_session_has_more_than_a_hundred_thousand_charges(kind):
    """This holds even if each charge costs the least, in the account that lasts longest."""
    session = session_of(kind)
    terms = session.terms
    if kind == "zcdp":
        cost = dp.gaussian_cost(terms, rho=smallest(terms)["rho"])
    else:
        cost = dp.pure_cost(smallest_spend(terms))
    assert not is_too_small(terms, cost)
    assert session.affordable_count(cost) <= 1 / SMALLEST_SHARE == 100_000
    least = dp.Cost(epsilon=smallest(terms).get("epsilon", Fraction(1)), rho=smallest(terms).get("rho", Fraction(1)))
    assert session.affordable_count(least) == 100_000


@pytest.mark.parametrize(
    ("kind", "cost"),
    [
        ("pure", dp.pure_cost(0.99e-5)),
        ("approximate", dp.pure_cost(0.99e-5)),
        ("approximate", dp.pure_cost(6e-4)),  # enough in epsilon but not in rho
        ("approximate", dp.Cost(epsilon=Fraction(1, 10**6), rho=Fraction(1, 10))),
        ("zcdp", dp.Cost(epsilon=float("inf"), rho=Fraction(4, 10**6))),
        ("zcdp", dp.pure_cost(1e-3)),
    ],
)
def test_a_smaller_price_is_refused_at_the_charge_with_the_number(kind, cost):
    session = session_of(kind)
    with pytest.raises(dp.InvalidParameterError, match=r"at least 1/100,000 of the session .* share=1e-05 or more"):
        session.reserve(cost, label="own")
    assert not session.releases


@pytest.mark.parametrize("kind", SESSIONS)
def test_the_spend_that_the_message_names_is_accepted(kind):
    session = session_of(kind)
    terms = session.terms
    least = smallest_spend(terms)
    cost = dp.gaussian_cost(terms, rho=least) if kind == "zcdp" else dp.pure_cost(least)
    session.reserve(cost, label="own")
    dp.private(ROWS, session).count(share=1e-5)
    less = dp.gaussian_cost(terms, rho=least / 1.05) if kind == "zcdp" else dp.pure_cost(least / 1.05)
    with pytest.raises(dp.InvalidParameterError, match="at least"):
        session.reserve(less, label="own")


ASKED = {
    "count": lambda p: p.count(epsilon=1e-6),
    "auto": lambda p: p.count("n", keys=[1, 2, 3], max_groups="auto", epsilon=1e-6),
    "choice": lambda p: p.noisy_max("n", [1, 2, 3], epsilon=1e-6),
    "best": lambda p: p.select_best([1, 2], lambda c: pl.col("n") - c, bounds=(0, 3), epsilon=1e-6),
    "stream": lambda p: p.above_threshold(10, epsilon=1e-6),
    "online": lambda p: p.online_queries({"flag": None}, alpha=0.1, max_updates=2, epsilon=1e-6),
    "synthesis": lambda p: p.synthesize({"flag": None}, epsilon=1e-6),
    "responses": lambda p: p.randomized_response("flag", epsilon=1e-6),
    "within": lambda p: p.count(within=10**7),
}


@pytest.mark.parametrize("kind", ASKED)
def test_every_preview_says_so(kind):
    session = session_of("pure", adjacency="replace")
    private = dp.private(ROWS, session)
    with pytest.raises(dp.InvalidParameterError, match="costs at least"):
        ASKED[kind](private.preview)
    with pytest.raises(dp.InvalidParameterError, match="costs at least"):
        ASKED[kind](private)
    assert not session.releases


@pytest.mark.parametrize("kind", SESSIONS)
def test_nothing_fits_if_less_than_the_smallest_price_is_left(kind):
    session = session_of(kind)
    terms = session.terms
    left = 1 - SMALLEST_SHARE / 2
    whole = dp.Cost(epsilon=(terms.epsilon or 1) * left, rho=(terms.rho_allowed or 1) * left)
    session.reserve(whole, label="nearly all")
    mechanism, measure = ("gaussian", "rho") if kind == "zcdp" else ("laplace", "epsilon")
    assert session.largest_affordable(mechanism=mechanism, measure=measure) == 0


# ---------------------------------------------------------------- a cost is a plain number


def test_a_subclass_of_cost_cannot_reset_what_was_spent():
    class Reset(dp.Cost):
        def __radd__(self, other):
            return dp.Cost(epsilon=Fraction(0), rho=Fraction(0))

    session = session_of("pure")
    session.reserve(dp.pure_cost(0.5), label="honest")
    cheap = Reset(epsilon=Fraction(1, 10), rho=Fraction(1, 10))
    for ask in (lambda: session.reserve(cheap, label="q"), lambda: session.can_afford(cheap)):
        with pytest.raises(dp.InvalidParameterError, match=r"dp\.Cost, got Reset"):
            ask()
    with pytest.raises(TypeError):
        dp.pure_cost(0.1) + object()
    assert session.spent.epsilon == 0.5


def test_amounts_that_add_up_differently_are_refused():
    class Odd(Fraction):
        def __radd__(self, other):
            return Fraction(0)

        def __eq__(self, other):
            return True

        __hash__ = Fraction.__hash__

    class Infinite(float):
        def __radd__(self, other):
            return 0.0

    for amount in (Odd(1, 10), Infinite("inf"), Infinite(0.1)):
        with pytest.raises(dp.InvalidParameterError, match="plain number"):
            dp.Cost(epsilon=amount, rho=Fraction(1))


@pytest.mark.parametrize(
    "rho", [Fraction(1, 3), Fraction(1, 10**9), Fraction(7, 2), Fraction(10**5), Fraction("0.0012345")]
)
def test_the_epsilon_of_a_rho_is_found_as_with_exact_comparisons(rho):
    """The search compares floats; exact numbers give the same answer to the last bit."""
    rho = Fraction(rho)
    beyond = float(rho) + math.sqrt(2 * float(rho)) + 1
    exactly = boundary(
        lambda epsilon: Fraction(pure_to_zcdp(epsilon)) <= rho, inside=1e-9, outside=beyond, tolerance=1e-12
    )
    found = epsilon_of_rho(rho)
    assert found == Fraction(repr(exactly))
    assert pure_cost(found).rho <= rho
