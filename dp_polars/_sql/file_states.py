"""The state of a file: which file a path led to, and when it last changed."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dp_polars.errors import InvalidDataError


@dataclass(frozen=True)
class FileState:
    """The file that a path led to, and when it last changed."""

    path: str
    device: int
    inode: int
    size: int
    modified: int
    changed: int


def file_state(path: str) -> FileState:
    """Return the present state of a file."""
    try:
        return state_from(path, os.stat(path))
    except OSError:
        raise InvalidDataError(f"The file {path} no longer exists, or it can't be accessed.") from None


def state_from(path: str, found: os.stat_result) -> FileState:
    """Return the state of a file that was looked at."""
    return FileState(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
