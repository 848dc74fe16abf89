"""Two discrete distributions over the same outcomes, validated and turned into arrays.

Accepts arrays, lists (of floats, Fractions, Decimals) and dicts from outcome to probability. Never
a sample or a frame: the numbers here are mechanisms' output probabilities, not data.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dp_polars._numbers import Number, exact
from dp_polars.errors import InvalidParameterError

Array = NDArray[np.float64]
Distribution = Mapping[Hashable, Number] | Sequence[Number] | NDArray[np.float64]

_TOLERANCE = 1e-9


def paired(p: Distribution, q: Distribution) -> tuple[Array, Array]:
    """Return both distributions as arrays over the same outcomes, each scaled to sum to 1."""
    if isinstance(p, Mapping) and isinstance(q, Mapping):
        outcomes = list(dict.fromkeys([*p, *q]))
        first, second = [p.get(o, 0) for o in outcomes], [q.get(o, 0) for o in outcomes]
        return _normalised(first, "p"), _normalised(second, "q")
    if isinstance(p, Mapping) or isinstance(q, Mapping):
        raise InvalidParameterError(
            "p and q must both be dicts from outcome to probability, or both be arrays over the same outcomes."
        )
    first_array, second_array = _normalised(p, "p"), _normalised(q, "q")
    if first_array.size != second_array.size:
        raise InvalidParameterError(
            f"p has {first_array.size} outcomes and q has {second_array.size}; "
            "they must list the same outcomes in the same order (write 0 for an impossible one)."
        )
    return first_array, second_array


def log_ratios(p: Array, q: Array) -> tuple[Array, Array]:
    """Return ln(p/q), rounded up by some ulps, where p > 0 (inf where q = 0), and those p."""
    possible = p > 0.0
    p, q = p[possible], q[possible]
    losses = np.full(p.shape, math.inf)
    shared = q > 0.0
    top, bottom = p[shared], q[shared]
    # p − q is exact when the two are close, so log1p keeps small losses precise; far apart, logs
    # cannot overflow.
    near = (top < 2.0 * bottom) & (bottom < 2.0 * top)
    relative = np.where(near, (top - bottom) / np.where(near, bottom, 1.0), 0.0)
    ratio = np.where(near, np.log1p(relative), np.log(top) - np.log(bottom))
    losses[shared] = ratio + 4.0 * np.spacing(np.abs(ratio)) * (ratio != 0.0)
    return losses, p


def _normalised(values: object, name: str) -> Array:
    try:
        array = np.asarray(values)
    except ValueError as error:  # a list of lists of different lengths
        raise InvalidParameterError(f"{name} must be a flat list of probabilities.") from error
    if array.ndim != 1 or array.size == 0:
        raise InvalidParameterError(
            f"{name} must be a non-empty one-dimensional list of probabilities or a dict from "
            f"outcome to probability, got shape {array.shape}."
        )
    if array.dtype.kind == "O":
        fractions = [exact(value, f"a probability of {name}") for value in array.tolist()]
        _check(min(fractions) < 0, float(sum(fractions)), name)
        total = sum(fractions, Fraction(0))
        return np.array([float(value / total) for value in fractions])
    if array.dtype.kind not in "fiu":
        raise InvalidParameterError(f"{name} must hold probabilities, got values of type {array.dtype}.")
    floats = array.astype(np.float64)
    if not np.isfinite(floats).all():
        raise InvalidParameterError(f"{name} holds a value that is not a finite number.")
    mass = math.fsum(floats)
    _check(bool((floats < 0.0).any()), mass, name)
    return floats if mass == 1.0 else floats / mass


def _check(has_negative: bool, mass: float, name: str) -> None:
    if has_negative:
        raise InvalidParameterError(f"{name} holds a negative probability.")
    if abs(mass - 1.0) > _TOLERANCE:
        raise InvalidParameterError(
            f"The probabilities of {name} sum to {mass!r}, not to 1 within {_TOLERANCE}; is an outcome missing?"
        )
