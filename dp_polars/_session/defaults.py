"""What a session uses where a call says nothing: bounds and the planned number of queries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dp_polars._numbers import count_of
from dp_polars.errors import InvalidParameterError

Cap = int | Literal["auto"] | None


@dataclass(frozen=True)
class Defaults:
    """What a session uses where a call says nothing. Not part of the agreement."""

    per_unit: tuple[str, ...] = ()
    max_groups: Cap = None
    max_rows_per_group: Cap = None
    queries: int | None = None

    def to_json(self) -> str:
        """Return the defaults as text for the ledger."""
        return json.dumps(vars(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Defaults:
        """Return the defaults that `to_json` wrote."""
        plain = json.loads(text)
        return cls(**{**plain, "per_unit": tuple(plain["per_unit"])})


def read_defaults(
    *, per_unit: str | Sequence[str], max_groups: Cap, max_rows_per_group: Cap, queries: int | None
) -> Defaults:
    """Return the defaults that a user's words mean."""
    return Defaults(
        per_unit=_names(per_unit),
        max_groups=_cap(max_groups, "max_groups"),
        max_rows_per_group=_cap(max_rows_per_group, "max_rows_per_group"),
        queries=None if queries is None else count_of(queries, "queries"),
    )


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if not all(isinstance(name, str) and name for name in names):
        raise InvalidParameterError("per_unit= lists the names of columns that are constant for each unit.")
    return names


def _cap(cap: Cap, name: str) -> Cap:
    return cap if cap is None or cap == "auto" else count_of(cap, name)
