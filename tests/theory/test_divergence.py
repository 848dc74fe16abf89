"""Max, approximate max, hockey-stick and Kullback-Leibler divergences, against enumeration of events."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from dp_polars.theory import (
    approximate_max_divergence,
    hockey_stick,
    kl_divergence,
    max_divergence,
)

from .strategies import deltas, epsilons, pairs, reproducible

Pair = tuple[list[float], list[float]]


def events(size: int) -> list[np.ndarray]:
    """Return all non-empty events over `size` outcomes as masks."""
    masks = [np.array(bits, dtype=bool) for bits in itertools.product((0, 1), repeat=size)]
    return masks[1:]


@reproducible
@given(pairs(), deltas(1e-3, 0.9))
def test_approximate_max_divergence_over_all_events(pair: Pair, delta: float) -> None:
    p, q = np.array(pair[0]), np.array(pair[1])
    best = -math.inf
    for event in events(p.size):
        gained, base = p[event].sum() - delta, q[event].sum()
        if abs(gained) < 1e-12:
            return  # floats cannot tell whether this event counts
        if gained > 0:
            best = max(best, math.log(gained / base) if base > 0 else math.inf)
    assert approximate_max_divergence(p, q, delta) == pytest.approx(best, rel=1e-9, abs=1e-12)


@reproducible
@given(pairs(), epsilons(1e-3, 5))
def test_hockey_stick_over_all_events(pair: Pair, epsilon: float) -> None:
    p, q = np.array(pair[0]), np.array(pair[1])
    best = max(p[event].sum() - math.exp(epsilon) * q[event].sum() for event in events(p.size))
    assert hockey_stick(p, q, epsilon) == pytest.approx(max(0.0, best), rel=1e-9, abs=1e-13)


@pytest.mark.slow
@reproducible
@given(pairs(), deltas(1e-6, 0.9))
def test_approximate_max_divergence_inverts_the_hockey_stick(pair: Pair, delta: float) -> None:
    p, q = pair
    epsilon = approximate_max_divergence(p, q, delta)
    if math.isinf(epsilon):
        assert sum(a for a, b in zip(p, q, strict=True) if b == 0) >= delta * (1 - 1e-12)
        return
    assert hockey_stick(p, q, epsilon + 1e-11) <= delta * (1 + 1e-11)
    assert hockey_stick(p, q, epsilon - 1e-9) > delta


@reproducible
@given(pairs())
def test_max_and_kl_divergence_against_their_definitions(pair: Pair) -> None:
    p, q = np.array(pair[0]), np.array(pair[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.nanmax(np.where(p > 0, np.log(p / q), np.nan))
    assert max_divergence(p, q) == pytest.approx(expected, rel=1e-12, abs=1e-15)
    expected = float(special.rel_entr(p, q).sum())
    assert kl_divergence(p, q) == pytest.approx(expected, rel=1e-9, abs=1e-14)


@reproducible
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=2, max_size=6))
def test_distance_of_fractions_is_never_rounded_down(counts: list[tuple[int, int]]) -> None:
    totals = [sum(column) for column in zip(*counts, strict=True)]
    if 0 in totals:
        return
    p, q = ([Fraction(pair[side], totals[side]) for pair in counts] for side in (0, 1))
    exact = sum(max(Fraction(0), a - b) for a, b in zip(p, q, strict=True))
    assert exact <= Fraction(hockey_stick(p, q, 0)) <= exact * (1 + Fraction(1, 10**11))


def test_exact_values() -> None:
    p = {"yes": Fraction(3, 4), "no": Fraction(1, 4)}
    q = {"no": Fraction(3, 4), "yes": Fraction(1, 4)}
    assert max_divergence(p, q) == pytest.approx(math.log(3), rel=1e-14, abs=0)
    assert max_divergence(p, q) >= math.log(3)
    assert hockey_stick(p, q, 0) == pytest.approx(0.5, rel=1e-11, abs=0)
    assert hockey_stick(p, q, math.log(2)) == pytest.approx(0.25, rel=1e-11, abs=0)
    assert kl_divergence(p, q) == pytest.approx(math.log(3) / 2, rel=1e-11, abs=0)
    assert approximate_max_divergence(p, q, 0.25) == pytest.approx(math.log(2), rel=1e-12, abs=0)
    assert approximate_max_divergence(p, q, 0) == max_divergence(p, q)


def test_outcomes_that_p_excludes_still_count_for_q() -> None:
    assert kl_divergence([1, 0], [0.25, 0.75]) == pytest.approx(math.log(4), rel=1e-11, abs=0)
    assert kl_divergence([0.4, 0.6, 0], [0.4, 0.3, 0.3]) == pytest.approx(0.6 * math.log(2), rel=1e-11, abs=0)
    assert approximate_max_divergence([1, 0], [0.25, 0.75], 0.5) == pytest.approx(math.log(2), rel=1e-12, abs=0)


def test_small_losses_keep_their_digits() -> None:
    shift = 2.0**-40
    found = max_divergence([0.5 + shift, 0.5 - shift], [0.5, 0.5])
    assert found == pytest.approx(math.log1p(2 * shift), rel=1e-14, abs=0)


def test_equal_distributions_are_at_distance_zero() -> None:
    p = [0.1] * 10
    assert max_divergence(p, p) == 0.0
    assert kl_divergence(p, p) == 0.0
    assert hockey_stick(p, p, 0) == 0.0
    # No epsilon is needed, and by the definition even ln(1 − δ) suffices.
    assert approximate_max_divergence(p, p, 0.1) == pytest.approx(math.log(0.9), rel=1e-12, abs=0)


def test_disjoint_distributions_and_missing_outcomes() -> None:
    p, q = {"a": 1}, {"b": 1}
    assert max_divergence(p, q) == kl_divergence(p, q) == math.inf
    assert approximate_max_divergence(p, q, 0.99) == math.inf
    assert hockey_stick(p, q, 50) == 1.0
    # One direction may be infinite and the other not.
    p, q = {"a": 0.9, "b": 0.1}, {"a": 1.0}
    assert max_divergence(p, q) == math.inf
    assert max_divergence(q, p) == pytest.approx(-math.log(0.9))
    assert approximate_max_divergence(p, q, 0.1) <= 0.0


def test_probabilities_of_all_number_types_and_extreme_sizes() -> None:
    assert max_divergence([Decimal("0.75"), Decimal("0.25")], [0.25, 0.75]) == pytest.approx(math.log(3))
    assert max_divergence([1, 0], [0.5, 0.5]) == pytest.approx(math.log(2))
    tiny = [1e-310, 1.0]
    assert kl_divergence(tiny, [0.5, 0.5]) == pytest.approx(math.log(2))
    assert max_divergence([0.5, 0.5], tiny) == pytest.approx(310 * math.log(10) + math.log(0.5))
    assert hockey_stick([0.5, 0.5], tiny, 700) == pytest.approx(0.5 - math.exp(700) * 1e-310, rel=1e-11, abs=0)
    assert hockey_stick([0.75, 0.25], [0.25, 0.75], -800) == 1.0


def test_sums_within_a_billionth_are_scaled() -> None:
    p = [0.75 + 4e-10, 0.25]
    assert hockey_stick(p, [0.25, 0.75], -50) == pytest.approx(1.0, rel=1e-11, abs=0)
