"""The quick form of the fuzzers: the same cases each time. `python -m tests.long fuzz` runs many others."""

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.runs import Child, cases

EXAMPLES = {"sql": 110, "polars": 120, "statements": 45, "functions": 30, "pipelines": 30}


@pytest.fixture(scope="module")
def child():
    """One process for all: it takes as long to start as some fifty cases to run."""
    with Child() as child:
        yield child


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_is_found_by_fuzzing(name, child):
    @settings(
        max_examples=EXAMPLES[name],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(name))
    def hold(case):
        assert "finding" not in (answer := child.ask(name, case)), answer["finding"]

    hold()
