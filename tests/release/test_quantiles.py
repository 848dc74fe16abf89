"""Quantiles are as near as the exponential mechanism promises, never cross, and cost as much as their levels."""

import itertools
import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from dp_polars._plan.grid import Grid
from dp_polars._plan.statistics import Statistic
from dp_polars._release.quantiles import _Descent, choose_values
from tests.bits import SeededBits
from tests.mechanisms.test_quantiles import law_of

QUARTILES = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))


def statistic_of(targets, low, high, max_rows=1):
    grid = Grid(exponent=0, offset=Fraction(0), low=low, high=high)
    return Statistic(
        name="v", source="choice", what="values", weight=Fraction(1), grid=grid, max_rows=max_rows, targets=targets
    )


def cells_of(groups):
    rows = [(group, value, n) for group, cells in enumerate(groups) for value, n in cells]
    return pl.DataFrame(rows, schema={"group": pl.Int64, "value": pl.Int64, "count": pl.Int64}, orient="row")


def drawn(groups, statistic, epsilon, seed=1):
    return choose_values(cells_of(groups), np.arange(len(groups)), statistic, Fraction(epsilon), SeededBits(seed))


@pytest.mark.slow
@pytest.mark.parametrize("quantile", [Fraction(1, 10), Fraction(1, 2), Fraction(95, 100)])
def test_the_rank_is_within_what_the_mechanism_promises(quantile):
    """The regret exceeds (2 D / epsilon)(ln |R| + t) with probability e**-t: below 3e-7 for 300 groups and t = 21."""
    generator = np.random.default_rng(3)
    epsilon, high, n = 0.5, 100_000, 4000
    groups, ordered = [], []
    for _ in range(300):
        values = np.sort(np.clip(generator.lognormal(9, 1, n), 0, high).astype(int))
        ordered.append(values)
        groups.append(list(zip(*(array.tolist() for array in np.unique(values, return_counts=True)), strict=True)))
    answers = drawn(groups, statistic_of((quantile,), 0, high), Fraction(1, 2))[:, 0]
    worst = max(quantile, 1 - quantile)
    promised = 2 * float(worst) / epsilon * (math.log(high + 1) + 21)
    for values, answer in zip(ordered, answers, strict=True):
        below, at = np.searchsorted(values, answer, "left"), np.searchsorted(values, answer, "right")
        regret = max(0, below - float(quantile) * n, float(quantile) * n - at)
        assert regret <= promised


def test_several_never_cross_and_stay_within_the_bounds():
    generator = np.random.default_rng(4)
    groups = []
    for size in (0, 1, 2, 3, 10, 1000):
        values = generator.integers(-5, 6, size)
        groups += [list(zip(*(a.tolist() for a in np.unique(values, return_counts=True)), strict=True))] * 200
    targets = tuple(Fraction(i, 10) for i in range(11))
    for epsilon in (Fraction(1, 100), Fraction(1), Fraction(100)):
        answers = drawn(groups, statistic_of(targets, -5, 5), epsilon)
        assert (np.diff(answers, axis=1) >= 0).all()
        assert answers.min() >= -5
        assert answers.max() <= 5


def test_constant_columns_and_ties_are_found():
    """All quantiles of a constant column are its value, although most candidates lie elsewhere (false alarm: 1e-30)."""
    groups = [[(7, 500)], [(0, 10), (3, 980), (9, 10)]]
    answers = drawn(groups, statistic_of(QUARTILES, 0, 1000), Fraction(2))
    assert answers.tolist() == [[7, 7, 7], [3, 3, 3]]


@pytest.mark.slow
def test_the_ends_are_a_little_inside():
    """They aim 2 (ln n + 5) rows inside, so all candidates beyond weigh at most e**-5: about 2 of 300 draws, not 20."""
    groups = [[(value, 1) for value in range(100, 900)]] * 300
    for target, side in ((Fraction(0), 100), (Fraction(1), 899)):
        answers = drawn(groups, statistic_of((target,), 0, 999), Fraction(1))[:, 0]
        assert np.abs(np.median(answers) - side) == pytest.approx(2 * (math.log(1000) + 5), abs=4)
        assert ((answers < 100) | (answers > 899)).sum() < 20


# ---------------------------------------------------------------- the price of several


def law_of_several(cells, low, high, statistic, epsilon):
    """Return the probability of each answer, by walking the descent with all outcomes instead of one."""
    descent = _Descent(None, None, statistic, epsilon, None)

    def walk(first, last, cells, low, high, ranks):
        if first == last:
            return {(): 1.0}
        middle = (first + last) // 2
        quantile = statistic.targets[middle]
        target, rate = descent._target((quantile - ranks[0]) / (ranks[1] - ranks[0]))
        found = {}
        for point, chance in law_of(cells, low, high, target, rate).items():
            ties = dict(cells).get(point, 0)
            left = [(v, n) for v, n in cells if v < point] + ([(point, ties - ties // 2)] if ties else [])
            right = ([(point, ties // 2)] if ties // 2 else []) + [(v, n) for v, n in cells if v > point]
            lower = walk(first, middle, left, low, point, (ranks[0], quantile))
            upper = walk(middle + 1, last, right, point, high, (quantile, ranks[1]))
            for (before, p), (after, q) in itertools.product(lower.items(), upper.items()):
                answer = (*before, point, *after)
                found[answer] = found.get(answer, 0) + chance * p * q
        return found

    return walk(0, len(statistic.targets), cells, low, high, (Fraction(0), Fraction(1)))


CROWDS = [[], [(0, 1)], [(2, 3)], [(0, 2), (1, 1), (4, 5)], [(1, 4), (3, 4)]]


@pytest.mark.parametrize("crowd", CROWDS)
def test_one_unit_changes_several_answers_by_at_most_two_levels(crowd):
    """This is exact over all answers: three quantiles have two levels, each at the price of one choice."""
    epsilon = Fraction(1)
    statistic = statistic_of(QUARTILES, 0, 4, max_rows=2)
    here = law_of_several(crowd, 0, 4, statistic, epsilon)
    assert sum(here.values()) == pytest.approx(1)
    for rows in itertools.combinations_with_replacement(range(5), 2):
        counts = dict(crowd)
        for value in rows:
            counts[value] = counts.get(value, 0) + 1
        there = law_of_several(sorted(counts.items()), 0, 4, statistic, epsilon)
        assert max(abs(math.log(here[answer] / there[answer])) for answer in here) <= 2 * float(epsilon) + 1e-9


def test_the_descent_draws_from_that_law():
    cells, draws = [(0, 2), (1, 1), (4, 5)], 40_000
    statistic = statistic_of(QUARTILES, 0, 4)
    law = law_of_several(cells, 0, 4, statistic, Fraction(2))
    answers = drawn([cells] * draws, statistic, Fraction(2))
    seen = dict(zip(*np.unique(answers @ [100, 10, 1], return_counts=True), strict=True))
    statistic = degrees = 0
    for answer, chance in law.items():
        expected = chance * draws
        if expected >= 10:
            statistic += (seen.get(int(np.dot(answer, [100, 10, 1])), 0) - expected) ** 2 / expected
            degrees += 1
    # A chi-square with so many degrees of freedom lies beyond its mean by six deviations with a chance below 1e-6.
    assert statistic < degrees + 6 * math.sqrt(2 * degrees) + 12
