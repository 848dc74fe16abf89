"""Predicates over a domain: an expression becomes the set of cells where it is true. No private row is read."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.polars.rows import Program
from dp_polars._expressions.check import CheckedExpression, check_expression
from dp_polars._frame.options import ExpressionLike
from dp_polars._many.domain import Domain
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms.multiplicative_weights import Partition

Mask = NDArray[np.bool_]

_MOST_KEPT = 4_000_000  # how many values of domain frames are kept for later questions
_MOST_BITS = 2_000_000_000  # the size of all masks of a workload


class Predicates:
    """Evaluates predicates over a domain, each over the product of only those columns that it names."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._whole = domain.frame()
        self._frames: dict[tuple[int, ...], pl.DataFrame] = {}
        self._lock = threading.Lock()

    def check(self, predicate: Any, what: str) -> CheckedExpression:
        """Return a checked condition over the domain's columns, or refuse it."""
        checked = check_expression(predicate, schema=self._domain.schema, what=what)
        if checked.dtype != pl.Boolean:
            raise InvalidParameterError(f"{what} takes a condition: an expression that is true or false in each row.")
        return checked

    def cells(self, checked: CheckedExpression) -> tuple[tuple[int, ...], Mask]:
        """Return the columns that a condition reads, and where it is true over their product. Null is not true."""
        axes = tuple(axis for axis, name in enumerate(self._domain.names) if name in checked.columns)
        true = Program([checked.tree]).columns(self._frame(axes))[0].fill_null(False).to_numpy()
        return axes, true.reshape([self._domain.dims[axis] for axis in axes])

    def _frame(self, axes: tuple[int, ...]) -> pl.DataFrame:
        if not axes:  # a constant condition
            return pl.DataFrame({"cell": [0]})
        if len(axes) == len(self._domain.dims):
            return self._whole
        with self._lock:
            found = self._frames.get(axes)
            if found is None:
                found = self._domain.frame(axes)
                kept = sum(frame.height * frame.width for frame in self._frames.values())
                if kept + found.height * found.width > _MOST_KEPT:
                    self._frames.clear()
                self._frames[axes] = found
            return found


def workload_of(domain: Domain, queries: Sequence[ExpressionLike]) -> tuple[tuple[Partition, ...], tuple[str, ...]]:
    """Return conditions as partitions of the domain, and their canonical texts."""
    if isinstance(queries, str | pl.Expr) or not isinstance(queries, Sequence) or not queries:
        raise InvalidParameterError("queries= is a list of conditions over the domain: [pl.col('age') < 18, ...].")
    predicates, bits = Predicates(domain), 0
    partitions: list[Partition] = []
    texts: list[str] = []
    for query in queries:
        checked = predicates.check(query, "queries")
        axes, mask = predicates.cells(checked)
        bits += mask.size
        if bits > _MOST_BITS:
            raise InvalidParameterError(
                f"Only the first {len(partitions):,} of queries= fit into memory over this domain. Give fewer "
                "conditions, or conditions on fewer columns."
            )
        partitions.append(Partition.of_predicate(axes, mask))
        texts.append(checked.canonical)
    return tuple(partitions), tuple(texts)
