"""Convert Polars, Arrow and pandas frames to Polars frames whose types don't depend on rows.

The categories of a categorical or dictionary column come from the rows, so the column becomes one of plain values,
usually text. An Enum stays, because its values were declared. A pandas column of type object can hold anything, and
finding out what it holds would derive a type from rows. It becomes text, and values without a plain text are null.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]

from dp_polars.errors import InvalidDataError, InvalidParameterError

_FAILURES = (Exception, pl.exceptions.PanicException)
_UNHELD = tuple(kind for kind in (pl.Object, pl.Unknown, getattr(pl, "BaseExtension", None)) if kind is not None)


def lazy_of(name: str, source: Any) -> pl.LazyFrame:
    """Return a frame as a lazy Polars frame whose types don't depend on rows."""
    if isinstance(source, pl.LazyFrame):
        return plain(name, source)
    if isinstance(source, pl.DataFrame):
        return plain(name, source.lazy())
    if isinstance(source, pa.Table | pa.RecordBatch):
        return plain(name, _of_arrow(name, source).lazy())
    pandas: Any = sys.modules.get("pandas")
    if pandas is not None and isinstance(source, pandas.DataFrame):
        return plain(name, _of_pandas(name, source, pandas).lazy())
    raise InvalidParameterError(
        f"{name} can't be registered from a {type(source).__name__}. register takes a Polars, Arrow or pandas frame, "
        "or the path of a file."
    )


def plain(name: str, frame: pl.LazyFrame) -> pl.LazyFrame:
    """Convert categories to text, and refuse columns of unsupported types."""
    schema = schema_of(name, frame)
    refuse(name, [column for column, kind in schema.items() if _is_unheld(kind)])
    texts = {column: _without_categories(kind) for column, kind in schema.items()}
    changed = {column: kind for column, kind in texts.items() if kind != schema[column]}
    return frame.with_columns(pl.col(column).cast(kind) for column, kind in changed.items()) if changed else frame


def schema_of(name: str, frame: pl.LazyFrame) -> Mapping[str, pl.DataType]:
    """Return the columns of a lazy frame and their types."""
    try:
        return frame.collect_schema()
    except _FAILURES:
        raise InvalidDataError(
            f"The columns of {name} can't be determined: its query plan or its file is broken."
        ) from None


def refuse(name: str, columns: list[str]) -> None:
    """Refuse columns that Polars can't hold, without saying what is in them."""
    if columns:
        raise InvalidDataError(
            f"{name} has columns of unsupported types: {', '.join(columns)}. Drop them, or convert them to numbers, "
            "texts, dates or Booleans."
        )


def _is_unheld(kind: pl.DataType) -> bool:
    return isinstance(kind, _UNHELD) or any(_is_unheld(inner) for inner in _inside(kind))


def _inside(kind: pl.DataType) -> list[pl.DataType]:
    if isinstance(kind, pl.List | pl.Array):
        return [_instance(kind.inner)]
    return [_instance(field.dtype) for field in kind.fields] if isinstance(kind, pl.Struct) else []


def _instance(kind: Any) -> pl.DataType:
    made: pl.DataType = kind() if isinstance(kind, type) else kind
    return made


def _without_categories(kind: pl.DataType) -> pl.DataType:
    if isinstance(kind, pl.Categorical):
        return pl.String()
    if isinstance(kind, pl.List):
        return pl.List(_without_categories(_instance(kind.inner)))
    if isinstance(kind, pl.Array):
        return pl.Array(_without_categories(_instance(kind.inner)), kind.size)
    if isinstance(kind, pl.Struct):
        return pl.Struct({field.name: _without_categories(_instance(field.dtype)) for field in kind.fields})
    return kind


def _of_arrow(name: str, table: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    _check_names(name, table.schema.names)
    columns = {field.name: _series(field.name, table.column(place)) for place, field in enumerate(table.schema)}
    return _whole(name, columns)


def _of_pandas(name: str, frame: Any, pandas: Any) -> pl.DataFrame:
    _check_names(name, list(frame.columns))
    columns = {column: _of_pandas_column(column, frame[column], pandas) for column in frame.columns}
    return _whole(name, columns)


def _check_names(name: str, names: list[Any]) -> None:
    if not all(isinstance(column, str) for column in names) or len(set(names)) < len(names):
        raise InvalidDataError(f"The columns of {name} must have different names, and all names must be strings.")


def _whole(name: str, columns: dict[str, pl.Series | None]) -> pl.DataFrame:
    refuse(name, [column for column, values in columns.items() if values is None])
    return pl.DataFrame([values for values in columns.values() if values is not None])


def _of_pandas_column(name: str, values: Any, pandas: Any) -> pl.Series | None:
    """Convert a pandas column according to its type alone, or return None if Polars has no such type."""
    kind = values.dtype
    if isinstance(kind, pandas.CategoricalDtype):  # keep the type of the categories, but not the list of categories
        codes = pl.Series(np.asarray(values.cat.codes), dtype=pl.Int64)
        categories = _of_pandas_column(name, values.cat.categories.to_series(), pandas)
        places = codes.set(codes < 0, None)
        return None if categories is None else categories.gather(places).alias(name)
    is_python_text = isinstance(kind, pandas.StringDtype) and kind.storage == "python"
    if kind == object or is_python_text:  # noqa: E721 - a type of numpy
        moments = (date, time, datetime, pandas.Timestamp)
        return pl.Series(name, [_text(value, moments) for value in values], pl.String)
    if isinstance(kind, np.dtype) and kind.kind not in "biufMm":
        return None
    if isinstance(kind, np.dtype) and kind == np.float16:
        values = values.astype(np.float32)
    try:
        return _series(name, pa.Array.from_pandas(values))
    except _FAILURES:
        return None


def _text(value: object, moments: tuple[type, ...]) -> str | None:
    """Return a plain value as text, and None for any other object. This never fails and runs no code of the object."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) is str:
        return value.encode(errors="replace").decode()
    if type(value) is float or type(value) is Decimal:
        return None if value != value else str(value)
    if type(value) is bool or (type(value) is int and abs(value) < 10**38):
        return str(value)
    return str(value) if type(value) in moments else None


def _series(name: str, values: pa.Array | pa.ChunkedArray) -> pl.Series | None:
    if not _is_arrow_held(values.type):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = pl.from_arrow(pa.table({name: values}))
    except _FAILURES:
        return None
    return found.to_series() if isinstance(found, pl.DataFrame) else found


def _is_arrow_held(kind: pa.DataType) -> bool:
    """Return whether Polars supports an Arrow type. Checked first, because Polars panics on some types."""
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_decimal256(kind) or pa.types.is_union(kind):
        return False
    if pa.types.is_dictionary(kind):
        return _is_arrow_held(kind.value_type)
    return all(_is_arrow_held(kind.field(place).type) for place in range(kind.num_fields))
