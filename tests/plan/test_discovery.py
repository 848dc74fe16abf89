"""Discovered keys: which count decides, what it costs, and how many units a group needs to appear."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from dp_polars._engines.request import Exact
from dp_polars._plan import discovery
from dp_polars._plan.auto import Found
from dp_polars._plan.compile import compile_query
from dp_polars._plan.contribution import contribution_bounds
from dp_polars._plan.plan import plan_of, settled
from dp_polars._plan.query import Spend
from dp_polars._plan.spend import allowances_of
from dp_polars._release.noise import noisy_aggregates
from tests.bits import SeededBits
from tests.plan.queries import aggregate, query
from tests.session.test_filter_by_enumeration import terms_of

TERMS = terms_of(1, 1e-6)
WHOLE = Spend(epsilon=Fraction(1))


def counted_by(plan):
    return plan.measurement(plan.discovery.counted).statistic.what


def outline(plan):
    """Return a plan without the order of its columns: the noise of each answer, what decides on keys, and the price."""
    noises = {}
    for compiled in plan.compiled:
        own = {role: plan.measurement(name) for role, name in compiled.statistics.items() if role != "cells"}
        noises[compiled.aggregate.name] = {
            role: (one.noise, one.epsilon, one.statistic.weight) for role, one in own.items()
        }
    found = plan.discovery
    counted = None
    if found.counted is not None:
        one = plan.measurement(found.counted)
        users = {own.aggregate.name for own in plan.compiled if found.counted in own.statistics.values()}
        counted = (one.statistic.what, one.noise, users)
    rule = None if found.rule is None else (found.rule.strategy, found.rule.even_chance)
    return noises, counted, rule, found.threshold, found.units_needed, found.way.by, found.way.share, plan.cost


ASKED = {
    "rows and units": [aggregate("count", name="n"), aggregate("count_units", name="people")],
    "rows, units and a mean": [
        aggregate("count", name="n"),
        aggregate("count_units", name="people"),
        aggregate("mean", name="m", bounds=(0, 9)),
    ],
    "equal counts": [
        aggregate("mean", name="m", bounds=(0, 9)),
        aggregate("mean", name="o", bounds=(0, 7)),
        aggregate("median", name="q", bounds=(0, 7)),
    ],
    "no count": [
        aggregate("sum", name="s"),
        aggregate("n_unique", name="d"),
        aggregate("median", name="q", bounds=(0, 5)),
    ],
    "weights": [
        aggregate("count", name="n", weight=Fraction(9)),
        aggregate("count_units", name="people"),
        aggregate("sum", name="s"),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("caps", [(1, 1), (2, 3), (5, 20), (12, 20)])
@pytest.mark.parametrize("asked", list(ASKED))
def test_the_order_of_the_aggregates_does_not_matter(asked, caps):
    max_groups, max_rows = caps
    outlines = [
        outline(plan_of(query(aggregates=order, max_groups=max_groups, max_rows=max_rows, spend=WHOLE), TERMS))
        for order in itertools.permutations(ASKED[asked])
    ]
    assert all(one == outlines[0] for one in outlines)


def law_of(noise):
    reach = 40 * int(noise.deviation + 1)
    x = np.arange(-reach, reach + 1)
    scale = float(noise.parameter)
    weights = np.exp(-np.abs(x) / scale if noise.mechanism == "laplace" else -(x**2) / (2 * scale))
    return x, weights / weights.sum()


def chance(plan, units):
    """Return the probability that a group of this many units, each with one row, is shown."""
    rule = plan.discovery.rule
    if rule is not None:
        assert rule.table is not None
        return 1.0 if units > len(rule.table) else rule.table[units - 1] / 2.0**64
    x, law = law_of(plan.measurement(plan.discovery.counted).noise)
    return law[units + x >= plan.discovery.threshold].sum()


@pytest.mark.parametrize(
    "asked",
    [
        query("count_units", spend=WHOLE),
        query("count", max_rows=3, spend=WHOLE),
        query("count", max_groups=12, max_rows=20, spend=WHOLE),
        query("count", max_rows=500, spend=Spend(epsilon=Fraction(1), mechanism="laplace")),
        query("sum", max_groups=1, spend=WHOLE),
        query("count_units", max_groups=40, spend=WHOLE),
        query("count", max_groups=12, max_rows=20, min_units=30, spend=WHOLE),
    ],
)
def test_a_group_of_the_units_needed_appears_half_the_time(asked):
    plan = plan_of(asked, TERMS)
    needed = plan.units_needed
    assert chance(plan, needed - 1) < 0.5 <= chance(plan, needed)
    assert f"{needed:,} " in dict(plan.rows())["units needed"]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_group_of_nobody_else_appears_with_at_most_delta_by_units_that_are_not_released(size, adjacency, mechanism):
    """The protected units count once each in all groups that they are alone in, and all of these stay hidden."""
    terms = terms_of(1, 1e-3, group_size=size, adjacency=adjacency)
    touched = size * 2 * (2 if adjacency == "replace" else 1)
    for least in (1, 5):
        spend = Spend(share=Fraction(1, 2), mechanism=mechanism)
        plan = plan_of(query("count", max_rows=900, min_units=least, spend=spend), terms)
        assert plan.discovery.way.by == "hidden"
        assert counted_by(plan) == "units"
        assert plan.measurement(plan.discovery.counted).sensitivity.each == size
        x, law = law_of(plan.measurement(plan.discovery.counted).noise)
        above = law[size + least - 1 + x >= plan.discovery.threshold].sum()
        appears = -math.expm1(touched * math.log1p(-above))
        assert appears <= float(plan.discovery.delta)
        above = law[size + least + x >= plan.discovery.threshold].sum()  # and the threshold is not higher than it must
        assert -math.expm1(touched * math.log1p(-above)) > 0.9 * float(plan.discovery.delta)


def test_the_whole_spend_is_divided_and_the_count_that_decides_pays_its_part():
    plan = plan_of(query("count", max_rows=900, spend=Spend(epsilon=Fraction(1), mechanism="gaussian")), TERMS)
    assert plan.discovery.way.by == "hidden"
    assert [one.statistic.weight for one in plan.measurements] == [Fraction(2, 3), Fraction(1, 3)]
    assert sum(one.sensitivity.l2_squared / (2 * one.noise.parameter) for one in plan.measurements) == plan.cost.rho
    plan = plan_of(query("count", max_groups=1, max_rows=900, spend=WHOLE), TERMS)
    (count,) = plan.measurements
    assert plan.discovery.way.by == "rule"
    assert plan.cost.epsilon == 1
    assert count.sensitivity.l1 / count.noise.parameter == count.statistic.weight == 1 - plan.discovery.way.share


def test_a_share_is_taken_where_it_pays_and_no_more_than_it_pays():
    for few in (query("count_units", spend=WHOLE), query("count", max_rows=1, spend=WHOLE), query(spend=WHOLE)):
        plan = plan_of(few, TERMS)
        assert plan.discovery.way.by == "released"
        assert len(plan.measurements) == 1
    many = plan_of(query("count", max_groups=12, max_rows=20, spend=WHOLE), TERMS)
    alone = plan_of(query("count_units", max_groups=12, spend=WHOLE), TERMS)
    assert many.discovery.way.share == Fraction(1, 3)
    assert alone.units_needed < many.units_needed < 2 * alone.units_needed
    # A spend so large that nearly every group appears: less is set aside.
    rich = plan_of(query("sum", max_groups=1, spend=Spend(epsilon=Fraction(40))), terms_of(100, 1e-6))
    assert rich.discovery.way.share < Fraction(1, 3)
    assert rich.units_needed < 10


def test_a_wanted_error_is_met_with_discovered_keys_and_the_count_itself_decides():
    plan = plan_of(query("count", max_rows=20, spend=Spend(within=Fraction(200), confidence=0.95)), TERMS)
    assert plan.expected_error(0.95) <= 200
    assert plan.discovery.way.by == "released"
    assert len(plan.measurements) == 1


def test_a_group_without_units_is_never_shown_and_the_count_that_decides_is_not_shown():
    """With a threshold that every noisy count reaches, exactly the groups with units appear."""
    plan = plan_of(query("count", max_groups=12, max_rows=20, spend=WHOLE), TERMS)
    assert plan.discovery.counted == plan.units
    open_door = replace(plan, discovery=replace(plan.discovery, threshold=-(10**9)))
    groups = pl.DataFrame({"key0": [f"{n}" for n in range(100)], "rows": 0, plan.units: [n % 3 for n in range(100)]})
    shown = noisy_aggregates(Exact(groups, {}), open_door, SeededBits(3))
    assert shown["key0"].to_list() == [f"{n}" for n in range(100) if n % 3]


def test_keys_of_one_value_are_decided_by_the_units_that_have_it():
    one = plan_of(query("median", bounds=(0, 5), spend=WHOLE), TERMS)
    assert one.discovery.way.share > 0
    assert not one.lanes[0].everyone
    several = plan_of(query(aggregates=ASKED["no count"], spend=WHOLE), TERMS)
    assert several.units.startswith("all_") or not several.lanes[int(several.units.removeprefix("units") or 0)].columns


def test_a_preview_shows_the_units_needed_over_caps_that_are_to_be_estimated():
    plan = plan_of(query("count", max_groups="auto", max_rows="auto", spend=WHOLE), TERMS)
    assert plan.units_needed is None
    table = plan.units_needed_by_caps()
    assert {(groups, rows) for groups, rows, _ in table} == set(itertools.product((1, 3, 10, 30), (1, 10, 100)))
    for groups, rows, units in table:
        caps = {"max_groups": Fraction(groups), "max_rows_per_group": Fraction(rows)}
        found = [Found(estimate=one, chosen=(caps[one.what],), units=10**6) for one in plan.estimates]
        assert units == settled(plan, found).units_needed
    shown = dict(plan.rows())
    assert "if max_rows_per_group is 10" in shown["units needed if max_groups is 3"]
    assert "public keys" in shown["smaller groups"]
    one = dict(plan_of(query("count", max_groups="auto", spend=WHOLE), TERMS).rows())
    assert "half the time" in one["units needed if max_groups is 10"]
    public = plan_of(query("count", domain=pl.DataFrame({"k": ["a"]}), spend=WHOLE), TERMS)
    assert public.units_needed is None
    assert public.units_needed_by_caps() == []
    assert "units needed" not in dict(public.rows())


@pytest.mark.slow
@pytest.mark.parametrize("terms", [TERMS, terms_of(8, 1e-9, group_size=2, adjacency="replace")])
@pytest.mark.parametrize("spend", [Spend(epsilon=Fraction(1, 5)), Spend(share=Fraction(1, 3))])
@pytest.mark.parametrize("caps", [(2, 3), (9, 40)])
@pytest.mark.parametrize("kind", ["count", "median"])
def test_a_rule_that_is_not_made_would_not_be_chosen(kind, caps, spend, terms, monkeypatch):
    """Rules are made only if a bound on what they need lets them win. The order of all ways stays the same."""
    asked = query(kind, max_groups=caps[0], max_rows=caps[1], spend=spend)
    bounds = contribution_bounds(asked)
    allowances = allowances_of(terms, spend)
    given = asked, terms, bounds, compile_query(asked, bounds, terms, "basis"), allowances
    left = {allowance.measure: Fraction(1, 10**7) for allowance in allowances}
    found = list(discovery.best_ways(*given, left))
    monkeypatch.setattr(discovery, "_least_units", lambda *_: 0.0)
    assert found == list(discovery.best_ways(*given, left))
    assert spend.epsilon is None or any(candidate.way.by == "rule" for candidate in found)
