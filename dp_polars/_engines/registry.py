"""The list of engines. A new engine is a folder beside this file and one entry in `ENGINES`."""

from __future__ import annotations

from dp_polars._engines.base import Engine, object_token, owner_identity
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.spark.engine import SparkEngine

ENGINES: tuple[Engine, ...] = (PolarsEngine(), SparkEngine())


def engine_for(rows: PrivateRows) -> Engine:
    """Return the engine that reads the source of these rows."""
    for engine in ENGINES:
        if engine.reads(rows.source):
            return engine
    raise TypeError(f"no engine reads a {type(rows.source).__name__}")


def source_identity(origin: object, name: str | None, data_version: str | None) -> bytes:
    """Return the identity of what a user made private.

    It is equal for the same source. Different sources have different identities, except with probability 2**-128.
    """
    owned = owner_identity(name, data_version)
    if owned is not None:
        return owned
    for engine in ENGINES:
        files = engine.identify(origin)
        if files is not None:
            return b"files:" + files
    return b"object:" + object_token(origin)
