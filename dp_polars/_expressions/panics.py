"""Panics of Polars as errors of this library.

A Rust panic reaches Python as an exception that does not derive from `Exception`, so servers and notebooks do not catch
it and end. `_release.charge` guards everything that reads private rows; this is for what comes before and after.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import polars as pl

from dp_polars.errors import DPError

Given = ParamSpec("Given")
Result = TypeVar("Result")


def no_panics(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return a function that raises a `DPError` where Polars panics.

    >>> @no_panics
    ... def ask():
    ...     raise pl.exceptions.PanicException("index out of bounds")
    >>> ask()
    Traceback (most recent call last):
    ...
    dp_polars.errors.DPError: Polars failed on this query before or after private rows were read. ...
    """

    @functools.wraps(function)
    def called(*given: Given.args, **words: Given.kwargs) -> Result:
        try:
            return function(*given, **words)
        except pl.exceptions.PanicException:
            pass
        # Raised outside the handler so that the message of Polars is not even the context.
        raise DPError(
            "Polars failed on this query before or after private rows were read. Its message is withheld. Look for an "
            "unusual type or constant, and simplify the query. session.releases shows whether anything was charged."
        )

    return called
