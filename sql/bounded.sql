-- Contribution bounding as one query, for rows that don't fit memory beside what DuckDB may use: it spills to disk.
--
-- The names in braces are filled in by dp_polars; names of columns are its own (unit_0, key_0, x, y). A run is all rows of
-- one unit in one group. `hash(hash(...))` because a single hash of several columns is visibly biased; ties by the keys, so
-- that which groups a unit keeps depends on its own rows and the salt alone. A cap may be about
-- the first keys only, in which several runs agree: hence dense_rank. It is a FILTER, because DuckDB rewrites a comparison
-- with k into something twice as slow. Sums are of whole steps in 128 bits; those of runs with more rows than the cap are
-- multiplied by it, in finer steps, and divided by their rows at the end.
-- The query runs once for each part of the units, so that a part fits memory. System functions have their full names,
-- because a macro of the user's may have the short ones.
WITH numbered AS (
    SELECT {units}, {keys}{numbers} AS present FROM ({rows}) AS given WHERE {mine}
),
runs AS (
    SELECT {units}, {keys}system.main.count(*) AS row_count, system.main.count(*) FILTER (WHERE present) AS value_count,
           {moments}
           system.main.hash(system.main.hash({hashed}{salt}::UBIGINT)) AS place
    FROM numbered
    WHERE {taking_part}
    GROUP BY ALL
),
ordered AS (
    SELECT *, dense_rank() OVER (PARTITION BY {units} ORDER BY place{ties}) AS position{scaled} FROM runs
),
divided AS (
    SELECT *{divided} FROM ordered
)
SELECT {keys}{sums} FROM divided {grouped}
