"""Whether a question is answered or fails, and what the answer looks like, does not depend on who is there."""

import datetime
from decimal import Decimal

import polars as pl
import pytest

import dp_polars as dp
from tests.aggregates.doors import session

ROWS = pl.DataFrame(
    {
        "who": [1, 1, 2, 3, 3, 3],
        "k": ["a", "b", "a", "a", None, "b"],
        "x": [1.5, -2.0, float("nan"), None, float("inf"), 0.0],
        "n": [2**63 - 1, -(2**63), 0, 3, None, 7],
        "d": [Decimal("1.25"), Decimal("-3"), None, Decimal("99"), Decimal("0"), Decimal("7")],
        "t": [datetime.date(2020, 1, 1), datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31), None, None],
    },
    schema_overrides={"d": pl.Decimal(38, 2), "t": pl.Date},
)
NOBODY = pl.lit(None)
FRAMES = {
    "rows": ROWS,
    "none": ROWS.clear(),
    "one": ROWS.head(1),
    "one without a value": ROWS.head(1).with_columns(pl.lit(None, ROWS.schema[c]).alias(c) for c in "xndt"),
    "no unit": ROWS.with_columns(who=pl.lit(None, pl.Int64)),
    "no value": ROWS.with_columns(pl.lit(None, ROWS.schema[c]).alias(c) for c in "xndt"),
    "other keys": ROWS.with_columns(k=pl.lit("zz")),
}
DATES = (datetime.date(2000, 1, 1), datetime.date(2030, 1, 1))
ASKED = {
    "count": dp.count(),
    "count of x": dp.count("x"),
    "units": dp.count_units(),
    "distinct": dp.n_unique("n"),
    "sum": dp.sum("x", bounds=(0, 5)),
    "sum of large numbers": dp.sum("n", bounds=(10**13 - 2, 10**13)),
    "sum of totals": dp.sum("n", bounds=(0, 5), per="unit"),
    "sum of decimals": dp.sum("d", bounds=(0, 5)),
    "mean": dp.mean("x", bounds=(0, 5)),
    "mean of dates": dp.mean("t", bounds=DATES),
    "variance": dp.var("n", bounds=(0, 5)),
    "deviation": dp.std("d", bounds=(-5, 5)),
    "median": dp.median("x", bounds=(0, 5)),
    "median of dates": dp.median("t", bounds=DATES),
    "quantiles": dp.quantile("x", [0, 0.25, 0.5, 1], bounds=(0, 5)),
    "least": dp.min("n", bounds=(0, 5)),
    "largest": dp.max("t", bounds=DATES),
    "histogram": dp.histogram("x", edges=[0, 1, 2]),
    "correlation": dp.corr("x", "n", bounds=((0, 1), (0, 1))),
    "line": dp.linear_regression("x", "n", bounds=((0, 1), (0, 1))),
    "bounds estimated": dp.sum("x", bounds="auto"),
}
WAYS = {
    "no keys": ((), {}),
    "public keys": (("k",), {"keys": ["a", "b"]}),
    "discovered keys": (("k",), {}),
    "estimated caps": (("k",), {"keys": ["a", "b"], "max_groups": "auto", "max_rows_per_group": "auto"}),
}


@pytest.mark.filterwarnings("ignore::dp_polars.DPWarning")  # estimates from a handful of units
@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "way"), [*(("who", way) for way in WAYS), (dp.ROW, "public keys"), (dp.ROW, "estimated caps")], ids=str
)
@pytest.mark.parametrize("asked", ASKED)
def test_every_question_has_an_answer_whoever_is_there(unit, way, asked):
    keys, options = WAYS[way]
    shapes = set()
    # Rows and two of the other frames, so that each frame meets each question twice, and each way.
    turn = 2 * (list(ASKED).index(asked) + list(WAYS).index(way) + (unit is dp.ROW))
    rows, *others = FRAMES.values()
    for frame in (rows, others[turn % 6], others[(turn + 1) % 6]):
        paying = session(epsilon=1, max_groups=2, max_rows_per_group=2)
        answer = (
            dp.private(frame, paying, unit=unit, weaker_unit=True)
            .group_by(*keys)
            .agg(a=ASKED[asked], epsilon=0.5, **options)
        )
        shapes.add((str(answer.schema), answer.height if way != "discovered keys" else 0))
        assert [entry.state for entry in paying.releases] == ["committed"]
    assert len(shapes) == 1


@pytest.mark.filterwarnings("ignore::dp_polars.DPWarning")  # estimates from a handful of units
@pytest.mark.slow
@pytest.mark.parametrize("unit", ["who", dp.ROW], ids=str)
@pytest.mark.parametrize("way", ["no keys", "public keys", "discovered keys", "estimated caps"])
def test_all_at_once_too(unit, way):
    keys, options = WAYS[way]
    for frame in FRAMES.values():
        paying = session(epsilon=1, max_groups=2, max_rows_per_group=2)
        words = {name.replace(" ", "_"): one for name, one in ASKED.items() if "estimated" not in name}
        dp.private(frame, paying, unit=unit, weaker_unit=True).group_by(*keys).agg(**words, epsilon=0.5, **options)
        assert [entry.state for entry in paying.releases] == ["committed"]


def test_large_sums_never_wrap():
    """Found by an attacker: bounds far from 0, many rows of one unit, and totals over groups."""
    rows = pl.DataFrame({"who": [1] * 9224, "g": [i % 3 for i in range(9224)], "v": [10**15 - 1] * 9224})
    paying = session(adjacency="replace", max_rows_per_group=1)
    answer = dp.private(rows, paying).sum("v", bounds=(10**15 - 2, 10**15), epsilon=10**5)["v"].item()
    assert abs(answer - (10**15 - 1)) < 10**12  # Laplace noise of scale 10**10
    answer = dp.private(rows, paying, unit=dp.ROW, weaker_unit=True).sum(
        "v", by="g", bounds=(10**15 - 2, 10**15), keys=[0, 1, 2], rollup=True, epsilon=10**5
    )
    assert (answer["v"] > 0).all()


@pytest.mark.slow
def test_many_rows_of_far_bounds_are_counted():
    """Found by an attacker: the sums of a basis must not be cut at 2**62 by a few million rows."""
    days = pl.DataFrame({"t": pl.Series([datetime.datetime(2029, 6, 1)]).cast(pl.Datetime("us"))})
    many = days.select(pl.col("t").repeat_by(6_000_000).explode(empty_as_null=False))
    bounds = (datetime.datetime(2020, 1, 1), datetime.datetime(2030, 1, 1))
    asked = {"n": dp.count("t"), "m": dp.mean("t", bounds=bounds)}
    found = dp.private(many, session(), unit=dp.ROW, weaker_unit=True).group_by().agg(**asked, epsilon=10**4)
    assert abs(found["n"].item() - 6_000_000) < 10
    assert abs(found["m"].item() - datetime.datetime(2029, 6, 1)) < datetime.timedelta(minutes=10)
