"""The derived sensitivity is what neighbours really differ by: on random frames, queries, bounds and adjacencies.

With one salt for both frames (the choice of groups is the unit's own), the exact bounded aggregates of two neighbours
differ by no more than the plan says, in every norm. That is the whole of the privacy argument that noise rests on.
"""

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_polars.engines.polars import engine, run_bounded
from dp_polars.planning.plan import plan_of
from dp_polars.releasing.run import request_of
from tests.accounting.test_filter_by_enumeration import terms_of
from tests.planning.queries import query

INTEGERS = [-(2**63), -1000, -7, 0, 3, 9, 1000, 2**63 - 1]
FLOATS = [-math.inf, -1e300, -3.3, 0.0, 1e-300, 2.7, 9.99, 1e300, math.inf, math.nan, None]


def rows_of_unit(draw, unit, integers):
    n = draw(st.integers(0, 12))
    values = st.sampled_from(INTEGERS if integers else FLOATS)
    return [(unit, draw(st.sampled_from(["a", "b", "c", "d", None])), draw(values)) for _ in range(n)]


def frame_of(rows, integers):
    kind = pl.Int64 if integers else pl.Float64
    return pl.DataFrame(rows, schema={"unit0": pl.Int64, "key0": pl.String, "value0": kind}, orient="row")


@settings(max_examples=250, derandomize=True, deadline=None)
@given(st.data())
def test_neighbours_differ_by_at_most_the_sensitivity_in_every_norm(data):
    draw = data.draw
    integers = draw(st.booleans())
    aggregate = draw(st.sampled_from(["count", "count_units", "sum", "mean"]))
    lower, upper = sorted(draw(st.lists(st.sampled_from([-9, -2, 0, 1, 5, 12]), min_size=2, max_size=2, unique=True)))
    public = draw(st.sampled_from([None, ["a"], ["a", "b", "c"], ["a", "b", "c", "d", None]]))
    domain = None if public is None else pl.DataFrame({"k": public}, schema={"k": pl.String})
    grouped = draw(st.booleans())
    size = draw(st.integers(1, 2))
    adjacency = draw(st.sampled_from(["add_remove", "replace"]))
    terms = terms_of(1, 1e-6, adjacency=adjacency, group_size=size)
    asked = query(
        aggregate,
        keys=("k",) if grouped else (),
        domain=domain if grouped else None,
        bounds=(lower, upper),
        per=draw(st.sampled_from(["row", "unit"])) if aggregate == "sum" else "row",
        integers=integers,
        max_groups=draw(st.sampled_from([1, 2, 4])),
        max_rows=draw(st.sampled_from([1, 2, 5])),
    )
    plan = plan_of(asked, terms)
    common = [row for unit in (1, 2) for row in rows_of_unit(draw, unit, integers)]
    # The protected units have numbers of their own, between, below and above the others'.
    places = draw(st.permutations([0, 3, -(2**40), 2**40]))
    removed = [row for unit in places[:size] for row in rows_of_unit(draw, unit, integers)]
    entered = [row for unit in places[2 : 2 + size] for row in rows_of_unit(draw, unit, integers)]
    left = frame_of(common + removed, integers)
    right = frame_of(common + (entered if adjacency == "replace" else []), integers)
    salt = draw(st.integers(0, 2**62))
    tables = []
    for frame in (left, right):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine.secrets, "randbits", lambda _, salt=salt: salt)
            columns = ["unit0", *(["key0"] if grouped else []), *(["value0"] if plan.columns else [])]
            tables.append(run_bounded(frame.lazy().select(columns), request_of(plan)).groups)
    for part in plan.parts:
        difference = _difference(*tables, part.column, grouped)
        assert np.abs(difference).sum() <= part.sensitivity.l1
        assert (difference.astype(object) ** 2).sum() <= part.sensitivity.l2_squared
        assert np.abs(difference).max(initial=0) <= part.sensitivity.each


def _difference(left, right, column, grouped):
    if not grouped:
        return np.array([left[column][0] - right[column][0]])
    both = left.select("key0", a=column).join(right.select("key0", b=column), on="key0", how="full", nulls_equal=True)
    return (both["a"].fill_null(0) - both["b"].fill_null(0)).to_numpy()


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize(("lower", "upper"), [(0, 10), (-4, 10), (-10, -2)])
def test_the_sensitivity_is_reached(adjacency, lower, upper):
    """Not only an upper bound: some neighbours differ by exactly this much (noise is not wasted)."""
    terms = terms_of(1, 1e-6, adjacency=adjacency)
    domain = pl.DataFrame({"k": ["a", "b", "c", "d"]})
    plan = plan_of(query("sum", domain=domain, bounds=(lower, upper), max_groups=2, max_rows=3), terms)
    extreme = lower if abs(lower) > abs(upper) else upper
    left = [(1, key, extreme) for key in "ab" for _ in range(3)]
    right = [(2, key, extreme) for key in "cd" for _ in range(3)] if adjacency == "replace" else []
    tables = [run_bounded(frame_of(rows, True).lazy(), request_of(plan)).groups for rows in (left, right)]
    difference = _difference(*tables, plan.parts[0].name, True)
    assert np.abs(difference).sum() == plan.parts[0].sensitivity.l1
    if lower * upper >= 0 or adjacency == "add_remove":
        assert (difference**2).sum() == plan.parts[0].sensitivity.l2_squared
