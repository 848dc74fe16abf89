"""A normal form of private rows: equal for steps that give the same rows, whichever way they are written.

A stored release may be shown to everyone who asks for the same noisy numbers, so two questions must be told apart
whenever their rows could differ. The form therefore replaces each column by what it is computed from, down to the
columns of the source, and forgets only what cannot change a row:

- the names of columns, and steps that only rename, reorder or drop columns;
- the order of conditions, repeated conditions, and conditions that are always true. A condition `a and b` is the same
  as the two conditions `a` and `b`;
- whether a condition stands before or after a step that makes columns. Every step looks at one row, and none fails.

The form of the rows before a unit-wise step forgets the same, and columns that nothing depends on. After the step,
columns are new. The names and the order of columns are forgotten before groups and windows without an order; before
other steps they count.

All else is kept: every operation with its arguments and its types, constants to the last bit, and public rows by their
digest. Equal rows may still have different forms, as `x > 1` and `1 < x` do. Then the question counts as a new one.
Nothing here reads a private row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from dp_polars._engines.rows import Filter, Lookup, PrivateRows, WithColumns
from dp_polars._engines.unit_steps import UnitRows, input_forms, without_unread
from dp_polars._expressions.tree import Apply, Column, Constant, Expression, canonical, written_type


def normal_form(rows: PrivateRows, digest: Callable[[pl.DataFrame], str]) -> dict[str, Any]:
    """Return the normal form of rows, relative to their source. `digest` tells public frames apart.

    The form names each column of the result and says what it is computed from. Texts would grow with every step that
    uses a column twice, so they are replaced by their hashes.
    """
    return _form(without_unread(rows), digest)


def _form(rows: PrivateRows, digest: Callable[[pl.DataFrame], str]) -> dict[str, Any]:
    source: list[Any] = ["source"]
    names = {name: [name] for name in rows.source_schema}
    if isinstance(rows.source, UnitRows):
        described, names = input_forms(rows.source, lambda before: _form(before, digest))
        source += described
    columns = {name: _hash(*source, *names[name], written_type(dtype)) for name, dtype in rows.source_schema.items()}
    conditions: set[str] = set()
    copies: list[str] = []
    for step in rows.steps:
        match step:
            case Filter():
                conditions |= {_formed(part, columns) for condition in step.conditions for part in _parts(condition)}
            case WithColumns():
                made = {name: _formed(expression, columns) for name, expression in step.columns}
                columns = {**columns, **made} if step.keep else made
            case Lookup():
                looked_up = _lookup(step, columns, digest, len(copies))
                if not step.unique and step.how in ("inner", "left"):
                    copies.append(
                        looked_up
                    )  # a row may become several rows, so it matters how often rows are looked up
                elif step.how != "left":
                    conditions.add(_hash("matched", looked_up))
                place = {name: number for number, name in enumerate(step.public.columns)}
                columns |= {name: _hash("looked up", looked_up, place[public]) for public, name in step.columns}
    found: dict[str, Any] = {"columns": columns, "conditions": sorted(conditions), "copies": copies}
    # A result without columns of the source still depends on how many rows the step leaves.
    return found if len(source) == 1 else {**found, "source": _hash(*source)}


def _parts(condition: Expression) -> list[Expression]:
    """Return conditions that are all true exactly where a condition is true, without those that are always true."""
    if isinstance(condition, Apply) and condition.operation == "and":
        return [part for argument in condition.arguments for part in _parts(argument)]
    return [] if isinstance(condition, Constant) and condition.value is True else [condition]


def _formed(expression: Expression, columns: Mapping[str, str]) -> str:
    """Return the hash of an expression whose columns are replaced by what they are computed from."""
    if isinstance(expression, Column):
        return columns[expression.name]
    if isinstance(expression, Constant):
        return _hash("constant", canonical(expression))
    arguments = tuple(Column(_formed(argument, columns), argument.dtype) for argument in expression.arguments)
    return _hash("apply", canonical(replace(expression, arguments=arguments)))


def _lookup(step: Lookup, columns: Mapping[str, str], digest: Callable[[pl.DataFrame], str], number: int) -> str:
    """Return the hash of a lookup. The public columns count by their places, because queries may rename them."""
    place = {name: index for index, name in enumerate(step.public.columns)}
    public = digest(step.public.rename({name: f"column{index}" for name, index in place.items()}))
    on = [[columns[mine], place[theirs]] for mine, theirs in step.on]
    return _hash("lookup", public, on, step.how, step.unique, step.nulls_equal, None if step.unique else number)


def _hash(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
