"""Choices in SQL: statements and functions give the same answers, plans, prices and errors as frames."""

import datetime as dt
from dataclasses import replace
from functools import cache

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._sql import functions as sql_functions
from tests.aggregates.doors import HUGE, session
from tests.choices.test_choices import KINDS, REGIONS, ROWS
from tests.choices.test_choices import ranked as plain
from tests.sql.registered import let_functions_charge

EPSILON = HUGE
"""Each row by which a candidate leads multiplies its weight by at least exp(25). Counts are off with 1e-20."""
OWNED = ROWS.drop_nulls("who")
PLACES = pl.Enum(REGIONS)


@cache
def shared_connection():
    """Return a database for guarded connections, which never write to it."""
    return raw_connection()


def raw_connection():
    raw = duckdb.connect()
    raw.register("given", ROWS.to_arrow())
    raw.execute("CREATE TYPE places AS ENUM ('north', 'south', 'east')")
    raw.execute("CREATE TABLE rows AS SELECT * REPLACE (place::VARCHAR::places AS place) FROM given")
    raw.execute(
        "CREATE TABLE odd AS SELECT i AS who, CASE WHEN i < 200 THEN 'a, \"b\"' WHEN i < 350 THEN 'it''s [c], {d}' "
        "WHEN i < 450 THEN 'NULL' WHEN i < 520 THEN '' WHEN i < 580 THEN NULL ELSE '1' || chr(10) || '2' END AS v "
        "FROM range(600) t(i)"
    )
    return raw


@pytest.fixture
def paying():
    return session()


@pytest.fixture(params=[1, 3], ids=["whole", "in parts"])
def con(request, paying, monkeypatch):
    monkeypatch.setattr("dp_polars._sql.queries.parts_for", lambda *_: request.param)
    return dp.connect(shared_connection(), paying)


@pytest.fixture(scope="module")
def registered():
    """A database with the functions of `dp.register`, which never write to it."""
    raw = raw_connection()
    sql_functions.register(raw, session())
    yield raw
    raw.close()


@pytest.fixture
def functions(paying, registered):
    let_functions_charge(registered, paying)
    return registered


@pytest.fixture
def refusing(registered):
    paying = session(epsilon=1)
    let_functions_charge(registered, paying)
    return registered, paying


# ---------------------------------------------------------------------- answers

Q = pl.col("n")
CALLS = [
    ("noisy_max", "region", {"candidates": REGIONS}, {}),
    ("noisy_max", "region", {}, {}),
    ("noisy_max", "text", {}, {}),
    ("noisy_max", "day", {"candidates": [dt.date(2024, 1, day) for day in (1, 2, 3)]}, {}),
    ("noisy_max", "many", {}, {}),
    ("noisy_max", "kind", {"score": "units"}, {}),
    ("noisy_min", "kind", {"candidates": KINDS}, {}),
    ("noisy_min", "place", {}, {}),
    ("top_k", "place", {"k": 3}, {}),
    ("top_k", "kind", {"k": 3, "candidates": KINDS}, {}),
    ("top_k", "text", {"k": 2}, {}),
    ("noisy_max", "kind", {"by": "region"}, {}),
    ("noisy_max", "kind", {"by": "region", "candidates": KINDS}, {}),
    ("noisy_max", "kind", {"by": "region", "keys": ["north", "south"], "candidates": KINDS}, {}),
    ("noisy_max", "kind", {"by": "region", "keys": ["north", "south"]}, {}),
    ("noisy_min", "kind", {"by": "place", "candidates": KINDS}, {}),
    ("top_k", "kind", {"by": "region", "k": 2, "keys": REGIONS, "candidates": KINDS}, {}),
    ("top_k", "kind", {"by": "many", "k": 2}, {}),
    ("noisy_max", "kind", {"candidates": KINDS}, {"value": "n", "bounds": (0, 30)}),
    ("noisy_min", "kind", {"candidates": KINDS}, {"value": "n", "bounds": (-9, 30)}),
    ("top_k", "kind", {"k": 2}, {"value": "x", "bounds": (0, 40)}),
    ("noisy_max", "kind", {"by": "region"}, {"value": "n", "bounds": (0, 30)}),
]
NAMES = [f"{name} {column} {words} {summed}"[:70] for name, column, words, summed in CALLS]


def literal(value):
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    return f"DATE '{value}'" if isinstance(value, dt.date) else repr(value)


_answers = {}


def on_frame(*call):
    """Return the answer of a frame, which no test changes, so that each call is asked once."""
    key = repr(call)
    if key not in _answers:
        _answers[key] = ask_frame(*call)
    return _answers[key]


def ask_frame(name, column, words, summed, epsilon=EPSILON):
    """Return the answer of a frame as rows of the keys and the chosen candidate, or the list of candidates."""
    given = {"epsilon": epsilon, **words}
    if summed:
        given["score"] = dp.sum(summed["value"], bounds=summed["bounds"])
    with session():
        found = getattr(ROWS.dp, name)(column, **given)
    keys = [words["by"]] if "by" in words else []
    if name == "top_k":
        found = (
            found.group_by(keys, maintain_order=True).agg(column) if keys else found.select(pl.col(column).implode())
        )
    return found.select(*keys, column)


def statement(name, column, words, summed, epsilon=EPSILON):
    """Return a SELECT with a choice."""
    options = {option: value for option, value in words.items() if option not in ("by", "k")}
    arguments = [column, *([str(words["k"])] if "k" in words else [])]
    if summed:
        arguments += [summed["value"], *map(str, summed["bounds"])]
    arguments += [f"{option} := {literal(value)}" for option, value in {**options, "epsilon": epsilon}.items()]
    keys = f"{words['by']}, " if "by" in words else ""
    group = f" GROUP BY {words['by']}" if keys else ""
    return f"SELECT {keys}dp_{name}({', '.join(arguments)}) AS answer FROM rows{group}"


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS, ids=NAMES)
def test_the_guarded_connection_answers_as_frames_do(con, paying, call):
    expected = on_frame(*call).rows()
    asked = con.sql(statement(*call))
    assert asked.columns[-1] == "answer"
    assert asked.fetchall() == expected
    con.sql(statement(*call)).fetchall()
    (entry,) = paying.releases  # asked once more it is free
    assert float(entry.cost.epsilon) == EPSILON


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS, ids=NAMES)
def test_functions_answer_with_the_same_types(functions, paying, call):
    name, column, words, summed = call
    options = {option: value for option, value in words.items() if option != "k"}
    if summed:
        options |= {"value": summed["value"], "lower": summed["bounds"][0], "upper": summed["bounds"][1]}
    arguments = ["'rows'", f"'{column}'", *([str(words["k"])] if "k" in words else [])]
    arguments += [f"{option} := {literal(value)}" for option, value in {**options, "epsilon": EPSILON}.items()]
    asked = functions.sql(f"FROM dp.{name}({', '.join(arguments)})")
    assert asked.columns[-1] == name
    found = asked.fetchall()
    expected = on_frame(*call)
    assert found == expected.rows()
    repr(asked)
    assert len(paying.releases) == 1


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS, ids=NAMES)
def test_plans_and_prices_are_those_of_frames(call):
    name, column, words, summed = call
    given = {"epsilon": 0.1, **words}
    if summed:
        given["score"] = dp.sum(summed["value"], bounds=summed["bounds"])
    paying = session(epsilon=1)
    con = dp.connect(shared_connection(), paying)
    plan = con.preview(statement(*call, epsilon=0.1))
    with paying:
        twin = getattr(ROWS.dp.preview, name)(column, **given)
    assert (plan.cost, plan.rate, plan.limit, plan.bounds, plan.score) == (
        twin.cost,
        twin.rate,
        twin.limit,
        twin.bounds,
        twin.score,
    )
    assert plan.label() == twin.label()
    assert plan.statement[0][1] == "a private answer"
    assert str(replace(plan, statement=())).replace(" (after sql)", "") == str(twin)
    assert not paying.releases


# ---------------------------------------------------------------------- statements around a choice


def ask(con, query, **words):
    return con.sql(query, **{"epsilon": EPSILON, **words}).fetchall()


@pytest.mark.slow
def test_rows_are_left_out_before_a_choice(con):
    rows = OWNED.filter(Q > 3)
    (most,) = plain(rows, "kind", pl.len())[()]
    assert ask(con, "SELECT dp_noisy_max(kind) FROM rows WHERE n > 3") == [(most,)]
    assert ask(con, "SELECT dp_noisy_max(kind) FILTER (WHERE n > 3) FROM rows") == [(most,)]
    few = "CASE WHEN kind > 0 THEN 'up' ELSE 'down' END"
    up = pl.when(pl.col("kind") > 0).then(pl.lit("up")).otherwise(pl.lit("down"))
    expected = plain(rows, up, pl.len())
    assert ask(con, f"SELECT dp_noisy_max({few}) FROM rows WHERE n > 3") == [tuple(expected[()])]
    assert ask(con, "SELECT dp_noisy_max(upper(region), candidates := ['NORTH', 'EAST']) FROM rows") == [("NORTH",)]


@pytest.mark.slow
def test_answers_can_be_worked_with(con):
    order = plain(OWNED, "region", pl.len(), k=3)[()]
    assert ask(con, "SELECT upper(dp_noisy_max(region)) || '!' AS loud FROM rows") == [(order[0].upper() + "!",)]
    top = "dp_top_k(region, 3, candidates := ['north', 'south', 'east'])"
    assert ask(con, f"SELECT len({top}) AS n, {top}[2] AS second FROM rows") == [(3, order[1])]
    by = "SELECT region AS r, dp_noisy_max(kind) AS best, dp_count(*) AS n FROM rows GROUP BY region"
    counts = OWNED.group_by("region").len().sort("len", descending=True).rows()
    best = plain(OWNED, "kind", pl.len(), by=["region"])
    expected = [(region, best[(region,)][0], n) for region, n in counts]
    assert ask(con, f"{by} ORDER BY n DESC") == expected
    assert ask(con, f"{by} HAVING n > 900 AND best = 2 ORDER BY n DESC LIMIT 2") == expected[:2]
    nested = "SELECT best, sum(n)::BIGINT AS n FROM (SELECT region, dp_noisy_max(kind) AS best, dp_count(*) AS n FROM rows GROUP BY region) GROUP BY best"  # noqa: E501
    assert ask(con, nested) == [(2, OWNED.height)]
    assert ask(con, "WITH w AS (SELECT * FROM rows WHERE n > 3) SELECT dp_top_k(place, 1)[1] AS p FROM w") == [
        tuple(plain(OWNED.filter(Q > 3), "region", pl.len())[()])
    ]


@pytest.mark.slow
def test_an_enum_needs_no_candidates(paying):
    con = dp.connect(shared_connection(), dp.Session(epsilon=1, unit="who", max_rows_per_group=5))
    plan = con.preview("SELECT dp_noisy_max(place, epsilon := 0.1) FROM rows")
    assert plan.selection.candidates.to_series().to_list() == REGIONS
    assert "permute-and-flip" in str(plan)
    con.sql("SELECT dp_noisy_min(place, epsilon := 0.1) FROM rows")
    con.sql("SELECT place, dp_top_k(many, 2, epsilon := 0.1, max_groups := 1) FROM rows GROUP BY place")


@pytest.mark.slow
def test_parameters(con):
    order = plain(OWNED, "kind", pl.len(), k=3)[()]
    listed = "SELECT dp_top_k(kind, ?, candidates := ?) FROM rows"
    assert con.sql(listed, params=[3, KINDS], epsilon=EPSILON).fetchall() == [(order,)]
    named = "SELECT dp_top_k(kind, $k, n, $low, $high, candidates := $kinds, epsilon := $e) FROM rows WHERE n > $least"
    params = {"k": 2, "low": 0, "high": 30, "kinds": KINDS, "e": EPSILON, "least": 3}
    expected = plain(OWNED.filter(Q > 3), "kind", Q.sum(), k=2)[()]
    assert con.sql(named, params=params).fetchall() == [(expected,)]
    con.execute("SELECT dp_noisy_max(region, candidates := ?, epsilon := ?) AS best FROM rows", [REGIONS, EPSILON])
    assert con.fetchall() == [tuple(plain(OWNED, "region", pl.len())[()])]
    odd = ["x'); DROP TABLE rows; --", 'y"']
    asked = "SELECT dp_noisy_max(region, candidates := ?) FROM rows"
    assert con.sql(asked, params=[odd], epsilon=EPSILON).fetchall()[0][0] in odd
    with pytest.raises(dp.DPError, match="No value was given"):
        con.sql(asked, epsilon=EPSILON)


@pytest.mark.slow
def test_one_spend_is_shared_by_all_private_aggregates():
    paying = session(epsilon=1)
    con = dp.connect(shared_connection(), paying)
    con.sql("SELECT dp_noisy_max(kind), dp_count(*), dp_top_k(place, 2), dp_count_units() FROM rows", epsilon=0.4)
    # Counts of the same rows share one release, and each choice is a release.
    assert sorted(float(entry.cost.epsilon) for entry in paying.releases) == pytest.approx([0.1, 0.1, 0.2])
    asked = "SELECT dp_noisy_max(kind, epsilon := 0.3), dp_noisy_min(place, epsilon := 0.4) FROM rows"
    with pytest.raises(dp.BudgetExceeded):
        con.sql(asked)
    assert len(paying.releases) == 3  # all or nothing


@pytest.mark.slow
def test_a_group_without_a_winner_is_null_beside_other_answers(con):
    both = "SELECT region, dp_noisy_max(kind, candidates := [7, 8]) AS k, dp_top_k(text, 2) AS t, dp_count(*) AS n FROM rows GROUP BY region"  # noqa: E501
    found = ask(con, f"{both} ORDER BY n DESC", epsilon=EPSILON * 3)
    assert [row[1] for row in found] == [None] * 4
    assert [row[3] for row in found] == OWNED.group_by("region").len().sort("len", descending=True)["len"].to_list()
    public = "SELECT region, dp_noisy_max(kind, keys := ['north', 'nowhere']) AS k, dp_count(*) AS n FROM rows GROUP BY region"  # noqa: E501
    assert ask(con, public, epsilon=EPSILON * 2) == [
        ("north", 2, OWNED.filter(region="north").height),
        ("nowhere", None, 0),
    ]


@pytest.mark.slow
def test_what_is_said_of_the_groups_once_holds_for_all_answers_of_a_select(con, paying):
    count, choice = "dp_count(*, min_units := 3, max_groups := 7) AS n", "dp_noisy_max(kind) AS k"
    for answers in (f"{count}, {choice}", f"{choice}, {count}"):
        plans = con.preview(f"SELECT region, {answers} FROM rows GROUP BY region", epsilon=1)
        assert [plan.bounds.max_groups for plan in plans] == [7, 7]
    listed = "dp_count(*, keys := ['north']) AS n, dp_count(*) FILTER (WHERE n > 3) AS m, dp_noisy_max(kind) AS k"
    north = OWNED.filter(region="north")
    expected = [("north", north.height, north.filter(Q > 3).height, 2)]
    assert ask(con, f"SELECT region, {listed} FROM rows GROUP BY region") == expected
    with pytest.raises(dp.InvalidParameterError, match="differs between the private aggregates of one SELECT"):
        ask(con, f"SELECT region, {count}, dp_noisy_max(kind, max_groups := 3) FROM rows GROUP BY region")


@pytest.mark.slow
def test_nobody_is_null_or_an_empty_list(con, functions):
    assert ask(con, "SELECT dp_noisy_max(v) AS m, dp_count_units() AS n FROM odd WHERE who > 595") == [(None, 4)]
    assert ask(con, "SELECT dp_top_k(v, 2) AS m FROM odd WHERE who > 595") == [([],)]
    where = f"\"where\" := 'who > 595', epsilon := {EPSILON}"
    assert functions.sql(f"FROM dp.noisy_max('odd', 'v', {where})").fetchall() == [(None,)]
    assert functions.sql(f"FROM dp.top_k('odd', 'v', 2, {where})").fetchall() == [([],)]


@pytest.mark.slow
def test_texts_with_commas_quotes_and_brackets(con, functions):
    texts = ['a, "b"', "it's [c], {d}", "NULL", "", None, "1\n2"]
    listed = "['a, \"b\"', 'it''s [c], {d}', 'NULL', '', NULL, '1' || chr(10) || '2']"
    given = {"candidates": texts}
    assert ask(con, "SELECT dp_top_k(v, 6) FROM odd", **given) == [(texts,)]
    assert ask(con, "SELECT dp_noisy_max(v) FROM odd WHERE who >= 200 AND who < 400", **given) == [(texts[1],)]
    words = f"candidates := {listed}, epsilon := {EPSILON}"
    assert functions.sql(f"FROM dp.top_k('odd', 'v', 6, {words})").fetchall() == [(texts,)]
    kept = "\"where\" := 'who >= 200 AND who < 400'"
    assert functions.sql(f"FROM dp.noisy_max('odd', 'v', {kept}, {words})").fetchall() == [(texts[1],)]


@pytest.mark.slow
def test_the_same_choice_is_free_whatever_stands_above_it(con, paying):
    ask(con, "SELECT dp_noisy_max(kind) AS k FROM rows")
    ask(con, "SELECT dp_noisy_max(kind) + 1 AS more FROM rows")
    assert len(paying.releases) == 1
    ask(con, "SELECT dp_noisy_max(kind, fresh := true) FROM rows")
    assert len(paying.releases) == 2


@pytest.mark.slow
def test_rows_as_units_and_several_unit_columns():
    for unit, words in ((dp.ROW, {"max_groups": None, "max_rows_per_group": None}), (["who", "day"], {})):
        con = dp.connect(shared_connection(), session(unit=unit, **words))
        rows = ROWS if unit is dp.ROW else OWNED
        assert ask(con, "SELECT dp_noisy_max(kind) FROM rows") == [tuple(plain(rows, "kind", pl.len())[()])]
        by = plain(rows, "kind", pl.len(), by=["region"], k=2)
        found = ask(con, "SELECT region, dp_top_k(kind, 2) FROM rows GROUP BY region", epsilon=EPSILON * 5)
        assert dict(found) == {group[0]: values for group, values in by.items()}


# ---------------------------------------------------------------------- errors

REFUSED = [
    ("dp_noisy_max(*)", "dp_noisy_max needs a column: dp_noisy_max"),
    ("dp_noisy_max()", "dp_noisy_max needs a column"),
    ("dp_noisy_max(3)", "dp_noisy_max needs a column"),
    ("dp_noisy_max('north')", "dp_noisy_max needs a column"),
    ("dp_noisy_max(NULL)", "dp_noisy_max needs a column"),
    ("dp_noisy_max(kind, 3)", "dp_noisy_max needs two columns"),
    ("dp_noisy_max(kind, 3, 0, 5)", "dp_noisy_max needs two columns"),
    ("dp_noisy_max(kind, *)", "dp_noisy_max needs two columns"),
    ("dp_top_k(kind)", r"Say dp_top_k\(x, 3\)"),
    ("dp_top_k(kind, NULL)", r"Say dp_top_k\(x, 3\)"),
    ("dp_top_k(3, kind)", "dp_top_k needs"),
    ("dp_top_k(kind, n)", r"Say dp_top_k\(x, 3\)"),
    ("dp_top_k(kind, 0)", "k must be at least 1"),
    ("dp_top_k(kind, -1)", "k must be at least 1"),
    ("dp_top_k(kind, 1.5)", "k must be a whole number"),
    ("dp_top_k(kind, true)", "k must be a whole number"),
    ("dp_top_k(kind, '3')", "k must be a whole number"),
    ("dp_top_k(kind, 3, candidates := [1, 2])", "k := 3 is more than the 2 candidates"),
    ("dp_noisy_max(kind, k := 3)", "To choose several, write dp_top_k"),
    ("dp_noisy_max(kind, seed := 3)", "dp_noisy_max has no option seed"),
    ("dp_noisy_max(kind, confidence := 0.9)", "has no interval. Leave confidence out"),
    ("dp_noisy_max(kind, mechanism := 'laplace')", "dp_noisy_max has no option mechanism"),
    ("dp_noisy_max(kind, within := 5)", "dp_noisy_max has no option within"),
    ("dp_noisy_max(who)", "reads the unit column"),
    ("dp_noisy_max(who % 2)", "reads the unit column"),
    ("dp_noisy_max(nothing)", "nothing"),
    ("dp_noisy_max(x)", "can't be a grouping key"),
    ("dp_noisy_max(kind, candidates := ['a'])", "candidates can't be read as kind"),
    ("dp_noisy_max(region, candidates := [1])", "candidates can't be read as region"),
    ("dp_noisy_max(region, candidates := 'north')", "candidates is a list"),
    ("dp_noisy_max(region, candidates := [])", "candidates must list between 1"),
    ("dp_noisy_max(region, candidates := ['a', 'a'])", "lists a value twice"),
    ("dp_noisy_max(region, candidates := [region])", "An option is a constant"),
    ("dp_noisy_max(region, candidates := (SELECT list(region) FROM rows))", "list is not among"),
    ("dp_noisy_max(place, candidates := ['nowhere'])", "candidates can't be read as place"),
    ("dp_noisy_min(kind)", "noisy_min needs public candidates"),
    ("dp_noisy_max(kind, score := 'most')", "by: 'rows', 'units'"),
    ("dp_noisy_max(kind, n)", "bounds"),
    ("dp_noisy_max(kind, n, 5, 1)", "lower < upper"),
    ("dp_noisy_max(kind, n, 0, 5, 7)", "takes other arguments"),
    ("dp_noisy_max(kind, n, -1, 5)", "no row lowers a score"),
    ("dp_noisy_max(kind, n, 0, 5, score := 'units')", "not by both"),
    ("dp_noisy_max(kind, bounds := (0, 5))", "bounds only for a column that it sums"),
    ("dp_noisy_max(kind, region, 0, 5)", "region"),
    ("dp_noisy_max(DISTINCT kind)", "neither DISTINCT nor ORDER BY"),
    ("dp_noisy_max(kind) OVER ()", "window function"),
    ("dp_noisy_max(dp_count(*))", "can't be inside"),
    ("dp_noisy_max(kind, dp_count(*), 0, 5)", "can't be inside"),
    ("dp_sum(dp_noisy_max(kind), 0, 1)", "can't be inside"),
    ("dp_noisy_max(max(kind))", "max is not among"),
    ("dp_noisy_max(random()::INT)", "random is not among"),
    ("dp_noisy_max(kind, max_rows_per_group := 'auto')", "can't be estimated"),
    ("dp_noisy_max(kind, keys := [1])", "nothing to group by"),
    ("region, dp_noisy_max(kind)", "neither a key"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[call for call, _ in REFUSED])
def test_refusals_say_why_and_cost_nothing(call, message):
    paying = session(epsilon=1)
    con = dp.connect(shared_connection(), paying)
    before = paying.spent
    with pytest.raises(dp.DPError, match=message):
        con.sql(f"SELECT {call} FROM rows", **({} if "within" in call else {"epsilon": 0.1}))
    assert paying.spent == before
    assert not paying.releases


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("noisy_max('rows', '*')", "dp_noisy_max needs a column|syntax error"),
        ("noisy_max('rows', '3')", "dp_noisy_max needs a column"),
        ("noisy_max('rows', NULL)", "needs a column|given as text|cast to NULL"),
        ("noisy_max('rows', 'who')", "reads the unit column"),
        ("noisy_max('rows', 'kind, n')", "Expected a single expression"),
        ("noisy_max('rows', 'kind', candidates := ['a'])", "candidates= can't be read as kind"),
        ("noisy_max('rows', 'kind', candidates := 3)", "candidates= is a list"),
        ("noisy_max('rows', 'kind', value := 'n')", "bounds"),
        ("noisy_max('rows', 'kind', value := 'n', lower := 5, upper := 0)", "lower < upper"),
        ("noisy_max('rows', 'kind', lower := 0, upper := 5)", "for the column that is summed"),
        ("noisy_max('rows', 'kind', value := 'n', lower := 0, upper := 5, score := 'rows')", "not by both"),
        ("noisy_max('rows', 'kind', confidence := 0.9)", "no interval"),
        ("noisy_max('rows', 'kind', mechanism := 'laplace')", "no option mechanism"),
        ("noisy_max('rows', 'kind', min_units := 3)", "no option min_units"),
        ("noisy_min('rows', 'kind')", "noisy_min needs public candidates"),
        ("top_k('rows', 'kind', 0)", "k must be at least 1"),
        ("top_k('rows', 'kind', 1.5)", "k must be a whole number"),
        ("top_k('rows', 'kind', NULL)", r"Say dp_top_k\(x, 3\)"),
        ("noisy_max('rows', 'kind', epsilon := 2)", "budget"),
    ],
)
def test_functions_refuse_with_the_same_words(refusing, call, message):
    raw, paying = refusing
    spend = "" if "epsilon" in call else ", epsilon := 0.1"
    with pytest.raises(duckdb.Error, match=message):
        raw.sql(f"FROM dp.{call[:-1]}{spend})").fetchall()
    assert not paying.releases


def test_a_preview_shows_the_plan_and_spends_nothing(con, paying):
    shown = str(con.preview("SELECT region, dp_top_k(kind, 2, epsilon := 0.5) AS t FROM rows GROUP BY region"))
    for word in ("top_k (2) of kind by region", "discovered", "delta", "expected regret"):
        assert word in shown
    both = con.preview("SELECT dp_noisy_max(kind) AS k, dp_count(*) AS n FROM rows", epsilon=1)
    assert [float(plan.cost.epsilon) for plan in both] == [0.5, 0.5]
    assert not paying.releases
