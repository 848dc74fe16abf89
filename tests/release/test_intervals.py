"""Intervals cover the truth with their confidence, for every kind of answer, in small, large, public and lucky groups.

The exact tests enumerate the noise of a plan. Each outcome becomes a group of a made-up noisy frame, so one call gives
all intervals, and the coverage is an exact sum of probabilities. The others release thousands of
groups at once, and fail by chance less than once in 10**7 runs.
"""

import itertools
import warnings

import duckdb
import numpy as np
import polars as pl
import pytest
from scipy import stats

import dp_polars as dp
from dp_polars._release.answers import present

FALSE_ALARM = 1e-7


def session(**words):
    """Return a session that can pay for everything here, without the warning that it protects nobody."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.DPWarning)
        return dp.Session(**{"epsilon": 30.0, "delta": 1e-6, "unit": dp.ROW, **words})


def outcomes(plan, truth, least=1e-6):
    """Return a noisy frame with a row for each outcome of the noise around `truth`, and the probability of each.

    Outcomes beyond a reach that the noises exceed with probability `least` are left out.
    """
    noises = [(own, place) for own in plan.measurements for place in range(max(1, len(own.statistic.columns)))]
    axes, chances = [], []
    for own, place in noises:
        reach = own.noise.error(1 - least / len(noises))
        x = np.arange(-reach, reach + 1)
        width = float(own.noise.parameter)
        weights = np.exp(-np.abs(x) / width) if own.noise.mechanism == "laplace" else np.exp(-x * x / (2 * width))
        axes.append(x + truth[own.name][place])
        chances.append(weights / weights.sum())
    table = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    together = np.prod(np.meshgrid(*chances, indexing="ij"), axis=0).ravel()
    columns = {}
    for own in plan.measurements:
        places = [i for i, (other, _) in enumerate(noises) if other is own]
        numbers = table[:, places] if own.statistic.columns else table[:, places[0]]
        columns[own.name] = pl.Series(own.name, numbers)
    frame = pl.DataFrame([pl.Series(f"key{i}", np.arange(len(table))) for i in range(len(plan.query.keys))])
    frame = frame.with_columns(columns.values()) if frame.width else pl.DataFrame(list(columns.values()))
    if plan.discovery is not None:
        decided = frame[plan.discovery.counted].to_numpy()
        shown = (decided.sum(axis=1) if decided.ndim == 2 else decided) >= plan.discovery.threshold
        frame, together = frame.filter(pl.Series(shown)), together[shown]
    return frame, together / together.sum()


def coverage(plan, truth, answers):
    """Return the exact probability with which the interval of each answer covers its truth."""
    frame, chances = outcomes(plan, truth)
    found = present(frame, plan)
    covered = {}
    for name, exact in answers.items():
        low, high = (found[f"{name}_{end}"].to_numpy() for end in ("low", "high"))
        assert ((low <= found[name].to_numpy()) & (found[name].to_numpy() <= high)).all()
        covered[name] = chances[(low <= exact + 1e-9) & (exact - 1e-9 <= high)].sum()
    return covered


def truth_of(plan, values):
    """Return the exact statistics of a group of values of 0 and 1, in the steps in which the plan measures them."""
    ones, rows = sum(values), len(values)
    found = {}
    for own in plan.measurements:
        statistic = own.statistic
        if statistic.source == "basis":
            degree = len(statistic.columns) - 1
            found[own.name] = [(rows - ones) * statistic.whole, *[0] * (degree - 1), ones * statistic.whole]
        elif statistic.what in ("rows", "units"):
            found[own.name] = [rows]
        else:
            power = 2 if statistic.what == "squares" else 1
            centre = float(plan.measurements[0].grid.offset) if power == 1 else None
            assert centre in (None, 0.0)  # integers from 0 to 1 are measured from 0
            found[own.name] = [int((ones - rows * float(own.grid.offset) * (power == 2)) / float(own.grid.step))]
    return found


GROUPS = [(0, 0, 1), (0, 1) * 6, (1,) * 9, (0,) * 40 + (1,) * 60]
FRAME = pl.DataFrame({"k": ["a", "b"], "x": [0, 1]})


@pytest.mark.slow
@pytest.mark.parametrize("values", GROUPS, ids=len)
@pytest.mark.parametrize(
    ("discovered", "spend", "confidence"),
    [
        (False, {"epsilon": 0.7}, 0.9),
        (False, {"rho": 0.2}, 0.95),
        (True, {"epsilon": 0.7}, 0.95),
        (True, {"rho": 0.2}, 0.9),
    ],
    ids=str,
)
def test_means_counts_and_sums_cover_the_truth_exactly(confidence, values, discovered, spend):
    asked = {"n": dp.count("x"), "m": dp.mean("x", bounds=(0, 1)), "t": dp.sum("x", bounds=(0, 1))}
    given = {} if discovered else {"keys": ["a", "b"]}
    private = dp.private(FRAME, session(delta=1e-3)).preview.group_by("k")
    plan = private.agg(**asked, confidence=confidence, **spend, **given)
    exact = {"n": len(values), "m": sum(values) / len(values), "t": sum(values)}
    for name, covered in coverage(plan, truth_of(plan, values), exact).items():
        assert covered >= confidence - 1e-5, name


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.9, 0.95])
@pytest.mark.parametrize("values", GROUPS, ids=len)
def test_variances_cover_the_truth_exactly(confidence, values):
    asked = {"v": dp.var("x", bounds=(0, 1)), "m": dp.mean("x", bounds=(0, 1))}
    words = {"epsilon": 2.5, "keys": ["a", "b"], "confidence": confidence}
    plan = dp.private(FRAME, session()).preview.group_by("k").agg(**asked, **words)
    exact = {"v": np.var(values, ddof=1), "m": np.mean(values)}
    for name, covered in coverage(plan, truth_of(plan, values), exact).items():
        assert covered >= confidence - 1e-5, name


def test_the_interval_of_a_group_near_the_threshold_starts_at_one():
    frame = pl.DataFrame({"k": np.repeat(np.arange(20_000), 10)})
    shown = dp.private(frame, session()).count_units("k", rho=0.1, confidence=0.95)
    missed = shown.filter(~pl.lit(10).is_between("count_units_low", "count_units_high")).height
    assert shown.height > 100  # about 430 of them, the luckiest
    assert missed <= stats.binom.isf(FALSE_ALARM, shown.height, 0.05)
    assert shown["count_units_low"].min() == 1


@pytest.mark.slow
def test_the_interval_of_a_lucky_group_covers_in_sql():
    frame = pl.DataFrame({"unit_id": np.arange(200_000), "k": np.repeat(np.arange(20_000), 10)})
    con = duckdb.connect()
    con.register("rows_of_visits", frame.to_arrow())
    con.sql("CREATE TABLE visits AS FROM rows_of_visits")
    dp.register(con, session(unit="unit_id", max_groups=1))
    rows = con.sql("FROM dp.count_units('visits', by := 'k', rho := 0.1, confidence := 0.95)").fetchall()
    missed = sum(not low <= 10 <= high for _, _, low, high in rows)
    assert len(rows) > 100
    assert missed <= stats.binom.isf(FALSE_ALARM, len(rows), 0.05)


@pytest.mark.slow
def test_sql_has_the_same_intervals_as_frames_and_refuses_those_it_has_no_place_for():
    frame = pl.DataFrame({"unit_id": range(3_000), "x": [0.0, 0.25, 1.0] * 1_000, "y": [0.0, 1.0, 0.5] * 1_000})
    con = duckdb.connect()
    con.register("rows_of_visits", frame.to_arrow())
    con.sql("CREATE TABLE visits AS FROM rows_of_visits")
    paying = session(unit="unit_id", max_groups=1, max_rows_per_group=1)
    dp.register(con, paying)
    # Beyond these intervals, of a confidence of 1 - 1e-8, the truth lies with probability below 1e-8.
    truth = {"mean": 0.41666, "var": 0.18061, "stddev": 0.42498, "covar": 0.04168, "corr": 0.24009}
    for name, exact in truth.items():
        second, bounds = (", 'y'", "0, 1, 0, 1") if name.startswith("co") else ("", "0, 1")
        call = f"dp.{name}('visits', 'x'{second}, {bounds}, epsilon := 1, confidence := 0.99999999)"
        relation = con.sql(f"FROM {call}")
        assert relation.columns == [name, f"{name}_low", f"{name}_high"]
        ((answer, low, high),) = relation.fetchall()
        assert low < answer < high
        assert low < exact < high
    spent = len(paying.releases)
    with pytest.raises(duckdb.Error, match="has no interval here"):
        con.sql("FROM dp.linear_regression('visits', 'x', 'y', 0, 1, 0, 1, epsilon := 1, confidence := 0.9)").fetchall()
    assert len(paying.releases) == spent


# ---------------------------------------------------------------------- many groups at once


def groups_of(size, number):
    generator = np.random.default_rng(size)
    x = np.round(generator.beta(2, 4, size * number) * 10, 3)
    frame = pl.DataFrame({"k": np.repeat(np.arange(number), size), "x": x, "y": x / 2 + generator.random(len(x)) * 3})
    return frame, frame.group_by("k").agg(
        n=pl.len(),
        m=pl.col("x").mean(),
        t=pl.col("x").sum(),
        v=pl.col("x").var(),
        s=pl.col("x").std(),
        g=pl.col("x").clip(1, 10).log().mean().exp(),
        c=pl.cov("x", "y"),
        r=pl.corr("x", "y"),
        slope=pl.cov("x", "y") / pl.col("x").var(),
        intercept=pl.col("y").mean() - pl.cov("x", "y") / pl.col("x").var() * pl.col("x").mean(),
    )


B = (0, 10)
ASKED = {
    "linear": {"n": dp.count("x"), "m": dp.mean("x", bounds=B), "t": dp.sum("x", bounds=B)},
    "moments": {"m": dp.mean("x", bounds=B), "v": dp.var("x", bounds=B)},
    "deviation": {"s": dp.std("x", bounds=B), "g": dp.geometric_mean("x", bounds=(1, 10))},
    "pairs": {"c": dp.cov("x", "y", bounds=(B, B)), "r": dp.corr("x", "y", bounds=(B, B))},
}


@pytest.mark.slow
@pytest.mark.parametrize(("size", "number"), [(4, 3_000), (60, 2_000), (3_000, 60)])
@pytest.mark.parametrize("spend", [{"epsilon": 1}, {"rho": 0.05}], ids=str)
@pytest.mark.parametrize("asked", ASKED)
def test_intervals_cover_the_truth_of_many_groups(asked, spend, size, number):
    """The second confidence is another presentation of the same noisy numbers, which is free."""
    frame, truth = groups_of(size, number)
    paying = session()
    given = {"keys": list(range(number)), **spend}
    shown = {
        confidence: dp.private(frame, paying).group_by("k").agg(**ASKED[asked], confidence=confidence, **given)
        for confidence in (0.9, 0.95)
    }
    for confidence, name in itertools.product(shown, ASKED[asked]):
        found = shown[confidence].join(truth, on="k", suffix="_true")
        low, high, exact = (found[f"{name}{end}"].to_numpy() for end in ("_low", "_high", "_true"))
        answers = found[name].fill_null(found[f"{name}_low"]).to_numpy()  # a correlation is null if nothing varies
        assert ((low <= answers) & (answers <= high)).all()
        missed = int((~((low <= exact + 1e-6) & (exact - 1e-6 <= high))).sum())
        assert missed <= stats.binom.isf(FALSE_ALARM, number, 1 - confidence), (name, confidence)
    assert len(paying.releases) == 1


@pytest.mark.slow
@pytest.mark.parametrize("spend", [{"epsilon": 4}, {"rho": 0.5}], ids=str)
def test_slopes_and_intercepts_cover_the_truth(spend):
    frame, truth = groups_of(3_000, 60)
    line = dp.linear_regression("x", "y", bounds=(B, B))
    words = {"keys": list(range(60)), "confidence": 0.9, **spend}
    found = dp.private(frame, session()).group_by("k").agg(line, **words).join(truth, on="k")
    inner = found["linear_regression"].struct.unnest()
    assert inner.columns == ["slope", "slope_low", "slope_high", "intercept", "intercept_low", "intercept_high"]
    for name in ("slope", "intercept"):
        missed = (~found[name].is_between(inner[f"{name}_low"], inner[f"{name}_high"])).sum()
        assert missed <= stats.binom.isf(FALSE_ALARM, 60, 0.1)
    assert (inner["slope_high"] - inner["slope_low"]).is_finite().any()
    alone = dp.private(frame, session()).linear_regression("x", "y", bounds=(B, B), epsilon=1, confidence=0.9)
    assert alone.columns == inner.columns


# ---------------------------------------------------------------------- no wider than necessary


def half_widths(asked, **words):
    frame = pl.DataFrame({"k": np.repeat(np.arange(200), 50), "x": np.random.default_rng(0).random(10_000) * 10})
    given = {"keys": list(range(200)), "confidence": 0.95, **words}
    found = dp.private(frame, session()).group_by("k").agg(**asked, **given)
    return {name: (found[f"{name}_high"] - found[f"{name}_low"]).mean() / 2 for name in asked}


@pytest.mark.slow
def test_intervals_are_hardly_wider_than_the_noise():
    """Before noises were convolved and ratios solved, these were 74, 190 and 0.74."""
    asked = {"n": dp.count("x"), "m": dp.mean("x", bounds=(0, 10))}
    assert half_widths(asked, epsilon=0.1)["n"] <= 42
    assert half_widths(asked, epsilon=1)["m"] <= 0.46
    summed = {"t": dp.sum("x", bounds=(0, 10)), "m": dp.mean("x", bounds=(0, 10))}
    assert half_widths(summed, rho=0.0142)["t"] <= 118


# ---------------------------------------------------------------------- extremes


SMALL = [{"epsilon": 0.01}, {"rho": 1e-4}]  # sessions refuse spends that are too small a part of them
EXTREME = [
    *SMALL, {"epsilon": 29.9}, {"rho": 10},
    {"epsilon": 1, "confidence": 0.999999999}, {"epsilon": 1, "confidence": 1e-6},
    {"epsilon": 1, "min_units": 100_000}, {"rho": 0.1, "min_units": 100_000},
]  # fmt: skip
BOUNDS = [(0, 1), (-(10**15), 10**15), (10**13 - 2, 10**13), (-1e-90, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("words", EXTREME, ids=str)
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_extreme_spends_bounds_and_confidences_give_intervals(words, bounds):
    """Keys are public or discovered, so that both meet each of the words and each of the bounds."""
    asked = {
        "n": dp.count("x"), "u": dp.count_units(), "t": dp.sum("x", bounds=bounds), "m": dp.mean("x", bounds=bounds),
        "s": dp.std("x", bounds=bounds), "r": dp.corr("x", "y", bounds=(bounds, bounds)),
        "line": dp.linear_regression("x", "y", bounds=(bounds, bounds)),
    }  # fmt: skip
    frame = pl.DataFrame({"k": ["a"], "x": [0.5], "y": [0.1]})
    private = dp.private(frame, session(epsilon=2.0 if words in SMALL else 100.0, group_size=2)).preview.group_by("k")
    keys = {"keys": ["a"]} if (EXTREME.index(words) + BOUNDS.index(bounds)) % 2 else {}
    plan = private.agg(**asked, **{"confidence": 0.95, **words}, **keys)
    columns = {"key0": ["a"] * 3}
    for own in plan.measurements:
        high = 1 << 62
        if plan.discovery is not None and own.name == plan.discovery.counted:
            numbers = [plan.discovery.threshold, plan.discovery.threshold + 10, high]
        else:
            numbers = [-high, 0, high]
        several = len(own.statistic.columns)
        columns[own.name] = np.array([[one] * several for one in numbers]) if several else numbers
    found = present(pl.DataFrame(columns), plan)
    for name in ("n", "u", "t", "m", "s", "r"):
        ends = found.select(f"{name}_low", f"{name}_high")
        assert not ends.select(pl.all().cast(pl.Float64).is_nan().any()).row(0)[0]
        assert (ends[f"{name}_low"] <= ends[f"{name}_high"]).all()
