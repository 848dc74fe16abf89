"""Generate docs/expressions.md from the list of operations: run `python -m tests.docs_tables`."""

from __future__ import annotations

import itertools
from pathlib import Path

import polars as pl

from dp_polars._expressions import OPERATIONS, Column, apply
from dp_polars._expressions.operations import Operation
from dp_polars._expressions.types import MOST_DEPTH, MOST_LITERAL, MOST_NODES, MOST_TEXT, MOST_VALUES
from dp_polars._sql.expressions import ROWWISE
from dp_polars.errors import ExpressionNotAllowed

PAGE = Path(__file__).parents[1] / "docs" / "expressions.md"

_TYPES: dict[str, pl.DataType] = {
    "Boolean": pl.Boolean(),
    "integers": pl.Int32(),
    "floats": pl.Float32(),
    "Decimal": pl.Decimal(10, 2),
    "String": pl.String(),
    "Enum": pl.Enum(["a"]),
    "Date": pl.Date(),
    "Datetime": pl.Datetime("us"),
    "Duration": pl.Duration("us"),
    "Time": pl.Time(),
    "lists": pl.List(pl.Int32()),
    "lists of String": pl.List(pl.String()),
    "structs": pl.Struct({"a": pl.Int64()}),
}

_HEAD = f"""# The language of private rows

Expressions over private rows, in Polars and in SQL, are parsed into a small language of our own. It has {{count}}
operations. The result of each depends on one row only, and there is a result (perhaps null) for every value of its
types; the last column says why. An expression that cannot be written with these operations is refused before anything
is charged. `tests/expressions/test_evidence.py` runs every operation on every combination of types that it takes, with
hostile values.

These differences from plain Polars are intended:

- Integer arithmetic returns Int64, and null where 64 bits are not enough. Float arithmetic returns Float64.
- Division by zero is null. A cast or a parse that fails is null.
- Functions of the calendar return null for dates outside the years 1 to 9999.
- `cut` returns an Enum. You write its labels, so they are public keys.
- A Categorical is read as the text it stands for.

Limits: a text that an operation makes has at most {MOST_TEXT:,} characters, a text constant {MOST_LITERAL:,}, and a
list of constants {MOST_VALUES:,} values. An expression is nested at most {MOST_DEPTH} deep and has at most
{MOST_NODES:,} steps. Columns of bytes, Float16, Object and 128-bit integers can be carried along, and the integers can
be compared, but nothing else.

If an engine still fails on a row, the result is null in that row. We know of no way to make that happen.

This page is generated from the package by `python -m tests.docs_tables`.

| operation | in Polars | takes | returns | why it is safe |
|---|---|---|---|---|
"""


_SQL = """
## In SQL

You can use these functions and operators of DuckDB over private rows; `tests/sql/test_expressions.py` compares them
with DuckDB's own answers. You can also use AND, OR, NOT, comparisons, BETWEEN, IN, IS NULL, IS DISTINCT FROM, CASE,
COALESCE, CAST and TRY_CAST, `x[1]` and `s.field`.

{functions}

These differences from plain DuckDB are intended:

- Whatever fails is null: casts, parsing, integers beyond 64 bits, and division by zero (of floats too).
- Patterns, formats, lengths, separators and parts of dates must be constants or parameters.
- An INTERVAL must be a constant. You can add it to a date or timestamp, or compare a difference of timestamps with it.
- TIMESTAMP WITH TIME ZONE is read in UTC. A TIME of 24:00 is null.
- You can't use columns of type BLOB, BIT, BIGNUM, VARIANT, UNION, MAP, INTERVAL and TIME WITH TIME ZONE. HUGEINT is
  read as DECIMAL(38, 0), and UUID and JSON as text.
- A text constant beside a number or a date is read as a number or a date, exactly or not at all.
- Macros and functions of the database are not called.
"""


def page() -> str:
    """Return the page as it should be."""
    listed = ", ".join(f"`{name}`" for name in sorted(ROWWISE)).replace("|", chr(92) + "|")
    return _HEAD.format(count=len(OPERATIONS)) + "".join(map(_row, OPERATIONS.values())) + _SQL.format(functions=listed)


def _row(operation: Operation) -> str:
    firsts: dict[str, None] = {}
    results: dict[str, None] = {}
    for names in itertools.product(_TYPES, repeat=operation.arity):
        if operation.arity == 3 and names[0] != "Boolean":
            continue
        columns = [Column(f"c{place}", _TYPES[name]) for place, name in enumerate(names)]
        for sample in operation.samples:
            try:
                result = apply(operation.name, *columns, **sample)
            except ExpressionNotAllowed:
                continue
            firsts[names[1] if operation.arity == 3 else names[0]] = None
            results[str(result.dtype.base_type())] = None
    spoken = operation.spoken.replace("|", "\\|")
    return (
        f"| {operation.name} | `{spoken}` | {', '.join(firsts)} | {', '.join(results)} | "
        f"{operation.reason.replace('|', chr(92) + '|')} |\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page())
