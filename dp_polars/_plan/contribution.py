"""What one unit may contribute: how many groups, how many rows in each, and which rule says so."""

from __future__ import annotations

from dataclasses import dataclass

from dp_polars._aggregates.base import Aggregate, RowRule
from dp_polars._plan.query import Query
from dp_polars.errors import InvalidParameterError


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The cap on the groups of one unit, where it came from, and whether it has to be enforced.

    `domain_size` is the number of public keys, None where keys are discovered. A cap is not enforced only where it
    can't bind.
    """

    max_groups: int
    max_groups_rule: str
    enforce_groups: bool
    domain_size: int | None


@dataclass(frozen=True, kw_only=True)
class RowCap:
    """The most rows that one unit adds to a group of an aggregate, which rule says so, and whether it is enforced."""

    max_rows: int
    rule: str
    enforce: bool

    @property
    def enforced(self) -> int | None:
        """The cap, None where it can't bind."""
        return self.max_rows if self.enforce else None


def bounds_of(query: Query) -> Bounds:
    """Return the cap on groups that holds for a query, or say which ways there are to give it."""
    size = 1 if not query.keys else None if query.domain is None else query.domain.height
    groups, rule, enforce = _groups(query, size)
    return Bounds(max_groups=groups, max_groups_rule=rule, enforce_groups=enforce, domain_size=size)


def _groups(query: Query, size: int | None) -> tuple[int, str, bool]:
    if not query.unit:
        return 1, "every row is a unit", False
    if not query.keys:
        return 1, "no grouping keys", False
    if all(key.constant_per_unit for key in query.keys):
        return 1, "keys declared constant per unit (per_unit), enforced", True
    given = query.max_groups
    if given == "auto":
        raise ValueError("max_groups is not estimated yet")
    if size is not None and (given is None or size <= given):
        return max(size, 1), query.domain_rule, False
    if given is not None:
        return given, query.max_groups_rule, True
    names = ", ".join(key.name for key in query.keys)
    raise InvalidParameterError(
        f"How many groups of {names} may one unit count in? That decides the noise. Say max_groups=3 (here or in the "
        f"session), or max_groups='auto' to have it estimated from a part of the spend, give the public keys "
        "(keys=[...], or an Enum or Boolean column), or declare the columns constant for each unit with per_unit=[...] "
        "in the session."
    )


def row_cap_of(query: Query, aggregate: Aggregate) -> RowCap:
    """Return the cap on rows that holds for an aggregate, or say which ways there are to give it."""
    if not query.unit:
        return RowCap(max_rows=1, rule="every row is a unit", enforce=False)
    if aggregate.row_rule is RowRule.ONCE:
        return RowCap(max_rows=1, rule="units are counted once in a group", enforce=True)
    if aggregate.row_rule is RowRule.CLIP_TOTAL:
        return RowCap(max_rows=1, rule="per='unit': each unit's total in a group is clipped once", enforce=False)
    if query.max_rows == "auto":
        raise ValueError("max_rows_per_group is not estimated yet")
    if query.max_rows is not None:
        return RowCap(max_rows=query.max_rows, rule=query.max_rows_rule, enforce=True)
    raise InvalidParameterError(
        f"How many rows may one unit add to a group of this {aggregate.kind}? That decides the noise. Say "
        "max_rows_per_group=10 (here or in the session), or max_rows_per_group='auto' to have it estimated from a part "
        "of the spend, count units instead of rows (count_units; of a choice score='units')"
        + (", or clip each unit's total with per='unit'." if aggregate.kind == "sum" else ".")
    )


def needs_row_cap(query: Query) -> bool:
    """Whether an aggregate of a query needs a cap on rows."""
    return bool(query.unit) and any(one.row_rule not in (RowRule.ONCE, RowRule.CLIP_TOTAL) for one in query.aggregates)


def needs_group_cap(query: Query) -> bool:
    """Whether a query needs a cap on groups: where keys alone don't bound them."""
    return bool(query.unit and query.keys) and not all(key.constant_per_unit for key in query.keys)
