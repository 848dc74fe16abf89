"""The parser of Polars expressions. It turns the JSON form of an expression into a tree of our own.

The JSON is read node by node, and a node that is not understood in full is refused. The user's expression itself never
runs on private rows.
"""

from __future__ import annotations

import difflib
import io
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import polars as pl

from dp_polars._expressions.constants import NOT_FINITE, exact_number, from_series, whole
from dp_polars._expressions.messages import (
    OTHER_ROWS,
    PYTHON,
    SELECTOR,
    SERIES,
    UNKNOWN,
    Reason,
    Refused,
    fails,
    reason_for,
    refusal,
    spoken,
)
from dp_polars._expressions.operations import apply
from dp_polars._expressions.operations.texts import json_path
from dp_polars._expressions.tree import Column, Constant, Expression
from dp_polars._expressions.types import MOST_DEPTH, TEXTS, kind_of
from dp_polars.errors import ExpressionNotAllowed, InvalidParameterError

Tree = Any
"""A node of a Polars expression in JSON."""


@dataclass(frozen=True)
class Parsed:
    """A parsed expression: its tree and the name of its output column."""

    tree: Expression
    name: str


ReadNode = Callable[[Tree], Expression | None]
"""A function that reads nodes that look at several rows of one unit, and returns None for all other nodes."""


@dataclass(frozen=True)
class _Reading:
    what: str
    schema: pl.Schema
    node: ReadNode | None = None


def parse(expr: Any, *, schema: pl.Schema, what: str, node: ReadNode | None = None) -> tuple[Parsed, ...]:
    """Parse a Polars expression, the name of a column or a constant. Selectors may stand for several expressions.

    Parameters
    ----------
    expr
        The expression.
    schema
        The columns that it may read.
    what
        What messages call the expression: "filter", "by".
    node
        Reads nodes that this parser refuses, because they look at more than one row.

    Examples
    --------
    >>> schema = pl.Schema({"a": pl.Int64, "b": pl.Int64})
    >>> [one.name for one in parse(pl.col("a", "b") * 2, schema=schema, what="with_columns")]
    ['a', 'b']
    """
    scope = _Reading(what, schema, node)
    if isinstance(expr, str):
        return (Parsed(_column(expr, scope), expr),)
    tree = _serialized(expr, what)
    try:
        trees = _spelled_out(tree, scope)
        return tuple(Parsed(_read(part, scope, 0), _name(part)) for part in trees)
    except Refused as error:
        raise refusal(what, error.name, error.reason) from None


def read_node(tree: Tree, schema: pl.Schema, what: str, node: ReadNode | None = None) -> Expression:
    """Read a part of an expression that is given in JSON."""
    return _read(tree, _Reading(what, schema, node), 0)


def _serialized(expr: Any, what: str) -> Tree:
    if isinstance(expr, pl.Series):
        raise refusal(what, "a Series", SERIES)
    if isinstance(expr, bool | int | float | Decimal | date | time | timedelta | list | None):
        expr = pl.lit(expr)
    if not isinstance(expr, pl.Expr):
        raise InvalidParameterError(
            f"{what} takes a Polars expression (a `when` needs its `then`), the name of a column or a "
            f"constant, got {type(expr).__name__}."
        )
    try:
        return json.loads(expr.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, TypeError):
        # Polars serializes Python functions with pickle, if it can at all.
        raise refusal(what, "map_elements, map_batches, name.map or an object", PYTHON) from None
    except (RecursionError, pl.exceptions.PanicException):
        raise refusal(what, "an expression", _TOO_DEEP) from None


_TOO_DEEP = Reason(
    "is nested too deeply to be read",
    f"Expressions may be nested {MOST_DEPTH} deep.",
    "Split it over two `with_columns`, or use `is_in([...])` and `replace_strict(..., default=...)` for long choices.",
)

# ---------------------------------------------------------------------- nodes


def named(tree: Tree) -> tuple[str, Any]:
    """Return the name and the body of a node that Polars writes as `"Name"` or `{"Name": body}`."""
    if isinstance(tree, str):
        return tree, None
    if isinstance(tree, dict) and len(tree) == 1:
        return next(iter(tree.items()))
    return "a part that Polars writes in an unknown form", None


def _read(tree: Tree, scope: _Reading, depth: int) -> Expression:
    if depth > 2 * MOST_DEPTH:
        raise Refused("an expression", _TOO_DEEP)
    if scope.node is not None and (found := scope.node(tree)) is not None:
        return found
    name, body = named(tree)

    def read(part: Tree) -> Expression:
        return _read(part, scope, depth + 1)

    match name, body:
        case "Column", str():
            return _column(body, scope)
        case "Literal", dict():
            return _literal(body, tree)
        case "Alias", [inner, str()]:
            return read(inner)
        case "KeepName", dict():
            return read(body)
        case "RenameAlias", {"function": function, "expr": inner} if len(body) == 2 and named(function)[0] in _RENAMES:
            return read(inner)
        case "Cast", {"expr": inner, "dtype": {"Literal": dtype}, "options": "Strict" | "NonStrict"} if len(body) == 3:
            return _cast(read(inner), _type(dtype))
        case "Cast", {"options": "Overflowing"}:
            raise Refused("cast(wrap_numerical=True)", UNKNOWN)
        case "Ternary", {"predicate": when, "truthy": then, "falsy": otherwise} if len(body) == 3:
            return _choice(when, then, otherwise, read)
        case "BinaryExpr", {"left": left, "op": str(operator), "right": right} if len(body) == 3:
            if operator not in _OPERATORS:
                raise Refused(spoken(operator), UNKNOWN)
            return apply(_OPERATORS[operator], read(left), read(right))
        case "Function", {"input": list(inputs), "function": function} if len(body) == 2:
            return _function(function, inputs, read)
        case "Agg", _:
            name = f"Agg.{named(body)[0]}"
    raise Refused(spoken(name), reason_for(name))


def _cast(x: Expression, to: pl.DataType) -> Expression:
    if kind_of(x.dtype) == "categorical" and kind_of(to) not in TEXTS:
        raise Refused(
            f"cast from Categorical to {to}",
            Reason(
                "reads the codes of categories",
                "The code of a category depends on other rows.",
                "Cast to pl.String first. A text that is a number can then be cast further.",
            ),
        )
    return apply("cast", x, to=to)


def _choice(when: Tree, then: Tree, otherwise: Tree, read: Callable[[Tree], Expression]) -> Expression:
    """Return a chain of when/then/otherwise as a single choice so that a long chain is not deep."""
    parts = [read(when), read(then)]
    while True:
        name, body = named(otherwise)
        if name != "Ternary" or not isinstance(body, dict) or set(body) != {"predicate", "truthy", "falsy"}:
            break
        parts += [read(body["predicate"]), read(body["truthy"])]
        otherwise = body["falsy"]
    return apply("case", *parts, read(otherwise))


_RENAMES = frozenset({"Prefix", "Suffix", "ToLowercase", "ToUppercase", "Replace", "StripPrefix", "StripSuffix"})
_OPERATORS = {
    "Eq": "eq", "NotEq": "ne", "EqValidity": "eq_missing", "NotEqValidity": "ne_missing", "Lt": "lt", "LtEq": "le",
    "Gt": "gt", "GtEq": "ge", "Plus": "add", "Minus": "sub", "Multiply": "mul", "TrueDivide": "div",
    "FloorDivide": "floordiv", "TruncDivide": "truncdiv", "Modulus": "mod", "And": "and", "Or": "or", "Xor": "xor",
    "LogicalAnd": "and", "LogicalOr": "or",
}  # fmt: skip


def _column(name: str, scope: _Reading) -> Expression:
    dtype = scope.schema.get(name)
    if dtype is None:
        names = scope.schema.names()
        close = difflib.get_close_matches(name, names, n=3)
        more = ", ..." if len(names) > 20 else ""
        hint = f"Did you mean {' or '.join(close)}? " if close else ""
        hint += f"It has {', '.join(names[:20]) or 'no columns'}{more}."
        raise InvalidParameterError(
            f"The {scope.what} expression reads {name}, but the frame has no column {name}. {hint}",
            code="unknown-column",
        )
    return Column(name, dtype)


def _literal(body: dict[str, Any], tree: Tree) -> Constant:
    holder, value = named(body)
    name, content = named(value)
    if holder not in ("Dyn", "Scalar"):
        raise Refused("a literal", SERIES)
    if name in ("Float", "Float32", "Float64") and content is None:
        raise Refused("a literal", NOT_FINITE)
    if name == "Int":
        return whole(int(content))
    return from_series(_of_polars(tree, name))


def _of_polars(tree: Tree, name: str) -> pl.Series:
    """Return a literal by letting Polars read its own JSON, whose bytes we need not understand."""
    try:
        expr = pl.Expr.deserialize(io.BytesIO(json.dumps(tree).encode()), format="json")
        return pl.select(expr.alias("literal")).to_series()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError):
        raise Refused(f"a literal of type {name}", UNKNOWN) from None


def _type(dtype: Tree) -> pl.DataType:
    """Return a type from its JSON. Polars reads it by casting a null constant to it."""
    tree = {"Cast": {"expr": {"Literal": {"Scalar": {"Null": "Null"}}}, "dtype": {"Literal": dtype},
                     "options": "NonStrict"}}  # fmt: skip
    return _of_polars(tree, "type").dtype


def _name(tree: Tree) -> str:
    """Return the name of the output column, as Polars gives it."""
    name, body = named(tree)
    if name == "Alias":
        return str(body[1])
    if name == "Column":
        return str(body)
    try:
        expr = pl.Expr.deserialize(io.BytesIO(json.dumps(tree).encode()), format="json")
        if name == "KeepName":
            return str(expr.meta.root_names()[0])
        return str(expr.meta.output_name())
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, IndexError):
        return "literal"


# ---------------------------------------------------------------------- functions

Inputs = list[Expression]
Build = Callable[[Inputs, Any], Expression]

_FUNCTIONS: dict[str, Build] = {}


def _function(function: Tree, inputs: list[Tree], read: Callable[[Tree], Expression]) -> Expression:
    path, options = named(function)
    if path in _FAMILIES:
        name, options = named(_method(options))
        path = f"{path}.{name}"
    build = _FUNCTIONS.get(path)
    if build is None:
        raise Refused(spoken(path), reason_for(path))
    if path in ("Replace", "ReplaceStrict", "StringExpr.ReplaceMany", "StringExpr.ContainsAny"):
        inputs = [*inputs[:1], *map(_listed, inputs[1:])]
    given = [read(part) for part in inputs]
    tracked = _UnreadOptions(options) if isinstance(options, dict) else options
    try:
        made = build(given, tracked)
    except Refused:  # this is a ValueError too, but it has a reason already
        raise
    except (TypeError, ValueError, KeyError, IndexError):
        raise Refused(spoken(path), UNKNOWN) from None
    if isinstance(tracked, _UnreadOptions) and tracked.unread:
        # This is an option of a later version of Polars, which would be ignored.
        raise Refused(spoken(path), UNKNOWN)
    return made


class _UnreadOptions(dict[str, Any]):
    """Options of a function that keep track of which of them were read."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        # Failures are null in any case, so `strict` makes no difference.
        self.unread = set(options) - {"strict"}

    def __getitem__(self, name: str) -> Any:
        self.unread.discard(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an option that Polars may omit."""
        self.unread.discard(name)
        return super().get(name, default)


_FAMILIES = frozenset(
    {"Agg", "Business", "Extension", "Random", "Range", "RollingExpr", "RollingExprBy", "Boolean", "StringExpr", "Pow",
     "TemporalExpr", "ListExpr", "ArrayExpr", "StructExpr", "BinaryExpr", "Categorical", "Trigonometry", "Bitwise"}
)  # fmt: skip


def _method(options: Any) -> Any:
    """Return the function inside a family that Polars writes as `{"function": "Mean", "options": ...}`."""
    for key in ("function", "function_by", "method"):
        if isinstance(options, dict) and key in options:
            return options[key]
    return options


def _listed(tree: Tree) -> Tree:
    """Return the Series that `replace` makes of a Python list as a list again. Both hold the same bytes."""
    match tree:
        case {"Literal": {"Series": content}}:
            return {"Literal": {"Scalar": {"List": content}}}
    return tree


def _value(given: Expression, name: str) -> Any:
    """Return the value of a parameter, which must be a constant."""
    if not isinstance(given, Constant):
        raise Refused(name, _NEEDS_CONSTANT)
    return given.value


_NEEDS_CONSTANT = Reason(
    "takes a column where it needs a constant",
    "A pattern, length or list that comes from a row could make the query fail on that row, or mix rows.",
    "Pass a Python value.",
)


def _list_of(given: Expression, name: str) -> Constant:
    if not isinstance(given, Constant):
        raise Refused(name, Reason(_NEEDS_CONSTANT.does, _NEEDS_CONSTANT.why, "Pass a Python value (a list)."))
    return given if isinstance(given.dtype, pl.List) else Constant((given.value,), pl.List(given.dtype))


def _plain(path: str, operation: str, **parameters: Any) -> None:
    def build(given: Inputs, options: Any) -> Expression:
        if options is not None:
            raise Refused(spoken(path), UNKNOWN)
        return apply(operation, *given, **parameters)

    _FUNCTIONS[path] = build


def _reads(path: str) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        _FUNCTIONS[path] = build
        return build

    return register


for _path, _operation in {
    "Abs": "abs", "Negate": "neg", "Sign": "sign", "Floor": "floor", "Ceil": "ceil", "Exp": "exp", "Log1p": "log1p",
    "Pow.Sqrt": "sqrt", "Pow.Cbrt": "cbrt", "Pow.Generic": "pow", "Atan2": "atan2", "Coalesce": "coalesce",
    "FillNull": "coalesce", "MinHorizontal": "least", "MaxHorizontal": "greatest", "Boolean.IsNan": "is_nan",
    "Boolean.IsFinite": "is_finite", "Boolean.IsInfinite": "is_infinite", "Boolean.IsNull": "is_null",
    "Boolean.IsNotNull": "is_not_null", "Boolean.AnyHorizontal": "or", "Boolean.AllHorizontal": "and",
    "StringExpr.LenChars": "len_chars", "StringExpr.LenBytes": "len_bytes", "StringExpr.Reverse": "reverse",
    "StringExpr.Lowercase": "lower", "StringExpr.Uppercase": "upper", "StringExpr.Titlecase": "title",
    "StringExpr.StartsWith": "starts_with", "StringExpr.EndsWith": "ends_with", "TemporalExpr.Date": "to_date",
    "TemporalExpr.Time": "to_time", "TemporalExpr.MonthStart": "month_start", "TemporalExpr.MonthEnd": "month_end",
    "ListExpr.Length": "list_len", "ArrayExpr.Length": "list_len", "ListExpr.Min": "list_min",
    "ListExpr.Max": "list_max", "ListExpr.Sum": "list_sum", "Categorical.LenChars": "len_chars",
    "Categorical.LenBytes": "len_bytes",
    **{f"Trigonometry.{name}": operation for name, operation in {
        "Sin": "sin", "Cos": "cos", "Tan": "tan", "ArcSin": "asin", "ArcCos": "acos", "ArcTan": "atan",
        "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "ArcSinh": "asinh", "ArcCosh": "acosh", "ArcTanh": "atanh",
        "Degrees": "degrees", "Radians": "radians"}.items()},
}.items():  # fmt: skip
    _plain(_path, _operation)

for _path, _part in {
    "Millennium": "millennium", "Century": "century", "Year": "year", "IsoYear": "iso_year", "Quarter": "quarter",
    "Month": "month", "DaysInMonth": "days_in_month", "Week": "week", "WeekDay": "weekday", "Day": "day",
    "OrdinalDay": "ordinal_day", "Hour": "hour", "Minute": "minute", "Second": "second", "Nanosecond": "nanosecond",
    "Millisecond": "millisecond", "Microsecond": "microsecond", "IsLeapYear": "is_leap_year",
}.items():  # fmt: skip
    _plain(f"TemporalExpr.{_path}", "date_part", part=_part)

for _unit in ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds"):
    _FUNCTIONS[f"TemporalExpr.Total{_unit.capitalize()}"] = lambda given, options, unit=_unit: apply(  # type: ignore[misc]
        "duration_total", *given, unit=unit, fractional=bool(options["fractional"])
    )


@_reads("Boolean.Not")
def _not(given: Inputs, options: Any) -> Expression:
    return apply("not", *given)


@_reads("Boolean.IsNotNan")
def _is_not_nan(given: Inputs, options: Any) -> Expression:
    return apply("not", apply("is_nan", *given))


@_reads("Boolean.IsBetween")
def _is_between(given: Inputs, options: Any) -> Expression:
    x, low, high = given
    closed = options["closed"]
    first = apply("ge" if closed in ("Both", "Left") else "gt", x, low)
    last = apply("le" if closed in ("Both", "Right") else "lt", x, high)
    return apply("and", first, last)


@_reads("Boolean.IsIn")
def _is_in(given: Inputs, options: Any) -> Expression:
    x, values = given
    return apply("is_in", x, values=_list_of(values, "is_in"), nulls_equal=bool(options["nulls_equal"]))


@_reads("Boolean.IsClose")
def _is_close(given: Inputs, options: Any) -> Expression:
    x, y = given
    absolute, relative = options["abs_tol"], options["rel_tol"]
    if absolute is None or relative is None or not (math.isfinite(absolute) and math.isfinite(relative)):
        raise Refused("is_close", fails("Give finite tolerances."))
    gap = apply("abs", apply("sub", x, y))
    largest = apply("greatest", apply("abs", x), apply("abs", y))
    most = apply("greatest", apply("mul", largest, _number(relative)), _number(absolute))
    # A fraction of infinity is infinite, but only infinity itself is close to infinity.
    near = apply("or", apply("eq", x, y), apply("and", apply("is_finite", gap), apply("le", gap, most)))
    either = apply("or", apply("is_nan", x), apply("is_nan", y))
    both = apply("and", apply("is_nan", x), apply("is_nan", y))
    return apply("case", either, both if options["nans_equal"] else Constant(False, pl.Boolean()), near)


def _number(value: float) -> Constant:
    return Constant(float(value), pl.Float64())


@_reads("Round")
def _round(given: Inputs, options: Any) -> Expression:
    mode = {"HalfToEven": "half_even", "HalfAwayFromZero": "half_away"}[options["mode"]]
    return apply("round", *given, digits=int(options["decimals"]), mode=mode)


@_reads("Truncate")
def _truncate(given: Inputs, options: Any) -> Expression:
    return apply("trunc", *given, digits=int(options["decimals"]))


@_reads("Log")
def _log(given: Inputs, options: Any) -> Expression:
    x, base = given
    return apply("log", x, base=float(_value(base, "log")))


@_reads("Clip")
def _clip(given: Inputs, options: Any) -> Expression:
    x, *bounds = given
    if options["has_min"]:
        x = apply("case", apply("lt", x, bounds[0]), bounds[0], x)
    if options["has_max"]:
        above = apply("gt", x, bounds[-1])
        if kind_of(x.dtype) == "float":  # NaN compares as the largest number, but is not clipped
            above = apply("and", above, apply("not", apply("is_nan", x)))
        x = apply("case", above, bounds[-1], x)
    return x


@_reads("SumHorizontal")
def _sum_horizontal(given: Inputs, options: Any) -> Expression:
    total: Expression | None = None
    for part in given:
        zero = Constant(0, part.dtype if kind_of(part.dtype) == "duration" else pl.Int64())
        term = apply("coalesce", _counted(part), zero) if options["ignore_nulls"] else _counted(part)
        total = term if total is None else apply("add", total, term)
    if total is None:
        raise Refused("sum_horizontal", UNKNOWN)
    return total


def _counted(value: Expression) -> Expression:
    return apply("cast", value, to=pl.Int64()) if kind_of(value.dtype) == "boolean" else value


@_reads("MeanHorizontal")
def _mean_horizontal(given: Inputs, options: Any) -> Expression:
    present = [apply("cast", apply("is_not_null", part), to=pl.Int64()) for part in given]
    total = _sum_horizontal(given, options)
    count = _sum_horizontal(present, {"ignore_nulls": True})
    return apply("div", total, count if options["ignore_nulls"] else Constant(len(given), pl.Int64()))


@_reads("Cut")
def _cut(given: Inputs, options: Any) -> Expression:
    breaks, left = options["breaks"], bool(options["left_closed"])
    if options.get("include_breaks") or None in breaks:
        raise Refused("cut", fails("Give finite breaks and leave out include_breaks."))
    edges = ["-inf", *map(_shown, breaks), "inf"]
    marks = ("[", ")") if left else ("(", "]")
    default_labels = [f"{marks[0]}{a}, {b}{marks[1]}" for a, b in pairwise(edges)]
    return apply(
        "cut", *given, breaks=tuple(breaks), labels=tuple(options["labels"] or default_labels), left_closed=left
    )


@_reads("Bin")
def _bin_intervals(given: Inputs, options: Any) -> Expression:
    match options:
        case {
            "method": {"Intervals": {"spec": {"Breaks": breaks}, "right_closed": right}},
            "labels": list(labels),
            "include_intervals": False,
        } if len(options) == 3:
            found = from_series(_of_polars({"Literal": {"Scalar": {"List": breaks}}}, "breaks"))
            edges = [exact_number(Constant(edge, found.dtype.inner)) for edge in found.value]  # type: ignore[attr-defined]
            if None in edges or any(edge != float(edge) for edge in edges if edge is not None):
                raise Refused("bin_intervals", fails("Give breaks that are numbers."))
            floats = tuple(float(edge) for edge in edges if edge is not None)
            return apply("cut", *given, breaks=floats, labels=tuple(labels), left_closed=not right)
        case {"method": {"Intervals": {"spec": {"Breaks": _}}}}:
            raise Refused("bin_intervals", fails("Give labels and leave out include_intervals."))
    raise Refused("bin_quantiles, bin_ranks or a number of bins", OTHER_ROWS)


def _shown(edge: float) -> str:
    return str(int(edge)) if edge == int(edge) and abs(edge) < 1e15 else repr(float(edge))


@_reads("Replace")
def _replace(given: Inputs, options: Any) -> Expression:
    x, old, new = given
    text = apply("cast", x, to=pl.String()) if kind_of(x.dtype) in ("categorical", "enum") else x
    return apply("map_values", text, text, old=_list_of(old, "replace"), new=_list_of(new, "replace"))


@_reads("ReplaceStrict")
def _replace_strict(given: Inputs, options: Any) -> Expression:
    if len(given) != 4:
        raise Refused("replace_strict", fails("Give it a default: `replace_strict(old, new, default=None)`."))
    x, old, new, default = given
    lists = {"old": _list_of(old, "replace_strict"), "new": _list_of(new, "replace_strict")}
    found = apply("map_values", x, default, **lists)
    wanted = options.get("return_dtype") if isinstance(options, dict) else None
    return found if wanted is None else apply("cast", found, to=_type(wanted.get("Literal", wanted)))


# Texts.


@_reads("StringExpr.ConcatHorizontal")
def _concat(given: Inputs, options: Any) -> Expression:
    return apply("concat", *given, separator=options["delimiter"], ignore_nulls=bool(options["ignore_nulls"]))


@_reads("StringExpr.Format")
def _format(given: Inputs, options: Any) -> Expression:
    text, places, parts, last = options["format"].encode(), options["insertions"], [], 0
    for argument, place in zip(given, places, strict=True):
        parts += [Constant(text[last:place].decode(), pl.String()), argument]
        last = place
    parts.append(Constant(text[last:].decode(), pl.String()))
    kept = [part for part in parts if not (isinstance(part, Constant) and part.value == "")]
    return apply("concat", *(kept or parts[:1]))


@_reads("StringExpr.Contains")
def _contains(given: Inputs, options: Any) -> Expression:
    x, pattern = given
    return apply("contains", x, pattern=_value(pattern, "str.contains"), literal=bool(options["literal"]))


@_reads("StringExpr.ContainsAny")
def _contains_any(given: Inputs, options: Any) -> Expression:
    x, patterns = given
    values = _list_of(patterns, "str.contains_any").value
    if options["ascii_case_insensitive"] or not values or len(values) > 100:
        raise Refused("str.contains_any", fails("Use `str.contains` with up to 100 texts joined by |."))
    return apply("or", *(apply("contains", x, pattern=value, literal=True) for value in values))


@_reads("StringExpr.CountMatches")
def _count_matches(given: Inputs, options: Any) -> Expression:
    x, pattern = given
    return apply("count_matches", x, pattern=_value(pattern, "str.count_matches"), literal=bool(options))


@_reads("StringExpr.Find")
def _find(given: Inputs, options: Any) -> Expression:
    x, pattern = given
    return apply("find", x, pattern=_value(pattern, "str.find"), literal=bool(options["literal"]))


@_reads("StringExpr.Extract")
def _extract(given: Inputs, options: Any) -> Expression:
    x, pattern = given
    return apply("extract", x, pattern=_value(pattern, "str.extract"), group=int(options))


@_reads("StringExpr.JsonPathMatch")
def _json_path_match(given: Inputs, options: Any) -> Expression:
    x, path = given
    return apply("json_text", x, path=json_path(str(_value(path, "str.json_path_match")), "str.json_path_match"))


@_reads("StringExpr.Replace")
def _replace_text(given: Inputs, options: Any) -> Expression:
    x, pattern, value = given
    words = {"pattern": _value(pattern, "str.replace"), "value": _value(value, "str.replace")}
    return apply("replace", x, **words, literal=bool(options["literal"]), n=int(options["n"]))


@_reads("StringExpr.ReplaceMany")
def _replace_many(given: Inputs, options: Any) -> Expression:
    raise Refused("str.replace_many", fails("Use several `str.replace_all`."))


@_reads("StringExpr.Slice")
def _slice(given: Inputs, options: Any) -> Expression:
    x, offset, length = given
    return apply("slice", x, offset=_value(offset, "str.slice"), length=_value(length, "str.slice"))


@_reads("StringExpr.Head")
def _head(given: Inputs, options: Any) -> Expression:
    x, n = given
    number = _value(n, "str.head")
    if not isinstance(number, int) or number < 0:
        raise Refused("str.head", fails("Give a length that is not negative."))
    return apply("slice", x, offset=0, length=number)


@_reads("StringExpr.Tail")
def _tail(given: Inputs, options: Any) -> Expression:
    x, n = given
    number = _value(n, "str.tail")
    if not isinstance(number, int) or number <= 0:
        raise Refused("str.tail", fails("Give a length that is positive."))
    return apply("slice", x, offset=-number, length=None)


for _path, _operation in {"PadStart": "pad_start", "PadEnd": "pad_end"}.items():
    _FUNCTIONS[f"StringExpr.{_path}"] = lambda given, options, operation=_operation: apply(  # type: ignore[misc]
        operation, given[0], length=_value(given[1], f"str.{operation}"), fill=options["fill_char"]
    )


@_reads("StringExpr.ZFill")
def _zfill(given: Inputs, options: Any) -> Expression:
    return apply("zfill", given[0], length=_value(given[1], "str.zfill"))


for _path, _side in {"StripChars": "both", "StripCharsStart": "start", "StripCharsEnd": "end"}.items():
    _FUNCTIONS[f"StringExpr.{_path}"] = lambda given, options, side=_side: apply(  # type: ignore[misc]
        "strip", given[0], chars=_value(given[1], "str.strip_chars"), side=side
    )


@_reads("StringExpr.StripPrefix")
def _strip_prefix(given: Inputs, options: Any) -> Expression:
    return apply("strip_prefix", given[0], prefix=_value(given[1], "str.strip_prefix"))


@_reads("StringExpr.StripSuffix")
def _strip_suffix(given: Inputs, options: Any) -> Expression:
    return apply("strip_suffix", given[0], suffix=_value(given[1], "str.strip_suffix"))


@_reads("StringExpr.Split")
def _split(given: Inputs, options: Any) -> Expression:
    if options:
        raise Refused("str.split(inclusive=True)", UNKNOWN)
    return apply("split", given[0], separator=_value(given[1], "str.split"))


@_reads("StringExpr.ToInteger")
def _to_integer(given: Inputs, options: Any) -> Expression:
    found = apply("to_integer", given[0], base=_value(given[1], "str.to_integer"))
    wanted = options.get("dtype")
    return found if wanted in (None, "Int64") else apply("cast", found, to=_type(wanted))


@_reads("StringExpr.Strptime")
def _strptime(given: Inputs, options: Any) -> Expression:
    dtype, how = options
    if set(how) != {"format", "strict", "exact", "cache"} or not how["exact"]:
        raise Refused("str.strptime", UNKNOWN)
    if how["format"] is None:
        raise Refused(
            "str.to_date / to_datetime / to_time without a format",
            Reason(
                "guesses the format from the first rows",
                "Which values can be read would then depend on other rows.",
                'Give the format: `str.to_date("%Y-%m-%d")`.',
            ),
        )
    return apply("parse_time", given[0], to=_type(dtype["Literal"]), format=how["format"])


@_reads("Categorical.StartsWith")
def _cat_starts(given: Inputs, options: Any) -> Expression:
    return apply("starts_with", given[0], Constant(options, pl.String()))


@_reads("Categorical.EndsWith")
def _cat_ends(given: Inputs, options: Any) -> Expression:
    return apply("ends_with", given[0], Constant(options, pl.String()))


# Dates and times.


@_reads("TemporalExpr.TimeStamp")
def _timestamp(given: Inputs, options: Any) -> Expression:
    return apply("epoch", *given, unit=_TIME_UNITS[options])


_TIME_UNITS = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}

for _path, _operation, _word in (("Truncate", "truncate_time", "every"), ("Round", "round_time", "every"),
                                 ("OffsetBy", "offset_time", "by")):  # fmt: skip
    _FUNCTIONS[f"TemporalExpr.{_path}"] = (
        lambda given, options, operation=_operation, word=_word: apply(  # type: ignore[misc]
            operation, given[0], **{word: _value(given[1], f"dt.{operation[:-5]}")}
        )
    )


@_reads("TemporalExpr.ToString")
def _to_string(given: Inputs, options: Any) -> Expression:
    return apply("format_time", *given, format=options)


@_reads("TemporalExpr.Datetime")
def _datetime(given: Inputs, options: Any) -> Expression:
    return apply("replace_zone", *given, zone=None)


@_reads("TemporalExpr.ConvertTimeZone")
def _convert_zone(given: Inputs, options: Any) -> Expression:
    return apply("convert_zone", *given, zone=options["inner"])


@_reads("TemporalExpr.ReplaceTimeZone")
def _replace_zone(given: Inputs, options: Any) -> Expression:
    zone, missing = options
    twice = _value(given[1], "dt.replace_time_zone(ambiguous=...)")
    if twice not in ("raise", "null", "earliest", "latest") or missing not in ("Raise", "Null"):
        raise Refused("dt.replace_time_zone", UNKNOWN)
    name = None if zone is None else zone["inner"]
    return apply("replace_zone", given[0], zone=name, ambiguous="null" if twice == "raise" else twice)


@_reads("TemporalExpr.CastTimeUnit")
def _cast_time_unit(given: Inputs, options: Any) -> Expression:
    return apply("cast_time_unit", *given, unit=_TIME_UNITS[options])


@_reads("TemporalExpr.Combine")
def _combine(given: Inputs, options: Any) -> Expression:
    return apply("combine", *given)


@_reads("TemporalExpr.Duration")
def _duration(given: Inputs, options: Any) -> Expression:
    names = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")
    used = [
        (amount, name)
        for amount, name in zip(given, names, strict=True)
        if not (isinstance(amount, Constant) and amount.value == 0)
    ] or [(given[1], "days")]
    units = tuple(name for _, name in used)
    return apply("make_duration", *(amount for amount, _ in used), units=units, time_unit=_TIME_UNITS[options])


# Lists and structs.


@_reads("ListExpr.Get")
def _get(given: Inputs, options: Any) -> Expression:
    return apply("list_get", given[0], index=_value(given[1], "list.get"))


_FUNCTIONS["ArrayExpr.Get"] = _get


@_reads("ListExpr.Contains")
def _list_contains(given: Inputs, options: Any) -> Expression:
    _value(given[1], "list.contains")
    if isinstance(options, dict):
        options.get("nulls_equal")  # it makes no difference, since the value is not null
    return apply("list_contains", given[0], value=given[1])


_FUNCTIONS["ArrayExpr.Contains"] = _list_contains


@_reads("ListExpr.Join")
def _list_join(given: Inputs, options: Any) -> Expression:
    separator = _value(given[1], "list.join")
    return apply("list_join", given[0], separator=separator, ignore_nulls=bool(options))


@_reads("StructExpr.FieldByName")
def _field(given: Inputs, options: Any) -> Expression:
    return apply("struct_field", *given, name=options)


# ---------------------------------------------------------------------- selectors

_SPREADING = ("Coalesce", "MinHorizontal", "MaxHorizontal", "SumHorizontal", "MeanHorizontal")
_SPREADING_IN = {"Boolean": ("AnyHorizontal", "AllHorizontal"), "StringExpr": ("ConcatHorizontal",)}


def _spelled_out(tree: Tree, scope: _Reading) -> list[Tree]:
    """Return the trees that a tree with selectors stands for, one for each output column."""
    if '"Selector"' not in json.dumps(tree):
        return [tree]
    try:
        trees = _expanded(tree, scope)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError):
        trees = []
    if not trees:
        raise Refused("a selector", SELECTOR)
    return trees


def _expanded(tree: Tree, scope: _Reading) -> list[Tree]:
    """Return a part of the tree for each output column, or a single entry if it is the same for all."""
    if isinstance(tree, list):
        return _side_by_side([_expanded(part, scope) for part in tree])
    if not isinstance(tree, dict) or tree.keys() == {"Literal"}:
        return [tree]
    if tree.keys() == {"Selector"}:
        selector = pl.Expr.deserialize(io.BytesIO(json.dumps(tree).encode()), format="json")
        return [{"Column": name} for name in pl.LazyFrame(schema=scope.schema).select(selector).collect_schema()]
    if tree.keys() == {"input", "function"} and _spreads(tree["function"]):
        spread = [part for given in tree["input"] for part in _expanded(given, scope)]
        return [{"input": spread, "function": tree["function"]}]
    keys = list(tree)
    return [
        dict(zip(keys, values, strict=True)) for values in _side_by_side([_expanded(tree[key], scope) for key in keys])
    ]


def _side_by_side(columns: list[list[Tree]]) -> list[list[Tree]]:
    count = max((len(column) for column in columns), default=1)
    if not all(len(column) in (1, count) for column in columns):
        raise ValueError("selectors of different lengths")
    return [[column[i if len(column) > 1 else 0] for column in columns] for i in range(count)]


def _spreads(function: Any) -> bool:
    name, body = (function, None) if isinstance(function, str) else next(iter(function.items()))
    inner = body if isinstance(body, str) else next(iter(body), "") if isinstance(body, dict) else ""
    return name in _SPREADING or inner in _SPREADING_IN.get(name, ())


__all__ = ["ExpressionNotAllowed", "Parsed", "ReadNode", "named", "parse", "read_node"]
