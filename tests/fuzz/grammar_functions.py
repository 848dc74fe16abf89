"""Statements of an owner who asks private tables through the functions of `dp.register`, and reads them in no other way."""

from tests.fuzz.grammar_sql import expression

_TABLES = ["people", "people", "people", "main.people", "memory.main.people", "PEOPLE", "grown", "other.people", '"people"', "lookup", "nosuch",
           "odd", "plainview", "people p", "(SELECT * FROM people)", "people, lookup", "(SELECT uid, b, t, CAST(t AS BIGINT) AS i64 FROM people)", "people --",
           "(SELECT uid, count(*) AS i64 FROM people GROUP BY uid)", "people JOIN lookup ON i8 = k", "people; SELECT 1", "", "dp_count('people')",
           "memory.people"]  # fmt: skip
_KEYS = ["'b'", "'mood'", "'b, mood'", "['b', 'mood']", "'B'", "'t'", "'note'", "'i8'", "'d'", "'uid'", "'li'", "'s'", "'b, b'", "[]", "'nosuch'",
         "'money'", "'blob_'", "'count'", "7", "NULL", "'i64 % 3'", "'i64 % 3 AS i'", "'b, length(t) AS l'", "['b AS x']", "''", "'\"a b; --\"'", "'mood,'", "['B', 'b']"]  # fmt: skip
_PUBLIC_KEYS = {
    "'b'": ["[true, false]", "[NULL, true]", "['x']", "{'b': true}"],
    "'mood'": ["['sad', 'ok']", "['sad']", "[NULL]", "['nosuch']"],
    "'b, mood'": ["[{'b': true, 'mood': 'sad'}]", "[{'b': true}]", "[true]"],
    "['b', 'mood']": ["[{'b': true, 'mood': 'sad'}, {'b': NULL, 'mood': 'ok'}]", "[(true, 'sad')]"],
    "'t'": ["['a', 'b']", "[]", "''", "[chr(0)]"],
    "'i8'": ["[1, 2]", "range(5)", "[300]", "[1.5]", "[-128]"],
    "'d'": ["[DATE '2024-01-01']", "['infinity']", "[DATE '5874897-12-31']"],
}
_BOUNDS = ["0, 100", "-10, 10", "0, 1", "0.5, 7.25", "777000, 778000", "-1e9, 1e9", "5, 1", "0, 'a'", "NULL, 3", "NULL, NULL", "0, 1e300",
           "DATE '2020-01-01', DATE '2021-01-01'", "'nan'::DOUBLE, 1", "0, 9223372036854775807", "0, 1e400", "[0], 1"]  # fmt: skip
_SPENDS = ["epsilon := 5e-6"] * 9 + ["share := 0.004", "epsilon := 8e-6", "within := 1e9", "rho := 1e-14"]
_ODD_SPENDS = [
    "epsilon := -1",
    "epsilon := 'a'",
    "epsilon := NULL",
    "epsilon := 1",
    "epsilon := [1]",
    "share := 0",
    "epsilon := 5e-6, share := 0.1",
]
_OPTIONS = ["confidence := 0.9", "nonnegative := true", "max_groups := 2", "max_rows_per_group := 1", "min_units := 3", "confidence := 0.5",
            "mechanism := 'laplace'", "delta := 1e-15", "max_groups := 'auto'"]  # fmt: skip
_ODD_OPTIONS = ["confidence := 2", "max_groups := 0", "min_units := 'a'", "mechanism := 'none'", "seed := 1", "delta := 2", "keys := ['a']",
                "max_rows_per_group := 2.5", "nonnegative := 'x'", "confidence := NULL", "fresh := true", "max_groups := 1e30",
                "confidence := 'nan'::DOUBLE", "label := 'x'"]  # fmt: skip
_AROUND = ["{query}", "{query}", "{query}", "{query} ORDER BY ALL", "SELECT * FROM ({query}) LIMIT 2", "SELECT count(*) AS n FROM ({query})",
           "WITH x AS ({query}) SELECT * FROM x UNION ALL SELECT * FROM x", "WITH x AS ({query}) SELECT * FROM x, x AS y",
           "SELECT x.*, lookup.name FROM ({query}) x, lookup ORDER BY k", "SELECT dp.budget().releases >= 0 AS paid, * FROM ({query})",
           "SELECT k, (SELECT count(*) FROM ({query})) AS n FROM lookup ORDER BY k", "DESCRIBE {query}", "SELECT typeof(COLUMNS(*)) FROM ({query})"]  # fmt: skip


def quoted(text):
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def call(dice):
    """Return a statement that calls one of the functions."""
    query = f"FROM dp.{_function(dice)}"
    return dice.choice(_AROUND).replace("{query}", query)


def _function(dice):
    value = _value(dice)
    bounds = dice.usually(_BOUNDS[:6], _BOUNDS)
    plain = dice.choice(
        [
            "sum",
            "avg",
            "mean",
            "var",
            "variance",
            "stddev",
            "min",
            "max",
            "geometric_mean",
            "SUM",
        ]
    )
    choice = ["candidates := ['sad', 'ok']", "score := 'units'", "value := 'i64', lower := 0, upper := 9"]
    name, arguments, more = dice.choice([
        lambda: ("count", "", []),
        lambda: ("count", "", [f"\"column\" := {value}"]),
        lambda: ("count_units", "", []),
        lambda: ("count_distinct", value, []),
        lambda: (plain, f"{value}, {bounds}", []),
        lambda: (plain, f"{value}, {bounds}", []),
        lambda: ("sum", f"{value}, {bounds}", ["per := 'unit'"]),
        lambda: ("quantile", f"{value}, {dice.usually(['0.5', '0.9'], ['2', '[0.1, 0.9]', 'NULL'])}, {bounds}", []),
        lambda: ("median", f"{value}, {bounds}", [f"\"interval\" := {dice.usually([quoted('rank'), quoted('value')], ['7'])}", "confidence := 0.9"]),
        lambda: (dice.choice(["corr", "covar", "linear_regression"]), f"{value}, {_value(dice)}, {bounds}, 0, 9", []),
        lambda: ("histogram", f"{value}, {bounds}", [f"bins := {dice.usually(['3'], ['0', '2.5'])}"]),
        lambda: (dice.choice(["noisy_max", "noisy_min"]), dice.usually([quoted("mood"), quoted("t")], [value]), [dice.choice(choice)]),
        lambda: ("top_k", f"{dice.usually([quoted('mood'), quoted('i8')], [value])}, {dice.usually(['1', '2'], ['0', 'NULL'])}", choice[:1]),
    ])()  # fmt: skip
    words = list(more)
    by = dice.usually(_KEYS[:9], _KEYS) if dice.random() < 0.5 else None
    if by is not None:
        words.append(f'"by" := {by}')
        if by in _PUBLIC_KEYS and dice.random() < 0.6:
            words.append(f"keys := {dice.usually(_PUBLIC_KEYS[by][:2], _PUBLIC_KEYS[by])}")
    if dice.random() < 0.4:
        words.append(f'"where" := {quoted(expression(dice, "truth", 3))}')
    words.append(dice.usually(_SPENDS, _ODD_SPENDS))
    for _ in range(dice.choice([0, 0, 1, 1, 2])):
        words.append(dice.usually(_OPTIONS, [*_OPTIONS, *_ODD_OPTIONS]))
    named = {word.split(" :=")[0]: word for word in words}
    table = quoted(dice.usually(_TABLES[:7], _TABLES))
    return f"{name}({', '.join(filter(None, [table, arguments, *named.values()]))})"


def _value(dice):
    if dice.random() < 0.5:
        return quoted(
            dice.usually(
                ["i64", "money", "f64", "i8", "deci", "huge", "u64"], ["t", "d", "nosuch", "uid", "", "*", "i64)", "b"]
            )
        )
    return quoted(expression(dice, "number", 2))
