"""`group_by(...).agg(...)`: several aggregates in one release, with one charge."""

import math
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._aggregates import REGISTRY
from tests.aggregates.doors import HUGE, session
from tests.aggregates.frames import FRAME, OWNED
from tests.aggregates.margins import margin

B = (0, 25)
PLAIN = OWNED.with_columns(pl.col("x").fill_nan(None))
EVERY = {
    "rows": dp.count(),
    "there": dp.count("x"),
    "people": dp.count_units(),
    "kinds": dp.n_unique("n"),
    "total": dp.sum("n", bounds=(-9, 29)),
    "average": dp.mean("x", bounds=B),
    "spread": dp.var("x", bounds=B),
    "deviation": dp.std("n", bounds=(-9, 29)),
    "quartiles": dp.quantile("x", [0.25, 0.75], bounds=B),
    "middle": dp.median("n", bounds=(-9, 29)),
    "least": dp.min("n", bounds=(-9, 29)),
    "most": dp.max("n", bounds=(-9, 29)),
    "bins": dp.histogram("n", bounds=(-9, 29), bins=2),
    "together": dp.cov("x", "n", bounds=(B, B)),
    "likeness": dp.corr("x", "n", bounds=(B, B)),
    "line": dp.linear_regression("x", "n", bounds=(B, B)),
}


@pytest.fixture
def paying():
    return session()


def weights(plan):
    return {measurement.name: measurement.statistic.weight for measurement in plan.measurements}


# ---------------------------------------------------------------- answers


@pytest.mark.slow
@pytest.mark.parametrize("lazy", [False, True])
def test_every_aggregate_in_one_release_with_one_charge(paying, lazy):
    """Sixteen aggregates share 10**5. The noise on counts has scale 0.04, so it is below 1 except with 1e-10."""
    frame = FRAME.lazy() if lazy else FRAME
    found = frame.dp.group_by("region").agg(**EVERY, epsilon=HUGE, max_groups=5, session=paying).lazy()
    assert list(found.collect_schema()) == ["region", *EVERY]
    assert len(paying.releases) == 0 or not lazy
    found = found.collect()
    (entry,) = paying.releases
    assert entry.cost.epsilon <= HUGE
    plain = PLAIN.group_by("region").agg(
        pl.len().alias("rows"), pl.col("x").count().alias("there"), pl.col("who").n_unique().alias("people"),
        pl.col("n").n_unique().sub(1).alias("kinds"),
    )  # fmt: skip
    both = found.join(plain, on="region", nulls_equal=True)
    assert both.height == 4
    for name in ("rows", "there", "people", "kinds"):
        assert (both[name] - both[f"{name}_right"].cast(pl.Int64)).abs().max() <= 1
    assert found.schema["quartiles"] == pl.List(pl.Float64)
    assert found.schema["line"] == pl.Struct({"slope": pl.Float64, "intercept": pl.Float64})
    assert found.schema["bins"] == pl.List(pl.Struct({"bin_low": pl.Int64, "bin_high": pl.Int64, "count": pl.Int64}))
    assert found["bins"].list.len().to_list() == [2] * 4


def test_without_keys_all_rows_are_one_group(paying):
    found = FRAME.dp.group_by().agg(dp.count(), dp.count_units(), epsilon=HUGE, session=paying)
    assert found.to_dicts() == [{"count": OWNED.height, "count_units": OWNED["who"].n_unique()}]


def test_one_aggregate_has_the_same_price_and_noise_as_asked_alone(paying):
    """In `agg`, a histogram is a list in the row of its group."""
    frame = FRAME.dp
    alone = frame.preview.sum("n", by="region", bounds=B, epsilon=0.5, session=paying)
    beside = frame.preview.group_by("region").agg(dp.sum("n", bounds=B), epsilon=0.5, session=paying)
    assert alone.cost == beside.cost
    assert alone.measurements == beside.measurements
    found = frame.group_by("region").agg(dp.histogram("n", bounds=B, bins=3), epsilon=HUGE, session=paying)
    assert found.columns == ["region", "n"]
    assert found["n"].list.len().to_list() == [3] * 4


def test_the_same_question_again_is_free_and_with_another_weight_it_is_another(paying):
    """Asking a frame twice is charged once, and the stored release has the same rows."""
    ask = FRAME.dp.group_by("region").agg
    first = ask(a=dp.count(), b=dp.median("n", bounds=B), epsilon=1, session=paying)
    assert ask(a=dp.count(), b=dp.median("n", bounds=B), epsilon=1, session=paying).equals(first)
    assert len(paying.releases) == 1
    ask(a=dp.count(), b=dp.median("n", bounds=B, weight=2), epsilon=1, session=paying)
    assert len(paying.releases) == 2


# ---------------------------------------------------------------- the spend


def test_the_spend_is_split_evenly_or_by_weight(paying):
    ask = FRAME.dp.preview.group_by().agg
    even = ask(a=dp.count_units(), b=dp.n_unique("n"), c=dp.median("n", bounds=B), epsilon=0.6, session=paying)
    assert set(weights(even).values()) == {Fraction(1, 3)}
    words = {
        "a": dp.count_units(weight=3),
        "b": dp.n_unique("n", weight=0.5),
        "c": dp.median("n", bounds=B, weight=1.5),
    }
    plan = ask(**words, epsilon=0.6, session=paying)
    found = {measurement.statistic.what: measurement for measurement in plan.measurements}
    assert {what: measurement.statistic.weight for what, measurement in found.items()} == {
        "units": Fraction(3, 5),
        "distinct values": Fraction(1, 10),
        "values": Fraction(3, 10),
    }


def test_weights_buy_less_noise_in_a_pure_session():
    """Each measurement has the scale L1 sensitivity / (epsilon * weight), and the epsilons add up to the spend."""
    pure = session(epsilon=1, delta=None)
    asked = {"a": dp.count(weight=3), "b": dp.sum("n", bounds=(0, 20))}
    plan = FRAME.dp.preview.group_by().agg(**asked, epsilon=Fraction(1, 2), max_rows_per_group=2, session=pure)
    assert plan.cost.epsilon == Fraction(1, 2)
    assert sum(weights(plan).values()) == 1
    for measurement in plan.measurements:
        assert measurement.noise.parameter == measurement.sensitivity.l1 / (measurement.statistic.weight / 2)


def test_a_mean_a_count_of_its_values_and_a_sum_share_what_they_are_made_of(paying):
    """All three need only a sum and a count of the values, and each statistic gets the shares of all that need it."""
    ask = FRAME.dp.preview.group_by().agg
    shared = {"a": dp.mean("n", bounds=B), "b": dp.count("n"), "c": dp.sum("n", bounds=B)}
    plan = ask(**shared, epsilon=0.6, session=paying)
    assert [measurement.statistic.what for measurement in plan.measurements] == ["rows and sums"]
    mean, count, total = plan.compiled
    assert mean.statistics == total.statistics == count.statistics
    plan = ask(**shared, epsilon=0.6, mechanism="gaussian", session=paying)
    assert {measurement.statistic.what for measurement in plan.measurements} == {"sum", "rows"}
    assert len(plan.measurements) == 2
    assert sum(weights(plan).values()) == 1
    mean, count, total = plan.compiled
    assert mean.statistics == total.statistics
    assert count.statistics["rows"] == mean.statistics["rows"]
    found = {measurement.statistic.what: measurement.statistic.weight for measurement in plan.measurements}
    assert found["rows"] == (Fraction(2, 5) + 1 + Fraction(1, 2)) / 3


def test_a_sum_within_other_bounds_shares_nothing_and_is_a_sum_of_its_own(paying):
    """It needs no count of its own, which would pay twice for the number of values."""
    ask = FRAME.dp.preview.group_by().agg
    plan = ask(a=dp.mean("n", bounds=B), b=dp.sum("n", bounds=(0, 5)), epsilon=0.6, session=paying)
    assert [measurement.statistic.what for measurement in plan.measurements] == ["rows and sums", "sum"]


def test_shared_pieces_answer_as_they_would_alone(paying):
    """They come from the same noisy sums: the sum is the mean times the count, up to the rounding of the count."""
    asked = {"a": dp.mean("n", bounds=B), "b": dp.count("n"), "c": dp.sum("n", bounds=B), "d": dp.var("n", bounds=B)}
    (row,) = FRAME.dp.group_by().agg(**asked, epsilon=10, session=paying).to_dicts()
    assert row["c"] == pytest.approx(row["a"] * row["b"], abs=13)
    plan = FRAME.dp.preview.group_by().agg(**asked, epsilon=HUGE, session=paying)
    (measurement,) = plan.measurements
    (row,) = FRAME.dp.group_by().agg(**asked, epsilon=HUGE, session=paying).to_dicts()
    values = PLAIN["n"].drop_nulls().clip(*B)
    rows = (
        3 * margin(measurement) / float(measurement.grid.step) / measurement.statistic.whole
    )  # the errors of three sums, in rows
    assert abs(row["b"] - values.len()) <= rows + 1
    assert abs(row["c"] - values.sum()) <= 25 * rows + 1
    assert row["d"] == pytest.approx(values.var(), abs=0.1)


def test_two_quantiles_of_one_column_are_two_choices(paying):
    ask = FRAME.dp.preview.group_by().agg
    plan = ask(
        a=dp.median("n", bounds=B), b=dp.max("n", bounds=B), c=dp.median("n", bounds=B), epsilon=1, session=paying
    )
    assert sorted(weights(plan).values()) == [Fraction(1, 3), Fraction(2, 3)]


def test_preview_of_agg_says_the_parts_and_spends_nothing(paying):
    asked = {"n": dp.count(weight=3), "middle": dp.median("x", bounds=B)}
    keys = ["north", "south"]
    text = str(FRAME.dp.preview.group_by("region").agg(**asked, keys=keys, epsilon=0.5, session=paying))
    assert "count, median of x by region" in text
    assert "75% of the spend" in text
    assert "25% of the spend" in text
    assert "expected error of n" in text
    assert not paying.releases


# ---------------------------------------------------------------- keys


def test_discovered_keys_are_decided_by_a_count_of_units_if_rows_need_a_far_higher_threshold(paying):
    """A unit may have 50 rows in a group but counts once, so a count of units that is not released decides."""
    frame = FRAME.with_columns(region=pl.when(pl.col("who") == 3).then(pl.lit("lone")).otherwise("region"))
    asked = {"middle": dp.median("n", bounds=B), "n": dp.count(), "some": dp.n_unique("kind")}
    plan = frame.dp.preview.group_by("region").agg(**asked, epsilon=3, session=paying)
    assert plan.discovery.rule is None
    assert plan.measurement(plan.discovery.counted).statistic.what == "units"
    assert sum(weights(plan).values()) == 1
    words = {"max_groups": 5, "max_rows_per_group": 50, "session": paying}
    found = frame.dp.group_by("region").agg(**asked, epsilon=HUGE, **words)
    # The lone unit counts once and the noise is below one; the threshold is above both together.
    assert sorted(found["region"].to_list(), key=str) == [None, "east", "north", "south"]


def test_without_a_count_a_part_of_the_spend_decides_on_keys(paying):
    asked = {"middle": dp.median("n", bounds=B), "some": dp.n_unique("kind")}
    plan = FRAME.dp.preview.group_by("region").agg(**asked, epsilon=3, session=paying)
    assert plan.discovery.way.share == Fraction(1, 3)
    assert sum(weights(plan).values()) == 1


def test_public_keys_are_all_shown_with_every_answer(paying):
    asked = {"n": dp.count(), "m": dp.median("n", bounds=B), "h": dp.histogram("n", bounds=B, bins=2)}
    found = FRAME.dp.group_by("region").agg(**asked, keys=["north", "nowhere"], epsilon=HUGE, session=paying)
    north, nowhere = found.to_dicts()
    assert (north["region"], nowhere["region"]) == ("north", "nowhere")
    assert (north["n"], nowhere["n"]) == (OWNED.filter(region="north").height, 0)
    assert 0 <= nowhere["m"] <= 25
    assert [one["count"] for one in nowhere["h"]] == [0, 0]


def test_keys_may_be_expressions_and_several(paying):
    found = FRAME.dp.group_by("region", (pl.col("kind") > 0).alias("big")).agg(
        n=dp.count(), most=dp.max("n", bounds=B), epsilon=HUGE, max_groups=12, session=paying
    )
    assert found.columns == ["region", "big", "n", "most"]
    plain = OWNED.group_by("region", big=pl.col("kind") > 0).len()
    assert found.join(plain, on=["region", "big"], nulls_equal=True).filter(pl.col("n") != pl.col("len")).is_empty()


def test_an_empty_frame_discovers_nothing(paying):
    found = FRAME.clear().dp.group_by("region").agg(**EVERY, epsilon=1, session=paying)
    assert found.is_empty()
    assert found.columns == ["region", *EVERY]
    assert len(paying.releases) == 1


# ---------------------------------------------------------------- names and refusals


def test_names_are_those_given_or_of_the_columns(paying):
    found = FRAME.dp.group_by("region").agg(
        dp.count(),
        dp.sum("n", bounds=B),
        dp.mean((pl.col("x") * 2).alias("twice"), bounds=B),
        dp.corr("x", "n", bounds=(B, B)),
        mid=dp.median("n", bounds=B),
        epsilon=1,
        session=paying,
        nonnegative=True,
    )
    assert found.columns == ["region", "count", "n", "twice", "corr", "mid"]


def test_an_interval_stands_beside_each_answer(paying):
    asked = {"a": dp.count(), "b": dp.sum("n", bounds=B)}
    found = FRAME.dp.group_by().agg(**asked, confidence=0.9, epsilon=1, session=paying)
    assert found.columns == ["a", "a_low", "a_high", "b", "b_low", "b_high"]
    assert (found["a_low"] <= found["a"]).all()
    assert (found["b"] <= found["b_high"]).all()


@pytest.mark.parametrize("preview", [False, True])
@pytest.mark.parametrize(
    ("asked", "words", "message"),
    [
        ([], {}, "agg needs an aggregate"),
        ([], {"keys": ["north"]}, "agg needs an aggregate"),
        ([dp.count(), dp.count()], {}, "Two aggregates would be named count"),
        ([dp.sum("n", bounds=B), dp.median("n", bounds=B)], {}, "Two aggregates would be named n"),
        ([dp.count()], {"count": dp.count_units()}, "Two aggregates would be named count"),
        (["n"], {}, "agg takes dp.count"),
        ([pl.col("n").sum()], {}, r"Write dp.sum\('n', bounds="),
        ([], {"region": dp.count()}, "region is the name of a key and of the answer"),
        ([], {"n": dp.count(), "n_low": dp.count_units(), "confidence": 0.9}, "n_low"),
        ([dp.count()], {"epsilom": 1}, "Did you mean epsilon"),
        ([dp.count()], {"n": 5}, "has no option n"),
        ([dp.count(), dp.count_units()], {"within": 5, "epsilon": None}, "the wanted error of one answer"),
        ([dp.quantile("n", [0.1, 0.9], bounds=B)], {"confidence": 0.9}, "doesn't count the rows"),
        ([dp.median("n", bounds=B, interval="value")], {}, "how sure it should be"),
        ([dp.count(), dp.median("n")], {}, "needs bounds for n"),
        ([dp.count(weight=0)], {}, "weight"),
        ([dp.count(weight=-1), dp.count_units()], {}, "weight"),
        ([dp.count(weight=math.nan)], {}, "weight"),
        ([dp.count(), dp.count_units()], {"epsilon": 10, "share": 0.5}, "in one way"),
    ],
)
def test_what_agg_does_not_take_is_refused_and_charges_nothing(paying, asked, words, message, preview):
    frame = FRAME.dp.preview if preview else FRAME.dp
    with pytest.raises(dp.InvalidParameterError, match=message):
        frame.group_by("region").agg(*asked, **{"epsilon": 1, "session": paying, **words})
    assert not paying.releases


@pytest.mark.parametrize("kind", sorted(REGISTRY))
def test_options_of_the_whole_question_inside_an_aggregate_are_explained(kind):
    call = getattr(dp, kind)
    for option in ("max_rows_per_group", "epsilon", "confidence"):
        where = rf"agg\(answer=dp.{kind}\(...\), {option}=...\)"
        with pytest.raises(dp.InvalidParameterError, match=where) as caught:
            call(**{option: 1})
        assert caught.value.code == "unknown-option"
    with pytest.raises(dp.InvalidParameterError, match="Did you mean weight"):
        call(wieght=2)


def test_intervals_are_added_where_they_are_known(paying):
    asked = {"n": dp.count(), "m": dp.mean("n", bounds=B), "q": dp.median("n", bounds=B), "v": dp.var("n", bounds=B)}
    found = FRAME.dp.group_by().agg(**asked, epsilon=1, confidence=0.9, session=paying)
    ranks = ["q", "q_rank_low", "q_rank_high"]
    assert found.columns == ["n", "n_low", "n_high", "m", "m_low", "m_high", *ranks, "v", "v_low", "v_high"]


def test_a_wanted_error_of_decimals_is_in_their_own_unit(paying):
    """`within` is not counted in the last digit of decimals: the same sum of floats costs the same."""
    frame = FRAME.with_columns(price=pl.col("n").cast(pl.Decimal(12, 2)))
    words = {"bounds": B, "within": 10_000, "max_rows_per_group": 5, "session": paying}
    decimals = frame.dp.preview.sum("price", **words)
    floats = frame.dp.with_columns(price=pl.col("n").cast(pl.Float64)).preview.sum("price", **words)
    assert float(decimals.cost.epsilon) == pytest.approx(float(floats.cost.epsilon), rel=0.01)
    assert decimals.expected_error() == pytest.approx(10_000, rel=0.01)
