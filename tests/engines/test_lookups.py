"""Lookups that Polars does by itself find what evaluation by batch finds."""

import itertools

import polars as pl
import pytest

from dp_polars._engines.polars.evaluation import Evaluation
from dp_polars._engines.polars.scan import _native_first, _natively, lazy_rows, polars_rows, scan_rows, wider_rows
from dp_polars._engines.rows import Lookup
from dp_polars._expressions import Column, Constant, apply
from dp_polars._expressions.hostile import hostile_frame

TYPES = [
    *(pl.Boolean(), pl.Int8(), pl.Int64(), pl.UInt64(), pl.String(), pl.Date(), pl.Datetime("us"), pl.Datetime("ns")),
    *(pl.Decimal(10, 2), pl.Enum(["a", "b", "c"])),
]
HOWS = ("inner", "left", "semi", "anti")


def frames(dtype):
    """Return hostile private rows, and every second of their values as public keys. Both contain null."""
    private = hostile_frame({"x": dtype}).with_row_index("row")
    keys = pl.concat(
        [private["x"].drop_nulls().unique(maintain_order=True).gather_every(2), pl.Series([None], dtype=dtype)]
    )
    public = pl.DataFrame({"k": keys}).with_row_index("number").with_columns(text=pl.col("number").cast(pl.String))
    return private, public


def looked_up(private, public, how, *, nulls_equal):
    rows = polars_rows(private.lazy())
    columns = {} if how in ("semi", "anti") else {"number": "number", "text": "word"}
    return rows.lookup(public, on=[("x", "k")], how=how, columns=columns, nulls_equal=nulls_equal)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("nulls_equal", [False, True])
def test_polars_finds_what_the_usual_way_finds(dtype, how, nulls_equal):
    private, public = frames(dtype)
    rows = looked_up(private, public, how, nulls_equal=nulls_equal)
    (step,) = rows.steps
    assert _native_first(private.columns, rows.steps) == ([step], [])
    usual = Evaluation(rows.steps, list(rows.schema))(private)
    scan = scan_rows(rows)
    scan.begin()
    found = scan.frame.collect(engine="streaming")
    scan.check(found.height)
    assert found.sort("row").equals(usual.sort("row"))
    for place in range(0, private.height, max(1, private.height // 7)):
        alone = _natively(private.slice(place, 1).lazy(), step).collect(engine="streaming")
        assert alone.equals(usual.filter(pl.col("row") == place).select(alone.columns))


def test_several_lookups_and_filters_between_them_come_out_as_one_by_one():
    private = pl.DataFrame({"row": range(1000), "a": [i % 7 for i in range(1000)], "v": [i / 3 for i in range(1000)]})
    first = pl.DataFrame({"a": range(5), "zone": ["n", "s", None, "n", "w"]})
    second = pl.DataFrame({"zone": ["n", "w", None], "land": [1, 2, 3]})
    rows = polars_rows(private.lazy()).lookup(first, on=[("a", "a")], how="left", columns={"zone": "zone"})
    rows = rows.make({"z": Column("zone", pl.String())})
    rows = rows.filter(apply("lt", Column("v", pl.Float64()), Constant(300.0, pl.Float64())))
    rows = rows.lookup(second, on=[("z", "zone")], how="inner", columns={"land": "land"})
    native, rest = _native_first(private.columns, rows.steps)
    assert len(native) == 4
    assert not rest
    usual = Evaluation(rows.steps, list(rows.schema))(private)
    found = lazy_rows(rows).collect(engine="streaming")
    assert found.sort("row").equals(usual.sort("row"))
    assert set(found["land"]) == {1, 2}


@pytest.mark.parametrize(
    "public",
    [pl.DataFrame({"k": [1, 1], "n": [1, 2]}), pl.DataFrame({"k": [1, 2], "n": [[1], [2]]})],
    ids=["keys that are there twice", "lists"],
)
def test_other_lookups_stay_with_the_usual_way(public):
    rows = polars_rows(pl.LazyFrame({"x": [1, 2]}))
    rows = rows.lookup(public, on=[("x", "k")], how="inner", columns={"n": "n"}, unique=False)
    assert _native_first(["x"], rows.steps) == ([], list(rows.steps))


def test_a_join_without_keys_is_one_with_every_public_row():
    rows = polars_rows(pl.LazyFrame({"x": [1, 2]}))
    one = rows.lookup(pl.DataFrame({"n": [5]}), on=[], how="inner", columns={"n": "n"}, unique=False)
    assert lazy_rows(one).collect(engine="streaming").rows() == [(1, 5), (2, 5)]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_look_without_lookups_sees_every_value_that_there_is(how):
    private = pl.DataFrame({"user": range(100), "a": [i % 9 for i in range(100)], "b": [i % 4 for i in range(100)]})
    public = pl.DataFrame({"k": range(5), "zone": ["n", "s", None, "n", "w"]})
    rows = polars_rows(private.lazy()).filter(apply("gt", Column("a", pl.Int64()), Constant(1, pl.Int64())))
    rows = rows.lookup(public, on=[("a", "k")], how=how, columns={"zone": "zone"})
    rows = rows.filter(apply("ne", Column("zone", pl.String()), Constant("w", pl.String())))
    rows = rows.make(
        {"u": Column("user", pl.Int64()), "z": Column("zone", pl.String()), "b": Column("b", pl.Int64())}, keep=False
    )
    for names in itertools.chain(*(itertools.permutations(["u", "z", "b"], n) for n in (1, 2, 3))):
        whole = set(lazy_rows(rows, names).collect().rows())
        seen = set(lazy_rows(wider_rows(rows, names), names).collect().rows())
        assert whole <= seen
    assert not any(isinstance(step, Lookup) for step in wider_rows(rows, ["u"]).steps)
    assert wider_rows(rows, ["z"]).source_schema.names() == ["zone"]
