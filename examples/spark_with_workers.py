"""Ask private questions of files that several workers of a cluster read. Sail runs the cluster inside this process.

Each worker counts and sums the rows of each person in its own part of the files. Only bounded sums of whole groups come
to the driver, which is this process. It draws the noise, and it alone writes to the ledger.
"""

import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path

import polars as pl

import dp_polars as dp

# Before Sail is imported: three workers with two tasks at a time each. On a cluster, these are settings of the server.
os.environ |= {"SAIL_MODE": "local-cluster", "SAIL_CLUSTER__WORKER_INITIAL_COUNT": "3"}
os.environ |= {"SAIL_CLUSTER__WORKER_MAX_COUNT": "3", "SAIL_CLUSTER__WORKER_TASK_SLOTS": "2"}
os.environ.setdefault("RUST_LOG", "off")
logging.disable(logging.INFO)
warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
try:
    from pysail.spark import SparkConnectServer  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession
except ImportError:
    print("This example needs Sail and the client of Spark: pip install pysail 'dp-polars[spark]'.")
    sys.exit()

folder = Path(tempfile.mkdtemp())
files = folder / "visits"
files.mkdir()
for day in range(6):  # one file a day, and everybody is in several of them
    users = (pl.int_range(2_000, eager=True) * 7 + 131 * day) % 900
    frame = pl.DataFrame({"user_id": users, "region": ["north", "south", "west", "west"] * 500, "day": [day] * 2_000})
    frame.write_parquet(files / f"{day}.parquet")

server = SparkConnectServer(ip="127.0.0.1", port=0)
server.start(background=True)
host, port = server.listening_address or ("127.0.0.1", 0)
spark = SparkSession.builder.remote(f"sc://{host}:{port}").getOrCreate()

ledger = folder / "budget.db"
session = dp.Session(epsilon=1.0, delta=1e-7, unit="user_id", max_groups=3, max_rows_per_group=15, ledger=ledger)
visits = dp.private(spark.read.parquet(str(files)), session, name="visits", data_version="day 6")
print(visits.count("region", epsilon=0.3))
print(visits.filter(pl.col("day") >= 3).count_units("region", epsilon=0.3))

# Another driver with the same ledger, name and version gets the stored answer. It costs nothing.
again = dp.private(spark.read.parquet(str(files)), session, name="visits", data_version="day 6")
print(again.count("region", epsilon=0.3).height, "regions again;", f"{session.spent.share:.0%} of the budget used")
session.close()
spark.stop()
server.stop()
