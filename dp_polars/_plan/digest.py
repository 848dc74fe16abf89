"""Digests of public frames. Private rows never get here.

A digest is taken of the bytes that Polars stores. Python objects would lose information: their times have no
nanoseconds, for example.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars.errors import InvalidDataError

_WIDE = (pl.Int128, pl.UInt128) if hasattr(pl, "UInt128") else (pl.Int128,)


def public_digest(frame: pl.DataFrame) -> str:
    """Return a digest of a public frame. Different frames have different digests.

    Each column adds its name, its type, its nulls and its stored values: lengths and inner values for lists and arrays,
    each field for structs, lengths and bytes for texts. The length of each of these is added before it.
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
    has_nulls = column.null_count() > 0
    nulls = column.is_null().to_numpy() if has_nulls else np.zeros(len(column), np.bool_)
    _add(digest, np.packbits(nulls).tobytes())
    there = column.drop_nulls() if has_nulls else column
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
        places, content = _places_and_bytes(texts.rechunk().to_arrow().cast("large_binary"))
        _add(digest, np.diff(places).tobytes())
        _add(digest, content)
    elif dtype == pl.Object or dtype == pl.Unknown:
        raise InvalidDataError(
            "A public frame has a column of Python objects, which cannot be compared. Cast it to another type."
        )
    elif dtype != pl.Null:
        stored = there.to_physical()
        _add(digest, np.ascontiguousarray(stored.to_numpy()).tobytes())


def _places_and_bytes(array: Any) -> tuple[NDArray[np.int64], memoryview]:
    """Return where the texts of an Arrow array without nulls begin and end, and the bytes of all texts."""
    _, offsets, values = array.buffers()
    if not len(array):
        return np.zeros(1, np.int64), memoryview(b"")
    places = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return places, memoryview(values or b"")[int(places[0]) : int(places[-1])]
