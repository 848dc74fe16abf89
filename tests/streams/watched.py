"""Streams whose exact numbers a test can see: what a stream that is opened and asked hands to the mechanism."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._streams import stream as streams
from dp_polars.mechanisms import grid
from dp_polars.mechanisms.grid import in_steps
from dp_polars.mechanisms.sparse_vector import SparseScales, SparseVector
from tests.bits import ScriptedBits, SeededBits
from tests.mechanisms.test_sparse_vector import chances, scaled, value_loss_of

COARSE = 6  # log2 of the grid points within the sensitivity: few enough to sum over all noise


class Seen:
    """The numbers that the mechanism of a stream compares with 0. One unit moves each by at most 1."""

    def __init__(self, stream: dp.Stream, answers: list[Fraction], vector: SparseVector) -> None:
        self.plan, self.answers = stream.plan, answers
        self.points = tuple(round(in_steps(answer, vector._exponent)) for answer in answers)
        self.scales = scaled(stream.plan.scales, vector._steps)


def watch(private, queries, *, words=None, **opening) -> Seen:
    """Open a stream that never has a hit and ask it. Each unit keeps the rows with the smallest `words`."""
    answers: list[Fraction] = []
    vectors: list[SparseVector] = []

    def ask(vector, answer):
        vectors.append(vector)
        answers.append(answer)

    source = SeededBits(1) if words is None else ScriptedBits(np.array(words, np.uint64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparseVector, "ask", ask)
        patch.setattr(grid, "_FINENESS", COARSE)
        patch.setattr(streams, "SYSTEM_BITS", source)
        stream = private.sparse_vector(opening.pop("threshold", 0), **opening)
        assert len(stream.ask_many(queries)) == len(queries)
    return Seen(stream, answers, vectors[0])


def truths(private, queries, **opening) -> list[Fraction]:
    """Return the exact answers: counts of rows and units, and sums."""
    threshold = Fraction(opening.get("threshold", 0))
    seen = watch(private, queries, **opening)
    schema = private._schema()
    moves = [streams.query_of(query, seen.plan, schema).sensitivity for query in queries]
    return [answer * move + threshold for answer, move in zip(seen.answers, moves, strict=True)]


# ---------------------------------------------------------------- the law of a whole stream

SCHEMA = {"user": pl.Int64, "a": pl.Boolean, "x": pl.Int64}
Rows = list[tuple[int, bool | None, int | None]]


def law(rows: Rows, session: dp.Session, queries, protected=(9,), **opening) -> tuple[dict, list[Seen]]:
    """Return the probability of every output of a stream, over its noise and over which rows are kept.

    Only the `protected` units may have more rows than they keep: every order of their rows is equally likely.
    """
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    own = [place for place, row in enumerate(rows) if row[0] in protected]
    total: dict[tuple[bool, ...], float] = {}
    seen: list[Seen] = []
    for order in itertools.permutations(range(len(own))):
        words = [0] * len(rows)
        for place, rank in zip(own, order, strict=True):
            words[place] = rank
        given = words if own else None
        seen.append(watch(dp.private(frame, session), queries, words=given, **opening))
    for one in seen:
        for output, chance in _chances(one.points, one.scales).items():
            total[output] = total.get(output, 0.0) + chance / len(seen)
    assert sum(total.values()) == pytest.approx(1, abs=1e-9)
    return total, seen


@functools.cache
def _chances(points: tuple[int, ...], scales: SparseScales) -> dict:
    return chances(points, scales, reach=60)


def loss(left: tuple[dict, list[Seen]], right: tuple[dict, list[Seen]]) -> float:
    """Return the largest |log-ratio| of an output. Each hit adds the most that its value may reveal."""
    (p, seen), (q, others) = left, right
    worst = 0.0
    for output in p:
        values = sum(
            max(
                value_loss_of(one.scales, one.points[place], other.points[place])
                for one, other in itertools.product(seen, others)
            )
            for place, hit in enumerate(output)
            if hit and seen[0].scales.value is not None
        )
        worst = max(worst, abs(math.log(p[output] / q[output])) + values)
    return worst
