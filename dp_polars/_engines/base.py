"""The engine protocol, and what all engines share to tell whether two sources are the same.

A stored release is found again only if it was made from the same source. Identity is never computed from rows, because
equal content would reveal that a person is absent. A source is the same as another one if

- its owner says so (`name` and `data_version`);
- it is a plan over files that the engine understands in full, and each file is the same object, recognised by its path,
  device, inode, size and times of change (that a file was touched counts as public);
- it is the same object in the same process.

A table of a database file has the state of that file, or the version that its owner gave it.

A Polars frame whose columns or rows are replaced in place is another source from then on. Other objects that are
changed in place keep their identity: pass `fresh=True`, or give the data a version.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import stat
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from dp_polars._engines.request import BoundedRequest, Exact
from dp_polars._engines.rows import PrivateRows, Source
from dp_polars._expressions.tree import Expression
from dp_polars._sampling import BitSource

_GROWTH = 4  # bytes of memory per byte of a file: a row takes 2 to 30 bytes there, and 8 to 40 while it is bounded
_MOST_PARTS = 64  # each part is a pass over the source


@dataclass(frozen=True, repr=False)
class Snapshot:
    """All rows as they were after the charge, and a mask of the rows that each unit keeps. It is never shown."""

    rows: pl.DataFrame
    kept: pl.Series

    def kept_rows(self) -> pl.DataFrame:
        """Return the rows that units keep."""
        return self.rows.filter(self.kept)


class Engine(Protocol):
    """What an engine must do. It knows no epsilon, no mechanism and no ledger.

    Its caller charges first and adds noise afterwards. An engine fails rather than return an answer that misses a row.
    """

    def reads(self, source: Source) -> bool:
        """Return whether this engine reads a source."""
        ...

    def aggregate(self, rows: PrivateRows, request: BoundedRequest, *, parts: int = 1) -> Exact:
        """Return the exact bounded aggregates of rows with the columns that the request names.

        With several `parts`, only the rows of some of the units are held in memory at a time. The answer is the same.
        """
        ...

    def read(
        self, rows: PrivateRows, *, columns: Sequence[str] | None = None, select: Sequence[pl.Expr] | None = None
    ) -> pl.DataFrame:
        """Return all rows, with some of the columns or with row-wise Polars expressions over them."""
        ...

    def snapshot(
        self,
        rows: PrivateRows,
        units: Sequence[str],
        bits: BitSource,
        *,
        max_rows: int | None,
        keys: Sequence[str] = (),
        max_groups: int | None = None,
    ) -> Snapshot:
        """Return all rows, and mark those that each unit keeps under the caps. The choice is random."""
        ...

    def problem(self, expressions: Sequence[Expression], public: pl.DataFrame) -> str | None:
        """Return why expressions fail on public rows, or None if they do not fail."""
        ...

    def identify(self, origin: object) -> bytes | None:
        """Return what identifies the files behind an object that a user made private; None if it is no such plan."""
        ...


def parts_for(source_bytes: int, memory_limit: float) -> int:
    """Return the number of parts in which rows are bounded so that each part fits into memory.

    The answer does not depend on the number of parts: with the same salts it is equal to the last bit, so its
    distribution is the same too. The number of parts is visible in how long a query takes. Therefore it depends on
    public facts only, the sizes of files and the memory limit, and never on the number of rows.

    Parameters
    ----------
    source_bytes
        The size of the files that the rows come from; 0 if it is unknown or the rows are in memory already.
    memory_limit
        How many bytes the engine may use.
    """
    if source_bytes <= 0 or not memory_limit < math.inf:
        return 1
    return min(_MOST_PARTS, math.ceil(_GROWTH * source_bytes / max(memory_limit, 1)))


# ---------------------------------------------------------------------- identity of sources

_TOKENS: dict[int, tuple[weakref.ref[Any], bytes]] = {}
_LOCK = threading.Lock()


def owner_identity(name: str | None, data_version: str | None) -> bytes | None:
    """Return the identity that the owner gives a source, or None without a name and a version."""
    if name is None or data_version is None:
        return None
    return b"named:" + json.dumps([name, data_version]).encode()


def object_token(thing: object) -> bytes:
    """Return a random name for an object. It lives as long as the object does."""
    number = id(thing)
    with _LOCK:
        known = _TOKENS.get(number)
        if known is not None and known[0]() is thing:
            return known[1]
        token = secrets.token_bytes(16)
        _TOKENS[number] = (weakref.ref(thing, lambda _, n=number: _TOKENS.pop(n, None)), token)  # type: ignore[misc]
        return token


def file_state(path: str) -> list[str | int] | None:
    """Return which file a path leads to now and when it was changed, or None if it leads to no regular file.

    Device and inode identify the file, whichever links lead to it; the real path would say less and takes longer to
    find. The time of change tells a new file from a deleted one whose inode it got. If the path itself is a link, the
    link's own inode and times count too, because swapping a link twice leaves a trace only there.
    """
    try:
        link, file = os.lstat(path), os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(file.st_mode):
        return None
    times = [time for state in (file, link) for time in (state.st_mtime_ns, state.st_ctime_ns)]
    return [os.path.abspath(path), file.st_dev, file.st_ino, link.st_ino, file.st_size, *times]
