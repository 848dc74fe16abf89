"""The expected error in a group of a given size, against the errors of real releases of such groups."""

import math

import numpy as np
import polars as pl
import pytest

import dp_polars as dp

GROUPS, ROWS = 4_000, 100
"""With 4,000 answers, the 95 % quantile of the error has a relative standard error of about 2.2 % for Laplace noise."""

BOUNDS = (0, 10)


@pytest.fixture(scope="module")
def spread() -> pl.DataFrame:
    """Return groups of 100 rows whose values are spread evenly between 0 and 10, and a second independent column."""
    x = (np.arange(ROWS) + 0.5) / ROWS * 10
    y = np.random.default_rng(1).permutation(x)
    return pl.DataFrame({"g": np.repeat(np.arange(GROUPS), ROWS), "x": np.tile(x, GROUPS), "y": np.tile(y, GROUPS)})


def session(**given: float) -> dp.Session:
    return dp.Session(unit=dp.ROW, **given)  # type: ignore[arg-type]


QUERIES = {
    "mean": lambda f, **o: f.mean("x", "g", bounds=BOUNDS, **o),
    "var": lambda f, **o: f.var("x", "g", bounds=BOUNDS, **o),
    "std": lambda f, **o: f.std("x", "g", bounds=BOUNDS, **o),
    "corr": lambda f, **o: f.corr("x", "y", "g", bounds=(BOUNDS, BOUNDS), **o),
    "cov": lambda f, **o: f.cov("x", "y", "g", bounds=(BOUNDS, BOUNDS), **o),
    "median": lambda f, **o: f.median("x", "g", bounds=BOUNDS, **o),
    "quantile": lambda f, **o: f.quantile("x", 0.8, "g", bounds=BOUNDS, **o),
}


@pytest.mark.slow
@pytest.mark.parametrize("budget", [{"epsilon": 4.0}, {"rho": 2.0}], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("name", QUERIES)
def test_the_expected_error_is_the_error_of_releases(name: str, budget: dict[str, float], spread: pl.DataFrame) -> None:
    """95 % of the errors lie within the expected error, within five standard errors: a false alarm rate below 1e-6.

    The number of errors above it is binomial. It may fall short a little more, because the expected error of one
    continuous distribution stands for that of a discrete one.
    """
    frame = dp.private(spread, session(**budget))
    options = {"keys": range(GROUPS), "share": 0.2 if name in ("median", "quantile") else 1.0}
    expected = QUERIES[name](frame.preview, if_rows=ROWS, **options).expected_error()
    answer = QUERIES[name](frame, **options).sort("g").to_series(1).to_numpy()
    exact = {
        "mean": pl.col("x").mean(), "var": pl.col("x").var(), "std": pl.col("x").std(), "corr": pl.corr("x", "y"),
        "cov": pl.cov("x", "y"), "median": pl.col("x").median(), "quantile": pl.col("x").quantile(0.8, "linear"),
    }  # fmt: skip
    truth = spread.filter(pl.col("g") == 0).select(exact[name]).item()
    errors = np.abs(answer - truth)
    slack = 5 * math.sqrt(0.05 * 0.95 / GROUPS)
    assert np.mean(errors <= 1.05 * expected) >= 0.95 - slack
    assert np.mean(errors <= expected / 1.1) <= 0.95 + slack


def test_the_same_plan_always_has_the_same_expected_error(spread: pl.DataFrame) -> None:
    preview = dp.private(spread, session(epsilon=1.0)).preview
    plans = [preview.var("x", bounds=BOUNDS, epsilon=0.5, if_rows=300) for _ in range(2)]
    assert plans[0].expected_error() == plans[1].expected_error()
    assert "in a group of 300 rows" in str(plans[0])


def test_errors_of_all_answers_are_known(spread: pl.DataFrame) -> None:
    preview = dp.private(spread, session(epsilon=1.0)).preview
    plan = preview.group_by("g").agg(
        n=dp.count(), kinds=dp.n_unique("x"), m=dp.mean("x", bounds=BOUNDS),
        q=dp.quantile("x", [0.1, 0.9], bounds=BOUNDS), keys=[1, 2], epsilon=0.5, if_rows=10_000,
    )  # fmt: skip
    assert set(plan.expected_errors()) == {"n", "kinds", "m", "q"}
    line = preview.linear_regression("x", "y", bounds=(BOUNDS, BOUNDS), epsilon=0.5, if_rows=10_000)
    assert set(line.expected_errors()) == {"slope", "intercept"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "bounds"),
    [(pl.Int64, (0, 50)), (pl.Boolean, (0, 1)), (pl.Decimal(10, 2), (0, 5)), (pl.Float32, (-1, 1))],
)
def test_every_type_has_an_expected_error(dtype: pl.DataType, bounds: tuple[int, int]) -> None:
    frame = dp.private(pl.DataFrame({"x": pl.Series([0, 1]).cast(dtype)}), session(epsilon=1.0))
    small, large = (
        frame.preview.mean("x", bounds=bounds, epsilon=0.5, if_rows=n).expected_error() for n in (10**3, 10**6)
    )
    assert small is not None
    assert large is not None
    assert large == pytest.approx(small / 1000, rel=0.05)


@pytest.mark.slow
def test_a_wanted_error_of_a_mean_finds_the_smallest_spend(spread: pl.DataFrame) -> None:
    for own in (session(epsilon=1.0), session(epsilon=1.0, delta=1e-6), session(rho=0.5)):
        frame = dp.private(spread, own)
        plan = frame.preview.mean("x", bounds=BOUNDS, within=0.2, if_rows=2_000)
        again = frame.preview.mean("x", bounds=BOUNDS, within=0.2, if_rows=2_000)
        found = plan.expected_error()
        assert found is not None
        assert 0.19 <= found <= 0.2
        assert plan.cost == again.cost  # asked again, the stored release is found
        frame.mean("x", bounds=BOUNDS, within=0.2, if_rows=2_000)
        spent = own.spent
        frame.mean("x", bounds=BOUNDS, within=0.2, if_rows=2_000)
        assert own.spent == spent


def test_errors_say_what_is_missing(spread: pl.DataFrame) -> None:
    preview = dp.private(spread, session(epsilon=1.0)).preview
    with pytest.raises(dp.InvalidParameterError, match="if_rows=1000"):
        preview.mean("x", bounds=BOUNDS, within=0.2)
    with pytest.raises(dp.InvalidParameterError, match="Even the whole budget"):
        preview.mean("x", bounds=BOUNDS, within=0.001, if_rows=100)
    with pytest.raises(dp.InvalidParameterError, match="known in advance"):
        preview.mean("x", bounds="auto", epsilon=0.5, if_rows=100)
    with pytest.raises(dp.InvalidParameterError, match="if_rows must be at least 1"):
        preview.mean("x", bounds=BOUNDS, epsilon=0.5, if_rows=0)
    with pytest.raises(dp.InvalidParameterError, match="at most 1,000,000,000"):
        preview.mean("x", bounds=BOUNDS, epsilon=0.5, if_rows=10**18)
    largest = preview.var("x", bounds=BOUNDS, epsilon=0.5, if_rows=10**9).expected_error()
    assert largest is not None
    assert 0 < largest < 1e-3
    with pytest.raises(dp.InvalidParameterError, match="one answer"):
        preview.group_by().agg(a=dp.mean("x", bounds=BOUNDS), b=dp.mean("y", bounds=BOUNDS), within=0.5, if_rows=100)


def test_a_group_too_small_for_an_answer_says_so(spread: pl.DataFrame) -> None:
    preview = dp.private(spread, session(epsilon=1.0)).preview
    plan = preview.corr("x", "y", bounds=(BOUNDS, BOUNDS), epsilon=0.1, if_rows=5)
    assert plan.expected_error() == math.inf
    assert "the noise can hide the answer" in str(plan)


def test_the_chart_of_a_mean_has_a_curve(spread: pl.DataFrame) -> None:
    preview = dp.private(spread, session(epsilon=1.0)).preview
    chart = dp.plot.tradeoff(preview.mean, "x", bounds=BOUNDS, if_rows=1_000, epsilons=[0.1, 1.0])
    (rows,) = chart.to_dict()["datasets"].values()
    assert rows[0]["error"] == pytest.approx(10 * rows[1]["error"], rel=0.2)
