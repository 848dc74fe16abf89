"""Checks of the guarantee as functions: each passes on a sound package and names what is broken in a faulty one.

They are the kinds of evidence that the tests of each package give, made small and exact: neighbours against the
declared sensitivity, prices and scales against numbers worked out by hand, laws of noise with fixed bits, the order of
charge and read. Where a check compares frequencies its bits are fixed, so it has no false alarms.
"""

import contextlib
import itertools
import math
import os
import random
import subprocess
import sys
from fractions import Fraction

import duckdb
import numpy as np
import polars as pl
import pytest
from scipy import stats

import dp_polars as dp
from dp_polars._aggregates.cut import CutByCap
from dp_polars._choices.plan import Selection, choice_plan
from dp_polars._engines.polars import engine, run_bounded
from dp_polars._engines.polars import lowering as lowerings
from dp_polars._engines.polars.program import Program, RowCountError
from dp_polars._engines.polars.scan import PolarsSource, polars_rows, read_rows
from dp_polars._engines.polars.unit_steps import without_unit_steps
from dp_polars._engines.request import BoundedRequest, Exact, GroupSum, Lane, ValueColumn
from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.spark.engine import SparkEngine
from dp_polars._engines.spark.source import SparkSource
from dp_polars._engines.unit_steps import AddWindows, GroupRows, JoinRows, unit_rows
from dp_polars._expressions import OPERATIONS, Column, Constant, apply
from dp_polars._expressions.unit_functions import SortColumn, WindowFrame, unit_value
from dp_polars._plan import plan as plans
from dp_polars._plan.query import Spend
from dp_polars._plan.spend import Noise
from dp_polars._release import noise as noises
from dp_polars._release.quantiles import _Descent, choose_values
from dp_polars._release.run import request_of
from dp_polars._session.cost import Cost
from dp_polars.mechanisms.sparse_vector import SparseVector, sparse_scales
from tests.bits import SeededBits
from tests.engines.spark.server import shared_session
from tests.expressions import test_evidence as evidence
from tests.mechanisms.test_quantiles import law_of
from tests.plan.queries import aggregate, query
from tests.plan.test_neighbours import difference, moved_cells, named_vector
from tests.session.test_filter_by_enumeration import terms_of
from tests.statistics import binomial_fits, chi_square_fits


def exact_answers(plan, frame):
    """Return the exact bounded aggregates of a plan, with a fixed salt."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.secrets, "randbits", lambda _: 20_261_116)
        return run_bounded(frame.lazy(), request_of(plan))


class Broken(AssertionError):  # noqa: N818 - what is said of the guarantee
    """What a check found: it says which part of the guarantee doesn't hold."""


def require(holds, says):
    if not holds:
        raise Broken(says)


HALF = Spend(epsilon=Fraction(1, 2))
DOMAIN = pl.DataFrame({"k": ["a", "b", "c", "d", None]}, schema={"k": pl.String})
KEYS = DOMAIN["k"].to_list()
SCHEMA = {"unit0": pl.Int64, "key0": pl.String, "value0": pl.Int64, "value1": pl.Int64}

# ---------------------------------------------------------------------- neighbours

# Everybody has more groups and more rows than count, so that caps bind for all of them.
CROWD = [(unit, key, (unit + n) % 11, n % 5) for unit in range(100, 112) for key in KEYS for n in range(4)]
HEAVY = {unit: [(unit, key, 50, 40) for key in KEYS for _ in range(9)] for unit in (1, 2)}
SPREAD = {unit: [(unit, key, 11 + n, 0) for key in KEYS for n in range(9)] for unit in (1, 2)}
OPPOSITE = {unit: [(unit, key, -50, -40) for key in KEYS for _ in range(9)] for unit in (3, 4)}

ACROSS = {"max_groups": None, "max_rows": 7, "across": True}
NEIGHBOURS = {
    "count": query("count", domain=DOMAIN),
    "count of units": query("count_units", domain=DOMAIN),
    "sum": query("sum", domain=DOMAIN, bounds=(-4, 10)),
    "clipped totals": query("sum", domain=DOMAIN, bounds=(-4, 10), per="unit"),
    "mean": query("mean", domain=DOMAIN, bounds=(0, 10)),
    "variance": query("var", domain=DOMAIN, bounds=(0, 10)),
    "covariance": query("cov", keys=(), bounds=(0, 10)),
    "distinct values": query("n_unique", domain=DOMAIN),
    "histogram": query(aggregates=(aggregate("histogram", edges=(0, 3, 6, 60)),), domain=DOMAIN),
    "median": query("median", domain=DOMAIN, bounds=(0, 10)),
    "count with one cap": query("count", domain=DOMAIN, **ACROSS),
    "sum with one cap": query("sum", domain=DOMAIN, bounds=(-4, 10), **ACROSS),
    "distinct values with one cap": query("n_unique", domain=DOMAIN, **ACROSS),
    "median with one cap": query("median", domain=DOMAIN, bounds=(0, 10), **ACROSS),
    "units cut by one cap": query(aggregates=(aggregate("count"), CutByCap(name="cut")), domain=DOMAIN, **ACROSS),
    "count of discovered groups with both caps": query("count", max_rows=2, across=True),
    "count of discovered groups": query("count"),
    "sum of rows that are units": query("sum", keys=(), bounds=(0, 10), unit=()),
}
PROTECTED = [{}, {"adjacency": "replace"}, {"group_size": 2}]


def frame_of(rows):
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def neighbours_differ_by_at_most_the_sensitivity():
    for (name, asked), protected in itertools.product(NEIGHBOURS.items(), PROTECTED):
        _compare_neighbours(name, asked, protected)


def _compare_neighbours(name, asked, protected):
    plan = plans.plan_of(asked, terms_of(1, 1e-6, **protected))
    size, swapped = protected.get("group_size", 1), "adjacency" in protected
    heavy = SPREAD if name.startswith("distinct values") else HEAVY
    if not asked.unit:
        heavy = {unit: rows[:1] for unit, rows in HEAVY.items()}
    leaving = [row for unit in (1, 2)[:size] for row in heavy[unit]]
    entering = OPPOSITE[3][: None if asked.unit else 1] if swapped else []
    values = [pl.col(f"value{'vw'.index(one.name)}").alias(f"value{i}") for i, one in enumerate(plan.columns)]
    columns = [*(["unit0"] if asked.unit else []), *(["key0"] if asked.keys else []), *values]
    tables = [exact_answers(plan, frame_of(CROWD + rows).select(columns)) for rows in (leaving, entering)]
    grouped = bool(asked.keys)
    for measurement in plan.measurements:
        if measurement.noise is None:
            cells = next(
                compiled.statistics["cells"]
                for compiled in plan.compiled
                if compiled.statistics.get("values") == measurement.name
            )
            moved = sum(moved_cells(*tables, cells, grouped))
            groups = 1 if asked.across else plan.bounds.max_groups
            most = (2 if swapped else 1) * size * measurement.statistic.max_rows * groups
        else:
            moved = np.abs(difference(*(named_vector(table, measurement, grouped) for table in tables))).sum()
            most = measurement.sensitivity.l1
        require(moved <= most, f"one unit moves the {name} ({protected or 'added'}) by {moved} steps, not by {most}")


# ---------------------------------------------------------------------- who counts, and where


def rows_without_a_unit_count_nowhere():
    for dtype, by_hash in ((pl.Int64, False), (pl.String, False), (pl.String, True)):
        asked = query("count", domain=DOMAIN, integer_unit=not by_hash)
        plan = plans.plan_of(asked, terms_of(1, 1e-6))
        units = [(0, "a"), (1, "b"), (2, "c")]
        tables = []
        for rows in (units, [*units, (None, "a"), (None, "d")]):
            frame = pl.DataFrame(rows, schema={"unit0": pl.Int64, "key0": pl.String}, orient="row")
            tables.append(exact_answers(plan, frame.with_columns(pl.col("unit0").cast(dtype))).groups)
        require(tables[0].equals(tables[1]), f"rows without a unit are counted ({dtype})")


def _kept_groups(salt, units):
    """Return which of its four groups each unit keeps under a cap of two."""
    frame = pl.DataFrame([(unit, key) for unit in units for key in "abcd"], schema=["unit0", "key0"], orient="row")
    kept = {}
    for unit in units:  # each unit's groups show in the difference that it makes
        tables = []
        for rows in (frame, frame.filter(pl.col("unit0") != unit)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(engine.secrets, "randbits", lambda _: salt)
                lane = Lane(sums=(GroupSum(name="units", of="units"),))
                asked = BoundedRequest(units=1, keys=1, max_groups=2, domain=None, lanes=(lane,))
                found = run_bounded(rows.lazy(), asked).groups
            tables.append(dict(found.select("key0", "units").rows()))
        kept[unit] = frozenset(key for key in "abcd" if tables[0].get(key, 0) != tables[1].get(key, 0))
    return kept


def units_keep_groups_at_random_and_by_themselves():
    draws = 60
    same, first = 0, 0
    for salt in range(1, draws + 1):
        kept = _kept_groups(salt * 0x9E3779B97F4A7C15 % 2**64, (7, 8))
        require(all(len(own) == 2 for own in kept.values()), "a unit does not keep two groups of its own")
        same += kept[7] == kept[8]
        first += "a" in kept[7]
    require(binomial_fits(same, draws, 1 / 6), f"two units keep the same groups {same} of {draws} times, not a sixth")
    require(binomial_fits(first, draws, 1 / 2), f"a unit keeps its first group {first} of {draws} times, not half")


def units_are_told_apart():
    """Delta pays 2**-39 for a hash of 128 bits. With 32 bits, about ten of 300,000 units would share theirs."""
    count = 300_000
    frame = pl.DataFrame({"unit0": pl.Series(range(count)).cast(pl.String)})
    plan = plans.plan_of(query("count_units", keys=(), integer_unit=False), terms_of(1, 1e-6))
    require(plan.unit_delta >= Fraction(1, 2**39), "a hash of units is not paid for")
    require(plan.cost.delta >= plan.unit_delta, "a hash of units is not charged")
    found = exact_answers(plan, frame).groups["units"][0]
    require(found == count, f"{count - found} of {count:,} units are taken for others")


def equal_floats_are_one_value():
    frame = pl.DataFrame({"unit0": [0.0, -0.0, math.nan, -math.nan]})
    for asked in (query("count_units", keys=(), integer_unit=False), query("count_units", keys=())):
        plan = plans.plan_of(asked, terms_of(1, 1e-6))
        found = exact_answers(plan, frame).groups["units"][0]
        require(found == 2, f"zeros of two signs, or NaNs of two, are {found - 1} units")
    x, minus = Column("unit0", pl.Float64()), Constant(-1.0, pl.Float64())
    shows = [apply("cast", x, to=pl.String()), apply("pow", x, minus), apply("atan2", x, minus)]
    for one in Program(shows).columns(frame.head(2)):
        require(one.n_unique() == 1, "zeros of two signs are two values")


def sums_beyond_a_cap_lose_nothing():
    """A unit whose 20 rows hold 2 ones adds a half under a cap of 5, and a thousand such units add 500."""
    plan = plans.plan_of(query("sum", keys=(), bounds=(0, 1), max_rows=5), terms_of(1, 1e-6))
    rows = [(unit, int(n < 2)) for unit in range(1_000) for n in range(20)]
    exact = exact_answers(plan, pl.DataFrame(rows, schema=["unit0", "value0"], orient="row"))
    (measurement,) = plan.measurements
    found = float(exact.groups[measurement.name][0] * measurement.grid.step)
    require(abs(found - 500) <= 0.05, f"a sum of scaled rows is {found:g} instead of 500")


# ---------------------------------------------------------------------- scales and prices, worked out by hand

GAUSSIAN = Spend(rho=Fraction(1, 10), mechanism="gaussian")
LAPLACE = Spend(epsilon=Fraction(1, 2), mechanism="laplace")
SCALES = {
    # two groups, three rows in each, half an epsilon: 6 / (1/2)
    "count": (query("count", spend=LAPLACE), {}, 12),
    "count, replaced": (query("count", spend=LAPLACE), {"adjacency": "replace"}, 24),
    "count of two units together": (query("count", spend=LAPLACE), {"group_size": 2}, 24),
    "count of units": (query("count_units", spend=LAPLACE), {}, 4),
    "sum": (query("sum", spend=LAPLACE, bounds=(-3, 10), domain=DOMAIN), {}, 120),
    "sum of rows that are units": (query("sum", spend=LAPLACE, keys=(), bounds=(0, 10), unit=()), {}, 20),
    # two groups that move by three each: (3**2 + 3**2) / (2/10)
    "count with Gaussian noise": (query("count", spend=GAUSSIAN), {}, 90),
    "sum with Gaussian noise": (query("sum", spend=GAUSSIAN, bounds=(0, 10), domain=DOMAIN), {}, 9_000),
}


def noise_is_what_the_spend_buys():
    for name, (asked, protected, expected) in SCALES.items():
        (measurement,) = plans.plan_of(asked, terms_of(1, 1e-6, **protected)).measurements
        step = measurement.grid.step ** (1 if measurement.noise.mechanism == "laplace" else 2)
        require(measurement.noise.parameter * step == expected, f"the noise of the {name} is not {expected} wide")


def prices_are_what_was_asked_for():
    for name, (asked, protected, _) in SCALES.items():
        cost = plans.plan_of(asked, terms_of(1, 1e-6, **protected)).cost
        if asked.spend is LAPLACE:
            require(cost.epsilon == Fraction(1, 2), f"the {name} does not cost the epsilon that buys its noise")
        else:
            require(cost.rho >= Fraction(1, 10), f"the {name} does not cost the rho that buys its noise")


def _choice(kind="noisy_max"):
    candidates = pl.DataFrame({"c": ["x", "y"]})
    groups = pl.DataFrame({"k": ["a", "b", "c", "d"]})
    asked = query("count_units", keys=("k", "c"), spend=HALF, domain=groups.join(candidates, how="cross"))
    selection = Selection(kind=kind, k=1, largest=True, candidates=candidates, candidates_rule="given", groups=groups)
    return choice_plan(asked, selection, terms_of(1))


def every_group_that_a_choice_touches_is_paid_for():
    plan = plans.plan_of(query("median", domain=DOMAIN, spend=HALF), terms_of(1))
    each = plan.measurements[0].epsilon
    require(plan.cost.epsilon == Fraction(1, 2), "a median does not cost what was asked for")
    require(2 * each <= plan.cost.epsilon, f"a median in 2 groups of each unit costs {each} in each of them")
    chosen = _choice()
    each = chosen.epsilon
    require(2 * each <= chosen.cost.epsilon, f"a choice in 2 groups of each unit costs {each} in each of them")
    require(chosen.rate * chosen.moves <= each, "a choice is made with more than its epsilon")


def choices_of_values_stay_within_their_epsilon():
    """Enumerate the law of every answer on two neighbours."""
    for asked in (query("median", keys=(), bounds=(0, 10)), query("quantile", keys=(), bounds=(0, 10))):
        plan = plans.plan_of(asked, terms_of(1))
        (measurement,) = plan.measurements
        target, rate = _Descent(None, None, measurement.statistic, measurement.epsilon, None)._target(
            measurement.statistic.targets[0]
        )
        cells = [(2, 3), (5, 2), (9, 4)]
        low, high = measurement.grid.low, measurement.grid.high
        laws = [law_of(cells, low, high, target, rate)]
        for value in (0, 5, 10):
            added = sorted([*cells, (low + value, measurement.statistic.max_rows)])
            laws.append(law_of(_joined(added), low, high, target, rate))
        losses = [abs(math.log(laws[0][point] / other[point])) for other in laws[1:] for point in other]
        require(
            max(losses) <= float(measurement.epsilon) * (1 + 1e-9),
            f"a choice of epsilon {float(measurement.epsilon):g} loses {max(losses):.3g} by one unit's rows",
        )


def choices_of_one_cap_cost_at_most_their_price():
    """Enumerate the laws in two groups among which a unit's rows are divided. What it is charged covers both losses."""
    for protected in ({}, {"adjacency": "replace"}):
        plan = plans.plan_of(query("quantile", domain=DOMAIN, bounds=(0, 10), **ACROSS), terms_of(1, **protected))
        (measurement,) = plan.measurements
        statistic = measurement.statistic
        target, rate = _Descent(None, None, statistic, measurement.epsilon, None)._target(statistic.targets[0])
        low, high = measurement.grid.low, measurement.grid.high
        cells = [(low + 2, 3), (low + 5, 2), (low + 9, 4)]

        most = statistic.max_rows
        parts = {
            (v, n): law_of(_joined([*cells, (low + v, n)]) if n else cells, low, high, target, rate)
            for v in (0, 10) for n in (0, 1, 3, most - 3, most - 1, most)
        }  # fmt: skip
        rows = [(one, other) for one, other in itertools.product(parts, parts) if one[1] + other[1] == most]
        before = rows if protected else [((0, 0), (0, 0))]
        for mine, theirs in itertools.product(rows, before):
            losses = [
                max(abs(math.log(parts[left][point] / parts[right][point])) for point in parts[left])
                for left, right in zip(mine, theirs, strict=True)
            ]
            require(
                sum(losses) <= float(plan.cost.epsilon) * (1 + 1e-9),
                f"choices of epsilon {float(plan.cost.epsilon):g} in all lose {sum(losses):.3g} by one unit's rows",
            )


def an_interval_of_a_median_is_paid_for_and_covers_it():
    """Try 20,000 groups with one row at the upper bound, where all other candidates are as likely as they can be."""
    confidence, groups = 0.8, 20_000
    one = aggregate("median", (0, 40), of_value=True, confidence=confidence)
    plan = plans.plan_of(query(aggregates=(one,), domain=DOMAIN, spend=HALF, max_rows=1), terms_of(1))
    middle, ends = plan.measurements
    whole = 2 * (middle.epsilon + 2 * ends.epsilon)  # in 2 groups of each unit
    require(whole <= plan.cost.epsilon, f"a median with an interval costs {float(whole):.3g} in all")
    statistic = ends.statistic
    cells = pl.DataFrame({"group": np.arange(groups)}).with_columns(value=pl.lit(statistic.grid.high), count=pl.lit(1))
    drawn = choose_values(cells, np.arange(groups), statistic, ends.epsilon, SeededBits(8))
    missed = int((drawn[:, 1] < statistic.grid.high).sum())
    require(
        missed <= stats.binom.isf(1e-9, groups, (1 - confidence) / 2), f"the ends miss the median in {missed} groups"
    )


def _joined(cells):
    counts = {}
    for value, count in cells:
        counts[value] = counts.get(value, 0) + count
    return sorted(counts.items())


# ---------------------------------------------------------------------- laws of noise, with fixed bits


def _pmf(noise):
    """Return the law of narrow noise, from its definition."""
    scale, reach = float(noise.parameter), math.ceil(12 * noise.deviation)
    places = np.arange(-reach, reach + 1)
    weights = np.exp(-np.abs(places) / scale if noise.mechanism == "laplace" else -(places**2) / (2 * scale))
    return dict(zip(places.tolist(), (weights / weights.sum()).tolist(), strict=True))


def _fits(numbers, noise):
    """Return whether numbers fit a noise law. Wide noise is compared in bins of a tenth of its deviation."""
    if noise.deviation < 300:
        return chi_square_fits(numbers, _pmf(noise))
    width = round(noise.deviation / 10)
    law = (
        stats.laplace(scale=float(noise.parameter))
        if noise.mechanism == "laplace"
        else stats.norm(scale=noise.deviation)
    )
    edges = law.cdf(np.arange(-100, 101) * width - 0.5)
    return chi_square_fits(numbers // width, dict(zip(range(-100, 100), np.diff(edges).tolist(), strict=True)))


def _zeros(plan, groups):
    names = [
        name for measurement in plan.measurements for name in (measurement.statistic.columns or (measurement.name,))
    ]
    columns = {name: np.zeros(groups, np.int64) for name in (*names, *([plan.units] if plan.units else []))}
    keys = {f"key{i}": [f"{n}" for n in range(groups)] for i in range(len(plan.query.keys))}
    return Exact(pl.DataFrame({**keys, **columns}), {})


LAWS = {
    "count": query("count", domain=DOMAIN, spend=LAPLACE),
    "count with Gaussian noise": query("count", domain=DOMAIN, spend=GAUSSIAN),
    "mean": query("mean", domain=DOMAIN, bounds=(0, 3), spend=GAUSSIAN, max_rows=1, max_groups=1),
}


def every_released_number_has_the_declared_noise():
    for name, asked in LAWS.items():
        plan = plans.plan_of(asked, terms_of(10, 1e-6))
        drawn = noises.noisy_aggregates(_zeros(plan, 60_000), plan, SeededBits(1))
        for measurement in plan.measurements:
            numbers = drawn[measurement.name].to_numpy()
            require(numbers.any(), f"the {measurement.statistic.what} of a {name} are released without noise")
            says = f"the noise on the {measurement.statistic.what} of a {name} has another law than the plan says"
            require(_fits(numbers, measurement.noise), says)


def noise_of_groups_is_independent():
    plan = plans.plan_of(LAWS["count"], terms_of(10, 1e-6))
    drawn = noises.noisy_aggregates(_zeros(plan, 40_000), plan, SeededBits(2))[plan.measurements[0].name].to_numpy()
    same = int((drawn[::2] == drawn[1::2]).sum())
    chance = sum(p * p for p in _pmf(plan.measurements[0].noise).values())
    require(binomial_fits(same, 20_000, chance), f"{same:,} of 20,000 pairs of groups have the same noise")


def noise_is_exact_in_its_last_bit():
    """If a sample has more bits than a float, its last bits are 0 and 1 equally often."""
    measurement = _NoisyMeasurement(
        Noise(mechanism="laplace", parameter=Fraction(2**52), cost=Cost(epsilon=Fraction(1), rho=Fraction(1)))
    )
    drawn = noises._noisy(np.zeros(4_000, np.int64), measurement, SeededBits(3))
    large = drawn[np.abs(drawn) >= 2**53]
    odd = int((large & 1).sum())
    require(
        binomial_fits(odd, len(large), 1 / 2), f"{odd} of {len(large)} large samples are odd: they come from floats"
    )


class _NoisyMeasurement:
    def __init__(self, noise):
        self.noise = noise


def two_releases_have_noise_of_their_own():
    keys = [f"{n}" for n in range(64)]
    frame = pl.DataFrame({"user": range(64), "k": keys})
    private = dp.private(frame, dp.Session(epsilon=1.0, unit="user", max_groups=1))
    first, second = (private.count_units("k", keys=keys, epsilon=0.1, fresh=True) for _ in range(2))
    require(not first.equals(second), "two releases have the same noise")


def an_interval_comes_from_the_noisy_value():
    frame = pl.DataFrame({"user": range(500)})
    private = dp.private(frame, dp.Session(epsilon=1.0, unit="user"))
    error = private.preview.count_units(epsilon=0.01).measurements[0].error(0.95)
    for _ in range(5):
        answer, low, high = private.count_units(epsilon=0.01, confidence=0.95, fresh=True).row(0)
        require((answer - low, high - answer) == (error, error), "an interval is not that of the noisy value")
    rows = dp.private(frame.with_columns(x=pl.col("user") / 500), dp.Session(epsilon=1.0, unit=dp.ROW))
    for _ in range(5):
        asked = {"total": dp.sum("x", bounds=(0, 1)), "mean": dp.mean("x", bounds=(0, 1))}
        found = rows.group_by().agg(**asked, epsilon=0.01, confidence=0.95, fresh=True).row(0, named=True)
        middle = (found["total_low"] + found["total_high"]) / 2
        require(math.isclose(middle, found["total"], abs_tol=1e-6), "an interval is not that of the noisy value")


def a_shown_group_lies_in_its_interval():
    """The luckiest of 20,000 groups of 10 units are shown. A coverage of 95 % fails once in 10**7 runs."""
    frame = pl.DataFrame({"k": np.repeat(np.arange(20_000), 10)})
    private = dp.private(frame, dp.Session(epsilon=5.0, delta=1e-6, unit=dp.ROW))
    shown = private.count_units("k", rho=0.1, confidence=0.95)
    missed = shown.filter(~pl.lit(10).is_between("count_units_low", "count_units_high")).height
    require(shown.height > 100, "too few groups are shown to judge their intervals")
    require(missed <= stats.binom.isf(1e-7, shown.height, 0.05), "most intervals of shown groups miss")


def a_stream_is_compared_with_one_noisy_threshold():
    """Four questions lie on the threshold. All are below it more often than by chance, by a known law."""
    scales = sparse_scales(1, 2, delta=None, monotone=False, constants="lyu-su-li", numeric=False)
    source, opened, questions = SeededBits(4), 1_500, 4
    below = every = 0
    for _ in range(opened):
        vector = SparseVector(scales, Fraction(0), Fraction(1), source)
        found = list(itertools.takewhile(bool, (vector.ask(0) is None for _ in range(questions))))
        below, every = below + bool(found), every + (len(found) == questions)
    require(binomial_fits(below, opened, 1 / 2), "a question on the threshold is not above it half the time")
    width = 0.02
    t = np.arange(-60, 60, width)
    weights = np.exp(-np.abs(t) / float(scales.threshold)) / (2 * float(scales.threshold)) * width
    query_scale = float(scales.query)
    under = np.where(t < 0, 0.5 * np.exp(t / query_scale), 1 - 0.5 * np.exp(-t / query_scale))
    chance = float((weights * under**questions).sum())
    require(binomial_fits(every, opened, chance), "a stream does not keep one noisy threshold for its questions")


# ---------------------------------------------------------------------- discovered keys


def _lone_group(plan):
    """Return the largest count of a group that only the protected units are in, and the chance that noise shows it."""
    measurement = plan.measurement(plan.discovery.counted)
    together = plan.terms.group_size
    missing = plan.discovery.threshold - measurement.sensitivity.each
    scale = float(measurement.noise.parameter)
    chance = math.exp(-missing / scale) / (1 + math.exp(-1 / scale))  # P(noise >= missing), exactly
    touched = together * plan.bounds.max_groups * (2 if plan.terms.adjacency == "replace" else 1)
    return -math.expm1(touched * math.log1p(-chance))


def groups_of_one_unit_stay_hidden_but_for_delta():
    for protected in PROTECTED:
        # Here a count of units that is not released decides.
        many = query("count", max_rows=1_000, spend=Spend(share=Fraction(1, 2), mechanism="laplace"))
        both = query("count", spend=LAPLACE, across=True)
        for asked in (query("count_units", spend=LAPLACE), query("count", spend=LAPLACE), both, many):
            plan = plans.plan_of(asked, terms_of(1, 1e-6, **protected))
            chance = _lone_group(plan)
            require(
                chance <= float(plan.cost.delta) * (1 + 1e-6),
                f"a group of one unit is shown with {chance:.3g}, of which {float(plan.cost.delta):.3g} is charged",
            )


def a_count_that_decides_on_keys_is_paid():
    spend = Spend(epsilon=Fraction(1, 2), mechanism="gaussian")
    plan = plans.plan_of(query("count", max_rows=1_000, spend=spend), terms_of(1, 1e-6))
    require(len(plan.measurements) == 2, "the keys of a count with a large cap are not decided by units")
    rho = sum(one.sensitivity.l2_squared / (2 * one.noise.parameter) for one in plan.measurements)
    require(rho <= plan.cost.rho, f"noise for rho {float(rho):g} costs {float(plan.cost.rho):g}")


def the_session_pays_for_keys_once():
    frame = pl.DataFrame({"user": range(1_000), "k": ["a", "b"] * 500})
    session = dp.Session(epsilon=1.0, delta=1e-6, unit="user", max_groups=1)
    private = dp.private(frame, session)
    planned = private.preview.count_units("k", epsilon=0.5).cost
    private.count_units("k", epsilon=0.5)
    require(session.spent.delta == float(planned.delta) > 0, "the delta of discovered keys is not charged once")


def whether_a_group_is_shown_depends_on_its_noisy_count_alone():
    plan = plans.plan_of(query("count", spend=HALF, min_units=5), terms_of(1, 1e-6))
    counted = np.full(4_000, plan.discovery.threshold, np.int64)
    shown = []
    for units in (2, 50):
        exact = Exact(
            pl.DataFrame(
                {"key0": [f"{n}" for n in range(4_000)], plan.measurements[0].name: counted, plan.units: units}
            ),
            {},
        )
        shown.append(noisy_groups(exact, plan))
    require(shown[0] == shown[1], "groups are hidden by their exact number of units")
    require(1_000 < len(shown[0]) < 3_000, "a group whose count is on the threshold is not shown half the time")


def noisy_groups(exact, plan):
    return noises.noisy_aggregates(exact, plan, SeededBits(5))["key0"].to_list()


# ---------------------------------------------------------------------- charges, ledgers, stored releases


def rows_are_read_after_the_charge():
    session = dp.Session(epsilon=1.0, unit="user")
    seen = []

    def look(batch):
        seen.append(session.spent.epsilon)
        return batch

    frame = pl.DataFrame({"user": range(100)}).lazy().map_batches(look, streamable=True)
    dp.private(frame, session).count_units(epsilon=0.5).collect()
    require(bool(seen), "the rows were never read")
    require(min(seen) == 0.5, "rows are read before their price is charged")


def equal_rows_are_not_the_same_source():
    session = dp.Session(epsilon=1.0, unit="user")
    for place in (1, 2):
        dp.private(pl.DataFrame({"user": range(50)}), session).count_units(epsilon=0.25)
        require(session.spent.epsilon == 0.25 * place, "another frame of equal rows gets the stored release")


def other_noise_and_other_rows_are_paid_for():
    session = dp.Session(epsilon=1.0, unit="user")
    people = dp.private(pl.DataFrame({"user": range(50)}), session)
    people.count_units(epsilon=0.25)
    people.count_units(epsilon=0.125)
    require(session.spent.epsilon == 0.375, "another spend gets the stored numbers")
    people.filter(pl.col("user") > 3).count_units(epsilon=0.25)
    require(session.spent.epsilon == 0.625, "another condition gets the stored numbers")
    session = dp.Session(epsilon=9, delta=1e-6, unit="user")
    grouped = dp.private(pl.DataFrame({"user": range(2_000), "key": [0] * 2_000}), session)
    asked = {"by": "key", "max_groups": "auto", "epsilon": 4.0}
    grouped.count(**asked, max_rows_per_group=2)
    grouped.count(**asked, max_rows=2)
    require(len(session.releases) == 2, "another kind of cap gets the stored numbers")


def every_question_has_a_smallest_price():
    session = dp.Session(epsilon=1.0, unit="user")
    try:
        session.reserve(dp.pure_cost(1e-7), label="almost free")
    except dp.InvalidParameterError:
        return
    raise Broken("a question below the smallest price is charged")


def no_account_is_overdrawn():
    """One account of the filter may be exceeded, but not both, and never the delta for keys."""
    terms = terms_of(1, 1e-6)
    rho, delta = terms.rho_allowed, terms.native_delta
    fits = {
        "nothing exceeded": (Cost(epsilon=Fraction(1), rho=rho, delta=delta), True),
        "rho exceeded": (Cost(epsilon=Fraction(1), rho=2 * rho), True),
        "epsilon exceeded": (Cost(epsilon=Fraction(2), rho=rho), True),
        "epsilon and rho exceeded": (Cost(epsilon=Fraction(2), rho=2 * rho), False),
        "delta exceeded": (Cost(epsilon=Fraction(1), rho=rho, delta=2 * delta), False),
        "delta of Gaussian noise and rho exceeded": (
            Cost(epsilon=Fraction(1), rho=2 * rho, gaussian_delta=2 * terms.gaussian_delta), False,
        ),
    }  # fmt: skip
    for name, (cost, expected) in fits.items():
        session = dp.Session(epsilon=1, delta=1e-6, unit="u")
        require(
            session.can_afford(cost) == expected, f"a session with {name} is {'refused' if expected else 'accepted'}"
        )
        try:
            session.reserve(cost, label=name)
        except dp.BudgetExceeded:
            require(not expected, f"a charge with {name} is refused")
        else:
            require(expected, f"a charge with {name} is accepted")
    pure = dp.Session(epsilon=1, unit="u")
    require(not pure.can_afford(dp.pure_cost(1, delta=1e-9)), "a pure session has a delta")


_DIES = """
import os, sys, dp_polars as dp
session = dp.Session(epsilon=1.0, unit="user", ledger=sys.argv[1])
session.reserve(dp.pure_cost(0.5), label="dies")
os._exit(9)
"""


def _ledger_of_a_dead_process():
    """Return a ledger whose last question died, made once for all checks."""
    import tempfile

    path = os.path.join(tempfile.mkdtemp(), "budget.db")
    subprocess.run([sys.executable, "-c", _DIES, path], check=False, timeout=60)
    return path


def a_question_that_died_stays_charged_and_closes_the_session():
    session = dp.Session.from_ledger(_ledger_of_a_dead_process())
    try:
        require(session.spent.epsilon == 0.5, "the charge of a dead process is forgotten")
        require(session.closed, "a process that died in the middle of a question closes nothing")
    finally:
        session.close()


def a_failure_on_private_rows_closes_the_session():
    def fails(batch):
        raise ValueError

    session = dp.Session(epsilon=1.0, unit="user")
    frame = pl.DataFrame({"user": range(100)}).lazy().map_batches(fails, streamable=True)
    with pytest.raises((dp.EngineError, pl.exceptions.ComputeError)):
        dp.private(frame, session).count_units(epsilon=0.5).collect()
    require(session.spent.epsilon == 0.5, "a question that failed on private rows is not charged")
    require(session.closed, "a question that failed on private rows closes nothing")


# ---------------------------------------------------------------------- rows


def _evidence_of(name):
    operation = OPERATIONS[name]
    with pytest.MonkeyPatch.context() as patch:

        def isolated(self, part, height, place):
            raise Broken(f"the operation {name} fails on some value")

        patch.setattr(Program, "_isolated", isolated)
        for sample in operation.samples:
            try:
                evidence.assert_row_wise_and_total(evidence.case_of(operation, sample))
            except Broken:
                raise
            except AssertionError:
                raise Broken(f"the operation {name} gives a row another value beside other rows") from None


def the_evidence_for_operations_holds():
    for name in ("abs", "floor", "upper"):
        _evidence_of(name)


def a_row_that_fails_is_null_and_no_other():
    x = Column("x", pl.Float64())
    frame = pl.DataFrame({"x": [1.5, math.nan, 2.5, math.inf, 4.0]})
    with pytest.MonkeyPatch.context() as patch:  # an operation that nobody should have put on the list
        strict = lambda node, given: given[0].cast(pl.Int64, strict=True).cast(pl.Float64)  # noqa: E731
        patch.setitem(lowerings._LOWERINGS, "floor", strict)
        found = Program([apply("floor", x), apply("abs", x)]).columns(frame)
    require(found[0].to_list() == [1, None, 2, None, 4], "a row on which Polars fails takes others with it")
    require(found[1].to_list()[0] == 1.5, "a row on which Polars fails takes other columns with it")


def rows_that_get_lost_are_noticed():
    frame = pl.DataFrame({"unit0": range(100)})
    plan = plans.plan_of(query("count_units", keys=()), terms_of(1))
    row = plans.plan_of(query("count_units", keys=(), unit=()), terms_of(1))
    for name, asked in (("units", plan), ("rows", row)):
        try:
            run_bounded(PrivateRows(PolarsSource(frame.lazy(), height=lambda: 101)), request_of(asked))
        except RowCountError:
            continue
        raise Broken(f"a pass over {name} that misses a row of the source answers all the same")


def a_step_never_combines_different_units():
    frame = pl.DataFrame({"user": [1, 2], "city": ["a", "a"], "x": [1, 2]})
    private = dp.private(frame, dp.Session(epsilon=1, unit="user", max_rows_per_group=2))
    for step in (
        lambda: private.with_columns(x=pl.col("x").sum().over("city")),
        lambda: private.unique("city"),
        lambda: private.group_by("city").head(1, order_by="x"),
    ):
        try:
            step().preview.count(epsilon=0.1)
        except dp.InvalidParameterError:
            continue
        raise Broken("a step combines rows of different units")


def a_step_within_a_unit_depends_on_its_rows_alone():
    dice = random.Random(5)
    frame = pl.DataFrame({"user": [i % 3 for i in range(300)], "x": [10.0 ** dice.uniform(-8, 8) for _ in range(300)]})
    frame, order = frame.with_columns(one=pl.lit(1)), (SortColumn("one"),)
    for function, column in (("row_number", None), ("sum", "x")):
        value = unit_value(function, column, frame.schema, order=order if column is None else ())
        step = AddWindows(("user",), (("made", value),))

        def found(rows, step=step):
            made = read_rows(without_unit_steps(unit_rows(step, polars_rows(rows))))
            return made.sort("user", "x").rows()

        shuffled = [found(frame.sample(fraction=1, shuffle=True, seed=seed)) for seed in range(5)]
        require(all(rows == found(frame) for rows in shuffled), f"{function} depends on the order of the rows")


def _computed(step, frame):
    return read_rows(without_unit_steps(unit_rows(step, polars_rows(frame))))


def a_frame_ends_with_its_unit():
    frame = pl.DataFrame({"user": [1, 1, 2, 2], "day": [1, 2, 2, 3], "x": [1, 2, 4, 8]})
    for function in ("frame_sum", "frame_count", "frame_max"):
        value = unit_value(
            function, "x", frame.schema, order=(SortColumn("day"),), frame=WindowFrame(-9, 9, by_value=True)
        )
        step = AddWindows(("user",), (("made", value),))
        alone = _computed(step, frame.filter(pl.col("user") == 1)).sort("x").rows()
        beside = _computed(step, frame).filter(pl.col("user") == 1).sort("x").rows()
        require(alone == beside, "another unit's rows are in a frame")


def a_list_becomes_a_few_rows():
    frame = pl.DataFrame({"user": [1], "tags": [["a"] * 50]})
    private = dp.private(frame, dp.Session(epsilon=1, unit="user", max_rows_per_group=100)).explode("tags", max_rows=3)
    rows = read_rows(without_unit_steps(private._rows)).height
    require(rows == 3, "a row becomes more rows than its public limit")


def joined_texts_have_a_limit():
    frame = pl.DataFrame({"user": [1, 1], "text": ["x" * 20_000] * 2})
    value = unit_value("join", "text", frame.schema, order=(SortColumn("text"),), parameter="")
    (length,) = _computed(GroupRows(("user",), (("made", value),)), frame)["made"].str.len_chars()
    require(length <= 1 << 14, f"a unit makes a text of {length} characters")


def another_function_is_another_question():
    session = dp.Session(epsilon=1, unit="user", max_rows_per_group=1)
    private = dp.private(pl.DataFrame({"user": [1, 1, 2], "x": [1, 2, 3]}), session)
    for function in (pl.col("x").min(), pl.col("x").max(), (pl.col("x") + 1).max()):
        private.group_by("user").agg(made=function).sum("made", bounds=(0, 9), epsilon=0.1)
    require(len(session.releases) == 3, "a function within a unit gets the answer of another function")


# ---------------------------------------------------------------------- SQL


def _guarded():
    raw = duckdb.connect()
    raw.execute("CREATE TABLE visits AS SELECT i % 40 AS user_id, i AS x, 'a' AS s FROM range(200) t(i)")
    raw.execute("CREATE MACRO mean(a) AS max((SELECT max(x) FROM main.visits))")
    raw.execute("CREATE TABLE lookup AS SELECT 1 AS zone")
    return dp.connect(raw, dp.Session(epsilon=1, unit="user_id", max_rows_per_group=5))


def a_table_is_the_same_under_every_name():
    con = _guarded().public("main.visits")
    con.private("visits", unit="user_id")
    try:
        con.sql("SELECT * FROM main.visits")
    except dp.StatementNotAllowed:
        return
    raise Broken("a private table is shown under another spelling of its name")


def private_tables_never_reach_ordinary_sql():
    con = _guarded()
    for asked in ("SELECT max(x) AS m FROM visits", "SELECT (SELECT max(x) FROM visits) AS m"):
        try:
            con.sql(asked)
        except dp.StatementNotAllowed:
            continue
        raise Broken("ordinary SQL reads a private table")


def macros_of_the_database_are_not_called():
    found = _guarded().public("lookup").sql("SELECT mean(zone) OVER () AS m FROM lookup").fetchall()
    require(found == [(1.0,)], "a macro of the database answers in the place of a built-in function")


def a_join_turned_round_is_another_question():
    raw = duckdb.connect()
    for name, units in {"a": 900, "b": 400}.items():
        raw.execute(f"CREATE TABLE {name} AS SELECT i AS user_id FROM range({units}) t(i)")
    con = dp.connect(raw, dp.Session(epsilon=1, unit="user_id"))
    for one, two in (("a", "b"), ("b", "a")):
        con.sql(f"SELECT dp_count_units() FROM {one} ANTI JOIN {two} USING (user_id)", epsilon=0.1)
    require(len(con._session.releases) == 2, "a join turned round gets the answer of the other one")


def only_rows_of_one_unit_are_combined():
    con = _guarded()
    try:
        places = "SELECT row_number() OVER (PARTITION BY s ORDER BY x) AS n FROM visits"
        con.preview(f"SELECT dp_count(*) FROM ({places}) WHERE n < 9", epsilon=0.1)
    except dp.StatementNotAllowed:
        return
    raise Broken("rows of several units are combined")


_LATER = "(SELECT user_id, x + 40 AS x, x AS y FROM visits)"
_COMBINED = {
    "FULL JOIN": f"SELECT user_id, a.x, b.y FROM visits a FULL JOIN {_LATER} b USING (user_id, x)",
    "INTERSECT": f"SELECT user_id, x FROM visits INTERSECT SELECT user_id, x FROM {_LATER}",
    "EXCEPT": f"SELECT user_id, x FROM visits EXCEPT SELECT user_id, x FROM {_LATER}",
}


def _rows_meet_within_their_unit(kind):
    """Without one person, exactly their rows are gone. Somebody else has the values that are next to theirs."""
    rows = [(user, 40 * (place + (user != 3))) for user in range(7) for place in range(3)]
    people = pl.DataFrame(rows, schema=["user_id", "x"], orient="row")

    def found(rows):
        con = dp.connect(None, dp.Session(epsilon=1, unit="user_id", max_rows_per_group=1)).register("visits", rows)
        planned = con._planned(f"SELECT dp_count(x) AS n FROM ({_COMBINED[kind]})", {}, {"epsilon": 0.5})
        return read_rows(without_unit_steps(planned.queries[0].query.rows))

    whole, rest = found(people), found(people.filter(pl.col("user_id") != 3))
    others = whole.filter(pl.col("user_id") != 3)
    require(
        sorted(map(repr, others.rows())) == sorted(map(repr, rest.rows())), f"rows change those of others in {kind}"
    )
    require(0 < others.height < whole.height, f"nobody has rows after {kind}")


def full_joins_meet_within_their_unit():
    _rows_meet_within_their_unit("FULL JOIN")


def intersections_meet_within_their_unit():
    _rows_meet_within_their_unit("INTERSECT")


def differences_meet_within_their_unit():
    _rows_meet_within_their_unit("EXCEPT")


def only_answers_are_turned():
    con = _guarded()
    try:
        con.sql("SELECT * FROM visits PIVOT (sum(x) FOR s IN ('a'))")
    except dp.StatementNotAllowed:
        return
    raise Broken("PIVOT shows sums of private rows")


def a_query_can_not_make_another_unit():
    con = _guarded()
    plain = con.preview("SELECT dp_count_units(epsilon := 0.1) AS n FROM visits")
    require(plain.query.unit == ("user_id",), "the unit of a table is another")
    try:
        con.sql("SELECT dp_count_units(epsilon := 0.1) AS n FROM (SELECT x AS user_id FROM visits)")
    except dp.StatementNotAllowed:
        return
    raise Broken("a query puts another column in the place of the unit")


# ---------------------------------------------------------------------- Spark

_CROWDED = [(unit, f"{key}", 5) for unit in range(400) for key in range(16) for _ in range(2)]
"""400 units with two rows in each of 16 groups."""


def _on_spark(rows, **caps):
    """Return the sums of each group, with new salts. Every unit may keep one group unless `max_groups` says more."""
    frame = pl.DataFrame(rows, schema={"unit0": pl.Int64, "key0": pl.String, "value0": pl.Int64}, orient="row")
    sums = (GroupSum(name="units", of="units"), GroupSum(name="rows", of="rows", max_rows=caps.get("max_rows", 1)))
    total = GroupSum(name="x", of="x", max_rows=caps.get("max_rows", 1))
    lane = Lane(columns=(ValueColumn(place=0, low=0, high=5),), sums=(*sums, total))
    asked = BoundedRequest(units=1, keys=1, max_groups=caps.get("max_groups", 1), domain=None, lanes=(lane,))
    source = SparkSource(shared_session().createDataFrame(frame.to_arrow()))
    return SparkEngine().aggregate(PrivateRows(source), asked).groups


def spark_enforces_caps():
    found = _on_spark(_CROWDED, max_groups=3)
    units, rows, total = (found[name].sum() for name in ("units", "rows", "x"))
    require(units == 3 * 400, f"units on Spark keep {units / 400:g} groups each instead of 3")
    require(rows == 3 * 400, f"units on Spark have {rows / units:g} rows in each group instead of 1")
    require(total == 5 * 3 * 400, f"units on Spark add {total / units:g} to each sum instead of 5")


def spark_counts_no_rows_without_a_unit():
    units = [(0, "a", 1), (1, "b", 1), (2, "c", 1)]
    tables = [_on_spark(rows) for rows in (units, [*units, (None, "a", 1), (None, "d", 1)])]
    require(tables[0].equals(tables[1]), "rows without a unit are counted on Spark")


def spark_combines_rows_of_one_unit():
    frame = pl.DataFrame({"unit": [0, 0, 1, 1, 2], "key": ["a", "b", "a", "b", "a"], "x": [1, 2, 3, 4, 5]})
    value = unit_value("row_number", None, frame.schema, order=(SortColumn("x"),))
    tables = []
    for rows in (frame, frame.filter(pl.col("unit") != 0)):
        source = PrivateRows(SparkSource(shared_session().createDataFrame(rows.to_arrow())))
        found = SparkEngine().read(unit_rows(AddWindows(("unit", "key"), (("place", value),)), source))
        tables.append(found.filter(pl.col("unit") != 0).sort("unit", "key"))
    require(tables[0].equals(tables[1]), "a unit on Spark changes rows of others")


def spark_limits_the_pairs_of_a_join():
    frame = pl.DataFrame({"unit": [0] * 1_500 + [1], "x": range(1_501)})
    source = PrivateRows(SparkSource(shared_session().createDataFrame(frame.to_arrow())))
    step = JoinRows((("unit", "unit"),), "inner", (("x", "y"),), ("unit",))
    pairs = SparkEngine().read(unit_rows(step, source, source), columns=["unit"]).height
    require(pairs == 1_000_001, f"a unit on Spark makes {pairs - 1:,} pairs instead of 1,000,000")


def spark_draws_its_salts_anew():
    """Two questions keep the same number of units in each of 16 groups by chance with a probability below 1e-15."""
    first, second = (_on_spark(_CROWDED) for _ in range(2))
    require(not first.equals(second), "two questions to Spark choose groups with the same salt")


# ---------------------------------------------------------------------- analysts


def shares_of_analysts_are_enforced():
    owner = dp.Session(epsilon=1.0, unit="user")
    owner.grant("team", share=0.25)
    try:
        owner.analyst("team").reserve(dp.pure_cost(0.5), label="half of the budget").fail(closes=False)
    except dp.BudgetExceeded:
        return
    require(False, "an analyst charges more than the share")


def every_charge_of_an_analyst_is_in_the_audit_log():
    owner = dp.Session(epsilon=1.0, unit="user")
    owner.grant("team", share=0.5)
    owner.analyst("team").reserve(dp.pure_cost(0.1), label="charged").fail(closes=False)
    require(owner.audit_log().height == len(owner.releases), "a charge has no entry in the audit log")


def errors_of_the_library_are_in_the_audit_log():
    owner = dp.Session(epsilon=1.0, unit="user")
    owner.grant("team", share=0.5)
    with contextlib.suppress(RuntimeError), owner.analyst("team")._asking("asked"):
        raise RuntimeError
    require(owner.audit_log()["reason"].to_list() == ["internal-error"], "an error leaves no entry in the audit log")
