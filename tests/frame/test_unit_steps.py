"""Steps within a unit through `df.dp`: what is accepted, what comes out, what the plan derives, and what is refused."""

from datetime import date, datetime, timedelta

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dp
from dp_polars._engines.registry import engine_for
from dp_polars._engines.unit_steps import with_units, without_unread

ORDERS = pl.DataFrame(
    {
        "user": [1, 1, 1, 2, 2, 3, None],
        "day": [date(2024, 1, 5), date(2024, 1, 1), date(2024, 3, 1), date(2024, 2, 2), date(2024, 2, 2), None, None],
        "paid": [10.0, 0.1, 0.2, None, 5.0, 1.0, 99.0],
        "n": [1, 2, 3, 4, 5, 6, 7],
        "item": ["b", "a", "a", "c", "c", "x", "y"],
        "flag": [True, None, False, True, True, None, False],
        "kind": pl.Series(["p", "q", "p", "p", "q", "q", "p"], dtype=pl.Categorical),
    }
)
CUSTOMERS = pl.DataFrame({"user": [1, 2, 4, None], "country": ["x", "y", "x", "y"]})


@pytest.fixture
def session():
    return dp.Session(epsilon=8.0, delta=1e-6, unit="user", max_groups=3, max_rows_per_group=5)


def rows_of(frame) -> pl.DataFrame:
    """Return the private rows behind a frame, which only a test may see, without those that have no unit."""
    rows = with_units(frame._rows, ["user"])
    return engine_for(rows).read(rows).filter(pl.col("user").is_not_null())


def same(found: pl.DataFrame, wanted: pl.DataFrame) -> bool:
    wanted = wanted.filter(pl.col("user").is_not_null())
    names = wanted.columns
    assert found.columns == names
    found = found.cast(dict(wanted.schema))
    return found.sort(names).equals(wanted.sort(names))


GROUPS = {
    "n": pl.len(),
    "paid": pl.col("paid").sum(),
    "mean": pl.col("n").mean(),
    "least": pl.col("n").min(),
    "most": pl.col("paid").max(),
    "items": pl.col("item").n_unique(),
    "days": pl.col("day").drop_nulls().n_unique(),
    "counted": pl.col("paid").count(),
    "length": pl.col("paid").len(),
    "missing": pl.col("paid").null_count(),
    "any": pl.col("flag").any(),
    "all": pl.col("flag").all(),
    "median": pl.col("n").median(),
    "first": pl.col("item").sort_by("n").first(),
    "last": pl.col("item").sort_by("day", "n", descending=[True, False]).last(),
    "spread": pl.col("n").max() - pl.col("n").min(),
    "large": pl.col("n").filter(pl.col("paid") > 1).sum(),
    "how_many_large": pl.col("n").filter(pl.col("paid") > 1).len(),
    "doubled": (pl.col("n") * 2).sum() + 1,
    "constant": pl.lit(7),
    "upper": pl.col("n").quantile(0.75, "linear"),
}


def test_groups_of_a_unit_are_those_of_polars(session):
    private = dp.private(ORDERS, session)
    found = rows_of(private.group_by("user").agg(**GROUPS))
    assert same(found, ORDERS.group_by("user").agg(**GROUPS))
    by_kind = private.group_by("user", "kind").agg(pl.len().alias("n"), pl.col("paid").sum())
    assert by_kind.schema["kind"] == pl.String  # the order of categories depends on other rows
    plain = ORDERS.with_columns(pl.col("kind").cast(pl.String))
    assert same(rows_of(by_kind), plain.group_by("user", "kind").agg(pl.len().alias("n"), pl.col("paid").sum()))
    month = pl.col("day").dt.truncate("1mo")
    assert same(
        rows_of(private.group_by("user", month=month).agg(n=pl.len())),
        ORDERS.group_by("user", month=month).agg(n=pl.len()),
    )


def test_variances_within_a_unit_are_those_of_polars(session):
    made = {"a": pl.col("n").std(), "b": pl.col("paid").var(ddof=0), "c": pl.col("n").filter(pl.col("paid") > 1).std()}
    found = rows_of(dp.private(ORDERS, session).group_by("user").agg(**made))
    assert_frame_equal(
        found, ORDERS.drop_nulls("user").group_by("user").agg(**made), check_row_order=False, rel_tol=1e-12
    )


NULLS = pl.DataFrame(
    {
        "user": [1, 1, 1, 1, 2, 2, 3],
        "n": [1, 2, 3, 4, 5, 6, 7],
        "x": [None, 4, 2, None, None, None, 1],
        "real": [2.0, float("nan"), 1.0, 3.0, float("nan"), 5.0, None],
        "flag": [True, True, None, True, False, True, True],
    }
)
SKIPPED = {
    "not_null": pl.col("x").drop_nulls().len(),
    "flagged": pl.col("x").filter(pl.col("flag")).drop_nulls().len(),
    "counted": pl.col("x").drop_nulls().count(),
    "total": pl.col("x").drop_nulls().sum(),
    "values": pl.col("x").filter(pl.col("flag")).drop_nulls().n_unique(),
    "at_least": pl.col("n").min_by("real"),
    "at_most": pl.col("n").max_by("real"),
    "at_null": pl.col("n").max_by("x"),
}


@pytest.mark.parametrize("name", SKIPPED)
def test_functions_that_skip_nulls_and_nan_are_those_of_polars(session, name):
    made = {"made": SKIPPED[name]}
    assert same(rows_of(dp.private(NULLS, session).group_by("user").agg(**made)), NULLS.group_by("user").agg(**made))


def test_running_extremes_pass_over_nan_as_those_of_polars_do(session):
    for running in (pl.col("real").cum_min(), pl.col("real").cum_max()):
        made = {"made": running.over("user", order_by="n")}
        assert same(rows_of(dp.private(NULLS, session).with_columns(**made)), NULLS.with_columns(**made))


WINDOWS = {
    "total": pl.col("n").sum().over("user"),
    "many": pl.len().over("user"),
    "before": pl.col("n").shift(1).over("user", order_by="n"),
    "after": pl.col("item").shift(-1).over("user", order_by="n"),
    "filled": pl.col("n").shift(1, fill_value=-5).over("user", order_by="n"),
    "filled_after": pl.col("n").shift(-2, fill_value=0).over("user", order_by="n"),
    "step": pl.col("n").diff().over("user", order_by="n"),
    "running": pl.col("n").cum_sum().over("user", order_by="n"),
    "so_far": pl.col("paid").cum_count().over("user", order_by="n"),
    "highest": pl.col("n").cum_max().over("user", order_by="n"),
    "rank": pl.col("paid").rank("min").over("user"),
    "dense": pl.col("item").rank("dense", descending=True).over("user"),
    "number": pl.int_range(pl.len()).over("user", order_by="n"),
    "first": pl.col("item").first().over("user", order_by="n"),
    "by_item": pl.col("n").max().over("user", "item"),
    "share": (pl.col("n") / pl.col("n").sum()).over("user"),
    "last_three": pl.col("n").rolling_sum(3).over("user", order_by="n"),
    "mean_of_three": pl.col("n").rolling_mean(3, min_samples=1).over("user", order_by="n"),
    "most_of_two": pl.col("n").rolling_max(2).over("user", order_by="n"),
    "backwards": pl.col("n").cum_sum().over("user", order_by=["flag", "n"], descending=True),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_within_a_unit_are_those_of_polars(session, name):
    frame = ORDERS.select("user", "n", "paid", "item", "flag")
    made = {"made": WINDOWS[name]}
    assert same(rows_of(dp.private(frame, session).with_columns(**made)), frame.with_columns(**made))
    assert same(rows_of(dp.private(frame.lazy(), session).with_columns(**made)), frame.with_columns(**made))


TIMED = pl.DataFrame(
    {
        "user": [1, 1, 1, 1, 1, 2, 2, 3, None],
        "day": [date(2024, 1, one) for one in (1, 2, 2, 5, 9, 1, 3, 7, 1)],
        "n": [1, 2, 4, 7, 11, 3, 6, 5, 9],
        "paid": [1.5, None, 2.0, 4.0, 0.5, None, 1.0, None, 3.0],
    }
).with_columns(at=pl.col("day").cast(pl.Datetime("ms")) + pl.duration(hours=pl.col("n")))
PAID, N = pl.col("paid"), pl.col("n")
ROLLED = {
    "sum": PAID.rolling_sum_by("day", "2d").over("user"),
    "sum closed on both sides": PAID.rolling_sum_by("day", "1d", closed="both", min_samples=1).over("user"),
    "sum before": N.rolling_sum_by("day", "3d", closed="left", min_samples=1).over("user"),
    "sum within": N.rolling_sum_by("day", "3d", closed="none").over("user"),
    "mean": N.rolling_mean_by("at", "30h").over("user"),
    "mean of two": PAID.rolling_mean_by("day", "1w", min_samples=2).over("user"),
    "least": N.rolling_min_by("at", timedelta(days=3)).over("user"),
    "most": PAID.rolling_max_by("n", "4i").over("user"),
    "rows": pl.len().rolling("day", period="3d").over("user"),
    "parts": (N.sum() / pl.len()).rolling("at", period="2d", closed="both").over("user"),
    "later": N.max().rolling("n", period="3i", offset="0i").over("user"),
    "count": PAID.count().rolling("at", period="50h", offset="-1d").over("user"),
    "first": N.first().rolling("n", period="6i").over("user"),
}


@pytest.mark.parametrize("name", ROLLED)
def test_rolling_windows_within_a_unit_are_those_of_polars(session, name):
    made = {"made": ROLLED[name]}
    expected = TIMED.sort("user", "at").with_columns(**made)
    assert same(rows_of(dp.private(TIMED.reverse(), session).with_columns(**made)), expected)


def test_a_rolling_frame_is_that_of_polars(session):
    made = {"n": pl.len(), "most": N.max().alias("x") + 1, "paid": PAID.mean()}
    for words in ({"period": "3d"}, {"period": "1w", "closed": "both"}, {"period": "2d", "offset": "-1d"}):
        found = rows_of(dp.private(TIMED, session).rolling("day", group_by="user", **words).agg(**made))
        expected = TIMED.drop_nulls("user").sort("user", "day").rolling("day", group_by="user", **words).agg(**made)
        assert same(found, expected.select(found.columns)), words


@pytest.mark.parametrize(
    ("rolled", "message"),
    [
        (N.rolling_sum_by("day", "1mo").over("user"), "fixed length"),
        (N.rolling_sum_by("day", "5h").over("user"), "fixed length"),
        (N.rolling_sum_by("at", "3i").over("user"), "fixed length"),
        (N.rolling_median_by("day", "5d").over("user"), "sum, mean, min and max"),
        (N.rolling_std(2).over("user", order_by="day"), "sum, mean, min and max"),
        (N.median().rolling("day", period="5d").over("user"), "median"),
        ((N - N.mean()).rolling("day", period="5d").over("user"), "not aggregated"),
        (N.rolling_sum_by("day", "5d"), "looks at other rows"),
        (N.sum().rolling("day", period="5d"), "looks at other rows"),
    ],
)
def test_other_rolling_windows_are_refused(session, rolled, message):
    with pytest.raises(dp.ExpressionNotAllowed, match=message):
        dp.private(TIMED, session).with_columns(made=rolled)


def test_rolling_windows_need_the_unit(session):
    with pytest.raises(dp.InvalidParameterError, match="rows of different people"):
        dp.private(TIMED, session).rolling("day", period="3d", group_by="paid").agg(made=pl.len())


@pytest.mark.parametrize("dtype", [pl.Int64, pl.String])
def test_the_arms_of_units_are_those_of_sql(dtype):
    frame = pl.DataFrame({"user": [*range(40), None] * 2}).cast(dtype)
    session = dp.Session(epsilon=1.0, unit="user")
    raw = duckdb.connect()
    for salt, parts in (("", 2), ("colour", 7)):
        found = rows_of(dp.private(frame, session).arms(parts, salt=salt))
        asked = f"SELECT *, md5_number_lower(concat('{salt}', user)) % {parts} AS arm FROM frame WHERE user IS NOT NULL"
        assert same(found, raw.sql(asked).pl())
        assert found["arm"].n_unique() == parts


def test_a_plan_says_which_steps_combine_rows_and_why_this_is_safe(session):
    private = dp.private(ORDERS.drop("kind"), session)
    joined = private.join(private.select("user", m="n"), on="user").with_columns(k=pl.col("n").max().over("user"))
    plan = str(joined.preview.count(epsilon=0.1))
    assert "inner join on user; windows over user: rows of one user are combined, so nobody else's rows change" in plan
    assert "more than 1,000,000 pairs in a join, 1,000 rows on each side are kept" in plan
    grouped = private.join(private.group_by("user").agg(m=pl.len()), on="user").preview.noisy_max(
        "item", candidates=["a", "b"], epsilon=0.1
    )
    assert "rows grouped by user; inner join on user: rows of one user" in str(grouped)
    assert "pairs" not in str(grouped)
    assert "within each unit" not in str(private.preview.count(epsilon=0.1))


def test_arms_need_no_cap_and_cut_nothing_off(session):
    private = dp.private(ORDERS, dp.Session(epsilon=1.0, unit="user")).arms(3)
    plan = private.preview.count_units("arm", keys=[0, 1, 2], epsilon=0.5)
    assert "the keys are constant for each unit" in str(plan)
    names = [{"name": name} for name in ("user", "USER", "^user$", "*", None)]
    for words in ({"parts": 0}, {"parts": "a"}, {"salt": 7}, {"salt": "\ud800"}, *names):
        with pytest.raises((dp.InvalidParameterError, dp.ExpressionNotAllowed)):
            private.arms(**words)


def test_filters_and_selections_take_windows_too(session):
    private = dp.private(ORDERS.drop("kind"), session)
    latest = pl.col("n") == pl.col("n").max().over("user")
    assert same(rows_of(private.filter(latest)), ORDERS.drop("kind").filter(latest))
    picked = [pl.col("user"), (pl.col("n") - pl.col("n").min().over("user")).alias("since")]
    assert same(rows_of(private.select(picked)), ORDERS.select(picked))
    assert private.filter(latest).columns == private.columns


def test_rows_are_kept_by_an_order_and_duplicates_dropped(session):
    private = dp.private(ORDERS.drop("kind"), session)
    assert rows_of(private.group_by("user").head(1, order_by="n", descending=True))["n"].sort().to_list() == [3, 5, 6]
    assert rows_of(private.group_by("user").tail(2, order_by="n"))["n"].sort().to_list() == [2, 3, 4, 5, 6]
    assert rows_of(private.unique(["user", "item"])).height == 4
    assert rows_of(private.select("user", "item").unique()).height == 4


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_private_frames_are_joined_on_the_unit(session, how):
    found = rows_of(dp.private(ORDERS, session).drop("kind").join(dp.private(CUSTOMERS, session), on="user", how=how))
    assert same(found, ORDERS.drop("kind").join(CUSTOMERS, on="user", how=how))
    renamed = dp.private(CUSTOMERS.rename({"user": "who"}), session, unit={"user": "who"})
    again = dp.private(ORDERS, session).drop("kind").join(renamed, left_on="user", right_on="who", how=how)
    assert same(rows_of(again), found)


def test_private_frames_are_put_below_each_other(session):
    small = ORDERS.select("user", "n")
    both = dp.concat([dp.private(small, session), dp.private(small.select("n", "user"), session)])
    assert same(rows_of(both), pl.concat([small, small]))
    assert both.preview.count(epsilon=1).query.max_rows == 5


def test_the_plan_derives_caps_from_the_keys(session):
    private = dp.private(ORDERS, session)
    per_user = private.group_by("user").agg(n=pl.len())
    plan = per_user.preview.count("n", keys=[1, 2, 3], max_groups=3, max_rows_per_group=4, epsilon=0.5)
    assert (plan.bounds.max_groups, plan.query.max_rows) == (1, 1)
    assert "one row per unit after the steps before" in str(plan)
    assert "group_by within units" in str(plan)
    per_item = private.group_by("user", "item").agg(n=pl.len())
    plan = per_item.preview.count("item", keys=["a", "b", "c"], epsilon=0.5)
    assert (plan.bounds.max_groups, plan.query.max_rows) == (3, 1)
    assert per_item.preview.count(epsilon=0.5).query.max_rows == 5  # a unit may have several items
    changed = per_item.with_columns(item=pl.col("item").str.head(1))
    assert changed.preview.count("item", keys=["a", "b"], epsilon=0.5).query.max_rows == 5
    assert per_user.filter(pl.col("n") > 1).preview.count(epsilon=0.5).query.max_rows == 1


def test_a_key_that_is_a_function_of_the_unit_gives_one_group(session):
    private = dp.private(ORDERS, session)
    plan = private.preview.count((pl.col("user") % 2).alias("arm"), keys=[0, 1], epsilon=0.5)
    assert plan.bounds.max_groups == 1
    assert "functions of the unit" in str(plan)
    with pytest.raises(dp.InvalidParameterError, match="needs public keys"):
        private.count((pl.col("user") % 2).alias("arm"), epsilon=0.5)
    with pytest.raises(dp.InvalidParameterError, match="every group would be one person"):
        private.count("user", keys=[1, 2], epsilon=0.5)
    days = dp.Session(epsilon=1.0, unit=["user", "day"], max_rows_per_group=5)
    plan = dp.private(ORDERS, days).preview.count("day", keys=[date(2024, 1, 1)], epsilon=0.5)
    assert plan.bounds.max_groups == 1


def test_a_stored_release_is_found_again_and_another_step_is_another_question(session):
    private = dp.private(ORDERS, session)

    def asked(frame):
        frame.count(epsilon=0.5)
        return len(session.releases)

    per_user = private.group_by("user").agg(n=pl.len())
    assert asked(per_user) == 1
    assert asked(private.group_by("user").agg(n=pl.len())) == 1
    assert asked(private.group_by("user", "item").agg(n=pl.len())) == 2
    assert asked(private.unique(["user"])) == 3
    assert asked(private.group_by("user").head(1, order_by="n")) == 4
    assert asked(private.group_by("user").head(1, order_by="day")) == 5
    large = pl.col("n") > 2
    assert asked(per_user.filter(large)) == 6
    assert asked(private.filter(large).group_by("user").agg(n=pl.len())) == 7  # before the step it means other rows
    other = dp.private(CUSTOMERS, session)
    assert asked(private.join(other, on="user", how="semi")) == 8
    assert asked(private.join(other.filter(pl.col("country") == "x"), on="user", how="semi")) == 9
    assert asked(private.join(dp.private(CUSTOMERS.clone(), session), on="user", how="semi")) == 10
    assert asked(private.join(other, on="user", how="semi")) == 10
    first, second = dp.concat([private.select("n"), private.select("n")]), dp.concat([private.select("n")] * 3)
    assert (asked(first), asked(second), asked(first)) == (11, 12, 12)


SAME_ROWS = {
    "another function": lambda f, o: f.group_by("user").agg(n=pl.len(), m=pl.col("paid").sum()),
    "another column": lambda f, o: f.with_columns(x=pl.col("n") + 1).group_by("user").agg(n=pl.len()),
    "fewer columns": lambda f, o: f.select("item", "user").group_by("user").agg(n=pl.len()),
    "a window": lambda f, o: f.with_columns(x=pl.col("n").sum().over("user")).group_by("user").agg(n=pl.len()),
    "columns afterwards": lambda f, o: f.group_by("user").agg(n=pl.len(), m=pl.col("n").max()).select("user", "m", "n"),
    "conditions": lambda f, o: f.group_by("user").agg(n=pl.len()).filter(pl.lit(True)),
}
OTHER_ROWS = {
    "another key": lambda f, o: f.group_by("user", "item").agg(n=pl.len()),
    "fewer rows": lambda f, o: f.filter(pl.col("n") > 1).group_by("user").agg(n=pl.len()),
    "a value of the other function": lambda f, o: f.group_by("user").agg(n=pl.col("n").max()),
    "a condition on it": lambda f, o: f.group_by("user").agg(n=pl.len(), m=pl.col("n").max()).filter(pl.col("m") > 1),
    "a join": lambda f, o: f.join(o, on="user").group_by("user").agg(n=pl.len()),
    "another side": lambda f, o: o.join(f, on="user").group_by("user").agg(n=pl.len()),
    "a left join": lambda f, o: f.join(o, on="user", how="left").group_by("user").agg(n=pl.len()),
    "ties": lambda f, o: f.group_by("user").head(1, order_by="item").group_by("user").agg(n=pl.col("day").count()),
    "ties, fewer columns": lambda f, o: (
        f.drop("n").group_by("user").head(1, order_by="item").group_by("user").agg(n=pl.col("day").count())
    ),
    "windows with an order": lambda f, o: (
        f.with_columns(x=pl.int_range(pl.len()).over("user", order_by="item"))
        .filter(pl.col("x") == 0)
        .group_by("user")
        .agg(n=pl.len())
    ),
}


def test_columns_that_nobody_reads_do_not_make_a_question_new(session):
    private, other = dp.private(ORDERS, session), dp.private(CUSTOMERS, session)

    def asked(make):
        make(private, other).sum("n", bounds=(0, 5), epsilon=0.2)
        return len(session.releases)

    assert asked(lambda f, o: f.group_by("user").agg(n=pl.len())) == 1
    for name, make in SAME_ROWS.items():
        assert asked(make) == 1, name
    for place, (name, make) in enumerate(OTHER_ROWS.items()):
        assert asked(make) == place + 2, name
    joined = lambda f, o: f.join(o, on="user").group_by("user").agg(n=pl.len())  # noqa: E731
    assert asked(joined) == len(OTHER_ROWS) + 1


def test_a_text_that_a_step_makes_may_be_a_key(session):
    """Its column has a name that no user writes, and its values get codes like those of any other column."""
    frame = pl.DataFrame({"user": [i % 500 for i in range(1500)], "item": ["a", "b", "c"] * 500, "n": range(1500)})
    firsts = dp.private(frame, session).group_by("user").agg(item=pl.col("item").sort_by("n").first())
    for found in (firsts.count("item", epsilon=1), firsts.count("item", keys=["a", "b", "c"], epsilon=1)):
        assert found["item"].to_list() == ["a", "b", "c"]
        assert found["count"].is_between(100, 240).all()  # 167 and 166, and noise of scale 1: a false alarm below 1e-28
    listed = dp.private(frame.with_columns(item=pl.concat_list("item")), session).explode("item")
    assert listed.count("item", epsilon=1, max_groups=1)["item"].to_list() == ["a", "b", "c"]


LISTS = pl.DataFrame(
    {"user": [1, 1, 2, 3, None], "tags": [["a", "b", "a"], [], ["b", None], None, ["c"]], "n": [1, 2, 3, 4, 5]}
)


@pytest.mark.parametrize("most", [1, 2, 100])
def test_the_elements_of_a_list_become_rows_of_its_unit(session, most):
    found = rows_of(dp.private(LISTS, session).explode("tags", max_rows=most))
    wanted = LISTS.with_columns(pl.col("tags").list.head(most)).filter(pl.col("tags").list.len() > 0).explode("tags")
    assert same(found, wanted)
    for unit in (1, 2, 3):  # a unit that goes takes its own rows along, and no others
        rest = rows_of(dp.private(LISTS.filter(pl.col("user") != unit), session).explode("tags", max_rows=most))
        assert same(rest, wanted.filter(pl.col("user") != unit))


def test_lists_are_exploded_with_a_public_limit(session):
    private = dp.private(LISTS, session)
    plan = private.explode("tags", max_rows=2).preview.count("tags", keys=["a", "b"], epsilon=0.1)
    assert "after explode" in str(plan)
    assert plan.query.max_rows == 5  # nothing is known about how often an element is in a list
    for wrong, message in (
        (lambda: private.explode("n"), "only a list has elements"),
        (lambda: private.explode("tag"), "tag"),
        (lambda: private.explode("tags", max_rows=0), "max_rows"),
        (lambda: private.explode("tags", max_rows=10**6), "at most 10,000 rows"),
        (lambda: dp.private(LISTS.with_columns(user=pl.col("tags")), session).explode("user"), "can't explode it"),
    ):
        with pytest.raises(dp.InvalidParameterError, match=message):
            wrong()


WRITTEN_DIFFERENTLY = {
    "functions in another order": lambda f: f.group_by("user").agg(m=(pl.col("n") + 1).max(), t=pl.col("n").sum()),
    "other names": lambda f: f.group_by("user").agg(b=pl.col("n").sum(), a=(pl.col("n") + 1).max()).rename(
        {"a": "m", "b": "t"}
    ),
    "keys in another order": lambda f: f.with_columns(k=1).group_by("user").agg(
        t=pl.col("n").sum(), m=(pl.col("n") + 1).max(), more=pl.col("paid").max()
    ),
    "windows": lambda f: f.with_columns(b=pl.col("n").max().over("user"), a=pl.col("n").min().over("user")),
    "windows in another order": lambda f: f.with_columns(
        a=pl.col("n").min().over("user"), b=pl.col("n").max().over("user")
    ),
}  # fmt: skip


def test_the_order_of_functions_does_not_make_a_question_new(session):
    """The columns of a group are told apart by what they are, so swapping two of them is another question."""
    private = dp.private(ORDERS, session)
    first = private.group_by("user").agg(t=pl.col("n").sum(), m=(pl.col("n") + 1).max())

    def asked(frame, value):
        frame.sum(value, bounds=(0, 9), epsilon=0.2)
        return len(session.releases)

    both = pl.col("t") - pl.col("m")
    assert asked(first, both) == 1
    for name in list(WRITTEN_DIFFERENTLY)[:3]:
        assert asked(WRITTEN_DIFFERENTLY[name](private), both) == 1, name
    swapped = private.group_by("user").agg(m=pl.col("n").sum(), t=(pl.col("n") + 1).max())
    assert asked(swapped, both) == 2
    assert asked(private.group_by("user").agg(t=pl.col("n").sum(), m=(pl.col("n") + 2).max()), both) == 3
    assert asked(private.filter(pl.col("n") > 1).group_by("user").agg(t=pl.col("n").sum(), m=pl.len()), both) == 4
    windows, others = (WRITTEN_DIFFERENTLY[name](private) for name in list(WRITTEN_DIFFERENTLY)[3:])
    assert asked(windows, pl.col("b") - pl.col("a")) == 5
    assert asked(others, pl.col("b") - pl.col("a")) == 5
    assert asked(others, pl.col("a") - pl.col("b")) == 6


@pytest.mark.parametrize("name", [*SAME_ROWS, *OTHER_ROWS])
def test_rows_without_unread_columns_are_the_same_rows(session, name):
    frame = {**SAME_ROWS, **OTHER_ROWS}[name](dp.private(ORDERS, session), dp.private(CUSTOMERS, session))
    rows = with_units(frame._rows.keep(["user", "n"]), ["user"])
    fewer = without_unread(rows)
    found, wanted = (engine_for(one).read(one).sort("user", "n") for one in (fewer, rows))
    assert found.equals(wanted)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda f, o: f.group_by("item").agg(n=pl.len()), "agg takes private aggregates"),
        (lambda f, o: f.group_by("user").agg(n=pl.len(), m=dp.count()), "agg takes private aggregates"),
        (lambda f, o: f.group_by("user").agg(n=pl.col("n")), "is not aggregated"),
        (lambda f, o: f.group_by("user").agg(n=pl.col("n").first()), "depends on the order of the rows"),
        (lambda f, o: f.group_by("user").agg(n=pl.col("n").sum(), user=pl.len()), "two columns the same name"),
        (lambda f, o: f.group_by("user").agg(n=pl.col("n").implode()), "implode"),
        (lambda f, o: f.group_by("user").agg(n=pl.col("n").std(ddof=2)), "ddof=0 or ddof=1"),
        (lambda f, o: f.group_by("user").agg(n=pl.col("n").quantile(0.5)), "interpolation='linear'"),
        (lambda f, o: f.with_columns(n=pl.col("n").rolling_sum(2).over("user")), "depends on the order of the rows"),
        (lambda f, o: f.with_columns(n=pl.col("n").rolling_sum(2, center=True).over("user", order_by="n")), "center"),
        (lambda f, o: f.group_by("user").agg(n=pl.col("n").sum().sum()), "looks at other rows"),
        (lambda f, o: f.group_by("user").agg(n=pl.col("item").filter(pl.col("n") > 1).n_unique()), "drop_nulls"),
        (lambda f, o: f.with_columns(n=pl.col("n").drop_nulls().first().over("user", order_by="day")), "drop_nulls"),
        (lambda f, o: f.group_by("user").agg(n=pl.col("n").map_batches(lambda s: s)), "map_batches"),
        (lambda f, o: f.with_columns(n=pl.col("n").sum()), "looks at other rows"),
        (lambda f, o: f.with_columns(n=pl.col("n").sum().over("item")), "rows of different people would be combined"),
        (lambda f, o: f.filter(pl.col("n") > pl.col("n").mean().over("item")), "rows of different people"),
        (lambda f, o: f.with_columns(n=pl.col("n").shift(1).over("user")), "depends on the order of the rows"),
        (lambda f, o: f.with_columns(n=pl.col("n").rank("average").over("user")), "whole numbers"),
        (lambda f, o: f.with_columns(n=pl.col("n").sum().over("user", mapping_strategy="join")), "over"),
        (lambda f, o: f.with_columns(user=pl.col("n").sum().over("user")), "says who is protected"),
        (lambda f, o: f.unique(["item"]), "rows of different people would be combined"),
        (lambda f, o: f.group_by("item").head(1, order_by="n"), "rows of different people would be combined"),
        (lambda f, o: f.join(o, left_on="item", right_on="country"), "Two private frames can be joined on the unit"),
        (lambda f, o: f.join(o, left_on="n", right_on="user"), "Two private frames can be joined on the unit"),
        (lambda f, o: dp.concat([f, o]), "same columns and types"),
        (lambda f, o: dp.concat([f, ORDERS]), "list of private frames"),
        (lambda f, o: f.unique("user").with_columns(x=pl.col("n"), unchecked=True), "Put the unchecked step first"),
        (lambda f, o: f.sessions("n", "1h"), "has the type Int64"),
        (lambda f, o: f.sessions("day", "soon"), "a timedelta, or a text such as"),
        (lambda f, o: f.funnel({"a": pl.col("n") > 1}, time="day"), "two or more steps"),
        (lambda f, o: f.retention("day", "2w"), "retention counts periods of"),
    ],
)
def test_what_is_refused_says_why_and_charges_nothing(session, call, text):
    with pytest.raises(dp.DPError, match=text):
        call(dp.private(ORDERS, session), dp.private(CUSTOMERS, session))
    assert session.spent.epsilon == 0


def test_a_step_is_checked_against_the_session_that_pays():
    """Without a session at hand, windows and duplicates are planned, and refused when they are asked."""
    private = dp.private(ORDERS)
    by_item = private.with_columns(n=pl.col("n").sum().over("item"))
    by_user = private.with_columns(n=pl.col("n").sum().over("user"))
    options = {"epsilon": 0.1, "max_rows_per_group": 2}
    users, rows = dp.Session(epsilon=1.0, unit="user"), dp.Session(epsilon=1.0, unit=dp.ROW)
    pairs = dp.Session(epsilon=1.0, unit=["user", "item"])
    by_user.count(session=users, **options)
    for frame, session in ((by_item, users), (by_user, rows), (by_user, pairs), (private.unique(["item"]), users)):
        with pytest.raises(dp.InvalidParameterError, match="combine"):
            frame.count(session=session, **options)
        assert len(session.releases) <= 1
    joined = dp.private(ORDERS, users).join(dp.private(CUSTOMERS, unit="country", weaker_unit=True), on="user")
    with pytest.raises(dp.InvalidParameterError, match="unit of the second one"):
        joined.count(session=users, **options)


def test_a_join_without_the_unit_is_refused_by_the_session_that_pays():
    orders, items = dp.private(ORDERS), dp.private(ORDERS.select("user", "item"))
    users = dp.Session(epsilon=1.0, unit="user")
    for other in (items, dp.private(ORDERS.select("item", price="n"))):
        joined = orders.join(other, on="item")
        for ask in (joined, joined.preview):
            with pytest.raises(dp.InvalidParameterError, match=r"join by item .* can be joined on the unit"):
                ask.count(session=users, epsilon=0.1, max_rows_per_group=2)
    assert not users.releases


def test_a_made_column_never_becomes_the_unit(session):
    other = dp.private(CUSTOMERS.rename({"user": "who"}))
    faked = other.with_columns(user=pl.col("who") * 0)
    with pytest.raises(dp.InvalidParameterError, match="a step of this private frame made it"):
        dp.private(ORDERS, session).join(faked, on="user").count(epsilon=0.1)


@pytest.mark.parametrize("combined", ["inner", "semi", "concat", "nested"])
def test_no_session_pays_for_the_rows_of_a_frame_that_belongs_to_another(session, combined):
    other = dp.Session(epsilon=1.0, unit="user")
    first, second = dp.private(CUSTOMERS, session), dp.private(CUSTOMERS, other)
    frame = {
        "inner": lambda: first.join(second, on="user"),
        "semi": lambda: first.join(second, on="user", how="semi"),
        "concat": lambda: dp.concat([first, second]),
        "nested": lambda: first.join(dp.private(CUSTOMERS).join(second, on="user", how="anti"), on="user", how="semi"),
    }[combined]()
    for ask in (frame, frame.preview):
        with pytest.raises(dp.InvalidParameterError, match="each of them has a session of its own"):
            ask.count(epsilon=0.5)
    assert (session.spent.epsilon, other.spent.epsilon) == (0, 0)


FORGOTTEN = {
    "on the unit": lambda f: f.join(CUSTOMERS.drop_nulls(), on="user"),
    "lazy": lambda f: f.join(CUSTOMERS.drop_nulls().lazy(), on="user", how="left"),
    "semi": lambda f: f.join(CUSTOMERS, on="user", how="semi"),
    "anti, another name": lambda f: f.join(
        CUSTOMERS.rename({"user": "who"}), left_on="user", right_on="who", how="anti"
    ),
    "on more columns": lambda f: f.join(ORDERS.select("user", "n"), on=["user", "n"]),
    "a copy": lambda f: f.with_columns(who=pl.col("user")).join(CUSTOMERS, left_on="who", right_on="user", how="semi"),
    "a function": lambda f: f.with_columns(who=pl.col("user").cast(pl.String)).join(
        CUSTOMERS.select(who=pl.col("user").cast(pl.String)), on="who", how="semi"
    ),
    "after a group": lambda f: f.group_by("user").agg(n=pl.len()).join(CUSTOMERS, on="user", how="semi"),
    "a copy after a group": lambda f: (
        f.with_columns(who=pl.col("user") + 0)
        .group_by("user", "who")
        .agg(n=pl.len())
        .join(CUSTOMERS, left_on="who", right_on="user", how="semi")
    ),
    "a value of a group": lambda f: (
        f.group_by("user").agg(who=pl.col("user").max()).join(CUSTOMERS, left_on="who", right_on="user", how="semi")
    ),
    "a group of the second table": lambda f: dp.concat(
        [f.select("user", who=pl.col("n")), f.select("user", who=pl.col("user"))]
    ).join(CUSTOMERS, left_on="who", right_on="user", how="semi"),
    "before a group": lambda f: f.join(CUSTOMERS, on="user", how="semi").group_by("user").agg(n=pl.len()),
    "in the other frame": lambda f: f.join(dp.private(CUSTOMERS).join(CUSTOMERS, on="user", how="semi"), on="user"),
    "a copy in the other frame": lambda f: f.join(
        dp.private(CUSTOMERS).with_columns(who=pl.col("user")), on="user"
    ).join(CUSTOMERS, left_on="who", right_on="user", how="semi"),
    "units beside the key": lambda f: f.join(ORDERS.select("n", who="user").rename({"who": "user"}), on="n"),
}


@pytest.mark.parametrize("join", FORGOTTEN.values(), ids=FORGOTTEN)
def test_a_frame_that_names_units_is_not_taken_for_public(session, join):
    """A forgotten .dp would use the rows of other people as if they were public."""
    with pytest.raises(dp.InvalidParameterError, match="was not made private") as caught:
        join(dp.private(ORDERS, session)).count(epsilon=0.1)
    assert caught.value.code == "not-private"
    assert session.spent.epsilon == 0


@pytest.mark.parametrize("join", [FORGOTTEN[name] for name in FORGOTTEN if "group" not in name])
def test_a_frame_that_names_units_is_not_taken_for_public_by_the_session_that_pays(session, join):
    joined = join(dp.private(ORDERS))  # nobody knows the unit yet
    with pytest.raises(dp.InvalidParameterError, match="was not made private"):
        joined.count(epsilon=0.1, session=session)
    assert session.spent.epsilon == 0


def test_a_frame_that_names_units_may_be_said_to_be_public(session):
    private, public = dp.private(ORDERS, session), CUSTOMERS.drop_nulls()
    found = rows_of(private.drop("kind").join(public, on="user", public=True))
    assert same(found, ORDERS.drop("kind").join(public, on="user"))
    assert private.join(public, on="user", how="semi", public=True).count(epsilon=0.1).height == 1
    assert private.join(pl.DataFrame({"item": ["a"]}), on="item").count(epsilon=0.1).height == 1
    with pytest.raises(dp.InvalidParameterError, match="this frame is private"):
        private.join(dp.private(public, session), on="user", public=True)
    with pytest.raises(dp.InvalidParameterError, match="public"):
        private.join(public, on="user", public="yes")


def test_a_frame_without_units_needs_no_word():
    rows = dp.Session(epsilon=1.0, unit=dp.ROW, max_rows_per_group=1)
    assert dp.private(ORDERS, rows).join(CUSTOMERS, on="user", how="semi").count(epsilon=0.1).height == 1


def test_names_that_engines_use_are_refused_before_a_step_meets_them(session):
    """A later step may drop such a column, so it does not help to look at the columns of the question."""
    with pytest.raises(dp.InvalidParameterError, match="reserved"):
        dp.private(ORDERS.rename({"n": "\0size"}), session)
    private = dp.private(ORDERS, session)
    for made in (
        lambda: private.with_columns(pl.col("n").alias("\0size")),
        lambda: private.select(pl.col("n").alias("\0size")),
        lambda: private.rename({"n": "\0size"}),
        lambda: private.group_by("user", pl.col("n").alias("\0size")).agg(m=pl.len()),
        lambda: private.group_by("user").agg(pl.len().alias("\0size")),
        lambda: private.join(pl.DataFrame({"item": ["a"], "\0size": [1]}), on="item"),
        lambda: private.join(dp.private(CUSTOMERS, session).rename({"country": "\0size"}), on="user"),
    ):
        with pytest.raises(dp.InvalidParameterError, match="reserved"):
            made()


# ---------------------------------------------------------------------- behaviour


def test_sessions_end_where_the_gap_is_too_long(session):
    minutes = [0, 10, 40, 41, 200, 200, 500, None]
    start = datetime(2024, 1, 1)
    times = [None if m is None else start + timedelta(minutes=m) for m in minutes]
    frame = pl.DataFrame({"user": [1] * 8, "at": pl.Series(times, dtype=pl.Datetime("us"))}).sample(
        fraction=1, shuffle=True, seed=1
    )
    found = rows_of(dp.private(frame, session).sessions("at", "30m")).sort("at", nulls_last=True)
    assert found["session"].to_list() == [1, 1, 1, 1, 2, 2, 3, None]
    found = rows_of(dp.private(frame, session).sessions("at", timedelta(minutes=29), name="visit")).sort("at")
    assert found["visit"].max() == 4


def test_a_funnel_finds_the_last_step_in_order(session):
    events = {
        1: ["home", "cart", "pay"],
        2: ["cart", "home", "pay"],  # the cart comes too early
        3: ["home", "home", "cart"],
        4: ["pay"],
        5: ["home", "cart", "home", "pay"],
    }
    rows = [(user, datetime(2024, 1, 1 + 2 * i), what) for user, done in events.items() for i, what in enumerate(done)]
    frame = pl.DataFrame(rows, schema=["user", "at", "what"], orient="row").sample(fraction=1, shuffle=True, seed=2)
    what = pl.col("what")
    steps = {"home": what == "home", "cart": what == "cart", "paid": what == "pay"}
    found = rows_of(dp.private(frame, session).funnel(steps, time="at"))
    assert dict(found.iter_rows()) == {1: "paid", 2: "home", 3: "cart", 5: "paid"}
    found = rows_of(dp.private(frame, session).funnel(steps, time="at", within="5d"))
    assert dict(found.iter_rows()) == {1: "paid", 2: "home", 3: "cart", 5: "cart"}
    plan = dp.private(frame, session).funnel(steps, time="at").preview.count("step", epsilon=0.5)
    assert (plan.bounds.max_groups, plan.query.max_rows) == (1, 1)
    assert plan.query.domain["step"].to_list() == ["home", "cart", "paid"]  # there is no group for null


def test_retention_counts_periods_since_the_first(session):
    days = {1: ["2024-01-31", "2024-02-01", "2024-04-30"], 2: ["2023-12-31", "2024-01-01", "2024-12-31"], 3: [None]}
    rows = [(user, day) for user, listed in days.items() for day in listed]
    frame = pl.DataFrame(rows, schema={"user": pl.Int64, "day": pl.String}, orient="row").with_columns(
        pl.col("day").str.to_date()
    )
    private = dp.private(frame, session)
    found = rows_of(private.retention("day", periods=12)).sort("user", "period")
    assert found.rows() == [
        (1, date(2024, 1, 1), 0),
        (1, date(2024, 1, 1), 1),
        (1, date(2024, 1, 1), 3),
        (2, date(2023, 12, 1), 0),
        (2, date(2023, 12, 1), 1),
        (2, date(2023, 12, 1), 12),
    ]
    periods = {"1d": [0, 1, 90], "1w": [0, 13], "1q": [0, 1], "1y": [0]}
    for period, wanted in periods.items():
        found = rows_of(private.retention("day", period, periods=100)).filter(pl.col("user") == 1)
        assert found["period"].sort().to_list() == wanted, period
    plan = private.retention("day", periods=3).preview.count("period", keys=[0, 1, 2, 3], epsilon=0.5)
    assert plan.query.max_rows == 1


@pytest.mark.parametrize("nullable", [True, False])
def test_boolean_keys_have_a_group_for_null_only_where_null_is_possible(session, nullable):
    private = dp.private(ORDERS, session)
    frame = private if nullable else private.drop_nulls("flag")
    assert frame.preview.count("flag", epsilon=0.5).query.domain.height == (3 if nullable else 2)
    frame = private.with_columns(large=pl.col("n") > 3 if nullable else (pl.col("n") > 3).fill_null(value=False))
    assert frame.preview.count("large", epsilon=0.5).query.domain.height == (3 if nullable else 2)
    grouped = private.group_by("user").agg(n=pl.len() if not nullable else pl.col("n").max())
    assert grouped.preview.count(pl.col("n") > 2, epsilon=0.5).query.domain.height == (3 if nullable else 2)


ARM = pl.col("user") % 2
FIRSTS = pl.DataFrame({"user": [1, 2], "item": ["a", "b"], "paid": [1.0, 2.0], "arm": [1, 0]})


def test_a_key_that_follows_from_the_unit_cuts_nothing_off(session):
    """A unit is in the one group that its own name decides. Where its word is taken for that, a cap may still cut."""
    private = dp.private(ORDERS, session)
    for asked in (
        private.preview.count_units(ARM.alias("arm"), keys=[0, 1], epsilon=0.1),
        private.with_columns(arm=ARM).preview.count_units("arm", keys=[0, 1], epsilon=0.1),
        private.with_columns(arm=ARM).group_by("user", "arm").agg(n=pl.len()).preview.count_units("arm", epsilon=0.1),
        private.with_columns(arm=ARM).unique(["user", "arm"]).preview.count_units("arm", epsilon=0.1),
    ):  # fmt: skip
        assert asked.bounds.max_groups == 1
        assert asked.bounds.enforce_groups
        assert asked.cut_rows() == []
    both = private.with_columns(arm=ARM).select("user", "item", "paid", "arm")
    stacked = dp.concat([both, dp.private(FIRSTS, session)])
    for other in (private.with_columns(arm=ARM + pl.col("item").str.len_bytes()), stacked):
        plan = other.preview.count_units("arm", epsilon=0.1, max_groups=1)
        assert "unknown for max_groups" in plan.cut_rows()[0][1]
    said = dp.Session(epsilon=1, delta=1e-6, unit="user", per_unit=["item"], max_groups=1, max_rows_per_group=5)
    plan = dp.private(ORDERS, said).preview.count_units("item", epsilon=0.1)
    assert "unknown for max_groups" in plan.cut_rows()[0][1]


def test_a_cap_that_steps_derive_cuts_nothing_off(session):
    """One row per unit is left, so no line speaks of rows beyond the cap, and `cut=True` pays for none."""
    customers = dp.private(ORDERS, session).group_by("user").agg(total=pl.col("paid").sum(), n=pl.len())
    plan = customers.preview.mean("total", bounds=(0, 9), epsilon=0.1)
    assert plan.cut_rows() == [("cut off", "unknown for bounds: say cut=True, or adopt a profile")]
    assert customers.preview.count("n", epsilon=0.1).cut_rows() == []
    assert customers.preview.noisy_max("n", [1, 2], epsilon=0.1).notes() == []
    asked = customers.preview.mean("total", bounds=(0, 9), epsilon=0.1, cut=True).query.aggregates
    assert [one.kind for one in asked] == ["mean", "cut_by_bounds"]
    with pytest.raises(dp.InvalidParameterError, match="this question has neither"):
        customers.preview.count(epsilon=0.1, cut=True)
    given = dp.private(ORDERS, session).preview.mean("paid", bounds=(0, 9), epsilon=0.1, max_rows_per_group=1)
    assert [name for name, _ in given.cut_rows()] == ["cut off", "weights"]
    assert "max_rows_per_group" in given.cut_rows()[0][1]


@pytest.mark.parametrize(
    "expression",
    [
        pl.col("day").sort().first(),
        pl.col("day").sort().get(1),
        pl.col("day").sort_by("n").slice(1, 1).first(),
        pl.col("day").sort_by("n"),
    ],
)
def test_a_refused_order_says_how_rows_of_a_unit_are_ordered(session, expression):
    with pytest.raises(dp.ExpressionNotAllowed, match=r"sort_by\('day'\)\.first\(\).*head\(2, order_by='day'\)"):
        dp.private(ORDERS, session).group_by("user").agg(x=expression)


def test_a_funnel_of_names_alone_is_refused(session):
    with pytest.raises(dp.InvalidParameterError, match="funnel takes two or more steps with their conditions"):
        dp.private(ORDERS, session).funnel(["a", "b"], time="day")


def test_frames_that_lack_the_unit_are_told_how_to_get_it(session):
    items = ORDERS.select("n", "item")
    with pytest.raises(dp.InvalidParameterError, match="join that column to this frame"):
        dp.private(items, session).count(epsilon=0.1)
    with pytest.raises(dp.InvalidParameterError, match="add it to the frame before"):
        dp.private(items, session).join(dp.private(ORDERS, session), on="n")
