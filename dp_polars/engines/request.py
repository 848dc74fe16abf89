"""What an engine is asked to do, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

LIMIT = 1 << 62
"""Sums and values stay within it: clipping adds nothing to what one row can change, wrapping would."""


def stored_as_integers(dtype: pl.DataType) -> bool:
    """Whether values are 64-bit integers, or stored as such, in their own order: such units are told apart exactly."""
    if dtype in (pl.Int128, pl.UInt128):
        return False
    return dtype.is_integer() or dtype.is_temporal() or dtype == pl.Boolean


@dataclass(frozen=True, kw_only=True)
class ValueRequest:
    """A value column on its grid: every row is a whole number of steps of 2**exponent.

    Rows count with their value clipped to [low, high] steps; with `total` the sum of a unit's rows in a group is
    clipped instead.
    """

    low: int
    high: int
    exponent: int
    offset: float
    """Subtracted from every value before it goes on the grid (a multiple of the step)."""
    total: bool


@dataclass(frozen=True, kw_only=True)
class BoundedRequest:
    """A bounded aggregation of a frame whose columns are named `unit0, ...`, `key0, ...` and `value`.

    Attributes
    ----------
    units, keys
        How many unit and key columns there are; no unit columns: every row is a unit of its own.
    max_groups, max_rows
        The caps to enforce; None where a cap can't bind.
    domain
        The public keys, in order; None where keys are discovered. Rows with other keys are dropped.
    value
        The column to sum, if any.
    hashed_units
        Whether units that are no integers may be told apart by a hash of 128 bits, whose chance of a collision was
        paid for; else by exact codes.
    """

    units: int
    keys: int
    max_groups: int | None
    max_rows: int | None
    domain: pl.DataFrame | None
    value: ValueRequest | None
    hashed_units: bool = False
