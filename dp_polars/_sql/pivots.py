"""PIVOT of public and released rows, as an ordinary SELECT: one aggregate with a FILTER for each listed value.

The rows are public or released already, so this is post-processing. The statement lists the values that become columns,
so the columns of the answer never depend on rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dp_polars._sql.relations import Context, PublicRelation
from dp_polars._sql.syntax_tree import Node, column, fold, select_node, walk, without_places

_MOST = 1_000
"""The largest number of columns that a PIVOT may make."""


def pivot_select(node: Node, relation: PublicRelation, context: Context) -> Node:
    """Return the SELECT that gives the rows of a PIVOT."""
    if node.get("unpivot_names") or not node.get("aggregates"):
        raise context.refuse(node, "UNPIVOT is not supported. Write UNION ALL of one SELECT per column.")
    keys, choices = [], []
    for pivot in node["pivots"]:
        if pivot.get("pivot_enum") or pivot.get("subquery") or not pivot.get("entries"):
            raise context.refuse(node, "Say which values become columns: PIVOT (sum(n) FOR month IN (1, 2, 3)).")
        if len(pivot["pivot_expressions"]) != 1:
            raise context.refuse(node, "PIVOT takes one column per FOR. Write several FOR clauses.")
        keys.append(pivot["pivot_expressions"][0])
        choices.append([_entry(entry, node, context) for entry in pivot["entries"]])
    columns = [name for table in relation.tables for name in table.columns]
    used = {fold(name) for root in (*keys, *node["aggregates"]) for name in _names(root)}
    groups = [str(name) for name in node.get("groups") or []] or [name for name in columns if fold(name) not in used]
    items = [{**column(name), "alias": name} for name in groups]
    several = len(node["aggregates"]) > 1
    for values in itertools.product(*choices):
        wanted = _all([_equals(key, value, context) for key, (_, value) in zip(keys, values, strict=True)], context)
        for call in node["aggregates"]:
            if call["class"] != "FUNCTION" or call.get("filter"):
                raise context.refuse(node, "PIVOT takes an aggregate without FILTER, such as sum(n).")
            name = "_".join(name for name, _ in values)
            shown = call.get("alias") or (_text(call, context) if several else "")
            items.append({**call, "filter": wanted, "alias": f"{name}_{shown}" if shown else name})
    if len(items) > _MOST:
        raise context.refuse(node, f"PIVOT would make more than {_MOST:,} columns; list fewer values.")
    select = select_node(items, relation.node)
    sets = [list(range(len(groups)))] if groups else []
    return {**select, "group_expressions": [column(name) for name in groups], "group_sets": sets}


def _entry(entry: Node, node: Node, context: Context) -> tuple[str, Node]:
    """Return the name of a column that a value becomes, and the value."""
    value = entry.get("star_expr")
    if value is None or value["class"] not in ("CONSTANT", "CAST", "FUNCTION") or any(
        part["class"] in ("COLUMN_REF", "SUBQUERY") for part in walk(value)
    ):  # fmt: skip
        raise context.refuse(node, "The values that become columns must be constants: FOR month IN (1, 2, 3).")
    shown = context.parser.value({**value, "alias": ""}, context.parameters)
    shown = str(shown).lower() if isinstance(shown, bool) else shown  # as DuckDB writes it
    return str(entry.get("alias") or value.get("alias") or ("NULL" if shown is None else shown)), {**value, "alias": ""}


def _names(root: Node) -> list[str]:
    return [part["column_names"][-1] for part in walk(root) if part["class"] == "COLUMN_REF"]


def _equals(key: Node, value: Node, context: Context) -> Node:
    return {**context.parser.expression("1 IS NOT DISTINCT FROM 2"), "left": key, "right": value}


def _all(conditions: Sequence[Node], context: Context) -> Node:
    if len(conditions) == 1:
        return conditions[0]
    return {**context.parser.expression("true AND false"), "children": list(conditions)}


def _text(call: Node, context: Context) -> str:
    empty: Node = {"type": "EMPTY", "alias": "", "sample": None}
    return context.parser.text(without_places(select_node([call], empty))).removeprefix("SELECT ")
