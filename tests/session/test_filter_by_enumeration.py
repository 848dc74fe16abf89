"""The session filter holds for exact mechanisms: every transcript of adaptive analysts is enumerated.

Each mechanism is the worst of its kind (randomized response, randomized response with bad events, a binned discrete
Gaussian), given as a pair of exact output distributions on two neighbours. An analyst chooses the next mechanism from
everything seen so far. The accepted transcripts must be (epsilon, delta)-indistinguishable in both directions.
"""

import math
import random

import numpy as np
import pytest

from dp_polars._session import filters
from dp_polars._session.cost import NOTHING, Cost
from dp_polars._session.prices import gaussian_cost, pure_cost
from dp_polars._session.terms import agree


def terms_of(epsilon=None, delta=None, rho=None, **words):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the deltas here are large so that violations would be visible
        return agree(
            **{
                "epsilon": epsilon, "delta": delta, "rho": rho, "unit": "u", "adjacency": "add_remove",
                "group_size": 1, "key_delta": None, **words,
            }
        )  # fmt: skip


def pure(epsilon):
    keep = 1 / (1 + math.exp(-epsilon))
    return pure_cost(epsilon), np.array([keep, 1 - keep]), np.array([1 - keep, keep])


def approximate(epsilon, delta):
    keep = (1 - delta) / (1 + math.exp(-epsilon))
    other = 1 - delta - keep
    return (
        pure_cost(epsilon, delta=delta),
        np.array([delta, keep, other, 0.0]),
        np.array([0.0, other, keep, delta]),
    )


def gaussian(terms, **spend):
    """Return a discrete Gaussian with the cost's rho at sensitivity 1, sorted into five bins."""
    cost = gaussian_cost(terms, **spend)
    sigma = math.sqrt(1 / (2 * cost.rho))
    x = np.arange(-math.ceil(40 * sigma) - 1, math.ceil(40 * sigma) + 2)
    weights = np.exp(-0.5 * (x / sigma) ** 2)
    p = weights / weights.sum()
    q = np.roll(p, 1)
    edges = np.round(np.array([-1.5, -0.5, 0.5, 1.5]) * sigma)
    bins = np.searchsorted(edges, x)
    return cost, np.bincount(bins, p, 5), np.bincount(bins, q, 5)


def transcripts(terms, choose, depth, accepts=filters.accepts):
    """Return the distributions of complete transcripts on both neighbours, for an analyst who runs choose(history)."""
    left, right = [], []

    def walk(history, spent, p, q):
        step = choose(history) if len(history) < depth else None
        while step is not None and not accepts(terms, spent + step[0]):
            history = (*history, "refused")  # a refusal is a step of the transcript that costs nothing
            step = choose(history) if len(history) < depth else None
        if step is None:
            left.append(p)
            right.append(q)
            return
        cost, on_left, on_right = step
        for outcome, (a, b) in enumerate(zip(on_left.tolist(), on_right.tolist(), strict=True)):
            if a or b:
                walk((*history, outcome), spent + cost, p * a, q * b)

    walk((), NOTHING, 1.0, 1.0)
    return np.array(left), np.array(right)


def delta_at(p, q, epsilon):
    return max(
        np.maximum(p - math.exp(epsilon) * q, 0).sum(),
        np.maximum(q - math.exp(epsilon) * p, 0).sum(),
    )


def adaptive(menu, seed):
    """Return an analyst whose next query depends on the whole history, in a way that the seed fixes."""

    def choose(history):
        return random.Random(f"{seed}{history}").choice(menu)

    return choose


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.02, 0.2])
def test_an_approximate_session_keeps_its_guarantee_for_adaptive_mixtures(delta):
    terms = terms_of(1, delta)
    part = float(terms.native_delta)
    menu = [
        pure(0.5), pure(0.2), pure(0.35), pure(0.1), approximate(0.3, part / 2), approximate(0.1, part / 3),
        gaussian(terms, epsilon=0.5), gaussian(terms, epsilon=0.25), gaussian(terms, rho=float(terms.rho_allowed) / 3),
    ]  # fmt: skip
    largest = 0.0
    for seed in range(25):
        p, q = transcripts(terms, adaptive(menu, seed), 7)
        assert math.isclose(p.sum(), 1)
        assert math.isclose(q.sum(), 1)
        found = delta_at(p, q, 1)
        assert found <= delta
        largest = max(largest, found)
    assert largest > delta / 100  # the analysts come close to the limit


@pytest.mark.parametrize("epsilon", [0.05, 0.1, 0.2])
def test_many_equal_releases_use_both_arms_and_stay_within(epsilon):
    """Transcripts of equal randomized responses are binomial, so any number of them can be enumerated exactly."""
    terms = terms_of(1, 0.01)
    cost, _, _ = pure(epsilon)
    count, spent = 0, NOTHING
    while filters.accepts(terms, spent + cost):
        count, spent = count + 1, spent + cost
    assert count >= round(1 / epsilon)  # never worse than basic composition
    keep = 1 / (1 + math.exp(-epsilon))
    heads = np.arange(count + 1)
    ways = np.array([math.comb(count, int(k)) for k in heads], dtype=float)
    p = ways * keep**heads * (1 - keep) ** (count - heads)
    assert delta_at(p, p[::-1], 1) <= 0.01


@pytest.mark.slow
def test_an_analyst_who_leaves_the_basic_arm_only_when_lucky_stays_within():
    """The analyst uses small epsilons on lucky paths (condition B) and large ones on the others (condition A)."""
    terms = terms_of(1, 0.05)
    small, large = pure(0.1), pure(0.25)

    def choose(history):
        answered = [x for x in history if x != "refused"]
        return small if sum(answered) * 2 >= len(answered) else large

    p, q = transcripts(terms, choose, 13)
    assert delta_at(p, q, 1) <= 0.05


def test_a_pure_session_never_exceeds_epsilon_for_any_transcript():
    terms = terms_of(1)
    menu = [pure(0.5), pure(0.25), pure(0.1), pure(0.4)]
    for seed in range(25):
        p, q = transcripts(terms, adaptive(menu, seed), 8)
        assert np.abs(np.log(p / q)).max() <= 1 + 1e-9


@pytest.mark.slow
def test_a_zcdp_session_keeps_its_renyi_divergences_for_adaptive_mixtures():
    terms = terms_of(rho=0.05)
    menu = [pure(0.2), pure(0.1), pure(0.3), gaussian(terms, rho=0.02), gaussian(terms, rho=0.005)]
    for seed in range(15):
        p, q = transcripts(terms, adaptive(menu, seed), 6)
        for order in (1.01, 1.5, 2, 4, 16, 64):
            for a, b in ((p, q), (q, p)):
                divergence = math.log((a * np.exp((order - 1) * np.log(a / b))).sum()) / (order - 1)
                assert divergence <= order * 0.05 * (1 + 1e-9)


# ---------------------------------------------------------------- wrong filters that the enumeration must catch


def separate_sums(terms, spent):
    """Implement a wrong filter that adds up what both conditions allow."""
    return spent.epsilon <= terms.epsilon * 2 and spent.delta <= terms.native_delta


def forgets_native_delta(terms, spent):
    """Implement a wrong filter in which bad events are free."""
    return filters.accepts(terms, Cost(epsilon=spent.epsilon, rho=spent.rho))


def test_the_enumeration_catches_arms_that_sum_separately():
    terms = terms_of(1, 0.02)
    p, q = transcripts(terms, lambda _: pure(0.5), 6, separate_sums)
    assert delta_at(p, q, 1) > 0.02


@pytest.mark.slow
def test_the_enumeration_catches_free_bad_events():
    terms = terms_of(1, 0.05)
    p, q = transcripts(terms, lambda _: approximate(0.1, 0.012), 6, forgets_native_delta)
    assert delta_at(p, q, 1) > 0.05


@pytest.mark.slow
def test_the_enumeration_catches_a_price_that_is_too_small():
    terms = terms_of(1, 0.01)
    cost, left, right = pure(0.25)
    wrong = Cost(epsilon=cost.epsilon, rho=cost.rho / 8)
    p, q = transcripts(terms, lambda _: (wrong, left, right), 12)
    assert delta_at(p, q, 1) > 0.01
    p, q = transcripts(terms, lambda _: (cost, left, right), 12)
    assert delta_at(p, q, 1) <= 0.01
