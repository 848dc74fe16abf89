"""Renyi divergences and the moments accountant."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import partial

import mpmath
import numpy as np
import pytest
from hypothesis import given
from scipy import integrate

from dp_polars.theory import (
    DEFAULT_ORDERS,
    RenyiAccountant,
    approximate_to_zcdp,
    kl_divergence,
    max_divergence,
    renyi_divergence,
    renyi_of_gaussian,
    renyi_of_laplace,
    renyi_of_randomized_response,
    renyi_to_epsilon,
    zcdp_to_delta,
    zcdp_to_epsilon,
)

from .strategies import deltas, epsilons, pairs, reproducible


@pytest.mark.slow
@pytest.mark.parametrize("order", [1.01, 2, 7.5, 60])
@pytest.mark.parametrize("epsilon", [0.05, 1, 6])
def test_randomized_response_is_a_discrete_divergence(order: float, epsilon: float) -> None:
    p = [1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))]
    expected = renyi_divergence(p, p[::-1], order)
    assert renyi_of_randomized_response(order, epsilon) == pytest.approx(expected, rel=1e-9, abs=0)


@pytest.mark.slow
@pytest.mark.parametrize("order", [1.004, 2, 7.5, 60, 1000])
@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 0.3, 6, 300])
def test_closed_forms_against_many_digits(order: float, epsilon: float) -> None:
    with mpmath.workdps(80):
        a, e = mpmath.mpf(order), mpmath.mpf(epsilon)
        response = mpmath.log(mpmath.cosh((a - 0.5) * e) / mpmath.cosh(e / 2)) / (a - 1)
        scale = mpmath.mpf(1) / mpmath.mpf(1 / epsilon)
        laplace = mpmath.log(
            a / (2 * a - 1) * mpmath.exp((a - 1) * scale) + (a - 1) / (2 * a - 1) * mpmath.exp(-a * scale)
        ) / (a - 1)
        for expected, found in [
            (response, renyi_of_randomized_response(order, epsilon)),
            (laplace, renyi_of_laplace(order, scale=1 / epsilon)),
        ]:
            assert expected <= found <= expected * (1 + mpmath.mpf("1e-11"))


@pytest.mark.parametrize("order", [1.5, 4])
def test_laplace_and_gaussian_against_the_integral(order: float) -> None:
    def divergence(log_p, log_q) -> float:
        moment, _ = integrate.quad(
            lambda x: math.exp(order * log_p(x) + (1 - order) * log_q(x)),
            -40, 40, points=[0, 1], limit=400,
        )  # fmt: skip
        return math.log(moment) / (order - 1)

    scale, sigma = 1.3, 0.9
    laplace = divergence(
        lambda x: -abs(x) / scale - math.log(2 * scale),
        lambda x: -abs(x - 1) / scale - math.log(2 * scale),
    )
    assert renyi_of_laplace(order, scale=scale) == pytest.approx(laplace, rel=1e-7, abs=0)
    gaussian = divergence(
        lambda x: -(x**2) / (2 * sigma**2) - math.log(sigma * math.sqrt(2 * math.pi)),
        lambda x: -((x - 1) ** 2) / (2 * sigma**2) - math.log(sigma * math.sqrt(2 * math.pi)),
    )
    assert renyi_of_gaussian(order, sigma=sigma) == pytest.approx(gaussian, rel=1e-7, abs=0)


def test_the_ends_of_the_orders() -> None:
    p, q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    assert renyi_divergence(p, q, 1) == kl_divergence(p, q)
    assert renyi_divergence(p, q, math.inf) == max_divergence(p, q)
    assert renyi_divergence([0.5, 0.5], [1.0, 0.0], 3) == math.inf
    assert renyi_of_gaussian(math.inf, sigma=1) == math.inf
    assert renyi_of_laplace(math.inf, scale=2) == pytest.approx(0.5, rel=1e-11, abs=0)
    assert renyi_of_randomized_response(math.inf, 0.5) == pytest.approx(0.5, rel=1e-11, abs=0)
    # Order 1 is the limit: ε − 1 + e^{−ε} for Laplace, ε·tanh(ε/2) for randomized response.
    assert renyi_of_laplace(1, scale=2) == pytest.approx(0.5 - 1 + math.exp(-0.5), rel=1e-11, abs=0)
    assert renyi_of_laplace(1 + 1e-9, scale=2) == pytest.approx(renyi_of_laplace(1, scale=2))
    assert renyi_of_randomized_response(1, 0.5) == pytest.approx(0.5 * math.tanh(0.25), rel=1e-11, abs=0)


def test_divergence_of_fractions_is_exact_to_the_last_digits() -> None:
    p, q = [Fraction(1, 3), Fraction(2, 3)], [Fraction(1, 2), Fraction(1, 2)]
    expected = math.log(Fraction(2, 9) + Fraction(8, 9))
    assert renyi_divergence(p, q, 2) == pytest.approx(expected, rel=1e-11, abs=0)


def test_tiny_divergences_do_not_cancel() -> None:
    shift = 2.0**-30
    p, q = [0.5 + shift, 0.5 - shift], [0.5, 0.5]
    # ln(1 + 4·shift²) at order 2, exactly.
    assert renyi_divergence(p, q, 2) == pytest.approx(4 * shift**2, rel=1e-10, abs=0)
    assert kl_divergence(p, q) == pytest.approx(2 * shift**2, rel=1e-8, abs=0)


@pytest.mark.slow
@reproducible
@given(pairs())
def test_divergence_grows_with_the_order(pair: tuple[list[float], list[float]]) -> None:
    p, q = pair
    orders = [1, 1.001, 1.5, 2, 5, 40, 1000, math.inf]
    values = [renyi_divergence(p, q, order) for order in orders]
    for smaller, larger in itertools.pairwise(values):
        assert 0 <= smaller <= larger * (1 + 1e-10) + 1e-13


@reproducible
@given(pairs(zeros=False), epsilons(1.1, 30))
def test_divergence_against_its_definition(pair: tuple[list[float], list[float]], order: float) -> None:
    p, q = np.array(pair[0]), np.array(pair[1])
    expected = math.log(math.fsum(p * (p / q) ** (order - 1))) / (order - 1)
    assert renyi_divergence(p, q, order) == pytest.approx(expected, rel=1e-9, abs=1e-14)


@reproducible
@given(pairs(zeros=False))
def test_randomized_response_is_the_worst_of_its_epsilon(
    pair: tuple[list[float], list[float]],
) -> None:
    p, q = pair
    epsilon = max(max_divergence(p, q), max_divergence(q, p))
    if epsilon < 1e-9:
        return
    for order in (1, 1.3, 2, 10, 200):
        worst = renyi_of_randomized_response(order, epsilon)
        assert renyi_divergence(p, q, order) <= worst * (1 + 1e-10) + 1e-13


def test_conversion_is_its_formula_and_takes_the_best_order() -> None:
    orders, divergences, delta = [2.0, 8.0, 32.0], [0.04, 0.16, 0.64], 1e-6
    each = [
        bound + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
        for order, bound in zip(orders, divergences, strict=True)
    ]
    epsilon, best = renyi_to_epsilon(orders, divergences, delta)
    assert best == orders[int(np.argmin(each))] == 32.0
    assert min(each) <= epsilon <= min(each) * (1 + 1e-11)


def test_conversion_when_one_order_or_none_helps() -> None:
    assert renyi_to_epsilon([2, math.inf], [math.inf, 0.3], 1e-9) == (0.3, math.inf)
    assert renyi_to_epsilon([2, 3], [math.inf, math.inf], 1e-9)[0] == math.inf
    assert renyi_to_epsilon([2, 3], [1e-9, 1e-9], 0.9)[0] == 0.0


@reproducible
@given(epsilons(1e-3, 1e2), deltas(1e-20, 1e-5))
def test_accountant_of_a_zcdp_curve_is_the_zcdp_conversion(epsilon: float, delta: float) -> None:
    rho = approximate_to_zcdp(epsilon, delta)
    accountant = RenyiAccountant().compose(lambda order: rho * order)
    exact = zcdp_to_epsilon(rho, delta)
    assert exact * (1 - 1e-9) <= accountant.epsilon(delta) <= exact * 1.001
    smallest = zcdp_to_delta(rho, epsilon)
    assert smallest * (1 - 1e-9) <= accountant.delta(epsilon) <= smallest * 1.05


@pytest.mark.slow
def test_accountant_is_additive_and_never_changes_in_place() -> None:
    curve = partial(renyi_of_laplace, scale=20)
    empty = RenyiAccountant()
    ten = empty.compose(curve, 10)
    one_by_one = empty
    for _ in range(10):
        one_by_one = one_by_one.compose(curve)
    assert set(empty.divergences) == {0.0}
    assert one_by_one.divergences == pytest.approx(ten.divergences, rel=1e-12, abs=0)
    assert empty.epsilon(1e-6) == 0.0
    with pytest.raises(AttributeError):
        ten.orders = ()


def test_accountant_of_pure_releases_is_never_worse_than_basic() -> None:
    curve = partial(renyi_of_randomized_response, epsilon=0.5)
    accountant = RenyiAccountant().compose(curve, 2)
    assert accountant.epsilon(1e-12) <= 1.0 * (1 + 1e-11)
    assert accountant.delta(1.0 + 1e-9) == 0.0
    assert RenyiAccountant((2.0, 8.0)).compose(lambda order: 10.0).delta(0.5) == 1.0


def test_default_orders_cover_small_and_large() -> None:
    assert DEFAULT_ORDERS[0] == pytest.approx(1 + 2**-8)
    assert DEFAULT_ORDERS[-2] == pytest.approx(1 + 2**20)
    assert list(DEFAULT_ORDERS) == sorted(DEFAULT_ORDERS)
