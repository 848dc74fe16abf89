"""The operations of the expression language: the types that they accept and return, and why they never fail.

Every operation is **row-wise**: its value in a row depends only on its arguments in that row and on public parameters.
It is also **total**: it has a value, possibly null, for every value of the types that it accepts, and never fails. The
reason for this stands beside each operation. `tests/expressions/test_evidence.py` runs every operation on every
combination of types that it accepts, with hostile values: a row alone, among others, shuffled, and in batches of
several sizes.

`apply` is the only way to build an operation. It converts arguments to the types that the operation works on: integers
to Int64, floats to Float64, categories to texts, and constants exactly to the type of the column beside them.

An entry of the table looks like this. The decorator registers the operation under its name, and the function checks the
arguments and parameters and returns the tree:

    @_operation("name", "Why it never fails.", spoken="what users call it", samples=(parameters for the tests,))
    def _name(x: Expression, *, parameter: int) -> Expression: ...
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any
from zoneinfo import available_timezones

import polars as pl

from dp_polars._expressions.constants import constant, converted, fits, held, in_units_of, too_many
from dp_polars._expressions.messages import Reason, Refused
from dp_polars._expressions.tree import Apply, Constant, Expression
from dp_polars._expressions.types import (
    CALENDAR,
    MOST_ARGUMENTS,
    MOST_DEPTH,
    MOST_INSERTED,
    MOST_LITERAL,
    MOST_NODES,
    MOST_TEXT,
    MOST_VALUES,
    NUMBERS,
    TEXTS,
    TICKS,
    kind_of,
)

_INT, _FLOAT, _TEXT, _TRUTH = pl.Int64(), pl.Float64(), pl.String(), pl.Boolean()

Build = Callable[..., Expression]


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes
    ----------
    name
        The name of the operation in trees.
    spoken
        What messages call it.
    build
        Checks arguments and parameters, and returns the tree.
    reason
        Why the operation never fails.
    arity
        The number of arguments. For operations with any number of arguments, the number that is tested.
    samples
        The parameters that it is tested with.
    """

    name: str
    spoken: str
    build: Build
    reason: str
    arity: int
    samples: tuple[dict[str, Any], ...]


OPERATIONS: dict[str, Operation] = {}


def _operation(
    name: str, reason: str, *, spoken: str = "", arity: int = 1, samples: Sequence[dict[str, Any]] = ({},)
) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        OPERATIONS[name] = Operation(name, spoken or name, build, reason, arity, tuple(samples))
        return build

    return register


def apply(name: str, /, *arguments: Expression, **parameters: Any) -> Expression:
    """Return an operation applied to expressions, after converting them to the types that it works on.

    Parameters
    ----------
    name
        One of `OPERATIONS`.
    *arguments
        The arguments of the operation.
    **parameters
        Public settings that are not values of rows, such as patterns, formats and digits.

    Raises
    ------
    ExpressionNotAllowed
        If the operation does not accept these types or parameters.

    Examples
    --------
    >>> import polars as pl
    >>> from dp_polars._expressions import Column
    >>> apply("year", Column("day", pl.Date()))
    Traceback (most recent call last):
    ...
    KeyError: 'year'
    >>> apply("date_part", Column("day", pl.Date()), part="year").dtype
    Int64
    """
    operation = OPERATIONS[name]
    if len(arguments) > MOST_ARGUMENTS and name != "case":
        raise Refused(
            operation.spoken, Reason(f"has more than {MOST_ARGUMENTS} arguments", _GROWS, "Use fewer at a time.")
        )
    for one in arguments:
        if kind_of(one.dtype) == "other":
            raise wrong_type(operation.spoken, one)
    return _small(operation.build(*(_read(one) for one in arguments), **parameters), operation.spoken)


def _read(one: Expression) -> Expression:
    """Return a category as its text. The code of a category depends on other rows."""
    return _make("cast", (one,), _TEXT, to=_TEXT) if kind_of(one.dtype) == "categorical" else one


def _small(made: Expression, spoken: str) -> Expression:
    if isinstance(made, Apply) and (made.depth > MOST_DEPTH or made.size > MOST_NODES):
        raise Refused(
            spoken,
            Reason(
                "is nested too deeply" if made.depth > MOST_DEPTH else "is part of too long an expression",
                f"Expressions may be nested {MOST_DEPTH} deep and have {MOST_NODES:,} steps in all.",
                "Split it over two `with_columns`, or use `is_in([...])` and `replace_strict(..., default=...)` for "
                "long choices.",
            ),
        )
    return made


def _make(name: str, arguments: Sequence[Expression], dtype: pl.DataType, /, **parameters: Any) -> Apply:
    return Apply(name, tuple(arguments), tuple(sorted(parameters.items())), dtype)


# ---------------------------------------------------------------------- messages

_LEAKS = "Whether a query fails must not reveal anything about a person's value."
_GROWS = "If the memory ran out because of one person's row, the failure would reveal that the person is in the data."


def wrong_type(spoken: str, *given: Expression, fix: str = "") -> Refused:
    """Return the refusal of types that an operation does not accept."""
    shown = " and ".join(dict.fromkeys(str(one.dtype) for one in given))
    advice = fix or "Cast its arguments to types that it accepts first."
    why = "Operations on private rows accept only types on which they never fail."
    return Refused(spoken, Reason(f"does not accept {shown}", why, advice))


def _bad(spoken: str, does: str, fix: str) -> Refused:
    return Refused(spoken, Reason(does, _LEAKS, fix))


# ---------------------------------------------------------------------- types


def _number(one: Expression, spoken: str) -> Expression:
    """Return a number as Int64 or Float64. Constants are converted exactly."""
    kind = kind_of(one.dtype)
    if kind == "null":
        return Constant(None, _INT)
    if kind not in NUMBERS:
        raise wrong_type(spoken, one)
    if kind in ("float", "decimal"):
        return _as(one, _FLOAT)
    return _as(one, _INT)


def _as(one: Expression, dtype: pl.DataType) -> Expression:
    if one.dtype == dtype:
        return one
    if isinstance(one, Constant):
        found = fits(one, dtype)
        if found is not None:
            return found
        if dtype == _FLOAT and isinstance(one.dtype, pl.Decimal):  # such as 0.1 in SQL: use the nearest float
            return Constant(float(Fraction(one.value, 10**one.dtype.scale)), dtype)
        if dtype == _INT and isinstance(one.value, bool):
            return Constant(int(one.value), dtype)
        return converted(one, dtype)
    return _make("cast", (one,), dtype, to=dtype)


def _numbers(given: Sequence[Expression], spoken: str) -> tuple[list[Expression], pl.DataType]:
    """Return numbers in a common type: Float64 if one of them is a float or a decimal, otherwise Int64."""
    found = [_number(one, spoken) for one in given]
    dtype = _FLOAT if any(one.dtype == _FLOAT for one in found) else _INT
    return [_as(one, dtype) for one in found], dtype


def _float(one: Expression, spoken: str) -> Expression:
    return _as(_number(one, spoken), _FLOAT)


def _text(one: Expression, spoken: str) -> Expression:
    if kind_of(one.dtype) == "null":
        return Constant(None, _TEXT)
    if kind_of(one.dtype) not in TEXTS:
        raise wrong_type(spoken, one, fix="It accepts texts; cast to pl.String first.")
    if isinstance(one, Constant):
        return Constant(one.value, _TEXT)
    return _as(one, _TEXT)


def _truth(one: Expression, spoken: str) -> Expression:
    if kind_of(one.dtype) == "null":
        return Constant(None, _TRUTH)
    if one.dtype != _TRUTH:
        raise wrong_type(spoken, one, fix="It accepts conditions: expressions that are true or false in each row.")
    return one


def _same(given: Sequence[Expression], spoken: str) -> list[Expression]:
    """Return values in a common type that can hold all of them."""
    held = [one for one in given if not isinstance(one, Constant)]
    kinds = {kind_of(one.dtype) for one in given} - {"null"}
    types = list(dict.fromkeys(one.dtype for one in held if kind_of(one.dtype) != "null"))
    if not kinds:
        return list(given)
    if not types:
        types = list(dict.fromkeys(one.dtype for one in given if kind_of(one.dtype) != "null"))
    if len(types) == 1 and (found := _all_fit(given, types[0])) is not None:
        return found
    if kinds <= {"boolean"}:
        target: pl.DataType = _TRUTH
    elif kinds <= {"integer", "boolean"}:
        target = _INT
    elif kinds <= NUMBERS:
        target = _FLOAT
    elif kinds <= TEXTS:
        return [_text(one, spoken) for one in given]
    elif kinds <= CALENDAR:
        target = _latest(given, spoken)
    else:
        raise wrong_type(spoken, *given, fix="Cast them to one type first, for example with `.cast(pl.Float64)`.")
    return [Constant(None, target) if kind_of(one.dtype) == "null" else _as(one, target) for one in given]


def _all_fit(given: Sequence[Expression], dtype: pl.DataType) -> list[Expression] | None:
    found: list[Expression] = []
    for one in given:
        own = fits(one, dtype) if isinstance(one, Constant) else one if one.dtype == dtype else None
        if own is None and kind_of(one.dtype) == "null":
            own = Constant(None, dtype)
        if own is None:
            return None
        found.append(own)
    return found


def _latest(given: Sequence[Expression], spoken: str) -> pl.DataType:
    """Return a type that can hold all of these dates and datetimes."""
    types = list(dict.fromkeys(one.dtype for one in given if isinstance(one.dtype, pl.Datetime)))
    zones = {one.time_zone for one in types if isinstance(one, pl.Datetime)}
    if len(zones) > 1 or (zones != {None} and len(types) > 1):
        raise wrong_type(spoken, *given, fix="Bring them to one time zone with `dt.convert_time_zone` first.")
    units = sorted((one.time_unit for one in types if isinstance(one, pl.Datetime)), key=lambda unit: TICKS[unit])
    zone = next(iter(zones), None)
    if zone is not None and any(kind_of(one.dtype) == "date" for one in given):
        raise wrong_type(spoken, *given, fix="Compare dates with `dt.date()` of the datetime.")
    return pl.Datetime(units[0], zone) if units else pl.Date()


# ---------------------------------------------------------------------- logic and comparisons


def _logic(name: str, spoken: str) -> None:
    def build(*given: Expression) -> Expression:
        if given and all(kind_of(one.dtype) in ("integer", "null") for one in given):
            return apply(f"bit_{name}", *given)
        return _make(name, [_truth(one, spoken) for one in given], _TRUTH)

    _operation(name, "Three-valued logic is defined for true, false and null.", spoken=spoken, arity=2)(build)


for _name, _spoken in (("and", "&"), ("or", "|"), ("xor", "^")):
    _logic(_name, _spoken)


def _bits(name: str, spoken: str) -> None:
    def build(a: Expression, b: Expression) -> Expression:
        if not all(kind_of(one.dtype) in ("integer", "null") for one in (a, b)):
            raise wrong_type(spoken, a, b)
        return _make(name, [_number(a, spoken), _number(b, spoken)], _INT)

    _operation(name, "Operations on the bits of 64-bit integers cannot overflow.", spoken=spoken, arity=2)(build)


for _name, _spoken in (("bit_and", "&"), ("bit_or", "|"), ("bit_xor", "^")):
    _bits(_name, _spoken)


@_operation("not", "It is defined for true and false, and null stays null.", spoken="~")
def _not(x: Expression) -> Expression:
    return _make("not", (_truth(x, "~"),), _TRUTH)


@_operation("is_null", "Every value either is null or is not.")
def _is_null(x: Expression) -> Expression:
    return _make("is_null", (x,), _TRUTH)


@_operation("is_not_null", "Every value either is null or is not.")
def _is_not_null(x: Expression) -> Expression:
    return _make("is_not_null", (x,), _TRUTH)


_COMPARISONS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq_missing": "eq_missing",
    "ne_missing": "ne_missing",
}
_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _comparison(name: str, spoken: str) -> None:
    def build(a: Expression, b: Expression) -> Expression:
        if isinstance(a, Constant) and not isinstance(b, Constant):
            return OPERATIONS[_TURNED.get(name, name)].build(b, a)
        if isinstance(b, Constant) and not isinstance(a, Constant) and (own := _against(name, a, b)) is not None:
            return own
        kinds = {kind_of(a.dtype), kind_of(b.dtype)} - {"null"}
        if kinds & {"list", "array", "struct"} or (kinds == {"enum"} and name in _TURNED):
            raise wrong_type(spoken, a, b)
        if kinds <= {"integer", "wide", "boolean"} and len({a.dtype, b.dtype}) > 1 and kinds != {"boolean"}:
            wide = pl.Int128() if {a.dtype, b.dtype} & {pl.UInt64(), pl.Int128(), pl.UInt128()} else _INT
            sides = [Constant(None, wide) if kind_of(one.dtype) == "null" else _as(one, wide) for one in (a, b)]
            return _make(name, sides, _TRUTH)
        if kinds <= {"duration"} and len({a.dtype, b.dtype}) > 1 and "null" not in (kind_of(a.dtype), kind_of(b.dtype)):
            raise wrong_type(spoken, a, b, fix="Bring both to one time unit with `dt.cast_time_unit` first.")
        if kinds == {"enum"} or "categorical" in kinds:
            return _make(name, [_text(a, spoken), _text(b, spoken)], _TRUTH)
        return _make(name, _same((a, b), spoken), _TRUTH)

    reason = "Both sides are first converted to one type, without a cast that can fail."
    _operation(name, reason, spoken=spoken, arity=2)(build)


for _name, _spoken in _COMPARISONS.items():
    _comparison(_name, _spoken)


def _against(name: str, x: Expression, value: Constant) -> Expression | None:
    """Return the exact comparison of a column with a constant that its type may not hold.

    None means that the general rules apply.
    """
    kind = kind_of(x.dtype)
    if kind not in ("integer", "wide", "decimal", "date", "datetime", "duration") or value.value is None:
        return None
    if (found := fits(value, x.dtype)) is not None:
        return _make(name, (x, found), _TRUTH)
    number = in_units_of(value, x.dtype)
    if number is None:
        return None
    if number.denominator == 1:  # an integer outside the type: the answer is the same for every value
        largest = number > 0
        return _always(x, {"lt": largest, "le": largest, "gt": not largest, "ge": not largest}, name)
    if name in _TURNED:
        # For integers x, x < 2.5 is the same as x <= 2, and x > 2.5 is the same as x > 2.
        edge = held(math.floor(number), x.dtype)
        if edge is None:
            return _always(x, {"lt": number > 0, "le": number > 0, "gt": number < 0, "ge": number < 0}, name)
        return _make("le" if name in ("lt", "le") else "gt", (x, edge), _TRUTH)
    return _always(x, {}, name)


def _always(x: Expression, outcome: dict[str, bool], name: str) -> Expression:
    """Return a comparison with the same outcome for every value. Null gives null, unless nulls are compared too."""
    told = Constant(outcome.get(name, name in ("ne", "ne_missing")), _TRUTH)
    of_null = told if name.endswith("_missing") else Constant(None, _TRUTH)
    return _make("case", (_make("is_null", (x,), _TRUTH), of_null, told), _TRUTH)


@_operation(
    "is_in",
    "The constants are converted exactly to the type of the column. Those that the type cannot hold equal no value and "
    "are left out.",
    samples=({"values": Constant((1, 2, None), pl.List(pl.Int64()))}, {"values": Constant(("a", ""), pl.List(_TEXT))}),
)
def _is_in(x: Expression, *, values: Constant, nulls_equal: bool = False) -> Expression:
    if not isinstance(values.dtype, pl.List):
        raise _bad("is_in", "needs a list of constants", "Write `.is_in([1, 2, 3])`.")
    kind, inner = kind_of(x.dtype), values.dtype.inner
    if kind in ("list", "array", "struct"):
        raise wrong_type("is_in", x)
    if kind in TEXTS:
        x = _text(x, "is_in")
    given = [Constant(one, inner) for one in values.value]  # type: ignore[arg-type]
    related = [one for one in given if one.value is None or _related(one, x.dtype)]
    if len(related) < len(given):
        raise wrong_type("is_in", x, values, fix="Write constants of the column's type.")
    found = [fits(one, x.dtype) for one in related if one.value is not None]
    unique = tuple(dict.fromkeys(one.value for one in found if one is not None))
    listed = Constant(unique, pl.List(x.dtype))
    inside = _make("is_in", (x,), _TRUTH, values=listed)
    if any(one.value is None for one in given) and nulls_equal:
        return _make("case", (_make("is_null", (x,), _TRUTH), Constant(True, _TRUTH), inside), _TRUTH)
    if nulls_equal:
        return _make("case", (_make("is_null", (x,), _TRUTH), Constant(False, _TRUTH), inside), _TRUTH)
    return inside


def _inner_of(values: Constant) -> pl.DataType:
    return values.dtype.inner if isinstance(values.dtype, pl.List) else values.dtype  # type: ignore[return-value]


def _related(value: Constant, dtype: pl.DataType) -> bool:
    if kind_of(dtype) in TEXTS:
        return isinstance(value.value, str)
    if dtype == _TRUTH:
        return isinstance(value.value, bool)
    return in_units_of(value, dtype) is not None


@_operation(
    "case",
    "It returns the first value whose condition is true. All values are total, and are first converted to one type.",
    spoken="when/then/otherwise",
    arity=3,
)
def _case(*given: Expression) -> Expression:
    if len(given) % 2 == 0 or len(given) < 3:
        raise _bad("when/then/otherwise", "needs alternating conditions and values", "End with `otherwise`.")
    conditions = [_truth(one, "when") for one in given[:-1:2]]
    values = _same([*given[1:-1:2], given[-1]], "when/then/otherwise")
    parts = [part for pair in zip(conditions, values[:-1], strict=True) for part in pair]
    return _make("case", [*parts, values[-1]], values[-1].dtype)


@_operation(
    "coalesce", "It returns the first value that is not null. All values are first converted to one type.", arity=2
)
def _coalesce(*given: Expression) -> Expression:
    values = _same(given, "coalesce")
    return _make("coalesce", values, values[0].dtype) if len(values) > 1 else values[0]


# ---------------------------------------------------------------------- numbers

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
            return _moved(name, spoken, a, b)
        values, dtype = _numbers((a, b), spoken)
        return _make(name, values, dtype)

    _operation(name, _EXACT, spoken=spoken, arity=2)(build)


for _name, _spoken in (("add", "+"), ("sub", "-"), ("mul", "*")):
    _arithmetic(_name, _spoken)


def _moved(name: str, spoken: str, a: Expression, b: Expression) -> Expression:
    """Return arithmetic with times and durations, computed on the integers that they are stored as."""
    first, second = kind_of(a.dtype), kind_of(b.dtype)
    if first == "null" or second == "null":
        other = a if second == "null" else b
        return Constant(None, other.dtype)
    if name == "add" and first == "duration" and second in CALENDAR:
        return _moved(name, spoken, b, a)
    if name == "mul":
        return _stretched(a, b, spoken) if first == "duration" else _stretched(b, a, spoken)
    if first == second == "duration":
        sides = _units((a, b), spoken)
        return _ticks_of(name, sides, sides[0].dtype)
    if name == "sub" and first in CALENDAR and second in CALENDAR:
        sides = [_instant(one, spoken) for one in _same((a, b), spoken)]
        unit = sides[0].dtype.time_unit  # type: ignore[attr-defined]
        return _ticks_of("sub", sides, pl.Duration(unit))
    if first in CALENDAR and second == "duration":
        moved = _instant(a, spoken, like=b)
        unit = moved.dtype.time_unit  # type: ignore[attr-defined]
        span = _as_unit(b, unit, spoken)
        made = _ticks_of(name, [moved, span], moved.dtype)
        whole_days = isinstance(b, Constant) and b.value is not None and b.value % (86_400 * _ticks(b.dtype)) == 0
        return _make("cast", (made,), pl.Date(), to=pl.Date()) if first == "date" and whole_days else made
    raise wrong_type(spoken, a, b)


def _ticks(dtype: pl.DataType) -> int:
    return TICKS[dtype.time_unit]  # type: ignore[attr-defined]


def _instant(one: Expression, spoken: str, like: Expression | None = None) -> Expression:
    """Return a date or datetime as a datetime."""
    if kind_of(one.dtype) == "datetime":
        return one
    unit: Any = like.dtype.time_unit if like is not None else "us"  # type: ignore[attr-defined]
    return _as(one, pl.Datetime(unit))


def _as_unit(one: Expression, unit: str, spoken: str) -> Expression:
    if isinstance(one, Constant):
        found = fits(one, pl.Duration(unit))  # type: ignore[arg-type]
        if found is None:
            raise _bad(spoken, "mixes time units", "Use `dt.cast_time_unit` on the column first.")
        return found
    if one.dtype != pl.Duration(unit):  # type: ignore[arg-type]
        raise _bad(spoken, "mixes time units", "Bring both to one with `dt.cast_time_unit` first.")
    return one


def _units(given: Sequence[Expression], spoken: str) -> list[Expression]:
    held: list[Expression] = [one for one in given if not isinstance(one, Constant)]
    held = held or list(given)
    return [_as_unit(one, held[0].dtype.time_unit, spoken) for one in given]  # type: ignore[attr-defined]


def _ticks_of(name: str, sides: Sequence[Expression], dtype: pl.DataType) -> Expression:
    whole = [_physical(one) for one in sides]
    return _make("cast", (_make(name, whole, _INT),), dtype, to=dtype)


def _physical(one: Expression) -> Expression:
    return Constant(one.value, _INT) if isinstance(one, Constant) else _make("cast", (one,), _INT, to=_INT)


def _stretched(span: Expression, factor: Expression, spoken: str) -> Expression:
    if kind_of(span.dtype) != "duration" or kind_of(factor.dtype) not in ("integer", "float"):
        raise wrong_type(spoken, span, factor)
    number = apply("mul", _physical(span), factor)
    return _make("cast", (_as(number, _INT),), span.dtype, to=span.dtype)


@_operation("div", "Numbers are divided as floats, and division by 0 gives null.", spoken="/", arity=2)
def _div(a: Expression, b: Expression) -> Expression:
    if kind_of(a.dtype) == "duration":
        if kind_of(b.dtype) == "duration":
            sides = _units((a, b), "/")
            return apply("div", _physical(sides[0]), _physical(sides[1]))
        number = _div(_physical(a), b)
        return _make("cast", (_as(number, _INT),), a.dtype, to=a.dtype)
    return _make("div", (_float(a, "/"), _float(b, "/")), _FLOAT)


def _division(name: str, spoken: str, rounding: str) -> None:
    def build(a: Expression, b: Expression) -> Expression:
        values, dtype = _numbers((a, b), spoken)
        return _make(name, values, dtype)

    reason = f"{rounding} Division by 0 gives null, and so does a result that does not fit into 64 bits."
    _operation(name, reason, spoken=spoken, arity=2)(build)


_division("floordiv", "//", "The quotient is rounded down.")
_division("truncdiv", "truncdiv", "The quotient is rounded towards 0.")
_division("mod", "%", "The remainder has the sign of the divisor.")


def _of_number(name: str, why: str) -> None:
    def build(x: Expression) -> Expression:
        if kind_of(x.dtype) == "duration" and name in ("neg", "abs", "sign"):
            made = _make(name, (_physical(x),), _INT)
            return made if name == "sign" else _make("cast", (made,), x.dtype, to=x.dtype)
        one = _number(x, name)
        return _make(name, (one,), one.dtype)

    _operation(name, why, spoken="-" if name == "neg" else name)(build)


_of_number("neg", _EXACT)
_of_number("abs", _EXACT)
_of_number("sign", "Every number has the sign -1, 0 or 1, and NaN stays NaN.")


def _rounding(name: str) -> None:
    def build(x: Expression) -> Expression:
        one = _number(x, name)
        return one if one.dtype == _INT else _make(name, (one,), _FLOAT)

    _operation(name, "IEEE 754 rounds every float to an integral one. Integers do not change.")(build)


_rounding("floor")
_rounding("ceil")

_DIGITS = ({"digits": 0}, {"digits": 2}, {"digits": 15})


@_operation("round", "A float is scaled, rounded and scaled back. Integers do not change.", samples=_DIGITS)
def _round(x: Expression, *, digits: int = 0, mode: str = "half_away") -> Expression:
    _whole_in(digits, 0, 15, "round", "digits")
    if mode not in ("half_away", "half_even"):
        raise _bad("round", f"has no mode {mode!r}", "Use 'half_away_from_zero' or 'half_to_even'.")
    one = _number(x, "round")
    return one if one.dtype == _INT else _make("round", (one,), _FLOAT, digits=digits, mode=mode)


@_operation("trunc", "Digits after the decimal point are cut off. Integers do not change.", samples=_DIGITS)
def _trunc(x: Expression, *, digits: int = 0) -> Expression:
    _whole_in(digits, 0, 15, "truncate", "digits")
    one = _number(x, "truncate")
    return one if one.dtype == _INT else _make("trunc", (one,), _FLOAT, digits=digits)


def _whole_in(value: Any, low: int, high: int, spoken: str, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _bad(spoken, f"needs {what} between {low:,} and {high:,}", "Write an integer in that range.")
    return value


_FUNCTIONS = (
    *("sqrt", "cbrt", "exp", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "degrees", "radians"),
)


def _real(name: str) -> None:
    def build(x: Expression) -> Expression:
        return _make(name, (_float(x, name),), _FLOAT)

    _operation(name, "Where the function is undefined, it returns NaN or an infinity.")(build)


for _name in _FUNCTIONS:
    _real(_name)


@_operation(
    "log",
    "The base is a public constant. Where there is no logarithm, it returns NaN or -inf.",
    samples=({"base": math.e}, {"base": 10.0}, {"base": 2.0}),
)
def _log(x: Expression, *, base: float = math.e) -> Expression:
    if not isinstance(base, int | float) or not math.isfinite(base) or base <= 0 or base == 1:
        raise _bad("log", "needs a positive base other than 1", "Write `.log(10)`.")
    return _make("log", (_float(x, "log"),), _FLOAT, base=float(base))


@_operation(
    "pow",
    "Floats follow IEEE 754, which defines pow for all of them. Small powers of integers are products.",
    spoken="**",
    arity=2,
)
def _pow(a: Expression, b: Expression) -> Expression:
    whole = kind_of(a.dtype) == "integer" and isinstance(b, Constant) and b.value in (0, 1, 2, 3) and b.dtype == _INT
    if whole and isinstance(b, Constant):
        if b.value == 0:
            return _make("case", (_make("is_null", (a,), _TRUTH), Constant(None, _INT), Constant(1, _INT)), _INT)
        product = _number(a, "**")
        for _ in range(int(b.value) - 1):
            product = _make("mul", (product, _number(a, "**")), _INT)
        return product
    return _make("pow", (_float(a, "**"), _float(b, "**")), _FLOAT)


@_operation("atan2", "The angle is defined for every pair of floats. The sign of zeros is ignored.", arity=2)
def _atan2(a: Expression, b: Expression) -> Expression:
    return _make("atan2", (_float(a, "arctan2"), _float(b, "arctan2")), _FLOAT)


def _about_floats(name: str) -> None:
    def build(x: Expression) -> Expression:
        if kind_of(x.dtype) not in ("integer", "float", "boolean", "decimal", "null"):
            raise wrong_type(name, x)
        return _make(name, (_float(x, name),), _TRUTH)

    _operation(name, "Every float is finite, infinite or NaN.")(build)


for _name in ("is_nan", "is_finite", "is_infinite"):
    _about_floats(_name)


def _extreme(name: str, spoken: str) -> None:
    def build(*given: Expression) -> Expression:
        kinds = {kind_of(one.dtype) for one in given}
        if kinds & {"list", "array", "struct", "enum", "categorical", "wide", "other"}:
            raise wrong_type(spoken, *given)
        values = _same(given, spoken)
        if len({one.dtype for one in values}) > 1:
            raise wrong_type(spoken, *given)
        while len(values) > 2:  # in pairs, because an engine may name each argument several times
            pairs = [values[place : place + 2] for place in range(0, len(values), 2)]
            values = [_make(name, pair, pair[0].dtype) if len(pair) == 2 else pair[0] for pair in pairs]
        return _make(name, values, values[0].dtype) if len(values) == 2 else values[0]

    reason = "All values are first converted to one type. Nulls are ignored, and NaN is chosen only as a last resort."
    _operation(name, reason, spoken=spoken, arity=2)(build)


_extreme("least", "min_horizontal")
_extreme("greatest", "max_horizontal")


@_operation(
    "cut",
    "A number is compared exactly with public breaks and gets the label of its interval. NaN gives null.",
    samples=({"breaks": (0.0, 10.5), "labels": ("low", "middle", "high"), "left_closed": False},),
)
def _cut(x: Expression, *, breaks: tuple[float, ...], labels: tuple[str, ...], left_closed: bool) -> Expression:
    if kind_of(x.dtype) not in ("integer", "float"):
        raise wrong_type("cut", x)
    rising = all(a < b for a, b in pairwise(breaks))
    if not 1 <= len(breaks) <= 1000 or not rising or not all(map(math.isfinite, breaks)):
        raise _bad("cut", "needs 1 to 1,000 finite breaks in rising order", "Write `.cut([18, 65])`.")
    if len(labels) != len(breaks) + 1 or len(set(labels)) < len(labels):
        raise _bad("cut", "needs a different label for each interval", "Give one more label than breaks.")
    constant(list(labels))
    return _make("cut", (x,), pl.Enum(labels), breaks=tuple(map(float, breaks)), left_closed=bool(left_closed))


# ---------------------------------------------------------------------- conversion

_CASTS: dict[str, frozenset[str]] = {
    "boolean": frozenset({"boolean", "integer", "float"}),
    "integer": frozenset({"boolean", "integer", "wide", "float", "decimal", "text", *CALENDAR, "duration", "time"}),
    "wide": frozenset({"boolean", "integer", "wide"}),
    "float": frozenset({"boolean", "integer", "float", "decimal", "text"}),
    "text": frozenset({"boolean", "integer", "float", "decimal", *TEXTS, *CALENDAR, "time"}),
    "enum": TEXTS,
    "date": frozenset({"date", "datetime", "integer"}),
    "datetime": frozenset({"date", "datetime", "integer"}),
    "duration": frozenset({"duration", "integer"}),
    "decimal": frozenset({"decimal", "integer"}),
    "time": frozenset({"time"}),
}
_TARGETS = (
    *(pl.Boolean(), pl.Int8(), pl.Int64(), pl.UInt64(), pl.Float32(), pl.Float64(), pl.String(), pl.Enum(["a", "b"])),
    *(pl.Date(), pl.Datetime("us"), pl.Datetime("ns"), pl.Duration("us"), pl.Decimal(12, 2), pl.Int128()),
)


@_operation(
    "cast",
    "A value that the target type cannot hold becomes null, and so does a text that cannot be parsed or a date outside "
    "the years 1 to 9999.",
    samples=tuple({"to": dtype} for dtype in _TARGETS),
)
def _cast(x: Expression, *, to: pl.DataType) -> Expression:
    source, target = kind_of(x.dtype), kind_of(to)
    if target == "categorical":
        raise _bad(
            f"cast to {to}",
            "makes a type whose codes depend on other rows",
            "Cast to pl.String, or to a pl.Enum of known values.",
        )
    if source == "null" and target in _CASTS:
        return Constant(None, to)
    if isinstance(x, Constant) and (found := fits(x, to)) is not None:
        return found
    if x.dtype == to:
        return x
    if source == "text" and target == "date":
        return apply("parse_time", x, to=pl.Date(), format="%Y-%m-%d")
    if source not in _CASTS.get(target, frozenset()):
        fix = "Give the format: `str.to_datetime('%Y-%m-%d %H:%M')`." if target in ("datetime", "time") else ""
        raise wrong_type(f"cast to {to}", x, fix=fix or "Go through pl.Float64, pl.Int64 or pl.String.")
    if isinstance(to, pl.Datetime) and _zone(to) != _zone(x.dtype) and source != "integer":
        raise _bad(f"cast to {to}", "changes the time zone", "Use `dt.replace_time_zone` or `dt.convert_time_zone`.")
    if isinstance(x.dtype, pl.Datetime) and target == "date" and _zone(x.dtype) not in (None, "UTC"):
        return apply("to_date", x)
    return _make("cast", (x,), to, to=to)


def _zone(dtype: pl.DataType) -> str | None:
    return getattr(dtype, "time_zone", None)


@_operation(
    "map_values",
    "Old values are converted exactly to the type of the column and occur once, so each value matches at most one.",
    spoken="replace",
    arity=2,
    samples=(
        {"old": Constant((1, 2), pl.List(pl.Int64())), "new": Constant((3, 4), pl.List(pl.Int64()))},
        {"old": Constant(("a", "b"), pl.List(_TEXT)), "new": Constant((3, None), pl.List(pl.Int64()))},
    ),
)
def _map_values(x: Expression, default: Expression, *, old: Constant, new: Constant) -> Expression:
    if not (isinstance(old.dtype, pl.List) and isinstance(new.dtype, pl.List)):
        raise _bad("replace", "needs lists of constants", "Write `.replace_strict([1, 2], ['a', 'b'], default=None)`.")
    if len(new.value) == 1 and len(old.value) > 1:
        new = Constant(new.value * len(old.value), new.dtype)
    if len(old.value) != len(new.value):
        raise _bad("replace", "has a different number of old and new values", "Give one new value for each old one.")
    if len(old.value) > MOST_VALUES:
        raise too_many(len(old.value))
    if kind_of(x.dtype) in TEXTS:
        x = _text(x, "replace")
    if kind_of(x.dtype) in ("list", "array", "struct", "null", "wide"):
        raise wrong_type("replace", x)
    inner = _inner_of(new)
    results = _same([*(Constant(one, inner) for one in new.value), default], "replace")
    dtype = results[-1].dtype
    table: dict[Any, Any] = {}
    for own, result in zip(old.value, results, strict=False):
        given = Constant(own, old.dtype.inner)  # type: ignore[arg-type]
        if own is not None and not _related(given, x.dtype):
            raise wrong_type("replace", x, given, fix="Write old values of the column's type.")
        found = None if own is None else fits(given, x.dtype)
        if own is not None and found is None:
            continue  # no value of the column is equal to it
        key = None if found is None else found.value
        value = result.value if isinstance(result, Constant) else None
        if key in table and table[key] != value:
            raise _bad("replace", "gives one value two results", "Name each old value once.")
        table[key] = value
    of_null = Constant(table.pop(None), dtype) if None in table else None
    if not table:
        mapped: Expression = results[-1]
    else:
        mapped = _make(
            "map_values",
            (x, results[-1]),
            dtype,
            old=Constant(tuple(table), pl.List(x.dtype)),
            new=Constant(tuple(table.values()), pl.List(dtype)),
        )
    if of_null is None:
        return mapped
    return _make("case", (_make("is_null", (x,), _TRUTH), of_null, mapped), dtype)


# ---------------------------------------------------------------------- texts

_CUT = f"It reads and returns at most {MOST_TEXT:,} characters, so no text grows without limit."


def _of_text(name: str, dtype: pl.DataType, reason: str) -> None:
    def build(x: Expression) -> Expression:
        return _make(name, (_text(x, name),), dtype)

    _operation(name, reason, spoken=f"str.{name}")(build)


for _name in ("lower", "upper", "title", "reverse"):
    _of_text(_name, _TEXT, _CUT)
for _name in ("len_chars", "len_bytes"):
    _of_text(_name, _INT, "Every text has a length.")


def _fixed_text(value: Any, spoken: str, what: str, most: int = MOST_LITERAL) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise _bad(
            spoken, f"needs {what} that is a constant text of up to {most:,} characters", "Write a Python string."
        )
    return value


@_operation(
    "strip",
    "It removes characters of a public set from the ends, and the result may be empty.",
    spoken="str.strip_chars",
    samples=({"chars": None, "side": "both"}, {"chars": "ab", "side": "start"}, {"chars": " ", "side": "end"}),
)
def _strip(x: Expression, *, chars: str | None = None, side: str = "both") -> Expression:
    if chars is not None:
        _fixed_text(chars, "str.strip_chars", "characters")
    if side not in ("both", "start", "end"):
        raise _bad("str.strip_chars", f"has no side {side!r}", "Use both, start or end.")
    return _make("strip", (_text(x, "str.strip_chars"),), _TEXT, chars=chars, side=side)


@_operation("strip_prefix", "It removes a public prefix where there is one.", samples=({"prefix": "a"},))
def _strip_prefix(x: Expression, *, prefix: str) -> Expression:
    _fixed_text(prefix, "str.strip_prefix", "a prefix")
    return _make("strip_prefix", (_text(x, "str.strip_prefix"),), _TEXT, prefix=prefix)


@_operation("strip_suffix", "It removes a public suffix where there is one.", samples=({"suffix": "b"},))
def _strip_suffix(x: Expression, *, suffix: str) -> Expression:
    _fixed_text(suffix, "str.strip_suffix", "a suffix")
    return _make("strip_suffix", (_text(x, "str.strip_suffix"),), _TEXT, suffix=suffix)


def _edge(name: str) -> None:
    def build(x: Expression, y: Expression) -> Expression:
        return _make(name, (_text(x, f"str.{name}"), _text(y, f"str.{name}")), _TRUTH)

    _operation(name, "Any two texts can be compared byte by byte.", spoken=f"str.{name}", arity=2)(build)


_edge("starts_with")
_edge("ends_with")

_PATTERNS = ({"pattern": "a", "literal": True}, {"pattern": "[a-z]+(.)", "literal": False})


def _pattern(value: Any, literal: bool, spoken: str) -> str:
    found = _fixed_text(value, spoken, "a pattern")
    if not literal and re.search(r"(?<!\\)(?:\\\\)*\\C", found):
        raise _bad(spoken, r"uses \C, which splits characters", "Use a dot.")
    if not literal and re.search(r"\(\?[a-zA-Z]*-?[a-zA-Z]*-[a-zA-Z]*u", found):
        raise _bad(spoken, "switches Unicode off, which splits characters", "Leave (?-u) out.")
    return found


def _matching(name: str, dtype: pl.DataType, reason: str) -> None:
    def build(x: Expression, *, pattern: str, literal: bool = False) -> Expression:
        _pattern(pattern, literal, f"str.{name}")
        own = _text(x, f"str.{name}")
        return _make(name, (own,), dtype, pattern=pattern, literal=bool(literal))

    _operation(name, reason, spoken=f"str.{name}", samples=_PATTERNS)(build)


_SEARCH = "A public pattern, which is compiled beforehand, is searched for in linear time."
_matching("contains", _TRUTH, _SEARCH)
_matching("count_matches", _INT, _SEARCH)
_matching("find", _INT, f"{_SEARCH} It returns the number of bytes before the match, or null without a match.")


@_operation(
    "extract",
    f"{_SEARCH} It returns null without a match.",
    spoken="str.extract",
    samples=({"pattern": "([a-z]+)", "group": 1}, {"pattern": "b", "group": 0}),
)
def _extract(x: Expression, *, pattern: str, group: int = 1) -> Expression:
    _pattern(pattern, False, "str.extract")
    _whole_in(group, 0, 100, "str.extract", "a group")
    return _make("extract", (_text(x, "str.extract"),), _TEXT, pattern=pattern, group=group)


@_operation(
    "replace",
    f"{_CUT} A replacement has at most {MOST_INSERTED} characters.",
    spoken="str.replace",
    samples=(
        {"pattern": "a", "value": "bb", "literal": True, "n": -1},
        {"pattern": "([a-z])", "value": "<$1>", "literal": False, "n": 1},
    ),
)
def _replace(x: Expression, *, pattern: str, value: str, literal: bool = False, n: int = -1) -> Expression:
    _pattern(pattern, literal, "str.replace")
    _fixed_text(value, "str.replace", "a replacement", MOST_INSERTED)
    if not literal and value.count("$") > 4:
        raise _bad("str.replace", "inserts more than four groups", "Use fewer groups in the replacement.")
    if n not in (1, -1):
        raise _bad("str.replace", "replaces either the first match or all of them", "Use `replace` or `replace_all`.")
    own = _text(x, "str.replace")
    return _make("replace", (own,), _TEXT, pattern=pattern, value=value, literal=bool(literal), n=n)


@_operation(
    "slice",
    "A slice outside the text is empty.",
    spoken="str.slice",
    samples=({"offset": 0, "length": 2}, {"offset": -2, "length": None}, {"offset": 1, "length": None}),
)
def _slice(x: Expression, *, offset: int, length: int | None = None) -> Expression:
    _whole_in(offset, -(1 << 31), 1 << 31, "str.slice", "an offset")
    if length is not None:
        _whole_in(length, 0, 1 << 31, "str.slice", "a length")
    return _make("slice", (_text(x, "str.slice"),), _TEXT, offset=offset, length=length)


def _padding(name: str) -> None:
    def build(x: Expression, *, length: int, fill: str = " ") -> Expression:
        _whole_in(length, 0, 1000, f"str.{name}", "a length")
        if not isinstance(fill, str) or len(fill) != 1:
            raise _bad(f"str.{name}", "needs a single fill character", "Write it as a string of one character.")
        return _make(name, (_text(x, f"str.{name}"),), _TEXT, length=length, fill=fill)

    samples = ({"length": 5, "fill": "0"}, {"length": 3, "fill": "é"})
    _operation(name, f"{_CUT} The length is public.", spoken=f"str.{name}", samples=samples)(build)


_padding("pad_start")
_padding("pad_end")


@_operation("zfill", f"{_CUT} The length is public.", spoken="str.zfill", samples=({"length": 5},))
def _zfill(x: Expression, *, length: int) -> Expression:
    _whole_in(length, 0, 1000, "str.zfill", "a length")
    return _make("zfill", (_text(x, "str.zfill"),), _TEXT, length=length)


@_operation(
    "concat",
    _CUT,
    spoken="concat_str",
    arity=2,
    samples=({"separator": "", "ignore_nulls": False}, {"separator": "-", "ignore_nulls": True}),
)
def _concat(*given: Expression, separator: str = "", ignore_nulls: bool = False) -> Expression:
    _fixed_text(separator, "concat_str", "a separator", MOST_INSERTED)
    if not given:
        raise _bad("concat_str", "has no arguments", "Name a column.")
    texts = [_written(one) for one in given]
    return _make("concat", texts, _TEXT, separator=separator, ignore_nulls=bool(ignore_nulls))


def _written(one: Expression) -> Expression:
    """Return a value as text."""
    if kind_of(one.dtype) in TEXTS or kind_of(one.dtype) == "null":
        return _text(one, "concat_str")
    if isinstance(one, Constant) and kind_of(one.dtype) in ("integer", "boolean"):
        shown = None if one.value is None else str(one.value).lower()
        return Constant(shown, _TEXT)
    return _cast(one, to=_TEXT)


@_operation(
    "split_part",
    f"{_CUT} It returns null if there is no such part.",
    spoken="str.split",
    samples=({"separator": ",", "index": 0}, {"separator": "a", "index": -1}),
)
def _split_part(x: Expression, *, separator: str, index: int) -> Expression:
    _fixed_text(separator, "str.split", "a separator", MOST_INSERTED)
    _whole_in(index, -10_000, 10_000, "str.split", "an index")
    return _make("split_part", (_text(x, "str.split"),), _TEXT, separator=separator, index=index)


@_operation(
    "split",
    f"{_CUT} Every text can be split at a public separator.",
    spoken="str.split",
    samples=({"separator": ","}, {"separator": "a"}),
)
def _split(x: Expression, *, separator: str) -> Expression:
    _fixed_text(separator, "str.split", "a separator", MOST_INSERTED)
    return _make("split", (_text(x, "str.split"),), pl.List(_TEXT), separator=separator)


@_operation(
    "to_integer",
    "A text that is not an integer in the public base gives null.",
    spoken="str.to_integer",
    samples=({"base": 10}, {"base": 16}, {"base": 2}),
)
def _to_integer(x: Expression, *, base: int = 10) -> Expression:
    _whole_in(base, 2, 36, "str.to_integer", "a base")
    return _make("to_integer", (_text(x, "str.to_integer"),), _INT, base=base)


# ---------------------------------------------------------------------- dates and times

_INSIDE = "Times outside the years 1 to 9999 give null."
_PARTS_OF_DATES = (
    *("year", "iso_year", "quarter", "month", "week", "weekday", "day", "ordinal_day", "century", "millennium"),
    *("is_leap_year", "days_in_month"),
)
_PARTS_OF_TIMES = ("hour", "minute", "second", "millisecond", "microsecond", "nanosecond")


def _date(x: Expression, spoken: str, kinds: frozenset[str] = CALENDAR) -> Expression:
    if kind_of(x.dtype) == "null":
        return Constant(None, pl.Date() if "date" in kinds else pl.Datetime("us"))
    if kind_of(x.dtype) not in kinds:
        raise wrong_type(spoken, x, fix="It accepts dates and datetimes; parse texts with `str.to_date(format)` first.")
    return x


@_operation(
    "date_part",
    f"The calendar and the clock define every part. {_INSIDE}",
    spoken="dt",
    samples=tuple({"part": part} for part in (*_PARTS_OF_DATES, *_PARTS_OF_TIMES)),
)
def _date_part(x: Expression, *, part: str) -> Expression:
    if part not in (*_PARTS_OF_DATES, *_PARTS_OF_TIMES):
        raise _bad(f"dt.{part}", "is not a part of a date or time", "Use year, month, day, hour and so on.")
    kinds = frozenset({"datetime", "time"}) if part in _PARTS_OF_TIMES else CALENDAR
    return _make("date_part", (_date(x, f"dt.{part}", kinds),), _TRUTH if part == "is_leap_year" else _INT, part=part)


@_operation("to_date", f"Every time has a day. {_INSIDE}", spoken="dt.date")
def _to_date(x: Expression) -> Expression:
    own = _date(x, "dt.date")
    return own if own.dtype == pl.Date() else _make("to_date", (own,), pl.Date())


@_operation("to_time", f"Every datetime has a time of day. {_INSIDE}", spoken="dt.time")
def _to_time(x: Expression) -> Expression:
    return _make("to_time", (_date(x, "dt.time", frozenset({"datetime"})),), pl.Time())


@_operation(
    "epoch",
    f"The time since 1970 is rounded down, and is null if it does not fit into 64 bits. {_INSIDE}",
    spoken="dt.epoch",
    samples=tuple({"unit": unit} for unit in ("d", "s", "ms", "us", "ns")),
)
def _epoch(x: Expression, *, unit: str) -> Expression:
    if unit not in ("d", "s", *TICKS):
        raise _bad("dt.epoch", f"has no unit {unit!r}", "Use d, s, ms, us or ns.")
    own = _date(x, "dt.epoch")
    return _make("epoch", (own,), _INT, unit=unit)


_UNITS_OF_TIME = "ns|us|ms|mo|[smhdwqy]"
_SECONDS_OF: dict[str, Fraction] = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_DAYS_OF = {"w": 7, "mo": 31, "q": 92, "y": 366}
MOST_YEARS = 1000
"""Largest offset in years. A time in the years 1 to 9999 that moves by less stays within every engine's calendar."""


def _span(value: Any, spoken: str, *, negative: bool) -> str:
    """Return a time span such as '3mo', or refuse it. It may have up to `MOST_YEARS` years."""
    sign = "-?" if negative else ""
    found = value if isinstance(value, str) and len(value) <= 60 else ""
    steps = re.findall(rf"(\d+)({_UNITS_OF_TIME})", found)
    if not re.fullmatch(rf"{sign}(\d+({_UNITS_OF_TIME}))+", found) or any(len(n) > 18 for n, _ in steps):
        raise _bad(spoken, "needs a time span such as '3mo'", "Write it as a constant text: '1d', '3mo', '1y'.")
    days = Fraction(0)
    for number, unit in steps:
        days += int(number) * (_SECONDS_OF[unit] / 86_400 if unit in _SECONDS_OF else _DAYS_OF.get(unit, 1))
    if days > 366 * MOST_YEARS or (not negative and days == 0):
        raise _bad(spoken, f"needs a time span between 0 and {MOST_YEARS:,} years", "Write another time span.")
    return found


def _local(x: Expression, spoken: str) -> Expression:
    own = _date(x, spoken)
    if _zone(own.dtype) not in (None, "UTC"):
        raise _bad(
            f"{spoken} in the time zone {_zone(own.dtype)}",
            "fails where a local time does not exist",
            "Go through local time: `.dt.replace_time_zone(None)` before it, or use `dt.date()`.",
        )
    return own


def _stepwise(name: str, spoken: str, reason: str, *, negative: bool, samples: Sequence[str]) -> None:
    def build(x: Expression, **parameters: Any) -> Expression:
        (key, value), *more = parameters.items() or [("", None)]
        if more or key != ("by" if name == "offset_time" else "every"):
            raise _bad(spoken, "takes a single time span", "Write it as a text such as '1mo'.")
        own = _local(x, spoken)
        span = _span(value, spoken, negative=negative)
        clocks = re.findall(rf"\d+({_UNITS_OF_TIME})", span)
        if own.dtype == pl.Date() and any(unit in ("ns", "us", "ms", "s", "m", "h") for unit in clocks):
            raise _bad(spoken, "moves a date by less than a day", "Cast it to a datetime first.")
        if not negative and len(clocks) != 1:
            raise _bad(spoken, "takes a single unit of time", "Write it as a text such as '1mo'.")
        return _make(name, (own,), own.dtype, **{key: span})

    key = "by" if name == "offset_time" else "every"
    _operation(name, reason, spoken=spoken, samples=tuple({key: one} for one in samples))(build)


_stepwise(
    "truncate_time",
    "dt.truncate",
    f"Every time lies in one of the public periods. {_INSIDE}",
    negative=False,
    samples=("1d", "1w", "1mo", "1q", "7y"),
)
_stepwise(
    "round_time",
    "dt.round",
    f"Every time has a nearest start of a public period. {_INSIDE}",
    negative=False,
    samples=("1d", "1w", "1mo"),
)
_stepwise(
    "offset_time",
    "dt.offset_by",
    f"The offset is public and at most {MOST_YEARS:,} years. {_INSIDE}",
    negative=True,
    samples=("3d", "-1mo", "1000y", "-999y5mo"),
)


def _month(name: str) -> None:
    def build(x: Expression) -> Expression:
        own = _local(x, f"dt.{name}")
        return _make(name, (own,), own.dtype)

    _operation(name, f"Every month has a first and a last day. {_INSIDE}", spoken=f"dt.{name}")(build)


_month("month_start")
_month("month_end")

_TOTALS: dict[str, Fraction] = {
    "days": Fraction(86_400),
    "hours": Fraction(3_600),
    "minutes": Fraction(60),
    "seconds": Fraction(1),
    "milliseconds": Fraction(1, 10**3),
    "microseconds": Fraction(1, 10**6),
    "nanoseconds": Fraction(1, 10**9),
}


@_operation(
    "duration_total",
    "A duration is divided by a public unit. Whole numbers are rounded towards 0, and are null beyond 64 bits.",
    spoken="dt.total_days",
    samples=tuple({"unit": unit, "fractional": way} for unit in _TOTALS for way in (False, True)),
)
def _duration_total(x: Expression, *, unit: str, fractional: bool = False) -> Expression:
    if kind_of(x.dtype) != "duration":
        raise wrong_type(f"dt.total_{unit}", x, fix="It accepts durations.")
    if unit not in _TOTALS:
        raise _bad(f"dt.total_{unit}", "does not exist", "Use days, hours, minutes, seconds and so on.")
    ratio = Fraction(_TOTALS[unit]) * _ticks(x.dtype)
    whole = _physical(x)
    if fractional:
        return _make("div", (_as(whole, _FLOAT), Constant(float(ratio), _FLOAT)), _FLOAT)
    if ratio >= 1:
        return _make("truncdiv", (whole, Constant(int(ratio), _INT)), _INT)
    return _make("mul", (whole, Constant(int(1 / ratio), _INT)), _INT)


@_operation(
    "make_duration",
    "Integers are multiplied by public units, and a result that does not fit into 64 bits is null.",
    spoken="pl.duration",
    arity=1,
    samples=({"units": ("days",)}, {"units": ("microseconds",)}),
)
def _make_duration(*given: Expression, units: tuple[str, ...], time_unit: str = "us") -> Expression:
    if len(units) != len(given) or not all(unit in _TOTALS or unit == "weeks" for unit in units):
        raise _bad("pl.duration", "needs a unit for each number", "Use days=, hours= and so on.")
    total: Expression | None = None
    for one, unit in zip(given, units, strict=True):
        if kind_of(one.dtype) not in ("integer", "null"):
            raise wrong_type("pl.duration", one, fix="It accepts integers; cast to pl.Int64 first.")
        ticks = (Fraction(604_800) if unit == "weeks" else Fraction(_TOTALS[unit])) * TICKS[time_unit]
        if ticks < 1:
            raise _bad("pl.duration", f"cannot represent {unit} in this time unit", "Use time_unit='ns'.")
        part = _make("mul", (_number(one, "pl.duration"), Constant(int(ticks), _INT)), _INT)
        total = part if total is None else _make("add", (total, part), _INT)
    if total is None:
        raise _bad("pl.duration", "needs a number", "Use days=, hours= and so on.")
    dtype = pl.Duration(time_unit)  # type: ignore[arg-type]
    return _make("cast", (total,), dtype, to=dtype)


_STRPTIME = (
    {"to": pl.Date(), "format": "%Y-%m-%d"},
    {"to": pl.Datetime("us"), "format": "%Y-%m-%d %H:%M:%S"},
    {"to": pl.Time(), "format": "%H:%M:%S"},
)


@_operation(
    "parse_time", "A text that does not match the public format gives null.", spoken="str.strptime", samples=_STRPTIME
)
def _parse_time(x: Expression, *, to: pl.DataType, format: str) -> Expression:  # noqa: A002 - as in strptime
    _fixed_text(format, "str.strptime", "a format", 200)
    if kind_of(to) not in ("date", "datetime", "time") or _zone(to) not in (None, "UTC"):
        raise _bad("str.strptime", f"can't read {to}", "Parse without a time zone, then `.dt.replace_time_zone(...)`.")
    return _make("parse_time", (_text(x, "str.strptime"),), to, to=to, format=format)


@_operation(
    "format_time",
    f"Every time can be written in the public format. {_INSIDE}",
    spoken="dt.to_string",
    samples=({"format": "%Y-%m-%d"}, {"format": "%d %B %Y"}),
)
def _format_time(x: Expression, *, format: str) -> Expression:  # noqa: A002 - as in strftime
    _fixed_text(format, "dt.to_string", "a format", 200)
    return _make("format_time", (_date(x, "dt.to_string"),), _TEXT, format=format)


@_operation(
    "cast_time_unit",
    "A time that does not fit the finer unit gives null.",
    spoken="dt.cast_time_unit",
    samples=({"unit": "ms"}, {"unit": "ns"}),
)
def _cast_time_unit(x: Expression, *, unit: str) -> Expression:
    if kind_of(x.dtype) not in ("datetime", "duration") or unit not in TICKS:
        raise wrong_type("dt.cast_time_unit", x)
    datetime = isinstance(x.dtype, pl.Datetime)
    to = pl.Datetime(unit, _zone(x.dtype)) if datetime else pl.Duration(unit)  # type: ignore[arg-type]
    return x if x.dtype == to else _make("cast", (x,), to, to=to)


@_operation(
    "convert_zone",
    "It is the same instant, and only the name of the time zone changes.",
    spoken="dt.convert_time_zone",
    samples=({"zone": "Europe/Paris"},),
)
def _convert_zone(x: Expression, *, zone: str) -> Expression:
    own = _date(x, "dt.convert_time_zone", frozenset({"datetime"}))
    to = pl.Datetime(own.dtype.time_unit, _known_zone(zone))  # type: ignore[attr-defined]
    return _make("convert_zone", (own,), to, zone=zone)


@_operation(
    "replace_zone",
    "A local time that does not exist in the public time zone gives null. One that exists twice gives null, or the "
    f"publicly chosen one of the two. {_INSIDE}",
    spoken="dt.replace_time_zone",
    samples=({"zone": "Europe/Paris"}, {"zone": None}, {"zone": "Europe/Paris", "ambiguous": "earliest"}),
)
def _replace_zone(x: Expression, *, zone: str | None, ambiguous: str = "null") -> Expression:
    if ambiguous not in ("null", "earliest", "latest"):
        raise _bad("dt.replace_time_zone", f"has no choice {ambiguous!r}", "Use null, earliest or latest.")
    own = _date(x, "dt.replace_time_zone", frozenset({"datetime"}))
    known = None if zone is None else _known_zone(zone)
    to = pl.Datetime(own.dtype.time_unit, known)  # type: ignore[attr-defined]
    return _make("replace_zone", (own,), to, zone=zone, ambiguous=ambiguous)


def _known_zone(zone: Any) -> str:
    if not isinstance(zone, str) or zone not in available_timezones():
        raise _bad("dt", "names an unknown time zone", "Use a name such as 'Europe/Paris' or 'UTC'.")
    return zone


@_operation("combine", f"Every day can be combined with every time of day. {_INSIDE}", spoken="dt.combine", arity=2)
def _combine(x: Expression, time: Expression) -> Expression:
    own = _local(x, "dt.combine")
    if kind_of(time.dtype) not in ("time", "null"):
        raise wrong_type("dt.combine", x, time)
    day = apply("to_date", own)
    start = _make("cast", (_make("cast", (day,), pl.Datetime("us"), to=pl.Datetime("us")),), _INT, to=_INT)
    clock = Constant(None, _INT) if kind_of(time.dtype) == "null" else _physical(time)
    micro = _make("floordiv", (clock, Constant(1000, _INT)), _INT)
    whole = _make("add", (start, micro), _INT)
    to = pl.Datetime("us", _zone(own.dtype))
    return _make("cast", (whole,), to, to=to)


# ---------------------------------------------------------------------- lists and structs


def _list(x: Expression, spoken: str) -> Expression:
    if kind_of(x.dtype) not in ("list", "array"):
        raise wrong_type(spoken, x, fix="It accepts lists.")
    return x


def _inner(x: Expression) -> pl.DataType:
    return x.dtype.inner  # type: ignore[attr-defined,no-any-return]


@_operation("list_len", "Every list has a length, and null stays null.", spoken="list.len")
def _list_len(x: Expression) -> Expression:
    return _make("list_len", (_list(x, "list.len"),), _INT)


@_operation(
    "list_get",
    "It returns null if the list has no element at the public place.",
    spoken="list.get",
    samples=({"index": 0}, {"index": -1}, {"index": 5}),
)
def _list_get(x: Expression, *, index: int) -> Expression:
    _whole_in(index, -(1 << 31), 1 << 31, "list.get", "an index")
    own = _list(x, "list.get")
    if kind_of(_inner(own)) in ("other", "categorical"):
        raise wrong_type("list.get", x)
    return _make("list_get", (own,), _inner(own), index=index)


@_operation(
    "list_contains",
    "Every list either contains the public value or does not, and null stays null.",
    spoken="list.contains",
    samples=({"value": Constant(1, pl.Int64())}, {"value": Constant("a", _TEXT)}),
)
def _list_contains(x: Expression, *, value: Constant) -> Expression:
    own = _list(x, "list.contains")
    inner = _inner(own)
    if kind_of(inner) in ("list", "array", "struct", "other", "categorical", "null") or value.value is None:
        raise wrong_type("list.contains", x, value)
    if not _related(value, inner):
        raise wrong_type("list.contains", x, value)
    found = fits(value, inner)
    if found is None:
        return _always(own, {}, "eq")
    return _make("list_contains", (own,), _TRUTH, value=found)


def _list_number(name: str) -> None:
    def build(x: Expression) -> Expression:
        own = _list(x, f"list.{name[5:]}")
        if not _inner(own).is_integer() or _inner(own) in (pl.Int128(), pl.UInt128(), pl.UInt64()):
            raise wrong_type(f"list.{name[5:]}", x, fix="It accepts lists of integers of up to 64 bits.")
        return _make(name, (own,), _INT)

    reason = "Integers are summed in 128 bits, and a result that does not fit into 64 bits is null."
    _operation(name, reason, spoken=f"list.{name[5:]}")(build)


for _name in ("list_min", "list_max", "list_sum"):
    _list_number(_name)


@_operation(
    "list_join",
    f"{_CUT} The separator is public.",
    spoken="list.join",
    samples=({"separator": ", "},),
)
def _list_join(x: Expression, *, separator: str, ignore_nulls: bool = True) -> Expression:
    own = _list(x, "list.join")
    if _inner(own) != _TEXT or own.dtype.base_type() != pl.List:
        raise wrong_type("list.join", x, fix="It accepts lists of texts.")
    _fixed_text(separator, "list.join", "a separator", MOST_INSERTED)
    return _make("list_join", (own,), _TEXT, separator=separator, ignore_nulls=bool(ignore_nulls))


@_operation(
    "struct_field", "The type of the struct says which fields it has.", spoken="struct.field", samples=({"name": "a"},)
)
def _struct_field(x: Expression, *, name: str) -> Expression:
    if not isinstance(x.dtype, pl.Struct):
        raise wrong_type("struct.field", x, fix="It accepts structs.")
    field = next((one for one in x.dtype.fields if one.name == name), None)
    if field is None:
        known = ", ".join(one.name for one in x.dtype.fields)
        raise _bad("struct.field", f"names no field of the struct ({known})", "Use one of these.")
    dtype: pl.DataType = field.dtype  # type: ignore[assignment]
    if kind_of(dtype) in ("other", "categorical"):
        raise wrong_type("struct.field", x)
    return _make("struct_field", (x,), dtype, name=name)
