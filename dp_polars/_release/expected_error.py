"""The expected error of answers that depend on the data, for a group of a size that the user names.

The error of a mean, a variance or a correlation depends on how many rows a group has, and a little on their values. So
it is computed for a made-up group: `rows` rows of different units, whose values are spread evenly between the bounds
(two columns are independent). The engine aggregates these rows, the noise of the plan is added, and the aggregate turns
the noisy numbers into answers, exactly as it does for a release. The noise is not random: its distribution is
represented by 4,096 evenly spread points, so the same plan always has the same expected error.

Nothing here reads private rows or draws noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._aggregates.values import Value
from dp_polars._engines.polars.scan import polars_rows
from dp_polars._engines.registry import engine_for
from dp_polars._engines.request import BoundedRequest
from dp_polars._expressions.tree import stored
from dp_polars._numbers import boundary
from dp_polars._plan.plan import Measurement, Plan, plan_of
from dp_polars._plan.query import Query
from dp_polars._plan.spend import Noise
from dp_polars._plan.statistics import CompiledAggregate
from dp_polars._release.noisy_numbers import NoisyNumbers
from dp_polars._session.terms import Terms
from dp_polars.errors import InvalidParameterError

_POINTS = 4096
_MOST_ROWS = 100_000  # rows that are made up; sums over more rows are scaled
_LARGEST_GROUP = 10**9  # sums over more rows might not fit into 64 bits
_GOLDEN = (math.sqrt(5) - 1) / 2
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)

Floats = NDArray[np.float64]


def with_group_size(plan: Plan, rows: int) -> Plan:
    """Return a plan that knows the expected errors of all its answers in a group of this many rows."""
    if rows > _LARGEST_GROUP:
        raise InvalidParameterError(f"if_rows= is the number of rows in a group, at most {_LARGEST_GROUP:,}.")
    if plan.estimates:
        raise InvalidParameterError(
            "if_rows= needs caps and bounds that are known in advance, because they decide the noise. Give them "
            "instead of 'auto'."
        )
    if plan.query.rollup:
        raise InvalidParameterError(
            "if_rows= can't be combined with rollup=True, whose totals have groups of many sizes."
        )
    open_ = [compiled for compiled in plan.compiled if plan.expected_error_of(compiled) is None]
    found: list[tuple[str, tuple[float, ...]]] = []
    if open_:
        exact = _made_up(plan, rows)
        noisy = _with_noise(exact, plan)
        for compiled in open_:
            found += _errors(compiled, plan, exact, noisy, rows)
    return replace(plan, if_rows=rows, errors_if_rows=tuple(found))


def plan_within(query: Query, terms: Terms, rows: int) -> Plan:
    """Return the plan with the smallest spend whose expected error in a group of this many rows is the wanted one."""
    wanted, confidence = query.spend.within, query.spend.confidence
    if wanted is None or len(query.aggregates) != 1:
        raise InvalidParameterError(
            "within= is the wanted error of one answer. For several answers, say epsilon= or share= instead."
        )
    most = float(terms.rho_allowed if terms.epsilon is None else terms.epsilon)

    def planned(amount: float) -> Plan:
        spent = Fraction(repr(amount))
        spend = replace(query.spend, within=None)
        spend = replace(spend, rho=spent) if terms.epsilon is None else replace(spend, epsilon=spent)
        return with_group_size(plan_of(replace(query, spend=spend), terms), rows)

    def holds(amount: float) -> bool:
        error = planned(amount).expected_error(confidence)
        return error is not None and error <= wanted

    if not holds(most):
        least = planned(most).expected_error(confidence)
        reached = "" if least is None else f" It would be about {least:.3g}."
        raise InvalidParameterError(
            f"Even the whole budget of the session does not bring the expected error in a group of {rows:,} rows "
            f"within {float(wanted):g}.{reached} Use tighter bounds or smaller caps, or accept a larger error."
        )
    return planned(boundary(holds, inside=most, outside=most * 1e-4, tolerance=1e-3, geometric=True))


# ---------------------------------------------------------------------- a made-up group


def _made_up(plan: Plan, rows: int) -> pl.DataFrame:
    """Return the exact statistics of a made-up group, in one row."""
    height = min(rows, _MOST_ROWS)
    columns = {f"unit{place}": pl.Series(np.arange(height)) for place in range(len(plan.query.unit))}
    columns |= {f"value{place}": _spread(value, height, place) for place, value in enumerate(plan.columns)}
    frame = pl.DataFrame(columns or {"row": pl.Series(np.arange(height))})
    lanes = tuple(replace(lane, cells=None) for lane in plan.lanes)
    request = BoundedRequest(units=len(plan.query.unit), keys=0, max_groups=None, domain=None, lanes=lanes)
    made_up = polars_rows(frame.lazy())
    groups = engine_for(made_up).aggregate(made_up, request).groups
    return groups.select(pl.all().cast(pl.Float64) * (rows / height))


def _spread(value: Value, height: int, place: int) -> pl.Series:
    """Return values that are spread evenly between the bounds, in an order that makes two columns independent."""
    share = (np.arange(height) + 0.5) / height
    if place:
        share = share[np.argsort((np.arange(height) * (_GOLDEN * place)) % 1)]
    if value.bounds is None:  # only told apart, or counted
        return pl.Series(np.arange(height))
    low, high = float(value.lower), float(value.upper)
    numbers = low + share * (high - low)
    if value.dtype.is_float():
        return pl.Series(numbers)
    whole = np.clip(np.round(numbers), low, high).astype(np.int64)
    return pl.Series(whole) if value.dtype == pl.Boolean else stored(whole.tolist(), value.dtype)


def _with_noise(exact: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """Return the statistics of the made-up group with evenly spread points of the noise, one row per point."""
    dimension = itertools.count()
    found = []
    for measurement, names in _noisy_columns(plan):
        if measurement.noise is None:
            continue
        columns = [
            np.rint(exact[name].item() + _quantiles(measurement.noise, next(dimension))).astype(np.int64)
            for name in names
        ]
        joined = np.stack(columns, axis=1) if measurement.statistic.columns else columns[0]
        found.append(pl.Series(measurement.name, joined))
    return pl.DataFrame(found)


def _without_noise(exact: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    found = []
    for measurement, names in _noisy_columns(plan):
        if measurement.noise is not None:
            numbers = np.array([[round(exact[name].item()) for name in names]], np.int64)
            found.append(pl.Series(measurement.name, numbers if measurement.statistic.columns else numbers[0]))
    return pl.DataFrame(found)


def _noisy_columns(plan: Plan) -> Iterator[tuple[Measurement, tuple[str, ...]]]:
    """Yield the measurements that are sums, each with the columns that it is computed from."""
    for measurement in plan.measurements:
        if measurement.statistic.source in ("sum", "basis"):
            yield measurement, measurement.statistic.columns or (measurement.name,)


def _quantiles(noise: Noise, dimension: int) -> Floats:
    """Return evenly spread points of a noise distribution. Different dimensions are in independent orders."""
    step = math.sqrt(_PRIMES[dimension % len(_PRIMES)]) % 1
    share = np.clip(((np.arange(_POINTS) + 1) * step) % 1, 0.25 / _POINTS, 1 - 0.25 / _POINTS)
    if noise.mechanism == "laplace":
        off = share - 0.5
        laplace: Floats = -float(noise.parameter) * np.sign(off) * np.log1p(-2 * np.abs(off))
        return laplace
    normal = NormalDist(0, math.sqrt(noise.parameter))
    return np.array([normal.inv_cdf(probability) for probability in share.tolist()])


# ---------------------------------------------------------------------- errors of answers


def _errors(
    compiled: CompiledAggregate, plan: Plan, exact: pl.DataFrame, noisy: pl.DataFrame, rows: int
) -> list[tuple[str, tuple[float, ...]]]:
    """Return the errors of an answer at evenly spread points of its distribution, in rising order, by name."""
    aggregate = compiled.aggregate
    if "values" in compiled.statistics:
        return [(aggregate.name, _choice_errors(compiled, plan, rows))]
    truth = aggregate.estimate(NoisyNumbers(_without_noise(exact, plan), compiled, plan))
    answers = aggregate.estimate(NoisyNumbers(noisy, compiled, plan))
    if isinstance(answers.dtype, pl.Struct):
        pairs = [(name, truth.struct.field(name), answers.struct.field(name)) for name in answers.struct.fields]
    else:
        pairs = [(aggregate.name, truth, answers)]
    found = []
    for name, exact_answer, noised in pairs:
        off = (
            (noised.cast(pl.Float64) - exact_answer.cast(pl.Float64).item())
            .abs()
            .fill_null(math.inf)
            .fill_nan(math.inf)
        )
        found.append((name, tuple(off.sort().to_list())))
    return found


def _choice_errors(compiled: CompiledAggregate, plan: Plan, rows: int) -> tuple[float, ...]:
    """Return the errors of quantiles of evenly spread values, at evenly spread points, in rising order.

    If n values are spread evenly, a candidate at the place p between the bounds has the score -n |p - q|, so the choice
    has a truncated Laplace distribution around q. An extreme aims t rows inside (see `_release.quantiles`). Several
    quantiles are chosen level by level; at worst, their errors add up.
    """
    measurement = plan.measurement(compiled.statistics["values"])
    statistic, value = measurement.statistic, compiled.aggregate.values[0]
    width = float((value.upper - value.lower) * value.unit)
    rate = float(measurement.epsilon) / (2 * statistic.max_rows) * rows
    levels = len(statistic.targets).bit_length()
    worst: Floats = np.zeros(_POINTS)
    misses = 1 - (np.arange(_POINTS) + 0.5) / _POINTS
    for target in statistic.targets:
        if target in (0, 1):
            points = statistic.grid.high - statistic.grid.low + 1
            inside = (math.log(points) + 5) / rate
            off = np.minimum(inside + np.log(1 / (2 * misses)).clip(0) / rate, 1.0)
        else:
            off = _distances(rate / float(max(target, 1 - target)), float(target), misses)
        worst = np.maximum(worst, off)
    errors: list[float] = (np.minimum(worst * levels, 1.0) * width).tolist()
    return tuple(errors)


def _distances(rate: float, quantile: float, misses: Floats) -> Floats:
    """Return how far a truncated Laplace distribution on [0, 1] around a quantile strays, except with each `miss`.

    A distance x up to the nearer end is exceeded on both sides, with mass 2 e**(-rate x) minus what lies beyond the
    ends. A larger distance is exceeded on one side only.
    """
    near, far = sorted((quantile, 1 - quantile))
    beyond_near, beyond_far = math.exp(-rate * near), math.exp(-rate * far)
    mass = misses * (2 - beyond_near - beyond_far)
    both: Floats = -np.log((mass + beyond_near + beyond_far) / 2) / rate
    single: Floats = -np.log(mass + beyond_far) / rate
    return np.where(both <= near, both, single).clip(0, far)
