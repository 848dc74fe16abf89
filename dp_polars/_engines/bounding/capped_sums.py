"""Sums of a lane: what each unit adds to a group, capped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dp_polars._engines.bounding.blocks import Block, GroupCap, Numbers, kept_runs
from dp_polars._engines.bounding.exact_sums import Sums, run_sums
from dp_polars._engines.request import Column, Lane, Sum

_MOST_ROWS = 1 << 62  # more than any unit has: a larger cap is the same, and would not fit the arithmetic
_LONG_RUN = 1 << 31  # a run of more rows is scaled down in Python's integers


class Moments:
    """The sums that a lane asks for."""

    def __init__(self, lane: Lane, groups: int, cap: GroupCap | None) -> None:
        self._lane, self._cap = lane, cap
        self._added = [one for one in lane.sums if not self._is_runs(one)]
        long = [None if one.of in ("rows", "units") else one.inner - one.fine for one in self._added]
        self._sums = Sums(groups, long)

    def _is_runs(self, one: Sum) -> bool:
        """Whether a sum is the number of runs, which is counted in any case."""
        return one.of == "units" and (one.everyone or not (self._lane.everyone and self._lane.columns))

    def collect(self, block: Block) -> None:
        """Cap runs and add them up."""
        kept = kept_runs(block, self._cap)
        values = Values(block, self._lane)
        terms = [_term(one, block, values) for one in self._added]
        if kept is None:
            self._sums.add(block.group, terms)
        else:
            self._sums.add(block.group[kept], [term[kept] for term in terms])

    def finish(self) -> tuple[Numbers, Numbers, dict[str, Numbers]]:
        """Return the numbers of the groups, their runs, and the sums by name."""
        names, runs, sums = self._sums.finish()
        added = {one.name: numbers for one, numbers in zip(self._added, sums, strict=True)}
        return names, runs, {one.name: added.get(one.name, runs) for one in self._lane.sums}


class Values:
    """The values of a block's rows, decoded; 0 in rows without one."""

    def __init__(self, block: Block, lane: Lane) -> None:
        self._block, self._lane = block, lane

    @cached_property
    def present(self) -> NDArray[np.bool_] | None:
        """Which rows have values; None: all."""
        if not (self._lane.everyone and self._lane.columns):
            return None
        codes = _codes(self._block)
        if codes.min(initial=1) > 0:
            return None
        present: NDArray[np.bool_] = codes > 0
        return present

    @cached_property
    def rows(self) -> Numbers:
        """How many rows of each run have values."""
        if self.present is None:
            return self._block.rows
        return np.add.reduceat(self.present.astype(np.int64), self._block.starts)

    @cached_property
    def _columns(self) -> tuple[Numbers, ...]:
        first, *rest = self._lane.columns
        codes = _codes(self._block)
        if self._lane.everyone:
            codes = codes - 1
        found: tuple[Numbers, ...] = (codes + first.low,)
        if rest:
            bits = width(rest[0])
            found = (codes >> bits) + first.low, (codes & ((1 << bits) - 1)) + rest[0].low
        if self.present is not None:
            for column in found:
                column[~self.present] = 0
        return found

    def of(self, what: str) -> tuple[Numbers, int]:
        """Return the numbers of all rows, and how many bits they have at most."""
        columns = dict(zip("xy", zip(self._columns, self._lane.columns, strict=True), strict=False))
        number: Numbers | None = None
        bits = 0
        for letter in what:
            own, column = columns[letter]
            number = own if number is None else number * own
            bits += max(abs(column.low), abs(column.high)).bit_length()
        if number is None:
            raise ValueError("a sum of nothing")
        return number, bits

    def basis(self, place: int, degree: int) -> tuple[Numbers, int]:
        """Return a number of a basis for all rows, and how many bits it has at most; 0 in rows without a value."""
        column = self._lane.columns[0]
        whole = column.high - column.low
        up = self._columns[0] - column.low
        number = math.comb(degree, place) * up**place * (whole - up) ** (degree - place)
        if self.present is not None:
            number = np.where(self.present, number, 0)
        return number, (whole**degree).bit_length()


def _codes(block: Block) -> Numbers:
    if block.codes is None:
        raise ValueError("rows without values")
    return block.codes


def _term(one: Sum, block: Block, values: Values) -> Numbers:
    """Return what each run adds to a sum."""
    rows = block.rows if one.everyone else values.rows
    most = None if one.max_rows is None else min(one.max_rows, _MOST_ROWS)
    if one.of == "rows":
        return rows if most is None else np.minimum(rows, most)
    if one.of == "units":
        return (rows > 0).astype(np.int64)
    numbers, bits = values.basis(one.place, one.degree) if one.of == "basis" else values.of(one.of)
    total = run_sums(numbers, block.starts, bits)
    if one.clip is not None:
        return np.clip(total, *one.clip)
    if most is None or most >= _MOST_ROWS:
        return (total + one.shift * rows) << one.inner
    # Shifted after it is scaled: a unit may have any number of rows, the cap is small.
    shifted: Numbers = scaled(total, rows, most, one.inner, bits) + (one.shift << one.inner) * np.minimum(rows, most)
    return shifted


def scaled(total: Numbers, rows: Numbers, max_rows: int, inner: int, bits: int) -> Numbers:
    """Return total * min(1, max_rows / rows) in steps of 2**-inner, to the nearest one, of two the even one.

    What one unit can change: rows in [A, Z] have a total S in [n A, n Z], so what is rounded, S max_rows 2**inner / n,
    lies between max_rows A 2**inner and max_rows Z 2**inner. Those are whole numbers, and rounding to the nearest one
    keeps whole numbers and the order of all: the outcome lies between them too, for every n. It has no direction,
    since -S gives the opposite of what S gives.

    A row's number has at most `bits` bits; with those of the cap and `inner` at most 62 for the outcome to fit. Most
    runs are so short that the whole numerator fits 64 bits, which is one division.
    """
    found = total << inner
    over = np.flatnonzero(rows > max_rows)
    if not len(over):
        return found
    own, n = total[over], rows[over]
    longest = int(n.max())
    if bits + longest.bit_length() + max_rows.bit_length() + inner <= 62:
        whole, rest = np.divmod(own * (max_rows << inner), n)
    elif longest < _LONG_RUN:
        # Long division: each rest is below n < 2**31, its product with a cap below n or with 2**inner below 2**63.
        first, rest = np.divmod(own, n)
        second, rest = np.divmod(rest * max_rows, n)
        third, rest = np.divmod(rest << inner, n)
        whole = ((first * max_rows + second) << inner) + third
    else:
        pairs = [divmod(s * (max_rows << inner), k) for s, k in zip(own.tolist(), n.tolist(), strict=True)]
        whole, rest = (np.array(numbers, np.int64) for numbers in zip(*pairs, strict=True))
    found[over] = whole + (2 * rest + (whole & 1) > n)
    return found


def width(column: Column) -> int:
    """Return how many bits the values of a column need."""
    return (column.high - column.low).bit_length()


def packed_values(columns: Sequence[Column], values: Sequence[Numbers], *, everyone: bool) -> Numbers | None:
    """Return the values of rows as one number each, from 0; from 1, with 0 for rows without one, if all take part.

    A missing value is below its column's least.
    """
    if not columns:
        return None
    packed = values[0] - (columns[0].low - everyone)
    if len(columns) == 1:  # what is missing is one below the least, so it is what it should be
        return packed
    packed -= everyone
    missing = packed < 0
    for column, own in zip(columns[1:], values[1:], strict=True):
        missing |= own < column.low
        packed = (packed << width(column)) | (own - column.low)
    if everyone:
        packed += 1
        packed[missing] = 0
    else:
        packed[missing] = -1
    return packed


def value_range(columns: Sequence[Column], *, everyone: bool) -> tuple[int, int] | None:
    """Return the range of what `packed_values` gives."""
    if not columns:
        return None
    return 0, (1 << sum(width(column) for column in columns)) - 1 + everyone
