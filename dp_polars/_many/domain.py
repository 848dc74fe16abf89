"""A public domain: the product of columns with finitely many values, and the number of a row's cell in it.

The user names the values, so the cells are public. A row's cell depends on that row alone. Cells are numbered in C
order, so a histogram over them is an array of the shape `dims`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from dp_polars._aggregates.values import stored_number
from dp_polars._frame.options import given_domain
from dp_polars._plan.digest import public_digest
from dp_polars._plan.query import Key
from dp_polars.errors import InvalidParameterError

MAX_CELLS = 1_000_000
CELL = "dp_polars_cell"
"""The column with the number of a row's cell."""

_LARGEST_EDGE = 2**62


# ---------------------------------------------------------------- what users write


@dataclass(frozen=True)
class Bins:
    """Half-open bins between rising edges; the last bin includes both of its edges. Made by `dp.bins`.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.bins([0, 18, 65, 120])
    Bins(edges=(0, 18, 65, 120))
    """

    edges: tuple[Any, ...]


DomainLike = str | Sequence[str] | Mapping[str, Iterable[Any] | Bins | None]


def bins(edges: Iterable[Any]) -> Bins:
    """Return bins between edges, as the values of a numeric or temporal column in a domain.

    A bin includes its lower edge, and the last bin includes both. Values outside are left out. Fix the edges without
    looking at the data.

    Parameters
    ----------
    edges
        At least two rising numbers; dates, times or durations for columns of these types.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> people = pl.DataFrame({"user": [1, 2, 3], "age": [5, 31, 45], "member": [True, False, True]})
    >>> with dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1):
    ...     made = people.dp.synthesize({"age": dp.bins([0, 18, 65, 120]), "member": None}, epsilon=0.5)
    >>> made.distribution.shape
    (6, 3)
    """
    if isinstance(edges, str | bytes | Mapping) or not isinstance(edges, Iterable):
        raise InvalidParameterError("bins takes a list of at least two edges: dp.bins([0, 10, 20, 60]).")
    found = tuple(edges)
    if len(found) < 2:
        raise InvalidParameterError("bins needs at least two edges: dp.bins([0, 10, 20, 60]).")
    return Bins(found)


# ---------------------------------------------------------------- the domain


@dataclass(frozen=True, eq=False)
class DomainColumn:
    """One column of a domain.

    Attributes
    ----------
    name, dtype
        The name and the type of the column in the frame.
    values
        What stands for each cell: its value, or the lower edge of its bin.
    edges
        The rising edges of the bins, as the numbers that the column stores; empty if the values are listed.
    """

    name: str
    dtype: pl.DataType
    values: pl.Series
    edges: tuple[Fraction, ...] = ()

    def code(self) -> pl.Expr:
        """Return the number of a row's cell along this column; null if the row is outside the domain."""
        column = pl.col(self.name)
        if self.edges:
            return self._bin(column)
        if isinstance(self.dtype, pl.Categorical):  # its codes depend on other rows
            column = column.cast(pl.String)
        known = self.values.is_not_null()
        numbers = pl.Series(np.arange(len(self.values)), dtype=pl.Int64)
        found = column.replace_strict(
            self.values.filter(known), numbers.filter(known), default=None, return_dtype=pl.Int64
        )
        if known.all():
            return found
        return pl.when(column.is_null()).then(pl.lit(numbers.filter(~known)[0], pl.Int64)).otherwise(found)

    def _bin(self, column: pl.Expr) -> pl.Expr:
        limits: Sequence[float]
        if self.dtype.is_float():
            column, limits, last = column.cast(pl.Float64).fill_nan(None), self.float_edges, self.float_edges[-1]
        else:
            column = column.to_physical().cast(pl.Int64, strict=False)
            limits, last = self.whole_edges, self.whole_edges[-1] - 1
        lower = pl.Series(limits[:-1], dtype=pl.Float64 if self.dtype.is_float() else pl.Int64)
        place = pl.lit(lower).search_sorted(column, side="right").cast(pl.Int64) - 1
        return pl.when(column.is_between(limits[0], last)).then(place)

    @property
    def float_edges(self) -> list[float]:
        """The edges of bins of floats; the last edge belongs to the last bin."""
        return [float(edge) for edge in self.edges]

    @property
    def whole_edges(self) -> list[int]:
        """The first whole number of each bin of whole numbers, and the first one beyond the last bin."""
        return [*(math.ceil(edge) for edge in self.edges[:-1]), math.floor(self.edges[-1]) + 1]


@dataclass(frozen=True, eq=False)
class Domain:
    """The product of columns."""

    columns: tuple[DomainColumn, ...]

    def __post_init__(self) -> None:
        if self.size > MAX_CELLS:
            shape = " x ".join(str(length) for length in self.dims)
            raise InvalidParameterError(
                f"The domain has {self.size:,} cells ({shape}), more than {MAX_CELLS:,}. Use fewer columns, fewer "
                "values or wider bins."
            )

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """The number of cells along each column."""
        return tuple(len(column.values) for column in self.columns)

    @property
    def size(self) -> int:
        """The number of cells."""
        return math.prod(self.dims)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def schema(self) -> pl.Schema:
        """The types of the values that stand for the cells."""
        return pl.Schema({column.name: column.values.dtype for column in self.columns})

    def cell(self) -> pl.Expr:
        """Return the number of a row's cell; null if the row is outside the domain."""
        number: pl.Expr = pl.lit(0, pl.Int64)
        for column in self.columns:
            number = number * len(column.values) + column.code()
        return number.alias(CELL)

    def frame(self, axes: Sequence[int] | None = None) -> pl.DataFrame:
        """Return the cells as rows in their order. With `axes`, the cells of the product of these columns alone."""
        chosen = list(range(len(self.columns)) if axes is None else axes)
        cells = np.arange(math.prod(self.dims[axis] for axis in chosen))
        places = np.unravel_index(cells, tuple(self.dims[axis] for axis in chosen)) if chosen else ()
        return pl.DataFrame(
            [self.columns[axis].values.gather(place) for axis, place in zip(chosen, places, strict=True)]
        )

    def fingerprint(self) -> str:
        """Return a text that is equal for equal domains."""
        described = [
            [column.name, str(column.dtype), public_digest(column.values.to_frame()), [str(e) for e in column.edges]]
            for column in self.columns
        ]
        return json.dumps(described)

    def title(self) -> str:
        """Return the domain in a few words."""
        return ", ".join(f"{column.name} ({len(column.values)})" for column in self.columns)


# ---------------------------------------------------------------- from what users write to the domain


def parse_domain(given: Any, schema: pl.Schema, unit: Sequence[str]) -> Domain:
    """Return the domain that a user described, or raise an error that says what is missing."""
    words: dict[str, Any]
    if isinstance(given, Mapping):
        words = dict(given)
    elif isinstance(given, str):
        words = {given: None}
    elif isinstance(given, Iterable):
        listed = list(given)
        words = dict.fromkeys(listed) if all(isinstance(name, str) for name in listed) else {}
        if len(words) < len(listed):
            raise InvalidParameterError("A domain lists names of columns, each once, or maps them to their values.")
    else:
        words = {}
    if not words or not all(isinstance(name, str) for name in words):
        raise InvalidParameterError(
            "A domain is a list of Enum and Boolean columns, or maps each column to its values: "
            "{'sex': None, 'region': ['north', 'south'], 'age': dp.bins([0, 18, 65, 120])}."
        )
    for name in words:
        if name not in schema:
            raise InvalidParameterError(f"The frame has no column {name}; it has {', '.join(schema)}.")
        if name in unit:
            raise InvalidParameterError(f"{name} says who is protected; it can't be a column of a domain.")
    return Domain(tuple(_column(name, schema[name], values) for name, values in words.items()))


def _column(name: str, dtype: pl.DataType, given: Any) -> DomainColumn:
    if dtype.is_nested() or dtype in (pl.Object, pl.Null, pl.Unknown):
        raise InvalidParameterError(f"{name} has the type {dtype}; a domain has columns of single values.")
    if isinstance(given, Bins):
        return _binned(name, dtype, given)
    if given is None:
        return DomainColumn(name, dtype, _values_of_type(name, dtype))
    if dtype.is_float():
        raise InvalidParameterError(
            f"{name} holds floats, which can't be listed one by one; give {name}: dp.bins([0, 10, 20])."
        )
    plain: pl.DataType = pl.String() if isinstance(dtype, pl.Categorical) else dtype
    key = Key(name=name, expression="", dtype=plain, constant_per_unit=False)
    try:
        values = given_domain(given, (key,))[name]
    except InvalidParameterError:
        raise InvalidParameterError(
            f"The values of {name} must be a list without repeats, of the type that {name} has ({plain})."
        ) from None
    return DomainColumn(name, dtype, values)


def _values_of_type(name: str, dtype: pl.DataType) -> pl.Series:
    """Return all values of a Boolean or an Enum type."""
    if dtype == pl.Boolean:
        return pl.Series(name, [False, True])
    if isinstance(dtype, pl.Enum) and len(dtype.categories):
        return pl.Series(name, list(dtype.categories), dtype=dtype)
    how = f"dp.bins([0, 10, 20]) as {name}" if dtype.is_float() else f"a list of values or dp.bins as {name}"
    raise InvalidParameterError(
        f"{name} has the type {dtype}, which doesn't say its values: give {how}. They must not be read off the data."
    )


def _binned(name: str, dtype: pl.DataType, given: Bins) -> DomainColumn:
    if not (dtype.is_integer() or dtype.is_float() or dtype.is_temporal()):
        raise InvalidParameterError(f"{name} has the type {dtype}; bins are for integers, floats and times.")
    edges = tuple(stored_number(edge, "an edge of bins", name, dtype) for edge in given.edges)
    if any(abs(edge) > _LARGEST_EDGE for edge in edges):
        raise InvalidParameterError(f"The edges of {name} must lie within -2**62 and 2**62.")
    column = DomainColumn(name, dtype, pl.Series(name, [], dtype=pl.Float64), edges)
    points: Sequence[float] = column.float_edges if dtype.is_float() else column.whole_edges
    if any(not a < b for a, b in pairwise(edges)) or any(not a < b for a, b in pairwise(points)):
        raise InvalidParameterError(f"The edges of {name} must rise, with a value of the type {dtype} in each bin.")
    return DomainColumn(name, dtype, _lower_edges(name, dtype, edges), edges)


def _lower_edges(name: str, dtype: pl.DataType, edges: Sequence[Fraction]) -> pl.Series:
    """Return the lower edges in the column's own type if they fit it, and as floats otherwise."""
    lower = edges[:-1]
    if dtype.is_float() or any(edge.denominator != 1 for edge in lower):
        return pl.Series(name, [float(edge) for edge in lower], dtype=pl.Float64)
    whole = pl.Series(name, [int(edge) for edge in lower], dtype=pl.Int64)
    try:
        return whole.cast(dtype)
    except pl.exceptions.PolarsError:
        return whole
