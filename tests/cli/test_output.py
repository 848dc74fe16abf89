"""All formats hold the same answer, and a table fits its window and says what it leaves out."""

import io
import json
import os
import subprocess
import sys
from decimal import Decimal

import polars as pl
import pytest

from dp_polars._cli import main
from dp_polars._cli.output import encoded, json_text
from tests.cli.files import COUNT, REGIONS, ROOT, TERMS, put


@pytest.fixture
def words(tmp_path):
    return ["sql", put(tmp_path, "visits.parquet"), *TERMS, "--ledger", str(tmp_path / "b.db"), "--share", "0.5", COUNT]


def read(form, content):
    if form == "parquet":
        return pl.read_parquet(io.BytesIO(content))
    if form == "csv":
        return pl.read_csv(content)
    if form == "json":
        return pl.DataFrame(json.loads(content))
    return pl.DataFrame([json.loads(line) for line in content.splitlines()])


@pytest.mark.slow
def test_every_format_holds_the_same_answer(words, tmp_path, capfdbinary):
    found = {}
    for form in ("csv", "json", "jsonl", "parquet"):
        target = tmp_path / f"answer.{form}"
        code = main([*words, "--output", str(target)])
        assert (code, capfdbinary.readouterr().out) == (0, b"")
        found[form] = read(form, target.read_bytes())
        assert main([*words, "--format", form]) == 0
        assert capfdbinary.readouterr().out == target.read_bytes()
    assert found["csv"]["region"].to_list() == REGIONS
    assert all(frame.equals(found["csv"]) for frame in found.values())
    assert main(words) == 0
    table = capfdbinary.readouterr().out.decode()
    assert all(str(n) in table for n in found["csv"]["n"])


def test_values_of_every_type_survive():
    frame = pl.DataFrame(
        {
            "x": [1.5, float("nan"), float("inf"), None],
            "bins": [[{"low": 0.0, "n": 1}], [], None, [{"low": 1.0, "n": -2}]],
            "day": [None, *pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 1, 3), eager=True)],
            "text": ["é, \"'", "\n", None, ""],
            "money": pl.Series([1, 2, None, 4]).cast(pl.Decimal(10, 2)),
        }
    )
    rows, big = json.loads(encoded(frame, "json", 80)), Decimal("123456789012345678901234.56")
    assert [row["x"] for row in rows] == [1.5, None, None, None]
    assert rows[0]["bins"] == [{"low": 0.0, "n": 1}]
    assert [row["day"] for row in rows] == [None, "2024-01-01", "2024-01-02", "2024-01-03"]
    assert [row["text"] for row in rows] == frame["text"].to_list()
    assert [row["money"] for row in rows] == [1.0, 2.0, None, 4.0]
    exact = json.loads(encoded(pl.DataFrame({"money": [big]}), "json", 80), parse_float=Decimal)
    assert exact == [{"money": big}]
    for value in ([{"a": [1, 2.5, None, True, "x"], "b": []}], {}, [], {"a": {"b": [1]}}):
        for indent in (None, 2):
            assert json_text(value, indent) == json.dumps(value, indent=indent)
    lines = encoded(frame, "csv", 80)
    assert json.loads(pl.read_csv(lines)["bins"][3]) == [{"low": 1.0, "n": -2}]
    assert read("parquet", encoded(frame, "parquet", 80)).equals(frame)


@pytest.mark.parametrize("width", [20, 40, 80, 300])
def test_a_wide_table_fits_a_narrow_window(width, capsys):
    frame = pl.DataFrame({f"column_{i}": range(500) for i in range(30)})
    table = encoded(frame, "table", width).decode()
    err = capsys.readouterr().err
    assert max(map(len, table.splitlines())) <= width
    assert table.splitlines()[-2].strip("│ ").startswith("199")
    assert "300 of 500 rows" in err
    assert "column_0" in table
    if width < 300:
        shown = table.splitlines()[1].count("column_")
        assert f"{30 - shown} of 30 columns" in err
    assert "--format csv gives all" in err


def test_the_width_comes_from_the_environment(words, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "12")
    code, out, err = run(*words)
    assert code == 0
    assert "region" in out
    assert "left out: 1 of 2 columns" in err


def test_a_file_that_is_read_is_not_overwritten(words, tmp_path, run):
    before = (tmp_path / "visits.parquet").read_bytes()
    assert run(*words, "--output", tmp_path / "visits.parquet")[0] == 2
    assert (tmp_path / "visits.parquet").read_bytes() == before
    assert run(*words, "--output", tmp_path / "b.db")[0] == 2
    assert not (tmp_path / "b.db").exists()
    assert run(*words)[0] == 0
    assert run(*words, "--output", tmp_path / "b.db")[0] == 2
    code, out, err = run(*words, "--output", tmp_path / "no" / "such.csv")
    assert (code, out) == (4, "")
    assert "Nothing was run or charged" in err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["answer.xlsx", "answer.csv.gz", "answer.tsv"])
def test_an_unknown_extension_is_refused_before_anything_is_paid(words, tmp_path, run, name):
    code, out, err = run(*words, "--output", tmp_path / name)
    assert (code, out) == (2, "")
    assert f"the extension {name[name.rindex('.') :]}. Use one of .txt, .csv, .json" in err
    assert sorted(os.listdir(tmp_path)) == ["visits.parquet"]  # no ledger and no answer
    assert run(*words, "--output", tmp_path / name, "--format", "csv")[0] == 0
    assert (tmp_path / name).read_text().startswith("region,n\n")


def test_parquet_is_not_sent_to_a_terminal(words, run, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main([*words, "--format", "parquet"]) == 2


@pytest.mark.slow
def test_an_answer_that_was_paid_for_is_shown_in_any_locale(words, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "dp_polars", *words], capture_output=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "┌" in done.stdout.decode()


@pytest.mark.slow
def test_a_closed_pipe_is_not_reported(words, tmp_path):
    assert main(words) == 0
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "dp_polars", "budget", str(tmp_path / "b.db"), "--format", "csv"],
        stdout=writer, stderr=subprocess.PIPE, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_budget_is_shown_to_people_and_to_programs(words, tmp_path, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    ledger = tmp_path / "b.db"
    assert run(*words)[0] == 0
    code, table, err = run("budget", ledger)
    assert (code, err) == (0, "")
    assert "50 % used, 50 % left" in table
    assert "count by region, unit user_id" in table
    assert "budget (%)" in table
    assert "rho" not in table
    accounts = run("budget", ledger, "--accounts")[1]
    assert "of 1\n" in accounts
    assert "rho" in accounts
    whole = json.loads(run("budget", ledger, "--format", "json")[1])
    assert (whole["terms"]["epsilon"], whole["terms"]["delta"], whole["terms"]["group_size"]) == (1, 1e-6, 1)
    assert sum(whole["terms"]["delta_split"].values()) == pytest.approx(1e-6)
    assert whole["terms"]["unit"] == "user_id"
    assert whole["remaining"]["share"] == pytest.approx(0.5)
    assert [release["state"] for release in whole["releases"]] == ["committed"]
    listed = pl.read_csv(run("budget", ledger, "--format", "csv")[1].encode())
    assert listed["share"].to_list() == pytest.approx([0.5])


@pytest.mark.slow
def test_an_empty_and_a_pure_ledger_are_shown_too(tmp_path, run):
    file = put(tmp_path, "visits.parquet")
    pure = [
        "sql",
        file,
        "--each-row",
        "--epsilon",
        "1",
        "--ledger",
        tmp_path / "p.db",
        "--spend",
        "2",
        "SELECT dp_count(*) FROM visits",
    ]
    assert run(*pure)[0] == 3
    assert "releases: 0" in run("budget", tmp_path / "p.db")[1]
    assert run(*pure[:-3], "--spend", "0.5", pure[-1])[0] == 0
    shown = run("budget", tmp_path / "p.db")[1]
    assert "50 % used, 50 % left" in shown
    assert "rho" not in shown + run("budget", tmp_path / "p.db", "--accounts")[1]
