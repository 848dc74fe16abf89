"""SQL expressions over the columns of the fuzzed tables: mostly well typed, sometimes not, sometimes broken."""

COLUMNS = {
    "b": "BOOLEAN",
    "i8": "TINYINT",
    "i16": "SMALLINT",
    "i32": "INTEGER",
    "i64": "BIGINT",
    "u8": "UTINYINT",
    "u64": "UBIGINT",
    "huge": "HUGEINT",
    "f32": "FLOAT",
    "f64": "DOUBLE",
    "deci": "DECIMAL(12,3)",
    "wide": "DECIMAL(38,4)",
    "t": "VARCHAR",
    "note": "VARCHAR",
    "mood": "ENUM('sad','ok','é','')",
    "d": "DATE",
    "tm": "TIME",
    "ts": "TIMESTAMP",
    "tns": "TIMESTAMP_NS",
    "tz": "TIMESTAMP WITH TIME ZONE",
    "li": "BIGINT[]",
    "lt": "VARCHAR[]",
    "ar": "INTEGER[2]",
    "s": "STRUCT(a BIGINT, b VARCHAR)",
    "uuid_": "UUID",
    "tsec": "TIMESTAMP_S",
    "tms": "TIMESTAMP_MS",
    "uhuge": "UHUGEINT",
    "ld": "DATE[]",
    "ldec": "DECIMAL(12,3)[]",
    "sn": "STRUCT(d DATE, l BIGINT[])",
    "sl": "STRUCT(a BIGINT, b DATE)[]",
    '"a b; --"': "BIGINT",
    '"x"", (SELECT max(money) FROM people) AS ""y"': "BIGINT",
}
"""Columns of the table `people` beside `uid` and `money`, as they are written in SQL, and their types."""

UNUSABLE = {
    "blob_": "BLOB",
    "bit_": "BIT",
    "uni": "UNION(n BIGINT, t VARCHAR)",
    "iv": "INTERVAL",
    "map_": "MAP(VARCHAR, BIGINT)",
    "ttz": "TIME WITH TIME ZONE",
    "big": "BIGNUM",
    "lblob": "BLOB[]",
    "sdeep": "STRUCT(a STRUCT(b BLOB, c INTERVAL[]))",
}
"""Columns of types that private rows don't have."""

_KINDS = {
    "number": ["i8", "i16", "i32", "i64", "u8", "u64", "huge", "f32", "f64", "deci", "wide", "money", "s.a", "li[1]",
               "uhuge", "ldec[1]", "sn.l[1]", "sl[1].a", '"a b; --"', '"x"", (SELECT max(money) FROM people) AS ""y"'],
    "text": ["t", "note", "mood", "s.b", "lt[1]", "uuid_"],
    "truth": ["b"],
    "date": ["d", "ts", "tns", "tz", "d", "ts", "tsec", "tms", "ld[1]", "sn.d", "sl[1].b"],
    "list": ["li", "lt", "ar", "ld", "ldec", "sn.l"],
    "other": ["tm", "s", "sn", "sl", *UNUSABLE],
}  # fmt: skip

_NUMBERS = ["0", "1", "-1", "2", "0.5", "-0.0", "3", "7", "100", "255", "256", "1e308", "1e-320", "9223372036854775807",
            "9223372036854775808", "-9223372036854775808", "170141183460469231731687303715884105728", "1e400",
            "123456789.123456789", "99999999999999999999999999999999999999", "'nan'::DOUBLE", "'-inf'::FLOAT", "0x1F",
            "1_000", "NULL", "'12'", "true"]  # fmt: skip
_TEXTS = ["''", "'a'", "'é'", "'%'", "'_'", "'a%b_c'", "'\\'", "'x''y'", "'(' ", "'[a'", "'(?i)a'", "'a{1000}'", "'$1'",
          "'1e5'", "'2024-02-30'", "E'\\n'", "$$a$$", "'\U0001f600'", "chr(0)", "NULL", "'.*'", "'\\d+'",
          "'" + "x" * 300 + "'", "'(a+)+b'", "'ſ'", "'İ'", "concat('a','b')"]  # fmt: skip
_DATES = ["DATE '2024-02-29'", "TIMESTAMP '2020-03-29 02:30:00'", "DATE '0001-01-01'", "DATE '5874897-12-31'",
          "TIMESTAMPTZ '2024-01-01 00:00:00+05'", "TIMESTAMP 'infinity'", "DATE '-infinity'", "NULL::DATE", "'2024-01-01'",
          "make_date(2024, 1, 31)", "TIMESTAMP_NS '2262-04-11 00:00:00'", "current_date", "now()"]  # fmt: skip
_LISTS = ["[1,2,NULL]", "[]", "['a','b']", "[NULL]", "[1, 2.5]", "[[1],[2]]", "[1::TINYINT, 300]"]
_SPANS = [
    "INTERVAL 1 DAY",
    "INTERVAL '1 month'",
    "INTERVAL (-3) YEAR",
    "to_days(5)",
    "INTERVAL '99999999 years'",
    "INTERVAL '1 month 2 days 3 seconds'",
    "NULL::INTERVAL",
    "to_months(-2147483648)",
    "INTERVAL '1 microsecond'",
]
_TYPES = [*COLUMNS.values(), *UNUSABLE.values(), "INTEGER[][]", "NOSUCH", "VARCHAR(3)", "DECIMAL(40,2)", "DECIMAL(4,4)",
          "STRUCT(a INT)", "JSON", "UINTEGER", "UHUGEINT", "TIMESTAMP_S", "TIMESTAMP_MS", '"people"', "ENUM('a','b')",
          "DECIMAL", "REAL", "VARIANT", "GEOMETRY", "ANY", "INT[3]"]  # fmt: skip
_USUAL_TYPES = ["BIGINT", "DOUBLE", "VARCHAR", "INTEGER", "DECIMAL(12,3)", "TINYINT", "UBIGINT", "FLOAT"]
_PARTS = ["'year'", "'month'", "'dow'", "'epoch'", "'yearweek'", "'hour'", "'week'", "'millennium'", "'Julian'", "'day'",
          "'second'", "'timezone'", "'quarter'", "'decade'", "t", "NULL"]  # fmt: skip
_FLAGS = ["", ", 'g'", ", 'gi'", ", 'x'"]
_STRFTIME = ["%Y", "%d.%m.%Y", "%Q", "%", "%A %B %j %U", "%s %f %z %Z", "%-d"]
_OF_NUMBER = [
    "abs",
    "sign",
    "floor",
    "ceil",
    "sqrt",
    "cbrt",
    "exp",
    "degrees",
    "radians",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "ln",
    "log2",
    "log10",
    "log",
    "round",
    "trunc",
    "isnan",
    "isinf",
    "isfinite",
    "@",
    "even",
]
_OF_TEXT = ["lower", "upper", "reverse", "trim", "ltrim", "rtrim", "ucase", "lcase"]
_OF_DATE = [
    "year",
    "month",
    "day",
    "dayofweek",
    "yearweek",
    "epoch",
    "epoch_ms",
    "epoch_us",
    "epoch_ns",
    "last_day",
    "dayname",
    "monthname",
    "hour",
    "century",
    "isoyear",
    "quarter",
]
_FORBIDDEN = [
    "random()",
    "sum({0})",
    "max({0})",
    "count(*)",
    "row_number() OVER ()",
    "{0} COLLATE NOCASE",
    "list({0})",
    "(SELECT max(money) FROM people)",
    "getenv('HOME')",
    "current_setting('TimeZone')",
    "nextval('seq')",
    "{0} IN (SELECT money FROM people)",
    "read_text('/etc/passwd')",
    "error({0}::VARCHAR)",
    "lag({0}) OVER ()",
    "list_transform(li, x -> x + 1)",
    "list_transform(li, lambda x: x)",
    "[x for x in li]",
    "hash({0})",
    "main.lower(t)",
    "memory.main.abs({0})",
    "twice({0})",
    "COLUMNS('i.*')",
    "people",
    "people.*",
    "rowid",
    "{0}::people",
    "struct_pack(a := {0})",
    "{'a': {0}}",
    "#1",
    "array_agg({0})",
    "typeof({0})",
    "md5({0}::VARCHAR)",
    "sleep({0})",
    "write_log({0}::VARCHAR)",
    "getvariable('x')",
    "dp_count({0})",
    "uid",
    "dp_sum({0}, 0, 1)",
    "json_extract(t, '$.a')",
    "regexp_extract_all(t, 'a')",
    "format('{}', {0})",
    "EXISTS (SELECT 1 FROM people)",
    "unnest(li)",
    "range({0})",
    "repeat(t, {0})",
    "CASE {0} WHEN 1 THEN 2 END",
    "* EXCLUDE (t)",
    "?",
    "$p",
    "$missing",
    "add_parquet_key('a','b')",
    "query_table('people')",
    "t SIMILAR TO 'a+'",
    "t GLOB 'a*'",
    "{0} IS DISTINCT FROM NULL",
    "strptime(t, '%Y')",
    "(i64, t)",
    "ROW({0}, 1)",
    "map {'a': 1}",
    "t[1:2]",
    "li[1:2]",
    "s['a']",
    "s.nosuch",
    "people.t",
    "main.people.t",
    "memory.main.people.i64",
    "factorial(i8)",
    "bar(f64, 0, 1, 2000000)",
    "rpad(t, 2000000000, 'x')",
    "t ^@ 'a'",
    "TRY(1/0)",
    "i64 // 0",
    "~i64",
    "i64 << 70",
    "i8 ** 999",
    "-(-i8)",
    "!i8",
    "t || NULL",
]


def expression(dice, kind="any", depth=3):
    """Return the text of an expression of a kind, which is sometimes another or none at all."""
    if dice.happens():
        return dice.choice(_FORBIDDEN).replace("{0}", expression(dice, "any", 0))
    if depth and dice.happens(0.5):
        return broken(dice, expression(dice, kind, depth - 1))
    if kind == "any" or dice.happens(2):
        kind = dice.choice(["number", "number", "text", "truth", "date", "list", "other"])
    if kind == "other" and not dice.happens(5):
        kind = dice.choice(["number", "text", "date"])
    if depth <= 0 or dice.random() < 0.15:
        return leaf(dice, kind)
    return _MAKERS.get(kind, _other)(dice, depth - 1)


def leaf(dice, kind):
    """Return a column or a constant."""
    constants = {"number": _NUMBERS, "text": _TEXTS, "truth": ["true", "false", "NULL"], "date": _DATES, "list": _LISTS}
    if kind in constants and dice.random() < 0.3:
        return dice.usually(constants[kind][:6], constants[kind])
    name = dice.choice(_KINDS[kind])
    if dice.happens() and name.isidentifier():
        name = dice.choice([name.upper(), f'"{name}"', f"people.{name}", f"p.{name}", f'"{name.upper()}"'])
    return name


def broken(dice, text):
    """Return a text with a small fault."""
    if not text:
        return text
    place = dice.randrange(len(text))
    new = dice.choice(
        ["", "(", ")", "'", '"', ",", ";", "--", "/*", " ", "\x00", "$1", "::INT", " AS x", "é", "\\", "*"]
    )
    return text[:place] + new + text[place + dice.randrange(2) :]


def _number(dice, depth):
    def x(kind="number"):
        return expression(dice, kind, depth)

    make = dice.choice([
        lambda: f"({x()} {dice.choice(['+', '-', '*', '/', '//', '%', '**', '^', '&', '|'])} {x()})",
        lambda: f"({x()} {dice.choice(['+', '-', '*', '/', '//', '%'])} {x()})",
        lambda: f"{dice.choice(_OF_NUMBER)}({x()})",
        lambda: f"{dice.choice(['-', '+'])}{x()}",
        lambda: f"{dice.choice(['CAST', 'TRY_CAST'])}({x('any')} AS {dice.usually(_USUAL_TYPES, _TYPES)})",
        lambda: f"({x('any')})::{dice.usually(_USUAL_TYPES, _TYPES)}",
        lambda: f"CASE WHEN {x('truth')} THEN {x()} WHEN {x('truth')} THEN {x()} ELSE {x()} END",
        lambda: f"{dice.choice(['greatest', 'least', 'coalesce', 'nullif', 'pow', 'atan2', 'xor', 'log'])}({x()}, {x()})",
        lambda: f"{dice.choice(['round', 'trunc', 'round_even'])}({x()}, {dice.choice(['0', '2', '15', '-3', '400'])})",
        lambda: f"{dice.choice(['length', 'strlen', 'char_length', 'octet_length'])}({x('text')})",
        lambda: f"{dice.choice(['len', 'list_sum', 'list_min', 'list_max', 'cardinality'])}({x('list')})",
        lambda: f"{dice.choice(_OF_DATE)}({x('date')})",
        lambda: f"date_part({dice.usually(_PARTS[:7], _PARTS)}, {x('date')})",
        lambda: f"date_diff({dice.usually(_PARTS[:7], _PARTS)}, {x('date')}, {x('date')})",
        lambda: f"({x('date')} - {x('date')})",
        lambda: f"{dice.choice(['instr', 'strpos'])}({x('text')}, {dice.choice(_TEXTS)})",
        lambda: f"extract({dice.choice(['year', 'dow', 'epoch', 'minute'])} FROM {x('date')})",
        lambda: f"({x('list')})[{dice.choice(['1', '-1', '0', '99', '2147483649', 'i8'])}]",
        lambda: f"if({x('truth')}, {x()}, {x()})",
        lambda: f"ifnull({x()}, {x()})",
    ])  # fmt: skip
    return make()


def _text(dice, depth):
    def x(kind="text"):
        return expression(dice, kind, depth)

    constant = dice.usually(_TEXTS[1:5], _TEXTS)
    number = dice.usually(["1", "2"], ["1", "0", "-1", "3", "1000", "2147483648", "-2147483648", "2.5"])
    make = dice.choice([
        lambda: f"{dice.choice(_OF_TEXT)}({x()})",
        lambda: f"({x()} || {x('any')})",
        lambda: f"concat({x()}, {x('any')}, {x()})",
        lambda: f"concat_ws({constant}, {x()}, {x()})",
        lambda: f"substring({x()}, {number}, {dice.choice(['1', '0', '-1', '5'])})",
        lambda: f"{dice.choice(['left', 'right'])}({x()}, {number})",
        lambda: f"{dice.choice(['lpad', 'rpad'])}({x()}, {number}, {constant})",
        lambda: f"replace({x()}, {constant}, {dice.choice(_TEXTS)})",
        lambda: f"regexp_replace({x()}, {constant}, {dice.choice(_TEXTS)}{dice.choice(_FLAGS)})",
        lambda: f"regexp_extract({x()}, {constant}{dice.choice(['', ', 1', ', 0', ', 9'])})",
        lambda: f"split_part({x()}, {constant}, {number})",
        lambda: f"CAST({x('any')} AS VARCHAR)",
        lambda: f"CASE {x()} WHEN {constant} THEN {x()} ELSE {x()} END",
        lambda: f"strftime({x('date')}, {dice.choice(_STRFTIME)!r})",
        lambda: f"{dice.choice(['dayname', 'monthname'])}({x('date')})",
        lambda: f"array_to_string({x('list')}, {constant})",
        lambda: f"trim({x()}, {constant})",
        lambda: f"{x()}[{number}]",
        lambda: f"{dice.choice(['coalesce', 'nullif', 'greatest', 'least'])}({x()}, {x()})",
    ])  # fmt: skip
    return make()


def _truth(dice, depth):
    def x(kind):
        return expression(dice, kind, depth)

    kind = dice.usually(["number", "number", "text", "date"], ["list", "truth", "other"])
    constants = {"number": _NUMBERS, "text": _TEXTS, "date": _DATES}.get(kind, _LISTS)
    listed = ", ".join(dice.choice(constants) for _ in range(dice.randrange(1, 4)))
    make = dice.choice([
        lambda: f"({x(kind)} {dice.choice(['=', '<>', '<', '<=', '>', '>=', 'IS DISTINCT FROM', 'IS NOT DISTINCT FROM'])} {x(kind)})",
        lambda: f"({x(kind)} {dice.choice(['=', '<', '>='])} {dice.choice(constants)})",
        lambda: f"({x('truth')} {dice.choice(['AND', 'OR'])} {x('truth')})",
        lambda: f"(NOT {x('truth')})",
        lambda: f"({x(kind)} IS {dice.choice(['', 'NOT '])}NULL)",
        lambda: f"({x(kind)} {dice.choice(['', 'NOT '])}IN ({listed}))",
        lambda: f"({x('number')} IN {dice.usually(_LISTS[:1], _LISTS)})",
        lambda: f"({x(kind)} BETWEEN {x(kind)} AND {x(kind)})",
        lambda: f"({x('text')} {dice.usually(['LIKE', 'ILIKE', 'NOT LIKE', '~~'], ['SIMILAR TO', 'GLOB'])} {dice.usually(_TEXTS[:7], _TEXTS)})",
        lambda: f"({x('text')} LIKE {dice.usually(_TEXTS[:6], _TEXTS)} ESCAPE {dice.usually(_TEXTS[3:5], _TEXTS)})",
        lambda: f"{dice.choice(['starts_with', 'ends_with', 'contains', 'prefix', 'suffix'])}({x('text')}, {dice.choice(_TEXTS)})",
        lambda: f"{dice.choice(['regexp_matches', 'regexp_full_match'])}({x('text')}, {dice.choice(_TEXTS)})",
        lambda: f"{dice.choice(['list_contains', 'array_has'])}({x('list')}, {dice.choice(_NUMBERS + _TEXTS)})",
        lambda: f"{dice.choice(['isnan', 'isinf', 'isfinite'])}({x('number')})",
        lambda: f"CAST({x('any')} AS BOOLEAN)",
        lambda: f"({x('truth')} IS TRUE)",
    ])  # fmt: skip
    return make()


def _date(dice, depth):
    def x(kind="date"):
        return expression(dice, kind, depth)

    make = dice.choice([
        lambda: f"({x()} {dice.choice(['+', '-'])} {dice.choice(_SPANS)})",
        lambda: f"({x()} {dice.choice(['+', '-'])} {x('number')})",
        lambda: f"date_trunc({dice.usually(_PARTS[:7], _PARTS)}, {x()})",
        lambda: f"CAST({x('any')} AS {dice.choice(['DATE', 'TIMESTAMP', 'TIMESTAMPTZ', 'TIMESTAMP_NS', 'TIME'])})",
        lambda: f"last_day({x()})",
        lambda: f"date_add({x()}, {dice.choice(_SPANS)})",
        lambda: f"{dice.choice(['strptime', 'try_strptime'])}({x('text')}, {dice.choice(['%Y-%m-%d', '%H:%M', '%', '%s', '%d/%m/%y %p', '%Y-%m-%d %H:%M:%S.%f', 'x'])!r})",
        lambda: f"CASE WHEN {x('truth')} THEN {x()} ELSE {x()} END",
        lambda: f"coalesce({x()}, {x()})",
        lambda: f"greatest({x()}, {x()})",
    ])  # fmt: skip
    return make()


def _list(dice, depth):
    make = dice.choice([
        lambda: f"string_split({expression(dice, 'text', depth)}, {dice.choice(_TEXTS)})",
        lambda: f"CASE WHEN {expression(dice, 'truth', depth)} THEN li ELSE {dice.choice(_LISTS)} END",
        lambda: f"coalesce({expression(dice, 'list', depth)}, {expression(dice, 'list', depth)})",
        lambda: f"[{expression(dice, 'any', depth)}]",
        lambda: leaf(dice, "list"),
    ])  # fmt: skip
    return make()


def _other(dice, depth):
    make = dice.choice([
        lambda: leaf(dice, "other"),
        lambda: f"CAST({expression(dice, 'any', depth)} AS {dice.usually(_USUAL_TYPES, _TYPES)})",
        lambda: f"coalesce({leaf(dice, 'other')}, {leaf(dice, 'other')})",
        lambda: "(" * 60 + expression(dice, "any", depth) + ")" * 60,
        lambda: " + ".join([leaf(dice, "number")] * dice.choice([30, 120, 450])),
        lambda: "NOT " * dice.choice([5, 90, 300]) + leaf(dice, "truth"),
    ])  # fmt: skip
    return make()


_MAKERS = {"number": _number, "text": _text, "truth": _truth, "date": _date, "list": _list}
