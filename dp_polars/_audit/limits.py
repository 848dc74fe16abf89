"""Confidence limits of a probability, and the trade-off curve of a Gaussian.

`binomial_lower` and `binomial_upper` are the limits of Clopper and Pearson 1934 for independent runs. `mean_lower` and
`mean_upper` are for runs in batches that share something random. The batches are independent, so the share of each
batch in which an event happens is a number in [0, 1] with the right mean, and a bet on these numbers limits that mean
(Waudby-Smith and Ramdas 2024, with a bet that is fixed beforehand).

Bisection finds the limits and errs on the safe side: lower limits are rounded down, upper limits up.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dp_polars._numbers import boundary, first_doubling
from dp_polars.theory import gaussian_delta

Floats = NDArray[np.float64]

_PRECISE = 1e-15  # relative precision of the limits
_BOLD = 0.9  # the largest share of the capital that a bet may lose
_MOST_MU = 1e6  # the mu of a Gaussian that protects nothing
_NORMAL = NormalDist()


def binomial_lower(hits: int, runs: int, miss: float) -> float:
    """Return a lower limit of the probability of a hit, which is too high with probability at most `miss`."""
    if not hits:
        return 0.0

    # P(at least `hits` of `runs`) = I_p(hits, runs - hits + 1) increases with p.
    def refuted(p: float) -> bool:
        return incomplete_beta(hits, runs - hits + 1, p) <= miss

    return boundary(refuted, inside=0.0, outside=hits / runs, tolerance=_PRECISE)


def binomial_upper(hits: int, runs: int, miss: float) -> float:
    """Return an upper limit of the probability of a hit, which is too low with probability at most `miss`."""
    return 1.0 - binomial_lower(runs - hits, runs, miss)


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast only on the other side
        return 1.0 - incomplete_beta(b, a, 1 - x)
    logarithm = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(logarithm) / a * _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction 1 / (1 + d1 / (1 + d2 / (1 + ...))) by the method of Lentz."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1) or tiny)
    found, m = d, 0
    while True:
        m += 1
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / (1.0 + step * d or tiny)
            c = 1.0 + step / c or tiny
            found *= c * d
        if abs(c * d - 1.0) < 1e-15 or m > 100_000:
            return found


def mean_lower(parts: Floats, miss: float, likely: Floats) -> float:
    """Return a lower limit of the mean of independent numbers in [0, 1], too high with probability at most `miss`.

    The bet is chosen by `likely`, numbers of the same kind that must not be among `parts`.
    """
    mean = min(max(float(likely.mean()), 1e-6), 1.0)
    variance = float(likely.var()) + mean * (1 - mean) / (len(likely) + 1) ** 2
    bet = min(_BOLD / mean, math.sqrt(2 * math.log(1 / miss) / (variance * len(parts) + 1e-300)))

    def refuted(m: float) -> bool:
        # If the mean is at most m, the capital of a fair bet exceeds 1 / miss with probability at most `miss`.
        if bet * m >= 1:
            return False
        return float(np.log1p(bet * (parts - m)).sum()) >= math.log(1 / miss)

    return boundary(refuted, inside=0.0, outside=1.0, tolerance=_PRECISE) if refuted(0.0) else 0.0


def mean_upper(parts: Floats, miss: float, likely: Floats) -> float:
    """Return an upper limit of the mean of such numbers, too low with probability at most `miss`."""
    return 1.0 - mean_lower(1.0 - parts, miss, 1.0 - likely)


def gaussian_mu(low: float, high: float) -> float:
    """Return the least mu whose Gaussian trade-off curve allows an event of probability `low` here and `high` there.

    A mechanism is mu-Gaussian differentially private if its outputs on neighbours are no easier to tell apart than two
    normal distributions whose means differ by mu standard deviations (Dong, Roth and Su 2022).
    """
    if not 0 < low <= 1 or not 0 <= high < 1:
        return 0.0
    least = math.nextafter(0.0, 1.0)
    there = _NORMAL.inv_cdf(1 - max(high, least)) if high > 1e-16 else 8.0
    here = _NORMAL.inv_cdf(1 - low) if low < 1 else -8.0
    return max(0.0, there - here)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of a Gaussian with this mu at a delta, rounded down (Balle and Wang 2018)."""
    if mu <= 0 or _delta(mu, 0.0) <= delta:
        return 0.0

    def too_small(epsilon: float) -> bool:
        return _delta(mu, epsilon) > delta

    return boundary(too_small, inside=0.0, outside=first_doubling(too_small, 1.0), tolerance=_PRECISE)


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu of a Gaussian that is (epsilon, delta)-differentially private."""

    def private(mu: float) -> bool:
        return mu < _MOST_MU and _delta(mu, epsilon) <= delta

    return boundary(private, inside=0.0, outside=first_doubling(private, 1.0), tolerance=_PRECISE)


def _delta(mu: float, epsilon: float) -> float:
    """Return the delta of a Gaussian with this mu at an epsilon."""
    return gaussian_delta(epsilon, sensitivity=mu, sigma=1) if mu > 0 else 0.0
