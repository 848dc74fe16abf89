"""Runs: all rows of one unit in one group as one entry; and the caps on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_polars.engines.bounding.sums import Numbers, Sums

ORDER_BITS = 16
"""Bits of the order hash: a constant, so that the plan never decides which groups are kept."""

_MOST_ROWS = 1 << 62  # more than any unit has: a larger cap is the same, and would not fit the arithmetic

Words = NDArray[np.uint64]
AnyWords = NDArray[Any]
"""Unsigned words, 32 or 64 bits wide."""


@dataclass(frozen=True, kw_only=True)
class Caps:
    """The caps to enforce; None where a cap can't bind. With `total` each unit's sum in a group is clipped to it."""

    max_groups: int | None
    max_rows: int | None
    total: tuple[int, int] | None = None


@dataclass(frozen=True)
class Runs:
    """Runs in the order of the sort: units together, each one's groups in the order in which they are kept."""

    unit: AnyWords
    group: Numbers
    rows: Numbers
    total: Numbers | None


def starts_of(heads: AnyWords) -> Numbers:
    """Return where a new value begins in sorted words."""
    changes = np.empty(len(heads), np.bool_)
    changes[:1] = True
    np.not_equal(heads[1:], heads[:-1], out=changes[1:])
    return np.flatnonzero(changes)


def add_runs(sums: Sums, runs: Runs, caps: Caps) -> None:
    """Cap runs and add them to the sums. All runs of a unit must be in one call."""
    unit, group, rows, total = runs.unit, runs.group, runs.rows, runs.total
    if caps.max_groups is not None and caps.max_groups < len(unit):
        kept = np.ones(len(unit), np.bool_)
        np.not_equal(unit[caps.max_groups :], unit[: -caps.max_groups], out=kept[caps.max_groups :])
        group, rows, total = group[kept], rows[kept], None if total is None else total[kept]
    if total is not None and caps.total is not None:
        total = np.clip(total, *caps.total)
    elif total is not None and caps.max_rows is not None and caps.max_rows < _MOST_ROWS:
        total = _scaled(total, rows, caps.max_rows)
    if caps.max_rows is not None:
        rows = np.minimum(rows, min(caps.max_rows, _MOST_ROWS))
    sums.add(group, rows, total)


def _scaled(total: Numbers, rows: Numbers, max_rows: int) -> Numbers:
    """Return floor(total * max_rows / rows) where a unit has more than max_rows rows, without a wide product."""
    over = np.flatnonzero(rows > max_rows)
    scaled = total.copy()
    quotient, rest = np.divmod(total[over], rows[over])
    scaled[over] = quotient * max_rows + rest * max_rows // rows[over]
    return scaled
