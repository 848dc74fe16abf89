"""Every accountant is compared with Google's dp_accounting: never below it, and close to it."""

from __future__ import annotations

import math
from functools import partial

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import rdp_privacy_accountant as rdp

from dp_polars.theory import (
    PrivacyLoss,
    RenyiAccountant,
    optimal,
    renyi_of_gaussian,
    renyi_of_laplace,
    renyi_of_randomized_response,
    renyi_to_epsilon,
    zcdp_to_epsilon,
)

# Exact agreement is impossible, because their truncation of tails and their FFT lose this much.
TINY = 1e-9


def bracket(make, count: int, epsilon: float) -> tuple[float, float]:
    """Return their delta for `count` compositions, rounded down and up."""
    return tuple(
        make(pessimistic_estimate=side).self_compose(count).get_delta_for_epsilon(epsilon) for side in (False, True)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "count"), [(0.01, 120), (0.1, 50), (1.0, 5)])
def test_randomized_response_lies_within_their_bracket(epsilon: float, count: int) -> None:
    make = partial(
        pld.from_randomized_response, 2 / (1 + math.exp(epsilon)), 2,
        value_discretization_interval=epsilon / (8 * count),
    )  # fmt: skip
    loss = PrivacyLoss.randomized_response(epsilon).self_compose(count)
    for total in (0.3 * epsilon * math.sqrt(count), 2.1 * epsilon * math.sqrt(count)):
        low, high = bracket(make, count, total)
        assert low - TINY <= loss.delta(total) <= high + TINY
        assert high - low < 0.2 * high


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "sensitivity", "count"), [(10, 1, 40), (10, 3, 40), (2, 2, 3)])
def test_discrete_laplace_lies_within_their_bracket(scale: float, sensitivity: int, count: int) -> None:
    make = partial(
        pld.from_discrete_laplace_mechanism, 1 / scale, sensitivity,
        value_discretization_interval=1 / (64 * scale),
    )  # fmt: skip
    loss = PrivacyLoss.discrete_laplace(scale, sensitivity).self_compose(count)
    for total in (0.2, 1.0, 2.0):
        low, high = bracket(make, count, total)
        assert low - TINY <= loss.delta(total) <= high + TINY
        assert high - low < 0.5 * high + TINY


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "count"), [(50, 100), (3, 1), (10, 30)])
def test_gaussian_is_close_to_their_tight_bound(sigma: float, count: int) -> None:
    theirs = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-4, use_connect_dots=True).self_compose(
        count
    )
    ours = PrivacyLoss.gaussian(sigma).self_compose(count)
    for delta in (1e-3, 1e-6):
        upper = theirs.get_epsilon_for_delta(delta)
        assert ours.epsilon(delta) <= upper + TINY
        assert ours.epsilon(delta) == pytest.approx(upper, rel=2e-4, abs=0)
    optimistic = pld.from_gaussian_mechanism(
        sigma, value_discretization_interval=1e-4, use_connect_dots=False, pessimistic_estimate=False
    ).self_compose(count)
    assert ours.epsilon(1e-6) >= optimistic.get_epsilon_for_delta(1e-6) - TINY


@pytest.mark.slow
def test_asymmetric_distributions_in_both_directions() -> None:
    p, q = [0.6, 0.3, 0.1], [0.45, 0.35, 0.2]
    logs = [{i: math.log(x) for i, x in enumerate(masses)} for masses in (p, q)]
    count = 8
    # Theirs is the loss of `upper` against `lower`.
    for mine, (lower, upper) in [((p, q), (logs[1], logs[0])), ((q, p), (logs[0], logs[1]))]:
        make = partial(
            pld.from_two_probability_mass_functions, lower, upper,
            value_discretization_interval=5e-4, symmetric=False,
        )  # fmt: skip
        ours = PrivacyLoss.of(*mine).self_compose(count)
        for total in (0.0, 0.5, 1.5):
            values = []
            for side in (False, True):
                both = make(pessimistic_estimate=side).self_compose(count)
                values.append(both._pmf_remove.get_delta_for_epsilon(total))
            assert values[0] - TINY <= ours.delta(total) <= values[1] + TINY
            assert values[1] - values[0] < 0.05 * values[1] + TINY


def test_optimal_composition_is_never_below_theirs() -> None:
    for epsilon, count in [(0.01, 100), (0.05, 400)]:
        theirs = (
            pld.from_randomized_response(
                2 / (1 + math.exp(epsilon)), 2,
                pessimistic_estimate=False, value_discretization_interval=epsilon / 200,
            )
            .self_compose(count)
            .get_epsilon_for_delta(1e-6)
        )  # fmt: skip
        ours = optimal(epsilon, count, slack=1e-6).epsilon
        assert theirs - TINY <= ours <= theirs * 1.1


ORDERS = [1.25, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0, 128.0, 512.0]


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize("rho", [1e-4, 1e-2, 0.5])
def test_renyi_conversion_is_theirs(rho: float, delta: float) -> None:
    divergences = [rho * order for order in ORDERS]
    epsilon, order = renyi_to_epsilon(ORDERS, divergences, delta)
    theirs, their_order = rdp.compute_epsilon(ORDERS, divergences, delta)
    assert epsilon >= theirs * (1 - 1e-12)
    assert epsilon == pytest.approx(theirs, rel=1e-10, abs=0)
    assert order == their_order
    accountant = RenyiAccountant(tuple(ORDERS), tuple(divergences))
    assert accountant.delta(epsilon) == pytest.approx(
        rdp.compute_delta(ORDERS, divergences, epsilon)[0], rel=1e-9, abs=0
    )


@pytest.mark.parametrize(
    ("event", "curve"),
    [
        (dp_accounting.GaussianDpEvent(4.0), partial(renyi_of_gaussian, sigma=4)),
        (dp_accounting.LaplaceDpEvent(12.0), partial(renyi_of_laplace, scale=12)),
        (
            dp_accounting.RandomizedResponseDpEvent(2 / (1 + math.exp(0.2)), 2),
            partial(renyi_of_randomized_response, epsilon=0.2),
        ),
    ],
)
def test_moments_accountant_is_theirs(event: dp_accounting.DpEvent, curve) -> None:
    count, delta = 30, 1e-6
    relation = (
        dp_accounting.NeighboringRelation.REPLACE_ONE
        if isinstance(event, dp_accounting.RandomizedResponseDpEvent)
        else dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    theirs = rdp.RdpAccountant(ORDERS, relation).compose(event, count).get_epsilon(delta)
    ours = RenyiAccountant(tuple(ORDERS)).compose(curve, count).epsilon(delta)
    assert ours >= theirs * (1 - 1e-10)
    assert ours == pytest.approx(theirs, rel=1e-8, abs=0)
    # The default grid is finer than these orders.
    assert RenyiAccountant().compose(curve, count).epsilon(delta) <= ours * (1 + 1e-4)


def test_zcdp_conversion_is_the_limit_of_their_renyi_conversion() -> None:
    orders = [1 + float(u) for u in np.geomspace(0.01, 1e4, 4000)]
    for rho, delta in [(0.02, 1e-6), (1.0, 1e-9), (1e-4, 1e-5)]:
        theirs, _ = rdp.compute_epsilon(orders, [rho * order for order in orders], delta)
        ours = zcdp_to_epsilon(rho, delta)
        assert ours <= theirs * (1 + 1e-9)
        assert ours == pytest.approx(theirs, rel=1e-5, abs=0)
