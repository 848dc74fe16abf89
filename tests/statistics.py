"""Goodness of fit with a stated false-alarm rate."""

from __future__ import annotations

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-7


def chi_square_fits(samples, pmf, false_alarm: float = FALSE_ALARM) -> bool:
    """Whether integer samples fit a pmf given as {value: probability}; the rest of the mass is one more cell."""
    n = len(samples)
    values = np.array(sorted(pmf))
    probabilities = np.array([float(pmf[v]) for v in values])
    keep = probabilities * n >= 10
    values, probabilities = values[keep], probabilities[keep]
    found, counts = np.unique(np.asarray(samples), return_counts=True)
    seen = dict(zip(found.tolist(), counts.tolist(), strict=True))
    observed = np.array([seen.get(v, 0) for v in values.tolist()], dtype=float)
    expected = probabilities * n
    rest = n - expected.sum()
    if rest >= 10:
        observed, expected = np.append(observed, n - observed.sum()), np.append(expected, rest)
    if len(expected) == 1:  # all the mass in one value
        return bool(observed[0] == n)
    statistic = ((observed - expected) ** 2 / expected).sum()
    return statistic < stats.chi2.isf(false_alarm, len(expected) - 1)


def binomial_fits(successes: int, trials: int, probability: float, false_alarm: float = FALSE_ALARM) -> bool:
    low, high = stats.binom.ppf([false_alarm / 2, 1 - false_alarm / 2], trials, probability)
    return low <= successes <= high
