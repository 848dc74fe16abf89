"""The exact answers to the questions of a stream, in one pass over the rows that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from dp_polars.engines.polars.values import one_form, whole_numbers
from dp_polars.engines.request import Column

# Names that no column of a user has.
_UNIT = "\0dp_polars_unit"
_KEPT = "\0dp_polars_kept"


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What a question to a stream counts or adds up.

    Attributes
    ----------
    kind
        The "rows" or "units" for which `expr` is true (None: all of them), or the "sum" of `expr`.
    expr
        A row-wise expression: Boolean, or of a sum its values.
    spread
        Whether the expression reads no column and stands for the same value in every row.
    column, dtype
        Of a sum: its values as whole numbers, and their type.
    """

    kind: Literal["rows", "units", "sum"]
    expr: pl.Expr | None = None
    spread: bool = False
    column: Column | None = None
    dtype: pl.DataType | None = None


@dataclass(frozen=True, repr=False)
class StreamRows:
    """The rows that a stream asks. Private: they are never shown.

    `units` are the columns that tell units apart, none where every row is one; with `masked` the rows that count in
    counts of rows and in sums are marked, otherwise they are all of them.
    """

    rows: pl.DataFrame
    units: tuple[str, ...]
    masked: bool


def stream_rows(rows: pl.DataFrame, kept: pl.Series, units: tuple[str, ...], *, every_row: bool) -> StreamRows:
    """Return the rows that a stream needs: those that are kept, or every row of every unit with a mark on the kept.

    Every row is needed where conditions count units. They are sorted by unit then: equal units lie together, so that
    those of a filtered column are counted without a hash of each.
    """
    if not units:
        return StreamRows(rows, (), masked=False)
    if not every_row:
        return StreamRows(rows.filter(kept), units, masked=False)
    known = pl.all_horizontal(pl.col(name).is_not_null() for name in units)
    forms = [one_form(pl.col(name), rows.schema[name]).alias(f"{_UNIT} {place}") for place, name in enumerate(units)]
    names = [f"{_UNIT} {place}" for place in range(len(units))]
    marked = rows.with_columns(kept.alias(_KEPT), *forms).filter(known).sort(names)
    numbered = marked.with_columns(pl.struct(names).rle_id().set_sorted().alias(_UNIT)).drop(names)
    return StreamRows(numbered, (_UNIT,), masked=True)


def exact_answers(source: StreamRows, tallies: Sequence[Tally]) -> list[int]:
    """Return the exact answer to each question, all in one pass."""
    chosen = [_answer(tally, source).cast(pl.Int128).alias(str(place)) for place, tally in enumerate(tallies)]
    # In memory a sorted column is counted run by run; the streaming engine, faster otherwise, hashes each of its units.
    engine: Literal["in-memory", "streaming"] = "in-memory" if source.masked else "streaming"
    return [int(number) for number in source.rows.lazy().select(chosen).collect(engine=engine).row(0)]


def _answer(tally: Tally, source: StreamRows) -> pl.Expr:
    expr = tally.expr
    if expr is not None and tally.spread:
        expr = pl.when(pl.int_range(pl.len()) >= 0).then(expr)
    if tally.kind == "units" and source.units:
        names = source.units
        unit = pl.col(names[0]) if len(names) == 1 else pl.struct(names)
        return (unit if expr is None else unit.filter(expr)).n_unique()
    kept = pl.col(_KEPT) if source.masked else None
    if tally.kind == "sum":
        return _sum(tally, expr, kept)
    if expr is None:
        return pl.len() if kept is None else kept.sum()
    return (expr if kept is None else expr & kept).sum()  # null adds nothing


def _sum(tally: Tally, expr: pl.Expr | None, kept: pl.Expr | None) -> pl.Expr:
    if expr is None or tally.column is None or tally.dtype is None:
        raise ValueError("a sum without values")
    number = whole_numbers(tally.column, tally.dtype, 0, expr)
    there = number >= tally.column.low
    # In 128 bits, which no number of 64-bit rows fills.
    return pl.when(there if kept is None else there & kept).then(number).cast(pl.Int128).sum()
