"""Tails of discrete noise, its law above a threshold, and linear combinations, compared with enumerated laws."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dp_polars.mechanisms._noise_tails import (
    NoiseLaw,
    combined_errors,
    limits_above_threshold,
    lower_limit_above_threshold,
)

LAWS = [
    NoiseLaw("laplace", Fraction(1, 3)),
    NoiseLaw("laplace", Fraction(5)),
    NoiseLaw("laplace", Fraction(3), 2),
    NoiseLaw("laplace", Fraction(3), 3),
    NoiseLaw("gaussian", Fraction(1, 9)),
    NoiseLaw("gaussian", Fraction(16)),
]


def pmf(law, reach):
    """Return the probabilities of -reach, ..., reach, summed up term by term."""
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = (
        np.exp(-np.abs(x) / float(law.parameter))
        if law.mechanism == "laplace"
        else np.exp(-x * x / (2 * float(law.parameter)))
    )
    one = weights / weights.sum()
    found = one
    for _ in range(law.terms - 1):
        found = np.convolve(found, one)
    return found


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_logarithm_of_a_tail_is_that_of_the_enumerated_law(law):
    masses = pmf(law, 400)
    middle = len(masses) // 2
    near = np.arange(-100, 101)
    tails = np.cumsum(masses[::-1])[::-1][middle + near]
    kept = tails > 1e-200
    assert law.log_tail(near)[kept] == pytest.approx(np.log(tails[kept]), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    "law", [*LAWS, NoiseLaw("gaussian", Fraction(10**9)), NoiseLaw("laplace", Fraction(10**12), 3)]
)
def test_the_logarithm_of_a_tail_falls_and_never_underflows(law):
    far = np.unique(np.geomspace(1, 2**61, 4000).astype(np.int64))
    logs = law.log_tail(np.concatenate([-far[::-1], far]))
    assert np.isfinite(logs).all()
    assert (np.diff(logs) <= 1e-9 * np.abs(logs[1:]) + 1e-12).all()


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("confidence", [0.9, 0.95])
@pytest.mark.parametrize("threshold", [1, 12, 40])
def test_limits_cover_every_number_that_is_shown_with_their_confidence(law, confidence, threshold):
    """The law of what is shown is enumerated, so this is exact: for each x, given that x + noise is at least T."""
    masses = pmf(law, 300)
    middle = len(masses) // 2
    shown = np.arange(threshold, threshold + 250)
    low, high = limits_above_threshold(law, shown, threshold, 1 - confidence)
    least = lower_limit_above_threshold(law, shown, threshold, 1 - confidence)
    assert ((low >= 1) & (low <= shown) & (shown <= high)).all()
    assert (np.diff(low) >= 0).all()
    assert (np.diff(high) >= 0).all()
    for x in range(1, 120):
        chances = masses[np.clip(middle + shown - x, 0, len(masses) - 1)]
        if chances.sum() < 1e-250:
            continue
        chances = chances / chances.sum()
        assert chances[(low <= x) & (x <= high)].sum() >= confidence - 1e-9
        assert chances[least <= x].sum() >= confidence - 1e-9


def test_without_a_threshold_to_reach_the_limits_are_those_of_the_noise():
    law = NoiseLaw("laplace", Fraction(10))
    low, high = limits_above_threshold(law, np.array([10_000]), 40, 0.05)
    assert (low.item(), high.item()) == (10_000 - law.steps(0.05), 10_000 + law.steps(0.05))


def test_a_number_just_above_the_threshold_tells_little():
    """Laplace noise forgets how far it came: every count up to the threshold explains a number just above it."""
    low, high = limits_above_threshold(NoiseLaw("laplace", Fraction(2)), np.array([30, 31, 60]), 30, 0.05)
    assert low.tolist()[:2] == [1, 1]
    assert low[2] > 40
    assert high[1] < 45


@pytest.mark.slow
@pytest.mark.parametrize("miss", [0.1, 0.05, 1e-3])
@pytest.mark.parametrize("coefficients", [(1, 1), (0.3, -0.7), (0.01, 0.99), (0, 1), (5, 1), (1, -2, 1)])
@pytest.mark.parametrize("law", [LAWS[0], LAWS[1], LAWS[4], LAWS[5]], ids=str)
def test_the_error_of_a_combination_is_never_below_the_exact_one_and_hardly_above(law, coefficients, miss):
    reach = law.steps(1e-9)
    masses = pmf(law, reach)
    sums, chances = np.zeros(1), np.ones(1)
    for coefficient in coefficients:
        # Rounding merges sums that are equal but for the last bits of a float.
        sums = np.round(np.add.outer(sums, coefficient * np.arange(-reach, reach + 1)).ravel(), 9)
        sums, place = np.unique(sums, return_inverse=True)
        chances = np.bincount(place, np.multiply.outer(chances, masses).ravel())
    size, place = np.unique(np.abs(sums), return_inverse=True)
    beyond = np.cumsum(np.bincount(place, chances)[::-1])[::-1]  # P(|sum| >= size)
    exact = size[np.count_nonzero(beyond > miss) - 1]
    found = combined_errors([law] * len(coefficients), np.array([coefficients], float), [miss]).item()
    assert exact - 1e-9 <= found <= 1.01 * exact + 0.02 * sum(map(abs, coefficients))


def test_small_misses_and_zero_coefficients_are_no_problem():
    laws = [NoiseLaw("laplace", Fraction(7)), NoiseLaw("gaussian", Fraction(50))]
    found = combined_errors(laws, np.array([[1.0, 2.0], [0.0, 0.0]]), [0.05, 1e-12, 1e-200])
    assert (np.diff(found[0]) > 0).all()
    assert found[1].max() < 1
    assert np.isfinite(found).all()
    assert math.isclose(found[0, 1], laws[0].steps(5e-13) + 2 * laws[1].steps(5e-13))
