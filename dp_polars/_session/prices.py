"""Prices: the cost that each kind of release declares to the filter, and the least that any release must cost.

A price follows from the mechanism's parameters and the session's terms, never from data. Conversions round prices up
and allowances down. Noise that is derived from a price uses exactly the number that is charged.

There is a smallest price because a query that succeeds also tells something, and a query that is nearly free could be
asked any number of times. Every charge therefore uses at least `SMALLEST_SHARE` of each account of the session's
filter: of epsilon in a pure session, of rho in a zCDP session, and of both in an approximate session, whose filter
accepts as long as one of the two has something left. So no session has more than 1 / SMALLEST_SHARE charges. A smaller
spend is refused and not raised, because the noise would otherwise belong to a price that nobody asked for.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from dp_polars._numbers import MAX_EPSILON, MIN_EPSILON, Number, boundary, delta_of, epsilon_of, positive
from dp_polars._session.cost import Cost
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.theory import approximate_to_zcdp, pure_to_zcdp, zcdp_of_exponential_mechanism
from dp_polars.theory.conversions import rho_of_pure_loss

SMALLEST_SHARE = Fraction(1, 100_000)

# Noise is bought with what is left after rounding down, so a cost may fall short of its price by this much. A session
# still has at most 100,000 charges.
_ROUNDED = 1 - Fraction(1, 10**6)

_NO_DELTA = Fraction(0)


class HasTerms(Protocol):
    """Anything with terms, such as a session."""

    @property
    def terms(self) -> Terms:
        """The terms that were agreed."""
        ...


def pure_cost(epsilon: Number, *, delta: Number = _NO_DELTA) -> Cost:
    """Return the cost of a pure release or, with `delta`, of any (epsilon, delta) release or batch.

    A pure release is epsilon * tanh(epsilon / 2)-zCDP, which randomized response attains. An (epsilon, delta) release
    is pure except for bad events of probability delta (Kairouz, Oh and Viswanath 2015).

    Parameters
    ----------
    epsilon
        The epsilon of the release.
    delta
        The delta of the release. It is charged to the part of the session's delta that is for keys (`key_delta`).

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.pure_cost(0.1)
    <dp.Cost epsilon 0.1, rho 0.00499584>
    """
    loss = epsilon_of(epsilon)
    return Cost(epsilon=loss, rho=_rho_of_pure(loss), delta=delta_of(delta, zero=True))


@lru_cache(maxsize=256)
def _rho_of_pure(epsilon: Fraction) -> Fraction:
    return Fraction(pure_to_zcdp(epsilon))


def exponential_cost(epsilon: Number) -> Cost:
    """Return the cost of one choice by the exponential mechanism, with monotone scores or not.

    Its bounded range makes the mechanism epsilon**2 / 8-zCDP. Choices by Gumbel noise cost the same. Permute-and-flip
    and Laplace noise cost more: use `pure_cost` for them.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.exponential_cost(1.0)
    <dp.Cost epsilon 1, rho 0.125>
    """
    loss = epsilon_of(epsilon)
    return Cost(epsilon=loss, rho=Fraction(zcdp_of_exponential_mechanism(loss)))


def gaussian_cost(
    session: Terms | HasTerms,
    *,
    epsilon: Number | None = None,
    rho: Number | None = None,
    delta: Number = _NO_DELTA,
) -> Cost:
    """Return the cost of Gaussian noise, given by its epsilon in this session or by its rho.

    In an approximate session, a Gaussian release of epsilon e may use the share e / session.epsilon of
    `gaussian_delta`. Releases whose epsilons sum to the session's epsilon therefore always fit. Draw the noise with the
    cost's `rho`.

    Parameters
    ----------
    session
        The session that will pay, or its terms.
    epsilon, rho
        The spend. Give one of the two.
    delta
        The delta for keys that are discovered with the same noise.

    Examples
    --------
    >>> import dp_polars as dp
    >>> session = dp.Session(epsilon=1.0, delta=1e-6, unit="user_id")
    >>> cost = dp.gaussian_cost(session, epsilon=0.5)
    >>> noisy = dp.mechanisms.gaussian([10, 20, 30], sensitivity=1, rho=cost.rho)
    >>> session.can_afford(cost)
    True
    """
    terms = session if isinstance(session, Terms) else session.terms
    if terms.measure == "pure":
        raise InvalidParameterError(
            "A pure session (epsilon without delta) cannot pay for Gaussian noise, which needs a delta. Open the "
            "session with delta=, or use Laplace noise."
        )
    if (epsilon is None) == (rho is None):
        raise InvalidParameterError("Give the spend of a Gaussian release either as epsilon= or as rho=.")
    native = delta_of(delta, zero=True)
    if rho is not None:
        concentrated = positive(rho, "rho")
        charged_epsilon = _epsilon_of_rho(terms, concentrated)
        part = Fraction(0) if charged_epsilon == math.inf else _gaussian_delta_of(terms, Fraction(charged_epsilon))
        return Cost(epsilon=charged_epsilon, rho=concentrated, delta=native, gaussian_delta=part)
    if terms.measure == "zcdp" or epsilon is None:
        raise InvalidParameterError("A zCDP session accounts in rho: give the spend of a Gaussian release as rho=.")
    charged_epsilon = epsilon_of(epsilon)
    part = _gaussian_delta_of(terms, charged_epsilon)
    return Cost(epsilon=charged_epsilon, rho=_rho_of_epsilon(terms, charged_epsilon), delta=native, gaussian_delta=part)


def _gaussian_delta_of(terms: Terms, epsilon: Fraction) -> Fraction:
    """Return the part of `gaussian_delta` that a Gaussian release of this epsilon uses."""
    if terms.epsilon is None:
        return Fraction(0)
    return min(terms.gaussian_delta * epsilon / terms.epsilon, Fraction(1, 2))


def _rho_of_epsilon(terms: Terms, epsilon: Fraction) -> Fraction:
    return Fraction(approximate_to_zcdp(epsilon, _gaussian_delta_of(terms, epsilon)))


def _epsilon_of_rho(terms: Terms, rho: Fraction) -> Fraction | float:
    """Return the least epsilon at which Gaussian noise of this rho counts; infinity if the session's is too small."""
    if terms.epsilon is None or _rho_of_epsilon(terms, terms.epsilon) < rho:
        return math.inf
    most = float(terms.epsilon)
    if Fraction(most) > terms.epsilon:
        most = math.nextafter(most, 0.0)
    if _rho_of_epsilon(terms, Fraction(most)) < rho:
        return terms.epsilon

    def is_enough(epsilon: float) -> bool:
        return _rho_of_epsilon(terms, Fraction(epsilon)) >= rho

    return Fraction(boundary(is_enough, inside=most, outside=1e-9, tolerance=1e-12, geometric=True))


@lru_cache(maxsize=256)
def epsilon_of_rho(rho: Fraction) -> Fraction | None:
    """Return the largest epsilon of a pure release that costs at most this rho, or None if there is none."""
    # A float is at most rho if it is at most the largest float that does not exceed rho. Comparing floats is cheap.
    most = float(rho)
    if Fraction(most) > rho:
        most = math.nextafter(most, 0.0)
    beyond = float(rho) + math.sqrt(2 * float(rho)) + 1
    price = rho_of_pure_loss if beyond <= MAX_EPSILON else pure_to_zcdp

    def fits(epsilon: float) -> bool:
        return price(epsilon) <= most

    least = float(MIN_EPSILON)
    if not fits(least):
        return None
    return Fraction(repr(boundary(fits, inside=least, outside=beyond, tolerance=1e-12)))


# ---------------------------------------------------------------------- the smallest price


def smallest(terms: Terms) -> dict[str, Fraction]:
    """Return the least that a release must cost in each account of a session."""
    accounts: dict[str, Fraction] = {}
    if terms.epsilon is not None:
        accounts["epsilon"] = terms.epsilon * SMALLEST_SHARE
    if terms.measure != "pure":
        accounts["rho"] = terms.rho_allowed * SMALLEST_SHARE
    return accounts


def is_too_small(terms: Terms, cost: Cost) -> bool:
    """Return whether a cost is below the smallest price in any account."""
    return any(getattr(cost, name) < least * _ROUNDED for name, least in smallest(terms).items())


def smallest_spend(terms: Terms) -> float:
    """Return the least spend that a release may have: an epsilon, or a rho in a zCDP session.

    It is rounded up to three digits, so the number in a message is itself accepted.
    """
    if terms.measure == "zcdp" or terms.epsilon is None:
        return _rounded_up(terms.rho_allowed * SMALLEST_SHARE)
    if terms.measure == "pure":
        return _rounded_up(terms.epsilon * SMALLEST_SHARE)

    def is_enough(epsilon: float) -> bool:
        return not is_too_small(terms, pure_cost(epsilon))

    least, most = float(MIN_EPSILON), float(terms.epsilon)
    return _rounded_up(boundary(is_enough, inside=most, outside=least, tolerance=1e-4, geometric=True))


def check_price(terms: Terms, cost: Cost) -> None:
    """Refuse a cost below the smallest price. A release is checked when it is planned and again when it is charged."""
    if not is_too_small(terms, cost):
        return
    needed = " and ".join(f"{name} {float(least):.3g}" for name, least in smallest(terms).items())
    name = "rho" if terms.measure == "zcdp" else "epsilon"
    raise InvalidParameterError(
        f"Every release costs at least 1/{SMALLEST_SHARE.denominator:,} of the session ({needed}), because releases "
        f"that are nearly free could be repeated without end; this one would cost {cost}. Spend "
        f"share={float(SMALLEST_SHARE):g} or more, or {name}={smallest_spend(terms):.3g} with "
        f"{'Gaussian' if name == 'rho' else 'Laplace'} noise.",
        code="spend-too-small",
    )


def _rounded_up(number: Fraction | float) -> float:
    """Return the least decimal number of three digits that is not below `number`."""
    digits = 2 - math.floor(math.log10(number))
    return math.ceil(Fraction(number) * Fraction(10) ** digits) / float(Fraction(10) ** digits)
