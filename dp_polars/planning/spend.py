"""Which noise a spend buys, and its price in the session.

Every way to say a spend (epsilon, share, rho, within) becomes, for each mechanism that the session allows, a noise and
a cost; without `mechanism=` the smaller noise wins (nearly equal: the cheaper one), for `within=` the smaller price.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist
from typing import get_args

from dp_polars.accounting.cost import Cost
from dp_polars.accounting.filters import share_of
from dp_polars.accounting.pricing import gaussian_cost, pure_cost
from dp_polars.accounting.terms import Terms
from dp_polars.composition import pure_to_zcdp
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.accuracy import gaussian_steps, gaussian_tail, laplace_steps, laplace_tail
from dp_polars.planning.query import MechanismChoice, Spend
from dp_polars.planning.sensitivity import Sensitivity
from dp_polars.quantities import MIN_EPSILON
from dp_polars.sampling.noise import MAX_SCALE


@dataclass(frozen=True, kw_only=True)
class Noise:
    """A calibrated noise, in steps: the Laplace scale or the Gaussian variance, and what it costs."""

    mechanism: MechanismChoice
    parameter: Fraction
    cost: Cost

    @property
    def deviation(self) -> float:
        """The standard deviation (of the continuous noise of this parameter)."""
        if self.mechanism == "laplace":
            return math.sqrt(2) * float(self.parameter)
        return math.sqrt(self.parameter)

    def error(self, confidence: float) -> int:
        """Return the steps within which one answer's noise stays with this confidence."""
        miss = 1 - confidence
        if self.mechanism == "laplace":
            return laplace_steps(self.parameter, miss)
        return gaussian_steps(math.sqrt(self.parameter), miss)


def choose_noise(terms: Terms, sensitivity: Sensitivity, spend: Spend, step: Fraction) -> Noise:
    """Return the noise that a spend buys for a vector of this sensitivity on a grid of this step."""
    candidates = [
        _option(terms, sensitivity, spend, step, mechanism)
        for mechanism in get_args(MechanismChoice)
        if spend.mechanism in (None, mechanism)
    ]
    options = [noise for noise in candidates if noise is not None]
    if not options:
        raise _no_option(terms, spend)
    if spend.within is not None:
        best = min(options, key=lambda noise: share_of(terms, noise.cost))
    else:
        best = _least_noise(options, terms)
    if best.deviation > MAX_SCALE:
        raise InvalidParameterError(
            "The noise would not fit 64-bit numbers: use tighter bounds, smaller caps or a larger spend."
        )
    return best


def _least_noise(options: list[Noise], terms: Terms) -> Noise:
    """Return the least noise; of two that are nearly equal, one that is clearly cheaper in the session."""
    best = min(options, key=lambda noise: noise.deviation)
    near = [noise for noise in options if noise.deviation <= 1.1 * best.deviation]
    cheapest = min(near, key=lambda noise: share_of(terms, noise.cost))
    return cheapest if share_of(terms, cheapest.cost) < 0.9 * share_of(terms, best.cost) else best


def _option(
    terms: Terms, sensitivity: Sensitivity, spend: Spend, step: Fraction, mechanism: MechanismChoice
) -> Noise | None:
    if mechanism == "laplace":
        epsilon = _laplace_epsilon(terms, sensitivity, spend, step)
        if epsilon is None:
            return None
        return Noise(mechanism="laplace", parameter=sensitivity.l1 / epsilon, cost=pure_cost(epsilon))
    cost = _gaussian_cost(terms, sensitivity, spend, step)
    if cost is None or not isinstance(cost.rho, Fraction):
        return None
    return Noise(mechanism="gaussian", parameter=sensitivity.l2_squared / (2 * cost.rho), cost=cost)


def _laplace_epsilon(terms: Terms, sensitivity: Sensitivity, spend: Spend, step: Fraction) -> Fraction | None:
    if spend.epsilon is not None:
        return spend.epsilon
    if spend.within is not None:
        return _least_laplace(sensitivity, math.floor(spend.within / step), spend.confidence)
    if terms.measure == "pure":
        if spend.share is None or terms.epsilon is None:
            return None
        return spend.share * terms.epsilon
    concentrated = spend.rho if spend.rho is not None else (spend.share or Fraction(0)) * terms.rho_allowed
    return epsilon_of_rho(concentrated)


def _gaussian_cost(terms: Terms, sensitivity: Sensitivity, spend: Spend, step: Fraction) -> Cost | None:
    if terms.measure == "pure" or (terms.measure == "zcdp" and spend.epsilon is not None):
        return None
    if spend.epsilon is not None:
        return gaussian_cost(terms, epsilon=spend.epsilon)
    if spend.within is not None:
        rho = _least_gaussian(sensitivity, math.floor(spend.within / step), spend.confidence)
        return None if rho is None else gaussian_cost(terms, rho=rho)
    concentrated = spend.rho if spend.rho is not None else (spend.share or Fraction(0)) * terms.rho_allowed
    return gaussian_cost(terms, rho=concentrated)


def epsilon_of_rho(rho: Fraction) -> Fraction | None:
    """Return the largest epsilon whose pure release costs at most this rho; None if there is none."""
    low, high = float(MIN_EPSILON), float(rho) + math.sqrt(2 * float(rho)) + 1
    if pure_to_zcdp(low) > rho:
        return None
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if Fraction(pure_to_zcdp(middle)) <= rho else (low, middle)
    return Fraction(repr(low))


def _least_laplace(sensitivity: Sensitivity, steps: int, confidence: float) -> Fraction | None:
    """Return the least epsilon whose noise stays within `steps`, by bisection on the exact tail."""
    miss = 1 - confidence
    near = sensitivity.l1 * math.log(1 / miss) / (steps + 0.5)
    return _least(lambda epsilon: 2 * laplace_tail(sensitivity.l1 / epsilon, steps + 1) <= miss, near)


def _least_gaussian(sensitivity: Sensitivity, steps: int, confidence: float) -> Fraction | None:
    miss = 1 - confidence
    sigma = (steps + 0.5) / NormalDist().inv_cdf(1 - miss / 2)

    def enough(rho: float) -> bool:
        return 2 * gaussian_tail(math.sqrt(sensitivity.l2_squared / (2 * rho)), steps + 1) <= miss

    return _least(enough, sensitivity.l2_squared / (2 * sigma**2))


def _least(enough: Callable[[float], bool], near: float) -> Fraction | None:
    """Return the least spend that is enough; it is looked for near a guess first."""
    low, high = 1e-9, 1e5
    if not enough(high):
        return None
    if low < near / 1.01 and near * 1.01 < high and enough(near * 1.01) and not enough(near / 1.01):
        low, high = near / 1.01, near * 1.01
    while high > low * (1 + 1e-9):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return Fraction(repr(high))


def part_of(spend: Spend, part: Fraction) -> Spend:
    """Return the spend of one of several noises that share a release."""
    return replace(
        spend,
        epsilon=None if spend.epsilon is None else spend.epsilon * part,
        share=None if spend.share is None else spend.share * part,
        rho=None if spend.rho is None else spend.rho * part,
    )


def _no_option(terms: Terms, spend: Spend) -> InvalidParameterError:
    if terms.measure == "pure" and (spend.rho is not None or spend.mechanism == "gaussian"):
        return InvalidParameterError(
            "A pure session (epsilon without delta) has Laplace noise only and is asked with epsilon=, share= or "
            "within=. Open the session with a delta for rho= and Gaussian noise."
        )
    if spend.mechanism == "gaussian" and spend.epsilon is not None:
        return InvalidParameterError("In a zCDP session Gaussian noise is asked with rho= or share=, not epsilon=.")
    return InvalidParameterError("No noise fits this spend: it is too small, or the wanted error is.")
