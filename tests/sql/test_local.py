"""The local model in SQL: not charged on a user's own connection, charged on a guarded connection."""

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dp
from dp_polars._sql import functions as sql_functions
from tests.sql.registered import let_functions_charge
from tests.statistics import binomial_fits

# The responses here were never randomized, so the estimated frequencies may be far below 0.
pytestmark = pytest.mark.filterwarnings("ignore::dp_polars.errors.DPWarning")

N = 4000
VOTES = """
    CREATE TABLE votes AS
    SELECT i // 2 AS user_id, i % 4 < 2 AS yes, ['a', 'b', NULL, 'z'][1 + i % 4] AS word, (i % 3)::TINYINT AS kind,
           ['x', 'y'][1 + i % 2]::ENUM('x', 'y', 'w') AS pick, i % 2 AS region
    FROM range(4000) t(i)
"""


def database():
    """Return a database of votes with the functions of `dp.register`."""
    connection = duckdb.connect()
    connection.execute(VOTES)
    connection.execute("CREATE TABLE lookup AS SELECT 1 AS region, 'n' AS name")
    connection.execute("CREATE VIEW selected AS FROM votes WHERE region = 1")
    sql_functions.register(connection, dp.Session(epsilon=1.0, unit="user_id"))
    return connection


@pytest.fixture(scope="module")
def shared():
    connection = database()
    yield connection
    connection.close()


@pytest.fixture
def writes():
    """Mark tests that write to their database, which is then not shared."""


@pytest.fixture
def raw(request, shared):
    if "writes" not in request.fixturenames:
        yield shared
        return
    connection = database()
    yield connection
    connection.close()


@pytest.fixture
def own(raw):
    let_functions_charge(raw, dp.Session(epsilon=1.0, unit="user_id"))
    return raw


@pytest.fixture
def session():
    return dp.Session(epsilon=10, unit="user_id", adjacency="replace")


@pytest.fixture
def con(raw, session):
    return dp.connect(raw, session)


# ---------------------------------------------------------------- functions on a user's own connection


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "truth", "kind"),
    [
        ("dp.randomized_response(yes, 500)", "yes", "BOOLEAN"),
        ("dp.randomized_response(yes, 500, [false, true])", "yes", "BOOLEAN"),
        ("dp.randomized_response(word, 500, ['a', 'b', 'z', NULL])", "word", "VARCHAR"),
        ("dp.randomized_response(kind, 500, [0, 1, 2])", "kind", "INTEGER"),
        ("dp.randomized_response(kind::BIGINT, 500, [0, 1, 2]::BIGINT[])", "kind", "BIGINT"),
        (
            "dp.randomized_response(DATE '2024-01-01', 500, [DATE '2024-01-01', '2024-01-02'])",
            "'2024-01-01'",
            "DATE",
        ),
    ],
)
def test_at_a_huge_epsilon_responses_are_the_truth_in_their_type(own, call, truth, kind):
    relation = own.sql(f"SELECT {call} AS response FROM votes")
    assert str(relation.types[0]) == kind
    rows = own.sql(f"SELECT count(*) FILTER ({call} IS NOT DISTINCT FROM {truth}) FROM votes").fetchall()
    assert rows == [(N,)]


def test_what_is_not_listed_is_answered_by_any_category(own):
    """Null and unlisted values give each of two categories half of the time, in 8000 rows (false alarm 1e-7)."""
    for value in ("'elsewhere'", "NULL"):
        counts = dict(
            own.sql(
                f"SELECT dp.randomized_response({value}, 5.0, ['a', 'b']) AS r, count(*) FROM range(8000) GROUP BY 1"
            ).fetchall()
        )
        assert set(counts) == {"a", "b"}
        assert binomial_fits(counts["a"], 8000, 0.5)


@pytest.mark.slow
def test_the_law_of_each_response(own):
    """At epsilon ln 2 half of the responses among three categories are true (false alarm 1e-7); others may be null."""
    counts = dict(
        own.sql(
            "SELECT dp.randomized_response('a', 0.6931471805599453, ['a', 'b', NULL]) AS r, count(*) "
            "FROM range(8000) GROUP BY 1"
        ).fetchall()
    )
    assert binomial_fits(counts["a"], 8000, 0.5)
    assert binomial_fits(counts[None], 8000, 0.25)
    truths = own.sql("SELECT dp.randomized_response(NULL, 0.6931471805599453) IS NULL FROM range(8000)").fetchall()
    assert binomial_fits(sum(row[0] for row in truths), 8000, 0.5)


def test_no_call_is_folded_or_shared(own):
    """Two equal calls with constants differ in 2 * 3/4 * 1/4 of 8000 rows at epsilon ln 3 (false alarm 1e-7)."""
    call = "dp.randomized_response('a', 1.0986122886681098, ['a', 'b'])"
    rows = own.sql(f"SELECT {call} AS one, {call} AS two FROM range(8000)").fetchall()
    assert binomial_fits(sum(one != two for one, two in rows), 8000, 0.375)


def test_epsilon_may_differ_by_row(own):
    rows = own.sql(
        "SELECT count(*) FILTER (dp.randomized_response(i % 3, if(i % 2 = 0, 500, 300), [0, 1, 2]) = i % 3) "
        "FROM range(1000) t(i)"
    ).fetchall()
    assert rows == [(1000,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("dp.randomized_response(word, 1.0, ['a'])", "at least two different"),
        ("dp.randomized_response(word, 1.0, ['a', 'a'])", "at least two different"),
        ("dp.randomized_response(word, 1.0, ['a', NULL, NULL])", "at least two different"),
        ("dp.randomized_response(word, NULL, ['a', 'b'])", "epsilon"),
        ("dp.randomized_response(word, -1, ['a', 'b'])", "epsilon"),
        ("dp.randomized_response(yes, 0)", "epsilon"),
        ("dp.randomized_response(word, 1.0, [1, 2])", "Cannot deduce"),
        ("dp.randomized_response(word, 1.0)", "Candidate functions"),
    ],
)
def test_bad_calls_fail_without_a_value(own, call, message):
    with pytest.raises(duckdb.Error, match=message) as error:
        own.sql(f"SELECT {call} FROM votes").fetchall()
    assert "'z'" not in str(error.value)


def test_nothing_is_charged_on_a_connection_of_ones_own(own):
    own.sql("SELECT dp.randomized_response(yes, 5.0) FROM votes").fetchall()
    assert own.sql("SELECT dp.budget().used, dp.budget().releases").fetchall() == [(0.0, 0)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "words", "frame_words"),
    [
        ("yes", "epsilon := 1.0", {"epsilon": 1}),
        ("yes", "epsilon := 1.0, categories := [true, false]", {"epsilon": 1, "categories": [True, False]}),
        ("pick", "resample := 0.25", {"resample": 0.25}),
        ("kind", "epsilon := 2, categories := [2, 1, 0]", {"epsilon": 2, "categories": [2, 1, 0]}),
        (
            "word",
            "epsilon := 1.0, categories := ['a', 'b', 'z', NULL], by := 'region', confidence := 0.9",
            {"epsilon": 1, "categories": ["a", "b", "z", None], "by": "region", "confidence": 0.9},
        ),
        (
            "YES",
            "epsilon := 1.0, by := ['Region', 'kind'], nonnegative := true",
            {"epsilon": 1, "by": ["region", "kind"], "nonnegative": True},
        ),
    ],
)
def test_both_doors_estimate_as_frames_do(own, column, words, frame_words, writes):
    """One reads a temporary table on the user's connection, and the other a public table on a guarded connection."""
    frame = pl.DataFrame(own.sql("SELECT * REPLACE (pick::VARCHAR AS pick) FROM votes").to_arrow_table())
    frame = frame.with_columns(pl.col("pick").cast(pl.Enum(["x", "y", "w"])))
    expected = dp.estimate_frequencies(frame, column.lower(), **frame_words)
    own.execute("CREATE TEMP TABLE responses AS FROM votes")
    call = f"estimate_frequencies('{{}}', '{column}', {words})"
    found = pl.DataFrame(own.sql(f"SELECT * FROM dp.{call.format('responses')}").to_arrow_table())
    guarded = dp.connect(own, dp.Session(epsilon=1.0, unit="user_id")).public("votes")
    again = pl.DataFrame(guarded.sql(f"FROM dp_{call.format('votes')}").to_arrow_table())
    for one in (found, again):
        first = expected.columns.index("category")
        assert one.columns[first:] == expected.columns[first:]
        assert set(one.columns[:first]) == set(expected.columns[:first])
        texts = pl.col("category").cast(pl.String)
        keys = [name for name in ("region", "kind", "category") if name in one.columns]
        assert_frame_equal(
            one.with_columns(texts).select(expected.columns).sort(keys), expected.with_columns(texts).sort(keys)
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'votes', 'word', epsilon := 1.0", "need categories"),
        ("'votes', 'word', epsilon := 1.0, categories := ['a', 'b']", "not among the categories"),
        ("'votes', 'kind', epsilon := 1.0, categories := ['a', 'b']", "can't be converted to TINYINT"),
        ("'votes', 'kind', epsilon := 1.0, categories := 3", "must be a list"),
        ("'votes', 'yes'", "Say epsilon="),
        ("'votes', 'yes', epsilon := 'much'", "must be numbers"),
        ("'votes', 'yes', epsilon := 1.0, by := 'nope'", "nope is none of them"),
        ("'votes', 'nope', epsilon := 1.0", "empty set of columns"),
        ("'nope', 'yes', epsilon := 1.0", "nope"),
    ],
)
def test_estimates_that_make_no_sense_are_refused(own, arguments, message):
    with pytest.raises(duckdb.Error, match=message):
        own.sql(f"FROM dp.estimate_frequencies({arguments})").fetchall()


# ---------------------------------------------------------------- a guarded connection


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "values"),
    [
        ("dp_randomized_response(yes, epsilon := 1.0)", {True, False, None}),
        ("dp_randomized_response(yes, 1.0, [true, false])", {True, False}),
        ("dp_randomized_response(word, 1.0, ['a', 'b'])", {"a", "b"}),
        ("dp_randomized_response(upper(word), categories := ['A', NULL], resample := 0.5)", {"A", None}),
        ("dp_randomized_response(pick, share := 0.1)", {"x", "y", "w", None}),
        ("dp_randomized_response(kind, 1.0, [0, 1, 2])", {0, 1, 2}),
        ("DP_Randomized_Response(kind = 1, $e)", {True, False, None}),
    ],
)
def test_a_guarded_connection_answers_and_charges(con, session, call, values):
    """Each category occurs among 2000 responses, except with probability 1e-100. The same query again is free."""
    words = {"params": {"e": 1.0}} if "$e" in call else {}
    plan = con.preview(f"SELECT {call} AS response FROM votes", **words)
    assert session.spent.epsilon == 0
    relation = con.sql(f"SELECT {call} AS response FROM votes", **words)
    assert relation.columns == ["response"]
    rows = [row[0] for row in relation.fetchall()]
    assert len(rows) == N // 2
    assert set(rows) == values
    assert session.releases[0].cost == plan.cost
    again = con.execute(f"SELECT {call} FROM votes", words.get("params")).fetchall()
    assert [row[0] for row in again] == rows
    assert con.description[0][0] == "dp_randomized_response"
    assert len(session.releases) == 1


def test_responses_are_the_truth_at_a_huge_epsilon_and_null_units_are_left_out(raw, writes):
    raw.execute("INSERT INTO votes (user_id, yes) VALUES (NULL, true), (NULL, false)")
    with pytest.warns(dp.DPWarning):
        con = dp.connect(raw, dp.Session(epsilon=10**4, unit="user_id", adjacency="replace"))
    rows = con.sql("SELECT dp_randomized_response(yes, epsilon := 500) AS yes FROM votes").fetchall()
    assert np.unique([row[0] for row in rows], return_counts=True)[1].tolist() == [N // 4, N // 4]
    con.sql("SELECT dp_randomized_response(yes, epsilon := 500, fresh := true) FROM votes")
    assert len(con._session.releases) == 2
    con.sql("SELECT dp_randomized_response(yes) FROM votes", epsilon=500)
    assert len(con._session.releases) == 2


ALONE = [
    "SELECT dp_randomized_response(yes, 1.0) FROM votes WHERE region = 1",
    "SELECT dp_randomized_response(yes, 1.0), user_id FROM votes",
    "SELECT dp_randomized_response(yes, 1.0), dp_randomized_response(yes, 1.0) FROM votes",
    "SELECT dp_randomized_response(yes, 1.0) FROM votes JOIN lookup USING (region)",
    "SELECT dp_randomized_response(yes, 1.0) FROM (SELECT * FROM votes WHERE region = 1)",
    "WITH a AS (SELECT * FROM votes WHERE region = 1) SELECT dp_randomized_response(yes, 1.0) FROM a",
    "WITH votes AS (SELECT * FROM main.votes LIMIT 3) SELECT dp_randomized_response(yes, 1.0) FROM votes",
    "SELECT dp_randomized_response(yes, 1.0) FROM votes LIMIT 3",
    "SELECT dp_randomized_response(yes, 1.0) FROM votes ORDER BY user_id",
    "SELECT DISTINCT dp_randomized_response(yes, 1.0) FROM votes",
    "SELECT dp_randomized_response(yes, 1.0) FROM votes GROUP BY region",
    "SELECT dp_randomized_response(yes, 1.0) FROM votes QUALIFY region = 1",
    "SELECT dp_randomized_response(yes, 1.0) FROM votes HAVING region = 1",
    "SELECT dp_randomized_response(yes, 1.0) FROM votes TABLESAMPLE 10%",
    "SELECT dp_randomized_response(yes, 1.0) FROM votes USING SAMPLE 10",
    "SELECT NOT dp_randomized_response(yes, 1.0) FROM votes",
    "SELECT dp_count(*) FROM votes WHERE dp_randomized_response(yes, 1.0)",
    "SELECT dp_randomized_response(yes, 1.0) FROM votes UNION ALL SELECT dp_randomized_response(yes, 1.0) FROM votes",
    "SELECT (SELECT dp_randomized_response(yes, 1.0) FROM votes LIMIT 1)",
    "SELECT category FROM dp_estimate_frequencies('lookup', 'region', epsilon := 1.0, categories := [0, 1])",
    "FROM dp_estimate_frequencies('lookup', 'region', epsilon := 1.0, categories := [0, 1]) WHERE frequency > 0",
    "SELECT dp_count(*) FROM votes, dp_estimate_frequencies('lookup', 'region', epsilon := 1.0)",
]


@pytest.mark.slow
@pytest.mark.parametrize("statement", ALONE)
def test_everything_around_them_is_refused(con, session, statement):
    con.public("lookup")
    for ask in (con.sql, con.preview):
        with pytest.raises(dp.StatementNotAllowed, match="must be the whole statement"):
            ask(statement)
    assert not session.releases


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT dp_randomized_response(word, 1.0) FROM votes", "need categories"),
        ("SELECT dp_randomized_response(yes) FROM votes", "These responses need a spend"),
        ("SELECT dp_randomized_response() FROM votes", "needs a column"),
        ("SELECT dp_randomized_response(*) FROM votes", "needs a column"),
        ("SELECT dp_randomized_response(yes, user_id) FROM votes", "constant or a parameter"),
        ("SELECT dp_randomized_response(yes, within := 3) FROM votes", "no option within"),
        ("SELECT dp_randomized_response(yes, 1.0, epsilon := 2.0) FROM votes", "no option epsilon"),
        ("SELECT dp_randomized_response(sum(region), 1.0, [1, 2]) FROM votes", "a single row only"),
        ("SELECT dp_randomized_response(DISTINCT yes, 1.0) FROM votes", "neither DISTINCT"),
        ("SELECT dp_randomized_response(yes, 1.0) FILTER (region = 1) FROM votes", "neither DISTINCT"),
        ("SELECT dp_randomized_response(yes, 1.0) FROM selected", "A view, .* may leave rows out"),
        ("SELECT dp_randomized_response(name, 1.0, ['n', 'm']) FROM lookup", "this one is public"),
        ("SELECT dp_randomized_response(yes, 1.0) FROM nowhere", "no table nowhere"),
        ("SELECT dp_randomized_response(nothing, 1.0) FROM votes", "no column nothing"),
        ("SELECT dp_randomized_response(yes, ?) FROM votes", "No value was given"),
        ("FROM dp_estimate_frequencies('votes', 'yes', epsilon := 1.0)", "public tables, and votes is not public"),
        ("FROM dp_estimate_frequencies('nowhere', 'yes', epsilon := 1.0)", "public tables, and nowhere is not public"),
        (
            "FROM dp_estimate_frequencies('lookup; SELECT 1', 'name', epsilon := 1.0)",
            "one statement at a time|name of a table",
        ),
        ("FROM dp_estimate_frequencies('(FROM votes)', 'yes', epsilon := 1.0)", "name of a table"),
        ("FROM dp_estimate_frequencies('lookup', 'nothing', epsilon := 1.0)", "no column nothing"),
        ("FROM dp_estimate_frequencies('lookup')", "a table and a column"),
        ("FROM dp_estimate_frequencies('lookup', 'name')", "Say epsilon=|need categories"),
    ],
)
def test_what_makes_no_sense_is_refused_free_of_charge(con, session, statement, message):
    con.public("lookup")
    con.private("selected", unit="user_id")
    with pytest.raises(dp.DPError, match=message):
        con.sql(statement)
    assert not session.releases


def test_options_of_the_statement_are_those_of_responses(con, session):
    other = dp.Session(epsilon=1.0, unit="user_id", adjacency="replace")
    for words in ({"session": other}, {"max_groups": 3}, {"confidence": 0.9}):
        with pytest.raises(dp.InvalidParameterError, match=r"no option|they take no session="):
            con.sql("SELECT dp_randomized_response(yes) FROM votes", epsilon=1.0, **words)
    assert not session.releases
    assert not other.releases


def test_where_every_row_is_a_unit_every_row_has_a_response(raw):
    con = dp.connect(raw, dp.Session(epsilon=1.0, unit=dp.ROW, adjacency="replace"))
    for call in ("dp_randomized_response(yes, 0.1)", "dp_randomized_response(1 = 1, 0.1)"):
        assert len(con.sql(f"SELECT {call} FROM votes").fetchall()) == N
    con.register("frame", pl.DataFrame({"who": [1, 1, 2, None], "yes": [True] * 4})).private("frame", unit="who")
    with pytest.raises(dp.InvalidParameterError, match="coarser unit"):
        con.sql("SELECT dp_randomized_response(yes, 0.1) FROM frame")


def test_sessions_that_hide_presence_refuse(raw):
    session = dp.Session(epsilon=1.0, unit="user_id")
    with pytest.raises(dp.InvalidParameterError, match="adjacency='replace'"):
        dp.connect(raw, session).sql("SELECT dp_randomized_response(yes, 0.5) FROM votes")
    assert not session.releases


def test_an_estimate_costs_nothing_and_has_no_plan(raw, con, session, writes):
    raw.execute("CREATE TABLE responses AS SELECT yes FROM votes")
    con.public("responses")
    assert con.sql("FROM dp_estimate_frequencies('responses', 'yes', epsilon := 1.0)").columns == [
        "category", "frequency", "standard_error",
    ]  # fmt: skip
    with pytest.raises(dp.InvalidParameterError, match="costs nothing"):
        con.preview("FROM dp_estimate_frequencies('responses', 'yes', epsilon := 1.0)")
    with pytest.raises(dp.InvalidParameterError, match="no parameter x"):
        con.sql("FROM dp_estimate_frequencies('responses', 'yes', epsilon := 1.0)", params={"x": 1})
    assert not session.releases


def test_a_text_that_only_mentions_them_is_an_ordinary_statement(con):
    rows = con.sql("SELECT 'dp_randomized_response' AS name, dp_count_units(epsilon := 1.0) AS n FROM votes")
    assert rows.columns == ["name", "n"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("SELECT dp_randomized_response(vote, epsilon := 1.0) OVER () FROM votes", {}),
        ("SELECT dp_randomized_response(vote, epsilon := 1.0) FROM query_table('votes')", {}),
        ("SELECT dp_randomized_response(vote, epsilon := 1.0) FROM read_parquet('votes.parquet')", {}),
        ("SELECT dp_randomized_response(vote, epsilon := 1.0) FROM votes", {"epsilon": 5.0}),
        ("FROM dp_estimate_frequencies('open UNION ALL SELECT * FROM votes', 'vote', epsilon := 1.0)", {}),
    ],
)
def test_what_is_no_table_or_said_twice_is_refused(query, options):
    frame = pl.DataFrame({"u": range(50), "vote": [True, False] * 25})
    paying = dp.Session(epsilon=5, unit="u", adjacency="replace")
    con = dp.connect(None, paying)
    con.register("votes", frame)
    con.register("open", frame)
    con.public("open")
    with pytest.raises(dp.DPError):
        con.sql(query, **options)
    assert not paying.releases
