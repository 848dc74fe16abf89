"""Watch a service day by day, and pay only for the days that stand out.

The data are a year of made-up visits with five busy days. The sparse vector technique compares each day with a
threshold. The whole year has one price, which depends on how many days may be reported, not on how many are examined.
"""

import datetime as dt

import numpy as np
import polars as pl

import dp_polars as dp

generator = np.random.default_rng(1)
days = np.arange(365)
visitors = np.where(np.isin(days, [45, 100, 185, 283, 330]), 1_500, 300) + generator.integers(0, 60, 365)
visits = pl.DataFrame(
    {
        "user_id": generator.integers(0, 50_000, visitors.sum()),
        "day": pl.Series(dt.date(2026, 1, 1) + dt.timedelta(int(day)) for day in np.repeat(days, visitors)),
    }
)

session = dp.Session(epsilon=1.0, unit="user_id")

with session:
    private = dp.private(visits)
    print(private.preview.sparse_vector(900, hits=5, of="units", monotone=True, epsilon=0.5))
    stream = private.sparse_vector(900, hits=5, of="units", monotone=True, epsilon=0.5)

year = pl.date_range(dt.date(2026, 1, 1), dt.date(2026, 12, 31), eager=True)
print()
for month in range(1, 13):  # month by month, as the year goes by
    dates = year.filter(year.dt.month() == month).to_list()
    busy = stream.ask_many(pl.col("day") == date for date in dates)
    found = [f"{date:%d %B}" for date, above in zip(dates, busy, strict=False) if above]
    print(f"{dates[0]:%B}: {', '.join(found) or 'nothing above 900 visitors'}")
    if stream.closed:
        break

each = 0.5 / 365
error = dp.mechanisms.laplace_error(sensitivity=1, epsilon=each, count=365)
margin = stream.plan.expected_error(365).margin
print(f"\n{stream}")
print(f"Days further than {margin:.0f} visitors from 900 are told right, all of them, with 95 % probability.")
print(f"Noisy counts of all 365 days for the same price would be off by up to {error:,.0f}: anyone may come every day.")
print(f"Left of the budget: {session.remaining.share:.0%}")
