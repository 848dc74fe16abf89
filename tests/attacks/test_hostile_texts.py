"""Texts, times and JSON of one person decide nothing for others: no failure, no type, no order, no row, no bit."""

from datetime import datetime, timedelta

import polars as pl
import pytest

import dp_polars as dp
from tests.attacks.test_unit_memory import rows_below

GONE = 3
TEXTS = [
    "", "0", "-0", "1e400", "1e-400", "NaN", "-Infinity", "0x10", "1_000", " 7 ", "+5", "\u0663",
    "9223372036854775808", "1.5e3", "--1", "1,5", "TRUE", "t", "2020-02-30", "2020-2-3", "0000-01-01", "-0001-01-01",
    "99999-12-31", "infinity", "epoch", "2024-01-01T00:00:00Z", "2024-01-01 25:00:00", "2024-01-01 00:00:00+15:59",
    "24:00:00", "23:59:60", "\0", "a\0b", "\ud7ff", "\U0010ffff", "\u00e4" * 3000, "{", "{}", "[]", "null", '{"a":1}',
    '{"a":1,"a":2}', '{"a":{"b":[1,{"c":null}]}}', '{"a":"\\ud800"}', '{"a":"\\u0000"}', '{"a":1e999}',
    '{"a":12345678901234567890123}', '"x"', '{"a":NaN}', '{"a":1}}', "[" * 2000, "[" * 500 + "]" * 500,
    '{"a":' * 1000 + "1" + "}" * 1000, '\ufeff{"a":1}', '{"A":1}', '{"a.b":3}', "{'a':1}", '{"":5}', '{"a":[1,2]}',
    '{"items":[{"price":1}]}', None,
]  # fmt: skip
MOMENTS = [
    datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(2024, 3, 31, 2, 30), None,
    datetime(2024, 10, 27, 2, 30), datetime(1893, 4, 1), datetime(2500, 6, 1), datetime(1582, 10, 10),
]  # fmt: skip
USUAL = ["5", "abc", '{"a":3,"items":[{"price":7}]}', "2024-05-05", "12:30:00", "1.25"]

TEXT = [
    "s::BIGINT", "s::TINYINT", "s::UBIGINT", "s::DOUBLE", "s::FLOAT", "s::BOOLEAN", "s::DATE", "s::TIMESTAMP",
    "s::TIMESTAMPTZ", "s::TIME", "strptime(s, '%Y-%m-%d')", "s::DOUBLE::TINYINT", "s::DOUBLE::VARCHAR",
    "s::DATE::TIMESTAMP", "s ->> 'a'", "s ->> '$.a.b[0]'", "s -> 'items' -> 0 ->> 'price'", "(s ->> 'a')::BIGINT",
    "s ->> 'a.b'", "s ->> ''", "s ->> 0", "md5(s)", "md5_number_lower(s) % 7", "md5(concat(user, s))",
    "('0x' || substr(md5(s), 1, 8))::BIGINT", "regexp_extract(s, '(a+)+$')", "s LIKE '%[%'", "round(s::DOUBLE, -2)",
    "s::ENUM('a', 'b')",
]  # fmt: skip
TIME = [
    "ts AT TIME ZONE 'Europe/Vienna'", "tz AT TIME ZONE 'America/St_Johns'", "ts AT TIME ZONE 'Africa/Monrovia'",
    "(tz AT TIME ZONE 'Pacific/Apia') AT TIME ZONE 'Pacific/Apia'", "tz AT TIME ZONE 'Etc/GMT+12'",
    "date_trunc('day', tz AT TIME ZONE 'America/Sao_Paulo')", "time_bucket(INTERVAL 1 MONTH, ts)",
    "time_bucket(INTERVAL 7 DAY, tz)", "strftime(tz, '%Y-%m-%d %H:%M:%S %z')", "strftime(ts, '%G-%V')",
    "ts + INTERVAL 900 YEAR", "epoch_ns(ts)", "dayname(tz)", "ts < now() - INTERVAL 1 DAY", "md5(ts::VARCHAR)",
]  # fmt: skip


def people(*, hostile):
    """Return the rows of forty people, with one whose values are hostile or without this one."""
    start = datetime(2024, 3, 31, 1, 30)
    usual = [
        (user, USUAL[(user + place) % 6], place, start + timedelta(minutes=37 * user))
        for user in range(40)
        for place in range(3)
        if user != GONE
    ]
    odd = [(GONE, text, i % 7, MOMENTS[i % len(MOMENTS)]) for i, text in enumerate(TEXTS)]
    schema = {"user": pl.Int64, "s": pl.String, "n": pl.Int64, "ts": pl.Datetime("us")}
    frame = pl.DataFrame([*usual, *(odd if hostile else [])], schema=schema, orient="row")
    return frame.with_columns(tz=pl.col("ts").dt.replace_time_zone("UTC"))


_NUMBER = "row_number() OVER (PARTITION BY user ORDER BY {}, n)"
SHAPES = {
    "row by row": ("{}", "", [*TEXT, *TIME]),
    "in groups": ("max({})", "GROUP BY user", [*TEXT[::3], *TIME[::3]]),
    "in order": (_NUMBER, "", [*TEXT[1::3], *TIME[1::3]]),
}


def statement(shape):
    form, after, expressions = SHAPES[shape]
    made = ", ".join(f"{form.format(one)} AS v{place}" for place, one in enumerate(expressions))
    counts = ", ".join(f"dp_count(v{place})" for place in range(len(expressions)))
    return f"SELECT {counts} FROM (SELECT user, {made} FROM t {after})"


def others(frame):
    rows = frame.filter(pl.col("user") != GONE).select(sorted(frame.columns)).rows()
    return sorted(repr([one.hex() if isinstance(one, float) else one for one in row]) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_values_of_one_person_change_nothing_for_others(shape):
    whole, rest = people(hostile=True), people(hostile=False)
    expected, found = rows_below(statement(shape), whole), rows_below(statement(shape), rest)
    assert expected.schema == found.schema
    assert others(expected) == others(found)


@pytest.mark.filterwarnings("ignore::dp_polars.errors.DPWarning")
@pytest.mark.slow
def test_arms_of_hostile_units_are_one_group_each():
    """A unit is a text here. The keys of its arm are public, in a fixed order, and no cap cuts anything off."""
    units = [text for text in TEXTS if text is not None]
    for people in (units, units[1:], [*units, None]):
        con = dp.connect(None, dp.Session(epsilon=5000, unit="user")).register("t", pl.DataFrame({"user": people}))
        asked = "SELECT md5_number_lower(user) % 3 AS arm, dp_count_units(keys := [0, 1, 2]) AS n FROM t GROUP BY arm"
        found = con.sql(asked, epsilon=1000).pl()
        assert found["arm"].to_list() == [0, 1, 2]
        assert found["n"].sum() == len(set(people) - {None})
