"""Plans: which noise, which scale, which price, and that they depend on nothing but the question and the terms."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from scipy.signal import fftconvolve

from dp_polars import InvalidParameterError
from dp_polars._engines.request import Exact
from dp_polars._plan import grid as grid_of_values
from dp_polars._plan.plan import plan_of
from dp_polars._plan.query import Spend
from dp_polars._session.cost import NOTHING
from dp_polars._session.filters import accepts
from dp_polars.theory import zcdp_to_delta
from tests.plan.queries import query
from tests.session.test_filter_by_enumeration import terms_of

FOUR = pl.DataFrame({"k": ["a", "b", "c", "d"]})
TERMS = terms_of(1, 1e-6)


def spend(**words):
    return Spend(**{name: Fraction(repr(x)) if isinstance(x, float) else x for name, x in words.items()})


def test_the_noise_of_a_sum_has_the_scale_of_the_closed_form():
    """The scale is groups * rows * bound / epsilon, with no hidden factor, in the plan and in the draws."""
    for epsilon in (0.1, 1.0):
        plan = plan_of(
            query("sum", keys=(), bounds=(0, 1000), integers=False, max_rows=1, spend=spend(epsilon=epsilon)), TERMS
        )
        measurement = plan.measurements[0]
        assert measurement.noise.mechanism == "laplace"
        assert measurement.noise.parameter * measurement.grid.step == Fraction(1000) / Fraction(repr(epsilon))
        from dp_polars._release.noise import noisy_aggregates
        from tests.bits import SeededBits

        exact = Exact(pl.DataFrame({measurement.name: [0] * 100_000}))
        drawn = noisy_aggregates(exact, plan, SeededBits(1))[measurement.name].to_numpy() * float(measurement.grid.step)
        # The mean absolute value of 1e5 Laplace draws is its scale to 1 / sqrt(1e5); six deviations are 2 %.
        assert np.abs(drawn).mean() == pytest.approx(1000 / epsilon, rel=0.02)


def test_a_mean_errs_by_at_most_seven_tenths_of_sum_over_count_at_an_even_split():
    from dp_polars._release.answers import present
    from dp_polars._release.noise import noisy_aggregates
    from tests.bits import SeededBits

    releases = 20_000
    for n in (1000, 10_000):
        x = np.clip(np.random.default_rng(0).lognormal(5, 0.5, n), 0, 1000)
        for epsilon in (0.1, 1.0):
            plan = plan_of(
                query("mean", keys=(), bounds=(0, 1000), integers=False, max_rows=1, spend=spend(epsilon=epsilon)),
                TERMS,
            )
            (measurement,) = plan.measurements
            grid = measurement.grid
            steps = np.round((x - float(grid.offset)) / float(grid.step)).astype(int)
            finer = measurement.statistic.whole // (grid.high - grid.low)
            down, up = ((int(steps.sum()) - n * grid.low) * finer, (n * grid.high - int(steps.sum())) * finer)
            exact = Exact(
                pl.DataFrame(
                    {name: [v] * releases for name, v in zip(measurement.statistic.columns, (up, down), strict=True)}
                )
            )
            ours = present(noisy_aggregates(exact, plan, SeededBits(2)), plan)["v"].to_numpy()
            generator = np.random.default_rng(3)
            sums = x.sum() + generator.laplace(0, 1000 / (epsilon / 2), releases)
            counts = np.maximum(1, n + generator.laplace(0, 1 / (epsilon / 2), releases))
            plain = np.abs(np.clip(sums / counts, 0, 1000) - x.mean()).mean()
            assert np.abs(ours - x.mean()).mean() <= 0.7 * plain


def test_without_a_mechanism_the_smaller_noise_is_taken():
    few = plan_of(query("count", domain=FOUR, max_groups=2), TERMS)
    assert few.measurements[0].noise.mechanism == "laplace"
    domain = pl.DataFrame({"k": [str(i) for i in range(100)]})
    many = plan_of(query("count", domain=domain, max_groups=50), TERMS)
    assert many.measurements[0].noise.mechanism == "gaussian"
    for mechanism in ("laplace", "gaussian"):
        forced = query("count", domain=domain, max_groups=50, spend=spend(epsilon=0.5, mechanism=mechanism))
        assert plan_of(forced, TERMS).measurements[0].noise.deviation >= many.measurements[0].noise.deviation


@pytest.mark.parametrize("terms", [terms_of(1), terms_of(1, 1e-6), terms_of(rho=0.02, delta=1e-6)], ids=str)
@pytest.mark.parametrize("aggregate", ["count", "sum", "mean"])
def test_shares_that_sum_to_one_always_fit(terms, aggregate):
    spent = NOTHING
    for share in (Fraction(1, 2), Fraction(1, 3), Fraction(1, 12), Fraction(1, 12)):
        spent = spent + plan_of(query(aggregate, domain=FOUR, spend=Spend(share=share)), terms).cost
        assert accepts(terms, spent)


@pytest.mark.parametrize("aggregate", ["count", "count_units", "sum", "mean"])
@pytest.mark.parametrize("spends", [{"epsilon": 0.1}, {"share": 0.1}])
def test_ten_releases_with_discovered_keys_fit_into_the_session(aggregate, spends):
    """Key discovery takes slightly less than its share of delta, so ten tenths fit although floats round."""
    plan = plan_of(query(aggregate, spend=spend(**spends)), TERMS)
    assert accepts(TERMS, plan.cost * 10)
    assert plan.cost.delta > 0


def test_a_release_costs_what_its_noise_gives_away():
    for aggregate in ("count", "sum", "mean"):
        plan = plan_of(query(aggregate, domain=FOUR, spend=spend(epsilon=0.5, mechanism="gaussian")), TERMS)
        rho = sum(
            measurement.sensitivity.l2_squared / (2 * measurement.noise.parameter) for measurement in plan.measurements
        )
        assert rho == plan.cost.rho
        assert plan.cost.epsilon == Fraction(1, 2)
        assert zcdp_to_delta(max(measurement.noise.cost.rho for measurement in plan.measurements), 0.5) <= float(
            TERMS.gaussian_delta
        )
        plan = plan_of(query(aggregate, domain=FOUR, spend=spend(epsilon=0.5, mechanism="laplace")), TERMS)
        assert sum(
            measurement.sensitivity.l1 / measurement.noise.parameter for measurement in plan.measurements
        ) == Fraction(1, 2)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_group_of_nobody_else_appears_with_at_most_delta(size, adjacency, mechanism):
    """All groups that only the protected units are in, at their largest count, stay below the threshold."""
    terms = terms_of(1, 1e-3, group_size=size, adjacency=adjacency)
    for least in (1, 5):
        plan = plan_of(query("count", min_units=least, spend=spend(epsilon=0.5, mechanism=mechanism)), terms)
        noise, threshold = plan.measurements[0].noise, plan.discovery.threshold
        count = size * plan.compiled[0].cap.max_rows
        reach = 60 * int(noise.deviation + 1)
        x = np.arange(-reach, reach + 1)
        if mechanism == "laplace":
            weights = np.exp(-np.abs(x) / float(noise.parameter))
        else:
            weights = np.exp(-(x**2) / (2 * float(noise.parameter)))
        above = weights[count + x >= threshold].sum() / weights.sum()
        appears = -math.expm1(size * plan.bounds.max_groups * math.log1p(-above))
        assert appears <= float(plan.discovery.delta)
        if least == 1 and adjacency == "add_remove":  # and not by a mile
            above = weights[count + 1 + x >= threshold].sum() / weights.sum()
            assert -math.expm1(size * plan.bounds.max_groups * math.log1p(-above)) > float(plan.discovery.delta) * 0.9


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("kind", ["mean", "var"])
def test_a_group_of_nobody_else_appears_with_at_most_delta_by_the_sums_of_a_basis(size, kind, monkeypatch):
    """The noisy sums of a basis add up to the rows, and so does their noise, whose law is convolved here.

    A row is divided into four steps, so that the law is short. What rounding lets a unit add counts, too.
    """
    monkeypatch.setattr(grid_of_values, "_MOST_FINE", 2)
    terms = terms_of(1, 1e-3, group_size=size)
    plan = plan_of(query(kind, bounds=(0, 4), max_groups=1, max_rows=1, spend=spend(epsilon=0.5)), terms)
    (measurement,) = plan.measurements
    assert measurement.statistic.source == "basis"
    scale = float(measurement.noise.parameter)
    x = np.arange(-int(60 * scale), int(60 * scale) + 1)
    law = one = np.exp(-np.abs(x) / scale) / np.exp(-np.abs(x) / scale).sum()
    for _ in measurement.statistic.columns[1:]:
        law = fftconvolve(law, one)  # off by about 1e-16, far below delta
    middle = len(law) // 2
    assert measurement.statistic.whole == 4 * 4 ** (len(measurement.statistic.columns) - 1)
    count = size * (
        measurement.statistic.max_rows * measurement.statistic.whole + len(measurement.statistic.columns) - 1
    )
    above = law[middle + plan.discovery.threshold - count :].sum()
    assert -math.expm1(size * plan.bounds.max_groups * math.log1p(-above)) <= float(plan.discovery.delta)


def test_units_together_discover_keys_of_sums_by_group_privacy():
    """With three units in the same groups, each group's chance of being shown changes as epsilon and delta allow."""
    terms = terms_of(1, 1e-3, group_size=3)
    plan = plan_of(query("sum", max_groups=2, spend=spend(epsilon=1.0, delta=1e-4)), terms)
    rule, groups = plan.discovery.rule, plan.bounds.max_groups
    assert rule.strategy == "optimal"
    chance = np.concatenate([[0.0], rule.table / 2.0**64, np.ones(3)])
    epsilon = float(plan.cost.epsilon - plan.measurements[0].noise.cost.epsilon)
    each = math.exp(epsilon / groups)
    for before, after in ((chance[:-3], chance[3:]), (1 - chance[3:], 1 - chance[:-3])):
        assert groups * np.maximum(after - each * before, 0).max() <= 1e-4 * (1 + 1e-9)


def test_a_wanted_error_is_met_at_the_least_price():
    for aggregate, step in (("count", 1), ("sum", 1)):
        asked = query(aggregate, domain=FOUR, spend=Spend(within=Fraction(200), confidence=0.95))
        plan = plan_of(asked, TERMS)
        assert plan.expected_error(0.95) <= 200
        noise = plan.measurements[0].noise
        weaker = replace(noise, parameter=noise.parameter * Fraction(102, 100))
        assert weaker.error(0.95) * step > 200


def test_a_plan_is_made_of_the_question_and_the_terms_alone():
    asked = query("count", domain=FOUR)
    assert plan_of(asked, TERMS) == plan_of(asked, TERMS)
    assert asked.fingerprint() == query("count", domain=FOUR.clone()).fingerprint()
    others = [
        query("count", domain=FOUR.head(3)),
        query("count", domain=FOUR, max_groups=3),
        query("count", domain=FOUR, max_rows=4),
        query("count", domain=FOUR, nonnegative=True),
        query("count", domain=FOUR, interval=0.9),
        query("count", domain=FOUR, spend=spend(epsilon=0.25)),
        query("count", domain=FOUR, unit=("w",)),
        query("count", domain=FOUR, steps=("filter",)),
        query("count", domain=None),
        query("count", domain=None, min_units=2),
        query("count_units", domain=FOUR),
        query("sum", domain=FOUR),
        query("sum", domain=FOUR, bounds=(0, 11)),
        query("sum", domain=FOUR, per="unit"),
    ]
    prints = {other.fingerprint() for other in others}
    assert len(prints) == len(others)
    assert asked.fingerprint() not in prints


@pytest.mark.parametrize(
    ("asked", "terms", "text"),
    [
        (query("count", domain=None), terms_of(1), "no delta to discover"),
        (query("count", max_groups=None), TERMS, "Grouping by k needs a cap on the groups"),
        (query("count", max_rows=None), TERMS, "a cap on the rows"),
        (query("sum", max_rows=None), TERMS, "per='unit'"),
        (query("mean", domain=FOUR, spend=Spend(within=Fraction(5))), TERMS, "depends on how many rows"),
        (query("sum", spend=Spend(within=Fraction(5))), TERMS, "needs public keys"),
        (query("count", domain=FOUR, spend=Spend(share=Fraction(2))), TERMS, "up to 1"),
        (query("count", domain=FOUR, spend=spend(rho=0.1)), terms_of(1), "Laplace noise only"),
        (
            query("count", domain=FOUR, spend=spend(epsilon=0.1, mechanism="gaussian")),
            terms_of(rho=0.1), "rho= or share=",
        ),
        (query("sum", domain=FOUR, bounds=(0, 10**15), spend=spend(epsilon=1e-8)), TERMS, "64-bit"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(asked, terms, text):
    with pytest.raises(InvalidParameterError, match=text):
        plan_of(asked, terms)


# ---------------------------------------------------------------- units that are no integers


@pytest.mark.parametrize(("words", "times"), [({}, 1), ({"group_size": 3}, 3), ({"adjacency": "replace"}, 2)])
def test_telling_units_apart_by_a_hash_is_charged(words, times):
    asked = query("count_units", domain=FOUR, spend=spend(share=0.5))
    terms = terms_of(1, 1e-6, **words)
    exact = plan_of(asked, terms)
    hashed = plan_of(replace(asked, integer_unit=False), terms)
    assert exact.unit_delta == 0
    assert hashed.unit_delta == Fraction(times, 2**39)
    assert hashed.cost.delta == exact.cost.delta + hashed.unit_delta
    assert "told apart by a hash" in str(hashed)
    assert "told apart" not in str(exact)


def test_a_pure_session_or_a_tiny_delta_has_units_told_apart_exactly():
    asked = query("count_units", domain=FOUR, spend=spend(epsilon=0.5), integer_unit=False)
    assert plan_of(asked, terms_of(1)).unit_delta == 0
    assert plan_of(asked, terms_of(1, 1e-10)).unit_delta == 0
    assert plan_of(asked, terms_of(1, 1e-6)).unit_delta > 0
    stingy = replace(asked, domain=None, spend=spend(epsilon=0.5, delta=Fraction(1, 10**11)))
    assert plan_of(stingy, terms_of(1, 1e-6)).unit_delta == 0


@pytest.mark.parametrize("aggregate", ["count", "sum", "mean"])
def test_the_hash_of_units_is_paid_from_the_delta_of_the_query(aggregate):
    """Shares that sum to 1 therefore fit, and a delta that the query names is not exceeded."""
    terms = terms_of(1, 1e-6)
    asked = query(aggregate, spend=spend(share=0.5), integer_unit=False)
    plan = plan_of(asked, terms)
    assert plan.discovery.delta + plan.unit_delta <= terms.native_delta / 2
    assert accepts(terms, plan.cost * 2)
    named = plan_of(replace(asked, spend=spend(epsilon=0.1, delta=Fraction(1, 10**7))), terms)
    assert named.unit_delta > 0
    assert named.discovery.delta + named.unit_delta == Fraction(1, 10**7)
