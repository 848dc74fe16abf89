"""The door for expressions of users: what they mean in the language of private rows, rehearsed on hostile values.

`expressions.from_polars` reads an expression into a tree of operations that are row-wise and total. What depends on the
user's constants, such as a pattern that can't be compiled, shows when the tree is run on made-up rows, here, before any
private row is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any

import polars as pl

from dp_polars._engines.polars.rows import Program
from dp_polars._expressions.from_polars import parse
from dp_polars._expressions.hostile import hostile_frame
from dp_polars._expressions.tree import Apply, Column, Constant, Expression, canonical, walk
from dp_polars._expressions.types import MOST_WRITTEN
from dp_polars.errors import ExpressionNotAllowed

__all__ = ["CheckedExpression", "ExpressionNotAllowed", "PythonLiteral", "check_expression", "check_expressions"]

PythonLiteral = bool | int | float | Decimal | date | datetime | time | timedelta | list[Any] | None
"""Constants that stand for themselves; a str is the name of a column."""


@dataclass(frozen=True)
class CheckedExpression:
    """An expression that may run on private rows.

    Attributes
    ----------
    tree
        What it means.
    name
        The name of its output column.
    """

    tree: Expression
    name: str

    @cached_property
    def canonical(self) -> str:
        """Its tree as text, the same in every process."""
        return canonical(self.tree)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""
        return self.tree.columns

    @property
    def dtype(self) -> pl.DataType:
        """The type of its values."""
        return self.tree.dtype


def check_expression(expr: pl.Expr | str | PythonLiteral, *, schema: pl.Schema, what: str) -> CheckedExpression:
    """Return what an expression means, or refuse it.

    Parameters
    ----------
    expr
        A Polars expression, the name of a column, or a Python constant.
    schema
        The columns of the private frame.
    what
        The word for the expression in messages: "filter", "by".

    Raises
    ------
    ExpressionNotAllowed
        If it is not made of operations that are row-wise and total, or means several columns.
    InvalidParameterError
        If it reads a column that does not exist.

    Examples
    --------
    >>> schema = pl.Schema({"age": pl.Int64, "visit": pl.String})
    >>> checked = check_expression(pl.col("visit").str.to_date("%Y-%m-%d").dt.year(), schema=schema, what="by")
    >>> checked.name, sorted(checked.columns)
    ('visit', ['visit'])
    >>> check_expression(pl.col("age") > pl.col("age").mean(), schema=schema, what="filter")
    Traceback (most recent call last):
    ...
    dp_polars.errors.ExpressionNotAllowed: `mean` in the filter expression looks at other rows. ...
    """
    checked = check_expressions(expr, schema=schema, what=what)
    if len(checked) != 1:
        raise ExpressionNotAllowed(
            f"The {what} expression stands for {len(checked)} columns "
            f"({', '.join(repr(one.name) for one in checked[:5])}) where one is needed. Write one expression for each."
        )
    return checked[0]


def check_expressions(
    expr: pl.Expr | str | PythonLiteral, *, schema: pl.Schema, what: str
) -> tuple[CheckedExpression, ...]:
    """Return the expressions that one with selectors stands for, each as `check_expression` returns it.

    Examples
    --------
    >>> schema = pl.Schema({"a": pl.Int64, "b": pl.Int64, "c": pl.String})
    >>> [one.name for one in check_expressions(pl.col("a", "b").fill_null(0), schema=schema, what="with_columns")]
    ['a', 'b']
    """
    found = tuple(CheckedExpression(one.tree, one.name) for one in parse(expr, schema=schema, what=what))
    for one in found:
        if len(one.canonical) > MOST_WRITTEN:
            raise ExpressionNotAllowed(
                f"The {what} expression has constants of more than {MOST_WRITTEN:,} characters in all. Memory that "
                "runs out for one person's row would tell that the person is there. Join a public frame instead."
            )
        rehearse(one.tree, schema, what)
    return found


def rehearse(tree: Expression, schema: pl.Schema, what: str) -> None:
    """Refuse a tree that fails on made-up values of its columns' types: its patterns or formats are at fault."""
    if isinstance(tree, Column | Constant):
        return
    columns = {name: schema[name] for name in sorted(tree.columns)}
    alone, more = _alone(tree)
    problem = _problem([tree], columns) or _problem(alone, more)
    if problem is not None:
        raise ExpressionNotAllowed(
            f"The {what} expression fails on some values that its columns could hold (tried on made-up rows: "
            f"{problem}). Whether a query fails must not depend on private values: check its patterns, "
            "formats and constants against the types of the columns."
        )


def _problem(trees: list[Expression], columns: dict[str, pl.DataType]) -> str | None:
    return Program(trees).problem(hostile_frame(columns)) if trees else None


def _alone(tree: Expression) -> tuple[list[Expression], dict[str, pl.DataType]]:
    """Return each step with settings on columns of its own: behind a condition made-up rows may never reach it."""
    found: dict[Expression, None] = {}
    columns: dict[str, pl.DataType] = {}
    for node in walk(tree):
        if isinstance(node, Apply) and node.parameters and any(isinstance(one, Apply) for one in node.arguments):
            given = []
            for place, one in enumerate(node.arguments):
                own = one if isinstance(one, Constant) else Column(f"{place} {one.dtype}", one.dtype)
                if isinstance(own, Column):
                    columns[own.name] = own.dtype
                given.append(own)
            found[replace(node, arguments=tuple(given))] = None
    return list(found), columns
