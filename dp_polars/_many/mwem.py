"""MWEM on an exact histogram: noisy counts of partitions, chosen where the hypothesis is worst.

Private numbers are used in three places, each with its noise: the number of rows, the scores of a choice, the counts
of what was chosen. Everything else is post-processing of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_polars._many.synthesis_plan import SynthesisPlan, mean_error
from dp_polars._plan.spend import Noise
from dp_polars._sampling import BitSource, discrete_gaussian, discrete_laplace
from dp_polars.mechanisms._grid import add_saturating
from dp_polars.mechanisms._multiplicative_weights import Floats, Hypothesis, Partition
from dp_polars.mechanisms._small_database import choose_small_database
from dp_polars.mechanisms.selection import choose_exponential

Numbers = NDArray[np.int64]

_WORK = 100_000_000  # cells that are touched between two rounds
_MOST_PASSES = 20
_LAST_WORK, _LAST_PASSES = 3 * _WORK, 200  # after the last round


def synthetic_weights(histogram: Numbers, plan: SynthesisPlan, source: BitSource) -> tuple[int, Floats]:
    """Return the noisy number of rows and how they spread over the cells."""
    total = np.array([histogram.sum(dtype=np.int64)])
    size = _Size(int(noisy(total, plan.size_noise, source)[0]), plan.size_noise.deviation**2)
    if plan.method == "small_database":
        size.number = min(size.number, float(2**61 // plan.elements))  # products of it fit 64 bits
        return size.whole, _small_database(histogram, size.whole, plan, source)
    return _mwem(histogram, size, plan, source)


@dataclass
class _Size:
    """The noisy number of rows and its variance; every measured partition tells it once more."""

    number: float
    variance: float

    def learn(self, counts: Numbers, noise: Noise) -> None:
        own = len(counts) * noise.deviation**2
        self.number += (float(counts.sum(dtype=np.float64)) - self.number) * self.variance / (self.variance + own)
        self.variance *= own / (self.variance + own)

    @property
    def whole(self) -> int:
        return max(1, round(self.number))


def noisy(counts: Numbers, noise: Noise, source: BitSource) -> Numbers:
    """Return exact counts with the noise that a plan bought."""
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
    """Return how much a point of score counts in the exponent of a choice."""
    return epsilon / (2 * plan.sensitivity.l1)


def scores_of(
    exact: Sequence[Numbers], hypothesis: Hypothesis, workload: Sequence[Partition], size: int, noise: Noise
) -> Numbers:
    """Return how far the hypothesis is off in each partition, less the noise that measuring it would leave."""
    off = np.empty(len(workload), np.int64)
    for place, (partition, counts) in enumerate(zip(workload, exact, strict=True)):
        guess = np.rint(partition.totals(hypothesis.weights) * size).astype(np.int64)
        off[place] = np.abs(counts - guess).sum() - round(mean_error(noise) * partition.cells)
    return off


def _passes(hypothesis: Hypothesis, measured: Sequence[Any], work: int = _WORK, most: int = _MOST_PASSES) -> int:
    """Return how often the measurements are gone through: less often for large domains."""
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
    """Return the exact answers of a workload's counts, and the cells of each: one row for each count."""
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
