"""The account in which a session counts shares of its budget: the sum of epsilons, or the sum of rhos.

An approximate session accepts releases while one of two sums stays within its limit (see `filters`). Shares that sum to
1 fit if all of them are shares of the same sum. Which one gives less noise depends on how many releases there will be:
a sum of epsilons is better for a few, and a sum of rhos (concentrated accounting) for many. So the account is chosen
once, when the session is opened, from the number of queries that it is planned for. The ledger records the choice. A
session that is not planned for a number of queries counts in rho.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import get_args

from dp_polars._session.prices import epsilon_of_rho, gaussian_cost
from dp_polars._session.terms import Account, Cap, Terms
from dp_polars.errors import InvalidParameterError

_LIKELY_GROUPS = 3  # groups per unit, if they are to be estimated later


def chosen_account(terms: Terms, queries: int | None, max_groups: Cap) -> Account | None:
    """Return the account in which each of `queries` equal shares buys less noise for a typical count of units.

    A typical count is by groups, and a unit counts in `max_groups` of them; without a cap, it is a single number.
    Return None if there is nothing to choose: in pure and zCDP sessions, and if the number of queries is not known.

    Examples
    --------
    >>> import dp_polars as dp
    >>> terms = dp.Session(epsilon=1.0, delta=1e-6, unit="user").terms
    >>> chosen_account(terms, 3, None), chosen_account(terms, 3, 10), chosen_account(terms, 30, 1)
    ('epsilon', 'rho', 'rho')
    """
    if terms.measure != "approximate" or queries is None:
        return None
    groups = 1 if max_groups is None else _LIKELY_GROUPS if max_groups == "auto" else max_groups
    basic, concentrated = (typical_noise(terms, account, queries, groups) for account in get_args(Account))
    return "epsilon" if basic < concentrated else "rho"


def typical_noise(terms: Terms, account: Account, queries: int, groups: int) -> float:
    """Return the standard deviation of a count of units by group that costs the share 1/queries of an account.

    The Laplace noise has the L1 sensitivity `groups`, and the Gaussian noise the L2 sensitivity sqrt(groups). A unit
    that is replaced changes twice as many groups. It is infinite if the share is too small for any noise.

    Examples
    --------
    >>> import dp_polars as dp
    >>> terms = dp.Session(epsilon=1.0, delta=1e-6, unit="user").terms
    >>> round(typical_noise(terms, "epsilon", 1, 1), 2), round(typical_noise(terms, "rho", 1, 1), 2)
    (1.41, 4.67)
    """
    touched = groups * (2 if terms.adjacency == "replace" else 1)
    if account == "epsilon":
        epsilon: Fraction | None = (terms.epsilon or Fraction(0)) / queries
        try:
            rho = gaussian_cost(terms, epsilon=epsilon).rho
        except InvalidParameterError:
            return math.inf
    else:
        rho = terms.rho_allowed / queries
        epsilon = epsilon_of_rho(rho)
    laplace = math.inf if epsilon is None else math.sqrt(2) * touched / float(epsilon)
    return min(laplace, math.sqrt(touched / (2 * float(rho))))


def share_in_epsilon(terms: Terms, share: Fraction | None) -> Fraction | None:
    """Return a share of the budget as an epsilon, or None if shares are counted in rho or no share is given."""
    if share is None or terms.epsilon is None or (terms.measure != "pure" and terms.share_account != "epsilon"):
        return None
    return share * terms.epsilon


def account_text(account: Account | None, queries: int | None) -> str:
    """Return how the budget is shared among the planned queries, in words; empty if their number is not known."""
    if queries is None:
        return ""
    each = "all of the budget" if queries == 1 else f"1/{queries} of the budget each"
    how = {"epsilon": ", by the sum of epsilons", "rho": ", by the sum of rhos", None: ""}[account]
    return f"{queries:,} {'query' if queries == 1 else 'queries'}, {each}{how}"
