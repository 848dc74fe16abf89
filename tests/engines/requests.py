"""Short ways to build requests for one value and to run them."""

from dataclasses import dataclass

import polars as pl

from dp_polars._engines import polars
from dp_polars._engines.request import BoundedRequest, GroupSum, Lane, ValueColumn


@dataclass(frozen=True, kw_only=True)
class ValueRequest:
    """A value on its grid. Each row is clipped to [low, high], or with `total` each unit's sum."""

    low: int
    high: int
    exponent: int = 0
    offset: float = 0.0
    total: bool = False
    fine: int = 0
    inner: int = 0


def request(units=1, keys=1, max_groups=None, max_rows=None, domain=None, value=None, hashed_units=False):
    """Return a request for the number of rows, the number of units and the total of a value."""
    sums = (GroupSum(name="rows", of="rows", max_rows=max_rows), GroupSum(name="units", of="units"))
    columns = ()
    if value is not None:
        low, high = (-(1 << 61), 1 << 61) if value.total else (value.low, value.high)
        columns = (ValueColumn(place=0, low=low, high=high, exponent=value.exponent, offset=value.offset),)
        clip = (value.low, value.high) if value.total else None
        scaled = max_rows is not None and clip is None
        fine, inner = (value.fine, value.inner) if scaled else (0, 0)
        sums += (GroupSum(name="total", of="x", max_rows=max_rows, clip=clip, fine=fine, inner=inner),)
    lane = Lane(columns=columns, sums=sums)
    return BoundedRequest(
        units=units, keys=keys, max_groups=max_groups, domain=domain, lanes=(lane,), hashed_units=hashed_units
    )


def run_bounded(frame: pl.LazyFrame, asked: BoundedRequest, parts: int = 1) -> pl.DataFrame:
    """Return the sums of a frame whose value column is named `value`."""
    names = frame.collect_schema().names()
    wanted = [pl.col(name).alias("value0" if name == "value" else name) for name in names]
    return polars.run_bounded(frame.select(wanted), asked, parts=parts).groups.drop("runs")
