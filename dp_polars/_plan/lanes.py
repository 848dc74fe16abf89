"""Lanes that aggregates share, while the pieces of a query are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dp_polars._engines.request import Lane, Sum, ValueColumn
from dp_polars._plan.contribution import Bounds, RowCap
from dp_polars._plan.grid import Grid, grid_of
from dp_polars._plan.needs import Form, Piece
from dp_polars._plan.query import Query, Value
from dp_polars._plan.sensitivity import sensitivity_of
from dp_polars._session.terms import Terms

_SQUARE_BITS = 18  # of a value whose squares are summed: of up to 2**24 rows of a unit
_BASIS_BITS = {1: 23, 2: 16}  # of a value on a basis: sums of 10**8 rows stay far below 2**62, where they would be cut


@dataclass
class Building:
    """The lanes and pieces of a query as far as they are made. Aggregates of the same value share a lane."""

    query: Query
    bounds: Bounds
    terms: Terms
    form: Form
    scales: bool
    lanes: list[Lane] = field(default_factory=list)
    grids: list[tuple[Grid, ...]] = field(default_factory=list)
    places: dict[object, int] = field(default_factory=dict)
    columns: list[Value] = field(default_factory=list)
    pieces: dict[str, Piece] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # In the order of the aggregates, whatever is made of them: plans of the same query agree on places.
        for one in self.query.aggregates:
            for value in one.values:
                if value.expression not in {known.expression for known in self.columns}:
                    self.columns.append(value)

    def place(self, value: Value) -> int:
        """Return the place of a value column."""
        return [known.expression for known in self.columns].index(value.expression)

    def lane(self, key: object, columns: tuple[ValueColumn, ...], grids: tuple[Grid, ...]) -> int:
        """Return the lane of a key."""
        if key not in self.places:
            self.places[key] = len(self.lanes)
            self.lanes.append(Lane(columns=columns))
            self.grids.append(grids)
        return self.places[key]

    def sum(self, lane: int, one: Sum) -> str:
        """Ask a lane for a sum and return its name."""
        named = replace(one, name=_name(one, lane), max_rows=None if one.of == "units" else one.max_rows)
        known = self.lanes[lane]
        if named not in known.sums:
            if named.name in {other.name for other in known.sums}:
                raise ValueError("two sums of one name")
            everyone = known.everyone or one.everyone
            self.lanes[lane] = replace(known, sums=(*known.sums, named), everyone=everyone)
        return named.name

    def noisy(self, piece: Piece) -> str:
        """Ask for noise on a piece; its parts of the spend add up."""
        known = self.pieces.get(piece.name)
        if known is not None and replace(known, weight=piece.weight) != piece:
            raise ValueError("two pieces of one name")
        weight = piece.weight if known is None else known.weight + piece.weight
        self.pieces[piece.name] = replace(piece, weight=weight)
        return piece.name


def _name(one: Sum, lane: int) -> str:
    base = {"rows": "rows", "units": "units", "x": "total", "y": "total_y"}.get(one.of, one.of)
    if one.of == "basis":
        return f"basis{lane}_{one.degree}_{one.place}"
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
    column = ValueColumn(place=build.place(value), low=0, high=0, kind="presence")
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
    degree = 2 if len(values) > 1 else degree_of(build, values[0])
    bits = None if degree == 0 else _BASIS_BITS[degree] if build.form == "basis" and len(values) == 1 else _SQUARE_BITS
    grids = tuple(grid_of(value, cap.max_rows, centred=True, bits=bits) for value in values)
    columns = tuple(column_of(build.place(value), value, grid) for value, grid in zip(values, grids, strict=True))
    return build.lane(key, columns, grids)


def degree_of(build: Building, value: Value) -> int:
    """Return which powers of a value are asked for: 2 for a variance, 1 for a mean, or a sum beside a count of it."""
    same = (value.expression, value.bounds)
    kinds = {
        one.kind
        for one in build.query.aggregates
        if len(one.values) == 1 and one.per == "row" and (one.values[0].expression, one.values[0].bounds) == same
    }
    if kinds & {"var", "std"}:
        return 2
    counted = any(
        one.kind == "count" and one.values and one.values[0].expression == value.expression
        for one in build.query.aggregates
    )
    return 1 if "mean" in kinds or ("sum" in kinds and counted) else 0


def column_of(place: int, value: Value, grid: Grid) -> ValueColumn:
    """Return a value column on its grid."""
    offset = int(grid.offset) if value.integers else float(grid.offset)
    return ValueColumn(place=place, low=grid.low, high=grid.high, exponent=grid.exponent, offset=offset)
