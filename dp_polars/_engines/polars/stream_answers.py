"""The exact answers to the questions of a stream, in one pass over the rows that it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from dp_polars._engines.polars.rows import Program
from dp_polars._engines.polars.whole_numbers import one_form, whole_numbers
from dp_polars._engines.request import Column
from dp_polars._expressions import Expression

# Names that no column of a user has.
_UNIT = "\0dp_polars_unit"
_KEPT = "\0dp_polars_kept"
_VALUE = "\0dp_polars_value"

_AT_ONCE = 64  # questions whose conditions are held in memory together


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What a question to a stream counts or adds up.

    Attributes
    ----------
    kind
        The "rows" or "units" for which `value` is true (None: all of them), or the "sum" of `value`.
    value
        An expression of the language of private rows: a condition, or of a sum its values.
    column
        Of a sum: its values as whole numbers.
    """

    kind: Literal["rows", "units", "sum"]
    value: Expression | None = None
    column: Column | None = None


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
    asked = dict.fromkeys(tally.value for tally in tallies if tally.value is not None)
    totals: list[int] = []
    for start in range(0, len(tallies), _AT_ONCE):
        some = tallies[start : start + _AT_ONCE]
        wanted = [one for one in asked if any(one == tally.value for tally in some)]
        totals += _answers(source, some, wanted)
    return totals


def _answers(source: StreamRows, tallies: Sequence[Tally], wanted: Sequence[Expression]) -> list[int]:
    """Return some answers. Conditions are columns beside the rows, each of exactly their height."""
    names = {one: f"{_VALUE}{place}" for place, one in enumerate(wanted)}
    columns = Program(wanted).columns(source.rows) if wanted else []
    kept = [source.rows[name] for name in (*source.units, *([_KEPT] if source.masked else []))]
    frame = pl.DataFrame([*kept, *(one.alias(name) for name, one in zip(names.values(), columns, strict=True))])
    if not frame.width:
        return [source.rows.height for _ in tallies]
    chosen = [_answer(tally, source, names).cast(pl.Int128).alias(str(i)) for i, tally in enumerate(tallies)]
    return [int(number) for number in frame.lazy().select(chosen).collect(engine="in-memory").row(0)]


def _answer(tally: Tally, source: StreamRows, names: Mapping[Expression, str]) -> pl.Expr:
    expr = None if tally.value is None else pl.col(names[tally.value])
    if tally.kind == "units" and source.units:
        units = source.units
        unit = pl.col(units[0]) if len(units) == 1 else pl.struct(units)
        return (unit if expr is None else unit.filter(expr)).n_unique()
    kept = pl.col(_KEPT) if source.masked else None
    if tally.kind == "sum":
        return _sum(tally, expr, kept)
    if expr is None:
        return pl.len() if kept is None else kept.sum()
    return (expr if kept is None else expr & kept).sum()  # null adds nothing


def _sum(tally: Tally, expr: pl.Expr | None, kept: pl.Expr | None) -> pl.Expr:
    if expr is None or tally.column is None or tally.value is None:
        raise ValueError("a sum without values")
    number = whole_numbers(tally.column, tally.value.dtype, 0, expr)
    there = number >= tally.column.low
    # In 128 bits, which no number of 64-bit rows fills.
    return pl.when(there if kept is None else there & kept).then(number).cast(pl.Int128).sum()
