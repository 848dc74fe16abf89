"""One sample at a time in exact arithmetic: for few samples, for tails, and as the reference for `table`."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dp_polars._sampling.bits import BitSource
from dp_polars._sampling.lazy import LazyUniform
from dp_polars._sampling.shapes import Shape


def geometric(scale: Fraction, source: BitSource) -> int:
    """Return G >= 0 with P(G >= g) = exp(-g / scale): the g with exp(-(g+1)/scale) <= U < exp(-g/scale)."""
    uniform = LazyUniform.draw(source)
    while uniform.value == 0:
        uniform.extend()
    # Floats only say where to look; every step is decided exactly.
    guess = (uniform.bits * math.log(2) - math.log(uniform.value)) * float(scale)
    step = max(1, int(guess * 1e-12))
    low = max(0, int(guess))
    while low and not uniform.below_exp(low / scale):
        low, step = max(0, low - step), step * 2
    step = max(1, int(guess * 1e-12))
    high = low + step
    while uniform.below_exp(high / scale):
        low, high, step = high, high + step * 2, step * 2
    while high - low > 1:
        middle = (low + high) // 2
        if uniform.below_exp(middle / scale):
            low = middle
        else:
            high = middle
    return low


def coin_exp(exponent: Fraction, source: BitSource) -> bool:
    """Return True with probability exp(-exponent)."""
    return exponent == 0 or LazyUniform.draw(source).below_exp(exponent)


def symmetric(shape: Shape, source: BitSource) -> int:
    """Return one sample of `shape`, by rejection from a discrete Laplace that lies above it.

    The tangent of the convex exponent at the anchor never lies above it, so a Laplace sample of scale 1 / slope is
    kept with probability exp(-(exponent - tangent)). About three of four Gaussian proposals are kept, all Laplace
    ones (Canonne, Kamath, Steinke 2020, algorithm 3).
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


def tail(shape: Shape, start: int, source: BitSource) -> int | None:
    """Return start + k with weight exp(-slope * k - bend(k)), or None where the proposal was rejected."""
    k = geometric(1 / shape.slope(start), source)
    return start + k if coin_exp(shape.bend(k), source) else None
