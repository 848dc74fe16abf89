"""The rows of a private frame: a source of rows and the steps that were applied to it. Nothing here reads a row.

What one unit can change: each step gives a row a value that depends on that row and on public constants alone, drops
the row, or looks up public rows by its keys. So a unit's rows after all steps depend only on its rows before them.
An engine may carry out the steps in any way that gives the rows that they describe.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._expressions.tree import Column, Constant, Expression, canonical
from dp_polars._expressions.types import MOST_TEXT, kind_of
from dp_polars.errors import InvalidParameterError

OWN = "\0"
"""First character of column names that belong to dp_polars. No column of a user starts with it."""

MOST_COPIES = 100
"""Largest number of public rows that one row may match."""

MOST_COPIES_IN_ALL = 10_000
"""Largest number of rows that one row may become in several joins with public rows.

Without it, a question about one person whose rows are multiplied a few times would run out of memory if, and only if,
this person is in the data.
"""

How = Literal["inner", "left", "semi", "anti"]


@dataclass(frozen=True)
class Filter:
    """Keep the rows for which all conditions are true."""

    conditions: tuple[Expression, ...]
    columns: tuple[str, ...] | None = None
    """Columns that later steps still need; None means all."""


@dataclass(frozen=True)
class WithColumns:
    """Add or replace columns. Without `keep`, all other columns are dropped."""

    columns: tuple[tuple[str, Expression], ...]
    keep: bool


@dataclass(frozen=True, repr=False, eq=False)
class Lookup:
    """Look up the public rows with the keys of a private row. `columns` pairs public columns with their new names."""

    public: pl.DataFrame
    on: tuple[tuple[str, str], ...]
    how: How
    columns: tuple[tuple[str, str], ...]
    unique: bool
    """Whether no two public rows have the same keys."""
    nulls_equal: bool = False
    said_public: bool = True
    """Whether somebody said that the rows are public: SQL's catalog, or the caller of a join."""
    copies: int = 1
    """The largest number of rows that one row becomes."""


Step = Filter | WithColumns | Lookup


class Source(Protocol):
    """Rows before any step, in the form that one engine reads.

    A source whose engine does not know every operation also has a method `check(rows)`, which refuses the others. It
    is called when steps are added, so a question is refused when it is planned.
    """

    @property
    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        ...


@dataclass(frozen=True, repr=False, eq=False)
class PrivateRows:
    """The rows of a source after steps. They are private and never shown.

    Parameters
    ----------
    source
        The rows before the steps.
    steps
        The steps, in the order in which they are applied.
    """

    source: Source
    steps: tuple[Step, ...] = ()

    @cached_property
    def source_schema(self) -> pl.Schema:
        """Names and types of the source's columns."""
        schema = self.source.schema
        check_names(schema)
        return schema

    @cached_property
    def schema(self) -> pl.Schema:
        """Names and types of the columns after the steps."""
        found: dict[str, pl.DataType] = dict(self.source_schema)
        for step in self.steps:
            if isinstance(step, WithColumns):
                made = {name: expression.dtype for name, expression in step.columns}
                found = {**found, **made} if step.keep else made
            elif isinstance(step, Lookup) and step.how in ("inner", "left"):
                found |= {name: step.public.schema[public_name] for public_name, name in step.columns}
        return pl.Schema(found)

    def filter(self, condition: Expression) -> PrivateRows:
        """Return the rows for which a condition is true."""
        if condition.dtype != pl.Boolean:
            raise InvalidParameterError("filter takes conditions: expressions that are true or false in each row.")
        *before, last = self.steps or (None,)
        if isinstance(last, Filter):  # conditions are total, so they can be computed together in any order
            return self._with(*before, Filter((*last.conditions, condition)))
        return self._with(*self.steps, Filter((condition,)))

    def make(self, columns: Mapping[str, Expression], *, keep: bool = True) -> PrivateRows:
        """Return the rows with new or replaced columns. Without `keep`, they have no other columns."""
        if not keep and not columns:  # a frame without columns has no rows either
            columns = {f"{OWN}row": Constant(None, pl.Boolean())}
        return self._with(*self.steps, WithColumns(tuple(columns.items()), keep))

    def _with(self, *steps: Step) -> PrivateRows:
        """Return the rows of the source after other steps, if its engine can compute them."""
        rows = replace(self, steps=steps)
        check: Callable[[PrivateRows], None] | None = getattr(self.source, "check", None)
        if check is not None:
            check(rows)
        return rows

    @property
    def copies(self) -> int:
        """The largest number of rows that one row of the source becomes in joins with public rows."""
        return math.prod(step.copies for step in self.steps if isinstance(step, Lookup))

    def keep(self, names: Iterable[str]) -> PrivateRows:
        """Return the rows with these columns only."""
        return self.make({name: Column(name, self.schema[name]) for name in names}, keep=False)

    def lookup(
        self,
        public: pl.DataFrame,
        *,
        on: Sequence[tuple[str, str]],
        how: How,
        columns: Mapping[str, str],
        unique: bool = True,
        nulls_equal: bool = False,
        said_public: bool = True,
    ) -> PrivateRows:
        """Return the rows with columns of the public rows that have the same keys.

        Parameters
        ----------
        public
            The public rows.
        on
            Pairs of a private and a public column of the same type. Rows match if all pairs are equal.
        how
            "inner" and "semi" drop rows without a match, "anti" drops rows with a match, and "left" keeps all rows.
        columns
            The public columns to add, and their new names.
        unique
            Whether the keys must be unique among the public rows. If not, a row with several matches becomes several
            rows of the same unit. Caps on rows are enforced afterwards.
        nulls_equal
            Whether a null key matches a null key.
        said_public
            Whether somebody said that the rows are public. If not, `with_units` refuses keys that identify units.
        """
        for mine, theirs in on:
            if self.schema[mine] != public.schema[theirs]:
                raise InvalidParameterError(
                    f"{mine} has the type {self.schema[mine]} and its public counterpart {public.schema[theirs]}, but "
                    "a lookup compares values of one type. Cast one of them first."
                )
            if kind_of(self.schema[mine]) in ("float", "list", "array", "struct", "categorical", "null", "other"):
                raise InvalidParameterError(
                    f"{mine} has the type {self.schema[mine]}, by which rows can't be looked up; cast it first."
                )
        long = [name for name in columns if largest_value(public[name]) > MOST_TEXT]
        if long:
            raise InvalidParameterError(
                f"The public frame has values of more than {MOST_TEXT:,} characters or elements in {', '.join(long)}. "
                "Every row that matches one would hold a copy. If the memory ran out because of one person's rows, the "
                "failure would reveal that the person is in the data. Shorten the values, or leave the column out."
            )
        keys = [theirs for _, theirs in on]
        are_unique = public.height <= 1 or (bool(keys) and public.select(keys).n_unique() == public.height)
        if unique and not are_unique:
            raise InvalidParameterError(
                f"The public frame has {', '.join(keys)} more than once: a join would multiply rows and with them "
                "what one unit can change. Make the keys unique first."
            )
        copies = 1 if are_unique or not public.height else most_copies(public, keys)
        if not unique and copies > MOST_COPIES:
            raise InvalidParameterError(
                f"A row may match at most {MOST_COPIES:,} public rows, and "
                + (
                    f"some values of {', '.join(keys)} occur more often than that in the public frame."
                    if keys
                    else "this join, which compares no columns for equality, would match all of them."
                )
            )
        copies = copies if how in ("inner", "left") else 1
        if copies > 1 and copies * self.copies > MOST_COPIES_IN_ALL:
            raise InvalidParameterError(
                f"One row would become up to {copies * self.copies:,} rows in these joins with public rows, and at "
                f"most {MOST_COPIES_IN_ALL:,} are allowed: the memory must not run out because of one person's rows. "
                "Join the public rows with each other first, and keep those that are needed."
            )
        # A semi or anti join adds no columns, whatever is asked for: a column of that name would be the private one.
        added = tuple(columns.items()) if how in ("inner", "left") else ()
        step = Lookup(public, tuple(on), how, added, are_unique, nulls_equal, said_public, copies)
        return self._with(*self.steps, step)

    def describe(self, digest: Callable[[pl.DataFrame], str]) -> list[Any]:
        """Return the steps in a form that names a query. Public frames are given by their digest."""
        return [_described(step, digest) for step in self.steps]


def _described(step: Step, digest: Callable[[pl.DataFrame], str]) -> Any:
    match step:
        case Filter():
            return ["filter", [canonical(condition) for condition in step.conditions]]
        case WithColumns():
            return ["make", [[name, canonical(expression)] for name, expression in step.columns], step.keep]
    on = [list(pair) for pair in step.on]
    columns = [list(pair) for pair in step.columns]
    return ["lookup", digest(step.public), on, step.how, columns, step.unique, step.nulls_equal]


def check_names(names: Iterable[str]) -> None:
    """Refuse column names that could be mistaken for others: Polars patterns, and names that differ only by case.

    `pl.col("^x$")` means every column that matches the pattern, `pl.col("*")` means all columns, and SQL ignores case.
    """
    names = list(names)
    refuse_broken(names)
    seen: dict[str, str] = {}
    for name in names:
        if is_pattern(name):
            raise InvalidParameterError(
                f"This frame has a column named {name!r}, which Polars reads as a pattern for other columns, so it "
                "would be unclear who is protected. Rename it before .dp."
            )
        folded = "".join(sign.lower() if sign.isascii() else sign for sign in name)
        if folded in seen:
            raise InvalidParameterError(
                f"This frame has the columns {seen[folded]!r} and {name!r}, which differ by case alone. SQL takes one "
                "for the other, so it would be unclear who is protected. Rename one of them first."
            )
        seen[folded] = name


def refuse_broken(names: Iterable[str]) -> None:
    """Refuse column names with a null character inside, or with half a character.

    Arrow ends a name at a null character, or panics, and Polars takes no half of a surrogate pair. This would happen
    after the charge. Only dp_polars' own names begin with a null character.
    """
    names = list(names)
    if any(OWN in name.lstrip(OWN) for name in names):
        raise InvalidParameterError(
            "A column has a null character in its name, where other programs end a name, so it could be mistaken for "
            "another column. Rename it first."
        )
    if not all(is_unicode(name) for name in names):
        raise InvalidParameterError(
            "A column has half of a surrogate pair in its name, which is no valid Unicode. Rename it first."
        )


def is_unicode(text: str) -> bool:
    """Return whether a text is valid Unicode: whether it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_pattern(name: str) -> bool:
    """Return whether `pl.col` would read a name as a pattern for several columns."""
    return name == "*" or (name.startswith("^") and name.endswith("$"))


def most_copies(public: pl.DataFrame, keys: Sequence[str]) -> int:
    """Return the largest number of public rows that share the same keys."""
    if not keys:
        return public.height
    return int(public.group_by(keys).len()["len"].max())  # type: ignore[arg-type]


def largest_value(column: pl.Series) -> int:
    """Return the size of the largest value of a column, in characters and elements."""
    return int(_sizes_of(column).max(initial=0))


def _sizes_of(column: pl.Series) -> NDArray[np.int64]:
    dtype = column.dtype
    if dtype == pl.String or dtype == pl.Binary:
        sizes = column.str.len_chars() if dtype == pl.String else column.bin.size()
        return sizes.fill_null(0).cast(pl.Int64).to_numpy()
    if isinstance(dtype, pl.Struct):
        fields = [_sizes_of(column.struct.field(field.name)) for field in dtype.fields]
        return np.sum(fields, axis=0, dtype=np.int64) if fields else np.ones(len(column), np.int64)
    if isinstance(dtype, pl.Array):
        return _sizes_of(column.cast(pl.List(dtype.inner)))
    if not isinstance(dtype, pl.List):
        return np.ones(len(column), np.int64)
    lengths = column.list.len().fill_null(0).cast(pl.Int64).to_numpy()
    inner = _sizes_of(column.filter(pl.Series(lengths > 0)).explode(empty_as_null=False))
    ends: NDArray[np.int64] = np.cumsum(np.append(0, inner))
    starts = np.cumsum(lengths) - lengths
    whole: NDArray[np.int64] = lengths + ends[starts + lengths] - ends[starts]
    return whole
