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


def kept_runs(block: Block, max_groups: int | None) -> NDArray[np.bool_] | None:
    """Return which runs are among the first `max_groups` of their unit; None: all."""
    if max_groups is None or max_groups >= len(block.unit):
        return None
    kept = np.ones(len(block.unit), np.bool_)
    np.not_equal(block.unit[max_groups:], block.unit[:-max_groups], out=kept[max_groups:])
    return kept
