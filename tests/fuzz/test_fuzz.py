"""The quick form of the fuzzers: the same cases each time. `python -m tests.long fuzz` runs many others."""

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.runs import Child, cases

EXAMPLES = {"sql": 130, "polars": 150, "statements": 60, "functions": 40, "pipelines": 40}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_is_found_by_fuzzing(name):
    with Child(name) as child:

        @settings(
            max_examples=EXAMPLES[name],
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(cases(name))
        def hold(case):
            assert "finding" not in (answer := child.ask(case)), answer["finding"]

        hold()
