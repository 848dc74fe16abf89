"""The caps on what one unit contributes: how many groups, how many rows in each or in all, and why."""

from __future__ import annotations

from dataclasses import dataclass

from dp_polars._aggregates.base import Aggregate, RowRule
from dp_polars._plan.query import Query
from dp_polars.errors import InvalidParameterError


@dataclass(frozen=True, kw_only=True)
class ContributionBounds:
    """The cap on the groups of one unit, the reason for it, and whether it has to be enforced.

    A cap that public keys keep from binding is not enforced. `domain_size` is the number of public keys, or None if
    keys are discovered. `cuts_nothing` tells that a cap is enforced although no unit can be in more groups.
    """

    max_groups: int
    max_groups_rule: str
    enforce_groups: bool
    domain_size: int | None
    cuts_nothing: bool = False

    @property
    def groups_can_bind(self) -> bool:
        """Whether a unit can be in more groups than the cap allows."""
        return self.enforce_groups and not self.cuts_nothing


@dataclass(frozen=True, kw_only=True)
class RowCap:
    """The cap on the rows that one unit adds to a group, the reason for it, and whether it has to be enforced.

    `cuts_nothing` tells that it is enforced although no unit can have more rows in a group.
    """

    max_rows: int
    rule: str
    enforce: bool
    cuts_nothing: bool = False
    across: bool = False
    """Whether the rows in all groups count together."""

    @property
    def enforced(self) -> int | None:
        """The cap, or None if it is not enforced."""
        return self.max_rows if self.enforce else None

    @property
    def can_bind(self) -> bool:
        """Whether a unit can have more rows in a group than the cap allows."""
        return self.enforce and not self.cuts_nothing


ONCE = RowCap(max_rows=1, rule="units are counted once in a group", enforce=True)
"""The cap that applies where units are counted."""


def contribution_bounds(query: Query) -> ContributionBounds:
    """Return the cap on the groups of one unit, or raise an error that lists the ways to set it."""
    size = 1 if not query.keys else None if query.domain is None else query.domain.height
    groups, rule, enforce = _groups(query, size)
    constant = bool(query.keys) and all(key.function_of_unit for key in query.keys)
    return ContributionBounds(
        max_groups=groups,
        max_groups_rule=rule,
        enforce_groups=enforce,
        domain_size=size,
        cuts_nothing=query.groups_from_steps or constant,
    )


def _groups(query: Query, size: int | None) -> tuple[int, str, bool]:
    if not query.unit:
        return 1, "every row is a unit", False
    if not query.keys:
        return 1, "no grouping keys", False
    if all(key.constant_per_unit for key in query.keys):
        return 1, "the keys are constant for each unit (per_unit, or functions of the unit), enforced", True
    given = query.max_groups
    if query.across and size is not None and not (isinstance(given, int) and given < size):
        return max(size, 1), "all of them: one cap on the rows in all groups together", False
    if given == "auto":
        raise ValueError("max_groups is not estimated yet")
    if size is not None and (given is None or size <= given):
        return max(size, 1), query.domain_rule, False
    if given is not None:
        return given, query.max_groups_rule, True
    names = ", ".join(key.name for key in query.keys)
    if query.across:
        raise InvalidParameterError(
            f"max_rows caps the rows of a unit in all groups together, but which values of {names} exist is private, "
            "and a unit could be alone in any number of groups. So a cap on groups is needed as well: max_groups=3 "
            "(here or in the session). Or give the public keys (keys=[...], or an Enum or Boolean column).",
            code="group-cap-missing",
        )
    raise InvalidParameterError(
        f"Grouping by {names} needs a cap on the groups that one unit counts in, because the noise depends on it. Say "
        "max_groups=3 (here or in the session), or max_groups='auto' to estimate it with a part of the spend. You can "
        "also give the public keys (keys=[...], or an Enum or Boolean column), or declare that the columns are "
        "constant for each unit with per_unit=[...] in the session.",
        code="group-cap-missing",
    )


def row_cap_of(query: Query, aggregate: Aggregate) -> RowCap:
    """Return the cap on the rows of one unit in a group, or raise an error that lists the ways to set it."""
    if not query.unit:
        return RowCap(max_rows=1, rule="every row is a unit", enforce=False)
    if aggregate.row_rule is RowRule.ONCE:
        return ONCE
    if aggregate.row_rule is RowRule.CLIP_TOTAL:
        return RowCap(max_rows=1, rule="per='unit': each unit's total in a group is clipped once", enforce=False)
    if query.max_rows == "auto":
        raise ValueError("max_rows_per_group is not estimated yet")
    if query.max_rows is not None:
        return RowCap(
            max_rows=query.max_rows,
            rule=query.max_rows_rule,
            enforce=True,
            cuts_nothing=query.rows_from_steps,
            across=query.across,
        )
    raise InvalidParameterError(
        f"This {aggregate.kind} needs a cap on the rows that one unit adds to a group, because the noise depends on "
        "it. Say max_rows_per_group=10 (here or in the session), or max_rows_per_group='auto' to estimate it with a "
        "part of the spend. Except in a choice, max_rows=20 caps its rows in all groups together instead. You can also "
        "count units instead of rows (count_units, or score='units' for a choice)"
        + (", or clip each unit's total with per='unit'." if "per" in aggregate.options else "."),
        code="row-cap-missing",
    )


def may_cap_across(query: Query) -> bool:
    """Tell whether one cap on the rows of a unit in all groups can take the place of the caps on groups and on rows.

    It bounds what depends on rows: counts of units and totals of units need a cap on groups, and so do keys that are
    discovered. It is no use if a unit has one group anyway.
    """
    public = needs_group_cap(query) and query.domain is not None
    return public and not any(aggregate.hidden or counts_in_groups(aggregate) for aggregate in query.aggregates)


def counts_in_groups(aggregate: Aggregate) -> bool:
    """Tell whether a unit has a count or a clipped total in each of its groups, which no cap on rows bounds."""
    return aggregate.row_rule in (RowRule.ONCE, RowRule.CLIP_TOTAL)


def needs_row_cap(query: Query) -> bool:
    """Tell whether any aggregate of a query needs a cap on rows."""
    return bool(query.unit) and any(
        aggregate.row_rule not in (RowRule.ONCE, RowRule.CLIP_TOTAL) for aggregate in query.aggregates
    )


def needs_group_cap(query: Query) -> bool:
    """Tell whether a query needs a cap on groups, because its keys are not constant for each unit."""
    return bool(query.unit and query.keys) and not all(key.constant_per_unit for key in query.keys)
