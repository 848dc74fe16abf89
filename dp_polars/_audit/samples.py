"""The answers of many runs as a table: one row per run, one column for each number or name that an answer can contain.

A number that an answer lacks, such as the count of a group that is not shown, is NaN. A name that it lacks is -1.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars.errors import InvalidParameterError

Floats = NDArray[np.float64]
ColumnCodes = NDArray[np.int64]

_FEW = 20  # if an answer consists of names only, this many of its rows are also compared by position
_MOST_COLUMNS = 100_000


@dataclass
class Names:
    """Codes for names, the same on both inputs."""

    known: dict[Any, int] = field(default_factory=dict)

    def code(self, name: Any) -> int:
        """Return the code of a name, which is a new one for a new name."""
        return self.known.setdefault(name, len(self.known))


@dataclass(frozen=True)
class Samples:
    """The answers of many runs. Runs that share one read of the rows are adjacent, equally many for each read."""

    runs: int
    numbers: Mapping[str, Floats]
    codes: Mapping[str, ColumnCodes]

    def slice(self, start: int, end: int) -> Samples:
        """Return the runs from `start` up to `end`."""
        return Samples(
            end - start,
            {name: column[start:end] for name, column in self.numbers.items()},
            {name: column[start:end] for name, column in self.codes.items()},
        )

    def number(self, name: str) -> Floats:
        """Return a column of numbers, which is all NaN if these answers never have it."""
        column = self.numbers.get(name)
        return np.full(self.runs, np.nan) if column is None else column

    def code(self, name: str) -> ColumnCodes:
        """Return a column of codes, which is all -1 if these answers never have it."""
        column = self.codes.get(name)
        return np.full(self.runs, -1, np.int64) if column is None else column


def joined(parts: Sequence[Samples]) -> Samples:
    """Return the runs of several samples as one."""
    if len(parts) == 1:
        return parts[0]
    numbers = {name: None for part in parts for name in part.numbers}
    codes = {name: None for part in parts for name in part.codes}
    return Samples(
        sum(part.runs for part in parts),
        {name: np.concatenate([part.number(name) for part in parts]) for name in numbers},
        {name: np.concatenate([part.code(name) for part in parts]) for name in codes},
    )


def samples_of(answers: Sequence[Any], names: Names) -> Samples:
    """Return a list of answers of any type, one per run, as a table."""
    numbers: dict[str, Floats] = {}
    codes: dict[str, ColumnCodes] = {}
    for run, answer in enumerate(answers):
        for place, value in _leaves(answer, ""):
            if isinstance(value, float):
                numbers.setdefault(place, np.full(len(answers), np.nan))[run] = value
            else:
                codes.setdefault(place, np.full(len(answers), -1, np.int64))[run] = names.code(value)
        if len(numbers) + len(codes) > _MOST_COLUMNS:
            raise InvalidParameterError(
                f"The answers contain more than {_MOST_COLUMNS:,} numbers. Ask about fewer groups or cells."
            )
    return Samples(len(answers), numbers, codes)


def _leaves(answer: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield the numbers of an answer as floats and its names as anything else, each with its position in the answer."""
    match answer:
        case None:
            return
        case datetime():  # must come before date(), its base class
            yield place, answer.timestamp()
        case bool() | str() | bytes() | date() | time():
            yield place, str(answer)
        case timedelta():
            yield place, answer.total_seconds()
        case int() | float() | Decimal() | Fraction() | np.integer() | np.floating():
            number = float(answer)
            if math.isfinite(number):
                yield place, number
            else:
                yield place, str(number)
        case pl.LazyFrame():
            yield from _leaves(answer.collect(), place)
        case pl.DataFrame():
            yield from _cells(answer, place)
        case pl.Series():
            yield from _cells(answer.to_frame(), place)
        case Mapping():
            for name, value in answer.items():
                yield from _leaves(value, f"{place}.{name}")
        case list() | tuple() | np.ndarray():
            for index, value in enumerate(answer):
                yield from _leaves(value, f"{place}[{index}]")
        case _ if hasattr(answer, "distribution") and hasattr(answer, "size"):  # synthetic rows
            yield from _cells(answer.distribution, f"{place}.distribution")
            yield f"{place}.size", float(answer.size)
        case _ if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
            for entry in dataclasses.fields(answer):
                yield from _leaves(getattr(answer, entry.name), f"{place}.{entry.name}")
        case _ if callable(getattr(answer, "pl", None)):  # a relation of DuckDB
            yield from _cells(answer.pl(), place)
        case _:
            raise InvalidParameterError(
                f"An audit can't compare answers of the type {type(answer).__name__}. Let the question return frames, "
                "numbers, texts, or lists and dictionaries of them."
            )


def _cells(frame: pl.DataFrame, place: str) -> Iterator[tuple[str, Any]]:
    """Yield the cells of a frame. Rows are identified by their keys, which are the columns that are not numeric."""
    keys = [name for name, dtype in frame.schema.items() if not (dtype.is_numeric() or dtype.is_nested())]
    others = [name for name in frame.columns if name not in keys]
    if not others:  # only names: a choice, or responses in any order
        rows = [str(row) for row in frame.iter_rows()]
        yield from ((f"{place}[{number}]", row) for number, row in enumerate(rows[:_FEW]))
        if frame.height > 1:
            yield from ((f"{place}#{row}", float(many)) for row, many in Counter(rows).items())
        return
    seen: Counter[str] = Counter()
    for values in frame.iter_rows(named=True):
        key = str(tuple(values[name] for name in keys)) if keys else ""
        seen[key] += 1
        for name in others:
            yield from _leaves(values[name], f"{place}{key}#{seen[key]}.{name}")
