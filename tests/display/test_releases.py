"""`session.releases[-1]` is what was just released, however it was requested."""

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._choices.plan import ChoicePlan
from dp_polars._local.plan import ResponsePlan
from dp_polars._many.online_plan import OnlinePlan
from dp_polars._many.synthesis_plan import SynthesisPlan
from dp_polars._plan.plan import Plan
from dp_polars._streams.plan import StreamPlan
from tests.display.views import REGIONS, VISITS, a_session


def check(session, frame, plan=Plan, *, error=True):
    release = session.releases[-1]
    assert release.state == "committed"
    assert isinstance(release.plan, plan)
    assert release.cost == release.plan.cost
    assert release.cost.epsilon > 0
    assert (len(release.error) > 0) == error
    if frame is not None:
        assert release.frame.equals(frame)
    return release


def test_a_frame():
    with a_session() as session:
        counts = VISITS.dp.count("region", keys=REGIONS, epsilon=0.2)
        release = check(session, counts)
    assert release.error == {"count": 225.0}
    assert release.plan.query.title() == "count by region"


def test_a_lazy_frame_when_it_is_collected():
    with a_session() as session:
        lazy = VISITS.lazy().dp.sum("value", by="region", bounds=(0, 40), keys=REGIONS, epsilon=0.2)
        assert session.releases == ()
        check(session, lazy.collect())
        lazy.collect()
        assert len(session.releases) == 1


@pytest.mark.slow
@pytest.mark.parametrize("door", ["connect", "register"])
def test_sql(door):
    import duckdb

    session = a_session()
    if door == "connect":
        con = dp.connect(None, session)
        con.register("visits", VISITS)
        found = con.sql("SELECT dp_count(epsilon := 0.2) AS n FROM visits").fetchall()
    else:
        con = duckdb.connect()
        con.register("given", VISITS.to_arrow())
        con.execute("CREATE TABLE visits AS FROM given")
        dp.register(con, session)
        found = con.sql("FROM dp.count('visits', epsilon := 0.2)").fetchall()
    release = check(session, None)
    assert release.frame.rows() == found
    con.close()


@pytest.mark.slow
def test_choices():
    with a_session() as session:
        check(session, VISITS.dp.noisy_max("region", REGIONS, epsilon=0.1), ChoicePlan, error=False)
        check(session, VISITS.dp.top_k("region", 2, REGIONS, epsilon=0.1), ChoicePlan, error=False)
        score = lambda value: pl.col("value") * value  # noqa: E731
        check(session, VISITS.dp.select_best([1, 2], score, (0, 80), epsilon=0.1), ChoicePlan, error=False)
    assert len(session.releases) == 3


def test_streams():
    with a_session() as session:
        VISITS.dp.sparse_vector(700, hits=2, of="units", epsilon=0.2)
        release = check(session, None, StreamPlan, error=False)
    assert release.frame["threshold"].to_list() == [700.0]


def test_many_queries_and_synthetic_rows():
    with a_session() as session:
        VISITS.dp.online_queries({"region": REGIONS}, alpha=0.1, max_updates=5, epsilon=0.2)
        check(session, None, OnlinePlan, error=False)
        VISITS.dp.synthesize({"region": REGIONS}, epsilon=0.2)
        check(session, None, SynthesisPlan, error=False)


def test_randomized_responses():
    with a_session(adjacency="replace") as session:
        responses = VISITS.dp.randomized_response("region", categories=REGIONS, epsilon=0.5)
        check(session, responses, ResponsePlan, error=False)


def test_a_release_found_again_is_there_once():
    with a_session() as session:
        first = VISITS.dp.count("region", keys=REGIONS, epsilon=0.2)
        assert first.equals(VISITS.dp.count("region", keys=REGIONS, epsilon=0.2))
        check(session, first)
    assert len(session.releases) == 1
