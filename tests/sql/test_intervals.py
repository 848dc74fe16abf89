"""Intervals in a SELECT: what frames show with confidence=, at no cost, in the columns that the SELECT names."""

import polars as pl
import pytest

import dp_polars as dp

KEYS = ["north", "south", "west"]
VISITS = pl.DataFrame(
    {
        "user": [i % 900 for i in range(2_700)],
        "region": [KEYS[i % 3] for i in range(2_700)],
        "spent": [float(i % 7) for i in range(2_700)],
    }
)
BY_REGION = "FROM visits GROUP BY region"


@pytest.fixture
def con():
    session = dp.Session(epsilon=9.0, unit="user", max_groups=3, max_rows_per_group=5)
    return dp.connect(None, session).register("visits", VISITS)


def ask(con, query, **options):
    given = {"epsilon": 1.0} | ({"keys": KEYS} if "GROUP BY" in query else {}) | options
    return con.sql(query, **given).pl()


@pytest.mark.slow
def test_the_ends_are_those_of_a_frame_and_cost_nothing(con):
    shown = ask(con, f"SELECT region, dp_count(*) AS n, dp_avg(spent, 0, 9) AS m {BY_REGION}")
    spent = con._session.spent
    ends = "dp_low(n, 0.9) AS n_low, dp_high(n, 0.9) AS n_high, m, dp_low(m, 0.9) AS m_low, dp_high(m, 0.9) AS m_high"
    query = f"SELECT region, dp_count(*) AS n, {ends.replace('m, dp', 'dp_avg(spent, 0, 9) AS m, dp')} {BY_REGION}"
    named = ask(con, query)
    added = ask(con, f"SELECT region, dp_count(*) AS n, dp_avg(spent, 0, 9) AS m {BY_REGION}", confidence=0.9)
    assert named.columns == ["region", "n", "n_low", "n_high", "m", "m_low", "m_high"]
    assert named.equals(added)
    assert named.select(shown.columns).equals(shown)
    assert con._session.spent == spent
    # The same noisy numbers through a frame.
    plan = con._session.releases[-1].plan
    frame = dp.private(VISITS, dp.Session(epsilon=9.0, unit="user", max_groups=3, max_rows_per_group=5))
    same = frame.group_by("region").agg(
        n=dp.count(), m=dp.mean("spent", bounds=(0, 9)), keys=KEYS, epsilon=1.0, confidence=0.9
    )
    assert same.columns == added.columns
    widths = [(own["n_high"] - own["n_low"]).to_list() for own in (same, added)]
    assert widths[0] == widths[1]
    assert plan.cost.epsilon == 1


def test_ends_are_found_in_stored_releases_and_may_stand_wherever_released_columns_may(con):
    ask(con, f"SELECT region, dp_count(*) AS n {BY_REGION}")
    spent = con._session.spent
    table = ask(
        con,
        f"SELECT region, dp_count(*) - dp_low(dp_count(*)) AS width {BY_REGION} HAVING dp_low(dp_count(*)) > 100 "
        "ORDER BY dp_high(dp_count(*)) DESC LIMIT 2",
    )
    assert table.height == 2
    assert (table["width"] > 0).all()
    table = ask(con, f"SELECT region, dp_count(*) AS n {BY_REGION} HAVING dp_low(n) > 1000000 ORDER BY dp_high(n)")
    assert table.height == 0
    inner = f"SELECT region, dp_count(*) AS n, dp_low(n) AS at_least {BY_REGION}"
    table = ask(con, f"WITH counts AS ({inner}) SELECT sum(at_least) AS low, sum(n) AS n FROM counts")
    assert table["low"].item() < table["n"].item()
    assert con._session.spent == spent


def test_an_end_without_an_alias_is_named_like_the_column_of_a_frame(con):
    assert ask(con, "SELECT dp_count(*) AS n, dp_low(n), dp_high(n) FROM visits").columns == ["n", "n_low", "n_high"]
    assert ask(con, "SELECT dp_low(dp_count(*)) FROM visits").columns == ["dp_count_low"]
    assert ask(con, "SELECT dp_count(*) FROM visits", confidence=0.5).columns == [
        "dp_count", "dp_count_low", "dp_count_high"
    ]  # fmt: skip


def test_the_default_confidence_is_95_percent_and_the_nearest_word_counts(con):
    def width(end, **options):
        table = ask(con, f"SELECT dp_count(*) AS n, dp_high(n{end}) - n AS width FROM visits", **options)
        return table["width"].item()

    assert width("") == width(", 0.95") == width(", confidence := 0.95") == width("", confidence=0.95)
    assert width(", 0.5") < width("") < width(", 0.999")
    assert width(", 0.5", confidence=0.999) == width(", 0.5")
    assert con._session.spent.epsilon == 1
    parameter = "SELECT dp_count(*) AS n, dp_high(n, $p) - n AS width FROM visits"
    assert con.sql(parameter, params={"p": 0.5}, epsilon=1.0).fetchall()[0][1] == width(", 0.5")


@pytest.mark.slow
def test_the_ends_that_confidence_adds_move_no_position(con):
    """Numbers in GROUP BY, ORDER BY and DISTINCT ON are positions in the SELECT as it was written."""
    query = (
        "SELECT region, dp_count(*) AS n, dp_avg(spent, 0, 9) AS m FROM visits GROUP BY 1 ORDER BY 3 DESC, 2 LIMIT 2"
    )
    table = ask(con, query, confidence=0.9)
    assert table.columns == ["region", "n", "n_low", "n_high", "m", "m_low", "m_high"]
    assert table.height == 2
    assert table["m"].is_sorted(descending=True)
    table = ask(con, "SELECT dp_count(*) AS n, region FROM visits GROUP BY 2 ORDER BY 2 DESC", confidence=0.9)
    assert table.columns == ["n", "n_low", "n_high", "region"]
    assert table["region"].to_list() == KEYS[::-1]
    table = ask(con, "SELECT dp_low(n), region, dp_count(*) AS n FROM visits GROUP BY ALL ORDER BY ALL")
    assert table.columns == ["n_low", "region", "n"]
    assert table["n_low"].is_sorted()
    first = "SELECT DISTINCT ON (3) region, dp_count(*) AS n, dp_count(*) * 0 AS zero FROM visits GROUP BY 1 ORDER BY 1"
    assert ask(con, first, confidence=0.9)["region"].to_list() == KEYS[:1]


def test_ranks_and_values_of_quantiles(con):
    median = "dp_median(spent, 0, 9) AS m"
    table = ask(con, f"SELECT {median}, dp_rank_error(m) FROM visits")
    assert table.columns == ["m", "m_rank_error"]
    table = ask(con, f"SELECT {median}, dp_count(spent) AS n, dp_rank_low(m), dp_rank_high(m) FROM visits")
    low, high = table.select("m_rank_low", "m_rank_high").row(0)
    assert 0 <= low < 0.5 < high <= 1
    paid = con._session.spent.epsilon
    table = ask(con, "SELECT dp_median(spent, 0, 9, interval := 'value') AS m, dp_low(m), dp_high(m) FROM visits")
    assert table.columns == ["m", "m_low", "m_high"]
    assert table["m_low"].item() <= table["m"].item() <= table["m_high"].item()
    assert con._session.spent.epsilon == paid + 1
    again = ask(con, f"SELECT {median} FROM visits", interval="value", confidence=0.95)
    assert again.equals(table)
    assert con._session.spent.epsilon == paid + 1


def test_each_query_of_a_select_has_its_own_ends(con):
    few = "dp_count(*, epsilon := 0.5) FILTER (WHERE spent > 3) AS few"
    table = ask(con, f"SELECT dp_count(*, epsilon := 2) AS n, {few}, dp_low(few), dp_low(n) FROM visits", epsilon=None)
    assert table.columns == ["n", "few", "few_low", "n_low"]
    assert table["few"].item() - table["few_low"].item() > table["n"].item() - table["n_low"].item()


def test_a_doubtful_answer_has_no_interval():
    """The ends are null if too few units decided about a cap, as in frames."""
    session = dp.Session(epsilon=1.0, delta=1e-6, unit="user", max_groups=3, max_rows_per_group="auto")
    con = dp.connect(None, session).register("visits", VISITS.filter(pl.col("user") < 50))
    with pytest.warns(dp.DPWarning, match="may be far from the data"):
        table = ask(con, "SELECT dp_count(*) AS n, dp_low(n) FROM visits", epsilon=0.1)
    assert table["n_low"].item() is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("SELECT dp_low(region) FROM visits", {}, "about one private aggregate of the same SELECT"),
        ("SELECT 2 * dp_count(*) AS n, dp_low(n) FROM visits", {}, "about one private aggregate"),
        ("SELECT dp_count(*) AS n, dp_low(spent) FROM visits", {}, "about one private aggregate"),
        ("SELECT dp_noisy_max(region) AS n, dp_low(n) FROM visits", {}, "about one private aggregate"),
        ("SELECT dp_count(*) AS n, dp_low() FROM visits", {}, "takes a private aggregate or its alias"),
        ("SELECT dp_count(*) AS n, dp_low(n, 0.9, 2) FROM visits", {}, "takes a private aggregate or its alias"),
        ("SELECT dp_count(*) AS n, dp_low(n, sure := 0.9) FROM visits", {}, "takes a private aggregate or its alias"),
        ("SELECT dp_count(*) AS n, dp_low(n) FILTER (spent > 1) FROM visits", {}, "takes a private aggregate"),
        ("SELECT dp_count(*) AS n, dp_low(n, spent) FROM visits", {}, "a constant or a parameter"),
        ("SELECT dp_count(*) AS n, dp_low(n, 1.5) FROM visits", {}, "strictly between 0 and 1"),
        ("SELECT dp_count(*) AS n, dp_low(n, 0.9), dp_high(n, 0.8) FROM visits", {}, "differs between intervals"),
        ("SELECT dp_count(*, confidence := 0.9) AS n FROM visits", {}, r"select dp_low\(n, 0.95\)"),
        ("SELECT dp_count(*) AS n, n_low FROM visits", {}, r"select dp_low\(n\)"),
        ("SELECT dp_median(spent, 0, 9) AS m, dp_low(m) FROM visits", {}, "It has dp_rank_error"),
        ("SELECT dp_quantile(spent, [0.2, 0.8], 0, 9) AS m FROM visits", {"confidence": 0.9}, r"dp_rank_error\(m\)"),
        ("SELECT dp_median(spent, 0, 9, interval := 'value') AS m FROM visits", {}, "which nothing shows"),
        ("SELECT dp_histogram(spent, 0, 9, bins := 3) AS h, dp_low(h) FROM visits", {}, "has no dp_low"),
        ("SELECT dp_count(*) AS n, 1 AS n_low FROM visits", {"confidence": 0.9}, "SELECT has a column of that name"),
        ("SELECT dp_count(*), dp_count(*) FILTER (spent > 1) FROM visits", {"confidence": 0.9}, "alias of its own"),
        ("SELECT dp_count(*) AS n FROM visits", {"confidence": 0}, "confidence must lie strictly between 0 and 1"),
        ("WITH a AS (SELECT dp_count(*) AS n FROM visits) SELECT n FROM a", {"confidence": 0.9}, "outermost SELECT"),
        ("WITH a AS (SELECT dp_count(*) AS n FROM visits) SELECT dp_low(n) FROM a", {}, "in the SELECT of its private"),
        ("SELECT user FROM visits WHERE dp_low(spent) > 1", {}, "private rows"),
    ],
)
def test_what_has_no_such_end_is_refused_at_no_cost(con, query, options, message):
    with pytest.raises(dp.DPError, match=message):
        ask(con, query, **options)
    assert not con._session.releases


@pytest.mark.parametrize(
    "query",
    [
        "SELECT dp_count(*) AS a, dp_count_units() AS A, dp_low(a) FROM visits",
        "SELECT dp_count(*) AS a, dp_count_units() AS A, dp_low(A) FROM visits",
        "SELECT dp_count(*) AS a, dp_count_units() AS a, a + 1 FROM visits",
        "SELECT dp_count(*) AS a, dp_count_units() AS A FROM visits HAVING dp_high(a) > 1",
        "SELECT dp_count(*) AS a, dp_count_units() AS A FROM visits ORDER BY a",
        "SELECT upper(region) AS a, lower(region) AS A, dp_count(*) FROM visits GROUP BY a",
        "SELECT dp_sum(c, 0, 9) FROM (SELECT user, spent AS a, -spent AS A, a + 1 AS c FROM visits)",
    ],
)
def test_an_alias_that_two_columns_have_is_refused_where_it_is_used(con, query):
    with pytest.raises(dp.StatementNotAllowed, match="the alias of 2 columns of this SELECT"):
        ask(con, query, keys=None)
    assert not con._session.releases


def test_aliases_that_differ_by_case_alone_are_columns_as_long_as_nothing_uses_them(con):
    query = "SELECT dp_count(*) AS a, dp_count_units() AS A, dp_low(dp_count_units()) AS low FROM visits"
    assert con.sql(query, epsilon=1.0).columns == ["a", "A_1", "low"]  # DuckDB tells them apart
    own = "SELECT dp_count(*) AS spent, dp_count_units() AS Spent, dp_sum(spent, 0, 9) AS s FROM visits"
    assert con.sql(own, epsilon=1.0).columns == ["spent", "Spent_1", "s"]  # the column takes precedence


@pytest.mark.slow
@pytest.mark.parametrize("rows", [VISITS, VISITS.clear(), VISITS.with_columns(user=None)], ids=["all", "none", "null"])
def test_the_columns_depend_on_no_row(rows):
    con = dp.connect(None, dp.Session(epsilon=1.0, unit="user", max_rows_per_group=5))
    con.register("visits", rows.with_columns(pl.col("user").cast(pl.Int64)))
    table = ask(con, f"SELECT region, dp_avg(spent, 0, 9) AS m {BY_REGION}", confidence=0.9, max_groups=3)
    assert table.schema == {"region": pl.String, **dict.fromkeys(("m", "m_low", "m_high"), pl.Float64)}
    assert table["region"].to_list() == KEYS
    assert table.null_count().sum_horizontal().item() == 0


@pytest.mark.slow
def test_notes_tell_that_the_cut_is_unknown_as_a_release_of_a_frame_does(con):
    """An interval is about the noise alone, and a relation has no place for what a release of a frame says."""
    assert con.notes == []
    query = f"SELECT region, dp_count(*) AS n, dp_low(n) AS low {BY_REGION}"
    ask(con, query)
    assert con.notes == [
        "cut off: unknown for max_rows_per_group: select dp_cut_by_cap(), or SUMMARIZE the table",
    ]
    ask(con, f"SELECT region, dp_count(*) AS n {BY_REGION}", confidence=0.9)  # found again
    assert con.notes[0].startswith("cut off: unknown for max_rows_per_group")
    ask(con, f"{query.replace('AS low', 'AS low, dp_cut_by_cap() AS cut')}")
    assert con.notes == ["cut off: cut_by_cap counts the units with more than 5 rows in a group"]
    con.register("lookup", VISITS.head(1)).public("lookup").sql("SELECT region FROM lookup")
    assert con.notes == []
    # A frame says the same, in its own words.
    session = dp.Session(epsilon=9.0, unit="user", max_groups=3, max_rows_per_group=5)
    dp.private(VISITS, session).count("region", keys=KEYS, epsilon=1.0, confidence=0.95)
    assert session.releases[-1].notes[0][1].startswith("unknown for max_rows_per_group: say cut=True")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("select", "columns"),
    [
        ("dp_median(spent, 0, 9) AS m", ["m", "m_rank_error"]),
        ("dp_max(spent, 0, 9) AS m", ["m", "m_rank_error"]),
        (
            "dp_median(spent, 0, 9) AS m, dp_count(spent) AS n",
            ["m", "m_rank_low", "m_rank_high", "n", "n_low", "n_high"],
        ),
        (
            "dp_median(spent, 0, 9) AS m, dp_count(spent) FILTER (WHERE spent > 1) AS n",
            ["m", "m_rank_error", "n", "n_low", "n_high"],
        ),
        ("dp_median(spent, 0, 9, interval := 'value') AS m", ["m", "m_low", "m_high"]),
        ("dp_quantile(spent, [0.2, 0.8], 0, 9) AS m, dp_avg(spent, 0, 9) AS a", ["m", "m_rank_low", "m_rank_high"]),
        (
            "dp_sum(spent, 0, 3) AS s, dp_cut_by_cap() AS c, dp_cut_by_bounds() AS b",
            ["s", "s_low", "s_high", "c", "c_low", "c_high", "b", "b_low", "b_high"],
        ),
    ],
)
def test_confidence_adds_ranks_and_the_ends_of_what_is_cut_at_no_cost(con, select, columns):
    query = f"SELECT {select} FROM visits"
    if "value" not in select:
        plain = ask(con, query)
    found = ask(con, query, confidence=0.9)
    assert found.columns[: len(columns)] == columns
    if "value" not in select:
        assert found.select(plain.columns).equals(plain)
    spent = con._session.spent
    ask(con, query, confidence=0.9)
    assert con._session.spent == spent
    assert con._session.spent.share <= 2.01 / 9  # the two statements share their noise


@pytest.mark.slow
def test_added_ranks_are_those_of_a_frame(con):
    found = ask(con, f"SELECT region, dp_median(spent, 0, 9) AS m {BY_REGION} ORDER BY 2", confidence=0.9)
    frame = dp.private(VISITS, dp.Session(epsilon=9.0, unit="user", max_groups=3, max_rows_per_group=5))
    same = frame.median("spent", by="region", bounds=(0, 9), keys=KEYS, epsilon=1.0, confidence=0.9)
    assert found["m_rank_error"].to_list() == same["spent_rank_error"].to_list()
    assert found["m"].is_sorted()


def test_the_ends_of_a_cut_can_be_named(con):
    query = "SELECT dp_count(*) AS n, dp_cut_by_cap() AS c, dp_low(c, 0.9) AS low, dp_high(c, 0.9) AS high FROM visits"
    (row,) = ask(con, query).to_dicts()
    assert row["low"] < row["c"] < row["high"]


@pytest.mark.parametrize(
    ("items", "names"),
    [
        ("dp_count(*) AS n, dp_avg(spent, 0, 9) AS m", ["n", "m"]),
        ("dp_count(*) AS n, dp_avg(spent, 0, 9) AS spent", ["n", "answer_1"]),  # also a column of the table
        ("dp_count(*) + 1 AS n, dp_avg(spent, 0, 9) AS m", ["answer_0", "m"]),  # not the call by itself
        ("dp_count(*) AS n, dp_avg(spent, 0, 9) AS n_low", ["answer_0", "n_low"]),
        ("dp_count(*) AS n, dp_avg(spent, 0, 9) AS m, dp_high(n) AS n_low", ["answer_0", "m"]),
    ],
)
def test_plans_and_releases_call_an_answer_by_its_alias_where_that_means_nothing_else(con, items, names):
    query = f"SELECT region, {items} {BY_REGION}"
    plan = con.preview(query, epsilon=1.0, keys=KEYS)
    assert [aggregate.name for aggregate in plan.query.aggregates] == names
    if "dp_high(n)" in items:  # HAVING looks for columns first, so n_low must not be the lower end there
        assert ask(con, f"{query} HAVING n_low > n").height == len(ask(con, query))
