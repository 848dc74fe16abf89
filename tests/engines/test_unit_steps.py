"""Unit-wise steps give the rows of a slow reference, and a unit that is removed changes no other rows by a bit."""

import decimal
import math
import random
import statistics
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import duckdb
import polars as pl
import pytest

from dp_polars._engines.duckdb.rows import ReadTransaction, TableColumn, table_rows
from dp_polars._engines.polars import unit_steps
from dp_polars._engines.polars.scan import polars_rows, read_rows
from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.unit_steps import (
    AddWindows,
    GroupRows,
    JoinRows,
    KeepFirst,
    StackRows,
    unique_columns,
    unit_rows,
    with_units,
)
from dp_polars._expressions import Column, apply
from dp_polars._expressions.tree import Constant
from dp_polars._expressions.unit_functions import UNIT_FUNCTIONS, SortColumn, WindowFrame, unit_value
from dp_polars.errors import ExpressionNotAllowed, InvalidParameterError

LARGEST = Decimal("9" * 37 + ".9")
"""The largest decimal of 38 digits with one digit behind the point. The sum of two is beyond 128 bits."""

HOSTILE = {
    "int": (pl.Int64, [0, 1, -1, 2**63 - 1, -(2**63), 7, None]),
    "small": (pl.Int8, [127, -128, 3, None]),
    "unsigned": (pl.UInt64, [2**64 - 1, 0, 5, None]),
    "float": (
        pl.Float64,
        [0.0, -0.0, 0.1, 0.2, 0.3, 1e300, -1e300, 1e-310, 5e-324, math.inf, -math.inf, math.nan, None],
    ),
    "real": (pl.Float64, [0.1, 0.7, -12.34, 1e6 + 0.1, 3.3, None]),
    "single": (pl.Float32, [0.5, -2.25, math.nan, None]),
    "flag": (pl.Boolean, [True, False, None]),
    "text": (pl.String, ["", "a", "ä", "a" * 40, "\0", None]),
    "day": (pl.Date, [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31), None]),
    "moment": (pl.Datetime("us"), [datetime(1970, 1, 1), datetime(2262, 4, 12), None]),
    "span": (pl.Duration("us"), [timedelta(0), timedelta(days=-3, microseconds=1), None]),
    "money": (pl.Decimal(15, 2), [Decimal("0.10"), Decimal("-9999999999999.99"), Decimal("12.30"), None]),
    "debt": (pl.Decimal(38, 1), [LARGEST, LARGEST, LARGEST.copy_negate(), Decimal("0.7"), Decimal("-12.3"), None]),
    "size": (pl.Enum(["s", "m", "l"]), ["s", "l", None]),
}


def made_rows(rows: int, seed: int, units: int = 12) -> pl.DataFrame:
    """Return rows of a few units, one of them null, with hostile values and many ties."""
    dice = random.Random(seed)
    columns = {
        "unit": pl.Series([dice.choice([None, *range(units)]) for _ in range(rows)], dtype=pl.Int64),
        "key": pl.Series([dice.choice(["x", "y", None]) for _ in range(rows)], dtype=pl.String),
        "when": pl.Series([dice.choice([1, 2, 3, None]) for _ in range(rows)], dtype=pl.Int32),
    }
    columns |= {
        name: pl.Series([dice.choice(values) for _ in range(rows)], dtype=dtype)
        for name, (dtype, values) in HOSTILE.items()
    }
    return pl.DataFrame(columns)


def functions(schema: pl.Schema) -> dict:
    """Return every function on every column that it takes, by name."""
    order, found = (SortColumn("when", descending=True), SortColumn("text")), {}
    for name, function in UNIT_FUNCTIONS.items():
        for column in HOSTILE if function.argument else [None]:
            if column is not None and function.result(schema[column]) is None:
                continue
            for offset in (1, -2) if name == "shift" else (0,):
                value = unit_value(name, column, schema, order=order if function.ordered else (), offset=offset)
                frame = (
                    WindowFrame(*FRAMES[len(found) % len(FRAMES)]) if name.startswith("frame_") else None
                )  # every one somewhere
                found[f"{name} {column} {offset}"] = replace(value, parameter=PARAMETERS.get(name), frame=frame)
    return found


PARAMETERS = {"quantile": 0.3, "quantile_value": 0.7, "join": "|"}
FRAMES = [(-2, 0), (None, -1), (1, None), (-1, 1), (2, 3)]


def result(step, *frames) -> pl.DataFrame:
    return read_rows(unit_steps.without_unit_steps(unit_rows(step, *map(polars_rows, frames))))


def bits(frame: pl.DataFrame) -> list:
    """Return the rows as sorted texts that differ whenever a bit of a row does."""
    exact = frame.with_columns(
        pl.col(name).map_elements(lambda x: x.hex() if math.isfinite(x) else str(x), return_dtype=pl.String)
        for name, dtype in frame.schema.items()
        if dtype.is_float()
    )
    return sorted(map(repr, exact.iter_rows()))


ALL = functions(made_rows(1, 1).schema)
GROUPED = {name: value for name, value in ALL.items() if not UNIT_FUNCTIONS[value.function].window}
STEPS = {
    "group by unit": GroupRows(("unit",), tuple(GROUPED.items())),
    "group by unit and key": GroupRows(("unit", "key"), tuple(GROUPED.items())),
    "windows": AddWindows(("unit",), tuple(ALL.items())),
    "windows by key": AddWindows(("key", "unit"), tuple(ALL.items())),
    "first rows": KeepFirst(("unit",), (SortColumn("when", nulls_last=True),), 2),
    "unique": KeepFirst(("unit", "key"), (), 1),
}


# ---------------------------------------------------------------------- neighbours


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_a_unit_that_is_removed_changes_no_other_row_by_a_bit(name):
    """Rows are shuffled and cut into chunks as well, with one unit or many beside. Each unit leaves rows of its own."""
    step = STEPS[name]
    for seed, unit in enumerate((0, 5, None)):
        frame = made_rows(160, seed)
        whole = result(step, frame)
        own = pl.col("unit").eq_missing(pl.lit(unit, dtype=pl.Int64))
        assert 0 < whole.filter(own).height < whole.height
        others = frame.filter(~own).sample(fraction=1, shuffle=True, seed=seed)
        chunks = pl.concat([others[:7], others[7:8], others[8:]], rechunk=False)
        assert bits(result(step, chunks)) == bits(whole.filter(~own)), (seed, unit)
        assert bits(result(step, frame.filter(own))) == bits(whole.filter(own)), (seed, unit)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("more", [(), (("key", "kind"),)])
def test_a_unit_that_is_removed_from_both_sides_of_a_join_changes_no_other_row(how, more):
    columns = (("real", "other"), ("when", "then")) if how in ("inner", "left") else ()
    step = JoinRows((("unit", "who"), *more), how, columns, ("unit",))
    for seed in range(4):
        first = made_rows(60, seed)
        second = made_rows(40, seed + 100).rename({"unit": "who", "key": "kind"})
        whole = result(step, first, second)
        for unit in (0, 3):
            left, right = first.filter(pl.col("unit").ne_missing(unit)), second.filter(pl.col("who").ne_missing(unit))
            left, right = (side.sample(fraction=1, shuffle=True, seed=seed) for side in (left, right))
            assert bits(result(step, left, right)) == bits(whole.filter(pl.col("unit").ne_missing(unit)))


def test_a_heavy_unit_keeps_some_rows_in_a_join_and_nobody_else_does(monkeypatch):
    monkeypatch.setattr(unit_steps, "MOST_PAIRS", 50)
    monkeypatch.setattr(unit_steps, "KEPT_IN_JOIN", 5)
    first = pl.DataFrame({"unit": [0] * 30 + [1] * 6 + [2] * 40, "x": range(76)})
    second = pl.DataFrame({"unit": [0] * 20 + [1] * 7 + [2], "y": range(28)})
    step = JoinRows((("unit", "unit"),), "inner", (("y", "y"),), ("unit",))
    found = result(step, first, second)
    assert found.filter(pl.col("unit") == 0).height == 25  # 600 pairs are too many, so 5 rows of each side are left
    assert found.filter(pl.col("unit") == 1).height == 42
    assert found.filter(pl.col("unit") == 2).height == 40  # a match per row, however many rows
    kept = {frozenset(result(step, first, second).filter(pl.col("unit") == 0)["x"]) for _ in range(20)}
    assert len(kept) > 1  # the choice is random


@pytest.mark.parametrize("name", ["pairs", "rows", "none", "literal", "\0size", "\0place", "\0hash", "\0key 0"])
@pytest.mark.parametrize("role", ["unit", "key", "x"])
def test_no_name_of_a_column_makes_a_join_fail_because_of_a_heavy_unit(monkeypatch, name, role):
    """Only rows of a heavy unit take this way, so a failure here would tell that somebody has many rows."""
    monkeypatch.setattr(unit_steps, "MOST_PAIRS", 3)
    monkeypatch.setattr(unit_steps, "KEPT_IN_JOIN", 2)
    frame = pl.DataFrame({"unit": [0, 0, 0, 1, 1, 2], "key": [1] * 6, "x": range(6)}).rename({role: name})
    unit, key, x = frame.columns
    for on in ((unit,), (unit, key)):
        step = JoinRows(tuple((own, own) for own in on), "inner", ((x, "other"),), (unit,))
        assert result(step, frame, frame).height == 4 + 4 + 1


def test_the_names_of_an_engines_own_columns_are_refused_when_a_step_is_planned():
    frame = polars_rows(pl.DataFrame({"unit": [1], "\0\0size": [1]}))
    for step in (GroupRows(("unit",), ()), JoinRows((("unit", "unit"),), "semi", ())):
        with pytest.raises(InvalidParameterError, match="reserved"):
            unit_rows(step, frame, frame)


# ---------------------------------------------------------------------- right answers


def in_order(rows: list[dict], value) -> list[dict]:
    """Sort rows as a function wants them, and those that tie by its column, null first."""
    ordered = sorted(rows, key=lambda row: [_rank(row[name]) for name in row])
    for one in reversed(value.order):
        ordered = sorted(ordered, key=lambda row, name=one.name: _rank(row[name]), reverse=one.descending)
        if one.descending and not one.nulls_last:
            ordered = sorted(ordered, key=lambda row, name=one.name: row[name] is not None)
    return ordered


def _rank(x):
    if isinstance(x, float):
        return (1, math.isnan(x), 0.0 if math.isnan(x) else x)
    return (x is not None, 0) if x is None else (1, x)


def expected(value, rows: list[dict], schema: pl.Schema):
    """Return a function of a group, computed in Python."""
    column = [row[value.column] for row in rows] if value.column else []
    there = [x for x in column if x is not None]
    numbers = [x for x in there if not (isinstance(x, float) and math.isnan(x))]
    match value.function:
        case "len":
            return len(rows)
        case "count":
            return len(there)
        case "n_unique" | "n_values":
            same = {"nan" if isinstance(x, float) and math.isnan(x) else x for x in column}
            return len(same - {None}) if value.function == "n_values" else len(same)
        case "any":
            return any(there)
        case "all":
            return all(there)
        case "min":
            return min(numbers, default=None)
        case "max":
            return max(numbers, default=None)
        case "median":
            return statistics.median(map(float, numbers)) if numbers else None
        case "sum" | "mean":
            return _added(value, there, schema)
        case "variance" | "variance_pop":
            return _variance(value, [float(x) for x in there])
        case "quantile":
            return _between(sorted(map(float, numbers)), Fraction(3, 10)) if numbers else None
        case "quantile_value":
            return sorted(numbers)[-(-7 * len(numbers) // 10) - 1] if numbers else None
        case "mode":
            return min(statistics.multimode(numbers), default=None)
    if value.function == "join":
        shown = in_order([{name: row[name] for name in (value.column, "when", "text")} for row in rows], value)
        return "|".join(row[value.column] for row in shown if row[value.column] is not None)
    ordered = in_order([{name: row[name] for name in (value.column, "when", "text")} for row in rows], value)
    return ordered[0 if value.function == "first" else -1][value.column]


def _variance(value, there: list[float]):
    fewer = value.function == "variance"
    if len(there) <= fewer:
        return None
    if not all(map(math.isfinite, there)):
        return math.nan
    exact = [Fraction(x) for x in there]
    mean = sum(exact) / len(exact)
    return float(sum((x - mean) ** 2 for x in exact) / (len(exact) - fewer))


def _between(numbers: list[float], share: Fraction) -> float:
    place = (len(numbers) - 1) * share
    low, high = numbers[math.floor(place)], numbers[math.ceil(place)]
    return low if low == high else low + (high - low) * float(place - math.floor(place))


def _added(value, there: list, schema: pl.Schema):
    dtype = schema[value.column]
    if value.function == "mean" and not there:
        return None
    if dtype.is_float():
        if not all(map(math.isfinite, there)):
            return math.nan if math.inf in there and -math.inf in there else math.fsum(there)
        exact = sum(map(Fraction, there), Fraction(0))
        return float(exact) if value.function == "sum" else float(exact) / len(there)
    total = sum(there, timedelta(0) if isinstance(dtype, pl.Duration) else Decimal(0) if dtype.is_decimal() else 0)
    if value.function == "mean":
        return total / len(there)
    return _stored(total)


def _stored(total):
    """Return a sum, or None if it does not fit: integers into 64 bits, decimals into the digits of `LARGEST`."""
    if isinstance(total, Decimal):
        return total if abs(total) <= LARGEST else None
    return None if isinstance(total, int) and not -(2**63) <= total < 2**63 else total


def same(found, wanted, exact: bool) -> bool:
    if isinstance(wanted, float) and found is not None:
        close = math.isclose(found, wanted, rel_tol=0 if exact else 1e-12, abs_tol=0)
        return found == wanted or close or (math.isnan(found) and math.isnan(wanted))
    return found == wanted and (found is None) == (wanted is None)


@pytest.fixture
def exact_decimals():
    with decimal.localcontext(prec=90):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("exact_decimals")
@pytest.mark.parametrize("keys", [("unit",), ("unit", "key")])
def test_groups_have_the_values_of_a_slow_reference(keys):
    for seed in range(6):
        # Sums of large floats of both signs are compared where they are exact: without 1e300.
        frame = made_rows(80, seed).with_columns(
            pl.when(pl.col("float").abs() < 1e299).then("float"), text=pl.col("text").str.replace_all("ä", "b")
        )
        found = result(GroupRows(keys, tuple(GROUPED.items())), frame)
        groups: dict = {}
        for row in frame.with_columns(size=pl.col("size").to_physical()).iter_rows(named=True):
            groups.setdefault(tuple(row[key] for key in keys), []).append(row)
        assert found.height == len(groups)
        for row in found.iter_rows(named=True):
            rows = groups[tuple(row[key] for key in keys)]
            for name, value in GROUPED.items():
                wanted = expected(value, rows, frame.schema)
                if value.column == "size" and isinstance(row[name], str) and wanted is not None:
                    wanted = ["s", "m", "l"][wanted]
                assert same(row[name], wanted, exact=False), (seed, name, row[name], wanted)


def test_sums_of_floats_are_exact_to_the_last_bit_or_two():
    dice = random.Random(3)
    values = [dice.uniform(-1, 1) * 10.0 ** dice.randint(-200, 200) for _ in range(4000)]
    frame = pl.DataFrame({"unit": [i % 400 for i in range(4000)], "x": values})
    step = GroupRows(("unit",), (("sum", unit_value("sum", "x", frame.schema)),))
    for unit, total in result(step, frame).iter_rows():
        wanted = float(sum(map(Fraction, values[unit::400]), Fraction(0)))
        assert math.isclose(total, wanted, rel_tol=1e-15)


def test_one_units_floats_of_all_sizes_cost_no_memory_for_the_rows_of_others():
    """What is held while floats are added up has a fixed width, and rows for the powers of each unit's own floats."""
    plain = pl.DataFrame({"unit": [i // 5 for i in range(500)], "x": [1.5 + i for i in range(500)]})
    sizes = pl.DataFrame({"unit": [-1] * 66, "x": [2.0**power for power in range(-1074, 1024, 32)]})
    alone = unit_steps._added_digits(plain, "x", ["unit"])
    beside = unit_steps._added_digits(pl.concat([plain, sizes]), "x", ["unit"])
    assert bits(beside.filter(pl.col("unit") >= 0)) == bits(alone)
    assert alone.height <= 4 * 100
    assert beside.width == alone.width


@pytest.mark.slow
@pytest.mark.usefixtures("exact_decimals")
def test_windows_have_the_values_of_a_slow_reference():
    for seed in range(6):
        frame = made_rows(60, seed).with_columns(
            pl.when(pl.col("float").abs() < 1e299).then("float"), size=pl.lit("s", dtype=pl.Enum(["s", "m", "l"]))
        )
        windows = {name: value for name, value in ALL.items() if UNIT_FUNCTIONS[value.function].window}
        found = result(AddWindows(("unit",), tuple(windows.items())), frame)
        assert found.height == frame.height
        groups: dict = {}
        for row in found.iter_rows(named=True):
            groups.setdefault(row["unit"], []).append(row)
        for rows in groups.values():
            assert sorted(row["row_number None 0"] for row in rows) == list(range(1, len(rows) + 1))
            by_number = sorted(rows, key=lambda row: row["row_number None 0"])
            check_windows(by_number, windows)


def check_windows(rows: list[dict], windows: dict) -> None:
    """Check all windows of one group, whose rows stand in the order of their numbers."""
    places = [(row["when"], row["text"]) for row in rows]
    for one, other in pairwise(places):
        first = (one[0] is not None, -(one[0] or 0))
        second = (other[0] is not None, -(other[0] or 0))
        assert first <= second
        if first == second:
            assert _rank(one[1]) <= _rank(other[1])
    for name, value in windows.items():
        column = [row[value.column] for row in rows] if value.column else []
        found = [row[name] for row in rows]
        match value.function:
            case "row_number":
                wanted = list(range(1, len(rows) + 1))
            case "rank":
                wanted = [places.index(place) + 1 for place in places]
            case "dense_rank":
                distinct = list(dict.fromkeys(places))
                wanted = [distinct.index(place) + 1 for place in places]
            case "shift":
                moved = [i - value.offset for i in range(len(rows))]
                wanted = [column[i] if 0 <= i < len(rows) else None for i in moved]
            case "cum_count":
                wanted = [sum(x is not None for x in column[: i + 1]) for i in range(len(rows))]
            case "cum_min" | "cum_max":
                wanted = _running(column, min if value.function == "cum_min" else max)
            case function if function.startswith("frame_"):
                wanted = [_of_frame(value, column, i) for i in range(len(rows))]
            case _:
                wanted = _running_sums(column)
        for got, want in zip(found, wanted, strict=True):
            want = _stored(want) if value.function in ("cum_sum", "frame_sum") else want
            assert same(got, want, exact=value.function not in ("cum_sum", "frame_sum")), (name, found, wanted)


def _of_frame(value, column: list, place: int):
    """Return a function of the rows around a row, as slices of a list."""
    start, end, _ = value.frame
    first = 0 if start is None else max(place + start, 0)
    last = len(column) - 1 if end is None else place + end
    rows = column[first : max(last + 1, 0)]
    there = [x for x in rows if x is not None]
    numbers = [x for x in there if not (isinstance(x, float) and math.isnan(x))]
    match value.function:
        case "frame_count":
            return len(there)
        case "frame_first":
            return rows[0] if rows else None
        case "frame_last":
            return rows[-1] if rows else None
        case "frame_min":
            return min(numbers, default=None)
        case "frame_max":
            return max(numbers, default=None)
    if start is not None and end is None:
        there = there[::-1]
    return sum(there[1:], start=there[0]) if there else value.dtype.to_python()(0)


def _running(column, choose):
    wanted, best = [], None
    for x in column:
        usable = x is not None and not (isinstance(x, float) and math.isnan(x))
        best = x if usable and best is None else choose(best, x) if usable else best
        wanted.append(None if x is None else math.nan if best is None else best)
    return wanted


def _running_sums(column):
    wanted, total = [], None
    for x in column:
        if x is not None:
            total = (x + 0 if not isinstance(x, timedelta) else x) if total is None else total + x
        wanted.append(None if x is None else total)
    return wanted


def test_joins_match_rows_of_the_same_unit():
    first = pl.DataFrame({"unit": [1, 1, 2, None, 3], "x": [10, 11, 20, 0, 30]})
    second = pl.DataFrame({"who": [1, 2, 2, None], "y": ["a", "b", "c", "d"]})
    on = (("unit", "who"),)
    inner = result(JoinRows(on, "inner", (("y", "letter"),), ("unit",)), first, second)
    assert sorted(inner.rows()) == [(1, 10, "a"), (1, 11, "a"), (2, 20, "b"), (2, 20, "c")]
    left = result(JoinRows(on, "left", (("y", "letter"),), ("unit",)), first, second)
    assert left.columns == ["unit", "x", "letter"]
    assert left.height == 6  # a unit that is null matches nothing
    assert set(result(JoinRows(on, "semi", (), ("unit",)), first, second)["x"]) == {10, 11, 20}
    # One null on the other side must not empty everybody's result, as NOT IN does in SQL.
    assert set(result(JoinRows(on, "anti", (), ("unit",)), first, second)["x"]) == {0, 30}


def test_the_sum_and_the_mean_of_a_column_share_its_digits(monkeypatch):
    frame = pl.DataFrame({"unit": [1, 1, 2, 2], "x": [0.1, 0.2, 1e300, None], "y": [1.0, 2.0, 3.0, 4.0]})
    split, honest = [], unit_steps._added_digits

    def counted(rows, name, keys):
        split.append(name)
        return honest(rows, name, keys)

    monkeypatch.setattr(unit_steps, "_added_digits", counted)
    values = tuple((f"{how} {name}", unit_value(how, name, frame.schema)) for name in "xy" for how in ("sum", "mean"))
    found = result(GroupRows(("unit",), values), frame).sort("unit")
    assert found.rows() == [(1, 0.1 + 0.2, (0.1 + 0.2) / 2, 3.0, 1.5), (2, 1e300, 1e300, 7.0, 3.5)]
    assert sorted(split) == ["x", "y"]


KEYS = {
    "dense": ([3, 1, None, 2, 9, 3], [2, 3, None, 7, 1], pl.Int64),
    "a key twice": ([3, 1, None, 2, 9, 3], [2, 3, None, 3, None], pl.Int64),
    "one side of customers": ([3, 1, None, 2], [2, 3, None, 3, 2, 8], pl.Int64),
    "small integers": ([-128, 127, None, 0, 5], [-128, 127, 126], pl.Int8),
    "no sign": ([2**32 - 1, 0, None, 7], [2**32 - 1, 2**32 - 2], pl.UInt32),
    "the ends of a type": ([-(2**63), 2**63 - 1, None, 0], [2**63 - 1, 2**63 - 3], pl.Int64),
    "the other end of a type": ([-(2**63), 2**63 - 1, None, -1], [-(2**63), -(2**63) + 2], pl.Int64),
    "far apart": ([-(2**63), 2**63 - 1, None, 0], [2**63 - 1, -(2**63), 0], pl.Int64),
    "large without sign": ([2**64 - 1, None, 0], [2**64 - 1, 0], pl.UInt64),
    "no keys": ([1, None], [None, None], pl.Int64),
    "no rows": ([1, None], [], pl.Int64),
    "texts": (["a", None, "b", "a"], ["a", "c", None], pl.String),
}


@pytest.mark.parametrize(("mine", "theirs", "dtype"), KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("wanted", [{}, {"n": "m", "t": "t", "f": "f", "b": "b"}, {"g": "g", "w": "w", "u": "u"}])
def test_rows_are_looked_up_as_polars_joins_them(how, mine, theirs, dtype, wanted):
    """Integer keys without duplicates are looked up in a table, and all others joined by Polars."""
    places = range(len(theirs))
    first = pl.DataFrame({"user": pl.Series(mine, dtype=dtype), "n": range(len(mine))})
    second = pl.DataFrame(
        {
            "who": pl.Series(theirs, dtype=dtype),
            "n": pl.Series([place * 11 for place in places], dtype=pl.Int16),
            "t": [f"text {place}" for place in places],
            "f": pl.Series([None if place == 1 else place / 3 for place in places], dtype=pl.Float64),
            "b": pl.Series([place % 2 == 0 for place in places], dtype=pl.Boolean),
            "g": pl.Series([place / 3 for place in places], dtype=pl.Float64),
            "w": pl.Series([(-1) ** place * (2**62 + place) for place in places], dtype=pl.Int64),
            "u": pl.Series([2**64 - 1 - place for place in places], dtype=pl.UInt64),
        }
    )
    wanted = wanted if how in ("inner", "left") else {}
    step = JoinRows((("user", "who"),), how, tuple(wanted.items()), ("user",))
    found = unit_steps._joined(first, second, step, wanted)
    plain = first.join(second.rename(wanted), left_on="user", right_on="who", how=how, nulls_equal=False)
    names = [*first.columns, *wanted.values()]
    order = [name for name in names if name != "f"]
    found, plain = (one.select(names).sort(order, nulls_last=True) for one in (found, plain))
    assert found.schema == plain.schema
    assert found.equals(plain)


def test_which_keys_are_looked_up_in_a_table():
    """Otherwise the test above would compare Polars with itself."""
    looked_up = {
        name: unit_steps._KeyTable.of(pl.Series(theirs, dtype=dtype), len(mine)) is not None
        for name, (mine, theirs, dtype) in KEYS.items()
    }
    assert [name for name, found in looked_up.items() if not found] == [
        "a key twice", "one side of customers", "small integers", "far apart", "large without sign", "no keys",
        "no rows", "texts",
    ]  # fmt: skip
    keys, known = pl.Series("k", [-128, 127, None, 0], dtype=pl.Int8), pl.Series([127, -128], dtype=pl.Int8)
    wide = unit_steps._KeyTable.of(known, 4, most_per_row=100)
    places = pl.DataFrame({"place": [0, 1]})
    assert wide.joined(keys.to_frame(), keys, places, "left")["place"].to_list() == [1, 0, None, None]
    assert unit_steps._KeyTable.of(pl.Series([2, 2]), 2) is None
    twice = unit_steps._KeyTable.of(pl.Series([2, 2]), 2, several=True)
    looked_for = pl.Series("k", [3, 2])
    assert twice.joined(looked_for.to_frame(), looked_for, places, "semi")["k"].to_list() == [2]


def test_tables_below_each_other_keep_all_rows():
    one, two = pl.DataFrame({"unit": [1, 2], "x": [1, 2]}), pl.DataFrame({"x": [3], "unit": [1]})
    assert sorted(result(StackRows(), one, two.select("unit", "x")).rows()) == [(1, 1), (1, 3), (2, 2)]
    with pytest.raises(InvalidParameterError, match="same columns and types"):
        unit_rows(StackRows(), polars_rows(one), polars_rows(two.cast({"x": pl.Float64})))


def test_steps_compose_with_each_other_and_with_row_wise_steps():
    frame = pl.DataFrame({"unit": [1, 1, 1, 2, 2], "x": [5, 7, 7, 1, 9]})
    rows = polars_rows(frame)
    rows = rows.filter(apply("gt", Column("x", pl.Int64()), Constant(4, pl.Int64())))
    rows = unit_rows(GroupRows(("unit", "x"), (("n", unit_value("len", None, rows.schema)),)), rows)
    rows = rows.make({"double": apply("mul", Column("n", pl.Int64()), Constant(2, pl.Int64()))})
    rows = unit_rows(GroupRows(("unit",), (("most", unit_value("max", "double", rows.schema)),)), rows)
    assert sorted(read_rows(unit_steps.without_unit_steps(rows)).rows()) == [(1, 4), (2, 2)]


def test_rows_of_a_duckdb_table_are_combined_alike():
    frame = made_rows(200, 5).select("unit", "key", "when", "int", "real", "text")
    connection = duckdb.connect()
    connection.register("given", frame)
    connection.execute("CREATE TABLE rows AS FROM given")
    columns = {name: TableColumn(f'"{name}"', dtype) for name, dtype in frame.schema.items()}
    table = table_rows(ReadTransaction(connection.cursor), ("memory", "main", "rows"), columns)
    picked = {name: one for name, one in ALL.items() if one.column in (None, "int", "real", "text")}
    for step in (AddWindows(("unit",), tuple(picked.items())), STEPS["unique"]):
        assert bits(read_rows(unit_steps.without_unit_steps(unit_rows(step, table)))) == bits(result(step, frame))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*STEPS, "join"])
def test_parts_give_the_same_rows(name):
    frame, other = made_rows(300, 6), made_rows(80, 7).rename({"unit": "who"})
    step = STEPS.get(name, JoinRows((("unit", "who"),), "left", (("real", "theirs"),), ("unit",)))
    rows = unit_rows(step, *map(polars_rows, [frame, other] if name == "join" else [frame]))
    whole = bits(read_rows(unit_steps.without_unit_steps(rows)))
    for parts in (2, 5):
        assert bits(read_rows(unit_steps.without_unit_steps(rows, parts))) == whole


# ---------------------------------------------------------------------- refusals and derived caps


def test_a_step_that_combines_different_units_is_refused():
    rows = polars_rows(made_rows(5, 1))
    length = (("n", unit_value("len", None, rows.schema)),)
    for step in (GroupRows(("key",), length), AddWindows(("key",), length), KeepFirst(("key",), (), 1)):
        with pytest.raises(InvalidParameterError, match="rows of different people would be combined"):
            with_units(unit_rows(step, rows), ["unit"])
    fine = unit_rows(GroupRows(("unit", "key"), length), rows)
    with_units(fine, ["unit"])
    # The step in between counts too, and so does each side of a join.
    bad = unit_rows(AddWindows(("key",), length), rows)
    joined = unit_rows(JoinRows((("unit", "unit"),), "semi", ()), rows, bad)
    for after in (unit_rows(GroupRows(("unit",), length), bad), joined):
        with pytest.raises(InvalidParameterError, match="rows of different people would be combined"):
            with_units(after, ["unit"])
    with pytest.raises(InvalidParameterError, match="Name unit in the keys of the join"):
        with_units(unit_rows(JoinRows((("key", "key"),), "semi", ()), rows, rows), ["unit"])
    with pytest.raises(InvalidParameterError, match="every row is a person of its own"):
        with_units(fine, [])
    with pytest.raises(InvalidParameterError, match="Name key in group_by"):
        with_units(unit_rows(GroupRows(("unit",), length), rows), ["unit", "key"])


def test_an_order_is_needed_where_the_result_depends_on_it():
    schema = made_rows(1, 1).schema
    for name, function in UNIT_FUNCTIONS.items():
        if function.ordered:
            with pytest.raises(ExpressionNotAllowed, match="depends on the order of the rows"):
                unit_value(name, ("text" if name == "join" else "int") if function.argument else None, schema)


def test_types_that_have_no_order_are_refused():
    rows = polars_rows(pl.DataFrame({"unit": [1], "list": [[1]]}))
    with pytest.raises(InvalidParameterError, match="list can't be sorted by"):
        unit_rows(KeepFirst(("unit",), (), 1), rows)
    with pytest.raises(InvalidParameterError, match="can't be compared within a unit"):
        unit_rows(GroupRows(("unit", "list"), ()), rows)
    with pytest.raises(ExpressionNotAllowed, match="does not take values of type"):
        unit_value("max", "list", rows.schema)
    with pytest.raises(ExpressionNotAllowed, match="does not take values of type"):
        unit_value("sum", "x", pl.Schema({"x": pl.String()}))


def test_unique_columns_follow_from_the_steps():
    rows = polars_rows(made_rows(5, 1))
    length = (("n", unit_value("len", None, rows.schema)),)
    grouped = unit_rows(GroupRows(("unit", "key"), length), rows)
    assert unique_columns(rows) is None
    assert unique_columns(grouped) == {"unit", "key"}
    assert unique_columns(grouped.keep(["unit", "n"])) is None
    renamed = grouped.make({"unit": Column("unit", pl.Int64()), "kind": Column("key", pl.String())}, keep=False)
    assert unique_columns(renamed) == {"unit", "kind"}
    changed = grouped.make({"key": apply("is_null", Column("key", pl.String()))})
    assert unique_columns(changed) is None
    public = pl.DataFrame({"key": ["x", "x"], "z": [1, 2]})
    multiplied = grouped.lookup(public, on=[("key", "key")], how="inner", columns={"z": "z"}, unique=False)
    assert unique_columns(multiplied) is None
    assert unique_columns(unit_rows(KeepFirst(("unit",), (), 1), rows)) == {"unit"}
    assert unique_columns(unit_rows(KeepFirst(("unit",), (), 2), rows)) is None
    one = unit_rows(GroupRows(("unit",), length), rows)
    on, taken = (("unit", "unit"),), (("n", "n"),)
    assert unique_columns(unit_rows(JoinRows(on, "inner", taken), one, one.make({"n": Column("n", pl.Int64())}))) == {
        "unit"
    }
    assert unique_columns(unit_rows(JoinRows(on, "inner", ()), one, rows)) is None
    assert isinstance(one, PrivateRows)
