"""A number means exactly what the user wrote, or is refused; the bisection returns only points that hold."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dp_polars import InvalidParameterError
from dp_polars._numbers import (
    boundary,
    count_of,
    delta_of,
    epsilon_of,
    exact,
    first_doubling,
    flag_of,
    positive,
    probability_of,
    rounded_down,
)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (0.1, Fraction(1, 10)),
        (1e-7, Fraction(1, 10**7)),
        (3, Fraction(3)),
        (Fraction(1, 3), Fraction(1, 3)),
        (Decimal("0.30"), Fraction(3, 10)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.int32(7), Fraction(7)),
    ],
)
def test_a_number_is_the_number_that_was_written(written, meant):
    assert exact(written, "x") == meant


class Liar(float):
    def __repr__(self):
        return "1000"


def test_a_float_that_prints_as_another_number_is_still_itself():
    assert exact(Liar(0.1), "x") == Fraction(1, 10)


BAD = [
    float("nan"), float("inf"), -float("inf"), Decimal("sNaN"), Decimal("NaN"), Decimal("Infinity"), "0.1", None, True,
    np.bool_(True), 1j, [1], 10**5000, Fraction(1, 10**5000), -1, 0,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("read", [positive, epsilon_of, delta_of, probability_of])
def test_what_is_not_a_parameter_is_refused_as_invalid(read, bad):
    with pytest.raises(InvalidParameterError, match="quantity"):
        read(bad, "quantity")


@pytest.mark.parametrize(
    ("read", "bad"), [(epsilon_of, 1e7), (epsilon_of, 1e-10), (delta_of, 1), (delta_of, 2.0), (probability_of, 1)]
)
def test_absurd_amounts_are_refused(read, bad):
    with pytest.raises(InvalidParameterError):
        read(bad, "quantity")


@pytest.mark.parametrize("bad", [0, -1, 1.0, "1", True, None])
def test_counts_are_whole_and_at_least_one(bad):
    with pytest.raises(InvalidParameterError, match="n must be"):
        count_of(bad, "n")
    assert count_of(np.int64(3), "n") == 3


def test_flags_and_rounding():
    assert flag_of(np.bool_(True), "f") is True
    with pytest.raises(InvalidParameterError):
        flag_of(1, "f")
    assert rounded_down(0.1) < Fraction(0.1)


@pytest.mark.parametrize("last", [0, 1, 6, 7, 98, 99])
def test_the_largest_whole_number_that_holds_is_found(last):
    asked = []

    def holds(n):
        asked.append(n)
        return n <= last

    assert boundary(holds, inside=0, outside=100) == last
    assert 0 not in asked
    assert 100 not in asked
    assert len(asked) <= 7


@pytest.mark.parametrize("first", [1, 2, 50, 99, 100])
def test_the_smallest_whole_number_that_holds_is_found(first):
    assert boundary(lambda n: n >= first, inside=100, outside=0) == first


def test_whole_numbers_beyond_floats_and_below_zero_are_exact():
    assert boundary(lambda n: n <= 10**40 + 1, inside=0, outside=10**50) == 10**40 + 1
    assert boundary(lambda n: n <= -7, inside=-100, outside=0) == -7
    assert boundary(lambda n: n >= -7, inside=0, outside=-100) == -7


def test_floats_are_searched_until_they_are_neighbours():
    root = math.sqrt(2)
    assert boundary(lambda x: x <= root, inside=0.0, outside=2.0) == root
    assert boundary(lambda x: x >= root, inside=2.0, outside=0.0) == root
    assert boundary(lambda x: x < root, inside=0.0, outside=2.0) == math.nextafter(root, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("geometric", [False, True])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-9, 0.0])
@pytest.mark.parametrize("root", [1e-8, 0.3, 7.0, 9e4])
def test_the_result_is_within_the_tolerance_and_always_holds(root, tolerance, geometric):
    largest = boundary(lambda x: x <= root, inside=1e-9, outside=1e5, tolerance=tolerance, geometric=geometric)
    assert root * (1 - tolerance - 1e-15) <= largest <= root
    least = boundary(lambda x: x >= root, inside=1e5, outside=1e-9, tolerance=tolerance, geometric=geometric)
    assert root <= least <= root * (1 + 2 * tolerance + 1e-15)


def test_a_geometric_search_takes_few_steps_over_many_powers_of_ten():
    asked = []

    def holds(x):
        asked.append(x)
        return x <= 3e-90

    assert boundary(holds, inside=1e-100, outside=1e100, tolerance=0.01, geometric=True) == pytest.approx(
        3e-90, rel=0.01
    )
    assert len(asked) < 20


def test_fractions_stay_exact():
    found = boundary(lambda x: x * x <= 2, inside=Fraction(1), outside=Fraction(2), tolerance=1e-6)
    assert isinstance(found, Fraction)
    assert found**2 <= 2 < (found * Fraction(1_000_002, 1_000_000)) ** 2


def test_only_a_point_that_holds_is_returned_even_if_the_condition_is_not_monotone():
    def holds(x):
        return math.sin(1e6 * x) >= 0 or x > 40

    for low in np.linspace(0, 1, 50):
        assert holds(boundary(holds, inside=64.0, outside=float(low), tolerance=1e-9))


def test_the_known_end_is_returned_if_nothing_else_holds():
    assert boundary(lambda x: False, inside=3.0, outside=4.0, tolerance=1e-3) == 3.0
    assert boundary(lambda n: False, inside=3, outside=4) == 3


def test_doubling_stops_at_the_first_point_that_does_not_hold():
    assert first_doubling(lambda n: n <= 100, 3) == 192
    assert first_doubling(lambda x: x < 0.5, 1.5) == 1.5
