"""Shares of a budget: `queries=n` counts them in the account with less noise, and all n fit."""

import json
import sqlite3
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._session.accounts import chosen_account, typical_noise
from dp_polars._session.terms import Defaults

REGIONS = ["north", "south", "west", "east"] * 3
VISITS = pl.DataFrame(
    {
        "user": [i % 600 for i in range(2400)],
        "region": [REGIONS[i % 12] + str(i % 3) for i in range(2400)],
        "value": [float(i % 50) for i in range(2400)],
    }
)
KEYS = sorted(VISITS["region"].unique())
PLANNED = (1, 2, 3, 5, 10, 30)


def session_of(queries, max_groups=2, **words):
    terms = {"epsilon": 1.0, "delta": 1e-6, "unit": "user", "max_groups": max_groups, "max_rows_per_group": 3}
    return dp.Session(**{**terms, "queries": queries, **words})


def noise_of(session, **spend):
    """Return the standard deviation of the noise on a count of units by group."""
    plan = dp.private(VISITS, session).preview.count_units(
        "region", keys=KEYS, max_groups=session.defaults.max_groups, **spend
    )
    return plan.measurements[0].noise.deviation


@pytest.mark.slow
@pytest.mark.parametrize("queries", PLANNED)
@pytest.mark.parametrize("max_groups", [1, 3, 10])
def test_planned_queries_have_the_noise_of_the_better_account(queries, max_groups):
    planned = session_of(queries, max_groups)
    bare = session_of(None, max_groups)
    basic = noise_of(bare, epsilon=Fraction(1, queries), mechanism="laplace")
    concentrated = noise_of(bare, share=Fraction(1, queries))
    assert noise_of(planned) <= min(basic, concentrated) * (1 + 1e-9)
    named = noise_of(planned, share=Fraction(1, queries))
    assert named == noise_of(planned)  # a share that is named is counted in the same account


def test_one_query_is_as_accurate_as_the_whole_epsilon():
    """With concentrated accounting alone, it had 3.3 times the noise, and three queries had 1.9 times."""
    assert noise_of(session_of(1, 1)) == pytest.approx(noise_of(session_of(None, 1), epsilon=1))
    assert noise_of(session_of(3, 1)) == pytest.approx(3 * noise_of(session_of(None, 1), epsilon=1))
    con = dp.connect(None, session_of(1, 1))
    con.register("visits", VISITS)
    plan = con.preview("SELECT dp_count_units() AS n FROM visits")
    assert float(plan.cost.epsilon) == 1
    assert plan.part == 1


def test_a_statement_costs_one_share_however_many_private_queries_it_has():
    session = session_of(2, 1)
    con = dp.connect(None, session)
    con.register("visits", VISITS)
    statement = "SELECT (SELECT dp_count_units() FROM visits) a, (SELECT dp_avg(value, 0, 50) FROM visits) b"
    con.sql(statement)
    assert len(session.releases) == 2
    assert session.spent.share == pytest.approx(0.5)
    con.sql("SELECT region, dp_count(*) AS n FROM visits GROUP BY region")
    assert session.spent.share == pytest.approx(1)


def questions(frame):
    """Return different kinds of questions, none of which names its spend."""
    return [
        lambda: frame.count("region"),
        lambda: frame.count_units("region", keys=KEYS),
        lambda: frame.mean("value", by="region", bounds="auto", max_groups="auto", max_rows_per_group="auto"),
        lambda: frame.sum("value", bounds=(0, 50), max_rows_per_group="auto"),
        lambda: frame.noisy_max("region", KEYS),
        lambda: frame.median("value", by="region", keys=KEYS[:3], bounds=(0, 50)),
        lambda: frame.group_by("region").agg(n=dp.count(), total=dp.sum("value", bounds=(0, 50))),
        lambda: frame.sparse_vector(500, hits=2),
        lambda: frame.count_units("region", mechanism="gaussian"),
        lambda: frame.synthesize({"region": KEYS}),
        lambda: frame.top_k("region", 2),
        lambda: frame.n_unique("value", by="region"),
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*may be far from the data")  # what is asked here matters less than its price
@pytest.mark.parametrize("queries", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("start", [0, 4])
@pytest.mark.parametrize("max_groups", [1, 3])
def test_all_planned_queries_fit(queries, start, max_groups):
    session = session_of(queries, max_groups)
    asked = questions(dp.private(VISITS, session))
    for place in range(queries):
        asked[(start + place) % len(asked)]()
    assert len(session.releases) == queries
    assert session.spent.share <= 1
    if session.defaults.account == "epsilon":
        assert sum(release.cost.epsilon for release in session.releases) == 1
    with pytest.raises(dp.BudgetExceeded):
        dp.private(VISITS, session).count("region", keys=KEYS, epsilon=1)


@pytest.mark.slow
@pytest.mark.parametrize("queries", [None, 1, 4, 30])
def test_shares_that_sum_to_one_fit_also_beside_planned_queries(queries):
    session = session_of(queries, 1)
    frame = dp.private(VISITS, session)
    shares = [0.5, 0.25, 0.05, 0.2]
    if queries == 4:
        frame.filter(pl.col("value") > 1).count("region")
        shares[1] = None
    for place, share in enumerate(shares):
        if share is not None:
            frame.filter(pl.col("value") > place + 2).count("region", share=share)
    assert session.spent.share <= 1


def test_the_choice_is_recorded_and_shown(tmp_path):
    path = tmp_path / "budget.db"
    session_of(3, 1, ledger=path).close()
    again = dp.Session.from_ledger(path)
    assert again.defaults.account == again.terms.share_account == "epsilon"
    assert "planned for: 3 queries, 1/3 of the budget each, by the sum of epsilons" in again.describe()
    assert "planned for 3 queries, 1/3 of the budget each, by the sum of epsilons" in again._repr_html_()
    again.close()
    # Shares were counted in it, so another plan for the same ledger doesn't change it.
    later = session_of(30, 10, ledger=path)
    assert chosen_account(later.terms, 30, 10) == "rho"
    assert later.defaults.account == "epsilon"
    assert "planned for" not in session_of(None).describe()
    assert "by the sum of rhos" in session_of(30).describe()


def test_a_ledger_from_before_counts_shares_in_rho(tmp_path):
    path = tmp_path / "budget.db"
    session_of(3, 1, ledger=path).close()
    with sqlite3.connect(path) as connection:
        ((text,),) = connection.execute("SELECT defaults FROM agreement").fetchall()
        older = json.dumps({name: value for name, value in json.loads(text).items() if name != "account"})
        connection.execute("UPDATE agreement SET defaults = ?", (older,))
    connection.close()
    assert Defaults.from_json(older).account is None
    for session in (dp.Session.from_ledger(path), session_of(3, 1, ledger=path)):
        assert session.defaults.account is None
        plan = dp.private(VISITS, session).preview.count_units()
        assert float(plan.cost.rho) == pytest.approx(float(session.terms.rho_allowed) / 3)
        session.close()


@pytest.mark.parametrize("words", [{"epsilon": 1.0}, {"rho": 0.1}])
def test_other_sessions_have_nothing_to_choose(words):
    assert dp.Session(**words, unit="user", queries=3).defaults.account is None


def test_a_replaced_unit_counts_in_twice_as_many_groups():
    added, replaced = session_of(3, 2).terms, session_of(3, 2, adjacency="replace").terms
    for account in ("epsilon", "rho"):
        assert typical_noise(replaced, account, 3, 2) == typical_noise(added, account, 3, 4)
    assert typical_noise(added, "epsilon", 10**12, 1) == float("inf")
    assert chosen_account(added, 3, "auto") == chosen_account(added, 3, 3)
