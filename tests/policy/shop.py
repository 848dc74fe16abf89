"""A small shop, whose policy the tests share and change."""

from __future__ import annotations

from pathlib import Path

import polars as pl

POLICY = """\
unit = "customer_id"

[budget]
epsilon = 100.0
queries = 100

[tables.orders]
source = "orders.parquet"
public = false
max_groups = 2
max_rows_per_group = 3

[tables.orders.columns.total]
bounds = [0, 100]

[tables.orders.columns.weight]
bounds = [0.0, 10.5]

[tables.orders.columns.status]
keys = ["new", "paid"]

[tables.orders.columns.region]
keys = { table = "regions", column = "code" }

[tables.orders.columns.email]
ask = false

[tables.items]
source = "items.parquet"
public = false
through = "orders"
on = "order_id"
unique = true
max_rows_per_group = 6

[tables.items.columns.price]
bounds = [0, 50]

[tables.regions]
source = "regions.csv"
public = true
"""

CUSTOMERS = 3_000


def orders() -> pl.DataFrame:
    number = pl.int_range(0, 3 * CUSTOMERS)
    return pl.select(
        order_id=number,
        customer_id=number % CUSTOMERS,
        total=(number % 5 * 20).cast(pl.Float64),
        weight=(number % 5 * 2).cast(pl.Float64),
        status=pl.when(number % 2 == 0).then(pl.lit("new")).otherwise(pl.lit("paid")),
        region=pl.when(number % 3 == 0).then(pl.lit("a")).otherwise(pl.lit("b")),
        email=pl.format("{}@example.org", number % CUSTOMERS),
    )


def items() -> pl.DataFrame:
    return pl.select(order_id=pl.int_range(0, 6 * CUSTOMERS) // 2, price=pl.lit(10.0))


def write_shop(folder: Path, policy: str = POLICY) -> Path:
    orders().write_parquet(folder / "orders.parquet")
    items().write_parquet(folder / "items.parquet")
    pl.DataFrame({"code": ["a", "b"], "name": ["North", "South"]}).write_csv(folder / "regions.csv")
    return write_policy(folder, policy)


def write_policy(folder: Path, policy: str) -> Path:
    path = folder / "policy.toml"
    path.write_text(policy)
    return path
