"""A frame in memory, and what earlier questions found out about its columns.

Codes of texts cost a large part of a question and are the same for the next one, so they are kept as long as the user
holds the frame and its column. They are derived from rows, so they are private: they are never shown, stored in a
ledger or part of a plan. What one unit can change: they decide how fast an answer is computed, never what it is.
Nothing salted is kept.
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


class _ColumnFacts:
    """Facts about the columns of one frame, each with the column that it was found in."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: OrderedDict[str, tuple[pl.Series, Any, int]] = OrderedDict()


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


class HeldFrame:
    """The columns of a frame as they are now. The user may put other columns into the frame later."""

    def __init__(self, frame: pl.DataFrame) -> None:
        # A clone shares the columns, but not what happens to the frame afterwards.
        self.frame, self._facts = unmarked(frame.clone()), _facts_about(frame)

    def fact(self, name: str, find: Callable[[pl.Series], ColumnFact], size: Callable[[ColumnFact], int]) -> ColumnFact:
        """Return what `find` finds out about a column, or found out before. `size` gives the bytes that it takes."""
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
            while sum(own for _, _, own in facts.known.values()) > MOST_BYTES:
                facts.known.popitem(last=False)
            return fact

    def __repr__(self) -> str:
        return "<a frame in memory>"


def _same_column(kept: pl.Series, column: pl.Series) -> bool:
    """Return whether two columns are the same memory, and so have the same values.

    A column that is kept is never written to: Polars copies memory that two columns share before it changes one. The
    arrays of both are alive while they are compared, because Polars copies a part of some columns to hand them over,
    and two copies must not have the same address.
    """
    if kept.dtype != column.dtype:
        return False
    first, second = _arrays(kept), _arrays(column)
    return [_address(one) for one in first] == [_address(one) for one in second]


def _arrays(column: pl.Series) -> list[Any]:
    return [chunk.to_arrow(compat_level=pl.CompatLevel.newest()) for chunk in column.to_physical().get_chunks()]


def _address(array: Any) -> tuple[int, int, list[int | None]]:
    return len(array), array.offset, [None if buffer is None else buffer.address for buffer in array.buffers()]
