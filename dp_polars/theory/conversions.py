"""Conversions between pure, approximate and zero-concentrated differential privacy, rounded to the safe side.

Zero-concentrated differential privacy (zCDP, Bun and Steinke 2016) bounds the Renyi divergence of every order α by αρ.
The conversion to (ε, δ) is that of Canonne, Kamath and Steinke 2020 ("The Discrete Gaussian for Differential Privacy",
Corollary 13): δ = e^{(α−1)(αρ−ε)}/(α−1)·(1−1/α)^α for every α > 1. Written with u = α − 1,

    ln δ = u(u+1)ρ − uε − u·ln(1+1/u) − ln(1+u).

Every u > 0 gives a valid bound, so an order that is slightly off costs tightness and never privacy. For fixed u the
formula is linear in ε and in ρ, so both have closed forms, and only u is searched for. Nothing here composes releases
or charges a budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dp_polars._numbers import Number, delta_of, epsilon_of, positive
from dp_polars.theory._normal import gaussian_excess
from dp_polars.theory._rounding import SLACK, nonnegative, upward

# Bound on the relative rounding error of the sum of the four terms of ln δ above.
_TERM_ERROR = 4e-15


def pure_to_zcdp(epsilon: Number) -> float:
    """Return the zCDP parameter that every epsilon-DP mechanism satisfies, ε·tanh(ε/2).

    Randomized response is the worst pure mechanism (Kairouz, Oh and Viswanath 2015). Its divergence of order α is
    ln(cosh((α−½)ε)/cosh(ε/2))/(α−1). As ln cosh(√s·ε) is concave in s, its tangent at s = ¼ bounds the divergence by
    αε·tanh(ε/2). The bound is attained as α tends to 1, so no smaller parameter holds. It is below the ε²/2 of Bun and
    Steinke 2016, Proposition 1.4.

    Parameters
    ----------
    epsilon
        The pure guarantee.

    Returns
    -------
    float
        The parameter rho, rounded up.

    Examples
    --------
    >>> import dp_polars as dp
    >>> round(dp.theory.pure_to_zcdp(1.0), 6)
    0.462117
    """
    return rho_of_pure_loss(float(epsilon_of(epsilon)))


def rho_of_pure_loss(rate: float) -> float:
    """Return what `pure_to_zcdp` returns, for an epsilon that was checked before. Searches call this many times."""
    return upward(rate * math.tanh(0.5 * rate))


def zcdp_of_exponential_mechanism(epsilon: Number) -> float:
    """Return the zCDP parameter of the exponential mechanism, ε²/8.

    The privacy losses of the exponential mechanism span a range of ε, not of 2ε (Cesar and Rogers 2021, "Bounding,
    Concentrating, and Truncating"; Dong, Durfee and Rogers 2020). Permute-and-flip, and report noisy max with Laplace
    noise, have no such discount.

    Parameters
    ----------
    epsilon
        The mechanism's pure guarantee, the ε in exp(ε·utility/(2Δ)).

    Returns
    -------
    float
        The parameter rho, rounded up.

    Examples
    --------
    >>> import dp_polars as dp
    >>> round(dp.theory.zcdp_of_exponential_mechanism(1.0), 6)
    0.125
    """
    rate = float(epsilon_of(epsilon))
    return upward(rate * rate / 8.0)


def zcdp_of_gaussian(sensitivity: Number, sigma: Number) -> float:
    """Return the zCDP parameter of continuous or discrete Gaussian noise, Δ²/(2σ²).

    See Bun and Steinke 2016, Proposition 1.6, and for the discrete Gaussian on integer answers Canonne, Kamath and
    Steinke 2020, Theorem 4.

    Parameters
    ----------
    sensitivity
        The Euclidean sensitivity.
    sigma
        The standard deviation of the noise (for the discrete Gaussian, its parameter σ).

    Returns
    -------
    float
        The parameter rho, rounded up.

    Examples
    --------
    >>> import dp_polars as dp
    >>> round(dp.theory.zcdp_of_gaussian(1, 50), 6)
    0.0002
    """
    ratio = positive(sensitivity, "sensitivity") / positive(sigma, "sigma")
    return upward(float(ratio * ratio / 2))


def zcdp_to_delta(rho: Number, epsilon: Number) -> float:
    """Return the least delta for which the conversion turns rho-zCDP into (epsilon, delta)-DP.

    Parameters
    ----------
    rho
        The zCDP parameter.
    epsilon
        The epsilon to promise, at least 0.

    Returns
    -------
    float
        The delta, rounded up, at most 1.

    Examples
    --------
    >>> import dp_polars as dp
    >>> 9e-7 < dp.theory.zcdp_to_delta(0.0243, 1.0) < 1e-6
    True
    """
    price, loss = float(positive(rho, "rho")), nonnegative(epsilon, "epsilon")

    def slope(log_u: float) -> tuple[float, float]:
        u = math.exp(log_u)
        return (2.0 * u + 1.0) * price - loss - math.log1p(1.0 / u), 2.0 * u * price + 1.0 / (1.0 + u)

    # For any larger u, 2uρ alone outweighs ε + ln(1+1/u).
    highest = max(0.0, math.log((loss + 1.0) / price))
    u = math.exp(_increasing_root(slope, -700.0, highest))
    terms = (u * (u + 1.0) * price, u * loss, u * math.log1p(1.0 / u), math.log1p(u))
    log_delta = terms[0] - terms[1] - terms[2] - terms[3] + SLACK + _TERM_ERROR * sum(terms)
    # A delta that is too small for a float must still not become 0.
    return min(1.0, math.nextafter(math.exp(min(log_delta, 0.0)), 2.0))


def zcdp_to_epsilon(rho: Number, delta: Number) -> float:
    """Return the least epsilon for which the conversion turns rho-zCDP into (epsilon, delta)-DP.

    Parameters
    ----------
    rho
        The zCDP parameter.
    delta
        The delta to promise.

    Returns
    -------
    float
        The epsilon, rounded up. It is 0 if delta alone covers everything.

    Examples
    --------
    >>> import dp_polars as dp
    >>> round(dp.theory.zcdp_to_epsilon(0.02, 1e-6), 3)
    0.9
    """
    price = float(positive(rho, "rho"))
    failure = _log_inverse(delta)

    # Epsilon is smallest where ρu² + ln(1+u) = ln(1/δ).
    def condition(log_u: float) -> tuple[float, float]:
        u = math.exp(log_u)
        return price * u * u + math.log1p(u) - failure, 2.0 * price * u * u + u / (1.0 + u)

    highest = min(0.5 * math.log(failure / price), math.log(math.expm1(failure)))
    u = math.exp(_increasing_root(condition, -700.0, highest))
    terms = (u * (u + 1.0) * price, failure, u * math.log1p(1.0 / u), math.log1p(u))
    scaled = terms[0] + terms[1] - terms[2] - terms[3] + 2.0 * _TERM_ERROR * sum(terms)
    return max(0.0, scaled / u)


def approximate_to_zcdp(epsilon: Number, delta: Number) -> float:
    """Return the largest rho for which the conversion turns rho-zCDP into (epsilon, delta)-DP.

    It is the rho that a session with this epsilon and delta may spend.

    Parameters
    ----------
    epsilon, delta
        The guarantee to keep.

    Returns
    -------
    float
        The allowed rho, rounded down so that ``zcdp_to_delta(rho, epsilon) <= delta``.

    Examples
    --------
    >>> import dp_polars as dp
    >>> round(dp.theory.approximate_to_zcdp(1.0, 1e-6), 4)
    0.0244
    """
    loss = float(epsilon_of(epsilon))
    failure = _log_inverse(delta)

    # Rho is largest where u²(ε + ln(1+1/u))/(2u+1) + ln(1+u) = ln(1/δ), whose left side increases in u.
    def condition(log_u: float) -> tuple[float, float]:
        u = math.exp(log_u)
        gain = loss + math.log1p(1.0 / u)
        slope = gain * 2.0 * u * (u + 1.0) / (2.0 * u + 1.0) ** 2 + 1.0 / (2.0 * u + 1.0)
        return u * u * gain / (2.0 * u + 1.0) + math.log1p(u) - failure, u * slope

    furthest = (failure + math.sqrt(failure * (failure + loss))) / loss
    highest = min(math.log(furthest), math.log(math.expm1(failure)))
    u = math.exp(_increasing_root(condition, -700.0, highest))
    terms = (u * loss, u * math.log1p(1.0 / u), math.log1p(u), failure)
    # At the result, no term of ln δ is larger than the sum of these four.
    scaled = terms[0] + terms[1] + terms[2] - terms[3] - 4.0 * _TERM_ERROR * sum(terms)
    return max(0.0, scaled / (u * (u + 1.0)))


def gaussian_delta(epsilon: Number, *, sensitivity: Number = 1, sigma: Number) -> float:
    """Return the exact delta of continuous Gaussian noise (Balle and Wang 2018, Theorem 8).

    It is Φ(Δ/(2σ) − εσ/Δ) − e^ε·Φ(−Δ/(2σ) − εσ/Δ). The delta of the discrete Gaussian is slightly larger.

    Parameters
    ----------
    epsilon
        The epsilon to promise, at least 0.
    sensitivity
        The Euclidean sensitivity.
    sigma
        The standard deviation of the noise.

    Returns
    -------
    float
        The delta, rounded up.

    Examples
    --------
    >>> import dp_polars as dp
    >>> round(dp.theory.gaussian_delta(1.0, sigma=1.0), 4)
    0.1269
    """
    loss = nonnegative(epsilon, "epsilon")
    ratio = float(positive(sensitivity, "sensitivity") / positive(sigma, "sigma"))
    mu = math.nextafter(ratio, math.inf)
    value = float(gaussian_excess(np.array([loss]), mu)[0])
    return min(1.0, math.nextafter(upward(value), 2.0))


def _log_inverse(delta: Number) -> float:
    """Return ln(1/δ) plus twice the slack that `zcdp_to_delta` adds. With it, a round trip stays within delta."""
    return -math.log(float(delta_of(delta))) + 2.0 * SLACK


def _increasing_root(function: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    """Return a point near the zero of an increasing function, by Newton's method kept inside a bracket.

    `function` returns its value and its derivative. The result may lie on either side of the zero, which is fine here
    because every order gives a valid bound. Pricing solves for an order in its inner loop, and Newton's method needs
    about ten evaluations where bisection would need sixty.
    """
    point = high
    for _ in range(200):
        value, slope = function(point)
        if value > 0.0:
            high = point
        else:
            low = point
        step = value / slope if slope > 0.0 else math.inf
        following = point - step
        if not low <= following <= high:
            following = 0.5 * (low + high)
        if abs(following - point) <= 1e-10:
            return following
        point = following
    return point
