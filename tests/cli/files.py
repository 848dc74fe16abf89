"""Helpers that write the same small table to every kind of file, and that run the command line in a new process."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl

ROOT = Path(__file__).parents[2]
SOURCE = {**os.environ, "PYTHONPATH": str(ROOT)}
"""The environment in which a new process finds this package."""
REGIONS = ["east", "north", "south", "west"]
VISITS = pl.DataFrame({"user_id": [i % 400 for i in range(1200)], "region": REGIONS * 300}).with_columns(
    amount=pl.col("user_id") % 80 + 0.5, day=pl.date(2024, 1, 1) + pl.duration(days=pl.col("user_id") % 28)
)
KEYS = f"keys := {REGIONS}"
COUNT = f"SELECT region, dp_count(*, {KEYS}) AS n FROM visits GROUP BY region ORDER BY region"
TERMS = ["--unit", "user_id", "--epsilon", "1", "--delta", "1e-6", "--max-groups", "4", "--max-rows-per-group", "5"]
KINDS = [
    "visits.parquet",
    "visits.csv",
    "visits.tsv",
    "visits.csv.gz",
    "visits.arrow",
    "visits.feather",
    "visits.duckdb",
]


def typed(file):
    """Return the options that give the column types of a file, if it is text."""
    return ["--infer-types"] if ".csv" in str(file) or ".tsv" in str(file) else []


def put(folder, name, frame=VISITS):
    """Write a frame to a file in the format of its extension, and return the path."""
    path = Path(folder) / name
    if name.endswith(".parquet"):
        frame.write_parquet(path)
    elif name.endswith(".csv.gz"):
        path.write_bytes(gzip.compress(frame.write_csv().encode()))
    elif name.endswith((".csv", ".tsv")):
        frame.write_csv(path, separator="," if name.endswith(".csv") else "\t")
    elif name.endswith(".feather"):
        frame.write_ipc_stream(path)
    elif name.endswith(".arrow"):
        frame.write_ipc(path)
    else:
        with duckdb.connect(str(path)) as database:
            database.register("held", frame.to_arrow())
            database.execute("CREATE OR REPLACE TABLE visits AS FROM held")
    return str(path)


def in_a_new_process(*words, **options):
    """Run the command line in a new process, as a person does."""
    return subprocess.run(
        [sys.executable, "-m", "dp_polars", *map(str, words)],
        capture_output=True, text=True, check=False, env=SOURCE, **options,
    )  # fmt: skip
