"""Private Spark frames: questions, plans, prices and refusals are those of Polars, and failures tell nothing."""

import hashlib
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.polars import engine as polars_engine
from dp_polars._engines.polars import group_order
from dp_polars._engines.polars.units import IntegerUnits
from dp_polars._engines.request import BoundedRequest, GroupSum, Lane
from dp_polars._engines.spark.engine import run_statement
from dp_polars._engines.spark.lowering import call
from dp_polars._engines.spark.types import STRING, literal
from dp_polars.errors import EngineError, ExpressionNotAllowed, InvalidParameterError, SessionClosed
from tests.engines.spark import server
from tests.engines.spark.server import SERVER
from tests.engines.spark.test_aggregation import on_spark, spark_frame, spark_rows

pytestmark = pytest.mark.slow

N = 3_000
CITIES = pl.DataFrame({"town": ["a", "b", None], "land": ["x", "y", "z"], "size": [1, 2, None]})


def visits():
    chance = np.random.default_rng(7)
    return pl.DataFrame(
        {
            "user": chance.integers(0, 200, N),
            "town": pl.Series(["a", "b", "c", None]).gather(chance.integers(0, 4, N)),
            "km": chance.normal(5, 10, N),
            "trips": chance.integers(-5, 50, N),
            "at": pl.Series(chance.integers(0, 10**15, N)).cast(pl.Datetime("us")),
        }
    )


@pytest.fixture(scope="module")
def frame():
    return visits()


@pytest.fixture(scope="module")
def far(spark, frame):
    return spark_frame(spark, frame)


def session(**more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.DPWarning)
        return dp.Session(
            **{"epsilon": 10**6, "delta": 1e-9, "unit": "user", "max_rows_per_group": 40, "max_groups": 30} | more
        )


QUESTIONS = {
    "count": lambda rows: rows.count("town", epsilon=10**5),
    "count of a condition": lambda rows: rows.filter(pl.col("km") > 3, town="a").count(epsilon=10**5),
    "sum": lambda rows: rows.sum("trips", by="town", bounds=(0, 30), epsilon=10**5, max_groups=4),
    "public keys": lambda rows: rows.count("town", keys=["b", "nowhere"], epsilon=10**5),
    "join": lambda rows: rows.join(CITIES, on="town").count("land", epsilon=10**5),
    "left join": lambda rows: rows.join(CITIES, on="town", how="left").count("size", epsilon=10**5),
    "anti join": lambda rows: rows.join(CITIES, on="town", how="anti").count(epsilon=10**5),
    "computed key": lambda rows: rows.count(pl.col("trips") // 10, epsilon=10**5),
    "hours": lambda rows: rows.count(pl.col("at").dt.hour(), epsilon=10**5),
    "columns": lambda rows: rows.with_columns(far=pl.col("km") * 2 > 9).rename({"town": "city"}).drop("trips")
                                .select("far", "city").count("far", epsilon=10**5),
    "histogram": lambda rows: rows.histogram("km", edges=[0, 5, 10], epsilon=10**5, max_rows_per_group=100),
    "units": lambda rows: rows.count_units("town", epsilon=10**5),
    "distinct": lambda rows: rows.n_unique("trips", epsilon=10**5, max_rows_per_group=100),
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_has_the_plan_the_price_and_the_answer_of_polars(name, frame, far):
    ask = QUESTIONS[name]
    ours, theirs = session(), session()
    on_spark_, on_polars = dp.private(far, ours), dp.private(frame, theirs)
    assert ask(on_spark_).equals(ask(on_polars))
    assert ours.spent == theirs.spent


def test_plans_are_equal_and_cost_the_same(frame, far):
    one, other = (dp.private(rows, session()).preview for rows in (frame, far))
    for ask in (
        lambda preview: preview.count("town", epsilon=0.5),
        lambda preview: preview.mean("km", by="town", bounds=(0, 10), epsilon=0.5),
        lambda preview: preview.median("km", bounds=(0, 10), epsilon=0.5),
    ):
        assert str(ask(one)) == str(ask(other))
        assert ask(one).cost == ask(other).cost


def test_several_aggregates_in_one_pass_are_near_those_of_polars(frame, far):
    def ask(rows):
        return (
            dp.private(rows, session())
            .group_by("town")
            .agg(n=dp.count(), mean=dp.mean("km", bounds=(0, 10)), var=dp.var("km", bounds=(0, 10)), epsilon=10**5)
        )

    one, other = ask(frame), ask(far)
    assert one["n"].equals(other["n"])
    for name in ("mean", "var"):
        assert np.allclose(one[name], other[name], rtol=1e-3)


def test_streams_choices_synthesis_profiles_and_responses_run(spark, frame, far):
    rows = dp.private(far, session())
    assert rows.above_threshold(100, epsilon=10**4).ask(pl.col("town") == "a") is True
    assert rows.noisy_max("town", candidates=["a", "b"], epsilon=10**4).height == 1
    best = rows.select_best([1, 30], lambda most: pl.col("trips") <= most, bounds=(0, 1), epsilon=10**4)
    assert best.row(0)[0] == 30
    assert rows.profile(by="town", epsilon=10**4) is not None
    made = rows.synthesize({"town": ["a", "b", "c", None]}, rounds=2, epsilon=10**4)
    assert made is not None


def test_a_stored_release_is_found_by_object_and_by_version(spark, frame, far):
    own = session()
    first = dp.private(far, own).count("town", epsilon=0.5)
    assert dp.private(far, own).count("town", epsilon=0.5).equals(first)
    assert len(own.releases) == 1
    dp.private(spark_frame(spark, frame), own).count("town", epsilon=0.5)
    assert len(own.releases) == 2
    named = [dp.private(spark_frame(spark, frame), own, name="visits", data_version="1") for _ in range(2)]
    assert named[0].count("town", epsilon=0.5).equals(named[1].count("town", epsilon=0.5))
    assert len(own.releases) == 3


def test_what_spark_cannot_compute_is_refused_by_name_before_the_charge(far):
    own = session()
    rows = dp.private(far, own)
    for expression, name in (
        (pl.col("km").log(), "log"),
        (pl.col("town").str.to_uppercase(), "upper"),
        (pl.col("km").sin(), "sin"),
        (pl.col("town").str.contains("a.*b"), "str.contains"),
    ):
        with pytest.raises(ExpressionNotAllowed, match=re.escape(name)):
            rows.with_columns(new=expression)
    with pytest.raises(ExpressionNotAllowed, match="Spark SQL"):
        rows.count(by=pl.col("town").str.to_uppercase(), epsilon=0.1)
    with pytest.raises(ExpressionNotAllowed, match="Spark SQL"):
        rows.sum(pl.col("km").exp(), bounds=(0, 1), epsilon=0.1)
    with pytest.raises(InvalidParameterError, match="rows of this frame are in Spark"):
        rows.filter(pl.col("km") > 1, unchecked=True)
    assert not own.releases


def test_nested_operations_are_computed_or_refused_when_they_are_planned(frame, far):
    rows = dp.private(far, session())

    def halved(times):
        deep = pl.col("trips")
        for _ in range(times):
            deep = (deep + 1) // 2
        return deep

    def step_by_step(rows):
        for _ in range(40):
            rows = rows.with_columns(trips=(pl.col("trips") + 1) // 2)

    with pytest.raises(ExpressionNotAllowed, match="too long an expression for Spark"):
        rows.filter(halved(40) > 3)
    with pytest.raises(ExpressionNotAllowed, match="too long an expression for Spark"):
        step_by_step(rows)
    with pytest.raises(ExpressionNotAllowed, match="List"):
        rows.join(CITIES.with_columns(listed=pl.concat_list("size")), on="town")
    answers = [dp.private(given, session()).count(halved(6), epsilon=10**5) for given in (frame, far)]
    assert answers[0].equals(answers[1])


def test_a_failure_tells_nothing_and_closes_the_session(spark, far, capfd, caplog):
    broken = spark.sql(
        "SELECT id AS user, CAST(assert_true(id < 3, 'the secret value') AS STRING) AS town FROM range(5)"
    )
    own = session()
    with pytest.raises(EngineError) as failed:
        dp.private(broken, own).count("town", epsilon=0.5)
    assert "secret" not in str(failed.value)
    assert failed.value.__cause__ is None
    assert failed.value.__context__ is None
    assert own.spent.epsilon > 0
    with pytest.raises(SessionClosed):
        dp.private(far, own).count("town", epsilon=0.5)
    shown = capfd.readouterr()
    # Sail runs inside this process and writes its own log to standard error.
    ours = [line for line in (shown.out + shown.err).splitlines() if "sail_" not in line]
    assert "secret" not in "".join(ours) + caplog.text


def test_functions_of_the_session_cannot_take_the_place_of_builtins(spark, frame, far, monkeypatch):
    from pyspark.sql.types import LongType

    monkeypatch.setattr(server, "functions_change", True)

    wanted = dp.private(frame, session()).count("town", epsilon=10**5)
    rows, own = dp.private(spark_frame(spark, frame), session()), session()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark.udf.register("xxhash64", lambda *values: 7, LongType())
        spark.udf.register("sum", lambda value: 7, LongType())
    try:
        if rows._rows.source._schema_of_functions:
            assert rows.count("town", epsilon=10**5).equals(wanted)
        else:
            with pytest.raises(InvalidParameterError, match="function of its own named sum"):
                rows.count("town", epsilon=10**5, session=own)
            assert not own.releases
    finally:
        for name in ("xxhash64", "sum"):
            spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {name}").collect()
    assert rows.count("town", epsilon=10**5).equals(wanted)


def test_views_of_the_session_cannot_take_the_place_of_our_tables(spark, frame, far):
    names = ("base", "runs", "ordered", "ranked", "rows", "domain")
    for name in names:
        spark.sql("SELECT 1 AS u0, 'x' AS k0, 5 AS a0, 7 AS o").createOrReplaceTempView(name)
    try:
        found = dp.private(far, session()).count("town", keys=["a", "b"], epsilon=10**5)
        assert found.equals(dp.private(frame, session()).count("town", keys=["a", "b"], epsilon=10**5))
    finally:
        for name in names:
            spark.catalog.dropTempView(name)


def test_hostile_names_and_values(spark):
    names = ["a`b", "c d", "e.f", "{rows}", "é", "select", "g'h\\"]
    frame = pl.DataFrame({"user": [1, 2, 3], **{name: ["x'; --", "{0}", "\\"] for name in names}})
    rows = dp.private(spark_frame(spark, frame), session())
    for name in names:
        found = rows.filter(pl.col(name) == "{0}").count(name, keys=["{0}", "\\"], epsilon=10**5)
        assert dict(found.rows()) == {"{0}": 1, "\\": 0}
    assert rows.columns == frame.columns


def test_columns_that_differ_by_case_or_occur_twice_are_refused(spark):
    with pytest.raises(InvalidParameterError, match="case"):
        dp.private(spark.sql("SELECT 1 AS user, 2 AS User"), session())
    with pytest.raises(InvalidParameterError, match="more than once"):
        dp.private(spark.sql("SELECT 1 AS user, 2 AS x, 3 AS x"), session())


def test_columns_of_other_types_are_left_out(spark):
    rows = dp.private(spark.sql("SELECT 1 AS user, array(1) AS listed, map('a', 1) AS mapped, 2 AS x"), session())
    assert rows.columns == ["user", "x"]


def test_the_namespace_and_the_repr(far):
    import dp_polars.spark  # noqa: F401 - it registers the namespace

    assert repr(far.dp) == "<dp.PrivateFrame with user, town, km, trips, at>"
    with session():
        assert far.dp.count_units(epsilon=10**5).item() == 200


def test_without_pyspark_sail_and_java_the_package_works_and_names_the_extra():
    code = """if True:
        import sys
        for name in ("pyspark", "pysail", "py4j"):
            sys.modules[name] = None  # importing it fails
        import dp_polars as dp, polars as pl
        own = dp.Session(epsilon=1.0, unit="user")
        print(dp.private(pl.DataFrame({"user": range(9)}), own).count_units(epsilon=0.5).height)
        for ask in (lambda: __import__("dp_polars.spark"), lambda: dp.connect("sc://cluster:15002", own)):
            try:
                ask()
            except (ImportError, dp.DPError) as error:
                print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PATH": ""}
    )
    answered, *refused = done.stdout.splitlines()
    assert answered == "1"
    assert ["pip install 'dp-polars[spark]'" in one for one in refused] == [True, True]


def test_with_one_family_of_hashes_duckdb_and_spark_keep_the_very_same_groups(spark, monkeypatch):
    """The Polars engine, which reads DuckDB's tables, orders groups by 16 bits. Both get the first 16 bits of md5."""
    duckdb = pytest.importorskip("duckdb")
    chance = np.random.default_rng(3)
    frame = pl.DataFrame({"unit0": chance.integers(0, 60, 900), "key0": chance.integers(0, 25, 900)})

    def bits(salt, value):
        return int(hashlib.md5(f"{salt}{value}".encode()).hexdigest()[:4], 16)

    def hashed(name, dtype, salts):
        return (
            pl.col(name)
            .map_elements(lambda value: bits(name[0], value), return_dtype=pl.UInt64)
            .fill_null(0)  # null has a code, though no row has it
            .alias(polars_engine.hash_name(name))
        )

    def hashed_units(units, salts):
        least = frame["unit0"].min()
        return lambda words: np.array([bits("u", least + int(word)) for word in words], np.uint64)

    def in_sql(columns):
        def first(salt, column):
            text = call("md5", f"CAST({call('concat', literal(salt, STRING), f'CAST({column} AS STRING)')} AS BINARY)")
            return f"CAST({call('conv', call('substring', text, '1', '4'), '16', '10')} AS BIGINT)"

        return f"({' ^ '.join(map(first, 'uk', columns))})"

    for module in (polars_engine, group_order):
        monkeypatch.setattr(module, "hashed", hashed)
        monkeypatch.setattr(module, "order_of", lambda units, keys: units ^ keys)
    monkeypatch.setattr(IntegerUnits, "hashes", hashed_units)
    lane = Lane(sums=(GroupSum(name="units", of="units"), GroupSum(name="rows", of="rows")))
    connection = duckdb.connect()
    connection.register("given", frame.to_arrow())
    read = connection.sql("SELECT * FROM given").pl()
    for cap in (1, 3, 10):
        request = BoundedRequest(units=1, keys=1, max_groups=cap, domain=None, lanes=(lane,))
        found = run_statement(spark_rows(spark, frame), request, in_sql, in_sql, in_sql)
        assert found.groups.equals(polars_engine.run_bounded(read.lazy(), request).groups.select(found.groups.columns))
    free = on_spark(spark, frame, BoundedRequest(units=1, keys=1, max_groups=3, domain=None, lanes=(lane,)))
    assert not free.groups.equals(found.groups)


def test_a_view_that_is_replaced_never_makes_another_column_the_unit(spark):
    """Spark Connect resolves a view anew in each run, and its columns may then stand in another order.

    Classic pyspark resolves it once, so a frame keeps the view that it was made of.
    """
    rows = spark.createDataFrame(pl.DataFrame({"user": [1] * 50, "amount": range(50)}).to_arrow())
    rows.createOrReplaceTempView("turned")
    ours = dp.private(spark.table("turned"), session())
    assert ours.count_units(epsilon=10**5).item() == 1
    rows.select("amount", "user").createOrReplaceTempView("turned")
    assert ours.count_units(epsilon=10**5, fresh=True).item() == 1
    rows.selectExpr("CAST(amount AS STRING) AS user", "amount").createOrReplaceTempView("turned")
    if SERVER == "classic":
        assert ours.count_units(epsilon=10**5, fresh=True).item() == 1
    else:
        with pytest.raises(dp.EngineError):
            ours.count_units(epsilon=10**5, fresh=True)
    spark.catalog.dropTempView("turned")


NAN = float("nan")
ALIKE = {
    "zeros": pl.DataFrame({"user": [1, 2, 3], "v": [0.0, -0.0, 0.0]}),
    "one branch of a case": pl.DataFrame({"user": [1, 2, 3], "v": [5, 6, 7]}),
    "units that are zero": pl.DataFrame({"user": [0.0, -0.0, 0.0], "v": [1, 1, 1]}),
    "units that are NaN": pl.DataFrame({"user": [NAN, NAN, -NAN], "v": [1, 1, 1]}),
}


@pytest.mark.parametrize("unit", ["user", dp.ROW], ids=["user", "row"])
@pytest.mark.parametrize("name", ALIKE)
def test_rows_that_are_alike_fail_no_question(spark, name, unit):
    """Sail panics where all arguments of a hash are constants, and rows that take one branch of a CASE make them so."""
    frame = ALIKE[name]
    value = pl.when(pl.col("v") >= 0).then(1).otherwise(2)
    answers = []
    for given in (frame, spark_frame(spark, frame)):
        rows = dp.private(given, session(unit=unit, max_groups=1))
        answers.append(
            (
                rows.n_unique("v", epsilon=10**5).item(),
                rows.n_unique(value, epsilon=10**5).item(),
                rows.histogram("v", by=value, keys=[1, 2], edges=[0, 2, 9], epsilon=10**5)["count"].to_list(),
            )
        )
    assert answers[0] == answers[1]


def test_nan_has_no_sign(spark):
    """Processors give the NaN of an operation a sign, by which Sail would order it below all numbers."""
    frame = pl.DataFrame({"user": [1, 1, 2, 3], "v": [NAN, -NAN, -float("inf"), 4.0], "w": [1.0, 1.0, 0.0, 0.0]})
    made = {"difference": pl.col("v") - pl.col("v"), "root": pl.col("v").sqrt(), "times": pl.col("v") * pl.col("w")}
    answers = []
    for given in (frame, spark_frame(spark, frame)):
        rows = dp.private(given, session()).with_columns(**made)
        asked = [
            *(rows.filter(pl.col(name) > 10**6).count(epsilon=10**4).item() for name in ("v", *made)),
            *(rows.filter(pl.col(name).is_nan()).count(epsilon=10**4).item() for name in ("v", *made)),
            *(rows.count(column=name, epsilon=10**4).item() for name in ("v", *made)),
            round(rows.sum("v", bounds=(-1, 1), epsilon=10**4).item()),
        ]
        answers.append(asked)
    assert answers[0] == answers[1]
    units = pl.DataFrame({"user": [NAN, -NAN, 0.0, -0.0, 1.0]})
    assert dp.private(spark_frame(spark, units), session()).count_units(epsilon=10**4).item() == 3


def test_a_constant_column_has_one_value(spark):
    frame = spark.sql("SELECT id AS user, 7 AS v, 'x' AS t, CAST(0 AS DOUBLE) AS d FROM range(5)")
    for unit in ("user", dp.ROW):
        rows = dp.private(frame, session(unit=unit))
        assert [rows.n_unique(name, epsilon=10**5).item() for name in ("v", "t", "d")] == [1, 1, 1]


def test_long_texts_and_long_plans_cannot_fail_after_the_charge(spark):
    frame = spark.range(3).selectExpr("id AS user", "CASE WHEN id = 0 THEN repeat('a', 20000) ELSE 'x' END AS t")
    found = dp.private(frame, session()).count("t", keys=["x", None], epsilon=10**5)
    assert dict(found.iter_rows()) == {"x": 2, None: 1}
    deep = dp.private(frame, session()).with_columns(v=pl.lit(1))
    for _ in range(59):
        deep = deep.with_columns(v=pl.col("v") + 1)
    with pytest.raises(dp.InvalidParameterError, match="more than 60 steps"):
        deep.with_columns(v=pl.col("v") + 1)
