"""Every operation that Spark computes gives the value of the Polars engine on hostile values; the others are refused.

The trees and values are those of `tests/expressions/test_evidence.py`. Zeros of both signs count as equal, because no
question can tell them apart.
"""

import math

import polars as pl
import pytest

from dp_polars._engines.polars.program import Program
from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.spark.engine import read_rows
from dp_polars._engines.spark.lowering import LOWERINGS, NotInSpark, check_lowered
from dp_polars._engines.spark.source import SparkSource
from dp_polars._engines.spark.types import stored_type
from dp_polars._expressions import OPERATIONS, Apply, Column, apply
from dp_polars._expressions.tree import walk
from tests.engines.spark.test_aggregation import spark_frame
from tests.expressions.test_evidence import ROWS, TYPES, trees_of

pytestmark = pytest.mark.slow

IN_SPARK = [pl.Boolean(), pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.Float32(), pl.Float64(), pl.String(),
            pl.Date(), pl.Datetime("us"), pl.Datetime("us", "UTC"), pl.Decimal(10, 4)]  # fmt: skip
"""The types of Spark's columns, without bytes and wide decimals, which no operation takes."""


@pytest.fixture(scope="module")
def hostile(spark):
    """All hostile values that a Spark frame can hold, with the number of the row, and what Polars makes of them.

    Spark's local times have the years 1 to 9999; others are read as null.
    """
    names = [f"{place}{TYPES.index(dtype)}" for place in "xyz" for dtype in IN_SPARK]
    frame = ROWS.select(names).with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    rows = PrivateRows(SparkSource(spark_frame(spark, frame)))
    local = [name for name, dtype in frame.schema.items() if dtype == pl.Datetime("us")]
    inside = [
        pl.col(name).to_physical().is_between(-62_135_596_800 * 10**6, 253_402_300_800 * 10**6 - 1) for name in local
    ]
    frame = frame.with_columns(
        pl.when(one).then(pl.col(name)).alias(name) for name, one in zip(local, inside, strict=True)
    )
    return frame, rows, {}


def lowered_trees(operation):
    """Return the trees of an operation over types that Spark has, each with whether Spark computes it.

    Of the many pairs of different types, every fifth is taken: their arguments are converted to one type first.
    """
    found = [tree for sample in operation.samples for tree in trees_of(operation, sample)]
    equal = [len({one.dtype for one in tree.arguments}) == 1 and tree.depth == 1 for tree in found]
    found = [tree for place, tree in enumerate(found) if equal[place] or operation.arity == 1 or place % 5 == 0]
    usable = {f"{place}{TYPES.index(dtype)}" for place in "xyz" for dtype in IN_SPARK}
    return [
        (tree, is_lowered(tree)) for tree in found if tree.columns <= usable and stored_type(tree.dtype) is not None
    ]


def is_lowered(tree):
    try:
        check_lowered(tree)
    except NotInSpark:
        return False
    return True


def written(value):
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value + 0.0).hex()
    return value


def values(series):
    if isinstance(series.dtype, pl.Enum):
        series = series.cast(pl.String)
    return [written(one) for one in (series.to_physical() if series.dtype.is_temporal() else series).to_list()]


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name in LOWERINGS])
def test_an_operation_gives_the_value_of_polars(name, hostile, ansi):
    frame, rows, polars_values = hostile
    if name not in polars_values:  # they are the same in both modes of Spark
        trees = [tree for tree, lowered in lowered_trees(OPERATIONS[name]) if lowered]
        polars_values[name] = trees, [values(wanted) for wanted in Program(trees).columns(frame)]
    trees, wanted = polars_values[name]
    assert trees, "a lowering that no tree reaches is not tested"
    made = {"row": Column("row", pl.Int64()), **{f"o{place}": tree for place, tree in enumerate(trees)}}
    found = read_rows(rows.make(made, keep=False), list(made)).sort("row")
    for place, one in enumerate(wanted):
        assert values(found[f"o{place}"]) == one, trees[place]


def test_durations_at_the_limits_of_64_bits_are_cast_as_in_polars(spark, ansi):
    """No division, and no product, of the least and the largest number of ticks fails or wraps."""
    limits = [-(2**63), 1 - 2**63, 999 - 2**63, -1, 0, 2**63 - 1, None]
    frame = pl.DataFrame({"row": range(len(limits)), "x": limits})
    ticks = {unit: apply("cast", Column("x", pl.Int64()), to=pl.Duration(unit)) for unit in ("ms", "us", "ns")}
    trees = [apply("cast", one, to=pl.Duration(unit)) for one in ticks.values() for unit in ticks]
    made = {"row": Column("row", pl.Int64()), **{f"o{place}": tree for place, tree in enumerate(trees)}}
    rows = PrivateRows(SparkSource(spark_frame(spark, frame)))
    found = read_rows(rows.make(made, keep=False), list(made)).sort("row")
    for place, wanted in enumerate(Program(trees).columns(frame)):
        assert values(found[f"o{place}"]) == values(wanted), trees[place]


def test_every_other_operation_is_refused_by_its_name():
    assert set(LOWERINGS) <= set(OPERATIONS)
    for operation in OPERATIONS.values():
        for tree, lowered in lowered_trees(operation):
            applied = {one.operation for one in walk(tree) if isinstance(one, Apply)}
            if not applied <= set(LOWERINGS):
                assert not lowered
                with pytest.raises(NotInSpark, match="has no exact equivalent in Spark SQL"):
                    check_lowered(tree)
