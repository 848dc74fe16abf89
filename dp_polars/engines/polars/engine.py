"""The way of a bounded aggregation through Polars: codes, packing, then `bounding`."""

from __future__ import annotations

import math
import secrets
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars.engines.bounding import (
    ORDER_BITS,
    Aggregates,
    Layout,
    Runs,
    aggregate,
    keyed_runs,
    packed_runs,
    wide_runs,
)
from dp_polars.engines.polars.codes import Codes, collect, dictionary_codes, frame_codes, key_codes, unit_codes
from dp_polars.engines.request import BoundedRequest, ValueRequest

_MIXER = pl.lit(0x9E3779B97F4A7C15, dtype=pl.UInt64)
_MOST_GROUPS = 1 << 40
_FEW_GROUPS = 1 << 22  # up to this many possible groups, results are counted in place


def run_bounded(frame: pl.LazyFrame, request: BoundedRequest) -> pl.DataFrame:
    """Return exact bounded aggregates: the key columns, `rows`, `units` and, with a value, `total`.

    With a public domain every key is a row, in its order; otherwise the groups that a kept row falls into, sorted.
    """
    return run_bounded_on_grid(_on_grid(frame, request.value), request)


def run_bounded_on_grid(frame: pl.LazyFrame, request: BoundedRequest) -> pl.DataFrame:
    """As `run_bounded`, with values that are whole steps already."""
    if request.units == 0:
        return _every_row_a_unit(frame, request)
    units = [f"unit{i}" for i in range(request.units)]
    codes, radixes = _group_codes(frame, request)
    if math.prod(radixes) > _MOST_GROUPS:
        # Too many combinations for a number: the ones that occur are numbered, in the order of their values.
        keys = [f"key{i}" for i in range(request.keys)]
        found = collect(frame.select(keys).unique()).sort(keys)
        table = run_bounded_on_grid(frame, replace(request, domain=found))
        return table.filter(pl.col("units") > 0)
    frame = codes[-1].frame if codes else frame
    order = _order_hash(units, request.keys, secrets.randbits(63))
    unit = unit_codes(frame, units, frame.collect_schema())
    group, groups = _mixed_radix([code.code for code in codes], radixes)
    runs = _runs(unit, group, groups, order, request.value)
    present, numbers = _numbered(runs.group, groups, request.domain)
    result = aggregate(
        Runs(runs.unit, numbers, runs.rows, runs.total),
        len(present),
        max_groups=request.max_groups,
        max_rows=request.max_rows,
        total_bounds=(request.value.low, request.value.high) if request.value and request.value.total else None,
    )
    return _table(present, result, codes, radixes, request)


def _on_grid(frame: pl.LazyFrame, value: ValueRequest | None) -> pl.LazyFrame:
    """Turn `value` into whole steps of its grid; null where there is no number."""
    if value is None:
        return frame
    column = pl.col("value")
    if frame.collect_schema()["value"].is_float():
        step = 2.0**value.exponent
        number = column.cast(pl.Float64).fill_nan(None)
        limit = 2.0**62 if value.total else None
        low, high = (-limit, limit) if limit else (float(value.low), float(value.high))
        if value.offset:
            number = number - value.offset
        steps = (number * (1.0 / step)).round().clip(low, high).cast(pl.Int64)
    else:
        number = column.cast(pl.Int128) - int(value.offset)
        if value.exponent > 0:
            number = number // (1 << value.exponent)
        low_int, high_int = (-(1 << 62), 1 << 62) if value.total else (value.low, value.high)
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
        limit = 1 << 62  # clipping adds nothing to what one row can change; wrapping would
        sums.append(value.cast(pl.Int128).sum().clip(-limit, limit).cast(pl.Int64).alias("total"))
    plain = frame.group_by(keys).agg(sums) if keys else frame.select(sums)
    counted = collect(plain.with_columns(units=pl.col("rows")))
    if request.domain is not None:
        joined = request.domain.join(counted, on=keys, how="left", nulls_equal=True, maintain_order="left")
        return joined.with_columns(pl.col("rows", "units", *(["total"] if request.value else [])).fill_null(0))
    return counted.sort(keys) if keys else counted


def _group_codes(frame: pl.LazyFrame, request: BoundedRequest) -> tuple[list[Codes], list[int]]:
    """Return codes for the keys, one after another on the growing frame."""
    keys = [f"key{i}" for i in range(request.keys)]
    schema = frame.collect_schema()
    codes: list[Codes] = []
    if request.domain is not None:
        codes.append(
            dictionary_codes(frame, request.domain.to_series())
            if len(keys) == 1
            else frame_codes(frame, request.domain)
        )
    else:
        for name in keys:
            codes.append(key_codes(codes[-1].frame if codes else frame, name, schema[name]))
    return codes, [code.size for code in codes]


def _order_hash(units: list[str], keys: int, salt: int) -> pl.Expr:
    """Return a hash of (salt, unit values, key values): the order in which a unit's groups are kept."""
    names = [*units, *(f"key{i}" for i in range(keys))]
    hashed = pl.lit(0, dtype=pl.UInt64)
    for place, name in enumerate(names):
        hashed = (hashed ^ pl.col(name).hash((salt + place) % (1 << 63))) * _MIXER
    return hashed // pl.lit(1 << (64 - ORDER_BITS), dtype=pl.UInt64)


def _mixed_radix(codes: list[pl.Expr], radixes: list[int]) -> tuple[pl.Expr, int]:
    group, groups = pl.lit(0, dtype=pl.UInt64), 1
    for code, radix in zip(codes, radixes, strict=True):
        group, groups = group * pl.lit(radix, dtype=pl.UInt64) + code, groups * radix
    return group, groups


def _runs(unit: Codes, group: pl.Expr, groups: int, order: pl.Expr, value: ValueRequest | None) -> Runs:
    """Collect packed rows and find their runs; what does not fit 64 bits goes in separate columns.

    A row without a unit, without a value or with a key outside a public domain has a null somewhere, which makes the
    packed row null; null rows are dropped, before anything is bounded.
    """
    unit_bits, group_bits = (unit.size - 1).bit_length(), (groups - 1).bit_length()
    keyed = Layout(unit_bits, group_bits)
    if not keyed.fits:
        return _wide(unit, group, order, value)
    packed = unit.code * _power(ORDER_BITS + group_bits) + order * _power(group_bits) + group
    if value is None:
        return packed_runs(_column(unit.frame, packed), keyed, None)
    full = Layout(unit_bits, group_bits, (value.high - value.low).bit_length())
    if full.fits and not value.total:
        offset = (pl.col("value") - value.low).cast(pl.UInt64)
        return packed_runs(_column(unit.frame, packed * _power(full.value_bits) + offset), full, value.low)
    table = collect(unit.frame.select(packed=packed, value="value").drop_nulls())
    return keyed_runs(table["packed"].to_numpy(), table["value"].to_numpy(), keyed)


def _wide(unit: Codes, group: pl.Expr, order: pl.Expr, value: ValueRequest | None) -> Runs:
    columns = {"unit": unit.code, "order": order, "group": group}
    if value is not None:
        columns["value"] = pl.col("value")
    table = collect(unit.frame.select(**columns).drop_nulls())
    return wide_runs(
        table["unit"].to_numpy(),
        table["order"].to_numpy(),
        table["group"].cast(pl.Int64).to_numpy(),
        None if value is None else table["value"].to_numpy(),
    )


def _power(bits: int) -> pl.Expr:
    return pl.lit(1 << bits, dtype=pl.UInt64)


def _column(frame: pl.LazyFrame, packed: pl.Expr) -> NDArray[np.uint64]:
    """Return packed rows as an array that may be sorted in place."""
    column = collect(frame.select(packed=packed).drop_nulls()).to_series()
    return column.to_numpy(writable=True)


def _numbered(group: NDArray[np.int64], groups: int, domain: pl.DataFrame | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the group codes that results are kept for, and each run's place among them."""
    if domain is not None or groups <= _FEW_GROUPS:
        return np.arange(groups), group
    present, numbers = np.unique(group, return_inverse=True)
    return present, numbers


def _table(
    present: NDArray[Any], result: Aggregates, codes: list[Codes], radixes: list[int], request: BoundedRequest
) -> pl.DataFrame:
    """Return the aggregates with their key values."""
    numbers: dict[str, Any] = {"rows": result.rows, "units": result.units}
    if result.total is not None:
        numbers["total"] = result.total
    table = pl.DataFrame(numbers)
    if request.domain is not None:
        return request.domain.hstack(table)
    if not codes:
        return table
    shown = np.flatnonzero(result.units > 0)
    rest, columns = present[shown], []
    for code, radix in zip(reversed(codes), reversed(radixes), strict=True):
        rest, own = np.divmod(rest, radix)
        columns.append(code.decode(pl.Series(own)))
    return pl.DataFrame(columns[::-1]).hstack(table[shown.tolist()] if len(shown) else table.clear())
