"""dbt asks a policy through the plugin, and a rerun on unchanged sources is free."""

import importlib.util
import os
import shutil
import subprocess
from types import SimpleNamespace

import duckdb
import pytest

import dp_polars as dp
from dp_polars.dbt import Plugin
from tests.policy.shop import POLICY, write_shop

pytestmark = pytest.mark.filterwarnings("ignore:epsilon=:dp_polars.errors.DPWarning")  # little noise, on purpose

TEXT = POLICY.replace("queries = 100", 'queries = 100\nledger = "budget.db"') + "[analysts]\nteam-a = 0.5\n"
QUERY = "SELECT status, COUNT(*) AS n FROM orders GROUP BY status"


@pytest.fixture
def path(tmp_path):
    return write_shop(tmp_path, TEXT)


def source(**meta):
    return SimpleNamespace(meta={"plugin": "dp", **meta}, table_name=lambda: "shop.by_status")


def test_a_source_is_an_answer_and_a_rerun_is_free(path):
    first = Plugin("dp", {"policy": str(path), "analyst": "team-a", "share": 0.05}).load(source(query=QUERY))
    again = Plugin("dp", {"policy": str(path), "analyst": "team-a", "share": 0.05}).load(source(query=QUERY))
    assert first.equals(again)
    Plugin("dp", {"policy": str(path), "analyst": "team-a"}).load(
        source(query="SELECT SUM(total) FROM orders", share=0.1)
    )
    log = dp.Policy.load(path).session.audit_log()
    assert log["outcome"].to_list() == ["committed", "stored", "committed"]
    assert [round(share, 6) for share in log["share"]] == [0.05, 0.0, 0.1]


def test_the_profiles_settings_may_stand_beside_the_options(path):
    target = SimpleNamespace(settings={"memory_limit": "1GB"})
    Plugin("dp", {"policy": str(path), "memory_limit": "1GB"}, target).update_connection_config(target, {})
    with pytest.raises(dp.InvalidParameterError, match="memory_limit, which means nothing"):
        Plugin("dp", {"policy": str(path), "memory_limit": "1GB"})


@pytest.mark.parametrize(
    ("config", "meta", "words"),
    [
        ({"analist": "team-a"}, {}, "analist, which means nothing"),
        ({"policy": 3}, {}, "needs a policy"),
        ({"policy": "nowhere.toml"}, {"query": QUERY}, "There is no policy"),
        ({}, {}, "needs a query"),
        ({}, {"query": QUERY, "shares": 0.1}, "shares, which means nothing"),
        ({"analyst": "team-b"}, {"query": QUERY}, "not among them"),
        ({}, {"query": "SELECT * FROM orders"}, "private rows"),
    ],
)
def test_what_means_nothing_is_refused(path, config, meta, words):
    with pytest.raises(dp.DPError, match=words):
        Plugin("dp", {"policy": str(path), **config}).load(source(**meta))


def test_a_policy_without_a_ledger_and_writing_are_refused(tmp_path):
    path = write_shop(tmp_path)
    with pytest.raises(dp.InvalidParameterError, match="no ledger"):
        Plugin("dp", {"policy": str(path)}).load(source(query=QUERY))
    with pytest.raises(dp.InvalidParameterError, match="nothing can be written"):
        Plugin("dp", {"policy": str(path)}).store(None)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("dbt") is None or shutil.which("dbt") is None,
    reason="dbt is not installed: pip install 'dbt-core<1.11' dbt-duckdb",
)
def test_dbt_runs_models_over_private_answers(path):
    folder = path.parent
    (folder / "models").mkdir()
    (folder / "dbt_project.yml").write_text("name: shop\nversion: 1.0.0\nprofile: shop\n")
    (folder / "profiles.yml").write_text(
        "shop:\n  target: dev\n  outputs:\n    dev:\n      type: duckdb\n      path: warehouse.duckdb\n      plugins:\n"
        "        - module: dp_polars.dbt\n          alias: dp\n"
        "          config: {policy: policy.toml, analyst: team-a, share: 0.05}\n"
    )
    (folder / "models" / "sources.yml").write_text(
        "version: 2\nsources:\n  - name: private\n    tables:\n      - name: by_status\n        config:\n"
        f'          meta: {{plugin: dp, query: "{QUERY}"}}\n'
    )
    (folder / "models" / "parts.sql").write_text(
        "SELECT status, n / SUM(n) OVER () AS part FROM {{ source('private', 'by_status') }}"
    )
    for _ in range(2):
        done = subprocess.run(
            ["dbt", "run", "--profiles-dir", "."], cwd=folder, capture_output=True, text=True, timeout=300,
            env={**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
    with duckdb.connect(folder / "warehouse.duckdb") as warehouse:
        parts = dict(warehouse.sql("FROM parts").fetchall())
    assert parts["new"] + parts["paid"] == pytest.approx(1)
    assert dp.Policy.load(path).session.audit_log()["outcome"].to_list() == ["committed", "stored"]
