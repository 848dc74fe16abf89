"""What a statement becomes: questions about private rows, and a query over their answers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from dp_polars._engines.rows import PrivateRows
from dp_polars._expressions import Expression
from dp_polars._plan.digest import public_digest
from dp_polars._session.terms import TableUnit
from dp_polars._sql.aggregate_calls import Call
from dp_polars._sql.syntax_tree import Node, canonical

RELEASED = "dp_released_"


@dataclass(frozen=True)
class SqlKey:
    """A grouping key: its name in the answer, its node and what that means."""

    name: str
    node: Node
    tree: Expression


@dataclass(frozen=True, eq=False)
class SqlQuestion:
    """Private aggregates over the same rows, which are asked at once."""

    calls: tuple[Call, ...]
    numbers: tuple[int, ...]
    """The numbers of their answers in the SELECT."""
    values: tuple[Node, ...]
    value_names: tuple[str, ...]
    """The columns of `rows` that hold the values."""
    rows: PrivateRows
    """Columns with the unit, the keys and the values, under the names that a plan shows."""
    unit: tuple[str, ...]
    table_unit: TableUnit
    keys: tuple[str, ...]
    sources: frozenset[Any]
    declared: bool

    def columns(self, call: Call) -> tuple[str, ...]:
        """Return the columns of a call's values."""
        texts = [canonical(value) for value in self.values]
        return tuple(self.value_names[texts.index(canonical(value))] for value in call.values)

    def step(self, kind: str = "sql") -> str:
        """Return what was done to the rows of the table, for the fingerprint of a question."""
        return json.dumps([kind, self.rows.describe(public_digest)], sort_keys=True)


@dataclass(frozen=True)
class Aggregation:
    """The questions of one SELECT over private rows, whose answers become one table of released rows."""

    table: str
    questions: tuple[SqlQuestion, ...]
    keys: tuple[str, ...]


@dataclass
class Cut:
    """What a statement becomes: questions, and a query over their answers."""

    above: Node
    aggregations: list[Aggregation] = field(default_factory=list)
