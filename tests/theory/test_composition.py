"""Basic, advanced and optimal composition, and group privacy, against enumeration."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dp_polars.errors import InvalidParameterError
from dp_polars.theory import (
    Guarantee,
    PrivacyLoss,
    advanced,
    basic,
    group_privacy,
    group_zcdp,
    hockey_stick,
    kl_divergence,
    max_divergence,
    optimal,
    renyi_of_gaussian,
    zcdp_of_gaussian,
)

from .strategies import deltas, epsilons, reproducible


def test_basic_adds_what_was_written_not_what_floats_hold() -> None:
    assert sum([0.1] * 3) != 0.3
    assert basic([0.1] * 3, [1e-7] * 3) == Guarantee(0.3, 3e-7)
    assert basic([0.1] * 10).epsilon == 1.0
    assert basic([Fraction(1, 3)] * 3).epsilon == 1.0


def test_basic_never_rounds_down() -> None:
    total = basic([Fraction(1, 3)]).epsilon
    assert Fraction(repr(total)) >= Fraction(1, 3) > Fraction(repr(math.nextafter(total, 0)))


def test_basic_of_nothing_is_nothing_and_delta_stops_at_one() -> None:
    assert basic([]) == Guarantee(0.0, 0.0)
    assert basic([1], [0.9, 0.9]).delta == 1.0


def test_a_guarantee_unpacks() -> None:
    epsilon, delta = Guarantee(0.5, 1e-6)
    assert (epsilon, delta) == (0.5, 1e-6)


def test_advanced_forms_are_their_formulas() -> None:
    epsilon, count, slack = 0.3, 40, 1e-5
    root = epsilon * math.sqrt(2 * count * math.log(1 / slack))
    growth = math.exp(epsilon)
    expected = {
        "dwork-roth": count * epsilon * (growth - 1),
        "sharp": count * epsilon * (growth - 1) / (growth + 1),
        "loose": 2 * count * epsilon**2,
    }
    for form, second in expected.items():
        total = advanced(epsilon, count, slack=slack, delta=1e-8, form=form)
        assert total.epsilon == pytest.approx(root + second, rel=1e-11, abs=0)
        assert total.epsilon >= root + second
        assert total.delta == 1.04e-5


def test_the_loose_form_is_refused_where_its_derivation_ends() -> None:
    assert advanced(1.0, 5, slack=1e-6, form="loose").epsilon > 0
    with pytest.raises(InvalidParameterError, match="sharp"):
        advanced(1.0001, 5, slack=1e-6, form="loose")
    # The form rests on e^ε − 1 ≤ 2ε, which holds at 1 and fails slightly above 1.25.
    assert math.expm1(1.0) <= 2.0
    assert math.expm1(1.3) > 2.6


def test_advanced_promises_nothing_when_the_exponential_overflows() -> None:
    assert advanced(1000, 2, slack=1e-6).epsilon == math.inf
    assert advanced(1000, 2, slack=1e-6, form="sharp").epsilon < math.inf


def exact_curve(odds: Fraction, count: int, factor: Fraction) -> Fraction:
    """Return the exact Σ max(0, p − factor·q) of `count` randomized responses that tell the truth `odds` to 1."""
    total = Fraction(0)
    for flips in range(count + 1):
        p = odds ** (count - flips) / (1 + odds) ** count
        q = odds**flips / (1 + odds) ** count
        total += math.comb(count, flips) * max(Fraction(0), p - factor * q)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("odds", [Fraction(101, 100), Fraction(3, 2), Fraction(9)])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("slack", [0.3, 1e-3, 1e-9])
def test_optimal_is_the_exact_curve_of_randomized_response(odds: Fraction, count: int, slack: float) -> None:
    epsilon = math.log(odds)
    total = optimal(epsilon, count, slack=slack).epsilon
    # math.log and math.exp are off by some ulps times count; 1e-9 is far above that and far below what matters.
    assert exact_curve(odds, count, Fraction(math.exp(total)) * (1 + Fraction(1, 10**9))) <= slack
    if total > 0:
        below = Fraction(math.exp(total)) * (1 - Fraction(1, 10**9))
        assert exact_curve(odds, count, below) > slack
    else:
        assert exact_curve(odds, count, Fraction(1)) <= slack


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "count", "slack"),
    [(0.01, 100, 1e-6), (0.01, 10_000, 1e-6), (0.001, 10**6, 1e-9), (0.3, 500, 1e-12), (2, 50, 0.1)],
)
def test_optimal_for_many_releases_against_the_binomial_distribution(epsilon: float, count: int, slack: float) -> None:
    flips = np.arange(count // 2 + 1)
    inside = stats.binom.cdf(flips, count, 1 / (1 + math.exp(epsilon)))
    outside = stats.binom.logcdf(flips, count, 1 / (1 + math.exp(-epsilon)))
    eligible = inside > slack
    expected = np.max(np.log(inside[eligible] - slack) - outside[eligible])
    assert optimal(epsilon, count, slack=slack).epsilon == pytest.approx(expected, rel=1e-8, abs=0)


def test_optimal_agrees_with_the_privacy_loss_of_a_thousand_responses() -> None:
    loss = PrivacyLoss.randomized_response(0.01).self_compose(1000)
    for slack in (1e-3, 1e-6, 1e-12, 1e-60):
        total = optimal(0.01, 1000, slack=slack)
        assert loss.epsilon(slack) == pytest.approx(total.epsilon, rel=1e-9, abs=0)
        # Just below, the curve still exceeds the slack; at the result it does not (up to its own rounding up).
        assert loss.delta(total.epsilon * (1 - 1e-9)) > slack
        assert loss.delta(total.epsilon) <= slack * (1 + 1e-9)


def test_optimal_total_delta() -> None:
    total = optimal(0.1, 20, slack=1e-6, delta=1e-4)
    expected = 1 - (1 - Fraction(1, 10**4)) ** 20 * (1 - Fraction(1, 10**6))
    assert total.delta >= expected
    assert total.delta == pytest.approx(float(expected), rel=1e-11, abs=0)
    assert total.epsilon == optimal(0.1, 20, slack=1e-6).epsilon


@pytest.mark.slow
def test_optimal_at_the_ends_of_its_range() -> None:
    assert optimal(0.01, 3, slack=0.4).epsilon == 0.0
    assert optimal(1e6, 3, slack=1e-100).epsilon == pytest.approx(3e6, rel=1e-11, abs=0)
    assert optimal(1e-9, 1, slack=1e-100).epsilon == pytest.approx(1e-9, rel=1e-11, abs=0)
    assert 0 < optimal(0.5, 10**9, slack=1e-6).epsilon < 0.5e9
    with pytest.raises(InvalidParameterError, match="zCDP"):
        optimal(0.01, 10**11, slack=1e-6)


@pytest.mark.slow
@reproducible
@given(epsilons(1e-3, 3), st.integers(1, 400), deltas())
def test_optimal_is_never_worse_than_any_other_theorem(epsilon: float, count: int, slack: float) -> None:
    best = optimal(epsilon, count, slack=slack).epsilon
    assert best <= basic([epsilon] * count).epsilon * (1 + 1e-11)
    assert best <= advanced(epsilon, count, slack=slack, form="sharp").epsilon
    assert best <= optimal(epsilon, count + 1, slack=slack).epsilon
    assert best <= optimal(epsilon, count, slack=slack / 2).epsilon


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-3), (0.5, 1e-3), (1.0, 1e-5)])
def test_group_privacy_is_attained_by_a_chain_of_neighbours(epsilon: float, delta: float, size: int) -> None:
    # Each step makes the rare outcome as likely as the guarantee allows: x becomes e^ε·x + δ.
    chain = [0.0]
    for _ in range(size):
        chain.append(math.exp(epsilon) * chain[-1] + delta)
    for x, y in itertools.pairwise(chain):
        for p, q in (([y, 1 - y], [x, 1 - x]), ([x, 1 - x], [y, 1 - y])):
            assert hockey_stick(p, q, epsilon) <= delta * (1 + 1e-9)
    promised = group_privacy(epsilon, delta, size)
    assert promised.epsilon == pytest.approx(size * epsilon, rel=1e-15, abs=0)
    first, last = [chain[0], 1 - chain[0]], [chain[-1], 1 - chain[-1]]
    attained = hockey_stick(last, first, promised.epsilon)
    assert attained == pytest.approx(promised.delta, rel=1e-9, abs=0)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_group_privacy_of_a_pure_chain(size: int) -> None:
    # Discrete Laplace noise, truncated far out, where each unit moves the answer by one.
    outcomes = np.arange(-60, 61)
    rate = 0.25

    def shifted(by: int) -> list[float]:
        weights = np.exp(-rate * np.abs(outcomes - by))
        return [float(x) for x in weights / np.exp(-rate * np.abs(np.arange(-400, 401))).sum()] + [0.0]

    p, q = shifted(0), shifted(size)
    p[-1], q[-1] = 1 - sum(p), 1 - sum(q)
    attained = max(abs(math.log(a / b)) for a, b in zip(p[:-1], q[:-1], strict=True))
    assert attained == pytest.approx(group_privacy(rate, 0, size).epsilon, rel=1e-12, abs=0)


def test_group_privacy_stops_at_one_and_keeps_a_single_unit() -> None:
    assert group_privacy(0.3, 1e-7, 1) == Guarantee(0.3, 1e-7)
    assert group_privacy(1.0, 1e-6, 20).delta == 1.0
    assert group_privacy(400.0, 1e-100, 2) == Guarantee(800.0, 1.0)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_group_zcdp_is_attained_by_the_gaussian(size: int) -> None:
    promised = group_zcdp(zcdp_of_gaussian(1, 3), size)
    assert promised == pytest.approx(renyi_of_gaussian(5, sensitivity=size, sigma=3) / 5, rel=1e-11, abs=0)
    assert promised >= Fraction(size**2, 18)


def test_mean_loss_behind_the_sharp_form_is_the_worst_of_all_pure_mechanisms() -> None:
    epsilon = 0.7
    worst = epsilon * math.tanh(epsilon / 2)
    rng = np.random.default_rng(5)
    for _ in range(200):
        p = rng.dirichlet(np.ones(4))
        # To get any q within e^ε of p, mix the two extremes and rescale until the ratios fit.
        q = p * np.exp(rng.uniform(-epsilon / 2, epsilon / 2, 4))
        q = q / q.sum()
        spread = max(max_divergence(p, q), max_divergence(q, p))
        assert spread <= epsilon
        assert kl_divergence(p, q) <= worst
