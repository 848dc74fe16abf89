"""Many questions over a domain after one charge: the exact histogram behind a sparse vector, the public guess before.

The histogram is computed once; after that only whole numbers of it are compared or released, each with its noise.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.polars.kept_rows import kept_rows
from dp_polars._engines.polars.rows import PrivateRows, collect, rows_of
from dp_polars._many.domain import CELL, Domain, histogram_of
from dp_polars._many.online_plan import OnlinePlan
from dp_polars._release.charge import OpenQuestions, open_charged
from dp_polars._sampling import SYSTEM_BITS, BitSource, discrete_laplace
from dp_polars._session.exclusive_lock import Exclusive
from dp_polars._session.session import Session
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms._multiplicative_weights import Hypothesis, Partition, over
from dp_polars.mechanisms.sparse_vector import SparseVector

Mask = NDArray[np.bool_]

_WORK = 500_000  # cells that are touched once more after an update: none where the domain is larger
_PASSES = 10
_MOST_KEPT = 100  # measurements that are gone through again


@dataclass(frozen=True)
class OnlineAnswer:
    """The answer to one question.

    Attributes
    ----------
    count
        How many rows: measured with noise, or what the hypothesis says; between 0 and the noisy number of rows.
    fraction
        The same as a part of the noisy number of rows.
    free
        Whether it used none of the updates.
    checked
        Whether the data were compared with the hypothesis: no longer when the updates are used up.
    updates_left
        How many updates are left after it.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> people = dp.private(pl.DataFrame({"member": [True] * 9_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> answer = people.online_queries(["member"], alpha=0.1, max_updates=1, epsilon=1.0).ask(pl.col("member"))
    >>> answer.count > 8_000, answer.free, answer.updates_left
    (True, False, 0)
    """

    count: int
    fraction: float
    free: bool
    checked: bool
    updates_left: int


def bounded_histogram(
    rows: PrivateRows | pl.LazyFrame, unit: tuple[str, ...], domain: Domain, max_rows: int, source: BitSource
) -> NDArray[np.int64]:
    """Return how many kept rows each cell has; call it after the charge.

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


def open_online(plan: OnlinePlan, rows: PrivateRows, session: Session) -> OnlineStream:
    """Charge the whole price, read the rows once and return what answers from then on."""

    def make() -> tuple[pl.DataFrame, OnlineStream]:
        histogram = bounded_histogram(rows, plan.unit, plan.domain, plan.max_rows, SYSTEM_BITS)
        stream = OnlineStream(plan, histogram, SYSTEM_BITS)
        facts = {
            "cells": plan.domain.size,
            "max_updates": plan.max_updates,
            "alpha": float(plan.alpha),
            "size": stream.size,
        }
        return pl.DataFrame([facts]), stream

    release, stream = open_charged(session, plan.cost, plan.label(), plan, make)
    stream.questions = OpenQuestions(session, release)
    return stream


class OnlineStream:
    """An exact histogram, a sparse vector before it, and the hypothesis that answers."""

    def __init__(self, plan: OnlinePlan, histogram: NDArray[np.int64], source: BitSource) -> None:
        self.plan, self._histogram, self._source = plan, histogram, source
        noise = int(discrete_laplace(plan.size_scale, 1, source)[0])
        self.size = max(1, int(histogram.sum(dtype=np.int64)) + noise)
        self._hypothesis = Hypothesis(plan.domain.dims)
        self._vector = SparseVector(plan.scales, plan.alpha * self.size, Fraction(plan.sensitivity), source)
        self._measured: list[tuple[Partition, float]] = []
        self._lock = threading.Lock()
        self._guard = Exclusive(None)  # knows a forked copy
        self.questions: OpenQuestions | None = None

    @property
    def updates_left(self) -> int:
        """How many updates are left."""
        return self._vector.hits_left

    def weights(self) -> NDArray[np.float64]:
        """Return a copy of the hypothesis."""
        with self._lock:
            return self._hypothesis.weights.copy()

    def refuse_copies(self) -> None:
        """Refuse to be asked by a forked process; called before Polars runs, which hangs in one."""
        if self._guard.inherited():
            raise InvalidParameterError(
                "These online queries were opened by the process that this one was forked from, which may still ask "
                "them: two copies would answer for the price of one. Ask there, or open others here."
            )

    def ask(self, axes: tuple[int, ...], mask: Mask) -> OnlineAnswer:
        """Answer how many rows lie in the cells where a predicate over `axes` is true."""
        self.refuse_copies()
        with self._lock:
            if not self._vector.hits_left:  # nothing private is asked any more
                return self._answer(round(self._hypothesis.share(axes, mask) * self.size), free=True, checked=False)
            if self.questions is None:  # in tests, which bring their own bits and rows of nobody
                return self._compared(axes, mask)
            return self.questions.ask(1, lambda: self._compared(axes, mask))

    def _compared(self, axes: tuple[int, ...], mask: Mask) -> OnlineAnswer:
        """Answer by the hypothesis, or where the data are far from it by a noisy count, from which it learns."""
        guess = self._hypothesis.share(axes, mask) * self.size
        exact = int((over(self._histogram, axes) * mask).sum(dtype=np.int64))
        if self._vector.ask(abs(exact - round(guess))) is None:
            return self._answer(round(guess), free=True, checked=True)
        measured = exact + int(discrete_laplace(self.plan.value_scale, 1, self._source)[0])
        count = max(0, min(measured, self.size))
        self._hypothesis.learn(axes, mask, (count - guess) / self.size)
        self._learn_again(Partition.of_predicate(axes, mask), count / self.size)
        return self._answer(count, free=False, checked=True)

    def _learn_again(self, partition: Partition, share: float) -> None:
        """Go through what was measured before, where the hypothesis moved away from it by more than the noise.

        That is post-processing of released counts, and each such step makes the hypothesis better, as the first did.
        """
        self._measured = [*self._measured[1 - _MOST_KEPT :], (partition, share)]
        noise, left = float(self.plan.value_scale) / self.size, _WORK // self._hypothesis.weights.size
        left, moved = min(left, _PASSES * len(self._measured)), True  # measurements that disagree would go on forever
        while moved and left > 0:
            moved = False
            for own, wanted in self._measured[-left:]:
                left -= 1
                mask = own.mask
                gap = wanted - self._hypothesis.share(own.axes, mask)
                if abs(gap) > noise:
                    self._hypothesis.learn(own.axes, mask, gap)
                    moved = True

    def _answer(self, count: int, *, free: bool, checked: bool) -> OnlineAnswer:
        count = max(0, min(count, self.size))
        return OnlineAnswer(count, count / self.size, free, checked, self._vector.hits_left)

    def __reduce__(self) -> NoReturn:
        raise InvalidParameterError("Online queries can't be copied: two copies would answer for the price of one.")
