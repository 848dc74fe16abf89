"""Estimates of the true frequencies behind randomized responses.

This is post-processing of what was already released, so it costs nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._numbers import Number, flag_of, probability_of
from dp_polars.errors import DPWarning, InvalidDataError, InvalidParameterError
from dp_polars.mechanisms.randomized_response import NOT_LISTED, Channel, as_series, categories_of, channel_of, codes_of

_OWN = ("category", "frequency", "standard_error", "frequency_low", "frequency_high", "responses")
Floats = NDArray[np.float64]

_IMPLAUSIBLE = 8  # standard errors below 0, which never happens by chance


def estimate_frequencies(
    responses: Any,
    column: str | None = None,
    *,
    by: str | Sequence[str] | None = None,
    epsilon: Number | None = None,
    resample: Number | None = None,
    categories: Sequence[Any] | None = None,
    confidence: Number | None = None,
    nonnegative: bool = False,
) -> pl.DataFrame:
    """Estimate how often each category was the true value behind randomized responses.

    Parameters
    ----------
    responses
        The responses of all units, as `randomized_response` returned them: a Series, an array or a frame. A LazyFrame
        is collected.
    column
        The column of the frame that holds the responses. It may be left out if there is only one.
    by
        Public columns of the frame. Frequencies are then estimated in each group.
    epsilon, resample, categories
        The same as for `randomized_response`. `epsilon` is that of each response, as the plan shows it. If no
        categories are given, null is a category of Boolean and Enum columns.
    confidence
        If given, the columns `frequency_low` and `frequency_high` are added: the confidence interval of the
        randomization, by the normal approximation.
    nonnegative
        Whether to return the nearest frequencies that are at least 0 and sum to 1, and to clip the interval to 0 and 1.

    Returns
    -------
    polars.DataFrame
        One row per category with the columns `category`, `frequency` (unbiased, so it can lie below 0 or above 1) and
        `standard_error` of the randomization (not of sampling people from a population). With `by`, its columns come
        first, and `responses` is the number of responses in the group. True values outside the categories count evenly
        for all categories.

    Notes
    -----
    The estimate is (share - q) / (p - q), where p and q are the probabilities of the true and of one other category
    (Warner 1965).

    Examples
    --------
    >>> import dp_polars as dp
    >>> import numpy as np
    >>> answers = dp.mechanisms.randomized_response(np.ones(10_000, dtype=bool), epsilon=2)
    >>> estimate = dp.estimate_frequencies(answers, epsilon=2)
    >>> estimate.columns
    ['category', 'frequency', 'standard_error']
    >>> abs(estimate["frequency"][1] - 1) < 0.1  # six standard errors are 0.03
    True
    """
    channel_of(2, epsilon, resample)
    deviations = (
        None if confidence is None else NormalDist().inv_cdf((1 + probability_of(confidence, "confidence")) / 2)
    )
    project = flag_of(nonnegative, "nonnegative")
    if isinstance(responses, pl.DataFrame | pl.LazyFrame):
        series, groups = _from_frame(responses, column, by)
    elif column is not None or by is not None:
        raise InvalidParameterError(
            "column= and by= name columns of a frame, but these responses are not a frame. Leave them out."
        )
    else:
        series, groups = as_series(responses)[0], None
    # A column of a frame or a Series may hold nulls; an array of bools cannot.
    nulls = isinstance(responses, pl.Series | pl.DataFrame | pl.LazyFrame)
    choices = categories_of(series.dtype, categories, nulls=nulls)
    if not len(series):
        raise InvalidDataError("responses are empty, so no frequency can be estimated.")
    codes = codes_of(series, choices)
    if (codes < 0).any():
        raise InvalidDataError(NOT_LISTED)
    channel = channel_of(len(choices), epsilon, resample)
    keys, numbers = (None, np.zeros(len(codes), np.int64)) if groups is None else _numbered(groups)
    height = 1 if keys is None else keys.height
    cells = np.bincount(numbers * len(choices) + codes, minlength=height * len(choices))
    return _estimated(cells.reshape(height, len(choices)), channel, choices, keys, deviations, project)


def _estimated(
    table: NDArray[np.int64],
    channel: Channel,
    choices: pl.Series,
    keys: pl.DataFrame | None,
    deviations: float | None,
    project: bool,
) -> pl.DataFrame:
    """Return the estimates, given the number of responses by group and category."""
    count = table.sum(axis=1, keepdims=True)
    unbiased = (table / count - channel.other) / channel.gain
    error = channel.deviation(np.clip(unbiased, 0, 1)) / np.sqrt(count)
    if (unbiased + _IMPLAUSIBLE * channel.deviation(0.0) / np.sqrt(count) < -1 / count).any():
        warnings.warn(
            "Some estimated frequencies are far below 0, which chance cannot explain: epsilon, resample or categories "
            "are not those that the responses were made with. Note that null is a category of Boolean and Enum columns "
            "unless categories= was given.",
            DPWarning,
            stacklevel=3,
        )
    shown = np.stack([_on_simplex(row) for row in unbiased]) if project else unbiased
    columns = {"frequency": shown, "standard_error": error}
    if deviations is not None:
        ends = {"frequency_low": unbiased - deviations * error, "frequency_high": unbiased + deviations * error}
        columns |= {name: np.clip(end, 0, 1) for name, end in ends.items()} if project else ends
    groups, size = table.shape
    frame = pl.DataFrame(
        [
            choices.gather(np.tile(np.arange(size), groups)).alias("category"),
            *(pl.Series(name, values.ravel()) for name, values in columns.items()),
        ]
    )
    if keys is None:
        return frame
    repeated = keys[np.repeat(np.arange(groups), size)]
    return repeated.hstack(frame).with_columns(pl.Series("responses", np.repeat(count.ravel(), size)))


def _on_simplex(frequency: Floats) -> Floats:
    """Return the nearest point, by least squares, whose entries are at least 0 and sum to 1."""
    largest = np.sort(frequency)[::-1]
    excess = (np.cumsum(largest) - 1) / np.arange(1, len(frequency) + 1)
    # If the k largest entries stay positive, each loses excess[k - 1]. Take the largest k for which they do stay
    # positive.
    shift = excess[np.flatnonzero(largest > excess)[-1]]
    nearest: Floats = np.maximum(frequency - shift, 0)
    return nearest


def _from_frame(
    frame: pl.DataFrame | pl.LazyFrame, column: str | None, by: str | Sequence[str] | None
) -> tuple[pl.Series, pl.DataFrame | None]:
    """Return the responses in a frame, and the columns that group them."""
    names = [] if by is None else [by] if isinstance(by, str) else list(by)
    known = frame.collect_schema().names()
    if column is None:
        rest = [name for name in known if name not in names]
        if len(rest) != 1:
            raise InvalidParameterError(
                "Say which column holds the responses: estimate_frequencies(frame, 'vote', ...)."
            )
        column = rest[0]
    missing = [str(name) for name in (column, *names) if name not in known]
    if missing:
        raise InvalidParameterError(f"The frame has no column {', '.join(missing)}. It has {', '.join(known)}.")
    if len(set(names)) < len(names) or column in names:
        raise InvalidParameterError("by= must name each column once, and not the column of the responses.")
    clash = [name for name in names if name in _OWN]
    if clash:
        raise InvalidParameterError(f"{', '.join(clash)} is a column of by= and also of the result. Rename it first.")
    read = frame.lazy().select(column, *names).collect()
    return read[column], read.select(names) if names else None


def _numbered(groups: pl.DataFrame) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """Return the sorted groups, and the number of the group of each row."""
    keys = groups.unique().sort(groups.columns)
    numbered = keys.with_columns(pl.Series("responses", np.arange(keys.height, dtype=np.int64)))
    joined = groups.join(numbered, on=groups.columns, how="left", nulls_equal=True, maintain_order="left")
    return keys, joined["responses"].to_numpy()
