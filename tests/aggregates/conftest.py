"""Doors as fixtures."""

import pytest

from tests.aggregates.doors import DOORS, close_all, session
from tests.aggregates.frames import FRAME


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
