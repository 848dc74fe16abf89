"""`df.dp.randomized_response`: one response for each unit, the promised probabilities, one charge, and refusals."""

import datetime
import json
import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from scipy import stats

import dp_polars as dp
from dp_polars._engines.polars import engine as snapshots
from dp_polars._engines.polars.scan import polars_rows
from dp_polars._local.methods import response_question
from dp_polars._local.release import permutation, responses_of, run_responses
from dp_polars.mechanisms.randomized_response import Channel
from tests.bits import ScriptedBits, SeededBits
from tests.statistics import binomial_fits, chi_square_fits

ENUM = pl.Enum(["red", "green", "blue"])
N = 3000
PEOPLE = pl.DataFrame(
    {
        "user": range(N),
        "flag": [i % 3 == 0 for i in range(N)],
        "vote": ["yes", "no", None, "other"] * (N // 4),
        "color": pl.Series(["red", "green", None] * (N // 3), dtype=ENUM),
        "age": [i % 4 for i in range(N)],
        "day": [datetime.date(2024, 1, 1 + i % 2) for i in range(N)],
        "weight": [i / 7 for i in range(N)],
    }
)
HUGE = 500  # an epsilon at which every response is the truth


def replace_session(epsilon=10, **words):
    return dp.Session(epsilon=epsilon, **{"unit": "user", "adjacency": "replace", **words})


@pytest.fixture
def session():
    return replace_session()


@pytest.fixture
def rich():
    with pytest.warns(dp.DPWarning):
        return replace_session(10**5)


def asked(frame, session, column, *, categories=None, resample=None, **options):
    """Return the plan and the rows of a question, so that a test can draw responses with its own random bits."""
    view = frame.dp._view({"session": session})
    question = response_question(view, options, column=column, categories=categories, resample=resample)
    return question.plan, question.rows


# ---------------------------------------------------------------- what comes back


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "categories", "truth"),
    [
        ("flag", None, PEOPLE["flag"]),
        ("flag", [True, False], PEOPLE["flag"]),
        ("color", None, PEOPLE["color"]),
        ("vote", ["yes", "no", "other", None], PEOPLE["vote"]),
        ("age", [0, 1, 2, 3], PEOPLE["age"]),
        ("day", [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)], PEOPLE["day"]),
        (pl.col("age") >= 2, None, PEOPLE["age"] >= 2),
    ],
    ids=str,
)
def test_one_row_of_each_unit_of_the_columns_type(rich, column, categories, truth):
    """With almost no randomization the responses are the true values, in another order."""
    with rich:
        out = PEOPLE.dp.randomized_response(column, categories=categories, epsilon=HUGE)
    assert out.columns == [truth.name]
    assert out[truth.name].dtype == truth.dtype
    assert out[truth.name].value_counts().sort(truth.name).equals(truth.value_counts().sort(truth.name))
    assert out[truth.name].to_list() != truth.to_list()


def test_a_categorical_comes_back_as_text(rich):
    frame = PEOPLE.with_columns(pl.col("vote").cast(pl.Categorical))
    with rich, pytest.raises(dp.InvalidParameterError, match="String need categories"):
        frame.dp.randomized_response("vote", epsilon=1)
    with rich:
        out = frame.dp.randomized_response("vote", categories=["yes", "no", "other", None], epsilon=HUGE)
    assert out.schema == {"vote": pl.String}
    assert out["vote"].null_count() == N // 4


def test_all_categories_are_answered_null_too(session):
    """One of three or four categories is missing among 3000 answers at epsilon 1 with probability below 1e-100."""
    with session:
        assert set(PEOPLE.dp.randomized_response("flag", epsilon=1)["flag"]) == {True, False, None}
        assert set(PEOPLE.dp.randomized_response("flag", categories=[False, True], epsilon=1)["flag"]) == {True, False}
        assert set(PEOPLE.dp.randomized_response("color", epsilon=1)["color"]) == {"red", "green", "blue", None}


@pytest.mark.slow
@pytest.mark.parametrize("law", [{"epsilon": 1}, {"resample": 0.5}], ids=str)
def test_responses_fit_the_law_of_the_plan_for_each_true_value(session, law):
    """Two chi-square tests at 1e-7 with fixed seeds. Null and unlisted values are answered uniformly."""
    for seed, (value, outside) in enumerate([("yes", False), ("elsewhere", True), (None, True)]):
        frame = pl.DataFrame({"user": range(60_000)}).with_columns(vote=pl.lit(value, dtype=pl.String))
        plan, rows = asked(frame, session, "vote", categories=["yes", "no", "other"], **law)
        out = responses_of(plan, rows, SeededBits(seed))["vote"]
        codes = out.replace_strict({"yes": 0, "no": 1, "other": 2}).to_numpy()
        truthful, other = plan.channel.truthful, plan.channel.other
        assert chi_square_fits(codes, dict(enumerate([1 / 3] * 3 if outside else [truthful, other, other])))


def limits_of(hits, n, tail=1e-8):
    """Return the Clopper-Pearson limits of a probability."""
    low = stats.beta.ppf(tail, hits, n - hits + 1) if hits else 0.0
    return low, stats.beta.ppf(1 - tail, hits + 1, n - hits) if hits < n else 1.0


def ratio_bound(plan, every):
    """Return a lower bound on the epsilon between responses to frames in which every unit has the same rows.

    It uses Clopper-Pearson limits of the probability of each category. The false alarm probability is below 1e-6.
    """
    limits = []
    for seed, rows in enumerate(every):
        out = responses_of(plan, rows, SeededBits(100 + seed)).to_series().to_list()
        n = len(out)
        hits = [out.count(value) for value in plan.categories]
        limits.append([limits_of(h, n) for h in hits])
    return max(
        math.log(p[0] / q[1]) if p[0] else 0.0
        for one in limits
        for two in limits
        for p, q in zip(one, two, strict=True)
    )


def audit(session, **law):
    """Return a lower bound on epsilon between units that say yes, no, nothing, something else or several things."""
    n = 40_000
    kinds = [["yes"], ["no"], [None], ["else"], ["yes", "no"], ["yes"] * 5]
    frames = [
        pl.DataFrame({"user": np.repeat(np.arange(n), len(kind)), "vote": pl.Series(kind * n, dtype=pl.String)})
        for kind in kinds
    ]
    pairs = [asked(frame, session, "vote", categories=["yes", "no"], **law) for frame in frames]
    assert {responses_of(*pair, SeededBits(0)).height for pair in pairs} == {n}
    return ratio_bound(pairs[0][0], [rows for _, rows in pairs])


@pytest.mark.slow
@pytest.mark.parametrize("law", [{"epsilon": 1}, {"resample": 0.5}], ids=str)
def test_no_two_units_are_told_apart_by_more_than_epsilon(session, law):
    plan, _ = asked(PEOPLE, session, "vote", categories=["yes", "no"], **law)
    bound = audit(session, **law)
    assert 0.9 * float(plan.epsilon) < bound <= float(plan.epsilon)


FAULTS = {
    "an answer to a value outside that tells of it": lambda self, codes, source: np.where(
        codes < 0, 0, self.respond(np.abs(codes), source)
    ),
    "a lie less often than said": lambda self, codes, source: Channel(
        size=self.size, epsilon=self.epsilon * Fraction(5, 4)
    ).respond(np.abs(codes), source),
    "the truth": lambda self, codes, source: np.abs(codes),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_audit_notices_a_deliberate_fault(session, monkeypatch, fault):
    monkeypatch.setattr(Channel, "respond_to_any", FAULTS[fault])
    assert audit(session, epsilon=1) > 1.1


def test_a_fault_that_keeps_all_rows_of_a_unit_is_noticed(session, monkeypatch):
    real = snapshots.kept_rows
    monkeypatch.setattr(snapshots, "kept_rows", lambda *args, max_rows, **words: real(*args, max_rows=None, **words))
    with pytest.raises(AssertionError):
        audit(session, epsilon=1)


# ---------------------------------------------------------------- units


def test_of_several_rows_one_is_chosen_at_random(rich):
    """A unit that says yes once and no three times counts as yes in a quarter of 4000 cases (false alarm 1e-7)."""
    frame = pl.DataFrame({"user": np.repeat(np.arange(4000), 4), "vote": ["yes", "no", "no", "no"] * 4000})
    with rich:
        out = frame.dp.randomized_response("vote", categories=["yes", "no"], epsilon=HUGE)
    assert out.height == 4000
    assert binomial_fits(int((out["vote"] == "yes").sum()), 4000, 0.25)


def test_rows_without_a_unit_are_left_out(rich):
    frame = pl.DataFrame({"user": [1, None, 2, None, 2], "day": [1, 1, None, 1, 3], "flag": [True] * 5})
    with rich:
        assert frame.dp.randomized_response("flag", epsilon=HUGE).height == 2
        pairs = dp.private(frame, unit=["user", "day"], weaker_unit=True).randomized_response("flag", epsilon=HUGE)
        rows = dp.private(frame, unit=dp.ROW, weaker_unit=True).randomized_response("flag", epsilon=HUGE)
        constant = dp.private(frame, unit=dp.ROW, weaker_unit=True).randomized_response(
            pl.lit(True).alias("c"), epsilon=HUGE
        )
    assert (pairs.height, rows.height, constant.height) == (2, 5, 5)


@pytest.mark.slow
def test_the_order_is_uniform_and_tells_nothing():
    """All 6 orders of 3 rows are equally likely (chi-square at 1e-7). Equal random words are drawn again."""
    source = SeededBits(3)
    orders = [int("".join(map(str, permutation(3, source)))) for _ in range(12_000)]
    assert chi_square_fits(np.array(orders), dict.fromkeys([12, 21, 102, 120, 201, 210], 1 / 6))
    assert permutation(3, ScriptedBits([5, 5, 1], [9, 1, 5])).tolist() == [1, 2, 0]
    assert permutation(0, source).tolist() == []


def test_the_release_has_no_trace_of_the_order_of_rows(session):
    """The order of the responses doesn't follow the order of the rows."""
    left = pl.DataFrame({"user": range(2000), "flag": [True] * 1000 + [False] * 1000})
    plan, rows = asked(left, session, "flag", epsilon=3)
    out = responses_of(plan, rows, SeededBits(1))["flag"]
    first = int(out[:1000].fill_null(False).sum())
    # Hypergeometric: within 6 deviations, up to a probability of 2e-9. Unshuffled, it would be 900.
    total = int(out.fill_null(False).sum())
    law = stats.hypergeom(2000, total, 1000)
    assert abs(first - law.mean()) < 6 * law.std()


# ---------------------------------------------------------------- prices


def test_epsilon_is_each_responses_and_charged_once_for_each_unit_of_a_group():
    for size in (1, 3):
        session = replace_session(group_size=size)
        with session:
            plan = PEOPLE.dp.preview.randomized_response("flag", epsilon=0.5)
            assert session.spent.epsilon == 0
            PEOPLE.dp.randomized_response("flag", epsilon=0.5)
        assert plan.epsilon == Fraction(1, 2)
        assert plan.cost == dp.pure_cost(Fraction(size, 2))
        assert session.spent.epsilon == 0.5 * size
        assert session.plan().cost == plan.cost


def test_a_share_is_the_whole_price_and_divided_among_the_units_of_a_group():
    with replace_session(group_size=4) as session:
        plan = PEOPLE.dp.preview.randomized_response("flag", share=0.2)
        assert plan.epsilon == Fraction(1, 2)
        assert plan.cost == dp.pure_cost(2)
        PEOPLE.dp.randomized_response("flag", share=0.2)
        assert session.spent.share == pytest.approx(0.2)
    with replace_session(queries=5, group_size=2):
        assert PEOPLE.dp.preview.randomized_response("flag").epsilon == 1


def test_sessions_with_rho_pay_what_a_pure_release_costs():
    with dp.Session(rho=1.0, unit="user", adjacency="replace", group_size=2) as session:
        plan = PEOPLE.dp.preview.randomized_response("flag", rho=0.5)
        assert dp.pure_cost(plan.epsilon * 2).rho <= Fraction(1, 2)
        assert float(dp.pure_cost(plan.epsilon * 2).rho) == pytest.approx(0.5, rel=1e-6)
        PEOPLE.dp.randomized_response("flag", epsilon=0.5)
        assert session.spent.rho == pytest.approx(math.tanh(0.5))
    with dp.Session(epsilon=1.0, delta=1e-6, unit="user", adjacency="replace"):
        plan = PEOPLE.dp.preview.randomized_response("flag", epsilon=0.5)
        assert plan.cost == dp.pure_cost(0.5)
        shared = PEOPLE.dp.preview.randomized_response("flag", share=0.5)
        assert dp.pure_cost(shared.epsilon).rho <= shared.cost.rho


def test_the_classroom_form_is_charged_its_true_epsilon_rounded_up():
    with replace_session(group_size=2) as session:
        plan = PEOPLE.dp.preview.randomized_response("flag", resample=0.5)
        PEOPLE.dp.randomized_response("flag", resample=0.5)
    assert math.log(4) <= plan.epsilon <= math.log(4) * (1 + 1e-14)
    assert session.releases[0].cost.epsilon == 2 * plan.epsilon
    assert session.releases[0].label == (
        "randomized_response of flag, 3 categories, resample 0.5, epsilon 1.38629 each, unit user"
    )


def test_the_ledger_names_the_column_and_the_law(session):
    with session:
        PEOPLE.dp.randomized_response("vote", categories=["yes", "no"], epsilon=0.5)
    (entry,) = session.releases
    assert entry.label == "randomized_response of vote, 2 categories, epsilon 0.5 each, unit user"
    assert entry.state == "committed"


def test_the_plan_reads_as_a_table():
    with replace_session(group_size=2):
        plan = PEOPLE.dp.with_columns(old=pl.col("age") > 2).preview.randomized_response("old", resample=0.5)
    assert str(plan).splitlines() == [
        "Each response is the truth with probability 0.6667; an estimated frequency is within 1.666 / sqrt(n), 19 "
        "times out of 20; uses 27.7 % of the budget.",
        "query                     randomized_response of old (after with_columns)",
        "protects                  user, replaced, 2 at a time: values, not presence; rows where it is null take "
        "no part",
        "rows                      one response of each unit, in random order",
        "categories                3 (all values of Boolean, and null)",
        "form                      the truth, or with probability 0.5 any category (resample)",
        "truth                     with probability 0.666667, each other category 0.166667",
        "epsilon of each response  1.38629",
        "price                     27.7 % of the budget (by itself epsilon 2.773; fits 3 times)",
        "standard error            0.849837 / sqrt(n) of a frequency of 1/2 among n units",
    ]
    with replace_session():
        unchecked = PEOPLE.dp.with_columns(pl.col("age").cum_sum(), unchecked=True)
        plan = unchecked.preview.randomized_response("age", categories=[1, 2], epsilon=1)
    assert "unchecked" in str(plan)
    assert "2 (categories= in the call)" in str(plan)
    assert repr(plan) == str(plan)


def test_the_standard_error_of_the_plan_is_that_of_the_estimate(session):
    """For a frequency of 1/2 among 10,000 units, the plan and the estimate give the same standard error."""
    with session:
        plan = PEOPLE.dp.preview.randomized_response("flag", categories=[False, True], epsilon=1)
    estimate = dp.estimate_frequencies(np.array([True, False] * 5000), epsilon=1)
    assert plan.channel.deviation(0.5) / 100 == pytest.approx(estimate["standard_error"][0])


def test_responses_of_a_frame_are_estimated_within_their_errors(session):
    """Three frequencies are within 6 standard errors, except with probability 6e-9."""
    with session:
        out = PEOPLE.dp.randomized_response("flag", epsilon=2)
    estimate = dp.estimate_frequencies(out, epsilon=2)
    truth = np.array([2 / 3, 1 / 3, 0])
    assert (np.abs(estimate["frequency"].to_numpy() - truth) <= 6 * estimate["standard_error"].to_numpy()).all()


# ---------------------------------------------------------------- stored, lazy


def test_the_same_question_is_free_and_fresh_pays(session):
    with session:
        first = PEOPLE.dp.randomized_response("flag", epsilon=1)
        assert PEOPLE.dp.randomized_response("flag", epsilon=1).equals(first)
        assert session.spent.epsilon == 1
        fresh = PEOPLE.dp.randomized_response("flag", epsilon=1, fresh=True)
        assert not fresh.equals(first)
        assert session.spent.epsilon == 2
        PEOPLE.clone().dp.randomized_response("flag", epsilon=1)
        assert session.spent.epsilon == 3
    with session:
        for number, words in enumerate(
            [{"epsilon": 0.5}, {"resample": 0.9}, {"epsilon": 1, "categories": [True, False]}], start=4
        ):
            PEOPLE.dp.randomized_response("flag", **words)
            assert len(session.releases) == number
        PEOPLE.dp.with_columns(flag=~pl.col("flag")).randomized_response("flag", epsilon=0.5)
        assert len(session.releases) == 7


def test_a_lazy_frame_is_released_once_at_the_first_collect(session):
    with session:
        lazy = PEOPLE.lazy().dp.randomized_response("color", epsilon=1)
    assert isinstance(lazy, pl.LazyFrame)
    assert lazy.collect_schema() == {"color": ENUM}
    lazy.explain()
    assert session.spent.epsilon == 0
    first = lazy.collect()
    assert session.spent.epsilon == 1
    assert first.height == N
    again, twice = pl.collect_all([lazy, pl.concat([lazy, lazy])])
    assert again.equals(first)
    assert twice.equals(pl.concat([first, first]))
    assert session.spent.epsilon == 1


def test_a_lazy_frame_over_budget_is_refused_at_collect_and_costs_nothing():
    poor = replace_session(0.5)
    with poor:
        lazy = PEOPLE.lazy().dp.randomized_response("flag", epsilon=1)
    with pytest.raises(Exception, match="budget"):
        lazy.collect()
    assert poor.spent.epsilon == 0


# ---------------------------------------------------------------- what is refused, free of charge


def test_only_replace_sessions_hide_what_it_hides():
    with dp.Session(epsilon=1.0, unit="user") as session:
        for door in (PEOPLE.dp, PEOPLE.dp.preview, PEOPLE.lazy().dp):
            with pytest.raises(dp.InvalidParameterError, match=r"not whether it is there.*adjacency='replace'"):
                door.randomized_response("flag", epsilon=0.5)
        assert not session.releases


PUBLIC = pl.DataFrame({"age": [0, 1], "group": ["child", "adult"]})


@pytest.mark.parametrize(
    ("step", "what"),
    [
        (lambda frame: frame.filter(pl.col("flag")), "filter"),
        (lambda frame: frame.filter(pl.col("flag"), unchecked=True), "filter"),
        (lambda frame: frame.join(PUBLIC, on="age"), "inner join"),
        (lambda frame: frame.join(PUBLIC, on="age", how="semi"), "semi join"),
        (lambda frame: frame.join(PUBLIC, on="age", how="anti"), "anti join"),
        (lambda frame: frame.filter(pl.col("flag")).with_columns(x=pl.col("age")), "filter"),
    ],
)
def test_steps_that_drop_rows_are_refused(session, step, what):
    with session:
        frame = step(PEOPLE.dp)
        for door in (frame, frame.preview):
            with pytest.raises(dp.InvalidParameterError, match=f"After a {what} the number of responses would reveal"):
                door.randomized_response("flag", epsilon=0.5)
    assert not session.releases


def test_a_step_that_is_not_known_is_refused(session):
    """Steps that are added to the library later are refused until they are known to keep all rows."""
    with session:
        later = PEOPLE.dp._after(polars_rows(PEOPLE.lazy().head(3)), "head", 3)
        with pytest.raises(dp.InvalidParameterError, match="After a head"):
            later.randomized_response("flag", epsilon=0.5)


def test_steps_that_keep_all_rows_are_fine(rich):
    with rich:
        frame = PEOPLE.dp.with_columns(x=pl.col("age") * 2).select("x", "age", "flag").rename({"flag": "is"}).drop("x")
        frame = frame.join(PUBLIC, on="age", how="left")
        out = frame.randomized_response("group", categories=["child", "adult", None], epsilon=HUGE)
    assert out.height == N
    assert out["group"].null_count() == N // 2


@pytest.mark.parametrize(
    ("column", "words", "message"),
    [
        ("flag", {}, "These responses need a spend"),
        ("flag", {"epsilon": 0}, "epsilon"),
        ("flag", {"epsilon": math.nan}, "epsilon"),
        ("flag", {"epsilon": 1, "share": 0.1}, "one way"),
        ("flag", {"epsilon": 1, "resample": 0.5}, "leave epsilon= out"),
        ("flag", {"rho": 0.1}, "pure session"),
        ("flag", {"resample": 0}, "strictly between 0 and 1"),
        ("flag", {"resample": 1}, "strictly between 0 and 1"),
        ("flag", {"resample": math.nan}, "finite"),
        ("flag", {"within": 3}, "no option within"),
        ("flag", {"epsilon": 1, "max_groups": 3}, "no option max_groups"),
        ("flag", {"epsilon": 1, "fresh": "yes"}, "fresh"),
        ("nope", {"epsilon": 1}, "nope"),
        ("vote", {"epsilon": 1}, "need categories"),
        ("vote", {"epsilon": 1, "categories": ["yes"]}, "at least two different"),
        ("vote", {"epsilon": 1, "categories": ["yes", "yes"]}, "at least two different"),
        ("vote", {"epsilon": 1, "categories": [1, 2]}, "values of the type String"),
        ("vote", {"epsilon": 1, "categories": "yes"}, "a list of values of the type"),
        ("flag", {"epsilon": 1, "categories": [0, 1]}, "values of the type Boolean"),
        ("color", {"epsilon": 1, "categories": ["red", "pink"]}, "values of the type Enum"),
        ("age", {"epsilon": 1, "categories": [0, 1.5]}, "values of the type Int64"),
        ("weight", {"epsilon": 1, "categories": [0.0, 1.0]}, "told apart"),
        ("weight", {"epsilon": 1}, "told apart"),
        (pl.col("age").mean(), {"epsilon": 1, "categories": [0, 1]}, "other rows"),
    ],
)
def test_bad_words_are_refused_before_the_charge(session, column, words, message):
    with session:
        for door in (PEOPLE.dp, PEOPLE.lazy().dp):
            with pytest.raises(dp.DPError, match=message):
                door.randomized_response(column, **words)
    assert not session.releases


def test_an_engines_error_is_not_shown_and_the_charge_stays(session):
    def broken(_):
        raise ValueError("secret")

    lazy = PEOPLE.lazy().map_batches(broken, schema=PEOPLE.schema)
    with session, pytest.raises(Exception, match="engine failed") as error:
        lazy.dp.randomized_response("flag", epsilon=1).collect()
    assert "secret" not in str(error.value)
    assert session.spent.epsilon == 1
    assert session.releases[0].state == "failed"


def test_a_source_that_changes_while_it_is_read_is_not_released_and_the_charge_stays(session):
    plan, rows = asked(PEOPLE, session, "flag", epsilon=1)
    names = iter([b"before", b"after"])
    with pytest.raises(dp.EngineError, match="changed while it was read"):
        run_responses(plan, rows, session, identity=lambda: next(names), fresh=False)
    assert session.spent.epsilon == 1
    assert session.releases[0].state == "failed"


def test_the_fingerprint_holds_everything_that_makes_the_question(session):
    plan, _ = asked(PEOPLE, session, "flag", epsilon=1)
    assert json.loads(plan.fingerprint())[:3] == ["randomized_response", "flag", plan.expression]
    other, _ = asked(PEOPLE, session, "flag", epsilon=2)
    assert other.fingerprint() != plan.fingerprint()
