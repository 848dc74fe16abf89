"""Each deliberate fault of the package is caught, by name, by a check that the sound package passes."""

import re

import pytest

from tests.mutations.checks import Broken
from tests.mutations.faults import FAULTS

CHECKS = {fault.check.__name__: fault.check for fault in FAULTS.values()}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_the_sound_package_passes(name):
    CHECKS[name]()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_caught_by_name(name, monkeypatch):
    fault = FAULTS[name]
    fault.switch(monkeypatch)
    with pytest.raises(Broken) as found:
        fault.check()
    assert re.search(fault.says, str(found.value)), str(found.value)
