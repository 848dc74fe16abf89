"""Every type of interval covers what caps leave, at 90 and 95 %, in small and large groups, with either noise.

The cap on rows binds for half of the units. They have four rows, of which two count: sums and counts are scaled down,
and where rows are kept instead, the rows of a unit have one value, so that it does not matter which. An interval is
about the noise, so it must cover the answer after this cap. Many groups are released at once, and their noises are
independent. Each comparison fails by chance with a probability below 1e-9, and all of this file together below 1e-6.
With 1,500 groups, intervals of 95 % that cover 90 % are found with a probability above 0.9, and with 300 groups those
that cover 82 %. `test_intervals.py` has exact coverage, without caps.
"""

import itertools
import warnings

import numpy as np
import polars as pl
import pytest
from scipy import stats

import dp_polars as dp

FALSE_ALARM = 1e-9
CAP, MANY = 2, 4  # the cap, and the rows of every second unit
B = (0, 10)
SMALL, FEW, LARGE = (3, 1_500), (3, 300), (400, 40)  # units in each group, and groups
SPENDS = [{"epsilon": 1.0, "mechanism": "laplace"}, {"rho": 0.05, "mechanism": "gaussian"}]
CONFIDENCES = (0.9, 0.95)
EDGES = [0.0, 2.0, 5.0, 10.0]


def session():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.DPWarning)
        return dp.Session(epsilon=100.0, delta=1e-6, unit="who", max_groups=1, max_rows_per_group=CAP)


def rows_of(size, number):
    """Return groups of units: x and y differ between the rows of a unit, z doesn't, and d has two values for each."""
    dice = np.random.default_rng(size)
    units = size * number
    who = np.repeat(np.arange(units), np.where(np.arange(units) % 2, 1, MANY))
    x = np.round(dice.beta(2, 4, len(who)) * 10, 3)
    y = np.round(x / 2 + dice.random(len(who)) * 3, 3)
    z = np.round(dice.beta(2, 4, units) * 10, 3)[who]
    values = (dice.integers(0, 40, units)[who] + 40 * (np.arange(len(who)) % 2)).astype(np.int64)
    return pl.DataFrame({"who": who, "k": who // size, "x": x, "y": y, "z": z, "d": values})


def truth_of(rows):
    """Return the answers after the cap, without noise. A row of a unit with n > 2 rows weighs 2 / n."""
    weight = (CAP / pl.len().over("who")).clip(upper_bound=1)
    total = pl.col("w").sum()

    def mean(column):
        return (pl.col("w") * column).sum() / total

    def spread(one, other):
        return (mean(one * other) - mean(one) * mean(other)) * total / (total - 1)

    x, y = pl.col("x"), pl.col("y")
    slope = (mean(x * y) - mean(x) * mean(y)) / (mean(x * x) - mean(x) ** 2)
    clipped = rows.group_by("k", "who").agg(pl.col("x").sum().clip(*B)).group_by("k").agg(per_unit=pl.col("x").sum())
    found = (
        rows.with_columns(w=weight)
        .group_by("k")
        .agg(
            count=total,
            count_units=pl.col("who").n_unique(),
            n_unique=pl.col("d").n_unique(),
            sum=(pl.col("w") * x).sum(),
            mean=mean(x),
            geometric_mean=mean(x.clip(1, 10).log()).exp(),
            var=spread(x, x),
            std=spread(x, x).sqrt(),
            cov=spread(x, y),
            corr=spread(x, y) / (spread(x, x) * spread(y, y)).sqrt(),
            slope=slope,
            intercept=mean(y) - slope * mean(x),
            cut_by_cap=(pl.col("w") < 1).sum() // MANY,
        )
    )
    return found.join(clipped, on="k")


ASKED = {
    "count": {"count": dp.count()},
    "count_units": {"count_units": dp.count_units()},
    "n_unique": {"n_unique": dp.n_unique("d")},
    "sum": {"sum": dp.sum("x", bounds=B)},
    "sum of each unit": {"per_unit": dp.sum("x", bounds=B, per="unit")},
    "mean": {"mean": dp.mean("x", bounds=B)},
    "geometric_mean": {"geometric_mean": dp.geometric_mean("x", bounds=(1, 10))},
    "var": {"var": dp.var("x", bounds=B)},
    "std": {"std": dp.std("x", bounds=B)},
    "cov": {"cov": dp.cov("x", "y", bounds=(B, B))},
    "corr": {"corr": dp.corr("x", "y", bounds=(B, B))},
    "together": {"sum": dp.sum("x", bounds=B), "mean": dp.mean("x", bounds=B), "count": dp.count("x")},
}


def few_enough(missed, groups, confidence):
    return missed <= stats.binom.isf(FALSE_ALARM, groups, 1 - confidence)


def missed_by(low, high, exact):
    """Return in how many groups an interval misses. Scaling a unit's sum to the cap rounds it by less than 1e-4."""
    slack = 1e-4 * np.maximum(1, np.abs(exact))
    return int((~((low <= exact + slack) & (exact - slack <= high))).sum())


@pytest.fixture(scope="module")
def data():
    made = {size: rows_of(*size) for size in (SMALL, FEW, LARGE)}
    return {size: (rows, truth_of(rows)) for size, rows in made.items()}


LINEAR = ("count", "count_units", "n_unique", "sum", "sum of each unit")


@pytest.mark.slow
@pytest.mark.parametrize("spend", SPENDS, ids=str)
@pytest.mark.parametrize(
    ("asked", "size"), [(own, size) for own in ASKED for size in (SMALL if own in LINEAR else FEW, LARGE)], ids=str
)
def test_intervals_of_capped_answers_cover(asked, spend, size, data):
    rows, truth = data[size]
    paying = session()
    ask = dp.private(rows, paying).group_by("k")
    for confidence in CONFIDENCES:  # the second one presents the same noisy numbers
        found = ask.agg(**ASKED[asked], keys=range(size[1]), confidence=confidence, **spend)
        table = found.join(truth, on="k", suffix="_true")
        for name in ASKED[asked]:
            low, high, exact = (table[f"{name}{end}"].to_numpy() for end in ("_low", "_high", "_true"))
            assert few_enough(missed_by(low, high, exact), size[1], confidence), (name, confidence)
    assert len(paying.releases) == 1
    (plan,) = [release.plan for release in paying.releases]
    kinds = {own.noise.mechanism for own in plan.measurements if own.noise is not None}
    assert kinds == {spend["mechanism"]}


@pytest.mark.slow
@pytest.mark.parametrize("size", [FEW, LARGE], ids=str)
@pytest.mark.parametrize("spend", SPENDS, ids=str)
def test_slopes_and_intercepts_of_capped_rows_cover(spend, size, data):
    rows, truth = data[size]
    line = dp.linear_regression("x", "y", bounds=(B, B))
    more = {**spend, **({"epsilon": 8.0} if "epsilon" in spend else {"rho": 2.0})}
    ask = dp.private(rows, session()).group_by("k")
    for confidence in CONFIDENCES:
        found = ask.agg(line, keys=range(size[1]), confidence=confidence, **more).join(truth, on="k")
        inner = found["linear_regression"].struct.unnest()
        for name in ("slope", "intercept"):
            low, high = inner[f"{name}_low"].to_numpy(), inner[f"{name}_high"].to_numpy()
            assert few_enough(missed_by(low, high, found[name].to_numpy()), size[1], confidence), (name, confidence)
    if size[0] > 100:
        assert (inner["slope_high"] - inner["slope_low"]).is_finite().any()


@pytest.mark.slow
@pytest.mark.parametrize("size", [FEW, LARGE], ids=str)
@pytest.mark.parametrize("spend", SPENDS, ids=str)
def test_bins_of_capped_rows_cover(spend, size, data):
    rows, _ = data[size]
    kept = rows.with_columns(w=(CAP / pl.len().over("who")).clip(upper_bound=1))
    inside = [pl.col("z").is_between(*ends, closed="left") for ends in itertools.pairwise([*EDGES[:-1], 10.1])]
    truth = kept.group_by("k").agg((pl.col("w") * one).sum().alias(str(i)) for i, one in enumerate(inside)).sort("k")
    ask = dp.private(rows, session())
    for confidence in CONFIDENCES:
        found = ask.histogram("z", by="k", edges=EDGES, keys=range(size[1]), confidence=confidence, **spend)
        own = next(name for name in found.columns if name.endswith("_low") and name not in ("bin_low", "low"))
        for place in range(len(inside)):
            table = found.sort("k", maintain_order=True).group_by("k", maintain_order=True).agg(pl.all().get(place))
            low, high = table[own].to_numpy(), table[own.removesuffix("_low") + "_high"].to_numpy()
            missed = missed_by(low, high, truth[str(place)].to_numpy())
            assert few_enough(missed, size[1], confidence), (place, confidence)


@pytest.mark.slow
@pytest.mark.parametrize("size", [FEW, LARGE], ids=str)
@pytest.mark.parametrize("spend", [{"epsilon": 4.0}, {"rho": 0.5}], ids=str)
@pytest.mark.parametrize("interval", ["rank", "value"])
def test_ranks_and_values_of_capped_medians_cover(interval, spend, size, data):
    """The rows of a unit have one value of z, so two copies of it are left, whichever rows the hash keeps."""
    rows, _ = data[size]
    kept = rows.filter(pl.int_range(pl.len()).over("who") < CAP)
    values = {key: np.sort(part["z"].to_numpy()) for (key,), part in kept.partition_by("k", as_dict=True).items()}
    step = 10 / 2**19  # values are rounded to the grid
    for confidence in CONFIDENCES:
        ask = dp.private(rows, session())
        words = {"bounds": B, "keys": range(size[1]), "confidence": confidence, **spend}
        found = ask.median("z", by="k", interval=interval, **words).sort("k")
        missed = 0
        for row in found.iter_rows(named=True):
            own = values[row["k"]]
            if interval == "value":
                missed += not row["z_low"] - step <= np.median(own) <= row["z_high"] + step
            else:
                below, upto = (own < row["z"] - step).sum(), (own <= row["z"] + step).sum()
                wanted, off = len(own) / 2, row["z_rank_error"]
                missed += below > wanted + off or upto < wanted - off
        assert few_enough(missed, size[1], confidence), confidence


@pytest.mark.slow
@pytest.mark.parametrize("spend", SPENDS, ids=str)
@pytest.mark.parametrize(
    "asked",
    [
        {"count": dp.count()},
        {"count_units": dp.count_units()},
        {"n_unique": dp.n_unique("d"), "count_units": dp.count_units()},
        {"sum": dp.sum("x", bounds=B), "count": dp.count()},
        {"mean": dp.mean("x", bounds=B)},
        {"var": dp.var("x", bounds=B)},
    ],
    ids=lambda asked: " and ".join(asked) if isinstance(asked, dict) else "",
)
def test_intervals_of_discovered_groups_cover_those_that_are_shown(asked, spend):
    """Groups of all sizes around the threshold: those that are shown are the lucky ones."""
    number = 800 if asked.keys() <= {"count", "count_units", "n_unique"} else 300
    ask = dp.private(rows_of(1, 1), session()).preview.group_by("k")
    needed = ask.agg(**asked, confidence=0.9, **spend).units_needed
    sizes = np.random.default_rng(5).integers(needed // 4, needed + needed // 4, number)
    starts = np.repeat(np.arange(number), sizes)
    rows = rows_of(1, int(sizes.sum()))
    rows = rows.with_columns(pl.Series("k", starts[rows["who"].to_numpy()]))
    truth = truth_of(rows)
    paying = session()
    for confidence in CONFIDENCES:
        found = (
            dp.private(rows, paying, name="rows", data_version="1")
            .group_by("k")
            .agg(**asked, confidence=confidence, **spend)
        )
        assert 40 < found.height < number
        table = found.join(truth, on="k", suffix="_true")
        for name in asked:
            low, high, exact = (table[f"{name}{end}"].to_numpy() for end in ("_low", "_high", "_true"))
            assert few_enough(missed_by(low, high, exact), found.height, confidence), (name, confidence)
    assert len(paying.releases) == 1
