"""Joins of private rows with private rows: JOIN, IN, EXISTS, UNION, INTERSECT and EXCEPT, always on the unit.

Rows are joined only if they have the same unit, so a joined row belongs to one unit and is computed from its rows: see
`_engines.unit_steps`. `NOT IN` differs from SQL in one way: a null in the list is left out. In SQL, a single null would
empty the result for everybody, so one person's row would change the result of all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NoReturn

import polars as pl

from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.unit_steps import GroupRows, JoinHow, JoinRows, KeepFirst, StackRows
from dp_polars._expressions import Column, Constant, Expression, apply
from dp_polars._expressions.types import kind_of
from dp_polars._expressions.unit_functions import unit_value
from dp_polars._sql.relations import Context, PrivateRelation, unit_step
from dp_polars._sql.scope import Meaning, ScopeTable, unused_name
from dp_polars._sql.syntax_tree import Node, column, fold, walk

EqualPair = tuple[Expression, Expression]
"""Two expressions that must be equal: one over the rows that are kept, and one over the others."""


def private_join(node: Node, left: PrivateRelation, right: PrivateRelation, context: Context) -> PrivateRelation:
    """Return the relation that a JOIN of two private relations produces."""
    kinds: dict[str, JoinHow] = {"INNER": "inner", "LEFT": "left", "RIGHT": "left", "SEMI": "semi", "ANTI": "anti"}
    kind = node["join_type"]
    if node["ref_type"] == "CROSS" or kind == "CROSS":
        raise context.refuse(
            node,
            "A join of private tables without ON combines rows of several people. Write JOIN ... ON "
            f"{_example(left, right)}, not a comma with WHERE.",
            code="private-join",
        )
    if kind == "FULL":
        return _full_join(node, left, right, context)
    if kind not in kinds:
        raise context.refuse(
            node, f"A {fold(kind)} join of private tables is not supported; use JOIN, LEFT JOIN or FULL JOIN."
        )
    kept, other = (right, left) if kind == "RIGHT" else (left, right)
    how = kinds[kind]
    equal, others = _conditions(node, kept, other, context)
    mine, theirs = context.reader(*kept.tables), context.reader(*other.tables)
    late: list[Node] = []
    for one in others:
        sides = _sides(one, kept, other, context)
        if sides <= {"other"}:
            other = replace(other, rows=other.rows.filter(theirs.condition(one)))
        elif sides == {"kept"} and how in ("inner", "semi"):
            kept = replace(kept, rows=kept.rows.filter(mine.condition(one)))
        elif how == "inner":
            late.append(one)
        else:
            raise context.refuse(
                one,
                f"A {fold(kind)} join of private tables compares columns for equality. A condition on both tables is "
                "possible in an inner JOIN; put it there, in a subquery.",
            )
    joined = join_on_unit(
        node, context, kept, other, [(mine.checked(one), theirs.checked(two)) for one, two in equal], how
    )
    for one in late:
        joined = replace(joined, rows=joined.rows.filter(context.reader(*joined.tables).condition(one)))
    return joined


def join_on_unit(
    node: Node,
    context: Context,
    kept: PrivateRelation,
    other: PrivateRelation,
    pairs: Sequence[EqualPair],
    how: JoinHow,
) -> PrivateRelation:
    """Join private rows with others by equal expressions, among which are the units of both."""
    _check_units(node, context, kept, other)
    units = list(zip(kept.unit, other.unit, strict=True))
    named = [(one.name, two.name) for one, two in pairs if isinstance(one, Column) and isinstance(two, Column)]
    owned = any(label in other.labels.get(two, ()) for one, two in named for label in kept.labels.get(one, ()))
    if not owned and not set(units) <= set(named):
        raise context.refuse(
            node,
            f"Private tables are combined on the unit, in both of them: {_example(kept, other)}. Otherwise rows of "
            "several people would be combined. Add this to the condition.",
            code="private-join",
        )
    for name, its_name in units:
        types = kept.rows.schema[name], other.rows.schema[its_name]
        if types[0] != types[1]:
            raise context.refuse(
                node,
                f"The unit {name} has the type {types[0]} in one table and {types[1]} in the other. Give both columns "
                "the same type in the tables.",
            )
    on = dict(units)
    left, right = kept.rows, other.rows
    for one, two in pairs:
        if isinstance(one, Column) and isinstance(two, Column) and on.get(one.name) == two.name:
            continue
        mine, theirs = _same_type(node, context, one, two)
        if not isinstance(mine, Column) or mine.name in on:
            name = unused_name("join_key", left.schema)
            left, mine = left.make({name: mine}), Column(name, mine.dtype)
        if not isinstance(theirs, Column):
            name = unused_name("join_key", right.schema)
            right, theirs = right.make({name: theirs}), Column(name, theirs.dtype)
        on[mine.name] = theirs.name
    taken: dict[str, str] = {}
    tables: tuple[ScopeTable, ...] = ()
    copies = kept.copies
    labels = dict(kept.labels)
    if how in ("inner", "left"):
        for table in other.tables:
            columns: dict[str, Meaning] = {}
            for name, meaning in table.columns.items():
                if not isinstance(meaning, Column):
                    columns[name] = meaning
                elif how == "inner" and meaning.name in other.unit:
                    own = kept.unit[other.unit.index(meaning.name)]
                    columns[name] = Column(own, meaning.dtype)
                else:
                    if meaning.name not in taken:
                        taken[meaning.name] = unused_name(meaning.name, [*left.schema, *taken.values()])
                    columns[name] = Column(taken[meaning.name], meaning.dtype)
            tables = (*tables, ScopeTable(table.alias, columns))
        copies |= {taken[name] for name in (*other.unit, *other.copies) if name in taken}
        labels |= {taken[name]: own for name, own in other.labels.items() if name in taken}
    step = JoinRows(tuple(on.items()), how, tuple(taken.items()))
    rows = unit_step(node, context, step, replace(kept, rows=left), right)
    return replace(
        kept, rows=rows, tables=(*kept.tables, *tables), sources=kept.sources | other.sources,
        declared=kept.declared or other.declared, copies=copies, labels=labels,
    )  # fmt: skip


def _full_join(node: Node, left: PrivateRelation, right: PrivateRelation, context: Context) -> PrivateRelation:
    """Return the rows of a FULL JOIN: those of a LEFT JOIN, and below them the second table's rows without a match.

    What one unit can change: its own rows. Both parts are joined on the unit, and a row below has the unit of the
    second table, although the columns of the first table are null there.
    """
    equal, others = _conditions(node, left, right, context)
    if others:
        raise context.refuse(
            others[0],
            "A full join of private tables compares columns for equality. Put other conditions into subqueries, or "
            "into WHERE.",
        )
    mine, theirs = context.reader(*left.tables), context.reader(*right.tables)
    pairs = [(mine.checked(one), theirs.checked(two)) for one, two in equal]
    both = join_on_unit(node, context, left, right, pairs, "left")
    alone = join_on_unit(node, context, right, left, [(two, one) for one, two in pairs], "anti")
    schema = both.rows.schema
    matched: dict[str, Expression] = {name: Column(name, schema[name]) for name in left.unit}
    alone_made: dict[str, Expression] = {
        name: Column(own, schema[name]) for name, own in zip(left.unit, right.unit, strict=True)
    }
    copies = both.copies

    def shown(meaning: Meaning, source: Meaning | None) -> Meaning:
        """Return a column of the joined rows. `source` is where rows without a match take it from, if anywhere."""
        nonlocal copies
        if not isinstance(meaning, Column):
            return meaning
        name = meaning.name
        if name in left.unit:
            name = unused_name(f"{name}_seen", [*schema, *matched])
            copies |= {name}
        matched[name] = meaning
        alone_made[name] = source if isinstance(source, Column) else Constant(None, meaning.dtype)
        return Column(name, meaning.dtype)

    tables = [
        ScopeTable(one.alias, {name: shown(own, None) for name, own in one.columns.items()}) for one in left.tables
    ]
    for one, before in zip(both.tables[len(left.tables) :], right.tables, strict=True):
        columns = {name: shown(own, before.columns[name]) for name, own in one.columns.items()}
        tables.append(ScopeTable(one.alias, columns))
    merged: dict[str, Meaning] = {}
    for (used, own), (first, second) in zip(equal, pairs, strict=True):
        if used is not own:  # ON, which keeps both columns
            continue
        shown_name = str(used["column_names"][-1])
        if isinstance(first, Column) and first.name in left.unit:
            merged[shown_name] = first
            continue
        name = unused_name(shown_name, [*schema, *matched])
        matched[name] = first
        alone_made[name] = second if second.dtype == first.dtype else apply("cast", second, to=first.dtype)
        merged[shown_name] = Column(name, first.dtype)
    inputs = [both.rows.make(matched, keep=False), alone.rows.make(alone_made, keep=False)]
    rows = unit_step(node, context, StackRows(), replace(both, rows=inputs[0]), inputs[1])
    scope = ((ScopeTable("", merged),) if merged else ()) + tuple(tables)
    return replace(both, rows=rows, tables=scope, copies=copies, labels={})


def stacked(node: Node, context: Context, parts: Sequence[PrivateRelation], *, distinct: bool) -> PrivateRelation:
    """Stack the rows of private relations, by the positions of their columns."""
    inputs, found = _aligned(node, context, parts)
    rows = unit_step(node, context, StackRows(), replace(found, rows=inputs[0]), *inputs[1:])
    found = replace(found, rows=rows)
    if not distinct:
        return found
    _check_unit_is_shown(node, context, found, "UNION without ALL", "UNION ALL")
    return replace(found, rows=unit_step(node, context, KeepFirst(tuple(rows.schema), (), 1), found))


def compared(
    node: Node, context: Context, parts: Sequence[PrivateRelation], kind: Literal["INTERSECT", "EXCEPT"]
) -> PrivateRelation:
    """Return the rows of the first relation that all others have too, or that no other has.

    What one unit can change: its own rows, because rows are equal only if their units are, so nobody else's row meets
    them. As in SQL, equal rows count once, and a null equals a null.
    """
    first, *others = parts
    for other in others:
        inputs, found = _aligned(node, context, [first, other])
        _check_unit_is_shown(node, context, found, kind, "IN or NOT IN on the unit")
        columns = tuple(inputs[0].schema)
        mark, some, every = "from_first", "some_from_first", "all_from_first"
        mark, some, every = (unused_name(name, columns) for name in (mark, some, every))
        marked = [one.make({mark: Constant(not place, pl.Boolean())}) for place, one in enumerate(inputs)]
        rows = unit_step(node, context, StackRows(), replace(found, rows=marked[0]), *marked[1:])
        values = tuple((name, unit_value(how, mark, rows.schema)) for name, how in ((some, "any"), (every, "all")))
        rows = unit_step(node, context, GroupRows(columns, values), replace(found, rows=rows))
        in_first, only_there = Column(some, pl.Boolean()), Column(every, pl.Boolean())
        kept = only_there if kind == "EXCEPT" else apply("and", in_first, apply("not", only_there))
        first = replace(found, rows=rows.filter(kept).keep(columns))
    return first


def _aligned(
    node: Node, context: Context, parts: Sequence[PrivateRelation]
) -> tuple[list[PrivateRows], PrivateRelation]:
    """Return the rows of relations with the same columns, and a relation that names these after the first of them."""
    first, *others = parts
    kind = node["setop_type"]
    (table,) = first.tables
    names = list(table.columns)
    shown = [list(part.tables[0].columns.values()) for part in parts]
    for part, columns in zip(others, shown[1:], strict=True):
        _check_units(node, context, first, part)
        if len(columns) != len(names):
            raise context.refuse(node, f"The parts of {kind} must have the same number of columns.")
    if any(isinstance(one, str) for columns in shown for one in columns):
        raise context.refuse(node, f"A column of {kind} has a type that can't be used over private rows; leave it out.")
    meanings = [[one for one in columns if isinstance(one, Column)] for columns in shown]
    places = [[(part.unit.index(one.name) if one.name in part.unit else None) for one in columns]
              for part, columns in zip(parts, meanings, strict=True)]  # fmt: skip
    held = list(first.unit)
    own: list[str] = []
    for number, name in enumerate(names):
        same = {place[number] for place in places}
        unit = places[0][number] if len(same) == 1 else None
        if unit is None and fold(name) in map(fold, first.table_unit.columns):
            raise context.refuse(node, f"{name} is the unit in some parts of {kind} and another column in others.")
        own.append(first.unit[unit] if unit is not None else unused_name(name, [*held, *own]))
    types = [_common(node, context, [columns[number] for columns in meanings]) for number in range(len(names))]
    inputs = []
    for part, own_columns in zip(parts, meanings, strict=True):
        schema = part.rows.schema
        made: dict[str, Expression] = {
            name: Column(mine, schema[mine]) for name, mine in zip(first.unit, part.unit, strict=True)
        }
        for name, one, dtype in zip(own, own_columns, types, strict=True):
            if name not in first.unit:
                made[name] = one if one.dtype == dtype else apply("cast", one, to=dtype)
        inputs.append(part.rows.make(made, keep=False))
    seen = {name: Column(mine, inputs[0].schema[mine]) for name, mine in zip(names, own, strict=True)}
    found = replace(
        first, rows=inputs[0], tables=(ScopeTable("", seen),), declared=any(part.declared for part in parts),
        sources=frozenset().union(*(part.sources for part in parts)), copies=frozenset(), labels={},
    )  # fmt: skip
    return inputs, found


def _check_unit_is_shown(node: Node, context: Context, found: PrivateRelation, what: str, instead: str) -> None:
    (table,) = found.tables
    if not set(found.unit) <= {one.name for one in table.columns.values() if isinstance(one, Column)}:
        raise context.refuse(
            node,
            f"{what} compares rows of several people. Select {', '.join(found.table_unit.columns)} in each part, or "
            f"write {instead}.",
            code="unit-step-without-unit",
        )


# ---------------------------------------------------------------------- checks


def _check_units(node: Node, context: Context, one: PrivateRelation, two: PrivateRelation) -> None:
    if one.rows_are_units or two.rows_are_units:
        raise context.refuse(
            node,
            "In this session every row is a person of its own (unit=dp.ROW), so no rows of two private tables belong "
            "to the same person. Open a session whose unit is a column.",
            code="unit-step-of-rows",
        )
    if not {one.table_unit.relation, two.table_unit.relation} <= {"agreed", "renamed"}:
        raise context.refuse(
            node,
            "Private tables are combined on the session's unit, but one of these tables has another unit. If only the "
            "column's name differs, say con.private(table, unit={'the session\\'s column': 'its name there'}).",
            code="private-join",
        )


def _example(one: PrivateRelation, two: PrivateRelation) -> str:
    """Return the condition that compares the units of two relations."""
    pairs = zip(one.table_unit.columns, two.table_unit.columns, strict=False)
    aliases = [relation.tables[0].alias for relation in (one, two)]
    shown = [alias if alias and alias.isprintable() else place for alias, place in zip(aliases, "ab", strict=True)]
    return " AND ".join(f"{shown[0]}.{mine} = {shown[1]}.{theirs}" for mine, theirs in pairs) or "the unit"


# ---------------------------------------------------------------------- conditions


def _conditions(
    node: Node, kept: PrivateRelation, other: PrivateRelation, context: Context
) -> tuple[list[tuple[Node, Node]], list[Node]]:
    """Split the join condition into equalities of the two sides and everything else."""
    equal: list[tuple[Node, Node]] = []
    for name in node.get("using_columns", []):
        reference = column(str(name))
        if any(context.scope(*one.tables).resolve(reference) is None for one in (kept, other)):
            raise context.refuse(node, f"USING ({name}): one of the tables has no such column.")
        equal.append((reference, reference))
    others = []
    for part in conjuncts(node.get("condition")):
        pair = None
        if part.get("class") == "COMPARISON" and part["type"] == "COMPARE_EQUAL":
            for one, two in ((part["left"], part["right"]), (part["right"], part["left"])):
                if _sides(one, kept, other, context) == {"kept"} and _sides(two, kept, other, context) == {"other"}:
                    pair = (one, two)
        if pair is None:
            others.append(part)
        else:
            equal.append(pair)
    return equal, others


def conjuncts(condition: Node | None) -> list[Node]:
    """Return the conditions that a condition joins by AND."""
    if condition is None:
        return []
    if condition.get("type") == "CONJUNCTION_AND":
        return [part for child in condition["children"] for part in conjuncts(child)]
    return [condition]


def _sides(node: Node, kept: PrivateRelation, other: PrivateRelation, context: Context) -> set[str]:
    """Return which sides of a join an expression reads. A name that both have means that of the rows that are kept."""
    found = set()
    scope = context.scope(*kept.tables, *other.tables)
    for item in walk(node):
        if item["class"] == "COLUMN_REF" and (own := scope.resolve(item)) is not None:
            found.add("kept" if any(own[0] is table for table in kept.tables) else "other")
    return found


def _same_type(node: Node, context: Context, one: Expression, two: Expression) -> EqualPair:
    """Return two expressions in one type, in which they can be compared."""
    if one.dtype == two.dtype:
        return one, two
    dtype = _common(node, context, [one, two])
    return tuple(own if own.dtype == dtype else apply("cast", own, to=dtype) for own in (one, two))  # type: ignore[return-value]


def _common(node: Node, context: Context, given: Sequence[Expression]) -> pl.DataType:
    """Return a type that holds the values of all expressions."""
    types = [one.dtype for one in given if kind_of(one.dtype) != "null"]
    kinds = {kind_of(dtype) for dtype in types}
    if not types:
        return pl.Boolean()
    if len(set(types)) == 1:
        return types[0]
    if kinds == {"integer"} and pl.UInt64() not in types:
        return pl.Int64()
    if kinds <= {"integer", "float"}:
        return pl.Float64()
    if kinds <= {"text", "enum", "categorical"}:
        return pl.String()
    if kinds <= {"date", "datetime"} and not any(isinstance(one, pl.Datetime) and one.time_zone for one in types):
        return pl.Datetime("us")
    return _no_common_type(node, context, types)


def _no_common_type(node: Node, context: Context, types: Sequence[pl.DataType]) -> NoReturn:
    shown = " and ".join(dict.fromkeys(map(str, types)))
    raise context.refuse(node, f"Values of the types {shown} meet here; cast one of them in a subquery.")
