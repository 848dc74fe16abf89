"""Small frames whose units have many rows, and their neighbours."""

from __future__ import annotations

import numpy as np
import polars as pl

from dp_polars._many.domain import Domain, bins, parse_domain
from dp_polars._many.histogram import bounded_histogram
from tests.bits import SeededBits

COLORS = ["red", "green", "blue"]
WORDS = {"color": None, "member": [True, False, None], "age": bins([0, 18, 65])}


def random_rows(rng: np.random.Generator, users: list[int], most: int) -> pl.DataFrame:
    """Return rows of users with up to `most` rows each, some of them outside the domain."""
    of = np.repeat(users, rng.integers(1, most + 1, len(users)))
    count = len(of)
    colors = [COLORS[i] if i < 3 else None for i in rng.integers(0, 4, count).tolist()]
    members = [(True, False, None)[i] for i in rng.integers(0, 3, count).tolist()]
    return pl.DataFrame(
        {
            "user": pl.Series(of, dtype=pl.Int64),
            "color": pl.Series(colors, dtype=pl.Enum(COLORS)),
            "member": pl.Series(members, dtype=pl.Boolean),
            "age": pl.Series(rng.integers(-10, 80, count), dtype=pl.Int16),
        }
    )


def domain() -> Domain:
    return parse_domain(WORDS, random_rows(np.random.default_rng(0), [1], 1).schema, ("user",))


def histograms(frames: list[pl.DataFrame], max_rows: int, seed: int) -> list[np.ndarray]:
    """Return histograms of frames that agree in their first rows, for which the same random numbers are drawn."""
    return [bounded_histogram(frame.lazy(), ("user",), domain(), max_rows, SeededBits(seed)) for frame in frames]


def neighbours(seed: int, adjacency: str, together: int, most: int = 12) -> list[pl.DataFrame]:
    """Return two frames that differ in all rows of `together` units, which come last."""
    rng = np.random.default_rng(seed)
    shared = random_rows(rng, list(range(6)), most)
    left = random_rows(rng, list(range(100, 100 + together)), most)
    if adjacency == "add_remove":
        return [pl.concat([shared, left]), shared]
    return [pl.concat([shared, one]) for one in (left, random_rows(rng, list(range(200, 200 + together)), most))]
