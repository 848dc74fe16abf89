"""What a policy says about a table: the caps, bounds and keys of its questions, and which questions may be asked.

Rules belong to the source of private rows, and a question finds them by following its rows and columns back to their
sources. So a rule holds after any step, also for a table that is joined or grouped within its units. All of it is
public: rules come from the policy's text, never from rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import polars as pl

from dp_polars._engines.rows import Lookup, PrivateRows, Source, WithColumns
from dp_polars._engines.unit_steps import AddWindows, GroupRows, JoinRows, KeepFirst, LabelRows, UnitRows
from dp_polars._expressions.tree import Apply, Column, Expression, substituted
from dp_polars._frame.derived_bounds import derived_bounds
from dp_polars._plan.base import BasePlan
from dp_polars._plan.query import Cap
from dp_polars._session.filters import share_of
from dp_polars._session.session import Session
from dp_polars.errors import InvalidParameterError

FROM_POLICY = "of the policy"
"""How plans say that a cap, bounds or keys come from a policy."""


@dataclass(frozen=True, kw_only=True)
class TableRules:
    """The rules of one private table.

    Attributes
    ----------
    table
        The table's name in the policy.
    session
        The session that pays for every question to the table.
    caps
        The default contribution bounds: "max_groups", "max_rows_per_group" and "max_rows".
    bounds, keys
        The default bounds, which may be "auto", and the public keys of columns, by their names in the source.
    withheld
        The columns that may not be asked.
    questions
        The questions that may be asked, by their names in Python; None if all may be.
    smallest, largest
        The smallest and the largest share of the budget that one question may use.
    analyst
        Who asks, if it is an analyst, who may not vouch for unchecked steps; None for the owner.
    """

    table: str
    session: Session
    caps: Mapping[str, Cap] = field(default_factory=dict)
    bounds: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    questions: frozenset[str] | None = None
    smallest: Fraction | None = None
    largest: Fraction | None = None
    analyst: str | None = None

    def check(self, plan: BasePlan) -> None:
        """Refuse a question that the policy does not allow. It sees the plan alone, so a refusal tells nothing."""
        for kind in plan.questions():
            if self.questions is not None and kind not in self.questions:
                allowed = ", ".join(sorted(self.questions))
                asked = "profile (SUMMARIZE in SQL)" if kind == "profile" else kind
                raise InvalidParameterError(
                    f"The policy does not allow {asked} on {self.table}. It allows {allowed}. Nothing was charged.",
                    code="not-in-policy",
                )
        share = share_of(self.session.terms, plan.cost)
        slack = 1 + 1e-9  # shares are floats; what is charged is exact
        if self.largest is not None and share > float(self.largest) * slack:
            raise InvalidParameterError(
                f"This question would use {share:.4g} of the budget, and the policy allows one question at most "
                f"{float(self.largest):g}: say share={float(self.largest):g} or less. Nothing was charged.",
                code="not-in-policy",
            )
        if self.smallest is not None and share * slack < float(self.smallest):
            raise InvalidParameterError(
                f"This question would use {share:.4g} of the budget, and the policy wants at least "
                f"{float(self.smallest):g} for one, below which answers are mostly noise: say "
                f"share={float(self.smallest):g} or more. Nothing was charged.",
                code="not-in-policy",
            )


LARGEST = 1_000
"""Nodes of an expression over the columns of a source, up to which it is looked at. Steps can double it each time."""

Rules = tuple[tuple[Source, TableRules], ...]
"""The rules of the sources that private rows come from."""


def rules_of(rules: Rules, source: Source) -> TableRules | None:
    """Return the rules of a source."""
    return next((rule for ruled, rule in rules if ruled is source), None)


def ruled_column(rules: Rules, rows: PrivateRows, tree: Expression) -> tuple[TableRules, str] | None:
    """Return the column of a source that an expression stands for, with the source's rules; None for anything else.

    A category that was made text, as keys are, is still its column.
    """
    for step in reversed(rows.steps):
        if isinstance(step, WithColumns):
            tree = substituted(tree, dict(step.columns))
        elif isinstance(step, Lookup) and tree.columns & {name for _, name in step.columns}:
            return None
        if isinstance(tree, Apply) and tree.size > LARGEST:
            return None
    if isinstance(tree, Apply) and tree.operation == "cast" and tree.arguments[0].dtype == pl.Categorical:
        tree = tree.arguments[0] if tree.dtype == pl.String else tree
    if not isinstance(tree, Column):
        return None
    source = rows.source
    if not isinstance(source, UnitRows):
        found = rules_of(rules, source)
        return None if found is None else (found, tree.name)
    inner = _input_of(source, tree.name)
    return None if inner is None else ruled_column(rules, inner[0], Column(inner[1], inner[0].schema[inner[1]]))


def derived_from(
    rules: Rules, rows: PrivateRows, tree: Expression, known: dict[tuple[int, str], Any] | None = None
) -> Any:
    """Return the bounds of a calculation that follow from those of its columns in a policy; None if none do.

    What is `known` of columns below steps within a unit is found once: a column of each step may read several of the
    step before.
    """
    if not rules:
        return None
    known = {} if known is None else known
    for step in reversed(rows.steps):
        if isinstance(step, WithColumns):
            tree = substituted(tree, dict(step.columns))
        elif isinstance(step, Lookup) and tree.columns & {name for _, name in step.columns}:
            return None
        if isinstance(tree, Apply) and tree.size > LARGEST:
            return None

    def bounds_of(column: Column) -> Any:
        # The loop above has replaced columns that steps make, so this column belongs to the source.
        if isinstance(rows.source, UnitRows):
            place = id(rows), column.name
            if place not in known:
                inner = _input_of(rows.source, column.name)
                known[place] = (
                    None
                    if inner is None
                    else derived_from(rules, inner[0], Column(inner[1], inner[0].schema[inner[1]]), known)
                )
            return known[place]
        found = rules_of(rules, rows.source)
        return None if found is None else found.bounds.get(column.name)

    return derived_bounds(tree, bounds_of)


def _input_of(source: UnitRows, name: str) -> tuple[PrivateRows, str] | None:
    """Return the input of a unit-wise step whose column has the same values; None if the step made the column."""
    first = source.inputs[0]
    match source.step:
        case LabelRows() | KeepFirst() | AddWindows():
            return (first, name) if name in first.schema else None
        case GroupRows(keys=keys):
            return (first, name) if name in keys else None
        case JoinRows(columns=columns):
            theirs = {new: old for old, new in columns}
            if name in theirs:
                return source.inputs[1], theirs[name]
            return (first, name) if name in first.schema else None
    return None


def capping_rules(rules: Rules, rows: PrivateRows) -> TableRules | None:
    """Return the rules whose caps fit these rows: those of the only table they are taken from, row by row.

    A semi or anti join keeps some of these rows and no others.
    """
    source = rows.source
    while isinstance(source, UnitRows) and (
        isinstance(source.step, LabelRows | KeepFirst | AddWindows)
        or (isinstance(source.step, JoinRows) and source.step.how in ("semi", "anti"))
    ):
        source = source.inputs[0].source
    return None if isinstance(source, UnitRows) else rules_of(rules, source)
