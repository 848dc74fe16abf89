-- The values of each group and how often they occur, of so many rows (or distinct values) of each unit, by hash.
--
-- As in bounded.sql the names in braces are our own. Which groups a unit keeps is the rank of a hash of unit and group;
-- which rows of a group, of a hash of unit, group, value and the number of equal values before.
WITH numbered AS (
    SELECT {distinct} {units}, {keys}{numbers} AS present FROM ({rows}) AS given WHERE {mine}
),
placed AS (
    SELECT *, system.main.hash(system.main.hash({hashed}{salt}::UBIGINT)) AS place,
           row_number() OVER (PARTITION BY {units}, {keys}x) AS repeat
    FROM numbered WHERE present
),
ranked AS (
    SELECT {keys}x, dense_rank() OVER (PARTITION BY {units} ORDER BY place{ties}) AS position,
           row_number() OVER (
               PARTITION BY {units}{also_keys}
               ORDER BY system.main.hash(system.main.hash({hashed}x, repeat, {salt}::UBIGINT)), x, repeat
           ) AS rank
    FROM placed
)
SELECT {keys}x::BIGINT AS value, system.main.count(*) AS "count" FROM ranked WHERE {kept} GROUP BY ALL
