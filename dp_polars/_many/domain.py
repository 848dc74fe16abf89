"""A public domain: the product of columns that have finitely many values, and the number of a row's cell in it.

What one unit can change: the rows that it has. A row's cell depends on that row alone; which cells there are, on what
the user said. Cells are numbered in C order, so that a histogram over them is an array of the shape `dims`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._plan.digest import public_digest
from dp_polars.errors import InvalidParameterError

MAX_CELLS = 1_000_000
CELL = "dp_polars_cell"


@dataclass(frozen=True, eq=False)
class DomainColumn:
    """One column of a domain.

    Attributes
    ----------
    name, dtype
        Of the column in the frame.
    values
        What stands for each cell: its value, or the lower edge of its bin.
    edges
        Of a binned column: the edges as the numbers that the column stores, rising; else empty.
    """

    name: str
    dtype: pl.DataType
    values: pl.Series
    edges: tuple[Fraction, ...] = ()

    def code(self) -> pl.Expr:
        """Return the number of a row's cell along this column, null outside."""
        column = pl.col(self.name)
        if self.edges:
            return self._bin(column)
        if isinstance(self.dtype, pl.Categorical):  # its own numbers depend on other rows
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
        """The edges of bins of floats; the last one belongs to the last bin."""
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
        """How many cells there are along each column."""
        return tuple(len(column.values) for column in self.columns)

    @property
    def size(self) -> int:
        """How many cells there are."""
        return math.prod(self.dims)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def schema(self) -> pl.Schema:
        """The types of the columns that stand for the cells."""
        return pl.Schema({column.name: column.values.dtype for column in self.columns})

    def cell(self) -> pl.Expr:
        """Return the number of a row's cell, null for a row outside."""
        number: pl.Expr = pl.lit(0, pl.Int64)
        for column in self.columns:
            number = number * len(column.values) + column.code()
        return number.alias(CELL)

    def frame(self, axes: Sequence[int] | None = None) -> pl.DataFrame:
        """Return the cells as rows in their order; with `axes` those of the product of these columns alone."""
        chosen = range(len(self.columns)) if axes is None else axes
        return self.at(np.arange(math.prod(self.dims[axis] for axis in chosen)), chosen)

    def at(self, cells: NDArray[Any], axes: Sequence[int] | None = None) -> pl.DataFrame:
        """Return the rows that stand for cells."""
        chosen = list(range(len(self.columns)) if axes is None else axes)
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


def histogram_of(cells: pl.Series, domain: Domain) -> NDArray[np.int64]:
    """Return how many rows each cell has, exactly."""
    counts = np.bincount(cells.to_numpy(), minlength=domain.size)
    return counts.astype(np.int64).reshape(domain.dims)
