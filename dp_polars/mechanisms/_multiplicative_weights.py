"""A public guess of how rows spread over the cells of a domain, made better by multiplicative weights.

Nothing here reads private rows: a hypothesis starts uniform and moves with noisy measurements only, so all of it is
post-processing and may be floats. What is asked or measured is a partition of the cells, told by some of the axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LARGEST_STEP = 4.0
"""What a whole gap of 1 is worth in the exponent: see `Hypothesis.learn`."""


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition of the cells: a marginal (`packed` is None), or the cells where a predicate is false and true.

    `axes` are the columns that it looks at, rising; `shape` is their length in the domain. The predicate over their
    product is kept as bits.
    """

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    packed: NDArray[np.uint8] | None = None

    @classmethod
    def of_predicate(cls, axes: tuple[int, ...], mask: NDArray[np.bool_]) -> Partition:
        """Return the partition into where a predicate is false and where it is true."""
        return cls(axes, mask.shape, np.packbits(mask))

    @property
    def cells(self) -> int:
        """How many parts it has."""
        return math.prod(self.shape) if self.packed is None else 2

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Where the predicate is true."""
        if self.packed is None:
            raise ValueError("a marginal has no predicate")
        return np.unpackbits(self.packed, count=math.prod(self.shape)).reshape(self.shape).astype(bool)

    def totals(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return the sum of a table over each part, in the table's own type: integers stay exact."""
        marginal = over(table, self.axes)
        if self.packed is None:
            return marginal.ravel()
        true = marginal[self.mask].sum(dtype=table.dtype)
        return np.array([marginal.sum(dtype=table.dtype) - true, true], dtype=table.dtype)

    def spread(self, parts: Floats) -> Floats:
        """Return a number for each part as a table over `axes`."""
        return parts.reshape(self.shape) if self.packed is None else np.where(self.mask, parts[1], parts[0])


def over(table: NDArray[Any], axes: Sequence[int]) -> NDArray[Any]:
    """Return a table summed over all other axes; `axes` rise.

    Neighbouring axes that are kept, or summed, are taken as one, and sums go from the first to the last: numpy is many
    times slower over a dozen axes of length 2.
    """
    kept = tuple(table.shape[axis] for axis in axes)
    if len(kept) == table.ndim:
        return table
    runs = merged(table.shape, axes)
    summed = table.reshape([length for length, _ in runs])
    for done, place in enumerate([i for i, (_, keep) in enumerate(runs) if not keep]):
        summed = summed.sum(axis=place - done, dtype=table.dtype)
    return np.asarray(summed).reshape(kept)


def merged(dims: Sequence[int], axes: Sequence[int]) -> list[tuple[int, bool]]:
    """Return the lengths of runs of axes that are all among `axes`, or all not, and whether they are."""
    runs: list[tuple[int, bool]] = []
    for axis, length in enumerate(dims):
        keep = axis in axes
        if runs and runs[-1][1] == keep:
            runs[-1] = (runs[-1][0] * length, keep)
        else:
            runs.append((length, keep))
    return runs


class Hypothesis:
    """Weights over the cells that sum to 1."""

    def __init__(self, dims: tuple[int, ...]) -> None:
        self.weights: Floats = np.full(dims, 1 / math.prod(dims))

    def share(self, axes: Sequence[int], mask: NDArray[np.bool_]) -> float:
        """Return the weight of the cells where a predicate over `axes` is true."""
        return float((over(self.weights, axes) * mask).sum())  # faster than picking a million cells

    def learn(self, axes: Sequence[int], mask: NDArray[np.bool_], gap: float) -> None:
        """Move towards a measured share of a predicate that is `gap` away from the hypothesis'.

        Each cell where it is true is multiplied by exp(s), s = 4 * gap. Why: let x be the true distribution, p this
        one, g = x(q) - p(q). The divergence of x from p falls by s*x(q) - ln E_p exp(s*q), which by Hoeffding's lemma
        is at least s*g - s**2/8. With s = 4g that is 2 g**2; with a gap measured to within g/2 still 3/2 g**2. It
        starts at ln|X| at most and never falls below 0, so at most ln|X| / (3/2 alpha**2) such updates have a gap of
        alpha or more. (Hardt and Rothblum 2010, and Dwork and Roth 2014, theorem 4.10, take s = alpha/2 and prove
        4 ln|X| / alpha**2; six times as many updates would mean six times the noise.)
        """
        growth = math.exp(LARGEST_STEP * max(-1.0, min(gap, 1.0)))
        total = float(self.weights.sum()) + self.share(axes, mask) * (growth - 1)
        self._multiply(axes, np.where(mask, growth / total, 1 / total))

    def fit(self, measured: Sequence[tuple[Partition, Floats, float]], size: float, passes: int) -> None:
        """Go through all measurements `passes` times and move a part of the way towards each.

        A measurement is the noisy counts of a partition's parts and the scale of their noise, b. Where MWEM (Hardt,
        Ligett, McSherry 2012) multiplies by exp((m - h) / (2 n)), a part is multiplied by exp((m - h) / (2 (h + b))):
        the step is relative to what the part holds, so that small parts get somewhere, unless that drowns in noise.
        """
        for _ in range(passes):
            for partition, counts, scale in measured:
                now = partition.totals(self.weights) * size
                step = np.clip((counts - now) / (2 * (np.maximum(now, 0) + max(scale, 0.5))), -0.5, 0.5)
                growth = np.exp(step)
                total = float((now * growth).sum()) / size
                self._multiply(partition.axes, partition.spread(growth / total))

    def _multiply(self, axes: Sequence[int], factor: Floats) -> None:
        """Multiply cells by a factor that depends on `axes` and makes the sum 1 again, in one go."""
        runs = merged(self.weights.shape, axes)
        table = self.weights.reshape([length for length, _ in runs])
        np.multiply(table, factor.reshape([length if keep else 1 for length, keep in runs]), out=table)
        # A weight never becomes 0, however often it is divided: it could not come back.
        np.maximum(self.weights, 1e-300, out=self.weights)
