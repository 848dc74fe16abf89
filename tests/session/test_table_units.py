"""The unit of a table is the session's, renamed, coarser (protected two at a time), or weaker if the owner allows it.

The session's terms say whose rows one unit may change. Under any other unit, those rows may count more often.
"""

import copy
import math
import pickle

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.rows import check_names
from dp_polars._session.terms import ROW, table_terms, table_unit

FRAME = pl.DataFrame({"user": [1, 1, 2], "day": [1, 2, 1], "customer": [7, 7, 8], "n": [1, 2, 3]})
PAIR = ("user", "day")


@pytest.mark.parametrize(
    ("agreed", "given", "columns", "relation"),
    [
        (("user",), None, ("user",), "agreed"),
        (("user",), "user", ("user",), "agreed"),
        (PAIR, ["day", "user"], ("day", "user"), "agreed"),
        (ROW, None, (), "agreed"),
        (ROW, ROW, (), "agreed"),
        (("user",), {"user": "customer"}, ("customer",), "renamed"),
        (PAIR, {"day": "d", "user": "u"}, ("d", "u"), "renamed"),
        (PAIR, "user", ("user",), "coarser"),
        (PAIR, {"user": "customer"}, ("customer",), "coarser"),
        (ROW, "user", ("user",), "coarser"),
    ],
)
def test_what_protects_as_much_is_accepted(agreed, given, columns, relation):
    found = table_unit(agreed, given)
    assert (found.columns, found.relation) == (columns, relation)
    assert bool(found.note) == (relation != "agreed")


WEAKER = [
    (("user",), ROW),
    (("user",), "customer"),
    (("user",), ["user", "day"]),
    (PAIR, ["user", "day", "n"]),
    (PAIR, ["user", "n"]),
    (("user",), {"day": "customer"}),
    (("user",), {"user": "customer", "day": "day"}),
    (ROW, {"row": "user"}),
]


@pytest.mark.parametrize(("agreed", "given"), WEAKER)
def test_what_may_protect_less_needs_the_owners_word(agreed, given):
    with pytest.raises(dp.InvalidParameterError, match=r"may protect less.*weaker_unit=True"):
        table_unit(agreed, given)
    assert table_unit(agreed, given, weaker=True).relation == "weaker"


@pytest.mark.parametrize(
    "given", [[], {}, "", {"user": ""}, {"user": 3}, {"user": "a", "day": "a"}, 3, ["user", "user"]]
)
def test_what_is_no_unit_is_refused_even_by_the_owners_word(given):
    with pytest.raises(dp.InvalidParameterError):
        table_unit(PAIR, given, weaker=True)


def test_one_person_with_many_rows_does_not_count_as_many():
    """This was an attack: unit=dp.ROW was accepted silently in a session that protects users."""
    session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    with pytest.raises(dp.InvalidParameterError, match="may protect less"):
        dp.private(pl.DataFrame({"user": [1] * 1000}), session, unit=dp.ROW)
    later = dp.private(
        pl.DataFrame({"user": [1] * 1000}), unit=dp.ROW
    )  # there is no session yet, so it is refused later
    with session, pytest.raises(dp.InvalidParameterError, match="may protect less"):
        later.count(epsilon=0.5)
    assert not session.releases


def test_the_plan_and_the_ledger_repeat_what_was_said():
    session = dp.Session(epsilon=5.0, unit=["user", "day"], max_rows_per_group=1, max_groups=1)
    tables = {
        "allowed by the owner": dp.private(FRAME, session, unit=dp.ROW, weaker_unit=True),
        "user is customer here": dp.private(FRAME.drop("user"), session, unit={"user": "customer", "day": "day"}),
        "coarser than user, day": dp.private(FRAME, session, unit="user"),
    }
    for number, (text, private) in enumerate(tables.items()):
        assert text in str(private.preview.count(epsilon=0.1))
        assert text in str(private.preview.above_threshold(10, epsilon=0.1))
        private.count(epsilon=0.1)
        assert text in session.releases[number].label


def test_another_unit_is_another_question():
    session = dp.Session(epsilon=5.0, unit=["user", "day"], max_rows_per_group=1)
    frame = FRAME.drop("user")
    dp.private(frame, session, unit={"user": "customer"}).count(epsilon=0.1)
    dp.private(frame, session, unit="customer", weaker_unit=True).count(epsilon=0.1)
    assert len(session.releases) == 2


def test_a_coarser_unit_is_protected_two_at_a_time():
    """A unit of the session may be a part of a coarser unit, whose other rows are counted in its place.

    User 1 has a row in group a on day 1 and one in group b on day 2, and counts in one group. With day 2, it counts in
    a or in b with equal probability; without it, in a. With the noise of one change, some outcome is
    (1 + e**(2 eps)) / 2 times as likely.
    """
    assert (1 + math.exp(2)) / 2 > math.e  # so at epsilon 1, one change would not be enough
    session = dp.Session(epsilon=5.0, unit=["user", "day"], max_rows_per_group=1, max_groups=1)
    coarse = dp.private(FRAME, session, unit="user").preview.count("n", keys=[1, 2, 3], epsilon=1.0)
    own = dp.private(FRAME, session).preview.count("n", keys=[1, 2, 3], epsilon=1.0)
    assert coarse.measurements[0].sensitivity.l1 == 2 * own.measurements[0].sensitivity.l1
    assert "2 at a time" in str(coarse)
    assert coarse.cost == own.cost
    assert table_terms(session.terms, table_unit(PAIR, {"user": "u", "day": "d"})).group_size == 1
    for asked in (
        lambda p: p.above_threshold(10, epsilon=0.5),
        lambda p: p.online_queries({"n": [1, 2, 3]}, alpha=0.1, max_updates=2, epsilon=0.5),
        lambda p: p.synthesize({"n": [1, 2, 3]}, epsilon=0.5),
        lambda p: p.noisy_max("n", [1, 2, 3], epsilon=0.5),
        lambda p: p.select_best([1, 2], lambda c: pl.col("n") - c, bounds=(0, 3), epsilon=0.5),
    ):
        assert asked(dp.private(FRAME, session, unit="user").preview).terms.group_size == 2


def test_responses_need_the_sessions_own_unit():
    """One unit may be all of a coarser unit, and the number of responses is not hidden."""
    session = dp.Session(epsilon=5.0, unit=["user", "day"], adjacency="replace")
    frame = FRAME.with_columns(flag=True)
    with pytest.raises(dp.InvalidParameterError, match="coarser unit"):
        dp.private(frame, session, unit="user").randomized_response("flag", epsilon=0.5)
    named = dp.private(frame.drop("user"), session, unit={"user": "customer", "day": "day"})
    assert named.randomized_response("flag", epsilon=0.5).height == 3


def test_sql_has_the_same_rule():
    session = dp.Session(epsilon=5.0, unit=["user", "day"], max_rows_per_group=1)
    con = dp.connect(None, session).register("visits", FRAME)
    with pytest.raises(dp.InvalidParameterError, match="may protect less"):
        con.private("visits", unit="n")
    query = "SELECT dp_count(*, epsilon := 1.0) FROM visits"
    own = con.preview(query).measurements[0].sensitivity.l1
    assert con.private("visits", unit="user").preview(query).measurements[0].sensitivity.l1 == 2 * own
    assert "coarser than user, day" in str(con.preview(query))
    weaker = con.private("visits", unit="n", weaker_unit=True).preview(query)
    assert "allowed by the owner" in str(weaker)
    assert weaker.measurements[0].sensitivity.l1 == own
    # In another session, the same unit means something else.
    other = con._paid_by(dp.Session(epsilon=5.0, unit="n", max_rows_per_group=1))
    assert "allowed by the owner" not in str(other.preview(query))


# ---------------------------------------------------------------- columns


@pytest.mark.parametrize("name", ["^x$", "^$", "^.*$", "*"])
def test_a_column_that_polars_reads_as_a_pattern_is_refused(name):
    """This was an attack: the unit "^x$" meant the column x."""
    frame = pl.DataFrame({"user": [1], name: [1], "x": [2]})
    session = dp.Session(epsilon=1.0, unit="user")
    for source in (frame, frame.lazy()):
        with pytest.raises(dp.InvalidParameterError, match="pattern"):
            dp.private(source, session)
        with session, pytest.raises(dp.InvalidParameterError, match="pattern"):
            source.dp.count_units(epsilon=0.5)
    with pytest.raises(dp.InvalidParameterError, match="pattern"):
        dp.private(frame.select("user", "x"), session).rename({"x": name})
    assert not session.releases


def test_columns_that_differ_by_case_alone_are_refused():
    frame = pl.DataFrame({"User": [1], "user": [2]})
    with pytest.raises(dp.InvalidParameterError, match="'User' and 'user', which differ by case"):
        dp.private(frame, dp.Session(epsilon=1.0, unit="user")).count_units(epsilon=0.5)
    check_names(["Ä", "ä", "a", "^x", "x$", "a*"])  # DuckDB folds only ASCII letters


# ---------------------------------------------------------------- copies


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_private_frame_is_not_copied_with_its_rows(copied):
    private = dp.private(FRAME, dp.Session(epsilon=1.0, unit="user"))
    for held in (private, private.filter(pl.col("n") > 1), [private]):
        if held is not private and copied is copy.copy and isinstance(held, list):
            continue
        with pytest.raises(dp.InvalidParameterError, match="can't be copied or pickled"):
            copied(held)
    with pytest.raises(dp.InvalidParameterError, match="can't be copied or pickled"):
        pickle.dumps(private.preview)


VISITS = pl.DataFrame({"user_id": [1, 1, 2], "visit": [1, 2, 3], "amount": [5, 6, 7]})


@pytest.mark.slow
@pytest.mark.parametrize("unit", [{"user_id": "visit"}, {"USER_ID": "visit"}, {"user_id": "amount"}])
def test_a_table_that_has_the_unit_column_has_it_under_no_other_name(unit):
    """The other column may tell the rows of one person apart, whose count would then have the noise of a single row."""
    session = dp.Session(epsilon=1.0, unit="user_id", max_rows_per_group=1)
    with pytest.raises(dp.InvalidParameterError, match="less"):
        dp.private(VISITS, session, unit=unit).count(epsilon=0.1)
    raw = duckdb.connect()
    raw.register("given", VISITS.to_arrow())
    raw.execute("CREATE TABLE visits AS FROM given")
    con = dp.connect(raw, session)
    con.register("frame", VISITS)
    for name in ("visits", "frame"):
        with pytest.raises(dp.InvalidParameterError, match="less"):
            con.private(name, unit=unit).sql(f"SELECT dp_count(*, epsilon := 0.1) FROM {name}")
    assert session.spent.epsilon == 0


def test_the_same_name_is_no_renaming_and_a_missing_column_may_have_another():
    session = dp.Session(epsilon=1.0, unit="user_id", max_rows_per_group=1)
    same = dp.private(VISITS, session, unit={"user_id": "user_id"}).preview.count(epsilon=0.1)
    other = dp.private(VISITS.drop("user_id"), session, unit={"user_id": "visit"}).preview.count(epsilon=0.1)
    assert (same.query.unit, other.query.unit) == (("user_id",), ("visit",))


def test_the_owner_may_choose_another_column_all_the_same():
    session = dp.Session(epsilon=1.0, unit="user_id", max_rows_per_group=1)
    plan = dp.private(VISITS, session, unit={"user_id": "visit"}, weaker_unit=True).preview.count(epsilon=0.1)
    assert "may protect less than user_id: allowed by the owner" in str(plan)
