"""Count visitors per region privately, with a budget that refuses to be overspent.

Every visitor is in one region, so one person changes one count by one: the sensitivity is 1.
"""

import polars as pl

import dp_polars as dp

REGIONS = ["north", "south", "east", "west"]
visits = pl.DataFrame({"user_id": range(1000), "region": [REGIONS[i % 7 % 4] for i in range(1000)]})

session = dp.Session(epsilon=1.0, unit="user_id")
epsilon = 0.4

for attempt in range(1, 4):
    print(f"\nrelease {attempt}: epsilon {epsilon}")
    try:
        with session.reserve(dp.pure_cost(epsilon), label="visitors by region") as reservation:
            exact = pl.DataFrame({"region": REGIONS}).join(
                visits.group_by("region").len(), on="region", how="left", maintain_order="left"
            )
            noisy = dp.mechanisms.laplace(exact["len"].fill_null(0), sensitivity=1, epsilon=epsilon)
            release = reservation.commit(pl.DataFrame({"region": REGIONS, "visitors": noisy}))
        print(release.frame)
        error = dp.mechanisms.laplace_error(sensitivity=1, epsilon=epsilon, count=len(REGIONS))
        print(f"all counts are within {error:g} of the truth with 95 % probability")
    except dp.BudgetExceeded as refusal:
        print(refusal)

print()
print(session.describe())
