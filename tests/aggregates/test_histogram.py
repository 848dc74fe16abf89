"""`histogram` through every door."""

from itertools import pairwise

import polars as pl
import pytest

import dp_polars as dp
from tests.aggregates.doors import DOORS, HUGE, Functions, Polars, charges, refused, rows, session
from tests.aggregates.frames import FRAME, OWNED

PLAIN = OWNED.with_columns(pl.col("x").fill_nan(None))


@pytest.fixture(params=[door for door in DOORS if door is not Functions], ids=lambda door: door.__name__)
def with_edges(request):
    """Return a door that takes edges. Functions take only bins between bounds."""
    return request.param


def ask(kind, frame, column, **words):
    """Return (low, high, count) of each bin, by key if there is one."""
    found = rows(kind(frame, session()).ask("histogram", column, **{"epsilon": HUGE, **words}), words.get("by"))
    if "by" not in words:
        return [tuple(one.values()) for one in found]
    return {key: [tuple(one.values()) for one in listed] for key, listed in found.items()}


def plainly(values, edges):
    """Count by definition: a bin includes its lower edge, and the last bin includes both."""
    *_, last = edges
    return [
        (low, high, sum(low <= value < high or (value == high == last) for value in values))
        for low, high in pairwise(edges)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("column", "bounds", "bins"), [("n", (-9, 29), 2), ("n", (0, 20), 10), ("x", (0, 25), 5)])
def test_it_equals_the_plain_counts_of_equal_bins(kind, column, bounds, bins):
    """Noise of scale 50 / 10**5 is 0, except with probability below 1e-200. Values outside are left out."""
    edges = [bounds[0] + place * (bounds[1] - bounds[0]) / bins for place in range(bins + 1)]
    found = ask(kind, FRAME, column, bounds=bounds, bins=bins)
    assert found == plainly(PLAIN[column].drop_nulls().to_list(), edges)


@pytest.mark.slow
def test_it_equals_the_plain_counts_of_each_group(kind):
    found = ask(kind, FRAME, "n", by="region", bounds=(-9, 29), bins=2, max_groups=5)
    groups = PLAIN.drop_nulls("n").group_by("region").agg("n")
    assert found == {key: plainly(values, [-9, 10, 29]) for key, values in groups.iter_rows()}


@pytest.mark.slow
def test_ten_bins_unless_said_and_a_filter(kind):
    where = (pl.col("kind") > 0, "kind > 0")
    values = OWNED.filter(where[0])["n"].drop_nulls().to_list()
    assert ask(kind, FRAME, "n", bounds=(0, 20), where=where) == plainly(values, range(0, 21, 2))


@pytest.mark.slow
@pytest.mark.parametrize("edges", [[-9, -3, 0, 1, 29], [0, 1000], [-(10**6), 0, 10**6]], ids=str)
@pytest.mark.parametrize("column", ["n", "x"])
def test_it_equals_the_plain_counts_between_given_edges(with_edges, column, edges):
    assert ask(with_edges, FRAME, column, edges=edges) == plainly(PLAIN[column].drop_nulls().to_list(), edges)


@pytest.mark.slow
def test_values_on_edges_belong_to_the_bin_above_and_the_last_to_the_last(with_edges):
    frame = pl.DataFrame({"who": range(8), "v": [-0.1, 0.0, -0.0, 0.5, 0.5, 1.0, 1.1, float("nan")]})
    assert ask(with_edges, frame, "v", edges=[0, 0.5, 1]) == [(0, 0.5, 2), (0.5, 1, 3)]


@pytest.mark.slow
def test_edges_between_whole_numbers_are_those_that_were_given(with_edges):
    """The last bin of whole numbers holds no more than it shows, and every bin shows the edges that were given."""
    frame = pl.DataFrame({"who": range(6), "v": [-1, 0, 1, 2, 3, 4]})
    found = ask(with_edges, frame, "v", edges=[-0.5, 1.5, 2.5])
    assert [count for _, _, count in found] == [2, 1]
    shown = [low for low, _, _ in found] + [found[-1][1]]
    assert plainly(frame["v"].to_list(), shown) == found


@pytest.mark.slow
def test_infinite_values_lie_outside(with_edges):
    frame = pl.DataFrame({"who": range(4), "v": [float("inf"), float("-inf"), 1.0, None]})
    assert ask(with_edges, frame, "v", edges=[0, 2]) == [(0, 2, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("cap", [1, 3, 29, 50])
def test_of_a_unit_as_many_rows_count_as_the_cap_says(kind, cap):
    """Ten units have 30 rows within the bounds and 30 outside, which don't count towards the cap."""
    frame = pl.DataFrame({"who": [i % 10 for i in range(600)], "v": [i // 10 for i in range(600)]})
    found = ask(kind, frame, "v", bounds=(0, 29), bins=3, max_rows_per_group=cap)
    assert sum(count for _, _, count in found) == 10 * min(cap, 30)


@pytest.mark.slow
def test_constants_nulls_empty_frames_and_groups(kind):
    frame = pl.DataFrame({"who": [1, 2, 3], "key": ["a", "a", "b"], "v": [5, 5, None]})
    words = {"bounds": (0, 10), "bins": 2}
    none = [(0, 5, 0), (5, 10, 0)]
    assert ask(kind, frame, "v", **words) == [(0, 5, 0), (5, 10, 2)]
    found = ask(kind, frame, "v", by="key", keys=["a", "b", "c"], **words)
    assert found == {"a": [(0, 5, 0), (5, 10, 2)], "b": none, "c": none}
    assert ask(kind, frame.clear(), "v", **words) == none
    assert ask(kind, frame.clear(), "v", by="key", **words) == {}


def test_frames_have_a_row_for_each_bin_and_an_interval():
    """The interval of one bin is that of its noise, which has scale 1 / 0.5 and stays within 5 in 90 % of cases."""
    frame = pl.DataFrame({"who": range(100), "key": ["a", "b"] * 50, "v": range(100)})
    words = {"bounds": (0, 100), "bins": 4, "max_rows_per_group": 1, "max_groups": 1, "confidence": 0.9}
    with session():
        found = frame.dp.histogram("v", "key", keys=["a", "b"], epsilon=0.5, **words)
    assert found.columns == ["key", "bin_low", "bin_high", "count", "count_low", "count_high"]
    assert found["key"].to_list() == ["a"] * 4 + ["b"] * 4
    error = found["count_high"] - found["count"]
    assert set(error) == set(found["count"] - found["count_low"]) == {5}


@pytest.mark.slow
def test_a_function_with_an_interval_answers_or_charges_nothing():
    paying = session()
    try:
        Functions(FRAME, paying).ask("histogram", "n", bounds=(0, 20), bins=2, confidence=0.9, epsilon=1)
    except Functions.errors:
        assert not paying.releases


def test_a_wanted_error_decides_the_spend():
    plan = Polars(FRAME, session()).plan("histogram", "n", bounds=(0, 20), within=10, max_rows_per_group=1)
    assert plan.expected_error() == 10


@pytest.mark.slow
@pytest.mark.parametrize("by", [None, "region"])
def test_every_door_plans_and_charges_the_same(by):
    assert len(charges(FRAME, "histogram", "x", by=by, bounds=(0, 25), bins=3, epsilon=0.5)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"bounds": None}, "needs bounds for x"),
        ({"bounds": (5, 1)}, "lower < upper"),
        ({"bins": 0}, "bins must be at least 1"),
        ({"bins": 10_001}, "at most 10,000 bins"),
        ({"column": "n", "bins": 26}, "must rise"),
        ({"column": "region"}, "needs integers, floats, decimals or times"),
    ],
)
def test_every_door_refuses_alike(closed, words, message):
    refused(closed, message, "histogram", **{"column": "x", "bounds": (0, 25), "epsilon": 1, **words})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"edges": [0, 2, 1]}, "must rise"),
        ({"edges": [0, 0]}, "must rise"),
        ({"edges": [0]}, "at least two edges"),
        ({"edges": [0, 1], "bounds": (0, 1)}, "not both"),
        ({"edges": [0, 1], "bins": 2}, "not both"),
        ({"column": "n", "edges": [0.1, 0.2]}, "must rise"),
    ],
)
def test_edges_are_refused_alike(with_edges, words, message):
    refused(with_edges(FRAME, session()), message, "histogram", **{"column": "x", "epsilon": 1, **words})


@pytest.mark.parametrize(
    ("dtype", "edges"),
    [(pl.Int64, [0, 2**64]), (pl.Int64, [-(2**63), 0]), (pl.Decimal(38, 20), [0, 1]), (pl.Decimal(38, 10), [0, 1e300])],
    ids=str,
)
def test_edges_beyond_64_bits_are_refused_before_anything_is_charged(dtype, edges):
    """The engine would fail on them after the charge, whatever the rows are, and close the session for everybody."""
    frame = pl.DataFrame({"user": [1, 2], "x": pl.Series([1, 2]).cast(dtype)})
    session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    with pytest.raises(dp.InvalidParameterError, match="64-bit"):
        dp.private(frame, session).histogram("x", edges=edges, epsilon=0.1)
    assert session.spent.epsilon == 0
    assert not session.closed


@pytest.mark.parametrize("edges", [[0, 2**63 - 1], [-(2**63 - 1), 0, 5]], ids=str)
def test_the_largest_edges_are_answered(edges):
    frame = pl.DataFrame({"user": [1, 2], "x": [1, 2]})
    session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    assert dp.private(frame, session).histogram("x", edges=edges, epsilon=0.1).height == len(edges) - 1
