"""Streams on neighbouring frames: the probabilities of all their outputs stay within epsilon.

The probabilities are exact. A stream is opened and asked as a user would, on a grid coarse enough to sum over all noise
and over every choice of the rows that a unit keeps. Deliberate faults show that the bound can fail.
"""

import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.polars import engine
from dp_polars._streams import plan as planning
from dp_polars._streams import queries as stream_queries
from dp_polars._streams import stream as streams
from tests.bits import SeededBits
from tests.streams.watched import SCHEMA, law, loss, watch

ROUNDING = 1e-9
CROWD = [(1, True, 3), (2, False, 1), (2, True, 5), (3, None, None)]
HEAVY = [(9, True, 7), (9, True, -4), (9, True, 7)]
"""Three rows of one unit, two of which count."""
NEGATIVE = [(9, False, -9), (9, False, -9), (9, None, -9)]
MIXED = [(9, True, 7), (9, False, -9)]
OTHER = [(8, True, 7), (8, True, 7), (8, True, 7)]

UP, DOWN = dp.sum("x", bounds=(0, 3)), dp.sum("x", bounds=(-3, 0))
QUESTIONS = {
    "conditions": [pl.col("a"), ~pl.col("a"), pl.col("a"), pl.col("x") > 0, pl.col("a"), "a"],
    "counts": [dp.count(), dp.count("x"), dp.count_units(), dp.count(), dp.count(), dp.count("a")],
    "sums": [UP, UP, UP, dp.sum("x", bounds=(-3, 3)), UP, DOWN],
    "all kinds": [pl.col("a"), UP, dp.count_units(), dp.count(), DOWN],
}
CAP = {"max_rows_per_group": 2, "threshold": 2}


def session(**terms):
    return dp.Session(epsilon=10, unit="user", **terms)


def found(left, right, terms, questions, protected=(9,), crowd=CROWD, **opening):
    """Return the loss of a stream with epsilon 1 between two frames, each a crowd and the rows of one side."""
    opening = {**CAP, "epsilon": 1, **opening}
    sides = [law(crowd + rows, session(**terms), questions, protected, **opening) for rows in (left, right)]
    return loss(*sides)


ADDED = [(HEAVY, []), (NEGATIVE, []), (MIXED, [])]
REPLACED = [(HEAVY, NEGATIVE), (MIXED, NEGATIVE), (HEAVY, [(9, None, None)])]


@pytest.mark.slow
@pytest.mark.parametrize("hits", [1, 2])
@pytest.mark.parametrize("kind", QUESTIONS)
@pytest.mark.parametrize(
    ("adjacency", "left", "right"),
    [*(("add_remove", *pair) for pair in ADDED), *(("replace", *pair) for pair in REPLACED)],
)
def test_neighbours_stay_within_epsilon(adjacency, left, right, kind, hits):
    """Every kind has each number of hits, and values or none; the mechanism's own tests have all combinations."""
    terms, numeric = {"adjacency": adjacency}, (hits == 1) == (kind in ("conditions", "sums"))
    assert found(left, right, terms, QUESTIONS[kind], hits=hits, numeric=numeric) <= 1 + ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["conditions", "counts"])
@pytest.mark.parametrize("hits", [1, 2])
def test_monotone_streams_stay_within_epsilon(kind, hits):
    for left, right in ADDED:
        assert found(left, right, {}, QUESTIONS[kind], hits=hits, monotone=True) <= 1 + ROUNDING
    assert found(HEAVY, [], {}, [UP] * 5, hits=hits, monotone=True) <= 1 + ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("of", ["rows", "units"])
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize(("left", "right"), [(HEAVY + OTHER, []), (HEAVY, OTHER), (MIXED + OTHER, [])])
def test_two_units_together_stay_within_epsilon(left, right, monotone, of):
    """Two units are added, or one is added and one removed, so that answers of a monotone stream rise and fall."""
    asked = [pl.col("a"), pl.col("a"), dp.count(), ~pl.col("a"), dp.count_units()]
    got = found(left, right, {"group_size": 2}, asked, monotone=monotone, of=of, protected=(8,))
    assert got <= 1 + ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("capped", [True, False])
def test_counts_of_units_stay_within_epsilon_over_all_rows(adjacency, capped):
    """A unit has many rows, and no condition is true for two of them."""
    rows = [(9, True, 100 + place) for place in range(5)]
    other = [(9, False, -100 - place) for place in range(5)] if adjacency == "replace" else []
    asked = [*(pl.col("x") == 100 + place for place in range(5)), pl.col("x") < -99, dp.count_units()]
    opening = {"epsilon": 1, "threshold": 1, "of": "units", **({"max_rows_per_group": 1} if capped else {})}
    sides = [law(CROWD + own, session(adjacency=adjacency), asked, (), **opening) for own in (rows, other)]
    assert 0.4 < loss(*sides) <= 1 + ROUNDING


# ---------------------------------------------------------------- the bound can fail


MANY = [(unit, True, 3) for unit in range(100, 250)]
"""A crowd of 150 rows. Counts of `a` lie far above a threshold of 60, and counts of what nobody has far below."""
RISING = [*[pl.col("a")] * 8, ~pl.col("a")]
FALLING = [*[dp.sum("x", bounds=(0, 1))] * 8, dp.sum(-pl.col("x"), bounds=(-1, 0))]


def witness(left, right, terms, questions, protected=(9,), **opening):
    """Return a loss that is large if the noise is too small.

    Misses by answers far above the threshold reveal a high noisy threshold, and hits by answers far below a low one.
    """
    return found(left, right, terms, questions, protected, MANY, **{"threshold": 60, **opening})


def every_row(frame, *_, **__):
    return pl.repeat(True, frame.height, dtype=pl.Boolean, eager=True)


def test_the_enumeration_comes_near_to_epsilon():
    truly, not_so, swap = [(9, True, 7)] * 2, [(9, False, 7)] * 2, {"adjacency": "replace"}
    assert 0.97 < witness(not_so, truly, swap, RISING) <= 1 + ROUNDING
    assert 0.97 < witness(truly, [], {}, FALLING) <= 1 + ROUNDING
    assert 0.97 < witness(truly, [], {}, RISING, monotone=True) <= 1 + ROUNDING
    both = [*truly, (8, True, 7), (8, True, 7)]
    assert 0.97 < witness(both, [], {"group_size": 2}, RISING, protected=(), monotone=True) <= 1 + ROUNDING


def test_a_sensitivity_that_is_too_small_is_caught(monkeypatch):
    monkeypatch.setattr(stream_queries, "_row_cap", lambda *_: 1)
    assert witness(HEAVY, [], {}, RISING, monotone=True) > 1.5


def test_a_cap_that_is_not_enforced_is_caught(monkeypatch):
    monkeypatch.setattr(engine, "kept_rows", every_row)
    assert witness(HEAVY, [], {}, RISING, monotone=True, protected=()) > 1.3


def test_a_replaced_unit_that_is_taken_for_a_removed_one_is_caught(monkeypatch):
    honest = stream_queries.moved_by
    monkeypatch.setattr(stream_queries, "moved_by", lambda grid, rows, _: honest(grid, rows, "add_remove"))
    both_ways = [*[dp.sum("x", bounds=(-1, 1))] * 8, dp.sum(-pl.col("x"), bounds=(-1, 1))]
    assert witness([(9, True, 7)] * 2, [(9, True, -9)] * 2, {"adjacency": "replace"}, both_ways) > 1.5


def test_a_group_that_is_taken_for_one_unit_is_caught(monkeypatch):
    honest = planning.sparse_scales
    monkeypatch.setattr(
        planning, "sparse_scales", lambda epsilon, *given, **named: honest(2 * epsilon, *given, **named)
    )
    assert witness(HEAVY + OTHER, [], {"group_size": 2}, RISING, protected=(8,), monotone=True) > 1.5


def test_a_falling_answer_in_a_monotone_stream_is_caught(monkeypatch):
    monkeypatch.setattr(streams, "query_of", _unchecked_direction)
    assert witness([(9, True, 7)] * 2, [], {}, FALLING, monotone=True) > 1.2


def _unchecked_direction(words, plan, schema, adopted):
    if isinstance(words, dp.AggregateCall):
        return stream_queries._aggregate(words, plan, schema, adopted)
    return stream_queries._condition(words, plan, schema)


def test_rows_that_are_counted_where_units_should_be_are_caught(monkeypatch):
    monkeypatch.setattr(stream_queries, "_units", _rows_for_units)
    opening = {"of": "units", "max_rows_per_group": 3, "monotone": True}
    assert witness(HEAVY, [], {}, RISING, protected=(), **opening) > 1.5


def _rows_for_units(condition):
    tally = stream_queries.Tally(kind="rows", value=condition)
    return stream_queries.StreamQuery(tally=tally, sensitivity=stream_queries.Fraction(1))


# ---------------------------------------------------------------- random neighbours

VALUES = [None, float("nan"), float("inf"), -float("inf"), -7.3, -1.0, 0.0, 0.26, 2.0, 9.9, 1e300]
RANDOM_QUESTIONS = [
    pl.col("x") > 0.5, pl.col("a"), ~pl.col("a"), pl.lit(True), pl.lit(None, dtype=pl.Boolean), pl.col("user") > 2,
    dp.count(), dp.count("x"), dp.count("a"), dp.count_units(), dp.sum("x", bounds=(0, 2.5)),
    dp.sum("x", bounds=(-2, 0.7)), dp.sum("x", bounds=(1, 3)), dp.sum(pl.col("x") * 2, bounds=(-9, -1)),
    dp.sum("a", bounds=(0, 1)), dp.sum(pl.lit(3), bounds=(0, 5)),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("of", ["rows", "units"])
def test_every_answer_moves_by_at_most_its_sensitivity(adjacency, of):
    """All other rows draw the same random words, and a new unit takes the place of the one that it replaces."""
    draw = np.random.default_rng(7)

    def rows_of(units):
        return [
            (unit, [True, False, None][draw.integers(3)], VALUES[draw.integers(len(VALUES))])
            for unit in units
            for _ in range(draw.integers(0, 5))
        ]

    largest = 0
    for _ in range(25):
        crowd, old, new = rows_of([1, 2, 3, None]), rows_of([9]), rows_of([9])
        common = draw.integers(0, 2**64, len(crowd), np.uint64)
        seen = []
        for own in (old, new if adjacency == "replace" else []):
            frame = pl.DataFrame(crowd + own, schema={**SCHEMA, "x": pl.Float64}, orient="row")
            words = np.append(common, draw.integers(0, 2**64, len(own), np.uint64))
            opening = {"max_rows_per_group": 2, "of": of, "epsilon": 1, "words": words}
            seen.append(watch(dp.private(frame, session(adjacency=adjacency)), RANDOM_QUESTIONS, **opening).answers)
        moves = [abs(a - b) for a, b in zip(*seen, strict=True)]
        assert max(moves) <= 1
        largest = max(largest, *moves)
    assert largest == 1


# ---------------------------------------------------------------- an attack

ATTACKED = pl.DataFrame([(unit, True, 0) for unit in range(50)] + [(99, True, 0)] * 60, schema=SCHEMA, orient="row")


def attacked(monkeypatch) -> str:
    """Return the verdict on a stream with epsilon 1, by how long its answers stay below (false alarm 1e-7)."""
    monkeypatch.setattr(streams, "SYSTEM_BITS", SeededBits(1))
    return dp.audit(
        lambda frame: len(frame.dp.above_threshold(53, epsilon=1).ask_many(["a"] * 4)),
        ATTACKED,
        ATTACKED.filter(pl.col("user") != 99),
        session=dp.Session(epsilon=1, unit="user", max_rows_per_group=1),
        made_up=True,
        runs=300,
        confidence=1 - 1e-7,
    ).verdict


@pytest.mark.slow
def test_an_attack_over_the_frame_finds_no_more_than_epsilon(monkeypatch):
    assert attacked(monkeypatch) == "no violation found"


@pytest.mark.slow
def test_the_attack_finds_rows_that_are_not_capped(monkeypatch):
    monkeypatch.setattr(engine, "kept_rows", every_row)
    assert attacked(monkeypatch) == "violation"
