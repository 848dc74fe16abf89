"""The public bins of a profile: logarithmic for counts and numbers, one per year for dates, one per hour for times."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Any

import polars as pl

from dp_polars._aggregates.values import is_number
from dp_polars._engines.request import LIMIT

COUNTS: tuple[int, ...] = tuple(
    sorted({1, *(2**power for power in range(1, 17)), *(3 * 2**power for power in range(15))})
)
"""The largest number of rows or groups in each bin: 1, 2, 3, 4, 6, 8, 12, ... Larger numbers share one bin."""

_STEPS = (1, 2, 3, 5)
_SMALLEST, _LARGEST = -6, 12  # powers of ten of the smallest and the largest size
_LONGEST = 1 << 61
_YEARS = range(1900, 2101)
_DAY = 86_400
_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Ladder:
    """Bins for the values of a column, which depend on its type alone.

    Attributes
    ----------
    edges
        The edges of the bins, as the engine compares them with stored values.
    lows, highs
        The round numbers that enclose the values of each bin, as stored numbers. The outer bins have no end, so both
        of their numbers are the last one of the ladder.
    """

    edges: tuple[float, ...]
    lows: tuple[Fraction, ...]
    highs: tuple[Fraction, ...]

    @property
    def size(self) -> int:
        """The number of bins."""
        return len(self.lows)


def count_labels() -> list[str]:
    """Return the names of the bins for numbers of rows or groups."""
    pairs = zip((0, *COUNTS), COUNTS, strict=False)
    inner = [f"{high}" if high == low + 1 else f"{low + 1} to {high}" for low, high in pairs]
    return [*inner, f"more than {COUNTS[-1]}"]


def ladder_of(dtype: pl.DataType) -> Ladder | None:
    """Return the bins for the values of a type, or None for types without an order that bounds could use."""
    if dtype == pl.Boolean:
        return Ladder((0, 1, 2), (Fraction(0), Fraction(1)), (Fraction(0), Fraction(1)))
    if isinstance(dtype, pl.Decimal):
        return _numbers(_whole_sizes(10**dtype.scale))
    if is_number(dtype):
        return _numbers(_float_sizes()) if dtype.is_float() else _numbers(_whole_sizes(1))
    if isinstance(dtype, pl.Duration):
        # Python's timedelta ends before a count of milliseconds does.
        most = timedelta.max.days * _DAY * _PER_SECOND[dtype.time_unit or "us"]
        return _numbers(_whole_sizes(1, longest=min(_LONGEST, most)))
    if dtype == pl.Date:
        return _steps(tuple(_days(year) for year in _YEARS), last=1)
    if isinstance(dtype, pl.Datetime):
        scale = _DAY * _PER_SECOND[dtype.time_unit or "us"]
        return _steps(tuple(_days(year) * scale for year in _YEARS), last=0)
    if dtype == pl.Time:
        hours = tuple(hour * 3600 * 10**9 for hour in range(25))
        return Ladder(hours, tuple(map(Fraction, hours[:-1])), tuple(Fraction(hour - 1) for hour in hours[1:]))
    return None


def _days(year: int) -> int:
    return date(year, 1, 1).toordinal() - date(1970, 1, 1).toordinal()


@lru_cache(maxsize=8)
def _float_sizes() -> tuple[float, ...]:
    powers = range(_SMALLEST, _LARGEST + 1)
    found = [float(Fraction(step) * Fraction(10) ** power) for power in powers for step in _STEPS]
    return tuple(size for size in found if size <= 10.0**_LARGEST)


@lru_cache(maxsize=32)
def _whole_sizes(scale: int, longest: int | None = None) -> tuple[int, ...]:
    """Return whole sizes up to 10**12 of the values that people see, as stored numbers; `scale` is stored for 1."""
    most = min(_LONGEST, 10**_LARGEST * scale if longest is None else longest)
    return tuple(step * 10**power for power in range(39) for step in _STEPS if step * 10**power <= most)


@lru_cache(maxsize=32)
def _numbers(sizes: tuple[Any, ...]) -> Ladder:
    """Return bins on both sides of 0. Those above 0 contain their upper end, those below 0 their lower end.

    So a value at the far end of its bin is not cut off by bounds that end there.
    """
    whole = isinstance(sizes[0], int)

    def after(size: Any) -> Any:
        return size + 1 if whole else math.nextafter(size, math.inf)

    ends = (-LIMIT, LIMIT) if whole else (-math.inf, math.inf)
    edges = (ends[0], *(-size for size in reversed(sizes)), 0, after(0), *map(after, sizes), ends[1])
    steps = [Fraction(repr(size)) if not whole else Fraction(size) for size in sizes]
    below, nothing = [-step for step in reversed(steps)], Fraction(0)
    lows = (below[0], *below, nothing, nothing, *steps)
    highs = (*below, nothing, nothing, *steps, steps[-1])
    return Ladder(edges, lows, highs)


@lru_cache(maxsize=8)
def _steps(edges: tuple[int, ...], last: int) -> Ladder:
    """Return a bin from each edge to the next. Bins end `last` stored units before the next edge."""
    inner = tuple(map(Fraction, edges))
    lows = (inner[0], *inner)
    highs = (inner[0], *(edge - last for edge in inner[1:]), inner[-1])
    return Ladder((-LIMIT, *edges, LIMIT), lows, highs)
