"""Discovered keys as people meet them: groups of very different sizes, both orders of answers, and empty answers."""

import warnings

import numpy as np
import polars as pl
import pytest

import dp_polars as dp

PLANES = [700, 650, 600, 550, 400, 300, 250, 180, 120, 90, 60, 40, 25, 20, 10, 5]  # of each carrier
FEW = pl.DataFrame({"plane": [1, 2, 3], "carrier": ["a", "b", "b"]})


@pytest.fixture(scope="module")
def flights():
    """Return flights of 4,000 planes, most of them in most months, in 185 groups of carrier and month."""
    dice = np.random.default_rng(14)
    carriers = np.repeat(np.arange(len(PLANES)), PLANES)
    plane, month = np.nonzero(dice.random((len(carriers), 12)) < 0.8)
    carrier = carriers[plane]
    kept = (carrier < 15) | (month < 5)
    flown = np.minimum(dice.geometric(0.3, len(plane)), 30) * kept
    plane, month, carrier = (np.repeat(one, flown) for one in (plane, month, carrier))
    return pl.DataFrame({"plane": plane, "month": month + 1, "carrier": [f"c{one:02}" for one in carrier.tolist()]})


def a_session(**words):
    return dp.Session(**{"epsilon": 1.0, "delta": 1e-6, "unit": "plane", "max_groups": 12, **words})


def certain(flights, plan):
    """Return the groups so large that each is missed with a probability below 1e-11."""
    noise = plan.measurement(plan.discovery.counted).noise
    units = flights.group_by("month", "carrier").agg(pl.col("plane").n_unique())
    return set(
        units.filter(pl.col("plane") >= plan.units_needed + 7 * noise.deviation).select("month", "carrier").rows()
    )


@pytest.mark.slow
def test_both_orders_of_rows_and_units_find_the_same_large_groups(flights):
    """The count of rows, with 20 times the noise, found hardly any of these groups when it was named first."""
    n, planes = dp.count(), dp.count_units()
    needed = []
    for order in ({"n": n, "planes": planes}, {"planes": planes, "n": n}):
        session = a_session(max_rows_per_group=20)
        found = dp.private(flights, session).group_by("month", "carrier").agg(**order, epsilon=1.0)
        plan = session.releases[-1].plan
        assert certain(flights, plan) <= set(found.select("month", "carrier").rows())
        assert len(certain(flights, plan)) >= 60
        needed.append(plan.units_needed)
        session = a_session(max_rows_per_group=20)
        names = ", ".join({"n": "dp_count(*) AS n", "planes": "dp_count_units() AS planes"}[name] for name in order)
        with dp.connect(None, session).register("flights", flights) as con:
            sql = f"SELECT month, carrier, {names} FROM flights GROUP BY month, carrier"
            rows = con.sql(sql, epsilon=1.0).pl()
        plan = session.releases[-1].plan
        assert certain(flights, plan) <= set(rows.select("month", "carrier").rows())
        needed.append(plan.units_needed)
    assert len(set(needed)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("cap", [1, 5, 20])
def test_a_count_with_a_large_cap_still_finds_the_large_groups(flights, cap):
    session = a_session(max_rows_per_group=cap)
    found = dp.private(flights, session).group_by("month", "carrier").agg(n=dp.count(), epsilon=1.0)
    assert found.columns == ["month", "carrier", "n"]
    assert found.height > 60
    plan = session.releases[-1].plan
    assert plan.discovery.way.by == ("hidden" if cap == 20 else "released")
    text, html = str(session.releases[-1]), session.releases[-1]._repr_html_()
    for shown in (text, html):
        assert f"{plan.units_needed:,} " in shown
        assert "for a group to appear half the time" in shown
        assert "a smaller max_groups" in shown
    (advice,) = [line for line in text.splitlines() if "a smaller max_groups" in line]
    assert ("max_rows_per_group" in advice) == (cap == 5)


def test_an_empty_answer_says_what_a_group_needs():
    session = a_session(max_rows_per_group=2)
    private = dp.private(FEW, session)
    needed = private.preview.count("carrier", epsilon=0.5).units_needed
    says = f"No group is shown: count by carrier, unit plane.*{needed} units.*a larger spend or delta"
    with pytest.warns(dp.DPWarning, match=says) as caught:
        assert not private.count("carrier", epsilon=0.5).height
    assert caught[0].filename == __file__
    with pytest.warns(dp.DPWarning, match=says):  # the stored answer is empty, too
        private.count("carrier", epsilon=0.5)
    assert len(session.releases) == 1
    with (
        dp.connect(None, session).register("flights", FEW) as con,
        pytest.warns(dp.DPWarning, match="No group is shown: count_units by carrier, unit plane.*public keys"),
    ):
        assert con.sql("SELECT carrier, dp_count_units() FROM flights GROUP BY 1", epsilon=0.1).fetchall() == []


@pytest.mark.filterwarnings("ignore:The max_groups may be far")  # three units are too few for an estimate
def test_an_empty_answer_after_estimates_says_what_a_group_needs():
    private = dp.private(FEW, a_session(max_groups="auto"))
    with pytest.warns(dp.DPWarning, match="A group needs .* units to appear half the time"):
        private.count_units("carrier", epsilon=0.5)


def test_nothing_is_said_about_public_keys_or_answers_with_groups():
    many = pl.DataFrame({"plane": range(2_000), "carrier": "a"})
    session = a_session(max_rows_per_group=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", dp.DPWarning)
        dp.private(FEW, session).count("carrier", keys=["z"], epsilon=0.1)
        assert dp.private(many, session).count("carrier", epsilon=0.5).height == 1


def test_sql_and_reports_say_how_many_units_a_group_needed():
    visits = pl.DataFrame({"plane": range(600), "region": ["north"] * 500 + ["south"] * 100})
    session = dp.Session(epsilon=2.0, delta=1e-6, unit="plane", max_groups=1, max_rows_per_group=1)
    con = dp.connect(None, session).register("visits", visits)
    con.sql("SELECT region, dp_count(*) AS n FROM visits GROUP BY region", epsilon=1)
    needed = f"{session.releases[-1].plan.units_needed} for a group to appear half the time"
    assert f"units needed: {needed}" in con.notes
    assert any(note.startswith("smaller groups: appear with a larger spend") for note in con.notes)
    report = session.releases[-1].report().markdown
    assert f"Units needed: {needed}." in report
    assert "larger spend" not in report  # who reads a report can't spend
