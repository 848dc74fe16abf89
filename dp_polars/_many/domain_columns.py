"""A domain in a user's words: Enum and Boolean columns by name, other columns with their values or bins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import polars as pl

from dp_polars._aggregates.values import stored_number
from dp_polars._frame.options import _given_domain
from dp_polars._many.domain import Domain, DomainColumn
from dp_polars._plan.query import Key
from dp_polars.errors import InvalidParameterError

_MOST = 2**62


@dataclass(frozen=True)
class Bins:
    """Half-open bins between rising edges; the last one has both edges. Made by `dp.bins`.

    Examples
    --------
    >>> import dp_polars as dp
    >>> dp.bins([0, 18, 65, 120])
    Bins(edges=(0, 18, 65, 120))
    """

    edges: tuple[Any, ...]


DomainLike = str | Sequence[str] | Mapping[str, Iterable[Any] | Bins | None]


def bins(edges: Iterable[Any]) -> Bins:
    """Return bins between edges, as the values of a column of numbers or times in a domain.

    A bin has its lower edge, the last one both; values outside are left out. The edges must not be read off the data.

    Parameters
    ----------
    edges
        At least two numbers, or dates, times or durations for such columns, rising.

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


def domain_of_words(given: Any, schema: pl.Schema, unit: Sequence[str]) -> Domain:
    """Return the domain that a user's words mean, or say what is missing."""
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
        return DomainColumn(name, dtype, _own_values(name, dtype))
    if dtype.is_float():
        raise InvalidParameterError(f"{name} holds floats, which are never listed; give {name}: dp.bins([0, 10, 20]).")
    plain: pl.DataType = pl.String() if isinstance(dtype, pl.Categorical) else dtype
    key = Key(name=name, expression="", dtype=plain, constant_per_unit=False)
    try:
        values = _given_domain(given, (key,))[name]
    except InvalidParameterError:
        raise InvalidParameterError(
            f"The values of {name} must be a list without repeats, of what {name} holds ({plain})."
        ) from None
    return DomainColumn(name, dtype, values)


def _own_values(name: str, dtype: pl.DataType) -> pl.Series:
    """Return the values that a type allows."""
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
    if any(abs(edge) > _MOST for edge in edges):
        raise InvalidParameterError(f"The edges of {name} must lie within -2**62 and 2**62.")
    column = DomainColumn(name, dtype, pl.Series(name, [], dtype=pl.Float64), edges)
    points: Sequence[float] = column.float_edges if dtype.is_float() else column.whole_edges
    if any(not a < b for a, b in pairwise(edges)) or any(not a < b for a, b in pairwise(points)):
        raise InvalidParameterError(f"The edges of {name} must rise, with a value of the type {dtype} in each bin.")
    return DomainColumn(name, dtype, _lower_edges(name, dtype, edges), edges)


def _lower_edges(name: str, dtype: pl.DataType, edges: Sequence[Any]) -> pl.Series:
    """Return the lower edges in the column's own type where they fit it, else as floats."""
    lower = edges[:-1]
    if dtype.is_float():
        return pl.Series(name, [float(edge) for edge in lower], dtype=pl.Float64)
    if any(edge.denominator != 1 for edge in lower):
        return pl.Series(name, [float(edge) for edge in lower], dtype=pl.Float64)
    whole = pl.Series(name, [int(edge) for edge in lower], dtype=pl.Int64)
    try:
        return whole.cast(dtype)
    except pl.exceptions.PolarsError:
        return whole
