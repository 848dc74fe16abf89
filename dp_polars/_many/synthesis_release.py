"""Synthetic rows after their charge: MWEM or the small database on the exact histogram of the rows.

Exact numbers are used in three places, each with its noise: the number of rows, the scores of a choice, and the counts
of what was chosen. Everything else is post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.rows import PrivateRows
from dp_polars._many.domain import Domain
from dp_polars._many.histogram import bounded_histogram
from dp_polars._many.synthesis_plan import SynthesisPlan, mean_error
from dp_polars._plan.spend import Noise
from dp_polars._release.charge import Identity, release_once
from dp_polars._sampling import SYSTEM_BITS, BitSource, discrete_gaussian, discrete_laplace
from dp_polars._session.releases import Release
from dp_polars._session.session import Session
from dp_polars.mechanisms._grid import add_saturating
from dp_polars.mechanisms._multiplicative_weights import Floats, Hypothesis, Partition
from dp_polars.mechanisms._small_database import choose_small_database
from dp_polars.mechanisms.selection import choose_exponential

PROBABILITY, ROWS, SIZE = "probability", "synthetic_rows", "noisy_size"
RESERVED = (PROBABILITY, ROWS, SIZE)
"""The columns of a release that are not columns of the domain."""

MAX_ROWS = 10**7

_WORK, _MOST_PASSES = 100_000_000, 20  # how many cells may be touched between two rounds, in how many passes
_LAST_WORK, _LAST_PASSES = 3 * _WORK, 200  # the same after the last round

Numbers = NDArray[np.int64]


def run_synthesis(
    plan: SynthesisPlan, rows: PrivateRows, session: Session, *, identity: Identity, fresh: bool
) -> Release:
    """Return the stored synthesis of a source, or charge the plan's price and make one."""

    def make() -> tuple[pl.DataFrame, SynthesisPlan]:
        histogram = bounded_histogram(rows, plan.unit, plan.domain, plan.max_rows, SYSTEM_BITS)
        size, weights = synthetic_weights(histogram, plan, SYSTEM_BITS)
        return _released(plan.domain, size, weights.ravel(), SYSTEM_BITS), plan

    return release_once(session, plan, identity=identity, fresh=fresh, make=make)


def _released(domain: Domain, size: int, weights: NDArray[np.float64], source: BitSource) -> pl.DataFrame:
    probabilities = weights / weights.sum()
    return domain.frame().with_columns(
        pl.Series(PROBABILITY, probabilities),
        pl.Series(ROWS, whole_rows(probabilities, min(size, MAX_ROWS), source)),
        pl.lit(size, pl.Int64).alias(SIZE),
    )


def whole_rows(probabilities: NDArray[np.float64], size: int, source: BitSource) -> NDArray[np.int64]:
    """Return whole numbers of rows that sum to `size`. Each is within 1 of its share, and equal to it on average.

    The rows that are left after rounding down are drawn systematically, over the cells in random order. In the order of
    the domain, cells that repeat with the step of the draw would all get a row, or none of them would.
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


# ---------------------------------------------------------------- the distribution


def synthetic_weights(histogram: Numbers, plan: SynthesisPlan, source: BitSource) -> tuple[int, Floats]:
    """Return the noisy number of rows and the weight of each cell."""
    total = np.array([histogram.sum(dtype=np.int64)])
    size = _Size(int(noisy(total, plan.size_noise, source)[0]), plan.size_noise.deviation**2)
    if plan.method == "small_database":
        size.number = min(size.number, float(2**61 // plan.elements))  # products of it fit 64 bits
        return size.whole, _small_database(histogram, size.whole, plan, source)
    return _mwem(histogram, size, plan, source)


@dataclass
class _Size:
    """The noisy number of rows and its variance. Every measured partition is another measurement of it."""

    number: float
    variance: float

    def learn(self, counts: Numbers, noise: Noise) -> None:
        noise_variance = len(counts) * noise.deviation**2
        self.number += (
            (float(counts.sum(dtype=np.float64)) - self.number) * self.variance / (self.variance + noise_variance)
        )
        self.variance *= noise_variance / (self.variance + noise_variance)

    @property
    def whole(self) -> int:
        return max(1, round(self.number))


def noisy(counts: Numbers, noise: Noise, source: BitSource) -> Numbers:
    """Return exact counts plus the noise of the plan."""
    draw = discrete_laplace if noise.mechanism == "laplace" else discrete_gaussian
    return add_saturating(counts, draw(noise.parameter, counts.size, source))


def _mwem(histogram: Numbers, size: _Size, plan: SynthesisPlan, source: BitSource) -> tuple[int, Floats]:
    schedule = plan.schedule(size.whole)
    hypothesis = Hypothesis(plan.domain.dims)
    measured: list[tuple[Partition, Floats, float]] = []

    def measure(partition: Partition, noise: Noise) -> None:
        counts = noisy(partition.totals(histogram), noise, source)
        measured.append((partition, counts.astype(np.float64), mean_error(noise)))
        size.learn(counts, noise)

    if schedule.choice is None:
        for partition, noise in zip(plan.workload, schedule.rounds, strict=True):
            measure(partition, noise)
    else:
        for partition, noise in zip(plan.start, schedule.start, strict=True):
            measure(partition, noise)
        hypothesis.fit(measured, size.whole, _passes(hypothesis, measured))
        exact = [partition.totals(histogram) for partition in plan.workload]
        for noise in schedule.rounds:
            scores = scores_of(exact, hypothesis, plan.workload, size.whole, noise)
            rate = choice_rate(schedule.choice, plan)
            measure(plan.workload[choose_exponential(scores, rate, source)], noise)
            hypothesis.fit(measured, size.whole, _passes(hypothesis, measured))
    hypothesis.fit(measured, size.whole, _passes(hypothesis, measured, _LAST_WORK, _LAST_PASSES))
    return size.whole, hypothesis.weights


def choice_rate(epsilon: Fraction, plan: SynthesisPlan) -> Fraction:
    """Return the weight of one point of score in the exponent of a choice."""
    return epsilon / (2 * plan.sensitivity.l1)


def scores_of(
    exact: Sequence[Numbers], hypothesis: Hypothesis, workload: Sequence[Partition], size: int, noise: Noise
) -> Numbers:
    """Return how far the hypothesis is off in each partition, minus the error that measuring it would leave."""
    off = np.empty(len(workload), np.int64)
    for place, (partition, counts) in enumerate(zip(workload, exact, strict=True)):
        guess = np.rint(partition.totals(hypothesis.weights) * size).astype(np.int64)
        off[place] = np.abs(counts - guess).sum() - round(mean_error(noise) * partition.cells)
    return off


def _passes(hypothesis: Hypothesis, measured: Sequence[Any], work: int = _WORK, most: int = _MOST_PASSES) -> int:
    """Return in how many passes the measurements are learned: fewer for large domains."""
    touched = hypothesis.weights.size * max(1, len(measured))
    return max(1, min(work // touched, most))


def _small_database(histogram: Numbers, size: int, plan: SynthesisPlan, source: BitSource) -> Floats:
    counts, queries = small_queries(histogram, plan)
    chosen = choose_small_database(
        counts,
        queries,
        elements=plan.elements,
        size=size,
        reach=plan.reach,
        epsilon=plan.granted(1)[1].epsilon,
        source=source,
    )
    return chosen.reshape(plan.domain.dims) / plan.elements


def small_queries(histogram: Numbers, plan: SynthesisPlan) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return the exact counts of a workload, and for each count a row that says which cells it covers."""
    numbers = np.arange(plan.domain.size).reshape(plan.domain.dims)
    places = np.unravel_index(numbers.ravel(), plan.domain.dims)
    rows: list[NDArray[np.bool_]] = []
    for partition in plan.workload:
        labels = np.zeros(plan.domain.size, np.int64)
        if partition.axes:
            labels = np.ravel_multi_index([places[axis] for axis in partition.axes], partition.shape)
        if partition.packed is not None:
            rows.append(partition.mask.ravel()[labels])
        else:
            rows += [labels == part for part in range(partition.cells)]
    queries = np.array(rows)
    counts = np.array([histogram.ravel()[row].sum(dtype=np.int64) for row in rows], np.int64)
    return counts, queries
