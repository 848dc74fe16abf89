"""Lookups that Polars does by itself find what evaluation by batch finds."""

import itertools

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.polars import scan as scans
from dp_polars._engines.polars.evaluation import Evaluation
from dp_polars._engines.polars.program import RowCountError
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
    assert (len(native), len(rest)) == (1, 3)  # a filter after a lookup is applied batch by batch, and all after it
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


@pytest.mark.slow
@pytest.mark.parametrize("how", ["inner", "semi", "left", "anti"])
def test_a_lookup_among_no_public_rows_reads_every_private_row(how):
    """Polars stops reading one side of a join when the other is empty: it would depend on the number of rows."""
    public = pl.DataFrame(schema={"k": pl.Int64, "c": pl.String})
    for height in (0, 1, 400_000):
        private = pl.DataFrame({"x": pl.repeat(0, height, dtype=pl.Int64, eager=True)})
        rows = polars_rows(private.lazy()).lookup(public, on=[("x", "k")], how=how, columns={"c": "c"})
        for _ in range(3):
            scan = scan_rows(rows)
            scan.begin()
            found = scan.frame.collect(engine="streaming")
            scan.check(found.height)
            assert found.height == (height if how in ("left", "anti") else 0)


def test_a_filter_after_a_lookup_is_never_applied_to_the_public_rows_first():
    public = pl.DataFrame({"k": [0, 1], "zone": ["n", "s"]})
    private = pl.DataFrame({"x": pl.repeat(0, 400_000, dtype=pl.Int64, eager=True)})
    rows = polars_rows(private.lazy()).lookup(public, on=[("x", "k")], how="inner", columns={"zone": "zone"})
    rows = rows.filter(apply("eq", Column("zone", pl.String()), Constant("nowhere", pl.String())))
    native, rest = _native_first(["x"], rows.steps)
    assert (len(native), len(rest)) == (1, 1)
    scan = scan_rows(rows)
    scan.begin()
    found = scan.frame.collect(engine="streaming")
    scan.check(found.height)
    assert not found.height


@pytest.mark.slow
@pytest.mark.parametrize("how", ["semi", "anti"])
@pytest.mark.parametrize("values", [list("abcdefg"), list(range(7))], ids=["texts", "integers"])
def test_a_semi_join_leaves_a_column_alone_that_has_the_name_of_a_public_one(how, values):
    """One person's row decided whether the question failed: its key was looked up among the public column's values."""
    public = pl.DataFrame({"k": range(7), "c": values})
    for secret in (5, 777):
        frame = pl.DataFrame({"u": range(1000), "k": [i % 9 for i in range(1000)], "c": 0, "c_right": 1, "secret": 5})
        frame = frame.with_columns(secret=pl.when(pl.col("u") == 500).then(secret).otherwise("secret"))
        session = dp.Session(epsilon=1, delta=1e-6, unit="u", max_rows_per_group=1, max_groups=1)
        private = dp.private(frame, session).filter(pl.col("secret") == 777, pl.col("c_right") == 1)
        joined = private.join(public, on="k", how=how)
        joined.group_by("c_right").agg(n=dp.count(), epsilon=0.01)
        assert joined.count("c_right", keys=[1, 2], epsilon=0.1).columns == ["c_right", "count"]
        assert not session.closed


def test_a_join_that_would_replace_a_column_is_refused():
    frame = pl.DataFrame({"u": [1], "k": [1], "c": [0], "c_right": [1]})
    private = dp.private(frame, dp.Session(epsilon=1, unit="u"))
    with pytest.raises(dp.InvalidParameterError, match="suffix"):
        private.join(pl.DataFrame({"k": [1], "c": [2]}), on="k")
    assert "c_public" in str(private.join(pl.DataFrame({"k": [1], "c": [2]}), on="k", suffix="_public"))


def test_rows_that_a_join_multiplies_are_noticed(monkeypatch):
    """The keys are unique, so a join that returns more rows than it read is wrong, and nothing is released."""
    monkeypatch.setattr(scans, "_natively", lambda frame, step: pl.concat([frame, frame]))
    rows = polars_rows(pl.LazyFrame({"x": range(10)}))
    rows = rows.lookup(pl.DataFrame({"k": range(10)}), on=[("x", "k")], how="semi", columns={})
    scan = scan_rows(rows)
    scan.begin()
    found = scan.frame.collect(engine="streaming")
    assert found.height == 20
    with pytest.raises(RowCountError):
        scan.check(found.height)
