"""Private questions to Spark against the plain query with two levels of grouping, on the same server.

The server is Sail, in a process of its own. CPU seconds are those of the server and the driver together. The memory of
the driver must not grow with the number of rows.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_polars as dp
from tests.benchmarks import data
from tests.benchmarks.measure import Row, generous_session, show

ROWS = 10_000_000
REPEATS = 3
LIMIT = 6  # The aim is 2. Sail sorts the groups of all units by several columns for the cap, which costs most of it.
SERVER = """
import sys
from pysail.spark import SparkConnectServer
server = SparkConnectServer(ip="127.0.0.1", port=0)
server.start(background=True)
print(*server.listening_address, flush=True)
sys.stdin.read()
"""

TWO_LEVELS = """
SELECT {key}, sum({capped}) FROM (SELECT user, {key}, {partial} FROM visits GROUP BY user, {key}) GROUP BY {key}
"""


class Server:
    """A Sail server in a process of its own."""

    def __init__(self) -> None:
        words = {**os.environ, "RUST_LOG": "error"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=words
        )
        host, port = self._process.stdout.readline().split()  # type: ignore[union-attr]
        from pyspark.sql import SparkSession

        self.session = SparkSession.builder.remote(f"sc://{host}:{port}").create()

    def cpu(self) -> float:
        """Return the CPU seconds that the server has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """Stop the server."""
        self.session.stop()
        self._process.communicate()


def run(rows: int = ROWS) -> bool:
    """Measure, and say whether all limits hold."""
    try:
        import pysail  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError:
        print("\nSpark: not measured, because pysail and pyspark-client are not installed")
        return True
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    server = Server()
    try:
        with tempfile.TemporaryDirectory() as folder:
            small, large = Path(folder) / "small.parquet", Path(folder) / "large.parquet"
            data.write(small, rows // 10)
            data.write(large, rows)
            before = _asked(server, small)[1]
            lines, after = _asked(server, large)
            grown = after - before
            lines.append(Row("memory of the driver", f"{grown:6.1f} MB more than for a tenth of the rows", grown, 50))
            return show(f"Spark (Sail), {rows:,} rows, against the plain query by unit and key", lines)
    finally:
        server.close()


def _asked(server: Server, path: Path) -> tuple[list[Row], float]:
    frame = server.session.read.parquet(str(path))
    frame.createOrReplaceTempView("visits")
    private: Any = dp.private(frame, generous_session())
    lines = []
    for what, key, ask, partial, capped in (
        (
            "count by 50 strings",
            "region",
            lambda: private.count("region", epsilon=1, fresh=True),
            "count(*) AS n",
            "least(n, 10)",
        ),
        (
            "count by 100,000 integers",
            "shop",
            lambda: private.count("shop", epsilon=1, fresh=True),
            "count(*) AS n",
            "least(n, 10)",
        ),
        (
            "mean by 50 strings",
            "region",
            lambda: private.mean("value", by="region", bounds=(0, 100), epsilon=1, fresh=True),
            "sum(value) AS s, count(*) AS n",
            "s",
        ),
    ):
        text = TWO_LEVELS.format(key=key, partial=partial, capped=capped)
        ours, plain = _alternately(server, ask, lambda text=text: server.session.sql(text).toArrow())
        shown = f"{ours:6.2f} CPU s   plain {plain:6.2f} s   {ours / plain:5.2f} x"
        lines.append(Row(what, shown, ours / plain, LIMIT))
    return lines, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _alternately(server: Server, *works: Callable[[], object]) -> list[float]:
    """Return the least CPU seconds of each piece of work, on the server and on the driver. They are run in turn."""
    best = [float("inf")] * len(works)
    for _ in range(REPEATS):
        for place, work in enumerate(works):
            start = server.cpu() + time.process_time()
            work()
            best[place] = min(best[place], server.cpu() + time.process_time() - start)
    return best
