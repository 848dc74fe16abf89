-- A private aggregate as a table function: FROM dp.count('visits', by := 'region', epsilon := 0.2).
--
-- dp_polars fills in {function}, {arguments}, {shape} (the columns of the answer) and {ends} (those of an interval) from
-- its own list of aggregates, never from user input. dp_ask releases the private query on a cursor of its own and returns
-- the released rows as JSON, each row a map from column to text. The columns take their names and types from a query
-- that DuckDB binds and that reads no row, so that a key has the type that it has in the table. `source` is what may
-- stand behind FROM, and `by` what may stand behind GROUP BY: a list, or a text with commas.
CREATE OR REPLACE MACRO dp.{function}(
    source, {arguments}"by" := NULL, "where" := NULL, epsilon := NULL, share := NULL, rho := NULL, "within" := NULL,
    delta := NULL, keys := NULL, max_groups := NULL, max_rows_per_group := NULL, max_rows := NULL, min_units := NULL,
    nonnegative := NULL, mechanism := NULL, confidence := NULL
) AS TABLE
WITH asked AS (
    SELECT unnest(from_json(dp_ask(to_json({{
        'function': '{function}', 'source': source, 'by': "by", 'where': "where", {passed}
        'epsilon': epsilon, 'share': share, 'rho': rho, 'within': "within", 'delta': delta, 'keys': keys,
        'max_groups': max_groups, 'max_rows_per_group': max_rows_per_group, 'max_rows': max_rows, 'min_units': min_units,
        'nonnegative': nonnegative, 'mechanism': mechanism, 'confidence': confidence
    }})::VARCHAR), '["MAP(VARCHAR,VARCHAR)"]')) AS cells
),
shape AS (
    FROM query(
        'SELECT ' || CASE WHEN trim({by}) = '' THEN '' ELSE {by} || ', ' END
        || {shape} || CASE WHEN confidence IS NULL THEN '' ELSE {ends} END
        || chr(10) || ' FROM ' || source || chr(10) || ' LIMIT 0'
    )
)
SELECT cast_to_type(map_extract_value(
    cells, translate(alias(COLUMNS(shape.*)), 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')
), COLUMNS(shape.*))
FROM asked LEFT JOIN shape ON false;
