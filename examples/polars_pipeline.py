"""End an ordinary Polars pipeline with private questions: lazy frames, files and a budget in a file.

People visit shops. One person may visit often, so the session caps what each person contributes: three cities, and five
visits in each. Because the budget is in a file, a second run finds its releases again and pays nothing.
"""

import tempfile
from pathlib import Path

import polars as pl

import dp_polars as dp

folder = Path(tempfile.mkdtemp())
cities = ["Lisbon", "Porto", "Faro", "Braga"]
rows = 40_000
pl.DataFrame(
    {
        "user_id": [f"person-{i * i % 7919}" for i in range(rows)],
        "city": [cities[i * 7 % 11 % 4] for i in range(rows)],
        "spent": [i * 31 % 120 + 0.5 for i in range(rows)],
    }
).write_parquet(folder / "visits.parquet")


def report() -> None:
    """Ask three questions of the file. Stored answers are returned if nothing has changed."""
    session = dp.Session(
        epsilon=1.0, delta=1e-7, unit="user_id", max_groups=3, max_rows_per_group=5, ledger=folder / "budget.db"
    )
    visits = pl.scan_parquet(folder / "visits.parquet")
    with session:
        people = dp.private(visits).count_units("city", epsilon=0.2, confidence=0.95)
        large = dp.private(visits).filter(pl.col("spent") > 100).count("city", keys=cities, within=200)
        typical = dp.private(visits).mean("spent", by="city", keys=cities, bounds=(0, 120), epsilon=0.3)
        # These are ordinary lazy frames. The release happens once, when they are collected.
        table = people.join(large, on="city", how="left").join(typical, on="city", how="left").sort("city")
        print(table.collect())
    print(f"{len(session.releases)} releases, {session.spent.share:.0%} of the budget used\n")


report()
report()
