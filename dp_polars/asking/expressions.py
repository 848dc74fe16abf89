"""The door for expressions of users: an expression may run on private rows only if it is row-wise and total.

Row-wise: the value in a row depends on that row alone, never on other rows, their order, their number or how they are
stored. Total: it never fails on a value, since a failure would tell something about a person. Nothing here reads a row.

`outline` reads the tree and knows the names, `settling` knows the types and the forms that give null instead of
failing, `rehearsal` holds hostile public values that the result is run on. What is not understood is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal

import polars as pl

from dp_polars.asking.outline import Node, Question, Tree, outline, unknown_column
from dp_polars.asking.refusals import PYTHON, SERIES, UNKNOWN, Reason
from dp_polars.asking.rehearsal import hostile_frame
from dp_polars.asking.selectors import read, spelled_out
from dp_polars.asking.settling import settle
from dp_polars.errors import ExpressionNotAllowed, InvalidParameterError

__all__ = ["CheckedExpression", "ExpressionNotAllowed", "PythonLiteral", "check_expression", "check_expressions"]

PythonLiteral = bool | int | float | Decimal | date | datetime | time | timedelta | bytes | list[Any] | None
"""Constants that stand for themselves; a str is the name of a column."""

_DEEPEST = 120
_TOO_DEEP = Reason(
    "is nested too deeply to be read back",
    "Polars reads expressions of up to about 60 steps.",
    "Split it over two `with_columns`, or use `is_in([...])` and `replace_strict(..., default=...)` for long choices.",
)

_ENGINES: tuple[Literal["in-memory", "streaming"], ...] = ("in-memory", "streaming")
_ONE_FOR_ALL = Reason(
    "has one value for all rows",
    "How many rows there are would then depend on the values in them.",
    "Write the column on the left side of comparisons.",
)

_OTHER_TYPE = Reason(
    "has another type when it runs than Polars announces",
    "What may be done with a value is decided by its type.",
    "Cast its columns and constants to one type.",
)


@dataclass(frozen=True)
class CheckedExpression:
    """An expression that may run on private rows.

    Attributes
    ----------
    expr
        The expression in its null-returning form.
    canonical
        Its tree as text, the same in every process.
    name
        The name of its output column.
    columns
        The columns it reads.
    """

    expr: pl.Expr
    canonical: str
    name: str
    columns: frozenset[str]


def check_expression(expr: pl.Expr | str | PythonLiteral, *, schema: pl.Schema, what: str) -> CheckedExpression:
    """Return the expression in a form that may run on private rows, or refuse it.

    Parameters
    ----------
    expr
        A Polars expression, the name of a column, or a Python constant.
    schema
        The columns of the private frame.
    what
        The word for the expression in messages: "filter", "by".

    Returns
    -------
    CheckedExpression
        With casts, division and parsing in their null-returning form.

    Raises
    ------
    ExpressionNotAllowed
        If it is not known to be row-wise and total, or means several columns.
    InvalidParameterError
        If it reads a column that does not exist, or Polars cannot run it on columns of these types.

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
    question = Question(what, schema)
    tree, text = _serialized(expr, question)
    return tuple(_checked(one, question) for one in spelled_out(tree, text, question))


def _serialized(expr: Any, question: Question) -> tuple[Tree, str]:
    if isinstance(expr, str):
        if expr not in question.schema:
            raise unknown_column(expr, question)
        return {"Column": expr}, ""
    if isinstance(expr, pl.Series):
        raise question.refuse("a Series", SERIES)
    if isinstance(expr, bool | int | float | Decimal | date | time | timedelta | bytes | list | None):
        expr = pl.lit(expr)
    if not isinstance(expr, pl.Expr):
        raise InvalidParameterError(
            f"{question.what} takes a Polars expression (a `when` needs its `then`), the name of a column or a "
            f"constant, got {type(expr).__name__}."
        )
    try:
        text = expr.meta.serialize(format="json")
        return json.loads(text), text
    except (pl.exceptions.PolarsError, TypeError):
        # Polars serializes a Python function with pickle, where it can at all.
        raise question.refuse("map_elements, map_batches, name.map or an object", PYTHON) from None
    except RecursionError:
        raise question.refuse("an expression", _TOO_DEEP) from None


def _checked(tree: Tree, question: Question) -> CheckedExpression:
    root = outline(tree, question)
    columns = {name: question.schema[name] for name in sorted(root.columns)}
    frame = hostile_frame(columns)
    name, dtype = _resolve(root, frame, question)
    settled = settle(root, question)
    if root.columns and not _fills_rows(root):
        settled = _in_every_row(settled, min(root.columns), name)
    expr = _read(settled, question)
    _rehearse_each(root, question)
    _rehearse(expr, frame, dtype, question)
    canonical = json.dumps(settled, sort_keys=True, separators=(",", ":"))
    return CheckedExpression(expr, canonical, name, root.columns)


def _fills_rows(node: Node) -> bool:
    """Whether an expression surely has a value of its own in each row: where it comes from a column on its left.

    Where a choice is the same in all rows Polars takes it for one value, and a comparison of a constant with it for one
    row: how many rows there are would depend on the values in them.
    """
    return node.form == "Column" or (node.form != "Ternary" and bool(node.parts) and _fills_rows(node.parts[0]))


def _in_every_row(tree: Tree, column: str, name: str) -> Tree:
    """Return an expression as a field beside a column, which has as many rows as there are."""
    fields = [{"Alias": [{"Column": column}, "beside"]}, {"Alias": [tree, "own"]}]
    struct = {"Function": {"input": fields, "function": "AsStruct"}}
    return {"Alias": [{"Function": {"input": [struct], "function": {"StructExpr": {"FieldByName": "own"}}}}, name]}


def _read(tree: Tree, question: Question) -> pl.Expr:
    try:
        return read(tree)
    except pl.exceptions.PolarsError:
        raise question.refuse("an expression", _TOO_DEEP if _depth(tree) > _DEEPEST else UNKNOWN) from None


def _depth(tree: Any) -> int:
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return 1 + max(map(_depth, parts), default=0)


def _resolve(root: Node, frame: pl.DataFrame, question: Question) -> tuple[str, pl.DataType]:
    """Find the type of every node; return the name and the type of the output."""
    try:
        schema = frame.lazy().select(_read(root.tree, question)).collect_schema()
        _resolve_parts(root, frame.lazy(), question)
    except pl.exceptions.PolarsError as error:
        raise InvalidParameterError(
            f"Polars cannot run the {question.what} expression on columns of these types: {_first_line(error)}. "
            "Check the types and cast where they differ."
        ) from None
    ((name, dtype),) = schema.items()
    if root.dtype != dtype and root.form != "Literal":
        raise question.refuse("an expression", _OTHER_TYPE)
    return name, dtype


def _resolve_parts(root: Node, frame: pl.LazyFrame, question: Question) -> None:
    """Find the types bottom up: each node is asked for over columns that stand for its parts, so the work is linear."""
    levels: dict[int, list[Node]] = {}
    names: dict[Node, str] = {}
    heights: dict[Node, int] = {}
    for node in root.walk():
        heights[node] = 1 + max((heights[part] for part in node.parts), default=-1)
        if node.form not in ("Column", "Literal") or node.path == "list":
            names[node] = f"\0{len(names)}"
            levels.setdefault(heights[node], []).append(node)
    for _, nodes in sorted(levels.items()):
        exprs = []
        for node in nodes:
            # A struct names its fields after its parts, so these stay as they are.
            inline = node.path == "AsStruct"
            parts = [p.tree if inline or p.constant or p not in names else {"Column": names[p]} for p in node.parts]
            tree = parts[0] if node.form == "Name" else node.rebuilt(parts, node.options)
            exprs.append(_read(tree, question).alias(names[node]))
        frame = frame.with_columns(exprs)
    types = frame.collect_schema()
    for node, name in names.items():
        node.dtype = types[name]


def _rehearse_each(root: Node, question: Question) -> None:
    """Refuse a step that fails on hostile values of the types of its own parts.

    Behind a condition that no made-up row meets, a step that can fail would never be seen to fail; on the row of one
    person it would. So each is run by itself, on columns that stand for its parts.
    """
    columns: dict[str, pl.DataType] = {}
    exprs: list[pl.Expr] = []
    types: list[pl.DataType | None] = []
    for node in root.walk():
        if node.constant or node.form in ("Column", "Literal", "Name") or node.path == "AsStruct":
            continue
        parts: list[Node] = []
        for part in node.parts:
            if part.constant or part.dtype is None:
                parts.append(part)
                continue
            name = f"\0{len(columns)}"
            columns[name] = part.dtype
            parts.append(Node("Column", name, (), None, {"Column": name}, part.dtype))
        alone = Node(node.form, node.path, tuple(parts), node.options, node.tree, node.dtype)
        exprs.append(_read(settle(alone, question), question).alias(str(len(exprs))))
        types.append(node.dtype)
    if exprs:
        found = _run(hostile_frame(columns).lazy(), exprs, question)
        if any(dtype != wanted for dtype, wanted in zip(found.dtypes, types, strict=True)):
            raise question.refuse("an expression", _OTHER_TYPE)


def _rehearse(expr: pl.Expr, frame: pl.DataFrame, dtype: pl.DataType, question: Question) -> None:
    """Refuse what fails on hostile public values, or gives another type than Polars announced."""
    for height in (frame.height, 1, 0):  # a single row is one value for all rows, which Polars treats otherwise
        if _run(frame.lazy().head(height), [expr], question).to_series().dtype != dtype:
            raise question.refuse("an expression", _OTHER_TYPE)
    _run(frame.lazy(), [expr], question, engine="streaming")
    twice = frame.lazy().head(1).select(pl.all().repeat_by(2).explode(empty_as_null=False))
    if frame.width and any(_run(twice, [expr], question, engine).height != 2 for engine in _ENGINES):
        raise question.refuse("an expression", _ONE_FOR_ALL)


def _run(
    frame: pl.LazyFrame,
    exprs: list[pl.Expr],
    question: Question,
    engine: Literal["in-memory", "streaming"] = "in-memory",
) -> pl.DataFrame:
    try:
        return frame.select(exprs).collect(engine=engine)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ExpressionNotAllowed(
            f"The {question.what} expression fails on some values that its columns could hold (tried on made-up rows: "
            f"{_first_line(error)}). Whether a query fails must not depend on private values: check its patterns, "
            "formats and constants against the types of the columns."
        ) from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0].rstrip(".")
