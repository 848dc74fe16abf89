"""Synthetic rows: how far one unit moves counts and scores, what all parts cost, and what the rows look like."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._many import histogram, synthesis_release
from dp_polars._many.methods import synthesis_question
from dp_polars._many.synthesis_plan import SynthesisPlan
from dp_polars._many.synthesis_release import choice_rate, scores_of, synthetic_weights, whole_rows
from dp_polars._session.prices import pure_cost
from dp_polars.mechanisms._multiplicative_weights import Hypothesis, Partition
from examples.flights import flights
from tests.bits import SeededBits
from tests.many.frames import WORDS, histograms, neighbours, random_rows

SESSIONS = {
    "pure": {"epsilon": 2},
    "approximate": {"epsilon": 2, "delta": 1e-6},
    "zcdp": {"rho": 0.5},
}


def plan_of(words=None, *, session=None, spend=None, frame=None, rows=3, **asked) -> SynthesisPlan:
    session = session or dp.Session(epsilon=2, unit="user")
    frame = random_rows(np.random.default_rng(0), [1], 1) if frame is None else frame
    view = dp.private(frame, session=session)._view({})
    given = {"queries": None, "method": "mwem", "rounds": None, "alpha": None, **asked}
    spend = spend or {"epsilon": 1}
    return synthesis_question(view, {"max_rows_per_group": rows, **spend}, columns=words or WORDS, **given).plan


# ---------------------------------------------------------------- sensitivity


def moved(plan: SynthesisPlan, seeds: range) -> tuple[int, int, int]:
    """Return by how much neighbours differ: in the counts of a partition (L1 and L2), and in a score."""
    norms, squares, scores = 0, 0, 0
    parts = (*plan.workload, *plan.start, Partition.of_predicate((0, 2), np.eye(3, 2, dtype=bool)))
    noise = plan.granted(1)[-1].noise
    for seed in seeds:
        frames = neighbours(seed, plan.terms.adjacency, plan.terms.group_size)
        tables = histograms(frames, plan.max_rows, seed)
        counts = [[part.totals(table) for part in parts] for table in tables]
        for a, b in zip(*counts, strict=True):
            norms, squares = max(norms, int(np.abs(a - b).sum())), max(squares, int(((a - b) ** 2).sum()))
        guess = Hypothesis(plan.domain.dims)
        guess.weights = np.random.default_rng(seed).dirichlet(np.full(guess.weights.size, 0.1)).reshape(3, 3, 2)
        both = [scores_of(own, guess, parts, 40, noise) for own in counts]
        scores = max(scores, int(np.abs(both[0] - both[1]).max()))
    return norms, squares, scores


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("together", [1, 2])
def test_counts_and_scores_move_by_no_more_than_declared(adjacency, together):
    plan = plan_of(session=dp.Session(epsilon=2, unit="user", adjacency=adjacency, group_size=together))
    norms, squares, scores = moved(plan, range(40))
    declared = plan.sensitivity
    assert declared.l1 == 3 * together * (1 if adjacency == "add_remove" else 2)
    assert 0.6 * declared.l1 < norms <= declared.l1
    assert squares <= declared.l2_squared
    assert scores <= declared.l1


@pytest.mark.slow
def test_a_cap_that_is_not_enforced_is_caught(monkeypatch):
    kept = histogram.kept_rows
    monkeypatch.setattr(
        histogram, "kept_rows", lambda frame, units, source, **_: kept(frame, units, source, max_rows=99)
    )
    plan = plan_of()
    norms, _, scores = moved(plan, range(40))
    assert norms > plan.sensitivity.l1
    assert scores > plan.sensitivity.l1


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_a_choice_is_as_private_as_its_epsilon(adjacency):
    """The exact probabilities of all choices are compared on neighbours, for random hypotheses."""
    assert worst_choice(adjacency) <= 1 + 1e-9


def test_a_choice_as_of_monotone_scores_is_caught(monkeypatch):
    monkeypatch.setattr(synthesis_release, "choice_rate", lambda epsilon, plan: epsilon / plan.sensitivity.l1)
    assert worst_choice("replace") > 1.02


def worst_choice(adjacency: str) -> float:
    """Return the largest log ratio of a choice's probabilities, divided by the epsilon of the choice."""
    plan = plan_of(rounds=1, session=dp.Session(epsilon=2, unit="user", adjacency=adjacency))
    schedule, worst = plan.schedule(100), 0.0
    rng = np.random.default_rng(1)
    parts = [Partition((0, 1, 2), (3, 3, 2)), *plan.workload]
    for _ in range(200):
        table = rng.integers(0, 20, (3, 3, 2))
        other, left = table.copy(), plan.max_rows
        for cell in rng.permutation(18)[:2]:  # rows leave one cell, and under replace others enter another
            other.ravel()[cell] -= min(left, other.ravel()[cell]) if cell % 2 or adjacency == "add_remove" else -left
            if adjacency == "add_remove":
                break
        guess = Hypothesis((3, 3, 2))
        guess.weights = rng.dirichlet(np.full(18, 0.3)).reshape(3, 3, 2)
        laws = []
        for own in (table, other):
            scores = scores_of([part.totals(own) for part in parts], guess, parts, 150, schedule.rounds[0])
            rate = float(synthesis_release.choice_rate(schedule.choice, plan))
            logs = rate * (scores - scores.max())
            laws.append(logs - math.log(np.exp(logs).sum()))
        worst = max(worst, float(np.abs(laws[0] - laws[1]).max()) / float(schedule.choice))
    return worst


# ---------------------------------------------------------------- what all parts cost


def spent(plan: SynthesisPlan, monkeypatch, histogram) -> tuple[Fraction, Fraction]:
    """Return the epsilon and rho of every draw that a synthesis makes, from its noise and rates alone."""
    reach = plan.max_rows * plan.terms.group_size
    changes = 1 if plan.terms.adjacency == "add_remove" else 2
    epsilons, rhos = [], []

    def noisy(counts, noise, source):
        l1, squared = (reach, reach**2) if len(counts) == 1 else (changes * reach, changes * reach**2)
        if noise.mechanism == "laplace":
            epsilons.append(l1 / noise.parameter)
            rhos.append(pure_cost(l1 / noise.parameter).rho)
        else:
            epsilons.append(math.inf)
            rhos.append(squared / (2 * noise.parameter))
        return draw(counts, noise, source)

    def choose(scores, rate, source):
        epsilons.append(2 * changes * reach * rate)
        rhos.append(epsilons[-1] ** 2 / 8)
        return pick(scores, rate, source)

    draw, pick = synthesis_release.noisy, synthesis_release.choose_exponential
    with monkeypatch.context() as patch:
        patch.setattr(synthesis_release, "noisy", noisy)
        patch.setattr(synthesis_release, "choose_exponential", choose)
        synthetic_weights(histogram, plan, SeededBits(1))
    assert len(epsilons) >= 4
    return sum(epsilons), sum(rhos)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SESSIONS)
@pytest.mark.parametrize("rounds", [None, 1, 2, 9])
@pytest.mark.parametrize(("adjacency", "together", "scale"), [("add_remove", 1, 1), ("replace", 2, 10_000)])
def test_every_draw_is_paid(kind, rounds, adjacency, together, scale, monkeypatch):
    session = dp.Session(unit="user", adjacency=adjacency, group_size=together, **SESSIONS[kind])
    spend = {"rho": 0.1} if kind == "zcdp" else {"epsilon": 1}
    plan = plan_of(session=session, spend=spend, rounds=rounds)
    epsilon, rho = spent(plan, monkeypatch, scale * np.arange(18).reshape(3, 3, 2))
    if kind == "pure":
        assert epsilon == plan.cost.epsilon == 1
    else:
        assert rho <= plan.cost.rho
        assert plan.allowance.measure == "concentrated" or epsilon <= plan.cost.epsilon
    session.check(plan.cost)


def test_a_choice_that_counts_twice_is_caught(monkeypatch):
    monkeypatch.setattr(synthesis_release, "choice_rate", lambda epsilon, plan: 2 * choice_rate(epsilon, plan))
    plan = plan_of(rounds=2)
    epsilon, _ = spent(plan, monkeypatch, np.arange(18).reshape(3, 3, 2))
    assert epsilon > plan.cost.epsilon


def test_few_rows_have_few_rounds_and_many_rows_all():
    frame = pl.DataFrame({"user": [1], **{f"b{i}": [True] for i in range(8)}})
    plan = plan_of([f"b{i}" for i in range(8)], frame=frame)
    assert len(plan.workload) == 28
    assert [plan.rounds_for(size) for size in (10, 3_000, 10**6)] == [3, 24, 28]


# ---------------------------------------------------------------- the rows


def people(rows: int = 400) -> pl.DataFrame:
    rng = np.random.default_rng(4)
    frame = random_rows(rng, list(range(rows)), 1)
    return frame.with_columns(
        kind=pl.Series(["a", "b"] * (rows // 2), dtype=pl.Categorical),
        spent=pl.Series(rng.random(rows) * 10, dtype=pl.Float32),
        day=pl.Series(rng.integers(18_000, 18_100, rows), dtype=pl.Int32).cast(pl.Date),
    )


@pytest.mark.slow
def test_rows_have_the_names_types_and_values_of_the_domain():
    frame = people()
    days = frame["day"].sort()[0], frame["day"].sort(descending=True)[0]
    words = {**WORDS, "kind": ["a", "b"], "spent": dp.bins([0, 1, 10]), "day": dp.bins(days)}
    session = dp.Session(epsilon=10, unit="user", max_rows_per_group=1)
    made = dp.private(frame, session=session).synthesize(words, epsilon=8)
    assert made.frame.schema == frame.select(list(words)).schema
    assert made.frame.height == made.size
    assert abs(made.size - frame.filter(pl.col("age").is_between(0, 65) & pl.col("color").is_not_null()).height) < 60
    assert made.frame["age"].is_between(0, 65).all()
    assert made.frame["spent"].is_between(0, 10).all()
    assert made.frame["day"].is_between(*days).all()
    assert made.frame["spent"].n_unique() > 100
    assert made.frame["member"].null_count() > 0
    assert made.distribution.columns == [*words, "probability"]
    assert made.distribution["probability"].sum() == pytest.approx(1)
    assert made.distribution.height == 3 * 3 * 2 * 2 * 2
    assert made.entry.cost.epsilon == 8
    assert repr(made).startswith("<dp.Synthesis of color, member, age, kind, spent, day: about")


def test_whole_rows_sum_to_the_size_and_are_near_their_shares():
    shares = np.random.default_rng(1).dirichlet(np.full(500, 0.2))
    totals = np.zeros(500)
    for seed in range(200):
        rows = whole_rows(shares, 300, SeededBits(seed))
        assert rows.sum() == 300
        assert (np.abs(rows - shares * 300) <= 1 + 1e-9).all()
        totals += rows
    # 500 means of 200 draws with variance at most 1/4: all are within 6 deviations, up to a probability of 1e-6.
    assert np.abs(totals / 200 - shares * 300).max() < 6 * 0.5 / math.sqrt(200)


@pytest.mark.parametrize("size", [1, 7])
def test_whole_rows_of_a_single_cell(size):
    assert whole_rows(np.ones(1), size, SeededBits(0)).tolist() == [size]


def test_conditions_that_count_are_near():
    frame = pl.DataFrame({"user": range(2000), "x": [True] * 2000, "y": [True, False] * 1000, "z": [True] * 2000})
    with dp.Session(epsilon=10, unit="user", max_rows_per_group=1):
        wanted = [pl.col("x") & pl.col("z"), pl.col("y")]
        made = frame.dp.synthesize(["x", "y", "z"], queries=wanted, epsilon=5)
        cell = made.distribution
    assert cell.filter(pl.col("x") & pl.col("z"))["probability"].sum() > 0.95
    assert abs(cell.filter("y")["probability"].sum() - 0.5) < 0.02


@pytest.mark.parametrize("method", ["mwem", "small_database"])
@pytest.mark.parametrize("rows", [0, 30])
def test_frames_without_a_row_that_counts_give_a_synthesis_too(method, rows):
    frame = pl.LazyFrame(
        {"x": pl.Series([None] * rows, dtype=pl.Boolean), "y": pl.Series([True] * rows, dtype=pl.Boolean)}
    )
    words = {"alpha": 0.6} if method == "small_database" else {}
    with dp.Session(epsilon=1, unit=dp.ROW):
        made = frame.dp.synthesize(["x", "y"], method=method, epsilon=1, **words)
    assert made.frame.height == made.size >= 1
    assert made.frame.schema == {"x": pl.Boolean, "y": pl.Boolean}


def test_the_same_synthesis_is_found_again_and_fresh_pays(tmp_path):
    frame, words = people(), ["color"]
    path = tmp_path / "people.parquet"
    frame.write_parquet(path)
    session = dp.Session(epsilon=1, unit="user", max_rows_per_group=1, ledger=tmp_path / "ledger.db")
    made = pl.scan_parquet(path).dp.synthesize(words, epsilon=0.2, session=session)
    again = pl.scan_parquet(path).dp.synthesize(
        words, epsilon=0.2, session=dp.Session.from_ledger(tmp_path / "ledger.db")
    )
    assert (made.stored, again.stored) == (False, True)
    assert again.frame.equals(made.frame)
    assert again.distribution.equals(made.distribution)
    assert again.size == made.size
    assert session.spent.epsilon == 0.2
    for other in ({"epsilon": 0.1}, {"rounds": 2, "epsilon": 0.2}, {"fresh": True, "epsilon": 0.2}):
        assert not pl.scan_parquet(path).dp.synthesize(words, session=session, **other).stored
    assert session.spent.epsilon == pytest.approx(0.7)


def test_preview_says_what_it_will_do_and_spends_nothing():
    session = dp.Session(epsilon=1, unit="user", max_rows_per_group=2)
    preview = dp.private(people(), session=session).preview
    text = str(preview.synthesize(WORDS, epsilon=0.5))
    for words in ("color (3), member (3), age (2)", "18 cells", "MWEM over 3 pairs", "scale 100", "epsilon 0.5"):
        assert words in text
    text = str(preview.synthesize(["color"], method="small_database", alpha=0.5, epsilon=0.5))
    for words in ("small database of 5 rows, chosen among 21", "sensitivity 10", "epsilon 0.475"):
        assert words in text
    assert not session.releases


BAD = [
    ({"columns": ["nope"]}, "no column"),
    ({"columns": []}, "A domain is"),
    ({"columns": ["spent"]}, "dp.bins"),
    ({"columns": ["probability"]}, "column of the answer"),
    ({"columns": {"spent": dp.bins(range(1001)), "age": dp.bins(range(1003))}}, "1,002,000 cells"),
    ({"method": "magic"}, "method must be"),
    ({"rounds": 0}, "rounds"),
    ({"rounds": 10**6}, "rounds"),
    ({"alpha": 0.1}, "small_database"),
    ({"method": "small_database"}, "needs alpha"),
    ({"method": "small_database", "alpha": 0.5, "rounds": 3}, "rounds="),
    ({"method": "small_database", "alpha": 1.5}, "alpha"),
    ({"method": "small_database", "alpha": 0.01}, "databases of 10,987 rows|databases of 10,986 rows"),
    ({"method": "small_database", "alpha": 1e-9}, "larger alpha"),
    ({"queries": []}, "queries= is a list"),
    ({"queries": pl.col("color") == "red"}, "queries= is a list"),
    ({"queries": [pl.col("age") > 3]}, "age"),
    ({"queries": [pl.col("color")]}, "condition"),
    ({"queries": [pl.col("color").is_first_distinct()]}, "is_first_distinct|first"),
    ({"epsilon": 1e-9}, "too small"),
    ({"fresh": "yes"}, "fresh"),
    ({"keys": ["a"]}, "no option keys"),
    ({"max_rows_per_group": None}, "a cap on the rows"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_words_are_refused_and_cost_nothing(words, message):
    frame = people(4).with_columns(probability=True)
    session = dp.Session(epsilon=1, unit="user")
    given = {"columns": ["color"], "epsilon": 0.5, "session": session, "max_rows_per_group": 1, **words}
    for door in (frame.dp, frame.lazy().dp, frame.dp.preview):
        with pytest.raises((dp.InvalidParameterError, dp.ExpressionNotAllowed), match=message):
            door.synthesize(given["columns"], **{name: word for name, word in given.items() if name != "columns"})
    assert not session.releases


# ---------------------------------------------------------------- utility


@pytest.mark.slow
def test_pairs_of_columns_of_the_flights_are_closer_than_with_laplace_noise():
    """All ten pairs of five columns, with the plane as the unit, compared with Laplace noise on each pair."""
    frame = flights().drop_nulls("tailnum")
    words = {
        "origin": ["EWR", "JFK", "LGA"],
        "carrier": sorted(frame["carrier"].unique()),
        "month": list(range(1, 13)),
        "dep_delay": dp.bins([-60, -5, 0, 15, 60, 120, 2000]),
        "distance": dp.bins([0, 300, 600, 1000, 1500, 2000, 5000]),
    }
    plan = plan_of(words, session=dp.Session(epsilon=2, unit="tailnum"), frame=frame, rows=575)
    cells = frame.select(plan.domain.cell()).drop_nulls().to_series()
    histogram = np.bincount(cells, minlength=plan.domain.size).reshape(plan.domain.dims)
    size, weights = synthetic_weights(histogram, plan, SeededBits(3))
    rng = np.random.default_rng(3)
    off, off_laplace = [], []
    for pair in combinations(range(5), 2):
        true = Partition(pair, tuple(plan.domain.dims[axis] for axis in pair)).totals(histogram)
        found = Partition(pair, tuple(plan.domain.dims[axis] for axis in pair)).totals(weights) * size
        off.append(np.abs(found - true))
        off_laplace.append(np.abs(np.maximum(true + rng.laplace(0, 10 * 575, len(true)), 0) - true))
    ours, laplace = np.concatenate(off), np.concatenate(off_laplace)
    assert ours.sum() < 0.6 * laplace.sum()
    assert ours.max() < 0.7 * laplace.max()
