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
    with pytest.raises(dp.InvalidParameterError, match=r"board\.on\(df\.dp\)\.count"):
        dp.Dashboard([1])  # type: ignore[arg-type]
    with pytest.raises(dp.InvalidParameterError, match="in one way"):
        dp.Dashboard(epsilon=1, share=0.5)
    with pytest.raises(dp.InvalidParameterError, match="greater than 0"):
        dp.Dashboard(epsilon=-1)
    with pytest.raises(dp.InvalidParameterError, match=r"board\.on\(df\.dp\)"):
        dp.Dashboard(epsilon=1).on(VISITS)  # type: ignore[arg-type]
    with pytest.raises(dp.InvalidParameterError, match="up to 1"):
        dp.Dashboard(share=2)
    with pytest.raises(dp.InvalidParameterError, match="This release needs a spend"):
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
    with pytest.raises(dp.InvalidParameterError, match="not have enough left"):
        board.fitted()


def parts(board: dp.Dashboard) -> list[float]:
    """Return the parts of the budget that the table shows in percent, for each question and together."""
    return [float(text.rpartition(": ")[2].split(" %")[0]) for name, text in board.rows() if name != "errors"]


@pytest.mark.slow
@pytest.mark.parametrize("spend", [{"epsilon": 0.2}, {"epsilon": 0.9}, {"share": 0.2}, {"rho": 0.002}])
@pytest.mark.parametrize("given", [{}, {"queries": 3}, {"queries": 30}], ids=["no queries", "few", "many"])
def test_equal_spends_have_equal_parts_which_add_up(given: dict[str, int], spend: dict[str, float]) -> None:
    """Counts, means and choices have different prices in rho, and the first questions are counted by epsilon."""
    own = session(delta=1e-6, **given)
    board = dp.Dashboard(**spend)  # type: ignore[arg-type]
    asked(board, own)
    board.on(dp.private(VISITS, own)).count_units()
    board.on(dp.private(VISITS, own)).median("spent", bounds=(0, 5))
    *each, together = parts(board)
    assert len(each) == 5
    assert len(set(each)) == 1
    assert together == pytest.approx(5 * each[0], rel=0.01)
    board.run()
    assert own.spent.share == pytest.approx(together / 100, rel=0.01)


def test_parts_are_in_proportion_to_spends_of_the_same_kind() -> None:
    board = dp.Dashboard(epsilon=0.1)
    ask = board.on(dp.private(VISITS, session(delta=1e-6)))
    ask.count()
    ask.noisy_max("region", candidates=KEYS, epsilon=0.2)
    ask.count("region", keys=KEYS, within=100)
    ask.count("region", keys=KEYS, share=0.01)
    first, second, third, fourth, together = parts(board)
    assert second == pytest.approx(2 * first, rel=0.01)
    assert first + second + third + fourth == pytest.approx(together, rel=0.01)


@pytest.mark.slow
def test_one_size_of_groups_gives_all_errors() -> None:
    own = session()
    board = dp.Dashboard(share=0.5, if_rows=1_000)
    asked(board, own)
    ask = board.on(dp.private(VISITS, own))
    ask.median("spent", bounds=(0, 5), if_rows=10)
    ask.count("region", keys=KEYS, max_groups="auto")  # its error is unknown until the cap is
    ask.mean("spent", bounds=(0, 5), within=0.5)
    lines = dict(board.rows())
    assert "in groups" not in lines["question 1"]
    assert "of the budget, error within 0." in lines["question 2"]
    assert lines["question 2"].endswith("in groups of 1,000 rows")
    assert lines["question 4"].endswith("in groups of 10 rows")
    assert "error" not in lines["question 5"]
    assert "error within 0.5 in groups of 1,000 rows" in lines["question 6"]
    assert "errors" not in lines
    with pytest.raises(dp.InvalidParameterError, match="if_rows"):
        dp.Dashboard(share=0.5, if_rows=0)


def test_the_size_of_groups_is_no_part_of_a_question() -> None:
    own = session()
    for if_rows in (None, 100, 1_000):
        board = dp.Dashboard(share=0.5, if_rows=if_rows)
        asked(board, own)
        board.run()
    assert own.spent.share == pytest.approx(0.5)


def test_without_a_size_the_table_says_how_to_see_the_other_errors() -> None:
    board = dp.Dashboard(share=0.5)
    ask = board.on(dp.private(VISITS, session()))
    ask.count()
    assert "errors" not in dict(board.rows())
    ask.mean("spent", bounds=(0, 5))
    words = "depend on the rows of a group in question 2: dp.Dashboard(..., if_rows=1000) shows them for 1,000 rows"
    assert dict(board.rows())["errors"] == words
    ask.median("spent", bounds=(0, 5))
    assert "questions 2, 3: dp.Dashboard(" in board._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize("each", [0.6, 0.9, 1.5])
def test_a_board_of_different_noises_is_scaled_until_it_fits(each):
    """On the way, spends below the smallest price of a release are tried. They must not make it fail."""
    frame = pl.DataFrame({"user_id": [i % 900 for i in range(3000)], "x": [i % 40 for i in range(3000)]})
    session = dp.Session(epsilon=1.0, delta=1e-6, unit="user_id", max_groups=1, max_rows_per_group=4)
    board = dp.Dashboard()
    ask = board.on(dp.private(frame, session))
    ask.count(epsilon=each)
    ask.median("x", bounds=(0, 40), epsilon=each)
    assert not board.fits
    fitted = board.fitted()
    assert fitted.fits
    assert 0.9 < sum(plan.part for plan in fitted.plans) <= 1
    assert len(fitted.run()) == 2


def test_a_board_that_no_spend_makes_fit_is_refused():
    frame = pl.DataFrame({"user_id": range(100), "x": range(100)})
    session = dp.Session(epsilon=1.0, unit="user_id", max_groups=1, max_rows_per_group=1)
    frame.dp.count(epsilon=1.0, session=session)
    board = dp.Dashboard(epsilon=0.5)
    board.on(dp.private(frame, session)).count(by=[pl.col("x") > 3])
    with pytest.raises(dp.InvalidParameterError, match="Leave some of them out"):
        board.fitted()
