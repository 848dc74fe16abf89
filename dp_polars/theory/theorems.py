"""The composition theorems as functions: basic, advanced, optimal, and group privacy.

They hold for a number of releases whose privacy parameters are all fixed in advance (the mechanisms
themselves may be chosen adaptively). Never charges a session: a session needs a filter, and of
these only `basic` is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Literal

from dp_polars._numbers import Number, count_of, delta_of, epsilon_of, exact, positive
from dp_polars.errors import InvalidParameterError
from dp_polars.theory._binomial import randomized_response_epsilon
from dp_polars.theory._floats import float_not_below, upward
from dp_polars.theory.guarantee import Guarantee

AdvancedForm = Literal["dwork-roth", "sharp", "loose"]

# The loose form's second term 2kε² stems from e^ε − 1 ≤ 2ε, true on 0 to 1 by convexity as e − 1 <
# 2; the theorem is stated for ε ≤ 1.
_LOOSE_FORM_LIMIT = 1
# The exact curve needs some 40·√k binomial weights in memory.
_OPTIMAL_COUNT_LIMIT = 10**10


def basic(epsilons: Iterable[Number], deltas: Iterable[Number] = ()) -> Guarantee:
    """Add up the epsilons and the deltas.

    Sums are exact: a float counts as the decimal it prints as. This is also a filter, valid when
    each parameter depends on earlier answers (Rogers, Roth, Ullman and Vadhan 2016).

    Parameters
    ----------
    epsilons
        The epsilon of each release.
    deltas
        The deltas; leave out those that are 0.

    Returns
    -------
    Guarantee
        (Σ epsilon, Σ delta) (Dwork and Roth 2014, Theorem 3.16).

    Examples
    --------
    >>> basic([0.1] * 10, [1e-7, 2e-7])
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

    The total epsilon is ε·√(2k·ln(1/slack)) plus k times a bound on the mean privacy loss of one
    release, which is where the forms differ:

    - ``"dwork-roth"``: kε(e^ε − 1) (Dwork and Roth 2014, Theorem 3.20; Dwork, Rothblum and Vadhan
      2010);
    - ``"sharp"``: kε(e^ε − 1)/(e^ε + 1), the mean loss of randomized response, which is the worst
      of all (Kairouz, Oh and Viswanath 2015, Theorem 3.4); holds for every ε;
    - ``"loose"``: 2kε², the form easiest to invert by hand; follows from the first where e^ε − 1 ≤
      2ε and is stated, and accepted here, for ε ≤ 1. The sharp form is never larger.

    For few releases the result can exceed `basic`; both hold, so take the smaller.

    Parameters
    ----------
    epsilon, delta
        The guarantee of each release.
    count
        How many releases, k.
    slack
        The additional delta that buys the square root.
    form
        Which second term, see above.

    Returns
    -------
    Guarantee
        The total epsilon, and k·delta + slack.

    Examples
    --------
    >>> round(advanced(0.01, 100, slack=1e-6).epsilon, 3)
    0.536
    """
    each, k, spare, each_delta = _homogeneous(epsilon, count, slack, delta)
    rate = float(each)
    if form == "dwork-roth":
        # Beyond 700 e^ε overflows a float; nothing is promised there.
        mean = rate * math.expm1(rate) if rate < 700.0 else math.inf
    elif form == "sharp":
        mean = rate * math.tanh(0.5 * rate)
    elif form == "loose":
        if each > _LOOSE_FORM_LIMIT:
            raise InvalidParameterError(
                f'form="loose" is proved for epsilon up to {_LOOSE_FORM_LIMIT}, got {epsilon}; use '
                'form="sharp", which holds for every epsilon and is never larger.'
            )
        mean = 2.0 * rate * rate
    else:
        raise InvalidParameterError(f'form must be "dwork-roth", "sharp" or "loose", got {form!r}.')
    total = rate * math.sqrt(2.0 * k * -math.log(float(spare))) + k * mean
    return Guarantee(upward(total), float_not_below(min(k * each_delta + spare, Fraction(1))))


def optimal(epsilon: Number, count: int, *, slack: Number, delta: Number = 0.0) -> Guarantee:
    """Compose `count` releases of (epsilon, delta) as tightly as any theorem can.

    Some mechanism attains the result: randomized response, which dominates every (epsilon, delta)
    mechanism. The exact hockey-stick curve of its k-fold composition is solved for the total
    epsilon, also between the breakpoints (k−2i)ε at which the theorem is stated.

    Parameters
    ----------
    epsilon, delta
        The guarantee of each release, the same for all.
    count
        How many releases, k; up to 10^10.
    slack
        The additional delta.

    Returns
    -------
    Guarantee
        The least total epsilon at delta 1 − (1 − delta)^k·(1 − slack) (Kairouz, Oh and Viswanath
        2015, Theorem 3.3).

    Examples
    --------
    >>> round(optimal(0.01, 100, slack=1e-6).epsilon, 3)
    0.392
    """
    each, k, spare, each_delta = _homogeneous(epsilon, count, slack, delta)
    if k > _OPTIMAL_COUNT_LIMIT:
        raise InvalidParameterError(
            f"count={count} is too large for the exact curve (at most 10^10); compose in zCDP "
            "instead: zcdp_to_epsilon(count * pure_to_zcdp(epsilon), delta)."
        )
    total = upward(randomized_response_epsilon(float(each), k, float(spare)))
    if each_delta == 0:
        return Guarantee(total, float_not_below(spare))
    failure = -math.expm1(k * math.log1p(-float(each_delta)) + math.log1p(-float(spare)))
    return Guarantee(total, min(1.0, upward(failure)))


def group_privacy(epsilon: Number, delta: Number, size: int) -> Guarantee:
    """Return what an (epsilon, delta) guarantee per unit promises to a group of `size` units.

    Parameters
    ----------
    epsilon, delta
        The guarantee for one unit; delta may be 0.
    size
        The number of units in the group, t.

    Returns
    -------
    Guarantee
        (tε, δ·(e^{tε} − 1)/(e^ε − 1)), by chaining t neighbours: δ is paid once per step, each
        further step multiplied by e^ε (Vadhan 2017, "The Complexity of Differential Privacy", Lemma
        2.2).

    Examples
    --------
    >>> group_privacy(0.5, 0.0, 3)
    Guarantee(epsilon=1.5, delta=0.0)
    """
    each = epsilon_of(epsilon)
    failure = delta_of(delta, zero=True)
    members = count_of(size, "size")
    total = float_not_below(each * members)
    if failure == 0 or members == 1:
        return Guarantee(total, float_not_below(failure))
    if total > 700.0:  # e^{tε} overflows, and even delta = 1e-100 has long grown past 1
        return Guarantee(total, 1.0)
    grown = float(failure) * math.expm1(float(each * members)) / math.expm1(float(each))
    return Guarantee(total, min(1.0, upward(grown)))


def group_zcdp(rho: Number, size: int) -> float:
    """Return the zCDP parameter for a group of `size` units, size²·rho.

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
    >>> group_zcdp(0.01, 3)
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
