"""The Polars engine compared with the reference: exact without caps, within the caps, for every type of key."""

import datetime
import itertools
import uuid
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_polars._engines.bounding import blocks, row_store, sorters, sums
from dp_polars._engines.polars import codes, engine
from dp_polars._engines.polars import hash_table as hashes
from dp_polars._engines.request import BoundedRequest, GroupSum, Lane, ValueColumn
from tests.engines.reference import capped, runs_of, shortened
from tests.engines.requests import ValueRequest, request, run_bounded

VALUE = ValueRequest(low=-8, high=8, exponent=0, offset=0.0, total=False, fine=3, inner=9)


def as_dict(table, keys):
    names = [f"key{i}" for i in range(keys)]
    return {tuple(row[n] for n in names): row for row in table.to_dicts()}


UNITS = {
    "small integers": [1, 2, 3, None],
    "negative": [-5, -1, 0, 7],
    "full 64 bits": [-(2**63), 2**63 - 1, 0, None],
    "unsigned": pl.Series([2**64 - 1, 0, 5, None], dtype=pl.UInt64),
    "strings": ["a", "b", "", None],
    "uuids": [str(uuid.UUID(int=i)) for i in range(4)],
    "dates": [datetime.date(2020, 1, 1), datetime.date(1900, 1, 1), None, datetime.date(2024, 2, 29)],
    "booleans": [True, False, None, True],
    "binary": [b"a", b"b", b"\xff", None],
    "enum": pl.Series(["x", "y", "z", None], dtype=pl.Enum(["z", "y", "x"])),
    "decimals": pl.Series(["1.5", "2.5", "3.5", None]).cast(pl.Decimal(10, 2)),
}
KEYS = {
    **UNITS,
    "times": [datetime.time(1), datetime.time(2), None, datetime.time(23, 59)],
    "datetimes": pl.Series([0, 1, None, 10**15], dtype=pl.Int64).cast(pl.Datetime("us")),
    "durations": pl.Series([0, -1, None, 10**15], dtype=pl.Int64).cast(pl.Duration("us")),
    "wide integers": [0, 2**40, -(2**40), None],
    "tiny integers": pl.Series([-128, 127, 0, None], dtype=pl.Int8),
}


def frame_of(unit_values, key_values, n=300, seed=0):
    generator = np.random.default_rng(seed)
    units, keys = pl.Series(unit_values), pl.Series(key_values)
    return pl.DataFrame(
        {
            "unit0": units.gather(generator.integers(0, len(units), n)),
            "key0": keys.gather(generator.integers(0, len(keys), n)),
            "value": generator.integers(-20, 20, n),
        }
    )


def check_against_reference(frame, units, keys, max_rows, max_groups=None, value=VALUE):
    """Compare with the reference if all groups are kept."""
    table = run_bounded(frame.lazy(), request(units, keys, max_groups, max_rows, value=value))
    names = [f"key{i}" for i in range(keys)]
    expected = {}
    for groups in runs_of(frame.to_dicts(), [f"unit{i}" for i in range(units)], names).values():
        for group, rows in groups.items():
            inner = 0 if max_rows is None else value.inner
            n, total = capped([row["value"] for row in rows], max_rows, value.low, value.high, inner)
            old = expected.get(group, (0, 0, 0))
            expected[group] = (old[0] + n, old[1] + 1, old[2] + total)
    if max_rows is not None:
        expected = {key: (n, k, shortened(s, value.inner - value.fine)) for key, (n, k, s) in expected.items()}
    found = {group: (row["rows"], row["units"], row["total"]) for group, row in as_dict(table, keys).items()}
    assert found == expected
    return table


PAIRS = [(i + j, unit, key) for i, unit in enumerate(UNITS) for j, key in enumerate(KEYS)]
"""All types of units with all types of keys, numbered so that what takes every nth number has each type."""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "unit", "key"), PAIRS)
def test_every_type_of_unit_and_key_gives_the_defined_sums(number, unit, key):
    frame = frame_of(UNITS[unit], KEYS[key])
    table = check_against_reference(frame, 1, 1, 3 if number % 2 else None)
    assert table.schema["key0"] == frame.schema["key0"]
    assert table["key0"].to_list() == table["key0"].sort().to_list()


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "key"), [(unit, key) for number, unit, key in PAIRS if number % 3 == 0])
def test_caps_keep_exactly_the_allowed_number_of_groups(unit, key):
    frame = frame_of(UNITS[unit], KEYS[key])
    own = [len(groups) for groups in runs_of(frame.to_dicts(), ["unit0"], ["key0"]).values()]
    for cap in (1, 2, 3):
        table = run_bounded(frame.lazy(), request(max_groups=cap, max_rows=1))
        assert table["units"].sum() == sum(min(n, cap) for n in own) == table["rows"].sum()


@pytest.mark.slow
@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.data())
def test_random_frames_with_several_units_and_keys(data):
    n = data.draw(st.integers(0, 60))
    units, keys = data.draw(st.integers(1, 2)), data.draw(st.integers(0, 3))
    columns = {}
    for i in range(units):
        columns[f"unit{i}"] = data.draw(
            st.sampled_from([st.integers(-3, 3) | st.none(), st.sampled_from(["a", "b", None])]).flatmap(
                lambda values: st.lists(values, min_size=n, max_size=n)
            )
        )
    for i in range(keys):
        columns[f"key{i}"] = data.draw(
            st.sampled_from(
                [st.integers(0, 4) | st.none(), st.sampled_from(["x", "y", "", None]), st.booleans() | st.none()]
            ).flatmap(lambda values: st.lists(values, min_size=n, max_size=n))
        )
    columns["value"] = data.draw(st.lists(st.integers(-30, 30), min_size=n, max_size=n))
    frame = pl.DataFrame(
        columns,
        schema_overrides={"value": pl.Int64},
        strict=False,
    )
    frame = frame.with_columns(pl.col(pl.Null).cast(pl.Int64))
    max_rows = data.draw(st.sampled_from([None, 1, 2, 5]))
    if keys or n:
        table = run_bounded(frame.lazy(), request(units, keys, None, max_rows, value=VALUE))
        if keys:
            check_against_reference(frame, units, keys, max_rows)
        else:
            assert table.height == 1


def test_an_empty_frame_has_no_groups_or_one_of_zero():
    frame = frame_of([1, 2], ["a", "b"]).clear()
    assert run_bounded(frame.lazy(), request(value=VALUE)).height == 0
    assert run_bounded(frame.lazy(), request(keys=0, value=VALUE)).to_dicts() == [{"rows": 0, "units": 0, "total": 0}]
    domain = pl.DataFrame({"key0": ["a", "b"]})
    table = run_bounded(frame.lazy(), request(max_groups=1, domain=domain, value=VALUE))
    assert table.to_dicts() == [{"key0": k, "rows": 0, "units": 0, "total": 0} for k in "ab"]


def test_a_public_domain_shows_every_key_in_order_and_drops_other_rows_before_bounding():
    frame = pl.DataFrame({"unit0": [1, 1, 1, 2], "key0": ["a", "zz", "b", None]})
    domain = pl.DataFrame({"key0": [None, "a", "c"]}, schema={"key0": pl.String})
    for _ in range(20):  # for any salt, rows outside the domain never use up the cap
        table = run_bounded(frame.lazy(), request(max_groups=1, max_rows=5, domain=domain))
        assert table.select("key0", "rows").rows() == [(None, 1), ("a", 1), ("c", 0)]
    pairs = pl.DataFrame({"key0": ["a", "b"], "key1": [1, None]}, schema={"key0": pl.String, "key1": pl.Int64})
    frame = pl.DataFrame({"unit0": [1, 1, 2], "key0": ["a", "b", "b"], "key1": [1, None, 7]})
    table = run_bounded(frame.lazy(), request(keys=2, max_groups=2, max_rows=1, domain=pairs))
    assert table["rows"].to_list() == [1, 1]


# ---------------------------------------------------------------- who keeps which groups


@pytest.mark.slow
def test_the_choice_depends_on_nobody_else(monkeypatch):
    """With the same salt, a unit keeps the same groups alone, among other units, and after new keys appear."""
    keys = [f"k{i}" for i in range(12)]
    one = pl.DataFrame({"unit0": [7] * 12, "key0": keys})
    generator = np.random.default_rng(1)
    others = pl.DataFrame(
        {
            "unit0": generator.integers(100, 200, 500),
            "key0": [f"{'abkz'[i % 4]}{i}" for i in generator.integers(0, 60, 500)],
        }
    )
    for salt in range(30):
        alone = kept_table(one, salt, monkeypatch)
        company = pl.concat([one, others])
        together = kept_table(company, salt, monkeypatch)
        without = kept_table(others, salt, monkeypatch)
        # The unit adds to the table of all units exactly what it keeps alone.
        added = {k: together.get(k, 0) - without.get(k, 0) for k in together}
        assert {k: v for k, v in added.items() if v} == alone
        assert sum(alone.values()) == 2


def kept_table(frame, salt, monkeypatch, cap=2):
    monkeypatch.setattr(engine.secrets, "randbits", lambda _: salt)
    table = run_bounded(frame.lazy(), request(max_groups=cap, max_rows=1))
    monkeypatch.undo()
    return dict(table.filter(pl.col("units") > 0).select("key0", "units").iter_rows())


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys", [[f"k{i}" for i in range(6)], [0, 1, 2, 10**12, -5, 7], [None, "a", "b", "c", "d", "e"]]
)
def test_each_group_is_kept_equally_often(keys):
    """For 400 units with six groups and a cap of two, each group is kept for a third of the salts."""
    frame = pl.DataFrame({"unit0": np.repeat(np.arange(400), 6), "key0": pl.Series(keys * 400)})
    counts = np.zeros(6)
    releases = 25
    for _ in range(releases):
        counts += run_bounded(frame.lazy(), request(max_groups=2, max_rows=1))["units"].to_numpy()
    n = 400 * releases
    # Binomial(10,000, 1/3) has a standard deviation of 47. The chance that one of six is off by 5.7 of them is below
    # 1e-7.
    assert np.abs(counts - n / 3).max() < 5.7 * np.sqrt(n * 2 / 9)


# ---------------------------------------------------------------- other sorters give the same answer


def ordered_before_sorting(patch):
    patch.setattr(engine, "group_order", lambda *_: None)


def in_parts(patch):
    ordered_before_sorting(patch)
    patch.setattr(sorters, "_Packed", lambda *given: sorters._PackedInParts(given[0]))


def wide(patch):
    ordered_before_sorting(patch)
    patch.setattr(sorters, "_Packed", lambda *given: sorters._Wide(given[0]))


def wide_in_parts(patch):
    wide(patch)
    patch.setattr(row_store, "_PIECE", 100)


def wide_with_places(patch):
    patch.setattr(blocks.Layout, "fits", property(lambda self: False))


def wide_by_argsort(patch):
    wide_with_places(patch)
    patch.setattr(blocks, "_sorted_places", lambda words, bits: (np.argsort(words), np.sort(words)))


def wide_by_lexsort(patch):
    wide(patch)
    bits = blocks.Layout.bits.fget
    patch.setattr(blocks.Layout, "bits", property(lambda self: bits(self) + 64 * (self.unit_bits == UNIT_BITS)))


def wide_units_that_share_their_upper_bits(patch):
    wide(patch)
    patch.setattr(blocks, "_place_bits", lambda words: 60)


def few_places(patch):
    patch.setattr(sums, "_FEW_GROUPS", 4)
    patch.setattr(sums, "_MERGE", 3)


def small_blocks(patch):
    patch.setattr(blocks, "_BLOCK", 16)
    patch.setattr(row_store, "_PAGE", 800)
    patch.setattr(row_store, "_FIRST", 10)


def joined(patch):
    patch.setattr(codes.TableCodes, "numbers", lambda self, batch: raise_collision())


def raise_collision():
    raise codes.HashCollisionError


UNIT_BITS = 6
PLANS = [
    ordered_before_sorting,
    in_parts,
    wide,
    wide_in_parts,
    wide_with_places,
    wide_by_argsort,
    wide_by_lexsort,
    wide_units_that_share_their_upper_bits,
    few_places,
    small_blocks,
    joined,
]


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("value", [VALUE, None, ValueRequest(low=-40, high=40, exponent=0, offset=0.0, total=True)])
def test_every_plan_gives_the_same_answer(monkeypatch, plan, value):
    frame = frame_of(list(range(50)), [f"k{i}" for i in range(9)], n=2000, seed=3)
    asked = frame.lazy() if value is not None else frame.lazy().drop("value")
    given = request(max_groups=3, max_rows=None if value is not None and value.total else 4, value=value)
    monkeypatch.setattr(engine.secrets, "randbits", lambda _: 12345)
    expected = run_bounded(asked, given).to_dicts()
    plan(monkeypatch)
    assert run_bounded(asked, given).to_dicts() == expected


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["strings", "binary", "decimals", "uuids"])
def test_hashed_units_are_the_same_units(monkeypatch, unit):
    values = {**UNITS, "strings": [f"u{i}" for i in range(40)]}[unit]
    frame = frame_of(values, [f"k{i}" for i in range(9)], n=2000, seed=5)
    monkeypatch.setattr(engine.secrets, "randbits", lambda _: 99)
    answers = [
        run_bounded(
            frame.lazy(), replace(request(max_groups=3, max_rows=4, value=VALUE), hashed_units=hashed)
        ).to_dicts()
        for hashed in (False, True)
    ]
    assert answers[0] == answers[1]
    pairs = frame.rename({"unit0": "unit1"}).with_columns(unit0=pl.int_range(pl.len()) % 3)
    answers = [
        run_bounded(pairs.lazy(), replace(request(units=2, max_groups=3, value=VALUE), hashed_units=hashed)).to_dicts()
        for hashed in (False, True)
    ]
    assert answers[0] == answers[1]


def test_values_that_share_a_hash_are_told_apart(monkeypatch):
    """Different keys and different units stay apart even if the hash has only four values."""
    hashed = codes.hashed
    monkeypatch.setattr(
        codes,
        "hashed",
        lambda *given: (hashed(*given) // pl.lit(1 << 62, dtype=pl.UInt64)).alias(codes.hash_name(given[0])),
    )
    monkeypatch.setattr(engine, "hashed", codes.hashed)
    frame = frame_of([f"u{i}" for i in range(30)], [f"k{i}" for i in range(12)], n=600)
    check_against_reference(frame, 1, 1, 2)
    domain = pl.DataFrame({"key0": ["k3", "k5", "k77"]})
    table = run_bounded(frame.lazy(), request(domain=domain, value=VALUE))
    expected = frame.group_by("key0").len()
    assert table["rows"].to_list() == [expected.filter(key0=key)["len"].sum() for key in ("k3", "k5", "k77")]
    # A single public key can still collide with the keys of rows outside the domain.
    domain = pl.DataFrame({"key0": ["k3"]})
    table = run_bounded(frame.lazy(), request(domain=domain, value=VALUE))
    assert table["rows"].to_list() == [expected.filter(key0="k3")["len"].item()]


def test_categories_are_chosen_by_their_words_not_by_their_numbers(monkeypatch):
    """The code of a category depends on other rows, but the groups that a unit keeps must not."""
    words = [f"k{i}" for i in range(12)]
    kept = []
    for order in (words, words[::-1]):
        categories = pl.Categorical(pl.Categories.random("of_this_test"))
        numbered = pl.Series(order).cast(categories)  # gives the texts codes in this order while it is alive
        assert numbered.to_physical().to_list() == list(range(12))
        one = pl.DataFrame({"unit0": [7] * 12, "key0": pl.Series(words).cast(categories)})
        table = kept_table(one, 5, monkeypatch)
        assert run_bounded(one.lazy(), request()).schema["key0"] == categories
        kept.append(table)
    assert kept[0] == kept[1]


@pytest.mark.slow
@settings(max_examples=50, derandomize=True, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 40), max_size=40), max_size=6))
def test_a_hash_table_numbers_every_hash_once(pieces):
    table, known = hashes.HashTable(), {}
    for piece in pieces:
        first = table.add(np.array(piece, np.uint64))
        for place in first.tolist():
            assert piece[place] not in known
            known[piece[place]] = len(known)
        assert set(piece) <= set(known)
        everything = [*known, *(value ^ 1 for value in known)]
        found = table.find(np.array(everything, np.uint64)).tolist()
        assert found == [known.get(value, -1) for value in everything]
    table.renumber(np.arange(len(known))[::-1])
    assert table.find(np.array(list(known), np.uint64)).tolist() == list(range(len(known)))[::-1]


def test_a_hash_table_grows_and_keeps_what_it_knows():
    generator = np.random.default_rng(2)
    table = hashes.HashTable()
    known = generator.integers(0, 2**64, 30_000, np.uint64)
    order = [table.add(known[start : start + 1000]) + start for start in range(0, len(known), 1000)]
    numbers = table.find(known)
    assert numbers[np.concatenate(order)].tolist() == list(range(len(known)))
    assert (table.find(generator.integers(0, 2**64, 30_000, np.uint64)) == -1).all()


def test_many_possible_groups_are_numbered_not_allocated(monkeypatch):
    monkeypatch.setattr(sums, "_FEW_GROUPS", 4)
    check_against_reference(frame_of(list(range(20)), [f"k{i}" for i in range(30)]), 1, 1, 2)


def test_keys_with_more_combinations_than_a_number_holds_are_numbered_exactly():
    """The ranges of three integer keys, 2**23 each, multiply to more than 2**64, so codes would wrap and collide."""
    generator = np.random.default_rng(4)
    frame = pl.DataFrame(
        {
            "unit0": generator.integers(0, 40, 500),
            **{f"key{i}": pl.Series([0, 5, 2**23, None]).gather(generator.integers(0, 4, 500)) for i in range(3)},
            "value": generator.integers(-20, 20, 500),
        }
    )
    check_against_reference(frame, 1, 3, 2)
    own = [len(groups) for groups in runs_of(frame.to_dicts(), ["unit0"], ["key0", "key1", "key2"]).values()]
    table = run_bounded(frame.lazy().drop("value"), request(keys=3, max_groups=2, max_rows=1))
    assert table["units"].sum() == table["rows"].sum() == sum(min(n, 2) for n in own)


@pytest.mark.slow
def test_sums_saturate_where_64_bits_end():
    high = (1 << 46) - 1
    value = ValueRequest(low=0, high=high, exponent=0, offset=0.0, total=False)
    rows = (1 << 17) + 4  # so that their sum is above 2**63
    frame = pl.DataFrame({"value": pl.repeat(high, rows, eager=True)})
    assert run_bounded(frame.lazy(), request(units=0, keys=0, value=value))["total"].item() == 1 << 62
    owned = frame.with_columns(unit0=pl.lit(1))
    assert run_bounded(owned.lazy(), request(keys=0, max_rows=1, value=value))["total"].item() <= high


def test_totals_per_unit_are_clipped_once_and_never_wrap():
    value = ValueRequest(low=-10, high=10, exponent=0, offset=0.0, total=True)
    huge = 2**63 - 1
    frame = pl.DataFrame(
        {"unit0": [1] * 4 + [2] * 4 + [3, 3], "key0": ["a"] * 10, "value": [huge] * 4 + [-huge] * 4 + [3, 4]}
    )
    table = run_bounded(frame.lazy(), request(value=value))
    assert table["total"].to_list() == [10 - 10 + 7]


@pytest.mark.slow
@pytest.mark.parametrize("extreme", [2**63 - 1, -(2**63)])
def test_a_million_rows_of_one_unit_count_as_max_rows(extreme):
    frame = pl.DataFrame({"unit0": [1] * 1_000_000, "key0": ["a"] * 1_000_000, "value": [extreme] * 1_000_000})
    table = run_bounded(frame.lazy(), request(max_rows=10, value=VALUE))
    assert table.select("rows", "units", "total").row(0) == (10, 1, (80 if extreme > 0 else -80) << VALUE.fine)


def test_floats_are_put_on_the_grid_and_what_is_no_number_is_left_out():
    value = ValueRequest(low=0, high=16, exponent=-2, offset=0.0, total=False)
    frame = pl.DataFrame(
        {"unit0": [1, 2, 3, 4, 5, 6], "value": [0.1, float("nan"), float("inf"), float("-inf"), None, 2.5]}
    )
    table = run_bounded(frame.lazy(), request(keys=0, max_rows=1, value=value))
    assert table.row(0) == (4, 4, 0 + 16 + 0 + 10)


@pytest.mark.slow
@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=50),
    st.integers(1, 5),
)
def test_sums_in_limbs_are_exact_or_saturate(values, groups):
    array = np.array(values, np.int64)
    group = np.arange(len(values)) % groups
    total = sums.Sums(groups, [True])
    for piece in np.array_split(np.arange(len(values)), 3):
        total.add(group[piece], [array[piece]])
    found = sums.joined(*total.finish()[2][0])
    for g in range(groups):
        true = sum(v for v, own in zip(values, group.tolist(), strict=True) if own == g)
        assert found[g] == max(-(2**62), min(true, 2**62))


@pytest.mark.parametrize("most", [2**31 - 1, 60, 1])
def test_runs_and_the_first_sum_are_added_in_one_word_only_while_both_fit(most, monkeypatch):
    """Without the limit on what is added, the halves of a word would run into each other."""
    monkeypatch.setattr(sums, "_MOST_BOTH", most)
    monkeypatch.setattr(sums, "_LIMB", 6 if most == 60 else 32)
    monkeypatch.setattr(sums, "_LOW", 63 if most == 60 else 2**32 - 1)
    rng = np.random.default_rng(3)
    total = sums.Sums(3, [False, False])
    group, first, second = (rng.integers(0, high, 300) for high in (3, 9, 5))
    first[7] = 200  # alone too much for half a word, if it has 6 bits
    for piece in np.array_split(np.arange(300), 60):
        total.add(group[piece], [first[piece], second[piece]])
    names, runs, found = total.finish()
    assert names.tolist() == [0, 1, 2]
    for g in range(3):
        own = group == g
        assert (runs[g], found[0][0][g], found[1][0][g]) == (own.sum(), first[own].sum(), second[own].sum())
        assert found[0][1] is found[1][1] is None


def test_sums_of_distances_from_both_bounds_are_those_of_exact_numbers():
    """One of the two is not added up but follows from the other, also where runs are scaled down and rounded."""
    rng = np.random.default_rng(5)
    n, cap, low, high = 6000, 7, -3, 11
    units, keys = rng.integers(0, 40, n) ** 2 // 40, rng.integers(0, 5, n)  # up to hundreds of rows in a run
    values = [None if rng.random() < 0.1 else int(value) for value in rng.integers(low, high + 1, n)]
    frame = pl.DataFrame({"unit0": units, "key0": keys, "value0": values})
    column = ValueColumn(place=0, low=low, high=high)
    both = tuple(
        GroupSum(name=f"place{place}", of="basis", max_rows=cap, fine=0, inner=32, place=place, degree=1)
        for place in (0, 1)
    )
    alone = (both[0],)
    exact = dict.fromkeys([(g, place) for g in range(5) for place in (0, 1)], 0)
    for (_, group), rows in frame.drop_nulls().group_by("unit0", "key0"):
        for place in (0, 1):
            total = sum(value - low if place else high - value for value in rows["value0"].to_list())
            exact[group, place] += round(Fraction(min(len(rows), cap) * total * 2**32, len(rows)))
    for everyone, asked in itertools.product((False, True), (both, alone, both[::-1])):
        lane = Lane(columns=(column,), sums=asked, everyone=everyone)
        table = engine.run_bounded(
            frame.lazy(), BoundedRequest(units=1, keys=1, max_groups=None, domain=None, lanes=(lane,))
        )
        assert table.groups["key0"].to_list() == list(range(5))
        for group, *found in table.groups.select("key0", *(one.name for one in asked)).rows():
            wanted = [(2 * exact[group, one.place] + 2**32) // 2**33 for one in asked]  # to the nearest, ties upwards
            assert found == wanted


def test_every_row_a_unit():
    frame = pl.DataFrame({"key0": ["a", "b", "a", None], "value": [1, 100, -100, 2]})
    table = run_bounded(frame.lazy(), request(units=0, value=VALUE))
    assert table.select("key0", "rows", "units", "total").rows() == [(None, 1, 1, 2), ("a", 2, 2, -7), ("b", 1, 1, 8)]
    domain = pl.DataFrame({"key0": ["b", "c"]})
    table = run_bounded(frame.lazy(), request(units=0, domain=domain, value=VALUE))
    assert table.select("key0", "rows", "total").rows() == [("b", 1, 8), ("c", 0, 0)]


# ---------------------------------------------------------------- a cap on the first keys


@pytest.mark.parametrize("discovered", [True, False])
def test_a_cap_on_the_first_keys_keeps_all_of_their_groups(discovered):
    rng = np.random.default_rng(11)
    n = 4000
    frame = pl.DataFrame(
        {
            "unit0": rng.integers(0, 60, n),
            "key0": rng.choice(["a", "b", "c", "d", None], n),
            "key1": rng.integers(0, 9, n),
        }
    )
    domain = None if discovered else frame.select("key0", "key1").unique().sort("key0", "key1")
    by_unit = frame.unique().group_by("unit0", "key0").len()
    asked = replace(request(keys=2, max_groups=2, max_rows=1, domain=domain), capped_keys=1)
    for unit in range(5):
        own = frame.filter(pl.col("unit0") == unit)
        table = run_bounded(own.lazy(), asked).filter(pl.col("units") > 0)
        sizes = dict(by_unit.filter(pl.col("unit0") == unit).select("key0", "len").iter_rows())
        kept = dict(table.group_by("key0").len().iter_rows())
        assert len(kept) == min(2, len(sizes))  # exactly this many of the first keys,
        assert all(sizes[key] == number for key, number in kept.items())  # with every second key


def test_which_first_keys_a_unit_keeps_depends_on_its_own_rows_alone(monkeypatch):
    monkeypatch.setattr(engine.secrets, "randbits", lambda _: 12345)
    rng = np.random.default_rng(12)
    own = pl.DataFrame({"unit0": [7] * 40, "key0": rng.integers(100, 110, 40), "key1": rng.integers(0, 5, 40)})
    asked = replace(request(keys=2, max_groups=3, max_rows=1), capped_keys=1)

    def kept(others):
        with_others = pl.concat([own, others]) if others is not None else own
        marked = with_others.with_columns(key1=pl.when(pl.col("unit0") == 7).then("key1").otherwise(99))
        return run_bounded(marked.lazy(), asked).filter(pl.col("key1") != 99)["key0"].unique().sort().to_list()

    alone = kept(None)
    assert len(alone) == 3
    for seed in range(5):
        some = np.random.default_rng(seed)
        others = pl.DataFrame(
            {"unit0": some.integers(8, 50, 300), "key0": some.integers(0, 200, 300), "key1": some.integers(0, 5, 300)}
        )
        assert kept(others) == alone
