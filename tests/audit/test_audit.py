"""What an audit refuses, what it never touches, and what it says."""

import gc
import math

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._audit.audit import check_neighbours
from dp_polars._audit.samples import Names, samples_of
from dp_polars._release import rehearsal
from tests.audit.made_up import CROWD, frame_of

FIRST, SECOND = frame_of([*CROWD, (1, "a", 10)]), frame_of(CROWD)
SESSION = dp.Session(epsilon=1.0, unit="user", max_groups=1, max_rows_per_group=1)


def count(frame):
    return frame.dp.count(epsilon=1.0)


def audited(question=count, first=FIRST, second=SECOND, **words):
    words = {"session": SESSION, "made_up": True, "runs": 2_000, **words}
    return dp.audit(question, first, second, **words)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"made_up": None}, "say made_up=True, and never pass real rows"),
        ({"made_up": 1}, "made_up=True"),
        ({"first": FIRST.lazy()}, "pl.DataFrame, made up in memory"),
        ({"question": FIRST.dp.preview}, "a function of a frame"),
        ({"session": None}, "session= must define the terms"),
        ({"confidence": 1.5}, "confidence"),
        ({"runs": 10}, "runs"),
        ({"second": FIRST}, "the same rows"),
        ({"second": SECOND[1:]}, "are not neighbours"),
        ({"second": SECOND.cast({"value": pl.Float64})}, "different columns or types"),
    ],
)
def test_what_can_not_be_audited_is_refused_with_what_to_write(words, message):
    with pytest.raises(dp.InvalidParameterError, match=message):
        audited(**words)


def test_all_problems_of_a_call_are_said_at_once():
    with pytest.raises(dp.InvalidParameterError, match=r"made up in memory; session= .*; an audit repeats"):
        dp.audit(count, None, None, session=None)


def test_a_session_with_a_ledger_is_refused(tmp_path):
    session = dp.Session(epsilon=1.0, unit="user", ledger=tmp_path / "budget.db")
    with pytest.raises(dp.InvalidParameterError, match="may protect real data"):
        audited(session=session)
    session.close()


def test_answers_that_can_not_be_compared_are_refused():
    with pytest.raises(dp.InvalidParameterError, match="type object"):
        audited(lambda frame: (count(frame), object()))


def test_a_question_that_asks_nothing_is_refused():
    with pytest.raises(dp.InvalidParameterError, match="charged nothing to the session of the audit"):
        audited(lambda frame: frame.height)


# ---------------------------------------------------------------- what is never touched


def test_no_other_session_is_charged():
    mine = dp.Session(epsilon=5.0, unit="user", max_groups=1, max_rows_per_group=1)
    with pytest.raises(dp.InvalidParameterError, match="which is a throwaway"):
        audited(lambda frame: frame.dp.count(epsilon=1.0, session=mine), session=mine)
    with mine:
        audited(session=mine)
    assert mine.spent.epsilon == 0
    assert not mine.releases
    frame_of(CROWD).dp.count(epsilon=1.0, session=mine)  # and outside of an audit it pays as ever
    assert mine.spent.epsilon == 1


def test_after_an_audit_the_session_before_is_the_current_one():
    with SESSION:
        audited()
        assert dp.current_session() is SESSION
    assert dp.current_session() is None


def test_of_ordinary_sessions_nothing_is_noted(monkeypatch):
    noted = []
    monkeypatch.setattr(rehearsal.Rehearsal, "note", lambda self, make: noted.append(make))
    kept = rehearsal.Rehearsal(SESSION)
    session = dp.Session(epsilon=2.0, unit="user", max_groups=1, max_rows_per_group=1)
    frame_of(CROWD).dp.count(epsilon=1.0, session=session)
    assert not noted
    frame_of(CROWD).dp.count(epsilon=1.0, session=kept.session)
    assert len(noted) == 1


@pytest.mark.slow
def test_nothing_of_an_audit_is_kept():
    gc.collect()
    before = len(rehearsal._REHEARSALS)
    audited()
    gc.collect()
    assert len(rehearsal._REHEARSALS) == before


# ---------------------------------------------------------------- neighbours


def neighbours(first, second, **terms):
    return check_neighbours(frame_of(first), frame_of(second), dp.Session(epsilon=1.0, **terms).terms)


BASE = [(2, "a", 0), (2, "a", 0), (3, "b", 0)]


@pytest.mark.parametrize(
    ("terms", "second", "fits"),
    [
        ({}, [*BASE, (1, "a", 0), (1, "b", 5)], True),
        ({}, BASE[:2], True),
        ({}, BASE[1:], False),  # a part of a unit's rows
        ({}, [*BASE, (1, "a", 0), (4, "a", 0)], False),
        ({"group_size": 2}, [*BASE, (1, "a", 0), (4, "a", 0)], True),
        ({"adjacency": "replace"}, [*BASE[:2], (3, "c", 7)], True),
        ({"adjacency": "replace"}, [*BASE[:2], (4, "c", 7)], True),
        ({"adjacency": "replace"}, BASE[:2], False),
        ({"adjacency": "replace"}, [(2, "c", 0), (3, "c", 7)], False),
        ({"unit": dp.ROW}, BASE[1:], True),
        ({"unit": dp.ROW}, BASE[2:], False),
        ({"unit": dp.ROW}, [*BASE[:2], (3, "c", 0)], False),
        ({"unit": dp.ROW, "adjacency": "replace"}, [*BASE[:2], (3, "c", 0)], True),
        ({"unit": dp.ROW, "adjacency": "replace"}, BASE[1:], False),
        ({"unit": ["user", "key"]}, [*BASE, (2, "b", 0)], True),
    ],
)
def test_neighbours_differ_as_the_session_says(terms, second, fits):
    terms = {"unit": "user", **terms}
    if fits:
        assert neighbours(BASE, second, **terms)
        assert neighbours(second, BASE, **terms)
    else:
        with pytest.raises(dp.InvalidParameterError, match="are not neighbours"):
            neighbours(BASE, second, **terms)


def test_a_unit_of_another_name_is_not_checked_and_the_result_says_so():
    session = dp.Session(epsilon=1.0, unit="person", max_groups=1, max_rows_per_group=1)
    question = lambda frame: dp.private(frame, unit={"person": "user"}).count(epsilon=1.0)  # noqa: E731
    found = audited(question, session=session)
    assert not found.checked
    assert "assumed to be neighbours" in str(found)


# ---------------------------------------------------------------- what it says


def test_the_result_reads_as_a_table_and_says_what_it_can_not_prove():
    found = audited(epsilon=3)
    assert str(found) == repr(found)
    assert "can refute a guarantee, but never prove it" in str(found)
    assert "epsilon 3" in found.claimed
    html = found._repr_html_()
    assert "Audit: no violation found" in html
    assert "<script" not in html


def test_a_violation_says_how_often_it_would_be_wrong():
    found = audited(epsilon=0.01, runs=100_000, confidence=0.999)
    assert found.verdict == "violation"
    assert "at most 0.001" in str(found)


def test_the_bound_follows_from_the_event_that_is_shown():
    found = audited(runs=20_000)
    assert found.epsilon_lower_bound == pytest.approx(math.log(found.likely_limit / found.unlikely_limit))
    assert found.likely_limit < found.likely
    assert found.unlikely_limit > found.unlikely


@pytest.mark.slow
def test_the_chart_has_the_claim_and_what_was_seen():
    pytest.importorskip("altair")
    loud = dp.Session(epsilon=1.0, delta=1e-6, unit="user", max_groups=1, max_rows_per_group=1)
    gaussian = audited(lambda frame: frame.dp.count(epsilon=1.0, mechanism="gaussian"), session=loud)
    for found in (audited(), gaussian):
        drawn = [row for rows in found.plot().to_dict()["datasets"].values() for row in rows]
        lines = {
            what: [row for row in drawn if row.get("what") == what]
            for what in ("what was seen", "what the claim allows")
        }
        seen = lines["what was seen"]  # two points if no event was found that tells the inputs apart
        assert [(row["there"], row["here"]) for row in seen] == [pytest.approx(point) for point in found.curve]
        assert (seen[0]["there"], seen[0]["here"], seen[-1]["there"], seen[-1]["here"]) == (0, 0, 1, 1)
        assert all(0 <= row["here"] <= 1 and 0 <= row["there"] <= 1 for row in drawn)
        allowed = lines["what the claim allows"]
        assert allowed == sorted(allowed, key=lambda row: row["there"])
        assert allowed[-1]["here"] == 1


def test_answers_of_every_form_become_numbers_and_names():
    frame = pl.DataFrame({"key": ["a", None], "n": [1, 2], "list": [[1.5], [2.5, 3.5]]})
    answers = [{"x": True, "y": [1, None, float("inf")]}, frame, frame.lazy(), pl.Series([1, 2]), ("a", 2.0)]
    samples = samples_of(answers, Names())
    assert samples.numbers["('a',)#1.n"].tolist()[1:3] == [1, 1]
    assert samples.numbers["(None,)#1.list[1]"].tolist()[1] == 3.5
    assert math.isnan(samples.numbers[".y[0]"][1])
    assert samples.codes[".x"].tolist() == [0, -1, -1, -1, -1]
    assert samples.codes[".y[2]"][0] >= 0
    assert samples.numbers["[1]"].tolist()[4] == 2
