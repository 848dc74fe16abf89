"""The Laplace and the Gaussian mechanism on whole numbers and on floats.

What one unit can change is the caller's word here: `sensitivity` is how far the whole array can move when one
unit's data change, in the first norm for Laplace and in the second for Gaussian. Whole numbers get discrete noise
and stay whole; floats are first rounded to a grid, and the sensitivity grows by what that rounding can add.

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
from dp_polars.mechanisms._numeric_input import Values, read_numbers

N = TypeVar("N", int, float, NDArray[Any], pl.Series)
Draw = Callable[[int], NDArray[Any]]

_FINE = 1 << 16


def laplace(values: N, *, sensitivity: Number, epsilon: Number) -> N:
    """Add exactly sampled discrete Laplace noise. Charges no budget: the caller accounts for `epsilon`.

    Parameters
    ----------
    values
        A number, a numpy array or a Polars Series. Whole numbers stay whole (answers beyond 64 bits saturate);
        floats are rounded to a power-of-two grid far finer than the noise.
    sensitivity
        The most that one unit can change the whole of `values`: the sum of the absolute changes.
    epsilon
        The privacy loss of this release.

    Returns
    -------
    Same kind as `values`
        Noisy values, int64 or float64.

    Notes
    -----
    Pure epsilon-differential privacy (Dwork, McSherry, Nissim, Smith 2006), on the integers as in Ghosh,
    Roughgarden and Sundararajan (2012).

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
    """Add exactly sampled discrete Gaussian noise. Charges no budget: the caller accounts for the spend.

    Parameters
    ----------
    values
        A number, a numpy array or a Polars Series, as in `laplace`.
    sensitivity
        The most that one unit can change the whole of `values`: the root of the sum of the squared changes.
    rho
        The spend as zero-concentrated differential privacy: the variance is sensitivity**2 / (2 * rho).
    epsilon, delta
        Or the spend as an (epsilon, delta) of this release alone.
    calibration
        How `epsilon` and `delta` become a variance. "exact" solves the hockey-stick divergence of the discrete
        Gaussian for one value, and goes through rho for several; "zcdp" always goes through rho; "classic" is
        sqrt(2 ln(1.25/delta)) * sensitivity / epsilon (Dwork and Roth 2014, theorem A.1), proved for epsilon up to 1
        and refused above.

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


def add_laplace(values: Values, sensitivity: Fraction, epsilon: Fraction, source: BitSource) -> Any:
    """Return noisy `values`; the core of `laplace` with its bits handed in."""
    count = len(values.array)
    if values.integers:
        scale = _scale_within(sensitivity / epsilon)
        return _noisy(values, lambda size: discrete_laplace(scale, size, source))
    exponent, wide = laplace_on_grid(sensitivity, epsilon, count)
    scale = _scale_within(wide)
    return _noisy_on_grid(values, exponent, lambda size: discrete_laplace(scale, size, source))


def add_gaussian(
    values: Values,
    sensitivity: Fraction,
    variance_of: VarianceOf,
    source: BitSource,
) -> Any:
    """Return noisy `values`; `variance_of(sensitivity, single value?)` is the calibration."""
    count = len(values.array)
    if values.integers:
        variance = _variance_within(variance_of(sensitivity, count == 1))
        return _noisy(values, lambda size: discrete_gaussian(variance, size, source))
    exponent, wide = gaussian_on_grid(sensitivity, variance_of, count)
    variance = _variance_within(wide)
    return _noisy_on_grid(values, exponent, lambda size: discrete_gaussian(variance, size, source))


def laplace_on_grid(sensitivity: Fraction, epsilon: Fraction, count: int) -> tuple[int, Fraction]:
    """Return the exponent of the grid for `count` floats and the Laplace scale in its steps."""
    exponent = grid_exponent(sensitivity, sensitivity / epsilon, count)
    return exponent, (in_steps(sensitivity, exponent) + count) / epsilon


def gaussian_on_grid(sensitivity: Fraction, variance_of: VarianceOf, count: int) -> tuple[int, Fraction]:
    """Return the exponent of the grid for `count` floats and the Gaussian variance in its steps."""
    # On a fine grid the noise per sensitivity is that of the continuous Gaussian: a large sensitivity shows it.
    per_sensitivity = sqrt_fraction(variance_of(Fraction(_FINE), count == 1)) / _FINE
    exponent = grid_exponent(sensitivity, sensitivity * per_sensitivity, count)
    return exponent, variance_of(in_steps(sensitivity, exponent) + sqrt_above(count), count == 1)


def sqrt_fraction(number: Fraction) -> Fraction:
    """Return the square root to within a relative 2**-50; for choosing grids, not for privacy."""
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
        "The noise would be wider than 2**52 and not fit 64-bit numbers. Use a larger unit for the values "
        "(thousands instead of ones), a smaller sensitivity or a larger spend."
    )


def _noisy(values: Values, draw: Draw) -> Any:
    python_integer = values.array.dtype == object
    sums = add_saturating(values.array, draw(len(values.array)), bounded=not python_integer)
    return values.restore(sums)


def _noisy_on_grid(values: Values, exponent: int, draw: Draw) -> Any:
    points = to_grid(values.array, exponent)
    return values.restore(from_grid(add_saturating(points, draw(len(points)), bounded=False), exponent))
