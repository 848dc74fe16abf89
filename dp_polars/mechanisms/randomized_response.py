"""Randomized response over k categories, and the law of one response.

One unit can change its own value in any way; whether the unit is present is not hidden. There are two forms. By
`epsilon`, a response is the truth with probability e**epsilon / (e**epsilon + k - 1) and otherwise one of the other
categories, uniformly (Warner 1965; Kairouz, Oh and Viswanath 2014). By `resample` p, the classroom form, a response is
the truth with probability 1 - p and otherwise any category, uniformly (Dwork and Roth 2014); its epsilon is
ln(1 + k (1 - p) / p). In both, no response is more than e**epsilon times likelier under one value than under another.
The coins are exact. These functions charge no budget; `df.dp.randomized_response` does.
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

_BITS = 256  # extra bits of the enclosure that checks a logarithm which was rounded up

NOT_LISTED = (
    "Some values are not among the categories. List every possible value in categories=[...], and None too if there "
    "are nulls."
)


def randomized_response(
    values: Any,
    *,
    epsilon: Number | None = None,
    resample: Number | None = None,
    categories: Sequence[Any] | None = None,
) -> Any:
    """Replace each value by a random category that is the true one more often than any other.

    This charges no budget: the caller accounts for `epsilon` for each value that a unit contributes.

    Parameters
    ----------
    values
        A single value, a numpy array or a Polars Series.
    epsilon
        The privacy loss of each response.
    resample
        The classroom form, instead of epsilon: with this probability a response is a uniformly random category,
        otherwise it is the truth. With k categories its epsilon is ln(1 + k * (1 - resample) / resample).
    categories
        All possible values, known without looking at the data; `None` stands for null. Bools and an Enum Series do not
        need it. Null is then a category of a Series too.

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
    channel_of(2, epsilon, resample)  # report a bad parameter before a bad value
    series, restore = as_series(values)
    choices = categories_of(series.dtype, categories, nulls=isinstance(values, pl.Series))
    if isinstance(values, np.ndarray) and choices.null_count():
        raise InvalidParameterError("A numpy array cannot hold nulls. Pass a Polars Series to have None as a category.")
    codes = codes_of(series, choices)
    if (codes < 0).any():
        raise InvalidDataError(NOT_LISTED)
    return restore(choices, channel_of(len(choices), epsilon, resample).respond(codes, SYSTEM_BITS))


@dataclass(frozen=True, kw_only=True)
class Channel:
    """The law of one response: `size` categories, and epsilon, which is rounded up if `resample` determines it."""

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
        """The probability that a response is one particular other category."""
        if self.resample is not None:
            return float(self.resample / self.size)
        return math.exp(-float(self.epsilon)) * self.truthful

    @property
    def gain(self) -> float:
        """The difference of the two probabilities, computed without cancellation."""
        if self.resample is not None:
            return float(1 - self.resample)
        return -math.expm1(-float(self.epsilon)) * self.truthful

    def deviation(self, frequency: NDArray[Any] | float) -> Any:
        """Return the standard error of an estimated frequency, times the square root of the number of responses."""
        p, q = self.truthful, self.other
        return np.sqrt(frequency * p * (1 - p) + (1 - frequency) * q * (1 - q)) / self.gain

    def respond(self, codes: NDArray[Any], source: BitSource) -> NDArray[Any]:
        """Return randomized codes 0, ..., size - 1. The number of random draws does not depend on the values."""
        if self.resample is None:
            lies = ~enclosed_coins(lambda bits: enclose_truth(self.size, self.epsilon, bits), len(codes), source)
            step = uniform_integers(self.size - 1, len(codes), source).astype(np.int64) + 1
            return np.where(lies, (codes + step) % self.size, codes)
        again = bernoulli(self.resample, len(codes), source)
        return np.where(again, uniform_integers(self.size, len(codes), source).astype(np.int64), codes)

    def respond_to_any(self, codes: NDArray[Any], source: BitSource) -> NDArray[Any]:
        """Respond to codes, where codes below 0 stand for values outside the categories.

        Refusing such a value would reveal it, so it first becomes a uniformly random category. The matrix of the
        channel is symmetric and its columns sum to 1, so the response is uniform again: the mean of the matrix rows.
        The rows are within e**epsilon of each other in each entry, so their mean is within e**epsilon of each row.
        """
        some = uniform_integers(self.size, len(codes), source).astype(np.int64)
        return self.respond(np.where(codes < 0, some, codes), source)


def channel_of(size: int, epsilon: Number | None, resample: Number | None) -> Channel:
    """Return the law of a response that the user asked for by epsilon or by resample."""
    if resample is None:
        if epsilon is None:
            raise InvalidParameterError(
                "Randomized response needs to know how well to hide the truth. Say epsilon=1.0, the privacy loss of "
                "each response, or resample=0.5, the probability that a response is a uniformly random category."
            )
        return Channel(size=size, epsilon=epsilon_of(epsilon))
    if epsilon is not None:
        raise InvalidParameterError(
            "Say epsilon= or resample=, not both: each of them determines how a response is drawn."
        )
    probability = exact(resample, "resample")
    if not 0 < probability < 1:
        raise InvalidParameterError(
            f"resample must lie strictly between 0 and 1, got {resample}: it is the probability that a response is a "
            "uniformly random category instead of the truth."
        )
    return Channel(size=size, epsilon=epsilon_of_resampling(size, probability), resample=probability)


def epsilon_of_resampling(size: int, resample: Fraction) -> Fraction:
    """Return the epsilon of the classroom form, ln(1 + size (1 - resample) / resample), rounded up."""
    above = size * (1 - resample) / resample
    ratio = 1 + above
    logarithm = math.log1p(above) if above < 1 else math.log(ratio.numerator) - math.log(ratio.denominator)
    if not MIN_EPSILON <= logarithm <= MAX_EPSILON:
        raise InvalidParameterError(
            "resample is so close to 0 or 1 that responses protect nothing or say nothing. Try resample=0.5."
        )
    # The float is off by a few ulps. It is raised until it is certainly at least the logarithm, which is when the
    # enclosure shows that exp(-epsilon) <= 1 / ratio.
    bits = _BITS + 2 * math.ceil(logarithm)
    for step in range(2, 30):
        epsilon = Fraction(logarithm) * (1 + Fraction(2**step, 2**54))
        if enclose_exp(epsilon, bits)[1] * ratio <= 1 << bits:
            return epsilon
    raise ValueError("the logarithm could not be rounded up")


def enclose_truth(categories: int, epsilon: Fraction, bits: int) -> tuple[int, int]:
    """Return integers (low, high) that enclose 2**bits / (1 + (categories - 1) * exp(-epsilon))."""
    extra = bits + 8 + categories.bit_length()
    low, high = enclose_exp(epsilon, extra)
    one = 1 << extra
    return (one << bits) // (one + (categories - 1) * high), -((-one << bits) // (one + (categories - 1) * low))


def categories_of(dtype: pl.DataType, given: Sequence[Any] | None, *, nulls: bool = True) -> pl.Series:
    """Return the categories of a column: those given, or else those of its type.

    Null is a category of Boolean and Enum columns, because whether there are nulls is private too. `nulls=False` is for
    values that cannot be null.
    """
    if isinstance(dtype, pl.Categorical):
        raise InvalidDataError(
            "A Categorical keeps its categories in the order in which they occur in the data, which would reveal true "
            "values. Cast it to String, or to a pl.Enum of all possible values."
        )
    if dtype.is_float() or dtype.is_nested() or dtype in (pl.Object, pl.Null):
        raise InvalidDataError(f"Randomized response needs values that can be told apart as categories, not {dtype}.")
    if given is not None:
        choices = _given(dtype, given)
    elif dtype == pl.Boolean:
        choices = pl.Series("category", [False, True, None][: 3 if nulls else 2])
    elif isinstance(dtype, pl.Enum):
        choices = pl.Series("category", [*dtype.categories, None][: None if nulls else -1], dtype=dtype)
    else:
        raise InvalidParameterError(
            f"Values of type {dtype} need categories=[...]: list every possible value without looking at the data, "
            "because categories taken from the data would reveal rare values."
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
        raise InvalidParameterError(f"categories must be a list of values of the type {dtype}.")
    return choices


def codes_of(series: pl.Series, choices: pl.Series) -> NDArray[np.int64]:
    """Return the index of each value among the categories, or -1 if it is not one of them."""
    lookup = pl.DataFrame({"value": choices, "code": np.arange(len(choices), dtype=np.int64)})
    joined = (
        series.alias("value").to_frame().join(lookup, on="value", how="left", nulls_equal=True, maintain_order="left")
    )
    return joined["code"].fill_null(-1).to_numpy()


def as_series(values: Any) -> tuple[pl.Series, Callable[[pl.Series, NDArray[Any]], Any]]:
    """Return the values as a Series, and a function that turns (categories, codes) back into the caller's type."""
    if isinstance(values, pl.Series):
        name, dtype = values.name, values.dtype
        return values, lambda choices, codes: choices.gather(codes).cast(dtype).alias(name)
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind != "O":
        # The width of a text array is that of its longest value, which is private and too short for other categories.
        kind = values.dtype.kind if values.dtype.kind in "US" else values.dtype
        return pl.Series(values), lambda choices, codes: choices.to_numpy().astype(kind)[codes]
    if isinstance(values, str | bool | int | np.bool_ | np.integer):
        return pl.Series([values]), lambda choices, codes: choices[int(codes[0])]
    raise InvalidDataError(
        f"values must be a single value, a one-dimensional numpy array (not of objects) or a Polars Series, got "
        f"{type(values).__name__}. Wrap a list in pl.Series(...)."
    )
