"""What an engine is asked to do, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import polars as pl

LIMIT = 1 << 62
"""Sums and values stay within it: clipping adds nothing to what one row can change, wrapping would."""

MOST_INNER = 32
"""The most fractional bits of what a unit adds, scaled down, to a sum."""

HASH_BITS = 48
"""Bits of the hash by which different values are counted."""


def stored_as_integers(dtype: pl.DataType) -> bool:
    """Whether values are 64-bit integers, or stored as such, in their own order: such units are told apart exactly."""
    if dtype in (pl.Int128, pl.UInt128):
        return False
    return dtype.is_integer() or dtype.is_temporal() or dtype == pl.Boolean


@dataclass(frozen=True, kw_only=True)
class Column:
    """A value column, `value0` and so on, as whole numbers in [low, high]; a row may be without one.

    Attributes
    ----------
    place
        Which value column.
    low, high
        Numbers are clipped to them.
    kind
        "number": steps of 2**exponent from `offset`. "presence": 0 wherever there is a value. "hash": a salted hash of
        a value of any type. "bin": the bin of `edges` that a number lies in; outside of all there is none.
    exponent, offset
        Of a number: (x - offset) / 2**exponent, rounded; the offset is a multiple of the step.
    edges
        The edges of bins: each has its lower one, the last has both.
    """

    place: int
    low: int
    high: int
    kind: Literal["number", "presence", "hash", "bin"] = "number"
    exponent: int = 0
    offset: float = 0
    edges: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """The column's name in the frame."""
        return f"value{self.place}"


@dataclass(frozen=True, kw_only=True)
class Sum:
    """A sum over the rows of each group: their number, their units, or whole numbers made of a row's values.

    Attributes
    ----------
    name
        The column of the answer.
    of
        "rows", "units", a value ("x", "y"), a product ("xx", "yy", "xy"), or "basis".
    max_rows
        A unit with more rows in a group counts as if it had so many, its sum scaled down; None: no cap binds.
    shift
        Added to each row's number.
    everyone
        Rows without a value count too.
    clip
        Each unit's sum in a group is clipped to this instead.
    fine, inner
        Of a sum that may be scaled down: its steps are 2**-fine of a row's, and what each unit adds is rounded to
        2**-inner of one, `inner` being at least `fine`. See `scaling_of` in the plan of grids.
    place, degree
        Of a "basis": the number C(degree, place) u**place v**(degree - place), with u the steps from the least value of
        the first column and v those to its largest. For all places of a degree they add up to (u + v)**degree.
    """

    name: str
    of: Literal["rows", "units", "x", "y", "xx", "yy", "xy", "basis"]
    max_rows: int | None = None
    shift: int = 0
    everyone: bool = False
    clip: tuple[int, int] | None = None
    fine: int = 0
    inner: int = 0
    place: int = 0
    degree: int = 0


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The values of each group and how often they occur, of `max_rows` rows (or distinct values) of each unit."""

    name: str
    max_rows: int | None
    distinct: bool = False


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One number for each unit, and how many units have it: its groups, or its rows in one of them chosen by hash."""

    name: str
    of: Literal["groups", "rows"]
    most: int


@dataclass(frozen=True, kw_only=True)
class Lane:
    """What is computed from the rows that have a value in all of its columns; with `everyone` all rows take part."""

    columns: tuple[Column, ...] = ()
    everyone: bool = False
    sums: tuple[Sum, ...] = ()
    cells: Cells | None = None
    profiles: tuple[Profile, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BoundedRequest:
    """A bounded aggregation of a frame whose columns are named `unit0, ...`, `key0, ...` and `value0, ...`.

    Attributes
    ----------
    units, keys
        How many unit and key columns there are; no unit columns: every row is a unit of its own.
    max_groups
        The most groups of one unit; None where that can't bind.
    capped_keys
        How many of the first keys tell what counts as a group for `max_groups`; None: all. A unit keeps all its rows
        in the groups of the first keys that it keeps, whatever their other keys.
    domain
        The public keys, in order; None where keys are discovered. Rows with other keys are dropped.
    lanes
        What to compute. Each lane is bounded by itself, over the rows that take part in it.
    hashed_units
        Whether units that are no integers may be told apart by a hash of 128 bits, whose chance of a collision was
        paid for; else by exact codes.
    """

    units: int
    keys: int
    max_groups: int | None
    domain: pl.DataFrame | None
    lanes: tuple[Lane, ...]
    hashed_units: bool = False
    capped_keys: int | None = None

    def __post_init__(self) -> None:
        """Refuse finer steps where nothing is ever scaled down: no engine would make them."""
        for one in (one for lane in self.lanes for one in lane.sums):
            scaled = self.units > 0 and one.max_rows is not None and one.clip is None
            if not 0 <= one.fine <= one.inner <= (MOST_INNER if scaled else 0):
                raise ValueError("finer steps are for sums that are scaled down")

    @property
    def leading(self) -> int:
        """How many keys the cap on groups is about."""
        return self.keys if self.capped_keys is None else self.capped_keys


@dataclass(frozen=True)
class Exact:
    """Exact bounded aggregates, before any noise.

    Attributes
    ----------
    groups
        The key columns, the sums, and `runs`: how many units the lanes have in a group, added up. With a public domain
        every key, in its order; otherwise the groups that a kept row falls into, sorted.
    cells
        By name, `group` (a row of `groups`), `value` and `count`, sorted; of profiles without `group`.
    """

    groups: pl.DataFrame
    cells: dict[str, pl.DataFrame] = field(default_factory=dict)
