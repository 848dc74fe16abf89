"""A million runs tell noise that is 10 % too small from noise that is right, and never flag the right one.

In 200 audits of each kind with new bits, all faults were found at 99 % confidence.
"""

import polars as pl
import pytest

import dp_polars as dp
from tests.audit.made_up import ALMOST_SURE, seed, too_little_noise

PEOPLE = pl.DataFrame({"user": range(10), "value": [5] * 10, "key": list("aaaaabbbbb")})
PURE = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
APPROXIMATE = dp.Session(epsilon=1.0, delta=1e-6, unit="user", max_rows_per_group=1)
ROW = dp.Session(epsilon=1.0, unit=dp.ROW)

CASES = {
    "a Laplace count": (PURE, lambda people: people.dp.count(epsilon=1.0)),
    "a selection": (PURE, lambda people: people.dp.noisy_max("key", ["a", "b"], epsilon=1.0)),
    "a Gaussian sum": (
        APPROXIMATE,
        lambda people: people.dp.sum("value", bounds=(0, 5), epsilon=1.0, mechanism="gaussian"),
    ),
}


def audited(case, **words):
    session, question = CASES[case]
    return dp.audit(question, PEOPLE, PEOPLE[:-1], session=session, made_up=True, **words)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_million_runs_do_not_flag_what_is_right_and_come_close(case):
    found = audited(case, confidence=ALMOST_SURE)
    assert found.runs == 1_000_000
    assert found.verdict == "no violation found"
    assert found.reads == 1
    if found.rho is None:
        assert found.epsilon == 1
        assert 0.94 < found.epsilon_lower_bound <= 1  # six standard deviations of the bound are about 0.02
    else:
        assert 0.6 * found.rho < found.rho_lower_bound <= found.rho


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_million_runs_catch_noise_that_is_a_tenth_too_small(case, monkeypatch):
    seed(monkeypatch)
    too_little_noise(monkeypatch)
    found = audited(case)
    assert found.verdict == "violation"
    assert found.epsilon_lower_bound > found.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.6, 1.0, 3.0])
def test_gaussian_noise_of_few_steps_is_not_flagged(sigma):
    """The curve of narrow discrete noise is not quite that of a Gaussian, and the claim allows for that."""
    session = dp.Session(rho=10.0, delta=1e-6, unit=dp.ROW)
    rho = 1 / (2 * sigma**2)
    found = dp.audit(
        lambda people: people.dp.count(rho=rho, mechanism="gaussian"),
        PEOPLE,
        PEOPLE[:-1],
        session=session,
        made_up=True,
        confidence=ALMOST_SURE,
    )
    assert found.rho == pytest.approx(rho)
    assert found.verdict == "no violation found"
    assert found.rho_lower_bound > 0.4 * rho


@pytest.mark.slow
def test_a_claim_of_the_user_is_judged_instead_of_the_price(monkeypatch):
    seed(monkeypatch)
    assert audited("a Laplace count", epsilon=0.9, runs=200_000).verdict == "violation"
    assert audited("a Laplace count", epsilon=1.1, runs=200_000).verdict == "no violation found"
    assert audited("a Gaussian sum", epsilon=0.5, delta=1e-6).verdict == "violation"
    assert audited("a Gaussian sum", epsilon=1.0, delta=1e-6).verdict == "no violation found"
    # A delta that is large enough allows every event.
    assert audited("a Laplace count", epsilon=0.1, delta=0.9, runs=20_000).epsilon_lower_bound == 0
