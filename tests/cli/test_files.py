"""Types of text files are recorded, two names of one file are one file, and no data can control a terminal."""

import io
import json
import os

import duckdb
import polars as pl
import pytest

from dp_polars._cli.arguments import SessionArguments
from dp_polars._cli.output import encoded, show
from dp_polars._display.text import escaped
from tests.cli.files import COUNT, REGIONS, TERMS, VISITS, in_a_new_process, put

HUGE = ["--unit", "user_id", "--epsilon", "1e6", "--spend", "1e5", "--max-rows-per-group", "9", "--format", "csv"]
ROWS = "SELECT dp_count(*) AS n FROM visits"
PAYING = [*TERMS, "--spend", "0.1"]
BELL = "a\x1b]0;PWNED\x07\x1b[31m\x9b2J\u202e"


# ---------------------------------------------------------------------- types


@pytest.mark.slow
def test_a_text_file_needs_types_and_the_message_names_both_ways(tmp_path, run):
    code, out, err = run("sql", put(tmp_path, "visits.csv"), *PAYING, COUNT)
    assert (code, out) == (1, "")
    assert "--type TABLE.COLUMN=DOUBLE" in err
    assert "--infer-types" in err


@pytest.mark.slow
def test_inferred_types_are_recorded_in_the_ledger_and_printed(tmp_path, run):
    file, ledger = put(tmp_path, "visits.csv"), tmp_path / "budget.db"
    words = ["sql", file, "--ledger", ledger, "--share", "0.1"]
    statement = "SELECT dp_avg(amount, 0, 80) AS mean FROM visits"
    code, _, err = run(*words, *TERMS, "--infer-types", statement)
    assert code == 0
    assert f"column types of {os.path.realpath(file)}: user_id BIGINT, region VARCHAR, amount DOUBLE, day DATE" in err
    assert f"recorded in {ledger} as public facts" in err
    with open(file, "a") as lines:  # one more line, which would have turned three columns into text
        lines.write("somebody,north,much,yesterday\n")
    again = in_a_new_process(*words, statement)
    assert again.returncode == 0, again.stderr
    assert "inferred" not in again.stderr
    code, _, err = run(*words, "--infer-types", statement)
    assert (code, "inferred" in err) == (0, False)
    assert "amount DOUBLE" in run("budget", ledger)[1]
    (fact,) = json.loads(run("budget", ledger, "--format", "json")[1])["facts"]
    assert (fact["subject"], fact["value"][2]) == (os.path.realpath(file), ["amount", "DOUBLE"])


@pytest.mark.slow
def test_without_a_ledger_the_output_says_that_nothing_is_recorded(tmp_path, run):
    file = put(tmp_path, "visits.csv")
    for command in ("sql", "preview"):
        code, _, err = run(command, file, *PAYING, "--infer-types", COUNT)
        assert code == 0
        assert "not recorded" in err


def test_a_refused_statement_records_nothing(tmp_path, run):
    file, ledger = put(tmp_path, "visits.csv"), tmp_path / "budget.db"
    code, _, err = run("sql", file, *PAYING, "--ledger", ledger, "--infer-types", "SELECT * FROM visits")
    assert (code, "recorded in" in err) == (1, False)
    assert os.listdir(tmp_path) == ["visits.csv"]


def test_types_that_another_process_recorded_meanwhile_stay(tmp_path, run, monkeypatch):
    file, ledger = put(tmp_path, "visits.csv"), tmp_path / "budget.db"
    words = ["sql", file, *PAYING, "--ledger", str(ledger), "--infer-types", COUNT]
    paying = SessionArguments.paying

    def late(self, rehearsal):
        other = self.session()
        (fact,) = rehearsal.facts
        other._record(fact.kind, fact.subject, '[["user_id", "VARCHAR"]]')
        other.close()
        return paying(self, rehearsal)

    monkeypatch.setattr(SessionArguments, "paying", late)
    code, out, err = run(*words)
    assert (code, out) == (1, "")
    assert "Run this again" in err


def test_a_public_text_file_needs_no_types_and_records_none(tmp_path, run):
    file, ledger = put(tmp_path, "visits.parquet"), tmp_path / "budget.db"
    pl.DataFrame({"region": REGIONS, "zone": [1, 1, 2, 2]}).write_csv(tmp_path / "zones.csv")
    statement = (
        "SELECT zone, dp_count(*, keys := [1, 2]) AS n FROM visits JOIN zones USING (region) GROUP BY 1 ORDER BY 1"
    )
    code, out, err = run("sql", file, "--public", tmp_path / "zones.csv", *HUGE, "--ledger", ledger, statement)
    assert (code, out) == (0, "zone,n\n1,600\n2,600\n"), err
    assert json.loads(run("budget", ledger, "--format", "json")[1])["facts"] == []


# ---------------------------------------------------------------------- folders, patterns and separators


@pytest.mark.slow
def test_a_folder_and_a_pattern_are_one_table_and_one_more_file_is_a_new_question(tmp_path, run):
    folder = tmp_path / "visits"
    folder.mkdir()
    put(folder, "a.parquet", VISITS.head(700))
    put(folder, "b.parquet", VISITS.tail(500))
    words = [*HUGE, "--ledger", tmp_path / "b.db", ROWS]
    assert run("sql", folder, *words)[1] == "n\n1200\n"
    code, out, err = run("sql", f"{folder}/*.parquet", *words)
    assert (code, out) == (0, "n\n1200\n")
    assert "free: stored release 1" in err
    put(folder, "c.parquet", VISITS.head(1))
    code, out, err = run("sql", folder, *words)
    assert (code, out, "free: " in err) == (0, "n\n1201\n", False)


def test_a_folder_is_private_and_its_files_are_not_overwritten(tmp_path, run):
    folder = tmp_path / "visits"
    folder.mkdir()
    file = put(folder, "a.parquet")
    for public in (file, f"{folder}/*.parquet"):
        code, out, err = run("sql", folder, "--public", public, "--name", f"other={public}", *PAYING, ROWS)
        assert (code, out) == (1, "")
        assert "the same file" in err
    for used in (folder, f"{folder}/*.parquet"):
        assert run("sql", used, *PAYING, "--output", folder / "answer.parquet", ROWS)[0] == 2
    assert os.listdir(folder) == ["a.parquet"]
    assert run("sql", f"{folder}/[ab]*.parquet", *PAYING, ROWS)[0] == 0  # named after the folder


def test_semicolons_are_recognised(tmp_path, run):
    VISITS.write_csv(tmp_path / "visits.csv", separator=";")
    mean = "SELECT dp_avg(amount, 0, 80) AS mean, dp_count(*) AS n FROM visits"
    types = ["--type", "visits.amount=DOUBLE", "--type", "visits.user_id=BIGINT"]
    code, out, err = run("sql", tmp_path / "visits.csv", *HUGE, *types, mean)
    assert code == 0, err
    assert out.splitlines()[1].endswith(",1200")
    assert abs(float(out.splitlines()[1].partition(",")[0]) - VISITS["amount"].mean()) < 0.01
    code, _, err = run("sql", tmp_path / "visits.csv", *HUGE, "--type", "visits.amuont=DOUBLE", mean)
    assert (code, "it has user_id, region, amount, day" in err) == (1, True)


# ---------------------------------------------------------------------- links and names


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb"])
@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_a_link_to_a_private_file_is_not_public(kind, link, tmp_path, run):
    file = put(tmp_path, f"visits.{kind}")
    other = str(tmp_path / f"link.{kind}")
    link(file, other)
    types = ["--infer-types"] if kind == "csv" else []
    public = "link.main.visits" if kind == "duckdb" else other
    more = [other] if kind == "duckdb" else []
    for words in ([file, *more, "--public", public], [*more, "--public", public, "--name", f"visits={file}"]):
        code, out, err = run("sql", *words, *PAYING, *types, f"SELECT * FROM {public if more else 'link'}")
        assert (code, out) == (1, "")
        assert "visits." in err
        assert "link." in err
        assert "the same file" in err
    if kind != "duckdb":  # a public file may have two names
        both = ["--public", file, "--public", other]
        assert run("sql", file, *both, *TERMS, "SELECT count(*) FROM link")[0] == 0


def test_two_names_of_a_private_file_are_refused_so_that_it_has_one_unit(tmp_path, run):
    file, other = put(tmp_path, "visits.parquet"), str(tmp_path / "more.parquet")
    os.symlink(file, other)
    code, _, err = run("sql", file, other, *PAYING, "--unit-of", "visits=user_id", "SELECT dp_count(*) FROM more")
    assert code == 1
    assert "Give it once" in err


@pytest.fixture
def shop(tmp_path):
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as database:
        database.execute("CREATE TABLE orders AS SELECT i AS number, i % 3 AS customer FROM range(300) t(i)")
    return str(tmp_path / "shop.duckdb")


SPELLINGS = ["orders", "Orders", '"orders"', "main.orders", "shop.orders", "shop.main.orders", "SHOP.MAIN.ORDERS"]


@pytest.mark.slow
def test_every_spelling_of_a_table_has_its_declared_unit(shop, run):
    for said in ("orders", "shop.main.orders"):
        for name in SPELLINGS:
            unit = ["--unit-of", f"{said}=user_id:customer"]
            code, out, err = run("sql", shop, *HUGE, *unit, f"SELECT dp_count_units() AS n FROM {name}")
            assert (code, out) == (0, "n\n3\n"), (said, name, err)


@pytest.mark.slow
def test_every_spelling_of_a_public_table_is_public(shop, run):
    for said in ("orders", "shop.main.orders"):
        for name in SPELLINGS:
            words = [*TERMS, "--format", "csv", "--public", said]
            code, out, err = run("sql", shop, *words, f"SELECT count(*) AS n FROM {name}")
            assert (code, out) == (0, "n\n300\n"), (said, name, err)


@pytest.mark.slow
def test_a_renamed_unit_is_given_with_a_colon(shop, run):
    words = ["sql", shop, *HUGE, "SELECT dp_count_units() AS n FROM orders"]
    assert run(*words, "--unit-of", "orders=user_id:customer")[:2] == (0, "n\n3\n")
    code, _, err = run(*words, "--unit-of", "orders=customer")
    assert code == 1
    assert "--unit-of TABLE=user_id:customer" in err


# ---------------------------------------------------------------------- control characters


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


@pytest.mark.parametrize("form", ["table", "csv", "json", "jsonl"])
def test_nothing_in_an_answer_controls_a_terminal(form, monkeypatch):
    frame = pl.DataFrame({BELL: [BELL, "b\nc", None], "list": [[BELL], [], None], "n": [1, 2, 3]})
    shown = Terminal(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr("sys.stdout", shown)
    show(encoded(frame, form, 300), data=form != "table")
    text = shown.buffer.getvalue().decode()
    assert all(sign == "\n" or sign.isprintable() for sign in text)
    assert "PWNED" in text
    if form in ("json", "jsonl"):  # JSON has its own escapes, so the data stay the same
        rows = json.loads(text) if form == "json" else [json.loads(line) for line in text.splitlines()]
        assert rows == frame.to_dicts()


@pytest.mark.slow
def test_csv_in_a_pipe_is_exactly_what_was_released(tmp_path, run):
    keys = [BELL, "b"]
    file = put(tmp_path, "visits.parquet", pl.DataFrame({"user_id": range(200), "region": keys * 100}))
    words = [
        "sql",
        file,
        *TERMS[:2],
        "--epsilon",
        "1e6",
        "--delta",
        "1e-6",
        "--max-groups",
        "1",
        "--max-rows-per-group",
        "1",
    ]
    words += ["--spend", "1e5", "SELECT region, dp_count(*) AS n FROM visits GROUP BY region ORDER BY n, region"]
    assert sorted(pl.read_csv(run(*words, "--format", "csv")[1].encode())["region"]) == sorted(keys)
    code, table, err = run(*words)
    assert code == 0
    assert r"a\x1b]0;PWNED\x07\x1b[31m\x9b2J\u202e" in table
    assert all(sign == "\n" or sign.isprintable() for sign in table + err)


@pytest.mark.slow
def test_messages_and_plans_are_escaped(tmp_path, run):
    file = put(tmp_path, "visits.parquet", VISITS.rename({"region": BELL}))
    for words in (
        ["sql", file, *PAYING, "SELECT dp_sum(amuont, 0, 9) FROM visits"],
        ["sql", file, *PAYING, f'SELECT "{BELL}", dp_count(*) FROM visits'],
        ["sql", file, *PAYING, "--public", f"{BELL}.csv", ROWS],
        ["sql", file, "--name", BELL, ROWS],
        ["preview", file, *PAYING, f'SELECT "{BELL}", dp_count(*) AS n FROM visits GROUP BY 1'],
    ):
        _, out, err = run(*words)
        assert out + err
        assert all(sign == "\n" or sign.isprintable() for sign in out + err), words
    ledger, statement = tmp_path / "budget.db", f'SELECT "{BELL}", dp_count(*) AS n FROM visits GROUP BY 1'
    assert run("sql", file, *PAYING, "--ledger", ledger, statement)[0] == 0
    for form in ("table", "json"):
        assert all(sign == "\n" or sign.isprintable() for sign in run("budget", ledger, "--format", form)[1])


def test_escaping_leaves_readable_text_as_it_is():
    assert escaped("naïve, 東京, 👩‍👧, a\xa0b \\") == "naïve, 東京, 👩‍👧, a\xa0b \\"
    assert escaped("\ud800") == r"\ud800"
