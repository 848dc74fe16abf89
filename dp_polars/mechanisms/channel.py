"""What a randomized response does to one category: the law behind `randomized_response` and its estimates.

Two forms over k categories. By epsilon: the truth with probability e**epsilon / (e**epsilon + k - 1), else one of the
others, all alike. By `resample` p, as in a classroom: the truth with probability 1 - p, else any category, all alike;
that is ln(1 + k (1 - p) / p) of epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._numbers import MAX_EPSILON, MIN_EPSILON, Number, epsilon_of, exact
from dp_polars._sampling import BitSource, bernoulli, uniform_integers
from dp_polars._sampling.bernoulli import enclosed_coins
from dp_polars._sampling.lazy import enclose_exp
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
