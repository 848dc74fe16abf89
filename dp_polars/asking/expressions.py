"""Which expressions may touch private rows: row-wise and total ones, by an allow-list over the whole tree.

Row-wise: the value in a row depends on that row alone. Total: it never fails depending on a value, because an error
would tell about the value. Polars' own answer to the first question is not enough, so the serialized tree is checked
node by node; what is not listed is refused. Strict casts are rewritten to the form that gives null.
"""

from __future__ import annotations

import difflib
import io
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from dp_polars.errors import ExpressionNotAllowed, InvalidParameterError

_COMPARE = {"Eq", "NotEq", "Lt", "LtEq", "Gt", "GtEq", "EqValidity", "NotEqValidity"}
_LOGIC = {"And", "Or", "Xor", "LogicalAnd", "LogicalOr"}
_ARITHMETIC = {"Plus", "Minus", "Multiply", "TrueDivide", "FloorDivide", "Modulus"}

_NUMERIC = {"Abs", "Sign", "Exp", "Log", "Log1p", "Floor", "Ceil", "Round", "Clip", "Negate", "Pow.Sqrt", "Pow.Cbrt"}
_ANY = {
    "FillNull", "Coalesce", "MaxHorizontal", "MinHorizontal", "Boolean.IsNull", "Boolean.IsNotNull", "Boolean.IsNan",
    "Boolean.IsNotNan", "Boolean.IsFinite", "Boolean.IsInfinite", "Boolean.Not", "Boolean.IsBetween",
    "Boolean.AnyHorizontal", "Boolean.AllHorizontal", "StringExpr.Lowercase", "StringExpr.Uppercase",
    "StringExpr.LenChars", "StringExpr.LenBytes", "TemporalExpr.Year", "TemporalExpr.Month", "TemporalExpr.Day",
    "TemporalExpr.Hour", "TemporalExpr.Minute", "TemporalExpr.Second", "TemporalExpr.WeekDay",
    "TemporalExpr.OrdinalDay", "TemporalExpr.Quarter", "TemporalExpr.Week", "TemporalExpr.IsoYear",
}  # fmt: skip
# Their arguments after the first must be literals: a pattern or a list from another column is neither cheap nor total.
_LITERAL_ARGUMENTS = {
    "StringExpr.StartsWith", "StringExpr.EndsWith", "StringExpr.Contains", "StringExpr.Slice", "StringExpr.Head",
    "StringExpr.Tail", "Boolean.IsIn",
}  # fmt: skip
_CASTS = {
    "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64", "Boolean", "String",
}  # fmt: skip
_WHY = {
    "Agg": "an aggregate looks at other rows",
    "Over": "a window looks at other rows",
    "Window": "a window looks at other rows",
    "Rolling": "a window looks at other rows",
    "Len": "the number of rows depends on all of them",
    "Sort": "the place of a row depends on the others",
    "SortBy": "the place of a row depends on the others",
    "Gather": "it reads other rows",
    "Filter": "it changes the number of rows",
    "Slice": "it picks rows by their place",
    "Selector": "name the columns one by one",
    "AnonymousFunction": "a Python function can't be checked",
    "Eval": "it can't be checked",
}


@dataclass(frozen=True)
class CheckedExpression:
    """An expression that is safe to run, its canonical text, its output name and the columns it reads."""

    expr: pl.Expr
    canonical: str
    name: str
    columns: frozenset[str]


def check_expression(expression: Any, *, schema: pl.Schema, what: str) -> CheckedExpression:
    """Return the safe form of an expression, or say what in it is not allowed and why.

    A text is the name of a column. `what` is where the expression stands, for messages.
    """
    expr = pl.col(expression) if isinstance(expression, str) else expression
    if not isinstance(expr, pl.Expr):
        raise InvalidParameterError(f"{what} takes column names and expressions, got {type(expression).__name__}.")
    tree = _tree(expr, what)
    columns: set[str] = set()
    safe = _Checker(schema, what, columns).check(tree)
    text = json.dumps(safe, sort_keys=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = pl.Expr.deserialize(io.BytesIO(text.encode()), format="json")
    try:
        # One row of nulls shows what types alone make impossible; it has no value to quote.
        pl.DataFrame({name: pl.Series([None], dtype=schema[name]) for name in schema}).select(made)
        name = made.meta.output_name()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise InvalidParameterError(f"Polars can't run this expression in {what}: {error}") from None
    return CheckedExpression(made, text, name, frozenset(columns))


def _tree(expr: pl.Expr, what: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return json.loads(expr.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, ValueError):
        raise _refused("a Python function or plugin", "it can't be checked", what) from None


class _Checker:
    def __init__(self, schema: pl.Schema, what: str, columns: set[str]) -> None:
        self._schema, self._what, self._columns = schema, what, columns

    def check(self, node: Any) -> Any:
        """Return a node with strict casts made null-returning; raise for anything that is not listed."""
        kind, body = _only(node)
        checks: dict[str, Callable[[Any], Any]] = {
            "Column": self._column,
            "Literal": self._literal,
            "Alias": lambda body: [self.check(body[0]), body[1]],
            "BinaryExpr": self._binary,
            "Ternary": lambda body: {name: self.check(part) for name, part in body.items()},
            "Cast": self._cast,
            "Function": self._function,
        }
        if kind not in checks:
            raise _refused(f"`{_word(kind, body)}`", _WHY.get(kind, "it is not on the list"), self._what)
        return {kind: checks[kind](body)}

    def _column(self, name: Any) -> Any:
        if name not in self._schema:
            near = difflib.get_close_matches(str(name), list(self._schema), 1)
            hint = f" Did you mean {near[0]}?" if near else f" It has {', '.join(self._schema)}."
            raise InvalidParameterError(f"The frame has no column {name}.{hint}")
        self._columns.add(name)
        return name

    def _literal(self, body: Any) -> Any:
        kind, value = _only(body)
        if kind == "Dyn" or (kind == "Scalar" and _only(value)[0] != "List"):
            return body
        raise _refused("a Series or list as a literal", "it lines up with other rows", self._what)

    def _binary(self, body: Any) -> Any:
        op = body["op"]
        if op in _ARITHMETIC:
            self._numbers_only(body, op)
        elif op not in _COMPARE | _LOGIC:
            raise _refused(f"the operator {op}", "it is not on the list", self._what)
        return {**body, "left": self.check(body["left"]), "right": self.check(body["right"])}

    def _cast(self, body: Any) -> Any:
        kind, target = _only(body["dtype"]) if isinstance(body["dtype"], dict) else ("", None)
        if kind != "Literal" or not isinstance(target, str) or target not in _CASTS:
            raise _refused("a cast to this type", "it may fail, or depend on other rows", self._what)
        self._numbers_only(body["expr"], "cast", extra=(pl.Date, pl.Enum))
        return {**body, "expr": self.check(body["expr"]), "options": "NonStrict"}

    def _function(self, body: Any) -> Any:
        name = _function_name(body["function"])
        inputs = body["input"]
        if name in _LITERAL_ARGUMENTS:
            if not all(_only(item)[0] == "Literal" for item in inputs[1:]):
                raise _refused(f"`{name}` with a column as its argument", "it may look at other rows", self._what)
            return {**body, "input": [self.check(inputs[0]), *inputs[1:]]}
        if name in _NUMERIC:
            self._numbers_only(body, name)
        elif name not in _ANY:
            raise _refused(f"`{name}`", "it may look at other rows or fail on some value", self._what)
        return {**body, "input": [self.check(item) for item in inputs]}

    def _numbers_only(self, node: Any, op: str, extra: tuple[Any, ...] = ()) -> None:
        """Refuse arithmetic on types that can fail or overflow with an error (decimals, dates)."""
        for name in _columns_in(node):
            dtype = self._schema.get(name)
            if dtype is None:
                continue
            plain = dtype.is_integer() or dtype.is_float() or dtype in (pl.Boolean, pl.String, *extra)
            if not plain or dtype in (pl.Int128, pl.UInt128):
                raise _refused(f"`{op}` on {name}, a {dtype},", "it may fail on some value", self._what)


def _only(node: Any) -> tuple[str, Any]:
    if isinstance(node, dict) and len(node) == 1:
        return next(iter(node.items()))
    return str(node) if isinstance(node, str) else "", node


def _columns_in(node: Any) -> set[str]:
    if isinstance(node, list):
        return set().union(*(_columns_in(item) for item in node)) if node else set()
    if isinstance(node, dict):
        own = {node["Column"]} if isinstance(node.get("Column"), str) else set()
        return own.union(*(_columns_in(item) for item in node.values()))
    return set()


def _function_name(function: Any) -> str:
    if isinstance(function, str):
        return function
    kind, detail = _only(function)
    if kind in {"Boolean", "StringExpr", "TemporalExpr", "Pow"}:
        return f"{kind}.{detail if isinstance(detail, str) else _only(detail)[0]}"
    return kind


def _word(kind: str, body: Any) -> str:
    return _only(body)[0].lower() if kind == "Agg" else kind.lower()


def _refused(thing: str, why: str, where: str) -> ExpressionNotAllowed:
    return ExpressionNotAllowed(
        f"{thing} is not allowed in {where} of a private frame: {why}, and then one person could change more than "
        "their own rows. Use expressions of one row at a time, or prepare the column before .dp, where the guarantee "
        "begins."
    )
