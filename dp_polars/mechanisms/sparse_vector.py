"""The sparse vector technique: which answers of a long stream lie above a threshold, paying for the hits alone.

What one unit can change: every exact answer by at most `sensitivity`; with `monotone=True` all answers in the same
direction. The answers may be chosen one after another, depending on what came back. The guarantee covers the whole
stream up to the last hit; nothing is paid for answers below the threshold. These functions charge no budget.

Answers are put on a grid far finer than the noise, which adds one step to what a unit can change; all noise is
discrete Laplace on that grid, so every comparison is between integers.


How far off a sparse vector stream may be: the margin of its comparisons and the error of its values.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, NoReturn, get_args

import numpy as np

from dp_polars._numbers import (
    MIN_EPSILON,
    Number,
    count_of,
    delta_of,
    epsilon_of,
    exact,
    flag_of,
    positive,
    probability_of,
)
from dp_polars._sampling import SYSTEM_BITS, BitSource, discrete_laplace
from dp_polars._sampling.noise import MAX_SCALE
from dp_polars.errors import InvalidDataError, InvalidParameterError
from dp_polars.mechanisms._grid import grid_exponent, in_steps
from dp_polars.theory import advanced

Constants = Literal["lyu-su-li", "dwork-roth"]

_VALUE_SHARE = Fraction(1, 3)  # of epsilon, with Lyu-Su-Li's constants: value and comparison then err alike
_MOST_AHEAD = 256
_LARGEST = Fraction(sys.float_info.max)
_TOO_WIDE = "The noise would not fit 64 bits: use a larger epsilon or fewer hits."


@dataclass(frozen=True)
class SparseScales:
    """Noise scales per unit of sensitivity, and whether the threshold's noise is drawn anew after each hit."""

    hits: int
    threshold: Fraction
    query: Fraction
    value: Fraction | None
    renew: bool


def above_threshold(
    answers: Iterable[int | float],
    *,
    threshold: Number,
    sensitivity: Number,
    epsilon: Number,
    monotone: bool = False,
    constants: Constants = "lyu-su-li",
) -> Iterator[bool]:
    """Yield for each exact answer whether it is above the threshold, ending with the first that is.

    Charges no budget: the caller accounts for `epsilon`, whatever the number of answers.

    Parameters
    ----------
    answers
        Exact answers; an iterator is read one by one, so later ones may depend on earlier results.
    threshold
        The public threshold.
    sensitivity
        The most that one unit can change any answer.
    epsilon
        The privacy loss of the whole stream.
    monotone
        All answers move in the same direction when a unit is added or removed (counts do, under add/remove).
    constants
        "lyu-su-li" (Lyu, Su, Li 2017) or "dwork-roth" (Dwork and Roth 2014, algorithm 1).

    Yields
    ------
    bool
        False while answers are below; True once.

    Examples
    --------
    >>> import dp_polars as dp
    >>> list(dp.mechanisms.above_threshold([0, 5, 900], threshold=500, sensitivity=1, epsilon=1))
    [False, False, True]
    """
    return sparse(
        answers,
        threshold=threshold,
        hits=1,
        sensitivity=sensitivity,
        epsilon=epsilon,
        monotone=monotone,
        constants=constants,
    )


def sparse(
    answers: Iterable[int | float],
    *,
    threshold: Number,
    hits: int,
    sensitivity: Number,
    epsilon: Number,
    delta: Number | None = None,
    monotone: bool = False,
    constants: Constants = "lyu-su-li",
) -> Iterator[bool]:
    """Yield for each exact answer whether it is above the threshold, ending with the last of `hits` that are.

    Charges no budget: the caller accounts for `epsilon` (and `delta` where given), whatever the number of answers.

    Parameters
    ----------
    answers, threshold, sensitivity, epsilon, monotone, constants
        As for `above_threshold`.
    hits
        After how many answers above the threshold the stream ends.
    delta
        With the constants "dwork-roth": allows the noise of advanced composition, used where it is smaller (from
        about 8 ln(1/delta) hits; for `numeric_sparse` from about 55 ln(2/delta)).

    Yields
    ------
    bool
        Whether the answer is above the threshold.

    Examples
    --------
    >>> import dp_polars as dp
    >>> found = dp.mechanisms.sparse([0, 900, 0, 900, 900], threshold=500, hits=2, sensitivity=1, epsilon=1)
    >>> list(found)
    [False, True, False, True]
    """
    scales = sparse_scales(epsilon, hits, delta=delta, monotone=monotone, constants=constants, numeric=False)
    vector = SparseVector(scales, exact(threshold, "threshold"), positive(sensitivity, "sensitivity"), SYSTEM_BITS)
    return (result is not None for result in vector.answer(answers))


def numeric_sparse(
    answers: Iterable[int | float],
    *,
    threshold: Number,
    hits: int,
    sensitivity: Number,
    epsilon: Number,
    delta: Number | None = None,
    monotone: bool = False,
    constants: Constants = "lyu-su-li",
) -> Iterator[float | None]:
    """Yield None for answers below the threshold and a noisy value for those above, ending with the last of `hits`.

    Charges no budget. Parameters are those of `sparse`; the values are paid from the same `epsilon`.

    Notes
    -----
    "lyu-su-li": a third of epsilon for the values, the rest for the comparisons. "dwork-roth": algorithm 3 of Dwork and
    Roth 2014, epsilon_1 = 8/9 epsilon for the test and values with noise 2 hits / epsilon_2, epsilon_2 = 2/9 epsilon,
    whose price is epsilon_2 / 2.

    Yields
    ------
    float or None
        A noisy value, with noise of its own, or None.

    Examples
    --------
    >>> import dp_polars as dp
    >>> seen = dp.mechanisms.numeric_sparse([0, 9_000, 0], threshold=500, hits=1, sensitivity=1, epsilon=1)
    >>> [value if value is None else round(value, -3) for value in seen]
    [None, 9000.0]
    """
    scales = sparse_scales(epsilon, hits, delta=delta, monotone=monotone, constants=constants, numeric=True)
    return SparseVector(
        scales, exact(threshold, "threshold"), positive(sensitivity, "sensitivity"), SYSTEM_BITS
    ).answer(answers)


def sparse_scales(
    epsilon: Number,
    hits: int,
    *,
    delta: Number | None,
    monotone: bool,
    constants: Constants,
    numeric: bool,
) -> SparseScales:
    """Return the noise scales per unit of sensitivity for a spend."""
    loss, count, monotone = epsilon_of(epsilon), count_of(hits, "hits"), flag_of(monotone, "monotone")
    if count > MAX_SCALE * loss:
        raise InvalidParameterError(_TOO_WIDE)
    if constants not in get_args(Constants):
        raise InvalidParameterError(f"constants must be one of {', '.join(get_args(Constants))}, got {constants!r}.")
    if constants == "lyu-su-li":
        if delta is not None:
            raise InvalidParameterError("delta is for constants='dwork-roth'; Lyu-Su-Li's are pure and less noisy.")
        return _lyu_su_li(loss, count, monotone, numeric)
    return _dwork_roth(loss, count, None if delta is None else delta_of(delta), monotone, numeric)


def _lyu_su_li(epsilon: Fraction, hits: int, monotone: bool, numeric: bool) -> SparseScales:
    test = epsilon * (1 - _VALUE_SHARE) if numeric else epsilon
    moved = hits if monotone else 2 * hits
    # epsilon_1 : epsilon_2 = 1 : moved**(2/3), their sum exact (Lyu, Su, Li 2017, section 4.2).
    first = test * max(Fraction(1 / (1 + moved ** (2 / 3))).limit_denominator(10**9), Fraction(1, 10**9))
    value = hits / (epsilon * _VALUE_SHARE) if numeric else None
    return SparseScales(hits, 1 / first, moved / (test - first), value, renew=False)


def _dwork_roth(epsilon: Fraction, hits: int, delta: Fraction | None, monotone: bool, numeric: bool) -> SparseScales:
    """Return the scales of hits repetitions of AboveThreshold: Lap(s) on the threshold, Lap(2s) on each query."""
    test = epsilon * Fraction(8, 9) if numeric else epsilon
    value_part = epsilon * Fraction(2, 9)
    sigma, value = 2 * hits / test, 2 * hits / value_part
    if delta is not None:
        root = Fraction(math.sqrt(512))
        slack = delta / 2 if numeric else delta
        wide_test = epsilon * root / (root + 1) if numeric else epsilon
        wide_value = epsilon * 2 / (root + 1)
        noise = Fraction(math.sqrt(32 * hits * math.log(1 / slack)) * (1 + 1e-12))
        # Of the two noises, that of the values is the last to become smaller.
        smaller = noise / wide_value < value if numeric else noise / wide_test < sigma
        if noise and smaller and _covered(hits, noise, wide_test, wide_value, slack, epsilon, numeric):
            sigma, value = noise / wide_test, noise / wide_value
    query = sigma if monotone else 2 * sigma
    return SparseScales(hits, sigma, query, value if numeric else None, renew=True)


def _covered(
    hits: int,
    noise: Fraction,
    test: Fraction,
    value: Fraction,
    slack: Fraction,
    epsilon: Fraction,
    numeric: bool,
) -> bool:
    """Whether advanced composition of these noises stays within epsilon: the short formula assumes a small one."""
    each = 2 * test / noise
    if each > epsilon:
        return False
    spent = advanced(max(each, MIN_EPSILON), hits, slack=slack).epsilon
    if numeric:
        spent += advanced(max(value / noise, MIN_EPSILON), hits, slack=slack).epsilon
    return spent <= float(epsilon)


def noise_grid(scales: SparseScales, sensitivity: Fraction) -> tuple[int, int]:
    """Return the grid of a stream's noise: its step as a power of two, and how many steps one unit moves an answer."""
    noises = [scale * sensitivity for scale in (scales.threshold, scales.query, scales.value) if scale]
    exponent = max(
        grid_exponent(sensitivity, min(noises), 1),
        grid_exponent(max(noises), max(noises), 1) - 32,  # the widest noise still fits 64 bits
    )
    steps = math.floor(in_steps(sensitivity, exponent)) + 1
    if steps * max(noises) > sensitivity * MAX_SCALE:
        raise InvalidParameterError(_TOO_WIDE)
    return exponent, steps


class SparseVector:
    """An open stream: asks one integer comparison after another until its hits are used up."""

    def __init__(self, scales: SparseScales, threshold: Fraction, sensitivity: Fraction, source: BitSource) -> None:
        self._exponent, steps = noise_grid(scales, sensitivity)
        self._scales, self._steps, self._source = scales, steps, source
        self._base = round(in_steps(threshold, self._exponent))
        self._query_noise = _Ahead(scales.query * steps, source)
        self._threshold = self._base + self._draw(scales.threshold)
        self.hits_left = scales.hits
        self._lock = threading.Lock()

    def _draw(self, scale: Fraction) -> int:
        return int(discrete_laplace(scale * self._steps, 1, self._source)[0])

    def ask(self, answer: int | float | Fraction) -> float | None:
        """Return None for an answer below the threshold, else its noisy value (NaN where values are not released)."""
        with self._lock:
            return self._ask(answer)

    def _ask(self, answer: int | float | Fraction) -> float | None:
        if self.hits_left <= 0:
            raise InvalidParameterError("This stream is closed: all its hits are used up.")
        point = round(in_steps(_finite(answer), self._exponent))
        if point + self._query_noise.next() < self._threshold:
            return None
        self.hits_left -= 1
        if self._scales.renew and self.hits_left:
            self._threshold = self._base + self._draw(self._scales.threshold)
        if self._scales.value is None:
            return math.nan
        noisy = (point + self._draw(self._scales.value)) * Fraction(2) ** self._exponent
        return float(max(-_LARGEST, min(noisy, _LARGEST)))

    def __reduce__(self) -> NoReturn:
        raise InvalidParameterError("A stream can't be copied: two copies would answer for the price of one.")

    def answer(self, answers: Iterable[int | float]) -> Iterator[float | None]:
        """Yield `ask` of each answer until the last hit."""
        for answer in answers:
            yield self.ask(answer)
            if not self.hits_left:
                return


class _Ahead:
    """Noise drawn a little ahead, in growing batches: it depends on nothing that is asked."""

    def __init__(self, scale: Fraction, source: BitSource) -> None:
        self._scale, self._source, self._batch = scale, source, 2
        self._drawn: list[int] = []

    def next(self) -> int:
        if not self._drawn:
            self._batch = min(2 * self._batch, _MOST_AHEAD)
            self._drawn = discrete_laplace(self._scale, self._batch, self._source).tolist()
        return self._drawn.pop()


def _finite(answer: Any) -> Fraction:
    if isinstance(answer, np.generic):
        answer = answer.item()
    if isinstance(answer, bool) or not isinstance(answer, int | float | Fraction):
        raise InvalidDataError(f"answers must be numbers, got {type(answer).__name__}.")
    if isinstance(answer, float) and not math.isfinite(answer):
        raise InvalidDataError("An answer is NaN or infinite; no noise hides that.")
    return Fraction(answer)


# The grid of a stream adds less than this part to its noise.
_GRID = 1 + 2.0**-14


class SparseError(NamedTuple):
    """What holds for a whole stream at once.

    `margin`: an answer further than this below the threshold is reported below, one further above is reported above.
    `value`: a released value is no further off than this (None where no values are released).
    """

    margin: float
    value: float | None


def sparse_error(
    *,
    answers: int,
    hits: int,
    sensitivity: Number,
    epsilon: Number,
    delta: Number | None = None,
    confidence: Number = 0.95,
    monotone: bool = False,
    constants: Constants = "lyu-su-li",
    numeric: bool = False,
) -> SparseError:
    """Return the errors that a stream of `sparse` (or `numeric_sparse`) stays within, with this confidence.

    Parameters
    ----------
    answers
        How many answers are asked at most.
    hits, sensitivity, epsilon, delta, monotone, constants
        As for `sparse`; `hits=1` for `above_threshold`.
    confidence
        The probability with which both errors hold for the whole stream.
    numeric
        For `numeric_sparse`, whose values are paid from the same epsilon.

    Returns
    -------
    SparseError
        The margin of the comparisons and the error of the values.

    Examples
    --------
    >>> import dp_polars as dp
    >>> error = dp.mechanisms.sparse_error(answers=200, hits=2, sensitivity=1, epsilon=1, monotone=True, numeric=True)
    >>> round(error.margin, 1), round(error.value, 1)
    (61.8, 28.7)
    """
    scales = sparse_scales(epsilon, hits, delta=delta, monotone=monotone, constants=constants, numeric=numeric)
    reach = float(positive(sensitivity, "sensitivity")) * _GRID
    asked = count_of(answers, "answers")
    kinds = 3 if numeric else 2
    miss = (1 - probability_of(confidence, "confidence")) / kinds

    def largest(scale: Fraction, count: int) -> float:
        """Return what `count` Laplace noises all stay within but for probability `miss`."""
        return float(scale) * reach * math.log(count / miss)

    thresholds = scales.hits if scales.renew else 1
    margin = largest(scales.query, asked) + largest(scales.threshold, thresholds)
    return SparseError(margin, None if scales.value is None else largest(scales.value, scales.hits))
