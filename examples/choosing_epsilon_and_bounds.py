"""Choose epsilon, caps and bounds before anything is spent: previews cost nothing and never look at the data.

The noise is known in advance. What caps and bounds cut off is not, because it depends on the data. Choose caps and
bounds from what you know about the world (how often does anyone come, what does anything cost), or have them estimated
for a part of the spend ("auto").
"""

import polars as pl

import dp_polars as dp

rows = 30_000
visits = pl.DataFrame(
    {
        "person": [i * i % 20_011 for i in range(rows)],
        "city": ["Lisbon", "Porto", "Faro"] * (rows // 3),
        "spent": [(i * 37 % 200) ** 1.2 for i in range(rows)],
    }
)
cities = ["Lisbon", "Porto", "Faro"]
session = dp.Session(epsilon=1.0, delta=1e-7, unit="person", max_groups=3)
private = dp.private(visits, session)

print("How far off is a count of visits, for 95 % of answers?")
for epsilon in (0.05, 0.1, 0.2, 0.5):
    errors = [
        private.preview.count("city", keys=cities, max_rows_per_group=cap, epsilon=epsilon).expected_error()
        for cap in (1, 5, 20)
    ]
    shown = ", ".join(f"{error:6.0f} with {cap:2} visits each" for error, cap in zip(errors, (1, 5, 20), strict=True))
    print(f"  epsilon {epsilon:4}: {shown}")

plan = private.preview.sum("spent", by="city", keys=cities, bounds=(0, 600), max_rows_per_group=5, within=20_000)
print(f"\nA sum within 20,000 for 95 % of answers costs {plan.part:.1%} of the budget.")

print("\nBounds that nobody knows are estimated, for a few percent of the spend:\n")
answer = private.sum("spent", by="city", keys=cities, bounds="auto", max_rows_per_group="auto", epsilon=0.3)
print(answer)
print(f"\n{session.plan()}")
