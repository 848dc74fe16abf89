"""What all tests share."""

import atexit
import functools
import gc
import os
import shutil
import sys
import tempfile

# Before Polars is imported: workers share the cores, and each thread of a pool keeps memory of its own.
os.environ.setdefault("POLARS_MAX_THREADS", "2")

# Many tests start processes, each of which imports the package. Where Python may not write bytecode beside the source,
# it goes to a folder of this run, so that the package is compiled once and not by every process.
if sys.dont_write_bytecode and "PYTHONPYCACHEPREFIX" not in os.environ:
    os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="pycache-")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    atexit.register(shutil.rmtree, os.environ["PYTHONPYCACHEPREFIX"], ignore_errors=True)

import pytest

import dp_polars as dp
from dp_polars._session import prices

SEES_THROUGH = 1000
TESTS_BETWEEN_COLLECTIONS = 10

_finished = 0


def pytest_collection_modifyitems(items):
    """Leave examples in docstrings and pages out of the short run."""
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            item.add_marker("slow")


def pytest_collection_finish():
    """Exempt modules and collected tests from garbage collection, so that it takes milliseconds."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish():
    """Let the interpreter free everything when it ends."""
    gc.unfreeze()


def pytest_runtest_logfinish():
    """Free what tests left behind.

    A guarded connection holds about 10 MB of DuckDB in a reference cycle of some hundred objects. Python counts
    objects, not bytes, so it would let thousands of tests pass, and gigabytes pile up, before it frees them.
    """
    global _finished
    _finished += 1
    if _finished % TESTS_BETWEEN_COLLECTIONS == 0:
        gc.collect()


@pytest.fixture(autouse=True)
def no_smallest_price_where_a_test_sees_through_the_noise(monkeypatch):
    """Lift the smallest price in sessions with a huge epsilon or rho, which show answers without noise."""
    smallest = prices.smallest

    def of_real_sessions(terms):
        return {} if max(terms.epsilon or 0, terms.rho or 0) >= SEES_THROUGH else smallest(terms)

    monkeypatch.setattr(prices, "smallest", of_real_sessions)


@pytest.fixture(autouse=True)
def connections_with_functions_are_closed(monkeypatch):
    """Close what `dp.register` was called on: DuckDB and the functions hold each other, and 11 MB, until then."""
    opened, register = [], dp.register

    @functools.wraps(register)
    def remembering(connection, *given, **words):
        opened.append(connection)
        return register(connection, *given, **words)

    monkeypatch.setattr(dp, "register", remembering)
    yield
    for connection in opened:
        connection.close()
