"""The law of one response, enumerated: every word of the coins and of the uniform choices, in both forms.

Probabilities are exact fractions, or enclosures of them; ratios are compared with e**epsilon in 400 digits.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from dp_polars._sampling.bernoulli import enclose_fraction
from dp_polars.errors import InvalidDataError, InvalidParameterError
from dp_polars.mechanisms import randomized_response
from dp_polars.mechanisms.randomized_response import (
    Channel,
    categories_of,
    channel_of,
    codes_of,
    enclose_truth,
    epsilon_of_resampling,
)
from tests.bits import SeededBits
from tests.mechanisms.test_randomized_response import enclosed_e
from tests.statistics import chi_square_fits

SIZES = [2, 3, 5]
RESAMPLES = [Fraction(1, 2), Fraction(1, 4), Fraction(3, 4), Fraction(1, 3), Fraction(1, 10), Fraction(999, 1000)]


class EveryWord:
    """Bits with one word for every coin, and all bytes in turn for every uniform choice."""

    def __init__(self, coin: int) -> None:
        self.coin = coin

    def words(self, count, dtype):
        return np.full(count, self.coin, dtype) if dtype is np.uint32 else np.resize(np.arange(256, dtype=dtype), count)


def chances(channel: Channel, code: int, coin: int, respond=Channel.respond) -> list[Fraction]:
    """Return how often each code results for this coin when the uniform choice takes each of its bytes."""
    # Enough for each accepted byte (below the bound, from the next power of two) to occur once.
    bound = channel.size if channel.resample is not None or code < 0 else channel.size - 1
    number = 256 * bound // (1 << (bound - 1).bit_length())
    out = respond(channel, np.full(number, code), EveryWord(coin))
    return [Fraction(int((out == other).sum()), number) for other in range(channel.size)]


def classroom_matrix(size: int, resample: Fraction) -> list[list[Fraction]]:
    """Return the matrix of the channel from the code itself: the result of each side of the coin, weighted exactly."""
    channel = channel_of(size, None, resample)
    rows = []
    for code in range(size):
        again, truth = chances(channel, code, coin=0), chances(channel, code, coin=2**32 - 1)
        rows.append([resample * a + (1 - resample) * t for a, t in zip(again, truth, strict=True)])
    return rows


# ---------------------------------------------------------------- the classroom form


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("resample", RESAMPLES, ids=str)
def test_the_classroom_channel_is_enumerated(size, resample):
    """The coin has the exact fraction, as the enclosure shows at any precision, and the matrix is the formula's."""
    for bits in (32, 100):
        low, high = enclose_fraction(resample)(bits)
        assert Fraction(low, 2**bits) <= resample <= Fraction(high, 2**bits)
        assert high - low <= 1
    matrix = classroom_matrix(size, resample)
    for code, row in enumerate(matrix):
        assert sum(row) == 1
        for other, chance in enumerate(row):
            assert chance == resample / size + (1 - resample) * (other == code)
    channel = channel_of(size, None, resample)
    assert channel.truthful == pytest.approx(float(matrix[0][0]), rel=1e-15)
    assert channel.other == pytest.approx(float(matrix[0][1]), rel=1e-15)
    assert channel.gain == pytest.approx(float(matrix[0][0] - matrix[0][1]), rel=1e-15)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("resample", RESAMPLES, ids=str)
def test_the_classroom_epsilon_is_the_largest_ratio_rounded_up(size, resample):
    matrix = classroom_matrix(size, resample)
    ratio = max(a / b for one, two in itertools.permutations(matrix, 2) for a, b in zip(one, two, strict=True))
    assert ratio == 1 + size * (1 - resample) / resample
    epsilon = channel_of(size, None, resample).epsilon
    e_low, e_high = enclosed_e(epsilon)
    assert ratio <= e_low  # never too little
    assert e_high <= ratio * (1 + Fraction(1, 10**14))  # and hardly too much
    if size == 2:
        assert float(epsilon) == pytest.approx(math.log(2 / float(resample) - 1), rel=1e-12)


def test_the_values_of_the_formula():
    """With resample 1/e, epsilon is ln(2 e - 1) for two categories and ln(1 + k (e - 1)) for k."""
    for e in (Fraction(3, 2), Fraction(2), Fraction(10)):
        assert float(epsilon_of_resampling(2, 1 / e)) == pytest.approx(math.log(2 * e - 1), rel=1e-14)
        for size in (3, 5, 100):
            assert float(epsilon_of_resampling(size, 1 / e)) == pytest.approx(math.log(1 + size * (e - 1)), rel=1e-14)
    assert float(epsilon_of_resampling(2, Fraction(1, 2))) == pytest.approx(math.log(3))


@pytest.mark.parametrize("resample", [Fraction(1, 10**300), 1 - Fraction(1, 10**8), Fraction(2**3000, 2**3000 + 1)])
def test_extreme_probabilities_round_up_too_or_are_refused(resample):
    try:
        epsilon = epsilon_of_resampling(3, resample)
    except InvalidParameterError:
        assert resample > 1 - Fraction(1, 10**9)
        return
    assert enclosed_e(epsilon)[0] >= 1 + 3 * (1 - resample) / resample


@pytest.mark.parametrize("size", SIZES)
def test_classroom_responses_fit_their_law(size):
    """One chi-square test at 1e-7 for each code; the seeds are fixed."""
    channel = channel_of(size, None, Fraction(1, 3))
    for code in range(size):
        out = channel.respond(np.full(60_000, code), SeededBits(10 * size + code))
        law = [float(Fraction(1, 3) / size + Fraction(2, 3) * (other == code)) for other in range(size)]
        assert chi_square_fits(out, dict(enumerate(law)))


# ---------------------------------------------------------------- values that are no category


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("law", [{"epsilon": Fraction(1)}, {"resample": Fraction(1, 4)}], ids=str)
def test_a_value_outside_is_answered_uniformly_whatever_the_coin(size, law):
    channel = channel_of(size, law.get("epsilon"), law.get("resample"))
    for coin in (0, 2**32 - 1):
        if law.get("resample") and coin == 0:
            continue  # then the second choice is the answer, as enumerated above
        if not law.get("resample") and coin:
            continue  # a lie is one of the others: below
        assert chances(channel, -1, coin, Channel.respond_to_any) == [Fraction(1, size)] * size
    # A lie adds a step that is independent of the uniform code, so the sum is uniform for every single step.
    for step in range(1, size):
        assert sorted((code + step) % size for code in range(size)) == list(range(size))


@pytest.mark.parametrize("size", [2, 3, 5, 17])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10**9), Fraction(1, 10), Fraction(1), Fraction(5)], ids=float)
def test_the_uniform_row_is_within_epsilon_of_every_row(size, epsilon):
    """The check is exact: the rows are enclosed in 1200 bits, and the uniform row is 1 / size."""
    e_high = enclosed_e(epsilon)[1]
    keep_low, keep_high = (Fraction(side, 2**1200) for side in enclose_truth(size, epsilon, 1200))
    lie_low, lie_high = (1 - keep_high) / (size - 1), (1 - keep_low) / (size - 1)
    uniform = Fraction(1, size)
    for low, high in ((keep_low, keep_high), (lie_low, lie_high)):
        assert high / uniform <= e_high
        assert uniform / low <= e_high


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("resample", RESAMPLES, ids=str)
def test_the_uniform_row_is_within_epsilon_of_every_classroom_row(size, resample):
    matrix = classroom_matrix(size, resample)
    uniform = [sum(column) / size for column in zip(*matrix, strict=True)]
    assert uniform == [Fraction(1, size)] * size
    e_low = enclosed_e(channel_of(size, None, resample).epsilon)[0]
    for row in matrix:
        assert max(max(a / b, b / a) for a, b in zip(row, uniform, strict=True)) <= e_low


def test_responses_to_values_outside_fit_the_uniform_law():
    for channel in (channel_of(3, 1, None), channel_of(3, None, 0.25)):
        out = channel.respond_to_any(np.full(60_000, -1), SeededBits(4))
        assert chi_square_fits(out, dict.fromkeys(range(3), 1 / 3))
        known = channel.respond_to_any(np.full(60_000, 1), SeededBits(5))
        law = [channel.other, channel.truthful, channel.other]
        assert chi_square_fits(known, dict(enumerate(law)))


@pytest.mark.parametrize("channel", [channel_of(3, 1, None), channel_of(3, None, 0.25)], ids=["epsilon", "resample"])
def test_the_draws_do_not_depend_on_the_values(channel):
    inputs = [np.zeros(500, int), np.full(500, -1), np.arange(500) % 4 - 1]
    sources = [SeededBits(7) for _ in inputs]
    for codes, source in zip(inputs, sources, strict=True):
        channel.respond_to_any(codes, source)
    assert len({source.served for source in sources}) == 1


# ---------------------------------------------------------------- categories and words


def test_null_is_a_category_where_none_are_given():
    assert categories_of(pl.Boolean(), None).to_list() == [False, True, None]
    assert categories_of(pl.Boolean(), None, nulls=False).to_list() == [False, True]
    assert categories_of(pl.Boolean(), [True, False]).to_list() == [True, False]
    enum = pl.Enum(["a", "b"])
    assert categories_of(enum, None).to_list() == ["a", "b", None]
    assert categories_of(enum, None, nulls=False).to_list() == ["a", "b"]
    assert codes_of(pl.Series(["a", None, "z"]), pl.Series(["a", "b"])).tolist() == [0, -1, -1]
    assert codes_of(pl.Series(["a", None, "z"]), pl.Series([None, "a"])).tolist() == [1, 0, -1]


@pytest.mark.parametrize("dtype", [pl.Float64(), pl.List(pl.Int64), pl.Struct({"a": pl.Int64}), pl.Null(), pl.Object()])
def test_types_without_categories_are_refused_with_and_without_a_list(dtype):
    for given in (None, [1, 2]):
        with pytest.raises(InvalidDataError, match="told apart"):
            categories_of(dtype, given)


@pytest.mark.parametrize("resample", [0, 1, -0.5, 1.5, math.nan, "0.5", True, 1e-400])
def test_a_resample_without_meaning_is_refused(resample):
    with pytest.raises(InvalidParameterError, match="resample"):
        randomized_response(np.array([True]), resample=resample)


def test_epsilon_and_resample_are_two_words_for_the_law():
    with pytest.raises(InvalidParameterError, match="not both"):
        randomized_response(np.array([True]), epsilon=1, resample=0.5)
    with pytest.raises(InvalidParameterError, match="Say epsilon="):
        randomized_response(np.array([True]))
    out = randomized_response(pl.Series("x", ["a", "b"] * 50), resample=1e-9, categories=["a", "b"])
    assert out.to_list() == ["a", "b"] * 50  # wrong once with probability 5e-8
