"""The price of what spends one epsilon as a whole: a stream, a choice, randomized responses."""

from __future__ import annotations

from fractions import Fraction

from dp_polars._plan.query import Spend
from dp_polars._plan.spend import Wanted, allot
from dp_polars._session.cost import Cost
from dp_polars._session.prices import check_price
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError


def pure_opening(terms: Terms, spend: Spend, what: str) -> tuple[Fraction, Cost]:
    """Return the epsilon that a spend buys for a pure mechanism as a whole, and its price in the session."""
    if spend.within is not None or spend.mechanism is not None:
        given = "within=" if spend.within is not None else "mechanism="
        raise InvalidParameterError(f"{given} is for noisy numbers; say what {what} may cost with epsilon= or share=.")
    granted, cost = allot(terms, spend, [Wanted(weight=Fraction(1), ranged=False)])
    check_price(terms, cost)
    return granted[0].epsilon, cost
