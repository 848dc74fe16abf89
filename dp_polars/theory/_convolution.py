"""Sums of independent privacy losses: exact while that is affordable, pessimistic beyond.

Atoms are a pair of arrays: losses in increasing order and their probabilities. The Fourier transform is not used,
because its rounding errors drown exactly those tails that delta consists of. Sums of products of nonnegative numbers
keep their relative precision.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dp_polars.theory._rounding import UNIT_ROUNDOFF

Array = NDArray[np.float64]
Atoms = tuple[Array, Array]

MAX_ATOMS = 2**18
"""Largest number of atoms that a composition keeps exactly."""

# Limits on the work: pairs that are sorted, and pairs that an evenly spaced convolution multiplies (about 50 ms each).
# The even convolution moves losses by some ulps, so a small number of pairs is always sorted instead.
_MAX_SORTED_PAIRS = 2**20
_MIN_EVEN_PAIRS = 2**12
_MAX_EVEN_PAIRS = 2**26
# Cells of the grid for both operands together. Each operand then spreads over hundreds of cells.
_GRID_CELLS = 2**14
# Probability that may be cut off at either end once the exact path is left. What is cut off at the top counts as an
# infinite loss.
_TAIL = 1e-40
_EQUAL = 1e-12


def convolve(first: Atoms, second: Atoms) -> tuple[Atoms, float, float, float]:
    """Return the atoms of the sum, the mass cut off from each operand, and the relative rounding error.

    The masses cut off from `first` and `second` now count as infinite losses. They are 0 on the exact path.
    """
    exact = _convolve_exactly(first, second)
    if exact is not None:
        return exact, 0.0, 0.0, _products_error(first, second)
    first, first_cut = _trimmed(first)
    second, second_cut = _trimmed(second)
    exact = _convolve_exactly(first, second)
    if exact is not None:
        return exact, first_cut, second_cut, _products_error(first, second)
    step = (np.ptp(first[0]) + np.ptp(second[0])) / _GRID_CELLS
    (first_start, first_cells, first_error) = _onto_grid(first, step)
    (second_start, second_cells, second_error) = _onto_grid(second, step)
    cells = np.convolve(first_cells, second_cells)
    indices = first_start + second_start + np.arange(cells.size, dtype=np.float64)
    error = first_error + second_error + UNIT_ROUNDOFF * (min(first_cells.size, second_cells.size) + 4)
    return (_raised(indices * step), cells), first_cut, second_cut, error


def merged(losses: Array, probabilities: Array) -> Atoms:
    """Return the atoms in order, with nearly equal losses merged into the largest of them."""
    order = np.argsort(losses, kind="stable")
    losses, probabilities = losses[order], probabilities[order]
    if losses.size < 2:
        return losses, probabilities
    gaps = np.diff(losses) > _EQUAL * max(abs(float(losses[0])), abs(float(losses[-1])))
    last = np.append(np.flatnonzero(gaps), losses.size - 1)
    starts = np.append(0, last[:-1] + 1)
    return losses[last], np.add.reduceat(probabilities, starts)


def _convolve_exactly(first: Atoms, second: Atoms) -> Atoms | None:
    """Return all sums of losses, or None if there would be too many."""
    if min(first[0].size, second[0].size) == 0:
        return np.empty(0), np.empty(0)
    pairs = first[0].size * second[0].size
    even = _convolve_evenly(first, second) if _MIN_EVEN_PAIRS <= pairs <= _MAX_EVEN_PAIRS else None
    if even is not None:
        return even if even[0].size <= MAX_ATOMS else None
    if pairs > _MAX_SORTED_PAIRS:
        return None
    sums = _sum_upward(first[0][:, np.newaxis], second[0][np.newaxis, :]).ravel()
    result = merged(sums, np.multiply.outer(first[1], second[1]).ravel())
    return result if result[0].size <= MAX_ATOMS else None


def _convolve_evenly(first: Atoms, second: Atoms) -> Atoms | None:
    """Return the sums of two arithmetic progressions with the same step, or None if the losses are not such."""
    sizes = first[0].size, second[0].size
    if min(sizes) < 2:
        return None
    steps = [float(np.ptp(losses)) / (losses.size - 1) for losses, _ in (first, second)]
    start = float(first[0][0]) + float(second[0][0])
    scale = max(abs(float(losses[i])) for losses, _ in (first, second) for i in (0, -1))
    step = max(steps)
    deviation = 0.0
    for losses, _ in (first, second):
        distance = losses - (losses[0] + step * np.arange(losses.size, dtype=np.float64))
        if np.abs(distance).max() > _EQUAL * scale:
            return None
        deviation += max(0.0, float(distance.max()))
    probabilities = np.convolve(first[1], second[1])
    # Losses are only ever moved up: by how far the progressions deviate from even spacing, and by the rounding error.
    indices = np.arange(probabilities.size, dtype=np.float64)
    losses = start + step * indices + (deviation + 16.0 * UNIT_ROUNDOFF * scale)
    return _raised(losses), probabilities


def _trimmed(atoms: Atoms) -> tuple[Atoms, float]:
    """Move the lower tail up to the first loss that is kept and cut off the upper tail; return its mass too."""
    losses, probabilities = atoms
    from_top = np.cumsum(probabilities[::-1])[::-1]
    keep_top = max(int(np.count_nonzero(from_top > _TAIL)), 1)
    # The mass that is cut off may have been rounded, or may have underflowed to 0.
    cut = float(from_top[keep_top]) * (1.0 + 1e-9) + 1e-300 if keep_top < losses.size else 0.0
    from_bottom = np.cumsum(probabilities[:keep_top])
    start = min(int(np.count_nonzero(from_bottom <= _TAIL)), keep_top - 1)
    kept = probabilities[start:keep_top].copy()
    kept[0] = from_bottom[start]
    return (losses[start:keep_top], kept), cut


def _onto_grid(atoms: Atoms, step: float) -> tuple[int, Array, float]:
    """Split each atom between the two multiples of `step` around it.

    An outcome with probabilities (p, p·e^{−ℓ}) becomes two outcomes, with the losses below and above ℓ, whose
    probabilities add up to the same pair. Merging the two again gives the original, so by post-processing the original
    is no easier to distinguish. The split is therefore pessimistic, even under composition, and far less so than
    rounding ℓ up. It is the "connect the dots" method of Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022. Returns
    the first multiple, the cells and the relative error of their sums.
    """
    losses, probabilities = atoms
    index = np.floor(losses / step)
    below = np.minimum(index * step - losses, 0.0)
    share = np.minimum(np.expm1(below) / math.expm1(-step) * (1.0 + 1e-14), 1.0)
    first = int(index[0])
    cell = (index - first).astype(np.int64)
    size = int(cell[-1]) + 2
    cells: Array = np.zeros(size)
    cells += np.bincount(cell + 1, probabilities * share, minlength=size)
    cells += np.bincount(cell, probabilities * (1.0 - share), minlength=size)
    crowd = int(np.bincount(cell).max())
    return first, cells, UNIT_ROUNDOFF * (crowd + 4)


def _sum_upward(first: Array, second: Array) -> Array:
    """Return the sums rounded up, by adding one ulp where Knuth's two-sum shows that a sum was rounded down."""
    total = first + second
    part = total - first
    shortfall = (first - (total - part)) + (second - part)
    return np.where(shortfall > 0.0, _raised(total), total)


def _raised(losses: Array) -> Array:
    """Return the next float above each loss, which compensates for one rounding."""
    return np.nextafter(losses, math.inf)


def _products_error(first: Atoms, second: Atoms) -> float:
    return UNIT_ROUNDOFF * (min(first[0].size, second[0].size) + 4)
