"""Logic, comparisons and choices."""

from __future__ import annotations

import math

import polars as pl

from dp_polars._expressions.constants import fits, held, in_units_of
from dp_polars._expressions.operations.base import (
    INT,
    OPERATIONS,
    TEXT,
    TRUTH,
    apply,
    as_condition,
    as_number,
    as_text,
    as_type,
    bad,
    common_type,
    comparable,
    make,
    operation,
    wrong_type,
)
from dp_polars._expressions.tree import Constant, Expression
from dp_polars._expressions.types import TEXTS, kind_of


def _logic(name: str, spoken: str) -> None:
    def build(*given: Expression) -> Expression:
        if given and all(kind_of(value.dtype) in ("integer", "null") for value in given):
            return apply(f"bit_{name}", *given)
        return make(name, [as_condition(value, spoken) for value in given], TRUTH)

    operation(name, "Three-valued logic is defined for true, false and null.", spoken=spoken, arity=2)(build)


for _name, _spoken in (("and", "&"), ("or", "|"), ("xor", "^")):
    _logic(_name, _spoken)


def _bits(name: str, spoken: str) -> None:
    def build(a: Expression, b: Expression) -> Expression:
        if not all(kind_of(value.dtype) in ("integer", "null") for value in (a, b)):
            raise wrong_type(spoken, a, b)
        return make(name, [as_number(a, spoken), as_number(b, spoken)], INT)

    operation(name, "Operations on the bits of 64-bit integers cannot overflow.", spoken=spoken, arity=2)(build)


for _name, _spoken in (("bit_and", "&"), ("bit_or", "|"), ("bit_xor", "^")):
    _bits(_name, _spoken)


@operation("not", "It is defined for true and false, and null stays null.", spoken="~")
def _not(x: Expression) -> Expression:
    return make("not", (as_condition(x, "~"),), TRUTH)


@operation("is_null", "Every value either is null or is not.")
def _is_null(x: Expression) -> Expression:
    return make("is_null", (x,), TRUTH)


@operation("is_not_null", "Every value either is null or is not.")
def _is_not_null(x: Expression) -> Expression:
    return make("is_not_null", (x,), TRUTH)


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
        if isinstance(b, Constant) and not isinstance(a, Constant) and (compared := _against(name, a, b)) is not None:
            return compared
        kinds = {kind_of(a.dtype), kind_of(b.dtype)} - {"null"}
        if kinds & {"list", "array", "struct"} or (kinds == {"enum"} and name in _TURNED):
            raise wrong_type(spoken, a, b)
        if kinds <= {"integer", "wide", "boolean"} and len({a.dtype, b.dtype}) > 1 and kinds != {"boolean"}:
            wide = pl.Int128() if {a.dtype, b.dtype} & {pl.UInt64(), pl.Int128(), pl.UInt128()} else INT
            sides = [Constant(None, wide) if kind_of(side.dtype) == "null" else as_type(side, wide) for side in (a, b)]
            return make(name, sides, TRUTH)
        if kinds <= {"duration"} and len({a.dtype, b.dtype}) > 1 and "null" not in (kind_of(a.dtype), kind_of(b.dtype)):
            raise wrong_type(spoken, a, b, fix="Bring both to one time unit with `dt.cast_time_unit` first.")
        if kinds == {"enum"} or "categorical" in kinds:
            return make(name, [as_text(a, spoken), as_text(b, spoken)], TRUTH)
        return make(name, common_type((a, b), spoken), TRUTH)

    reason = "Both sides are first converted to one type, without a cast that can fail."
    operation(name, reason, spoken=spoken, arity=2)(build)


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
        return make(name, (x, found), TRUTH)
    number = in_units_of(value, x.dtype)
    if number is None:
        return None
    if number.denominator == 1:  # an integer outside the type: the answer is the same for every value
        largest = number > 0
        return always(x, {"lt": largest, "le": largest, "gt": not largest, "ge": not largest}, name)
    if name in _TURNED:
        # For integers x, x < 2.5 is the same as x <= 2, and x > 2.5 is the same as x > 2.
        edge = held(math.floor(number), x.dtype)
        if edge is None:
            return always(x, {"lt": number > 0, "le": number > 0, "gt": number < 0, "ge": number < 0}, name)
        return make("le" if name in ("lt", "le") else "gt", (x, edge), TRUTH)
    return always(x, {}, name)


def always(x: Expression, outcome: dict[str, bool], name: str) -> Expression:
    """Return a comparison with the same outcome for every value. Null gives null, unless nulls are compared too."""
    result = Constant(outcome.get(name, name in ("ne", "ne_missing")), TRUTH)
    of_null = result if name.endswith("_missing") else Constant(None, TRUTH)
    return make("case", (make("is_null", (x,), TRUTH), of_null, result), TRUTH)


@operation(
    "is_in",
    "The constants are converted exactly to the type of the column. Those that the type cannot hold equal no value and "
    "are left out.",
    samples=({"values": Constant((1, 2, None), pl.List(pl.Int64()))}, {"values": Constant(("a", ""), pl.List(TEXT))}),
)
def _is_in(x: Expression, *, values: Constant, nulls_equal: bool = False) -> Expression:
    if not isinstance(values.dtype, pl.List):
        raise bad("is_in", "needs a list of constants", "Write `.is_in([1, 2, 3])`.")
    kind, inner = kind_of(x.dtype), values.dtype.inner
    if kind in ("list", "array", "struct"):
        raise wrong_type("is_in", x)
    if kind in TEXTS:
        x = as_text(x, "is_in")
    given = [Constant(value, inner) for value in values.value]  # type: ignore[arg-type]
    related = [item for item in given if item.value is None or comparable(item, x.dtype)]
    if len(related) < len(given):
        raise wrong_type("is_in", x, values, fix="Write constants of the column's type.")
    found = [fits(item, x.dtype) for item in related if item.value is not None]
    unique = tuple(dict.fromkeys(item.value for item in found if item is not None))
    listed = Constant(unique, pl.List(x.dtype))
    inside = make("is_in", (x,), TRUTH, values=listed)
    if any(item.value is None for item in given) and nulls_equal:
        return make("case", (make("is_null", (x,), TRUTH), Constant(True, TRUTH), inside), TRUTH)
    if nulls_equal:
        return make("case", (make("is_null", (x,), TRUTH), Constant(False, TRUTH), inside), TRUTH)
    return inside


@operation(
    "case",
    "It returns the first value whose condition is true. All values are total, and are first converted to one type.",
    spoken="when/then/otherwise",
    arity=3,
)
def _case(*given: Expression) -> Expression:
    if len(given) % 2 == 0 or len(given) < 3:
        raise bad("when/then/otherwise", "needs alternating conditions and values", "End with `otherwise`.")
    conditions = [as_condition(condition, "when") for condition in given[:-1:2]]
    values = common_type([*given[1:-1:2], given[-1]], "when/then/otherwise")
    parts = [part for pair in zip(conditions, values[:-1], strict=True) for part in pair]
    return make("case", [*parts, values[-1]], values[-1].dtype)


@operation(
    "coalesce", "It returns the first value that is not null. All values are first converted to one type.", arity=2
)
def _coalesce(*given: Expression) -> Expression:
    values = common_type(given, "coalesce")
    return make("coalesce", values, values[0].dtype) if len(values) > 1 else values[0]
