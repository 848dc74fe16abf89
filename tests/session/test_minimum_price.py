"""The smallest price of a question: in every account of the session's filter, at planning and at the charge."""

from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._session.prices import SMALLEST_SHARE, is_too_small, smallest, smallest_spend

ROWS = pl.DataFrame({"user": range(60), "n": [1, 2, 3] * 20, "flag": [True, False] * 30})
SESSIONS = {
    "pure": {"epsilon": 1.0},
    "approximate": {"epsilon": 1.0, "delta": 1e-6},
    "zcdp": {"rho": 0.5, "delta": 1e-6},
}


def session_of(kind, **words):
    return dp.Session(**SESSIONS[kind], unit="user", max_rows_per_group=1, max_groups=1, **words)


@pytest.mark.parametrize("kind", SESSIONS)
def test_no_session_has_more_than_a_hundred_thousand_charges(kind):
    """As if each cost the least, in the account of the filter that lasts longest."""
    session = session_of(kind)
    terms = session.terms
    if kind == "zcdp":
        cost = dp.gaussian_cost(terms, rho=smallest(terms)["rho"])
    else:
        cost = dp.pure_cost(smallest_spend(terms))
    assert not is_too_small(terms, cost)
    assert session.affordable_count(cost) <= 1 / SMALLEST_SHARE == 100_000
    least = dp.Cost(epsilon=smallest(terms).get("epsilon", Fraction(1)), rho=smallest(terms).get("rho", Fraction(1)))
    assert session.affordable_count(least) == 100_000


@pytest.mark.parametrize(
    ("kind", "cost"),
    [
        ("pure", dp.pure_cost(0.99e-5)),
        ("approximate", dp.pure_cost(0.99e-5)),
        ("approximate", dp.pure_cost(6e-4)),  # enough in epsilon, not in rho
        ("approximate", dp.Cost(epsilon=Fraction(1, 10**6), rho=Fraction(1, 10))),
        ("zcdp", dp.Cost(epsilon=float("inf"), rho=Fraction(4, 10**6))),
        ("zcdp", dp.pure_cost(1e-3)),
    ],
)
def test_less_is_refused_at_the_charge_with_the_number(kind, cost):
    session = session_of(kind)
    with pytest.raises(dp.InvalidParameterError, match=r"at least 1/100,000 of the session .* share=1e-05 or more"):
        session.reserve(cost, label="own")
    assert not session.releases


@pytest.mark.parametrize("kind", SESSIONS)
def test_what_the_message_names_is_accepted(kind):
    session = session_of(kind)
    terms = session.terms
    least = smallest_spend(terms)
    cost = dp.gaussian_cost(terms, rho=least) if kind == "zcdp" else dp.pure_cost(least)
    session.reserve(cost, label="own")
    dp.private(ROWS, session).count(share=1e-5)
    less = dp.gaussian_cost(terms, rho=least / 1.05) if kind == "zcdp" else dp.pure_cost(least / 1.05)
    with pytest.raises(dp.InvalidParameterError, match="at least"):
        session.reserve(less, label="own")


ASKED = {
    "count": lambda p: p.count(epsilon=1e-6),
    "auto": lambda p: p.count("n", keys=[1, 2, 3], max_groups="auto", epsilon=1e-6),
    "choice": lambda p: p.noisy_max("n", [1, 2, 3], epsilon=1e-6),
    "best": lambda p: p.select_best([1, 2], lambda c: pl.col("n") - c, bounds=(0, 3), epsilon=1e-6),
    "stream": lambda p: p.above_threshold(10, epsilon=1e-6),
    "online": lambda p: p.online_queries({"flag": None}, alpha=0.1, max_updates=2, epsilon=1e-6),
    "synthesis": lambda p: p.synthesize({"flag": None}, epsilon=1e-6),
    "responses": lambda p: p.randomized_response("flag", epsilon=1e-6),
    "within": lambda p: p.count(within=10**7),
}


@pytest.mark.parametrize("kind", ASKED)
def test_every_preview_says_so(kind):
    session = session_of("pure", adjacency="replace")
    private = dp.private(ROWS, session)
    with pytest.raises(dp.InvalidParameterError, match="costs at least"):
        ASKED[kind](private.preview)
    with pytest.raises(dp.InvalidParameterError, match="costs at least"):
        ASKED[kind](private)
    assert not session.releases


@pytest.mark.parametrize("kind", SESSIONS)
def test_where_less_than_the_smallest_is_left_nothing_fits(kind):
    session = session_of(kind)
    terms = session.terms
    left = 1 - SMALLEST_SHARE / 2
    whole = dp.Cost(epsilon=(terms.epsilon or 1) * left, rho=(terms.rho_allowed or 1) * left)
    session.reserve(whole, label="nearly all")
    mechanism, measure = ("gaussian", "rho") if kind == "zcdp" else ("laplace", "epsilon")
    assert session.largest_affordable(mechanism=mechanism, measure=measure) == 0


# ---------------------------------------------------------------- a cost is a plain number


def test_a_subclass_of_cost_can_not_reset_what_was_spent():
    class Reset(dp.Cost):
        def __radd__(self, other):
            return dp.Cost(epsilon=Fraction(0), rho=Fraction(0))

    session = session_of("pure")
    session.reserve(dp.pure_cost(0.5), label="honest")
    cheap = Reset(epsilon=Fraction(1, 10), rho=Fraction(1, 10))
    for ask in (lambda: session.reserve(cheap, label="q"), lambda: session.can_afford(cheap)):
        with pytest.raises(dp.InvalidParameterError, match=r"dp\.Cost, got Reset"):
            ask()
    with pytest.raises(TypeError):
        dp.pure_cost(0.1) + object()
    assert session.spent.epsilon == 0.5


def test_amounts_that_add_up_otherwise_are_refused():
    class Odd(Fraction):
        def __radd__(self, other):
            return Fraction(0)

        def __eq__(self, other):
            return True

        __hash__ = Fraction.__hash__

    class Infinite(float):
        def __radd__(self, other):
            return 0.0

    for amount in (Odd(1, 10), Infinite("inf"), Infinite(0.1)):
        with pytest.raises(dp.InvalidParameterError, match="plain number"):
            dp.Cost(epsilon=amount, rho=Fraction(1))


# ---------------------------------------------------------------- texts and frames that can't be stored


def test_a_label_with_half_a_character_is_refused_before_the_charge():
    session = session_of("pure")
    with pytest.raises(dp.InvalidParameterError, match="surrogate"):
        session.reserve(dp.pure_cost(0.1), label="\ud83d")
    assert not session.releases


@pytest.mark.parametrize("damage", [b"", b"nothing", b"ARROW1\0\0" + bytes(40)])
def test_a_damaged_stored_frame_is_an_error_of_ours(damage):
    session = session_of("pure")
    private = dp.private(ROWS, session)
    private.count(epsilon=0.1)
    session._ledger._connection.execute("UPDATE result SET frame = ?", (damage,))
    for read in (
        lambda: private.count(epsilon=0.1),
        lambda: session.release(1).frame,
        lambda: session.releases[0].frame,
    ):
        with pytest.raises(dp.LedgerError, match="charge number 1 is damaged"):
            read()
    private.count(epsilon=0.1, fresh=True)
