"""Join relations: public rows with each other in the sandbox, private rows with public rows by a lookup.

A private row takes the columns of the public rows that it matches. Public rows that match no private row are left out,
because they belong to nobody. Joins of private rows with each other are in `private_joins`.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from dp_polars._engines.rows import How
from dp_polars._expressions import Column, Constant, Expression, apply
from dp_polars._expressions.types import integer_range, kind_of
from dp_polars._sql.private_joins import private_join
from dp_polars._sql.relations import Context, PrivateRelation, PublicRelation, Relation
from dp_polars._sql.sandbox import check_expression
from dp_polars._sql.scope import Meaning, Scope, ScopeTable, unused_name
from dp_polars._sql.syntax_tree import Node, column, fold, select_node, walk
from dp_polars.errors import InvalidParameterError

_JOIN_PARTS = frozenset(
    {
        "type", "alias", "query_location", "query_location_length", "left", "right", "condition", "join_type",
        "ref_type", "using_columns", "is_implicit", "nearest_count", "nearest_order_type",
    }
)  # fmt: skip

_PublicColumn = tuple[str, str]
"""The alias of a public table and the name of one of its columns."""


def joined(node: Node, left: Relation, right: Relation, context: Context) -> Relation:
    """Return the relation that a JOIN of two analysed relations produces."""
    unknown = [name for name, part in node.items() if part and name not in _JOIN_PARTS]
    if unknown:
        raise context.refuse(node, f"A join with {', '.join(unknown).replace('_', ' ')} is not supported.")
    if node["ref_type"] not in ("REGULAR", "CROSS"):
        raise context.refuse(node, f"A {fold(node['ref_type'])} join is not supported; use JOIN ... USING or ON.")
    if isinstance(left, PrivateRelation) and isinstance(right, PrivateRelation):
        return private_join(node, left, right, context)
    if isinstance(left, PrivateRelation):
        return _PublicJoin(node, left, right, context, private_left=True).relation()  # type: ignore[arg-type]
    if isinstance(right, PrivateRelation):
        return _PublicJoin(node, right, left, context, private_left=False).relation()
    both = PublicRelation(
        {**node, "left": left.node, "right": right.node},
        left.tables + right.tables,
        left.sources | right.sources,
        left.released or right.released,
    )
    if node.get("condition"):
        if any(item["class"] == "SUBQUERY" for item in walk(node["condition"])):
            raise context.refuse(node, "A subquery inside the condition of a join is not supported.")
        check_expression(node["condition"], context.scope(*both.tables))
    return both


class _PublicJoin:
    """A join of private with public rows."""

    def __init__(
        self, node: Node, private: PrivateRelation, public: PublicRelation, context: Context, *, private_left: bool
    ) -> None:
        self._node, self._private, self._public, self._context = node, private, public, context
        self._private_left = private_left
        self._private_scope = context.scope(*private.tables)
        self._public_scope = context.scope(*public.tables)
        self._scope = context.scope(*private.tables, *public.tables)

    def relation(self) -> PrivateRelation:
        """Return the private rows with the columns of the public rows that they match."""
        private, public, context = self._private, self._public, self._context
        if public.released:
            raise self._refuse(
                "Private rows can't be joined with released answers. Store the answers in a table first."
            )
        how = self._how()
        equal, others = self._conditions()
        only_if: list[Node] = []
        where = None
        if others and how != "inner":
            if not equal:
                raise context.refuse(others[0], "This kind of join must compare columns too: ON a.x = b.y AND b.z > 1.")
            only_if, where = self._split(others)
            others = []
        names = self._public_names()
        frame = self._public_frame(names, where)
        rows, pairs = private.rows, []
        reader = context.reader(*private.tables)
        for mine, theirs in equal:
            key = reader.checked(mine)
            if kind_of(key.dtype) in ("enum", "categorical"):
                key = apply("cast", key, to=pl.String())
            found = _column_of(theirs, self._public_scope)
            if found is None:
                raise context.refuse(theirs, "A join with private rows compares whole columns, not parts of them.")
            frame = self._with_key_type(frame, names[found], key)
            for condition in only_if:  # a row that does not meet the condition has a null key, which matches nothing
                key = apply("case", reader.condition(condition), key, Constant(None, key.dtype))
            only_if = []
            if not isinstance(key, Column):
                made = unused_name("join_key", rows.schema)
                rows = rows.make({made: key})
                key = Column(made, key.dtype)
            pairs.append((key.name, names[found]))
        added, tables = ({}, ()) if how in ("semi", "anti") else self._added(frame, names)
        try:
            rows = rows.lookup(frame, on=pairs, how=how, columns=added, unique=private.rows_are_units)
        except InvalidParameterError as error:
            raise self._refuse(str(error)) from None
        tables = (*private.tables, *tables)
        for condition in others:
            rows = rows.filter(context.reader(*tables).condition(condition))
        return replace(private, rows=rows, tables=tables, sources=private.sources | public.sources)

    def _split(self, others: list[Node]) -> tuple[list[Node], Node | None]:
        """Return the conditions on the private side of an outer, semi or anti join, and the one on its public side."""
        private, public = [], []
        for condition in others:
            sides = self._sides(condition)
            if sides == {"private"}:
                private.append(condition)
            elif sides == {"public"} and not any(item["class"] == "SUBQUERY" for item in walk(condition)):
                check_expression(condition, self._public_scope)
                public.append(condition)
            else:
                raise self._context.refuse(
                    condition,
                    "In a LEFT, SEMI or ANTI JOIN with public rows, a condition is an equality, or it reads one of the "
                    "two tables. A condition on both is possible in an inner JOIN.",
                )
        both = {"class": "CONJUNCTION", "type": "CONJUNCTION_AND", "alias": "", "children": public}
        return private, both if len(public) > 1 else next(iter(public), None)

    def _how(self) -> How:
        """Return the kind of lookup. Public rows that match no private row are left out in every kind."""
        kind = self._node["join_type"]
        if kind in ("SEMI", "ANTI"):
            if not self._private_left:
                raise self._refuse("A semi or anti join of public with private rows shows which private rows exist.")
            return "semi" if kind == "SEMI" else "anti"
        if kind in ("INNER", "CROSS"):
            return "inner"
        if kind in ("LEFT", "RIGHT"):
            return "left" if (kind == "LEFT") == self._private_left else "inner"
        if kind in ("OUTER", "FULL"):
            return "left"
        raise self._refuse(f"A {fold(kind)} join is not supported; use JOIN ... USING or ON.")

    # ------------------------------------------------------------------ conditions

    def _conditions(self) -> tuple[list[tuple[Node, Node]], list[Node]]:
        """Split the join condition into equalities (private expression, public column) and everything else."""
        equal = []
        for name in self._node.get("using_columns", []):
            reference = column(str(name))
            if any(scope.resolve(reference) is None for scope in (self._private_scope, self._public_scope)):
                raise self._refuse(f"USING ({name}): one of the tables has no such column.")
            equal.append((reference, reference))
        whole = self._node.get("condition")
        parts = [] if whole is None else [whole]
        if whole is not None and whole.get("type") == "CONJUNCTION_AND":
            parts = whole["children"]
        others = []
        for part in parts:
            pair = self._equality(part)
            if pair is None:
                others.append(part)
            else:
                equal.append(pair)
        return equal, others

    def _equality(self, part: Node) -> tuple[Node, Node] | None:
        if part.get("class") != "COMPARISON" or part["type"] != "COMPARE_EQUAL":
            return None
        for mine, theirs in ((part["left"], part["right"]), (part["right"], part["left"])):
            if (self._sides(mine), self._sides(theirs)) == ({"private"}, {"public"}) and theirs[
                "class"
            ] == "COLUMN_REF":
                return mine, theirs
        return None

    def _sides(self, node: Node) -> set[str]:
        """Return which sides of the join an expression reads. A name that both sides have means the private column."""
        found = set()
        for item in walk(node):
            if item["class"] == "COLUMN_REF":
                table = self._scope.resolve(item)
                if table is not None:
                    found.add("private" if table[0] in self._private.tables else "public")
        return found

    # ------------------------------------------------------------------ public rows

    def _public_names(self) -> dict[_PublicColumn, str]:
        """Return the name of each public column beside the private columns."""
        names: dict[_PublicColumn, str] = {}
        for table in self._public.tables:
            for name in table.columns:
                shown = f"{table.alias}.{name}" if table.alias else name
                names[table.alias, name] = unused_name(shown, [*self._private.rows.schema, *names.values()])
        return names

    def _public_frame(self, names: dict[_PublicColumn, str], where: Node | None) -> pl.DataFrame:
        items = [
            {**(column(alias, name) if alias else column(name)), "alias": shown}
            for (alias, name), shown in names.items()
        ]
        return self._context.catalog.public_frame(select_node(items, self._public.node, where))

    def _with_key_type(self, frame: pl.DataFrame, name: str, key: Expression) -> pl.DataFrame:
        """Cast a public key column to the private column's type. Keys outside that type's range match nobody."""
        theirs = frame.schema[name]
        if theirs == key.dtype or theirs == pl.Null:
            return frame.with_columns(pl.col(name).cast(key.dtype))
        both = {kind_of(theirs), kind_of(key.dtype)}
        if both <= {"integer"} or (both == {"integer", "decimal"} and _is_whole(theirs)):
            ends = pl.Series(_whole_range(key.dtype), dtype=pl.Int128)
            whole = pl.col(name).cast(pl.Int128)
            kept = frame.filter(((whole >= ends[:1]) & (whole <= ends[1:])) | pl.col(name).is_null())
            return kept.with_columns(pl.col(name).cast(key.dtype))
        if both == {"text"} or both == {"date"}:
            return frame.with_columns(pl.col(name).cast(key.dtype))
        raise self._refuse(f"This join compares {key.dtype} with {theirs}; cast one of them in a subquery.")

    def _added(
        self, frame: pl.DataFrame, names: dict[_PublicColumn, str]
    ) -> tuple[dict[str, str], tuple[ScopeTable, ...]]:
        """Return the public columns that are added to the private rows, and their tables for the scope."""
        added: dict[str, str] = {}
        tables = []
        for table in self._public.tables:
            columns: dict[str, Meaning] = {}
            for name in table.columns:
                shown = names[table.alias, name]
                dtype = frame.schema[shown]
                if kind_of(dtype) in ("other", "null"):
                    columns[name] = str(dtype)
                else:
                    added[shown] = shown
                    columns[name] = Column(shown, dtype)
            tables.append(ScopeTable(table.alias, columns))
        return added, tuple(tables)

    def _refuse(self, reason: str) -> Exception:
        return self._context.refuse(self._node, reason)


def _column_of(node: Node, scope: Scope) -> _PublicColumn | None:
    """Return the table and the column that a reference means, or None if it means a field of a column."""
    found = scope.resolve(node)
    if found is None:
        return None
    table, name = found
    by_table = len(node["column_names"]) > 1 and fold(node["column_names"][0]) == fold(table.alias)
    return None if len(node["column_names"]) > (2 if by_table else 1) else (table.alias, name)


def _whole_range(dtype: pl.DataType) -> tuple[int, int]:
    """Return the smallest and the largest integer that a type of integers or decimals can hold."""
    if not isinstance(dtype, pl.Decimal):
        return integer_range(dtype)
    most = 10 ** ((dtype.precision or 38) - dtype.scale) - 1
    return -most, most


def _is_whole(dtype: pl.DataType) -> bool:
    return not isinstance(dtype, pl.Decimal) or dtype.scale == 0
