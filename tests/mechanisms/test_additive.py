"""Laplace and Gaussian noise: the scale has its closed form, the grid is accounted for, and no sum wraps around.

The privacy of floats rests on one inequality, checked here in exact fractions: two inputs within the sensitivity lie,
on the grid, within the sensitivity that the noise was calibrated to. The rest is the privacy of noise on whole numbers,
which is checked by enumeration.
"""

import contextlib
import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dp_polars._sampling import discrete_gaussian, discrete_laplace
from dp_polars.errors import DPError, InvalidParameterError
from dp_polars.mechanisms import additive, gaussian, laplace
from dp_polars.mechanisms._grid import add_saturating, from_grid, sqrt_above, to_grid
from dp_polars.mechanisms._numeric_input import read_numbers
from dp_polars.theory import approximate_to_zcdp, pure_to_zcdp
from tests.bits import SeededBits
from tests.statistics import binomial_fits, chi_square_fits

INT64 = np.iinfo(np.int64)
REPEATABLE = settings(derandomize=True, deadline=None, max_examples=120)


class NoBits:
    def words(self, count, dtype):
        raise AssertionError("a bit was drawn")


class Watch:
    """What a call passed to its sampler and its grid, and what they returned."""

    def __init__(self):
        self.scale = self.noise = self.exponent = self.points = self.size = None

    @property
    def step(self):
        return Fraction(2) ** self.exponent


@contextlib.contextmanager
def watched(noise=None, seed=None):
    """Replace the samplers by given noise (zeros by default), or with a seed only record their calls."""
    watch = Watch()

    def sampler(real):
        def draw(scale, size, source):
            watch.scale, watch.size = scale, size
            if seed is not None:
                watch.noise = real(scale, size, SeededBits(seed))
            else:
                watch.noise = np.zeros(size, np.int64) if noise is None else np.asarray(noise)
            return watch.noise

        return draw

    def grid(floats, exponent):
        watch.exponent, watch.points = exponent, to_grid(floats, exponent)
        return watch.points

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(additive, "SYSTEM_BITS", NoBits())
        patch.setattr(additive, "discrete_laplace", sampler(discrete_laplace))
        patch.setattr(additive, "discrete_gaussian", sampler(discrete_gaussian))
        patch.setattr(additive, "to_grid", grid)
        yield watch


# ---------------------------------------------------------------- whole numbers: the closed forms

WHOLE = {
    "Python integer": 5,
    "large Python integer": 10**30,
    "numpy integer": np.int64(5),
    "one value": np.array([5]),
    "array": np.array([5, 6, 7, 8]),
    "small integers": np.array([5, 6], np.int8),
    "large integers": np.array([2**64 - 1, 0], np.uint64),
    "table": np.array([[5, 6], [7, 8]]),
    "no dimension": np.array(5),
    "empty": np.array([], np.int64),
    "Series": pl.Series("n", [5, 6]),
    "list": [5, 6],
}
# (as written, as meant): 0.3 / 0.1 is 3, though not in floats.
WRITTEN = [
    (1, Fraction(1)),
    (0.1, Fraction(1, 10)),
    (0.3, Fraction(3, 10)),
    (Decimal("0.7"), Fraction(7, 10)),
    (Fraction(1, 3), Fraction(1, 3)),
    (np.float64(2.5), Fraction(5, 2)),
    (17, Fraction(17)),
]


@pytest.mark.parametrize("kind", WHOLE)
def test_laplace_scale_is_sensitivity_over_epsilon(kind):
    for (sensitivity, width), (epsilon, loss) in itertools.product(WRITTEN, WRITTEN):
        with watched() as watch:
            laplace(WHOLE[kind], sensitivity=sensitivity, epsilon=epsilon)
        assert watch.scale == width / loss
        assert watch.exponent is None


@pytest.mark.parametrize("kind", WHOLE)
def test_gaussian_variance_is_squared_sensitivity_over_two_rho(kind):
    for (sensitivity, width), (rho, spend) in itertools.product(WRITTEN, WRITTEN):
        with watched() as watch:
            gaussian(WHOLE[kind], sensitivity=sensitivity, rho=rho)
        assert watch.scale == width * width / (2 * spend)
        assert watch.exponent is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("calibration", ["exact", "zcdp", "classic"])
def test_gaussian_variance_from_epsilon_and_delta(kind, calibration):
    values = WHOLE[kind]
    for sensitivity, epsilon, delta in [(1, 0.5, 1e-6), (3, 1, 1e-9), (1.2, 0.01, 1e-5)]:
        with watched() as watch:
            gaussian(values, sensitivity=sensitivity, epsilon=epsilon, delta=delta, calibration=calibration)
        width = Fraction(str(sensitivity))
        by_rho = width**2 / (2 * Fraction(approximate_to_zcdp(epsilon, delta)))
        textbook = 2 * math.log(1.25 / delta) * (sensitivity / epsilon) ** 2
        if calibration == "classic":
            assert textbook <= watch.scale <= textbook * (1 + 1e-8)
        elif calibration == "zcdp" or (np.size(values) != 1 and sensitivity >= 2):
            assert watch.scale == by_rho
        else:  # solved for itself: see test_calibration
            assert 0.5 * by_rho < watch.scale < by_rho


def test_as_many_samples_as_values():
    for values in WHOLE.values():
        with watched() as watch:
            laplace(values, sensitivity=1, epsilon=1)
        assert watch.size == np.size(values)


# ---------------------------------------------------------------- floats: the grid and its sensitivity

spends = st.floats(-4, 4).map(lambda x: 10.0**x)
widths = st.floats(-18, 18).map(lambda x: min(max(10.0**x, 1e-18), 1e18))
any_float = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308, 2.0**62]
)


def exponent_of(sensitivity, count, **spend):
    """Return the grid that a call uses, observed with zeros instead of data."""
    with watched() as watch:
        (laplace if "epsilon" in spend else gaussian)(np.zeros(count), sensitivity=sensitivity, **spend)
    return watch.exponent


def neighbour(values, wishes, budget, power):
    """Move each value towards its target as long as the exact sum of |change|**power stays within budget**power."""
    left = budget**power
    moved = []
    for value, wish in zip(values, wishes, strict=True):
        for target in (value + wish * float(budget), math.nextafter(value, math.copysign(math.inf, wish)), value):
            cost = abs(Fraction(target) - Fraction(value)) ** power if math.isfinite(target) else left + 1
            if cost <= left:
                left -= cost
                moved.append(target)
                break
    return moved


@st.composite
def neighbours(draw, power):
    """Yield (sensitivity, spend, a, b) with a and b within the sensitivity, often on both sides of a rounding."""
    sensitivity, spend, count = draw(widths), draw(spends), draw(st.integers(1, 50))
    exponent = exponent_of(sensitivity, count, **({"epsilon": spend} if power == 1 else {"rho": spend}))
    halves = st.integers(-9, 9).map(lambda k: math.nextafter(math.ldexp(k + 0.5, exponent), -math.inf))
    scaled = st.floats(-10, 10).map(lambda x: x * sensitivity)
    values = draw(st.lists(any_float | halves | scaled, min_size=count, max_size=count))
    share = 1 / count if draw(st.booleans()) else 1.0
    wishes = draw(st.lists(st.floats(-1, 1).map(lambda x: x * share), min_size=count, max_size=count))
    return sensitivity, spend, values, neighbour(values, wishes, Fraction(repr(sensitivity)), power)


@pytest.mark.slow
@REPEATABLE
@given(neighbours(power=1))
def test_floats_within_the_sensitivity_stay_within_it_on_the_grid(case):
    sensitivity, epsilon, a, b = case
    points = []
    for values in (a, b):
        with watched() as watch:
            laplace(np.array(values), sensitivity=sensitivity, epsilon=epsilon)
        points.append([int(p) for p in watch.points])
    calibrated_to = watch.scale * Fraction(repr(epsilon))
    assert sum(abs(p - q) for p, q in zip(*points, strict=True)) <= calibrated_to


@pytest.mark.slow
@REPEATABLE
@given(neighbours(power=2))
def test_floats_within_the_second_norm_stay_within_it_on_the_grid(case):
    sensitivity, rho, a, b = case
    points = []
    for values in (a, b):
        with watched() as watch:
            gaussian(np.array(values), sensitivity=sensitivity, rho=rho)
        points.append([int(p) for p in watch.points])
    calibrated_to_squared = watch.scale * 2 * Fraction(repr(rho))
    assert sum((p - q) ** 2 for p, q in zip(*points, strict=True)) <= calibrated_to_squared


@pytest.mark.parametrize("count", [1, 2, 7, 50])
def test_the_rounding_can_cost_one_step_per_value_so_less_would_not_do(count):
    """For values just below and above the middle of two points, rounding adds a whole step to each change."""
    step = Fraction(1, 2**16)
    whole = 2**16 + 3
    below = [math.nextafter(math.ldexp(k + 0.5, -16), -math.inf) for k in range(count)]
    above = [math.nextafter(math.ldexp(k + 0.5 + whole, -16), math.inf) for k in range(count)]
    sensitivity = sum(abs(Fraction(a) - Fraction(b)) for a, b in zip(below, above, strict=True))
    points = []
    for values in (below, above):
        with watched() as watch:
            laplace(np.array(values), sensitivity=sensitivity, epsilon=1)
        points.append(watch.points)
    assert watch.step == step
    distance = int(abs(points[0] - points[1]).sum())
    assert distance == count * (whole + 1)
    assert 0 <= watch.scale - distance < Fraction(1, 1000)


@pytest.mark.parametrize("count", [1, 2, 50])
def test_float_scales_are_the_closed_forms_in_steps_of_the_grid(count):
    values = np.linspace(0, 1, count)
    for (sensitivity, width), (spend, exactly) in itertools.product(WRITTEN, WRITTEN):
        with watched() as watch:
            laplace(values, sensitivity=sensitivity, epsilon=spend)
        assert watch.scale == (width / watch.step + count) / exactly
        with watched() as watch:
            gaussian(values, sensitivity=sensitivity, rho=spend)
        assert watch.scale == (width / watch.step + sqrt_above(count)) ** 2 / (2 * exactly)


@pytest.mark.parametrize("calibration", ["exact", "zcdp", "classic"])
def test_several_floats_go_through_rho_and_one_is_solved_for_itself(calibration):
    for sensitivity, epsilon, delta in [(1, 0.5, 1e-6), (300, 1, 1e-9), (0.001, 0.01, 1e-5)]:
        width = Fraction(str(sensitivity))
        for count in (1, 2, 30):
            with watched() as watch:
                gaussian(
                    np.zeros(count), sensitivity=sensitivity, epsilon=epsilon, delta=delta, calibration=calibration
                )
            reach = width / watch.step + sqrt_above(count)
            by_rho = reach**2 / (2 * Fraction(approximate_to_zcdp(epsilon, delta)))
            if calibration == "classic":
                textbook = 2 * math.log(1.25 / delta) * float(reach / Fraction(str(epsilon))) ** 2
                assert textbook * (1 - 1e-12) <= watch.scale <= textbook * (1 + 1e-8)
            elif calibration == "zcdp" or count > 1:
                assert watch.scale == by_rho
            else:
                assert 0.5 * by_rho < watch.scale < by_rho


def test_the_root_that_stands_for_the_second_norm_of_the_rounding_is_rounded_up():
    for count in [*range(2000), 10**9 + 7, 10**18 - 1]:
        root = sqrt_above(count)
        assert root * root >= count
        assert root * root <= count + Fraction(math.isqrt(count) + 1, 2**30)


@pytest.mark.slow
@REPEATABLE
@given(st.floats(-3, 6), st.floats(-2, 1))
def test_what_the_grid_adds_to_the_noise_is_below_a_ten_thousandth(log_sensitivity, log_spend):
    sensitivity, spend = 10.0**log_sensitivity, 10.0**log_spend
    width, exactly = Fraction(repr(sensitivity)), Fraction(repr(spend))
    for values in (1.5, np.zeros(1), np.zeros(50)):
        with watched() as watch:
            laplace(values, sensitivity=sensitivity, epsilon=spend)
        assert 1 < watch.scale * watch.step / (width / exactly) < 1 + Fraction(1, 10**4)
        # The step is far smaller than the noise, so the result looks continuous.
        assert watch.scale > 1000
        with watched() as watch:
            gaussian(values, sensitivity=sensitivity, rho=spend)
        assert 1 < watch.scale * watch.step**2 / (width**2 / (2 * exactly)) < (1 + Fraction(1, 10**4)) ** 2
        assert watch.scale > 1000**2


@pytest.mark.slow
@REPEATABLE
@given(st.lists(any_float, min_size=3, max_size=3))
def test_the_step_depends_on_public_numbers_only(values):
    seen = set()
    for data in (values, [0.0, 0.0, 0.0]):
        for kind in (np.array(data), pl.Series("x", data, dtype=pl.Float64), np.array([data])):
            with watched() as watch:
                laplace(kind, sensitivity=0.7, epsilon=0.3)
            seen.add(("laplace", watch.exponent, watch.scale))
            with watched() as watch:
                gaussian(kind, sensitivity=0.7, epsilon=0.3, delta=1e-6)
            seen.add(("gaussian", watch.exponent, watch.scale))
    assert len(seen) == 2


@REPEATABLE
@given(widths, st.floats(-9, 6), st.floats(-18, 18))
def test_no_legal_parameter_is_too_wide_or_too_narrow_for_a_float(sensitivity, log_epsilon, log_rho):
    with watched() as watch:
        laplace(1.5, sensitivity=sensitivity, epsilon=min(max(10.0**log_epsilon, 1e-9), 1e6))
    assert 0 < watch.scale <= 2**52
    with watched() as watch:
        gaussian(1.5, sensitivity=sensitivity, rho=min(max(10.0**log_rho, 1e-18), 1e18))
    assert 0 < watch.scale <= 2**104


# ---------------------------------------------------------------- onto the grid and back


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=250)
@given(st.lists(any_float, min_size=1, max_size=4), st.integers(-150, 150))
def test_a_grid_point_is_the_nearest_one_and_ties_go_to_even(values, exponent):
    step = Fraction(2) ** exponent
    together = to_grid(np.array(values), exponent)
    for value, point in zip(values, together, strict=True):
        point = int(point)
        off = abs(Fraction(value) - point * step)
        assert off <= step / 2
        assert off < step / 2 or point % 2 == 0
        # The point is the same, alone or beside a value that needs large integers.
        assert int(to_grid(np.array([value]), exponent)[0]) == point


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(st.integers(INT64.min, INT64.max), min_size=1, max_size=4), st.integers(-150, 150))
def test_the_way_back_gives_the_nearest_float_which_is_a_grid_point(points, exponent):
    step = Fraction(2) ** exponent
    expected = [float(point * step) for point in points]
    assert from_grid(np.array(points), exponent).tolist() == expected
    assert from_grid(np.array(points, dtype=object), exponent).tolist() == expected
    assert all((Fraction(x) / step).denominator == 1 for x in expected)


def test_a_grid_point_beyond_all_floats_becomes_infinity_and_no_error():
    assert from_grid(np.array([2**2000, -(2**2000)], dtype=object), 0).tolist() == [math.inf, -math.inf]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [laplace, gaussian])
@settings(derandomize=True, deadline=None, max_examples=60)
@given(values=st.lists(any_float, min_size=1, max_size=8), seed=st.integers(0, 10**6))
def test_a_noisy_float_is_the_grid_point_plus_the_noise_and_nothing_else(mechanism, values, seed):
    spend = {"epsilon": 0.5} if mechanism is laplace else {"rho": 0.5}
    with watched(seed=seed) as watch:
        noisy = mechanism(np.array(values), sensitivity=3, **spend)
    for point, noise, answer in zip(watch.points, watch.noise, noisy, strict=True):
        assert answer == float((int(point) + int(noise)) * watch.step)
        assert (Fraction(float(answer)) / watch.step).denominator == 1


def test_a_noisy_float_does_not_show_whether_others_were_large():
    """Beside a huge value, sums are Python integers. A sum must not be cut in one case and kept in the other."""
    noise = [INT64.max, INT64.min]
    answers = []
    for companion in (0.0, 1e300):
        with watched(noise=noise) as watch:
            value = float(2**61 * Fraction(2) ** exponent_of(1, 2, epsilon=1))
        with watched(noise=noise) as watch:
            answers.append(laplace(np.array([value, companion]), sensitivity=1, epsilon=1)[0])
        assert int(watch.points[0]) == 2**61
    assert answers[0] == answers[1] == float((2**61 + INT64.max) * watch.step)


# ---------------------------------------------------------------- sums that saturate

whole64 = st.integers(INT64.min, INT64.max) | st.sampled_from([INT64.min, INT64.max, 0, -1, 1])


def clamped(number):
    return max(INT64.min, min(INT64.max, number))


@pytest.mark.slow
@REPEATABLE
@given(st.lists(st.tuples(whole64, whole64), min_size=1, max_size=6))
def test_int64_saturates_and_never_wraps(pairs):
    values, noise = (list(column) for column in zip(*pairs, strict=True))
    for kind in (np.array(values), pl.Series("n", values, dtype=pl.Int64)):
        for mechanism, spend in ((laplace, {"epsilon": 1}), (gaussian, {"rho": 1})):
            with watched(noise=noise):
                noisy = mechanism(kind, sensitivity=1, **spend)
            assert noisy.dtype == (np.int64 if isinstance(kind, np.ndarray) else pl.Int64)
            assert (
                noisy.to_list()
                if isinstance(noisy, pl.Series)
                else noisy.tolist() == [clamped(v + n) for v, n in pairs]
            )


@pytest.mark.slow
@REPEATABLE
@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), whole64), min_size=1, max_size=6))
def test_uint64_beyond_int64_saturates_and_never_wraps(pairs):
    values, noise = (list(column) for column in zip(*pairs, strict=True))
    for kind in (np.array(values, np.uint64), pl.Series("n", values, dtype=pl.UInt64)):
        with watched(noise=noise):
            noisy = laplace(kind, sensitivity=1, epsilon=1)
        assert noisy.dtype in (np.int64, pl.Int64)
        assert list(noisy) == [clamped(v + n) for v, n in pairs]


@REPEATABLE
@given(st.integers(-(10**60), 10**60), st.integers(-(2**80), 2**80))
def test_a_python_integer_never_saturates(value, noise):
    with watched(noise=np.array([noise], dtype=object)):
        noisy = laplace(value, sensitivity=1, epsilon=1)
    assert type(noisy) is int
    assert noisy == value + noise


def test_noise_beyond_64_bits_saturates_too():
    noise = np.array([2**70, -(2**70), 3], dtype=object)
    with watched(noise=noise):
        assert laplace(np.array([5, 5, 5]), sensitivity=1, epsilon=1).tolist() == [INT64.max, INT64.min, 8]
    with watched(noise=noise):
        assert laplace(pl.Series("n", [5, 5, 5]), sensitivity=1, epsilon=1).to_list() == [INT64.max, INT64.min, 8]


@pytest.mark.slow
@REPEATABLE
@given(st.lists(st.tuples(whole64, whole64), min_size=1, max_size=6))
def test_sums_without_bounds_keep_their_size(pairs):
    values, noise = (np.array(column) for column in zip(*pairs, strict=True))
    assert add_saturating(values, noise, bounded=False).tolist() == [v + n for v, n in pairs]


# ---------------------------------------------------------------- kinds and shapes


@pytest.mark.parametrize("mechanism", [laplace, gaussian])
def test_every_kind_of_value_comes_back_as_its_kind(mechanism, monkeypatch):
    monkeypatch.setattr(additive, "SYSTEM_BITS", SeededBits(1))
    spend = {"epsilon": 1} if mechanism is laplace else {"epsilon": 1, "delta": 1e-6}

    def noisy(values):
        return mechanism(values, sensitivity=1, **spend)

    assert type(noisy(5)) is int
    assert type(noisy(np.uint8(5))) is int
    assert type(noisy(5.0)) is float
    assert type(noisy(np.float32(5))) is float
    for dtype, result in ((np.int16, np.int64), (np.uint64, np.int64), (np.float32, np.float64)):
        for shape in ((), (0,), (1,), (2, 3), (0, 3), (40,)):
            answer = noisy(np.ones(shape, dtype))
            assert type(answer) is np.ndarray
            assert answer.shape == shape
            assert answer.dtype == result
    for dtype, result in ((pl.Int8, pl.Int64), (pl.UInt64, pl.Int64), (pl.Float32, pl.Float64)):
        for length in (0, 1, 40):
            answer = noisy(pl.Series("clicks", [1] * length, dtype=dtype))
            assert answer.name == "clicks"
            assert answer.dtype == result
            assert len(answer) == length


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.float64])
def test_every_cell_has_noise_of_its_own(dtype, monkeypatch):
    """Two of nine samples of scale 1e9 agree with probability below 1e-7, and the bits are fixed."""
    monkeypatch.setattr(additive, "SYSTEM_BITS", SeededBits(2))
    large = dtype == np.uint64  # at 2**63 every second answer saturates, and the others still differ
    cells = np.full((3, 3), 2**63 if large else 0, dtype)
    for table in (cells, cells.T, np.matrix(cells)):
        noisy = laplace(table, sensitivity=10**9, epsilon=1)
        assert len(np.unique(noisy)) >= (3 if large else 9)


def test_the_same_bits_give_the_same_noise_whatever_the_kind():
    values = [3, 1, 4, 1, 5, 9]
    spend = (Fraction(1), Fraction(1, 2))
    kinds = [np.array(values), np.array(values, np.uint8), pl.Series("n", values), np.array([values]), values]
    answers = {tuple(np.ravel(additive.add_laplace(read_numbers(k), *spend, SeededBits(3)))) for k in kinds}
    assert len(answers) == 1
    assert answers != {tuple(values)}


def test_the_values_handed_in_stay_as_they_were(monkeypatch):
    monkeypatch.setattr(additive, "SYSTEM_BITS", SeededBits(3))
    for values in (np.array([1, 2, 3]), np.array([1.0, 2.0, 3.0]), np.array([2**64 - 1, 1, 2], np.uint64)):
        before = values.copy()
        laplace(values, sensitivity=1, epsilon=0.001)
        gaussian(values, sensitivity=1, rho=0.001)
        assert (values == before).all()


# ---------------------------------------------------------------- whole answers against the law (fixed bits)


def laplace_pmf(scale, reach):
    """Return P(x) = (1 - q) / (1 + q) * q**|x| with q = exp(-1/scale)."""
    q = math.exp(-1 / scale)
    return {x: (1 - q) / (1 + q) * q ** abs(x) for x in range(-reach, reach + 1)}


def test_noisy_whole_numbers_fit_the_discrete_laplace():
    noisy = additive.add_laplace(read_numbers(np.full(200_000, 7)), Fraction(2), Fraction(1, 2), SeededBits(4))
    assert chi_square_fits(noisy - 7, laplace_pmf(4.0, 160))


def test_noisy_whole_numbers_fit_the_discrete_gaussian():
    noisy = additive.add_gaussian(
        read_numbers(np.full(200_000, -7)), Fraction(2), lambda width, _: width**2 / 2, SeededBits(5)
    )
    weights = {x: math.exp(-x * x / 4) for x in range(-40, 41)}  # sensitivity 2, rho 1: variance 2
    total = sum(weights.values())
    assert chi_square_fits(noisy + 7, {x: w / total for x, w in weights.items()})


@pytest.mark.slow
@pytest.mark.parametrize("single", [True, False])
def test_noisy_floats_fit_the_continuous_laws(single, monkeypatch):
    """Use forty equally likely parts. The grid shifts their edges by less than 1e-4 of the noise."""
    monkeypatch.setattr(additive, "SYSTEM_BITS", SeededBits(6 + single))
    n = 800 if single else 100_000
    values = np.linspace(-1e6, 1e6, n)
    for mechanism, spend, law in (
        (laplace, {"epsilon": 0.2}, stats.laplace(scale=5)),
        (gaussian, {"rho": 0.02}, stats.norm(scale=5)),
    ):
        if single:
            noise = np.array([mechanism(x, sensitivity=1, **spend) - x for x in values.tolist()])
        else:
            noise = mechanism(values, sensitivity=1, **spend) - values
        part = np.clip((law.cdf(noise) * 40).astype(int), 0, 39)
        assert chi_square_fits(part, dict.fromkeys(range(40), 1 / 40))
        assert binomial_fits(int((noise < 0).sum()), n, 0.5)


# ---------------------------------------------------------------- the privacy of Laplace noise, by enumeration


def scale_used(sensitivity, epsilon, count=1):
    with watched() as watch:
        laplace(np.zeros(count, np.int64), sensitivity=sensitivity, epsilon=epsilon)
    return float(watch.scale)


def log_pmf(scale, x):
    q = math.exp(-1 / scale)
    return np.log((1 - q) / (1 + q)) - np.abs(x) / scale


@pytest.mark.slow
@pytest.mark.parametrize("sensitivity", [1, 2, 5, 31, 100])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1, 2.5, 20])
def test_the_largest_privacy_loss_of_a_laplace_answer_is_exactly_epsilon(sensitivity, epsilon):
    scale = scale_used(sensitivity, epsilon)
    x = np.arange(-int(scale) - 200, int(scale) + 201)  # beyond, the loss stays the same
    losses = [np.abs(log_pmf(scale, x) - log_pmf(scale, x + d)).max() for d in range(1, sensitivity + 1)]
    assert max(losses) == pytest.approx(epsilon, abs=1e-9, rel=1e-9)
    assert np.argmax(losses) == sensitivity - 1


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 1, 4])
@pytest.mark.parametrize("sensitivity", [1, 2, 3])
def test_several_laplace_answers_share_the_sensitivity(sensitivity, epsilon):
    """Try every whole shift of three coordinates whose L1 norm is within the sensitivity."""
    scale = scale_used(sensitivity, epsilon, count=3)
    x = np.arange(-30, 31)
    largest = 0.0
    for shift in itertools.product(range(-sensitivity, sensitivity + 1), repeat=3):
        if sum(map(abs, shift)) > sensitivity:
            continue
        losses = [log_pmf(scale, x) - log_pmf(scale, x + d) for d in shift]
        joint = losses[0][:, None, None] + losses[1][None, :, None] + losses[2][None, None, :]
        largest = max(largest, np.abs(joint).max())
    assert largest == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1, 3, 10])
def test_laplace_at_sensitivity_one_is_randomized_response(epsilon):
    """Its privacy loss takes two values with the probabilities of a truthful and a false binary answer.

    So its rho is that of randomized response, epsilon * tanh(epsilon / 2). The rho of the continuous Laplace,
    epsilon + exp(-epsilon) - 1 near order 1, is smaller and would be wrong.
    """
    scale = scale_used(1, epsilon)
    x = np.arange(-int(60 * scale) - 60, int(60 * scale) + 61)
    probabilities = np.exp(log_pmf(scale, x))
    loss = log_pmf(scale, x) - log_pmf(scale, x - 1)
    assert np.allclose(np.abs(loss), epsilon, rtol=1e-9, atol=0)
    truthful = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert probabilities[loss > 0].sum() == pytest.approx(truthful, rel=1e-12)
    assert probabilities[loss < 0].sum() == pytest.approx(1 - truthful, rel=1e-12, abs=1e-15)

    mean = float((probabilities * loss).sum())  # the Renyi divergence of order 1
    assert mean == pytest.approx(epsilon * math.tanh(epsilon / 2), rel=1e-9)
    assert mean <= pure_to_zcdp(epsilon) <= mean * (1 + 1e-9)
    assert epsilon + math.exp(-epsilon) - 1 < mean * 0.999
    for order in (1.001, 1.5, 2, 5, 50):
        exponents = np.log(probabilities) + (order - 1) * loss
        top = exponents.max()
        renyi = (top + math.log(np.exp(exponents - top).sum())) / (order - 1)
        assert renyi <= order * pure_to_zcdp(epsilon) + 1e-12


# ---------------------------------------------------------------- invalid parameters

BAD_NUMBERS = [
    0, -1, -0.5, math.nan, math.inf, -math.inf, 1e-30, 1e30, 10**400, True, np.True_, "1", None, [1], 1j,
    np.array([1.0]), np.float64("nan"), Decimal("NaN"), Decimal("Infinity"), object(),
]  # fmt: skip
BAD_DELTAS = [*BAD_NUMBERS, 1, 1.0, 1.5, 1e-101]
BAD_EPSILONS = [*BAD_NUMBERS, 1e-10, 1e7]


def refused(function, *args, match, **parameters):
    with pytest.raises(InvalidParameterError) as caught:
        function(*args, **parameters)
    assert isinstance(caught.value, DPError)
    assert match in str(caught.value)
    assert "987654321" not in str(caught.value)
    assert len(str(caught.value)) > 25


@pytest.fixture
def no_bits(monkeypatch):
    monkeypatch.setattr(additive, "SYSTEM_BITS", NoBits())


@pytest.mark.slow
@pytest.mark.parametrize("value", [987654321, 987654321.5, np.array([987654321, 1]), np.array([987654321.5])], ids=str)
@pytest.mark.parametrize("number", range(len(BAD_EPSILONS)))
def test_bad_numbers_are_refused_before_a_bit_is_drawn(number, value, no_bits):
    bad = BAD_EPSILONS[number]
    refused(laplace, value, sensitivity=1, epsilon=bad, match="epsilon")
    refused(gaussian, value, sensitivity=1, epsilon=bad, delta=1e-6, match="epsilon")
    if number < len(BAD_NUMBERS):
        refused(laplace, value, sensitivity=bad, epsilon=1, match="sensitivity")
        refused(gaussian, value, sensitivity=bad, rho=1, match="sensitivity")
        refused(gaussian, value, sensitivity=bad, epsilon=1, delta=1e-6, match="sensitivity")
        refused(gaussian, value, sensitivity=1, rho=bad, match="rho")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(BAD_DELTAS)))
def test_bad_deltas_are_refused_before_a_bit_is_drawn(number, no_bits):
    if BAD_DELTAS[number] not in (1e-30,):  # such a small delta is still valid
        refused(gaussian, 987654321, sensitivity=1, epsilon=1, delta=BAD_DELTAS[number], match="delta")


@pytest.mark.parametrize("calibration", ["Exact", "analytic", "", None, 3, True, ["exact"], b"exact"])
def test_unknown_calibrations_are_refused(calibration, no_bits):
    for value in (987654321, 987654321.5):
        refused(
            gaussian, value, sensitivity=1, epsilon=1, delta=1e-6, calibration=calibration, match="calibration must be"
        )


@pytest.mark.parametrize(
    "spend",
    [
        {"rho": 1, "epsilon": 1},
        {"rho": 1, "epsilon": 1, "delta": 1e-6},
        {"rho": 1, "delta": 1e-6},
        {"rho": 1, "calibration": "zcdp"},
        {"rho": 1, "calibration": "classic"},
        {},
        {"epsilon": 1},
        {"delta": 1e-6},
        {"calibration": "exact"},
    ],
    ids=str,
)
def test_a_gaussian_has_one_spend(spend, no_bits):
    refused(gaussian, 987654321, sensitivity=1, match="rho", **spend)


@pytest.mark.parametrize("epsilon", [1.0000001, 2, 8, 1e5])
def test_classic_is_refused_above_its_proof(epsilon, no_bits):
    for value in (987654321, 987654321.5, np.zeros(5)):
        refused(
            gaussian,
            value,
            sensitivity=1,
            epsilon=epsilon,
            delta=1e-6,
            calibration="classic",
            match="only for epsilon up to 1",
        )


def test_noise_that_does_not_fit_64_bits_is_refused(no_bits):
    for value in (987654321, np.array([987654321])):
        refused(laplace, value, sensitivity=1e10, epsilon=1e-9, match="2**52")
        refused(gaussian, value, sensitivity=1e10, rho=1e-18, match="2**52")
        refused(gaussian, value, sensitivity=1e12, epsilon=1e-6, delta=1e-9, match="2**52")


def test_the_limit_of_the_noise_is_exact(no_bits):
    just = Fraction(10**18, 2 * 2**104)
    with watched() as watch:
        gaussian(1, sensitivity=10**9, rho=just)
    assert watch.scale == 2**104
    refused(gaussian, 1, sensitivity=10**9, rho=just * Fraction(2**104, 2**104 + 1), match="2**52")
    with watched() as watch:
        laplace(1, sensitivity=2**52, epsilon=1)
    assert watch.scale == 2**52
    refused(laplace, 1, sensitivity=2**52 + 1, epsilon=1, match="2**52")
