"""`dp-polars policy` and `dp-polars sql --policy`."""

import tomllib

import pytest

from dp_polars._cli import main
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
    assert "line 5: " in told
    assert "line 10: " in told


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
