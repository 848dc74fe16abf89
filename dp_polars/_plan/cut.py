"""What caps and bounds cut off: measured with `cut=True`, known from an adopted profile, or unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_polars._aggregates.base import RowRule, Shape
from dp_polars._aggregates.cut import CUT_BY_BOUNDS, CUT_BY_CAP
from dp_polars._display.text import listed, percent
from dp_polars._plan.units_needed import is_in_sql, rows_cap_name

if TYPE_CHECKING:
    from dp_polars._plan.plan import Plan

CUT = "cut off"
"""The name of the row in the table of a plan and of a release."""
WEIGHTS = "weights"
"""The name of the row on what a cap does to a mean, in both tables."""

_MOST_NAMES = 3  # answers that the row on weights names


def cut_text(plan: Plan, *, ways: bool = True) -> str | None:
    """Return one line on what caps and bounds cut off, or how to learn it; None if no cap and no bound can bind.

    `ways` tells whether the line says how to learn what is unknown. The line depends on the plan, which is public, and
    on the noisy counts of an adopted profile.
    """
    if plan.estimates:
        return None
    shown = [compiled for compiled in plan.compiled if not compiled.aggregate.hidden]
    measured = {compiled.aggregate.kind for compiled in plan.compiled if compiled.aggregate.hidden}
    rules = (RowRule.ONCE, RowRule.CLIP_TOTAL)
    caps = [
        compiled.cap.max_rows
        for compiled in shown
        if compiled.cap.can_bind and compiled.aggregate.row_rule not in rules
    ]
    values = {
        value.expression: value
        for compiled in shown
        for value in compiled.aggregate.values
        if value.bounds is not None and compiled.aggregate.row_rule is not RowRule.CLIP_TOTAL
    }
    known, unknown = list[str](), list[str]()
    profile = plan.profile
    source = "profile" if profile is None or profile.reliable else "profile, not reliable"
    if plan.bounds.groups_can_bind:
        share = None if profile is None else profile.share_beyond("max_groups", plan.bounds.max_groups)
        if share is None:
            unknown.append("max_groups")
        else:
            known.append(f"{percent(share)} of units are in more groups than {plan.bounds.max_groups:,} ({source})")
    if caps and CUT_BY_CAP in measured:
        known.append(f"{CUT_BY_CAP} counts the units with more than {max(caps):,} rows in {_where(plan, 'a group')}")
    elif caps:
        name = rows_cap_name(plan)
        share = None if profile is None else profile.share_beyond(name, max(caps))
        if share is None:
            unknown.append(name)
        else:
            where = _where(plan, "a group chosen at random")
            known.append(f"{percent(share)} of units have more rows than {max(caps):,} in {where} ({source})")
    if values and CUT_BY_BOUNDS in measured:
        known.append(f"{CUT_BY_BOUNDS} counts the units with values outside the bounds")
    elif values:
        for value in values.values():
            share = None if profile is None else profile.share_outside(value.expression, value.lower, value.upper)
            if share is not None:
                known.append(f"{percent(share)} of the values of {value.name} lie outside the bounds ({source})")
            elif "bounds" not in unknown:
                unknown.append("bounds")
    if unknown:
        how = f": {_ways(plan, unknown, counted=bool(measured))}" if ways else ""
        known.append(f"unknown for {listed(unknown)}{how}")
    if any(compiled.aggregate.row_rule is RowRule.CLIP_TOTAL for compiled in shown):
        known.append("unknown for the bounds of each unit's total, which nothing counts")
    return "; ".join(known) or None


def _where(plan: Plan, group: str) -> str:
    return "all groups together" if plan.query.across else group


def _ways(plan: Plan, unknown: list[str], *, counted: bool) -> str:
    """Return how to learn what is cut off. `cut=True` counts only rows beyond a cap and values outside bounds."""
    in_sql = is_in_sql(plan)
    profile = "SUMMARIZE the table" if in_sql else "adopt a profile (df.dp.profile)"
    countable = {"max_rows_per_group": CUT_BY_CAP, "max_rows": CUT_BY_CAP, "bounds": CUT_BY_BOUNDS}
    found = [] if counted else [f"dp_{countable[name]}()" for name in unknown if name in countable]
    if not found:
        return profile
    count = f"select {' and '.join(found)}" if in_sql else "say cut=True"
    if "max_groups" in unknown:
        return f"{profile}, or {count}, which {'leave' if in_sql and len(found) > 1 else 'leaves'} out max_groups"
    return f"{count}, or {profile.removesuffix(' (df.dp.profile)')}"


def weights_text(plan: Plan) -> str | None:
    """Return one line that says that a cap lowers the weight of heavy units in a mean, or None if no cap can.

    A count or a sum loses what is beyond the cap. A mean loses nothing, but it moves as far as units with many rows
    differ from the others, and no interval shows that, because intervals are about the noise.
    """
    if plan.estimates:
        return None
    weighed = [
        compiled
        for compiled in plan.compiled
        if compiled.cap.can_bind and not compiled.aggregate.hidden and compiled.aggregate.shape is not Shape.LINEAR
    ]
    if not weighed:
        return None
    titles = list(dict.fromkeys(compiled.aggregate.title() for compiled in weighed))
    what = f"the {listed(titles)}" if len(titles) <= _MOST_NAMES else f"{len(titles)} answers"
    most = max(compiled.cap.max_rows for compiled in weighed)
    rows = f"{most:,} {'row' if most == 1 else 'rows'}"
    where = _where(plan, "a group")
    return (
        f"a unit with more than {rows} in {where} counts as {rows} in {what}; no interval shows how far this moves it"
    )
