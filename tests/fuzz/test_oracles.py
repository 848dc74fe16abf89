"""The fuzzers see what they look for: each kind of fault is planted once."""

import warnings

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.polars.scan import lazy_rows
from dp_polars._expressions import Column
from dp_polars._frame.preview import Preview
from dp_polars._frame.private_frame import PrivateFrame
from tests.fuzz import neighbours
from tests.fuzz.findings import Finding
from tests.fuzz.neighbours import Functions, Neighbours, Pipelines, Statements
from tests.fuzz.oracles import Strict, check_row_wise
from tests.fuzz.private_rows import GONE, hostile_rows
from tests.fuzz.runs import Child

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

COUNT = {"sql": "SELECT dp_count(*, epsilon := 5e-6) AS n FROM people", "parameters": None, "options": {}}


@pytest.fixture(scope="module")
def statements():
    return Neighbours(Statements)


@pytest.fixture
def planted(statements, monkeypatch):
    """Return a function that puts another answer in the place of the guarded connection's."""

    def plant(answer):
        def sql(con, query, **_):
            return answer(con._database.connection, con)

        monkeypatch.setattr("dp_polars._sql.connection.GuardedConnection.sql", sql)
        statements._renew()
        return statements

    yield plant
    statements._renew()


@pytest.mark.slow
def test_an_honest_answer_is_no_finding(statements):
    assert statements(COUNT) == "answered"
    assert statements({**COUNT, "sql": "SELECT max(money) FROM people"}) == "refused"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leak", "finding"),
    [
        ("SELECT system.main.count(*) AS n FROM people WHERE b", "exact"),
        ("SELECT system.main.sum(i16) AS n FROM people WHERE i64 > 3 AND isfinite(f64)", "exact"),
        ("SELECT 'it is ' || system.main.count(*) AS n FROM people WHERE b", "exact"),
        ("SELECT t AS n FROM people LIMIT 1", "canary"),
        ("SELECT money AS n FROM people LIMIT 1", "exact"),
    ],
)
def test_what_leaks_into_results_is_found(planted, leak, finding):
    with pytest.raises(Finding, match=finding):
        planted(lambda raw, con: raw.sql(leak))(COUNT)


def test_an_error_that_quotes_a_value_is_found(planted):
    def fail(raw, con):
        raise dp.InvalidDataError("The value CANARY-12 can't be read.")

    with pytest.raises(Finding, match="canary"):
        planted(fail)(COUNT)

    def fail_after(raw, con):
        try:
            raise ValueError("CANARY-12")
        except ValueError:
            raise dp.InvalidDataError("A value can't be read.") from None

    with pytest.raises(Finding, match="canary"):
        planted(fail_after)(COUNT)


@pytest.mark.slow
def test_failures_and_types_that_depend_on_one_unit_are_found(planted):
    def fail(raw, con):
        if raw.sql("SELECT 1 FROM people WHERE uid = 17").fetchall():
            raise dp.InvalidDataError("No.")
        return duckdb.sql("SELECT 1 AS n")

    with pytest.raises(Finding, match="neighbours"):
        planted(fail)(COUNT)

    def other_type(raw, con):
        return duckdb.sql("SELECT 1 AS n" if raw.sql("FROM people WHERE uid = 17").fetchall() else "SELECT 'a' AS n")

    with pytest.raises(Finding, match="types differ"):
        planted(other_type)(COUNT)


def test_a_closed_session_is_found(planted):
    def fail(raw, con):
        con._session.reserve(dp.pure_cost(1e-6), label="fails").fail()
        return duckdb.sql("SELECT 1 AS n")

    with pytest.raises(Finding, match="closed"):
        planted(fail)(COUNT)


@pytest.mark.parametrize(
    ("fault", "finding"),
    [
        (lambda found: [found[0] - found[0].max()], "row-wise"),
        (lambda found: [found[0].cast(pl.Float64)], "type"),
        (lambda found: [found[0].head(3)], "height"),
    ],
)
def test_expressions_that_look_around_are_found(monkeypatch, fault, finding):
    rows = hostile_rows({"x": pl.Int64()}).fill_null(0).with_columns(pl.col("x").clip(-9, 9))
    columns = Strict.columns
    check_row_wise(Column("x", pl.Int64()), rows)
    monkeypatch.setattr(Strict, "columns", lambda self, batch: fault(columns(self, batch)))
    with pytest.raises(Finding, match=finding):
        check_row_wise(Column("x", pl.Int64()), rows)


@pytest.mark.slow
def test_deaths_silence_and_foreign_errors_of_the_child_are_found():
    with Child(patience=60) as child:
        assert child.ask("faults", "hold") == {"end": "hold"}
        assert "crash" in child.ask("faults", "die")["finding"]
        assert child.ask("faults", "hold") == {"end": "hold"}
        child.patience = 0.5
        assert "time-out" in child.ask("faults", "wait")["finding"]
        child.patience = 60
        assert "KeyError" in child.ask("faults", "fail")["finding"]
        assert "printed" in child.ask("faults", "print")["finding"]
        assert child.ask("faults", "hold") == {"end": "hold"}


def test_the_exact_answers_are_known(statements):
    assert 619 in statements._truths or 618 in statements._truths
    assert not set(statements._truths) & neighbours._GIVEN


@pytest.mark.slow
def test_plans_and_prices_that_depend_on_one_unit_are_found(statements, monkeypatch):
    def has_the_unit(con):
        return bool(con._database.connection.sql(f"FROM people WHERE uid = {GONE}").fetchall())

    preview = dp.GuardedConnection.preview
    with monkeypatch.context() as patched:
        other = {**COUNT, "sql": COUNT["sql"].replace("5e-6", "8e-6")}["sql"]
        patched.setattr(
            dp.GuardedConnection,
            "preview",
            lambda con, query, **_: preview(con, other if has_the_unit(con) else query),
        )
        with pytest.raises(Finding, match="plans differ"):
            statements(COUNT)
    sql = dp.GuardedConnection.sql

    def dearer(con, query, **_):
        if has_the_unit(con):
            con._session.reserve(dp.pure_cost(1e-6), label="more").commit(pl.DataFrame({"n": [1]}))
        return sql(con, query)

    monkeypatch.setattr(dp.GuardedConnection, "sql", dearer)
    with pytest.raises(Finding, match="prices differ"):
        statements(COUNT)
    statements._renew()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "options"),
    [
        ("SELECT dp_count(*, epsilon := 5e-6) AS n, dp_low(n), dp_high(n) AS h FROM people HAVING dp_low(n) > -1e12", {}),
        ("SELECT b, dp_sum(i64, 0, 9, epsilon := 5e-6) AS n, dp_cut_by_cap(), dp_cut_by_bounds() FROM people GROUP BY b", {}),
        ("SELECT dp_median(i64, 0, 9, epsilon := 5e-6) AS m, dp_rank_error(m) FROM people", {}),
        ("SELECT dp_avg(i64, 0, 9, epsilon := 5e-6) AS m FROM people", {"confidence": 0.9}),
        ("SUMMARIZE SELECT b, i64 FROM people", {"epsilon": 5e-6, "by": ["b"]}),
    ],
)  # fmt: skip
def test_intervals_cuts_and_summaries_reach_the_oracle(statements, sql, options):
    assert statements({"sql": sql, "parameters": None, "options": options}) == "answered"


# ---------------------------------------------------------------------- functions on the owner's connection

CALL = "FROM dp.count('people', \"by\" := 'b', epsilon := 5e-6)"


@pytest.fixture(scope="module")
def functions():
    pair = Neighbours(Functions)
    yield pair
    for one in pair._pair:
        one.close()


@pytest.mark.slow
def test_honest_functions_are_no_finding(functions):
    assert functions(CALL) == "answered"
    assert functions(CALL.replace("'b'", "'nosuch'")) == "refused"
    assert functions(CALL.replace("people", "no_such_table")) == "refused"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leak", "finding"),
    [
        ("SELECT count(*) AS n FROM people WHERE b", "exact"),
        ("SELECT t FROM people LIMIT 1", "canary"),
        ("SELECT CAST(t AS INTEGER) FROM people", "Conversion"),
        (f"SELECT CASE WHEN count(*) FILTER (uid = {GONE}) > 0 THEN error('no') END FROM people", "no"),
    ],
)
def test_what_a_statement_of_the_owner_shows_is_found(functions, leak, finding):
    with pytest.raises((Finding, duckdb.Error), match=finding):
        functions(leak)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "finding"),
    [
        (KeyError("x"), "KeyError"),
        (dp.InvalidDataError("The value CANARY-12 can't be read."), "canary"),
        (dp.EngineError("It failed."), "closed"),
    ],
)
def test_errors_inside_functions_are_found(functions, monkeypatch, error, finding):
    def fail(*_):
        raise error

    monkeypatch.setattr("dp_polars._sql.functions.Functions._answer", fail)
    functions._renew()
    with pytest.raises((Finding, duckdb.Error), match=finding):
        functions(CALL)
    functions._renew()


# ---------------------------------------------------------------------- pipelines

PIPELINE = {
    "steps": ".filter(e[0])",
    "question": ".count('mood', epsilon=5e-6)",
    "expressions": ["pl.col('i64') > 20"],
    "lazy": False,
}


@pytest.fixture(scope="module")
def pipelines():
    return Neighbours(Pipelines)


def rows_of(frame):
    """Return the private rows behind a frame, which no question shows."""
    return lazy_rows(frame._rows).collect()


@pytest.fixture
def leaking(pipelines, monkeypatch):
    """Return a function that changes the answer to a count, which is paid all the same."""
    count = PrivateFrame.count

    def plant(change):
        monkeypatch.setattr(PrivateFrame, "count", lambda self, by, **words: change(count(self, by, **words), self))
        pipelines._renew()
        return pipelines

    yield plant
    pipelines._renew()


@pytest.mark.slow
def test_honest_pipelines_are_no_finding(pipelines):
    assert pipelines(PIPELINE) == "answered"
    assert pipelines({**PIPELINE, "lazy": True}) == "answered"
    assert pipelines({**PIPELINE, "steps": ".drop('uid')"}) == "refused"
    assert pipelines({**PIPELINE, "expressions": ["pl.nosuch"]}) == "no expression"


def has_the_unit(frame):
    return GONE in rows_of(frame)["uid"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda answer, frame: answer.with_columns(count=rows_of(frame).height), "exact"),
        (lambda answer, frame: answer.with_columns(count=rows_of(frame)["money"].sum()), "exact"),
        (lambda answer, frame: answer.with_columns(count=pl.lit(rows_of(frame)["t"][5])), "canary"),
        (lambda answer, frame: answer.cast({"count": pl.Float64}) if has_the_unit(frame) else answer, "types differ"),
        (lambda answer, frame: answer.select("count", "mood") if has_the_unit(frame) else answer, "types differ"),
        (lambda answer, frame: 1 / 0 if has_the_unit(frame) else answer, "ZeroDivisionError|division"),
    ],
)
def test_what_leaks_from_a_pipeline_is_found(leaking, change, finding):
    with pytest.raises((Finding, ZeroDivisionError), match=finding):
        leaking(change)(PIPELINE)


@pytest.mark.slow
def test_keys_of_a_release_that_depend_on_one_unit_are_found(pipelines, monkeypatch):
    def other_keys(self, by, **words):
        return count(self, by, keys=["sad", "ok"] if has_the_unit(self) else ["ok", "é"], **words)

    count = PrivateFrame.count
    monkeypatch.setattr(PrivateFrame, "count", other_keys)
    with pytest.raises(Finding, match="keys or row counts differ"):
        pipelines(PIPELINE)


@pytest.mark.slow
def test_prices_refusals_warnings_and_plans_of_pipelines_are_watched(pipelines, monkeypatch):
    def planted(owner, name, function, finding):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, function)
            pipelines._renew()
            with pytest.raises(Finding, match=finding):
                pipelines(PIPELINE)

    def refuse(self, by, **_):
        raise dp.InvalidParameterError("No." if has_the_unit(self) else "Never.")

    def warn(self, by, **words):
        warnings.warn(rows_of(self)["t"][3], dp.DPWarning, stacklevel=1)
        return count(self, by, **words)

    def closing(self, by, **_):
        self._session.reserve(dp.pure_cost(1e-6), label="fails").fail()
        return pl.DataFrame({"n": [1]})

    def charged(self, by, **words):
        count(self, by, **words)
        raise dp.InvalidParameterError("No.")

    def paying(self, by, **words):
        plan = preview(self, by, **words)
        self._view(words).session.reserve(dp.pure_cost(1e-6), label="preview").commit(pl.DataFrame({"n": [1]}))
        return plan

    count, preview = PrivateFrame.count, Preview.count
    planted(PrivateFrame, "count", refuse, "neighbours")
    planted(PrivateFrame, "count", warn, "canary")
    planted(PrivateFrame, "count", closing, "closed")
    planted(PrivateFrame, "count", charged, "refused after a charge")
    planted(PrivateFrame, "count", lambda self, by, **_: pl.DataFrame({"n": [1]}), "without a release")
    planted(PrivateFrame, "count", lambda self, by, **_: count(self, by, epsilon=2e-6), "less than the declared price")
    planted(Preview, "count", paying, "a preview cost something")
    planted(PrivateFrame, "__repr__", lambda self: rows_of(self)["t"][3], "canary")
    pipelines._renew()
