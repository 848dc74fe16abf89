"""The derived sensitivity is what neighbours really differ by: on random frames, queries, bounds and adjacencies.

With one salt for both frames (a unit's choice of groups depends on its own rows alone), the exact bounded aggregates of
two neighbours differ by no more than the plan says, in every norm. The privacy of the noise rests on this alone.
"""

import math
import random
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_polars._engines.polars import engine, run_bounded
from dp_polars._plan import grid
from dp_polars._plan.plan import plan_of
from dp_polars._plan.query import Spend
from dp_polars._release.noise import _vector
from dp_polars._release.run import request_of
from tests.plan.queries import aggregate, query
from tests.session.test_filter_by_enumeration import terms_of

INTEGERS = [-(2**63), -1000, -7, 0, 3, 9, 1000, 2**63 - 1]
FLOATS = [-math.inf, -1e300, -3.3, 0.0, 1e-300, 2.7, 9.99, 1e300, math.inf, math.nan, None]


KINDS = [
    "count",
    "count_units",
    "n_unique",
    "sum",
    "mean",
    "var",
    "median",
    "quantile",
    "max",
    "histogram",
    "cov",
    "corr",
]


def rows_of_unit(chance, unit, integers):
    """Return up to twelve rows. They are not drawn by Hypothesis, which takes longer for it than the engine needs."""
    values = INTEGERS if integers else FLOATS
    return [
        (unit, chance.choice(["a", "b", "c", "d", None]), chance.choice(values), chance.choice(values))
        for _ in range(chance.randint(0, 12))
    ]


def frame_of(rows, integers):
    kind = pl.Int64 if integers else pl.Float64
    schema = {"unit0": pl.Int64, "key0": pl.String, "value0": kind, "value1": kind}
    return pl.DataFrame([row if len(row) == 4 else (*row, 0) for row in rows], schema=schema, orient="row")


@pytest.mark.slow
@pytest.mark.parametrize("across", [False, True])
@settings(max_examples=200, derandomize=True, deadline=None)
@given(data=st.data())
def test_neighbours_differ_by_at_most_the_sensitivity_in_every_norm(across, data):
    draw = data.draw
    integers = draw(st.booleans())
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    lower, upper = sorted(draw(st.lists(st.sampled_from([-9, -2, 0, 1, 5, 12]), min_size=2, max_size=2, unique=True)))
    publics = [["a"], ["a", "b", "c"], ["a", "b", "c", "d", None]]
    public = draw(st.sampled_from([None, *publics]))
    domain = None if public is None else pl.DataFrame({"k": public}, schema={"k": pl.String})
    grouped = across or draw(st.booleans())
    size = draw(st.integers(1, 2))
    adjacency = draw(st.sampled_from(["add_remove", "replace"]))
    terms = terms_of(1, 1e-6, adjacency=adjacency, group_size=size)
    asked = query(
        aggregates=tuple(
            aggregate(
                kind,
                (lower, upper),
                draw(st.sampled_from(["row", "unit"])) if kind == "sum" else "row",
                integers,
                name=f"answer{place}",
            )
            for place, kind in enumerate(kinds)
        ),
        keys=("k",) if grouped else (),
        domain=domain if grouped else None,
        max_groups=draw(st.sampled_from([1, 2, 4, None] if across and public else [1, 2, 4])),
        max_rows=draw(st.sampled_from([1, 2, 5])),
        across=across,
        spend=Spend(epsilon=Fraction(1, 2), mechanism=draw(st.sampled_from([None, "gaussian"])) if across else None),
    )
    plan = plan_of(asked, terms)
    chance = random.Random(draw(st.integers(0, 2**62)))
    common = [row for unit in (1, 2) for row in rows_of_unit(chance, unit, integers)]
    # The protected units have numbers of their own, between, below and above the others'.
    places = draw(st.permutations([0, 3, -(2**40), 2**40]))
    removed = [row for unit in places[:size] for row in rows_of_unit(chance, unit, integers)]
    entered = [row for unit in places[2 : 2 + size] for row in rows_of_unit(chance, unit, integers)]
    left = frame_of(common + removed, integers)
    right = frame_of(common + (entered if adjacency == "replace" else []), integers)
    salt = draw(st.integers(0, 2**62))
    names = {f"value{i}": f"value{'vw'.index(value.name)}" for i, value in enumerate(plan.columns)}
    tables = []
    for frame in (left, right):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine.secrets, "randbits", lambda _, salt=salt: salt)
            columns = [
                "unit0",
                *(["key0"] if grouped else []),
                *(pl.col(own).alias(name) for name, own in names.items()),
            ]
            tables.append(run_bounded(frame.lazy().select(columns), request_of(plan)))
    changes = 2 if adjacency == "replace" else 1
    for measurement in plan.measurements:
        if measurement.noise is None:
            cells = next(
                compiled.statistics["cells"]
                for compiled in plan.compiled
                if compiled.statistics.get("values") == measurement.name
            )
            moved = moved_cells(*tables, cells, grouped)
            most = changes * size * measurement.statistic.max_rows
            assert max(moved, default=0) <= most
            assert sum(moved) <= most * (1 if across else plan.bounds.max_groups)
            assert sum(rows > 0 for rows in moved) <= changes * size * plan.bounds.max_groups
            continue
        moved = difference(*(named_vector(table, measurement, grouped) for table in tables))
        assert np.abs(moved).sum() <= measurement.sensitivity.l1
        assert (moved.astype(object) ** 2).sum() <= measurement.sensitivity.l2_squared
        assert np.abs(moved).max(initial=0) <= measurement.sensitivity.each


def named_vector(table, measurement, grouped):
    """Return the exact numbers of a measurement by group and place."""
    numbers = _vector(table, measurement.statistic)
    numbers = numbers if numbers.ndim == 2 else numbers[:, None]
    keys = table.groups["key0"].to_list() if grouped else [None]
    return {(key, place): n for key, row in zip(keys, numbers.tolist(), strict=True) for place, n in enumerate(row)}


def difference(left, right):
    return np.array([left.get(key, 0) - right.get(key, 0) for key in left.keys() | right.keys()])


def moved_cells(left, right, name, grouped):
    """Return by how many rows the cells of each group differ."""
    found = []
    for table in (left, right):
        keys = table.groups["key0"].to_list() if grouped else [None]
        rows = table.cells[name].select("group", "value", "count").rows()
        found.append({(keys[group], value): count for group, value, count in rows})
    moved = {}
    for key in found[0].keys() | found[1].keys():
        moved[key[0]] = moved.get(key[0], 0) + abs(found[0].get(key, 0) - found[1].get(key, 0))
    return list(moved.values())


@cache
def small_units(low, high):
    """Return a number of groups, and two frames: with and without a unit that has up to six rows in each group."""
    joins = [rows for n in range(7) for rows in combinations_with_replacement(range(low, high + 1), n)]
    others = [(), (0,), (0, 0, 1), (0, 0, 0, 0, 1), (-1, 0, 0, 1, 1, 2, 2), (2, 2, 2, 2, 2, 2, -1)]
    common, joined = [], []
    for place, (other, own) in enumerate(product(others, joins)):
        common += [(2 * place, f"k{place}", value) for value in other]
        common += [(-1 - place, f"k{place}", 0)]  # so that every group is there on both sides
        joined += [(2 * place + 1, f"k{place}", value) for value in own]
    frames = [frame_of(rows, True).select("unit0", "key0", "value0") for rows in (common + joined, common)]
    return len(others) * len(joins), frames


@pytest.mark.slow
@pytest.mark.parametrize("form", ["basis", "split"])
@pytest.mark.parametrize("kind", ["sum", "mean", "var"])
@pytest.mark.parametrize(("fine", "inner"), [(0, 0), (0, 1), (1, 1), (1, 3), (14, 32)])
def test_every_small_unit_moves_every_small_sum_by_at_most_the_sensitivity(form, kind, fine, inner, monkeypatch):
    """Try all multisets of up to six rows of four values with every remainder that other units may leave.

    Each pair is a separate group. Few fractional bits are the hard case, because rounding is coarse then.
    """
    monkeypatch.setattr(grid, "_MOST_FINE", fine)
    monkeypatch.setattr(grid, "MOST_INNER", inner)
    spend = Spend(epsilon=Fraction(1, 2)) if form == "basis" else Spend(share=Fraction(1, 9), mechanism="gaussian")
    low, high = -1, 2
    groups, frames = small_units(low, high)
    for cap in (1, 2, 3, 4):
        asked = query(kind, bounds=(low, high), max_groups=1, max_rows=cap, spend=spend)
        plan = plan_of(asked, terms_of(1, 1e-6))
        assert any(measurement.statistic.source == "basis" for measurement in plan.measurements) == (
            form == "basis" and kind != "sum"
        )
        tables = [run_bounded(frame.lazy(), request_of(plan)) for frame in frames]
        assert tables[0].groups["key0"].equals(tables[1].groups["key0"])
        for measurement in plan.measurements:
            vectors = [_vector(table, measurement.statistic).reshape(groups, -1) for table in tables]
            moved = np.abs(vectors[0] - vectors[1])
            assert moved.sum(axis=1).max() <= measurement.sensitivity.l1
            assert (moved**2).sum(axis=1).max() <= measurement.sensitivity.l2_squared
            assert moved.max() <= measurement.sensitivity.each


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize(("lower", "upper"), [(0, 10), (-4, 10), (-10, -2)])
def test_the_sensitivity_is_reached(adjacency, lower, upper):
    """Some neighbours differ by exactly this much, so the bound is tight and no noise is wasted."""
    terms = terms_of(1, 1e-6, adjacency=adjacency)
    domain = pl.DataFrame({"k": ["a", "b", "c", "d"]})
    plan = plan_of(query("sum", domain=domain, bounds=(lower, upper), max_groups=2, max_rows=3), terms)
    extreme = lower if abs(lower) > abs(upper) else upper
    left = [(1, key, extreme) for key in "ab" for _ in range(3)]
    right = [(2, key, extreme) for key in "cd" for _ in range(3)] if adjacency == "replace" else []
    columns = ["unit0", "key0", "value0"]
    tables = [run_bounded(frame_of(rows, True).lazy().select(columns), request_of(plan)) for rows in (left, right)]
    moved = difference(*(named_vector(table, plan.measurements[0], True) for table in tables))
    assert np.abs(moved).sum() == plan.measurements[0].sensitivity.l1
    if lower * upper >= 0 or adjacency == "add_remove":
        assert (moved**2).sum() == plan.measurements[0].sensitivity.l2_squared
