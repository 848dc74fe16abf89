"""`cut=True`: counts of the units that caps and bounds cut, beside the answers of a question."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import reduce

import polars as pl

from dp_polars._aggregates.base import Aggregate, RowRule
from dp_polars._aggregates.cut import CUT_BY_BOUNDS, CUT_BY_CAP, CUT_SHARE, CutByBounds, CutByCap
from dp_polars._aggregates.values import Value
from dp_polars._expressions import Constant, Expression, apply, canonical
from dp_polars._frame.options import Options
from dp_polars.errors import InvalidParameterError


def with_cut(
    aggregates: tuple[Aggregate, ...], options: Options, unit: tuple[str, ...], expressions: dict[str, Expression]
) -> tuple[Aggregate, ...]:
    """Return the aggregates with counts of the units that caps and bounds cut, for a tenth of the spend in all.

    Bounds that are to be estimated are not known yet, so what they cut is not counted.
    """
    if options.get("within") is not None:
        raise InvalidParameterError("within= is the wanted error of one answer. With cut=True, say epsilon= or share=.")
    found: list[Aggregate] = []
    if unit and any(aggregate.row_rule not in (RowRule.ONCE, RowRule.CLIP_TOTAL) for aggregate in aggregates):
        found.append(CutByCap(name=CUT_BY_CAP))
    clipped = {
        (value.expression, value.bounds): value
        for aggregate in aggregates
        for value in aggregate.values
        if value.bounds is not None and not value.auto and aggregate.row_rule is not RowRule.CLIP_TOTAL
    }
    outside = [is_outside(expressions[value.expression], value) for value in clipped.values()]
    if outside:
        tree = apply("cast", reduce(lambda one, other: apply("or", one, other), outside), to=pl.Int8())
        expressions[canonical(tree)] = tree
        zero_or_one = (Fraction(0), Fraction(1))
        value = Value(name=CUT_BY_BOUNDS, expression=canonical(tree), dtype=pl.Int8(), bounds=zero_or_one)
        found.append(CutByBounds(name=CUT_BY_BOUNDS, values=(value,)))
    if not found:
        raise InvalidParameterError(
            "cut=True counts the units that max_rows_per_group or bounds cut, but this question has neither, or bounds "
            "that are still to be estimated. Leave cut= out."
        )
    whole = sum((aggregate.weight for aggregate in aggregates), Fraction(0))
    weight = whole * CUT_SHARE / (1 - CUT_SHARE) / len(found)
    return (*aggregates, *(replace(one, weight=weight) for one in found))


def is_outside(tree: Expression, value: Value) -> Expression:
    """Return whether a value lies outside its bounds, as an expression. It is false or null if there is no value."""
    lower, upper = value.lower, value.upper
    if tree.dtype.is_float():
        ends = [Constant(float(one), pl.Float64()) for one in (lower, upper)]
    else:
        dtype = pl.Int64() if tree.dtype.is_integer() else tree.dtype
        ends = [Constant(math.ceil(lower), dtype), Constant(math.floor(upper), dtype)]
    outside = apply("or", apply("lt", tree, ends[0]), apply("gt", tree, ends[1]))
    if tree.dtype.is_float():  # NaN is not a value, but Polars sorts it above all others
        outside = apply("and", apply("not", apply("is_nan", tree)), outside)
    return outside
