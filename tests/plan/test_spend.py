"""A spend is split among several statistics in epsilon or in rho, whichever is less noisy, and never exceeded."""

import math
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_polars._plan.plan import plan_of
from dp_polars._plan.query import Spend
from dp_polars._session.filters import accepts
from tests.plan.queries import aggregate, query
from tests.session.test_filter_by_enumeration import terms_of

TERMS = {"pure": terms_of(1), "approximate": terms_of(1, 1e-6), "zcdp": terms_of(rho=0.02, delta=1e-6)}
DOMAINS = [pl.DataFrame({"k": [str(i) for i in range(n)]}) for n in (1, 4, 60)]
KINDS = ["count", "count_units", "n_unique", "sum", "mean", "var", "median", "max", "histogram", "cov", "corr"]


def rho_of(plan):
    """Return the exact rho of a plan's measurements, with the formula of each mechanism."""
    total = Fraction(0)
    for measurement in plan.measurements:
        if measurement.noise is None:
            total += measurement.epsilon**2 / 8 * measurement.statistic.prices[1]
        elif measurement.noise.mechanism == "gaussian":
            total += measurement.sensitivity.l2_squared / (2 * measurement.noise.parameter)
        else:
            epsilon = measurement.sensitivity.l1 / measurement.noise.parameter
            total += Fraction(float(epsilon) * math.tanh(float(epsilon) / 2)) * (1 - Fraction(1, 10**12))
    return total


def epsilon_of(plan):
    """Return the pure epsilon of the measurements, infinite if one is Gaussian."""
    total = Fraction(0)
    for measurement in plan.measurements:
        if measurement.noise is None:
            total += measurement.epsilon * measurement.statistic.prices[0]
        elif measurement.noise.mechanism == "gaussian":
            return math.inf
        else:
            total += measurement.sensitivity.l1 / measurement.noise.parameter
    return total


@pytest.mark.slow
@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.data())
def test_the_price_covers_all_parts_and_is_what_was_said(data):
    draw = data.draw
    measure = draw(st.sampled_from(sorted(TERMS)))
    terms = TERMS[measure]
    ways = {"pure": ["epsilon", "share"], "approximate": ["epsilon", "share", "rho"], "zcdp": ["share", "rho"]}[measure]
    way = draw(st.sampled_from(ways))
    amount = draw(st.sampled_from([Fraction(1, 100), Fraction(1, 10), Fraction(1, 2)]))
    spend = Spend(**{way: amount if way != "rho" else amount / 100})
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
    aggregates = tuple(
        aggregate(kind, name=f"answer{i}", weight=draw(st.sampled_from([Fraction(1), Fraction(3), Fraction(1, 7)])))
        for i, kind in enumerate(kinds)
    )
    domain = draw(st.sampled_from([*DOMAINS, *([None] if measure != "pure" else [])]))
    plan = plan_of(query(aggregates=aggregates, domain=domain, spend=spend), terms)
    rule = plan.discovery is not None and plan.discovery.rule is not None
    for_rule = plan.discovery.way.share if rule else 0
    assert sum(measurement.statistic.weight for measurement in plan.measurements) + for_rule == 1
    if plan.cost.gaussian_delta == 0 and not rule:
        assert epsilon_of(plan) <= plan.cost.epsilon
    if measure != "pure":
        assert rho_of(plan) <= plan.cost.rho
    if way == "epsilon":
        assert plan.cost.epsilon <= amount
    elif way == "share" and measure != "pure":
        assert plan.cost.rho <= amount * terms.rho_allowed
    if way in ("epsilon", "share"):
        assert accepts(terms, plan.cost * int(1 / amount))


def test_several_gaussian_parts_share_one_rho_not_one_epsilon():
    """Each of ten counts over 60 groups gets a tenth of the rho, so the noise grows by sqrt(10), not by 10."""
    domain = DOMAINS[-1]

    def deviation(n):
        columns = tuple(aggregate("sum", bounds=(0, 1 + i), name=f"s{i}") for i in range(n))
        plan = plan_of(query(aggregates=columns, domain=domain, max_groups=60), TERMS["approximate"])
        measurement = plan.measurements[0]
        assert measurement.noise.mechanism == "gaussian"
        return measurement.noise.deviation / float(measurement.sensitivity.l2_squared) ** 0.5

    assert deviation(10) / deviation(1) == pytest.approx(math.sqrt(10), rel=0.01)


def test_shared_pieces_are_paid_once():
    alone = plan_of(query("mean", domain=DOMAINS[1]), TERMS["approximate"])
    kinds = ("mean", "sum", "var", "std")
    together = plan_of(
        query(aggregates=tuple(aggregate(kind, name=kind) for kind in kinds), domain=DOMAINS[1]), TERMS["approximate"]
    )
    assert [measurement.statistic.what for measurement in alone.measurements] == ["rows and sums"]
    assert [measurement.statistic.what for measurement in together.measurements] == ["rows, sums and squares"]
    spend = Spend(epsilon=Fraction(1, 2), mechanism="gaussian")
    aggregates = tuple(aggregate(kind, name=kind) for kind in kinds)
    together = plan_of(query(aggregates=aggregates, domain=DOMAINS[1], spend=spend), TERMS["approximate"])
    assert [measurement.name for measurement in together.measurements] == ["total", "rows", "xx"]
    assert sum(measurement.statistic.weight for measurement in together.measurements) == 1


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_named_mechanism_is_used_for_all_parts(mechanism):
    spend = Spend(epsilon=Fraction(1, 2), mechanism=mechanism)
    plan = plan_of(query("var", domain=DOMAINS[1], spend=spend), TERMS["approximate"])
    assert {measurement.noise.mechanism for measurement in plan.measurements} == {mechanism}
