"""How many units a discovered group needs to appear, in words. Plans, releases, warnings and the command line use this.

Everything here follows from the plan, which is public.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from dp_polars._plan.query import SQL_STEP

if TYPE_CHECKING:
    from dp_polars._plan.plan import Plan


def keys_text(plan: Plan) -> str:
    """Return what decides which discovered groups are shown."""
    found = plan.discovery
    if found is None:
        return "discovered"
    share = f", {float(found.way.share):.0%} of the spend" if found.way.share else ""
    delta = f"(delta {float(found.delta):.3g})"
    if found.rule is not None:
        return f"discovered: {found.rule.strategy} rule on units{share} {delta}"
    statistic = plan.measurement(found.counted or "").statistic
    least = math.ceil((found.threshold or 0) / statistic.whole)
    what = "units" if statistic.what == "units" else "rows"
    hidden = "" if is_released(plan, statistic.name) else "unreleased "
    return f"discovered: {hidden}noisy count of at least {least:,} {what}{share} {delta}"


def is_released(plan: Plan, name: str) -> bool:
    """Tell whether an answer is computed from a statistic. If not, the statistic only decides which groups appear."""
    return any(name in compiled.statistics.values() for compiled in plan.compiled)


def needed_rows(plan: Plan) -> list[tuple[str, str]]:
    """Return the rows of a table on how many units a discovered group needs, or none if keys are public.

    If caps are to be estimated, there is one row for each of a few values of the cap on groups.
    """
    if not plan.query.keys or plan.query.domain is not None:
        return []
    if plan.units_needed is None:
        found = _rows_by_caps(plan)
    else:
        found = [("units needed", f"{plan.units_needed:,}{_each(plan)} {_EVEN}")]
    return [*found, (SMALLER, f"appear with {_better(plan)}")]


SMALLER = "smaller groups"
"""The name of the row that says what would let smaller groups appear."""

_EVEN = "for a group to appear half the time"


def _rows_by_caps(plan: Plan) -> list[tuple[str, str]]:
    unknown, table = {estimate.what for estimate in plan.estimates}, plan.units_needed_by_caps()
    found: list[tuple[str, str]] = []
    for groups in dict.fromkeys(entry[0] for entry in table):
        entries = [(cap, units) for other, cap, units in table if other == groups]
        name = next((name for name in ("max_rows", "max_rows_per_group") if name in unknown), None)
        if name is not None:
            text = ", ".join(f"{units:,} if {name} is {cap:,}" for cap, units in entries)
        else:
            text = f"{entries[0][1]:,} {_EVEN}"
        found.append((f"units needed if max_groups is {groups}" if "max_groups" in unknown else "units needed", text))
    return found


def _each(plan: Plan) -> str:
    """Return what is assumed about the rows of each unit, if it matters."""
    return " with one row each (fewer with more rows)" if _max_rows(plan) > 1 else ""


def _max_rows(plan: Plan) -> int:
    """Return the cap on rows if a count of rows decides which groups are shown, and 1 if units are counted."""
    found = plan.discovery
    if found is not None:
        return 1 if found.counted is None else plan.measurement(found.counted).statistic.max_rows
    return max((compiled.cap.max_rows for compiled in plan.compiled), default=1)


def rows_cap_name(plan: Plan) -> str:
    """Return the name of the option that caps the rows of a unit."""
    said = any(compiled.cap.rule.startswith("max_rows ") for compiled in plan.compiled)  # without keys, both are one
    return "max_rows" if plan.query.across or said else "max_rows_per_group"


def is_in_sql(plan: Plan) -> bool:
    """Tell whether a question was asked in SQL, where options are written in another way."""
    return any(json.loads(step)[0] == SQL_STEP for step in plan.query.steps if step.startswith("["))


def _better(plan: Plan) -> str:
    """Return what would let smaller groups appear."""
    caps = ["max_groups"] if plan.bounds.max_groups > 1 or plan.estimates else []
    caps += [rows_cap_name(plan)] if _max_rows(plan) > 1 else []
    caps += ["min_units"] if plan.query.min_units > 1 else []
    ways = ["a larger spend or delta", *([f"a smaller {' or '.join(caps)}"] if caps else [])]
    keys = "keys := [...] in the private aggregate" if is_in_sql(plan) else "keys="
    return f"{', '.join(ways)}, or public keys ({keys})"


def nothing_shown_text(plan: Plan, label: str) -> str:
    """Return what to say if no discovered group is shown. It follows from the plan, never from exact numbers.

    `label` is the label of the release.
    """
    units = plan.units_needed
    needed = "" if units is None else f" A group needs {units:,} units{_each(plan)} to appear half the time."
    return f"No group is shown: {label}. The charge stays.{needed} Smaller groups appear with {_better(plan)}."
