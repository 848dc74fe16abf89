-- Contribution bounding as one query, for rows that don't fit memory beside what DuckDB may use: it spills to disk.
--
-- The names in braces are filled in by dp_polars; names of columns are its own (unit_0, key_0, value). A run is all rows of
-- one unit in one group. `hash(hash(...))` because a single hash of several columns is visibly biased; ties by the keys, so
-- that which groups a unit keeps depends on its own rows and the salt alone. The cap is a FILTER, because DuckDB rewrites
-- row_number() <= k into something twice as slow. Sums are of whole steps in 128 bits.
-- The query runs once for each part of the units, so that a part fits memory. System functions have their full names,
-- because a macro of the user's may have the short ones.
WITH runs AS (
    SELECT {units}, {keys}system.main.count(*) AS row_count, {total}
           system.main.hash(system.main.hash({hashed}{salt}::UBIGINT)) AS place
    FROM ({rows}) AS given
    WHERE {present}
    GROUP BY ALL
),
ordered AS (
    SELECT *, row_number() OVER (PARTITION BY {units} ORDER BY place{ties}) AS position FROM runs
)
SELECT {keys}
       coalesce(system.main.sum({capped_rows}) FILTER (WHERE {kept}), 0)::BIGINT AS row_sum,
       system.main.count(*) FILTER (WHERE {kept}) AS unit_count{capped_total}
FROM ordered
{grouped}
