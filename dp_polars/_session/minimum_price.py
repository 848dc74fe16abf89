"""The smallest price of a question: the one place that states it.

A question that does not fail informs too, and one that is nearly free may be asked as often as an analyst likes. So
every charge uses up at least `SMALLEST_SHARE` of each account of the session's filter: of epsilon in a pure session, of
rho in a zCDP session, of both in an approximate one, whose filter accepts as long as one of the two has something
left. No session has more than 1 / SMALLEST_SHARE charges then. A smaller spend is refused, not raised: the noise would
be that of another price than the one that was asked for.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dp_polars._numbers import MIN_EPSILON, boundary
from dp_polars._session.cost import Cost
from dp_polars._session.pricing import pure_cost
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError

SMALLEST_SHARE = Fraction(1, 100_000)

_ROUNDED = 1 - Fraction(
    1, 10**6
)  # noise is bought with what is left after rounding down; still 100,000 charges at most


def smallest(terms: Terms) -> dict[str, Fraction]:
    """Return the least that a question costs in each account of a session."""
    accounts: dict[str, Fraction] = {}
    if terms.epsilon is not None:
        accounts["epsilon"] = terms.epsilon * SMALLEST_SHARE
    if terms.measure != "pure":
        accounts["rho"] = terms.rho_allowed * SMALLEST_SHARE
    return accounts


def is_too_small(terms: Terms, cost: Cost) -> bool:
    """Whether a cost is below the smallest price in an account."""
    return any(getattr(cost, name) < least * _ROUNDED for name, least in smallest(terms).items())


def smallest_spend(terms: Terms) -> float:
    """Return the least spend of one question that is accepted: an epsilon, in a zCDP session a rho.

    Rounded up to three digits, so that what a message says is accepted.
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
    """Refuse a cost below the smallest price; called when a question is planned, and again when it is charged."""
    if not is_too_small(terms, cost):
        return
    needed = " and ".join(f"{name} {float(least):.3g}" for name, least in smallest(terms).items())
    name = "rho" if terms.measure == "zcdp" else "epsilon"
    raise InvalidParameterError(
        f"Every question costs at least 1/{SMALLEST_SHARE.denominator:,} of the session ({needed}), so that nobody can "
        f"ask any number of them; this one would cost {cost}. Spend share={float(SMALLEST_SHARE):g} or more, or with "
        f"{'Gaussian' if name == 'rho' else 'Laplace'} noise {name}={smallest_spend(terms):.3g}."
    )


def _rounded_up(number: Fraction | float) -> float:
    """Return the next decimal number of three digits that is not smaller."""
    digits = 2 - math.floor(math.log10(number))
    return math.ceil(Fraction(number) * Fraction(10) ** digits) / float(Fraction(10) ** digits)
