"""What a name in SQL stands for: a file or a frame, with the rows, and what names them as a source.

Parquet is read where it lies. Text and Arrow files are read once, whole, when they are registered: whether a line can
be read must not be part of an answer. What can't be read is refused there, in words that quote nothing of it.

A file is the object that its path leads to when it is registered: its real path, device, inode, size and times of
change. Another process that reads the same file finds the same releases, and a file that was written to is another
source. That a file was touched counts as public.

No line decides a type. The types of a text file's columns are declared, or they were inferred once, with the owner's
word that they are public: then they are a fact in the session's ledger, and stay whatever the file's lines become.
"""

from __future__ import annotations

import builtins
import gzip
import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass, field
from itertools import product
from typing import Any, Literal

import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]

from dp_polars._engines.registry import source_identity
from dp_polars._session.session import Session
from dp_polars._sql.column_types import as_declared, inferred, type_of, typed
from dp_polars._sql.csv_reader import header_of, texts_of
from dp_polars._sql.frame_sources import lazy_of, plain
from dp_polars.errors import InvalidDataError, InvalidParameterError

PARQUET = (".parquet", ".pq")
TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst")
ARROW = (".arrow", ".feather", ".ipc")
ENDINGS = (*PARQUET, *TEXT, *ARROW)
"""How the names of files end that can be registered."""

COLUMN_TYPES = "column types"
"""The kind of fact under which the types of a text file's columns are recorded, by the file's real path."""

Types = Mapping[str, str] | Literal["infer"] | None

_FAILURES = (Exception, pl.exceptions.PanicException)


@dataclass(frozen=True)
class FileState:
    """Which object a path led to, and when it was changed."""

    path: str
    device: int
    inode: int
    size: int
    modified: int
    changed: int


@dataclass(frozen=True, eq=False)
class OpenedFile:
    """The rows that a name in SQL stands for, a file's or a frame's, and what names them as a source.

    Attributes
    ----------
    path
        The real path of the file; None for a frame.
    identity
        Device and inode of the file when it was opened; None for a frame.
    types
        The types of all columns of a text file; None for what has types of its own.
    read
        The state of a file whose rows are in memory; None for a frame, and for what is read where it lies.
    """

    path: str | None = None
    identity: tuple[int, int] | None = None
    types: Mapping[str, str] | None = None
    read: FileState | None = None
    _rows: pl.LazyFrame | None = field(default=None, repr=False)
    _origin: Any = field(default=None, repr=False)  # a frame is the same as long as it is the same object

    @property
    def frame(self) -> pl.LazyFrame:
        """The rows. Those of a Parquet file are scanned anew whenever they are asked for.

        A scan that has looked at the columns of a file reads another file in its place by position, so take the frame
        when a question is planned, and compare `source_name()` before and after it is read.
        """
        return self._rows if self._rows is not None else _scan(str(self.path), str(self.path))

    def source_name(self) -> builtins.bytes:
        """Return what names the rows for stored releases: the file as it is now or was read, never its rows."""
        if self.path is None:
            return source_identity(self._origin, None, None)
        types = None if self.types is None else list(self.types.items())
        return b"file:" + json.dumps([astuple(self.read or _state(self.path)), types]).encode()

    @property
    def bytes(self) -> int:
        """The size of the file, which is public; 0 for a frame."""
        return 0 if self.path is None else (self.read or _state(self.path)).size

    def identities(self) -> set[tuple[int, int]]:
        """Return device and inode of the file as it was opened, and of what lies at its path now."""
        found = set() if self.identity is None else {self.identity}
        if self.path is not None and os.path.exists(self.path):
            now = _state(self.path)
            found.add((now.device, now.inode))
        return found


def open_source(name: str, source: Any, types: Types, session: Session) -> OpenedFile:
    """Return what a name in SQL stands for: a file if `source` is a path, else a frame.

    Parameters
    ----------
    name
        What it will be called; for messages.
    source
        A path, or a frame of Polars, Arrow or pandas.
    types
        For text files: the types of columns (others are text), "infer", or None for those that are recorded.
    session
        The session whose ledger records what is inferred.
    """
    if isinstance(source, str | os.PathLike):
        return open_file(name, source, types, session)
    if types is not None:
        raise InvalidParameterError("types= are for text files; a frame has types of its own.")
    return open_frame(name, source)


def open_frame(name: str, source: Any) -> OpenedFile:
    """Return a frame of Polars, Arrow or pandas as what a name stands for. A lazy frame stays lazy."""
    return OpenedFile(_rows=lazy_of(name, source), _origin=source)


def open_file(name: str, source: str | os.PathLike[str], types: Types, session: Session) -> OpenedFile:
    """Return a file as what a name stands for. The types of a text file are declared, recorded, or inferred now."""
    path, ending = _place(name, source)
    if types is not None and ending not in TEXT:
        raise InvalidParameterError(f"types= are for text files; the file for {name} has types of its own.")
    if ending in PARQUET:
        state = _state(path)
        _scan(name, path)  # to see that it is one
        return OpenedFile(path, (state.device, state.inode))
    if ending in ARROW:
        content, state = _content(name, path)
        rows = plain(name, _arrow(name, content).lazy())
        return OpenedFile(path, (state.device, state.inode), read=state, _rows=rows)
    known = _known_types(name, path, types, session)  # what is refused is refused before a row is read
    content, state = _content(name, path)
    texts = _texts(name, content, ending)
    if known is None:
        known = _record_types(session, path, inferred(texts))
    missing = [column for column in known if column not in texts.columns]
    if missing and isinstance(types, Mapping):
        raise InvalidParameterError(
            f"types= names {', '.join(missing)}, which the file for {name} doesn't have; it has "
            f"{', '.join(texts.columns)}."
        )
    whole = as_declared(texts.columns, known)
    return OpenedFile(path, (state.device, state.inode), whole, state, typed(texts, whole).lazy())


def inferred_types(name: str, source: str | os.PathLike[str]) -> dict[str, str]:
    """Return the types that all lines of a text file can be read as. Records nothing: for files that are public."""
    path, ending = _place(name, source)
    return inferred(_texts(name, _content(name, path)[0], ending))


# ---------------------------------------------------------------------- names and objects


def ending_of(path: str | os.PathLike[str]) -> str | None:
    """Return how the name of a file ends, if that is one of `ENDINGS`."""
    name = os.path.basename(os.fspath(path)).lower()
    return next((ending for ending in sorted(ENDINGS, key=len, reverse=True) if name.endswith(ending)), None)


def same_file(one: OpenedFile, other: OpenedFile) -> bool:
    """Whether two names stand for one file, by whatever links, as it was opened or is now."""
    return bool(one.identities() & other.identities())


def refuse_public_and_private(files: Mapping[str, OpenedFile], public: Collection[str]) -> None:
    """Refuse a file that is public under one name and private under another.

    Parameters
    ----------
    files
        Everything that is registered, by its name.
    public
        The names of those that are public.
    """
    for shown, hidden in product(public, set(files) - set(public)):
        if shown in files and same_file(files[shown], files[hidden]):
            raise InvalidParameterError(
                f"{shown} and {hidden} are the same file, by a link or another spelling: it can't be public as {shown} "
                f"and private as {hidden}. Declare both public, or neither."
            )


def _place(name: str, source: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the real path of a file, which no later change of a link leads elsewhere, and its kind."""
    path, ending = os.path.realpath(source), ending_of(source)
    if ending is None or not os.path.isfile(path):
        raise InvalidParameterError(
            f"There is no Parquet file for {name}, and no CSV or Arrow file; register takes a frame, or the path of a "
            f"file that ends in {', '.join(ENDINGS)}."
        )
    return path, ending


def _state(path: str) -> FileState:
    try:
        return _state_of(path, os.stat(path))
    except OSError:
        raise InvalidDataError(f"The file {path} is not there any more, or may not be read.") from None


def _state_of(path: str, found: os.stat_result) -> FileState:
    return FileState(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


# ---------------------------------------------------------------------- the content of files


def _scan(name: str, path: str) -> pl.LazyFrame:
    """Return a plan that reads exactly this Parquet file."""
    return plain(name, pl.scan_parquet(path, glob=False, hive_partitioning=False))


def _content(name: str, path: str) -> tuple[bytes, FileState]:
    """Return the bytes of a file and which object they were read from."""
    try:
        with open(path, "rb") as file:
            before = _state_of(path, os.fstat(file.fileno()))
            content = file.read()
    except OSError:
        raise InvalidDataError(f"The file for {name} may not be read. Nothing was asked.") from None
    if _state(path) != before:
        raise InvalidDataError(f"The file for {name} changed while it was read; try again when nobody writes.")
    return content, before


def _arrow(name: str, content: bytes) -> pl.DataFrame:
    try:
        # Not mapped into memory: the rows must stay when the file changes.
        return pl.read_ipc(content) if content.startswith(b"ARROW1") else pl.read_ipc_stream(content)
    except _FAILURES:
        raise _unreadable(name, "Arrow") from None


def _texts(name: str, content: bytes, ending: str) -> pl.DataFrame:
    try:
        unpacked = _unpacked(content, ending)
    except _FAILURES:
        raise _unreadable(name, "compressed text") from None
    separator = "\t" if ending.startswith(".tsv") else ","
    header = header_of(unpacked, separator)
    if not header or len(set(header)) < len(header) or any(map(_is_no_name, header)):
        raise InvalidDataError(
            f"The first line of the file for {name} must name the columns. There is none, or it has an empty name, a "
            "number, or one twice. Add a line with names."
        )
    return texts_of(unpacked, separator)


def _unpacked(content: bytes, ending: str) -> bytes:
    if ending.endswith(".gz"):
        return gzip.decompress(content)
    if ending.endswith(".zst"):
        with pa.input_stream(pa.py_buffer(content), compression="zstd") as stream:
            return bytes(stream.read())
    return content


def _is_no_name(column: str) -> bool:
    """Whether a name looks like a value: names are shown in messages, values never are."""
    return re.fullmatch(r"\s*[-+.,\d]*\s*", column) is not None


def _unreadable(name: str, kind: str) -> InvalidDataError:
    return InvalidDataError(
        f"The file for {name} can't be read as {kind}: it is damaged or something else. Nothing was asked."
    )


# ---------------------------------------------------------------------- types that are declared or recorded


def _known_types(name: str, path: str, types: Types, session: Session) -> dict[str, str] | None:
    """Return the types that are declared or recorded; None if they are to be inferred now."""
    if isinstance(types, Mapping):
        return {str(column): type_of(kind)[0] for column, kind in types.items()}
    if types not in (None, "infer"):
        raise InvalidParameterError("types= are types by column, types={'amount': 'DOUBLE'}, or types='infer'.")
    recorded = session._fact(COLUMN_TYPES, _subject(path))
    if recorded is None and types is None:
        raise InvalidParameterError(
            f"The file for {name} is text, and no line of it may decide the types of its columns unnoticed. Declare "
            'them, types={"amount": "DOUBLE", "day": "DATE"} (others are text); or let them be inferred once, '
            'types="infer": what is found is recorded in the session\'s ledger as your word that it is public, and '
            "stays whatever the lines become.",
            code="column-types-missing",
        )
    return None if recorded is None else dict(json.loads(recorded))


def _record_types(session: Session, path: str, types: Mapping[str, str]) -> dict[str, str]:
    """Record types for good; return those that count: another process may have recorded its own a moment before."""
    return dict(json.loads(session._record(COLUMN_TYPES, _subject(path), json.dumps(list(types.items())))))


def _subject(path: str) -> str:
    """Return a path as a text that any ledger can store."""
    return os.fsencode(path).decode(errors="backslashreplace")
