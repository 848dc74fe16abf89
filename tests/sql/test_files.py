"""Registered files and frames: how files are identified, and that no row decides a type."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dp_polars as dp
from dp_polars._sql import files
from dp_polars._sql.files import open_file, open_frame, open_source, refuse_public_and_private, same_file
from dp_polars._sql.text_files import _slow, header_of, is_regular, texts_of, typed
from dp_polars._sql.types import declared_type
from dp_polars.errors import InvalidDataError, InvalidParameterError

SECRET = "Zanzibar-4711"
LINES = "user_id,day,amount,note\n" + "".join(f"{i},2024-01-0{i % 9 + 1},{i}.5,n{i}\n" for i in range(40))
TYPES = {"user_id": "BIGINT", "day": "DATE", "amount": "DOUBLE"}
STRANGE = ["", "x", "x,y,z,w,v,u", "9,not a day,1e999,ok", '9,"', '"', '9,5" nail,"a"b,', "9,\x00,\x1b,\r", '"9\n9",,,']


@pytest.fixture
def session():
    return dp.Session(epsilon=1.0, unit="user_id", max_rows_per_group=1)


def put(folder, content, name="visits.csv"):
    path = Path(folder) / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# ---------------------------------------------------------------------- types of text files


@pytest.mark.parametrize("line", STRANGE)
def test_one_more_line_changes_neither_a_type_nor_the_columns_nor_whether_a_file_is_read(line, tmp_path, session):
    path = put(tmp_path, LINES)
    before = open_file("visits", path, "infer", session)
    assert dict(before.types) == {**TYPES, "note": "VARCHAR"}
    put(tmp_path, LINES + line + "\n")
    after = open_file("visits", path, None, session)
    assert after.types == before.types
    assert after.frame.collect_schema() == before.frame.collect_schema()
    assert after.frame.collect().head(40).equals(before.frame.collect())  # the other lines are read as before
    assert len(session.facts) == 1


@pytest.mark.parametrize("line", STRANGE)
def test_a_line_in_the_middle_leaves_the_others_as_they_are(line, tmp_path, session):
    head, *rows = LINES.splitlines(keepends=True)
    path = put(tmp_path, head + "".join(rows[:20]) + line + "\n" + "".join(rows[20:]))
    found = open_file("visits", path, TYPES, session).frame.collect().rows()
    expected = open_file("visits", put(tmp_path, LINES, "other.csv"), TYPES, session).frame.collect().rows()
    assert found[:20] == expected[:20]
    assert found[-20:] == expected[20:]


def test_types_are_never_decided_silently(tmp_path, session):
    path = put(tmp_path, LINES)
    with pytest.raises(InvalidParameterError, match=r'types=\{"amount": "DOUBLE".*types="infer"'):
        open_file("visits", path, None, session)
    assert session.facts == ()
    declared = open_file("visits", path, {"amount": "double"}, session)
    texts = dict.fromkeys(("user_id", "day", "note"), pl.String)
    assert dict(declared.frame.collect_schema()) == {**texts, "amount": pl.Float64}
    assert session.facts == ()
    for wrong in ("guess", {"amuont": "DOUBLE"}, {"amount": "DOUBEL"}, {"amount": "DOUBLE), (SELECT 1"}, 3):
        with pytest.raises(InvalidParameterError) as refused:
            open_file("visits", path, wrong, session)
        assert "n17" not in str(refused.value)


@pytest.mark.slow
def test_inferred_types_are_recorded_for_every_process_and_for_a_file_that_changes(tmp_path):
    path, ledger = put(tmp_path, "user_id,x\n1,5\n"), tmp_path / "budget.db"
    session = dp.Session(epsilon=1.0, unit="user_id", ledger=ledger)
    assert open_file("t", path, "infer", session).types["x"] == "BIGINT"
    put(tmp_path, "user_id,x\n1,text\n2,2.5\n3,7\n")
    program = (
        "import sys, dp_polars as dp; from dp_polars._sql.files import open_file\n"
        "s = dp.Session.from_ledger(sys.argv[1])\n"
        "for types in (None, 'infer'): print(open_file('t', sys.argv[2], types, s).frame.collect()['x'].to_list())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(ledger), str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[None, None, 7]"] * 2
    link = tmp_path / "link.csv"
    link.symlink_to(path)
    assert open_file("t", link, None, session).types["x"] == "BIGINT"  # by the real path
    (fact,) = session.facts
    assert (fact.kind, fact.subject) == ("column types", str(path.resolve()))
    assert json.loads(fact.value) == [["user_id", "BIGINT"], ["x", "BIGINT"]]
    assert f"declared public by the data owner on {fact.recorded_at[:4]}" in session.describe()
    assert "user_id BIGINT, x BIGINT" in session.describe()
    assert "x BIGINT" in session._repr_html_()


def test_the_first_of_two_records_counts():
    session = dp.Session(epsilon=1.0, unit="user_id")
    assert session._record("column types", "/a.csv", '[["x", "DATE"]]') == '[["x", "DATE"]]'
    assert session._record("column types", "/a.csv", '[["x", "TIME"]]') == '[["x", "DATE"]]'
    assert session._fact("column types", "/b.csv") is None
    assert [str(fact) for fact in session.facts] == ["column types of /a.csv: x DATE"]


def test_a_new_column_is_text_and_a_column_that_is_gone_is_no_failure(tmp_path, session):
    path = put(tmp_path, "user_id,x\n1,5\n")
    open_file("t", path, "infer", session)
    put(tmp_path, "user_id,y\n1,5\n")
    assert dict(open_file("t", path, None, session).types) == {"user_id": "BIGINT", "y": "VARCHAR"}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("BOOLEAN", "TRUE", True), ("bool", "yes", None), ("TINYINT", "127", 127), ("TINYINT", "128", None),
        ("UTINYINT", "-1", None), ("INTEGER", "1.5", None), ("BIGINT", "9223372036854775808", None),
        ("DOUBLE", "1e3", 1000.0), ("FLOAT", "x", None), ("TEXT", "x", "x"), ("DATE", "2024-02-30", None),
        ("ENUM('a', 'it''s')", "it's", "it's"), ("ENUM('a')", "b", None),
        ("UBIGINT", "18446744073709551615", 2**64 - 1),
    ],
)  # fmt: skip
def test_a_text_is_read_as_its_type_or_is_null(kind, text, value):
    assert typed(pl.DataFrame({"x": [text, None]}), {"x": kind})["x"].to_list() == [value, None]


def test_decimals_and_moments_are_read_as_such():
    frame = pl.DataFrame({"d": ["1.25", "123456789.0"], "t": ["2024-01-01 10:00:00", "2024-01-01T10:00:00.5"]})
    frame = frame.with_columns(c=pl.Series(["10:11:12", "25:00:00"]), day=pl.lit("2024-01-01"))
    found = typed(frame, {"d": "NUMERIC(9, 2)", "t": "TIMESTAMP", "c": "TIME", "day": "TIMESTAMP"})
    assert found.schema["d"] == pl.Decimal(9, 2)
    assert [None if one is None else str(one) for one in found["d"]] == ["1.25", None]
    assert found["t"].dt.microsecond().to_list() == [0, 500_000]
    assert found["c"].is_null().to_list() == [False, True]
    assert found["day"].null_count() == 0


def test_types_have_one_name_each_and_others_are_refused():
    assert declared_type(" enum( 'a' ,'b') ")[0] == "ENUM('a', 'b')"
    assert [declared_type(one)[0] for one in ("int", "real", "decimal", "DECIMAL(5)")] == [
        "INTEGER", "FLOAT", "DECIMAL(18, 3)", "DECIMAL(5, 0)",
    ]  # fmt: skip
    for wrong in ("DECIMAL(99,2)", "DECIMAL(2,3)", "ENUM()", "ENUM('a', 'a')", "STRUCT(a INT)", "", "HUGEINT"):
        with pytest.raises(InvalidParameterError, match="types are BOOLEAN"):
            declared_type(wrong)


@pytest.mark.slow
def test_the_quick_reading_of_text_is_the_slow_one():
    """Compare both readers on random regular texts. Irregular texts are read by the slow reader only."""
    import random

    rng, regular = random.Random(7), 0
    fields = ["x", '"x"', '""', '"a""b"', '","', '"\n"', '"\r\n"', "", "é", "\t"]
    for _ in range(3000):
        if rng.random() < 0.7:
            body = "".join(rng.choice(fields) + rng.choice([",", "\n", "\r\n"]) for _ in range(rng.randrange(7)))
        else:
            body = "".join(rng.choice('a""",,\n\n\r ') for _ in range(rng.randrange(14)))
        content = (rng.choice(["h,k\n", "h\r\n", '"h",k,l\n']) + body).encode()
        names, found = header_of(content, ","), texts_of(content, ",")
        assert found.columns == names
        assert found.equals(_slow(content, ",", names)), content
        regular += is_regular(content, ",")
    assert 1500 < regular < 2900  # both readings were compared


# ---------------------------------------------------------------------- the identity of files


def test_damaged_empty_and_nameless_files_are_refused_without_a_quote(tmp_path, session):
    broken = {
        "a.parquet": SECRET.encode(), "b.parquet": b"", "c.arrow": b"ARROW1" + SECRET.encode(), "d.feather": b"",
        "e.csv": b"", "f.csv": b"\n1,2\n", "g.csv": b"1,2\n3,4\n", "h.csv": b"a,a\n1,2\n",
        "i.csv.gz": gzip.compress(LINES.encode())[:-9], "j.csv.zst": SECRET.encode(), "k.csv": b",b\n",
    }  # fmt: skip
    for name, content in broken.items():
        path = put(tmp_path, content, name)
        with pytest.raises(InvalidDataError) as refused:
            open_file("visits", path, {} if ".csv" in name else None, session)
        assert SECRET not in str(refused.value)
        assert refused.value.__suppress_context__ or refused.value.__context__ is None
    for nothing in ("none.csv", "none.parquet", "none.xlsx"):
        with pytest.raises(InvalidParameterError, match="There is no Parquet, CSV or Arrow file for visits"):
            open_file("visits", tmp_path / nothing, None, session)
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(InvalidParameterError):
        open_file("visits", tmp_path / "folder.parquet", None, session)


def test_a_header_alone_is_a_table_without_rows(tmp_path, session):
    for content in ("user_id,x", "user_id,x\n", "\ufeffuser_id,x\r\n"):
        opened = open_file("t", put(tmp_path, content), {"x": "DOUBLE"}, session)
        assert opened.frame.collect().schema == {"user_id": pl.String, "x": pl.Float64}
        assert opened.frame.collect().height == 0


def test_packed_text_is_the_same_text(tmp_path, session):
    plain = open_file("t", put(tmp_path, LINES), TYPES, session).frame.collect()
    packed = put(tmp_path, gzip.compress(LINES.encode()), "visits.csv.gz")
    assert open_file("t", packed, TYPES, session).frame.collect().equals(plain)
    zstd = pa.BufferOutputStream()
    with pa.CompressedOutputStream(zstd, "zstd") as stream:
        stream.write(LINES.encode())
    assert (
        open_file("t", put(tmp_path, zstd.getvalue().to_pybytes(), "v.csv.zst"), TYPES, session)
        .frame.collect()
        .equals(plain)
    )


def test_a_path_with_the_signs_of_a_pattern_is_one_file(tmp_path, session):
    pl.DataFrame({"user_id": [1, 2]}).write_parquet(tmp_path / "v1.parquet")
    pl.DataFrame({"user_id": [3]}).write_parquet(tmp_path / "v[1].parquet")
    (tmp_path / "region=a").mkdir()
    pl.DataFrame({"user_id": [4]}).write_parquet(tmp_path / "region=a" / "v*.parquet")
    assert open_file("v", tmp_path / "v[1].parquet", None, session).frame.collect().rows() == [(3,)]
    assert open_file("v", tmp_path / "region=a" / "v*.parquet", None, session).frame.collect().rows() == [(4,)]


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_a_link_that_leads_elsewhere_is_another_source(kind, tmp_path, session):
    for name in ("a", "b"):
        frame = pl.DataFrame({"user_id": [1]})
        path = tmp_path / f"{name}.{kind}"
        {"csv": frame.write_csv, "parquet": frame.write_parquet, "arrow": frame.write_ipc}[kind](path)
        os.utime(path, ns=(10**18, 10**18))
    link, types = tmp_path / f"link.{kind}", {} if kind == "csv" else None
    link.symlink_to(tmp_path / f"a.{kind}")
    first = open_file("t", link, types, session)
    name = first.source_name()
    assert name == open_file("t", tmp_path / f"a.{kind}", types, session).source_name()
    link.unlink()
    link.symlink_to(tmp_path / f"b.{kind}")
    second = open_file("t", link, types, session)
    assert second.source_name() != name
    assert first.source_name() == name  # it stays what it was opened as
    assert not same_file(first, second)
    assert b"user_id" not in name or kind == "csv"


def test_a_parquet_file_that_is_replaced_is_another_source_and_is_read_as_it_is(tmp_path, session):
    path, new = tmp_path / "v.parquet", tmp_path / "new.parquet"
    pl.DataFrame({"user_id": [1], "x": [10]}).write_parquet(path)
    opened = open_file("v", path, None, session)
    name, identity = opened.source_name(), opened.identity
    assert opened.frame.collect().rows() == [(1, 10)]
    pl.DataFrame({"x": [20], "user_id": [2]}).write_parquet(new)
    os.replace(new, path)
    assert opened.source_name() != name
    assert opened.frame.select("user_id", "x").collect().rows() == [(2, 20)]  # by name, not by place
    assert opened.identity == identity
    assert len(opened.identities()) == 2
    path.unlink()
    for look in (opened.source_name, lambda: opened.bytes, lambda: opened.frame):
        with pytest.raises(InvalidDataError):
            look()


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, session, monkeypatch):
    path, reading = put(tmp_path, LINES), files.state_from

    def changing(path, found):
        state = reading(path, found)
        with open(path, "a") as file:
            file.write("1,2024-01-01,1.5,late\n")
        return state

    monkeypatch.setattr(files, "state_from", changing)
    with pytest.raises(InvalidDataError, match="changed while it was read"):
        open_file("visits", path, TYPES, session)
    assert session.facts == ()


def test_the_name_of_a_text_file_is_made_of_its_state_and_its_types_alone(tmp_path, session):
    path = put(tmp_path, LINES)
    os.utime(path, ns=(10**18, 10**18))
    opened = open_file("visits", path, TYPES, session)
    state, types = json.loads(opened.source_name().removeprefix(b"file:"))
    found = os.stat(path)
    assert state == [str(path), found.st_dev, found.st_ino, found.st_size, 10**18, found.st_ctime_ns]
    assert types == [["user_id", "BIGINT"], ["day", "DATE"], ["amount", "DOUBLE"], ["note", "VARCHAR"]]
    assert opened.bytes == len(LINES)
    assert open_file("visits", path, {}, session).source_name() != opened.source_name()
    assert open_file("visits", path, {**TYPES, "note": "text"}, session).source_name() == opened.source_name()
    assert "n17" not in repr(opened)


def test_one_file_is_not_public_and_private_whichever_comes_first(tmp_path, session):
    path, link, hard, other = (tmp_path / name for name in ("a.csv", "link.csv", "hard.csv", "other.csv"))
    for file in (path, other):
        put(tmp_path, LINES, file.name)
    link.symlink_to(path)
    os.link(path, hard)
    opened = {file.stem: open_file(file.stem, file, TYPES, session) for file in (path, link, hard, other)}
    for name in ("link", "hard"):
        with pytest.raises(InvalidParameterError, match=rf"{name}.*a|a.*{name}"):
            refuse_public_and_private({"a": opened["a"], name: opened[name]}, {name})
    refuse_public_and_private(opened, {"other"})
    refuse_public_and_private(opened, set(opened))
    refuse_public_and_private(opened, set())
    con = dp.connect(None, session).register("shown", link, types=TYPES).public("shown")
    with pytest.raises(InvalidParameterError, match="the same file"):
        con.register("a", path, types=TYPES)
    con.register("shown", other, types=TYPES)  # under its old name another file is private again


# ---------------------------------------------------------------------- frames


@pytest.mark.slow
def test_categories_become_texts_and_never_keys(session):
    rows = {"user_id": range(300), "illness": ["flu"] * 299 + [SECRET]}
    frame = pd.DataFrame(rows).astype({"illness": "category"})
    texts = pl.DataFrame(rows)
    for source in (frame, pa.Table.from_pandas(frame), texts.cast({"illness": pl.Categorical}),
                   texts.lazy().cast({"illness": pl.Categorical})):  # fmt: skip
        opened = open_frame("visits", source)
        assert opened.frame.collect_schema()["illness"] == pl.String
        assert opened.frame.collect()["illness"].to_list() == rows["illness"]
        con = dp.connect(None, dp.Session(epsilon=1.0, delta=1e-6, unit="user_id", max_groups=1)).register("v", source)
        answer = con.sql("SELECT illness, dp_count_units(epsilon := 0.01) AS n FROM v GROUP BY illness").fetchall()
        assert SECRET not in str(answer)
    kinds = {"l": pl.List(pl.Categorical), "s": pl.Struct({"x": pl.Categorical})}
    nested = pl.DataFrame({"l": [["a"]], "s": [{"x": "q"}]}, schema=kinds)
    assert open_frame("v", nested).frame.collect_schema() == {"l": pl.List(pl.String), "s": pl.Struct({"x": pl.String})}
    declared = pl.DataFrame({"e": ["a"]}, schema={"e": pl.Enum(["a", "b"])})
    assert open_frame("v", declared).frame.collect_schema()["e"] == pl.Enum(["a", "b"])
    assert open_frame("v", pd.DataFrame({"n": pd.Categorical([3, 5])})).frame.collect()["n"].to_list() == [3, 5]


def test_an_object_column_is_text_whatever_one_value_is():
    for last in (
        "c",
        1,
        2.5,
        None,
        float("nan"),
        b"x",
        [1],
        object(),
        "\ud800",
        10**5000,
        pd.Timestamp("2024-01-01"),
        pd.NaT,
    ):
        opened = open_frame("v", pd.DataFrame({"x": pd.Series(["a", "b", last], dtype=object)}))
        assert opened.frame.collect_schema() == {"x": pl.String}
        assert opened.frame.collect()["x"].to_list()[:2] == ["a", "b"]
        boxed = pd.DataFrame({"x": pd.Categorical(pd.Series(["a", "b", None], dtype=object))})
        assert open_frame("v", boxed).frame.collect_schema() == {"x": pl.String}


def test_what_polars_cannot_hold_is_refused_by_name_and_quotes_nothing():
    uuid = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([SECRET.ljust(16)[:16].encode()], pa.binary(16)))
    for source in (
        pd.DataFrame({"fine": [1], "odd": pd.period_range("2020", periods=1, freq="D")}),
        pd.DataFrame({"fine": [1], "odd": [1j]}),
        pa.table({"fine": [1], "odd": uuid}),
        pa.table({"fine": [1], "odd": pa.array([1], pa.decimal256(60, 2))}),
        pa.table({"fine": [1], "odd": pa.array([1], pa.timestamp("us", SECRET))}),
        pl.DataFrame({"fine": [1], "odd": [object()]}),
    ):
        with pytest.raises(InvalidDataError, match="odd") as refused:
            open_frame("v", source)
        assert "fine" not in str(refused.value)
        assert SECRET not in str(refused.value)
    for source in (pd.DataFrame([[1]]), pd.DataFrame([[1, 2]], columns=["a", "a"])):
        with pytest.raises(InvalidDataError, match="names"):
            open_frame("v", source)
    with pytest.raises(InvalidDataError):
        open_frame("v", pl.LazyFrame({"a": [1]}).select("b"))
    with pytest.raises(InvalidParameterError, match="a dict"):
        open_frame("v", {"a": [1]})


def test_a_frame_is_the_same_source_as_the_same_object_and_a_plan_stays_a_plan(tmp_path, session):
    for frame in (pl.DataFrame({"a": [1]}), pa.table({"a": [1]}), pd.DataFrame({"a": [1]})):
        opened = open_frame("v", frame)
        assert opened.source_name() == open_frame("w", frame).source_name()
        equal = (
            frame.clone()
            if isinstance(frame, pl.DataFrame)
            else frame.slice(0)
            if isinstance(frame, pa.Table)
            else frame.copy()
        )
        assert open_frame("v", equal).source_name() != opened.source_name()
        assert (opened.identity, opened.bytes, opened.path) == (None, 0, None)
    asked = []
    lazy = pl.LazyFrame({"a": [1]}).map_batches(lambda rows: asked.append(1) or rows, schema={"a": pl.Int64})
    opened = open_source("v", lazy, None, session)
    assert not asked
    opened.frame.collect()
    assert asked
    with pytest.raises(InvalidParameterError, match="its own types"):
        open_source("v", lazy, {"a": "DOUBLE"}, session)


# ---------------------------------------------------------------------- separators, folders and patterns


@pytest.mark.parametrize("sign", [";", "\t", "|", ","])
@pytest.mark.parametrize("name", ["visits.csv", "visits.tsv"])
def test_the_header_alone_decides_how_fields_are_separated(sign, name, tmp_path, session):
    expected = open_file("t", put(tmp_path, LINES), TYPES, session).frame.collect()
    path = put(tmp_path, LINES.replace(",", sign), name)
    assert open_file("t", path, TYPES, session).frame.collect().equals(expected)
    for strange in ("1,2,3,4,5,6,7", "1;2;3;4;5;6;7", "1|2|3|4|5|6|7", "\t" * 9):
        put(tmp_path, LINES.replace(",", sign) + f"{strange}\n" * 50, name)
        found = open_file("t", path, TYPES, session).frame.collect()
        assert found.columns == expected.columns
        assert found.head(40).equals(expected)


def test_names_in_quotes_and_single_columns_do_not_mislead(tmp_path, session):
    for header, columns in {
        '"a;b;c",d': ["a;b;c", "d"], "a": ["a"], "a,b;c": ["a", "b;c"], '"a,b";c;d': ["a,b", "c", "d"],
    }.items():  # fmt: skip
        assert open_file("t", put(tmp_path, header + "\n1\n"), {}, session).frame.collect_schema().names() == columns


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow"])
def test_a_folder_or_a_pattern_is_one_table_that_all_its_files_identify(kind, tmp_path, session):
    def save(place, frame):
        path = folder / f"{place}.{kind}"
        {"csv": frame.write_csv, "parquet": frame.write_parquet, "arrow": frame.write_ipc}[kind](path)
        return path

    def opened(source):
        return open_file("t", source, {"user_id": "BIGINT"} if kind == "csv" else None, session)

    folder = tmp_path / "visits"
    folder.mkdir()
    paths = [save(place, pl.DataFrame({"user_id": [place, 9]})) for place in (1, 2, 3)]
    (folder / "_SUCCESS").touch()
    whole, some = opened(folder), opened(folder / f"[12].{kind}")
    assert sorted(whole.frame.collect().to_series()) == [1, 2, 3, 9, 9, 9]
    assert sorted(some.frame.collect().to_series()) == [1, 2, 9, 9]
    assert whole.source_name() == opened(str(folder) + "/").source_name() == opened(folder / f"*.{kind}").source_name()
    names = {whole.source_name(), some.source_name(), opened(paths[0]).source_name()}
    assert same_file(whole, opened(paths[1]))
    with pytest.raises(InvalidParameterError, match="the same file"):
        refuse_public_and_private({"a": whole, "b": opened(paths[2])}, ["b"])
    for change in (lambda: os.utime(paths[2], ns=(10**18, 10**18)), lambda: save(4, pl.DataFrame({"user_id": [1]}))):
        change()
        names.add(opened(folder).source_name())
    assert len(names) == 5
    assert whole.bytes == sum(path.stat().st_size for path in paths)


def test_files_that_are_not_one_table_are_refused_without_a_quote(tmp_path, session):
    frame = pl.DataFrame({"user_id": [1], "x": [2]})
    for name, other in {
        "types": frame.cast({"x": pl.Float64}), "order": frame.select("x", "user_id"), "more": frame.with_columns(y=1)
    }.items():  # fmt: skip
        (tmp_path / name).mkdir()
        frame.write_parquet(tmp_path / name / "a.parquet")
        other.write_parquet(tmp_path / name / "b.parquet")
        with pytest.raises(InvalidDataError, match="have different columns"):
            open_file("t", tmp_path / name, None, session)
    for content, problem in ((f"{SECRET},x\n1,2\n", InvalidDataError), ("user_id,x\n1,2\n", None)):
        put(tmp_path, "user_id,x\n1,2\n", "a.csv"), put(tmp_path, content, "b.csv")
        if problem is None:
            assert open_file("t", tmp_path / "?.csv", {}, session).frame.collect().height == 2
            continue
        with pytest.raises(problem, match="does not name the columns") as refused:
            open_file("t", tmp_path / "?.csv", {}, session)
        assert SECRET not in str(refused.value)
    os.link(tmp_path / "a.csv", tmp_path / "c.csv")
    with pytest.raises(InvalidParameterError, match="count twice"):
        open_file("t", tmp_path / "?.csv", {}, session)
    with pytest.raises(InvalidParameterError, match="has folders inside"):
        open_file("t", tmp_path, None, session)
    frame.write_parquet(tmp_path / "types" / "c.pq")
    put(tmp_path / "types", "x", "notes.txt")
    with pytest.raises(InvalidParameterError, match="different or unknown formats"):
        open_file("t", tmp_path / "types", None, session)


def test_inferred_types_of_a_folder_are_recorded_once(tmp_path, session):
    folder = tmp_path / "visits"
    folder.mkdir()
    put(folder, LINES, "a.csv")
    with pytest.raises(InvalidParameterError, match="text file"):
        open_file("t", folder, None, session)
    before = open_file("t", folder, "infer", session)
    put(folder, LINES.splitlines()[0] + "\nx,x,x,x\n", "b.csv")
    after = open_file("t", folder, "infer", session)
    assert (before.types, len(session.facts)) == (after.types, 1)
    assert after.frame.collect().row(-1) == (None, None, None, "x")
