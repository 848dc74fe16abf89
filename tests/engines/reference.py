"""Bounding as its definition says, row by row in Python: slow, plain, and the judge of the fast one."""

from __future__ import annotations

from collections import defaultdict


def runs_of(rows, units, keys):
    """Return {unit: {group: rows}} of rows (dicts) whose unit is not null."""
    found = defaultdict(lambda: defaultdict(list))
    for row in rows:
        unit = tuple(row[name] for name in units)
        if None not in unit:
            found[unit][tuple(row[name] for name in keys)].append(row)
    return found


def capped(values, max_rows, low, high):
    """Return (rows, total) that a unit adds to a group: clipped rows, scaled down beyond max_rows."""
    clipped = [min(max(value, low), high) for value in values]
    n, total = len(clipped), sum(clipped)
    if max_rows is not None and n > max_rows:
        return max_rows, total * max_rows // n
    return n, total
