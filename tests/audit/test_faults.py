"""An audit of ordinary queries finds faults that are put into the library. Bits and salts are fixed in these tests."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.bounding import cells
from dp_polars._engines.bounding import sums as moments
from dp_polars._engines.bounding.blocks import Block, kept_runs
from dp_polars._engines.polars import engine, run_bounded
from dp_polars._engines.polars.group_order import GroupOrder, order_of
from dp_polars._plan import compile as building
from dp_polars._plan.plan import plan_of
from dp_polars._release import noise, quantiles
from dp_polars._release.run import request_of
from tests.audit.made_up import ALMOST_SURE, CROWD, KEYS, frame_of, seed, too_little_noise
from tests.plan.queries import query
from tests.session.test_filter_by_enumeration import terms_of

PUBLIC = [*KEYS, None]
HEAVY = [(1, key, 10) for key in PUBLIC for _ in range(50)]
TWO_GROUPS = [(1, key, 10) for key in ("a", "b")]
MANY_VALUES = [(1, "a", 11 + i) for i in range(40)]  # that nobody else has

ONE = dp.Session(epsilon=1.0, unit="user", max_groups=1, max_rows_per_group=1)
TWO = dp.Session(epsilon=1.0, unit="user", max_groups=2, max_rows_per_group=1)


def by_key(kind, *given, keys=PUBLIC, **words):
    return lambda frame: getattr(frame.dp, kind)(*given, by="key", keys=keys, epsilon=1.0, **words)


def audited(question, rows, session=ONE, **words):
    words = {"runs": 40_000, "reads": 80, **words}
    return dp.audit(question, frame_of(CROWD + rows), frame_of(CROWD), session=session, made_up=True, **words)


@pytest.fixture(autouse=True)
def _repeatable(monkeypatch):
    seed(monkeypatch)


FAULTY = {
    "count of units": (by_key("count_units"), HEAVY),
    "rows": (by_key("count"), HEAVY),
    "mean": (by_key("mean", "value", bounds=(0, 10)), HEAVY),
    "histogram": (by_key("histogram", "value", edges=[0, 5, 10]), [(1, "a", 10)] * 50),
    "median": (by_key("median", "value", bounds=(0, 10)), [(1, "a", 0)] * 50),
    "distinct values": (by_key("n_unique", "value"), MANY_VALUES),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTY)
def test_without_the_fault_nothing_is_found(kind):
    question, rows = FAULTY[kind]
    assert audited(question, rows, confidence=ALMOST_SURE).verdict == "no violation found"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["count_units", "count"])
def test_a_cap_on_groups_that_is_off_by_one_is_caught(kind, monkeypatch):
    monkeypatch.setattr(moments, "kept_runs", lambda block, cap: kept_runs(block, replace(cap, most=cap.most + 1)))
    assert audited(by_key(kind), TWO_GROUPS, reads=160).verdict == "violation"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rows", "mean"])
def test_rows_that_are_not_capped_are_caught(kind, monkeypatch):
    question, rows = FAULTY[kind]
    term = moments._term
    monkeypatch.setattr(moments, "_term", lambda one, *given: term(replace(one, max_rows=10**6), *given))
    assert audited(question, rows).verdict == "violation"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["histogram", "median", "distinct values"])
def test_values_that_are_not_capped_are_caught(kind, monkeypatch):
    question, rows = FAULTY[kind]
    monkeypatch.setattr(cells.CellCounts, "_chosen", lambda *_: None)
    assert audited(question, rows).verdict == "violation"


@pytest.mark.slow
def test_a_sensitivity_that_forgets_the_groups_is_caught(monkeypatch):
    question = by_key("count")
    assert audited(question, TWO_GROUPS, TWO, confidence=ALMOST_SURE).verdict == "no violation found"
    honest = building.sensitivity_of
    monkeypatch.setattr(building, "sensitivity_of", lambda bounds, *rest: honest(replace(bounds, max_groups=1), *rest))
    found = audited(question, TWO_GROUPS, TWO)
    assert found.verdict == "violation"
    assert found.epsilon_lower_bound > 1.9


def test_noise_that_is_shared_between_groups_is_caught(monkeypatch):
    """Each count is right by itself, but their difference has no noise."""
    honest = noise._noisy
    monkeypatch.setattr(
        noise,
        "_noisy",
        lambda values, part, source: values + np.repeat(honest(np.zeros(len(values) // 5, np.int64), part, source), 5),
    )
    assert audited(by_key("count"), TWO_GROUPS[:1], ONE).verdict == "violation"


@pytest.mark.slow
def test_a_choice_that_is_too_sharp_is_caught(monkeypatch):
    target = quantiles._Descent._target

    def sharp(self, quantile):
        aim, rate = target(self, quantile)
        return aim, rate * 8

    monkeypatch.setattr(quantiles._Descent, "_target", sharp)
    assert audited(by_key("median", "value", bounds=(0, 10)), [(1, "a", 0)]).verdict == "violation"


@pytest.mark.slow
def test_half_of_the_noise_is_caught_in_sql_and_by_key(monkeypatch):
    def sql(frame):
        con = dp.connect(None, dp.current_session()).register("visits", frame)
        return con.sql("SELECT dp_sum(value, 0, 10, epsilon := 1.0) AS total FROM visits")

    too_little_noise(monkeypatch, Fraction(1, 2))
    assert audited(sql, TWO_GROUPS[:1]).verdict == "violation"
    assert audited(by_key("count"), TWO_GROUPS, TWO).verdict == "violation"


@pytest.mark.slow
def test_a_null_key_that_escapes_the_cap_is_caught(monkeypatch):
    """Every unit may have a group for null in addition to its others."""

    def escaping(block: Block, most):
        kept = block.group == 0
        others = np.flatnonzero(~kept)
        rest = Block(block.unit[others], None, block.group[others], block.rows[others], block.starts[others], None)
        own = kept_runs(rest, most)
        kept[others] = True if own is None else own
        return kept

    monkeypatch.setattr(moments, "kept_runs", escaping)
    assert audited(by_key("count_units"), [(1, "a", 10), (1, None, 10)], reads=160).verdict == "violation"


# ---------------------------------------------------------------- choices of groups that depend on others


def moved_crowd(confidence=0.99):
    """Audit a count of discovered keys, where one unit has its own key and everyone keeps one of two groups."""
    crowd = [(unit, key, 0) for unit in range(100, 400) for key in ("b", "c")]
    with pytest.warns(dp.DPWarning, match="delta"):
        session = dp.Session(epsilon=1.0, delta=0.01, unit="user", max_groups=1, max_rows_per_group=1)
    question = lambda frame: frame.dp.count_units("key", epsilon=1.0)  # noqa: E731
    first, second = frame_of([*crowd, (1, "a", 0)]), frame_of(crowd)
    return dp.audit(
        question, first, second, session=session, made_up=True, runs=20_000, reads=60, confidence=confidence
    ).verdict


@pytest.mark.slow
def test_an_honest_choice_of_groups_gives_nobody_away():
    assert moved_crowd(ALMOST_SURE) == "no violation found"


@pytest.mark.slow
def test_a_choice_of_groups_that_depends_on_others_is_caught(monkeypatch):
    """If groups are kept by their number among all groups, one unit with a new key shifts everyone's choice."""

    def order_by_number(order, units, number, group):
        # An odd number of keys keeps the first, an even number the last.
        place = group.astype(np.uint64)
        return place if len(order.keys) % 2 == 0 else np.uint64(100) - place

    monkeypatch.setattr(GroupOrder, "__call__", order_by_number)
    assert moved_crowd() == "violation"


@pytest.mark.slow
def test_a_salt_that_is_made_from_the_data_is_caught(monkeypatch):
    """If the salt follows from the rows instead of being fresh, one more row makes everyone choose anew, together."""

    def verdict(factor):
        def salted_by_size(order, units, number, group):
            # A salt that all units share decides the same for all; the number of keys chooses it.
            seed = len(order.keys) * factor
            return order_of(pl.Series(len(order.keys) - group).hash(seed=seed).to_numpy(), None)

        monkeypatch.setattr(GroupOrder, "__call__", salted_by_size)
        return moved_crowd()

    assert "violation" in map(verdict, range(5, 0, -1))  # two of the salts may agree by chance; the first one is enough


def test_every_release_has_a_salt_of_its_own(monkeypatch):
    """A reused salt would drop the same groups of the same units in every release, so averaging would never help."""
    salts = []
    randbits = engine.secrets.randbits
    monkeypatch.setattr(engine.secrets, "randbits", lambda bits: salts.append((bits, randbits(bits))) or salts[-1][1])
    frame = pl.DataFrame({"unit0": np.repeat(np.arange(200), 8), "key0": np.tile(np.arange(8), 200)})
    asked = request_of(plan_of(query("count_units", keys=("k",), max_groups=2), terms_of(1, 0.01)))
    tables = [run_bounded(frame.lazy(), asked).groups["units"].to_list() for _ in range(3)]
    assert {bits for bits, _ in salts} == {64}
    assert len(salts) == 3 * 3  # one each for the unit, the key and the choice of rows
    assert len({salt for _, salt in salts}) == len(salts)
    assert tables[0] != tables[1] != tables[2]


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_both_kinds_of_neighbours_stay_within(adjacency):
    session = dp.Session(epsilon=1.0, unit="user", adjacency=adjacency, max_groups=2, max_rows_per_group=1)
    other = [(1, key, 0) for key in ("c", "d")] if adjacency == "replace" else []
    found = dp.audit(
        by_key("sum", "value", bounds=(0, 10)),
        frame_of(CROWD + TWO_GROUPS),
        frame_of(CROWD + other),
        session=session,
        made_up=True,
        runs=100_000,
        confidence=ALMOST_SURE,
    )
    assert found.verdict == "no violation found"
    assert found.epsilon_lower_bound > (0.8 if adjacency == "add_remove" else 0.3)
