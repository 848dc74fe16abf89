"""The sparse vector technique: find the answers of a long stream that lie above a threshold and pay only for those.

One unit can change every exact answer by at most `sensitivity`; with `monotone=True` it moves all answers in the same
direction. Answers may be chosen one after another, depending on earlier results. The guarantee covers the whole stream
up to the last hit, and answers below the threshold cost nothing. These functions charge no budget.

Answers are rounded to a grid that is far finer than the noise, which adds one step to what a unit can change. All noise
is discrete Laplace noise on that grid, so every comparison is between integers.
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

# The part of epsilon that pays for values with Lyu, Su and Li's constants: values err about as much as comparisons.
_VALUE_SHARE = Fraction(1, 3)
_LARGEST_BATCH = 256  # how much noise is drawn ahead
_LARGEST = Fraction(sys.float_info.max)
_TOO_WIDE = "The noise would not fit into 64 bits. Use a larger epsilon or fewer hits."


@dataclass(frozen=True)
class SparseScales:
    """Noise scales per unit of sensitivity. `renew` says whether each hit draws new noise for the threshold."""

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
    """Yield for each exact answer whether it is above the threshold, and stop after the first that is.

    This charges no budget: the caller accounts for `epsilon`, whatever the number of answers.

    Parameters
    ----------
    answers
        Exact answers. An iterator is read one by one, so later answers may depend on earlier results.
    threshold
        The public threshold.
    sensitivity
        The most that one unit can change any answer.
    epsilon
        The privacy loss of the whole stream.
    monotone
        Whether all answers move in the same direction when a unit is added or removed, as counts do.
    constants
        The noise scales: "lyu-su-li" (Lyu, Su and Li 2017) or "dwork-roth" (Dwork and Roth 2014, algorithm 1).

    Yields
    ------
    bool
        False for answers below the threshold, then True once.

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
    """Yield for each exact answer whether it is above the threshold, and stop after `hits` answers that are.

    This charges no budget: the caller accounts for `epsilon`, and `delta` if given, whatever the number of answers.

    Parameters
    ----------
    answers, threshold, sensitivity, epsilon, monotone, constants
        As for `above_threshold`.
    hits
        The number of answers above the threshold after which the stream ends.
    delta
        For constants="dwork-roth" only: allows the noise of advanced composition, which is used where it is smaller
        (from about 8 ln(1/delta) hits, and for `numeric_sparse` from about 55 ln(2/delta) hits).

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
    """Yield None for answers below the threshold and a noisy value for those above, and stop after `hits` values.

    This charges no budget: the caller accounts for `epsilon`, which pays for the values too, and for `delta` if given.

    Parameters
    ----------
    answers, threshold, hits, sensitivity, epsilon, delta, monotone, constants
        As for `sparse`.

    Yields
    ------
    float or None
        None for an answer below the threshold, otherwise its value with fresh noise.

    Notes
    -----
    With "lyu-su-li" a third of epsilon goes to the values and the rest to the comparisons. "dwork-roth" is algorithm 3
    of Dwork and Roth 2014: epsilon_1 = 8/9 epsilon goes to the comparisons, and the values get noise of scale
    2 hits / epsilon_2 with epsilon_2 = 2/9 epsilon, whose price is epsilon_2 / 2.

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
    """Return the noise scales that a spend gives, per unit of sensitivity."""
    loss, count, monotone = epsilon_of(epsilon), count_of(hits, "hits"), flag_of(monotone, "monotone")
    if count > MAX_SCALE * loss:
        raise InvalidParameterError(_TOO_WIDE)
    if constants not in get_args(Constants):
        raise InvalidParameterError(f"constants must be one of {', '.join(get_args(Constants))}, got {constants!r}.")
    if constants == "lyu-su-li":
        if delta is not None:
            raise InvalidParameterError(
                "delta= only applies to constants='dwork-roth'. Leave it out: the default constants need no delta "
                "and are less noisy."
            )
        return _lyu_su_li(loss, count, monotone, numeric)
    return _dwork_roth(loss, count, None if delta is None else delta_of(delta), monotone, numeric)


def _lyu_su_li(epsilon: Fraction, hits: int, monotone: bool, numeric: bool) -> SparseScales:
    test = epsilon * (1 - _VALUE_SHARE) if numeric else epsilon
    moved = hits if monotone else 2 * hits
    # epsilon_1 : epsilon_2 = 1 : moved**(2/3), with an exact sum (Lyu, Su and Li 2017, section 4.2).
    first = test * max(Fraction(1 / (1 + moved ** (2 / 3))).limit_denominator(10**9), Fraction(1, 10**9))
    value = hits / (epsilon * _VALUE_SHARE) if numeric else None
    return SparseScales(hits, 1 / first, moved / (test - first), value, renew=False)


def _dwork_roth(epsilon: Fraction, hits: int, delta: Fraction | None, monotone: bool, numeric: bool) -> SparseScales:
    """Return the scales for `hits` repetitions of AboveThreshold: Lap(s) on the threshold, Lap(2s) on each query."""
    test = epsilon * Fraction(8, 9) if numeric else epsilon
    value_part = epsilon * Fraction(2, 9)
    sigma, value = 2 * hits / test, 2 * hits / value_part
    if delta is not None:
        root = Fraction(math.sqrt(512))
        slack = delta / 2 if numeric else delta
        wide_test = epsilon * root / (root + 1) if numeric else epsilon
        wide_value = epsilon * 2 / (root + 1)
        noise = Fraction(math.sqrt(32 * hits * math.log(1 / slack)) * (1 + 1e-12))
        # With more hits, the noise of the values is the last of the two to become smaller than without delta.
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
    """Return whether advanced composition of these noises stays within epsilon, as the short formula assumes."""
    each = 2 * test / noise
    if each > epsilon:
        return False
    spent = advanced(max(each, MIN_EPSILON), hits, slack=slack).epsilon
    if numeric:
        spent += advanced(max(value / noise, MIN_EPSILON), hits, slack=slack).epsilon
    return spent <= float(epsilon)


def noise_grid(scales: SparseScales, sensitivity: Fraction) -> tuple[int, int]:
    """Return the exponent of the noise grid of a stream, and the steps by which one unit can move an answer."""
    noises = [scale * sensitivity for scale in (scales.threshold, scales.query, scales.value) if scale]
    exponent = max(
        grid_exponent(sensitivity, min(noises), 1),
        grid_exponent(max(noises), max(noises), 1) - 32,  # the widest noise must fit into 64 bits
    )
    steps = math.floor(in_steps(sensitivity, exponent)) + 1
    if steps * max(noises) > sensitivity * MAX_SCALE:
        raise InvalidParameterError(_TOO_WIDE)
    return exponent, steps


class SparseVector:
    """An open stream, which makes one integer comparison after another until its hits are used up."""

    def __init__(self, scales: SparseScales, threshold: Fraction, sensitivity: Fraction, source: BitSource) -> None:
        self._exponent, steps = noise_grid(scales, sensitivity)
        self._scales, self._steps, self._source = scales, steps, source
        self._base = round(in_steps(threshold, self._exponent))
        self._query_noise = _NoiseBuffer(scales.query * steps, source)
        self._threshold = self._base + self._draw(scales.threshold)
        self.hits_left = scales.hits
        self._lock = threading.Lock()

    def _draw(self, scale: Fraction) -> int:
        return int(discrete_laplace(scale * self._steps, 1, self._source)[0])

    def ask(self, answer: int | float | Fraction) -> float | None:
        """Return None for an answer below the threshold, else its noisy value, or NaN if values are not released."""
        with self._lock:
            return self._ask(answer)

    def _ask(self, answer: int | float | Fraction) -> float | None:
        if self.hits_left <= 0:
            raise InvalidParameterError("This stream is closed because all its hits are used up.")
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
        raise InvalidParameterError("A stream can't be copied, because two copies would answer for the price of one.")

    def answer(self, answers: Iterable[int | float]) -> Iterator[float | None]:
        """Yield the result of `ask` for each answer until the last hit."""
        for answer in answers:
            yield self.ask(answer)
            if not self.hits_left:
                return


class _NoiseBuffer:
    """Noise that is drawn ahead in growing batches, which is safe because it depends on nothing that is asked."""

    def __init__(self, scale: Fraction, source: BitSource) -> None:
        self._scale, self._source, self._batch = scale, source, 2
        self._drawn: list[int] = []

    def next(self) -> int:
        if not self._drawn:
            self._batch = min(2 * self._batch, _LARGEST_BATCH)
            self._drawn = discrete_laplace(self._scale, self._batch, self._source).tolist()
        return self._drawn.pop()


def _finite(answer: Any) -> Fraction:
    if isinstance(answer, np.generic):
        answer = answer.item()
    if isinstance(answer, bool) or not isinstance(answer, int | float | Fraction):
        raise InvalidDataError(f"answers must be numbers, got {type(answer).__name__}.")
    if isinstance(answer, float) and not math.isfinite(answer):
        raise InvalidDataError("An answer is NaN or infinite, which no noise can hide.")
    return Fraction(answer)


# Rounding to the grid of a stream increases its noise by less than this factor.
_GRID_FACTOR = 1 + 2.0**-14


class SparseError(NamedTuple):
    """The errors that hold for a whole stream at once.

    An answer that is further than `margin` below the threshold is reported as below, and one further above it as above.
    A released value has an error of at most `value`, which is None if no values are released.
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
    """Return the errors within which a stream of `sparse` or `numeric_sparse` stays with this confidence.

    Parameters
    ----------
    answers
        The largest number of answers that are asked.
    hits, sensitivity, epsilon, delta, monotone, constants
        As for `sparse`. For `above_threshold`, use `hits=1`.
    confidence
        The probability that both errors hold for the whole stream.
    numeric
        Whether values are released, as by `numeric_sparse`; they are paid from the same epsilon.

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
    reach = float(positive(sensitivity, "sensitivity")) * _GRID_FACTOR
    asked = count_of(answers, "answers")
    kinds = 3 if numeric else 2
    miss = (1 - probability_of(confidence, "confidence")) / kinds

    def largest(scale: Fraction, count: int) -> float:
        """Return a bound that all of `count` Laplace noises keep, except with probability `miss`."""
        return float(scale) * reach * math.log(count / miss)

    thresholds = scales.hits if scales.renew else 1
    margin = largest(scales.query, asked) + largest(scales.threshold, thresholds)
    return SparseError(margin, None if scales.value is None else largest(scales.value, scales.hits))
