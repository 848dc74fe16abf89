"""Turn the arguments of aggregates into a planned question and the rows that it needs. Nothing is read or spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import polars as pl

from dp_polars._aggregates.base import Aggregate, AggregateCall, Shape
from dp_polars._aggregates.values import Value
from dp_polars._engines.normal_form import normal_form
from dp_polars._engines.nulls import is_never_null
from dp_polars._engines.registry import engine_for
from dp_polars._engines.request import stored_as_integers
from dp_polars._engines.rows import PrivateRows, refuse_broken
from dp_polars._engines.unit_steps import why_steps_are_safe
from dp_polars._expressions import Column, Expression, apply
from dp_polars._expressions.check import CheckedExpression, check_expression
from dp_polars._frame.adopted import adopted_bounds, adopted_caps, adopted_domain, known_cuts, line_to_add
from dp_polars._frame.cut import with_cut
from dp_polars._frame.options import By, Options, check_options, fresh_of, is_set, labelled, spend_of
from dp_polars._frame.question import TableQuestion, View
from dp_polars._numbers import confidence_of, count_of
from dp_polars._plan.contribution import needs_group_cap
from dp_polars._plan.digest import public_digest
from dp_polars._plan.draw import draw_fingerprint
from dp_polars._plan.plan import Plan, plan_of
from dp_polars._plan.query import Key, Query
from dp_polars._release.answers import result_schema
from dp_polars._release.charge import Identity
from dp_polars._release.expected_error import plan_within, with_group_size
from dp_polars._release.run import ExactAnswers, QueryRun, run_plan
from dp_polars._session.releases import Release
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError


@dataclass(frozen=True)
class AggregateQuestion(TableQuestion[Plan]):
    """Planned aggregates, and the rows with the columns that the engine reads."""

    engine: ExactAnswers | None = None
    """The engine that aggregates the rows; None for the one that reads their source."""

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The names and types of the released table, known before it exists."""
        return result_schema(self.plan)

    def release(self, identity: Identity) -> Release:
        """Return the stored release of this question, or charge its price and make one."""
        return run_plan(self._run(), self.session, identity=identity, fresh=self.fresh)

    def _run(self) -> QueryRun:
        drawn = draw_fingerprint(self.plan, normal_form(self.rows, public_digest))
        return QueryRun(self.plan, self.rows, self.engine or engine_for(self.rows).aggregate, drawn)


def question_of(
    view: View, asked: Mapping[str | None, AggregateCall] | AggregateCall, by: By, options: Options
) -> AggregateQuestion:
    """Return the planned question of a call, or raise an error that says what is missing.

    A single aggregate, or one whose name is None, is named after its column.
    """
    named = {None: asked} if isinstance(asked, AggregateCall) else dict(asked)
    check_options(options, ", ".join(call.aggregate.kind for call in named.values()))
    session, unit, rows = view.session, view.unit, view.rows
    schema = rows.schema
    check_unit(unit, schema)
    keys, key_columns = keys_of(by, view, public=options.get("keys") is not None)
    expressions: dict[str, Expression] = {}
    aggregates = tuple(aggregate_of(name, call, view, expressions) for name, call in named.items())
    trees = [item.tree for item in key_columns]
    domain, domain_rule = adopted_domain(options, keys, trees, view)
    caps = adopted_caps(options, view, trees, aggregates, public=domain is not None)
    if is_set(options, "cut"):
        capped = bool(unit) and not caps.rows.from_steps
        aggregates = with_cut(aggregates, options, expressions, capped=capped)
    interval = _interval(options)
    aggregates = tuple(aggregate.beside(aggregates, interval) for aggregate in aggregates)
    _check_interval(interval, aggregates)
    _check_names(aggregates, keys, intervals=interval is not None)
    query = Query(
        aggregates=aggregates,
        unit=unit,
        keys=keys,
        domain=domain,
        domain_rule=domain_rule,
        max_groups=caps.groups.most,
        max_groups_rule=caps.groups.rule,
        groups_from_steps=caps.groups.from_steps,
        max_rows=caps.rows.most,
        max_rows_rule=caps.rows.rule,
        rows_from_steps=caps.rows.from_steps,
        within_units=why_steps_are_safe(view.rows, unit),
        min_units=count_of(options["min_units"], "min_units") if "min_units" in options else 1,
        interval=interval,
        nonnegative=is_set(options, "nonnegative"),
        spend=spend_of(options, session, with_error=True, instead=view.spend),
        steps=view.steps,
        unchecked=view.unchecked,
        integer_unit=is_integer(unit, schema),
        rollup=is_set(options, "rollup"),
        unfolded=isinstance(asked, AggregateCall),
    )
    # A unit that has one group anyway has all of its rows there.
    query = replace(query, across=caps.across and needs_group_cap(query))
    with line_to_add(view, *trees):
        plan = labelled(_planned(query, view.terms, options.get("if_rows"), view.if_rows), options)
    plan = replace(plan, profile=known_cuts(view, trees, expressions))
    rows = engine_rows(view, key_columns, expressions, plan.columns)
    return AggregateQuestion(plan, rows, session, fresh_of(options))


def _planned(query: Query, terms: Terms, if_rows: int | None, usual: int | None) -> Plan:
    """Return the plan of a query. With `if_rows`, it knows the error of every answer in a group of that size.

    `usual` is the size that a dashboard names for all its questions. It is used where the error can be computed, and
    ignored elsewhere.
    """
    wanted = usual if if_rows is None else if_rows
    if wanted is None:
        return plan_of(query, terms)
    rows = count_of(wanted, "if_rows")
    depends_on_data = any(aggregate.shape is not Shape.LINEAR for aggregate in query.aggregates)
    if query.spend.within is not None and depends_on_data:
        return plan_within(query, terms, rows)
    plan = plan_of(query, terms)
    if if_rows is None and (plan.estimates or query.rollup):
        return plan
    return with_group_size(plan, rows)


def engine_rows(
    view: View, keys: Sequence[CheckedExpression], expressions: Mapping[str, Expression], columns: Sequence[Value]
) -> PrivateRows:
    """Return the rows with the columns that a bounded request names."""
    trees = {f"key{i}": item.tree for i, item in enumerate(keys)}
    values = {f"value{i}": expressions[value.expression] for i, value in enumerate(columns)}
    return view.rows.make(unit_columns(view) | trees | values, keep=False)


def unit_columns(view: View, prefix: str = "") -> dict[str, Expression]:
    """Return the unit columns of the rows, under the names that engines use."""
    schema = view.rows.schema
    return {f"{prefix}unit{i}": Column(name, schema[name]) for i, name in enumerate(view.unit)}


def aggregate_of(name: str | None, call: AggregateCall, view: View, expressions: dict[str, Expression]) -> Aggregate:
    """Check one aggregate and return it. Add the expressions it reads to `expressions`, by their canonical text."""
    aggregate, schema = call.aggregate, view.rows.schema
    pairs = [isinstance(bounds, tuple | list) or bounds in (None, "auto") for bounds in call.bounds]
    if len(aggregate.columns) > 1 and (len(pairs) != len(call.columns) or not all(pairs)):
        raise InvalidParameterError("bounds= takes a pair for each of the two columns: bounds=((0, 1), (0, 100)).")
    values: list[Value] = []
    for column, bounds in zip_longest(call.columns, call.bounds):
        plain = check_expression(column, schema=schema, what=call.kind)
        # A profile suggests bounds for the values of rows, not for the totals of units.
        usable = bounds is None and aggregate.bounded and call.options.get("per", "row") == "row"
        adopted = adopted_bounds(view, plain.tree, can_estimate=True) if usable else None
        given = bounds if adopted is None else adopted[0]
        checked = aggregate.prepared(plain, given)
        with line_to_add(view, plain.tree):
            value = aggregate.value(checked, given, call)
        values.append(value if adopted is None else replace(value, bounds_rule=adopted[1]))
        expressions[checked.canonical] = plain_value(checked.tree)
    answer_name = aggregate.default_name(tuple(value.name for value in values)) if name is None else name
    return aggregate.parse(call, answer_name, tuple(values))


def plain_value(tree: Expression) -> Expression:
    """Return a value column in a type that engines take. Categories become text: their codes depend on other rows."""
    if tree.dtype == pl.Categorical:
        return apply("cast", tree, to=pl.String())
    return apply("cast", tree, to=pl.Int8()) if tree.dtype == pl.Boolean else tree


def _check_names(aggregates: Sequence[Aggregate], keys: Sequence[Key], *, intervals: bool) -> None:
    names = [key.name for key in keys]
    for aggregate in aggregates:
        columns = list(aggregate.schema(interval=intervals))
        extra = list(aggregate.unfolded_schema(interval=True)) if len(aggregates) == 1 else []
        clash = {
            aggregate.name,
            f"{aggregate.name}_low",
            f"{aggregate.name}_high",
            *aggregate.interval_schema(),
            *columns,
            *extra,
        } & set(names)
        if clash:
            raise InvalidParameterError(
                f"{', '.join(sorted(clash))} is the name of a key and of the answer, or of two answers. Give one of "
                "them an alias."
            )
        names += columns
    refuse_broken(names)


def _interval(options: Options) -> float | None:
    confidence = options.get("confidence")
    return None if confidence is None else confidence_of(confidence)


def _check_interval(interval: float | None, aggregates: Sequence[Aggregate]) -> None:
    """Refuse confidence= if no answer has an interval."""
    if interval is not None and not any(aggregate.interval_schema() for aggregate in aggregates):
        column = next(value.name for aggregate in aggregates for value in aggregate.values)
        raise InvalidParameterError(
            "The ranks of several quantiles are known as fractions of the rows, but this question doesn't count the "
            f"rows. Ask for dp.count({column!r}) in the same agg(...), or for one quantile at a time, or say "
            "interval='value'."
        )


def keys_of(
    by: By, view: View, what: str = "by", *, public: bool = False
) -> tuple[tuple[Key, ...], list[CheckedExpression]]:
    """Check grouping keys and return them, with their expressions. With `public` keys, they are listed beforehand.

    A key that is a function of the unit alone (an experiment arm that is chosen by a hash of the user) gives each unit
    one group. It is accepted if the keys are public. The unit itself would make every group one person.
    """
    listed = [] if by is None else list(by) if isinstance(by, Iterable) and not isinstance(by, str) else [by]
    schema = view.rows.schema
    checked = [check_expression(item, schema=schema, what=what) for item in listed]
    keys: list[Key] = []
    columns: list[CheckedExpression] = []
    for item in checked:
        dtype = item.dtype
        if isinstance(dtype, pl.Categorical):  # its codes depend on the data, so released keys are text
            item, dtype = replace(item, tree=apply("cast", item.tree, to=pl.String())), pl.String()
        columns.append(item)
        of_unit = bool(item.columns) and item.columns <= set(view.unit)
        listed_keys = public or dtype == pl.Boolean or isinstance(dtype, pl.Enum)
        whole = len(view.unit) == 1 and isinstance(item.tree, Column)
        if item.columns & set(view.unit) and not (of_unit and listed_keys and not whole):
            raise InvalidParameterError(
                f"Grouping by {item.name} reads the unit column: every group would be one person. Group by "
                "something that many people share. A function of the unit, such as an experiment arm, needs public "
                "keys: keys=[...]."
            )
        if dtype.is_float() or dtype.is_nested() or dtype in (pl.Object, pl.Null, pl.Int128, pl.UInt128):
            raise InvalidParameterError(
                f"{item.name} has the type {dtype}, which can't be a grouping key. Cast, round or bin it first."
            )
        function = of_unit or (item.columns <= {*view.unit, *view.unit_functions} and bool(item.columns))
        constant = item.columns <= {*view.defaults.per_unit, *view.unit_functions} and bool(item.columns)
        nullable = not is_never_null(item.tree, view.rows)
        keys.append(
            Key(
                name=item.name,
                expression=item.canonical,
                dtype=dtype,
                constant_per_unit=function or constant,
                nullable=nullable,
                function_of_unit=function,
            )
        )
    if len({key.name for key in keys}) < len(keys):
        raise InvalidParameterError("by= has two keys with the same name. Give one of them an alias.")
    return tuple(keys), columns


def check_unit(unit: tuple[str, ...], schema: pl.Schema) -> None:
    """Refuse unit columns whose values can't be compared by themselves, such as a list of categories."""
    for name in unit:
        if schema[name].is_nested() or schema[name] in (pl.Object, pl.Null, pl.Unknown):
            raise InvalidParameterError(
                f"{name} says who is protected, but units can't be told apart by values of type {schema[name]}. "
                "Make it a number, a text or a date before .dp."
            )


def is_integer(unit: tuple[str, ...], schema: pl.Schema) -> bool:
    """Return whether a unit is a row, or one column that is stored as integers of at most 64 bits."""
    return stored_as_integers(schema[unit[0]]) if len(unit) == 1 else not unit
