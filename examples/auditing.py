"""Audit a question: try to refute its guarantee before you ask it of real data.

The data are made up: fifty people, and one more person with as many rows and as large values as possible. An audit asks
the same question of both frames very often, and looks for an event that tells them apart better than epsilon allows.
"""

import polars as pl

import dp_polars as dp

session = dp.Session(epsilon=1.0, delta=1e-6, unit="user_id", max_groups=2, max_rows_per_group=3)
REGIONS = ["north", "south", "east"]

crowd = pl.DataFrame(
    {"user_id": range(50), "region": [REGIONS[i % 3] for i in range(50)], "km": [i % 20 for i in range(50)]}
)
worst = pl.DataFrame({"user_id": [99] * 6, "region": ["north", "south"] * 3, "km": [20] * 6})
everyone = pl.concat([crowd, worst])


def asked(visits: pl.DataFrame) -> pl.DataFrame:
    """Ask the question as you will ask it of real data."""
    return dp.private(visits).sum("km", by="region", keys=REGIONS, bounds=(0, 20), epsilon=1.0)


print("a question that keeps its promise")
found = dp.audit(asked, everyone, crowd, session=session, made_up=True)
print(found)

print("\nthe same question, for which somebody claims epsilon 0.8")
found = dp.audit(asked, everyone, crowd, session=session, made_up=True, epsilon=0.8, runs=200_000)
print(f"{found.verdict}: at least epsilon {found.epsilon_lower_bound:.2f}")

print("\nGaussian noise, which an audit judges by its trade-off curve")
found = dp.audit(
    lambda visits: dp.private(visits).count("region", keys=REGIONS, epsilon=1.0, mechanism="gaussian"),
    everyone,
    crowd,
    session=session,
    made_up=True,
)
print(f"{found.verdict}: claimed rho {found.rho:.4f}, at least {found.rho_lower_bound:.4f}")

print("\na stream, asked anew each time")
found = dp.audit(
    lambda visits: dp.private(visits).above_threshold(52, of="units", epsilon=1.0).ask(pl.col("km") >= 0),
    everyone,
    crowd,
    session=session,
    made_up=True,
    runs=100,
)
print(f"{found.verdict} in {found.runs} runs: at least epsilon {found.epsilon_lower_bound:.2f}")
