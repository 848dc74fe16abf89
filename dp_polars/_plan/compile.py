"""The compiler: from the needs of all aggregates to what an engine computes and what gets noise.

Aggregates of the same value share a lane, so one sort gives its rows, sums, squares and values. A statistic that
several aggregates need (a mean and a count of the same values) is computed once and gets the shares of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dp_polars._aggregates.base import Aggregate
from dp_polars._aggregates.needs import (
    BinCounts,
    Distinct,
    Need,
    Power,
    QuantileEnds,
    Quantiles,
    Rows,
    Total,
    Units,
    UnitsOver,
    UnitTotal,
)
from dp_polars._aggregates.values import Value
from dp_polars._engines.request import HASH_BITS, Cells, GroupSum, Lane, ValueColumn
from dp_polars._plan.contribution import ONCE, ContributionBounds, RowCap, row_cap_of
from dp_polars._plan.grid import COUNTS, Grid, Scaling, grid_of, scaling_of
from dp_polars._plan.query import Query
from dp_polars._plan.sensitivity import choice_prices, sensitivity_of, sensitivity_of_bins
from dp_polars._plan.statistics import Compilation, CompiledAggregate, Form, Statistic, Way
from dp_polars._session.terms import Terms

_SQUARE_BITS = 18  # bits of a value whose squares are summed: sums of 2**24 rows of a unit fit
_BASIS_BITS = {1: 23, 2: 16}  # bits of a value on a basis: sums of 10**8 rows stay far below 2**62, where they are cut
_FREE = 1 << 61  # unit totals are clipped instead of rows; this only keeps their sums from wrapping


def compile_query(
    query: Query, bounds: ContributionBounds, terms: Terms, form: Form, *, scales: bool = True, way: Way | None = None
) -> Compilation:
    """Compile a query. Unless `scales` is set, rows beyond a cap are left out instead of scaled down.

    If keys are discovered, `way` says what decides which groups are shown. It takes its share of the spend, and the
    aggregates divide the rest.
    """
    compiler = Compiler(query, bounds, terms, form, scales)
    rest = 1 - (Fraction(0) if way is None else way.share)
    whole = sum((aggregate.weight for aggregate in query.aggregates), Fraction(0))
    # Aggregates with values come first so that counts of rows find a lane to share.
    order = sorted(range(len(query.aggregates)), key=lambda i: not query.aggregates[i].values)
    compiled: dict[int, CompiledAggregate] = {}
    for i in order:
        aggregate = query.aggregates[i]
        cap = row_cap_of(query, aggregate)
        statistics = _compiled(compiler, aggregate, cap, rest * aggregate.weight / whole)
        compiled[i] = CompiledAggregate(aggregate=aggregate, cap=cap, statistics=statistics)
    counts = tuple(
        statistic.name
        for statistic in compiler.statistics.values()
        if statistic.source == "basis" or statistic.what in ("rows", "units")
    )
    counted, units = (None, "") if way is None else _deciding(compiler, way)
    return Compilation(
        lanes=tuple(compiler.lanes),
        statistics=tuple(compiler.statistics.values()),
        compiled=tuple(compiled[i] for i in range(len(query.aggregates))),
        columns=tuple(compiler.columns),
        counts=counts,
        counted=counted,
        units=units,
    )


def _deciding(compiler: Compiler, way: Way) -> tuple[str | None, str]:
    """Return the statistic that decides which groups are shown, and the column with the exact number of their units."""
    if way.by == "released":
        if way.counted is None:
            raise ValueError("a released count that decides needs a name")
        return way.counted, _units(compiler, way.counted)
    units = compiler.sum(*_units_of_groups(compiler))
    if way.by == "rule":
        return None, units
    return compiler.noisy(noisy_sum(compiler, units, "units", way.share, COUNTS, ONCE, 0, 1)), units


def _units_of_groups(compiler: Compiler) -> tuple[int, GroupSum]:
    """Return the lane and the sum that count the units of a group, whatever the order of the aggregates.

    If all aggregates look at the same value, these are the units that have it, so no group without any appears.
    Otherwise these are all units.
    """
    only = compiler.lanes[0] if len(compiler.lanes) == 1 else None
    if only is not None and not only.everyone:
        return 0, GroupSum(name="", of="units")
    return _lane_of_all_rows(compiler), GroupSum(name="", of="units", everyone=_is_shared(compiler))


def _units(compiler: Compiler, counted: str) -> str:
    """Ask for the number of units in each group, over the same rows that the statistic `counted` counts."""
    names = {*compiler.statistics[counted].columns, counted}
    for lane, known in enumerate(compiler.lanes):
        for group_sum in known.sums:
            if group_sum.name in names:
                return compiler.sum(lane, GroupSum(name="", of="units", everyone=group_sum.everyone))
    raise ValueError("no lane has the sums of this count")


def _compiled(compiler: Compiler, aggregate: Aggregate, cap: RowCap, weight: Fraction) -> dict[str, str]:
    """Compile one aggregate and return the names of its statistics by their role."""
    needs = aggregate.needs()
    value = _value_on_basis(compiler, needs)
    if value is not None:
        return _basis(compiler, value, cap, weight)
    found: dict[str, str] = {}
    for need in needs:
        found |= _compiled_need(compiler, need, cap, weight * need.share)
    return found


def _compiled_need(compiler: Compiler, need: Need, cap: RowCap, weight: Fraction) -> dict[str, str]:
    match need:
        case Rows():
            return {"rows": _rows(compiler, need.values, cap, weight)}
        case Units():
            name = compiler.sum(
                _lane_of_all_rows(compiler), GroupSum(name="", of="units", everyone=_is_shared(compiler))
            )
            return {"rows": compiler.noisy(noisy_sum(compiler, name, "units", weight, COUNTS, cap, 0, 1))}
        case UnitsOver():
            return {"rows": _units_over(compiler, cap, weight)}
        case Power():
            return {need.of: _power(compiler, need, cap, weight)}
        case Total():
            return _total(compiler, need.value, cap, weight)
        case UnitTotal():
            return {"total": _unit_total(compiler, need.value, cap, weight)}
        case Distinct():
            return {"rows": _distinct(compiler, need.value, cap, weight)}
        case BinCounts():
            return {"bins": _bins(compiler, need, cap, weight)}
        case Quantiles():
            return _choices(compiler, need, cap, weight)
        case QuantileEnds():
            return _ends(compiler, need, cap, weight)


def _value_on_basis(compiler: Compiler, needs: Sequence[Need]) -> Value | None:
    """Return the value whose basis sums give all of an aggregate's needs, or None if there is none."""
    if compiler.form != "basis":
        return None
    if all(isinstance(need, Rows | Power) for need in needs):
        values = {need.values for need in needs if isinstance(need, Rows | Power)}
        if len(values) != 1 or len(only := values.pop()) != 1:
            return None
        return _with_basis(compiler, only[0]) if only[0].bounds is None else only[0]
    if len(needs) == 1 and isinstance(needs[0], Total) and degree_of(compiler, needs[0].value):
        return needs[0].value
    return None


def _rows(compiler: Compiler, values: tuple[Value, ...], cap: RowCap, weight: Fraction) -> str:
    """Count rows: all of them, or those with a value. Values with bounds are counted in the lane that sums them."""
    everyone = False
    if not values:
        lane = _lane_of_all_rows(compiler)
        everyone = bool(compiler.lanes[lane].columns)
    elif values[0].bounds is None:
        lane = lane_of_expression(compiler, values[0])
    else:
        lane = value_lane(compiler, values, cap)
    # A unit beyond a cap on the rows in all groups has fractions of rows in each.
    scaling = _scaling(compiler, cap, 1) if cap.across else Scaling()
    name = compiler.sum(lane, _capped(GroupSum(name="", of="rows", everyone=everyone), cap, scaling))
    grid = scaling.of(COUNTS)
    counted = noisy_sum(compiler, name, "rows", weight, grid, cap, grid.low, grid.high)
    return compiler.noisy(replace(counted, whole=grid.high))


def _units_over(compiler: Compiler, cap: RowCap, weight: Fraction) -> str:
    """Count the units with more rows than the cap. A unit adds at most 1 to each of its groups, whatever it caps."""
    once = replace(cap, max_rows=1, across=False)
    shared = _is_shared(compiler)
    units_over = GroupSum(name="", of="over", max_rows=cap.enforced, across=cap.across, everyone=shared)
    name = compiler.sum(_lane_of_all_rows(compiler), units_over)
    return compiler.noisy(noisy_sum(compiler, name, "units over the cap", weight, COUNTS, once, 0, 1))


def _lane_of_all_rows(compiler: Compiler) -> int:
    """Return a lane in which all rows can be counted."""
    found = next((i for i, known in enumerate(compiler.lanes) if shares_rows(known)), None)
    return compiler.lane("rows", (), ()) if found is None else found


def _is_shared(compiler: Compiler) -> bool:
    """Tell whether the lane in which all rows are counted has values, too."""
    return bool(compiler.lanes[_lane_of_all_rows(compiler)].columns)


def _power(compiler: Compiler, need: Power, cap: RowCap, weight: Fraction) -> str:
    """Sum a product of values, measured from the middle of its range."""
    lane = value_lane(compiler, need.values, cap)
    grids = dict(zip("xy", compiler.grids[lane], strict=False))
    low, high, centre = _range_of_product([grids[letter] for letter in need.of])
    exponent = sum(grids[letter].exponent for letter in need.of)
    scaling = _scaling(compiler, cap, max(abs(low), abs(high)), exponent)
    name = compiler.sum(lane, _capped(GroupSum(name="", of=need.of, shift=-centre), cap, scaling))
    offset = grids[need.of].offset if len(need.of) == 1 else centre * Fraction(2) ** exponent
    grid = scaling.of(Grid(exponent=exponent, offset=offset, low=low - centre, high=high - centre))
    words = {"x": "sum", "y": "sum of the second"}.get(need.of, "products" if need.of == "xy" else "squares")
    return compiler.noisy(noisy_sum(compiler, name, words, weight, grid, cap, grid.low, grid.high))


def _total(compiler: Compiler, value: Value, cap: RowCap, weight: Fraction) -> dict[str, str]:
    """Sum a value: from its centre if another aggregate needs that sum and a count anyway, and from 0 otherwise."""
    lane = value_lane(compiler, (value,), cap)
    grid = compiler.grids[lane][0]
    if degree_of(compiler, value) and grid.offset:
        half = weight / 2
        return {
            "x": _power(compiler, Power(values=(value,), of="x"), cap, half),
            "rows": _rows(compiler, (value,), cap, half),
        }
    shift = int(grid.offset / grid.step)
    from_zero = replace(grid, offset=Fraction(0), low=grid.low + shift, high=grid.high + shift)
    scaling = _scaling(compiler, cap, max(grid.largest, from_zero.largest), grid.exponent)
    name = compiler.sum(lane, _capped(GroupSum(name="", of="x", shift=shift), cap, scaling))
    from_zero = scaling.of(from_zero)
    return {
        "total": compiler.noisy(noisy_sum(compiler, name, "sum", weight, from_zero, cap, from_zero.low, from_zero.high))
    }


def _scaling(compiler: Compiler, cap: RowCap, largest: int, exponent: int = 0) -> Scaling:
    if not compiler.scales:
        return Scaling()
    changed = compiler.terms.group_size * (2 if compiler.terms.adjacency == "replace" else 1)
    if cap.across:
        # Rounding once more over all units could move the sum of each group that a unit is in by one step.
        fine = scaling_of(largest, cap.enforced, groups=changed, exponent=exponent).fine
        return Scaling(fine=fine, inner=fine)
    return scaling_of(largest, cap.enforced, groups=changed * compiler.bounds.max_groups, exponent=exponent)


def _capped(group_sum: GroupSum, cap: RowCap, scaling: Scaling) -> GroupSum:
    return replace(group_sum, max_rows=cap.enforced, across=cap.across, fine=scaling.fine, inner=scaling.inner)


def _unit_total(compiler: Compiler, value: Value, cap: RowCap, weight: Fraction) -> str:
    """Sum a value, where the total of each unit in a group is clipped instead of its rows."""
    grid = grid_of(value, 1, centred=False)
    column = replace(column_of(compiler.place(value), value, grid), low=-_FREE, high=_FREE)
    lane = compiler.lane(("totals", value.expression, value.bounds), (column,), (grid,))
    name = compiler.sum(lane, GroupSum(name="", of="x", clip=(grid.low, grid.high)))
    return compiler.noisy(noisy_sum(compiler, name, "sum", weight, grid, cap, grid.low, grid.high))


def _with_basis(compiler: Compiler, counted: Value) -> Value | None:
    """Return a value whose basis sums already give this column's count of values that are not null."""
    values = [
        value for aggregate in compiler.query.aggregates for value in aggregate.values if value.bounds is not None
    ]
    found = [v for v in values if v.expression == counted.expression and degree_of(compiler, v)]
    return min(found, key=lambda v: (v.lower, v.upper), default=None)  # whatever the order of the aggregates


def _basis(compiler: Compiler, value: Value, cap: RowCap, weight: Fraction) -> dict[str, str]:
    """Sum a basis of polynomials, which gives the rows, sums and squares of a value."""
    lane, degree = value_lane(compiler, (value,), cap), degree_of(compiler, value)
    grid = compiler.grids[lane][0]
    whole = (grid.high - grid.low) ** degree
    scaling = _scaling(compiler, cap, whole)
    columns = tuple(
        compiler.sum(lane, _capped(GroupSum(name="", of="basis", place=place, degree=degree), cap, scaling))
        for place in range(degree + 1)
    )
    whole <<= scaling.fine
    slack = scaling.slack(len(columns))
    statistic = Statistic(
        name=f"basis{lane}_{degree}",
        source="basis",
        what="rows and sums" if degree == 1 else "rows, sums and squares",
        weight=weight,
        grid=grid,
        max_rows=cap.max_rows,
        sensitivity=sensitivity_of_bins(
            compiler.bounds, compiler.terms, cap.max_rows * whole + slack, across=cap.across
        ),
        columns=columns,
        whole=whole,
        slack=slack,
    )
    return {"basis": compiler.noisy(statistic)}


def _range_of_product(grids: Sequence[Grid]) -> tuple[int, int, int]:
    """Return the smallest and the largest product of a row, in steps, and the middle (0 for a single value)."""
    if len(grids) == 1:
        return grids[0].low, grids[0].high, 0
    first, second = grids
    corners = [a * b for a in (first.low, first.high) for b in (second.low, second.high)]
    low = 0 if first is second and first.low <= 0 <= first.high else min(corners)
    return low, max(corners), (low + max(corners)) // 2


def _distinct(compiler: Compiler, value: Value, cap: RowCap, weight: Fraction) -> str:
    """Count distinct values."""
    column = ValueColumn(place=compiler.place(value), low=0, high=(1 << HASH_BITS) - 1, kind="hash")
    lane = compiler.lane(("distinct", value.expression), (column,), ())
    name = f"distinct{lane}"
    compiler.lanes[lane] = replace(compiler.lanes[lane], cells=_kept(name, cap, distinct=True))
    statistic = noisy_sum(compiler, name, "distinct values", weight, COUNTS, cap, 0, 1)
    return compiler.noisy(replace(statistic, source="distinct"))


def _bins(compiler: Compiler, need: BinCounts, cap: RowCap, weight: Fraction) -> str:
    """Count rows by bin."""
    value, count = need.value, len(need.edges) - 1
    *inner, last = need.edges  # the last bin includes both of its edges
    whole = (*(math.ceil(edge) for edge in inner), math.floor(last))
    edges = whole if value.integers else tuple(float(edge) for edge in need.edges)
    column = ValueColumn(place=compiler.place(value), low=0, high=count - 1, kind="bin", edges=edges)
    lane = compiler.lane(("bins", value.expression, need.edges), (column,), ())
    name = f"bins{lane}"
    compiler.lanes[lane] = replace(compiler.lanes[lane], cells=_kept(name, cap))
    statistic = Statistic(
        name=name,
        source="bins",
        what="rows by bin",
        weight=weight,
        grid=COUNTS,
        max_rows=cap.max_rows,
        sensitivity=sensitivity_of_bins(compiler.bounds, compiler.terms, cap.max_rows, across=cap.across),
        bins=count,
    )
    return compiler.noisy(statistic)


def _choices(compiler: Compiler, need: Quantiles, cap: RowCap, weight: Fraction) -> dict[str, str]:
    """Choose values at quantiles. Several quantiles share one descent, and each level of it has its price."""
    lane, name = _cells(compiler, need.value, cap)
    targets = need.targets
    levels = len(targets).bit_length()
    # Replacing a unit's rows moves a score by 1 for a quantile (q and 1 - q together) and by 2 for an extreme, while
    # adding rows moves it by max(q, 1 - q) or 1. Other levels have other targets: at most twice as much.
    alone = len(targets) == 1 and targets[0] not in (0, 1)
    replacement = 1 / max(targets[0], 1 - targets[0]) if alone else Fraction(2)
    pure, squared = choice_prices(compiler.bounds, compiler.terms, replacement, across=cap.across)
    statistic_name = f"{name}_{'_'.join(str(target) for target in targets)}"
    statistic = Statistic(
        name=statistic_name,
        source="choice",
        what="values",
        weight=weight,
        grid=compiler.grids[lane][0],
        max_rows=cap.max_rows,
        prices=(pure * levels, squared * levels),
        targets=targets,
    )
    return {"values": compiler.noisy(statistic), "cells": name}


def _ends(compiler: Compiler, need: QuantileEnds, cap: RowCap, weight: Fraction) -> dict[str, str]:
    """Choose the ends of intervals of quantiles. Each end is a choice among all rows, with a price of its own."""
    lane, name = _cells(compiler, need.value, cap)
    replacement = max(1 / max(target, 1 - target) for target in need.targets)
    pure, squared = choice_prices(compiler.bounds, compiler.terms, replacement, across=cap.across)
    choices = 2 * len(need.targets)
    statistic_name = f"{name}_ends_{'_'.join(str(target) for target in need.targets)}_{need.confidence!r}"
    statistic = Statistic(
        name=statistic_name,
        source="choice",
        what="ends",
        weight=weight,
        grid=compiler.grids[lane][0],
        max_rows=cap.max_rows,
        prices=(pure * choices, squared * choices),
        targets=need.targets,
        confidence=need.confidence,
    )
    return {"ends": compiler.noisy(statistic), "cells": name}


def _cells(compiler: Compiler, value: Value, cap: RowCap) -> tuple[int, str]:
    """Ask for the number of rows at each point of a value's grid, and return its lane and the name of these cells."""
    lane = value_lane(compiler, (value,), cap)
    name = f"values{lane}"
    compiler.lanes[lane] = replace(compiler.lanes[lane], cells=_kept(name, cap))
    return lane, name


def _kept(name: str, cap: RowCap, *, distinct: bool = False) -> Cells:
    """Return the cells of a lane, whose units keep as many rows, or distinct values, as the cap allows."""
    return Cells(name=name, max_rows=cap.enforced, across=cap.across, distinct=distinct)


# ---------------------------------------------------------------------- shared lanes


@dataclass
class Compiler:
    """The lanes and statistics of a query that have been compiled so far. Aggregates of the same value share a lane."""

    query: Query
    bounds: ContributionBounds
    terms: Terms
    form: Form
    scales: bool
    lanes: list[Lane] = field(default_factory=list)
    grids: list[tuple[Grid, ...]] = field(default_factory=list)
    places: dict[object, int] = field(default_factory=dict)
    columns: list[Value] = field(default_factory=list)
    statistics: dict[str, Statistic] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Columns keep the order of the aggregates so that all plans of the same query agree on their places.
        for aggregate in self.query.aggregates:
            for value in aggregate.values:
                if value.expression not in {known.expression for known in self.columns}:
                    self.columns.append(value)

    def place(self, value: Value) -> int:
        """Return the place of a value among the columns."""
        return [known.expression for known in self.columns].index(value.expression)

    def lane(self, key: object, columns: tuple[ValueColumn, ...], grids: tuple[Grid, ...]) -> int:
        """Return the lane with this key, and create it if there is none."""
        if key not in self.places:
            self.places[key] = len(self.lanes)
            self.lanes.append(Lane(columns=columns))
            self.grids.append(grids)
        return self.places[key]

    def sum(self, lane: int, group_sum: GroupSum) -> str:
        """Add a sum to a lane and return its name."""
        named = replace(
            group_sum, name=_name(group_sum, lane), max_rows=None if group_sum.of == "units" else group_sum.max_rows
        )
        known = self.lanes[lane]
        if named not in known.sums:
            if named.name in {other.name for other in known.sums}:
                raise ValueError("two different sums have the same name")
            everyone = known.everyone or group_sum.everyone
            self.lanes[lane] = replace(known, sums=(*known.sums, named), everyone=everyone)
        return named.name

    def noisy(self, statistic: Statistic) -> str:
        """Ask for noise on a statistic and return its name. Its shares of the spend add up."""
        known = self.statistics.get(statistic.name)
        if known is not None and replace(known, weight=statistic.weight) != statistic:
            raise ValueError("two different statistics have the same name")
        weight = statistic.weight if known is None else known.weight + statistic.weight
        self.statistics[statistic.name] = replace(statistic, weight=weight)
        return statistic.name


def _name(group_sum: GroupSum, lane: int) -> str:
    base = {"rows": "rows", "units": "units", "x": "total", "y": "total_y"}.get(group_sum.of, group_sum.of)
    if group_sum.of == "basis":
        return f"basis{lane}_{group_sum.degree}_{group_sum.place}"
    kind = "all_" if group_sum.everyone else ""
    shifted = "_from_0" if group_sum.of == "x" and group_sum.shift else ""
    return f"{kind}{base}{shifted}{lane or ''}"


def shares_rows(lane: Lane) -> bool:
    """Tell whether a lane can also hold rows without a value. Then all rows can be counted there."""
    return not lane.columns or (len(lane.columns) == 1 and lane.columns[0].kind == "number" and clips_rows(lane))


def clips_rows(lane: Lane) -> bool:
    """Tell whether the values of a lane are clipped row by row instead of in total."""
    return not any(group_sum.clip for group_sum in lane.sums)


def lane_of_expression(compiler: Compiler, value: Value) -> int:
    """Return a lane whose rows are those where this value is not null, and create it if there is none."""
    for lane, known in enumerate(compiler.lanes):
        if len(known.columns) != 1 or known.columns[0].kind not in ("number", "presence") or not clips_rows(known):
            continue
        if compiler.columns[known.columns[0].place].expression == value.expression:
            return lane
    column = ValueColumn(place=compiler.place(value), low=0, high=0, kind="presence")
    return compiler.lane(("presence", value.expression), (column,), ())


def noisy_sum(
    compiler: Compiler, name: str, what: str, weight: Fraction, grid: Grid, cap: RowCap, low: int, high: int
) -> Statistic:
    """Return a sum that gets noise. Each row adds between `low` and `high` steps to it."""
    sensitivity = sensitivity_of(compiler.bounds, compiler.terms, cap, low, high)
    return Statistic(
        name=name, source="sum", what=what, weight=weight, grid=grid, max_rows=cap.max_rows, sensitivity=sensitivity
    )


def value_lane(compiler: Compiler, values: Sequence[Value], cap: RowCap) -> int:
    """Return the lane of values on their grids, measured from the middle of their bounds."""
    key = ("values", *((value.expression, value.bounds) for value in values))
    if key in compiler.places:
        return compiler.places[key]
    degree = 2 if len(values) > 1 else degree_of(compiler, values[0])
    bits = (
        None if degree == 0 else _BASIS_BITS[degree] if compiler.form == "basis" and len(values) == 1 else _SQUARE_BITS
    )
    grids = tuple(grid_of(value, cap.max_rows, centred=True, bits=bits) for value in values)
    columns = tuple(column_of(compiler.place(value), value, grid) for value, grid in zip(values, grids, strict=True))
    return compiler.lane(key, columns, grids)


def degree_of(compiler: Compiler, value: Value) -> int:
    """Return the highest power of a value that is needed: 2 for a variance, 1 for a mean or a sum beside a count."""
    needs = [need for aggregate in compiler.query.aggregates for need in aggregate.needs()]
    same = (value.expression, value.bounds)
    powers = [
        len(need.of)
        for need in needs
        if isinstance(need, Power)
        and len(need.values) == 1
        and (need.values[0].expression, need.values[0].bounds) == same
    ]
    if powers:
        return max(powers)
    summed = any(isinstance(need, Total) and (need.value.expression, need.value.bounds) == same for need in needs)
    counted = any(
        isinstance(need, Rows)
        and len(need.values) == 1
        and need.values[0].expression == value.expression
        and need.values[0].bounds is None
        for need in needs
    )
    return 1 if summed and counted else 0


def column_of(place: int, value: Value, grid: Grid) -> ValueColumn:
    """Return the column of a value on its grid."""
    offset = int(grid.offset) if value.integers else float(grid.offset)
    return ValueColumn(place=place, low=grid.low, high=grid.high, exponent=grid.exponent, offset=offset)
