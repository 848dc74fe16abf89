"""The moments accountant: Renyi divergences added up, and the best order taken at the end.

A guarantee of order α composes by addition (Mironov 2017, "Renyi Differential Privacy", Proposition
1; the accountant is that of Abadi et al. 2016). Choosing the order at the end is fine for releases
whose parameters were fixed in advance; only at one order fixed beforehand is the sum a filter.
Never charges a session.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dp_polars._numbers import Number, count_of, delta_of
from dp_polars.errors import InvalidParameterError
from dp_polars.theory._floats import SLACK, nonnegative
from dp_polars.theory.renyi import order_of

Curve = Callable[[float], float]
"""A mechanism's Renyi divergence (an upper bound on it) as a function of the order."""

# α − 1 from 2^−8 to 2^20, twelve orders per doubling: some grid order lies within 3 % of the best
# one, where the curve ρ + ρu + ln(1/δ)/u is flat to 0.05 %. Infinity makes the accountant no worse
# than basic composition.
DEFAULT_ORDERS: tuple[float, ...] = (
    *(1.0 + 2.0 ** (step / 12.0) for step in range(-96, 241)),
    math.inf,
)

# Relative error of a sum of four terms, with room to spare.
_SUM_ERROR = 1e-14


def renyi_to_epsilon(orders: Iterable[Number], divergences: Iterable[Number], delta: Number) -> tuple[float, float]:
    """Return the least epsilon that Renyi divergences imply, and the order that gives it.

    Parameters
    ----------
    orders
        Orders above 1; infinity is allowed.
    divergences
        The bound R at each order; infinity where there is none.
    delta
        The delta to be promised.

    Returns
    -------
    tuple of float
        The epsilon R + ln(1−1/α) − ln(δα)/(α−1), rounded up and at least 0, and the order α
        (Canonne, Kamath and Steinke 2020, Proposition 12).

    Examples
    --------
    >>> epsilon, order = renyi_to_epsilon([2, 8, 32], [0.04, 0.16, 0.64], 1e-6)
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
    """The moments accountant: sums of Renyi divergences on a grid of orders.

    Composing returns a new accountant. The releases' parameters must be fixed in advance (see the
    module).

    Parameters
    ----------
    orders
        Orders above 1; infinity is allowed. The default suits total epsilons from 0.001 to 1000.
    divergences
        What has been composed so far, one bound per order; nothing by default.

    Examples
    --------
    >>> from functools import partial
    >>> from dp_polars.theory import renyi_of_gaussian
    >>> accountant = RenyiAccountant().compose(partial(renyi_of_gaussian, sigma=50), count=100)
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
        """Return the accountant after `count` more releases of divergence `curve(order)`.

        Examples
        --------
        >>> once = RenyiAccountant().compose(lambda order: 0.01 * order)
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
        """Return the total epsilon at a delta, at the best order.

        Examples
        --------
        >>> round(RenyiAccountant().compose(lambda order: 0.02 * order).epsilon(1e-6), 2)
        0.9
        """
        return renyi_to_epsilon(self.orders, self.divergences, delta)[0]

    def delta(self, epsilon: Number) -> float:
        """Return the total delta at an epsilon, at the best order.

        Examples
        --------
        >>> RenyiAccountant().compose(lambda order: 0.0243 * order).delta(1.0) < 1e-6
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
        raise InvalidParameterError("A Renyi divergence must be at least 0 (infinity where there is no bound).")
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
