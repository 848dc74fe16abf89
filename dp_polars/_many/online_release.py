"""Online queries after their charge: a public hypothesis answers, and a sparse vector compares it with the rows.

The exact histogram is computed once. After that, only counts of it are compared or released, each with its noise.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.rows import PrivateRows
from dp_polars._many.histogram import bounded_histogram
from dp_polars._many.online_plan import OnlinePlan
from dp_polars._release.charge import OpenQuestions, open_charged
from dp_polars._sampling import SYSTEM_BITS, BitSource, discrete_laplace
from dp_polars._session.exclusive_lock import Exclusive
from dp_polars._session.session import Session
from dp_polars.errors import InvalidParameterError
from dp_polars.mechanisms._multiplicative_weights import Hypothesis, Partition, over
from dp_polars.mechanisms.sparse_vector import SparseVector

Mask = NDArray[np.bool_]

_WORK = 500_000  # how many cells are updated again after an update; none if the domain is larger
_PASSES = 10
_MOST_KEPT = 100  # how many of the latest measurements are learned again


@dataclass(frozen=True)
class OnlineAnswer:
    """The answer to one question.

    Attributes
    ----------
    count
        The number of rows, measured with noise or taken from the hypothesis. It lies between 0 and the noisy number of
        all rows.
    fraction
        The same number as a fraction of the noisy number of all rows.
    free
        Whether the answer used none of the updates.
    checked
        Whether the hypothesis was compared with the data. That ends when the updates are used up.
    updates_left
        How many updates are left after this answer.

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


def open_online(plan: OnlinePlan, rows: PrivateRows, session: Session) -> OnlineStream:
    """Charge the whole price, read the rows once, and return what answers from then on."""

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
    stream.plan, stream.questions = release.plan, OpenQuestions(session, release)
    return stream


class OnlineStream:
    """Open online queries: the exact histogram, the sparse vector that guards it, and the hypothesis that answers."""

    def __init__(self, plan: OnlinePlan, histogram: NDArray[np.int64], source: BitSource) -> None:
        self.plan, self._histogram, self._source = plan, histogram, source
        noise = int(discrete_laplace(plan.size_scale, 1, source)[0])
        self.size = max(1, int(histogram.sum(dtype=np.int64)) + noise)
        self._hypothesis = Hypothesis(plan.domain.dims)
        self._vector = SparseVector(plan.scales, plan.alpha * self.size, Fraction(plan.sensitivity), source)
        self._measured: list[tuple[Partition, float]] = []
        self._lock = threading.Lock()
        self._guard = Exclusive(None)  # recognizes a forked copy
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
        """Refuse questions from a forked process. Call this before Polars runs, which would hang there."""
        if self._guard.inherited():
            raise InvalidParameterError(
                "These online queries were opened by the process that this one was forked from, which may still ask "
                "them: two copies would answer for the price of one. Ask there, or open new ones here."
            )

    def ask(self, axes: tuple[int, ...], mask: Mask) -> OnlineAnswer:
        """Answer how many rows lie in the cells where a predicate over `axes` is true."""
        self.refuse_copies()
        with self._lock:
            if not self._vector.hits_left:  # from now on nothing private is asked
                return self._answer(round(self._hypothesis.share(axes, mask) * self.size), free=True, checked=False)
            if self.questions is None:  # only in tests, which bring their own random bits and made-up rows
                return self._compared(axes, mask)
            return self.questions.ask(1, lambda: self._compared(axes, mask))

    def _compared(self, axes: tuple[int, ...], mask: Mask) -> OnlineAnswer:
        """Answer by the hypothesis or, if the data are far from it, by a noisy count from which it learns."""
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
        """Learn earlier measurements again where the hypothesis has moved away from them by more than the noise.

        This is post-processing of released counts. Each step improves the hypothesis as the first one did.
        """
        self._measured = [*self._measured[1 - _MOST_KEPT :], (partition, share)]
        noise, left = float(self.plan.value_scale) / self.size, _WORK // self._hypothesis.weights.size
        # Measurements that contradict each other would never settle, so the number of steps is limited.
        left, moved = min(left, _PASSES * len(self._measured)), True
        while moved and left > 0:
            moved = False
            for measured, wanted in self._measured[-left:]:
                left -= 1
                mask = measured.mask
                gap = wanted - self._hypothesis.share(measured.axes, mask)
                if abs(gap) > noise:
                    self._hypothesis.learn(measured.axes, mask, gap)
                    moved = True

    def _answer(self, count: int, *, free: bool, checked: bool) -> OnlineAnswer:
        count = max(0, min(count, self.size))
        return OnlineAnswer(count, count / self.size, free, checked, self._vector.hits_left)

    def __reduce__(self) -> NoReturn:
        raise InvalidParameterError("Online queries can't be copied: two copies would answer for the price of one.")
