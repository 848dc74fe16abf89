"""The groups that units keep if their order is computed after sorting: those of the definition, ties included."""

from collections import defaultdict

import numpy as np
import polars as pl
import pytest

from dp_polars._engines.bounding import blocks
from dp_polars._engines.bounding.blocks import ORDER_BITS, Block, GroupCap, kept_runs
from dp_polars._engines.polars.codes import Salts
from dp_polars._engines.polars.engine import run_bounded
from dp_polars._engines.polars.scan import polars_rows
from dp_polars._engines.polars.units import IntegerUnits
from dp_polars._engines.request import BoundedRequest, GroupSum, Lane, Profile

INNER = 3  # groups that share an outer group


def block_of(seed, units, kind=np.uint64, spread=1):
    """Return runs sorted by unit and group, of units that have between one and 30 of 60 groups."""
    random = np.random.default_rng(seed)
    pairs = [
        (unit * spread, group)
        for unit in range(units)
        for group in np.sort(random.choice(60, random.integers(1, 31), replace=False))
    ]
    unit, group = np.array([pair[0] for pair in pairs], kind), np.array([pair[1] for pair in pairs])
    ones = np.ones(len(pairs), np.int64)
    return Block(unit, None, group, ones, np.arange(len(pairs)), None)


def first_of_each(block, most, place, outer):
    """Return the runs that each unit keeps, from the definition: sort its (outer) groups by place, then by number."""
    groups = defaultdict(set)
    for unit, group in zip(block.unit.tolist(), outer.tolist(), strict=True):
        groups[unit].add(group)
    kept = {unit: sorted(own, key=lambda group: (place(unit, group), group))[:most] for unit, own in groups.items()}
    return [group in kept[unit] for unit, group in zip(block.unit.tolist(), outer.tolist(), strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("places", [1, 2, 5, 1 << ORDER_BITS])
@pytest.mark.parametrize("few", [0, 1 << 40], ids=["some units", "all units"])
@pytest.mark.parametrize(("kind", "spread"), [(np.uint32, 1), (np.uint64, 1 << 20), (np.uint64, 1 << 58)])
@pytest.mark.parametrize("inner", [1, INNER])
def test_each_unit_keeps_its_first_groups(monkeypatch, places, few, kind, spread, inner):
    """With few places most units have ties where their groups are cut off."""
    monkeypatch.setattr(blocks, "_FEW", few)
    block = block_of(1, 30, kind, spread)

    def place(unit, group):
        return hash((unit, group)) % places

    def order(units, number, group):
        numbers = [place(*pair) for pair in zip(units[number].tolist(), (group // inner).tolist(), strict=True)]
        return np.array(numbers, np.uint64)

    outer = None if inner == 1 else lambda group: group // inner
    for most in (1, 2, 7, 29, 30):
        kept = kept_runs(block, GroupCap(most, outer, order))
        expected = first_of_each(block, most, place, block.group // inner)
        assert ([True] * len(block.unit) if kept is None else kept.tolist()) == expected


def test_no_order_is_computed_where_no_unit_has_too_many_groups():
    def order(units, number, group):
        raise AssertionError

    assert kept_runs(block_of(2, 20), GroupCap(30, None, order)) is None


@pytest.mark.parametrize(
    ("dtype", "low"), [(pl.Int64(), -5), (pl.Int64(), -(2**63)), (pl.UInt64(), 2**64 - 50), (pl.Int8(), -128)]
)
def test_the_hash_of_a_unit_does_not_depend_on_the_least_unit(dtype, low):
    """The same values have the same hashes whether they are counted from `low` or from a unit above it."""
    salts = Salts(lambda: 12345)
    words = np.arange(40, dtype=np.uint64)
    first, second = (IntegerUnits("unit0", dtype, start, low + 45).hashes(salts) for start in (low, low + 5))
    assert (first(words + np.uint64(5)) == second(words)).all()
    assert (first(words.astype(np.uint32)) == first(words)).all()
    assert len(np.unique(first(words))) == 40


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("lazy", [False, True])
def test_an_empty_domain_has_no_order_to_look_up_and_fails_for_no_row(rows, lazy):
    """A profile takes the order with the rows, and a table of no hashes can give none."""
    frame = pl.DataFrame({"unit0": [3, 3, 4], "key0": ["a", "b", "a"]}).head(rows)
    lane = Lane(
        sums=(GroupSum(name="rows", of="rows", max_rows=1),), profiles=(Profile(name="p", of="groups", most=3),)
    )
    domain = pl.DataFrame({"key0": pl.Series([], dtype=pl.String)})
    request = BoundedRequest(units=1, keys=1, max_groups=1, domain=domain, lanes=(lane,))
    found = run_bounded(frame.lazy() if lazy else polars_rows(frame), request)
    assert found.groups.shape == (0, 3)
