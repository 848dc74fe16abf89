"""Conversion of values: casts, and tables of old and new values."""

from __future__ import annotations

from typing import Any

import polars as pl

from dp_polars._expressions.constants import fits, too_many
from dp_polars._expressions.operations.base import (
    TEXT,
    TRUTH,
    apply,
    as_text,
    bad,
    common_type,
    comparable,
    make,
    operation,
    wrong_type,
)
from dp_polars._expressions.tree import Constant, Expression
from dp_polars._expressions.types import CALENDAR, MOST_VALUES, TEXTS, kind_of, zone_of

_CASTS: dict[str, frozenset[str]] = {
    "boolean": frozenset({"boolean", "integer", "float"}),
    "integer": frozenset({"boolean", "integer", "wide", "float", "decimal", "text", *CALENDAR, "duration", "time"}),
    "wide": frozenset({"boolean", "integer", "wide"}),
    "float": frozenset({"boolean", "integer", "float", "decimal", "text"}),
    "text": frozenset({"boolean", "integer", "float", "decimal", *TEXTS, *CALENDAR, "time"}),
    "enum": TEXTS,
    "date": frozenset({"date", "datetime", "integer"}),
    "datetime": frozenset({"date", "datetime", "integer"}),
    "duration": frozenset({"duration", "integer"}),
    "decimal": frozenset({"decimal", "integer"}),
    "time": frozenset({"time"}),
}
_TARGETS = (
    *(pl.Boolean(), pl.Int8(), pl.Int64(), pl.UInt64(), pl.Float32(), pl.Float64(), pl.String(), pl.Enum(["a", "b"])),
    *(pl.Date(), pl.Datetime("us"), pl.Datetime("ns"), pl.Duration("us"), pl.Decimal(12, 2), pl.Int128()),
)


@operation(
    "cast",
    "A value that the target type cannot hold becomes null, and so does a text that cannot be parsed or a date outside "
    "the years 1 to 9999.",
    samples=tuple({"to": dtype} for dtype in _TARGETS),
)
def _cast(x: Expression, *, to: pl.DataType) -> Expression:
    source, target = kind_of(x.dtype), kind_of(to)
    if target == "categorical":
        raise bad(
            f"cast to {to}",
            "makes a type whose codes depend on other rows",
            "Cast to pl.String, or to a pl.Enum of known values.",
        )
    if source == "null" and target in _CASTS:
        return Constant(None, to)
    if isinstance(x, Constant) and (found := fits(x, to)) is not None:
        return found
    if x.dtype == to:
        return x
    if source == "text" and target == "date":
        return apply("parse_time", x, to=pl.Date(), format="%Y-%m-%d")
    if source not in _CASTS.get(target, frozenset()):
        fix = "Give the format: `str.to_datetime('%Y-%m-%d %H:%M')`." if target in ("datetime", "time") else ""
        raise wrong_type(f"cast to {to}", x, fix=fix or "Go through pl.Float64, pl.Int64 or pl.String.")
    if isinstance(to, pl.Datetime) and zone_of(to) != zone_of(x.dtype) and source != "integer":
        raise bad(f"cast to {to}", "changes the time zone", "Use `dt.replace_time_zone` or `dt.convert_time_zone`.")
    if isinstance(x.dtype, pl.Datetime) and target == "date" and zone_of(x.dtype) not in (None, "UTC"):
        return apply("to_date", x)
    return make("cast", (x,), to, to=to)


@operation(
    "map_values",
    "Old values are converted exactly to the type of the column and occur once, so each value matches at most one.",
    spoken="replace",
    arity=2,
    samples=(
        {"old": Constant((1, 2), pl.List(pl.Int64())), "new": Constant((3, 4), pl.List(pl.Int64()))},
        {"old": Constant(("a", "b"), pl.List(TEXT)), "new": Constant((3, None), pl.List(pl.Int64()))},
    ),
)
def _map_values(x: Expression, default: Expression, *, old: Constant, new: Constant) -> Expression:
    if not (isinstance(old.dtype, pl.List) and isinstance(new.dtype, pl.List)):
        raise bad("replace", "needs lists of constants", "Write `.replace_strict([1, 2], ['a', 'b'], default=None)`.")
    if len(new.value) == 1 and len(old.value) > 1:
        new = Constant(new.value * len(old.value), new.dtype)
    if len(old.value) != len(new.value):
        raise bad("replace", "has a different number of old and new values", "Give one new value for each old one.")
    if len(old.value) > MOST_VALUES:
        raise too_many(len(old.value))
    if kind_of(x.dtype) in TEXTS:
        x = as_text(x, "replace")
    if kind_of(x.dtype) in ("list", "array", "struct", "null", "wide"):
        raise wrong_type("replace", x)
    inner = _inner_of(new)
    results = common_type([*(Constant(value, inner) for value in new.value), default], "replace")
    dtype = results[-1].dtype
    table: dict[Any, Any] = {}
    for old_value, result in zip(old.value, results, strict=False):
        given = Constant(old_value, old.dtype.inner)  # type: ignore[arg-type]
        if old_value is not None and not comparable(given, x.dtype):
            raise wrong_type("replace", x, given, fix="Write old values of the column's type.")
        found = None if old_value is None else fits(given, x.dtype)
        if old_value is not None and found is None:
            continue  # no value of the column is equal to it
        key = None if found is None else found.value
        value = result.value if isinstance(result, Constant) else None
        if key in table and table[key] != value:
            raise bad("replace", "gives one value two results", "Name each old value once.")
        table[key] = value
    of_null = Constant(table.pop(None), dtype) if None in table else None
    if not table:
        mapped: Expression = results[-1]
    else:
        mapped = make(
            "map_values",
            (x, results[-1]),
            dtype,
            old=Constant(tuple(table), pl.List(x.dtype)),
            new=Constant(tuple(table.values()), pl.List(dtype)),
        )
    if of_null is None:
        return mapped
    return make("case", (make("is_null", (x,), TRUTH), of_null, mapped), dtype)


def _inner_of(values: Constant) -> pl.DataType:
    return values.dtype.inner if isinstance(values.dtype, pl.List) else values.dtype  # type: ignore[return-value]
