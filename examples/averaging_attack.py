"""The averaging attack: ask for the same noisy count again and again, and the noise averages out. A session stops it.

Noise that is drawn anew for each answer does not protect against somebody who may ask a hundred times. In a session the
same question has the same answer, which is free. New noise is charged, until the budget refuses.
"""

import polars as pl

import dp_polars as dp

EPSILON = 0.1
patients = pl.DataFrame({"patient_id": range(1000), "diabetes": [i % 8 == 3 for i in range(1000)]})
truth = int(patients["diabetes"].sum())
print(f"the secret: {truth} patients; one noisy answer has a standard error of {2**0.5 / EPSILON:.1f}")

print("\nwithout a session, the mechanism alone")
answers = [dp.mechanisms.laplace(truth, sensitivity=1, epsilon=EPSILON) for _ in range(100)]
average = sum(answers) / len(answers)
print(f"the first answers: {', '.join(map(str, answers[:5]))}")
print(f"the average of {len(answers)}: {average:.1f}, off by {abs(average - truth):.1f}")
print(f"what it really cost: epsilon {len(answers) * EPSILON:g}")

print("\nwith a session, the same question")
session = dp.Session(epsilon=1.0, unit="patient_id")
sick = dp.private(patients, session=session).filter(pl.col("diabetes"))
answers = [sick.count_units(epsilon=EPSILON).item() for _ in range(100)]
print(f"{len(answers)} answers, {len(set(answers))} different, epsilon {session.spent.epsilon:g} spent")

print("\nwith a session, new noise each time")
fresh = []
try:
    while True:
        fresh.append(sick.count_units(epsilon=EPSILON, fresh=True).item())
except dp.BudgetExceeded as refusal:
    print(f"after {len(fresh)} more answers: {refusal}")
every = [answers[0], *fresh]
average = sum(every) / len(every)
print(
    f"the average of all {len(every)}: {average:.1f}, off by {abs(average - truth):.1f}; that is what epsilon 1 allows"
)
