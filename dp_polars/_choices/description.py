"""How the plan of a choice reads."""

from __future__ import annotations

from dp_polars._choices.plan import regret
from dp_polars._plan.description import bounds_texts, hashed_text, price_text, protected_text, steps_text
from dp_polars._plan.plan import Plan


def selection_rows(plan: Plan) -> list[tuple[str, str]]:
    """Return what the plan of a choice does, from the unit to the choice and its price."""
    query, selection, choosing = plan.query, plan.query.selection, plan.choosing
    if selection is None or choosing is None:
        raise ValueError("a plan without a choice")
    part, made = plan.parts[0], plan.made[0]
    rows = [
        ("query", query.title() + steps_text(query.steps)),
        ("protects", protected_text(plan.terms, query.unit)),
    ]
    if len(query.keys) > 1:
        rows.append(("groups per unit", f"{plan.bounds.max_groups} ({plan.bounds.max_groups_rule})"))
    what = "group" if selection.kind == "select_best" else "candidate"
    rows.append((f"rows per unit and {what}", f"{made.cap.max_rows} ({made.cap.rule})"))
    rows += [("value bounds", text) for text in bounds_texts(made, plan)]
    rows.append(("a unit moves a score by", f"{choosing.moves * float(part.grid.step):.6g} at most"))
    how = "permute-and-flip" if choosing.flips else "exponential mechanism, by its bounded range"
    each = "each choice" if selection.k * plan.bounds.max_groups > 1 else "the choice"
    rows.append(("choice", f"{how}, epsilon {float(part.epsilon):.6g} for {each}"))
    if selection.candidates is not None:
        rows.append(("candidates", f"{selection.candidates.height} public ({selection.candidates_rule})"))
    if choosing.limited is not None:
        limit, gap = choosing.limited, choosing.limited.gap * float(part.grid.step)
        within = " of its group" if len(query.keys) > 1 else ""
        rows.append(
            (
                "candidates" if selection.candidates is None else "groups",
                f"discovered: shown if a score is above about {gap:.6g}, plus the one of rank {limit.most + 1}{within} "
                f"if there are so many (delta {float(limit.delta):.3g})",
            )
        )
    if selection.groups is not None and query.keys[:-1]:
        rows.append(("keys", f"{selection.groups.height} public groups"))
    if plan.unit_delta:
        rows.append(("units", hashed_text(plan.unit_delta)))
    rows.append(("price", price_text(plan.terms, plan.cost)))
    off = regret(plan)
    if off is not None:
        what = query.aggregates[0].title() if selection.kind != "select_best" else "the score"
        rows.append(("expected regret", f"95 % of choices are within {off:.6g} of the best ({what})"))
    if query.unchecked:
        rows.append(("unchecked", "a step was not checked; the guarantee rests on the user's word"))
    return rows
