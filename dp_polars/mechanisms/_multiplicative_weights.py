"""A public estimate of how rows are distributed over the cells of a domain, improved by multiplicative weights.

Nothing here reads private rows. The estimate starts uniform and moves with noisy measurements only, so everything here
is post-processing and may use floats. Queries and measurements are partitions of the cells that depend on some of the
axes.
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
"""The exponent of the update for a gap of 1, which is the largest possible gap; see `Hypothesis.learn`."""


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition of the cells: a marginal if `packed` is None, else the cells where a predicate is false and true.

    `axes` are the columns that the partition depends on, in increasing order, and `shape` is their lengths in the
    domain. The predicate over the product of these columns is stored as bits.
    """

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    packed: NDArray[np.uint8] | None = None

    @classmethod
    def of_predicate(cls, axes: tuple[int, ...], mask: NDArray[np.bool_]) -> Partition:
        """Return the partition into the cells where a predicate is false and those where it is true."""
        return cls(axes, mask.shape, np.packbits(mask))

    @property
    def cells(self) -> int:
        """The number of parts."""
        return math.prod(self.shape) if self.packed is None else 2

    @property
    def mask(self) -> NDArray[np.bool_]:
        """The cells, over `axes`, where the predicate is true."""
        if self.packed is None:
            raise ValueError("a marginal has no predicate")
        return np.unpackbits(self.packed, count=math.prod(self.shape)).reshape(self.shape).astype(bool)

    def totals(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return the sum of a table over each part in the table's own type, so integers stay exact."""
        marginal = over(table, self.axes)
        if self.packed is None:
            return marginal.ravel()
        true = marginal[self.mask].sum(dtype=table.dtype)
        return np.array([marginal.sum(dtype=table.dtype) - true, true], dtype=table.dtype)

    def spread(self, parts: Floats) -> Floats:
        """Return a table over `axes` with the number of each cell's part."""
        return parts.reshape(self.shape) if self.packed is None else np.where(self.mask, parts[1], parts[0])


def over(table: NDArray[Any], axes: Sequence[int]) -> NDArray[Any]:
    """Sum a table over all axes except `axes`, which are in increasing order.

    Neighbouring axes that are kept, or that are summed, are merged into one, and sums go from the first axis to the
    last, because numpy is many times slower over a dozen axes of length 2.
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
    """Return the runs of neighbouring axes that are all in `axes` or all not: (their length, whether they are)."""
    runs: list[tuple[int, bool]] = []
    for axis, length in enumerate(dims):
        keep = axis in axes
        if runs and runs[-1][1] == keep:
            runs[-1] = (runs[-1][0] * length, keep)
        else:
            runs.append((length, keep))
    return runs


class Hypothesis:
    """The estimated distribution: weights over the cells that sum to 1."""

    def __init__(self, dims: tuple[int, ...]) -> None:
        self.weights: Floats = np.full(dims, 1 / math.prod(dims))

    def share(self, axes: Sequence[int], mask: NDArray[np.bool_]) -> float:
        """Return the total weight of the cells where a predicate over `axes` is true."""
        return float((over(self.weights, axes) * mask).sum())  # faster than selecting a million cells

    def learn(self, axes: Sequence[int], mask: NDArray[np.bool_], gap: float) -> None:
        """Move towards the measured share of a predicate, which differs from the estimated share by `gap`.

        Each cell where the predicate holds is multiplied by exp(s) with s = 4 * gap, for the following reason. Let x be
        the true distribution, p the estimate, and g = x(q) - p(q). The divergence of x from p falls by
        s*x(q) - ln E_p exp(s*q), which by Hoeffding's lemma is at least s*g - s**2/8. With s = 4g that is 2 g**2, and
        with a gap measured to within g/2 it is still 3/2 g**2. The divergence starts at ln|X| or less and is never
        negative, so at most ln|X| / (3/2 alpha**2) such updates have a gap of alpha or more. Hardt and Rothblum 2010,
        and Dwork and Roth 2014, theorem 4.10, take s = alpha/2 and prove 4 ln|X| / alpha**2; six times as many updates
        would mean six times the noise.
        """
        growth = math.exp(LARGEST_STEP * max(-1.0, min(gap, 1.0)))
        total = float(self.weights.sum()) + self.share(axes, mask) * (growth - 1)
        self._multiply(axes, np.where(mask, growth / total, 1 / total))

    def fit(self, measured: Sequence[tuple[Partition, Floats, float]], size: float, passes: int) -> None:
        """Go through all measurements `passes` times and move part of the way towards each.

        A measurement consists of the noisy counts m of a partition's parts and the scale b of their noise. Where MWEM
        (Hardt, Ligett and McSherry 2012) multiplies a part by exp((m - h) / (2 n)), with h the estimated count and n
        the number of rows, it is here multiplied by exp((m - h) / (2 (h + b))). The step is relative to the size of the
        part, so small parts make progress too, unless they are smaller than the noise.
        """
        for _ in range(passes):
            for partition, counts, scale in measured:
                now = partition.totals(self.weights) * size
                step = np.clip((counts - now) / (2 * (np.maximum(now, 0) + max(scale, 0.5))), -0.5, 0.5)
                growth = np.exp(step)
                total = float((now * growth).sum()) / size
                self._multiply(partition.axes, partition.spread(growth / total))

    def _multiply(self, axes: Sequence[int], factor: Floats) -> None:
        """Multiply all cells in place by a factor that depends on `axes` and makes the weights sum to 1 again."""
        runs = merged(self.weights.shape, axes)
        table = self.weights.reshape([length for length, _ in runs])
        np.multiply(table, factor.reshape([length if keep else 1 for length, keep in runs]), out=table)
        # A weight must never become 0, because it could not grow again.
        np.maximum(self.weights, 1e-300, out=self.weights)
