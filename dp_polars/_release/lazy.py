"""A lazy frame whose release happens once, at the first collect, however often it is collected."""

from __future__ import annotations

import threading
from collections.abc import Callable

import polars as pl


def deferred(release: Callable[[], pl.DataFrame], schema: dict[str, pl.DataType]) -> pl.LazyFrame:
    """Return a lazy frame whose rows come from a single call of `release`, made when they are first needed.

    A second collect, a self-join or `collect_all` sees the same rows. An error is kept too, because another attempt
    after a charge must not charge again.
    """
    memo = _Once(release)
    return pl.defer(memo, schema=schema)


class _Once:
    def __init__(self, release: Callable[[], pl.DataFrame]) -> None:
        self._release: Callable[[], pl.DataFrame] | None = release
        self._lock = threading.Lock()
        self._result: pl.DataFrame | None = None
        self._error: BaseException | None = None

    def __call__(self) -> pl.DataFrame:
        with self._lock:
            if self._release is not None:
                try:
                    self._result = self._release()
                except BaseException as error:
                    self._error = error
                    raise
                finally:
                    self._release = None
        if self._result is None:
            raise self._error or RuntimeError("the release returned no frame")
        return self._result
