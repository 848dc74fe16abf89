"""Uniform integers: for any bound every value is possible, and none is favoured."""

import numpy as np
import pytest

from dp_polars._sampling import uniform_integer, uniform_integers
from tests.bits import ScriptedBits, SeededBits
from tests.statistics import chi_square_fits


@pytest.mark.parametrize("bound", [1, 2, 3, 6, 255, 256, 257, 1000])
def test_small_bounds_are_uniform(bound):
    samples = uniform_integers(bound, 100_000, SeededBits(bound))
    assert samples.dtype == np.uint64
    assert samples.max() < bound
    assert chi_square_fits(samples, dict.fromkeys(range(bound), 1 / bound))


@pytest.mark.parametrize("bound", [2**16 - 1, 2**32 + 1, 2**63 + 1, 2**64 - 1, 2**64])
def test_wide_bounds_fill_their_range(bound):
    samples = uniform_integers(bound, 50_000, SeededBits(1))
    assert int(samples.max()) < bound
    # Sixteen equal parts of the range.
    parts = np.array([int(s) * 16 // bound for s in samples.tolist()])
    assert chi_square_fits(parts, dict.fromkeys(range(16), 1 / 16))


def test_a_rejected_word_is_replaced_not_folded_back():
    # bound 3 uses the top two bits of a byte; the pattern 11 (192..255) must be rejected.
    words = [255, 192, 0, 64, 128, 255, 255, 255, 255, 255, 255, 255]
    assert uniform_integers(3, 3, ScriptedBits(words)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("bound", [2, 10, 2**64, 2**64 + 1, 10**40])
def test_one_integer_of_any_size(bound):
    source = SeededBits(2)
    drawn = [uniform_integer(bound, source) for _ in range(2000)]
    assert all(0 <= x < bound for x in drawn)
    assert chi_square_fits([x * 2 // bound for x in drawn], {0: 0.5, 1: 0.5})


@pytest.mark.parametrize("bound", [0, -1, 2**64 + 1])
def test_bounds_without_meaning_are_refused(bound):
    with pytest.raises(ValueError, match="bound"):
        uniform_integers(bound, 1, SeededBits(1))
    if bound < 1:
        with pytest.raises(ValueError, match="bound"):
            uniform_integer(bound, SeededBits(1))


def test_no_samples_asked_none_given():
    assert len(uniform_integers(10, 0, SeededBits(1))) == 0
