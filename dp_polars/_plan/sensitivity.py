"""Sensitivity: how far one unit can move the exact answers, in whole steps of their grid.

What one unit can change: a unit adds to at most `max_groups` groups, at most c = rows * max(|low|, |high|) steps in
each. If a unit is added or removed, `max_groups` sums move by at most c each. If it is replaced, the old unit leaves
its groups and the new one enters as many others. A sum that both of them touch moves by at most
w = rows * (max(high, 0) - min(low, 0)), because a filter or a null may leave out either. With a public domain of K
keys, both touch at least 2 * max_groups - K of the same groups. A group of t units moves the answers t times as far.

If the cap is on the rows in all groups together, what a unit adds to all groups has sizes that sum to at most c. So
the answers move by at most c in the L1 norm, and no further in the L2 norm. If the unit is replaced, the change is a
convex combination of changes in which all rows of the old unit lie in one group and all rows of the new one in one
group, with values at the bounds or left out. If these are two groups, the answers move by c in each, and otherwise by
at most w in one. Norms are convex, so no other change is larger. This holds for counts of kept rows, by bin or of
distinct values, as well, with c = w = rows: a unit keeps at most so many rows, or values, in all groups together. A cap
on groups may be enforced as well. It leaves a unit fewer groups, so nothing moves further.

Counts of units and sums of one clipped total per unit are not bounded by a cap on rows: a unit has one in each of its
groups. Keys that are discovered need a cap on groups even if rows are capped, because the threshold must hide every
group that a unit is alone in, and rows that are scaled down may be spread over any number of groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dp_polars._plan.contribution import ContributionBounds, RowCap
from dp_polars._session.terms import Terms


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """How far one protected change moves a vector: in the L1 norm, in the squared L2 norm, and in each entry."""

    l1: int
    l2_squared: int
    each: int


def sensitivity_of(bounds: ContributionBounds, terms: Terms, cap: RowCap, low: int, high: int) -> Sensitivity:
    """Return the sensitivity of sums to which each row adds between `low` and `high` steps (0 to 1 for counts)."""
    groups, times, max_rows = bounds.max_groups, terms.group_size, cap.max_rows
    alone = max_rows * max(abs(low), abs(high))
    if cap.across:
        return _sensitivity_across(terms, alone, max_rows * (max(high, 0) - min(low, 0)))
    if terms.adjacency == "add_remove":
        return Sensitivity(l1=times * groups * alone, l2_squared=times**2 * groups * alone**2, each=times * alone)
    both = max_rows * (max(high, 0) - min(low, 0))
    shared = 0 if bounds.domain_size is None else max(0, 2 * groups - bounds.domain_size)
    l1 = shared * both + 2 * (groups - shared) * alone
    l2_squared = max(shared * both**2 + 2 * (groups - shared) * alone**2, groups * both**2)
    return Sensitivity(l1=times * l1, l2_squared=times**2 * l2_squared, each=times * max(alone, both))


def _sensitivity_across(terms: Terms, alone: int, both: int) -> Sensitivity:
    """Return the sensitivity if a unit adds at most `alone` to all groups together.

    `both` is how far a group moves at most if all rows of a unit in it are replaced.
    """
    times = terms.group_size
    if terms.adjacency == "add_remove":
        return Sensitivity(l1=times * alone, l2_squared=times**2 * alone**2, each=times * alone)
    l2_squared = max(2 * alone**2, both**2)
    return Sensitivity(l1=times * 2 * alone, l2_squared=times**2 * l2_squared, each=times * max(alone, both))


def sensitivity_of_bins(
    bounds: ContributionBounds, terms: Terms, max_rows: int, *, across: bool = False
) -> Sensitivity:
    """Return the sensitivity of counts by group and bin, where a unit has at most `max_rows` rows in a group.

    These rows may lie in one bin or in several. If a unit is added or removed, each of its `max_groups` groups moves by
    at most `max_rows` in the L1 norm, and also in the L2 norm if all rows lie in one bin. If it is replaced, as many
    rows leave as enter, in other groups or bins. With `across`, a unit has at most `max_rows` rows in all groups.
    """
    if across:
        return _sensitivity_across(terms, max_rows, max_rows)
    times, changes = terms.group_size, 1 if terms.adjacency == "add_remove" else 2
    return Sensitivity(
        l1=times * changes * bounds.max_groups * max_rows,
        l2_squared=times**2 * changes * bounds.max_groups * max_rows**2,
        each=times * max_rows,
    )


def sensitivity_of_rollup(
    bounds: ContributionBounds, terms: Terms, sensitivity: Sensitivity, leaves: int
) -> Sensitivity:
    """Return the sensitivity of the totals of a table, each over at most `leaves` of its groups.

    If the table moves by d in the L1 norm, its totals move by at most d in that norm. Everything that a unit changes in
    its groups may fall into the same total, if that total has enough groups. So a total moves by up to that many times
    the change of one group. The squares sum to at most the largest change of a total times the sum of all changes.
    """
    together = min(bounds.max_groups * (1 if terms.adjacency == "add_remove" else 2), leaves)
    each = min(sensitivity.each * together, sensitivity.l1)
    return Sensitivity(
        l1=sensitivity.l1, l2_squared=min(each * sensitivity.l1, sensitivity.l2_squared * together), each=each
    )


def choice_prices(
    bounds: ContributionBounds, terms: Terms, replacement: Fraction, *, across: bool = False
) -> tuple[Fraction, Fraction]:
    """Return the multipliers of epsilon and epsilon**2 that give the price of one choice per group.

    A choice by the exponential mechanism costs epsilon if a unit's rows are added to or removed from its group, and
    `replacement` * epsilon (between 1 and 2 times as much) if other rows take their place. A unit that is added or
    removed changes max_groups groups. A unit that is replaced leaves its groups and enters as many others, or stays in
    the same ones. With a public domain of K keys, at most K - max_groups of them are new. A group of t units in the
    same groups costs t times as much, or t**2 times as much in terms of epsilon**2.

    With `across`, the cap is on the rows in all groups together. A unit with a fraction of the cap in a group moves the
    scores there by this fraction of what the cap moves them by, and costs this fraction of epsilon. The fractions sum
    to at most 1, and so do their squares. So a unit costs at most as much as one whose rows all lie in a single group.
    One that is replaced costs at most as much as one that leaves a group for another, or stays in the same one.
    """
    groups, times = Fraction(1 if across else bounds.max_groups), Fraction(terms.group_size)
    if terms.adjacency == "add_remove":
        return times * groups, times**2 * groups
    unlimited = across or bounds.domain_size is None
    fresh = groups if unlimited else min(groups, Fraction(bounds.domain_size or 0) - groups)
    pure = 2 * fresh + (groups - fresh) * replacement
    squared = 2 * fresh + (groups - fresh) * replacement**2
    # Staying in the same groups may cost more than moving to new ones.
    return times * max(pure, groups * replacement), times**2 * max(squared, groups * replacement**2)
