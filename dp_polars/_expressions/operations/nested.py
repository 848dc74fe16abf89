"""Lists, arrays and structs."""

from __future__ import annotations

import polars as pl

from dp_polars._expressions.constants import fits
from dp_polars._expressions.operations.base import (
    CUT,
    INT,
    TEXT,
    TRUTH,
    bad,
    check_integer,
    check_text,
    comparable,
    make,
    operation,
    wrong_type,
)
from dp_polars._expressions.operations.logic import always
from dp_polars._expressions.tree import Constant, Expression
from dp_polars._expressions.types import MOST_INSERTED, kind_of


def _list(x: Expression, spoken: str) -> Expression:
    if kind_of(x.dtype) not in ("list", "array"):
        raise wrong_type(spoken, x, fix="It accepts lists.")
    return x


def _inner(x: Expression) -> pl.DataType:
    return x.dtype.inner  # type: ignore[attr-defined,no-any-return]


@operation("list_len", "Every list has a length, and null stays null.", spoken="list.len")
def _list_len(x: Expression) -> Expression:
    return make("list_len", (_list(x, "list.len"),), INT)


@operation(
    "list_get",
    "It returns null if the list has no element at the public place.",
    spoken="list.get",
    samples=({"index": 0}, {"index": -1}, {"index": 5}),
)
def _list_get(x: Expression, *, index: int) -> Expression:
    check_integer(index, -(1 << 31), 1 << 31, "list.get", "an index")
    items = _list(x, "list.get")
    if kind_of(_inner(items)) in ("other", "categorical"):
        raise wrong_type("list.get", x)
    return make("list_get", (items,), _inner(items), index=index)


@operation(
    "list_contains",
    "Every list either contains the public value or does not, and null stays null.",
    spoken="list.contains",
    samples=({"value": Constant(1, pl.Int64())}, {"value": Constant("a", TEXT)}),
)
def _list_contains(x: Expression, *, value: Constant) -> Expression:
    items = _list(x, "list.contains")
    inner = _inner(items)
    if kind_of(inner) in ("list", "array", "struct", "other", "categorical", "null") or value.value is None:
        raise wrong_type("list.contains", x, value)
    if not comparable(value, inner):
        raise wrong_type("list.contains", x, value)
    found = fits(value, inner)
    if found is None:
        return always(items, {}, "eq")
    return make("list_contains", (items,), TRUTH, value=found)


def _list_number(name: str) -> None:
    def build(x: Expression) -> Expression:
        items = _list(x, f"list.{name[5:]}")
        if not _inner(items).is_integer() or _inner(items) in (pl.Int128(), pl.UInt128(), pl.UInt64()):
            raise wrong_type(f"list.{name[5:]}", x, fix="It accepts lists of integers of up to 64 bits.")
        return make(name, (items,), INT)

    reason = "Integers are summed in 128 bits, and a result that does not fit into 64 bits is null."
    operation(name, reason, spoken=f"list.{name[5:]}")(build)


for _name in ("list_min", "list_max", "list_sum"):
    _list_number(_name)


@operation(
    "list_join",
    f"{CUT} The separator is public.",
    spoken="list.join",
    samples=({"separator": ", "},),
)
def _list_join(x: Expression, *, separator: str, ignore_nulls: bool = True) -> Expression:
    items = _list(x, "list.join")
    if _inner(items) != TEXT or items.dtype.base_type() != pl.List:
        raise wrong_type("list.join", x, fix="It accepts lists of texts.")
    check_text(separator, "list.join", "a separator", MOST_INSERTED)
    return make("list_join", (items,), TEXT, separator=separator, ignore_nulls=bool(ignore_nulls))


@operation(
    "struct_field", "The type of the struct says which fields it has.", spoken="struct.field", samples=({"name": "a"},)
)
def _struct_field(x: Expression, *, name: str) -> Expression:
    if not isinstance(x.dtype, pl.Struct):
        raise wrong_type("struct.field", x, fix="It accepts structs.")
    field = next((candidate for candidate in x.dtype.fields if candidate.name == name), None)
    if field is None:
        known = ", ".join(candidate.name for candidate in x.dtype.fields)
        raise bad("struct.field", f"names no field of the struct ({known})", "Use one of these.")
    dtype: pl.DataType = field.dtype  # type: ignore[assignment]
    if kind_of(dtype) in ("other", "categorical"):
        raise wrong_type("struct.field", x)
    return make("struct_field", (x,), dtype, name=name)
