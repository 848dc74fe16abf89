"""The two noise distributions as exact exponents: P(x) is proportional to exp(-exponent(x)) on the integers.

Both are symmetric about 0 with an exponent that is 0 at 0 and convex in |x|. Each knows, besides the exponent:

- `spread`: the scale in x on which the exponent grows by about one;
- `anchor`: a point on that scale where a tangent of the exponent fits it well;
- `rise(near, far)`: exponent(far) - exponent(near) for 0 <= near <= far as floats, right to a few units in the last
  place;
- `slope(start)` and `bend(k)`: exponent(start + k) = exponent(start) + slope(start) * k + bend(k) for k >= 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class LaplaceShape:
    """Discrete Laplace: P(x) ~ exp(-|x| / scale)."""

    scale: Fraction

    @property
    def spread(self) -> float:
        """Return the scale in x on which the exponent grows by about one."""
        return float(self.scale)

    @property
    def anchor(self) -> Fraction:
        """Return a point where a tangent of the exponent fits it well."""
        return Fraction(0)

    def exponent(self, x: Fraction | int) -> Fraction:
        """Return -log of the weight of x against that of 0."""
        return abs(Fraction(x)) / self.scale

    def rise(self, near: NDArray[np.int64], far: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return exponent(far) - exponent(near), right to a few units in the last place."""
        return (far - near).astype(np.float64) * (1.0 / float(self.scale))

    def slope(self, start: Fraction | int) -> Fraction:
        """Return the slope of the tangent at `start`."""
        return 1 / self.scale

    def bend(self, k: int) -> Fraction:
        """Return what the tangent leaves out k points on."""
        return Fraction(0)


@dataclass(frozen=True)
class GaussianShape:
    """Discrete Gaussian: P(x) ~ exp(-x**2 / (2 * variance)) (Canonne, Kamath, Steinke 2020)."""

    variance: Fraction

    @property
    def spread(self) -> float:
        """Return the scale in x on which the exponent grows by about one."""
        return math.sqrt(self.variance)

    @property
    def anchor(self) -> Fraction:
        """Return a point where a tangent of the exponent fits it well."""
        # The tangent's slope is then 1 / (floor(sigma) + 1): a Laplace of about sigma, however small sigma is.
        return self.variance / (math.isqrt(int(self.variance)) + 1)

    def exponent(self, x: Fraction | int) -> Fraction:
        """Return -log of the weight of x against that of 0."""
        return Fraction(x * x) / (2 * self.variance)

    def rise(self, near: NDArray[np.int64], far: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return exponent(far) - exponent(near), right to a few units in the last place."""
        # A product of exact integers, not a difference of squares: no cancellation.
        return (far - near).astype(np.float64) * (far + near) * (0.5 / float(self.variance))

    def slope(self, start: Fraction | int) -> Fraction:
        """Return the slope of the tangent at `start`."""
        return start / self.variance

    def bend(self, k: int) -> Fraction:
        """Return what the tangent leaves out k points on."""
        return Fraction(k * k) / (2 * self.variance)


Shape = LaplaceShape | GaussianShape
