"""The errors promised for a stream hold for whole streams, and are not wildly larger than needed."""

from fractions import Fraction

import pytest
from scipy import stats

from dp_polars import InvalidParameterError
from dp_polars.mechanisms import sparse_error
from dp_polars.mechanisms.sparse_vector import SparseVector, sparse_scales
from tests.bits import SeededBits

STREAMS, ANSWERS = 400, 25


@pytest.mark.slow
@pytest.mark.parametrize("constants", ["lyu-su-li", "dwork-roth"])
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("hits", [1, 3])
def test_whole_streams_stay_within_the_margin_and_the_value_error(constants, monotone, hits):
    words = {"monotone": monotone, "constants": constants, "delta": None}
    scales = sparse_scales(1, hits, numeric=True, **words)

    def broken(confidence: float, factor: float) -> int:
        """Streams in which some answer beyond the margin is on the wrong side, or some value further off."""
        error = sparse_error(
            answers=ANSWERS, hits=hits, sensitivity=2, epsilon=1, confidence=confidence, numeric=True, **words
        )
        margin, off = error.margin * factor, error.value * factor
        source, count = SeededBits(hits), 0
        for _ in range(STREAMS):
            stream = SparseVector(scales, Fraction(100), Fraction(2), source)
            # Once hits are used up by mistake the stream is closed, which counts as broken.
            below = [stream.ask(100 - margin) for _ in range(ANSWERS - hits) if stream.hits_left]
            above = [stream.ask(100 + margin) if stream.hits_left else None for _ in range(hits)]
            wrong = any(value is not None for value in below) or any(value is None for value in above)
            count += wrong or any(abs(value - 100 - margin) > off for value in above if value is not None)
        return count

    # At most one in ten streams breaks; more than this bound has probability below 1e-7.
    assert broken(0.9, 1.0) <= stats.binom.isf(1e-7, STREAMS, 0.1)
    # A third of the promised error is not enough: the promise means something.
    assert broken(0.9, 1 / 3) > stats.binom.isf(1e-7, STREAMS, 0.1)


def test_what_makes_streams_better():
    base = {"answers": 200, "hits": 2, "sensitivity": 1, "epsilon": 1}
    usual = sparse_error(**base)
    assert usual.value is None
    assert sparse_error(**base, monotone=True).margin < usual.margin
    assert sparse_error(**{**base, "epsilon": 2}).margin == pytest.approx(usual.margin / 2)
    assert sparse_error(**base, confidence=0.99).margin > usual.margin
    assert sparse_error(**base, numeric=True).margin > usual.margin
    assert sparse_error(**base, constants="dwork-roth").margin > usual.margin


@pytest.mark.parametrize(
    "bad", [{"answers": 0}, {"hits": 0}, {"confidence": 1}, {"epsilon": -1}, {"sensitivity": 0}, {"delta": 1e-6}]
)
def test_words_without_meaning_are_refused(bad):
    with pytest.raises(InvalidParameterError):
        sparse_error(**{"answers": 10, "hits": 1, "sensitivity": 1, "epsilon": 1, **bad})
