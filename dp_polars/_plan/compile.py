"""What each aggregate needs of an engine, and what of that gets noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from dp_polars._engines.request import HASH_BITS, Cells, Sum, ValueColumn
from dp_polars._plan.contribution import Bounds, RowCap, row_cap_of
from dp_polars._plan.grid import COUNTS, Grid, Scaling, grid_of, scaling_of
from dp_polars._plan.lanes import (
    Building,
    column_of,
    degree_of,
    lane_of_expression,
    noisy_sum,
    shares_rows,
    value_lane,
)
from dp_polars._plan.needs import Form, Made, Piece, Pieces
from dp_polars._plan.query import Aggregate, Query, Value
from dp_polars._plan.sensitivity import choice_prices, sensitivity_of_bins
from dp_polars._session.terms import Terms

_FREE = 1 << 61  # a unit's total is clipped, not its rows: these only keep sums from wrapping

# With the true mean anywhere in the bounds, the error of a ratio of a noisy sum about the middle and a noisy count is
# least when the sum gets this part of the spend: 1 / (1 + (1/3)**(1/3)).
_MEAN = {"x": Fraction(3, 5), "rows": Fraction(2, 5)}
# A variance is the mean of squares less the square of the mean. By the derivatives, for values spread over the bounds,
# the errors weigh about 1/2 (squares, centred), 1/2 (the sum, by twice the mean) and 1/4 (the count); the whole error
# is least when parts go with the cube roots of their squares.
_VARIANCE = {"xx": Fraction(8, 20), "x": Fraction(7, 20), "rows": Fraction(5, 20)}
_PAIR = {
    "xy": Fraction(5, 20), "xx": Fraction(4, 20), "yy": Fraction(4, 20), "x": Fraction(2, 20), "y": Fraction(2, 20),
    "rows": Fraction(3, 20),
}  # fmt: skip
_COVARIANCE = {"xy": Fraction(8, 20), "x": Fraction(4, 20), "y": Fraction(4, 20), "rows": Fraction(4, 20)}


def pieces_of(query: Query, bounds: Bounds, terms: Terms, form: Form, *, scales: bool = True) -> Pieces:
    """Return the lanes and pieces of a query; unless it `scales`, rows beyond a cap are left out, not scaled down."""
    build = Building(query, bounds, terms, form, scales)
    whole = sum((one.weight for one in query.aggregates), Fraction(0))
    # Values first, so that counts of rows find a lane to share.
    order = sorted(range(len(query.aggregates)), key=lambda i: not query.aggregates[i].values)
    made: dict[int, Made] = {}
    for i in order:
        one = query.aggregates[i]
        cap = row_cap_of(query, one)
        made[i] = Made(aggregate=one, cap=cap, pieces=_make(build, one, cap, one.weight / whole))
    counted = max(
        (one for one in build.pieces.values() if one.source == "basis" or one.what in ("rows", "units")),
        key=lambda piece: piece.weight,
        default=None,
    )
    units = _units(build, None if counted is None else counted.name) if query.keys and query.domain is None else ""
    return Pieces(
        lanes=tuple(build.lanes),
        pieces=tuple(build.pieces.values()),
        made=tuple(made[i] for i in range(len(query.aggregates))),
        columns=tuple(build.columns),
        counted=None if counted is None else counted.name,
        units=units,
    )


def _units(build: Building, counted: str | None) -> str:
    """Ask for the number of units of each group, over the rows that the counted piece counts."""
    own = {*build.pieces[counted].columns, counted} if counted is not None else set()
    for lane, known in enumerate(build.lanes):
        for one in known.sums:
            if one.name in own:
                return build.sum(lane, Sum(name="", of="units", everyone=one.everyone))
    return build.sum(0, Sum(name="", of="units"))


def _make(build: Building, one: Aggregate, cap: RowCap, weight: Fraction) -> dict[str, str]:
    match one.kind:
        case "count" | "count_units":
            return _counts(build, one, cap, weight)
        case "n_unique":
            return _distinct(build, one, cap, weight)
        case "histogram":
            return _bins(build, one, cap, weight)
        case "quantile" | "median" | "min" | "max":
            return _choices(build, one, cap, weight)
        case "sum" if one.per == "unit":
            return _clipped_totals(build, one, cap, weight)
        case "sum":
            return _sum(build, one, cap, weight)
        case "mean" | "var" | "std" if build.form == "basis":
            return _basis(build, one, one.values, cap, weight)
        case "mean":
            return _ratios(build, one, cap, weight, _MEAN)
        case "var" | "std":
            return _ratios(build, one, cap, weight, _VARIANCE)
        case "cov":
            return _ratios(build, one, cap, weight, _COVARIANCE)
        case "corr" | "linear_regression":
            return _ratios(build, one, cap, weight, _PAIR)


def _counts(build: Building, one: Aggregate, cap: RowCap, weight: Fraction) -> dict[str, str]:
    of: Literal["rows", "units"] = "rows" if one.kind == "count" else "units"
    shared = _with_basis(build, one.values[0]) if one.values and of == "rows" and build.form == "basis" else None
    if shared is not None:
        return _basis(build, one, (shared,), cap, weight)
    if one.values:
        lane = lane_of_expression(build, one.values[0])
        everyone = False
    else:
        found = next((i for i, known in enumerate(build.lanes) if shares_rows(known)), None)
        lane = build.lane("rows", (), ()) if found is None else found
        everyone = True
    if not build.lanes[lane].columns:
        everyone = False
    name = build.sum(lane, Sum(name="", of=of, max_rows=cap.enforced, everyone=everyone))
    return {"rows": build.noisy(noisy_sum(build, name, of, weight, COUNTS, cap, 0, 1))}


def _sum(build: Building, one: Aggregate, cap: RowCap, weight: Fraction) -> dict[str, str]:
    """Return the pieces of a sum: about the middle and a count, if that is there anyway; else from 0."""
    value = one.values[0]
    lane = value_lane(build, one.values, cap)
    grid = build.grids[lane][0]
    shared = degree_of(build, value) > 0
    if shared and build.form == "basis":
        return _basis(build, one, one.values, cap, weight)
    if shared and grid.offset:
        return _ratios(build, one, cap, weight, {"x": Fraction(1, 2), "rows": Fraction(1, 2)})
    shift = int(grid.offset / grid.step)
    own = replace(grid, offset=Fraction(0), low=grid.low + shift, high=grid.high + shift)
    scaling = _scaling(build, cap, max(grid.largest, own.largest), grid.exponent)
    name = build.sum(lane, _capped(Sum(name="", of="x", shift=shift), cap, scaling))
    own = scaling.of(own)
    return {"total": build.noisy(noisy_sum(build, name, "sum", weight, own, cap, own.low, own.high))}


def _scaling(build: Building, cap: RowCap, largest: int, exponent: int = 0) -> Scaling:
    if not build.scales:
        return Scaling()
    changed = build.terms.group_size * (2 if build.terms.adjacency == "replace" else 1) * build.bounds.max_groups
    return scaling_of(largest, cap.enforced, groups=changed, exponent=exponent)


def _capped(one: Sum, cap: RowCap, scaling: Scaling) -> Sum:
    return replace(one, max_rows=cap.enforced, fine=scaling.fine, inner=scaling.inner)


def _clipped_totals(build: Building, one: Aggregate, cap: RowCap, weight: Fraction) -> dict[str, str]:
    value = one.values[0]
    grid = grid_of(value, 1, centred=False)
    column = replace(column_of(build.place(value), value, grid), low=-_FREE, high=_FREE)
    lane = build.lane(("totals", value.expression, value.bounds), (column,), (grid,))
    name = build.sum(lane, Sum(name="", of="x", clip=(grid.low, grid.high)))
    return {"total": build.noisy(noisy_sum(build, name, "sum", weight, grid, cap, grid.low, grid.high))}


def _ratios(
    build: Building, one: Aggregate, cap: RowCap, weight: Fraction, parts: dict[str, Fraction]
) -> dict[str, str]:
    """Return sums of powers about the middle of the bounds, and the number of rows."""
    lane = value_lane(build, one.values, cap)
    grids = dict(zip("xy", build.grids[lane], strict=False))
    found = {}
    for what, part in parts.items():
        if what == "rows":
            name = build.sum(lane, Sum(name="", of="rows", max_rows=cap.enforced))
            found["rows"] = build.noisy(noisy_sum(build, name, "rows", weight * part, COUNTS, cap, 0, 1))
            continue
        low, high, centre = _range_of_product([grids[letter] for letter in what])
        exponent = sum(grids[letter].exponent for letter in what)
        scaling = _scaling(build, cap, max(abs(low), abs(high)), exponent)
        name = build.sum(lane, _capped(Sum(name="", of=what, shift=-centre), cap, scaling))  # type: ignore[arg-type]
        offset = grids[what].offset if len(what) == 1 else centre * Fraction(2) ** exponent
        grid = scaling.of(Grid(exponent=exponent, offset=offset, low=low - centre, high=high - centre))
        words = {"x": "sum", "y": "sum of the second"}.get(what, "products" if what == "xy" else "squares")
        found[what] = build.noisy(noisy_sum(build, name, words, weight * part, grid, cap, grid.low, grid.high))
    return found


def _with_basis(build: Building, counted: Value) -> Value | None:
    """Return a value whose basis tells how many rows have a counted one."""
    values = [value for one in build.query.aggregates for value in one.values if value.bounds is not None]
    return next((v for v in values if v.expression == counted.expression and degree_of(build, v)), None)


def _basis(build: Building, one: Aggregate, values: Sequence[Value], cap: RowCap, weight: Fraction) -> dict[str, str]:
    """Return the sums of a basis, which tell rows, sums and squares of a value."""
    lane, degree = value_lane(build, values, cap), degree_of(build, values[0])
    grid = build.grids[lane][0]
    whole = (grid.high - grid.low) ** degree
    scaling = _scaling(build, cap, whole)
    columns = tuple(
        build.sum(lane, _capped(Sum(name="", of="basis", place=place, degree=degree), cap, scaling))
        for place in range(degree + 1)
    )
    whole <<= scaling.fine
    slack = scaling.slack(len(columns))
    piece = Piece(
        name=f"basis{lane}_{degree}",
        source="basis",
        what="rows and sums" if degree == 1 else "rows, sums and squares",
        weight=weight,
        grid=grid,
        max_rows=cap.max_rows,
        sensitivity=sensitivity_of_bins(build.bounds, build.terms, cap.max_rows * whole + slack),
        columns=columns,
        whole=whole,
        slack=slack,
    )
    return {"basis": build.noisy(piece)}


def _range_of_product(grids: Sequence[Grid]) -> tuple[int, int, int]:
    """Return the least and the largest number of steps of a row's product, and the middle; of one value it is 0."""
    if len(grids) == 1:
        return grids[0].low, grids[0].high, 0
    first, second = grids
    corners = [a * b for a in (first.low, first.high) for b in (second.low, second.high)]
    low = 0 if first is second and first.low <= 0 <= first.high else min(corners)
    return low, max(corners), (low + max(corners)) // 2


def _distinct(build: Building, one: Aggregate, cap: RowCap, weight: Fraction) -> dict[str, str]:
    value = one.values[0]
    column = ValueColumn(place=build.place(value), low=0, high=(1 << HASH_BITS) - 1, kind="hash")
    lane = build.lane(("distinct", value.expression), (column,), ())
    name = f"distinct{lane}"
    build.lanes[lane] = replace(build.lanes[lane], cells=Cells(name=name, max_rows=cap.enforced, distinct=True))
    piece = noisy_sum(build, name, "distinct values", weight, COUNTS, cap, 0, 1)
    return {"rows": build.noisy(replace(piece, source="distinct"))}


def _bins(build: Building, one: Aggregate, cap: RowCap, weight: Fraction) -> dict[str, str]:
    value, count = one.values[0], len(one.edges) - 1
    *inner, last = one.edges  # the last bin has both of its edges
    whole = (*(math.ceil(edge) for edge in inner), math.floor(last))
    edges = whole if value.integers else tuple(float(edge) for edge in one.edges)
    column = ValueColumn(place=build.place(value), low=0, high=count - 1, kind="bin", edges=edges)
    lane = build.lane(("bins", value.expression, one.edges), (column,), ())
    name = f"bins{lane}"
    build.lanes[lane] = replace(build.lanes[lane], cells=Cells(name=name, max_rows=cap.enforced))
    piece = Piece(
        name=name,
        source="bins",
        what="rows by bin",
        weight=weight,
        grid=COUNTS,
        max_rows=cap.max_rows,
        sensitivity=sensitivity_of_bins(build.bounds, build.terms, cap.max_rows),
        bins=count,
    )
    return {"bins": build.noisy(piece)}


def _choices(build: Building, one: Aggregate, cap: RowCap, weight: Fraction) -> dict[str, str]:
    """Return the choice of values at quantiles; several share one descent, whose levels are paid for."""
    lane = value_lane(build, one.values, cap)
    name = f"values{lane}"
    build.lanes[lane] = replace(build.lanes[lane], cells=Cells(name=name, max_rows=cap.enforced))
    targets = tuple(sorted(set(one.quantiles)))
    levels = len(targets).bit_length()
    # Others in the place of a unit's rows move a score by 1 (quantiles: by q and 1 - q, in all) or 2 (ends) where rows
    # that are added move it by max(q, 1 - q) or 1. Further levels have targets of their own: at most twice.
    alone = len(targets) == 1 and targets[0] not in (0, 1)
    replacement = 1 / max(targets[0], 1 - targets[0]) if alone else Fraction(2)
    pure, squared = choice_prices(build.bounds, build.terms, replacement)
    own = f"{name}_{'_'.join(str(target) for target in targets)}"
    piece = Piece(
        name=own,
        source="choice",
        what="values",
        weight=weight,
        grid=build.grids[lane][0],
        max_rows=cap.max_rows,
        prices=(pure * levels, squared * levels),
        targets=targets,
    )
    return {"values": build.noisy(piece), "cells": name}
