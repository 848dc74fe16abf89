"""Every kind of question can be audited, and honest ones are not flagged (false alarm 1e-7 each)."""

import polars as pl
import pytest

import dp_polars as dp
from tests.audit.made_up import ALMOST_SURE, CROWD, KEYS, frame_of

FULL = [(1, key, 10) for key in ("a", "b") for _ in range(2)]
"""The rows of a unit that just fill the caps below, so that nothing random happens before the noise."""
ONCE = [(1, "a", 10)] * 2
"""The same for questions without keys, which have one group."""
VOTERS = [(1000 + voter, "a", 0) for voter in range(14)]
"""So many units that a candidate may or may not be shown."""
HEAVY = [(1, key, 10) for key in KEYS for _ in range(10)]
CAPS = {"unit": "user", "max_groups": 2, "max_rows_per_group": 2}
PURE = dp.Session(epsilon=1.0, **CAPS)
with pytest.warns(dp.DPWarning, match="delta"):  # so that groups of ten people are sometimes shown
    LOOSE = dp.Session(epsilon=1.0, delta=0.04, key_delta=0.02, **CAPS)
REPLACE = dp.Session(epsilon=1.0, adjacency="replace", **CAPS)


def sql(frame):
    con = dp.connect(None, dp.current_session()).register("visits", frame)
    return con.sql("SELECT dp_sum(value, 0, 10, epsilon := 1.0) AS total FROM visits WHERE key <> 'd'")


def sql_by_key(frame):
    con = dp.connect(None, dp.current_session()).register("visits", frame)
    return con.sql("SELECT key, dp_count(*, epsilon := 1.0) AS n FROM visits GROUP BY key", keys=KEYS)


def best(candidate):
    return pl.when(pl.col("value") >= candidate).then(candidate).otherwise(0)


def watched(frame):
    stream = frame.dp.sparse_vector(41, hits=1, numeric=True, epsilon=1.0)
    return [stream.ask(pl.col("value") >= 0), stream.hits_left]


def online(frame):
    return frame.dp.online_queries({"key": KEYS}, alpha=0.3, max_updates=1, epsilon=1.0).ask(pl.col("key") == "a")


def adaptive(frame):
    size = frame.dp.count(epsilon=0.5).item()
    return size, frame.dp.sum("value", bounds=(0, 10 if size > 40 else 5), epsilon=0.5)


def several(frame):
    return frame.dp.group_by("key").agg(n=dp.count(), mean=dp.mean("value", bounds=(0, 10)), keys=KEYS, epsilon=1.0)


def with_ends(f):
    return f.dp.median("value", bounds=(0, 10), epsilon=1.0, confidence=0.9, interval="value")


def rows_per_unit(f):
    return f.dp.group_by("user").agg(n=pl.len()).count(pl.col("n") >= 2, epsilon=1.0)


def latest(f):
    return f.dp.group_by("user").head(1, order_by="value", descending=True).sum("value", bounds=(0, 10), epsilon=1.0)


def joined(f):
    return f.dp.filter(pl.col("value") >= 5).join(f.dp.filter(pl.col("key") == "a"), on="user").count(epsilon=1.0)


# The session, the question, and the least share of its epsilon that the attack finds.
AT_ONCE = {
    "rows per unit": (PURE, rows_per_unit, 0.85),
    "latest row of a unit": (PURE, latest, 0.85),
    "join of private frames": (PURE, joined, 0.85),
    "sql": (PURE, sql, 0.85),
    "sql by key": (PURE, sql_by_key, 0.8),
    "sum by public keys": (PURE, lambda f: f.dp.sum("value", by="key", keys=KEYS, bounds=(0, 10), epsilon=1.0), 0.8),
    "a lazy count": (PURE, lambda f: f.lazy().dp.count("key", keys=KEYS, epsilon=1.0), 0.8),
    "mean": (PURE, lambda f: f.dp.mean("value", by="key", keys=KEYS, bounds=(0, 10), epsilon=1.0), 0.8),
    "variance": (PURE, lambda f: f.dp.var("value", bounds=(0, 10), epsilon=1.0), 0.8),
    "histogram": (PURE, lambda f: f.dp.histogram("value", edges=[0, 5, 10], epsilon=1.0), 0.85),
    "median": (PURE, lambda f: f.dp.median("value", bounds=(0, 10), epsilon=1.0), 0.35),
    "interval of a median": (PURE, with_ends, 0.1),
    "distinct values": (PURE, lambda f: f.dp.n_unique("value", by="key", keys=KEYS, epsilon=1.0), 0.3),
    "several at once": (PURE, several, 0.5),
    "choice": (PURE, lambda f: f.dp.noisy_max("key", KEYS, epsilon=1.0), 0.6),
    "several choices": (PURE, lambda f: f.dp.top_k("key", 2, KEYS, epsilon=1.0), 0.5),
    "choice by key": (PURE, lambda f: f.dp.noisy_min("value", [1, 10], "key", keys=KEYS, epsilon=1.0), 0.7),
    "choice by a score": (PURE, lambda f: f.dp.select_best([1, 10], best, bounds=(0, 10), epsilon=1.0), 0.6),
    "discovered keys": (LOOSE, lambda f: f.dp.count("key", epsilon=1.0), 0.15),
    "keys discovered by a rule": (LOOSE, lambda f: f.dp.median("value", by="key", bounds=(0, 10), epsilon=1.0), 0.05),
    "discovered candidates": (LOOSE, lambda f: f.dp.noisy_max("key", epsilon=1.0), 0.3),
}
WITHOUT_KEYS = {
    "rows per unit",
    "latest row of a unit",
    "join of private frames",
    "histogram",
    "median",
    "interval of a median",
    "variance",
    "sql",
    "choice by a score",
}
ONE_BY_ONE = {
    "totals": (PURE, lambda f: f.dp.count("key", keys=KEYS, rollup=True, epsilon=1.0)),
    "synthesis": (PURE, lambda f: f.dp.synthesize({"key": KEYS}, epsilon=1.0)),
    "stream": (PURE, watched),
    "online queries": (PURE, online),
    "questions that follow each other": (PURE, adaptive),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", AT_ONCE)
def test_noise_that_is_drawn_at_once(kind):
    session, question, worth = AT_ONCE[kind]
    full = ONCE if kind in WITHOUT_KEYS else FULL
    crowd = CROWD + VOTERS if kind == "discovered candidates" else CROWD
    first, second = frame_of(crowd + full), frame_of(crowd)
    words = {"runs": 200_000, "confidence": ALMOST_SURE}
    found = dp.audit(question, first, second, session=session, made_up=True, **words)
    assert found.verdict == "no violation found"
    assert found.reads == 1
    assert found.runs == 200_000
    assert found.checked
    assert found.epsilon == 1
    assert worth <= found.epsilon_lower_bound <= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sum by public keys", "median", "sql by key", "choice by key"])
def test_caps_that_choose_are_read_again_and_again(kind):
    session, question, _ = AT_ONCE[kind]
    first, second = frame_of(CROWD + HEAVY), frame_of(CROWD)
    words = {"runs": 40_000, "reads": 40, "confidence": ALMOST_SURE}
    found = dp.audit(question, first, second, session=session, made_up=True, **words)
    assert found.verdict == "no violation found"
    assert found.reads == 40
    assert "40 reads" in str(found)


@pytest.mark.slow
def test_a_choice_by_a_score_of_columns_with_the_names_of_the_engine_is_read_again():
    """A user's column called unit1 identifies rows, but the cap is on the rows of a unit."""
    rows = frame_of([(1, "a", 10), (1, "a", 0), (1, "a", 5)])
    first, second = (
        pl.concat(both).with_columns(unit1="value") for both in ((frame_of(CROWD), rows), (frame_of(CROWD),))
    )
    found = dp.audit(
        lambda f: f.dp.select_best(
            [1, 10], lambda c: pl.when(pl.col("unit1") >= c).then(c).otherwise(0), (0, 10), epsilon=1.0
        ),
        first,
        second,
        session=PURE,
        made_up=True,
        runs=4_000,
        reads=20,
        confidence=ALMOST_SURE,
    )
    assert found.reads == 20
    assert found.verdict == "no violation found"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dp_polars.DPWarning")  # estimates from a handful of units
def test_bounds_that_are_estimated_are_read_again_and_again():
    found = dp.audit(
        lambda f: f.dp.sum("value", bounds="auto", max_rows_per_group=1, epsilon=1.0),
        frame_of(CROWD + FULL),
        frame_of(CROWD),
        session=PURE,
        made_up=True,
        runs=20_000,
        reads=20,
        confidence=ALMOST_SURE,
    )
    assert found.verdict == "no violation found"
    assert found.reads == 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", ONE_BY_ONE)
def test_what_is_asked_one_by_one(kind):
    session, question = ONE_BY_ONE[kind]
    first, second = frame_of(CROWD + FULL), frame_of(CROWD)
    words = {"runs": 100, "confidence": ALMOST_SURE}
    found = dp.audit(question, first, second, session=session, made_up=True, **words)
    assert found.verdict == "no violation found"
    assert found.runs == 100
    assert found.epsilon == 1


@pytest.mark.slow
def test_randomized_responses():
    said = [(unit, "b", 0) for unit in range(3)]
    found = dp.audit(
        lambda f: f.dp.randomized_response("key", categories=["a", "b"], epsilon=1.0),
        frame_of([(9, "a", 0), *said]),
        frame_of([(9, "b", 0), *said]),
        session=REPLACE,
        made_up=True,
        runs=200,
        confidence=ALMOST_SURE,
    )
    assert found.verdict == "no violation found"


@pytest.mark.slow
def test_a_question_that_shows_no_group_has_nothing_to_tell():
    found = dp.audit(
        lambda f: f.dp.histogram("value", edges=[0, 5, 10], by="key", epsilon=0.01),
        frame_of(CROWD[:4] + FULL[::2]),
        frame_of(CROWD[:4]),
        session=LOOSE,
        made_up=True,
        runs=1_000,
    )
    assert found.verdict == "no violation found"
    assert found.epsilon_lower_bound == 0
