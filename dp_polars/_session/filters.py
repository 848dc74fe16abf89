"""The filter that accepts or refuses a release, and the largest spend that it would still accept.

The filter is valid for queries and costs that are chosen adaptively. A pure session accepts while the epsilons sum to
at most epsilon. A zCDP session accepts while the rhos sum to at most rho (Feldman and Zrnic 2021) and the deltas to at
most delta. An approximate session (epsilon, delta), with delta = conversion + native + gaussian, accepts while

    (A: sum of epsilons <= epsilon and sum of gaussian_deltas <= gaussian
     or B: sum of rhos <= rho_allowed(epsilon, conversion))  and  sum of deltas <= native

This is (epsilon, delta)-differentially private. Let P and Q be the distributions of the whole transcript on two
neighbouring data sets, with costs that depend on the transcript alone. Every accepted release enters every sum.

1. Release i declares P_i = (1-d_i) P'_i + d_i P''_i, and likewise for Q_i with the same d_i. Let P' and Q' be the
   products of the first parts, and w = prod(1-d_i) >= 1 - native. Then P >= w P' with at most `native` of its mass
   missing, and Q >= w Q'.
2. Split the complete transcripts into S_A, whose final sums satisfy A, and S_B, the others. Those in S_B satisfy B,
   because their last release was accepted. Sums only grow, so every prefix of a transcript in S_A satisfies A, and
   every prefix of one in S_B satisfies B.
3. Let P'_A describe the same analyst, stopped before the first release that breaks A. On S_A, P' = P'_A and
   Q' = Q'_A. The same is true on S_B with B.
4. The positive part of P'_A - e^eps Q'_A sums to at most `gaussian` (basic composition as a filter: Rogers, Roth,
   Ullman and Vadhan 2016). That of P'_B - e^eps Q'_B sums to at most `conversion` (the zCDP filter, and the conversion
   of rho).
5. For any event E: P(E) <= native + w P'(E) <= native + gaussian + conversion + e^eps w Q'(E) <= e^eps Q(E) + delta.

`tests/session/test_filter_by_enumeration.py` checks this by enumerating all transcripts of small exact mechanisms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from dp_polars._numbers import MIN_EPSILON, boundary, first_doubling
from dp_polars._session.cost import Amount, Cost
from dp_polars._session.prices import gaussian_cost, is_too_small, pure_cost
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError

Mechanism = Literal["laplace", "gaussian"]
Account = Literal["epsilon", "rho"]

_LEAST_RHO = 1e-18


def accepts(terms: Terms, spent: Cost) -> bool:
    """Return whether a session may have spent this much in total."""
    if terms.measure == "pure":
        return _satisfies_a(terms, spent) and spent.delta == 0
    if terms.measure == "zcdp":
        return spent.rho <= terms.rho_allowed and spent.delta <= terms.native_delta
    return (_satisfies_a(terms, spent) or spent.rho <= terms.rho_allowed) and spent.delta <= terms.native_delta


def _satisfies_a(terms: Terms, spent: Cost) -> bool:
    return terms.epsilon is not None and spent.epsilon <= terms.epsilon and spent.gaussian_delta <= terms.gaussian_delta


def share_of(terms: Terms, cost: Cost) -> float:
    """Return the share of the session's budget that a cost uses, in the measure where that share is smallest."""
    shares: list[Amount] = []
    if terms.epsilon is not None:
        shares.append(cost.epsilon / terms.epsilon)
    if terms.measure != "pure":
        shares.append(cost.rho / terms.rho_allowed)
    return float(min(shares))


def affordable_count(terms: Terms, spent: Cost, cost: Cost, most: int) -> int:
    """Return how many releases of a cost the filter would accept in a row, up to `most`."""

    def fits(times: int) -> bool:
        return times <= most and accepts(terms, spent + cost * times)

    outside = first_doubling(fits, 1)
    return boundary(fits, inside=outside // 2, outside=outside)


def largest_affordable(terms: Terms, spent: Cost, mechanism: Mechanism, measure: Account) -> float:
    """Return the largest epsilon or rho of one release by a mechanism that the filter would accept; 0 if none."""
    if mechanism not in get_args(Mechanism) or measure not in get_args(Account):
        raise InvalidParameterError("mechanism= must be 'laplace' or 'gaussian', and measure= 'epsilon' or 'rho'.")
    if mechanism == "laplace" and measure == "rho":
        raise InvalidParameterError("Laplace noise is given by its epsilon: ask with measure='epsilon'.")

    def cost_of(amount: float) -> Cost:
        return pure_cost(amount) if mechanism == "laplace" else gaussian_cost(terms, **{measure: amount})

    def fits(amount: float) -> bool:
        try:
            return accepts(terms, spent + cost_of(amount))
        except InvalidParameterError:  # the amount is larger than any spend may be
            return False

    if measure == "rho":
        largest = _largest(fits, float(terms.rho_allowed - spent.rho), _LEAST_RHO)
    else:
        left = 0.0 if terms.epsilon is None else float(terms.epsilon - spent.epsilon)
        largest = _largest(fits, left, float(MIN_EPSILON))
    return 0.0 if not largest or is_too_small(terms, cost_of(largest)) else largest


def _largest(fits: Callable[[float], bool], left: float, least: float) -> float:
    """Return the largest amount that fits, 0 if not even `least` does.

    `left` is what remains in the measure itself. It is returned as it is if it fits and hardly more does, so that a
    message shows the plain number.
    """
    if not fits(least):
        return 0.0
    low = left if left >= least and fits(left) else least
    if low == left and not fits(low * 1.000001):
        return low
    outside = first_doubling(fits, 2 * low)
    return boundary(fits, inside=outside / 2, outside=outside, tolerance=1e-9)
