"""The way of a bounded aggregation through Polars: codes and hashes of batches of rows, then `bounding`."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from dp_polars.engines.bounding import ORDER_BITS, Caps, Rows, Shape, bounded
from dp_polars.engines.polars.codes import (
    Codes,
    HashCollisionError,
    Words,
    batches,
    collect,
    domain_codes,
    found_codes,
    hash_name,
    hashed,
    mixed,
)
from dp_polars.engines.polars.units import MIXER, Units, combined, units_of
from dp_polars.engines.request import LIMIT, BoundedRequest, ValueRequest

_MOST_GROUPS = 1 << 40


def run_bounded(frame: pl.LazyFrame, request: BoundedRequest) -> pl.DataFrame:
    """Return exact bounded aggregates: the key columns, `rows`, `units` and, with a value, `total`.

    With a public domain every key is a row, in its order; otherwise the groups that a kept row falls into, sorted.
    """
    return run_bounded_on_grid(_on_grid(frame, request.value), request)


def run_bounded_on_grid(frame: pl.LazyFrame, request: BoundedRequest) -> pl.DataFrame:
    """As `run_bounded`, with values that are whole steps already."""
    if request.units == 0:
        return _every_row_a_unit(frame, request)
    salt = secrets.randbits(63)  # once, whichever codes are used: nothing that depends on data chooses it
    try:
        return _run(frame, request, salt, joined=False)
    except HashCollisionError:
        return _run(frame, request, salt, joined=True)


def _run(frame: pl.LazyFrame, request: BoundedRequest, salt: int, *, joined: bool) -> pl.DataFrame:
    keys, unit_names = [f"key{i}" for i in range(request.keys)], [f"unit{i}" for i in range(request.units)]
    if request.domain is not None:
        frame, codes = domain_codes(frame, request.domain, salt, joined=joined)
    else:
        frame, codes = found_codes(frame, keys, salt, joined=joined)
    groups = math.prod(code.size for code in codes)
    if groups > _MOST_GROUPS and request.domain is None:
        # Too many combinations for a number: the ones that occur are numbered, in the order of their values.
        found = collect(frame.select(keys).unique()).sort(keys)
        return _run(frame, replace(request, domain=found), salt, joined=True).filter(pl.col("units") > 0)
    frame, units = units_of(frame, unit_names, salt, by_hash=request.hashed_units, joined=joined)
    ordered = request.max_groups is not None
    value = request.value
    shape = Shape(
        unit_bits=units.bits,
        groups=groups,
        values=None if value is None else (-LIMIT, LIMIT) if value.total else (value.low, value.high),
        ordered=ordered,
    )
    caps = Caps(
        max_groups=request.max_groups,
        max_rows=request.max_rows,
        total=(value.low, value.high) if value is not None and value.total else None,
    )
    sums = bounded(_rows(frame, unit_names, keys, units, codes, salt, shape), shape, caps)
    return _table(*sums.finish(), codes, request)


def _rows(
    frame: pl.LazyFrame,
    unit_names: Sequence[str],
    key_names: Sequence[str],
    units: Units,
    codes: Sequence[Codes],
    salt: int,
    shape: Shape,
) -> Iterator[Rows]:
    """Yield the rows that have a unit, a value and a key of the domain, batch by batch."""
    schema = frame.collect_schema()
    columns = {**units.columns(), **{name: expr for code in codes for name, expr in code.columns().items()}}
    if shape.values is not None:
        columns["value"] = pl.col("value")
    wanted = [name for name in unit_names if shape.ordered or units.by_hash]
    wanted += [name for name in key_names if shape.ordered or any(code.by_hash for code in codes)]
    hashes = [hashed(name, schema[name], salt) for name in wanted]
    missing = [pl.col(name).is_null() for name in unit_names]
    selected = frame.select(*hashes, missing=pl.any_horizontal(missing), **columns)
    unit_hashes, key_hashes = ([hash_name(name) for name in names] for names in (unit_names, key_names))
    for whole in batches(selected):
        batch = whole.filter(~whole["missing"]) if whole["missing"].any() else whole
        if shape.values is not None:
            batch = batch.drop_nulls("value")
        if not batch.height:
            continue
        group, valid = mixed(codes, batch)
        unit, more, told_apart = units.words(batch)
        if told_apart is not None:
            valid = told_apart if valid is None else valid & told_apart
        order = order_of(batch, unit_hashes, key_hashes) if shape.ordered else None
        value = batch["value"].to_numpy() if shape.values is not None else None
        yield Rows(unit, more, order, group, value, valid)


def order_of(batch: pl.DataFrame, unit_hashes: Sequence[str], key_hashes: Sequence[str]) -> Words:
    """Return the order in which a unit's groups are kept: a hash of salt, unit and key by their values, not codes."""
    order = combined(batch, unit_hashes) ^ combined(batch, key_hashes)
    order *= MIXER
    order >>= np.uint64(64 - ORDER_BITS)
    return order


def _on_grid(frame: pl.LazyFrame, value: ValueRequest | None) -> pl.LazyFrame:
    """Turn `value` into whole steps of its grid; null where there is no number."""
    if value is None:
        return frame
    column = pl.col("value")
    if frame.collect_schema()["value"].is_float():
        step = 2.0**value.exponent
        number = column.cast(pl.Float64).fill_nan(None)
        low, high = (-float(LIMIT), float(LIMIT)) if value.total else (float(value.low), float(value.high))
        if value.offset:
            number = number - value.offset
        steps = (number * (1.0 / step)).round().clip(low, high).cast(pl.Int64)
    else:
        number = column.cast(pl.Int128) - int(value.offset)
        if value.exponent > 0:
            number = number // (1 << value.exponent)
        low_int, high_int = (-LIMIT, LIMIT) if value.total else (value.low, value.high)
        steps = number.clip(low_int, high_int).cast(pl.Int64)
    return frame.with_columns(value=steps)


def _every_row_a_unit(frame: pl.LazyFrame, request: BoundedRequest) -> pl.DataFrame:
    """Aggregate rows that are units of their own: caps can't bind."""
    keys = [f"key{i}" for i in range(request.keys)]
    sums = [pl.len().cast(pl.Int64).alias("rows")]
    if request.value is not None:
        frame = frame.filter(pl.col("value").is_not_null())
        value = pl.col("value")
        if request.value.total:
            value = value.clip(request.value.low, request.value.high)
        sums.append(value.cast(pl.Int128).sum().clip(-LIMIT, LIMIT).cast(pl.Int64).alias("total"))
    plain = frame.group_by(keys).agg(sums) if keys else frame.select(sums)
    counted = collect(plain.with_columns(units=pl.col("rows")))
    if request.domain is not None:
        joined = request.domain.join(counted, on=keys, how="left", nulls_equal=True, maintain_order="left")
        return joined.with_columns(pl.col("rows", "units", *(["total"] if request.value else [])).fill_null(0))
    return counted.sort(keys) if keys else counted


def _table(
    names: Any, rows: Any, units: Any, total: Any, codes: Sequence[Codes], request: BoundedRequest
) -> pl.DataFrame:
    """Return the sums with their key values."""
    numbers: dict[str, Any] = {"rows": rows, "units": units}
    if total is not None:
        numbers["total"] = total
    table = pl.DataFrame(numbers)
    if request.domain is not None:
        if len(names) < request.domain.height:  # more keys than places: those that nobody has are 0
            every = pl.DataFrame({"name": np.arange(request.domain.height)})
            named = table.with_columns(name=pl.Series(names))
            table = every.join(named, on="name", how="left", maintain_order="left").drop("name").fill_null(0)
        return request.domain.hstack(table)
    if not codes:
        return table
    shown = np.flatnonzero(units > 0)
    rest, columns = names[shown], []
    for code in reversed(codes):
        rest, own = np.divmod(rest, code.size) if code.size else (rest, rest)
        columns.append(code.decode(own))
    return pl.DataFrame(columns[::-1]).hstack(table[shown.tolist()] if len(shown) else table.clear())
