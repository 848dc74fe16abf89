"""`dp-polars sql` and `preview` create, reuse and check ledgers, and find stored answers in a new process too."""

import io
import json
import os
import subprocess
import sys

import polars as pl
import pytest

from dp_polars._cli.arguments import SessionArguments
from dp_polars._cli.sql import read
from dp_polars._session.session import Session
from dp_polars._sql.files import OpenedFile
from dp_polars.errors import LedgerMismatch
from tests.cli.files import COUNT, KEYS, KINDS, REGIONS, SOURCE, TERMS, VISITS, put, typed


def charges(ledger):
    session = Session.from_ledger(ledger)
    try:
        return len(session.releases)
    finally:
        session.close()


AGAIN = """
import contextlib, io, json, os, sys
from dp_polars._cli import main

for folder, *words in json.loads(sys.argv[1]):
    os.chdir(folder)
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    print(json.dumps([code, *(one.buffer.getvalue().decode() for one in (out, err))]))
"""


@pytest.mark.slow
def test_the_second_run_is_free_in_a_new_process(tmp_path, run):
    """One new process asks about the files of all kinds, each with a ledger in its folder."""
    spend, calls, first = ["--spend", "0.2", "--format", "csv", COUNT], [], {}
    for number, kind in enumerate(KINDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        file, ledger = put(folder, kind), folder / "budget.db"
        code, first[kind], paid = run("sql", file, *TERMS, *typed(file), "--ledger", ledger, *spend)
        assert code == 0
        assert "paid: 20 % of the budget" in paid
        assert "left: 80 % of the budget" in paid
        calls.append([str(folder), "sql", kind, "--ledger", "budget.db", *spend])
    command = [sys.executable, "-c", AGAIN, json.dumps(calls)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=SOURCE)
    for kind, (folder, *_), line in zip(KINDS, calls, done.stdout.splitlines(), strict=True):
        code, out, err = json.loads(line)
        assert (code, out) == (0, first[kind]), err
        assert "free: stored release 1 of 20" in err
        assert "left: 80 % of the budget" in err
        assert charges(os.path.join(folder, "budget.db")) == 1


def pays_after(change, kind, folder, run):
    """Return whether a statement is charged again after a change of its file."""
    file, ledger = put(folder, kind), folder / "budget.db"
    words = ["sql", file, *TERMS, *typed(file), "--ledger", ledger, "--share", "0.1", COUNT]
    assert run(*words)[0] == 0
    before = charges(ledger)
    change(file)
    assert run(*words)[0] == 0
    return charges(ledger) > before


def write_less(file):
    put(os.path.dirname(file), os.path.basename(file), VISITS.head(1000))


def touch(file):
    """Change when a file was modified, which is public, and not its content, on which its identity must not depend."""
    state = os.stat(file)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["visits.parquet", "visits.csv", "visits.arrow", "visits.duckdb"])
@pytest.mark.parametrize("change", [write_less, touch])
def test_a_changed_file_pays_again(change, kind, tmp_path, run):
    assert pays_after(change, kind, tmp_path, run)


@pytest.mark.slow
def test_a_name_that_forgets_the_time_of_change_would_be_noticed(tmp_path, run, monkeypatch):
    monkeypatch.setattr(OpenedFile, "source_name", lambda self: self.path.encode())
    assert not pays_after(touch, "visits.csv", tmp_path, run)


@pytest.mark.slow
def test_an_equal_file_elsewhere_is_another_source(tmp_path, run):
    ledger = tmp_path / "budget.db"
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        file = put(tmp_path / folder, "visits.csv")
        os.utime(file, ns=(10**18, 10**18))
        assert run("sql", file, *TERMS, *typed(file), "--ledger", ledger, "--share", "0.1", COUNT)[0] == 0
    assert charges(ledger) == 2


@pytest.mark.slow
def test_declared_types_are_part_of_the_name_and_a_value_that_does_not_fit_is_null(tmp_path, run):
    file, ledger = tmp_path / "visits.csv", tmp_path / "budget.db"
    file.write_text(
        "user_id,region,amount\n" + "".join(f"{i},0{i % 2},{'odd' if i < 200 else 10}\n" for i in range(800))
    )
    huge = ["--unit", "user_id", "--epsilon", "1e6", "--ledger", ledger, "--spend", "1e5", "--format", "csv"]
    statement = (
        "SELECT region, dp_count(amount, keys := ['00', '01'], max_rows_per_group := 1) AS n FROM visits GROUP BY 1"
    )
    code, out, _ = run("sql", file, *huge, "--type", "visits.amount=DOUBLE", statement)
    assert (code, out) == (0, "region,n\n00,300\n01,300\n")
    code, out, _ = run("sql", file, *huge, "--type", "visits.amount=VARCHAR", statement)
    assert (code, out) == (0, "region,n\n00,400\n01,400\n")
    assert charges(ledger) == 2
    for wrong in ("visits.amuont=DOUBLE", "visits.amount=DOUBEL", "visits.amount=DOUBLE), (SELECT 1", "other.x=DATE"):
        assert run("sql", file, *huge, "--type", wrong, statement)[0] == 1


@pytest.mark.slow
def test_a_ledger_keeps_its_terms_and_refuses_others(tmp_path, run):
    file, ledger = put(tmp_path, "visits.parquet"), tmp_path / "budget.db"
    words = ["sql", file, "--ledger", ledger, "--share", "0.1", COUNT]
    code, _, problem = run(*words)
    assert code == 1
    assert "--unit COLUMN" in problem or "--epsilon 1" in problem
    assert not ledger.exists()
    assert run(*words, *TERMS)[0] == 0
    assert run(*words, *TERMS, "--adjacency", "add_remove", "--group-size", "1")[0] == 0
    for other in (
        ["--epsilon", "2"],
        ["--delta", "1e-7"],
        ["--rho", "0.1"],
        ["--unit", "region"],
        ["--each-row"],
        ["--adjacency", "replace"],
        ["--group-size", "2"],
        ["--key-delta", "1e-8"],
    ):
        code, out, problem = run(*words, *other)
        assert (code, out) == (1, ""), other
        assert "was created with other terms" in problem
        assert "leave those options out" in problem
        assert "Traceback" not in problem
    assert charges(ledger) == 1


def test_terms_of_every_kind_come_back_from_a_ledger(tmp_path):
    """Terms taken from a ledger equal its terms, whichever single option repeats a part of them."""
    kinds = {
        "pure.db": ["--epsilon", "1", "--each-row"],
        "split.db": ["--epsilon", "0.3", "--delta", "1e-6", "--key-delta", "1/7000000", "--unit", "a", "--unit", "b"],
        "zcdp.db": ["--rho", "0.02", "--delta", "1e-6", "--unit", "a", "--adjacency", "replace", "--group-size", "3"],
        "zcdp0.db": ["--rho", "0.02", "--unit", "a"],
    }
    for name, terms in kinds.items():
        words = ["f.csv", "SELECT 1", "--ledger", str(tmp_path / name)]
        SessionArguments(read([*words, *terms])).session().close()
        for said in (["--max-groups", "3"], ["--group-size", "3" if name == "zcdp.db" else "1"], terms):
            SessionArguments(read([*words, *said])).session().close()


def test_a_ledger_that_another_process_made_meanwhile_is_the_one_that_pays(tmp_path):
    words = ["f.csv", "SELECT 1", "--ledger", str(tmp_path / "budget.db"), "--unit", "a"]
    early = SessionArguments(read([*words, "--epsilon", "1"]))
    assert early.is_new
    SessionArguments(read([*words, "--epsilon", "2"])).session().close()
    with pytest.raises(LedgerMismatch):
        early.session()


@pytest.mark.slow
def test_a_refused_statement_leaves_no_ledger(tmp_path, run):
    file, ledger = put(tmp_path, "visits.parquet"), tmp_path / "budget.db"
    for statement in ("SELECT * FROM visits", "SELECT dp_sum(amount) FROM visits", "SELECT dp_count(*) FROM visit"):
        assert run("sql", file, *TERMS, "--ledger", ledger, "--spend", "0.1", statement)[0] == 1
    assert os.listdir(tmp_path) == ["visits.parquet"]


@pytest.mark.slow
def test_a_preview_shows_the_plan_and_leaves_no_file(tmp_path, run):
    file, ledger = put(tmp_path, "visits.csv"), tmp_path / "budget.db"
    words = [file, *TERMS, "--infer-types", "--ledger", ledger, "--spend", "0.2", COUNT]
    code, plan, err = run("preview", *words)
    assert code == 0
    assert "not recorded" in err
    assert "left: all of the budget" in err
    assert "price                    20 % of the budget" in plan
    assert "expected error" in plan
    assert os.listdir(tmp_path) == ["visits.csv"]
    run("sql", *words)
    later = run("preview", file, "--ledger", ledger, "--spend", "0.2", COUNT)[1]
    assert later == plan.replace("fits 5 times", "fits 4 times") != plan
    assert "does not fit" in run("preview", file, "--ledger", ledger, "--spend", "0.9", COUNT)[2]
    assert charges(ledger) == 1


@pytest.mark.slow
def test_without_a_ledger_nothing_is_kept_and_the_output_says_so(tmp_path, run):
    file = put(tmp_path, "visits.parquet")
    for _ in range(2):
        code, _, err = run("sql", file, *TERMS, "--spend", "0.7", COUNT)
        assert code == 0
        assert "without --ledger nothing is kept" in err
        assert "paid: 70 % of the budget" in err


@pytest.mark.slow
def test_options_may_come_anywhere_and_the_statement_may_come_from_stdin(tmp_path, run, monkeypatch):
    file, lookup = put(tmp_path, "visits.parquet"), tmp_path / "codes-1.csv"
    pl.DataFrame({"region": REGIONS, "part": ["a", "a", "b", "b"]}).write_csv(lookup)
    statement = """-- one line of talk
        SELECT part, dp_count_units(keys := ['a', 'b']) AS n
        FROM visits JOIN codes USING (region) GROUP BY 1 ORDER BY 1"""
    huge = ["--unit", "user_id", "--epsilon", "1e6", "--spend", "1e5", "--format", "csv"]
    expected = (0, "part,n\na,200\nb,200\n")
    public = ["--public", lookup, "--name", f"codes={lookup}"]
    assert run("sql", file, *public, *huge, statement)[:2] == expected
    assert run("sql", *huge, *public, file, statement)[:2] == expected
    assert run("sql", "--name", f"visits={file}", *huge, *public, statement)[:2] == expected
    monkeypatch.setattr("sys.stdin", io.StringIO(statement))
    assert run("sql", file, *huge, *public, "-")[:2] == expected
    both = run("sql", file, lookup, "--name", f"codes={lookup}", *typed(lookup), *huge, statement)
    assert both[0] == 1  # both tables are private, and the second one has no unit
    assert "--public" in both[2]


def test_two_files_are_two_tables_of_one_statement(tmp_path, run):
    a, b = put(tmp_path, "first.parquet"), put(tmp_path, "second-2.csv", VISITS.head(600))
    statement = 'SELECT (SELECT dp_count(*) FROM first) AS x, (SELECT dp_count(*) FROM "second-2") AS y'
    code, out, err = run(
        "sql", a, b, "--unit", "user_id", "--epsilon", "1e6", "--max-rows-per-group", "9", "--spend", "1e5", statement,
        "--format", "json", "--type", "second-2.user_id=BIGINT",
    )  # fmt: skip
    assert (code, json.loads(out)) == (0, [{"x": 1200, "y": 600}]), err


@pytest.mark.slow
def test_a_database_brings_its_tables_and_views(tmp_path, run):
    duckdb = pytest.importorskip("duckdb")
    file = put(tmp_path, "shop.duckdb")
    with duckdb.connect(file) as database:
        database.execute(
            f"CREATE TABLE regions AS SELECT unnest({REGIONS}) AS region, unnest(['a', 'a', 'b', 'b']) AS part"
        )
        database.execute("CREATE VIEW late AS FROM visits WHERE day > DATE '2024-01-14'")
        database.execute("CREATE VIEW few AS FROM visits LIMIT 10")
    huge = ["--unit", "user_id", "--epsilon", "1e6", "--spend", "1e5", "--max-rows-per-group", "9", "--format", "csv"]
    joined = "SELECT part, dp_count(*, keys := ['a', 'b']) AS n FROM visits JOIN regions USING (region) GROUP BY 1"
    assert run("sql", file, *huge, "--public", "regions", joined)[:2] == (0, "part,n\na,600\nb,600\n")
    expected = VISITS.filter(pl.col("day") > pl.date(2024, 1, 14)).height
    for declared in ([], ["--unit-of", "late=user_id"]):  # without it, the view is read like a subquery
        code, out, _ = run("sql", file, *huge, *declared, "SELECT dp_count(*) AS n FROM late")
        assert (code, out) == (0, f"n\n{expected}\n")
    code, _, err = run("sql", file, *huge, "SELECT dp_count(*) AS n FROM few")
    assert code == 1
    assert "--unit-of" in err
    code, _, err = run("sql", file, *huge, "--public", "regionz", joined)
    assert code == 1
    assert "regions, visits" in err
    with duckdb.connect(file) as database:  # the run has closed it and never wrote to it
        assert database.execute("SELECT count(*) FROM visits").fetchone() == (1200,)


@pytest.mark.slow
def test_a_second_database_is_attached(tmp_path, run):
    a, b = put(tmp_path, "one.duckdb"), put(tmp_path, "two.duckdb", VISITS.head(600))
    code, out, err = run(
        "sql", a, b, "--unit", "user_id", "--epsilon", "1e6", "--spend", "1e5", "--max-rows-per-group", "9", "--format",
        "csv", "SELECT dp_count(*) AS n FROM two.main.visits",
    )  # fmt: skip
    assert (code, out) == (0, "n\n600\n"), err
    code, _, err = run("sql", a, b, *TERMS, "--spend", "1", "SELECT dp_count(*) FROM three")
    assert code == 1
    assert "visits, two.main.visits" in err


@pytest.mark.slow
def test_responses_are_charged_and_found_again(tmp_path, run):
    people = pl.DataFrame({"user_id": range(100), "vote": [True, False] * 50})
    file, ledger = put(tmp_path, "votes.parquet", people), tmp_path / "budget.db"
    terms = ["--unit", "user_id", "--epsilon", "2", "--adjacency", "replace", "--ledger", ledger, "--spend", "1"]
    words = ["sql", file, *terms, "SELECT dp_randomized_response(vote) AS vote FROM votes", "--format", "csv"]
    code, first, err = run(*words)
    assert code == 0
    assert "paid: 50 % of the budget" in err
    code, again, err = run(*words)
    assert (code, again) == (0, first)
    assert "free: stored release 1" in err


@pytest.mark.slow
def test_a_group_that_is_not_shown_is_explained(tmp_path, run):
    file = put(tmp_path, "visits.parquet", VISITS.head(3))
    code, out, err = run(
        "sql",
        file,
        *TERMS,
        "--spend",
        "0.1",
        "--format",
        "csv",
        "SELECT region, dp_count(*) AS n FROM visits GROUP BY 1",
    )
    assert (code, out) == (0, "region,n\n")
    assert "warning: No group is shown: count by region, unit user_id. The charge stays. A group needs " in err
    assert err.count("to appear half the time") == 1


@pytest.mark.slow
def test_a_public_statement_costs_nothing(tmp_path, run):
    file, ledger = put(tmp_path, "visits.parquet"), tmp_path / "budget.db"
    words = [file, "--public", file, *TERMS, "--ledger", ledger, "--format", "csv"]
    code, out, err = run("sql", *words, "SELECT count(*) AS n FROM visits")
    assert (code, out) == (0, "n\n1200\n")
    assert "free: the statement reads nothing private" in err
    assert "costs nothing" in run("preview", *words, "SELECT count(*) AS n FROM visits")[1]


@pytest.mark.slow
def test_a_planned_number_of_statements_sets_the_spend(tmp_path, run):
    file, ledger = put(tmp_path, "visits.parquet"), tmp_path / "budget.db"
    assert run("sql", file, *TERMS, "--ledger", ledger, "--queries", "20", COUNT)[0] == 0
    code, _, err = run("sql", file, "--ledger", ledger, "SELECT dp_count_units() FROM visits")
    assert code == 0
    assert "left: 90 % of the budget" in err


@pytest.mark.slow
def test_a_statement_with_several_answers_prints_no_single_error(tmp_path, run):
    file = put(tmp_path, "visits.parquet")
    one = run("sql", file, *TERMS, "--spend", "0.1", f"SELECT region, dp_count_units({KEYS}) FROM visits GROUP BY 1")[2]
    two = run(
        "sql",
        file,
        *TERMS,
        "--spend",
        "0.1",
        f"SELECT region, dp_count_units({KEYS}), dp_avg(amount, 0, 80) FROM visits GROUP BY 1",
    )[2]
    assert "expected error: within" in one
    assert "expected error" not in two


@pytest.mark.slow
def test_a_confidence_adds_the_ends_of_intervals_to_a_stored_answer(tmp_path, run):
    file, ledger = put(tmp_path, "visits.parquet"), str(tmp_path / "budget.db")
    words = [file, *TERMS, "--ledger", ledger, "--spend", "0.2", "--format", "json", COUNT]
    first = json.loads(run("sql", *words)[1])
    code, plan, _ = run("preview", *words, "--confidence", "0.9")
    assert (code, "price" in plan) == (0, True)
    code, out, err = run("sql", *words, "--confidence", "0.9")
    assert code == 0
    assert "free: stored release 1" in err
    shown = json.loads(out)
    (name,) = [column for column in first[0] if column != "region"]
    assert list(shown[0]) == ["region", name, f"{name}_low", f"{name}_high"]
    assert [row[name] for row in shown] == [row[name] for row in first]
    assert all(row[f"{name}_low"] < row[name] < row[f"{name}_high"] for row in shown)
    code, _, err = run("sql", *words, "--confidence", "2")
    assert (code, "confidence" in err) == (1, True)
    assert charges(ledger) == 1
