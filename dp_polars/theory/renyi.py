"""Renyi divergences of the usual mechanisms, as functions of the order.

Mironov 2017, "Renyi Differential Privacy". Upper bounds on privacy loss, rounded up. Never adds
them up: the accountant in `moments` does.
"""

from __future__ import annotations

import math

import numpy as np

from dp_polars._numbers import Number, epsilon_of, exact, positive
from dp_polars.errors import InvalidParameterError
from dp_polars.theory._distributions import Distribution, log_ratios, paired
from dp_polars.theory._floats import exponential_remainder, upward
from dp_polars.theory.divergence import kl_divergence

# Relative error of a logarithm of a sum of exponentials, with room to spare.
_SUM_ERROR = 1e-14


def renyi_divergence(p: Distribution, q: Distribution, order: Number) -> float:
    """Return the Renyi divergence of two discrete distributions.

    Parameters
    ----------
    p, q
        Probabilities of the same outcomes: two arrays, or two dicts from outcome to probability.
    order
        The order α, from 1 (the Kullback-Leibler divergence) to infinity (the max divergence).

    Returns
    -------
    float
        ln(Σ p^α·q^(1−α))/(α−1), rounded up.

    Examples
    --------
    >>> round(renyi_divergence([0.75, 0.25], [0.25, 0.75], 2), 4)
    0.8473
    """
    alpha = order_of(order)
    if alpha == 1.0:
        return kl_divergence(p, q)
    first, second = paired(p, q)
    losses, masses = log_ratios(first, second)
    largest = float(losses.max())
    if math.isinf(alpha) or math.isinf(largest):
        return largest
    exponents = (alpha - 1.0) * losses
    if np.abs(exponents).max() < 1.0:
        # Σ p(e^x − 1) as two sums of nonnegative terms, since Σ p·x = (α−1)·KL.
        moment = math.fsum(masses * exponential_remainder(exponents))
        moment += (alpha - 1.0) * kl_divergence(p, q)
        return upward(math.log1p(moment) / (alpha - 1.0))
    top = float(exponents.max())
    log_moment = top + math.log(math.fsum(masses * np.exp(exponents - top)))
    return (log_moment + _SUM_ERROR * (1.0 + top)) / (alpha - 1.0)


def renyi_of_gaussian(order: Number, *, sensitivity: Number = 1, sigma: Number) -> float:
    """Return the Renyi divergence of Gaussian noise: αΔ²/(2σ²) (Mironov 2017, Proposition 7).

    Parameters
    ----------
    order
        The order α, from 1 to infinity.
    sensitivity
        The Euclidean sensitivity.
    sigma
        The noise's standard deviation.

    Returns
    -------
    float
        The divergence, rounded up.

    Examples
    --------
    >>> round(renyi_of_gaussian(2, sigma=1), 6)
    1.0
    """
    alpha = order_of(order)
    ratio = positive(sensitivity, "sensitivity") / positive(sigma, "sigma")
    return upward(alpha * float(ratio * ratio / 2))


def renyi_of_laplace(order: Number, *, sensitivity: Number = 1, scale: Number) -> float:
    """Return the Renyi divergence of continuous Laplace noise (Mironov 2017, Proposition 6).

    Smaller than that of discrete Laplace noise, which at sensitivity 1 is randomized response:
    never use it for noise on a grid.

    Parameters
    ----------
    order
        The order α, from 1 to infinity.
    sensitivity
        The absolute sensitivity.
    scale
        The noise's scale b.

    Returns
    -------
    float
        ln(α/(2α−1)·e^{(α−1)Δ/b} + (α−1)/(2α−1)·e^{−αΔ/b})/(α−1), rounded up.

    Examples
    --------
    >>> round(renyi_of_laplace(2, scale=1), 4)
    0.6191
    """
    alpha = order_of(order)
    loss = float(positive(sensitivity, "sensitivity") / positive(scale, "scale"))
    if math.isinf(alpha):
        return upward(loss)
    if alpha == 1.0:
        return upward(_remainder(-loss))
    u = alpha - 1.0
    if u * loss < 1.0:
        # The linear terms of the two exponentials cancel exactly; what remains is positive.
        moment = (alpha * _remainder(u * loss) + u * _remainder(-alpha * loss)) / (2.0 * alpha - 1.0)
        return upward(math.log1p(moment) / u)
    rest = u / alpha * math.exp(-(2.0 * alpha - 1.0) * loss)
    share = math.log(alpha / (2.0 * alpha - 1.0)) + math.log1p(rest)
    return upward(loss + share / u)


def renyi_of_randomized_response(order: Number, epsilon: Number) -> float:
    """Return the Renyi divergence of randomized response, the largest of any epsilon-DP mechanism.

    Parameters
    ----------
    order
        The order α, from 1 to infinity.
    epsilon
        The pure guarantee.

    Returns
    -------
    float
        ln(cosh((α−½)ε)/cosh(ε/2))/(α−1), rounded up (Mironov 2017, Proposition 5; that it is the
        largest follows from Kairouz, Oh and Viswanath 2015, Theorem 2.5).

    Examples
    --------
    >>> round(renyi_of_randomized_response(2, 1.0), 4)
    0.7353
    """
    alpha = order_of(order)
    loss = float(epsilon_of(epsilon))
    if math.isinf(alpha):
        return upward(loss)
    if alpha == 1.0:
        return upward(loss * math.tanh(0.5 * loss))
    exponent = (alpha - 1.0) * loss
    if exponent < 1.0:
        moment = 2.0 * math.sinh(0.5 * exponent) ** 2 + math.tanh(0.5 * loss) * math.sinh(exponent)
        return upward(math.log1p(moment) / (alpha - 1.0))
    flip = 1.0 / (1.0 + math.exp(min(loss, 700.0)))
    return upward(loss + math.log1p(flip * math.expm1(-2.0 * exponent)) / (alpha - 1.0))


def order_of(order: Number) -> float:
    """Return an order of a Renyi divergence, from 1 to infinity, as a float."""
    if isinstance(order, float) and order >= 1.0:  # infinity included
        return float(order)
    alpha = float(exact(order, "order"))
    if alpha < 1.0:
        raise InvalidParameterError(f"order must be at least 1, got {order}.")
    return alpha


def _remainder(x: float) -> float:
    return float(exponential_remainder(np.array([x]))[0])
