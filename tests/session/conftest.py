"""Put the ledgers of these tests on a disk in memory if there is one, because every charge is synced to the disk."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

_IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path(tmp_path):
    if not os.access(_IN_MEMORY, os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="dp-polars-", dir=_IN_MEMORY))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
