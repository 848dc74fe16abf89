"""What tells one draw of noise from another, apart from the rows.

Noisy numbers are drawn once and can be presented in many ways: with or without intervals, with negative numbers or
without, under other names, in another order, as a variance or as a standard deviation. All of these are free. So noisy
numbers are stored by what was drawn: what the engine computed, the noise on each statistic, and the rule that shows
groups. Everything that could change one of these is part of the fingerprint. A field that is added to a query or a plan
becomes part of it as well, unless it is listed here as presentation. The worst that a forgotten entry can do is to
charge for a question that could be free; it can never answer another question.

If caps or bounds are estimated first, the noise is not known in advance. The fingerprint then has the estimates, what
is left of the spend, and everything else that decides the rest of the plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dp_polars._expressions.tree import written_type
from dp_polars._plan.canonical import Writer, canonical_order
from dp_polars._plan.discovery import Discovery
from dp_polars._plan.plan import Plan
from dp_polars._plan.query import SQL_STEP, UNIT_STEP, Query, Spend
from dp_polars._plan.spend import Noise
from dp_polars._plan.statistics import Statistic
from dp_polars._session.terms import Terms

_FORM = 2
"""The number of this form. Raise it whenever the columns of noisy numbers change: then all questions are new."""

_PRESENTATION = frozenset({"interval", "nonnegative", "unfolded"})
"""The parts of a query that only say how its answers are shown."""

_ELSEWHERE = frozenset(
    {
        "aggregates", "unit", "keys", "domain", "domain_rule", "max_groups", "max_groups_rule", "max_rows",
        "max_rows_rule", "across", "min_units", "spend", "steps", "unchecked", "integer_unit", "groups_from_steps",
        "rows_from_steps", "within_units",
    }
)  # fmt: skip
"""The parts of a query that matter only for the rows, the lanes and the noise, which the fingerprint has."""

_NOT_NOISE = frozenset(
    {
        "query", "terms", "cost", "bounds", "compiled", "columns", "unit_delta", "estimates", "estimated", "main",
        "if_rows", "errors_if_rows", "given_label", "spent", "profile", "too_small",
    }
)  # fmt: skip
"""The parts of a plan without estimates that are not noise, or that stand elsewhere in the fingerprint."""

_NOT_DRAWN: dict[type, frozenset[str]] = {
    # Whoever asked first paid for the noise. The prices of equal noise can differ by a rounding, as those of a share
    # and an epsilon do.
    Noise: frozenset({"cost"}),
    Discovery: frozenset({"delta"}),
    Statistic: frozenset({"weight", "what"}),
}
"""The fields of noise, discoveries and statistics that do not change what is drawn."""


def draw_fingerprint(plan: Plan, rows: Mapping[str, Any]) -> bytes:
    """Return bytes that are equal for plans that draw the same noise on the same numbers, in every process.

    `rows` is the normal form of the rows that the engine reads.
    """
    written = Writer(plan.columns, _NOT_DRAWN)
    drawn = _estimates(plan, written) if plan.estimates else _noise(plan, written)
    return joined_fingerprint(plan.query, plan.terms, rows, written, {**drawn, "hashed": plan.unit_delta > 0})


def joined_fingerprint(
    query: Query, terms: Terms, rows: Mapping[str, Any], written: Writer, drawn: Mapping[str, Any]
) -> bytes:
    """Return a fingerprint of what is drawn by any kind of plan, of its query and of the rows that it reads.

    `drawn` has everything that the parts of the query in `_ELSEWHERE` decide.
    """
    whole = {
        "form": _FORM,
        "rows": rows,
        "terms": [terms.to_json(), terms.unit_note],
        "steps": _steps(query),
        "units": len(query.unit),
        "keys": [written_type(key.dtype) for key in query.keys],
        "domain": written(query.engine_domain()),
        "query": written.parts(query, _PRESENTATION | _ELSEWHERE),
        "drawn": drawn,
    }
    return json.dumps(whole, sort_keys=True).encode()


def _noise(plan: Plan, written: Writer) -> dict[str, Any]:
    """Return what a plan without estimates asks the engine for, and the noise that it adds."""
    query = plan.query
    found: dict[str, Any] = {
        "max_groups": [plan.bounds.max_groups, plan.bounds.enforce_groups],
        "drawn": written.parts(plan, _NOT_NOISE),
        "min_units": None if plan.discovery is None else query.min_units,
    }
    if query.rollup:  # which totals are rounded follows from the aggregates that show them
        found["totals"] = [[compiled.aggregate.kind, written(compiled.statistics)] for compiled in plan.compiled]
    return found


def _estimates(plan: Plan, written: Writer) -> dict[str, Any]:
    """Return what is estimated first, and all that the noise follows from once this is known."""
    query = plan.query
    ordered = [query.aggregates[place] for place in canonical_order(query.aggregates)]
    return {
        "drawn": written.parts(plan, _NOT_NOISE - {"estimates", "main", "cost"}),
        "aggregates": written(ordered),
        "max_groups": query.max_groups,
        "max_rows": query.max_rows,
        **({"across": True} if query.across else {}),  # as ledgers had it before this option
        "constant_keys": [key.constant_per_unit for key in query.keys],
        "min_units": query.min_units,
        "integer_unit": query.integer_unit,
        "spend": written(_without_amount(query.spend)),
    }


def _without_amount(spend: Spend) -> dict[str, Any]:
    """Return a spend without its amount, which `Plan.main` says in the measure that was chosen."""
    amounts = {"epsilon", "share", "rho", "within", "confidence"}
    return {field.name: getattr(spend, field.name) for field in fields(spend) if field.name not in amounts}


def _steps(query: Query) -> list[str]:
    """Return the steps that the rows do not show: a table's own unit, and steps that nobody checked.

    An unchecked step is a new source of rows without a description. Its random name keeps it apart from all others.
    """
    kinds = [(json.loads(step)[0] if step.startswith("[") else None, step) for step in query.steps]
    return [step for kind, step in kinds if kind == UNIT_STEP or (query.unchecked and kind != SQL_STEP)]
