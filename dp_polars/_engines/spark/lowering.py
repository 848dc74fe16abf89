"""The operations of the expression language as Spark SQL, where an exact equivalent exists.

Every text is total: it has a value for every input, whether ANSI mode is on or off. Integers are added with the `try_`
functions, divisors are never zero, and casts get only what fits. An operation is refused, with its name and when the
question is planned, if Spark could give another value than Polars: logarithms and sines differ in the last bit,
patterns and calendars of time zones in their rules, and upper case by the version of Unicode.

Constants and columns are written in the types of `types`. Texts that are long are computed once, in an inner SELECT:
see `Layers`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import polars as pl

from dp_polars._engines.polars.program import Program
from dp_polars._engines.spark.types import BIGINT, CALL, DOUBLE, LEAST, MOST, STRING, literal, one_nan, stored_type
from dp_polars._expressions.messages import Reason, Refused
from dp_polars._expressions.operations import OPERATIONS
from dp_polars._expressions.tree import Apply, Column, Constant, Expression
from dp_polars._expressions.types import FIRST_DAY, LAST_DAY, MOST_TEXT, TICKS, integer_range, kind_of

Lower = Callable[[Apply, Sequence[str]], str]

_MOST_INLINE = 300  # characters of a text that may be written out more than once
_MOST_LISTED = 2_000  # constants in one expression
_MOST_WRITTEN = 100_000  # characters of an expression with everything written out
_TOO_LONG = Reason(
    "is part of too long an expression for Spark",
    "Spark's planner writes out every column that it computes, and would not come to an end.",
    "Nest fewer operations, or compute the column in Spark before dp.private.",
)
_BIG = float(1 << 52)  # from here on all floats are whole numbers
_ZERO, _INFINITE, _MINUS_INFINITE = (literal(one, DOUBLE) for one in (0.0, float("inf"), float("-inf")))


class NotInSpark(Refused):
    """The refusal of an operation, a parameter or a type that has no exact equivalent in Spark SQL."""

    def __init__(self, spoken: str, what: str = "") -> None:
        does = f"has no exact equivalent in Spark SQL{what}"
        why = "Spark could give another value than Polars, so the same question would have two answers."
        super().__init__(spoken, Reason(does, why, "Compute it in Spark before dp.private, or use another expression."))


class Layers:
    """Columns of nested SELECTs. A text that is long and used by another one becomes a column of an inner SELECT.

    Planners write such columns out again wherever they are used. So expressions are refused that would become too long
    if everything were written out.
    """

    def __init__(self, columns: Mapping[str, str], sizes: Mapping[str, int] | None = None) -> None:
        self._columns = dict(columns)
        self.sizes = dict(sizes or {})
        """The lengths of texts if everything in them were written out."""
        self._known: dict[Expression, tuple[str, int]] = {}
        self.inner: list[list[tuple[str, str]]] = []
        """For each SELECT, from the innermost on: the names and texts of the columns that it adds."""

    def text(self, expression: Expression) -> tuple[str, int]:
        """Return the text of an expression, and the number of inner SELECTs that must come before it."""
        match expression:
            case Column():
                if stored_type(expression.dtype) is None:
                    raise NotInSpark(expression.name, f" for the type {expression.dtype}")
                return self._columns[expression.name], 0
            case Constant():
                return _constant(expression), 0
        if not expression.columns:
            folded = _folded(expression)
            if folded is not None:
                return _constant(folded), 0
        if expression not in self._known:
            given = [self._argument(one) for one in expression.arguments]
            text = self._measured(expression, [one for one, _ in given])
            self._known[expression] = text, max((depth for _, depth in given), default=0)
        return self._known[expression]

    def _measured(self, node: Apply, given: Sequence[str]) -> str:
        """Return the text of an operation, or refuse it if planners would make too long a text of it."""
        text = _text_of(node, given)
        added = [text.count(one) * (self.sizes.get(one, len(one)) - len(one)) for one in dict.fromkeys(given)]
        self.sizes[text] = len(text) + sum(added)
        if self.sizes[text] > _MOST_WRITTEN:
            raise Refused(_spoken(node), _TOO_LONG)
        return text

    def _argument(self, expression: Expression) -> tuple[str, int]:
        text, depth = self.text(expression)
        if len(text) <= _MOST_INLINE or not isinstance(expression, Apply):
            return text, depth
        while len(self.inner) <= depth:
            self.inner.append([])
        name = f"t{depth}_{len(self.inner[depth])}"
        self.inner[depth].append((name, text))
        self.sizes[name] = self.sizes.get(text, len(text))
        self._known[expression] = name, depth + 1
        return name, depth + 1


def check_lowered(expression: Expression) -> None:
    """Refuse an expression over plain columns that has no exact equivalent in Spark SQL."""
    Layers({name: name for name in expression.columns}).text(expression)


def _constant(one: Constant) -> str:
    stored = stored_type(one.dtype)
    if stored is None:
        raise NotInSpark(f"a constant of type {one.dtype}")
    return literal(one.value, stored)


def _folded(expression: Apply) -> Constant | None:
    """Return the value of an expression without columns, which Polars computes on the driver; None for some types."""
    if kind_of(expression.dtype) not in ("date", "datetime", "duration", "integer", "text"):
        return None
    (value,) = Program([expression]).columns(pl.DataFrame({"row": [0]}))
    return Constant(value.to_physical().item(), expression.dtype)


def _text_of(node: Apply, given: Sequence[str]) -> str:
    lower = LOWERINGS.get(node.operation)
    if lower is None:
        raise NotInSpark(_spoken(node))
    if stored_type(node.dtype) is None or any(stored_type(one.dtype) is None for one in node.arguments):
        raise NotInSpark(_spoken(node), f" for the type {node.dtype}")
    return lower(node, given)


def _spoken(node: Apply) -> str:
    return OPERATIONS[node.operation].spoken


def call(name: str, *arguments: str) -> str:
    """Return the call of a function of Spark."""
    return f"{CALL}{name}({', '.join(arguments)})"


LOWERINGS: dict[str, Lower] = {}
"""The operations that Spark computes, by name."""


def _lowering(*names: str) -> Callable[[Lower], Lower]:
    def register(lower: Lower) -> Lower:
        for name in names:
            LOWERINGS[name] = lower
        return lower

    return register


def _simple(name: str, lower: Callable[..., str]) -> None:
    LOWERINGS[name] = lambda node, given: lower(*given)


# ---------------------------------------------------------------------- logic and comparisons

_simple("not", lambda x: f"(NOT {x})")
_simple("is_null", lambda x: f"({x} IS NULL)")
_simple("is_not_null", lambda x: f"({x} IS NOT NULL)")
_simple("eq", lambda a, b: f"({a} = {b})")
_simple("ne", lambda a, b: f"({a} <> {b})")
_simple("lt", lambda a, b: f"({a} < {b})")
_simple("le", lambda a, b: f"({a} <= {b})")
_simple("gt", lambda a, b: f"({a} > {b})")
_simple("ge", lambda a, b: f"({a} >= {b})")
_simple("eq_missing", lambda a, b: f"({a} <=> {b})")
_simple("ne_missing", lambda a, b: f"(NOT ({a} <=> {b}))")
_simple("is_finite", lambda x: f"({x} > {_MINUS_INFINITE} AND {x} < {_INFINITE})")
_simple("is_infinite", lambda x: f"({x} = {_MINUS_INFINITE} OR {x} = {_INFINITE})")
_simple("is_nan", lambda x: f"({x} > {_INFINITE})")  # NaN is the largest number, as in Polars


@_lowering("and", "or", "xor")
def _logic(node: Apply, given: Sequence[str]) -> str:
    if node.operation != "xor":
        return "(" + f" {node.operation.upper()} ".join(given) + ")"
    total, *rest = given
    for one in rest:
        total = f"({total} <> {one})"
    return total


@_lowering("bit_and", "bit_or", "bit_xor")
def _bits(node: Apply, given: Sequence[str]) -> str:
    if stored_type(node.dtype) != BIGINT:
        raise NotInSpark(_spoken(node), f" for the type {node.dtype}")
    sign = {"bit_and": "&", "bit_or": "|", "bit_xor": "^"}[node.operation]
    return "(" + f" {sign} ".join(given) + ")"


@_lowering("is_in")
def _is_in(node: Apply, given: Sequence[str]) -> str:
    values: Constant = node.parameter("values")
    (x,), stored = given, stored_type(node.arguments[0].dtype) or ""
    if len(values.value) > _MOST_LISTED:
        raise NotInSpark("is_in", f" for more than {_MOST_LISTED:,} values")
    listed = ", ".join(literal(one, stored) for one in values.value if one is not None)
    found = f"{x} IN ({listed})" if listed else "FALSE"
    return f"CASE WHEN {x} IS NOT NULL THEN {found} END"


@_lowering("case")
def _case(node: Apply, given: Sequence[str]) -> str:
    pairs = zip(given[:-1:2], given[1:-1:2], strict=True)
    return f"CASE {' '.join(f'WHEN {one} THEN {value}' for one, value in pairs)} ELSE {given[-1]} END"


@_lowering("coalesce")
def _coalesce(node: Apply, given: Sequence[str]) -> str:
    *first, last = given
    return f"CASE {' '.join(f'WHEN {one} IS NOT NULL THEN {one}' for one in first)} ELSE {last} END" if first else last


@_lowering("map_values")
def _map_values(node: Apply, given: Sequence[str]) -> str:
    x, default = given
    old, new = (node.parameter(name).value for name in ("old", "new"))
    if len(old) > _MOST_LISTED:
        raise NotInSpark("replace", f" for more than {_MOST_LISTED:,} values")
    before, after = stored_type(node.arguments[0].dtype) or "", stored_type(node.dtype) or ""
    pairs = [
        f"WHEN {x} = {literal(one, before)} THEN {literal(value, after)}" for one, value in zip(old, new, strict=True)
    ]
    return f"CASE {' '.join(pairs)} ELSE {default} END"


# ---------------------------------------------------------------------- numbers


def _is_integer(node: Expression) -> bool:
    return node.dtype == pl.Int64


@_lowering("add", "sub", "mul")
def _arithmetic(node: Apply, given: Sequence[str]) -> str:
    a, b = given
    if _is_integer(node):
        return call({"add": "try_add", "sub": "try_subtract", "mul": "try_multiply"}[node.operation], a, b)
    _only_floats(node)
    return one_nan(f"({a} {'+' if node.operation == 'add' else '-' if node.operation == 'sub' else '*'} {b})")


def _only_floats(node: Apply) -> None:
    if node.dtype != pl.Float64:
        raise NotInSpark(_spoken(node), f" for the type {node.dtype}")


def _unless_zero(divisor: str) -> str:
    """Return a divisor that is null instead of zero, so that nothing is ever divided by zero."""
    return f"CASE WHEN {divisor} <> 0 THEN {divisor} END"


@_lowering("div")
def _div(node: Apply, given: Sequence[str]) -> str:
    _only_floats(node)
    a, b = given
    return one_nan(f"({a} / {_unless_zero(b)})")


@_lowering("floordiv", "truncdiv", "mod")
def _division(node: Apply, given: Sequence[str]) -> str:
    a, b = given
    if not _is_integer(node):
        if node.operation == "mod" or node.dtype != pl.Float64:
            raise NotInSpark(_spoken(node), f" for the type {node.dtype}")
        quotient = one_nan(f"({a} / {_unless_zero(b)})")
        return _floor(quotient) if node.operation == "floordiv" else _towards_zero(quotient)
    divisor = node.arguments[1]
    constant = divisor.value if isinstance(divisor, Constant) else None
    if constant is not None and constant > 0 and node.operation != "truncdiv":
        return floor_div(a, constant) if node.operation == "floordiv" else floor_mod(a, constant)
    # The least integer divided by -1 does not fit into 64 bits, and some engines fail on its remainder.
    least = literal(LEAST, BIGINT)
    safe = f"CASE WHEN {b} <> 0 AND NOT ({a} = {least} AND {b} = -1) THEN {b} END"
    if node.operation == "truncdiv":
        return f"({a} div {safe})"
    down = f"({a} % {safe} <> 0 AND ({a} < 0) <> ({b} < 0))"
    if node.operation == "floordiv":
        return f"({a} div {safe} - CASE WHEN {down} THEN 1L ELSE 0L END)"
    rest = f"({a} % {safe} + CASE WHEN {down} THEN {b} ELSE 0L END)"
    return f"CASE WHEN {a} = {least} AND {b} = -1 THEN 0L ELSE {rest} END"


def _floor(x: str, name: str = "floor") -> str:
    """Return a float rounded down (or up) as a float. Spark's own functions return integers of 64 bits."""
    small = f"{x} > {literal(-_BIG, DOUBLE)} AND {x} < {literal(_BIG, DOUBLE)}"
    return f"CASE WHEN {small} THEN CAST({call(name, f'CASE WHEN {small} THEN {x} END')} AS DOUBLE) ELSE {x} END"


def _towards_zero(x: str) -> str:
    return f"CASE WHEN {x} < 0 THEN {_floor(x, 'ceil')} ELSE {_floor(x)} END"


@_lowering("floor", "ceil")
def _rounded(node: Apply, given: Sequence[str]) -> str:
    return _floor(given[0], node.operation) if node.dtype.is_float() else given[0]


@_lowering("trunc")
def _trunc(node: Apply, given: Sequence[str]) -> str:
    if node.parameter("digits") != 0 or not node.dtype.is_float():
        raise NotInSpark("trunc", " with digits")
    return _towards_zero(given[0])


@_lowering("sqrt")
def _sqrt(node: Apply, given: Sequence[str]) -> str:
    return one_nan(call("sqrt", given[0]))


_ONES = (literal(1.0, DOUBLE), literal(-1.0, DOUBLE))


@_lowering("neg", "abs", "sign")
def _sign(node: Apply, given: Sequence[str]) -> str:
    (x,) = given
    if not _is_integer(node):
        _only_floats(node)
    zero, one, minus = ("0L", "1L", literal(-1, BIGINT)) if _is_integer(node) else (_ZERO, *_ONES)
    if node.operation == "sign":
        nan = "" if _is_integer(node) else f"WHEN {x} > {_INFINITE} THEN {x} "
        return f"CASE {nan}WHEN {x} > 0 THEN {one} WHEN {x} < 0 THEN {minus} WHEN {x} = 0 THEN {zero} END"
    negative = call("try_subtract", "0L", x) if _is_integer(node) else f"({_ZERO} - {x})"
    if node.operation == "neg":
        return negative
    return f"CASE WHEN {x} < 0 THEN {negative} WHEN {x} = 0 THEN {zero} ELSE {x} END"


@_lowering("least", "greatest")
def _extreme(node: Apply, given: Sequence[str]) -> str:
    if len(given) > 8:
        raise NotInSpark(_spoken(node), " for more than 8 arguments")
    total, *rest = given
    sign, is_float = "<=" if node.operation == "least" else ">=", node.dtype.is_float()
    for one in rest:
        first = f"{total} {sign} {one}"
        if is_float:  # NaN is chosen only if there is nothing else
            first = f"(({first} AND NOT {total} > {_INFINITE}) OR ({one} > {_INFINITE} AND {total} IS NOT NULL))"
        total = f"CASE WHEN {one} IS NULL OR {first} THEN {total} ELSE {one} END"
    return total


@_lowering("cut")
def _cut(node: Apply, given: Sequence[str]) -> str:
    (x,), own = given, node.arguments[0].dtype
    if not own.is_float():
        x = f"CAST({x} AS DOUBLE)"
    labels = node.dtype.categories.to_list()  # type: ignore[attr-defined]
    sign = "<" if node.parameter("left_closed") else "<="
    pairs = [
        f"WHEN {x} {sign} {literal(edge, DOUBLE)} THEN {literal(label, STRING)}"
        for edge, label in zip(node.parameter("breaks"), labels, strict=False)
    ]
    return f"CASE {' '.join(pairs)} WHEN {x} <= {_INFINITE} THEN {literal(labels[-1], STRING)} END"


# ---------------------------------------------------------------------- casts


@_lowering("cast")
def _cast(node: Apply, given: Sequence[str]) -> str:
    (x,), source, target = given, node.arguments[0].dtype, node.parameter("to")
    before, after = kind_of(source), kind_of(target)
    found = _CASTS.get((before, after))
    if found is None:
        raise NotInSpark(f"cast from {source} to {target}")
    return found(x, source, target)


def _same(x: str, source: pl.DataType, target: pl.DataType) -> str:
    return x


def _from_truth(yes: str, no: str) -> Callable[[str, pl.DataType, pl.DataType], str]:
    return lambda x, source, target: f"CASE WHEN {x} THEN {yes} WHEN NOT {x} THEN {no} END"


def _within(x: str, low: int, high: int, then: str | None = None) -> str:
    """Return a BIGINT, or an expression of it (`then`), with null for numbers outside a range."""
    tests = [f"{x} >= {literal(low, BIGINT)}"] if low > LEAST else []
    tests += [f"{x} <= {literal(high, BIGINT)}"] if high < MOST else []
    return f"CASE WHEN {' AND '.join(tests)} THEN {then or x} END" if tests else then or x


def _narrowed(x: str, source: pl.DataType, target: pl.DataType) -> str:
    return _within(x, *integer_range(target))


def _to_float(x: str, source: pl.DataType, target: pl.DataType) -> str:
    single = target == pl.Float32 and source != pl.Float32
    return f"CAST(CAST({x} AS FLOAT) AS DOUBLE)" if single else f"CAST({x} AS DOUBLE)"


def _float_to_integer(x: str, source: pl.DataType, target: pl.DataType) -> str:
    low, high = integer_range(target)
    # 2**63 is a float and 2**63 - 1 is not. A float between -129 and -128 becomes -128, which an Int8 holds.
    above = f"{x} >= {literal(float(low), DOUBLE)}" if low == LEAST else f"{x} > {literal(float(low - 1), DOUBLE)}"
    inside = f"{above} AND {x} < {literal(float(high + 1), DOUBLE)}"
    return f"CASE WHEN {inside} THEN CAST({x} AS BIGINT) END"


def _decimal_to_float(x: str, source: pl.DataType, target: pl.DataType) -> str:
    if not isinstance(source, pl.Decimal) or source.precision is None or source.precision > 15 or target != pl.Float64:
        raise NotInSpark(f"cast from {source} to {target}")
    return f"(CAST({x} AS DOUBLE) / {literal(10.0**source.scale, DOUBLE)})"


def _rescaled(x: str, source: pl.DataType, target: pl.DataType) -> str:
    before, after = _ticks_per_day(source), _ticks_per_day(target)
    moved = _scaled(x, before, after)
    if kind_of(source) == "duration":
        return moved
    moved = _in_calendar(x, source, moved)
    # The day of a time is in the calendar, and so is the time at which a day begins, if 64 bits hold all such times.
    fits = (LAST_DAY + 1) * after <= MOST and (kind_of(source) == "date" or target == pl.Date())
    return moved if fits else _in_calendar(moved, target)


def _scaled(x: str, before: int, after: int) -> str:
    """Return a number of ticks in another unit, rounded down; null if it does not fit into 64 bits."""
    if after >= before:
        return call("try_multiply", x, f"{after // before}L") if after > before else x
    return floor_div(x, before // after)


def floor_div(x: str, divisor: int) -> str:
    """Return an integer divided by a positive constant, rounded down."""
    if divisor == 1:
        return x
    # Towards zero, and one less for what is negative and leaves a rest. Subtracting the rest first could overflow.
    return f"({x} div {divisor}L - CASE WHEN {x} % {divisor}L < 0 THEN 1L ELSE 0L END)"


def floor_mod(x: str, divisor: int) -> str:
    """Return the remainder of the division by a positive constant, which is never negative."""
    return call("pmod", x, f"{divisor}L")


def _ticks_per_day(dtype: pl.DataType) -> int:
    return 1 if kind_of(dtype) == "date" else 86_400 * TICKS[dtype.time_unit]  # type: ignore[attr-defined]


def _in_calendar(x: str, dtype: pl.DataType, then: str | None = None) -> str:
    """Return dates and datetimes, or what is computed from them, with null for those outside the years 1 to 9999."""
    ticks = _ticks_per_day(dtype)
    low, high = max(FIRST_DAY * ticks, LEAST + 1), min((LAST_DAY + 1) * ticks - 1, MOST)
    return _within(x, low, high, then)


def _to_calendar(x: str, source: pl.DataType, target: pl.DataType) -> str:
    return _in_calendar(x, target)


def _to_category(x: str, source: pl.DataType, target: pl.DataType) -> str:
    """Return a text that is null if it is none of the categories."""
    categories = target.categories.to_list()  # type: ignore[attr-defined]
    if len(categories) > _MOST_LISTED:
        raise NotInSpark(f"cast to an Enum of more than {_MOST_LISTED:,} categories")
    listed = ", ".join(literal(one, STRING) for one in categories)
    return f"CASE WHEN {x} IN ({listed}) THEN {x} END" if listed else literal(None, STRING)


_CASTS: dict[tuple[str, str], Callable[[str, pl.DataType, pl.DataType], str]] = {
    ("boolean", "integer"): _from_truth("1L", "0L"),
    ("boolean", "float"): _from_truth(literal(1.0, DOUBLE), _ZERO),
    ("boolean", "text"): _from_truth(literal("true", STRING), literal("false", STRING)),
    ("integer", "boolean"): lambda x, source, target: f"({x} <> 0)",
    ("integer", "integer"): _narrowed,
    ("integer", "float"): _to_float,
    ("integer", "text"): lambda x, source, target: f"CAST({x} AS STRING)",
    ("integer", "date"): _to_calendar,
    ("integer", "datetime"): _to_calendar,
    ("float", "boolean"): lambda x, source, target: f"({x} <> 0)",
    ("float", "integer"): _float_to_integer,
    ("float", "float"): _to_float,
    ("decimal", "float"): _decimal_to_float,
    ("enum", "text"): _same,
    ("categorical", "text"): _same,
    ("text", "text"): _same,
    ("text", "enum"): _to_category,
    ("enum", "enum"): _to_category,
    **{(one, two): _rescaled for one in ("date", "datetime") for two in ("date", "datetime")},
    ("duration", "duration"): _rescaled,
    **{(one, "integer"): _narrowed for one in ("date", "datetime", "duration", "time")},
    ("integer", "duration"): _same,
}

# ---------------------------------------------------------------------- texts

_simple("len_chars", lambda x: f"CAST({call('char_length', x)} AS BIGINT)")
_simple("len_bytes", lambda x: f"CAST({call('octet_length', x)} AS BIGINT)")
_simple("starts_with", lambda x, y: call("startswith", x, y))
_simple("ends_with", lambda x, y: call("endswith", x, y))


def _short(x: str) -> str:
    return call("substring", x, "1", str(MOST_TEXT))


@_lowering("contains")
def _contains(node: Apply, given: Sequence[str]) -> str:
    if not node.parameter("literal"):
        raise NotInSpark("str.contains", " for regular expressions; with literal=True it has one")
    return call("contains", given[0], literal(node.parameter("pattern"), STRING))


@_lowering("strip_prefix")
def _strip_prefix(node: Apply, given: Sequence[str]) -> str:
    (x,), prefix = given, node.parameter("prefix")
    found = call("startswith", x, literal(prefix, STRING))
    return f"CASE WHEN {found} THEN {call('substring', x, str(len(prefix) + 1))} ELSE {x} END"


@_lowering("strip_suffix")
def _strip_suffix(node: Apply, given: Sequence[str]) -> str:
    (x,), suffix = given, node.parameter("suffix")
    found = call("endswith", x, literal(suffix, STRING))
    rest = call("substring", x, "1", f"{call('char_length', x)} - {len(suffix)}")
    return f"CASE WHEN {found} THEN {rest} ELSE {x} END"


@_lowering("slice")
def _slice(node: Apply, given: Sequence[str]) -> str:
    offset, length = node.parameter("offset"), node.parameter("length")
    if offset < 0 or offset > MOST_TEXT or (length is not None and length > (1 << 30)):
        raise NotInSpark("str.slice", " for a negative offset, or a large one")
    return call("substring", given[0], str(offset + 1), *([] if length is None else [str(length)]))


@_lowering("replace")
def _replace(node: Apply, given: Sequence[str]) -> str:
    pattern, value = node.parameter("pattern"), node.parameter("value")
    if not node.parameter("literal") or node.parameter("n") == 1 or not pattern:
        raise NotInSpark(
            "str.replace", " for regular expressions and single matches; str.replace_all(literal=True) has one"
        )
    return _short(call("replace", _short(given[0]), literal(pattern, STRING), literal(value, STRING)))


@_lowering("concat")
def _concat(node: Apply, given: Sequence[str]) -> str:
    if node.parameter("ignore_nulls"):
        raise NotInSpark("concat_str", " with ignore_nulls=True")
    between = literal(node.parameter("separator"), STRING)
    parts: list[str] = []
    for one in given:
        parts += [between, _short(one)] if parts and node.parameter("separator") else [_short(one)]
    return _short(call("concat", *parts))


# ---------------------------------------------------------------------- dates and times


def _days(x: str, dtype: pl.DataType) -> str:
    """Return the day of a date or datetime of the calendar, as a number."""
    if getattr(dtype, "time_zone", None) not in (None, "UTC"):
        raise NotInSpark("a datetime", f" in the time zone {dtype.time_zone}")  # type: ignore[attr-defined]
    return _in_calendar(x, dtype, floor_div(x, _ticks_per_day(dtype)))


def _date(x: str, dtype: pl.DataType) -> str:
    return call("date_from_unix_date", f"CAST({_days(x, dtype)} AS INT)")


_OF_DATES: dict[str, Callable[[str], str]] = {
    "year": lambda day: call("year", day),
    "quarter": lambda day: call("quarter", day),
    "month": lambda day: call("month", day),
    "week": lambda day: call("weekofyear", day),
    "day": lambda day: call("day", day),
    "ordinal_day": lambda day: call("dayofyear", day),
}
_PER_SECOND = {"hour": 3600, "minute": 60, "second": 1}
_FRACTIONS = {"millisecond": 10**3, "microsecond": 10**6, "nanosecond": 10**9}


@_lowering("date_part")
def _date_part(node: Apply, given: Sequence[str]) -> str:
    (x,), dtype, part = given, node.arguments[0].dtype, node.parameter("part")
    if part == "weekday":  # 1970 began on a Thursday
        return f"({floor_mod(f'{_days(x, dtype)} + 3L', 7)} + 1L)"
    if part in _OF_DATES:
        return f"CAST({_OF_DATES[part](_date(x, dtype))} AS BIGINT)"
    if kind_of(dtype) != "datetime" or part not in {**_PER_SECOND, **_FRACTIONS}:
        raise NotInSpark(f"dt.{part}", "" if kind_of(dtype) == "datetime" else f" for the type {dtype}")
    ticks = _ticks_per_day(dtype) // 86_400
    _days(x, dtype)  # refuses time zones
    inside = _in_calendar(x, dtype)
    if part in _FRACTIONS:
        return _scaled(floor_mod(inside, ticks), ticks, _FRACTIONS[part])
    seconds = floor_div(floor_mod(inside, 86_400 * ticks), ticks)
    return floor_mod(floor_div(seconds, _PER_SECOND[part]), 24 if part == "hour" else 60)


_DIRECTIVES = {"Y": ("year", 4), "m": ("month", 2), "d": ("day", 2)}


@_lowering("format_time")
def _format_time(node: Apply, given: Sequence[str]) -> str:
    (x,), dtype, written = given, node.arguments[0].dtype, node.parameter("format")
    parts: list[str] = []
    for place, text in enumerate(re.split(r"%(.)", written, flags=re.DOTALL)):  # a directive is at each odd place
        if place % 2 == 0:
            parts += [literal(text, STRING)] if text else []
            continue
        if text not in _DIRECTIVES:
            raise NotInSpark("dt.to_string", f" for %{text}; it has one for %Y, %m and %d")
        name, digits = _DIRECTIVES[text]
        # With a digit before them, all numbers have their zeros.
        number = f"CAST({10**digits}L + CAST({_OF_DATES[name](_date(x, dtype))} AS BIGINT) AS STRING)"
        parts.append(call("substring", number, "2", str(digits)))
    if not parts or "%" in re.sub(r"%.", "", written, flags=re.DOTALL):
        raise NotInSpark("dt.to_string", " for this format")
    # A time that is missing has no text, whatever the format is.
    return f"CASE WHEN {_in_calendar(x, dtype)} IS NOT NULL THEN {call('concat', *parts)} END"


@_lowering("to_date")
def _to_date(node: Apply, given: Sequence[str]) -> str:
    return _in_calendar(_days(given[0], node.arguments[0].dtype), node.dtype)


@_lowering("month_start")
def _month_start(node: Apply, given: Sequence[str]) -> str:
    (x,), dtype = given, node.arguments[0].dtype
    day = f"CAST({call('day', _date(x, dtype))} AS BIGINT)"
    return _in_calendar(f"({_in_calendar(x, dtype)} - ({day} - 1L) * {_ticks_per_day(dtype)}L)", node.dtype)


@_lowering("truncate_time")
def _truncate_time(node: Apply, given: Sequence[str]) -> str:
    (x,), dtype, every = given, node.arguments[0].dtype, node.parameter("every")
    day, days = _date(x, dtype), _days(x, dtype)
    month = f"(({call('quarter', day)} - 1) * 3 + 1)"  # the first one of a quarter
    first = {
        "1d": days,
        "1w": f"({days} - {floor_mod(f'{days} + 3L', 7)})",  # 1970 began on a Thursday
        "1mo": f"({days} - (CAST({call('day', day)} AS BIGINT) - 1L))",
        "1q": f"CAST({call('unix_date', call('make_date', call('year', day), month, '1'))} AS BIGINT)",
        "1y": f"({days} - (CAST({call('dayofyear', day)} AS BIGINT) - 1L))",
    }
    if every not in first:
        raise NotInSpark("dt.truncate", f" by {every}; it has one for {', '.join(first)}")
    if node.dtype == pl.Date():
        return first[every]
    # A period may begin before the first time that 64 bits hold.
    return _in_calendar(call("try_multiply", first[every], f"{_ticks_per_day(dtype)}L"), node.dtype)


@_lowering("epoch")
def _epoch(node: Apply, given: Sequence[str]) -> str:
    source, unit = node.arguments[0].dtype, node.parameter("unit")
    wanted = 1 if unit == "d" else 86_400 * (1 if unit == "s" else TICKS[unit])
    return _scaled(_in_calendar(given[0], source), _ticks_per_day(source), wanted)
