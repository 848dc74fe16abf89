"""The Spark server of a test process: started by the first test that needs it, shared by all, stopped at the end.

The environment variable DP_SPARK names it:

- `sail` (the default): Sail, in a process of its own;
- `apache`: Apache Spark by Spark Connect, which needs `pyspark[connect]` and Java;
- `classic`: Apache Spark by classic pyspark, without Connect, which needs `pyspark` and Java.
"""

import os
import shutil
import subprocess
import sys
import warnings
from contextlib import ExitStack, contextmanager
from functools import cache

import pytest

import tests
from dp_polars._engines.spark.source import SparkSource

SERVER = os.environ.get("DP_SPARK", "sail")

_open = ExitStack()


@cache
def shared_session():
    """Return the session of the server of this process, or skip the test and say what is missing."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        session = _open.enter_context({"sail": sail, "apache": apache, "classic": classic}[SERVER]())
        session.createDataFrame([(1,)], ["x"]).toArrow()  # pyspark imports pandas here, which warns
    session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")  # frames from Arrow keep local times
    SparkSource._user_functions = _asking_once(SparkSource._user_functions, session)
    return session


functions_change = False
"""Whether a test registers functions at the moment. See `_asking_once`."""


def _asking_once(ask, shared):
    """Return what lists a session's own functions, but asks the shared session once.

    Each step of each question asks, which takes longer than most of the tests' questions. No test registers a function
    without saying so here, and what runs before a question is charged is tested where one does.
    """
    known = []

    def user_functions(source):
        if functions_change or source._frame.sparkSession is not shared:
            return ask(source)
        if not known:
            known.append(ask(source))
        return known[0]

    return user_functions


def stop_shared_session():
    """Stop the server of this process, if there is one."""
    _open.close()
    shared_session.cache_clear()


def missing_for_apache():
    """Return why Apache Spark cannot run here, or None if it can."""
    if shutil.which("java") is None:
        return "Apache Spark needs Java, and there is none"
    try:
        import pyspark
    except ImportError:
        return "Apache Spark is not installed: pip install 'pyspark[connect]'"
    if not os.path.isdir(os.path.join(os.path.dirname(pyspark.__file__), "jars")):
        return "this pyspark is the client alone, without Apache Spark: pip install 'pyspark[connect]'"
    return None


def name_the_main_module():
    """Give the main module of a worker a file: pyspark takes a process without one for a run of its own doctests.

    Processes that other tests start run this file, so it must exist and do nothing.
    """
    main = sys.modules["__main__"]
    if not hasattr(main, "__file__"):
        main.__file__ = tests.__file__


_SAIL = """
import sys
from pysail.spark import SparkConnectServer

server = SparkConnectServer(ip="127.0.0.1", port=0)
server.start(background=True)
print(server.listening_address[1], flush=True)
sys.stdin.read()  # until this end is closed, also by the death of the tests
"""


@contextmanager
def sail():
    """Start Sail in a process of its own, where it may keep what it remembers of each plan, and open a session."""
    name_the_main_module()
    pytest.importorskip("pysail.spark", reason="Sail is not installed: pip install pysail")
    pytest.importorskip(
        "pyspark.sql.connect.session", reason="the Spark client is not installed: pip install pyspark-client"
    )
    from pyspark.sql import SparkSession

    # Sail ends sessions that are idle for a while, as they are while a slow machine runs other tests.
    os.environ.setdefault("SAIL_SPARK__SESSION_TIMEOUT_SECS", "86400")
    ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}  # it logs its own end
    with subprocess.Popen([sys.executable, "-c", _SAIL], **ends) as running:
        port = int(running.stdout.readline())
        session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
        try:
            yield session
        finally:
            session.stop()
            running.stdin.close()


@contextmanager
def apache():
    """Start Apache Spark, and open a session by Spark Connect."""
    with _apache(lambda builder: builder.remote("local[2]")) as session:
        yield session


@contextmanager
def classic():
    """Start Apache Spark, and open a session of classic pyspark."""
    with _apache(lambda builder: builder.master("local[2]").config("spark.ui.enabled", "false")) as session:
        yield session


@contextmanager
def _apache(chosen):
    name_the_main_module()
    missing = missing_for_apache()
    if missing:
        pytest.skip(missing)
    from pyspark.sql import SparkSession

    session = chosen(SparkSession.builder).config("spark.sql.shuffle.partitions", "2").getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def without_spark() -> dict[str, str]:
    """Return the environment for another process. A session of this one leaves its address there, and more."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
