"""Expressions computed on a batch of rows, such that no row's value depends on the rows beside it.

This holds by construction and does not rely on Polars' planner: a batch is a frame in memory, and every expression is
computed as a whole column of exactly the height of the batch. A batch on which Polars fails is halved until the
failing rows stand alone; their value is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import polars as pl

from dp_polars._engines.polars.lowering import lowered
from dp_polars._engines.polars.memory import Sizes, cuts_texts, makes_texts, own_copy, text_bytes
from dp_polars._engines.rows import OWN
from dp_polars._expressions.tree import Apply, Column, Constant, Expression, walk

BATCH = 1 << 17
"""Rows per batch, few enough for their columns to fit into the cache. Larger batches of a file are split."""
MEMORY = 1 << 28
"""Bytes to which a part of a batch may grow."""
VALUE_BYTES = 16
"""Bytes of a value that is not a text or a list."""

_FAILURES = (Exception, pl.exceptions.PanicException)
_MOST_KEPT = 16  # constants that are kept as columns, of up to 2 MB each
_LARGEST = 400  # nodes of an expression that Polars is given as a whole


class RowCountError(Exception):
    """A result has another number of rows than it must have, or another type."""


class Program:
    """Expressions that are computed together on a frame in memory, each as a column of the frame's height."""

    def __init__(self, expressions: Sequence[Expression]) -> None:
        self._expressions = tuple(expressions)
        computed = [one for expression in expressions if not isinstance(expression, Column) for one in walk(expression)]
        found = dict.fromkeys(one for one in computed if isinstance(one, Constant))
        self._constants = {one: f"{OWN}constant{place}" for place, one in enumerate(found)}
        self._values = {name: one.series(name) for one, name in self._constants.items()}
        self._chains = [Chain(one, place, self._constants) for place, one in enumerate(expressions)]
        self._read = sorted(frozenset[str]().union(*(expression.columns for expression in expressions)))
        self._nodes = len(computed) + sum(isinstance(expression, Column) for expression in expressions)
        self._grows = any(makes_texts(expression) for expression in expressions)
        self._cuts = [cuts_texts(expression) for expression in expressions]

    def columns(self, batch: pl.DataFrame) -> list[pl.Series]:
        """Return one column per expression. It is null in the rows on which Polars fails."""
        if all(isinstance(expression, Column) for expression in self._expressions):
            return [batch[expression.name] for expression in self._expressions if isinstance(expression, Column)]
        # Rebuilt from contiguous columns: Polars may store a column as a single value for all rows, and then it would
        # compute with a single value.
        frame = pl.DataFrame([batch[name].rechunk() for name in self._read]) if self._read else None
        parts = [self._slice(frame, start, height) for start, height in self._slices(frame, 0, batch.height)]
        if not parts:
            return [pl.Series([], dtype=expression.dtype) for expression in self._expressions]
        return [pl.concat([part[place] for part in parts]) for place in range(len(self._expressions))]

    def problem(self, frame: pl.DataFrame) -> str | None:
        """Return what Polars says about the expressions on public rows, or None if they can be computed."""
        try:
            self._computed(frame if frame.width else None, max(frame.height, 2), range(len(self._chains)))
        except RowCountError:
            return "another number of rows, or another type, than announced"
        except _FAILURES as error:
            return (str(error).strip().splitlines() or [""])[0].rstrip(".")
        return None

    def needs(self, batch: pl.DataFrame, height: int | None = None) -> int:
        """Return an upper bound on the bytes that a batch needs: all intermediate values, and all new texts."""
        rows = height or batch.height
        if not self._grows:
            return VALUE_BYTES * rows * self._nodes
        sizes = Sizes(rows, {one.name: text_bytes(one) for one in batch.iter_columns()})
        return (
            sum(sizes.of(expression) for expression in self._expressions)
            + sizes.total
            + VALUE_BYTES * rows * self._nodes
        )

    @cached_property
    def _kept(self) -> dict[str, pl.Series]:
        """Constants as columns of a whole batch. Making one costs as much as computing with it."""
        simple = [(name, one) for name, one in self._values.items() if not one.dtype.is_nested()]
        return {name: one.new_from_index(0, BATCH) for name, one in simple[:_MOST_KEPT]}

    def _slices(self, frame: pl.DataFrame | None, start: int, height: int) -> Iterator[tuple[int, int]]:
        """Yield the start and height of slices that are small enough not to fill the memory."""
        if not height:
            return
        if height == 1 or self.needs(pl.DataFrame() if frame is None else frame.slice(start, height), height) <= MEMORY:
            yield start, height
            return
        half = height // 2
        yield from self._slices(frame, start, half)
        yield from self._slices(frame, start + half, height - half)

    def _slice(self, frame: pl.DataFrame | None, start: int, height: int) -> list[pl.Series]:
        part = None if frame is None else frame.slice(start, height)
        try:
            return self._computed(part, height, range(len(self._chains)))
        except _FAILURES:
            # Each expression is tried separately, so a row is null only in the expressions that fail on it.
            return [self._isolated(part, height, place) for place in range(len(self._chains))]

    def _isolated(self, part: pl.DataFrame | None, height: int, place: int) -> pl.Series:
        """Return one expression that is null in the rows on which it fails. Halving the rows finds them."""
        try:
            return self._computed(part, height, [place])[0]
        except _FAILURES:
            if height == 1 or part is None:
                return pl.repeat(None, height, dtype=self._expressions[place].dtype, eager=True)
        half = height // 2
        halves = ((part.head(half), half), (part.tail(height - half), height - half))
        return pl.concat([self._isolated(piece, size, place) for piece, size in halves])

    def _computed(self, part: pl.DataFrame | None, height: int, places: Iterable[int]) -> list[pl.Series]:
        """Return some of the expressions. A single row is padded to two, or Polars would treat it as a scalar."""
        rows = max(height, 2)
        padded = (
            [] if part is None else [one if height >= 2 else one.extend_constant(None, rows - height) for one in part]
        )
        kept = self._kept if BATCH // 16 < rows <= BATCH else {}
        constants = [
            kept[name].head(rows) if name in kept else one.new_from_index(0, rows) for name, one in self._values.items()
        ]
        frame = pl.DataFrame([*padded, *constants])
        wanted = list(places)
        whole = [place for place in wanted if not self._chains[place].before]
        found = {}
        if whole:
            selected = frame.select([self._chains[place].last.alias(str(place)) for place in whole])
            found = {place: selected[str(place)] for place in whole}
        for place in wanted:
            if place not in found:
                found[place] = self._chains[place].computed(frame)
        checked = []
        for place in wanted:
            one, expression = found[place], self._expressions[place]
            if len(one) != rows or one.dtype != expression.dtype:
                raise RowCountError
            cut = one.head(height)
            checked.append(own_copy(cut) if cut.dtype == pl.String and self._cuts[place] else cut)
        return checked


class Chain:
    """An expression as a chain of Polars expressions that are computed one after another, each of them small.

    The Polars form of an operation may name its argument several times, and nesting multiplies this: 60 nested
    additions would become a tree of 3**60 nodes. So an argument that is too large is computed first, as a column.
    """

    def __init__(self, expression: Expression, place: int, constants: Mapping[Constant, str]) -> None:
        self._prefix, self._constants = f"{OWN}piece{place} ", constants
        self._names: dict[Expression, str] = {}
        self.before: list[tuple[str, pl.Expr]] = []
        small, _ = self._small(expression)
        self.last = lowered(small, constants)
        self._drop = self._last_uses(small)

    def computed(self, frame: pl.DataFrame) -> pl.Series:
        """Return the expression on a frame that has its columns and constants."""
        for place, (name, expr) in enumerate(self.before):
            frame = frame.with_columns(expr.alias(name))
            if place in self._drop:
                frame = frame.drop(self._drop[place])
        return frame.select(self.last.alias("last")).to_series()

    def _small(self, node: Expression) -> tuple[Expression, int]:
        """Return an expression whose large arguments are columns, and an upper bound on its size in Polars."""
        if not isinstance(node, Apply):
            return node, 1
        if node in self._names:
            return Column(self._names[node], node.dtype), 1
        parts = [self._small(argument) for argument in node.arguments]
        times = self._times(node)
        size = sum(times) + sum(n * own for n, (_, own) in zip(times, parts, strict=True))
        small = [part for part, _ in parts]
        if size > _LARGEST:
            pairs = zip(node.arguments, small, strict=True)
            small = [self._column(one, part) if isinstance(part, Apply) else part for one, part in pairs]
            size = 2 * sum(times)
        return replace(node, arguments=tuple(small)), size

    def _times(self, node: Apply) -> list[int]:
        """Return how often the Polars form of an operation names each of its arguments."""
        if not any(isinstance(argument, Apply) for argument in node.arguments):
            return [1] * len(node.arguments)
        names = [f"{OWN}argument{place}" for place in range(len(node.arguments))]
        marked = [Column(name, one.dtype) for name, one in zip(names, node.arguments, strict=True)]
        # Constants stay constants, because some operations treat them differently.
        given = [one if isinstance(one, Constant) else mark for one, mark in zip(node.arguments, marked, strict=True)]
        found = lowered(replace(node, arguments=tuple(given)), self._constants).meta.root_names()
        return [max(found.count(name), 1) for name in names]

    def _column(self, node: Expression, small: Apply) -> Column:
        """Return an argument as a column that is computed before the rest."""
        if node not in self._names:
            self._names[node] = f"{self._prefix}{len(self.before)}"
            self.before.append((self._names[node], lowered(small, self._constants)))
        return Column(self._names[node], small.dtype)

    def _last_uses(self, small: Expression) -> dict[int, list[str]]:
        """Return the columns that can be dropped after each link. Keeping many of them would fill the memory."""
        needed = {name for name in small.columns if name.startswith(self._prefix)}
        drop: dict[int, list[str]] = {}
        for place in range(len(self.before) - 1, -1, -1):
            used = {name for name in self.before[place][1].meta.root_names() if name.startswith(self._prefix)}
            drop[place] = sorted(used - needed)
            needed |= used
        return {place: names for place, names in drop.items() if names}
