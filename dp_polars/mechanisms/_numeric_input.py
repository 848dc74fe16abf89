"""The numbers that mechanisms accept, as flat arrays, and the way back to the caller's type.

Whole numbers become int64, uint64 or Python integers; everything else becomes float64. Types without a notion of noise
(bool, text, object) and values without a size (NaN, null, infinity) are refused before anything is drawn. No message
quotes a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars.errors import InvalidDataError

_EXACT_IN_FLOAT = 1 << 53  # every whole number up to here is a float


@dataclass(frozen=True)
class NumericInput:
    """Numbers ready for a mechanism: a flat array, and a function that gives a result the caller's type and shape."""

    array: NDArray[Any] = field(repr=False)
    integers: bool
    restore: Callable[[NDArray[Any]], Any]


def read_numbers(values: Any, what: str = "values") -> NumericInput:
    """Read `values` as a flat array of integers or of float64."""
    if isinstance(values, pl.Series):
        series = values
        array = _series_array(series, what)
        dtype = pl.Int64 if array.dtype.kind in "iu" else pl.Float64
        return _checked(array, lambda out: pl.Series(series.name, out, dtype=dtype), what)
    if isinstance(values, bool | np.bool_):
        raise _refused(what, "a bool", "Pass int(x) if it is a count of 0 or 1.")
    if isinstance(values, int):  # a Python integer cannot overflow
        return NumericInput(np.array([values], dtype=object), True, lambda out: int(out[0]))
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
    """Return a list as an array, and refuse without quoting it what numpy cannot read as numbers."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        raise _refused(
            what, "a list that numpy cannot read", "Pass numbers of one kind, in equally long rows."
        ) from None
    # Numpy may read large whole numbers as floats, and the rounding would add to what one unit can change.
    flat = np.array(values, dtype=object).ravel().tolist() if array.dtype.kind == "f" else []
    if any(isinstance(number, int | np.integer) and abs(int(number)) > _EXACT_IN_FLOAT for number in flat):
        raise _refused(what, "a list with whole numbers too large for floats", "Pass an array of int64 or uint64.")
    return array


def _plain(array: NDArray[Any], what: str) -> NDArray[Any]:
    if isinstance(array, np.ma.MaskedArray):
        raise _refused(what, "a masked array", "Fill or drop the masked entries first.")
    return np.asarray(array)  # a np.matrix would stay two-dimensional when flattened, and rows would share noise


def _series_array(series: pl.Series, what: str) -> NDArray[Any]:
    if series.dtype not in (
        pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64,
    ):  # fmt: skip
        raise _refused(what, f"a Series of {series.dtype.base_type()}", "Cast it to Int64 or Float64 first.")
    if series.null_count():
        raise InvalidDataError(
            f"{what} contain nulls. Fill or drop them first, because noise cannot be added to a null."
        )
    return series.to_numpy()


def _checked(array: NDArray[Any], restore: Callable[[NDArray[Any]], Any], what: str) -> NumericInput:
    if array.dtype.kind in "iu":
        beyond_int64 = array.dtype.kind == "u" and array.max(initial=0) > np.iinfo(np.int64).max
        return NumericInput(array.astype(np.uint64 if beyond_int64 else np.int64), True, restore)
    if array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        floats = array.astype(np.float64)
        if not np.isfinite(floats).all():
            raise InvalidDataError(
                f"{what} contain NaN or infinity. Fill, clip or drop them first, because no noise hides such a value."
            )
        return NumericInput(floats, False, restore)
    raise _refused(what, f"an array of {array.dtype.type.__name__}", "Convert it to int64 or float64 first.")


def _refused(what: str, got: str, fix: str) -> InvalidDataError:
    return InvalidDataError(f"{what} must be whole numbers or floats, got {got}. {fix}")
