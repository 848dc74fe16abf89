"""The discrete Laplace and Gaussian distributions, and exact sampling of one number at a time.

Both have P(x) proportional to exp(-exponent(x)) on the integers. They are symmetric about 0, and the exponent is 0 at
0 and convex in |x|. The samplers here use exact arithmetic throughout. They serve small samples and the tails, and
they are the reference that the faster table in `noise` is tested against.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dp_polars._numbers import boundary
from dp_polars._sampling.bernoulli import LazyUniform
from dp_polars._sampling.uniform import BitSource


@dataclass(frozen=True)
class LaplaceShape:
    """Discrete Laplace distribution: P(x) is proportional to exp(-|x| / scale)."""

    scale: Fraction

    @property
    def spread(self) -> float:
        """The distance in x over which the exponent grows by about one."""
        return float(self.scale)

    @property
    def anchor(self) -> Fraction:
        """A point at which the tangent of the exponent is a close bound."""
        return Fraction(0)

    def exponent(self, x: Fraction | int) -> Fraction:
        """Return -log(P(x) / P(0))."""
        return abs(Fraction(x)) / self.scale

    def rise(self, near: NDArray[np.int64], far: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return exponent(far) - exponent(near) for 0 <= near <= far, to within a few ulp."""
        return (far - near).astype(np.float64) * (1.0 / float(self.scale))

    def slope(self, start: Fraction | int) -> Fraction:
        """Return the slope of the exponent's tangent at `start`."""
        return 1 / self.scale

    def bend(self, k: int) -> Fraction:
        """Return exponent(start + k) - exponent(start) - slope(start) * k for k >= 0, the same for every start."""
        return Fraction(0)


@dataclass(frozen=True)
class GaussianShape:
    """Discrete Gaussian distribution: P(x) is proportional to exp(-x**2 / (2 * variance)).

    Canonne, Kamath and Steinke 2020.
    """

    variance: Fraction

    @property
    def spread(self) -> float:
        """The distance in x over which the exponent grows by about one."""
        return math.sqrt(self.variance)

    @property
    def anchor(self) -> Fraction:
        """A point at which the tangent of the exponent is a close bound."""
        # The tangent's slope is then 1 / (floor(sigma) + 1): a Laplace of about sigma, however small sigma is.
        return self.variance / (math.isqrt(int(self.variance)) + 1)

    def exponent(self, x: Fraction | int) -> Fraction:
        """Return -log(P(x) / P(0))."""
        return Fraction(x * x) / (2 * self.variance)

    def rise(self, near: NDArray[np.int64], far: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return exponent(far) - exponent(near) for 0 <= near <= far, to within a few ulp."""
        # A product of exact integers instead of a difference of squares avoids cancellation.
        return (far - near).astype(np.float64) * (far + near) * (0.5 / float(self.variance))

    def slope(self, start: Fraction | int) -> Fraction:
        """Return the slope of the exponent's tangent at `start`."""
        return start / self.variance

    def bend(self, k: int) -> Fraction:
        """Return exponent(start + k) - exponent(start) - slope(start) * k for k >= 0, the same for every start."""
        return Fraction(k * k) / (2 * self.variance)


NoiseShape = LaplaceShape | GaussianShape


def geometric(scale: Fraction, source: BitSource) -> int:
    """Return G >= 0 with P(G >= g) = exp(-g / scale): the g with exp(-(g+1)/scale) <= U < exp(-g/scale)."""
    uniform = LazyUniform.draw(source)
    while uniform.value == 0:
        uniform.extend()
    # The float guess only says where to start; every comparison below is exact.
    guess = (uniform.bits * math.log(2) - math.log(uniform.value)) * float(scale)
    step = max(1, int(guess * 1e-12))
    low = max(0, int(guess))
    while low and not uniform.below_exp(low / scale):
        low, step = max(0, low - step), step * 2
    step = max(1, int(guess * 1e-12))
    high = low + step
    while uniform.below_exp(high / scale):
        low, high, step = high, high + step * 2, step * 2
    if high == low + 1:  # so it is, unless the scale is huge
        return low
    return boundary(lambda g: uniform.below_exp(g / scale), inside=low, outside=high)


def coin_exp(exponent: Fraction, source: BitSource) -> bool:
    """Return True with probability exactly exp(-exponent)."""
    return exponent == 0 or LazyUniform.draw(source).below_exp(exponent)


def symmetric(shape: NoiseShape, source: BitSource) -> int:
    """Return one sample of `shape`, by rejection from a discrete Laplace distribution that dominates it.

    The exponent is convex, so it never lies below its tangent at the anchor. A Laplace sample of scale 1 / slope is
    therefore kept with probability exp(-(exponent - tangent)). About three of four Gaussian proposals are kept, and
    all Laplace proposals (Canonne, Kamath and Steinke 2020, algorithm 3).
    """
    slope = shape.slope(shape.anchor)
    offset = shape.exponent(shape.anchor) - slope * shape.anchor
    while True:
        magnitude = geometric(1 / slope, source)
        negative = bool(int(source.words(1, np.uint8)[0]) & 1)
        if negative and magnitude == 0:
            continue
        if coin_exp(shape.exponent(magnitude) - slope * magnitude - offset, source):
            return -magnitude if negative else magnitude


def tail(shape: NoiseShape, start: int, source: BitSource) -> int | None:
    """Propose start + k from the tail with weight exp(-slope * k - bend(k)); return None if it is rejected."""
    k = geometric(1 / shape.slope(start), source)
    return start + k if coin_exp(shape.bend(k), source) else None
