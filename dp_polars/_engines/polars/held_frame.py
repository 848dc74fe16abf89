"""A frame in memory, and what earlier questions found out about its columns.

Codes of texts and the sorted order of units and groups cost a large part of a question and are the same for the next
one, so they are kept as long as the user holds the frame and its columns. They are derived from rows, so they are
private: they are never shown, stored in a ledger or part of a plan. Nothing salted is kept.

What one unit can change: how fast an answer is computed. The answer is the same as without these facts, because they
are used again only for the rows that they were found in: codes for a column in the same memory, and rows in sorted
order for the same codes and unchanged units (see `sorted_rows` for what happens if a change goes unnoticed).
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import polars as pl

from dp_polars._engines.polars.evaluation import unmarked

MOST_BYTES = 1 << 29
"""Bytes that the facts about one frame may take. Those that were used longest ago are forgotten first."""

ColumnFact = TypeVar("ColumnFact")


class FrameState:
    """The columns that a frame had at some time. It stands for the frame until other columns are put into it."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._columns = _columns(frame)

    def is_of(self, frame: pl.DataFrame) -> bool:
        """Return whether a frame still has the same columns, in the same memory."""
        columns = _columns(frame)
        return len(columns) == len(self._columns) and all(
            kept.name == column.name
            and (_same_column(kept, column) or _seems_unchanged(kept, column, frame.to_series(place)))
            for place, (kept, column) in enumerate(zip(self._columns, columns, strict=True))
        )

    def __repr__(self) -> str:
        return "<the state of a frame>"


class _ColumnFacts:
    """Facts about the columns of one frame, each with the column that it was found in, and the state of the frame."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: OrderedDict[str, tuple[pl.Series, Any, int]] = OrderedDict()
        self.state: FrameState | None = None
        self.wanted: set[str] = set()
        self.in_order: tuple[Any, int] | None = None

    @property
    def size(self) -> int:
        """Bytes that all facts take."""
        return sum(own for _, _, own in self.known.values()) + (0 if self.in_order is None else self.in_order[1])

    def forget(self) -> None:
        """Forget the rows in sorted order, or else the fact that was used longest ago."""
        if self.in_order is not None:
            self.in_order = None
        else:
            self.known.popitem(last=False)


_FACTS: dict[int, tuple[weakref.ref[pl.DataFrame], _ColumnFacts]] = {}
_LOCK = threading.Lock()


def _facts_about(frame: pl.DataFrame) -> _ColumnFacts:
    """Return the facts about a frame. They live as long as the frame, or a private frame made from it."""
    number = id(frame)
    with _LOCK:
        known = _FACTS.get(number)
        if known is None or known[0]() is not frame:
            known = weakref.ref(frame, lambda _: _FACTS.pop(number, None)), _ColumnFacts()
            _FACTS[number] = known
        return known[1]


def state_of(frame: pl.DataFrame) -> FrameState:
    """Return the state of a frame: the same object as long as nobody puts other columns into the frame.

    Stored releases are found by it. It is never computed from values: a column that is replaced by an equal one is
    another column. Changes go unnoticed in columns that Arrow cannot hold, in some constants, and in the nulls of
    slices.
    """
    facts = _facts_about(frame)
    with facts.lock:
        if facts.state is None or not facts.state.is_of(frame):
            facts.state = FrameState(frame)
        return facts.state


class HeldFrame:
    """The columns of a frame as they are now. The user may put other columns into the frame later."""

    def __init__(self, frame: pl.DataFrame) -> None:
        # A clone shares the columns, but not what happens to the frame afterwards.
        snapshot = frame.clone()
        self.frame, self._facts, self.state = unmarked(snapshot), _facts_about(frame), state_of(frame)

    def fact(self, name: str, find: Callable[[pl.Series], ColumnFact], size: Callable[[ColumnFact], int]) -> ColumnFact:
        """Return what `find` returns for a column, now or at an earlier question. `size` gives the bytes it takes."""
        column, facts = self.frame[name], self._facts
        with facts.lock:
            for other in [other for other in facts.known if other not in self.frame.columns]:
                del facts.known[other]  # its owner has dropped the column
            known = facts.known.get(name)
            if known is not None and _same_column(known[0], column):
                facts.known.move_to_end(name)
                fact: ColumnFact = known[1]
                return fact
            fact = find(column)
            facts.known[name] = column, fact, size(fact)
            while facts.size > MOST_BYTES:
                facts.forget()
            return fact

    @property
    def in_order(self) -> Any:
        """Rows of the frame in sorted order, as an earlier question left them; None if there are none."""
        with self._facts.lock:
            return None if self._facts.in_order is None else self._facts.in_order[0]

    def keep_in_order(self, rows: object, size: int) -> None:
        """Keep rows in sorted order for the next question, if there is room for their `size` in bytes."""
        with self._facts.lock:
            self._facts.in_order = rows, size
            if self._facts.size > MOST_BYTES:
                self._facts.in_order = None

    def is_worth_it(self, name: str) -> bool:
        """Return whether a fact about a column is known, or was wanted before. Note that it is wanted now."""
        with self._facts.lock:
            worth = name in self._facts.known or name in self._facts.wanted
            self._facts.wanted.add(name)
            return worth

    def __repr__(self) -> str:
        return "<a frame in memory>"


def _columns(frame: pl.DataFrame) -> list[pl.Series]:
    """Return the columns of a frame, taken one by one: then Polars materialises most constants only once."""
    return [frame.to_series(place) for place in range(frame.width)]


def _same_column(kept: pl.Series, column: pl.Series) -> bool:
    """Return whether two columns are the same memory, and so have the same values.

    A column that is kept is never written to: Polars copies memory that two columns share before it changes one. The
    arrays of both are alive while they are compared, because Polars copies a part of some columns to hand them over,
    and two copies must not have the same address.
    """
    if kept.dtype != column.dtype or len(kept) != len(column):
        return False
    first, second = _arrays(kept), _arrays(column)
    return [_address(one) for one in first] == [_address(one) for one in second]


def _seems_unchanged(kept: pl.Series, column: pl.Series, again: pl.Series) -> bool:
    """Return whether two columns are the same memory, where it has a fixed place.

    `again` is the second column, taken from its frame once more. Polars copies the nulls of a slice and writes some
    constants out anew each time, so their place says nothing. They are not compared by value, because whether a stored
    release is found must not depend on rows.
    """
    if kept.dtype != column.dtype or len(kept) != len(column):
        return False
    arrays = [_arrays(own) for own in (kept, column, again)]  # alive until they are compared
    first, second, third = ([_address(one) for one in own] for own in arrays)
    return len(first) == len(second) and all(
        before[:2] == now[:2]
        and all(old == new for old, new, same in zip(before[2], now[2], repeated[2], strict=True) if new == same)
        for before, now, repeated in zip(first, second, third, strict=True)
    )


def _arrays(column: pl.Series) -> list[Any]:
    """Return the memory of a column as Arrow arrays; none if Arrow has no such type."""
    column = column.alias("")  # Polars would read some names as patterns
    stored = column if column.dtype.is_decimal() else column.to_physical()
    try:
        return [chunk.to_arrow(compat_level=pl.CompatLevel.newest()) for chunk in stored.get_chunks()]
    except (Exception, pl.exceptions.PanicException):  # noqa: BLE001 - integers of 128 bits, Python objects
        return []


def _address(array: Any) -> tuple[int, int, list[int | None]]:
    return len(array), array.offset, [None if buffer is None else buffer.address for buffer in array.buffers()]
