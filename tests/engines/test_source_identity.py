"""Which sources count as the same. Many tests come from attacks that got a stored release of other data."""

import os
import shutil
import sys

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.polars.file_plans import plan_over_files
from dp_polars._engines.registry import source_identity


def people(path, count):
    """Write a file with this many people that always has the same size and modification time."""
    path.write_text("user\n" + "".join(f"{i % count:05d}\n" for i in range(1000)))
    os.utime(path, ns=(0, 10**18))


@pytest.fixture
def years(tmp_path):
    for year, count in (("2023", 100), ("2024", 900)):
        (tmp_path / year).mkdir()
        people(tmp_path / year / "v.csv", count)
    return tmp_path


TYPES = {"user": pl.Int64}


def charged(frame, session):
    before = len(session.releases)
    dp.private(frame, session).count_units(epsilon=0.1).collect()
    return len(session.releases) - before


def session():
    return dp.Session(epsilon=5.0, unit="user")


def test_a_relative_path_after_a_change_of_folder(years, monkeypatch):
    payer = session()
    monkeypatch.chdir(years / "2023")
    assert charged(pl.scan_csv("v.csv", schema=TYPES), payer) == 1
    assert charged(pl.scan_csv("v.csv", schema=TYPES), payer) == 0
    monkeypatch.chdir(years / "2024")
    assert charged(pl.scan_csv("v.csv", schema=TYPES), payer) == 1


def test_a_link_that_is_swapped(years):
    payer, link = session(), years / "link.csv"
    link.symlink_to(years / "2023" / "v.csv")
    assert charged(pl.scan_csv(link, schema=TYPES), payer) == 1
    assert charged(pl.scan_csv(link, schema=TYPES), payer) == 0
    link.unlink()
    link.symlink_to(years / "2024" / "v.csv")
    assert charged(pl.scan_csv(link, schema=TYPES), payer) == 1


def test_a_folder_of_the_path_that_is_swapped(years):
    payer, link = session(), years / "now"
    link.symlink_to(years / "2023")
    assert charged(pl.scan_csv(link / "v.csv", schema=TYPES), payer) == 1
    link.unlink()
    link.symlink_to(years / "2024")
    assert charged(pl.scan_csv(link / "v.csv", schema=TYPES), payer) == 1


@pytest.mark.slow
def test_a_file_that_is_replaced_by_one_of_the_same_size_and_time(years):
    payer, path = session(), years / "2023" / "v.csv"
    assert charged(pl.scan_csv(path, schema=TYPES), payer) == 1
    shutil.copy2(years / "2024" / "v.csv", years / "new.csv")
    (years / "new.csv").replace(path)
    assert path.stat().st_mtime_ns == 10**18
    assert charged(pl.scan_csv(path, schema=TYPES), payer) == 1


@pytest.mark.parametrize("name", ["d[1].parquet", "d?.parquet", "d*.parquet"])
def test_a_path_that_is_a_file_by_name_and_a_pattern_for_polars(tmp_path, name):
    payer = session()
    pl.DataFrame({"user": [0]}).write_parquet(tmp_path / name)
    pl.DataFrame({"user": range(100)}).write_parquet(tmp_path / "d1.parquet")
    assert charged(pl.scan_parquet(tmp_path / name), payer) == 1
    pl.DataFrame({"user": range(5000)}).write_parquet(tmp_path / "d1.parquet")
    assert charged(pl.scan_parquet(tmp_path / name), payer) == 1


def test_functions_that_are_pickled_by_name(tmp_path, monkeypatch):
    payer = session()
    (tmp_path / "prepared_for_dp.py").write_text("LAST = 100\ndef clean(df):\n    return df.head(LAST)\n")
    monkeypatch.syspath_prepend(tmp_path)
    import prepared_for_dp

    pl.DataFrame({"user": range(5000)}).write_parquet(tmp_path / "m.parquet")
    rows = pl.scan_parquet(tmp_path / "m.parquet")
    assert charged(rows.map_batches(prepared_for_dp.clean), payer) == 1
    prepared_for_dp.LAST = 4000
    assert charged(rows.map_batches(prepared_for_dp.clean), payer) == 1
    sys.modules.pop("prepared_for_dp")


def test_numbers_that_json_does_not_know(tmp_path):
    """Two different plans have the same text, because JSON writes infinity and NaN as null."""
    pl.DataFrame({"user": [1, 2], "x": [1.0, 2.0]}).write_parquet(tmp_path / "m.parquet")
    rows = pl.scan_parquet(tmp_path / "m.parquet")
    for number in (float("inf"), float("-inf"), float("nan")):
        assert plan_over_files(rows.filter(pl.col("x") < number)) is None


def test_what_is_understood_is_found_again_and_all_else_is_an_object(tmp_path):
    pl.DataFrame({"user": [1, 2], "x": [1.0, 2.0]}).write_parquet(tmp_path / "m.parquet")

    def rows():
        return pl.scan_parquet(tmp_path / "m.parquet")

    known = {
        "scan": lambda: rows(),
        "filter": lambda: rows().filter(pl.col("x") > 1.5),
        "columns": lambda: rows().with_columns(y=pl.col("x").round(1)).select("user", "y").rename({"y": "z"}).drop("z"),
        "join": lambda: rows().join(rows(), on="user").head(3).sort("user").unique(),
        "concat": lambda: pl.concat([rows(), rows()]),
    }
    for make in known.values():
        assert source_identity(make(), None, None).startswith(b"files:")
        looked = make()
        looked.collect_schema()
        assert source_identity(looked, None, None) == source_identity(make(), None, None)
    names = {source_identity(make(), None, None) for make in known.values()}
    assert len(names) == len(known)
    unknown = (
        rows().map_batches(lambda df: df),
        rows().join(pl.LazyFrame({"user": [1]}), on="user"),
        rows().filter(pl.col("user").is_in([1, 2])),
        pl.scan_parquet(tmp_path),
        pl.LazyFrame({"user": [1]}),
    )
    for frame in unknown:
        assert source_identity(frame, None, None).startswith(b"object:")


@pytest.mark.slow
def test_a_database_file_that_is_replaced(tmp_path):
    import duckdb

    for name, count in (("a", 10), ("b", 20)):
        with duckdb.connect(str(tmp_path / f"{name}.duckdb")) as raw:
            raw.execute(f"CREATE TABLE visits AS SELECT i AS user FROM range({count}) t(i)")
    payer = session()
    path = tmp_path / "now.duckdb"
    for name in ("a", "b"):
        shutil.copy2(tmp_path / f"{name}.duckdb", path)
        os.utime(path, ns=(0, 10**18))
        with dp.connect(path, payer) as con:
            con.sql("SELECT dp_count_units(epsilon := 0.1) FROM visits").fetchall()
    assert len(payer.releases) == 2
