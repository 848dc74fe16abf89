"""Scores of many candidates over the rows that count, without ever pairing all rows with all candidates.

Rows that count are chosen once; what they have in the columns of the score is counted (equal rows have equal scores);
then candidates are put into a few slots at a time, as constants, and their scores summed over blocks of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from dp_polars._engines.polars.kept_rows import kept_rows
from dp_polars._engines.polars.program import Program
from dp_polars._engines.polars.value_codes import one_form, value_codes
from dp_polars._engines.registry import engine_for
from dp_polars._engines.request import LIMIT, BoundedRequest, Exact, ValueColumn
from dp_polars._engines.rows import PrivateRows
from dp_polars._expressions import Expression
from dp_polars._plan.grid import Grid
from dp_polars._plan.plan import Plan
from dp_polars._sampling import SYSTEM_BITS

OWN = "\0"
"""How the names of columns begin that are not the user's."""

SLOTS = 32
"""How many candidates are scored at a time."""

_BLOCK = 1 << 17
_SHORT = (pl.Boolean, pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
_GROUP, _WEIGHT = f"{OWN}group", f"{OWN}weight"


def slot_name(slot: int) -> str:
    """Return the name under which a score knows its candidate."""
    return f"{OWN}candidate{slot}_"


@dataclass(frozen=True)
class Scores:
    """An engine for one question: the scores of all candidates in all groups, exactly."""

    plan: Plan
    candidates: pl.Series
    scores: Sequence[Expression]

    @property
    def dtype(self) -> pl.DataType:
        """The type of the scores."""
        return self.scores[0].dtype

    def __call__(self, rows: PrivateRows, request: BoundedRequest) -> Exact:
        """Return the score of each pair of a group and a candidate, in the order of the public keys."""
        if request.domain is None:
            raise ValueError("candidates are public")
        groups = self.plan.query.selection.groups if self.plan.query.selection is not None else None
        frame = self._kept(engine_for(rows).read(rows), request, groups)
        table = self._summed(frame, 1 if groups is None else groups.height)
        scores = np.clip(table, -LIMIT, LIMIT).astype(np.int64).ravel()
        return Exact(request.domain.with_columns(pl.Series(self.plan.parts[0].name, scores)))

    def _kept(self, frame: pl.DataFrame, request: BoundedRequest, groups: pl.DataFrame | None) -> pl.DataFrame:
        """Return the rows that count with the number of their group, and how many of each there are."""
        keys = [f"{OWN}key{i}" for i in range(request.leading)]
        units = [f"{OWN}unit{i}" for i in range(request.units)]
        if groups is not None:
            named = groups.rename(dict(zip(groups.columns, keys, strict=True))).with_row_index(_GROUP)
            frame = frame.join(named, on=keys, how="inner", nulls_equal=True)
        else:
            frame = frame.with_columns(pl.lit(0, dtype=pl.UInt32).alias(_GROUP))
        kept = kept_rows(
            frame,
            units,
            SYSTEM_BITS,
            max_rows=self.plan.made[0].cap.enforced,
            keys=[_GROUP],
            max_groups=request.max_groups,
        )
        frame = frame.filter(kept).drop(*units, *keys)
        # Equal rows are counted together, and 1/x tells the two zeros apart.
        floats = cs.expand_selector(frame, cs.float())
        frame = frame.with_columns(one_form(pl.col(name), frame.schema[name]).alias(name) for name in floats)
        plain = not any(dtype.is_nested() or dtype == pl.Object for dtype in frame.schema.values())
        if plain and len(self.candidates) > SLOTS:
            return frame.group_by(frame.columns).agg(pl.len().cast(pl.Int64).alias(_WEIGHT))
        return frame.with_columns(pl.lit(1, dtype=pl.Int64).alias(_WEIGHT))

    def _summed(self, frame: pl.DataFrame, groups: int) -> NDArray[Any]:
        """Return a table of scores: a row for each group, a column for each candidate; of Python's integers."""
        steps = self._steps(int(frame[_WEIGHT].sum()))
        table = np.zeros((groups, len(self.candidates)), dtype=object)
        for start in range(0, len(self.candidates), SLOTS):
            some = self.candidates[start : start + SLOTS]
            program = Program(self.scores[: len(some)])
            sums = [(steps(slot) * pl.col(_WEIGHT)).sum().alias(f"sum{slot}") for slot in range(len(some))]
            if (frame[_WEIGHT] == 1).all():
                sums = [steps(slot).sum().alias(f"sum{slot}") for slot in range(len(some))]
            for block in frame.iter_slices(_BLOCK):
                slots = [some.slice(slot, 1).new_from_index(0, block.height) for slot in range(len(some))]
                with_slots = block.with_columns(one.alias(slot_name(slot)) for slot, one in enumerate(slots))
                scores = [one.cast(pl.Int8) if self.dtype == pl.Boolean else one for one in program.columns(with_slots)]
                own = [one.alias(f"value{slot}") for slot, one in enumerate(scores)]
                found = pl.DataFrame([block[_GROUP], block[_WEIGHT], *own]).lazy()
                added = found.group_by(_GROUP).agg(sums) if groups > 1 else found.select(pl.lit(0).alias(_GROUP), *sums)
                total = added.collect(engine="in-memory")
                places = total[_GROUP].to_numpy()
                for slot in range(len(some)):
                    table[places, start + slot] += np.array([int(x) for x in total[f"sum{slot}"]], dtype=object)
        return table

    def _steps(self, rows: int) -> Callable[[int], pl.Expr]:
        """Return what makes whole steps of the scores in a slot, 0 where there is none; their sum is exact.

        Floats become whole numbers. As long as no sum of them can reach 2**53, every sum of them is exact, in any
        order; else they are summed as integers of 128 bits. How they are summed never changes the sum.
        """
        grid, dtype = self.plan.parts[0].piece.grid, self.dtype
        most = grid.largest * max(rows, 1)
        if dtype.is_float():
            return lambda slot: _float_steps(pl.col(f"value{slot}"), grid, exact=most < 1 << 53)
        if dtype in _SHORT and not grid.exponent and most < LIMIT:
            return lambda slot: pl.col(f"value{slot}").cast(pl.Int64).clip(grid.low, grid.high)
        return lambda slot: _integer_steps(slot, pl.Int8() if dtype == pl.Boolean else dtype, grid)


def _float_steps(score: pl.Expr, grid: Grid, *, exact: bool) -> pl.Expr:
    whole = (score.cast(pl.Float64) * 2.0**-grid.exponent + 0.5).floor().clip(float(grid.low), float(grid.high))
    whole = whole.fill_nan(0.0)
    return whole if exact else whole.cast(pl.Int64).cast(pl.Int128)


def _integer_steps(slot: int, dtype: pl.DataType, grid: Grid) -> pl.Expr:
    column = ValueColumn(place=slot, low=grid.low, high=grid.high, exponent=grid.exponent)
    number = value_codes(column, dtype, 0)
    return pl.when(number >= grid.low).then(number).otherwise(0).cast(pl.Int128)
