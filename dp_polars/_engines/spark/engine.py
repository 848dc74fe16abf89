"""The Spark engine: it runs one statement per request and puts the exact answer together on the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from dp_polars._engines.base import Snapshot
from dp_polars._engines.polars.kept_rows import kept_rows
from dp_polars._engines.polars.program import Program
from dp_polars._engines.request import LIMIT, BoundedRequest, Exact
from dp_polars._engines.rows import PrivateRows, Source
from dp_polars._engines.spark.aggregation import Statement, SumParts, statement
from dp_polars._engines.spark.source import SparkSource
from dp_polars._engines.spark.steps import rows_text
from dp_polars._engines.spark.texts import Hash, Named, fresh_hash, select, with_tables
from dp_polars._engines.spark.types import read_values, stored_values
from dp_polars._engines.unit_steps import UnitRows
from dp_polars._expressions.tree import Expression
from dp_polars._sampling import BitSource


class SparkEngine:
    """The engine that runs SQL on Spark. See `_engines.base.Engine` for what each method does."""

    def reads(self, source: Source) -> bool:
        """Return whether a source is a Spark frame, or a unit-wise step over such frames."""
        if isinstance(source, UnitRows):
            return all(self.reads(one.source) for one in source.inputs)
        return isinstance(source, SparkSource)

    def aggregate(self, rows: PrivateRows, request: BoundedRequest, *, parts: int = 1) -> Exact:
        """Return the exact bounded aggregates of rows. Spark spills to disk by itself, so `parts` changes nothing."""
        return run_statement(rows, request, *(fresh_hash() for _ in range(3)))

    def read(
        self, rows: PrivateRows, *, columns: Sequence[str] | None = None, select: Sequence[pl.Expr] | None = None
    ) -> pl.DataFrame:
        """Return all rows in the memory of the driver."""
        frame = read_rows(rows, list(rows.schema) if columns is None else list(columns))
        return frame if select is None else frame.select(select)

    def snapshot(
        self,
        rows: PrivateRows,
        units: Sequence[str],
        bits: BitSource,
        *,
        max_rows: int | None,
        keys: Sequence[str] = (),
        max_groups: int | None = None,
    ) -> Snapshot:
        """Return all rows in the memory of the driver, and mark those that each unit keeps."""
        frame = self.read(rows)
        return Snapshot(frame, kept_rows(frame, units, bits, max_rows=max_rows, keys=keys, max_groups=max_groups))

    def problem(self, expressions: Sequence[Expression], public: pl.DataFrame) -> str | None:
        """Return why expressions fail on public rows, or None if they do not fail."""
        return Program(expressions).problem(public)

    def identify(self, origin: object) -> bytes | None:
        """Return None: a Spark frame is identified by its object, or by the name and version that its owner gives."""
        return None


def read_rows(rows: PrivateRows, names: Sequence[str]) -> pl.DataFrame:
    """Return columns of all rows, in the types of the schema."""
    found = rows_text(rows)
    listed = [f"{found.columns[name]} AS r{place}" for place, name in enumerate(names)]
    text = with_tables(found.named.tables, select(listed or ["here"], f"({found.text})"))
    answer = _run(text, found.public, found.named)
    if not names:
        return pl.DataFrame(height=answer.height)
    return pl.DataFrame(
        [read_values(answer[f"r{place}"], rows.schema[name]).alias(name) for place, name in enumerate(names)]
    )


def _run(text: str, public: Mapping[str, pl.DataFrame], named: Named) -> pl.DataFrame:
    sources = {name: one for name, one in named.sources.items() if isinstance(one, SparkSource)}
    if not sources or len(sources) < len(named.sources):
        raise TypeError("not the rows of Spark frames")
    return next(iter(sources.values())).run(text, public, sources)


def run_statement(rows: PrivateRows, request: BoundedRequest, order: Hash, tag: Hash, value: Hash) -> Exact:
    """Return the exact bounded aggregates of rows, with given hashes."""
    found = rows_text(rows)
    made = statement(found, rows.schema, request, order, tag, value)
    return _exact(_run(made.text, made.public, found.named), made, rows.schema, request)


def _exact(answer: pl.DataFrame, made: Statement, schema: pl.Schema, request: BoundedRequest) -> Exact:
    """Return the sums of each group, and the cells with the numbers of the groups that they belong to."""
    keys = [f"k{i}" for i in range(request.keys)]
    names = [f"key{i}" for i in range(request.keys)]
    found = answer.filter(pl.col("part") == 0)
    table = found.select(
        *keys,
        runs=pl.sum_horizontal([pl.lit(0, dtype=pl.Int64), *made.runs]).cast(pl.Int64),
        **{f"sum{place}": _put_together(one) for place, one in enumerate(made.sums)},
    )
    if keys and request.domain is None:
        shown = [read_values(table[own], schema[name]).alias(name) for own, name in zip(keys, names, strict=True)]
        order = pl.DataFrame(shown).with_row_index("\0place").sort(names)
        table, groups = table[order["\0place"]], order.drop("\0place")
    elif keys and request.domain is not None:
        groups = request.domain
        stored = pl.DataFrame([_stored_key(groups[name]).alias(own) for own, name in zip(keys, names, strict=True)])
        table = stored.join(table, on=keys, how="left", nulls_equal=True, maintain_order="left")
        table = table.with_columns(pl.exclude(keys).fill_null(0))
    else:
        groups = pl.DataFrame(height=table.height)
    sums = {one.name: table[f"sum{place}"] for place, one in enumerate(made.sums)}
    columns = [table["runs"], *(series.alias(name) for name, series in sums.items())]
    places = table.select(keys).with_row_index("group").with_columns(pl.col("group").cast(pl.Int64))
    cells = {}
    for number, name in enumerate(made.cells, 1):
        part = answer.filter(pl.col("part") == number).select(*keys, value="x0", count="x1")
        is_profile = name in {profile.name for lane in request.lanes for profile in lane.profiles}
        if is_profile:
            cells[name] = part.select("value", "count").sort("value")
        elif keys:
            placed = part.join(places, on=keys, nulls_equal=True)
            cells[name] = placed.select("value", "count", "group").sort("group", "value")
        else:
            cells[name] = part.select("value", "count", group=pl.lit(0, dtype=pl.Int64)).sort("value")
    return Exact(groups.hstack(columns) if keys else pl.DataFrame(columns), cells)


def _stored_key(column: pl.Series) -> pl.Series:
    return stored_values(column + 0.0 if column.dtype.is_float() else column)


def _put_together(one: SumParts) -> pl.Expr:
    """Return a sum from its limbs. It is rounded and clipped as `bounding.sums` does."""
    total = pl.lit(0, dtype=pl.Int128)
    for name, factor in one.parts:
        total = total + pl.col(name).cast(pl.Int128) * pl.lit(factor, dtype=pl.Int128)
    if one.shortened:  # to the nearest, ties upwards
        half, step = 1 << (one.shortened - 1), 1 << one.shortened
        total = (total + pl.lit(half, dtype=pl.Int128)) // pl.lit(step, dtype=pl.Int128)
    return (total if one.shortened is None else total.clip(-LIMIT, LIMIT)).cast(pl.Int64)
