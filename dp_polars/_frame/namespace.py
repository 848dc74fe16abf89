"""`dp.private`, and the registration of `df.dp` and `lf.dp` with Polars."""

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
    """Make a frame private. This is `df.dp` with options, in a form that editors and type checkers understand.

    Parameters
    ----------
    frame
        A DataFrame or LazyFrame.
    session
        The session that pays. The default is the current one.
    unit
        The unit of this table, if it differs from the session's. Use a mapping if the columns have other names here,
        `{"user_id": "customer_id"}`, or some of the session's columns for a coarser unit, which doubles the noise.
    name, data_version
        If both are given, releases are found again by them in every process, until the version changes.
    weaker_unit
        Allows any other `unit`, which may protect less than the session promises. The owner of the data vouches for
        this, and the plan and the ledger repeat it.

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
    """Register the namespace `dp` for DataFrame and LazyFrame."""
    pl.api.register_dataframe_namespace("dp")(PrivateFrame)
    pl.api.register_lazyframe_namespace("dp")(PrivateFrame)
