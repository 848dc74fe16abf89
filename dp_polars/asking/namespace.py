"""Where `df.dp` and `lf.dp` come from, and their typed twin `dp.private`."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dp_polars.accounting.session import Session
from dp_polars.accounting.terms import _Row
from dp_polars.asking.frame import Frame, PrivateFrame


def private(
    frame: Frame,
    session: Session | None = None,
    unit: str | Sequence[str] | _Row | None = None,
    name: str | None = None,
    data_version: str | None = None,
) -> PrivateFrame[Frame]:
    """Return the private form of a frame: `df.dp` for editors and type checkers, with options.

    Parameters
    ----------
    frame
        A DataFrame or LazyFrame.
    session
        The session that pays; the current one if not given.
    unit
        The unit columns of this table, where they are named otherwise than the session's.
    name, data_version
        Both given: releases are found again by them, in every process, until the version changes.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = dp.private(pl.DataFrame({"user": [1, 2]}), session=dp.Session(epsilon=1.0, unit="user"))
    >>> visits.count_units(epsilon=0.5).columns
    ['count_units']
    """
    return PrivateFrame(frame, session=session, unit=unit, name=name, data_version=data_version)


def put_namespace() -> None:
    """Put the namespace `dp` on DataFrame and LazyFrame."""
    pl.api.register_dataframe_namespace("dp")(PrivateFrame)
    pl.api.register_lazyframe_namespace("dp")(PrivateFrame)
