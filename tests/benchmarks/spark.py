"""Private questions to Spark against the plain query with two levels of grouping, on the same server.

The server is Sail, in a process of its own, or with `--server apache` Apache Spark, which needs Java and
`pip install 'pyspark[connect]'`. CPU seconds are those of the server and the driver together. The memory of the driver
must not grow with the number of rows. The driver is a process of its own, which does nothing but ask.
"""

from __future__ import annotations

import importlib.util
import os
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
LIMITS = {"apache": 2, "sail": 6}
"""Largest ratios to the plain query. The aim is 2. On Sail, the cap's window costs several times the plain query."""
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


class Sail:
    """A Sail server in a process of its own."""

    def __init__(self) -> None:
        environment = {**os.environ, "RUST_LOG": "error"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        host, port = self._process.stdout.readline().split()  # type: ignore[union-attr]
        from pyspark.sql import SparkSession

        self.session = SparkSession.builder.remote(f"sc://{host}:{port}").create()

    def cpu(self) -> float:
        """Return the CPU seconds that the server has used."""
        return _cpu_of(self._process.pid)

    def close(self) -> None:
        """Stop the server."""
        self.session.stop()
        self._process.communicate()


class Apache:
    """Apache Spark on two threads. Its Java process is a child of this one."""

    def __init__(self) -> None:
        from pyspark.sql import SparkSession

        os.environ.setdefault("SPARK_DRIVER_MEMORY", "6g")  # read when Java starts
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        self.session = SparkSession.builder.remote("local[2]").getOrCreate()
        self.session.range(1).collect()

    def cpu(self) -> float:
        """Return the CPU seconds that Java has used."""
        children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
        return sum(_cpu_of(int(child)) for task in children for child in task.read_text().split())

    def close(self) -> None:
        """Stop the server."""
        self.session.stop()


def _cpu_of(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(rows: int = ROWS, server: str = "sail", repeats: int = REPEATS) -> bool:
    """Measure, and say whether all limits hold."""
    missing = [
        name for name in ("pyspark", {"sail": "pysail", "apache": "pyspark.jars"}[server]) if not _is_there(name)
    ]
    if missing:
        print(f"\nSpark ({server}): not measured, because {' and '.join(missing)} cannot be imported")
        return True
    with tempfile.TemporaryDirectory() as folder:
        data.write(Path(folder) / "small.parquet", rows // 10)
        data.write(Path(folder) / "large.parquet", rows)
        words = [sys.executable, "-m", "tests.benchmarks.spark", folder, str(rows), server, str(repeats)]
        return subprocess.run(words, check=False).returncode == 0


def drive(folder: str, rows: str, server: str, repeats: str) -> bool:
    """Ask about a tenth of the rows and then about all of them: the body of the driver's process."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    kind = Sail if server == "sail" else Apache
    opened = kind()
    try:
        _measured(opened, Path(folder) / "small.parquet", LIMITS[server], int(repeats))
        before = _peak_memory()
        lines = _measured(opened, Path(folder) / "large.parquet", LIMITS[server], int(repeats))
        after = _peak_memory()
        shown = f"{after:6.1f} MB at most, {after - before:4.1f} MB more than for a tenth of the rows"
        lines.append(Row("memory of the driver", shown, after - before, 50))
        return show(f"Spark ({kind.__name__}), {int(rows):,} rows, against the plain query by unit and key", lines)
    finally:
        opened.close()


def _peak_memory() -> float:
    """Return the most memory that this process ever held, in MB.

    The system's other count of it, `ru_maxrss`, begins with the peak of the process that started this one.
    """
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def _measured(server: Sail | Apache, path: Path, limit: float, repeats: int) -> list[Row]:
    """Return a line for each question about the rows of a file."""
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
        ours, plain = _alternately(server, repeats, ask, lambda text=text: server.session.sql(text).toArrow())
        shown = f"{ours:6.2f} CPU s   plain {plain:6.2f} s   {ours / plain:5.2f} x"
        lines.append(Row(what, shown, ours / plain, limit))
    return lines


def _alternately(server: Sail | Apache, repeats: int, *works: Callable[[], object]) -> list[float]:
    """Return the least CPU seconds of each piece of work, of server and driver together. They are run in turn."""
    best = [float("inf")] * len(works)
    for _ in range(repeats):
        for place, work in enumerate(works):
            start = server.cpu() + time.process_time()
            work()
            best[place] = min(best[place], server.cpu() + time.process_time() - start)
    return best


if __name__ == "__main__":
    sys.exit(0 if drive(*sys.argv[1:]) else 1)
