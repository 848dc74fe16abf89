"""Randomized response over k categories.

What one unit can change: its own value, in any way. Whether the unit is present is not hidden. Each value keeps its
category with probability e**epsilon / (e**epsilon + k - 1) and becomes one of the others uniformly otherwise, so any
answer is at most e**epsilon times likelier under one value than under another (Warner 1965; Kairouz, Oh, Viswanath
2014). The coin is exact. These functions charge no budget; `df.dp.randomized_response` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._numbers import Number
from dp_polars._sampling import SYSTEM_BITS, BitSource
from dp_polars.errors import InvalidDataError, InvalidParameterError
from dp_polars.mechanisms.channel import Channel, categories_of, channel_of, codes_of, enclose_truth

__all__ = ["enclose_truth", "randomized_response", "respond"]

NOT_LISTED = (
    "Some values are not among the categories. List every possible value in categories=[...], with None if there are "
    "nulls."
)


def randomized_response(
    values: Any,
    *,
    epsilon: Number | None = None,
    resample: Number | None = None,
    categories: Sequence[Any] | None = None,
) -> Any:
    """Replace each value by a random category that is the true one more often than any other.

    Charges no budget: the caller accounts for `epsilon` for each value that a unit contributes.

    Parameters
    ----------
    values
        A single value, a numpy array or a Polars Series.
    epsilon
        The privacy loss of each response.
    resample
        Instead of epsilon, the classroom form: with this probability a response is a uniformly random category, else
        the truth. Of k categories its epsilon is ln(1 + k * (1 - resample) / resample).
    categories
        All possible values, known without looking at the data. Not needed for bools and for an Enum Series; of a Series
        null is then a category too. Null can be one of those given (`None`).

    Returns
    -------
    Same kind as `values`
        One random category per value.

    Examples
    --------
    >>> import dp_polars as dp
    >>> import polars as pl
    >>> votes = pl.Series("vote", ["yes", "no", "yes"])
    >>> answers = dp.mechanisms.randomized_response(votes, epsilon=1.0, categories=["yes", "no"])
    >>> answers.is_in(["yes", "no"]).all()
    True
    """
    channel_of(2, epsilon, resample)  # a bad number is told of before a bad value
    series, restore = as_series(values)
    choices = categories_of(series.dtype, categories, nulls=isinstance(values, pl.Series))
    if isinstance(values, np.ndarray) and choices.null_count():
        raise InvalidParameterError("A numpy array holds no nulls; pass a Polars Series to have None as a category.")
    codes = codes_of(series, choices)
    if (codes < 0).any():
        raise InvalidDataError(NOT_LISTED)
    return restore(choices, channel_of(len(choices), epsilon, resample).respond(codes, SYSTEM_BITS))


def respond(codes: NDArray[Any], categories: int, epsilon: Fraction, source: BitSource) -> NDArray[Any]:
    """Return randomized codes 0, ..., categories - 1; the core of `randomized_response` with its bits handed in."""
    return Channel(size=categories, epsilon=epsilon).respond(codes, source)


def as_series(values: Any) -> tuple[pl.Series, Callable[[pl.Series, NDArray[Any]], Any]]:
    """Return the values as a Series, and what turns (categories, codes) into the kind that was handed in."""
    if isinstance(values, pl.Series):
        name, dtype = values.name, values.dtype
        return values, lambda choices, codes: choices.gather(codes).cast(dtype).alias(name)
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind != "O":
        # The width of a text array is the length of its longest value: a secret, and too short for other categories.
        kind = values.dtype.kind if values.dtype.kind in "US" else values.dtype
        return pl.Series(values), lambda choices, codes: choices.to_numpy().astype(kind)[codes]
    if isinstance(values, str | bool | int | np.bool_ | np.integer):
        return pl.Series([values]), lambda choices, codes: choices[int(codes[0])]
    raise InvalidDataError(
        f"values must be a single value, a one-dimensional numpy array (not of objects) or a Polars Series, got "
        f"{type(values).__name__}. Wrap a list in pl.Series."
    )
