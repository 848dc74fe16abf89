"""The tree of an expression over private rows: columns, constants and operations, each with its type.

Only `operations.apply` and `constants.constant` make trees, and they check them. Everything that an engine computes on
private rows is such a tree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import polars as pl


@dataclass(frozen=True)
class Column:
    """The value of a column in the current row."""

    name: str
    dtype: pl.DataType
    columns: frozenset[str] = field(init=False, repr=False, compare=False)
    """The columns that the expression reads."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", frozenset({self.name}))


@dataclass(frozen=True)
class Constant:
    """A public value, exact in its type.

    Attributes
    ----------
    value
        A bool, int, float, str or None. Dates, times, durations and decimals are given as the integer that is stored,
        and a list as a tuple of such values.
    dtype
        The type of the value.
    """

    value: Any
    dtype: pl.DataType

    columns: frozenset[str] = field(default=frozenset(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        inner = self.dtype.inner if isinstance(self.dtype, pl.List) else self.dtype
        if inner.is_float():  # one form of zero, so equal constants are the same
            listed = isinstance(self.value, tuple)
            found = [
                None if number is None else float(number) + 0.0 for number in (self.value if listed else [self.value])
            ]
            object.__setattr__(self, "value", tuple(found) if listed else found[0])

    def series(self, name: str = "constant") -> pl.Series:
        """Return the constant as a Series of one row, built from its stored value."""
        if isinstance(self.dtype, pl.List):
            # A list made from Python values would go through Python's dates, which end in the year 9999.
            return stored(self.value or (), self.dtype.inner).implode().alias(name)  # type: ignore[arg-type]
        return stored([self.value], self.dtype).alias(name)


@dataclass(frozen=True)
class Apply:
    """An operation on values of the current row. It is made by `operations.apply`."""

    operation: str
    arguments: tuple[Expression, ...]
    parameters: tuple[tuple[str, Any], ...]
    dtype: pl.DataType
    columns: frozenset[str] = field(init=False, repr=False, compare=False)
    depth: int = field(init=False, repr=False, compare=False)
    size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        inner = [argument for argument in self.arguments if isinstance(argument, Apply)]
        object.__setattr__(self, "columns", frozenset().union(*(argument.columns for argument in self.arguments)))
        object.__setattr__(self, "depth", 1 + max((operation.depth for operation in inner), default=0))
        object.__setattr__(self, "size", len(self.arguments) + 1 + sum(operation.size for operation in inner))

    def parameter(self, name: str) -> Any:
        """Return a parameter by its name."""
        return dict(self.parameters)[name]


Expression = Column | Constant | Apply


def stored(values: Any, dtype: pl.DataType) -> pl.Series:
    """Return a Series of values that are given as stored, without converting them to Python's dates or floats."""
    if isinstance(dtype, pl.Decimal):
        whole = pl.Series(list(values), dtype=pl.Int128)
        # A decimal is stored as a multiple of its last digit. Dividing by a power of ten would round.
        return pl.Series([None if number is None else _decimal(number, dtype.scale) for number in whole], dtype=dtype)
    if dtype == pl.Date:
        return pl.Series(list(values), dtype=pl.Int32).cast(dtype)
    if dtype.is_temporal():
        return pl.Series(list(values), dtype=pl.Int64).cast(dtype)
    return pl.Series(list(values), dtype=dtype)


def _decimal(whole: int, scale: int) -> Decimal:
    return Decimal((int(whole < 0), tuple(map(int, str(abs(whole)))), -scale))


def walk(expression: Expression) -> tuple[Expression, ...]:
    """Return an expression and all its parts, arguments before operations."""
    if not isinstance(expression, Apply):
        return (expression,)
    return (*(part for argument in expression.arguments for part in walk(argument)), expression)


def substituted(expression: Expression, made: Mapping[str, Expression]) -> Expression:
    """Return an expression in which columns are replaced by the expressions that made them."""
    if isinstance(expression, Column):
        return made.get(expression.name, expression)
    if isinstance(expression, Apply):
        return replace(expression, arguments=tuple(substituted(part, made) for part in expression.arguments))
    return expression


def canonical(expression: Expression) -> str:
    """Return a text that is the same for equal expressions in every process, and different for different ones."""
    return json.dumps(_written(expression), sort_keys=True, separators=(",", ":"))


def _written(node: Any) -> Any:
    match node:
        case Column():
            return {"column": node.name, "type": written_type(node.dtype)}
        case Constant():
            return {"constant": _value(node.value), "type": written_type(node.dtype)}
        case Apply():
            return {
                "apply": node.operation,
                "to": [_written(argument) for argument in node.arguments],
                "with": [[name, _written(value)] for name, value in node.parameters],
                "type": written_type(node.dtype),
            }
        case pl.DataType():
            return written_type(node)
        case tuple() | list():
            return [_written(part) for part in node]
    return _value(node)


def _value(value: Any) -> Any:
    """Return the value of a constant for JSON. Floats are written exactly, in hexadecimal."""
    match value:
        case float():
            return ["float", value.hex()]
        case tuple() | list():
            return ["list", [_value(item) for item in value]]
    return value


def written_type(dtype: pl.DataType) -> str:
    """Return the text of a type with all its details, such as the categories of an Enum."""
    match dtype:
        case pl.Enum():
            return "Enum" + json.dumps(dtype.categories.to_list())
        case pl.List():
            return f"List[{written_type(dtype.inner)}]"  # type: ignore[arg-type]
        case pl.Array():
            return f"Array[{written_type(dtype.inner)},{dtype.shape}]"  # type: ignore[arg-type]
        case pl.Struct():
            return "Struct" + json.dumps([[part.name, written_type(part.dtype)] for part in dtype.fields])  # type: ignore[arg-type]
    return str(dtype)


@dataclass(frozen=True)
class CheckedExpression:
    """An expression that may run on private rows.

    Attributes
    ----------
    tree
        The tree of the expression.
    name
        The name of its output column.
    """

    tree: Expression
    name: str

    @cached_property
    def canonical(self) -> str:
        """The tree as text. It is the same in every process."""
        return canonical(self.tree)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the expression reads."""
        return self.tree.columns

    @property
    def dtype(self) -> pl.DataType:
        """The type of the expression's values."""
        return self.tree.dtype
