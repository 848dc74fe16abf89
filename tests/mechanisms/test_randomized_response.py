"""Randomized response: the coin is exact, the ratio is e**epsilon, and nothing else reveals the truth.

Probabilities are checked against decimal arithmetic with 400 digits, the mapping from random words to codes by feeding
every word, whole samples by chi-square, and the estimator by enumerating all possible responses.
"""

import datetime
import decimal
import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_polars.errors import InvalidDataError, InvalidParameterError
from dp_polars.mechanisms import estimate_frequencies, randomized_response
from dp_polars.mechanisms import randomized_response as public
from dp_polars.mechanisms.randomized_response import Channel, enclose_truth
from tests.bits import ScriptedBits, SeededBits
from tests.statistics import binomial_fits, chi_square_fits


def respond(codes, categories, epsilon, source):
    return Channel(size=categories, epsilon=epsilon).respond(codes, source)


SIZES = [2, 3, 10, 1000]
EPSILONS = [Fraction(1, 10**9), Fraction(1, 10), Fraction(1), Fraction(math.log(3)), Fraction(5), Fraction(40)]
DIGITS = decimal.Context(prec=400, Emin=-(10**9), Emax=10**9)


def enclosed_e(epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """Return bounds of e**epsilon that differ by a relative 1e-390; decimal's exp is correctly rounded."""
    scaled = DIGITS.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))
    nearest = Fraction(DIGITS.exp(scaled))
    error = Fraction(1, 10**390) * (1 + epsilon)
    return nearest * (1 - error), nearest * (1 + error)


def truth(size: int, epsilon: Fraction) -> float:
    return 1 / (1 + (size - 1) * math.exp(-float(epsilon)))


def response_law(code: int, size: int, epsilon: Fraction) -> list[float]:
    keep = truth(size, epsilon)
    return [keep if other == code else (1 - keep) / (size - 1) for other in range(size)]


# ---------------------------------------------------------------- the coin


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("epsilon", [*EPSILONS, Fraction(10**6)], ids=float)
@pytest.mark.parametrize("bits", [8, 32, 40, 104, 500])
def test_the_probability_of_the_truth_is_enclosed_tightly(size, epsilon, bits):
    e_low, e_high = enclosed_e(epsilon)
    low, high = enclose_truth(size, epsilon, bits)
    # e / (e + k - 1) grows with e.
    assert Fraction(low, 2**bits) <= e_low / (e_low + size - 1)
    assert e_high / (e_high + size - 1) <= Fraction(high, 2**bits)
    # The gap stays small, so the lazy comparison ends.
    assert high - low <= 2


@pytest.mark.slow
@given(
    size=st.integers(2, 10**6),
    epsilon=st.fractions(Fraction(1, 10**9), 10**3, max_denominator=10**12),
    bits=st.integers(1, 300),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_enclosure_holds_everywhere(size, epsilon, bits):
    e_low, e_high = enclosed_e(epsilon)
    low, high = enclose_truth(size, epsilon, bits)
    assert Fraction(low, 2**bits) <= e_low / (e_low + size - 1)
    assert e_high / (e_high + size - 1) <= Fraction(high, 2**bits)
    assert high - low <= 2


# ---------------------------------------------------------------- the distribution, enumerated


def answers_to_all_words(code: int, size: int, epsilon: Fraction) -> tuple[list[int], list[int]]:
    """Return the codes for a coin that says truth, and for one that says lie with every step in turn."""
    steps = size - 1  # a power of two, so that every word is a step
    words = [] if steps == 1 else [np.arange(steps) * (256 // steps)]
    codes = np.full(steps, code)
    kept = respond(codes, size, epsilon, ScriptedBits(np.zeros(steps), *words))
    changed = respond(codes, size, epsilon, ScriptedBits(np.full(steps, 2**32 - 1), *words))
    return kept.tolist(), changed.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3, 5, 17])
@pytest.mark.parametrize("epsilon", EPSILONS[:-1], ids=float)
def test_any_two_inputs_differ_by_exactly_e_to_epsilon(size, epsilon):
    """Every step leads to a different wrong code, so lies are uniform. With the enclosed coin the ratio follows."""
    e_low, e_high = enclosed_e(epsilon)
    bits = 1200
    keep_low, keep_high = (Fraction(side, 2**bits) for side in enclose_truth(size, epsilon, bits))
    laws = []
    for code in range(size):
        kept, changed = answers_to_all_words(code, size, epsilon)
        assert set(kept) == {code}
        assert sorted(changed) == [other for other in range(size) if other != code]
        # (lower, upper) bound of each output's probability, exactly.
        lie = ((1 - keep_high) / (size - 1), (1 - keep_low) / (size - 1))
        laws.append([(keep_low, keep_high) if out == code else lie for out in range(size)])
    tiny = Fraction(1, 10**300)
    for one, two in itertools.islice(itertools.permutations(laws, 2), 200):
        upper = max(p[1] / q[0] for p, q in zip(one, two, strict=True))
        lower = max(p[0] / q[1] for p, q in zip(one, two, strict=True))
        assert e_low * (1 - tiny) <= lower <= upper <= e_high * (1 + tiny)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4), Fraction(6)], ids=float)
def test_responses_fit_the_distribution_for_each_true_code(size, epsilon):
    """There are 76 chi-square tests at 1e-7 each, so less than 1e-5 of all seeds would fail one; the seed is fixed."""
    for code in range(size) if size <= 10 else (0, 1, 499, 999):
        out = respond(np.full(60_000, code), size, epsilon, SeededBits(1000 * size + code))
        assert out.min() >= 0
        assert out.max() < size
        assert chi_square_fits(out, dict(enumerate(response_law(code, size, epsilon))))


def test_each_value_gets_its_own_coin():
    """Pairs of neighbouring responses are independent."""
    out = respond(np.tile([0, 2], 50_000), 3, Fraction(1), SeededBits(5))
    laws = response_law(0, 3, Fraction(1)), response_law(2, 3, Fraction(1))
    pairs = {3 * a + b: laws[0][a] * laws[1][b] for a in range(3) for b in range(3)}
    assert chi_square_fits(3 * out[::2] + out[1::2], pairs)


@pytest.mark.parametrize("size", SIZES)
def test_the_draws_do_not_depend_on_the_values(size):
    generator = np.random.default_rng(1)
    inputs = [np.zeros(500, int), np.full(500, size - 1), generator.integers(0, size, 500)]
    sources = [SeededBits(7) for _ in inputs]
    outs = [respond(codes, size, Fraction(1), source) for codes, source in zip(inputs, sources, strict=True)]
    assert len({source.served for source in sources}) == 1
    # Nor does the step that is added to the code.
    assert len({tuple((out - codes) % size) for out, codes in zip(outs, inputs, strict=True)}) == 1


def test_an_enormous_epsilon_keeps_every_value_and_a_tiny_one_hides_it():
    codes = np.arange(10_000) % 7
    assert (respond(codes, 7, Fraction(10**6), SeededBits(1)) == codes).all()
    kept = int((respond(codes, 7, Fraction(1, 10**9), SeededBits(1)) == codes).sum())
    assert binomial_fits(kept, 10_000, 1 / 7)


# ---------------------------------------------------------------- kinds of values


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "categories", "kind"),
    [
        (True, None, bool),
        (np.bool_(False), None, bool),
        ("a", ["a", "b"], str),
        (np.str_("a"), ["a", "b"], str),
        (3, [3, 4, 5], int),
        (np.int8(3), [3, 4, 5], int),
    ],
)
def test_single_values(value, categories, kind):
    possible = categories or [False, True]
    answers = [randomized_response(value, epsilon=0.01, categories=categories) for _ in range(200)]
    assert {type(answer) for answer in answers} == {kind}
    assert set(answers) == set(possible)  # missing one: below 3 * (2/3)**200
    assert randomized_response(value, epsilon=500, categories=categories) == value


def test_a_single_value_may_become_null():
    answers = {randomized_response("a", epsilon=0.01, categories=["a", None]) for _ in range(200)}
    assert answers == {"a", None}


ARRAYS = [
    (np.array([True, False, True]), None),
    (np.array([1, 2, 3], dtype=np.int8), [1, 2, 3]),
    (np.array([1, 2, 2**40]), [1, 2, 2**40]),
    (np.array([1, 200], dtype=np.uint8), [1, 200]),
    (np.array(["yes", "no"]), ["yes", "no"]),
    (np.array([b"yes", b"no"]), [b"yes", b"no"]),
    (np.array(["yes", "no"], dtype=np.dtypes.StringDType()), ["yes", "no"]),
]


@pytest.mark.parametrize(("array", "categories"), ARRAYS, ids=lambda x: str(getattr(x, "dtype", "")))
def test_arrays_keep_their_type(array, categories):
    many = np.tile(array, 60)
    out = randomized_response(many, epsilon=0.01, categories=categories)
    assert isinstance(out, np.ndarray)
    assert out.dtype == array.dtype
    assert out.shape == many.shape
    # The chance to miss one of at most three categories in 120 answers is below 3 * (2/3)**120.
    assert set(out.tolist()) == set(categories or [False, True])
    same = randomized_response(many, epsilon=500, categories=categories)
    assert (same == many).all()


SERIES = [
    (pl.Series("x", [True, False]), None),
    (pl.Series("x", ["a", "b"], dtype=pl.Enum(["a", "b", "c"])), None),
    (pl.Series("x", ["a", "b"], dtype=pl.Enum(["a", "b", "c"])), ["a", "b"]),
    (pl.Series("x", ["a", "b"]), ["a", "b", "c"]),
    (pl.Series("x", [1, 2], dtype=pl.Int16), [1, 2, 3]),
    (pl.Series("x", [1, None], dtype=pl.UInt32), [1, 3, None]),
    (pl.Series("x", [True, None]), [False, None, True]),
    (pl.Series("x", ["a", None]), ["a", None]),
    (pl.Series("x", ["a", None], dtype=pl.Enum(["a", "b"])), ["a", "b", None]),
    (pl.Series("x", [b"a", b"b"]), [b"a", b"b"]),
    (pl.Series("x", [datetime.date(2024, 1, 1)]), [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]),
]


@pytest.mark.parametrize(("series", "categories"), SERIES, ids=lambda x: str(getattr(x, "dtype", x)))
def test_series_keep_their_name_and_type(series, categories):
    many = pl.concat([series] * 120)
    out = randomized_response(many, epsilon=0.01, categories=categories)
    assert out.name == "x"
    assert out.dtype == series.dtype
    assert len(out) == len(many)
    # Null is a category of a Series if none are given, because whether there are nulls is private too.
    possible = categories or ([False, True, None] if series.dtype == pl.Boolean else ["a", "b", "c", None])
    assert set(out.to_list()) == set(possible)
    same = randomized_response(many, epsilon=500, categories=categories)
    assert same.to_list() == many.to_list()  # also: the order of the rows is kept


@pytest.mark.parametrize(
    "empty",
    [pl.Series("x", [], dtype=pl.Boolean), np.array([], dtype=bool), pl.Series("x", [], dtype=pl.Enum(["a", "b"]))],
    ids=lambda x: f"{type(x).__name__} {x.dtype}",
)
def test_no_values_give_no_responses(empty):
    out = randomized_response(empty, epsilon=1)
    assert type(out) is type(empty)
    assert len(out) == 0
    assert out.dtype == empty.dtype


@pytest.mark.parametrize("values", [["no"], ["yes"], ["no", "yes"]])
@pytest.mark.parametrize("kind", ["U", "S"])
def test_the_width_of_a_text_array_does_not_give_the_truth_away(values, kind):
    """numpy cuts text to the longest value of the array. "no" alone has two letters, and "yes" would become "ye"."""
    categories = ["no", "yes", "maybe"] if kind == "U" else [b"no", b"yes", b"maybe"]
    out = randomized_response(np.array(values * 100, dtype=kind), epsilon=0.01, categories=categories)
    assert out.dtype == np.array(categories).dtype
    assert set(out.tolist()) == set(categories)


@pytest.mark.parametrize("array", [np.array([True]), np.array([1, 2]), np.array(["a"])], ids=str)
def test_null_is_no_category_of_a_numpy_array(array):
    with pytest.raises(InvalidParameterError, match=r"Polars Series.*None"):
        randomized_response(array, epsilon=1, categories=[*array.tolist(), None])


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "values",
    [
        "word",
        7,
        np.array(["word"]),
        np.array([7]),
        pl.Series(["word"]),
        pl.Series([7]),
    ],
    ids=lambda x: f"{type(x).__name__} {getattr(x, 'dtype', '')}",
)
def test_categories_must_be_given_where_only_the_data_would_tell(values):
    for refused in (randomized_response, estimate_frequencies):
        with pytest.raises(InvalidParameterError, match=r"categories=\[\.\.\.\].*without looking") as error:
            refused(values, epsilon=1)
        assert "word" not in str(error.value)


@pytest.mark.parametrize("categories", [None, ["yes", "no"]])
def test_a_categorical_is_refused_because_its_codes_follow_the_data(categories):
    """The first category that appears has code 0, which would reveal the true answer of the first person."""
    values = pl.Series(["yes", "no"], dtype=pl.Categorical)
    for refused in (randomized_response, estimate_frequencies):
        with pytest.raises(InvalidDataError, match=r"Cast it to String"):
            refused(values, epsilon=1, categories=categories)


@pytest.mark.parametrize(
    ("values", "categories"),
    [
        ("secret", ["a", "b"]),
        (np.array(["a", "secret"]), ["a", "b"]),
        (pl.Series(["a", "secret"]), ["a", "b"]),
        (pl.Series(["a", "secret"], dtype=pl.Enum(["a", "b", "secret"])), ["a", "b"]),
        (pl.Series(["a", None]), ["a", "b"]),
        (pl.Series([True, None]), [False, True]),
        (pl.Series(["a", None], dtype=pl.Enum(["a", "b"])), ["a", "b"]),
        (np.array([0, 4711]), [0, 1]),
    ],
    ids=lambda x: f"{type(x).__name__} {getattr(x, 'dtype', '')}",
)
def test_other_values_are_refused_without_naming_them(values, categories):
    for refused in (randomized_response, estimate_frequencies):
        with pytest.raises(InvalidDataError, match="List every possible value") as error:
            refused(values, epsilon=1, categories=categories)
        assert "secret" not in str(error.value)
        assert "4711" not in str(error.value)
        assert error.value.__cause__ is None


@pytest.mark.parametrize(
    "categories",
    [
        [],
        ["a"],
        ["a", "a"],
        ["a", "b", "a"],
        [None, None],
        ["a", 1],
        [1, 2],
        5,
        "ab",
    ],
    ids=str,
)
def test_categories_without_meaning_are_refused(categories):
    with pytest.raises(InvalidParameterError, match="categories must be"):
        randomized_response(pl.Series(["a"]), epsilon=1, categories=categories)


@pytest.mark.parametrize(
    ("values", "categories"),
    [
        (np.array([1, 2], dtype=np.int8), [1, 300]),
        (pl.Series(["a"], dtype=pl.Enum(["a", "b"])), ["a", "z"]),
        (np.array(["2024-01-01"], dtype="datetime64[D]"), [np.datetime64("2024-01-01"), np.datetime64("2024-01-02")]),
        (pl.Series([1, 2]), [1.5, 2.5]),
    ],
)
def test_categories_of_another_type_are_refused(values, categories):
    with pytest.raises(InvalidParameterError, match="categories must be a list of values of the type"):
        randomized_response(values, epsilon=1, categories=categories)


@pytest.mark.parametrize(
    "values",
    [
        None,
        1.5,
        [True, False],
        {"a": 1},
        np.zeros((2, 2), dtype=bool),
        np.array(True),
        np.array(["a"], dtype=object),
        np.array([1.0, 2.0]),
        pl.Series([1.0, 2.0]),
        pl.Series([[1], [2]]),
        pl.Series([{"a": 1}]),
    ],
    ids=lambda x: f"{type(x).__name__} {getattr(x, 'dtype', '')}",
)
def test_values_that_are_no_categories_are_refused(values):
    with pytest.raises((InvalidDataError, InvalidParameterError)):
        randomized_response(values, epsilon=1, categories=[1, 2])


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "1", None, True, 1e-10, 1e7])
def test_an_epsilon_without_meaning_is_refused(epsilon):
    for refused in (randomized_response, estimate_frequencies):
        with pytest.raises(InvalidParameterError, match="epsilon"):
            refused(np.array([True]), epsilon=epsilon)


# ---------------------------------------------------------------- estimates


def all_estimates(true_codes: list[int], size: int, epsilon: Fraction):
    """Yield the exact probability of every vector of responses, and the estimate from it."""
    laws = [response_law(code, size, epsilon) for code in true_codes]
    for codes in itertools.product(range(size), repeat=len(true_codes)):
        chance = math.prod(law[code] for law, code in zip(laws, codes, strict=True))
        yield chance, estimate_frequencies(np.array(codes), epsilon=epsilon, categories=list(range(size)))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [Fraction(1, 5), Fraction(1), Fraction(3)], ids=float)
@pytest.mark.parametrize(("size", "true_codes"), [(2, [0, 1, 1, 1, 1]), (3, [0, 0, 2, 2]), (4, [0, 1, 1])])
def test_the_estimate_is_unbiased_exactly(size, true_codes, epsilon):
    total = 0.0
    mean, square = np.zeros(size), np.zeros(size)
    for chance, estimate in all_estimates(true_codes, size, epsilon):
        frequency = estimate["frequency"].to_numpy()
        total += chance
        mean += chance * frequency
        square += chance * frequency**2
    share = np.bincount(true_codes, minlength=size) / len(true_codes)
    assert total == pytest.approx(1, abs=1e-12)
    assert mean == pytest.approx(share, abs=1e-10)
    # The textbook variance for independent coins checks the enumeration itself.
    keep = truth(size, epsilon)
    other = (1 - keep) / (size - 1)
    variance = (share * keep * (1 - keep) + (1 - share) * other * (1 - other)) / len(true_codes) / (keep - other) ** 2
    assert square - mean**2 == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize(
    ("ratio", "true_counts"),
    [
        # With e**epsilon = ratio the expected responses are whole numbers, so an estimate can hit the truth exactly.
        (3, [4, 4]),
        (3, [6, 2]),
        (3, [8, 0]),
        (2, [4, 8, 0]),
        (2, [4, 4, 4]),
        (2, [0, 0, 12]),
    ],
)
def test_the_standard_error_is_the_true_deviation_at_the_true_frequencies(ratio, true_counts):
    epsilon = math.log(ratio)
    size, n = len(true_counts), sum(true_counts)
    keep = Fraction(ratio, ratio + size - 1)
    other = Fraction(1, ratio + size - 1)
    expected = [count * keep + (n - count) * other for count in true_counts]
    assert all(number.denominator == 1 for number in expected)
    responses = np.repeat(np.arange(size), [int(number) for number in expected])
    estimate = estimate_frequencies(responses, epsilon=epsilon, categories=list(range(size)))
    assert estimate["frequency"].to_list() == pytest.approx([count / n for count in true_counts], abs=1e-12)
    for category, count in enumerate(true_counts):
        # The exact law of the number of responses with this category comes from n coins, one after another.
        law = [Fraction(1)]
        for coin in [keep] * count + [other] * (n - count):
            law = [a * (1 - coin) + b * coin for a, b in zip([*law, 0], [0, *law], strict=True)]
        mean = sum(k * p for k, p in enumerate(law))
        variance = sum((k - mean) ** 2 * p for k, p in enumerate(law)) / (n * (keep - other)) ** 2
        assert estimate["standard_error"][category] == pytest.approx(math.sqrt(variance), rel=1e-9)


@pytest.mark.slow
def test_standard_errors_cover_in_simulation():
    """1.96 standard errors cover 95 % of 1000 data sets, for each of four frequencies (normal law: 20,000 coins)."""
    size, epsilon, n, rounds = 4, Fraction(1), 20_000, 1000
    true_counts = np.array([0, 2000, 6000, 12_000])
    keep = truth(size, epsilon)
    generator = np.random.default_rng(3)
    covered = np.zeros(size, int)
    for _ in range(rounds):
        seen = np.zeros(size, int)
        for code, count in enumerate(true_counts):
            law = np.full(size, (1 - keep) / (size - 1))
            law[code] = keep
            seen += generator.multinomial(count, law)
        estimate = estimate_frequencies(np.repeat(np.arange(size), seen), epsilon=epsilon, categories=range(size))
        error = np.abs(estimate["frequency"].to_numpy() - true_counts / n)
        covered += error <= 1.959964 * estimate["standard_error"].to_numpy()
    for inside in covered.tolist():
        assert binomial_fits(inside, rounds, 0.95)


def test_responses_of_the_mechanism_are_estimated_within_their_errors():
    n = 200_000
    codes = np.repeat([0, 1, 2], [n // 2, n // 2, 0])
    out = respond(codes, 3, Fraction(1), SeededBits(11))
    estimate = estimate_frequencies(out, epsilon=1, categories=[0, 1, 2])
    z = (estimate["frequency"].to_numpy() - [0.5, 0.5, 0]) / estimate["standard_error"].to_numpy()
    assert np.abs(z).max() < 5.5  # beyond: 1e-7 for three normal numbers


@pytest.mark.slow
@given(
    counts=st.lists(st.integers(0, 1000), min_size=2, max_size=6).filter(any),
    epsilon=st.floats(0.001, 100),
)
@settings(max_examples=60, deadline=None, derandomize=True)
@pytest.mark.filterwarnings("ignore::dp_polars.errors.DPWarning")  # nobody has made such responses
def test_frequencies_sum_to_one(counts, epsilon):
    size = len(counts)
    estimate = estimate_frequencies(np.repeat(np.arange(size), counts), epsilon=epsilon, categories=range(size))
    frequency = estimate["frequency"].to_numpy()
    assert frequency.sum() == pytest.approx(1, abs=1e-9 * (1 + np.abs(frequency).max()))
    assert (estimate["standard_error"].to_numpy() >= 0).all()


def test_estimates_name_the_categories_in_their_order_and_type():
    enum = pl.Enum(["low", "high"])
    estimate = estimate_frequencies(pl.Series(["high", "high", "low"], dtype=enum), epsilon=2)
    assert estimate.schema == {"category": enum, "frequency": pl.Float64, "standard_error": pl.Float64}
    assert estimate["category"].to_list() == ["low", "high", None]
    two = estimate_frequencies(pl.Series(["high", "high", "low"], dtype=enum), epsilon=2, categories=["low", "high"])
    assert two["category"].to_list() == ["low", "high"]
    assert estimate["frequency"][1] > estimate["frequency"][0]
    with_null = estimate_frequencies(pl.Series(["a", None, None]), epsilon=2, categories=["a", None, "b"])
    assert with_null["category"].to_list() == ["a", None, "b"]
    assert with_null["frequency"].arg_max() == 1
    assert estimate_frequencies(np.array(["b", "b"]), epsilon=2, categories=["a", "b"])["frequency"].arg_max() == 1
    assert estimate_frequencies(np.array([True, True]), epsilon=2)["category"].to_list() == [False, True]


def test_without_noise_the_estimate_is_the_count():
    estimate = estimate_frequencies(np.array([0, 0, 0, 1]), epsilon=1000, categories=[0, 1])
    assert estimate["frequency"].to_list() == [0.75, 0.25]
    assert estimate["standard_error"].to_list() == [0, 0]


@pytest.mark.parametrize("empty", [np.array([], dtype=bool), pl.Series([], dtype=pl.Boolean)], ids=type)
def test_empty_responses_are_refused(empty):
    with pytest.raises(InvalidDataError, match="empty"):
        estimate_frequencies(empty, epsilon=1)


def test_the_public_function_takes_no_source_and_no_seed():
    import inspect

    assert set(inspect.signature(public).parameters) == {"values", "epsilon", "resample", "categories"}
