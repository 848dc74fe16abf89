"""Choosing one candidate: exact probabilities, exact privacy, exact gaps.

The tests have three layers. What each public function passes to its sampler is recorded, so the constants below are its
own. The output distribution for these constants is enumerated from the definition, and its ratio over all neighbouring
score vectors is at most exp(epsilon). Finally, the samplers fit the enumerated distributions on fixed bits.
"""

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from dp_polars.errors import DPError, InvalidDataError, InvalidParameterError
from dp_polars.mechanisms import additive, exponential, permute_and_flip, report_noisy_max, selection
from dp_polars.mechanisms._numeric_input import read_numbers
from dp_polars.mechanisms.randomized_response import Channel
from dp_polars.mechanisms.selection import (
    choose_exponential,
    choose_noisy_max,
    choose_permute_and_flip,
    read_scores,
)
from tests.bits import SeededBits
from tests.statistics import chi_square_fits


def respond(codes, categories, epsilon, source):
    return Channel(size=categories, epsilon=epsilon).respond(codes, source)


REPEATABLE = settings(derandomize=True, deadline=None, max_examples=100)


class NoBits:
    def words(self, count, dtype):
        raise AssertionError("a bit was drawn")


# ---------------------------------------------------------------- the distributions, from their definitions


def exponential_law(scores, rate):
    weights = np.exp(rate * (np.asarray(scores, float) - max(scores)))
    return weights / weights.sum()


def permute_and_flip_law(scores, rate):
    """Enumerate the algorithm of McKenna and Sheldon over every order of the candidates."""
    heads = [math.exp(rate * (s - max(scores))) for s in scores]
    chances = np.zeros(len(scores))
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        reached = 1.0
        for i in order:
            chances[i] += reached * heads[i] / len(orders)
            reached *= 1 - heads[i]
    return chances


def exponential_noise_law(scores, rate):
    """Return the law of the largest score plus one-sided exponential noise, by integration."""

    def density(x, i):
        others = [1 - math.exp(-rate * max(x - s, 0)) for j, s in enumerate(scores) if j != i]
        return rate * math.exp(-rate * (x - scores[i])) * math.prod(others)

    # Nobody wins below the best score, because the best candidate itself lies above it.
    top = max(scores)
    return np.array(
        [integrate.quad(density, top, top + 60 / rate, args=(i,), limit=200)[0] for i in range(len(scores))]
    )


_NODES, _WEIGHTS = (np.polynomial.legendre.leggauss(8)[0] + 1) / 2, np.polynomial.legendre.leggauss(8)[1] / 2


def laplace_noise_law(scores, rate, reach=None):
    """Return the law of the largest score plus discrete Laplace noise of scale 1 / rate, ties broken uniformly.

    With k others level, the share 1 / (1 + k) is the integral of t**k, a polynomial that eight nodes integrate exactly.
    """
    scores = np.asarray(scores)
    reach = math.ceil(45 / rate) if reach is None else reach  # exp(-45) lies beyond
    v = np.arange(scores.min() - reach, scores.max() + reach + 1)
    q = math.exp(-rate)
    distance = v[None, :] - scores[:, None]
    at = (1 - q) / (1 + q) * q ** np.abs(distance).astype(float)
    below = np.where(distance <= 0, q ** (1.0 - np.minimum(distance, 0)) / (1 + q), 0.0)
    below = np.where(distance > 0, 1 - q ** np.maximum(distance, 1).astype(float) / (1 + q), below)  # P(X < distance)
    chances = np.zeros(len(scores))
    for i in range(len(scores)):
        others = [j for j in range(len(scores)) if j != i]
        for t, weight in zip(_NODES, _WEIGHTS, strict=True):
            chances[i] += weight * (at[i] * np.prod(below[others] + t * at[others], axis=0)).sum()
    return chances


@pytest.mark.slow
def test_the_law_with_laplace_noise_is_the_plain_enumeration_of_all_noise():
    """Enumerate 121**3 triples of noise for three candidates; less than 1e-12 lies beyond."""
    rate, scores = 0.5, (2, 0, 1)
    q = math.exp(-rate)
    x = np.arange(-60, 61)
    p = (1 - q) / (1 + q) * q ** np.abs(x).astype(float)
    noisy = np.stack(np.meshgrid(x + scores[0], x + scores[1], x + scores[2], indexing="ij"))
    weight = p[:, None, None] * p[None, :, None] * p[None, None, :]
    best = noisy == noisy.max(axis=0)
    chances = (best / best.sum(axis=0) * weight).sum(axis=(1, 2, 3))
    assert chances == pytest.approx(laplace_noise_law(scores, rate), abs=1e-11)


SMALL = [(0,), (0, 0), (3, 0), (0, 1, 5), (2, 2, 2), (7, 7, 0), (-4, 0, 3, 3), (0, 1, 2, 3, 4), (10, 0, 0, 0, 9)]


@pytest.mark.parametrize("scores", SMALL, ids=str)
@pytest.mark.parametrize("rate", [0.1, 0.7, 2])
def test_permute_and_flip_is_report_noisy_max_with_exponential_noise(scores, rate):
    by_orders = permute_and_flip_law(scores, rate)
    assert by_orders.sum() == pytest.approx(1, abs=1e-12)
    assert exponential_noise_law(scores, rate) == pytest.approx(by_orders, abs=1e-7)


@pytest.mark.parametrize("scores", SMALL, ids=str)
@pytest.mark.parametrize("rate", [0.1, 0.7, 2])
def test_gumbel_noise_is_the_exponential_mechanism(scores, rate):
    """Return P(score_i + Gumbel is largest), integrated over the density of the winner."""

    def density(x, i):
        z = rate * (x - scores[i])
        return rate * math.exp(-z - sum(math.exp(-rate * (x - s)) for s in scores))

    low, high = min(scores) - 8 / rate, max(scores) + 45 / rate
    chances = [integrate.quad(density, low, high, args=(i,), limit=300)[0] for i in range(len(scores))]
    assert chances == pytest.approx(exponential_law(scores, rate), abs=1e-7)


@pytest.mark.parametrize("rate", [0.05, 0.5, 3])
def test_permute_and_flip_never_has_a_larger_expected_regret(rate):
    generator = np.random.default_rng(1)
    smaller = 0
    for _ in range(60):
        scores = generator.integers(0, generator.integers(2, 40), generator.integers(1, 7))
        gaps = scores.max() - scores
        flip = float((permute_and_flip_law(scores.tolist(), rate) * gaps).sum())
        usual = float((exponential_law(scores, rate) * gaps).sum())
        assert flip <= usual + 1e-12
        smaller += flip < 0.95 * usual
    assert smaller > 10


# ---------------------------------------------------------------- privacy over all neighbours

MECHANISMS = {
    "exponential": (exponential, {}, "choose_exponential", exponential_law),
    "permute_and_flip": (permute_and_flip, {}, "choose_permute_and_flip", permute_and_flip_law),
    "noisy max, exponential": (
        report_noisy_max,
        {"noise": "exponential"},
        "choose_permute_and_flip",
        permute_and_flip_law,
    ),
    "noisy max, gumbel": (report_noisy_max, {"noise": "gumbel"}, "choose_exponential", exponential_law),
    "noisy max, laplace": (report_noisy_max, {"noise": "laplace"}, "choose_noisy_max", laplace_noise_law),
}
BASES = [(0, 0, 0), (0, 1, 0), (3, 0, 0), (5, 5, 0), (0, 4, 8), (0, 12, 12), (30, 0, 1)]


def rate_of(mechanism, sensitivity, epsilon, monotone):
    """Return the rate that a public function passes to its sampler."""
    function, options, sampler, _ = MECHANISMS[mechanism]
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("choose_exponential", "choose_permute_and_flip", "choose_noisy_max"):
            patch.setattr(selection, name, lambda *args, name=name: seen.append((name, args)) or 0)
        function([0, 1], sensitivity=sensitivity, epsilon=epsilon, monotone=monotone, **options)
    ((name, args),) = seen
    assert name == sampler
    return args[2] if name == "choose_noisy_max" else args[1]


def largest_loss(law, rate, moves, bases=BASES):
    """Return the largest |log ratio| over score vectors and their neighbours."""
    largest = 0.0
    for base in bases:
        here = law(base, rate)
        for move in moves:
            there = law(tuple(s + m for s, m in zip(base, move, strict=True)), rate)
            largest = max(largest, float(np.abs(np.log(here) - np.log(there)).max()))
    return largest


def any_moves(by):
    return list(itertools.product((-by, 0, by), repeat=3))


def monotone_moves(by):
    return [m for m in any_moves(by) if min(m) >= 0 or max(m) <= 0]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("sensitivity", "epsilon"), [(1, 0.4), (1, 1), (2, 1), (1, 4)])
def test_no_neighbour_exceeds_epsilon(mechanism, sensitivity, epsilon):
    law = MECHANISMS[mechanism][3]
    rate = float(rate_of(mechanism, sensitivity, epsilon, monotone=False))
    assert largest_loss(law, rate, any_moves(sensitivity)) <= epsilon + 1e-9
    rate = float(rate_of(mechanism, sensitivity, epsilon, monotone=True))
    assert largest_loss(law, rate, monotone_moves(sensitivity)) <= epsilon + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_noise_is_not_more_than_needed(mechanism):
    """Some neighbours come within five percent of epsilon, with and without `monotone`."""
    law = MECHANISMS[mechanism][3]
    bases = [*BASES, (0, 20, 20), (0, 40, 40)]
    for monotone, moves in ((False, any_moves(1)), (True, monotone_moves(1))):
        rate = float(rate_of(mechanism, 1, 1, monotone))
        assert largest_loss(law, rate, moves, bases) > 0.95


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_monotone_is_wrong_for_a_histogram_whose_rows_are_replaced(mechanism):
    """If one count rises and another falls, `monotone=True` loses nearly twice epsilon: the factor 2 is needed."""
    law = MECHANISMS[mechanism][3]
    replaced = list(itertools.permutations((1, -1, 0)))
    rate = float(rate_of(mechanism, 1, 1, monotone=True))
    assert largest_loss(law, rate, replaced, [(0, 15, 0), (0, 30, 0)]) > 1.9
    rate = float(rate_of(mechanism, 1, 1, monotone=False))
    assert largest_loss(law, rate, replaced, [(0, 15, 0), (0, 30, 0)]) <= 1 + 1e-9


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_rates_are_exact_fractions(mechanism):
    for sensitivity, epsilon, rate in [
        (1, 1, Fraction(1, 2)),
        (0.3, 0.1, Fraction(1, 6)),
        (3, Fraction(1, 7), Fraction(1, 42)),
        (Decimal("0.7"), np.float64(1.4), Fraction(1)),
    ]:
        assert rate_of(mechanism, sensitivity, epsilon, monotone=False) == rate
        assert rate_of(mechanism, sensitivity, epsilon, monotone=True) == 2 * rate
        assert rate_of(mechanism, sensitivity, epsilon, monotone=np.True_) == 2 * rate


def test_the_exponential_mechanism_has_a_bounded_range():
    """Its losses towards one neighbour span epsilon, not 2 epsilon, which its rho of epsilon**2 / 8 rests on.

    Permute-and-flip spans more, so it has no such rho.
    """
    spans = {}
    for name in ("exponential", "permute_and_flip"):
        law, rate = MECHANISMS[name][3], float(rate_of(name, 1, 1, monotone=False))
        spans[name] = 0.0
        for base, move in itertools.product([(0, 0, 0), (0, 9, 9), (0, 0, 9)], any_moves(1)):
            loss = np.log(law(base, rate)) - np.log(law(tuple(np.add(base, move)), rate))
            spans[name] = max(spans[name], float(loss.max() - loss.min()))
    assert spans["exponential"] == pytest.approx(1, abs=1e-9)
    assert spans["permute_and_flip"] > 1.2


# ---------------------------------------------------------------- samplers against the laws (fixed bits)

FITTED = [(0, 0), (3, 0), (0, 1, 5), (7, 7, 0, 6), (0, 1, 2, 3, 4)]


@pytest.mark.slow
@pytest.mark.parametrize("scores", FITTED, ids=str)
@pytest.mark.parametrize("sampler", ["exponential", "permute_and_flip", "noisy_max"])
def test_choices_fit_the_enumerated_distribution(sampler, scores):
    rate, source, numbers = Fraction(1, 2), SeededBits(1), np.array(scores)
    if sampler == "noisy_max":
        law = laplace_noise_law(scores, 0.5)
        choices = [choose_noisy_max(numbers, Fraction(1), rate, source) for _ in range(1500)]
    else:
        law = (exponential_law if sampler == "exponential" else permute_and_flip_law)(scores, 0.5)
        choose = choose_exponential if sampler == "exponential" else choose_permute_and_flip
        choices = [choose(numbers, rate, source) for _ in range(2500)]
    assert chi_square_fits(choices, dict(enumerate(law)))


@pytest.mark.slow
@pytest.mark.parametrize(("function", "options", "law"), [(f, o, law) for f, o, _, law in MECHANISMS.values()])
def test_public_functions_fit_the_enumerated_distribution(function, options, law, monkeypatch):
    """With sensitivity 2 and epsilon 2 the rate is 1/2, or 1 for monotone scores, whatever type the scores have."""
    monkeypatch.setattr(selection, "SYSTEM_BITS", SeededBits(3))
    scores = [1, 4, 2]
    kinds = [scores, tuple(scores), np.array(scores, np.uint8), pl.Series("s", scores), np.array(scores, np.float32)]
    for monotone, rate in ((False, 0.5), (True, 1.0)):
        choices = [
            function(kinds[i % len(kinds)], sensitivity=2, epsilon=2, monotone=monotone, **options) for i in range(1200)
        ]
        assert {type(c) for c in choices} == {int}
        if options == {"noise": "laplace"}:  # floats have finer noise than whole numbers, so each has its own law
            choices = [c for i, c in enumerate(choices) if i % len(kinds) != 4]
        assert chi_square_fits(choices, dict(enumerate(law(scores, rate))))


@pytest.mark.slow
def test_noisy_max_of_floats_has_the_law_of_continuous_noise():
    """The grid is so fine that the law is that of continuous Laplace noise, by integration."""
    scores, rate = [0.0, 0.75, 2.5], 0.5

    def cdf(x):
        return 0.5 * math.exp(x * rate) if x < 0 else 1 - 0.5 * math.exp(-x * rate)

    def density(x, i):
        others = [cdf(x - s) for j, s in enumerate(scores) if j != i]
        return rate / 2 * math.exp(-abs(x - scores[i]) * rate) * math.prod(others)

    law = [integrate.quad(density, -80, 80, args=(i,), points=scores, limit=300)[0] for i in range(3)]
    assert sum(law) == pytest.approx(1, abs=1e-9)
    source = SeededBits(4)
    choices = [choose_noisy_max(np.array(scores), Fraction(1), Fraction(1, 2), source) for _ in range(1500)]
    assert chi_square_fits(choices, dict(enumerate(law)))


def test_noisy_max_of_floats_is_calibrated_to_its_grid(monkeypatch):
    """Scores within the sensitivity lie within sensitivity / step + 1 on the grid, and the noise covers twice that."""
    seen = {}
    grid = selection.to_grid

    def sampler(scale, size, source):
        seen["scale"] = scale
        return np.zeros(size, np.int64)

    def watched_grid(floats, exponent):
        seen["step"] = Fraction(2) ** exponent
        seen["points"] = grid(floats, exponent)
        return seen["points"]

    monkeypatch.setattr(selection, "discrete_laplace", sampler)
    monkeypatch.setattr(selection, "to_grid", watched_grid)
    generator = np.random.default_rng(6)
    for sensitivity, epsilon in itertools.product([1e-9, 0.3, 1, 1e6], [0.01, 1, 30]):
        width, loss = Fraction(repr(sensitivity)), Fraction(repr(epsilon))
        for monotone, factor in ((False, 2), (True, 1)):
            report_noisy_max([0.0], sensitivity=sensitivity, epsilon=epsilon, noise="laplace", monotone=monotone)
            covered = seen["scale"] * loss / factor
            assert covered == width / seen["step"] + 1
            assert covered * seen["step"] < width * Fraction(10001, 10000)
        for _ in range(20):
            # Scores just below the middle of two points are moved by nearly the sensitivity.
            a = [math.nextafter(float((k + Fraction(1, 2)) * seen["step"]), -9) for k in generator.integers(-99, 99, 5)]
            b = [x + float(width) * u for x, u in zip(a, generator.uniform(-1, 1, 5), strict=True)]
            b = [y if abs(Fraction(x) - Fraction(y)) <= width else x for x, y in zip(a, b, strict=True)]
            points = [grid(np.array(scores), int(math.log2(seen["step"]))) for scores in (a, b)]
            assert max(abs(int(p) - int(q)) for p, q in zip(*points, strict=True)) <= covered


@pytest.mark.slow
def test_ties_are_broken_evenly():
    """This holds even at extreme scores, where each candidate must be exactly as good as the others."""
    source = SeededBits(5)
    for scores in (np.zeros(4), np.full(4, 2**63 - 1), np.full(4, -(2**63)), np.full(4, 1.7e308), np.full(4, 5e-324)):
        for choices in (
            [choose_exponential(scores, Fraction(1), source) for _ in range(300)],
            [choose_permute_and_flip(scores, Fraction(1), source) for _ in range(300)],
            [choose_noisy_max(scores, Fraction(1), Fraction(1), source) for _ in range(150)],
        ):
            assert chi_square_fits(choices, dict.fromkeys(range(4), 1 / 4))


# ---------------------------------------------------------------- exact gaps

whole64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, 0, -1])
unsigned64 = st.integers(0, 2**64 - 1) | st.sampled_from([2**64 - 1, 2**63, 2**63 - 1, 0])
any_float = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [1.7976931348623157e308, -1.7976931348623157e308, 5e-324, -5e-324, 1e308, 0.0, -0.0]
)
rates = st.fractions(Fraction(1, 10**9), 10**6).filter(lambda r: r > 0) | st.sampled_from(
    [Fraction(10**24), Fraction(1, 2 * 10**27)]
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "elements"), [(np.int64, whole64), (np.uint64, unsigned64), (np.float64, any_float)], ids=str
)
def test_gaps_are_exact_on_request_and_near_enough_as_floats(dtype, elements):
    """The coins need a relative error below 2**-45 or an absolute one below 2**-41. Infinity stands for an overflow."""

    @REPEATABLE
    @given(st.lists(elements, min_size=1, max_size=6), rates)
    def check(scores, rate):
        (floats, again), exact = selection._gaps(np.array([scores, scores[::-1]], dtype), rate)
        assert (again[::-1] == floats).all()
        for i, score in enumerate(scores):
            truth = rate * (Fraction(max(scores)) - Fraction(score))
            assert exact(i) == exact(2 * len(scores) - 1 - i) == truth
            assert truth >= 0
            if math.isinf(floats[i]):
                assert truth > 10**100
            else:
                assert abs(Fraction(float(floats[i])) - truth) <= max(truth / 2**45, Fraction(1, 2**41))

    check()


EXTREME = [
    np.array([-(2**63), 2**63 - 1]),
    np.array([0, 2**64 - 1], np.uint64),
    np.array([2**63 - 1, 2**63 + 10**6], np.uint64),
    np.array([-1.7e308, 1.7e308]),
    np.array([-1e308, 0.0]),
    np.array([2**53 - 10**6, 2**53], np.int64),
]


@pytest.mark.parametrize("scores", EXTREME, ids=str)
def test_the_far_better_candidate_wins_at_the_limits(scores):
    """With a gap of 10**6 at rate 1 the worse one wins with exp(-10**6). Wrapped differences would make it win."""
    for order in (scores, scores[::-1]):
        best = int(np.argmax(order))
        source = SeededBits(6)
        for _ in range(20):
            assert choose_exponential(order, Fraction(1), source) == best
            assert choose_permute_and_flip(order, Fraction(1), source) == best
            assert choose_noisy_max(order, Fraction(1), Fraction(1), source) == best


@pytest.mark.slow
@pytest.mark.parametrize(
    "scores",
    [
        np.array([2**63 - 2, 2**63 - 1]),
        np.array([-(2**63), -(2**63) + 1]),
        np.array([2**64 - 2, 2**64 - 1], np.uint64),
        np.array([2**53, 2**53 + 1]),
    ],
    ids=str,
)
def test_a_gap_of_one_counts_also_beyond_the_floats(scores):
    """As floats these scores are equal, but the law is still that of 0 and 1."""
    source = SeededBits(7)
    rate = Fraction(2)
    choices = [choose_exponential(scores, rate, source) for _ in range(1000)]
    assert chi_square_fits(choices, dict(enumerate(exponential_law((0, 1), 2.0))))
    choices = [choose_permute_and_flip(scores, rate, source) for _ in range(1000)]
    assert chi_square_fits(choices, dict(enumerate(permute_and_flip_law((0, 1), 2.0))))
    choices = [choose_noisy_max(scores, Fraction(1), rate, source) for _ in range(600)]
    assert chi_square_fits(choices, dict(enumerate(laplace_noise_law((0, 1), 2.0))))


def test_every_coin_can_ask_for_its_own_gap(monkeypatch):
    """Floats decide nearly every coin. The exact gap behind each must be that of its candidate, in every chunk."""
    monkeypatch.setattr(selection, "_CHUNK", 3)
    scores, rate = np.array([5, 0, 2, 7, 1, 3, 6, 4]), Fraction(1, 3)
    coins = selection.bernoulli_exp_each
    asked = 0

    def checked(exponents, exact, source):
        nonlocal asked
        for i, exponent in enumerate(exponents.tolist()):
            assert float(exact(i)) == pytest.approx(exponent, rel=1e-12, abs=1e-12)
            asked += 1
        return coins(exponents, exact, source)

    monkeypatch.setattr(selection, "bernoulli_exp_each", checked)
    choose_permute_and_flip(scores, rate, SeededBits(1))
    assert asked == len(scores)
    choose_exponential(scores, rate, SeededBits(1))
    assert asked > len(scores)


def test_subnormal_scores_at_a_rate_that_tells_them_apart():
    """Gaps of 5e-324 count for nothing at any legal rate, so the choice is fair."""
    source = SeededBits(8)
    scores = np.array([0.0, 5e-324])
    for choose in (choose_exponential, choose_permute_and_flip):
        choices = [choose(scores, Fraction(10**24), source) for _ in range(500)]
        assert chi_square_fits(choices, {0: 0.5, 1: 0.5})


def test_no_warning_and_no_error_where_gaps_overflow(monkeypatch):
    monkeypatch.setattr(selection, "SYSTEM_BITS", SeededBits(9))
    for function, options, _, _ in MECHANISMS.values():
        for scores in ([1e308, -1e308], [1.0, -1e300]):
            assert function(scores, sensitivity=1e-18, epsilon=1e6, **options) == 0


def test_noise_beyond_64_bits_is_added_exactly(monkeypatch):
    for noise, best in (([2**63 - 1, 0], 0), ([-(2**63), 0], 1), ([2**70, 2**70 + 1], 1), ([-(2**70), 0], 1)):
        wide = np.array(noise, dtype=object if max(map(abs, noise)) > 2**63 else np.int64)
        monkeypatch.setattr(selection, "discrete_laplace", lambda scale, size, source, wide=wide: wide)
        for scores in (
            np.array([2**62, 2**62]),
            np.array([2**63 - 1, 2**63 - 1]),
            np.array([2**64 - 1] * 2, np.uint64),
        ):
            assert choose_noisy_max(scores, Fraction(1), Fraction(1), SeededBits(1)) == best


# ---------------------------------------------------------------- many candidates


@pytest.mark.slow
def test_a_million_candidates():
    scores = np.zeros(10**6)
    scores[123_456] = 1000.0
    source = SeededBits(10)
    assert choose_permute_and_flip(scores, Fraction(1), source) == 123_456
    assert choose_exponential(scores, Fraction(1), source) == 123_456
    assert choose_noisy_max(scores, Fraction(1), Fraction(1), source) == 123_456
    whole = np.zeros(10**6, np.int64)
    choices = [choose_exponential(whole, Fraction(1), source) for _ in range(100)]
    assert chi_square_fits(np.array(choices) * 5 // 10**6, dict.fromkeys(range(5), 0.2))


@pytest.mark.slow
def test_chunks_of_candidates_have_the_same_law(monkeypatch):
    """Permute-and-flip throws its coins in chunks, and with chunks of two the law is the same."""
    monkeypatch.setattr(selection, "_CHUNK", 2)
    source = SeededBits(11)
    scores = (0, 1, 2, 3, 4)
    choices = [choose_permute_and_flip(np.array(scores), Fraction(1, 2), source) for _ in range(2000)]
    assert chi_square_fits(choices, dict(enumerate(permute_and_flip_law(scores, 0.5))))


# ---------------------------------------------------------------- other mechanisms as instances


@pytest.mark.slow
@pytest.mark.parametrize("categories", [2, 5])
def test_randomized_response_is_an_instance_of_the_exponential_mechanism(categories):
    """The score is 1 for the true category and 0 for the others. All inputs have the same normaliser, so no factor 2 is
    needed: the exponential mechanism at twice epsilon is randomized response at epsilon, whose loss is epsilon.
    """
    epsilon = 1.2
    rate = float(rate_of("exponential", 1, 2 * epsilon, monotone=False))
    laws = [exponential_law(np.arange(categories) == truth, rate) for truth in range(categories)]
    keep = math.exp(epsilon) / (math.exp(epsilon) + categories - 1)
    for truth, law in enumerate(laws):
        assert law[truth] == pytest.approx(keep, rel=1e-12)
        assert np.delete(law, truth) == pytest.approx((1 - keep) / (categories - 1), rel=1e-12)
    loss = max(np.abs(np.log(a) - np.log(b)).max() for a, b in itertools.combinations(laws, 2))
    assert loss == pytest.approx(epsilon, rel=1e-12)
    # Both samplers agree with the same law.
    pmf = dict(enumerate(laws[1]))
    responses = respond(np.full(20_000, 1), categories, Fraction("1.2"), SeededBits(12))
    assert chi_square_fits(responses, pmf)
    scores, source = (np.arange(categories) == 1).astype(int), SeededBits(13)
    assert chi_square_fits([choose_exponential(scores, Fraction("1.2"), source) for _ in range(2000)], pmf)


@pytest.mark.slow
def test_the_laplace_mechanism_is_an_instance_of_the_exponential_mechanism():
    """Candidates are the answers, and the score is minus the distance to the true one. Over all integers the normaliser
    is the same for every input, so the exponential mechanism at twice epsilon is the Laplace mechanism at epsilon.
    """
    epsilon, truth = 0.8, 3
    rate = float(rate_of("exponential", 1, 2 * epsilon, monotone=False))
    answers = np.arange(-60, 67)  # less than 1e-20 lies beyond
    law = exponential_law(-np.abs(answers - truth), rate)
    q = math.exp(-epsilon)
    assert law == pytest.approx((1 - q) / (1 + q) * q ** np.abs(answers - truth).astype(float), abs=1e-15)
    shifted = exponential_law(-np.abs(answers - truth - 1), rate)
    assert np.abs(np.log(law) - np.log(shifted)).max() == pytest.approx(epsilon, rel=1e-9)
    pmf = dict(zip(answers.tolist(), law, strict=True))
    noisy = additive.add_laplace(read_numbers(np.full(20_000, truth)), Fraction(1), Fraction("0.8"), SeededBits(14))
    assert chi_square_fits(noisy, pmf)
    source = SeededBits(15)
    chosen = [choose_exponential(-np.abs(answers - truth), Fraction("0.8"), source) for _ in range(2000)]
    assert chi_square_fits(answers[chosen], pmf)


# ---------------------------------------------------------------- invalid parameters

BAD_NUMBERS = [
    0, -1, -0.5, math.nan, math.inf, -math.inf, 1e-30, 1e30, 10**400, True, np.True_, "1", None, [1], 1j,
    np.array([1.0]), Decimal("NaN"), Decimal("Infinity"), object(),
]  # fmt: skip


@pytest.fixture
def no_bits(monkeypatch):
    monkeypatch.setattr(selection, "SYSTEM_BITS", NoBits())


def refused(function, match, **parameters):
    for scores in ([987654321, 1], np.array([987654321.25, 1.0])):
        with pytest.raises(InvalidParameterError) as caught:
            function(scores, **{"sensitivity": 1, "epsilon": 1, **parameters})
        assert isinstance(caught.value, DPError)
        assert match in str(caught.value)
        assert "987654321" not in str(caught.value)
        assert len(str(caught.value)) > 25


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_bad_parameters_are_refused_before_a_bit_is_drawn(mechanism, no_bits):
    function, options, _, _ = MECHANISMS[mechanism]
    for bad in BAD_NUMBERS:
        refused(function, "sensitivity", sensitivity=bad, **options)
        refused(function, "epsilon", epsilon=bad, **options)
    for bad in (1e-10, 1e7):
        refused(function, "epsilon", epsilon=bad, **options)
    # A text such as "False" counts as true and would halve the noise.
    for bad in ("False", "no", None, 1, 0, 2.0, [False]):
        refused(function, "monotone", monotone=bad, **options)


@pytest.mark.parametrize("noise", ["", "Laplace", "gauss", "gaussian", None, 3, True, ["laplace"]])
def test_unknown_noise_is_refused(noise, no_bits):
    refused(report_noisy_max, "laplace, exponential, gumbel", noise=noise)


def test_noise_wider_than_64_bits_is_refused_for_whole_scores(no_bits):
    with pytest.raises(InvalidParameterError, match="2\\*\\*52"):
        report_noisy_max([1, 2], sensitivity=1e10, epsilon=1e-9, noise="laplace")


def test_scores_are_one_number_per_candidate():
    for scores in (np.array([[1, 2], [3, 4]]), [[1.0, 2.0]], np.array(1.0), 1, 1.0, np.int64(1), True):
        with pytest.raises(InvalidDataError, match="one number per candidate"):
            read_scores(scores)
    assert read_scores(np.array([[1], [2]])).tolist() == [1, 2]  # one column is one number each
    assert read_scores((1, 2)).tolist() == [1, 2]
