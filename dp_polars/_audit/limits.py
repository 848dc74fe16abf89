"""Confidence limits of a probability, and the trade-off curve of a Gaussian.

`binomial_lower` and `binomial_upper` are the limits of Clopper and Pearson 1934 for independent runs. `mean_lower` and
`mean_upper` are for runs that come in batches which share something random: the batches are independent, so the part of
each batch that hits an event is a number in [0, 1] with the right mean, and a bet on these numbers limits it
(Waudby-Smith and Ramdas 2024, with a bet that is fixed beforehand).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dp_polars.theory import gaussian_delta

Floats = NDArray[np.float64]

_STEPS = 100
_BOLD = 0.9  # how much of the capital a bet may lose at most
_NORMAL = NormalDist()


def binomial_lower(hits: int, runs: int, miss: float) -> float:
    """Return a number that the probability of a hit lies below with a probability of at most `miss`."""
    if not hits:
        return 0.0
    # P(at least `hits` of `runs`) = I_p(hits, runs - hits + 1) rises with p.
    return _bisected(lambda p: incomplete_beta(hits, runs - hits + 1, p) <= miss, 0.0, hits / runs)


def binomial_upper(hits: int, runs: int, miss: float) -> float:
    """Return a number that the probability of a hit lies above with a probability of at most `miss`."""
    return 1.0 - binomial_lower(runs - hits, runs, miss)


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side only
        return 1.0 - incomplete_beta(b, a, 1 - x)
    logarithm = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(logarithm) / a * _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """Return 1 / (1 + d1 / (1 + d2 / (1 + ...))) by the method of Lentz."""
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
    """Return a number that the mean of independent numbers in [0, 1] lies below with a probability of at most `miss`.

    `likely` are numbers of the same kind that the bet is made by. They must not be among `parts`.
    """
    mean = min(max(float(likely.mean()), 1e-6), 1.0)
    variance = float(likely.var()) + mean * (1 - mean) / (len(likely) + 1) ** 2
    bet = min(_BOLD / mean, math.sqrt(2 * math.log(1 / miss) / (variance * len(parts) + 1e-300)))

    def refuted(m: float) -> bool:
        # If the mean is m or less, the capital of a fair bet exceeds 1 / miss with a probability of at most miss.
        if bet * m >= 1:
            return False
        return float(np.log1p(bet * (parts - m)).sum()) >= math.log(1 / miss)

    return _bisected(refuted, 0.0, 1.0) if refuted(0.0) else 0.0


def mean_upper(parts: Floats, miss: float, likely: Floats) -> float:
    """Return a number that the mean of such numbers lies above with a probability of at most `miss`."""
    return 1.0 - mean_lower(1.0 - parts, miss, 1.0 - likely)


def gaussian_mu(low: float, high: float) -> float:
    """Return the least mu of a Gaussian trade-off curve for an event of probability `low` here and `high` there.

    A mechanism is mu-Gaussian differentially private if its neighbours are no easier to tell apart than two normal
    distributions whose means differ by mu deviations (Dong, Roth and Su 2022).
    """
    if not 0 < low <= 1 or not 0 <= high < 1:
        return 0.0
    least = math.nextafter(0.0, 1.0)
    there = _NORMAL.inv_cdf(1 - max(high, least)) if high > 1e-16 else 8.0
    here = _NORMAL.inv_cdf(1 - low) if low < 1 else -8.0
    return max(0.0, there - here)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon that a Gaussian of this mu has at a delta (Balle and Wang 2018)."""
    if mu <= 0 or _excess(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while _excess(mu, high) > delta:
        high *= 2
    return _bisected(lambda epsilon: _excess(mu, epsilon) > delta, 0.0, high)


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu of a Gaussian that is (epsilon, delta)-differentially private."""
    high = 1.0
    while _excess(high, epsilon) <= delta and high < 1e6:
        high *= 2
    return _bisected(lambda mu: _excess(mu, epsilon) <= delta, 0.0, high)


def _excess(mu: float, epsilon: float) -> float:
    """Return the delta that a Gaussian of this mu has at an epsilon."""
    return gaussian_delta(epsilon, sensitivity=mu, sigma=1) if mu > 0 else 0.0


def _bisected(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the last number, from `low` on, for which something holds that holds up to a point and not after it."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
