"""Coins: exact at the boundary word, right on average, and the float filter agrees with exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from dp_polars._sampling import bernoulli, bernoulli_exp, bernoulli_exp_each
from dp_polars._sampling.bernoulli import exp_coins
from dp_polars._sampling.lazy import LazyUniform, enclose_exp
from tests.bits import ScriptedBits, SeededBits
from tests.statistics import binomial_fits


@pytest.mark.parametrize("probability", [Fraction(0), Fraction(1), Fraction(1, 2)])
def test_dyadic_probabilities_never_read_on(probability):
    source = SeededBits(3)
    coins = bernoulli(probability, 1000, source)
    assert source.served == 1000
    if probability in (0, 1):
        assert coins.all() == bool(probability)
        assert coins.any() == bool(probability)


def test_the_word_that_holds_a_third_is_decided_by_the_next_bits():
    third = (1 << 32) // 3  # 1/3 lies strictly inside this word
    coins = bernoulli(Fraction(1, 3), 3, ScriptedBits([third - 1, third, third + 1], [0]))
    assert coins.tolist() == [True, True, False]
    coins = bernoulli(Fraction(1, 3), 1, ScriptedBits([third], [(1 << 64) - 1]))
    assert coins.tolist() == [False]


@pytest.mark.parametrize("probability", [Fraction(1, 3), Fraction(999, 1000), Fraction(1, 10**4)])
def test_rational_coins_have_their_probability(probability):
    n = 200_000
    assert binomial_fits(int(bernoulli(probability, n, SeededBits(4)).sum()), n, float(probability))


@pytest.mark.parametrize("exponent", [Fraction(1, 1000), Fraction(1, 3), Fraction(1), Fraction(7)])
def test_exp_coins_have_their_probability(exponent):
    n = 200_000
    assert binomial_fits(int(bernoulli_exp(exponent, n, SeededBits(5)).sum()), n, float(np.exp(-float(exponent))))
    approximate = np.full(n, float(exponent))
    coins = bernoulli_exp_each(approximate, lambda i: exponent, SeededBits(6))
    assert binomial_fits(int(coins.sum()), n, float(np.exp(-float(exponent))))


def exact_coin(word: int, exponent: Fraction) -> bool | None:
    """What integers say of a 32-bit word: True, False, or None when 32 bits do not decide."""
    low, high = enclose_exp(exponent, 64)
    if (word + 1) << 32 <= low:
        return True
    return False if word << 32 >= high else None


@pytest.mark.slow
def test_the_float_filter_never_differs_from_exact_arithmetic_on_the_same_words():
    generator = np.random.default_rng(7)
    n = 40_000
    exponents = [Fraction(int(a), int(b)) for a, b in generator.integers(1, 10**6, (n, 2))]
    floats = np.array([float(e) for e in exponents])
    words = generator.integers(0, 1 << 32, n, dtype=np.uint32)
    # Half of the words lie within a few units of the boundary, where the filter is put to the test.
    near = np.floor(np.exp(-floats) * 2.0**32) + generator.integers(-4, 5, n)
    words = np.where(np.arange(n) % 2, np.clip(near, 0, 2**32 - 1), words).astype(np.uint32)
    coins = exp_coins(words, floats, lambda i: exponents[i], SeededBits(8))
    differences = undecided = 0
    for word, exponent, coin in zip(words.tolist(), exponents, coins.tolist(), strict=True):
        expected = exact_coin(word, exponent)
        undecided += expected is None
        differences += expected is not None and expected != coin
    assert differences == 0
    assert undecided > 100  # the words that need more bits were really there


def test_the_forced_fall_back_gives_the_same_coins(monkeypatch):
    generator = np.random.default_rng(9)
    exponents = [Fraction(int(a), 1000) for a in generator.integers(0, 5000, 3000)]
    floats = np.array([float(e) for e in exponents])
    words = generator.integers(0, 1 << 32, len(floats), dtype=np.uint32)
    by_filter = exp_coins(words, floats, lambda i: exponents[i], SeededBits(10))
    import sys

    monkeypatch.setattr(sys.modules["dp_polars._sampling.bernoulli"], "_MARGIN", 2.0)
    by_integers = exp_coins(words, floats, lambda i: exponents[i], SeededBits(11))
    assert (by_filter == by_integers).all()


def test_an_overflowed_exponent_is_settled_exactly():
    words = np.array([0, 1, 2**32 - 1], dtype=np.uint32)
    coins = exp_coins(words, np.full(3, np.inf), lambda i: Fraction(10**320), SeededBits(1))
    assert not coins.any()


def test_lazy_uniform_from_a_word_is_the_same_number():
    assert LazyUniform(1 << 31, 32, SeededBits(1)).below_exp(Fraction(1, 2))  # 0.5 < 0.6065
