"""The variance of Gaussian noise that an (epsilon, delta) needs.

One unit shifts the exact answer by a vector of length at most `sensitivity`. For a single whole number, the privacy
loss of every shift d = 1, ..., sensitivity is bounded directly. For several numbers the bound goes through rho, because
the worst direction in a lattice has no closed form.

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

from dp_polars._numbers import Number, boundary, delta_of, epsilon_of, first_doubling, positive
from dp_polars.errors import InvalidParameterError
from dp_polars.theory import approximate_to_zcdp

Calibration = Literal["exact", "zcdp", "classic"]

_SLACK = 1e-9  # relative; the float sums below are accurate to 1e-12
# The hockey-stick divergence is summed point by point up to this shift and this sigma.
_SUM_SHIFTS = 32
_SUM_SIGMA = 512.0


def gaussian_variance(
    sensitivity: Fraction,
    *,
    epsilon: Fraction,
    delta: Fraction,
    single: bool,
    calibration: Calibration,
) -> Fraction:
    """Return a variance with which discrete Gaussian noise is (epsilon, delta)-differentially private.

    `single` means that the answer is one number. `sensitivity` is in steps of the grid that the noise lives on.
    """
    if calibration not in get_args(Calibration):
        raise InvalidParameterError(
            f"calibration must be one of {', '.join(get_args(Calibration))}, got {calibration!r}."
        )
    if calibration == "classic" and epsilon > 1:
        raise InvalidParameterError(
            f"calibration='classic' is proved only for epsilon up to 1 (and false above about 7.5), got "
            f"{float(epsilon)}. Use calibration='exact'."
        )
    return _variance(sensitivity, epsilon, delta, single, calibration)


@lru_cache(maxsize=256)
def _variance(
    sensitivity: Fraction, epsilon: Fraction, delta: Fraction, single: bool, calibration: Calibration
) -> Fraction:
    needed = sensitivity**2 / (2 * Fraction(approximate_to_zcdp(epsilon, delta)))
    if calibration == "zcdp":
        return needed
    # A whole-number vector shorter than sqrt(2) moves one coordinate by one, which is a single number again. The limit
    # is well below 2, because a user's rounded sqrt(2) means two coordinates.
    if single or sensitivity**2 <= Fraction(9, 5):
        needed = min(needed, least_variance(sensitivity, epsilon, delta, discrete_gaussian_delta))
    if calibration == "classic":
        sigma = math.sqrt(2 * math.log(1.25 / delta)) / float(epsilon) * (1 + _SLACK)
        return max(needed, Fraction(sigma) ** 2 * sensitivity**2)
    return needed


VarianceOf = Callable[[Fraction, bool], Fraction]
"""Maps (sensitivity, whether the answer is a single number) to the variance."""


def variance_rule(
    rho: Number | None, epsilon: Number | None, delta: Number | None, calibration: Calibration
) -> VarianceOf:
    """Return the function from sensitivity to variance for a spend in rho, or in epsilon and delta."""
    if rho is not None:
        if epsilon is not None or delta is not None or calibration != "exact":
            raise InvalidParameterError("Pass either rho=, or epsilon= and delta= (with a calibration=), not both.")
        spend = positive(rho, "rho")
        return lambda sensitivity, _: sensitivity * sensitivity / (2 * spend)
    if epsilon is None or delta is None:
        raise InvalidParameterError("gaussian needs to know its spend. Pass rho=, or epsilon= and delta=.")
    loss, failure = epsilon_of(epsilon), delta_of(delta)
    return lambda sensitivity, single: gaussian_variance(
        sensitivity, epsilon=loss, delta=failure, single=single, calibration=calibration
    )


DeltaOf = Callable[[float, float, float], float]
"""Maps (sensitivity, sigma, epsilon) to an upper bound on delta.

On the integers delta need not fall with sigma everywhere. Only a sigma that was itself checked is safe, so the result
of a search must not be rounded up afterwards.
"""


def least_variance(sensitivity: Fraction, epsilon: Fraction, delta: Fraction, delta_of: DeltaOf) -> Fraction:
    """Return the least variance at which `delta_of` is at most delta, found to a relative 1e-9."""
    width, loss = float(sensitivity), float(epsilon)
    target = float(delta) * (1 - _SLACK)

    def enough(sigma: float) -> bool:
        return delta_of(width, sigma, loss) <= target

    high = first_doubling(lambda sigma: not enough(sigma), width * max(1.0, 1.0 / loss))
    low = high / 2
    while low > 1e-9 * width and enough(low):
        low, high = low / 2, low
    return Fraction(boundary(enough, inside=high, outside=low, tolerance=_SLACK)) ** 2


def discrete_gaussian_delta(sensitivity: float, sigma: float, epsilon: float) -> float:
    """Return an upper bound on the hockey-stick divergence of the discrete Gaussian over all whole shifts."""
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
    """Return the sum over x of max(0, P(x) - exp(epsilon) * P(x + shift)): Balle and Wang 2018 on the integers."""
    loss = (x * (2.0 * shift) + shift * shift) * (0.5 / sigma**2)
    first = int(np.searchsorted(loss, epsilon, side="right"))  # the loss grows with x
    return float((weights[first:] * -np.expm1(epsilon - loss[first:])).sum())


def continuous_bound(sensitivity: float, sigma: float, epsilon: float) -> float:
    """Return the delta of the continuous Gaussian plus the most that a sum over integers can exceed the integral.

    For a shift d, the summand f(x) = exp(-x**2/2s**2) - exp(epsilon - (x+d)**2/2s**2) is positive for
    x > x0 = epsilon*s**2/d - d/2. It is log-concave there, so it first rises and then falls, and its sum over the
    integers is at most its integral plus its largest value. By Poisson summation the normaliser of the discrete
    Gaussian is at least s*sqrt(2 pi), so dividing by the latter only enlarges the bound. For x0 > 0, f is at most
    exp(-x0**2/2s**2) * exp(-(x-x0)*x0/s**2) * (x-x0)*d/s**2, whose largest value has the factor d/(e*x0). Both parts
    grow with d, so the largest shift covers all smaller ones.
    """
    start = epsilon * sigma**2 / sensitivity - sensitivity / 2
    largest = 1.0
    if start > 0:
        largest = math.exp(-0.5 * (start / sigma) ** 2) * min(1.0, sensitivity / (math.e * start))
    first = 0.5 * math.erfc(start / sigma * math.sqrt(0.5))
    # exp(epsilon) * P(N > start + d) is computed in logarithms, because the factor alone could overflow.
    second = _scaled_tail(epsilon, (start + sensitivity) / sigma)
    rounding = 2.0**-40 * first
    return first - second + rounding + largest / (sigma * math.sqrt(2 * math.pi))


def _scaled_tail(log_factor: float, z: float) -> float:
    tail = 0.5 * math.erfc(z * math.sqrt(0.5))
    # A subnormal tail has few bits left. The tail is subtracted, so replacing it by 0 is on the safe side.
    return math.exp(log_factor + math.log(tail)) if tail > 1e-300 else 0.0
