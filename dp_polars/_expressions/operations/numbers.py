"""Numbers: arithmetic, rounding, functions of floats, and intervals."""

from __future__ import annotations

import math
from itertools import pairwise

import polars as pl

from dp_polars._expressions.constants import constant
from dp_polars._expressions.operations.base import (
    FLOAT,
    INT,
    TRUTH,
    apply,
    as_float,
    as_number,
    as_type,
    bad,
    check_integer,
    common_numbers,
    common_type,
    make,
    operation,
    stored_integer,
    wrong_type,
)
from dp_polars._expressions.operations.times import common_unit, time_arithmetic
from dp_polars._expressions.tree import Constant, Expression
from dp_polars._expressions.types import TEXTS, kind_of

_EXACT = (
    "Integers are computed in 128 bits, and a result that does not fit into 64 bits is null. Floats follow IEEE 754, "
    "which defines every result."
)


def _arithmetic(name: str, spoken: str) -> None:
    def build(a: Expression, b: Expression) -> Expression:
        kinds = {kind_of(a.dtype), kind_of(b.dtype)}
        if name == "add" and kinds <= TEXTS | {"null"} and kinds != {"null"}:
            return apply("concat", a, b)
        if kinds & {"date", "datetime", "duration"}:
            return time_arithmetic(name, spoken, a, b)
        values, dtype = common_numbers((a, b), spoken)
        return make(name, values, dtype)

    operation(name, _EXACT, spoken=spoken, arity=2)(build)


for _name, _spoken in (("add", "+"), ("sub", "-"), ("mul", "*")):
    _arithmetic(_name, _spoken)


@operation("div", "Numbers are divided as floats, and division by 0 gives null.", spoken="/", arity=2)
def _div(a: Expression, b: Expression) -> Expression:
    if kind_of(a.dtype) == "duration":
        if kind_of(b.dtype) == "duration":
            sides = common_unit((a, b), "/")
            return apply("div", stored_integer(sides[0]), stored_integer(sides[1]))
        number = _div(stored_integer(a), b)
        return make("cast", (as_type(number, INT),), a.dtype, to=a.dtype)
    return make("div", (as_float(a, "/"), as_float(b, "/")), FLOAT)


def _division(name: str, spoken: str, rounding: str) -> None:
    def build(a: Expression, b: Expression) -> Expression:
        values, dtype = common_numbers((a, b), spoken)
        return make(name, values, dtype)

    reason = f"{rounding} Division by 0 gives null, and so does a result that does not fit into 64 bits."
    operation(name, reason, spoken=spoken, arity=2)(build)


_division("floordiv", "//", "The quotient is rounded down.")
_division("truncdiv", "truncdiv", "The quotient is rounded towards 0.")
_division("mod", "%", "The remainder has the sign of the divisor.")


def _of_number(name: str, why: str) -> None:
    def build(x: Expression) -> Expression:
        if kind_of(x.dtype) == "duration" and name in ("neg", "abs", "sign"):
            made = make(name, (stored_integer(x),), INT)
            return made if name == "sign" else make("cast", (made,), x.dtype, to=x.dtype)
        number = as_number(x, name)
        return make(name, (number,), number.dtype)

    operation(name, why, spoken="-" if name == "neg" else name)(build)


_of_number("neg", _EXACT)
_of_number("abs", _EXACT)
_of_number("sign", "Every number has the sign -1, 0 or 1, and NaN stays NaN.")


def _rounding(name: str) -> None:
    def build(x: Expression) -> Expression:
        number = as_number(x, name)
        return number if number.dtype == INT else make(name, (number,), FLOAT)

    operation(name, "IEEE 754 rounds every float to an integral one. Integers do not change.")(build)


_rounding("floor")
_rounding("ceil")

_DIGITS = ({"digits": 0}, {"digits": 2}, {"digits": 15})


@operation("round", "A float is scaled, rounded and scaled back. Integers do not change.", samples=_DIGITS)
def _round(x: Expression, *, digits: int = 0, mode: str = "half_away") -> Expression:
    check_integer(digits, 0, 15, "round", "digits")
    if mode not in ("half_away", "half_even"):
        raise bad("round", f"has no mode {mode!r}", "Use 'half_away_from_zero' or 'half_to_even'.")
    number = as_number(x, "round")
    return number if number.dtype == INT else make("round", (number,), FLOAT, digits=digits, mode=mode)


@operation("trunc", "Digits after the decimal point are cut off. Integers do not change.", samples=_DIGITS)
def _trunc(x: Expression, *, digits: int = 0) -> Expression:
    check_integer(digits, 0, 15, "truncate", "digits")
    number = as_number(x, "truncate")
    return number if number.dtype == INT else make("trunc", (number,), FLOAT, digits=digits)


_FUNCTIONS = (
    *("sqrt", "cbrt", "exp", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "degrees", "radians"),
)


def _real(name: str) -> None:
    def build(x: Expression) -> Expression:
        return make(name, (as_float(x, name),), FLOAT)

    operation(name, "Where the function is undefined, it returns NaN or an infinity.")(build)


for _name in _FUNCTIONS:
    _real(_name)


@operation(
    "log",
    "The base is a public constant. Where there is no logarithm, it returns NaN or -inf.",
    samples=({"base": math.e}, {"base": 10.0}, {"base": 2.0}),
)
def _log(x: Expression, *, base: float = math.e) -> Expression:
    if not isinstance(base, int | float) or not math.isfinite(base) or base <= 0 or base == 1:
        raise bad("log", "needs a positive base other than 1", "Write `.log(10)`.")
    return make("log", (as_float(x, "log"),), FLOAT, base=float(base))


@operation(
    "pow",
    "Floats follow IEEE 754, which defines pow for all of them. Small powers of integers are products.",
    spoken="**",
    arity=2,
)
def _pow(a: Expression, b: Expression) -> Expression:
    whole = kind_of(a.dtype) == "integer" and isinstance(b, Constant) and b.value in (0, 1, 2, 3) and b.dtype == INT
    if whole and isinstance(b, Constant):
        if b.value == 0:
            return make("case", (make("is_null", (a,), TRUTH), Constant(None, INT), Constant(1, INT)), INT)
        product = as_number(a, "**")
        for _ in range(int(b.value) - 1):
            product = make("mul", (product, as_number(a, "**")), INT)
        return product
    return make("pow", (as_float(a, "**"), as_float(b, "**")), FLOAT)


@operation("atan2", "The angle is defined for every pair of floats. The sign of zeros is ignored.", arity=2)
def _atan2(a: Expression, b: Expression) -> Expression:
    return make("atan2", (as_float(a, "arctan2"), as_float(b, "arctan2")), FLOAT)


def _about_floats(name: str) -> None:
    def build(x: Expression) -> Expression:
        if kind_of(x.dtype) not in ("integer", "float", "boolean", "decimal", "null"):
            raise wrong_type(name, x)
        return make(name, (as_float(x, name),), TRUTH)

    operation(name, "Every float is finite, infinite or NaN.")(build)


for _name in ("is_nan", "is_finite", "is_infinite"):
    _about_floats(_name)


def _extreme(name: str, spoken: str) -> None:
    def build(*given: Expression) -> Expression:
        kinds = {kind_of(value.dtype) for value in given}
        if kinds & {"list", "array", "struct", "enum", "categorical", "wide", "other"}:
            raise wrong_type(spoken, *given)
        values = common_type(given, spoken)
        if len({value.dtype for value in values}) > 1:
            raise wrong_type(spoken, *given)
        while len(values) > 2:  # in pairs, because an engine may name each argument several times
            pairs = [values[place : place + 2] for place in range(0, len(values), 2)]
            values = [make(name, pair, pair[0].dtype) if len(pair) == 2 else pair[0] for pair in pairs]
        return make(name, values, values[0].dtype) if len(values) == 2 else values[0]

    reason = "All values are first converted to one type. Nulls are ignored, and NaN is chosen only as a last resort."
    operation(name, reason, spoken=spoken, arity=2)(build)


_extreme("least", "min_horizontal")
_extreme("greatest", "max_horizontal")


@operation(
    "cut",
    "A number is compared exactly with public breaks and gets the label of its interval. NaN gives null.",
    samples=({"breaks": (0.0, 10.5), "labels": ("low", "middle", "high"), "left_closed": False},),
)
def _cut(x: Expression, *, breaks: tuple[float, ...], labels: tuple[str, ...], left_closed: bool) -> Expression:
    if kind_of(x.dtype) not in ("integer", "float"):
        raise wrong_type("cut", x)
    rising = all(a < b for a, b in pairwise(breaks))
    if not 1 <= len(breaks) <= 1000 or not rising or not all(map(math.isfinite, breaks)):
        raise bad("cut", "needs 1 to 1,000 finite breaks in rising order", "Write `.cut([18, 65])`.")
    if len(labels) != len(breaks) + 1 or len(set(labels)) < len(labels):
        raise bad("cut", "needs a different label for each interval", "Give one more label than breaks.")
    constant(list(labels))
    return make("cut", (x,), pl.Enum(labels), breaks=tuple(map(float, breaks)), left_closed=bool(left_closed))
