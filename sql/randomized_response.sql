-- Randomized response as a scalar function: dp.dp_randomized_response(x, 1.0) of a BOOLEAN, and with every possible value
-- of any other type: dp.dp_randomized_response(x, 1.0, ['a', 'b', NULL]). It charges nothing.
--
-- dp_respond gets the place of the value (null if it is none of the categories, or can't be compared with them: it is
-- answered by a random one) and their number, 0 if one is there twice.
CREATE OR REPLACE MACRO dp.dp_randomized_response
    (x, epsilon) AS dp_randomized_response(x, epsilon),
    (x, epsilon, categories) AS categories[dp_respond(
        TRY(list_position(categories, x))::INTEGER,
        CASE
            WHEN list_unique(categories) + least(1, len(list_filter(categories, lambda one: one IS NULL))) = len(categories)
            THEN len(categories) ELSE 0
        END::INTEGER,
        epsilon
    )];
