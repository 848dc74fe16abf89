"""Every failure has an exit code and a message that says what to do, and no message quotes a row."""

import contextlib
import io
import os
import time
import tomllib
from importlib import import_module

import polars as pl
import pytest

from dp_polars._cli import main, output
from tests.cli.files import COUNT, ROOT, TERMS, VISITS, in_a_new_process, put, typed

SECRET = "Zanzibar-4711"

PAYING, UNCAPPED = [*TERMS, "--spend", "0.1"], [*TERMS[:6], "--spend", "0.1"]
REFUSALS = {
    "no spend": (COUNT, TERMS, "--spend 0.1"),
    "no caps": ("SELECT dp_count(*) FROM visits", UNCAPPED, "--max-rows-per-group"),
    "no group cap": ("SELECT region, dp_count_units() FROM visits GROUP BY 1", UNCAPPED, "--max-groups auto"),
    "no bounds": ("SELECT dp_sum(amount) FROM visits", PAYING, "dp_sum(amount, 0, 100)"),
    "typo in a column": ("SELECT dp_sum(amuont, 0, 9) FROM visits", PAYING, "Did you mean amount?"),
    "typo in a key": ("SELECT regoin, dp_count(*) FROM visits GROUP BY 1", PAYING, "Did you mean region?"),
    "unknown table": ("SELECT dp_count(*) FROM visitors", PAYING, "Did you mean visits? There are visits."),
    "no such table": ("SELECT dp_count(*) FROM q", PAYING, "there are visits."),
    "rows": ("SELECT * FROM visits", PAYING, "private rows"),
    "no SQL": ("SELECT dp_count(* FROM", PAYING, "syntax error"),
    "two statements": ("SELECT 1; SELECT 2", TERMS, "one statement at a time"),
    "unit typo": ("SELECT dp_count(*) FROM visits", ["--unit", "usr", "--epsilon", "1", "--spend", "1"],
                  "it has user_id, region, amount, day."),
    "no unit": (COUNT, ["--epsilon", "1", "--spend", "1"], "--unit COLUMN"),
    "no budget": (COUNT, ["--unit", "user_id", "--spend", "1"], "--epsilon 1"),
    "no delta": ("SELECT region, dp_count_units() FROM visits GROUP BY 1",
                 ["--unit", "user_id", "--epsilon", "1", "--spend", "1", "--max-groups", "1"], "--delta"),
    "epsilon 0": (COUNT, ["--unit", "user_id", "--epsilon", "0", "--spend", "1"], "greater than 0"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_says_what_to_do(case, tmp_path, run):
    statement, options, expected = REFUSALS[case]
    code, out, err = run("sql", put(tmp_path, "visits.parquet"), *options, statement)
    assert (code, out) == (1, "")
    assert err.startswith("dp-polars: ")
    assert expected in err
    assert "Traceback" not in err


NEEDED = ["--epsilon 1", "--unit COLUMN", "--spend 0.1", "--max-groups auto", "--max-rows-per-group auto"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "csv", "duckdb"])
def test_everything_that_is_missing_is_said_at_once(kind, tmp_path, run):
    file, statement = (
        put(tmp_path, f"visits.{kind}"),
        "SELECT region, dp_count(*), dp_sum(amount) FROM visits GROUP BY 1",
    )
    needed = [*NEEDED, "bounds := 'auto'", *(["--type TABLE.COLUMN"] if kind == "csv" else [])]
    for command in ("sql", "preview"):
        code, out, err = run(command, file, "--ledger", tmp_path / "new.db", statement)
        assert (code, out) == (1, "")
        assert err.startswith("dp-polars: Before this statement can run, add all of these:\n")
        assert [text for text in needed if text not in err] == []
        assert "the columns are user_id, region, amount, day" in err
        assert len(err.splitlines()) == 1 + len(needed)
    said = [*typed(file), "--unit", "user_id", "--epsilon", "1", "--delta", "1e-6", "--max-groups", "auto"]
    said += ["--max-rows-per-group", "auto", "--spend", "0.5", statement.replace("amount", "amount, bounds := 'auto'")]
    assert run("preview", file, *said)[0] == 0  # what the message says is enough
    assert os.listdir(tmp_path) == [os.path.basename(file)]


@pytest.mark.slow
def test_what_a_ledger_has_is_not_missing_and_a_trial_changes_nothing_in_it(tmp_path, run):
    file, ledger = put(tmp_path, "visits.parquet"), tmp_path / "b.db"
    assert run("sql", file, *UNCAPPED, "--ledger", ledger, "SELECT dp_count_units() FROM visits")[0] == 0
    before = run("budget", ledger, "--format", "json")[1]
    statement = "SELECT region, dp_count(*) FROM visits GROUP BY 1"
    for _ in range(2):
        code, _, err = run("sql", file, "--ledger", ledger, statement)
        assert (code, len(err.splitlines())) == (1, 4)
        assert [text for text in NEEDED if text in err] == NEEDED[2:]
    assert run("budget", ledger, "--format", "json")[1] == before


@pytest.mark.slow
def test_an_exceeded_budget_is_code_3(tmp_path, run):
    words = ["sql", put(tmp_path, "visits.parquet"), *TERMS, "--ledger", tmp_path / "b.db"]
    assert run(*words, "--spend", "0.8", COUNT)[0] == 0
    code, out, err = run(*words, "--spend", "0.3", "SELECT dp_count(*) FROM visits")
    assert (code, out) == (3, "")
    assert "the largest spend that fits is" in err
    assert run(*words, "--spend", "0.8", COUNT)[0] == 0  # a stored answer stays available


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nothing"],
        ["sql"],
        ["sql", "SELECT 1"],
        ["sql", "{file}", "--unit", "user_id"],
        ["sql", "{file}", "--epsilon", "one", COUNT],
        ["sql", "{file}", "--epsilon", "1e999999999", COUNT],
        ["sql", "{file}", "--epsilon", "1e-999999999", COUNT],
        ["sql", "{file}", "--epsilon", "nan", COUNT],
        ["sql", "{file}", "--max-groups", "few", COUNT],
        ["sql", "{file}", "--spend", "1", "--share", "1", COUNT],
        ["sql", "{file}", "--unit", "a", "--each-row", COUNT],
        ["sql", "{file}", "--name", "visits", COUNT],
        ["sql", "{file}", "--adjacency", "swap", COUNT],
        ["sql", "{file}", "--formt", "csv", COUNT],
        ["budget"],
        ["demo", "again"],
    ],
)
def test_wrong_usage_is_code_2(words, tmp_path, run):
    file = put(tmp_path, "visits.parquet")
    code, out, err = run(*(word.format(file=file) for word in words))
    assert (code, out) == (2, "")
    assert "usage: dp-polars" in err


def test_a_missing_or_unreadable_file_is_code_4(tmp_path, run):
    def problem(*words):
        code, out, err = run("sql", *words, *TERMS, "--spend", "0.1", COUNT)
        assert (code, out) == (4, ""), err
        return err

    assert "There is no file nope.parquet" in problem("nope.parquet")
    assert "There is no file nope.csv" in problem(put(tmp_path, "visits.parquet"), "--public", "nope.csv")
    (tmp_path / "folder.parquet").mkdir()
    assert "has no files" in problem(tmp_path / "folder.parquet")
    assert "No file matches" in problem(tmp_path / "none*.parquet")
    for name in ("visits.parquet", "visits.arrow", "visits.duckdb", "visits.db", "visits.xlsx"):
        (tmp_path / name).write_bytes(b"user_id,region\n1,\xff\xfe\n2,3,4,5\n" + SECRET.encode())
        err = problem(tmp_path / name)
        assert name in err
        assert SECRET not in err
    assert run("budget", tmp_path / "none.db")[0] == 4
    assert run("budget", tmp_path / "visits.arrow")[0] == 4


@pytest.mark.slow
def test_no_line_of_a_text_file_decides_whether_it_can_be_read(tmp_path, run):
    """A ragged line, invalid bytes or an unusual date may be one person's line, so none of them may cause a failure."""
    paying = [*TERMS, "--spend", "0.1", "--infer-types", COUNT]
    lines = ["user_id,region,day,n", "1,north,2020-01-01,1", "2,north,2020-01-02,2"]
    for strange in ("", "3,north,02/01/2020,99999999999999999999", "3,n,4,5,6,7", "3", '3,"n', '3,5" nail,x', '"'):
        (tmp_path / "visits.csv").write_text("\n".join([*lines, strange]) + "\n")
        assert run("sql", tmp_path / "visits.csv", *paying)[0] == 0
    (tmp_path / "visits.csv").write_bytes("\n".join(lines).encode() + b"\n3,\xff\xfe,,\n")
    assert run("sql", tmp_path / "visits.csv", *paying)[0] == 0
    for header in ("ada,555-1234,42", "1,2", ",b", "a,a"):
        (tmp_path / "visits.csv").write_text(f"{header}\n1,2,3\n")
        code, _, err = run("sql", tmp_path / "visits.csv", *paying)
        assert code != 0
        assert "ada" not in err


def test_two_files_with_the_same_name_need_another_name(tmp_path, run):
    code, _, err = run("sql", put(tmp_path, "visits.parquet"), put(tmp_path, "visits.csv"), *TERMS, COUNT)
    assert code == 1
    assert "--name OTHER=" in err


@pytest.mark.slow
def test_a_file_name_that_looks_like_a_glob_pattern_is_one_file(tmp_path, run):
    for other in ("visits1.parquet", "visits1.csv", "visits22.csv"):
        put(tmp_path, other, VISITS.head(7))
    huge = ["--unit", "user_id", "--epsilon", "1e6", "--spend", "1e5", "--max-rows-per-group", "9", "--format", "csv"]
    for kind in ("visits[1].parquet", "visits*.csv", "visits??.csv", "visits{1,2}.csv"):
        file = put(tmp_path, kind, VISITS.head(600))
        words = ["--name", f"v={file}", *huge, *typed(file)]
        code, out, _ = run("sql", *words, "SELECT dp_count(*) AS n FROM v")
        assert (code, out) == (0, "n\n600\n")


@pytest.mark.slow
def test_no_message_quotes_a_row(tmp_path, run):
    """Text in place of numbers, casts that fail on a value, and a damaged page of a file are tried."""
    secret = VISITS.with_columns(note=pl.lit(SECRET), region=pl.lit(SECRET))
    parquet, text = put(tmp_path, "visits.parquet", secret), put(tmp_path, "visits.csv", secret)
    statements = [
        "SELECT dp_sum(note, 0, 9) FROM visits",
        "SELECT dp_sum(note::INT, 0, 9) FROM visits",
        "SELECT dp_count(*) FROM visits WHERE note::DATE > DATE '2024-01-01'",
        "SELECT dp_count(*) FROM visits WHERE error(note) IS NULL",
        "SELECT dp_count(*, keys := [note]) FROM visits",
        "SELECT note, dp_count(*) FROM visits",
        "SELECT dp_count(*) / 0, 'x'::INT FROM visits",
        "SELECT dp_max(note, 0, 1) FROM visits",
    ]
    for file in (parquet, text):
        for statement in statements:
            code, out, err = run("sql", file, *TERMS, *typed(file), "--spend", "0.1", statement)
            assert code in (0, 1)
            assert SECRET not in out + err, statement
    content = bytearray((tmp_path / "visits.parquet").read_bytes())
    start = content.index(b"PAR1") + 4
    content[start : start + 200] = b"\xff" * 200
    (tmp_path / "visits.parquet").write_bytes(content)
    code, out, err = run("sql", parquet, *TERMS, "--spend", "0.1", "SELECT dp_count(*) FROM visits WHERE user_id > 3")
    assert (code, out) == (1, "")
    assert SECRET not in err
    assert "Traceback" not in err


def test_the_message_of_an_unexpected_error_is_withheld(tmp_path, run, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError(SECRET)

    monkeypatch.setattr("dp_polars._sql.connection.GuardedConnection.sql", fail)
    code, out, err = run("sql", put(tmp_path, "visits.parquet"), *TERMS, "--spend", "0.1", COUNT)
    assert (code, out) == (1, "")
    assert "withheld" in err
    assert "(RuntimeError)" in err
    assert SECRET not in err


def test_an_interrupt_is_code_130(tmp_path, run, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("dp_polars._sql.connection.GuardedConnection.sql", interrupt)
    code, out, err = run("sql", put(tmp_path, "visits.parquet"), *TERMS, "--spend", "0.1", COUNT)
    assert (code, out) == (130, "")
    assert err == "interrupted; what was charged stays charged\n"


def test_a_warning_is_one_line(tmp_path, run):
    words = ["sql", put(tmp_path, "visits.parquet"), "--each-row", "--epsilon", "20", "--ledger", tmp_path / "b.db"]
    code, _, err = run(*words, "--spend", "1", "SELECT dp_count(*) FROM visits")
    assert code == 0
    assert err.count("warning: epsilon=20 is above 10") == 1
    assert "Warning" not in err


def test_the_elapsed_time_is_shown_only_on_terminals(monkeypatch, capsys):
    monkeypatch.setattr(output, "_PATIENCE", 0.0)
    with output.elapsed("running"):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    with contextlib.redirect_stderr(Terminal()) as shown, output.elapsed("running"):
        time.sleep(0.05)
    assert "running ... 0 s" in shown.getvalue()
    assert shown.getvalue().endswith("\r\x1b[K")


def test_help_has_examples_and_exit_codes(run):
    for words in (["--help"], ["sql", "--help"], ["preview", "-h"], ["budget", "--help"], ["audit", "--help"]):
        code, out, err = run(*words)
        assert (code, err) == (0, "")
        assert "example" in out
        assert "the budget doesn't allow it" in out
    assert run("-v")[1].startswith("dp-polars 0.")
    assert run("--version")[0] == 0


@pytest.mark.slow
def test_the_module_is_the_command():
    script = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["dp-polars"]
    assert getattr(import_module(script.partition(":")[0]), script.partition(":")[2]) is main
    done = in_a_new_process("sql", "nope.parquet", *TERMS, COUNT)
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "dp-polars: There is no file nope.parquet.\n")


@pytest.mark.slow
def test_the_demo_shows_plan_intervals_and_budget_in_seconds(capsys):
    start = time.process_time()
    assert main(["demo"]) == 0
    assert time.process_time() - start < 10
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert shown.err == ""
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 110
    assert any(line.startswith("  price ") for line in lines)
    answers = [line.split() for line in lines if line.startswith(("  north", "  south", "  east", "  west"))]
    assert len(answers) == 4
    assert all(line.count("to") == 2 for line in answers)
    assert "the same numbers, 40 % of the budget used" in shown.out
    assert "40 % used by 2 releases, 60 % left." in shown.out
    # Laplace noise of scale 10 in both: beyond 300 with a chance below 1e-12 each.
    assert all(abs(int(line[1]) - int(line[-1])) < 300 for line in answers)
