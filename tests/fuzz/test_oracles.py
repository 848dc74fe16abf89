"""The fuzzers see what they look for: each kind of fault is planted once."""

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._expressions import Column
from tests.fuzz import oracles
from tests.fuzz.oracles import Finding, Statements, Strict, check_row_wise, hostile_rows
from tests.fuzz.runs import Child

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

COUNT = {"sql": "SELECT dp_count(*, epsilon := 5e-6) AS n FROM people", "parameters": None, "options": {}}


@pytest.fixture(scope="module")
def statements():
    return Statements()


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
        ("SELECT money AS n FROM people LIMIT 1", "canary"),
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
    with Child("faults", patience=2) as child:
        assert child.ask("hold") == {"end": "hold"}
        assert "crash" in child.ask("die")["finding"]
        assert child.ask("hold") == {"end": "hold"}
        assert "time-out" in child.ask("wait")["finding"]
        assert "KeyError" in child.ask("fail")["finding"]
        assert child.ask("hold") == {"end": "hold"}


def test_the_exact_answers_are_known(statements):
    assert 619 in statements._truths or 618 in statements._truths
    assert not set(statements._truths) & oracles._GIVEN
