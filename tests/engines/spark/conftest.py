"""One Spark server per test process: Sail, or Apache Spark where it is asked for.

`DP_SPARK=apache pytest tests/engines/spark` runs the same tests on Apache Spark, which needs `pyspark` and Java.
"""

import os
import shutil
import sys
import warnings
from contextlib import contextmanager

import pytest

SERVER = os.environ.get("DP_SPARK", "sail")


def name_the_main_module():
    """Give the main module of a worker a file: pyspark takes a process without one for a run of its own doctests."""
    main = sys.modules["__main__"]
    if not hasattr(main, "__file__"):
        main.__file__ = "pytest"


@contextmanager
def sail():
    name_the_main_module()
    server = pytest.importorskip("pysail.spark", reason="Sail is not installed: pip install pysail")
    pytest.importorskip(
        "pyspark.sql.connect.session", reason="the Spark client is not installed: pip install pyspark-client"
    )
    from pyspark.sql import SparkSession

    running = server.SparkConnectServer(ip="127.0.0.1", port=0)
    running.start(background=True)
    host, port = running.listening_address
    session = SparkSession.builder.remote(f"sc://{host}:{port}").create()
    try:
        yield session
    finally:
        session.stop()
        running.stop()


@contextmanager
def apache():
    name_the_main_module()
    if shutil.which("java") is None:
        pytest.skip("Apache Spark needs Java, and there is none")
    pyspark = pytest.importorskip("pyspark", reason="Apache Spark is not installed: pip install 'pyspark[connect]'")
    if not (os.path.isdir(os.path.join(os.path.dirname(pyspark.__file__), "jars"))):
        pytest.skip("this pyspark is the client alone, without Apache Spark: pip install 'pyspark[connect]'")
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@pytest.fixture(scope="session")
def spark():
    """A session of the server that the environment variable DP_SPARK names: `sail` (the default) or `apache`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        with sail() if SERVER == "sail" else apache() as session:
            session.createDataFrame([(1,)], ["x"]).toArrow()  # pyspark imports pandas here, which warns
            session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")  # frames from Arrow keep local times
            yield session


@pytest.fixture(params=[True, False], ids=["ansi", "not-ansi"])
def ansi(request, spark):
    """Run a test in ANSI mode and outside of it."""
    before = spark.conf.get("spark.sql.ansi.enabled", "true")
    spark.conf.set("spark.sql.ansi.enabled", str(request.param).lower())
    yield request.param
    spark.conf.set("spark.sql.ansi.enabled", before)
