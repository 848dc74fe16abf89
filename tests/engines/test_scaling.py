"""Sums that are scaled down: each rounding is compared with fractions, and the engine with the reference.

A unit with more rows than its cap adds round(S * cap * 2**inner / n), and a group's sum is shortened once.
"""

import itertools
import random
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from dp_polars._engines import polars
from dp_polars._engines.bounding import sums
from dp_polars._engines.request import LIMIT, MOST_INNER, BoundedRequest, GroupSum, Lane, ValueColumn
from dp_polars._plan.grid import scaling_of
from dp_polars._plan.plan import plan_of
from dp_polars._plan.query import Spend
from dp_polars._release.run import request_of
from tests.engines.reference import capped, runs_of, shortened
from tests.engines.requests import ValueRequest, request, run_bounded
from tests.plan.queries import query
from tests.session.test_filter_by_enumeration import terms_of

TERMS = terms_of(1, 1e-6)
PATHS = ["one division", "long division", "Python's integers"]


def scaled(path, totals, rows, cap, inner, bits, monkeypatch):
    """Return what the engine computes for runs, by one of its code paths."""
    if path == "Python's integers":
        monkeypatch.setattr(sums, "_LONG_RUN", 0)
    wide = bits if path == "one division" else 62
    found = sums.scaled(np.array(totals, np.int64), np.array(rows, np.int64), cap, inner, wide)
    monkeypatch.undo()
    return found.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_every_small_run_is_rounded_to_the_nearest_step_and_stays_in_its_range(path, monkeypatch):
    low, high = -3, 2
    for cap, inner in itertools.product(range(1, 6), range(4)):
        runs = [(s, n) for n in range(1, 14) for s in range(n * low, n * high + 1)]
        totals, rows = zip(*runs, strict=True)
        found = scaled(path, totals, rows, cap, inner, 2, monkeypatch)
        exact = [Fraction(s * min(cap, n) << inner, n) for s, n in runs]
        assert found == [round(one) for one in exact]
        for (_, n), one in zip(runs, found, strict=True):
            assert min(cap, n) * low << inner <= one <= min(cap, n) * high << inner
        opposite = scaled(path, [-s for s in totals], rows, cap, inner, 2, monkeypatch)
        assert opposite == [-one for one in found]  # rounding has no direction


@pytest.mark.parametrize("path", PATHS[1:])
def test_runs_at_the_ends_of_64_bits_do_not_wrap(path, monkeypatch):
    """With the largest numbers, caps and runs that a plan allows, scaled sums and totals reach 2**62."""
    draw = random.Random(5)
    for bits, cap in [(1, 1), (1, 2**29), (20, 7), (36, 5), (40, 2**20 - 1), (59, 2), (60, 1)]:
        largest = (1 << bits) - 1
        inner = scaling_of(largest, cap, groups=1).inner
        assert largest * cap << inner < LIMIT
        rows = [n for n in (cap + 1, 2 * cap + 1, 2**31 - 1) if n * largest <= LIMIT and cap < n < 2**31]
        runs = [(s, n) for n in rows for s in (n * largest, -n * largest, n * largest - 1, 1, -1, 0)]
        runs += [(draw.randint(-n * largest, n * largest), n) for n in rows for _ in range(50)]
        if not runs:
            runs = [(LIMIT, cap + 5), (-LIMIT, cap + 5)]  # the totals of longer runs were clipped to the limit before
        totals, own = zip(*runs, strict=True)
        found = scaled(path, totals, own, cap, inner, bits, monkeypatch)
        assert found == [round(Fraction(s * cap << inner, n)) for s, n in runs]
        assert max(abs(one) for one in found) <= cap * largest << inner


def test_one_division_is_used_only_where_the_numerator_fits():
    """At the limit of a single division, the product is just below 2**62. One more bit takes long division."""
    for bits in (30, 31):
        largest, n, cap, inner = (1 << bits) - 1, 2**10 - 1, 2**9, 11
        runs = [(s, n) for s in (n * largest, -n * largest, n * largest - 1, 12345, -54321)]
        found = sums.scaled(np.array([s for s, _ in runs]), np.full(5, n), cap, inner, bits).tolist()
        assert found == [round(Fraction(s * cap << inner, k)) for s, k in runs]


@pytest.mark.parametrize("bits", [0, 1, 2, 5, 31, 32])
def test_a_sum_is_shortened_to_the_nearest_and_moves_no_further_than_before(bits):
    numbers = [
        *range(-70, 71),
        *(sign * (2**k + d) for sign in (-1, 1) for k in (31, 32, 33, 61, 80) for d in (-1, 0, 1)),
    ]
    high, low = np.array([s >> 32 for s in numbers]), np.array([s & 0xFFFFFFFF for s in numbers])
    found = sums.joined(*sums.shortened(high, low, bits)).tolist()
    for number, one in zip(numbers, found, strict=True):
        assert one == max(-LIMIT, min(LIMIT, shortened(number, bits)))
    if bits <= 5:
        near = dict(zip(numbers[:141], found[:141], strict=True))
        for (a, one), (b, other) in itertools.product(near.items(), near.items()):
            least, most = (b - a) // (1 << bits), -((a - b) // (1 << bits))  # integer bounds around the change
            assert least <= other - one <= most


@pytest.mark.slow
def test_limbs_that_were_carried_are_shortened_too():
    high, low = np.array([5, -5, 0]), np.array([7 << 40, (1 << 45) + 3, (1 << 62) - 1])
    found = sums.joined(*sums.shortened(high, low, 9)).tolist()
    assert found == [shortened((h << 32) + s, 9) for h, s in zip(high.tolist(), low.tolist(), strict=True)]


def test_finer_steps_are_refused_where_nothing_is_scaled():
    column = ValueColumn(place=0, low=0, high=1)
    for one in (
        GroupSum(name="s", of="x", inner=3),
        GroupSum(name="s", of="x", max_rows=2, fine=2, inner=1),
        GroupSum(name="s", of="x", max_rows=2, inner=MOST_INNER + 1),
        GroupSum(name="s", of="x", max_rows=2, clip=(0, 1), inner=1),
    ):
        with pytest.raises(ValueError, match="finer steps"):
            BoundedRequest(units=1, keys=0, max_groups=None, domain=None, lanes=(Lane(columns=(column,), sums=(one,)),))
    fine = Lane(columns=(column,), sums=(GroupSum(name="s", of="x", max_rows=2, inner=1),))
    with pytest.raises(ValueError, match="finer steps"):
        BoundedRequest(units=0, keys=0, max_groups=None, domain=None, lanes=(fine,))


GENERATOR = np.random.default_rng(3)
HEAVY = pl.DataFrame(
    {
        # Some units have one row in a group, and some have hundreds.
        "unit0": GENERATOR.zipf(1.3, 5000) % 40,
        "key0": pl.Series(["a", "b", None]).gather(GENERATOR.integers(0, 3, 5000)),
        "value": GENERATOR.integers(-6, 7, 5000),
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("cap", [1, 2, 3, 7, 20])
@pytest.mark.parametrize(("fine", "inner"), [(0, 0), (0, 32), (4, 4), (14, 32), (3, 10)])
def test_sums_are_the_defined_ones_in_any_number_of_parts(cap, fine, inner):
    value = ValueRequest(low=-5, high=5, fine=fine, inner=inner)
    asked = request(max_rows=cap, value=value)
    expected = {}
    for groups in runs_of(HEAVY.to_dicts(), ["unit0"], ["key0"]).values():
        for (key,), rows in groups.items():
            expected[key] = expected.get(key, 0) + capped([row["value"] for row in rows], cap, -5, 5, inner)[1]
    expected = {key: shortened(total, inner - fine) for key, total in expected.items()}
    for parts in (1, 3):
        found = run_bounded(HEAVY.lazy(), asked, parts=parts)
        assert dict(found.select("key0", "total").iter_rows()) == expected


@pytest.mark.slow
@pytest.mark.parametrize("form", ["basis", "split"])
@pytest.mark.parametrize("kind", ["sum", "mean", "var", "cov", "linear_regression"])
@pytest.mark.parametrize("integers", [True, False])
def test_all_that_plans_ask_is_the_same_in_parts(form, kind, integers):
    """Shifted sums, products and bases are exact to the last step too."""
    spend = Spend(epsilon=Fraction(1, 2)) if form == "basis" else Spend(share=Fraction(1, 9), mechanism="gaussian")
    frame = HEAVY.rename({"value": "value0"}).with_columns(value1=pl.col("value0") * pl.col("unit0") % 5)
    if not integers:
        frame = frame.with_columns(pl.col("value0", "value1") * 0.37)
    for cap in (1, 3, 20):
        plan = plan_of(query(kind, bounds=(-5, 2), integers=integers, max_groups=9, max_rows=cap, spend=spend), TERMS)
        asked = request_of(plan)
        columns = ["unit0", "key0", *(f"value{i}" for i in range(len(plan.columns)))]
        expected, found = (
            polars.run_bounded(frame.lazy().select(columns), asked, parts=parts).groups for parts in (1, 3)
        )
        assert found.equals(expected)
        assert any(one.inner for lane in asked.lanes for one in lane.sums)
