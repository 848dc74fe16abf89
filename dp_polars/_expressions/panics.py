"""Panics of Polars as errors of the library.

A panic in Rust reaches Python as an exception that is no `Exception`: it passes what a server or a notebook catches,
and ends it. What reads private rows is guarded by `releasing.charging`; this is for what comes before and after.
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
    """Return a function that raises an error of ours where Polars panics.

    >>> @no_panics
    ... def ask():
    ...     raise pl.exceptions.PanicException("index out of bounds")
    >>> ask()
    Traceback (most recent call last):
    ...
    dp_polars.errors.DPError: Polars failed on this question before or after private rows were read. ...
    """

    @functools.wraps(function)
    def called(*given: Given.args, **words: Given.kwargs) -> Result:
        try:
            return function(*given, **words)
        except pl.exceptions.PanicException:
            pass
        # Outside of the handler, so that Polars' words are not even the context.
        raise DPError(
            "Polars failed on this question before or after private rows were read. Its message is not shown; look "
            "for an unusual type or constant, and simplify. session.releases says whether anything was charged."
        )

    return called
