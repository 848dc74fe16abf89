"""What releases declare: exact where a user wrote the number, rounded up where a formula made it."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_polars as dp
from dp_polars import InvalidParameterError
from dp_polars._session.cost import NOTHING, Cost, amount_of, amount_text
from dp_polars._session.filters import accepts, share_of
from dp_polars._session.pricing import exponential_cost, gaussian_cost, pure_cost
from dp_polars.theory import zcdp_to_delta
from tests.session.test_filter_by_enumeration import terms_of


def test_a_price_is_the_number_that_was_written():
    cost = pure_cost(0.1)
    assert cost.epsilon == Fraction(1, 10)
    assert cost.delta == cost.gaussian_delta == 0
    assert cost.rho >= Fraction(0.1 * math.tanh(0.05))
    assert cost.rho < Fraction(0.1 * math.tanh(0.05) * (1 + 3e-12))


def test_the_session_of_the_contract_accepts_458_of_a_hundredth_and_ten_of_a_tenth():
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
    """Never worse than basic composition, whatever the mixture and the order."""
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


def test_a_gaussian_beyond_the_basic_arm_counts_as_infinite_there():
    terms = terms_of(1.0, 1e-6)
    rho = terms.rho_allowed  # conversion has twice the delta of the Gaussians, so this fits the rho arm alone
    cost = gaussian_cost(terms, rho=rho)
    assert cost.epsilon == math.inf
    assert accepts(terms, cost)
    assert not accepts(terms, cost + pure_cost(1e-6))


def test_gaussians_of_other_sessions():
    with pytest.raises(InvalidParameterError, match="pure session"):
        gaussian_cost(terms_of(1.0), epsilon=0.1)
    with pytest.raises(InvalidParameterError, match="rho="):
        gaussian_cost(terms_of(rho=0.1), epsilon=0.1)
    with pytest.raises(InvalidParameterError, match="epsilon= or as rho="):
        gaussian_cost(terms_of(1.0, 1e-6))
    cost = gaussian_cost(terms_of(rho=0.1), rho=0.1)
    assert cost.epsilon == math.inf
    assert accepts(terms_of(rho=0.1), cost)


def test_shares_take_the_measure_in_which_a_release_is_least():
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
