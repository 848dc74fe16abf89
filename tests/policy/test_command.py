"""`dp-polars policy` and `dp-polars sql --policy`."""

import tomllib

import pytest

from dp_polars._cli import main
from dp_polars._session.session import Session
from tests.policy.shop import POLICY, items, orders, write_policy, write_shop

pytestmark = pytest.mark.filterwarnings("ignore:epsilon=:dp_polars.errors.DPWarning")  # little noise, on purpose


def test_check_tells_what_a_policy_says(tmp_path, capsys):
    assert main(["policy", "check", str(write_shop(tmp_path))]) == 0
    assert "email: may not be asked" in capsys.readouterr().out


def test_check_tells_every_mistake(tmp_path, capsys):
    write_shop(tmp_path)
    path = write_policy(tmp_path, POLICY.replace("queries", "quieries").replace("max_groups", "groups"))
    assert main(["policy", "check", str(path)]) == 1
    told = capsys.readouterr().err
    assert "2 mistakes" in told
    assert "\n  line 5: " in told
    assert "\n  line 10: " in told


def test_a_draft_comes_from_schemas_alone(tmp_path, capsys, monkeypatch):
    orders().write_parquet(tmp_path / "orders.parquet")
    items().write_csv(tmp_path / "items.csv")
    monkeypatch.chdir(tmp_path)
    assert main(["policy", "init", "orders.parquet", "items.csv"]) == 0
    draft = capsys.readouterr().out
    orders().clear().write_parquet(tmp_path / "orders.parquet")
    items().clear().write_csv(tmp_path / "items.csv")
    assert main(["policy", "init", "orders.parquet", "items.csv"]) == 0
    assert capsys.readouterr().out == draft
    plain = tomllib.loads(draft)
    assert plain["unit"] == "customer_id"
    assert list(plain["tables"]) == ["orders", "items"]
    assert "@example.org" not in draft
    assert plain["tables"]["items"]["through"] == "orders"
    assert plain["tables"]["items"]["on"] == "order_id"
    assert "unique" not in plain["tables"]["items"]  # this is the owner's word
    assert "order_id]" not in draft
    orders().write_parquet(tmp_path / "orders.parquet")
    (tmp_path / "policy.toml").write_text(draft[: draft.index("[tables.items]")])
    assert main(["policy", "check", "policy.toml"]) == 0


@pytest.mark.slow
def test_a_statement_over_a_policy(tmp_path, capsys):
    text = POLICY.replace("queries = 100", 'queries = 100\nledger = "budget.db"')
    path = str(write_shop(tmp_path, text))
    statement = "SELECT status, COUNT(*) AS n FROM orders GROUP BY status"
    assert main(["sql", "--policy", path, "--format", "csv", statement]) == 0
    first = capsys.readouterr()
    assert first.out.startswith("status,n\nnew,")
    assert "paid: 1 %" in first.err
    assert main(["sql", f"--policy={path}", "--format", "csv", statement]) == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert "free: stored release" in again.err
    assert main(["sql", "--policy", path, "SELECT email FROM orders"]) == 1


@pytest.mark.slow
def test_a_draft_from_a_profile_spends_what_it_says_in_the_ledger_of_the_policy(tmp_path, capsys, monkeypatch):
    write_shop(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = ["policy", "init", "orders.parquet", "items.parquet", "--profile", "--epsilon", "2.5", "--share", "0.2"]
    assert main(words) == 0
    draft = capsys.readouterr().out
    assert "# 0.2 of this budget is spent" in draft
    assert "dp-polars budget budget.db" in draft
    assert Session.from_ledger("budget.db").spent.share == pytest.approx(0.2)
    plain = tomllib.loads(draft)
    assert plain["budget"] == {"epsilon": 2.5, "delta": 1e-6, "queries": 20, "ledger": "budget.db"}
    rules = plain["tables"]["orders"]
    assert rules["max_rows_per_group"] >= 3  # everybody has three orders; noise of many deviations would be needed
    lower, upper = rules["columns"]["total"]["bounds"]  # a fifth of the values is 0, and a fifth is 80
    assert lower <= 0
    assert upper >= 80
    assert "order_id" not in rules["columns"]
    assert main(words) == 0  # the same profile again is found in the ledger
    assert capsys.readouterr().out == draft
    (tmp_path / "policy.toml").write_text(draft[: draft.index("[tables.items]")])
    assert main(["policy", "check", "policy.toml"]) == 0
    assert main(["sql", "--policy", "policy.toml", "SELECT AVG(total) AS mean FROM orders"]) == 0
    assert Session.from_ledger("budget.db").spent.share == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--profile"], "a profile spends budget"),
        (["--profile", "--epsilon", "1"], "a profile spends budget"),
        (["--share", "0.1"], "for init with --profile"),
        (["--profile", "--epsilon", "1", "--share", "0.1", "--unit", "nobody"], "nothing to profile"),
        (["--profile", "--epsilon", "1", "--share", "2"], "share"),
    ],
)
def test_a_profile_without_a_stated_spend_is_refused_before_anything_is_read(
    tmp_path, capsys, monkeypatch, words, said
):
    orders().write_parquet(tmp_path / "orders.parquet")
    monkeypatch.chdir(tmp_path)
    assert main(["policy", "init", "orders.parquet", *words]) != 0
    assert said in capsys.readouterr().err
    if (tmp_path / "budget.db").exists():
        assert Session.from_ledger("budget.db").spent.share == 0
