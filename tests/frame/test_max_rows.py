"""`max_rows=`: one cap on the rows of a unit in all groups together, through every door."""

import math

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._cli import main
from tests.policy.shop import write_shop

pytestmark = pytest.mark.filterwarnings("ignore:epsilon=:dp_polars.errors.DPWarning")  # little noise, on purpose

# Each of 200 people has 6 visits in one region and 2 in each of three others.
REGIONS = [f"r{number}" for number in range(8)]
VISITS = pl.DataFrame(
    {
        "who": [who for who in range(200) for _ in range(12)],
        "region": [f"r{(who + place) % 8}" for who in range(200) for place in (0,) * 6 + (1, 1, 2, 2, 3, 3)],
        "paid": [10.0, 2.0, 0.0] * 800,
        "shop": [n % 4 for n in range(2_400)],
    }
)
CAP = 6  # half of what everybody has
SQL = f"SELECT region, dp_count(*, keys := {REGIONS}, max_rows := 6, epsilon := 5) AS n FROM visits GROUP BY region"


def session(**given):
    return dp.Session(**{"epsilon": 1e6, "delta": 1e-6, "unit": "who", **given})


def frame(**given):
    return dp.private(VISITS, session(**given))


def rows_of(plan):
    return [text for name, text in plan.rows() if name == "rows per unit in all groups"]


@pytest.mark.parametrize("door", ["method", "agg", "session", "sql", "statement", "function"])
def test_every_door_takes_one_cap_in_place_of_two(door):
    """300 rows are in each region, and each unit counts with half of its 12. Noise above 15 steps of scale 6/5000 has
    a chance below 1e-6."""
    spend = {"epsilon": 5_000}
    con = dp.connect(None, session()).register("visits", VISITS)
    if door == "method":
        counts = frame().count("region", keys=REGIONS, max_rows=CAP, **spend)["count"]
    elif door == "agg":
        counts = frame().group_by("region").agg(n=dp.count(), keys=REGIONS, max_rows=CAP, **spend)["n"]
    elif door == "session":
        counts = frame(max_rows=CAP, max_groups=1).count("region", keys=REGIONS, **spend)["count"]
    elif door == "sql":
        counts = con.sql(SQL.replace("5)", "5000)")).pl()["n"]
    elif door == "statement":
        text = "SELECT region, dp_count() AS n FROM visits GROUP BY region"
        counts = con.sql(text, keys=REGIONS, max_rows=CAP, **spend).pl()["n"]
    else:
        raw = duckdb.connect()
        raw.register("given", VISITS.to_arrow())
        raw.execute("CREATE TABLE visits AS FROM given")
        dp.register(raw, session())
        options = f"by := 'region', keys := {REGIONS}, max_rows := {CAP}, epsilon := 5000"
        counts = raw.sql(f"FROM dp.count('visits', {options})").pl()["count"]
    assert counts.to_list() == [150] * 8


def test_the_plan_names_the_cap_and_its_noise_is_that_of_a_single_group():
    plan = frame().preview.count("region", keys=REGIONS, max_rows=CAP, epsilon=0.5)
    (measurement,) = plan.measurements
    assert rows_of(plan) == ["6 (max_rows in the call)"]
    assert "groups per unit" not in dict(plan.rows())
    assert measurement.sensitivity.l1 * measurement.grid.step == CAP
    assert plan.expected_error() == math.ceil(CAP / 0.5 * math.log(20))  # the 95 % point of Laplace noise
    assert "unknown for max_rows: say cut=True" in plan.cut_off()
    in_two = frame().preview.count("region", keys=REGIONS, max_groups=2, max_rows_per_group=3, epsilon=0.5)
    assert in_two.expected_error() == plan.expected_error()
    for answer in (dp.mean("paid", bounds=(0, 10)), dp.median("paid", bounds=(0, 10)), dp.n_unique("shop")):
        asked = frame().preview.group_by("region").agg(a=answer, keys=REGIONS, max_rows=CAP, epsilon=0.5)
        assert rows_of(asked) == ["6 (max_rows in the call)"]


@pytest.mark.slow
def test_what_counts_is_at_most_the_cap_in_all_groups_together():
    """With little noise, sums are scaled to half, and values that are kept are exactly six of each person's twelve."""
    asked = {"keys": REGIONS, "max_rows": CAP, "epsilon": 50_000}
    sums = frame().sum("paid", "region", bounds=(0, 10), **asked)["paid"]
    truth = VISITS.group_by("region").agg(pl.col("paid").sum()).sort("region")["paid"]
    assert (sums - truth / 2).abs().max() < 0.1  # steps of scale 60 / 50,000, eight draws
    means = frame().mean("paid", "region", bounds=(0, 10), **asked)["paid"]
    assert (means - truth / 300).abs().max() < 0.01
    bins = frame().histogram("paid", "region", edges=[0, 1, 5, 10], **asked)
    assert bins["count"].sum() == 200 * CAP
    found = frame().n_unique("shop", "region", **asked)["shop"]
    assert found.to_list() == [4] * 8
    middles = frame().median("paid", "region", bounds=(0, 10), **asked)["paid"]
    assert middles.is_between(0, 10).all()
    both = frame().histogram("paid", "region", edges=[0, 1, 5, 10], max_groups=1, **asked)
    assert both["count"].sum() <= 200 * CAP  # units that kept a region with two visits count with two
    totals = frame().count(["region"], rollup=True, **asked)
    assert totals.filter(level=0)["count"].item() == 1_200


def test_without_groups_it_is_the_cap_on_rows_and_the_answer_is_the_same_release():
    own = session()
    asked = dp.private(VISITS, own)
    first = asked.count(max_rows=CAP, epsilon=0.5)
    spent = own.spent.epsilon
    assert asked.count(max_rows_per_group=CAP, epsilon=0.5).equals(first)
    assert own.spent.epsilon == spent
    assert asked.preview.count(max_rows=CAP, epsilon=0.5).query.across is False


def test_discovered_keys_have_both_caps_and_say_why():
    with pytest.raises(dp.errors.InvalidParameterError, match=r"alone in any number of groups\..* max_groups=3"):
        frame().preview.count("region", max_rows=CAP, epsilon=1)
    plan = frame(max_groups=2).preview.count("region", max_rows=CAP, epsilon=1)
    assert (plan.bounds.max_groups, plan.bounds.enforce_groups) == (2, True)
    assert dict(plan.rows())["groups per unit"] == "2 (max_groups of the session)"
    shown = frame(max_groups=2).count("region", max_rows=CAP, epsilon=5_000)
    assert shown["count"].sum() <= 200 * CAP
    assert shown.height == 8


def test_counts_of_units_need_a_cap_on_groups_which_holds_for_all_answers():
    both = {"n": dp.count(), "u": dp.count_units(), "keys": REGIONS, "max_rows": CAP, "epsilon": 1}
    plan = frame(max_groups=2).preview.group_by("region").agg(**both)
    assert (plan.bounds.max_groups, plan.bounds.enforce_groups) == (2, True)
    assert plan.measurement("units").sensitivity.l1 == 2
    everywhere = frame().preview.group_by("region").agg(**both)
    assert everywhere.bounds.max_groups == 8
    assert not everywhere.bounds.enforce_groups


def test_what_the_call_says_comes_before_what_the_session_says():
    ask = {"keys": REGIONS, "epsilon": 1}
    own = frame(max_rows=9, max_groups=2, max_rows_per_group=4).preview
    assert own.count("region", **ask).query.max_rows == 9
    assert own.count("region", **ask).bounds.enforce_groups is False
    in_each = own.count("region", max_rows_per_group=3, **ask)
    assert (in_each.query.across, in_each.query.max_rows, in_each.bounds.max_groups) == (False, 3, 2)
    both = own.count("region", max_groups=3, **ask)
    assert (both.query.across, both.query.max_rows, both.bounds.max_groups) == (True, 9, 3)
    with pytest.raises(dp.errors.InvalidParameterError, match=r"max_rows_per_group those in each group\. Give one"):
        own.count("region", max_rows=3, max_rows_per_group=3, **ask)
    with pytest.raises(dp.errors.InvalidParameterError, match="max_rows"):
        own.count("region", max_rows=0, **ask)
    with pytest.raises(dp.errors.InvalidParameterError, match="no option max_rows"):
        own.noisy_max("region", candidates=REGIONS, max_rows=3, epsilon=1)


def test_an_automatic_cap_may_be_asked_for():
    """Everybody has 12 rows. A choice outside 10 to 25 has a chance below 1e-9 at this spend."""
    own = session()
    dp.private(VISITS, own).count("region", keys=REGIONS, max_rows="auto", epsilon=200)
    (found,) = own.plan().estimated
    assert found.estimate.what == "max_rows"
    assert 10 <= found.chosen[0] <= 25
    plan = frame().preview.count("region", keys=REGIONS, max_rows="auto", max_groups="auto", epsilon=1)
    assert [one.what for one in plan.estimates] == ["max_rows"]
    plan = frame().preview.count("region", max_rows="auto", max_groups="auto", epsilon=1)
    assert [one.what for one in plan.estimates] == ["max_groups", "max_rows"]
    assert "if max_rows is 10" in dict(plan.rows())["units needed if max_groups is 3"]


def test_cut_counts_the_units_with_more_rows_in_all_groups():
    """Four groups of each unit have at most 6 rows each, and 12 in all. The count of each group moves by 1 per unit."""
    asked = {"keys": REGIONS, "cut": True, "epsilon": 10_000}
    assert frame().count("region", max_rows=11, **asked)["cut_by_cap"].to_list() == [100] * 8
    assert frame().count("region", max_rows=12, **asked)["cut_by_cap"].to_list() == [0] * 8
    plan = frame().preview.count("region", max_rows=6, **asked)
    counted = next(one for one in plan.measurements if one.statistic.what == "units over the cap")
    assert counted.sensitivity.l1 == 8


def test_an_adopted_profile_tells_what_the_cap_cuts_off():
    """Everybody has 12 rows, so all have more than 6 and nobody has more than 20. The profile has hardly any noise."""
    own = session()
    asked = dp.private(VISITS, own)
    own.adopt(asked.profile("region", columns=["paid"], epsilon=50_000))
    shares = [asked.preview.count("region", keys=REGIONS, max_rows=cap, epsilon=1).cut_off() for cap in (CAP, 20)]
    assert shares[0] == "100 % of units have more rows than 6 in all groups together (profile)"
    assert shares[1].startswith("0 % of units have more rows than 20 in all groups together")
    assert asked.preview.count("region", keys=REGIONS, epsilon=1).query.across is False  # two caps are adopted


def test_a_policy_and_a_dashboard(tmp_path):
    write_shop(tmp_path)
    path = tmp_path / "policy.toml"
    path.write_text(path.read_text().replace("max_groups = 2\nmax_rows_per_group = 3", "max_rows = 5"))
    orders = dp.Policy.load(path).scan("orders")
    assert rows_of(orders.preview.count("status")) == ["5 (max_rows of the policy)"]
    board = dp.Dashboard()
    ask = board.on(frame())
    ask.count("region", keys=REGIONS, max_rows=CAP, epsilon=0.5)
    assert rows_of(board.plans[0]) == ["6 (max_rows in the call)"]


def test_the_command_line(tmp_path, capsys):
    path = tmp_path / "visits.parquet"
    VISITS.write_parquet(path)
    text = f"SELECT region, dp_count(*, keys := {REGIONS}) AS n FROM visits GROUP BY region"
    code = main(["preview", str(path), "--unit", "who", "--epsilon", "1", "--max-rows", "6", "--spend", "0.5", text])
    assert code == 0
    assert "rows per unit in all groups  6 (max_rows of the session)" in capsys.readouterr().out


def test_without_keys_the_cap_keeps_the_name_that_was_said():
    plan = frame().preview.count(max_rows=CAP, epsilon=1)
    assert dict(plan.rows())["cut off"].startswith("unknown for max_rows:")
    assert dict(frame(max_rows=CAP).preview.count(epsilon=1).rows())["cut off"].startswith("unknown for max_rows:")
    assert "max_rows_per_group" in dict(frame().preview.count(max_rows_per_group=CAP, epsilon=1).rows())["cut off"]


@pytest.mark.slow
def test_the_command_line_takes_one_cap_on_rows_and_what_is_said_comes_before_the_ledger(tmp_path, capsys):
    path, ledger = tmp_path / "visits.parquet", str(tmp_path / "budget.db")
    VISITS.write_parquet(path)
    text = f"SELECT region, dp_count(*, keys := {REGIONS}) AS n FROM visits GROUP BY region"
    words = ["preview", str(path), "--unit", "who", "--epsilon", "1", "--spend", "0.5", "--max-rows", "6"]
    assert main([*words, "--max-rows-per-group", "5", text]) == 1
    assert "Give one of them" in capsys.readouterr().err
    dp.Session(epsilon=1, unit="who", max_rows=6, ledger=ledger).close()
    for said, shown in (
        (["--max-rows-per-group", "5"], "max_rows_per_group"),
        (["--max-rows", "4"], "max_rows"),
        ([], "max_rows"),
    ):
        assert main(["preview", str(path), "--ledger", ledger, "--spend", "0.5", *said, text]) == 0
        assert f"({shown} of the session)" in capsys.readouterr().out
