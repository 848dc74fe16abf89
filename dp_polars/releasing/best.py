"""Scores of many candidates over the rows that count, without ever pairing all rows with all candidates.

Rows that count are chosen once; what they have in the columns of the score is counted (equal rows have equal scores);
then candidates are put into a few slots at a time, as constants, and their scores summed over blocks of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from dp_polars.engines.polars.codes import collect
from dp_polars.engines.polars.kept import kept_rows
from dp_polars.engines.polars.values import whole_numbers
from dp_polars.engines.request import LIMIT, BoundedRequest, Column, Exact
from dp_polars.planning.plan import Plan
from dp_polars.sampling import SYSTEM_BITS

OWN = "dp_polars_"
"""How the names of columns begin that are not the user's."""

SLOTS = 32
"""How many candidates are scored at a time."""

_BLOCK = 1 << 17
_GROUP, _WEIGHT = f"{OWN}group", f"{OWN}weight"


def slot_name(slot: int) -> str:
    """Return the name under which a score knows its candidate."""
    return f"{OWN}candidate{slot}_"


@dataclass(frozen=True)
class Scores:
    """An engine for one question: the scores of all candidates in all groups, exactly."""

    plan: Plan
    candidates: pl.Series
    scores: Sequence[pl.Expr]
    dtype: pl.DataType

    def __call__(self, rows: pl.LazyFrame, request: BoundedRequest) -> Exact:
        """Return the score of each pair of a group and a candidate, in the order of the public keys."""
        if request.domain is None:
            raise ValueError("candidates are public")
        groups = self.plan.query.selection.groups if self.plan.query.selection is not None else None
        frame = self._kept(collect(rows), request, groups)
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
        frame = frame.with_columns(
            _one_zero(name, frame.schema[name]) for name in cs.expand_selector(frame, cs.float())
        )
        plain = not any(dtype.is_nested() or dtype == pl.Object for dtype in frame.schema.values())
        if plain and len(self.candidates) > SLOTS:
            return frame.group_by(frame.columns).agg(pl.len().cast(pl.Int64).alias(_WEIGHT))
        return frame.with_columns(pl.lit(1, dtype=pl.Int64).alias(_WEIGHT))

    def _summed(self, frame: pl.DataFrame, groups: int) -> NDArray[Any]:
        """Return a table of scores: a row for each group, a column for each candidate; of Python's integers."""
        piece = self.plan.parts[0].piece
        rows = int(frame[_WEIGHT].sum())
        wide = pl.Int64 if piece.grid.largest * max(rows, 1) < LIMIT else pl.Int128
        table = np.zeros((groups, len(self.candidates)), dtype=object)
        for start in range(0, len(self.candidates), SLOTS):
            some = self.candidates[start : start + SLOTS]
            constants = [
                pl.lit(value, dtype=some.dtype).alias(slot_name(slot)) for slot, value in enumerate(some.to_list())
            ]
            sums = [self._sum(slot, wide) for slot in range(len(some))]
            scored = [self.scores[slot].alias(f"value{slot}") for slot in range(len(some))]
            scored = [item.cast(pl.Int8) if self.dtype == pl.Boolean else item for item in scored]
            for block in frame.iter_slices(_BLOCK):
                found = block.lazy().with_columns(constants).select(_GROUP, _WEIGHT, *scored)
                added = found.group_by(_GROUP).agg(sums) if groups > 1 else found.select(pl.lit(0).alias(_GROUP), *sums)
                total = added.collect()
                places = total[_GROUP].to_numpy()
                for slot in range(len(some)):
                    table[places, start + slot] += np.array(total[f"sum{slot}"].to_list(), dtype=object)
        return table

    def _sum(self, slot: int, wide: Any) -> pl.Expr:
        grid = self.plan.parts[0].piece.grid
        column = Column(place=slot, low=grid.low, high=grid.high, exponent=grid.exponent)
        dtype = pl.Int8() if self.dtype == pl.Boolean else self.dtype
        number = whole_numbers(column, dtype, 0)
        steps = pl.when(number >= grid.low).then(number).otherwise(0).cast(wide)
        return (steps * pl.col(_WEIGHT).cast(wide)).sum().alias(f"sum{slot}")


def _one_zero(name: str, dtype: pl.DataType) -> pl.Expr:
    """Return floats with one zero and one NaN: equal rows are counted together, and 1/x tells the two zeros apart."""
    own = pl.col(name)
    zero, nan = (pl.lit(value, dtype=dtype) for value in (0.0, float("nan")))
    return pl.when(own == 0).then(zero).when(own.is_nan()).then(nan).otherwise(own).alias(name)
