"""Choosing points by rank: the sampler fits the law enumerated over every candidate, and no float decides an outcome.

The law is enumerated from the definition. Its change from one row more is bounded. The envelopes are compared with the
weights in exact arithmetic, and the coins that keep a piece with integers on the same words.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from dp_polars._sampling.bernoulli import enclose_exp
from dp_polars.mechanisms import _quantiles as quantiles
from dp_polars.mechanisms._quantiles import Target, choose_points
from tests.bits import SeededBits
from tests.statistics import binomial_fits, chi_square_fits

MEDIAN = Target(1, 1)
TARGETS = [MEDIAN, Target(1, 3), Target(9, 1), Target(1, 4, most_below=4), Target(5, 1, most_above=5),
           Target(2, 3, most_below=7, most_above=5), Target(0, 1), Target(1, 0), Target(0, 0)]  # fmt: skip


def ints(*numbers):
    return np.array(numbers, dtype=np.int64)


def score_of(point, cells, target):
    """Return the score by its definition: minus the distance of 0 from [f with ties above, f with ties below]."""
    rows = [sum(n for value, n in cells if sign * (value - point) > 0) for sign in (-1, 1)]
    ties = sum(n for value, n in cells if value == point)

    def limited(number, most):
        return number if most is None else min(number, most)

    def balance(below, above):
        return limited(target.below * below, target.most_below) - limited(target.above * above, target.most_above)

    least, most = balance(rows[0], rows[1] + ties), balance(rows[0] + ties, rows[1])
    return -max(0, least, -most)


def law_of(cells, low, high, target, rate):
    """Return the probability of each candidate, from the definition."""
    scores = {point: score_of(point, cells, target) for point in range(low, high + 1)}
    best = max(scores.values())
    weights = {point: math.exp(float(rate * (score - best))) for point, score in scores.items()}
    whole = math.fsum(weights.values())
    return {point: weight / whole for point, weight in weights.items()}


def fits(points, law, false_alarm=1e-10):
    """Test by chi-square, or by frequency if one candidate has nearly all the mass."""
    top = max(law, key=law.get)
    if law[top] * len(points) > len(points) - 10:
        return binomial_fits(int((points == top).sum()), len(points), min(law[top], 1.0), false_alarm)
    return chi_square_fits(points, law, false_alarm)


def choose_many(cases, repeats, target, rate, source):
    """Choose for each case `repeats` times in one call, and return one row of points per case."""
    values, counts, begin, end = [999], [7], [], []
    for cells, _, _ in cases:  # cells that belong to no group lie between the slices
        begin.append(len(values))
        values += [value for value, _ in cells]
        counts += [count for _, count in cells]
        end.append(len(values))
        values += [-5, 0]
        counts += [1000, 1]
    low, high = [case[1] for case in cases], [case[2] for case in cases]
    spread = [np.repeat(ints(*numbers), repeats) for numbers in (begin, end, low, high)]
    points = choose_points(ints(*values), ints(*counts), *spread, target, rate, source)
    assert points.dtype == np.int64
    return points.reshape(len(cases), repeats)


def random_case(generator):
    low = int(generator.integers(-20, 20))
    high = low + int(generator.integers(0, 16))
    size = int(generator.integers(0, high - low + 2))
    values = np.sort(generator.choice(np.arange(low, high + 1), size, replace=False))
    return [(int(v), int(generator.integers(1, 5))) for v in values], low, high


BY_HAND = [
    ([], 3, 3),
    ([], -2, 4),
    ([(5, 1)], 5, 5),
    ([(5, 4)], 5, 9),
    ([(9, 4)], 5, 9),
    ([(5, 2), (9, 2)], 5, 9),
    ([(6, 2), (7, 2)], 5, 9),  # the best rank lies in a gap without points
    ([(v, 1) for v in range(8)], 0, 7),
    ([(0, 3), (1, 1), (2, 3)], -3, 6),
]


# ---------------------------------------------------------------- the sampler against the law (fixed bits)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("rate", [Fraction(1, 3), Fraction(1, 50), Fraction(7, 2)], ids=str)
def test_points_fit_the_law_enumerated_over_all_candidates(target, rate):
    generator = np.random.default_rng(1)
    cases = BY_HAND + [random_case(generator) for _ in range(11)]
    drawn = choose_many(cases, 3000, target, rate, SeededBits(2))
    for (cells, low, high), points in zip(cases, drawn, strict=True):
        assert points.min() >= low
        assert points.max() <= high
        assert fits(points, law_of(cells, low, high, target, rate))


@pytest.mark.slow
def test_points_of_one_group_at_a_time_have_the_same_law():
    cells, low, high = [(2, 3), (3, 1), (7, 2)], 0, 9
    source = SeededBits(3)
    drawn = [choose_many([(cells, low, high)], 1, Target(1, 2), Fraction(1, 3), source) for _ in range(3000)]
    assert fits(np.ravel(drawn), law_of(cells, low, high, Target(1, 2), Fraction(1, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_chunks_have_the_same_law(chunk, monkeypatch):
    monkeypatch.setattr(quantiles, "_CHUNK", chunk)
    generator = np.random.default_rng(4)
    cases = [random_case(generator) for _ in range(6)]
    drawn = choose_many(cases, 600, MEDIAN, Fraction(1, 3), SeededBits(5))
    for (cells, low, high), points in zip(cases, drawn, strict=True):
        assert fits(points, law_of(cells, low, high, MEDIAN, Fraction(1, 3)))


def test_chunks_cover_every_group_once(monkeypatch):
    monkeypatch.setattr(quantiles, "_CHUNK", 10)
    for sizes in ([], [1], [10], [11], [4, 6, 1], [30, 1, 1, 30], [1] * 25, [5, 5, 10, 1]):
        parts = list(quantiles._chunks(ints(*sizes)))
        assert [i for part in parts for i in range(part.start, part.stop)] == list(range(len(sizes)))
        assert all(sum(sizes[part]) <= 10 or part.stop - part.start == 1 for part in parts)


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "excess"), [(62, 0.9), (6, 0.3), (8, 2.0**-38)])
def test_envelopes_that_are_far_too_large_give_the_same_law(bits, excess, monkeypatch):
    """Most draws are rejected, so groups draw again and again, from running sums with few steps."""
    monkeypatch.setattr(quantiles, "_SUM_BITS", bits)
    monkeypatch.setattr(quantiles, "_EXCESS", excess)
    monkeypatch.setattr(quantiles, "_CHUNK", 100)
    generator = np.random.default_rng(28)
    cases = BY_HAND + [random_case(generator) for _ in range(6)]
    for target in (MEDIAN, Target(1, 4, most_below=4)):
        drawn = choose_many(cases, 1000, target, Fraction(1, 5), SeededBits(29))
        for (cells, low, high), points in zip(cases, drawn, strict=True):
            assert fits(points, law_of(cells, low, high, target, Fraction(1, 5)))


def test_groups_are_independent():
    """The points of two equal groups have the product law."""
    cells, low, high = [(1, 1)], 0, 2
    law = law_of(cells, low, high, MEDIAN, Fraction(1))
    drawn = choose_many([(cells, low, high)], 20_000, MEDIAN, Fraction(1), SeededBits(6))[0]
    pairs = {3 * a + b: law[a] * law[b] for a in law for b in law}
    assert chi_square_fits(3 * drawn[::2] + drawn[1::2], pairs)


def test_a_gap_of_nearly_2_to_the_62_points_is_uniform_at_both_ends_of_int64():
    for low in (-(2**63), -(2**61), 2**63 - 2**62):
        high = low + 2**62 - 1
        points = choose_many([([], low, high)], 4000, MEDIAN, Fraction(1), SeededBits(7))[0]
        assert points.min() >= low
        assert points.max() <= high
        assert chi_square_fits((points - low) >> 59, dict.fromkeys(range(8), 1 / 8))


@pytest.mark.parametrize("low", [-(2**63), 2**63 - 2**62])
def test_values_at_the_ends_of_int64(low):
    """One point has the best score, and nearly 2**62 other points together weigh about as much."""
    high = low + 2**62 - 1
    cells = [(low, 1), (low + 1, 10**6), (high, 1)]
    points = choose_many([(cells, low, high)], 4000, MEDIAN, Fraction(1, 23_000), SeededBits(8))[0]
    at_peak = 1 / (1 + 2**62 * math.exp(-(10**6) / 23_000))
    assert 0.3 < at_peak < 0.7
    assert binomial_fits(int((points == low + 1).sum()), len(points), at_peak)


def test_a_long_gap_far_from_the_target_has_its_share():
    """Two points have a score of 0 and 2**40 points have -60, at a rate of one half."""
    cells = [(0, 30), (1, 30)]
    points = choose_many([(cells, 0, 2**40 + 1)], 5000, MEDIAN, Fraction(1, 2), SeededBits(9))[0]
    near = 2 / (2 + 2**40 * math.exp(-30))
    assert binomial_fits(int((points <= 1).sum()), len(points), near)


def test_a_rate_that_makes_everything_else_impossible():
    for rate in (Fraction(10**6), Fraction(2**900)):
        points = choose_many([([(3, 5), (4, 1), (9, 5)], 0, 2**50)], 500, MEDIAN, rate, SeededBits(10))[0]
        assert (points == 4).all()


def test_a_rate_that_makes_no_difference():
    points = choose_many([([(1, 5), (2, 9)], 0, 3)], 4000, MEDIAN, Fraction(1, 2**900), SeededBits(11))[0]
    assert chi_square_fits(points, dict.fromkeys(range(4), 0.25))


def test_twenty_thousand_groups_in_one_call():
    generator = np.random.default_rng(12)
    sizes = generator.integers(0, 6, 20_000)
    end = np.cumsum(sizes)
    begin = end - sizes
    values = np.arange(len(begin)).repeat(sizes) * 100 + (np.arange(sizes.sum()) - begin.repeat(sizes)) * 10
    counts = generator.integers(100, 200, len(values))
    low = np.arange(len(begin)) * 100 - 7
    points = choose_points(values, counts, begin, end, low, low + 70, MEDIAN, Fraction(1), SeededBits(13))
    assert ((low <= points) & (points <= low + 70)).all()
    inner = points[sizes > 0] - low[sizes > 0] - 7
    assert ((inner >= 0) & (inner <= 10 * (sizes[sizes > 0] - 1))).all()  # outside, about 100 rows would be on one side


def test_no_group_and_no_cell():
    none = ints()
    assert choose_points(none, none, none, none, none, none, MEDIAN, Fraction(1), SeededBits(1)).tolist() == []
    zero, seven = ints(0, 0), ints(7, -7)
    assert choose_points(none, none, zero, zero, seven, seven, MEDIAN, Fraction(1), SeededBits(1)).tolist() == [7, -7]


# ---------------------------------------------------------------- coins: floats against integers on the same words


def random_coins(size):
    """Return pieces with envelopes as the sampler makes them, and words, half of which lie near the probability."""
    generator = np.random.default_rng(14)
    lengths = generator.integers(1, 1 << generator.integers(1, 62, size))
    distances = generator.integers(0, 1 << generator.integers(1, 20, size))
    rate = Fraction(1, 1013)
    scales = generator.integers(-15, 30, size)
    weights = np.ldexp(quantiles._weights(lengths, distances, rate), scales)
    fits = weights < 2.0**61
    lengths, distances, scales, weights = lengths[fits], distances[fits], scales[fits], weights[fits]
    loose = 1 + generator.integers(0, 2, len(weights)) * generator.random(len(weights))
    envelopes = (weights * (1 + 2.0**-38) * loose).astype(np.int64) + 1
    words = generator.integers(0, 1 << 32, len(weights))
    near = np.floor(weights / envelopes * 2.0**32) + generator.integers(-3, 4, len(weights))
    words = np.where(np.arange(len(words)) % 2, near, words)
    return np.clip(words, 0, 2**32 - 1).astype(np.uint32), lengths, distances, envelopes, scales, rate


def exact_coin(word, length, distance, envelope, scale, rate):
    """Return what integers decide for a 32-bit word: True, False, or None if 32 bits are not enough."""
    factor = Fraction(2) ** (scale - 200) * length / envelope
    low, high = enclose_exp(rate * distance, 200)
    if Fraction(word + 1, 2**32) <= low * factor:
        return True
    return False if Fraction(word, 2**32) >= high * factor else None


@pytest.mark.slow
def test_the_float_filter_never_differs_from_exact_arithmetic_on_the_same_words():
    words, *pieces, rate = random_coins(8000)
    coins = quantiles._keep(words, *pieces, rate, SeededBits(15))
    undecided = 0
    for coin, word, *piece in zip(coins.tolist(), words.tolist(), *(p.tolist() for p in pieces), strict=True):
        expected = exact_coin(word, *piece, rate)
        undecided += expected is None
        assert expected is None or expected == coin
    assert undecided > 100  # words that need more bits did occur
    assert 0.1 < coins.mean() < 0.9


def test_the_forced_fall_back_gives_the_same_coins(monkeypatch):
    words, *pieces, rate = (array[::2] if isinstance(array, np.ndarray) else array for array in random_coins(6000))
    by_filter = quantiles._keep(words, *pieces, rate, SeededBits(16))
    monkeypatch.setattr(quantiles, "_MARGIN", 2.0)
    by_integers = quantiles._keep(words, *pieces, rate, SeededBits(17))
    assert len(by_filter) > 1000
    assert (by_filter == by_integers).all()


def test_the_forced_fall_back_gives_the_same_points(monkeypatch):
    generator = np.random.default_rng(18)
    cases = [random_case(generator) for _ in range(20)]
    by_filter = choose_many(cases, 20, Target(2, 3), Fraction(2, 7), SeededBits(19))
    monkeypatch.setattr(quantiles, "_MARGIN", 2.0)
    by_integers = choose_many(cases, 20, Target(2, 3), Fraction(2, 7), SeededBits(19))
    assert (by_filter == by_integers).all()


def test_the_words_at_the_edge_of_a_chance_read_on():
    """With distance 0, length 1, scale 0 and envelope 3, the probability of a third lies strictly inside one word."""
    third = (1 << 32) // 3
    words = np.array([third - 1, third + 1], np.uint32)
    ones, zeros = np.ones(2, np.int64), np.zeros(2, np.int64)
    assert quantiles._keep(words, ones, zeros, 3 * ones, zeros, Fraction(1), SeededBits(1)).tolist() == [True, False]
    words, ones, zeros = (np.repeat(numbers[:1], 3000) for numbers in (words + np.uint32(1), ones, zeros))
    kept = quantiles._keep(words, ones, zeros, 3 * ones, zeros, Fraction(1), SeededBits(20))
    assert binomial_fits(int(kept.sum()), 3000, 1 / 3)  # the fractional part of 2**32 / 3 is a third again


@pytest.mark.parametrize("distance", [60, 800, 2**40, 2**61])
def test_the_smallest_word_does_not_keep_a_piece_that_weighs_nothing(distance):
    """All 32 bits are zero and the probability is positive, so more bits decide, quickly even for a huge exponent."""
    words = np.zeros(3, np.uint32)
    piece = np.ones(3, np.int64)
    scales = np.zeros(3, np.int64)
    for rate in (Fraction(1), Fraction(2**900)):
        assert not quantiles._keep(words, piece, piece * distance, piece, scales, rate, SeededBits(21)).any()


def test_the_chance_of_a_light_piece_is_enclosed_to_every_number_of_bits():
    length, exponent, envelope, scale = 12345, Fraction(2001, 2), 17, 40
    enclose = quantiles._enclose_chance(length, exponent, envelope, scale)
    for bits in (40, 100, 1400, 1500, 2000):
        low, high = enclose(bits)
        assert 0 <= high - low <= 2
        e_low, e_high = enclose_exp(exponent, 4000)
        factor = Fraction(2) ** (scale - 4000 + bits) * length / envelope
        assert low <= e_low * factor
        assert e_high * factor <= high


# ---------------------------------------------------------------- envelopes


def random_pieces(generator, groups, cells, reach):
    """Return pieces with lengths and distances of every size; the best piece of each group has points."""
    sizes = np.full(groups, cells)
    first = np.arange(groups) * cells
    last = first + cells - 1
    total = groups * cells
    gap = generator.integers(0, 1 << generator.integers(1, 58, total))
    distances = [generator.integers(0, 1 << generator.integers(1, reach, total)) for _ in range(2)]
    gap[first], distances[0][first] = 1, 0
    return quantiles._Pieces(first, last, sizes, np.zeros(total, np.int64), gap, *distances)


@pytest.mark.parametrize("rate", [Fraction(1, 3), Fraction(1, 10**9), Fraction(2**900), Fraction(1, 2**900)], ids=str)
@pytest.mark.parametrize(("groups", "cells", "reach"), [(1, 40, 12), (30, 4, 8), (20, 5, 61), (300, 1, 61)])
def test_envelopes_are_above_the_weights(groups, cells, reach, rate):
    pieces = random_pieces(np.random.default_rng(22), groups, cells, reach)
    envelopes, running, scales = quantiles._envelopes(pieces, rate)
    assert running[0] == 0
    assert (np.diff(running) >= envelopes).all()
    of_cells = np.diff(running) - envelopes
    assert (of_cells[pieces.last] == 0).all()
    assert (envelopes[pieces.gap == 0] == 0).all()
    for i, scale in enumerate(np.repeat(scales, pieces.sizes).tolist()):
        for length, distance, envelope in (
            (int(pieces.gap[i]), int(pieces.gap_distance[i]), int(envelopes[i])),
            (int(i not in pieces.last), int(pieces.cell_distance[i]), int(of_cells[i])),
        ):
            _, high = enclose_exp(rate * distance, 200)
            weight = Fraction(2) ** (scale - 200) * high * length  # at least the true weight
            assert envelope > weight or (envelope == length == 0)
            assert envelope <= 1 + weight * (1 + Fraction(1, 2**36))  # and hardly more than needed


def test_the_running_sum_fits_for_many_groups_and_nearly_every_draw_is_kept():
    for groups in (1, 2, 3, 1000, quantiles._CHUNK):
        pieces = random_pieces(np.random.default_rng(23), groups, 1, 8)
        envelopes, running, scales = quantiles._envelopes(pieces, Fraction(1))
        assert (np.diff(running) >= 0).all()
        weights = np.ldexp(pieces.gap.astype(float), scales)
        assert (weights / envelopes).min() > 1 - 2.0**-30


def test_a_first_draw_is_nearly_always_enough():
    """A group needs one word for the piece (two at worst on average), one coin and one point."""
    cells = [(v, 1 + v % 3) for v in range(0, 200, 2)]
    source = SeededBits(24)
    choose_many([(cells, 0, 250)], 2000, MEDIAN, Fraction(1, 10), source)
    assert source.served < 2000 * 5.2


# ---------------------------------------------------------------- privacy


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_one_row_more_changes_no_log_probability_by_more_than_two_weights(target):
    generator = np.random.default_rng(25)
    rate = Fraction(1, 4)
    limit = float(rate * 2 * max(target.below, target.above))
    for _ in range(25):
        cells, low, high = random_case(generator)
        here = law_of(cells, low, high, target, rate)
        for value in range(low, high + 1):
            counts = dict(cells)
            counts[value] = counts.get(value, 0) + 1
            there = law_of(sorted(counts.items()), low, high, target, rate)
            assert max(abs(math.log(here[r] / there[r])) for r in here) <= limit + 1e-9


def test_scores_are_those_of_the_definition():
    """Compare the distances of all pieces, point by point, with the definition, for one group and for several."""
    generator = np.random.default_rng(26)
    for target in TARGETS:
        cases = [random_case(generator) for _ in range(15)]
        values = ints(*(v for cells, _, _ in cases for v, _ in cells))
        counts = ints(*(c for cells, _, _ in cases for _, c in cells))
        end = np.cumsum([len(cells) for cells, _, _ in cases])
        begin = end - [len(cells) for cells, _, _ in cases]
        low, high = ints(*(case[1] for case in cases)), ints(*(case[2] for case in cases))
        pieces = quantiles._cut(values, counts, begin, end, low, high, target)
        for g, (cells, lowest, highest) in enumerate(cases):
            scores = {r: score_of(r, cells, target) for r in range(lowest, highest + 1)}
            found = {}
            for i in range(pieces.first[g], pieces.last[g] + 1):
                start, gap = int(pieces.start[i]), int(pieces.gap[i])
                found |= dict.fromkeys(range(start, start + gap), int(pieces.gap_distance[i]))
                if i < pieces.last[g]:
                    found[start + gap] = int(pieces.cell_distance[i])
            assert found == {r: max(scores.values()) - score for r, score in scores.items()}


# ---------------------------------------------------------------- invalid input


class NoBits:
    def words(self, count, dtype):
        raise AssertionError("a bit was drawn")


GOOD = {
    "values": ints(1, 5, 2, 4), "counts": ints(1, 1, 2, 3), "begin": ints(0, 2), "end": ints(2, 4),
    "low": ints(0, 0), "high": ints(9, 9), "target": MEDIAN, "rate": Fraction(1),
}  # fmt: skip


def test_the_input_that_the_bad_ones_vary_is_good():
    assert len(choose_points(**GOOD, source=SeededBits(27))) == 2


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"values": np.array([1.0, 5, 2, 4])}, "int64"),
        ({"counts": np.array([1, 1, 2, 3], np.uint64)}, "int64"),
        ({"values": np.zeros((2, 2), np.int64)}, "one-dimensional"),
        ({"counts": ints(1, 1, 1)}, "as long as each other"),
        ({"low": ints(0)}, "as long as each other"),
        ({"counts": ints(1, 0, 1, 1)}, "at least 1"),
        ({"counts": ints(1, 1, 1, -1)}, "at least 1"),
        ({"begin": ints(-1, 2)}, "slices"),
        ({"begin": ints(3, 2)}, "slices"),
        ({"end": ints(2, 5)}, "slices"),
        ({"low": ints(10, 0)}, "low must not exceed high"),
        ({"low": ints(-(2**61), 0), "high": ints(2**61, 9)}, "2\\*\\*62"),
        ({"low": ints(-(2**63), 0), "high": ints(2**63 - 1, 9)}, "2\\*\\*62"),
        ({"values": ints(5, 1, 2, 4)}, "increasing"),
        ({"values": ints(1, 1, 2, 4)}, "increasing"),
        ({"values": ints(1, 5, 2, 10)}, "interval"),
        ({"values": ints(-1, 5, 2, 4)}, "interval"),
        ({"values": ints(-(2**63), 5, 2, 4)}, "interval"),
        ({"counts": ints(1, 1, 2**60, 1)}, "2\\*\\*60"),
        ({"counts": ints(2**63 - 1, 2**63 - 1, 1, 1)}, "2\\*\\*60"),
        ({"target": Target(2**59, 1)}, "2\\*\\*60"),
        ({"target": Target(1, 2**70)}, "2\\*\\*60"),
        ({"target": Target(-1, 1)}, "negative"),
        ({"target": Target(1, 1, most_below=-1)}, "negative"),
        ({"target": Target(1, 1, most_above=-1)}, "negative"),
        ({"rate": Fraction(0)}, "rate"),
        ({"rate": Fraction(-1)}, "rate"),
        ({"rate": Fraction(2**901)}, "rate"),
        ({"rate": Fraction(1, 2**901)}, "rate"),
    ],
    ids=str,
)
def test_bad_input_is_refused_before_a_bit_is_drawn(change, match):
    with pytest.raises(ValueError, match=match):
        choose_points(**(GOOD | change), source=NoBits())


def test_a_weight_beyond_64_bits_is_refused_also_without_rows():
    zero = ints(0)
    with pytest.raises(ValueError, match="2\\*\\*60"):
        choose_points(ints(), ints(), zero, zero, zero, zero, Target(1, 2**70), Fraction(1), NoBits())
