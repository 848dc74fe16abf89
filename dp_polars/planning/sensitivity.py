"""How far one unit can move the exact answers, in whole steps of their grid.

What one unit can change: it adds to at most `max_groups` groups, in each at most c = rows * max(|low|, |high|) steps.
Added or removed: max_groups sums move by c each. Replaced by another: the old one leaves its groups and the new one
enters as many others; a sum that both touch moves by at most w = rows * (max(high, 0) - min(low, 0)), because a filter
or a null may leave either out. With a public domain of K keys at least 2 * max_groups - K groups are touched by both.
A group of t units moves t times as far.
"""

from __future__ import annotations

from dataclasses import dataclass

from dp_polars.accounting.terms import Terms
from dp_polars.planning.bounds import Bounds


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The most that one protected change moves a vector of sums: in the first norm, the second squared, and each."""

    l1: int
    l2_squared: int
    each: int


def sensitivity_of(bounds: Bounds, terms: Terms, low: int, high: int) -> Sensitivity:
    """Return the sensitivity of sums of rows that lie in [low, high] steps (0 to 1 for counts)."""
    groups, times = bounds.max_groups, terms.group_size
    alone = bounds.max_rows * max(abs(low), abs(high))
    if terms.adjacency == "add_remove":
        return Sensitivity(l1=times * groups * alone, l2_squared=times**2 * groups * alone**2, each=times * alone)
    both = bounds.max_rows * (max(high, 0) - min(low, 0))
    shared = 0 if bounds.domain_size is None else max(0, 2 * groups - bounds.domain_size)
    l1 = shared * both + 2 * (groups - shared) * alone
    l2_squared = max(shared * both**2 + 2 * (groups - shared) * alone**2, groups * both**2)
    return Sensitivity(l1=times * l1, l2_squared=times**2 * l2_squared, each=times * max(alone, both))
