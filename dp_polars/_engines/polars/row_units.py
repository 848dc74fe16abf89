"""Bounded aggregation when every row is a unit of its own: no cap can bind, so a plain aggregation is enough."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from dp_polars._engines.polars.scan import collect
from dp_polars._engines.request import LIMIT, BoundedRequest, Exact, GroupSum, Lane


def every_row_a_unit(frame: pl.LazyFrame, request: BoundedRequest) -> Exact:
    """Return the aggregates of rows that are units of their own. Values of lanes are in `number0`, `number1`, ..."""
    keys = [f"key{i}" for i in range(request.keys)]
    tables, found, start = [], {}, 0
    for lane in request.lanes:
        names = [f"number{start + i}" for i in range(len(lane.columns))]
        start += len(names)
        present = pl.all_horizontal(
            [pl.col(name) >= column.low for name, column in zip(names, lane.columns, strict=True)] or [pl.lit(True)]
        )
        rows = frame if lane.everyone or not names else frame.filter(present)
        tables.append(_summed(rows, lane, names, keys, present))
        if lane.cells is not None:
            counted = rows if lane.cells.missing else rows.filter(present)
            values = counted.select(*keys, value=names[0])
            if lane.cells.distinct:
                values = values.unique()
            found[lane.cells.name] = collect(values.group_by(*keys, "value").agg(count=pl.len().cast(pl.Int64)))
    groups = _side_by_side(tables, request.domain if keys else None, keys)
    places = groups.select(keys).with_row_index("group").with_columns(pl.col("group").cast(pl.Int64))
    cells = {}
    for name, frame_of_cells in found.items():
        placed = (
            frame_of_cells.join(places, on=keys, nulls_equal=True)
            if keys
            else frame_of_cells.with_columns(group=pl.lit(0, dtype=pl.Int64))
        )
        cells[name] = placed.select("value", "count", "group").sort("group", "value")
    return Exact(groups, cells)


def _side_by_side(tables: Sequence[pl.DataFrame], domain: pl.DataFrame | None, keys: Sequence[str]) -> pl.DataFrame:
    """Return the sums of all lanes for every public key, or sorted for every group that occurs.

    A sum is 0 where its lane has no row. Each table has the keys, sums with distinct names, and `runs`, the number of
    units in a group; the `runs` of all tables are added up.
    """
    numbered = [table.rename({"runs": f"runs {place}"}) for place, table in enumerate(tables)]
    together = pl.sum_horizontal("^runs .*$").alias("runs")
    if not keys:
        columns = pl.DataFrame([column for table in numbered for column in table.get_columns()])
        return columns.with_columns(together).drop("^runs .*$")
    if domain is not None:
        groups = domain
    else:
        groups = pl.concat([table.filter(pl.col("runs") > 0).select(keys) for table in tables]).unique().sort(keys)
    for table in numbered:
        groups = groups.join(table, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return groups.with_columns(pl.exclude(keys).fill_null(0)).with_columns(together).drop("^runs .*$")


def _summed(rows: pl.LazyFrame, lane: Lane, names: list[str], keys: list[str], present: pl.Expr) -> pl.DataFrame:
    mixed = lane.everyone and bool(names)
    sums = [_sum(one, lane, names, present if mixed else None).alias(one.name) for one in lane.sums]
    sums.append(pl.len().cast(pl.Int64).alias("runs"))
    return collect(rows.group_by(keys).agg(sums) if keys else rows.select(sums))


def _number(one: GroupSum, lane: Lane, names: list[str]) -> pl.Expr:
    if one.of == "basis":
        low, high = lane.columns[0].low, lane.columns[0].high
        factors = [pl.col(names[0]) - low] * one.place + [high - pl.col(names[0])] * (one.degree - one.place)
        number = pl.lit(math.comb(one.degree, one.place), dtype=pl.Int64)
    else:
        first, *factors = [pl.col(names["xy".index(letter)]) for letter in one.of]
        number = first
    for factor in factors:
        number = number * factor
    return number


def _sum(one: GroupSum, lane: Lane, names: list[str], present: pl.Expr | None) -> pl.Expr:
    """Return a sum over rows. `present` tells which rows have a value; None means all of them."""
    rows = pl.len() if one.everyone or present is None else present.sum()
    if one.of == "over":  # a row that is a unit of its own has no other rows
        return pl.lit(0, dtype=pl.Int64)
    if one.of in ("rows", "units"):
        return rows.cast(pl.Int64)
    number = _number(one, lane, names)
    if one.clip is not None:
        number = number.clip(*one.clip)
    if present is not None:
        number = number.filter(present)
    shift = rows.cast(pl.Int128) * pl.lit(one.shift, dtype=pl.Int128)
    return (number.cast(pl.Int128).sum() + shift).clip(-LIMIT, LIMIT).cast(pl.Int64)
