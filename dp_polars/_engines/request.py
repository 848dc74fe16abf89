"""Requests to an engine, and the exact answers that it returns. Planning builds them; every engine understands them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from dp_polars._expressions.tree import Expression

LIMIT = 1 << 62
"""Bound on the absolute value of values and sums. Clipping to it never lets a row change more; wrapping would."""

MOST_INNER = 32
"""Largest number of fractional bits to which a unit's scaled-down contribution to a sum is rounded."""

HASH_BITS = 48
"""Number of bits of the hash by which distinct values are counted."""


def stored_as_integers(dtype: pl.DataType) -> bool:
    """Return whether a type is stored as integers of at most 64 bits that sort like its values.

    Units of such a type are told apart exactly, without a hash.
    """
    if dtype in (pl.Int128, pl.UInt128):
        return False
    return dtype.is_integer() or dtype.is_temporal() or dtype == pl.Boolean


@dataclass(frozen=True, kw_only=True)
class ValueColumn:
    """A value column (`value0`, `value1`, ...) as integers in [low, high]. A row may have no value.

    Attributes
    ----------
    place
        The number of the value column.
    low, high
        Bounds to which the integers are clipped.
    kind
        What the integers are. "number": the number of steps of size 2**exponent above `offset`. "presence": 0 wherever
        there is a value. "hash": a salted hash of a value of any type. "bin": the number of the bin of `edges` that
        contains the value; a value outside all bins counts as missing.
    exponent, offset
        A number x becomes (x - offset) / 2**exponent, rounded. The offset is a multiple of the step.
    edges
        The edges of the bins. Each bin contains its lower edge; the last one also contains its upper edge.
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
        """Name of the column in the frame."""
        return f"value{self.place}"


@dataclass(frozen=True, kw_only=True)
class GroupSum:
    """A sum per group: of rows, of units, or of integers computed from the values of each row.

    Attributes
    ----------
    name
        The name of the sum in the answer.
    of
        What is summed: "rows", "units", units with more than `max_rows` rows ("over"), a value ("x", "y"), a product
        ("xx", "yy", "xy"), or "basis".
    max_rows
        The cap on rows per unit and group. The sum of a unit with more rows is scaled down as if it had this many.
        None means that no cap binds.
    across
        Whether `max_rows` caps the rows of a unit in all the groups that it keeps, taken together. A unit with more
        rows is scaled down by the same factor in all of them, and what it adds to each is rounded towards 0 in steps of
        2**-inner. Then `fine` is equal to `inner`, and "over" counts units with more rows in each of their groups.
    shift
        A constant that is added to the number of each row.
    everyone
        Whether rows without a value count too.
    clip
        If given, each unit's sum in a group is clipped to this range, and `max_rows` does not apply.
    fine, inner
        Resolution of a sum that may be scaled down. Its steps are 2**-fine of a row's step, and the contribution of
        each unit is rounded to a multiple of 2**-inner, where `inner` is at least `fine`. See `scaling_of` in
        `_plan.grid`.
    place, degree
        For a "basis": the number C(degree, place) u**place v**(degree - place), where u counts the steps from the
        least value of the first column and v the steps to its largest. Over all places of one degree, these numbers
        add up to (u + v)**degree.
    """

    name: str
    of: Literal["rows", "units", "over", "x", "y", "xx", "yy", "xy", "basis"]
    max_rows: int | None = None
    across: bool = False
    shift: int = 0
    everyone: bool = False
    clip: tuple[int, int] | None = None
    fine: int = 0
    inner: int = 0
    place: int = 0
    degree: int = 0


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Counts of each value in each group, over at most `max_rows` rows (or distinct values) per unit and group.

    With `missing`, rows without a value compete for these places too and are counted under `low - 1`. The lane must
    then be for `everyone`. With `across`, `max_rows` caps what a unit adds to all groups together. A distinct value
    counts once in each of its groups.
    """

    name: str
    max_rows: int | None
    distinct: bool = False
    missing: bool = False
    across: bool = False


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How many units have each number of groups, or of rows in one group that a hash chooses, or of rows in all groups.

    Numbers above `most` count as `most`.
    """

    name: str
    of: Literal["groups", "rows", "all rows"]
    most: int


@dataclass(frozen=True, kw_only=True)
class Lane:
    """Aggregates over the rows that have a value in all of the lane's columns, or over all rows with `everyone`."""

    columns: tuple[ValueColumn, ...] = ()
    everyone: bool = False
    sums: tuple[GroupSum, ...] = ()
    cells: Cells | None = None
    profiles: tuple[Profile, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BoundedRequest:
    """A bounded aggregation of rows whose columns are named `unit0, ...`, `key0, ...` and `value0, ...`.

    Attributes
    ----------
    units, keys
        How many unit and key columns there are. Without unit columns, every row is a unit of its own.
    max_groups
        The cap on groups per unit; None if it cannot bind.
    capped_keys
        How many of the first keys define a group for `max_groups`; None means all of them. A unit keeps all of its
        rows in the groups of these first keys that it keeps, whatever their other keys are.
    domain
        The public keys, in order; None if keys are discovered. Rows with other keys are dropped.
    lanes
        What to compute. Each lane is bounded separately, over the rows that take part in it.
    hashed_units
        Whether units that are not stored as integers may be told apart by a 128-bit hash. The price of the query then
        covers the chance of a collision. Otherwise they are told apart by exact codes.
    """

    units: int
    keys: int
    max_groups: int | None
    domain: pl.DataFrame | None
    lanes: tuple[Lane, ...]
    hashed_units: bool = False
    capped_keys: int | None = None

    def __post_init__(self) -> None:
        """Refuse finer steps for sums that are never scaled down: no engine would use them."""
        for group_sum in (group_sum for lane in self.lanes for group_sum in lane.sums):
            scaled = self.units > 0 and group_sum.max_rows is not None and group_sum.clip is None
            if not 0 <= group_sum.fine <= group_sum.inner <= (MOST_INNER if scaled else 0):
                raise ValueError("finer steps are for sums that are scaled down")
            if group_sum.across and not (scaled and group_sum.fine == group_sum.inner):
                raise ValueError("what is capped in all groups together is rounded once")

    @property
    def leading(self) -> int:
        """Number of keys that define a group for the cap on groups."""
        return self.keys if self.capped_keys is None else self.capped_keys


@dataclass(frozen=True)
class Exact:
    """Exact bounded aggregates, before any noise.

    Attributes
    ----------
    groups
        The key columns, the sums, and `runs`: the number of units in the group, added up over the lanes. With a public
        domain there is one row per public key, in the order of the domain. Otherwise there is one row, sorted by key,
        per group that contains a kept row.
    cells
        Tables by name with the columns `group` (a row number of `groups`), `value` and `count`, sorted. Tables of
        profiles have no `group`.
    """

    groups: pl.DataFrame
    cells: dict[str, pl.DataFrame] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Tally:
    """One number over all rows that a stream asks for.

    Attributes
    ----------
    kind
        "rows" and "units" count the rows or units for which `value` is true, or all of them if it is None. "sum" adds
        up `value`.
    value
        The condition, or the values of a sum.
    column
        How the values of a sum become integers.
    """

    kind: Literal["rows", "units", "sum"]
    value: Expression | None = None
    column: ValueColumn | None = None
