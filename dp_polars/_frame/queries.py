"""From a user's words to a question: a planned query and the rows it will be asked of. Nothing is read or spent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import polars as pl

from dp_polars._aggregates.functions import Asked
from dp_polars._aggregates.values import edges_of, quantiles_of, value_of
from dp_polars._engines.request import stored_as_integers
from dp_polars._engines.rows import PrivateRows
from dp_polars._expressions import Column, Expression, apply
from dp_polars._expressions.check import CheckedExpression, check_expression
from dp_polars._frame.options import By, Options, cap_of, check_options, domain_of, spend_of
from dp_polars._numbers import count_of, flag_of, positive, probability_of
from dp_polars._plan.plan import Plan, plan_of
from dp_polars._plan.query import UNIT_STEP, Aggregate, Key, Query, Value
from dp_polars._release.answers import BIN, WITHOUT_INTERVAL
from dp_polars._release.moments import REGRESSION
from dp_polars._release.run import ExactAnswers
from dp_polars._session.session import Session
from dp_polars._session.terms import TableUnit, Terms, table_terms
from dp_polars.errors import InvalidParameterError


@dataclass(frozen=True)
class View:
    """What a question sees of a private frame: its rows and steps, who is protected and who pays."""

    rows: PrivateRows
    steps: tuple[str, ...]
    unchecked: bool
    unit: tuple[str, ...]
    session: Session
    table: TableUnit | None = None
    """How the unit was said, if not by the session alone."""

    def __post_init__(self) -> None:
        if self.table is not None and self.table.relation != "agreed":  # another unit, another question
            said = json.dumps([UNIT_STEP, [self.table.relation, self.table.note]])
            object.__setattr__(self, "steps", (*self.steps, said))

    @property
    def terms(self) -> Terms:
        """The terms under which this table is asked."""
        return self.session.terms if self.table is None else table_terms(self.session.terms, self.table)


@dataclass(frozen=True)
class Question:
    """A planned query and the rows it will be asked of."""

    plan: Plan
    rows: PrivateRows
    session: Session
    engine: ExactAnswers | None = None
    """What aggregates the rows, if not the usual engine."""


def question_of(view: View, asked: Mapping[str | None, Asked] | Asked, by: By, options: Options) -> Question:
    """Return the question that a call means, or say what is missing; without a name an aggregate has its column's."""
    named = {None: asked} if isinstance(asked, Asked) else dict(asked)
    check_options(options, ", ".join(one.kind for one in named.values()))
    session, unit, rows = view.session, view.unit, view.rows
    schema = rows.schema
    check_unit(unit, schema)
    keys, key_columns = keys_of(by, view)
    expressions: dict[str, Expression] = {}
    aggregates = tuple(aggregate_of(name, one, view, expressions) for name, one in named.items())
    interval = _interval(options, aggregates)
    _check_names(aggregates, keys, intervals=interval is not None)
    domain, domain_rule = domain_of(options, keys)
    max_groups, groups_rule = cap_of(options, "max_groups", session)
    max_rows, rows_rule = cap_of(options, "max_rows_per_group", session)
    query = Query(
        aggregates=aggregates,
        unit=unit,
        keys=keys,
        domain=domain,
        domain_rule=domain_rule,
        max_groups=max_groups,
        max_groups_rule=groups_rule,
        max_rows=max_rows,
        max_rows_rule=rows_rule,
        min_units=count_of(options.get("min_units", 1), "min_units"),
        interval=interval,
        nonnegative=flag_of(options.get("nonnegative", False), "nonnegative"),
        spend=spend_of(options, session, with_error=True),
        steps=view.steps,
        unchecked=view.unchecked,
        integer_unit=is_integer(unit, schema),
        rollup=flag_of(options.get("rollup", False), "rollup"),
        unfolded=isinstance(asked, Asked),
    )
    plan = plan_of(query, view.terms)
    return Question(plan, engine_rows(view, key_columns, expressions, plan), session)


def engine_rows(
    view: View, keys: Sequence[CheckedExpression], expressions: Mapping[str, Expression], plan: Plan
) -> PrivateRows:
    """Return the rows with the columns that a bounded request names."""
    made = unit_columns(view)
    made |= {f"key{i}": item.tree for i, item in enumerate(keys)}
    made |= {f"value{i}": expressions[one.expression] for i, one in enumerate(plan.columns)}
    return view.rows.make(made, keep=False)


def unit_columns(view: View, prefix: str = "") -> dict[str, Expression]:
    """Return the columns that say whose a row is, by the names that engines know them by."""
    schema = view.rows.schema
    return {f"{prefix}unit{i}": Column(name, schema[name]) for i, name in enumerate(view.unit)}


def aggregate_of(name: str | None, asked: Asked, view: View, expressions: dict[str, Expression]) -> Aggregate:
    """Return one aggregate, checked; its value expressions are added to `expressions` by their canonical text."""
    schema = view.rows.schema
    if asked.per not in ("row", "unit"):
        raise InvalidParameterError(f"per must be 'row' or 'unit', got {asked.per!r}.")
    if asked.per == "unit" and asked.kind != "sum":
        raise InvalidParameterError(f"per='unit' clips each unit's total, which only a sum has, not a {asked.kind}.")
    pairs = [isinstance(own, tuple | list) or own in (None, "auto") for own in asked.bounds]
    if len(asked.columns) > 1 and (len(pairs) != len(asked.columns) or not all(pairs)):
        raise InvalidParameterError("bounds= of two columns is a pair for each: bounds=((0, 1), (0, 100)).")
    values: list[Value] = []
    for column, bounds in zip_longest(asked.columns, asked.bounds):
        checked = check_expression(column, schema=schema, what=asked.kind)
        values.append(value_of(checked, checked.dtype, asked, bounds))
        expressions[checked.canonical] = _plain(checked.tree)
    quantiles, several = quantiles_of(asked)
    ddof = asked.ddof
    if not isinstance(ddof, int) or isinstance(ddof, bool) or not 0 <= ddof <= 1000:
        raise InvalidParameterError("ddof= is a whole number, 1 for a sample and 0 for a population.")
    own = asked.kind if not values or asked.kind == "count" or len(values) > 1 else values[0].name
    return Aggregate(
        kind=asked.kind,
        name=own if name is None else name,
        values=tuple(values),
        per=asked.per,
        quantiles=quantiles,
        several=several,
        ddof=ddof,
        edges=edges_of(asked, values[0]) if values else (),
        weight=positive(asked.weight, "weight"),
    )


def _plain(tree: Expression) -> Expression:
    """Return a value column in a type that engines take: a category's number depends on other rows."""
    if tree.dtype == pl.Categorical:
        return apply("cast", tree, to=pl.String())
    return apply("cast", tree, to=pl.Int8()) if tree.dtype == pl.Boolean else tree


def _check_names(aggregates: Sequence[Aggregate], keys: Sequence[Key], *, intervals: bool) -> None:
    names = [key.name for key in keys]
    for one in aggregates:
        own = [one.name, f"{one.name}_low", f"{one.name}_high"]
        if len(aggregates) == 1:
            own += {"histogram": [*BIN, "count"], "linear_regression": list(REGRESSION)}.get(one.kind, [])
        clash = set(own) & set(names)
        if clash:
            raise InvalidParameterError(
                f"{', '.join(sorted(clash))} is the name of a key and of the answer, or of two answers; give one an "
                "alias."
            )
        names += own[:3] if intervals else own[:1]


def _interval(options: Options, aggregates: Sequence[Aggregate]) -> float | None:
    confidence = options.get("confidence")
    if confidence is None:
        return None
    without = [one.kind for one in aggregates if one.kind in WITHOUT_INTERVAL]
    if len(without) == len(aggregates):
        raise InvalidParameterError(f"No interval is known for a {' or '.join(without)}; ask without confidence=.")
    return probability_of(confidence, "confidence")


def keys_of(by: By, view: View, what: str = "by") -> tuple[tuple[Key, ...], list[CheckedExpression]]:
    """Return grouping keys, checked."""
    listed = [] if by is None else [by] if isinstance(by, pl.Expr | str) else list(by)
    schema = view.rows.schema
    checked = [check_expression(item, schema=schema, what=what) for item in listed]
    keys: list[Key] = []
    columns: list[CheckedExpression] = []
    for item in checked:
        dtype = item.dtype
        if isinstance(dtype, pl.Categorical):  # its codes follow the data; released keys are text
            item, dtype = replace(item, tree=apply("cast", item.tree, to=pl.String())), pl.String()
        columns.append(item)
        if item.columns & set(view.unit):
            raise InvalidParameterError(
                f"Grouping by {item.name} reads the unit column: every group would be one person. Group by "
                "something that many people share."
            )
        if dtype.is_float() or dtype.is_nested() or dtype in (pl.Object, pl.Null, pl.Int128, pl.UInt128):
            raise InvalidParameterError(
                f"{item.name} has the type {dtype}, which can't be a grouping key. Cast, round or bin it first."
            )
        constant = item.columns <= set(view.session.defaults.per_unit) and bool(item.columns)
        keys.append(Key(name=item.name, expression=item.canonical, dtype=dtype, constant_per_unit=constant))
    if len({key.name for key in keys}) < len(keys):
        raise InvalidParameterError("by= has two keys of the same name; give one an alias.")
    return tuple(keys), columns


def check_unit(unit: tuple[str, ...], schema: pl.Schema) -> None:
    """Refuse unit columns that can't be told apart by their value alone: a list of categories hashes by its numbers."""
    for name in unit:
        if schema[name].is_nested() or schema[name] in (pl.Object, pl.Null, pl.Unknown):
            raise InvalidParameterError(
                f"{name} says who is protected, but has the type {schema[name]}, by which units can't be told apart. "
                "Make it a number, a text or a date before .dp."
            )


def is_integer(unit: tuple[str, ...], schema: pl.Schema) -> bool:
    """Whether a unit is one column that is stored as 64-bit integers at most."""
    return stored_as_integers(schema[unit[0]]) if len(unit) == 1 else not unit
