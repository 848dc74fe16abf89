-- Frequencies behind randomized responses: FROM dp.estimate_frequencies('responses', 'vote', epsilon := 1.0).
--
-- This post-processes responses that are public already, so it costs nothing. The responses are counted here.
-- dp_frequencies receives the counts as JSON and returns the estimates, each row a map from column to text. As in
-- aggregate.sql the columns take their names and types from the table itself. `by` names one or several columns, as a
-- list or as text with commas.
CREATE OR REPLACE MACRO dp.estimate_frequencies(
    source, "column", epsilon := NULL, resample := NULL, categories := NULL, "by" := NULL, confidence := NULL,
    nonnegative := NULL
) AS TABLE
WITH given AS (
    SELECT *, COLUMNS(lambda c: lower(c) = lower("column")) AS dp_response FROM query_table(source)
),
counted AS (
    SELECT COLUMNS(lambda c: list_contains(
        list_append(list_transform({names}, lambda one: lower(one)), 'dp_response'), lower(c)
    )), count(*) AS dp_responses
    FROM given GROUP BY ALL
),
asked AS (
    SELECT unnest(from_json(dp_frequencies(to_json({{
        'rows': (SELECT list(to_json(counted)) FROM counted),
        'type': (SELECT typeof(any_value(one)) FROM (SELECT dp_response AS one FROM given LIMIT 0)),
        'by': {names}, 'epsilon': epsilon, 'resample': resample, 'categories': categories, 'confidence': confidence,
        'nonnegative': nonnegative
    }})::VARCHAR), '["MAP(VARCHAR,VARCHAR)"]')) AS cells
),
shape AS (
    SELECT COLUMNS(lambda c: list_contains(
        list_concat(
            list_transform({names}, lambda one: lower(one)), ['dp_response', 'frequency', 'standard_error'],
            CASE WHEN confidence IS NULL THEN [] ELSE ['frequency_low', 'frequency_high'] END,
            CASE WHEN len({names}) = 0 THEN [] ELSE ['responses'] END
        ),
        lower(c)
    ))
    FROM (
        SELECT
            COLUMNS(lambda c: list_contains(
                list_append(list_transform({names}, lambda one: lower(one)), 'dp_response'), lower(c)
            )),
            NULL::DOUBLE AS frequency, NULL::DOUBLE AS standard_error, NULL::DOUBLE AS frequency_low,
            NULL::DOUBLE AS frequency_high, NULL::BIGINT AS responses
        FROM given
    ) LIMIT 0
),
typed AS (
    SELECT cast_to_type(map_extract_value(cells, alias(COLUMNS(shape.*))), COLUMNS(shape.*))
    FROM asked LEFT JOIN shape ON false
)
SELECT * RENAME (dp_response AS category) FROM typed;
