"""Dashboards: questions that are planned as a whole, then asked."""

import polars as pl
import pytest

import dp_polars as dp

VISITS = pl.DataFrame({
    "user": range(3_000), "region": ["north", "south", "west"] * 1_000, "spent": [1.0, 2.0, 3.0, 4.0] * 750,
})  # fmt: skip
KEYS = ["north", "south", "west"]


def session(**given: float) -> dp.Session:
    return dp.Session(unit="user", max_rows_per_group=1, **({"epsilon": 1.0} | given))  # type: ignore[arg-type]


def asked(board: dp.Dashboard, own: dp.Session) -> None:
    ask = board.on(dp.private(VISITS, own))
    ask.count("region", keys=KEYS)
    ask.mean("spent", "region", bounds=(0, 5), keys=KEYS)
    ask.noisy_max("region", candidates=KEYS)


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"delta": 1e-6}], ids=["pure", "approximate"])
@pytest.mark.parametrize("spend", [{"epsilon": 0.9}, {"share": 0.9}, {"share": 1}])
def test_a_spend_is_split_and_all_questions_fit(given: dict[str, float], spend: dict[str, float]) -> None:
    own = session(**given)
    board = dp.Dashboard(**spend)  # type: ignore[arg-type]
    asked(board, own)
    assert board.fits
    assert own.spent.share == 0
    planned = board.cost
    counts, means, common = board.run()
    assert [frame.height for frame in (counts, means, common)] == [3, 3, 1]  # type: ignore[union-attr]
    assert own.spent.epsilon == pytest.approx(float(planned.epsilon))
    assert [release.plan.title() for release in own.releases] == [plan.title() for plan in board.plans]


def test_running_again_is_free() -> None:
    own = session()
    board = dp.Dashboard(share=0.5)
    asked(board, own)
    first = board.run()
    spent = own.spent
    assert all(one.equals(other) for one, other in zip(first, board.run(), strict=True))  # type: ignore[arg-type]
    assert own.spent == spent
    dp.private(VISITS, own).count(share=0.5)  # nothing is left
    assert board.fits
    assert all(one.equals(other) for one, other in zip(first, board.run(), strict=True))  # type: ignore[arg-type]


def test_a_dashboard_that_does_not_fit_asks_nothing_and_suggests_one_that_does() -> None:
    own = session()
    dp.private(VISITS, own).count(epsilon=0.7)
    board = dp.Dashboard()
    ask = board.on(dp.private(VISITS, own))
    ask.count("region", keys=KEYS, epsilon=0.3)
    ask.mean("spent", bounds=(0, 5), share=0.3)
    assert not board.fits
    assert "do not fit" in str(board)
    assert "board.fitted()" in str(board)
    with pytest.raises(dp.BudgetExceeded):
        board.run()
    assert own.spent.epsilon == pytest.approx(0.7)
    smaller = board.fitted()
    assert smaller.fits
    first, second = (float(plan.cost.epsilon) for plan in smaller.plans)
    assert first == pytest.approx(second)
    assert 0.298 < first + second <= 0.3
    smaller.run()
    assert own.spent.epsilon <= 1


def test_a_wanted_error_is_not_scaled() -> None:
    own = session()
    board = dp.Dashboard(epsilon=3.0)
    ask = board.on(dp.private(VISITS, own))
    ask.count(within=10)
    ask.count("region", keys=KEYS)
    wanted, other = board.fitted().plans
    assert wanted.cost == dp.private(VISITS, own).preview.count(within=10).cost
    assert float(wanted.cost.epsilon + other.cost.epsilon) <= 1


def test_the_table_names_questions_prices_and_errors() -> None:
    own = session()
    board = dp.Dashboard(share=0.5)
    assert "none yet" in str(board)
    assert board.run() == []
    asked(board, own)
    text = str(board)
    assert "count by region: 16.7 % of the budget, error within" in text
    assert "together" in text
    assert "50 % of the budget; all of the budget is left, so they fit" in text
    assert "<table" in board._repr_html_()


def test_a_question_can_be_removed() -> None:
    board = dp.Dashboard(epsilon=0.6)
    ask = board.on(dp.private(VISITS, session()))
    ask.n_unique("spent")
    ask.count()
    ask.count("region", keys=KEYS)
    titles = [plan.title() for plan in board.plans]
    board.remove(2)
    assert [plan.title() for plan in board.plans] == [titles[0], titles[2]]
    assert float(board.cost.epsilon) == pytest.approx(0.6)  # what it would have cost goes to the others
    assert len(board.run()) == 2
    for wrong in (3, 0, -1, "n"):
        with pytest.raises(dp.InvalidParameterError, match="question"):
            board.remove(wrong)  # type: ignore[arg-type]
    assert len(board.plans) == 2


def test_mistakes_are_explained() -> None:
    with pytest.raises(dp.InvalidParameterError, match="in one way"):
        dp.Dashboard(epsilon=1, share=0.5)
    with pytest.raises(dp.InvalidParameterError, match="greater than 0"):
        dp.Dashboard(epsilon=-1)
    with pytest.raises(dp.InvalidParameterError, match=r"board\.on\(df\.dp\)"):
        dp.Dashboard(epsilon=1).on(VISITS)  # type: ignore[arg-type]
    with pytest.raises(dp.InvalidParameterError, match="up to 1"):
        dp.Dashboard(share=2)
    with pytest.raises(dp.InvalidParameterError, match="What may this release cost"):
        dp.Dashboard().on(dp.private(VISITS, session())).count()
    board = dp.Dashboard(share=0.5)
    with pytest.raises(dp.InvalidParameterError, match="doesn't count the rows"):
        board.on(dp.private(VISITS, session())).quantile("spent", [0.1, 0.9], bounds=(0, 5), confidence=0.9)
    assert board.plans == []
    board = dp.Dashboard(share=0.5)
    for own in (session(), session()):
        board.on(dp.private(VISITS, own)).count()
    with pytest.raises(dp.InvalidParameterError, match="one session"):
        board.run()
    own = session()
    dp.private(VISITS, own).count(epsilon=1)
    board = dp.Dashboard(share=0.5)
    board.on(dp.private(VISITS, own)).count("region", keys=KEYS)
    with pytest.raises(dp.InvalidParameterError, match="not enough left"):
        board.fitted()
