"""Share one budget among several processes: the ledger is a file, and no two processes can spend the same epsilon.

Four processes ask at the same time, for epsilon 0.3 each, of a budget of 1. Three get an answer. The fourth, whichever
it is, is refused and pays nothing. A process that dies leaves its charge in place.
"""

import multiprocessing
import tempfile
from pathlib import Path

import polars as pl

import dp_polars as dp

COLOURS = ["red", "green", "blue", "white"]


def ask(ledger: Path, file: Path, colour: str) -> str:
    """Count the fans of a colour. This runs in a process of its own."""
    session = dp.Session.from_ledger(ledger)
    fans = dp.private(pl.scan_parquet(file)).filter(pl.col("colour") == colour)
    try:
        answer = fans.count_units(epsilon=0.3, session=session).collect()
    except (dp.BudgetExceeded, pl.exceptions.ComputeError):  # Polars 1 wraps what a lazy frame raises
        return f"{colour}: refused"
    return f"{colour}: about {answer.item():,} people"


def main() -> None:
    """Share a budget of 1 among four processes."""
    folder = Path(tempfile.mkdtemp())
    file, ledger = folder / "people.parquet", folder / "budget.db"
    pl.DataFrame({"person": range(8_000), "colour": COLOURS * 2_000}).write_parquet(file)
    dp.Session(epsilon=1.0, unit="person", ledger=ledger).close()
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        for line in sorted(pool.starmap(ask, [(ledger, file, colour) for colour in COLOURS])):
            print(line)
    print(dp.Session.from_ledger(ledger).describe())


if __name__ == "__main__":
    main()
