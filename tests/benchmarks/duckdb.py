"""Private questions in SQL against plain DuckDB: CPU seconds of one run, and TPC-H with the customer as the unit."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb

import dp_polars as dp
from tests.benchmarks import data
from tests.benchmarks.measure import Row, cpu_seconds, generous_session, show

ROWS = 10_000_000
REPEATS = 2
READING = 200  # MB that batches of rows, their codes and the caches of both engines take, however many rows there are
LIMITED = "import sys; from tests.benchmarks import duckdb; duckdb.limited(*sys.argv[1:])"

TWO_LEVELS = """
SELECT {key}, sum(least(n, 10)) FROM (SELECT "user", {key}, count(*) AS n FROM {table} GROUP BY ALL) GROUP BY {key}
"""
WINDOW = """
SELECT {key}, sum(c) FILTER (WHERE place <= 5) FROM (
    SELECT {key}, c, row_number() OVER (PARTITION BY "user" ORDER BY h) AS place FROM (
        SELECT "user", {key}, least(count(*), 10) AS c, hash(hash("user", {key}, 7)) AS h FROM {table}
        GROUP BY "user", {key}))
GROUP BY {key}
"""


def run() -> bool:
    """Measure, and say whether all limits hold."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        data.write(path, ROWS)
        fine = _by_keys(path)
        fine = _within_memory(path) and fine
    fine = _planning() and fine
    _tpch()
    return fine


def _by_keys(path: Path) -> bool:
    raw = duckdb.connect()
    raw.execute(f"CREATE TABLE visits AS FROM '{path}'")
    raw.execute(f"CREATE VIEW stored AS FROM '{path}'")
    guard = dp.connect(raw, generous_session()).private("stored", unit="user")
    rows = []
    for what, key, call, plain, limit, table in (
        ("count by 50 strings", "region", "dp_count(*, fresh := true)", "count(*)", 7, "visits"),
        ("count by 100,000 integers", "shop", "dp_count(*, fresh := true)", "count(*)", 6, "visits"),
        ("sum by 50 strings", "region", "dp_sum(value, 0, 100, fresh := true)", "sum(value)", 10, "visits"),
        ("count by 50 strings, parquet", "region", "dp_count(*, fresh := true)", "count(*)", None, "stored"),
    ):
        asked = f"SELECT {key}, {call} AS n FROM {table} GROUP BY {key}"
        seconds = cpu_seconds(lambda asked=asked: guard.sql(asked, epsilon=1).fetchall(), REPEATS)
        others = [
            cpu_seconds(lambda text=text: raw.execute(text).fetchall(), 1)
            for text in (
                f"SELECT {key}, {plain} FROM {table} GROUP BY {key}",
                TWO_LEVELS.format(key=key, table=table),
                WINDOW.format(key=key, table=table),
            )
        ]
        shown = f"{seconds:6.2f} CPU s   plain {others[0]:6.3f} s   {seconds / others[0]:5.2f} x   "
        shown += f"two levels {others[1]:5.2f} s   window {others[2]:5.2f} s"
        rows.append(Row(what, shown, seconds / others[0], limit))
        rows.append(Row("  against the window query", f"{seconds / others[2]:5.2f} x", seconds / others[2], 1))
    return show(f"DuckDB {duckdb.__version__}, {ROWS:,} rows, {data.users_of(ROWS):,} users", rows)


def _within_memory(path: Path) -> bool:
    """Ask a database whose file is larger than its memory limit, in processes of their own."""
    database = path.parent / "data.duckdb"
    with duckdb.connect(str(database)) as raw:
        raw.execute(f"CREATE TABLE visits AS FROM '{path}'")
    size = database.stat().st_size / 1e6
    rows = []
    for megabytes in (10_000, 50):
        what = f"count by 50 strings, limit {megabytes} MB"
        words = [sys.executable, "-c", LIMITED, str(database), str(megabytes)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            rows.append(Row(what, f"failed: {done.stderr.strip().splitlines()[-1]}", 2, 1))
            continue
        seconds, before, peak = map(float, done.stdout.split())
        shown = f"{seconds:6.2f} CPU s   peak of the process {peak:5.0f} MB, {before:5.0f} MB before the question"
        rows.append(Row(what, shown, peak - before, READING + megabytes))
    return show(f"with a memory limit, of a file of {size:.0f} MB", rows)


def limited(path: str, megabytes: str) -> None:
    """Ask under a memory limit; print CPU seconds and the peak memory before and after: the body of a process."""
    raw = duckdb.connect(path, read_only=True)
    raw.execute("SET enable_progress_bar = false")
    raw.execute(f"SET memory_limit = '{megabytes}MB'")
    guard = dp.connect(raw, generous_session())
    guard.preview("SELECT region, dp_count(*) AS n FROM visits GROUP BY region", epsilon=1)
    before = _peak()
    asked = "SELECT region, dp_count(*, fresh := true) AS n FROM visits GROUP BY region"
    seconds = cpu_seconds(lambda: guard.sql(asked, epsilon=1).fetchall(), 1)
    print(seconds, before, _peak())


def _peak() -> float:
    """Return the most memory that this process has had, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # `getrusage` counts what the process was started from, too
        return float(status.read_text().partition("VmHWM:")[2].split()[0]) / 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _planning() -> bool:
    raw = duckdb.connect()
    raw.execute('CREATE TABLE visits ("user" BIGINT, region VARCHAR, qty INTEGER)')
    guard = dp.connect(raw, generous_session())
    rows = []
    for what, asked in (
        ("count", "SELECT region, dp_count(*, epsilon := 1) AS n FROM visits WHERE qty > 3 GROUP BY region"),
        ("CTE and two aggregates", "WITH w AS (SELECT region, qty * 2 AS q FROM visits) "
         "SELECT region, dp_count(*, epsilon := 1) AS n, dp_sum(q, 0, 9, epsilon := 1) AS s FROM w GROUP BY ALL"),
    ):  # fmt: skip
        milliseconds = cpu_seconds(lambda asked=asked: guard.preview(asked), calls=10) * 1e3
        limit = 15 if what == "count" else None
        rows.append(Row(f"parse, check and plan: {what}", f"{milliseconds:6.2f} ms", milliseconds, limit))
    return show("planning in SQL, CPU", rows)


# ---------------------------------------------------------------------- TPC-H

SALES = """
CREATE VIEW sales AS
SELECT o_custkey AS customer, n_name AS nation, l_returnflag, l_linestatus, l_quantity, l_extendedprice, l_discount,
       l_shipdate, o_orderdate, p_type
FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
JOIN nation ON c_nationkey = n_nationkey JOIN part ON l_partkey = p_partkey
"""
QUESTIONS = {
    "Q1: pricing summary": """
        SELECT l_returnflag, l_linestatus, dp_sum(l_quantity, 0, 50, max_rows_per_group := 20) AS quantity,
               dp_sum(l_extendedprice * (1 - l_discount), 0, 100000, max_rows_per_group := 20) AS price,
               dp_count(*, max_rows_per_group := 20) AS orders
        FROM sales WHERE l_shipdate <= DATE '1998-09-02' GROUP BY ALL ORDER BY ALL""",
    "Q5: volume by nation": """
        SELECT nation, dp_sum(l_extendedprice * (1 - l_discount), 0, 100000, max_groups := 1, max_rows_per_group := 10)
               AS revenue
        FROM sales WHERE year(o_orderdate) = 1994 GROUP BY nation ORDER BY nation""",
    "Q6: revenue change": """
        SELECT dp_sum(l_extendedprice * l_discount, 0, 8000, max_rows_per_group := 3) AS revenue
        FROM sales WHERE year(l_shipdate) = 1994 AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "Q14: promotions": """
        SELECT 100.0 * dp_sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END,
                              0, 100000, max_rows_per_group := 3)
               / dp_sum(l_extendedprice * (1 - l_discount), 0, 100000, max_rows_per_group := 3) AS share
        FROM sales WHERE l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'""",
}  # fmt: skip


def _tpch() -> None:
    command = shutil.which("tpchgen-cli") or shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent))
    if command is None:
        print("\nTPC-H: skipped, tpchgen-cli is not installed (pip install tpchgen-cli)")
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([command, "parquet", "-s", "1", f"--output-dir={folder}"], check=True, capture_output=True)
        raw = duckdb.connect()
        for name in ("lineitem", "orders", "customer", "nation", "part"):
            raw.execute(f"CREATE VIEW {name} AS FROM '{folder}/{name}.parquet'")
        raw.execute(SALES)
        session = generous_session("customer", epsilon=100, max_groups=4)
        guard = dp.connect(raw, session).private("sales", unit="customer")
        rows = []
        for what, asked in QUESTIONS.items():
            plain = _plain(asked)
            true, private = raw.execute(plain).fetchall(), guard.sql(asked, epsilon=1).fetchall()
            seconds = cpu_seconds(lambda asked=asked: guard.sql(asked, epsilon=1, fresh=True).fetchall(), 1)
            plainly = cpu_seconds(lambda plain=plain: raw.execute(plain).fetchall(), 1)
            error = _relative_error(true, private)
            shown = f"relative error {error:7.2%}   {seconds:6.2f} CPU s   plain {plainly:6.3f} s   "
            shown += f"{seconds / plainly:5.2f} x"
            rows.append(Row(what, shown, error))
        show("TPC-H, scale factor 1, a customer as the unit, epsilon 1 for a question", rows)


def _plain(asked: str) -> str:
    """Return the question without privacy."""
    import re

    text = re.sub(r"dp_count\(\*[^)]*\)", "count(*)", asked)
    text = re.sub(r",\s*0, \d+(, max_groups := \d+)?, max_rows_per_group := \d+\)", ")", text)
    return text.replace("dp_sum", "sum")


def _relative_error(true: list[Any], private: list[Any]) -> float:
    """Return the mean relative error over the rows that both results have."""
    known = {tuple(x for x in row if isinstance(x, str)): row for row in private}
    errors = [
        abs(float(a) - float(b)) / abs(float(a))
        for row in true
        if (own := known.get(tuple(x for x in row if isinstance(x, str)))) is not None
        for a, b in zip(row, own, strict=True)
        if not isinstance(a, str) and b is not None
    ]
    return sum(errors) / max(len(errors), 1)
