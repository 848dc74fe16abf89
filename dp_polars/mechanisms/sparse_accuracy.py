"""How far off a sparse vector stream may be: the margin of its comparisons and the error of its values."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from dp_polars._numbers import Number, count_of, positive, probability_of
from dp_polars.mechanisms.sparse_vector import Constants, sparse_scales

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
