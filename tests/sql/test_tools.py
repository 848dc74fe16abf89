"""Tools that speak Python's database API or SQLAlchemy ask through a guarded connection."""

import importlib.metadata
import subprocess
import sys

import polars as pl
import pytest

import dp_polars as dp

sqlalchemy = pytest.importorskip("sqlalchemy")
pandas = pytest.importorskip("pandas")

POLICY = """
unit = "customer_id"

[budget]
epsilon = 10.0
queries = 10
ledger = "budget.db"

[analysts]
team-a = 0.5

[tables.orders]
source = "orders.parquet"
public = false
max_rows_per_group = 3
max_groups = 2

[tables.orders.columns]
total.bounds = [0, 100]
status.keys = ["new", "paid"]
email.ask = false
"""
JUPYSQL = [*importlib.metadata.distributions(name="jupysql")]
BY_STATUS = "SELECT status, COUNT(*) AS n, AVG(total) AS mean FROM orders GROUP BY status ORDER BY status"


@pytest.fixture
def path(tmp_path):
    number = pl.int_range(0, 12_000)
    orders = pl.select(order_id=number, customer_id=number % 4_000, total=(number % 7 * 10).cast(pl.Float64))
    orders = orders.with_columns(
        status=pl.when(pl.col("order_id") % 3 == 0).then(pl.lit("new")).otherwise(pl.lit("paid")), email=pl.lit("x@y")
    )
    orders.write_parquet(tmp_path / "orders.parquet")
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path / "policy.toml"


@pytest.fixture
def engine(path):
    engine = sqlalchemy.create_engine(f"dp_polars:///{path}?analyst=team-a")
    yield engine
    engine.dispose()


def test_the_dialect_is_found_by_its_name():
    found = importlib.metadata.entry_points(group="sqlalchemy.dialects", name="dp_polars")
    assert [entry.value for entry in found] == ["dp_polars.sqlalchemy:Dialect"]


def close(rows):
    """Whether these are the counts and means by status. The scale of a count's noise is below 30, of a mean's 0.2."""
    ((new, n_new, mean_new), (paid, n_paid, mean_paid)) = rows
    return (
        (new, paid) == ("new", "paid")
        and abs(n_new - 4_000) < 1_000
        and abs(n_paid - 8_000) < 1_000
        and (abs(mean_new - 30) < 5 and abs(mean_paid - 30) < 5)
    )


def test_text_and_expressions_of_sqlalchemy(engine):
    table = sqlalchemy.table("orders", sqlalchemy.column("status"), sqlalchemy.column("total"))
    count = sqlalchemy.func.count().label("n")
    query = sqlalchemy.select(table.c.status, count).where(table.c.total > 25).group_by(table.c.status).limit(10)
    with engine.connect() as connection:
        assert close(connection.execute(sqlalchemy.text(BY_STATUS)).fetchall())
        found = dict(tuple(row) for row in connection.execute(query))
        named = connection.execute(sqlalchemy.text("SELECT COUNT(*) FROM orders WHERE total > :low"), {"low": 25})
        assert abs(named.scalar_one() - 12_000 * 4 / 7) < 1_000
    assert found.keys() == {"new", "paid"}
    assert abs(found["paid"] - 8_000 * 4 / 7) < 1_000


@pytest.mark.slow
def test_tables_are_reflected_without_cost(engine, path):
    inspector = sqlalchemy.inspect(engine)
    assert inspector.get_table_names() == ["orders"]
    assert inspector.has_table("orders")
    assert not inspector.has_table("customers")
    assert inspector.get_schema_names() == ["main"]
    types = {column["name"]: type(column["type"]).__name__ for column in inspector.get_columns("orders")}
    assert types["total"] == "Double"
    assert types["status"] == "String"
    with pytest.raises(sqlalchemy.exc.NoSuchTableError):
        inspector.get_columns("customers")
    orders = sqlalchemy.Table("orders", sqlalchemy.MetaData(), autoload_with=engine)
    assert set(orders.columns.keys()) == set(types)
    assert dp.Policy.load(path).session.spent.epsilon == 0


def test_all_connections_of_an_engine_charge_one_session(engine, path):
    with engine.connect() as one, engine.connect() as other:
        first = one.execute(sqlalchemy.text("SELECT COUNT(*) FROM orders")).scalar_one()
        assert other.execute(sqlalchemy.text("SELECT COUNT(*) FROM orders")).scalar_one() == first  # stored
        other.execute(sqlalchemy.text("SELECT SUM(total) FROM orders")).scalar_one()
    session = dp.Policy.load(path).session
    assert len(session.releases) == 2
    assert set(session.audit_log()["analyst"]) == {"team-a"}


def test_refusals_are_those_of_this_package(engine):
    with engine.connect() as connection:
        for query in ("SELECT * FROM orders", "DELETE FROM orders", "SELECT email, COUNT(*) FROM orders GROUP BY 1"):
            with pytest.raises(dp.DPError):
                connection.execute(sqlalchemy.text(query))


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("dp_polars://", "names no policy"),
        ("dp_polars:///{path}?analyst=team-a&seed=1", "names seed"),
        ("dp_polars://host/{path}", "a host or a user"),
        ("dp_polars:///{path}?share=much", "must be a number"),
        ("dp_polars:///{path}x", "There is no policy at"),
    ],
)
def test_addresses_that_mean_nothing_are_refused(path, address, words):
    with pytest.raises(dp.InvalidParameterError, match=words):
        sqlalchemy.create_engine(address.format(path=path)).connect()


def test_a_policy_without_a_ledger_is_refused_because_each_engine_would_have_its_own_budget(path):
    path.write_text(POLICY.replace('ledger = "budget.db"\n', ""))
    with pytest.raises(dp.InvalidParameterError, match="no ledger"):
        sqlalchemy.create_engine(f"dp_polars:///{path}").connect()


def test_an_open_connection_goes_in_as_creator_and_pandas_reads_from_it(path):
    connection = dp.Policy.load(path).connect(analyst="team-a")
    engine = sqlalchemy.create_engine("dp_polars://", creator=lambda: connection)
    frame = pandas.read_sql(BY_STATUS, engine)
    assert close(frame.itertuples(index=False, name=None))
    assert list(frame.columns) == ["status", "n", "mean"]


@pytest.mark.slow
def test_polars_reads_from_a_connection_and_from_an_engine(engine, path):
    connection = dp.Policy.load(path).connect(analyst="team-a")
    direct = pl.read_database(BY_STATUS, connection)
    assert close(direct.rows())
    assert pl.read_database(BY_STATUS, engine.connect()).rows() == direct.rows()


def test_statements_as_dashboards_write_them(path):
    connection = dp.Policy.load(path).connect()
    for query in (
        'SELECT "orders"."status" AS "status", COUNT(*) AS "count", AVG("orders"."total") AS "avg" '
        'FROM "main"."orders" AS "orders" GROUP BY "orders"."status" ORDER BY "orders"."status" ASC LIMIT 100',
        'SELECT "main"."orders"."status", COUNT(*), AVG("main"."orders"."total") FROM "main"."orders" '
        'GROUP BY "main"."orders"."status" ORDER BY 1',
        'SELECT "t0"."status" AS "status", COUNT(*) AS "n", AVG("t0"."total") AS "m" FROM (SELECT * EXCLUDE ("email") '
        'FROM "main"."orders") AS "t0" GROUP BY 1 ORDER BY 1',
    ):
        assert close(connection.sql(query).fetchall())
    with pytest.raises(dp.StatementNotAllowed, match="There is no table other"):
        connection.sql('SELECT COUNT(*) FROM "other"."orders"')


def test_a_cursor_has_what_the_database_api_asks_for(path):
    cursor = dp.Policy.load(path).connect(analyst="team-a").cursor()
    assert (cursor.description, cursor.rowcount) == (None, -1)
    cursor.execute(BY_STATUS)
    assert [column[0] for column in cursor.description] == ["status", "n", "mean"]
    assert cursor.rowcount == 2
    cursor.close()
    assert [column[0] for column in cursor.description] == ["status", "n", "mean"]  # as with other drivers


def test_tools_learn_the_columns_of_a_table_from_an_answer_without_rows(path):
    policy = dp.Policy.load(path)
    con = policy.connect(analyst="team-a")
    for query in (
        "SELECT * FROM orders WHERE 1 = 0",
        'SELECT * FROM "main"."orders" LIMIT 0',
        "SELECT * FROM (SELECT * FROM orders) AS t WHERE 0=1",
    ):
        answer = con.sql(query)
        assert answer.columns == ["order_id", "customer_id", "total", "status"]  # email may not be asked
        assert [str(kind) for kind in answer.types] == ["BIGINT", "BIGINT", "DOUBLE", "VARCHAR"]
        assert answer.fetchall() == []
    for query in (
        "SELECT * FROM orders WHERE 1 = 1",
        "SELECT * FROM orders LIMIT 1",
        "SELECT * FROM orders WHERE order_id = 0",
        "SELECT * FROM orders WHERE 1 = 0 OR order_id = 0",
        "SELECT email FROM orders LIMIT 0",
        "SELECT * FROM nowhere LIMIT 0",
    ):
        with pytest.raises(dp.DPError):
            con.sql(query)
    assert policy.session.spent.epsilon == 0


@pytest.mark.slow
@pytest.mark.skipif(not JUPYSQL, reason="jupysql is not installed")
def test_jupysql_asks_through_a_connection_and_an_engine(path):
    """In a process of its own, because jupysql keeps connections and settings in globals."""
    code = f"""
import IPython.testing.globalipapp as app, sqlalchemy, dp_polars as dp
shell = app.start_ipython()
shell.run_line_magic("load_ext", "sql")
shell.push({{"con": dp.Policy.load({str(path)!r}).connect(analyst="team-a"),
            "engine": sqlalchemy.create_engine("dp_polars:///" + {str(path)!r} + "?analyst=team-a")}})
for door in ("con", "engine"):
    shell.run_line_magic("sql", door)
    answer = shell.run_cell("r = %sql SELECT status, COUNT(*) AS n FROM orders GROUP BY status\\nr.PolarsDataFrame()")
    print(door, sorted(answer.result["status"]))
columns = shell.run_line_magic("sqlcmd", "columns -t orders")
print([row[0] for row in columns._table._rows])
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300)
    assert "con ['new', 'paid']\n" in done.stdout, done.stderr
    assert "engine ['new', 'paid']\n" in done.stdout, done.stderr
    assert "['order_id', 'customer_id', 'total', 'status', 'email']" in done.stdout, done.stderr
    outcomes = dp.Policy.load(path).session.audit_log()["outcome"].to_list()  # jupysql also tries what it can't know
    assert outcomes.count("committed") == 1
    assert set(outcomes) <= {"committed", "stored", "refused"}
