"""Bounding gives the same answer to the last bit for every number of parts and of threads."""

import zlib
from dataclasses import replace

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.io.plugins import register_io_source

import dp_polars as dp
from dp_polars._engines.base import parts_for
from dp_polars._engines.bounding import LaneBounding, blocks, row_store, sorters
from dp_polars._engines.duckdb.rows import memory_limit
from dp_polars._engines.polars import codes, engine, read_once, scan
from dp_polars._engines.polars.program import RowCountError
from dp_polars._engines.polars.scan import PolarsSource
from dp_polars._engines.request import HASH_BITS, BoundedRequest, Cells, GroupSum, Lane, Profile, ValueColumn
from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.workers import Workers
from tests.engines.reference import runs_of
from tests.engines.requests import request

PARTS = (2, 7)
GENERATOR = np.random.default_rng(21)
N = 3000


def drawn(values, dtype=None):
    return pl.Series(values, dtype=dtype).gather(GENERATOR.integers(0, len(values), N))


ODD = np.array([0, 1 << 63, 0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 5], np.uint64).view(np.float64)
FLOATS = [*ODD.tolist(), *(i / 4 for i in range(30)), None]
UNITS = {
    "integers": [drawn([*range(60), None])],
    "full 64 bits": [drawn([*(i * 2**57 - 2**63 for i in range(60)), None], pl.Int64)],
    "strings": [drawn([*(f"u{i}" for i in range(60)), None])],
    "categories": [drawn([*(f"u{i}" for i in range(60)), None]).cast(pl.Categorical)],
    "floats": [drawn(FLOATS, pl.Float64)],
    "several columns": [drawn(FLOATS, pl.Float32), drawn(["a", "b", None]), drawn([1, None, *range(2, 9)])],
}
KEYS = [drawn([*(f"k{i}" for i in range(9)), None]), drawn([*range(5), None])]
VALUES = [
    drawn([*(i / 8 for i in range(-300, 300)), float("nan"), None], pl.Float64),
    drawn([*range(-20, 20), None], pl.Int64),
    drawn([*(i << 57 for i in range(-40, 40)), None], pl.Int64),
]

X = ValueColumn(place=0, low=-150, high=150, exponent=-2)
Y = ValueColumn(place=1, low=-12, high=9)
FEW = ValueColumn(place=1, low=0, high=7)
LONG = ValueColumn(place=2, low=-(1 << 61), high=1 << 61)
HASHED = ValueColumn(place=0, low=0, high=(1 << HASH_BITS) - 1, kind="hash")
BINNED = ValueColumn(place=1, low=0, high=2, kind="bin", edges=(-20, -3, 5, 19))


def sums(*made):
    return tuple(replace(one, name=f"{one.name}_{place}") for place, one in enumerate(made))


# Names of sums differ by lane. Scaled contributions are rounded to 2**-32 of a step, and sums by up to 32 bits.
LANES = {
    "counts": Lane(
        sums=sums(
            GroupSum(name="n", of="rows", max_rows=3), GroupSum(name="n", of="rows"), GroupSum(name="n", of="units")
        ),
        profiles=(Profile(name="groups", of="groups", most=4), Profile(name="rows", of="rows", most=20)),
    ),
    "sums": Lane(
        columns=(X,),
        sums=sums(
            GroupSum(name="s", of="x", max_rows=2, fine=3, inner=32, shift=150),
            GroupSum(name="s", of="x", max_rows=3, inner=32),
            GroupSum(name="s", of="x"),
            GroupSum(name="s", of="x", clip=(-100, 70)),
            GroupSum(name="s", of="xx", max_rows=2, fine=1, inner=20),
            GroupSum(name="s", of="rows", max_rows=2),
            GroupSum(name="s", of="units"),
        ),
    ),
    "everyone": Lane(
        columns=(Y,),
        everyone=True,
        sums=sums(
            GroupSum(name="e", of="x", max_rows=2, fine=2, inner=9),
            GroupSum(name="e", of="units", everyone=True),
            GroupSum(name="e", of="units"),
            GroupSum(name="e", of="rows", everyone=True, max_rows=4),
        ),
        cells=Cells(name="all", max_rows=2),
    ),
    "pairs": Lane(
        columns=(X, Y),
        sums=sums(*(GroupSum(name="p", of=of, max_rows=2, inner=14) for of in ("x", "y", "xx", "yy", "xy"))),
    ),
    "basis": Lane(
        columns=(FEW,),
        sums=sums(*(GroupSum(name="b", of="basis", place=i, degree=2, max_rows=2, fine=1, inner=30) for i in range(3))),
    ),
    "cells": Lane(columns=(Y,), cells=Cells(name="kept", max_rows=2)),
    "distinct": Lane(columns=(HASHED,), cells=Cells(name="different", max_rows=3, distinct=True)),
    "bins": Lane(columns=(BINNED,), cells=Cells(name="bins", max_rows=None)),
    "long": Lane(
        columns=(LONG,),
        sums=(GroupSum(name="l", of="x", clip=(-(1 << 60), 1 << 60)),),
        cells=Cells(name="long", max_rows=2),
    ),
}
DOMAIN = pl.DataFrame({"key0": ["k1", None, "k7", "nobody"]})
PAIRS = pl.DataFrame({"key0": ["k1", "k1", "k1", "k5", "k9"], "key1": [0, 3, None, 2, 2]})


def asked(units=1, keys=1, **words):
    given = {"max_groups": 2, "domain": None, "lanes": tuple(LANES.values()), **words}
    return BoundedRequest(units=units, keys=keys, **given)


def frame_of(unit, keys):
    columns = {f"unit{i}": own for i, own in enumerate(UNITS[unit])}
    columns |= {f"key{i}": own for i, own in enumerate(KEYS[:keys])}
    return pl.DataFrame({**columns, **{f"value{i}": own for i, own in enumerate(VALUES)}})


class NamedSalts(codes.Salts):
    """Salts that are the same in every run, whatever else is drawn."""

    def of(self, use):
        return zlib.crc32(use.encode()) * 0x9E3779B1 + 7


@pytest.fixture(autouse=True)
def same_salts(monkeypatch):
    monkeypatch.setattr(engine, "Salts", NamedSalts)


def assert_same(frame, wanted, numbers=PARTS):
    """Check that the answer in parts is that of all rows at once to the last bit, and return it."""
    whole = engine.run_bounded(frame.lazy(), wanted)
    for parts in numbers:
        found = engine.run_bounded(frame.lazy(), wanted, parts=parts)
        assert found.groups.schema == whole.groups.schema
        assert found.groups.equals(whole.groups)
        assert found.cells.keys() == whole.cells.keys()
        for name, cells in whole.cells.items():
            assert found.cells[name].schema == cells.schema
            assert found.cells[name].equals(cells), name
    return whole


@pytest.mark.slow
@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("unit", UNITS)
def test_every_lane_and_every_kind_of_unit(unit, hashed):
    whole = assert_same(frame_of(unit, 1), asked(len(UNITS[unit]), hashed_units=hashed))
    assert whole.groups.height == 10
    assert all(cells.height for cells in whole.cells.values())


@pytest.mark.slow
@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("unit", UNITS)
def test_threads_change_nothing(unit, hashed, monkeypatch):
    """Seven threads pack rows in batches of 64, sort words in pieces and take blocks of 64 rows.

    Wide units claim 2**12 slots, so that some of them want the same one. The usual table has 2**24.
    Rows are taken whole or in two parts, so that each number of parts meets each kind of unit or of hash.
    """
    frame, wanted = frame_of(unit, 1), asked(len(UNITS[unit]), hashed_units=hashed)
    monkeypatch.setattr(engine, "workers", Workers)
    monkeypatch.setattr(scan, "workers", Workers)
    alone = engine.run_bounded(frame.lazy(), wanted)
    monkeypatch.setattr(engine, "workers", lambda: Workers(7))
    monkeypatch.setattr(scan, "workers", lambda: Workers(7))
    monkeypatch.setattr(scan, "BATCH", 64)
    monkeypatch.setattr(blocks, "_BLOCK", 64)
    monkeypatch.setattr(blocks, "_SORTED_ALONE", 4)
    monkeypatch.setattr(row_store, "_PIECE", 200)
    monkeypatch.setattr(row_store, "_PAGE", 1200)
    monkeypatch.setattr(row_store, "_FIRST", 10)
    monkeypatch.setattr(sorters, "_FEW_ROWS", 100)
    for module in (row_store, sorters):
        monkeypatch.setattr(module, "SLOT_BITS", 12)
    found = engine.run_bounded(frame.lazy(), wanted, parts=1 + (list(UNITS).index(unit) + hashed) % 2)
    assert found.groups.equals(alone.groups)
    assert all(found.cells[name].equals(cells) for name, cells in alone.cells.items())


@pytest.mark.slow
@pytest.mark.parametrize("max_groups", [None, 1, 3])
@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (0, {}),
        (1, {"domain": DOMAIN}),
        (2, {}),
        (2, {"domain": PAIRS}),
        (2, {"capped_keys": 1}),
        (2, {"capped_keys": 1, "domain": PAIRS}),
    ],
)
def test_public_and_discovered_keys_with_caps_on_all_or_the_first(keys, words, max_groups):
    words = words if max_groups is not None else {name: own for name, own in words.items() if name != "capped_keys"}
    assert_same(frame_of("strings", keys), asked(keys=keys, max_groups=max_groups if keys else None, **words))


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["integers", "several columns"])
def test_more_combinations_of_keys_than_are_numbered(unit, monkeypatch):
    monkeypatch.setattr(engine, "_MOST_GROUPS", 4)
    whole = assert_same(frame_of(unit, 2), asked(len(UNITS[unit]), keys=2))
    assert whole.groups.height > 4


def test_rows_as_units_need_no_parts():
    lanes = [Lane(sums=(GroupSum(name="n", of="rows"),)), Lane(columns=(Y,), sums=(GroupSum(name="s", of="x"),))]
    frame = frame_of("integers", 1)
    whole = assert_same(frame, asked(units=0, max_groups=None, lanes=tuple(lanes)))
    assert whole.groups["n"].sum() == N


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_parts_without_rows(rows):
    for keys in (0, 1):
        assert_same(frame_of("strings", keys).head(rows), asked(keys=keys, max_groups=2 if keys else None))


@pytest.mark.slow
def test_sums_are_limited_once_after_the_parts_were_added_up():
    """The sum of each part alone would reach the limit of 64 bits, but the sum over all parts is small."""
    units = np.arange(60)
    value = np.where(units < 30, 1, -1) << 60
    frame = pl.DataFrame({"unit0": units, "value0": value})
    column = ValueColumn(place=0, low=-(1 << 61), high=1 << 61)
    lane = Lane(columns=(column,), sums=(GroupSum(name="s", of="x", clip=(-(1 << 60), 1 << 60)),))
    wanted = asked(keys=0, max_groups=None, lanes=(lane,))
    assert assert_same(frame, wanted, (2, 7, 60)).groups["s"].item() == 0
    high = engine.run_bounded(frame.filter(pl.col("value0") > 0).lazy(), wanted, parts=7)
    assert high.groups["s"].item() == 1 << 62  # 30 * 2**60 is above the limit


@pytest.mark.parametrize("cap", [1, 2, 5])
def test_each_unit_keeps_exactly_its_share_of_groups(cap):
    frame = frame_of("floats", 1).select("unit0", "key0").filter(pl.col("unit0").is_finite(), pl.col("unit0") != 0)
    own = [len(groups) for groups in runs_of(frame.to_dicts(), ["unit0"], ["key0"]).values()]
    groups = engine.run_bounded(frame.lazy(), request(max_groups=cap, max_rows=1), parts=5).groups
    assert groups["units"].sum() == groups["rows"].sum() == sum(min(n, cap) for n in own)


def test_a_part_holds_the_rows_of_its_units_alone(monkeypatch):
    held = [set()]
    add, end_part = LaneBounding.add, LaneBounding.end_part

    def adding(self, rows, values):
        held[-1].update(rows.unit.tolist())
        add(self, rows, values)

    def ending(self):
        held.append(set())
        end_part(self)

    monkeypatch.setattr(LaneBounding, "add", adding)
    monkeypatch.setattr(LaneBounding, "end_part", ending)
    frame = pl.DataFrame({"unit0": np.arange(10_000) % 1000, "key0": ["a"] * 10_000})
    engine.run_bounded(frame.lazy(), request(), parts=5)
    *parts, last = held
    assert last == set()
    assert sum(map(len, parts)) == 1000
    assert set().union(*parts) == set(range(1000))
    assert all(140 < len(part) < 260 for part in parts)  # the salts are fixed, so these numbers are too


@pytest.mark.slow
def test_values_that_share_a_hash_in_a_later_part_begin_anew_with_all_rows(monkeypatch):
    frame, wanted = frame_of("integers", 1), asked()
    whole = engine.run_bounded(frame.lazy(), wanted)
    honest, calls = codes.TableCodes.numbers, []

    def numbers(self, batch):
        calls.append(batch.height)
        if len(calls) == 3:
            raise codes.HashCollisionError
        return honest(self, batch)

    monkeypatch.setattr(codes.TableCodes, "numbers", numbers)
    monkeypatch.setattr(scan, "workers", Workers)  # one thread, so that batches come one after another
    found = engine.run_bounded(frame.lazy(), wanted, parts=4)
    assert len(calls) == 3
    assert sum(calls) < N
    assert found.groups.equals(whole.groups)
    assert all(found.cells[name].equals(cells) for name, cells in whole.cells.items())


def source_that_loses_a_row(frame, lost):
    """Return rows such that pass number `lost` misses one of them, and the list of passes."""
    passes = []

    def rows(with_columns, predicate, n_rows, batch_size):
        passes.append(len(passes))
        yield (frame.tail(-1) if passes[-1] == lost else frame).select(with_columns or frame.columns)

    lazy = register_io_source(rows, schema=frame.schema)
    return PrivateRows(PolarsSource(lazy, height=lambda: frame.height)), passes


def test_every_part_has_read_all_rows_of_the_source(monkeypatch):
    frame = frame_of("integers", 1).select("unit0", "key0")
    whole, passes = source_that_loses_a_row(frame, None)
    engine.run_bounded(whole, request(), parts=3)
    looks = len(passes) - 3  # the passes that find codes come first
    assert looks > 0
    for lost in range(looks, looks + 3):
        short, _ = source_that_loses_a_row(frame, lost)
        with pytest.raises(RowCountError):
            engine.run_bounded(short, request(), parts=3)
    one, passes = source_that_loses_a_row(frame, None)
    engine.run_bounded(one, request())
    assert len(passes) == 1  # few rows wait in memory until their codes are known
    short, _ = source_that_loses_a_row(frame, 0)
    with pytest.raises(RowCountError):
        engine.run_bounded(short, request())
    monkeypatch.setattr(read_once, "MOST_BYTES", 0)
    many, passes = source_that_loses_a_row(frame, None)
    engine.run_bounded(many, request())
    assert len(passes) == looks + 1


# ---------------------------------------------------------------- how many parts


def test_the_number_of_parts_is_chosen_by_sizes_of_files_and_the_limit_alone():
    gigabyte = 10**9
    assert parts_for(0, 1000) == 1  # rows that are in memory
    assert parts_for(gigabyte, 8 * gigabyte) == 1
    assert parts_for(10 * gigabyte, 8 * gigabyte) == 5
    assert parts_for(10**15, gigabyte) == 64
    assert parts_for(gigabyte, float("inf")) == 1
    assert parts_for(gigabyte, 0) == 64
    assert parts_for(1, 10**12) == 1
    with pytest.raises(ValueError, match="one part or more"):
        engine.run_bounded(frame_of("integers", 1).lazy(), request(), parts=0)


def test_the_memory_limit_is_that_of_the_database_whatever_macros_there_are():
    raw = duckdb.connect()
    raw.execute("SET memory_limit = '512MiB'")
    raw.execute("CREATE MACRO current_setting(name) AS '1 KiB'")
    assert memory_limit(raw.cursor()) == 512 * 2**20
    raw.execute("SET memory_limit = '3.5GiB'")
    assert memory_limit(raw.cursor()) == 3.5 * 2**30


@pytest.mark.slow
def test_a_file_that_is_large_for_the_limit_is_asked_in_parts(tmp_path, monkeypatch):
    called = []

    def bounded(*given, parts):
        called.append(parts)
        return honest(*given, parts=parts)

    honest = engine.run_bounded
    monkeypatch.setattr(engine, "run_bounded", bounded)
    path = tmp_path / "rows.duckdb"
    raw = duckdb.connect(str(path))
    raw.execute("CREATE TABLE rows AS SELECT hash(i) % 1000 AS who, i % 3 AS k, random() AS r FROM range(1000000) t(i)")
    raw.execute("CHECKPOINT")
    with pytest.warns(dp.DPWarning):
        session = dp.Session(epsilon=10**6, unit="who", max_rows_per_group=1000)
    con = dp.connect(raw, session)
    text = "SELECT k, dp_count(*, keys := [0, 1, 2], epsilon := 100000, fresh := true) AS n FROM rows GROUP BY k"
    first = con.sql(text).fetchall()
    assert [n for _, n in first] == [333_334, 333_333, 333_333]
    raw.execute(f"SET memory_limit = '{path.stat().st_size * 1.1:.0f}B'")
    assert con.sql(text).fetchall() == first
    assert called == [1, 4]


def test_a_column_takes_no_more_than_a_few_times_its_rows_and_keeps_their_order(monkeypatch):
    """A profile has some hundred columns: if each took a whole page, a limit on addresses would close the session."""
    monkeypatch.setattr(row_store, "_PAGE", 8000)  # a thousand words
    monkeypatch.setattr(row_store, "_FIRST", 10)
    monkeypatch.setattr(row_store, "_EXPECTED", 2000)
    for sizes in ([], [3], [10], [11], [3, 8, 60, 500], [999, 1], [1000, 1], [1, 1000], [7] * 300, [2500, 3]):
        for expected in (0, 5, 1500, 9000):
            pages, start = row_store.Pages(np.uint64, expected), 0
            for size in sizes:
                pages.add(np.arange(start, start + size, dtype=np.uint64))
                start += size
                assert len(pages._page) <= max(10, 4 * start, min(expected, 2000))
            assert pages.take().tolist() == list(range(start))


def test_the_memory_of_a_large_array_is_used_again_only_when_no_view_of_it_is_left(monkeypatch):
    """Otherwise the rows of one question would be written over those that another one, or its frame, still holds."""
    monkeypatch.setattr(row_store, "_MAPPED", 800)
    monkeypatch.setattr(row_store, "_MOST_SPARE", 8000)
    spare = row_store.SpareMemory()
    first = spare.array(200, np.uint64)
    place, part = first.ctypes.data, first[10:100].view(np.uint32)[5:]
    part[:] = 7
    del first
    second = spare.array(200, np.uint64)
    second[:] = 9
    assert second.ctypes.data != place
    assert set(part.tolist()) == {7}
    del part
    shorter = spare.array(150, np.uint64)
    assert shorter.ctypes.data == place
    assert len(shorter) == 150
    del shorter, second
    assert [memory.nbytes for memory in spare._spare] == [1600, 1600]
    several = [spare.array(size, np.uint64) for size in (150, 800, 150)]  # the second is too long for what is left
    addresses = [array.ctypes.data for array in several]
    assert len(set(addresses)) == 3
    for array in several:
        array[:] = 5
    del array, several
    assert sum(memory.nbytes for memory in spare._spare) <= 8000
    assert spare.array(790, np.uint64).ctypes.data == addresses[1]  # the smallest that is large enough
    longer = spare.array(1000, np.uint64)
    longer[:] = 1
    for size in (99, 1001):  # neither small nor very large arrays are kept
        own = spare.array(size, np.uint64)
        assert own.base is None
