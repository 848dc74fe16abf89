"""Files as tables: Parquet is read where it lies; text and Arrow files are read once, before anything is asked.

Whether a line of a text file can be read must not be part of an answer, so it is read whole when it is registered, and
a file that can't be read is refused there, in words that quote nothing of it. What was read is named by the file: by
its path, size and time of change when it was read, never by rows. So another process that reads the same file finds the
same releases, and a file that was written to is another source.

The types of a text file's columns are declared, and then a value that doesn't fit is null, or found in all its lines.
Those that are found count as public, as every schema does, though one line can decide them: declare them where that
matters. No line makes a file unreadable but for a quotation mark that is out of place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from dp_polars.engines.duckdb.rows import quoted
from dp_polars.errors import InvalidDataError, InvalidParameterError

PARQUET = (".parquet", ".pq")
TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst")
ARROW = (".arrow", ".feather", ".ipc")
ENDINGS = (*PARQUET, *TEXT, *ARROW)
"""How the names of files end that can be registered."""

_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_ ]*(\([^()]*\))?")
"""DOUBLE, DECIMAL(9, 2), ENUM('a', 'b')."""


@dataclass(frozen=True)
class ReadFile:
    """A file that was read: what names its rows as a source."""

    path: str
    size: int
    changed: int
    types: tuple[tuple[str, str], ...] | None = None
    """Those that were declared."""

    def name(self) -> bytes:
        """Return what names the file as it was when it was read."""
        return f"read:{(self.path, self.size, self.changed, self.types)!r}".encode()


def ending_of(path: str | os.PathLike[str]) -> str | None:
    """Return how the name of a file ends, if that is one of `ENDINGS`."""
    name = os.path.basename(os.fspath(path)).lower()
    return next((ending for ending in sorted(ENDINGS, key=len, reverse=True) if name.endswith(ending)), None)


def opened(name: str, source: str | os.PathLike[str], types: Mapping[str, str] | None = None) -> tuple[Any, Any]:
    """Return what a guarded connection holds for a file: the path of a Parquet file, or the rows of another."""
    path, ending = os.path.abspath(source), ending_of(source)
    if ending is None or not os.path.isfile(path):
        raise InvalidParameterError(
            f"There is no Parquet file for {name}, and no CSV or Arrow file; register takes a frame, or the path of a "
            f"file that ends in {', '.join(ENDINGS)}."
        )
    if set(path) & set("*?[{"):
        raise InvalidParameterError(
            f"The path of the file for {name} has one of * ? [ {{ in it, which may stand for other files; rename it."
        )
    if types is not None and ending not in TEXT:
        raise InvalidParameterError(f"types= are for text files; the file for {name} has types of its own.")
    if ending in PARQUET:
        return Path(path), path
    before = _state(path)
    try:
        frame = _read(path, ending, declared=types is not None)
    except Exception:  # noqa: BLE001 - whatever it is, its message may quote the file
        raise InvalidDataError(
            f"The file for {name} can't be read as {'text with columns' if ending in TEXT else 'Arrow'}: it is damaged "
            "or something else. Nothing was asked."
        ) from None
    if ending in TEXT and any(_is_no_name(column) for column in frame.columns):
        raise InvalidDataError(
            f"The first line of the file for {name} must name the columns, and has an empty name, a number, or one "
            "twice. Add a line with names."
        )
    if _state(path) != before:
        raise InvalidDataError(f"The file for {name} changed while it was read; try again when nobody writes.")
    if types is None:
        return frame.to_arrow(), before
    return _cast(name, frame, types), replace(before, types=tuple(sorted(types.items())))


def _is_no_name(column: str) -> bool:
    """Whether a name looks like a value: names are shown in messages, values never are."""
    return re.fullmatch(r"\s*[-+.,\d]*\s*|.*_duplicated_\d+", column) is not None


def _state(path: str) -> ReadFile:
    state = os.stat(path)
    return ReadFile(path, state.st_size, state.st_mtime_ns)


def _cast(name: str, texts: pl.DataFrame, types: Mapping[str, str]) -> Any:
    """Return columns in their declared types, the others as text; a value that doesn't fit is null."""
    missing = [column for column in types if column not in texts.columns]
    if missing:
        raise InvalidParameterError(
            f"types= names {', '.join(missing)}, which the file for {name} doesn't have; it has "
            f"{', '.join(texts.columns)}."
        )
    if not all(_TYPE.fullmatch(kind) for kind in types.values()):
        raise _no_types(name)
    listed = [
        f"TRY_CAST({quoted(column)} AS {types[column]}) AS {quoted(column)}" if column in types else quoted(column)
        for column in texts.columns
    ]
    with duckdb.connect(":memory:") as database:
        database.execute("SET enable_external_access = false")
        database.register("texts", texts.to_arrow())
        try:
            relation: Any = database.sql(f"SELECT {', '.join(listed)} FROM texts")  # noqa: S608 - checked above
            make = getattr(relation, "to_arrow_table", None) or relation.fetch_arrow_table
            return make()
        except duckdb.Error:
            raise _no_types(name) from None


def _no_types(name: str) -> InvalidParameterError:
    return InvalidParameterError(
        f"types= of the file for {name} are types of DuckDB: {{'amount': 'DOUBLE', 'day': 'DATE'}}."
    )


def _read(path: str, ending: str, *, declared: bool) -> pl.DataFrame:
    if ending in ARROW:
        content = Path(path).read_bytes()  # not mapped into memory: the rows must stay when the file changes
        return pl.read_ipc(content) if content.startswith(b"ARROW1") else pl.read_ipc_stream(content)
    separator = "\t" if ending.startswith(".tsv") else ","
    # As texts, in a form in which no line is a failure.
    texts = pl.read_csv(
        path, separator=separator, infer_schema=False, truncate_ragged_lines=True, encoding="utf8-lossy"
    )
    return texts if declared else texts.select(_typed(texts[name]) for name in texts.columns)


def _typed(texts: pl.Series) -> pl.Series:
    """Return a column in the first type that all its texts can be read as; as texts if there is none."""
    held = texts.null_count()
    if held == len(texts):
        return texts
    for read in _READINGS:
        found = texts.to_frame().select(read(pl.col(texts.name))).to_series()
        if found.null_count() == held:
            return found
    return texts


def _truth(text: pl.Expr) -> pl.Expr:
    lower = text.str.to_lowercase()
    return pl.when(lower == "true").then(True).when(lower == "false").then(False)


_READINGS: tuple[Callable[[pl.Expr], pl.Expr], ...] = (
    lambda text: text.cast(pl.Int64, strict=False),
    lambda text: text.cast(pl.Float64, strict=False),
    lambda text: _truth(text),
    lambda text: text.str.to_date("%Y-%m-%d", strict=False),
    lambda text: text.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False),
    lambda text: text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", strict=False),
)
