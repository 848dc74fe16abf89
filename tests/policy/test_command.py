"""`dp-polars policy` and `dp-polars sql --policy`."""

import tomllib

import polars as pl
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
    assert "order_id." not in draft
    assert '\n# status.keys = ["?"]  # public values?  Or: status.ask = false\n' in draft
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
    capsys.readouterr()
    assert main(["sql", "--policy", path, "SELECT COUNT(*) FROM warehouse"]) == 1
    assert "tables are those of the policy: SHOW TABLES" in capsys.readouterr().err
    assert main(["sql", "--policy", path, "SELECT COUNT(*) FROM order"]) == 1


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


@pytest.mark.slow
def test_an_analyst_asks_and_previews_at_the_shell(tmp_path, capsys):
    text = POLICY.replace("queries = 100", 'queries = 100\nledger = "budget.db"') + "[analysts]\nteam-a = 0.5\n"
    path = str(write_shop(tmp_path, text))
    words = ["--policy", path, "--analyst", "team-a"]
    joined = "SELECT SUM(price) AS n FROM items JOIN orders USING (order_id)"
    assert main(["preview", *words, "--max-rows-per-group", "6", joined]) == 0
    shown = capsys.readouterr()
    assert "rows per unit and group" in shown.out
    assert "left: 50 % of the budget" in shown.err
    assert not (tmp_path / "budget.db").exists() or Session.from_ledger(tmp_path / "budget.db").spent.share == 0
    assert main(["sql", *words, joined]) == 1
    assert "con.sql(query, max_rows_per_group=10)" in capsys.readouterr().err
    assert main(["sql", *words, joined, "--max-rows-per-group", "6", "--confidence", "0.9", "--share", "0.1"]) == 0
    answer = capsys.readouterr()
    assert "n_low" in answer.out
    assert "paid: 10 %" in answer.err
    assert "left: 40 %" in answer.err
    assert main(["sql", "--policy", path, "--analyst", "team-b", "SELECT COUNT(*) FROM orders"]) == 1
    log = Session.from_ledger(tmp_path / "budget.db").audit_log()
    assert log.select("analyst", "outcome", "asked").rows() == [
        ("team-a", "refused", joined), ("team-a", "committed", joined),
    ]  # fmt: skip


def drafted(folder, capsys, monkeypatch, *words, **tables):
    for name, schema in tables.items():
        pl.DataFrame(schema=schema).write_parquet(folder / f"{name}.parquet")
    monkeypatch.chdir(folder)
    code = main(["policy", "init", *(f"{name}.parquet" for name in tables), *words])
    return code, capsys.readouterr()


def test_a_draft_takes_no_boolean_for_a_person_and_finds_paths_with_other_names(tmp_path, capsys, monkeypatch):
    rides = {"ride_id": pl.Int64, "rider_id": pl.Int64, "member": pl.Boolean, "price": pl.Float64}
    refunds = {"ride": pl.Int64, "amount": pl.Int64}
    code, told = drafted(tmp_path, capsys, monkeypatch, rides=rides, refunds=refunds)
    plain = tomllib.loads(told.out)
    assert (code, plain["unit"]) == (0, "rider_id")
    assert plain["tables"]["refunds"]["through"] == "rides"
    assert plain["tables"]["refunds"]["on"] == {"ride": "ride_id"}


def test_a_draft_names_other_columns_that_may_be_people_and_a_profile_guesses_none(tmp_path, capsys, monkeypatch):
    visits = {"patient_id": pl.Int64, "doctor": pl.String, "client": pl.String, "cost": pl.Float64}
    code, told = drafted(tmp_path, capsys, monkeypatch, visits=visits)
    assert 'unit = "patient_id"' in told.out
    assert "Or is it client?" in told.out
    spend = ["--profile", "--epsilon", "1", "--share", "0.1"]
    code, told = drafted(tmp_path, capsys, monkeypatch, *spend, visits=visits)
    assert code == 1
    assert "Is it patient_id or client? Say --unit patient_id" in told.err
    assert not (tmp_path / "budget.db").exists()


@pytest.mark.slow
def test_what_an_unreliable_profile_suggests_is_no_rule(tmp_path, capsys, monkeypatch):
    pl.DataFrame({"user_id": [1, 2], "amount": [1.0, 2.0]}).write_parquet(tmp_path / "few.parquet")
    monkeypatch.chdir(tmp_path)
    assert main(["policy", "init", "few.parquet", "--profile", "--epsilon", "1", "--share", "0.1"]) == 0
    draft = capsys.readouterr().out
    assert tomllib.loads(draft)["tables"]["few"]["columns"] == {}
    assert "max_rows_per_group = 10  # with how many rows in each?" in draft
