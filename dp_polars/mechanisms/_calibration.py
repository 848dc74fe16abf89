"""How much Gaussian noise an (epsilon, delta) needs.

What one unit can change: it shifts the exact answer by a vector of length at most `sensitivity`. For one whole number
the privacy loss of every shift d = 1, ..., sensitivity is bounded; for several numbers the bound goes through rho,
because the worst direction of a lattice is not known in closed form.

Every result errs towards more noise. Nothing here draws noise or reads data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dp_polars._numbers import Number, delta_of, epsilon_of, positive
from dp_polars.errors import InvalidParameterError
from dp_polars.theory import approximate_to_zcdp

Calibration = Literal["exact", "zcdp", "classic"]

_SLACK = 1e-9  # relative; the float sums below are good to 1e-12
_SUM_SHIFTS = 32  # up to this shift, and
_SUM_SIGMA = 512.0  # up to this sigma, the hockey-stick divergence is summed point by point


def gaussian_variance(
    sensitivity: Fraction,
    *,
    epsilon: Fraction,
    delta: Fraction,
    single: bool,
    calibration: Calibration,
) -> Fraction:
    """Return a variance with which discrete Gaussian noise is (epsilon, delta)-differentially private.

    `single` says that the answer is one number; `sensitivity` is in units of the grid the noise lives on.
    """
    if calibration not in get_args(Calibration):
        raise InvalidParameterError(
            f"calibration must be one of {', '.join(get_args(Calibration))}, got {calibration!r}."
        )
    if calibration == "classic" and epsilon > 1:
        raise InvalidParameterError(
            f"calibration='classic' is proved for epsilon up to 1 only (and false from about 7.5 up), got "
            f"{float(epsilon):g}. Use calibration='exact'."
        )
    return _variance(sensitivity, epsilon, delta, single, calibration)


@lru_cache(maxsize=256)
def _variance(
    sensitivity: Fraction, epsilon: Fraction, delta: Fraction, single: bool, calibration: Calibration
) -> Fraction:
    needed = sensitivity**2 / (2 * Fraction(approximate_to_zcdp(epsilon, delta)))
    if calibration == "zcdp":
        return needed
    # A vector shorter than sqrt(2) with whole coordinates moves one coordinate by one: a single number again. Well
    # below 2, because a user's rounded sqrt(2) means two coordinates.
    if single or sensitivity**2 <= Fraction(9, 5):
        needed = min(needed, least_variance(sensitivity, epsilon, delta, discrete_gaussian_delta))
    if calibration == "classic":
        sigma = math.sqrt(2 * math.log(1.25 / delta)) / float(epsilon) * (1 + _SLACK)
        return max(needed, Fraction(sigma) ** 2 * sensitivity**2)
    return needed


VarianceOf = Callable[[Fraction, bool], Fraction]
"""(sensitivity, whether the answer is a single number) -> the variance to use."""


def variance_rule(
    rho: Number | None, epsilon: Number | None, delta: Number | None, calibration: Calibration
) -> VarianceOf:
    """Return the calibration that a spend asks for."""
    if rho is not None:
        if epsilon is not None or delta is not None or calibration != "exact":
            raise InvalidParameterError("Give either rho, or epsilon and delta (with a calibration), not both.")
        spend = positive(rho, "rho")
        return lambda sensitivity, _: sensitivity * sensitivity / (2 * spend)
    if epsilon is None or delta is None:
        raise InvalidParameterError("gaussian needs its spend: pass rho=, or epsilon= and delta=.")
    loss, failure = epsilon_of(epsilon), delta_of(delta)
    return lambda sensitivity, single: gaussian_variance(
        sensitivity, epsilon=loss, delta=failure, single=single, calibration=calibration
    )


DeltaOf = Callable[[float, float, float], float]
"""(sensitivity, sigma, epsilon) -> an upper bound of delta. On the integers it need not fall with sigma everywhere:
only a sigma that was checked is safe, and nothing may round it up afterwards."""


def least_variance(sensitivity: Fraction, epsilon: Fraction, delta: Fraction, delta_of: DeltaOf) -> Fraction:
    """Return the least variance, to a relative 1e-9, at which `delta_of` is at most delta."""
    width, loss = float(sensitivity), float(epsilon)
    target = float(delta) * (1 - _SLACK)

    def enough(sigma: float) -> bool:
        return delta_of(width, sigma, loss) <= target

    # Between a sigma that is surely too small and one that is enough; only the enough end is ever returned.
    high = width * max(1.0, 1.0 / loss)
    while not enough(high):
        high *= 2
    low = high / 2
    while low > 1e-9 * width and enough(low):
        low, high = low / 2, low
    while high - low > _SLACK * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return Fraction(high) ** 2


def discrete_gaussian_delta(sensitivity: float, sigma: float, epsilon: float) -> float:
    """Return an upper bound of the hockey-stick divergence of the discrete Gaussian over all whole shifts."""
    if sensitivity < _SUM_SHIFTS and sigma <= _SUM_SIGMA:
        reach = math.ceil(40 * sigma) + _SUM_SHIFTS
        x = np.arange(-reach, reach + 1, dtype=np.float64)
        weights = np.exp(x * x * (-0.5 / sigma**2))
        weights /= weights.sum()
        shifts = range(1, max(1, math.floor(sensitivity)) + 1)
        return max(_summed_delta(d, x, weights, sigma, epsilon) for d in shifts)
    return continuous_bound(sensitivity, sigma, epsilon)


def _summed_delta(
    shift: int, x: NDArray[np.float64], weights: NDArray[np.float64], sigma: float, epsilon: float
) -> float:
    """Return sum over x of (P(x) - exp(epsilon) * P(x + shift)), where positive: Balle and Wang on the integers."""
    loss = (x * (2.0 * shift) + shift * shift) * (0.5 / sigma**2)
    first = int(np.searchsorted(loss, epsilon, side="right"))  # the loss grows with x
    return float((weights[first:] * -np.expm1(epsilon - loss[first:])).sum())


def continuous_bound(sensitivity: float, sigma: float, epsilon: float) -> float:
    """Return the continuous Gaussian's delta plus the most that summing over integers can add to the integral.

    For a shift d the summand f(x) = exp(-x**2/2s**2) - exp(epsilon - (x+d)**2/2s**2) is positive from
    x0 = epsilon*s**2/d - d/2 on, and log-concave there, hence first rises and then falls, so its sum over the integers
    is at most its integral plus its largest value. The normaliser of the discrete Gaussian is at least s*sqrt(2 pi)
    (Poisson summation), so dividing by that only enlarges the bound. For x0 > 0, f is at most
    exp(-x0**2/2s**2) * exp(-(x-x0)*x0/s**2) * (x-x0)*d/s**2, whose largest value has the factor d/(e*x0).
    Both parts grow with d, so the largest shift covers all smaller ones.
    """
    start = epsilon * sigma**2 / sensitivity - sensitivity / 2
    largest = 1.0
    if start > 0:
        largest = math.exp(-0.5 * (start / sigma) ** 2) * min(1.0, sensitivity / (math.e * start))
    first = 0.5 * math.erfc(start / sigma * math.sqrt(0.5))
    # exp(epsilon) * P(N > start + d): in logarithms, where the factor alone would overflow.
    second = _scaled_tail(epsilon, (start + sensitivity) / sigma)
    rounding = 2.0**-40 * first
    return first - second + rounding + largest / (sigma * math.sqrt(2 * math.pi))


def _scaled_tail(log_factor: float, z: float) -> float:
    tail = 0.5 * math.erfc(z * math.sqrt(0.5))
    # A tail below the normal floats has few bits left. As it is subtracted, nothing in its place is the safe side.
    return math.exp(log_factor + math.log(tail)) if tail > 1e-300 else 0.0
