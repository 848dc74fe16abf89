"""A session with releases of every kind, for the tests of what people see."""

import polars as pl

import dp_polars as dp

HOSTILE = "<script>window.name='x'</script>&\"'"
REGIONS = ["north", "south", "west"]
VISITS = pl.DataFrame(
    {
        "user": [i % 900 for i in range(3000)],
        "region": REGIONS * 1000,
        "value": [float(i % 40) for i in range(3000)],
    }
)


def a_session(**words):
    words = {"epsilon": 1.0, "delta": 1e-7, "unit": "user", "max_groups": 3, "max_rows_per_group": 5, **words}
    return dp.Session(**words)


def busy_session():
    """Return a session with a count, two aggregates, a choice, a hostile label and a failure."""
    session = a_session()
    with session:
        VISITS.dp.count("region", keys=REGIONS, epsilon=0.2, confidence=0.95)
        VISITS.dp.group_by("region").agg(n=dp.count(), total=dp.sum("value", bounds=(0, 40)), keys=REGIONS, epsilon=0.1)
        VISITS.dp.noisy_max("region", REGIONS, epsilon=0.05)
        VISITS.rename({"region": HOSTILE}).dp.count(HOSTILE, keys=REGIONS, epsilon=0.05)
        VISITS.dp.count("region", epsilon=0.01)
    with session.reserve(dp.pure_cost(0.01), label="a_label_without_any_space_" * 8):
        pass
    return session
