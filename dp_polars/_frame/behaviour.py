"""Questions about behaviour: visits that belong together, funnels and retention, as steps within a unit.

Each method returns a private frame, so its result can be filtered, joined, previewed and counted like any other. All
of them are written with `group_by` and `over`, and only combine rows of the same unit.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import polars as pl

from dp_polars._numbers import count_of
from dp_polars.errors import InvalidParameterError

if TYPE_CHECKING:
    from dp_polars._frame.private_frame import PrivateFrame

Frame = TypeVar("Frame", bound=pl.DataFrame | pl.LazyFrame)

_SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PERIODS = ("1d", "1w", "1mo", "1q", "1y")


class Behaviour(ABC, Generic[Frame]):
    """Methods of a private frame that describe what units do over time."""

    @abstractmethod
    def _itself(self) -> PrivateFrame[Frame]:
        """Return the private frame."""

    def sessions(self, time: str, gap: timedelta | str, name: str = "session") -> PrivateFrame[Frame]:
        """Give the rows of each unit the number of their session, which ends where no row follows within `gap`.

        Parameters
        ----------
        time
            The column with the time of each row: a Datetime or a Date. Rows without a time belong to no session.
        gap
            The longest pause within a session: a timedelta, or a text such as "30m", "2h" or "7d".
        name
            The name of the new column, which counts sessions from 1 on for each unit.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> from datetime import datetime
        >>> times = [datetime(2024, 1, 1, hour, i % 60) for i in range(2_000) for hour in (9, 10, 20)]
        >>> clicks = pl.DataFrame({"user": [i // 3 for i in range(6_000)], "at": times})
        >>> session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=10)
        >>> visits = dp.private(clicks, session).sessions("at", "2h")
        >>> per_user = visits.group_by("user").agg(visits=pl.col("session").max())
        >>> round(per_user.mean("visits", bounds=(0, 10), epsilon=0.5).item())
        2
        """
        frame, unit, at = self._itself(), self._known_unit("sessions"), _time(self._itself(), time)
        before = at.shift(1).over(unit, order_by=time)
        goes_on = _new_name(frame, "goes on")
        flagged = frame.with_columns(
            (at.is_null() | (at - before <= _span(gap, "gap")).fill_null(value=False)).alias(goes_on)
        )
        # Of rows with the same time, the one that starts a session comes first.
        number = (~pl.col(goes_on)).cast(pl.Int64).cum_sum().over(unit, order_by=[time, goes_on])
        return flagged.with_columns(pl.when(at.is_not_null()).then(number).alias(name)).drop(goes_on)

    def funnel(
        self, steps: Mapping[str, pl.Expr], time: str, within: timedelta | str | None = None, name: str = "step"
    ) -> PrivateFrame[Frame]:
        """Find out how far each unit gets through a sequence of steps.

        Parameters
        ----------
        steps
            The steps in their order: names, and conditions that a row must meet. A unit reaches a step at the first
            row that meets its condition and is not earlier than the row of the step before.
        time
            The column with the time of each row: a Datetime or a Date.
        within
            The longest time from the first step to any later one: a timedelta, or a text such as "7d". It is counted
            from the first time that a unit takes the first step.
        name
            The name of the new column.

        Returns
        -------
        PrivateFrame
            One row for each unit that takes the first step, with the last step that it reaches. Counts by this column
            need no keys and no caps. How many units reach a step or go further is the sum of the counts from there on.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> events = pl.DataFrame(
        ...     {"user": [i // 3 for i in range(6_000)], "at": range(6_000), "what": ["visit", "cart", "pay"] * 2_000}
        ... ).with_columns(pl.from_epoch("at"))
        >>> session = dp.Session(epsilon=1.0, unit="user")
        >>> what = pl.col("what")
        >>> funnel = dp.private(events, session).funnel(
        ...     {"visits": what == "visit", "fills a cart": what == "cart", "pays": what == "pay"}, time="at"
        ... )
        >>> counts = funnel.count("step", epsilon=0.5)
        >>> [round(n, -3) for n in counts["count"].cum_sum(reverse=True)]
        [2000, 2000, 2000]
        """
        frame, unit, at = self._itself(), self._known_unit("funnel"), _time(self._itself(), time)
        if (
            not isinstance(steps, Mapping)
            or len(steps) < 2
            or not all(isinstance(step, pl.Expr) for step in steps.values())
        ):
            raise InvalidParameterError(
                "funnel takes two or more steps with their conditions: funnel({'visits': pl.col('page') == 'home', "
                "'pays': pl.col('page') == 'paid'}, time='at')."
            )
        marks = [_new_name(frame, f"step {place}") for place in range(len(steps))]
        for place, (mark, condition) in enumerate(zip(marks, steps.values(), strict=True)):
            met = condition & at.is_not_null()
            if place:
                met = met & (at >= pl.col(marks[place - 1]))
            if place and within is not None:
                met = met & (at - pl.col(marks[0]) <= _span(within, "within"))
            frame = frame.with_columns(at.filter(met).min().over(unit).alias(mark))
        reached = frame.group_by(*unit).agg(**{mark: pl.col(mark).min() for mark in marks})
        furthest: pl.Expr = pl.lit(next(iter(steps)))
        for mark, step in zip(marks[1:], [*steps][1:], strict=True):
            furthest = pl.when(pl.col(mark).is_not_null()).then(pl.lit(step)).otherwise(furthest)
        furthest = furthest.cast(pl.Enum(list(steps)))
        return reached.filter(pl.col(marks[0]).is_not_null()).select(*unit, furthest.alias(name))

    def retention(self, time: str, period: str = "1mo", periods: int = 12) -> PrivateFrame[Frame]:
        """Find out in which periods after its first one each unit comes back.

        Parameters
        ----------
        time
            The column with the time of each row: a Datetime or a Date.
        period
            "1d", "1w", "1mo", "1q" or "1y".
        periods
            How many periods after the first one to look at.

        Returns
        -------
        PrivateFrame
            One row for each unit and each period in which it is active, with the unit's first period (`cohort`) and
            the number of periods since then (`period`, from 0 to `periods`). Divide the counts by period by the count
            of period 0 to get the share of units that come back.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> from datetime import date
        >>> days = [date(2024, 1, 1), date(2024, 2, 9), date(2024, 2, 20)] * 2_000
        >>> visits = pl.DataFrame({"user": [i // 3 for i in range(6_000)], "day": days})
        >>> active = dp.private(visits, dp.Session(epsilon=1.0, unit="user")).retention("day", periods=2)
        >>> counts = active.count("period", keys=[0, 1, 2], epsilon=0.5)
        >>> [round(n, -3) for n in counts["count"]]
        [2000, 2000, 0]
        """
        frame, unit, at = self._itself(), self._known_unit("retention"), _time(self._itself(), time)
        most = count_of(periods, "periods")
        if period not in _PERIODS:
            raise InvalidParameterError(f"retention counts periods of {', '.join(_PERIODS)}, not {period!r}.")
        day, first = _new_name(frame, "day"), _new_name(frame, "first")
        dated = frame.with_columns(at.cast(pl.Date).dt.truncate(period).alias(day)).filter(pl.col(day).is_not_null())
        dated = dated.with_columns(pl.col(day).min().over(unit).alias(first))
        since = _number_of(pl.col(day), period) - _number_of(pl.col(first), period)
        active = dated.select(*unit, cohort=pl.col(first), period=since).filter(pl.col("period") <= most)
        return active.unique([*unit, "period"])  # a unit has one cohort

    def _known_unit(self, what: str) -> list[str]:
        unit = list(self._itself()._unit_columns())
        if not unit:
            raise InvalidParameterError(
                f"{what} looks at the rows of each unit, so it must know the unit. Use dp.private(frame, session) with "
                "a session whose unit is a column, or ask inside `with session:`."
            )
        return unit


def _time(frame: Any, name: str) -> pl.Expr:
    dtype = frame.schema.get(name)
    if not (dtype == pl.Date or isinstance(dtype, pl.Datetime)):
        raise InvalidParameterError(
            f"time= names a column of dates or times, and {name!r} "
            + ("is not a column of this frame." if dtype is None else f"has the type {dtype}.")
        )
    return pl.col(name)


def _span(given: timedelta | str, name: str) -> timedelta:
    """Return a length of time that was given as a timedelta or as a text."""
    found = re.fullmatch(r"(\d{1,6})([smhdw])", given) if isinstance(given, str) else None
    span = timedelta(seconds=int(found[1]) * _SPANS[found[2]]) if found else given
    if not isinstance(span, timedelta) or span < timedelta(0):
        raise InvalidParameterError(f"{name}= is a timedelta, or a text such as '30m', '2h', '7d' or '4w'.")
    return span


def _number_of(day: pl.Expr, period: str) -> pl.Expr:
    """Return the number of a period, so that the difference of two numbers is how many periods lie between them."""
    year, month = day.dt.year().cast(pl.Int64), day.dt.month().cast(pl.Int64)
    if period in ("1d", "1w"):
        days = (day - pl.lit(date(1, 1, 1))).dt.total_days()  # a Monday
        return days if period == "1d" else days // 7
    return {"1mo": year * 12 + month, "1q": year * 4 + (month - 1) // 3, "1y": year}[period]


def _new_name(frame: Any, name: str) -> str:
    """Return a new name for a column: `name`, with underscores if the frame has such a column."""
    while name in frame.schema:
        name = f"{name}_"
    return name
