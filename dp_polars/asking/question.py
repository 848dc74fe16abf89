"""From a user's words to a question: a planned query and the rows it will be asked of. Nothing is read or spent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import polars as pl

from dp_polars.accounting.session import Session
from dp_polars.asking.expressions import CheckedExpression, check_expression
from dp_polars.asking.options import By, ExpressionLike, Options, cap_of, check_options, domain_of, spend_of
from dp_polars.engines.request import stored_as_integers
from dp_polars.errors import InvalidParameterError
from dp_polars.planning.plan import Plan, plan_of
from dp_polars.planning.query import Aggregate, Key, Query, Value
from dp_polars.quantities import Number, count_of, exact, flag_of, probability_of


@dataclass(frozen=True)
class View:
    """What a question sees of a private frame: its rows and steps, who is protected and who pays."""

    rows: pl.LazyFrame
    steps: tuple[str, ...]
    unchecked: bool
    unit: tuple[str, ...]
    session: Session


@dataclass(frozen=True)
class Question:
    """A planned query and the rows it will be asked of."""

    plan: Plan
    rows: pl.LazyFrame
    session: Session


def question_of(
    view: View,
    aggregate: Aggregate,
    by: By,
    column: ExpressionLike | None,
    bounds: tuple[Number, Number] | None,
    per: Literal["row", "unit"],
    options: Options,
) -> Question:
    """Return the question that a call means, or say what is missing."""
    check_options(options, aggregate)
    session, unit, rows, checked = view.session, view.unit, view.rows, None
    _check_unit(unit, rows.collect_schema())
    if column is not None:
        checked = check_expression(column, schema=rows.collect_schema(), what=aggregate)
    keys, key_columns = _keys(by, view)
    selected = [pl.col(name).alias(f"unit{i}") for i, name in enumerate(unit)]
    selected += [item.expr.alias(f"key{i}") for i, item in enumerate(key_columns)]
    value = None
    if checked is not None and aggregate != "count":
        value = _value(view, checked, aggregate, bounds, per)
        selected.append(checked.expr.alias("value"))
    elif checked is not None:
        rows = rows.filter(_has_value(rows, checked))
    if not unit:
        selected.append(pl.nth(0).is_null().alias("row"))  # a column of the frame: literals alone would be one row
    name = aggregate if value is None or checked is None else checked.name
    clash = {name, f"{name}_low", f"{name}_high"} & {key.name for key in keys}
    if clash:
        raise InvalidParameterError(
            f"{', '.join(sorted(clash))} is the name of a key and of the answer; give one an alias."
        )
    domain, domain_rule = domain_of(options, keys)
    max_groups, groups_rule = cap_of(options, "max_groups", session)
    max_rows, rows_rule = cap_of(options, "max_rows_per_group", session)
    confidence = options.get("confidence")
    counted = () if checked is None or value is not None else (f"not null: {checked.canonical}",)
    query = Query(
        aggregate=aggregate,
        name=name,
        unit=unit,
        keys=keys,
        domain=domain,
        domain_rule=domain_rule,
        value=value,
        max_groups=max_groups,
        max_groups_rule=groups_rule,
        max_rows=max_rows,
        max_rows_rule=rows_rule,
        min_units=count_of(options.get("min_units", 1), "min_units"),
        interval=None if confidence is None else probability_of(confidence, "confidence"),
        nonnegative=flag_of(options.get("nonnegative", False), "nonnegative"),
        spend=spend_of(options, session),
        steps=view.steps + counted,
        unchecked=view.unchecked,
        integer_unit=_is_integer(unit, rows.collect_schema()),
    )
    return Question(plan_of(query, session.terms), rows.select(selected), session)


def _keys(by: By, view: View) -> tuple[tuple[Key, ...], list[CheckedExpression]]:
    listed = [] if by is None else [by] if isinstance(by, pl.Expr | str) else list(by)
    schema = view.rows.collect_schema()
    checked = [check_expression(item, schema=schema, what="by") for item in listed]
    types = view.rows.select([item.expr for item in checked]).collect_schema() if checked else pl.Schema()
    keys: list[Key] = []
    columns: list[CheckedExpression] = []
    for item in checked:
        dtype = types[item.name]
        if isinstance(dtype, pl.Categorical):  # its codes follow the data; released keys are text
            item, dtype = replace(item, expr=item.expr.cast(pl.String)), pl.String()
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


def _check_unit(unit: tuple[str, ...], schema: pl.Schema) -> None:
    """Refuse unit columns that can't be told apart by their value alone: a list of categories hashes by its numbers."""
    for name in unit:
        if schema[name].is_nested() or schema[name] in (pl.Object, pl.Null, pl.Unknown):
            raise InvalidParameterError(
                f"{name} says who is protected, but has the type {schema[name]}, by which units can't be told apart. "
                "Make it a number, a text or a date before .dp."
            )


def _is_integer(unit: tuple[str, ...], schema: pl.Schema) -> bool:
    """Whether a unit is one column that is stored as 64-bit integers at most."""
    return stored_as_integers(schema[unit[0]]) if len(unit) == 1 else not unit


def _has_value(rows: pl.LazyFrame, checked: CheckedExpression) -> pl.Expr:
    """Return where a column has a value; NaN counts as null."""
    present = checked.expr.is_not_null()
    if rows.select(checked.expr).collect_schema()[checked.name].is_float():
        present &= checked.expr.is_not_nan()
    return present


def _value(
    view: View,
    checked: CheckedExpression,
    aggregate: str,
    bounds: tuple[Number, Number] | None,
    per: Literal["row", "unit"],
) -> Value:
    if per not in ("row", "unit"):
        raise InvalidParameterError(f"per must be 'row' or 'unit', got {per!r}.")
    dtype = view.rows.select(checked.expr).collect_schema()[checked.name]
    if not (dtype.is_integer() or dtype.is_float()) or dtype in (pl.Int128, pl.UInt128):
        raise InvalidParameterError(
            f"{checked.name} has the type {dtype}; a {aggregate} needs integers or floats. Cast it first."
        )
    if bounds is None:
        raise InvalidParameterError(
            f"Which values of {checked.name} count at most? Say bounds=(0, 100): values beyond are clipped, and "
            "the bounds decide the noise. They must not be read off the data."
        )
    if not isinstance(bounds, tuple | list) or len(bounds) != 2 or None in bounds:
        raise InvalidParameterError("bounds= is a pair of numbers, the least and the largest: bounds=(0, 100).")
    lower, upper = exact(bounds[0], "bounds[0]"), exact(bounds[1], "bounds[1]")
    if not lower < upper:
        raise InvalidParameterError("bounds=(lower, upper) needs lower < upper.")
    if not Fraction(1, 10**100) < max(abs(lower), abs(upper)) <= 10**15:
        raise InvalidParameterError("bounds= must lie within -1e15 and 1e15, and not both so close to 0.")
    return Value(expression=checked.canonical, lower=lower, upper=upper, integers=dtype.is_integer(), per=per)
