"""What all tests share."""

import contextlib
import ctypes
import functools
import gc
import importlib
import os
import resource
import sys
from pathlib import Path

# Before Polars is imported: workers share the cores, and each thread of a pool keeps memory of its own.
os.environ.setdefault("POLARS_MAX_THREADS", "2")
# Before the client of Spark is imported: after a fork, its connection would begin to work in the child too, which may
# abort there. Some tests fork in a process that has asked Spark before.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Many tests start processes, each of which imports the package. Where Python may not write bytecode beside the source,
# it goes to the cache of pytest, so that nothing is compiled twice, by no process and no later run.
if sys.dont_write_bytecode and "PYTHONPYCACHEPREFIX" not in os.environ:
    with contextlib.suppress(OSError):
        sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
        os.makedirs(sys.pycache_prefix, exist_ok=True)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False

import duckdb
import pytest
from _pytest.doctest import DoctestModule

import dp_polars as dp
from dp_polars._session import prices
from dp_polars._sql import connection as guarded
from tests.engines.spark.server import stop_shared_session

SEES_THROUGH = 1000
GARBAGE = 150 << 20
"""How many bytes a process may grow before garbage is collected."""
TESTS_BETWEEN_COLLECTIONS = 60  # where the size of a process is not known

_finished = _size = 0


def pytest_sessionstart(session):
    """Import test modules from the last to the first in every other worker.

    All workers collect in the same order, so each would compile every module at the same time as the others. This
    way two meet in the middle, and each compiles a half. A module that can't be imported is reported by the collection.
    """
    here = Path(__file__).parent
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    if int(worker.removeprefix("gw")) % 2 and any(Path(one).resolve() == here for one in session.config.args):
        for path in sorted(here.rglob("test_*.py"), reverse=True):
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(".".join(path.relative_to(here.parent).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Look for no examples in the docstrings of tests, which takes a second."""
    return [one for one in (yield) if not isinstance(one, DoctestModule)]


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
    """Stop the Spark server, if there is one, and let the interpreter free everything when it ends."""
    stop_shared_session()
    for shared in (_sandbox_of, _empty_database_of):
        if shared.cache_info().currsize:
            shared(os.getpid()).close()
            shared.cache_clear()
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown():
    """Free what tests left behind, in the process that ran them.

    A guarded connection holds about 10 MB of DuckDB in a reference cycle of some hundred objects. Python counts
    objects, not bytes, so it would let thousands of tests pass, and gigabytes pile up, before it frees them. A
    collection looks at every object, so it waits until the process has grown. Then freed memory goes back to the
    system.
    """
    global _finished, _size
    yield
    _finished += 1
    if (_finished % TESTS_BETWEEN_COLLECTIONS == 0) if _STATM is None else (_resident() > _size + GARBAGE):
        gc.collect()
        if _return_memory is not None:
            _return_memory(0)
        _size = _resident()


_return_memory = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
"""The GNU C library keeps freed memory, up to gigabytes in a process with many threads; this returns it."""
_STATM = os.open("/proc/self/statm", os.O_RDONLY) if os.path.exists("/proc/self/statm") else None


def _resident():
    """Return the bytes of this process in memory, or 0 where they are not known."""
    return 0 if _STATM is None else int(os.pread(_STATM, 100, 0).split()[1]) * resource.getpagesize()


# Opening a database takes longer than most questions, so all guarded connections of a process share the empty one that
# holds released rows. What one of them registers is invisible to the others all the same.
_open_sandbox = guarded.sandbox


@functools.cache
def _sandbox_of(process):
    return _open_sandbox()


guarded.sandbox = lambda: _sandbox_of(os.getpid()).cursor()


# So do connections without a database: frames and files are registered beside it, and nothing is written to it.
@functools.cache
def _empty_database_of(process):
    return duckdb.connect()


class _SharingEmptyDatabases:
    """DuckDB as guarded connections see it."""

    def __getattr__(self, name):
        return getattr(duckdb, name)

    def connect(self, path=":memory:", *given, **words):
        """Open a file, or a cursor on the empty database of this process."""
        plain = path == ":memory:" and not given and not words
        return _empty_database_of(os.getpid()).cursor() if plain else duckdb.connect(path, *given, **words)


guarded.duckdb = _SharingEmptyDatabases()


# Sessions with a huge epsilon or rho, which show answers without noise, have no smallest price in tests.
_smallest_price = prices.smallest
prices.smallest = lambda terms: (
    {} if max(terms.epsilon or 0, terms.rho or 0) >= SEES_THROUGH else _smallest_price(terms)
)


_register, _registered = dp.register, []


@functools.wraps(_register)
def _remembering(connection, *given, **words):
    _registered.append(connection)
    return _register(connection, *given, **words)


dp.register = _remembering


@pytest.fixture(autouse=True)
def connections_with_functions_are_closed():
    """Close what `dp.register` was called on: DuckDB and the functions hold each other, and 11 MB, until then."""
    _registered.clear()  # fixtures that several tests share close their own
    yield
    for connection in _registered:
        connection.close()
    _registered.clear()
