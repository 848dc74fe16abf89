"""The public hypothesis: sums over parts of a domain against a slow reference, and how it fits measurements."""

from __future__ import annotations

import numpy as np
import pytest

from dp_polars.mechanisms._multiplicative_weights import Hypothesis, Partition, over


@pytest.mark.parametrize("dims", [(4,), (2, 3, 4), (2, 1, 3, 2, 2, 3)])
def test_sums_agree_with_numpys_for_all_axes(dims):
    table = np.random.default_rng(1).integers(0, 2**50, dims)
    for chosen in range(2 ** len(dims)):
        axes = tuple(axis for axis in range(len(dims)) if chosen >> axis & 1)
        others = tuple(axis for axis in range(len(dims)) if axis not in axes)
        expected = table.sum(axis=others) if others else table
        found = over(table, axes)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, expected)


def test_parts_are_summed_exactly_and_spread_back():
    table = np.arange(24).reshape(2, 3, 4) + 2**60
    mask = np.array([[True, False, False, True], [False] * 4, [True] * 4])
    partition = Partition.of_predicate((1, 2), mask)
    inside = sum(int(table[:, i, j].astype(object).sum()) for i in range(3) for j in range(4) if mask[i, j])
    assert partition.cells == 2
    np.testing.assert_array_equal(partition.mask, mask)
    small = table - 2**60
    assert partition.totals(small).tolist() == [int(small.sum()) - (inside - 2**60 * 12), inside - 2**60 * 12]
    np.testing.assert_array_equal(partition.spread(np.array([1.0, 5.0])), np.where(mask, 5.0, 1.0))
    assert Partition((), ()).totals(small).tolist() == [small.sum()]


def test_a_fit_meets_measurements_that_agree():
    truth = np.random.default_rng(2).dirichlet(np.full(24, 0.5)).reshape(2, 3, 4) * 10_000
    parts = [Partition((0, 1), (2, 3)), Partition((1, 2), (3, 4)), Partition((0, 2), (2, 4))]
    guess = Hypothesis((2, 3, 4))
    guess.fit([(part, part.totals(truth), 1.0) for part in parts], 10_000, 400)
    assert guess.weights.sum() == pytest.approx(1)
    for part in parts:
        assert np.abs(part.totals(guess.weights) * 10_000 - part.totals(truth)).max() < 5


def test_weights_never_vanish():
    guess = Hypothesis((2,))
    for _ in range(1000):
        guess.learn((0,), np.array([True, False]), -1.0)
    assert guess.weights.min() > 0
    assert guess.weights.sum() == pytest.approx(1)
