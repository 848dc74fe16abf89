"""The exact privacy curve of k randomized responses, from binomial weights around their mode.

k-fold randomized response dominates k-fold composition of pure mechanisms (Kairouz, Oh and
Viswanath 2015), so its hockey-stick curve is the optimal composition. Never materialises all k+1
outcomes: those beyond 19·√k of the mode weigh less than 1e-300.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dp_polars.theory._floats import UNIT_ROUNDOFF

Array = NDArray[np.float64]

# Hoeffding: P(|X − kp| ≥ w) ≤ 2·exp(−2w²/k), below 1e-300 from w = √(k·ln(2e300)/2) on.
_LOG_NEGLIGIBLE = math.log(2e300)


def _weights(epsilon: float, count: int) -> tuple[int, Array]:
    """Return the first index and the weights of Binomial(k, 1/(1+e^ε)), the flipped answers."""
    flip = math.exp(-epsilon)
    mode = min(count, math.floor((count + 1) * flip / (1.0 + flip)))
    reach = math.ceil(math.sqrt(0.5 * count * _LOG_NEGLIGIBLE)) + 2
    first, last = max(0, mode - reach), min(count, mode + reach)
    # Ratios of neighbouring weights, multiplied outward from the mode: each step loses a few ulps,
    # none cancels.
    upper = np.arange(mode, last, dtype=np.float64)
    lower = np.arange(mode, first, -1, dtype=np.float64)
    above = np.cumprod((count - upper) / (upper + 1.0) * flip)
    below = np.cumprod(lower / ((count - lower + 1.0) * flip)) if lower.size else lower
    weights = np.concatenate((below[::-1], [1.0], above))
    return first, weights / weights.sum()


def randomized_response_epsilon(epsilon: float, count: int, delta: float) -> float:
    """Return the least total epsilon of `count` randomized responses at `delta`.

    With A_j and B_j the probabilities, under P and Q, of fewer than j flipped answers, the curve is
    A_j − e^x·B_j between the breakpoints x = (k−2j)ε and (k−2j+2)ε. The segment is found by
    bisection, then solved for x.
    """
    first, weights = _weights(epsilon, count)
    error = 12.0 * UNIT_ROUNDOFF * (weights.size + 16)
    flips = first + np.arange(weights.size, dtype=np.float64)

    def scaled_sums(j: int) -> tuple[float, float]:
        """Return A_j and B_j·e^{(k−2j+2)ε}, which lies between the last weight and A_j."""
        inside = slice(0, j - first)
        attenuated = weights[inside] * np.exp(-2.0 * epsilon * (j - 1 - flips[inside]))
        return float(weights[inside].sum()), float(attenuated.sum())

    # The curve at the lower breakpoint of segment j, A_j − e^{−2ε}·(scaled B_j), grows with j: find
    # the first that reaches delta. Breakpoints below 0 are of no interest, as epsilon is never
    # negative.
    low, high = first + 1, min(first + weights.size, count // 2 + 1)
    while low < high:
        middle = (low + high) // 2
        mass, scaled = scaled_sums(middle)
        if mass - math.exp(-2.0 * epsilon) * scaled >= delta:
            high = middle
        else:
            low = middle + 1
    # The curve is the upper envelope of all segments' lines, so a neighbour settles what rounding
    # left open.
    total = 0.0
    for j in (low - 1, low, low + 1):
        mass, scaled = scaled_sums(j)
        excess = mass * (1.0 + error) - delta
        if excess > 0.0 and scaled > 0.0:
            line = (count - 2 * j + 2) * epsilon + math.log(excess / (scaled * (1.0 - error)))
            total = max(total, line)
    return min(total, count * epsilon)
