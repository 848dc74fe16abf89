"""Every operation is row-wise and never fails, on every combination of types that it accepts, with hostile values.

A value must be the same, to the bit, for a row alone, among others, shuffled, in batches of one, two and many rows,
after a filter that empties chunks, on the streaming engine and in memory, with and without Polars' optimiser.
"""

import functools
import itertools
import math
import random
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest

from dp_polars._engines.polars import evaluation
from dp_polars._engines.polars.program import Program
from dp_polars._engines.polars.scan import lazy_rows, polars_rows
from dp_polars._expressions import OPERATIONS, Apply, Column, Constant, apply
from dp_polars._expressions.hostile import hostile
from dp_polars.errors import ExpressionNotAllowed

TYPES = [
    *(pl.Boolean(), pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.Int128(), pl.UInt8(), pl.UInt32(), pl.UInt64()),
    *(pl.Float32(), pl.Float64(), pl.String(), pl.Enum(["b", "a", "é", ""]), pl.Categorical(), pl.Date(), pl.Time()),
    *(pl.Datetime("ms"), pl.Datetime("us"), pl.Datetime("ns"), pl.Datetime("us", "UTC")),
    *(pl.Datetime("us", "Europe/Paris"), pl.Duration("ms"), pl.Duration("us"), pl.Duration("ns")),
    *(pl.Decimal(38, 2), pl.Decimal(10, 4), pl.List(pl.Int64()), pl.List(pl.String()), pl.Array(pl.Int64(), 2)),
    *(pl.Struct({"a": pl.Int64(), "b": pl.String()}), pl.Null(), pl.Binary(), pl.UInt128()),
]
HEIGHT = 96


# The columns of `hostile_rows`, by place and type. Types are slow to compare, and operations are tried on all of them.
COLUMNS = {place: [Column(f"{place}{number}", dtype) for number, dtype in enumerate(TYPES)] for place in "xyz"}


def hostile_rows():
    """Return rows with three columns of each type, so that operations see many pairs of hostile values."""
    columns = []
    for place, step in (("x", 1), ("y", 5), ("z", 7)):
        for number, dtype in enumerate(TYPES):
            values = hostile(dtype)
            places = [(row * step + row // len(values) + (step > 1)) % len(values) for row in range(HEIGHT)]
            columns.append(values.gather(places).alias(f"{place}{number}"))
    return pl.DataFrame(columns)


ROWS = hostile_rows()


def trees_of(operation, sample):
    """Return the operation on columns of all types that it accepts, and on a column with constants of its type."""
    found = []
    first = COLUMNS["x"] if operation.arity < 3 else [one for one in COLUMNS["x"] if one.dtype == pl.Boolean()]
    for columns in itertools.product(*[first, COLUMNS["y"], COLUMNS["z"]][: operation.arity]):
        found += [attempt(operation, list(columns), sample)]
        if operation.arity == 2 and columns[0].name[1:] == columns[1].name[1:]:
            dtype = columns[1].dtype
            value = Constant(stored_value(dtype), dtype)
            found += [attempt(operation, [columns[0], value], sample), attempt(operation, [value, columns[1]], sample)]
    return [tree for tree in found if isinstance(tree, Apply) and tree.columns]


def stored_value(dtype):
    if dtype.is_nested() or dtype in (pl.Null(), pl.Binary()):
        return None
    if dtype == pl.Boolean():
        return True
    return "a" if dtype in (pl.String(), pl.Categorical()) or isinstance(dtype, pl.Enum) else 3


def attempt(operation, arguments, sample):
    try:
        return apply(operation.name, *arguments, **sample)
    except ExpressionNotAllowed:
        return None


def bits(series):
    """Return values that are equal if and only if their bits are, except that all NaNs are equal."""
    dtype = series.dtype
    if isinstance(dtype, pl.Enum | pl.Categorical):
        series = series.cast(pl.String)
    elif dtype.is_temporal():
        series = series.to_physical()
    if dtype.is_float():
        return float_bits(series)
    if not dtype.is_nested():  # other values are written as they are
        return series.to_list()
    return [written(value) for value in series.to_list()]


def float_bits(series):
    """Return the bits of floats as integers, and texts for NaN. Single floats are the same numbers in 64 bits."""
    numbers = series.fill_null(0.0).to_numpy().astype(np.float64)
    found = numbers.view(np.int64).tolist()
    for place in np.flatnonzero(np.isnan(numbers)).tolist():
        found[place] = "nan"
    for place in series.is_null().arg_true().to_list():
        found[place] = None
    return found


def written(value):
    match value:
        case float():
            return "nan" if math.isnan(value) else value.hex()
        case list():
            return tuple(map(written, value))
        case dict():
            return tuple((key, written(inner)) for key, inner in value.items())
    return value


CASES = [
    pytest.param((operation, sample), id=f"{name}-{place}")
    for name, operation in OPERATIONS.items()
    for place, sample in enumerate(operation.samples)
]


def fail_if_isolated(patch):
    """Make a test fail if Polars fails on hostile rows, instead of returning null."""

    def isolated(self, part, height, place):
        raise AssertionError("Polars failed on a hostile value")

    patch.setattr(Program, "_isolated", isolated)


@pytest.fixture
def never_isolated(monkeypatch):
    fail_if_isolated(monkeypatch)


FEW = 40  # trees of an operation that are all computed on every choice of rows


@dataclass(frozen=True)
class Case:
    """An operation on columns of all types that it accepts, and its values on all hostile rows."""

    name: str
    trees: list[Apply]
    programs: list[Program]
    """The trees as programs: one for all of them, or one for each third."""
    whole: list[list[object]]


def case_of(operation, sample):
    """Return a case. An operation on two columns has hundreds of pairs of types, which become three programs."""
    trees = trees_of(operation, sample)
    assert trees, "an operation that takes nothing is not tested"
    thirds = 3 if len(trees) > FEW else 1
    programs = [Program(trees[first::thirds]) for first in range(thirds)]
    whole: list[list[object]] = [[]] * len(trees)
    for first, program in enumerate(programs):
        whole[first::thirds] = [bits(one) for one in program.columns(ROWS)]
    return Case(operation.name, trees, programs, whole)


@pytest.fixture(scope="module", params=CASES)
def case(request):
    """A case that all tests of it share: pytest runs them one after the other."""
    with pytest.MonkeyPatch.context() as patch:
        fail_if_isolated(patch)
        return case_of(*request.param)


@pytest.mark.slow
def test_operation_is_row_wise_and_total(case, never_isolated):
    assert_row_wise_and_total(case)


def assert_row_wise_and_total(case):
    """Compute a case on few rows, and on two copies of each row in another order.

    Most pairs of types are computed alike. So each third of them sees a third of the few rows, and each pair sees the
    rows in another order.
    """
    assert all(len(one) == HEIGHT for one in case.whole)
    chance = random.Random(case.name)
    few = [[row] for row in chance.sample(range(HEIGHT), 6)] + [chance.sample(range(HEIGHT), 2) for _ in range(3)]
    thirds = len(case.programs)
    for first, program in enumerate(case.programs):
        whole = case.whole[first::thirds]
        for rows in few[first::thirds]:
            assert_same(program, rows, whole)
        assert_same(program, [row for row in chance.sample(range(HEIGHT), HEIGHT) for _ in range(2)], whole)


def assert_same(program, rows, whole):
    for found, wanted in zip(program.columns(ROWS[rows]), whole, strict=True):
        assert bits(found) == [wanted[row] for row in rows]


@pytest.mark.slow
def test_operation_gives_the_same_in_every_way_of_running(case, never_isolated, monkeypatch):
    # Programs hold no rows, so all ways of running the same trees share one.
    shared = functools.cache(lambda *trees: Program(trees))
    monkeypatch.setattr(evaluation, "Program", lambda trees: shared(*trees))
    columns = {f"out{place}": tree for place, tree in enumerate(case.trees)}
    whole = dict(zip(columns, case.whole, strict=True))
    numbered = ROWS.with_row_index("row")
    kept = pl.col("row").is_between(20, 60)
    chunks = pl.concat([numbered[start : start + 7] for start in range(0, HEIGHT, 7)], rechunk=False)
    # Every other tree runs in one chunk, the rest in many; each is streamed and in memory, filtered and not. All of
    # them run in many chunks without optimizations.
    plain = {"optimizations": pl.QueryOptFlags.none()}
    for source, words, first in (
        (numbered.lazy(), {"engine": "streaming"}, 0),
        (numbered.lazy().filter(kept), {"engine": "in-memory"}, 0),
        (chunks.lazy(), plain, 0),
        (chunks.lazy(), {"engine": "in-memory"}, 1),
        (chunks.lazy().filter(kept), {"engine": "streaming"}, 1),
        (chunks.lazy(), plain, 1),
    ):
        some = dict([*columns.items()][first::2])
        rows = polars_rows(source).make({"row": Column("row", pl.UInt32()), **some}, keep=False)
        assert_rows_as_in(lazy_rows(rows).collect(**words), {name: whole[name] for name in some})


def assert_rows_as_in(found, whole):
    places = found["row"].to_list()
    assert len(set(places)) == len(places)
    for name, wanted in whole.items():
        assert bits(found[name]) == [wanted[place] for place in places], name


def test_every_operation_says_why_it_is_safe():
    for operation in OPERATIONS.values():
        assert len(operation.reason) > 20, operation.name


@pytest.mark.slow
def test_every_operation_is_lowered():
    from dp_polars._engines.polars.lowering import _LOWERINGS

    built = {one.operation for operation in OPERATIONS.values() for sample in operation.samples
             for tree in trees_of(operation, sample)[:50] for one in walk_applies(tree)}  # fmt: skip
    assert built <= set(_LOWERINGS)


def walk_applies(tree):
    from dp_polars._expressions.tree import walk

    return [one for one in walk(tree) if isinstance(one, Apply)]
