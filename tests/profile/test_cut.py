"""What caps and bounds cut off is counted with `cut=True`, known from an adopted profile, or said to be unknown."""

from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.polars import engine
from dp_polars._engines.registry import engine_for
from dp_polars._frame.aggregate_question import question_of
from dp_polars._plan.auto import Found
from dp_polars._plan.plan import settled
from dp_polars._release.run import request_of
from dp_polars.errors import InvalidParameterError

KEYS = ["a", "b", "c"]
ROWS = pl.DataFrame(
    {
        "user": [1, 1, 1, 2, 2, 3, 4, 4, 4, 4],
        "key": ["a", "a", "a", "a", "b", "b", "c", "c", "c", "c"],
        "x": [1.0, 2.0, 99.0, 5.0, -5.0, None, 3.0, 3.0, 3.0, float("nan")],
        "y": [1, 2, 3, 4, 5, 6, 7, 8, 9, 11],
    }
)
CAPS = {"max_rows_per_group": 2, "max_groups": 2, "keys": KEYS, "cut": True, "epsilon": 1}


def exact_of(frame, aggregate, monkeypatch, **words):
    """Return the plan and the exact columns of what is cut, by name."""
    session = dp.Session(epsilon=10.0, unit="user", adjacency=words.pop("adjacency", "add_remove"))
    question = question_of(dp.private(frame, session)._view({}), aggregate, "key", {**CAPS, **words})
    with monkeypatch.context() as patch:
        patch.setattr(engine.secrets, "randbits", lambda _: 11)
        exact = engine_for(question.rows).aggregate(question.rows, request_of(question.plan))
    hidden = [one for one in question.plan.compiled if one.aggregate.hidden]
    names = {one.aggregate.name: next(iter(one.statistics.values())) for one in hidden}
    return question.plan, {name: exact.groups[own].to_numpy() for name, own in names.items()}


def test_the_units_are_counted_that_lose_rows_or_values(monkeypatch):
    """Unit 1 has 3 rows in a and a value above the bounds, 2 has one below them in b, 4 has 4 rows in c and a NaN."""
    _, found = exact_of(ROWS, dp.mean("x", bounds=(0, 10)), monkeypatch, max_groups=3)
    assert found["cut_by_cap"].tolist() == [1, 0, 1]
    assert found["cut_by_bounds"].tolist() == [1, 1, 0]
    _, found = exact_of(ROWS, dp.sum("y", bounds=(0.5, 10.5)), monkeypatch, max_groups=3)
    assert found["cut_by_bounds"].tolist() == [0, 0, 1]
    _, found = exact_of(ROWS, dp.count(), monkeypatch, max_groups=3)
    assert {name: own.tolist() for name, own in found.items()} == {"cut_by_cap": [1, 0, 1]}


@pytest.mark.slow
@pytest.mark.parametrize("aggregate", [dp.count(), dp.mean("x", bounds=(0, 10)), dp.median("y", bounds=(0, 10))])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_a_unit_adds_at_most_one_to_each_of_its_groups(aggregate, adjacency, monkeypatch):
    """A unit with thousands of rows and values far outside the bounds moves the counts by no more than planned."""
    heavy = pl.DataFrame({"user": [9] * 6_000, "key": KEYS * 2_000, "x": [1e9] * 6_000, "y": [10**9] * 6_000})
    few = heavy.head(1)
    before = pl.concat([ROWS, few]) if adjacency == "replace" else ROWS
    plan, old = exact_of(before, aggregate, monkeypatch, adjacency=adjacency)
    _, new = exact_of(pl.concat([ROWS, heavy]), aggregate, monkeypatch, adjacency=adjacency)
    for one in plan.compiled:
        if not one.aggregate.hidden:
            continue
        statistic = plan.measurement(next(iter(one.statistics.values())))
        moved = np.abs(new[one.aggregate.name] - old[one.aggregate.name])
        assert statistic.sensitivity.each == 1
        assert moved.max() <= 1
        assert 1 <= moved.sum() <= statistic.sensitivity.l1 <= 4
    weights = [own.statistic.weight for own in plan.measurements if own.statistic.what in ("units over the cap",)]
    assert all(weight <= 0.1 for weight in weights)


def planes():
    """Two airlines: every plane of "big" flies 100 times, and every plane of "small" 5 times."""
    big = pl.DataFrame({"user": np.repeat(np.arange(600), 100), "key": "a", "delay": 30.0})
    small = pl.DataFrame({"user": np.repeat(np.arange(600, 1200), 5), "key": "b", "delay": 5.0})
    return pl.concat([big, small])


@pytest.mark.slow
def test_the_release_tells_which_group_was_cut():
    """With noise of scale 20 on counts of 600 and 0, a false alarm at 300 has a probability below 1e-6."""
    session = dp.Session(epsilon=10.0, unit="user")
    asked = dp.private(planes(), session)
    words = {"max_rows_per_group": 20, "max_groups": 1, "keys": ["a", "b"]}
    answer = asked.mean("delay", "key", bounds=(0, 20), cut=True, epsilon=2, **words)
    assert answer.columns == ["key", "delay", "cut_by_cap", "cut_by_bounds"]
    assert (answer["cut_by_cap"] > 300).to_list() == [True, False]
    assert (answer["cut_by_bounds"] > 300).to_list() == [True, False]
    release = session.releases[-1]
    for shown in (str(release), release._repr_html_(), str(release.plan), str(dp.plot(release).to_dict()["title"])):
        assert "cut_by_cap counts" in shown
    # The only known error is that of a cut, so it is named: the mean has none in advance.
    assert "expected error of cut_by_cap" in str(release)
    assert "expected error  " not in str(release)


def test_a_select_that_would_pay_for_the_cut_without_showing_it_is_refused():
    session = dp.Session(epsilon=10.0, unit="user", max_rows_per_group=20, max_groups=1)
    con = dp.connect(None, session).register("flights", planes())
    query = "SELECT key, dp_avg(delay, 0, 20{}) AS m FROM flights GROUP BY key"
    with pytest.raises(InvalidParameterError, match="dp_cut_by_cap"):
        con.sql(query.format(""), cut=True, epsilon=2, keys=["a", "b"])
    with pytest.raises(dp.StatementNotAllowed, match="dp_cut_by_cap"):
        con.sql(query.format(", cut := true"), epsilon=2, keys=["a", "b"])
    assert not session.releases


def test_a_select_shows_the_cut_by_group():
    """With noise of scale 7 on counts of 600 and 0, a false alarm at 300 has a probability below 1e-15."""
    session = dp.Session(epsilon=10.0, unit="user", max_rows_per_group=20, max_groups=1)
    con = dp.connect(None, session).register("flights", planes())
    words = {"keys": ["a", "b"], "epsilon": 3}
    cut = "dp_cut_by_cap() AS capped, 2 * dp_cut_by_bounds() AS clipped"
    query = f"SELECT key, {cut}, dp_avg(delay, 0, 20) AS m FROM flights GROUP BY key HAVING dp_cut_by_cap() > -900"
    table = con.sql(query, **words).pl()
    assert table.columns == ["key", "capped", "clipped", "m"]
    assert table.select(pl.col("capped") > 300, pl.col("clipped") > 600).rows() == [(True, True), (False, False)]
    # The same noise as with cut=True, so that frames show it too.
    spent = session.spent
    own = dp.private(planes(), session, name="flights")
    assert own.preview.mean("delay", "key", bounds=(0, 20), cut=True, **words).cost == session.releases[-1].cost
    assert session.spent == spent
    # A call with a spend of its own is told apart by its FILTER.
    query = """
        SELECT key, dp_count(*, epsilon := 3) AS n, dp_cut_by_cap() AS all_of_them, dp_count(*, epsilon := 3) FILTER (
            WHERE key = 'b') AS few, dp_cut_by_cap() FILTER (WHERE key = 'b') AS own
        FROM flights GROUP BY key
    """
    rows = con.sql(query, keys=["a", "b"]).pl().rows()
    assert [(row[2] > 300, row[4] > 300) for row in rows] == [(True, False), (False, False)]
    assert session.spent.epsilon == 9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("dp_cut_by_cap()", "about the private aggregates beside it"),
        ("dp_noisy_max(key), dp_cut_by_cap()", "about the private aggregates beside it"),
        ("dp_count(*, epsilon := 1), dp_avg(delay, 0, 9, epsilon := 1), dp_cut_by_cap()", "whole statement"),
        ("dp_count(*), dp_cut_by_bounds()", "none of them has bounds"),
        ("dp_count(*), cut_by_cap", r"select dp_cut_by_cap\(\)"),
        ("dp_count(*), dp_cut_by_cap(delay)", "takes no arguments"),
        ("dp_count(*), dp_cut_by_cap(epsilon := 1)", "takes no arguments"),
        ("dp_count_units(), dp_cut_by_cap()", "this question has neither"),
    ],
)
def test_a_cut_of_nothing_is_refused_and_costs_nothing(select, message):
    session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=20)
    con = dp.connect(None, session).register("flights", planes())
    with pytest.raises(dp.DPError, match=message):
        con.sql(f"SELECT {select} FROM flights", **({} if "epsilon := 1)," in select else {"epsilon": 0.5}))
    assert not session.releases


def test_without_a_measure_the_cut_is_unknown_and_a_profile_tells_it():
    session = dp.Session(epsilon=10.0, unit="user")
    asked = dp.private(planes(), session)
    words = {"max_rows_per_group": 20, "max_groups": 1, "keys": ["a", "b"], "epsilon": 0.1}
    plan = asked.preview.sum("delay", "key", bounds=(0, 20), **words)
    assert plan.cut_off() == (
        "unknown for max_groups, max_rows_per_group and bounds: adopt a profile (df.dp.profile), or say cut=True, "
        "which leaves out max_groups"
    )
    assert asked.preview.count_units(epsilon=0.1).cut_off() is None
    session.adopt(asked.profile("key", columns=["delay"], epsilon=5))
    text = asked.preview.sum("delay", "key", bounds=(0, 20), **words).cut_off()
    assert "unknown" not in text
    shares = [float(part.split(" %")[0].lstrip("<")) for part in text.split("; ")]
    assert shares[0] < 5
    assert 40 < shares[1] < 60
    assert 40 < shares[2] < 60
    asked.count("key", **words)
    assert "of units have more rows than 20 in a group chosen at random (profile)" in str(session.releases[-1])


def test_what_cut_refuses():
    asked = dp.private(ROWS, dp.Session(epsilon=1.0, unit="user", max_rows_per_group=2))
    with pytest.raises(InvalidParameterError, match="this question has neither"):
        asked.count_units(cut=True, epsilon=0.1)
    with pytest.raises(InvalidParameterError, match="With cut=True, say epsilon="):
        asked.count(cut=True, within=50)
    with pytest.raises(InvalidParameterError, match="cut"):
        asked.rename({"key": "cut_by_cap"}).count("cut_by_cap", keys=["a"], cut=True, epsilon=0.1)
    each = dp.private(ROWS, dp.Session(epsilon=1.0, unit=dp.ROW))
    assert each.mean("x", bounds=(0, 10), cut=True, epsilon=0.5).columns == ["x", "cut_by_bounds"]


def test_counting_what_is_cut_does_not_change_how_caps_are_estimated():
    asked = dp.private(ROWS, dp.Session(epsilon=1.0, unit="user"))
    words = {"bounds": (0, 10), "max_rows_per_group": "auto", "epsilon": 0.5}
    plans = [asked.preview.mean("x", cut=cut, **words) for cut in (False, True)]
    assert [plan.estimates[0].ratio for plan in plans] == [True, True]


def test_adopting_a_profile_makes_no_question_new():
    """The same caps and bounds are the same question, whether they are given or come from a profile."""
    session = dp.Session(epsilon=10.0, unit="user")
    asked = dp.private(planes(), session)
    words = {"max_rows_per_group": 20, "max_groups": 1, "keys": ["a", "b"], "epsilon": 1}
    first = asked.count("key", **words)
    session.adopt(asked.profile("key", epsilon=2))
    spent = session.spent
    assert asked.count("key", **words).equals(first)
    assert session.spent == spent


@pytest.mark.parametrize(
    ("select", "groups", "text"),
    [
        ("dp_count_units()", 1, "unknown for max_groups: SUMMARIZE the table"),
        ("dp_count(*)", 2, "unknown for max_rows_per_group: select dp_cut_by_cap(), or SUMMARIZE the table"),
        (
            "dp_avg(delay, 0, 9)",
            1,
            "unknown for max_groups, max_rows_per_group and bounds: SUMMARIZE the table, or select dp_cut_by_cap() and "
            "dp_cut_by_bounds(), which leave out max_groups",
        ),
    ],
)
def test_a_select_says_what_a_select_can_do_about_it(select, groups, text):
    """cut=True is refused in a SELECT, and no count of cut units is about max_groups."""
    session = dp.Session(epsilon=1.0, unit="user", max_groups=groups, max_rows_per_group=20)
    con = dp.connect(None, session).register("flights", planes())
    plan = con.preview(f"SELECT key, {select} FROM flights GROUP BY key", epsilon=0.5, keys=["a", "b"])
    assert plan.cut_off() == text


def test_the_line_on_the_cut_names_only_ways_that_count_it():
    asked = dp.private(planes(), dp.Session(epsilon=1.0, unit="user", max_groups=1, max_rows_per_group=20))
    words = {"keys": ["a", "b"], "epsilon": 0.1}
    assert asked.preview.count_units("key", **words).cut_off() == (
        "unknown for max_groups: adopt a profile (df.dp.profile)"
    )
    assert asked.preview.count("key", cut=True, **words).cut_off() == (
        "cut_by_cap counts the units with more than 20 rows in a group; unknown for max_groups: adopt a profile "
        "(df.dp.profile)"
    )
    # What a unit loses in its total is counted by nothing, and the values of its rows say nothing about it.
    total = asked.preview.sum("delay", bounds=(0, 20), per="unit", epsilon=0.1)
    assert total.cut_off() == "unknown for the bounds of each unit's total, which nothing counts"
    with pytest.raises(InvalidParameterError, match="this question has neither"):
        asked.sum("delay", bounds=(0, 20), per="unit", cut=True, epsilon=0.1)


def test_a_mean_says_that_a_cap_weighs_the_rows_of_heavy_units_less():
    """Planes that fly often have longer delays here: the mean of all rows is 29, and with the cap it is 25."""
    session = dp.Session(epsilon=10.0, unit="user", max_rows_per_group=20)
    asked = dp.private(planes(), session)
    text = (
        "a unit with more than 20 rows in a group counts as 20 rows in the mean of delay; no interval shows how far "
        "this moves it"
    )
    asked.mean("delay", bounds=(0, 50), epsilon=1)
    release = session.releases[-1]
    assert dict(release.plan.rows())["weights"] == text
    assert text in str(release)
    assert text in release._repr_html_()
    con = dp.connect(None, session).register("flights", planes())
    plan = con.preview("SELECT dp_avg(delay, 0, 50) AS m, dp_count(*) FROM flights", epsilon=1)
    assert dict(plan.rows())["weights"] == text
    # A count and a sum lose what is beyond the cap, which is another line; units that are rows have no cap.
    assert "weights" not in dict(asked.preview.sum("delay", bounds=(0, 50), epsilon=1).rows())
    each = dp.private(planes(), dp.Session(epsilon=1.0, unit=dp.ROW))
    assert "weights" not in dict(each.preview.mean("delay", bounds=(0, 50), epsilon=1).rows())


# ---------------------------------------------------------------------- bounds that are estimated


def a_hundred_values(integers):
    """Return 9,000 units with one value each from 0 to 99."""
    kind = pl.Int64 if integers else pl.Float64
    numbers = pl.Series("x", [i % 100 for i in range(9_000)], dtype=kind)
    return pl.DataFrame([pl.Series("user", range(9_000)), pl.Series("key", KEYS * 3_000), numbers])


@pytest.fixture
def found_bounds(monkeypatch):
    """Let the estimate of bounds find those from 10 to 59."""

    def estimated(plan, *_):
        return [Found(estimate=one, chosen=(Fraction(10), Fraction(59)), units=10**6) for one in plan.estimates]

    monkeypatch.setattr("dp_polars._release.run.estimated", estimated)


@pytest.mark.slow
@pytest.mark.parametrize("integers", [True, False])
@pytest.mark.parametrize("door", ["polars", "sql"])
@pytest.mark.usefixtures("found_bounds")
def test_what_estimated_bounds_cut_is_counted(door, integers):
    """The noise stays within a margin that is left with probability 3e-9, and half of the units are cut."""
    rows = a_hundred_values(integers)
    session = dp.Session(epsilon=9.0, unit="user", max_groups=1, max_rows_per_group=1)
    words = {"keys": KEYS, "epsilon": 8.0}
    if door == "polars":
        preview = dp.private(rows, session).preview.sum("x", by="key", bounds="auto", cut=True, **words)
        found = dp.private(rows, session).sum("x", by="key", bounds="auto", cut=True, **words)
        again = dp.private(rows, session).sum("x", by="key", bounds="auto", cut=True, confidence=0.9, **words)
    else:
        query = "SELECT key, dp_sum(x, bounds := 'auto') AS x, dp_cut_by_bounds() AS cut_by_bounds FROM t GROUP BY key"
        con = dp.connect(None, session).register("t", rows)
        preview = con.preview(query, **words)
        found = con.sql(query, **words).pl()
        again = con.sql(query, confidence=0.9, **words).pl()
    plan = session.releases[-1].plan
    assert plan.cost == preview.cost
    (value,) = plan.compiled[0].aggregate.values
    assert not value.auto
    outside = (pl.col("x") < float(value.lower)) | (pl.col("x") > float(value.upper))
    exact = rows.group_by("key").agg(n=outside.sum()).sort("key")["n"].to_list()
    assert min(exact) > 1_000
    margin = plan.measurement(next(iter(plan.compiled[-1].statistics.values()))).error(1 - 1e-9)
    assert margin < 200
    assert all(abs(one - other) <= margin for one, other in zip(found["cut_by_bounds"], exact, strict=True))
    assert "cut_by_bounds counts the units with values outside the bounds" in plan.cut_off()
    assert again.select(found.columns).equals(found)
    assert "cut_by_bounds_low" in again.columns
    assert len(session.releases) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("found_bounds")
def test_given_and_estimated_bounds_are_counted_together():
    rows = a_hundred_values(integers=False).with_columns(y=pl.col("x") - 90)
    session = dp.Session(epsilon=9.0, unit="user", max_groups=1, max_rows_per_group=1)
    asked = {"a": dp.sum("x", bounds="auto"), "b": dp.sum("y", bounds=(-200, 0))}
    found = dp.private(rows, session).group_by("key").agg(**asked, keys=KEYS, cut=True, epsilon=8.0)
    plan = session.releases[-1].plan
    value = plan.compiled[0].aggregate.values[0]
    outside = (pl.col("x") < float(value.lower)) | (pl.col("x") > float(value.upper)) | (pl.col("y") > 0)
    exact = rows.group_by("key").agg(n=outside.sum()).sort("key")["n"].to_list()
    margin = plan.measurement(next(iter(plan.compiled[-1].statistics.values()))).error(1 - 1e-9)
    assert all(abs(one - other) <= margin for one, other in zip(found["cut_by_bounds"], exact, strict=True))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_a_unit_adds_at_most_one_to_what_estimated_bounds_cut(adjacency, monkeypatch):
    """Whatever bounds are found, a unit with thousands of rows outside them counts once in each of its groups."""
    heavy = pl.DataFrame({"user": [9] * 6_000, "key": KEYS * 2_000, "x": [1e12] * 6_000})
    few = ROWS.select("user", "key", "x")
    before = pl.concat([few, heavy.head(1)]) if adjacency == "replace" else few
    counts = []
    for rows in (before, pl.concat([few, heavy])):
        session = dp.Session(epsilon=10.0, unit="user", adjacency=adjacency)
        question = question_of(
            dp.private(rows, session)._view({}), dp.sum("x", bounds="auto"), "key", {**CAPS, "max_groups": 2}
        )
        run = question._run()
        plan = settled(
            question.plan, [Found(estimate=question.plan.estimates[0], chosen=(Fraction(0), Fraction(10)), units=4)]
        )
        with monkeypatch.context() as patch:
            patch.setattr(engine.secrets, "randbits", lambda _: 11)
            exact = run.engine(run._rows_of(plan), request_of(plan))
        (one,) = [own for own in plan.compiled if own.aggregate.kind == "cut_by_bounds"]
        own = plan.measurement(next(iter(one.statistics.values())))
        counts.append(exact.groups[own.name].to_numpy())
    if adjacency == "add_remove":
        assert counts[0].tolist() == [1, 1, 0]  # as for bounds that are given
    change = np.abs(counts[1] - counts[0])
    assert 0 < change.max() <= own.sensitivity.each == 1
    assert change.sum() <= own.sensitivity.l1 == (2 if adjacency == "add_remove" else 3)
