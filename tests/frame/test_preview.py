"""`df.dp.preview`: the methods of a private frame, which return their plan and spend nothing."""

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._frame.preview import Preview
from dp_polars._plan.base import BasePlan

VISITS = pl.DataFrame(
    {"user": range(40), "region": ["a", "b"] * 20, "spent": [1.0, 2.0] * 20, "vip": [True, False] * 20}
)

QUESTIONS = {
    "count": lambda frame: frame.count(epsilon=0.1),
    "agg": lambda frame: frame.group_by("vip").agg(n=dp.count(), epsilon=0.1),
    "noisy_max": lambda frame: frame.noisy_max("region", ["a", "b"], epsilon=0.1),
    "noisy_min": lambda frame: frame.noisy_min("region", ["a", "b"], epsilon=0.1),
    "top_k": lambda frame: frame.top_k("region", 2, ["a", "b", "c"], by="vip", epsilon=0.1),
    "select_best": lambda frame: frame.select_best([1, 2], lambda c: c * pl.col("spent"), (0, 4), epsilon=0.1),
    "above_threshold": lambda frame: frame.above_threshold(10, epsilon=0.1),
    "sparse_vector": lambda frame: frame.sparse_vector(10, hits=2, epsilon=0.1),
    "online_queries": lambda frame: frame.online_queries(["vip"], alpha=0.1, epsilon=0.1),
    "synthesize": lambda frame: frame.synthesize(["vip"], epsilon=0.1),
    "randomized_response": lambda frame: frame.randomized_response("vip", epsilon=0.1),
}


def test_a_preview_has_the_very_methods_of_a_frame():
    names = [name for name in dir(Preview) if not name.startswith("_")]
    assert set(QUESTIONS) - {"agg"} <= set(names)
    for name in set(names) - {"group_by"}:  # a private frame can also combine the rows of a unit, which gives no plan
        assert getattr(Preview, name) is getattr(dp.PrivateFrame, name), name


@pytest.mark.slow
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_has_a_plan_which_costs_nothing_and_is_what_is_charged(name, lazy):
    session = dp.Session(epsilon=1.0, unit="user", adjacency="replace", max_rows_per_group=1, max_groups=1)
    frame = dp.private(VISITS.lazy() if lazy else VISITS, session)
    plan = QUESTIONS[name](frame.preview)
    assert isinstance(plan, BasePlan)
    assert not session.releases
    answer = QUESTIONS[name](frame)
    if isinstance(answer, pl.LazyFrame):
        assert not session.releases
        answer.collect()
    (release,) = session.releases
    assert (release.cost, release.label) == (plan.cost, plan.label())


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_plan_says_who_is_protected_and_what_it_costs(name):
    session = dp.Session(epsilon=1.0, unit="user", adjacency="replace", max_rows_per_group=1, max_groups=1)
    rows = dict(QUESTIONS[name](dp.private(VISITS, session).preview).rows())
    assert rows["protects"].startswith("user, replaced")
    assert rows["price"].startswith("10 % of the budget (by itself epsilon 0.1; fits 10 times)")


@pytest.mark.slow
@pytest.mark.parametrize("words", [{"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-6}, {"rho": 0.1, "delta": 1e-6}])
def test_a_plan_says_how_often_such_a_question_fits(words):
    """It fits exactly so often: then it is refused."""
    session = dp.Session(unit="user", max_rows_per_group=1, **words)
    private = dp.private(VISITS, session)
    said = []
    for _ in range(20):
        said.append(private.preview.count(share=0.15).price().rpartition("; ")[2].rstrip(")"))
        if "fits" not in said[-1]:
            break
        private.count(share=0.15, fresh=True)
    with pytest.raises(dp.BudgetExceeded):
        private.count(share=0.15, fresh=True)
    *before, last = said
    assert before[0] == f"fits {len(before)} times"
    assert before[-1] == "fits once"
    assert last.startswith("it does not fit")
