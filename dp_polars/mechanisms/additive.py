"""The Laplace and the Gaussian mechanism on whole numbers and on floats.

The caller states what one unit can change: `sensitivity` is how far the whole array can move when the data of one unit
change, in the L1 norm for Laplace noise and in the L2 norm for Gaussian noise. Whole numbers get discrete noise and
stay whole. Floats are first rounded to a grid, and the sensitivity is increased by what that rounding can add.

These functions charge no budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

import polars as pl
from numpy.typing import NDArray

from dp_polars._numbers import Number, epsilon_of, positive
from dp_polars._sampling import SYSTEM_BITS, BitSource, discrete_gaussian, discrete_laplace
from dp_polars._sampling.noise import MAX_SCALE
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms._calibration import Calibration, VarianceOf, variance_rule
from dp_polars.mechanisms._grid import (
    add_saturating,
    from_grid,
    grid_exponent,
    in_steps,
    sqrt_above,
    to_grid,
)
from dp_polars.mechanisms._numeric_input import NumericInput, read_numbers

N = TypeVar("N", int, float, NDArray[Any], pl.Series)
DrawNoise = Callable[[int], NDArray[Any]]

_FINE = 1 << 16  # a sensitivity, in steps, at which discrete noise is as wide as continuous noise


def laplace(values: N, *, sensitivity: Number, epsilon: Number) -> N:
    """Add discrete Laplace noise, sampled exactly.

    This charges no budget: the caller accounts for `epsilon`.

    Parameters
    ----------
    values
        A number, a numpy array or a Polars Series. Whole numbers stay whole, and answers beyond 64 bits saturate.
        Floats are rounded to a power-of-two grid that is far finer than the noise.
    sensitivity
        The L1 sensitivity: the largest sum of absolute changes that one unit can make to `values`.
    epsilon
        The privacy loss of this release.

    Returns
    -------
    Same kind as `values`
        Noisy values, int64 or float64.

    Notes
    -----
    The result is epsilon-differentially private (Dwork, McSherry, Nissim and Smith 2006). The noise lives on the
    integers, as in Ghosh, Roughgarden and Sundararajan 2012.

    Examples
    --------
    >>> import dp_polars as dp
    >>> noisy = dp.mechanisms.laplace(1_000, sensitivity=1, epsilon=0.5)
    >>> abs(noisy - 1_000) < 100  # false with probability e**-50
    True
    """
    width, loss = positive(sensitivity, "sensitivity"), epsilon_of(epsilon)
    noisy: N = add_laplace(read_numbers(values), width, loss, SYSTEM_BITS)
    return noisy


def gaussian(
    values: N,
    *,
    sensitivity: Number,
    rho: Number | None = None,
    epsilon: Number | None = None,
    delta: Number | None = None,
    calibration: Calibration = "exact",
) -> N:
    """Add discrete Gaussian noise, sampled exactly.

    This charges no budget: the caller accounts for the spend.

    Parameters
    ----------
    values
        A number, a numpy array or a Polars Series, as in `laplace`.
    sensitivity
        The L2 sensitivity: the largest Euclidean length of the change that one unit can make to `values`.
    rho
        The spend in zero-concentrated differential privacy. The variance is sensitivity**2 / (2 * rho) (Canonne,
        Kamath and Steinke 2020).
    epsilon, delta
        The spend as the (epsilon, delta) of this release alone, instead of `rho`.
    calibration
        How `epsilon` and `delta` become a variance. "exact" solves the hockey-stick divergence of the discrete
        Gaussian for a single value (Balle and Wang 2018, on the integers) and converts to rho for several values.
        "zcdp" always converts to rho. "classic" uses sigma = sqrt(2 ln(1.25/delta)) * sensitivity / epsilon (Dwork and
        Roth 2014, theorem A.1), which is proved for epsilon up to 1 and refused above.

    Returns
    -------
    Same kind as `values`
        Noisy values, int64 or float64.

    Examples
    --------
    >>> import dp_polars as dp
    >>> import numpy as np
    >>> noisy = dp.mechanisms.gaussian(np.zeros(3, dtype=int), sensitivity=1, rho=0.5)
    >>> noisy.dtype, bool(np.all(abs(noisy) < 50))
    (dtype('int64'), True)
    """
    numbers = read_numbers(values)
    width = positive(sensitivity, "sensitivity")
    noisy: N = add_gaussian(numbers, width, variance_rule(rho, epsilon, delta, calibration), SYSTEM_BITS)
    return noisy


def add_laplace(values: NumericInput, sensitivity: Fraction, epsilon: Fraction, source: BitSource) -> Any:
    """Add Laplace noise whose random bits come from `source`; `laplace` passes the system's."""
    count = len(values.array)
    if values.integers:
        scale = _scale_within(sensitivity / epsilon)
        return _noisy(values, lambda size: discrete_laplace(scale, size, source))
    exponent, wide = laplace_on_grid(sensitivity, epsilon, count)
    scale = _scale_within(wide)
    return _noisy_on_grid(values, exponent, lambda size: discrete_laplace(scale, size, source))


def add_gaussian(
    values: NumericInput,
    sensitivity: Fraction,
    variance_of: VarianceOf,
    source: BitSource,
) -> Any:
    """Add Gaussian noise whose random bits come from `source`; `variance_of` is the calibration."""
    count = len(values.array)
    if values.integers:
        variance = _variance_within(variance_of(sensitivity, count == 1))
        return _noisy(values, lambda size: discrete_gaussian(variance, size, source))
    exponent, wide = gaussian_on_grid(sensitivity, variance_of, count)
    variance = _variance_within(wide)
    return _noisy_on_grid(values, exponent, lambda size: discrete_gaussian(variance, size, source))


def laplace_on_grid(sensitivity: Fraction, epsilon: Fraction, count: int) -> tuple[int, Fraction]:
    """Return the exponent of the grid for `count` floats, and the Laplace scale in steps of the grid."""
    exponent = grid_exponent(sensitivity, sensitivity / epsilon, count)
    return exponent, (in_steps(sensitivity, exponent) + count) / epsilon


def gaussian_on_grid(sensitivity: Fraction, variance_of: VarianceOf, count: int) -> tuple[int, Fraction]:
    """Return the exponent of the grid for `count` floats, and the Gaussian variance in steps of the grid."""
    # On a fine grid the ratio of noise to sensitivity is that of the continuous Gaussian.
    per_sensitivity = sqrt_fraction(variance_of(Fraction(_FINE), count == 1)) / _FINE
    exponent = grid_exponent(sensitivity, sensitivity * per_sensitivity, count)
    return exponent, variance_of(in_steps(sensitivity, exponent) + sqrt_above(count), count == 1)


def sqrt_fraction(number: Fraction) -> Fraction:
    """Return the square root to within a relative 2**-50. Use it to choose grids, not where privacy depends on it."""
    shift = 2 * max(0, 64 - (number.numerator.bit_length() - number.denominator.bit_length()) // 2)
    scaled = (number.numerator << shift) // number.denominator
    return Fraction(math.isqrt(scaled), 1 << shift // 2)


def _scale_within(scale: Fraction) -> Fraction:
    if scale > MAX_SCALE:
        raise _too_wide()
    return scale


def _variance_within(variance: Fraction) -> Fraction:
    if variance > MAX_SCALE**2:
        raise _too_wide()
    return variance


def _too_wide() -> InvalidParameterError:
    return InvalidParameterError(
        "The noise would be wider than 2**52, so noisy values would not fit into 64 bits. Use a larger unit for the "
        "values (thousands instead of ones), a smaller sensitivity or a larger spend."
    )


def _noisy(values: NumericInput, draw: DrawNoise) -> Any:
    python_integer = values.array.dtype == object
    sums = add_saturating(values.array, draw(len(values.array)), bounded=not python_integer)
    return values.restore(sums)


def _noisy_on_grid(values: NumericInput, exponent: int, draw: DrawNoise) -> Any:
    points = to_grid(values.array, exponent)
    return values.restore(from_grid(add_saturating(points, draw(len(points)), bounded=False), exponent))
