"""`dp.Synthesis`: what `synthesize` returns. Its rows are post-processing of what was released."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._many.domain import Domain, DomainColumn
from dp_polars._many.synthesis_release import ROWS, SIZE
from dp_polars._session.ledger import Entry
from dp_polars._session.release_record import Release


class Synthesis:
    """Synthetic rows and the distribution that they were drawn from. Made by `synthesize`.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> people = dp.private(pl.DataFrame({"member": [True, False] * 500}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> made = people.synthesize(["member"], epsilon=0.5)
    >>> made.frame.height == made.size, made.distribution.columns, made.entry.cost, made.stored
    (True, ['member', 'probability'], <dp.Cost epsilon 0.5, rho 0.122459>, False)
    """

    def __init__(self, domain: Domain, release: Release) -> None:
        self._domain, self._release = domain, release

    @property
    def distribution(self) -> pl.DataFrame:
        """The domain's columns (the lower edge for bins) and the `probability` of each cell."""
        return self._release.frame.drop(ROWS, SIZE)

    @property
    def size(self) -> int:
        """The noisy number of rows in the domain, at least 1."""
        return int(self._release.frame[SIZE][0])

    @cached_property
    def frame(self) -> pl.DataFrame:
        """Synthetic rows with the names and types of the private columns; as many as `size`, but at most 10**7.

        Values in a bin are spread evenly over it. The rows are in the order of the domain's cells.
        """
        counts = self._release.frame[ROWS].to_numpy()
        return synthetic_rows(self._domain, np.repeat(np.arange(len(counts)), counts))

    @property
    def entry(self) -> Entry:
        """The entry of the release in the ledger, with its price."""
        return self._release.entry

    @property
    def stored(self) -> bool:
        """Whether it was released earlier and found again, which costs nothing."""
        return self._release.stored

    def __repr__(self) -> str:
        return f"<dp.Synthesis of {', '.join(self._domain.names)}: about {self.size:,} rows>"


def synthetic_rows(domain: Domain, cells: NDArray[Any]) -> pl.DataFrame:
    """Return a row for each of `cells`, in the types of the private frame."""
    places = np.unravel_index(cells, domain.dims)
    columns = []
    for number, (column, place) in enumerate(zip(domain.columns, places, strict=True)):
        if column.edges:
            columns.append(_inside(column, place, _even(len(cells), number)))
        else:
            columns.append(column.values.gather(place).cast(column.dtype))
    return pl.DataFrame(columns)


def _even(rows: int, number: int) -> NDArray[np.float64]:
    """Return numbers that fill [0, 1) evenly: multiples of a square root, a different one for each column."""
    roots = np.sqrt([2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71])
    spread: NDArray[np.float64] = (0.5 + np.arange(rows) * roots[number % len(roots)]) % 1.0
    return spread


def _inside(column: DomainColumn, place: NDArray[Any], part: NDArray[np.float64]) -> pl.Series:
    """Return values of the column's type inside the bins."""
    if column.dtype.is_float():
        edges = np.array(column.float_edges)
        exact: Any = np.float32 if column.dtype == pl.Float32 else np.float64
        values = (edges[place] + part * (edges[place + 1] - edges[place])).astype(exact)
        below = np.nextafter(edges[1:].astype(exact), exact(-np.inf))  # an upper edge belongs to the next bin
        return pl.Series(column.name, np.minimum(values, below[place])).cast(column.dtype)
    whole = np.array(column.whole_edges, dtype=np.int64)
    width = whole[place + 1] - whole[place]
    steps = np.minimum((part * width).astype(np.int64), width - 1)
    stored = pl.Series(column.name, whole[place] + steps, dtype=pl.Int64)
    if column.dtype.is_integer():
        kind: Any = column.dtype
        low, high = pl.select(low=kind.min(), high=kind.max()).row(0)
        stored = stored.clip(max(low, -(2**63)), min(high, 2**63 - 1))
    return stored.cast(column.dtype)
