"""The Spark engine compared with the Polars engine and the reference: the same integers, to the last bit."""

import datetime
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import pytest

from dp_polars._engines.polars.engine import run_bounded
from dp_polars._engines.request import BoundedRequest, Cells, GroupSum, Lane, Profile, ValueColumn
from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.spark.engine import SparkEngine, run_statement
from dp_polars._engines.spark.source import SparkSource
from dp_polars._engines.spark.texts import salted
from tests.engines.reference import capped, runs_of, shortened

pytestmark = pytest.mark.slow

NAN = float("nan")
N = 400


def spark_rows(spark, frame):
    """Return the rows of a Polars frame as a Spark frame of the same types."""
    return PrivateRows(SparkSource(spark_frame(spark, frame)))


def spark_frame(spark, frame):
    """Return a Polars frame as a Spark frame. It has one row more if there are none, because Spark infers types."""
    given = frame if frame.height else frame.clear(1)
    made = spark.createDataFrame(given.to_arrow(compat_level=pl.CompatLevel.oldest()))
    return made if frame.height else made.limit(0)


def on_spark(spark, frame, request):
    return SparkEngine().aggregate(spark_rows(spark, frame), request)


def gathered(values, n=N, seed=0):
    values = pl.Series(values)
    return values.gather(np.random.default_rng(seed).integers(0, len(values), n))


UNITS = {
    "integers": [*range(40), None],
    "texts": ["", "é", "a'b", "a\\b", "{x}", "a\0b", None, *map(str, range(20))],
    "floats": [0.0, -0.0, NAN, 1.5, -1e300, None],
    "dates": [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(9999, 12, 31), None],
}
KEYS = {
    "texts": ["x", "y", "", "`", None],
    "booleans": [True, False, None],
    "floats": [0.0, -0.0, NAN, 2.5, None],
    "local times": pl.Series([0, -1, 10**15 + 1, None, -62_135_596_800_000_000], dtype=pl.Int64).cast(
        pl.Datetime("us")
    ),
    "times in UTC": pl.Series([0, -1, 10**15 + 1, None], dtype=pl.Int64).cast(pl.Datetime("us", "UTC")),
    "decimals": pl.Series(["1.50", "-0.01", "99999999.99", None]).cast(pl.Decimal(10, 2)),
    "wide decimals": pl.Series(["1.5", "-0.1", "1234567890123456789012.5", None]).cast(pl.Decimal(30, 1)),
    "bytes": [b"\xff\x00", b"", b"a", None],
    "small integers": pl.Series([-128, 127, 0, None], dtype=pl.Int8),
}
VALUES = {
    "floats": ([0.1, -0.5, 0.5, 1.5, 2.5, NAN, float("inf"), -float("inf"), None, 1e300, -0.0], -8, -1, 0.0),
    "moved floats": ([0.1, 3.75, 1e9, None, -7.0], -64, -3, 3.5),
    "integers": ([1, -7, 2**62, -(2**63), 2**63 - 1, None], -1000, 0, 0),
    "coarse integers": ([1, -7, 2**62, -(2**63), 2**63 - 1, None], -(1 << 30), 4, 16),
    "booleans": ([True, False, None], 0, 0, 0),
    "decimals": (pl.Series(["1.50", "-3.25", None, "99.99"]).cast(pl.Decimal(10, 2)), -200, 0, 0),
    "dates": ([datetime.date(1970, 1, 3), datetime.date(1, 1, 1), None], -5, 0, 0),
}


def frame_of(unit="integers", key="texts", value="floats"):
    return pl.DataFrame(
        {
            "unit0": gathered(UNITS[unit], seed=1),
            "key0": gathered(KEYS[key], seed=2),
            "value0": gathered(VALUES[value][0], seed=3),
        }
    )


def request_of(value="floats", max_rows=2, max_groups=None, **more):
    _, low, exponent, offset = VALUES[value]
    column = ValueColumn(place=0, low=low, high=-low or 1, exponent=exponent, offset=offset)
    fine, inner = (3, 20) if max_rows is not None else (0, 0)
    sums = (
        GroupSum(name="rows", of="rows", max_rows=max_rows),
        GroupSum(name="units", of="units"),
        GroupSum(name="over", of="over", max_rows=max_rows),
        GroupSum(name="x", of="x", max_rows=max_rows, fine=fine, inner=inner),
        GroupSum(name="moved", of="x", max_rows=max_rows, shift=-low, fine=fine, inner=inner),
        GroupSum(name="clipped", of="x", clip=(-3, 5)),
    )
    everyone = (
        GroupSum(name="everyone", of="rows", everyone=True, max_rows=3),
        GroupSum(name="y", of="x", max_rows=None),
    )
    lanes = (Lane(columns=(column,), sums=sums), Lane(columns=(column,), everyone=True, sums=everyone))
    return BoundedRequest(**{"units": 1, "keys": 1, "max_groups": max_groups, "domain": None, "lanes": lanes, **more})


def assert_same(found, wanted):
    assert found.groups.select(wanted.groups.columns).equals(wanted.groups)
    assert found.cells.keys() == wanted.cells.keys()
    for name, cells in wanted.cells.items():
        assert found.cells[name].select(cells.columns).equals(cells), name


CASES = [
    *((unit, "texts", "floats") for unit in UNITS),
    *(("integers", key, "integers") for key in KEYS),
    *(("texts", "booleans", value) for value in VALUES),
]


@pytest.mark.parametrize(("unit", "key", "value"), CASES)
def test_every_type_gives_the_integers_of_the_polars_engine(spark, unit, key, value):
    frame, request = frame_of(unit, key, value), request_of(value)
    assert_same(on_spark(spark, frame, request), run_bounded(frame.lazy(), request))


def test_sums_follow_the_reference(spark):
    frame, request = frame_of(value="integers"), request_of("integers")
    expected = {}
    for groups in runs_of(frame.to_dicts(), ["unit0"], ["key0"]).values():
        for group, rows in groups.items():
            values = [row["value0"] for row in rows if row["value0"] is not None]
            n, total = capped(values, 2, -1000, 1000, 20)
            old = expected.get(group[0], (0, 0))
            expected[group[0]] = (old[0] + n, old[1] + total)
    found = on_spark(spark, frame, request).groups
    assert {row["key0"]: (row["rows"], row["x"]) for row in found.to_dicts()} == {
        key: (n, shortened(total, 17)) for key, (n, total) in expected.items()
    }


def test_ansi_mode_changes_nothing(spark, ansi):
    for value in ("integers", "floats"):
        frame, request = frame_of("texts", "local times", value), request_of(value, max_groups=2)
        found = on_spark(spark, frame, replace(request, max_groups=None))
        assert_same(found, run_bounded(frame.lazy(), replace(request, max_groups=None)))
        assert on_spark(spark, frame, request).groups["units"].sum() <= 2 * len(UNITS["texts"])


def test_the_time_zone_of_the_session_changes_nothing(spark):
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        for zone in ("America/New_York", "Asia/Kolkata"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            for key in ("local times", "times in UTC"):
                frame, request = frame_of(key=key), request_of()
                assert_same(on_spark(spark, frame, request), run_bounded(frame.lazy(), request))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("cap", [1, 2, 3])
def test_each_unit_keeps_exactly_the_allowed_number_of_groups(spark, cap):
    frame = frame_of()
    request = request_of(max_rows=1, max_groups=cap)
    own = [len(groups) for groups in runs_of(frame.to_dicts(), ["unit0"], ["key0"]).values()]
    found = on_spark(spark, frame, request).groups
    assert found["everyone"].sum() >= sum(min(n, cap) for n in own)
    there = frame.filter(pl.col("value0").is_not_null() & pl.col("value0").is_not_nan())
    own = [len(groups) for groups in runs_of(there.to_dicts(), ["unit0"], ["key0"]).values()]
    assert found["units"].sum() == sum(min(n, cap) for n in own) == found["rows"].sum()


def test_a_unit_with_very_many_groups_keeps_the_allowed_number(spark):
    """Its groups go through a window, which spills to disk, and never through an array in memory."""
    lane = Lane(sums=(GroupSum(name="rows", of="rows", max_rows=1), GroupSum(name="units", of="units")))
    request = BoundedRequest(units=1, keys=1, max_groups=3, domain=None, lanes=(lane,))
    frame = spark.range(300_000).selectExpr("CAST(0 AS BIGINT) AS unit0", "id AS key0")
    groups = SparkEngine().aggregate(PrivateRows(SparkSource(frame)), request).groups
    assert groups.select("rows", "units").rows() == [(1, 1)] * 3


def test_a_public_domain_shows_every_key_in_order_and_drops_other_rows_before_bounding(spark):
    frame = pl.DataFrame({"unit0": [1, 1, 1, 2], "key0": ["a", "zz", "b", None]})
    domain = pl.DataFrame({"key0": [None, "c", "a"]}, schema={"key0": pl.String})
    lane = Lane(sums=(GroupSum(name="rows", of="rows", max_rows=1),))
    request = BoundedRequest(units=1, keys=1, max_groups=1, domain=domain, lanes=(lane,))
    for _ in range(3):
        assert on_spark(spark, frame, request).groups["rows"].to_list() == [1, 0, 1]


def test_several_units_and_keys_and_a_cap_on_the_first_key(spark):
    frame = pl.DataFrame(
        {
            "unit0": gathered(range(10), seed=1),
            "unit1": gathered(["a", "b", None], seed=2),
            "key0": gathered([1, 2, 3, None], seed=3),
            "key1": gathered(["x", None], seed=4),
        }
    )
    lane = Lane(sums=(GroupSum(name="rows", of="rows"), GroupSum(name="units", of="units")))
    request = BoundedRequest(units=2, keys=2, max_groups=None, domain=None, lanes=(lane,))
    assert_same(on_spark(spark, frame, request), run_bounded(frame.lazy(), request))
    first = on_spark(spark, frame, replace(request, max_groups=1, capped_keys=1)).groups
    own = runs_of(frame.to_dicts(), ["unit0", "unit1"], ["key0"])
    kept = first.group_by("key0").agg(pl.col("units").sum())["units"].sum()
    assert len(own) <= kept <= 2 * len(own)


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_cells_are_those_of_the_polars_engine_and_never_more_than_the_cap(spark, distinct, missing):
    frame = frame_of(value="integers")
    column = ValueColumn(place=0, low=-8, high=8)
    lane = Lane(
        columns=(column,), everyone=missing, cells=Cells(name="c", max_rows=None, distinct=distinct, missing=missing)
    )
    request = BoundedRequest(units=1, keys=1, max_groups=None, domain=None, lanes=(lane,))
    assert_same(on_spark(spark, frame, request), run_bounded(frame.lazy(), request))
    for cap in (1, 2):
        few = replace(request, lanes=(replace(lane, cells=replace(lane.cells, max_rows=cap)),))
        found, wanted = on_spark(spark, frame, few), run_bounded(frame.lazy(), few)
        assert found.cells["c"]["count"].sum() == wanted.cells["c"]["count"].sum()
        few = replace(few, max_groups=1)
        assert on_spark(spark, frame, few).cells["c"]["count"].sum() <= cap * len(UNITS["integers"])
        few = replace(request, lanes=(replace(lane, cells=replace(lane.cells, max_rows=2 * cap, across=True)),))
        found, wanted = on_spark(spark, frame, few), run_bounded(frame.lazy(), few)
        assert found.cells["c"]["count"].sum() == wanted.cells["c"]["count"].sum()
        assert found.cells["c"]["count"].sum() <= 2 * cap * len(UNITS["integers"])


def test_hashes_bins_and_presence(spark):
    frame = frame_of()
    columns = (
        ValueColumn(place=0, low=0, high=(1 << 48) - 1, kind="hash"),
        ValueColumn(place=0, low=0, high=2, kind="bin", edges=(-1.0, 0.0, 0.5, 2.5)),
        ValueColumn(place=0, low=0, high=0, kind="presence"),
    )
    cells = [
        Lane(columns=(one,), cells=Cells(name=one.kind, max_rows=None, distinct=one.kind == "hash")) for one in columns
    ]
    request = BoundedRequest(units=1, keys=1, max_groups=None, domain=None, lanes=tuple(cells))
    found, wanted = on_spark(spark, frame, request), run_bounded(frame.lazy(), request)
    assert found.groups.equals(wanted.groups)
    assert (
        found.cells["bin"]
        .select("value", "count", "group")
        .equals(wanted.cells["bin"].select("value", "count", "group"))
    )
    assert found.cells["presence"]["count"].to_list() == wanted.cells["presence"]["count"].to_list()
    number = [one.cells["hash"].group_by("group").len().sort("group") for one in (found, wanted)]
    assert number[0].equals(number[1])


def test_a_lane_alone_drops_rows_without_a_value_first(spark):
    """Then no lane looks at missing values again, whatever they are: null, NaN, or outside of all bins."""
    frame = frame_of()
    for column in (
        ValueColumn(place=0, low=0, high=2, kind="bin", edges=(-1.0, 0.0, 0.5, 2.5)),
        ValueColumn(place=0, low=0, high=0, kind="presence"),
        ValueColumn(place=0, low=-8, high=8, exponent=-1),
    ):
        sums = (GroupSum(name="rows", of="rows", max_rows=2), GroupSum(name="units", of="units"))
        counted = Lane(columns=(column,), cells=Cells(name="c", max_rows=None), sums=sums)
        request = BoundedRequest(
            units=1, keys=1, max_groups=None, domain=None, lanes=(counted, Lane(columns=(column,)))
        )
        assert_same(on_spark(spark, frame, request), run_bounded(frame.lazy(), request))


@pytest.mark.parametrize("most", [1 << 51, (1 << 51) + 1])
def test_large_floats_are_rounded_to_the_nearest_even_integer(spark, most):
    """Floats are rounded in two ways, for bounds of up to 51 bits and for larger ones."""
    near = [2.0**51, 2.0**51 - 1, 2.0**50 + 1, 2.0**50, 5.0, 4.0, 1.0, 0.0]
    values = [sign * (one + part) for one in near for part in (0, 0.25, 0.5, 0.75) for sign in (1, -1)]
    values += [0.49999999999999994, -0.49999999999999994, 1e300, -1e300, NAN, float("inf"), None]
    frame = pl.DataFrame({"unit0": range(len(values)), "key0": range(len(values)), "value0": values})
    column = ValueColumn(place=0, low=-most, high=most)
    lane = Lane(columns=(column,), sums=(GroupSum(name="x", of="x"),))
    for lanes in ((lane,), (lane, Lane(sums=(GroupSum(name="rows", of="rows"),)))):
        request = BoundedRequest(units=1, keys=1, max_groups=None, domain=None, lanes=lanes)
        found = on_spark(spark, frame, request).groups
        assert found.equals(run_bounded(frame.lazy(), request).groups.select(found.columns))
        for key, x in found.select("key0", "x").rows():
            value = values[key]
            missing = value is None or value != value
            assert x == (0 if missing else max(-most, min(most, value if abs(value) > most else round(value))))


@pytest.mark.parametrize(("max_rows", "value"), [(1, "floats"), (3, "integers"), (7, "coarse integers")])
def test_a_cap_on_the_rows_in_all_groups_scales_units_as_the_polars_engine_does(spark, max_rows, value):
    frame, request = frame_of(value=value), request_of(value, max_rows=max_rows)
    capped = {"max_rows": max_rows, "across": True, "fine": 9, "inner": 9}
    low = request.lanes[0].columns[0].low
    sums = (
        GroupSum(name="rows", of="rows", **capped),
        GroupSum(name="x", of="x", **capped),
        GroupSum(name="moved", of="x", shift=-low, **capped),
        *(GroupSum(name=f"b{i}", of="basis", place=i, degree=1, **capped) for i in range(2)),
    )
    lane = replace(request.lanes[0], sums=sums, everyone=False)
    profiles = Lane(profiles=(Profile(name="all", of="all rows", most=4),))
    request = replace(request, lanes=(lane, profiles))
    assert_same(on_spark(spark, frame, request), run_bounded(frame.lazy(), request))
    grouped = frame.drop_nulls("unit0")["unit0"].value_counts()["count"]
    assert grouped.max() > 7  # some units are scaled down
    over = GroupSum(name="over", of="over", max_rows=max_rows, across=True)
    counted = replace(request, lanes=(Lane(sums=(over, GroupSum(name="units", of="units"))),))
    assert_same(on_spark(spark, frame, counted), run_bounded(frame.lazy(), counted))


def test_a_cap_on_the_rows_in_all_groups_looks_at_the_groups_that_a_unit_keeps(spark):
    """A unit has 4, 3 and 2 rows in its groups and keeps two of them. Four rows count, divided as its rows are."""
    frame = pl.DataFrame({"unit0": [1] * 9 + [2], "key0": ["a"] * 4 + ["b"] * 3 + ["c"] * 2 + ["a"]})
    capped = {"max_rows": 4, "across": True}
    sums = (GroupSum(name="rows", of="rows", fine=9, inner=9, **capped), GroupSum(name="over", of="over", **capped))
    request = BoundedRequest(units=1, keys=1, max_groups=2, domain=None, lanes=(Lane(sums=sums),))
    for engine in (partial(on_spark, spark, frame), partial(run_bounded, frame.lazy())):
        found = dict(engine(request).groups.select("key0", "rows").rows())
        found["a"] -= 1 << 9  # the unit with a single row
        kept = {key: rows for key, rows in {"a": 4, "b": 3, "c": 2}.items() if found.get(key)}
        assert len(kept) == 2
        assert {key: found[key] for key in kept} == {key: (4 * n << 9) // sum(kept.values()) for key, n in kept.items()}
        assert engine(request).groups["over"].sum() == 2


def test_profiles_and_products(spark):
    frame = frame_of(value="integers").with_columns(value1=gathered([1, 2, None], seed=9))
    x, y = ValueColumn(place=0, low=-8, high=8), ValueColumn(place=1, low=0, high=3)
    pair = Lane(
        columns=(x, y),
        sums=tuple(GroupSum(name=of, of=of, max_rows=2, fine=1, inner=9) for of in ("x", "y", "xx", "yy", "xy")),
    )
    basis = Lane(
        columns=(x,),
        sums=tuple(GroupSum(name=f"b{i}", of="basis", place=i, degree=2, max_rows=1, inner=5) for i in range(3)),
    )
    profiles = Lane(profiles=(Profile(name="groups", of="groups", most=3),))
    request = BoundedRequest(units=1, keys=1, max_groups=None, domain=None, lanes=(pair, basis, profiles))
    assert_same(on_spark(spark, frame, request), run_bounded(frame.lazy(), request))
    rows = Lane(profiles=(Profile(name="rows", of="rows", most=4),))
    found = on_spark(spark, frame, replace(request, lanes=(rows,)))
    assert found.cells["rows"]["count"].sum() == len(UNITS["integers"]) - 1


@pytest.mark.parametrize("keys", [0, 1])
def test_rows_as_units_and_no_keys(spark, keys):
    frame = frame_of(value="floats")
    for units in (0, 1):
        request = request_of(max_rows=None, units=units, keys=keys)
        cells = Lane(columns=request.lanes[0].columns, cells=Cells(name="c", max_rows=1 if units == 0 else None))
        request = replace(request, lanes=(*request.lanes, cells))
        used = frame.drop("unit0") if not units else frame
        used = used if keys else used.drop("key0")
        assert_same(on_spark(spark, used, request), run_bounded(used.lazy(), request))


def test_an_empty_frame_has_no_groups_or_one_of_zero(spark):
    frame = frame_of().clear()
    assert on_spark(spark, frame, request_of(max_groups=1)).groups.height == 0
    found = on_spark(spark, frame.drop("key0"), request_of(keys=0)).groups
    assert found.height == 1
    assert set(found.row(0)) == {0}


def test_the_same_salt_gives_the_same_answer_however_rows_are_spread(spark):
    """So a task that runs again, on another worker and in another order, changes nothing."""
    frame = frame_of("texts", "texts", "integers")
    cells = Lane(columns=(ValueColumn(place=0, low=-8, high=8),), cells=Cells(name="c", max_rows=1))
    request = request_of("integers", max_rows=2, max_groups=2)
    request = replace(request, lanes=(*request.lanes, cells))
    hashes = [salted([number, 5]) for number in range(3)]
    answers = []
    for seed, parts in ((None, 1), (1, 2), (2, 5)):
        rows = frame if seed is None else frame.sample(fraction=1, shuffle=True, seed=seed)
        source = SparkSource(spark_frame(spark, rows).repartition(parts))
        answers.append(run_statement(PrivateRows(source), request, *hashes))
    for other in answers[1:]:
        assert_same(other, answers[0])


def test_the_choice_of_groups_and_rows_depends_on_nobody_else(spark):
    """With the same salts, dropping one unit changes each sum by what that unit may contribute, and nothing else."""
    frame = frame_of("integers", "texts", "integers")
    column = ValueColumn(place=0, low=-8, high=8)
    sums = (GroupSum(name="units", of="units"), GroupSum(name="x", of="x", max_rows=2))
    lanes = (Lane(columns=(column,), sums=sums), Lane(columns=(column,), cells=Cells(name="c", max_rows=1)))
    request = BoundedRequest(
        units=1, keys=1, max_groups=2, domain=frame.select("key0").unique().sort("key0"), lanes=lanes
    )
    hashes = [salted([number, 5]) for number in range(3)]
    whole, less = (
        run_statement(spark_rows(spark, rows), request, *hashes)
        for rows in (frame, frame.filter(pl.col("unit0").ne_missing(7)))
    )
    units, total = ((whole.groups[name] - less.groups[name]).abs() for name in ("units", "x"))
    assert units.max() == 1
    assert units.sum() == 2
    assert total.max() <= 16
    both = whole.cells["c"].join(less.cells["c"], on=["group", "value"], how="full", coalesce=True).fill_null(0)
    assert (both["count"] - both["count_right"]).abs().sum() == 2


def test_sums_of_large_numbers_do_not_wrap(spark):
    frame = pl.DataFrame({"unit0": [1, 1, 2, 3] * 50, "key0": ["a"] * 200, "value0": [2**63 - 1] * 200})
    column = ValueColumn(place=0, low=-(1 << 55), high=1 << 55)
    sums = (
        GroupSum(name="all", of="x"),
        GroupSum(name="few", of="x", max_rows=3, inner=2, fine=2),
        GroupSum(name="clipped", of="x", clip=(-(1 << 60), 1 << 60)),
    )
    request = BoundedRequest(units=1, keys=1, max_groups=None, domain=None, lanes=(Lane(columns=(column,), sums=sums),))
    found = on_spark(spark, frame, request)
    assert found.groups.row(0)[2:] == (1 << 62, 9 << 57, 3 << 60)
    assert_same(found, run_bounded(frame.lazy(), request))
