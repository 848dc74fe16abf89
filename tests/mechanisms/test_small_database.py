"""The small database mechanism: every multiset comes once, and the law and the privacy of the choice are enumerated."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._many.synthesis_release import small_queries
from dp_polars.mechanisms import _small_database as small_database
from dp_polars.mechanisms._small_database import choose_small_database, multisets, number_of_multisets
from tests.bits import SeededBits
from tests.many.test_synthesis import plan_of
from tests.statistics import chi_square_fits

FRAME = pl.DataFrame({"user": [1], "x": [True], "y": [True]})


@pytest.mark.parametrize(("cells", "elements"), [(1, 1), (1, 5), (2, 1), (4, 2), (3, 3), (3, 7), (5, 4), (40, 2)])
def test_every_multiset_comes_once(cells, elements):
    found = [tuple(row) for chunk in multisets(cells, elements) for row in chunk.tolist()]
    listed = [Counter(one) for one in combinations_with_replacement(range(cells), elements)]
    expected = {tuple(one[cell] for cell in range(cells)) for one in listed}
    assert set(found) == expected
    assert len(found) == len(expected) == number_of_multisets(cells, elements)


def law(histogram, plan, size: int) -> np.ndarray:
    """Return the probability of every candidate for a noisy size, from the definition and one by one."""
    epsilon = plan.granted(1)[1].epsilon
    rate = float(epsilon) / (2 * plan.elements * plan.max_rows * plan.terms.group_size)
    counts, queries = small_queries(histogram, plan)
    scores = []
    for chunk in multisets(plan.domain.size, plan.elements):
        for candidate in chunk:
            off = [
                abs(plan.elements * int(count) - size * int(candidate[cells].sum()))
                for count, cells in zip(counts, queries, strict=True)
            ]
            scores.append(-max(off))
    weights = np.exp(rate * (np.array(scores) - max(scores)))
    return weights / weights.sum()


def moves(histogram, adjacency: str, reach: int):
    """Return all histograms that one protected change can make of a histogram, one row at a time."""
    cells = histogram.size
    steps = [
        step
        for step in product(range(-reach, reach + 1), repeat=cells)
        if sum(s for s in step if s > 0) <= (reach if adjacency == "replace" else (0 if min(step) < 0 else reach))
        and -sum(s for s in step if s < 0) <= (reach if adjacency == "replace" else (0 if max(step) > 0 else reach))
    ]
    for step in steps:
        other = histogram + np.array(step).reshape(histogram.shape)
        if (other >= 0).all() and (other != histogram).any():
            yield other


def worst_loss(adjacency: str, together: int, rate: int = 1) -> float:
    """Return the largest loss of size and choice together over all outcomes and neighbours, relative to the charge."""
    session = dp.Session(epsilon=2, unit="user", adjacency=adjacency, group_size=together)
    rows = 2 if together == 1 else 1
    plan = plan_of(["x", "y"], session=session, frame=FRAME, method="small_database", alpha=0.7, rows=rows)
    assert plan.elements == 3
    histogram, worst = np.array([[5, 0], [2, 1]]), 0.0
    scale = float(plan.size_noise.parameter)
    for other in moves(histogram, adjacency, rows * together):
        for size in (1, 5, 8, 12):
            here, there = (law(own, plan, size) ** rate for own in (histogram, other))
            here, there = here / here.sum(), there / there.sum()
            counted = (abs(size - other.sum()) - abs(size - histogram.sum())) / scale
            worst = max(worst, float(np.abs(np.log(here / there) + counted).max()))
    return worst / float(plan.cost.epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("together", [1, 2])
def test_no_outcome_is_likelier_than_the_charge_allows(adjacency, together):
    assert 0.3 < worst_loss(adjacency, together) <= 1 + 1e-9


@pytest.mark.slow
def test_a_choice_as_of_twice_the_epsilon_is_caught():
    assert worst_loss("replace", 1, rate=2) > 1


@pytest.mark.slow
def test_the_choice_has_this_law():
    plan = plan_of(["x"], frame=FRAME, method="small_database", alpha=0.5, rows=1)
    histogram, size = np.array([3, 9]), 11
    counts, queries = small_queries(histogram, plan)
    candidates = [tuple(row) for chunk in multisets(2, plan.elements) for row in chunk.tolist()]
    source, drawn = SeededBits(5), []
    for _ in range(4000):
        chosen = choose_small_database(
            counts,
            queries,
            elements=plan.elements,
            size=size,
            reach=1,
            epsilon=plan.granted(1)[1].epsilon,
            source=source,
        )
        drawn.append(candidates.index(tuple(chosen.tolist())))
    assert chi_square_fits(drawn, dict(enumerate(law(histogram, plan, size))))


def test_queries_are_the_counts_of_a_workload():
    plan = plan_of(
        ["x", "y"],
        frame=FRAME,
        method="small_database",
        alpha=0.7,
        queries=[pl.col("x") & pl.col("y"), pl.col("x"), pl.lit(True)],
    )
    counts, queries = small_queries(np.array([[1, 2], [3, 4]]), plan)
    assert counts.tolist() == [4, 7, 10]
    assert queries.astype(int).tolist() == [[0, 0, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]]
    assert plan.elements == math.ceil(math.log(3) / 0.49)


def test_millions_of_candidates_are_scored_in_chunks():
    queries = np.array([[1, 0, 0, 1, 0, 1, 0], [0, 1, 1, 0, 1, 0, 1]], bool)
    scores = small_database.scores_of(np.array([30, 10]), queries, 12, 40)
    assert len(scores) == number_of_multisets(7, 12) == 18_564
    assert scores.max() == 0
    chosen = choose_small_database(
        np.array([30, 10]), queries, elements=12, size=40, reach=1, epsilon=Fraction(1000), source=SeededBits(1)
    )
    assert (chosen @ queries.T).tolist() == [9, 3]


def test_few_values_are_chosen_near_the_data():
    frame = pl.DataFrame({"user": range(900), "x": [True, True, False] * 300})
    with dp.Session(epsilon=10, unit="user", max_rows_per_group=1):
        made = frame.dp.synthesize(["x"], method="small_database", alpha=0.25, epsilon=8)
    assert made.entry.cost.epsilon == 8
    assert abs(made.distribution.filter("x")["probability"].item() - 2 / 3) < 0.1
