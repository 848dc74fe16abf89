"""Profiles: exact sensitivities on neighbours, a public shape, right suggestions, and their use by later questions."""

import datetime
import itertools
import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_polars as dp
from dp_polars._engines.polars import engine
from dp_polars._frame.options import ProfileOptions
from dp_polars._profile.ladders import COUNTS, count_labels, ladder_of
from dp_polars._profile.methods import profile_question
from dp_polars._profile.profile import occupied, on_simplex
from dp_polars._profile.release import SCHEMA, ProfileRun
from dp_polars.errors import DPWarning, InvalidParameterError

TYPES = {
    "number": pl.Int64,
    "amount": pl.Float64,
    "name": pl.String,
    "flag": pl.Boolean,
    "day": pl.Date,
    "moment": pl.Datetime("us"),
    "price": pl.Decimal(12, 2),
}
VALUES = {
    "number": [-(2**63), -7, 0, 1, 3, 10**6, 2**63 - 1, None],
    "amount": [-math.inf, -3.5, 0.0, -0.0, 1e-300, 2.0, 1e300, math.inf, math.nan, None],
    "name": ["a", "b", "", "c", None],
    "flag": [True, False, None],
    "day": [datetime.date(1, 1, 1), datetime.date(2013, 5, 5), datetime.date(2300, 1, 1), None],
    "moment": [datetime.datetime(1970, 1, 1), datetime.datetime(2013, 5, 5, 3), None],
    "price": [0, 5, -120, 99, None],
}
SCHEMA_OF_ROWS = {"user": pl.Int64, "key": pl.String, **TYPES}


def frame_of(rows):
    return pl.DataFrame(rows, schema=SCHEMA_OF_ROWS, orient="row")


def exact_of(frame, session, salt, monkeypatch, by="key", columns=tuple(TYPES)):
    """Return the plan of a profile and its exact counts, with a fixed salt."""
    asked = dp.private(frame, session)
    question = profile_question(asked._view({}), by, columns, ProfileOptions(epsilon=1))
    with monkeypatch.context() as patch:
        patch.setattr(engine.secrets, "randbits", lambda _: salt)
        run = ProfileRun(question.plan, question.rows, engine.PolarsEngine().aggregate)
        return question.plan, run.read()


def rows_of(draw, unit):
    number = draw(st.integers(0, 8))
    keys = st.sampled_from(["a", "b", "c", None])
    return [(unit, draw(keys), *(draw(st.sampled_from(values)) for values in VALUES.values())) for _ in range(number)]


@pytest.mark.slow
@settings(max_examples=15, derandomize=True, deadline=None)
@given(st.data())
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_no_part_moves_further_than_its_sensitivity(adjacency, data):
    """One unit is added, removed or replaced, even if every row is a unit."""
    draw = data.draw
    others = [row for unit in range(draw(st.integers(0, 4))) for row in rows_of(draw, unit)]
    old, new = rows_of(draw, 99), rows_of(draw, 99)
    unit = draw(st.sampled_from(["user", dp.ROW]))
    if unit is dp.ROW:
        old, new = old[:1], new[:1]
    pair = (others, [*others, *new]) if adjacency == "add_remove" else ([*others, *old], [*others, *new])
    salt = draw(st.integers(0, 2**62))
    session = dp.Session(epsilon=1.0, unit=unit, adjacency=adjacency)
    with pytest.MonkeyPatch.context() as patch:
        (plan, first), (_, second) = (exact_of(frame_of(rows), session, salt, patch) for rows in pair)
    assert len(first) == len(second) == len(plan.parts)
    for part, here, there in zip(plan.parts, first, second, strict=True):
        moved = np.abs(here - there)
        assert len(here) == len(there) == part.size
        assert moved.sum() <= part.sensitivity.l1, part.what
        assert (moved**2).sum() <= part.sensitivity.l2_squared, part.what
        assert moved.max() <= part.sensitivity.each, part.what


@pytest.mark.slow
@pytest.mark.parametrize(
    ("adjacency", "number", "histogram"), [("add_remove", (1, 1), (1, 1)), ("replace", (1, 1), (2, 2))]
)
def test_a_heavy_unit_changes_one_count_by_one(adjacency, number, histogram, monkeypatch):
    """A unit with 100,000 rows in 500 groups adds 1 to one bin of each part, and the sensitivity is not larger."""
    few = pl.DataFrame({"user": [1, 2], "key": ["a", "b"], "x": [1.0, None]})
    heavy = pl.DataFrame({"user": [3] * 100_000, "key": [f"k{i % 500}" for i in range(100_000)], "x": [9e9] * 100_000})
    session = dp.Session(epsilon=1.0, unit="user", adjacency=adjacency)
    plan, before = exact_of(few, session, 7, monkeypatch, columns=["x"])
    _, after = exact_of(pl.concat([few, heavy]), session, 7, monkeypatch, columns=["x"])
    assert {part.what for part in plan.parts} == {
        "units", "rows per unit", "groups per unit", "rows per unit and group", "values", "distinct values"
    }  # fmt: skip
    for part, here, there in zip(plan.parts, before, after, strict=True):
        assert sorted(there - here)[-1] == 1
        assert np.abs(there - here).sum() == 1
        expected = number if part.what in ("units", "distinct values") else histogram
        assert (part.sensitivity.l1, part.sensitivity.l2_squared) == expected


def test_exact_counts_are_what_they_say(monkeypatch):
    rows = [(1, "a", 5), (1, "a", 5), (1, "b", 5), (2, "a", None), (3, "c", -7), (4, "c", 0)]
    frame = pl.DataFrame(rows, schema={"user": pl.Int64, "key": pl.String, "x": pl.Int64}, orient="row").drop_nulls(
        "user"
    )
    plan, exact = exact_of(frame, dp.Session(epsilon=1.0, unit="user"), 3, monkeypatch, columns=["x"])
    found = {plan.subtitle(part): own for part, own in zip(plan.parts, exact, strict=True)}

    def named(what):
        part = next(one for one in plan.parts if plan.subtitle(one) == what)
        return {name: int(n) for name, n in zip(plan.labels(part), found[what], strict=True) if n}

    assert found["units"].tolist() == [4]
    assert named("rows per unit") == {"1": 3, "3": 1}
    assert named("groups per unit") == {"1": 3, "2": 1}
    assert sum(named("rows per unit and group").values()) == 4
    assert named("values of x") == {"missing": 1, "3 to 5": 1, "-10 to -5": 1, "0 to 0": 1}
    assert found["distinct values of x"].tolist() == [3]


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["user", dp.ROW])
def test_the_shape_of_a_profile_does_not_depend_on_the_data(unit):
    """An empty frame, one of nulls and an ordinary one give the same table except for the noisy counts."""
    frames = [
        frame_of([]),
        frame_of([(1, None, *[None] * len(TYPES))] * 5),
        frame_of([(i % 7, "a", *(values[i % len(values)] for values in VALUES.values())) for i in range(200)]),
    ]
    tables = []
    for frame in frames:
        session = dp.Session(epsilon=10.0, unit=unit)
        profile = dp.private(frame, session).profile("key", columns=list(TYPES), epsilon=1)
        assert profile.counts.schema == pl.Schema(SCHEMA)
        tables.append((profile.counts.drop("units"), profile.table.schema, profile.table.select("name", "type")))
        assert len(profile.bounds) == len(TYPES) - 1
        assert all(low < high for low, high in profile.bounds.values())
        assert str(profile)
        assert profile._repr_html_()
    for one in tables[1:]:
        assert one[0].equals(tables[0][0])
        assert one[1] == tables[0][1]
        assert one[2].equals(tables[0][2])


def heavy_shop(units=20_000):
    """Customers with heavy tails: 1 to about 300 orders in up to 4 shops, amounts from 1 to about 10,000."""
    generator = np.random.default_rng(5)
    orders = np.minimum(generator.pareto(1.2, units).astype(int) + 1, 300)
    user = np.repeat(np.arange(units), orders)
    amount = np.exp(generator.normal(3, 1.2, len(user)))
    shop = generator.integers(0, 4, len(user))
    return pl.DataFrame({"user": user, "shop": shop, "amount": amount, "gift": amount > 50}).with_columns(
        amount=pl.when(pl.col("amount") > 3).then("amount")
    )


def test_a_profile_of_a_shop_is_close_to_the_truth():
    """All tolerances are more than 8 standard deviations, so a false alarm has a probability below 1e-6."""
    shop = heavy_shop()
    session = dp.Session(epsilon=10.0, unit="user")
    profile = dp.private(shop, session).profile("shop", columns=["amount", "gift"], epsilon=5)
    per_unit = shop.group_by("user").agg(pl.len(), pl.col("shop").n_unique())
    assert profile.reliable
    assert abs(profile.units - 20_000) < 200
    assert profile.max_groups in (3, 4)
    cut = {one.name: one.cut for one in profile.caps}["max_groups"]
    assert abs(cut - (per_unit["shop"] > profile.max_groups).mean()) < 0.01
    per_group = shop.group_by("user", "shop").len()
    # A cap cuts 2 % of units, judged by one group of each, which a hash chooses: a standard deviation of 0.1 %.
    over = per_group.select("user", over=pl.col("len") > profile.max_rows_per_group)
    beyond = over.group_by("user").agg(pl.col("over").mean())["over"].mean()
    assert 0.003 < beyond < 0.03
    low, high = profile.bounds["amount"]
    truth = shop["amount"].drop_nulls()
    assert (truth < low).mean() < 0.04
    assert (truth > high).mean() < 0.04
    assert high <= 5 * truth.quantile(0.98)
    missing = dict(zip(profile.table["name"], profile.table["missing"], strict=True))
    assert abs(missing["amount"] - shop["amount"].is_null().mean()) < 0.03
    assert missing["gift"] < 0.02
    assert profile.bounds["gift"] == (0, 1)


def test_asking_again_is_free_and_other_questions_are_not():
    shop = heavy_shop(500)
    session = dp.Session(epsilon=1.0, unit="user")
    asked = dp.private(shop, session)
    first = asked.profile("shop", columns=["amount"])
    assert session.spent.share == pytest.approx(0.05)
    again = asked.profile("shop", columns=["amount"])
    assert session.spent.share == pytest.approx(0.05)
    assert again.counts.equals(first.counts)
    asked.profile("shop")
    assert session.spent.share == pytest.approx(0.1)
    assert asked.profile("shop", fresh=True).release.id == 3
    assert asked.preview.profile("shop").cost.epsilon == Fraction(1, 20)
    assert dp.private(shop.lazy(), session).profile("shop").units > 0


def test_a_profile_is_found_again_by_another_process(tmp_path):
    frame = pl.DataFrame({"user": range(50), "x": range(50)})
    ledger = str(tmp_path / "ledger.db")
    with dp.Session(epsilon=1.0, unit="user", ledger=ledger) as session:
        first = dp.private(frame, name="t", data_version="1").profile(columns=["x"])
    session.close()
    with dp.Session.from_ledger(ledger) as session:
        again = dp.private(frame, name="t", data_version="1").profile(columns=["x"])
        assert again.counts.equals(first.counts)
        assert len(session.releases) == 1
        assert dp.TableProfile(session.releases[0]).units == first.units
    session.close()


def test_what_a_profile_refuses():
    frame = dp.private(pl.DataFrame({"user": [1], "x": [1]}), dp.Session(epsilon=1.0, unit="user"))
    for words, said in [
        ({"columns": ["user"]}, "reads the unit column"),
        ({"columns": ["x", "x"]}, "two columns with the same name"),
        ({"columns": ["y"]}, "y"),
        ({"by": "user"}, "unit column"),
        ({"share": 2}, "share= is a fraction"),
        ({"epsilon": 1, "share": 1}, "in one way"),
        ({"max_groups": 1}, "no option max_groups"),
    ]:
        with pytest.raises(InvalidParameterError, match=said):
            frame.profile(**words)
    with pytest.raises(InvalidParameterError, match="takes the release of a profile"):
        dp.TableProfile(None)


# ---------------------------------------------------------------------- adopted suggestions


def adopted_shop(**words):
    session = dp.Session(epsilon=10.0, unit="user", **words)
    shop = heavy_shop(5_000)
    asked = dp.private(shop, session)
    profile = asked.profile("shop", columns=["amount"], epsilon=5)
    session.adopt(profile)
    return asked, profile, session


def texts(plan, name):
    return [text for own, text in plan.rows() if own == name]


def test_adopted_suggestions_are_defaults_and_explicit_arguments_win():
    asked, profile, _ = adopted_shop(max_rows_per_group=77)
    plan = asked.preview.sum("amount", "shop", keys=[0, 1, 2, 3, 4, 5], epsilon=1)
    low, high = profile.bounds["amount"]
    assert texts(plan, "groups per unit") == [f"{profile.max_groups} (max_groups from the profile)"]
    assert texts(plan, "rows per unit and group") == [
        f"{profile.max_rows_per_group} (max_rows_per_group from the profile)"
    ]
    assert texts(plan, "value bounds") == [f"{low:g} to {high:g}, each row, from the profile"]
    own = asked.preview.sum(
        "amount", "shop", bounds=(0, 7), max_groups=2, max_rows_per_group=3, keys=[0, 1, 2, 3, 4], epsilon=1
    )
    assert texts(own, "groups per unit") == ["2 (max_groups in the call)"]
    assert texts(own, "rows per unit and group") == ["3 (max_rows_per_group in the call)"]
    assert texts(own, "value bounds") == ["0 to 7, each row"]
    # A mean gets no smaller cap: it would weigh the rows of half of the units less, which no interval shows.
    mean = asked.preview.mean("amount", "shop", keys=[0, 1, 2, 3, 4], epsilon=1)
    assert profile.max_rows_for_ratios < profile.max_rows_per_group
    assert texts(mean, "rows per unit and group") == texts(plan, "rows per unit and group")


def test_adopted_suggestions_apply_to_the_same_source_and_keys_only():
    asked, profile, session = adopted_shop(max_rows_per_group=77)
    other = dp.private(heavy_shop(10), session)
    for question, same in [
        (asked.filter(pl.col("shop") > 0), True),
        (asked.with_columns(more=pl.col("amount") * 2), True),
        (asked.rename({"shop": "place", "amount": "money"}).rename({"place": "shop", "money": "amount"}), True),
        (asked.with_columns(shop=pl.col("shop") % 2), False),
        (other, False),
    ]:
        plan = question.preview.count("shop", keys=[0, 1, 2], epsilon=1)
        expected = f"{profile.max_rows_per_group} (max_rows_per_group from the profile)"
        assert texts(plan, "rows per unit and group") == [
            expected if same else "77 (max_rows_per_group of the session)"
        ]
    assert texts(asked.preview.count(epsilon=1), "rows per unit and group") == [
        "77 (max_rows_per_group of the session)"
    ]
    with pytest.raises(InvalidParameterError, match="needs bounds"):
        asked.with_columns(amount=pl.col("amount") * 2).preview.sum("amount", epsilon=1)
    with pytest.raises(InvalidParameterError, match="needs bounds"):
        asked.preview.sum("amount", per="unit", epsilon=1)
    with pytest.raises(InvalidParameterError, match="adopt takes a profile"):
        session.adopt(asked.preview.count(epsilon=1))


def test_a_profile_is_one_of_the_questions_that_a_session_is_planned_for():
    for words in ({}, {"delta": 1e-6}):
        session = dp.Session(epsilon=1.0, unit="user", queries=4, max_rows_per_group=1, **words)
        shop = heavy_shop(500)
        dp.private(shop, session).profile("shop")
        con = dp.connect(None, session).register("visits", shop)
        con.sql("SUMMARIZE visits", columns=["amount"])
        for threshold in (1, 2):
            dp.private(shop, session).filter(pl.col("shop") > threshold).count()
        assert session.spent.share == pytest.approx(1, abs=1e-6)
    one = dp.private(heavy_shop(10), dp.Session(epsilon=1.0, unit="user", queries=1))
    with pytest.raises(InvalidParameterError, match="planned for one query"):
        one.profile()
    assert one.preview.profile(share=0.05).cost.epsilon == Fraction(1, 20)


def test_choices_take_adopted_caps_and_bounds():
    """The rows of a unit are capped for each candidate of a group; those of `select_best` count for all candidates."""
    asked, profile, session = adopted_shop(max_rows_per_group=77, max_groups=66)
    rows = f"{profile.max_rows_per_group} (max_rows_per_group from the profile)"
    low, high = profile.bounds["amount"]
    shops = [0, 1, 2, 3, 4, 5]
    score = dp.sum("amount")
    for plan in (
        asked.preview.noisy_max("shop", shops, score=score, epsilon=1),
        asked.preview.noisy_min("shop", shops, score=score, epsilon=1),
        asked.preview.top_k("shop", 2, shops, score=score, epsilon=1),
    ):
        assert texts(plan, "rows per unit and candidate") == [rows]
        assert texts(plan, "value bounds") == [f"{low:g} to {high:g}, each row, from the profile"]
        assert profile.max_rows_per_group == plan.query.max_rows
    best = asked.preview.select_best([1, 2], lambda one: one, bounds=(0, 2), by="shop", keys=shops, epsilon=1)
    assert best.query.max_rows == profile.max_rows_per_group
    assert best.query.max_groups == profile.max_groups
    own = asked.preview.noisy_max("shop", shops, max_rows_per_group=3, epsilon=1)
    assert own.query.max_rows == 3
    # With other keys, the profile says nothing about the rows of a candidate, but all about the groups.
    other = asked.with_columns(small=pl.col("amount") < 5)
    plan = other.preview.noisy_max("small", by="shop", keys=shops, epsilon=1)
    assert (plan.query.max_groups, plan.query.max_rows) == (profile.max_groups, 77)
    session.adopt(other.profile(["shop", "small"], epsilon=2))
    plan = other.preview.noisy_max("small", by="shop", keys=shops, epsilon=1)
    assert plan.query.max_groups == profile.max_groups
    assert plan.query.max_rows_rule == "max_rows_per_group from the profile"
    con = dp.connect(None, session).register("visits", heavy_shop(5_000))
    con.sql("SUMMARIZE visits", by=["shop"], columns=["amount"], epsilon=1)
    session.adopt(dp.TableProfile(session.releases[-1]))
    plan = con.preview("SELECT dp_noisy_max(shop, amount, candidates := [0, 1, 2]) FROM visits", epsilon=0.1)
    assert plan.query.max_rows_rule == "max_rows_per_group from the profile"


def test_streams_online_queries_and_syntheses_take_adopted_caps():
    asked, _, session = adopted_shop(max_rows_per_group=77)
    assert asked.preview.sparse_vector(100, epsilon=1).max_rows == 77  # a profile of other keys
    whole = asked.profile(columns=["amount"], epsilon=2)
    session.adopt(whole)
    assert whole.max_rows_per_group not in (None, 77)
    plan = asked.preview.sparse_vector(100, epsilon=1)
    assert (plan.max_rows, plan.max_rows_rule) == (whole.max_rows_per_group, "max_rows_per_group from the profile")
    assert asked.preview.sparse_vector(100, max_rows_per_group=3, epsilon=1).max_rows == 3
    assert asked.preview.above_threshold(100, of="units", epsilon=1).max_rows == 77
    assert asked.preview.above_threshold(100, of="units", epsilon=1, max_rows_per_group=4).max_rows == 4
    domain = {"shop": [0, 1, 2, 3]}
    assert asked.preview.online_queries(domain, alpha=0.1, epsilon=1).max_rows == whole.max_rows_per_group
    assert asked.preview.synthesize(domain, epsilon=1).max_rows == whole.max_rows_per_group
    stream = asked.sparse_vector(10**9, epsilon=1)
    low, high = whole.bounds["amount"]
    asks = []
    stream._opened.ask = lambda queries: asks.extend(queries) or [False]
    stream.ask(dp.sum("amount"))
    stream.ask(dp.sum("amount", bounds=(low, high)))
    stream.ask(dp.sum("amount", bounds=(0, 1)))
    assert asks[0] == asks[1] != asks[2]
    with pytest.raises(InvalidParameterError, match="needs bounds"):
        stream.ask(dp.sum("shop"))


def test_an_unreliable_profile_says_so_and_warns_when_it_is_adopted():
    frame = pl.DataFrame({"user": range(20), "x": range(20)})
    session = dp.Session(epsilon=1.0, unit="user")
    profile = dp.private(frame, session).profile(columns=["x"])
    assert not profile.reliable
    assert "don't trust the suggestions" in str(profile)
    with pytest.warns(DPWarning, match="not reliable"):
        session.adopt(profile)
    plan = dp.private(frame, session).preview.count(epsilon=0.1)
    assert texts(plan, "rows per unit and group")[0].endswith("which is not reliable)")
    (release,) = session.releases
    ((name, why),) = release.notes
    assert name == "unreliable"
    assert why in str(release)
    assert f"Unreliable: {why}." in release.report().markdown
    assert "| suggested bounds of x | " in release.report().markdown  # not the bins
    con = dp.connect(None, session).register("numbers", frame)
    with pytest.warns(DPWarning, match="not reliable"):
        con.sql("SUMMARIZE numbers")
    assert [note for note in con.notes if note.startswith("unreliable: the noise of a count")] == con.notes
    assert dp.plot(profile).to_dict() == profile.plot().to_dict()


# ---------------------------------------------------------------------- SQL


def test_summarize_is_a_profile_and_its_suggestions_apply_in_sql():
    shop = heavy_shop(5_000)
    session = dp.Session(epsilon=10.0, unit="user")
    con = dp.connect(None, session).register("orders", shop)
    plan = con.preview("SUMMARIZE orders", by=["SHOP"], columns="amount", epsilon=5)
    assert isinstance(plan, dp.ProfilePlan)
    assert session.spent.share == 0
    table = con.sql("SUMMARIZE orders", by=["SHOP"], columns="amount", epsilon=5).pl()
    assert table["name"].to_list() == ["units", "rows per unit", "groups per unit", "rows per unit and group", "amount"]
    spent = session.spent
    assert con.sql("SUMMARIZE orders", by=["shop"], columns=["amount"], epsilon=5).pl().equals(table)
    assert session.spent == spent
    profile = dp.TableProfile(session.releases[-1])
    session.adopt(profile)
    query = "SELECT shop, dp_sum(amount) AS s FROM orders WHERE gift GROUP BY shop"
    plan = con.preview(query, epsilon=1, keys=[0, 1, 2, 3, 4, 5])
    assert texts(plan, "groups per unit") == [f"{profile.max_groups} (max_groups from the profile)"]
    assert texts(plan, "rows per unit and group")[0].endswith("from the profile)")
    assert texts(plan, "value bounds")[0].endswith("from the profile")
    own = con.preview(
        "SELECT shop, dp_sum(amount, 0, 9, max_rows_per_group := 2) AS s FROM orders GROUP BY shop",
        epsilon=1, keys=[0, 1, 2, 3, 4, 5],
    )  # fmt: skip
    assert texts(own, "value bounds") == ["0 to 9, each row"]
    assert texts(own, "rows per unit and group") == ["2 (max_rows_per_group in the call)"]


def test_summarize_looks_at_every_selected_column_but_the_unit():
    con = dp.connect(None, dp.Session(epsilon=1.0, unit="user")).register("orders", heavy_shop(50))
    whole = con.preview("SUMMARIZE orders")
    assert [column.name for column in whole.columns] == ["shop", "amount", "gift"]
    some = con.preview("SUMMARIZE SELECT amount * 2 AS twice, user FROM orders WHERE shop = 1", share=0.1)
    assert [column.name for column in some.columns] == ["twice"]
    assert con.execute("SUMMARIZE orders").pl()["name"].to_list()[2:] == ["shop", "amount", "gift"]
    with pytest.raises(InvalidParameterError, match="names y, which"):
        con.sql("SUMMARIZE orders", columns=["y"])
    with pytest.raises(dp.InvalidParameterError, match="takes the names of columns"):
        con.sql("SUMMARIZE orders", by=7)


# ---------------------------------------------------------------------- display and post-processing


def test_names_are_escaped_in_html_and_text():
    name = "<script>\x1b[2J"
    frame = pl.DataFrame({"user": range(3), name: [1, 2, 3]})
    profile = dp.private(frame, dp.Session(epsilon=1.0, unit="user")).profile(columns=[name])
    assert "<script>" not in profile._repr_html_()
    assert "\x1b" not in profile._repr_html_() + str(profile)
    chart = profile.plot().to_dict()
    assert "\x1b" not in str(chart)
    assert dp.plot(profile.release).to_dict()["title"] == chart["title"]


def test_counts_and_values_have_public_bins():
    labels = count_labels()
    assert len(labels) == len(COUNTS) + 1
    assert labels[:7] == ["1", "2", "3", "4", "5 to 6", "7 to 8", "9 to 12"]
    for dtype in (*TYPES.values(), pl.UInt8(), pl.Int32(), pl.Float32(), pl.Time(), pl.Duration("ms")):
        ladder = ladder_of(dtype() if isinstance(dtype, type) else dtype)
        if dtype == pl.String:
            assert ladder is None
            continue
        assert len(ladder.edges) == ladder.size + 1
        assert list(ladder.edges) == sorted(set(ladder.edges))
        for lows in (ladder.lows, ladder.highs):
            assert all(low <= high for low, high in itertools.pairwise(lows))


def test_the_counts_of_a_histogram_are_not_negative_and_add_up():
    noisy = np.array([-5.0, 3.0, 700.0, 20.0, 310.0, -2.0, 4.0, 90.0])
    found = on_simplex(noisy, 1000.0)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1000)
    assert occupied(noisy, sure=80, deviation=10).tolist() == [False, False, True, True, True, True, True, True]
    assert occupied(noisy, sure=500, deviation=30).tolist() == [False, False, True, True, True, False, False, False]


def test_units_that_are_spread_over_many_bins_are_found():
    """Half of the units are in one bin; the others are in twelve bins, none of which stands out from the noise."""
    noisy = np.zeros(80)
    noisy[20] = 2_000
    noisy[40:52] = 170
    found = occupied(noisy, sure=300, deviation=60)
    assert found[20:52].all()
    assert not found[:20].any()
    assert found[52:].sum() <= 4  # the last sum that stands out may contain a few empty bins
    assert occupied(np.where(noisy > 300, noisy, 0), sure=300, deviation=60).sum() == 1


def test_a_profile_that_misses_many_units_is_not_reliable(monkeypatch: pytest.MonkeyPatch):
    """If only the bin that stands out counted, half of the units would be missing, and the profile would say so."""
    frame = pl.DataFrame({"user": range(8_000), "x": [1] * 4_000 + [10 + i % 5_000 for i in range(4_000)]})
    profile = dp.private(frame, dp.Session(epsilon=10.0, unit="user")).profile(columns=["x"], epsilon=5.0)
    assert profile.reliable
    narrow = dp.TableProfile(profile.release)
    monkeypatch.setattr("dp_polars._profile.profile.occupied", lambda noisy, sure, deviation: noisy == noisy.max())
    assert not narrow.reliable
    assert "the noise hides where about" in str(narrow)


def test_missing_values_are_counted_if_every_row_is_a_unit():
    frame = pl.DataFrame({"x": [None] * 900 + [1] * 100})
    profile = dp.private(frame, dp.Session(epsilon=10.0, unit=dp.ROW)).profile(columns=["x"], epsilon=8.0)
    assert 0.8 < profile.table["missing"].to_list()[-1] < 1


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_durations_of_every_unit_have_a_profile(unit):
    frame = pl.DataFrame({"x": pl.Series([1, 2] * 500, dtype=pl.Int64).cast(pl.Duration(unit))})
    session = dp.Session(epsilon=10.0, unit=dp.ROW)
    dp.private(frame, session).profile(columns=["x"], epsilon=8.0)
    assert session.releases[-1].state == "committed"


@pytest.mark.slow
def test_noise_hardly_ever_makes_a_far_bin_look_occupied():
    """With the noise of all bins below `sure` in 99 % of histograms, this happened in one of a hundred."""
    plan = dp.private(ROWS_OF_ONE_GROUP, dp.Session(epsilon=1.0, delta=1e-6, unit="user")).preview.profile("key")
    part = plan.find("groups per unit")
    generator = np.random.default_rng(0)
    counts = np.zeros(part.size)
    counts[0] = 4_000
    far = 0
    for _ in range(4_000):
        noisy = counts + np.round(generator.normal(0, part.noise.deviation, part.size))
        far += bool(occupied(noisy, part.sure, part.noise.deviation)[12:].any())
    assert part.noise.mechanism == "gaussian"
    assert far <= 4  # about 0.4 are expected; it is the same in every run


ROWS_OF_ONE_GROUP = pl.DataFrame({"user": [1, 2], "key": ["a", "b"]})


def test_a_summary_that_is_not_reliable_warns():
    con = dp.connect(None, dp.Session(epsilon=1.0, unit="user")).register("t", ROWS_OF_ONE_GROUP)
    with pytest.warns(dp.DPWarning, match="The profile is not reliable: the noise of a count is more than"):
        con.sql("SUMMARIZE t", epsilon=0.5)
