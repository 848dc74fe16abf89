"""Sums of a lane: the contribution of each unit to a group, capped, then added up exactly.

All sums are of integers. Those that 64 bits may not hold are kept in two limbs, so nothing ever wraps.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_polars._engines.bounding.blocks import Block, GroupCap, Numbers, kept_runs, lengths_of, starts_of
from dp_polars._engines.request import GroupSum, Lane, ValueColumn

_MOST_ROWS = 1 << 62  # no unit has so many rows; a larger cap means the same and would overflow
_LONG_RUN = 1 << 31  # longer runs are scaled down with Python integers
_LIMB = 32
_LOW = (1 << _LIMB) - 1
LimbSum = tuple[Numbers, Numbers | None]
"""The sum of each group: high * 2**_LIMB + low, or just the first number if there is no low limb."""

_SHORT_SUMS = ("rows", "units", "over")  # what 64 bits always hold; other sums are kept in two limbs
_FEW_GROUPS = 1 << 22  # up to this many possible groups, each has a place; beyond, only those that occur
_MERGE = 1 << 20
_MOST_BOTH = (1 << 31) - 1


class CappedSums:
    """The sums of a lane."""

    def __init__(self, lane: Lane, groups: int, cap: GroupCap | None) -> None:
        self._lane, self._cap = lane, cap
        self._mirrored = _mirrored(lane.sums)
        asked = [one for one in lane.sums if not self._is_runs(one) and one.name not in self._mirrored]
        needed = [mirror.rows for mirror in self._mirrored.values()]
        # Sums of short numbers come first, because the first one is added up together with the number of runs.
        self._added = sorted(dict.fromkeys([*asked, *needed]), key=lambda one: one.of not in _SHORT_SUMS)
        self._across = any(group_sum.across for group_sum in self._added)
        self._sums = Sums(groups, [one.of not in _SHORT_SUMS for one in self._added])

    def _is_runs(self, group_sum: GroupSum) -> bool:
        """Return whether a sum is the number of runs, which is counted anyway."""
        return group_sum.of == "units" and (group_sum.everyone or not (self._lane.everyone and self._lane.columns))

    def collect(self, block: Block) -> None:
        """Cap the runs of a block and add them up."""
        kept = kept_runs(block, self._cap)
        runs = block if kept is None else block.runs_at(np.flatnonzero(kept), units=self._across)
        values = BlockValues(runs, self._lane)
        self._sums.add(runs.group, [_term(group_sum, runs, values) for group_sum in self._added])

    def finish(self) -> tuple[Numbers, Numbers, dict[str, Numbers]]:
        """Return the group numbers, their numbers of runs, and the sums by name."""
        names, runs, sums = self._sums.finish()
        added = dict(zip(self._added, sums, strict=True))
        found = {}
        for one in self._lane.sums:
            mirror = self._mirrored.get(one.name)
            high, low = added.get(one, (runs, None)) if mirror is None else self._mirror(added, mirror)
            found[one.name] = high if low is None else joined(*shortened(high, low, one.inner - one.fine))
        return names, runs, found

    def _mirror(self, added: Mapping[GroupSum, LimbSum], mirror: _Mirror) -> LimbSum:
        """Return the sum of w minus the other sum."""
        column, (high, low), (rows, _) = self._lane.columns[0], added[mirror.other], added[mirror.rows]
        return (column.high - column.low) * rows - high, None if low is None else -low


@dataclass(frozen=True)
class _Mirror:
    """How a sum of distances from one bound follows from the sum of distances from the other one.

    Without rounding, the two numbers of a run add up to w, the distance of the bounds times min(rows, cap). In steps of
    2**-_LIMB, w is an even integer, and rounding to the nearest integer, ties to even, makes w - x into w minus what it
    makes of x. So the rounded numbers add up to w too, and their sums to the sum of w.

    Attributes
    ----------
    other
        The sum of distances from the other bound.
    rows
        The sum of min(rows, cap).
    """

    other: GroupSum
    rows: GroupSum


def _mirrored(sums: Sequence[GroupSum]) -> dict[str, _Mirror]:
    """Return the sums that follow from others, by their names."""
    found = {}
    for one in sums:
        linear = one.of == "basis" and (one.degree, one.place) == (1, 0)
        if not linear or one.inner != _LIMB or one.max_rows is None or one.max_rows >= _MOST_ROWS:
            continue
        # Only `_scaled_down` rounds like this. With a cap in all groups, for example, numbers are rounded towards 0.
        if one.across or one.everyone or one.shift or one.clip is not None:
            continue
        alike = (other for other in sums if replace(other, name=one.name, place=0) == one)
        other = next((other for other in alike if other.place == 1), None)
        if other is not None:
            rows = GroupSum(name="\0rows", of="rows", max_rows=one.max_rows)
            same = (counted for counted in sums if replace(counted, name=rows.name) == rows)
            found[one.name] = _Mirror(other, next(same, rows))
    return found


class BlockValues:
    """The decoded values of a block's rows. Rows without a value have 0."""

    def __init__(self, block: Block, lane: Lane) -> None:
        self._block, self._lane = block, lane

    @cached_property
    def present(self) -> NDArray[np.bool_] | None:
        """Mask of the rows that have a value; None means all."""
        if not (self._lane.everyone and self._lane.columns):
            return None
        codes = _codes(self._block)
        if codes.min(initial=1) > 0:
            return None
        present: NDArray[np.bool_] = codes > 0
        return present

    @cached_property
    def rows(self) -> Numbers:
        """Number of rows with a value in each run."""
        if self.present is None:
            return self._block.rows
        return run_sums(self.present.astype(np.int64), self._block, 1)

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
        """Return a value, or a product of values, for all rows, and a bound on its bits."""
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
        """Return a basis number for all rows, and a bound on its bits. Rows without a value have 0."""
        column = self._lane.columns[0]
        whole = column.high - column.low
        single = len(self._lane.columns) == 1  # then a code is the distance from the least value
        up = _codes(self._block) - int(self._lane.everyone) if single else self._columns[0] - column.low
        number = (
            up if (place, degree) == (1, 1) else math.comb(degree, place) * up**place * (whole - up) ** (degree - place)
        )
        if self.present is not None:
            number = np.where(self.present, number, 0)
        return number, (whole**degree).bit_length()

    def totals(self, group_sum: GroupSum) -> tuple[Numbers, int]:
        """Return the sum of each run, and a bound on the bits of a single row's number."""
        if group_sum.of != "basis":
            numbers, bits = self.of(group_sum.of)
        elif group_sum.degree == 1 and self._short:
            column = self._lane.columns[0]
            whole, (up, bits) = column.high - column.low, self._ups
            return (up if group_sum.place else whole * self.rows - up), bits
        else:
            numbers, bits = self.basis(group_sum.place, group_sum.degree)
        return run_sums(numbers, self._block, bits), bits

    @cached_property
    def _ups(self) -> tuple[Numbers, int]:
        """The sums of the distances from the lower bound. Those from the upper bound follow from them."""
        numbers, bits = self.basis(1, 1)
        return run_sums(numbers, self._block, bits), bits

    @property
    def _short(self) -> bool:
        """Whether 64 bits hold the largest value times the number of rows."""
        column = self._lane.columns[0]
        return (column.high - column.low).bit_length() + len(_codes(self._block)).bit_length() <= 62


def _codes(block: Block) -> Numbers:
    if block.codes is None:
        raise ValueError("rows without values")
    return block.codes


def _term(group_sum: GroupSum, block: Block, values: BlockValues) -> Numbers | Limbs:
    """Return the contribution of each run to a sum."""
    rows = block.rows if group_sum.everyone else values.rows
    most = None if group_sum.max_rows is None else min(group_sum.max_rows, _MOST_ROWS)
    if group_sum.of == "over" and group_sum.across and most is not None:
        return ((_rows_of_unit(block, rows) > most) & (rows > 0)).astype(np.int64)
    if group_sum.across and most is not None:
        total, bits = (rows, 1) if group_sum.of == "rows" else values.totals(group_sum)
        return scaled_across(total, rows, _rows_of_unit(block, rows), most, group_sum.shift, group_sum.inner, bits)
    if group_sum.of == "rows":
        return rows if most is None else np.minimum(rows, most)
    if group_sum.of == "units":
        return (rows > 0).astype(np.int64)
    if group_sum.of == "over":
        return (rows > (_MOST_ROWS if most is None else most)).astype(np.int64)
    if group_sum.clip is not None:
        return np.clip(values.totals(group_sum)[0], *group_sum.clip)
    if most is None or most >= _MOST_ROWS:
        return (values.totals(group_sum)[0] + group_sum.shift * rows) << group_sum.inner
    total, bits = values.totals(group_sum)
    if group_sum.inner == _LIMB and not group_sum.shift:
        return scaled_in_limbs(total, rows, most, bits)
    found = scaled(total, rows, most, group_sum.inner, bits)
    # The shift is added after scaling, because a unit may have any number of rows but the cap is small.
    return found + (group_sum.shift << group_sum.inner) * np.minimum(rows, most) if group_sum.shift else found


def scaled(total: Numbers, rows: Numbers, max_rows: int, inner: int, bits: int) -> Numbers:
    """Return total * min(1, max_rows / rows) in steps of 2**-inner, rounded to the nearest step, ties to even.

    What one unit can change: n rows in [A, Z] have a total S in [n A, n Z]. So the number to be rounded,
    S max_rows 2**inner / n, lies between max_rows A 2**inner and max_rows Z 2**inner. These are integers, and rounding
    to the nearest integer is monotone and keeps integers, so the result lies between them too, for every n. Rounding
    has no bias in one direction, since -S gives the negative of what S gives.

    A row's number has at most `bits` bits. Together with the bits of the cap and `inner` these must be at most 62 for
    the result to fit.
    """
    found = total << inner
    over = np.flatnonzero(rows > max_rows)
    if len(over):
        found[over] = _scaled_down(total[over], rows[over], max_rows, inner, bits)
    return found


@dataclass(frozen=True)
class Limbs:
    """Numbers in two limbs: high * 2**_LIMB, plus `low` at some `places`. Elsewhere, the lower limbs are 0."""

    high: Numbers
    low: Numbers
    places: Numbers


def scaled_in_limbs(total: Numbers, rows: Numbers, max_rows: int, bits: int) -> Limbs:
    """Return `scaled` in steps of 2**-_LIMB, as limbs. Only runs that are scaled down have a low limb."""
    over = np.flatnonzero(rows > max_rows)
    if not len(over):
        return Limbs(total, total[:0], over)
    found = _scaled_down(total[over], rows[over], max_rows, _LIMB, bits)
    high = total.copy()
    high[over] = found >> _LIMB
    return Limbs(high, found & _LOW, over)


def _scaled_down(own: Numbers, n: Numbers, max_rows: int, inner: int, bits: int) -> Numbers:
    """Scale down runs with the totals `own` and `n` rows, all of them more than `max_rows`, as `scaled` rounds.

    Most runs are so short that the numerator fits into 64 bits and a single division is enough.
    """
    longest = int(n.max())
    if bits + longest.bit_length() + max_rows.bit_length() + inner <= 62:
        whole, rest = np.divmod(own * (max_rows << inner), n)
    elif longest < _LONG_RUN:
        # Long division. Each remainder is below n < 2**31, so its products with a cap below n and with 2**inner are
        # below 2**63.
        first, rest = np.divmod(own, n)
        second, rest = np.divmod(rest * max_rows, n)
        third, rest = np.divmod(rest << inner, n)
        whole = ((first * max_rows + second) << inner) + third
    else:
        pairs = [divmod(s * (max_rows << inner), k) for s, k in zip(own.tolist(), n.tolist(), strict=True)]
        whole, rest = (np.array(numbers, np.int64) for numbers in zip(*pairs, strict=True))
    found: Numbers = whole + (2 * rest + (whole & 1) > n)
    return found


def _rows_of_unit(block: Block, rows: Numbers) -> Numbers:
    """Return for each run how many rows its unit has in all runs together."""
    if not len(rows):
        return rows
    starts = starts_of(block.unit)
    return np.add.reduceat(rows, starts).repeat(lengths_of(starts, len(rows)))


def scaled_across(
    total: Numbers, rows: Numbers, all_rows: Numbers, max_rows: int, shift: int, inner: int, bits: int
) -> Numbers:
    """Return (total + shift * rows) * min(1, max_rows / all_rows) in steps of 2**-inner, rounded towards 0.

    What one unit can change: let a unit have n rows in all groups, of which n_g lie in group g, with numbers in [A, Z]
    and c = max(|A|, |Z|). Its sum in group g is at most n_g c in size. So before rounding, what it adds to all groups
    has sizes that sum to at most max_rows c 2**inner if n is above max_rows, and to n c 2**inner otherwise. Rounding
    towards 0 makes no size larger. Rounding to the nearest could, once in each group, so a unit with many groups could
    add up to more.
    """
    over = np.flatnonzero(all_rows > max_rows)
    found = total << inner
    if shift:
        found += (shift << inner) * np.minimum(rows, max_rows)  # a unit within the cap has no more rows than that
    if not len(over):
        return found
    own, n_g, n = total[over], rows[over], all_rows[over]
    longest, wide = int(n.max()).bit_length(), max(bits, abs(shift).bit_length()) + 1
    if wide + longest + max_rows.bit_length() + inner <= 62:
        moved = own + shift * n_g
        found[over] = np.sign(moved) * (np.abs(moved) * (max_rows << inner) // n)
        return found
    exact = zip(own.tolist(), n_g.tolist(), n.tolist(), strict=True)
    moved_exactly = [((s + shift * k) * (max_rows << inner), m) for s, k, m in exact]
    found[over] = [top // m if top >= 0 else -(-top // m) for top, m in moved_exactly]
    return found


def width(column: ValueColumn) -> int:
    """Return the number of bits that the values of a column need."""
    return (column.high - column.low).bit_length()


def packed_values(
    columns: Sequence[ValueColumn], values: Sequence[NDArray[Any]], *, everyone: bool
) -> NDArray[Any] | None:
    """Pack the values of each row into one number, counted from 0. A single column keeps its type.

    If all rows take part (`everyone`), packed values count from 1 and 0 stands for no value. A missing value is given
    as a number below the column's least.
    """
    if not columns:
        return None
    if len(columns) == 1:  # a missing value is one below the least, so it is right already
        return values[0] - (columns[0].low - everyone)
    packed = values[0].astype(np.int64) - columns[0].low
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


def value_range(columns: Sequence[ValueColumn], *, everyone: bool) -> tuple[int, int] | None:
    """Return the range of the numbers that `packed_values` returns."""
    if not columns:
        return None
    return 0, (1 << sum(width(column) for column in columns)) - 1 + everyone


# ---------------------------------------------------------------------- exact sums by group


class Sums:
    """The number of runs of each group, and exact sums over them.

    Sums that 64 bits may not hold are `long`, and kept in two limbs.
    """

    def __init__(self, groups: int, long: Sequence[bool]) -> None:
        self._names: Numbers | None = None if groups <= _FEW_GROUPS else np.zeros(0, np.int64)
        self._long = tuple(long)
        self._columns = 1 + sum(2 if wide else 1 for wide in self._long)  # a long sum takes two limbs
        self._sums = np.zeros((self._columns, groups if self._names is None else 0), np.int64)
        self._waiting: list[tuple[Numbers, NDArray[np.int64]]] = []
        self._waiting_size = 0
        self._lock = threading.Lock()
        # The number of runs and the first sum are added together if both fit into the halves of a word.
        self._both = np.zeros(groups, np.int64) if self._names is None and self._long[:1] == (False,) else None
        self._both_size = 0

    def add(self, group: Numbers, terms: Sequence[Numbers | Limbs]) -> None:
        """Add runs. Each run is one unit in one group, with one number per sum: none below 0 unless the sum is long."""
        if self._names is None:
            limbs = self._limbs(group, terms)  # computed before the lock is taken
            first = None if self._both is None else limbs[0][1]
            size = 0 if first is None else len(group) + int(first.sum())
            if self._both is None or first is None or size > _MOST_BOTH:
                with self._lock:
                    np.add.at(self._sums[0], group, 1)
                    self._add(self._sums[1:], limbs)
                return
            both = first + (1 << _LIMB)
            with self._lock:
                if self._both_size + size > _MOST_BOTH:
                    self._split_both()
                self._both_size += size
                np.add.at(self._both, group, both)
                self._add(self._sums[2:], limbs[1:])
            return
        names, places = np.unique(group, return_inverse=True)
        sums = np.zeros((self._columns, len(names)), np.int64)
        np.add.at(sums[0], places, 1)
        self._add(sums[1:], self._limbs(places, terms))
        with self._lock:
            self._waiting.append((names, sums))
            self._waiting_size += len(names)
            if self._waiting_size > max(_MERGE, len(self._names)):
                self._merge()

    def _split_both(self) -> None:
        """Add the two halves of the words in which runs and the first sum were added up."""
        if self._both is not None:
            self._sums[0] += self._both >> _LIMB
            self._sums[1] += self._both & _LOW
            self._both[:] = 0
            self._both_size = 0

    def _limbs(self, group: Numbers, terms: Sequence[Numbers | Limbs]) -> list[tuple[Numbers, Numbers]]:
        """Return the groups and numbers to add to each row of the sums except the first.

        A short sum has one row, and a long one has two.
        """
        found: list[tuple[Numbers, Numbers]] = []
        for long, term in zip(self._long, terms, strict=True):
            if isinstance(term, Limbs):
                found += [(group, term.high), (group.take(term.places), term.low)]
            elif long:
                found += [(group, term >> _LIMB), (group, term & _LOW)]
            else:
                found.append((group, term))
        return found

    def _add(self, sums: NDArray[np.int64], limbs: Sequence[tuple[Numbers, Numbers]]) -> None:
        """Add numbers to their groups. NumPy holds the interpreter's lock here, so all else is computed before."""
        for row, (group, limb) in zip(sums, limbs, strict=True):
            np.add.at(row, group, limb)

    def _merge(self) -> None:
        known = self._names if self._names is not None else np.zeros(0, np.int64)
        parts = [(known, self._sums), *self._waiting]
        self._names, places = np.unique(np.concatenate([names for names, _ in parts]), return_inverse=True)
        merged = np.zeros((self._columns, len(self._names)), np.int64)
        for row, column in enumerate(merged):
            np.add.at(column, places, np.concatenate([sums[row] for _, sums in parts]))
        self._sums, self._waiting, self._waiting_size = merged, [], 0

    def finish(self) -> tuple[Numbers, Numbers, list[LimbSum]]:
        """Return the group numbers, their numbers of runs and the sums. If there are few groups, all are included.

        A long sum is given by its two limbs, and any other sum by itself and None.
        """
        if self._names is not None:
            self._merge()
        self._split_both()
        names = np.arange(self._sums.shape[1]) if self._names is None else self._names
        found: list[LimbSum] = []
        place = 1
        for long in self._long:
            found.append((self._sums[place], self._sums[place + 1] if long else None))
            place += 2 if long else 1
        return names, self._sums[0], found


def run_sums(values: Numbers, block: Block, bits: int) -> Numbers:
    """Return the sum of the values of each run. Values lie within +-2**bits."""
    if bits + len(values).bit_length() <= 62:
        return _differences(values, block)
    return joined(_differences(values >> _LIMB, block), _differences(values & _LOW, block))


def _differences(values: Numbers, block: Block) -> Numbers:
    """Return the sum of each run as a difference of sums from the first value on, which must fit into 64 bits.

    Runs are short, and then this takes less than half the time of `np.add.reduceat`.
    """
    sums = np.empty(len(values) + 1, np.int64)
    sums[0] = 0
    np.cumsum(values, out=sums[1:])
    found: Numbers = sums[block.starts + block.rows] - sums[block.starts]
    return found


def shortened(high: Numbers, low: Numbers, bits: int) -> tuple[Numbers, Numbers]:
    """Return (high * 2**32 + low) / 2**bits, rounded to the nearest integer, ties upwards. `bits` is at most 32.

    What one unit can change: if a sum S changes by an amount between k 2**bits and m 2**bits for integers k and m, then
    floor(S / 2**bits + 1/2) changes by an amount between k and m, because adding an integer commutes with the floor.
    With ties to even it could change by 1 more.
    """
    if not bits:
        return high, low
    low = low + (1 << (bits - 1))
    high = high + (low >> _LIMB)
    low = ((high & ((1 << bits) - 1)) << (_LIMB - bits)) | ((low & _LOW) >> bits)
    return high >> bits, low


def joined(high: Numbers, low: Numbers) -> Numbers:
    """Return high * 2**32 + low, clipped to +-2**62. Unlike wrapping, clipping never increases what a unit changes."""
    high = high + (low >> _LIMB)
    limit = 1 << 30
    exact = (np.clip(high, -limit, limit - 1) << _LIMB) | (low & _LOW)
    return np.where(high >= limit, 1 << 62, np.where(high < -limit, -(1 << 62), exact))
