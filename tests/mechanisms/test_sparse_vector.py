"""The sparse vector technique: exact output probabilities, and with them the guarantee, for every neighbouring stream.

`chance_of` evaluates the outputs of a stream from the definition alone: it sums over the noise of the threshold, given
which the comparisons are independent. The outputs of the mechanism must fit it, and it shows that any two streams that
one unit can turn into each other lie within epsilon. A witness stream comes so close to epsilon that 3 % less noise
fails. The errors promised for a stream hold for whole streams and are not much larger than needed.
"""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dp_polars._sampling import discrete_laplace
from dp_polars.errors import InvalidDataError, InvalidParameterError
from dp_polars.mechanisms import above_threshold, numeric_sparse, sparse, sparse_error, sparse_vector
from dp_polars.mechanisms.sparse_vector import SparseScales, SparseVector, _NoiseBuffer, sparse_scales
from dp_polars.theory import advanced, optimal
from tests.bits import SeededBits
from tests.statistics import chi_square_fits

BOTH = ["lyu-su-li", "dwork-roth"]
ROUNDING = 1e-9  # of a log-ratio of two float sums


def scales_of(epsilon, hits, *, monotone=False, constants="lyu-su-li", numeric=False, delta=None) -> SparseScales:
    return sparse_scales(epsilon, hits, delta=delta, monotone=monotone, constants=constants, numeric=numeric)


def scaled(scales: SparseScales, factor) -> SparseScales:
    """Return the same scales in other units: grid points, or as much noise as a wrong constant would give."""
    value = None if scales.value is None else scales.value * factor
    return SparseScales(scales.hits, scales.threshold * factor, scales.query * factor, value, scales.renew)


# ---------------------------------------------------------------- an exact evaluator


def at_least(m, scale: float):
    """P(X >= m) of the discrete Laplace: q**m / (1 + q) for m >= 1, and by symmetry 1 - P(X >= 1 - m) below."""
    q = math.exp(-1 / scale)
    tail = np.exp(-np.where(m >= 1, m, 1 - m) / scale) / (1 + q)
    return np.where(m >= 1, tail, 1 - tail)


def pmf(x, scale: float):
    return np.exp(-np.abs(x) / scale) * math.tanh(0.5 / scale)


def all_outputs(length: int, hits: int) -> list[tuple[bool, ...]]:
    """Yield every output of a stream of this length, which ends with the last hit or with the answers."""
    ended = [
        (*head, True)
        for size in range(hits - 1, length)
        for head in itertools.product((False, True), repeat=size)
        if sum(head) == hits - 1
    ]
    return ended + [out for out in itertools.product((False, True), repeat=length) if sum(out) < hits]


def chances(answers, scales: SparseScales, *, base: int = 0, reach: int = 80) -> dict[tuple[bool, ...], float]:
    """Return the probability of every output for whole answers, up to 2 exp(-reach) of the noise of the threshold."""
    if not scales.renew:
        return _one_threshold(tuple(answers), scales.hits, scales, base, reach)
    return _renewed(tuple(answers), scales.hits, scales, base, reach)


def _renewed(answers, hits, scales, base, reach):
    out = {}
    for head, p in _one_threshold(answers, 1, scales, base, reach).items():
        rest = answers[len(head) :]
        if head[-1] and hits > 1 and rest:
            for tail, q in _renewed(rest, hits - 1, scales, base, reach).items():
                out[head + tail] = p * q
        else:
            out[head] = p
    return out


def _one_threshold(answers, hits, scales, base, reach):
    wide = math.ceil(reach * scales.threshold)
    out = dict.fromkeys(all_outputs(len(answers), hits), 0.0)
    for start in range(-wide, wide + 1, 1 << 19):
        noise = np.arange(start, min(start + (1 << 19), wide + 1), dtype=float)
        above = [at_least(base + noise - answer, float(scales.query)) for answer in answers]
        below = [at_least(1 - (base + noise - answer), float(scales.query)) for answer in answers]

        def walk(weight, seen, above=above, below=below):
            if len(seen) == len(answers) or sum(seen) == hits:
                out[seen] += float(weight.sum())
                return
            walk(weight * below[len(seen)], (*seen, False))
            walk(weight * above[len(seen)], (*seen, True))

        walk(pmf(noise, float(scales.threshold)), ())
    return out


def chance_table(output, values, scales: SparseScales) -> np.ndarray:
    """Return the probability of one output for all streams over `values`; entry [i, j] is for values[i], values[j]."""
    wide = math.ceil(80 * scales.threshold)
    noise = np.arange(-wide, wide + 1, dtype=float)
    gap = noise - np.asarray(values, dtype=float)[:, None]
    factor = {True: at_least(gap, float(scales.query)), False: at_least(1 - gap, float(scales.query))}
    rounds: list[list[bool]] = [[]]
    for seen in output:
        rounds[-1].append(seen)
        if seen and scales.renew:
            rounds.append([])
    table = np.ones(())
    for one in filter(None, rounds):
        left, right = pmf(noise, float(scales.threshold))[None], np.ones((1, len(noise)))
        for seen in one[: len(one) // 2]:
            left = (left[:, None] * factor[seen]).reshape(-1, len(noise))
        for seen in one[len(one) // 2 :]:
            right = (right[:, None] * factor[seen]).reshape(-1, len(noise))
        table = np.multiply.outer(table, (left @ right.T).reshape((len(values),) * len(one)))
    return table


@pytest.mark.parametrize("renew", [True, False])
def test_the_evaluator_agrees_with_the_sum_over_all_noises(renew):
    """Enumerate every noise of the threshold and of each query one by one, for tiny scales."""
    scales = SparseScales(2, Fraction(1, 2), Fraction(2, 3), None, renew)
    answers, x = (0, 1, -1), range(-14, 15)
    single = {scale: [float(pmf(k, scale)) for k in x] for scale in (1 / 2, 2 / 3)}
    # For one threshold T, the law of each comparison is summed over the noise of the query.
    above = {t: [sum(p for k, p in zip(x, single[2 / 3], strict=True) if a + k >= t) for a in answers] for t in x}
    expected = dict.fromkeys(all_outputs(3, 2), 0.0)
    for (t, p), (u, q) in itertools.product(zip(x, single[1 / 2], strict=True), repeat=2):
        for output in expected:
            threshold, chance = t, p * q
            for i, seen in enumerate(output):
                chance *= above[threshold][i] if seen else 1 - above[threshold][i]
                if seen and renew:
                    threshold = u
            expected[output] += chance
    found = chances(answers, scales)
    assert found == pytest.approx(expected, abs=1e-9)  # exp(-14 / (2/3)) is left out
    assert sum(found.values()) == pytest.approx(1, abs=1e-13)


@pytest.mark.parametrize("constants", BOTH)
def test_both_evaluators_agree_and_their_chances_sum_to_one(constants):
    scales = scales_of(2, 2, constants=constants)
    values = [-3, 0, 5]
    tables = {output: chance_table(output, values, scales) for output in all_outputs(4, 2)}
    for stream in itertools.product(range(3), repeat=4):
        found = chances([values[i] for i in stream], scales)
        assert sum(found.values()) == pytest.approx(1, abs=1e-13)
        for output, chance in found.items():
            assert tables[output][stream[: len(output)]] == pytest.approx(chance, rel=1e-10)


# ---------------------------------------------------------------- the mechanism fits the evaluator


class Pool:
    """Hands out samples of the real sampler, drawn in large batches for speed; the sampler is tested elsewhere."""

    def __init__(self) -> None:
        self.left: dict[Fraction, list[int]] = {}

    def __call__(self, scale, size, source):
        left = self.left.setdefault(scale, [])
        if len(left) < size:
            left.extend(discrete_laplace(scale, 20_000, source).tolist())
        return np.array([left.pop() for _ in range(size)])


SIMULATED = [
    # constants, hits, monotone, epsilon, threshold, answers in units of sensitivity
    ("lyu-su-li", 1, False, 4.0, 0.5, [0.0, 0.75, -0.5, 1.0]),
    ("lyu-su-li", 2, True, 6.0, 0.0, [0.25, -0.5, 0.0, 1.0]),
    ("dwork-roth", 2, False, 6.0, 0.0, [0.25, -0.5, 0.5]),
    ("dwork-roth", 3, True, 10.0, -0.25, [0.0, -0.5, 0.25, -0.25]),
]


def in_grid_points(vector: SparseVector, number: float, sensitivity: Fraction) -> int:
    return round(Fraction(number) * sensitivity / Fraction(2) ** vector._exponent)


@pytest.mark.slow
@pytest.mark.parametrize(("constants", "hits", "monotone", "epsilon", "threshold", "answers"), SIMULATED)
def test_outputs_fit_the_exact_chances(monkeypatch, constants, hits, monotone, epsilon, threshold, answers):
    scales, sensitivity, source = (
        scales_of(epsilon, hits, monotone=monotone, constants=constants),
        Fraction(4),
        SeededBits(1),
    )
    monkeypatch.setattr(sparse_vector, "discrete_laplace", Pool())
    stream = [float(answer * sensitivity) for answer in answers]
    outputs = all_outputs(len(answers), hits)
    seen = []
    for _ in range(4000):
        vector = SparseVector(scales, Fraction(threshold) * sensitivity, sensitivity, source)
        seen.append(outputs.index(tuple(result is not None for result in vector.answer(stream))))
    expected = chances(
        [in_grid_points(vector, answer, sensitivity) for answer in answers],
        scaled(scales, vector._steps),
        base=in_grid_points(vector, threshold, sensitivity),
        reach=25,
    )
    assert sum(expected.values()) == pytest.approx(1, abs=1e-9)
    assert len(set(seen)) >= 5
    assert chi_square_fits(seen, {outputs.index(output): p for output, p in expected.items()})


@pytest.mark.slow
def test_outputs_fit_without_the_pool():
    """Test end to end with the samplers as they are really called."""
    scales, source = scales_of(2, 1), SeededBits(2)
    lengths = []
    for _ in range(1500):
        vector = SparseVector(scales, Fraction(1), Fraction(1), source)
        found = list(vector.answer([0, 1, 2]))
        lengths.append(3 if vector.hits_left else len(found) - 1)
    points = [in_grid_points(vector, answer, Fraction(1)) for answer in (0, 1, 2)]
    expected = chances(points, scaled(scales, vector._steps), base=points[1], reach=25)
    law = {len(output) - 1 if output[-1] else 3: p for output, p in expected.items()}
    assert chi_square_fits(lengths, law)


@pytest.mark.slow
@pytest.mark.parametrize(("constants", "hits"), [("lyu-su-li", 2), ("dwork-roth", 2)])
def test_values_fit_and_are_independent_of_the_comparisons(monkeypatch, constants, hits):
    """The value of each hit falls into one of four parts of its own Laplace law, whatever the output was."""
    scales, source = scales_of(6, hits, constants=constants, numeric=True), SeededBits(3)
    monkeypatch.setattr(sparse_vector, "discrete_laplace", Pool())
    answers, outputs = [0.5, -0.25, 0.25], all_outputs(3, hits)
    vector = SparseVector(scales, Fraction(0), Fraction(1), source)
    points = [in_grid_points(vector, answer, Fraction(1)) for answer in answers]
    wide = float(scales.value * vector._steps)
    edge = round(wide * math.log(2))  # about half of each side lies beyond
    cut = [-edge, 0, edge]  # parts: x < -edge, -edge <= x < 0, 0 <= x < edge, edge <= x
    tails = [1.0, *(float(at_least(np.array(c), wide)) for c in cut), 0.0]
    part_law = [a - b for a, b in itertools.pairwise(tails)]
    step = Fraction(2) ** vector._exponent
    seen = []
    for _ in range(6000):
        vector = SparseVector(scales, Fraction(0), Fraction(1), source)
        results = list(vector.answer(answers))
        code = outputs.index(tuple(result is not None for result in results))
        for result, point in zip(results, points, strict=False):
            if result is not None:
                noise = Fraction(result) / step - point
                assert noise.denominator == 1
                code = 4 * code + sum(noise >= c for c in cut)
        seen.append(100_000 * sum(result is not None for result in results) + code)
    law = {}
    for output, p in chances(points, scaled(scales, vector._steps), reach=25).items():
        for parts in itertools.product(range(4), repeat=sum(output)):
            code = outputs.index(output)
            for part in parts:
                code = 4 * code + part
            law[100_000 * sum(output) + code] = p * math.prod(part_law[part] for part in parts)
    assert sum(law.values()) == pytest.approx(1, abs=1e-9)
    assert chi_square_fits(seen, law)


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("sensitivity", [Fraction(1), Fraction(1, 3), Fraction(10**6, 7), Fraction(1, 10**18)])
@pytest.mark.parametrize("epsilon", [1e-3, 1, 50, 1e6])
def test_every_noise_is_as_wide_as_its_scale_times_the_steps_a_unit_can_move(
    monkeypatch, constants, sensitivity, epsilon
):
    """Check exactly, not by statistics, the scales that reach the sampler for the grid that is in use."""
    scales = scales_of(epsilon, 3, constants=constants, numeric=True)
    asked: list[Fraction] = []

    def record(scale, size, source):
        asked.append(scale)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(sparse_vector, "discrete_laplace", record)
    vector = SparseVector(scales, Fraction(0), sensitivity, SeededBits(1))
    assert list(vector.answer([0, -(10**30), 0, 0])) == [0.0, None, 0.0, 0.0]
    steps = math.floor(sensitivity / Fraction(2) ** vector._exponent) + 1
    assert asked.count(scales.threshold * steps) == (3 if scales.renew else 1)
    assert asked.count(scales.value * steps) == 3
    assert set(asked) == {scales.threshold * steps, scales.query * steps, scales.value * steps}
    # The grid costs next to nothing: with it the noise is wider by less than 1/10,000.
    assert steps * Fraction(2) ** vector._exponent < sensitivity * Fraction(10_001, 10_000)


@pytest.mark.slow
def test_noise_drawn_ahead_has_the_law_across_all_batches():
    ahead = _NoiseBuffer(Fraction(5, 2), SeededBits(4))
    samples = [ahead.next() for _ in range(8000)]
    assert chi_square_fits(samples, {x: float(pmf(x, 2.5)) for x in range(-90, 91)})
    early = []
    for seed in range(1500):  # the first few come one by one, the next from a table
        ahead = _NoiseBuffer(Fraction(5, 2), SeededBits(seed))
        early.append([ahead.next() for _ in range(6)])
    for column in np.array(early).T:
        assert chi_square_fits(column, {x: float(pmf(x, 2.5)) for x in range(-90, 91)})


# ---------------------------------------------------------------- epsilon, over all neighbouring streams


def worst_loss(scales: SparseScales, *, length: int, sensitivity: int = 1, one_way: bool) -> float:
    """Return the largest |log-ratio| over all outputs and all pairs of neighbouring streams.

    Answers lie far below, at and far above the threshold. Each moves by up to `sensitivity`, and with `one_way` all
    move in the same direction. With released values each hit adds the largest log-ratio of its value.
    """
    scales = scaled(scales, sensitivity)
    far = math.ceil(4 * max(scales.threshold, scales.query))
    values = [middle + move for middle in (-far, 0, far) for move in range(-sensitivity, sensitivity + 1)]
    pairs = [(i, j) for i, a in enumerate(values) for j, b in enumerate(values) if abs(a - b) <= sensitivity]
    if one_way:
        pairs = [(i, j) for i, j in pairs if values[i] <= values[j]]
    here, there = (np.array(side) for side in zip(*pairs, strict=True))
    value_loss = np.array([value_loss_of(scales, values[i], values[j]) for i, j in pairs])
    worst = 0.0
    for output in all_outputs(length, scales.hits):
        logs = np.log(chance_table(output, values, scales))
        difference = logs[np.ix_(*[here] * len(output))] - logs[np.ix_(*[there] * len(output))]
        extra = np.zeros(())
        for seen in output:
            extra = np.add.outer(extra, value_loss if seen else np.zeros(len(pairs)))
        worst = max(worst, float((np.abs(difference) + extra).max()))
    return worst


def value_loss_of(scales: SparseScales, here: int, there: int) -> float:
    """Return the largest |log-ratio| of a released value over a window of whole numbers around both answers."""
    if scales.value is None:
        return 0.0
    window = np.arange(min(here, there) - 20, max(here, there) + 21)
    wide = float(scales.value)
    return float(np.abs(np.log(pmf(window - here, wide)) - np.log(pmf(window - there, wide))).max())


@pytest.mark.slow
@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("hits", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_neighbouring_streams_stay_within_epsilon(constants, monotone, hits, epsilon):
    scales = scales_of(epsilon, hits, monotone=monotone, constants=constants)
    assert worst_loss(scales, length=4, one_way=monotone) <= epsilon + ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("monotone", [False, True])
def test_a_unit_that_moves_answers_by_several_grid_points_stays_within_epsilon(constants, monotone):
    scales = scales_of(1, 2, monotone=monotone, constants=constants)
    assert worst_loss(scales, length=3, sensitivity=3, one_way=monotone) <= 1 + ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("hits", [1, 2, 3])
def test_neighbouring_streams_with_values_stay_within_epsilon(constants, monotone, hits):
    scales = scales_of(1.5, hits, monotone=monotone, constants=constants, numeric=True)
    assert worst_loss(scales, length=4, one_way=monotone) <= 1.5 + ROUNDING


def witness_loss(scales: SparseScales, *, hit_moves: int) -> float:
    """Return the log-ratio of one output for one long pair of streams that is close to the worst.

    Answers far above the threshold that are reported below it push the noisy threshold up, and they rise by one step.
    The hits, far below, move by `hit_moves`: against them (-1), or not at all (0, which monotone answers allow).
    """
    pushes = math.ceil(scales.query / scales.threshold) + scales.hits + 6
    far = math.ceil(10 * max(scales.threshold, scales.query))
    hits = 1 if scales.renew else scales.hits
    noise = np.arange(-math.ceil(200 * scales.threshold), math.ceil(200 * scales.threshold) + 1, dtype=float)

    def log_chance(pushed: int, hit: int) -> float:
        logs = (
            np.log(pmf(noise, float(scales.threshold)))
            + pushes * np.log(at_least(1 - (noise - pushed), float(scales.query)))
            + hits * np.log(at_least(noise - hit, float(scales.query)))
        )
        return float(logs.max() + math.log(np.exp(logs - logs.max()).sum()))

    loss = log_chance(far, -far) - log_chance(far + 1, -far + hit_moves)
    loss *= scales.hits if scales.renew else 1  # each round of a renewed threshold again
    if scales.value is not None and hit_moves:
        loss += scales.hits * value_loss_of(scales, -far, -far + hit_moves)
    return loss


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("hits", [1, 2, 3, 10])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_all_of_epsilon_is_needed(constants, monotone, hits, epsilon):
    """A long stream comes within 1 % of epsilon, so 3 % less noise breaks the guarantee: no constant is too large."""
    scales = scales_of(epsilon, hits, monotone=monotone, constants=constants)
    moves = 0 if monotone else -1
    assert 0.99 * epsilon <= witness_loss(scales, hit_moves=moves) <= epsilon + ROUNDING
    assert witness_loss(scaled(scales, Fraction(97, 100)), hit_moves=moves) > epsilon


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("hits", [1, 2, 3])
def test_all_of_epsilon_is_needed_with_values(constants, hits):
    scales = scales_of(1, hits, constants=constants, numeric=True)
    assert 0.99 <= witness_loss(scales, hit_moves=-1) <= 1 + ROUNDING
    assert witness_loss(scaled(scales, Fraction(97, 100)), hit_moves=-1) > 1


@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("hits", [1, 2, 3])
def test_monotone_noise_is_too_little_for_answers_that_move_both_ways(constants, hits):
    scales = scales_of(1, hits, monotone=True, constants=constants)
    assert witness_loss(scales, hit_moves=-1) > 1.3
    if hits == 1:  # the enumeration sees it too
        assert worst_loss(scales, length=4, one_way=False) > 1.3


@pytest.mark.parametrize("hits", [1, 2, 3])
def test_values_with_half_the_noise_break_dwork_and_roths_split(hits):
    """epsilon_2 = 2/9 with noise c / epsilon_2 instead of 2c / epsilon_2 costs 8/9 + 2/9."""
    scales = scales_of(1, hits, constants="dwork-roth", numeric=True)
    halved = SparseScales(hits, scales.threshold, scales.query, scales.value / 2, scales.renew)
    assert price(halved, monotone=False) == Fraction(10, 9)
    assert witness_loss(halved, hit_moves=-1) > 1.09
    if hits == 1:
        assert worst_loss(halved, length=4, one_way=False) > 1.05


# ---------------------------------------------------------------- epsilon, by accounting


def price(scales: SparseScales, *, monotone: bool) -> Fraction:
    """Return what the proofs charge: the threshold once (or per hit if renewed), each hit's comparison, each value."""
    rounds = scales.hits if scales.renew else 1
    test = rounds / scales.threshold + scales.hits * (1 if monotone else 2) / scales.query
    return test + (scales.hits / scales.value if scales.value else 0)


@pytest.mark.slow
@pytest.mark.parametrize("constants", BOTH)
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("numeric", [False, True])
@pytest.mark.parametrize("hits", [1, 2, 10, 1000, 10**14])
@pytest.mark.parametrize("epsilon", [0.1, 1, Fraction(1, 3), Decimal("2.5"), 1e6, 0.5])
def test_the_parts_sum_to_epsilon_exactly(constants, monotone, numeric, hits, epsilon):
    scales = scales_of(epsilon, hits, monotone=monotone, constants=constants, numeric=numeric)
    exact = Fraction(repr(epsilon)) if isinstance(epsilon, float) else Fraction(epsilon)
    assert price(scales, monotone=monotone) == exact
    assert (scales.value is not None) == numeric
    assert scales.renew == (constants == "dwork-roth")


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("numeric", [False, True])
@pytest.mark.parametrize("hits", [1, 3, 10, 500])
def test_lyu_su_li_split_the_test_so_that_its_noise_is_least(monotone, numeric, hits):
    """The split is 1 : (2c)**(2/3), or 1 : c**(2/3) if monotone (Lyu, Su and Li 2017, section 4.2)."""
    scales = scales_of(1, hits, monotone=monotone, numeric=numeric)
    moved = hits if monotone else 2 * hits
    first, second = 1 / scales.threshold, moved / scales.query
    assert float(second / first) == pytest.approx(moved ** (2 / 3), rel=1e-6)

    def variance(share: Fraction) -> float:
        return float((1 / share) ** 2 + (moved / (first + second - share)) ** 2)

    assert variance(first) < variance(first * Fraction(102, 100))
    assert variance(first) < variance(first * Fraction(98, 100))


def test_lyu_su_li_compare_with_about_half_of_dwork_and_roths_noise():
    def deviation(constants: str) -> float:
        """Return the variance of the threshold's and the query's noise together; Laplace of scale b has 2 b**2."""
        scales = scales_of(1, 10, constants=constants)
        return math.sqrt(2 * scales.threshold**2 + 2 * scales.query**2)

    assert 0.45 < deviation("lyu-su-li") / deviation("dwork-roth") < 0.6


@pytest.mark.parametrize("hits", [1, 4])
def test_dwork_and_roths_constants(hits):
    """Compare with algorithms 1 to 3 of Dwork and Roth 2014, where sigma = 2c / epsilon."""
    plain = scales_of(Fraction(1, 2), hits, constants="dwork-roth")
    assert (plain.threshold, plain.query) == (4 * hits, 8 * hits)
    with_values = scales_of(Fraction(1, 2), hits, constants="dwork-roth", numeric=True)
    assert with_values.threshold == 2 * hits / (Fraction(8, 9) / 2)
    assert with_values.query == 2 * with_values.threshold
    assert with_values.value == 2 * hits / (Fraction(2, 9) / 2)


# ---------------------------------------------------------------- epsilon and delta, by accounting


def composed(scales: SparseScales, *, monotone: bool, slack: float, theorem) -> float:
    """Return the advanced composition of the rounds and, separately, of the values; each may fail with `slack`."""
    each = 1 / scales.threshold + (1 if monotone else 2) / scales.query
    total = theorem(each, scales.hits, slack=slack).epsilon
    return total + (theorem(1 / scales.value, scales.hits, slack=slack).epsilon if scales.value else 0)


@pytest.mark.slow
@pytest.mark.parametrize("numeric", [False, True])
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-2])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 5.0, 40.0, 200.0])
def test_with_delta_the_noise_is_never_larger_and_always_covered(numeric, monotone, delta, epsilon):
    slack = delta / 2 if numeric else delta
    used = 0
    for hits in (1, 10, 50, 100, 200, 500, 1000, 2000, 10_000):
        pure = scales_of(epsilon, hits, monotone=monotone, constants="dwork-roth", numeric=numeric)
        wide = scales_of(epsilon, hits, monotone=monotone, constants="dwork-roth", numeric=numeric, delta=delta)
        assert wide.query == (1 if monotone else 2) * wide.threshold
        if wide == pure:
            continue
        used += 1
        assert wide.threshold < pure.threshold
        assert wide.query < pure.query
        assert not numeric or wide.value < pure.value
        for theorem in (advanced, optimal):
            assert composed(wide, monotone=monotone, slack=slack, theorem=theorem) <= epsilon
        root = math.sqrt(512)
        noise = math.sqrt(32 * hits * math.log(1 / slack))
        assert float(wide.threshold) == pytest.approx(
            noise / (epsilon * root / (root + 1) if numeric else epsilon), rel=1e-9
        )
        assert not numeric or float(wide.value) == pytest.approx(noise / (epsilon * 2 / (root + 1)), rel=1e-9)
    # It is used wherever the theorem covers it, which is not the case for a large epsilon.
    assert used >= (1 if epsilon <= 5 else 0)


@pytest.mark.parametrize(("numeric", "factor"), [(False, 8), (True, 55)])
def test_delta_pays_from_the_documented_number_of_hits(numeric, factor):
    delta = 1e-6
    turn = factor * math.log((2 if numeric else 1) / delta)

    def helps(hits: int) -> bool:
        scales = [scales_of(1, hits, constants="dwork-roth", numeric=numeric, delta=d) for d in (None, delta)]
        return scales[0] != scales[1]

    assert not helps(math.floor(0.98 * turn))
    assert helps(math.ceil(1.02 * turn))


@pytest.mark.parametrize("numeric", [False, True])
def test_the_short_formula_is_not_used_where_the_theorem_does_not_cover_it(numeric):
    """At epsilon = 200 its noise would be smaller, but even optimal composition costs more than epsilon."""
    epsilon, hits, delta = 200, 1000, 1e-6
    slack = delta / 2 if numeric else delta
    noise = Fraction(math.sqrt(32 * hits * math.log(1 / slack)))
    root = Fraction(math.sqrt(512))
    sigma = noise / (epsilon * root / (root + 1) if numeric else epsilon)
    value = noise / (epsilon * 2 / (root + 1)) if numeric else None
    formula = SparseScales(hits, sigma, 2 * sigma, value, renew=True)
    pure = scales_of(epsilon, hits, constants="dwork-roth", numeric=numeric)
    assert formula.threshold < pure.threshold
    assert composed(formula, monotone=False, slack=slack, theorem=optimal) > epsilon
    assert scales_of(epsilon, hits, constants="dwork-roth", numeric=numeric, delta=delta) == pure


@pytest.mark.parametrize("delta", [0.9999999, Fraction(10**30 - 1, 10**30), 1e-100])
@pytest.mark.parametrize("epsilon", [1e-9, 1, 1e6])
@pytest.mark.parametrize("numeric", [False, True])
def test_extreme_deltas_and_epsilons_are_no_crash(delta, epsilon, numeric):
    for hits in (1, 1000):
        pure = scales_of(epsilon, hits, constants="dwork-roth", numeric=numeric)
        wide = scales_of(epsilon, hits, constants="dwork-roth", numeric=numeric, delta=delta)
        assert 0 < wide.threshold <= pure.threshold
        assert 0 < wide.query <= pure.query


# ---------------------------------------------------------------- the grid


NUMBERS = st.one_of(
    st.integers(-1000, 1000),
    st.floats(-1000, 1000),
    st.fractions(-1000, 1000, max_denominator=10**9),
)


@pytest.mark.slow
@given(
    answer=NUMBERS,
    part=st.fractions(0, 1, max_denominator=10**6),
    sensitivity=st.fractions(Fraction(1, 100), 10**4, max_denominator=10**6),
    epsilon=st.sampled_from([Fraction(1, 100), Fraction(1), Fraction(300)]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=120, deadline=None, derandomize=True)
def test_answers_within_the_sensitivity_lie_within_the_steps(answer, part, sensitivity, epsilon, seed):
    """The values of two streams on the same random words differ by the distance of their answers on the grid.

    Answers and noise stay below 2**53 grid points here, so the released floats are exact.
    """
    scales = scales_of(epsilon, 1, numeric=True)

    def released(number) -> tuple[Fraction, SparseVector]:
        vector = SparseVector(scales, Fraction(-(10**30)), sensitivity, SeededBits(seed))
        return Fraction(vector.ask(number)), vector

    one, vector = released(answer)
    two, _ = released(Fraction(answer) + part * sensitivity)
    moved = (two - one) / Fraction(2) ** vector._exponent
    assert moved.denominator == 1
    assert 0 <= moved <= vector._steps  # a larger answer never lands lower, so monotone answers stay monotone
    assert abs(moved - part * sensitivity / Fraction(2) ** vector._exponent) <= 1


@pytest.mark.parametrize(
    "answer",
    [6, 6.0, Fraction(6), np.int8(6), np.uint64(6), np.float32(6), np.float64(6)],
    ids=lambda x: type(x).__name__,
)
def test_numbers_of_any_kind_are_answers(answer):
    scales = scales_of(1, 1, numeric=True)
    values = {SparseVector(scales, Fraction(-(10**9)), Fraction(1), SeededBits(1)).ask(x) for x in (6, answer)}
    assert len(values) == 1


def test_arrays_and_series_are_streams():
    for answers in (
        np.array([0, 10**6]),
        np.array([0.0, 1e6]),
        pl.Series([0, 10**6]),
        (0, 10**6),
        range(0, 2 * 10**6, 10**6),
    ):
        assert list(above_threshold(answers, threshold=10**5, sensitivity=1, epsilon=1)) == [False, True]


def test_answers_beyond_floats_are_compared_as_they_are():
    huge = 10**400
    found = list(sparse([-huge, Fraction(huge)], threshold=0, hits=1, sensitivity=1, epsilon=1))
    assert found == [False, True]
    value = next(iter(numeric_sparse([huge], threshold=0, hits=1, sensitivity=1, epsilon=1)))
    assert value == np.finfo(float).max


# ---------------------------------------------------------------- streams


def open_stream(function, answers, **changes):
    given = {"threshold": 5 * 10**5, "sensitivity": 1, "epsilon": 1}
    given |= {} if function is above_threshold else {"hits": 2}
    return function(answers, **given | changes)


HIGH, LOW = 10**6, 0  # a noise of half a million at a scale below 20 has a probability below exp(-20000)


def test_the_stream_is_read_one_answer_at_a_time():
    """The next answer is chosen only after the last result is known."""
    for function, hit in ((sparse, lambda x: x), (numeric_sparse, lambda x: x is not None)):
        results: list[bool] = []
        offered = []

        def answers(results=results, offered=offered):
            for i in itertools.count():
                assert len(results) == i
                offered.append(HIGH if i % 3 == 1 else LOW)
                yield offered[-1]

        for result in open_stream(function, answers(), hits=3):
            results.append(bool(hit(result)))
        assert results == [False, True, False, False, True, False, False, True]
        assert len(offered) == 8


def test_answers_may_depend_on_earlier_results():
    """Search for the largest threshold that a count exceeds; each answer is chosen by the previous result."""
    secret, low, high = 613_000, 0, 1 << 20
    state = {"low": low, "high": high}

    def answers():
        while state["high"] - state["low"] > 50_000:
            yield secret - (state["low"] + state["high"]) // 2

    for above in sparse(answers(), threshold=0, hits=50, sensitivity=1, epsilon=100):
        middle = (state["low"] + state["high"]) // 2
        state["low" if above else "high"] = middle
    assert state["low"] <= secret <= state["high"]


@pytest.mark.parametrize("function", [above_threshold, sparse, numeric_sparse])
def test_the_stream_ends_right_after_the_last_hit(function):
    read = []

    def answers():
        for answer in (LOW, HIGH, LOW, HIGH, HIGH, HIGH):
            read.append(answer)
            yield answer

    stream = open_stream(function, answers())
    found = list(stream)
    expected = [False, True] if function is above_threshold else [False, True, False, True]
    if function is numeric_sparse:
        assert [value is not None for value in found] == expected
        assert all(abs(value - HIGH) < 10**5 for value in found if value is not None)
    else:
        assert found == expected
        assert {type(result) for result in found} == {bool}
    assert len(read) == len(expected)
    assert next(stream, "over") == "over"


def test_a_stream_may_end_before_its_hits():
    assert list(open_stream(sparse, [])) == []
    assert list(open_stream(sparse, [LOW, HIGH, LOW])) == [False, True, False]


def test_a_closed_stream_refuses_further_answers():
    vector = SparseVector(scales_of(1, 2), Fraction(0), Fraction(1), SeededBits(1))
    assert math.isnan(vector.ask(HIGH))
    assert vector.hits_left == 1
    assert vector.ask(-HIGH) is None
    assert math.isnan(vector.ask(HIGH))
    assert vector.hits_left == 0
    for answer in (HIGH, -HIGH, math.nan):
        with pytest.raises(InvalidParameterError, match="closed"):
            vector.ask(answer)


def test_above_threshold_is_sparse_with_one_hit():
    for seed in range(20):
        scales = scales_of(1, 1)
        vector = SparseVector(scales, Fraction(0), Fraction(1), SeededBits(seed))
        results = list(vector.answer(itertools.repeat(0, 10_000)))
        assert all(result is None for result in results[:-1])
        assert vector.hits_left == 0


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "answer",
    [
        math.nan,
        math.inf,
        -math.inf,
        np.float32("nan"),
        np.float64("inf"),
        "4711",
        np.str_("4711"),
        True,
        np.bool_(True),
        None,
        [4711],
        np.array([4711]),
        4711j,
        Decimal(4711),
    ],
    ids=lambda x: f"{type(x).__name__} {x}",
)
@pytest.mark.parametrize("function", [above_threshold, sparse, numeric_sparse])
def test_answers_without_a_size_are_refused_without_naming_them(function, answer):
    stream = open_stream(function, [LOW, answer])
    next(stream)
    with pytest.raises(InvalidDataError, match="answer") as error:
        next(stream)
    assert "4711" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"epsilon": 1e7}, "epsilon"),
        ({"sensitivity": 0}, "sensitivity"),
        ({"sensitivity": -1}, "sensitivity"),
        ({"sensitivity": math.inf}, "sensitivity"),
        ({"sensitivity": 1e19}, "sensitivity"),
        ({"sensitivity": None}, "sensitivity"),
        ({"threshold": math.nan}, "threshold"),
        ({"threshold": math.inf}, "threshold"),
        ({"threshold": "high"}, "threshold"),
        ({"threshold": None}, "threshold"),
        ({"constants": "laplace"}, "lyu-su-li, dwork-roth"),
        ({"constants": None}, "lyu-su-li, dwork-roth"),
    ],
)
@pytest.mark.parametrize("function", [above_threshold, sparse, numeric_sparse])
def test_parameters_without_meaning_are_refused_before_any_draw(monkeypatch, function, changes, named):
    monkeypatch.setattr(sparse_vector, "SYSTEM_BITS", None)
    with pytest.raises(InvalidParameterError, match=named):
        open_stream(function, iter([LOW]), **changes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hits": 0}, "hits"),
        ({"hits": -1}, "hits"),
        ({"hits": 1.0}, "hits"),
        ({"hits": True}, "hits"),
        ({"hits": 10**30}, "fewer hits"),
        ({"hits": 10**5000}, "fewer hits"),
        ({"hits": 10**30, "constants": "dwork-roth"}, "fewer hits"),
        ({"delta": 1e-6}, "constants='dwork-roth'"),
        ({"delta": 0, "constants": "dwork-roth"}, "delta"),
        ({"delta": 1, "constants": "dwork-roth"}, "delta"),
        ({"delta": math.nan, "constants": "dwork-roth"}, "delta"),
        ({"hits": 10**7, "epsilon": 1e-9}, "64 bits. Use a larger epsilon or fewer hits"),
        ({"hits": 10**7, "epsilon": 1e-9, "constants": "dwork-roth"}, "64 bits"),
    ],
)
@pytest.mark.parametrize("function", [sparse, numeric_sparse])
def test_hits_deltas_and_widths_without_meaning_are_refused_before_any_draw(monkeypatch, function, changes, named):
    monkeypatch.setattr(sparse_vector, "SYSTEM_BITS", None)
    with pytest.raises(InvalidParameterError, match=named):
        open_stream(function, iter([LOW]), **changes)


def test_the_widest_noise_that_fits_is_drawn():
    for constants in BOTH:
        found = open_stream(sparse, [0, 0], hits=10**6, epsilon=1e-9, constants=constants)
        assert len(list(found)) == 2


def test_noise_is_drawn_when_the_stream_opens_not_when_it_is_first_read(monkeypatch):
    """A stream draws its threshold when it is opened, so the answers cannot influence it."""
    source = SeededBits(1)
    monkeypatch.setattr(sparse_vector, "SYSTEM_BITS", source)
    open_stream(sparse, iter([LOW]))
    assert source.served > 0


def test_a_stream_cannot_be_copied():
    """Two copies would share the threshold's noise and give twice the hits for one price."""
    vector = SparseVector(scales_of(1, 2), Fraction(0), Fraction(1), SeededBits(1))
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InvalidParameterError, match="copied"):
            duplicate(vector)


def test_threads_get_no_more_hits_than_were_paid():
    vector = SparseVector(scales_of(1, 20), Fraction(0), Fraction(1), SeededBits(1))

    def ask(_) -> bool:
        try:
            return vector.ask(HIGH) is not None
        except InvalidParameterError:
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(ask, range(200))) == 20


STREAMS, ANSWERS = 200, 25


@pytest.mark.slow
@pytest.mark.parametrize("constants", ["lyu-su-li", "dwork-roth"])
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("hits", [1, 3])
def test_whole_streams_stay_within_the_margin_and_the_value_error(monkeypatch, constants, monotone, hits):
    monkeypatch.setattr(sparse_vector, "discrete_laplace", Pool())
    words = {"monotone": monotone, "constants": constants, "delta": None}
    scales = sparse_scales(1, hits, numeric=True, **words)

    def broken(confidence: float, factor: float) -> int:
        """Count streams in which an answer beyond the margin is on the wrong side, or a value is too far off."""
        error = sparse_error(
            answers=ANSWERS, hits=hits, sensitivity=2, epsilon=1, confidence=confidence, numeric=True, **words
        )
        margin, off = error.margin * factor, error.value * factor
        source, count = SeededBits(hits), 0
        for _ in range(STREAMS):
            stream = SparseVector(scales, Fraction(100), Fraction(2), source)
            # If the hits are used up by mistake, the stream is closed, which counts as broken.
            below = [stream.ask(100 - margin) for _ in range(ANSWERS - hits) if stream.hits_left]
            above = [stream.ask(100 + margin) if stream.hits_left else None for _ in range(hits)]
            wrong = any(value is not None for value in below) or any(value is None for value in above)
            count += wrong or any(abs(value - 100 - margin) > off for value in above if value is not None)
        return count

    # At most one in ten streams breaks; more than this bound has probability below 1e-7.
    assert broken(0.9, 1.0) <= stats.binom.isf(1e-7, STREAMS, 0.1)
    # A third of the promised error is not enough, so the promise is not too loose.
    assert broken(0.9, 1 / 3) > stats.binom.isf(1e-7, STREAMS, 0.1)


def test_what_makes_streams_better():
    base = {"answers": 200, "hits": 2, "sensitivity": 1, "epsilon": 1}
    usual = sparse_error(**base)
    assert usual.value is None
    assert sparse_error(**base, monotone=True).margin < usual.margin
    assert sparse_error(**{**base, "epsilon": 2}).margin == pytest.approx(usual.margin / 2)
    assert sparse_error(**base, confidence=0.99).margin > usual.margin
    assert sparse_error(**base, numeric=True).margin > usual.margin
    assert sparse_error(**base, constants="dwork-roth").margin > usual.margin


@pytest.mark.parametrize(
    "bad", [{"answers": 0}, {"hits": 0}, {"confidence": 1}, {"epsilon": -1}, {"sensitivity": 0}, {"delta": 1e-6}]
)
def test_words_without_meaning_are_refused(bad):
    with pytest.raises(InvalidParameterError):
        sparse_error(**{"answers": 10, "hits": 1, "sensitivity": 1, "epsilon": 1, **bad})
