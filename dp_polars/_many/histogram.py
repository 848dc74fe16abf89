"""The exact histogram of private rows over a domain. It is private, and only the two release modules use it.

How one unit changes it. A unit keeps at most `max_rows` rows, each in one cell. With r = max_rows * t for t units, the
number of rows in any set of cells moves by at most r: if units are added or removed, by as many rows as they have; if
they are replaced, from one number between 0 and r to another.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.polars.kept_rows import kept_rows
from dp_polars._engines.polars.rows import PrivateRows, collect, rows_of
from dp_polars._many.domain import CELL, Domain
from dp_polars._sampling import BitSource


def bounded_histogram(
    rows: PrivateRows | pl.LazyFrame, unit: tuple[str, ...], domain: Domain, max_rows: int, source: BitSource
) -> NDArray[np.int64]:
    """Return how many kept rows each cell has. Call it after the charge.

    Rows outside the domain are left out first, then each unit keeps at most `max_rows` of its rows.
    """
    scan = rows_of(rows).scan([*unit, *(name for name in domain.names if name not in unit)])
    scan.begin()
    units = [pl.col(name).alias(f"unit{place}") for place, name in enumerate(unit)]
    cells = collect(scan.frame.select(*units, domain.cell()))
    scan.check(cells.height)
    inside = cells.filter(pl.col(CELL).is_not_null())
    kept = kept_rows(inside, [f"unit{place}" for place in range(len(unit))], source, max_rows=max_rows)
    return histogram_of(inside.filter(kept)[CELL], domain)


def histogram_of(cells: pl.Series, domain: Domain) -> NDArray[np.int64]:
    """Return how often each cell occurs, exactly."""
    counts = np.bincount(cells.to_numpy(), minlength=domain.size)
    return counts.astype(np.int64).reshape(domain.dims)
