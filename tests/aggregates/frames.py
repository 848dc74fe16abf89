"""Rows for the tests of aggregates."""

import numpy as np
import polars as pl

N = 4000
_GENERATOR = np.random.default_rng(31)

FRAME = pl.DataFrame(
    {
        "who": pl.Series([*range(150), None]).gather(_GENERATOR.integers(0, 151, N)),
        "region": pl.Series(["north", "south", "east", None]).gather(_GENERATOR.integers(0, 4, N)),
        "kind": _GENERATOR.integers(-2, 3, N),
        "x": pl.Series(_GENERATOR.normal(10, 8, N)),
        "n": pl.Series(_GENERATOR.integers(-9, 30, N)),
    }
).with_columns(
    x=pl.when(pl.int_range(N) % 13 == 0).then(None).when(pl.int_range(N) % 17 == 0).then(float("nan")).otherwise("x"),
    n=pl.when(pl.int_range(N) % 11 == 0).then(None).otherwise("n"),
)
OWNED = FRAME.drop_nulls("who")
"""The rows that have a unit: no others count."""
