"""`dp-polars audit` shows what analysts asked, and nothing that was read from the data."""

import json

import polars as pl
import pytest

import dp_polars as dp


@pytest.fixture
def ledger(tmp_path):
    session = dp.Session(epsilon=1.0, unit="user", ledger=tmp_path / "budget.db")
    people = pl.DataFrame({"user": range(10)})
    for name in ("team-a", "team-b"):
        session.grant(name, share=0.5)
        con = dp.connect(None, session.analyst(name))
        con.register("people", people)
        con.sql(f"SELECT dp_count_units() AS n -- {name}\nFROM people", epsilon=0.25)
    session.close()
    return tmp_path / "budget.db"


def test_the_log_is_shown_in_every_format(ledger, run):
    code, table, _ = run("audit", ledger)
    assert code == 0
    assert "team-a" in table
    assert "committed" in table
    records = json.loads(run("audit", ledger, "--format", "json")[1])
    assert [(one["analyst"], one["outcome"], one["share"]) for one in records] == [
        ("team-a", "committed", 0.25),
        ("team-b", "stored", 0.0),  # the same question about the same frame is free for everybody
    ]
    assert records[0]["asked"] == "SELECT dp_count_units() AS n -- team-a\nFROM people"
    header = "at,analyst,asked,outcome,reason,charge,question,share,epsilon,delta,rho\n"
    assert run("audit", ledger, "--format", "csv")[1].startswith(header)


def test_one_analyst_can_be_chosen(ledger, run):
    records = json.loads(run("audit", ledger, "--analyst", "team-b", "--format", "json")[1])
    assert [one["analyst"] for one in records] == ["team-b"]
    assert "asked nothing" in run("audit", ledger, "--analyst", "team-c")[1]


def test_a_missing_ledger_is_code_4(tmp_path, run):
    assert run("audit", tmp_path / "none.db")[0] == 4
