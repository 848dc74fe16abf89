-- A private aggregate as a table function: FROM dp.dp_count('visits', by := 'region', epsilon := 0.2).
--
-- dp_polars fills in {function}, {arguments}, {answer}, {type} and {ends} (the columns of an interval) from its own list of aggregates, never from user input.
-- dp_ask releases the private query on a cursor of its own and returns the released rows as JSON, each row a map from
-- column to text. The columns take their names and types from the table itself, which is selected without rows, so that
-- a key has the type that it has in the table. `by` names one or several columns, as a list or as text with commas.
CREATE OR REPLACE MACRO dp.{function}(
    source, {arguments}"by" := NULL, "where" := NULL, epsilon := NULL, share := NULL, rho := NULL, "within" := NULL,
    delta := NULL, keys := NULL, max_groups := NULL, max_rows_per_group := NULL, min_units := NULL, nonnegative := NULL,
    mechanism := NULL, confidence := NULL
) AS TABLE
WITH asked AS (
    SELECT unnest(from_json(dp_ask(to_json({{
        'function': '{function}', 'source': source, 'by': {names}, 'where': "where", {passed}
        'epsilon': epsilon, 'share': share, 'rho': rho, 'within': "within", 'delta': delta, 'keys': keys,
        'max_groups': max_groups, 'max_rows_per_group': max_rows_per_group, 'min_units': min_units,
        'nonnegative': nonnegative, 'mechanism': mechanism, 'confidence': confidence
    }})::VARCHAR), '["MAP(VARCHAR,VARCHAR)"]')) AS cells
),
shape AS (
    SELECT COLUMNS(lambda c: list_contains(
        list_concat(
            list_transform({names}, lambda one: lower(one)), ['{answer}'],
            CASE WHEN confidence IS NULL THEN [] ELSE {ends} END
        ),
        lower(c)
    ))
    FROM (
        SELECT
            *, NULL::{type} AS {answer}, NULL::{type} AS {answer}_low, NULL::{type} AS {answer}_high,
            NULL::BIGINT AS {answer}_rank_error
        FROM query_table(source)
    ) LIMIT 0
)
SELECT cast_to_type(map_extract_value(cells, alias(COLUMNS(shape.*))), COLUMNS(shape.*))
FROM asked LEFT JOIN shape ON false;
