"""How far one unit can move the exact answers, in whole steps of their grid.

What one unit can change: it adds to at most `max_groups` groups, in each at most c = rows * max(|low|, |high|) steps.
Added or removed: max_groups sums move by c each. Replaced by another: the old one leaves its groups and the new one
enters as many others; a sum that both touch moves by at most w = rows * (max(high, 0) - min(low, 0)), because a filter
or a null may leave either out. With a public domain of K keys at least 2 * max_groups - K groups are touched by both.
A group of t units moves t times as far.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dp_polars._plan.contribution import Bounds
from dp_polars._session.terms import Terms


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The most that one protected change moves a vector of sums: in the first norm, the second squared, and each."""

    l1: int
    l2_squared: int
    each: int


def sensitivity_of(bounds: Bounds, terms: Terms, max_rows: int, low: int, high: int) -> Sensitivity:
    """Return the sensitivity of sums of rows that lie in [low, high] steps (0 to 1 for counts)."""
    groups, times = bounds.max_groups, terms.group_size
    alone = max_rows * max(abs(low), abs(high))
    if terms.adjacency == "add_remove":
        return Sensitivity(l1=times * groups * alone, l2_squared=times**2 * groups * alone**2, each=times * alone)
    both = max_rows * (max(high, 0) - min(low, 0))
    shared = 0 if bounds.domain_size is None else max(0, 2 * groups - bounds.domain_size)
    l1 = shared * both + 2 * (groups - shared) * alone
    l2_squared = max(shared * both**2 + 2 * (groups - shared) * alone**2, groups * both**2)
    return Sensitivity(l1=times * l1, l2_squared=times**2 * l2_squared, each=times * max(alone, both))


def sensitivity_of_bins(bounds: Bounds, terms: Terms, max_rows: int) -> Sensitivity:
    """Return the sensitivity of counts by (group, bin) of the at most `max_rows` rows that a unit has in a group.

    They may all lie in one bin or in several: added or removed, that is at most `max_rows` in the first norm and, all
    in one bin, in the second, for each of `max_groups` groups. Replaced, as many leave as enter, in other groups or
    bins.
    """
    times, changes = terms.group_size, 1 if terms.adjacency == "add_remove" else 2
    return Sensitivity(
        l1=times * changes * bounds.max_groups * max_rows,
        l2_squared=times**2 * changes * bounds.max_groups * max_rows**2,
        each=times * max_rows,
    )


def sensitivity_of_totals(bounds: Bounds, terms: Terms, own: Sensitivity, leaves: int) -> Sensitivity:
    """Return the sensitivity of totals of a table over at most `leaves` of its groups each.

    The totals of a table that moves by d in the first norm move by at most d in it. All that a unit changes in
    `max_groups` groups may fall into one total, if it has so many groups: each moves by that many changes of a group,
    and the squares sum to at most the largest total change times the sum of all.
    """
    together = min(bounds.max_groups * (1 if terms.adjacency == "add_remove" else 2), leaves)
    each = min(own.each * together, own.l1)
    return Sensitivity(l1=own.l1, l2_squared=min(each * own.l1, own.l2_squared * together), each=each)


def choice_prices(bounds: Bounds, terms: Terms, replacement: Fraction) -> tuple[Fraction, Fraction]:
    """Return what a choice in every group costs, by the epsilon of an addition in one: (pure, of its square).

    A choice by the exponential mechanism costs e if a unit's rows are added to or removed from its group, and
    `replacement` * e (1 to 2) if others take their place. Added or removed: max_groups additions. Replaced: the unit
    leaves its groups and enters as many others, or stays in the same ones; with a public domain of K keys at most
    K - max_groups are new. t units together in the same groups cost t times as much, t * t squared.
    """
    groups, times = Fraction(bounds.max_groups), Fraction(terms.group_size)
    if terms.adjacency == "add_remove":
        return times * groups, times**2 * groups
    fresh = groups if bounds.domain_size is None else min(groups, Fraction(bounds.domain_size) - groups)
    pure = 2 * fresh + (groups - fresh) * replacement
    squared = 2 * fresh + (groups - fresh) * replacement**2
    # All groups the same may cost more than all new ones.
    return times * max(pure, groups * replacement), times**2 * max(squared, groups * replacement**2)
