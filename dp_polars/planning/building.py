"""Lanes that aggregates share, while the pieces of a query are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dp_polars.accounting.terms import Terms
from dp_polars.engines.request import Column, Lane, Sum
from dp_polars.planning.bounds import Bounds, RowCap
from dp_polars.planning.grid import Grid, grid_of
from dp_polars.planning.pieces import Form, Piece
from dp_polars.planning.query import Query, Value
from dp_polars.planning.sensitivity import sensitivity_of


@dataclass
class Building:
    """The lanes and pieces of a query as far as they are made. Aggregates of the same value share a lane."""

    query: Query
    bounds: Bounds
    terms: Terms
    form: Form
    lanes: list[Lane] = field(default_factory=list)
    grids: list[tuple[Grid, ...]] = field(default_factory=list)
    places: dict[object, int] = field(default_factory=dict)
    columns: list[Value] = field(default_factory=list)
    pieces: dict[str, Piece] = field(default_factory=dict)

    def place(self, value: Value) -> int:
        """Return the place of a value column."""
        if value not in self.columns:
            self.columns.append(value)
        return self.columns.index(value)

    def lane(self, key: object, columns: tuple[Column, ...], grids: tuple[Grid, ...]) -> int:
        """Return the lane of a key."""
        if key not in self.places:
            self.places[key] = len(self.lanes)
            self.lanes.append(Lane(columns=columns))
            self.grids.append(grids)
        return self.places[key]

    def sum(self, lane: int, one: Sum) -> str:
        """Ask a lane for a sum and return its name."""
        named = replace(one, name=_name(one, lane))
        known = self.lanes[lane]
        if named not in known.sums:
            everyone = known.everyone or one.everyone
            self.lanes[lane] = replace(known, sums=(*known.sums, named), everyone=everyone)
        return named.name

    def noisy(self, piece: Piece) -> str:
        """Ask for noise on a piece; its parts of the spend add up."""
        known = self.pieces.get(piece.name)
        weight = piece.weight if known is None else known.weight + piece.weight
        self.pieces[piece.name] = replace(piece, weight=weight)
        return piece.name


def _name(one: Sum, lane: int) -> str:
    base = {"rows": "rows", "units": "units", "x": "total", "y": "total_y"}.get(one.of, one.of)
    if one.of == "basis":
        return f"basis{lane}_{one.place}"
    kind = "all_" if one.everyone else ""
    shifted = "_from_0" if one.of == "x" and one.shift else ""
    return f"{kind}{base}{shifted}{lane or ''}"


def shares_rows(lane: Lane) -> bool:
    """Whether rows without a value may take part in a lane too, so that all rows can be counted there."""
    return not lane.columns or (len(lane.columns) == 1 and lane.columns[0].kind == "number" and clips_rows(lane))


def clips_rows(lane: Lane) -> bool:
    """Whether a lane's values are clipped row by row, not in total."""
    return not any(one.clip for one in lane.sums)


def lane_of_expression(build: Building, value: Value) -> int:
    """Return a lane whose rows are those with this value: one that is there, or one of its own."""
    for lane, known in enumerate(build.lanes):
        if len(known.columns) != 1 or known.columns[0].kind not in ("number", "presence") or not clips_rows(known):
            continue
        if build.columns[known.columns[0].place].expression == value.expression:
            return lane
    column = Column(place=build.place(value), low=0, high=0, kind="presence")
    return build.lane(("presence", value.expression), (column,), ())


def noisy_sum(
    build: Building, name: str, what: str, weight: Fraction, grid: Grid, cap: RowCap, low: int, high: int
) -> Piece:
    """Return a sum of rows that lie in [low, high] steps, which gets noise."""
    sensitivity = sensitivity_of(build.bounds, build.terms, cap.max_rows, low, high)
    return Piece(
        name=name, source="sum", what=what, weight=weight, grid=grid, max_rows=cap.max_rows, sensitivity=sensitivity
    )


def value_lane(build: Building, values: Sequence[Value], cap: RowCap) -> int:
    """Return the lane of values on their grids, counted from the middle of their bounds."""
    key = ("values", *((value.expression, value.bounds) for value in values))
    if key in build.places:
        return build.places[key]
    squares = len(values) > 1 or any(
        other.kind in ("var", "std") and other.values[0] == values[0] for other in build.query.aggregates
    )
    grids = tuple(grid_of(value, cap.max_rows, centred=True, squares=squares) for value in values)
    columns = tuple(column_of(build.place(value), value, grid) for value, grid in zip(values, grids, strict=True))
    return build.lane(key, columns, grids)


def column_of(place: int, value: Value, grid: Grid) -> Column:
    """Return a value column on its grid."""
    offset = int(grid.offset) if value.integers else float(grid.offset)
    return Column(place=place, low=grid.low, high=grid.high, exponent=grid.exponent, offset=offset)
