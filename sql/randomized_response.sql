-- Randomized response as a scalar function: dp.randomized_response(x, 1.0) for a BOOLEAN, and with a list of all
-- categories for any other type: dp.randomized_response(x, 1.0, ['a', 'b', NULL]). It is not charged to a session.
--
-- dp_respond receives the position of the value among the categories and the number of categories. The position is null
-- if the value isn't a category or can't be compared with one; the response is then a random category. The number is 0
-- if a category is listed twice.
CREATE OR REPLACE MACRO dp.randomized_response
    (x, epsilon) AS dp_respond_boolean(x, epsilon),
    (x, epsilon, categories) AS categories[dp_respond(
        TRY(list_position(categories, x))::INTEGER,
        CASE
            WHEN list_unique(categories) + least(1, len(list_filter(categories, lambda one: one IS NULL))) = len(categories)
            THEN len(categories) ELSE 0
        END::INTEGER,
        epsilon
    )];
