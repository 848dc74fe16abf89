"""The private rows that the fuzzers ask about, twice: with a unit whose values are hostile, and without it.

Texts and amounts of all other units are canaries, which must never be shown.
"""

import duckdb
import polars as pl

from dp_polars._expressions.hostile import hostile
from tests.fuzz.grammar_sql import COLUMNS, UNUSABLE

POLARS = {
    "b": pl.Boolean(),
    "i8": pl.Int8(),
    "i16": pl.Int16(),
    "i32": pl.Int32(),
    "i64": pl.Int64(),
    "u8": pl.UInt8(),
    "u64": pl.UInt64(),
    "i128": pl.Int128(),
    "f32": pl.Float32(),
    "f64": pl.Float64(),
    "deci": pl.Decimal(12, 3),
    "wide": pl.Decimal(38, 4),
    "t": pl.String(),
    "note": pl.String(),
    "mood": pl.Enum(["sad", "ok", "é", ""]),
    "cat": pl.Categorical(),
    "d": pl.Date(),
    "ts": pl.Datetime("us"),
    "tns": pl.Datetime("ns"),
    "tm": pl.Time(),
    "tz": pl.Datetime("us", "Europe/Paris"),
    "du": pl.Duration("us"),
    "li": pl.List(pl.Int64()),
    "bin_": pl.Binary(),
    "lt": pl.List(pl.String()),
    "ar": pl.Array(pl.Int64(), 2),
    "s": pl.Struct({"a": pl.Int64(), "b": pl.String()}),
    "nothing": pl.Null(),
}
"""A column of each type of Polars."""

HEIGHT = 96
_PEOPLE, _ROWS = 433, 1237
GONE = 17
"""The unit that one neighbour doesn't have, and whose rows are hostile in the other."""


def hostile_rows(schema):
    """Return rows in which hostile values of columns meet in many ways."""
    columns = []
    for number, (name, dtype) in enumerate(schema.items()):
        values, step = hostile(dtype), 2 * number + 1
        places = [(row * step + row // len(values) + number) % len(values) for row in range(HEIGHT)]
        columns.append(values.gather(places).alias(name))
    return pl.DataFrame(columns)


def polars_people(*, hostile_unit):
    """Return the private frame of a neighbour: a column of each type, some rows without a unit, and the hostile unit."""
    i = pl.int_range(_ROWS, dtype=pl.Int64)
    day = pl.lit("2024-01-01").str.to_date() + pl.duration(days=i)
    usual = {
        "b": i % 2 == 0, "i8": i % 100, "i64": i % 50, "u8": i % 200, "f32": i / 3, "f64": i / 7, "deci": i % 1000,
        "t": pl.format("CANARY-{}", i), "note": pl.format("canary{}", i % 5), "cat": pl.format("canary{}", i % 7),
        "mood": pl.when(i % 3 == 0).then(pl.lit("sad")).otherwise(pl.lit("ok")), "d": day, "ts": day.cast(pl.Datetime("us")),
        "tns": day.cast(pl.Datetime("ns")), "tm": pl.time(12), "tz": day.cast(pl.Datetime("us", "Europe/Paris")),
        "du": pl.duration(days=i), "li": pl.concat_list(i, pl.lit(777_000)), "bin_": pl.lit(b"CANARY"),
        "lt": pl.concat_list(pl.format("CANARY{}", i), pl.lit("x")), "ar": pl.concat_list(i, i).list.to_array(2),
        "s": pl.struct(a=i, b=pl.lit("CANARY")), "nothing": pl.lit(None),
    }  # fmt: skip
    columns = {name: usual.get(name, i).cast(dtype).alias(name) for name, dtype in POLARS.items()}
    unit = pl.when(i % 400 == 5).then(None).otherwise(i % _PEOPLE)
    people = pl.select(uid=unit, money=777_000.125 + i, **columns).filter(pl.col("uid").ne_missing(GONE))
    if not hostile_unit:
        return people
    rows = hostile_rows({"money": pl.Float64(), **POLARS})
    return pl.concat([people, rows.select(pl.lit(GONE, pl.Int64).alias("uid"), pl.all())])


def people(raw, where):
    """Make the private tables of a neighbour."""
    hostile_values = {
        "b": "NULL", "i8": "-128", "i16": "-32768", "i32": "-2147483648", "i64": "-9223372036854775808", "u8": "255",
        "u64": "18446744073709551615", "huge": "-170141183460469231731687303715884105728", "f32": "'-inf'", "f64": "'nan'",
        "deci": "-999999999.999", "wide": "9999999999999999999999999999999999.9999", "t": "chr(0) || '(['", "note": "''",
        "mood": "''", "d": "'infinity'::DATE", "tm": "'24:00:00'", "ts": "'-infinity'::TIMESTAMP", "li": "[NULL, 1]",
        "tns": "'2262-04-11 23:47:16.854775806'", "tz": "'290309-12-22 (BC) 00:00:00+00'", "lt": "['', NULL]", "ar": "[NULL, 0]",
        "s": "NULL", "uuid_": "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "blob_": "'\\xFF'::BLOB", "bit_": "'1'::BIT",
        "uni": "NULL", "iv": "INTERVAL '-99999 years'", "map_": "MAP {}", "ttz": "'24:00:00+15:59'", "big": "NULL", "lblob": "[]",
        "sdeep": "NULL", "tsec": "'infinity'::TIMESTAMP_S", "tms": "'-infinity'::TIMESTAMP_MS",
        "uhuge": "340282366920938463463374607431768211455", "ld": "['infinity'::DATE, NULL]", "ldec": "[-999999999.999]",
        "sn": "{'d': '-infinity'::DATE, 'l': NULL}", "sl": "[NULL, {'a': NULL, 'b': 'infinity'::DATE}]",
    }  # fmt: skip
    usual = {
        "b": "i % 2 = 0", "i8": "i % 100", "i16": "i", "i32": "i", "i64": "i % 50", "u8": "i % 200", "u64": "i", "huge": "i",
        "f32": "i / 3", "f64": "i / 7", "deci": "i % 1000", "wide": "i", "t": "'CANARY-' || i", "note": "'canary' || i % 5",
        "mood": "CASE i % 3 WHEN 0 THEN 'sad' ELSE 'ok' END", "d": "DATE '2024-01-01' + i::INT", "tm": "TIME '12:00:00'",
        "ts": "TIMESTAMP '2024-01-01' + to_hours(i)", "tns": "TIMESTAMP '2024-01-01' + to_hours(i)", "li": "[i, 777000]",
        "tz": "TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_hours(i)", "lt": "['CANARY' || i, 'x']", "ar": "[i, 1]",
        "s": "{'a': i, 'b': 'CANARY'}", "uuid_": "uuid()", "blob_": "'CANARY'::BLOB", "bit_": "'101'::BIT",
        "uni": "union_value(n := i)", "iv": "to_days(i::INT)", "map_": "MAP {'CANARY': i}", "ttz": "'12:00:00+01'", "big": "i",
        "lblob": "['CANARY'::BLOB]", "tsec": "TIMESTAMP '2024-01-01'", "tms": "TIMESTAMP '2024-01-01'", "uhuge": "i",
        "ld": "[DATE '2024-01-01' + i::INT]", "ldec": "[i % 1000]", "sn": "{'d': DATE '2024-01-01', 'l': [i]}",
        "sl": "[{'a': i, 'b': DATE '2024-01-01'}]", "sdeep": "{'a': {'b': 'CANARY'::BLOB, 'c': [to_days(1)]}}",
    }  # fmt: skip
    types = {name.strip('"').replace('""', '"'): kind for name, kind in (COLUMNS | UNUSABLE).items()}
    listed = []
    for name, kind in types.items():
        value = f"CASE WHEN uid = {GONE} THEN ({hostile_values.get(name, 'NULL')})::{kind} ELSE ({usual.get(name, 'i')})::{kind} END"
        listed.append(f'{value} AS "{name.replace(chr(34), chr(34) * 2)}"')
    body = f"SELECT uid, 777000.125::DOUBLE + i AS money, {', '.join(listed)} FROM (SELECT i, i % {_PEOPLE} AS uid FROM range({_ROWS}) r(i)) WHERE {where}"
    raw.execute(f"CREATE TABLE people AS {body}")
    raw.execute("CREATE SCHEMA other")
    raw.execute("CREATE TABLE other.people AS SELECT uid, money, i64, t, b, mood FROM people")
    raw.execute(
        "CREATE TABLE odd AS SELECT uid::BLOB AS uid, money FROM (SELECT uid::VARCHAR AS uid, money FROM people)"
    )
    raw.execute("CREATE VIEW grown AS SELECT * FROM people")
    raw.execute("CREATE VIEW plainview AS SELECT * FROM people")


def beside(raw, *, macros=True):
    """Put what a user's database may have beside tables: public rows, settings, and macros with known names."""
    raw.execute("CREATE TABLE lookup AS SELECT i AS k, 'name' || i AS name, i AS i64 FROM range(5) r(i)")
    raw.execute(
        "CREATE TABLE places AS SELECT i AS k, ['sad', 'ok', 'é', ''][1 + i % 4] AS mood, 'z' || i AS zone FROM range(6) r(i)"
    )
    names = ("lower(x)", "abs(x)", '"+"(a, b)', "count_star()", "least(a, b)", "twice(x)", '"%"(a, b)', "dp_count()")
    for macro in names if macros else ():
        raw.execute(f"CREATE MACRO {macro} AS (SELECT max(money) FROM people)")
    if macros:
        raw.execute("CREATE MACRO range(n) AS TABLE (SELECT money AS range FROM people)")
    raw.execute("CREATE SEQUENCE seq")
    for setting in ("default_collation = 'NOCASE'", "default_null_order = 'NULLS_FIRST'", "integer_division = true",
                    "TimeZone = 'Asia/Kolkata'", "ieee_floating_point_ops = false"):  # fmt: skip
        try:
            raw.execute(f"SET GLOBAL {setting}")
        except duckdb.Error:
            raw.execute(f"SET {setting}")


def polars_public():
    """Return public frames that private ones can be joined with, by the names that the grammar gives them."""
    lookup = pl.DataFrame({"k": range(5), "name": [f"name{i}" for i in range(5)], "i64": range(5)})
    moods = pl.Series(["sad", "ok", "é", ""])
    return {
        "lookup": lookup,
        "places": pl.DataFrame({"mood": moods.cast(POLARS["mood"]), "zone": ["z0", "z1", None, "z3"]}),
        "texts": pl.DataFrame({"mood": moods, "zone": ["z0", "z1", None, "z3"]}),
        "twice": pl.concat([lookup, lookup]),
        "no_rows": lookup.clear(),
    }
