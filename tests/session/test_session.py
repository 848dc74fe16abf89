"""Sessions accept, refuse, store and show the same in memory and in a file."""

import copy
import os
import pickle
import re
import subprocess
import sys
import threading
import warnings
from decimal import Decimal
from fractions import Fraction

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dp
from dp_polars._session.releases import release_key

FRAME = pl.DataFrame({"region": ["a", None], "count": [3, -1], "x": [0.5, float("nan")]})


@pytest.fixture(params=["memory", "file"])
def place(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "budget.db"


def spend(session, epsilon, label="q", key=None):
    with session.reserve(dp.pure_cost(epsilon), label=label, key=key) as reservation:
        return reservation.commit(FRAME)


# ---------------------------------------------------------------- accepting and refusing


def test_ten_tenths_fit_into_one_and_an_eleventh_does_not(place):
    session = dp.Session(epsilon=1.0, unit="user", ledger=place)
    for _ in range(10):
        spend(session, 0.1)
    assert session.remaining.epsilon == 0
    with pytest.raises(dp.BudgetExceeded) as refused:
        spend(session, 0.1)
    assert refused.value.largest_affordable == "nothing"
    assert len(session.releases) == 10


def test_a_refusal_says_what_was_asked_what_is_left_and_what_would_fit_and_costs_nothing(place):
    session = dp.Session(epsilon=1.0, unit="user", ledger=place)
    spend(session, 0.7)
    with pytest.raises(dp.BudgetExceeded) as refused:
        spend(session, 0.5)
    assert (
        "requested 50 % of the budget; remaining 30 % of the budget; the largest spend that fits is share=0.3 or "
        "epsilon=0.3." in str(refused.value)
    )
    assert "Nothing was charged" in str(refused.value)
    assert session.spent.epsilon == 0.7
    assert len(session.releases) == 1
    again = pickle.loads(pickle.dumps(refused.value))
    assert str(again) == str(refused.value)
    spend(session, 0.3)  # the amount that the message named fits


@pytest.mark.slow
def test_an_approximate_session_accepts_458_small_releases(place):
    session = dp.Session(epsilon=1.0, delta=1e-6, unit="user", ledger=place)
    for _ in range(458):
        session.reserve(dp.pure_cost(0.01), label="q")
    with pytest.raises(dp.BudgetExceeded):
        session.reserve(dp.pure_cost(0.01), label="q")


@pytest.mark.parametrize(
    "words",
    [{"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-6}, {"rho": 0.05, "delta": 1e-6}],
    ids=["pure", "approximate", "zcdp"],
)
def test_the_largest_affordable_spend_fits_and_hardly_more_does(words):
    session = dp.Session(**words, unit="user")
    for spent in (0, 0.013, 0.2):
        if spent:
            session.reserve(dp.pure_cost(spent), label="q")
        largest = session.largest_affordable()
        assert session.can_afford(dp.pure_cost(largest))
        assert not session.can_afford(dp.pure_cost(largest * 1.00001))
        if "delta" in words:
            measure = "rho" if "rho" in words else "epsilon"
            largest = session.largest_affordable(mechanism="gaussian", measure=measure)
            assert session.can_afford(dp.gaussian_cost(session.terms, **{measure: largest}))
            assert not session.can_afford(dp.gaussian_cost(session.terms, **{measure: largest * 1.00001}))


def test_native_delta_runs_out_on_its_own():
    session = dp.Session(epsilon=1.0, delta=1e-6, unit="user")
    session.reserve(dp.pure_cost(0.01, delta=2e-7), label="keys")
    cost = dp.pure_cost(0.01, delta=1e-7)
    assert not session.can_afford(cost)
    with pytest.raises(dp.BudgetExceeded, match="of delta for keys"):
        session.reserve(cost, label="keys")
    session.reserve(dp.pure_cost(0.01), label="no keys")


def test_a_cost_that_says_it_is_free_is_refused():
    session = dp.Session(epsilon=1.0, unit="user")
    with pytest.raises(dp.InvalidParameterError, match="free"):
        session.reserve(dp.Cost(epsilon=Fraction(0), rho=Fraction(0)), label="q")


# ---------------------------------------------------------------- reserve, commit, fail


def test_a_charge_stays_whatever_happens_after_it(place):
    session = dp.Session(epsilon=1.0, unit="user", ledger=place)
    with pytest.raises(ZeroDivisionError), session.reserve(dp.pure_cost(0.2), label="breaks"):
        1 / 0  # noqa: B018
    session.reopen(reason="it was a test")
    session.reserve(dp.pure_cost(0.2), label="left open")
    with session.reserve(dp.pure_cost(0.2), label="forgotten"):
        pass
    assert [entry.state for entry in session.releases] == ["failed", "reserved", "failed"]
    assert session.spent.epsilon == pytest.approx(0.6)


def test_a_reservation_is_finished_once(place):
    session = dp.Session(epsilon=1.0, unit="user", ledger=place)
    reservation = session.reserve(dp.pure_cost(0.1), label="q")
    reservation.commit(FRAME)
    for again in (lambda: reservation.commit(FRAME), reservation.fail):
        with pytest.raises(dp.LedgerError, match="once"):
            again()


def test_a_stored_release_is_found_again_and_costs_nothing(place):
    session = dp.Session(epsilon=1.0, unit="user", ledger=place)
    key = release_key(b"count by region", b"visits v1")
    assert session.stored(key) is None
    spend(session, 0.1, key=key)
    spent = session.spent
    found = session.stored(key)
    assert found.stored
    assert_frame_equal(found.frame, FRAME)
    assert found.entry.reserved_at <= found.entry.finished_at
    assert session.spent == spent
    assert session.stored(release_key(b"count by region", b"visits v2")) is None


def test_only_committed_releases_are_found_and_the_newest_wins(place):
    session = dp.Session(epsilon=1.0, unit="user", ledger=place)
    key = release_key(b"q", b"s")
    session.reserve(dp.pure_cost(0.1), label="open", key=key)
    session.reserve(dp.pure_cost(0.1), label="failed", key=key).fail(closes=False)
    assert session.stored(key) is None
    for n in (1, 2):
        with session.reserve(dp.pure_cost(0.1), label="q", key=key) as reservation:
            reservation.commit(pl.DataFrame({"n": [n]}))
    assert session.stored(key).frame["n"].to_list() == [2]


@pytest.mark.parametrize("wrong", [[1], 3, FRAME.lazy(), None])
def test_committing_something_else_is_refused_and_can_be_put_right(place, wrong):
    session = dp.Session(epsilon=1.0, unit="user", ledger=place)
    reservation = session.reserve(dp.pure_cost(0.1), label="q")
    with pytest.raises(dp.InvalidDataError, match="DataFrame or Series"):
        reservation.commit(wrong)
    assert reservation.commit(pl.Series("n", [1])).frame.columns == ["n"]


def test_a_committed_release_is_found_by_its_number(place):
    session = dp.Session(epsilon=1.0, unit="user", ledger=place)
    number = spend(session, 0.1).entry.id
    failed = session.reserve(dp.pure_cost(0.1), label="q")
    failed.fail()
    assert_frame_equal(session.release(number).frame, FRAME)
    for missing in (failed.id, 99):
        with pytest.raises(dp.InvalidParameterError, match="no committed release"):
            session.release(missing)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"cost": 0.1}, r"dp\.pure_cost\(0\.1\)"),
        ({"label": ""}, "label="),
        ({"label": 3}, "label="),
        ({"label": None}, "label="),
        ({"key": "text"}, "key="),
    ],
)
def test_a_reservation_says_what_it_needs_and_costs_nothing(arguments, text):
    session = dp.Session(epsilon=1.0, unit="user")
    cost = arguments.pop("cost", dp.pure_cost(0.1))
    with pytest.raises(dp.InvalidParameterError, match=text):
        session.reserve(cost, **{"label": "q", **arguments})
    assert session.spent.epsilon == 0


def test_a_closed_session_says_so(place):
    session = dp.Session(epsilon=1.0, unit="user", ledger=place)
    session.close()
    with pytest.raises(dp.LedgerError, match="was closed"):
        spend(session, 0.1)


def test_how_many_releases_fit(place):
    session = dp.Session(epsilon=1.0, delta=1e-6, unit="user", ledger=place)
    assert session.affordable_count(dp.pure_cost(0.05)) == 20
    assert session.affordable_count(dp.pure_cost(0.05), most=7) == 7
    assert session.affordable_count(dp.pure_cost(2)) == 0
    spend(session, 0.05)
    assert session.affordable_count(dp.pure_cost(0.05)) == 19
    with pytest.raises(dp.InvalidParameterError, match="pure_cost"):
        session.can_afford(0.1)


def test_keys_keep_query_and_source_apart():
    assert release_key(b"ab", b"c") != release_key(b"a", b"bc")
    assert release_key(b"", b"abc") != release_key(b"abc", b"")


def test_a_release_holds_what_it_shows_and_nothing_else(place):
    """Strings that were filtered out, values behind nulls and the order of categories are not stored."""
    session = dp.Session(epsilon=1.0, unit="user", ledger=place)
    names = [f"a group with a long name {i}" for i in range(50)]
    exact = pl.DataFrame({"name": names, "n": range(1_000_000, 1_000_050)})
    shown = exact.filter(pl.int_range(pl.len()) < 40).with_columns(pl.when(pl.col("n") % 2 == 0).then("n"))
    with session.reserve(dp.pure_cost(0.1), label="q", key=b"k") as reservation:
        release = reservation.commit(shown)
    for frame in (release.frame, session.stored(b"k").frame):
        assert_frame_equal(frame, shown)
        table = frame.to_arrow()
        buffers = b"".join(
            memoryview(buffer).tobytes() for column in table.columns for chunk in column.chunks
            for buffer in chunk.buffers() if buffer is not None
        )  # fmt: skip
        assert names[39].encode() in buffers
        assert not any(name.encode() in buffers for name in names[40:])
        assert (1_000_002).to_bytes(8, "little") in buffers
        assert not any((1_000_000 + i).to_bytes(8, "little") in buffers for i in (*range(1, 40, 2), *range(40, 50)))


def test_categories_are_released_as_text(place):
    session = dp.Session(epsilon=1.0, unit="user", ledger=place)
    frame = pl.DataFrame({"c": pl.Series(["z", "a"], dtype=pl.Categorical)})
    with session.reserve(dp.pure_cost(0.1), label="q") as reservation:
        assert reservation.commit(frame).frame.schema == {"c": pl.String}
    nested = pl.DataFrame({"c": pl.Series([["z"]], dtype=pl.List(pl.Categorical))})
    with (
        pytest.raises(dp.InvalidDataError, match="cast it before"),
        session.reserve(dp.pure_cost(0.1), label="q") as reservation,
    ):
        reservation.commit(nested)


def test_stored_frames_keep_their_types(place):
    session = dp.Session(epsilon=1.0, unit="user", ledger=place)
    frame = pl.DataFrame(
        {
            "enum": pl.Series(["b", "a"], dtype=pl.Enum(["a", "b"])),
            "date": pl.Series([1, None], dtype=pl.Date),
            "list": [[1], []],
            "decimal": pl.Series(["1.50", "2"]).cast(pl.Decimal(10, 2)),
            "empty": pl.Series([None, None], dtype=pl.Null),
        }
    )
    with session.reserve(dp.pure_cost(0.1), label="q", key=b"k") as reservation:
        assert not reservation.commit(frame).stored
    assert_frame_equal(session.stored(b"k").frame, frame)
    with session.reserve(dp.pure_cost(0.1), label="q", key=b"e") as reservation:
        reservation.commit(frame.head(0))
    assert_frame_equal(session.stored(b"e").frame, frame.head(0))


# ---------------------------------------------------------------- terms


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({}, "needs a budget"),
        ({"epsilon": 1, "rho": 1}, "needs a budget"),
        ({"delta": 1e-6}, "needs a budget"),
        ({"epsilon": 0}, "greater than 0"),
        ({"epsilon": -1}, "greater than 0"),
        ({"epsilon": float("nan")}, "finite"),
        ({"epsilon": float("inf")}, "finite"),
        ({"epsilon": 1e9}, "1e-9 to 1e6"),
        ({"epsilon": "1"}, "must be a number"),
        ({"epsilon": True}, "must be a number"),
        ({"epsilon": 1, "delta": 1}, "between 1e-100 and 1"),
        ({"epsilon": 1, "delta": -1e-9}, "between 1e-100 and 1"),
        ({"epsilon": 1, "delta": float("nan")}, "finite"),
        ({"rho": 0}, "greater than 0"),
        ({"rho": 1e30}, "outside"),
        ({"epsilon": 1, "adjacency": "swap"}, "add_remove"),
        ({"epsilon": 1, "group_size": 0}, "at least 1"),
        ({"epsilon": 1, "group_size": 1.5}, "whole number"),
        ({"epsilon": 1, "max_groups": 0}, "at least 1"),
        ({"epsilon": 1, "max_rows_per_group": "many"}, "whole number"),
        ({"epsilon": 1, "queries": 0}, "at least 1"),
        ({"epsilon": 1, "key_delta": 1e-7}, "approximate"),
        ({"epsilon": 1, "delta": 1e-6, "key_delta": 1e-6}, "smaller than delta"),
        ({"epsilon": 1, "unit": []}, "who is protected"),
        ({"epsilon": 1, "unit": ["a", "a"]}, "twice"),
        ({"epsilon": 1, "unit": 7}, "who is protected"),
        ({"epsilon": 1, "per_unit": [3]}, "names of the columns"),
    ],
)
def test_invalid_arguments_are_refused_with_the_way_out(words, text):
    with pytest.raises(dp.InvalidParameterError, match=text):
        dp.Session(**{"unit": "user", **words})


def test_a_unit_is_required():
    with pytest.raises(dp.InvalidParameterError, match="who is protected"):
        dp.Session(epsilon=1.0)


def test_a_path_is_a_path(tmp_path):
    with pytest.raises(dp.InvalidParameterError, match="in memory"):
        dp.Session(epsilon=1.0, unit="user", ledger=":memory:")
    with pytest.raises(dp.InvalidParameterError, match="from_ledger"):
        dp.Session(ledger=tmp_path / "budget.db", unit="user")


def test_weak_guarantees_warn_and_usual_ones_do_not():
    with pytest.warns(dp.DPWarning, match="epsilon=20"):
        dp.Session(epsilon=20, unit="user")
    with pytest.warns(dp.DPWarning, match=r"delta=0\.001"):
        dp.Session(epsilon=1, delta=1e-3, unit="user")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dp.Session(epsilon=10, delta=1e-6, unit="user")


@pytest.mark.parametrize("epsilon", [1, 1.0, Fraction(1), Decimal("1.0")])
def test_every_type_of_number_means_the_same(epsilon):
    assert dp.Session(epsilon=epsilon, unit="user").terms == dp.Session(epsilon=1, unit=["user"]).terms


def test_delta_is_split_in_half_a_quarter_a_quarter_or_as_key_delta_says():
    terms = dp.Session(epsilon=1, delta=1e-6, unit="user").terms
    assert (terms.conversion_delta, terms.native_delta, terms.gaussian_delta) == (
        Fraction("5e-7"),
        Fraction("2.5e-7"),
        Fraction("2.5e-7"),
    )
    terms = dp.Session(epsilon=1, delta=1e-6, unit="user", key_delta=4e-7).terms
    assert (terms.conversion_delta, terms.native_delta, terms.gaussian_delta) == (
        Fraction("4e-7"),
        Fraction("4e-7"),
        Fraction("2e-7"),
    )
    assert terms.delta == Fraction("1e-6")
    terms = dp.Session(rho=0.1, delta=1e-6, unit="user").terms
    assert terms.native_delta == terms.delta == Fraction("1e-6")


# ---------------------------------------------------------------- display


def test_descriptions_show_the_agreement_and_what_is_left(place):
    session = dp.Session(epsilon=1.0, delta=1e-6, unit=["user", "day"], ledger=place, group_size=2)
    spend(session, 0.25, label="count by region")
    text = session.describe()
    for part in (
        "approximate",
        "epsilon: 1",
        "unit: user, day",
        "group_size: 2",
        "releases: 1",
        "25 % used, 75 % left",
    ):
        assert part in text
    assert "0.25" not in text
    assert re.search(r"epsilon +\[#####-{15}\] +25 %  0\.25 of 1\n", session.describe(accounts=True))
    assert repr(session).startswith("<dp.Session epsilon=1, delta=1e-06, unit=user, day, ")
    assert "dp.ROW" in repr(dp.Session(rho=0.5, unit=dp.ROW))


def test_the_ledger_exports_as_a_frame(place):
    session = dp.Session(epsilon=1.0, unit="user", ledger=place)
    assert session.export().height == 0
    spend(session, 0.25, label="count by region")
    session.reserve(dp.pure_cost(0.5), label="open")
    frame = session.export()
    assert frame.select("label", "state", "epsilon", "share").rows() == [
        ("count by region", "committed", 0.25, 0.25),
        ("open", "reserved", 0.5, 0.5),
    ]
    assert frame.schema == dp.Session(epsilon=1.0, unit="user").export().schema


# ---------------------------------------------------------------- one budget that is never copied


def test_copies_share_the_budget_and_a_session_in_memory_cannot_be_pickled():
    session = dp.Session(epsilon=1.0, unit="user")
    assert copy.copy(session) is session
    assert copy.deepcopy({"s": session})["s"] is session
    with pytest.raises(dp.DPError, match="spent twice"):
        pickle.dumps(session)


def test_a_session_in_a_file_travels_by_its_path(tmp_path):
    session = dp.Session(epsilon=1.0, unit="user", ledger=tmp_path / "budget.db")
    twin = pickle.loads(pickle.dumps(session))
    spend(twin, 0.4)
    assert session.spent.epsilon == 0.4


def test_a_forked_child_cannot_spend_a_copy_of_the_budget(tmp_path):
    in_memory = dp.Session(epsilon=1.0, unit="user")
    in_file = dp.Session(epsilon=1.0, unit="user", ledger=tmp_path / "budget.db")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads: the child only charges and exits
        child = os.fork()
    if child == 0:
        code = 1
        try:
            in_file.reserve(dp.pure_cost(0.3), label="child")
            in_memory.reserve(dp.pure_cost(0.3), label="child")
        except dp.LedgerError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert in_file.spent.epsilon == 0.3
    assert in_memory.spent.epsilon == 0


def in_child(work) -> int:
    """Return the exit code of `work` in a forked child: 0 if it succeeded, 1 if it raised a DPError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 2
        try:
            work()
            code = 0
        except dp.DPError:
            code = 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_relative_path_stays_the_same_file_wherever_the_process_goes(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    dp.Session(epsilon=1.0, unit="user", ledger="budget.db")
    monkeypatch.chdir(tmp_path)
    session = dp.Session(epsilon=1.0, unit="user", ledger="budget.db")
    session.reserve(dp.pure_cost(1), label="all")
    monkeypatch.chdir(tmp_path / "other")
    assert pickle.loads(pickle.dumps(session)).remaining.epsilon == 0
    assert in_child(lambda: session.reserve(dp.pure_cost(1), label="again")) == 1
    assert dp.Session.from_ledger(tmp_path / "other" / "budget.db").spent.epsilon == 0


def test_a_child_notices_that_the_file_was_swapped(tmp_path):
    session = dp.Session(epsilon=1.0, unit="user", ledger=tmp_path / "budget.db")
    dp.Session(rho=5, unit="other", ledger=tmp_path / "other.db").close()
    (tmp_path / "other.db").replace(tmp_path / "budget.db")
    assert in_child(lambda: session.reserve(dp.pure_cost(0.1), label="q")) == 1


@pytest.mark.slow
def test_a_child_is_told_apart_although_it_may_have_its_parents_number(monkeypatch):
    session = dp.Session(epsilon=1.0, unit="user")
    number = os.getpid()

    def child():
        monkeypatch.setattr(os, "getpid", lambda: number)
        session.reserve(dp.pure_cost(0.1), label="q")

    assert in_child(child) == 1


FORKING = """
import os, sys, threading, time, warnings
import dp_polars as dp

warnings.simplefilter("ignore", DeprecationWarning)
session = dp.Session(epsilon=1.0, unit="user", ledger=sys.argv[1])
stop, charged = threading.Event(), []

def work():
    while not stop.is_set():
        session.reserve(dp.pure_cost(0.0001), label="thread").fail(closes=False)
        charged.append(1)
        time.sleep(0.005)  # otherwise the children would wait forever for their turn

threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
codes = []
for _ in range(12):
    child = os.fork()
    if child == 0:
        code = 2
        try:
            session.reserve(dp.pure_cost(0.0001), label="child").fail(closes=False)
            code = 0
        finally:
            os._exit(code)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.set()
for thread in threads:
    thread.join()
assert codes == [0] * 12, codes
assert len(dp.Session.from_ledger(sys.argv[1]).releases) == len(charged) + 12
"""


@pytest.mark.slow
def test_forking_beside_busy_threads_harms_nobody(tmp_path):
    """This runs in its own process, because other native libraries of a test run may not survive a fork."""
    words = [sys.executable, "-c", FORKING, str(tmp_path / "budget.db")]
    subprocess.run(words, check=True, timeout=300)


@pytest.mark.slow
def test_threads_share_one_budget(place):
    session = dp.Session(epsilon=1.0, unit="user", ledger=place)
    accepted = []

    def work():
        for _ in range(10):
            try:
                session.reserve(dp.pure_cost(0.05), label="t").commit(FRAME)
                accepted.append(1)
            except dp.BudgetExceeded:
                pass

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(accepted) == 20
    assert session.spent.epsilon == 1.0


# ---------------------------------------------------------------- labels and frames that can't be stored


def test_a_label_with_half_a_surrogate_pair_is_refused_before_the_charge():
    session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    with pytest.raises(dp.InvalidParameterError, match="surrogate"):
        session.reserve(dp.pure_cost(0.1), label="\ud83d")
    assert not session.releases


@pytest.mark.parametrize("damage", [b"", b"nothing", b"ARROW1\0\0" + bytes(40)])
def test_a_damaged_stored_frame_is_a_ledger_error(damage):
    session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    private = dp.private(pl.DataFrame({"user": range(60)}), session)
    private.count(epsilon=0.1)
    session._ledger._connection.execute("UPDATE result SET frame = ?", (damage,))
    for read in (
        lambda: private.count(epsilon=0.1),
        lambda: session.release(1).frame,
        lambda: session.releases[0].frame,
    ):
        with pytest.raises(dp.LedgerError, match="charge number 1 is damaged"):
            read()
    private.count(epsilon=0.1, fresh=True)
