"""`df.dp` as a user sees it: answers, prices, refusals, and one charge for one release."""

import contextlib
import pickle
import threading

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dp

GENERATOR = np.random.default_rng(5)
N = 4000
VISITS = pl.DataFrame(
    {
        "user": GENERATOR.integers(0, 500, N),
        "region": pl.Series(["north", "south", "east", "west"]).gather(GENERATOR.integers(0, 4, N)),
        "kind": pl.Series(["a", "b", None]).gather(GENERATOR.integers(0, 3, N)).cast(pl.Enum(["a", "b"])),
        "value": GENERATOR.gamma(2, 20, N),
        "score": GENERATOR.integers(-5, 6, N),
        "flag": GENERATOR.integers(0, 2, N) == 1,
    }
)
REGIONS = ["east", "north", "south", "west"]
HUGE = 10**5  # an epsilon at which the noise is zero, to compare with plain Polars


@pytest.fixture
def session():
    with pytest.warns(dp.DPWarning):
        return dp.Session(epsilon=10**6, delta=1e-6, unit="user", max_groups=4, max_rows_per_group=40)


@pytest.fixture
def small():
    return dp.Session(epsilon=1.0, delta=1e-6, unit="user", max_groups=2, max_rows_per_group=5)


# ---------------------------------------------------------------- correct


def test_without_binding_caps_and_with_next_to_no_noise_answers_equal_plain_polars(session):
    plain = (
        VISITS.group_by("region")
        .agg(
            pl.len().alias("count"),
            pl.col("user").n_unique().alias("count_units"),
            pl.col("score").sum(),
            pl.col("value").mean(),
        )
        .sort("region")
    )
    with session:
        count = VISITS.dp.count("region", keys=REGIONS, epsilon=HUGE)
        units = VISITS.dp.count_units("region", epsilon=HUGE)
        total = VISITS.dp.sum("score", by="region", bounds=(-5, 5), epsilon=HUGE)
        mean = VISITS.dp.mean("value", by="region", keys=REGIONS, bounds=(0, 500), epsilon=HUGE)
    assert_frame_equal(count, plain.select("region", pl.col("count").cast(pl.Int64)))
    assert_frame_equal(units, plain.select("region", pl.col("count_units").cast(pl.Int64)))
    assert_frame_equal(total, plain.select("region", "score"))
    assert_frame_equal(mean, plain.select("region", "value"), rel_tol=1e-3)


def test_public_keys_show_every_key_empty_ones_too(session):
    with session:
        count = VISITS.dp.count("region", keys=["north", "moon"], epsilon=HUGE)
        kinds = VISITS.dp.count(["kind", "flag"], max_groups=9, epsilon=HUGE)
    assert count.rows() == [("moon", 0), ("north", VISITS.filter(pl.col("region") == "north").height)]
    # Boolean and Enum keys have null as one more value: (a, b, null) x (false, true, null).
    assert kinds.height == 9
    assert kinds["count"].sum() == N


def test_counts_of_a_column_and_without_keys(session):
    with session:
        assert VISITS.dp.count(epsilon=HUGE)["count"].to_list() == [N]
        assert VISITS.dp.len(epsilon=HUGE)["count"].to_list() == [N]
        some = VISITS.dp.count(column="kind", epsilon=HUGE)["count"].to_list()
        assert some == [VISITS["kind"].count()]
        assert VISITS.dp.count_units(epsilon=HUGE)["count_units"].to_list() == [VISITS["user"].n_unique()]


def test_every_row_can_be_a_unit():
    with pytest.warns(dp.DPWarning):
        session = dp.Session(epsilon=10**6, delta=1e-6, unit=dp.ROW)
    with session:
        assert VISITS.dp.count(epsilon=HUGE)["count"].to_list() == [N]
        assert VISITS.dp.sum(pl.lit(2), bounds=(0, 5), epsilon=HUGE).item() == 2 * N
        by = VISITS.dp.count("region", epsilon=HUGE)
        assert by.rows() == VISITS.group_by("region").len().sort("region").rows()
        assert VISITS.head(0).dp.count(epsilon=HUGE)["count"].to_list() == [0]


def test_transformations_are_those_of_polars(session):
    lookup = pl.DataFrame({"region": ["north", "south"], "side": ["up", "down"]})
    with session:
        private = (
            VISITS.dp.filter(pl.col("value") > 10)
            .with_columns(big=pl.col("value") > 50, tens=(pl.col("value") // 10).cast(pl.Int64))
            .join(lookup, on="region", how="left")
            .rename({"side": "way"})
            .drop("score")
        )
        found = private.count(
            ["way", "big"], keys=pl.DataFrame({"way": ["up", None], "big": [True, False]}), epsilon=HUGE
        )
    plain = VISITS.filter(pl.col("value") > 10).join(lookup, on="region", how="left")
    expected = [
        plain.filter((pl.col("side") == "up") & (pl.col("value") > 50)).height,
        plain.filter(pl.col("side").is_null() & (pl.col("value") <= 50)).height,
    ]
    assert sorted(found["count"].to_list()) == sorted(expected)


def test_columns_and_predicates_may_be_given_as_lists_and_selectors(session):
    with session:
        private = VISITS.dp.drop(["score"], pl.selectors.by_name("region")).filter([pl.col("value") > 10])
        assert private.columns == VISITS.drop(["score"], pl.selectors.by_name("region")).columns
        found = private.count(max_rows_per_group=N, epsilon=HUGE).item()
    assert found == VISITS.filter([pl.col("value") > 10]).height


def test_caps_that_bind_bound_every_unit(small):
    with small:
        plan = VISITS.dp.preview.count("region", epsilon=0.1)
    assert (plan.bounds.max_groups, plan.compiled[0].cap.max_rows) == (2, 5)


# ---------------------------------------------------------------- charged once, stored, lazy


def test_a_preview_costs_nothing_and_says_everything(small):
    with small:
        text = str(VISITS.dp.preview.sum("value", by="region", keys=REGIONS, bounds=(0, 100), epsilon=0.2))
    for part in ("sum of value by region", "user, added or removed", "max_groups of the session", "0 to 100, each row",
                 "L1 1000", "scale 5000", "4 public", "20 % of the budget", "within"):  # fmt: skip
        assert part in text
    assert small.releases == ()


def test_the_same_question_is_answered_from_the_ledger(small):
    with small:
        first = VISITS.dp.count("region", epsilon=0.2)
        again = VISITS.dp.count("region", epsilon=0.2)
        assert_frame_equal(first, again)
        assert len(small.releases) == 1
        VISITS.dp.count("region", epsilon=0.2, fresh=True)
        VISITS.dp.filter(pl.col("value") > 10).count("region", epsilon=0.2)
        assert len(small.releases) == 3
        VISITS.clone().dp.count("region", epsilon=0.1)  # another object, although its content is equal
        VISITS.dp.count("region", epsilon=0.1)
    assert len(small.releases) == 5


def test_named_data_are_the_same_in_every_process_until_their_version_changes(small):
    one = dp.private(VISITS, session=small, name="visits", data_version="1")
    two = dp.private(VISITS.clone(), session=small, name="visits", data_version="1")
    assert_frame_equal(one.count(epsilon=0.2), two.count(epsilon=0.2))
    dp.private(VISITS, session=small, name="visits", data_version="2").count(epsilon=0.2)
    assert len(small.releases) == 2


def test_files_are_the_same_until_they_are_touched(small, tmp_path):
    path = tmp_path / "visits.parquet"
    VISITS.write_parquet(path)
    with small:
        first = pl.scan_parquet(path).dp.count("region", epsilon=0.2).collect()
        assert_frame_equal(first, pl.scan_parquet(path).dp.count("region", epsilon=0.2).collect())
        assert len(small.releases) == 1
        VISITS.head(100).write_parquet(path)
        pl.scan_parquet(path).dp.count("region", epsilon=0.2).collect()
    assert len(small.releases) == 2


def test_a_lazy_result_charges_at_the_first_collect_and_only_then(small):
    with small:
        lazy = VISITS.lazy().dp.count("region", keys=REGIONS, epsilon=0.2)
    assert lazy.collect_schema() == {"region": pl.String, "count": pl.Int64}
    lazy.explain()
    assert small.releases == ()
    first = lazy.collect()
    assert_frame_equal(first, lazy.collect())
    both = lazy.join(lazy, on="region", how="inner", maintain_order="left").collect()
    assert both["count"].to_list() == both["count_right"].to_list() == first["count"].to_list()
    together = pl.collect_all([lazy, lazy.filter(pl.col("count") > 0)])
    assert_frame_equal(together[0], first)
    assert len(small.releases) == 1


def test_threads_that_collect_at_once_get_one_release(small):
    with small:
        lazy = VISITS.lazy().dp.count("region", keys=REGIONS, epsilon=0.2)
    frames = []
    threads = [threading.Thread(target=lambda: frames.append(lazy.collect())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(small.releases) == 1
    assert all(frame.equals(frames[0]) for frame in frames)


def test_planning_errors_cost_nothing_and_come_at_the_call(small):
    with small, pytest.raises(dp.InvalidParameterError):
        VISITS.lazy().dp.sum("value", epsilon=0.1)
    assert small.releases == ()


@pytest.mark.slow
def test_the_budget_is_refused_at_collect(small):
    with small:
        VISITS.dp.count(epsilon=0.9)
        lazy = VISITS.lazy().dp.count("region", keys=REGIONS, epsilon=0.2)
        with pytest.raises(Exception, match="does not fit the session's budget"):
            lazy.collect()
        with pytest.raises(dp.BudgetExceeded):
            VISITS.dp.count("region", keys=REGIONS, epsilon=0.2)


def test_an_engine_that_fails_keeps_the_charge_and_its_words_to_itself(small, tmp_path):
    path = tmp_path / "secret.csv"
    path.write_text("user,region\n1,a\nSECRET-VALUE,b\n")
    broken = pl.scan_csv(path, schema={"user": pl.Int64, "region": pl.String})
    with small, pytest.raises(Exception, match="The engine failed") as failed:
        broken.dp.count("region", keys=["a"], epsilon=0.1).collect()
    seen, error = "", failed.value
    while error is not None:
        seen, error = seen + str(error), error.__cause__ or error.__context__
    assert "SECRET" not in seen
    assert [entry.state for entry in small.releases] == ["failed"]


# ---------------------------------------------------------------- spends


@pytest.mark.slow
def test_shares_that_sum_to_one_always_fit():
    for words in ({"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-6}, {"rho": 0.02, "delta": 1e-6}):
        session = dp.Session(**words, unit="user", max_groups=2, max_rows_per_group=5)
        with session:
            for i in range(7):
                VISITS.dp.count("region", keys=REGIONS, share=1 / 7 if i else 0.14, fresh=True)
            VISITS.dp.sum("value", by="region", keys=REGIONS, bounds=(0, 10), share=0.0028)


def test_a_session_planned_for_queries_needs_no_spend():
    session = dp.Session(epsilon=1.0, delta=1e-6, unit="user", max_groups=2, max_rows_per_group=5, queries=3)
    with session:
        for i in range(3):
            VISITS.dp.filter(pl.col("value") > i).count("region")
        with pytest.raises(dp.BudgetExceeded):
            VISITS.dp.filter(pl.col("value") > 99).count("region")


def test_a_wanted_error_finds_the_spend(small):
    with small:
        plan = VISITS.dp.preview.count("region", keys=REGIONS, within=60)
        assert plan.expected_error() <= 60
        cheaper = VISITS.dp.preview.count("region", keys=REGIONS, epsilon=float(plan.cost.epsilon) * 0.98)
    assert cheaper.expected_error() > 60 or plan.measurements[0].noise.mechanism == "gaussian"


@pytest.mark.slow
def test_intervals_cover_the_truth():
    """Every group is a separate draw, so one release has 2,000 of them."""
    frame = pl.DataFrame({"user": range(6_000), "group": [user % 2_000 for user in range(6_000)]})
    words = {"keys": range(2_000), "max_groups": 1, "max_rows_per_group": 1, "epsilon": 1, "confidence": 0.9}
    with dp.Session(epsilon=1, unit="user"):
        found = frame.dp.count("group", **words)
    assert (found["count"].is_between(found["count_low"], found["count_high"])).all()
    covered = pl.lit(3).is_between(pl.col("count_low"), pl.col("count_high"))
    # Binomial(2000, 0.1): more than 274 misses have probability below 1e-7. Intervals that cover 84 % have so many with
    # probability 0.997.
    assert found.filter(~covered).height <= 274


def test_nonnegative_answers_and_unknown_options(small):
    with small:
        shown = VISITS.head(0).dp.count("region", keys=REGIONS, epsilon=0.5, nonnegative=True)
        assert shown["count"].min() >= 0
        with pytest.raises(dp.InvalidParameterError, match="no option epsilom"):
            VISITS.dp.count(epsilom=1)


# ---------------------------------------------------------------- refusals say what to write instead


def ask(call, **session):
    words = {"epsilon": 1.0, "delta": 1e-6, "unit": "user", "max_groups": 2, "max_rows_per_group": 5, **session}
    with dp.Session(**words):
        return call(VISITS.dp)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "words", "text"),
    [
        (lambda v: v.count("region", epsilon=0.1), {"max_groups": None}, "max_groups=3.*keys=.*per_unit="),
        (lambda v: v.count(epsilon=0.1), {"max_rows_per_group": None}, "max_rows_per_group=10.*count_units"),
        (lambda v: v.sum("value", epsilon=0.1), {}, r"needs bounds for value.*bounds=\(0, 100\)"),
        (lambda v: v.sum("value", bounds=(5, 1), epsilon=0.1), {}, "lower < upper"),
        (lambda v: v.sum("region", bounds=(0, 1), epsilon=0.1), {}, "region has the type String"),
        (lambda v: v.count("user", epsilon=0.1), {}, "reads the unit column"),
        (lambda v: v.count(pl.col("user") % 10, epsilon=0.1), {}, "reads the unit column"),
        (lambda v: v.count("value", epsilon=0.1), {}, "can't be a grouping key"),
        (lambda v: v.count("region"), {}, "This release needs a spend"),
        (lambda v: v.count("region", epsilon=0.1, share=0.1), {}, "in one way"),
        (lambda v: v.count("region", epsilon=0.1), {"delta": None}, "no delta to discover them.*keys="),
        (lambda v: v.count("region", keys=["a", "a"], epsilon=0.1), {}, "lists a value twice"),
        (lambda v: v.count("region", keys=[], epsilon=0.1), {}, "between 1 and"),
        (lambda v: v.count("score", keys=["x"], epsilon=0.1), {}, "can't be read as score"),
        (lambda v: v.count(["region", "kind"], keys=["x"], epsilon=0.1), {}, "a frame with the columns"),
        (lambda v: v.count(keys=["x"], epsilon=0.1), {}, "nothing to group by"),
        (
            lambda v: v.count("region", mechanism="gaussian", keys=REGIONS, epsilon=0.1),
            {"delta": None},
            "Laplace noise only",
        ),
        (lambda v: v.count("region", mechanism="cauchy", epsilon=0.1), {}, "laplace"),
        (lambda v: v.mean("value", bounds=(0, 1), within=3), {}, "depends on how many rows"),
        (lambda v: v.drop("user"), {}, "says who is protected"),
        (lambda v: v.rename({"user": "x"}), {}, "says who is protected"),
        (lambda v: v.rename({"value": "user"}), {}, "says who is protected"),
        (lambda v: v.with_columns(user=pl.lit(1)), {}, "says who is protected"),
        (lambda v: v.with_columns(pl.col("score").alias("user")), {}, "says who is protected"),
        (lambda v: v.select(user=pl.col("score")), {}, "says who is protected"),
        (lambda v: v.filter(pl.col("value") + 1), {}, "true or false"),
        (lambda v: v.join(VISITS.select("region"), on="region"), {}, "more than once"),
        (lambda v: v.join(VISITS, on="region", how="full"), {}, "'inner', 'left', 'semi' or 'anti'"),
        (lambda v: v.drop("nothing"), {}, "no column nothing"),
        (lambda v: v.drop(7), {}, "by name or by selector"),
        (lambda v: v.drop(pl.all()), {}, "says who is protected"),
        (lambda v: v.rename({"value": 7}), {}, "from old names to new ones"),
        (lambda v: v.rename(7), {}, "from old names to new ones"),
        (lambda v: v.join(VISITS, on=7), {}, "names of columns"),
        (lambda v: v.fill_null(object()), {}, "public constant"),
        (lambda v: v.cov("value", "score", bounds=7, epsilon=0.1), {}, "a pair for each"),
        (lambda v: v.count(epsilon=0.1, session=7), {}, "must be a dp.Session"),
        (lambda v: v.count("region", max_groups="auto", within=10), {}, "caps and bounds that are known"),
        (lambda v: v.count("region", share=2), {}, "up to 1"),
        (lambda v: v.count(epsilon=0.1, fresh="no"), {}, "fresh must be True or False"),
        (lambda v: v.count(epsilon=0.1, nonnegative=1), {}, "nonnegative must be True or False"),
    ],
)
def test_each_refusal_names_the_way_out(call, words, text):
    with pytest.raises(dp.InvalidParameterError, match=text):
        ask(call, **words)


@pytest.mark.parametrize(
    "predicate",
    [
        pl.col("value") > pl.col("value").mean(),
        pl.col("value") - pl.col("value").mean() > 0,
        pl.col("score").is_in(pl.col("user")),
        pl.col("kind").to_physical() > 0,
        pl.col("value").shift(1) > 0,
        pl.col("value").rank() > 3,
        pl.col("value").cum_sum() > 3,
        pl.len() > 3,
        pl.col("value").map_elements(lambda x: x, return_dtype=pl.Float64) > 3,
    ],
)
def test_expressions_that_look_at_other_rows_are_refused_in_a_filter(small, predicate):
    with small, pytest.raises(dp.DPError):
        VISITS.dp.filter(predicate)


@pytest.mark.parametrize(
    "step",
    [
        lambda v: v.with_columns(user=pl.col("score")),
        lambda v: v.select("region", user=pl.col("score")),
        lambda v: v.rename({"user": "old", "score": "user"}),
        lambda v: v.drop("user").rename({"score": "user"}),
        lambda v: v.drop("user").join(pl.DataFrame({"region": REGIONS, "user": [1, 2, 3, 4]}), on="region"),
    ],
)
def test_a_unit_made_before_the_session_was_known_is_refused_too(small, step):
    made = step(VISITS.dp)  # no session yet
    with small, pytest.raises(dp.InvalidParameterError, match="says who is protected"):
        made.count("region", epsilon=0.1)
    with pytest.raises(dp.InvalidParameterError, match="says who is protected"):
        made.count("region", epsilon=0.1, session=small)


def test_selecting_the_unit_as_it_is_is_fine(small):
    with small:
        assert VISITS.dp.select("user", "region").count("region", keys=REGIONS, epsilon=0.1).height == 4


def test_a_key_must_not_have_the_name_of_the_answer(small):
    with small, pytest.raises(dp.InvalidParameterError, match=r"Give one of them an alias"):
        VISITS.dp.count(pl.col("region").alias("count"), keys=["a"], epsilon=0.1)


def test_sessions_in_threads_do_not_mix(small):
    other = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=5)
    seen = []

    def work(session):
        for _ in range(50):
            with session:
                seen.append(dp.current_session() is session)

    threads = [threading.Thread(target=work, args=(s,)) for s in (small, other, small, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(seen)
    assert dp.current_session() is None


def test_categorical_keys_are_released_as_text_lazily_too(session):
    frame = VISITS.with_columns(pl.col("region").cast(pl.Categorical))
    with session:
        found = frame.lazy().dp.count("region", epsilon=HUGE).collect()
    assert found.schema == {"region": pl.String, "count": pl.Int64}
    assert found["count"].sum() == N


def test_questions_about_different_public_frames_are_different(small):
    with small:
        VISITS.dp.count("region", keys=[None], epsilon=0.1)
        VISITS.dp.count("region", keys=["\\N"], epsilon=0.1)
        for zero in (0.0, -0.0):
            lookup = pl.DataFrame({"region": REGIONS, "z": [zero] * 4})
            VISITS.dp.join(lookup, on="region").filter(1 / pl.col("z") > 0).count(epsilon=0.1)
    assert len(small.releases) == 4


@pytest.mark.slow
def test_rows_in_a_plan_over_files_never_name_the_source(small, tmp_path):
    path = tmp_path / "visits.parquet"
    VISITS.write_parquet(path)
    with small:
        for _ in range(2):
            frame = pl.scan_parquet(path).with_columns(pl.Series("z", range(N)))
            frame.dp.count(epsilon=0.1).collect()
    assert len(small.releases) == 2  # two objects are two sources, whatever they hold


@pytest.mark.slow
def test_a_file_is_named_by_what_it_is_when_it_is_read(small, tmp_path):
    path = tmp_path / "visits.parquet"
    VISITS.write_parquet(path)
    with small:
        lazy = pl.scan_parquet(path).dp.count(epsilon=0.1)
        pl.scan_parquet(path).dp.count(epsilon=0.1).collect()
        VISITS.head(50).write_parquet(path)
        with contextlib.suppress(pl.exceptions.PolarsError, dp.DPError):
            lazy.collect()
    assert len(small.releases) == 2


def test_a_file_that_changes_while_it_is_read_is_not_released(small, tmp_path, monkeypatch):
    from dp_polars._engines.polars import engine

    path = tmp_path / "visits.parquet"
    VISITS.write_parquet(path)
    honest = engine.run_bounded

    def disturbed(rows, request, **parts):
        exact = honest(rows, request, **parts)
        VISITS.head(3000).write_parquet(path)
        return exact

    monkeypatch.setattr(engine, "run_bounded", disturbed)
    with small, pytest.raises(Exception, match="changed while it was read"):
        pl.scan_parquet(path).dp.count(epsilon=0.1).collect()
    assert [entry.state for entry in small.releases] == ["failed"]


def test_bounds_without_a_number_in_them_are_refused(small):
    with small:
        for bounds in ((0, 0.4), (0, 1e-310)):
            with pytest.raises(dp.InvalidParameterError, match="bounds"):
                VISITS.dp.sum("score", bounds=bounds, epsilon=0.1)


def test_nan_is_no_value_to_count(session):
    frame = VISITS.with_columns(value=pl.when(pl.col("flag")).then(float("nan")).otherwise("value"))
    with session:
        assert frame.dp.count(column="value", epsilon=HUGE).item() == VISITS.filter(~pl.col("flag")).height


def test_a_panic_of_the_engine_stays_inside(small, monkeypatch):
    from dp_polars._engines.polars import engine

    def panic(*_, **__):
        raise pl.exceptions.PanicException("SECRET-VALUE")

    monkeypatch.setattr(engine, "run_bounded", panic)
    with small, pytest.raises(dp.EngineError) as failed:
        VISITS.dp.count(epsilon=0.1)
    assert failed.value.__context__ is None
    assert "SECRET" not in str(failed.value)


def test_the_user_can_vouch_for_a_step_and_the_plan_says_so(small):
    with small:
        private = VISITS.dp.filter(pl.col("value") > pl.col("value").mean(), unchecked=True)
        assert "rests on your word" in str(private.preview.count(epsilon=0.1))


def test_no_session_no_answer():
    with pytest.raises(dp.InvalidParameterError, match="No session pays"):
        VISITS.dp.count(epsilon=0.1)


def test_sessions_nest_and_can_be_set_or_passed(small):
    other = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=5)
    with other:
        with small:
            VISITS.dp.count(epsilon=0.1)
        VISITS.dp.count(epsilon=0.2)
        VISITS.dp.count(epsilon=0.3, session=small)
    dp.set_session(small)
    VISITS.dp.count(epsilon=0.4)
    dp.set_session(None)
    assert small.spent.epsilon == pytest.approx(0.8)
    assert other.spent.epsilon == 0.2


def test_no_repr_plan_or_ledger_row_shows_a_value(small):
    secret = pl.DataFrame({"user": [1], "region": ["SECRET-REGION"], "value": [123456.789]})
    with small:
        plan = secret.dp.preview.sum("value", by="region", bounds=(0, 10), epsilon=0.1)
        secret.dp.sum("value", by="region", bounds=(0, 10), epsilon=0.1)
        shown = [str(plan), repr(plan), repr(secret.dp), repr(small), small.describe(), str(small.export())]
    assert not any("SECRET" in text or "123456" in text for text in shown)
    assert b"SECRET" not in pickle.dumps(small.export().to_dicts())


# ---------------------------------------------------------------- units of any type


def test_units_that_are_no_integers_are_hashed_only_where_it_is_paid_for(monkeypatch):
    from dp_polars._engines.polars import units

    frame = pl.DataFrame({"who": ["a", "b", "c", "a"] * 30, "k": ["x", "y", "x", "y"] * 30})
    made = []
    honest = units.HashedUnits.__init__
    monkeypatch.setattr(units.HashedUnits, "__init__", lambda self, *given: made.append(1) or honest(self, *given))
    asked = {"keys": ["x", "y"], "max_groups": 2, "epsilon": 1}
    with dp.Session(epsilon=10, unit="who"):
        frame.dp.count_units("k", **asked)
    assert not made
    with dp.Session(epsilon=10, delta=1e-6, unit="who") as session:
        frame.dp.count_units("k", **asked)
        assert made == [1]
        assert session.spent.delta >= 2**-39
        frame.with_columns(pl.col("who").cast(pl.Categorical)).dp.count_units("k", **asked)
        assert made == [1, 1]
    with dp.Session(epsilon=10, delta=1e-6, unit="id") as session:
        frame.with_columns(id=pl.int_range(pl.len())).dp.count_units("k", **asked)
        assert made == [1, 1]
        assert session.spent.delta == 0


# ---------------------------------------------------------------- several columns at once


def test_selectors_lists_and_constraints_work_as_in_polars(session):
    import polars.selectors as cs

    with session:
        frame = VISITS.dp.with_columns(pl.col("value", "score").fill_null(0)).select(
            [pl.col("region"), "flag"], cs.float()
        )
        assert "value" in repr(frame)
        assert "score" not in repr(frame)
        kept = frame.filter(region="north", flag=True)
        found = kept.count(max_rows_per_group=1000, epsilon=HUGE)["count"].item()
        assert found == VISITS.filter(region="north", flag=True).height
        with pytest.raises(dp.InvalidParameterError, match="nowhere"):
            frame.filter(nowhere=1)
        with pytest.raises(dp.InvalidParameterError, match="user"):
            VISITS.dp.with_columns(cs.integer() + 1)


# ---------------------------------------------------------------- what a new user tried


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"keys": "north"}, "a list of the public values of region"),
        ({"keys": {"area": ["north"]}}, "must list the values of each key, region, but it has area"),
        ({"keys": 5}, "a list of the public values of region"),
        ({"keys": ["north", 1]}, "can't be read as region: String"),
        ({"keys": [1, 2]}, "can't be read as region: String"),
        ({"keys": pl.Series([1, 2])}, "can't be read as region: String"),
        ({"max_group": 3}, "no option max_group. Did you mean max_groups?"),
        ({"zzz": 3}, "no option zzz. Its options are confidence, cut, delta"),
        ({"share": 1.2}, "it is 1.2"),
    ],
)
def test_words_that_were_not_meant_so_are_refused(small, words, message):
    spend = {} if "share" in words else {"epsilon": 0.1}
    with small, pytest.raises(dp.InvalidParameterError, match=message):
        VISITS.dp.count("region", **spend, **words)
    assert not small.releases


@pytest.mark.parametrize("bounds", [5, (None, 5), (1, 2, 3), "ab"])
def test_bounds_are_a_pair_of_numbers(small, bounds):
    with small, pytest.raises(dp.InvalidParameterError, match="bounds"):
        VISITS.dp.sum("value", bounds=bounds, epsilon=0.1)


def test_keys_of_every_kind_can_be_listed(small):
    import datetime

    frame = VISITS.with_columns(
        day=pl.lit(datetime.date(2024, 1, 1)),
        small=pl.col("score").cast(pl.Int8),
        name=pl.col("region").cast(pl.Enum(REGIONS)),
    )
    with small:
        for key, values in {
            "day": [datetime.date(2024, 1, 1), None],
            "small": [1, 2],
            "name": ["north", None],
            "flag": [True],
            "region": ("north", "south"),
        }.items():
            assert frame.dp.preview.count(key, keys=values, epsilon=0.1).bounds.domain_size == len(values)


def test_of_nearly_equal_noises_the_cheaper_one_is_used():
    """Gaussian and Laplace noise may be almost equal and still differ in price by a factor of six."""
    session = dp.Session(epsilon=2, delta=1e-6, unit="user", max_groups=10, max_rows_per_group=20)
    with session:
        chosen = VISITS.dp.preview.count("region", epsilon=0.3)
        laplace = VISITS.dp.preview.count("region", epsilon=0.3, mechanism="laplace")
    assert chosen.measurements[0].noise.mechanism == "gaussian"
    assert chosen.measurements[0].noise.deviation < 1.1 * laplace.measurements[0].noise.deviation
    assert chosen.cost.rho < laplace.cost.rho / 5


def test_a_plan_names_the_steps_before_it(small):
    with small:
        plan = VISITS.dp.filter(flag=True).preview.count("region", epsilon=0.1)
    assert "count by region (after filter)" in str(plan)


# ---------------------------------------------------------------- what an attacker tried


@pytest.mark.parametrize(
    "dtype", [pl.List(pl.Categorical), pl.Struct({"a": pl.Int64}), pl.Object, pl.Null, pl.Array(pl.Int64, 1)]
)
def test_units_that_are_not_told_apart_by_their_value_are_refused(dtype):
    """A list of categories is hashed by codes that depend on other rows, and objects can't be compared."""
    frame = pl.DataFrame({"who": pl.Series([], dtype=dtype)})
    with dp.Session(epsilon=1, unit="who") as session, pytest.raises(dp.InvalidParameterError, match="who says who is"):
        frame.dp.count(max_rows_per_group=1, epsilon=0.5)
    assert not session.releases


def test_a_cap_beyond_64_bits_is_no_error_that_depends_on_rows(session):
    with session:
        for kept in ("north", "nowhere"):
            found = VISITS.dp.filter(region=kept)
            assert found.count(max_rows_per_group=2**63, epsilon=HUGE).height == 1
