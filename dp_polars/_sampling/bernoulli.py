"""Coins with a rational probability or with probability exp(-x), both exact.

A coin compares a uniform number with the probability. The probability is enclosed between two integers, and the
uniform number reveals more bits until it lies outside the enclosure, so the outcome has exactly the right probability.
Only integers decide; floats merely spare most coins the exact comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dp_polars._sampling.uniform import BitSource

Enclosure = Callable[[int], tuple[int, int]]
"""Bounds of a real number p in [0, 1]: maps `bits` to integers (low, high) with low <= 2**bits * p <= high."""

_GUARD_BITS = 16
_BITS = 32
# A 32-bit word leaves the uniform number undetermined by 2**-32. The float exp(-g) is off by less than 2**-40 for the
# exponents that `exp_coins` allows (the error of g is below 2**-41, that of numpy's exp below 8 ulp). The margin is
# larger than both together.
_MARGIN = 2.0**-31


def enclose_exp(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Return integers (low, high) with low <= 2**bits * exp(-exponent) <= high, for exponent >= 0.

    The two differ by at most a few units, so with enough bits the enclosure excludes any given rational number:
    exp(-exponent) is irrational unless the exponent is zero.
    """
    if exponent == 0:
        return 1 << bits, 1 << bits
    if exponent > bits + 1:  # exp(-x) < 2**-x
        return 0, 1
    # exp(-x) = exp(-x / 2**halvings) ** (2**halvings); each squaring at most doubles the relative error.
    halvings = max(0, int(exponent).bit_length() + 1)
    precision = bits + 2 * halvings + _GUARD_BITS
    numerator, denominator = exponent.numerator, exponent.denominator << halvings
    low = high = term_low = term_high = 1 << precision
    order = 0
    while term_high > 1:
        order += 1
        term_low = term_low * numerator // (denominator * order)
        term_high = -(-term_high * numerator // (denominator * order))
        if order % 2:
            low, high = low - term_high, high - term_low
        else:
            low, high = low + term_low, high + term_high
    # The reduced exponent is at most 1/2. The terms shrink and alternate in sign, so what the series leaves out is
    # smaller than the last term, which is at most 1.
    low, high = max(low - 1, 0), high + 1
    for _ in range(halvings):
        low = low * low >> precision
        high = -(-high * high >> precision)
    shift = precision - bits
    return low >> shift, -(-high >> shift)


def enclose_fraction(probability: Fraction) -> Enclosure:
    """Return the enclosure of a rational number."""

    def enclose(bits: int) -> tuple[int, int]:
        low, rest = divmod(probability.numerator << bits, probability.denominator)
        return low, low + (rest > 0)

    return enclose


class LazyUniform:
    """A uniform real number in [0, 1) whose leading bits are known; more bits are drawn when they are needed."""

    __slots__ = ("_source", "bits", "value")

    def __init__(self, value: int, bits: int, source: BitSource) -> None:
        self.value, self.bits, self._source = value, bits, source

    @classmethod
    def draw(cls, source: BitSource) -> LazyUniform:
        """Return a new uniform number with its first 64 bits drawn."""
        return cls(int(source.words(1, np.uint64)[0]), 64, source)

    def extend(self) -> None:
        """Draw 64 more bits."""
        self.value = self.value << 64 | int(self._source.words(1, np.uint64)[0])
        self.bits += 64

    def below(self, enclose: Enclosure) -> bool:
        """Return whether the number is below the enclosed one, drawing bits until that is certain."""
        while True:
            low, high = enclose(self.bits + 8)
            if (self.value + 1) << 8 <= low:
                return True
            if self.value << 8 >= high:
                return False
            self.extend()

    def below_exp(self, exponent: Fraction) -> bool:
        """Return whether the number is below exp(-exponent)."""
        return self.below(lambda bits: enclose_exp(exponent, bits))


def bernoulli(probability: Fraction, size: int, source: BitSource) -> NDArray[np.bool_]:
    """Return `size` independent coins that are True with exactly this rational probability."""
    return enclosed_coins(enclose_fraction(probability), size, source)


def enclosed_coins(enclose: Enclosure, size: int, source: BitSource) -> NDArray[np.bool_]:
    """Return `size` independent coins that are True with exactly the probability that `enclose` encloses."""
    low, high = enclose(_BITS)
    words = source.words(size, np.uint32).astype(np.uint64)
    coins: NDArray[np.bool_] = words < np.uint64(low)
    for i in np.flatnonzero((words >= np.uint64(low)) & (words < np.uint64(high))):
        coins[i] = LazyUniform(int(words[i]), _BITS, source).below(enclose)
    return coins


def bernoulli_exp_each(
    exponents: NDArray[np.float64], exact: Callable[[int], Fraction], source: BitSource
) -> NDArray[np.bool_]:
    """Return one coin per exponent, True with probability exactly exp(-exact(i)).

    The floats in `exponents` need a relative error below 2**-45 or an absolute error below 2**-41; a float that
    overflowed to infinity is fine. `exact(i)` is called only where the float does not decide.
    """
    return exp_coins(source.words(len(exponents), np.uint32), exponents, exact, source)


def exp_coins(
    words: NDArray[np.uint32],
    exponents: NDArray[np.float64],
    exact: Callable[[int], Fraction],
    source: BitSource,
) -> NDArray[np.bool_]:
    """Return the coins of `bernoulli_exp_each`, given the first 32 bits of each uniform number."""
    gap = np.exp(-exponents)
    gap -= words * 2.0**-_BITS
    coins: NDArray[np.bool_] = gap > 0
    for i in np.flatnonzero(np.abs(gap) <= _MARGIN):
        coins[i] = LazyUniform(int(words[i]), _BITS, source).below_exp(exact(int(i)))
    return coins
