"""Reference implementation of contribution bounding: slow, row by row in Python, straight from the definition."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction


def runs_of(rows, units, keys):
    """Return {unit: {group: rows}} for rows, given as dicts, whose unit is not null."""
    found = defaultdict(lambda: defaultdict(list))
    for row in rows:
        unit = tuple(row[name] for name in units)
        if None not in unit:
            found[unit][tuple(row[name] for name in keys)].append(row)
    return found


def capped(values, max_rows, low, high, inner=0):
    """Return the rows and the total that a unit contributes to a group: clipped, and scaled down beyond max_rows.

    The total is in steps of 2**-inner, rounded to the nearest, ties to even, as Python rounds fractions.
    """
    clipped = [min(max(value, low), high) for value in values]
    n, total = len(clipped), sum(clipped)
    if max_rows is not None and n > max_rows:
        return max_rows, round(Fraction(total * max_rows << inner, n))
    return n, total << inner


def shortened(total, bits):
    """Return a sum in steps that are 2**bits as long, rounded to the nearest, ties upwards."""
    return math.floor(Fraction(total, 1 << bits) + Fraction(1, 2))
