"""Whole queries under attack: honest ones stay within epsilon, each deliberate fault is caught."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from dp_polars.engines.polars import engine
from dp_polars.planning.plan import plan_of
from dp_polars.planning.query import Spend
from tests.accounting.test_filter_by_enumeration import terms_of
from tests.audit import audit, epsilon_lower_bound, exact_answers, released
from tests.planning.queries import query

DOMAIN = pl.DataFrame({"k": ["a", "b", "c", "d", None]}, schema={"k": pl.String})
CROWD = [(unit, "abcd"[unit % 4], unit % 9) for unit in range(100, 140)]
HEAVY = [(1, key, 10) for key in ("a", "b", "c", "d", None) for _ in range(50)]


def frame_of(rows):
    return pl.DataFrame(rows, schema={"unit0": pl.Int64, "key0": pl.String, "value": pl.Int64}, orient="row")


def audited(plan, right=CROWD):
    columns = ["unit0", *(["key0"] if plan.query.keys else []), *(["value"] if plan.query.value is not None else [])]
    return audit(plan, frame_of(CROWD + HEAVY).select(columns), frame_of(right).select(columns))


ONE = Spend(epsilon=Fraction(1))
QUERIES = {
    "count": query("count", domain=DOMAIN, spend=ONE),
    "count_units": query("count_units", domain=DOMAIN, spend=ONE),
    "sum": query("sum", domain=DOMAIN, bounds=(0, 10), spend=ONE),
    "sum without keys": query("sum", keys=(), bounds=(-5, 10), spend=ONE),
    "gaussian count": query("count", domain=DOMAIN, spend=Spend(epsilon=Fraction(1), mechanism="gaussian")),
}


def plan_for(name, **terms):
    return plan_of(QUERIES[name], terms_of(1, 1e-6, **terms))


@pytest.mark.parametrize("name", QUERIES)
def test_honest_queries_stay_within_their_epsilon(name):
    plan = plan_for(name)
    found = audited(plan)
    assert found <= 1
    assert found > (0.05 if "gaussian" in name else 0.8)  # and the attack is worth its name


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_replacing_a_unit_stays_within(adjacency):
    plan = plan_for("sum", adjacency=adjacency)
    swapped = CROWD + [(2, key, 0) for key in "abcd"]
    found = audited(plan, swapped if adjacency == "replace" else CROWD)
    assert found <= 1


# ---------------------------------------------------------------- deliberate faults


def test_a_scale_that_is_too_small_is_caught():
    plan = plan_for("count")
    part = plan.parts[0]
    weak = replace(part, noise=replace(part.noise, parameter=part.noise.parameter / 2))
    assert audited(replace(plan, parts=(weak,))) > 1


def test_a_cap_that_is_off_by_one_is_caught(monkeypatch):
    plan = plan_for("count_units")
    honest = engine.aggregate

    def off_by_one(runs, groups, *, max_groups, **caps):
        return honest(runs, groups, max_groups=max_groups + 1, **caps)

    monkeypatch.setattr(engine, "aggregate", off_by_one)
    assert audited(plan) > 1


def test_rows_that_are_not_capped_are_caught(monkeypatch):
    plan = plan_for("count")
    honest = engine.aggregate

    def uncapped(runs, groups, *, max_rows, **caps):
        return honest(runs, groups, max_rows=None, **caps)

    monkeypatch.setattr(engine, "aggregate", uncapped)
    assert audited(plan) > 1


def test_a_null_key_that_escapes_the_cap_is_caught(monkeypatch):
    """A group for null that every unit may have on top of its others."""
    plan = plan_for("count_units")
    honest = engine.aggregate

    def escaping(runs, groups, **caps):
        null = runs.group == 0
        pick = lambda mask: engine.Runs(runs.unit[mask], runs.group[mask], runs.rows[mask], None)  # noqa: E731
        inside, outside = honest(pick(~null), groups, **caps), honest(pick(null), groups, **caps)
        return engine.Aggregates(inside.rows + outside.rows, inside.units + outside.units, None)

    monkeypatch.setattr(engine, "aggregate", escaping)
    assert audited(plan) > 1


def test_a_choice_of_groups_that_depends_on_others_is_caught(monkeypatch):
    """Groups kept by their number among all groups: one unit with a new key shifts everyone's choice."""
    monkeypatch.setattr(engine, "_order_hash", lambda *_: _order_by_number())
    asked = query("count_units", keys=("k",), domain=None, max_groups=1, spend=Spend(epsilon=Fraction(1)))
    terms = terms_of(1, 0.01)
    plan = plan_of(asked, terms)
    # Not caught by sums over groups, but by a single group: everyone moves from one key to another.
    crowd = [(unit, key, 0) for unit in range(100, 400) for key in ("b", "c")]

    def first_group(rows, seed):
        noisy = released(plan, exact_answers(plan, frame_of(rows).select("unit0", "key0")), 4000, seed)
        shown = noisy.filter(pl.col("key0") == "c").group_by("copy").agg(pl.col("units").first())
        counts = np.zeros(4000)
        counts[shown["copy"].to_numpy()] = shown["units"].to_numpy()
        return counts

    found = epsilon_lower_bound(first_group([*crowd, (1, "a", 0)], 1), first_group(crowd, 2), 0.01)
    assert found > 1


def _order_by_number():
    # The place of the key among those present, turned around: an odd number of keys keeps the first, an even the last.
    rank = pl.col("key0").rank("dense")
    many = pl.col("key0").n_unique() % 2 == 0
    return pl.when(many).then(rank).otherwise(100 - rank).cast(pl.UInt64)
