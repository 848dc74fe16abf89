"""The exact ground everything stands on: enclosures of exp(-x), and uniform numbers read bit by bit.

Integers only. A comparison reads as many bits as it needs, so its outcome has exactly the right probability.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dp_polars._sampling.bits import BitSource

Enclosure = Callable[[int], tuple[int, int]]
"""For a real number p in [0, 1]: maps `bits` to integers (low, high) with low <= 2**bits * p <= high."""

_GUARD_BITS = 16


def enclose_exp(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Return integers (low, high) with low <= 2**bits * exp(-exponent) <= high, for exponent >= 0.

    The gap is at most a few units, so more bits separate any number from exp(-exponent), which is irrational
    unless the exponent is zero.
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
    # The reduced exponent is at most 1/2: the terms fall and alternate, so the rest is below the last term, <= 1.
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
    """A uniform real number in [0, 1) of which some leading bits are known; more are drawn when needed."""

    __slots__ = ("_source", "bits", "value")

    def __init__(self, value: int, bits: int, source: BitSource) -> None:
        self.value, self.bits, self._source = value, bits, source

    @classmethod
    def draw(cls, source: BitSource) -> LazyUniform:
        """Return a number whose first 64 bits are drawn."""
        return cls(int(source.words(1, np.uint64)[0]), 64, source)

    def extend(self) -> None:
        """Draw 64 more bits."""
        self.value = self.value << 64 | int(self._source.words(1, np.uint64)[0])
        self.bits += 64

    def below(self, enclose: Enclosure) -> bool:
        """Whether the number is less than the enclosed one; draws until that is certain."""
        while True:
            low, high = enclose(self.bits + 8)
            if (self.value + 1) << 8 <= low:
                return True
            if self.value << 8 >= high:
                return False
            self.extend()

    def below_exp(self, exponent: Fraction) -> bool:
        """Whether the number is less than exp(-exponent)."""
        return self.below(lambda bits: enclose_exp(exponent, bits))
