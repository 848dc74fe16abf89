"""`quantile` and `median` through every door.

An answer is right if its rank is right: `slack` bounds, from the plan, by how many rows the rank may be off. At a huge
epsilon that is less than one row, so the answer lies between the two values next to the wanted rank, or is one of them.
"""

import polars as pl
import pytest

import dp_polars as dp
from tests.aggregates.doors import DOORS, HUGE, Functions, Guarded, Lazy, Polars, charges, refused, rows, session
from tests.aggregates.frames import FRAME, OWNED
from tests.aggregates.margins import off, slack, step_of

CAPS = {"max_groups": 5, "max_rows_per_group": 50}
PLAIN = OWNED.with_columns(pl.col("x").fill_nan(None))


@pytest.fixture(params=[door for door in DOORS if door is not Functions], ids=lambda door: door.__name__)
def listing(request):
    """A door that answers with lists; a function of dp.register answers with a single number."""
    return request.param


def ask(kind, frame, aggregate, column, **words):
    given = {"epsilon": HUGE, **words}
    return rows(kind(frame, session()).ask(aggregate, column, **given), words.get("by"))


def plan_of(frame, aggregate, column, **words):
    return Polars(frame, session()).plan(aggregate, column, **{"epsilon": HUGE, **words})


def clipped(column, bounds, by=None, frame=PLAIN):
    """Return the values of each group, clipped."""
    kept = frame.drop_nulls(column).with_columns(pl.col(column).clip(*bounds))
    return {key: part[column].to_list() for (key,), part in kept.partition_by(by, as_dict=True).items()}


def values_of(column, bounds):
    return PLAIN[column].drop_nulls().clip(*bounds).to_list()


@pytest.mark.slow
@pytest.mark.parametrize(("column", "bounds"), [("n", (-5, 20)), ("x", (0, 25))])
def test_its_rank_is_the_wanted_one(kind, column, bounds):
    door, values = kind(FRAME, session()), values_of(column, bounds)
    for quantile in (0.01, 0.25, 0.5, 0.9):
        words = {"quantile": quantile, "bounds": bounds, "epsilon": HUGE}
        plan = plan_of(FRAME, "quantile", column, **words)
        assert slack(plan) < 1
        found = rows(door.ask("quantile", column, **words), None)
        assert off(values, found, quantile, step_of(plan) if column == "x" else 0) <= slack(plan)


@pytest.mark.slow
@pytest.mark.parametrize(("column", "bounds"), [("n", (-5, 20)), ("x", (0, 25))])
def test_the_median_of_each_group_has_half_of_its_rows_below(kind, column, bounds):
    plan = plan_of(FRAME, "median", column, by="region", bounds=bounds, **CAPS)
    step = step_of(plan) if column == "x" else 0
    assert slack(plan) < 1
    found = ask(kind, FRAME, "median", column, by="region", bounds=bounds, **CAPS)
    groups = clipped(column, bounds, "region")
    assert found.keys() == groups.keys()
    assert all(off(values, found[key], 0.5, step) <= slack(plan) for key, values in groups.items())


@pytest.mark.slow
def test_several_quantiles_are_a_list_in_the_order_asked_for(listing):
    """Each level halves the rows at the last answer, which moves later ranks by up to half of these rows plus one.

    There are three levels, and at most two values share a point of the grid.
    """
    quantiles, bounds = [0.9, 0.1, 0.5, 0.25, 0.75, 0.5], (-60, 80)
    words = {"quantile": quantiles, "bounds": bounds}
    plan = plan_of(FRAME, "quantile", "x", **words)
    found = ask(listing, FRAME, "quantile", "x", **words)
    values = values_of("x", bounds)
    assert found[2] == found[5]
    assert found[1] <= found[3] <= found[2] <= found[4] <= found[0]
    near = 3 * (slack(plan) + 2)
    assert all(off(values, one, q, step_of(plan)) <= near for one, q in zip(found, quantiles, strict=True))


@pytest.mark.slow
def test_several_quantiles_never_cross_where_little_is_known(listing):
    for few in (FRAME.head(3), FRAME.head(20), FRAME):
        words = {"quantile": [0, 0.2, 0.4, 0.6, 0.8, 1], "bounds": (0, 25), "max_rows_per_group": 1}
        found = ask(listing, few, "quantile", "x", **words, epsilon=0.01)
        assert found == sorted(found)
        assert found[0] >= 0
        assert found[-1] <= 25


def test_a_function_asked_for_several_quantiles_answers_or_charges_nothing():
    paying = session()
    try:
        Functions(FRAME, paying).ask("quantile", "x", quantile=[0.25, 0.75], bounds=(0, 25), epsilon=1)
    except Functions.errors:
        assert not paying.releases


def test_in_sql_a_quantile_and_its_bounds_have_places():
    frame = pl.DataFrame({"who": range(101), "v": range(101)})
    found = Guarded(frame, session()).con.sql(
        "SELECT dp_quantile(v, 0.25, 0, 100) AS a, dp_median(v, 0, 100) AS b FROM rows", epsilon=HUGE
    )
    assert found.fetchall() == [(25, 50)]


@pytest.mark.slow
@pytest.mark.parametrize(("cap", "expected"), [(1, 10), (20, 10), (22, 90), (50, 90)])
def test_of_a_unit_as_many_rows_count_as_the_cap_says(kind, cap, expected):
    """One unit has 1000 rows of 90, and 21 units have one row of 10: it takes 22 rows to outweigh the others."""
    frame = pl.DataFrame({"who": [0] * 1000 + list(range(1, 22)), "v": [90] * 1000 + [10] * 21})
    assert ask(kind, frame, "median", "v", bounds=(0, 100), max_rows_per_group=cap) == expected


@pytest.mark.slow
def test_ties_constants_and_a_single_value(kind):
    """Only these values have the best rank; any other of the 101 points is exp(-500) times as likely."""
    tied = pl.DataFrame({"who": range(100), "v": [1] * 20 + [5] * 40 + [9] * 40})
    words = {"bounds": (0, 100), "max_rows_per_group": 1}
    door = kind(tied, session())
    for quantile, expected in ((0.1, 1), (0.3, 5), (0.5, 5), (0.7, 9), (0.99, 9)):
        assert rows(door.ask("quantile", "v", quantile=quantile, epsilon=HUGE, **words), None) == expected
    constant = tied.with_columns(v=pl.lit(7))
    assert ask(kind, constant, "median", "v", **words) == 7
    assert ask(kind, constant.head(1), "median", "v", **words) == 7


@pytest.mark.slow
def test_null_and_nan_are_no_values_and_infinity_is_clipped(kind):
    values = [None, float("nan"), float("inf"), float("inf"), float("inf"), float("-inf"), 8.0]
    frame = pl.DataFrame({"who": range(7), "v": values})
    found = ask(kind, frame, "median", "v", bounds=(0, 16), max_rows_per_group=1)
    assert found == 16


@pytest.mark.slow
def test_values_beyond_the_bounds_count_at_the_bounds(kind):
    frame = pl.DataFrame({"who": range(90), "v": [-1000] * 60 + [1000] * 30})
    assert ask(kind, frame, "median", "v", bounds=(-3, 3), max_rows_per_group=1) == -3


@pytest.mark.slow
def test_two_units_empty_frames_and_empty_public_groups(kind):
    """Without rows, every point within the bounds is equally likely."""
    frame = pl.DataFrame({"who": [1, 2], "key": ["a", "a"], "v": [2, 6]})
    words = {"bounds": (0, 8), "max_rows_per_group": 1}
    found = ask(kind, frame, "median", "v", by="key", keys=["a", "none"], **words)
    assert 2 <= found["a"] <= 6
    assert 0 <= found["none"] <= 8
    assert 0 <= ask(kind, frame.clear(), "median", "v", **words) <= 8
    assert ask(kind, frame.clear(), "median", "v", by="key", **words) == {}


@pytest.mark.slow
@pytest.mark.parametrize("by", [None, "region"])
def test_every_door_plans_and_charges_the_same(by):
    assert len(charges(FRAME, "quantile", "x", by=by, quantile=0.9, bounds=(0, 25), epsilon=0.5)) == 1
    assert len(charges(FRAME, "median", "x", by=by, bounds=(0, 25), share=0.5)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"bounds": None}, "needs bounds for x"),
        ({"bounds": (5, 1)}, "lower < upper"),
        ({"column": "region"}, "needs integers, floats, decimals or times"),
        ({"quantile": 1.01}, "must lie between 0 and 1"),
        ({"quantile": -0.5}, "must lie between 0 and 1"),
        ({"quantile": 0.12345}, "at most four digits"),
        ({"quantile": []}, "a number between 0 and 1, or a list of them"),
        ({"quantile": [0.5, 1.5]}, "must lie between 0 and 1"),
        ({"interval": "value"}, "how sure it should be|which nothing shows"),
        (
            {"interval": "ranks", "confidence": 0.9},
            "'rank' .* or 'value'|none of its columns is an aggregate with such ends",
        ),
        ({"interval": "value", "confidence": 0.9, "quantile": 0}, "one person's value"),
        ({"confidence": 1.5}, "confidence"),
    ],
)
def test_every_door_refuses_alike(closed, words, message):
    if isinstance(words.get("quantile"), list) and isinstance(closed, Functions):
        message = "returns one quantile"
    refused(closed, message, "quantile", **{"column": "x", "quantile": 0.5, "bounds": (0, 25), "epsilon": 1, **words})


def test_what_a_median_does_not_have_is_refused_alike(closed):
    refused(closed, "depends on how many rows", "median", "x", bounds=(0, 25), within=1)
    for aggregate in ("median", "mean"):
        refused(closed, r"\bper\b|does not support", aggregate, "x", bounds=(0, 25), per="unit", epsilon=1)


# ---------------------------------------------------------------------- intervals


@pytest.fixture(params=[Polars, Lazy, Functions], ids=lambda door: door.__name__)
def with_intervals(request):
    """A door that adds the columns of an interval itself; a SELECT names them (see tests/sql/test_intervals.py)."""
    return request.param


def columns(kind, aggregate, words, paying=None):
    """Return the only row of an answer by column name, without the column of the answer itself."""
    door = kind(FRAME, session() if paying is None else paying)
    if kind is Functions:
        found = door.raw.sql(f"FROM dp.{aggregate}('rows', {words['sql']})").pl()
    else:
        given = {name: value for name, value in words.items() if name != "sql"}
        found = door._call(False, aggregate, "x", None, None, given).lazy().collect()
    own = found.columns[0]
    return {name.removeprefix(own): value for name, value in found.row(0, named=True).items()}


@pytest.mark.slow
def test_the_error_of_a_rank_is_free(with_intervals):
    paying = session()
    for aggregate, more in (("median", ""), ("min", ""), ("max", ""), ("quantile", "0.9, ")):
        words = {"bounds": (0, 25), "epsilon": 2} | ({"quantile": 0.9} if more else {})
        plan = plan_of(FRAME, aggregate, "x", **words)
        columns(with_intervals, aggregate, {**words, "sql": f"'x', {more}0, 25, epsilon := 2"}, paying)
        spent = paying.spent.epsilon
        words |= {"confidence": 0.95, "sql": f"'x', {more}0, 25, epsilon := 2, confidence := 0.95"}
        found = columns(with_intervals, aggregate, words, paying)
        assert list(found) == ["", "_rank_error"]
        assert f" {found['_rank_error']:,} rows" in str(plan)
        assert (
            paying.spent.epsilon == spent or with_intervals is not Polars
        )  # other doors make a source for each question


@pytest.mark.slow
def test_ends_of_values_stand_around_the_quantile(with_intervals):
    """The ends miss the quantile with probability below 1e-6."""
    values = sorted(values_of("x", (0, 25)))
    words = {"bounds": (0, 25), "epsilon": HUGE, "confidence": 1 - 1e-6, "interval": "value"}
    sql = f"epsilon := {HUGE}, confidence := 0.999999, interval := 'value'"
    for aggregate, quantile in (("median", 0.5), ("quantile", 0.9)):
        own = words | ({"quantile": 0.9} if aggregate == "quantile" else {})
        place = "0.9, " if aggregate == "quantile" else ""
        found = columns(with_intervals, aggregate, {**own, "sql": f"'x', {place}0, 25, {sql}"})
        assert list(found) == ["", "_low", "_high"]
        assert found["_low"] <= values[int(quantile * len(values))] <= found["_high"]
        assert found["_low"] <= found[""] <= found["_high"]
        assert found["_high"] - found["_low"] < 5


def test_a_select_names_the_ends_of_its_intervals():
    for words, message in (
        ("interval := 'value'", "which nothing shows"),
        ("confidence := 0.9", r"dp_rank_error\(n, 0.95\)"),
    ):
        with pytest.raises(Guarded.errors, match=message):
            Guarded(FRAME, session()).con.sql(f"SELECT dp_median(x, 0, 25, {words}) FROM rows", epsilon=1)


def test_ranks_are_fractions_if_the_same_question_counts_the_rows():
    asked = {"m": dp.median("x", bounds=(0, 25)), "q": dp.quantile("x", [0.1, 0.9], bounds=(0, 25))}
    frame = dp.private(FRAME, session())
    own = frame.group_by().agg(**asked, n=dp.count("x"), epsilon=1, confidence=0.9)
    assert own.columns[:3] == ["m", "m_rank_low", "m_rank_high"]
    assert own.schema["q_rank_low"] == pl.List(pl.Float64)
    all_rows = frame.group_by().agg(**asked, n=dp.count(), epsilon=1, confidence=0.9)
    assert all_rows.columns == ["m", "m_rank_error", "q", "n", "n_low", "n_high"]  # rows without x are counted, too
    with pytest.raises(dp.InvalidParameterError, match=r"Ask for dp.count\('x'\) in the same agg"):
        frame.quantile("x", [0.1, 0.9], bounds=(0, 25), epsilon=1, confidence=0.9)


@pytest.mark.parametrize("confidence", [1e-17, 1 - 2**-53])
def test_a_confidence_that_floats_cannot_tell_from_0_or_1_is_refused_before_the_charge(confidence):
    """Found by an attacker: it failed after the charge and closed the session."""
    session = dp.Session(epsilon=10.0, unit=dp.ROW)
    own = dp.private(pl.DataFrame({"km": [2, 4, 6] * 500}), session)
    with pytest.raises(dp.InvalidParameterError, match="confidence must lie between"):
        own.median("km", bounds=(0, 10), epsilon=0.1, confidence=confidence)
    with pytest.raises(dp.InvalidParameterError, match="confidence must lie between"):
        own.count(epsilon=0.1, confidence=confidence)
    assert not session.releases


@pytest.mark.parametrize("confidence", [1e-9, 1 - 1e-12])
def test_the_smallest_and_the_largest_confidence_have_intervals(confidence):
    session = dp.Session(epsilon=10.0, unit=dp.ROW)
    own = dp.private(pl.DataFrame({"km": [2, 4, 6] * 500}), session)
    asked = {"n": dp.count("km"), "m": dp.median("km", bounds=(0, 10)), "a": dp.mean("km", bounds=(0, 10))}
    assert own.group_by().agg(**asked, epsilon=0.5, confidence=confidence).null_count().sum_horizontal().item() == 0
    assert own.median("km", bounds=(0, 10), interval="value", epsilon=0.5, confidence=confidence).height == 1
