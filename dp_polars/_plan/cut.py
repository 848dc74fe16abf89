"""What caps and bounds cut off: measured with `cut=True`, told by an adopted profile, or unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_polars._aggregates.base import RowRule
from dp_polars._aggregates.cut import CUT_BY_BOUNDS, CUT_BY_CAP
from dp_polars._display.text import percent

if TYPE_CHECKING:
    from dp_polars._plan.plan import Plan

CUT = "cut off"
"""The name of the row in the table of a plan and of a release."""


def cut_text(plan: Plan) -> str | None:
    """Return in one line what caps and bounds cut off, or how to learn it; None if no cap and no bound can bind.

    It depends on the plan, which is public, and on the noisy counts of an adopted profile.
    """
    if plan.estimates:
        return None
    shown = [one for one in plan.compiled if not one.aggregate.hidden]
    measured = {one.aggregate.kind for one in plan.compiled if one.aggregate.hidden}
    rules = (RowRule.ONCE, RowRule.CLIP_TOTAL)
    caps = [one.cap.max_rows for one in shown if one.cap.enforce and one.aggregate.row_rule not in rules]
    values = {value.expression: value for one in shown for value in one.aggregate.values if value.bounds is not None}
    known, unknown = list[str](), list[str]()
    profile = plan.profile
    source = "profile" if profile is None or profile.reliable else "profile, not reliable"
    if plan.bounds.enforce_groups:
        share = None if profile is None else profile.share_beyond("max_groups", plan.bounds.max_groups)
        if share is None:
            unknown.append("max_groups")
        else:
            known.append(f"{percent(share)} of units are in more groups than {plan.bounds.max_groups:,} ({source})")
    if caps and CUT_BY_CAP in measured:
        known.append(f"{CUT_BY_CAP} counts the units with more than {max(caps):,} rows in a group")
    elif caps:
        share = None if profile is None else profile.share_beyond("max_rows_per_group", max(caps))
        if share is None:
            unknown.append("max_rows_per_group")
        else:
            text = f"{percent(share)} of units have more rows than {max(caps):,} in a group chosen at random"
            known.append(f"{text} ({source})")
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
        ways = (
            "adopt a profile (df.dp.profile)"
            if measured or unknown == ["max_groups"]
            else "say cut=True, or adopt a profile"
        )
        *others, last = unknown
        known.append(f"unknown for {', '.join(others)}{' and ' if others else ''}{last}: {ways}")
    return "; ".join(known) or None
