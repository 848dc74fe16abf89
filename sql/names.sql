list_transform(
    list_filter(string_split(trim(coalesce("by"::VARCHAR, ''), '[]'), ','), lambda one: trim(one) <> ''),
    lambda one: trim(trim(one), '''')
)
