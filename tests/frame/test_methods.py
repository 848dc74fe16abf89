"""The methods that Polars users reach for work as in Polars, or say what to write instead."""

import copy
import pickle
from datetime import date, datetime

import polars as pl
import polars.selectors as cs
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dp
from dp_polars._engines.polars.scan import lazy_rows

FRAME = pl.DataFrame(
    {
        "user": [1, 2, 3, 4, None],
        "n": pl.Series([1, None, 3, 4, 5], dtype=pl.Int32),
        "x": [1.5, None, float("nan"), 1e300, -2.0],
        "word": ["a", None, "7", "", "b"],
        "kind": pl.Series(["a", "b", None, "a", "b"], dtype=pl.Categorical),
        "flag": [True, None, False, True, None],
        "day": [date(2024, 1, 1), None, date(2024, 2, 3), None, date(1999, 12, 31)],
        "trip": [{"km": 1, "by": "car"}, None, {"km": None, "by": "bus"}, {"km": 4, "by": None}, {"km": 5, "by": "x"}],
        "money": pl.Series([1, None, 3, 4, 5]).cast(pl.Decimal(10, 2)),
    }
)
SESSION = {"epsilon": 1.0, "delta": 1e-6, "unit": "user", "max_groups": 1, "max_rows_per_group": 1}


@pytest.fixture
def session():
    return dp.Session(**SESSION)


def rows(private):
    """Return the rows that an engine would read."""
    return lazy_rows(private._rows).collect()


# ---------------------------------------------------------------- as in Polars


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        lambda f: f.drop_nulls(),
        lambda f: f.drop_nulls("n"),
        lambda f: f.drop_nulls(["n", "word"]),
        lambda f: f.drop_nulls(cs.numeric()),
        lambda f: f.drop_nulls([cs.string(), "flag"]),
        lambda f: f.fill_null(False),
        lambda f: f.fill_null("none").drop("kind"),  # categories become text here
        lambda f: f.fill_null(date(2000, 1, 1)),
        lambda f: f.drop("user", "money").fill_null(0),
        lambda f: f.drop("user").fill_null(7, matches_supertype=False),
        lambda f: f.drop("user").fill_null(0.5, matches_supertype=False),
        lambda f: f.select("n", "x").fill_null(1.5),
        lambda f: f.select("n", "x").fill_null(strategy="one"),
        lambda f: f.select("n", "x").fill_null(pl.col("x")),
        lambda f: f.cast({"n": pl.Float64, "day": pl.Datetime("us")}),
        lambda f: f.cast({cs.boolean(): pl.Int8}),
        lambda f: f.cast({pl.Int32: pl.Int64, "word": str}),
        lambda f: f.cast({"n": int}),
        lambda f: f.select("n", "flag").cast(pl.Float64),
        lambda f: f.unnest("trip"),
        lambda f: f.unnest("trip", separator="."),
        lambda f: f.unnest(),
        lambda f: f.unnest(cs.struct()),
        lambda f: f.pipe(lambda own, least, most: own.filter(pl.col("n").is_between(least, most)), 2, most=4),
    ],
)
def test_a_step_gives_the_rows_and_types_that_polars_gives(step):
    frame = FRAME.with_columns(pl.col("user").fill_null(9))
    everyone = dp.Session(epsilon=1.0, unit=dp.ROW)
    private, plain = step(dp.private(frame, everyone)), step(frame)
    assert private.schema == plain.schema
    assert private.columns == plain.columns
    assert_frame_equal(rows(private), plain, categorical_as_str=True)


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("lazy", [False, True])
def test_keys_of_a_join_may_have_two_names_and_the_public_frame_may_be_lazy(how, lazy, session):
    public = pl.DataFrame({"letter": ["a", "b", "c"], "number": [1, 2, 3], "x": [5, 6, 7]})
    collected = []

    def noted(batch):
        collected.append(batch.height)
        return batch

    given = public.lazy().map_batches(noted, schema=public.schema) if lazy else public
    private = dp.private(FRAME, session).join(given, left_on="word", right_on="letter", how=how)
    plain = FRAME.join(public, left_on="word", right_on="letter", how=how, maintain_order="left")
    assert private.columns == plain.columns
    assert_frame_equal(rows(private), plain, check_row_order=False, categorical_as_str=True)
    private.preview.count(epsilon=0.1)
    assert collected == [3] * lazy


def test_a_join_by_two_names_is_another_question_than_one_by_others(session):
    public = pl.DataFrame({"a": ["x", "y"], "b": ["y", "x"]})
    frame = dp.private(FRAME, session)
    plans = [frame.join(public.rename({}), left_on="word", right_on=key, how="semi") for key in "ab"]
    first, second = (own.preview.count(epsilon=0.1).fingerprint() for own in plans)
    assert first != second


def test_a_step_is_the_same_question_as_the_longer_form(session):
    frame = dp.private(FRAME, session)
    pairs = [
        (frame.drop_nulls("n"), frame.filter(pl.col("n").is_not_null())),
        (frame.fill_null("?"), frame.with_columns(pl.col("word", "kind").fill_null(pl.lit("?")))),
        (frame.cast({"n": pl.Int64}), frame.with_columns(pl.col("n").cast(pl.Int64))),
    ]
    for short, long in pairs:
        assert short.preview.count(epsilon=0.1).fingerprint() == long.preview.count(epsilon=0.1).fingerprint()


def test_no_value_makes_a_cast_fail_and_types_are_known_without_rows(session):
    frame = dp.private(FRAME, session).cast({"word": pl.Int64, "x": pl.Int8, "money": pl.Int8}, strict=True)
    assert rows(frame)["word"].to_list() == [None, None, 7, None, None]
    assert rows(frame)["x"].to_list() == [1, None, None, None, -2]
    empty = dp.private(FRAME.head(0), session).cast({"word": pl.Int64, "x": pl.Int8, "money": pl.Int8})
    assert empty.schema == frame.schema


def test_the_unit_stays_as_it_is(session):
    frame = dp.private(FRAME, session)
    assert rows(frame.fill_null(0))["user"].to_list() == FRAME["user"].to_list()
    assert frame.select("n").cast(pl.String).schema == {"user": pl.Int64, "n": pl.String}
    for refused in (lambda: frame.cast({"user": pl.String}), lambda: frame.join(FRAME, "n").cast({"user": pl.Int8})):
        with pytest.raises(dp.InvalidParameterError):
            refused()
    for step in (lambda f: f.cast(pl.String), lambda f: f.fill_null(0)):  # nobody pays yet, so the unit is unknown
        with pytest.raises(dp.InvalidParameterError, match="a step of this private frame made it"):
            step(dp.private(FRAME.select("user", "n"))).count(session=session, epsilon=0.1)
    nested = FRAME.select(pl.struct(user=pl.col("n")).alias("who"), "n")
    with pytest.raises(dp.InvalidParameterError, match="a step of this private frame made it"):
        dp.private(nested).unnest("who").count(session=session, epsilon=0.1)


def test_columns_and_schema_are_copies(session):
    frame = dp.private(FRAME, session)
    frame.columns.append("more")
    frame.schema["more"] = pl.Int8()
    assert frame.columns == FRAME.columns
    assert frame.schema == FRAME.schema


def test_len_of_groups_is_named_as_in_polars(session):
    frame = dp.private(FRAME, session)
    for asked in (frame, frame.preview):
        asked.group_by("word").len(keys=["a"], epsilon=0.01)
    assert frame.group_by("word").len(keys=["a"], epsilon=0.01).columns == ["word", "len"]
    assert frame.group_by(["word", "flag"]).len("n", keys={"word": ["a"], "flag": [True]}, epsilon=0.01).columns == [
        "word", "flag", "n",
    ]  # fmt: skip
    year = frame.group_by(year=pl.col("day").dt.year()).agg(
        [dp.count().alias("all"), dp.count("n").alias("some")], keys=[2024], epsilon=0.01
    )
    assert year.columns == ["year", "all", "some"]


def test_a_mapping_of_keys_stands_for_all_combinations(session):
    frame = dp.private(FRAME, session)
    keys = {"flag": [True, None], "word": pl.Series(["b", "a", "c"])}
    plan = frame.preview.count(["word", "flag"], keys=keys, epsilon=0.1)
    longer = pl.DataFrame({"word": ["a", "b", "c"]}).join(pl.DataFrame({"flag": [None, True]}), how="cross")
    for same in (longer, longer.reverse(), longer.lazy()):
        other = frame.preview.count(["word", "flag"], keys=same, epsilon=0.1)
        assert plan.fingerprint() == other.fingerprint()
    assert plan.query.domain.rows() == longer.sort("word", "flag").rows()
    one = frame.preview.count("word", keys={"word": ["a", "b"]}, epsilon=0.1)
    assert one.fingerprint() == frame.preview.count("word", keys=["b", "a"], epsilon=0.1).fingerprint()


# ---------------------------------------------------------------- refusals say what to write instead


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda f: f.drop_nulls("wrd"), "no column wrd; it has user, n"),
        (lambda f: f.drop_nulls(pl.col("n") + 1), "by name or by selector"),
        (lambda f: f.fill_null(), "a value or a strategy"),
        (lambda f: f.fill_null(0, "zero"), "a value or a strategy"),
        (lambda f: f.fill_null(strategy="forward"), "from other rows.*fill_null\\(0\\)"),
        (lambda f: f.fill_null(strategy="mean"), "from other rows"),
        (lambda f: f.fill_null(pl.col("n").mean()), "looks at other rows"),
        (lambda f: f.cast({"nn": pl.Int8}), "no column nn"),
        (lambda f: f.cast({"n": pl.Categorical}), "depend on other rows"),
        (lambda f: f.cast({"n": "int"}), "types of Polars or Python"),
        (lambda f: f.unnest("n"), "n has the type Int32"),
        (lambda f: f.rename({"n": "km"}).unnest("trip"), "two columns the name km.*separator="),
        (lambda f: f.join(FRAME.lazy().dp, on="n"), "this frame is private"),
        (lambda f: f.join(f, on="n"), "this frame is private"),
        (lambda f: f.join(FRAME.to_dicts(), on="n"), "got list"),
        (lambda f: f.join(FRAME, on="n", left_on="n"), "not both"),
        (lambda f: f.join(FRAME, left_on="n"), "needs keys"),
        (lambda f: f.join(FRAME), "needs keys"),
        (lambda f: f.join(FRAME, left_on=["n", "x"], right_on="n"), "2 keys and right_on= has 1"),
        (lambda f: f.join(FRAME, on=pl.col("n")), "names of columns"),
        (lambda f: f.join(FRAME.rename({"n": "m"}), on="n"), "public frame has no column n; it has user, m"),
        (lambda f: f.count("word", keys=f, epsilon=0.1), "keys= takes public rows, but this frame is private"),
        (lambda f: f.noisy_max("word", f.preview, epsilon=0.1), "candidates= takes public rows"),
        (lambda f: f.count("word", keys={"wrd": ["a"]}, epsilon=0.1), "each key, word, but it has wrd"),
        (lambda f: f.count(["word", "n"], keys={"word": ["a"]}, epsilon=0.1), "each key, word, n, but it has word"),
        (lambda f: f.count(["word", "n"], keys={"word": ["a"], "n": "b"}, epsilon=0.1), r"keys\['n'\]= is a list"),
        (lambda f: f.count(["word", "n"], keys={"word": ["a"], "n": []}, epsilon=0.1), "between 1 and"),
        (lambda f: f.count(["word", "n"], keys=["a"], epsilon=0.1), r"keys=\{'word': \[...\], 'n': \[...\]\}"),
        (
            lambda f: f.count(["n", "user2"], keys={"n": range(10**4), "user2": range(10**4)}, epsilon=0.1),
            "more than 10,000,000 combinations",
        ),
        (lambda f: f.group_by("n", maintain_order=True), "maintain_order= is neither"),
        (lambda f: f.count(dp.count(), epsilon=0.1), "private aggregate"),
        (lambda f: f.filter(dp.count() > 3), "'>' not supported|private aggregate"),
        (lambda f: f.count(epsilon=0.1, label=" "), "must be a text that is not empty"),
        (lambda f: f.count(epsilon=0.1, label="x" * 201), "at most 200"),
    ],
)
def test_a_refusal_says_what_to_write_and_charges_nothing(session, call, text):
    frame = dp.private(FRAME.with_columns(user2=pl.col("n")), session)
    with pytest.raises((dp.DPError, TypeError), match=text):
        call(frame)
    assert session.releases == ()


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f.group_by("word").agg(dp.count()),
        lambda f: f.group_by("word").agg(n=dp.count()),
        lambda f: f.group_by("word").agg([dp.sum("n", bounds=(0, 1)), pl.len()]),
        lambda f: f.select(dp.mean("n", bounds=(0, 1))),
        lambda f: f.with_columns(n=dp.count()),
        lambda f: f.filter(dp.count()),
        lambda f: f.select(pl.col("n") / dp.count()),
        lambda f: dp.count().cast(pl.Int8),
    ],
)
def test_a_private_aggregate_without_dp_says_that_dp_is_missing(call):
    for frame in (FRAME, FRAME.lazy()):
        with pytest.raises(dp.InvalidParameterError, match=r"private aggregate.*df\.dp\.group_by") as refused:
            call(frame)
        assert refused.value.code == "not-private"


def test_a_private_aggregate_can_be_copied_printed_and_inspected():
    call = dp.quantile(pl.col("n") * 2, [0.1, 0.9], bounds=(0, 9), weight=2).alias("ends")
    for again in (copy.copy(call), copy.deepcopy(call), pickle.loads(pickle.dumps(call))):
        assert repr(again) == repr(call)
        assert type(again) is type(call)
        assert isinstance(again, dp.AggregateCall)
    assert repr(dp.cov("n", "x", bounds=((0, 1), (0, 2)))) == "dp.cov('n', 'x', bounds=((0, 1), (0, 2)))"
    assert not hasattr(call, "_repr_html_")
    assert not hasattr(call, "no_such_name")


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        (pl.col("n").mean(), "Write answer=dp.mean('n', bounds=(low, high))"),
        (pl.len(), "Write answer=dp.count()."),
        (pl.col("n").std().alias("z"), "Write answer=dp.std('n', bounds="),
        (pl.col("n").quantile(0.25), "Write answer=dp.quantile('n', 0.25, bounds="),
        (pl.col("n").n_unique(), "Write answer=dp.n_unique('n')."),
        (pl.col("n").first(), "another aggregate of dp"),
        (pl.col("n").sum() / pl.len(), "with answers after the release"),
    ],
)
def test_an_aggregate_of_polars_is_refused_with_the_private_one(session, given, instead):
    frame = dp.private(FRAME, session)
    for call in (frame.group_by("word").agg, frame.preview.group_by("word").agg):
        with pytest.raises(dp.InvalidParameterError) as refused:
            call(answer=given, epsilon=0.1)
        assert instead in str(refused.value)
        with pytest.raises(dp.InvalidParameterError):
            call(given, epsilon=0.1)


# ---------------------------------------------------------------- labels


QUESTIONS = {
    "aggregate": lambda f, **o: f.count(epsilon=0.1, **o),
    "agg": lambda f, **o: f.group_by("word").agg(n=dp.count(), keys=["a"], epsilon=0.1, **o),
    "choice": lambda f, **o: f.noisy_max("word", ["a", "b"], epsilon=0.1, **o),
    "best": lambda f, **o: f.select_best([1, 2], lambda c: pl.col("n") * c, (0, 9), epsilon=0.1, **o),
    "stream": lambda f, **o: f.sparse_vector(5, epsilon=0.1, **o),
    "online": lambda f, **o: f.online_queries({"flag": None}, alpha=0.2, epsilon=0.1, **o),
    "synthesis": lambda f, **o: f.synthesize({"flag": None, "word": ["a", "b"]}, epsilon=0.1, **o),
}


@pytest.mark.slow
@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_every_question_takes_a_label_which_the_ledger_keeps(session, ask):
    frame = dp.private(FRAME, session)
    plan = ask(frame.preview, label="weekly\x1b[31m figure")
    assert r"weekly\x1b[31m figure" in str(plan)
    ask(frame, label="weekly\x1b[31m figure")
    assert [one.label for one in session.releases] == ["weekly\x1b[31m figure"] == [plan.label()]
    assert "\x1b" not in session.describe() + session._repr_html_() + repr(session.releases[0])


def test_a_label_does_not_make_another_question(session):
    frame = dp.private(FRAME, session)
    first = frame.count(epsilon=0.1, label="one")
    assert first.equals(frame.count(epsilon=0.1, label="two"))
    assert first.equals(frame.count(epsilon=0.1))
    assert [one.label for one in session.releases] == ["one"]


def test_responses_take_a_label_too_and_steps_that_drop_rows_are_told_from_others():
    session = dp.Session(epsilon=1.0, unit="user", adjacency="replace")
    frame = dp.private(FRAME, session)
    all_rows = frame.fill_null(True).cast({"n": pl.Int64}).unnest("trip")
    all_rows.randomized_response("flag", epsilon=0.5, label="votes")
    assert [one.label for one in session.releases] == ["votes"]
    for fewer in (frame.drop_nulls("n"), frame.join(pl.DataFrame({"w": ["a"]}), left_on="word", right_on="w")):
        with pytest.raises(dp.InvalidParameterError, match="how many units are left"):
            fewer.randomized_response("flag", epsilon=0.1)


@pytest.mark.slow
def test_sql_takes_a_label_and_its_filters_are_in_the_default_one(session):
    con = dp.connect(None, session).register("visits", FRAME.drop("kind", "trip"))
    con.sql("SELECT dp_count(*, epsilon := 0.1, label := 'all of them') FROM visits")
    con.sql("SELECT dp_count(*, epsilon := 0.1) FROM visits WHERE n > 2 AND word IN ('a', 'b')")
    con.sql("SELECT dp_count_units() FROM visits", epsilon=0.1, label="people")
    labels = [one.label for one in session.releases]
    assert labels == ["all of them", "count where n > 2 and word in ['a', 'b'], unit user", "people"]
    plan = con.preview("SELECT dp_count(*, epsilon := 0.1) FROM visits WHERE day >= DATE '2024-01-01'")
    assert "filter" in str(plan)
    assert "day >= 2024-01-01" in str(plan)


def test_filters_are_in_the_default_label_shortened_and_in_the_plan(session):
    frame = dp.private(FRAME, session)
    late = frame.filter(pl.col("day") > date(2024, 1, 31), pl.col("money") < 2.5)
    plan = late.drop_nulls("n").preview.count("flag", epsilon=0.1)
    assert plan.label() == "count by flag where day > 2024-01-31 and money < 2.50 and n is not null, unit user"
    assert "day > 2024-01-31 and money < 2.50 and n is not null" in str(plan)
    long = frame.filter(pl.col("word").is_in([f"word {i}" for i in range(100)])).preview.count(epsilon=0.1)
    assert len(long.label()) < 100
    assert "..., unit user" in long.label()
    unchecked = frame.filter(pl.col("n") > 2, unchecked=True).preview.count(epsilon=0.1)
    assert unchecked.label() == "count, unit user"
    stream = frame.filter(pl.col("day") > datetime(2024, 1, 1)).preview.sparse_vector(5, epsilon=0.1)
    assert " where day > " in stream.label()


def test_sql_takes_a_mapping_of_keys_too(session):
    con = dp.connect(None, session).register("visits", FRAME.drop("kind", "trip"))
    keys = pl.DataFrame({"month": [1, 1, 2, 2], "word": ["a", "b", "a", "b"]})
    for given in ("{'WORD': ['b', 'a'], 'm': [1, 2]}", "[(1, 'a'), (1, 'b'), (2, 'a'), (2, 'b')]"):
        said = f"SELECT month(day) AS m, word, dp_count(*, keys := {given}) AS n FROM visits GROUP BY ALL"
        plan = con.preview(said, epsilon=0.1)
        assert plan.query.domain.rows() == keys.rows()
    with pytest.raises(dp.DPError, match=r"every key: word, flag .*It has word"):
        con.preview("SELECT word, flag, dp_count(*, keys := {'word': ['a']}) FROM visits GROUP BY ALL", epsilon=0.1)
