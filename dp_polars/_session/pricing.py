"""How a spend becomes a cost: what each kind of release declares to the filter.

Prices come from the mechanism's parameters and the session's terms, never from data. The conversions round a price up
and an allowance down; noise that is derived from a price uses the very number that is charged.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Protocol

from dp_polars._numbers import Number, boundary, delta_of, epsilon_of, positive
from dp_polars._session.cost import Cost
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.theory import approximate_to_zcdp, pure_to_zcdp, zcdp_of_exponential_mechanism

_NO_DELTA = Fraction(0)


class HasTerms(Protocol):
    """A session, as far as prices are concerned."""

    @property
    def terms(self) -> Terms:
        """What was agreed."""
        ...


def pure_cost(epsilon: Number, *, delta: Number = _NO_DELTA) -> Cost:
    """Return the cost of a pure release, or with `delta` of any (epsilon, delta) release or batch.

    A pure release is epsilon * tanh(epsilon / 2)-zCDP, the value that randomized response attains. An
    (epsilon, delta) one splits off bad events of probability delta and is pure otherwise (Kairouz, Oh, Viswanath 2015).

    Parameters
    ----------
    epsilon
        The epsilon of the release.
    delta
        The delta of the release, charged to the part of the session's delta that is for keys (`key_delta`).

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.pure_cost(0.1)
    <dp.Cost epsilon 0.1, rho 0.00499584>
    """
    loss = epsilon_of(epsilon)
    return Cost(epsilon=loss, rho=Fraction(pure_to_zcdp(loss)), delta=delta_of(delta, zero=True))


def exponential_cost(epsilon: Number) -> Cost:
    """Return the cost of a choice by the exponential mechanism (also as Gumbel noise), monotone or not.

    Its bounded range makes it epsilon**2 / 8-zCDP; permute-and-flip and Laplace noise pay `pure_cost`.

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
    """Return the cost of Gaussian noise, given by its own epsilon in this session or by its rho.

    In an approximate session a Gaussian of epsilon e is allowed the part e / session.epsilon of `gaussian_delta`, so
    that releases whose epsilons sum to the session's always fit. The noise is that of the cost's `rho`.

    Parameters
    ----------
    session
        The session that will pay, or its terms.
    epsilon, rho
        The spend, in one of the two.
    delta
        For keys discovered with the same noise.

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
            "A pure session (epsilon without delta) has no Gaussian noise: open it with a delta, or use Laplace noise."
        )
    if (epsilon is None) == (rho is None):
        raise InvalidParameterError("Give the spend of a Gaussian release as epsilon= or as rho=.")
    native = delta_of(delta, zero=True)
    if rho is not None:
        concentrated = positive(rho, "rho")
        own = _epsilon_of_rho(terms, concentrated)
        part = Fraction(0) if own == math.inf else _part(terms, Fraction(own))
        return Cost(epsilon=own, rho=concentrated, delta=native, gaussian_delta=part)
    if terms.measure == "zcdp" or epsilon is None:
        raise InvalidParameterError("In a zCDP session a Gaussian release is given by rho=, not by epsilon=.")
    own = epsilon_of(epsilon)
    return Cost(epsilon=own, rho=_rho_of_epsilon(terms, own), delta=native, gaussian_delta=_part(terms, own))


def _part(terms: Terms, epsilon: Fraction) -> Fraction:
    if terms.epsilon is None:
        return Fraction(0)
    return min(terms.gaussian_delta * epsilon / terms.epsilon, Fraction(1, 2))


def _rho_of_epsilon(terms: Terms, epsilon: Fraction) -> Fraction:
    return Fraction(approximate_to_zcdp(epsilon, _part(terms, epsilon)))


def _epsilon_of_rho(terms: Terms, rho: Fraction) -> Fraction | float:
    """Return the least epsilon at which Gaussian noise of this rho counts in the basic arm, infinity if none fits."""
    if terms.epsilon is None or _rho_of_epsilon(terms, terms.epsilon) < rho:
        return math.inf
    high = float(terms.epsilon)
    if Fraction(high) > terms.epsilon:
        high = math.nextafter(high, 0.0)
    if _rho_of_epsilon(terms, Fraction(high)) < rho:
        return terms.epsilon

    def covers(epsilon: float) -> bool:
        return _rho_of_epsilon(terms, Fraction(epsilon)) >= rho

    return Fraction(boundary(covers, inside=high, outside=1e-9, tolerance=1e-12, geometric=True))
