"""Whatever columns and tables are called, a question is answered, or it is refused before it costs anything."""

import contextlib

import duckdb
import polars as pl
import pytest

import dp_polars as dp

NAMES = {
    "space": " ",
    "null inside": "a\0b",
    "null at the end": "a\0",
    "null first": "\0a",
    "long": "x" * 10_000,
    "quotes": "a\"b'c`",
    "lines": "a\nb\r\t",
    "two code points": "e\u0301",
    "emoji": "😀",
    "right to left": "\u202e",
    "star": "*",
    "pattern": "^a$",
    "statement": "a;--",
    "format": "{x}%s\\",
    "keyword": "select",
    "row id": "rowid",
    "function": "len",
    "unit's case": "User",
    "own case": "V",
}


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def session_of() -> dp.Session:
    return dp.Session(epsilon=10.0, delta=1e-6, unit="user", max_groups=2, max_rows_per_group=2)


def check(session: dp.Session, ask) -> bool:
    """Ask, and return whether there was an answer. If there was none, nothing was spent."""
    before = session.spent.epsilon
    answered = False
    with contextlib.suppress(dp.DPError):
        ask()
        answered = True
    assert not session.closed
    assert answered or session.spent.epsilon == before
    return answered


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_no_name_of_a_column_fails_after_the_charge_in_polars(name, tmp_path):
    frame = pl.DataFrame({"user": [1, 2, 3], name: [1, 2, 3], "v": [1.0, 2.0, 3.0]})
    frame.write_parquet(tmp_path / "f.parquet")
    n = pl.col(name) if name != "*" else pl.col("^\\*$")
    for given in (frame, pl.scan_parquet(tmp_path / "f.parquet")):
        session = session_of()
        asked = {
            "count": lambda p: p.count(epsilon=0.1),
            "keys": lambda p: p.count(name, keys=[1, 2], epsilon=0.1),
            "sum": lambda p: p.sum(name, bounds=(0, 3), epsilon=0.1),
            "group": lambda p: p.group_by("user", name).agg(m=n.sum()).sum("m", bounds=(0, 3), epsilon=0.1),
            "first": lambda p: p.group_by("user").head(1, order_by=name).count(epsilon=0.1),
            "join": lambda p: p.join(p, on=["user", name]).count(epsilon=0.1),
            "made": lambda p: p.select(m="v").rename({"m": name}).count(epsilon=0.1),
            "answer": lambda p: p.group_by(k=pl.col("v").cast(pl.Int64)).agg(
                **{name: dp.count()}, keys=[1, 2], epsilon=0.1
            ),
        }
        answered = {
            what: check(session, lambda ask=ask, given=given, session=session: ask(dp.private(given, session)))
            for what, ask in asked.items()
        }
        refused = "\0" in name or name in ("*", "^a$", "User", "V")
        assert answered["count"] is answered["sum"] is not refused


@pytest.fixture(scope="module")
def database():
    with duckdb.connect() as database:
        yield database


@pytest.fixture
def raw(database):
    """A database without tables: opening one takes longer than the questions."""
    yield database
    for (table,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        database.execute(f"DROP TABLE {quoted(table)}")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("source", ["table", "frame", "named table"])
def test_no_name_fails_after_the_charge_in_sql(name, source, raw):
    table = "t"
    session = session_of()
    con = dp.connect(raw, session)
    frame = pl.DataFrame({"user": [1, 2, 3], name: [1, 2, 3], "v": [1.0, 2.0, 3.0]})
    if source == "frame":
        with contextlib.suppress(dp.DPError):
            con.register("t", frame)
    else:
        table = quoted(name) if source == "named table" else "t"
        own = quoted(name if name.lower() not in ("user", "v") else f"{name}2")  # DuckDB has no such table
        raw.execute(f'CREATE TABLE {table} ("user" BIGINT, {own} BIGINT, v DOUBLE)')
        raw.execute(f"INSERT INTO {table} VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3)")
    n = quoted(name)
    statements = [
        f"SELECT dp_count(*) AS c FROM {table}",
        f"SELECT dp_sum({n}, 0, 3) AS c FROM {table}",
        f'SELECT dp_sum(m, 0, 3) AS {n} FROM (SELECT "user", sum({n}) AS m FROM {table} GROUP BY "user", {n})',
        f"SELECT dp_count(*) AS c FROM {table} WHERE {n} > 1",
    ]
    answered = [check(session, lambda: con.sql(one, epsilon=0.1).fetchall()) for one in statements]  # noqa: B023
    if "\0" in name or name in ("*", "^a$"):
        assert not any(answered)
    elif name.lower() not in ("user", "v"):
        assert answered[0]


def test_a_null_character_in_a_statement_is_refused():
    session = session_of()
    con = dp.connect(None, session)
    con.register("t", pl.DataFrame({"user": [1, 2]}))
    for sql in ('SELECT dp_count(*) AS "a\0b" FROM t', "SELECT dp_count(*) AS c FROM t WHERE 'a\0' = 'b'"):
        with pytest.raises(dp.StatementNotAllowed, match="null characters"):
            con.sql(sql, epsilon=0.1)
    assert session.spent.epsilon == 0
