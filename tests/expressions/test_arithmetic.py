"""Integer arithmetic is exact or null beyond 64 bits, and comparisons with constants of any type are exact."""

import math
from fractions import Fraction

import polars as pl
import pytest

from dp_polars._engines.polars.program import Program
from dp_polars._expressions import Column, apply, constant

LOW, HIGH = -(2**63), 2**63 - 1
INTEGERS = [LOW, LOW + 1, -(2**62), -7, -3, -2, -1, 0, 1, 2, 3, 7, 10**9, 2**62, HIGH - 1, HIGH, None]
X, Y = Column("x", pl.Int64()), Column("y", pl.Int64())


def truncated(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


MEANING = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: None if b == 0 else a // b,
    "mod": lambda a, b: None if b == 0 else a % b,
    "truncdiv": lambda a, b: None if b == 0 else truncated(a, b),
}


def expected(name, a, b):
    found = None if a is None or b is None else MEANING[name](a, b)
    return found if found is not None and LOW <= found <= HIGH else None


@pytest.mark.slow
@pytest.mark.parametrize("name", MEANING)
def test_integers_are_exact_or_null(name):
    pairs = [(a, b) for a in INTEGERS for b in INTEGERS]
    frame = pl.DataFrame(
        {"x": [a for a, _ in pairs], "y": [b for _, b in pairs]}, schema={"x": pl.Int64, "y": pl.Int64}
    )
    (found,) = Program([apply(name, X, Y)]).columns(frame)
    assert found.to_list() == [expected(name, a, b) for a, b in pairs]


@pytest.mark.parametrize("name", MEANING)
def test_integers_with_a_constant_are_exact_or_null(name):
    frame = pl.DataFrame({"x": INTEGERS}, schema={"x": pl.Int64})
    for value in INTEGERS[:-1]:
        trees = [apply(name, X, constant(value)), apply(name, constant(value), X)]
        right, left = Program(trees).columns(frame)
        assert right.to_list() == [expected(name, a, value) for a in INTEGERS]
        assert left.to_list() == [expected(name, value, a) for a in INTEGERS]


COMPARISONS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
NUMBERS = [-3.5, -1, -0.5, 0, 0.5, 1, 2.5, 127, 128, 255.5, 256, 2.0**53, 2**63, -(2**63), 2**64, 1e300, -1e300]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt8, pl.Int64, pl.UInt64, pl.Decimal(20, 2)], ids=str)
@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_with_a_number_is_exact(name, dtype):
    low, high = {pl.Int8: (-128, 127), pl.UInt8: (0, 255), pl.UInt64: (0, 2**64 - 1)}.get(dtype, (LOW, HIGH))
    values = [v for v in (low, -3, -1, 0, 1, 2, 3, 127, 128, 255, high) if low <= v <= high] + [None]
    if isinstance(dtype, pl.Decimal):
        values = [v for v in values if v is None or abs(v) < 10**10]
    column = pl.Series("x", values, dtype=dtype)
    for number in NUMBERS:
        given = constant(number)
        (found,) = Program([apply(name, Column("x", column.dtype), given)]).columns(column.to_frame())
        wanted = [None if v is None else COMPARISONS[name](Fraction(v), Fraction(number)) for v in values]
        assert found.to_list() == wanted, number


@pytest.mark.slow
def test_dates_are_compared_with_times_exactly():
    import datetime as dt

    days = pl.DataFrame({"x": [dt.date(2020, 1, 1), dt.date(2020, 1, 2), None]})
    noon = constant(dt.datetime(2020, 1, 1, 12))
    day = Column("x", pl.Date())
    trees = [apply(name, day, noon) for name in ("lt", "ge", "eq", "ne")]
    found = [one.to_list() for one in Program(trees).columns(days)]
    assert found == [[True, False, None], [False, True, None], [False, False, None], [True, True, None]]


def test_is_in_leaves_out_what_the_type_can_not_hold():
    values = constant([1.0, 2.5, 300.0])
    (found,) = Program([apply("is_in", Column("x", pl.Int8()), values=values)]).columns(
        pl.DataFrame({"x": [1, 2, 44, None]}, schema={"x": pl.Int8})
    )
    assert found.to_list() == [True, False, False, None]


def test_old_values_that_are_equal_in_the_columns_type_do_not_multiply_rows():
    old = constant([5.0, 5.25, 5.5])
    tree = apply("map_values", X, constant(False), old=old, new=constant([True, True, True]))
    (found,) = Program([tree]).columns(pl.DataFrame({"x": [5, 6, None]}))
    assert found.to_list() == [True, False, False]


def test_division_by_zero_is_null_and_zero_has_no_sign():
    frame = pl.DataFrame({"x": [1.0, -1.0, 0.0, -0.0], "y": [0.0, -0.0, 2.0, 2.0]})
    x, y = Column("x", pl.Float64()), Column("y", pl.Float64())
    quotient, text = Program([apply("div", x, y), apply("cast", apply("mul", x, y), to=pl.String())]).columns(frame)
    assert quotient.to_list()[:2] == [None, None]
    assert text.to_list() == ["0.0", "0.0", "0.0", "0.0"]
    assert not math.copysign(1, quotient[2]) < 0
