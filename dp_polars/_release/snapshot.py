"""The rows of a private frame, read once: for what asks them again and again after one charge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from dp_polars._engines.polars.kept_rows import kept_rows
from dp_polars._engines.polars.rows import PrivateRows, collect, rows_of
from dp_polars._sampling import BitSource


@dataclass(frozen=True, repr=False)
class Snapshot:
    """All rows as they were after the charge, and which of them count (`kept`). Private: it is never shown."""

    rows: pl.DataFrame
    kept: pl.Series

    def of_units(self) -> pl.DataFrame:
        """Return the rows that count."""
        return self.rows.filter(self.kept)


def take_snapshot(
    rows: PrivateRows | pl.LazyFrame,
    units: Sequence[str],
    source: BitSource,
    *,
    max_rows: int | None,
    keys: Sequence[str] = (),
    max_groups: int | None = None,
) -> Snapshot:
    """Read a frame and choose which rows of each unit count; call it after the charge."""
    scan = rows_of(rows).scan()
    scan.begin()
    frame = collect(scan.frame)
    scan.check(frame.height)
    return Snapshot(frame, kept_rows(frame, units, source, max_rows=max_rows, keys=keys, max_groups=max_groups))
