"""Choosing one candidate: the exponential mechanism, permute-and-flip, and report noisy max.

One unit can change each score by at most `sensitivity`. With `monotone=True` it moves all scores in the same direction,
which halves the noise. Counts are monotone when a unit is added or removed, but not when one is replaced. Only the
index of the chosen candidate is returned, never a score. These functions charge no budget.
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

    This charges no budget: the caller accounts for `epsilon`, or for a rho of epsilon**2 / 8, because the mechanism has
    a bounded range (Cesar and Rogers 2021).

    Parameters
    ----------
    scores
        One finite number per candidate. Higher is better.
    sensitivity
        The most that one unit can change any score.
    epsilon
        The privacy loss of the choice.
    monotone
        Whether all scores move in the same direction when a unit is added or removed. The probability is then
        proportional to exp(epsilon * score / sensitivity).

    Returns
    -------
    int
        The index of the chosen candidate.

    Notes
    -----
    The mechanism is that of McSherry and Talwar 2007. It is sampled by rejection in exact arithmetic.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.mechanisms.exponential([0, 0, 500], sensitivity=1, epsilon=1)
    2
    """
    return choose_exponential(read_scores(scores), _rate(sensitivity, epsilon, monotone), SYSTEM_BITS)


def permute_and_flip(scores: Scores, *, sensitivity: Number, epsilon: Number, monotone: bool = False) -> int:
    """Choose an index by permute-and-flip, which is as private as `exponential` and has no larger expected regret.

    This charges no budget: the caller accounts for `epsilon`.

    Parameters
    ----------
    scores, sensitivity, epsilon, monotone
        As for `exponential`.

    Returns
    -------
    int
        The index of the chosen candidate.

    Notes
    -----
    Permute-and-flip (McKenna and Sheldon 2020) visits the candidates in random order and stops at each with probability
    exp(epsilon * (score - best) / (2 * sensitivity)). The first heads in a random order is a uniform choice among all
    heads, so this implementation flips all coins at once.

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

    This charges no budget: the caller accounts for `epsilon`.

    Parameters
    ----------
    scores, sensitivity, epsilon, monotone
        As for `exponential`.
    noise
        "laplace" is discrete Laplace noise of scale 2 * sensitivity / epsilon with ties broken uniformly (Dwork and
        Roth 2014, claim 3.9). "exponential" is one-sided noise and gives the same distribution as `permute_and_flip`
        (Ding, Kifer et al. 2021). "gumbel" gives the same distribution as `exponential`. Monotone scores halve each
        scale.

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
    """Read scores as an array of int64, uint64 or float64."""
    if isinstance(scores, int | float | np.generic) or (isinstance(scores, np.ndarray) and scores.ndim == 0):
        raise InvalidDataError("scores must be one number per candidate, got a single number.")
    array = read_numbers(scores, "scores").array
    if len(array) != len(scores):
        raise InvalidDataError("scores must be one number per candidate, got a table. Flatten it first.")
    if not len(array):
        raise InvalidDataError("scores are empty, so there is no candidate to choose.")
    return array


def _rate(sensitivity: Number, epsilon: Number, monotone: bool) -> Fraction:
    """Return the factor of the score in the exponent."""
    one_way = flag_of(monotone, "monotone")  # the text "False" would count as true and halve the noise
    return epsilon_of(epsilon) / ((1 if one_way else 2) * positive(sensitivity, "sensitivity"))


def _gaps(scores: NDArray[Any], rate: Fraction) -> tuple[NDArray[np.float64], Callable[[int], Fraction]]:
    """Return rate * (best - score) for each candidate of each row, as floats and as a function for the exact gap.

    The floats are accurate to about 1 ulp. The function takes the candidate's position in the whole table, counted row
    by row.
    """
    best = scores.max(axis=1, keepdims=True)
    if scores.dtype.kind == "f":
        with np.errstate(over="ignore"):
            gaps = (best - scores) * float(rate)
    else:  # a difference of 64-bit integers fits into 64 unsigned bits even if the subtraction wraps around
        gaps = (best.astype(np.uint64) - scores.astype(np.uint64)) * float(rate)

    def exact_gap(place: int) -> Fraction:
        row, column = divmod(place, scores.shape[1])
        return rate * (Fraction(best[row, 0].item()) - Fraction(scores[row, column].item()))

    return gaps, exact_gap


def choose_permute_and_flip(scores: NDArray[Any], rate: Fraction, source: BitSource) -> int:
    """Choose uniformly among the candidates whose coin of probability exp(-rate * (best - score)) shows heads."""
    return int(permute_and_flip_each(scores[None, :], rate, source)[0])


def permute_and_flip_each(scores: NDArray[Any], rate: Fraction, source: BitSource) -> Places:
    """Choose by permute-and-flip in each row of a table of scores, independently."""
    gaps, exact_gap = _gaps(scores, rate)
    flat = gaps.ravel()
    coins = [_coins(flat[start : start + _CHUNK], exact_gap, start, source) for start in range(0, scores.size, _CHUNK)]
    heads = np.concatenate(coins).reshape(scores.shape)  # the best candidate always shows heads
    rows, columns = np.nonzero(heads)
    many = np.bincount(rows, minlength=len(scores))
    first = np.cumsum(many) - many
    # Rows with the same number of heads draw together, each a uniform integer below that number.
    wanted = np.zeros(len(scores), np.int64)
    for number in np.unique(many).tolist():
        alike = np.flatnonzero(many == number)
        wanted[alike] = uniform_integers(number, len(alike), source).astype(np.int64)
    chosen: Places = columns[first + wanted]
    return chosen


def choose_exponential(scores: NDArray[Any], rate: Fraction, source: BitSource) -> int:
    """Choose an index with probability proportional to exp(rate * score), by rejection from uniform proposals."""
    return int(exponential_each(scores[None, :], rate, source)[0])


def exponential_each(scores: NDArray[Any], rate: Fraction, source: BitSource) -> Places:
    """Choose by the exponential mechanism in each row of a table of scores, independently."""
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

    Floats are rounded to a grid first, which keeps their order and adds at most one step to what a unit can change.
    Breaking ties uniformly amounts to a random order of the candidates drawn beforehand, so it is as private as any
    fixed order.
    """
    scale = 1 / rate
    if scores.dtype.kind == "f":
        exponent = grid_exponent(sensitivity, scale, 1)
        scores = to_grid(scores, exponent)
        scale = (in_steps(sensitivity, exponent) + 1) / (rate * sensitivity)
    if scale > MAX_SCALE:
        raise InvalidParameterError("The noise would be wider than 2**52. Use a larger unit for the scores.")
    noise = discrete_laplace(scale, len(scores), source)
    if not (_fits_62_bits(scores) and _fits_62_bits(noise)):
        scores, noise = scores.astype(object), noise.astype(object)
    noisy = scores + noise
    best = np.flatnonzero(noisy == noisy.max())
    return int(best[uniform_integer(len(best), source)])


def peel(scores: NDArray[Any], k: int, rate: Fraction, source: BitSource, *, flips: bool) -> Places:
    """Choose up to `k` different candidates in each row, one after another among those that are left.

    With the exponential mechanism this equals the order of the scores with Gumbel noise drawn once (Durfee and Rogers
    2019). With `flips` each choice is made by permute-and-flip.
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
