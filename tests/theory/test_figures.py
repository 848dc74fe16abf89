"""Worked figures, each reproduced to all the digits that are stated."""

from __future__ import annotations

import math
from functools import partial

import pytest

from dp_polars.theory import (
    Guarantee,
    PrivacyLoss,
    RenyiAccountant,
    advanced,
    approximate_to_zcdp,
    basic,
    optimal,
    pure_to_zcdp,
    renyi_of_gaussian,
    renyi_of_randomized_response,
    zcdp_of_gaussian,
    zcdp_to_epsilon,
)

DELTA = 1e-6


@pytest.mark.parametrize(
    ("count", "by_basic", "by_dwork_roth", "by_zcdp", "by_optimal"),
    [(100, 1.0, 0.536, 0.430, 0.392), (1000, 10.0, 1.763, 1.472, 1.365)],
)
def test_many_laplace_releases_of_one_hundredth(
    count: int, by_basic: float, by_dwork_roth: float, by_zcdp: float, by_optimal: float
) -> None:
    assert basic([0.01] * count) == Guarantee(by_basic, 0.0)
    assert advanced(0.01, count, slack=DELTA).epsilon == pytest.approx(by_dwork_roth, abs=5e-4)
    rho = count * pure_to_zcdp(0.01)
    assert zcdp_to_epsilon(rho, DELTA) == pytest.approx(by_zcdp, abs=5e-4)
    assert optimal(0.01, count, slack=DELTA).epsilon == pytest.approx(by_optimal, abs=5e-4)


def test_one_hundred_gaussian_releases() -> None:
    exact = PrivacyLoss.gaussian(sigma=50).self_compose(100).epsilon(DELTA)
    assert exact == pytest.approx(0.834, abs=5e-4)
    by_zcdp = zcdp_to_epsilon(100 * zcdp_of_gaussian(1, 50), DELTA)
    assert by_zcdp == pytest.approx(0.900, abs=5e-4)
    accountant = RenyiAccountant().compose(partial(renyi_of_gaussian, sigma=50), 100)
    # The grid of orders costs at most 0.05 %, and can gain nothing.
    assert by_zcdp <= accountant.epsilon(DELTA) <= by_zcdp * 1.0005


@pytest.mark.parametrize(
    ("epsilon", "rho", "digits"),
    [(0.5, 0.00664, 5e-6), (1, 0.0244, 5e-5), (2, 0.0882, 5e-5), (4, 0.311, 5e-4)],
)
def test_allowance_of_a_session(epsilon: float, rho: float, digits: float) -> None:
    assert approximate_to_zcdp(epsilon, DELTA) == pytest.approx(rho, abs=digits)


@pytest.mark.parametrize(
    ("delta", "epsilon", "releases"),
    [(5e-7, 0.01, 458), (5e-7, 0.02, 114), (1e-6, 0.01, 487), (1e-6, 0.02, 121)],
)
def test_how_many_laplace_releases_fit_a_session(delta: float, epsilon: float, releases: int) -> None:
    allowance = approximate_to_zcdp(1, delta)
    assert math.floor(allowance / pure_to_zcdp(epsilon)) == releases


def test_each_theorem_is_at_least_as_tight_as_the_one_before() -> None:
    for epsilon, count in [(0.01, 100), (0.01, 1000), (0.1, 200), (0.5, 50)]:
        curve = partial(renyi_of_randomized_response, epsilon=epsilon)
        results = [
            advanced(epsilon, count, slack=DELTA, form="loose").epsilon,
            advanced(epsilon, count, slack=DELTA, form="dwork-roth").epsilon,
            advanced(epsilon, count, slack=DELTA, form="sharp").epsilon,
            zcdp_to_epsilon(count * pure_to_zcdp(epsilon), DELTA),
            RenyiAccountant().compose(curve, count).epsilon(DELTA) / 1.0005,
            optimal(epsilon, count, slack=DELTA).epsilon,
        ]
        assert results == sorted(results, reverse=True)
        assert len(set(results)) == len(results)
