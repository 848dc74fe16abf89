"""Intervals of quantiles: ranks and values are covered with the stated confidence, exactly and in many groups at once.

The exact tests enumerate the law of the exponential mechanism over all candidates and add up the probabilities of
answers that an interval misses. The others release many groups at once, and fail by chance less than once in 10**7.
"""

import datetime
import itertools
import math
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from scipy import stats

import dp_polars as dp
from dp_polars._plan.ranks import distance_within, end_rows, rank_error, rank_ranges
from dp_polars._release.quantiles import _Descent, _with_rows, choose_values
from tests.bits import SeededBits
from tests.mechanisms.test_quantiles import law_of
from tests.release.test_quantiles import QUARTILES, cells_of, law_of_several, statistic_of
from tests.statistics import chi_square_fits

FALSE_ALARM = 1e-7
MISS = 0.1
HIGH = 40
HALF = Fraction(1, 2)

CROWDS = {
    "nobody": [],
    "one row": [(7, 1)],
    "all at the top": [(HIGH, 30)],
    "all at the bottom": [(0, 30)],
    "spread": [(place, 1) for place in range(5, 36)],
    "two heaps": [(3, 14), (30, 15)],
    "a heap and a tail": [(0, 18), *((place, 1) for place in range(20, 32))],
}


def ranks_of(point, cells):
    """Return the ranks of a point: the rows below it, and these with the rows at it."""
    below = sum(n for value, n in cells if value < point)
    return below, below + sum(n for value, n in cells if value == point)


def law_of_one(cells, statistic, epsilon):
    (quantile,) = statistic.targets
    return law_of(cells, 0, HIGH, *_Descent(None, None, statistic, epsilon, None)._target(quantile))


@pytest.mark.parametrize("crowd", CROWDS)
@pytest.mark.parametrize("quantile", [Fraction(1, 2), Fraction(1, 10), Fraction(9, 10), Fraction(0), Fraction(1)])
def test_the_rank_of_one_choice_is_within_its_error(quantile, crowd):
    cells = CROWDS[crowd]
    rows = sum(n for _, n in cells)
    for epsilon, max_rows, miss in itertools.product((Fraction(1, 3), Fraction(1), Fraction(4)), (1, 3), (0.05, 0.3)):
        statistic = statistic_of((quantile,), 0, HIGH, max_rows)
        off = rank_error(statistic, epsilon, miss)
        missed = 0.0
        for point, chance in law_of_one(cells, statistic, epsilon).items():
            first, last = ranks_of(point, cells)
            missed += chance * (first > quantile * rows + off or last < quantile * rows - off)
        assert missed <= miss + 1e-12


@pytest.mark.parametrize("quantile", [Fraction(1, 2), Fraction(1, 10), Fraction(9, 10)])
def test_the_error_of_a_rank_can_hardly_be_smaller(quantile):
    """With all rows at one end, all other candidates are equally far off: just beyond the error."""
    epsilon = Fraction(1)
    statistic = statistic_of((quantile,), 0, HIGH)
    off = distance_within(statistic, epsilon, quantile, MISS)
    end, part = (HIGH, quantile) if quantile <= HALF else (0, 1 - quantile)
    cells = [(end, math.ceil(off / float(part)) + 1)]
    law = law_of_one(cells, statistic, epsilon)
    assert MISS / 2 < 1 - law[end] <= MISS


@pytest.mark.parametrize("crowd", [name for name, cells in CROWDS.items() if sum(n for _, n in cells) <= 31])
@pytest.mark.parametrize("targets", [QUARTILES, (HALF, Fraction(1)), (Fraction(0), Fraction(1, 5), HALF)], ids=str)
def test_the_ranks_of_several_quantiles_are_within_their_ranges(targets, crowd):
    cells = [(value // 4, n) for value, n in CROWDS[crowd]]  # fewer candidates, so that all answers can be listed
    cells = [(value, sum(n for _, n in own)) for value, own in itertools.groupby(cells, key=lambda cell: cell[0])]
    rows = sum(n for _, n in cells)
    for epsilon, miss in itertools.product((Fraction(1), Fraction(6)), (0.05, 0.3)):
        statistic = statistic_of(targets, 0, HIGH // 4)
        found = rank_ranges(statistic, epsilon, miss)
        missed = dict.fromkeys(targets, 0.0)
        for answer, chance in law_of_several(cells, 0, HIGH // 4, statistic, epsilon).items():
            for target, point in zip(targets, answer, strict=True):
                first, last = ranks_of(point, cells)
                own = found[target]
                out = first > float(own.high) * rows + own.above or last < float(own.low) * rows - own.below
                missed[target] += chance * out
        assert max(missed.values()) <= miss + 1e-12


def test_rows_of_equal_value_move_later_quantiles_by_as_much_as_stated():
    """60 of 100 rows have the value 0, and half of them stay above the median, so the upper quartile has rank 65."""
    cells = [(0, 60), *((place, 1) for place in range(1, 41))]
    statistic = statistic_of(QUARTILES, 0, HIGH)
    epsilon = Fraction(1000)
    answer = choose_values(cells_of([cells]), np.arange(1), statistic, epsilon, SeededBits(1))[0, 2]
    assert ranks_of(answer, cells) == (64, 65)
    own = rank_ranges(statistic, epsilon, 0.01)[QUARTILES[2]]
    assert (own.low, own.high) == (Fraction(5, 8), Fraction(7, 8))
    assert own.below < 0.2
    assert own.above < 0.5


# ---------------------------------------------------------------------- intervals of values


def law_of_end(cells, statistic, epsilon, lower, miss):
    """Return the law of an end: that of a quantile of the data and the rows that are added at a bound."""
    extra = end_rows(statistic, epsilon, statistic.targets[0], lower=lower, miss=miss)
    counts = dict(cells)
    bound = 0 if lower else HIGH
    counts[bound] = counts.get(bound, 0) + extra
    return law_of_one(sorted(counts.items()), statistic, epsilon)


@pytest.mark.parametrize("crowd", [name for name in CROWDS if name != "nobody"])
@pytest.mark.parametrize("quantile", [Fraction(1, 2), Fraction(1, 10), Fraction(9, 10), Fraction(1, 10**4)])
def test_the_ends_of_an_interval_lie_on_the_right_sides(quantile, crowd):
    values = np.repeat(*(np.array(column) for column in zip(*CROWDS[crowd], strict=True)))
    rules = ("linear", "lower", "higher", "hazen", "weibull", "inverted_cdf", "interpolated_inverted_cdf")
    exact = [np.quantile(values, float(quantile), method=rule) for rule in rules]
    for epsilon, max_rows, miss in itertools.product((Fraction(1, 3), Fraction(4)), (1, 3), (0.05, 0.3)):
        statistic = statistic_of((quantile,), 0, HIGH, max_rows)
        low, high = (law_of_end(CROWDS[crowd], statistic, epsilon, lower, miss) for lower in (True, False))
        assert sum(chance for point, chance in low.items() if point > min(exact) + 1e-9) <= miss + 1e-12
        assert sum(chance for point, chance in high.items() if point < max(exact) - 1e-9) <= miss + 1e-12


@pytest.mark.parametrize("crowd", CROWDS)
def test_one_unit_changes_the_law_of_an_end_by_at_most_epsilon(crowd):
    """Try all ways to add two rows of a unit (epsilon) and to replace them (1 / max(q, 1 - q) times as much)."""
    epsilon = Fraction(1, 2)
    for quantile, lower in itertools.product((HALF, Fraction(1, 5)), (True, False)):
        statistic = statistic_of((quantile,), 0, HIGH, max_rows=2)
        here = law_of_end(CROWDS[crowd], statistic, epsilon, lower, MISS)
        others = []
        for rows in itertools.combinations_with_replacement((0, 3, 20, HIGH), 2):
            counts = dict(CROWDS[crowd])
            for value in rows:
                counts[value] = counts.get(value, 0) + 1
            others.append(law_of_end(sorted(counts.items()), statistic, epsilon, lower, MISS))
        for there in others:
            assert max(abs(math.log(here[point] / there[point])) for point in here) <= float(epsilon) + 1e-9
        most = float(epsilon / max(quantile, 1 - quantile))
        for one, other in itertools.combinations(others, 2):
            assert max(abs(math.log(one[point] / other[point])) for point in one) <= most + 1e-9


def test_ends_are_drawn_from_that_law():
    """This includes groups without a row, and groups that have rows at the bound."""
    epsilon, confidence, draws = Fraction(1), 1 - 2 * MISS, 20_000
    statistic = statistic_of((Fraction(1, 5), HALF), 0, HIGH)
    ends = type(statistic)(**{**vars(statistic), "confidence": confidence})
    crowds = [CROWDS[name] for name in ("nobody", "all at the top", "a heap and a tail")]
    drawn = choose_values(cells_of(crowds * draws), np.arange(3 * draws), ends, epsilon, SeededBits(5))
    assert drawn.shape == (3 * draws, 4)
    for group, cells in enumerate(crowds):
        for place, (lower, target) in enumerate(itertools.product((True, False), statistic.targets)):
            own = statistic_of((target,), 0, HIGH)
            assert chi_square_fits(drawn[group::3, place], law_of_end(cells, own, epsilon, lower, MISS), 1e-9)


def test_ends_that_no_data_could_reach_are_the_bounds():
    statistic = statistic_of((HALF,), 0, HIGH, max_rows=10**9)
    ends = type(statistic)(**{**vars(statistic), "confidence": 0.95})
    epsilon = Fraction(1, 10**6)
    assert end_rows(statistic, epsilon, HALF, lower=True, miss=MISS) is None
    assert choose_values(cells_of([[(7, 5)]]), np.arange(1), ends, epsilon, SeededBits(1)).tolist() == [[0, HIGH]]


# ---------------------------------------------------------------------- through frames


def session(**words):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.DPWarning)
        return dp.Session(**{"epsilon": 200.0, "delta": 1e-6, "unit": "who", "max_groups": 1, **words})


def groups_of(number, size, seed=3):
    """Return groups of units with two rows each, with many equal values, some missing."""
    generator = np.random.default_rng(seed)
    rows = number * size * 2
    values = np.where(generator.random(rows) < 0.3, 5.0, np.round(generator.lognormal(2, 1, rows), 2))
    frame = pl.DataFrame({"who": np.arange(rows) // 2, "k": np.arange(rows) // (2 * size), "x": values})
    return frame.with_columns(x=pl.when(pl.Series(generator.random(rows)) < 0.9).then("x"))


def check_missed(missed, number, confidence):
    assert missed <= stats.binom.isf(FALSE_ALARM, number, 1 - confidence)


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.9, 0.95])
@pytest.mark.parametrize(("number", "size"), [(1_500, 6), (500, 120), (60, 2_000)])
@pytest.mark.parametrize("counted", ["count", "mean", "discovered"])
def test_ranks_cover_in_many_groups(counted, number, size, confidence):
    frame = groups_of(number, size)
    asked = {"n": dp.mean("x", bounds=(0, 50)) if counted == "mean" else dp.count("x")}
    asked |= {"m": dp.median("x", bounds=(0, 50)), "q": dp.quantile("x", [0.9, 0.25], bounds=(0, 50))}
    asked |= {"least": dp.min("x", bounds=(0, 50))}
    keys = {} if counted == "discovered" else {"keys": range(number)}
    found = (
        dp.private(frame, session(max_rows_per_group=2))
        .group_by("k")
        .agg(**asked, **keys, epsilon=20 if counted == "discovered" and size < 100 else 4, confidence=confidence)
    )
    assert found.height > number / 4
    values = {key: part["x"].drop_nulls().to_numpy() for (key,), part in frame.partition_by("k", as_dict=True).items()}
    missed = dict.fromkeys(("m", "q 0", "q 1", "least"), 0)
    for row in found.iter_rows(named=True):
        own = values[row["k"]]
        answers = {"m": (row["m"], row["m_rank_low"], row["m_rank_high"])}
        answers["least"] = (row["least"], row["least_rank_low"], row["least_rank_high"])
        for i in range(2):
            answers[f"q {i}"] = (row["q"][i], row["q_rank_low"][i], row["q_rank_high"][i])
        for name, (answer, low, high) in answers.items():
            assert 0 <= low <= high <= 1
            step = 50 / 2**20  # values were rounded to the grid
            first, last = (own < answer - step).sum() / len(own), (own <= answer + step).sum() / len(own)
            missed[name] += first > high + 1e-9 or last < low - 1e-9
    for own in missed.values():
        check_missed(own, found.height, confidence)
    widths = found["m_rank_high"] - found["m_rank_low"]
    assert widths.max() < 0.2 if size == 2_000 and counted != "mean" else True


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.9, 0.95])
@pytest.mark.parametrize(("number", "size"), [(1_500, 6), (500, 120), (60, 2_000)])
def test_values_cover_in_many_groups(number, size, confidence):
    frame = groups_of(number, size)
    found = (
        dp.private(frame, session(max_rows_per_group=2))
        .group_by("k")
        .agg(
            m=dp.median("x", bounds=(0, 50), interval="value"),
            q=dp.quantile("x", [0.9, 0.25], bounds=(0, 50), interval="value"),
            keys=range(number),
            rho=0.5,
            confidence=confidence,
        )
    )
    exact = frame.group_by("k").agg(
        pl.col("x").clip(0, 50).quantile(quantile, "linear").alias(str(quantile)) for quantile in (0.5, 0.9, 0.25)
    )
    table = found.join(exact, on="k")
    ends = [pl.col("m_low"), pl.col("m_high")], [pl.col(f"q_{end}").list.get(0) for end in ("low", "high")]
    ends = dict(zip(("0.5", "0.9"), ends, strict=True))
    ends["0.25"] = [pl.col(f"q_{end}").list.get(1) for end in ("low", "high")]
    assert table.filter((pl.col("m") < pl.col("m_low")) | (pl.col("m") > pl.col("m_high"))).is_empty()
    for name, (low, high) in ends.items():
        check_missed(table.filter((pl.col(name) < low) | (pl.col(name) > high)).height, number, confidence)
    if size == 2_000:
        assert (table["m_high"] - table["m_low"]).mean() < 4


DAY = datetime.date(2020, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        (pl.int_range(2_001, eager=True), (0, 2_000)),
        (pl.int_range(2_001, eager=True).cast(pl.Float32), (0, 2_000)),
        (pl.int_range(2_001, eager=True).cast(pl.Decimal(10, 2)), (Decimal(0), Decimal(2_000))),
        (pl.date_range(DAY, DAY + datetime.timedelta(2_000), eager=True), (DAY, DAY + datetime.timedelta(2_000))),
        (
            pl.datetime_range(DAY, DAY + datetime.timedelta(2_000), eager=True),
            (datetime.datetime(2020, 1, 1), datetime.datetime(2030, 1, 1)),
        ),
    ],
    ids=lambda given: str(given.dtype) if isinstance(given, pl.Series) else "",
)
def test_ends_have_the_type_of_the_answer(values, bounds):
    """The middle of 2,001 values is missed with a probability below 1e-8."""
    frame = dp.private(pl.DataFrame({"x": values}), session(unit=dp.ROW))
    found = frame.median("x", bounds=bounds, epsilon=10, confidence=1 - 1e-8, interval="value")
    assert found.dtypes[0] == found.dtypes[1] == found.dtypes[2]
    low, high = found["x_low"].item(), found["x_high"].item()
    middle = values.cast(found.dtypes[0])[1_000]
    assert bounds[0] <= low <= middle <= high <= bounds[1]
    assert values.cast(found.dtypes[0]).is_between(low, high).sum() < 400


def test_the_price_of_a_value_interval_is_that_of_its_choices():
    frame = dp.private(groups_of(3, 4), session(max_groups=2, max_rows_per_group=2))
    words = {"bounds": (0, 50), "keys": [0, 1, 2], "confidence": 0.95, "interval": "value"}
    plan = frame.preview.median("x", "k", **words, epsilon=1, mechanism="laplace")
    middle, ends = plan.measurements
    assert (middle.statistic.chosen, ends.statistic.chosen) == (1, 2)
    assert (middle.statistic.weight, ends.statistic.weight) == (Fraction(1, 3), Fraction(2, 3))
    assert 2 * (middle.epsilon + 2 * ends.epsilon) <= 1
    assert middle.epsilon == pytest.approx(1 / 6)
    by_rho = frame.preview.median("x", "k", **words, rho=0.3)
    paid = sum(own.statistic.chosen * own.epsilon**2 / 8 for own in by_rho.measurements) * 2
    assert paid == pytest.approx(0.3)
    assert paid <= Fraction(3, 10)
    assert "33% of the spend" in str(plan)
    assert "67% of the spend" in str(plan)


def test_ranks_are_free_and_another_confidence_of_values_is_not():
    paying = session(max_rows_per_group=2)
    frame = dp.private(groups_of(1, 50), paying)
    frame.median("x", bounds=(0, 50), epsilon=1)
    shown = frame.median("x", bounds=(0, 50), epsilon=1, confidence=0.9)
    assert shown["x_rank_error"].item() < frame.median("x", bounds=(0, 50), epsilon=1, confidence=0.99).row(0)[1]
    assert paying.spent.epsilon == 1
    for confidence in (0.9, 0.95):
        frame.median("x", bounds=(0, 50), epsilon=1, confidence=confidence, interval="value")
    assert paying.spent.epsilon == 3


@pytest.mark.parametrize(("value", "first"), [(-3, True), (5, False)])
def test_rows_at_a_bound_are_added_to_every_group(value, first):
    """The slow reference sorts all cells; some groups are empty, and some have the value already."""
    generator = np.random.default_rng(7)
    rows = pl.DataFrame({"group": generator.integers(0, 40, 150), "value": generator.integers(-3, 6, 150)})
    cells = rows.group_by("group", "value").agg(count=pl.len().cast(pl.Int64)).sort("group", "value")
    for groups in (np.arange(45), np.array([0, 7, 8, 44]), np.array([], np.int64)):
        added = pl.DataFrame({"group": groups, "value": np.full(len(groups), value), "count": np.full(len(groups), 9)})
        wanted = pl.concat([cells, added]).group_by("group", "value").agg(pl.sum("count")).sort("group", "value")
        assert _with_rows(cells, groups, value, 9, first=first).equals(wanted)
        assert _with_rows(cells.clear(), groups, value, 9, first=first).equals(added.sort("group"))
