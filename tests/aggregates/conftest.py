"""Doors as fixtures."""

import pytest

from tests.aggregates.doors import DOORS, session
from tests.aggregates.frames import FRAME


@pytest.fixture(params=DOORS, ids=lambda door: door.__name__)
def kind(request):
    return request.param


@pytest.fixture(scope="module", params=DOORS, ids=lambda door: door.__name__)
def closed(request):
    """A door at which every question is refused, so that one is enough."""
    return request.param(FRAME, session())
