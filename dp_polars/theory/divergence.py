"""Divergences of two discrete distributions: a mechanism's outputs on two neighbours.

Each is one direction, p against q; differential privacy needs both. Never samples: the
distributions are given exactly.
"""

from __future__ import annotations

import math

import numpy as np

from dp_polars._numbers import Number, delta_of
from dp_polars.theory._distributions import Distribution, log_ratios, paired
from dp_polars.theory._floats import UNIT_ROUNDOFF, exponential_remainder, real, upward


def max_divergence(p: Distribution, q: Distribution) -> float:
    """Return the largest ln(p/q): the least epsilon of pure differential privacy in this direction.

    Parameters
    ----------
    p, q
        Probabilities of the same outcomes: two arrays, or two dicts from outcome to probability.

    Returns
    -------
    float
        The divergence (Dwork and Roth 2014, Definition 3.6), rounded up; infinite if p allows what
        q excludes.

    Examples
    --------
    >>> round(max_divergence({"yes": 0.75, "no": 0.25}, {"yes": 0.25, "no": 0.75}), 4)
    1.0986
    """
    losses, _ = log_ratios(*paired(p, q))
    return float(losses.max())


def approximate_max_divergence(p: Distribution, q: Distribution, delta: Number) -> float:
    """Return the delta-approximate max divergence, ln of the largest (P(S) − δ)/Q(S) over events S.

    It is the least ε whose hockey-stick divergence is at most δ, so both directions together are
    (ε, δ)-DP. A negative value means that the two are closer than δ alone requires.

    Parameters
    ----------
    p, q
        Probabilities of the same outcomes: two arrays, or two dicts from outcome to probability.
    delta
        The probability set aside; 0 gives the max divergence.

    Returns
    -------
    float
        The divergence (Dwork and Roth 2014, Definition 3.6), rounded up.

    Examples
    --------
    >>> p, q = [0.5, 0.4, 0.1], [0.4, 0.6, 0.0]
    >>> max_divergence(p, q)
    inf
    >>> round(approximate_max_divergence(p, q, 0.1), 4)
    0.2231
    """
    aside = float(delta_of(delta, zero=True))
    if aside == 0.0:
        return max_divergence(p, q)
    first, second = paired(p, q)
    losses, _ = log_ratios(first, second)
    order = np.argsort(-losses, kind="stable")
    possible = first > 0.0
    # By the Neyman-Pearson lemma the best event consists of the outcomes of largest loss.
    inside = np.cumsum(first[possible][order])
    outside = np.cumsum(second[possible][order])
    error = UNIT_ROUNDOFF * (losses.size + 4)
    eligible = inside > aside
    if not eligible.any():  # only when aside exceeds a total that rounding left below 1
        return math.log1p(-aside)
    numerator = inside[eligible] * (1.0 + error) - aside
    denominator = outside[eligible] * (1.0 - error)
    if (denominator == 0.0).any():
        return math.inf
    return float(np.max(np.log(numerator) - np.log(denominator)))


def hockey_stick(p: Distribution, q: Distribution, epsilon: Number) -> float:
    """Return Σ max(0, p − e^ε·q): the least delta at this epsilon in this direction.

    Parameters
    ----------
    p, q
        Probabilities of the same outcomes: two arrays, or two dicts from outcome to probability.
    epsilon
        Any number; 0 gives the total variation distance.

    Returns
    -------
    float
        The divergence, rounded up.

    Examples
    --------
    >>> round(hockey_stick([0.75, 0.25], [0.25, 0.75], 0), 6)
    0.5
    """
    loss = real(epsilon, "epsilon")
    losses, masses = log_ratios(*paired(p, q))
    above = losses > loss
    return min(1.0, upward(math.fsum(masses[above] * -np.expm1(loss - losses[above]))))


def kl_divergence(p: Distribution, q: Distribution) -> float:
    """Return the Kullback-Leibler divergence, the mean privacy loss.

    Parameters
    ----------
    p, q
        Probabilities of the same outcomes: two arrays, or two dicts from outcome to probability.

    Returns
    -------
    float
        Σ p·ln(p/q), rounded up; infinite if p allows what q excludes.

    Examples
    --------
    >>> round(kl_divergence([0.75, 0.25], [0.25, 0.75]), 4)
    0.5493
    """
    first, second = paired(p, q)
    losses, masses = log_ratios(first, second)
    if math.isinf(losses.max()):
        return math.inf
    # As both sum to 1, Σ p·ℓ = Σ p·(ℓ + e^{−ℓ} − 1) plus what q puts where p is 0, and no term is
    # negative. Where ℓ is large, p·e^{−ℓ} is better taken from q.
    close = np.abs(losses) < 0.5
    terms = np.where(
        close,
        masses * exponential_remainder(np.where(close, -losses, 0.0)),
        (second[first > 0.0] - masses) + masses * losses,
    )
    return upward(math.fsum(terms) + math.fsum(second[first == 0.0]))
