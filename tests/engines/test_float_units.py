"""Equal floats are one value, whatever their bytes and however many other rows there are."""

import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from dp_polars._engines import polars as engine
from dp_polars._engines.polars.codes import Salts, hashed
from dp_polars._engines.polars.kept_rows import kept_rows
from dp_polars._engines.polars.stream_answers import exact_answers, stream_rows
from dp_polars._engines.polars.units import HashedUnits
from dp_polars._engines.polars.value_codes import one_form
from dp_polars._engines.request import HASH_BITS, BoundedRequest, Cells, GroupSum, Lane, Tally, ValueColumn
from tests.bits import SeededBits

# Zeros of both signs, and NaNs of both signs and with three payloads.
BITS = [0, 1 << 63, 0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 12345, (0x7FF4 << 48) + 1]
FORMS = np.array(BITS, np.uint64).view(np.float64)


def frame_of(n, kind=pl.Float64):
    """Return n rows with at most two different floats, in all their byte forms."""
    return pl.DataFrame({"unit0": pl.Series(np.resize(FORMS, n)).cast(kind), "value0": pl.Series(np.resize(FORMS, n))})


def asked(*, hashed):
    counted = Lane(sums=(GroupSum(name="rows", of="rows", max_rows=1), GroupSum(name="units", of="units")))
    column = ValueColumn(place=0, low=0, high=(1 << HASH_BITS) - 1, kind="hash")
    distinct = Lane(columns=(column,), cells=Cells(name="distinct", max_rows=50, distinct=True))
    lanes = (counted, distinct)
    return BoundedRequest(units=1, keys=0, max_groups=None, domain=None, lanes=lanes, hashed_units=hashed)


def different(n):
    return len({"zero" if i % len(BITS) < 2 else "nan" for i in range(n)})


def check(n, kind=pl.Float64):
    frame = frame_of(n, kind)
    for by_hash, parts in ((False, 1), (True, 1), (False, 5), (True, 5)):
        found = engine.run_bounded(frame.lazy(), asked(hashed=by_hash), parts=parts)
        assert found.groups.select("rows", "units").row(0) == (different(n), different(n)), (n, by_hash, parts)
        assert found.cells["distinct"].height == 1  # NaN counts as missing


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 3, 6, 7, 64, 65, 1000])
@pytest.mark.parametrize("kind", [pl.Float32, pl.Float64])
def test_units_and_distinct_values_in_polars(n, kind):
    check(n, kind)


def test_every_column_and_both_hashes_have_seeds_of_their_own():
    """If hashes were derived from one another, they would have no more seeds together than a single one."""
    draws = iter(range(100))
    salts = Salts(lambda: next(draws))
    frame = pl.DataFrame({"unit0": ["a", "b"], "unit1": ["a", "b"]})
    units = HashedUnits(["unit0", "unit1"], frame.schema, salts)
    first = [hashed(name, frame.schema[name], salts) for name in frame.columns]
    batch = frame.select(*first, **units.columns())
    columns = {tuple(batch[name]) for name in batch.columns}
    assert len(columns) == 4
    assert next(draws) == 4
    again = frame.select(*(hashed(name, frame.schema[name], salts) for name in frame.columns), **units.columns())
    assert again.equals(batch)
    unit, more, _ = units.words(batch)
    assert not set(unit.tolist()) & set(more.tolist())


@pytest.mark.slow
def test_as_many_threads_as_rows():
    """With 16 threads, a frame of 16 rows has batches of one row, and a frame of 17 rows has longer ones too."""
    code = (
        "import polars as pl; from tests.engines.test_float_units import check\n"
        "assert pl.thread_pool_size() == 16\n"
        "for n in (1, 2, 15, 16, 17, 32, 1000): check(n)"
    )
    words = {**os.environ, "POLARS_MAX_THREADS": "16"}
    done = subprocess.run([sys.executable, "-c", code], env=words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 6, 64, 1000])
def test_equal_floats_have_equal_bytes(n):
    frame = frame_of(n)
    for alone in (frame, *frame.iter_slices(1)):
        for engine_name in ("in-memory", "streaming"):
            found = alone.lazy().select(one_form(pl.col("unit0"), pl.Float64())).collect(engine=engine_name)
            words = set(found.to_series().to_numpy().view(np.uint64).tolist())
            assert words <= {0, 0x7FF8 << 48}


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 6, 64, 1000])
def test_units_whose_rows_are_kept_once(n):
    frame = frame_of(n)
    kept = kept_rows(frame, ["unit0"], SeededBits(1), max_rows=1)
    assert kept.sum() == different(n)
    source = stream_rows(frame, kept, ("unit0",), every_row=True)
    assert exact_answers(source, [Tally(kind="units"), Tally(kind="rows")]) == [different(n), different(n)]
