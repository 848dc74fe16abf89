"""Enclosures of exp(-x) contain it, comparisons with them are exact, and coins have exactly their probability."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_polars._sampling import bernoulli, bernoulli_exp_each
from dp_polars._sampling.bernoulli import LazyUniform, enclose_exp, enclose_fraction, enclosed_coins, exp_coins
from tests.bits import ScriptedBits, SeededBits
from tests.statistics import binomial_fits


def decimal_exp(exponent: Fraction, digits: int = 400) -> Decimal:
    with localcontext() as context:
        context.prec = digits
        return (Decimal(-exponent.numerator) / Decimal(exponent.denominator)).exp()


@pytest.mark.slow
@settings(max_examples=400, derandomize=True, deadline=None)
@given(
    st.fractions(min_value=0, max_value=200) | st.fractions(min_value=0, max_value=Fraction(1, 10**12)),
    st.integers(8, 300),
)
def test_the_enclosure_holds_the_true_value_and_is_narrow(exponent, bits):
    low, high = enclose_exp(exponent, bits)
    with localcontext() as context:
        context.prec = 400
        true = decimal_exp(exponent) * (1 << bits)
        assert Decimal(low) <= true <= Decimal(high)
    assert 0 <= high - low <= 2


@pytest.mark.parametrize("exponent", [10**3, 10**9, 10**300, Fraction(10**40, 3)])
def test_huge_exponents_take_no_time_and_still_enclose(exponent):
    assert enclose_exp(Fraction(exponent), 64) == (0, 1)


def test_more_bits_always_separate():
    exponent = Fraction(1, 3)
    for bits in (16, 64, 256, 1024):
        low, high = enclose_exp(exponent, bits)
        assert high - low <= 2


def test_a_comparison_reads_on_exactly_when_it_must():
    low, _ = enclose_exp(Fraction(1), 64)
    assert LazyUniform(low - 1, 64, ScriptedBits()).below_exp(Fraction(1))
    assert not LazyUniform(low + 1, 64, ScriptedBits()).below_exp(Fraction(1))
    # The word that contains exp(-1) is decided by the next 64 bits.
    next_word = enclose_exp(Fraction(1), 128)[0] - (low << 64)
    assert LazyUniform(low, 64, ScriptedBits([next_word - 1])).below_exp(Fraction(1))
    assert not LazyUniform(low, 64, ScriptedBits([next_word + 1])).below_exp(Fraction(1))


@pytest.mark.slow
@settings(max_examples=200, derandomize=True)
@given(st.fractions(min_value=0, max_value=1), st.integers(1, 80))
def test_fractions_are_enclosed_exactly(probability, bits):
    low, high = enclose_fraction(probability)(bits)
    assert low <= probability * 2**bits <= high <= low + 1


def test_comparing_with_one_never_draws():
    source = SeededBits(1)
    assert LazyUniform((1 << 64) - 1, 64, source).below_exp(Fraction(0))
    assert source.served == 0


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
    coins = enclosed_coins(lambda bits: enclose_exp(exponent, bits), n, SeededBits(5))
    assert binomial_fits(int(coins.sum()), n, float(np.exp(-float(exponent))))
    approximate = np.full(n, float(exponent))
    coins = bernoulli_exp_each(approximate, lambda i: exponent, SeededBits(6))
    assert binomial_fits(int(coins.sum()), n, float(np.exp(-float(exponent))))


def exact_coin(word: int, exponent: Fraction) -> bool | None:
    """Return what integers decide for a 32-bit word: True, False, or None if 32 bits are not enough."""
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
    # Half of the words lie within a few units of the boundary, where the filter is hardest to get right.
    near = np.floor(np.exp(-floats) * 2.0**32) + generator.integers(-4, 5, n)
    words = np.where(np.arange(n) % 2, np.clip(near, 0, 2**32 - 1), words).astype(np.uint32)
    coins = exp_coins(words, floats, lambda i: exponents[i], SeededBits(8))
    differences = undecided = 0
    for word, exponent, coin in zip(words.tolist(), exponents, coins.tolist(), strict=True):
        expected = exact_coin(word, exponent)
        undecided += expected is None
        differences += expected is not None and expected != coin
    assert differences == 0
    assert undecided > 100  # words that need more bits did occur


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
