"""Doors as fixtures, and which of them a case goes through."""

import zlib
from collections import defaultdict
from pathlib import Path

import pytest

from tests.aggregates.doors import DOORS, WAYS_TO_ROWS, close_all, session
from tests.aggregates.frames import FRAME


def pytest_collection_modifyitems(items):
    """Let each case go through one door of each way to the rows, and each door see a share of each test's cases.

    A door turns a call into a query, and rows into those that an engine reads; the engine computes the answer. So what
    must meet is each case with each way to the rows, and each door with each aggregate. That all doors make the same
    plan of a question and charge the same for it is tested at every door in one test, and so are refusals.
    """
    cases = defaultdict(lambda: defaultdict(list))
    for item in items:
        door = _door_of(item)
        if door is not None:
            others = tuple(str(value) for value in item.callspec.params.values() if _kind(value) is None)
            cases[item.path, item.originalname][others].append((door, item))
    dropped = set()
    for (_, name), of_test in cases.items():
        for number, found in enumerate(of_test.values(), zlib.crc32(name.encode())):
            for way in WAYS_TO_ROWS:
                doors = [item for door, item in found if door in way]
                if doors:
                    chosen = (number + number // 3) % len(doors)
                    dropped |= {id(item) for item in doors if item is not doors[chosen]}
    items[:] = [item for item in items if id(item) not in dropped]


def _kind(value):
    kind = value if isinstance(value, type) else type(value)
    return kind if kind in DOORS else None


def _door_of(item):
    """Return the door that a case of this folder goes through, if it is a parameter and the test is of answers."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    door = next((kind for kind in map(_kind, params.values()) if kind is not None), None)
    if door is None or Path(__file__).parent not in item.path.parents:  # this hook sees the tests of all folders
        return None
    return None if "refused" in item.name or "refuses" in item.name else door


@pytest.fixture(scope="module", autouse=True)
def databases_are_closed():
    yield
    close_all()


@pytest.fixture(params=DOORS, ids=lambda door: door.__name__)
def kind(request):
    return request.param


@pytest.fixture(scope="module", params=DOORS, ids=lambda door: door.__name__)
def closed(request):
    """Every door, opened once for each module: its questions are all refused, so tests can share it."""
    return request.param(FRAME.clone(), session())  # a frame, and so a database, of its own
