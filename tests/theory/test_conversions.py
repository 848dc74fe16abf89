"""Conversions between pure, approximate and concentrated privacy, against slow references."""

from __future__ import annotations

import itertools
import math
import timeit
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from scipy import optimize

from dp_polars.theory import (
    approximate_to_zcdp,
    gaussian_delta,
    hockey_stick,
    pure_to_zcdp,
    renyi_divergence,
    renyi_of_laplace,
    renyi_of_randomized_response,
    zcdp_of_exponential_mechanism,
    zcdp_of_gaussian,
    zcdp_to_delta,
    zcdp_to_epsilon,
)

from .strategies import deltas, epsilons, reproducible

ORDERS = [1, *(1 + 2.0**power for power in np.arange(-8, 12, 0.5)), math.inf]


def log_delta(rho: float, epsilon: float) -> float:
    """Return ln δ of the conversion by plain minimisation over ln(α − 1)."""

    def at(log_u: float) -> float:
        alpha = 1 + math.exp(log_u)
        return (alpha - 1) * (alpha * rho - epsilon) - log_u + alpha * (log_u - math.log1p(math.exp(log_u)))

    grid = np.linspace(-30, 45, 301)
    best = int(np.argmin([at(x) for x in grid]))
    result = optimize.minimize_scalar(
        at, bounds=(grid[max(best - 1, 0)], grid[min(best + 1, 300)]), options={"xatol": 1e-9}
    )
    return min(0.0, float(result.fun))


@pytest.mark.parametrize(
    ("rho", "epsilon"),
    [(1e-14, 1e-6), (1e-8, 1e-3), (1e-3, 0.2), (0.02, 0.9), (1, 8), (100, 200), (1e4, 10_500)],
)
def test_delta_of_zcdp_is_the_minimum_over_orders(rho: float, epsilon: float) -> None:
    expected = math.exp(log_delta(rho, epsilon))
    assert 0 < expected < 0.5
    assert zcdp_to_delta(rho, epsilon) == pytest.approx(expected, rel=1e-7, abs=0)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [1e-14, 1e-9, 1e-4, 1e-2, 1, 30, 1e4])
@pytest.mark.parametrize("delta", [0.5, 1e-2, 1e-6, 1e-20, 1e-100])
def test_epsilon_of_zcdp_is_least(rho: float, delta: float) -> None:
    epsilon = zcdp_to_epsilon(rho, delta)
    assert zcdp_to_delta(rho, epsilon) <= delta
    if epsilon > 0:
        assert log_delta(rho, epsilon * (1 - 1e-6)) > math.log(delta)
    else:
        assert log_delta(rho, 0) <= math.log(delta)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 0.1, 1, 10, 1e3, 1e6])
@pytest.mark.parametrize("delta", [0.9, 0.5, 1e-2, 1e-6, 1e-20, 1e-100])
def test_allowance_is_the_largest_and_safe(epsilon: float, delta: float) -> None:
    rho = approximate_to_zcdp(epsilon, delta)
    assert rho > 0
    if rho > 1e-18:  # nobody can spend a smaller rho
        assert zcdp_to_delta(rho, epsilon) <= delta
        assert zcdp_to_delta(rho * (1 + 1e-6), epsilon) > delta


@reproducible
@given(epsilons(1e-6, 1e4), deltas(1e-99, 0.5))
def test_round_trips_never_promise_more(epsilon: float, delta: float) -> None:
    rho = approximate_to_zcdp(epsilon, delta)
    assert zcdp_to_epsilon(rho, delta) == pytest.approx(epsilon, rel=1e-6, abs=1e-12)
    assert zcdp_to_delta(rho, epsilon) <= delta


@reproducible
@given(epsilons(1e-3, 1e3), deltas(1e-60, 0.4))
def test_conversions_are_monotone(epsilon: float, delta: float) -> None:
    rho = approximate_to_zcdp(epsilon, delta)
    assert approximate_to_zcdp(epsilon * 1.01, delta) > rho
    assert approximate_to_zcdp(epsilon, delta * 1.01) > rho
    assert zcdp_to_epsilon(rho, delta) < zcdp_to_epsilon(rho * 1.01, delta)
    assert zcdp_to_delta(rho, epsilon) < zcdp_to_delta(rho * 1.01, epsilon)
    assert zcdp_to_delta(rho, epsilon * 1.01) < zcdp_to_delta(rho, epsilon)


def test_the_conversion_beats_the_textbook_one() -> None:
    for rho, delta in [(1e-4, 1e-6), (0.02, 1e-6), (1, 1e-9)]:
        textbook = rho + 2 * math.sqrt(rho * math.log(1 / delta))
        assert zcdp_to_epsilon(rho, delta) < textbook


def test_the_conversion_holds_for_the_gaussian() -> None:
    for sigma, epsilon in itertools.product([0.5, 1, 5, 50], [0, 0.05, 0.5, 2, 8]):
        exact = gaussian_delta(epsilon, sigma=sigma)
        assert exact <= zcdp_to_delta(zcdp_of_gaussian(1, sigma), epsilon)


def test_a_delta_below_all_floats_is_not_reported_as_zero() -> None:
    assert zcdp_to_delta(1e-6, 10) == math.ulp(0.0)
    assert zcdp_to_delta(1e4, 0) == 1.0


def test_allowance_takes_less_than_a_millisecond() -> None:
    calls = 50
    fastest = min(timeit.repeat(lambda: approximate_to_zcdp(1.3, 1e-7), number=calls, repeat=5))
    assert fastest / calls < 1e-3


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.1, 0.5, 1, 3, 10, 100])
def test_pure_to_zcdp_bounds_randomized_response_at_every_order_and_is_tight(
    epsilon: float,
) -> None:
    rho = pure_to_zcdp(epsilon)
    assert epsilon * math.tanh(epsilon / 2) <= epsilon**2 / 2
    assert rho <= epsilon**2 / 2 * (1 + 2e-12)  # the outward rounding
    ratios = [renyi_of_randomized_response(order, epsilon) / order for order in ORDERS if order < math.inf]
    assert all(ratio <= rho * (1 + 1e-11) for ratio in ratios)
    assert max(ratios) >= rho * (1 - 1e-11)
    near_one = renyi_of_randomized_response(1 + 1e-6 / max(1, epsilon), epsilon)
    assert near_one >= 0.999 * rho


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1, 3])
def test_the_smaller_rho_of_continuous_laplace_fails_for_discrete_laplace(epsilon: float) -> None:
    continuous = max(renyi_of_laplace(order, scale=1 / epsilon) / order for order in ORDERS if order < math.inf)
    assert continuous < pure_to_zcdp(epsilon)
    # Discrete Laplace at sensitivity 1 has only the losses ±ε: its outcomes x ≤ 0 and x ≥ 1 are randomized response.
    low = 1 / (1 + math.exp(-epsilon))
    violations = [
        order
        for order in ORDERS
        if order < math.inf and renyi_divergence([low, 1 - low], [1 - low, low], order) > continuous * order
    ]
    assert violations
    # Enough releases break the (ε, δ) that the smaller parameter would promise, as the mean alone exceeds it.
    assert renyi_divergence([low, 1 - low], [1 - low, low], 1) > continuous


def softmax(utilities: tuple[int, ...], epsilon: float) -> np.ndarray:
    weights = np.exp(epsilon * np.array(utilities) / 2)
    return weights / weights.sum()


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 1, 4])
def test_exponential_mechanism_on_all_small_utilities(epsilon: float) -> None:
    rho = zcdp_of_exponential_mechanism(epsilon)
    assert rho == pytest.approx(epsilon**2 / 8, rel=1e-11, abs=0)
    orders = [1, 1.5, 2, 8, 64]
    largest = 0.0
    candidates = [(u, 2) for u in itertools.product(range(3), repeat=2)]
    candidates += [(u, 3) for u in itertools.product(range(2), repeat=3)]
    for utilities, size in candidates:
        for change in itertools.product((-1, 0, 1), repeat=size):
            p = softmax(utilities, epsilon)
            q = softmax(tuple(np.add(utilities, change)), epsilon)
            for order in orders:
                ratio = renyi_divergence(p, q, order) / order
                assert ratio <= rho * (1 + 1e-11)
                largest = max(largest, ratio)
    # The bound is nearly attained where losses are small, so a smaller constant would fail.
    assert largest > (0.99 if epsilon == 0.1 else 0.5) * rho


def test_the_discount_of_the_exponential_mechanism_is_not_for_any_pure_mechanism() -> None:
    assert renyi_of_randomized_response(1, 0.5) > 3 * zcdp_of_exponential_mechanism(0.5)


def test_zcdp_of_gaussian_rounds_up() -> None:
    rho = zcdp_of_gaussian(3, 7)
    assert Fraction(rho) >= Fraction(9, 98)
    assert rho == pytest.approx(9 / 98, rel=1e-11, abs=0)


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [1e-9, 1e-4, 0.09, 0.11, 1, 5, 100])
@pytest.mark.parametrize("deviations", [-0.4, 0, 0.7, 3, 10, 35])
def test_gaussian_delta_against_many_digits(ratio: float, deviations: float) -> None:
    epsilon = max(0.0, ratio * (deviations + ratio / 2))
    with mpmath.workdps(700):
        mu, loss = mpmath.mpf(1) / mpmath.mpf(1 / ratio), mpmath.mpf(epsilon)
        expected = mpmath.ncdf(mu / 2 - loss / mu) - mpmath.exp(loss) * mpmath.ncdf(-mu / 2 - loss / mu)
        found = gaussian_delta(epsilon, sigma=1 / ratio)
        assert expected <= found
        assert found <= expected * (1 + mpmath.mpf("1e-10"))


def test_gaussian_delta_at_the_ends() -> None:
    assert gaussian_delta(0, sigma=1e-6) == 1.0
    assert gaussian_delta(1e9, sigma=1) == math.ulp(0.0)
    # Twice the sensitivity at twice the noise is the same mechanism.
    assert gaussian_delta(1, sensitivity=2, sigma=6) == gaussian_delta(1, sigma=3)


def test_gaussian_delta_against_a_fine_discretisation() -> None:
    edges = np.arange(-12, 13, 0.001)
    from scipy.stats import norm

    p = np.diff(norm.cdf(edges, 0, 1))
    q = np.diff(norm.cdf(edges, -1, 1))
    found = gaussian_delta(0.8, sigma=1)
    binned = hockey_stick(p / p.sum(), q / q.sum(), 0.8)
    # Binning is post-processing, so the result is at most the exact value, and nearly equal.
    assert 0.9999 * found <= binned <= found * (1 + 1e-9)
