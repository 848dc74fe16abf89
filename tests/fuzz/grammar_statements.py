"""Whole statements over two private tables, two public ones, a view, and what the user's database has beside them."""

from tests.fuzz.grammar_sql import broken, expression

PRIVATE = ["people", "people", "people", "main.people", "memory.main.people", '"PEOPLE"', "People AS p", "people p",
           "other.people", "frame", "grown", "(SELECT * FROM people)", "(FROM people)", "(TABLE people)",
           "(SELECT uid, money, i64, t, b, mood FROM people WHERE i64 > 3) people", "odd", "plainview", "PEOPLE p(a, c)",
           "people TABLESAMPLE 10%", "people AT (VERSION => 1)", "(SELECT DISTINCT * FROM people)",
           "(SELECT * FROM people LIMIT 5)", "(SELECT *, i64 + 1 AS i65 FROM people) AS people",
           "(SELECT * EXCLUDE (t) FROM people) people", "(SELECT * REPLACE (i64 + 1 AS i64) FROM people) people",
           "(SELECT COLUMNS(*) FROM people) people", "(SELECT p.* FROM people p) people",
           "(SELECT * FROM people ORDER BY money) people", "(PIVOT people ON b USING count(*))",
           "(SELECT uid, unnest(li) AS i64 FROM people) people", "(SELECT 1 AS uid, * EXCLUDE (uid) FROM people) people",
           "(SELECT money AS uid, i64 FROM people) people", "people p1 SEMI JOIN people p2 USING (uid)",
           "(SELECT * FROM people UNION ALL SELECT * FROM people) people", "(DESCRIBE people)", "(SUMMARIZE people)",
           "(SELECT * FROM people WHERE money > (SELECT avg(money) FROM people)) people"]  # fmt: skip
PUBLIC = ["lookup", "lookup", "(VALUES (1, 'a'), (2, 'b')) v(k, name)", "(SELECT k, name FROM lookup)",
          "main.lookup", "(SELECT 1 AS k, 'x' AS name)", "memory.lookup", "lookup l", "(FROM lookup)",
          "places", "range(3) r(k)", "generate_series(1, 3) g(k)", "unnest([1, 2]) u(k)",
          "(VALUES ((SELECT max(money) FROM people), 'a')) v(k, name)", "read_csv('/etc/passwd')", "duckdb_tables()",
          "range((SELECT count(*) FROM people)) r(k)", "query('SELECT * FROM people')", "query_table('people') q",
          "information_schema.tables", "duckdb_columns()", "pragma_storage_info('people')", "'/etc/passwd'", "glob('*')",
          "duckdb_views()", "sniff_csv('/etc/passwd')", "pragma_table_info('people')", "stats('people')"]  # fmt: skip
_KEYS = ["b", "mood", "b, mood", "t", "i64 % 3", "money", "uid", "lower(t)", "1", "ALL", "s", "li", "d", "b, t", "huge",
         "wide", "tz", "f64", "ROLLUP (b)", "GROUPING SETS ((b), ())", "()", "k", "name", "zone", "note"]  # fmt: skip
_SPENDS = ["epsilon := 5e-6"] * 12 + [
    "epsilon := 8e-6", "share := 0.001", "epsilon := 0.5", "epsilon := -1", "epsilon := 'a'", "epsilon := NULL",
    "epsilon := 5e-6, max_groups := 2", "epsilon := 5e-6, max_rows_per_group := 4", "epsilon := 5e-6, min_units := 3",
    "epsilon := 5e-6, delta := 1e-14", "epsilon := 5e-6, fresh := true", "epsilon := 5e-6, nonnegative := true",
    "epsilon := 5e-6, keys := [true, false]", "epsilon := 5e-6, keys := ['sad', 'ok']", "epsilon := 5e-6, keys := []",
    "epsilon := (SELECT max(money) FROM people)", "epsilon := money", "epsilon := random()", "rho := 1e-14", "epsilon := $e",
    "within := 1e9", "epsilon := 5e-6, confidence := 0.9", "epsilon := 5e-6, keys := (SELECT t FROM people)",
    "epsilon := 5e-6, noise := 'gaussian'", "epsilon := 5e-6, max_groups := 'auto'", "epsilon := 5e-6, session := 1",
    "epsilon := 5e-6, keys := [1, 2, NULL]", "epsilon := 5e-6, epsilon := 5e-6", "seed := 1", "epsilon := 5e-6, rollup := true",
]  # fmt: skip
_BOUNDS = ["0, 100", "-10, 10", "0, 1", "0.5, 7.25", "777000, 778000", "-1e9, 1e9", "0, i64", "5, 1", "0, 'a'", "NULL, 3",
           "0, 1e300", "DATE '2020-01-01', DATE '2021-01-01'", "bounds := (0, 10)", "bounds := 'auto'", "0, $e",
           "bounds := [0, 10]"]  # fmt: skip
_HAVING = ["> 0", "IS NOT NULL", "> (SELECT min(k) FROM lookup)", "< (SELECT max(money) FROM people)"]
_ORDERS = ["ALL", "random()", "money", "(SELECT max(money) FROM people)"]
_LIMITS = ["1", "3", "50%", "0", "(SELECT 1)", "(SELECT count(*) FROM people)", "NULL", "-1", "$e"]
_ORDINARY = [
    "{0} + 1",
    "round({0}, 2)",
    "CAST({0} AS VARCHAR)",
    "{0} * 2.0",
    "{0} IS NULL",
    "coalesce({0}, 0)",
    "abs({0})",
    "sum({0}) OVER ()",
    "row_number() OVER (ORDER BY {0})",
    "rank() OVER (PARTITION BY 1 ORDER BY {0} DESC)",
    "typeof({0})",
    "{0} > (SELECT max(k) FROM lookup)",
    "{0} + (SELECT max(money) FROM people)",
    "list({0})",
    "{0} > 0",
    "[{0}]",
    "{'a': {0}}",
    "CASE WHEN {0} > 0 THEN 'x' ELSE 'y' END",
    "lower(CAST({0} AS VARCHAR))",
    "twice({0})",
    "getenv('HOME') || {0}",
    "max({0})",
    "concat({0}, 'a')",
    "1 / {0}",
    "ln({0})",
    "{0} || t",
    "(SELECT {0})",
    "(SELECT count(*) FROM people WHERE i64 < {0})",
    "{0} COLLATE NOCASE",
    "current_setting('threads')",
    "(SELECT dp_count(*, epsilon := 5e-6) FROM people)",
    "COLUMNS(*)",
    "CAST({0} AS TINYINT)",
    "error('x')",
]


_ODD = [
    *(
        "CAST('a' AS DOUBLE)",
        "-'a'",
        "[1, 'a']",
        "1e400",
        "TIMESTAMPTZ '2020-01-01 00:00:00+00'",
        "TIMETZ '12:00:00+01'",
    ),
    *(
        "(1, 2)",
        "{'a': 1}",
        "'x'::BLOB",
        "DATE 'infinity'",
        "DATE '5874897-12-31'",
        "INTERVAL 1 MONTH",
        "'a'::nosuch",
        "[[1]]",
    ),
    *(
        "'1'::BIT",
        "NULL",
        "'nan'::DOUBLE",
        "'99999999999999999999'::BIGINT",
        "X'00'",
        "-(-(-1))",
        "MAP {'a': 1}",
        "[]",
        "''",
    ),
    *(
        "TIME '24:00:00'",
        "INTERVAL '99999999 years'",
        "'x'::ENUM('a')",
        "row()",
        "[{'a': 1}]",
        "[(true, 'sad')]",
        "[['a']]",
    ),
]
_OPTIONS = ["epsilon", "keys", "max_groups", "max_rows_per_group", "min_units", "bounds", "bins", "edges", "quantile", "per",
            "ddof", "fresh", "nonnegative", "within", "share", "rho", "delta", "candidates", "k", "score", "noise", "weight"]  # fmt: skip


def statement(dice):
    """Return the text of a statement, and its parameters and options as Python values."""
    if dice.random() < 0.06:
        return _summary(dice)
    text = _query(dice, 2)
    if dice.happens():
        text = broken(dice, text)
    if dice.happens():
        text = dice.choice(_DOORS).replace("{query}", text)
    parameters = {"e": dice.choice([5e-6, 5e-6, 5, "a", None, [1, 2]])} if "$e" in text else None
    if "?" in text.replace("(?i)", "") and dice.random() < 0.8:
        parameters = [dice.choice([1, "a", None, 2.5, True])] * text.replace("(?i)", "").count("?")
    elif "$p" in text and dice.random() < 0.8:
        parameters = {**(parameters or {}), "p": dice.choice([1, "a", None, 1e308])}
    options = dice.usually([{}], [{"epsilon": 5e-6}, {"max_groups": 2}, {"epsilon": 5e-6, "max_rows_per_group": 2}])
    if dice.random() < 0.12:
        options = {**options, "confidence": dice.usually([0.9, 0.95, 0.5], [0, 1, 2, "a", None, True])}
        if dice.random() < 0.3:
            options["interval"] = dice.usually(["value", "rank"], ["a", None, 1])
    return {"sql": text, "parameters": parameters, "options": options}


def _summary(dice):
    """Return a SUMMARIZE and its options."""
    some = [
        dice.usually(["b", "mood", "i64", "money", "d", "t"], ["uid", "li", "s", "iv", "*", "nosuch"]) for _ in range(2)
    ]
    listed = ", ".join(dict.fromkeys([*some, f"{expression(dice, 'any', 2)} AS x"]))
    where = f" WHERE {expression(dice, 'truth', 2)}" if dice.random() < 0.5 else ""
    text = dice.usually(
        [
            f"SUMMARIZE SELECT {listed} FROM {_source(dice)}{where}",
            f"SUMMARIZE {dice.choice(['frame', 'other.people', 'main.people'])}",
        ],
        [
            "SUMMARIZE people",
            "SUMMARIZE lookup",
            "SUMMARIZE odd",
            "FROM (SUMMARIZE people)",
            "SUMMARIZE nosuch",
            "SUMMARIZE SELECT 1",
        ],
    )
    options = {"epsilon": dice.usually([5e-6, 8e-6], [0, "a", None, 1])}
    if dice.random() < 0.5:
        options["by"] = dice.usually([["b"], "b", ["x"], "mood"], [["uid"], 7, ["nosuch"], "b, x", []])
    if dice.random() < 0.5:
        options["columns"] = dice.usually([["i64"], ["x"], ["money", "i64"]], [["uid"], ["nosuch"], "i64", 7, [1]])
    if dice.happens():
        options[dice.choice(["confidence", "keys", "max_groups", "share", "fresh", "label"])] = 1
    return {"sql": text, "parameters": None, "options": options}


_DOORS = ["{query};", "{query}; SELECT 1", "EXPLAIN {query}", "EXPLAIN ANALYZE {query}", "DESCRIBE {query}",
          "SUMMARIZE {query}", "CREATE TABLE leak AS {query}", "COPY ({query}) TO '/tmp/leak.csv'", "-- x\n{query}",
          "/* x */ {query} /* y", "PRAGMA table_info('people')", "SET threads = 1", "CALL pragma_version()", "SHOW TABLES",
          "FROM ({query})", "SELECT * FROM ({query}) LIMIT (SELECT count(*) FROM people)", "EXECUTE x", "ATTACH ':memory:'",
          "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r",
          "PIVOT ({query}) ON 1 USING count(*)", "({query}) UNION ALL ({query})", "VALUES (({query}))", "TABLE people",
          "WITH people AS ({query}) SELECT dp_count(*, epsilon := 5e-6) FROM people", "SELECT ({query})",
          "SELECT * FROM ({query}) t(x) WHERE x IN (SELECT money FROM people)", "{query} OFFSET (SELECT min(i64) FROM people)",
          "WITH x AS MATERIALIZED ({query}) SELECT * FROM x, x AS y", "SELECT 1 WHERE EXISTS ({query})",
          "SELECT * FROM lookup WHERE k < ({query})", "SELECT * FROM ({query}) ORDER BY ALL LIMIT 50%"]  # fmt: skip


def _query(dice, depth):
    chance = dice.random()
    if chance < 0.06:
        return f"SELECT {_items(dice, False)} FROM {dice.usually(PUBLIC[:9], PUBLIC)}{_after(dice, ['k', 'name'])}"
    if chance < 0.12 and depth:
        return f"{_query(dice, depth - 1)} {dice.choice(['UNION', 'UNION ALL', 'EXCEPT', 'INTERSECT'])} {_query(dice, depth - 1)}"
    if chance < 0.2 and depth:
        how = dice.choice(["", " MATERIALIZED", " NOT MATERIALIZED"])
        name = dice.choice(["w", "people", "lookup", "dp_released_0", "W"])
        names = dice.choice(["", "", "", "(n)", "(a, c, e)"])
        return f"WITH {name}{names} AS{how} ({_query(dice, depth - 1)}) SELECT {dice.choice(['*', 'n', 'n + 1 AS m', 'count(*)'])} FROM {name}"
    if chance < 0.28 and depth:
        return f"SELECT {dice.choice(['*', 'n + 1 AS m', 'x.*', 'max(n)', 'n, random() AS r', 'COLUMNS(*)'])} FROM ({_query(dice, depth - 1)}) x{_after(dice, ['n', 'a0'])}"
    if chance < 0.3:
        counted = f"SELECT b, mood, dp_count(*, epsilon := 5e-6) AS n FROM {_source(dice)} GROUP BY ALL"
        return f"SELECT * FROM ({counted}) PIVOT (sum(n) FOR {dice.usually(['b IN (true, false)'], ['t IN (1)', 'b'])})"
    if chance < 0.32:
        return f"SELECT {expression(dice)} AS n FROM {dice.usually(PRIVATE[:13], PRIVATE)}"
    return _aggregation(dice)


_WITHOUT_ENDS = ("dp_histogram", "dp_linear_regression", "dp_noisy", "dp_top_k", "dp_randomized", "dp_quantile")


def _aggregation(dice):
    source = _source(dice)
    keys = dice.usually(_KEYS[:5], _KEYS) if dice.random() < 0.55 else ""
    if keys and dice.random() < 0.15:
        keys = expression(dice, "any", 2)
    calls = [_call(dice) for _ in range(dice.choice([1, 1, 1, 2, 3]))]
    names = ["n", "a1", "a2"]
    shown = [
        f"{call if dice.random() < 0.8 else _above(dice, call)} AS {name}"
        for call, name in zip(calls, names, strict=False)
    ]
    whole = [(call, name) for call, name, item in zip(calls, names, shown, strict=False) if item.startswith(call)]
    about = [one for one in whole if not one[0].startswith(_WITHOUT_ENDS) or dice.happens(5)]
    ends = [_end(dice, one) for one in about if dice.random() < 0.25]
    if dice.random() < 0.1:
        ends.append(dice.usually(["dp_cut_by_cap() AS c", "dp_cut_by_bounds()", "dp_cut_by_cap()"],
                                 ["dp_cut_by_cap(i64)", "dp_cut_by_bounds() FILTER (WHERE b)", "dp_low(dp_cut_by_cap())"]))  # fmt: skip
    shown += ends
    if keys and keys not in ("ALL", "1", "()") and "(" not in keys and dice.random() < 0.85:
        shown.insert(0, keys)
    elif keys in ("ALL", "1"):
        shown.insert(0, dice.choice(["b", "mood", "i64 % 2 = 0 AS z"]))
    text = f"SELECT {', '.join(shown)} FROM {source}"
    if dice.random() < 0.4:
        text += f" WHERE {expression(dice, 'truth', 3)}"
    if keys:
        text += f" GROUP BY {keys}"
    return text + _after(dice, ["n", calls[0] if not ends else ends[0].split(" AS ")[0], "1", "b"])


def _end(dice, answer):
    """Return an end of the interval of a private aggregate, which is given as a call and its alias."""
    call, alias = answer
    ranked = any(f"dp_{name}(" in call.lower() for name in ("median", "min", "max", "quantile"))
    usual = ["dp_rank_error"] if ranked else ["dp_low", "dp_high"]
    function = dice.usually(usual, ["dp_low", "dp_rank_error", "dp_rank_low", "dp_rank_high", "DP_HIGH"])
    about = dice.usually([alias, alias, call], [alias.upper(), "nosuch", "i64", "b", f"{alias} + 1", ""])
    sure = dice.usually(
        ["", "", "", ", 0.9", ", confidence := 0.9"], [", 2", ", NULL", ", i64", ", 'a'", ", 0.9, 0.9", ", sure := 1"]
    )
    name = dice.usually(["", f" AS {alias}_end"], [f" AS {alias}", " AS n", " AS uid", " OVER ()"])
    return f"{function}({about}{sure}){name}"


_COLUMNS = "uid, b, mood, i64, money, t, f64, i8"
_WINDOW = "PARTITION BY uid ORDER BY i64, money"
_WITHIN = [
    f"(SELECT {_COLUMNS} FROM people %s SELECT {_COLUMNS} FROM people WHERE b)",
    f"(SELECT {_COLUMNS} FROM people WHERE i64 > 3 %s SELECT {_COLUMNS} FROM people)",
    "people a FULL JOIN other.people o USING (uid)",
    "people a FULL JOIN (SELECT uid, i64 + 1 AS i64, money AS m FROM people) o USING (uid, i64)",
    "people a LEFT JOIN other.people o ON a.uid = o.uid AND a.i64 = o.i64 AND o.b",
    "(SELECT uid, b, mood, count(*) AS i64, sum(money) AS money, sum(wide) AS wide, min(t) AS t FROM people GROUP BY ALL)",
    "(SELECT uid, mood, avg(f64) AS f64, stddev(money) AS money, bool_or(b) AS b, median(i64) AS i64 FROM people GROUP BY uid, mood)",
    f"(SELECT uid, b, mood, t, i64, sum(money) OVER ({_WINDOW}) AS money, sum(f64) OVER ({_WINDOW} ROWS 2 PRECEDING) AS f64 FROM people)",
    f"(SELECT {_COLUMNS}, lag(d) OVER ({_WINDOW}) AS d FROM people QUALIFY row_number() OVER ({_WINDOW}) <= 3)",
    f"(SELECT DISTINCT {_COLUMNS} FROM people)",
    "(SELECT DISTINCT ON (uid, b) uid, b, mood, i64, t FROM people ORDER BY money)",
    f"(SELECT {_COLUMNS} FROM people WHERE uid NOT IN (SELECT uid FROM other.people WHERE b))",
    "(SELECT uid, b, mood, i64, money, unnest(lt) AS t FROM people)",
    "people JOIN places ON i64 = k AND zone <> 'z1'",
    "people LEFT JOIN lookup ON people.i64 = k AND b AND name <> 'name3'",
    "people PIVOT (count(i64) FOR b IN (true, false))",
]
_STACKS = ["UNION", "UNION ALL", "INTERSECT", "EXCEPT"]


def _source(dice):
    if dice.random() < 0.25:
        return dice.choice(_WITHIN).replace("%s", dice.choice(_STACKS))
    private = dice.usually(PRIVATE[:13], PRIVATE)
    if dice.random() < 0.75:
        return private if dice.random() < 0.5 else "people"
    public = dice.usually(PUBLIC[:9], PUBLIC)
    join = dice.usually(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN", "CROSS JOIN", ","],
                        ["NATURAL JOIN", "ASOF JOIN", "POSITIONAL JOIN", "LEFT JOIN LATERAL"])  # fmt: skip
    on = dice.usually(["ON i64 = k", "ON i64 % 3 = k", "ON i64 = k AND k > 1"], ["USING (k)", "ON t = name", f"ON {expression(dice, 'truth', 2)}", "ON i64 = k AND k > 0",
                      "ON true", "ON i64 > k", "USING (mood)", "ON people.i64 % 3 = lookup.k", "USING (i64)",
                      "ON k = (SELECT max(i64) FROM people)"])  # fmt: skip
    on = "" if join in ("CROSS JOIN", ",", "NATURAL JOIN", "POSITIONAL JOIN") else on
    pair = (
        (private, public)
        if dice.random() < 0.7 or (join in ("SEMI JOIN", "ANTI JOIN") and not dice.happens(5))
        else (public, private)
    )
    return f"{pair[0]} {join} {pair[1]} {on}"


def _call(dice):
    odd = f"0, {dice.choice(_ODD)}"
    spend = dice.usually(_SPENDS[:14], _SPENDS) if not dice.happens() else ""
    value = (
        dice.choice(["i64", "money", "f64", "i8", "deci", "huge", "u64"])
        if dice.random() < 0.5
        else expression(dice, "number", 2)
    )
    name = dice.choice(
        ["dp_sum", "dp_avg", "dp_mean", "dp_var", "dp_stddev", "dp_median", "dp_min", "dp_max", "DP_SUM"]
    )
    some = dice.choice([
        lambda: "dp_count(*§)",
        lambda: "dp_count(*§)",
        lambda: "dp_count_units(§)",
        lambda: f"dp_count({expression(dice, 'any', 2)}§)",
        lambda: f"dp_count_distinct({dice.choice(['t', 'i64', 'money', 'li', 's', 'd', expression(dice, 'any', 2)])}§)",
        lambda: f"{name}({value}, {dice.usually(_BOUNDS[:6], [*_BOUNDS, odd])}§)",
        lambda: f"{name}({value}, {dice.choice(_BOUNDS[:6])}§)",
        lambda: f"dp_quantile({value}, {dice.usually(['0.5', '[0.1, 0.9]'], ['2', 'NULL'])}, {dice.choice(_BOUNDS[:6])}§)",
        lambda: f"dp_histogram({value}, {dice.choice(_BOUNDS[:6])}, bins := {dice.usually(['3'], ['0', '100000', '2.5'])}§)",
        lambda: f"dp_corr({value}, i8, 0, 9, 0, 9§)",
        lambda: f"dp_linear_regression(i8, {value}, 0, 9, 0, 9§)",
        lambda: f"dp_noisy_max({dice.usually(['mood', 'lower(t)'], ['t', 'b'])}, candidates := ['a', 'sad']§)",
        lambda: f"dp_top_k({dice.choice(['t', 'mood', 'i8'])}, {dice.usually(['1', '2'], ['0', 'i8'])}§)",
        lambda: "dp_sum(i64, 0, 10, per := 'unit'§)",
        lambda: dice.usually(["dp_count(*§)"], ["dp_randomized_response(b§)"]),
    ])()  # fmt: skip
    empty = some.startswith("dp_count_units(")
    if dice.happens(5):
        spend = f"{dice.choice(_OPTIONS)} := {dice.choice(_ODD)}, {spend or 'fresh := true'}"
    if dice.happens(2):
        some = some.replace("0, 9", f"{dice.choice(_ODD)}, 9")
    text = some.replace("§", spend if empty or not spend else f", {spend}")
    if dice.random() < 0.12:
        text += f" FILTER (WHERE {expression(dice, 'truth', 2)})"
    elif dice.happens():
        text += dice.choice([" OVER ()", " OVER (PARTITION BY b)", " WITHIN GROUP (ORDER BY i64)"])
    elif dice.happens():
        text = text.replace("(", "(DISTINCT ", 1)
    return text


def _above(dice, call):
    return dice.usually(_ORDINARY[:10], _ORDINARY).replace("{0}", call)


def _items(dice, private):
    return dice.choice(
        [
            "*",
            "k",
            "name",
            "count(*) AS n",
            "k + 1 AS n",
            "max(k) OVER () AS n, name",
            "list(name) AS n",
            "(SELECT max(money) FROM people) AS n",
            "name || (SELECT t FROM people LIMIT 1) AS n",
            "DISTINCT k",
        ]
    )


def _after(dice, names):
    text = ""
    if dice.random() < 0.1:
        text += f" HAVING {dice.choice(names)} {dice.usually(_HAVING[:3], _HAVING)}"
    if dice.random() < 0.05:
        text += f" QUALIFY row_number() OVER (ORDER BY {dice.choice(names)}) < 3"
    if dice.random() < 0.15:
        text += f" ORDER BY {dice.usually(names[:2], [*names, *_ORDERS, expression(dice, 'any', 1)])} {dice.choice(['', 'DESC', 'NULLS FIRST'])}"
    if dice.random() < 0.1:
        text += f" LIMIT {dice.usually(_LIMITS[:3], _LIMITS)}"
    return text
