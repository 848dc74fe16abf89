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

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal, get_args

from dp_polars._numbers import MIN_EPSILON, boundary, first_doubling
from dp_polars._session.accounts import share_in_epsilon
from dp_polars._session.cost import Amount, Cost
from dp_polars._session.prices import SMALLEST_SHARE, gaussian_cost, is_too_small, pure_cost, smallest_spend
from dp_polars._session.terms import Account, Terms
from dp_polars.errors import InvalidParameterError

Mechanism = Literal["laplace", "gaussian"]

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


def beyond_share(terms: Terms, share: Fraction) -> Cost:
    """Return what counts as spent from the start for an analyst who has a share of the budget: everything beyond it.

    An analyst's charge must fit twice: after all charges of the session, which is the session's promise, and after
    this sum and the analyst's own charges. Shares are counted in one account only, the one in which the session counts
    `share=`. So analysts whose shares sum to at most 1 can always use all of them: their charges sum to at most the
    limit of that account, and the filter accepts as long as one account is within its limit.

    Examples
    --------
    >>> import dp_polars as dp
    >>> terms = dp.Session(epsilon=1.0, unit="user").terms
    >>> quarter = beyond_share(terms, Fraction(1, 4))
    >>> accepts(terms, quarter + pure_cost(0.25)), accepts(terms, quarter + pure_cost(0.26))
    (True, False)
    """
    rest = 1 - share
    epsilon = share_in_epsilon(terms, rest)
    return Cost(
        epsilon=math.inf if epsilon is None else epsilon,
        rho=rest * terms.rho_allowed if epsilon is None else math.inf,
        delta=rest * terms.native_delta,
        gaussian_delta=rest * terms.gaussian_delta,
    )


def share_of(terms: Terms, spent: Cost) -> float:
    """Return the part of the budget that is used if a session has spent this much in total.

    Each account (the sum of epsilons, the sum of rhos) has used some share of its own limit. The part of the budget
    that is used is the smaller of the two, because the filter accepts releases while one account is within its
    limit. It is 0 at the start, grows with every release, and is at most 1 as long as the filter accepts. At 1, nothing
    more fits. The delta for keys is not included: a release that discovers no keys needs none.

    Examples
    --------
    >>> import dp_polars as dp
    >>> terms = dp.Session(epsilon=1.0, delta=1e-6, unit="user").terms
    >>> share_of(terms, pure_cost(0.1)), share_of(terms, pure_cost(0.1) * 5)
    (0.1, 0.5)
    """
    return float(_share(terms, spent))


def times_left(terms: Terms, spent: Cost, cost: Cost) -> int:
    """Return how often a release of this price still fits, if nothing else is asked in between.

    It is at most what a release of the smallest price would do.

    Examples
    --------
    >>> import dp_polars as dp
    >>> terms = dp.Session(epsilon=1.0, unit="user").terms
    >>> times_left(terms, pure_cost(0.1), pure_cost(0.3))
    3
    """
    fits, too_often = 0, int(1 / SMALLEST_SHARE) + 1
    while too_often - fits > 1:
        middle = (fits + too_often) // 2
        if accepts(terms, spent + cost * middle):
            fits = middle
        else:
            too_often = middle
    return fits


def share_left(terms: Terms, spent: Cost) -> float:
    """Return the part of the budget that is left if a session has spent this much in total."""
    return max(0.0, float(1 - _share(terms, spent)))


def part_of(terms: Terms, before: Cost, cost: Cost) -> float:
    """Return the part of the budget that one release uses: how much `share_of` grows by it.

    It depends on what was spent before, because the account with the smaller share may change. So the parts of all
    releases, in the order of their charges, add up to the part that is used in total.

    Examples
    --------
    >>> import dp_polars as dp
    >>> terms = dp.Session(epsilon=1.0, delta=1e-6, unit="user").terms
    >>> gaussian = gaussian_cost(terms, epsilon=0.2)
    >>> round(part_of(terms, Cost(epsilon=0, rho=0), gaussian), 3), round(part_of(terms, pure_cost(0.3), gaussian), 3)
    (0.039, 0.2)
    """
    return float(_share(terms, before + cost) - _share(terms, before))


def _share(terms: Terms, spent: Cost) -> Amount:
    shares: list[Amount] = []
    if terms.epsilon is not None:
        basic = spent.epsilon / terms.epsilon
        if spent.gaussian_delta and terms.gaussian_delta:
            basic = max(basic, spent.gaussian_delta / terms.gaussian_delta)
        shares.append(basic)
    if terms.measure != "pure":
        shares.append(spent.rho / terms.rho_allowed)
    return min(shares)


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


def largest_share(terms: Terms, spent: Cost, *, keys: bool) -> float:
    """Return the largest `share=` of one release that the filter would accept, in four digits; 0 if none.

    With `keys`, the release discovers keys and uses the same share of the delta for them.
    """

    def fits(share: float) -> bool:
        return share <= 1 and accepts(terms, spent + cost_of_share(terms, Fraction(repr(share)), keys=keys))

    if fits(1.0):
        return 1.0
    if not fits(float(SMALLEST_SHARE)):
        return 0.0
    # The largest epsilon or rho that fits one account or the other, as a share of the account that shares are of.
    if share_in_epsilon(terms, Fraction(1)) is not None:
        share = largest_affordable(terms, spent, "laplace", "epsilon") / float(terms.epsilon or 1)
    else:
        share = largest_affordable(terms, spent, "gaussian", "rho") / float(terms.rho_allowed)
    if keys:
        share = min(share, float((terms.native_delta - spent.delta) / terms.native_delta))
    return in_four_digits(min(share, 1.0), fits)


def cost_of_share(terms: Terms, share: Fraction, *, keys: bool) -> Cost:
    """Return the price of one release that is a share of the session. With `keys`, it discovers keys."""
    epsilon = share_in_epsilon(terms, share)
    cost = pure_cost(epsilon) if epsilon is not None else gaussian_cost(terms, rho=share * terms.rho_allowed)
    return cost + Cost(epsilon=Fraction(0), rho=Fraction(0), delta=terms.native_delta * share if keys else Fraction(0))


def largest_epsilon(terms: Terms, spent: Cost, mechanism: Mechanism, *, keys: bool) -> float:
    """Return the largest `epsilon=` of one release by a mechanism that the filter would accept; 0 if none.

    With `keys`, the release discovers keys and uses as large a share of the delta for them as of the budget.
    """

    def cost_of(epsilon: float) -> Cost:
        return pure_cost(epsilon) if mechanism == "laplace" else gaussian_cost(terms, epsilon=epsilon)

    def fits(epsilon: float) -> bool:
        cost = cost_of(epsilon)
        delta = terms.native_delta * min(Fraction(1), Fraction(_share(terms, cost))) if keys else Fraction(0)
        return accepts(terms, spent + cost + Cost(epsilon=Fraction(0), rho=Fraction(0), delta=delta))

    largest = largest_affordable(terms, spent, mechanism, "epsilon")
    if not largest:
        return 0.0
    least = smallest_spend(terms)
    if not fits(largest):  # because of the delta for keys
        if terms.measure == "zcdp" or not fits(least):
            return 0.0
        largest = boundary(fits, inside=least, outside=largest, tolerance=1e-9)
    return in_four_digits(largest, fits)


def in_four_digits(amount: float, fits: Callable[[float], bool]) -> float:
    """Return an amount in four digits, rounded so that it fits.

    >>> in_four_digits(0.2999999999, lambda x: x <= 0.3), in_four_digits(0.12346, lambda x: x < 0.1235)
    (0.3, 0.1234)
    """
    digits = 3 - math.floor(math.log10(amount))
    steps = round(Fraction(amount) * Fraction(10) ** digits)
    near = (float(Fraction(steps - back) / Fraction(10) ** digits) for back in range(3))
    return next((amount for amount in near if fits(amount)), 0.0)


def _largest(fits: Callable[[float], bool], left: float, least: float) -> float:
    """Return the largest amount that fits, 0 if not even `least` does.

    `left` is what remains in the measure itself. It is returned as it is if it fits and hardly more does, so a
    message shows the plain number.
    """
    if not fits(least):
        return 0.0
    low = left if left >= least and fits(left) else least
    if low == left and not fits(low * 1.000001):
        return low
    outside = first_doubling(fits, 2 * low)
    return boundary(fits, inside=outside / 2, outside=outside, tolerance=1e-9)
