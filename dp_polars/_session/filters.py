"""The rule that accepts or refuses a release, valid for adaptively chosen queries and prices.

Pure session: the epsilons sum to at most epsilon. zCDP session: the rhos sum to at most rho (Feldman and Zrnic 2021)
and the deltas to at most delta. Approximate session (epsilon, delta), with delta = conversion + native + gaussian:

    (A: sum of epsilons <= epsilon and sum of gaussian_deltas <= gaussian
     or B: sum of rhos <= rho_allowed(epsilon, conversion))  and  sum of deltas <= native

Why that is (epsilon, delta)-differentially private. Let P and Q be the distributions of the whole transcript on two
neighbours, with prices that depend on the transcript alone; every accepted release enters every sum.

1. Release i declares P_i = (1-d_i) P'_i + d_i P''_i and Q_i likewise, the same d_i. With P' and Q' the products of the
   first parts and w = prod(1-d_i) >= 1 - native: P >= w P' with missing mass at most native, and Q >= w Q'.
2. Split complete transcripts: S_A, those whose final sums satisfy A; S_B, the others. These satisfy B, for the last
   acceptance did. Sums only grow, so every prefix of a transcript in S_A satisfies A, of one in S_B satisfies B.
3. Let P'_A be the same analyst stopped before the first release that breaks A. On S_A, P' = P'_A and Q' = Q'_A;
   likewise on S_B with B.
4. The positive part of P'_A - e^eps Q'_A sums to at most gaussian (basic composition as a filter: Rogers, Roth, Ullman,
   Vadhan 2016); that of P'_B - e^eps Q'_B to at most conversion (the zCDP filter and the conversion of rho).
5. For any event E: P(E) <= native + w P'(E) <= native + gaussian + conversion + e^eps w Q'(E) <= e^eps Q(E) + delta.

`tests/session/test_filter_by_enumeration.py` enumerates all transcripts of small exact mechanisms.
"""

from __future__ import annotations

from dp_polars._session.cost import Amount, Cost
from dp_polars._session.terms import Terms


def accepts(terms: Terms, spent: Cost) -> bool:
    """Whether a session may have spent this much in all."""
    if terms.measure == "pure":
        return _basic_arm(terms, spent) and spent.delta == 0
    if terms.measure == "zcdp":
        return spent.rho <= terms.rho_allowed and spent.delta <= terms.native_delta
    return (_basic_arm(terms, spent) or spent.rho <= terms.rho_allowed) and spent.delta <= terms.native_delta


def _basic_arm(terms: Terms, spent: Cost) -> bool:
    return terms.epsilon is not None and spent.epsilon <= terms.epsilon and spent.gaussian_delta <= terms.gaussian_delta


def share_of(terms: Terms, cost: Cost) -> float:
    """Return what part of the session's budget a cost uses up, by the measure in which it is least."""
    shares: list[Amount] = []
    if terms.epsilon is not None:
        shares.append(cost.epsilon / terms.epsilon)
    if terms.measure != "pure":
        shares.append(cost.rho / terms.rho_allowed)
    return float(min(shares))
