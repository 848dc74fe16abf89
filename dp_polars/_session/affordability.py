"""The largest spend that a session would still accept: for refusals, previews and defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from dp_polars._numbers import MIN_EPSILON, boundary, first_doubling
from dp_polars._session.cost import Cost
from dp_polars._session.filters import accepts
from dp_polars._session.minimum_price import is_too_small
from dp_polars._session.pricing import gaussian_cost, pure_cost
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError

Mechanism = Literal["laplace", "gaussian"]
Spend = Literal["epsilon", "rho"]

_TINY_RHO = 1e-18


def affordable_count(terms: Terms, spent: Cost, cost: Cost, most: int) -> int:
    """Return how often the filter would accept a cost in a row, at most `most` times."""

    def fits(times: int) -> bool:
        return times <= most and accepts(terms, spent + cost * times)

    outside = first_doubling(fits, 1)
    return boundary(fits, inside=outside // 2, outside=outside)


def largest_affordable(terms: Terms, spent: Cost, mechanism: Mechanism, measure: Spend) -> float:
    """Return the largest epsilon or rho of one release of this kind that the filter accepts; 0 if none."""
    if mechanism not in get_args(Mechanism) or measure not in get_args(Spend):
        raise InvalidParameterError("mechanism is 'laplace' or 'gaussian', measure is 'epsilon' or 'rho'.")
    if mechanism == "laplace" and measure == "rho":
        raise InvalidParameterError("A Laplace release is given by epsilon; ask for measure='epsilon'.")

    def cost_of(amount: float) -> Cost:
        return pure_cost(amount) if mechanism == "laplace" else gaussian_cost(terms, **{measure: amount})

    def fits(amount: float) -> bool:
        try:
            return accepts(terms, spent + cost_of(amount))
        except InvalidParameterError:  # beyond what a spend may be
            return False

    if measure == "rho":
        largest = _largest(fits, float(terms.rho_allowed - spent.rho), _TINY_RHO)
    else:
        left = 0.0 if terms.epsilon is None else float(terms.epsilon - spent.epsilon)
        largest = _largest(fits, left, float(MIN_EPSILON))
    return 0.0 if not largest or is_too_small(terms, cost_of(largest)) else largest


def _largest(fits: Callable[[float], bool], left: float, least: float) -> float:
    """Return the largest number that fits: what is left in one measure if nothing larger does, else by bisection."""
    if not fits(least):
        return 0.0
    low = left if left >= least and fits(left) else least
    if low == left and not fits(low * 1.000001):
        return low
    high = first_doubling(fits, 2 * low)
    return boundary(fits, inside=high / 2, outside=high, tolerance=1e-9)
