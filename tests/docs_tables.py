"""Generate pages of docs/reference, aggregates, expressions and a table of spark: `python -m tests.docs_tables`."""

from __future__ import annotations

import itertools
from pathlib import Path

import polars as pl

from dp_polars._aggregates import REGISTRY
from dp_polars._aggregates.base import Aggregate, Shape
from dp_polars._engines.spark.lowering import LOWERINGS, NotInSpark, check_lowered
from dp_polars._expressions import OPERATIONS, Column, apply
from dp_polars._expressions.operations import Operation
from dp_polars._expressions.types import MOST_DEPTH, MOST_LITERAL, MOST_NODES, MOST_TEXT, MOST_VALUES
from dp_polars._sql.expressions import ROWWISE
from dp_polars.errors import ExpressionNotAllowed

_REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
PAGE = _REFERENCE / "expressions.md"
AGGREGATES_PAGE = _REFERENCE / "aggregates.md"
SPARK_PAGE = _REFERENCE / "spark.md"

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
operations. Each of them is row-wise: its value in a row depends only on its arguments in that row and on public
parameters. Each is also total: it has a value, possibly null, for every value of the types that it accepts, and never
fails. The last column says why. An expression that needs anything else is refused before anything is charged.
`tests/expressions/test_evidence.py` runs every operation on every combination of types that it accepts, with hostile
values.

Some results differ from plain Polars on purpose:

- Integer arithmetic returns Int64, and null if the result does not fit into 64 bits. Float arithmetic returns Float64.
- Division by zero returns null, and so does a cast or a parse that fails.
- Calendar functions return null for dates outside the years 1 to 9999.
- `cut` returns an Enum. You choose its labels, so they count as public keys.
- A Categorical is read as its text.

There are limits. A text that an operation makes has at most {MOST_TEXT:,} characters, a text constant
{MOST_LITERAL:,}, and a list of constants {MOST_VALUES:,} values. An expression may be nested {MOST_DEPTH} deep and have
{MOST_NODES:,} steps. Columns of bytes, Float16 and Object can only be passed through. 128-bit integers can also be
compared.

If an engine fails on a row nevertheless, the value of that row is null. No way to make this happen is known.

`python -m tests.docs_tables` generates this page from the package.

| operation | in Polars | accepts | returns | why it never fails |
|---|---|---|---|---|
"""


_SQL = """
## In SQL

These functions and operators of DuckDB may be used over private rows. AND, OR, NOT, comparisons, BETWEEN, IN, IS NULL,
IS DISTINCT FROM, CASE, COALESCE, CAST, TRY_CAST, `x[1]` and `s.field` may be used too. `tests/sql/test_expressions.py`
compares them with DuckDB's own answers.

{functions}

Some results differ from plain DuckDB on purpose:

- A failure gives null: casts, parsing, integers beyond 64 bits, division by zero (also of floats).
- Patterns, formats, lengths, separators and parts of dates must be constants or parameters.
- An INTERVAL is a constant. It can be added to dates and timestamps, or compared with a difference of timestamps.
- TIMESTAMP WITH TIME ZONE is read in UTC. The TIME 24:00 is null.
- BLOB, BIT, BIGNUM, VARIANT, UNION, MAP, INTERVAL and TIME WITH TIME ZONE columns cannot be used. HUGEINT is read as
  DECIMAL(38, 0), and UUID and JSON are read as text.
- A text constant next to a number or a date is converted to its type, exactly or not at all.
- Macros and functions of the database are never called.
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


def _interval(one: type[Aggregate]) -> str:
    if one.shape is not Shape.RANK:
        return "yes"
    return "of ranks" if one.kind in ("min", "max") else "of ranks, or of values"


def aggregates_page() -> str:
    """Return the page that lists the aggregates."""
    lines = [
        f"| `dp.{kind}` | {', '.join(f'`{one.usage(name)}`' for name in one.sql_names[:1])} | {one.summary} | "
        f"{one.rows_beyond_the_cap.value} | {_interval(one)} |"
        for kind, one in REGISTRY.items()
    ]
    return _AGGREGATES_HEAD + "\n".join(lines) + "\n"


_IN_SPARK = ("Boolean", "integers", "floats", "Decimal", "String", "Date", "Datetime")
_START, _END = "<!-- made by python -m tests.docs_tables -->\n", "<!-- end -->\n"


def spark_page(text: str) -> str:
    """Return the page about Spark with the present table of operations."""
    before, rest = text.split(_START)
    return before + _START + _spark_table() + _END + rest.split(_END)[1]


def _spark_table() -> str:
    lines = ["| operation | in Polars | accepts on Spark |", "|---|---|---|"]
    for name, operation in OPERATIONS.items():
        if name in LOWERINGS:
            spoken = operation.spoken.replace("|", "\\|")
            lines.append(f"| {name} | `{spoken}` | {', '.join(_accepted_by_spark(operation))} |")
    refused = ", ".join(f"`{name}`" for name in OPERATIONS if name not in LOWERINGS)
    return "\n".join(lines) + f"\n\nRefused on Spark: {refused}.\n"


def _accepted_by_spark(operation: Operation) -> list[str]:
    found: dict[str, None] = {}
    for names in itertools.product(_IN_SPARK, repeat=operation.arity):
        if operation.arity == 3 and names[0] != "Boolean":
            continue
        columns = [Column(f"c{place}", _TYPES[name]) for place, name in enumerate(names)]
        for sample in operation.samples:
            try:
                check_lowered(apply(operation.name, *columns, **sample))
            except (ExpressionNotAllowed, NotInSpark):
                continue
            found[names[1] if operation.arity == 3 else names[0]] = None
    return list(found)


if __name__ == "__main__":
    SPARK_PAGE.write_text(spark_page(SPARK_PAGE.read_text()))
    AGGREGATES_PAGE.write_text(aggregates_page(), encoding="utf-8")
    PAGE.write_text(page())
