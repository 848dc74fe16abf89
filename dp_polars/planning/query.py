"""What was asked, in a form that every front end builds and every engine understands."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

import polars as pl

Aggregate = Literal["count", "count_units", "sum", "mean"]
MechanismChoice = Literal["laplace", "gaussian"]


@dataclass(frozen=True, kw_only=True)
class Key:
    """A grouping key: its name in the result, its expression as canonical text, its type."""

    name: str
    expression: str
    dtype: pl.DataType
    constant_per_unit: bool


@dataclass(frozen=True, kw_only=True)
class Value:
    """The value that is summed: its expression as canonical text, its bounds and whether its column holds integers."""

    expression: str
    lower: Fraction
    upper: Fraction
    integers: bool
    per: Literal["row", "unit"]


@dataclass(frozen=True, kw_only=True)
class Spend:
    """How a user said what a release may cost; exactly one way, or none."""

    epsilon: Fraction | None = None
    share: Fraction | None = None
    rho: Fraction | None = None
    within: Fraction | None = None
    confidence: float = 0.95
    delta: Fraction | None = None
    mechanism: MechanismChoice | None = None


@dataclass(frozen=True, kw_only=True)
class Query:
    """A private question.

    Attributes
    ----------
    aggregate, name
        What is computed and the name of its column.
    unit
        The unit columns; empty if every row is a unit.
    keys
        The grouping keys.
    domain
        The public keys in the order of the result, with the names of `keys`; None if keys are discovered.
    domain_rule
        Where a public domain came from, in words.
    value
        What is summed, for sums and means.
    max_groups, max_rows
        Caps given in the call or by the session, with where they came from.
    min_units
        Groups with fewer units are suppressed when keys are discovered.
    interval
        The confidence of the interval columns, if asked for.
    nonnegative
        Whether answers below 0 are shown as 0.
    spend
        What it may cost.
    steps
        The transformations before the aggregation, as canonical text.
    drops_rows
        Whether a step may drop rows (a filter or an inner, semi or anti join).
    unchecked
        Whether the user vouched for a step that was not checked.
    integer_unit
        Whether the unit is one column that is stored as integers, which are told apart exactly at no price.
    """

    aggregate: Aggregate
    name: str
    unit: tuple[str, ...]
    keys: tuple[Key, ...]
    domain: pl.DataFrame | None
    domain_rule: str
    value: Value | None
    max_groups: int | None
    max_groups_rule: str
    max_rows: int | None
    max_rows_rule: str
    min_units: int
    interval: float | None
    nonnegative: bool
    spend: Spend
    steps: tuple[str, ...]
    unchecked: bool = False
    integer_unit: bool = True

    def fingerprint(self) -> bytes:
        """Return bytes that are equal for equal queries, in every process."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["keys"] = [{**vars(key), "dtype": str(key.dtype)} for key in self.keys]
        plain["value"] = None if self.value is None else asdict(self.value)
        plain["spend"] = asdict(self.spend)
        domain = plain.pop("domain")
        plain["domain"] = None if domain is None else public_digest(domain)
        return json.dumps(plain, sort_keys=True, default=str).encode()

    def title(self) -> str:
        """Return the question in a few words."""
        by = f" by {', '.join(key.name for key in self.keys)}" if self.keys else ""
        return f"{self.aggregate}{'' if self.value is None else ' of ' + self.name}{by}"

    def label(self) -> str:
        """Return a short public description for the ledger: the question and who was protected."""
        return f"{self.title()}, unit {', '.join(self.unit) or 'each row'}"


def public_digest(frame: pl.DataFrame) -> str:
    """Return a digest of a public frame (never of private rows); different frames have different ones."""
    digest = hashlib.sha256(str(frame.schema).encode())
    digest.update(json.dumps(frame.rows(), default=repr).encode())
    return digest.hexdigest()
