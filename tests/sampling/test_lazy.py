"""The enclosures of exp(-x) enclose, and comparisons with them are exact."""

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_polars._sampling.lazy import LazyUniform, enclose_exp, enclose_fraction
from tests.bits import ScriptedBits, SeededBits


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
    # The word that holds exp(-1) itself is decided by the next 64 bits.
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
