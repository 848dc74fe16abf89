"""Ctrl-C at any moment leaves no lock held, no transaction open and no charge unmarked, and closes no session.

A trace function sends signals at each line (or each interpreter step) of the package, one run after another.
"""

import contextlib
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._release.charge import OpenQuestions, open_charged, release_once
from dp_polars._session.exclusive_lock import Exclusive
from dp_polars._session.interrupts import Deferred

PACKAGE = Path(dp.__file__).parent
WATCHED = (str(PACKAGE / "_session") + os.sep, str(PACKAGE / "_release" / "charge.py"))
FRAME = pl.DataFrame({"n": [1]})
PRICE = dp.pure_cost(1e-5)
PLAN = SimpleNamespace(cost=PRICE, label=lambda: "q", fingerprint=lambda: b"q")


@pytest.fixture(params=["memory", "file"])
def session(request, tmp_path):
    path = None if request.param == "memory" else tmp_path / "budget.db"
    with contextlib.closing(dp.Session(epsilon=1.0, unit="user", ledger=path)) as session:
        yield session


@pytest.fixture(autouse=True)
def handler():
    """Use Python's own handler, whatever the test runner has set, and check that it is back after each test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def interrupt():
    signal.raise_signal(signal.SIGINT)


def raise_here():
    raise KeyboardInterrupt


def traced(work, reach, event, watched):
    """Run something and call `reach(frame)` at each moment in the watched files. Return whether Ctrl-C stopped it."""

    def trace(frame, kind, argument):
        if not frame.f_code.co_filename.startswith(watched):
            return None
        frame.f_trace_opcodes = event == "opcode"
        if kind == event:
            reach(frame)
        return trace

    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def moments(work, event="line", watched=WATCHED):
    """Return the numbers of the moments of a run. If some differ only by rounds of a loop, return the first of them."""
    found, last = {}, 0

    def reach(frame):
        nonlocal last
        place, current = [], frame
        while current is not None:
            place.append((current.f_code, current.f_lasti if event == "opcode" else current.f_lineno))
            current = current.f_back
        found.setdefault(tuple(place), last)
        last += 1

    traced(work, reach, event, watched)
    assert len(found) > 100
    return list(found.values())


def stopped(work, moment, event="line", act=interrupt, watched=WATCHED):
    """Run something and act at one of its moments. Return whether that stopped it."""
    left = moment

    def reach(frame):
        nonlocal left
        left -= 1
        if left == -1:
            act()

    return traced(work, reach, event, watched)


THREAD = ThreadPoolExecutor(1)


def in_thread(work):
    """Run something in another thread, which must finish soon."""
    return THREAD.submit(work).result(timeout=20)


def check_nothing_is_left(session):
    assert not session._ledger._connection.in_transaction
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    waiting = "SELECT count(*) FROM charge WHERE state = 'reserved'"
    assert in_thread(lambda: session._ledger.refuse_closed()) == 0
    assert session._ledger._connection.execute(waiting).fetchone() == (0,)


def ask_once(session):
    return release_once(session, PLAN, identity=lambda: b"", fresh=True, make=lambda: (FRAME, None))


def open_and_ask(session):
    release, _ = open_charged(session, PRICE, "q", None, lambda: (FRAME, None))
    return OpenQuestions(session, release).ask(1, lambda: FRAME)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("session", "ask"), [("memory", ask_once), ("file", ask_once), ("file", open_and_ask)], indirect=["session"]
)
def test_an_interrupt_at_any_line_of_a_question_leaves_nothing_behind(session, ask):
    for moment in moments(lambda: ask(session)):
        assert stopped(lambda: ask(session), moment), "Ctrl-C was lost"
        check_nothing_is_left(session)
    entries = session._ledger.entries()
    assert {one.state for one in entries} == {"failed", "committed"}
    assert session.spent.epsilon == pytest.approx(1e-5 * len(entries))
    assert not session.closings


@pytest.mark.slow
def test_an_interrupt_at_any_step_of_a_question_leaves_nothing_behind():
    """There are more interpreter steps than moments at which CPython handles signals."""
    session = dp.Session(epsilon=1.0, unit="user")
    watched = tuple(str(PACKAGE / name) for name in ("_session/exclusive_lock.py", "_release/charge.py"))
    for moment in moments(lambda: ask_once(session), "opcode", watched):
        assert stopped(lambda: ask_once(session), moment, "opcode", watched=watched), "Ctrl-C was lost"
        check_nothing_is_left(session)
    assert not session.closings


@pytest.mark.slow
def test_an_interrupt_at_any_line_of_a_charge_of_ones_own_leaves_it_marked(session):
    """This is about moments before `reserve` returns. After that, the caller's `with` block marks the charge."""
    made = []
    for moment in moments(lambda: made.append(session.reserve(PRICE, label="q"))):
        assert stopped(lambda: made.append(session.reserve(PRICE, label="q")), moment), "Ctrl-C was lost"
        while made:
            made.pop().fail(closes=False)
        check_nothing_is_left(session)
    assert not session.closings


@pytest.mark.slow
def test_an_exception_at_any_line_leaves_no_lock_held(session):
    """An exception from a debugger can come even where Ctrl-C can't. Other threads must go on at once."""
    for moment in moments(lambda: session.reserve(PRICE, label="q")):
        assert stopped(lambda: session.reserve(PRICE, label="q"), moment, act=raise_here)
        in_thread(lambda: session.reserve(PRICE, label="other").fail(closes=False))
        session.reserve(PRICE, label="same").fail(closes=False)
    with pytest.raises(KeyboardInterrupt):  # the next signal finds that the block is over and puts the handler back
        interrupt()
    assert not session.closings


def test_an_interrupt_while_rows_are_read_comes_at_once_and_a_second_one_waits(session):
    reached = []

    def make():
        interrupt()
        reached.append("after the interrupt")
        return FRAME, None

    def twice(*given, original=session._ledger.fail, **named):
        interrupt()  # while the charge is marked
        return original(*given, **named)

    session._ledger.fail = twice
    with pytest.raises(KeyboardInterrupt):
        release_once(session, PLAN, identity=lambda: b"", fresh=True, make=make)
    assert not reached
    check_nothing_is_left(session)
    assert [one.state for one in session.releases] == ["failed"]
    assert not session.closings


@pytest.mark.slow
def test_a_handler_that_does_not_raise_changes_nothing(session):
    seen = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    found = moments(lambda: ask_once(session))[::7]
    for moment in found:
        stopped(lambda: ask_once(session), moment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert len(seen) == len(found)
    assert {one.state for one in session.releases} == {"committed"}


def test_an_alarm_waits_too_and_one_that_stops_a_question_closes_the_session(session):
    """A timeout while rows are read is a failure like any other, because the time depends on the rows."""

    def too_late(number, frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, too_late)
    try:
        with pytest.raises(dp.EngineError):
            release_once(
                session,
                PLAN,
                identity=lambda: b"",
                fresh=True,
                make=lambda: (signal.raise_signal(signal.SIGALRM), (FRAME, None))[1],
            )
        assert session.closed
        session.reopen(reason="tried")
        reservation = session.reserve(PRICE, label="q")
        with pytest.raises(TimeoutError), Deferred():
            reservation.commit((signal.raise_signal(signal.SIGALRM), FRAME)[1])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert [one.state for one in session.releases] == ["failed", "committed"]


def test_a_claim_ends_with_the_function_that_made_it_even_if_its_traceback_is_kept():
    guard, kept = Exclusive(object()), []

    def skipping_the_end():
        guard.held(1.0, sys._getframe()).__enter__()
        assert guard.busy()
        raise KeyboardInterrupt

    try:
        skipping_the_end()
    except KeyboardInterrupt as error:
        kept.append(error)
    assert not guard.busy()
    with guard.held(0.0):
        assert guard.busy()
        assert in_thread(lambda: not guard.busy())


def test_threads_take_turns():
    guard, inside, most = Exclusive(object()), [], []

    def work():
        for _ in range(200):
            with guard.held(60.0):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 800
    assert set(most) == {1}
