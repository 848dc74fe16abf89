"""Ask private questions of a Spark table. Sail, a Spark server without Java, runs inside this process.

On a cluster, only the line that opens the session changes: SparkSession.builder.remote("sc://cluster:15002").
"""

import logging
import os
import sys
import warnings

import polars as pl

import dp_polars as dp

os.environ.setdefault("RUST_LOG", "error")  # Sail would log its start
logging.disable(logging.INFO)
warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
try:
    from pysail.spark import SparkConnectServer  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession
except ImportError:
    print("This example needs Sail and the client of Spark: pip install pysail 'dp-polars[spark]'.")
    sys.exit()

server = SparkConnectServer(ip="127.0.0.1", port=0)
server.start(background=True)
host, port = server.listening_address or ("127.0.0.1", 0)
spark = SparkSession.builder.remote(f"sc://{host}:{port}").getOrCreate()
visits = spark.sql(
    "SELECT id % 5000 AS user_id, CASE WHEN id % 3 = 0 THEN 'north' ELSE 'south' END AS region, "
    "CAST(id % 90 AS DOUBLE) AS amount FROM range(100000)"
)

session = dp.Session(epsilon=1.0, delta=1e-7, unit="user_id", max_groups=2, max_rows_per_group=20)
private = dp.private(visits, session)
print(private.preview.count("region", epsilon=0.2))
print(private.count("region", epsilon=0.2))
print(private.filter(pl.col("amount") > 10).mean("amount", by="region", bounds=(0, 100), epsilon=0.3))

try:
    private.with_columns(size=pl.col("amount").log())
except dp.ExpressionNotAllowed as refused:
    print(refused)
print(f"{len(session.releases)} releases, {session.spent.share:.0%} of the budget used")
spark.stop()
server.stop()
