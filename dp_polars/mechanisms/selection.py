"""Choosing one candidate: the exponential mechanism, permute-and-flip, report noisy max.

What one unit can change: each score by at most `sensitivity`; with `monotone=True` all scores in the same direction
(true for counts when a unit is added or removed, not when one is replaced), which halves the noise. Only the index of
the chosen candidate comes back, never a score. These functions charge no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._numbers import Number, epsilon_of, flag_of, positive
from dp_polars._sampling import (
    SYSTEM_BITS,
    BitSource,
    bernoulli_exp_each,
    discrete_laplace,
    uniform_integer,
    uniform_integers,
)
from dp_polars._sampling.noise import MAX_SCALE
from dp_polars.errors import InvalidDataError, InvalidParameterError
from dp_polars.mechanisms._grid import grid_exponent, in_steps, to_grid
from dp_polars.mechanisms._numeric_input import read_numbers

Scores = Sequence[int] | Sequence[float] | NDArray[Any] | pl.Series
NoiseKind = Literal["laplace", "exponential", "gumbel"]
Places = NDArray[np.int64]

_CHUNK = 1 << 15
_MOST_TRIES = 1 << 20


def exponential(scores: Scores, *, sensitivity: Number, epsilon: Number, monotone: bool = False) -> int:
    """Choose an index with probability proportional to exp(epsilon * score / (2 * sensitivity)), exactly.

    Charges no budget: the caller accounts for `epsilon` (as rho: epsilon**2 / 8, by its bounded range).

    Parameters
    ----------
    scores
        One finite number per candidate; higher is better.
    sensitivity
        The most that one unit can change any score.
    epsilon
        The privacy loss of the choice.
    monotone
        All scores move in the same direction when a unit is added or removed: exp(epsilon * score / sensitivity).

    Returns
    -------
    int
        The index of the chosen candidate.

    Notes
    -----
    McSherry and Talwar 2007. Drawn by rejection in exact arithmetic.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.mechanisms.exponential([0, 0, 500], sensitivity=1, epsilon=1)
    2
    """
    return choose_exponential(read_scores(scores), _rate(sensitivity, epsilon, monotone), SYSTEM_BITS)


def permute_and_flip(scores: Scores, *, sensitivity: Number, epsilon: Number, monotone: bool = False) -> int:
    """Choose an index by permute-and-flip: as private as `exponential`, and never with a larger expected regret.

    Charges no budget. Parameters and result are those of `exponential`.

    Notes
    -----
    McKenna and Sheldon 2020: go through the candidates in random order, stop at one with probability
    exp(epsilon * (score - best) / (2 * sensitivity)). The first head in a random order is a uniform choice among all
    heads, so every coin is thrown at once.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.mechanisms.permute_and_flip([500, 0, 0], sensitivity=1, epsilon=1)
    0
    """
    return choose_permute_and_flip(read_scores(scores), _rate(sensitivity, epsilon, monotone), SYSTEM_BITS)


def report_noisy_max(
    scores: Scores,
    *,
    sensitivity: Number,
    epsilon: Number,
    monotone: bool = False,
    noise: NoiseKind = "exponential",
) -> int:
    """Return the index of the largest score after adding independent noise to each.

    Charges no budget. Parameters are those of `exponential`, and:

    Parameters
    ----------
    scores, sensitivity, epsilon, monotone
        As for `exponential`.
    noise
        "laplace": discrete Laplace of scale 2 * sensitivity / epsilon, ties broken uniformly (Dwork and Roth 2014,
        claim 3.9); "exponential": one-sided, the same choice as `permute_and_flip` (Ding, Kifer et al. 2021);
        "gumbel": the same choice as `exponential`. Monotone scores halve each scale.

    Returns
    -------
    int
        The index of the chosen candidate.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.mechanisms.report_noisy_max([0, 900, 0], sensitivity=1, epsilon=1, noise="laplace")
    1
    """
    if noise not in get_args(NoiseKind):
        raise InvalidParameterError(f"noise must be one of {', '.join(get_args(NoiseKind))}, got {noise!r}.")
    numbers = read_scores(scores)
    rate = _rate(sensitivity, epsilon, monotone)
    if noise == "laplace":
        return choose_noisy_max(numbers, positive(sensitivity, "sensitivity"), rate, SYSTEM_BITS)
    choose = choose_permute_and_flip if noise == "exponential" else choose_exponential
    return choose(numbers, rate, SYSTEM_BITS)


def read_scores(scores: Any) -> NDArray[Any]:
    """Return scores as an array of int64, uint64 or float64."""
    if isinstance(scores, int | float | np.generic) or (isinstance(scores, np.ndarray) and scores.ndim == 0):
        raise InvalidDataError("scores must be one number per candidate, got a single number.")
    array = read_numbers(scores, "scores").array
    if len(array) != len(scores):
        raise InvalidDataError("scores must be one number per candidate, got a table. Flatten it first.")
    if not len(array):
        raise InvalidDataError("scores are empty: there is no candidate to choose.")
    return array


def _rate(sensitivity: Number, epsilon: Number, monotone: bool) -> Fraction:
    """Return how much one point of score counts in the exponent."""
    if not isinstance(monotone, bool | np.bool_):  # the text "False" would count as true, and halve the noise
        raise InvalidParameterError(f"monotone must be True or False, got {type(monotone).__name__}.")
    return epsilon_of(epsilon) / ((1 if flag_of(monotone, "monotone") else 2) * positive(sensitivity, "sensitivity"))


def _gaps(scores: NDArray[Any], rate: Fraction) -> tuple[NDArray[np.float64], Callable[[int], Fraction]]:
    """Return rate * (best - score) for each candidate of each row: as floats to about 1 ulp, and exactly on request.

    The exact gap is asked for by the place of a candidate in the whole table, row after row.
    """
    best = scores.max(axis=1, keepdims=True)
    if scores.dtype.kind == "f":
        with np.errstate(over="ignore"):
            gaps = (best - scores) * float(rate)
    else:  # differences of 64-bit integers fit 64 unsigned bits, also where the subtraction wraps
        gaps = (best.astype(np.uint64) - scores.astype(np.uint64)) * float(rate)

    def exact_gap(place: int) -> Fraction:
        row, column = divmod(place, scores.shape[1])
        return rate * (Fraction(best[row, 0].item()) - Fraction(scores[row, column].item()))

    return gaps, exact_gap


def choose_permute_and_flip(scores: NDArray[Any], rate: Fraction, source: BitSource) -> int:
    """Return a uniform choice among the candidates whose coin exp(-rate * (best - score)) shows heads."""
    return int(permute_and_flip_each(scores[None, :], rate, source)[0])


def permute_and_flip_each(scores: NDArray[Any], rate: Fraction, source: BitSource) -> Places:
    """Return a choice by permute-and-flip for each row of a table of scores, independent of the others."""
    gaps, exact_gap = _gaps(scores, rate)
    flat = gaps.ravel()
    coins = [_coins(flat[start : start + _CHUNK], exact_gap, start, source) for start in range(0, scores.size, _CHUNK)]
    heads = np.concatenate(coins).reshape(scores.shape)  # the best always shows heads
    rows, columns = np.nonzero(heads)
    many = np.bincount(rows, minlength=len(scores))
    first = np.cumsum(many) - many
    # Rows with the same number of heads draw together, each uniformly below that number.
    wanted = np.zeros(len(scores), np.int64)
    for number in np.unique(many).tolist():
        alike = np.flatnonzero(many == number)
        wanted[alike] = uniform_integers(number, len(alike), source).astype(np.int64)
    chosen: Places = columns[first + wanted]
    return chosen


def choose_exponential(scores: NDArray[Any], rate: Fraction, source: BitSource) -> int:
    """Return an index with probability proportional to exp(rate * score): uniform proposals, kept by a coin."""
    return int(exponential_each(scores[None, :], rate, source)[0])


def exponential_each(scores: NDArray[Any], rate: Fraction, source: BitSource) -> Places:
    """Return a choice by the exponential mechanism for each row of a table of scores, independent of the others."""
    gaps, exact_gap = _gaps(scores, rate)
    candidates, flat = scores.shape[1], gaps.ravel()
    chosen = np.zeros(len(scores), np.int64)
    waiting, tries = np.arange(len(scores)), 64 if len(scores) == 1 else 4
    while len(waiting):
        left = []
        for start in range(0, len(waiting), max(1, _CHUNK // tries)):
            rows = waiting[start : start + max(1, _CHUNK // tries)]
            proposals = uniform_integers(candidates, len(rows) * tries, source).astype(np.int64)
            places = proposals + np.repeat(rows, tries) * candidates
            kept = bernoulli_exp_each(flat[places], lambda i: exact_gap(int(places[i])), source)  # noqa: B023
            table = kept.reshape(len(rows), tries)
            first, found = np.argmax(table, axis=1), table.any(axis=1)
            chosen[rows[found]] = proposals.reshape(len(rows), tries)[found, first[found]]
            left.append(rows[~found])
        waiting, tries = np.concatenate(left), min(tries * 2, _MOST_TRIES)
    return chosen


def choose_noisy_max(scores: NDArray[Any], sensitivity: Fraction, rate: Fraction, source: BitSource) -> int:
    """Return the index of the largest score plus discrete Laplace noise of scale 1 / rate.

    Floats go to a grid first: rounding keeps their order and adds at most one step to what a unit can change.
    Breaking ties uniformly is a random order of the candidates drawn beforehand, hence as private as a fixed one.
    """
    scale = 1 / rate
    if scores.dtype.kind == "f":
        exponent = grid_exponent(sensitivity, scale, 1)
        scores = to_grid(scores, exponent)
        scale = (in_steps(sensitivity, exponent) + 1) / (rate * sensitivity)
    if scale > MAX_SCALE:
        raise InvalidParameterError("The noise would be wider than 2**52: use a larger unit for the scores.")
    noise = discrete_laplace(scale, len(scores), source)
    if not (_fits_62_bits(scores) and _fits_62_bits(noise)):
        scores, noise = scores.astype(object), noise.astype(object)
    noisy = scores + noise
    best = np.flatnonzero(noisy == noisy.max())
    return int(best[uniform_integer(len(best), source)])


def peel(scores: NDArray[Any], k: int, rate: Fraction, source: BitSource, *, flips: bool) -> Places:
    """Return for each row of a table of scores up to `k` different places, one after another among those left.

    With the exponential mechanism this is the order of scores with Gumbel noise, drawn once (Durfee and Rogers 2019).
    """
    choose = permute_and_flip_each if flips else exponential_each
    rows = np.arange(len(scores))
    left = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    chosen: list[Places] = []
    while len(chosen) < k and left.shape[1]:
        place = choose(scores, rate, source)
        chosen.append(left[rows, place])
        others = np.ones(scores.shape, np.bool_)
        others[rows, place] = False
        left, scores = (table[others].reshape(len(rows), -1) for table in (left, scores))
    return np.stack(chosen, axis=1) if chosen else np.zeros((len(rows), 0), np.int64)


def _fits_62_bits(numbers: NDArray[Any]) -> bool:
    limit = 1 << 62
    return bool(numbers.dtype == np.int64 and numbers.min() > -limit and numbers.max() < limit)


def _coins(
    gaps: NDArray[np.float64], exact_gap: Callable[[int], Fraction], start: int, source: BitSource
) -> NDArray[np.bool_]:
    return bernoulli_exp_each(gaps, lambda i: exact_gap(start + i), source)
