"""Checks of user expressions: what they mean in the expression language, and a trial run on hostile values.

`from_polars` reads an expression into a tree of operations that are row-wise and total. Problems with the user's
constants, such as a pattern that does not compile, show only when the tree runs. So it runs on made-up rows here,
before any private row is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl

from dp_polars._engines.registry import ENGINES
from dp_polars._expressions.from_polars import parse
from dp_polars._expressions.hostile import hostile_frame
from dp_polars._expressions.tree import Apply, CheckedExpression, Column, Constant, Expression, walk
from dp_polars._expressions.types import MOST_WRITTEN
from dp_polars.errors import ExpressionNotAllowed

__all__ = ["CheckedExpression", "ExpressionNotAllowed", "PythonLiteral", "check_expression", "check_expressions"]

PythonLiteral = bool | int | float | Decimal | date | datetime | time | timedelta | list[Any] | None
"""Python values that are constants. A str is not one of them, because it names a column."""


def check_expression(expr: pl.Expr | str | PythonLiteral, *, schema: pl.Schema, what: str) -> CheckedExpression:
    """Return a checked expression, or refuse it.

    Parameters
    ----------
    expr
        A Polars expression, the name of a column, or a Python constant.
    schema
        The columns of the private frame.
    what
        What messages call the expression: "filter", "by".

    Raises
    ------
    ExpressionNotAllowed
        If the expression uses an operation that is not known to be row-wise and total, or stands for several columns.
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
            f"({', '.join(repr(expression.name) for expression in checked[:5])}) where one is needed. Write one "
            "expression for each."
        )
    return checked[0]


def check_expressions(
    expr: pl.Expr | str | PythonLiteral, *, schema: pl.Schema, what: str
) -> tuple[CheckedExpression, ...]:
    """Return the expressions that an expression with selectors stands for, each checked as by `check_expression`.

    Examples
    --------
    >>> schema = pl.Schema({"a": pl.Int64, "b": pl.Int64, "c": pl.String})
    >>> [one.name for one in check_expressions(pl.col("a", "b").fill_null(0), schema=schema, what="with_columns")]
    ['a', 'b']
    """
    found = tuple(CheckedExpression(parsed.tree, parsed.name) for parsed in parse(expr, schema=schema, what=what))
    for expression in found:
        check_tree(expression, schema, what)
    return found


def check_tree(expression: CheckedExpression, schema: pl.Schema, what: str) -> None:
    """Refuse an expression that is too long, or that fails on made-up values of its columns' types."""
    if len(expression.canonical) > MOST_WRITTEN:
        raise ExpressionNotAllowed(
            f"The {what} expression has constants of more than {MOST_WRITTEN:,} characters in all. If the memory ran "
            "out because of one person's row, the failure would reveal that the person is in the data. Join a public "
            "frame instead."
        )
    _try_on_hostile_values(expression.tree, schema, what)


def _try_on_hostile_values(tree: Expression, schema: pl.Schema, what: str) -> None:
    """Refuse a tree that fails on made-up values of its columns' types. A bare column or constant cannot fail."""
    if isinstance(tree, Column | Constant):
        return
    columns = {name: schema[name] for name in sorted(tree.columns)}
    problem = problem_on_hostile_values([tree], columns) or problem_on_hostile_values(*_separate_steps(tree))
    if problem is not None:
        raise ExpressionNotAllowed(
            f"The {what} expression fails on some values that its columns could hold (tried on made-up rows: "
            f"{problem}). Whether a query fails must not depend on private values: check its patterns, "
            "formats and constants against the types of the columns."
        )


def problem_on_hostile_values(trees: Sequence[Expression], columns: Mapping[str, pl.DataType]) -> str | None:
    """Return why trees fail on made-up rows with these columns, on any engine, or None if they do not fail."""
    if not trees:
        return None
    rows = hostile_frame(columns)
    return next((problem for engine in ENGINES if (problem := engine.problem(trees, rows)) is not None), None)


def _separate_steps(tree: Expression) -> tuple[list[Expression], dict[str, pl.DataType]]:
    """Return each operation that has parameters, applied to columns made for it, and these columns.

    Within the whole tree, made-up rows may never reach an operation that runs only under a condition.
    """
    found: dict[Expression, None] = {}
    columns: dict[str, pl.DataType] = {}
    for node in walk(tree):
        if (
            isinstance(node, Apply)
            and node.parameters
            and any(isinstance(argument, Apply) for argument in node.arguments)
        ):
            given: list[Expression] = []
            for place, argument in enumerate(node.arguments):
                if isinstance(argument, Constant):
                    given.append(argument)
                else:
                    column = Column(f"{place} {argument.dtype}", argument.dtype)
                    columns[column.name] = column.dtype
                    given.append(column)
            found[replace(node, arguments=tuple(given))] = None
    return list(found), columns
