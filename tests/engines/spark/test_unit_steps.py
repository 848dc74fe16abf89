"""Unit-wise steps on Spark give the rows of Polars to the last bit, and a unit that is removed changes no other row."""

from dataclasses import replace

import polars as pl
import pytest

from dp_polars._engines.polars.scan import polars_rows
from dp_polars._engines.polars.unit_steps import without_unit_steps
from dp_polars._engines.polars.scan import read_rows as polars_read
from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.spark.engine import SparkEngine, read_rows
from dp_polars._engines.spark.source import SparkSource
from dp_polars._engines.unit_steps import AddWindows, GroupRows, JoinRows, KeepFirst, LabelRows, StackRows, unit_rows
from dp_polars._expressions.unit_functions import UNIT_FUNCTIONS, SortColumn
from dp_polars.errors import ExpressionNotAllowed
from tests.engines.spark.test_aggregation import spark_frame
from tests.engines.test_unit_steps import bits, functions, made_rows

pytestmark = pytest.mark.slow

HERE = ("unsigned", "span", "size")
"""Columns whose types Spark does not have."""


def rows_of(seed, rows=160):
    return made_rows(rows, seed).drop(HERE)


def functions_here(schema):
    named = {name: one for name, one in functions(made_rows(1, 1).schema).items() if one.column not in HERE}
    assert schema
    return named


def is_lowered(step, *frames):
    try:
        unit_rows(step, *frames)
    except ExpressionNotAllowed:
        return False
    return True


def on_spark(rows):
    return read_rows(rows, list(rows.schema))


def on_polars(rows):
    return polars_read(without_unit_steps(rows))


@pytest.fixture(scope="module")
def lowered(spark):
    """The functions that Spark computes, by their names."""
    frame = PrivateRows(SparkSource(spark_frame(spark, rows_of(1))))
    found = {}
    for name, value in functions_here(frame.schema).items():
        window = UNIT_FUNCTIONS[value.function].window
        step = AddWindows(("unit",), ((name, value),)) if window else GroupRows(("unit",), ((name, value),))
        if is_lowered(step, frame):
            found[name] = value
    return found


def test_print(lowered):
    print(sorted(lowered))


def compare(step, spark, *frames):
    far = [PrivateRows(SparkSource(spark_frame(spark, one))) for one in frames]
    a=bits(on_spark(unit_rows(step, *far))); b=bits(on_polars(unit_rows(step, *map(polars_rows, frames))))
    assert len(a)==len(b), (len(a), len(b))
    bad=[(x,y) for x,y in zip(a,b) if x!=y]
    assert not bad, bad[:2]


@pytest.mark.parametrize("keys", [("unit",), ("key", "unit"), ("unit", "float"), ("unit", "text", "flag"), ("unit","money")])
def test_groups(spark, lowered, keys):
    bad=[]
    for name, one in lowered.items():
        if UNIT_FUNCTIONS[one.function].window or one.column in keys: continue
        try: compare(GroupRows(keys, ((name, one),)), spark, rows_of(3, 400))
        except Exception as e: bad.append((name, repr(e)[:300]))
    assert not bad, bad


@pytest.mark.parametrize("keys", [("unit",), ("key", "unit")])
def test_windows(spark, lowered, keys):
    bad=[]
    for name, one in lowered.items():
        try: compare(AddWindows(keys, ((name, one),)), spark, rows_of(4))
        except Exception as e: bad.append((name, repr(e)[:300]))
    assert not bad, bad
