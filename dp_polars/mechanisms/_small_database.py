"""The small database mechanism: choose among all multisets of m cells one whose counts are close to those of the data.

One unit can change each count f(D) by at most r, so it changes the score -max |m f(D) - n f(candidate)|, the maximum
over all counts, by at most m * r; n is public. Scores are exact whole numbers, and the exponential mechanism chooses
(Blum, Ligett and Roth 2008). These functions charge no budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain, combinations, combinations_with_replacement, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_polars._sampling import BitSource
from dp_polars.mechanisms.selection import choose_exponential

Numbers = NDArray[np.int64]

_CHUNK = 1 << 16


def multisets(cells: int, elements: int) -> Iterator[Numbers]:
    """Yield all multisets of `elements` cells in chunks, one row per multiset with the count of each cell.

    A multiset is a choice of cells - 1 bars among elements + cells - 1 places. If there are fewer elements than cells,
    the elements are enumerated instead of the bars.
    """
    listed = elements < cells
    width = elements if listed else cells - 1
    rows = (
        combinations_with_replacement(range(cells), elements)
        if listed
        else combinations(range(elements + width), width)
    )
    chunk = max(1, _CHUNK // max(1, cells // 64))
    while True:
        part = list(islice(rows, chunk))
        if not part:
            return
        table = np.fromiter(chain.from_iterable(part), np.int64, len(part) * width).reshape(len(part), width)
        if listed:
            counts = np.zeros((len(part), cells), np.int64)
            np.add.at(counts, (np.arange(len(part))[:, None], table), 1)
        else:
            edges = np.hstack([np.full((len(part), 1), -1), table, np.full((len(part), 1), elements + width)])
            counts = np.diff(edges, axis=1) - 1
        yield counts


def scores_of(counts: NDArray[Any], queries: NDArray[Any], elements: int, size: int) -> Numbers:
    """Return the score of every multiset, given the exact answers and, for each, a row with the cells it counts."""
    wanted = elements * counts.astype(np.int64)
    cells = queries.astype(np.int64).T
    found = [-np.abs(wanted - size * (chunk @ cells)).max(axis=1) for chunk in multisets(queries.shape[1], elements)]
    return np.concatenate(found)


def choose_small_database(
    counts: NDArray[Any],
    queries: NDArray[Any],
    *,
    elements: int,
    size: int,
    reach: int,
    epsilon: Fraction,
    source: BitSource,
) -> Numbers:
    """Choose a multiset and return its count of each cell. One unit changes an exact answer by at most `reach`."""
    scores = scores_of(counts, queries, elements, size)
    chosen = choose_exponential(scores, epsilon / (2 * elements * reach), source)
    del scores
    for chunk in multisets(queries.shape[1], elements):
        if chosen < len(chunk):
            found: Numbers = chunk[chosen]
            return found
        chosen -= len(chunk)
    raise ValueError("there are fewer multisets than scores")


def number_of_multisets(cells: int, elements: int) -> int:
    """Return the number of multisets of `elements` cells."""
    return math.comb(cells + elements - 1, elements)
