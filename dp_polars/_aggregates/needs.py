"""What an aggregate needs to know about a group, before anything is said about noise.

An aggregate declares its needs and the share of its spend that each should get. The compiler (`_plan/compile.py`)
merges the needs of all aggregates of a query, decides how an engine computes them and derives their sensitivity. The
sensitivity therefore belongs to the need, and an aggregate can't get it wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from dp_polars._aggregates.values import Value

Product = Literal["x", "y", "xx", "xy", "yy"]
"""A product of an aggregate's first value (x) and second value (y)."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The number of rows in which none of these values is null. Without values, the number of all rows."""

    values: tuple[Value, ...] = ()
    share: Fraction = Fraction(1)


@dataclass(frozen=True, kw_only=True)
class Units:
    """The number of units."""

    share: Fraction = Fraction(1)


@dataclass(frozen=True, kw_only=True)
class UnitsOver:
    """The number of units that have more rows in a group than the cap allows."""

    share: Fraction = Fraction(1)


@dataclass(frozen=True, kw_only=True)
class Power:
    """The sum of a product of values, each measured from the middle of its bounds."""

    values: tuple[Value, ...]
    of: Product
    share: Fraction = Fraction(1)


@dataclass(frozen=True, kw_only=True)
class Total:
    """The sum of a value that is clipped in each row."""

    value: Value
    share: Fraction = Fraction(1)


@dataclass(frozen=True, kw_only=True)
class UnitTotal:
    """The sum of a value whose total is clipped once for each unit."""

    value: Value
    share: Fraction = Fraction(1)


@dataclass(frozen=True, kw_only=True)
class Distinct:
    """The number of distinct values."""

    value: Value
    share: Fraction = Fraction(1)


@dataclass(frozen=True, kw_only=True)
class BinCounts:
    """The number of rows in each bin between rising edges. The last bin includes both of its edges."""

    value: Value
    edges: tuple[Fraction, ...]
    share: Fraction = Fraction(1)


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """Values at these quantiles. 0 and 1 stand for the smallest and the largest value."""

    value: Value
    targets: tuple[Fraction, ...]
    share: Fraction = Fraction(1)


@dataclass(frozen=True, kw_only=True)
class QuantileEnds:
    """The ends of intervals that cover the values at these quantiles with a confidence: all lower ends come first."""

    value: Value
    targets: tuple[Fraction, ...]
    confidence: float
    share: Fraction = Fraction(1)


Need = Rows | Units | UnitsOver | Power | Total | UnitTotal | Distinct | BinCounts | Quantiles | QuantileEnds
