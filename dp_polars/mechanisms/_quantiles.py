"""Choosing a point by its rank: the exponential mechanism over all integers of an interval, for many groups at once.

The score of a candidate depends on its rank alone, so it is constant on each gap between neighbouring values and on
each value. Such a piece is drawn in proportion to an envelope, a whole number at least as large as the piece's weight
(its length times exp(rate * score), scaled), and kept with probability weight / envelope. This is plain rejection
sampling, exact for any envelope. Then a point is drawn uniformly within the piece. Nothing here charges a budget.

Why it is fast: all envelopes come from floats in one pass over the cells, and they exceed the weights by so little that
nearly every first draw is kept. 32 random bits and a float decide that, and integers decide where this is not certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_polars._sampling.bernoulli import Enclosure, LazyUniform, enclose_exp
from dp_polars._sampling.uniform import BitSource

Ints = NDArray[np.int64]
Words = NDArray[np.uint32]

_CHUNK = 1 << 15  # cells at a time (or one group): the arrays then stay in the second-level cache
_SUM_BITS = 62  # the scaled weights of a chunk add up to less than 2**62
_WORD_BITS = 32
_MOST_SCORE = 1 << 60
_EMPTY = 1 << 62  # the distance of a piece without points, larger than any other
_RATE_LIMIT = Fraction(1 << 900)  # with scores below 2**60, rate * score neither overflows nor becomes subnormal

# Error bounds of the floats. The exponent rate * distance is rounded three times (rate, distance, product), so its
# relative error is below 2**-51. It is limited to 700, so its absolute error is below 700 * 2**-51 < 2**-41. numpy's
# exp (below 8 ulp, 2**-49), the length as a float and two products add less than 2**-48. Together a scaled weight has a
# relative error below 2**-40, and times 1 + _EXCESS it is at least the true weight. Where the limit applies, the true
# exponent is above 699 and length and scale are below 2**63, so the true scaled weight is below 2**-800 and any
# envelope of at least 1 will do.
_CUT = 700.0
_EXCESS = 2.0**-38
# A 32-bit word leaves the uniform number undetermined by 2**-32, and the float weight / envelope, which is at most 1,
# is off by less than 2**-39 (the error above and two roundings; beyond the limit both numbers are next to nothing). The
# margin is larger than both together.
_MARGIN = 2.0**-31


@dataclass(frozen=True)
class Target:
    """The rank to aim at: the point where `below` times the rows below equals `above` times the rows above.

    Parameters
    ----------
    below, above
        The weight of one row below, or above, a candidate.
    most_below, most_above
        The most that all rows below, or above, may weigh together. None means no limit.

    Examples
    --------
    >>> Target(below=1, above=3)  # the upper quartile has three times as many rows below as above
    Target(below=1, above=3, most_below=None, most_above=None)
    """

    below: int
    above: int
    most_below: int | None = None
    most_above: int | None = None


@dataclass(frozen=True)
class _Pieces:
    """The pieces of equal score: for each cell, the gap before it and the cell itself.

    Each group ends with a cell without points.
    """

    first: Ints  # the first cell of each group
    last: Ints  # the cell without points of each group
    sizes: Ints  # the number of cells of each group
    start: Ints  # the first point of the gap; the cell's value is start + gap
    gap: Ints  # the number of points in the gap
    gap_distance: Ints  # the best score of the group minus the score in the gap
    cell_distance: Ints  # the best score of the group minus the score of the cell


def choose_points(
    values: Ints,
    counts: Ints,
    begin: Ints,
    end: Ints,
    low: Ints,
    high: Ints,
    target: Target,
    rate: Fraction,
    source: BitSource,
) -> Ints:
    """Choose a point of each group's interval with probability proportional to exp(rate * score), exactly.

    With B rows below a point and A rows above it, the score of the point is minus the distance of
    f = min(below * B, most_below) - min(above * A, most_above) from 0. Rows at the point itself may count on either
    side, whichever is better: the distance is that of 0 from the interval between f with them above and f with them
    below.

    Parameters
    ----------
    values, counts
        The cells: a value, and the number of rows that have it, which is at least one.
    begin, end
        Group g has the cells begin[g] to end[g] - 1, possibly none, with strictly increasing values.
    low, high
        The candidates of group g are low[g], ..., high[g], fewer than 2**62 steps apart. All its values lie there.
    target, rate
        The rank to aim at, and the factor of the score in the exponent.
    source
        The source of random bits.

    Returns
    -------
    ndarray
        One point per group, chosen independently (the quantiles of Smith 2011, over integers).

    Examples
    --------
    >>> from dp_polars._sampling import SYSTEM_BITS
    >>> values, counts = np.array([3, 5, 8]), np.array([900, 900, 900])
    >>> begin, end, low, high = np.array([0]), np.array([3]), np.array([0]), np.array([10])
    >>> choose_points(values, counts, begin, end, low, high, Target(1, 1), Fraction(1), SYSTEM_BITS)
    array([5])
    """
    _check(values, counts, begin, end, low, high)
    if min(target.below, target.above, target.most_below or 0, target.most_above or 0) < 0:
        raise ValueError("the weights and limits of a target must not be negative")
    if not 1 / _RATE_LIMIT <= rate <= _RATE_LIMIT:
        raise ValueError("rate must be positive, between 2**-900 and 2**900")
    if not len(values):
        values = counts = np.zeros(1, np.int64)  # belongs to no group, but np.take needs something to take
    points = np.empty(len(begin), np.int64)
    for part in _chunks(end - begin + 1):
        pieces = _cut(values, counts, begin[part], end[part], low[part], high[part], target)
        points[part] = _draw(pieces, rate, source)
    return points


def _check(values: Ints, counts: Ints, begin: Ints, end: Ints, low: Ints, high: Ints) -> None:
    if any(array.dtype != np.int64 or array.ndim != 1 for array in (values, counts, begin, end, low, high)):
        raise ValueError("values, counts, begin, end, low and high must be one-dimensional arrays of int64")
    if len(values) != len(counts) or not len(begin) == len(end) == len(low) == len(high):
        raise ValueError("values and counts must be as long as each other, and begin, end, low and high likewise")
    if len(counts) and counts.min() < 1:
        raise ValueError("counts must be at least 1")
    if (begin < 0).any() or (begin > end).any() or (end > len(values)).any():
        raise ValueError("begin and end must be slices of the cells")
    # The difference of 64-bit integers fits into 64 unsigned bits even if the subtraction wraps around.
    if (low > high).any() or ((high - low).view(np.uint64) >= 1 << 62).any():
        raise ValueError("low must not exceed high, and high - low must be below 2**62")


def _chunks(sizes: Ints) -> Iterator[slice]:
    """Yield slices of groups that have at most _CHUNK cells together, or of a single larger group."""
    reached = np.cumsum(sizes)
    done, cells = 0, 0
    while done < len(sizes):
        stop = max(done + 1, int(np.searchsorted(reached, cells + _CHUNK, side="right")))
        yield slice(done, stop)
        done, cells = stop, int(reached[stop - 1])


def _cut(values: Ints, counts: Ints, begin: Ints, end: Ints, low: Ints, high: Ints, target: Target) -> _Pieces:
    """Cut each group's interval into pieces of equal score."""
    sizes = end - begin + 1
    first = np.cumsum(sizes) - sizes
    last = first + sizes - 1
    cells = np.arange(sizes.sum()) + _spread(begin - first, sizes)
    rows, ends = np.take(counts, cells, mode="clip"), np.take(values, cells, mode="clip")
    rows[last], ends[last] = 0, high + 1  # this and the next lines may wrap around, but the differences are right
    start = np.add(np.roll(ends, 1), 1, out=cells)
    start[first] = low
    gap = np.subtract(ends, start, out=ends)
    if gap.view(np.uint64).max() > 1 << 62:
        raise ValueError("the values of a group must be strictly increasing and lie in its interval")
    gap_distance, cell_distance = _distances(rows, first, last, sizes, target)
    np.putmask(gap_distance, gap == 0, _EMPTY)
    cell_distance[last] = _EMPTY
    best = _spread(np.minimum.reduceat(np.minimum(gap_distance, cell_distance), first), sizes)
    gap_distance -= best
    cell_distance -= best
    return _Pieces(first, last, sizes, start, gap, gap_distance, cell_distance)


def _spread(numbers: NDArray[Any], sizes: Ints) -> NDArray[Any]:
    """Repeat the number of each group for each of its cells. The number of a single group broadcasts by itself."""
    return numbers if len(numbers) == 1 else np.repeat(numbers, sizes)


def _distances(rows: Ints, first: Ints, last: Ints, sizes: Ints, target: Target) -> tuple[Ints, Ints]:
    """Return minus the score in the gap before each cell, and minus the score of the cell."""
    totals = np.add.reduceat(rows, first, dtype=np.float64)  # a sum of integers could wrap around unnoticed
    if max(totals.max(), 1.0) * max(target.below, target.above) >= _MOST_SCORE:
        raise ValueError("the weight of all rows of a group must be below 2**60")
    before = np.cumsum(rows)  # may wrap around, but the differences are right
    before -= rows
    before -= _spread(before[first], sizes)
    after = _spread(before[last], sizes) - before
    cells = _limited(after - rows, target.above, target.most_above)
    cells -= _limited(before + rows, target.below, target.most_below)
    below = _limited(before, target.below, target.most_below)
    gaps = _limited(after, target.above, target.most_above)
    gaps -= below
    np.maximum(cells, 0, out=cells)
    np.maximum(cells, -gaps, out=cells)
    return np.abs(gaps, out=gaps), cells


def _limited(rows: Ints, weight: int, most: int | None) -> Ints:
    rows *= weight
    return rows if most is None else np.minimum(rows, min(most, _MOST_SCORE), out=rows)


def _weights(lengths: Ints | int, distances: Ints, rate: Fraction) -> NDArray[np.float64]:
    """Return length * exp(-rate * distance), within the error bound stated above."""
    weights: NDArray[np.float64] = np.multiply(distances, -float(rate), dtype=np.float64)
    np.exp(np.maximum(weights, -_CUT, out=weights), out=weights)
    weights *= lengths
    return weights


def _envelopes(pieces: _Pieces, rate: Fraction) -> tuple[Ints, Ints, Ints]:
    """Return the envelopes of the gaps, the running sums over gaps and cells, and log2 of the scale of each group.

    The scaled weights of a group add up to at most 2**bits and those of all groups to 2**62. With the excess and the
    ones that are added, the sum stays below 2**63.
    """
    gaps = _weights(pieces.gap, pieces.gap_distance, rate)
    cells = _weights(1, pieces.cell_distance, rate)
    cells[pieces.last] = 0
    bits = _SUM_BITS - (len(pieces.first) - 1).bit_length()
    scales = bits - np.frexp(np.add.reduceat(gaps + cells, pieces.first))[1].astype(np.int64)
    factors = _spread(np.ldexp(1 + _EXCESS, scales), pieces.sizes)
    gaps *= factors
    cells *= factors
    envelopes = gaps.astype(np.int64)  # rounds down, so adding one gives an upper bound
    envelopes += pieces.gap > 0
    running = np.ones(len(gaps) + 1, np.int64)
    running[0] = running[1:][pieces.last] = 0
    running[1:] += cells.astype(np.int64)
    running[1:] += envelopes
    return envelopes, np.cumsum(running, out=running), scales


def _draw(pieces: _Pieces, rate: Fraction, source: BitSource) -> Ints:
    """Return one point for each group: draw pieces until one is kept, then draw a point within it."""
    envelopes, running, scales = _envelopes(pieces, rate)
    base = running[pieces.first]
    bounds = running[pieces.last + 1] - base
    points = np.empty(len(base), np.int64)
    missing = np.arange(len(base))
    while len(missing):
        place = base[missing] + _uniform_below(bounds[missing], source)
        cell = np.searchsorted(running, place, side="right") - 1
        in_gap = place - running[cell] < envelopes[cell]
        lengths = np.where(in_gap, pieces.gap[cell], 1)
        distances = np.where(in_gap, pieces.gap_distance[cell], pieces.cell_distance[cell])
        tops = np.where(in_gap, envelopes[cell], running[cell + 1] - running[cell] - envelopes[cell])
        kept = _keep(source.words(len(missing), np.uint32), lengths, distances, tops, scales[missing], rate, source)
        cell, in_gap = cell[kept], in_gap[kept]
        steps = np.where(in_gap, _uniform_below(lengths[kept], source), pieces.gap[cell])
        points[missing[kept]] = pieces.start[cell] + steps
        missing = missing[~kept]
    return points


def _keep(
    words: Words, lengths: Ints, distances: Ints, envelopes: Ints, scales: Ints, rate: Fraction, source: BitSource
) -> NDArray[np.bool_]:
    """Return coins that are True with probability exactly 2**scale * length * exp(-rate * distance) / envelope."""
    surplus = np.ldexp(_weights(lengths, distances, rate), scales) / envelopes
    surplus -= words * 2.0**-_WORD_BITS
    coins: NDArray[np.bool_] = surplus > 0
    for i in np.flatnonzero(np.abs(surplus) <= _MARGIN):
        chance = _enclose_chance(int(lengths[i]), rate * int(distances[i]), int(envelopes[i]), int(scales[i]))
        coins[i] = LazyUniform(int(words[i]), _WORD_BITS, source).below(chance)
    return coins


def _enclose_chance(length: int, exponent: Fraction, envelope: int, scale: int) -> Enclosure:
    """Return the enclosure of the probability 2**scale * length * exp(-exponent) / envelope."""
    more = length.bit_length() + max(scale, 0)  # the factor costs this many bits of exp
    divisor = envelope << (more - scale)

    def enclose(bits: int) -> tuple[int, int]:
        low, high = enclose_exp(exponent, bits + more)
        return low * length // divisor, -(-high * length // divisor)

    return enclose


def _uniform_below(bounds: Ints, source: BitSource) -> Ints:
    """Return for each bound an integer uniform over 0, ..., bound - 1, by rejection from the next power of two."""
    masks = bounds - 1
    for shift in (1, 2, 4, 8, 16, 32):  # sets every bit below the highest
        masks |= masks >> shift
    drawn = np.empty_like(bounds)
    missing = np.arange(len(bounds))
    while len(missing):
        drawn[missing] = source.words(len(missing), np.uint64).view(np.int64) & masks[missing]
        missing = missing[drawn[missing] >= bounds[missing]]
    return drawn
