"""Rows that are read once, and then wait in memory as integers until their codes are known.

How rows are packed depends on which keys there are and how far units are apart. Reading a file or a table twice to find
that out costs more than keeping the integers of its rows. Larger sources are read twice all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.polars.codes import HashCollisionError, Salts
from dp_polars._engines.polars.growing_codes import GrowingCodes, TooManyValuesError
from dp_polars._engines.polars.known_columns import CodedColumn, KnownCodes, Ranges, range_of
from dp_polars._engines.polars.scan import PolarsSource, Scan, pass_over, pass_over_batches, workers
from dp_polars._engines.request import stored_as_integers
from dp_polars._engines.rows import PrivateRows

MOST_BYTES = 1 << 29
"""Bytes of rows that may wait in memory."""


@dataclass(frozen=True, repr=False, eq=False)
class WaitingRows:
    """Rows in memory: units and integers as they are, keys as they are or replaced by their codes."""

    rows: PrivateRows
    codes: dict[str, KnownCodes]
    frame: pl.DataFrame

    def ranges(self, names: Sequence[str]) -> Ranges:
        """Return ways to find the ranges of those columns that are stored as integers."""
        schema = self.frame.schema
        found = [name for name in names if name not in self.codes and stored_as_integers(schema[name])]
        return {name: partial(range_of, self.frame, name) for name in found}


def read_once(
    frame: pl.LazyFrame,
    scan: Scan,
    keys: Sequence[str],
    others: Sequence[str],
    salts: Salts,
    computed: Mapping[str, pl.Expr] | None = None,
) -> WaitingRows | None:
    """Read rows once, with their keys and other columns, of which there is at least one.

    If the scan has batches and the frame is the scan's own but for columns that are `computed` from it, rows are read
    without running the plan. Return None if they take too much memory, or if their texts have no codes.
    """
    schema = frame.collect_schema()
    coded = {name: GrowingCodes(name, schema[name], salts) for name in keys if GrowingCodes.suit(schema[name])}
    kept = [name for name in (*keys, *others) if name not in coded]
    if not all(_is_narrow(schema[name]) for name in kept):
        return None
    height = scan.height()
    if height * (8 * len(kept) + 4 * len(coded)) > MOST_BYTES:
        return None
    pieces: list[tuple[pl.DataFrame, dict[str, NDArray[np.int32]]]] = []

    def add(batch: pl.DataFrame) -> None:
        pieces.append((batch.select(kept), {name: codes.numbers(batch) for name, codes in coded.items()}))

    scan.begin()
    try:
        texts = [one for codes in coded.values() for one in codes.columns]
        if scan.batches is not None and computed is not None:
            pass_over_batches(scan, [*(computed.get(name, pl.col(name)) for name in kept), *texts], add)
        else:
            pass_over(frame.select(*kept, *texts), add)
    except (HashCollisionError, TooManyValuesError):
        return None
    scan.check(sum(kept_columns.height for kept_columns, _ in pieces), height)
    ordered = {name: codes.in_order() for name, codes in coded.items()}
    done: list[pl.DataFrame] = []

    def renumber(piece: tuple[pl.DataFrame, dict[str, NDArray[np.int32]]]) -> None:
        numbers = {name: pl.Series(name, ordered[name][1].take(own)) for name, own in piece[1].items()}
        done.append(pl.DataFrame([*piece[0].iter_columns(), *numbers.values()]))

    workers().each(pieces, renumber)
    empty = pl.DataFrame(schema={name: schema[name] for name in kept}).with_columns(
        pl.Series(name, places[:0]) for name, (_, places) in ordered.items()
    )
    together = done[0] if len(done) == 1 and done[0].schema == empty.schema else pl.concat([empty, *done])
    codes = {
        name: KnownCodes(name, schema[name], CodedColumn(values, together[name]))
        for name, (values, _) in ordered.items()
    }
    source = PolarsSource(together.lazy(), lambda: together.height, memory=together)
    return WaitingRows(PrivateRows(source), codes, together)


def _is_narrow(dtype: pl.DataType) -> bool:
    """Return whether a value takes at most 8 bytes, however long it is."""
    return stored_as_integers(dtype) or dtype in (pl.Float64, pl.Float32)
