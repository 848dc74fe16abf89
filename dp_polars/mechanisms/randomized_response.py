"""What a randomized response does to one category: the law behind `randomized_response` and its estimates.

Two forms over k categories. By epsilon: the truth with probability e**epsilon / (e**epsilon + k - 1), else one of the
others, all alike. By `resample` p, as in a classroom: the truth with probability 1 - p, else any category, all alike;
that is ln(1 + k (1 - p) / p) of epsilon.


Randomized response over k categories.

What one unit can change: its own value, in any way. Whether the unit is present is not hidden. Each value keeps its
category with probability e**epsilon / (e**epsilon + k - 1) and becomes one of the others uniformly otherwise, so any
answer is at most e**epsilon times likelier under one value than under another (Warner 1965; Kairouz, Oh, Viswanath
2014). The coin is exact. These functions charge no budget; `df.dp.randomized_response` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._numbers import MAX_EPSILON, MIN_EPSILON, Number, epsilon_of, exact
from dp_polars._sampling import SYSTEM_BITS, BitSource, bernoulli, uniform_integers
from dp_polars._sampling.bernoulli import enclose_exp, enclosed_coins
from dp_polars.errors import InvalidDataError, InvalidParameterError

_BITS = 256  # beyond those of exp(-epsilon), of the enclosure that a rounded-up logarithm is checked with


@dataclass(frozen=True, kw_only=True)
class Channel:
    """The law of one response: of how many categories, with which epsilon (`resample`: rounded up), in which form."""

    size: int
    epsilon: Fraction
    resample: Fraction | None = None

    @property
    def truthful(self) -> float:
        """The probability that a response is the true category."""
        if self.resample is not None:
            return float(1 - self.resample + self.resample / self.size)
        return 1 / (1 + (self.size - 1) * math.exp(-float(self.epsilon)))

    @property
    def other(self) -> float:
        """The probability that it is one certain other category."""
        if self.resample is not None:
            return float(self.resample / self.size)
        return math.exp(-float(self.epsilon)) * self.truthful

    @property
    def gain(self) -> float:
        """The difference of the two, without cancellation."""
        if self.resample is not None:
            return float(1 - self.resample)
        return -math.expm1(-float(self.epsilon)) * self.truthful

    def deviation(self, frequency: NDArray[Any] | float) -> Any:
        """Return the standard error of a frequency that is this, times the root of the number of responses."""
        p, q = self.truthful, self.other
        return np.sqrt(frequency * p * (1 - p) + (1 - frequency) * q * (1 - q)) / self.gain

    def respond(self, codes: NDArray[Any], source: BitSource) -> NDArray[Any]:
        """Return randomized codes 0, ..., size - 1. The number of draws is the same whatever the values are."""
        if self.resample is None:
            lies = ~enclosed_coins(lambda bits: enclose_truth(self.size, self.epsilon, bits), len(codes), source)
            step = uniform_integers(self.size - 1, len(codes), source).astype(np.int64) + 1
            return np.where(lies, (codes + step) % self.size, codes)
        again = bernoulli(self.resample, len(codes), source)
        return np.where(again, uniform_integers(self.size, len(codes), source).astype(np.int64), codes)

    def respond_to_any(self, codes: NDArray[Any], source: BitSource) -> NDArray[Any]:
        """As `respond`, for codes of which those below 0 stand for a value that is none of the categories.

        To refuse such a value would tell of it. It becomes a uniformly random category first. The columns of the
        channel's matrix sum to 1 (it is symmetric), so the response is uniform again: the mean of the channel's rows.
        A mean of rows that are within e**epsilon of each other, in each entry, is within e**epsilon of each of them.
        """
        some = uniform_integers(self.size, len(codes), source).astype(np.int64)
        return self.respond(np.where(codes < 0, some, codes), source)


def channel_of(size: int, epsilon: Number | None, resample: Number | None) -> Channel:
    """Return the law that a user's words mean: one of epsilon and resample."""
    if resample is None:
        if epsilon is None:
            raise InvalidParameterError(
                "How is the truth hidden? Say epsilon=1.0, the privacy loss of each response, or resample=0.5, the "
                "probability with which a response is a uniformly random category."
            )
        return Channel(size=size, epsilon=epsilon_of(epsilon))
    if epsilon is not None:
        raise InvalidParameterError("Say epsilon= or resample=, not both: each is the law of a response.")
    probability = exact(resample, "resample")
    if not 0 < probability < 1:
        raise InvalidParameterError(
            f"resample must lie strictly between 0 and 1, got {resample}: it is the probability with which a response "
            "is a uniformly random category instead of the truth."
        )
    return Channel(size=size, epsilon=epsilon_of_resampling(size, probability), resample=probability)


def epsilon_of_resampling(size: int, resample: Fraction) -> Fraction:
    """Return the epsilon of the classroom form, ln(1 + size (1 - resample) / resample), rounded up."""
    above = size * (1 - resample) / resample
    ratio = 1 + above
    logarithm = math.log1p(above) if above < 1 else math.log(ratio.numerator) - math.log(ratio.denominator)
    if not MIN_EPSILON <= logarithm <= MAX_EPSILON:
        raise InvalidParameterError("resample is so near to 0 or 1 that nothing is protected, or nothing told.")
    # The float is off by a few units in its last place. It is raised until it is surely no less than the logarithm:
    # until exp(-epsilon) <= 1 / ratio, by enclosure.
    bits = _BITS + 2 * math.ceil(logarithm)
    for step in range(2, 30):
        epsilon = Fraction(logarithm) * (1 + Fraction(2**step, 2**54))
        if enclose_exp(epsilon, bits)[1] * ratio <= 1 << bits:
            return epsilon
    raise ValueError("a logarithm that can't be rounded up")


def enclose_truth(categories: int, epsilon: Fraction, bits: int) -> tuple[int, int]:
    """Enclose 2**bits / (1 + (categories - 1) * exp(-epsilon))."""
    extra = bits + 8 + categories.bit_length()
    low, high = enclose_exp(epsilon, extra)
    one = 1 << extra
    return (one << bits) // (one + (categories - 1) * high), -((-one << bits) // (one + (categories - 1) * low))


def categories_of(dtype: pl.DataType, given: Sequence[Any] | None, *, nulls: bool = True) -> pl.Series:
    """Return all categories of a column, checked: those given, else those of its type.

    Null is a category of Boolean and Enum, because whether there are nulls is private too; `nulls=False` is for values
    that can't be null.
    """
    if isinstance(dtype, pl.Categorical):
        raise InvalidDataError(
            "A Categorical keeps its categories in the order in which the data had them, which would give away true "
            "values. Cast it to String, or to a pl.Enum of all possible values."
        )
    if dtype.is_float() or dtype.is_nested() or dtype in (pl.Object, pl.Null):
        raise InvalidDataError(f"Randomized response needs categories that can be told apart, not {dtype}.")
    if given is not None:
        choices = _given(dtype, given)
    elif dtype == pl.Boolean:
        choices = pl.Series("category", [False, True, None][: 3 if nulls else 2])
    elif isinstance(dtype, pl.Enum):
        choices = pl.Series("category", [*dtype.categories, None][: None if nulls else -1], dtype=dtype)
    else:
        raise InvalidParameterError(
            f"Values of the type {dtype} need categories=[...], every possible value, fixed without looking "
            "at the data: categories taken from the data would give away rare ones."
        )
    if len(choices) < 2 or choices.n_unique() != len(choices):
        raise InvalidParameterError("categories must be at least two different values.")
    return choices


def _given(dtype: pl.DataType, given: Sequence[Any]) -> pl.Series:
    choices = None
    if not isinstance(given, str | bytes):
        try:
            choices = pl.Series("category", list(given), dtype=dtype, strict=True)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            choices = None
    if choices is None or choices.dtype != dtype:
        raise InvalidParameterError(f"categories must be values of the type {dtype}, as a list.")
    return choices


def codes_of(series: pl.Series, choices: pl.Series) -> NDArray[np.int64]:
    """Return the place of each value among the categories, -1 where it is none of them."""
    lookup = pl.DataFrame({"value": choices, "code": np.arange(len(choices), dtype=np.int64)})
    joined = (
        series.alias("value").to_frame().join(lookup, on="value", how="left", nulls_equal=True, maintain_order="left")
    )
    return joined["code"].fill_null(-1).to_numpy()


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
