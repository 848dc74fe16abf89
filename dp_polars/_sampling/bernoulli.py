"""Coins: with a rational probability, and with probability exp(-x)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dp_polars._sampling.bits import BitSource
from dp_polars._sampling.lazy import Enclosure, LazyUniform, enclose_exp, enclose_fraction

_BITS = 32
# A 32-bit word leaves 2**-32 of the uniform number open. The float exp(-g) is off by less than 2**-40 for the
# exponents that `exp_coins` allows (error of g below 2**-41, of numpy's exp below 8 ulp). Both fit twice into this.
_MARGIN = 2.0**-31


def bernoulli(probability: Fraction, size: int, source: BitSource) -> NDArray[np.bool_]:
    """Return `size` independent coins that are True with exactly this rational probability."""
    return enclosed_coins(enclose_fraction(probability), size, source)


def bernoulli_exp(exponent: Fraction, size: int, source: BitSource) -> NDArray[np.bool_]:
    """Return `size` independent coins that are True with probability exactly exp(-exponent)."""
    return enclosed_coins(lambda bits: enclose_exp(exponent, bits), size, source)


def enclosed_coins(enclose: Enclosure, size: int, source: BitSource) -> NDArray[np.bool_]:
    """Return `size` independent coins that are True with the one probability that `enclose` encloses."""
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

    `exponents` are floats with a relative error below 2**-45 or an absolute one below 2**-41 (a float that
    overflowed to infinity is fine); `exact(i)` gives the true exponent where that is not enough.
    """
    return exp_coins(source.words(len(exponents), np.uint32), exponents, exact, source)


def exp_coins(
    words: NDArray[np.uint32],
    exponents: NDArray[np.float64],
    exact: Callable[[int], Fraction],
    source: BitSource,
) -> NDArray[np.bool_]:
    """As `bernoulli_exp_each`, with the first 32 bits of each uniform number given."""
    gap = np.exp(-exponents)
    gap -= words * 2.0**-_BITS
    coins: NDArray[np.bool_] = gap > 0
    for i in np.flatnonzero(np.abs(gap) <= _MARGIN):
        coins[i] = LazyUniform(int(words[i]), _BITS, source).below_exp(exact(int(i)))
    return coins
