"""Confidence limits agree with known values and are never wrong more often than they say."""

import math

import numpy as np
import pytest
from scipy import stats

from dp_polars._audit.limits import (
    binomial_lower,
    binomial_upper,
    gaussian_epsilon,
    gaussian_mu,
    incomplete_beta,
    mean_lower,
    mean_upper,
    mu_of,
)
from dp_polars.theory import gaussian_delta

COUNTS = [(0, 10), (1, 10), (7, 20), (10, 10), (1, 1), (0, 1), (3, 500_000), (222_000, 500_000), (499_999, 500_000)]


@pytest.mark.parametrize(("hits", "runs"), COUNTS)
@pytest.mark.parametrize("miss", [0.05, 0.0025, 1e-9])
def test_limits_of_a_count_are_those_of_clopper_and_pearson(hits, runs, miss):
    low = stats.beta.ppf(miss, hits, runs - hits + 1) if hits else 0.0
    high = stats.beta.isf(miss, hits + 1, runs - hits) if hits < runs else 1.0
    assert binomial_lower(hits, runs, miss) == pytest.approx(low, rel=1e-8, abs=1e-15)
    assert binomial_upper(hits, runs, miss) == pytest.approx(high, rel=1e-8)


def test_limits_of_nothing_and_everything_are_known_in_closed_form():
    assert binomial_upper(0, 20, 0.05) == pytest.approx(1 - 0.05 ** (1 / 20), rel=1e-12)
    assert binomial_lower(20, 20, 0.05) == pytest.approx(0.05 ** (1 / 20), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 7, 30])
@pytest.mark.parametrize("chance", [0.02, 0.3, 0.9])
def test_a_limit_misses_no_more_often_than_it_says(runs, chance):
    """All outcomes are enumerated."""
    for miss in (0.1, 0.01):
        wrong = [binomial_lower(hits, runs, miss) > chance for hits in range(runs + 1)]
        assert stats.binom.pmf(np.flatnonzero(wrong), runs, chance).sum() <= miss * (1 + 1e-12)
        wrong = [binomial_upper(hits, runs, miss) < chance for hits in range(runs + 1)]
        assert stats.binom.pmf(np.flatnonzero(wrong), runs, chance).sum() <= miss * (1 + 1e-12)


def test_the_incomplete_beta_function_at_its_ends_and_its_middle():
    assert incomplete_beta(2, 3, 0.0) == 0
    assert incomplete_beta(2, 3, 1.0) == 1
    assert incomplete_beta(5, 5, 0.5) == pytest.approx(0.5, rel=1e-14)
    assert incomplete_beta(1, 1, 0.3) == pytest.approx(0.3, rel=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 8])
def test_a_bet_on_batches_misses_no_more_often_than_it_says(size):
    """All outcomes of batches of 0, 1/2 or 1 with a skewed law are enumerated, for several bets."""
    values, chances, miss = np.array([0.0, 0.5, 1.0]), np.array([0.7, 0.1, 0.2]), 0.05
    mean = float(values @ chances)
    for likely in (np.array([0.2, 0.3]), np.array([0.9, 0.9]), np.array([0.25, 0.25]), np.array([0.0, 0.0])):
        low = high = 0.0
        for zeros in range(size + 1):
            for halves in range(size + 1 - zeros):
                counts = [zeros, halves, size - zeros - halves]
                parts = np.repeat(values, counts)
                chance = stats.multinomial.pmf(counts, size, chances)
                low += chance * (mean_lower(parts, miss, likely) > mean)
                high += chance * (mean_upper(parts, miss, likely) < mean)
        assert low <= miss
        assert high <= miss


def test_a_bet_on_batches_that_are_alike_is_sharp():
    """About ln(1/miss) of the batches may differ without being noticed; no more can be excluded."""
    alike = np.full(1000, 0.4)
    slack = math.log(1 / 0.01) / 1000
    assert mean_lower(alike, 0.01, alike[:100]) == pytest.approx(0.4 * (1 - slack), rel=2e-3)
    assert mean_upper(alike, 0.01, alike[:100]) == pytest.approx(0.4 + 0.6 * slack, rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_the_curve_of_a_gaussian_is_the_one_of_its_delta(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(epsilon, sensitivity=mu, sigma=1) == pytest.approx(delta, rel=1e-5)
    assert mu_of(epsilon, delta) == pytest.approx(mu, rel=1e-6)


def test_an_event_has_the_mu_of_its_two_probabilities():
    normal = stats.norm
    assert gaussian_mu(float(normal.sf(-0.5)), float(normal.sf(0.2))) == pytest.approx(0.7, rel=1e-9)
    assert gaussian_mu(0.1, 0.5) == 0
    assert gaussian_mu(0.0, 0.0) == 0
