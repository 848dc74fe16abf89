"""The error that a spend gives, the spend that an error needs, and the tails of discrete noise behind both.

The error is that of the privacy noise alone. It comes from the exact tails of the discrete distributions, holds for all
`count` answers at once, and depends on public parameters only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dp_polars._numbers import (
    Number,
    boundary,
    count_of,
    epsilon_of,
    exact,
    first_doubling,
    flag_of,
    positive,
    probability_of,
)
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms._calibration import Calibration, variance_rule
from dp_polars.mechanisms.additive import gaussian_on_grid, laplace_on_grid

_SUM_SIGMA = 4096.0  # up to this sigma the tails of the discrete Gaussian are summed


def laplace_error(
    *,
    sensitivity: Number,
    epsilon: Number,
    confidence: Number = 0.95,
    count: int = 1,
    integers: bool = True,
) -> float:
    """Return the error within which all `count` answers of `laplace` lie with this confidence.

    Parameters
    ----------
    sensitivity, epsilon
        As for `laplace`.
    confidence
        The probability that no answer has a larger error.
    count
        The number of answers that are released together.
    integers
        Whether the values are whole numbers. For floats the error includes the rounding to their grid.

    Returns
    -------
    float
        The error, in units of the values.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.mechanisms.laplace_error(sensitivity=1, epsilon=0.1, confidence=0.95)
    30.0
    """
    reach, spend, answers = (
        positive(sensitivity, "sensitivity"),
        epsilon_of(epsilon),
        count_of(count, "count"),
    )
    miss = _miss_each(confidence, answers)
    if integers:
        return float(laplace_steps(reach / spend, miss))
    exponent, scale = laplace_on_grid(reach, spend, answers)
    return math.ldexp(laplace_steps(scale, miss) + 0.5, exponent)


def gaussian_error(
    *,
    sensitivity: Number,
    rho: Number | None = None,
    epsilon: Number | None = None,
    delta: Number | None = None,
    calibration: Calibration = "exact",
    confidence: Number = 0.95,
    count: int = 1,
    integers: bool = True,
) -> float:
    """Return the error within which all `count` answers of `gaussian` lie with this confidence.

    Parameters
    ----------
    sensitivity, rho, epsilon, delta, calibration
        As for `gaussian`.
    confidence, count, integers
        As for `laplace_error`.

    Returns
    -------
    float
        The error, in units of the values.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.mechanisms.gaussian_error(sensitivity=1, rho=0.005, confidence=0.95)
    20.0
    """
    reach, answers = positive(sensitivity, "sensitivity"), count_of(count, "count")
    variance_of = variance_rule(rho, epsilon, delta, calibration)
    miss = _miss_each(confidence, answers)
    if integers:
        return float(gaussian_steps(math.sqrt(variance_of(reach, answers == 1)), miss))
    exponent, variance = gaussian_on_grid(reach, variance_of, answers)
    return math.ldexp(gaussian_steps(math.sqrt(variance), miss) + 0.5, exponent)


def laplace_epsilon(
    *,
    within: Number,
    sensitivity: Number,
    confidence: Number = 0.95,
    count: int = 1,
    integers: bool = True,
) -> float:
    """Return the least epsilon at which `laplace` has at most this error: the inverse of `laplace_error`.

    Parameters
    ----------
    within
        The largest error that is acceptable.
    sensitivity, confidence, count, integers
        As for `laplace_error`.

    Returns
    -------
    float
        The epsilon, between 1e-9 and 1e6.

    Examples
    --------
    >>> import dp_polars as dp
    >>> epsilon = dp.mechanisms.laplace_epsilon(within=30, sensitivity=1)
    >>> dp.mechanisms.laplace_error(sensitivity=1, epsilon=epsilon)
    30.0
    """
    return _least_spend(
        lambda spend: laplace_error(
            sensitivity=sensitivity,
            epsilon=spend,
            confidence=confidence,
            count=count,
            integers=integers,
        ),
        within,
        1e-9,
        1e6,
    )


def gaussian_rho(
    *,
    within: Number,
    sensitivity: Number,
    confidence: Number = 0.95,
    count: int = 1,
    integers: bool = True,
) -> float:
    """Return the least rho at which `gaussian` has at most this error: the inverse of `gaussian_error`.

    Parameters
    ----------
    within
        The largest error that is acceptable.
    sensitivity, confidence, count, integers
        As for `laplace_error`.

    Returns
    -------
    float
        The rho, between 1e-18 and 1e12.

    Examples
    --------
    >>> import dp_polars as dp
    >>> rho = dp.mechanisms.gaussian_rho(within=20, sensitivity=1)
    >>> dp.mechanisms.gaussian_error(sensitivity=1, rho=rho)
    20.0
    """
    return _least_spend(
        lambda spend: gaussian_error(
            sensitivity=sensitivity,
            rho=spend,
            confidence=confidence,
            count=count,
            integers=integers,
        ),
        within,
        1e-18,
        1e12,
    )


def exponential_regret(
    *,
    candidates: int,
    sensitivity: Number,
    epsilon: Number,
    confidence: Number = 0.95,
    optimal: int = 1,
    monotone: bool = False,
) -> float:
    """Return the most that the choice of `exponential` lies below the best score, with this confidence.

    Parameters
    ----------
    candidates
        The number of candidates.
    sensitivity, epsilon, monotone
        As for `exponential`. The expected regret of `permute_and_flip` is never larger.
    confidence
        The probability that the regret is no larger.
    optimal
        The number of candidates that share the best score.

    Returns
    -------
    float
        The regret, in units of the score.

    Notes
    -----
    The bound is (2 sensitivity / epsilon) (ln(candidates / optimal) + ln(1 / (1 - confidence))), half of that for
    monotone scores (McSherry and Talwar 2007).

    Examples
    --------
    >>> import dp_polars as dp
    >>> regret = dp.mechanisms.exponential_regret(candidates=1000, sensitivity=1, epsilon=0.5, confidence=0.99)
    >>> round(regret, 1)
    46.1
    """
    best = count_of(optimal, "optimal")
    total = count_of(candidates, "candidates", least=best)
    factor = (1 if flag_of(monotone, "monotone") else 2) * positive(sensitivity, "sensitivity") / epsilon_of(epsilon)
    return float(factor) * math.log(total / best / (1 - probability_of(confidence, "confidence")))


def laplace_tail(scale: Fraction | float, least: int) -> float:
    """Return P(X >= least) of the discrete Laplace for least >= 1: q**least / (1 + q) with q = exp(-1/scale)."""
    rate = 1 / float(scale)
    return math.exp(-least * rate) / (1 + math.exp(-rate))


def gaussian_tail(sigma: float, least: int) -> float:
    """Return P(X >= least) of the discrete Gaussian for least >= 0; for sigma above 4096, a close upper bound."""
    if sigma > _SUM_SIGMA:
        # Beyond sigma the density is convex, so each point weighs less than the integral around it, and the normaliser
        # is at least that of the continuous Gaussian. Nearer the centre, the sum exceeds the integral by at most one
        # point.
        z = (least - 0.5) / sigma
        tail = 0.5 * math.erfc(z * math.sqrt(0.5))
        return tail if z >= 1 else tail + 0.5 / sigma
    tails = _gaussian_tails(sigma)
    return float(tails[least]) if least < len(tails) else 0.0


@lru_cache(maxsize=8)
def _gaussian_tails(sigma: float) -> NDArray[np.float64]:
    """Return P(X >= m) of the discrete Gaussian for m = 0, 1, ..., 40 sigma. A search over m is then one pass."""
    x = np.arange(math.ceil(40 * sigma) + 2, dtype=np.float64)
    weights = np.exp(x * x * (-0.5 / sigma**2))
    tails: NDArray[np.float64] = np.cumsum(weights[::-1])[::-1]
    tails /= 2 * tails[0] - weights[0]
    return tails


def least_threshold(tail: Callable[[int], float], miss: float, guess: float) -> int:
    """Return the least m >= 1 with tail(m) <= miss for a decreasing tail; `guess` is where to start looking."""
    start = max(1, int(guess))
    high = first_doubling(lambda m: tail(m) > miss, start)
    return boundary(lambda m: tail(m) <= miss, inside=high, outside=high // 2 if high > start else 0)


_PARTS = 1 - 0.98 ** np.arange(1, 400)
"""Where the Chernoff bound of `laplace_sum_threshold` is tried, as parts of 1 / scale."""


def laplace_sum_threshold(scale: Fraction, terms: int, miss: float) -> int:
    """Return an m that a sum of `terms` independent discrete Laplace noises reaches with probability at most `miss`.

    By Chernoff's bound P(X >= m) <= exp(-h m) M(h)**terms for any h below 1 / scale, with the moment generating
    function M(h) = (1 - q)**2 / ((1 - q e**h) (1 - q e**-h)) and q = e**(-1 / scale). The result is slightly larger
    than the least such m.
    """
    width = float(scale)
    powers = np.log(-np.expm1(-(1 - _PARTS) / width)) + np.log(-np.expm1(-(1 + _PARTS) / width))
    log_moments = 2 * math.log(-math.expm1(-1 / width)) - powers  # ln M(h) at h = part / scale
    found = (terms * log_moments - math.log(miss)) * width / _PARTS
    return math.ceil(float(found.min()) * (1 + 1e-9)) + 1


def _miss_each(confidence: Number, count: int) -> float:
    """Return the probability with which each of `count` independent answers may miss the error."""
    return -math.expm1(math.log(probability_of(confidence, "confidence")) / count)


def laplace_steps(scale: Fraction, miss: float) -> int:
    """Return the least m for which P(|X| > m) is at most `miss` for the discrete Laplace."""
    guess = float(scale) * math.log(2 / miss)
    return least_threshold(lambda m: 2 * laplace_tail(scale, m), miss, guess) - 1


def gaussian_steps(sigma: float, miss: float) -> int:
    """Return the least m for which P(|X| > m) is at most `miss` for the discrete Gaussian."""
    return least_threshold(lambda m: 2 * gaussian_tail(sigma, m), miss, 2 * sigma) - 1


def _least_spend(error_of: Callable[[float], float], within: Number, low: float, high: float) -> float:
    wanted = exact(within, "within")
    if wanted < 0 or error_of(high) > wanted:
        raise InvalidParameterError(f"No spend up to {high:g} keeps the error within {within}. Ask for a larger error.")
    if error_of(low) <= wanted:
        return low
    return boundary(lambda spend: error_of(spend) <= wanted, inside=high, outside=low, tolerance=1e-12, geometric=True)
