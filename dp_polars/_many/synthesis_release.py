"""From a plan to synthetic rows: reserve, read, make the distribution, commit; rows follow from what was committed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.polars.rows import PrivateRows
from dp_polars._many.domain import Domain, DomainColumn
from dp_polars._many.mwem import synthetic_weights
from dp_polars._many.online_release import bounded_histogram
from dp_polars._many.synthesis_plan import SynthesisPlan
from dp_polars._release.charge import release_once
from dp_polars._sampling import SYSTEM_BITS, BitSource
from dp_polars._session.ledger import Entry
from dp_polars._session.releases import Release
from dp_polars._session.session import Session

PROBABILITY, ROWS, SIZE = "probability", "synthetic_rows", "noisy_size"
RESERVED = (PROBABILITY, ROWS, SIZE)

MAX_ROWS = 10**7


class Synthesis:
    """Synthetic rows and the distribution behind them. Made by `synthesize`.

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
        """The domain's columns (of bins the lower edge) and the `probability` of each cell."""
        return self._release.frame.drop(ROWS, SIZE)

    @property
    def size(self) -> int:
        """The noisy number of rows in the domain, at least 1."""
        return int(self._release.frame[SIZE][0])

    @cached_property
    def frame(self) -> pl.DataFrame:
        """Synthetic rows with the names and types of the private frame's columns, as many as `size`, at most 10**7.

        Values of bins are spread evenly over their bin. The rows are in the order of the domain's cells.
        """
        counts = self._release.frame[ROWS].to_numpy()
        return synthetic_rows(self._domain, np.repeat(np.arange(len(counts)), counts))

    @property
    def entry(self) -> Entry:
        """The release's row in the ledger, with its price."""
        return self._release.entry

    @property
    def stored(self) -> bool:
        """Whether it was released earlier and found again, which cost nothing."""
        return self._release.stored

    def __repr__(self) -> str:
        return f"<dp.Synthesis of {', '.join(self._domain.names)}: about {self.size:,} rows>"


def run_synthesis(
    plan: SynthesisPlan, rows: PrivateRows, session: Session, *, name: Callable[[], bytes], fresh: bool
) -> Synthesis:
    """Return the stored release of a question on a source, or charge the plan's price and make one."""

    def make() -> tuple[pl.DataFrame, SynthesisPlan]:
        histogram = bounded_histogram(rows, plan.unit, plan.domain, plan.max_rows, SYSTEM_BITS)
        size, weights = synthetic_weights(histogram, plan, SYSTEM_BITS)
        return _released(plan.domain, size, weights.ravel(), SYSTEM_BITS), plan

    release = release_once(session, plan.cost, plan.label(), name=name, fresh=fresh, make=make)
    return Synthesis(plan.domain, release)


def _released(domain: Domain, size: int, weights: NDArray[np.float64], source: BitSource) -> pl.DataFrame:
    probabilities = weights / weights.sum()
    return domain.frame().with_columns(
        pl.Series(PROBABILITY, probabilities),
        pl.Series(ROWS, whole_rows(probabilities, min(size, MAX_ROWS), source)),
        pl.lit(size, pl.Int64).alias(SIZE),
    )


def whole_rows(probabilities: NDArray[np.float64], size: int, source: BitSource) -> NDArray[np.int64]:
    """Return whole numbers of rows that sum to `size`, each within 1 of its share and right on average.

    What is left after rounding down is drawn systematically over the cells in random order: in their own order, cells
    that repeat with the step of the draw would all get a row or none.
    """
    share = probabilities * size
    counts = np.floor(share)
    order = np.argsort(source.words(len(share), np.uint64), kind="stable")
    rest = np.cumsum((share - counts)[order])
    offset = int(source.words(1, np.uint64)[0]) / 2**64
    missing = size - int(counts.sum())
    if missing:
        points = (np.arange(missing) + offset) * (rest[-1] / missing)
        places = np.minimum(np.searchsorted(rest, points, side="right"), len(share) - 1)
        np.add.at(counts, order[places], 1)
    return counts.astype(np.int64)


def synthetic_rows(domain: Domain, cells: NDArray[Any]) -> pl.DataFrame:
    """Return a row for each cell in the types of the private frame."""
    places = np.unravel_index(cells, domain.dims)
    columns = []
    for number, (column, place) in enumerate(zip(domain.columns, places, strict=True)):
        if column.edges:
            columns.append(_inside(column, place, _even(len(cells), number)))
        else:
            columns.append(column.values.gather(place).cast(column.dtype))
    return pl.DataFrame(columns)


def _even(rows: int, number: int) -> NDArray[np.float64]:
    """Return numbers that fill [0, 1) evenly, a sequence of its own for each column: multiples of a square root."""
    roots = np.sqrt([2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71])
    spread: NDArray[np.float64] = (0.5 + np.arange(rows) * roots[number % len(roots)]) % 1.0
    return spread


def _inside(column: DomainColumn, place: NDArray[Any], part: NDArray[np.float64]) -> pl.Series:
    """Return values inside of bins, of the column's type."""
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
