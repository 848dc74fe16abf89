"""`cut=True`: counts of the units that caps and bounds cut, beside the answers of a question."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import polars as pl

from dp_polars._aggregates.base import Aggregate, RowRule
from dp_polars._aggregates.cut import CUT_BY_BOUNDS, CUT_BY_CAP, CUT_SHARE, CutByBounds, CutByCap, outside_bounds
from dp_polars._aggregates.values import Value
from dp_polars._expressions import Expression, canonical
from dp_polars._frame.options import Options
from dp_polars.errors import InvalidParameterError


def with_cut(
    aggregates: tuple[Aggregate, ...], options: Options, expressions: dict[str, Expression], *, capped: bool
) -> tuple[Aggregate, ...]:
    """Return the aggregates with counts of the units that caps and bounds cut, for a tenth of the spend in all.

    `capped` tells whether a unit can have more rows in a group than a cap allows. For bounds that are to be estimated,
    the range in which they are looked for stands in until they are known.
    """
    if options.get("within") is not None:
        raise InvalidParameterError("within= is the wanted error of one answer. With cut=True, say epsilon= or share=.")
    found: list[Aggregate] = []
    if capped and any(aggregate.row_rule not in (RowRule.ONCE, RowRule.CLIP_TOTAL) for aggregate in aggregates):
        found.append(CutByCap(name=CUT_BY_CAP))
    outside = outside_bounds(aggregates, expressions.__getitem__)
    if outside is not None:
        expressions[canonical(outside)] = outside
        zero_or_one = (Fraction(0), Fraction(1))
        value = Value(name=CUT_BY_BOUNDS, expression=canonical(outside), dtype=pl.Int8(), bounds=zero_or_one)
        found.append(CutByBounds(name=CUT_BY_BOUNDS, values=(value,)))
    if not found:
        raise InvalidParameterError(
            "cut=True counts the units that max_rows_per_group or bounds cut, but this question has neither. Leave "
            "cut= out."
        )
    whole = sum((aggregate.weight for aggregate in aggregates), Fraction(0))
    weight = whole * CUT_SHARE / (1 - CUT_SHARE) / len(found)
    return (*aggregates, *(replace(counted, weight=weight) for counted in found))
