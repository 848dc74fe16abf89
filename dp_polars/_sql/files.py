"""Open the files and frames that are registered under a name in SQL, and identify them as sources of releases.

Parquet files are scanned in place. Text and Arrow files are read into memory as a whole when they are registered,
because whether a line can be read must not depend on a query. What can't be read is refused at once, in a message that
quotes none of the content.

A file is identified by its real path, device, inode, size, modification time and change time. Another process that
reads the same file finds the same stored releases, and a file that was written to is another source. The fact that a
file was touched counts as public.

A folder of Delta Lake is the version that is present when it is opened.

A folder, or a pattern such as `visits/*.parquet`, is one table of several files. They have one format and the same
columns, and all of them identify the table. The list of files and their names count as public.

No line decides a type. The types of a text file's columns are declared, or they are inferred once with the owner's
declaration that they are public. Inferred types are recorded in the session's ledger and stay the same, even if
the lines of the file change.
"""

from __future__ import annotations

import builtins
import glob
import gzip
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import product
from typing import Any, Literal

import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]

from dp_polars._engines.base import owner_identity
from dp_polars._engines.polars.held_frame import state_of
from dp_polars._engines.polars.scan import polars_rows
from dp_polars._engines.registry import source_identity
from dp_polars._engines.rows import PrivateRows
from dp_polars._session.session import Session
from dp_polars._sql.delta_tables import DeltaVersion, delta_rows, delta_version, is_delta, refuse_iceberg
from dp_polars._sql.file_states import FileState, file_state, state_from
from dp_polars._sql.frames import lazy_of, plain, schema_of
from dp_polars._sql.text_files import complete_types, header_of, inferred, separator_of, texts_of, typed
from dp_polars._sql.types import declared_type
from dp_polars.errors import InvalidDataError, InvalidParameterError

PARQUET = (".parquet", ".pq")
TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst")
ARROW = (".arrow", ".feather", ".ipc")
ENDINGS = (*PARQUET, *TEXT, *ARROW)
"""The endings of file names that can be registered."""
DATABASES = (".duckdb", ".ddb", ".db")
"""The endings of the names of DuckDB files."""

COLUMN_TYPES = "column types"
"""The kind of the ledger's facts that record the column types of text files, by real path."""

Types = Mapping[str, str] | Literal["infer"] | None

_FAILURES = (Exception, pl.exceptions.PanicException)


@dataclass(frozen=True, eq=False)
class OpenedFile:
    """A registered file or frame: its rows, and its identity as a source of releases.

    Attributes
    ----------
    path
        The real path of the file; None for a frame.
    identity
        Device and inode of the file when it was opened; None for a frame.
    types
        The types of all columns of a text file; None for sources that carry their own types.
    read
        The state of a file that was read into memory; None for a frame and for a Parquet file.
    """

    path: str | None = None
    identity: tuple[int, int] | None = None
    types: Mapping[str, str] | None = None
    read: FileState | None = None
    _rows: pl.LazyFrame | None = field(default=None, repr=False)
    _origin: Any = field(default=None, repr=False)  # a frame is identified by its object

    @property
    def frame(self) -> pl.LazyFrame:
        """The rows. A Parquet file is scanned anew each time.

        A scan that has resolved its columns would read a file that replaces the first one by position. So take the
        frame when a query is planned, and compare `source_name()` before and after it is read.
        """
        return self._rows if self._rows is not None else _scan(str(self.path), str(self.path))

    @property
    def is_view(self) -> bool:
        """Whether this is a view, whose rows may be computed in any way. A file or a frame is not."""
        return False

    def schema(self) -> pl.Schema:
        """Return the names and types of the columns."""
        return self.frame.collect_schema()

    def private_rows(self) -> PrivateRows:
        """Return the rows as private ones."""
        return polars_rows(self.frame)

    def public_rows(self) -> pl.DataFrame:
        """Read all rows, which are public."""
        return self.frame.collect()

    def source_name(self) -> builtins.bytes:
        """Return the identity of the rows for stored releases. It depends on the file's state, never on its rows."""
        if self.path is None:
            return source_identity(self._origin, None, None)
        types = None if self.types is None else list(self.types.items())
        return b"file:" + json.dumps([astuple(self.read or file_state(self.path)), types]).encode()

    def owned_name(self, name: str, version: str) -> builtins.bytes:
        """Return the identity that the owner gave the rows: name, version and files, whatever state these are in."""
        owned, places = owner_identity(name, version) or b"", self.places()
        owned += json.dumps(places).encode() if places else b""
        # The same lines give other rows if they are read with other types.
        return owned if self.types is None else b"typed:" + json.dumps(list(self.types.items())).encode() + owned

    def places(self) -> list[str]:
        """Return the real paths of all files; none for a frame."""
        return [] if self.path is None else [os.path.realpath(self.path)]

    @property
    def bytes(self) -> int:
        """The size of the file, which counts as public; 0 for a frame."""
        return 0 if self.path is None else (self.read or file_state(self.path)).size

    def identities(self) -> set[tuple[int, int]]:
        """Return device and inode of the file that was opened and of the file that is at its path now."""
        found = set() if self.identity is None else {self.identity}
        if self.path is not None and os.path.exists(self.path):
            now = file_state(self.path)
            found.add((now.device, now.inode))
        return found


@dataclass(frozen=True, eq=False)
class OpenedFiles(OpenedFile):
    """Several files that form one table: those that existed when it was registered. `path` and `identity` are None.

    Attributes
    ----------
    parts
        The files, ordered by their real paths.
    """

    parts: tuple[OpenedFile, ...] = ()

    @property
    def frame(self) -> pl.LazyFrame:
        """The rows of all files. Parquet files are scanned anew each time."""
        if self._rows is not None:
            return self._rows
        paths = [str(part.path) for part in self.parts]
        _refuse_other_columns(paths, [schema_of(path, _scan(path, path)) for path in paths])
        return _scan(os.path.dirname(paths[0]), paths)

    def source_name(self) -> builtins.bytes:
        """Return the identity of the rows for stored releases, which depends on the state of every file."""
        return b"files:" + json.dumps([part.source_name().decode() for part in self.parts]).encode()

    def places(self) -> list[str]:
        """Return the real paths of all files."""
        return [place for part in self.parts for place in part.places()]

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(part.bytes for part in self.parts)

    def identities(self) -> set[tuple[int, int]]:
        """Return device and inode of every file, when it was opened and now."""
        return set().union(*(part.identities() for part in self.parts))


@dataclass(frozen=True, eq=False, kw_only=True)
class OpenedDelta(OpenedFile):
    """A version of a Delta Lake table: the one that was present when it was opened.

    Attributes
    ----------
    table
        The table's folder, its identifier, the version and its files.
    """

    table: DeltaVersion

    def source_name(self) -> builtins.bytes:
        """Return the identity of the rows for stored releases, which is that of the version."""
        return self.table.name()

    def places(self) -> list[str]:
        """Return the folder."""
        return [self.table.folder]

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.size for file in self.table.files)

    def identities(self) -> set[tuple[int, int]]:
        """Return device and inode of every file."""
        return {(file.device, file.inode) for file in self.table.files}


def open_source(name: str, source: Any, types: Types, session: Session) -> OpenedFile:
    """Open a file if `source` is a path, or a frame otherwise.

    Parameters
    ----------
    name
        The name in SQL, for messages.
    source
        A path, or a Polars, Arrow or pandas frame.
    types
        For text files: the types of columns (others are text), "infer", or None for the recorded types.
    session
        The session whose ledger records inferred types.
    """
    if isinstance(source, str | os.PathLike):
        return open_file(name, source, types, session)
    if types is not None:
        raise InvalidParameterError("types= is for text files only; a frame has its own types.")
    return open_frame(name, source)


def open_frame(name: str, source: Any) -> OpenedFile:
    """Open a Polars, Arrow or pandas frame. A lazy frame stays lazy."""
    origin = state_of(source) if isinstance(source, pl.DataFrame) else source
    return OpenedFile(_rows=lazy_of(name, source), _origin=origin)


def open_file(name: str, source: str | os.PathLike[str], types: Types, session: Session) -> OpenedFile:
    """Open a file, or several as one table. Types of text files are declared, recorded earlier, or inferred now."""
    refuse_iceberg(source)
    if is_delta(source):
        if types is not None:
            raise InvalidParameterError(f"types= is for text files only; the table for {name} has its own types.")
        table = delta_version(source)
        return OpenedDelta(_rows=delta_rows(name, table), table=table)
    if is_several(source):
        return _open_files(name, source, types, session)
    path, ending = _place(name, source)
    if types is not None and ending not in TEXT:
        raise InvalidParameterError(f"types= is for text files only; the file for {name} has its own types.")
    if ending in PARQUET:
        state = file_state(path)
        _scan(name, path)  # checks that it is a Parquet file
        return OpenedFile(path, (state.device, state.inode))
    if ending in ARROW:
        content, state = _content(name, path)
        rows = plain(name, _arrow(name, content).lazy())
        return OpenedFile(path, (state.device, state.inode), read=state, _rows=rows)
    known = _known_types(name, path, types, session)  # refuse before any row is read
    content, state = _content(name, path)
    texts = _texts(name, content, ending)
    whole = _whole_types(name, texts, known, path, types, session)
    return OpenedFile(path, (state.device, state.inode), whole, state, typed(texts, whole).lazy())


def is_text(source: str | os.PathLike[str]) -> bool:
    """Return whether a path stands for text files, whose types must be declared."""
    return not is_delta(source) and ending_of(files_at(source)[0]) in TEXT


def inferred_types(name: str, source: str | os.PathLike[str]) -> dict[str, str]:
    """Infer the types of public text files from all their lines. Nothing is recorded."""
    return inferred(_texts_and_states(name, files_at(source))[0])


def header_names(name: str, source: str | os.PathLike[str]) -> list[str]:
    """Return the names of the columns of a text file, or of the first of several. The header is public."""
    path, ending = _place(name, files_at(source)[0])
    return _texts(name, _content(name, path)[0], ending).columns


# ---------------------------------------------------------------------- folders and patterns


def is_several(source: str | os.PathLike[str]) -> bool:
    """Return whether a path stands for several files: a folder, or a pattern that is not itself the name of a file."""
    return os.path.isdir(source) or (not os.path.exists(source) and glob.has_magic(os.fspath(source)))


def files_at(source: str | os.PathLike[str]) -> list[str]:
    """Return the files that a path stands for: itself, those in a folder, or those that match a pattern, in order.

    In a folder, names that begin with a dot or an underscore are left out, as they mark temporary files.
    """
    whole = os.fspath(source)
    if not is_several(whole):
        return [whole]
    if os.path.isdir(whole):
        entries = [name for name in sorted(os.listdir(whole)) if name[0] not in "._"]
        found = [os.path.join(whole, entry) for entry in entries]
        inner = next((path for path in found if os.path.isdir(path)), None)
        if inner is not None:
            raise InvalidParameterError(
                f"The folder {whole} has folders inside, such as {inner}. Say which files are meant with a pattern, "
                f"for example {os.path.join(whole, '*', '*.parquet')}."
            )
    else:
        found = sorted(path for path in glob.glob(whole, recursive=True) if os.path.isfile(path))
    if not found:
        where = f"The folder {whole} has no files." if os.path.isdir(whole) else f"No file matches {whole}."
        raise InvalidParameterError(where)
    kinds = {next((kind for kind in (PARQUET, TEXT, ARROW) if ending_of(path) in kind), None): path for path in found}
    if len(kinds) > 1 or None in kinds:
        raise InvalidParameterError(
            f"{whole} stands for files of different or unknown formats, such as {' and '.join(kinds.values())}. A "
            "table of several files has one format. Say which are meant with a pattern, such as *.parquet or *.csv."
        )
    return found


def _open_files(name: str, source: str | os.PathLike[str], types: Types, session: Session) -> OpenedFiles:
    """Open several files as one table."""
    found = files_at(source)
    paths = sorted(os.path.realpath(path) for path in found)
    ending = ending_of(found[0])
    if types is not None and ending not in TEXT:
        raise InvalidParameterError(f"types= is for text files only; the files for {name} have their own types.")
    seen: dict[tuple[int, int], str] = {}
    for path in paths:
        state = file_state(path)
        other = seen.setdefault((state.device, state.inode), path)
        if other is not path:
            raise InvalidParameterError(f"{other} and {path} are the same file, so its rows would count twice.")
    if ending in PARQUET:
        opened = OpenedFiles(parts=tuple(OpenedFile(path, identity) for identity, path in seen.items()))
        opened.frame  # noqa: B018 - checks that all are Parquet files with the same columns
        return opened
    if ending in ARROW:
        contents = [(path, *_content(name, path)) for path in paths]
        frames = [plain(name, _arrow(name, content).lazy()) for _, content, _ in contents]
        _refuse_other_columns(paths, [schema_of(name, frame) for frame in frames])
        parts = [OpenedFile(path, (state.device, state.inode), read=state) for path, _, state in contents]
        return OpenedFiles(parts=tuple(parts), _rows=pl.concat(frames))
    where = os.path.realpath(os.fspath(source))
    known = _known_types(name, where, types, session)  # refuse before any row is read
    texts, states = _texts_and_states(name, paths)
    whole = _whole_types(name, texts, known, where, types, session)
    parts = [OpenedFile(path, (state.device, state.inode), whole, state) for path, state in states.items()]
    return OpenedFiles(types=whole, parts=tuple(parts), _rows=typed(texts, whole).lazy())


def _texts_and_states(name: str, paths: Sequence[str]) -> tuple[pl.DataFrame, dict[str, FileState]]:
    """Read text files, whose headers must name the same columns, and return their rows and states."""
    frames, states = [], {}
    for file in paths:
        path, ending = _place(name, file)
        content, states[path] = _content(name, path)
        frames.append(_texts(name, content, ending))
    other = next((path for path, frame in zip(paths, frames, strict=True) if frame.columns != frames[0].columns), None)
    if other is not None:  # its header is not quoted, because it may be a row of a file that lacks a header
        raise InvalidDataError(
            f"The first line of {other} does not name the columns of {paths[0]} ({', '.join(frames[0].columns)}), "
            "in the same order. Files of one table have the same header."
        )
    return pl.concat(frames), states


def _refuse_other_columns(paths: Sequence[str], schemas: Sequence[Mapping[str, pl.DataType]]) -> None:
    """Refuse files of one table that differ in the names, the order or the types of their columns."""
    for path, schema in zip(paths, schemas, strict=True):
        if list(schema.items()) != list(schemas[0].items()):
            raise InvalidDataError(
                f"{paths[0]} and {path} have different columns, so they are not one table: "
                f"{_columns(schemas[0])} in the first, {_columns(schema)} in the other."
            )


def _columns(schema: Mapping[str, pl.DataType]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in schema.items())


# ---------------------------------------------------------------------- identity


def ending_of(path: str | os.PathLike[str]) -> str | None:
    """Return the ending of a file's name if it is one of `ENDINGS`, or None."""
    name = os.path.basename(os.fspath(path)).lower()
    return next((ending for ending in sorted(ENDINGS, key=len, reverse=True) if name.endswith(ending)), None)


def same_file(first: OpenedFile, second: OpenedFile) -> bool:
    """Return whether two sources are the same file, when they were opened or now, whatever links lead to it."""
    return bool(first.identities() & second.identities())


def is_part_of(part: OpenedFile, whole: OpenedFile) -> bool:
    """Return whether all files of `part` also belong to `whole`, whatever links lead to them. A frame has no files."""
    files = part.identities()
    return bool(files) and files <= whole.identities()


def refuse_public_and_private(files: Mapping[str, OpenedFile], public: Collection[str]) -> None:
    """Refuse a file that is public under one name and private under another name.

    Parameters
    ----------
    files
        All registered files and frames by name.
    public
        The names that are public.
    """
    for shown, hidden in product(public, set(files) - set(public)):
        if shown in files and same_file(files[shown], files[hidden]):
            raise InvalidParameterError(
                f"{shown} and {hidden} are the same file, through a link or another spelling. A file can't be public "
                f"as {shown} and private as {hidden}: declare both public, or neither."
            )


def _place(name: str, source: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the real path of a file so that links can't be redirected later, and the ending of its name."""
    path, ending = os.path.realpath(source), ending_of(source)
    if ending is None or not os.path.isfile(path):
        raise InvalidParameterError(
            f"There is no Parquet, CSV or Arrow file for {name} at this path. register takes a frame, or the path of a "
            f"file that ends in {', '.join(ENDINGS)}."
        )
    return path, ending


# ---------------------------------------------------------------------- the content of files


def _scan(name: str, path: str | list[str]) -> pl.LazyFrame:
    """Scan exactly this Parquet file, or these."""
    return plain(name, pl.scan_parquet(path, glob=False, hive_partitioning=False))


def _content(name: str, path: str) -> tuple[bytes, FileState]:
    """Read a file and return its bytes and its state."""
    try:
        with open(path, "rb") as file:
            before = state_from(path, os.fstat(file.fileno()))
            content = file.read()
    except OSError:
        raise InvalidDataError(f"The file for {name} can't be opened for reading. Nothing was spent.") from None
    if file_state(path) != before:
        raise InvalidDataError(f"The file for {name} changed while it was read. Try again when no one writes to it.")
    return content, before


def _arrow(name: str, content: bytes) -> pl.DataFrame:
    try:
        # The content isn't memory-mapped, because the rows must stay the same when the file changes.
        return pl.read_ipc(content) if content.startswith(b"ARROW1") else pl.read_ipc_stream(content)
    except _FAILURES:
        raise _unreadable(name, "Arrow") from None


def _texts(name: str, content: bytes, ending: str) -> pl.DataFrame:
    try:
        unpacked = _unpacked(content, ending)
    except _FAILURES:
        raise _unreadable(name, "compressed text") from None
    separator = separator_of(unpacked, "\t" if ending.startswith(".tsv") else ",")
    header = header_of(unpacked, separator)
    if not header or len(set(header)) < len(header) or any(map(_is_no_name, header)):
        raise InvalidDataError(
            f"The first line of the file for {name} must name the columns. It is missing, or it contains an empty "
            "name, a number or the same name twice. Add a line with names."
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
    """Return whether a column name looks like a value. Messages show names, but must never show values."""
    return re.fullmatch(r"\s*[-+.,\d]*\s*", column) is not None


def _unreadable(name: str, kind: str) -> InvalidDataError:
    return InvalidDataError(
        f"The file for {name} can't be read as {kind}: it is damaged or has another format. Nothing was spent."
    )


# ---------------------------------------------------------------------- declared and recorded types


def _known_types(name: str, path: str, types: Types, session: Session) -> dict[str, str] | None:
    """Return the declared or recorded types, or None if the types must be inferred now."""
    if isinstance(types, Mapping):
        return {str(column): declared_type(kind)[0] for column, kind in types.items()}
    if types not in (None, "infer"):
        raise InvalidParameterError(
            "types= must give types by column, such as types={'amount': 'DOUBLE'}, or be 'infer'."
        )
    recorded = session._fact(COLUMN_TYPES, _subject(path))
    if recorded is None and types is None:
        raise InvalidParameterError(
            f"The file for {name} is a text file, and its lines must not decide the types of its columns unnoticed. "
            'Declare the types: types={"amount": "DOUBLE", "day": "DATE"} (other columns are text). Or let them be '
            'inferred once with types="infer": they are then recorded in the session\'s ledger as your declaration '
            "that they are public, and stay the same even if the lines change.",
            code="column-types-missing",
        )
    return None if recorded is None else dict(json.loads(recorded))


def _whole_types(
    name: str, texts: pl.DataFrame, known: dict[str, str] | None, where: str, types: Types, session: Session
) -> dict[str, str]:
    """Return the type of every column: those that are known, or those that are inferred and recorded now."""
    if known is None:
        known = _record_types(session, where, inferred(texts))
    missing = [column for column in known if column not in texts.columns]
    if missing and isinstance(types, Mapping):
        raise InvalidParameterError(
            f"types= names {', '.join(missing)}, but the file for {name} has no such column; it has "
            f"{', '.join(texts.columns)}."
        )
    return complete_types(texts.columns, known)


def _record_types(session: Session, path: str, types: Mapping[str, str]) -> dict[str, str]:
    """Record types permanently, and return the recorded ones. Another process may have recorded types first."""
    return dict(json.loads(session._record(COLUMN_TYPES, _subject(path), json.dumps(list(types.items())))))


def _subject(path: str) -> str:
    """Return a path as a text that every ledger can store."""
    return os.fsencode(path).decode(errors="backslashreplace")
