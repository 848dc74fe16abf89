"""Stated errors are those of the noise that is added: exact for whole numbers, and to one step of the grid for floats.

Every probability is summed here from the definition of the distribution and never taken from the module.
"""

import contextlib
import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, stats

from dp_polars.errors import DPError, InvalidParameterError
from dp_polars.mechanisms import (
    additive,
    exponential_regret,
    gaussian,
    gaussian_error,
    gaussian_rho,
    laplace,
    laplace_epsilon,
    laplace_error,
)
from dp_polars.mechanisms.accuracy import gaussian_tail, laplace_sum_threshold, laplace_tail, least_threshold
from tests.bits import SeededBits
from tests.statistics import binomial_fits

CONFIDENCES = [0.3, 0.5, 0.9, 0.95, 0.99, 0.999999]
COUNTS = [1, 2, 10, 1000]


def within_laplace(scale, m):
    """Return P(|X| <= m) of the discrete Laplace by summation."""
    q = math.exp(-1 / scale)
    return math.fsum([(1 - q) / (1 + q) * q ** abs(x) for x in range(-m, m + 1)])


def gaussian_cdf(sigma):
    """Return P(|X| <= m) of the discrete Gaussian for m = 0, 1, ... by summation."""
    x = np.arange(0, math.ceil(40 * sigma) + 2, dtype=float)
    weights = np.exp(-x * x / (2 * sigma**2))
    weights[1:] *= 2
    return np.cumsum(weights) / weights.sum()


# ---------------------------------------------------------------- whole numbers


@pytest.mark.parametrize("scale", [0.05, 0.5, 1, 10, 77.7])
def test_the_laplace_error_of_whole_numbers_is_the_least_that_holds(scale):
    for confidence, count in itertools.product(CONFIDENCES, COUNTS):
        error = laplace_error(sensitivity=scale, epsilon=1, confidence=confidence, count=count)
        assert error == int(error)
        assert within_laplace(scale, int(error)) ** count >= confidence - 1e-12
        if error:
            assert within_laplace(scale, int(error) - 1) ** count < confidence


@pytest.mark.parametrize("sigma", [0.05, 0.5, 1, 7.3, 40, 900])
def test_the_gaussian_error_of_whole_numbers_is_the_least_that_holds(sigma):
    rho = Fraction(1, 2) / Fraction(str(sigma)) ** 2
    within = gaussian_cdf(sigma)
    for confidence, count in itertools.product(CONFIDENCES, COUNTS):
        error = gaussian_error(sensitivity=1, rho=rho, confidence=confidence, count=count)
        assert error == int(error)
        assert within[int(error)] ** count >= confidence - 1e-12
        if error:
            assert within[int(error) - 1] ** count < confidence


@pytest.mark.slow
def test_wide_gaussian_noise_is_off_by_at_most_one_step():
    """Above a sigma of 4,096 the tail is a bound, and the error it gives is the least one or the next."""
    for sigma, confidence, count in itertools.product([4097, 10_000, 50_000], CONFIDENCES, COUNTS):
        within = gaussian_cdf(sigma)
        error = gaussian_error(sensitivity=sigma, rho=0.5, confidence=confidence, count=count)
        assert within[int(error)] ** count >= confidence - 1e-12
        if confidence ** (1 / count) > 0.7:
            assert within[int(error) - 2] ** count < confidence


def test_errors_scale_with_the_ratio_of_sensitivity_and_spend_only():
    assert laplace_error(sensitivity=6, epsilon=0.3) == laplace_error(sensitivity=20, epsilon=1)
    assert gaussian_error(sensitivity=6, rho=0.09) == gaussian_error(sensitivity=20, rho=1)


# ---------------------------------------------------------------- floats


@contextlib.contextmanager
def watched():
    """Return the scale and the step that a call uses."""
    seen = {}

    def sampler(scale, size, source):
        seen["scale"] = scale
        return np.zeros(size, np.int64)

    def grid(floats, exponent):
        seen["step"] = Fraction(2) ** exponent
        return np.zeros(len(floats), np.int64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(additive, "discrete_laplace", sampler)
        patch.setattr(additive, "discrete_gaussian", sampler)
        patch.setattr(additive, "to_grid", grid)
        yield seen


FLOAT_CASES = list(itertools.product([1e-6, 1, 300], [0.01, 1, 7], [0.5, 0.95, 0.999], [1, 20, 5000]))


def test_the_laplace_error_of_floats_is_that_of_the_very_noise_and_grid():
    """The error is m + 1/2 steps, with the least m that holds for the scale the mechanism passes to its sampler."""
    for sensitivity, epsilon, confidence, count in FLOAT_CASES:
        with watched() as seen:
            laplace(np.zeros(count), sensitivity=sensitivity, epsilon=epsilon)
        error = laplace_error(
            sensitivity=sensitivity, epsilon=epsilon, confidence=confidence, count=count, integers=False
        )
        m = Fraction(error) / seen["step"] - Fraction(1, 2)
        assert m.denominator == 1
        rate = 1 / float(seen["scale"])

        def held(m, rate=rate, count=count):  # P(|X| <= m) ** count, with 1 - P = 2 q**(m+1) / (1 + q)
            return math.exp(count * math.log1p(-2 * math.exp(-(m + 1) * rate) / (1 + math.exp(-rate))))

        assert held(int(m)) >= confidence - 1e-12
        assert held(int(m) - 1) < confidence + 1e-12


def test_the_gaussian_error_of_floats_is_that_of_the_very_noise_and_grid():
    for sensitivity, rho, confidence, count in FLOAT_CASES:
        with watched() as seen:
            gaussian(np.zeros(count), sensitivity=sensitivity, rho=rho)
        error = gaussian_error(sensitivity=sensitivity, rho=rho, confidence=confidence, count=count, integers=False)
        m = Fraction(error) / seen["step"] - Fraction(1, 2)
        assert m.denominator == 1
        # On such fine grids the sum equals the integral to a relative 1e-9.
        sigma = math.sqrt(seen["scale"])
        assert sigma > 10_000
        quantile = stats.norm.isf(-math.expm1(math.log(confidence) / count) / 2) * sigma
        assert abs(int(m) - quantile) <= 2


@pytest.mark.parametrize("rho", [1e-18, 1e-12, 1e-6, 0.3, 40.5, 1e6, 1e18])
@pytest.mark.parametrize("count", [1, 30, 10**5])
def test_error_and_mechanism_take_the_same_grid(rho, count):
    """This includes noise so wide compared with the values that the grid must be coarser."""
    with watched() as seen:
        gaussian(np.zeros(count), sensitivity=0.7, rho=rho)
    error = gaussian_error(sensitivity=0.7, rho=rho, count=count, integers=False)
    steps = Fraction(error) / seen["step"] - Fraction(1, 2)
    assert steps.denominator == 1 or steps > 2**52
    quantile = stats.norm.isf(-math.expm1(math.log(0.95) / count) / 2) * math.sqrt(seen["scale"])
    assert float(steps) == pytest.approx(quantile, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("calibration", ["exact", "zcdp", "classic"])
@pytest.mark.parametrize("count", [1, 12])
def test_the_gaussian_error_of_an_epsilon_and_delta_is_that_of_the_very_noise(calibration, count):
    for sensitivity, epsilon, delta, confidence in itertools.product([1, 3], [0.2, 1], [1e-6, 1e-2], [0.5, 0.99]):
        spend = {"epsilon": epsilon, "delta": delta, "calibration": calibration}
        stated = {"sensitivity": sensitivity, "confidence": confidence, "count": count, **spend}
        with watched() as seen:
            gaussian(np.zeros(count, int), sensitivity=sensitivity, **spend)
        within = gaussian_cdf(math.sqrt(seen["scale"]))
        error = int(gaussian_error(**stated))
        assert within[error] ** count >= confidence - 1e-12
        assert within[error - 1] ** count < confidence
        with watched() as seen:
            gaussian(np.zeros(count), sensitivity=sensitivity, **spend)
        quantile = stats.norm.isf(-math.expm1(math.log(confidence) / count) / 2) * math.sqrt(seen["scale"])
        steps = Fraction(gaussian_error(**stated, integers=False)) / seen["step"] - Fraction(1, 2)
        assert steps.denominator == 1
        assert abs(int(steps) - quantile) <= 2


def test_errors_of_floats_follow_the_continuous_laws():
    for sensitivity, spend, confidence, count in FLOAT_CASES:
        miss = -math.expm1(math.log(confidence) / count)
        parameters = {"sensitivity": sensitivity, "confidence": confidence, "count": count, "integers": False}
        continuous = sensitivity / spend * math.log(1 / miss)
        assert laplace_error(epsilon=spend, **parameters) == pytest.approx(continuous, rel=1e-3)
        continuous = sensitivity / math.sqrt(2 * spend) * stats.norm.isf(miss / 2)
        assert gaussian_error(rho=spend, **parameters) == pytest.approx(continuous, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("integers", [True, False])
@pytest.mark.parametrize("count", [1, 5, 40])
def test_simulated_answers_stay_within_the_error_as_often_as_stated(integers, count, monkeypatch):
    """Draw batches of `count` answers from fixed bits. Whole numbers may stay within more often."""
    monkeypatch.setattr(additive, "SYSTEM_BITS", SeededBits(count + integers))
    trials = 20_000
    values = np.random.default_rng(1).uniform(-1e3, 1e3, (trials, count))
    values = values.round().astype(int) if integers else values
    for confidence in (0.5, 0.95):
        parameters = {"sensitivity": 3, "confidence": confidence, "count": count, "integers": integers}
        for error, noisy in (
            (laplace_error(epsilon=0.1, **parameters), laplace(values, sensitivity=3, epsilon=0.1)),
            (gaussian_error(rho=0.005, **parameters), gaussian(values, sensitivity=3, rho=0.005)),
        ):
            held = int((np.abs(noisy - values).max(axis=1) <= error).sum())
            if integers:
                assert held > stats.binom.ppf(1e-7, trials, confidence)
                assert held < stats.binom.isf(1e-7, trials, confidence + 0.05)
            else:
                assert binomial_fits(held, trials, confidence)


# ---------------------------------------------------------------- the spend from the error


@pytest.mark.slow
@pytest.mark.parametrize("integers", [True, False])
@pytest.mark.parametrize("count", [1, 25])
def test_the_spend_for_an_error_is_enough_and_a_thousandth_less_is_not(integers, count):
    for within, sensitivity, confidence in itertools.product([1, 7.5, 100, 12345], [1, 2.5], [0.5, 0.95, 0.999]):
        parameters = {"sensitivity": sensitivity, "confidence": confidence, "count": count, "integers": integers}
        epsilon = laplace_epsilon(within=within, **parameters)
        assert laplace_error(epsilon=epsilon, **parameters) <= within
        assert laplace_error(epsilon=epsilon * 0.999, **parameters) > within
        if within < 10_000 or not integers:  # above, each error is a sum over half a million points
            rho = gaussian_rho(within=within, **parameters)
            assert gaussian_error(rho=rho, **parameters) <= within
            assert gaussian_error(rho=rho * 0.999, **parameters) > within


def test_an_error_that_every_spend_keeps_costs_the_least_spend():
    assert laplace_epsilon(within=1e17, sensitivity=1e-9) == 1e-9
    assert gaussian_rho(within=1e17, sensitivity=1e-9) == 1e-18


def test_no_error_at_all_has_a_price_for_whole_numbers_and_none_for_floats():
    assert laplace_error(sensitivity=1, epsilon=laplace_epsilon(within=0, sensitivity=1)) == 0
    assert gaussian_error(sensitivity=1, rho=gaussian_rho(within=0, sensitivity=1)) == 0
    for solve in (laplace_epsilon, gaussian_rho):
        with pytest.raises(InvalidParameterError, match="larger error"):
            solve(within=0, sensitivity=1, integers=False)
        with pytest.raises(InvalidParameterError, match="larger error"):
            solve(within=1e-12, sensitivity=1, integers=False)
        with pytest.raises(InvalidParameterError, match="larger error"):
            solve(within=5, sensitivity=10**17)


# ---------------------------------------------------------------- tails


@pytest.mark.parametrize("scale", [0.1, 1, 30])
def test_the_laplace_tail_is_the_sum(scale):
    q = math.exp(-1 / scale)
    for least in (1, 2, 5, 100):
        points = range(least, least + int(40 * scale) + 2)
        summed = math.fsum([(1 - q) / (1 + q) * q**x for x in points])
        assert laplace_tail(scale, least) == pytest.approx(summed, rel=1e-12)


def upper_sums(sigma, points):
    """Return P(X >= m) for each m in `points`, summed from the far end; nothing lies beyond 40 sigma."""
    x = np.arange(0, math.ceil(40 * sigma) + 2, dtype=float)
    weights = np.exp(-x * x / (2 * sigma**2))
    sums = np.cumsum(weights[::-1])[::-1]
    return sums[points] / (2 * sums[0] - 1)


@pytest.mark.parametrize("sigma", [0.02, 0.3, 1, 12.5, 600, 4096])
def test_the_gaussian_tail_is_the_sum(sigma):
    for least in sorted({1, 2, 3, *(math.ceil(z * sigma) for z in (0.1, 1, 3, 8, 20, 39))}):
        x = np.arange(least, math.ceil(40 * sigma) + 2, dtype=float)
        below = np.arange(-math.ceil(40 * sigma), math.ceil(40 * sigma) + 1, dtype=float)
        summed = np.exp(-x * x / (2 * sigma**2)).sum() / np.exp(-below * below / (2 * sigma**2)).sum()
        assert gaussian_tail(sigma, least) == pytest.approx(summed, rel=1e-10, abs=1e-320)
    assert gaussian_tail(sigma, math.ceil(50 * sigma) + 10) == 0


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [4096.5, 5000, 20_000.3, 100_000])
def test_above_4096_the_gaussian_tail_is_a_near_upper_bound(sigma):
    points = np.array([max(1, round(z * sigma)) for z in np.linspace(0, 12, 121)])
    for least, truth in zip(points.tolist(), upper_sums(sigma, points).tolist(), strict=True):
        bound = gaussian_tail(sigma, least)
        assert bound >= truth * (1 - 1e-11)
        if least > 1.01 * sigma:
            assert bound <= truth * (1 + 200 / sigma**2)  # (z**2 - 1) / 24 is at most 6 here
        else:
            assert bound <= truth + 1 / sigma


def test_the_least_threshold_is_the_least():
    for target in (1, 2, 3, 17, 1000):
        for guess in (0, 0.5, 1, 16, 17, 5000, 1e9):
            calls = []

            def tail(m, target=target, calls=calls):
                calls.append(m)
                return 1.0 if m < target else 0.0

            assert least_threshold(tail, 0.5, guess) == target
            assert min(calls) >= 1


# ---------------------------------------------------------------- regret


def exponential_probabilities(scores, rate):
    weights = np.exp(rate * (scores - scores.max()))
    return weights / weights.sum()


def permute_and_flip_probabilities(scores, rate):
    """The winner is uniform among the heads, so its law is p_i times the integral of the product of 1 - p_j + p_j t."""
    heads = np.exp(rate * (scores - scores.max()))

    def integrand(t, i):
        return heads[i] * np.prod(np.delete(1 - heads + heads * t, i))

    return np.array([integrate.quad(integrand, 0, 1, args=(i,), epsabs=1e-13)[0] for i in range(len(scores))])


@pytest.mark.parametrize("monotone", [True, False])
def test_the_regret_holds_by_enumeration(monotone):
    generator = np.random.default_rng(5)
    for trial in range(40):
        size = int(generator.integers(1, 9))
        scores = generator.integers(0, [2, 5, 60][trial % 3], size).astype(float)
        if trial % 4 == 0:  # the worst case: all but one equally bad
            scores[1:] = scores.max() - 3
        sensitivity, epsilon = [(1, 0.5), (2, 1.5), (0.5, 2)][trial % 3]
        rate = epsilon / sensitivity / (1 if monotone else 2)
        best = int((scores == scores.max()).sum())
        for law in (exponential_probabilities, permute_and_flip_probabilities):
            probabilities = law(scores, rate)
            assert probabilities.sum() == pytest.approx(1, abs=1e-9)
            for confidence in (0.01, 0.5, 0.9, 0.99):
                bound = exponential_regret(
                    candidates=size,
                    sensitivity=sensitivity,
                    epsilon=epsilon,
                    confidence=confidence,
                    optimal=best,
                    monotone=monotone,
                )
                worse = probabilities[scores < scores.max() - bound].sum()
                assert worse <= 1 - confidence + 1e-9


def test_a_thousand_candidates_at_half_an_epsilon_stay_within_46():
    regret = exponential_regret(candidates=1000, sensitivity=1, epsilon=0.5, confidence=0.99)
    assert regret == pytest.approx(46.05, abs=0.005)
    # With all others just beyond the bound, one of them is chosen with probability below one percent.
    scores = np.append(0.0, np.full(999, -regret - 1e-9))
    assert exponential_probabilities(scores, 0.25)[1:].sum() < 0.01
    assert exponential_probabilities(np.append(0.0, np.full(999, -regret + 0.2)), 0.25)[1:].sum() > 0.01
    assert exponential_regret(candidates=1000, sensitivity=1, epsilon=0.5, confidence=0.99, monotone=True) < 23.1


def test_regret_falls_with_the_number_of_best_candidates():
    regrets = [exponential_regret(candidates=100, sensitivity=1, epsilon=1, optimal=k) for k in (1, 10, 100)]
    assert np.diff(regrets) == pytest.approx([-2 * math.log(10)] * 2)


# ---------------------------------------------------------------- invalid parameters

BAD_NUMBERS = [
    0, -1, -0.5, math.nan, math.inf, -math.inf, 1e-30, 1e30, 10**400, True, np.True_, "1", None, [1], 1j,
    np.array([1.0]), Decimal("NaN"), Decimal("Infinity"), object(),
]  # fmt: skip
BAD_EPSILONS = [*BAD_NUMBERS, 1e-10, 1e7]
BAD_CONFIDENCES = [0, 1, 1.0, -0.5, 1.5, 95, math.nan, math.inf, True, "0.95", None, [0.9], 1 - Fraction(1, 10**30)]
BAD_COUNTS = [0, -1, 1.5, 1.0, math.nan, True, np.True_, "2", None, [1], Fraction(1), np.float64(1)]
BAD_WITHIN = [-1, -0.001, math.nan, math.inf, -math.inf, True, "1", None, [1], 1j, Decimal("NaN"), object()]
FUNCTIONS = {
    "laplace_error": (laplace_error, {"sensitivity": 1, "epsilon": 1}),
    "gaussian_error": (gaussian_error, {"sensitivity": 1, "rho": 1}),
    "laplace_epsilon": (laplace_epsilon, {"within": 1, "sensitivity": 1}),
    "gaussian_rho": (gaussian_rho, {"within": 1, "sensitivity": 1}),
    "exponential_regret": (exponential_regret, {"candidates": 10, "sensitivity": 1, "epsilon": 1}),
}
BAD = {
    "sensitivity": BAD_NUMBERS,
    "epsilon": BAD_EPSILONS,
    "rho": BAD_NUMBERS,
    "within": BAD_WITHIN,
    "confidence": BAD_CONFIDENCES,
    "count": BAD_COUNTS,
    "candidates": BAD_COUNTS,
    "optimal": [*BAD_COUNTS, 11],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_without_meaning_are_refused(name):
    function, good = FUNCTIONS[name]
    assert function(**good) >= 0
    further = ["confidence", "candidates", "optimal"] if function is exponential_regret else ["confidence", "count"]
    for parameter in {*good, *further}:
        for bad in BAD[parameter]:
            with pytest.raises(InvalidParameterError) as caught:
                function(**{**good, parameter: bad})
            assert isinstance(caught.value, DPError)
            blamed = "candidates" if (parameter, bad) == ("optimal", 11) else parameter
            assert blamed in str(caught.value)
            assert len(str(caught.value)) > 25


@pytest.mark.parametrize(
    "spend",
    [
        {},
        {"epsilon": 1},
        {"delta": 1e-6},
        {"rho": 1, "epsilon": 1},
        {"rho": 1, "delta": 1e-6},
        {"rho": 1, "calibration": "zcdp"},
        {"epsilon": 1, "delta": 1},
        {"epsilon": 0, "delta": 1e-6},
        {"epsilon": 1, "delta": 1e-6, "calibration": "best"},
        {"epsilon": 2, "delta": 1e-6, "calibration": "classic"},
    ],
    ids=str,
)
def test_a_gaussian_error_has_one_spend(spend):
    for integers in (True, False):
        with pytest.raises(InvalidParameterError):
            gaussian_error(sensitivity=1, integers=integers, **spend)


def test_an_error_larger_than_any_float_is_no_crash():
    assert laplace_epsilon(within=10**400, sensitivity=1) == 1e-9
    assert gaussian_rho(within=10**400, sensitivity=1) == 1e-18
    with pytest.raises(InvalidParameterError):
        laplace_epsilon(within=-(10**400), sensitivity=1)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2), Fraction(35, 2)])
@pytest.mark.parametrize("terms", [2, 3])
@pytest.mark.parametrize("miss", [1e-2, 1e-6, 1e-9])
def test_a_sum_of_laplace_noises_reaches_its_threshold_no_more_often_than_said(scale, terms, miss):
    """Compare with the exact law of the sum, by convolution. The threshold is not much larger than necessary."""
    reach = int(60 * scale) + 60
    weights = np.exp(-np.abs(np.arange(-reach, reach + 1)) / float(scale))
    law = one = weights / weights.sum()
    for _ in range(terms - 1):
        law = np.convolve(law, one)
    tail = np.cumsum(law[::-1])[::-1]
    middle = terms * reach
    threshold = laplace_sum_threshold(scale, terms, miss)
    assert tail[middle + threshold] <= miss
    least = int(np.argmax(tail[middle:] <= miss))
    assert threshold <= 1.35 * least + 6 * float(scale) + 3
