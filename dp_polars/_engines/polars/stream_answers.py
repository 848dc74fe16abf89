"""Exact answers to the queries of a stream, in one pass over the rows that it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from dp_polars._engines.polars.program import Program
from dp_polars._engines.polars.value_codes import one_form, value_codes
from dp_polars._engines.request import Tally
from dp_polars._expressions import Expression

# Names that no column of a user has.
_UNIT = "\0dp_polars_unit"
_KEPT = "\0dp_polars_kept"
_VALUE = "\0dp_polars_value"

_AT_ONCE = 64  # queries whose conditions are held in memory together


@dataclass(frozen=True, repr=False)
class StreamRows:
    """The rows that a stream queries. They are private and never shown.

    Attributes
    ----------
    rows
        The rows in memory.
    units
        The columns that tell units apart; none if every row is a unit.
    masked
        Whether a mask marks the rows that count in sums and in counts of rows. Otherwise all of them count.
    """

    rows: pl.DataFrame
    units: tuple[str, ...]
    masked: bool


def stream_rows(rows: pl.DataFrame, kept: pl.Series, units: tuple[str, ...], *, every_row: bool) -> StreamRows:
    """Return the rows that a stream needs: the kept rows, or with `every_row` all rows with a mask of the kept ones.

    Counting the units that satisfy a condition needs every row. The rows are sorted by unit, so the units in a
    filtered column can be counted without hashing them.
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
    """Return the exact answer to each query."""
    asked = dict.fromkeys(tally.value for tally in tallies if tally.value is not None)
    totals: list[int] = []
    for start in range(0, len(tallies), _AT_ONCE):
        some = tallies[start : start + _AT_ONCE]
        wanted = [one for one in asked if any(one == tally.value for tally in some)]
        totals += _answers(source, some, wanted)
    return totals


def _answers(source: StreamRows, tallies: Sequence[Tally], wanted: Sequence[Expression]) -> list[int]:
    """Return the answers to some queries. Conditions become columns of exactly the height of the rows."""
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
    number = value_codes(tally.column, tally.value.dtype, 0, expr)
    there = number >= tally.column.low
    # No number of 64-bit values overflows 128 bits.
    return pl.when(there if kept is None else there & kept).then(number).cast(pl.Int128).sum()
