"""What a user writes is what is meant, or is refused as our own error."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dp_polars import InvalidParameterError
from dp_polars._numbers import count_of, delta_of, epsilon_of, exact, flag_of, positive, probability_of, rounded_down


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


def test_a_float_that_prints_otherwise_is_still_itself():
    assert exact(Liar(0.1), "x") == Fraction(1, 10)


BAD = [
    float("nan"), float("inf"), -float("inf"), Decimal("sNaN"), Decimal("NaN"), Decimal("Infinity"), "0.1", None, True,
    np.bool_(True), 1j, [1], 10**5000, Fraction(1, 10**5000), -1, 0,
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("read", [positive, epsilon_of, delta_of, probability_of])
def test_what_is_no_parameter_is_refused_as_our_own_error(read, bad):
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
