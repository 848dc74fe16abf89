"""Heavy-tailed rows for the benchmarks: deterministic, in blocks that don't depend on how many rows are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.io.plugins import register_io_source

BLOCK = 1_000_000  # rows of one block: the same rows in memory and in a file, and a row group of the file
REGIONS = 50
SHOPS = 100_000
SCHEMA = pl.Schema({"user": pl.Int64, "region": pl.String, "shop": pl.Int64, "product": pl.String, "value": pl.Float64})
_PRIME = 2_147_483_647  # spreads the heavy users over all ids; larger than any number of users here


def users_of(rows: int) -> int:
    """Return how many users the rows may come from: ten rows per user on average, and a few for most."""
    return max(rows // 10, 1)


def blocks(rows: int, seed: int = 1) -> Iterator[pl.DataFrame]:
    """Yield the rows block by block."""
    regions, products = region_names(), product_names()
    users = users_of(rows)
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        generator = np.random.default_rng((seed, start))
        yield pl.DataFrame(
            {
                # The heaviest of a million users has one row in a hundred, the lightest one in three million.
                "user": _heavy(generator, users, 3, size) * _PRIME % users,
                "region": regions.gather(_heavy(generator, REGIONS, 2, size)),
                "shop": _heavy(generator, SHOPS, 2, size),
                "product": products.gather(_heavy(generator, SHOPS, 2, size)),
                "value": generator.lognormal(2, 1, size),
            },
            schema=SCHEMA,
        )


def frame(rows: int, seed: int = 1) -> pl.DataFrame:
    """Return the rows in memory, in one chunk."""
    return pl.concat(blocks(rows, seed), rechunk=True)


def write(path: Path, rows: int, seed: int = 1) -> None:
    """Write the rows to a parquet file of one row group per block, a few blocks in memory at a time."""

    def source(columns: object, predicate: object, limit: object, batch: object) -> Iterator[pl.DataFrame]:
        return blocks(rows, seed)  # a sink asks for everything

    lazy = register_io_source(source, schema=SCHEMA, validate_schema=True)
    lazy.sink_parquet(path, row_group_size=BLOCK, engine="streaming")


def region_names() -> pl.Series:
    return pl.Series("region", [f"region-{number:02}" for number in range(REGIONS)])


def product_names() -> pl.Series:
    """Return names longer than the 12 bytes that Polars keeps in place."""
    return pl.select(pl.lit("product-") + pl.int_range(SHOPS).cast(pl.String).str.zfill(8)).to_series()


def user_names(user: pl.Series) -> pl.Series:
    """Return users as text of 32 digits, as long as a UUID."""
    table = pl.select(number=pl.int_range(int(user.max()) + 1, dtype=pl.UInt64)).select(  # type: ignore[arg-type]
        pl.format("{}{}", *(pl.col("number").hash(seed).cast(pl.String).str.zfill(20).str.slice(4) for seed in (1, 2)))
    )
    return table.to_series().gather(user)


def _heavy(generator: np.random.Generator, size: int, power: int, rows: int) -> NDArray[np.int64]:
    """Return random numbers below `size`, where k has a probability of about k ** (1 / power - 1)."""
    return (size * generator.random(rows) ** power).astype(np.int64)
