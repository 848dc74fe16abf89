"""Describe a table privately: several aggregates at once, estimated caps, and totals that add up.

The data are the flights of 2013 (see flights.py), with the plane as the unit. Each private answer is printed beside the
true one.
"""

import polars as pl
from flights import flights

import dp_polars as dp

frame = flights()
planes = frame.drop_nulls("tailnum")
airports = ["EWR", "JFK", "LGA"]
session = dp.Session(epsilon=4.0, delta=1e-6, unit="tailnum")

with session:
    # This reads the data once and charges once. What the aggregates share is paid for once.
    asked = {
        "flights": dp.count(),
        "average": dp.mean("dep_delay", bounds=(-20, 120)),
        "typical": dp.median("dep_delay", bounds=(-20, 120)),
        "spread": dp.std("dep_delay", bounds=(-20, 120)),
    }
    found = dp.private(frame).group_by("origin").agg(**asked, keys=airports, max_rows_per_group=30, epsilon=1.5)
    delay = pl.col("dep_delay").clip(-20, 120)
    true = planes.group_by("origin").agg(
        pl.len(), delay.mean(), delay.median().alias("median"), delay.std().alias("std")
    )
    print("Delays by airport, private", found, "and true", true.sort("origin"), sep="\n")

    # If you do not know how often or how far a plane flies, a part of the spend estimates caps and bounds.
    far = dp.private(frame).sum(
        "distance", by="origin", keys=airports, bounds="auto", max_rows_per_group="auto", epsilon=1.0
    )
    true = planes.group_by("origin").agg(true=pl.col("distance").sum())
    print("Miles flown by airport", far.join(true, on="origin"), session.plan(), sep="\n")

    # A table with totals that add up.
    months = pl.DataFrame({"origin": airports}).join(pl.DataFrame({"month": range(1, 13)}), how="cross")
    table = dp.private(frame).count(["origin", "month"], keys=months, rollup=True, max_rows_per_group=20, epsilon=1.0)
    print("Flights by airport and month", table.filter(pl.col("level") < 2), sep="\n")
    by_month = table.filter(level=2)["count"].sum()
    print(f"The months add up to {by_month}, as the total says: {table.filter(level=0)['count'].item()}")

print(session.describe())
