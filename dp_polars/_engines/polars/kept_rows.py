"""A random choice of the rows that each unit keeps, made once for features that use whole rows again and again.

What one unit can change: each unit keeps at most `max_groups` groups and `max_rows` rows in each. Random
numbers that are drawn for each of its rows (and groups), and depend on nothing, decide which. So the rows that other
units keep have the same distribution whether the unit is there or not, and are the same given those random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from dp_polars._engines.polars.value_codes import one_form
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
    """Return a mask of rows: at most `max_rows` per unit and group, in at most `max_groups` groups per unit.

    None means no cap. Rows without a unit (null in a unit column) are not kept. Without unit columns, every row is a
    unit of its own and is kept.
    """
    if not units:
        return pl.repeat(True, frame.height, dtype=pl.Boolean, eager=True)
    floats = [name for name in (*units, *keys) if frame.schema[name].is_float()]
    frame = frame.with_columns(one_form(pl.col(name), frame.schema[name]).alias(name) for name in floats)
    kept = ~pl.any_horizontal(pl.col(name).is_null() for name in units)
    if max_groups is not None and keys:
        pairs = _drawn(frame.select(*units, *keys).unique(), source)
        chosen = pairs.filter(_first(units, max_groups)).drop(_DRAWN).with_columns(pl.lit(True).alias(_CHOSEN))
        # Each row matches at most one pair, so the rows and their order do not change.
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
    """Return whether a row is among the first `most` of its kind, in the order of the drawn numbers."""
    return pl.col(_DRAWN).rank("ordinal").over(by) <= min(most, _MOST_ROWS)
