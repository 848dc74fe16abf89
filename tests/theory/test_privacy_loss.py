"""The privacy loss random variable: curve, tail lemma, composition on the exact and the gridded path."""

from __future__ import annotations

import itertools
import math
import timeit
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from dp_polars.theory import (
    PrivacyLoss,
    _convolution,
    approximate_max_divergence,
    gaussian_delta,
    hockey_stick,
    kl_divergence,
    optimal,
)

from .strategies import deltas, epsilons, pairs, reproducible

Pair = tuple[list[float], list[float]]


@pytest.mark.slow
@reproducible
@given(pairs(), st.floats(-3, 5))
def test_curve_is_the_hockey_stick(pair: Pair, epsilon: float) -> None:
    loss = PrivacyLoss.of(*pair)
    assert loss.delta(epsilon) == pytest.approx(hockey_stick(*pair, epsilon), rel=1e-9, abs=1e-11)


@reproducible
@given(pairs(), deltas(1e-6, 0.9))
def test_epsilon_is_the_approximate_max_divergence(pair: Pair, delta: float) -> None:
    loss = PrivacyLoss.of(*pair)
    if abs(loss.infinite - delta) < 1e-9:
        return
    expected = max(0.0, approximate_max_divergence(*pair, delta))
    assert loss.epsilon(delta) == pytest.approx(expected, rel=1e-9, abs=1e-10)


@pytest.mark.slow
@reproducible
@given(pairs(zeros=False), deltas(1e-9, 0.5), st.sampled_from([0.0, 0.03, 0.7, 4.0]))
def test_epsilon_is_safe_and_least(pair: Pair, delta: float, mu: float) -> None:
    loss = PrivacyLoss.of(*pair)
    if mu:
        loss = loss.compose(PrivacyLoss.gaussian(1 / mu))
    epsilon = loss.epsilon(delta)
    assert loss.delta(epsilon) <= delta
    if epsilon > 1e-6:
        assert loss.delta(epsilon * (1 - 1e-7)) > delta


@pytest.mark.slow
@reproducible
@given(pairs(), st.floats(-2, 4))
def test_tail_lemma(pair: Pair, epsilon: float) -> None:
    # If P(loss > ε) ≤ δ were not enough, some curve would exceed its tail.
    for loss in (PrivacyLoss.of(*pair), PrivacyLoss.of(*pair).compose(PrivacyLoss.gaussian(2))):
        assert loss.delta(epsilon) <= loss.tail(epsilon) * (1 + 1e-11)


def test_the_converse_of_the_tail_lemma_fails() -> None:
    # Randomized response of ε = 1 is (0.9, 0.07)-DP, yet its loss exceeds 0.9 with probability 0.73.
    loss = PrivacyLoss.randomized_response(1.0)
    assert loss.delta(0.9) < 0.07
    assert loss.tail(0.9) > 0.73


def test_both_directions_are_needed() -> None:
    p, q = [0.9, 0.1, 0.0], [0.6, 0.3, 0.1]
    forth, back = PrivacyLoss.of(p, q), PrivacyLoss.of(q, p)
    assert forth.epsilon(0.05) < back.epsilon(0.05) == math.inf
    assert back.infinite == pytest.approx(0.1)


@reproducible
@given(pairs(zeros=False))
def test_mean_is_the_kl_divergence_and_adds_up(pair: Pair) -> None:
    loss = PrivacyLoss.of(*pair)
    expected = kl_divergence(*pair)
    assert loss.mean == pytest.approx(expected, rel=1e-9, abs=1e-12)
    three = loss.self_compose(3).compose(PrivacyLoss.gaussian(2))
    assert three.mean == pytest.approx(3 * expected + 1 / 8, rel=1e-9, abs=0)


def test_mean_is_infinite_when_some_outcome_is_excluded() -> None:
    assert PrivacyLoss.of([0.5, 0.5], [1, 0]).mean == math.inf


@pytest.mark.slow
@reproducible
@given(pairs(), pairs(), st.floats(0, 4))
def test_composition_is_the_product_distribution(one: Pair, two: Pair, epsilon: float) -> None:
    p = np.multiply.outer(one[0], two[0]).ravel()
    q = np.multiply.outer(one[1], two[1]).ravel()
    composed = PrivacyLoss.of(*one).compose(PrivacyLoss.of(*two))
    assert composed.delta(epsilon) == pytest.approx(hockey_stick(p, q, epsilon), rel=1e-9, abs=1e-11)


def test_composition_of_fractions_by_enumeration() -> None:
    p = [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)]
    q = [Fraction(1, 3), Fraction(1, 3), Fraction(1, 3)]
    count, factor = 6, Fraction(3, 2)
    exact = Fraction(0)
    for outcome in itertools.product(range(3), repeat=count):
        mine, theirs = math.prod(p[o] for o in outcome), math.prod(q[o] for o in outcome)
        exact += max(Fraction(0), mine - factor * theirs)
    composed = PrivacyLoss.of(p, q).self_compose(count)
    assert exact <= composed.delta(math.log(factor)) * (1 + 1e-15)
    assert composed.delta(math.log(factor)) == pytest.approx(float(exact), rel=1e-11, abs=0)
    # Equal losses merge, so a sum of six out of three losses has at most 28 values, not 729.
    assert composed.losses.size == math.comb(8, 2)


def test_randomized_response_and_discrete_laplace_are_one_at_sensitivity_one() -> None:
    response, laplace = PrivacyLoss.randomized_response(0.5), PrivacyLoss.discrete_laplace(2)
    assert laplace.losses == pytest.approx(response.losses, rel=1e-15, abs=0)
    assert laplace.probabilities == pytest.approx(response.probabilities, rel=1e-15, abs=0)


@pytest.mark.parametrize(("scale", "sensitivity"), [(1, 1), (3, 2), (2.5, 7)])
def test_discrete_laplace_against_its_probabilities(scale: float, sensitivity: int) -> None:
    outcomes = np.arange(-150, 151 + sensitivity)
    p = stats.dlaplace.pmf(outcomes, 1 / scale)
    q = stats.dlaplace.pmf(outcomes - sensitivity, 1 / scale)
    loss = PrivacyLoss.discrete_laplace(scale, sensitivity)
    assert loss.losses.size == sensitivity + 1
    assert loss.probabilities.sum() == pytest.approx(1, rel=1e-14, abs=0)
    for epsilon in np.linspace(0, sensitivity / scale, 9):
        expected = hockey_stick(p / p.sum(), q / q.sum(), float(epsilon))
        assert loss.delta(float(epsilon)) == pytest.approx(expected, rel=1e-9, abs=1e-14)
    assert loss.delta(sensitivity / scale) == 0.0


def test_gaussian_curve_is_that_of_balle_and_wang() -> None:
    loss = PrivacyLoss.gaussian(sigma=3, sensitivity=2)
    for epsilon in (0.0, 0.1, 1.0, 5.0):
        assert loss.delta(epsilon) == pytest.approx(gaussian_delta(epsilon, sensitivity=2, sigma=3), rel=1e-11, abs=0)
    # k compositions are one release of √k times the sensitivity.
    four = PrivacyLoss.gaussian(sigma=3).self_compose(4)
    assert four.delta(0.7) == pytest.approx(loss.delta(0.7), rel=1e-11, abs=0)
    assert four.mean == pytest.approx(2 / 9, rel=1e-12, abs=0)


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("epsilon", [-1.0, 0.0, 0.4, 2.0])
def test_curve_and_tail_with_a_gaussian_part_against_the_integral(mu: float, epsilon: float) -> None:
    p, q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    loss = PrivacyLoss.of(p, q).compose(PrivacyLoss.gaussian(1 / mu))
    expected = tail = 0.0
    for mass, other in zip(p, q, strict=True):
        rest = epsilon - math.log(mass / other)
        normal = stats.norm(mu**2 / 2, mu)
        area, _ = integrate.quad(
            lambda x, rest=rest, normal=normal: -math.expm1(rest - x) * normal.pdf(x),
            rest, max(rest, mu**2 / 2) + 12 * mu, epsabs=1e-14, limit=200,
            points=[max(rest, mu**2 / 2)],
        )  # fmt: skip
        expected += mass * area
        tail += mass * normal.sf(rest)
    assert loss.delta(epsilon) == pytest.approx(expected, rel=1e-8, abs=1e-12)
    assert loss.tail(epsilon) == pytest.approx(tail, rel=1e-9, abs=0)


def test_tail_is_the_probability_of_a_larger_loss() -> None:
    loss = PrivacyLoss.randomized_response(1.0)
    assert loss.tail(1.0) == 0.0
    assert loss.tail(0.999) == pytest.approx(1 / (1 + math.exp(-1)), rel=1e-11, abs=0)
    assert loss.tail(-1.001) == 1.0


def test_epsilon_at_the_ends() -> None:
    response = PrivacyLoss.randomized_response(0.5)
    assert response.epsilon(0) == 0.5
    assert response.epsilon(0.9) == 0.0
    assert PrivacyLoss.gaussian(1).epsilon(0) == math.inf
    partial = PrivacyLoss.of([0.8, 0.1, 0.1], [0.5, 0.5, 0.0])
    assert partial.epsilon(0.05) == math.inf
    assert partial.epsilon(0.1) == pytest.approx(math.log(1.6), rel=1e-9, abs=0)
    assert partial.compose(PrivacyLoss.gaussian(1)).epsilon(0.1) == math.inf
    assert PrivacyLoss.of([1, 0], [0, 1]).epsilon(0.5) == math.inf
    assert PrivacyLoss.of([1, 0], [0, 1]).self_compose(3).delta(9) == 1.0


def test_a_probability_that_underflows_still_counts() -> None:
    loss = PrivacyLoss.randomized_response(0.01).self_compose(4000)
    assert loss.probabilities[-1] == 0.0
    assert loss.delta(39.9) > 0.0
    assert loss.delta(40.1) == 0.0


def test_arrays_are_read_only_and_sorted() -> None:
    loss = PrivacyLoss.of([0.2, 0.3, 0.5], [0.5, 0.3, 0.2])
    assert (np.diff(loss.losses) > 0).all()
    with pytest.raises(ValueError, match="read-only"):
        loss.losses[0] = 0.0
    with pytest.raises(AttributeError):
        loss.mu = 1.0
    given_array = np.array([0.0])
    PrivacyLoss(given_array, np.array([1.0]))
    given_array[0] = 1.0  # the caller's own array stays writable


def test_infinite_masses_compose() -> None:
    loss = PrivacyLoss.of([0.9, 0.1], [1, 0])
    assert loss.self_compose(3).infinite == pytest.approx(1 - 0.9**3, rel=1e-11, abs=0)
    assert loss.self_compose(3).infinite >= 1 - Fraction(9, 10) ** 3


def test_repeated_squaring_equals_one_at_a_time() -> None:
    loss = PrivacyLoss.of([0.5, 0.3, 0.2], [0.3, 0.3, 0.4])
    slowly = loss
    for _ in range(12):
        slowly = slowly.compose(loss)
    quickly = loss.self_compose(13)
    for epsilon in (0.0, 1.0, 3.0):
        assert quickly.delta(epsilon) == pytest.approx(slowly.delta(epsilon), rel=1e-10, abs=0)


def test_thousand_responses_compose_fast() -> None:
    once = PrivacyLoss.randomized_response(0.01)
    assert min(timeit.repeat(lambda: once.self_compose(1000), number=1, repeat=3)) < 0.5


@pytest.mark.parametrize("count", [100, 333])
def test_even_convolution_equals_its_slow_reference(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    once = PrivacyLoss.discrete_laplace(30, 4)
    quickly = once.self_compose(count)
    monkeypatch.setattr(_convolution, "_MIN_EVEN_PAIRS", math.inf)
    monkeypatch.setattr(_convolution, "_MAX_SORTED_PAIRS", 2**24)
    slowly = once.self_compose(count)
    assert quickly.losses.size == slowly.losses.size == 4 * count + 1
    assert quickly.losses == pytest.approx(slowly.losses, abs=1e-12 * slowly.losses[-1])
    likely = slowly.probabilities > 1e-290
    assert quickly.probabilities[likely] == pytest.approx(slowly.probabilities[likely], rel=1e-11, abs=0)
    # Losses are rounded up, so none lies below the exact multiple of 1/15.
    exact = [Fraction(2 * i - 4 * count, 30) for i in range(4 * count + 1)]
    step = Fraction(float(once.losses[-1])) / 4
    for losses in (quickly.losses, slowly.losses):
        assert all(
            Fraction(float(found)) >= (2 * i - 4 * count) * step - Fraction(1, 10**15) for i, found in enumerate(losses)
        )
        assert losses[-1] == pytest.approx(float(exact[-1]), rel=1e-12, abs=0)


def test_equal_losses_merge_into_the_largest() -> None:
    losses, masses = _convolution.merged(np.array([1.0, -1.0, 1.0 + 1e-13]), np.array([0.25, 0.5, 0.25]))
    assert losses.tolist() == [-1.0, 1.0 + 1e-13]
    assert masses.tolist() == [0.5, 0.5]


def test_trimming_loses_no_mass_and_lowers_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_convolution, "_TAIL", 0.05)
    losses, masses = np.array([-3.0, -2.0, 0.0, 2.0, 3.0]), np.array([0.02, 0.02, 0.9, 0.02, 0.04])
    (kept, weights), cut = _convolution._trimmed((losses, masses))
    # −3 and −2 move up to the next loss; 3 counts as infinite, 2 together with it would be too much to cut.
    assert kept.tolist() == [0.0, 2.0]
    assert weights == pytest.approx([0.94, 0.02], rel=1e-15, abs=0)
    assert 0.04 <= cut == pytest.approx(0.04, rel=1e-8, abs=0)


@pytest.mark.parametrize("count", [5, 20])
def test_the_grid_is_pessimistic_and_close(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(11)
    p = rng.dirichlet(np.ones(4))
    q = p * np.exp(rng.uniform(-0.3, 0.3, 4))
    once = PrivacyLoss.of(p, q / q.sum())
    exact = once.self_compose(count)
    assert exact.infinite == 0.0
    monkeypatch.setattr(_convolution, "_MAX_SORTED_PAIRS", 8)
    monkeypatch.setattr(_convolution, "_MAX_EVEN_PAIRS", 8)
    gridded = once.self_compose(count)
    assert gridded.losses.size > exact.losses.size
    for epsilon in (0.0, 0.1, 0.4, 0.8):
        true = exact.delta(epsilon) / (1 + 1e-11)
        assert true <= gridded.delta(epsilon) <= true * (1 + 1e-4) + 1e-12
    for delta in (1e-2, 1e-5):
        assert gridded.epsilon(delta) >= exact.epsilon(delta) * (1 - 1e-11)
        assert gridded.epsilon(delta) == pytest.approx(exact.epsilon(delta), rel=1e-4, abs=0)


def test_the_grid_stays_safe_over_a_hundred_thousand_compositions() -> None:
    loss = PrivacyLoss.randomized_response(0.001).self_compose(100_000)
    assert 0 < loss.infinite < 1e-30
    exact = optimal(0.001, 100_000, slack=1e-6).epsilon
    assert exact * (1 - 1e-9) <= loss.epsilon(1e-6) <= exact * (1 + 1e-5)


@pytest.mark.slow
def test_many_uneven_atoms_go_onto_the_grid_and_stay_below_zcdp() -> None:
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(10))
    q = p * np.exp(rng.uniform(-0.05, 0.05, 10))
    loss = PrivacyLoss.of(p, q / q.sum())
    composed = loss.self_compose(2000)
    largest = float(np.abs(loss.losses).max())
    assert composed.losses.size <= _convolution.MAX_ATOMS
    assert composed.epsilon(1e-6) <= optimal(largest, 2000, slack=1e-6).epsilon
    # By the central limit theorem the loss is close to the Gaussian of the same mean.
    mu = math.sqrt(2 * 2000 * loss.mean)
    assert composed.epsilon(1e-6) == pytest.approx(PrivacyLoss.gaussian(1 / mu).epsilon(1e-6), rel=0.02, abs=0)


@pytest.mark.slow
@reproducible
@given(epsilons(0.01, 2), st.integers(1, 30))
def test_curves_decrease_and_grow_with_the_count(epsilon: float, count: int) -> None:
    loss = PrivacyLoss.randomized_response(epsilon).compose(PrivacyLoss.gaussian(5))
    some, more = loss.self_compose(count), loss.self_compose(count + 1)
    grid = np.linspace(0, 2 * epsilon * count, 7)
    curve = [some.delta(float(x)) for x in grid]
    assert curve == sorted(curve, reverse=True)
    assert all(some.delta(float(x)) <= more.delta(float(x)) for x in grid)
