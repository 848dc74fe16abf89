"""What a statement becomes: questions about rows, and a query over their answers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from dp_polars.sql.calls import Call
from dp_polars.sql.relations import Relation
from dp_polars.sql.tree import Node, canonical, without_places

RELEASED = "dp_released_"


@dataclass(frozen=True)
class SqlKey:
    """A grouping key: its name in the answer and its expression."""

    name: str
    node: Node


@dataclass(frozen=True)
class SqlQuestion:
    """Private aggregates over the same rows, which are asked at once."""

    calls: tuple[Call, ...]
    numbers: tuple[int, ...]
    """The numbers of their answers in the SELECT."""
    values: tuple[Node, ...]
    rows: Node
    """The query that gives unit columns, keys and values: `unit_0`, `key_0`, `value_0` and so on."""
    unit: tuple[str, ...]
    keys: tuple[str, ...]
    relation: Relation

    def places(self, call: Call) -> list[int]:
        """Return the places of a call's values."""
        texts = [canonical(value) for value in self.values]
        return [texts.index(canonical(value)) for value in call.values]


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
    sources: frozenset[str] = frozenset()


def question_text(question: SqlQuestion, parameters: dict[str, Any]) -> str:
    """Return what names the rows of a question: its query, names included, and the values of its parameters."""
    values = {name: [type(value).__name__, repr(value)] for name, value in parameters.items()}
    return json.dumps(["sql", without_places(question.rows), values], sort_keys=True)
