"""The noise that a spend buys, and its price in the session.

A spend (epsilon, share or rho) is split by weight among the statistics that it pays for. It is split in one of two
measures, epsilon or rho, and both add up. In terms of rho, the whole query is a single rho-concentrated release. So it
costs the same as one Gaussian with this rho, however many statistics share it. The measure with less noise is used, or
the cheaper one if both have nearly the same noise. For `within=`, the cheaper one is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Literal, TypeVar

from dp_polars._numbers import MIN_EPSILON, boundary, rounded_down
from dp_polars._plan.query import MechanismChoice, Spend
from dp_polars._plan.sensitivity import Sensitivity
from dp_polars._sampling.noise import MAX_SCALE
from dp_polars._session.accounts import share_in_epsilon
from dp_polars._session.cost import NOTHING, Cost
from dp_polars._session.filters import share_of
from dp_polars._session.prices import epsilon_of_rho, gaussian_cost, pure_cost
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.accuracy import gaussian_steps, gaussian_tail, laplace_steps, laplace_tail
from dp_polars.theory import pure_to_zcdp

Measure = Literal["pure", "concentrated"]
Option = TypeVar("Option")


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Calibrated noise: the Laplace scale or the Gaussian variance, in steps of a grid, and its cost."""

    mechanism: MechanismChoice
    parameter: Fraction
    cost: Cost

    @property
    def deviation(self) -> float:
        """The standard deviation of the continuous noise with this parameter."""
        if self.mechanism == "laplace":
            return math.sqrt(2) * float(self.parameter)
        return math.sqrt(self.parameter)

    def error(self, confidence: float) -> int:
        """Return the number of steps that the noise of one answer stays within with this confidence."""
        miss = 1 - confidence
        if self.mechanism == "laplace":
            return laplace_steps(self.parameter, miss)
        return gaussian_steps(math.sqrt(self.parameter), miss)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Something that a share of a spend pays for: noise on a vector, choices in groups, or a rule that shows groups.

    Attributes
    ----------
    weight
        Its share of the spend.
    sensitivity
        The sensitivity of a noisy vector, or None for choices and rules.
    prices
        The multipliers of epsilon and epsilon**2 that give the price of all choices (see `choice_prices`). They are
        (1, 1) for a rule.
    ranged
        Whether the privacy loss of a choice has a bounded range, as that of the exponential mechanism has. If not, its
        rho is that of a pure release, and only the first multiplier counts.
    """

    weight: Fraction
    sensitivity: Sensitivity | None = None
    prices: tuple[Fraction, Fraction] = (Fraction(1), Fraction(1))
    ranged: bool = True


@dataclass(frozen=True, kw_only=True)
class Granted:
    """What a share of a spend bought: noise, or the epsilon of each choice, with its cost and a measure of error."""

    noise: Noise | None
    epsilon: Fraction
    cost: Cost
    size: float


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """A spend in one measure, epsilon or rho, that can be split into shares. The whole of it has the price `cost`."""

    measure: Measure
    amount: Fraction
    cost: Cost

    def part(self, part: Fraction) -> Allowance:
        """Return a fraction of the allowance. Its price is still that of the whole."""
        return replace(self, amount=self.amount * part)


def allowances_of(terms: Terms, spend: Spend) -> list[Allowance]:
    """Return a spend in each measure in which it can be split."""
    found = []
    if spend.mechanism != "gaussian" or terms.measure == "pure":
        pure = spend.epsilon if spend.epsilon is not None else share_in_epsilon(terms, spend.share)
        if pure is not None:
            found.append(Allowance(measure="pure", amount=pure, cost=_pure_price(pure)))
    cost = _concentrated(terms, spend)
    if cost is not None and isinstance(cost.rho, Fraction):
        found.append(Allowance(measure="concentrated", amount=cost.rho, cost=cost))
    return found


def _concentrated(terms: Terms, spend: Spend) -> Cost | None:
    if terms.measure == "pure":
        return None
    epsilon = spend.epsilon if spend.epsilon is not None else share_in_epsilon(terms, spend.share)
    if epsilon is not None:
        if terms.measure == "zcdp" or spend.mechanism == "laplace":
            return None
        return _gaussian_price(terms, epsilon, None)
    concentrated = spend.rho if spend.rho is not None else (spend.share or Fraction(0)) * terms.rho_allowed
    return _gaussian_price(terms, None, concentrated) if concentrated > 0 else None


@lru_cache(maxsize=256)
def _pure_price(epsilon: Fraction) -> Cost:
    """Return the price of a pure release. A plan asks for the same prices several times, and so does the next plan."""
    return pure_cost(epsilon)


@lru_cache(maxsize=256)
def _gaussian_price(terms: Terms, epsilon: Fraction | None, rho: Fraction | None) -> Cost:
    """Return the price of Gaussian noise. Equal terms may differ in the account of shares, which plays no part here."""
    return gaussian_cost(terms, epsilon=epsilon, rho=rho)


def allot(
    terms: Terms,
    spend: Spend,
    wanted: Sequence[Wanted],
    allowance: Allowance | None = None,
    measure: Measure | None = None,
) -> tuple[list[Granted], Cost]:
    """Split a spend by weight, in the measure that buys less noise. Return what each share bought and the whole price.

    If an `allowance` is given, it fixes the measure and the price. A `measure` fixes the measure only.
    """
    if spend.within is not None:
        return _within(terms, spend, wanted)
    found = []
    for option in [allowance] if allowance is not None else allowances_of(terms, spend):
        parts = split(option, wanted, spend.mechanism) if measure in (None, option.measure) else None
        if parts is not None:
            found.append((parts, option))
    if not found:
        raise no_option(terms, spend)
    granted, whole = _least_noise(found, wanted, terms, tolerance=1.1 if spend.share is None else 1.0)
    for share in granted:
        _check_scale(share.noise)
    return granted, _price(granted, whole) if allowance is None else whole.cost


def split(
    allowance: Allowance, wanted: Sequence[Wanted], mechanism: MechanismChoice | None = None
) -> list[Granted] | None:
    """Split an allowance by weight and return what each share buys, or None if one of them is too small."""
    granted = [_granted(allowance.part(part.weight), part, mechanism) for part in wanted]
    parts = [part for part in granted if part is not None]
    return parts if len(parts) == len(granted) else None


def noise_size(granted: Sequence[Granted], wanted: Sequence[Wanted]) -> float:
    """Return the geometric mean of the noise that was bought, by weight."""
    total = sum(part.weight for part in wanted)
    logs = (float(wish.weight / total) * math.log(part.size) for part, wish in zip(granted, wanted, strict=True))
    return math.exp(math.fsum(logs))


def _check_scale(noise: Noise | None) -> None:
    if noise is not None and noise.deviation > MAX_SCALE:
        raise InvalidParameterError(
            "The noise would be too large for 64-bit numbers. Use tighter bounds, smaller caps or a larger spend.",
            code="noise-too-large",
        )


def _price(parts: Sequence[Granted], allowance: Allowance) -> Cost:
    """Return the price of all shares: their sum, or the price of the whole allowance if that has a smaller epsilon."""
    together = sum([part.cost for part in parts], NOTHING)
    return together if together.epsilon <= allowance.cost.epsilon else allowance.cost


def _least_noise(
    found: list[tuple[list[Granted], Allowance]], wanted: Sequence[Wanted], terms: Terms, tolerance: float
) -> tuple[list[Granted], Allowance]:
    """Return the option with the least noise, or one with nearly as little noise that is clearly cheaper.

    `tolerance` says how much more noise counts as nearly as little. It is 1 for a share of the budget, which is meant
    to be used up.
    """

    def size(option: tuple[list[Granted], Allowance]) -> float:
        return noise_size(option[0], wanted)

    return best_value(found, size, lambda option: share_of(terms, _price(*option)), tolerance)


def best_value(
    options: Sequence[Option],
    size: Callable[[Option], float],
    price: Callable[[Option], float],
    tolerance: float = 1.1,
) -> Option:
    """Return the option of the smallest size, or one of nearly the same size that is clearly cheaper."""
    sizes = [size(option) for option in options]
    best = sizes.index(min(sizes))
    near = [place for place, other in enumerate(sizes) if other <= tolerance * sizes[best]]
    if near == [best]:
        return options[best]
    prices = {place: price(options[place]) for place in near}
    cheapest = min(near, key=prices.__getitem__)
    return options[cheapest if is_cheaper(prices[cheapest], prices[best]) else best]


def is_cheaper(price: float, other: float) -> bool:
    """Return whether a price is clearly below another."""
    return price < 0.9 * other


def _granted(allowance: Allowance, wanted: Wanted, mechanism: MechanismChoice | None) -> Granted | None:
    """Return what an allowance buys, or None if it is too small."""
    if wanted.sensitivity is None:
        return _granted_choice(allowance, wanted)
    options = [
        noise
        for noise in (_laplace(allowance, wanted.sensitivity), _gaussian(allowance, wanted.sensitivity))
        if noise is not None and mechanism in (None, noise.mechanism)
    ]
    if not options:
        return None
    noise = min(options, key=lambda noise: noise.deviation)
    return Granted(noise=noise, epsilon=Fraction(0), cost=noise.cost, size=noise.deviation)


def _laplace(allowance: Allowance, sensitivity: Sensitivity) -> Noise | None:
    epsilon = allowance.amount if allowance.measure == "pure" else epsilon_of_rho(allowance.amount)
    if epsilon is None:
        return None
    return Noise(mechanism="laplace", parameter=sensitivity.l1 / epsilon, cost=_pure_price(epsilon))


def _gaussian(allowance: Allowance, sensitivity: Sensitivity) -> Noise | None:
    if allowance.measure == "pure":
        return None
    cost = Cost(epsilon=math.inf, rho=allowance.amount)
    return Noise(mechanism="gaussian", parameter=sensitivity.l2_squared / (2 * allowance.amount), cost=cost)


def _granted_choice(allowance: Allowance, wanted: Wanted) -> Granted | None:
    pure, squared = wanted.prices
    if allowance.measure == "pure":
        epsilon = allowance.amount / pure
    elif wanted.ranged:
        epsilon = rounded_down(math.sqrt(8 * allowance.amount / squared) * (1 - 1e-12))
    else:
        found = epsilon_of_rho(allowance.amount)
        if found is None:
            return None
        epsilon = found / pure
    if epsilon < MIN_EPSILON:
        return None
    rho = squared * epsilon**2 / 8 if wanted.ranged else Fraction(pure_to_zcdp(epsilon * pure))
    return Granted(noise=None, epsilon=epsilon, cost=Cost(epsilon=epsilon * pure, rho=rho), size=float(1 / epsilon))


def _within(terms: Terms, spend: Spend, wanted: Sequence[Wanted]) -> tuple[list[Granted], Cost]:
    """Return the cheapest noise on one vector that stays within the wanted error, which is in steps of its grid."""
    (vector,) = wanted
    if vector.sensitivity is None or spend.within is None:
        raise ValueError("a wanted error needs a vector with noise")
    steps = math.floor(spend.within)
    options: list[Noise] = []
    if spend.mechanism in (None, "laplace"):
        epsilon = _least_laplace(vector.sensitivity, steps, spend.confidence)
        if epsilon is not None:
            options.append(
                Noise(mechanism="laplace", parameter=vector.sensitivity.l1 / epsilon, cost=_pure_price(epsilon))
            )
    if spend.mechanism in (None, "gaussian") and terms.measure != "pure":
        rho = _least_gaussian(vector.sensitivity, steps, spend.confidence)
        if rho is not None:
            cost = gaussian_cost(terms, rho=rho)
            parameter = vector.sensitivity.l2_squared / (2 * rho)
            options.append(Noise(mechanism="gaussian", parameter=parameter, cost=cost))
    if not options:
        raise no_option(terms, spend)
    best = min(options, key=lambda noise: share_of(terms, noise.cost))
    _check_scale(best)
    return [Granted(noise=best, epsilon=Fraction(0), cost=best.cost, size=best.deviation)], best.cost


def _least_laplace(sensitivity: Sensitivity, steps: int, confidence: float) -> Fraction | None:
    """Return the smallest epsilon whose noise stays within `steps`, by bisection on the exact tail."""
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
    """Return the smallest spend that is enough. The search starts near a guess."""
    least, most = 1e-9, 1e5
    if not enough(most):
        return None
    if least < near / 1.01 and near * 1.01 < most and enough(near * 1.01) and not enough(near / 1.01):
        least, most = near / 1.01, near * 1.01
    return Fraction(repr(boundary(enough, inside=most, outside=least, tolerance=1e-9, geometric=True)))


def no_option(terms: Terms, spend: Spend) -> InvalidParameterError:
    """Return the error that says why no noise fits a spend."""
    if terms.measure == "pure" and (spend.rho is not None or spend.mechanism == "gaussian"):
        return InvalidParameterError(
            "A pure session (epsilon without delta) can add Laplace noise only. Say epsilon=, share= or within=, or "
            "open the session with a delta to use rho= and Gaussian noise."
        )
    if spend.mechanism == "gaussian" and spend.epsilon is not None:
        return InvalidParameterError("Gaussian noise in a zCDP session is paid for with rho= or share=, not epsilon=.")
    return InvalidParameterError("No noise fits, because the spend or the wanted error is too small. Use a larger one.")
