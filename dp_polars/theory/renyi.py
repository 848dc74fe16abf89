"""Renyi divergences of common mechanisms, and the moments accountant that adds them up.

Mironov 2017, "Renyi Differential Privacy". All results are upper bounds on the privacy loss, rounded up. A Renyi
guarantee of order α composes by addition (Mironov 2017, Proposition 1; the accountant is that of Abadi et al. 2016).
The order may be chosen at the end for releases whose parameters were fixed in advance. A sum is a privacy filter only
at an order that was fixed beforehand. Nothing here charges a session.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from dp_polars._numbers import Number, count_of, delta_of, epsilon_of, exact, positive
from dp_polars.errors import InvalidParameterError
from dp_polars.theory._rounding import SLACK, exponential_remainder, nonnegative, upward
from dp_polars.theory.divergence import Distribution, kl_divergence, log_ratios, paired

# Bound on the relative rounding error of a logarithm of a sum of exponentials, and of a sum of four terms.
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
    >>> import dp_polars as dp
    >>> round(dp.theory.renyi_divergence([0.75, 0.25], [0.25, 0.75], 2), 4)
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
        # Write Σ p(e^x − 1) as two sums of nonnegative terms, using Σ p·x = (α−1)·KL.
        moment = math.fsum(masses * exponential_remainder(exponents))
        moment += (alpha - 1.0) * kl_divergence(p, q)
        return upward(math.log1p(moment) / (alpha - 1.0))
    top = float(exponents.max())
    log_moment = top + math.log(math.fsum(masses * np.exp(exponents - top)))
    return (log_moment + _SUM_ERROR * (1.0 + top)) / (alpha - 1.0)


def renyi_of_gaussian(order: Number, *, sensitivity: Number = 1, sigma: Number) -> float:
    """Return the Renyi divergence of Gaussian noise, αΔ²/(2σ²) (Mironov 2017, Proposition 7).

    Parameters
    ----------
    order
        The order α, from 1 to infinity.
    sensitivity
        The Euclidean sensitivity.
    sigma
        The standard deviation of the noise.

    Returns
    -------
    float
        The divergence, rounded up.

    Examples
    --------
    >>> import dp_polars as dp
    >>> round(dp.theory.renyi_of_gaussian(2, sigma=1), 6)
    1.0
    """
    alpha = order_of(order)
    ratio = positive(sensitivity, "sensitivity") / positive(sigma, "sigma")
    return upward(alpha * float(ratio * ratio / 2))


def renyi_of_laplace(order: Number, *, sensitivity: Number = 1, scale: Number) -> float:
    """Return the Renyi divergence of continuous Laplace noise (Mironov 2017, Proposition 6).

    It is smaller than the divergence of discrete Laplace noise, which at sensitivity 1 equals that of randomized
    response, so do not use it for noise on a grid.

    Parameters
    ----------
    order
        The order α, from 1 to infinity.
    sensitivity
        The absolute sensitivity.
    scale
        The scale b of the noise.

    Returns
    -------
    float
        ln(α/(2α−1)·e^{(α−1)Δ/b} + (α−1)/(2α−1)·e^{−αΔ/b})/(α−1), rounded up.

    Examples
    --------
    >>> import dp_polars as dp
    >>> round(dp.theory.renyi_of_laplace(2, scale=1), 4)
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
        # The linear terms of the two exponentials cancel exactly, and the rest is positive.
        moment = (alpha * _remainder(u * loss) + u * _remainder(-alpha * loss)) / (2.0 * alpha - 1.0)
        return upward(math.log1p(moment) / u)
    rest = u / alpha * math.exp(-(2.0 * alpha - 1.0) * loss)
    share = math.log(alpha / (2.0 * alpha - 1.0)) + math.log1p(rest)
    return upward(loss + share / u)


def renyi_of_randomized_response(order: Number, epsilon: Number) -> float:
    """Return the Renyi divergence of randomized response, the largest of all epsilon-DP mechanisms.

    Parameters
    ----------
    order
        The order α, from 1 to infinity.
    epsilon
        The pure guarantee.

    Returns
    -------
    float
        ln(cosh((α−½)ε)/cosh(ε/2))/(α−1), rounded up (Mironov 2017, Proposition 5). No other mechanism has a larger
        divergence by Kairouz, Oh and Viswanath 2015, Theorem 2.5.

    Examples
    --------
    >>> import dp_polars as dp
    >>> round(dp.theory.renyi_of_randomized_response(2, 1.0), 4)
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
    """Return the order of a Renyi divergence, from 1 to infinity, as a float."""
    if isinstance(order, float) and order >= 1.0:  # this includes infinity
        return float(order)
    alpha = float(exact(order, "order"))
    if alpha < 1.0:
        raise InvalidParameterError(f"order must be at least 1, got {order}.")
    return alpha


def _remainder(x: float) -> float:
    return float(exponential_remainder(np.array([x]))[0])


Curve = Callable[[float], float]
"""An upper bound on a mechanism's Renyi divergence, as a function of the order."""

# α − 1 runs from 2^−8 to 2^20 with twelve orders per doubling. Some order of the grid then lies within 3 % of the best
# one, where the curve ρ + ρu + ln(1/δ)/u is flat to 0.05 %. With infinity among the orders, the accountant is never
# worse than basic composition.
DEFAULT_ORDERS: tuple[float, ...] = (
    *(1.0 + 2.0 ** (step / 12.0) for step in range(-96, 241)),
    math.inf,
)


def renyi_to_epsilon(orders: Iterable[Number], divergences: Iterable[Number], delta: Number) -> tuple[float, float]:
    """Return the least epsilon that Renyi divergences imply, and the order that gives it.

    Parameters
    ----------
    orders
        Orders above 1; infinity is allowed.
    divergences
        The bound R at each order, or infinity where no bound is known.
    delta
        The delta to promise.

    Returns
    -------
    tuple of float
        The epsilon R + ln(1−1/α) − ln(δα)/(α−1), rounded up and at least 0, and the order α that gives it (Canonne,
        Kamath and Steinke 2020, Proposition 12).

    Examples
    --------
    >>> import dp_polars as dp
    >>> epsilon, order = dp.theory.renyi_to_epsilon([2, 8, 32], [0.04, 0.16, 0.64], 1e-6)
    >>> round(epsilon, 3), order
    (0.942, 32.0)
    """
    grid, bounds = _curve(orders, divergences)
    surprise = -math.log(float(delta_of(delta)))
    best, best_order = math.inf, grid[0]
    for alpha, bound in zip(grid, bounds, strict=True):
        if math.isinf(alpha):
            epsilon = bound
        else:
            terms = (
                bound,
                math.log1p(-1.0 / alpha),
                surprise / (alpha - 1.0),
                math.log(alpha) / (alpha - 1.0),
            )
            rounding = _SUM_ERROR * (terms[0] - terms[1] + terms[2] + terms[3])
            epsilon = terms[0] + terms[1] + terms[2] - terms[3] + rounding
        if epsilon < best:
            best, best_order = max(0.0, epsilon), alpha
    return best, best_order


@dataclass(frozen=True, slots=True)
class RenyiAccountant:
    """The moments accountant, which sums Renyi divergences on a grid of orders.

    Composing returns a new accountant. The parameters of all releases must be fixed in advance, because the order is
    chosen at the end.

    Parameters
    ----------
    orders
        Orders above 1. Infinity is allowed. The default suits total epsilons from 0.001 to 1000.
    divergences
        The sum so far, with one bound per order. By default nothing has been composed yet.

    Examples
    --------
    >>> import dp_polars as dp
    >>> from functools import partial
    >>> accountant = dp.theory.RenyiAccountant().compose(partial(dp.theory.renyi_of_gaussian, sigma=50), count=100)
    >>> round(accountant.epsilon(1e-6), 2)
    0.9
    """

    orders: tuple[float, ...] = field(default_factory=lambda: DEFAULT_ORDERS)
    divergences: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        orders = tuple(self.orders)
        divergences = tuple(self.divergences) or (0.0,) * len(orders)
        grid, bounds = _curve(orders, divergences)
        object.__setattr__(self, "orders", tuple(grid))
        object.__setattr__(self, "divergences", tuple(bounds))

    def compose(self, curve: Curve, count: int = 1) -> RenyiAccountant:
        """Return the accountant after `count` more releases whose divergence is `curve(order)`.

        Parameters
        ----------
        curve
            A function from an order to an upper bound on the Renyi divergence.
        count
            The number of releases, at least 1.

        Examples
        --------
        >>> import dp_polars as dp
        >>> once = dp.theory.RenyiAccountant().compose(lambda order: 0.01 * order)
        >>> twice = once.compose(lambda order: 0.01 * order)
        >>> twice.epsilon(1e-6) > once.epsilon(1e-6)
        True
        """
        times = count_of(count, "count")
        if not callable(curve):
            raise InvalidParameterError(
                "curve must be a function from an order to a divergence, such as lambda order: 0.01 * order."
            )
        added = _bounds([curve(order) for order in self.orders])
        totals = (total + times * bound for total, bound in zip(self.divergences, added, strict=True))
        return RenyiAccountant(self.orders, tuple(total * (1.0 + 1e-15) for total in totals))

    def epsilon(self, delta: Number) -> float:
        """Return the total epsilon at a delta, using the best order.

        Parameters
        ----------
        delta
            The delta to promise.

        Examples
        --------
        >>> import dp_polars as dp
        >>> round(dp.theory.RenyiAccountant().compose(lambda order: 0.02 * order).epsilon(1e-6), 2)
        0.9
        """
        return renyi_to_epsilon(self.orders, self.divergences, delta)[0]

    def delta(self, epsilon: Number) -> float:
        """Return the total delta at an epsilon, using the best order.

        Parameters
        ----------
        epsilon
            The epsilon to promise, at least 0.

        Examples
        --------
        >>> import dp_polars as dp
        >>> dp.theory.RenyiAccountant().compose(lambda order: 0.0243 * order).delta(1.0) < 1e-6
        True
        """
        loss = nonnegative(epsilon, "epsilon")
        best = 0.0
        for alpha, bound in zip(self.orders, self.divergences, strict=True):
            if bound <= loss and math.isinf(alpha):
                return 0.0
            if math.isinf(alpha) or math.isinf(bound):
                continue
            u = alpha - 1.0
            terms = (u * bound, u * loss, -u * math.log1p(-1.0 / alpha), math.log(alpha))
            rounding = SLACK + _SUM_ERROR * sum(terms)
            best = min(best, terms[0] - terms[1] - terms[2] - terms[3] + rounding)
        return min(1.0, math.nextafter(math.exp(best), 2.0))


def _bounds(values: Iterable[Number]) -> list[float]:
    try:
        bounds = [float(value) for value in values]
    except (TypeError, ValueError) as error:
        raise InvalidParameterError("Renyi divergences must be numbers.") from error
    if not all(bound >= 0.0 for bound in bounds):
        raise InvalidParameterError("A Renyi divergence must be at least 0, or infinity where no bound is known.")
    return bounds


def _curve(orders: Iterable[Number], divergences: Iterable[Number]) -> tuple[list[float], list[float]]:
    grid, bounds = [order_of(order) for order in orders], _bounds(divergences)
    if not grid or len(grid) != len(bounds):
        raise InvalidParameterError(
            f"orders and divergences must pair up: got {len(grid)} orders and {len(bounds)} divergences."
        )
    if min(grid) <= 1.0:
        raise InvalidParameterError("Every order must be greater than 1 to imply an epsilon.")
    return grid, bounds
