"""What importing dp_polars adds to importing polars and numpy."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from tests.benchmarks.measure import Row, show


def run() -> bool:
    program = (
        "import time, sys, numpy, polars; start = time.process_time(); import dp_polars; "
        "print(time.process_time() - start, 'duckdb' in sys.modules)"
    )
    with tempfile.TemporaryDirectory() as cache:
        # As installed: compiled once, by the first run, which doesn't count.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        results = [
            subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
            ).stdout.split()
            for _ in range(6)
        ][1:]
    seconds = min(float(seconds) for seconds, _ in results)
    loads = any(loaded == "True" for _, loaded in results)
    return show(
        "import",
        [
            Row("import dp_polars after polars and numpy", f"{seconds:6.3f} CPU s", seconds, 0.15),
            Row("loads duckdb", str(loads), float(loads), 0),
        ],
    )
