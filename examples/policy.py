"""Write down once what is private, and let analysts ask in plain SQL.

An owner reviews one TOML file: the budget, who is protected, and each table with its caps, bounds and public keys. With
it, a question needs no option but its spend, and here not even that, because the budget is planned for ten questions.
"""

import pathlib
import tempfile

import polars as pl

import dp_polars as dp

folder = pathlib.Path(tempfile.mkdtemp())
number = pl.int_range(0, 12_000)
orders = pl.select(order_id=number, customer_id=number % 4_000, total=(number % 7 * 10).cast(pl.Float64))
orders = orders.with_columns(status=pl.when(pl.col("order_id") % 3 == 0).then(pl.lit("new")).otherwise(pl.lit("paid")))
orders = orders.with_columns(email=pl.format("{}@example.org", "customer_id"))
orders.write_parquet(folder / "orders.parquet")
pl.select(order_id=number, price=pl.lit(12.5)).write_parquet(folder / "items.parquet")

(folder / "policy.toml").write_text("""
unit = "customer_id"
questions = ["count", "count_units", "sum", "mean"]

[budget]
epsilon = 2.0
delta = 1e-7
queries = 10
largest_share = 0.2

[tables.orders]
source = "orders.parquet"
public = false
max_groups = 2
max_rows_per_group = 3

[tables.orders.columns]
total.bounds = [0, 100]
status.keys = ["new", "paid"]
email.ask = false

[tables.items]
source = "items.parquet"
public = false
through = "orders"
on = "order_id"
unique = true
max_rows_per_group = 3

[tables.items.columns]
price.bounds = [0, 50]
""")

policy = dp.Policy.load(folder / "policy.toml")
print(policy.describe())

con = policy.connect(analyst="team-a")
print(con.sql("SELECT status, COUNT(*) AS orders, AVG(total) AS mean FROM orders GROUP BY status ORDER BY status"))
print(con.sql("SELECT SUM(price) AS revenue, COUNT(DISTINCT customer_id) AS buyers FROM items"))
print(policy.scan("orders", analyst="team-a").count_units("status"))
for statement in (
    "SELECT COUNT(DISTINCT email) FROM orders",
    "SELECT MEDIAN(total) FROM orders",
    "SELECT * FROM orders",
):
    try:
        con.sql(statement)
    except dp.DPError as refused:
        print(f"refused: {refused}")
