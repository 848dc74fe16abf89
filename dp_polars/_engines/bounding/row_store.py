"""Stores for rows that wait until all rows have been read, in little more memory than the rows themselves need.

Several threads may add rows to a store at the same time. One thread takes them out, when all have been added.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_polars._engines.bounding.blocks import Columns, Words

PART_BITS = 6
SLOT_BITS = 24
MIXER = 0x9E3779B97F4A7C15
"""An odd factor, so that multiplication by it is one to one. It spreads units that differ in few bits."""

_MAPPED = 1 << 25  # bytes from which on the C library gets an array from the system and returns it when it is freed
_PAGE = _MAPPED  # bytes per page, so that the system gets the memory back when a page is dropped
_EXPECTED = 1 << 24  # words that a page may have if so many are expected: a single page is not copied in the end
_FIRST = 1 << 16  # words of the first page before it grows: a profile has a hundred columns, so it must not be large
_GROWTH = 4
_PIECE = 1 << 20  # rows that are split into parts at once
_MOST_SPARE = 1 << 27  # bytes: as many as _EXPECTED words of 64 bits take


class SpareMemory:
    """The memory of a few large arrays that are no longer used, kept for the next arrays. At most 128 MiB are kept.

    Memory that is new to a process is filled with zeros by the system, and a virtual machine may have to ask its host
    for it. Measured there, the first write to 80 MB took 20 to 1200 ms, and the next ones 10 ms.
    """

    def __init__(self) -> None:
        # Arrays come back while others are taken, even in the same thread. Each list operation is atomic, so no lock is
        # needed.
        self._spare: list[NDArray[np.uint8]] = []

    def array(self, size: int, dtype: Any) -> NDArray[Any]:
        """Return an array whose content is arbitrary. Its memory comes back when no view of the array is left."""
        wanted = size * np.dtype(dtype).itemsize
        if not _MAPPED <= wanted <= _MOST_SPARE:
            return np.empty(size, dtype)
        memory = self._taken(wanted)
        # The array is made from a memoryview. So every view of it, and of its views, keeps this array alive, not only
        # the memory.
        array = np.frombuffer(memory.data, dtype, size)
        weakref.finalize(array, self._put_back, memory).atexit = False
        return array

    def _taken(self, wanted: int) -> NDArray[np.uint8]:
        """Return the smallest spare memory that is large enough, or new memory."""
        found: list[NDArray[np.uint8]] = []
        with suppress(IndexError):
            while True:
                found.append(self._spare.pop())
        found.sort(key=lambda memory: memory.nbytes)
        place = next((place for place, memory in enumerate(found) if memory.nbytes >= wanted), None)
        if place is None:
            self._spare += found[1:]  # give up one of those that are too small
            return np.empty(wanted, np.uint8)
        memory = found.pop(place)
        self._spare += found
        return memory

    def _put_back(self, memory: NDArray[np.uint8]) -> None:
        self._spare.append(memory)
        with suppress(IndexError):
            while sum(kept.nbytes for kept in tuple(self._spare)) > _MOST_SPARE:
                self._spare.pop(0)


SPARE = SpareMemory()


class Pages:
    """A growing column. Its pages are joined one by one at the end, so it is never in memory twice.

    The number of words that are `expected`, if it is known, only decides how large pages are.
    """

    def __init__(self, dtype: type[np.unsignedinteger[Any]], expected: int = 0) -> None:
        self._dtype = dtype
        self._pages: list[NDArray[Any]] = []
        self._page_words = max(_PAGE // np.dtype(dtype).itemsize, min(expected, _EXPECTED))
        self._page: NDArray[Any] = SPARE.array(min(max(_FIRST, expected), self._page_words), dtype)
        self._used = 0
        self._lock = threading.Lock()

    def add(self, words: NDArray[Any]) -> None:
        """Append words."""
        with self._lock:
            self._append(words)

    def _append(self, words: NDArray[Any]) -> None:
        if self._used + len(words) > len(self._page) < self._page_words:
            grown = np.empty(
                min(self._page_words, max(_GROWTH * len(self._page), self._used + len(words))), self._dtype
            )
            grown[: self._used] = self._page[: self._used]
            self._page = grown
        while len(words) > self._page_words - self._used:
            room = self._page_words - self._used
            self._page[self._used :] = words[:room]
            self._pages.append(self._page)
            self._page, self._used, words = np.empty(self._page_words, self._dtype), 0, words[room:]
        self._page[self._used : self._used + len(words)] = words
        self._used += len(words)

    def take(self) -> NDArray[Any]:
        """Return all words as one array that may be changed. The pages are empty afterwards."""
        last = self._page[: self._used]
        if not self._pages:
            return last
        joined = np.empty(len(self._pages) * self._page_words + len(last), self._dtype)
        joined[len(joined) - len(last) :] = last
        while self._pages:
            page = self._pages.pop()
            joined[len(self._pages) * self._page_words : (len(self._pages) + 1) * self._page_words] = page
        return joined


class Parts:
    """Rows of several columns in parts. All rows of a unit are in the same part. Few rows are not split at all."""

    def __init__(self) -> None:
        self._parts: list[list[Columns]] = [[] for _ in range(1 << PART_BITS)]
        self._waiting: list[tuple[NDArray[np.uint8], Columns]] = []
        self._size = 0
        self._lock = threading.Lock()

    def add(self, part: NDArray[np.uint8], columns: Columns) -> None:
        """Add rows to the given parts. A column must be None in all calls or in none."""
        with self._lock:
            self._waiting.append((part, columns))
            self._size += len(part)
            if self._size <= _PIECE:
                return
            waiting, self._waiting, self._size = self._waiting, [], 0
        self._split(waiting)

    def _split(self, waiting: list[tuple[NDArray[np.uint8], Columns]]) -> None:
        """Put rows that waited into their parts."""
        part = np.concatenate([numbers for numbers, _ in waiting])
        columns = _joined([piece for _, piece in waiting])
        order = part.argsort(kind="stable")
        ordered = [None if column is None else column[order] for column in columns]
        ends = np.bincount(part, minlength=len(self._parts)).cumsum().tolist()
        start = 0
        for pieces, end in zip(self._parts, ends, strict=True):
            if end > start:
                pieces.append(tuple(None if column is None else column[start:end] for column in ordered))
            start = end

    def take(self, *, whole: bool) -> Iterator[Columns]:
        """Yield the columns of each part that has rows, or with `whole` of all rows together if they are few."""
        if whole and not any(self._parts):
            if self._size:
                yield _joined([piece for _, piece in self._waiting])
            return
        if self._size:
            self._split(self._waiting)
            self._waiting, self._size = [], 0
        for number, pieces in enumerate(self._parts):
            self._parts[number] = []  # free the part once it was yielded
            if pieces:
                yield _joined(pieces)


def _joined(pieces: list[Columns]) -> Columns:
    return tuple(None if arrays[0] is None else np.concatenate(arrays) for arrays in zip(*pieces, strict=True))


class Slots:
    """Short numbers for units of 64 bits or more: slots of a table, each owned by the first unit that claims it.

    A unit whose slot is taken owns none. So all rows of a unit get the same answer, and no two units share a slot.
    """

    def __init__(self) -> None:
        self._owners = np.zeros(1 << SLOT_BITS, np.uint64)
        self._lock = threading.Lock()

    def claim(self, mixed: Words, more: Words | None) -> tuple[Words, NDArray[np.bool_]]:
        """Return the slot that the upper bits of each row's unit name, and whether the unit owns it.

        The table stores the bits of the owner that the slot does not tell, or its second word. The lowest bit is set,
        so that no owner is 0; for a second word, this loses one bit.
        """
        slot = mixed >> np.uint64(64 - SLOT_BITS)
        owner = (mixed << np.uint64(SLOT_BITS) if more is None else more) | np.uint64(1)
        owners = self._owners.take(slot.view(np.int64))
        free = np.flatnonzero(owners == 0)
        if len(free):
            claimed, by = slot[free].view(np.int64), owner[free]
            with self._lock:  # an owner never changes, so only claims exclude each other
                still = self._owners[claimed] == 0
                self._owners[claimed[still]] = by[still]  # if several units claim a slot, one of them gets it
                owners[free] = self._owners[claimed]
        return slot, owners == owner
