"""What must hold for a fuzzed text. Each check returns how it ended; a `Finding` is raised for what must not be.

Exact answers are looked for among the numbers of a result. The noise of a question has a scale of about 1e5, so that
one of them appears by chance with a probability below 1e-2 per statement; it counts if it appears in each of six
sessions: below 1e-12.
"""

import datetime
import math
import os
import random
import re
import signal
import time
import warnings
from decimal import Decimal

import duckdb
import polars as pl

import dp_polars as dp
from dp_polars._engines.polars.program import Program
from dp_polars._expressions import Column
from dp_polars._expressions.check import check_expressions
from dp_polars._expressions.hostile import hostile
from dp_polars._sql.expressions import Reader
from dp_polars._sql.scope import Scope, ScopeTable
from dp_polars._sql.syntax_tree import Parser
from dp_polars._sql.types import polars_type
from tests.expressions.test_evidence import bits as bits_of
from tests.fuzz.grammar_sql import COLUMNS, UNUSABLE

HEIGHT = 96


class Finding(Exception):  # noqa: N818 - what it is
    """Something that must not happen; the first word of its text says which rule is broken."""


def named(error):
    """Return an error as a finding names it: its class, and its text without numbers and quotes."""
    text = re.sub(r"[0-9]+|'[^']*'|\"[^\"]*\"", "~", str(error).strip().split("\n")[0])[:120]
    return f"{type(error).__name__} {text}"


# ---------------------------------------------------------------------- expressions


def hostile_rows(schema):
    """Return rows in which hostile values of columns meet in many ways."""
    columns = []
    for number, (name, dtype) in enumerate(schema.items()):
        values, step = hostile(dtype), 2 * number + 1
        places = [(row * step + row // len(values) + number) % len(values) for row in range(HEIGHT)]
        columns.append(values.gather(places).alias(name))
    return pl.DataFrame(columns)


class Strict(Program):
    """A program that fails where Polars does, instead of making the rows null."""

    def _isolated(self, part, height, place):
        raise Finding("not total: Polars failed on a hostile value")


def bits(series):
    """Return values as they are stored: Python has no dates beyond the year 9999, inside of lists either."""
    by_name = isinstance(series.dtype, pl.Enum | pl.Categorical) or series.dtype == pl.Decimal
    return bits_of(series if by_name else series.to_physical())


def check_row_wise(tree, rows):
    """Check that an accepted expression has one value for a row, of the announced type, whatever stands beside it."""
    program = Strict([tree])
    whole = bits(_one(program, rows, tree))
    dice = random.Random(7)
    places = [[row] for row in dice.sample(range(HEIGHT), 6)]
    places += [
        dice.sample(range(HEIGHT), 2),
        dice.sample(range(HEIGHT), HEIGHT),
        list(range(40)),
        list(range(40, HEIGHT)),
    ]
    for some in places:
        if bits(_one(program, rows[some], tree)) != [whole[row] for row in some]:
            raise Finding("not row-wise: a value changed with the rows around it")
    if len(_one(program, rows.head(0), tree)):
        raise Finding("height: rows out of none")


def _one(program, rows, tree):
    (found,) = program.columns(rows)
    if found.dtype != tree.dtype:
        raise Finding(f"type: {found.dtype} instead of {tree.dtype}")
    if len(found) != rows.height:
        raise Finding("height: another number of rows")
    return found


class SqlExpressions:
    """Reads SQL expressions over the columns of the fuzzed table."""

    def __init__(self):
        types = {name.strip('"').replace('""', '"'): duckdb.sqltype(kind) for name, kind in COLUMNS.items()}
        known = {name: polars_type(kind) for name, kind in types.items()}
        self._rows = hostile_rows({**known, "money": pl.Float64()})
        columns = {name: Column(name, dtype) for name, dtype in self._rows.schema.items()}
        self._scope = Scope((ScopeTable("people", {**columns, **UNUSABLE}),), "")
        self._parser = Parser()

    def __call__(self, text):
        """Return whether an expression was accepted or refused."""
        parameters = {"p": 3, "1": "a"}
        try:
            tree = Reader(self._scope, self._parser, parameters).checked(self._parser.expression(text))
        except dp.DPError:
            return "refused"
        check_row_wise(tree, self._rows)
        return "accepted"


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


class PolarsExpressions:
    """Reads Polars expressions over a frame with a column of each type."""

    def __init__(self):
        self._rows = hostile_rows(POLARS)
        self._names = {"pl": pl, "Decimal": Decimal, **{name: getattr(datetime, name) for name in
                       ("date", "time", "datetime", "timedelta")}}  # fmt: skip

    def __call__(self, text):
        """Return whether an expression was accepted or refused, or is none at all."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expr = eval(text, dict(self._names))
        except (Exception, pl.exceptions.PanicException):  # noqa: BLE001 - whatever Polars says
            return "no expression"
        if not isinstance(expr, pl.Expr):
            return "no expression"
        try:
            found = check_expressions(expr, schema=self._rows.schema, what="with_columns")
        except dp.DPError:
            return "refused"
        for one in found[:3]:
            check_row_wise(one.tree, self._rows)
        return "accepted"


# ---------------------------------------------------------------------- statements

_CANARIES = re.compile(r"CANARY|77[78][0-9]{3}\.125|canary", re.ASCII)
_PEOPLE, _ROWS = 433, 1237
_GONE = 17  # the unit that one neighbour doesn't have, and whose rows are hostile in the other


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
        value = f"CASE WHEN uid = {_GONE} THEN ({hostile_values.get(name, 'NULL')})::{kind} ELSE ({usual.get(name, 'i')})::{kind} END"
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


def beside(raw):
    """Put what a user's database may have beside tables: public rows, macros with known names, settings."""
    raw.execute("CREATE TABLE lookup AS SELECT i AS k, 'name' || i AS name, i AS i64 FROM range(5) r(i)")
    raw.execute(
        "CREATE TABLE places AS SELECT i AS k, ['sad', 'ok', 'é', ''][1 + i % 4] AS mood, 'z' || i AS zone FROM range(6) r(i)"
    )
    for macro in (
        "lower(x)",
        "abs(x)",
        '"+"(a, b)',
        "count_star()",
        "least(a, b)",
        "twice(x)",
        '"%"(a, b)',
        "dp_count()",
    ):
        raw.execute(f"CREATE MACRO {macro} AS (SELECT max(money) FROM people)")
    raw.execute("CREATE MACRO range(n) AS TABLE (SELECT money AS range FROM people)")
    raw.execute("CREATE SEQUENCE seq")
    for setting in ("default_collation = 'NOCASE'", "default_null_order = 'NULLS_FIRST'", "integer_division = true",
                    "TimeZone = 'Asia/Kolkata'", "ieee_floating_point_ops = false"):  # fmt: skip
        try:
            raw.execute(f"SET GLOBAL {setting}")
        except duckdb.Error:
            raw.execute(f"SET {setting}")


def truths(raw):
    """Return exact aggregates of the private columns that nobody would meet by chance."""
    numbers = ["i8", "i16", "i32", "i64", "u8", "u64", "f64", "deci", "money"]
    parts = [f"{name}({one})" for one in numbers for name in ("sum", "avg", "max", "min", "count", "median", "stddev")]
    usual = ", ".join(one.replace("(", "(CAST(").replace(")", " AS DOUBLE))") for one in parts)
    found = []
    for where in ("true", "b", "NOT b", "mood = 'ok'", "mood = 'sad'", "i64 > 3"):
        found += raw.execute(
            f"SELECT count(*), count(DISTINCT uid), {usual} FROM people WHERE isfinite(f64) AND {where}"
        ).fetchall()[0]
    known = {float(one) for one in found if one is not None}
    return sorted(
        one for one in known if math.isfinite(one) and abs(one) >= 300 and abs(one) < 1e15 and one not in _GIVEN
    )


_GIVEN = {300.0, 450.0, 1000.0, 32768.0, -32768.0, 65536.0, 777000.0, 778000.0, 2147483648.0, -2147483648.0, 5874897.0}


class Neighbour:
    """A database with or without a unit, and the sessions that pay for questions about it."""

    def __init__(self, where):
        self._raw = duckdb.connect()
        people(self._raw, where)
        self.truths = truths(self._raw)
        beside(self._raw)
        frame = pl.DataFrame(self._raw.execute("SELECT uid, money, i64, i8, t, b, f64 FROM people").to_arrow_table())
        self._frame = frame
        self.renew()

    def renew(self):
        """Begin a new session."""
        self.session = dp.Session(epsilon=1e-3, delta=1e-12, unit="uid", max_groups=3, max_rows_per_group=3)
        self.con = dp.connect(self._raw, self.session).public("lookup", "places").private("grown", unit="uid")
        self.con.register("frame", self._frame)

    def ask(self, case):
        """Return how a statement ends: what anyone could see of it."""
        sql, options = case["sql"], case["options"]
        texts, before, price = [], self.session.spent.epsilon, 0.0
        rows, released = [], []
        try:
            plans = self.con.preview(sql, params=case["parameters"], **options)
            several = plans if isinstance(plans, list) else [plans]
            texts += [str(plans), repr(plans), *(one._repr_html_() for one in several)]
            if self.session.spent.epsilon != before:
                raise Finding("charge: a preview cost something")
            price = sum(float(one.cost.epsilon) for one in several)
        except dp.DPError as error:
            texts.append(str(error))
        paid = len(self.session.releases)
        try:
            table = self.con.sql(sql, params=case["parameters"], **options).to_arrow_table()
            end = ("answered", str(table.schema))
            rows = table.to_pylist()
            releases = self.con._paid
            released = [_released(one) for one in releases if one.plan is not None]
            new = any(not one.stored for one in releases)
            if new and self.session.spent.epsilon - before < price * 0.999 and not any(one.stored for one in releases):
                raise Finding("charge: less than the declared price")
        except dp.DPError as error:
            above = isinstance(error, dp.StatementNotAllowed) and str(error).startswith("The SQL above")
            end = ("answered", "failed above") if above else ("refused", type(error).__name__, str(error))
            texts.append(str(error))
            if isinstance(error, dp.EngineError | dp.SessionClosed):
                raise Finding(f"closed: {named(error)}") from None
            if not above and len(self.session.releases) != paid:
                raise Finding(f"refused after a charge: {named(error)}") from None
        if self.session.closed:
            raise Finding("closed: the session")
        texts += [repr(self.session), repr(self.con), self.session.describe(), *map(repr, rows)]
        ledger = self.session.export()
        texts += [repr(row) for row in ledger.tail(4).rows()]
        for text in texts:
            found = _CANARIES.search(text)
            if found and not _CANARIES.search(sql):
                raise Finding("canary: in what is shown")
        return end, rows, released


def _released(release):
    """Return what of a release must not depend on one unit where its keys are public: how many rows, and their keys."""
    if getattr(release.plan, "selection", None) is not None:
        return str(release.frame.schema)
    keys = [key.name for key in release.plan.query.keys] if getattr(release.plan, "query", None) else []
    return str(release.frame.schema), repr(release.frame.select(keys).rows()) if keys else release.frame.height


class Faults:
    """Does what a case says: the fuzzer must see it."""

    def __call__(self, case):
        """Die, wait, fail, or hold."""
        if case == "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        if case == "wait":
            time.sleep(60)
        if case == "fail":
            raise KeyError(case)
        return case


class Statements:
    """Asks two neighbours the same."""

    def __init__(self):
        self._pair = (Neighbour("true"), Neighbour(f"uid <> {_GONE}"))
        self._truths = sorted({one for neighbour in self._pair for one in neighbour.truths})
        self._asked = 0

    def __call__(self, case):
        """Return whether a statement was answered or refused."""
        self._asked += 1
        if self._asked % 40 == 0:
            self._renew()
        try:
            return self._compared(case)
        except BaseException:
            self._renew()
            raise

    def _renew(self):
        for one in self._pair:
            one.renew()

    def _compared(self, case):
        (end, rows, released), (other, other_rows, other_released) = (one.ask(case) for one in self._pair)
        if end[0] != other[0] or (end[0] == "refused" and end != other):
            raise Finding(f"neighbours: {end[0]} {end[-1][:150]!r} and {other[0]} {other[-1][:150]!r}")
        if "failed above" not in (end[1], other[1]):
            if end != other:
                raise Finding(f"neighbours: types differ: {end[1]!r} and {other[1]!r}")
            if released != other_released:
                raise Finding("neighbours: keys or row counts differ")
        for _ in range(5):
            if not (self._exact(rows) or self._exact(other_rows)):
                return end[0]
            self._renew()
            (_, rows, _), (_, other_rows, _) = (one.ask(case) for one in self._pair)
        if self._exact(rows) or self._exact(other_rows):
            raise Finding("exact: an exact aggregate in the result")
        return end[0]

    def _exact(self, rows):
        return any(math.isclose(one, true, rel_tol=1e-12) for one in _numbers(rows) for true in self._truths)


def _numbers(value):
    if isinstance(value, bool):
        return
    if isinstance(value, int | float | Decimal):
        if math.isfinite(value) and abs(value) < 1e300:
            yield float(value)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _numbers(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _numbers(one)
    elif isinstance(value, str):
        for text in re.findall(r"-?[0-9]+\.?[0-9]*", value)[:20]:
            yield float(text[:300])


ORACLES = {"sql": SqlExpressions, "polars": PolarsExpressions, "statements": Statements, "faults": Faults}
