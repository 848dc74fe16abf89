"""`dp-polars demo`: run one query in Polars and in SQL, on a small made-up table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import duckdb
import polars as pl

import dp_polars as dp
from dp_polars._cli.exit_codes import CommandParser
from dp_polars._display.text import budget_text, percent

REGIONS = ["north", "south", "east", "west"]
_POLARS = 'visits.dp.count_units("region", keys=REGIONS, epsilon=0.2, confidence=0.95)'
_SQL = f"""FROM dp.count_units('visits', by := 'region', keys := {REGIONS},
                         epsilon := 0.2, confidence := 0.95)"""


def visits() -> pl.DataFrame:
    """Return a made-up table of 2,000 people, some of whom visit much more often than others."""
    people = pl.DataFrame({"user_id": range(2000)}).with_columns(
        often=1 + (pl.col("user_id") * 7919 % 97) // 12, home=pl.col("user_id") * 31 % 7 % 4
    )
    rows = people.select(pl.col("user_id", "home"), visit=pl.int_ranges("often")).explode("visit", empty_as_null=False)
    place = (pl.col("home") + (pl.col("visit") * 5 + pl.col("user_id")) % 11 // 9) % 4
    return rows.select(
        "user_id",
        region=place.replace_strict(list(range(4)), REGIONS, return_dtype=pl.Enum(REGIONS)),
        spent=(pl.col("user_id") * 13 + pl.col("visit") * 29) % 80 + 0.5,
    )


def read(words: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments."""
    parser = CommandParser(
        prog="dp-polars demo",
        description="Count how many people of a made-up table visited each region, in Polars and in SQL, and show the "
        "plan, the answers with their intervals, and the budget that is left. No file is read or written.",
        allow_abbrev=False,
    )
    return parser.parse_args(list(words))


def run(options: argparse.Namespace) -> None:
    """Run the query in both ways, and print what happens."""
    frame = visits()
    session = dp.Session(epsilon=1.0, delta=1e-7, unit="user_id", max_groups=2, max_rows_per_group=5)
    private = dp.private(frame, session=session)  # the same as frame.dp, with types
    print(f"The made-up table visits has {frame.height:,} rows of {frame['user_id'].n_unique():,} people in 4 regions.")
    print("The answers should not reveal whether any one person is in it. So they are noisy, and paid for from a")
    print("budget (epsilon 1, delta 1e-7) that is agreed once. How many people visited each region?\n")

    print("The plan, before anything is spent:\n")
    print(_indented(str(private.preview.count_units("region", keys=REGIONS, epsilon=0.2))))

    print("\nThe query in Polars:")
    print(f"  {_POLARS}")
    polars = private.count_units("region", keys=REGIONS, epsilon=0.2, confidence=0.95)
    print(_paid(session, 1))

    print("and in DuckDB's SQL, paid for from the same budget:")
    print(f"  {_SQL}")
    database = duckdb.connect()
    database.register("held", frame.to_arrow())
    database.execute("CREATE TABLE visits AS FROM held")
    dp.register(database, session)
    sql = database.sql(_SQL).pl()
    print(_paid(session, 2))

    print("\nThe answers with their 95 % confidence intervals, and the true numbers, which only this demo can see:\n")
    print(_answers(frame, polars, sql))

    print("\nThe same query again returns the same answer for free:")
    again = private.count_units("region", keys=REGIONS, epsilon=0.2, confidence=0.95)
    database.sql(_SQL).fetchall()
    print(f"  {'the same numbers' if again.equals(polars) else 'other numbers'}, {_used(session)}")
    print("A query that the budget doesn't allow is refused and costs nothing:")
    try:
        private.count_units("region", keys=REGIONS, epsilon=0.9)
    except dp.BudgetExceeded as refusal:
        print(f"  requested: {refusal.requested}; remaining: {refusal.remaining}")
        print(f"  the largest spend that fits: {refusal.largest_affordable}")
    used, left = session.spent.share, session.remaining.share
    print(f"\nThe budget: {percent(used)} used by {len(session.releases)} releases, {percent(left)} left. "
          "For your own files: dp-polars sql --help")  # fmt: skip
    database.close()


def _answers(frame: pl.DataFrame, polars: pl.DataFrame, sql: pl.DataFrame) -> str:
    """Return the answers of both queries side by side with the true numbers."""
    true = dict(frame.group_by("region").agg(pl.col("user_id").n_unique()).iter_rows())
    by_sql = {row[0]: row for row in sql.iter_rows()}
    lines = [f"  {'region':<8}{'in Polars':<20}{'in SQL':<20}true"]
    for region, *answer in polars.iter_rows():
        lines.append(f"  {region:<8}{_interval(answer):<20}{_interval(by_sql[region][1:]):<20}{true[region]}")
    return "\n".join(lines)


def _interval(answer: Sequence[float]) -> str:
    value, low, high = answer
    return f"{value:.0f} ({low:.0f} to {high:.0f})"


def _paid(session: dp.Session, number: int) -> str:
    release = session.releases[number - 1]
    return f"  release {release.id}: {budget_text(release.part)}; {_used(session)}"


def _used(session: dp.Session) -> str:
    return f"{budget_text(session.spent.share)} used"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
