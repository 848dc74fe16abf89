"""What one unit may contribute: how many groups, how many rows in each, and which rule says so."""

from __future__ import annotations

from dataclasses import dataclass

from dp_polars.accounting.terms import Terms
from dp_polars.errors import InvalidParameterError
from dp_polars.planning.query import Query


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The caps on one unit, where each came from, and whether it has to be enforced.

    `domain_size` is the number of public keys, None where keys are discovered. A cap is not enforced only where it
    can't bind.
    """

    max_groups: int
    max_groups_rule: str
    enforce_groups: bool
    max_rows: int
    max_rows_rule: str
    enforce_rows: bool
    domain_size: int | None


def bounds_of(query: Query, terms: Terms) -> Bounds:
    """Return the caps that hold for a query, or say which ways there are to give them."""
    size = 1 if not query.keys else None if query.domain is None else query.domain.height
    groups, groups_rule, enforce_groups = _groups(query, size)
    rows, rows_rule, enforce_rows = _rows(query)
    return Bounds(
        max_groups=groups,
        max_groups_rule=groups_rule,
        enforce_groups=enforce_groups,
        max_rows=rows,
        max_rows_rule=rows_rule,
        enforce_rows=enforce_rows,
        domain_size=size,
    )


def _groups(query: Query, size: int | None) -> tuple[int, str, bool]:
    if not query.unit:
        return 1, "every row is a unit", False
    if not query.keys:
        return 1, "no grouping keys", False
    if all(key.constant_per_unit for key in query.keys):
        return 1, "keys declared constant per unit (per_unit), enforced", True
    if size is not None and (query.max_groups is None or size <= query.max_groups):
        return max(size, 1), query.domain_rule, False
    if query.max_groups is not None:
        return query.max_groups, query.max_groups_rule, True
    names = ", ".join(key.name for key in query.keys)
    raise InvalidParameterError(
        f"How many groups of {names} may one unit count in? That decides the noise. Say max_groups=3 (here or in the "
        f"session), give the public keys (keys=[...], or an Enum or Boolean column), or declare the columns "
        "constant for each unit with per_unit=[...] in the session."
    )


def _rows(query: Query) -> tuple[int, str, bool]:
    if not query.unit:
        return 1, "every row is a unit", False
    if query.aggregate == "count_units":
        return 1, "units are counted once in a group", True
    if query.value is not None and query.value.per == "unit":
        return 1, "per='unit': each unit's total in a group is clipped once", False
    if query.max_rows is not None:
        return query.max_rows, query.max_rows_rule, True
    raise InvalidParameterError(
        f"How many rows may one unit add to a group of this {query.aggregate}? That decides the noise. Say "
        "max_rows_per_group=10 (here or in the session), count units instead of rows (count_units)"
        + (", or clip each unit's total with per='unit'." if query.aggregate == "sum" else ".")
    )
