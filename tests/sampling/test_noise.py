"""Discrete Laplace and Gaussian noise have exactly their distributions, on the fast path and on the slow one.

The tests have three layers. The lookup agrees with integer arithmetic on the same random words (statistics would miss a
wrong error bound). The fall-back is forced and agrees. Whole samples fit the enumerated distribution.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from dp_polars._sampling import SYSTEM_BITS, discrete_gaussian, discrete_laplace
from dp_polars._sampling import noise as noise_module
from dp_polars._sampling.bernoulli import LazyUniform
from dp_polars._sampling.distributions import GaussianShape, LaplaceShape, geometric, symmetric
from dp_polars._sampling.noise import SamplingTable
from tests.bits import ScriptedBits, SeededBits
from tests.statistics import chi_square_fits

SHAPES = [
    LaplaceShape(Fraction(1, 3)),
    LaplaceShape(Fraction(7, 2)),
    LaplaceShape(Fraction(1000)),
    GaussianShape(Fraction(1, 2)),
    GaussianShape(Fraction(30)),
    GaussianShape(Fraction(10**10, 7)),
]
EXTREMES = [
    LaplaceShape(Fraction(1, 1000)),
    LaplaceShape(Fraction(10**12)),
    GaussianShape(Fraction(1, 10**6)),
    GaussianShape(Fraction(10**24)),
]


def pmf_of(shape, reach: int) -> dict[int, float]:
    weights = {x: math.exp(-float(shape.exponent(x))) for x in range(-reach, reach + 1)}
    total = sum(weights.values())
    return {x: w / total for x, w in weights.items()}


# ---------------------------------------------------------------- the lookup against integers


@pytest.mark.slow
def test_the_lookup_never_differs_from_integers_on_the_same_words():
    """Try over 100,000 words for all shapes: random ones, both tails, and the neighbours of every boundary."""
    checked = differences = 0
    for number, shape in enumerate(SHAPES + EXTREMES):
        lookup = SamplingTable(shape)
        generator = np.random.default_rng(number)
        words = generator.integers(0, 1 << 64, 6000, dtype=np.uint64)
        tails = generator.integers(0, 1 << 40, 1000, dtype=np.uint64)
        boundaries = np.minimum(lookup._boundaries * 2.0**64, 2.0**64 - 2**12).astype(np.uint64)
        near = np.concatenate([boundaries + np.uint64(2**11), boundaries - np.uint64(2**11)])
        near = np.concatenate([near, near ^ generator.integers(0, 1 << 26, len(near), dtype=np.uint64)])
        full = np.concatenate([words, tails, ~tails, near])
        top = (full >> np.uint64(48)).astype(np.uint16)
        crossed = lookup._cells[top] < 0
        script = ScriptedBits(full[crossed] << np.uint64(16))
        found, _ = lookup.buckets(top, script)
        # If 16 bits decided, every extension must give that bucket; the 48 bits here are one of them.
        for value, bucket in zip(full.tolist(), found.tolist(), strict=True):
            differences += lookup.exact_bucket(LazyUniform(value, 64, SeededBits(1))) != bucket
            checked += 1
    assert checked > 100_000
    assert differences == 0


def test_a_cell_decides_by_16_bits_only_where_both_its_ends_agree():
    for shape in SHAPES:
        lookup = SamplingTable(shape)
        for cell in range(0, 1 << 16, 997):
            if lookup._cells[cell] >= 0:
                ends = (cell << 48, (cell + 1 << 48) - 1)
                buckets = {lookup.exact_bucket(LazyUniform(end, 64, SeededBits(1))) for end in ends}
                assert buckets == {int(lookup._cells[cell])}


def test_the_forced_fall_back_gives_the_same_buckets(monkeypatch):
    generator = np.random.default_rng(1)
    full = generator.integers(0, 1 << 64, 300, dtype=np.uint64)
    top = (full >> np.uint64(48)).astype(np.uint16)
    for shape in SHAPES:
        usual = SamplingTable(shape)
        expected, _ = usual.buckets(top, ScriptedBits(full[usual._cells[top] < 0] << np.uint64(16)))
        monkeypatch.setattr(noise_module, "_MARGIN", 2.0)  # every number is now too close to a boundary
        forced = SamplingTable(shape)
        monkeypatch.setattr(forced, "_cells", np.full(1 << 16, -1, np.int16))
        by_integers, crossed = forced.buckets(top, ScriptedBits(full << np.uint64(16)))
        monkeypatch.undo()
        assert len(crossed) == len(top)
        assert (expected == by_integers).all()


@pytest.mark.slow
def test_boundaries_are_the_cumulative_weights():
    """Compute the exact boundaries from the definition: bucket sizes times largest weights, and geometric tails."""
    for shape in SHAPES:
        lookup = SamplingTable(shape)
        width = 1 << lookup.shift
        envelope = [min((h * width, h * width + width - 1), key=abs) for h in range(-512, 512)]
        weights = [math.exp(-float(shape.exponent(x))) for x in envelope]
        tails = [
            math.exp(-float(shape.exponent(start))) / -math.expm1(-float(shape.slope(start))) / width
            for start in (512 * width + 1, 512 * width)
        ]
        running = np.cumsum([tails[0], *weights, tails[1]])
        lows, highs = lookup._cumulative(200)
        exact = np.array([low / highs[-1] for low in lows])
        assert np.abs(exact - running / running[-1]).max() < 1e-12
        assert all(0 <= high - low <= 1 << 40 for low, high in zip(lows, highs, strict=True))


# ---------------------------------------------------------------- whole samples against the definition


@pytest.mark.slow
@pytest.mark.parametrize(
    "scale",
    [Fraction(1, 1000), Fraction(1, 2), Fraction(1), Fraction(10, 3), Fraction(33), Fraction(70)],
)
def test_laplace_samples_fit_the_enumerated_distribution(scale):
    shape = LaplaceShape(scale)
    samples = discrete_laplace(scale, 400_000, SeededBits(1))
    assert samples.dtype == np.int64
    assert chi_square_fits(samples, pmf_of(shape, int(45 * scale) + 2))


@pytest.mark.parametrize(
    "sigma",
    [Fraction(1, 1000), Fraction(1, 2), Fraction(1), Fraction(10, 3), Fraction(33), Fraction(70)],
)
def test_gaussian_samples_fit_the_enumerated_distribution(sigma):
    shape = GaussianShape(sigma**2)
    samples = discrete_gaussian(sigma**2, 400_000, SeededBits(2))
    assert chi_square_fits(samples, pmf_of(shape, int(12 * sigma) + 2))


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES[:2] + SHAPES[3:5], ids=str)
def test_the_scalar_reference_fits_too(shape):
    source = SeededBits(3)
    samples = [symmetric(shape, source) for _ in range(6000)]
    assert chi_square_fits(samples, pmf_of(shape, 300))


@pytest.mark.slow
@pytest.mark.parametrize("scale", [10**3, 10**6, 10**9, 10**12])
def test_wide_noise_has_the_right_quantiles_and_no_favoured_residues(scale):
    n = 200_000
    laplace = discrete_laplace(Fraction(scale), n, SeededBits(4))
    gaussian = discrete_gaussian(Fraction(scale) ** 2, n, SeededBits(5))
    # Twenty equally likely parts, by the continuous quantile function (the discretisation is below 1e-3 / scale).
    from scipy import stats

    for samples, law in (
        (laplace, stats.laplace(scale=scale)),
        (gaussian, stats.norm(scale=scale)),
    ):
        part = np.clip((law.cdf(samples + 0.5) * 20).astype(int), 0, 19)
        if scale >= 10**6:
            assert chi_square_fits(part, dict.fromkeys(range(20), 1 / 20))
        assert chi_square_fits(samples % 8, dict.fromkeys(range(8), 1 / 8))
        assert chi_square_fits((samples < 0).astype(int), {0: 0.5 + law.pdf(0) / 2, 1: 0.5 - law.pdf(0) / 2})


@pytest.mark.slow
def test_rejection_within_a_bucket_follows_the_density():
    """Test each point of the middle buckets at scale 1000, where the width of the bucket matters most."""
    shape = LaplaceShape(Fraction(1000))
    samples = discrete_laplace(shape.scale, 2_000_000, SeededBits(6))
    pmf = pmf_of(shape, 45_000)
    assert chi_square_fits(samples[np.abs(samples) < 200], _conditioned(pmf, 200))


def _conditioned(pmf, limit):
    inside = {x: p for x, p in pmf.items() if abs(x) < limit}
    total = sum(inside.values())
    return {x: p / total for x, p in inside.items()}


# ---------------------------------------------------------------- tails


@pytest.mark.parametrize("left", [True, False])
def test_a_word_in_the_tail_goes_on_beyond_the_buckets(left):
    lookup = SamplingTable(LaplaceShape(Fraction(31)))
    end, rest = (0, 0) if left else (0xFFFF, (1 << 64) - 1)
    source = ScriptedBits([end] * 50, np.full(50, rest, np.uint64))
    samples = lookup._propose(50, source)
    assert len(samples) == 50
    assert (samples < -512).all() if left else (samples >= 512).all()


@pytest.mark.slow
def test_tails_have_the_conditional_distribution(monkeypatch):
    """With two buckets on each side most samples are tail samples, and must still fit."""
    monkeypatch.setattr(noise_module, "_SIDE", 2)
    for shape in (LaplaceShape(Fraction(3)), GaussianShape(Fraction(9))):
        samples = SamplingTable(shape).draw(8000, SeededBits(7))
        assert (np.abs(samples) > 2).mean() > 0.3
        assert chi_square_fits(samples, pmf_of(shape, 150))


def test_a_sample_beyond_64_bits_becomes_a_python_integer():
    shape = LaplaceShape(Fraction(1 << 52))
    lookup = SamplingTable(shape)
    # The last 16-bit word and then 48 ones give the right tail. Its geometric part reads 2200 zero bits.
    zeros = [[0] for _ in range(60)]
    source = ScriptedBits([0xFFFF], [(1 << 64) - 1], [0], [0], [0], *zeros)
    samples = lookup._propose(1, source)
    assert samples.dtype == object
    assert samples[0] > 1 << 63


# ---------------------------------------------------------------- the geometric distribution


@pytest.mark.parametrize("scale", [Fraction(1, 1000), Fraction(1, 3), Fraction(1), Fraction(1000), Fraction(10**12)])
def test_the_geometric_sample_satisfies_its_definition(scale):
    """exp(-(g+1)/scale) <= U < exp(-g/scale), for the very bits that were drawn, at any scale."""
    for seed in range(40):
        word = int(np.random.default_rng(seed).integers(1, 1 << 64, dtype=np.uint64)) >> (seed % 50)
        tail_bits = SeededBits(seed)
        g = geometric(scale, ScriptedBits([word], seed=seed))
        uniform = LazyUniform(word, 64, tail_bits)
        assert uniform.below_exp(g / scale)
        assert not uniform.below_exp((g + 1) / scale)


def test_a_uniform_number_of_zero_bits_reads_on():
    g = geometric(Fraction(1), ScriptedBits([0], [0], [1 << 63]))
    assert g == math.floor(129 * math.log(2))


# ---------------------------------------------------------------- sizes, sources, limits


@pytest.mark.parametrize("size", [0, 1, 4, 5, 1000, 100_000])
def test_exactly_as_many_samples_as_asked(size):
    assert len(discrete_laplace(Fraction(50), size, SeededBits(1))) == size
    assert len(discrete_gaussian(Fraction(2500), size, SeededBits(1))) == size


@pytest.mark.slow
def test_few_and_many_samples_have_the_same_law():
    source = SeededBits(8)
    few = np.concatenate([discrete_laplace(Fraction(2), 2, source) for _ in range(3000)])
    assert chi_square_fits(few, pmf_of(LaplaceShape(Fraction(2)), 100))


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction(2**52 + 1)])
def test_scales_without_meaning_are_refused(scale):
    with pytest.raises(ValueError, match="scale"):
        discrete_laplace(scale, 1, SeededBits(1))
    with pytest.raises(ValueError, match="scale"):
        discrete_gaussian(scale * abs(scale), 1, SeededBits(1))


def test_the_systems_bits_differ_each_time():
    assert (
        discrete_laplace(Fraction(10**6), 50, SYSTEM_BITS) != discrete_laplace(Fraction(10**6), 50, SYSTEM_BITS)
    ).any()
    assert len(set(SYSTEM_BITS.words(1000, np.uint64).tolist())) == 1000
