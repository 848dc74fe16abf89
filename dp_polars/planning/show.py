"""How a plan reads in a terminal: from who is protected to what will be left."""

from __future__ import annotations

import json
import math

from dp_polars.accounting.filters import share_of
from dp_polars.planning.plan import Part, Plan


def plan_text(plan: Plan) -> str:
    """Return the plan as an aligned table."""
    rows = list(_rows(plan))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def _rows(plan: Plan) -> list[tuple[str, str]]:
    query, terms, bounds = plan.query, plan.terms, plan.bounds
    unit = ", ".join(query.unit) or "every row"
    together = f", {terms.group_size} at a time" if terms.group_size > 1 else ""
    change = {"add_remove": "added or removed", "replace": "replaced"}[terms.adjacency]
    kinds = [json.loads(step)[0] for step in query.steps if step.startswith("[")]
    steps = f" (after {', '.join(kinds)})" if kinds else ""
    rows = [
        ("query", query.title() + steps),
        ("protects", f"{unit}, {change}{together}"),
        ("groups per unit", f"{bounds.max_groups} ({bounds.max_groups_rule})"),
        ("rows per unit and group", f"{bounds.max_rows} ({bounds.max_rows_rule})"),
    ]
    if query.value is not None:
        per = "unit's total" if query.value.per == "unit" else "row"
        rows.append(("value bounds", f"{float(query.value.lower):g} to {float(query.value.upper):g}, each {per}"))
    for part in plan.parts:
        rows += _part_rows(part, plan)
    if plan.discovery is not None:
        found = plan.discovery
        how = (
            f"noisy count of at least {found.threshold}"
            if found.rule is None
            else f"{found.rule.strategy} rule on units, even chance at {found.rule.even_chance:g}"
        )
        rows.append(("keys", f"discovered: {how} (delta {float(found.delta):.3g})"))
    elif query.keys:
        rows.append(("keys", f"{bounds.domain_size} public ({query.domain_rule})"))
    if plan.unit_delta:
        rows.append(("units", f"told apart by a hash of 128 bits (delta {float(plan.unit_delta):.3g})"))
    rows.append(("price", f"{plan.cost} ({share_of(terms, plan.cost):.2%} of the session)"))
    error = plan.expected_error()
    if error is not None:
        rows.append(
            (
                "expected error",
                f"within {error:.6g} for 95 % of answers (privacy noise, not what caps and bounds cut off)",
            )
        )
    if query.unchecked:
        rows.append(("unchecked", "a step was not checked; the guarantee rests on the user's word"))
    return rows


def _part_rows(part: Part, plan: Plan) -> list[tuple[str, str]]:
    name = {"rows": "count", "units": "units", "total": "sum"}[part.column]
    step = float(part.grid.step)
    sensitivity = part.sensitivity
    scale = float(part.noise.parameter) * step
    scale = scale if part.noise.mechanism == "laplace" else math.sqrt(part.noise.parameter) * step
    symbol = "scale" if part.noise.mechanism == "laplace" else "sigma"
    return [
        (
            f"sensitivity of {name}",
            f"L1 {sensitivity.l1 * step:.6g}, L2 {math.sqrt(sensitivity.l2_squared) * step:.6g}, "
            f"each {sensitivity.each * step:.6g}",
        ),
        (f"noise on {name}", f"discrete {part.noise.mechanism.capitalize()}, {symbol} {scale:.6g}"),
    ]
