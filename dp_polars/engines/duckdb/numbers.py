"""Value columns as whole numbers in SQL: what `engines.polars.values` does in Polars."""

from __future__ import annotations

import re

from dp_polars.engines.request import HASH_BITS, LIMIT, Column

_FLOATS = frozenset({"FLOAT", "DOUBLE"})


def one_form(own: str, kind: str) -> str:
    """Return a column in which equal floats have equal bytes: one zero and one NaN; `kind` is its SQL type."""
    base = kind.upper()
    if base not in _FLOATS:
        return own
    nan = f"WHEN system.main.isnan({own}) THEN 'nan'::{base}"
    return f"CASE WHEN {own} = 0::{base} THEN 0::{base} {nan} ELSE {own} END"


def number_text(column: Column, kind: str, salt: int) -> str:
    """Return a value column as whole numbers within its range, null where there is no value; `kind` is its SQL type."""
    own, base = f"value_{column.place}", kind.upper()
    there = f"{own} IS NOT NULL" + (f" AND NOT system.main.isnan({own})" if base in _FLOATS else "")
    if column.kind == "presence":
        return f"CASE WHEN {there} THEN 0::HUGEINT END"
    if column.kind == "hash":
        hashed = f"system.main.hash(system.main.hash({one_form(own, base)}, {salt}::UBIGINT))"
        return f"CASE WHEN {there} THEN ({hashed} >> {64 - HASH_BITS})::HUGEINT END"
    number = f"{own}::DOUBLE" if base in _FLOATS else _stored(own, base)
    found = _bin(column, number) if column.kind == "bin" else _steps(column, number, base in _FLOATS)
    return f"CASE WHEN {there} THEN {found} END"


def _stored(own: str, base: str) -> str:
    """Return a value as the whole number that Polars stores it as."""
    if base == "DATE":
        return f"system.main.date_diff('day', DATE '1970-01-01', {own})::HUGEINT"
    if base.startswith("TIMESTAMP_NS"):
        return f"system.main.epoch_ns({own})::HUGEINT"
    if base.startswith("TIMESTAMP"):
        return f"system.main.epoch_us({own})::HUGEINT"
    if base in ("TIME", "TIME_NS"):
        return f"(system.main.epoch_us({own}) * 1000)::HUGEINT"
    decimal = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", base.replace(" ", ""))
    if decimal is not None:
        digits, scale = (int(group) for group in decimal.groups())
        wide = f"{own}::DECIMAL({min(38, digits + scale)},{scale})" if digits + scale <= 38 else f"{own}::DOUBLE"
        return f"system.main.round({wide} * {10**scale})::HUGEINT"
    return f"{own}::HUGEINT"


def _steps(column: Column, number: str, is_float: bool) -> str:
    low, high = max(column.low, -LIMIT), min(column.high, LIMIT)
    if not is_float:
        whole = f"({number} - ({int(column.offset)})::HUGEINT)"
        if column.exponent > 0:
            step = 1 << column.exponent
            whole = f"(({whole} - (({whole} % {step}) + {step}) % {step}) // {step})"
        return _clipped(whole, low, high, "HUGEINT")
    scaled = f"system.main.round(({number} - ({float(column.offset)!r})::DOUBLE) * {2.0**-column.exponent!r}::DOUBLE)"
    return _clipped(f"CAST({_clipped(scaled, low, high, 'DOUBLE')} AS HUGEINT)", low, high, "HUGEINT")


def _clipped(number: str, low: int, high: int, kind: str) -> str:
    return f"system.main.least(system.main.greatest({number}, ({low})::{kind}), ({high})::{kind})"


def _bin(column: Column, number: str) -> str:
    """Return the bin of a number: the last edge that is not above it; the last bin has both of its edges."""
    *inner, last = column.edges
    kind = "DOUBLE" if isinstance(last, float) else "HUGEINT"
    cases = [f"WHEN {number} > '{last!r}'::{kind} THEN NULL"]
    cases += [f"WHEN {number} >= '{edge!r}'::{kind} THEN {place}" for place, edge in reversed(list(enumerate(inner)))]
    return f"CASE {' '.join(cases)} END"
