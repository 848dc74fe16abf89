"""The session of the shared Spark server as a fixture. `DP_SPARK=apache pytest tests/engines/spark` chooses another."""

import pytest

from tests.engines.spark.server import shared_session


@pytest.fixture(scope="session")
def spark():
    """A session of the server that the environment variable DP_SPARK names. See `server`."""
    return shared_session()


@pytest.fixture(params=[True, False], ids=["ansi", "not-ansi"])
def ansi(request, spark):
    """Run a test in ANSI mode and outside of it."""
    before = spark.conf.get("spark.sql.ansi.enabled", "true")
    spark.conf.set("spark.sql.ansi.enabled", str(request.param).lower())
    yield request.param
    spark.conf.set("spark.sql.ansi.enabled", before)
