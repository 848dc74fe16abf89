"""Rows that are read once, and then wait in memory as integers until their codes are known.

How rows are packed depends on which keys there are and how far units are apart. Reading a file or a table twice to find
that out costs more than keeping the integers of its rows. Larger sources are read twice all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.bounding.row_store import SPARE
from dp_polars._engines.polars.codes import HashCollisionError, Salts
from dp_polars._engines.polars.growing_codes import GrowingCodes, TooManyValuesError
from dp_polars._engines.polars.known_columns import CodedColumn, KnownCodes, Ranges, range_of
from dp_polars._engines.polars.program import RowCountError
from dp_polars._engines.polars.scan import PolarsSource, Scan, pass_over, pass_over_batches, workers
from dp_polars._engines.polars.short_texts import LongTextError, ShortTexts
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
    texts = [name for name in keys if GrowingCodes.suit(schema[name])]
    kept = [name for name in (*keys, *others) if name not in texts]
    if not all(_is_narrow(schema[name]) for name in kept):
        return None
    height = scan.height()
    if height * (8 * len(kept) + 4 * len(texts)) > MOST_BYTES:
        return None
    coders: dict[str, ShortTexts | GrowingCodes] = {name: GrowingCodes(name, schema[name], salts) for name in texts}
    try:
        with suppress(LongTextError):  # usually in the first batch, so little is read in vain
            short = {name: ShortTexts(name) for name in texts if schema[name] == pl.String}
            return _read(frame, scan, kept, {**coders, **short}, height, computed)
        return _read(frame, scan, kept, coders, height, computed)
    except (HashCollisionError, TooManyValuesError):
        return None


def _read(
    frame: pl.LazyFrame,
    scan: Scan,
    kept: Sequence[str],
    coders: Mapping[str, ShortTexts | GrowingCodes],
    height: int,
    computed: Mapping[str, pl.Expr] | None,
) -> WaitingRows:
    """Read rows once, with some columns as they are and others as codes. Batches may arrive in any order.

    At most `height` rows are left after the steps of the scan, unless it multiplies rows.
    """
    schema = frame.collect_schema()
    numbers = {
        name: _NumberColumn(name, schema[name], height)
        for name in kept
        if not scan.multiplies and (schema[name].is_integer() or schema[name].is_float())
    }
    rest = [name for name in kept if name not in numbers]
    pieces: list[tuple[int, pl.DataFrame, dict[str, NDArray[Any]]]] = []
    lock, received = threading.Lock(), 0

    def add(batch: pl.DataFrame) -> None:
        nonlocal received
        with lock:
            start, received = received, received + batch.height
            if received > height and not scan.multiplies:
                raise RowCountError
        for name, column in numbers.items():
            column.put(start, batch[name])
        pieces.append((start, batch.select(rest), {name: coder.numbers(batch) for name, coder in coders.items()}))

    scan.begin()
    texts = [text for coder in coders.values() for text in coder.columns]
    if scan.batches is not None and computed is not None:
        pass_over_batches(scan, [*(computed.get(name, pl.col(name)) for name in kept), *texts], add)
    else:
        pass_over(frame.select(*kept, *texts), add)
    scan.check(received, height)
    ordered = {name: coder.in_order() for name, coder in coders.items()}
    codes = {name: np.empty(received, places.dtype) for name, (_, places) in ordered.items()}
    pieces.sort(key=lambda piece: piece[0])

    def renumber(piece: tuple[int, pl.DataFrame, dict[str, NDArray[Any]]]) -> None:
        for name, found in piece[2].items():
            places = codes[name][piece[0] : piece[0] + len(found)]
            ordered[name][1].take(found, out=places, mode="clip")

    workers().each(pieces if coders else (), renumber)
    columns = [column.series(received) for column in numbers.values()]
    columns += [pl.Series(name, places) for name, places in codes.items()]
    if rest:
        empty = pl.DataFrame(schema={name: schema[name] for name in rest})
        columns += pl.concat([empty, *(others for _, others, _ in pieces)]).get_columns()
    together = pl.DataFrame(columns)
    known = {
        name: KnownCodes(name, schema[name], CodedColumn(values, together[name]))
        for name, (values, _) in ordered.items()
    }
    source = PolarsSource(together.lazy(), lambda: together.height, memory=together)
    return WaitingRows(PrivateRows(source), known, together)


class _NumberColumn:
    """A column of numbers that several threads fill piece by piece, in memory that is used again."""

    def __init__(self, name: str, dtype: pl.DataType, height: int) -> None:
        self._name = name
        self._array = SPARE.array(height, pl.Series(dtype=dtype).to_numpy().dtype)
        self._missing: list[tuple[int, NDArray[np.bool_]]] = []

    def put(self, start: int, column: pl.Series) -> None:
        """Write values into the rows from `start` on."""
        if column.null_count():
            self._missing.append((start, column.is_null().to_numpy()))
            column = column.fill_null(0)
        self._array[start : start + len(column)] = column.to_numpy()

    def series(self, rows: int) -> pl.Series:
        """Return the first `rows` rows. All of them have been written, and nothing may be written afterwards."""
        series = pl.Series(self._name, self._array[:rows])
        if not self._missing:
            return series
        missing = np.zeros(rows, np.bool_)
        for start, places in self._missing:
            missing[start : start + len(places)] = places
        return series.set(pl.Series(missing), None)


def _is_narrow(dtype: pl.DataType) -> bool:
    """Return whether a value takes at most 8 bytes, however long it is."""
    return stored_as_integers(dtype) or dtype in (pl.Float64, pl.Float32)
