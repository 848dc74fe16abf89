"""The steps of a private frame, applied to one batch of rows at a time.

Conditions become masks that are applied here, and public rows are looked up by their row number. So what happens to a
row never depends on the rows beside it, whatever Polars' planner does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import polars as pl

from dp_polars._engines.polars.program import BATCH, MEMORY, VALUE_BYTES, Program, RowCountError
from dp_polars._engines.rows import OWN, Filter, Lookup, Step, WithColumns, largest_value, most_copies


def unmarked(batch: pl.DataFrame) -> pl.DataFrame:
    """Return a batch whose columns are not marked as sorted.

    Polars believes such a mark: it compares a constant with the middle of the column and takes the ends for the least
    and the greatest value. If the mark is wrong, one row decides what happens to others.
    """
    if batch.height < 2:
        return batch
    marked = [one for one in batch.iter_columns() if one.flags.get("SORTED_ASC") or one.flags.get("SORTED_DESC")]
    if not marked:
        return batch
    return batch.with_columns(_copied(one) for one in marked)


def _copied(column: pl.Series) -> pl.Series:
    """Return a column that went through Arrow, which copies nothing and loses the mark.

    It has no name there: Arrow's names end at a null character, with which those of dp_polars begin.
    """
    if column.dtype in (pl.Int128, pl.UInt128):  # Arrow has no such types
        return column.cast(pl.String).cast(column.dtype)
    arrow = column.alias("").to_arrow(compat_level=pl.CompatLevel.newest())
    return pl.Series(column.name, arrow).cast(column.dtype)


class Evaluation:
    """Apply steps to batches of rows, and count the rows. Batches may arrive in any order and from any thread."""

    def __init__(self, steps: Sequence[Step], names: Sequence[str], *, counts: bool = True) -> None:
        self._steps, self._names, self._counts = tuple(_prepared(step) for step in steps), list(names), counts
        self._lock = threading.Lock()
        self.read = self.given = 0
        self.among: Callable[[pl.DataFrame], pl.DataFrame] | None = None
        """Picks the rows that a pass returns, after all steps; None means all of them."""

    def counted(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Count the rows of a batch as read and return it unchanged. Not all of them will reach the steps."""
        with self._lock:
            self.read += batch.height
        return unmarked(batch)

    def passed(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Count the rows of a batch whose steps Polars has applied itself."""
        done = unmarked(batch) if self.among is None else self.among(unmarked(batch))
        with self._lock:
            self.read += batch.height if self._counts else 0
            self.given += done.height
        return done

    def __call__(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Return a batch after all steps."""
        rows = unmarked(batch)
        parts = [self._evaluated(part) for part in rows.iter_slices(BATCH)] or [self._evaluated(rows)]
        done = parts[0] if len(parts) == 1 else pl.concat(parts)
        with self._lock:
            self.read += batch.height if self._counts else 0
            self.given += done.height
        return done

    def _evaluated(self, batch: pl.DataFrame, first: int = 0) -> pl.DataFrame:
        """Return a batch after the steps from number `first` on. It is halved where a step could fill the memory."""
        for place, step in enumerate(self._steps[first:], first):
            if batch.height > 1 and step.needs(batch) + VALUE_BYTES * batch.height * batch.width > MEMORY:
                half = batch.height // 2
                return pl.concat([self._evaluated(part, place) for part in (batch.head(half), batch.tail(-half))])
            batch = step(batch)
        done = batch.select([pl.col(name) for name in self._names])
        return done if self.among is None else self.among(done)


class Prepared(Protocol):
    """A step that is ready to be applied to batches."""

    def __call__(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Return a batch after the step."""
        ...

    def needs(self, batch: pl.DataFrame) -> int:
        """Return an upper bound on the bytes that the step allocates for a batch, while it runs and afterwards."""
        ...


def _prepared(step: Step) -> Prepared:
    match step:
        case Filter():
            return _PreparedFilter(step)
        case WithColumns():
            return _PreparedMake(step)
    return _PreparedLookup(step)


class _PreparedMake:
    """Add or replace columns."""

    def __init__(self, step: WithColumns) -> None:
        self._names, self._keep = [name for name, _ in step.columns], step.keep
        self._program = Program([one for _, one in step.columns])
        self.needs = self._program.needs

    def __call__(self, batch: pl.DataFrame) -> pl.DataFrame:
        made = [one.alias(name) for name, one in zip(self._names, self._program.columns(batch), strict=True)]
        return batch.with_columns(made) if self._keep else pl.DataFrame(made)


class _PreparedFilter:
    """Keep the rows for which all conditions are true. Null is not true."""

    def __init__(self, step: Filter) -> None:
        self._columns = step.columns
        self._program = Program(step.conditions)
        self.needs = self._program.needs

    def __call__(self, batch: pl.DataFrame) -> pl.DataFrame:
        mask, *more = self._program.columns(batch)
        for one in more:
            mask = mask & one
        if self._columns is not None:
            # A frame without columns has no rows either, so one column is kept to stand for them.
            batch = batch.select(self._columns or batch.columns[:1])
        return batch.filter(mask)


class _PreparedLookup:
    """Look up public rows by their keys. A join finds the number of each public row and nothing else."""

    def __init__(self, step: Lookup) -> None:
        self._step = step
        self._mine = [mine for mine, _ in step.on]
        keys = [step.public[theirs].alias(mine) for mine, theirs in step.on]
        # Polars joins keys and row numbers only; the other columns are gathered by number.
        self._numbers = _numbered(f"{OWN}public", keys, step.public.height)
        self._added = {name: step.public[own].rechunk() for own, name in step.columns}
        copies = 1 if step.unique or not step.public.height else most_copies(step.public, [on for _, on in step.on])
        found = self._added.values() if step.how in ("inner", "left") else ()
        each = sum(4 * largest_value(one) for one in found if one.dtype == pl.String or one.dtype.is_nested())
        self._each, self._copies = each, copies

    def needs(self, batch: pl.DataFrame) -> int:
        """Return an upper bound on the bytes of the rows together with what they find."""
        width = batch.width + len(self._added) if self._copies > 1 else 0
        return (self._each + VALUE_BYTES * width) * self._copies * batch.height

    def __call__(self, batch: pl.DataFrame) -> pl.DataFrame:
        step = self._step
        numbered = _numbered(f"{OWN}row", [batch[name] for name in self._mine], batch.height)
        if not self._mine:
            found = numbered.join(self._numbers, how="cross")
        else:
            found = numbered.join(
                self._numbers, on=self._mine, how="inner", nulls_equal=step.nulls_equal, maintain_order="left"
            )
        rows, places = found[f"{OWN}row"], found[f"{OWN}public"]
        if step.unique and rows.n_unique() != len(rows):
            raise RowCountError  # a row matched two public rows
        if step.how in ("semi", "anti"):
            matched = pl.repeat(False, batch.height, dtype=pl.Boolean, eager=True).scatter(rows, True)
            return batch.filter(matched if step.how == "semi" else ~matched)
        if step.how == "left":
            everyone = _numbered(f"{OWN}row", [], batch.height)
            found = everyone.join(found, on=f"{OWN}row", how="left", maintain_order="left")
            rows, places = found[f"{OWN}row"], found[f"{OWN}public"]
        kept = batch[rows] if batch.height else batch
        added = [one.gather(places).alias(name) for name, one in self._added.items()]
        return kept.with_columns(added) if added else kept


def _numbered(name: str, columns: Sequence[pl.Series], height: int) -> pl.DataFrame:
    """Return columns beside a column of row numbers."""
    return pl.DataFrame([pl.int_range(height, dtype=pl.UInt32, eager=True).alias(name), *columns])
