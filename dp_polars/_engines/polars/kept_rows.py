"""Which rows of each unit count, chosen once: for questions that look at whole rows again and again.

What one unit can change: it keeps at most `max_groups` groups and `max_rows` rows in each, by random numbers that are
drawn for each of its rows (and groups) and depend on nothing. So the rows that other units keep are the same, in
distribution and given those numbers, whether the unit is there or not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from dp_polars._engines.polars.whole_numbers import one_form
from dp_polars._sampling import BitSource

# Names that no column of a user has.
_DRAWN = "\0drawn"
_CHOSEN = "\0chosen"
_MOST_ROWS = 1 << 62  # no frame has more


def kept_rows(
    frame: pl.DataFrame,
    units: Sequence[str],
    source: BitSource,
    *,
    max_rows: int | None,
    keys: Sequence[str] = (),
    max_groups: int | None = None,
) -> pl.Series:
    """Return which rows count: at most `max_rows` of each unit in a group, in at most `max_groups` groups.

    None: no cap. Rows without a unit (null in a unit column) don't count. Without unit columns every row is a unit of
    its own, and counts.
    """
    if not units:
        return pl.repeat(True, frame.height, dtype=pl.Boolean, eager=True)
    floats = [name for name in (*units, *keys) if frame.schema[name].is_float()]
    frame = frame.with_columns(one_form(pl.col(name), frame.schema[name]).alias(name) for name in floats)
    kept = ~pl.any_horizontal(pl.col(name).is_null() for name in units)
    if max_groups is not None and keys:
        pairs = _drawn(frame.select(*units, *keys).unique(), source)
        chosen = pairs.filter(_first(units, max_groups)).drop(_DRAWN).with_columns(pl.lit(True).alias(_CHOSEN))
        # Each row meets at most one pair, so the rows and their order stay.
        frame = frame.select(*units, *keys).join(
            chosen, on=[*units, *keys], how="left", nulls_equal=True, maintain_order="left"
        )
        kept &= pl.col(_CHOSEN).fill_null(False)
    if max_rows is not None:
        frame = _drawn(frame, source)
        kept &= _first([*units, *keys], max_rows)
    return frame.select(kept.alias("kept")).to_series()


def _drawn(frame: pl.DataFrame, source: BitSource) -> pl.DataFrame:
    return frame.with_columns(pl.Series(_DRAWN, source.words(frame.height, np.uint64)))


def _first(by: Sequence[str], most: int) -> pl.Expr:
    """Whether a row is among the first `most` of its kind, in the order of what was drawn."""
    return pl.col(_DRAWN).rank("ordinal").over(by) <= min(most, _MOST_ROWS)
