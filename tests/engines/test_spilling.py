"""The SQL form of bounding against the definition and the Polars engine: the same sums, the same caps."""

from dataclasses import replace

import duckdb
import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from dp_polars.engines.duckdb import spilling
from tests.engines.reference import runs_of
from tests.engines.requests import ValueRequest, request, run_bounded

GENERATOR = np.random.default_rng(21)
N = 4000
FRAME = pl.DataFrame(
    {
        "unit0": pl.Series([*range(60), None]).gather(GENERATOR.integers(0, 61, N)),
        "key0": pl.Series([f"k{i}" for i in range(9)] + [None]).gather(GENERATOR.integers(0, 10, N)),
        "value": pl.Series(GENERATOR.integers(-20, 20, N)).cast(pl.Float64).set(
            pl.Series(GENERATOR.integers(0, 50, N)) == 0, None
        ),
    }
).with_columns(value=pl.when(pl.int_range(N) % 97 == 0).then(float("nan")).otherwise("value"))  # fmt: skip
ROWS = ValueRequest(low=-32, high=32, exponent=-2, offset=1.0, total=False)
TOTALS = ValueRequest(low=-60, high=60, exponent=-1, offset=0.0, total=True)


def spilled(frame, asked, cursor=None):
    cursor = cursor or duckdb.connect()
    names = {"unit0": "unit_0", "key0": "key_0", "value": "value_0"}
    cursor.register("frame", frame.rename({a: b for a, b in names.items() if a in frame.columns}).to_arrow())
    return spilling.run_spilling(cursor, "SELECT * FROM frame", {}, asked).groups.drop("runs")


@pytest.mark.parametrize("max_rows", [None, 1, 3, 1000])
@pytest.mark.parametrize("value", [None, ROWS, TOTALS])
@pytest.mark.parametrize("domain", [None, pl.DataFrame({"key0": ["k1", None, "k7", "nobody"]})])
def test_without_a_cap_on_groups_both_engines_agree(max_rows, value, domain):
    asked = request(max_rows=None if value is TOTALS else max_rows, value=value, domain=domain)
    frame = FRAME if value is not None else FRAME.drop("value")
    expected = run_bounded(frame.lazy(), asked)
    assert spilled(frame, asked).select(expected.columns).rows() == expected.rows()


@pytest.mark.parametrize("value", [None, ROWS])
def test_without_keys_there_is_one_row(value):
    asked = request(keys=0, max_rows=4, value=value)
    frame = FRAME.drop("key0") if value is not None else FRAME.select("unit0")
    expected = run_bounded(frame.lazy(), asked)
    assert spilled(frame, asked).select(expected.columns).rows() == expected.rows()
    assert spilled(frame.clear(), asked)["units"].to_list() == [0]


@pytest.mark.parametrize("cap", [1, 2, 5])
def test_each_unit_keeps_exactly_its_share_of_groups(cap):
    frame = FRAME.drop("value")
    own = [len(groups) for groups in runs_of(frame.to_dicts(), ["unit0"], ["key0"]).values()]
    table = spilled(frame, request(max_groups=cap, max_rows=1))
    assert table["units"].sum() == table["rows"].sum() == sum(min(n, cap) for n in own)


def test_the_choice_depends_on_nobody_else(monkeypatch):
    monkeypatch.setattr(spilling.secrets, "randbits", lambda _: 77)
    one = pl.DataFrame({"unit0": [7] * 12, "key0": [f"k{i}" for i in range(12)]})
    others = pl.DataFrame({"unit0": GENERATOR.integers(100, 200, 500), "key0": [f"k{i % 30}" for i in range(500)]})
    asked = request(max_groups=3, max_rows=1)
    alone, without, together = (
        dict(spilled(frame, asked).select("key0", "units").iter_rows())
        for frame in (one, others, pl.concat([one, others]))
    )
    added = {key: together.get(key, 0) - without.get(key, 0) for key in together}
    assert {key: n for key, n in added.items() if n} == alone
    assert sum(alone.values()) == 3


def test_each_group_is_kept_equally_often():
    """400 units with six groups and a cap of two; six deviations beyond 5.7 have probability below 1e-7."""
    frame = pl.DataFrame({"unit0": np.repeat(np.arange(400), 6), "key0": list("abcdef") * 400})
    counts = np.zeros(6)
    for _ in range(25):
        counts += spilled(frame, request(max_groups=2, max_rows=1))["units"].to_numpy()
    assert np.abs(counts - 10_000 / 3).max() < 5.7 * np.sqrt(10_000 * 2 / 9)


def test_parts_by_unit_give_the_same_sums(monkeypatch):
    for value in (None, ROWS):
        asked = request(max_rows=3, value=value)
        frame = FRAME if value is not None else FRAME.drop("value")
        whole = spilled(frame, asked)
        monkeypatch.setattr(spilling, "_RUN_BYTES", 10**8)
        assert spilled(frame, asked).rows() == whole.rows()
        monkeypatch.undo()


def test_it_takes_over_where_memory_is_short(monkeypatch):
    from dp_polars.sql import asking

    called = []
    honest = asking.run_spilling
    monkeypatch.setattr(asking, "run_spilling", lambda *given: called.append(1) or honest(*given))
    raw = duckdb.connect()
    raw.execute("CREATE TABLE rows AS SELECT i % 1000 AS who, i % 3 AS k FROM range(1000000) t(i)")
    with pytest.warns(dp.DPWarning):
        session = dp.Session(epsilon=10**6, unit="who", max_rows_per_group=1000)
    con = dp.connect(raw, session)
    asked = "SELECT k, dp_count(*, keys := [0, 1, 2], epsilon := 100000, fresh := true) AS n FROM rows GROUP BY k"
    first = con.sql(asked).fetchall()
    assert not called
    raw.execute("SET memory_limit = '50MB'")
    assert con.sql(asked).fetchall() == first
    assert called


def test_which_engine_runs_does_not_depend_on_rows():
    """By the limit and the sizes of files alone: a table of no rows and one of many are treated alike."""
    raw = duckdb.connect()
    raw.execute("SET memory_limit = '8GB'")
    assert not spilling.must_spill(raw, 0)
    assert not spilling.must_spill(raw, 10**9)
    assert spilling.must_spill(raw, 10**10)
    raw.execute("SET memory_limit = '500MB'")
    assert spilling.must_spill(raw, 0)


def test_rows_as_units():
    frame = FRAME.select("key0", "value")
    asked = request(units=0, value=replace(ROWS, offset=0.0))
    expected = run_bounded(frame.lazy(), asked)
    assert spilled(frame, asked).select(expected.columns).rows() == expected.rows()


def test_macros_of_the_user_change_nothing():
    cursor = duckdb.connect()
    for name, arguments in {"hash": "x", "least": "a, b", "greatest": "a, b", "round": "x", "isnan": "x"}.items():
        cursor.execute(f"CREATE MACRO {name}({arguments}) AS 0")
    asked = request(max_rows=3, value=ROWS)
    found = spilled(FRAME, asked, cursor)
    expected = run_bounded(FRAME.lazy(), asked)
    assert found.select(expected.columns).rows() == expected.rows()


def test_a_cap_on_the_first_keys_keeps_all_of_their_groups():
    frame = FRAME.drop("value").with_columns(key_1=pl.int_range(N) % 4)
    own = runs_of(frame.to_dicts(), ["unit0"], ["key0"])
    pairs = runs_of(frame.to_dicts(), ["unit0"], ["key0", "key_1"])
    asked = replace(request(keys=2, max_groups=2, max_rows=1), capped_keys=1)
    for unit in list(own)[:5]:
        table = spilled(frame.filter(pl.col("unit0") == unit[0]), asked).filter(pl.col("units") > 0)
        assert table["key0"].n_unique() == min(2, len(own[unit]))
        kept = {key for key in pairs[unit] if key[0] in table["key0"].to_list()}
        assert set(table.select("key0", "key1").rows()) == kept
