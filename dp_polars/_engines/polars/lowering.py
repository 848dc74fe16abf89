"""The operations of the expression language as Polars expressions.

Every argument is a column of the batch's height, and so are constants (see `program`). If one side of an operation is a
single value, Polars takes other code paths: it multiplies by a reciprocal, or gives zeros another sign. A batch of one
row would take them too. With full columns, a value never depends on how many rows there are beside it.

At the edges of a type, Polars may fail or give wrong results. This module keeps such values away from it: dates outside
its calendar become null first, integers are computed in 128 bits, zeros lose their sign where it matters, and
operations that make texts longer read and return texts of limited length.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import polars as pl

from dp_polars._engines.polars.value_codes import one_form
from dp_polars._engines.rows import is_pattern
from dp_polars._expressions.tree import Apply, Column, Constant, Expression
from dp_polars._expressions.types import FIRST_DAY, LAST_DAY, MOST_TEXT, TICKS, kind_of

_WIDE = pl.Int128
_LOW, _HIGH = -(1 << 63), (1 << 63) - 1

Lower = Callable[[Apply, Sequence[pl.Expr]], pl.Expr]


def lowered(expression: Expression, constants: Mapping[Constant, str]) -> pl.Expr:
    """Return a Polars expression. `constants` gives the columns that hold the constants."""
    match expression:
        case Column():
            return column(expression.name)
        case Constant():
            return column(constants[expression])
    return _LOWERINGS[expression.operation](
        expression, [lowered(argument, constants) for argument in expression.arguments]
    )


def column(name: str) -> pl.Expr:
    """Return the column with exactly this name. Names that Polars reads as patterns were refused before."""
    if is_pattern(name):
        raise ValueError("a column whose name is a pattern")
    return pl.col(name)


# ---------------------------------------------------------------------- plain conditions

_PLAIN_KINDS = frozenset({"boolean", "integer", "float", "text", "date", "datetime"})
_PLAIN: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def is_plain(condition: Expression) -> bool:
    """Return whether a condition only compares columns with constants. A plan may filter by such a condition.

    Such a comparison never fails and gives the same result in every batch and on every code path of Polars.
    `tests/engines/test_plain_conditions.py` compares all of them with evaluation by batch.
    """
    if not isinstance(condition, Apply):
        return False
    if condition.operation in ("and", "or", "not"):
        return all(map(is_plain, condition.arguments))
    first, *rest = condition.arguments
    if not isinstance(first, Column) or kind_of(first.dtype) not in _PLAIN_KINDS:
        return False
    if condition.operation in ("is_null", "is_not_null"):
        return True
    if condition.operation == "is_in":
        values = condition.parameter("values").value
        return len(values) <= 1000 and all(_is_ordinary(value, first.dtype) for value in values)
    constant = rest[0] if rest else None
    fixed = isinstance(constant, Constant) and constant.dtype == first.dtype
    return condition.operation in _PLAIN and fixed and _is_ordinary(constant.value, first.dtype)  # type: ignore[union-attr]


def _is_ordinary(value: Any, dtype: pl.DataType) -> bool:
    """Return whether a plan can hold a constant. Polars cannot represent dates outside its calendar there."""
    if value is None or kind_of(dtype) not in ("date", "datetime"):
        return value is not None
    ticks = 1 if kind_of(dtype) == "date" else 86_400 * TICKS[dtype.time_unit]  # type: ignore[attr-defined]
    return FIRST_DAY * ticks <= int(value) < (LAST_DAY + 1) * ticks and -(1 << 62) < int(value) < 1 << 62


def plain(condition: Expression) -> pl.Expr:
    """Return a plain condition as a Polars expression in which constants are literals."""
    if not isinstance(condition, Apply) or not is_plain(condition):
        raise ValueError("a condition that is not plain")
    if condition.operation in ("and", "or", "not"):
        given = [plain(argument) for argument in condition.arguments]
        return ~given[0] if condition.operation == "not" else _logic(condition, given)
    first = condition.arguments[0]
    own = lowered(first, {})
    if condition.operation in _PLAIN and isinstance(constant := condition.arguments[1], Constant):
        return _PLAIN[condition.operation](own, pl.lit(constant.series()))
    return _LOWERINGS[condition.operation](condition, [own])


# ---------------------------------------------------------------------- guards


def _in_calendar(x: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return dates and datetimes, with null for those outside the years 1 to 9999."""
    if kind_of(dtype) == "date":
        number = x.cast(pl.Int32)
        return pl.when((number >= FIRST_DAY) & (number <= LAST_DAY)).then(x)
    if not isinstance(dtype, pl.Datetime):
        return x
    ticks = 86_400 * TICKS[dtype.time_unit]
    first, last = max(FIRST_DAY * ticks, _LOW + 1), min((LAST_DAY + 1) * ticks - 1, _HIGH)
    number = x.cast(pl.Int64)
    return pl.when((number >= first) & (number <= last)).then(x)


def _short(x: pl.Expr) -> pl.Expr:
    return x.str.head(MOST_TEXT)


def _unless_zero(divisor: pl.Expr, quotient: pl.Expr) -> pl.Expr:
    return pl.when(divisor != 0).then(quotient)


def _narrow(wide: pl.Expr) -> pl.Expr:
    """Return 128-bit integers as 64-bit integers, with null for those that do not fit."""
    return wide.cast(pl.Int64, strict=False)


# ---------------------------------------------------------------------- operations

_LOWERINGS: dict[str, Lower] = {}


def _lowering(*names: str) -> Callable[[Lower], Lower]:
    def register(lower: Lower) -> Lower:
        for name in names:
            _LOWERINGS[name] = lower
        return lower

    return register


def _simple(name: str, lower: Callable[..., pl.Expr]) -> None:
    _LOWERINGS[name] = lambda node, given: lower(*given)


_simple("not", lambda x: ~x)
_simple("is_null", lambda x: x.is_null())
_simple("is_not_null", lambda x: x.is_not_null())
_simple("eq", lambda a, b: a == b)
_simple("ne", lambda a, b: a != b)
_simple("lt", lambda a, b: a < b)
_simple("le", lambda a, b: a <= b)
_simple("gt", lambda a, b: a > b)
_simple("ge", lambda a, b: a >= b)
_simple("eq_missing", lambda a, b: a.eq_missing(b))
_simple("ne_missing", lambda a, b: a.ne_missing(b))
_simple("bit_and", lambda a, b: a & b)
_simple("bit_or", lambda a, b: a | b)
_simple("bit_xor", lambda a, b: a ^ b)
_simple("coalesce", lambda *given: pl.coalesce(given))
_simple("sqrt", lambda x: x.sqrt())
_simple("cbrt", lambda x: x.cbrt())
_simple("exp", lambda x: x.exp())
_simple("log1p", lambda x: x.log1p())
_simple("sin", lambda x: x.sin())
_simple("cos", lambda x: x.cos())
_simple("tan", lambda x: x.tan())
_simple("asin", lambda x: x.arcsin())
_simple("acos", lambda x: x.arccos())
_simple("atan", lambda x: x.arctan())
_simple("sinh", lambda x: x.sinh())
_simple("cosh", lambda x: x.cosh())
_simple("tanh", lambda x: x.tanh())
_simple("asinh", lambda x: x.arcsinh())
_simple("acosh", lambda x: x.arccosh())
_simple("atanh", lambda x: x.arctanh())
_simple("degrees", lambda x: x.degrees())
_simple("radians", lambda x: x.radians())
_simple("floor", lambda x: x.floor())
_simple("ceil", lambda x: x.ceil())
_simple("is_nan", lambda x: x.is_nan())
_simple("is_finite", lambda x: x.is_finite())
_simple("is_infinite", lambda x: x.is_infinite())
_simple("lower", lambda x: _short(_short(x).str.to_lowercase()))
_simple("upper", lambda x: _short(_short(x).str.to_uppercase()))
_simple("title", lambda x: _short(_short(x).str.to_titlecase()))
_simple("reverse", lambda x: _short(x).str.reverse())
_simple("len_chars", lambda x: x.str.len_chars().cast(pl.Int64))
_simple("len_bytes", lambda x: x.str.len_bytes().cast(pl.Int64))
_simple("starts_with", lambda x, y: x.str.starts_with(y))
_simple("ends_with", lambda x, y: x.str.ends_with(y))


@_lowering("and", "or", "xor")
def _logic(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    total, *rest = given
    for one in rest:
        total = total & one if node.operation == "and" else total | one if node.operation == "or" else total ^ one
    return total


@_lowering("is_in")
def _is_in(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    values: Constant = node.parameter("values")
    (x,) = given
    if not values.value:
        return pl.when(x.is_not_null()).then(pl.lit(False))
    listed = values.series().explode(empty_as_null=False)
    return pl.when(x.is_not_null()).then(x.is_in(pl.lit(listed).implode()))


@_lowering("case")
def _case(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    result = given[-1]
    for condition, value in reversed(list(zip(given[:-1:2], given[1:-1:2], strict=True))):
        result = pl.when(condition).then(value).otherwise(result)
    return result


@_lowering("add", "sub", "mul")
def _arithmetic(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    a, b = given
    if node.dtype != pl.Int64:
        return _result(node.operation, a, b)
    inside = _within(node, a)
    if inside is not None:
        return pl.when(inside).then(_result(node.operation, a, b))
    return _narrow(_result(node.operation, a.cast(_WIDE), b.cast(_WIDE)))


def _result(operation: str, a: pl.Expr, b: pl.Expr) -> pl.Expr:
    return a + b if operation == "add" else a - b if operation == "sub" else a * b


def _within(node: Apply, a: pl.Expr) -> pl.Expr | None:
    """Return where the result with a constant on the right fits into 64 bits. 128 bits would be 5 times slower."""
    constant = node.arguments[1]
    if not isinstance(constant, Constant) or constant.value is None:
        return None
    value = constant.value
    if node.operation == "mul":
        if value == 0:
            return a.is_not_null()
        edges = sorted((_LOW / Fraction(value), _HIGH / Fraction(value)))
    else:
        value = value if node.operation == "add" else -value
        edges = [Fraction(_LOW - value), Fraction(_HIGH - value)]
    low, high = max(math.ceil(edges[0]), _LOW), min(math.floor(edges[1]), _HIGH)
    return (a >= low) & (a <= high)


@_lowering("div")
def _div(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    a, b = given
    return _unless_zero(b, a / b)


@_lowering("floordiv", "mod", "truncdiv")
def _division(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    a, b = given
    if node.dtype != pl.Int64:
        if node.operation == "mod":
            return _unless_zero(b, a % b)
        quotient = a / b
        towards_zero = pl.when(quotient < 0).then(quotient.ceil()).otherwise(quotient.floor())
        return _unless_zero(b, quotient.floor() if node.operation == "floordiv" else towards_zero)
    divisor = node.arguments[1]
    if isinstance(divisor, Constant) and divisor.value not in (None, 0, -1) and node.operation != "truncdiv":
        return a % b if node.operation == "mod" else a // b
    a, b = a.cast(_WIDE), b.cast(_WIDE)
    # Polars must not see a divisor of 0, so it is replaced by 1 and the result is dropped.
    safe = pl.when(b != 0).then(b).otherwise(pl.lit(1, dtype=_WIDE))
    if node.operation == "mod":
        return _unless_zero(b, _narrow(a % safe))
    down = a // safe
    if node.operation == "truncdiv":
        down = pl.when((down < 0) & (down * safe != a)).then(down + 1).otherwise(down)
    return _unless_zero(b, _narrow(down))


@_lowering("neg", "abs", "sign")
def _sign(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    (x,) = given
    if node.operation == "sign":
        one = pl.lit(1, dtype=node.dtype)
        found = pl.when(x > 0).then(one).when(x < 0).then(-one).when(x == 0).then(pl.lit(0, dtype=node.dtype))
        return pl.when(x.is_nan()).then(x).otherwise(found) if node.dtype.is_float() else found
    if node.dtype == pl.Int64:
        wide = x.cast(_WIDE)
        return _narrow(pl.lit(0, dtype=_WIDE) - wide if node.operation == "neg" else wide.abs())
    return -x if node.operation == "neg" else x.abs()


@_lowering("round")
def _round(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    mode: Any = "half_to_even" if node.parameter("mode") == "half_even" else "half_away_from_zero"
    return given[0].round(node.parameter("digits"), mode=mode)


@_lowering("trunc")
def _trunc(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    (x,), scale = given, 10.0 ** node.parameter("digits")
    whole = x if scale == 1 else x * scale
    cut = pl.when(whole < 0).then(whole.ceil()).otherwise(whole.floor())
    back = cut if scale == 1 else cut / scale
    return pl.when(back.is_finite()).then(back).otherwise(x)


@_lowering("log")
def _log(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    return given[0].log(node.parameter("base"))


@_lowering("pow", "atan2")
def _pow(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    a, b = (one_form(one, pl.Float64()) for one in given)
    return a.pow(b) if node.operation == "pow" else pl.arctan2(a, b)


@_lowering("least", "greatest")
def _extreme(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    total, *rest = given
    for one in rest:
        first = total <= one if node.operation == "least" else total >= one
        if node.dtype.is_float():  # NaN sorts above all numbers and is chosen only if there is nothing else
            first = (first & total.is_not_nan()) | (one.is_nan() & total.is_not_null())
        total = pl.when(one.is_null() | first).then(total).otherwise(one)
    return total


@_lowering("cut")
def _cut(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    (x,) = given
    own, labels = node.arguments[0].dtype, node.dtype.categories  # type: ignore[attr-defined]
    breaks, left = node.parameter("breaks"), node.parameter("left_closed")
    number = x if own.is_float() else x.cast(pl.Float64)
    above = [(number >= edge if left else number > edge).cast(pl.Int64) for edge in breaks]
    place = above[0]
    for one in above[1:]:
        place = place + one
    there = number.is_not_null() & number.is_not_nan()
    label = place.replace_strict(list(range(len(labels))), labels, default=None, return_dtype=node.dtype)
    return pl.when(there).then(label)


@_lowering("cast")
def _cast(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    (x,), source, target = given, node.arguments[0].dtype, node.parameter("to")
    before, after = kind_of(source), kind_of(target)
    if after == "text":
        return _text_of(x, source)
    if after in ("date", "datetime") and before in ("date", "datetime"):
        return _in_calendar(_rescaled(_in_calendar(x, source), source, target), target)
    if after in ("date", "datetime") and before == "integer":
        storage = pl.Int32 if after == "date" else pl.Int64
        return _in_calendar(x.cast(storage, strict=False).cast(target), target)
    if after == before == "duration":
        return _rescaled(x, source, target)
    if after in ("integer", "wide") and before in ("date", "datetime", "duration", "time"):
        return x.to_physical().cast(target, strict=False)
    if after == "boolean":
        return x != 0
    if after == "integer" and before == "float":
        return pl.when(x.is_finite()).then(x).cast(target, strict=False)
    return x.cast(target, strict=False)


def _text_of(x: pl.Expr, source: pl.DataType) -> pl.Expr:
    kind = kind_of(source)
    if kind == "float":
        x = one_form(x, source)
    elif kind in ("date", "datetime"):
        x = _in_calendar(x, source)
    return x.cast(pl.String, strict=False)


def _rescaled(x: pl.Expr, source: pl.DataType, target: pl.DataType) -> pl.Expr:
    """Return times or durations in another time unit, rounded down, with null for those that do not fit."""
    number, before, after = x.to_physical().cast(_WIDE), _ticks_per_day(source), _ticks_per_day(target)
    number = number * (after // before) if after >= before else number // (before // after)
    storage = pl.Int32 if kind_of(target) == "date" else pl.Int64
    return number.cast(storage, strict=False).cast(target)


def _ticks_per_day(dtype: pl.DataType) -> int:
    return 1 if kind_of(dtype) == "date" else 86_400 * TICKS[dtype.time_unit]  # type: ignore[attr-defined]


@_lowering("map_values")
def _map_values(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    x, default = given
    old, new = (node.parameter(name).series().explode(empty_as_null=False) for name in ("old", "new"))
    own = node.arguments[0].dtype
    if own.is_float():
        x = one_form(x, own)
    return x.replace_strict(old, new, default=default, return_dtype=node.dtype)


# ---------------------------------------------------------------------- texts


@_lowering("strip")
def _strip(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    space, chars = given[0].str, node.parameter("chars")
    strip = {"both": space.strip_chars, "start": space.strip_chars_start, "end": space.strip_chars_end}
    return strip[node.parameter("side")](chars)


@_lowering("strip_prefix")
def _strip_prefix(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    return given[0].str.strip_prefix(node.parameter("prefix"))


@_lowering("strip_suffix")
def _strip_suffix(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    return given[0].str.strip_suffix(node.parameter("suffix"))


@_lowering("contains", "count_matches", "find")
def _matching(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    space, pattern, literal = given[0].str, pl.lit(node.parameter("pattern")), node.parameter("literal")
    if node.operation == "contains":
        return space.contains(pattern, literal=literal, strict=True)
    if node.operation == "find":
        return space.find(pattern, literal=literal, strict=True).cast(pl.Int64)
    return space.count_matches(node.parameter("pattern"), literal=literal).cast(pl.Int64)


@_lowering("extract")
def _extract(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    return _short(given[0].str.extract(node.parameter("pattern"), node.parameter("group")))


@_lowering("json_text")
def _json_text(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    steps = (f"[{one}]" if isinstance(one, int) else f"['{one}']" for one in node.parameter("path"))
    return _short(given[0].str.json_path_match("$" + "".join(steps)))


@_lowering("md5", "md5_share")
def _md5(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    parts = node.parameter("parts") if node.operation == "md5_share" else None

    def hashed(values: pl.Series) -> pl.Series:
        known = values.drop_nulls().unique()  # Python computes each hash once
        made = [_digest(one, parts) for one in known]
        return values.replace_strict(known, pl.Series(made, dtype=node.dtype), default=None, return_dtype=node.dtype)

    return given[0].map_batches(hashed, return_dtype=node.dtype, is_elementwise=True)


def _digest(text: str, parts: int | None) -> str | int:
    """Return the hash of a text, or the remainder of its last eight bytes, which SQL calls md5_number_lower."""
    found = hashlib.md5(text.encode(), usedforsecurity=False)
    return found.hexdigest() if parts is None else int.from_bytes(found.digest()[8:], "little") % parts


@_lowering("replace")
def _replace(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    space = _short(given[0]).str
    replace = space.replace if node.parameter("n") == 1 else space.replace_all
    return _short(replace(node.parameter("pattern"), node.parameter("value"), literal=node.parameter("literal")))


@_lowering("slice")
def _slice(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    return given[0].str.slice(node.parameter("offset"), node.parameter("length"))


@_lowering("pad_start", "pad_end", "zfill")
def _pad(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    space, length = _short(given[0]).str, node.parameter("length")
    if node.operation == "zfill":
        return space.zfill(length)
    pad = space.pad_start if node.operation == "pad_start" else space.pad_end
    return pad(length, node.parameter("fill"))


@_lowering("concat")
def _concat(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    texts = [_short(one) for one in given]
    separator, ignore = node.parameter("separator"), node.parameter("ignore_nulls")
    return _short(pl.concat_str(texts, separator=separator, ignore_nulls=ignore))


@_lowering("split_part", "split")
def _split(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    parts = _short(given[0]).str.split(node.parameter("separator"))
    return parts if node.operation == "split" else parts.list.get(node.parameter("index"), null_on_oob=True)


@_lowering("to_integer")
def _to_integer(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    return given[0].str.to_integer(base=node.parameter("base"), dtype=pl.Int64, strict=False)


# ---------------------------------------------------------------------- dates and times


@_lowering("date_part")
def _date_part(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    part: pl.Expr = getattr(_in_calendar(given[0], node.arguments[0].dtype).dt, node.parameter("part"))()
    return part if node.dtype == pl.Boolean else part.cast(pl.Int64)


@_lowering("to_date", "to_time", "month_start", "month_end", "truncate_time", "round_time", "offset_time")
def _moved(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    space = _in_calendar(given[0], node.arguments[0].dtype).dt
    match node.operation:
        case "to_date":
            moved = space.date()
        case "to_time":
            return space.time()
        case "month_start":
            moved = space.month_start()
        case "month_end":
            moved = space.month_end()
        case "truncate_time":
            moved = space.truncate(node.parameter("every"))
        case "round_time":
            moved = space.round(node.parameter("every"))
        case _:
            moved = space.offset_by(node.parameter("by"))
    return _in_calendar(moved, node.dtype)


@_lowering("epoch")
def _epoch(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    source, unit = node.arguments[0].dtype, node.parameter("unit")
    number = _in_calendar(given[0], source).to_physical().cast(_WIDE)
    wanted = 1 if unit == "d" else 86_400 * (1 if unit == "s" else TICKS[unit])
    own = _ticks_per_day(source)
    return _narrow(number * (wanted // own) if wanted >= own else number // (own // wanted))


@_lowering("parse_time")
def _parse_time(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    to, text = node.parameter("to"), node.parameter("format")
    parsed = _short(given[0]).str.strptime(to, text, strict=False, exact=True, cache=False, ambiguous="null")
    return _in_calendar(parsed, to)


@_lowering("format_time")
def _format_time(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    return _short(_in_calendar(given[0], node.arguments[0].dtype).dt.to_string(node.parameter("format")))


@_lowering("convert_zone")
def _convert_zone(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    return given[0].dt.convert_time_zone(node.parameter("zone"))


@_lowering("replace_zone")
def _replace_zone(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    inside = _in_calendar(given[0], node.arguments[0].dtype)
    return inside.dt.replace_time_zone(
        node.parameter("zone"), ambiguous=node.parameter("ambiguous"), non_existent="null"
    )


# ---------------------------------------------------------------------- lists and structs


def _space(node: Apply, x: pl.Expr) -> Any:
    return x.list if isinstance(node.arguments[0].dtype, pl.List) else x.arr


@_lowering("list_len")
def _list_len(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    (x,) = given
    return pl.when(x.is_not_null()).then(_space(node, x).len().cast(pl.Int64))


@_lowering("list_get")
def _list_get(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    return _space(node, given[0]).get(node.parameter("index"), null_on_oob=True)  # type: ignore[no-any-return]


@_lowering("list_contains")
def _list_contains(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    (x,) = given
    value = node.parameter("value").series()
    return pl.when(x.is_not_null()).then(_space(node, x).contains(pl.lit(value).first(), nulls_equal=False))


@_lowering("list_min", "list_max", "list_sum")
def _list_number(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    (x,), source = given, node.arguments[0].dtype
    if isinstance(source, pl.Array):
        x = x.arr.to_list()
    if node.operation == "list_sum":
        return _narrow(x.cast(pl.List(_WIDE)).list.sum())
    found = x.list.min() if node.operation == "list_min" else x.list.max()
    return found.cast(pl.Int64)


@_lowering("list_join")
def _list_join(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    short = given[0].list.head(MOST_TEXT)
    return _short(short.list.join(node.parameter("separator"), ignore_nulls=node.parameter("ignore_nulls")))


@_lowering("struct_field")
def _struct_field(node: Apply, given: Sequence[pl.Expr]) -> pl.Expr:
    return given[0].struct.field(node.parameter("name"))
