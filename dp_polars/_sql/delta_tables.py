"""Folders of Delta Lake as sources: the files of one version, as Polars reads them.

A folder of Delta Lake also holds files of earlier versions, with rows that were deleted since. So its log decides which
files are read. A table is identified by its folder, its identifier and its version, which count as public: reading the
same version again finds the stored releases, and a new version is another source.
"""

from __future__ import annotations

import importlib
import json
import os
from dataclasses import astuple, dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import polars as pl

from dp_polars._sql.file_states import FileState, file_state
from dp_polars._sql.frames import plain
from dp_polars.errors import InvalidDataError, InvalidParameterError

_FAILURES = (Exception, pl.exceptions.PanicException)


@dataclass(frozen=True)
class DeltaVersion:
    """A version of a Delta Lake table: its folder, its identifier, its number, and its files as they were found."""

    folder: str
    identifier: str
    version: int
    files: tuple[FileState, ...]

    def name(self) -> bytes:
        """Return the identity of the rows. The files of a version never change, so one that did is an error."""
        for file in self.files:
            if file_state(file.path) != file:
                raise InvalidDataError(
                    f"A file of version {self.version} of {self.folder} was changed. Open the table again."
                )
        return b"delta:" + json.dumps(astuple(self)[:3]).encode()


def is_delta(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a folder of Delta Lake."""
    return os.path.isdir(os.path.join(path, "_delta_log"))


def is_iceberg(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a folder of Iceberg."""
    metadata = os.path.join(path, "metadata")
    return os.path.isdir(metadata) and any(name.endswith(".metadata.json") for name in os.listdir(metadata))


def refuse_iceberg(path: str | os.PathLike[str]) -> None:
    """Refuse a folder of Iceberg, because only its catalog knows which version is the present one."""
    if is_iceberg(path):
        raise InvalidParameterError(
            f"{os.fspath(path)} is a table of Iceberg. Its folder holds deleted rows too, and only its catalog knows "
            "the present version. Ask it through Spark, or write its present rows to Parquet files: "
            "pl.scan_iceberg(table).sink_parquet('rows.parquet')."
        )


def delta_version(path: str | os.PathLike[str]) -> DeltaVersion:
    """Return the present version of a Delta Lake table."""
    folder = os.path.realpath(path)
    try:
        deltalake: Any = importlib.import_module("deltalake")
    except ImportError:
        raise InvalidParameterError(
            f"{os.fspath(path)} is a table of Delta Lake, whose folder holds deleted rows too. Install what reads its "
            "log: pip install deltalake."
        ) from None
    try:
        table = deltalake.DeltaTable(folder)
        uris, identifier, version = table.file_uris(), str(table.metadata().id), int(table.version())
    except _FAILURES:
        raise InvalidDataError(f"{os.fspath(path)} is a table of Delta Lake whose log can't be read.") from None
    return DeltaVersion(folder, identifier, version, tuple(file_state(_local(uri)) for uri in sorted(uris)))


def delta_rows(name: str, found: DeltaVersion) -> pl.LazyFrame:
    """Return the rows of a version."""
    try:
        return plain(name, pl.scan_delta(found.folder, version=found.version))
    except _FAILURES:
        raise InvalidDataError(
            f"Polars can't read version {found.version} of the Delta Lake table for {name}: its log asks for a feature "
            "that Polars lacks. Write its present rows to Parquet files, and name those."
        ) from None


def _local(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        raise InvalidParameterError("A Delta Lake table with files that are not on this machine can't be read.")
    return os.path.realpath(unquote(parts.path) if parts.scheme else uri)
