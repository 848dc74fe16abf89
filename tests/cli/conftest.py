"""Fixtures for the tests of the command line."""

import pytest

from dp_polars._cli import main


@pytest.fixture
def run(capsys):
    """Return a function that runs the command line and returns its code, stdout and stderr."""

    def command(*words):
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return command
