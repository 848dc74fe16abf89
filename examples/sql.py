"""Ask in DuckDB's SQL, in two ways: on a guarded connection, and with functions on a connection of your own.

The guarded connection is for people who may only see private answers. It takes ordinary SELECTs with private
aggregates. Below the aggregates every step must look at one row at a time; above them it is plain SQL on the released
rows. The functions go on a connection that you already have, so that any tool that uses it can call them.
"""

import duckdb

import dp_polars as dp

database = duckdb.connect()
database.execute("""
    CREATE TABLE orders AS
    SELECT (hash(i) % 3000)::INT AS customer, ['DE', 'FR', 'PT', 'SE'][1 + (hash(i + 7) % 4)::INT] AS country,
           DATE '2024-01-01' + (hash(i + 13) % 180)::INT AS day, (hash(i + 5) % 12000)::INT / 100 AS amount
    FROM range(60000) t(i)
""")
database.execute("CREATE TABLE countries AS SELECT * FROM (VALUES ('DE', 'north'), ('FR', 'south'), ('PT', 'south')) "
                 "t(country, part)")  # fmt: skip

session = dp.Session(epsilon=1.0, delta=1e-7, unit="customer", max_groups=4, max_rows_per_group=10)

# A guarded connection: every table is private unless its owner says that it is public.
con = dp.connect(database, session).public("countries")
print(con.preview("SELECT country, dp_count(*, epsilon := 0.2) AS orders FROM orders GROUP BY country"))
print(
    con.sql("""
        WITH spring AS (SELECT country, amount FROM orders WHERE month(day) BETWEEN 3 AND 5)
        SELECT part, dp_count(*) AS orders, round(dp_avg(amount, 0, 120), 2) AS typical
        FROM spring JOIN countries USING (country) GROUP BY part ORDER BY part
    """, epsilon=0.4)
)  # fmt: skip
try:
    con.sql("SELECT country, max(amount) FROM orders GROUP BY country")
except dp.StatementNotAllowed as error:
    print(f"refused: {error}\n")

# Functions on your own connection. The released rows are a table like any other.
dp.register(database, session)
print(database.sql("FROM dp.count_units('orders', by := 'country', \"where\" := 'amount > 100', epsilon := 0.2)"))
print(database.sql("SELECT dp.budget().remaining AS budget_left"))
