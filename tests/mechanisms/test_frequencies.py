"""Frequencies behind responses are unbiased and have the right errors, by groups, from frames and from series."""

import itertools
import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy import optimize

import dp_polars as dp
from dp_polars.errors import InvalidDataError, InvalidParameterError
from dp_polars.mechanisms.randomized_response import channel_of
from tests.bits import SeededBits
from tests.statistics import binomial_fits


@pytest.mark.slow
@pytest.mark.parametrize("resample", [Fraction(1, 4), Fraction(2, 3)], ids=str)
@pytest.mark.parametrize(("size", "true_codes"), [(2, [0, 1, 1, 1]), (3, [0, 0, 2]), (5, [4, 1])])
def test_the_classroom_estimate_is_unbiased_exactly(size, true_codes, resample):
    """Enumerate all possible responses with their exact probabilities; the variance is that of independent coins."""
    laws = [[resample / size + (1 - resample) * (y == x) for y in range(size)] for x in true_codes]
    mean, square = np.zeros(size), np.zeros(size)
    for codes in itertools.product(range(size), repeat=len(true_codes)):
        chance = float(math.prod(law[code] for law, code in zip(laws, codes, strict=True)))
        estimate = dp.estimate_frequencies(np.array(codes), resample=resample, categories=list(range(size)))
        frequency = estimate["frequency"].to_numpy()
        mean += chance * frequency
        square += chance * frequency**2
    share = np.bincount(true_codes, minlength=size) / len(true_codes)
    assert mean == pytest.approx(share, abs=1e-10)
    deviation = channel_of(size, None, resample).deviation(share) / math.sqrt(len(true_codes))
    assert square - mean**2 == pytest.approx(deviation**2, rel=1e-9)


@pytest.mark.parametrize("law", [{"epsilon": 1}, {"resample": Fraction(1, 2)}], ids=str)
def test_estimates_are_within_their_errors(law):
    """Three z-scores exceed 5.5 with probability 1e-7, and the seed is fixed."""
    codes = np.repeat([0, 1, 2], [100_000, 60_000, 40_000])
    out = channel_of(3, law.get("epsilon"), law.get("resample")).respond(codes, SeededBits(2))
    estimate = dp.estimate_frequencies(out, categories=[0, 1, 2], **law)
    z = (estimate["frequency"].to_numpy() - [0.5, 0.3, 0.2]) / estimate["standard_error"].to_numpy()
    assert np.abs(z).max() < 5.5
    # A wrong law is noticed, because the estimates of the other form are off by many standard errors.
    wrong = dp.estimate_frequencies(out, categories=[0, 1, 2], epsilon=0.5)
    assert (np.abs(wrong["frequency"].to_numpy() - [0.5, 0.3, 0.2]) / wrong["standard_error"].to_numpy()).max() > 10


@pytest.mark.slow
def test_intervals_cover():
    """The 90 % interval of each of three frequencies covers in 500 data sets of 5000 responses (false alarm 1e-7)."""
    channel, codes = channel_of(3, 1, None), np.repeat([0, 1, 2], [3000, 1500, 500])
    truth, covered = np.array([0.6, 0.3, 0.1]), np.zeros(3, int)
    source = SeededBits(9)
    for _ in range(500):
        out = channel.respond(codes, source)
        estimate = dp.estimate_frequencies(out, epsilon=1, categories=[0, 1, 2], confidence=0.9)
        covered += (estimate["frequency_low"].to_numpy() <= truth) & (truth <= estimate["frequency_high"].to_numpy())
    for inside in covered.tolist():
        assert binomial_fits(inside, 500, 0.9)


def test_groups_are_estimated_each_on_its_own():
    frame = pl.DataFrame(
        {
            "vote": ["y", "n", "y", "y", "n", "n", "y"],
            "region": ["b", "b", "a", "a", None, "a", "a"],
            "year": [1, 1, 1, 1, 1, 2, 2],
        }
    )
    words = {"epsilon": 1.0, "categories": ["n", "y"]}
    found = dp.estimate_frequencies(frame, "vote", by=["region", "year"], confidence=0.9, **words)
    assert found.columns == [
        "region", "year", "category", "frequency", "standard_error", "frequency_low", "frequency_high", "responses",
    ]  # fmt: skip
    keys = [(None, 1), ("a", 1), ("a", 2), ("b", 1)]
    assert found.select("region", "year").unique(maintain_order=True).rows() == keys
    for region, year in keys:
        mine = pl.col("region").eq_missing(pl.lit(region)) & (pl.col("year") == year)
        group = frame.filter(mine)
        alone = dp.estimate_frequencies(group["vote"], confidence=0.9, **words)
        assert_frame_equal(found.filter(mine).select(alone.columns), alone)
        assert found.filter(mine)["responses"].to_list() == [group.height] * 2
    assert_frame_equal(
        dp.estimate_frequencies(frame.lazy(), "vote", by="region", **words),
        dp.estimate_frequencies(frame, "vote", by=["region"], **words),
    )
    assert_frame_equal(
        dp.estimate_frequencies(frame.select("vote", "region"), by="region", **words),
        dp.estimate_frequencies(frame, "vote", by="region", **words),
    )


def test_frames_and_series_of_bools_count_null_as_a_category_and_arrays_do_not():
    series = pl.Series("b", [True, False, True])
    assert dp.estimate_frequencies(series, epsilon=1)["category"].to_list() == [False, True, None]
    assert dp.estimate_frequencies(series.to_frame(), epsilon=1)["category"].to_list() == [False, True, None]
    assert dp.estimate_frequencies(series.to_numpy(), epsilon=1)["category"].to_list() == [False, True]
    two = dp.estimate_frequencies(series, epsilon=1, categories=[False, True])
    assert two["frequency"].to_list() == dp.estimate_frequencies(series.to_numpy(), epsilon=1)["frequency"].to_list()
    assert dp.mechanisms.estimate_frequencies is dp.estimate_frequencies


@pytest.mark.parametrize("counts", [[0, 0, 10], [1, 9, 0], [3, 3, 4], [100, 0, 0, 1, 0], [1, 1]])
def test_nonnegative_is_the_nearest_point_of_the_simplex(counts):
    """Compare with scipy's least squares on the simplex."""
    responses, words = np.repeat(np.arange(len(counts)), counts), {"epsilon": 0.5, "categories": range(len(counts))}
    plain = dp.estimate_frequencies(responses, confidence=0.95, **words)
    shown = dp.estimate_frequencies(responses, confidence=0.95, nonnegative=True, **words)
    frequency = shown["frequency"].to_numpy()
    assert frequency.min() >= 0
    assert frequency.sum() == pytest.approx(1)
    target = plain["frequency"].to_numpy()
    best = optimize.minimize(
        lambda x: ((x - target) ** 2).sum(),
        np.full(len(counts), 1 / len(counts)),
        bounds=[(0, 1)] * len(counts),
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        tol=1e-12,
    )
    assert frequency == pytest.approx(best.x, abs=1e-5)
    assert shown["standard_error"].to_list() == plain["standard_error"].to_list()
    assert shown["frequency_low"].to_list() == plain["frequency_low"].clip(0, 1).to_list()
    assert shown["frequency_high"].to_list() == plain["frequency_high"].clip(0, 1).to_list()


FRAME = pl.DataFrame({"vote": ["a", "b"], "category": [1, 2], "region": ["x", "y"]})


@pytest.mark.parametrize(
    ("responses", "column", "words", "message"),
    [
        (FRAME, None, {}, "Say which column"),
        (FRAME, "nope", {}, "no column nope"),
        (FRAME, "vote", {"by": "nope"}, "no column nope"),
        (FRAME, "vote", {"by": ["region", "region"]}, "each column once"),
        (FRAME, "vote", {"by": "vote"}, "each column once"),
        (FRAME, "vote", {"by": "category"}, "Rename it"),
        (FRAME["vote"], "vote", {}, "columns of a frame"),
        (FRAME["vote"], None, {"by": "region"}, "columns of a frame"),
        (FRAME, "vote", {"confidence": 1.5}, "confidence"),
        (FRAME, "vote", {"nonnegative": 1}, "nonnegative"),
        (FRAME, "vote", {"resample": 0.5}, "not both"),
        (FRAME, "vote", {"epsilon": None}, "Say epsilon="),
        (FRAME, "vote", {"categories": None}, "need categories"),
        (FRAME, "region", {}, "not among the categories"),
        (FRAME.clear(), "vote", {}, "empty"),
        (FRAME.clear(), "vote", {"by": "region"}, "empty"),
    ],
)
def test_what_is_refused(responses, column, words, message):
    with pytest.raises((InvalidParameterError, InvalidDataError), match=message):
        dp.estimate_frequencies(responses, column, **{"epsilon": 1.0, "categories": ["a", "b"], **words})


def test_responses_that_were_made_otherwise_are_warned_of():
    """With two categories responded and three estimated, the third would be far below 0."""
    truth = pl.Series([True, False] * 5_000)
    answers = dp.mechanisms.randomized_response(truth, epsilon=1.0, categories=[True, False])
    with pytest.warns(dp.DPWarning, match="categories"):
        dp.estimate_frequencies(answers, epsilon=1.0)
    dp.estimate_frequencies(answers, epsilon=1.0, categories=[True, False])
