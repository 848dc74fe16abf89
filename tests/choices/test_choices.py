"""Choices as users ask for them: with almost no noise they agree with Polars, and bad arguments cost nothing.

At an epsilon of HUGE, the second best candidate of these rows weighs at most exp(-20) (2e-9) of the best, and mostly
far less. A discovered candidate needs a score that one unit alone can't reach.
"""

import datetime as dt
import warnings

import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from tests.aggregates.doors import HUGE, session

REGIONS = ["north", "south", "east"]
KINDS = [-2, -1, 0, 1, 2]
DAYS = [dt.date(2024, 1, day) for day in range(1, 6)]
SPEND = {"epsilon": HUGE}
SIZE = 4000
_GENERATOR = np.random.default_rng(5)
ROWS = pl.DataFrame(
    {
        "who": pl.Series([*range(400), None]).gather(_GENERATOR.integers(0, 401, SIZE)),
        "region": pl.Series([*REGIONS, None]).gather(_GENERATOR.choice(4, SIZE, p=[0.31, 0.27, 0.23, 0.19])),
        "kind": _GENERATOR.choice(KINDS, SIZE, p=[0.1, 0.15, 0.2, 0.25, 0.3]),
        "x": _GENERATOR.normal(10, 8, SIZE),
        "n": _GENERATOR.integers(-9, 30, SIZE),
    }
).with_columns(
    place=pl.col("region").cast(pl.Enum(REGIONS)),
    many=pl.col("n") > 9,
    day=pl.date(2024, 1, pl.col("kind") + 3),
    # 200 texts with more and more rows, so that the most frequent ones stand out.
    text=pl.format("text {}", ((pl.int_range(SIZE) % 200).cast(pl.Float64) ** 2 / 200).cast(pl.Int64)),
    x=pl.when(pl.int_range(SIZE) % 13 == 0)
    .then(None)
    .when(pl.int_range(SIZE) % 17 == 0)
    .then(float("nan"))
    .otherwise("x"),
    n=pl.when(pl.int_range(SIZE) % 11 == 0).then(None).otherwise("n"),
)
OWNED = ROWS.drop_nulls("who")
N, X = pl.col("n"), pl.col("x").fill_nan(None)


@pytest.fixture
def paying():
    with session() as current:
        yield current


def ranked(rows, column, score, by=(), k=1, least=False):
    """Return {group: its k best candidates} by plain Polars. There are no ties, which would make a test a guess."""
    column = pl.col(column) if isinstance(column, str) else column
    scored = rows.group_by(*by, column.alias("c")).agg(score.alias("score")).drop_nulls("c")
    found = {}
    for *group, value, own in scored.sort("score", descending=not least).iter_rows():
        found.setdefault(tuple(group), []).append((own, value))
    for values in found.values():
        first = [own for own, _ in values[: k + 1]]
        assert len(set(first)) == len(first)
    return {group: [value for _, value in values[:k]] for group, values in found.items()}


def shown(frame, column):
    """Return {group: the chosen candidates, in the order of their ranks} from a released frame."""
    found = {}
    for row in frame.iter_rows(named=True):
        group = tuple(value for name, value in row.items() if name not in (column, "rank"))
        assert row.get("rank", 1) == len(found.setdefault(group, [])) + 1
        found[group].append(row[column])
    return found


# ---------------------------------------------------------------------- what is chosen


@pytest.mark.slow
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    ("column", "candidates"), [("region", REGIONS), ("place", None), ("many", None), ("kind", KINDS), ("day", DAYS)]
)
def test_the_best_and_the_worst_are_those_of_the_plain_query(paying, column, candidates, lazy):
    """Texts, integers and dates with listed candidates; Enum and Boolean columns know theirs."""
    frame = ROWS.lazy() if lazy else ROWS
    most = frame.dp.noisy_max(column, candidates, **SPEND).lazy().collect()
    assert most.schema == ROWS.select(column).schema
    assert shown(most, column) == ranked(OWNED, column, pl.len())
    least = frame.dp.noisy_min(column, candidates, **SPEND).lazy().collect()
    assert shown(least, column) == ranked(OWNED, column, pl.len(), least=True)
    both = frame.dp.top_k(column, 2, candidates, **SPEND).lazy().collect()
    assert both.schema == {"rank": pl.Int64, column: ROWS.schema[column]}
    assert shown(both, column) == ranked(OWNED, column, pl.len(), k=2)


SCORES = [
    ("rows", pl.len()),
    ("units", pl.col("who").n_unique()),
    (dp.count(), pl.len()),
    (dp.count_units(), pl.col("who").n_unique()),
    (dp.count("x"), X.count()),
    (dp.sum("x", bounds=(0, 40)), X.clip(0, 40).sum()),
    (dp.sum("n", bounds=(-9, 30)), N.sum()),
    (dp.sum(pl.col("n") * 2 - 3, bounds=(-10, 20)), (N * 2 - 3).clip(-10, 20).sum()),
]


@pytest.mark.slow
@pytest.mark.parametrize(("score", "plain"), SCORES, ids=lambda one: str(one)[:40])
def test_scores(paying, score, plain):
    words = {**SPEND, "score": score, "max_groups": 3}
    for least, ask in ((False, ROWS.dp.noisy_max), (True, ROWS.dp.noisy_min)):
        expected = ranked(OWNED, "kind", plain, least=least)
        assert shown(ask("kind", KINDS, **words), "kind") == expected
        by = ranked(OWNED.drop_nulls("region"), "kind", plain, by=["region"], least=least)
        assert shown(ask("kind", KINDS, "region", keys=REGIONS, **words), "kind") == by


def test_a_units_own_total_is_what_is_clipped(paying):
    totals = OWNED.group_by("who", "kind").agg(N.sum().clip(-20, 60))
    score = dp.sum("n", bounds=(-20, 60), per="unit")
    found = ROWS.dp.noisy_max("kind", KINDS, score=score, max_rows_per_group=None, **SPEND)
    assert shown(found, "kind") == ranked(totals, "kind", N.sum())
    plan = ROWS.dp.preview.noisy_max("kind", KINDS, score=score, **SPEND)
    assert plan.moves == 60  # up or down, whatever values a unit has


def test_a_column_may_be_an_expression(paying):
    upper = pl.col("region").str.to_uppercase()
    found = ROWS.dp.top_k(upper, 3, ["NORTH", "SOUTH", "EAST"], **SPEND)
    assert shown(found, "region") == ranked(OWNED, upper, pl.len(), k=3)
    named = ROWS.dp.noisy_max(upper.alias("loud"), ["NORTH", "SOUTH"], by="region", keys=REGIONS, **SPEND)
    # In the east nobody has either, so any candidate is right there.
    assert named.rows()[1:] == [("north", "NORTH"), ("south", "SOUTH")]


def test_null_is_a_candidate_only_if_it_is_listed(paying):
    nulls = pl.DataFrame({"who": range(500), "v": [None] * 300 + ["a"] * 150 + ["b"] * 50})
    assert nulls.dp.noisy_max("v", ["a", "b"], **SPEND)["v"].to_list() == ["a"]
    assert nulls.dp.noisy_max("v", **SPEND)["v"].to_list() == ["a"]
    assert nulls.dp.noisy_max("v", [None, "a", "b"], **SPEND)["v"].to_list() == [None]
    assert nulls.dp.top_k("v", 3, ["b", None, "a"], **SPEND)["v"].to_list() == [None, "a", "b"]
    flags = nulls.select("who", v=pl.col("v") == "a")
    assert flags.dp.noisy_max("v", **SPEND)["v"].to_list() == [True]
    assert flags.dp.noisy_max("v", pl.Series([None, True, False]), **SPEND)["v"].to_list() == [None]


@pytest.mark.slow
@pytest.mark.parametrize("made", [tuple, set, pl.Series, np.array, lambda one: pl.DataFrame({"kind": one}), iter])
def test_candidates_come_in_any_list(paying, made):
    found = ROWS.dp.noisy_max("kind", made([0, 1]), **SPEND)
    assert found["kind"].to_list() == [1]
    if not isinstance(made([0]), pl.DataFrame):
        assert ROWS.dp.select_best(made([0, 1]), lambda c: pl.col("kind") == c, (0, 1), **SPEND).item() == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pl.String, pl.Binary, pl.Categorical, pl.Enum(REGIONS)], ids=str)
def test_texts_of_every_type_are_candidates_in_a_series_or_a_list(paying, kind):
    rows = ROWS.with_columns(pl.col("region").cast(kind))
    expected = ranked(OWNED, "region", pl.len())[()]
    listed = pl.Series(REGIONS, dtype=pl.String).cast(kind)
    for candidates in (listed, listed.to_list()):
        found = rows.dp.noisy_max("region", candidates, fresh=True, share=0.1)
        assert found["region"].cast(pl.String).to_list() == expected


def test_only_candidates_are_chosen(paying):
    """Values that are not listed are left out, and candidates without rows compete with a score of 0."""
    assert ROWS.dp.noisy_max("kind", [7, 9], **SPEND)["kind"].item() in (7, 9)
    assert ROWS.dp.noisy_min("kind", [*KINDS, 7], **SPEND)["kind"].item() == 7
    assert ROWS.dp.top_k("kind", 2, [7, 1], **SPEND)["kind"].to_list() == [1, 7]


# ---------------------------------------------------------------------- groups


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 3])
def test_groups_with_public_keys_those_of_a_type_and_discovered_ones(paying, k):
    for by, words, rows in (
        ("region", {"keys": REGIONS}, OWNED.drop_nulls("region")),
        ("place", {}, OWNED),
        ("region", {}, OWNED),
        (["region", "many"], {"max_groups": 12}, OWNED),
    ):
        names = [by] if isinstance(by, str) else by
        expected = ranked(rows, "kind", pl.len(), by=names, k=k)
        found = ROWS.dp.top_k("kind", k, KINDS, by, **words, **SPEND)
        assert found.columns == [*names, "rank", "kind"]
        assert shown(found, "kind") == expected
        assert found.sort(names, maintain_order=True).equals(found)
    assert ROWS.dp.noisy_max("kind", KINDS, "place", **SPEND)["place"].to_list() == [None, *REGIONS]


def test_public_groups_that_nobody_is_in_have_a_choice_too(paying):
    found = ROWS.dp.noisy_max("kind", KINDS, "region", keys=["north", "nowhere"], **SPEND)
    assert found["region"].to_list() == ["north", "nowhere"]
    assert found["kind"].null_count() == 0


def test_a_key_may_be_an_expression_and_named_like_its_column(paying):
    found = ROWS.dp.noisy_max("kind", KINDS, pl.col("region").str.slice(0, 1).alias("letter"), **SPEND)
    expected = ranked(OWNED.with_columns(letter=pl.col("region").str.slice(0, 1)), "kind", pl.len(), by=["letter"])
    assert shown(found, "kind") == expected


# ---------------------------------------------------------------------- discovered candidates


def test_discovered_candidates_are_those_that_stand_out(paying):
    order = ranked(OWNED, "text", pl.len(), k=3)[()]
    assert ROWS.dp.noisy_max("text", **SPEND)["text"].to_list() == order[:1]
    wanted = ROWS.dp.top_k("text", 100, **SPEND)["text"].to_list()
    assert wanted[:3] == order
    assert len(wanted) < 30  # out of more than a hundred
    by = ROWS.dp.noisy_max("kind", by="region", **SPEND)
    assert shown(by, "kind") == ranked(OWNED, "kind", pl.len(), by=["region"])
    listed = ROWS.dp.noisy_max("kind", by="region", keys=["north", "nowhere"], **SPEND)
    assert listed["region"].to_list() == ["north"]  # nobody won elsewhere


@pytest.mark.slow
def test_what_only_one_unit_has_is_never_chosen(paying):
    """One unit's 40 rows are by far the most. Nobody weighs at least exp(1000) times as much as its candidate."""
    rare = pl.DataFrame({"who": [0] * 40 + list(range(1, 31)), "v": ["rare"] * 40 + ["common", "other"] * 15})
    alone = rare.with_columns(group=pl.when(pl.col("v") == "rare").then(pl.lit("a")).otherwise(pl.lit("b")))
    assert rare.dp.noisy_max("v", **SPEND).height == 0
    assert rare.dp.top_k("v", 3, **SPEND).height == 0
    assert alone.dp.noisy_max("v", by="group", **SPEND).height == 0
    assert alone.dp.noisy_max("v", ["rare", "common"], by="group", **SPEND).height == 0
    assert rare.dp.noisy_max("v", ["rare", "common"], **SPEND)["v"].to_list() == ["rare"]
    # With one row for each unit, the other candidates stand out and the lone one doesn't.
    few = {"max_rows_per_group": 1, **SPEND}
    assert set(rare.dp.top_k("v", 3, **few)["v"]) == {"common", "other"}
    assert alone.dp.noisy_max("v", by="group", **few)["group"].to_list() == ["b"]


def test_at_a_usual_epsilon_a_clear_winner_is_found_and_close_ones_are_not_guessed():
    """5,000 against 0: the gap is at most 40, so the probability that nobody wins is below exp(-4000)."""
    votes = pl.DataFrame({"who": range(5200), "v": ["a"] * 5000 + [f"lone {i}" for i in range(200)]})
    with dp.Session(epsilon=1, delta=1e-6, unit="who"):
        found = votes.dp.top_k("v", 3, score="units", epsilon=0.9)
    assert found["v"].to_list() == ["a"]


def test_an_empty_choice_says_why_and_that_it_was_charged():
    """Three rows of each of three units don't stand out: each weighs less than exp(-54) of nobody."""
    votes = pl.DataFrame({"who": [0, 1, 2] * 3, "v": ["a", "a", "b"] * 3})
    with dp.Session(epsilon=9, delta=1e-20, unit="who", max_rows_per_group=3) as session:
        with pytest.warns(dp.DPWarning, match="Nothing is chosen: top_k.* above about"):
            assert votes.dp.top_k("v", 2, epsilon=1).height == 0
        con = dp.connect(None, session).register("votes", votes)
        with pytest.warns(dp.DPWarning, match="Nothing is chosen: top_k.* above about"):
            assert con.sql("SELECT dp_top_k(v, 2) AS best FROM votes", epsilon=1).fetchall() == [([],)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert votes.dp.top_k("v", 1, ["a", "b"], epsilon=1).height == 1


# ---------------------------------------------------------------------- units, rows, no rows


def test_several_unit_columns_and_rows_as_units():
    for unit, words in ((["who", "day"], {}), (dp.ROW, {"max_groups": None, "max_rows_per_group": None})):
        with session(unit=unit, **words):
            rows = OWNED if unit != dp.ROW else ROWS
            found = ROWS.dp.top_k("kind", 3, KINDS, "place", **SPEND)
            assert shown(found, "kind") == ranked(rows, "kind", pl.len(), by=["place"], k=3)
            score = dp.sum("x", bounds=(0, 40))
            best = ROWS.dp.noisy_max("kind", KINDS, score=score, **SPEND)
            assert shown(best, "kind") == ranked(rows, "kind", X.clip(0, 40).sum())
            assert ROWS.dp.noisy_max("text", **SPEND)["text"].to_list() == ranked(rows, "text", pl.len())[()]


def test_rows_without_a_unit_do_not_count(paying):
    rows = pl.DataFrame({"who": [*range(100), *[None] * 900], "v": ["a"] * 100 + ["b"] * 900})
    assert rows.dp.noisy_max("v", ["a", "b"], **SPEND)["v"].item() == "a"
    assert rows.dp.noisy_max("v", **SPEND)["v"].item() == "a"
    assert rows.dp.select_best(["a", "b"], lambda c: pl.col("v") == c, bounds=(0, 1), **SPEND).item() == "a"
    pairs = rows.with_columns(day=1)
    with session(unit=["who", "day"]):
        assert pairs.dp.noisy_max("v", ["a", "b"], **SPEND)["v"].item() == "a"
        assert pairs.dp.select_best(["a", "b"], lambda c: pl.col("v") == c, bounds=(0, 1), **SPEND).item() == "a"


def test_one_unit_with_many_rows_counts_with_as_many_as_the_cap_says(paying):
    rows = pl.DataFrame({"who": [0] * 900 + list(range(1, 101)), "v": ["a"] * 900 + ["b"] * 100})
    assert rows.dp.noisy_max("v", ["a", "b"], **SPEND)["v"].item() == "b"
    assert rows.dp.noisy_max("v", ["a", "b"], score="units", **SPEND)["v"].item() == "b"
    assert rows.dp.select_best(["a", "b"], lambda c: pl.col("v") == c, bounds=(0, 1), **SPEND).item() == "b"


def test_the_test_of_caps_can_fail(paying, monkeypatch):
    """If all rows of a unit counted, the unit with many rows would decide."""
    from dp_polars._choices import release as scoring

    monkeypatch.setattr(scoring, "kept_rows", lambda frame, *_, **__: pl.repeat(True, frame.height, eager=True))
    rows = pl.DataFrame({"who": [0] * 900 + list(range(1, 101)), "v": ["a"] * 900 + ["b"] * 100})
    assert rows.dp.select_best(["a", "b"], lambda c: pl.col("v") == c, bounds=(0, 1), **SPEND).item() == "a"


@pytest.mark.slow
@pytest.mark.parametrize("rows", [ROWS.clear(), ROWS.filter(pl.col("who").is_null())], ids=["empty", "no units"])
def test_an_empty_frame_answers_every_question_with_the_same_schema(paying, rows):
    spend = {"share": 0.01}
    public = [
        lambda f: f.dp.noisy_max("region", REGIONS, **spend),
        lambda f: f.dp.noisy_min("kind", KINDS, **spend),
        lambda f: f.dp.top_k("place", 2, **spend),
        lambda f: f.dp.top_k("kind", 2, KINDS, "place", **spend),
        lambda f: f.dp.noisy_max("kind", KINDS, "place", score=dp.sum("x", bounds=(0, 1)), **spend),
        lambda f: f.dp.select_best([1, 2], lambda c: N * c, bounds=(0, 50), **spend),
        lambda f: f.dp.select_best(list(range(50)), lambda c: X * c, bounds=(0, 50), by="place", **spend),
    ]
    private = [
        lambda f: f.dp.noisy_max("text", **spend),
        lambda f: f.dp.top_k("text", 2, **spend),
        lambda f: f.dp.top_k("kind", 2, KINDS, "region", **spend),
        lambda f: f.dp.top_k("text", 2, by=["place", "region"], **spend),
        lambda f: f.dp.noisy_max("text", by="place", score="units", **spend),
    ]
    for frame, full in ((rows, ROWS), (rows.lazy(), ROWS.lazy())):
        for ask in (*public, *private):
            found, expected = ask(frame).lazy().collect(), ask(full).lazy().collect()
            assert found.schema == expected.schema
            assert found.height == (expected.height if ask in public else 0)


def test_steps_before_a_choice(paying):
    made = ROWS.dp.filter(pl.col("n") > 0).with_columns(half=pl.col("kind") // 2).rename({"text": "words"})
    plain = OWNED.filter(N > 0).with_columns(half=pl.col("kind") // 2)
    assert shown(made.noisy_max("half", [-1, 0, 1], **SPEND), "half") == ranked(plain, "half", pl.len())
    assert made.noisy_max("words", **SPEND)["words"].to_list() == ranked(plain, "text", pl.len())[()]
    names = pl.DataFrame({"region": REGIONS, "zone": ["A", "B", "A"]})
    zones = ROWS.dp.join(names, "region").noisy_max("zone", ["A", "B"], **SPEND)
    assert shown(zones, "zone") == ranked(OWNED.join(names, on="region"), "zone", pl.len())


# ---------------------------------------------------------------------- what is charged


def test_a_lazy_choice_is_known_before_and_released_once():
    with session(epsilon=1) as paying:
        for asked, schema in (
            (ROWS.lazy().dp.noisy_max("place", epsilon=0.1), {"place": ROWS.schema["place"]}),
            (
                ROWS.lazy().dp.top_k("day", 2, DAYS, "many", epsilon=0.1),
                {"many": pl.Boolean, "rank": pl.Int64, "day": pl.Date},
            ),
            (ROWS.lazy().dp.select_best([1, 2], lambda c: N * c, (0, 9), epsilon=0.1), {"candidate": pl.Int64}),
        ):
            before = len(paying.releases)
            assert asked.collect_schema() == schema
            asked.explain()
            assert len(paying.releases) == before
            first = asked.collect()
            again = pl.collect_all([asked, asked.join(asked, on=list(schema), how="semi", nulls_equal=True)])
            assert len(paying.releases) == before + 1
            assert all(first.equals(one) for one in again)


def test_the_same_choice_is_stored_and_a_fresh_one_pays():
    with session(epsilon=1) as paying:
        first = ROWS.dp.top_k("kind", 3, KINDS, epsilon=0.1)
        assert ROWS.dp.top_k("kind", 3, list(reversed(KINDS)), epsilon=0.1).equals(first)
        assert len(paying.releases) == 1
        ROWS.dp.top_k("kind", 3, KINDS, epsilon=0.1, fresh=True)
        assert len(paying.releases) == 2
        score = lambda c: pl.when(c <= N).then(c).otherwise(0)  # noqa: E731
        best = ROWS.dp.select_best([1, 2], score, bounds=(0, 5), epsilon=0.1)
        for _ in range(3):
            assert ROWS.dp.select_best([1, 2], score, bounds=(0, 5), epsilon=0.1).equals(best)
        assert len(paying.releases) == 3


@pytest.mark.slow
def test_other_choices_are_other_releases():
    """Whatever changes the question changes its key, so no question finds the release of another."""
    with session(epsilon=100) as paying:
        asked = [
            lambda: ROWS.dp.noisy_max("kind", KINDS, epsilon=1),
            lambda: ROWS.dp.noisy_min("kind", KINDS, epsilon=1),
            lambda: ROWS.dp.noisy_max("kind", KINDS[1:], epsilon=1),
            lambda: ROWS.dp.noisy_max("kind", epsilon=1),
            lambda: ROWS.dp.top_k("kind", 1, KINDS, epsilon=1),
            lambda: ROWS.dp.top_k("kind", 2, KINDS, epsilon=1),
            lambda: ROWS.dp.noisy_max("kind", KINDS, score="units", epsilon=1),
            lambda: ROWS.dp.noisy_max("kind", KINDS, score=dp.sum("n", bounds=(0, 5)), epsilon=1),
            lambda: ROWS.dp.noisy_max("kind", KINDS, score=dp.sum("n", bounds=(0, 6)), epsilon=1),
            lambda: ROWS.dp.noisy_max("kind", KINDS, score=dp.sum(N + 1, bounds=(0, 6)), epsilon=1),
            lambda: ROWS.dp.noisy_max("kind", KINDS, "region", epsilon=1),
            lambda: ROWS.dp.noisy_max("kind", KINDS, "region", keys=REGIONS, epsilon=1),
            lambda: ROWS.dp.noisy_max("kind", KINDS, "region", keys=REGIONS[1:], epsilon=1),
            lambda: ROWS.dp.filter(pl.col("n") > 0).noisy_max("kind", KINDS, epsilon=1),
            lambda: ROWS.dp.noisy_max("kind", KINDS, max_rows_per_group=3, epsilon=1),
            lambda: ROWS.dp.select_best([1, 2], lambda c: N * c, (0, 9), epsilon=1),
            lambda: ROWS.dp.select_best([1, 3], lambda c: N * c, (0, 9), epsilon=1),
            lambda: ROWS.dp.select_best([1.0, 2.0], lambda c: N * c, (0, 9), epsilon=1),
            lambda: ROWS.dp.select_best([1, 2], lambda c: N + c, (0, 9), epsilon=1),
            lambda: ROWS.dp.select_best([1, 2], lambda c: N * c, (0, 8), epsilon=1),
        ]
        for number, ask in enumerate(asked):
            ask()
            assert len(paying.releases) == number + 1
        for ask in asked:
            ask()
        assert len(paying.releases) == len(asked)


def test_what_the_ledger_says():
    with dp.Session(epsilon=1, unit="who", max_rows_per_group=4, max_groups=2) as paying:
        ROWS.dp.noisy_max("kind", KINDS, epsilon=0.25)
        ROWS.dp.top_k("kind", 3, KINDS, "place", score=dp.sum("n", bounds=(0, 5)), share=0.25)
        ROWS.dp.select_best([1, 2], lambda c: N * c, (0, 9), epsilon=0.25)
        one, two, three = paying.releases
    assert [float(entry.cost.epsilon) for entry in (one, two, three)] == [0.25] * 3
    assert one.label == "noisy_max of kind, scored by count, unit who"
    for word in ("top_k (3) of kind", "place", "sum of n"):
        assert word in two.label
    assert "select_best" in three.label
    assert not any(str(kind) in one.label for kind in KINDS)  # only the release says what was chosen


def test_a_preview_spends_nothing_and_says_what_one_wants_to_know():
    with dp.Session(epsilon=1, unit="who", max_rows_per_group=4) as paying:
        plan = ROWS.dp.preview.noisy_max("kind", KINDS, epsilon=0.25)
        best = ROWS.dp.preview.select_best([1, 2, 3], lambda c: N * c, (0, 9), epsilon=0.25)
        top = ROWS.dp.preview.top_k("kind", 2, KINDS, epsilon=0.25)
        assert not paying.releases
        assert paying.spent.epsilon == 0
    assert "5 public (candidates= in the call)" in str(plan)
    assert "permute-and-flip" in str(plan)
    # ln(5 / 0.05) steps of 1 / rate = 4 rows / 0.25
    assert "within 73.68" in str(plan)
    assert plan.expected_regret() == pytest.approx(16 * np.log(100))
    assert plan.expected_regret(0.99) == pytest.approx(16 * np.log(500))
    assert "0 to 9, each row" in str(best)
    assert "36 at most" in str(best)
    assert "epsilon 0.125 for each choice" in str(top)
    with session(epsilon=1) as paying:
        found = str(ROWS.dp.preview.noisy_max("text", epsilon=0.1))
        assert "discovered" in found
        assert "the one of rank 101" in found
        assert "delta" in found
        assert not paying.releases


@pytest.mark.slow
def test_a_thousand_candidates_that_everyone_may_approve_of_need_no_more_noise_than_two():
    """A histogram needs noise for all approvals of a person; a choice needs noise for one."""
    names = [f"candidate {i}" for i in range(1000)]
    votes = pl.DataFrame({"who": range(1000), "vote": names})
    for words in ({}, {"delta": 1e-6}, {"adjacency": "replace"}, {"group_size": 2}):
        with dp.Session(epsilon=1, unit="who", **words):
            few, many = (
                votes.dp.preview.noisy_max("vote", names[:count], score="units", epsilon=0.5) for count in (2, 1000)
            )
            assert few.rate == many.rate
            assert few.cost == many.cost
            ranks = votes.dp.preview.top_k("vote", 5, names, score="units", epsilon=0.5)
            assert ranks.rate < many.rate
            best = votes.dp.preview.select_best(
                names, lambda c: pl.col("vote") == c, (0, 1), max_rows_per_group=1, epsilon=0.5
            )
            assert best.rate == many.rate


# ---------------------------------------------------------------------- select_best


def best_of(candidates, score, rows=OWNED, low=None, high=None):
    """Return the candidate with the largest exact score, with each row clipped."""
    totals = [
        float(rows.select(score(pl.lit(one, dtype=candidates.dtype)).cast(pl.Float64).clip(low, high).sum()).item())
        for one in candidates
    ]
    assert totals.count(max(totals)) == 1
    return candidates[totals.index(max(totals))]


SCORED = [
    ("integers", pl.Series([1, 5, 12, 25]), lambda c: pl.when(c <= N).then(c).otherwise(0), (0, 30)),
    ("floats", pl.Series([1.5, 8.25, 20.0]), lambda c: pl.when(pl.col("x") >= c).then(c).otherwise(0.0), (0, 20)),
    ("texts", pl.Series(REGIONS), lambda c: pl.col("region") == c, (0, 1)),
    ("dates", pl.Series(DAYS), lambda c: (pl.col("day") == c).cast(pl.Int8) * N, (-9, 30)),
    ("of two columns", pl.Series([-2, 0, 3]), lambda c: pl.col("x") * c + N, (-40, 40)),
    ("far away", pl.Series([10**9, 10**9 + 10**6]), lambda c: (N - c).abs(), (0, 10**10)),
    ("many", pl.Series([i / 4 for i in range(-20, 60)]), lambda c: 30 - (pl.col("x") - c).abs(), (0, 30)),
    ("whole", pl.Series(range(-9, 40)), lambda c: (c > N).cast(pl.Int64) * (40 - c), (0, 60)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("candidates", "score", "bounds"), [one[1:] for one in SCORED], ids=[one[0] for one in SCORED])
@pytest.mark.parametrize("lazy", [False, True])
def test_the_best_is_that_of_the_plain_scores(paying, candidates, score, bounds, lazy):
    def clean(c):  # NaN counts as null
        return score(c).cast(pl.Float64).fill_nan(None)

    expected = best_of(candidates, clean, low=bounds[0], high=bounds[1])
    found = (ROWS.lazy() if lazy else ROWS).dp.select_best(candidates, score, bounds, **SPEND).lazy().collect()
    assert found.schema == {"candidate": candidates.dtype}
    assert found["candidate"].to_list() == [expected]
    by = (ROWS.lazy() if lazy else ROWS).dp.select_best(candidates, score, bounds, "place", **SPEND).lazy().collect()
    assert by.columns == ["place", "candidate"]
    for place, one in by.drop_nulls("place").iter_rows():
        assert one == best_of(candidates, clean, OWNED.filter(place=place), *bounds)


@pytest.mark.slow
def test_blocks_and_slots_make_no_difference(paying, monkeypatch):
    from dp_polars._choices import release as best

    candidates = list(range(-9, 61))
    score = lambda c: (c > N).cast(pl.Int64) * (60 - c) + pl.col("x")  # noqa: E731
    whole = ROWS.dp.select_best(candidates, score, (0, 90), "place", **SPEND)
    monkeypatch.setattr(best, "_BLOCK", 97)
    assert ROWS.dp.select_best(candidates, score, (0, 90), "place", fresh=True, **SPEND).equals(whole)
    single = ROWS.dp.select_best(candidates, score, (0, 90), **SPEND)
    monkeypatch.undo()
    assert ROWS.dp.select_best(candidates, score, (0, 90), fresh=True, **SPEND).equals(single)


def test_public_keys_of_a_best_choice(paying):
    score = lambda c: pl.when(c <= N).then(c).otherwise(0)  # noqa: E731
    found = ROWS.dp.select_best([1, 9, 20], score, (0, 20), "region", keys=["south", "north", "nowhere"], **SPEND)
    assert found["region"].to_list() == ["north", "nowhere", "south"]
    for region in ("north", "south"):
        expected = best_of(pl.Series([1, 9, 20]), score, OWNED.filter(region=region))
        assert found.filter(region=region)["candidate"].item() == expected
    two = pl.DataFrame({"region": ["north", "north"], "many": [True, False]})
    pairs = ROWS.dp.select_best([1, 9, 20], score, (0, 20), ["region", "many"], keys=two, **SPEND)
    assert pairs["many"].to_list() == [False, True]
    for many, one in pairs.select("many", "candidate").iter_rows():
        assert one == best_of(pl.Series([1, 9, 20]), score, OWNED.filter(region="north", many=many))


# ---------------------------------------------------------------------- refused


def private(column=None, *given, ask="noisy_max", **words):
    return lambda: getattr(ROWS.dp, ask)(column, *given, **{"epsilon": 0.1, **words})


def best(candidates=(1, 2), score=lambda c: N * c, bounds=(0, 9), by=None, **words):
    return lambda: ROWS.dp.select_best(candidates, score, bounds, by, **{"epsilon": 0.1, **words})


REFUSED = {
    "no candidates": (private("kind", []), "candidates= must list between 1 and"),
    "other type": (private("kind", ["a"]), "candidates= can't be read as kind: Int64"),
    "numbers for text": (private("region", [1, 2]), "candidates= can't be read as region: String"),
    "fractions": (private("kind", [1.5]), "candidates= can't be read as kind"),
    "too large": (private("kind", [2**70]), "candidates= can't be read as kind"),
    "not of the enum": (private("place", ["nowhere"]), "candidates= can't be read as place"),
    "twice": (private("kind", [1, 1]), "candidates= lists a value twice"),
    "a text": (private("region", "north"), r"candidates= is a list of the public values of region"),
    "a number": (private("kind", 3), r"candidates= is a list"),
    "a dict": (private("kind", {1: 2}), r"candidates= is a list"),
    "unknown column": (private("nothing", [1]), "nothing"),
    "no column": (private(None, [1]), "can't be"),
    "unknown option": (private("kind", KINDS, max_group=3), "Did you mean max_groups"),
    "far option": (private("kind", KINDS, seed=3), "noisy_max has no option seed. Its options are by, candidates"),
    "k of 0": (private("kind", 0, KINDS, ask="top_k"), "k must be"),
    "k below 0": (private("kind", -1, KINDS, ask="top_k"), "k must be"),
    "a fraction for k": (private("kind", 1.5, KINDS, ask="top_k"), "k must be"),
    "a flag for k": (private("kind", True, KINDS, ask="top_k"), "k must be"),
    "a text for k": (private("kind", "3", KINDS, ask="top_k"), "k must be"),
    "k above": (private("kind", 6, KINDS, ask="top_k"), "k=6 is more than the 5 candidates"),
    "k far above": (private("kind", 1001, ask="top_k"), "At most 1,000"),
    "score nonsense": (private("kind", KINDS, score="most"), "by: 'rows', 'units'"),
    "score none": (private("kind", KINDS, score=None), "by: 'rows'"),
    "score expression": (private("kind", KINDS, score=N), "by: 'rows'"),
    "score function": (private("kind", KINDS, score=lambda c: N * c), "by: 'rows'"),
    "score mean": (private("kind", KINDS, score=dp.mean("n", bounds=(0, 9))), "by: 'rows'"),
    "score n_unique": (private("kind", KINDS, score=dp.n_unique("n")), "by: 'rows'"),
    "no bounds": (private("kind", KINDS, score=dp.sum("n")), "bounds"),
    "auto bounds": (private("kind", KINDS, score=dp.sum("n", bounds="auto")), "can't be estimated; give them"),
    "reversed": (private("kind", KINDS, score=dp.sum("n", bounds=(9, 0))), "lower < upper"),
    "no number": (private("kind", KINDS, score=dp.sum("n", bounds=(0, float("nan")))), "bounds|finite|number"),
    "sum of text": (private("kind", KINDS, score=dp.sum("text", bounds=(0, 9))), "text"),
    "sum of nothing": (private("kind", KINDS, score=dp.sum("nothing", bounds=(0, 9))), "nothing"),
    "sum of a sum": (private("kind", KINDS, score=dp.sum(N.sum(), bounds=(0, 9))), "row"),
    "column of rows": (private(N.shift(), [1]), "row"),
    "unit as column": (private("who", [1, 2]), "who"),
    "unit by": (private("kind", KINDS, by="who"), "who"),
    "unit in column": (private(pl.col("who") % 2, [0, 1]), "who"),
    "column twice": (private("kind", KINDS, by="kind"), "kind is the candidate and a key of by="),
    "rank": (private(pl.col("kind").alias("rank"), 2, KINDS, ask="top_k"), "top_k adds a column rank"),
    "rank by": (private("kind", 2, KINDS, by=pl.col("many").alias("rank"), ask="top_k"), "top_k adds a column rank"),
    "least, unknown": (private("kind", ask="noisy_min"), "noisy_min needs public candidates"),
    "least, unknown groups": (private("kind", KINDS, by="region", ask="noisy_min"), "noisy_min needs public"),
    "below 0, unknown": (private("kind", score=dp.sum("n", bounds=(-1, 5))), "no row lowers a score"),
    "auto rows": (private("kind", KINDS, max_rows_per_group="auto"), "Caps of noisy_max can't be estimated"),
    "auto groups": (private("kind", KINDS, by="place", max_groups="auto"), "Caps of noisy_max can't be estimated"),
    "rows of 0": (private("kind", KINDS, max_rows_per_group=0), "max_rows_per_group"),
    "within": (private("kind", KINDS, epsilon=None, within=5), "within"),
    "mechanism": (private("kind", KINDS, mechanism="laplace"), "mechanism"),
    "confidence": (private("kind", KINDS, confidence=0.95), "confidence"),
    "keys without by": (private("kind", KINDS, keys=[1]), "nothing to group by"),
    "no spend": (private("kind", KINDS, epsilon=None), "This release needs a spend"),
    "two spends": (private("kind", KINDS, share=0.1), "one way"),
    "nothing to spend": (private("kind", KINDS, epsilon=0), "epsilon"),
    "too much": (private("kind", KINDS, epsilon=2), "budget"),
    "too many pairs": (
        private("kind", list(range(10_000)), by="text", keys=[str(i) for i in range(1001)]),
        "at most 10,000,000 pairs",
    ),
    "fresh": (private("kind", KINDS, fresh="yes"), "fresh"),
    "best of none": (best([]), "between 1 and 1,000,000"),
    "best of a text": (best("abc"), "candidates= is a list"),
    "best of a dict": (best({1: 2}), "candidates= is a list"),
    "best of a number": (best(3), "candidates= is a list"),
    "best of both": (best([1, "a"]), "candidates= must all be of one type"),
    "best of nulls": (best([1, None]), "nulls"),
    "best of NaN": (best([1.0, float("nan")]), "NaN"),
    "best of infinities": (best([1.0, float("inf")]), "infinit"),
    "best of lists": (best([[1], [2]]), "list numbers, texts or dates"),
    "best twice": (best([1, 1]), "lists a value twice"),
    "no function": (best(score=N), "score= is a function"),
    "a text as score": (best(score="n"), "score= is a function"),
    "no expression": (best(score=lambda c: 3), "must return an expression"),
    "an if": (best(score=lambda c: c if c > 1 else 0), "instead of `if`"),
    "nothing": (best(score=lambda c: None), "must return an expression"),
    "sum": (best(score=lambda c: N.sum() * c), "row"),
    "less the mean": (best(score=lambda c: N - N.mean() + c), "row"),
    "shift": (best(score=lambda c: N.shift() * c), "row"),
    "over": (best(score=lambda c: N.over("kind") * c), "row"),
    "python": (best(score=lambda c: N.map_elements(lambda x: x, return_dtype=pl.Int64) * c), "Python|row"),
    "unknown": (best(score=lambda c: pl.col("nothing") * c), "nothing"),
    "of text": (best(score=lambda c: pl.col("region")), "score"),
    "best without bounds": (best(bounds=None), "bounds"),
    "best with auto": (best(bounds="auto"), "bounds of a score can't be estimated"),
    "best reversed": (best(bounds=(9, 0)), "lower < upper"),
    "best of text, bounds of text": (best(bounds=("a", "b")), "bounds"),
    "best by discovered": (best(by="region"), "public keys: pass keys="),
    "best by unit": (best(by="who"), "who"),
    "best by candidate": (best(by=pl.col("many").alias("candidate")), "The answer has a column candidate"),
    "best auto rows": (best(max_rows_per_group="auto"), "can't be estimated"),
    "best with k": (best(k=2), "select_best has no option k"),
    "best within": (best(epsilon=None, within=3), "within"),
    "best too much": (best(epsilon=2), "budget"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_bad_words_are_refused_and_cost_nothing(name):
    ask, message = REFUSED[name]
    with session(epsilon=1) as paying:
        before = paying.spent
        with pytest.raises(dp.DPError, match=message) as error:
            ask()
        assert not paying.releases
        assert paying.spent == before
    assert isinstance(error.value, dp.BudgetExceeded) == (message == "budget")


def test_a_score_that_differs_between_candidates_is_refused():
    with session(epsilon=1) as paying:
        called = []

        def other(c):
            called.append(c)
            return N * c + len(called)

        with pytest.raises(dp.InvalidParameterError, match="the same expression for every candidate"):
            best([1, 2, 3], other)()
        with pytest.raises(dp.InvalidParameterError, match="not one of another call"):
            best([1, 2, 3], lambda c: called.append(c) or N * called[0] + called[-2])()
        assert not paying.releases


def test_a_session_without_delta_needs_candidates_and_groups():
    with dp.Session(epsilon=1, unit="who", max_groups=2, max_rows_per_group=5) as paying:
        with pytest.raises(
            dp.InvalidParameterError, match=r"values of kind exist.*candidates=\[\.\.\.\].*with a delta"
        ):
            ROWS.dp.noisy_max("kind", epsilon=0.1)
        with pytest.raises(dp.InvalidParameterError, match=r"values of region exist.*keys=\[\.\.\.\].*with a delta"):
            ROWS.dp.noisy_max("kind", KINDS, by="region", epsilon=0.1)
        with pytest.raises(dp.InvalidParameterError, match="values of text exist"):
            ROWS.lazy().dp.top_k("text", 3, by="place", epsilon=0.1)
        assert not paying.releases


@pytest.mark.parametrize("ask", [private("kind", KINDS), best(), private("kind", 2, KINDS, ask="top_k")])
def test_how_many_rows_a_unit_has_must_be_said(ask):
    with dp.Session(epsilon=1, unit="who") as paying:
        with pytest.raises(dp.InvalidParameterError, match="max_rows_per_group=") as error:
            ask()
        assert not paying.releases
    assert "session" in str(error.value)


def test_how_many_groups_a_unit_is_in_must_be_said():
    with dp.Session(epsilon=1, delta=1e-6, unit="who", max_rows_per_group=1) as paying:
        with pytest.raises(dp.InvalidParameterError, match="max_groups="):
            ROWS.dp.noisy_max("kind", KINDS, by="region", epsilon=0.1)
        assert ROWS.dp.preview.noisy_max("kind", KINDS, by="place", epsilon=0.1).bounds.max_groups == 4
        assert ROWS.dp.preview.noisy_max("kind", KINDS, epsilon=0.1).bounds.max_groups == 1
        assert not paying.releases


def test_units_need_no_cap_of_rows():
    with dp.Session(epsilon=1, unit="who"):
        assert ROWS.dp.preview.noisy_max("kind", KINDS, score="units", epsilon=0.1).moves == 1


def test_a_lazy_choice_that_does_not_fit_says_so_when_it_is_collected():
    with session(epsilon=1) as paying:
        asked = ROWS.lazy().dp.noisy_max("kind", KINDS, epsilon=2)
        with pytest.raises((dp.BudgetExceeded, pl.exceptions.ComputeError), match="budget"):
            asked.collect()
        assert not paying.releases


def test_columns_named_like_our_own_are_refused():
    rows = ROWS.rename({"n": "\0n"})
    with session(epsilon=1) as paying:
        with pytest.raises(dp.InvalidParameterError, match="rename"):
            rows.dp.select_best([1], lambda c: pl.col("\0n") * c, (0, 1), epsilon=0.1)
        assert not paying.releases


def test_a_score_that_fails_in_a_row_keeps_its_values_to_itself():
    """Casts and divisions that fail give null. Any other failure shows a text of our own."""
    rows = pl.DataFrame({"who": range(60), "word": ["7"] * 50 + ["secret"] * 10, "zero": [0, 1] * 30})
    with session():
        score = lambda c: pl.col("word").cast(pl.Int64) * c  # noqa: E731
        assert rows.dp.select_best([1, 2], score, (0, 20), **SPEND).item() == 2
        score = lambda c: (c * 10) // pl.col("zero")  # noqa: E731
        assert rows.dp.select_best([1, 2], score, (0, 20), **SPEND).item() == 2


def test_what_fails_after_the_charge_shows_a_text_of_our_own():
    vouched = ROWS.dp.with_columns(pl.col("text").cast(pl.Int64), unchecked=True)
    for ask in (
        lambda: vouched.select_best([1, 2], lambda c: pl.col("text") * c, (0, 9), epsilon=0.1),
        lambda: vouched.noisy_max("text", [1, 2], epsilon=0.1),
        lambda: vouched.noisy_max("kind", KINDS, score=dp.sum("text", bounds=(0, 3)), epsilon=0.1),
    ):
        with session(epsilon=1) as paying:
            with pytest.raises(dp.DPError, match="Its message is not shown") as error:
                ask()
            assert error.value.__cause__ is None
            assert error.value.__context__ is None
            assert len(paying.releases) == 1


def test_no_warning_is_given():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with dp.Session(epsilon=1, unit="who", max_rows_per_group=5):
            ROWS.dp.noisy_max("kind", KINDS, epsilon=0.1)
            ROWS.dp.select_best([1, 2], lambda c: N * c, (0, 9), epsilon=0.1)


# ---------------------------------------------------------------- names and times


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rank", "candidate", "place", "key0", "unit0", "value0", "row", "count", "kept"])
def test_columns_may_have_any_name(paying, name):
    frame = pl.DataFrame({"who": range(60), name: ["a"] * 40 + ["b"] * 20, "g": ["x", "y"] * 30})
    private = dp.private(frame, paying)
    assert private.noisy_max(name, ["a", "b"], epsilon=HUGE).to_dict(as_series=False) == {name: ["a"]}
    by = private.noisy_max("g", ["x", "y"], by=name, keys=["a", "b"], epsilon=HUGE)
    assert by.columns == [name, "g"]
    if name != "candidate":
        best = private.select_best([1, 2], lambda c: c, bounds=(0, 2), by=name, keys=["a", "b"], epsilon=HUGE)
        assert best.to_dict(as_series=False) == {name: ["a", "b"], "candidate": [2, 2]}


def test_candidates_that_differ_by_a_nanosecond_are_different_questions(paying):
    times = pl.Series([1] * 50).cast(pl.Datetime("ns"))
    frame = pl.DataFrame({"who": range(50), "t": times})
    private = dp.private(frame, paying)
    first, second = (pl.Series([one, 2000]).cast(pl.Datetime("ns")) for one in (0, 1))
    private.noisy_max("t", first, epsilon=HUGE)
    found = private.noisy_max("t", second, epsilon=HUGE)
    assert len(paying.releases) == 2
    assert found["t"].to_physical().to_list() == [1]
    for wanted in (999, 1999):
        rows = frame.with_columns(t=pl.lit(wanted).cast(pl.Datetime("ns")))
        given = pl.Series([999, 1999]).cast(pl.Datetime("ns"))
        best = dp.private(rows, paying).select_best(
            given, lambda c: (pl.col("t") == c).cast(pl.Int8), bounds=(0, 1), epsilon=HUGE
        )
        assert best["candidate"].to_physical().to_list() == [wanted]
