"""Where rows wait until all have been read: in about the memory that they need themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

PART_BITS = 6
_PAGE = 1 << 24  # rows of a page, whose memory goes back to the system when the page is dropped
_PIECE = 1 << 20  # rows that are brought into parts at once

Columns = tuple[Any, ...]
"""Arrays of equal length; the first is there, any other may be None."""


class Pages:
    """One growing column; joined at the end page by page, so that it is never in memory twice."""

    def __init__(self, dtype: type[np.unsignedinteger[Any]]) -> None:
        self._dtype = dtype
        self._pages: list[NDArray[Any]] = []
        self._page: NDArray[Any] = np.empty(_PAGE, dtype)  # memory that is not written to is not used yet
        self._used = 0

    def add(self, words: NDArray[Any]) -> None:
        """Add words at the end."""
        while len(words) > _PAGE - self._used:
            room = _PAGE - self._used
            self._page[self._used :] = words[:room]
            self._pages.append(self._page)
            self._page, self._used, words = np.empty(_PAGE, self._dtype), 0, words[room:]
        self._page[self._used : self._used + len(words)] = words
        self._used += len(words)

    def take(self) -> NDArray[Any]:
        """Return everything as one array that may be changed; the pages are empty afterwards."""
        last = self._page[: self._used]
        if not self._pages:
            return last
        joined = np.empty(len(self._pages) * _PAGE + len(last), self._dtype)
        joined[len(joined) - len(last) :] = last
        while self._pages:
            page = self._pages.pop()
            joined[len(self._pages) * _PAGE : (len(self._pages) + 1) * _PAGE] = page
        return joined


class Parts:
    """Rows of several columns, in parts: all rows of a unit go to the same part. Few rows stay together."""

    def __init__(self) -> None:
        self._parts: list[list[Columns]] = [[] for _ in range(1 << PART_BITS)]
        self._waiting: list[tuple[NDArray[np.uint8], Columns]] = []
        self._size = 0

    def add(self, part: NDArray[np.uint8], columns: Columns) -> None:
        """Add rows to the parts that they name; a column is missing in all calls or in none."""
        self._waiting.append((part, columns))
        self._size += len(part)
        if self._size > _PIECE:
            self._split()

    def _split(self) -> None:
        """Bring what waits into its parts."""
        part = np.concatenate([own for own, _ in self._waiting])
        columns = _joined([own for _, own in self._waiting])
        self._waiting, self._size = [], 0
        order = part.argsort(kind="stable")
        ordered = [None if column is None else column[order] for column in columns]
        ends = np.bincount(part, minlength=len(self._parts)).cumsum().tolist()
        start = 0
        for own, end in zip(self._parts, ends, strict=True):
            if end > start:
                own.append(tuple(None if column is None else column[start:end] for column in ordered))
            start = end

    def take(self, *, whole: bool) -> Iterator[Columns]:
        """Yield the columns of each part that has rows, or of all together if they are few and may be `whole`."""
        if whole and not any(self._parts):
            if self._size:
                yield _joined([own for _, own in self._waiting])
            return
        if self._size:
            self._split()
        for number, own in enumerate(self._parts):
            self._parts[number] = []  # a part is gone once it was given
            if own:
                yield _joined(own)


def _joined(pieces: list[Columns]) -> Columns:
    return tuple(None if own[0] is None else np.concatenate(own) for own in zip(*pieces, strict=True))
