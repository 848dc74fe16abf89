"""Digests of public frames, from what Polars stores: no value passes through a Python object, which may know less.

(Python's times have no nanoseconds, its floats no payload.) Never of private rows.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import polars as pl

from dp_polars.errors import InvalidDataError

_WIDE = (pl.Int128, pl.UInt128) if hasattr(pl, "UInt128") else (pl.Int128,)


def public_digest(frame: pl.DataFrame) -> str:
    """Return a digest of a public frame; different frames have different ones.

    Each column is its name, type, length and nulls, then its values as they are stored: of lists and arrays the lengths
    and the inner values, of structs each field, of texts the lengths and the bytes. Every part has a length before it.
    """
    digest = hashlib.sha256()
    _add(digest, str(frame.height).encode())
    for column in frame.iter_columns():
        _add(digest, column.name.encode("utf-8", "surrogatepass"))
        _add_series(digest, column)
    return digest.hexdigest()


def _add(digest: Any, part: bytes | memoryview) -> None:
    digest.update(len(part).to_bytes(8, "big"))
    digest.update(part)


def _add_series(digest: Any, column: pl.Series) -> None:
    dtype = column.dtype
    _add(digest, str(dtype).encode())
    _add(digest, np.packbits(column.is_null().to_numpy()).tobytes())
    there = column.drop_nulls()
    if isinstance(dtype, pl.Struct):
        for field in dtype.fields:
            _add(digest, field.name.encode())
            _add_series(digest, there.struct.field(field.name))
    elif isinstance(dtype, pl.Array):
        _add_series(digest, there.cast(pl.List(dtype.inner)))
    elif isinstance(dtype, pl.List):
        lengths = there.list.len()
        _add(digest, lengths.cast(pl.Int64).to_numpy().tobytes())
        _add_series(digest, there.filter(lengths > 0).explode(empty_as_null=False))
    elif dtype in (pl.String, pl.Binary, pl.Categorical, pl.Enum, *_WIDE) or isinstance(dtype, pl.Decimal):
        texts = there if dtype == pl.Binary else there.cast(pl.String).cast(pl.Binary)
        _add(digest, texts.bin.size().cast(pl.Int64).to_numpy().tobytes())
        array = texts.rechunk().to_arrow().cast("large_binary")
        _add(digest, _bytes_of(array))
    elif dtype == pl.Object or dtype == pl.Unknown:
        raise InvalidDataError("A public frame has a column of Python objects, which can't be told apart; cast it.")
    elif dtype != pl.Null:
        stored = there.to_physical()
        _add(digest, np.ascontiguousarray(stored.to_numpy()).tobytes())


def _bytes_of(array: Any) -> memoryview:
    """Return the bytes of all texts of an Arrow array without nulls, one after another."""
    _, offsets, values = array.buffers()
    if not len(array) or values is None:
        return memoryview(b"")
    places = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return memoryview(values)[int(places[0]) : int(places[-1])]
