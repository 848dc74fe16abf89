"""Queries: what was asked, in the form that every front end builds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import polars as pl

from dp_polars._aggregates.base import Aggregate
from dp_polars._plan.digest import public_digest

UNIT_STEP = "unit"
"""The kind of the step that records how the unit of a table was declared."""

SQL_STEP = "sql"
"""The kind of the step that describes the rows of a SQL query."""

MechanismChoice = Literal["laplace", "gaussian"]
Cap = int | Literal["auto"]

_DERIVED = ("groups_from_steps", "rows_from_steps", "within_units")


@dataclass(frozen=True, kw_only=True)
class Key:
    """A grouping key: its name in the result, its expression as canonical text, and its type.

    `constant_per_unit` tells whether all rows of a unit have the same value, by a declaration or because the key is a
    `function_of_unit`. `nullable` tells whether a row can have no value, as far as the steps before it say.
    """

    name: str
    expression: str
    dtype: pl.DataType
    constant_per_unit: bool
    nullable: bool = True
    function_of_unit: bool = False


@dataclass(frozen=True, kw_only=True)
class Spend:
    """What a release may cost, as the user said it. At most one of epsilon, share, rho and within is set."""

    epsilon: Fraction | None = None
    share: Fraction | None = None
    rho: Fraction | None = None
    within: Fraction | None = None
    confidence: float = 0.95
    delta: Fraction | None = None
    mechanism: MechanismChoice | None = None


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query over private rows.

    Attributes
    ----------
    aggregates
        The aggregates to compute.
    unit
        The unit columns, or an empty tuple if every row is a unit.
    keys
        The grouping keys.
    domain
        The public keys in the order of the result, with the names of `keys`, or None if keys are discovered.
    domain_rule
        Where the public keys came from, in words.
    max_groups, max_rows
        The caps given in the call or by the session, or "auto" if they are to be estimated. `max_groups_rule` and
        `max_rows_rule` say where they came from.
    groups_from_steps, rows_from_steps
        Whether steps within a unit leave no more groups or rows than the cap allows, so that it cuts nothing off. It is
        enforced all the same.
    across
        Whether `max_rows` caps the rows of a unit in all groups together. Then a cap on groups also applies only if
        `max_groups` is a number.
    min_units
        If keys are discovered, groups with fewer units are suppressed.
    interval
        The confidence of the interval columns, or None if none are wanted.
    nonnegative
        Whether answers below 0 are shown as 0.
    spend
        What the release may cost.
    steps
        The transformations before the aggregation, as canonical text.
    unchecked
        Whether the user vouched for a step that was not checked.
    integer_unit
        Whether the unit is a single column that is stored as integers. Integers are compared exactly at no cost.
    rollup
        Whether totals over the last keys are released too.
    unfolded
        Whether an answer of several numbers gets columns and rows of its own. Otherwise it is one list or struct.
    within_units
        What the plan says about the steps within a unit, and why they are safe.
    """

    aggregates: tuple[Aggregate, ...]
    unit: tuple[str, ...]
    keys: tuple[Key, ...]
    domain: pl.DataFrame | None
    domain_rule: str
    max_groups: Cap | None
    max_groups_rule: str
    max_rows: Cap | None
    max_rows_rule: str
    min_units: int
    interval: float | None
    nonnegative: bool
    spend: Spend
    steps: tuple[str, ...]
    unchecked: bool = False
    integer_unit: bool = True
    rollup: bool = False
    across: bool = False
    unfolded: bool = True
    groups_from_steps: bool = False
    rows_from_steps: bool = False
    within_units: str = ""

    def fingerprint(self) -> bytes:
        """Return bytes that are equal for equal queries, in every process.

        What only follows from the steps and the expressions is left out.
        """
        plain: dict[str, Any] = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name not in _DERIVED
        }
        keys = [{name: own for name, own in vars(key).items() if name != "function_of_unit"} for key in self.keys]
        plain["keys"] = [{**key, "dtype": str(key["dtype"])} for key in keys]
        plain["aggregates"] = [{"kind": aggregate.kind, **asdict(aggregate)} for aggregate in self.aggregates]
        plain["spend"] = asdict(self.spend)
        domain = plain.pop("domain")
        plain["domain"] = None if domain is None else public_digest(domain)
        return json.dumps(plain, sort_keys=True, default=str).encode()

    def engine_domain(self) -> pl.DataFrame | None:
        """Return the public keys under the names that engines use, or None if there are none."""
        return self._engine_domain

    @cached_property
    def _engine_domain(self) -> pl.DataFrame | None:
        if not self.keys or self.domain is None:
            return None
        return self.domain.rename({key.name: f"key{i}" for i, key in enumerate(self.keys)})

    def title(self) -> str:
        """Return the query in a few words."""
        by = f" by {', '.join(key.name for key in self.keys)}" if self.keys else ""
        rolled = ", with totals" if self.rollup else ""
        return f"{', '.join(aggregate.title() for aggregate in self.aggregates)}{by}{rolled}"
