"""A marimo notebook over a file with its budget in a ledger. Running cells, or the whole notebook, again is free.

Open it with `marimo edit examples/exploring_marimo.py`, or run it as a script.
"""

import marimo

app = marimo.App()


@app.cell
def _():
    from pathlib import Path

    import polars as pl

    import dp_polars as dp

    file = Path("visits.parquet")
    if not file.exists():
        rows = 20_000
        people = [i * i % 3001 for i in range(rows)]
        regions = ["north", "south", "west"]
        pl.DataFrame(
            {
                "user_id": people,
                "region": [regions[i * 7 % 5 % 3] for i in range(rows)],
                "minutes": [i % 90 for i in range(rows)],
            }
        ).write_parquet(file)
    return dp, file, pl


@app.cell
def _(dp):
    # The budget is in a file, so that everybody who runs this cell shares it.
    session = dp.Session(
        epsilon=1.0, delta=1e-7, unit="user_id", max_groups=3, max_rows_per_group=10, ledger="exploring.db"
    )
    return (session,)


@app.cell
def _(dp, file, pl, session):
    visits = pl.scan_parquet(file)
    # The same question on the same file returns the stored answer, at no cost.
    counts = dp.private(visits).count("region", epsilon=0.3, confidence=0.95, session=session).collect()
    typical = dp.private(visits).median("minutes", by="region", bounds=(0, 90), epsilon=0.3, session=session).collect()
    return counts, typical


@app.cell
def _(counts, session, typical):
    print(counts.join(typical, on="region"))
    print(session.describe())
    return


if __name__ == "__main__":
    app.run()
