"""What the mechanisms accept: every kind of number is read exactly, and everything else is refused.

It is refused before a single random bit is drawn, with a message that helps and quotes nothing of the data.
"""

import datetime
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dp_polars import mechanisms
from dp_polars.errors import DPError, InvalidDataError
from dp_polars.mechanisms import additive, selection
from dp_polars.mechanisms._numeric_input import read_numbers

SECRET = 123456789.25
DIGITS = "123456789"


class NoBits:
    def words(self, count, dtype):
        raise AssertionError("a bit was drawn")


@pytest.fixture
def no_bits(monkeypatch):
    monkeypatch.setattr(additive, "SYSTEM_BITS", NoBits())
    monkeypatch.setattr(selection, "SYSTEM_BITS", NoBits())


def chain(error):
    """Return every message that a user would see: that of the error and those of its causes."""
    while error is not None:
        yield str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


# ---------------------------------------------------------------- what comes in

INTEGER_TYPES = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


@pytest.mark.parametrize("dtype", INTEGER_TYPES)
def test_whole_numbers_of_every_width_come_in_exactly(dtype):
    limits = np.iinfo(dtype)
    for given_as in (
        np.array([limits.min, 0, limits.max], dtype),
        np.array([limits.min, 0, limits.max], dtype).astype(np.dtype(dtype).newbyteorder()),
        pl.Series("n", np.array([limits.min, 0, limits.max], dtype)),
    ):
        numbers = read_numbers(given_as)
        assert numbers.integers
        assert numbers.array.tolist() == [limits.min, 0, limits.max]
    scalar = read_numbers(dtype(limits.max))
    assert scalar.integers
    assert scalar.array.tolist() == [limits.max]
    assert type(scalar.restore(np.array([7]))) is int


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_of_every_width_come_in_exactly(dtype):
    limits = np.finfo(dtype)
    extremes = np.array([limits.max, -limits.max, limits.smallest_subnormal, -0.0, 1 / 3], dtype)
    for given_as in (extremes, pl.Series("x", extremes.astype(np.float32 if dtype == np.float16 else dtype))):
        numbers = read_numbers(given_as)
        assert not numbers.integers
        assert numbers.array.dtype == np.float64
        assert numbers.array.tolist() == [float(x) for x in extremes]
    scalar = read_numbers(extremes[4])
    assert scalar.array.tolist() == [float(extremes[4])]
    assert type(scalar.restore(np.array([7.0]))) is float


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.integers(-(10**400), 10**400))
def test_a_python_integer_has_any_size(number):
    numbers = read_numbers(number)
    assert numbers.integers
    assert numbers.array[0] == number
    assert type(numbers.restore(numbers.array)) is int


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    st.lists(st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5)
)
def test_a_list_comes_in_exactly_or_not_at_all(numbers):
    """Numpy turns [2**63, 0] into floats. The rounding would be 2,048 times what one unit can change."""
    try:
        read = read_numbers(numbers)
    except InvalidDataError:
        assert any(isinstance(x, int) and abs(x) > 2**53 for x in numbers)
    else:
        assert [Fraction(x) for x in read.array.tolist()] == [Fraction(x) for x in numbers]


def test_lists_of_large_whole_numbers_are_not_rounded():
    near = [2**63 + 1, 0], [2**63 + 2000, 0], [-(2**63), 2**63], [2**60 + 1, 0.5], [np.uint64(2**63), -1]
    for numbers in near:
        with pytest.raises(InvalidDataError, match="too large"):
            read_numbers(numbers)
    assert read_numbers([2**63 - 1, -(2**63)]).array.tolist() == [2**63 - 1, -(2**63)]


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (3, 1, 2), (0,), (0, 3)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_answer_has_the_shape_and_order_of_the_question(shape, order):
    size = math.prod(shape)
    values = np.arange(size).reshape(shape).copy(order)
    numbers = read_numbers(values)
    assert numbers.array.shape == (size,)
    assert (numbers.restore(numbers.array) == values).all()
    assert numbers.restore(numbers.array).shape == shape


@settings(derandomize=True, deadline=None, max_examples=50)
@given(hnp.arrays(np.int64, hnp.array_shapes(max_dims=2), elements=st.integers(-9, 9)))
def test_views_are_read_in_their_own_order(values):
    for view in (values, values.T, values[::-1], values[::2]):
        assert (read_numbers(view).restore(read_numbers(view).array) == view).all()


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.float64])
def test_a_matrix_is_flattened_like_any_array(dtype):
    """A matrix stays two-dimensional under ravel(), so one sample of noise would have served all its cells."""
    top = 2**64 - 1 if dtype == np.uint64 else 3
    numbers = read_numbers(np.matrix([[1, 2], [top, 4]], dtype=dtype))
    assert type(numbers.array) is np.ndarray
    assert numbers.array.shape == (4,)
    assert numbers.array[2] == dtype(top)


def test_series_keep_their_name_and_become_64_bits():
    for series, dtype in (
        (pl.Series("clicks", [1, 2], dtype=pl.Int8), pl.Int64),
        (pl.Series("clicks", [1, 2], dtype=pl.UInt64), pl.Int64),
        (pl.Series("clicks", [1, 2], dtype=pl.Float32), pl.Float64),
        (pl.Series("clicks", [], dtype=pl.Int16), pl.Int64),
        (pl.Series("clicks", [], dtype=pl.Float64), pl.Float64),
    ):
        numbers = read_numbers(series)
        restored = numbers.restore(numbers.array)
        assert restored.name == "clicks"
        assert restored.dtype == dtype
        assert len(restored) == len(series)


def test_what_is_handed_in_is_never_written_to():
    for values in (np.array([1, 2]), np.array([1.5, 2.5]), np.array([2**64 - 1, 0], np.uint64)):
        before = values.copy()
        numbers = read_numbers(values)
        numbers.array[:] = 0
        assert (values == before).all()


# ---------------------------------------------------------------- what is refused

ARRAY = np.array([SECRET, 2.0])
REFUSED = {
    "bool": True,
    "numpy bool": np.True_,
    "text": str(SECRET),
    "bytes": b"123456789.25",
    "None": None,
    "complex": complex(SECRET),
    "numpy complex": np.complex128(SECRET),
    "Decimal": Decimal("123456789.25"),
    "Fraction": Fraction(SECRET),
    "date": datetime.date(2020, 1, 1),
    "dict": {DIGITS: SECRET},
    "set": {SECRET},
    "range": range(123456789, 123456791),
    "generator": (x for x in [SECRET]),
    "NaN": math.nan,
    "infinity": -math.inf,
    "numpy NaN": np.float32("nan"),
    "wide scalar": np.longdouble(SECRET),
    "bool array": ARRAY > 0,
    "object array": ARRAY.astype(object),
    "object array of huge integers": np.array([123456789 * 2**80, 1], dtype=object),
    "text array": ARRAY.astype(str),
    "bytes array": ARRAY.astype("S"),
    "masked array": np.ma.masked_array(ARRAY, mask=[False, True]),
    "masked array without a mask": np.ma.masked_array(ARRAY),
    "masked integers": np.ma.masked_array([123456789, 2], mask=[False, True]),
    "masked constant": np.ma.masked,
    "datetime array": np.array([123456789, 1], dtype="datetime64[s]"),
    "timedelta array": np.array([123456789, 1], dtype="timedelta64[s]"),
    "timedelta": np.timedelta64(123456789, "s"),
    "datetime": np.datetime64(123456789, "s"),
    "complex array": ARRAY.astype(complex),
    "wide array": ARRAY.astype(np.longdouble),
    "record array": np.array([(SECRET,)], dtype=[(DIGITS, float)]),
    "NaN in an array": np.array([SECRET, math.nan]),
    "infinity in an array": np.array([SECRET, -math.inf]),
    "NaN in a small float array": np.array([2048.0, math.nan], np.float16),
    "ragged list": [[SECRET], [SECRET, 1.0]],
    "list with None": [SECRET, None],
    "list with text": [SECRET, str(SECRET)],
    "list of bools": [True, False],
    "list with NaN": [SECRET, math.nan],
    "list of huge integers": [123456789 * 2**80],
    "list of large integers": [123456789 * 2**36 + 2**63, 1],
    "list with an integer beyond floats": [123456789 * 10**400, 1.5],
    "list with a date": [np.datetime64("2020-01-01"), 123456789],
    "bool Series": pl.Series("x", [True, False]),
    "text Series": pl.Series("x", [str(SECRET)]),
    "null in an integer Series": pl.Series("x", [123456789, None]),
    "null in a float Series": pl.Series("x", [SECRET, None]),
    "NaN in a Series": pl.Series("x", [SECRET, math.nan]),
    "infinity in a Series": pl.Series("x", [SECRET, math.inf], dtype=pl.Float32),
    "Decimal Series": pl.Series("x", [Decimal("123456789.25")]),
    "date Series": pl.Series("x", [datetime.date(2020, 1, 1)]),
    "duration Series": pl.Series("x", [datetime.timedelta(123456789)]),
    "list Series": pl.Series("x", [[SECRET]]),
    "array Series": pl.Series("x", [[SECRET]], dtype=pl.Array(pl.Float64, 1)),
    "struct Series": pl.Series("x", [{DIGITS: SECRET}]),
    "Enum Series": pl.Series("x", [str(SECRET)], dtype=pl.Enum([str(SECRET)])),
    "categorical Series": pl.Series("x", [str(SECRET)], dtype=pl.Categorical),
    "null Series": pl.Series("x", [None, None]),
    "Int128 Series": pl.Series("x", [123456789], dtype=pl.Int128),
    "object Series": pl.Series("x", [{SECRET}], dtype=pl.Object),
    "DataFrame": pl.DataFrame({"x": [SECRET]}),
    "LazyFrame": pl.LazyFrame({"x": [SECRET]}),
    "expression": pl.lit(SECRET),
}
NO_SCORES = {
    "empty list": [],
    "empty array": np.array([], dtype=np.int64),
    "empty Series": pl.Series("x", [], dtype=pl.Float64),
    "integer": 123456789,
    "float": SECRET,
    "numpy integer": np.int64(123456789),
    "array of no dimension": np.array(SECRET),
    "table": np.array([[123456789, 1], [2, 3]]),
    "nested list": [[SECRET, 1.0]],
}
ADDITIVE = {
    "laplace": lambda values: mechanisms.laplace(values, sensitivity=1, epsilon=1),
    "gaussian by rho": lambda values: mechanisms.gaussian(values, sensitivity=1, rho=1),
    "gaussian by epsilon": lambda values: mechanisms.gaussian(values, sensitivity=1, epsilon=1, delta=1e-6),
}
SELECTION = {
    "exponential": lambda scores: mechanisms.exponential(scores, sensitivity=1, epsilon=1),
    "permute_and_flip": lambda scores: mechanisms.permute_and_flip(scores, sensitivity=1, epsilon=1),
    "noisy max": lambda scores: mechanisms.report_noisy_max(scores, sensitivity=1, epsilon=1),
    "noisy max, Laplace": lambda s: mechanisms.report_noisy_max(s, sensitivity=1, epsilon=1, noise="laplace"),
    "noisy max, Gumbel": lambda s: mechanisms.report_noisy_max(s, sensitivity=1, epsilon=1, noise="gumbel"),
}


def refusal(function, data, what):
    with pytest.raises(InvalidDataError) as caught:
        function(data)
    error = caught.value
    assert isinstance(error, DPError)
    assert isinstance(error, ValueError)
    assert str(error).startswith(what)
    assert len(str(error)) > 40
    for message in chain(error):
        assert DIGITS not in message.replace("_", "").replace(",", "")
        assert "2048" not in message


@pytest.mark.slow
@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("mechanism", ADDITIVE)
def test_values_that_no_noise_protects_are_refused_before_a_bit_is_drawn(mechanism, kind, no_bits):
    refusal(ADDITIVE[mechanism], REFUSED[kind], "values")


@pytest.mark.slow
@pytest.mark.parametrize("kind", REFUSED | NO_SCORES)
@pytest.mark.parametrize("mechanism", SELECTION)
def test_scores_without_an_order_are_refused_before_a_bit_is_drawn(mechanism, kind, no_bits):
    refusal(SELECTION[mechanism], (REFUSED | NO_SCORES)[kind], "scores")


@pytest.mark.parametrize("mechanism", ADDITIVE | SELECTION)
def test_the_watch_on_the_bits_works(mechanism, no_bits):
    with pytest.raises(AssertionError, match="a bit was drawn"):
        (ADDITIVE | SELECTION)[mechanism](np.array([1, 2]))
