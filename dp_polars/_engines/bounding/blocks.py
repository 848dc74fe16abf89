"""Blocks: sorted rows of whole units, as runs; and what is collected from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Words = NDArray[np.uint64]
AnyWords = NDArray[Any]
"""Unsigned words, 32 or 64 bits wide."""

ORDER_BITS = 16
"""Bits of the order hash: a constant, so that the plan never decides which groups are kept."""


@dataclass(frozen=True)
class Block:
    """Rows of whole units, sorted: a run is all rows of one unit in one group.

    Attributes
    ----------
    unit, order, group, rows
        Of each run: its unit, the order in which the unit keeps it, its group, and how many rows it has. Runs of a unit
        stand together in that order.
    starts
        Where each run begins.
    codes
        Of each row: its value, counted from the least; in each run in rising order if the shape asked for that.
    """

    unit: AnyWords
    order: AnyWords | None
    group: Numbers
    rows: Numbers
    starts: Numbers
    codes: Numbers | None


Collect = Callable[[Block], None]
"""Takes the blocks of rows one after another; all rows of a unit are in one."""


def starts_of(heads: AnyWords) -> Numbers:
    """Return where a new value begins in sorted words."""
    changes = np.empty(len(heads), np.bool_)
    changes[:1] = True
    np.not_equal(heads[1:], heads[:-1], out=changes[1:])
    return np.flatnonzero(changes)


@dataclass(frozen=True)
class GroupCap:
    """The most groups of one unit. With `outer`, those count that groups belong to, by the number of a group.

    Groups of the same outer one have the same order, and numbers that stand together.
    """

    most: int
    outer: Callable[[Numbers], Numbers] | None = None


def kept_runs(block: Block, cap: GroupCap | None) -> NDArray[np.bool_] | None:
    """Return which runs are among the first groups of their unit; None: all."""
    if cap is None or cap.most >= len(block.unit):
        return None
    if cap.outer is None:
        return _first_of_unit(block.unit, cap.most)
    outer = cap.outer(block.group)
    changes = np.ones(len(outer), np.bool_)
    changes[1:] = (block.unit[1:] != block.unit[:-1]) | (outer[1:] != outer[:-1])
    starts = np.flatnonzero(changes)
    return np.repeat(_first_of_unit(block.unit[starts], cap.most), np.diff(starts, append=len(outer)))


def _first_of_unit(unit: AnyWords, most: int) -> NDArray[np.bool_]:
    kept = np.ones(len(unit), np.bool_)
    np.not_equal(unit[most:], unit[:-most], out=kept[most:])
    return kept
