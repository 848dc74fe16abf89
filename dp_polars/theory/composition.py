"""Composition theorems as functions: basic, advanced and optimal composition, and group privacy.

The theorems hold for releases whose privacy parameters are all fixed in advance; the mechanisms themselves may be
chosen adaptively. These functions charge no session. A session needs a privacy filter, and only
`basic` is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dp_polars._numbers import Number, boundary, count_of, delta_of, epsilon_of, exact, positive
from dp_polars.errors import InvalidParameterError
from dp_polars.theory._rounding import UNIT_ROUNDOFF, float_not_below, upward

AdvancedForm = Literal["dwork-roth", "sharp", "loose"]


# The second term of the loose form, 2kε², follows from e^ε − 1 ≤ 2ε. By convexity that holds for ε from 0 to 1, because
# e − 1 < 2, and the theorem is stated for ε ≤ 1.
_LOOSE_FORM_LIMIT = 1

# The exact curve keeps about 40·√k binomial weights in memory.
_OPTIMAL_COUNT_LIMIT = 10**10

# By Hoeffding's inequality P(|X − kp| ≥ w) ≤ 2·exp(−2w²/k), which is below 1e-300 for w ≥ √(k·ln(2e300)/2).
_LOG_NEGLIGIBLE = math.log(2e300)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """An (epsilon, delta) guarantee of differential privacy (Dwork and Roth 2014, Definition 2.4).

    It states what a theorem proves. It is neither a budget nor a price, and creating one charges nothing.

    Parameters
    ----------
    epsilon
        The privacy loss, at least 0. It is infinite if nothing is promised.
    delta
        The probability, from 0 to 1, with which the promise about epsilon may fail.

    Examples
    --------
    >>> import dp_polars as dp
    >>> epsilon, delta = dp.theory.Guarantee(1.0, 1e-6)
    >>> epsilon
    1.0
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not all(isinstance(value, int | float) for value in (self.epsilon, self.delta)):
            raise InvalidParameterError("epsilon and delta must be numbers.")
        if not self.epsilon >= 0.0:
            raise InvalidParameterError(f"epsilon must be at least 0, got {self.epsilon}.")
        if not 0.0 <= self.delta <= 1.0:
            raise InvalidParameterError(f"delta must lie between 0 and 1, got {self.delta}.")

    def __iter__(self) -> Iterator[float]:
        yield self.epsilon
        yield self.delta


def basic(epsilons: Iterable[Number], deltas: Iterable[Number] = ()) -> Guarantee:
    """Compose releases by adding up their epsilons and deltas.

    The sums are exact: a float counts as the decimal number it prints as. Basic composition is also a privacy filter:
    it holds even if each parameter depends on earlier answers (Rogers, Roth, Ullman and Vadhan 2016).

    Parameters
    ----------
    epsilons
        The epsilon of each release.
    deltas
        The deltas of the releases. Those that are 0 may be left out.

    Returns
    -------
    Guarantee
        (Σ epsilon, Σ delta) (Dwork and Roth 2014, Theorem 3.16).

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.theory.basic([0.1] * 10, [1e-7, 2e-7])
    Guarantee(epsilon=1.0, delta=3e-07)
    """
    total_epsilon = sum((_term(value, "epsilon") for value in _all_of(epsilons, "epsilons")), Fraction(0))
    total_delta = sum((_term(value, "delta") for value in _all_of(deltas, "deltas")), Fraction(0))
    return Guarantee(float_not_below(total_epsilon), float_not_below(min(total_delta, Fraction(1))))


def advanced(
    epsilon: Number,
    count: int,
    *,
    slack: Number,
    delta: Number = 0.0,
    form: AdvancedForm = "dwork-roth",
) -> Guarantee:
    """Compose `count` releases of (epsilon, delta) by the advanced composition theorem.

    With k releases, the total epsilon is ε·√(2k·ln(1/slack)) plus a bound on the sum of their mean privacy losses. The
    forms differ in that bound:

    - ``"dwork-roth"``: kε(e^ε − 1) (Dwork and Roth 2014, Theorem 3.20; Dwork, Rothblum and Vadhan 2010).
    - ``"sharp"``: kε(e^ε − 1)/(e^ε + 1), the mean loss of randomized response, which has the largest mean loss of all
      mechanisms (Kairouz, Oh and Viswanath 2015, Theorem 3.4). It holds for every ε.
    - ``"loose"``: 2kε², which is the easiest to invert by hand. It follows from the first form where e^ε − 1 ≤ 2ε, and
      it is stated, and accepted here, for ε ≤ 1. The sharp form is never larger.

    For a small number of releases the result can exceed that of `basic`. Both hold, so use the smaller one.

    Parameters
    ----------
    epsilon, delta
        The guarantee of each release.
    count
        The number of releases, k.
    slack
        The additional delta that pays for the square root.
    form
        The form of the second term, as listed above.

    Returns
    -------
    Guarantee
        The total epsilon, and k·delta + slack.

    Examples
    --------
    >>> import dp_polars as dp
    >>> round(dp.theory.advanced(0.01, 100, slack=1e-6).epsilon, 3)
    0.536
    """
    each, k, spare, each_delta = _homogeneous(epsilon, count, slack, delta)
    rate = float(each)
    if form == "dwork-roth":
        # Above 700, e^ε overflows a float, and the theorem promises nothing useful anyway.
        mean = rate * math.expm1(rate) if rate < 700.0 else math.inf
    elif form == "sharp":
        mean = rate * math.tanh(0.5 * rate)
    elif form == "loose":
        if each > _LOOSE_FORM_LIMIT:
            raise InvalidParameterError(
                f'form="loose" is proved for epsilon up to {_LOOSE_FORM_LIMIT}, got {epsilon}. Use form="sharp", '
                "which holds for every epsilon and is never larger."
            )
        mean = 2.0 * rate * rate
    else:
        raise InvalidParameterError(f'form must be "dwork-roth", "sharp" or "loose", got {form!r}.')
    total = rate * math.sqrt(2.0 * k * -math.log(float(spare))) + k * mean
    return Guarantee(upward(total), float_not_below(min(k * each_delta + spare, Fraction(1))))


def optimal(epsilon: Number, count: int, *, slack: Number, delta: Number = 0.0) -> Guarantee:
    """Compose `count` releases of (epsilon, delta) as tightly as any theorem can.

    Randomized response dominates every (epsilon, delta) mechanism and attains the result. This function solves the
    exact hockey-stick curve of its k-fold composition for the total epsilon, even between the breakpoints (k−2i)ε at
    which the theorem is stated.

    Parameters
    ----------
    epsilon, delta
        The guarantee of each release, the same for all.
    count
        The number of releases, k, at most 10^10.
    slack
        The additional delta.

    Returns
    -------
    Guarantee
        The least total epsilon at delta 1 − (1 − delta)^k·(1 − slack) (Kairouz, Oh and Viswanath
        2015, Theorem 3.3).

    Examples
    --------
    >>> import dp_polars as dp
    >>> round(dp.theory.optimal(0.01, 100, slack=1e-6).epsilon, 3)
    0.392
    """
    each, k, spare, each_delta = _homogeneous(epsilon, count, slack, delta)
    if k > _OPTIMAL_COUNT_LIMIT:
        raise InvalidParameterError(
            f"count={count} is too large for the exact curve (at most 10^10). Compose in zCDP instead: "
            "zcdp_to_epsilon(count * pure_to_zcdp(epsilon), delta)."
        )
    total = upward(randomized_response_epsilon(float(each), k, float(spare)))
    if each_delta == 0:
        return Guarantee(total, float_not_below(spare))
    failure = -math.expm1(k * math.log1p(-float(each_delta)) + math.log1p(-float(spare)))
    return Guarantee(total, min(1.0, upward(failure)))


def group_privacy(epsilon: Number, delta: Number, size: int) -> Guarantee:
    """Return the guarantee for a group of `size` units that follows from the guarantee for one unit.

    Parameters
    ----------
    epsilon, delta
        The guarantee for one unit. Delta may be 0.
    size
        The number of units in the group, t.

    Returns
    -------
    Guarantee
        (tε, δ·(e^{tε} − 1)/(e^ε − 1)). The proof chains t neighbours: every step costs δ, and each further step
        multiplies it by e^ε (Vadhan 2017, "The Complexity of Differential Privacy", Lemma 2.2).

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.theory.group_privacy(0.5, 0.0, 3)
    Guarantee(epsilon=1.5, delta=0.0)
    """
    each = epsilon_of(epsilon)
    failure = delta_of(delta, zero=True)
    members = count_of(size, "size")
    total = float_not_below(each * members)
    if failure == 0 or members == 1:
        return Guarantee(total, float_not_below(failure))
    if total > 700.0:  # e^{tε} would overflow, and even a delta of 1e-100 has grown past 1 long before
        return Guarantee(total, 1.0)
    grown = float(failure) * math.expm1(float(each * members)) / math.expm1(float(each))
    return Guarantee(total, min(1.0, upward(grown)))


def group_zcdp(rho: Number, size: int) -> float:
    """Return the zCDP parameter for a group of `size` units, which is size²·rho.

    Bun and Steinke 2016, Proposition 1.9.

    Parameters
    ----------
    rho
        The zCDP parameter for one unit.
    size
        The number of units in the group.

    Returns
    -------
    float
        The parameter for the group.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.theory.group_zcdp(0.01, 3)
    0.09
    """
    return float_not_below(positive(rho, "rho") * count_of(size, "size") ** 2)


def _homogeneous(epsilon: Number, count: int, slack: Number, delta: Number) -> tuple[Fraction, int, Fraction, Fraction]:
    return (
        epsilon_of(epsilon),
        count_of(count, "count"),
        delta_of(slack, "slack"),
        delta_of(delta, zero=True),
    )


def _term(value: Number, name: str) -> Fraction:
    number = exact(value, name)
    if number < 0:
        raise InvalidParameterError(f"Every {name} must be at least 0, got {value}.")
    return number


def _all_of(values: Iterable[Number], name: str) -> list[Number]:
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise InvalidParameterError(f"{name} must be a list with one number per release, got {type(values).__name__}.")
    return list(values)


Array = NDArray[np.float64]


def _binomial_weights(epsilon: float, count: int) -> tuple[int, Array]:
    """Return the first index and the weights of Binomial(k, 1/(1+e^ε)), the number of flipped answers.

    Outcomes further than 19·√k from the mode are left out, as together they weigh less than 1e-300.
    """
    flip = math.exp(-epsilon)
    mode = min(count, math.floor((count + 1) * flip / (1.0 + flip)))
    reach = math.ceil(math.sqrt(0.5 * count * _LOG_NEGLIGIBLE)) + 2
    first, last = max(0, mode - reach), min(count, mode + reach)
    # The ratios of neighbouring weights are multiplied outward from the mode: each step loses a few ulps, and nothing
    # cancels.
    upper = np.arange(mode, last, dtype=np.float64)
    lower = np.arange(mode, first, -1, dtype=np.float64)
    above = np.cumprod((count - upper) / (upper + 1.0) * flip)
    below = np.cumprod(lower / ((count - lower + 1.0) * flip)) if lower.size else lower
    weights = np.concatenate((below[::-1], [1.0], above))
    return first, weights / weights.sum()


def randomized_response_epsilon(epsilon: float, count: int, delta: float) -> float:
    """Return the least total epsilon of `count` randomized responses at `delta`.

    The k-fold composition of randomized response dominates that of any pure mechanism (Kairouz, Oh and Viswanath 2015),
    so its hockey-stick curve is the optimal composition. Let A_j and B_j be the probabilities, under P and Q, of fewer
    than j flipped answers. The curve is A_j − e^x·B_j between the breakpoints x = (k−2j)ε and (k−2j+2)ε. Bisection
    finds the segment that crosses delta, which is then solved for x.
    """
    first, weights = _binomial_weights(epsilon, count)
    error = 12.0 * UNIT_ROUNDOFF * (weights.size + 16)
    flips = first + np.arange(weights.size, dtype=np.float64)

    def scaled_sums(j: int) -> tuple[float, float]:
        """Return A_j and B_j·e^{(k−2j+2)ε}, which lies between the last weight and A_j."""
        inside = slice(0, j - first)
        attenuated = weights[inside] * np.exp(-2.0 * epsilon * (j - 1 - flips[inside]))
        return float(weights[inside].sum()), float(attenuated.sum())

    def reaches_delta(j: int) -> bool:
        """Return whether the curve is at least delta at the lower breakpoint of segment j; it grows with j."""
        mass, scaled = scaled_sums(j)
        return mass - math.exp(-2.0 * epsilon) * scaled >= delta

    # Breakpoints below 0 do not matter, as epsilon is never negative.
    segment = boundary(reaches_delta, inside=min(first + weights.size, count // 2 + 1), outside=first)
    # The curve is the upper envelope of the lines of all segments, so the neighbours settle what rounding left open.
    total = 0.0
    for j in (segment - 1, segment, segment + 1):
        mass, scaled = scaled_sums(j)
        excess = mass * (1.0 + error) - delta
        if excess > 0.0 and scaled > 0.0:
            line = (count - 2 * j + 2) * epsilon + math.log(excess / (scaled * (1.0 - error)))
            total = max(total, line)
    return min(total, count * epsilon)
