"""Tables of the documentation that are made from the package: `python -m tests.docs_tables` writes them anew."""

from __future__ import annotations

import itertools
from pathlib import Path

import polars as pl

from dp_polars._aggregates import REGISTRY
from dp_polars._expressions import OPERATIONS, Column, apply
from dp_polars._expressions.operations import Operation
from dp_polars._expressions.types import MOST_DEPTH, MOST_LITERAL, MOST_NODES, MOST_TEXT, MOST_VALUES
from dp_polars._sql.expressions import ROWWISE
from dp_polars.errors import ExpressionNotAllowed

_DOCS = Path(__file__).parents[1] / "docs"
PAGE = _DOCS / "expressions.md"
AGGREGATES_PAGE = _DOCS / "aggregates.md"

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

Expressions over private rows, in Polars and in SQL, are read into a small language of our own. It has {{count}}
operations. Each depends on one row, and has a value (perhaps null) for every value of its types; the last column says
why. What can't be written with them is refused before anything is charged. `tests/expressions/test_evidence.py` runs
every operation on every combination of types that it takes, with hostile values.

What differs from plain Polars, on purpose:

- Integer arithmetic gives Int64, and null where 64 bits end. Float arithmetic gives Float64.
- Division by zero is null. A cast or a parse that fails is null.
- Dates outside the years 1 to 9999 are null for functions of the calendar.
- `cut` gives an Enum: its labels are yours, so they count as public keys.
- A Categorical is read as the text it stands for.

Limits: texts that an operation makes have at most {MOST_TEXT:,} characters, text constants {MOST_LITERAL:,}, lists of
constants {MOST_VALUES:,} values; expressions are nested {MOST_DEPTH} deep and have {MOST_NODES:,} steps, at most.
Bytes, Float16, Object columns and 128-bit integers can be carried along, the integers be compared, and nothing else.

A row on which an engine fails all the same has null there. It is not known how to make that happen.

This page is made from the package by `python -m tests.docs_tables`.

| operation | in Polars | takes | gives | why it is safe |
|---|---|---|---|---|
"""


_SQL = """
## In SQL

These functions and operators of DuckDB may be used over private rows; `tests/sql/test_expressions.py` compares them
with DuckDB's own answers. So may AND, OR, NOT, comparisons, BETWEEN, IN, IS NULL, IS DISTINCT FROM, CASE, COALESCE,
CAST and TRY_CAST, `x[1]` and `s.field`.

{functions}

What differs from plain DuckDB, on purpose:

- What fails is null: casts, parsing, integers beyond 64 bits, division by zero (also of floats).
- Patterns, formats, lengths, separators and parts of dates are constants or parameters.
- INTERVALs are constants that are added to dates and timestamps, or that a difference of timestamps is compared with.
- TIMESTAMP WITH TIME ZONE is seen in UTC. A TIME of 24:00 is null.
- BLOB, BIT, BIGNUM, VARIANT, UNION, MAP, INTERVAL and TIME WITH TIME ZONE columns can't be used. HUGEINT is read as
  DECIMAL(38, 0), UUID and JSON as text.
- Text constants beside a number or a date are read as one, exactly or not at all.
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


_AGGREGATES_HEAD = """# The aggregates

Each aggregate is a method of `df.dp` and of `preview`, a function for `group_by(...).agg(...)`, and a private aggregate
in SQL. The cap on rows is `max_rows_per_group`. This page is made from the registry by `python -m tests.docs_tables`.

| in Polars | in SQL | what it computes | rows of a unit beyond the cap | interval |
|---|---|---|---|---|
"""


def aggregates_page() -> str:
    """Return the page that lists the aggregates."""
    lines = [
        f"| `dp.{kind}` | {', '.join(f'`{one.usage(name)}`' for name in one.sql_names[:1])} | {one.summary} | "
        f"{one.rows_beyond_the_cap.value} | {'yes' if one.has_interval() else 'no'} |"
        for kind, one in REGISTRY.items()
    ]
    return _AGGREGATES_HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    AGGREGATES_PAGE.write_text(aggregates_page(), encoding="utf-8")
    PAGE.write_text(page())
