"""Randomized response over k categories, and the frequencies behind such responses.

What one unit can change: its own value, in any way. Whether the unit is present is not hidden. Each value keeps its
category with probability e**epsilon / (e**epsilon + k - 1) and becomes one of the others uniformly otherwise, so any
answer is at most e**epsilon times likelier under one value than under another (Warner 1965; Kairouz, Oh, Viswanath
2014). The coin is exact. These functions charge no budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars.errors import InvalidDataError, InvalidParameterError
from dp_polars.quantities import Number, epsilon_of
from dp_polars.sampling import SYSTEM_BITS, BitSource, uniform_integers
from dp_polars.sampling.bernoulli import enclosed_coins
from dp_polars.sampling.lazy import enclose_exp


def randomized_response(values: Any, *, epsilon: Number, categories: Sequence[Any] | None = None) -> Any:
    """Replace each value by a random category that is the true one more often than any other.

    Charges no budget: the caller accounts for `epsilon` for each value that a unit contributes.

    Parameters
    ----------
    values
        A single value, a numpy array or a Polars Series.
    epsilon
        The privacy loss of each response.
    categories
        All possible values, known without looking at the data. Not needed for bools and for an Enum Series. Null
        can be one of them (`None`).

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
    loss = epsilon_of(epsilon)
    series, restore = _as_series(values)
    choices = _categories(series, categories)
    if isinstance(values, np.ndarray) and choices.null_count():
        raise InvalidParameterError("A numpy array holds no nulls; pass a Polars Series to have None as a category.")
    return restore(choices, respond(_codes(series, choices), len(choices), loss, SYSTEM_BITS))


def estimate_frequencies(responses: Any, *, epsilon: Number, categories: Sequence[Any] | None = None) -> pl.DataFrame:
    """Estimate how often each category was the true value behind randomized responses.

    Parameters
    ----------
    responses
        What `randomized_response` returned, from all units.
    epsilon, categories
        As they were given to `randomized_response`.

    Returns
    -------
    polars.DataFrame
        One row per category: `category`, `frequency` (unbiased, so it can lie below 0 or above 1) and
        `standard_error` of the randomization (not of sampling people from a population).

    Examples
    --------
    >>> import dp_polars as dp
    >>> import numpy as np
    >>> answers = dp.mechanisms.randomized_response(np.ones(10_000, dtype=bool), epsilon=2)
    >>> estimate = dp.mechanisms.estimate_frequencies(answers, epsilon=2)
    >>> estimate.columns
    ['category', 'frequency', 'standard_error']
    >>> abs(estimate["frequency"][1] - 1) < 0.1  # six standard errors are 0.03
    True
    """
    loss = float(epsilon_of(epsilon))
    series, _ = _as_series(responses)
    if not len(series):
        raise InvalidDataError("responses are empty: no frequency can be estimated.")
    choices = _categories(series, categories)
    size = len(choices)
    seen = np.bincount(_codes(series, choices), minlength=size) / len(series)
    truthful = 1 / (1 + (size - 1) * math.exp(-loss))
    other = math.exp(-loss) * truthful
    gain = -math.expm1(-loss) * truthful  # truthful - other, without cancellation
    frequency = (seen - other) / gain
    share = np.clip(frequency, 0, 1)
    variance = share * truthful * (1 - truthful) + (1 - share) * other * (1 - other)
    return pl.DataFrame(
        {
            "category": choices,
            "frequency": frequency,
            "standard_error": np.sqrt(variance / len(series)) / gain,
        }
    )


def respond(codes: NDArray[Any], categories: int, epsilon: Fraction, source: BitSource) -> NDArray[Any]:
    """Return randomized codes 0, ..., categories - 1; the core of `randomized_response` with its bits handed in."""
    # The number of draws is the same whatever the values are.
    lies = ~enclosed_coins(lambda bits: enclose_truth(categories, epsilon, bits), len(codes), source)
    step = uniform_integers(categories - 1, len(codes), source).astype(np.int64) + 1
    return np.where(lies, (codes + step) % categories, codes)


def enclose_truth(categories: int, epsilon: Fraction, bits: int) -> tuple[int, int]:
    """Enclose 2**bits / (1 + (categories - 1) * exp(-epsilon))."""
    extra = bits + 8 + categories.bit_length()
    low, high = enclose_exp(epsilon, extra)
    one = 1 << extra
    return (one << bits) // (one + (categories - 1) * high), -((-one << bits) // (one + (categories - 1) * low))


def _as_series(values: Any) -> tuple[pl.Series, Callable[[pl.Series, NDArray[Any]], Any]]:
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


def _categories(series: pl.Series, given: Sequence[Any] | None) -> pl.Series:
    if isinstance(series.dtype, pl.Categorical):
        raise InvalidDataError(
            "A Categorical keeps its categories in the order in which the data had them, which would give away true "
            "values. Cast it to String, or to a pl.Enum of all possible values."
        )
    if given is not None:
        try:
            choices: pl.Series | None = pl.Series("category", list(given), dtype=series.dtype, strict=True)
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            choices = None
        if choices is None or choices.dtype != series.dtype:
            raise InvalidParameterError(f"categories must be values of the type {series.dtype}.")
    elif series.dtype == pl.Boolean:
        choices = pl.Series("category", [False, True])
    elif isinstance(series.dtype, pl.Enum):
        choices = pl.Series("category", series.dtype.categories, dtype=series.dtype)
    else:
        raise InvalidParameterError(
            f"Values of the type {series.dtype} need categories=[...], every possible value, fixed without looking "
            "at the data: categories taken from the data would give away rare ones."
        )
    if series.dtype.is_float() or series.dtype.is_nested() or series.dtype == pl.Object:
        raise InvalidDataError(f"Randomized response needs categories that can be told apart, not {series.dtype}.")
    if len(choices) < 2 or choices.n_unique() != len(choices):
        raise InvalidParameterError("categories must be at least two different values.")
    return choices


def _codes(series: pl.Series, choices: pl.Series) -> NDArray[Any]:
    lookup = pl.DataFrame({"value": choices, "code": np.arange(len(choices), dtype=np.int64)})
    joined = (
        series.alias("value").to_frame().join(lookup, on="value", how="left", nulls_equal=True, maintain_order="left")
    )
    codes = joined["code"]
    if codes.null_count():
        raise InvalidDataError(
            "Some values are not among the categories. List every possible value in categories=[...], with None if "
            "there are nulls."
        )
    return codes.to_numpy()
