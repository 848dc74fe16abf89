"""A column that is wrongly marked as sorted changes nothing: no row decides what happens to others."""

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.polars.evaluation import unmarked
from dp_polars._engines.rows import OWN

pytestmark = pytest.mark.filterwarnings("ignore::dp_polars.DPWarning")  # the epsilon is large, so that noise is small

MARKED = {
    "integers": pl.Series([0, 100] * 1000),
    "floats": pl.Series([0.0, 100.0] * 1000),
    "integers with another person": pl.Series([100, *[0, 100] * 1000]),
}


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("values", MARKED.values(), ids=MARKED)
def test_filters_look_at_every_row(values, lazy):
    """Found by an attacker: 314 of 1,000 rows were counted, and one more person raised the count to 1,002."""
    rows = pl.DataFrame({"user": range(len(values)), "x": values.set_sorted()})
    session = dp.Session(epsilon=1e4, unit="user", max_rows_per_group=1)
    own = dp.private(rows.lazy() if lazy else rows, session)
    answer = own.filter(pl.col("x") > 50).count(epsilon=1000)
    count = (answer.collect() if isinstance(answer, pl.LazyFrame) else answer).item()
    assert abs(count - (values > 50).sum()) < 1  # noise of scale 0.001


@pytest.mark.parametrize("lazy", [False, True])
def test_units_and_keys_outside_the_marked_ends_are_counted(lazy):
    """Polars would take the first and the last unit and key for the least and the greatest."""
    units = pl.Series([500, *range(1000), 600]).set_sorted()
    keys = pl.Series([5, *[i % 10 for i in range(1000)], 6]).set_sorted()
    rows = pl.DataFrame({"user": units, "k": keys})
    session = dp.Session(epsilon=1e4, delta=1e-6, unit="user", max_rows_per_group=2, max_groups=2)
    own = dp.private(rows.lazy() if lazy else rows, session)
    answer = own.count("k", epsilon=1000)
    answer = answer.collect() if isinstance(answer, pl.LazyFrame) else answer
    assert answer["k"].to_list() == list(range(10))
    assert abs(answer["count"].sum() - 1002) < 10


@pytest.mark.parametrize(
    "column",
    [
        pl.Series(["b", "a", None]),
        pl.Series(["b", "a"], dtype=pl.Enum(["a", "b"])),
        pl.Series([True, False]),
        pl.Series(["1.5", "0.5"]).cast(pl.Decimal(10, 2)),
        pl.Series([5, 3]).cast(pl.Datetime("us", "Europe/Berlin")),
        pl.Series([b"b", b"a"]),
    ],
    ids=lambda column: str(column.dtype),
)
def test_values_and_types_stay_without_the_mark(column):
    found = unmarked(pl.DataFrame({"x": column.set_sorted(), f"{OWN}y": column.set_sorted(descending=True)}))
    for name in ("x", f"{OWN}y"):
        assert found[name].equals(column)
        assert found[name].dtype == column.dtype
        assert not found[name].flags["SORTED_ASC"]
        assert not found[name].flags["SORTED_DESC"]
