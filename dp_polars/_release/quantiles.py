"""Choose values at quantiles by the exponential mechanism. Several quantiles are chosen in one descent of a tree.

What one unit can change: it has at most `max_rows` rows in each of its groups. One quantile q of a group is chosen with
the scores -|(1 - q) below - q above|, where `below` and `above` count the rows on either side of a candidate. Several
quantiles are chosen in the order of a binary tree: the middle one first, then those below it among the values up to it,
and those above it among the values from it on. On one level of the tree, a row belongs to one side only. Values equal
to the border are split in halves, rounded so that one more row adds one to one side. So the scores of a whole level
move no further than those of a single choice, and a level costs as much as one choice. The answers are always in rising
order.

The smallest value is chosen with the scores -|below - min(above, t)|, which aim up to t rows inside. All candidates
below all values have the same rank, and most candidates may lie there, so t grows with the number n of candidates:
t = (2 max_rows / epsilon)(ln n + 5), which is 38 rows for floats at epsilon 1. The largest value is chosen likewise.

The ends of an interval of a quantile are chosen among all rows and some public ones at a bound (see `_plan.ranks`).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._plan.ranks import end_rows, inside_rows
from dp_polars._plan.statistics import Statistic
from dp_polars._sampling import BitSource
from dp_polars.mechanisms._quantiles import Target, choose_points

_FINEST = 10**6

Numbers = NDArray[np.int64]


def choose_values(
    cells: pl.DataFrame, rows: Numbers, statistic: Statistic, epsilon: Fraction, source: BitSource
) -> Any:
    """Choose a value for each target in each of the groups `rows`, and return them in steps of the grid."""
    if statistic.confidence is not None:
        return _choose_ends(cells, rows, statistic, epsilon, source)
    group = cells["group"].to_numpy()
    # An extra cell that belongs to no group keeps the arrays from being empty. Otherwise an error could reveal whether
    # anyone has a value.
    values = np.append(cells["value"].to_numpy(), 0)
    descent = _Descent(values, np.append(cells["count"].to_numpy(), 1), statistic, epsilon, source)
    begin = np.searchsorted(group, rows, side="left").astype(np.int64)
    end = np.searchsorted(group, rows, side="right").astype(np.int64)
    low, high = np.full(len(rows), statistic.grid.low, np.int64), np.full(len(rows), statistic.grid.high, np.int64)
    answers = np.zeros((len(rows), len(statistic.targets)), np.int64)
    descent.descend(answers, 0, len(statistic.targets), (begin, end), (low, high), (Fraction(0), Fraction(1)))
    return answers


def _choose_ends(
    cells: pl.DataFrame, rows: Numbers, statistic: Statistic, epsilon: Fraction, source: BitSource
) -> Numbers:
    """Choose the lower ends of the intervals of all targets, and then the upper ends, in steps of the grid."""
    if statistic.confidence is None:
        raise ValueError("this statistic is not about the ends of intervals")
    miss = (1 - statistic.confidence) / 2
    single, chosen = [replace(statistic, targets=(target,), confidence=None) for target in statistic.targets], []
    for lower, bound in ((True, statistic.grid.low), (False, statistic.grid.high)):
        for choice in single:
            extra = end_rows(choice, epsilon, choice.targets[0], lower=lower, miss=miss)
            if extra is None:
                chosen.append(np.full(len(rows), bound, np.int64))
            else:
                more = _with_rows(cells, rows, bound, extra, first=lower)
                chosen.append(choose_values(more, rows, choice, epsilon, source)[:, 0])
    return np.stack(chosen, axis=1)


def _with_rows(cells: pl.DataFrame, groups: Numbers, value: int, number: int, *, first: bool) -> pl.DataFrame:
    """Return the cells after adding this many rows with one value to each of the groups.

    The value is the smallest (`first`) or the largest of all, so its cell is the first or the last of each group.
    """
    group, values, counts = (cells[name].to_numpy().astype(np.int64) for name in ("group", "value", "count"))
    begin, end = np.searchsorted(group, groups, side="left"), np.searchsorted(group, groups, side="right")
    outer = begin if first else end - 1
    there = begin < end
    there[there] = values[outer[there]] == value
    counts[outer[there]] += number
    places = (begin if first else end)[~there]
    return pl.DataFrame(
        {
            "group": np.insert(group, places, groups[~there]),
            "value": np.insert(values, places, value),
            "count": np.insert(counts, places, number),
        }
    )


class _Descent:
    def __init__(
        self, values: Numbers, counts: Numbers, statistic: Statistic, epsilon: Fraction, source: BitSource
    ) -> None:
        self._values, self._counts = values, counts
        self._statistic, self._epsilon, self._source = statistic, epsilon, source

    def descend(
        self,
        answers: Numbers,
        first: int,
        last: int,
        cells: tuple[Numbers, Numbers],
        interval: tuple[Numbers, Numbers],
        ranks: tuple[Fraction, Fraction],
    ) -> None:
        """Choose the targets `first` to `last` - 1 among the given cells and intervals, whose ranks are known."""
        if first == last:
            return
        middle = (first + last) // 2
        quantile = self._statistic.targets[middle]
        width = ranks[1] - ranks[0]
        relative = (quantile - ranks[0]) / width if width else Fraction(1, 2)
        begin, end = cells
        low, high = interval
        target, rate = self._target(relative)
        chosen = choose_points(self._values, self._counts, begin, end, low, high, target, rate, self._source)
        answers[:, middle] = chosen
        if last - first == 1:
            return
        border = begin + _below(self._values, begin, end, chosen)  # the first cell that is not below the chosen value
        shared = np.flatnonzero((border < end) & (self._values[border] == chosen))
        places = border[shared]
        whole = self._counts[places].copy()
        after = border.copy()
        after[shared] += 1
        self._counts[places] = whole - whole // 2
        self.descend(answers, first, middle, (begin, after), (low, chosen), (ranks[0], quantile))
        halves = whole // 2
        self._counts[places] = np.maximum(halves, 1)  # a half of 0 rows is left out of the slice
        right = after.copy()
        right[shared[halves > 0]] -= 1
        self.descend(answers, middle + 1, last, (right, end), (chosen, high), (quantile, ranks[1]))
        self._counts[places] = whole

    def _target(self, quantile: Fraction) -> tuple[Target, Fraction]:
        """Return the target of a choice, and the factor of the score in the exponent."""
        rate = self._epsilon / (2 * self._statistic.max_rows)
        if quantile in (0, 1):
            most = inside_rows(self._statistic, self._epsilon)
            target = Target(1, 1, most_above=most) if quantile == 0 else Target(1, 1, most_below=most)
            return target, rate
        near = quantile.limit_denominator(_FINEST)
        above, below = near.numerator, near.denominator - near.numerator
        return Target(below, above), rate / max(above, below)


def _below(values: Numbers, begin: Numbers, end: Numbers, points: Numbers) -> Numbers:
    """Count the values below a point in each sorted slice, by bisecting all slices at once."""
    low, high = begin.copy(), end.copy()
    while True:
        open_ = np.flatnonzero(low < high)
        if not len(open_):
            return low - begin
        middle = (low[open_] + high[open_]) // 2
        below = values[middle] < points[open_]
        low[open_[below]] = middle[below] + 1
        high[open_[~below]] = middle[~below]
