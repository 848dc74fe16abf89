"""Digests of public frames: different frames, different digests, however the values are stored."""

import datetime
import itertools
import math
from decimal import Decimal

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._plan.digest import public_digest


def nanoseconds(*numbers):
    return pl.Series(numbers, dtype=pl.Int64).cast(pl.Datetime("ns"))


LISTS = pl.List(pl.Int64)
COLUMNS = {
    "integers": pl.Series([1, 2]),
    "others": pl.Series([2, 1]),
    "short": pl.Series([1, 2], dtype=pl.Int32),
    "null last": pl.Series([1, None]),
    "null first": pl.Series([None, 1]),
    "a zero": pl.Series([1, 0]),
    "nulls": pl.Series([None, None]),
    "no rows": pl.Series([], dtype=pl.Int64),
    "floats": pl.Series([1.0, 2.0]),
    "nan": pl.Series([1.0, math.nan]),
    "infinity": pl.Series([1.0, math.inf]),
    "plus zero": pl.Series([1.0, 0.0]),
    "minus zero": pl.Series([1.0, -0.0]),
    "texts": pl.Series(["ab", "c"]),
    "cut elsewhere": pl.Series(["a", "bc"]),
    "an empty text": pl.Series(["", "abc"]),
    "no text": pl.Series([None, "abc"]),
    "bytes": pl.Series([b"ab", b"c"]),
    "booleans": pl.Series([True, False]),
    "lists": pl.Series([[1, 2], []]),
    "split": pl.Series([[1], [2]]),
    "null list": pl.Series([[1, 2], None], dtype=LISTS),
    "null inside": pl.Series([[1, None], []], dtype=LISTS),
    "only null inside": pl.Series([[None], []], dtype=LISTS),
    "null inside the second": pl.Series([[], [None]], dtype=LISTS),
    "empty lists": pl.Series([[], []], dtype=LISTS),
    "lists of lists": pl.Series([[[1], [2]], []]),
    "other lists of lists": pl.Series([[[1, 2]], []]),
    "arrays": pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int64, 2)),
    "structs": pl.Series([{"a": 1}, {"a": 2}]),
    "null struct": pl.Series([{"a": 1}, None]),
    "null in a struct": pl.Series([{"a": 1}, {"a": None}]),
    "field": pl.Series([{"b": 1}, {"b": 2}]),
    "times": nanoseconds(4, 5),
    "times, a nanosecond later": nanoseconds(4, 6),
    "times in lists": nanoseconds(4, 5).reshape((2, 1)).cast(pl.List(pl.Datetime("ns"))),
    "times in lists, later": nanoseconds(4, 6).reshape((2, 1)).cast(pl.List(pl.Datetime("ns"))),
    "times in structs": pl.DataFrame({"t": nanoseconds(4, 5)}).to_struct(),
    "times in structs, later": pl.DataFrame({"t": nanoseconds(4, 6)}).to_struct(),
    "durations": pl.Series([datetime.timedelta(1), None]),
    "enums": pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"])),
    "other enums": pl.Series(["a", "b"], dtype=pl.Enum(["b", "a"])),
    "categories": pl.Series(["a", "b"], dtype=pl.Categorical),
    "decimals": pl.Series([Decimal("1.10"), Decimal("2.00")]),
    "other decimals": pl.Series([Decimal("1.10"), Decimal("2.01")]),
    "wide": pl.Series([1, 2**100], dtype=pl.Int128),
    "wider": pl.Series([1, 2**100 + 1], dtype=pl.Int128),
}
FRAMES = {name: column.alias("x").to_frame() for name, column in COLUMNS.items()}
FRAMES |= {"another name": pl.DataFrame({"y": [1, 2]}), "twice": pl.DataFrame({"x": [1, 2], "y": [1, 2]})}


def test_different_frames_have_different_digests():
    digests = {name: public_digest(frame) for name, frame in FRAMES.items()}
    same = [pair for pair in itertools.combinations(digests, 2) if digests[pair[0]] == digests[pair[1]]]
    assert same == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FRAMES)
def test_chunks_and_slices_change_nothing(name):
    frame = FRAMES[name]
    whole = public_digest(frame)
    thrice = pl.concat([frame, frame, frame], rechunk=True)
    assert public_digest(thrice[frame.height : 2 * frame.height]) == whole
    assert public_digest(pl.concat([frame[:1], frame[1:]], rechunk=False)) == whole
    assert public_digest(frame.filter(pl.lit(True))) == whole


def test_python_objects_are_refused():
    with pytest.raises(dp.InvalidDataError, match="Python objects"):
        public_digest(pl.DataFrame({"x": [object()]}, schema={"x": pl.Object}))


def test_two_questions_that_differ_by_a_nanosecond_are_two():
    """This was an attack: times inside structs were converted to Python's, which drop nanoseconds."""
    people = pl.DataFrame({"user": range(50), "k": [1] * 50})
    session = dp.Session(epsilon=5.0, unit="user")
    for late in (4, 6):
        limits = pl.DataFrame({"k": [1], "limit": nanoseconds(late)}).select("k", cfg=pl.struct("limit"))
        dp.private(people, session).join(limits, on="k").count_units(epsilon=0.5)
    assert len(session.releases) == 2


def test_digests_stay_the_same_from_version_to_version():
    """Ledgers hold them: with other digests, stored releases would not be found again."""
    frame = pl.DataFrame(
        {
            "text": ["a", None, "\u00fc", ""],
            "enum": pl.Series(["x", "y", None, "x"], dtype=pl.Enum(["x", "y"])),
            "number": [1, None, 3, 4],
            "list": [["a"], None, [], ["b", None]],
            "struct": [{"a": "x", "b": 1.5}] * 4,
        }
    )
    assert public_digest(frame) == "9b50faa977caa54c38acca2b2a4a1b692b3b588be874ea82166f8a9cd935a52b"
    assert public_digest(frame.clear()) == "f5544549027ed30a70e3f50d856e42cb1c8d3515af6d1f93d3e79f748de9bed5"
