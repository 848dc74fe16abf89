"""Classic pyspark, without Spark Connect, gives the answers of Polars too, where it and Java are installed.

A process has either classic sessions or those of Spark Connect, so the tests of frames run in another process.
"""

import subprocess
import sys
from pathlib import Path

import pytest

import dp_polars as dp
from tests.engines.spark.server import missing_for_apache, without_spark

pytestmark = pytest.mark.slow


def test_frames_of_classic_pyspark_are_accepted():
    missing = missing_for_apache()
    if missing:
        pytest.skip(missing)
    root = Path(dp.__file__).parents[1]
    chosen = "plan or failure or replaced or public or alike or sign"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", chosen, "tests/engines/spark/test_frames.py"],
        cwd=root, capture_output=True, text=True, check=False, timeout=540,
        env={**without_spark(), "PYTHONPATH": str(root), "DP_SPARK": "classic"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert "skipped" not in done.stdout.splitlines()[-1]
