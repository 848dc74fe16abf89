"""Write parts of a query or a plan in a form that is equal for equal parts, in every process."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from dp_polars._aggregates.base import Aggregate
from dp_polars._aggregates.values import Value
from dp_polars._expressions.tree import written_type
from dp_polars._plan.digest import public_digest


def canonical_order(aggregates: Sequence[Aggregate]) -> list[int]:
    """Return the places of aggregates in an order that does not depend on how they are listed or named.

    Statistics get their names and their shares in this order, so the order of a call changes nothing but the order
    of the answers. Aggregates with bounds come first: counts of the same values then find a lane to share. What they
    compute is compared before their bounds, because the order of the columns must not change when bounds are estimated.
    """
    if len(aggregates) == 1:
        return [0]
    texts = [
        (
            all(value.bounds is None for value in aggregate.values),
            aggregate.kind,
            [value.expression for value in aggregate.values],
            json.dumps(Writer(())(aggregate), sort_keys=True),
        )
        for aggregate in aggregates
    ]
    return sorted(range(len(texts)), key=texts.__getitem__)


class Writer:
    """Writes the parts of a plan for JSON. Different parts are written differently, to the last bit.

    A value is written as its place among the columns, whose meaning the rows say, so its name does not matter.
    `without` lists the parts of classes that are left out.
    """

    def __init__(self, columns: Sequence[Value], without: Mapping[type, frozenset[str]] | None = None) -> None:
        self._places = {value.expression: place for place, value in enumerate(columns)}
        self._without = without or {}

    def __call__(self, part: Any) -> Any:
        match part:
            case None | bool() | int() | str():
                return part
            case float():
                return ["float", part.hex()]
            case Fraction():
                return ["fraction", str(part)]
            case Enum():
                return ["enum", type(part).__name__, part.name]
            case pl.DataType():
                return ["type", written_type(part)]
            case pl.DataFrame():
                return ["frame", public_digest(part)]
            case np.ndarray():
                content = np.ascontiguousarray(part)
                return ["array", str(part.dtype), list(part.shape), hashlib.sha256(content.tobytes()).hexdigest()]
            case tuple() | list():
                return [self(item) for item in part]
            case dict():
                return ["table", sorted([[str(name), self(item)] for name, item in part.items()])]
            case Value():
                place = self._places.get(part.expression, part.expression)
                return ["value", place, self.parts(part, frozenset({"name", "expression"}))]
            case Aggregate():
                return ["aggregate", part.kind, self.parts(part, frozenset({"name"}))]
        if is_dataclass(part) and not isinstance(part, type):
            return [type(part).__name__, self.parts(part, self._without.get(type(part), frozenset()))]
        # Unknown parts can't be compared, so what they belong to is never found again.
        return ["unknown", secrets.token_hex(16)]

    def parts(self, part: Any, without: frozenset[str]) -> dict[str, Any]:
        """Return the fields of a dataclass, except those that do not matter."""
        return {field.name: self(getattr(part, field.name)) for field in fields(part) if field.name not in without}
