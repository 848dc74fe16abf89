"""Online queries: how far one unit moves counts, what the parts cost, and what is answered."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._audit.events import judged
from dp_polars._audit.samples import Samples
from dp_polars._many import histogram
from dp_polars._many import online_release as online
from dp_polars._many.domain import parse_domain
from dp_polars._many.online_plan import OnlinePlan, most_updates, online_plan
from dp_polars._many.online_release import OnlineStream
from dp_polars._plan.query import Spend
from dp_polars.mechanisms._multiplicative_weights import Hypothesis
from tests.bits import SeededBits
from tests.many.frames import domain, histograms, neighbours, random_rows


def plan_of(over, *, alpha="0.1", updates=5, epsilon=1, rows=1, **terms) -> OnlinePlan:
    session = dp.Session(epsilon=10, unit="user", **terms)
    return online_plan(
        session.terms,
        Spend(epsilon=Fraction(epsilon)),
        domain=over,
        alpha=Fraction(alpha),
        max_updates=updates,
        max_rows=(rows, "test"),
        unit=("user",),
        steps=(),
        unchecked=False,
    )


def members(count=1000) -> pl.DataFrame:
    return pl.DataFrame({"user": range(count), "member": [True, False] * (count // 2), "region": ["n"] * count})


def precise() -> dp.Session:
    """Return a session with almost no noise."""
    with pytest.warns(dp.DPWarning):
        return dp.Session(epsilon=100_000, unit="user", max_rows_per_group=1)


# ---------------------------------------------------------------- sensitivity


def most_moved(adjacency: str, together: int, seeds: range, max_rows: int = 3) -> int:
    """Return the most by which the number of rows in any set of cells differs between neighbours."""
    worst = 0
    for seed in seeds:
        left, right = histograms(neighbours(seed, adjacency, together), max_rows, seed)
        moved = left - right
        worst = max(worst, int(moved[moved > 0].sum()), int(-moved[moved < 0].sum()))
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("together", [1, 2])
def test_a_count_moves_by_no_more_than_the_declared_sensitivity(adjacency, together):
    plan = plan_of(domain(), rows=3, adjacency=adjacency, group_size=together)
    assert most_moved(adjacency, together, range(40)) == plan.sensitivity == 3 * together


@pytest.mark.slow
def test_a_cap_that_is_not_enforced_is_caught(monkeypatch):
    def without_cap(frame, units, source, **_):
        return kept_rows(frame, units, source, max_rows=None)

    kept_rows = histogram.kept_rows
    monkeypatch.setattr(histogram, "kept_rows", without_cap)
    assert most_moved("add_remove", 1, range(40)) > 3


def test_rows_without_a_unit_and_outside_the_domain_do_not_count():
    frame = random_rows(np.random.default_rng(3), [1, 2, 3], 5)
    outside = pl.DataFrame({"user": [None, 4], "color": ["red", None], "member": [True, True], "age": [1, 1]})
    both = pl.concat([frame, outside.cast(dict(frame.schema))])
    left, right = histograms([frame, both], 100, 0)
    np.testing.assert_array_equal(left, right)


# ---------------------------------------------------------------- what the parts cost


def losses(plan: OnlinePlan) -> Fraction:
    """Return the epsilon of all parts, from their noise scales alone (Lyu, Su, Li 2017, theorem 2)."""
    scales, reach = plan.scales, plan.max_rows * plan.terms.group_size
    size = reach / plan.size_scale
    test = 1 / scales.threshold + 2 * plan.max_updates / scales.query
    values = plan.max_updates * (reach / plan.value_scale)
    return size + test + values


@pytest.mark.parametrize(("updates", "rows", "together"), [(1, 1, 1), (7, 5, 1), (100, 3, 2)])
def test_the_parts_cost_what_is_charged(updates, rows, together):
    plan = plan_of(domain(), updates=updates, rows=rows, epsilon="0.7", group_size=together)
    assert losses(plan) == plan.epsilon == plan.cost.epsilon == Fraction("0.7")


def test_values_that_are_noised_as_if_there_were_one_are_caught(monkeypatch):
    monkeypatch.setattr(OnlinePlan, "value_scale", property(lambda self: self.sensitivity / self.value_epsilon))
    plan = plan_of(domain(), updates=7)
    assert losses(plan) > plan.epsilon


def transcripts(plan: OnlinePlan, histogram, copies: int, seed: int) -> np.ndarray:
    """Return the size and the first answer of many openings, to a question that is always measured."""
    source, mask, seen = SeededBits(seed), np.array([False, True]), []
    for _ in range(copies):
        stream = OnlineStream(plan, histogram, source)
        seen.append((stream.size, stream.ask((0,), mask).count))
    return np.array(seen)


def attacked(plan: OnlinePlan, copies: int = 1000) -> float:
    """Return a lower bound on epsilon from the value and the size, for frames that differ in one unit.

    The false alarm probability is 1e-7.
    """
    without, moved = np.array([0, 500]), np.array([0, plan.sensitivity])
    both = [transcripts(plan, histogram, copies, seed) for seed, histogram in enumerate((without + moved, without))]
    samples = [
        Samples(copies, {"size": seen[:, 0].astype(float), "value": seen[:, 1].astype(float)}, {}) for seen in both
    ]
    return judged(samples[0], samples[1], miss=1e-7 / 2).worth


TWO = parse_domain(["member"], pl.Schema({"member": pl.Boolean}), ())


@pytest.mark.slow
def test_an_attack_finds_no_more_than_was_charged():
    plan = plan_of(TWO, updates=1, rows=20, epsilon=2)
    assert 0 <= attacked(plan) < 2  # the value and the size have only three tenths of the spend


@pytest.mark.slow
def test_the_attack_finds_a_value_without_its_noise(monkeypatch):
    """The noise is that of one row, as if max_rows were forgotten."""
    plan = plan_of(TWO, updates=1, rows=20, epsilon=2)
    draw = online.discrete_laplace
    monkeypatch.setattr(online, "discrete_laplace", lambda scale, size, source: draw(scale / 20, size, source))
    assert attacked(plan) > 2


# ---------------------------------------------------------------- the hypothesis


def test_a_step_lowers_the_divergence_as_proved():
    rng = np.random.default_rng(5)
    for _ in range(200):
        truth = rng.dirichlet(np.full(12, 0.3)).reshape(3, 4)
        guess = Hypothesis((3, 4))
        guess.weights = rng.dirichlet(np.full(12, 0.5)).reshape(3, 4) + 1e-12
        guess.weights /= guess.weights.sum()
        mask = rng.random((3, 4)) < 0.5
        before = guess.weights.copy()
        gap = float(truth[mask].sum() - guess.share((0, 1), mask))
        guess.learn((0, 1), mask, gap * rng.uniform(0.5, 1.5))
        assert guess.weights.sum() == pytest.approx(1)
        fallen = float((truth * np.log(guess.weights / before)).sum())
        assert fallen >= 1.5 * gap**2 - 1e-9


def test_the_default_number_of_updates_is_the_bound_of_theory():
    assert most_updates(domain(), Fraction("0.1")) == math.ceil(math.log(18) / 0.015)


# ---------------------------------------------------------------- answers


def test_answers_are_measured_where_the_hypothesis_is_far_off_and_free_elsewhere():
    with precise():
        asked = members().dp.online_queries({"member": None, "region": ["n", "s"]}, alpha=0.1, epsilon=10_000)
    half, north = asked.ask(pl.col("member")), asked.ask(pl.col("region") == "n")
    assert (half.count, half.free, half.checked) == (500, True, True)
    assert (north.count, north.fraction, north.free) == (1000, 1.0, False)
    assert asked.updates_left == north.updates_left == half.updates_left - 1
    again = asked.ask(pl.col("region") == "n")
    assert again.count > 700
    assert asked.size == 1000
    weights = asked.distribution()
    assert weights.columns == ["member", "region", "weight"]
    assert weights["weight"].sum() == pytest.approx(1)
    assert asked.ask(pl.lit(True)).count == 1000
    assert [answer.count for answer in asked.ask_many([pl.lit(False), pl.col("member").is_null()])] == [0, 0]


def test_after_the_last_update_the_hypothesis_goes_on_unchecked():
    stream = OnlineStream(plan_of(TWO, updates=1, epsilon=1000), np.array([0, 1000]), SeededBits(1))
    mask = np.array([False, True])
    first, second = stream.ask((0,), mask), stream.ask((0,), mask)
    assert (first.free, first.checked, first.updates_left) == (False, True, 0)
    assert (second.free, second.checked) == (True, False)
    assert second.count == round(stream._hypothesis.share((0,), mask) * stream.size)


def test_null_is_not_true_and_a_bin_is_its_lower_edge():
    frame = pl.DataFrame({"user": range(300), "x": [None] * 100 + [5] * 100 + [15] * 100})
    with precise():
        binned = frame.dp.online_queries({"x": dp.bins([0, 10, 20])}, alpha=0.1, epsilon=10_000)
        listed = frame.dp.online_queries({"x": [None, 5, 15]}, alpha=0.1, epsilon=10_000)
    assert binned.size == 200
    assert binned.ask(pl.col("x") < 10).count == 100
    assert listed.size == 300
    assert listed.ask(pl.col("x") < 10).count == 100
    assert listed.ask(pl.col("x").is_null()).count == 100


@pytest.mark.parametrize("rows", [0, 50])
@pytest.mark.parametrize("lazy", [False, True])
def test_frames_without_a_row_that_counts_answer_too(rows, lazy):
    frame = pl.DataFrame({"member": pl.Series([None] * rows, dtype=pl.Boolean)})
    with dp.Session(epsilon=1, unit=dp.ROW):
        asked = (frame.lazy() if lazy else frame).dp.online_queries(["member"], alpha=0.2, epsilon=1)
    answer = asked.ask(pl.col("member"))
    assert 0 <= answer.count <= asked.size
    assert 0 <= answer.fraction <= 1


@pytest.mark.slow
def test_opening_charges_once_and_asking_nothing():
    session = dp.Session(epsilon=1, delta=1e-6, unit="user", max_rows_per_group=1)
    with session:
        asked = members().dp.online_queries(["member"], alpha=0.1, epsilon=0.5)
    for _ in range(50):
        asked.ask("member")
    assert session.spent.epsilon == 0.5
    assert len(session.releases) == 1
    assert session.plan() is asked.plan
    with session, pytest.raises(dp.BudgetExceeded):
        members().dp.online_queries(["member"], alpha=0.1, epsilon=2)
    assert session.spent.epsilon == 0.5


def test_threads_share_one_stream():
    stream = OnlineStream(plan_of(TWO, updates=20, alpha="0.01"), np.array([100, 900]), SeededBits(1))
    answers = []

    def work():
        for _ in range(100):
            answers.append(stream.ask((0,), np.array([False, True])))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 400
    assert sum(not answer.free for answer in answers) == 20 - stream.updates_left


def test_it_cannot_be_copied_and_shows_nothing_private():
    with dp.Session(epsilon=1, unit="user", max_rows_per_group=1):
        asked = members().dp.online_queries(["member"], alpha=0.5, epsilon=0.5)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(dp.InvalidParameterError, match="can't be copied"):
            copied(asked)
    assert repr(asked) == "<dp.OnlineQueries over member: 2 cells, 2 of 2 updates left>"


def test_preview_says_what_it_will_do_and_spends_nothing():
    session = dp.Session(epsilon=1, unit="user", max_rows_per_group=2)
    plan = dp.private(members(), session=session).preview.online_queries(["member"], alpha=0.1, epsilon=0.5)
    text = str(plan)
    for words in ("user, added or removed", "2 cells", "at most 13", "scale 80", "epsilon 0.5", "95 %", "0.1 * n +"):
        assert words in text
    assert session.spent.epsilon == 0


@pytest.mark.slow
def test_the_margin_holds_for_a_thousand_questions():
    """The margin holds in 95 % of cases. If it held in only 70 %, all of 40 cases would have probability below 1e-6."""
    plan = plan_of(domain(), alpha="0.2", updates=3, epsilon=1)
    rng = np.random.default_rng(2)
    histogram = rng.integers(0, 300, (3, 3, 2))
    missed = 0
    for seed in range(40):
        stream = OnlineStream(plan, histogram, SeededBits(seed))
        for _ in range(100):
            mask = rng.random((3, 3, 2)) < 0.3
            answer = stream.ask((0, 1, 2), mask)
            off = abs(answer.count - int(histogram[mask].sum()))
            missed += answer.checked and off > 0.2 * stream.size + plan.margin(1000)
    assert missed <= 2


BAD = [
    ({"domain": ["nope"]}, "no column"),
    ({"domain": []}, "A domain is"),
    ({"domain": ["user"]}, "who is protected"),
    ({"domain": ["x"]}, "dp.bins"),
    ({"domain": {"x": dp.bins(range(1001)), "y": dp.bins(range(1002))}}, "1,001,000 cells"),
    ({"domain": ["weight"]}, "column of the answer"),
    ({"alpha": 0}, "alpha"),
    ({"alpha": 1}, "alpha"),
    ({"alpha": math.nan}, "alpha"),
    ({"alpha": "0.1"}, "alpha"),
    ({"alpha": None}, "alpha=0.05"),
    ({"max_updates": 10**7}, "larger alpha"),
    ({"max_updates": 0}, "max_updates"),
    ({"max_updates": 1.5}, "max_updates"),
    ({"max_rows_per_group": "auto"}, "a cap on the rows"),
    ({"epsilon": -1}, "epsilon"),
    ({"epsilon": None}, "This release needs a spend"),
    ({"within": 5}, "no option within"),
    ({"epsilom": 5}, "Did you mean epsilon"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_words_are_refused_and_cost_nothing(words, message):
    frame = pl.DataFrame({"user": [1], "member": [True], "x": [1.0], "y": [1.0], "weight": [True]})
    session = dp.Session(epsilon=1, unit="user", max_rows_per_group=1)
    given = {"domain": ["member"], "alpha": 0.1, "epsilon": 0.5, "session": session, **words}
    with pytest.raises(dp.InvalidParameterError, match=message):
        frame.dp.online_queries(given.pop("domain"), **given)
    assert not session.releases


def test_a_cap_on_rows_must_be_given():
    with (
        dp.Session(epsilon=1, unit="user") as session,
        pytest.raises(dp.InvalidParameterError, match="a cap on the rows"),
    ):
        members().dp.online_queries(["member"], alpha=0.1, epsilon=0.5)
    assert not session.releases


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (pl.col("user") == 1, "user"),
        (pl.col("member").sum() > 1, "other rows"),
        (pl.col("region"), "condition"),
        ("region", "condition"),
        ("nope", "nope"),
        (pl.col("member").shift(1), "shift"),
        (3, "condition"),
    ],
)
def test_predicates_that_cannot_be_asked_use_no_update(predicate, message):
    with dp.Session(epsilon=1, unit="user", max_rows_per_group=1):
        asked = members().dp.online_queries({"member": None, "region": ["n", "s"]}, alpha=0.1, epsilon=0.5)
    before = asked.updates_left
    with pytest.raises((dp.InvalidParameterError, dp.ExpressionNotAllowed), match=message):
        asked.ask(predicate)
    with pytest.raises((dp.InvalidParameterError, dp.ExpressionNotAllowed), match=message):
        asked.ask_many([pl.col("region") == "n", predicate])
    with pytest.raises(dp.InvalidParameterError, match="list"):
        asked.ask_many(pl.col("member"))
    assert asked.updates_left == before


# ---------------------------------------------------------------- utility

_BITS = 10


@pytest.mark.slow
def test_two_thousand_marginals_are_closer_than_with_laplace_or_gaussian_noise():
    """2,000 three-way marginals of 2,000 rows at epsilon 1 (delta 1e-6 for the Gaussian: rho 0.0244)."""
    rng = np.random.default_rng(1)
    rows, asked, shape = 2_000, 2_000, (2,) * _BITS
    cells = np.ravel_multi_index(tuple((rng.random((_BITS, rows)) < 0.05).astype(int)), shape)
    histogram = np.bincount(cells, minlength=2**_BITS).reshape(shape)
    names = {f"b{i}": pl.Boolean for i in range(_BITS)}
    plan = plan_of(parse_domain(list(names), pl.Schema(names), ()), alpha="0.2", updates=10)
    stream = OnlineStream(plan, histogram, SeededBits(0))
    true, answered = [], []
    for _ in range(asked):
        axes = tuple(sorted(rng.choice(_BITS, 3, replace=False).tolist()))
        mask = np.zeros(8, bool)
        mask[rng.integers(8)] = True
        others = tuple(axis for axis in range(_BITS) if axis not in axes)
        true.append(histogram.sum(axis=others)[mask.reshape(2, 2, 2)].sum())
        answered.append(stream.ask(axes, mask.reshape(2, 2, 2)).count)
    laplace = np.clip(true + rng.laplace(0, asked, asked), 0, rows)
    gaussian = np.clip(true + rng.normal(0, math.sqrt(asked / (2 * 0.0244)), asked), 0, rows)
    off, off_laplace, off_gaussian = (np.abs(one - np.array(true)).max() for one in (answered, laplace, gaussian))
    assert off < 0.7 * off_gaussian < off_laplace
    assert off < 0.4 * np.abs(np.array(true) - rows / 8).max()  # and less than the first hypothesis was off


def test_a_forked_copy_does_not_answer(monkeypatch):
    """Two copies would answer for the price of one. A fork is recognized by its process number."""
    session = dp.Session(epsilon=1, unit="user", max_rows_per_group=2)
    online = dp.private(members(), session=session).online_queries(["member"], alpha=0.1, epsilon=0.5)
    online.ask(pl.col("member"))
    monkeypatch.setattr("dp_polars._session.exclusive_lock.Exclusive.inherited", lambda _: True)
    with pytest.raises(dp.InvalidParameterError, match="forked"):
        online.ask(pl.col("member"))
