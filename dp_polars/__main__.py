"""`python -m dp_polars demo`: three private questions to a small made-up data set."""

from __future__ import annotations

import argparse
import sys

import polars as pl

import dp_polars as dp

REGIONS = ["north", "south", "east", "west"]


def visits() -> pl.DataFrame:
    """Return a made-up table: 2,000 people, some of whom come much more often than others."""
    people = pl.DataFrame({"user_id": range(2000)}).with_columns(
        often=1 + (pl.col("user_id") * 7919 % 97) // 12, home=pl.col("user_id") * 31 % 7 % 4
    )
    rows = people.select(pl.col("user_id", "home"), visit=pl.int_ranges("often")).explode("visit")
    place = (pl.col("home") + (pl.col("visit") * 5 + pl.col("user_id")) % 11 // 9) % 4
    return rows.select(
        "user_id",
        region=place.replace_strict(list(range(4)), REGIONS, return_dtype=pl.Enum(REGIONS)),
        spent=(pl.col("user_id") * 13 + pl.col("visit") * 29) % 80 + 0.5,
    )


def demo() -> None:
    """Ask three questions and show the plan, the answers with their intervals and what is left."""
    frame = visits()
    session = dp.Session(epsilon=1.0, delta=1e-7, unit="user_id", max_groups=2, max_rows_per_group=5)
    print(
        f"{frame.height} visits of {frame['user_id'].n_unique()} people; each is in at most 2 regions, 5 visits each.\n"
    )
    private = dp.private(frame)  # the typed twin of frame.dp
    with session:
        print("Before anything is spent, the plan of the first question:\n")
        print(private.preview.count_units("region", epsilon=0.2))
        print("\nHow many people visited each region?")
        print(private.count_units("region", epsilon=0.2, confidence=0.95))
        print("\nHow much did they spend there?")
        print(private.sum("spent", by="region", bounds=(0, 80), epsilon=0.4, confidence=0.95))
        print("\nHow much is a visit worth?")
        print(private.mean("spent", bounds=(0, 80), epsilon=0.2, confidence=0.95))
    print(f"\n{session.describe()}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m dp_polars", description=dp.__doc__)
    parser.add_argument("command", choices=["demo"], help="demo: three private questions to a made-up data set")
    parser.parse_args(arguments)
    demo()
    return 0


if __name__ == "__main__":
    sys.exit(main())
