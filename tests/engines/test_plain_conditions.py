"""Conditions that Polars and DuckDB apply by themselves keep the rows that evaluation by batch keeps."""

import itertools
from functools import cache

import duckdb
import numpy as np
import polars as pl
import pytest

from dp_polars._engines.duckdb.rows import ReadTransaction, TableColumn, plain_sql, quoted, table_rows
from dp_polars._engines.polars.lowering import _is_ordinary, is_plain, plain
from dp_polars._engines.polars.program import Program
from dp_polars._engines.polars.scan import polars_rows, scan_rows
from dp_polars._expressions import Column, Constant, apply
from dp_polars._expressions.hostile import hostile_frame

TYPES = [
    *(pl.Boolean(), pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.UInt8(), pl.UInt16(), pl.UInt32(), pl.UInt64()),
    *(pl.Float32(), pl.Float64(), pl.String(), pl.Date(), pl.Datetime("us"), pl.Datetime("ns"), pl.Datetime("ms")),
]
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def constants(dtype, frame):
    """Return some values of a column as constants, in their stored form."""
    values = frame["x"].drop_nulls()
    if dtype.is_float():
        values = values.filter(values.is_finite())
    whole = values.to_physical() if dtype.is_temporal() else values
    found = [Constant(value, dtype) for value in whole.unique(maintain_order=True).to_list()]
    return [one for one in found if _is_ordinary(one.value, dtype)][:4]


def conditions(dtype, frame):
    x = Column("x", dtype)
    found = [apply("is_null", x), apply("is_not_null", x)]
    listed = constants(dtype, frame)
    found += [apply(name, x, one) for name, one in itertools.product(COMPARISONS, listed)]
    found.append(apply("is_in", x, values=Constant(tuple(one.value for one in listed), pl.List(dtype))))
    found.append(apply("not", found[2]))
    found.append(apply("and", found[1], apply("or", *found[2:5])))
    return found


def kept(condition, frame):
    mask = Program([condition]).columns(frame)[0]
    return frame.with_row_index("row").filter(mask)["row"].to_list()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_polars_keeps_what_the_usual_way_keeps(dtype, engine):
    frame = hostile_frame({"x": dtype})
    tried = 0
    for condition in conditions(dtype, frame):
        if not is_plain(condition):
            continue
        tried += 1
        whole = frame.with_row_index("row")
        found = whole.lazy().filter(plain(condition)).collect(engine=engine)["row"].to_list()
        assert sorted(found) == kept(condition, frame)
        some = range(tried % 10, frame.height, 10)
        alone = [row for row in some if whole.slice(row, 1).filter(plain(condition)).height]
        assert alone == [row for row in kept(condition, frame) if row in some]
    assert tried > 4


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_duckdb_leaves_out_no_row_that_the_usual_way_keeps(dtype):
    frame = hostile_frame({"x": dtype})
    raw = duckdb.connect()
    raw.execute("SET default_collation = 'NOCASE'")
    raw.register("given", frame.with_row_index("row").to_arrow())
    raw.execute("CREATE TABLE t AS FROM given")
    columns = {"x": TableColumn(quoted("x"), dtype), "row": TableColumn(quoted("row"), pl.UInt32())}
    for condition in conditions(dtype, frame):
        text = plain_sql(condition, columns)
        if text is not None:
            found = [row for (row,) in raw.execute(f"SELECT row FROM t WHERE {text}").fetchall()]
            assert set(kept(condition, frame)) <= set(found)
        rows = table_rows(ReadTransaction(raw.cursor), ("memory", "main", "t"), columns).filter(condition)
        scan = scan_rows(rows, ["row"])
        scan.begin()
        answer = scan.frame.collect(engine="streaming")
        scan.check(answer.height)
        if dtype != pl.Datetime("ms"):
            assert sorted(answer["row"].to_list()) == kept(condition, frame)


def test_only_comparisons_with_constants_are_plain():
    x, y, s = Column("x", pl.Int64()), Column("y", pl.Int64()), Column("s", pl.String())
    one = Constant(1, pl.Int64())
    for condition in (
        apply("eq", x, y),
        apply("eq", apply("add", x, one), one),
        apply("contains", s, pattern="a", literal=True),
        apply("and", apply("eq", x, one), apply("eq", x, y)),
        apply("eq_missing", x, one),
        apply("eq", Column("l", pl.Duration("us")), Constant(1, pl.Duration("us"))),
    ):
        assert not is_plain(condition)


def test_rows_that_a_plain_condition_leaves_out_are_counted_as_read():
    frame = pl.DataFrame({"x": range(1000), "y": range(1000)})
    condition = apply("lt", Column("x", pl.Int64()), Constant(10, pl.Int64()))
    other = apply("gt", apply("add", Column("y", pl.Int64()), Constant(1, pl.Int64())), Constant(5, pl.Int64()))
    rows = polars_rows(frame.lazy()).filter(condition).filter(other)
    scan = scan_rows(rows)
    scan.begin()
    assert scan.frame.collect(engine="streaming").height == 5
    scan.check(5)
    assert scan.evaluation.read == 1000


ROW_GROUP = 122_880  # rows for which DuckDB keeps statistics together


@cache
def three_row_groups():
    return pl.Series("x", np.repeat([0.0, 5.0, -5.0], ROW_GROUP))


def float_condition(name, value):
    return apply(name, Column("x", pl.Float64()), Constant(value, pl.Float64()))


@cache
def kept_of_three(name, value):
    """Return which rows a condition keeps when none of them is odd."""
    return Program([float_condition(name, value)]).columns(pl.DataFrame([three_row_groups()]))[0].fill_null(False)


@pytest.mark.slow
@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf"), -0.0, None], ids=str)
def test_a_float_that_duckdb_keeps_statistics_of_decides_about_no_other_row(odd):
    """DuckDB skips row groups by their least and largest value, and one odd value must not hide others."""
    columns = {"x": TableColumn(quoted("x"), pl.Float64()), "row": TableColumn(quoted("row"), pl.UInt32())}
    raw = duckdb.connect()
    for place in (0, ROW_GROUP - 1, ROW_GROUP, 2 * ROW_GROUP + 7):
        values = three_row_groups().clone().scatter(place, [odd])
        raw.register("given", pl.DataFrame([values]).with_row_index("row").to_arrow())
        raw.execute("CREATE OR REPLACE TABLE t AS FROM given")
        tried = list(itertools.product(COMPARISONS, (0.0, -0.0, 5.0, 1e308, -1e308)))
        if place < ROW_GROUP:  # the first group has two places, and each of them sees a half of the conditions
            tried = tried[place % 2 :: 2]
        for name, value in tried:
            condition = float_condition(name, value)
            rows = table_rows(ReadTransaction(raw.cursor), ("memory", "main", "t"), columns).filter(condition)
            scan = scan_rows(rows, ["row"])
            scan.begin()
            found = scan.frame.collect(engine="streaming")
            scan.check(found.height)
            own = Program([condition]).columns(pl.DataFrame([values[place : place + 1]]))[0].fill_null(False)
            mask = kept_of_three(name, value).clone().scatter(place, own)
            assert found["row"].sort().equals(mask.arg_true().cast(pl.UInt32).alias("row"))
