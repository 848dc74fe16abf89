"""Discrete Laplace and Gaussian noise: from a lookup table for many samples, one by one for a few.

The table cuts the integers into buckets of 2**shift points and two tails. It draws a bucket in proportion to the
bucket's size times the largest weight in it, then a point uniformly within the bucket, and keeps the point with
probability (its weight / the largest weight of the bucket). That is plain rejection sampling, exact for any table. Up
to a spread of 32 a bucket is a single point and nothing is rejected; above that, about 3 of 100 points are.

Why it is fast: two random bytes and one lookup decide nearly every bucket, and two more bytes nearly every rejection.
The lookup is computed in floats with an error bound. A cell that a bucket boundary may cross is marked, and its samples
read more bits; where 64 bits lie within the error bound of a boundary, integers decide. The slow references are
`distributions.symmetric` for samples and `exact_bucket` for the lookup.
"""

from __future__ import annotations

import bisect
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_polars._sampling.bernoulli import Enclosure, LazyUniform, enclose_exp, exp_coins
from dp_polars._sampling.distributions import GaussianShape, LaplaceShape, NoiseShape, symmetric, tail
from dp_polars._sampling.uniform import BitSource

_SIDE = 512  # buckets on each side of zero; they cover at least 16 spreads, so a tail has probability below 1e-7
_POINTS_PER_SPREAD = 16
_CELL_BITS = 16
_CELLS = 1 << _CELL_BITS
# About 1000 weights, each off by a few ulp, are added and then divided: the error stays below 1000 * 2**-50.
_MARGIN = 2.0**-38
_CHUNK = 1 << 15  # samples at a time: the arrays then stay in the second-level cache
_CROSSED = -1


class SamplingTable:
    """Lookup table of one distribution. It holds neither data nor randomness, so all callers can share it."""

    def __init__(self, shape: NoiseShape) -> None:
        self.shape = shape
        self.shift = max(0, int(shape.spread / _POINTS_PER_SPREAD).bit_length() - 1)
        width = 1 << self.shift
        index = np.arange(-_SIDE, _SIDE, dtype=np.int64)
        first, last = np.abs(index * width), np.abs(index * width + (width - 1))
        self._near, far = np.minimum(first, last), np.maximum(first, last)
        self._right_start = _SIDE * width
        self._left_start = _SIDE * width + 1
        weights = np.exp(-shape.rise(np.zeros_like(self._near), self._near))
        boundaries = np.cumsum(np.concatenate(([self._tail(True)], weights, [self._tail(False)])))
        self._boundaries = boundaries / boundaries[-1]
        self._cells = self._lookup()
        # A 16-bit word below this value is certainly below every acceptance probability in the bucket.
        self._surely_kept = np.maximum(np.exp(-shape.rise(self._near, far)) * _CELLS - 1, 0).astype(np.uint16)

    def _start(self, left: bool) -> int:
        return self._left_start if left else self._right_start

    def _tail(self, left: bool) -> float:
        """Return the total weight of a tail's envelope: exp(-exponent(start) - slope * k) summed over k >= 0."""
        start = self._start(left)
        slope = float(self.shape.slope(start))
        envelope = np.exp(-float(self.shape.exponent(start))) / -np.expm1(-slope)
        return float(envelope) / (1 << self.shift)

    def _lookup(self) -> NDArray[np.int16]:
        """Return for each 16-bit word the bucket that contains all numbers starting with it, or _CROSSED."""
        scaled = self._boundaries[:-1] * _CELLS
        below = np.bincount(np.ceil(scaled).astype(np.int64), minlength=_CELLS + 1)
        cells = np.cumsum(below)[:_CELLS].astype(np.int16)
        for edge in (-_MARGIN, _MARGIN):
            crossed = np.floor(scaled + edge * _CELLS).astype(np.int64)
            cells[np.clip(crossed, 0, _CELLS - 1)] = _CROSSED
        cells[(cells == 0) | (cells == 2 * _SIDE + 1)] = _CROSSED  # the tails are sampled one by one
        return cells

    def buckets(self, words: NDArray[np.uint16], source: BitSource) -> tuple[NDArray[np.int16], NDArray[Any]]:
        """Return the bucket of each uniform number, and the positions of those that needed more than 16 bits."""
        found = self._cells[words]
        crossed = np.flatnonzero(found < 0)
        if len(crossed):
            found[crossed] = self._settle(words[crossed], source)
        return found, crossed

    def _settle(self, words: NDArray[np.uint16], source: BitSource) -> NDArray[np.int16]:
        low = source.words(len(words), np.uint64) >> np.uint64(_CELL_BITS)
        full = (words.astype(np.uint64) << np.uint64(64 - _CELL_BITS)) | low
        uniform = full * 2.0**-64
        at_least = np.searchsorted(self._boundaries[:-1], uniform - _MARGIN, side="right")
        at_most = np.searchsorted(self._boundaries[:-1], uniform + _MARGIN, side="right")
        found = at_least.astype(np.int16)
        for i in np.flatnonzero(at_least != at_most):
            found[i] = self.exact_bucket(LazyUniform(int(full[i]), 64, source))
        return found

    def exact_bucket(self, uniform: LazyUniform) -> int:
        """Return the bucket of a uniform number, using integer arithmetic only."""
        buckets = range(2 * _SIDE + 1)
        return bisect.bisect_left(buckets, True, key=lambda i: uniform.below(self._boundary(i)))

    def _boundary(self, i: int) -> Enclosure:
        def enclose(bits: int) -> tuple[int, int]:
            lows, highs = self._cumulative(bits + 32)
            return (lows[i] << bits) // highs[-1], -((-highs[i] << bits) // lows[-1])

        return enclose

    @lru_cache(maxsize=4)  # noqa: B019 - there are few tables, and they are cached anyway
    def _cumulative(self, bits: int) -> tuple[list[int], list[int]]:
        """Return the running sums of lower and of upper bounds of 2**bits times the bucket weights."""
        inner = [enclose_exp(self.shape.exponent(int(near)), bits) for near in self._near]
        lows, highs = [0], [0]
        for low, high in [self._exact_tail(True, bits), *inner, self._exact_tail(False, bits)]:
            lows.append(lows[-1] + low)
            highs.append(highs[-1] + high)
        return lows[1:], highs[1:]

    def _exact_tail(self, left: bool, bits: int) -> tuple[int, int]:
        start = self._start(left)
        low, high = enclose_exp(self.shape.exponent(start), bits)
        ratio_low, ratio_high = enclose_exp(self.shape.slope(start), bits)
        one, width = 1 << bits, 1 << self.shift
        return low * one // (width * (one - ratio_low)), -(-high * one // (width * (one - ratio_high)))

    def draw(self, size: int, source: BitSource) -> NDArray[Any]:
        """Return `size` samples as int64, or as Python integers if one does not fit (probability below e**-2000)."""
        parts: list[NDArray[Any]] = []
        missing = size
        while missing:
            wanted = min(_CHUNK, missing + (missing // 16 + 16 if self.shift else 0))
            part = self._propose(wanted, source)[:missing]
            parts.append(part)
            missing -= len(part)
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _propose(self, size: int, source: BitSource) -> NDArray[Any]:
        """Make `size` proposals and return those that are kept."""
        bucket, crossed = self.buckets(source.words(size, np.uint16), source)
        samples = bucket.astype(np.int64)
        samples -= _SIDE + 1
        kept = None
        if self.shift:
            samples <<= self.shift
            samples += _low_bits(self.shift, size, source)
            kept = self._keep(bucket, samples, source)
        for i in crossed[np.isin(bucket[crossed], (0, 2 * _SIDE + 1))]:
            left = bool(bucket[i] == 0)
            value = tail(self.shape, self._start(left), source)
            kept = np.ones(size, np.bool_) if kept is None else kept
            kept[i] = value is not None
            if value is not None:
                if value >= 1 << 63:
                    samples = samples.astype(object)
                samples[i] = -value if left else value
        return samples if kept is None else samples[kept]

    def _keep(self, bucket: NDArray[np.int16], samples: NDArray[np.int64], source: BitSource) -> NDArray[np.bool_]:
        words = source.words(len(bucket), np.uint16)
        inner = np.clip(bucket - 1, 0, 2 * _SIDE - 1)  # the result for tails is overwritten later
        kept: NDArray[np.bool_] = words < self._surely_kept[inner]
        unsure = np.flatnonzero(~kept)
        if len(unsure):
            near = self._near[inner[unsure]]
            far = np.maximum(np.abs(samples[unsure]), near)
            more = source.words(len(unsure), np.uint16).astype(np.uint32)
            kept[unsure] = exp_coins(
                (words[unsure].astype(np.uint32) << np.uint32(16)) | more,
                self.shape.rise(near, far),
                lambda i: self.shape.exponent(int(far[i])) - self.shape.exponent(int(near[i])),
                source,
            )
        return kept


def _low_bits(bits: int, size: int, source: BitSource) -> NDArray[Any]:
    if bits <= 16:
        return source.words(size, np.uint16) >> np.uint16(16 - bits)
    if bits <= 32:
        return source.words(size, np.uint32) >> np.uint32(32 - bits)
    return (source.words(size, np.uint64) >> np.uint64(64 - bits)).astype(np.int64)


@lru_cache(maxsize=32)
def table_of(shape: NoiseShape) -> SamplingTable:
    """Return the table of a distribution, which is built once and cached."""
    return SamplingTable(shape)


MAX_SCALE = 1 << 52
"""Largest scale of either distribution. A sample then exceeds 64 bits with probability below exp(-2000)."""

_FEW = 5  # building a table takes about as long as drawing this many samples one by one


def discrete_laplace(scale: Fraction, size: int, source: BitSource) -> NDArray[Any]:
    """Return `size` samples with P(x) proportional to exp(-|x| / scale), exactly.

    The array holds int64, or Python integers in the astronomically rare case that a sample does not fit.
    """
    _check(scale)
    return _draw(LaplaceShape(scale), size, source)


def discrete_gaussian(variance: Fraction, size: int, source: BitSource) -> NDArray[Any]:
    """Return `size` samples with P(x) proportional to exp(-x**2 / (2 * variance)), exactly."""
    _check(variance, square=True)
    return _draw(GaussianShape(variance), size, source)


def _check(scale: Fraction, square: bool = False) -> None:
    if not 0 < scale <= (MAX_SCALE**2 if square else MAX_SCALE):
        raise ValueError("noise scale outside (0, 2**52]")


def _draw(shape: NoiseShape, size: int, source: BitSource) -> NDArray[Any]:
    if size >= _FEW:
        return table_of(shape).draw(size, source)
    samples = [symmetric(shape, source) for _ in range(size)]
    fits = all(-(1 << 63) <= sample < 1 << 63 for sample in samples)
    return np.array(samples, dtype=np.int64 if fits else object)
