"""Translate SQL expressions over private rows into the typed expressions of `dp_polars._expressions`.

DuckDB parses a statement. This module gives each node of the tree a meaning, or refuses it. DuckDB itself never
computes on private rows, so its macros, settings, overflows and casts have no effect on them. The language differs from
DuckDB's in a few ways, which are the same everywhere: a computation that fails gives null, integers are computed in 64
bits, the time is one constant in the whole statement, and expressions can't read other rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl

from dp_polars._expressions import Apply, Column, Constant, Expression, apply, canonical, constant
from dp_polars._expressions.check import problem_on_hostile_values
from dp_polars._expressions.constants import from_series
from dp_polars._expressions.messages import Reason, Refused
from dp_polars._expressions.operations.texts import json_path
from dp_polars._expressions.types import MOST_DIGITS, MOST_WRITTEN, kind_of
from dp_polars._sql.allowed_functions import PRIVATE
from dp_polars._sql.scope import WITHHELD, Scope, closest, unknown_column
from dp_polars._sql.syntax_tree import Node, Parser, arguments, children, fold
from dp_polars._sql.types import polars_type, sql_type
from dp_polars.errors import ExpressionNotAllowed, StatementNotAllowed

_INT, _FLOAT, _TEXT, _TRUTH = pl.Int64(), pl.Float64(), pl.String(), pl.Boolean()
_TEXT_KINDS = ("text", "categorical", "enum")
_TEXT_SUM = Reason("adds numbers, not texts", "SQL concatenates texts with ||.", "Write a || b.")


@dataclass(frozen=True)
class Interval:
    """A constant interval. It can be added to dates and timestamps, but no column can hold one."""

    months: int
    days: int
    microseconds: int

    def negated(self) -> Interval:
        """Return the interval with the opposite sign."""
        return Interval(-self.months, -self.days, -self.microseconds)


Read = Expression | Interval


@dataclass
class Clock:
    """The time of a statement, which is the same wherever the statement asks for it."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    used: bool = False

    def read(self, name: str) -> Constant | None:
        """Return the time as a constant by its name in SQL, or None if the name means something else."""
        times = {
            **dict.fromkeys(("current_date", "today"), self.now.date()),
            **dict.fromkeys(("now", "current_timestamp", "get_current_timestamp"), self.now),
            **dict.fromkeys(("localtimestamp", "current_localtimestamp"), self.now.replace(tzinfo=None)),
        }
        if name not in times:
            return None
        self.used = True
        return constant(times[name])


class Reader:
    """Translates the expressions of one statement over the columns of a scope."""

    def __init__(self, scope: Scope, parser: Parser, parameters: Mapping[str, Any], clock: Clock | None = None) -> None:
        self._scope, self._parser, self._parameters = scope, parser, dict(parameters)
        self._clock = clock or Clock()

    def value(self, node: Node) -> Expression:
        """Translate an expression that has a value in each row, or refuse it."""
        found = self.any(node)
        if isinstance(found, Interval):
            raise self.refuse(
                node, "An INTERVAL can only be added to or subtracted from a date or timestamp; write a value here."
            )
        return found

    def checked(self, node: Node) -> Expression:
        """Translate a whole expression and try it on made-up rows, because a pattern or format may be invalid."""
        found = self.value(node)
        if isinstance(found, Apply):
            if len(canonical(found)) > MOST_WRITTEN:
                raise self.refuse(
                    node, f"This expression is longer than {MOST_WRITTEN:,} characters. Shorten its constants."
                )
            schema = {column.name: column.dtype for column in _columns(found)}
            problem = problem_on_hostile_values([found], schema)
            if problem is not None:
                raise self.refuse(
                    node,
                    f"This expression fails on some values that its columns could hold (a trial on made-up rows gave: "
                    f"{problem}). Check its patterns, formats and constants.",
                )
        return found

    def condition(self, node: Node) -> Expression:
        """Translate a condition, which is true, false or null in each row."""
        found = self.checked(node)
        if found.dtype != _TRUTH:
            raise self.refuse(
                node, "This is not a condition: it must be true or false in each row. Compare it with something."
            )
        return found

    def any(self, node: Node) -> Read:
        """Translate a node into an expression or an interval."""
        kind = node.get("class", "")
        read = _CLASSES.get(kind)
        if read is None:
            raise self.refuse(node, _REFUSED.get(kind, f"{fold(kind) or 'These'} expressions are not supported here."))
        try:
            return read(self, node)
        except Refused as error:
            raise self.refuse(node, f"{_spoken(node)} {error.reason.does}. {error.reason.why}") from None
        except StatementNotAllowed:
            raise
        except ExpressionNotAllowed as error:
            raise self.refuse(node, str(error)) from None

    def values(self, nodes: Sequence[Node]) -> list[Expression]:
        """Translate several expressions. Text constants are converted to the type of the other expressions."""
        found = _in_one_zone([self.value(node) for node in nodes])
        typed = [expression.dtype for expression in found if kind_of(expression.dtype) not in (*_TEXT_KINDS, "null")]
        if not typed:
            return found
        return [self._converted(expression, typed[0], node) for expression, node in zip(found, nodes, strict=True)]

    def _converted(self, expression: Expression, dtype: pl.DataType, node: Node) -> Expression:
        """Convert a text constant to a type, as SQL does with '2024-01-01' beside a date. Return others unchanged."""
        if not isinstance(expression, Constant) or not isinstance(expression.value, str):
            return expression
        name = sql_type(dtype)
        if name is None:
            return expression
        try:
            found = self._parser.read_as(expression.value, name)
        except duckdb.Error:
            raise self.refuse(
                node, f"{expression.value!r} is compared with a value of the type {name}, but can't be converted to it."
            ) from None
        return from_series(_in_utc(found))

    # ------------------------------------------------------------------ constants

    def literal(self, node: Node, what: str) -> Any:
        """Return the Python value of an argument that must be a constant text, number or Boolean."""
        found = self.any(node)
        if not isinstance(found, Constant) or isinstance(found.value, tuple):
            raise self.refuse(
                node, f"{what} must be a constant, because it is part of the query and can't differ between rows."
            )
        if isinstance(found.dtype, pl.Decimal):
            return found.value / 10**found.dtype.scale
        return found.value

    def text(self, node: Node, what: str) -> str:
        """Return the value of an argument that must be a constant text."""
        found = self.literal(node, what)
        if not isinstance(found, str):
            raise self.refuse(node, f"{what} must be a constant text.")
        return found

    def whole(self, node: Node, what: str, *, low: int = -(1 << 31), high: int = 1 << 31) -> int:
        """Return the value of an argument that must be a constant whole number."""
        found = self.literal(node, what)
        if isinstance(found, bool) or not isinstance(found, int) or not low <= found <= high:
            raise self.refuse(node, f"{what} must be a constant whole number from {low:,} to {high:,}.")
        return found

    def _folded(self, node: Node) -> Read:
        """Let DuckDB evaluate a constant expression, in the library's own empty database."""
        try:
            array = self._parser.constant(node, self._parameters)
        except duckdb.Error:
            raise self.refuse(node, "DuckDB can't compute this constant: it doesn't fit its type.") from None
        if str(array.type) == "month_day_nano_interval":
            span = array[0].as_py()
            if span is None:
                raise self.refuse(node, "An INTERVAL must not be null.")
            return Interval(span.months, span.days, span.nanoseconds // 1000)
        return from_series(_in_utc(pl.Series(array)))

    # ------------------------------------------------------------------ nodes

    def read_column(self, node: Node) -> Expression:
        """Translate a reference to a column, or to a field of a struct column."""
        found = self._scope.column(node)
        if found is None:
            names = node["column_names"]
            time = self._clock.read(fold(names[0])) if len(names) == 1 else None
            if time is not None:
                return time
            raise unknown_column(node, self._scope)
        meaning, fields = found
        if meaning == WITHHELD:
            reason = f"The policy says that {node['column_names'][-1]} may not be asked."
            raise self._scope.refuse(node, reason, code="not-in-policy")
        if isinstance(meaning, str):
            raise self.refuse(
                node,
                f"{node['column_names'][-1]} has the type {meaning}, which can't be used over private rows. Convert it "
                "to a number, a text or a date in the table.",
            )
        result: Expression = meaning
        for name in fields:
            result = self._field(result, name, node)
        return result

    def _field(self, struct: Expression, field: str, node: Node) -> Expression:
        if not isinstance(struct.dtype, pl.Struct):
            raise self.refuse(node, f"{'.'.join(node['column_names'])} names a field of a value that is not a struct.")
        named = next((inner.name for inner in struct.dtype.fields if fold(inner.name) == fold(field)), field)
        return apply("struct_field", struct, name=named)

    def read_constant(self, node: Node) -> Read:
        """Translate a constant."""
        plain, value = self._parser.literal(node)
        if isinstance(value, Decimal) and _is_float(value, node):
            value = float(value)
        return constant(value) if plain else self._folded(node)

    def read_parameter(self, node: Node) -> Expression:
        """Translate a parameter into a constant with the parameter's value."""
        name = str(node["identifier"])
        if name not in self._parameters:
            raise self.refuse(node, f"No value was given for parameter {name}.")
        value = self._parameters[name]
        return constant(list(value) if isinstance(value, tuple) else value)

    def read_cast(self, node: Node) -> Read:
        """Translate a cast. A value that the type can't hold becomes null."""
        kind = self._parser.type_of(node)
        name, to = str(kind), polars_type(kind)
        constant = _is_constant(node)
        if not (constant and name == "INTERVAL") and (to is None or name in _NO_CASTS):
            raise self.refuse(node, f"A cast to {name} is not available over private rows; cast to BIGINT or VARCHAR.")
        if constant:
            return self._folded(node)
        if to is None or isinstance(to, pl.List):
            raise self.refuse(node, f"A cast to {name} is not available over private rows.")
        return _cast(self.value(node["child"]), to)

    def read_comparison(self, node: Node) -> Expression:
        """Translate a comparison."""
        name = _COMPARISONS.get(node["type"])
        if name is None:
            raise self.refuse(node, f"{node['type']} is not supported.")
        sides = [self.any(node["left"]), self.any(node["right"])]
        if any(isinstance(side, Interval) for side in sides):
            sides = [self._duration(side, node) if isinstance(side, Interval) else side for side in sides]
            return apply(name, *sides)  # type: ignore[arg-type]
        return apply(name, *self.values([node["left"], node["right"]]))

    def _duration(self, span: Interval, node: Node) -> Expression:
        if span.months:
            raise self.refuse(node, "A month has no fixed length; compare with an interval of days or hours.")
        return Constant(span.days * 86_400_000_000 + span.microseconds, pl.Duration("us"))

    def read_conjunction(self, node: Node) -> Expression:
        """Translate AND or OR."""
        name = {"CONJUNCTION_AND": "and", "CONJUNCTION_OR": "or"}.get(node["type"])
        if name is None:
            raise self.refuse(node, f"{node['type']} is not supported.")
        return self._joined(name, [self._truth(child) for child in node["children"]])

    def _joined(self, name: str, given: Sequence[Expression]) -> Expression:
        """Combine any number of conditions by AND or OR, with as little nesting as possible."""
        parts = list(given)
        while len(parts) > 1:
            parts = [apply(name, *parts[i : i + 50]) if len(parts[i : i + 50]) > 1 else parts[i]
                     for i in range(0, len(parts), 50)]  # fmt: skip
        return parts[0]

    def _truth(self, node: Node) -> Expression:
        found = self.value(node)
        if found.dtype != _TRUTH and kind_of(found.dtype) != "null":
            raise self.refuse(node, "AND, OR and NOT take conditions, which must be true or false in each row.")
        return found

    def read_between(self, node: Node) -> Expression:
        """Translate BETWEEN, which includes both ends."""
        value, low, high = self.values([node["input"], node["lower"], node["upper"]])
        return apply("and", apply("ge", value, low), apply("le", value, high))

    def read_case(self, node: Node) -> Expression:
        """Translate CASE."""
        checks = node["case_checks"]
        conditions = [self._truth(check["when_expr"]) for check in checks]
        values = self.values([*(check["then_expr"] for check in checks), node["else_expr"]])
        parts = [part for pair in zip(conditions, values[:-1], strict=True) for part in pair]
        return apply("case", *parts, values[-1])

    def read_operator(self, node: Node) -> Read:
        """Translate NOT, IS NULL, IN, COALESCE, TRY, or access to an element of a list or struct."""
        given = node["children"]
        match node["type"]:
            case "OPERATOR_NOT":
                return apply("not", self._truth(given[0]))
            case "OPERATOR_IS_NULL":
                return apply("is_null", self.value(given[0]))
            case "OPERATOR_IS_NOT_NULL":
                return apply("is_not_null", self.value(given[0]))
            case "COMPARE_IN":
                return self._inside(given)
            case "COMPARE_NOT_IN":
                return apply("not", self._inside(given))
            case "OPERATOR_COALESCE":
                return apply("coalesce", *self.values(given))
            case "OPERATOR_TRY":
                return self.any(given[0])  # nothing can fail here
            case "ARRAY_EXTRACT" | "STRUCT_EXTRACT":
                return _FUNCTIONS["list_extract"].read(self, node, given)
            case "ARRAY_CONSTRUCTOR":
                return self._constants(given, node)
        raise self.refuse(node, f"{node['type'].replace('_', ' ').lower()} is not available over private rows.")

    def _constants(self, given: Sequence[Node], node: Node) -> Constant:
        """Translate a list of constants."""
        found = [self.any(item) for item in given]
        if not all(isinstance(item, Constant) for item in found):
            raise self.refuse(
                node, "A list built from columns can grow without bounds; a list may contain constants only."
            )
        return _listed([item for item in found if isinstance(item, Constant)])

    def _inside(self, given: Sequence[Node]) -> Expression:
        """Translate IN. If the list contains a null, the result is null instead of false, as in SQL."""
        value, *others = given
        values = self.values([value, *others])
        x, among = values[0], values[1:]
        if len(among) == 1 and isinstance(among[0], Constant) and isinstance(among[0].dtype, pl.List):
            inner: Any = among[0].dtype.inner
            among = [self._converted(Constant(item, inner), x.dtype, others[0]) for item in among[0].value]
        constants = [item for item in among if isinstance(item, Constant)]
        if len(constants) < len(among):
            return self._joined("or", [apply("eq", x, item) for item in among])
        held = [item for item in constants if item.value is not None]
        inside = apply("is_in", x, values=_listed(held)) if held else _unknown(x)
        if len(held) == len(constants):
            return inside
        return apply("case", inside, Constant(True, _TRUTH), Constant(None, _TRUTH))

    def read_function(self, node: Node) -> Read:
        """Translate a call of a known function."""
        name = fold(node["function_name"])
        if node.get("filter") or node.get("distinct") or (node.get("order_bys") or {}).get("orders"):
            raise self.refuse(
                node,
                f"{name} with FILTER, DISTINCT or ORDER BY aggregates rows, which only private aggregates may do here.",
            )
        if node.get("schema") not in ("", "main", None) or node.get("catalog"):
            raise self.refuse(
                node,
                f"{name} is called by a qualified name; only built-in functions are allowed, by their plain names.",
            )
        if name in PRIVATE:
            raise self.refuse(
                node, f"{name} can't be inside an expression over private rows; put it in SELECT, HAVING or ORDER BY."
            )
        given = arguments(node)
        time = None if given else self._clock.read(name)
        if time is not None:
            return time
        function = _FUNCTIONS.get(name)
        if function is None:
            raise self.refuse(node, _no_function(name))
        if any(said for said, _ in given):
            raise self.refuse(node, f"{name} takes its arguments by position, not by name.")
        nodes = [child for _, child in given]
        if not function.least <= len(nodes) <= function.most:
            raise self.refuse(node, f"{name} takes {function.counted()}, not {len(nodes)}.")
        if _is_constant(node):
            return self._folded(node)
        return function.read(self, node, nodes)

    def refuse(self, node: Node, reason: str) -> StatementNotAllowed:
        """Return an error that ends with the location of a node."""
        return self._scope.refuse(node, reason)


_CLASSES: dict[str, Callable[[Reader, Node], Read]] = {
    "COLUMN_REF": Reader.read_column,
    "CONSTANT": Reader.read_constant,
    "PARAMETER": Reader.read_parameter,
    "CAST": Reader.read_cast,
    "COMPARISON": Reader.read_comparison,
    "CONJUNCTION": Reader.read_conjunction,
    "BETWEEN": Reader.read_between,
    "CASE": Reader.read_case,
    "OPERATOR": Reader.read_operator,
    "FUNCTION": Reader.read_function,
}
_REFUSED = {
    "SUBQUERY": "A subquery inside an expression reads other rows. Ask for its value first, for example SELECT "
    "dp_max(x, 0, 100) FROM t, and pass it as a parameter; or join a public table. IN and EXISTS on the unit must be "
    "conditions of WHERE by themselves, joined with others by AND.",
    "WINDOW": "A window function reads other rows. Compute it in the list of a SELECT, with PARTITION BY the unit.",
    "STAR": "* and COLUMNS stand for several columns; name a single column.",
    "COLLATE": "collate expressions are not supported; compare lower(x) instead.",
}
_COMPARISONS = {
    "COMPARE_EQUAL": "eq",
    "COMPARE_NOTEQUAL": "ne",
    "COMPARE_LESSTHAN": "lt",
    "COMPARE_LESSTHANOREQUALTO": "le",
    "COMPARE_GREATERTHAN": "gt",
    "COMPARE_GREATERTHANOREQUALTO": "ge",
    "COMPARE_DISTINCT_FROM": "ne_missing",
    "COMPARE_NOT_DISTINCT_FROM": "eq_missing",
}


def _in_one_zone(given: list[Expression]) -> list[Expression]:
    """Return the time of the statement without its zone beside timestamps that have none, which count as UTC."""
    if not any(value.dtype == pl.Datetime("us") and value.columns for value in given):
        return given
    in_utc = pl.Datetime("us", "UTC")
    return [_without_zone(value) if value.dtype == in_utc and not value.columns else value for value in given]


def _without_zone(moment: Expression) -> Expression:
    """Return a constant instant, or `now() - INTERVAL 30 DAYS`, as a timestamp in UTC."""
    if isinstance(moment, Constant):
        return Constant(moment.value, pl.Datetime("us"))
    return apply("replace_zone", moment, zone=None)


def _in_utc(series: pl.Series) -> pl.Series:
    """Convert timestamps with a time zone to UTC, which is the zone of all such columns."""
    zoned = isinstance(series.dtype, pl.Datetime) and series.dtype.time_zone is not None
    return series.dt.convert_time_zone("UTC") if zoned else series


def _spoken(node: Node) -> str:
    """Return the subject of a message about a node."""
    if node.get("class") == "FUNCTION":
        return fold(node["function_name"])
    return {"CAST": "This cast", "COMPARISON": "This comparison", "CASE": "CASE"}.get(node.get("class", ""), "This")


def _columns(found: Expression) -> list[Column]:
    if isinstance(found, Column):
        return [found]
    return [column for inner in found.arguments for column in _columns(inner)] if isinstance(found, Apply) else []


_PRIVATE = {
    "approx_count_distinct": "dp_count_distinct", "approx_quantile": "dp_quantile", "covar_pop": "dp_covar",
    "covar_samp": "dp_covar", "approx_top_k": "dp_top_k", "regr_slope": "dp_linear_regression",
    "regr_intercept": "dp_linear_regression", "corr": "dp_corr", "histogram": "dp_histogram",
}  # fmt: skip
"""The private aggregates to use in place of aggregates of DuckDB that have no meaning within a unit."""


def _no_function(name: str) -> str:
    if name.startswith("dp_"):
        return f"There is no private aggregate {name}{closest(name, sorted(PRIVATE))}."
    if name == "struct_pack":
        return (
            "A struct can't be made of private rows. dp_budget() is read above them: SELECT dp_count(*), "
            "dp_budget().remaining FROM t."
        )
    if name in _PRIVATE:
        return (
            f"{name} combines rows of several people, which only private aggregates may do: {_PRIVATE[name]}. Over the "
            "rows of one person it is not available."
        )
    name = "count(*)" if name == "count_star" else name
    return (
        f"{name} is not among the functions that are known to read a single row only, or rows of one unit. Instead of "
        "an aggregate over several people, which would show private rows, use dp_count, dp_count_units, dp_sum or "
        "dp_avg. Instead of your own macro or function, write out its expression."
    )


def _is_float(value: Decimal, node: Node) -> bool:
    """Return whether DuckDB reads a number as a float: it has an exponent, or too many digits for a decimal."""
    return "e" in fold(node["literal"]["text"]) or len(value.as_tuple().digits) > MOST_DIGITS


def _is_constant(node: Node) -> bool:
    """Return whether an expression consists of constants, casts and the functions that build intervals and lists."""
    match node.get("class"):
        case "CONSTANT" | "PARAMETER":
            return True
        case "CAST":
            return _is_constant(node["child"])
        case "FUNCTION":
            return fold(node["function_name"]) in _FOLDED and all(map(_is_constant, children(node)))
    return False


def is_whole(tree: Expression) -> bool:
    """Return whether a float is a whole number whatever its columns hold: floor(x), round(x) * 10 and so on."""
    if kind_of(tree.dtype) == "integer":
        return True
    if isinstance(tree, Constant):
        return isinstance(tree.value, float) and tree.value.is_integer()
    if not isinstance(tree, Apply):
        return False
    if tree.operation in ("floor", "ceil"):
        return True
    if tree.operation in ("round", "trunc"):
        return bool(tree.parameter("digits") == 0)
    return tree.operation in ("mul", "add", "sub", "neg", "cast") and all(map(is_whole, tree.arguments))


def _unknown(x: Expression) -> Expression:
    """Return false in each row, but null where the value is null."""
    return apply("case", apply("is_null", x), Constant(None, _TRUTH), Constant(False, _TRUTH))


def _listed(given: Sequence[Constant]) -> Constant:
    """Return a list of constants, converted to a common type."""
    types = {value.dtype for value in given if value.value is not None}
    if len(types) == 1:
        return Constant(tuple(item.value for item in given), pl.List(types.pop()))
    if all(kind_of(dtype) in ("integer", "wide", "decimal", "float") for dtype in types):
        return constant([None if item.value is None else _number(item) for item in given])
    return constant([item.value for item in given])


def _number(value: Constant) -> int | float:
    if isinstance(value.dtype, pl.Decimal):
        whole, rest = divmod(value.value, 10**value.dtype.scale)
        return int(whole) if not rest else float(value.value / 10**value.dtype.scale)
    return value.value  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- casts


def _cast(value: Expression, to: pl.DataType) -> Expression:
    """Return a cast with the rules of SQL: numbers are rounded, texts are trimmed, and what doesn't fit is null."""
    source, target = kind_of(value.dtype), kind_of(to)
    if source in _TEXT_KINDS and target in ("integer", "float", "date", "datetime", "time", "boolean"):
        text = apply("strip", apply("cast", value, to=_TEXT))
        if target == "boolean":
            return apply("map_values", apply("lower", text), Constant(None, _TRUTH), old=_TRUTHS[0], new=_TRUTHS[1])
        if target in ("datetime", "time"):
            formats = _STAMPS if target == "datetime" else _CLOCKS
            read = [apply("parse_time", text, to=to, format=format_) for format_ in formats]
            return apply("coalesce", *read)
        if target == "integer":  # '12' as it is, and '1.6' rounded
            rounded = apply("round", apply("cast", text, to=_FLOAT), digits=0)
            return apply("coalesce", apply("cast", text, to=to), apply("cast", rounded, to=to))
        return apply("cast", text, to=to)
    if target == "integer" and source in ("float", "decimal"):
        number = apply("cast", value, to=_FLOAT) if source == "decimal" else value
        mode = "half_away" if source == "decimal" else "half_even"
        return apply("cast", apply("round", number, digits=0, mode=mode), to=to)
    if target == "text" and source == "datetime":
        return apply("format_time", value, format="%Y-%m-%d %H:%M:%S%.f")
    if target == "date" and source == "datetime":
        return apply("to_date", value)
    return apply("cast", value, to=to)


_NO_CASTS = frozenset({"HUGEINT", "UHUGEINT", "UUID", "JSON"})
_TRUTHS = (
    Constant(("true", "t", "yes", "y", "1", "false", "f", "no", "n", "0"), pl.List(_TEXT)),
    Constant((True,) * 5 + (False,) * 5, pl.List(_TRUTH)),
)
_STAMPS = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")
_CLOCKS = ("%H:%M:%S%.f", "%H:%M")


# ---------------------------------------------------------------------- functions

ReadCall = Callable[[Reader, Node, Sequence[Node]], Read]


@dataclass(frozen=True)
class Function:
    """A SQL function: the number of arguments that it takes, and its translation."""

    read: ReadCall
    least: int
    most: int

    def counted(self) -> str:
        """Return the number of arguments in words."""
        if self.least == self.most:
            return f"{self.least} argument{'s' if self.least != 1 else ''}"
        return f"{self.least} to {self.most} arguments" if self.most < 100 else f"{self.least} or more arguments"


_FUNCTIONS: dict[str, Function] = {}
_SPANS = (
    *("to_years", "to_quarters", "to_months", "to_weeks", "to_days", "to_hours", "to_minutes", "to_seconds"),
    *("to_milliseconds", "to_microseconds", "to_decades", "to_centuries", "to_millennia"),
)
_FOLDED = frozenset({*_SPANS, "trunc", "-", "+", "list_value", "make_date", "make_timestamp"})
"""Functions whose calls with constant arguments are evaluated by DuckDB in an empty database."""


def _function(*names: str, least: int = 1, most: int | None = None) -> Callable[[ReadCall], ReadCall]:
    """Register the translation of SQL functions under their names."""

    def register(read: ReadCall) -> ReadCall:
        for name in names:
            _FUNCTIONS[name] = Function(read, least, least if most is None else most)
        return read

    return register


def _plainly(operation: str, *names: str, count: int = 1) -> None:
    """Register SQL functions that translate directly into one operation."""

    def read(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
        return apply(operation, *reader.values(given))

    _function(*names, least=count)(read)


for _name in ("abs", "sign", "floor", "sqrt", "cbrt", "exp", "degrees", "radians", "sin", "cos", "tan", "asin", "acos",
              "atan", "sinh", "cosh", "tanh", "lower", "upper", "reverse"):  # fmt: skip
    _plainly(_name, _name)
_plainly("abs", "@")
_plainly("ceil", "ceil", "ceiling")
_plainly("lower", "lcase")
_plainly("upper", "ucase")
_plainly("len_bytes", "strlen", "octet_length")
_plainly("is_nan", "isnan")
_plainly("is_infinite", "isinf")
_plainly("is_finite", "isfinite")
_plainly("atan2", "atan2", count=2)
_plainly("mul", "*", "multiply", count=2)
_plainly("div", "/", "divide", count=2)
_plainly("pow", "pow", "power", "**", "^", count=2)
_plainly("bit_and", "&", count=2)
_plainly("bit_or", "|", count=2)
_plainly("bit_xor", "xor", count=2)
_plainly("starts_with", "starts_with", "prefix", "^@", count=2)
_plainly("ends_with", "ends_with", "suffix", count=2)
_plainly("list_min", "list_min")
_plainly("list_max", "list_max")


@_function(*_SPANS)
def _span(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    raise reader.refuse(node, "An INTERVAL must be constant; its length can't come from a column.")


@_function("make_date", "make_timestamp", least=3, most=6)
def _make_date(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    raise reader.refuse(node, f"{fold(node['function_name'])} takes constants only; cast a text to a date instead.")


@_function("list_value", least=0, most=1_000_000)
def _list_value(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    return reader._constants(given, node)


@_function("+", "add", least=1, most=2)
def _add(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    if len(given) == 1:
        return reader.any(given[0])
    a, b = reader.any(given[0]), reader.any(given[1])
    if isinstance(a, Interval) and isinstance(b, Interval):
        return Interval(a.months + b.months, a.days + b.days, a.microseconds + b.microseconds)
    if isinstance(a, Interval):
        return _moved(reader, node, b, a)
    if isinstance(b, Interval):
        return _moved(reader, node, a, b)
    return _plus("add", a, b)


@_function("-", "subtract", least=1, most=2)
def _subtract(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    a = reader.any(given[0])
    if len(given) == 1:
        return a.negated() if isinstance(a, Interval) else apply("neg", a)
    b = reader.any(given[1])
    if isinstance(b, Interval):
        return _moved(reader, node, a, b.negated())
    if isinstance(a, Interval):
        raise reader.refuse(node, "A column can't be subtracted from an INTERVAL.")
    if kind_of(a.dtype) == kind_of(b.dtype) == "date":
        return apply("duration_total", apply("sub", a, b), unit="days")
    return _plus("sub", a, b)


def _plus(name: str, a: Expression, b: Expression) -> Expression:
    """Return a sum or difference. Adding an integer to a date moves it by that many days."""
    if name == "add" and kind_of(b.dtype) == "date":
        a, b = b, a
    if kind_of(a.dtype) == "date" and kind_of(b.dtype) in ("integer", "boolean"):
        days = apply("make_duration", apply("cast", b, to=_INT), units=("days",))
        moved = apply(name, apply("cast", a, to=pl.Datetime("us")), days)
        return apply("cast", moved, to=pl.Date())
    if name == "add" and {kind_of(a.dtype), kind_of(b.dtype)} & set(_TEXT_KINDS):
        raise Refused("+", _TEXT_SUM)
    return apply(name, a, b)


def _moved(reader: Reader, node: Node, moment: Read, span: Interval) -> Expression:
    """Add an interval to a date or timestamp, months first. A date becomes a timestamp, as in DuckDB."""
    if isinstance(moment, Interval):
        return reader.value(node)
    if kind_of(moment.dtype) == "duration":
        return apply("add", moment, reader._duration(span, node))
    if kind_of(moment.dtype) == "date":
        moment = apply("cast", moment, to=pl.Datetime("us"))
    for number, unit in ((span.months, "mo"), (span.days, "d"), (span.microseconds, "us")):
        if number:
            moment = apply("offset_time", moment, by=f"{'-' if number < 0 else ''}{abs(number)}{unit}")
    return moment


@_function("//", least=2)
def _quotient(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    values = reader.values(given)
    if any(kind_of(value.dtype) not in ("integer", "boolean", "null") for value in values):
        raise reader.refuse(
            node, "// divides whole numbers only; use / for other numbers, and floor(x / 100) for bins."
        )
    return apply("truncdiv", *values)


@_function("%", "mod", least=2)
def _remainder(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    """Return a remainder with the sign of the dividend, as in SQL."""
    first = given[0]
    if first.get("class") == "FUNCTION" and fold(first["function_name"]) == "md5_number_lower":  # beyond 64 bits
        parts = reader.whole(given[1], "The number of parts", low=1, high=1 << 31)
        hashed = [child for _, child in arguments(first)]
        if len(hashed) != 1:
            raise reader.refuse(first, f"md5_number_lower takes 1 argument, not {len(hashed)}.")
        return apply("md5_share", reader.value(hashed[0]), parts=parts)
    a, b = reader.values(given)
    rest = apply("mod", a, b)
    zero = Constant(0, _INT)
    differs = apply("xor", apply("lt", a, zero), apply("lt", b, zero))
    return apply("case", apply("and", apply("ne", rest, zero), differs), apply("sub", rest, b), rest)


@_function("round", least=1, most=2)
def _round(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    digits = reader.whole(given[1], "The number of digits", low=-15, high=15) if len(given) > 1 else 0
    value = reader.value(given[0])
    if digits >= 0:
        return apply("round", value, digits=digits)
    if kind_of(value.dtype) == "integer":
        raise reader.refuse(
            node, f"round takes no negative digits for whole numbers. Write x // {10**-digits} for bins."
        )
    tens = Constant(float(10**-digits), _FLOAT)
    return apply("mul", apply("round", apply("div", value, tens), digits=0), tens)


@_function("round_even", least=2)
def _round_even(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    digits = reader.whole(given[1], "The number of digits", low=0, high=15)
    return apply("round", reader.value(given[0]), digits=digits, mode="half_even")


@_function("trunc", least=1, most=2)
def _trunc(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    digits = reader.whole(given[1], "The number of digits", low=0, high=15) if len(given) > 1 else 0
    return apply("trunc", reader.value(given[0]), digits=digits)


@_function("ln", "log2", "log10", least=1)
def _logarithm(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    base = {"ln": math.e, "log2": 2.0, "log10": 10.0}[fold(node["function_name"])]
    return apply("log", reader.value(given[0]), base=base)


@_function("log", least=1, most=2)
def _log(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    if len(given) == 1:
        return apply("log", reader.value(given[0]), base=10.0)
    base = reader.literal(given[0], "The base of a logarithm")
    if isinstance(base, bool) or not isinstance(base, int | float):
        raise reader.refuse(node, "The base of a logarithm must be a number: log(2, x).")
    return apply("log", reader.value(given[1]), base=float(base))


@_function("pi", least=0)
def _pi(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    return constant(math.pi)


@_function("greatest", "least", least=1, most=100)
def _extreme(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    values = reader.values(given)
    return values[0] if len(values) == 1 else apply(fold(node["function_name"]), *values)


@_function("nullif", least=2)
def _nullif(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    a, b = reader.values(given)
    return apply("case", apply("eq", a, b), Constant(None, a.dtype), a)


@_function("ifnull", least=2)
def _ifnull(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    return apply("coalesce", *reader.values(given))


@_function("if", least=3)
def _if(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    return apply("case", reader._truth(given[0]), *reader.values(given[1:]))


# ---------------------------------------------------------------------- texts


@_function("length", "len", "char_length", "character_length", "array_length", "list_len", "cardinality")
def _length(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    value = reader.value(given[0])
    return apply("list_len" if kind_of(value.dtype) in ("list", "array") else "len_chars", value)


@_function("trim", "ltrim", "rtrim", least=1, most=2)
def _trim(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    chars = reader.text(given[1], "The text to trim") if len(given) > 1 else " "
    side = {"trim": "both", "ltrim": "start", "rtrim": "end"}[fold(node["function_name"])]
    return apply("strip", reader.value(given[0]), chars=chars, side=side)


@_function("substring", "substr", least=2, most=3)
def _substring(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    """Return a part of a text. Positions count from 1, and negative positions count from the end."""
    start = reader.whole(given[1], "The start")
    length = reader.whole(given[2], "The length", low=0) if len(given) > 2 else None
    if start == 0:
        start, length = 1, None if length is None else max(length - 1, 0)
    return apply("slice", reader.value(given[0]), offset=start - 1 if start > 0 else start, length=length)


@_function("left", "right", least=2)
def _end(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    number = reader.whole(given[1], "The number of characters", low=0)
    value = reader.value(given[0])
    if fold(node["function_name"]) == "left" or number == 0:
        return apply("slice", value, offset=0, length=number)
    return apply("slice", value, offset=-number, length=None)


@_function("lpad", "rpad", least=3)
def _pad(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    length = reader.whole(given[1], "The length", low=0, high=1000)
    name = {"lpad": "pad_start", "rpad": "pad_end"}[fold(node["function_name"])]
    padded = apply(name, reader.value(given[0]), length=length, fill=reader.text(given[2], "The padding character"))
    return apply("slice", padded, offset=0, length=length)


@_function("replace", least=3)
def _replace(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    pattern, value = reader.text(given[1], "The text to replace"), reader.text(given[2], "The replacement")
    if not pattern:
        return reader.value(given[0])
    return apply("replace", reader.value(given[0]), pattern=pattern, value=value, literal=True, n=-1)


@_function("||", "concat", least=1, most=100)
def _concat(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    values = [_written(reader.value(node)) for node in given]
    return apply("concat", *values, separator="", ignore_nulls=fold(node["function_name"]) == "concat")


@_function("concat_ws", least=2, most=100)
def _concat_ws(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    separator = reader.text(given[0], "The separator")
    return apply(
        "concat", *[_written(reader.value(node)) for node in given[1:]], separator=separator, ignore_nulls=True
    )


def _written(value: Expression) -> Expression:
    """Convert a timestamp to the text that SQL writes for it. Return other values unchanged."""
    return _cast(value, _TEXT) if kind_of(value.dtype) == "datetime" else value


@_function("contains", least=2)
def _contains(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    """Return whether a text contains a text, or a list a value. DuckDB parses `x IN $list` as this function too."""
    first = reader.any(given[0])
    if isinstance(first, Constant) and isinstance(first.dtype, pl.List):
        return reader._inside([given[1], given[0]])
    if isinstance(first, Interval) or kind_of(first.dtype) in ("list", "array"):
        return _list_contains(reader, node, given)
    return apply("contains", first, pattern=reader.text(given[1], "The text to find"), literal=True)


@_function("position", "instr", "strpos", least=2)
def _position(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    """Return the position of a constant text in a text, counted from 1, or 0 if it isn't there."""
    value, wanted = reader.value(given[0]), reader.text(given[1], "The text to find")
    if not wanted:
        raise reader.refuse(node, "The text to find must not be empty.")
    before = apply("len_chars", apply("split_part", value, separator=wanted, index=0))
    found = apply("add", before, Constant(1, _INT))
    inside = apply("contains", value, pattern=wanted, literal=True)
    nowhere = apply("case", apply("is_null", value), Constant(None, _INT), Constant(0, _INT))
    return apply("case", inside, found, nowhere)


@_function("split_part", least=3)
def _split_part(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    value, separator = reader.value(given[0]), reader.text(given[1], "The separator")
    place = reader.whole(given[2], "The number of the part", low=-10_000, high=10_000)
    if place == 0 or not separator:
        raise reader.refuse(node, "The parts are numbered from 1, and the separator must not be empty.")
    part = apply("split_part", value, separator=separator, index=place - 1 if place > 0 else place)
    return _or_empty(value, part)


def _or_empty(value: Expression, found: Expression) -> Expression:
    """Return what was found, or an empty text if nothing was found. The result is null where the input is null."""
    empty = apply("case", apply("is_null", value), Constant(None, _TEXT), Constant("", _TEXT))
    return apply("coalesce", found, empty)


@_function("string_split", "str_split", "split", "string_to_array", least=2)
def _split(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    separator = reader.text(given[1], "The separator")
    if not separator:
        raise reader.refuse(node, "The separator must not be empty.")
    return apply("split", reader.value(given[0]), separator=separator)


@_function("regexp_matches", "regexp_full_match", least=2, most=3)
def _matches(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    pattern = _pattern(reader, given)
    if fold(node["function_name"]) == "regexp_full_match":
        pattern = rf"\A(?:{pattern})\z"
    return apply("contains", reader.value(given[0]), pattern=pattern, literal=False)


def _pattern(reader: Reader, given: Sequence[Node], options: int = 2) -> str:
    """Return a constant regular expression with its options in the engine's syntax."""
    pattern = reader.text(given[1], "A pattern")
    said = reader.text(given[options], "The options of a pattern") if len(given) > options else ""
    unknown = set(said) - set("cigsm")
    if unknown:
        raise reader.refuse(given[options], "The options of a pattern are c, i, s and m, and g to replace all matches.")
    flags = "".join(sign for sign in said if sign in "is") + ("m" if "m" in said else "")
    return f"(?{flags}){pattern}" if flags else pattern


@_function("->>", "json_extract_string", least=2)
def _json_text(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    return _json_value(reader, node)


@_function("json_extract", least=2)
def _json_extract(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    raise reader.refuse(node, _NO_JSON)


_NO_JSON = (
    "-> and json_extract give JSON, in which a text is quoted. Write ->> at the end of the path, which gives the value "
    "as text, and cast it if it is a number: (x -> 'a' ->> 'b')::BIGINT."
)


def _read_arrow(reader: Reader, node: Node) -> Read:
    """Read x -> 'a' ->> 'b', whose first arrow DuckDB parses as that of a lambda function."""
    last = node["expr"]
    if last.get("class") == "FUNCTION" and fold(last["function_name"]) == "->>":
        return _json_value(reader, node)
    if last.get("class") == "CONSTANT":
        raise reader.refuse(node, _NO_JSON)
    raise reader.refuse(node, "Lambda functions are not supported over private rows; write out the expression.")


def _json_value(reader: Reader, node: Node) -> Expression:
    """Return a value inside a JSON text, as text."""
    source, steps = _json_steps(node)
    path: list[str | int] = []
    for step in steps:
        own = reader.literal(step, "A step of a path into JSON")
        if isinstance(own, str) and own.startswith("$"):
            path += json_path(own, "->>")
        elif (isinstance(own, str) and not own.startswith("/")) or (type(own) is int and own >= 0):
            path.append(own)
        else:
            raise reader.refuse(step, "A step into JSON is the name of a field, a place from 0, or a path: '$.a.b[0]'.")
    return apply("json_text", reader.value(source), path=tuple(path))


def _json_steps(node: Node) -> tuple[Node, list[Node]]:
    """Return what a chain of arrows starts with, and its steps. The right side of -> may be a chain of its own."""
    if node.get("class") == "LAMBDA":
        source, steps = _json_steps(node["lhs"])
        first, more = _json_steps(node["expr"])
        return source, [*steps, first, *more]
    if node.get("class") == "FUNCTION" and fold(node["function_name"]) in (
        "->>",
        "json_extract_string",
        "json_extract",
    ):
        before, last = [child for _, child in arguments(node)]
        source, steps = _json_steps(before)
        return source, [*steps, last]
    return node, []


_CLASSES["LAMBDA"] = _read_arrow


@_function("md5")
def _md5(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    return apply("md5", reader.value(given[0]))


@_function("md5_number_lower", "md5_number", "md5_number_upper", "hash", "sha1", "sha256", most=20)
def _other_hash(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    raise reader.refuse(
        node,
        f"{fold(node['function_name'])} is not available by itself over private rows. Write md5(x), or "
        "md5_number_lower(x) % 10 for ten parts.",
    )


@_function("format", "printf", least=1, most=50)
def _format(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    """Put values into a text: {} in format, %s and %d in printf. As in DuckDB, the result is null if a value is."""
    name, text = fold(node["function_name"]), reader.text(given[0], "A format")
    pattern = r"\{\{|\}\}|\{(\d*)\}|[{}]" if name == "format" else r"%%|%([sd])|%"
    parts: list[Expression] = []
    end = used = 0
    for found in re.finditer(pattern, text):
        parts += [Constant(text[end : found.start()], _TEXT)] if found.start() > end else []
        end = found.end()
        if found[0] in ("{{", "}}", "%%"):
            parts.append(Constant(found[0][0], _TEXT))
            continue
        place = int(found[1]) if name == "format" and found[1] else used
        used += 1
        if found[1] is None or place >= len(given) - 1:
            known = "{} and {0}" if name == "format" else "%s and %d"
            raise reader.refuse(
                given[0], f"{name} knows {known} over private rows, with a value for each. Write round(x, 2) or "
                "lpad(x, 5, '0') for other forms."
            )  # fmt: skip
        value = reader.value(given[place + 1])
        if kind_of(value.dtype) not in (*_TEXT_KINDS, "integer", "date") or (
            found[1] == "d" and kind_of(value.dtype) != "integer"
        ):
            raise reader.refuse(given[place + 1], f"{name} takes texts and integers here; cast the value first.")
        parts.append(value)
    parts += [Constant(text[end:], _TEXT)] if end < len(text) else []
    return apply("concat", *(parts or [Constant("", _TEXT)]), separator="", ignore_nulls=False)


@_function("regexp_extract", least=2, most=3)
def _extract(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    group = reader.whole(given[2], "The group", low=0, high=100) if len(given) > 2 else 0
    value = reader.value(given[0])
    return _or_empty(value, apply("extract", value, pattern=reader.text(given[1], "A pattern"), group=group))


@_function("regexp_replace", least=3, most=4)
def _regexp_replace(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    pattern = _pattern(reader, given, options=3)
    every = len(given) > 3 and "g" in reader.text(given[3], "The options of a pattern")
    value = re.sub(r"\\(\d)", r"${\1}", reader.text(given[2], "The replacement").replace("$", "$$"))
    return apply("replace", reader.value(given[0]), pattern=pattern, value=value, literal=False, n=-1 if every else 1)


@_function("~~", "!~~", "~~*", "!~~*", least=2)
def _like(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    name = fold(node["function_name"])
    found = _matching(reader, given, "", ignore_case=name.endswith("*"))
    return apply("not", found) if name.startswith("!") else found


@_function("like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape", least=3)
def _like_escape(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    name = fold(node["function_name"])
    found = _matching(reader, given, reader.text(given[2], "ESCAPE"), ignore_case="ilike" in name)
    return apply("not", found) if name.startswith("not") else found


def _matching(reader: Reader, given: Sequence[Node], escape: str, *, ignore_case: bool) -> Expression:
    """Return whether a text matches a LIKE pattern, in which % stands for any text and _ for any character."""
    value, pattern = reader.value(given[0]), reader.text(given[1], "The pattern of LIKE")
    if len(escape) > 1:
        raise reader.refuse(given[2], "ESCAPE must be a single character.")
    inner = pattern.strip("%")
    if not escape and not ignore_case and not set(inner) & set("%_"):
        starts, ends = pattern.startswith("%"), pattern.endswith("%")
        fixed = Constant(inner, _TEXT)
        if not inner and pattern:
            return _any_text(value)
        if starts and ends:
            return apply("contains", value, pattern=inner, literal=True)
        if starts or ends:
            return apply("ends_with" if starts else "starts_with", value, fixed)
        return apply("eq", apply("cast", value, to=_TEXT), fixed)
    parts, place = [], 0
    while place < len(pattern):
        sign = pattern[place]
        if escape and sign == escape and place + 1 < len(pattern):
            place += 1
            parts.append(re.escape(pattern[place]))
        else:
            parts.append({"%": ".*", "_": "."}.get(sign) or re.escape(sign))
        place += 1
    flags = "is" if ignore_case else "s"
    return apply("contains", value, pattern=rf"(?{flags})\A{''.join(parts)}\z", literal=False)


def _any_text(value: Expression) -> Expression:
    """Return true in each row, but null where the value is null."""
    return apply("case", apply("is_null", value), Constant(None, _TRUTH), Constant(True, _TRUTH))


# ---------------------------------------------------------------------- dates

_PARTS = {
    **dict.fromkeys(("year", "years", "y", "yr", "yrs"), "year"),
    **dict.fromkeys(("month", "months", "mon", "mons"), "month"),
    **dict.fromkeys(("day", "days", "d", "dayofmonth"), "day"),
    **dict.fromkeys(("quarter", "quarters"), "quarter"),
    **dict.fromkeys(("week", "weeks", "w", "weekofyear"), "week"),
    **dict.fromkeys(("doy", "dayofyear"), "ordinal_day"),
    **dict.fromkeys(("hour", "hours", "h", "hr", "hrs"), "hour"),
    **dict.fromkeys(("minute", "minutes", "m", "min", "mins"), "minute"),
    **dict.fromkeys(("second", "seconds", "s", "sec", "secs"), "second"),
    "isodow": "weekday",
    "isoyear": "iso_year",
    "century": "century",
    "millennium": "millennium",
    **dict.fromkeys(("dow", "dayofweek", "weekday"), "dow"),
    "epoch": "epoch",
    "decade": "decade",
    "yearweek": "yearweek",
}
_PERIODS = {"year": "1y", "quarter": "1q", "month": "1mo", "week": "1w", "day": "1d", "hour": "1h", "minute": "1m",
            "second": "1s"}  # fmt: skip
_CLOCK = frozenset({"hour", "minute", "second"})
_MONDAY = 946_857_600_000_000
"""2000-01-03, from which DuckDB counts buckets of days, in microseconds."""


def _part(reader: Reader, node: Node, moment: Expression, name: str) -> Expression:
    part = _PARTS.get(name)
    if part is None:
        raise reader.refuse(node, f"{name} is not a part of a date that is supported here.")
    if kind_of(moment.dtype) in ("time", "duration"):
        raise reader.refuse(node, "Parts can be extracted from dates and timestamps, not from times and intervals.")
    if part in _CLOCK and kind_of(moment.dtype) == "date":
        moment = apply("cast", moment, to=pl.Datetime("us"))
    match part:
        case "dow":  # 0 is Sunday
            return apply("mod", apply("date_part", moment, part="weekday"), Constant(7, _INT))
        case "epoch":
            return apply("div", apply("epoch", moment, unit="us"), Constant(1_000_000, _INT))
        case "decade":
            return apply("floordiv", apply("date_part", moment, part="year"), Constant(10, _INT))
        case "yearweek":
            year = apply("mul", apply("date_part", moment, part="iso_year"), Constant(100, _INT))
            return apply("add", year, apply("date_part", moment, part="week"))
    return apply("date_part", moment, part=part)


_NAMED_PARTS = """
    year month day dayofmonth quarter week weekofyear dayofyear hour minute second isodow isoyear century millennium
    dayofweek weekday epoch decade yearweek
"""


@_function(*_NAMED_PARTS.split())
def _named_part(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    return _part(reader, node, reader.value(given[0]), fold(node["function_name"]))


@_function("date_part", "datepart", least=2)
def _date_part(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    return _part(reader, node, reader.value(given[1]), fold(reader.text(given[0], "The part of a date")))


@_function("date_trunc", "datetrunc", least=2)
def _date_trunc(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    part = _PARTS.get(fold(reader.text(given[0], "The part of a date")), "")
    if part not in _PERIODS:
        raise reader.refuse(node, f"Dates can be truncated to {', '.join(_PERIODS)}.")
    moment = reader.value(given[1])
    if part in _CLOCK and kind_of(moment.dtype) == "date":
        moment = apply("cast", moment, to=pl.Datetime("us"))
    return apply("truncate_time", moment, every=_PERIODS[part])


@_function("time_bucket", least=2)
def _time_bucket(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    """Return the start of the bucket that a date is in. Months are counted from 2000-01-01, days from 2000-01-03."""
    width, own = reader.any(given[0]), reader.value(given[1])
    if not isinstance(width, Interval) or kind_of(own.dtype) not in ("date", "datetime"):
        raise reader.refuse(node, "time_bucket takes a constant INTERVAL and a date or timestamp.")
    if width.months:
        if width.days or width.microseconds or width.months < 0 or 360 % width.months:
            raise reader.refuse(node, "Buckets of months must divide 360 months: 1, 2, 3, 6, 12 or 24, for example.")
        return apply("truncate_time", own, every=f"{width.months}mo")
    size = width.days * 86_400_000_000 + width.microseconds
    if size <= 0 or (kind_of(own.dtype) == "date" and size % 86_400_000_000):
        raise reader.refuse(node, "The width of time_bucket is positive, and whole days for dates.")
    moment = apply("cast", own, to=pl.Datetime("us")) if kind_of(own.dtype) == "date" else own
    since = apply("sub", apply("epoch", moment, unit="us"), Constant(_MONDAY, _INT))
    inside = apply("make_duration", apply("mod", since, Constant(size, _INT)), units=("microseconds",))
    start = apply("sub", moment, inside)
    return apply("cast", start, to=pl.Date()) if kind_of(own.dtype) == "date" else start


@_function("date_diff", "datediff", least=3)
def _date_diff(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    """Return the number of boundaries of years, months, days and so on between two points in time."""
    part = _PARTS.get(fold(reader.text(given[0], "The part of a date")), "")
    first, second = reader.values(given[1:])
    if part == "week":  # DuckDB counts whole weeks, not boundaries
        days = apply("sub", _borders(reader, node, second, "day"), _borders(reader, node, first, "day"))
        return apply("truncdiv", days, Constant(7, _INT))
    return apply("sub", _borders(reader, node, second, part), _borders(reader, node, first, part))


def _borders(reader: Reader, node: Node, moment: Expression, part: str) -> Expression:
    """Return the number of years, months, days and so on since a fixed point in time."""
    if part == "year":
        return apply("date_part", moment, part="year")
    if part in ("month", "quarter"):
        per_year = 12 if part == "month" else 4
        year = apply("mul", apply("date_part", moment, part="year"), Constant(per_year, _INT))
        return apply("add", year, apply("date_part", moment, part=part))
    days = apply("epoch", moment, unit="d")
    if part == "day":
        return days
    seconds = {"hour": 3600, "minute": 60, "second": 1}.get(part)
    if seconds is None:
        raise reader.refuse(node, f"Differences can be counted in {', '.join(_PERIODS)}.")
    return apply("floordiv", apply("epoch", moment, unit="s"), Constant(seconds, _INT))


@_function("date_add", least=2)
def _date_add(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    return _add(reader, node, given)


@_function("last_day")
def _last_day(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    return apply("month_end", apply("to_date", reader.value(given[0])))


@_function("epoch_ms", "epoch_us", "epoch_ns")
def _epoch(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    moment = reader.value(given[0])
    if kind_of(moment.dtype) not in ("date", "datetime"):
        raise reader.refuse(node, f"{fold(node['function_name'])} takes a date or a timestamp.")
    return apply("epoch", moment, unit=fold(node["function_name"])[-2:])


@_function("dayname", "monthname")
def _named(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    return apply("format_time", reader.value(given[0]), format="%A" if fold(node["function_name"])[0] == "d" else "%B")


@_function("strftime", least=2)
def _strftime(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    return apply("format_time", reader.value(given[0]), format=reader.text(given[1], "A format"))


@_function("timezone", least=2)
def _timezone(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    """Return local time for an instant, or the instant of a local time. DuckDB writes AT TIME ZONE as this function."""
    zone, moment = reader.text(given[0], "A time zone"), reader.value(given[1])
    if kind_of(moment.dtype) == "date":
        moment = apply("cast", moment, to=pl.Datetime("us"))
    if not isinstance(moment.dtype, pl.Datetime):
        raise reader.refuse(node, "AT TIME ZONE takes a timestamp or a date; cast the value first.")
    if moment.dtype.time_zone is None:
        return apply("convert_zone", apply("replace_zone", moment, zone=zone, ambiguous="latest"), zone="UTC")
    return apply("replace_zone", apply("convert_zone", moment, zone=zone), zone=None)


@_function("strptime", "try_strptime", least=2)
def _strptime(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    format_ = reader.text(given[1], "A format")
    if not re.search(r"%[HIMSTRpc]", format_):  # a date without a time means midnight
        day = apply("parse_time", reader.value(given[0]), to=pl.Date(), format=format_)
        return apply("cast", day, to=pl.Datetime("us"))
    return apply("parse_time", reader.value(given[0]), to=pl.Datetime("us"), format=format_)


# ---------------------------------------------------------------------- lists and structs


@_function("list_extract", "list_element", "array_extract", "element_at", "struct_extract", least=2)
def _extract_part(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    """Return an element of a list, counted from 1, a field of a struct, or a character of a text."""
    value = reader.value(given[0])
    if isinstance(value.dtype, pl.Struct):
        name = reader.text(given[1], "The name of a field")
        named = next((field.name for field in value.dtype.fields if fold(field.name) == fold(name)), name)
        return apply("struct_field", value, name=named)
    place = reader.whole(given[1], "The place")
    if kind_of(value.dtype) in _TEXT_KINDS:
        return apply("slice", value, offset=place - 1 if place > 0 else place, length=1 if place else 0)
    if place == 0:
        raise reader.refuse(node, "The elements of a list are numbered from 1.")
    return apply("list_get", value, index=place - 1 if place > 0 else place)


@_function("list_contains", "list_has", "array_contains", "array_has", least=2)
def _list_contains(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    listed, value = reader.value(given[0]), reader.any(given[1])
    if isinstance(listed, Constant):
        return reader._inside([given[1], given[0]])
    if not isinstance(value, Constant):
        raise reader.refuse(node, "The value to find in a list must be a constant.")
    return apply("list_contains", listed, value=value)


@_function("list_sum")
def _list_sum(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    """Return the sum of a list of integers. The sum of an empty list is null."""
    listed = reader.value(given[0])
    empty = apply("eq", apply("list_len", listed), Constant(0, _INT))
    return apply("case", empty, Constant(None, _INT), apply("list_sum", listed))


@_function("array_to_string", "list_string_agg", least=2)
def _list_join(reader: Reader, node: Node, given: Sequence[Node]) -> Read:
    return apply("list_join", reader.value(given[0]), separator=reader.text(given[1], "The separator"))


ROWWISE = frozenset(_FUNCTIONS)
"""The functions that may be called over private rows, by their names in SQL."""
