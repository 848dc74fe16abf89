"""Every example runs as a person would run it, and says what it promises."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_the_example_runs(example):
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_counting_with_a_budget_releases_twice_and_is_refused_once():
    example = ROOT / "examples" / "counting_with_a_budget.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.count("all counts are within") == 2
    assert done.stdout.count("does not fit the session's budget") == 1
    assert "spent 0.8, left 0.2" in done.stdout
