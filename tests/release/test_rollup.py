"""Tables with totals: they agree, they are the least squares estimate, and their sensitivity is what was paid for."""

import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_polars as dp
from dp_polars._engines.polars import engine, run_bounded
from dp_polars._plan.plan import plan_of
from dp_polars._release.rollup import agreeing, exact_totals, level_measurements, tree_of
from dp_polars._release.run import request_of
from tests.plan.queries import query
from tests.session.test_filter_by_enumeration import terms_of

PARENTS = [np.array([0, 0, 0]), np.array([0, 0, 1, 2, 2, 2])]


def least_squares(noisy, variances):
    """Return the weighted least squares estimate of the leaves, from all levels at once."""
    leaves = len(noisy[-1])
    rows = [np.ones((1, leaves)), np.equal.outer(np.arange(3), PARENTS[1]).astype(float), np.eye(leaves)]
    weights = np.concatenate([np.full(len(level), v**-0.5) for level, v in zip(noisy, variances, strict=True)])
    matrix, answers = np.concatenate(rows), np.concatenate(noisy)
    return np.linalg.lstsq(matrix * weights[:, None], answers * weights, rcond=None)[0]


@pytest.mark.slow
@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.data())
def test_it_is_the_least_squares_estimate_in_whole_numbers_that_agree(data):
    noisy = [np.array(data.draw(st.lists(st.integers(-(10**6), 10**6), min_size=n, max_size=n))) for n in (1, 3, 6)]
    variances = [data.draw(st.sampled_from([0.5, 1.0, 40.0, 1e4])) for _ in range(3)]
    whole, middle, leaves = agreeing(noisy, variances, PARENTS)
    assert np.abs(leaves - least_squares(noisy, variances)).max() < 3  # rounded once on each level
    assert np.bincount(PARENTS[1], leaves).tolist() == middle.tolist()
    assert middle.sum() == whole[0]


@pytest.mark.slow
@settings(max_examples=150, derandomize=True, deadline=None)
@given(st.data())
def test_totals_of_neighbours_differ_by_at_most_the_sensitivity(data):
    draw = data.draw
    domain = pl.DataFrame({"k": ["a", "a", "a", "b", "c", "c"], "l": ["x", "y", "z", "x", "x", "z"]})
    adjacency, size = draw(st.sampled_from(["add_remove", "replace"])), draw(st.integers(1, 2))
    kind, bounds = draw(st.sampled_from([("count", None), ("sum", (-3, 5)), ("sum", (0, 5)), ("mean", (-1, 4))]))
    asked = query(
        kind,
        keys=("k", "l"),
        domain=domain,
        bounds=bounds,
        max_groups=draw(st.sampled_from([1, 2, 4, 6])),
        max_rows=draw(st.sampled_from([1, 3])),
        rollup=True,
    )
    plan = plan_of(asked, terms_of(1, 1e-6, adjacency=adjacency, group_size=size))

    chance = random.Random(draw(st.integers(0, 2**62)))  # Hypothesis takes longer to draw rows than the engine needs

    def rows_of(unit):
        rows = range(chance.randint(0, 9))
        return [(unit, chance.choice("abc"), chance.choice("xyz"), chance.randint(-9, 9)) for _ in rows]

    common = rows_of(1) + rows_of(2)
    removed = [row for unit in (0, 3)[:size] for row in rows_of(unit)]
    entered = [row for unit in (4, 5)[:size] for row in rows_of(unit)] if adjacency == "replace" else []
    salt = draw(st.integers(0, 2**62))
    tables = []
    for rows in (common + removed, common + entered):
        schema = {"unit0": pl.Int64, "key0": pl.String, "key1": pl.String, "value0": pl.Int64}
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine.secrets, "randbits", lambda _: salt)
            tables.append(run_bounded(frame.lazy() if plan.columns else frame.lazy().drop("value0"), request_of(plan)))
    parents, _ = tree_of(["key0", "key1"], tables[0].groups)
    for name in {name for one in plan.compiled for name in one.statistics.values()}:
        names = plan.measurement(name).statistic.columns or (name,)
        levels = [[exact_totals(table, own, parents) for own in names] for table in tables]
        for level, measurement in enumerate(level_measurements(plan, name)):
            moved = np.abs([a[level] - b[level] for a, b in zip(*levels, strict=True)])
            assert moved.sum() <= measurement.sensitivity.l1
            assert (moved.astype(object) ** 2).sum() <= measurement.sensitivity.l2_squared
            assert moved.max() <= measurement.sensitivity.each


ROWS = pl.DataFrame(
    {
        "who": [i % 300 for i in range(3000)],
        "k": ["a", None, "b"] * 1000,
        "l": ["x", "y"] * 1500,
        "v": [1.0, 4.0] * 1500,
    }
)
DOMAIN = pl.DataFrame(
    {"k": ["a", "a", "b", "b", None, None], "l": ["x", "y"] * 3}, schema={"k": pl.String, "l": pl.String}
)


@pytest.fixture
def session():
    with pytest.warns(dp.DPWarning):
        return dp.Session(epsilon=10**6, delta=1e-6, unit="who", max_groups=6, max_rows_per_group=20)


def test_a_table_and_its_totals_in_one_answer(session):
    """Laplace noise of scale 3 * 6 * 20 / 10**5 on each level is 0, except with probability below 1e-100."""
    with session:
        found = ROWS.dp.count(["k", "l"], keys=DOMAIN, rollup=True, epsilon=10**5)
    assert found.columns == ["k", "l", "level", "count"]
    assert found["level"].to_list() == [2] * 6 + [1] * 3 + [0]
    assert found.filter(level=0).select("k", "l", "count").rows() == [(None, None, 3000)]
    by_key = dict(found.filter(level=1).select("k", "count").iter_rows())
    assert by_key == {"a": 1000, "b": 1000, None: 1000}
    (entry,) = session.releases
    assert entry.cost.epsilon <= 10**5


def test_means_come_from_sums_that_agree(session):
    with session:
        found = ROWS.dp.group_by("k", "l").agg(
            n=dp.count("v"), m=dp.mean("v", bounds=(0, 5)), keys=DOMAIN, rollup=True, epsilon=10**5
        )
    for row in found.filter(pl.col("level") < 2).to_dicts():
        own = ROWS.filter(pl.col("k").eq_missing(row["k"])) if row["level"] else ROWS
        assert row["n"] == own.height
        assert row["m"] == pytest.approx(own["v"].mean(), abs=0.01)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda f: f.count(["k", "l"], rollup=True, epsilon=1), "needs public keys"),
        (lambda f: f.count(rollup=True, epsilon=1), "needs public keys"),
        (lambda f: f.count_units(["k", "l"], keys=DOMAIN, rollup=True, epsilon=1), "works for aggregates of sums"),
        (
            lambda f: f.median("v", ["k", "l"], keys=DOMAIN, bounds=(0, 5), rollup=True, epsilon=1),
            "works for aggregates of sums",
        ),
        (lambda f: f.count(["k", "l"], keys=DOMAIN, rollup=True, confidence=0.9, epsilon=1), "without confidence"),
        (lambda f: f.group_by("k", "l").agg(level=dp.count(), keys=DOMAIN, rollup=True, epsilon=1), "column level"),
    ],
)
def test_what_has_no_totals_is_refused(session, ask, message):
    with session, pytest.raises(dp.InvalidParameterError, match=message):
        ask(ROWS.dp)
    assert not session.releases


@pytest.mark.slow
def test_it_is_cheaper_than_asking_twice():
    """At the same spend a rollup errs less, in its totals and in the table, than three questions with a third each."""
    domain = pl.DataFrame({"k": [str(i) for i in range(8)]}).join(
        pl.DataFrame({"l": [str(i) for i in range(6)]}), how="cross"
    )
    terms = terms_of(1, 1e-6)
    rolled = plan_of(query(keys=("k", "l"), domain=domain, max_groups=1, max_rows=1, rollup=True), terms)
    table = plan_of(query(keys=("k", "l"), domain=domain, max_groups=1, max_rows=1), terms)
    generator = np.random.default_rng(5)
    parents = [np.zeros(8, np.int64), np.repeat(np.arange(8), 6)]
    variances = [measurement.noise.deviation**2 for measurement in level_measurements(rolled, "rows")]
    errors = []
    for _ in range(2000):
        noisy = [
            np.rint(generator.normal(0, v**0.5, n)).astype(int) for v, n in zip(variances, (1, 8, 48), strict=True)
        ]
        errors.append([np.mean(level.astype(float) ** 2) for level in agreeing(noisy, variances, parents)])
    whole, by_key, leaves = np.mean(errors, axis=0)
    third = 9 * table.measurements[0].noise.deviation ** 2  # three questions, each with a third of the spend
    assert whole < third
    assert by_key < third
    assert leaves < third
