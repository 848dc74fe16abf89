"""Value columns and their bounds, as a plan needs them: times and decimals are the whole numbers that they are."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import polars as pl

from dp_polars._aggregates.functions import Asked, Bounds
from dp_polars._expressions.check import CheckedExpression
from dp_polars._numbers import count_of, exact
from dp_polars._plan.query import Value
from dp_polars.errors import InvalidParameterError

_TIMES = ("sum", "mean", "quantile", "median", "min", "max", "histogram")
_MOST = {True: Fraction(2**62), False: Fraction(10**15)}
_FINEST = 10**4
_MOST_BINS = 10_000
_EXAMPLES = {
    pl.Date: "datetime.date(2020, 1, 1), datetime.date(2030, 1, 1)",
    pl.Datetime: "datetime.datetime(2020, 1, 1), datetime.datetime(2030, 1, 1)",
    pl.Time: "datetime.time(8), datetime.time(18)",
    pl.Duration: "datetime.timedelta(0), datetime.timedelta(days=7)",
}
AUTO_RANGE = (-(10**12), 10**12)
"""Where bounds are looked for, if they are estimated."""


def value_of(
    checked: CheckedExpression, dtype: pl.DataType, asked: Asked, bounds: Bounds, *, can_estimate: bool = True
) -> Value:
    """Return a value column of an aggregate, with its bounds."""
    name, kind = checked.name, asked.kind
    if kind in ("count", "count_units", "n_unique"):
        if kind == "n_unique" and (dtype.is_nested() or dtype in (pl.Object, pl.Unknown)):
            raise InvalidParameterError(f"{name} has the type {dtype}; its values can't be told apart. Cast it first.")
        return Value(name=name, expression=checked.canonical, dtype=dtype)
    numeric = dtype.is_integer() or dtype.is_float() or dtype.is_decimal() or dtype == pl.Boolean
    if dtype in (pl.Int128, pl.UInt128) or not (numeric or (dtype.is_temporal() and kind in _TIMES)):
        raise InvalidParameterError(
            f"{name} has the type {dtype}; a {kind} needs integers or floats"
            + (", decimals or times" if kind in _TIMES else " or decimals")
            + ". Cast it first."
        )
    if kind == "sum" and dtype.is_temporal() and dtype != pl.Duration:
        raise InvalidParameterError(f"{name} has the type {dtype}; there is no sum of points in time but of durations.")
    if kind == "histogram" and asked.edges is not None:
        return Value(name=name, expression=checked.canonical, dtype=dtype)
    if isinstance(bounds, str) and bounds == "auto":
        if dtype.is_temporal() or kind == "histogram":
            what = "a histogram" if kind == "histogram" else f"points in time ({name})"
            raise InvalidParameterError(f"The bounds of {what} can't be estimated; give them.")
        if asked.per == "unit":
            raise InvalidParameterError(
                "bounds='auto' looks at rows, not at each unit's total (per='unit'); give them."
            )
        scale = 10**dtype.scale if isinstance(dtype, pl.Decimal) else 1
        wide = (Fraction(AUTO_RANGE[0] * scale), Fraction(AUTO_RANGE[1] * scale))
        return Value(name=name, expression=checked.canonical, dtype=dtype, bounds=wide, auto=True)
    return Value(
        name=name, expression=checked.canonical, dtype=dtype, bounds=_bounds(bounds, name, dtype, can_estimate)
    )


def _bounds(given: Any, name: str, dtype: pl.DataType, can_estimate: bool) -> tuple[Fraction, Fraction]:
    if given is None:
        example = f"({_EXAMPLES[dtype.base_type()]})" if dtype.base_type() in _EXAMPLES else "(0, 100)"
        raise InvalidParameterError(
            f"Which values of {name} count at most? Say bounds={example}: values beyond are clipped, and "
            "the bounds decide the noise. They must not be read off the data"
            + ("." if dtype.is_temporal() or not can_estimate else " (bounds='auto' estimates them privately)."),
            code="bounds-missing",
        )
    if not isinstance(given, tuple | list) or len(given) != 2 or None in given:
        raise InvalidParameterError(
            "bounds= is a pair of numbers, the least and the largest: bounds=(0, 100).", code="invalid-bounds"
        )
    lower, upper = (stored_number(one, f"bounds[{place}]", name, dtype) for place, one in enumerate(given))
    if not lower < upper:
        raise InvalidParameterError("bounds=(lower, upper) needs lower < upper.", code="invalid-bounds")
    largest = max(abs(lower), abs(upper))
    if not Fraction(1, 10**100) < largest <= _MOST[not dtype.is_float() and not dtype.is_integer()]:
        raise InvalidParameterError(
            "bounds= must lie within -1e15 and 1e15, and not both so close to 0.", code="invalid-bounds"
        )
    return lower, upper


def stored_number(given: Any, what: str, name: str, dtype: pl.DataType) -> Fraction:
    """Return a bound as the number that a column would store."""
    if dtype.is_temporal():
        try:
            finer = isinstance(given, datetime.datetime) and dtype == pl.Date
            if finer or isinstance(given, int | float | str | Decimal):
                raise TypeError
            stored = pl.Series([given], dtype=dtype, strict=True).to_physical().item()
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            raise InvalidParameterError(
                f"{what} must be what {name} holds: a {dtype}, as in ({_EXAMPLES[dtype.base_type()]})."
            ) from None
        return Fraction(stored)
    if isinstance(given, datetime.date | datetime.time | datetime.timedelta):
        raise InvalidParameterError(f"{what} must be a number: {name} is of the type {dtype}.")
    number = exact(given, what)
    return number * 10**dtype.scale if isinstance(dtype, pl.Decimal) else number


def edges_of(asked: Asked, value: Value) -> tuple[Fraction, ...]:
    """Return the edges of a histogram's bins, rising."""
    if asked.kind != "histogram":
        return ()
    if asked.edges is not None:
        if asked.bins is not None or asked.bounds[0] is not None:
            raise InvalidParameterError("A histogram has edges=[...], or bins= over bounds=, not both.")
        if isinstance(asked.edges, str) or not isinstance(asked.edges, Iterable) or len(list(asked.edges)) < 2:
            raise InvalidParameterError("edges= is a list of at least two edges: edges=[0, 10, 100].")
        edges = [stored_number(edge, "edges", value.name, value.dtype) for edge in asked.edges]
    else:
        bins = count_of(10 if asked.bins is None else asked.bins, "bins")
        width = (value.upper - value.lower) / bins
        edges = [value.lower + place * width for place in range(bins + 1)]
        if not value.dtype.is_float():
            edges = [Fraction(math.floor(edge)) for edge in edges[:-1]] + [Fraction(math.ceil(edges[-1]))]
    if len(edges) - 1 > _MOST_BINS:
        raise InvalidParameterError(f"A histogram has at most {_MOST_BINS:,} bins.")
    *inner, last = edges
    shown = [Fraction(float(edge)) for edge in edges]
    if not value.dtype.is_float():  # as whole numbers, of which the last bin has both edges
        shown = [*(Fraction(math.ceil(edge)) for edge in inner), Fraction(math.floor(last) + 1)]
    if any(not a < b for a, b in pairwise(shown)):
        raise InvalidParameterError("The edges of a histogram must rise, and not be the same; use fewer bins.")
    return tuple(edges)


def quantiles_of(asked: Asked) -> tuple[tuple[Fraction, ...], bool]:
    """Return the wanted quantiles, and whether several were asked for."""
    given = asked.quantiles
    if given is None and asked.kind != "quantile":
        return (), False
    several = isinstance(given, Iterable) and not isinstance(given, str)
    listed = list(given) if several else [given]
    if not listed or given is None or isinstance(given, str | datetime.date | datetime.time):
        raise InvalidParameterError("quantile= is a number between 0 and 1, or a list of them.")
    found = tuple(exact(one, "quantile") for one in listed)
    if any(not 0 <= one <= 1 for one in found):
        raise InvalidParameterError("quantile= must lie between 0 and 1.")
    if any(one.denominator > _FINEST for one in found):
        raise InvalidParameterError(f"quantile= is known to four digits at most, such as {1 / _FINEST:g}.")
    if len(found) > 100:
        raise InvalidParameterError("At most 100 quantiles of a column are answered at once.")
    return found, several
