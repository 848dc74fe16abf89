"""Contribution bounding for one lane of a request: rows go in, sums and cells come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from dp_polars._engines.bounding.blocks import AnyWords, Block, GroupCap, Numbers, Orders, add_sorted_words
from dp_polars._engines.bounding.cells import CellCounts, Profiles
from dp_polars._engines.bounding.sorters import SHORT_BITS, CodedRows, RowShape, sorter_for
from dp_polars._engines.bounding.sums import BlockValues, CappedSums, packed_values, value_range
from dp_polars._engines.request import Lane
from dp_polars._engines.workers import Workers


@dataclass(frozen=True)
class LaneResult:
    """Group numbers, their numbers of runs, sums by name, and cells by name. Cells of profiles have no groups."""

    names: Numbers
    runs: Numbers
    sums: dict[str, Numbers]
    cells: dict[str, tuple[Numbers | None, Numbers, Numbers]] = field(default_factory=dict)


def needs_order(lane: Lane, max_groups: int | None) -> bool:
    """Return whether a lane needs the order in which a unit keeps its groups: for a cap, and to choose rows by hash."""
    return max_groups is not None or bool(lane.profiles) or (lane.cells is not None and lane.cells.max_rows is not None)


def _is_better_later(shape: RowShape) -> bool:
    """Return whether rows are sorted in words of half the length, or in one word at all, only without their order."""
    layout = shape.layout
    return layout.fits and (layout.bits < SHORT_BITS or not replace(shape, ordered=True).layout.fits)


class LaneBounding:
    """Take the rows of a lane batch by batch, and add up what their units keep, part by part.

    A part is all rows of some of the units. The sums and cells of a part are added to those of earlier parts as they
    are, and rounded and clipped only once, at the end. So the parts change the memory that rows take and nothing else.
    Several threads may add rows at the same time, and `workers` bound them.

    `order` gives the order in which units keep their groups, if it can be computed from the numbers of units and
    groups. If the lane is then `ordered`, it takes the order with the rows all the same. Memory for the rows that are
    `expected` is taken at once.
    """

    def __init__(
        self,
        lane: Lane,
        *,
        unit_bits: int,
        groups: int,
        cap: GroupCap | None,
        salt: int,
        workers: Workers,
        order: Orders | None = None,
        expected: int = 0,
    ) -> None:
        self._workers, self._lane = workers, lane
        self._values = value_range(lane.columns, everyone=lane.everyone)
        self._shape = RowShape(
            unit_bits=unit_bits, groups=groups, values=self._values, ordered=False, rising=lane.cells is not None
        )
        if order is not None and not lane.profiles and _is_better_later(self._shape):
            self.ordered = False  # the order is computed after sorting
            cap = None if cap is None else replace(cap, order=order)
        else:
            self.ordered, order = needs_order(lane, None if cap is None else cap.most), None
            self._shape = replace(self._shape, ordered=self.ordered)
        self._sums = CappedSums(lane, groups, cap)
        self._cells = None
        if lane.cells is not None and self._values is not None:
            first = lane.everyone and not lane.cells.missing
            bits = (self._values[1] - first).bit_length()
            self._cells = CellCounts(lane.cells, groups, bits, cap, salt, order)
        self._profiles = {profile.name: Profiles(profile) for profile in lane.profiles}
        self._sorter = sorter_for(self._shape, expected)

    def _collect(self, block: Block) -> None:
        self._sums.collect(block)
        if self._cells is not None and self._lane.cells is not None:
            if self._lane.cells.missing:  # the code 0 stands for a row without a value
                self._cells.collect(block)
            else:
                self._cells.collect(block, BlockValues(block, self._lane).present, first=int(self._lane.everyone))
        for profile in self._profiles.values():
            profile.collect(block)

    def add(self, rows: CodedRows, values: Sequence[NDArray[Any]]) -> None:
        """Add rows with the values of the lane's columns."""
        packed = packed_values(self._lane.columns, values, everyone=self._lane.everyone)
        keep = rows.keep
        if packed is not None and packed.min(initial=0) < 0:
            keep = packed >= 0 if keep is None else keep & (packed >= 0)
        self._sorter.add(replace(rows, order=rows.order if self.ordered else None, value=packed, keep=keep))

    def end_part(self) -> AnyWords | None:
        """Bound the rows added since the last part, which must be all rows of their units.

        Return them in sorted order if each row is a single word; nothing else holds them then.
        """
        words = self._sorter.finish(self._collect, self._workers)
        self._sorter = sorter_for(self._shape)
        if self._cells is not None:
            self._cells.end_part()
        return words

    @property
    def is_unsalted(self) -> bool:
        """Whether rows are packed without values and without an order, so that only units and groups decide them."""
        return not (self._lane.columns or self.ordered)

    def add_part(self, words: AnyWords) -> None:
        """Bound a part whose packed rows an equal lane has returned in sorted order."""
        add_sorted_words(words, self._shape.layout, self._collect, self._workers)
        if self._cells is not None:
            self._cells.end_part()

    def finish(self) -> LaneResult:
        """Return the result. Call this after the last part has ended."""
        names, runs, named = self._sums.finish()
        cells: dict[str, tuple[Numbers | None, Numbers, Numbers]] = {
            name: (None, *profile.finish()) for name, profile in self._profiles.items()
        }
        if self._cells is not None and self._lane.cells is not None:
            groups, values, counts = self._cells.finish()
            first = self._lane.columns[0].low - self._lane.cells.missing
            cells[self._lane.cells.name] = (groups, values + first, counts)
        return LaneResult(names, runs, named, cells)
