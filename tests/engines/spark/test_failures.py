"""What dies in the middle of a question changes neither its price nor the law of its answer, and shows nothing.

Sail's workers are threads of its server, so none of them can be killed alone: here the whole server dies. Where Apache
Spark and Java are installed, an executor of a small cluster is killed as well, and its tasks run again elsewhere.
"""

import subprocess
import sys
import threading
import time
from pathlib import Path

import polars as pl
import pytest

import dp_polars as dp
from dp_polars.errors import DPError, EngineError, SessionClosed
from tests.engines.spark.server import SERVER, missing_for_apache, name_the_main_module, without_spark
from tests.engines.spark.test_frames import session

pytestmark = pytest.mark.slow

_SERVER = """
import sys
from pysail.spark import SparkConnectServer
server = SparkConnectServer(ip="127.0.0.1", port=0)
server.start(background=True)
print(*server.listening_address, flush=True)
sys.stdin.read()
"""


class MortalServer:
    """Sail in a process of its own, and a session whose client gives up soon."""

    def __init__(self):
        name_the_main_module()
        pytest.importorskip("pysail.spark", reason="Sail is not installed: pip install pysail")
        from pyspark.sql import SparkSession
        from pyspark.sql.connect.client.retries import DefaultPolicy

        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        host, port = self._process.stdout.readline().split()
        self.spark = SparkSession.builder.remote(f"sc://{host}:{port}").create()
        self.spark.client.set_retry_policies([DefaultPolicy(max_retries=1, initial_backoff=10)])

    def kill(self):
        self._process.kill()
        self._process.wait()

    def close(self):
        self.kill()
        self._process.stdin.close()
        self._process.stdout.close()


@pytest.fixture
def mortal():
    if SERVER != "sail":
        pytest.skip("Sail runs beside no other server")
    server = MortalServer()
    yield server
    server.close()


def kill_after_the_charge(server, own):
    """Kill the server as soon as the session has charged something."""

    def wait_and_kill():
        while not own.spent.epsilon:
            time.sleep(0.01)
        time.sleep(0.3)  # the question is on its way, and takes far longer than that
        server.kill()

    thread = threading.Thread(target=wait_and_kill)
    thread.start()
    return thread


def test_a_server_that_dies_in_the_middle_costs_the_price_and_shows_nothing(mortal, spark, tmp_path, capfd):
    """The question counts 10**13 rows, so no server has an answer before it dies."""
    own = session(epsilon=1.0, delta=1e-9, ledger=tmp_path / "budget.db")
    endless = mortal.spark.range(10**13).selectExpr("id % 1000 AS user", "'the secret value' AS town")
    rows = dp.private(endless, own, name="visits", data_version="1")
    price = rows.preview.count_units("town", keys=["the secret value"], epsilon=0.25).cost
    killer = kill_after_the_charge(mortal, own)
    with pytest.raises(EngineError) as failed:
        rows.count_units("town", keys=["the secret value"], epsilon=0.25)
    killer.join()
    assert (failed.value.__cause__, failed.value.__context__) == (None, None)
    assert "secret" not in str(failed.value) + "".join(capfd.readouterr())
    assert own.spent.epsilon == price.epsilon
    assert own.closed
    assert b"secret" not in (tmp_path / "budget.db").read_bytes()
    # On another server the same question is asked anew: it is charged again, and answered once.
    again = dp.private(
        spark.range(5000).selectExpr("id % 1000 AS user", "'x' AS town"), own, name="visits", data_version="1"
    )
    with pytest.raises(SessionClosed):
        again.count_units("town", keys=["x"], epsilon=0.25)
    own.reopen(reason="the server died")
    first = again.count_units("town", keys=["x"], epsilon=0.25)
    assert again.count_units("town", keys=["x"], epsilon=0.25).equals(first)
    assert own.spent.epsilon == 2 * price.epsilon
    assert [one.cost for one in own.releases] == [price, price]


def test_a_dead_server_is_named_in_our_words_and_nothing_is_charged(mortal, caplog):
    own = session()
    frame = mortal.spark.sql("SELECT id AS user, 'the secret value' AS town FROM range(5)")
    rows = dp.private(frame, own)
    con = dp.connect(mortal.spark, own)
    other = mortal.spark.sql("SELECT id AS user, 'the secret value' AS town FROM range(6)")
    mortal.kill()
    for ask in (
        lambda: rows.filter(pl.col("town") == "x"),
        lambda: rows.count("town", epsilon=1),
        lambda: dp.private(other, own),
        lambda: con.sql("SELECT dp_count(*, epsilon := 1) FROM visits"),
    ):
        with pytest.raises(DPError, match="Spark gave no answer") as failed:
            ask()
        assert (failed.value.__cause__, failed.value.__context__) == (None, None)
        assert "secret" not in str(failed.value) + caplog.text
        assert not own.releases
        assert not own.closed


_CLUSTER = """
import os, signal, subprocess, threading, time, warnings
from unittest import mock
import dp_polars as dp
from pyspark.sql import SparkSession
from dp_polars._engines.request import BoundedRequest, Cells, GroupSum, Lane, ValueColumn
from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.spark.texts import salted
from dp_polars._engines.spark.engine import run_statement
from dp_polars._engines.spark.source import SparkSource
from dp_polars._release import noise

TASKS = 12
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # Java spends most of so short a run on compiling
spark = (
    SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false").config("spark.ui.liveUpdate.period", "0")
    .config("spark.sql.shuffle.partitions", "2").config("spark.executor.memory", "512m")
    .config("spark.driver.extraJavaOptions", QUICK_START).config("spark.executor.extraJavaOptions", QUICK_START)
    .getOrCreate()
)
tracker = spark.sparkContext.statusTracker()

def workers():
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True).stdout.splitlines()
    ours = f"--app-id {spark.sparkContext.applicationId}"
    return [int(line.split()[0]) for line in listed if "CoarseGrainedExecutorBackend" in line and ours in line]

def wait_for_both_workers():
    "Spark counts the driver too."
    while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 3:
        time.sleep(0.05)

def kill_one(asking, killed):
    "Kill a worker while both have a task, some tasks of the stage are done and others have not begun."
    while asking.is_set():
        for number in tracker.getActiveStageIds():
            stage = tracker.getStageInfo(number)
            middle = stage and stage.numTasks == TASKS and 3 <= stage.numCompletedTasks <= TASKS - 4
            if middle and stage.numActiveTasks == 2:
                os.kill(workers()[0], signal.SIGKILL)
                killed.append(number)
                return
        time.sleep(0.01)

def while_one_is_killed(question):
    "Return an answer, and whether a worker died and lost its task. A slow machine may miss a stage, so ask again."
    for _ in range(5):
        wait_for_both_workers()
        asking, killed = threading.Event(), []
        asking.set()
        thread = threading.Thread(target=kill_one, args=(asking, killed), daemon=True)
        thread.start()
        answer = question()
        asking.clear()
        thread.join()
        if killed:
            stage = tracker.getStageInfo(killed[0])
            return answer, stage.numFailedTasks > 0 or stage.currentAttemptId > 0
    return answer, False

def rows():
    return spark.range(0, 6000, 1, TASKS).selectExpr(
        "pmod(hash(id), 100) AS unit0", "pmod(id, 7) AS key0", "CAST(id % 50 AS BIGINT) AS value0")

column = ValueColumn(place=0, low=0, high=40)
lanes = (
    Lane(columns=(column,), sums=(GroupSum(name="n", of="rows", max_rows=3), GroupSum(name="x", of="x", max_rows=2))),
    Lane(columns=(column,), cells=Cells(name="c", max_rows=2)),
)
request = BoundedRequest(units=1, keys=1, max_groups=3, domain=None, lanes=lanes)

def ask(frame):
    found = run_statement(PrivateRows(SparkSource(frame)), request, *(salted([n, 5]) for n in range(3)))
    return found.groups, found.cells["c"]

def ask_for_a_price():
    "A question whose noise rounds to nothing: its answer, whether it cost its price, and how often noise was drawn."
    with warnings.catch_warnings(), mock.patch.object(noise, "_noisy", wraps=noise._noisy) as drawn:
        warnings.simplefilter("ignore", dp.DPWarning)
        session = dp.Session(epsilon=10**6, delta=1e-9, unit="unit0", max_groups=7, max_rows_per_group=100)
        private, how = dp.private(slow, session), {"keys": list(range(7)), "epsilon": 10**5}
        price = private.preview.count("key0", **how).cost
        answer = private.count("key0", **how)
    return answer["count"].to_list(), session.spent.epsilon == price.epsilon, len(session.releases), drawn.call_count

# Each row takes two milliseconds, so that a task takes a second on any machine, and a stage six.
slow = rows().filter("coalesce(java_method('java.lang.Thread', 'sleep', 2L), 'slept') <> 'awake'")
try:
    before = ask(rows())
    after, died = while_one_is_killed(lambda: ask(slow))
    print("died", died, "equal", all(a.equals(b) for a, b in zip(before, after, strict=True)))
    (counts, *charged), died = while_one_is_killed(ask_for_a_price)
    print("died", died, "counted", sum(counts), "charged", *charged)
finally:
    spark.stop()
"""


def test_an_executor_that_is_killed_changes_no_exact_number_and_no_price():
    """With the same salts, tasks that run again on another worker give the same bounded integers.

    Noise is drawn on the driver from these integers alone, so the law of the answer is the same too. A question that
    is asked through a session is charged once, by its plan, and all 6,000 rows are counted once.
    """
    missing = missing_for_apache()
    if missing:
        pytest.skip(missing)
    root = Path(dp.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", _CLUSTER], capture_output=True, text=True, check=False, timeout=540,
        env={**without_spark(), "PYTHONPATH": str(root), "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("died")]
    assert lines == ["died True equal True", "died True counted 6000 charged True 1 1"], done.stderr[-3000:]
