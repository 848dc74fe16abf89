"""Where `df.dp` and `lf.dp` come from, and their typed twin `dp.private`."""

from __future__ import annotations

import polars as pl

from dp_polars._frame.private_frame import Frame, PrivateFrame
from dp_polars._session.session import Session
from dp_polars._session.terms import UnitWords


def private(
    frame: Frame,
    session: Session | None = None,
    unit: UnitWords = None,
    name: str | None = None,
    data_version: str | None = None,
    weaker_unit: bool = False,
) -> PrivateFrame[Frame]:
    """Return the private form of a frame: `df.dp` for editors and type checkers, with options.

    Parameters
    ----------
    frame
        A DataFrame or LazyFrame.
    session
        The session that pays; the current one if not given.
    unit
        The unit of this table, where it is not the session's: a mapping if its columns are called otherwise here,
        `{"user_id": "customer_id"}`; some of the session's columns for a coarser unit, which doubles the noise.
    name, data_version
        Both given: releases are found again by them, in every process, until the version changes.
    weaker_unit
        The owner's word that any other `unit` may be used, which may protect less than the session agreed; the plan
        and the ledger repeat it.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = dp.private(pl.DataFrame({"user": [1, 2]}), session=dp.Session(epsilon=1.0, unit="user"))
    >>> visits.count_units(epsilon=0.5).columns
    ['count_units']
    """
    return PrivateFrame(
        frame, session=session, unit=unit, name=name, data_version=data_version, weaker_unit=weaker_unit
    )


def put_namespace() -> None:
    """Put the namespace `dp` on DataFrame and LazyFrame."""
    pl.api.register_dataframe_namespace("dp")(PrivateFrame)
    pl.api.register_lazyframe_namespace("dp")(PrivateFrame)
