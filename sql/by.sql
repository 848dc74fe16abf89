CASE
    WHEN "by" IS NULL THEN ''
    WHEN json_type(to_json("by")) = 'ARRAY' THEN array_to_string(TRY(from_json(to_json("by"), '["VARCHAR"]')), ', ')
    ELSE to_json("by") ->> '$'
END
