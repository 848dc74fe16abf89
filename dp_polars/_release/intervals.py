"""Confidence limits of what an answer comes from: one noisy number, a linear combination, a ratio, or several sums.

This is post-processing. It uses noisy numbers that are released, and the plan, which is public. Everything that an
aggregate measures is a linear combination of independent noises (`Combination`), so there are four kinds of limits:

- One noise: the exact quantile of the discrete noise.
- A combination of noises, such as a count or a sum beside a mean: the quantile of their convolution.
- A ratio, the mean m of values with the noisy sum S and the noisy count N: all m within the bounds for which S - m N is
  no further from 0 than the noise of S - m N, with its own quantile for each m (Fieller 1954, for discrete noise).
- Several sums at once, for variances and correlations: limits that hold together, by Bonferroni's inequality.

A chosen value has limits of its rank, which `_plan.ranks` derives, or ends that were chosen in the same way.

Discovered groups are shown only if they have a large noisy count. If the answer uses the statistic that decided this,
its limits hold given that the group is shown. For the count itself, this is the law of the noisy count given that it
reached the threshold. For other answers, a small part of the miss pays for a lower limit of the count, which bounds the
probability p that the group is shown from below. What happens with probability at most p * miss happens with
probability at most `miss` given that the group is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import ceil, floor

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._aggregates.base import Ends
from dp_polars._aggregates.quantiles import counts_rows_of
from dp_polars._aggregates.values import Value
from dp_polars._engines.request import LIMIT
from dp_polars._plan.plan import Measurement, Plan
from dp_polars._plan.ranks import rank_error, rank_ranges
from dp_polars._plan.statistics import CompiledAggregate
from dp_polars._release.noisy_numbers import as_answer, in_units
from dp_polars.mechanisms._noise_tails import (
    NoiseLaw,
    combined_errors,
    limits_above_threshold,
    lower_limit_above_threshold,
)

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

_FOR_COUNT = 1 / 20  # the part of the miss that pays for a lower limit of the count that decided
_FOR_WIDTH = 1e-3  # the part of the miss of a ratio that pays for the width of the cells in which it is solved
_CELLS = 32  # cells of a ratio between its bounds, ...
_FINER = 16  # ... and how many parts a cell has in the second round, if an interval ends there
_CHUNK = 512  # groups that are solved together
_ROUNDING = 1e-14  # relative rounding error of a combination of floats
# The probability that a group is shown is rounded down to one of these so that few quantiles are needed. 0 means that
# nothing is known but the bounds.
_SHOWN = np.array([0.0, *(10.0**-n for n in range(200, 0, -1)), 0.2, 0.5, 0.8, 0.9, 0.97, 0.99, 0.999, 0.9999])


@dataclass(frozen=True, repr=False, eq=False)
class ConfidenceLimits:
    """The limits of one aggregate, which implements `dp_polars._aggregates.base.Limits`."""

    frame: pl.DataFrame
    compiled: CompiledAggregate
    plan: Plan
    confidence: float

    # ------------------------------------------------------------------ linear answers

    def number(self) -> Ends:
        """Return the limits of the only statistic, in the type of the answer. Integers are rounded outwards."""
        (role,) = self.compiled.statistics
        measurement = self._measurement(role)
        dtype = self.compiled.aggregate.answer_type
        steps = self.frame[measurement.name]
        if self._decider is not None:
            low, high = self._limits_of_decider(1 - self.confidence)
            return (
                in_units(pl.Series(low), measurement.grid, dtype, rounding=-1),
                in_units(pl.Series(high), measurement.grid, dtype, rounding=1),
            )
        error = measurement.error(self.confidence)
        return tuple(  # type: ignore[return-value]
            in_units(steps, measurement.grid, dtype, sign * error, rounding=sign) for sign in (-1, 1)
        )

    def count(self) -> Ends:
        """Return the limits of the number of rows."""
        if self._is_single:
            return self.number()
        if self._decider is not None:
            whole = self._decider.statistic.whole
            low, high = (ends / whole for ends in self._limits_of_decider(1 - self.confidence))
            return _series((np.maximum(low, 1.0), high))  # a group without rows is never shown
        return _series(self._combined(self._noises.rows, 1 - self.confidence))

    def total(self) -> Ends:
        """Return the limits of the sum of the value, in stored units."""
        if self._is_single:
            return self.number()
        centre = float(self._noises.centre)
        return _series(self._combined(self._noises.sums["x"] + centre * self._noises.rows, 1 - self.confidence))

    # ------------------------------------------------------------------ ratios

    def mean(self) -> Ends:
        """Return the limits of the mean, in stored units and within the bounds."""
        (value,) = self.compiled.aggregate.values
        noises, miss = self._noises, 1 - self.confidence
        lower, upper = float(value.lower - noises.centre), float(value.upper - noises.centre)
        total, rows = noises.of(noises.sums["x"]), noises.of(noises.rows)
        estimate = np.clip(total / np.maximum(rows, 1), lower, upper)
        low, high = estimate.copy(), estimate.copy()
        levels, level = self._levels()
        edges = np.linspace(lower, upper, _CELLS + 1)
        for finer in (1, _FINER):
            edges = _split(edges, np.concatenate([low, high]), finer)
            bounds = self._ratio_errors(edges, miss, levels)
            for some in _chunks(level, low):
                # What the first round left out stays out, so most cells need no second look.
                within = slice(0, len(bounds)) if finer == 1 else _cells(edges, low[some].min(), high[some].max())
                nearby = edges[within.start : within.stop + 1]
                found = _ratio_limits(total[some], rows[some], nearby, bounds[within, level[some[0]]])
                low[some], high[some] = np.minimum(estimate[some], found[0]), np.maximum(estimate[some], found[1])
        # Values are rounded to the grid, which moves their mean by at most half a step.
        slack = self._half_step(value) + _ROUNDING * (abs(lower) + abs(upper) + abs(float(noises.centre)))
        first, last = (
            np.clip(ends + float(noises.centre), float(value.lower), float(value.upper))
            for ends in (low - slack, high + slack)
        )
        return pl.Series(first, dtype=pl.Float64), pl.Series(last, dtype=pl.Float64)

    def _half_step(self, value: Value) -> float:
        """Return the farthest that rounding to the grid moves a value, which is 0 for most integers."""
        place = [known.expression for known in self.plan.columns].index(value.expression)
        columns = [column for lane in self.plan.lanes for column in lane.columns]
        exponent = max(column.exponent for column in columns if column.place == place and column.kind == "number")
        return 0.0 if value.integers and exponent <= 0 else 2.0 ** (exponent - 1)

    def _ratio_errors(self, edges: Floats, miss: float, levels: Floats) -> Floats:
        """Return bounds on the noise of S - m N, for all m in each cell between edges: a row per cell.

        It differs from the noise at the middle of the cell by at most half the width times the noise of N.
        """
        noises = self._noises
        middle = (edges[1:] + edges[:-1]) / 2
        coefficients = noises.sums["x"] - middle[:, np.newaxis] * noises.rows
        at_middle = self._errors(coefficients, miss * (1 - _FOR_WIDTH), levels)
        of_rows = self._errors(noises.rows[np.newaxis], miss * _FOR_WIDTH, levels)
        return at_middle + np.diff(edges)[:, np.newaxis] / 2 * (1 + 1e-9) * of_rows

    # ------------------------------------------------------------------ several sums at once

    def centre(self, letter: str) -> float:
        """Return the centre that a value is measured from."""
        return float(self._measurement(letter).grid.offset)

    def sums(self, *products: str) -> dict[str, tuple[Floats, Floats]]:
        """Return limits of the rows ("rows") and of sums of products, from the centres, that hold together."""
        noises = self._noises
        each = (1 - self.confidence) / (1 + len(products))
        wanted = {"rows": noises.rows, **{product: noises.sums[product] for product in products}}
        return {name: self._combined(coefficients, each) for name, coefficients in wanted.items()}

    def _combined(self, coefficients: Floats, miss: float) -> tuple[Floats, Floats]:
        """Return limits of a linear combination, which miss it with probability at most `miss`."""
        noises = self._noises
        levels, level = self._levels()
        errors = self._errors(coefficients[np.newaxis], miss, levels)
        found = noises.of(coefficients)
        error = errors[0][level] + _ROUNDING * (np.abs(noises.numbers) @ np.abs(coefficients))
        return found - error, found + error

    def _errors(self, coefficients: Floats, miss: float, levels: Floats) -> Floats:
        """Return the errors of linear combinations, with a column for each probability of being shown."""
        left = miss if self._decider is None else miss * (1 - _FOR_COUNT)
        found = np.full((len(coefficients), len(levels)), np.inf)
        known = levels > 0
        if known.any():
            found[:, known] = combined_errors(self._noises.laws, coefficients, (left * levels[known]).tolist())
        return found

    # ------------------------------------------------------------------ choices

    def rank_error(self) -> pl.Series:
        """Return the largest number of rows that the rank of the only chosen value may be off by."""
        measurement = self._measurement("values")
        off = rank_error(measurement.statistic, measurement.epsilon, 1 - self.confidence)
        return pl.repeat(off, self.frame.height, dtype=pl.Int64, eager=True)

    def ranks(self, quantile: Fraction) -> Ends:
        """Return the limits of the rank of the value that was chosen for a quantile, as fractions of the rows.

        Half of the miss is for the choice, and half for a lower limit of the number of rows, from a noisy count in the
        same question. The choice does not depend on the noise of that count.
        """
        measurement, miss = self._measurement("values"), (1 - self.confidence) / 2
        found = rank_ranges(measurement.statistic, measurement.epsilon, miss)[quantile]
        rows = np.maximum(self._least_rows(1 - miss), 1e-9)
        low = np.clip(float(found.low) - found.below / rows, 0, 1)
        high = np.clip(float(found.high) + found.above / rows, 0, 1)
        return _series((low, high))

    def _least_rows(self, confidence: float) -> Floats:
        """Return a lower limit of the number of rows with the value, from an answer that counts them."""
        (value,) = self.compiled.aggregate.values
        counts = [other for other in self.plan.compiled if counts_rows_of(other.aggregate, value)]
        # The order of the answers must not matter.
        counting = min(counts, key=lambda other: ("basis" in other.statistics, sorted(other.statistics.values())))
        low, _ = replace(self, compiled=counting, confidence=confidence).count()
        return low.cast(pl.Float64).to_numpy()

    def chosen(self, quantile: Fraction) -> Ends:
        """Return the ends that were chosen for the interval of a quantile, in the type of its value.

        The answer was chosen separately and may lie outside of them; it is then the end itself. All of them are chosen
        among values that are rounded to the grid. If rounding moves values, each end is moved by one step.
        """
        answer, measurement = self._measurement("values"), self._measurement("ends")
        targets = measurement.statistic.targets
        places = (targets.index(quantile), targets.index(quantile) + len(targets))
        chosen, low, high = pl.col("answer"), pl.col("low"), pl.col("high")
        steps = pl.DataFrame(
            [
                self.frame[answer.name].list.get(answer.statistic.targets.index(quantile)).alias("answer"),
                *(
                    self.frame[measurement.name].list.get(place).alias(end)
                    for place, end in zip(places, ("low", "high"), strict=True)
                ),
            ]
        ).select(pl.min_horizontal(chosen, low).alias("low"), pl.max_horizontal(chosen, high).alias("high"))
        (value,) = self.compiled.aggregate.values
        if value.integers and measurement.grid.exponent <= 0:
            return tuple(in_units(steps[end], measurement.grid, value.answer_type) for end in ("low", "high"))  # type: ignore[return-value]
        whole, kind = value.integers, pl.Int128 if value.integers else pl.Float64
        lower, upper = (floor(value.lower), ceil(value.upper)) if whole else (float(value.lower), float(value.upper))
        found = []
        for end, sign in (("low", -1), ("high", 1)):
            moved = in_units(steps[end], measurement.grid, kind(), sign).to_frame("end")
            within = moved.select(pl.col("end").clip(pl.lit(lower, dtype=kind), pl.lit(upper, dtype=kind)))
            found.append(as_answer(within.to_series(), value.answer_type))
        return found[0], found[1]

    # ------------------------------------------------------------------ discovered groups

    @cached_property
    def _decider(self) -> Measurement | None:
        """The statistic that decided which groups are shown, if this answer uses it."""
        found = self.plan.discovery
        if found is None or found.counted is None or found.threshold is None:
            return None
        if found.counted not in self.compiled.statistics.values():
            return None
        return self.plan.measurement(found.counted)

    def _decided(self) -> tuple[NoiseLaw, Numbers, int]:
        """Return the law of the noise that decided, the numbers that it was added to, and the threshold."""
        found, decider = self.plan.discovery, self._decider
        if found is None or found.threshold is None or decider is None or decider.noise is None:
            raise ValueError("the answer doesn't use a noisy count that decided which groups are shown")
        law = NoiseLaw(decider.noise.mechanism, decider.noise.parameter, max(1, len(decider.statistic.columns)))
        # The sums of a basis are added as Python integers, which never overflow.
        together = _table(self.frame, decider).astype(object).sum(axis=1)
        return law, np.clip(together, -LIMIT, LIMIT).astype(np.int64), found.threshold

    def _limits_of_decider(self, miss: float) -> tuple[Numbers, Numbers]:
        law, shown, threshold = self._decided()
        return limits_above_threshold(law, shown, threshold, miss)

    @cached_property
    def _shown(self) -> Floats | None:
        """A lower limit of the probability that a group is shown, rounded down. None if no noise of the answer decided.

        The limit is wrong with probability at most `_FOR_COUNT` times the miss, given that the group is shown.
        """
        if self._decider is None:
            return None
        law, shown, threshold = self._decided()
        least = lower_limit_above_threshold(law, shown, threshold, (1 - self.confidence) * _FOR_COUNT)
        chance = np.exp(law.log_tail(threshold - least))
        chance *= np.where(chance < 1e-3, 1 - 1e-2, 1 - 1e-6)  # far tails of a Gaussian are not exact
        found: Floats = _SHOWN[np.searchsorted(_SHOWN, chance, side="right") - 1]
        return found

    def _levels(self) -> tuple[Floats, Numbers]:
        """Return the different probabilities of being shown, and the place of each group among them."""
        if self._shown is None or not len(self._shown):
            return np.ones(1), np.zeros(self.frame.height, np.int64)
        levels, level = np.unique(self._shown, return_inverse=True)
        return levels, level.astype(np.int64)

    # ------------------------------------------------------------------ the noisy numbers

    @cached_property
    def _is_single(self) -> bool:
        """Whether the answer is one noisy number instead of a function of several."""
        return len(self.compiled.statistics) == 1 and "basis" not in self.compiled.statistics

    def _measurement(self, role: str) -> Measurement:
        return self.plan.measurement(self.compiled.statistics[role])

    @cached_property
    def _noises(self) -> Combination:
        if "basis" in self.compiled.statistics:
            return _basis(self.frame, self._measurement("basis"))
        return _split_form(self.frame, {role: self._measurement(role) for role in self.compiled.statistics})


@dataclass(frozen=True, repr=False, eq=False)
class Combination:
    """Noisy numbers with independent noises, and what they add up to.

    Attributes
    ----------
    numbers
        A row for each group, with a column for each noisy number, in steps.
    laws
        The law of each noise.
    rows
        The coefficients that give the number of rows.
    sums
        The coefficients that give the sum of each product of values, measured from their centres, in stored units.
    centre
        The centre of the first value.
    """

    numbers: Floats
    laws: tuple[NoiseLaw, ...]
    rows: Floats
    sums: dict[str, Floats]
    centre: float

    def of(self, coefficients: Floats) -> Floats:
        """Return the linear combination in each group."""
        found: Floats = self.numbers @ coefficients
        return found


def _basis(frame: pl.DataFrame, measurement: Measurement) -> Combination:
    """Return the sums of C(d, i) t**i (1 - t)**(d - i), where t in [0, 1] is the place of a value in its bounds."""
    grid, whole = measurement.grid, float(measurement.statistic.whole)
    degree = len(measurement.statistic.columns) - 1
    step, width = float(grid.step), float(grid.high - grid.low)
    rows = np.ones(degree + 1)
    place = np.arange(degree + 1) / degree
    sums = {"x": (width * place + grid.low * rows) * step}
    if degree == 2:
        squares = np.array([0.0, 0.0, 1.0])
        sums["xx"] = (width**2 * squares + 2 * grid.low * width * place + grid.low**2 * rows) * step**2
    return Combination(
        numbers=_table(frame, measurement).astype(np.float64),
        laws=(_law(measurement),) * (degree + 1),
        rows=rows / whole,
        sums={product: coefficients / whole for product, coefficients in sums.items()},
        centre=float(grid.offset),
    )


def _split_form(frame: pl.DataFrame, measurements: dict[str, Measurement]) -> Combination:
    """Return centred sums and a count, each with its own noise. A product is measured from the middle of its range."""
    roles = list(measurements)
    unit_vectors = {role: np.eye(len(roles))[place] for place, role in enumerate(roles)}
    rows = unit_vectors["rows"] * float(measurements["rows"].grid.step)
    sums = {}
    for role, measurement in measurements.items():
        if role != "rows":
            middle = float(measurement.grid.offset) if len(role) > 1 else 0.0
            sums[role] = unit_vectors[role] * float(measurement.grid.step) + rows * middle
    return Combination(
        numbers=np.concatenate([_table(frame, measurement) for measurement in measurements.values()], axis=1).astype(
            np.float64
        ),
        laws=tuple(_law(measurement) for measurement in measurements.values()),
        rows=rows,
        sums=sums,
        centre=float(measurements["x"].grid.offset),
    )


def _law(measurement: Measurement) -> NoiseLaw:
    if measurement.noise is None:
        raise ValueError("a choice has no noise")
    return NoiseLaw(measurement.noise.mechanism, measurement.noise.parameter)


def _table(frame: pl.DataFrame, measurement: Measurement) -> Numbers:
    """Return the noisy numbers of a statistic: a row for each group."""
    shape = (frame.height, max(1, len(measurement.statistic.columns)))
    return frame[measurement.name].to_numpy().reshape(shape).astype(np.int64)


def _series(ends: tuple[Floats, Floats]) -> Ends:
    return pl.Series(ends[0], dtype=pl.Float64), pl.Series(ends[1], dtype=pl.Float64)


def _chunks(level: Numbers, ends: Floats) -> Iterator[Numbers]:
    """Yield the places of groups of the same level, whose intervals end near each other."""
    order = np.lexsort((ends, level))
    starts = np.flatnonzero(np.diff(level[order], prepend=-1))
    for begin, end in pairwise([*starts.tolist(), len(order)]):
        for start in range(begin, end, _CHUNK):
            yield order[start : min(end, start + _CHUNK)]


def _cells(edges: Floats, low: float, high: float) -> slice:
    """Return the places of the cells between `low` and `high`."""
    first, last = (np.searchsorted(edges, low, side="left") - 1, np.searchsorted(edges, high, side="right"))
    return slice(max(int(first), 0), min(int(last), len(edges) - 1))


def _split(edges: Floats, ends: Floats, parts: int) -> Floats:
    """Split each cell in which an interval ends into this many cells, so that the bound is tighter there."""
    if parts == 1:
        return edges
    hit = np.unique(np.clip(np.searchsorted(edges, ends, side="right") - 1, 0, len(edges) - 2))
    finer = [np.linspace(edges[cell], edges[cell + 1], parts + 1)[1:-1] for cell in hit]
    return np.sort(np.concatenate([edges, *finer]))


def _ratio_limits(total: Floats, rows: Floats, edges: Floats, bounds: Floats) -> tuple[Floats, Floats]:
    """Return the smallest and the largest m with |total - m rows| within the bound of the cell that m lies in."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.stack([(total[:, np.newaxis] + sign * bounds) / rows[:, np.newaxis] for sign in (-1, 1)])
    always = np.abs(total)[:, np.newaxis] <= bounds
    none = (rows == 0)[:, np.newaxis]
    low = np.where(none, np.where(always, -np.inf, np.inf), ends.min(axis=0))
    high = np.where(none, np.where(always, np.inf, -np.inf), ends.max(axis=0))
    low, high = np.maximum(low, edges[:-1]), np.minimum(high, edges[1:])
    kept = low <= high
    return np.where(kept, low, np.inf).min(axis=1), np.where(kept, high, -np.inf).max(axis=1)
