"""What the mechanisms accept as values, and how the answer gets the shape of the question.

Whole numbers become int64, uint64 or Python integers, everything else float64. A type that has no noise of its own
(bool, text, object) and values without an order of size (NaN, null, infinity) are refused before anything is drawn.
No message quotes a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars.errors import InvalidDataError

Numeric = int | float | NDArray[Any] | pl.Series
"""A number, a numpy array or a Polars Series."""

_EXACT_IN_FLOAT = 1 << 53  # up to here every whole number is a float


@dataclass(frozen=True)
class Values:
    """Numbers ready for a mechanism: a flat array, and the way back to what the caller handed in."""

    array: NDArray[Any] = field(repr=False)
    integers: bool
    restore: Callable[[NDArray[Any]], Any]


def read_numbers(values: Any, what: str = "values") -> Values:
    """Return `values` as a flat array of integers or of float64."""
    if isinstance(values, pl.Series):
        series = values
        array = _series_array(series, what)
        dtype = pl.Int64 if array.dtype.kind in "iu" else pl.Float64
        return _checked(array, lambda out: pl.Series(series.name, out, dtype=dtype), what)
    if isinstance(values, bool | np.bool_):
        raise _refused(what, "a bool", "Pass int(x) to protect a count of 0 or 1.")
    if isinstance(values, int):  # a Python integer has no width to overflow
        return Values(np.array([values], dtype=object), True, lambda out: int(out[0]))
    if isinstance(values, list | tuple):
        values = list_array(values, what)
    if isinstance(values, float | np.integer | np.floating):
        kind = int if isinstance(values, np.integer) else float
        return _checked(np.asarray([values]), lambda out: kind(out[0]), what)
    if isinstance(values, np.ndarray):
        shape = values.shape
        return _checked(_plain(values, what).ravel(), lambda out: out.reshape(shape), what)
    raise _refused(what, type(values).__name__, "Pass a number, a numpy array or a Polars Series.")


def list_array(values: list[Any] | tuple[Any, ...], what: str) -> NDArray[Any]:
    """Return a list as an array; what numpy can't read as numbers is refused without quoting it."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        raise _refused(
            what, "a list that numpy cannot read", "Pass numbers of one kind, in equally long rows."
        ) from None
    # Numpy makes a list of large whole numbers floats, and their rounding would add to what one unit can change.
    flat = np.array(values, dtype=object).ravel().tolist() if array.dtype.kind == "f" else []
    if any(isinstance(number, int | np.integer) and abs(int(number)) > _EXACT_IN_FLOAT for number in flat):
        raise _refused(what, "a list with whole numbers too large for floats", "Pass an array of int64 or uint64.")
    return array


def _plain(array: NDArray[Any], what: str) -> NDArray[Any]:
    if isinstance(array, np.ma.MaskedArray):
        raise _refused(what, "a masked array", "Fill or drop the masked entries first.")
    return np.asarray(array)  # a matrix stays two-dimensional when it is flattened, and would share its noise


def _series_array(series: pl.Series, what: str) -> NDArray[Any]:
    if series.dtype not in (
        pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64,
    ):  # fmt: skip
        raise _refused(what, f"a Series of {series.dtype.base_type()}", "Cast it to Int64 or Float64 first.")
    if series.null_count():
        raise InvalidDataError(f"{what} hold nulls. Fill or drop them first: noise on a null protects nothing.")
    return series.to_numpy()


def _checked(array: NDArray[Any], restore: Callable[[NDArray[Any]], Any], what: str) -> Values:
    if array.dtype.kind in "iu":
        beyond_int64 = array.dtype.kind == "u" and array.max(initial=0) > np.iinfo(np.int64).max
        return Values(array.astype(np.uint64 if beyond_int64 else np.int64), True, restore)
    if array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        floats = array.astype(np.float64)
        if not np.isfinite(floats).all():
            raise InvalidDataError(
                f"{what} hold NaN or infinity. Fill, clip or drop them first: no noise hides an infinite value."
            )
        return Values(floats, False, restore)
    raise _refused(what, f"an array of {array.dtype.type.__name__}", "Convert it to int64 or float64 first.")


def _refused(what: str, got: str, fix: str) -> InvalidDataError:
    return InvalidDataError(f"{what} must be whole numbers or floats, got {got}. {fix}")
