"""Charts can be serialised, encode the right columns, and contain released values and nothing else."""

import datetime as dt
import importlib
import json

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._display.charts.privacy_loss import loss_of
from tests.display.views import HOSTILE, REGIONS, VISITS, a_session, busy_session

pytest.importorskip("altair", reason="charts need the extra `plot`")

DAYS = [dt.date(2026, 1, 1) + dt.timedelta(days=day) for day in range(4)]
DATED = VISITS.with_columns(day=pl.Series([DAYS[i % 4] for i in range(VISITS.height)]), vip=pl.col("user") % 2 == 0)
BOTH = pl.DataFrame({"day": DAYS}).join(pl.DataFrame({"region": REGIONS}), how="cross")


def rows_of(chart):
    """Return all data rows of a chart."""
    shown = chart.to_dict()
    json.dumps(shown, allow_nan=False)
    return [row for rows in shown["datasets"].values() for row in rows]


def marks(shown):
    """Return the mark types of a chart and of the charts in it."""
    several = [part for name in ("layer", "vconcat", "concat") for part in shown.get(name, [])]
    inner = [*several, *([shown["spec"]] if "spec" in shown else [])]
    own = [shown["mark"]["type"]] if "mark" in shown else []
    return own + [kind for one in inner for kind in marks(one)]


def asked(session, ask):
    with session:
        ask()
    return session.releases[-1]


def text_of(chart):
    shown = chart.to_dict()["title"]
    return " ".join(shown["text"]), " ".join(shown["subtitle"])


@pytest.mark.slow
def test_bars_for_names_with_the_interval_of_the_noise():
    release = asked(a_session(), lambda: VISITS.dp.count("region", keys=REGIONS, epsilon=0.2, confidence=0.9))
    chart = dp.plot(release)
    expected = [
        {"key": region, "value": count, "low": low, "high": high} for region, count, low, high in release.frame.rows()
    ]
    assert rows_of(chart) == expected
    shown = chart.to_dict()
    assert marks(shown) == ["bar", "rule"]
    bars, ends = (layer["encoding"] for layer in shown["layer"])
    assert (bars["y"]["field"], bars["y"]["type"], bars["y"]["title"]) == ("key", "nominal", "region")
    assert (bars["x"]["field"], bars["x"]["title"]) == ("value", "count")
    assert (ends["x"]["field"], ends["x2"]["field"]) == ("low", "high")
    assert [one["title"] for one in bars["tooltip"]] == ["region", "count", "low", "high"]
    below = (
        "Each user counts in at most 3 groups, with at most 5 rows in each. Dark lines: where the answer without noise "
        "lies, 90 % of the time. cut off: unknown for max_rows_per_group"
    )
    assert text_of(chart) == ("Count by region", below)
    # The frame alone says as much, except for the query.
    assert rows_of(dp.plot(release.frame)) == expected
    below = "Dark lines: where the answer without noise lies."
    assert text_of(dp.plot(release.frame)) == ("Count by region", below)


def test_bars_are_sorted_by_value_unless_keys_have_an_order():
    frame = pl.DataFrame({"region": ["east", "north", "south"], "count": [5, 9, None]})
    order = [bar["layer"][0]["encoding"]["y"]["sort"] for bar in [dp.plot(frame).to_dict()]]
    assert order == [["north", "east", "south"]]
    ordered = frame.with_columns(pl.col("region").cast(pl.Enum(["south", "east", "north"])))
    assert dp.plot(ordered).to_dict()["layer"][0]["encoding"]["y"]["sort"] is None
    several = pl.DataFrame({"region": ["a", "a", "b", "b"], "vip": ["x", "y"] * 2, "count": [1, 9, 6, 5]})
    assert dp.plot(several).to_dict()["layer"][0]["encoding"]["y"]["sort"] == ["b", "a"]  # 11 against 10


def test_counts_of_cut_units_have_a_colour_and_a_name_of_their_own():
    release = asked(a_session(), lambda: VISITS.dp.count("region", keys=REGIONS, epsilon=0.2, cut=True))
    answers, cut = dp.plot(release).to_dict()["concat"]
    assert answers["layer"][0]["mark"]["color"] != cut["layer"][0]["mark"]["color"]
    assert cut["layer"][0]["encoding"]["x"]["title"] == "units that the cap cuts"
    title, below = text_of(dp.plot(release))
    assert title == "Count by region"
    assert "Orange: noisy counts of the units that lose something to caps or bounds." in below


@pytest.mark.slow
def test_a_notebook_gets_data_and_a_picture_and_nothing_from_the_network():
    pytest.importorskip("vl_convert")
    alt = importlib.import_module("altair")
    chart = dp.plot(pl.DataFrame({"region": ["east", "north"], "count": [5, 9]}))
    data, picture = chart._repr_mimebundle_(None, None).items()
    assert data[0].startswith("application/vnd.vegalite.")
    assert data[1] == chart.to_dict()
    assert picture[0] == "image/svg+xml"
    assert picture[1].startswith("<svg")
    assert "north" in picture[1]
    assert "<script" not in picture[1]
    assert isinstance(chart, alt.LayerChart)
    assert isinstance(chart.properties(height=50), type(chart)), "a changed chart is portable, too"
    with alt.renderers.enable("html"):
        assert set(chart._repr_mimebundle_(None, None)) == {"text/html"}


def test_no_text_of_a_chart_ends_the_script_that_holds_it():
    """Altair writes the data of a chart into a page as they are, and anybody may have chosen a key or a label."""
    evil = "</Script><script>alert(1)<!--"
    people = pl.DataFrame({"user": range(9), evil: [evil] * 9})
    release = asked(a_session(), lambda: people.dp.count(evil, keys=[evil], epsilon=0.2, label=f"of {evil}"))
    page = dp.plot(release).to_html()
    assert page.count("alert(1)") >= 3  # the key, its name and the title
    assert "<script>alert" not in page
    assert "<!--" not in page
    assert page.lower().count("</script>") == dp.plot(VISITS.head(1).select(n="user")).to_html().count("</script>")


def test_without_an_interval_the_expected_error_is_drawn():
    release = asked(a_session(), lambda: VISITS.dp.count("region", keys=REGIONS, epsilon=0.2))
    assert [(row["value"] - row["low"], row["high"] - row["value"]) for row in rows_of(dp.plot(release))] == [
        (225.0, 225.0)
    ] * 3
    assert "low" not in rows_of(dp.plot(release.frame))[0]


def test_lines_for_dates_and_numbers():
    release = asked(a_session(), lambda: DATED.dp.count("day", keys=DAYS, epsilon=0.2))
    shown = dp.plot(release).to_dict()
    assert marks(shown) == ["area", "line"]
    assert shown["layer"][1]["encoding"]["x"]["type"] == "temporal"
    assert rows_of(dp.plot(release))[0]["key"] == "2026-01-01T00:00:00"
    ages = pl.DataFrame({"age": [30, 40, None], "count": [5, 6, 7], "count_low": [1, 2, 3], "count_high": [9, 10, 11]})
    shown = dp.plot(ages).to_dict()
    assert shown["layer"][1]["encoding"]["x"]["type"] == "quantitative"
    assert [row["key"] for row in rows_of(dp.plot(ages))] == [30, 40]


def test_a_second_key_is_the_colour():
    release = asked(a_session(), lambda: DATED.dp.count(["day", "region"], keys=BOTH, epsilon=0.2))
    shown = dp.plot(release).to_dict()
    assert shown["layer"][1]["encoding"]["color"]["title"] == "region"
    swapped = dp.plot(release, x="region").to_dict()
    assert marks(swapped) == ["bar", "rule"]
    assert swapped["layer"][0]["encoding"]["yOffset"]["field"] == "series"
    assert len(rows_of(dp.plot(release))) == 12


@pytest.mark.slow
def test_histograms():
    ask = {"edges": [0, 10, 20, 40], "epsilon": 0.2}
    release = asked(a_session(), lambda: VISITS.dp.histogram("value", **ask))
    shown = dp.plot(release).to_dict()
    assert marks(shown) == ["bar", "rule"]
    encoding = shown["layer"][0]["encoding"]
    assert (encoding["x"]["field"], encoding["x2"]["field"], encoding["y2"]) == ("bin_low", "bin_high", {"datum": 0})
    assert encoding["x"]["title"] == "value"
    assert [
        (row["bin_low"], row["bin_high"], row["count"]) for row in rows_of(dp.plot(release))
    ] == release.frame.rows()
    release = asked(a_session(), lambda: VISITS.dp.histogram("value", by="region", keys=REGIONS, **ask))
    shown = dp.plot(release).to_dict()
    assert shown["facet"]["row"]["field"] == "series"
    assert len(rows_of(dp.plot(release))) == 9


@pytest.mark.slow
def test_several_answers_beside_each_other_and_no_keys():
    both = {"n": dp.count(), "total": dp.sum("value", bounds=(0, 40))}
    release = asked(a_session(), lambda: VISITS.dp.group_by("region").agg(**both, keys=REGIONS, epsilon=0.2))
    shown = dp.plot(release).to_dict()
    encodings = [part["layer"][0]["encoding"] for part in shown["concat"]]
    assert [encoding["x"]["title"] for encoding in encodings] == ["n", "total"]
    assert [encoding["y"]["axis"]["labels"] for encoding in encodings] == [True, False]
    assert encodings[0]["y"]["sort"] == encodings[1]["y"]["sort"], "the bars of one key stand in one line"
    assert len(dp.plot(release, y="total").to_dict()["layer"]) == 2
    release = asked(a_session(), lambda: VISITS.dp.group_by().agg(**both, epsilon=0.2))
    assert marks(dp.plot(release).to_dict()) == ["text"]
    assert [row["name"] for row in rows_of(dp.plot(release))] == ["n", "total"]
    assert "\N{PLUS-MINUS SIGN}" in rows_of(dp.plot(release))[0]["text"]
    release = asked(a_session(), lambda: VISITS.dp.count(epsilon=0.2))
    (row,) = rows_of(dp.plot(release))
    assert row["value"] == release.frame.item()


def test_choices_and_responses():
    release = asked(a_session(), lambda: VISITS.dp.top_k("region", 2, REGIONS, epsilon=0.2))
    assert [(row["name"], row["text"]) for row in rows_of(dp.plot(release))] == [
        (str(rank), region) for rank, region in release.frame.rows()
    ]
    session = a_session(adjacency="replace")
    release = asked(session, lambda: VISITS.dp.randomized_response("region", categories=REGIONS, epsilon=0.5))
    assert {row["key"]: row["value"] for row in rows_of(dp.plot(release))} == dict(
        release.frame["region"].value_counts().rows()
    )


def test_odd_names_and_values_do_not_break_a_chart():
    frame = pl.DataFrame({HOSTILE: ["a.b", None, "[c]"], "x.y": [1.5, float("nan"), float("inf")]})
    assert rows_of(dp.plot(frame)) == [
        {"value": 1.5, "key": "a.b"}, {"value": None, "key": "null"}, {"value": None, "key": "[c]"}
    ]  # fmt: skip
    long = pl.DataFrame({"wait": [dt.timedelta(minutes=1)], "price": pl.Series(["1.25"]).str.to_decimal(scale=2)})
    assert rows_of(dp.plot(long.select("price"))) == [{"value": 1.25, "key": ""}]
    assert rows_of(dp.plot(long.select("wait"))) == [{"value": 60.0, "key": ""}]


def test_times_are_points_and_durations_are_seconds_without_an_interval():
    with a_session() as session:
        DATED.dp.min("day", by="region", keys=REGIONS, bounds=(DAYS[0], DAYS[-1]), epsilon=0.2)
        assert marks(dp.plot(session.releases[-1]).to_dict()) == ["point"]
        waits = DATED.with_columns(wait=pl.duration(seconds=pl.col("value")))
        ends = (dt.timedelta(0), dt.timedelta(seconds=40))
        waits.dp.sum("wait", by="region", keys=REGIONS, bounds=ends, epsilon=0.2)
    chart = dp.plot(session.releases[-1])
    assert chart.to_dict()["layer"][0]["encoding"]["x"]["title"] == "wait (seconds)"
    caps = "Each user counts in at most 3 groups, with at most 5 rows in each."
    assert text_of(chart)[1] == f"{caps} cut off: unknown for max_rows_per_group and bounds"
    assert "low" not in rows_of(chart)[0]


def test_totals_are_left_out():
    release = asked(a_session(), lambda: DATED.dp.count(["day", "region"], keys=BOTH, rollup=True, epsilon=0.2))
    assert release.frame.height == 17
    assert len(rows_of(dp.plot(release))) == 12
    assert text_of(dp.plot(release))[1] == (
        "Each user counts in at most 3 groups, with at most 5 rows in each. Without the totals. "
        "cut off: unknown for max_groups and max_rows_per_group"
    )


def notes_below(release):
    """Assert that the notes for readers of a release stand below its title, and return them."""
    shown = dp.plot(release).to_dict()["title"]["subtitle"]
    notes = [f"{name}: {text}" for name, text in release.plan.notes_for_readers()]
    assert [name for name, _ in release.plan.notes_for_readers()] == [
        name for name, _ in release.notes if name != "counted"
    ]
    assert notes
    assert " ".join(shown).endswith(" ".join(notes))
    assert all(len(line) <= 90 for line in shown)
    return notes


@pytest.mark.filterwarnings("ignore::dp_polars.DPWarning")
def test_unreliable_bounds_are_told_below_the_title():
    """300 units are always too few for this spend."""
    session = dp.Session(epsilon=1, delta=1e-6, unit="user", max_groups=1, max_rows_per_group=1)
    frame = pl.DataFrame({"user": range(300), "region": REGIONS * 100, "spent": [5.0] * 300})
    by_region = asked(session, lambda: frame.dp.mean("spent", by="region", keys=REGIONS, bounds="auto", epsilon=0.1))
    assert any(note.startswith("unreliable: bounds of spent") for note in notes_below(by_region))
    numbers = {"m": dp.mean("spent", bounds="auto"), "n": dp.count()}
    written = asked(session, lambda: frame.dp.group_by().agg(**numbers, epsilon=0.1))
    assert marks(dp.plot(written).to_dict()) == ["text"]
    assert any(note.startswith("unreliable: bounds of spent") for note in notes_below(written))


@pytest.mark.filterwarnings("ignore::dp_polars.DPWarning")
def test_groups_that_are_too_small_are_told_below_the_title():
    """Of 40 groups without a row, each is called too small in more than half of all cases (none in 1e-12)."""
    session = dp.Session(epsilon=1, unit="user", max_groups=1, max_rows_per_group=1)
    frame = pl.DataFrame({"user": [1], "shop": ["full"], "paid": [5.0]})
    keys = [f"empty {place}" for place in range(40)]
    release = asked(session, lambda: frame.dp.mean("paid", by="shop", keys=keys, bounds=(0, 100), epsilon=0.2))
    notes = notes_below(release)
    assert any(note.startswith("too small: the mean of paid tells next to nothing in ") for note in notes)
    assert any(note.startswith("cut off: unknown") for note in notes)


def test_notes_on_choices_and_histograms_are_told_below_the_title():
    chosen = asked(a_session(), lambda: VISITS.dp.noisy_max("region", candidates=REGIONS, epsilon=0.2))
    assert any(note.startswith("weights: ") for note in notes_below(chosen))
    bins = asked(a_session(), lambda: VISITS.dp.histogram("value", edges=[0, 10, 20, 40], epsilon=0.2))
    assert any(note.startswith("cut off: ") for note in notes_below(bins))


def test_what_cannot_be_drawn_says_what_to_do():
    frame = pl.DataFrame({"region": ["north"], "count": [3]})
    for wrong, said in (
        (frame.lazy(), "collect"),
        ("count", "session.releases"),
        (frame.clear(), "no rows"),
        (pl.DataFrame({"q": [[1, 2]]}), "explode"),
        (pl.DataFrame({"region": ["north"], "q": [[1, 2]]}), "explode"),
    ):
        with pytest.raises(dp.InvalidParameterError, match=said):
            dp.plot(wrong)
    with pytest.raises(dp.InvalidParameterError, match="no column z"):
        dp.plot(frame, y="z")
    release = asked(a_session(), lambda: VISITS.dp.sparse_vector(700, hits=1, of="units", epsilon=0.1))
    with pytest.raises(dp.InvalidParameterError, match="stream"):
        dp.plot(release)
    release = asked(a_session(), lambda: VISITS.dp.synthesize({"region": REGIONS}, epsilon=0.1))
    with pytest.raises(dp.InvalidParameterError, match="synthetic rows"):
        dp.plot(release)


def test_charts_of_a_release_hold_nothing_but_the_release():
    """Every number and name in the data of a chart is in the released frame, or is computed from it and the plan."""
    secret = VISITS.with_columns(
        secret=pl.lit("SECRET"), region=pl.when(user=7).then(pl.lit("ODD")).otherwise("region")
    )
    with a_session() as session:
        secret.dp.count("region", keys=REGIONS, epsilon=0.2, confidence=0.95)
        release = session.releases[-1]
    allowed = {value for row in release.frame.rows() for value in row}
    assert {value for row in rows_of(dp.plot(release)) for value in row.values()} == allowed
    assert "ODD" not in json.dumps(session.plot().to_dict())


# ---------------------------------------------------------------------- the budget


@pytest.mark.slow
def test_the_budget_steps_up_release_by_release():
    session = busy_session()
    chart = session.plot()
    *steps, limit = rows_of(chart)
    assert [row["release"] for row in steps] == [1, 2, 3, 4, 5, 6]
    assert [row["after"] for row in steps] == pytest.approx([0.2, 0.3, 0.35, 0.4, 0.41, 0.42])
    assert [row["before"] for row in steps[1:]] == [row["after"] for row in steps[:-1]]
    assert steps[-1]["after"] == session.spent.share
    assert steps[-1]["state"] == "failed"
    assert limit == {"limit": 1.0}
    shown = chart.to_dict()
    assert marks(shown) == ["bar", "rule"]
    assert (shown["layer"][0]["encoding"]["y"]["field"], shown["layer"][0]["encoding"]["y2"]["field"]) == (
        "before", "after",
    )  # fmt: skip
    assert text_of(chart)[0] == "Budget: 42 % used"
    assert text_of(a_session().plot())[0] == "Budget: 0 % used"


def test_a_release_without_an_epsilon_steps_up_in_rho():
    session = a_session()
    with session.reserve(dp.gaussian_cost(session, rho=session.terms.rho_allowed), label="all") as reservation:
        reservation.commit(pl.DataFrame({"n": [1]}))
    assert rows_of(session.plot())[0]["after"] == 1


# ---------------------------------------------------------------------- error against epsilon


def test_the_tradeoff_spends_nothing_and_takes_both_forms():
    with a_session() as session:
        preview = VISITS.dp.preview
        chart = dp.plot.tradeoff(preview.count, "region", keys=REGIONS, epsilons=[0.1, 0.2, 2])
        other = dp.plot.tradeoff(
            lambda epsilon: preview.count("region", keys=REGIONS, epsilon=epsilon), epsilons=[0.1, 0.2, 2]
        )
        assert session.releases == ()
    assert [(row["epsilon"], row["error"]) for row in rows_of(chart)] == [(0.1, 449.0), (0.2, 225.0), (2.0, 22.0)]
    assert rows_of(other) == rows_of(chart)
    shown = chart.to_dict()["encoding"]
    assert (shown["x"]["field"], shown["y"]["field"], shown["y"]["title"]) == ("epsilon", "error", "expected error")


@pytest.mark.slow
def test_the_tradeoff_of_choices_streams_responses_and_several_answers():
    with a_session():
        preview = VISITS.dp.preview
        both = {"n": dp.count(), "total": dp.sum("value", bounds=(0, 40)), "keys": REGIONS}
        for chart, what in (
            (dp.plot.tradeoff(preview.noisy_max, "region", REGIONS), "expected regret"),
            (dp.plot.tradeoff(preview.sparse_vector, 700, of="units", hits=2), "margin of 100 questions"),
            (
                dp.plot.tradeoff(preview.online_queries, {"region": REGIONS}, alpha=0.1, max_updates=5),
                "margin of 100 questions, in rows beyond alpha * n",
            ),
            (dp.plot.tradeoff(preview.group_by("region").agg, **both), "expected error"),
        ):
            rows = rows_of(chart)
            assert chart.to_dict()["encoding"]["y"]["title"] == what
            assert rows[0]["epsilon"] == 0.05
            assert rows[-1]["epsilon"] == 5
            assert rows[-1]["error"] < rows[0]["error"]
        with pytest.raises(dp.InvalidParameterError, match="depends on the data"):
            dp.plot.tradeoff(preview.mean, "value", bounds=(0, 40))
        with pytest.raises(dp.InvalidParameterError, match="depends on the data"):
            dp.plot.tradeoff(preview.synthesize, {"region": REGIONS})
    with a_session(adjacency="replace"):
        chart = dp.plot.tradeoff(VISITS.dp.preview.randomized_response, "region", categories=REGIONS)
        assert "standard error" in chart.to_dict()["encoding"]["y"]["title"]


def test_the_tradeoff_refuses_what_would_spend():
    with a_session() as session:
        for question in (VISITS.dp.count, VISITS.dp.group_by("region").agg, VISITS.lazy().dp.count):
            with pytest.raises(dp.InvalidParameterError, match="preview"):
                dp.plot.tradeoff(question, epsilons=[0.1, 0.2])
        assert session.releases == ()
        with pytest.raises(dp.InvalidParameterError, match="must not spend anything"):
            dp.plot.tradeoff(lambda epsilon: VISITS.dp.count(epsilon=epsilon), epsilons=[0.1, 0.2])
        assert session.releases == ()
        with pytest.raises(dp.InvalidParameterError, match="tradeoff needs"):
            dp.plot.tradeoff(VISITS.dp.preview.count(epsilon=0.1))
        with pytest.raises(dp.InvalidParameterError, match="empty"):
            dp.plot.tradeoff(VISITS.dp.preview.count, epsilons=[])


# ---------------------------------------------------------------------- the privacy loss


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("group_size", [1, 2])
def test_the_loss_of_a_plan_is_what_it_is_charged_for(adjacency, group_size):
    with a_session(adjacency=adjacency, group_size=group_size):
        preview = VISITS.dp.preview
        plans = [
            preview.count("region", keys=REGIONS, epsilon=0.3),
            preview.sum("value", by="region", bounds=(-3, 1000.5), keys=REGIONS, epsilon=0.3),
            preview.noisy_max("region", REGIONS, epsilon=0.3),
            preview.group_by("region").agg(n=dp.count(), m=dp.mean("value", bounds=(0, 40)), keys=REGIONS, epsilon=0.3),
            preview.corr("user", "value", bounds=((0, 900), (0, 40)), epsilon=0.3),
            preview.sparse_vector(700, hits=2, of="units", epsilon=0.3),
            preview.online_queries({"region": REGIONS}, alpha=0.1, max_updates=5, epsilon=0.3),
        ]
        if adjacency == "replace":
            plans.append(preview.randomized_response("region", categories=REGIONS, epsilon=0.3))
    for plan in plans:
        loss = loss_of(plan).loss
        assert loss.mu == 0
        assert loss.losses[-1] == pytest.approx(float(plan.cost.epsilon), rel=1e-6)
        assert loss.tail(float(plan.cost.epsilon) * (1 + 1e-6)) == 0


def test_the_loss_of_a_gaussian_is_that_of_its_rho():
    with a_session():
        plan = VISITS.dp.preview.count("region", keys=REGIONS, rho=0.002)
    loss = loss_of(plan).loss
    assert loss.mu**2 / 2 == pytest.approx(float(plan.cost.rho), rel=1e-3)
    assert loss.delta(float(plan.cost.epsilon)) <= float(plan.cost.gaussian_delta)
    rows = rows_of(dp.plot.privacy_loss(plan))
    step = rows[1]["loss"] - rows[0]["loss"]
    assert sum(row["density"] for row in rows if "density" in row) * step == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
def test_the_chart_of_a_loss_marks_epsilon():
    release = asked(a_session(), lambda: VISITS.dp.count("region", keys=REGIONS, epsilon=0.3))
    chart = dp.plot.privacy_loss(release)
    shown = chart.to_dict()
    assert marks(shown) == ["bar", "rule", "text"]
    rows = rows_of(chart)
    assert sum(row["probability"] for row in rows if "probability" in row) == pytest.approx(1)
    assert [row for row in rows if "epsilon" in row] == [{"epsilon": 0.3, "text": "epsilon 0.3"}]
    assert "beyond epsilon with probability 0" in text_of(chart)[1]
    many = asked(a_session(), lambda: VISITS.dp.sum("value", bounds=(0, 40), epsilon=0.3))
    assert len(rows_of(dp.plot.privacy_loss(many))) == 61
    coin = dp.theory.PrivacyLoss.randomized_response(0.5)
    assert marks(dp.plot.privacy_loss(coin, epsilon=0.5).to_dict()) == ["bar", "rule", "text"]


def test_a_loss_that_is_not_known_says_so():
    with a_session() as session:
        plan = VISITS.dp.preview.count("region", keys=REGIONS, max_rows_per_group="auto", epsilon=0.3)
        with pytest.raises(dp.InvalidParameterError, match="auto"):
            dp.plot.privacy_loss(plan)
        with session.reserve(dp.pure_cost(0.1), label="own") as reservation:
            release = reservation.commit(pl.DataFrame({"n": [1]}))
        with pytest.raises(dp.InvalidParameterError, match="plan of this release is not known"):
            dp.plot.privacy_loss(release)
        with pytest.raises(dp.InvalidParameterError, match="got int"):
            dp.plot.privacy_loss(3)


def test_without_altair_the_extra_is_named(monkeypatch):
    def missing(name, *rest):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    session = a_session()
    for draw in (lambda: dp.plot(pl.DataFrame({"n": [1]})), session.plot, lambda: dp.plot.privacy_loss(1)):
        with pytest.raises(dp.DPError, match=r"dp-polars\[plot\]"):
            draw()


def test_a_tradeoff_can_not_spend_whatever_it_calls():
    session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    private = dp.private(pl.DataFrame({"user": [1, 2]}), session)

    def asks(epsilon):
        private.count(epsilon=epsilon)
        return private.preview.count(epsilon=epsilon)

    for question in (asks, lambda epsilon: private.sum("user", bounds=(0, 1), epsilon=epsilon)):
        with pytest.raises(dp.InvalidParameterError, match="preview"):
            dp.plot.tradeoff(question)
    assert not session.releases
    private.count(epsilon=0.5)
    assert len(session.releases) == 1
