"""A failure on private rows closes the session for every kind of query until the owner reopens it.

One unit can change whether an engine fails. Nobody paid to learn that, so it may be seen once and not again.
"""

import ast
import importlib
import pickle
import pkgutil
import threading
from pathlib import Path

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.polars import engine as polars_engine
from dp_polars._engines.polars import scan as engine_scan
from dp_polars._release import charge as charging
from dp_polars._session.interrupts import Deferred

ROWS = pl.DataFrame({"user": range(60), "n": [1, 2, 3] * 20, "flag": [True, False] * 30})
DOMAIN = {"flag": None}
# Import all modules before an engine is broken: one that is imported later would keep the broken engine.
MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(dp.__path__, "dp_polars.")
    if not found.name.endswith("__main__")
]


def paying(**words):
    return dp.Session(**{"epsilon": 5.0, "unit": "user", "max_rows_per_group": 1, "max_groups": 1, **words})


def break_engine(monkeypatch, error):
    """Make every engine fail when rows are read, wherever its functions were imported."""

    def failing(*_, **__):
        raise error("the secret 4711")

    readers = (engine_scan.collect, polars_engine.run_bounded)
    for module in MODULES:
        for name, value in list(vars(module).items()):
            if any(value is reader for reader in readers):
                monkeypatch.setattr(module, name, failing)


def private(session):
    return dp.private(ROWS, session)


def sql(session):
    con = dp.connect(None, session).register("visits", ROWS)
    return con.sql("SELECT dp_count(*, epsilon := 0.5) FROM visits")


def function(session):
    con = duckdb.connect()
    con.execute("CREATE TABLE visits AS SELECT i AS user, 1 AS n FROM range(60) t(i)")
    dp.register(con, session)
    return con.sql("FROM dp.count('visits', epsilon := 0.5)").fetchall()


def responses(session):
    return private(session).randomized_response("flag", epsilon=0.5)


QUESTIONS = {
    "count": lambda s: private(s).count(epsilon=0.5),
    "lazy": lambda s: dp.private(ROWS.lazy(), s).count(epsilon=0.5).collect(),
    "agg": lambda s: private(s).group_by().agg(a=dp.sum("n", bounds=(0, 3)), b=dp.count(), epsilon=0.5),
    "auto": lambda s: private(s).sum("n", bounds="auto", epsilon=0.5),
    "quantile": lambda s: private(s).median("n", bounds=(0, 3), epsilon=0.5),
    "choice": lambda s: private(s).noisy_max("n", [1, 2, 3], epsilon=0.5),
    "best": lambda s: private(s).select_best([1, 2], lambda c: pl.col("n") - c, bounds=(0, 3), epsilon=0.5),
    "responses": responses,
    "synthesis": lambda s: private(s).synthesize(DOMAIN, epsilon=0.5),
    "online": lambda s: private(s).online_queries(DOMAIN, alpha=0.1, max_updates=2, epsilon=0.5),
    "stream": lambda s: private(s).above_threshold(10, epsilon=0.5),
    "sql": sql,
    "function": function,
}


def asked(kind, session, error=dp.EngineError):
    if kind == "lazy":  # Polars 1.44 wraps our error in its own
        error = (error, pl.exceptions.ComputeError)
    if kind == "function":
        error = duckdb.Error
    with pytest.raises(error) as caught:
        QUESTIONS[kind](session)
    return caught.value


@pytest.mark.filterwarnings("ignore::dp_polars.DPWarning")  # estimates from a handful of units
@pytest.mark.slow
@pytest.mark.parametrize("error", [RuntimeError, MemoryError, pl.exceptions.PanicException])
@pytest.mark.parametrize("kind", QUESTIONS)
def test_an_engine_that_fails_closes_the_session_and_says_nothing_else(kind, error, monkeypatch):
    session = paying(adjacency="replace") if kind == "responses" else paying()
    with monkeypatch.context() as broken:
        break_engine(broken, error)
        failed = asked(kind, session)
    assert "4711" not in str(failed)
    assert failed.__context__ is None or "4711" not in repr(failed.__context__)
    assert [one.state for one in session.releases] == ["failed"]
    assert session.closed
    assert [one.cause for one in session.closings] == ["failed"]
    spent = session.spent
    refused = asked(kind, session, dp.SessionClosed)
    assert "session is closed" in str(refused)
    assert session.spent == spent
    session.reopen(reason="mended")
    QUESTIONS[kind](session)
    assert [one.state for one in session.releases] == ["failed", "committed"]


@pytest.mark.slow
def test_every_kind_is_refused_after_any_failure():
    session = paying()
    session.reserve(dp.pure_cost(0.1), label="own").fail()
    for kind in QUESTIONS:
        if kind != "responses":
            asked(kind, session, dp.SessionClosed)
    assert len(session.releases) == 1


def test_a_stream_and_online_queries_that_are_open_are_refused_too_and_go_on_after_the_reopening():
    session = paying()
    stream = private(session).above_threshold(10**6, epsilon=0.5)
    online = private(session).online_queries(DOMAIN, alpha=0.1, max_updates=50, epsilon=0.5)
    session.reserve(dp.pure_cost(0.1), label="own").fail()
    for ask in (lambda: stream.ask(pl.col("flag")), lambda: online.ask(pl.col("flag"))):
        with pytest.raises(dp.SessionClosed):
            ask()
    session.reopen(reason="mended")
    assert stream.ask(pl.col("flag")) is False
    assert online.ask(pl.col("flag")).checked


@pytest.mark.parametrize("what", ["stream", "online"])
def test_a_question_that_fails_later_closes_the_session_and_ends_what_was_open(what, monkeypatch):
    session = paying()
    if what == "stream":
        opened = private(session).above_threshold(10**6, epsilon=0.5)
        target = "dp_polars._streams.release.exact_answers"
    else:
        opened = private(session).online_queries(DOMAIN, alpha=0.1, max_updates=50, epsilon=0.5)
        target = "dp_polars._many.online_release.over"
    with monkeypatch.context() as broken:
        broken.setattr(target, lambda *_: 1 / 0)
        with pytest.raises(dp.EngineError) as failed:
            opened.ask(pl.col("flag"))
    assert "division" not in repr(failed.value.__context__)
    assert session.closed
    assert session.closings[0].charge == 1
    session.reopen(reason="mended")
    with pytest.raises(dp.InvalidParameterError, match="closed"):
        opened.ask(pl.col("flag"))


def test_stored_releases_stay_readable():
    session = paying()
    before = private(session)
    first = before.count(epsilon=0.5)
    session.reserve(dp.pure_cost(0.1), label="own").fail()
    assert before.count(epsilon=0.5).equals(first)
    assert session.releases[0].frame.equals(first)
    assert session.release(1).frame.equals(first)
    assert before.preview.count(epsilon=0.25).cost == dp.pure_cost(0.25)
    with pytest.raises(dp.SessionClosed):
        before.count(epsilon=0.5, fresh=True)


def test_every_process_that_shares_the_ledger_sees_it(tmp_path):
    one, two = (paying(ledger=tmp_path / "budget.db") for _ in range(2))
    one.reserve(dp.pure_cost(0.1), label="own").fail()
    with pytest.raises(dp.SessionClosed):
        private(two).count(epsilon=0.5)
    assert dp.Session.from_ledger(tmp_path / "budget.db").closed
    two.reopen(reason="seen by both")
    private(one).count(epsilon=0.5)
    assert one.reopenings == 1


def test_an_interrupt_does_not_close_the_session_and_keeps_the_charge(monkeypatch):
    session = paying()
    with monkeypatch.context() as broken:
        break_engine(broken, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            private(session).count(epsilon=0.5)
    assert not session.closings
    assert session.spent.epsilon == 0.5
    private(session).count(epsilon=0.5)


def test_an_interrupt_that_an_engine_reports_as_an_error_is_one():
    """DuckDB raises RuntimeError after Ctrl-C."""
    import os
    import signal

    def interrupted():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(10**6):
                pass
        except KeyboardInterrupt:
            raise RuntimeError("Query interrupted") from None

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Deferred() as signals:
        charging.guarded(interrupted, signals)
    assert signal.getsignal(signal.SIGINT) is before


def test_what_is_found_before_the_charge_closes_nothing():
    session = paying()
    for wrong in (
        lambda: private(session).sum("n", epsilon=0.5),
        lambda: private(session).count("missing", epsilon=0.5),
        lambda: private(session).count(epsilon=50),
        lambda: dp.connect(None, session).register("v", ROWS).sql("SELECT * FROM v"),
    ):
        with pytest.raises(dp.DPError):
            wrong()
    assert not session.closings


def test_a_statement_that_fails_above_the_released_rows_closes_nothing():
    session = paying()
    con = dp.connect(None, session).register("visits", ROWS)
    with pytest.raises(dp.StatementNotAllowed, match="above"):
        con.sql("SELECT CAST('x' || n AS INT) FROM (SELECT dp_count(*, epsilon := 0.5) AS n FROM visits)")
    assert not session.closings
    assert [one.state for one in session.releases] == ["committed"]


def test_a_source_that_was_touched_is_public_and_closes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    ROWS.write_parquet(path)
    session = paying()
    present = "dp_polars._release.run.present"
    monkeypatch.setattr(present, lambda *_: (path.touch(), pl.DataFrame({"count": [1]}))[1])
    with pytest.raises((dp.EngineError, pl.exceptions.ComputeError), match="changed while it was read"):
        dp.private(pl.scan_parquet(path), session).count(epsilon=0.5).collect()
    assert not session.closings
    assert session.releases[0].state == "failed"


def test_of_questions_under_way_while_the_session_closes_none_is_answered():
    """A hundred queries that run at the same time would otherwise reveal a hundred bits."""
    session = paying()
    waiting = [session.reserve(dp.pure_cost(0.1), label="under way") for _ in range(4)]
    session.reserve(dp.pure_cost(0.1), label="fails").fail()
    with pytest.raises(dp.SessionClosed):
        waiting[0].commit(ROWS)
    with pytest.raises(dp.SessionClosed):
        waiting[1].fail()
    session.reopen(reason="reopened meanwhile")
    with pytest.raises(dp.SessionClosed, match="began before"):
        waiting[2].commit(ROWS)
    assert not session.closed
    with pytest.raises(dp.SessionClosed):
        waiting[3].fail()
    assert session.closed
    assert [one.state for one in session.releases] == ["failed"] * 5


def test_threads_that_fail_together_close_it_and_nobody_gets_an_answer_after_it():
    session = paying()
    told = []
    gate = threading.Barrier(8)

    def work(number):
        gate.wait()
        try:
            with session.reserve(dp.pure_cost(0.1), label=str(number)):
                gate.wait()
                raise ZeroDivisionError
        except (ZeroDivisionError, dp.SessionClosed) as error:
            told.append(type(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told, key=str).count(ZeroDivisionError) == 1
    assert told.count(dp.SessionClosed) == 7


# ---------------------------------------------------------------- reopening


def test_a_reopening_is_counted_and_shown_everywhere(tmp_path):
    session = paying(ledger=tmp_path / "budget.db")
    for reason in ("a file was missing", "<b>memory</b>"):
        session.reserve(dp.pure_cost(0.1), label="own").fail()
        assert ", closed" in repr(session)
        assert "CLOSED since" in session.describe()
        assert "CLOSED since" in session._repr_html_()
        session.reopen(reason=reason)
    again = dp.Session.from_ledger(tmp_path / "budget.db")
    assert again.reopenings == 2
    assert "reopened 2 times" in repr(again)
    assert "closed" not in repr(again)
    assert "a file was missing" in again.describe()
    assert "<b>memory" not in again._repr_html_()
    assert "&lt;b&gt;memory" in again._repr_html_()
    frame = again.export()
    assert frame["reopened_because"].to_list() == ["a file was missing", "<b>memory</b>"]
    assert frame["closed_at"].null_count() == frame["reopened_at"].null_count() == 0


@pytest.mark.parametrize("reason", ["", "  ", None, 3, "\ud800", "x" * 1001])
def test_a_reason_is_a_text_that_can_be_kept(reason):
    session = paying()
    session.reserve(dp.pure_cost(0.1), label="own").fail()
    with pytest.raises(dp.InvalidParameterError):
        session.reopen(reason=reason)
    assert session.closed


def test_what_is_not_closed_is_not_reopened():
    session = paying()
    with pytest.raises(dp.InvalidParameterError, match="not closed"):
        session.reopen(reason="why not")
    assert session.reopenings == 0


def test_the_error_travels_to_other_processes():
    session = paying()
    session.reserve(dp.pure_cost(0.1), label="own").fail()
    with pytest.raises(dp.SessionClosed) as refused:
        session.reserve(dp.pure_cost(0.1), label="own")
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.code, again.closing) == (str(refused.value), "session-closed", refused.value.closing)


# ---------------------------------------------------------------- the only path to private rows


@pytest.mark.slow
def test_only_one_module_charges_and_only_it_turns_failures_into_errors():
    package = Path(dp.__file__).parent
    charges, guards = set(), set()
    for path in package.rglob("*.py"):
        text = path.read_text()
        if "reserve" not in text and "EngineError" not in text:  # parsing takes long
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "reserve":
                charges.add(path.relative_to(package).as_posix())
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "EngineError":
                guards.add(path.relative_to(package).as_posix())
    assert charges == {"_release/charge.py", "_session/session.py"}
    assert guards == {"_release/charge.py"}


def test_streams_and_online_queries_have_a_last_question(monkeypatch):
    monkeypatch.setattr(charging, "MOST_QUESTIONS", 3)
    session = paying()
    stream = private(session).above_threshold(10**6, epsilon=0.5)
    assert stream.ask_many([pl.col("flag")] * 2) == [False, False]
    with pytest.raises(dp.InvalidParameterError, match="1 are left"):
        stream.ask_many([pl.col("flag")] * 2)
    assert stream.ask(pl.col("flag")) is False
    with pytest.raises(dp.InvalidParameterError, match="At most 3 queries"):
        stream.ask(pl.col("flag"))
    online = private(session).online_queries(DOMAIN, alpha=0.4, max_updates=50, epsilon=0.5)
    for _ in range(3):
        online.ask(pl.col("flag"))
    with pytest.raises(dp.InvalidParameterError, match="At most 3 queries"):
        online.ask(pl.col("flag"))
